//! Figure 15: what a client's distance makes of latency, over each transport; and of the server's memory.

use anyhow::Result;
use api::replay::{Latency, Percentiles, ReplayReport};
use replay::plot::{Axis, Line, Plot};

use super::servers::{self, most, sockets};
use super::stage::Stage;
use crate::options::{Run, Size};
use crate::report::{Limit, Report, number};

/// Round trips in ms: the paper's range.
const ROUND_TRIPS: &[u32] = &[0, 10, 20, 60, 100, 140];

/// All clients over one transport.
const TRANSPORTS: [(&str, &str); 3] = [("UDP", "udp=100%"), ("TCP", "tcp=100%"), ("TLS", "tls=100%")];

/// How long the server keeps an idle connection, in seconds: in the middle of the paper's.
const TIMEOUT: u32 = 20;

/// How many round trips the median of quiet clients may take, by transport: a query and its answer; before them, the
/// handshake of TCP; before them, that of TLS 1.3. Half a round trip more is for the server and for what is resumed.
const ROUND_TRIPS_MAX: [f64; 3] = [1.5, 2.5, 3.5];

/// The least share of queries that are answered: latency is of these alone.
const ANSWERED_MIN: f64 = 0.99;

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
         two round trips over TCP and up to four over TLS, which then was TLS 1.2. Each run has a server of its own: \
         its memory, LDplayer found, is the same at every distance.",
    );
    let Some(zone) = servers::root(stage, report)? else { return Ok(()) };
    let seed = run.seed.to_string();
    let mut found = Vec::new();
    for &round_trip in run.size.of(ROUND_TRIPS, &ROUND_TRIPS[3..4], &ROUND_TRIPS[..0]) {
        for (transport, (_, shares)) in TRANSPORTS.iter().enumerate() {
            let (server, tls) = servers::nsd_with_tls(stage, &zone, TIMEOUT)?;
            let (pid, port) = (server.id().to_string(), tls.port().to_string());
            let distance = format!("{round_trip}ms..{round_trip}ms");
            let mut options = vec!["--transport", shares, "--rtt", &distance, "--seed", &seed];
            options.extend(["--idle", "1h", "--tls-port", &port, "--insecure"]);
            options.extend(["--observe", &pid, "--limit", run.size.of("5000", "1700", "0")]);
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
        let (name, _) = TRANSPORTS[one.transport];
        let milliseconds = [&one.report.quiet, &one.report.busy].map(|clients| {
            let told = |us: f64| number((us / 100.0).round() / 10.0);
            clients.latency_us.map_or(["-", "-"].map(str::to_owned), |times| [times.p50, times.p90].map(told))
        });
        let mut row = vec![name.to_owned(), one.round_trip.to_string()];
        row.extend(milliseconds.concat());
        let trips = [&one.report.quiet, &one.report.busy].map(|clients| trips(clients, one.round_trip));
        row.extend(trips.map(|trips| trips.filter(|trips| !trips.is_nan()).map_or("-".into(), number)));
        let established = most(&one.report, |second| sockets(second, "established"));
        row.extend([resident(&one.report), established].map(|most| number(most as f64)));
        rows.push(row);
        let at = format!("{name} at {} ms", one.round_trip);
        let answered = one.report.answers as f64 / one.report.queries as f64;
        report.must(format!("{at}: answered"), Limit::AtLeast(ANSWERED_MIN), answered);
        if let [Some(trips), _] = trips {
            let what = format!("{at}: median of quiet clients, round trips");
            report.must(what, Limit::AtMost(ROUND_TRIPS_MAX[one.transport]), trips);
        }
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
        "server: resident, KiB",
        "server: established at most",
    ];
    report.table("Latency from when a query was sent, and what the server had", &head, rows);
    let lines = (0..TRANSPORTS.len())
        .flat_map(|transport| {
            let of = |value: fn(Percentiles) -> f64| {
                let of_it = found.iter().filter(|one| one.transport == transport);
                let times = of_it.filter_map(|one| Some((one.round_trip, one.report.quiet.latency_us?)));
                times.map(|(trip, times)| (f64::from(trip), value(times) / 1e3)).collect::<Vec<_>>()
            };
            let (name, _) = TRANSPORTS[transport];
            [
                Line::new(format!("{name}, median"), of(|times| times.p50)),
                Line::new(format!("{name}, p90"), of(|times| times.p90)),
            ]
        })
        .collect();
    let plot = Plot { across: Axis::titled("round trip, ms"), up: Axis::titled("latency, ms"), lines };
    report.plot("Figure 15: latency of quiet clients by distance", plot);
    let lines = (0..TRANSPORTS.len())
        .map(|transport| {
            let of_it = found.iter().filter(|one| one.transport == transport);
            let points = of_it.map(|one| (f64::from(one.round_trip), resident(&one.report) as f64 / 1024.0));
            Line::new(TRANSPORTS[transport].0, points.collect())
        })
        .collect();
    let plot = Plot { across: Axis::titled("round trip, ms"), up: Axis::titled("MiB resident"), lines };
    report.plot("The server's memory by distance (LDplayer: the same)", plot);
}

/// The median latency of clients in round trips: none where these take no time, no number where nobody was answered.
fn trips(clients: &Latency, round_trip_ms: u32) -> Option<f64> {
    let median_us = clients.latency_us.map_or(f64::NAN, |times| times.p50);
    (round_trip_ms > 0).then(|| median_us / 1e3 / f64::from(round_trip_ms))
}

/// The most resident memory of the server, in KiB.
fn resident(report: &ReplayReport) -> u64 {
    most(report, |second| second.resident_octets) >> 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_judged_where_there_are_answers() {
        // The answers of 100 queries, those of quiet clients, and the median of these in ms.
        for (answers, quiet, p50, holds) in [
            (100, 90, 90.0, true),
            (99, 1, 60.0, true),
            (100, 90, 90.1, false),
            (98, 88, 60.0, false),
            (100, 0, 0.0, false),
            (0, 0, 0.0, false),
        ] {
            let latency_us = (quiet > 0).then(|| Percentiles { p50: p50 * 1e3, ..Percentiles::default() });
            let quiet = Latency { answers: quiet, latency_us };
            let came = ReplayReport { queries: 100, answers, quiet, ..ReplayReport::default() };
            let (_, mut report) = Report::of_a_test(Size::Full);
            told(&[Found { transport: 0, round_trip: 60, report: came }], &mut report);
            assert_eq!(report.holds(), holds, "{answers} {p50}: {}", report.told());
        }
    }
}
