//! What is counted: plain cells that only one thread writes, read by whoever asks.

use std::sync::atomic::AtomicU64;

use net::count::Count;

use crate::cache::Kept;

/// How many response codes fit a header (RFC 1035 §4.1.1).
pub const RCODES: usize = 16;

/// The upper bounds of latencies in microseconds; one more cell is for all above.
pub const LATENCY_BOUNDS_US: [u64; 14] = [
    100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000,
];

/// How many groups questions are in, by their hashes: enough that one name is a small part of them, and few enough that
/// each has some.
pub const GROUPS: usize = 16;

/// What became of the questions of one group, where the same question goes to the same back end.
#[derive(Debug, Default)]
pub struct Group {
    /// Queries that were answered, or not in time.
    pub ended: Count,
    /// Those of them that failed: not in time, or by their response codes.
    pub failed: Count,
}

/// What one thread counts of one back end.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Cells {
    /// Queries sent, again ones too.
    pub sent: Count,
    /// Those of them that went as datagrams: what agents are told.
    pub datagrams: Count,
    /// Queries that are no longer in flight: answered, timed out, or given up.
    pub ended: Count,
    /// Answers by the header's response code.
    pub answered: [Count; RCODES],
    /// Queries that were not answered in time.
    pub timeouts: Count,
    /// Queries that could not be delivered: nobody listens there, or no way leads there.
    pub refused: Count,
    /// Datagrams that came after the timeout of what they answer.
    pub late: Count,
    /// Datagrams that answer nothing that was asked over their socket.
    pub alien: Count,
    /// Datagrams that answer another question than was asked with their id.
    pub wrong_question: Count,
    /// Answers by their latencies, up to and with each of [`LATENCY_BOUNDS_US`], and last those above.
    pub latencies: [Count; LATENCY_BOUNDS_US.len() + 1],
    /// The sum of latencies in microseconds.
    pub latency_us: Count,
    /// Times that this thread came to doubt the back end, being told that nobody listens there or no way leads there.
    pub doubts: Count,
    /// What became of questions, by the groups of their hashes; counted under the policy `hash` alone.
    pub groups: [Group; GROUPS],
}

impl Cells {
    /// Queries in flight.
    #[inline]
    pub fn in_flight(&self) -> u64 {
        // Read in this order, so that what ends in between is not counted as never sent.
        let ended = self.ended.get();
        self.sent.get().saturating_sub(ended)
    }

    /// Queries that went as datagrams and are no longer in flight: a thread sends all of its queries so, or none.
    #[inline]
    pub fn datagrams_ended(&self) -> u64 {
        self.datagrams.get().saturating_sub(self.in_flight())
    }

    /// All answers.
    pub fn answers(&self) -> u64 {
        self.answered.iter().map(Count::get).sum()
    }

    /// Counts an answer.
    #[inline]
    pub fn count_answer(&self, rcode: u8, latency_ns: u64) {
        let us = latency_ns / 1_000;
        self.answered[usize::from(rcode) % RCODES].add(1);
        self.latencies[LATENCY_BOUNDS_US.partition_point(|bound| *bound < us)].add(1);
        self.latency_us.add(us);
    }

    /// Counts what became of a question with this hash.
    #[inline]
    pub fn count_question(&self, key: u64, has_failed: bool) {
        let group = &self.groups[(key >> 32) as usize % GROUPS];
        group.ended.add(1);
        group.failed.add(u64::from(has_failed));
    }
}

/// Replies over connections that ended nothing. Each connection counts by itself, so these have many writers.
#[derive(Debug, Default)]
pub struct Strays {
    /// Replies that came after their timeout, while others were still waited for over the same connection.
    pub late: AtomicU64,
    /// Messages with an id that no query over this connection has.
    pub alien: AtomicU64,
    /// Messages with the id of a query, that do not answer its question.
    pub wrong_question: AtomicU64,
}

