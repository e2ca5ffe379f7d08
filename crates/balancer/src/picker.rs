//! One thread's view of the back ends, and what it picks of them.

use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dns::Query;
use fastrand::Rng;
use routing::balance::overload::{self, Fairness};
use routing::balance::pressure::Step;
use routing::balance::{BACK_ENDS_MAX, Lease, Pick, Policy, Set, State};

use crate::counters::{Cells, FrontCounters};
use crate::exchange::NoAnswer;
use crate::field::{BackEnd, Field, eligible};
use crate::health::{BEGIN_SHARE, WHOLE, is_failure};
use crate::rules::Rules;

/// For which transport a picker picks: leases are of either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// Datagrams.
    Datagrams,
    /// Connections.
    Connections,
}

/// Of 50 queries one may be sent a second time: 2 %.
const QUERIES_PER_RETRY: f32 = 50.0;

/// How many may be sent a second time before so many were sent, and the most that are saved up: a back end that dies
/// has a few dozens in flight.
const RETRIES_SAVED_MAX: f32 = 32.0;

/// Over how many of a back end's answers the share of those that fail is taken.
const FAILING_MEMORY: f32 = 64.0;

/// How much larger than the least of the others that share may be and cost nothing: two failures of so many come by chance.
const FAILING_SLACK: f32 = 2.0 / FAILING_MEMORY;

/// What may be sent a second time.
#[derive(Clone, Copy, Debug)]
struct Budget(f32);

/// What one thread knows, and picks by.
#[derive(Debug)]
pub struct Picker {
    /// What this thread knows of each back end, which the policy goes by.
    pub state: State,
    /// As it begins in each pool.
    policy: Policy,
    transport: For,
    thread: usize,
    field: Arc<Field>,
    pools: Vec<Pool>,
    share: [u32; BACK_ENDS_MAX],
    /// How many of its last answers failed, from 0 to 1: a mean over some [`FAILING_MEMORY`] answers that this thread had.
    failing: [f32; BACK_ENDS_MAX],
    budget: Budget,
    rng: Rng,
    hasher: foldhash::fast::FixedState,
    /// What no answer counts as, in nanoseconds.
    timeout_ns: u64,
}

/// Back ends that a query may go to, and how one is picked of them.
#[derive(Debug)]
struct Pool {
    members: Set,
    ready: Set,
    partial: Set,
    policy: Policy,
    fairness: Fairness,
}

impl Picker {
    /// A picker for the thread of this number. All threads of a balancer have the same `hash_seed`: else each would send
    /// a question to another back end by its hash.
    pub fn new(
        policy: Policy,
        transport: For,
        thread: usize,
        timeout_ns: u64,
        hash_seed: u64,
        rng: Rng,
    ) -> Picker {
        Picker {
            state: State::new(),
            policy,
            transport,
            thread,
            field: Arc::default(),
            pools: Vec::new(),
            share: [WHOLE; BACK_ENDS_MAX],
            failing: [0.0; BACK_ENDS_MAX],
            budget: Budget(RETRIES_SAVED_MAX / 2.0),
            hasher: foldhash::fast::FixedState::with_seed(hash_seed),
            rng,
            timeout_ns,
        }
    }

    /// Takes over what others have counted and what was granted; tells the places whose back end is another now.
    pub fn look(&mut self, field: &Arc<Field>, now_ns: u64) -> Set {
        let mut changed = Set::EMPTY;
        if !Arc::ptr_eq(field, &self.field) {
            changed = self.replace(field, now_ns);
        }
        for pool in &mut self.pools {
            (pool.ready, pool.partial) = eligible(field, pool.members);
        }
        for back_end in self.field.iter() {
            let place = back_end.place;
            self.share[place] = back_end.share();
            let (mut in_flight, mut sent, mut ended) = (0, 0, 0);
            for (thread, cells) in back_end.cells.iter().enumerate() {
                if thread != self.thread {
                    in_flight += cells.in_flight();
                    sent += cells.datagrams.get();
                    ended += cells.datagrams_ended();
                }
            }
            self.state.elsewhere(place, u32::try_from(in_flight).unwrap_or(u32::MAX), sent, ended);
            let lease = match self.transport {
                For::Datagrams => {
                    self.state.quota(place, back_end.udp.quota.get(), now_ns);
                    back_end.udp.get()
                }
                For::Connections => {
                    // Granted are connections, and a query that finds one open needs none. One too many is not taken,
                    // and tried again only a second later: so the limit is hard for as long as it is valid.
                    let lease = back_end.tcp.get();
                    let left = lease.limit.saturating_sub(back_end.exchange.opened.load(Ordering::Relaxed));
                    let limit = self.state.sent_total(place) + left;
                    Lease { limit, hard_until_ns: lease.until_ns, room: 0, ..lease }
                }
            };
            self.state.lease(place, lease);
        }
        changed
    }

