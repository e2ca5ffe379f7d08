//! What follows where receiving fails: a rest, another try, and a word now and then.

use std::time::{Duration, Instant};

/// How long receiving rests after the first failure; after each further one in a row, twice as long.
const REST_MIN: Duration = Duration::from_millis(1);

/// The longest rest between two tries to receive.
///
/// Without a rest the loop would spin where the condition lasts. It is also what a stop may have to wait for.
pub const RECEIVE_REST_MAX: Duration = Duration::from_millis(100);

/// How often a receiver is told of failures at most.
pub const RECEIVE_TOLD: Duration = Duration::from_secs(60);

/// Failures to receive, of one receiver.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    in_a_row: u32,
    told: Option<Instant>,
}

impl Failures {
    /// It was received again.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.in_a_row = 0;
    }

    /// How long to rest after one more.
    pub(crate) fn rest(&mut self) -> Duration {
        let doubled = 2u32.saturating_pow(self.in_a_row);
        self.in_a_row = self.in_a_row.saturating_add(1);
        REST_MIN.saturating_mul(doubled).min(RECEIVE_REST_MAX)
    }

    /// Whether the receiver is to be told now: of the first, and then of one in [`RECEIVE_TOLD`].
    pub(crate) fn is_told(&mut self, now: Instant) -> bool {
        let is_due = self.told.is_none_or(|told| now.saturating_duration_since(told) >= RECEIVE_TOLD);
        if is_due {
            self.told = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_to_their_limit_and_begin_again() {
        let mut failures = Failures::default();
        let mut rests = || (0..9).map(|_| failures.rest().as_millis()).collect::<Vec<_>>();
        assert_eq!(rests(), [1, 2, 4, 8, 16, 32, 64, 100, 100]);
        failures.in_a_row = u32::MAX;
        assert_eq!(failures.rest(), RECEIVE_REST_MAX);
        failures.end();
        assert_eq!(failures.rest(), REST_MIN);
    }

    #[test]
    fn one_failure_a_minute_is_told() {
        let (mut failures, start) = (Failures::default(), Instant::now());
        let told = [0, 1, 59, 60, 61, 119, 200].map(|at| failures.is_told(start + Duration::from_secs(at)));
        assert_eq!(told, [true, false, false, true, false, false, true]);
    }
}
