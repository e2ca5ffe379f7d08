//! The workloads of the salbnet slides: how servload multiplies the sessions of a trace.
//!
//! The slides give a table of requests, sessions, mean and largest rate for the factors 1 to 1,600 of a trace of
//! five minutes of 2011 that was never published. So a trace of ours stands in for it, with the slides' first row as
//! its input; the rows of the other factors are what [`replay::schedule`] then makes. Nothing is sent: these are the
//! loads that a replay has to send, and at 1,600 that is more than one machine's loopback takes.

use std::collections::HashSet;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use experiments::traces::MINUTE;
use fastrand::Rng;
use replay::plot::{Axis, Line, Plot, Stroke};
use replay::schedule::census::Census;
use replay::schedule::{Clients, Pacing, Plan, Schedule};
use replay::trace::{Damage, Message, PORT, Trace};

use crate::data;
use crate::options::Run;
use crate::report::{Limit, Report, number};

/// A row of the slides' table.
struct Published {
    factor: u32,
    requests: f64,
    sessions: f64,
    mean: f64,
    max: f64,
}

/// The table of the slides (Increased DNS Traces).
const PUBLISHED: [Published; 4] = [
    Published { factor: 1, requests: 22_594.0, sessions: 33.0, mean: 75.31, max: 204.0 },
    Published { factor: 400, requests: 9_037_600.0, sessions: 13_200.0, mean: 30_125.0, max: 81_600.0 },
    Published { factor: 800, requests: 18_075_200.0, sessions: 26_400.0, mean: 60_250.0, max: 163_200.0 },
    Published { factor: 1_600, requests: 36_150_400.0, sessions: 52_800.0, mean: 120_501.0, max: 326_400.0 },
];

/// The slides' mean rate in requests a second, without its fraction.
pub(crate) const MEAN: u32 = 75;

/// The length of the slides' trace in seconds.
const SECONDS: usize = 300;

/// How sessions are multiplied.
const MODES: [Mode; 6] = [
    Mode { name: "multiply", clients: Clients::Multiply },
    Mode { name: "peak", clients: Clients::Peak },
    Mode { name: "score", clients: Clients::Score },
    Mode { name: "ours, spread 0", clients: |factor| ours(factor, Some(Duration::ZERO)) },
    Mode { name: "ours, spread the mean gap", clients: |factor| ours(factor, None) },
    Mode { name: "ours, spread 1 s", clients: |factor| ours(factor, Some(Duration::from_secs(1))) },
];

struct Mode {
    name: &'static str,
    clients: fn(u32) -> Clients,
}

fn ours(factor: u32, spread: Option<Duration>) -> Clients {
    Clients::Factor { factor: f64::from(factor), spread }
}

/// What a schedule comes to.
#[derive(Clone, Debug, PartialEq)]
struct Load {
    requests: u64,
    sessions: usize,
    /// Requests a second.
    per_second: Vec<u64>,
    /// The most requests within one millisecond.
    burst: u64,
}

impl Load {
    fn mean(&self) -> f64 {
        self.requests as f64 / self.per_second.len().max(1) as f64
    }

    fn max(&self) -> u64 {
        self.per_second.iter().copied().max().unwrap_or(0)
    }

    fn cells(&self, mode: &str, factor: u32) -> Vec<String> {
        let numbers = [
            f64::from(factor),
            self.requests as f64,
            self.sessions as f64,
            self.mean(),
            self.max() as f64,
            self.burst as f64,
        ];
        std::iter::once(mode.to_owned()).chain(numbers.map(number)).collect()
    }
}

/// Does the experiment.
pub(crate) fn perform(run: &Run, report: &mut Report) -> Result<()> {
    report.say(
        "Fitted: the first row of the slides' table (33 sessions, 22,594 requests in 300 s, at most 204 in a second) is \
         the input of a trace that is drawn from the seed. Predicted: all other rows, from the schedule that a replay \
         sends by. Nothing is sent here.",
    );
    let factors: &[u32] = run.size.of(&[1, 2, 10, 100, 400, 800, 1_600], &[1, 10, 100, 400], &[1, 4]);
    slides(run, factors, report)?;
    root_server(run, factors, report)
}

