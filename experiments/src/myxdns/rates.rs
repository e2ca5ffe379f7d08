//! Figures 3 to 6: response time and answered share by offered rate, with a policy that stands and with one that changes.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::replay::ReplayReport;
use experiments::disturbed;
use experiments::machine::Stolen;
use replay::plot::{Axis, Line, Plot};

use super::bursts::{self, Offered};
use super::servers::{ARMS, Arm, Running, Stage, Updates};
use crate::options::{Run, Size};
use crate::process;
use crate::report::{Limit, Report, number};
use crate::serving::{SENDER_CORE, pinned, program};
use crate::steering::WEIGHTS;

/// Rates that are offered, in queries a second, until the server is saturated.
const RATES: &[u32] = &[
    1_000, 2_000, 4_000, 16_000, 64_000, 96_000, 128_000, 192_000, 256_000, 288_000, 320_000, 384_000,
    512_000,
];

/// The lowest rate of which most queries come in bursts: one core cannot time each of so many. And queries a second beside
/// the bursts, each of them timed.
const BURSTS_FROM: u32 = 96_000;
const TIMED: u32 = 1_000;

/// The rate of figure 6, and updates a second there.
const UPDATED_RATE: u32 = 3_000;
const UPDATES: &[u32] = &[1, 10, 100, 300, 1_000];

/// A server of which less than this share is answered is saturated; the curve ends there.
const SATURATED: f64 = 0.9;

/// A sender that sends less than this share of what it should is the bottleneck.
const OFFERED_MIN: f64 = 0.95;

/// The largest share of the cores' time that the host may take while a rate is offered, before it is offered again; and how
/// often it is at most.
const TAKEN_MAX: f64 = 0.01;
const TRIES: usize = 3;

/// A server takes updates where this share of those that are due is made.
const UPDATED_MIN: f64 = 0.9;

/// What MyXDNS could: queries a second at which all were answered below a millisecond, and with updates.
const PUBLISHED_RATE: f64 = 4_000.0;
const PUBLISHED_UPDATED: f64 = 3_000.0;

/// One point of a curve.
#[derive(Clone, Copy, Debug)]
struct Point {
    /// Queries a second that were really sent.
    rate: f64,
    /// Updates a second that were really made.
    updates: f64,
    /// The share of queries that were answered.
    answered: f64,
    /// Of response times in ms, where there are any.
    p50: Option<f64>,
    p99: Option<f64>,
    /// Whether all but [`TIMED`] came in bursts; times are of the others.
    in_bursts: bool,
}

/// Does these figures.
///
/// # Errors
/// Where a server does not start or refuses an update, or a replay fails.
pub(super) fn perform(run: &Run, stage: &Stage, report: &mut Report) -> Result<()> {
    report.heading("Stress (figures 3 to 6)");
    let (bursts_from, timed) = (number(BURSTS_FROM.into()), number(TIMED.into()));
    report.say(&format!(
        "One name with six addresses, all of them in each answer (`answers = 0`), asked for by 8,500 clients of eight regions \
         and of none. Over loopback, the server on one core, who asks on another; the client is told by client subnet. \
         Below {bursts_from} queries/s `pointsman replay` sends all and times each. One core cannot time many more: from there \
         on it sends {timed} a second, all that response times are of; beside it the same clients' queries \
         come from one socket in bursts of {}, each as one message that the kernel cuts, and their answers are counted. A curve \
         ends at the first rate of which less than {:.0} % is answered: there the server's core is saturated.",
        bursts::BURST,
        SATURATED * 100.0,
    ));
    report.say(
        "Ours: without regions (\"generic\"), with real prefixes of countries (CSV), MaxMind's small test database \
         (MMDB), and a BGP table (AS path). PowerDNS on MariaDB, both on the server's core, stands in for MyDNS, with its \
         caches and without them; it has no regions. MyXDNS ran on a machine of 2005 (Opteron 175), so shapes compare, \
         absolute values do not. Response times are medians from sent; the paper has means.",
    );
    report.say(&format!(
        "A rate during which the machine's host took more than {} % of its cores is offered again, {TRIES} times in all at \
         most; the try from which it took least counts.",
        TAKEN_MAX * 100.0
    ));
    let arms: Vec<&Arm> = ARMS.iter().filter(|arm| stage.has(arm, run, report)).collect();
    let rates = run.size.of(RATES, &[16_000, 384_000], &[500]);
    for (updates, figures) in [(0, ["Figure 3", "Figure 4"]), (1, ["Figure 5", "Figure 5"])] {
        let mut curves = Vec::new();
        for arm in &arms {
            curves.push((*arm, curve(run, stage, arm, rates, updates, report)?));
        }
        drawn(figures, updates, &curves, report);
        required(run, updates, &curves, report);
    }
    updated(run, stage, &arms, report)
}

