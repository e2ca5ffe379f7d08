//! `credit`: only back ends with credit, the most free first.
//!
//! After the idea of salbnet (Jung, Kiertscher, Menski and Schnor, SPECTS 2014): back ends report how many queries their
//! receive queues have room for. The papers do not tell the rule of their scheduler, "dynamic pressure relieve", so
//! this is a policy after its idea and not that scheduler. Its weakness is known: a large queue looks like a fast server.

use fastrand::Rng;

use super::{Pick, Set, State, Why, least};

/// Picks the one with the most credit of a lease that has not run out; none where nobody has any.
#[inline]
pub fn pick(state: &State, among: Set, now_ns: u64, rng: &mut Rng) -> Option<Pick> {
    let credit = |index| if state.is_leased(index, now_ns) { state.credit(index) } else { 0 };
    let (back_end, spent) = least(among, rng, |index| u64::MAX - credit(index))?;
    (spent < u64::MAX).then_some(Pick { back_end, why: Why::MostCredit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::Lease;

    #[test]
    fn the_most_free_goes_and_nobody_without_credit() {
        let mut state = State::new();
        for (index, (limit, until_ns)) in [(5, 100), (9, 100), (99, 10)].into_iter().enumerate() {
            state.begin(index, 1, 0);
            state.lease(index, Lease { limit, hard_until_ns: 0, until_ns, ..Lease::NONE });
        }
        let mut rng = Rng::with_seed(1);
        let mut counts = [0; 3];
        while let Some(Pick { back_end, .. }) = pick(&state, state.all(), 50, &mut rng) {
            state.sent(back_end, 10);
            counts[back_end] += 1;
        }
        assert_eq!(counts, [5, 9, 0]);
    }
}
