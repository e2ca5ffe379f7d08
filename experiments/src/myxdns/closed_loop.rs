//! Figures 7 and 8: selection algorithms in a closed loop with clients behind caches, on a virtual clock.

use std::time::Duration;

use anyhow::Result;
use control::Algorithm;
use control::algorithm::third::{Parameters, Third};
use replay::plot::{Axis, Line, Plot, Stroke};

use super::outcome::{HEAD, MEANING, Outcome, drawn, required};
use super::world::{self, CLUSTERS, INTERVAL, Setting, TTL};
use crate::options::{Run, Size};
use crate::report::{Report, number};

/// The paper's length in seconds, and when what the beginning did is over.
pub(super) const SECONDS: u64 = 800;
pub(super) const SETTLED: usize = 200;

/// What all clients demand, in thresholds of one server. The paper does not tell; with this Algorithm I has "virtually
/// no overall preference for the closest server" and II's oscillations "seem as severe", as it says.
pub(super) const DEMAND: f64 = 1.9;

/// Demands that are tried beside [`DEMAND`].
const DEMANDS: &[f64] = &[0.8, 1.0, 1.2, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0];

/// The demand for which fills are compared, at which there is something to choose, and the fills.
const SPARE: f64 = 1.6;
const FILLS: &[f64] = &[0.8, 0.825, 0.85, 0.875, 0.9, 0.925, 0.95, 0.975, 1.0];

/// Clusters that are many and small.
const MANY: usize = 1_000;

/// An algorithm, by the name that it has in tables.
struct Arm {
    name: &'static str,
    algorithm: Algorithm,
}

/// Does this part; returns what the three algorithms came to with each seed.
///
/// # Errors
/// Where the name server would refuse a policy.
pub(super) fn perform(run: &Run, report: &mut Report) -> Result<Vec<[Outcome; 3]>> {
    report.heading("The closed loop (figures 7 and 8), on a virtual clock");
    report.say(
        "Two servers, the first closer to all clients; 20 clusters of browsers behind a caching resolver each, which asks \
         once in 30 s (at different times) and sends its cluster's 1 to 3 requests a second to what it was told; a round \
         of the control process every 9 to 11 s; thresholds 0.5 and 0.4/0.6. Decisions, rows and answers are made by the \
         code of `pointsman control` and `pointsman serve`; clients, servers and time are modelled. A load is busy time \
         over quota, as a mean from one round to the next. Published are drawings without numbers, and words: both \
         algorithms \"result in constantly oscillating routing policies\", II's \"seem as severe\" as I's, I has \"virtually \
         no overall preference for the closest server\". What all clients demand is not told; it is fitted to these \
         words: 1.9 thresholds of one server.",
    );
    let seeds = run.size.of(20, 20, 3);
    for arm in arms() {
        let world = Setting { demand: DEMAND, clusters: CLUSTERS, seed: run.seed };
        drawn(arm.name, "", &world::pass(&world, arm.algorithm.clone(), SECONDS)?, report);
    }
    let all = each(run, DEMAND, CLUSTERS, seeds)?;
    let found = means(&all);
    let rows = arms().iter().zip(found).map(|(arm, found)| found.row(arm.name)).collect();
    let title = format!("From {SETTLED} s on, means over {seeds} seeds. {MEANING}");
    report.table(&title, &HEAD, rows);
    for (name, limit, value) in required(&found) {
        report.must(name, limit, value);
    }
    if run.size != Size::Smoke {
        beyond(run, seeds, report)?;
    }
    Ok(all)
}

