//! What came of a replay.

use anyhow::{Context, Result, bail};

use crate::quantiles::{median, quantile};

/// Which queries are looked at, by when they were due, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) from_us: f64,
    pub(super) until_us: f64,
}

/// The share of the machine beyond which a run is void: who balances would be measured by who is not.
const MACHINE_MAX: f64 = 0.7;

/// The same of what other programs use: the servers would not have had what they were given.
const OTHERS_MAX: f64 = 0.1;

/// The share of its time for which a thread of the balancer may wait for its core: beyond, it is the core that is measured.
const WAITED_MAX: f64 = 0.1;

/// How late queries may be sent, in milliseconds: little beside what servers take.
const LATE_MAX: f64 = 1.0;

/// How far the load may be off from what it was to be, as a share of that.
pub(super) const LOAD_OFF_MAX: f64 = 0.05;

/// Under which conditions a run took place.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Conditions {
    /// The share of the machine that balancer, agents, replayer and servers used, the last as if they used all they may.
    pub(super) machine: f64,
    /// The share that others used.
    pub(super) others: f64,
    /// The share of its time for which the thread of the balancer that had to wait most was ready and did not run.
    pub(super) waited: f64,
    /// The 99th percentile of how late queries were sent, in milliseconds.
    pub(super) late: f64,
    /// What servers used of what they may: about the load, where it is below 1. Above 1 where they went on after the end.
    pub(super) servers: f64,
    /// The load that was wanted, and what it was by what a query has cost before and after; 0 where none was wanted.
    pub(super) load_wanted: f64,
    pub(super) load_had: f64,
}

/// What servers did in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Work {
    /// Queries that each has received.
    pub(super) received: [u64; 3],
    /// Processor time that each has used, in seconds.
    pub(super) used: [f64; 3],
}

impl Work {
    /// How many queries a second each can answer that may use these shares of one processor, by what one has cost it here;
    /// no number where it has received none.
    pub(super) fn capacities(&self, shares: &[f64; 3]) -> [f64; 3] {
        std::array::from_fn(|server| shares[server] * self.received[server] as f64 / self.used[server])
    }

    /// Leaves out a server that did not keep count.
    pub(super) fn forget(&mut self, server: usize) {
        (self.received[server], self.used[server]) = (0, 0.0);
    }

    /// Processor time that a query has cost the servers, in microseconds.
    pub(super) fn cost_us(&self) -> f64 {
        self.used.iter().sum::<f64>() * 1e6 / self.received.iter().sum::<u64>() as f64
    }
}

impl Conditions {
    /// Why the run says nothing, if it does not.
    pub(super) fn void(&self) -> Option<&'static str> {
        let load_off = (self.load_had - self.load_wanted).abs();
        let limits = [
            (self.machine, MACHINE_MAX, "the run used too much of the machine"),
            (self.others, OTHERS_MAX, "other programs used the machine"),
            (self.waited, WAITED_MAX, "the balancer had to wait for its core"),
            (self.late, LATE_MAX, "queries were sent late"),
            (load_off, LOAD_OFF_MAX * self.load_wanted, "a query's cost changed"),
        ];
        limits.into_iter().find(|(value, most, _)| value > most).map(|(.., why)| why)
    }
}

/// What came of the queries of one run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    /// Milliseconds from due to answer of those that were answered well, ascending.
    latencies: Vec<f64>,
    /// Queries, and those of them that nobody answered; others that failed were answered with a failure.
    asked: usize,
    unanswered: usize,
    /// Seconds in which they were due.
    seconds: f64,
    pub(super) conditions: Conditions,
    pub(super) work: Work,
}