fn slides(run: &Run, factors: &[u32], report: &mut Report) -> Result<()> {
    report.heading("A trace of ours with the slides' first row");
    let loads = loads(&ours_as_slides(run.seed)?, factors, run.seed, report)?;
    let of = |factor: u32| loads[0].iter().find(|(known, _)| *known == factor).map(|(_, load)| load);
    let mut rows = Vec::new();
    for published in &PUBLISHED {
        let Some(load) = of(published.factor) else { continue };
        let pairs = [
            ("requests", published.requests, load.requests as f64),
            ("sessions", published.sessions, load.sessions as f64),
            ("largest rate", published.max, load.max() as f64),
        ];
        for (name, published_value, value) in pairs {
            let name = format!("factor {}: {name}", published.factor);
            report.must(&name, Limit::Exactly(published_value), value);
        }
        // The slides round down or to two digits.
        let name = format!("factor {}: mean rate", published.factor);
        report.must(name, Limit::Between(published.mean, published.mean + 1.0), load.mean());
        for (whose, numbers) in [
            ("slides", [published.requests, published.sessions, published.mean, published.max]),
            ("ours", [load.requests as f64, load.sessions as f64, load.mean(), load.max() as f64]),
        ] {
            let first = [number(f64::from(published.factor)), whose.to_owned()];
            rows.push(first.into_iter().chain(numbers.map(number)).collect());
        }
    }
    let head = ["factor", "", "requests", "sessions", "mean a second", "largest in a second"];
    report.table("The slides' table beside ours (multiply)", &head, rows);

    // In its own clones' company, each of our sessions keeps its think times, but not its clones' instants.
    let largest = factors.last().copied().unwrap_or(1);
    let burst = |mode: usize| loads[mode].last().map_or(0, |(_, load)| load.burst);
    let total = |mode: usize| loads[mode].last().map_or(0, |(_, load)| load.requests);
    report.must(
        format!("factor {largest}: multiply's largest millisecond, in clones of one request"),
        Limit::AtLeast(f64::from(largest)),
        burst(0) as f64,
    );
    report.must(
        format!("factor {largest}: our requests beside multiply's"),
        Limit::Exactly(total(0) as f64),
        total(4) as f64,
    );
    report.must(
        format!("factor {largest}: our largest millisecond, spread 1 s, beside multiply's"),
        Limit::AtMost(0.5),
        burst(5) as f64 / burst(0).max(1) as f64,
    );

    let published = |value: fn(&Published) -> f64, name: &str| {
        let points = PUBLISHED.iter().map(|row| (f64::from(row.factor), value(row))).collect();
        Line::new(name, points).drawn(Stroke::Dots)
    };
    let line = |mode: usize, name: &str, value: fn(&Load) -> f64| {
        Line::new(name, loads[mode].iter().map(|(factor, load)| (f64::from(*factor), value(load))).collect())
    };
    let log = |title: &str| Axis { is_log: true, from: Some(1.0), ..Axis::titled(title) };
    let lines = vec![
        published(|row| row.mean, "slides: mean"),
        published(|row| row.max, "slides: largest"),
        line(0, "multiply: mean", Load::mean),
        line(0, "multiply: largest", |load| load.max() as f64),
        line(5, "ours, spread 1 s: largest", |load| load.max() as f64).drawn(Stroke::Dashed),
    ];
    report.plot("Rates by factor", Plot { across: log("factor"), up: log("requests a second"), lines });
    let seconds = |load: &Load| {
        load.per_second.iter().enumerate().map(|(at, count)| (at as f64, *count as f64)).collect::<Vec<_>>()
    };
    if let Some(load) = of(1) {
        let lines = vec![
            Line::new("our trace", seconds(load)),
            Line::new("slides: largest", vec![(0.0, 204.0), (299.0, 204.0)]).drawn(Stroke::Dashed),
            Line::new("slides: mean", vec![(0.0, 75.31), (299.0, 75.31)]).drawn(Stroke::Dashed),
        ];
        let (across, up) = (Axis::titled("seconds"), Axis::titled("requests a second"));
        report.plot("The trace at factor 1", Plot { across, up, lines });
    }
    Ok(())
}

