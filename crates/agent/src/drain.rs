//! How fast a service takes from its queue. Pure.
//!
//! What came less what the queue has grown by is what was taken. As long as the queue is never empty that is all that
//! the service can do; else it is all that there was to do, and the service can do at least that much. So a rate that
//! was seen with an empty queue only ever raises the estimate, and where the balancers would have sent more than they
//! were allowed, the estimate is raised on trial: the queue will tell.

use std::time::Duration;

/// The least time over which a rate is taken where the queue was empty meanwhile: two periods of what is usual where
/// processor time is given in slices.
pub const ROUND: Duration = Duration::from_millis(20);

/// The same where it was not. BIND takes up to 20 datagrams at once and works on them one after the other: with a tenth of a
/// processor that is up to a tenth of a second in which it takes nothing, and is not idle.
pub const ROUND_FILLED: Duration = Duration::from_millis(100);

/// The estimate before the first rate, per second: what a small server can do on a slow day.
const START: f64 = 200.0;

/// By how much an estimate is raised on trial before the queue was ever seen to stay filled.
const RAISE_FIRST: f64 = 2.0;

/// By how much after that.
const RAISE: f64 = 1.25;

/// The weight of a new rate among those with a filled queue.
const WEIGHT: f64 = 0.5;

/// The highest estimate, per second: no queue is read faster.
const RATE_MAX: f64 = 1e8;

/// Estimates how many datagrams or connections a second are taken from a queue.
#[derive(Clone, Debug)]
pub struct Drain {
    rate: f64,
    /// Whether the rate is more than a guess.
    is_known: bool,
    mark: Option<Mark>,
    /// Whether the queue was empty at some time in this round.
    was_empty: bool,
    /// Whether it was not in the round before.
    was_filled: bool,
    /// Whether the queue has ever stayed filled for a round.
    is_bounded: bool,
}

/// Where a round began.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Duration,
    arrived: u64,
    length: u64,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            rate: START,
            is_known: false,
            mark: None,
            was_empty: false,
            was_filled: false,
            is_bounded: false,
        }
    }
}

impl Drain {
    /// Takes the queue's length at a time by which `arrived` had been sent; `is_wanted` says whether more would have
    /// been sent.
    ///
    /// What is sent by others than the balancers is not known of, and makes the estimate too small.
    pub fn observe(&mut self, at: Duration, arrived: u64, length: u64, is_wanted: bool) {
        self.was_empty |= length == 0;
        let now = Mark { at, arrived, length };
        let Some(mark) = self.mark else {
            self.mark = Some(now);
            return;
        };
        let round = at.saturating_sub(mark.at);
        let least = if self.was_empty { ROUND } else { ROUND_FILLED };
        if round < least {
            return;
        }
        let taken = (arrived.saturating_sub(mark.arrived) + mark.length).saturating_sub(length);
        let rate = taken as f64 / round.as_secs_f64();
        if self.was_empty {
            self.is_known |= taken > 0;
            self.rate = self.rate.max(rate);
            if is_wanted {
                self.rate *= if self.is_bounded { RAISE } else { RAISE_FIRST };
            }
        } else {
            self.is_known = true;
            self.is_bounded = true;
            self.rate = if self.was_filled { self.rate + (rate - self.rate) * WEIGHT } else { rate };
        }
        self.rate = self.rate.min(RATE_MAX);
        self.was_filled = !self.was_empty;
        self.was_empty = length == 0;
        self.mark = Some(now);
    }

