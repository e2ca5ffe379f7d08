//! When nobody has credit: where queries still go, and who is shed.
//!
//! The order is fixed: credit that is left of leases that have run out; then the least in flight, as long as a query
//! sent now would be answered in time; then nothing is sent, and those clients are shed first that ask the most.
//!
//! The least in flight is counted in time, not in queries: what is in flight at each by what it takes for one. Counted in
//! queries, the slowest would get as many as the fastest just when all are full, and its would wait the longest.
//!
//! A burst may fill queues as long as it is answered in time: it passes, and nobody would miss an answer that is a tenth of a
//! second late. A queue that stands is another thing: it serves nobody more, and everybody waits for as long as it is
//! (Nichols and Jacobson, "Controlling Queue Delay", 2012). Traffic of people comes in bursts of a second and more. So where
//! nobody has had credit for longer, queries no longer go where an agent sees a queue in which they would wait for as long
//! as resolvers do before they ask again; and the longer it stands, the less. And never do more go there than the queue
//! holds: the system would turn them away.

use fastrand::Rng;

use super::{Pick, Set, State, Why, least};

/// For how long nobody has credit before queries are no burst any more, in nanoseconds.
const STANDING_NS: u64 = 1_000_000_000;

/// How long credit must be there in between for a burst to be a new one, in nanoseconds: an interval of reports.
const RELIEF_NS: u64 = 20_000_000;

/// For how long queries may then wait, in nanoseconds: resolvers ask again after 400 ms.
const WAIT_MOST_NS: f32 = 400e6;

/// After how long that is half as much, and a third after twice the time, in nanoseconds: at once it would turn away all that
/// comes until the queue is so short.
const WAIT_HALF_NS: f32 = 1e9;

/// For how long they may wait at least, in nanoseconds: more than the delay that agents aim at, so that a server that is
/// stopped for some tens of milliseconds has work when it goes on.
const WAIT_LEAST_NS: f32 = 30e6;

/// How long a query may take for which nobody has credit, and how much room there is for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patience {
    /// In nanoseconds.
    pub most_ns: u64,
    /// The same where an agent sees a queue; infinite as long as that may be a burst.
    pub queued_ns: f32,
    /// How much of such a queue may be full then, from 0 to 1.
    pub full: f32,
}

impl Patience {
    /// With a client that has had less than its share.
    pub const fn whole(most_ns: u64, queued_ns: f32) -> Patience {
        Patience { most_ns, queued_ns, full: 1.0 }
    }

    /// With one that has had more: what it leaves is for the others.
    fn half(self) -> Patience {
        Patience { most_ns: self.most_ns / 2, queued_ns: self.queued_ns / 2.0, full: self.full / 2.0 }
    }
}

/// Picks among back ends without credit; none where each has as many in flight as `patience` allows.
pub fn pick(state: &State, among: Set, now_ns: u64, patience: Patience, rng: &mut Rng) -> Option<Pick> {
    let stale: Set =
        among.iter().filter(|index| state.has_lapsed(*index, now_ns) && state.credit(*index) > 0).collect();
    let in_flight = |index| state.expected_with_quota_ns(index, now_ns);
    if let Some((back_end, _)) = least(stale, rng, in_flight) {
        return Some(Pick { back_end, why: Why::StaleCredit });
    }
    let most_ns = patience.most_ns as f32;
    let able = among
        .iter()
        .filter(|index| in_flight(*index) <= most_ns && !is_full(state, *index, now_ns, patience));
    let (back_end, _) = least(able.collect(), rng, in_flight)?;
    Some(Pick { back_end, why: Why::Overdrawn })
}

/// Whether a fresh report tells of a queue, and that is as long as it may be.
fn is_full(state: &State, index: usize, now_ns: u64, patience: Patience) -> bool {
    let Some((waiting, room)) = state.queued(index, now_ns) else { return false };
    waiting as f32 >= room as f32 * patience.full
        || state.worked_off_ns(index, 0, now_ns) > patience.queued_ns
}