    fn replace(&mut self, field: &Arc<Field>, now_ns: u64) -> Set {
        let mut changed = Set::EMPTY;
        for place in 0..BACK_ENDS_MAX {
            let at = |field: &Field| field.places.get(place).cloned().flatten();
            let (old, new) = (at(&self.field), at(field));
            let is_same = match (&old, &new) {
                (Some(old), Some(new)) => Arc::ptr_eq(old, new),
                (None, None) => true,
                _ => false,
            };
            if is_same {
                continue;
            }
            changed = changed.with(place);
            match new {
                Some(back_end) => {
                    self.failing[place] = 0.0;
                    self.state.begin(place, back_end.weight, now_ns);
                }
                None => self.state.end(place),
            }
        }
        self.field = field.clone();
        let policy = &self.policy;
        self.pools.resize_with(field.pools.len(), || Pool::new(policy.clone()));
        for (number, pool) in self.pools.iter_mut().enumerate() {
            pool.members = field.members(number);
        }
        changed
    }

    /// Which pool takes a query, as the last look has it.
    pub fn rules(&self) -> &Rules {
        &self.field.rules
    }

    /// The back end in a place.
    pub fn back_end(&self, place: usize) -> Option<&Arc<BackEnd>> {
        self.field.places.get(place)?.as_ref()
    }

    /// What this thread counts of it.
    pub fn cells(&self, place: usize) -> Option<&Cells> {
        Some(&self.back_end(place)?.cells[self.thread])
    }

    /// The random numbers of this thread.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// A hash of a question, that is of its folded name and its type, that nobody can foresee.
    #[inline]
    pub fn hash_question(&self, query: &Query<'_>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(query.name.wire());
        hasher.write_u16(query.rtype.to_int());
        hasher.finish()
    }

    /// A hash of a client: of IPv6 the /64, of which one host has all.
    pub fn hash_client(&self, client: IpAddr) -> u64 {
        match client.to_canonical() {
            IpAddr::V4(v4) => hash(&self.hasher, &v4.octets()),
            IpAddr::V6(v6) => hash(&self.hasher, &Ipv6Addr::octets(&v6)[..8]),
        }
    }

    /// Picks a back end of a pool that is not among `tried`; `None` where the query is to be shed.
    pub fn pick(
        &mut self,
        pool: usize,
        key: u64,
        client: IpAddr,
        tried: Set,
        now_ns: u64,
        counters: &FrontCounters,
    ) -> Option<usize> {
        let (ready, among) = self.among(pool, tried);
        let Picker { state, rng, share, hasher, timeout_ns, pools, .. } = self;
        let Pool { policy, fairness, .. } = pools.get_mut(pool)?;
        let picked = policy.pick(state, among, key, now_ns, rng).or_else(|| {
            let left_out = recovering(Set::from_bits(ready.bits() & !among.bits()), share);
            if left_out.is_empty() { None } else { policy.pick(state, left_out, key, now_ns, rng) }
        });
        let Pick { back_end, why } = match picked {
            Some(pick) => pick,
            None => {
                let patience = fairness.patience(hash_prefix(hasher, client), now_ns, *timeout_ns);
                overload::pick(state, among, now_ns, patience, rng)?
            }
        };
        counters.picks[why as usize].add(1);
        if let Policy::Pressure(pressure) = policy {
            counters.step.store(pressure.step() as u64 + 1, Ordering::Relaxed);
        }
        Some(back_end)
    }

