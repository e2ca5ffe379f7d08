//! Which back end gets a query: the policies of a balancer.
//!
//! Pure: no socket, no clock; time and randomness are arguments. All state is in arrays of fixed size, one place for
//! each back end, so that a pick allocates nothing and the same code runs in a balancer and on a virtual clock.
//!
//! ```text
//! State (in flight, latency, leases) ──> Policy::pick ──> Pick { back end, step, why }   | None: nobody has credit
//!   ^ sent, answered, failed, lease                           └> overload::pick: stale credits, least in flight, none
//! ```
//! In reading order:
//! - [`set`]: sets of back ends; [`state`]: what is known of each; [`latency`]: how long it takes at which load;
//!   [`pace`]: how fast it works off what it has; [`quota`]: when it has to rest.
//! - the policies, a file each: [`wrr`], [`random`], [`least_outstanding`], [`p2c`], [`ewma`], [`hot_cold`], [`hash`],
//!   [`credit`] and [`pressure`].
//! - [`overload`]: the order in which queries still go somewhere when nobody has credit, and who is shed.

pub mod credit;
pub mod ewma;
pub mod hash;
pub mod hot_cold;
pub mod latency;
pub mod least_outstanding;
pub mod overload;
pub mod p2c;
pub mod pace;
pub mod pressure;
pub mod quota;
pub mod random;
pub mod set;
pub mod state;
pub mod wrr;

use fastrand::Rng;

pub use latency::Latency;
pub use pace::Pace;
pub use quota::Quota;
pub use set::Set;
pub use state::{Hearing, Lease, Queue, State};

/// The most back ends of a balancer: a [`Set`] is one word.
pub const BACK_ENDS_MAX: usize = 64;

/// A policy with what it remembers between picks.
#[derive(Clone, Debug)]
pub enum Policy {
    /// In turn, by weight.
    Wrr(Box<wrr::Wrr>),
    /// By chance, by weight.
    Random,
    /// The fewest in flight of all.
    LeastOutstanding,
    /// The fewer in flight of two.
    P2c,
    /// The lower latency, weighted by what is in flight, of two.
    Ewma,
    /// Prequal's rule.
    HotCold(hot_cold::HotCold),
    /// The same question to the same back end, unless that is loaded.
    Hash,
    /// The most credit.
    Credit,
    /// Ours.
    Pressure(pressure::Pressure),
}

/// The policies' names, as the command line, the configuration and the manual have them.
pub const NAMES: [&str; 9] =
    ["pressure", "wrr", "random", "least-outstanding", "p2c", "ewma", "hot-cold", "hash", "credit"];

/// What a policy picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// The back end's place.
    pub back_end: usize,
    /// Why it is this one.
    pub why: Why,
}

/// Why a back end was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was its turn.
    Turn,
    /// It was drawn.
    Drawn,
    /// It had the fewest in flight.
    LeastInFlight,
    /// It had fewer in flight than another that was drawn.
    FewerInFlight,
    /// It was the faster one of two that were drawn.
    Faster,
    /// It was the fastest that was not hot.
    Cold,
    /// All were hot, and it had the fewest in flight.
    AllHot,
    /// The question's hash is nearest to it.
    Hashed,
    /// It is the next one after some that were loaded.
    HashedOn,
    /// It had the most credit.
    MostCredit,
    /// `pressure`, leases fresh: the lowest latency at its load among those with credit.
    Credit,
    /// `pressure`, leases just run out: the better one of two.
    TwoChoices,
    /// `pressure`, without leases: the lowest latency at its load.
    Latency,
    /// `pressure`, without answers: by the question's hash.
    Blind,
    /// Nobody had credit: a lease that has run out had some left.
    StaleCredit,
    /// Nobody had credit: the fewest in flight.
    Overdrawn,
}

impl Why {
    /// All of them, in the order of their numbers.
    pub const ALL: [Why; 16] = [
        Why::Turn,
        Why::Drawn,
        Why::LeastInFlight,
        Why::FewerInFlight,
        Why::Faster,
        Why::Cold,
        Why::AllHot,
        Why::Hashed,
        Why::HashedOn,
        Why::MostCredit,
        Why::Credit,
        Why::TwoChoices,
        Why::Latency,
        Why::Blind,
        Why::StaleCredit,
        Why::Overdrawn,
    ];

    /// As metrics say it.
    pub fn word(self) -> &'static str {
        match self {
            Why::Turn => "turn",
            Why::Drawn => "drawn",
            Why::LeastInFlight => "least_in_flight",
            Why::FewerInFlight => "fewer_in_flight",
            Why::Faster => "faster",
            Why::Cold => "cold",
            Why::AllHot => "all_hot",
            Why::Hashed => "hashed",
            Why::HashedOn => "hashed_on",
            Why::MostCredit => "most_credit",
            Why::Credit => "credit",
            Why::TwoChoices => "two_choices",
            Why::Latency => "latency",
            Why::Blind => "blind",
            Why::StaleCredit => "stale_credit",
            Why::Overdrawn => "overdrawn",
        }
    }
}

