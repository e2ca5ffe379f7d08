//! Who may have a place: so many in all, so many per client. A place is a connection, or something else that a
//! client holds for a while.
//!
//! Whoever holds a place may say when it begins to wait for something to come from its client, or to go to it
//! ([`Place::waits`]). Where all places are taken, the one that has waited longest gives way to a client that comes. Time
//! is counted in clients that were let in since, so that it passes as fast as a crowd comes; and who has served its client
//! before has half as many of them before it as there are places. So a crowd that holds places, and asks nothing or takes
//! nothing, shuts nobody out, however fast it comes back: a new client has its turn in peace while the places change hands
//! nearly half.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Places that are looked at to find one that gives way; the next search begins behind them. Among as many as
/// this, one is nearly as old as the oldest of all, and looking takes well below a microsecond.
pub const LOOKED_AT_MAX: usize = 64;

/// Places that were told to give way and are not given back yet, at a time; they count on top of all places. Whoever
/// comes while there are as many is refused.
pub const GIVING_WAY_MAX: usize = 64;

/// The turn of a place whose holder has never said that it waits.
const NEVER: u64 = u64::MAX;

/// What a turn grows by for each client that is let in. Waits in between count one each, for their order; after so
/// many of them it is as if one more had been let in.
const LET_IN: u64 = 1 << 20;

/// Hands out places; it remembers no more clients than there are places.
#[derive(Debug)]
pub struct Admission {
    places_max: usize,
    per_client_max: usize,
    open: Mutex<Open>,
    /// The turn of a wait that begins now.
    turns: AtomicU64,
}

#[derive(Debug, Default)]
struct Open {
    total: usize,
    by_client: HashMap<IpAddr, usize>,
    /// The places that may be told to give way, and gaps.
    seats: Vec<Option<Arc<Seat>>>,
    /// The gaps.
    gaps: Vec<usize>,
    /// Where the next search begins.
    hand: usize,
    giving_way: usize,
}

/// What a place shares with the search for one that gives way.
#[derive(Debug)]
struct Seat {
    /// When its wait began, or [`NEVER`].
    turn: AtomicU64,
    /// Whether it was told to give way, which its holder hears by `told`.
    gives_way: AtomicBool,
    told: Notify,
}

/// Says why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// All places are taken, and none gives way.
    Full,
    /// This client has all that one client may have.
    PerClient,
}

/// Holds a place until it is dropped.
#[derive(Debug)]
pub struct Place {
    admission: Arc<Admission>,
    client: IpAddr,
    seat: Arc<Seat>,
    /// Where `seat` is among all.
    index: usize,
    has_replaced: bool,
}

impl Admission {
    /// Has `places_max` places, of which one client gets `per_client_max`: an IPv4 address or an IPv6 /64,
    /// which is what one host can choose from.
    pub fn new(places_max: usize, per_client_max: usize) -> Self {
        Self { places_max, per_client_max, open: Mutex::default(), turns: AtomicU64::new(0) }
    }

    /// Whether more than half of all places are taken.
    pub fn is_crowded(&self) -> bool {
        self.open().total > self.places_max / 2
    }

    /// Gives a place to the client at `address`; it counts as working until it says that it waits.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Result<Place, Refusal> {
        let client = client_of(address);
        let mut open = self.open();
        // First, so that no client takes the places of others beyond its own share.
        let of_client = open.by_client.get(&client).copied().unwrap_or(0);
        if of_client >= self.per_client_max {
            return Err(Refusal::PerClient);
        }
        let has_replaced = open.total >= self.places_max;
        if has_replaced && !open.tell_one() {
            return Err(Refusal::Full);
        }
        open.by_client.insert(client, of_client + 1);
        open.total += 1;
        self.turns.fetch_add(LET_IN, Ordering::Relaxed);
        let seat = Arc::new(Seat {
            turn: AtomicU64::new(NEVER),
            gives_way: AtomicBool::new(false),
            told: Notify::new(),
        });
        let index = open.seat(Arc::clone(&seat));
        Ok(Place { admission: Arc::clone(self), client, seat, index, has_replaced })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Tells one that waits to give way, if there is one.
    fn tell_one(&mut self) -> bool {
        if self.giving_way >= GIVING_WAY_MAX || self.seats.is_empty() {
            return false;
        }
        let looked_at = self.seats.len().min(LOOKED_AT_MAX);
        let (from, all) = (self.hand % self.seats.len(), self.seats.len());
        self.hand = from + looked_at;
        let turns = (from..from + looked_at).filter_map(|index| {
            let turn = self.seats[index % all].as_ref()?.turn.load(Ordering::Relaxed);
            (turn != NEVER).then_some((turn, index % all))
        });
        let Some((_, index)) = turns.min() else { return false };
        if let Some(seat) = self.seats[index].take() {
            seat.gives_way.store(true, Ordering::Relaxed);
            seat.told.notify_one();
        }
        self.gaps.push(index);
        self.giving_way += 1;
        true
    }

