//! The order in which servers are answered: by weighted draw, by list, or by rank.

use fastrand::Rng;

/// Draws up to `order.len()` servers without replacement, each by its weight's share of what remains: Algorithm 1 of
/// the MyXDNS paper.
///
/// `candidates` are indices into `weights`; the drawn ones are written to `order` and their number is
/// returned. When the weights of all that remain are 0, each of them is as probable as the other (lines 15 to
/// 17 of the algorithm: a random permutation). `candidates` is used up.
///
/// A draw takes one random number and one pass.
pub fn draw(weights: &[u32], candidates: &mut [u8], order: &mut [u8], rng: &mut Rng) -> usize {
    let wanted = order.len().min(candidates.len());
    let mut total: u64 = candidates.iter().map(|&i| u64::from(weights[usize::from(i)])).sum();
    let mut left = candidates.len();
    for slot in &mut order[..wanted] {
        let picked = if total == 0 {
            below(rng, left as u64) as usize
        } else {
            let mut point = below(rng, total);
            let reached = candidates[..left].iter().position(|&i| {
                let weight = u64::from(weights[usize::from(i)]);
                let is_here = point < weight;
                point = point.wrapping_sub(weight);
                is_here
            });
            reached.expect("a point below the total lies in some weight")
        };
        *slot = candidates[picked];
        total -= u64::from(weights[usize::from(candidates[picked])]);
        left -= 1;
        candidates.swap(picked, left);
    }
    wanted
}

/// Takes up to `order.len()` servers as they are listed, from the `turn`-th on and round.
///
/// Those of weight 0 come last and have no turn, unless all are; the rest is as for [`draw`].
pub fn listed(weights: &[u32], candidates: &mut [u8], order: &mut [u8], turn: u64) -> usize {
    let mut weighty = 0;
    for at in 0..candidates.len() {
        if weights[usize::from(candidates[at])] > 0 {
            candidates[weighty..=at].rotate_right(1);
            weighty += 1;
        }
    }
    let round = if weighty == 0 { candidates.len() } else { weighty };
    if round > 0 {
        candidates[..round].rotate_left((turn % round as u64) as usize);
    }
    let wanted = order.len().min(candidates.len());
    order[..wanted].copy_from_slice(&candidates[..wanted]);
    wanted
}

/// Takes up to `order.len()` servers, the heaviest first; of those of equal weight each is as likely to be next. The
/// rest is as for [`draw`].
pub fn heaviest(weights: &[u32], candidates: &mut [u8], order: &mut [u8], rng: &mut Rng) -> usize {
    let wanted = order.len().min(candidates.len());
    let mut left = candidates.len();
    for slot in &mut order[..wanted] {
        let remaining = &candidates[..left];
        let weight = |candidate: &u8| weights[usize::from(*candidate)];
        let most = remaining.iter().map(weight).max().expect("no more are wanted than there are");
        let ties = remaining.iter().filter(|candidate| weight(candidate) == most).count();
        let skipped = if ties == 1 { 0 } else { below(rng, ties as u64) as usize };
        let mut tied = (0..left).filter(|at| weight(&remaining[*at]) == most);
        let picked = tied.nth(skipped).expect("fewer are skipped than there are");
        *slot = candidates[picked];
        left -= 1;
        candidates.swap(picked, left);
    }
    wanted
}

