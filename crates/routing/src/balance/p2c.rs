//! `p2c`: of two that are drawn, the one with fewer in flight for its weight (Mitzenmacher, "The Power of Two
//! Choices in Randomized Load Balancing").
//!
//! Nearly as even as looking at all, and several balancers that know nothing of each other do not run after the same.

use fastrand::Rng;

use super::least_outstanding::in_flight;
use super::{Pick, Set, State, Why, two};

/// Picks the better one of two.
#[inline]
pub fn pick(state: &State, among: Set, rng: &mut Rng) -> Option<Pick> {
    let (one, other) = two(among, rng)?;
    let back_end = if in_flight(state, other) < in_flight(state, one) { other } else { one };
    Some(Pick { back_end, why: Why::FewerInFlight })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_loaded_of_all_never_goes() {
        let mut state = State::new();
        for index in 0..3 {
            state.begin(index, 1, 0);
            (0..index).for_each(|_| state.sent(index, 10));
        }
        let mut rng = Rng::with_seed(1);
        let mut counts = [0; 3];
        for _ in 0..3_000 {
            counts[pick(&state, state.all(), &mut rng).expect("there are some").back_end] += 1;
        }
        assert!(counts[2] == 0 && counts[0] > 1_800 && counts[1] > 800, "{counts:?}");
        let only = Set::EMPTY.with(2);
        assert_eq!(pick(&state, only, &mut rng).map(|pick| pick.back_end), Some(2));
    }
}
