//! What came of a replay.

use anyhow::{Context, Result, bail};

/// Which queries are looked at, by when they were due, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) from_us: f64,
    pub(super) until_us: f64,
}

/// What came of the queries of one run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    /// Milliseconds from due to answer of those that were answered well, ascending.
    latencies: Vec<f64>,
    /// Queries.
    asked: usize,
    /// Seconds in which they were due.
    seconds: f64,
    /// The share of the machine that balancer, replayer and servers used, the latter at most.
    pub(super) machine: f64,
    /// What each server received.
    pub(super) received: [u64; 3],
    /// The 99th percentile of how late queries were sent, in milliseconds.
    pub(super) late: f64,
}

impl Outcome {
    /// Reads the log of a replay; what was due outside of the window is left out.
    ///
    /// # Errors
    /// Where it is no such log, or nothing is left.
    pub(super) fn of(
        log: &str,
        window: Window,
        machine: f64,
        received: [u64; 3],
        late_us: f64,
    ) -> Result<Outcome> {
        let (mut latencies, mut asked) = (Vec::new(), 0);
        for row in log.lines().skip(1) {
            let cells: Vec<&str> = row.split('\t').collect();
            let [_, due, _, latency, _, _, _, result, ..] = cells[..] else { bail!("no row: {row}") };
            let due: f64 = due.parse().with_context(|| format!("no row: {row}"))?;
            if !(window.from_us..window.until_us).contains(&due) {
                continue;
            }
            asked += 1;
            if let (Ok(latency), "NOERROR" | "NXDOMAIN") = (latency.parse::<f64>(), result) {
                latencies.push(latency / 1e3);
            }
        }
        if asked == 0 {
            bail!("nothing was asked");
        }
        latencies.sort_by(f64::total_cmp);
        let seconds = (window.until_us - window.from_us) / 1e6;
        Ok(Outcome { latencies, asked, seconds, machine, received, late: late_us / 1e3 })
    }

    /// The mean response time, in milliseconds.
    pub(super) fn mean(&self) -> f64 {
        self.latencies.iter().sum::<f64>() / self.latencies.len() as f64
    }

    /// What this share of response times do not pass, in milliseconds.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let at = ((self.latencies.len() as f64 * share).ceil() as usize).max(1) - 1;
        self.latencies.get(at).copied().unwrap_or(f64::NAN)
    }

    /// The share of queries that failed.
    pub(super) fn errors(&self) -> f64 {
        1.0 - self.latencies.len() as f64 / self.asked as f64
    }

    /// Good answers a second.
    pub(super) fn goodput(&self) -> f64 {
        self.latencies.len() as f64 / self.seconds
    }
}

/// A mean, and half the width of its 95 % confidence interval (Student's t); NaN for one value alone.
pub(super) fn interval(values: &[f64]) -> (f64, f64) {
    const T: [f64; 9] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];
    let count = values.len();
    let mean = values.iter().sum::<f64>() / count as f64;
    let Some(degrees) = count.checked_sub(2) else { return (mean, f64::NAN) };
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let error = (squares / (count - 1) as f64 / count as f64).sqrt();
    (mean, T.get(degrees).copied().unwrap_or(1.96) * error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_counted() {
        let log = "index\tdue_us\tsent_us\tlatency_us\tclient\tcopy\ttransport\tresult\tname\ttype\trtt_us\n\
                   0\t10.0\t11.0\t500.0\tc\t0\tudp\tNOERROR\ta.\tA\t0\n\
                   1\t1000.0\t11.0\t500.0\tc\t0\tudp\tNOERROR\ta.\tA\t0\n\
                   2\t1500.0\t11.0\t1500.0\tc\t0\tudp\tNXDOMAIN\ta.\tA\t0\n\
                   3\t1600.0\t11.0\t100.0\tc\t0\tudp\tSERVFAIL\ta.\tA\t0\n\
                   4\t2000.0\t11.0\t-\tc\t0\tudp\ttimeout\ta.\tA\t0\n\
                   5\t3000.0\t11.0\t500.0\tc\t0\tudp\tNOERROR\ta.\tA\t0\n";
        let window = Window { from_us: 1_000.0, until_us: 3_000.0 };
        let outcome = Outcome::of(log, window, 0.1, [0; 3], 0.0).expect("it is a log");
        assert_eq!((outcome.mean(), outcome.errors(), outcome.goodput()), (1.0, 0.5, 1_000.0));
        assert_eq!((outcome.quantile(0.5), outcome.quantile(0.99)), (0.5, 1.5));
        let later = Window { from_us: 1e9, until_us: 2e9 };
        assert!(Outcome::of(log, later, 0.1, [0; 3], 0.0).is_err());
    }

    #[test]
    fn intervals_are_students() {
        let (mean, half) = interval(&[1.0, 2.0, 3.0]);
        assert!((mean - 2.0).abs() < 1e-9 && (half - 4.303 / 3.0_f64.sqrt()).abs() < 1e-3, "{half}");
        assert!(interval(&[1.0]).1.is_nan());
    }
}