/// A number below `bound`, which is over 0; each as probable as the other within 2^-24 of itself for bounds
/// below 2^40, which a row's total never passes.
#[inline]
fn below(rng: &mut Rng, bound: u64) -> u64 {
    ((u128::from(rng.u64(..)) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn order(weights: &[u32], wanted: usize, rng: &mut Rng) -> Vec<u8> {
        let mut candidates: Vec<u8> = (0..weights.len() as u8).collect();
        let mut order = vec![0; wanted];
        let drawn = draw(weights, &mut candidates, &mut order, rng);
        order.truncate(drawn);
        order
    }

    /// The exact probability of every order of `left`, by the definition.
    fn exact(weights: &[u32], left: &[u8], so_far: Vec<u8>, p: f64, into: &mut HashMap<Vec<u8>, f64>) {
        if left.is_empty() {
            into.insert(so_far, p);
            return;
        }
        let total: f64 = left.iter().map(|&i| f64::from(weights[usize::from(i)])).sum();
        for (at, &i) in left.iter().enumerate() {
            let share = if total == 0.0 {
                1.0 / left.len() as f64
            } else {
                f64::from(weights[usize::from(i)]) / total
            };
            if share > 0.0 {
                let mut rest = left.to_vec();
                rest.remove(at);
                exact(weights, &rest, [&so_far[..], &[i]].concat(), p * share, into);
            }
        }
    }

    #[test]
    fn orders_come_as_often_as_the_algorithm_says() {
        const DRAWS: u32 = 60_000;
        for (seed, weights) in [
            &[1u32, 1, 1][..],
            &[5, 3, 2],
            &[0, 0, 0],
            &[7, 0, 0, 1],
            &[0, 4, 0],
            &[1, 2, 3, 4],
            &[u32::MAX, 1],
        ]
        .iter()
        .enumerate()
        {
            let mut expected = HashMap::new();
            let all: Vec<u8> = (0..weights.len() as u8).collect();
            exact(weights, &all, vec![], 1.0, &mut expected);
            let mut rng = Rng::with_seed(seed as u64);
            let mut seen: HashMap<Vec<u8>, u32> = HashMap::new();
            for _ in 0..DRAWS {
                *seen.entry(order(weights, weights.len(), &mut rng)).or_default() += 1;
            }
            assert!(
                seen.keys().all(|order| expected.contains_key(order)),
                "{weights:?}: an impossible order"
            );
            // Orders too rare for chi-square are judged together.
            let (common, rare): (Vec<_>, Vec<_>) =
                expected.iter().partition(|(_, p)| **p * f64::from(DRAWS) >= 5.0);
            let count = |order: &Vec<u8>| f64::from(seen.get(order).copied().unwrap_or(0));
            let chi: f64 = common
                .iter()
                .map(|(order, p)| {
                    let due = **p * f64::from(DRAWS);
                    (count(order) - due).powi(2) / due
                })
                .sum();
            let freedom = common.len() as f64 - 1.0;
            // Five deviations above the mean: one false alarm in a million seeds, and the seeds are fixed.
            assert!(chi <= freedom + 5.0 * (2.0 * freedom).sqrt().max(1.0), "{weights:?}: chi-square {chi}");
            let rare_seen: f64 = rare.iter().map(|(order, _)| count(order)).sum();
            assert!(rare_seen < 30.0, "{weights:?}: {rare_seen} rare orders");
        }
    }

    #[test]
    fn the_first_of_one_is_drawn_by_its_share() {
        let weights = [10, 30, 60, 0];
        let mut rng = Rng::with_seed(11);
        let mut counts = [0u32; 4];
        for _ in 0..100_000 {
            counts[usize::from(order(&weights, 1, &mut rng)[0])] += 1;
        }
        let chi: f64 = [(0, 10_000.0), (1, 30_000.0), (2, 60_000.0)]
            .iter()
            .map(|&(i, due): &(usize, f64)| (f64::from(counts[i]) - due).powi(2) / due)
            .sum();
        assert!(chi < 13.8 && counts[3] == 0, "chi-square {chi}, {counts:?}");
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let weights = [3, 1, 4, 1, 5, 9, 2, 6];
        let run = |seed| (0..50).map(|_| order(&weights, 3, &mut Rng::with_seed(seed))).collect::<Vec<_>>();
        assert_eq!(run(1), run(1));
        assert_eq!(order(&[], 3, &mut Rng::with_seed(1)), Vec::<u8>::new());
    }

    #[test]
    fn lists_are_taken_in_turn() {
        for (weights, turn, wanted, expected) in [
            (&[1u32, 1, 1][..], 0, 3, &[0u8, 1, 2][..]),
            (&[1, 1, 1], 1, 2, &[1, 2]),
            (&[1, 1, 1], 2, 3, &[2, 0, 1]),
            (&[1, 1, 1], u64::MAX, 1, &[0]),
            (&[0, 1, 0, 2], 0, 4, &[1, 3, 0, 2]),
            (&[0, 1, 0, 2], 1, 4, &[3, 1, 0, 2]),
            (&[0, 0, 0], 1, 2, &[1, 2]),
            (&[5], 9, 3, &[0]),
            (&[], 3, 2, &[]),
        ] {
            let mut candidates: Vec<u8> = (0..weights.len() as u8).collect();
            let mut order = vec![0; wanted];
            let count = listed(weights, &mut candidates, &mut order, turn);
            assert_eq!(&order[..count], expected, "{weights:?} at {turn}");
        }
    }

    #[test]
    fn the_heaviest_come_first_and_ties_are_even() {
        let weights = [3, 9, 3, 1, 3];
        let mut rng = Rng::with_seed(4);
        let mut seen: HashMap<Vec<u8>, u32> = HashMap::new();
        const DRAWS: u32 = 60_000;
        for _ in 0..DRAWS {
            let mut candidates = [4, 0, 1, 2, 3];
            let mut order = [0; 3];
            assert_eq!(heaviest(&weights, &mut candidates, &mut order, &mut rng), 3);
            *seen.entry(order.to_vec()).or_default() += 1;
        }
        // The nearest, then two of three that are alike, in either order: six outcomes.
        assert_eq!(seen.len(), 6, "{seen:?}");
        let due = f64::from(DRAWS) / 6.0;
        let chi: f64 = seen.values().map(|count| (f64::from(*count) - due).powi(2) / due).sum();
        // The 99.9th percentile with five degrees of freedom.
        assert!(seen.keys().all(|order| order[0] == 1) && chi < 20.5, "{seen:?}: {chi}");
    }
}