/// Places of [`Fairness`]: clients whose prefixes share one are shed together, and of 1,024 only a flood from
/// hundreds of prefixes fills the most.
const PLACES: usize = 1024;

/// Length of a window in which clients are counted, in nanoseconds.
const WINDOW_NS: u64 = 100_000_000;

/// What one query counts: so much that a prefix that asks once is remembered for some windows.
const ONE: u32 = 64;

/// Counts what clients ask while nobody has credit, so that those who ask the most are shed first.
#[derive(Clone, Debug)]
pub struct Fairness {
    admitted: Vec<u32>,
    asking: u32,
    total: u32,
    window: u64,
    /// When the burst has begun in which nobody has credit, and when somebody last asked in it.
    begun_ns: u64,
    asked_ns: u64,
}

impl Fairness {
    /// Nobody has asked.
    #[expect(clippy::new_without_default, reason = "it allocates")]
    pub fn new() -> Fairness {
        Fairness { admitted: vec![0; PLACES], asking: 0, total: 0, window: 0, begun_ns: 0, asked_ns: 0 }
    }

    /// How long a query of a client of this prefix, by its hash, may take now that nobody has credit: `timeout_ns`. Those who
    /// have had more than their share have half of that, of the time in queues and of their room.
    pub fn patience(&mut self, prefix_hash: u64, now_ns: u64, timeout_ns: u64) -> Patience {
        if now_ns.saturating_sub(self.asked_ns) > RELIEF_NS {
            self.begun_ns = now_ns;
        }
        self.asked_ns = now_ns;
        let patience = Patience::whole(timeout_ns, queued_ns(now_ns.saturating_sub(self.begun_ns)));
        if self.admits(prefix_hash, now_ns) { patience } else { patience.half() }
    }

    /// Whether a client of this prefix, by its hash, has had no more than its share of what was sent in this window and, by
    /// half for each, in those before; it is counted then.
    fn admits(&mut self, prefix_hash: u64, now_ns: u64) -> bool {
        self.age(now_ns / WINDOW_NS);
        let place = &mut self.admitted[(prefix_hash % PLACES as u64) as usize];
        if *place == 0 {
            self.asking += 1;
        }
        // By chance some of those who ask as much as others have more than a mean share: an eighth of all on top is nobody's
        // chance, nor is four times the mean where many ask. The first of everybody goes.
        let asking = u64::from(self.asking);
        let most = u64::from(self.total) * (8 + asking.min(24));
        if u64::from(*place) * asking * 8 > most {
            return false;
        }
        *place = place.saturating_add(ONE);
        self.total = self.total.saturating_add(ONE);
        true
    }

    /// Takes half of the counts for each window that has passed. To begin with nothing would let whoever asks the most have
    /// all until another asks.
    fn age(&mut self, window: u64) {
        let passed = window.saturating_sub(std::mem::replace(&mut self.window, window));
        if passed == 0 {
            return;
        }
        let halves = u32::try_from(passed).unwrap_or(u32::MAX);
        (self.asking, self.total) = (0, 0);
        for place in &mut self.admitted {
            *place = place.checked_shr(halves).unwrap_or(0);
            self.asking += u32::from(*place > 0);
            self.total = self.total.saturating_add(*place);
        }
    }
}