/// Points of one server, up to its saturation. Where the sender is saturated before, the report says so.
fn curve(
    run: &Run,
    stage: &Stage,
    arm: &Arm,
    rates: &[u32],
    updates: u32,
    report: &mut Report,
) -> Result<Vec<Point>> {
    let running = arm.start(stage)?;
    let mut points = Vec::new();
    for rate in rates {
        let point = point(run, stage, &running, *rate, updates)?;
        points.push(point);
        if point.answered < SATURATED {
            break;
        }
        if point.rate < OFFERED_MIN * f64::from(*rate) {
            let (wanted, sent) = (number((*rate).into()), number(point.rate.round()));
            report.say(&format!(
                "{}: of {wanted} queries a second the sender sent {sent}: no more can be seen.",
                arm.name
            ));
            break;
        }
    }
    Ok(points)
}

/// Offers a rate, while the policy is updated; again where the machine's host took too much, in a full run.
fn point(run: &Run, stage: &Stage, running: &Running, rate: u32, updates: u32) -> Result<Point> {
    let tries = disturbed::calmest(1, TRIES, TAKEN_MAX, || {
        let stolen = Stolen::begin();
        let point = offer(run, stage, running, rate, updates)?;
        Ok((if run.size == Size::Full { stolen.share() } else { 0.0 }, point))
    })?;
    tries.into_iter().next().context("the rate was not offered")
}

/// Offers a rate for some seconds, while the policy is updated.
fn offer(run: &Run, stage: &Stage, running: &Running, rate: u32, updates: u32) -> Result<Point> {
    let seconds = run.size.of(4, 1, 1);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let to = &running.updates;
        let updating = scope.spawn(|| update(to, updates, &stop));
        let offered = offered(run, stage, running.dns, rate, seconds);
        stop.store(true, Ordering::Relaxed);
        let Ok(made) = updating.join() else { bail!("the updates panicked") };
        let ((timed, bursts), made) = (offered?, made?);
        // The last query goes when it is due or as late as the latest one; answers may take as long as a client waits.
        let lateness_us = timed.lateness_us.context("nothing was sent")?;
        let sending = f64::from(seconds) + lateness_us.max / 1e6;
        let in_bursts = bursts.unwrap_or(Offered { sent: 0, answered: 0, seconds: 1.0 });
        Ok(Point {
            rate: timed.queries as f64 / sending + in_bursts.sent as f64 / in_bursts.seconds,
            updates: made,
            answered: (timed.answers + in_bursts.answered) as f64
                / (timed.queries + in_bursts.sent).max(1) as f64,
            p50: timed.latency_sent_us.map(|times| times.p50 / 1e3),
            p99: timed.latency_sent_us.map(|times| times.p99 / 1e3),
            in_bursts: bursts.is_some(),
        })
    })
}

