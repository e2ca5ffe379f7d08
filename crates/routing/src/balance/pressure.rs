//! `pressure`: leased credit as the hard limit, then what is in flight, then the lowest latency at that load.
//!
//! A server whose queue is full gets nothing, for its agent says so. Of those with credit goes the one whose answer is
//! expected first: what is in flight at it, by what each of these has taken lately; one at rest also where it is up to
//! twice as slow. There is no weight. As leases run out it falls back step by step, each with less to go by:
//!
//! 1. *credit*: some leases are fresh, and their reports come when they should. A back end without an agent takes part
//!    without a limit.
//! 2. *two choices*: reports are late or many are lost, or leases have just run out. What is expected may be out of date
//!    everywhere at once, and several balancers lose their leases together: of two that are drawn the better one goes,
//!    so that they do not all run to the same.
//! 3. *latency*: nobody has leases. The lowest latency at its load.
//! 4. *blind*: for two seconds nothing has ended either, or nobody was asked. The question's hash.

use fastrand::Rng;

use super::{Pick, Set, State, Why, hash, least};

/// How many times as long as expected an answer counts where others are in flight.
///
/// A server with a quota of processor time is as fast as any until it has used it up, and then stands still until the next
/// period. What is learned of it is a mean over both, and servers that differ by that alone differ by chance: who stood
/// still last is avoided for as long as that is remembered, and the others are driven into their own quotas. So one that is
/// at rest goes first unless it is slower by more than that.
const BUSY: f32 = 2.0;

/// What `pressure` goes by now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Step {
    /// Fresh leases.
    #[default]
    Credit,
    /// Leases that have just run out.
    TwoChoices,
    /// Answers alone.
    Latency,
    /// Nothing.
    Blind,
}

impl Step {
    /// All of them, from what knows most to what knows least.
    pub const ALL: [Step; 4] = [Step::Credit, Step::TwoChoices, Step::Latency, Step::Blind];

    /// As metrics say it.
    pub fn word(self) -> &'static str {
        match self {
            Step::Credit => "credit",
            Step::TwoChoices => "two_choices",
            Step::Latency => "latency",
            Step::Blind => "blind",
        }
    }
}

/// The policy with the step in force.
#[derive(Clone, Debug, Default)]
pub struct Pressure {
    step: Step,
}

impl Pressure {
    /// Nothing was picked yet.
    pub fn new() -> Pressure {
        Pressure::default()
    }

    /// What the last pick went by.
    pub fn step(&self) -> Step {
        self.step
    }

    /// Picks; none where all leases are fresh and nobody has credit.
    #[inline]
    pub fn pick(&mut self, state: &State, among: Set, key: u64, now_ns: u64, rng: &mut Rng) -> Option<Pick> {
        let (mut leased, mut lapsed, mut spent) = (false, false, Set::EMPTY);
        for index in among.iter() {
            if state.is_prompt(index, now_ns) {
                leased = true;
                if state.credit(index) == 0 {
                    spent = spent.with(index);
                }
            } else {
                lapsed |= state.is_leased(index, now_ns) || state.has_lapsed(index, now_ns);
            }
        }
        self.step = match (leased, lapsed) {
            (true, _) => Step::Credit,
            (_, true) => Step::TwoChoices,
            _ if among.iter().any(|index| state.latency(index).is_known(now_ns)) => Step::Latency,
            _ => Step::Blind,
        };
        match self.step {
            Step::Credit => {
                let able = Set::from_bits(among.bits() & !spent.bits());
                let back_end = soonest(state, able, now_ns, rng)?;
                Some(Pick { back_end, why: Why::Credit })
            }
            Step::TwoChoices => {
                let (one, other) = two_by_speed(state, among, rng)?;
                let cost = |index| by_load(state, index) * state.expected_with_quota_ns(index, now_ns);
                let is_better = cost(other) < cost(one);
                Some(Pick { back_end: if is_better { other } else { one }, why: Why::TwoChoices })
            }
            Step::Latency => {
                let back_end = soonest(state, among, now_ns, rng)?;
                Some(Pick { back_end, why: Why::Latency })
            }
            Step::Blind => hash::pick(state, among, key).map(|pick| Pick { why: Why::Blind, ..pick }),
        }
    }
}

/// The one whose answer is expected first.
#[inline]
fn soonest(state: &State, among: Set, now_ns: u64, rng: &mut Rng) -> Option<usize> {
    // Most have no quota, and to look for one at each takes as long as all the rest.
    let (back_end, _) = if state.limited().and(among).is_empty() {
        least(among, rng, |index| by_load(state, index) * state.expected_ns(index, now_ns))?
    } else {
        least(among, rng, |index| by_load(state, index) * state.expected_with_quota_ns(index, now_ns))?
    };
    Some(back_end)
}

/// How much what is expected counts: more where others are in flight already.
#[inline]
fn by_load(state: &State, index: usize) -> f32 {
    if state.in_flight(index) == 0 { 1.0 } else { BUSY }
}

/// Two by chance, different where there are two; who answers twice as many in a time is drawn twice as often.
#[inline]
fn two_by_speed(state: &State, among: Set, rng: &mut Rng) -> Option<(usize, usize)> {
    let one = by_speed(state, among, rng)?;
    Some((one, by_speed(state, among.without(one), rng).unwrap_or(one)))
}

