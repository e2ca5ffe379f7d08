//! Figures 7 and 8: selection algorithms in a closed loop with clients behind caches, on a virtual clock.

use std::time::Duration;

use anyhow::Result;
use control::Algorithm;
use control::algorithm::third::{Parameters, Third};
use replay::plot::{Axis, Line, Plot, Stroke};

use super::world::{self, CLUSTERS, INTERVAL, SCALE, Second, Setting, TTL};
use crate::options::{Run, Size};
use crate::report::{Limit, Report, number};

/// The paper's length in seconds, and when what the beginning did is over.
const SECONDS: u64 = 800;
const SETTLED: usize = 200;

/// What all clients demand, in thresholds of one server. The paper does not tell; with this Algorithm I has "virtually
/// no overall preference for the closest server" and II's oscillations "seem as severe", as it says.
const DEMAND: f64 = 1.9;

/// Demands beside it.
const DEMANDS: &[f64] = &[0.8, 1.0, 1.2, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0];

/// The demand for which fills are compared, at which there is something to choose, and the fills.
const SPARE: f64 = 1.6;
const FILLS: &[f64] = &[0.8, 0.825, 0.85, 0.875, 0.9, 0.925, 0.95, 0.975, 1.0];

/// Clusters that are many and small.
const MANY: usize = 1_000;

/// How much of Algorithm I's oscillation ours may have.
const OSCILLATION_MAX: f64 = 0.2;

/// Seconds over which a load is a mean: a server is overloaded when the control process would say so.
const MEASURED: usize = INTERVAL as usize;

/// An algorithm, by the name that it has in tables.
struct Arm {
    name: &'static str,
    algorithm: Algorithm,
}

/// What a table says of runs: means over the seeds.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    /// Mean absolute change of the first server's probability in a minute.
    oscillation: f64,
    /// Standard deviation of that probability.
    deviation: f64,
    /// The mean of that probability.
    probability: f64,
    /// Share of requests that went to the first server.
    closest: f64,
    /// Share of the time in which some server was above its threshold.
    overloaded: f64,
}