    /// Those that could be picked, and of them those that may be now: a back end with a share is among them that often.
    fn among(&mut self, pool: usize, tried: Set) -> (Set, Set) {
        let (all, partial) =
            self.pools.get(pool).map_or((Set::EMPTY, Set::EMPTY), |pool| (pool.ready, pool.partial));
        let ready = Set::from_bits(all.bits() & !tried.bits());
        let mut among = ready;
        for place in partial.and(ready).iter() {
            if self.rng.u32(..WHOLE) >= self.share[place] {
                among = among.without(place);
            }
        }
        (ready, if among.is_empty() { ready } else { among })
    }

    /// Whether anybody of a pool but these could be picked.
    pub fn has_others(&self, pool: usize, tried: Set) -> bool {
        self.pools.get(pool).is_some_and(|pool| pool.ready.bits() & !tried.bits() != 0)
    }

    /// Whether a back end of a pool that may be picked has credit for connections, by its agent.
    pub fn has_connections(&self, pool: usize, now_ns: u64) -> bool {
        let ready = self.pools.get(pool).map_or(Set::EMPTY, |pool| pool.ready);
        self.field.iter().filter(|back_end| ready.contains(back_end.place)).any(|back_end| {
            let lease = back_end.tcp.get();
            now_ns < lease.until_ns && lease.limit > back_end.exchange.opened.load(Ordering::Relaxed)
        })
    }

    /// A query goes to a back end for the first time; returns the load there, with it.
    pub fn sent(&mut self, place: usize, now_ns: u64) -> u32 {
        self.budget.0 = (self.budget.0 + 1.0 / QUERIES_PER_RETRY).min(RETRIES_SAVED_MAX);
        self.sent_for_free(place, now_ns)
    }

    /// A query goes to a back end once more, out of what may be sent again; returns the load there, with it.
    pub fn sent_again(&mut self, place: usize, now_ns: u64) -> u32 {
        self.budget.0 -= 1.0;
        self.sent_for_free(place, now_ns)
    }

    /// A query goes to a back end once more, for nobody has worked for it yet; returns the load there, with it.
    pub fn sent_for_free(&mut self, place: usize, now_ns: u64) -> u32 {
        self.state.sent(place, now_ns);
        if let Some(cells) = self.cells(place) {
            cells.sent.add(1);
            if self.transport == For::Datagrams {
                cells.datagrams.add(1);
            }
        }
        self.state.in_flight(place)
    }

    /// Whether one more query may be sent again.
    pub fn may_retry(&self) -> bool {
        self.budget.0 >= 1.0
    }

    /// An answer to the question with the hash `key` has come, `latency_ns` after it was sent with this `load`; `rcode` is
    /// the header's response code.
    pub fn answered(&mut self, place: usize, key: u64, load: u32, rcode: u8, latency_ns: u64, now_ns: u64) {
        let has_failed = is_failure(rcode);
        if let Some(cells) = self.cells(place) {
            cells.ended.add(1);
            cells.count_answer(rcode, latency_ns);
        }
        self.count_question(place, key, has_failed);
        self.failing[place] += (f32::from(u8::from(has_failed)) - self.failing[place]) / FAILING_MEMORY;
        let cost_ns = if has_failed { self.charge_ns(place, load).max(latency_ns) } else { latency_ns };
        self.state.answered(place, load, cost_ns, now_ns);
    }

    /// What a failing answer counts as, at least: what answers there take anyway, or of a time-out the share by which this
    /// back end fails more often than the best of the others in its pools. A server that fails fast is not a fast server;
    /// but where all fail alike, it is the question that nobody can answer.
    fn charge_ns(&self, place: usize, load: u32) -> u64 {
        let pools = self.pools.iter().filter(|pool| pool.members.contains(place));
        let others = pools.fold(Set::EMPTY, |others, pool| others.or(pool.ready)).without(place);
        let others = others.iter().map(|other| self.failing[other]);
        let more = self.failing[place] - others.fold(1.0, f32::min) - FAILING_SLACK;
        let timeout_ns = self.timeout_ns as f32 * more.max(0.0);
        self.state.latency(place).at(load).max(timeout_ns).ceil() as u64
    }

    /// A query will get no answer, for which the back end is not to blame.
    pub fn unsent(&mut self, place: usize) {
        if let Some(cells) = self.cells(place) {
            cells.ended.add(1);
        }
        self.state.forgotten(place);
    }