    fn seat(&mut self, seat: Arc<Seat>) -> usize {
        match self.gaps.pop() {
            Some(gap) => {
                self.seats[gap] = Some(seat);
                gap
            }
            None => {
                self.seats.push(Some(seat));
                self.seats.len() - 1
            }
        }
    }
}

impl Place {
    /// [`Admission::is_crowded`], of those that the place is one of.
    pub fn is_crowded(&self) -> bool {
        self.admission.is_crowded()
    }

    /// Says that a wait begins, since something has come from the client or gone to it. From now on the place may be
    /// told to give way, later if it `has_served`; one that has never said so is not.
    pub fn waits(&self, has_served: bool) {
        let turn = self.admission.turns.fetch_add(1, Ordering::Relaxed);
        let later =
            if has_served { (self.admission.places_max as u64 / 2).saturating_mul(LET_IN) } else { 0 };
        self.seat.turn.store(turn.saturating_add(later), Ordering::Relaxed);
    }

    /// Says that the wait is over: from now on the place is not told to give way. It may have been told just before.
    pub fn works(&self) {
        self.seat.turn.store(NEVER, Ordering::Relaxed);
    }

    /// Waits until this place is to be given back soon.
    pub async fn gives_way(&self) {
        self.seat.told.notified().await;
    }

    /// Whether another place was told to give way to this one.
    pub fn has_replaced(&self) -> bool {
        self.has_replaced
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.admission.open();
        open.total -= 1;
        if self.seat.gives_way.load(Ordering::Relaxed) {
            open.giving_way -= 1;
        } else {
            open.seats[self.index] = None;
            open.gaps.push(self.index);
        }
        if let Some(of_client) = open.by_client.get_mut(&self.client) {
            *of_client -= 1;
            if *of_client == 0 {
                open.by_client.remove(&self.client);
            }
        }
    }
}

