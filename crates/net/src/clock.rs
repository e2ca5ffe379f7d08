//! The time as a plain value.
//!
//! Nothing above this crate reads a clock. A worker asks its [`Clock`] once per batch and passes [`Now`] on,
//! so that every decision can be repeated with the time at which it was made.

use std::time::{Duration, Instant, SystemTime};

/// Says what time it is, on two clocks at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Time since the anchor of the [`Clock`]; never goes back.
    pub monotonic: Duration,
    /// Time since 1970-01-01 00:00 UTC without leap seconds; jumps when the system's clock is set, and is
    /// zero while that clock is before 1970.
    pub unix: Duration,
}

/// Reads the system's clocks against a fixed anchor.
///
/// Copies share the anchor, so that monotonic times of several threads can be compared.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    anchor: Instant,
}

impl Clock {
    /// Makes a clock whose monotonic time begins now.
    #[expect(clippy::new_without_default, reason = "a default value that reads a clock would surprise")]
    pub fn new() -> Self {
        Self { anchor: Instant::now() }
    }

    /// Reads both clocks; no system call where the kernel offers them in user space.
    pub fn now(&self) -> Now {
        Now {
            monotonic: self.anchor.elapsed(),
            unix: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_time_never_goes_back_and_copies_share_the_anchor() {
        let clock = Clock::new();
        let copy = clock;
        let mut before = clock.now();
        for _ in 0..1000 {
            let now = copy.now();
            assert!(now.monotonic >= before.monotonic);
            before = now;
        }
    }

    #[test]
    fn unix_time_is_the_system_time() {
        let unix =
            || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("the clock is after 1970");
        let (before, now, after) = (unix(), Clock::new().now(), unix());
        assert!(before <= now.unix && now.unix <= after);
    }
}