/// One by chance.
#[inline]
fn by_speed(state: &State, among: Set, rng: &mut Rng) -> Option<usize> {
    // A server that is not known counts as one of a microsecond.
    let speed = |index| 1.0 / state.latency(index).slope_ns().max(1_000.0);
    let sum: f32 = among.iter().map(speed).sum();
    let mut point = rng.f32() * sum;
    for index in among.iter() {
        point -= speed(index);
        if point < 0.0 {
            return Some(index);
        }
    }
    // Rounding may leave a rest.
    among.iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::latency::UNKNOWN_NS;
    use crate::balance::state::LAPSED_NS;
    use crate::balance::{Lease, Quota};

    #[test]
    fn it_falls_back_step_by_step() {
        let (mut state, mut rng, mut pressure) = (State::new(), Rng::with_seed(1), Pressure::new());
        for (index, latency) in [(0, 1_000), (1, 3_000)] {
            state.begin(index, 1, 0);
            state.sent(index, 10);
            state.answered(index, 1, latency, 10);
            state.lease(index, Lease { limit: 2, hard_until_ns: 1_000, until_ns: 1_000, ..Lease::NONE });
        }
        let mut pick = |state: &State, now| {
            let picked = pressure.pick(state, state.all(), 7, now, &mut rng);
            (picked.map(|pick| (pick.back_end, pick.why)), pressure.step())
        };
        assert_eq!(pick(&state, 999), (Some((0, Why::Credit)), Step::Credit));
        state.sent(0, 10);
        assert_eq!(pick(&state, 999), (Some((1, Why::Credit)), Step::Credit), "the first has no credit");
        state.sent(1, 10);
        assert_eq!(pick(&state, 999), (None, Step::Credit));
        let lapsed = pick(&state, 1_000);
        assert_eq!((lapsed.0.map(|(_, why)| why), lapsed.1), (Some(Why::TwoChoices), Step::TwoChoices));
        assert_eq!(pick(&state, 1_000 + LAPSED_NS), (Some((0, Why::Latency)), Step::Latency));
        let blind = pick(&state, 10 + UNKNOWN_NS);
        assert_eq!((blind.0.map(|(_, why)| why), blind.1), (Some(Why::Blind), Step::Blind));
    }

    #[test]
    fn one_at_rest_goes_first_unless_it_is_more_than_twice_as_slow() {
        for (latency, expected) in [(1_400, 1), (2_100, 1), (3_900, 1), (4_100, 0)] {
            let (mut state, mut rng, mut pressure) = (State::new(), Rng::with_seed(1), Pressure::new());
            for (index, latency) in [(0, 1_000), (1, latency)] {
                state.begin(index, 1, 0);
                state.sent(index, 10);
                state.answered(index, 1, latency, 10);
            }
            // The first takes two thousand for two.
            state.sent(0, 10);
            let picked = pressure.pick(&state, state.all(), 7, 20, &mut rng).map(|pick| pick.back_end);
            assert_eq!(picked, Some(expected), "{latency}");
        }
    }

    #[test]
    fn who_will_stand_still_is_left_alone_and_who_has_saved_most_goes_first() {
        const MS: u64 = 1_000_000;
        let quota = |left_ms: i64| Quota {
            quota_ns: 20 * MS,
            period_ns: 100 * MS,
            refill_ns: 60 * MS,
            left_ns: left_ms * MS.cast_signed(),
            cost_ns: MS,
            ended: 1,
        };
        for (what, left, in_flight, expected) in [
            ("the faster one has nothing left", [0, 10], [0, 0], 1),
            ("both have enough, and the slower one has saved more", [6, 18], [0, 0], 1),
            ("as much of it is left to both", [10, 10], [0, 0], 0),
            ("what is left to the faster one is for what it has", [1, 10], [1, 3], 1),
            ("nobody has any, and the slower one has more to do", [0, 0], [0, 2], 0),
        ] {
            let (mut state, mut rng, mut pressure) = (State::new(), Rng::with_seed(1), Pressure::new());
            for (index, latency) in [(0, MS), (1, MS * 3 / 2)] {
                state.begin(index, 1, 0);
                state.sent(index, 10);
                state.answered(index, 1, latency, 10);
                (0..in_flight[index]).for_each(|_| state.sent(index, 10));
                let (limit, until) = (100, 50 * MS);
                state.lease(index, Lease { limit, hard_until_ns: until, until_ns: until, ..Lease::NONE });
                state.quota(index, quota(left[index]), 10);
            }
            let picked = pressure.pick(&state, state.all(), 7, 20, &mut rng);
            assert_eq!(picked, Some(Pick { back_end: expected, why: Why::Credit }), "{what}");
        }
    }

    #[test]
    fn who_has_no_agent_takes_part() {
        let (mut state, mut rng, mut pressure) = (State::new(), Rng::with_seed(1), Pressure::new());
        for (index, latency) in [(0, 1_000), (1, 3_000)] {
            state.begin(index, 1, 0);
            state.sent(index, 10);
            state.answered(index, 1, latency, 10);
        }
        state.lease(0, Lease { limit: 1, hard_until_ns: 1_000, until_ns: 1_000, ..Lease::NONE });
        let picked = pressure.pick(&state, state.all(), 7, 20, &mut rng);
        assert_eq!(picked, Some(Pick { back_end: 1, why: Why::Credit }));
    }
}
