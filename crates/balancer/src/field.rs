//! The back ends, as all threads see them.
//!
//! A [`Field`] is replaced as a whole when a back end comes or goes, or rules are others. What changes all the time is in
//! cells of each back end: every thread counts in cells of its own, and reads those of the others.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};

use net::count::Count;
use net::tls::client::Encrypted;
use routing::balance::{BACK_ENDS_MAX, Lease, Quota, Set};

use crate::counters::{Cells, RCODES};
use crate::exchange::Exchange;
use crate::health::{WHOLE, is_failure};
use crate::rules::Rules;

/// The largest weight of a back end: ratios beyond are no weights but switches.
pub const WEIGHT_MAX: u32 = 10_000;

/// The most pools.
pub const POOLS_MAX: usize = u32::BITS as usize;

/// What the pool is called that takes what no rule sends elsewhere.
pub const DEFAULT_POOL: &str = "default";

/// The back ends at one time.
#[derive(Clone, Debug)]
pub struct Field {
    /// By their places; those who go leave a gap.
    pub places: Vec<Option<Arc<BackEnd>>>,
    /// The names of pools, by their numbers; the first one takes what no rule sends elsewhere. From 1 to [`POOLS_MAX`].
    pub pools: Arc<[String]>,
    /// Which pool takes a query.
    pub rules: Arc<Rules>,
}

/// Some pools, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pools(u32);

impl Pools {
    /// The pool that takes what no rule sends elsewhere.
    pub const DEFAULT: Pools = Pools(1);

    /// None.
    pub const NONE: Pools = Pools(0);

    /// These and one more.
    ///
    /// # Panics
    /// Where its number is not below [`POOLS_MAX`].
    #[must_use]
    pub fn with(self, pool: usize) -> Pools {
        assert!(pool < POOLS_MAX, "the number of a pool");
        Pools(self.0 | 1 << pool)
    }

    /// Whether this one is among them.
    pub fn contains(self, pool: usize) -> bool {
        pool < POOLS_MAX && self.0 >> pool & 1 != 0
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Default for Field {
    /// No back ends, one pool and no rules.
    fn default() -> Field {
        Field { places: Vec::new(), pools: [DEFAULT_POOL.into()].into(), rules: Arc::default() }
    }
}

impl Field {
    /// All back ends.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<BackEnd>> {
        self.places.iter().flatten()
    }

    /// The back end at this address.
    pub fn find(&self, address: SocketAddr) -> Option<&Arc<BackEnd>> {
        self.iter().find(|back_end| back_end.address == address)
    }

    /// This field with one more back end, in the first gap; `None` where [`BACK_ENDS_MAX`] are there.
    #[must_use]
    pub fn with(&self, back_end: impl FnOnce(usize) -> BackEnd) -> Option<Field> {
        let mut places = self.places.clone();
        let gap = places.iter().position(Option::is_none).unwrap_or(places.len());
        if gap >= BACK_ENDS_MAX {
            return None;
        }
        if gap == places.len() {
            places.push(None);
        }
        places[gap] = Some(Arc::new(back_end(gap)));
        Some(Field { places, ..self.clone() })
    }

    /// This field without the back end in a place, which is then a gap.
    #[must_use]
    pub fn without(&self, place: usize) -> Field {
        let mut places = self.places.clone();
        places[place] = None;
        Field { places, ..self.clone() }
    }

    /// The names of the pools that a back end is in.
    pub fn pools_of(&self, back_end: &BackEnd) -> impl Iterator<Item = &String> {
        let pools = back_end.pools;
        self.pools.iter().enumerate().filter(move |(pool, _)| pools.contains(*pool)).map(|(_, name)| name)
    }

    /// The places of a pool's back ends.
    pub fn members(&self, pool: usize) -> Set {
        let members = self.iter().filter(|back_end| back_end.pools.contains(pool));
        members.map(|back_end| back_end.place).collect()
    }
}

/// Whether a back end gets queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Standing {
    /// It does.
    Up,
    /// It does not answer: it gets none while others do.
    Down,
    /// An operator or its agent says that it is about to end: it gets none, and answers what it has.
    Draining,
}