/// How long queries may wait in a queue once nobody has had credit for so long, both in nanoseconds.
fn queued_ns(standing_ns: u64) -> f32 {
    let Some(since_ns) = standing_ns.checked_sub(STANDING_NS) else { return f32::INFINITY };
    (WAIT_MOST_NS / (1.0 + since_ns as f32 / WAIT_HALF_NS)).max(WAIT_LEAST_NS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::Lease;

    #[test]
    fn stale_credit_then_the_fewest_in_flight_then_nobody() {
        let mut state = State::new();
        for index in 0..2 {
            state.begin(index, 1, 0);
            state.sent(index, 10);
            state.answered(index, 1, 900 + 100 * index as u64, 10);
            state.lease(
                index,
                Lease { limit: 2 + index as u64, hard_until_ns: 20, until_ns: 20, ..Lease::NONE },
            );
        }
        let mut rng = Rng::with_seed(1);
        let within = |most_ns| Patience::whole(most_ns, f32::INFINITY);
        let mut pick = |state: &State, most_ns| pick(state, state.all(), 30, within(most_ns), &mut rng);
        assert_eq!(pick(&state, 9_000), Some(Pick { back_end: 0, why: Why::StaleCredit }));
        state.sent(0, 10);
        assert_eq!(pick(&state, 9_000), Some(Pick { back_end: 1, why: Why::StaleCredit }));
        (0..3).for_each(|_| state.sent(1, 10));
        assert_eq!(pick(&state, 9_000), Some(Pick { back_end: 0, why: Why::Overdrawn }));
        assert_eq!(pick(&state, 500), None);
        assert_eq!(super::pick(&state, Set::EMPTY, 30, within(9_000), &mut rng), None);
    }

    #[test]
    fn who_is_four_times_as_fast_gets_four_times_as_many() {
        let mut state = State::new();
        for (index, latency) in [(0, 4_000), (1, 1_000)] {
            state.begin(index, 1, 0);
            state.sent(index, 10);
            state.answered(index, 1, latency, 10);
        }
        let (patience, mut rng) = (Patience::whole(1_000_000, f32::INFINITY), Rng::with_seed(1));
        for _ in 0..50 {
            let pick = pick(&state, state.all(), 10, patience, &mut rng).expect("both are in time");
            state.sent(pick.back_end, 10);
        }
        assert_eq!((state.in_flight(0), state.in_flight(1)), (10, 40));
    }

    #[test]
    fn a_burst_may_fill_queues_and_what_stands_is_kept_short() {
        let (mut state, mut rng) = (State::new(), Rng::with_seed(1));
        state.begin(0, 1, 0);
        state.sent(0, 0);
        let now_ns = 1_000_000;
        state.answered(0, 1, now_ns, now_ns);
        let until_ns = 2 * now_ns;
        let lease =
            |queue_ns, room| Lease { hard_until_ns: until_ns, until_ns, queue_ns, room, ..Lease::NONE };
        state.lease(0, lease(40_000_000, 256));
        (0..50).for_each(|_| state.sent(0, now_ns));
        let (burst, standing) = (f32::INFINITY, 50e6);
        let mut is_picked = |state: &State, queued_ns| {
            let patience = Patience::whole(1_000_000_000, queued_ns);
            pick(state, state.all(), now_ns, patience, &mut rng).is_some()
        };
        assert!(is_picked(&state, burst) && is_picked(&state, standing));
        state.sent(0, now_ns);
        assert!(is_picked(&state, burst) && !is_picked(&state, standing), "a millisecond for each of 51");
        state.lease(0, lease(40_000_000, 51));
        assert!(!is_picked(&state, burst), "its queue holds no more");
        state.lease(0, lease(0, 51));
        assert!(is_picked(&state, standing), "its agent sees no queue: it waits for others");
    }

    #[test]
    fn what_waits_within_the_server_is_not_in_its_queue() {
        let (mut state, mut rng) = (State::new(), Rng::with_seed(1));
        state.begin(0, 1, 0);
        state.sent(0, 0);
        state.answered(0, 1, 1_000, 1_000);
        (0..300).for_each(|_| state.sent(0, 1_000));
        let lease = Lease { hard_until_ns: 2_000, until_ns: 2_000, queue_ns: 1, room: 256, ..Lease::NONE };
        state.lease(0, Lease { backlog: 1, sent: 301, ..lease });
        let patience = Patience::whole(u64::MAX, f32::INFINITY);
        let mut is_picked =
            |state: &State, patience| pick(state, state.all(), 1_000, patience, &mut rng).is_some();
        for sent in 0..255 {
            assert!(is_picked(&state, patience), "{sent}");
            assert_eq!(is_picked(&state, patience.half()), sent < 127, "{sent}");
            state.sent(0, 1_000);
        }
        assert!(!is_picked(&state, patience), "its queue holds no more");
        (0..300).for_each(|_| state.answered(0, 1, 1_000, 1_000));
        assert!(is_picked(&state, patience), "no more wait than are in flight");
    }

    /// A server that answers one query a millisecond, whose queue holds 256; one network asks fifty a millisecond, and ten
    /// others together one in ten.
    #[test]
    fn one_network_does_not_fill_the_queue_that_an_agent_sees() {
        let (mut state, mut fairness, mut rng) = (State::new(), Fairness::new(), Rng::with_seed(1));
        state.begin(0, 1, 0);
        let (mut others, mut flood, mut answered) = ([0, 0], 0, 0);
        for at_ms in 1..=5_000_u64 {
            let now_ns = at_ms * 1_000_000;
            if state.in_flight(0) > 0 {
                state.answered(0, state.in_flight(0), u64::from(state.in_flight(0)) * 1_000_000, now_ns);
                answered += 1;
            }
            let until_ns = now_ns + 1_000_000;
            let queue_ns = u64::from(state.in_flight(0)) * 1_000_000;
            state.lease(0, Lease { hard_until_ns: until_ns, until_ns, queue_ns, room: 256, ..Lease::NONE });
            for nth in 0..51 {
                let prefix = if nth < 50 { 7 } else { 100 + at_ms / 10 % 10 };
                if nth == 50 && at_ms % 10 > 0 {
                    continue;
                }
                let patience = fairness.patience(prefix, now_ns, 1_000_000_000);
                let is_sent = pick(&state, state.all(), now_ns, patience, &mut rng).is_some();
                if is_sent {
                    state.sent(0, now_ns);
                }
                match nth {
                    50 => others[usize::from(is_sent)] += 1,
                    _ => flood += u32::from(is_sent),
                }
            }
        }
        // Before anybody else has asked, the one network has all.
        assert_eq!(others, [1, 499]);
        assert!(
            answered > 4_900 && flood > 4_000,
            "the server has as much to do as it can: {answered}, {flood}"
        );
    }

    #[test]
    fn what_stands_is_kept_shorter_and_shorter() {
        let mut fairness = Fairness::new();
        let mut queued_ms = |at_ms: u64| fairness.patience(at_ms, at_ms * 1_000_000, 8).queued_ns / 1e6;
        assert!((1_000..2_000).all(|at_ms| queued_ms(at_ms) == f32::INFINITY), "a burst");
        let standing: Vec<f32> = (2_000..20_000).map(&mut queued_ms).collect();
        assert!(standing.windows(2).all(|pair| pair[0] >= pair[1]));
        assert_eq!((standing[0], standing[1_000], standing[17_999]), (400.0, 200.0, 30.0));
        assert_eq!(queued_ms(20_020), f32::INFINITY, "somebody had credit meanwhile");
    }

    #[test]
    fn a_flood_is_shed_and_others_are_not() {
        let mut fairness = Fairness::new();
        let (mut flood, mut others) = (0, 0);
        for round in 0..1_000_u64 {
            // One prefix asks nine times as often as ten others together.
            flood += u32::from(fairness.admits(7, 1));
            if round % 9 == 0 {
                others += u32::from(fairness.admits(100 + round / 9 % 10, 1));
            }
        }
        assert_eq!(others, 112);
        assert!((10..40).contains(&flood), "{flood}");
        assert!(!fairness.admits(7, 1 + WINDOW_NS), "half of it is remembered");
        assert!(fairness.admits(7, 1 + 20 * WINDOW_NS), "all is forgotten");
    }
}
