//! What became of requests and connections.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::StatusCode;

use crate::patient::is_untaken;

/// The lowest status code of HTTP, and how many there are (RFC 9110 §15).
const STATUS_FIRST: usize = 100;
const STATUSES: usize = 500;

/// What became of a face's requests and connections, since start.
#[derive(Debug)]
pub struct Counters {
    responses: [AtomicU64; STATUSES],
    /// Connections that were served.
    pub accepted: AtomicU64,
    /// Connections that were closed at once: who asked may not.
    pub strangers: AtomicU64,
    /// Times that the system had no descriptor or memory for a connection.
    pub accept_failed: AtomicU64,
    /// Connections that ended for octets that are no request.
    pub malformed: AtomicU64,
    /// Connections that ended because no whole head of a request came within [`HEAD_WAIT`](crate::serve::HEAD_WAIT), or
    /// before another client needed their place.
    pub head_late: AtomicU64,
    /// Connections that the client or the network broke off.
    pub broken: AtomicU64,
    /// Connections that were as old as [`CONNECTION_LIFETIME`](crate::serve::CONNECTION_LIFETIME).
    pub lifetime: AtomicU64,
    /// Connections whose answers were not taken for [`UNTAKEN`](crate::patient::UNTAKEN).
    pub untaken: AtomicU64,
}

impl Counters {
    /// Each status that was answered, and how often.
    pub fn responses(&self) -> impl Iterator<Item = (usize, u64)> {
        let counts = self.responses.iter().map(|count| count.load(Ordering::Relaxed));
        counts.enumerate().filter(|(_, count)| *count > 0).map(|(at, count)| (at + STATUS_FIRST, count))
    }

    /// Counts an answer.
    pub(crate) fn answered(&self, status: StatusCode) {
        if let Some(counter) = self.responses.get(usize::from(status.as_u16()) - STATUS_FIRST) {
            add(counter);
        }
    }

    /// Counts how a connection ended by itself.
    pub(crate) fn ended(&self, how: &hyper::Error) {
        let counter = match how {
            how if how.is_timeout() => &self.head_late,
            how if how.is_parse() => &self.malformed,
            how if is_untaken(how) => &self.untaken,
            _ => &self.broken,
        };
        add(counter);
    }
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            responses: [const { AtomicU64::new(0) }; STATUSES],
            accepted: AtomicU64::default(),
            strangers: AtomicU64::default(),
            accept_failed: AtomicU64::default(),
            malformed: AtomicU64::default(),
            head_late: AtomicU64::default(),
            broken: AtomicU64::default(),
            lifetime: AtomicU64::default(),
            untaken: AtomicU64::default(),
        }
    }
}

/// Counts one more.
pub(crate) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