fn root_server(run: &Run, factors: &[u32], report: &mut Report) -> Result<()> {
    report.heading("A minute of a root server (nsd-live)");
    let Some(path) = data::file(MINUTE, report) else { return Ok(()) };
    let trace = Trace::open(&path, PORT).with_context(|| path.display().to_string())?;
    let loads = loads(&whole(trace)?, factors, run.seed, report)?;
    let known = loads[0].first().map(|(_, load)| load.clone()).context("factor 1 is always done")?;
    report.must("nsd-live: queries over UDP and TCP", Limit::Exactly(10_432.0), known.requests as f64);
    for (factor, load) in &loads[0] {
        let name = format!("nsd-live, factor {factor}: requests for each of the trace");
        report.must(name, Limit::Exactly(f64::from(*factor)), load.requests as f64 / known.requests as f64);
    }
    Ok(())
}

/// The loads of all modes and factors, in their order; tells them as a table.
fn loads(
    trace: &[Message],
    factors: &[u32],
    seed: u64,
    report: &mut Report,
) -> Result<Vec<Vec<(u32, Load)>>> {
    let mut rows = Vec::new();
    let mut all = Vec::new();
    for mode in &MODES {
        let mut of_mode = Vec::new();
        for factor in factors {
            let load = load(trace, (mode.clients)(*factor), seed)?;
            rows.push(load.cells(mode.name, *factor));
            of_mode.push((*factor, load));
        }
        all.push(of_mode);
    }
    let head = [
        "mode",
        "factor",
        "requests",
        "sessions",
        "mean a second",
        "largest in a second",
        "largest in a millisecond",
    ];
    report.table("By mode and factor", &head, rows);
    Ok(all)
}

/// Counts what a schedule comes to.
fn load(trace: &[Message], clients: Clients, seed: u64) -> Result<Load> {
    let plan = Plan { pacing: Pacing::Recorded { speed: 1.0 }, clients, limit: None, loops: 1, seed };
    let open = || trace.iter().cloned().map(Ok::<_, Damage>);
    let census = match plan.wanted() {
        Some(wanted) => Census::of(open(), wanted)?,
        None => Census::default(),
    };
    let mut schedule = Schedule::new(plan, Arc::new(census), || Ok::<_, Infallible>(open()));
    let mut load = Load { requests: 0, sessions: 0, per_second: Vec::new(), burst: 0 };
    let (mut sessions, mut millisecond, mut in_millisecond) = (HashSet::new(), 0, 0);
    while let Ok(Some(planned)) = schedule.next_query() {
        load.requests += 1;
        sessions.insert(planned.client);
        let second = usize::try_from(planned.due / 1_000_000_000).context("a trace of centuries")?;
        load.per_second.resize(load.per_second.len().max(second + 1), 0);
        load.per_second[second] += 1;
        let at = planned.due / 1_000_000;
        in_millisecond = if at == millisecond { in_millisecond + 1 } else { 1 };
        millisecond = at;
        load.burst = load.burst.max(in_millisecond);
    }
    load.sessions = sessions.len();
    Ok(load)
}

/// Five minutes as a trace, from the text below.
fn ours_as_slides(seed: u64) -> Result<Vec<Message>> {
    let (rng, published) = (&mut Rng::with_seed(seed), &PUBLISHED[0]);
    let per_second = per_second(rng, published.requests as u64, published.max as u64);
    whole(Trace::read(Cursor::new(text(rng, &per_second).into_bytes()), PORT)?)
}

