//! The salbnet slides (Jung, Kiertscher, Menski and Schnor, SPECTS 2014) and what they left out, on a virtual clock: our
//! policy beside its rivals, with unequal and moving servers and with faults of feedback.
//!
//! - [`simulation`]: balancers, servers and agents; [`scenarios`]: what happens to them.

mod scenarios;
mod simulation;

use anyhow::Result;
use replay::plot::{Axis, Line, Plot};

use crate::options::Run;
use crate::report::{Limit, Report, number};
use simulation::{Outcome, Scenario};

/// Our policy, and how its rivals are called.
const OURS: &str = "pressure";
const RIVALS: [Arm; 9] = [
    Arm { name: "wrr", policy: "wrr", is_tuned: false },
    Arm { name: "wrr, tuned", policy: "wrr", is_tuned: true },
    Arm { name: "random", policy: "random", is_tuned: false },
    Arm { name: "least-outstanding", policy: "least-outstanding", is_tuned: false },
    Arm { name: "p2c", policy: "p2c", is_tuned: false },
    Arm { name: "ewma", policy: "ewma", is_tuned: false },
    Arm { name: "hot-cold", policy: "hot-cold", is_tuned: false },
    Arm { name: "hash", policy: "hash", is_tuned: false },
    Arm { name: "credit", policy: "credit", is_tuned: false },
];

/// How much worse than the best rival's our median p99 may be.
const WORSE_MAX: f64 = 1.05;

/// What share of queries may fail in any fault: beyond, it has collapsed.
const FAILED_MAX: f64 = 0.01;

/// A policy, and whether it is told what servers can.
struct Arm {
    name: &'static str,
    policy: &'static str,
    is_tuned: bool,
}

/// Does the experiment.
pub(crate) fn perform(run: &Run, report: &mut Report) -> Result<()> {
    report.say(
        "Nothing is sent: balancers, servers and agents are simulated, the policies are the code that a balancer runs. A \
         query that fails, or is not answered within a second, counts as a second. The first second is left out. The same \
         seeds for all policies.",
    );
    let seeds = run.size.of(21, 5, 1);
    let small = ["unequal, 0.7", "sinkhole", "reports: up to 2 s late"];
    let chosen = scenarios::all()
        .into_iter()
        .filter(|scenario| run.size.of(true, true, small.contains(&scenario.name)));
    let mut rows = Vec::new();
    for scenario in chosen {
        let ours =
            Medians::of(&scenario, &Arm { name: OURS, policy: OURS, is_tuned: false }, run.seed, seeds);
        let rivals = RIVALS.map(|arm| Medians::of(&scenario, &arm, run.seed, seeds));
        let best = rivals.iter().map(|rival| rival.p99).fold(f64::INFINITY, f64::min);
        let name = scenario.name;
        report.must(
            format!("{name}: p99 beside the best other policy's"),
            Limit::AtMost(WORSE_MAX),
            ours.p99 / best,
        );
        report.must(format!("{name}: share that failed"), Limit::AtMost(FAILED_MAX), ours.failed);
        let cells = std::iter::once(&ours).chain(&rivals).map(Medians::cell);
        rows.push([scenario.name.to_owned(), scenario.about.to_owned()].into_iter().chain(cells).collect());
    }
    let names = RIVALS.iter().map(|arm| arm.name);
    let head: Vec<&str> = ["scenario", "what happens", OURS].into_iter().chain(names).collect();
    report.table("p99 in milliseconds, and the share that failed: medians over seeds", &head, rows);
    loads(run, seeds.min(5), report);
    Ok(())
}

/// How latency grows with load.
fn loads(run: &Run, seeds: u64, report: &mut Report) {
    let shares: &[f64] =
        run.size.of(&[0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0], &[0.5, 0.7, 0.9, 1.0], &[0.5, 0.9]);
    let arms = [
        Arm { name: OURS, policy: OURS, is_tuned: false },
        Arm { name: "wrr, tuned", policy: "wrr", is_tuned: true },
        Arm { name: "least-outstanding", policy: "least-outstanding", is_tuned: false },
        Arm { name: "hot-cold", policy: "hot-cold", is_tuned: false },
    ];
    let line = |arm: &Arm| {
        let points = shares
            .iter()
            .map(|share| (*share, Medians::of(&scenarios::at_load(*share), arm, run.seed, seeds).p99));
        Line::new(arm.name, points.collect())
    };
    let lines = arms.iter().map(line).collect();
    let up = Axis { is_log: true, from: Some(1.0), ..Axis::titled("p99, ms") };
    let across = Axis::titled("load, of what three unequal servers can");
    report.plot("p99 by load", Plot { across, up, lines });
}

/// Medians over the seeds of one policy in one scenario.
struct Medians {
    p99: f64,
    failed: f64,
}

impl Medians {
    fn of(scenario: &Scenario, arm: &Arm, seed: u64, seeds: u64) -> Medians {
        let outcomes: Vec<Outcome> = (0..seeds)
            .map(|turn| simulation::run(scenario, arm.policy, arm.is_tuned, seed.wrapping_add(turn)))
            .collect();
        let median = |of: &dyn Fn(&Outcome) -> f64| {
            let mut values: Vec<f64> = outcomes.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        Medians { p99: median(&|outcome| outcome.percentile(99.0)), failed: median(&Outcome::failed) }
    }

    fn cell(&self) -> String {
        match self.failed {
            0.0 => number(self.p99),
            failed => format!("{} ({:.2} %)", number(self.p99), failed * 100.0),
        }
    }
}
