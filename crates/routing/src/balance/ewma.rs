//! `ewma`: of two that are drawn, the one with the lower latency times what would be in flight; the latency is a peak
//! that decays ("peak EWMA", as several proxies have it).
//!
//! Who has not answered yet has no peak, and who stands still has one that decays. So it is taken to be as slow at least as it
//! is silent already, and at the pace at which it works off what it has: else a back end that never answers would get all.

use fastrand::Rng;

use super::{Pick, Set, State, Why, two};

/// Picks the better one of two.
#[inline]
pub fn pick(state: &State, among: Set, now_ns: u64, rng: &mut Rng) -> Option<Pick> {
    let (one, other) = two(among, rng)?;
    let cost = |index| {
        let slow_ns = state.latency(index).peak_ns(now_ns).max(state.worked_off_ns(index, 1, now_ns));
        slow_ns * (state.in_flight(index) + 1) as f32
    };
    let back_end = if cost(other) < cost(one) { other } else { one };
    Some(Pick { back_end, why: Why::Faster })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_one_waits_until_the_faster_is_loaded() {
        let mut state = State::new();
        for (index, latency) in [(0, 1_000), (1, 3_000)] {
            state.begin(index, 1, 0);
            state.sent(index, 10);
            state.answered(index, 1, latency, 10);
        }
        let mut rng = Rng::with_seed(1);
        let mut picks = |state: &State| pick(state, state.all(), 11, &mut rng).map(|pick| pick.back_end);
        assert_eq!(picks(&state), Some(0));
        (0..3).for_each(|_| state.sent(0, 10));
        assert_eq!(picks(&state), Some(1));
    }

    #[test]
    fn who_has_never_answered_gets_few() {
        const MS: u64 = 1_000_000;
        let mut state = State::new();
        state.begin(0, 1, 0);
        state.begin(1, 1, 0);
        let (mut rng, mut silent) = (Rng::with_seed(1), 0);
        // 500 a second; the first one answers within a millisecond.
        for now in (0..1_000).step_by(2).map(|at| at * MS) {
            let picked = pick(&state, state.all(), now, &mut rng).expect("there are some").back_end;
            state.sent(picked, now);
            if picked == 0 {
                state.answered(0, 1, MS, now + MS);
            } else {
                silent += 1;
            }
        }
        assert!((1..5).contains(&silent), "{silent}");
    }
}