/// What one thread counts of its clients.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct FrontCounters {
    /// Messages that came in.
    pub queries: Count,
    /// Answers that went to clients, from back ends.
    pub answers: Count,
    /// Those of them that came after their timeout, while another back end was waited for.
    pub late_answers: Count,
    /// Queries that were answered from the cache, fresh.
    pub cache_hits: Count,
    /// Queries that might have been, but for what the cache did not have, or were to ask anew for what it has.
    pub cache_misses: Count,
    /// Queries that were answered from the cache by a failure that a back end has just told.
    pub cache_failures: Count,
    /// Queries that no back end answered, or would as another one has just failed, and that had an answer from the cache which
    /// is not fresh any more.
    pub cache_stale: Count,
    /// Messages for dnstap that its ring had no room for.
    pub tap_full: Count,
    /// Looks for messages that the system failed: clients are left alone for a while then.
    pub receive_failed: Count,
    /// Messages and connections of clients that may not ask: dropped, closed.
    pub strangers: Count,
    /// Messages that were no query, dropped: shorter than a header, or responses.
    pub no_query: Count,
    /// Malformed queries, and messages with another opcode, answered here.
    pub malformed: Count,
    /// Queries that rules had answered here, or dropped.
    pub ruled: Count,
    /// Queries for a zone transfer over connections, answered REFUSED.
    pub transfers: Count,
    /// Queries that no back end answered, or for which there was none or no way to send them: answered SERVFAIL.
    pub failed: Count,
    /// Queries for which all places were taken: dropped, over connections answered SERVFAIL. Connections, too.
    pub full: Count,
    /// Connections of clients that gave way to new ones, as all places were taken.
    pub gave_way: Count,
    /// Connections of clients that came to no terms over TLS, or took too long for it.
    pub tls_failed: Count,
    /// Requests over HTTPS that held no query: answered with a status that says why.
    pub https_refused: Count,
    /// Streams over QUIC that held no query as it is to be: their connections were closed.
    pub quic_refused: Count,
    /// Queries whose client had as many as one may have: dropped, over connections answered SERVFAIL.
    pub full_client: Count,
    /// Queries for which no free id was found.
    pub no_id: Count,
    /// Times that no socket to a back end was to be had for a query: answered SERVFAIL, or sent to another one.
    pub no_socket: Count,
    /// Queries that nobody had credit for: dropped, over connections answered SERVFAIL.
    pub shed: Count,
    /// Queries that nobody had credit for, answered with TC set, so that the client asks over TCP.
    pub steered: Count,
    /// Queries sent to a second back end.
    pub retries: Count,
    /// Queries that would have been, but for the budget.
    pub retries_denied: Count,
    /// Datagrams that the system did not take.
    pub send_failed: Count,
    /// Picks by their reasons, in the order of `routing::balance::Why`.
    pub picks: [Count; routing::balance::Why::ALL.len()],
    /// The step that `pressure` goes by now.
    pub step: AtomicU64,
}

impl FrontCounters {
    /// Counts what the cache had for a query that is not put to a back end yet.
    pub fn count_found(&self, kept: Option<Kept>) {
        let count = match kept {
            Some(Kept::Fresh) => &self.cache_hits,
            Some(Kept::Failure) => &self.cache_failures,
            Some(Kept::Stale) => &self.cache_stale,
            None => &self.cache_misses,
        };
        count.add(1);
    }

    /// Counts what the cache had in the place of a failure.
    pub fn count_after_failure(&self, kept: Kept) {
        if kept == Kept::Stale {
            self.cache_stale.add(1);
        }
    }

    /// Messages that went to no back end and did not fail: no query, malformed, of strangers, for a zone transfer, sent to TCP,
    /// without a place, or by a rule. Connections that were closed at once are among them.
    pub fn turned_away(&self) -> u64 {
        let FrontCounters {
            no_query,
            malformed,
            strangers,
            ruled,
            transfers,
            steered,
            full,
            full_client,
            ..
        } = self;
        let all = [no_query, malformed, strangers, ruled, transfers, steered, full, full_client];
        all.map(Count::get).iter().sum()
    }
}
