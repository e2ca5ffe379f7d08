//! A client's queries that are under way over one connection, each by itself, and since when it is silent.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use net::admission::Place;
use net::tcp::Limits;
use tokio::time::Instant;

/// The queries under way of a client that has a place.
#[derive(Debug)]
pub(crate) struct UnderWay {
    pub(crate) place: Place,
    queries: AtomicUsize,
    /// Since when one is waited for, where there is none.
    since: Mutex<Instant>,
}

impl UnderWay {
    /// There is none yet.
    pub(crate) fn new(place: Place) -> UnderWay {
        UnderWay { place, queries: AtomicUsize::new(0), since: Mutex::new(Instant::now()) }
    }

    /// One more is under way, until what this returns is dropped.
    pub(crate) fn begin(&self) -> Asking<'_> {
        self.queries.fetch_add(1, Ordering::Relaxed);
        self.place.waits(true);
        Asking(self)
    }

    /// Until when the client may be silent, as far as that is known now.
    pub(crate) fn waits_until(&self, limits: &Limits) -> Instant {
        let idle = limits.idle_now(self.place.is_crowded());
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if self.queries.load(Ordering::Relaxed) == 0 { since + idle } else { Instant::now() + idle }
    }
}

/// A query that is under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Asking<'a>(&'a UnderWay);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.queries.fetch_sub(1, Ordering::Relaxed);
        self.0.place.waits(true);
        *self.0.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}
