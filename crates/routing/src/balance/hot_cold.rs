//! `hot-cold`: Prequal's rule (Wydrowski et al., NSDI 2024).
//!
//! Who has more in flight than most had lately is hot. Among the cold ones the lowest latency at its load goes; where
//! all are hot, the fewest in flight. Prequal asks servers how many requests they have from everybody; a balancer of
//! DNS servers that cannot be asked takes its own.

use fastrand::Rng;

use super::{Pick, Set, State, Why, below, least};

/// The share of what was seen in flight that is cold: 2^-0.25, the paper's best.
const COLD: f32 = 0.84;

/// How far the threshold moves with each look, in its own size: a tenth of all within some hundred picks.
const STEP: f32 = 0.02;

/// The threshold between hot and cold.
#[derive(Clone, Debug)]
pub struct HotCold {
    /// What [`COLD`] of those seen lately were at most, in flight.
    threshold: f32,
}

impl HotCold {
    /// Nothing was seen yet.
    #[expect(clippy::new_without_default, reason = "named as what stands beside it")]
    pub fn new() -> HotCold {
        HotCold { threshold: 1.0 }
    }

    /// Picks by the rule, and learns from one back end by chance what is in flight now.
    #[inline]
    pub fn pick(&mut self, state: &State, among: Set, now_ns: u64, rng: &mut Rng) -> Option<Pick> {
        if among.is_empty() {
            return None;
        }
        let seen = among.nth(below(rng, among.len()))?;
        let step = STEP * self.threshold.max(1.0);
        let is_below = state.in_flight(seen) as f32 <= self.threshold;
        self.threshold += if is_below { -step * (1.0 - COLD) } else { step * COLD };
        let threshold = self.threshold.max(0.5);
        let cold = among.iter().filter(|index| state.in_flight(*index) as f32 <= threshold).collect();
        if let Some((back_end, _)) = least(cold, rng, |index| state.expected_ns(index, now_ns)) {
            return Some(Pick { back_end, why: Why::Cold });
        }
        let (back_end, _) = least(among, rng, |index| state.in_flight(index))?;
        Some(Pick { back_end, why: Why::AllHot })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_cold_one_goes_and_the_least_loaded_of_hot_ones() {
        let mut state = State::new();
        for (index, latency) in [(0, 1_000), (1, 3_000), (2, 9_000)] {
            state.begin(index, 1, 0);
            state.sent(index, 10);
            state.answered(index, 1, latency, 10);
        }
        let mut rng = Rng::with_seed(1);
        let mut hot_cold = HotCold::new();
        let mut picks = |state: &State| hot_cold.pick(state, state.all(), 11, &mut rng);
        assert_eq!(picks(&state), Some(Pick { back_end: 0, why: Why::Cold }));
        (0..50).for_each(|_| state.sent(0, 10));
        assert_eq!(picks(&state), Some(Pick { back_end: 1, why: Why::Cold }));
        (0..60).for_each(|_| state.sent(1, 10));
        (0..40).for_each(|_| state.sent(2, 10));
        assert_eq!(picks(&state), Some(Pick { back_end: 2, why: Why::AllHot }));
    }
}