/// Offers a rate for at least so many seconds: what became of the queries that are timed, and of those that come in bursts.
fn offered(
    run: &Run,
    stage: &Stage,
    server: SocketAddr,
    rate: u32,
    seconds: u32,
) -> Result<(ReplayReport, Option<Offered>)> {
    if rate < BURSTS_FROM {
        let sender = pinned(SENDER_CORE, program()?);
        return Ok((replayed(run, sender, &stage.clients, server, rate, rate * seconds)?, None));
    }
    // Both are on one core, where bursts must not keep what is timed waiting.
    let sender = process::prompt(SENDER_CORE, program()?);
    let timed = || replayed(run, sender, &stage.clients, server, TIMED, TIMED * seconds);
    let queries = bursts::queries(&stage.clients)?;
    let (timed, offered) = bursts::during(server, &queries, WEIGHTS.len(), rate - TIMED, timed)?;
    Ok((timed, Some(offered)))
}

/// Updates on a schedule that does not wait for slow ones; returns how many a second were made.
fn update(to: &Updates, per_second: u32, stop: &AtomicBool) -> Result<f64> {
    if per_second == 0 {
        return Ok(0.0);
    }
    let mut updater = to.updater()?;
    let (begin, mut made) = (Instant::now(), 0_u32);
    while !stop.load(Ordering::Relaxed) {
        updater.update(made as usize)?;
        made += 1;
        let due = begin + Duration::from_secs(1) * made / per_second;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(f64::from(made) / begin.elapsed().as_secs_f64())
}

/// Replays the clients' queries at a rate.
fn replayed(
    run: &Run,
    mut command: Command,
    trace: &Path,
    server: SocketAddr,
    rate: u32,
    limit: u32,
) -> Result<ReplayReport> {
    command.arg("replay").arg(trace).args(["--server", &server.to_string(), "--rate", &rate.to_string()]);
    command.args(["--loop", "1000000", "--limit", &limit.to_string(), "--seed", &run.seed.to_string()]);
    command.args([
        "--source-prefix",
        "127.0.0.0/8",
        "--ecs",
        "--timeout",
        "1s",
        "--tolerance",
        "1h",
        "--json",
    ]);
    process::replayed(&mut command)
}

fn drawn(figures: [&str; 2], updates: u32, curves: &[(&Arm, Vec<Point>)], report: &mut Report) {
    let lines = |value: fn(&Point) -> Option<f64>| {
        let line = |(arm, points): &(&Arm, Vec<Point>)| {
            let points = points.iter().filter_map(|point| Some((point.rate, value(point)?)));
            Line::new(arm.name, points.collect())
        };
        curves.iter().map(line).collect()
    };
    let with = if updates == 0 { "a policy that stands" } else { "an update a second" };
    let (bursts_from, timed) = (number(BURSTS_FROM.into()), number(TIMED.into()));
    let offered =
        format!("queries a second: replayed, from {bursts_from} on in bursts beside {timed} replayed");
    let across = Axis { is_log: true, from: Some(1_000.0), ..Axis::titled(offered) };
    let plot = Plot { across: across.clone(), up: response_time(), lines: lines(|point| point.p50) };
    report.plot(format!("{}: response time, {with}", figures[0]), plot);
    let up = Axis { to: Some(100.0), ..Axis::titled("% answered") };
    let plot = Plot { across, up, lines: lines(|point| Some(point.answered * 100.0)) };
    report.plot(format!("{}: answered, {with}", figures[1]), plot);
    let rows = curves.iter().flat_map(|(arm, points)| points.iter().map(|point| row(arm, point))).collect();
    report.table(&format!("Points, with {with}"), &HEAD, rows);
}

fn response_time() -> Axis {
    Axis { is_log: true, from: Some(0.01), ..Axis::titled("median response time, ms") }
}

const HEAD: [&str; 7] = ["server", "queries/s", "offered by", "updates/s", "answered", "p50, ms", "p99, ms"];

fn row(arm: &Arm, point: &Point) -> Vec<String> {
    let milliseconds = |time: Option<f64>| time.map_or("-".into(), |time| format!("{time:.3}"));
    vec![
        arm.name.to_owned(),
        number(point.rate.round()),
        if point.in_bursts { "bursts, replayer" } else { "replayer" }.to_owned(),
        format!("{:.1}", point.updates),
        format!("{:.2} %", point.answered * 100.0),
        milliseconds(point.p50),
        milliseconds(point.p99),
    ]
}

/// What ours must: all that MyXDNS could, whatever its regions come from.
fn required(run: &Run, updates: u32, curves: &[(&Arm, Vec<Point>)], report: &mut Report) {
    let published = if updates == 0 { PUBLISHED_RATE } else { PUBLISHED_UPDATED };
    for (arm, points) in curves.iter().filter(|(arm, _)| arm.is_ours()) {
        let with = if updates == 0 { "" } else { ", an update a second" };
        if run.size == Size::Smoke {
            let share = points.first().map_or(0.0, |point| point.answered);
            report.must(format!("{}{with}: answered", arm.name), Limit::AtLeast(0.5), share);
            continue;
        }
        let is_updated = |point: &&Point| point.updates >= UPDATED_MIN * f64::from(updates);
        let is_prompt = |point: &&Point| point.answered > 0.999 && point.p50.is_some_and(|time| time < 1.0);
        let good = points.iter().filter(is_prompt).filter(is_updated);
        let most = good.map(|point| point.rate).fold(0.0, f64::max);
        let name = format!("{}{with}: answered below 1 ms, queries/s", arm.name);
        report.must(name, Limit::AtLeast(published), most);
    }
}

/// Figure 6: more and more updates.
fn updated(run: &Run, stage: &Stage, arms: &[&Arm], report: &mut Report) -> Result<()> {
    let wanted = run.size.of(UPDATES, &[10, 100], &[10]);
    let rate = run.size.of(UPDATED_RATE, UPDATED_RATE, 300);
    let (mut lines, mut rows) = (Vec::new(), Vec::new());
    for arm in arms {
        let running = arm.start(stage)?;
        let mut points = Vec::new();
        for updates in wanted {
            let point = point(run, stage, &running, rate, *updates)?;
            points.extend(point.p50.map(|time| (point.updates, time)));
            rows.push(row(arm, &point));
        }
        lines.push(Line::new(arm.name, points));
    }
    let across = Axis { is_log: true, from: Some(1.0), ..Axis::titled("updates a second") };
    let plot = Plot { across, up: response_time(), lines };
    report.plot(
        format!("Figure 6: response time by updates, at {} queries a second", number(rate.into())),
        plot,
    );
    report.table("Points, with more and more updates", &HEAD, rows);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_a_second_is_one_that_was_made() {
        // Updates a second that are wanted and made; queries a second, the share that is answered, and their median in ms.
        for (wanted, made, rate, answered, p50, holds) in [
            (0, 0.0, 4_000.0, 1.0, 0.1, true),
            (0, 0.0, 3_999.0, 1.0, 0.1, false),
            (0, 0.0, 4_000.0, 0.998, 0.1, false),
            (0, 0.0, 4_000.0, 1.0, 1.0, false),
            (1, 0.999, 3_000.0, 1.0, 0.1, true),
            (1, 0.999, 2_999.0, 1.0, 0.1, false),
            (1, 0.5, 3_000.0, 1.0, 0.1, false),
            (1, 0.0, 3_000.0, 1.0, 0.1, false),
        ] {
            let (run, mut report) = Report::of_a_test(Size::Full);
            let p50 = Some(p50);
            let point = Point { rate, updates: made, answered, p50, p99: p50, in_bursts: false };
            required(&run, wanted, &[(&ARMS[0], vec![point])], &mut report);
            assert_eq!(report.holds(), holds, "{wanted} {point:?}");
        }
    }
}