/// All messages of a trace, which must not be damaged.
fn whole(trace: Trace) -> Result<Vec<Message>> {
    trace.collect::<Result<_, Damage>>().map_err(|damage| anyhow!("{damage}"))
}

/// Seconds with so many requests as lines of text, with the slides' sessions.
pub(crate) fn text(rng: &mut Rng, per_second: &[u64]) -> String {
    // Clients of a campus server: a few ask for most (Zipf's law).
    let sessions = PUBLISHED[0].sessions as usize;
    let weights: Vec<f64> = (1..=sessions).map(|rank| 1.0 / rank as f64).collect();
    let sum: f64 = weights.iter().sum();
    let drawn = |rng: &mut Rng| {
        let mut left = rng.f64() * sum;
        weights.iter().position(|weight| {
            left -= weight;
            left <= 0.0
        })
    };
    let (mut text, mut asked) = (String::new(), 0);
    for (second, count) in per_second.iter().enumerate() {
        let mut times: Vec<u32> = (0..*count).map(|_| rng.u32(0..1_000_000)).collect();
        times.sort_unstable();
        for (at, micros) in times.iter().enumerate() {
            // Each session asks at least once, and the first request is the beginning of the first second.
            let session = if asked < sessions { asked } else { drawn(rng).unwrap_or(0) };
            let micros = if second == 0 && at == 0 { 0 } else { *micros };
            let _ = writeln!(
                text,
                "{}.{micros:06} 192.0.2.{}:{} udp host{}.example. A rd",
                1_317_300_000 + second,
                session + 1,
                40_000 + session,
                rng.u16(0..5_000),
            );
            asked += 1;
        }
    }
    text
}

/// How many requests each second has: `total` in all, and `most` in the fullest.
fn per_second(rng: &mut Rng, total: u64, most: u64) -> Vec<u64> {
    // Each second's share has the tail of an exponential on a base: bursty, as resolvers' clients are.
    let weights: Vec<f64> = (0..SECONDS).map(|_| 1.0 - rng.f64().max(1e-9).ln()).collect();
    let sum: f64 = weights.iter().sum();
    let mut counts: Vec<u64> =
        weights.iter().map(|weight| ((weight / sum * total as f64) as u64).clamp(1, most - 1)).collect();
    let fullest = (0..SECONDS).max_by_key(|second| counts[*second]).unwrap_or(0);
    counts[fullest] = most;
    // What rounding and the limit left over, one by one.
    loop {
        let sum: u64 = counts.iter().sum();
        let second = rng.usize(0..SECONDS);
        match sum.cmp(&total) {
            std::cmp::Ordering::Equal => return counts,
            std::cmp::Ordering::Less if counts[second] < most - 1 => counts[second] += 1,
            std::cmp::Ordering::Greater if second != fullest && counts[second] > 1 => counts[second] -= 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_trace_has_the_slides_first_row_for_any_seed() {
        for seed in [1, 2, 3] {
            let load = load(&ours_as_slides(seed).expect("it is ours"), Clients::Multiply(1), seed)
                .expect("it is ours");
            assert_eq!((load.requests, load.sessions, load.max()), (22_594, 33, 204));
            assert_eq!(load.per_second.len(), SECONDS);
        }
    }

    #[test]
    fn bursts_are_counted_by_the_millisecond() {
        let lines = "1.0 192.0.2.1:1 udp a. A -\n1.0001 192.0.2.1:1 udp a. A -\n1.5 192.0.2.2:1 udp a. A -\n\
                     3.0 192.0.2.2:1 udp a. A -\n";
        let trace = Trace::read(Cursor::new(lines.to_owned().into_bytes()), PORT).expect("a text");
        let trace: Vec<Message> = trace.collect::<Result<_, _>>().expect("whole");
        let load = load(&trace, Clients::Multiply(3), 1).expect("small");
        let expected = Load { requests: 12, sessions: 6, per_second: vec![9, 0, 3], burst: 6 };
        assert_eq!(load, expected);
    }
}
