//! The time as a plain value.
//!
//! Nothing above this crate reads a clock. A worker asks its [`Clock`] once per batch and passes [`Now`] on,
//! so that every decision can be repeated with the time at which it was made.

use std::io;
use std::time::{Duration, Instant, SystemTime};

use nix::time::{ClockId, clock_gettime};

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

    /// Reads the monotonic clock alone, in nanoseconds since the anchor: 584 years of them fit.
    pub fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.anchor.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Reads both clocks; no system call where the kernel offers them in user space.
    pub fn now(&self) -> Now {
        Now {
            monotonic: self.anchor.elapsed(),
            unix: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO),
        }
    }
}

/// Tells now in nanoseconds of the clock that all processes of the machine share.
///
/// # Errors
/// What the system says.
pub fn shared() -> io::Result<u64> {
    let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?);
    Ok(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

/// The moment that another process calls so many nanoseconds of [`shared`].
///
/// # Errors
/// What the system says.
pub fn of_shared(nanos: u64) -> io::Result<Instant> {
    let (now, here) = (shared()?, Instant::now());
    let moment = match nanos.checked_sub(now) {
        Some(later) => here.checked_add(Duration::from_nanos(later)),
        None => here.checked_sub(Duration::from_nanos(now - nanos)),
    };
    moment.ok_or_else(|| io::Error::other("no clock goes so far"))
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
            assert!(u128::from(clock.monotonic_ns()) >= now.monotonic.as_nanos());
            before = now;
        }
    }

    #[test]
    fn the_shared_clock_is_that_of_instants() {
        let before = Instant::now();
        let told = shared().expect("Linux has it");
        let after = Instant::now();
        let moment = of_shared(told).expect("it was now");
        // Between the two readings inside there is some time, too.
        assert!(moment >= before && moment <= after + before.elapsed());
        assert!(of_shared(u64::MAX).is_ok_and(|moment| moment > after));
    }

    #[test]
    fn unix_time_is_the_system_time() {
        let unix =
            || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("the clock is after 1970");
        let (before, now, after) = (unix(), Clock::new().now(), unix());
        assert!(before <= now.unix && now.unix <= after);
    }
}
