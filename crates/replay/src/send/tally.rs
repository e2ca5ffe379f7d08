//! What came of the queries, counted by each thread for itself and added up at the end.

use std::collections::BTreeMap;
use std::io;

use api::replay::{Latency, Percentiles, Series};
use dns::OptRcode;
use hdrhistogram::Histogram;
use net::client;

use super::carrier::Carrier;
use crate::compare;
use crate::mutate::{self, Mutation};

/// The longest time in nanoseconds that a histogram tells apart: an hour. Longer ones count as so long.
const TIME_MAX: u64 = 3_600_000_000_000;

/// Significant digits of a histogram: its percentiles are right to a thousandth.
const DIGITS: u8 = 3;

/// The response codes: twelve bits (RFC 6891 §6.1.3).
const RCODES: usize = 1 << 12;

/// The most seconds whose rates are kept: a week. What is later counts in the last one.
pub(super) const SECONDS_MAX: usize = 7 * 86_400;

/// Where a distribution is drawn.
const CURVE: [f64; 19] = [
    0.0, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.995, 99.999,
    99.9995, 99.9999, 100.0,
];

/// Why a query has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// None came in time.
    Timeout,
    /// The server's host or the server refused it (RST to a new connection; ICMP, for all that waited at its socket).
    Refused,
    /// The connection was reset.
    Reset,
    /// The server closed the connection.
    Closed,
    /// No way leads to the server.
    Unreachable,
    /// No descriptor or no port was left.
    NoSocket,
    /// Its socket was closed for another client's, as too many were open.
    Evicted,
    /// All ids of its socket were waiting; its send buffer stayed full, the device's queue was, 256 KiB waited at its
    /// connection, or too much was under way to distant clients; or it is too long for its transport.
    NoRoom,
    /// Too many queries were remembered: it was given up before its time.
    GivenUp,
    /// None in time; answers were dropped at its socket, for which the kernel had no more room there.
    Dropped,
    /// The run was interrupted.
    Interrupted,
    /// The server and the client did not come to terms on TLS.
    Handshake,
    /// The server answered over HTTP, but not with a message.
    Status,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Cause; 13] = [
        Cause::Timeout,
        Cause::Refused,
        Cause::Reset,
        Cause::Closed,
        Cause::Unreachable,
        Cause::NoSocket,
        Cause::Evicted,
        Cause::NoRoom,
        Cause::GivenUp,
        Cause::Dropped,
        Cause::Interrupted,
        Cause::Handshake,
        Cause::Status,
    ];

    /// What a failed system call means for a query.
    pub(super) fn of(error: &io::Error) -> Cause {
        match error.kind() {
            _ if client::is_out_of_descriptors(error) || client::is_out_of_ports(error) => Cause::NoSocket,
            _ if client::is_out_of_room(error) || client::is_too_long(error) => Cause::NoRoom,
            io::ErrorKind::ConnectionRefused => Cause::Refused,
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Cause::Reset,
            io::ErrorKind::TimedOut => Cause::Timeout,
            _ => Cause::Unreachable,
        }
    }

    /// Its name in reports and logs.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Timeout => "timeout",
            Cause::Refused => "refused",
            Cause::Reset => "reset",
            Cause::Closed => "closed",
            Cause::Unreachable => "unreachable",
            Cause::NoSocket => "no-socket",
            Cause::Evicted => "evicted",
            Cause::NoRoom => "no-room",
            Cause::GivenUp => "given-up",
            Cause::Dropped => "dropped",
            Cause::Interrupted => "interrupted",
            Cause::Handshake => "handshake",
            Cause::Status => "http-status",
        }
    }
}

