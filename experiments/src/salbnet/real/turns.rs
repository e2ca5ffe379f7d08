//! Whose turn it is. In a round all arms have theirs one after the other, so that what changes on the machine meanwhile
//! changes for all alike; those that were void have another at its end.

use anyhow::Result;
use fastrand::Rng;

use super::field::ARMS;
use super::outcome::Outcome;
use crate::options::Size;

/// How often a turn is tried in a full run: what makes one void has mostly passed at the end of its round, and a round
/// without it is not lost for the other arms.
pub(super) const TRIES_MAX: u32 = 2;

/// Rounds of a full run: those in which all arms take part, and the ones after them for those of which something is
/// demanded. Medians of seven pairs have an interval, from the least to the greatest, of 98 %.
const ROUNDS_OF_ALL: u64 = 3;
const ROUNDS: u64 = 7;

/// An arm's run in one round.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) round: u64,
    pub(super) arm: usize,
    /// The load that was wanted.
    pub(super) load: f64,
    /// What came of its last turn, void or not.
    pub(super) outcome: Outcome,
    /// Why its turns before that were void.
    pub(super) voids: Vec<&'static str>,
}

/// How many rounds there are where something is demanded, or not.
pub(super) fn rounds(size: Size, is_demanded: bool) -> u64 {
    size.of(if is_demanded { ROUNDS } else { ROUNDS_OF_ALL }, 1, 1)
}

/// The arms that take part in a round, in the order of their turns: those of which something is demanded next to each
/// other, as it is pairs of them that are held beside each other, and the machine's host changes within minutes.
pub(super) fn order(size: Size, round: u64, draws: &mut Rng) -> Vec<usize> {
    let present = (0..ARMS.len()).filter(|arm| ARMS[*arm].takes_part(size));
    let (mut judged, mut others): (Vec<_>, Vec<_>) = present.partition(|arm| ARMS[*arm].is_judged());
    draws.shuffle(&mut judged);
    draws.shuffle(&mut others);
    if round < ROUNDS_OF_ALL {
        judged.extend(others);
    }
    judged
}

/// Does a round; each arm has `tries` turns at most.
///
/// # Errors
/// Those of a turn.
pub(super) fn round(
    round: u64,
    order: &[usize],
    load: f64,
    tries: u32,
    mut turn: impl FnMut(usize) -> Result<Outcome>,
) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for arm in order {
        samples.push(Sample { round, arm: *arm, load, outcome: turn(*arm)?, voids: Vec::new() });
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

/// Whether a full run goes on for nothing, as more than one in four turns so far do not count: of seven pairs, for which both
/// of two turns must, less than four would be left.
pub(super) fn is_vain(size: Size, samples: &[Sample]) -> bool {
    let void = samples.iter().filter(|sample| sample.outcome.conditions.void().is_some()).count();
    size == Size::Full && 4 * void > samples.len()
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
            let of = |seed: u64| order(size, 0, &mut Rng::with_seed(seed));
            let mut sorted = of(1);
            assert_eq!(sorted, of(1));
            sorted.sort_unstable();
            let all: Vec<usize> = (0..ARMS.len()).filter(|arm| ARMS[*arm].takes_part(size)).collect();
            assert_eq!(sorted, all);
        }
        let draws = &mut Rng::with_seed(1);
        let (first, next) = (order(Size::Full, 0, draws), order(Size::Full, 1, draws));
        assert_ne!(first, next, "another one in the next round");
        let judged = first.iter().take_while(|arm| ARMS[**arm].is_judged()).count();
        let last = order(Size::Full, ROUNDS - 1, draws);
        assert_eq!(last.len(), judged, "in the last round none but those of which something is demanded");
        assert!(last.iter().all(|arm| first[..judged].contains(arm)));
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
            let samples = round(4, &[2, 0, 1], 0.9, tries, turn).expect("no turn fails");
            assert_eq!(turns, expected);
            assert_eq!(samples.iter().map(|sample| sample.arm).collect::<Vec<_>>(), [2, 0, 1]);
            let last = samples.iter().filter(|sample| sample.outcome.conditions.void().is_some()).count();
            let before: usize = samples.iter().map(|sample| sample.voids.len()).sum();
            assert_eq!((before + last, before), (void.len(), turns.len() - 3));
        }
    }

    #[test]
    fn a_full_run_is_broken_off_where_many_turns_are_void() {
        for (void, of, is_broken_off) in
            [(0, 0, false), (0, 3, false), (2, 8, false), (2, 7, true), (3, 3, true)]
        {
            let sample =
                |at| Sample { round: 0, arm: at, load: 0.9, outcome: outcome(at < void), voids: Vec::new() };
            let samples: Vec<_> = (0..of).map(sample).collect();
            assert_eq!(is_vain(Size::Full, &samples), is_broken_off, "{void} of {of}");
            assert!(!is_vain(Size::Quick, &samples));
        }
    }
}