/// Returns the address that stands for all addresses one client can choose from: of IPv6 the /64.
pub fn client_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn admission(places_max: usize, per_client_max: usize) -> Arc<Admission> {
        Arc::new(Admission::new(places_max, per_client_max))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn places_are_bounded_in_all_and_come_back() {
        let admission = admission(2, 2);
        let first = admission.admit(ip("192.0.2.1")).expect("a free place");
        let second = admission.admit(ip("192.0.2.2")).expect("a free place");
        assert_eq!(admission.admit(ip("192.0.2.3")).unwrap_err(), Refusal::Full);
        drop(first);
        let third = admission.admit(ip("192.0.2.3")).expect("the place has come back");
        drop((second, third));
        assert_eq!(admission.open().total, 0);
        assert!(admission.open().by_client.is_empty());
    }

    #[test]
    fn places_are_bounded_per_client() {
        // (held, asked, refused)
        for (held, asked, refused) in [
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("2001:db8::1", "2001:db8::2:3:4:5", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
        ] {
            let admission = admission(10, 1);
            let _held = admission.admit(ip(held)).expect("a free place");
            let refusal = admission.admit(ip(asked)).err();
            assert_eq!(refusal, refused.then_some(Refusal::PerClient), "{held} {asked}");
        }
    }

    #[test]
    fn more_than_half_is_a_crowd() {
        let admission = admission(4, 4);
        let mut places = Vec::new();
        for crowded in [false, false, true, true] {
            places.push(admission.admit(ip("192.0.2.1")).expect("a free place"));
            assert_eq!(places[0].is_crowded(), crowded, "{} of 4", places.len());
        }
    }

    fn is_told(place: &Place) -> bool {
        place.seat.gives_way.load(Ordering::Relaxed)
    }

    #[test]
    fn the_one_that_has_waited_longest_for_nothing_gives_way() {
        let admission = admission(4, 4);
        let at = |last: u8| admission.admit(IpAddr::from([192, 0, 2, last]));
        let held: Vec<Place> = (1..=4).map(|last| at(last).expect("a free place")).collect();
        assert_eq!(at(5).unwrap_err(), Refusal::Full, "all work");
        held[1].waits(true);
        held[0].waits(false);
        held[2].waits(false);
        let told = || held.iter().map(is_told).collect::<Vec<_>>();
        // The first has served nobody, and has waited longer than the third.
        let fifth = at(5).expect("the first gives way");
        assert!(fifth.has_replaced() && !held[0].has_replaced());
        assert_eq!(told(), [true, false, false, false]);
        let sixth = at(6).expect("the third gives way");
        let seventh = at(7).expect("the second gives way");
        assert_eq!(told(), [true, true, true, false]);
        assert_eq!(at(8).unwrap_err(), Refusal::Full, "the fourth never waits");
        assert_eq!(admission.open().total, 7);
        fifth.waits(false);
        fifth.works();
        assert_eq!(at(8).unwrap_err(), Refusal::Full, "the fifth waits no more");
        drop((held, fifth, sixth, seventh));
        let open = admission.open();
        assert_eq!((open.total, open.giving_way, open.by_client.len()), (0, 0, 0));
        assert!(open.seats.len() <= 4 && open.gaps.len() == open.seats.len());
    }

    #[test]
    fn whoever_has_just_come_outlives_a_crowd_that_was_served_and_comes_back() {
        let admission = admission(100, usize::MAX);
        let mut crowd: VecDeque<Place> = VecDeque::new();
        let mut one_more = |has_served: bool| {
            crowd.retain(|place| !is_told(place));
            let place = admission.admit(ip("192.0.2.1")).expect("one gives way");
            place.waits(has_served);
            crowd.push_back(place);
        };
        (0..300).for_each(|_| one_more(true));
        let client = admission.admit(ip("192.0.2.2")).expect("one gives way");
        client.waits(false);
        (0..40).for_each(|_| one_more(true));
        assert!(!is_told(&client), "it was not let ask");
        client.waits(true);
        (0..100).for_each(|_| one_more(false));
        assert!(!is_told(&client), "those that were not served go before it");
        (0..100).for_each(|_| one_more(false));
        assert!(is_told(&client), "it does nothing");
    }

    #[test]
    fn no_client_takes_more_places_than_its_share() {
        let admission = admission(4, 2);
        let held: Vec<Place> = (0..4)
            .map(|i| admission.admit(IpAddr::from([192, 0, 2, i / 2])).expect("a free place"))
            .collect();
        held.iter().for_each(|place| place.waits(false));
        assert_eq!(admission.admit(ip("192.0.2.0")).unwrap_err(), Refusal::PerClient);
        assert!(!held.iter().any(is_told));
    }

    #[test]
    fn only_so_many_give_way_at_a_time() {
        let admission = admission(GIVING_WAY_MAX + 9, usize::MAX);
        let admit = || admission.admit(ip("192.0.2.1"));
        let mut held: Vec<Place> = (0..GIVING_WAY_MAX + 9).map(|_| admit().expect("a free place")).collect();
        held.iter().for_each(|place| place.waits(false));
        let mut next: Vec<Place> = (0..GIVING_WAY_MAX).map(|_| admit().expect("one gives way")).collect();
        assert_eq!(admit().unwrap_err(), Refusal::Full);
        let gone = held.iter().position(is_told).expect("some were told");
        drop(held.swap_remove(gone));
        next.push(admit().expect("one has given way"));
        assert_eq!(held.iter().filter(|place| is_told(place)).count(), GIVING_WAY_MAX);
    }

    #[test]
    fn no_places_at_all_refuses_everybody() {
        assert_eq!(admission(0, 1).admit(ip("192.0.2.1")).unwrap_err(), Refusal::Full);
    }
}
