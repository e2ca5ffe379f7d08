//! `random`: by chance, by weight.

use fastrand::Rng;

use super::{Pick, Set, State, Why, below};

/// Draws one by its share of all weights.
#[inline]
pub fn pick(state: &State, among: Set, rng: &mut Rng) -> Option<Pick> {
    let sum: u64 = among.iter().map(|index| u64::from(state.weight(index))).sum();
    if sum == 0 {
        return None;
    }
    let mut point = below(rng, usize::try_from(sum).unwrap_or(usize::MAX)) as u64;
    for back_end in among.iter() {
        let weight = u64::from(state.weight(back_end));
        if point < weight {
            return Some(Pick { back_end, why: Why::Drawn });
        }
        point -= weight;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_weights() {
        let mut state = State::new();
        for (index, weight) in [1, 2, 7].into_iter().enumerate() {
            state.begin(index, weight, 0);
        }
        let mut rng = Rng::with_seed(3);
        let mut counts = [0; 3];
        for _ in 0..100_000 {
            counts[pick(&state, state.all(), &mut rng).expect("there are some").back_end] += 1;
        }
        let chi: f64 = [10_000.0, 20_000.0, 70_000.0]
            .iter()
            .zip(counts)
            .map(|(due, count)| (f64::from(count) - due).powi(2) / due)
            .sum();
        assert!(chi < 13.8, "chi-square {chi}, {counts:?}");
    }
}
