//! Whose turn it is. In a round all arms have theirs one after the other, so that what changes on the machine meanwhile
//! changes for all alike; those that were void have another at its end.

use anyhow::Result;
use fastrand::Rng;

use super::field::ARMS;
use super::outcome::Outcome;
use crate::options::Size;

/// How often a turn is tried in a full run: what makes one void has mostly passed at the end of its round.
pub(super) const TRIES_MAX: u32 = 3;

/// An arm's run in one round.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) arm: usize,
    /// The load that was wanted.
    pub(super) load: f64,
    /// What came of its last turn, void or not.
    pub(super) outcome: Outcome,
    /// Why its turns before that were void.
    pub(super) voids: Vec<&'static str>,
}

/// The arms that take part, in the order of their turns.
pub(super) fn order(size: Size, draws: &mut Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ARMS.len()).filter(|arm| ARMS[*arm].takes_part(size)).collect();
    draws.shuffle(&mut order);
    order
}

/// Does a round; each arm has `tries` turns at most.
///
/// # Errors
/// Those of a turn.
pub(super) fn round(
    order: &[usize],
    load: f64,
    tries: u32,
    mut turn: impl FnMut(usize) -> Result<Outcome>,
) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for arm in order {
        samples.push(Sample { arm: *arm, load, outcome: turn(*arm)?, voids: Vec::new() });
    }
    for _ in 1..tries {
        for sample in &mut samples {
            let Some(why) = sample.outcome.conditions.void() else { continue };
            sample.voids.push(why);
            sample.outcome = turn(sample.arm)?;
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::salbnet::real::outcome::{Conditions, Window, Work};

    /// What came of a turn that was sent late, or not.
    fn outcome(is_late: bool) -> Outcome {
        let log = "index\tdue_us\tsent_us\tlatency_us\tclient\tcopy\ttransport\tresult\n\
                   0\t1.0\t1.0\t500.0\tc\t0\tudp\tNOERROR\n";
        let conditions = Conditions { late: if is_late { 9.0 } else { 0.0 }, ..Conditions::default() };
        Outcome::of(log, Window { from_us: 0.0, until_us: 2.0 }, conditions, Work::default()).expect("a log")
    }

    #[test]
    fn all_have_a_turn_in_an_order_that_a_seed_gives() {
        for size in [Size::Full, Size::Quick, Size::Smoke] {
            let of = |seed: u64| order(size, &mut Rng::with_seed(seed));
            let mut sorted = of(1);
            assert_eq!(sorted, of(1));
            sorted.sort_unstable();
            let all: Vec<usize> = (0..ARMS.len()).filter(|arm| ARMS[*arm].takes_part(size)).collect();
            assert_eq!(sorted, all);
        }
        let draws = &mut Rng::with_seed(1);
        assert_ne!(order(Size::Full, draws), order(Size::Full, draws), "another one in the next round");
    }

    #[test]
    fn void_turns_are_tried_again_at_the_end() {
        // The turns that are void, and the turns there are, of arms 2, 0 and 1.
        for (tries, void, expected) in [
            (3, vec![], vec![2, 0, 1]),
            (3, vec![1], vec![2, 0, 1, 0]),
            (3, vec![0, 2], vec![2, 0, 1, 2, 1]),
            (3, vec![0, 2, 3], vec![2, 0, 1, 2, 1, 2]),
            (3, vec![0, 1, 2, 3, 4, 5, 6, 7, 8], vec![2, 0, 1, 2, 0, 1, 2, 0, 1]),
            (1, vec![0, 1, 2], vec![2, 0, 1]),
        ] {
            let mut turns = Vec::new();
            let turn = |arm| {
                turns.push(arm);
                Ok(outcome(void.contains(&(turns.len() - 1))))
            };
            let samples = round(&[2, 0, 1], 0.9, tries, turn).expect("no turn fails");
            assert_eq!(turns, expected);
            assert_eq!(samples.iter().map(|sample| sample.arm).collect::<Vec<_>>(), [2, 0, 1]);
            let last = samples.iter().filter(|sample| sample.outcome.conditions.void().is_some()).count();
            let before: usize = samples.iter().map(|sample| sample.voids.len()).sum();
            assert_eq!((before + last, before), (void.len(), turns.len() - 3));
        }
    }
}
