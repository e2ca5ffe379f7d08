//! Figure 15: what a client's distance makes of latency, over each transport.

use anyhow::Result;
use api::replay::ReplayReport;
use replay::plot::{Axis, Line, Plot};

use super::servers;
use super::stage::Stage;
use crate::options::{Run, Size};
use crate::report::{Limit, Report, number};

/// Round trips in ms: the paper's range.
const ROUND_TRIPS: &[u32] = &[10, 20, 60, 100, 140];

/// All clients over one transport.
const TRANSPORTS: [(&str, &str); 3] = [("UDP", "udp=100%"), ("TCP", "tcp=100%"), ("TLS", "tls=100%")];

/// How long the server keeps an idle connection, in seconds: in the middle of the paper's.
const TIMEOUT: u32 = 20;

/// How many round trips the median of quiet clients may take, by transport: a query and its answer; before them, the
/// handshake of TCP; before them, that of TLS 1.3. Half a round trip more is for the server and for what is resumed.
const ROUND_TRIPS_MAX: [f64; 3] = [1.5, 2.5, 3.5];

/// What came of one transport at one distance.
struct Found {
    transport: usize,
    round_trip: u32,
    report: ReplayReport,
}

/// Does this part.
pub(super) fn perform(stage: &Stage, run: &Run, report: &mut Report) -> Result<()> {
    if run.size == Size::Smoke {
        return Ok(());
    }
    report.heading("Distance (figure 15)");
    report.say(
        "The root server's minute over one transport each, all clients as far away as told. Quiet clients have sent \
         fewer than ten queries in the minute. Most of their queries find a connection open here, as a minute's clients \
         ask in bursts; the 90th percentile is that of the first of a connection, to be held against LDplayer's about \
         two round trips over TCP and up to four over TLS, which then was TLS 1.2.",
    );
    let Some(zone) = servers::root(stage, report)? else { return Ok(()) };
    let (server, tls) = servers::nsd_with_tls(stage, &zone, TIMEOUT)?;
    let (seed, port) = (run.seed.to_string(), tls.port().to_string());
    let mut found = Vec::new();
    for &round_trip in run.size.of(ROUND_TRIPS, &ROUND_TRIPS[2..3], &ROUND_TRIPS[..0]) {
        for (transport, (_, shares)) in TRANSPORTS.iter().enumerate() {
            let distance = format!("{round_trip}ms..{round_trip}ms");
            let mut options = vec!["--transport", shares, "--rtt", &distance, "--seed", &seed];
            options.extend(["--idle", "1h", "--tls-port", &port, "--insecure"]);
            options.extend(["--limit", run.size.of("5000", "1700", "0")]);
            let report = stage.pointsman.replay(&stage.minute, server.address, &options)?;
            found.push(Found { transport, round_trip, report });
        }
    }
    told(&found, report);
    Ok(())
}

fn told(found: &[Found], report: &mut Report) {
    let mut rows = Vec::new();
    for one in found {
        let (quiet, busy) = (one.report.quiet.latency_us, one.report.busy.latency_us);
        let trips = |latency_us: f64| latency_us / 1e3 / f64::from(one.round_trip);
        let (name, _) = TRANSPORTS[one.transport];
        let milliseconds =
            [quiet.p50, quiet.p90, busy.p50, busy.p90].map(|us| number((us / 100.0).round() / 10.0));
        let mut row = vec![name.to_owned(), one.round_trip.to_string()];
        row.extend(milliseconds);
        row.extend([number(trips(quiet.p50)), number(trips(busy.p50))]);
        rows.push(row);
        let what = format!("{name} at {} ms: median of quiet clients, round trips", one.round_trip);
        report.must(what, Limit::AtMost(ROUND_TRIPS_MAX[one.transport]), trips(quiet.p50));
    }
    let head = [
        "transport",
        "round trip, ms",
        "quiet: median, ms",
        "quiet: p90, ms",
        "busy: median, ms",
        "busy: p90, ms",
        "quiet: median in round trips",
        "busy: median in round trips",
    ];
    report.table("Latency from when a query was sent", &head, rows);
    let lines = (0..TRANSPORTS.len())
        .flat_map(|transport| {
            let of = |value: fn(&ReplayReport) -> f64| {
                let of_it = found.iter().filter(|one| one.transport == transport);
                of_it.map(|one| (f64::from(one.round_trip), value(&one.report) / 1e3)).collect::<Vec<_>>()
            };
            let (name, _) = TRANSPORTS[transport];
            [
                Line::new(format!("{name}, median"), of(|report| report.quiet.latency_us.p50)),
                Line::new(format!("{name}, p90"), of(|report| report.quiet.latency_us.p90)),
            ]
        })
        .collect();
    let plot = Plot { across: Axis::titled("round trip, ms"), up: Axis::titled("latency, ms"), lines };
    report.plot("Figure 15: latency of quiet clients by distance", plot);
}
