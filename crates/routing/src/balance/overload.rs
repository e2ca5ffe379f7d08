//! When nobody has credit: where queries still go, and who is shed.
//!
//! The order is fixed: credit that is left of leases that have run out; then the least in flight, as long as a query
//! sent now would be answered in time; then nothing is sent, and those clients are shed first that ask the most.
//!
//! The least in flight is counted in time, not in queries: what is in flight at each by what it takes for one. Counted in
//! queries, the slowest would get as many as the fastest just when all are full, and its would wait the longest.

use super::{Pick, Set, State, Why, least};

/// Picks among back ends without credit; none where each has as many in flight as it answers within `patience_ns`.
pub fn pick(state: &State, among: Set, now_ns: u64, patience_ns: u64) -> Option<Pick> {
    let stale: Set =
        among.iter().filter(|index| state.has_lapsed(*index, now_ns) && state.credit(*index) > 0).collect();
    let in_flight = |index| state.expected_ns(index, now_ns);
    if let Some((back_end, _)) = least(stale, 0, in_flight) {
        return Some(Pick { back_end, why: Why::StaleCredit });
    }
    let in_time = among.iter().filter(|index| in_flight(*index) <= patience_ns as f32).collect();
    let (back_end, _) = least(in_time, 0, in_flight)?;
    Some(Pick { back_end, why: Why::Overdrawn })
}

/// Places of [`Fairness`]: clients whose prefixes share one are shed together, and of 1,024 only a flood from
/// hundreds of prefixes fills the most.
const PLACES: usize = 1024;

/// Length of a window in which clients are counted, in nanoseconds.
const WINDOW_NS: u64 = 100_000_000;

/// Counts what clients ask while nobody has credit, so that those who ask the most are shed first.
#[derive(Clone, Debug)]
pub struct Fairness {
    admitted: Vec<u32>,
    asking: u32,
    total: u32,
    window: u64,
}

impl Fairness {
    /// Nobody has asked.
    #[expect(clippy::new_without_default, reason = "it allocates")]
    pub fn new() -> Fairness {
        Fairness { admitted: vec![0; PLACES], asking: 0, total: 0, window: 0 }
    }

    /// Whether a client of this prefix, by its hash, has had less than its fair share of what was sent in this window;
    /// it is counted then.
    pub fn admits(&mut self, prefix_hash: u64, now_ns: u64) -> bool {
        let window = now_ns / WINDOW_NS;
        if window != self.window {
            self.window = window;
            self.admitted.fill(0);
            (self.asking, self.total) = (0, 0);
        }
        let place = &mut self.admitted[(prefix_hash % PLACES as u64) as usize];
        if *place == 0 {
            self.asking += 1;
        }
        // One more than all equal shares, so that the first of everybody goes.
        if u64::from(*place) * u64::from(self.asking) > u64::from(self.total) {
            return false;
        }
        *place += 1;
        self.total += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::Lease;

    #[test]
    fn stale_credit_then_the_fewest_in_flight_then_nobody() {
        let mut state = State::new();
        for index in 0..2 {
            state.begin(index, 1, 0);
            state.sent(index, 10);
            state.answered(index, 1, 1_000, 10);
            state.lease(
                index,
                Lease { limit: 2 + index as u64, hard_until_ns: 20, until_ns: 20, queue_ns: 0 },
            );
        }
        let pick = |state: &State, patience| pick(state, state.all(), 30, patience);
        assert_eq!(pick(&state, 9_000), Some(Pick { back_end: 0, why: Why::StaleCredit }));
        state.sent(0, 10);
        assert_eq!(pick(&state, 9_000), Some(Pick { back_end: 1, why: Why::StaleCredit }));
        (0..3).for_each(|_| state.sent(1, 10));
        assert_eq!(pick(&state, 9_000), Some(Pick { back_end: 0, why: Why::Overdrawn }));
        assert_eq!(pick(&state, 500), None);
        assert_eq!(super::pick(&state, Set::EMPTY, 30, 9_000), None);
    }

    #[test]
    fn who_is_four_times_as_fast_gets_four_times_as_many() {
        let mut state = State::new();
        for (index, latency) in [(0, 4_000), (1, 1_000)] {
            state.begin(index, 1, 0);
            state.sent(index, 10);
            state.answered(index, 1, latency, 10);
        }
        for _ in 0..50 {
            let pick = pick(&state, state.all(), 10, 1_000_000).expect("both are in time");
            state.sent(pick.back_end, 10);
        }
        assert_eq!((state.in_flight(0), state.in_flight(1)), (10, 40));
    }

    #[test]
    fn a_flood_is_shed_and_others_are_not() {
        let mut fairness = Fairness::new();
        let (mut flood, mut others) = (0, 0);
        for round in 0..1_000_u64 {
            // One prefix asks nine times as often as ten others together.
            flood += u32::from(fairness.admits(7, 1));
            if round % 9 == 0 {
                others += u32::from(fairness.admits(100 + round / 9 % 10, 1));
            }
        }
        assert_eq!(others, 112);
        assert!((10..40).contains(&flood), "{flood}");
        assert!(fairness.admits(7, 1 + WINDOW_NS), "a new window");
    }
}