/// Does this part.
///
/// # Errors
/// Where the name server would refuse a policy.
pub(super) fn perform(run: &Run, report: &mut Report) -> Result<()> {
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
        drawn(&arm, &world::pass(&world, arm.algorithm.clone(), SECONDS)?, report);
    }
    let [first, second, third] = three(run, DEMAND, CLUSTERS, seeds)?;
    let rows = arms().iter().zip([first, second, third]).map(|(arm, found)| row(arm.name, found)).collect();
    let head =
        ["algorithm", "oscillation", "deviation", "mean probability", "closest server's share", "overloaded"];
    report.table(
        &format!(
            "From {SETTLED} s on, means over {seeds} seeds. Oscillation: mean absolute change of the closest server's \
             probability a minute; deviation of it; share of requests that it served; share of the time in which some \
             server was above 0.5, as a mean over {MEASURED} s"
        ),
        &head,
        rows,
    );
    report.must(
        "III: oscillation beside I's",
        Limit::AtMost(OSCILLATION_MAX),
        third.oscillation / first.oscillation,
    );
    report.must(
        "III: time overloaded less the lower of I and II",
        Limit::AtMost(0.0),
        third.overloaded - first.overloaded.min(second.overloaded),
    );
    report.must(
        "III: closest server's share less the higher of I and II",
        Limit::AtLeast(0.0),
        third.closest - first.closest.max(second.closest),
    );
    if run.size != Size::Smoke {
        beyond(run, seeds, report)?;
    }
    Ok(())
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
    type Value = fn(&Found) -> f64;
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
    let place = |found: Found| (found.overloaded * 100.0, found.closest * 100.0);
    let mut filled = Vec::new();
    for fill in FILLS {
        filled.push(place(mean(run, &filling(*fill), SPARE, CLUSTERS, seeds)?));
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

/// Ours with its defaults.
fn defaults() -> Parameters {
    Parameters::new(Duration::from_secs(TTL), Duration::from_secs(INTERVAL))
}

/// Ours with this fill.
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

fn three(run: &Run, demand: f64, clusters: usize, seeds: u64) -> Result<[Found; 3]> {
    let [first, second, third] = arms().map(|arm| mean(run, &arm.algorithm, demand, clusters, seeds));
    Ok([first?, second?, third?])
}

fn mean(run: &Run, algorithm: &Algorithm, demand: f64, clusters: usize, seeds: u64) -> Result<Found> {
    let mut all = Vec::new();
    for turn in 0..seeds {
        let setting = Setting { demand, clusters, seed: run.seed.wrapping_add(turn) };
        all.push(found(&world::pass(&setting, algorithm.clone(), SECONDS)?[SETTLED..]));
    }
    let mean = |of: fn(&Found) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    Ok(Found {
        oscillation: mean(|found| found.oscillation),
        deviation: mean(|found| found.deviation),
        probability: mean(|found| found.probability),
        closest: mean(|found| found.closest),
        overloaded: mean(|found| found.overloaded),
    })
}

/// What one run says of an algorithm.
fn found(run: &[Second]) -> Found {
    let share = |second: &Second| second.shares[0];
    let count = run.len() as f64;
    let probability = run.iter().map(share).sum::<f64>() / count;
    let changes: f64 = run.windows(2).map(|pair| (share(&pair[1]) - share(&pair[0])).abs()).sum();
    let variance = run.iter().map(|second| (share(second) - probability).powi(2)).sum::<f64>() / count;
    let requests = |server: usize| run.iter().map(|second| f64::from(second.requests[server])).sum::<f64>();
    let is_over = |seconds: &&[Second]| {
        (0..2).any(|server| {
            let sum: f64 = seconds.iter().map(|second| second.loads[server]).sum();
            sum / seconds.len() as f64 > SCALE.threshold
        })
    };
    Found {
        oscillation: changes * 60.0 / count,
        deviation: variance.sqrt(),
        probability,
        closest: requests(0) / (requests(0) + requests(1)),
        overloaded: run.windows(MEASURED).filter(is_over).count() as f64 / (run.len() + 1 - MEASURED) as f64,
    }
}

fn row(name: &str, found: Found) -> Vec<String> {
    let percent = |value: f64| format!("{:.1} %", value * 100.0);
    vec![
        name.to_owned(),
        number((found.oscillation * 1e3).round() / 1e3),
        number((found.deviation * 1e3).round() / 1e3),
        percent(found.probability),
        percent(found.closest),
        percent(found.overloaded),
    ]
}

/// The three drawings of a figure.
fn drawn(arm: &Arm, run: &[Second], report: &mut Report) {
    let figure = match arm.name {
        "I" => "Figure 7",
        "II" => "Figure 8",
        _ => "Ours",
    };
    type Value = fn(&Second, usize) -> f64;
    let drawings: [(&str, f64, Value); 3] = [
        ("probability, %", 100.0, |second, server| second.shares[server] * 100.0),
        ("load: busy over quota", 1.0, |second, server| second.loads[server]),
        ("requests a second", 50.0, |second, server| f64::from(second.requests[server])),
    ];
    for (at, (title, to, value)) in drawings.into_iter().enumerate() {
        // A second's requests and load jump by chance; a mean over five shows where they are.
        let over = if at == 0 { 1 } else { 5 };
        let lines = (0..2).map(|server| {
            let points = run.windows(over).enumerate().map(|(at, seconds)| {
                let sum: f64 = seconds.iter().map(|second| value(second, server)).sum();
                ((at + over) as f64, sum / over as f64)
            });
            Line::new(format!("server {}", server + 1), points.collect())
        });
        let mut lines: Vec<Line> = lines.collect();
        if at == 1 {
            let ends = vec![(0.0, SCALE.threshold), (SECONDS as f64, SCALE.threshold)];
            lines.push(Line::new("threshold", ends).drawn(Stroke::Dashed));
        }
        let up = Axis { to: Some(to), ..Axis::titled(title) };
        let title =
            format!("{figure}: Algorithm {}, {}", arm.name, title.split([',', ':']).next().unwrap_or(title));
        report.plot(title, Plot { across: Axis::titled("time, s"), up, lines });
    }
}