/// The counts of one thread, or of all.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Queries of the schedule that were due: answered, lost, or (while it runs) waiting.
    pub queries: u64,
    /// Queries by [`Carrier::ALL`]; those asked again over TCP only as UDP.
    pub transports: [u64; Carrier::ALL.len()],
    /// Queries with an answer.
    pub answers: u64,
    /// Octets of these answers and of truncated ones, as DNS messages.
    pub answer_octets: u64,
    /// Queries without one, by [`Cause::ALL`].
    pub lost: [u64; Cause::ALL.len()],
    /// Answers by their code, with the upper bits that EDNS has.
    pub rcodes: Box<[u64; RCODES]>,
    /// Answers over UDP that were truncated; each was asked again over TCP.
    pub truncated: u64,
    /// Recorded queries over TCP that were not sent, as the same was asked again already after a truncated answer.
    pub left_out: u64,
    /// Queries that were asked again on another connection, as the server had not looked at them.
    pub unprocessed: u64,
    /// Answers to queries that were lost before.
    pub late_answers: u64,
    /// Further answers to an answered query.
    pub duplicates: u64,
    /// Messages that belong to no query that is remembered, and what is no DNS response.
    pub aliens: u64,
    /// Sockets opened, by [`Carrier::ALL`]; those that clients share are not among them.
    pub opened: [u64; Carrier::ALL.len()],
    /// Sockets that clients share.
    pub shared: u64,
    /// TCP connections that came about, those under TLS too.
    pub established: u64,
    /// Handshakes of TLS that were done: in full, resumed.
    pub handshakes: [u64; 2],
    /// Sockets closed because they were idle.
    pub closed_idle: u64,
    /// Sockets closed because too many were open.
    pub evicted: u64,
    /// Connections that the server ended.
    pub closed_by_server: u64,
    /// Those of them at which queries waited, and none had been answered.
    pub closed_unanswered: u64,
    /// The most sockets open at once, summed over threads.
    pub most_open: u64,
    /// The most that may be open at once, summed over threads.
    pub sockets_limit: u64,
    /// Sockets at a further loopback address, as ports ran out.
    pub further_sources: u64,
    /// Queries that could not be given a name of their own.
    pub unchanged: u64,
    /// What came of the changes to queries, where any are asked for.
    pub mutation: Option<mutate::Tally>,
    /// What came of comparing answers, all zero where they are not.
    pub comparison: compare::Counts,
    /// How long threads were ready to send and had no core, in nanoseconds; 0 where the kernel does not count it.
    pub waited: u64,
    /// Clients, copies counted, exact up to the limit of the table.
    pub clients: u64,
    /// Sent minus due.
    pub lateness: Histogram<u64>,
    /// Answered minus due.
    pub latency: Histogram<u64>,
    /// Answered minus sent.
    pub latency_sent: Histogram<u64>,
    /// Answered minus sent, of clients that asked little before.
    pub quiet: Histogram<u64>,
    /// Answered minus sent, of the others.
    pub busy: Histogram<u64>,
    /// Queries by the second in which they were due, were sent and were answered.
    pub due_per_second: Vec<u64>,
    /// Sent.
    pub sent_per_second: Vec<u64>,
    /// Answered.
    pub answered_per_second: Vec<u64>,
}

impl Tally {
    /// A tally of nothing.
    pub(super) fn new(mutation: Option<&Mutation>) -> Tally {
        let histogram = || Histogram::new_with_max(TIME_MAX, DIGITS).expect("the bounds are constants");
        Tally {
            queries: 0,
            transports: [0; Carrier::ALL.len()],
            answers: 0,
            answer_octets: 0,
            lost: [0; Cause::ALL.len()],
            rcodes: Box::new([0; RCODES]),
            truncated: 0,
            left_out: 0,
            unprocessed: 0,
            late_answers: 0,
            duplicates: 0,
            aliens: 0,
            opened: [0; Carrier::ALL.len()],
            shared: 0,
            established: 0,
            handshakes: [0; 2],
            closed_idle: 0,
            evicted: 0,
            closed_by_server: 0,
            closed_unanswered: 0,
            most_open: 0,
            sockets_limit: 0,
            further_sources: 0,
            unchanged: 0,
            mutation: mutation.map(mutate::Tally::new),
            comparison: compare::Counts::default(),
            waited: 0,
            clients: 0,
            lateness: histogram(),
            latency: histogram(),
            latency_sent: histogram(),
            quiet: histogram(),
            busy: histogram(),
            due_per_second: Vec::new(),
            sent_per_second: Vec::new(),
            answered_per_second: Vec::new(),
        }
    }

