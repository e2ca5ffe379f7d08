//! What happened to TCP connections and their queries.

use super::connection::End;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts connections and queries since start.
///
/// Every accepted connection ends in exactly one of the `ended_` counters or in `handler_panics`; those that
/// are in none of them yet are open. The numbers are read one by one, so a sum may be off by what happens
/// meanwhile.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections accepted and served.
    pub accepted: AtomicU64,
    /// Connections closed at once because [`connections_max`](super::Limits::connections_max) were open, and too many
    /// were about to give way already.
    pub refused_full: AtomicU64,
    /// Connections closed at once because [`per_client_max`](super::Limits::per_client_max) of this client
    /// were open.
    pub refused_per_client: AtomicU64,
    /// Connections that were gone before they could be served.
    pub accept_aborted: AtomicU64,
    /// Times that the system had no descriptor or memory for a connection, each followed by
    /// [`ACCEPT_PAUSE`](crate::accept::ACCEPT_PAUSE).
    pub accept_failed: AtomicU64,
    /// Queries received whole; each is an answer, a stream, a drop or the end of its connection by the handler, but for
    /// one that made its handler panic.
    pub queries: AtomicU64,
    /// Answers produced. Some of them may not have reached the client when its connection ended otherwise
    /// than by it.
    pub answers: AtomicU64,
    /// Queries that are answered by a stream of messages.
    pub streams: AtomicU64,
    /// Messages of those streams.
    pub stream_messages: AtomicU64,
    /// Streams that did not come to their end: the connection ended first.
    pub streams_cut: AtomicU64,
    /// Queries that the handler dropped.
    pub drops: AtomicU64,
    /// Connections that the handler closed.
    pub ended_by_handler: AtomicU64,
    /// Connections that the client closed after a whole number of queries.
    pub ended_by_client: AtomicU64,
    /// Connections that the client closed in the middle of a query.
    pub ended_cut_short: AtomicU64,
    /// Connections that broke: reset by the client or lost.
    pub ended_reset: AtomicU64,
    /// Connections closed for having no query for [`idle`](super::Limits::idle) or
    /// [`idle_when_crowded`](super::Limits::idle_when_crowded).
    pub ended_idle: AtomicU64,
    /// Connections closed because a query took longer than [`message`](super::Limits::message) to arrive.
    pub ended_query_late: AtomicU64,
    /// Connections closed because the client took longer than [`message`](super::Limits::message) to take its
    /// answers.
    pub ended_answers_untaken: AtomicU64,
    /// Connections closed at the end of their [`lifetime`](super::Limits::lifetime).
    pub ended_lifetime: AtomicU64,
    /// Connections that gave way to a new one while they waited for their clients: to ask, or to take answers.
    pub ended_gave_way: AtomicU64,
    /// Connections over TLS whose clients came to no terms with us, or took longer than
    /// [`message`](super::Limits::message) for it.
    pub ended_no_terms: AtomicU64,
    /// Connections closed by the shutdown.
    pub ended_by_shutdown: AtomicU64,
    /// Connections that ended because their handler panicked: a fault of ours.
    pub handler_panics: AtomicU64,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn count_end(&self, end: End) {
        let counter = match end {
            End::ByHandler => &self.ended_by_handler,
            End::ByClient => &self.ended_by_client,
            End::CutShort => &self.ended_cut_short,
            End::Reset => &self.ended_reset,
            End::Idle => &self.ended_idle,
            End::QueryLate => &self.ended_query_late,
            End::AnswersUntaken => &self.ended_answers_untaken,
            End::Lifetime => &self.ended_lifetime,
            End::GaveWay | End::GaveWayUntaken => &self.ended_gave_way,
            End::NoTerms => &self.ended_no_terms,
            End::ByShutdown => &self.ended_by_shutdown,
        };
        Self::add(counter, 1);
    }
}