impl Standing {
    /// As metrics and the API say it.
    pub fn word(self) -> &'static str {
        match self {
            Standing::Up => "up",
            Standing::Down => "down",
            Standing::Draining => "draining",
        }
    }
}

/// A name server behind the balancer.
#[derive(Debug)]
pub struct BackEnd {
    /// Its place in the field, from 0.
    pub place: usize,
    /// Where it answers: over UDP and TCP, or over TLS.
    pub address: SocketAddr,
    /// The weight, from 1 to [`WEIGHT_MAX`].
    pub weight: u32,
    /// The pools that it is in.
    pub pools: Pools,
    /// What each thread counts of it; the last one is of the connections' side.
    pub cells: Box<[Cells]>,
    is_down: AtomicBool,
    drains: AtomicU8,
    share: AtomicU32,
    /// What its agent has granted in datagrams.
    pub udp: Granted,
    /// What its agent has granted in connections to be opened.
    pub tcp: Granted,
    /// Connections to it.
    pub exchange: Arc<Exchange>,
    /// Reports from its address that are not signed with our key.
    pub unsigned: AtomicU64,
    /// Whether a worker wants to know at once whether it is there.
    pub is_doubted: AtomicBool,
    /// Probes to which it has replied, whatever it said.
    pub replied: AtomicU64,
}

/// Who has said that a back end drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Drained {
    /// An operator.
    ByOperator = 1,
    /// Its agent, of the service over UDP.
    ByAgent = 2,
    /// Its agent, of the service over TCP: the same one or another, and either may look at one of them alone.
    ByTcpAgent = 4,
}

/// A lease in cells; one thread writes them.
///
/// They are read one by one, so a reader may see the limit of one report with the end of the one before: both are
/// limits that were granted, and the next look sees them together.
#[derive(Debug, Default)]
pub struct Granted {
    limit: AtomicU64,
    hard_until_ns: AtomicU64,
    until_ns: AtomicU64,
    queue_ns: AtomicU64,
    room: AtomicU64,
    backlog: AtomicU64,
    sent: AtomicU64,
    /// What the server's quota of processor time leaves it.
    pub quota: ToldQuota,
    /// Datagrams or connections that the system has turned away there.
    pub drops: AtomicU64,
}

/// What a quota leaves, in cells as those of a lease.
#[derive(Debug, Default)]
pub struct ToldQuota {
    quota_ns: AtomicU64,
    period_ns: AtomicU64,
    refill_ns: AtomicU64,
    left_ns: AtomicI64,
    cost_ns: AtomicU64,
    ended: AtomicU64,
}

impl ToldQuota {
    /// Puts what was told in the place of what was told before.
    pub fn put(&self, quota: Quota) {
        self.quota_ns.store(quota.quota_ns, Ordering::Relaxed);
        self.period_ns.store(quota.period_ns, Ordering::Relaxed);
        self.refill_ns.store(quota.refill_ns, Ordering::Relaxed);
        self.left_ns.store(quota.left_ns, Ordering::Relaxed);
        self.cost_ns.store(quota.cost_ns, Ordering::Relaxed);
        self.ended.store(quota.ended, Ordering::Relaxed);
    }

    /// What was told last.
    pub fn get(&self) -> Quota {
        Quota {
            quota_ns: self.quota_ns.load(Ordering::Relaxed),
            period_ns: self.period_ns.load(Ordering::Relaxed),
            refill_ns: self.refill_ns.load(Ordering::Relaxed),
            left_ns: self.left_ns.load(Ordering::Relaxed),
            cost_ns: self.cost_ns.load(Ordering::Relaxed),
            ended: self.ended.load(Ordering::Relaxed),
        }
    }
}