impl Policy {
    /// The policy of this name, one of [`NAMES`].
    pub fn from_name(name: &str) -> Option<Policy> {
        Some(match name {
            "wrr" => Policy::Wrr(Box::new(wrr::Wrr::new())),
            "random" => Policy::Random,
            "least-outstanding" => Policy::LeastOutstanding,
            "p2c" => Policy::P2c,
            "ewma" => Policy::Ewma,
            "hot-cold" => Policy::HotCold(hot_cold::HotCold::new()),
            "hash" => Policy::Hash,
            "credit" => Policy::Credit,
            "pressure" => Policy::Pressure(pressure::Pressure::new()),
            _ => return None,
        })
    }

    /// Picks a back end for a query.
    ///
    /// `among` are the back ends that may be picked; `key` is a hash of the question, for policies that keep
    /// questions together. `None` where `among` is empty, and of `credit` and `pressure` also where nobody has
    /// credit: [`overload::pick`] is next then.
    #[inline]
    pub fn pick(&mut self, state: &State, among: Set, key: u64, now_ns: u64, rng: &mut Rng) -> Option<Pick> {
        match self {
            Policy::Wrr(wrr) => wrr.pick(state, among),
            Policy::Random => random::pick(state, among, rng),
            Policy::LeastOutstanding => least_outstanding::pick(state, among, rng),
            Policy::P2c => p2c::pick(state, among, rng),
            Policy::Ewma => ewma::pick(state, among, now_ns, rng),
            Policy::HotCold(hot_cold) => hot_cold.pick(state, among, now_ns, rng),
            Policy::Hash => hash::pick(state, among, key),
            Policy::Credit => credit::pick(state, among, now_ns, rng),
            Policy::Pressure(pressure) => pressure.pick(state, among, key, now_ns, rng),
        }
    }
}

/// The one with the least cost among these; of several that have it, one by chance, each as likely as the others.
///
/// Which of two costs less is as good as chance, so nothing branches on it.
#[inline]
fn least<C: PartialOrd + Copy>(among: Set, rng: &mut Rng, cost: impl Fn(usize) -> C) -> Option<(usize, C)> {
    let mut members = among.iter();
    let first = members.next()?;
    let (mut least, mut equals) = (cost(first), Set::EMPTY.with(first));
    for index in members {
        let this = cost(index);
        let kept = if this < least { 0 } else { equals.bits() };
        equals = Set::from_bits(kept | u64::from(this <= least) << index);
        least = if this < least { this } else { least };
    }
    let chosen = if equals.len() > 1 { below(rng, equals.len()) } else { 0 };
    Some((equals.nth(chosen)?, least))
}

/// Two of these by chance, different where there are two.
#[inline]
fn two(among: Set, rng: &mut Rng) -> Option<(usize, usize)> {
    let count = among.len();
    if count == 0 {
        return None;
    }
    let first = below(rng, count);
    let first = among.nth(first)?;
    let others = among.without(first);
    let second = if others.is_empty() { first } else { others.nth(below(rng, count - 1))? };
    Some((first, second))
}

/// A number below `bound`, which is over 0.
#[inline]
fn below(rng: &mut Rng, bound: usize) -> usize {
    ((u128::from(rng.u64(..)) * bound as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;
    use proptest::prelude::*;

    #[test]
    fn every_name_is_a_policy() {
        for name in NAMES {
            assert!(Policy::from_name(name).is_some(), "{name}");
        }
        assert!(Policy::from_name("fastest").is_none());
        for (number, why) in Why::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, number, "{}", why.word());
        }
    }

    #[test]
    fn of_equals_each_is_as_likely() {
        let mut rng = Rng::with_seed(1);
        let mut counts = [0; 64];
        let among = Set::EMPTY.with(0).with(1).with(2).with(40);
        for _ in 0..3_000 {
            let (index, cost) = least(among, &mut rng, |index| u8::from(index == 2)).expect("there are some");
            assert_eq!(cost, 0);
            counts[index] += 1;
        }
        assert!([0, 1, 40].iter().all(|index| (900..1_100).contains(&counts[*index])), "{counts:?}");
        assert_eq!(least(Set::EMPTY, &mut rng, |index| index), None);
    }

    proptest! {
        /// Whatever happened before, who is picked was allowed, and somebody is wherever somebody may be.
        #[test]
        fn who_is_picked_was_allowed(
            name in prop::sample::select(NAMES.to_vec()), seed: u64, among: u64,
            events in prop::collection::vec((0..8_usize, 0..4_u8, 0..50_000_000_u64), 0..200),
        ) {
            let mut state = State::new();
            let mut policy = Policy::from_name(name).expect("one of the names");
            let (mut rng, mut now) = (Rng::with_seed(seed), 1);
            for index in 0..8 {
                state.begin(index, 1 + index as u32, now);
            }
            for (index, event, time) in events {
                now += time;
                match event {
                    0 => state.sent(index, 10),
                    1 => state.answered(index, 1, time, now),
                    2 => state.failed(index, 1, time, now),
                    _ => {
                        let limit = state.sent_total(index) + time % 5;
                        state.lease(index, Lease { limit, hard_until_ns: now + time, until_ns: now + time, ..Lease::NONE });
                    }
                }
                let among = Set::from_bits(among & 0xff);
                let picked = policy.pick(&state, among, time, now, &mut rng);
                let picked = picked.or_else(|| {
                    let patience = overload::Patience::whole(u64::MAX, f32::INFINITY);
                    overload::pick(&state, among, now, patience, &mut rng)
                });
                prop_assert_eq!(picked.is_some(), !among.is_empty());
                prop_assert!(picked.is_none_or(|pick| among.contains(pick.back_end)));
            }
        }
    }
}