    /// A query got no answer of a back end: whether that is to blame follows from the reason.
    pub fn unanswered(
        &mut self,
        place: usize,
        why: NoAnswer,
        load: u32,
        now_ns: u64,
        counters: &FrontCounters,
    ) {
        match why {
            NoAnswer::Unreached | NoAnswer::Ended => return self.refused(place, load, now_ns),
            NoAnswer::Shortage | NoAnswer::NoPort => counters.no_socket.add(1),
            NoAnswer::Filtered => counters.send_failed.add(1),
        }
        self.unsent(place);
    }

    /// Nobody takes a query: nobody listens, no way leads there, or its connection has ended.
    pub fn refused(&mut self, place: usize, load: u32, now_ns: u64) {
        if let Some(cells) = self.cells(place) {
            cells.refused.add(1);
        }
        self.failed(place, load, now_ns);
    }

    /// Nothing has come in time for the question with the hash `key`.
    pub fn timed_out(&mut self, place: usize, key: u64, load: u32, now_ns: u64) {
        if let Some(cells) = self.cells(place) {
            cells.timeouts.add(1);
        }
        self.count_question(place, key, true);
        self.failed(place, load, now_ns);
    }

    /// Counts what became of a question where it matters which one it is: others are spread over all back ends alike.
    #[inline]
    fn count_question(&self, place: usize, key: u64, has_failed: bool) {
        if matches!(self.policy, Policy::Hash)
            && let Some(cells) = self.cells(place)
        {
            cells.count_question(key, has_failed);
        }
    }

    /// Nothing has come in time, or nobody listens.
    fn failed(&mut self, place: usize, load: u32, now_ns: u64) {
        if let Some(cells) = self.cells(place) {
            cells.ended.add(1);
        }
        self.state.failed(place, load, self.timeout_ns, now_ns);
    }
}

impl Pool {
    fn new(policy: Policy) -> Pool {
        Pool {
            members: Set::EMPTY,
            ready: Set::EMPTY,
            partial: Set::EMPTY,
            policy,
            fairness: Fairness::new(),
        }
    }
}

/// A hash of the network that a client is in: of IPv4 the /24, of IPv6 the /56.
fn hash_prefix(hasher: &foldhash::fast::FixedState, client: IpAddr) -> u64 {
    match client.to_canonical() {
        IpAddr::V4(v4) => hash(hasher, &v4.octets()[..3]),
        IpAddr::V6(v6) => hash(hasher, &v6.octets()[..7]),
    }
}

#[inline]
fn hash(hasher: &foldhash::fast::FixedState, octets: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write(octets);
    hasher.finish()
}

/// Of these, which by chance were not to be picked, those that only begin slowly: with credit they are better than the
/// others without. Who fails more than that is not.
fn recovering(left_out: Set, share: &[u32; BACK_ENDS_MAX]) -> Set {
    left_out.iter().filter(|place| share[*place] >= BEGIN_SHARE).collect()
}

