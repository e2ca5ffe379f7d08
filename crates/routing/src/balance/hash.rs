//! `hash`: the same question to the same back end, which then has it in its cache.
//!
//! Rendezvous hashing: each back end has a number for the question, and the highest goes. A back end that leaves takes
//! nothing but its own questions along, and one that comes takes an equal part of everybody's. The load is bounded
//! (Mirrokni et al., "Consistent Hashing with Bounded Loads"): who has a quarter more in flight than its weight's share
//! is passed over.

use super::{BACK_ENDS_MAX, Pick, Set, State, Why};

/// How much more than its share a back end may have in flight.
const BOUND: f64 = 1.25;

/// Picks the one with the highest number for `key` that is not loaded.
#[inline]
pub fn pick(state: &State, among: Set, key: u64) -> Option<Pick> {
    if among.is_empty() {
        return None;
    }
    let (mut in_flight, mut weights) = (1, 0);
    for index in among.iter() {
        in_flight += u64::from(state.in_flight(index));
        weights += u64::from(state.weight(index));
    }
    let share = BOUND * in_flight as f64 / weights as f64;
    // Numbers with their places in the lowest bits, so that the highest is found without a branch: none could be foreseen.
    let (mut first, mut best) = (0, 0);
    for index in among.iter() {
        let marked = number(key, index) & !PLACE | index as u64;
        let is_loaded = f64::from(state.in_flight(index)) >= share * f64::from(state.weight(index));
        first = first.max(marked);
        best = best.max(if is_loaded { 0 } else { marked });
    }
    // Not all can have more than their share, but for rounding.
    let best = if best == 0 { first } else { best };
    let why = if best == first { Why::Hashed } else { Why::HashedOn };
    Some(Pick { back_end: (best & PLACE) as usize, why })
}

/// The bits that a place takes.
const PLACE: u64 = BACK_ENDS_MAX as u64 - 1;

const _: () = assert!(BACK_ENDS_MAX.is_power_of_two());

/// A back end's number for a question: the mix of SplitMix64 (Steele et al., OOPSLA 2014).
#[inline]
fn number(key: u64, index: usize) -> u64 {
    let mut mixed = key ^ (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(count: usize) -> State {
        let mut state = State::new();
        (0..count).for_each(|index| state.begin(index, 1, 0));
        state
    }

    #[test]
    fn who_leaves_takes_nothing_but_its_own_along() {
        let state = state(5);
        let of = |among: Set, key| pick(&state, among, key).expect("there are some").back_end;
        let mut counts = [0; 5];
        for key in 0..10_000 {
            let key = key * 0x1234_5677;
            let before = of(state.all(), key);
            counts[before] += 1;
            let after = of(state.all().without(3), key);
            assert!(before == after || before == 3);
        }
        assert!(counts.iter().all(|count| (1_800..2_200).contains(count)), "{counts:?}");
    }

    #[test]
    fn who_is_loaded_is_passed_over() {
        let mut state = state(3);
        let first = pick(&state, state.all(), 7).expect("there are some").back_end;
        (0..10).for_each(|_| state.sent(first, 10));
        let second = pick(&state, state.all(), 7).expect("there are some");
        assert!(second.back_end != first && second.why == Why::HashedOn);
        let alone = Set::EMPTY.with(first);
        assert_eq!(pick(&state, alone, 7), Some(Pick { back_end: first, why: Why::Hashed }));
    }
}
