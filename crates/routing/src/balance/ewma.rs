//! `ewma`: of two that are drawn, the one with the lower latency times what would be in flight; the latency is a peak
//! that decays ("peak EWMA", as several proxies have it).

use fastrand::Rng;

use super::{Pick, Set, State, Why, two};

/// Picks the better one of two.
#[inline]
pub fn pick(state: &State, among: Set, now_ns: u64, rng: &mut Rng) -> Option<Pick> {
    let (one, other) = two(among, rng)?;
    let cost = |index| state.latency(index).peak_ns(now_ns) * (state.in_flight(index) + 1) as f32;
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
}
