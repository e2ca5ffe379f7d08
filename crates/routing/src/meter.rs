//! How often something happens, of very many things, in a table that never grows.
//!
//! What is counted is the *theoretical arrival time* of the generic cell rate algorithm: the time at which the next one
//! would be due if all came evenly. It stands in one of a fixed number of atomic cells, which threads share. Two accounts in
//! one cell share a rate; which do, nobody can foresee whose hash has a key.

use std::sync::atomic::{AtomicU64, Ordering};

/// The octets of the table: a cell for each of a million accounts. A flood of many sources then adds little to
/// any one, and takes no more memory than is there from the start.
pub const TABLE_BYTES: usize = 8 << 20;

/// The cells of the table.
const CELLS: usize = TABLE_BYTES / size_of::<AtomicU64>();

/// How often a cell is tried that other threads are writing: each failure is one more of the same account, so one that gets
/// no turn is over the rate for certain, or nearly.
const TRIES_MAX: usize = 16;

/// How often something may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The time between two at the rate, in nanoseconds.
    interval: u64,
    /// How far ahead of its time one may be, in nanoseconds.
    tolerance: u64,
}

impl Rate {
    /// So many a second in the long run, and `burst` at once where there was nothing for long; both from 1.
    ///
    /// # Panics
    /// Where `per_second` is 0.
    pub fn new(per_second: u32, burst: u64) -> Rate {
        let interval = 1_000_000_000 / u64::from(per_second);
        Rate { interval, tolerance: interval.saturating_mul(burst.saturating_sub(1)) }
    }
}

/// When what is next of each account is due.
pub struct Meter(Box<[AtomicU64]>);

impl Meter {
    /// A table of which nothing is known yet.
    #[expect(clippy::new_without_default, reason = "it allocates")]
    pub fn new() -> Meter {
        Meter((0..CELLS).map(|_| AtomicU64::new(0)).collect())
    }

    /// Whether one more of this account, by its hash, is within the rate at a time in nanoseconds of the monotonic clock; it
    /// is counted then.
    #[inline]
    pub fn is_within(&self, account: u64, rate: Rate, now_ns: u64) -> bool {
        let cell = &self.0[account as usize % CELLS];
        let mut due = cell.load(Ordering::Relaxed);
        for _ in 0..TRIES_MAX {
            if due > now_ns.saturating_add(rate.tolerance) {
                return false;
            }
            let next = due.max(now_ns).saturating_add(rate.interval);
            match cell.compare_exchange_weak(due, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => due = other,
            }
        }
        false
    }
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_burst_goes_at_once_and_then_so_many_a_second() {
        let meter = Meter::new();
        assert_eq!(size_of_val(&*meter.0), TABLE_BYTES);
        let rate = Rate::new(10, 3);
        let within = |account, now| (0..20).filter(|_| meter.is_within(account, rate, now)).count();
        assert_eq!(within(1, SECOND), 3);
        assert_eq!(within(2, SECOND), 3, "each account by itself");
        assert_eq!(within(1, SECOND + SECOND / 10), 1);
        assert_eq!(within(1, 2 * SECOND), 3, "no more is saved up");
        let in_a_second = (0..1_000).filter(|ms| meter.is_within(3, rate, ms * SECOND / 1_000)).count();
        assert_eq!(in_a_second, 2 + 10);
    }
}