/// The step in force as `FrontCounters` has it; `None` before the first pick, and of other policies.
pub fn step(number: u64) -> Option<Step> {
    Step::ALL.into_iter().find(|step| *step as u64 + 1 == number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Drained;
    use routing::balance::{Quota, Why};

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 77));

    fn picker(count: u8, policy: &str) -> (Picker, Arc<Field>, FrontCounters) {
        let field = (0..count).fold(Field::default(), |field, last| {
            let address = ([127, 0, 0, last], 53).into();
            field.with(|place| BackEnd::new(place, address, 1, 2)).expect("there is a place")
        });
        let field = Arc::new(field);
        let policy = Policy::from_name(policy).expect("one of the names");
        let mut picker = Picker::new(policy, For::Datagrams, 0, 1_000_000, 7, Rng::with_seed(1));
        assert_eq!(picker.look(&field, 1).len(), usize::from(count));
        (picker, field, FrontCounters::default())
    }

    fn at(field: &Field, place: usize) -> &BackEnd {
        field.places[place].as_ref().expect("it is there")
    }

    #[test]
    fn no_more_connections_than_granted_while_that_is_valid() {
        let (_, field, counters) = picker(2, "pressure");
        let policy = Policy::from_name("pressure").expect("one of the names");
        let mut picker = Picker::new(policy, For::Connections, 0, 1_000_000, 7, Rng::with_seed(1));
        // Reports come badly.
        at(&field, 0).tcp.put(Lease { limit: 1, hard_until_ns: 0, until_ns: 100, ..Lease::NONE });
        at(&field, 0).exchange.opened.store(1, Ordering::Relaxed);
        for _ in 0..20 {
            picker.look(&field, 99);
            assert_eq!(picker.pick(0, 1, CLIENT, Set::EMPTY, 99, &counters), Some(1));
        }
    }

    #[test]
    fn datagrams_take_nothing_of_what_is_granted_in_connections() {
        let (_, field, counters) = picker(1, "pressure");
        let policy = Policy::from_name("pressure").expect("one of the names");
        let mut picker = Picker::new(policy, For::Connections, 0, 1_000_000, 7, Rng::with_seed(1));
        at(&field, 0).tcp.put(Lease { limit: 1, hard_until_ns: 100, until_ns: 100, ..Lease::NONE });
        for _ in 0..3 {
            at(&field, 0).cells[1].datagrams.add(100);
            picker.look(&field, 99);
            assert_eq!(picker.state.credit(0), 1);
        }
        assert_eq!(picker.pick(0, 1, CLIENT, Set::EMPTY, 99, &counters), Some(0));
        assert_eq!(counters.picks[Why::Overdrawn as usize].get(), 0);
    }

    #[test]
    fn who_gets_no_queries_has_no_connections_to_give() {
        let (mut picker, field, _) = picker(2, "pressure");
        at(&field, 1).tcp.put(Lease { limit: 9, until_ns: 100, ..Lease::NONE });
        assert!(picker.has_connections(0, 99) && !picker.has_connections(0, 100));
        at(&field, 1).set_draining(Drained::ByAgent, true);
        picker.look(&field, 2);
        assert!(!picker.has_connections(0, 99));
    }

    #[test]
    fn what_others_have_in_flight_counts() {
        let (mut picker, field, counters) = picker(2, "least-outstanding");
        at(&field, 0).cells[1].sent.add(3);
        at(&field, 0).cells[1].datagrams.add(3);
        picker.look(&field, 2);
        assert_eq!(picker.pick(0, 1, CLIENT, Set::EMPTY, 2, &counters), Some(1));
        assert_eq!(picker.state.sent_total(0), 3);
    }

    #[test]
    fn what_is_under_way_over_connections_leaves_datagrams_paid_for() {
        let (mut picker, field, _) = picker(1, "pressure");
        let quota = Quota { quota_ns: 20, period_ns: 100, refill_ns: 60, left_ns: 5, cost_ns: 5, ended: 0 };
        at(&field, 0).udp.put(Lease { until_ns: 1_000, ..Lease::NONE });
        at(&field, 0).udp.quota.put(quota);
        let load = picker.sent(0, 10);
        picker.answered(0, 1, load, 0, 10, 20);
        at(&field, 0).cells[1].sent.add(2);
        picker.look(&field, 20);
        let state = &picker.state;
        let rests_ns = state.expected_with_quota_ns(0, 20) - state.latency(0).at(3);
        assert_eq!(rests_ns, 40.0, "nothing is left until the next refill");
    }

    /// What an answer of the first of two back ends is taken to last, in nanoseconds, and the peak, where each had so many
    /// questions, and failed at once for those of them; answers that are none last 300.
    fn learned(count: usize, fails: impl Fn(usize, usize) -> bool) -> (f32, f32) {
        let (mut picker, ..) = picker(2, "pressure");
        let mut now = 2;
        for question in 0..count {
            for place in 0..2 {
                let load = picker.sent(place, now);
                let (rcode, latency) = if fails(place, question) { (2, 20) } else { (0, 300) };
                now += 300;
                picker.answered(place, 1, load, rcode, latency, now);
            }
        }
        (picker.state.latency(0).mean_ns(), picker.state.latency(0).peak_ns(now))
    }

    #[test]
    fn who_fails_fast_is_not_fast() {
        let (mean, peak) = learned(20, |place, _| place == 0);
        assert!(mean > 50_000.0 && peak > 200_000.0, "{mean} {peak}");
        let (mean, _) = learned(200, |place, question| place == 0 && question % 5 == 4);
        assert!(mean > 15_000.0, "{mean}");
    }

    #[test]
    fn a_question_that_nobody_can_answer_slows_nobody_down() {
        let seldom = learned(200, |place, question| place == 0 && question % 100 == 50);
        let alike = learned(200, |_, question| question % 5 == 4);
        for (mean, peak) in [seldom, alike] {
            assert!((299.0..=301.0).contains(&mean) && (299.0..=301.0).contains(&peak), "{mean} {peak}");
        }
    }

    #[test]
    fn a_share_is_what_a_back_end_gets_of_its_turns() {
        let (mut picker, field, counters) = picker(2, "wrr");
        at(&field, 0).set_share(WHOLE / 10);
        picker.look(&field, 2);
        let picks = |picker: &mut Picker| {
            (0..1_000).filter(|_| picker.pick(0, 1, CLIENT, Set::EMPTY, 2, &counters) == Some(0)).count()
        };
        let few = picks(&mut picker);
        // Half of the turns would be its own.
        assert!((25..80).contains(&few), "{few}");
        at(&field, 1).set_draining(Drained::ByOperator, true);
        picker.look(&field, 3);
        assert_eq!(picks(&mut picker), 1_000, "it is the only one");
    }

    #[test]
    fn who_begins_slowly_and_has_credit_comes_before_who_has_none() {
        let (mut picker, field, counters) = picker(2, "pressure");
        let lease = |limit| Lease { limit, hard_until_ns: 1_000, until_ns: 1_000, ..Lease::NONE };
        at(&field, 0).udp.put(lease(0));
        at(&field, 1).udp.put(lease(1_000));
        let mut picks = |share, back_end| {
            at(&field, 1).set_share(share);
            picker.look(&field, 2);
            (0..100).filter(|_| picker.pick(0, 1, CLIENT, Set::EMPTY, 2, &counters) == Some(back_end)).count()
        };
        assert_eq!(picks(BEGIN_SHARE, 1), 100);
        assert!(picks(BEGIN_SHARE / 5, 0) > 80, "who fails is not asked more for that");
    }

    #[test]
    fn a_question_has_the_same_hash_at_all_threads() {
        let hash = |seed, kind: u8, name: &[u8]| {
            let policy = Policy::from_name("hash").expect("one of the names");
            let picker = Picker::new(policy, For::Datagrams, 0, 1, 7, Rng::with_seed(seed));
            let query = [&[0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], name, &[0, 0, kind, 0, 1]].concat();
            let mut folded = dns::Folded::root();
            picker.hash_question(&Query::read(&query, &mut folded).expect("a query"))
        };
        let one = hash(1, 1, b"\x02ab");
        assert_eq!(hash(2, 1, b"\x02AB"), one);
        assert_ne!(hash(2, 28, b"\x02ab"), one);
        assert_ne!(hash(2, 1, b"\x02ac"), one);
    }

    #[test]
    fn one_query_in_fifty_may_be_sent_again() {
        let (mut picker, _, _) = picker(2, "p2c");
        let retry = |picker: &mut Picker| {
            let may = picker.may_retry();
            if may {
                picker.sent_again(1, 1);
            }
            may
        };
        while retry(&mut picker) {}
        let mut retries = 0;
        for _ in 0..10_000 {
            picker.sent(0, 1);
            retries += u32::from(retry(&mut picker));
        }
        assert!((195..=200).contains(&retries), "{retries}");
    }

    #[test]
    fn without_credit_the_fewest_in_flight_go_on_and_then_nobody() {
        let (mut picker, field, counters) = picker(1, "pressure");
        let back_end = at(&field, 0);
        back_end.udp.put(Lease {
            limit: 1,
            hard_until_ns: 1_000_000_000,
            until_ns: 1_000_000_000,
            ..Lease::NONE
        });
        picker.look(&field, 2);
        let load = picker.sent(0, 2);
        // A hundred microseconds for each in flight: ten fit a timeout of one millisecond, five half of it.
        picker.answered(0, 1, load, 0, 100_000, 3);
        let mut sent = 0;
        while picker.pick(0, 1, CLIENT, Set::EMPTY, 4, &counters) == Some(0) {
            picker.sent(0, 4);
            sent += 1;
            assert!(sent < 100);
        }
        assert!((4..=10).contains(&sent), "{sent}");
        assert_eq!(counters.picks[Why::Overdrawn as usize].get(), sent);
    }
}