    /// Datagrams or connections a second.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Whether the rate was measured; else it is where the estimate begins.
    pub fn is_known(&self) -> bool {
        self.is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A queue that is offered `offered` and drained of at most `capacity` in each round of 20 ms.
    fn run(
        drain: &mut Drain,
        start: (u64, u64, u64),
        rounds: u64,
        offered: u64,
        capacity: u64,
        is_wanted: bool,
    ) -> (u64, u64, u64) {
        let (mut at, mut arrived, mut length) = start;
        for _ in 0..rounds {
            (at, arrived) = (at + 20, arrived + offered);
            length = (length + offered).saturating_sub(capacity);
            drain.observe(Duration::from_millis(at), arrived, length, is_wanted);
        }
        (at, arrived, length)
    }

    #[test]
    fn a_rate_is_a_capacity_only_while_the_queue_is_filled() {
        let mut drain = Drain::default();
        drain.observe(Duration::ZERO, 0, 0, false);
        assert!(!drain.is_known());
        // 100 a round are 5,000 a second.
        let idle = run(&mut drain, (0, 0, 0), 5, 100, 200, false);
        assert_eq!((drain.rate(), drain.is_known()), (5_000.0, true));
        let less = run(&mut drain, idle, 50, 1, 200, false);
        assert_eq!(drain.rate(), 5_000.0, "less to do is no lower capacity");
        let filled = run(&mut drain, less, 10, 300, 200, false);
        assert_eq!(drain.rate(), 10_000.0);
        assert!(filled.2 > 0);
        // Its processor is taken away for a while.
        let slow = run(&mut drain, filled, 50, 300, 20, false);
        assert!((drain.rate() - 1_000.0).abs() < 20.0, "{}", drain.rate());
        let stopped = run(&mut drain, slow, 60, 0, 0, true);
        assert!(drain.rate() < 1.0, "{}", drain.rate());
        // It takes all that is there within a round: that much it can do at least.
        run(&mut drain, stopped, 1, 0, 100_000, false);
        assert!(drain.rate() > 10_000.0);
    }

    #[test]
    fn where_more_is_wanted_the_estimate_is_raised_until_the_queue_fills() {
        let mut drain = Drain::default();
        drain.observe(Duration::ZERO, 0, 0, false);
        let wanted = run(&mut drain, (0, 0, 0), 8, 1, 1_000, true);
        assert_eq!(drain.rate(), START * 256.0);
        let filled = run(&mut drain, wanted, 6, 1_100, 1_000, true);
        assert_eq!(drain.rate(), 50_000.0);
        let emptied = run(&mut drain, filled, 1, 0, 1_000, false);
        run(&mut drain, emptied, 1, 0, 1_000, true);
        assert_eq!(drain.rate(), 62_500.0, "more gently after that");
    }

    #[test]
    fn who_takes_many_at_once_is_not_stopped_in_between() {
        let mut drain = Drain::default();
        drain.observe(Duration::ZERO, 0, 40, false);
        // 20 in each 80 ms, and as many come.
        for step in 1..=40_u64 {
            let (arrived, taken) = (step * 5, step / 4 * 20);
            drain.observe(Duration::from_millis(step * 20), arrived, 40 + arrived - taken, false);
            assert!(step < 5 || drain.rate() >= 150.0, "{} {step}", drain.rate());
        }
    }

    proptest! {
        #[test]
        fn a_rate_is_a_number_and_finds_the_capacity(
            before in proptest::collection::vec((0..40_u64, 0..5_000_u64, 0..5_000_u64, any::<bool>()), 0..50),
            capacity in 1..20_000_u64,
        ) {
            let (mut drain, mut at, mut arrived) = (Drain::default(), 0, 0);
            for (millis, more, length, is_wanted) in before {
                (at, arrived) = (at + millis, arrived + more);
                drain.observe(Duration::from_millis(at), arrived, length, is_wanted);
                prop_assert!((0.0..=RATE_MAX).contains(&drain.rate()));
            }
            // A queue that stays filled, for long enough that nothing of what was before counts.
            drain.observe(Duration::from_millis(at), arrived, 1_000, true);
            run(&mut drain, (at, arrived, 1_000), 250, capacity, capacity, true);
            let expected = capacity as f64 * 50.0;
            prop_assert!((drain.rate() - expected).abs() <= expected * 0.01, "{} {expected}", drain.rate());
        }
    }
}