impl Granted {
    /// Puts a new lease in force.
    pub fn put(&self, lease: Lease) {
        self.limit.store(lease.limit, Ordering::Relaxed);
        self.hard_until_ns.store(lease.hard_until_ns, Ordering::Relaxed);
        self.until_ns.store(lease.until_ns, Ordering::Relaxed);
        self.queue_ns.store(lease.queue_ns, Ordering::Relaxed);
        self.room.store(lease.room, Ordering::Relaxed);
        self.backlog.store(lease.backlog, Ordering::Relaxed);
        self.sent.store(lease.sent, Ordering::Relaxed);
    }

    /// The lease in force, or the last one.
    pub fn get(&self) -> Lease {
        Lease {
            limit: self.limit.load(Ordering::Relaxed),
            hard_until_ns: self.hard_until_ns.load(Ordering::Relaxed),
            until_ns: self.until_ns.load(Ordering::Relaxed),
            queue_ns: self.queue_ns.load(Ordering::Relaxed),
            room: self.room.load(Ordering::Relaxed),
            backlog: self.backlog.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
        }
    }
}

impl BackEnd {
    /// A back end of the default pool of which nothing is known, for so many threads.
    pub fn new(place: usize, address: SocketAddr, weight: u32, threads: usize) -> BackEnd {
        BackEnd {
            place,
            address,
            cells: (0..threads).map(|_| Cells::default()).collect(),
            weight: weight.max(1),
            pools: Pools::DEFAULT,
            is_down: AtomicBool::new(false),
            drains: AtomicU8::new(0),
            share: AtomicU32::new(WHOLE),
            udp: Granted::default(),
            tcp: Granted::default(),
            exchange: Arc::new(Exchange::new(address, None)),
            unsigned: AtomicU64::new(0),
            is_doubted: AtomicBool::new(false),
            replied: AtomicU64::new(0),
        }
    }

    /// The same in other pools.
    #[must_use]
    pub fn of_pools(self, pools: Pools) -> BackEnd {
        BackEnd { pools, ..self }
    }

    /// The same, asked over TLS where it is said how, and there alone.
    #[must_use]
    pub fn over_tls(self, tls: Option<Encrypted>) -> BackEnd {
        BackEnd { exchange: Arc::new(Exchange::new(self.address, tls)), ..self }
    }

    /// How it is asked over TLS, where it is.
    pub fn tls(&self) -> Option<&Encrypted> {
        self.exchange.tls()
    }

    /// Whether it gets queries.
    pub fn standing(&self) -> Standing {
        if self.drains.load(Ordering::Relaxed) != 0 {
            Standing::Draining
        } else if self.is_down.load(Ordering::Relaxed) {
            Standing::Down
        } else {
            Standing::Up
        }
    }

