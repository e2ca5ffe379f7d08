//! What follows a panic while a query is answered; while a change is made, [`crate::edit`] says.
//!
//! One is survived: the query is dropped, counted and logged, and the next one is answered. A second within
//! [`PANICS_APART`] means that it is no rare accident: the process aborts with what it was doing in the log, and
//! the supervisor starts it anew.

use std::any::Any;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::zone::hex;

/// Two panics that are less than this apart end the process.
pub const PANICS_APART: Duration = Duration::from_secs(1);

/// When the last panic was, of all threads that answer.
#[derive(Debug, Default)]
pub struct Panics(Mutex<Option<Duration>>);

/// What was being done.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// The worker's number; none over TCP.
    pub worker: Option<usize>,
    /// The generation that was to answer.
    pub generation: u64,
    /// The message that was to be answered.
    pub query: &'a [u8],
}

impl Panics {
    /// Logs a panic at the monotonic time `now`; aborts the process where it is the second within
    /// [`PANICS_APART`].
    pub fn suffered(&self, scene: Scene<'_>, panic: &(dyn Any + Send), now: Duration) {
        let Scene { worker, generation, query } = scene;
        let (query, panic) = (hex(query), message(panic));
        if self.is_second(now) {
            let apart_ms = PANICS_APART.as_millis() as u64;
            tracing::error!(worker, generation, query, panic, apart_ms, "two panics in a row; aborting");
            std::process::abort();
        }
        tracing::error!(worker, generation, query, panic, "a query made us panic; it is dropped");
    }

    /// Notes a panic; whether it is the second within [`PANICS_APART`].
    pub(crate) fn is_second(&self, now: Duration) -> bool {
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(now);
        // Threads read the clock before they take the lock, so that the other's time may be the later one.
        before.is_some_and(|before| now.abs_diff(before) < PANICS_APART)
    }
}

/// What a panic says, as `panic!` made it.
pub(crate) fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_within_a_second_ends_it() {
        let cases: [(&[u64], bool); 6] = [
            (&[0], false),
            (&[5_000, 6_000], false),
            (&[5_000, 5_999], true),
            (&[5_000, 5_000], true),
            (&[5_000, 4_999], true),
            (&[1_000, 3_000, 5_000, 7_000], false),
        ];
        for (times, expected) in cases {
            let panics = Panics::default();
            let last = times.iter().map(|ms| panics.is_second(Duration::from_millis(*ms))).last();
            assert_eq!(last, Some(expected), "{times:?} ms");
        }
    }
}
