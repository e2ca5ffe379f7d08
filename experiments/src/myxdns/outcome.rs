//! What became of a run of the closed loop: its numbers, and its three drawings.

use replay::plot::{Axis, Line, Plot, Stroke};

use super::world::{INTERVAL, SCALE, Second};
use crate::report::{Limit, Report, number};

/// How much of Algorithm I's oscillation ours may have.
const OSCILLATION_MAX: f64 = 0.2;

/// Seconds over which a load is a mean: a server is overloaded when the control process would say so.
pub(super) const MEASURED: usize = INTERVAL as usize;

/// The heads of a table of outcomes.
pub(super) const HEAD: [&str; 6] =
    ["algorithm", "oscillation", "deviation", "mean probability", "closest server's share", "overloaded"];

/// What [`HEAD`] says, in full.
pub(super) const MEANING: &str = "Oscillation: mean absolute change of the closest server's probability a minute; \
     deviation of it; share of requests that it served; share of the time in which some server was above 0.5, as a mean \
     over 10 s";

/// The numbers of a run, or the means of several.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    /// Mean absolute change of the first server's probability in a minute.
    pub(super) oscillation: f64,
    /// Standard deviation of that probability.
    pub(super) deviation: f64,
    /// The mean of that probability.
    pub(super) probability: f64,
    /// Share of requests that went to the first server.
    pub(super) closest: f64,
    /// Share of the time in which some server was above its threshold.
    pub(super) overloaded: f64,
}

impl Outcome {
    /// What a run says of an algorithm.
    pub(super) fn of(run: &[Second]) -> Outcome {
        let share = |second: &Second| second.shares[0];
        let count = run.len() as f64;
        let probability = run.iter().map(share).sum::<f64>() / count;
        let changes: f64 = run.windows(2).map(|pair| (share(&pair[1]) - share(&pair[0])).abs()).sum();
        let variance = run.iter().map(|second| (share(second) - probability).powi(2)).sum::<f64>() / count;
        let requests =
            |server: usize| run.iter().map(|second| f64::from(second.requests[server])).sum::<f64>();
        let is_over = |seconds: &&[Second]| {
            (0..2).any(|server| {
                let sum: f64 = seconds.iter().map(|second| second.loads[server]).sum();
                sum / seconds.len() as f64 > SCALE.threshold
            })
        };
        Outcome {
            oscillation: changes * 60.0 / count,
            deviation: variance.sqrt(),
            probability,
            closest: requests(0) / (requests(0) + requests(1)),
            overloaded: run.windows(MEASURED).filter(is_over).count() as f64
                / (run.len() + 1 - MEASURED) as f64,
        }
    }

    /// The mean of outcomes, value by value.
    pub(super) fn mean(all: &[Outcome]) -> Outcome {
        let mean = |of: fn(&Outcome) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
        Outcome {
            oscillation: mean(|one| one.oscillation),
            deviation: mean(|one| one.deviation),
            probability: mean(|one| one.probability),
            closest: mean(|one| one.closest),
            overloaded: mean(|one| one.overloaded),
        }
    }

    /// The row of a table under [`HEAD`].
    pub(super) fn row(&self, name: impl Into<String>) -> Vec<String> {
        let percent = |value: f64| format!("{:.1} %", value * 100.0);
        vec![
            name.into(),
            number((self.oscillation * 1e3).round() / 1e3),
            number((self.deviation * 1e3).round() / 1e3),
            percent(self.probability),
            percent(self.closest),
            percent(self.overloaded),
        ]
    }
}

/// What ours must beside Algorithms I and II.
pub(super) fn required(three: &[Outcome; 3]) -> [(&'static str, Limit, f64); 3] {
    let [first, second, third] = three;
    let overloaded = third.overloaded - first.overloaded.min(second.overloaded);
    let closest = third.closest - first.closest.max(second.closest);
    [
        (
            "III: oscillation beside I's",
            Limit::AtMost(OSCILLATION_MAX),
            third.oscillation / first.oscillation,
        ),
        ("III: time overloaded less the lower of I and II", Limit::AtMost(0.0), overloaded),
        ("III: closest server's share less the higher of I and II", Limit::AtLeast(0.0), closest),
    ]
}

/// The three drawings of a run of an algorithm; `whose` run it is stands in each title.
pub(super) fn drawn(algorithm: &str, whose: &str, run: &[Second], report: &mut Report) {
    let figure = match algorithm {
        "I" => "Figure 7",
        "II" => "Figure 8",
        _ => "Ours",
    };
    type Value = fn(&Second, usize) -> f64;
    let drawings: [(&str, &str, f64, Value); 3] = [
        ("probability", "probability, %", 100.0, |second, server| second.shares[server] * 100.0),
        ("load", "load: busy over quota", 1.0, |second, server| second.loads[server]),
        ("requests", "requests a second", 50.0, |second, server| f64::from(second.requests[server])),
    ];
    for (title, unit, to, value) in drawings {
        // A second's requests and load jump by chance; a mean over five shows where they are.
        let over = if title == "probability" { 1 } else { 5 };
        let lines = (0..2).map(|server| {
            let points = run.windows(over).enumerate().map(|(at, seconds)| {
                let sum: f64 = seconds.iter().map(|second| value(second, server)).sum();
                ((at + over) as f64, sum / over as f64)
            });
            Line::new(format!("server {}", server + 1), points.collect())
        });
        let mut lines: Vec<Line> = lines.collect();
        if title == "load" {
            let ends = vec![(0.0, SCALE.threshold), (run.len() as f64, SCALE.threshold)];
            lines.push(Line::new("threshold", ends).drawn(Stroke::Dashed));
        }
        let up = Axis { to: Some(to), ..Axis::titled(unit) };
        let plot = Plot { across: Axis::titled("time, s"), up, lines };
        report.plot(format!("{figure}{whose}: Algorithm {algorithm}, {title}"), plot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_run() {
        let second = |share: f64, load: f64, requests| Second {
            shares: [share, 1.0 - share],
            loads: [load, 0.1],
            requests,
        };
        // Sixty seconds: the probability goes up and down again; overloaded from the thirtieth on.
        let run: Vec<Second> = (0..60)
            .map(|at| {
                let share = if at == 10 { 0.8 } else { 0.6 };
                second(share, if at < 30 { 0.4 } else { 0.95 }, [30, 10])
            })
            .collect();
        let outcome = Outcome::of(&run);
        let is_near = |value: f64, expected: f64| (value - expected).abs() < 1e-9;
        assert!(is_near(outcome.oscillation, 0.4), "{outcome:?}");
        assert!(is_near(outcome.probability, (59.0 * 0.6 + 0.8) / 60.0), "{outcome:?}");
        assert!(is_near(outcome.closest, 0.75), "{outcome:?}");
        // Of 51 means over ten seconds, those from 22 on have two or more of the overloaded seconds in them.
        assert!(is_near(outcome.overloaded, 29.0 / 51.0), "{outcome:?}");
        let mean = Outcome::mean(&[outcome, Outcome { closest: 0.25, ..outcome }]);
        assert!(is_near(mean.closest, 0.5) && is_near(mean.oscillation, 0.4));
    }
}