impl Outcome {
    /// Reads the log of a replay; what was due outside of the window is left out.
    ///
    /// # Errors
    /// Where it is no such log, or nothing is left.
    pub(super) fn of(log: &str, window: Window, conditions: Conditions, work: Work) -> Result<Outcome> {
        let (mut latencies, mut asked, mut unanswered) = (Vec::new(), 0, 0);
        for row in log.lines().skip(1) {
            let cells: Vec<&str> = row.split('\t').collect();
            let [_, due, _, latency, _, _, _, result, ..] = cells[..] else { bail!("no row: {row}") };
            let due: f64 = due.parse().with_context(|| format!("no row: {row}"))?;
            if !(window.from_us..window.until_us).contains(&due) {
                continue;
            }
            asked += 1;
            match (latency.parse::<f64>(), result) {
                (Ok(latency), "NOERROR" | "NXDOMAIN") => latencies.push(latency / 1e3),
                (Ok(_), _) => {}
                (Err(_), _) => unanswered += 1,
            }
        }
        if asked == 0 {
            bail!("nothing was asked");
        }
        latencies.sort_by(f64::total_cmp);
        let seconds = (window.until_us - window.from_us) / 1e6;
        Ok(Outcome { latencies, asked, unanswered, seconds, conditions, work })
    }

    /// The mean response time, in milliseconds.
    pub(super) fn mean(&self) -> f64 {
        self.latencies.iter().sum::<f64>() / self.latencies.len() as f64
    }

    /// What this share of response times do not pass, in milliseconds.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        quantile(&self.latencies, share).unwrap_or(f64::NAN)
    }

    /// The share of queries that failed.
    pub(super) fn errors(&self) -> f64 {
        1.0 - self.latencies.len() as f64 / self.asked as f64
    }

    /// The share of queries that nobody answered: dropped on purpose, or lost.
    pub(super) fn unanswered(&self) -> f64 {
        self.unanswered as f64 / self.asked as f64
    }

    /// Good answers a second.
    pub(super) fn goodput(&self) -> f64 {
        self.latencies.len() as f64 / self.seconds
    }
}

/// A mean, and half the width of its 95 % confidence interval (Student's t); NaN for one value alone.
pub(super) fn interval(values: &[f64]) -> (f64, f64) {
    const T: [f64; 14] =
        [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145];
    let count = values.len();
    let mean = values.iter().sum::<f64>() / count as f64;
    let Some(degrees) = count.checked_sub(2) else { return (mean, f64::NAN) };
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let error = (squares / (count - 1) as f64 / count as f64).sqrt();
    (mean, T.get(degrees).copied().unwrap_or(1.96) * error)
}

/// The median of some values, and between which of them the median of whatever they were drawn from lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Median {
    pub(super) value: f64,
    pub(super) from: f64,
    pub(super) to: f64,
    /// How sure that is, from [`SURE_LEAST`] to 1.
    pub(super) sure: f64,
}

/// How sure an interval for a median must be.
const SURE_LEAST: f64 = 0.9;

/// Values without which there is no interval that is so sure: all of four are on one side of it in one case of eight.
pub(super) const VALUES_LEAST: usize = 5;

impl Median {
    /// The narrowest interval that has as many values below as above it, whatever they are drawn from. None of fewer than
    /// [`VALUES_LEAST`], or where something is no number.
    pub(super) fn of(mut values: Vec<f64>) -> Option<Median> {
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let value = middle(&values)?;
        let sure = |left_out: usize| 1.0 - 2.0 * share_with_at_most(left_out, count);
        let left_out = (0..count.div_ceil(2)).take_while(|left_out| sure(*left_out) >= SURE_LEAST).last()?;
        let (from, to) = (values[left_out], values[count - 1 - left_out]);
        Some(Median { value, from, to, sure: sure(left_out) })
    }
}

/// The median of ascending values; none of nothing, or where something is no number.
pub(super) fn middle(values: &[f64]) -> Option<f64> {
    values.iter().all(|value| !value.is_nan()).then(|| median(values))?
}

