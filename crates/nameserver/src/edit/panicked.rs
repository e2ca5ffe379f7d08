//! What follows a panic while changes are made.
//!
//! The change is refused, counted and logged, and the next one is made on what is published. A second within
//! [`PANICS_APART`](crate::panics::PANICS_APART) means that it is no rare accident: the status says so, until a
//! change is made. The process goes on, for it answers queries.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::panics::{Panics, message};

/// Panics of the editor thread.
#[derive(Debug, Default)]
pub(super) struct Panicked {
    count: Arc<AtomicU64>,
    last: Panics,
    /// What the second of two in a row says.
    in_a_row: Mutex<Option<String>>,
}

impl Panicked {
    /// Counts and logs a panic at `now` of the editor's clock; returns what it says.
    pub(super) fn suffered(&self, generation: u64, panic: &(dyn Any + Send), now: Duration) -> String {
        let panic = message(panic);
        self.count.fetch_add(1, Ordering::Relaxed);
        tracing::error!(generation, panic, "a change made us panic; it is not made");
        if self.last.is_second(now) {
            *self.in_a_row() = Some(format!("two panics in a row while changes were made: {panic}"));
        }
        panic.to_owned()
    }

    /// Says that a change was made.
    pub(super) fn survived(&self) {
        *self.in_a_row() = None;
    }

    /// What two panics in a row said, until a change is made.
    pub(super) fn complaint(&self) -> Option<String> {
        self.in_a_row().clone()
    }

    /// How many there were since start.
    pub(super) fn count(&self) -> Arc<AtomicU64> {
        self.count.clone()
    }

    fn in_a_row(&self) -> MutexGuard<'_, Option<String>> {
        self.in_a_row.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