/// What the paper has no figure of: other demands, many small clusters, how far servers are filled.
fn beyond(run: &Run, seeds: u64, report: &mut Report) -> Result<()> {
    report.heading("Other demands");
    report.say(
        "From one threshold to two, all else being equal. Below one, all fits at the closest server; above two, \
         overload is what is left. How near to its threshold a server may be filled depends on how evenly clients come: \
         20 clusters are bound by chance, and whatever decides by fixed shares, a server with the share p of demand D is \
         off by D × √(p(1 − p) / 20). So less than D = 1.6 Algorithm II, which sends more clients to the farther server, \
         has less overload than ours, and ours more clients at the closest server; no fixed share has both.",
    );
    let mut over_demand = Vec::new();
    for demand in DEMANDS {
        over_demand.push((*demand, three(run, *demand, CLUSTERS, seeds)?));
    }
    type Value = fn(&Outcome) -> f64;
    let drawings: [(&str, Value); 3] = [
        ("percent of requests to the closest server", |found| found.closest * 100.0),
        ("percent of the time overloaded", |found| found.overloaded * 100.0),
        ("change of the probability a minute", |found| found.oscillation),
    ];
    for (title, value) in drawings {
        let line = |(at, arm): (usize, &Arm)| {
            let points = over_demand.iter().map(|(demand, found)| (*demand, value(&found[at])));
            Line::new(format!("Algorithm {}", arm.name), points.collect())
        };
        let lines = arms().iter().enumerate().map(line).collect();
        let from = DEMANDS.first().copied();
        let across = Axis { from, ..Axis::titled("demand, thresholds of one server") };
        report.plot(title, Plot { across, up: Axis::titled(title), lines });
    }
    for demand in [SPARE, DEMAND] {
        over_demand.push((demand, three(run, demand, MANY, seeds.min(5))?));
    }
    let rows = over_demand.iter().enumerate().map(|(at, (demand, found))| {
        let clusters = if at < DEMANDS.len() { CLUSTERS } else { MANY };
        let cells = found.iter().map(|found| {
            let oscillation = number((found.oscillation * 1e3).round() / 1e3);
            format!("{oscillation} / {:.1} % / {:.1} %", found.closest * 100.0, found.overloaded * 100.0)
        });
        [number(*demand), number(clusters as f64)].into_iter().chain(cells).collect()
    });
    let rows = rows.collect();
    let title = "Oscillation a minute / closest server's share / overloaded";
    report.table(title, &["demand", "clusters", "I", "II", "III"], rows);
    fills(run, seeds, report)
}

/// What filling servers further buys and costs.
fn fills(run: &Run, seeds: u64, report: &mut Report) -> Result<()> {
    let place = |found: Outcome| (found.overloaded * 100.0, found.closest * 100.0);
    let mut filled = Vec::new();
    for fill in FILLS {
        filled.push(place(Outcome::mean(&outcomes(run, &filling(*fill), SPARE, CLUSTERS, seeds)?)));
    }
    let [first, second, third] = three(run, SPARE, CLUSTERS, seeds)?;
    let point = |name: &str, found| Line::new(name, vec![place(found)]).drawn(Stroke::Dots);
    let name = format!("III, fill from {} to {}", FILLS[0], FILLS[FILLS.len() - 1]);
    let lines = vec![
        Line::new(name, filled),
        point("I", first),
        point("II", second),
        point("III, its default", third),
    ];
    let across = Axis::titled("percent of the time overloaded");
    let up = Axis { from: Some(40.0), ..Axis::titled("percent to the closest server") };
    let title = format!("What nearness costs, with a demand of {SPARE}: up and left is better");
    report.plot(title, Plot { across, up, lines });
    Ok(())
}

/// Parameters of Algorithm III, the defaults.
fn defaults() -> Parameters {
    Parameters::new(Duration::from_secs(TTL), Duration::from_secs(INTERVAL))
}

/// Algorithm III with this fill.
fn filling(fill: f64) -> Algorithm {
    Algorithm::Third(Third::new(Parameters { fill, ..defaults() }))
}

/// The paper's two and ours, as they are unless told otherwise.
fn arms() -> [Arm; 3] {
    [
        Arm { name: "I", algorithm: Algorithm::First },
        Arm { name: "II", algorithm: Algorithm::Second(1.0) },
        Arm { name: "III", algorithm: Algorithm::Third(Third::new(defaults())) },
    ]
}

/// What the three came to with each seed.
fn each(run: &Run, demand: f64, clusters: usize, seeds: u64) -> Result<Vec<[Outcome; 3]>> {
    let [first, second, third] = arms().map(|arm| outcomes(run, &arm.algorithm, demand, clusters, seeds));
    let (first, second, third) = (first?, second?, third?);
    Ok((0..first.len()).map(|seed| [first[seed], second[seed], third[seed]]).collect())
}

/// The means over the seeds.
pub(super) fn means(all: &[[Outcome; 3]]) -> [Outcome; 3] {
    [0, 1, 2].map(|arm| Outcome::mean(&all.iter().map(|three| three[arm]).collect::<Vec<_>>()))
}

fn three(run: &Run, demand: f64, clusters: usize, seeds: u64) -> Result<[Outcome; 3]> {
    Ok(means(&each(run, demand, clusters, seeds)?))
}

/// What an algorithm comes to with each seed.
fn outcomes(
    run: &Run,
    algorithm: &Algorithm,
    demand: f64,
    clusters: usize,
    seeds: u64,
) -> Result<Vec<Outcome>> {
    let of = |turn: u64| {
        let setting = Setting { demand, clusters, seed: run.seed.wrapping_add(turn) };
        Ok(Outcome::of(&world::pass(&setting, algorithm.clone(), SECONDS)?[SETTLED..]))
    };
    (0..seeds).map(of).collect()
}
