//! `least-outstanding`: the fewest in flight for its weight, of all; of equals the one whose answers took less time lately.
//! dnsdist's default, which leaves the weights out.

use fastrand::Rng;

use super::{Pick, Set, State, Why, least};

/// Picks the one with the fewest in flight for its weight; of equals, the one whose answers took less time lately.
#[inline]
pub fn pick(state: &State, among: Set, rng: &mut Rng) -> Option<Pick> {
    let cost = |index| (in_flight(state, index), state.latency(index).mean_ns());
    let (back_end, _) = least(among, rng, cost)?;
    Some(Pick { back_end, why: Why::LeastInFlight })
}

/// What would be in flight for a weight of 1.
#[inline]
pub(super) fn in_flight(state: &State, index: usize) -> f32 {
    (state.in_flight(index) + 1) as f32 / state.weight(index) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_for_its_weight_goes_first() {
        let mut state = State::new();
        for (index, (weight, in_flight)) in [(1, 1), (4, 3), (1, 2)].into_iter().enumerate() {
            state.begin(index, weight, 0);
            (0..in_flight).for_each(|_| state.sent(index, 10));
        }
        let mut rng = Rng::with_seed(1);
        assert_eq!(pick(&state, state.all(), &mut rng).map(|pick| pick.back_end), Some(1));
        assert_eq!(pick(&state, state.all().without(1), &mut rng).map(|pick| pick.back_end), Some(0));
        // Of equals the one that answered sooner, and before all one that has not answered yet.
        for (index, latency) in [(0, 2_000), (1, 4_000), (2, 1_000)] {
            state.begin(index, 1, 20);
            state.answered(index, 1, latency, 30);
        }
        assert_eq!(pick(&state, state.all(), &mut rng).map(|pick| pick.back_end), Some(2));
        assert_eq!(pick(&state, state.all().without(2), &mut rng).map(|pick| pick.back_end), Some(0));
        state.begin(1, 1, 40);
        assert_eq!(pick(&state, state.all(), &mut rng).map(|pick| pick.back_end), Some(1));
    }
}