    /// Whether it was found not to answer, draining or not.
    pub fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    /// Says whether it answers.
    pub fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::Relaxed);
    }

    /// The same, where that is still what it `was`; returns whether it was.
    pub fn set_down_from(&self, was: bool, is_down: bool) -> bool {
        self.is_down.compare_exchange(was, is_down, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Says that it drains, or that it does no longer; either who says so is enough.
    pub fn set_draining(&self, who: Drained, drains: bool) {
        if drains {
            self.drains.fetch_or(who as u8, Ordering::Relaxed);
        } else {
            self.drains.fetch_and(!(who as u8), Ordering::Relaxed);
        }
    }

    /// What agents have granted, each with who drains in its reports.
    pub fn granted(&self) -> [(Drained, &Granted); 2] {
        [(Drained::ByAgent, &self.udp), (Drained::ByTcpAgent, &self.tcp)]
    }

    /// Whether this one says that it drains.
    pub fn is_drained(&self, who: Drained) -> bool {
        self.drains.load(Ordering::Relaxed) & who as u8 != 0
    }

    /// The share of picks at which it may be picked, up to [`WHOLE`]: less while it starts, and while it fails.
    pub fn share(&self) -> u32 {
        self.share.load(Ordering::Relaxed)
    }

    /// Changes the share.
    pub fn set_share(&self, share: u32) {
        self.share.store(share.min(WHOLE), Ordering::Relaxed);
    }

    /// A count over all threads.
    pub fn sum(&self, of: impl Fn(&Cells) -> &Count) -> u64 {
        self.cells.iter().map(|cells| of(cells).get()).sum()
    }

    /// Answers that say that the server failed, of all threads.
    pub fn failures(&self) -> u64 {
        let rcodes = (0..RCODES as u8).filter(|rcode| is_failure(*rcode));
        rcodes.map(|rcode| self.sum(|cells| &cells.answered[usize::from(rcode)])).sum()
    }

    /// How many queries are in flight there, of all threads.
    pub fn in_flight(&self) -> u64 {
        self.cells.iter().map(Cells::in_flight).sum()
    }
}

/// Those of a pool's back ends that get its queries, and those of them that get only a share.
pub fn eligible(field: &Field, members: Set) -> (Set, Set) {
    let standing = |wanted| {
        let found = field.iter().filter(move |back_end| back_end.standing() == wanted);
        found.map(|back_end| back_end.place).collect::<Set>().and(members)
    };
    let up = standing(Standing::Up);
    // Where nobody answers, probes may be what is wrong: those that are down are asked rather than none.
    let ready = if up.is_empty() { standing(Standing::Down) } else { up };
    let partial = field.iter().filter(|back_end| back_end.share() < WHOLE).map(|back_end| back_end.place);
    (ready, ready.and(partial.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(count: usize) -> Field {
        (0..count).fold(Field::default(), |field, last| {
            let address = SocketAddr::from(([192, 0, 2, last as u8], 53));
            field.with(|place| BackEnd::new(place, address, 1, 1)).expect("there is a place")
        })
    }

    #[test]
    fn gaps_are_filled_and_places_end() {
        let field = field(3).without(1);
        assert_eq!(field.iter().map(|back_end| back_end.place).collect::<Vec<_>>(), [0, 2]);
        let address = SocketAddr::from(([192, 0, 2, 9], 53));
        let again = field.with(|place| BackEnd::new(place, address, 0, 1)).expect("there is a gap");
        assert_eq!(again.find(address).map(|back_end| (back_end.place, back_end.weight)), Some((1, 1)));
        assert!(self::field(BACK_ENDS_MAX).with(|place| BackEnd::new(place, address, 1, 1)).is_none());
    }

    #[test]
    fn who_drains_gets_nothing_and_who_is_down_only_when_all_are() {
        let field = field(3);
        let at = |place: usize| field.places[place].as_ref().expect("it is there");
        at(0).set_down(true);
        at(1).set_draining(Drained::ByOperator, true);
        at(1).set_draining(Drained::ByAgent, true);
        at(2).set_share(200);
        let eligible = |field: &Field| eligible(field, field.members(0));
        assert_eq!(eligible(&field), (Set::from_bits(4), Set::from_bits(4)));
        at(1).set_draining(Drained::ByAgent, false);
        at(2).set_down(true);
        assert_eq!(eligible(&field).0, Set::from_bits(5), "nobody is up");
        at(1).set_draining(Drained::ByOperator, false);
        assert_eq!(eligible(&field).0, Set::from_bits(2));
    }

    #[test]
    fn who_is_down_in_a_pool_is_asked_where_nobody_is_up_there() {
        let address = SocketAddr::from(([192, 0, 2, 9], 53));
        let pools = [Pools::NONE.with(1), Pools::DEFAULT.with(1), Pools::NONE.with(1)];
        let field = pools.into_iter().fold(Field::default(), |field, pools| {
            field.with(|place| BackEnd::new(place, address, 1, 1).of_pools(pools)).expect("there is a place")
        });
        let bits = |pool| eligible(&field, field.members(pool)).0.bits();
        assert_eq!([0, 1, 2].map(bits), [2, 7, 0]);
        for place in [0, 2] {
            field.places[place].as_ref().expect("it is there").set_down(true);
        }
        assert_eq!([0, 1].map(bits), [2, 2]);
        field.places[1].as_ref().expect("it is there").set_draining(Drained::ByOperator, true);
        assert_eq!([0, 1].map(bits), [0, 5]);
    }
}
