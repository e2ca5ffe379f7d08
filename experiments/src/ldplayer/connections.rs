//! Figures 11, 13 and 14: what a server pays when all clients use TCP, and all TLS.

use std::path::Path;

use anyhow::Result;
use api::replay::ReplayReport;
use replay::observe::{Observer, TIME_WAIT};
use replay::plot::{Axis, Line, Plot};

use super::servers::{self, most, sockets};
use super::stage::Stage;
use crate::options::{Run, Size};
use crate::report::{Limit, Report, number};

/// How long a server keeps a connection without a query, in seconds: the paper's.
const TIMEOUTS: &[u32] = &[5, 10, 20, 40];

/// Mixes of transports: as recorded, and all clients over one.
pub(super) const MIXES: [(&str, &str); 3] =
    [("as recorded", "recorded"), ("all TCP", "tcp=100%"), ("all TLS", "tls=100%")];

/// LDplayer's medians of processor time, in percent of 48 threads, in the order of [`MIXES`].
const PUBLISHED_CPU: [&str; 3] = ["10 %", "5 %", "9-10 %"];

/// LDplayer's memory at 20 s, in GB: as recorded, all TCP, all TLS; and its connections then that are established.
const PUBLISHED_MEMORY: [f64; 3] = [2.0, 15.0, 18.0];
const PUBLISHED_ESTABLISHED: f64 = 60_000.0;

/// What a run cost the server.
struct Cost {
    mix: usize,
    timeout: u32,
    /// Processor time over the time of the run, in cores.
    cpu: f64,
    /// The most resident octets, and those before the first query.
    resident: (u64, u64),
    /// The most connections at once that are established.
    established: u64,
    /// The most in TIME_WAIT at once, on the server's side.
    time_wait: u64,
    report: ReplayReport,
}

/// Does this part.
pub(super) fn perform(stage: &Stage, run: &Run, report: &mut Report) -> Result<()> {
    if run.size == Size::Smoke {
        return Ok(());
    }
    report.heading("Connections (figures 11, 13 and 14)");
    report.say(
        "The root server's minute against Debian's NSD with the root zone, as recorded (1 % TCP), with all clients over \
         TCP, and all over TLS. The server closes what was idle for 5 to 40 s; clients never do before. In miniature: \
         2,491 clients, where LDplayer had a million; so memory is told for each connection.",
    );
    let Some(zone) = servers::root(stage, report)? else { return Ok(()) };
    let mut costs = Vec::new();
    for &timeout in run.size.of(TIMEOUTS, &TIMEOUTS[..1], &TIMEOUTS[..0]) {
        for mix in 0..MIXES.len() {
            costs.push(play(stage, run, &zone, mix, timeout)?);
        }
    }
    told(&costs, run, report);
    Ok(())
}

fn play(stage: &Stage, run: &Run, zone: &Path, mix: usize, timeout: u32) -> Result<Cost> {
    let (server, tls) = servers::nsd_with_tls(stage, zone, timeout)?;
    let (_, shares) = MIXES[mix];
    let (pid, seed, port) = (server.id().to_string(), run.seed.to_string(), tls.port().to_string());
    let mut options = vec!["--transport", shares, "--observe", &pid, "--seed", &seed, "--idle", "1h"];
    options.extend(["--tls-port", &port, "--insecure"]);
    let limit = run.size.of(None, Some("3400"), Some("100"));
    options.extend(limit.iter().flat_map(|limit| ["--limit", limit]));
    let first = Observer::new(server.id())?.second(1.0)?.resident_octets;
    let report = stage.pointsman.replay(&stage.minute, server.address, &options)?;
    let seconds = report.server_seconds.as_deref().unwrap_or_default();
    let cpu =
        seconds.iter().map(|second| second.user + second.system).sum::<f64>() / seconds.len().max(1) as f64;
    Ok(Cost {
        mix,
        timeout,
        cpu,
        resident: (most(&report, |second| second.resident_octets), first),
        established: most(&report, |second| sockets(second, "established")),
        time_wait: most(&report, |second| sockets(second, TIME_WAIT)),
        report,
    })
}

fn told(costs: &[Cost], run: &Run, report: &mut Report) {
    let mut rows = Vec::new();
    for cost in costs {
        let (most, first) = cost.resident;
        let grown = most.saturating_sub(first) as f64 / cost.established.max(1) as f64;
        rows.push(vec![
            MIXES[cost.mix].0.to_owned(),
            cost.timeout.to_string(),
            format!("{:.2} %", cost.cpu * 100.0),
            number(cost.established as f64),
            number(cost.time_wait as f64),
            number((most >> 10) as f64),
            if cost.mix == 0 { "-".into() } else { number((grown / 1024.0 * 10.0).round() / 10.0) },
            number(cost.report.answers as f64),
        ]);
        let share = cost.report.answers as f64 / cost.report.queries as f64;
        let name = format!("{}, idle {} s: answered", MIXES[cost.mix].0, cost.timeout);
        report.must(name, Limit::AtLeast(0.99), share);
    }
    let head = [
        "transport",
        "idle after, s",
        "CPU of a core",
        "established at most",
        "TIME_WAIT at most",
        "resident, KiB",
        "KiB an established connection",
        "answers",
    ];
    report.table("What it costs the server", &head, rows);
    let rows = (0..MIXES.len()).map(|mix| {
        let bytes = (PUBLISHED_MEMORY[mix] - PUBLISHED_MEMORY[0]) * 1e9 / PUBLISHED_ESTABLISHED / 1024.0;
        vec![
            MIXES[mix].0.to_owned(),
            PUBLISHED_CPU[mix].to_owned(),
            format!("{} GB", PUBLISHED_MEMORY[mix]),
            if mix == 0 { "-".into() } else { number(bytes.round()) },
        ]
    });
    let head = ["transport", "CPU of 48 threads", "memory at 20 s", "KiB an established connection"];
    report.table(
        "LDplayer: 180,000 connections at 20 s, a third of them established, the others in TIME_WAIT",
        &head,
        rows.collect(),
    );
    type Value = fn(&Cost) -> f64;
    let drawings: [(&str, &str, Value); 4] = [
        ("Figure 11: processor time", "percent of a core", |cost| cost.cpu * 100.0),
        ("Figures 13a, 14a: memory", "MiB resident", |cost| cost.resident.0 as f64 / f64::from(1 << 20)),
        ("Figures 13b, 14b: connections", "established at most", |cost| cost.established as f64),
        ("Figures 13c, 14c: connections that wait", "TIME_WAIT at most", |cost| cost.time_wait as f64),
    ];
    for (title, unit, value) in drawings {
        let lines = (0..MIXES.len())
            .map(|mix| {
                let points = costs.iter().filter(|cost| cost.mix == mix);
                Line::new(MIXES[mix].0, points.map(|cost| (f64::from(cost.timeout), value(cost))).collect())
            })
            .collect();
        report.plot(title, Plot { across: Axis::titled("idle time-out, s"), up: Axis::titled(unit), lines });
    }
    if run.size == Size::Full {
        let at = |timeout: u32| costs.iter().find(|cost| cost.mix == 1 && cost.timeout == timeout);
        if let Some((short, long)) = at(5).zip(at(40)) {
            let ratio = long.established as f64 / short.established.max(1) as f64;
            report.must("all TCP: connections at 40 s over those at 5 s", Limit::AtLeast(1.5), ratio);
        }
    }
}