/// How often at most so many of all tosses of a coin are heads.
fn share_with_at_most(heads: usize, tosses: usize) -> f64 {
    let mut share = 0.5_f64.powi(tosses as i32);
    let mut sum = share;
    for number in 0..heads {
        share *= (tosses - number) as f64 / (number + 1) as f64;
        sum += share;
    }
    sum
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
        let of = |window| Outcome::of(log, window, Conditions::default(), Work::default());
        let outcome = of(window).expect("it is a log");
        assert_eq!((outcome.mean(), outcome.errors(), outcome.goodput()), (1.0, 0.5, 1_000.0));
        assert_eq!(outcome.unanswered(), 0.25);
        assert_eq!((outcome.quantile(0.5), outcome.quantile(0.99)), (0.5, 1.5));
        let later = Window { from_us: 1e9, until_us: 2e9 };
        assert!(of(later).is_err());
    }

    #[test]
    fn a_run_without_room_is_void() {
        let limits =
            Conditions { machine: 0.7, others: 0.1, waited: 0.1, late: 1.0, ..Conditions::default() };
        let fine = Conditions { servers: 1.2, ..limits };
        assert_eq!(fine.void(), None);
        let voids = [
            Conditions { machine: 0.71, ..fine },
            Conditions { others: 0.11, ..fine },
            Conditions { waited: 0.11, ..fine },
            Conditions { late: 1.1, ..fine },
        ]
        .map(|conditions| conditions.void());
        assert!(voids.iter().all(Option::is_some) && voids[0] != voids[1] && voids[2] != voids[3]);
    }

    #[test]
    fn a_run_at_another_load_is_void() {
        for (load_wanted, load_had, is_void) in [
            (0.0, 0.0, false),
            (0.9, 0.9, false),
            (0.9, 0.94, false),
            (0.9, 0.86, false),
            (0.9, 0.95, true),
            (0.9, 0.85, true),
            (1.2, 1.25, false),
            (1.2, 1.27, true),
        ] {
            let conditions = Conditions { load_wanted, load_had, ..Conditions::default() };
            assert_eq!(conditions.void().is_some(), is_void, "{load_wanted} {load_had}");
        }
    }

    #[test]
    fn capacity_is_what_the_cost_of_a_query_leaves() {
        let work = Work { received: [1_000, 1_000, 0], used: [0.1, 0.2, 0.0] };
        let [first, second, idle] = work.capacities(&[0.2, 0.1, 0.1]);
        assert!((first - 2_000.0).abs() < 1e-9 && (second - 500.0).abs() < 1e-9, "{first} {second}");
        assert!(idle.is_nan());
        assert!((work.cost_us() - 150.0).abs() < 1e-9, "{}", work.cost_us());
    }

    #[test]
    fn a_median_has_an_interval_from_five_values_on() {
        // From 1 to so many, backwards: which of them the interval goes from, and how sure it is.
        for (count, from, sure) in
            [(5, 1.0, 0.9375), (7, 1.0, 0.984_375), (8, 2.0, 0.929_687_5), (15, 4.0, 0.964_843_75)]
        {
            let values: Vec<f64> = (1..=count).rev().map(f64::from).collect();
            let count = f64::from(count);
            let expected = Median { value: (count + 1.0) / 2.0, from, to: count + 1.0 - from, sure };
            assert_eq!(Median::of(values), Some(expected));
        }
        let many = |value: f64| vec![value; VALUES_LEAST];
        assert_eq!(Median::of(many(f64::INFINITY)).map(|median| median.value), Some(f64::INFINITY));
        assert_eq!(Median::of(many(1.0)[1..].to_vec()), None);
        assert_eq!(Median::of([many(1.0), vec![f64::NAN]].concat()), None);
        assert_eq!((middle(&[]), middle(&[0.5]), middle(&[1.0, f64::NAN])), (None, Some(0.5), None));
    }

    #[test]
    fn intervals_are_students() {
        let (mean, half) = interval(&[1.0, 2.0, 3.0]);
        assert!((mean - 2.0).abs() < 1e-9 && (half - 4.303 / 3.0_f64.sqrt()).abs() < 1e-3, "{half}");
        assert!(interval(&[1.0]).1.is_nan());
        // As many as there are rounds at most: squares of 1 to 15 from their mean sum up to 280.
        let (_, half) = interval(&(1..=15).map(f64::from).collect::<Vec<_>>());
        assert!((half - 2.145 * (280.0_f64 / 14.0 / 15.0).sqrt()).abs() < 1e-9, "{half}");
    }
}
