//! `least-outstanding`: the fewest in flight for its weight, of all. dnsdist's default, which leaves the weights out.

use fastrand::Rng;

use super::{Pick, Set, State, Why, least};

/// Picks the one with the fewest in flight for its weight; of equals, by chance.
#[inline]
pub fn pick(state: &State, among: Set, rng: &mut Rng) -> Option<Pick> {
    let (back_end, _) = least(among, rng, |index| in_flight(state, index))?;
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
    }
}
