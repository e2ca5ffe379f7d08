//! On a virtual clock: our policy beside its rivals in all scenarios, over many seeds.

use std::num::NonZero;
use std::thread;

use replay::plot::{Axis, Line, Plot};

use super::scenarios;
use super::simulation::{self, ONE_QUEUE, Outcome, SECOND, Scenario, Work};
use crate::options::Run;
use crate::quantiles;
use crate::report::{Limit, Report, number};

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

/// Seeds of a full run. At a load near what the servers can, the median of twenty p99s is off by several percent.
const SEEDS: u64 = 101;

/// How long a scenario lasts in the smallest run, in nanoseconds: a second after the sinkhole has opened.
const SMOKE_NS: u64 = 4 * SECOND;

/// How much worse than the best rival's our median p99 may be; where more than one in a hundred must fail, our median p50.
const WORSE_MAX: f64 = 1.05;

/// What share of queries that the servers can answer may fail in any fault: beyond, it has collapsed.
const FAILED_MAX: f64 = 0.01;

/// A policy, and whether it is told what servers can.
struct Arm {
    name: &'static str,
    policy: &'static str,
    is_tuned: bool,
}

/// Does the experiment.
pub(super) fn perform(run: &Run, report: &mut Report) {
    report.heading("On a virtual clock");
    report.say(
        "Nothing is sent: balancers, servers and agents are simulated, the policies are the code that a balancer runs. A \
         query that fails, or is not answered within a second, counts as a second. The first second is left out. With the \
         same seed, all policies get the same queries with the same work. Last stands what no policy has: one queue for all \
         servers, from which whoever can work on a query takes the first.",
    );
    let seeds = run.size.of(SEEDS, 5, 1);
    let small = ["sinkhole", "reports: half lost"];
    let chosen = scenarios::all()
        .into_iter()
        .filter(|scenario| run.size.of(true, true, small.contains(&scenario.name)))
        .map(|scenario| Scenario { length_ns: length(run, &scenario), ..scenario });
    let (mut rows, mut uses) = (Vec::new(), Vec::new());
    for scenario in chosen {
        let ours =
            Medians::of(&scenario, &Arm { name: OURS, policy: OURS, is_tuned: false }, run.seed, seeds);
        let rivals = RIVALS.map(|arm| Medians::of(&scenario, &arm, run.seed, seeds));
        let (what, of): (_, fn(&Medians) -> f64) =
            if scenario.beyond > 0.0 { ("p50", |one| one.p50) } else { ("p99", |one| one.p99) };
        let best = rivals.iter().map(of).fold(f64::INFINITY, f64::min);
        let name = scenario.name;
        report.must(
            format!("{name}: {what} beside the best other policy's"),
            Limit::AtMost(WORSE_MAX),
            of(&ours) / best,
        );
        let most = Limit::AtMost(scenario.beyond + FAILED_MAX);
        report.must(format!("{name}: share that failed"), most, ours.failed);
        // Who waits for others works on as many as there are.
        let is_bound = !scenario.servers.iter().any(|server| matches!(server.work, Work::Waits(..)));
        let arm = Arm { name: ONE_QUEUE, policy: ONE_QUEUE, is_tuned: false };
        let bound = is_bound.then(|| Medians::of(&scenario, &arm, run.seed, seeds));
        let all: Vec<_> =
            std::iter::once(Some(&ours)).chain(rivals.iter().map(Some)).chain([bound.as_ref()]).collect();
        let row = |cell: fn(&Medians) -> String| -> Vec<String> {
            let cells = all.iter().map(|one| one.map_or_else(|| "-".to_owned(), cell));
            [name.to_owned(), scenario.about.to_owned()].into_iter().chain(cells).collect()
        };
        rows.push(row(Medians::cell));
        if ours.used.is_finite() {
            uses.push(row(|one| format!("{:.1}", one.used * 100.0)));
        }
    }
    let names = RIVALS.iter().map(|arm| arm.name);
    let head: Vec<&str> =
        ["scenario", "what happens", OURS].into_iter().chain(names).chain([ONE_QUEUE]).collect();
    report.table("p99 in milliseconds, and the share that failed: medians over seeds", &head, rows);
    if !uses.is_empty() {
        report.table("what servers with quotas used of what they may, %: medians over seeds", &head, uses);
    }
    loads(run, seeds.min(21), report);
}

/// How long a scenario lasts in this run.
fn length(run: &Run, scenario: &Scenario) -> u64 {
    run.size.of(scenario.length_ns, scenario.length_ns, SMOKE_NS)
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
        let point = |share: &f64| {
            let scenario = scenarios::at_load(*share);
            let scenario = Scenario { length_ns: length(run, &scenario), ..scenario };
            (*share, Medians::of(&scenario, arm, run.seed, seeds).p99)
        };
        Line::new(arm.name, shares.iter().map(point).collect())
    };
    let lines = arms.iter().map(line).collect();
    let up = Axis { is_log: true, from: Some(1.0), ..Axis::titled("p99, ms") };
    let from = shares.first().copied();
    let across = Axis { from, ..Axis::titled("load, of what three unequal servers can") };
    report.plot("p99 by load", Plot { across, up, lines });
}

/// Medians over the seeds of one policy in one scenario.
struct Medians {
    p50: f64,
    p99: f64,
    failed: f64,
    used: f64,
}

impl Medians {
    fn of(scenario: &Scenario, arm: &Arm, seed: u64, seeds: u64) -> Medians {
        let run = |turn: u64| simulation::run(scenario, arm.policy, arm.is_tuned, seed.wrapping_add(turn));
        let cores = thread::available_parallelism().map_or(1, NonZero::get) as u64;
        let outcomes: Vec<Outcome> = thread::scope(|scope| {
            let workers: Vec<_> = (0..cores.min(seeds))
                .map(|first| {
                    let turns = (first..seeds).step_by(cores as usize);
                    scope.spawn(move || turns.map(run).collect::<Vec<_>>())
                })
                .collect();
            workers.into_iter().flat_map(|worker| worker.join().expect("a simulation panics")).collect()
        });
        let median = |of: &dyn Fn(&Outcome) -> f64| {
            let mut values: Vec<f64> = outcomes.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            quantiles::median(&values).unwrap_or(f64::NAN)
        };
        Medians {
            p50: median(&|outcome| outcome.quantile(0.5)),
            p99: median(&|outcome| outcome.quantile(0.99)),
            failed: median(&Outcome::failed),
            used: median(&|outcome| outcome.used),
        }
    }

    fn cell(&self) -> String {
        match self.failed {
            0.0 => number(self.p99),
            failed => format!("{} ({:.2} %)", number(self.p99), failed * 100.0),
        }
    }
}
