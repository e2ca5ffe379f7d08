//! Whose turn it is. In a round all arms have theirs one after the other, so that what changes on the machine meanwhile
//! changes for all alike; those that were void have another at its end.

use anyhow::Result;
use fastrand::Rng;

use super::cases::{Case, ROUNDS};
use super::field::{ARMS, OURS};
use super::outcome::{Outcome, VALUES_LEAST};
use crate::options::Size;

/// How often a turn is tried in a full run: what makes one void has mostly passed at the end of its round, and a round
/// without it is not lost for the other arms.
pub(super) const TRIES_MAX: u32 = 2;

/// Rounds of a full run in which all arms take part; those of which something is demanded have more after them.
const ROUNDS_OF_ALL: u64 = 3;

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

/// How many rounds a case has at a load.
pub(super) fn rounds(size: Size, case: &Case, load: f64) -> u64 {
    let full = match (case.demands(size, load), load < 1.0) {
        (false, _) => ROUNDS_OF_ALL,
        (true, true) => case.rounds_below,
        (true, false) => ROUNDS,
    };
    size.of(full, 1, 1)
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

/// Whether a run goes on for nothing: of what is demanded, so many rounds are lost at each load that with some rival too few
/// pairs can be left.
pub(super) fn is_vain(size: Size, case: &Case, samples: &[Sample]) -> bool {
    let demanding = || case.wanted(size).iter().filter(|load| case.demands(size, **load));
    let is_lost = |load: &f64| {
        let void = |arm: usize, round: u64| {
            let turn = |sample: &&Sample| (sample.arm, sample.round) == (arm, round) && sample.load == *load;
            samples.iter().find(turn).is_some_and(|sample| sample.outcome.conditions.void().is_some())
        };
        let ours = ARMS.iter().position(|arm| arm.name == OURS).unwrap_or(0);
        let rounds = rounds(size, case, *load);
        let left =
            |rival: usize| (0..rounds).filter(|round| !void(ours, *round) && !void(rival, *round)).count();
        (0..ARMS.len()).any(|arm| ARMS[arm].is_judged() && left(arm) < VALUES_LEAST)
    };
    demanding().next().is_some() && demanding().all(is_lost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::salbnet::real::cases::CASES;
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
    fn a_full_run_is_broken_off_where_nothing_can_be_proved_any_more() {
        let case = |part: &str| CASES.iter().find(|case| case.part == part).expect("there is one");
        let [unequal, buffers] = [case("unequal"), case("buffers")];
        let judged: Vec<usize> = (0..ARMS.len()).filter(|arm| ARMS[*arm].is_judged()).collect();
        let other = (0..ARMS.len()).find(|arm| !ARMS[*arm].is_judged()).expect("not all are");
        // The first rounds of one arm at a load.
        let void = |arm: usize, load: f64, rounds: u64| {
            let sample = move |round| Sample { round, arm, load, outcome: outcome(true), voids: Vec::new() };
            (0..rounds).map(sample)
        };
        let lost = |arm: usize, less: u64| {
            let loads = unequal.wanted(Size::Full).iter().filter(|load| **load >= 0.9);
            let most = |load: f64| rounds(Size::Full, unequal, load) - VALUES_LEAST as u64 + 1 - less;
            loads.flat_map(|load| void(arm, *load, most(*load))).collect::<Vec<_>>()
        };
        for arm in &judged {
            assert!(is_vain(Size::Full, unequal, &lost(*arm, 0)), "{arm}");
            assert!(!is_vain(Size::Full, unequal, &lost(*arm, 1)), "{arm}");
        }
        assert!(!is_vain(Size::Full, unequal, &[]) && !is_vain(Size::Full, unequal, &lost(other, 0)));
        let at_one: Vec<_> = void(judged[0], 0.9, unequal.rounds_below).collect();
        assert!(!is_vain(Size::Full, unequal, &at_one), "the other loads are left");
        assert!(!is_vain(Size::Quick, unequal, &lost(judged[0], 0)), "nothing is demanded there");
        assert!(!is_vain(Size::Full, buffers, &lost(judged[0], 0)), "nor here");
    }
}