    /// A query is due, at so many nanoseconds.
    pub(super) fn due(&mut self, due: u64, carrier: Carrier) {
        self.queries += 1;
        self.transports[carrier as usize] += 1;
        count(&mut self.due_per_second, due);
    }

    /// It was sent.
    pub(super) fn sent(&mut self, due: u64, sent: u64) {
        self.lateness.saturating_record(sent.saturating_sub(due));
        count(&mut self.sent_per_second, sent);
    }

    /// It was answered.
    pub(super) fn answered(&mut self, due: u64, sent: u64, now: u64, rcode: OptRcode, is_quiet: bool) {
        self.answers += 1;
        self.rcodes[usize::from(rcode.to_int()) % RCODES] += 1;
        self.latency.saturating_record(now.saturating_sub(due));
        let time = now.saturating_sub(sent);
        self.latency_sent.saturating_record(time);
        if is_quiet { &mut self.quiet } else { &mut self.busy }.saturating_record(time);
        count(&mut self.answered_per_second, now);
    }

    /// It has no answer.
    pub(super) fn lost(&mut self, cause: Cause) {
        self.lost[cause as usize] += 1;
    }

    /// All queries without an answer.
    pub fn lost_total(&self) -> u64 {
        self.lost.iter().sum()
    }

    /// Adds another thread's.
    pub(super) fn merge(&mut self, mut other: Tally) {
        for (ours, theirs) in self.counters().into_iter().zip(other.counters()) {
            *ours += *theirs;
        }
        for (ours, theirs) in self.histograms().into_iter().zip(other.histograms()) {
            ours.add(&*theirs).expect("all have the same bounds");
        }
        for (ours, theirs) in self.seconds().into_iter().zip(other.seconds()) {
            ours.resize(ours.len().max(theirs.len()), 0);
            for (ours, theirs) in ours.iter_mut().zip(theirs) {
                *ours += *theirs;
            }
        }
    }

    /// Everything that is counted, always in the same order.
    pub(super) fn counters(&mut self) -> Vec<&mut u64> {
        // Whoever adds a field decides here what becomes of it.
        let Tally {
            queries,
            transports,
            answers,
            answer_octets,
            lost,
            rcodes,
            truncated,
            left_out,
            unprocessed,
            late_answers,
            duplicates,
            aliens,
            opened,
            shared,
            established,
            handshakes,
            closed_idle,
            evicted,
            closed_by_server,
            closed_unanswered,
            most_open,
            sockets_limit,
            further_sources,
            unchanged,
            mutation,
            comparison: compare::Counts { verdicts, unrecorded },
            waited,
            clients,
            lateness: _,
            latency: _,
            latency_sent: _,
            quiet: _,
            busy: _,
            due_per_second: _,
            sent_per_second: _,
            answered_per_second: _,
        } = self;
        let mut all = vec![queries, answers, answer_octets, truncated, left_out, unprocessed];
        all.extend([
            late_answers,
            duplicates,
            aliens,
            shared,
            established,
            closed_idle,
            evicted,
            closed_by_server,
        ]);
        all.extend([closed_unanswered, most_open, sockets_limit, further_sources, unchanged, waited]);
        all.extend([clients, unrecorded]);
        all.extend(transports.iter_mut().chain(lost).chain(rcodes.iter_mut()).chain(opened));
        all.extend(handshakes.iter_mut().chain(verdicts));
        all.extend(mutation.iter_mut().flat_map(mutate::Tally::counters));
        all
    }

    /// The distributions, always in the same order.
    pub(super) fn histograms(&mut self) -> [&mut Histogram<u64>; 5] {
        let Tally { lateness, latency, latency_sent, quiet, busy, .. } = self;
        [lateness, latency, latency_sent, quiet, busy]
    }

