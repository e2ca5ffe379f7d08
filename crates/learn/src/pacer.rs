//! How often may be asked.

use std::time::Duration;

/// Lets one question through per interval, or a burst of them after a pause.
///
/// A bucket of `burst` tokens that gains one each interval; with a burst of 1 it is the plain interval of Rapid
/// DNS (section 8.2): never more than 1/interval questions a second, whatever came before.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    interval: Duration,
    /// How far ahead of its time the last token of a burst may be taken.
    ahead: Duration,
    /// When the bucket would be full again but for one token.
    due: Duration,
}

impl Pacer {
    /// A full bucket: `interval` between questions in the long run, at most `burst` at once (at least 1).
    pub fn new(interval: Duration, burst: u32) -> Pacer {
        Pacer { interval, ahead: interval.saturating_mul(burst.saturating_sub(1)), due: Duration::ZERO }
    }

    /// Takes a token; false where there is none yet.
    pub fn take(&mut self, now: Duration) -> bool {
        if !self.wait(now).is_zero() {
            return false;
        }
        self.due = self.due.max(now) + self.interval;
        true
    }

    /// How long until there is a token: zero where there is one.
    pub fn wait(&self, now: Duration) -> Duration {
        self.due.saturating_sub(self.ahead).saturating_sub(now)
    }

    /// How long until the bucket is full: zero where it is.
    pub fn full(&self, now: Duration) -> Duration {
        self.due.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn one_an_interval() {
        let mut pacer = Pacer::new(50 * MS, 1);
        assert!(pacer.take(7 * MS));
        assert!(!pacer.take(56 * MS));
        assert_eq!(pacer.wait(56 * MS), MS);
        assert!(pacer.take(57 * MS));
        assert!(pacer.take(1000 * MS), "a pause saves up one question");
        assert!(!pacer.take(1000 * MS), "and no second one");
    }

    #[test]
    fn a_burst_is_saved_up() {
        let mut pacer = Pacer::new(50 * MS, 3);
        let now = 1000 * MS;
        assert_eq!(
            [pacer.take(now), pacer.take(now), pacer.take(now), pacer.take(now)],
            [true, true, true, false]
        );
        assert_eq!(pacer.full(now + 50 * MS), 100 * MS);
        assert!(pacer.take(now + 50 * MS));
        assert!(!pacer.take(now + 50 * MS));
    }

    #[test]
    fn no_interval_is_no_limit() {
        let mut pacer = Pacer::new(Duration::ZERO, 1);
        assert!((0..1000).all(|_| pacer.take(MS)));
    }

    proptest! {
        #[test]
        fn never_more_than_the_bucket_allows(
            interval in 1..100u32, burst in 1..10u32, steps in proptest::collection::vec(0..50u32, 1..200),
        ) {
            let mut pacer = Pacer::new(interval * MS, burst);
            let (mut now, mut taken) = (0, 0);
            for step in steps {
                now += step;
                taken += u32::from(pacer.take(now * MS));
                prop_assert!(taken <= burst + now / interval, "{taken} at {now}");
            }
        }
    }
}
