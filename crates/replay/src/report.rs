//! What came of a run, in the shape that other programs read.

use std::collections::BTreeMap;

use api::replay::{Comparison, HeldUp, ReplayReport, ScheduleMet, Series, Sockets, Unexpected};
use api::trace::{TraceChange, TraceMutation};

use crate::compare::Verdict;
use crate::mutate::{self, Mutation};
use crate::schedule::Pacing;
use crate::send::Done;
use crate::send::carrier::Carrier;
use crate::send::differing::DifferingKept;
use crate::send::tally::{Cause, Tally, curve, latency, percentiles};

/// The key, among those of what was skipped, of recorded retries that were not sent as ours took their place.
pub(crate) const RETRY: &str = "retry";

/// What a report says of the run beside its counts.
#[derive(Clone, Debug)]
pub struct About {
    /// The trace's file.
    pub trace: String,
    /// The servers.
    pub servers: Vec<String>,
    /// When queries were due.
    pub pacing: Pacing,
    /// The seed.
    pub seed: u64,
    /// What was changed in the queries.
    pub mutation: Option<Mutation>,
    /// Threads that sent, in each process.
    pub threads: usize,
    /// Processes, each with as many threads.
    pub processes: usize,
    /// Whether the host's cores were kept from resting.
    pub awake: bool,
    /// The most that the 99.9th percentile of lateness may be, in microseconds.
    pub tolerance_us: f64,
}

/// The report of a run.
pub fn report(about: About, done: &Done) -> ReplayReport {
    let tally = &done.tally;
    let (pacing, is_timed) = match about.pacing {
        Pacing::Recorded { .. } => ("recorded", true),
        Pacing::Rate { poisson: false, .. } => ("rate", true),
        Pacing::Rate { poisson: true, .. } => ("poisson", true),
        Pacing::Fast => ("fast", false),
    };
    // Without due times there is nothing to count from.
    let since_due = |times| if is_timed { percentiles(times) } else { None };
    let lateness_us = since_due(&tally.lateness);
    let lost_by = Cause::ALL.into_iter().zip(tally.lost).filter(|(_, count)| *count > 0);
    let since_due_curve = |times| if is_timed { curve(times) } else { Series::new() };
    let curves = [
        ("lateness", since_due_curve(&tally.lateness)),
        ("latency", since_due_curve(&tally.latency)),
        ("latency_sent", curve(&tally.latency_sent)),
        ("quiet", curve(&tally.quiet)),
        ("busy", curve(&tally.busy)),
    ];
    ReplayReport {
        trace: about.trace,
        servers: about.servers,
        pacing: pacing.into(),
        seed: about.seed,
        threads: (about.threads * about.processes) as u64,
        processes: about.processes as u64,
        awake: about.awake,
        seconds: done.time.as_secs_f64(),
        interrupted: done.interrupted,
        queries: tally.queries,
        answers: tally.answers,
        answer_octets: tally.answer_octets,
        lost: tally.lost_total(),
        lost_by: lost_by.map(|(cause, count)| (cause.name().into(), count)).collect(),
        rcodes: tally.named_rcodes(),
        transports: transports(&tally.transports),
        tc_retries: tally.truncated,
        unprocessed: tally.unprocessed,
        unexpected: Unexpected {
            late: tally.late_answers,
            duplicates: tally.duplicates,
            aliens: tally.aliens,
        },
        lateness_us,
        tolerance_us: about.tolerance_us,
        on_time: lateness_us.map(|lateness| lateness.p999 <= about.tolerance_us),
        held_up: HeldUp { waited_us: tally.waited as f64 / 1e3, stolen_us: done.stolen.as_secs_f64() * 1e6 },
        latency_us: since_due(&tally.latency),
        latency_sent_us: percentiles(&tally.latency_sent),
        clients: tally.clients,
        quiet: latency(&tally.quiet),
        busy: latency(&tally.busy),
        sockets: sockets(tally),
        due_per_second: tally.due_per_second.clone(),
        sent_per_second: tally.sent_per_second.clone(),
        answered_per_second: tally.answered_per_second.clone(),
        curves: curves.into_iter().map(|(name, curve)| (name.into(), curve)).collect(),
        mutation: about
            .mutation
            .zip(tally.mutation.as_ref())
            .map(|(changes, tally)| mutation(&changes, tally)),
        comparison: done.differing.as_ref().map(|kept| comparison(done, kept)),
        server_seconds: done.server_seconds.clone(),
        schedule: met(done),
    }
}

/// What was opened and closed.
fn sockets(tally: &Tally) -> Sockets {
    Sockets {
        udp: tally.opened[Carrier::Udp as usize],
        shared: tally.shared,
        tcp: tally.opened[Carrier::Tcp as usize],
        tls: tally.opened[Carrier::Tls as usize],
        quic: tally.opened[Carrier::Quic as usize],
        https: tally.opened[Carrier::Https as usize],
        tcp_established: tally.established,
        handshakes_full: tally.handshakes[0],
        handshakes_resumed: tally.handshakes[1],
        closed_by_server: tally.closed_by_server,
        closed_unanswered: tally.closed_unanswered,
        closed_idle: tally.closed_idle,
        evicted: tally.evicted,
        most_open: tally.most_open,
        limit: tally.sockets_limit,
        further_sources: tally.further_sources,
    }
}

/// What was met while the trace became a schedule.
fn met(done: &Done) -> ScheduleMet {
    let met = &done.met;
    let mut skipped = met.skipped.named();
    if done.tally.left_out > 0 {
        skipped.insert(RETRY.into(), done.tally.left_out);
    }
    ScheduleMet {
        responses: met.responses,
        skipped,
        jumps: met.jumps,
        crowded: met.crowded,
        sharing: met.sharing,
        unnumbered: met.unnumbered,
        unchanged: done.tally.unchanged,
        damage: met.damage.clone(),
    }
}

/// Counts by transport: of UDP and TCP always, of others where there are any.
fn transports(counts: &[u64; Carrier::ALL.len()]) -> BTreeMap<String, u64> {
    let counted =
        Carrier::ALL.into_iter().zip(counts).filter(|(carrier, count)| **count > 0 || !carrier.is_secure());
    counted.map(|(carrier, count)| (carrier.name().into(), *count)).collect()
}

fn comparison(done: &Done, kept: &DifferingKept) -> Comparison {
    let counts = &done.tally.comparison;
    let of = |verdict: Verdict| counts.verdicts[verdict as usize];
    let differing = Verdict::ALL.into_iter().filter(|verdict| verdict.is_difference());
    Comparison {
        compared: counts.verdicts.iter().sum(),
        same: of(Verdict::Same),
        truncated: of(Verdict::Truncated),
        differing: differing.map(|verdict| (verdict.name().into(), of(verdict))).collect(),
        unrecorded: counts.unrecorded,
        unmatched: done.met.unmatched,
        pairs_kept: kept.kept,
        pairs_beyond: kept.beyond,
    }
}

/// What came of changes to queries.
pub fn mutation(mutation: &Mutation, tally: &mutate::Tally) -> TraceMutation {
    let changes = mutation.changes().iter().zip(&tally.changes).map(|(change, tally)| TraceChange {
        change: change.to_string(),
        by: if change.is_by_client() { "client" } else { "query" }.into(),
        drawn: tally.drawn,
        changed: tally.changed,
        too_long: tally.too_long,
    });
    TraceMutation {
        seed: mutation.seed(),
        queries: tally.queries,
        changed: tally.changed,
        unreadable: tally.unreadable,
        with_records: tally.records,
        changes: changes.collect(),
    }
}