    /// The counts by second, always in the same order.
    pub(super) fn seconds(&mut self) -> [&mut Vec<u64>; 3] {
        let Tally { due_per_second, sent_per_second, answered_per_second, .. } = self;
        [due_per_second, sent_per_second, answered_per_second]
    }

    /// Answers by the names of their codes.
    pub(crate) fn named_rcodes(&self) -> BTreeMap<String, u64> {
        let counted = (0_u16..).zip(self.rcodes.iter()).filter(|(_, count)| **count > 0);
        counted.map(|(code, count)| (OptRcode::masked_from_int(code).to_string(), *count)).collect()
    }
}

/// What a histogram of nanoseconds says, in microseconds; an empty one says nothing.
pub(crate) fn percentiles(times: &Histogram<u64>) -> Option<Percentiles> {
    let at = |percent| micros(times.value_at_percentile(percent));
    (!times.is_empty()).then(|| Percentiles {
        min: micros(times.min()),
        p25: at(25.0),
        p50: at(50.0),
        p75: at(75.0),
        p90: at(90.0),
        p99: at(99.0),
        p999: at(99.9),
        max: micros(times.max()),
    })
}

/// Clients of a kind: their answers and how long these took.
pub(crate) fn latency(times: &Histogram<u64>) -> Latency {
    Latency { answers: times.len(), latency_us: percentiles(times) }
}

/// A distribution as points of percent and microseconds.
pub(crate) fn curve(times: &Histogram<u64>) -> Series {
    if times.is_empty() {
        return Vec::new();
    }
    // Beyond one query of all, there is nothing between the last point and the maximum.
    let finest = 100.0 - 100.0 / times.len() as f64;
    let points = CURVE.into_iter().filter(|percent| *percent <= finest || *percent == 100.0);
    points.map(|percent| (percent, micros(times.value_at_percentile(percent)))).collect()
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1_000.0
}

fn count(seconds: &mut Vec<u64>, at: u64) {
    let second = usize::try_from(at / 1_000_000_000).unwrap_or(usize::MAX).min(SECONDS_MAX - 1);
    if second >= seconds.len() {
        seconds.resize(second + 1, 0);
    }
    seconds[second] += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_up() {
        const S: u64 = 1_000_000_000;
        let (mut one, mut other) = (Tally::new(None), Tally::new(None));
        one.due(0, Carrier::Udp);
        one.sent(0, 5_000);
        one.answered(0, 5_000, 105_000, OptRcode::NXDOMAIN, true);
        other.due(2 * S, Carrier::Tcp);
        other.sent(2 * S, 2 * S);
        other.lost(Cause::Reset);
        one.merge(other);
        assert_eq!((one.queries, one.answers, one.lost_total(), one.transports), (2, 1, 1, [1, 1, 0, 0, 0]));
        assert_eq!(one.due_per_second, [1, 0, 1]);
        assert_eq!(one.named_rcodes(), BTreeMap::from([("NXDOMAIN".into(), 1)]));
        let close = |value: f64, expected: f64| (value - expected).abs() <= expected / 500.0;
        assert!(percentiles(&one.lateness).is_some_and(|lateness| close(lateness.max, 5.0)));
        assert!(percentiles(&one.latency).is_some_and(|latency| close(latency.p50, 105.0)));
        assert!(latency(&one.quiet).latency_us.is_some_and(|quiet| close(quiet.p50, 100.0)));
        assert_eq!(latency(&one.busy), Latency { answers: 0, latency_us: None });
        assert_eq!(curve(&one.busy), []);
        assert_eq!(
            curve(&one.lateness).iter().map(|(at, _)| *at).collect::<Vec<_>>(),
            [0.0, 1.0, 5.0, 10.0, 25.0, 50.0, 100.0]
        );
    }

    #[test]
    fn causes_are_in_their_order() {
        for (at, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, at);
        }
    }
}
