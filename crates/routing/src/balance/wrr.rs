//! `wrr`: in turn, by weight.
//!
//! The smooth form: each gains its weight, the one with the most goes and pays the sum, so that a weight of 5 beside
//! two of 1 gives `a a b a c a a` and not five in a row. It looks at nothing but the weights, as its rival in the
//! salbnet papers does.

use super::{BACK_ENDS_MAX, Pick, Set, State, Why};

/// What each has gained.
#[derive(Clone, Debug)]
pub struct Wrr {
    gained: [i64; BACK_ENDS_MAX],
}

impl Wrr {
    /// Nobody has gained anything.
    #[expect(clippy::new_without_default, reason = "named as what stands beside it")]
    pub fn new() -> Wrr {
        Wrr { gained: [0; BACK_ENDS_MAX] }
    }

    /// Picks the one whose turn it is.
    #[inline]
    pub fn pick(&mut self, state: &State, among: Set) -> Option<Pick> {
        let (mut sum, mut most) = (0, None);
        for index in among.iter() {
            let weight = i64::from(state.weight(index));
            sum += weight;
            self.gained[index] += weight;
            if most.is_none_or(|(_, gained)| self.gained[index] > gained) {
                most = Some((index, self.gained[index]));
            }
        }
        let (back_end, _) = most?;
        self.gained[back_end] -= sum;
        Some(Pick { back_end, why: Why::Turn })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_by_weight_and_spread() {
        let mut state = State::new();
        for (index, weight) in [5, 1, 1].into_iter().enumerate() {
            state.begin(index, weight, 0);
        }
        let mut wrr = Wrr::new();
        let turns: Vec<usize> =
            (0..14).filter_map(|_| wrr.pick(&state, state.all())).map(|pick| pick.back_end).collect();
        assert_eq!(turns, [0, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 2, 0, 0]);
        assert_eq!(wrr.pick(&state, Set::EMPTY), None);
    }
}
