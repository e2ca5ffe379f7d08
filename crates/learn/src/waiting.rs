//! Bounded last-in-first-out stacks in lanes that are served in turn.
//!
//! What was asked for last is asked first: whoever asked is the likeliest to ask again soon. When all is full, the
//! bottom of the deepest lane *leaks*, so that who floods loses its own. Lanes take turns by rounds: a lane that was
//! served waits until every other lane that has something was served too, the one asked for last first. Every other
//! time it is the turn of a client instead, where there are several, so that one that floods all lanes leaves the
//! others their share. With a single lane and client this is Rapid DNS's "leaky bucket" (section 6).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

/// Bounds what may wait.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Keys that wait, in all lanes together; at least 1. Rapid DNS had 4,096.
    pub capacity: usize,
    /// Keys that wait for one client; beyond it the client's own oldest leaks.
    pub per_client: usize,
    /// What a key does that waits already.
    pub repeats: Repeats,
    /// Which end of a lane has its turn.
    pub order: Order,
}

/// Which of a lane's keys is asked for first; the oldest leaks in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// What was asked for last: a stack.
    NewestFirst,
    /// What was asked for first: a queue, to which Rapid DNS's section 10 wants the stack compared.
    OldestFirst,
}

/// What becomes of a key that is asked for while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// It moves to the top of its lane and now waits for who asked last.
    MoveToTop,
    /// It is kept twice, as Rapid DNS did; the second is found known when it is popped.
    Keep,
}

/// How many lanes are remembered as served in one round. A round in which new lanes keep coming ends there, so that
/// the memory is bounded and busy lanes get their next turn.
const ROUND_MAX: usize = 4096;

/// How many clients are gone over for one whose last key is of a lane that is open.
const CLIENTS_MAX: usize = 16;

/// Keys that wait to be asked for.
#[derive(Debug)]
pub struct Waiting<K, L, C> {
    limits: Limits,
    nodes: Vec<Node<K, L, C>>,
    free: Vec<u32>,
    /// Where a key waits; empty with [`Repeats::Keep`].
    places: HashMap<K, u32>,
    lanes: HashMap<L, Lane>,
    clients: HashMap<C, Client>,
    /// Clients that wait for their turn, the next one first.
    turns: BTreeMap<u64, C>,
    turn: u64,
    /// Whether it is a client's turn, not a lane's.
    is_clients_turn: bool,
    /// Lanes with something in them, by when they were last pushed to: those of this round, those of the next.
    rounds: [BTreeSet<(u64, L)>; 2],
    /// Lanes with several keys, by their depth; of the equally deep, the one pushed to last is the first. A flood of keys
    /// here and there, which leaks all the time, leaves most lanes with one: those are in the rounds' order already.
    depths: BTreeSet<(usize, Reverse<u64>, L)>,
    served: usize,
    round: u64,
    pushes: u64,
    moved: u64,
    leaks: u64,
}

/// One waiting key, in two lists at once.
#[derive(Debug)]
struct Node<K, L, C> {
    key: K,
    lane: L,
    client: C,
    links: [Links; 2],
}

/// Neighbours in one list; [`NONE`] at its ends.
#[derive(Clone, Copy, Debug)]
struct Links {
    above: u32,
    below: u32,
}

/// The ends of one list.
#[derive(Clone, Copy, Debug)]
struct Ends {
    top: u32,
    bottom: u32,
    length: usize,
}

#[derive(Debug)]
struct Lane {
    ends: Ends,
    pushed: u64,
    /// The round in which it was last served; 0 for none.
    served: u64,
}

impl Lane {
    /// Its place among those with several keys; `None` where it is none of them.
    fn depth<L>(&self, name: L) -> Option<(usize, Reverse<u64>, L)> {
        (self.ends.length > 1).then_some((self.ends.length, Reverse(self.pushed), name))
    }
}

#[derive(Debug)]
struct Client {
    ends: Ends,
    turn: u64,
}

const NONE: u32 = u32::MAX;
const BY_LANE: usize = 0;
const BY_CLIENT: usize = 1;
const EMPTY: Ends = Ends { top: NONE, bottom: NONE, length: 0 };

impl<K: Copy + Eq + Hash, L: Copy + Ord + Hash, C: Copy + Eq + Hash> Waiting<K, L, C> {
    /// Stacks that nothing waits in.
    pub fn new(limits: Limits) -> Self {
        Waiting {
            limits,
            nodes: Vec::new(),
            free: Vec::new(),
            places: HashMap::new(),
            lanes: HashMap::new(),
            clients: HashMap::new(),
            turns: BTreeMap::new(),
            turn: 0,
            is_clients_turn: false,
            rounds: [BTreeSet::new(), BTreeSet::new()],
            depths: BTreeSet::new(),
            served: 0,
            round: 1,
            pushes: 0,
            moved: 0,
            leaks: 0,
        }
    }

    /// Puts `key` on top of its lane's stack.
    ///
    /// A key is of the same lane each time.
    pub fn push(&mut self, key: K, lane: L, client: C) {
        self.pushes += 1;
        if let Some(place) = self.places.get(&key).copied() {
            self.moved += 1;
            self.remove(place);
        }
        let is_full = self.len() >= self.limits.capacity.max(1);
        let deepest = self.deepest().filter(|_| is_full).map(|lane| self.lanes[lane].ends.bottom);
        let own = self.clients.get(&client).map(|client| client.ends);
        let own = own.filter(|own| own.length >= self.limits.per_client.max(1)).map(|own| own.bottom);
        // One leak is enough, and one that has its share takes none of another's.
        let is_own = |place: u32| self.nodes[place as usize].client == client;
        if let Some(place) = deepest.filter(|deepest| own.is_none() || is_own(*deepest)).or(own) {
            self.leak(place);
        }
        self.insert(key, lane, client);
    }

    /// Takes the top of the lane, or of the client's keys, whose turn it is; the bottom with [`Order::OldestFirst`].
    ///
    /// Lanes that are not `open` are passed over, and keep their turn; of those there may be a few only.
    pub fn pop(&mut self, open: impl Fn(&L) -> bool) -> Option<K> {
        let is_clients_turn = self.is_clients_turn;
        self.is_clients_turn = !is_clients_turn;
        let place = if is_clients_turn && self.clients.len() > 1 { self.of_client(&open) } else { None };
        let place = place.or_else(|| self.of_lane(&open))?;
        let key = self.nodes[place as usize].key;
        self.serve(place);
        self.remove(place);
        Some(key)
    }

    /// How many keys wait, in all lanes together.
    pub fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many lanes have keys that wait.
    pub fn lanes(&self) -> usize {
        self.rounds.iter().map(BTreeSet::len).sum()
    }

    /// How many keys were pushed since start, those that waited already included.
    pub fn pushed(&self) -> u64 {
        self.pushes
    }

    /// How many keys were pushed while they waited, and moved to the top, since start.
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// How many keys were dropped at the bottom since start.
    pub fn leaks(&self) -> u64 {
        self.leaks
    }

    /// The key of the lane whose turn it is.
    fn of_lane(&mut self, open: impl Fn(&L) -> bool) -> Option<u32> {
        if self.rounds[0].is_empty() || self.served >= ROUND_MAX {
            self.next_round();
        }
        let first = |round: &BTreeSet<(u64, L)>| round.iter().rev().map(|(_, lane)| *lane).find(&open);
        let lane = first(&self.rounds[0]).or_else(|| {
            self.next_round();
            first(&self.rounds[0])
        });
        Some(self.first(self.lanes.get(&lane?)?.ends))
    }

    /// The key of the client whose turn it is.
    fn of_client(&mut self, open: impl Fn(&L) -> bool) -> Option<u32> {
        let tops = self
            .turns
            .values()
            .filter_map(|client| Some((*client, self.first(self.clients.get(client)?.ends))));
        let (client, top) = tops.take(CLIENTS_MAX).find(|(_, top)| open(&self.nodes[*top as usize].lane))?;
        let state = self.clients.get_mut(&client)?;
        self.turns.remove(&state.turn);
        self.turn += 1;
        state.turn = self.turn;
        self.turns.insert(self.turn, client);
        Some(top)
    }

    fn first(&self, ends: Ends) -> u32 {
        match self.limits.order {
            Order::NewestFirst => ends.top,
            Order::OldestFirst => ends.bottom,
        }
    }

    /// Notes that a key's lane is served in this round.
    fn serve(&mut self, place: u32) {
        let name = self.nodes[place as usize].lane;
        let Some(lane) = self.lanes.get_mut(&name) else { return };
        if lane.served != self.round {
            // The key by which it is in this round's set must be taken out before it changes.
            self.rounds[0].remove(&(lane.pushed, name));
            self.rounds[1].insert((lane.pushed, name));
            lane.served = self.round;
            self.served += 1;
        }
    }

    /// The lane whose bottom leaks: the deepest; of the equally deep, the one that was pushed to longest ago.
    fn deepest(&self) -> Option<&L> {
        let oldest = || self.rounds.iter().filter_map(BTreeSet::first).min();
        self.depths.last().map(|(.., lane)| lane).or_else(|| oldest().map(|(_, lane)| lane))
    }

    fn leak(&mut self, place: u32) {
        self.leaks += 1;
        self.remove(place);
    }

    fn insert(&mut self, key: K, name: L, client: C) {
        let unlinked = Links { above: NONE, below: NONE };
        let node = Node { key, lane: name, client, links: [unlinked; 2] };
        let place = match self.free.pop() {
            Some(place) => {
                self.nodes[place as usize] = node;
                place
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        if self.limits.repeats == Repeats::MoveToTop {
            self.places.insert(key, place);
        }
        let lane = self.lanes.entry(name).or_insert(Lane { ends: EMPTY, pushed: 0, served: 0 });
        let round = &mut self.rounds[usize::from(lane.served == self.round)];
        if lane.ends.length > 0 {
            round.remove(&(lane.pushed, name));
        }
        if let Some(depth) = lane.depth(name) {
            self.depths.remove(&depth);
        }
        lane.pushed = self.pushes;
        link(&mut self.nodes, &mut lane.ends, place, BY_LANE);
        round.insert((lane.pushed, name));
        self.depths.extend(lane.depth(name));
        let client = self.clients.entry(client).or_insert_with(|| {
            self.turn += 1;
            self.turns.insert(self.turn, client);
            Client { ends: EMPTY, turn: self.turn }
        });
        link(&mut self.nodes, &mut client.ends, place, BY_CLIENT);
    }

    fn remove(&mut self, place: u32) {
        let Node { key, lane: name, client, .. } = self.nodes[place as usize];
        self.places.remove(&key);
        if let Some(Client { ends, turn }) = self.clients.get_mut(&client) {
            unlink(&mut self.nodes, ends, place, BY_CLIENT);
            if ends.length == 0 {
                self.turns.remove(turn);
                self.clients.remove(&client);
            }
        }
        if let Some(lane) = self.lanes.get_mut(&name) {
            if let Some(depth) = lane.depth(name) {
                self.depths.remove(&depth);
            }
            unlink(&mut self.nodes, &mut lane.ends, place, BY_LANE);
            self.depths.extend(lane.depth(name));
            if lane.ends.length == 0 {
                let served = lane.served == self.round;
                self.rounds[usize::from(served)].remove(&(lane.pushed, name));
                // One that had its turn is remembered for the round, or it could come back for another.
                if !served {
                    self.lanes.remove(&name);
                }
            }
        }
        self.free.push(place);
    }

    fn next_round(&mut self) {
        self.round += 1;
        self.served = 0;
        let next = std::mem::take(&mut self.rounds[1]);
        self.rounds[0].extend(next);
        self.lanes.retain(|_, lane| lane.ends.length > 0);
    }
}

fn link<K, L, C>(nodes: &mut [Node<K, L, C>], ends: &mut Ends, place: u32, list: usize) {
    nodes[place as usize].links[list] = Links { above: NONE, below: ends.top };
    match ends.top {
        NONE => ends.bottom = place,
        top => nodes[top as usize].links[list].above = place,
    }
    ends.top = place;
    ends.length += 1;
}

fn unlink<K, L, C>(nodes: &mut [Node<K, L, C>], ends: &mut Ends, place: u32, list: usize) {
    let Links { above, below } = nodes[place as usize].links[list];
    match above {
        NONE => ends.top = below,
        above => nodes[above as usize].links[list].below = below,
    }
    match below {
        NONE => ends.bottom = above,
        below => nodes[below as usize].links[list].above = above,
    }
    ends.length -= 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn waiting(capacity: usize, per_client: usize, repeats: Repeats) -> Waiting<u32, u32, u8> {
        Waiting::new(Limits { capacity, per_client, repeats, order: Order::NewestFirst })
    }

    fn popped(waiting: &mut Waiting<u32, u32, u8>) -> Vec<u32> {
        std::iter::from_fn(|| waiting.pop(|_| true)).collect()
    }

    #[test]
    fn last_in_first_out_and_the_bottom_leaks() {
        let mut one = waiting(3, 9, Repeats::Keep);
        for key in [1, 2, 3, 3, 4] {
            one.push(key, 0, 0);
        }
        assert_eq!((one.leaks(), popped(&mut one)), (2, vec![4, 3, 3]));
    }

    #[test]
    fn first_in_first_out_leaks_the_oldest_too() {
        let limits = Limits { capacity: 3, per_client: 9, repeats: Repeats::Keep, order: Order::OldestFirst };
        let mut one = Waiting::new(limits);
        for key in [1, 2, 3, 3, 4] {
            one.push(key, 0, 0);
        }
        assert_eq!((one.leaks(), popped(&mut one)), (2, vec![3, 3, 4]));
    }

    #[test]
    fn a_repeated_key_moves_to_the_top() {
        let mut one = waiting(3, 9, Repeats::MoveToTop);
        for key in [1, 2, 3, 1, 4] {
            one.push(key, 0, 0);
        }
        assert_eq!((one.leaks(), one.moved(), popped(&mut one)), (1, 1, vec![4, 1, 3]));
    }

    #[test]
    fn lanes_take_turns() {
        let mut lanes = waiting(9, 9, Repeats::MoveToTop);
        for (key, lane) in [(10, 1), (11, 1), (12, 1), (20, 2), (30, 3), (13, 1)] {
            lanes.push(key, lane, 0);
        }
        assert_eq!(popped(&mut lanes), [13, 30, 20, 12, 11, 10]);
    }

    #[test]
    fn a_lane_that_comes_back_waits_for_the_next_round() {
        let mut lanes = waiting(9, 9, Repeats::MoveToTop);
        lanes.push(20, 2, 0);
        lanes.push(10, 1, 0);
        assert_eq!(lanes.pop(|_| true), Some(10));
        lanes.push(11, 1, 0);
        assert_eq!(popped(&mut lanes), [20, 11]);
    }

    #[test]
    fn the_deepest_lane_leaks() {
        let mut lanes = waiting(4, 9, Repeats::MoveToTop);
        for (key, lane) in [(20, 2), (10, 1), (11, 1), (12, 1), (13, 1), (30, 3)] {
            lanes.push(key, lane, 0);
        }
        assert_eq!((lanes.leaks(), popped(&mut lanes)), (2, vec![30, 13, 20, 12]));
    }

    #[test]
    fn a_client_over_its_cap_loses_its_own_oldest() {
        let mut lanes = waiting(9, 2, Repeats::MoveToTop);
        for (key, client) in [(1, 1), (2, 2), (3, 2), (4, 2)] {
            lanes.push(key, 0, client);
        }
        assert_eq!((lanes.leaks(), popped(&mut lanes)), (1, vec![4, 1, 3]));
    }

    #[test]
    fn a_client_over_its_cap_takes_no_place_from_another_where_all_is_full() {
        let mut lanes = waiting(4, 2, Repeats::MoveToTop);
        for (key, lane, client) in [(1, 1, 1), (2, 1, 1), (3, 2, 2), (4, 3, 2), (5, 4, 2)] {
            lanes.push(key, lane, client);
        }
        assert_eq!(lanes.leaks(), 1);
        let mut left = popped(&mut lanes);
        left.sort_unstable();
        assert_eq!(left, [1, 2, 4, 5]);
    }

    #[test]
    fn of_lanes_that_are_as_deep_the_one_that_waited_longest_leaks() {
        let mut lanes = waiting(3, 9, Repeats::MoveToTop);
        for (key, lane) in [(20, 2), (90, 9), (30, 3), (40, 4)] {
            lanes.push(key, lane, 0);
        }
        assert_eq!((lanes.leaks(), popped(&mut lanes)), (1, vec![40, 30, 90]));
    }

    #[test]
    fn a_closed_lane_keeps_its_turn() {
        let mut lanes = waiting(9, 9, Repeats::MoveToTop);
        for (key, lane, client) in [(10, 1, 0), (11, 1, 0), (20, 2, 0), (30, 3, 0), (31, 3, 1)] {
            lanes.push(key, lane, client);
        }
        let taken =
            [lanes.pop(|lane| *lane != 3), lanes.pop(|lane| *lane == 1), lanes.pop(|lane| *lane == 2)];
        assert_eq!(taken, [Some(20), Some(11), None]);
        assert_eq!(popped(&mut lanes), [30, 10, 31]);
    }

    #[test]
    fn a_client_that_floods_all_lanes_leaves_another_its_turns() {
        let mut lanes = waiting(99, 50, Repeats::MoveToTop);
        lanes.push(1, 1, 1);
        lanes.push(2, 1, 1);
        for flood in 1000..1200 {
            lanes.push(flood, flood, 2);
        }
        let first: Vec<u32> = popped(&mut lanes).into_iter().take(6).collect();
        assert_eq!(first, [1199, 2, 1198, 1197, 1196, 1]);
    }

    proptest! {
        /// With one lane and one client, this is a plain vector.
        #[test]
        fn one_lane_is_a_stack(keys in proptest::collection::vec(0..20u32, 0..200), keep in any::<bool>()) {
            let repeats = if keep { Repeats::Keep } else { Repeats::MoveToTop };
            let mut ours = waiting(8, 99, repeats);
            let mut model: Vec<u32> = Vec::new();
            for key in keys {
                if key == 0 {
                    prop_assert_eq!(ours.pop(|_| true), model.pop());
                    continue;
                }
                ours.push(key, 0, 0);
                if !keep {
                    model.retain(|k| *k != key);
                }
                model.push(key);
                if model.len() > 8 {
                    model.remove(0);
                }
            }
            model.reverse();
            prop_assert_eq!(popped(&mut ours), model);
        }

        #[test]
        fn what_leaks_is_the_bottom_of_the_deepest_lane(
            pushes in proptest::collection::vec((0..60u32, any::<bool>()), 0..300),
        ) {
            let mut ours = waiting(8, 99, Repeats::MoveToTop);
            // When each lane was last pushed to, and its keys, the oldest first.
            let mut model = [const { (0, Vec::new()) }; 11];
            for (at, (key, pop)) in pushes.into_iter().enumerate() {
                let lane = key as usize % model.len();
                model[lane].1.retain(|waits| *waits != key);
                if model.iter().map(|(_, keys)| keys.len()).sum::<usize>() == 8 {
                    let deepest = model.iter_mut().max_by_key(|(pushed, keys)| (keys.len(), Reverse(*pushed)));
                    deepest.expect("there are lanes").1.remove(0);
                }
                model[lane].0 = at;
                model[lane].1.push(key);
                ours.push(key, lane as u32, 0);
                if pop && let Some(popped) = ours.pop(|_| true) {
                    model[popped as usize % model.len()].1.retain(|waits| *waits != popped);
                }
                let mut expected: Vec<u32> = model.iter().flat_map(|(_, keys)| keys).copied().collect();
                let mut waits: Vec<u32> = ours.places.keys().copied().collect();
                expected.sort_unstable();
                waits.sort_unstable();
                prop_assert_eq!(waits, expected);
                prop_assert_eq!(ours.lanes(), model.iter().filter(|(_, keys)| !keys.is_empty()).count());
            }
        }

        #[test]
        fn nothing_is_lost_uncounted_and_all_bounds_hold(
            pushes in proptest::collection::vec((0..50u32, 0..5u8, any::<bool>()), 0..300),
            keep in any::<bool>(),
        ) {
            let repeats = if keep { Repeats::Keep } else { Repeats::MoveToTop };
            let mut ours = waiting(12, 5, repeats);
            let mut taken = 0;
            for (key, client, pop) in pushes {
                ours.push(key, key % 7, client);
                prop_assert!(ours.len() <= 12 && ours.lanes() <= ours.len());
                prop_assert!(ours.clients.values().all(|client| client.ends.length <= 5));
                prop_assert_eq!(ours.turns.len(), ours.clients.len());
                if pop {
                    taken += u64::from(ours.pop(|lane| lane % 3 != 0).is_some());
                }
            }
            prop_assert_eq!(ours.pushed(), ours.moved() + ours.leaks() + taken + ours.len() as u64);
            popped(&mut ours);
            prop_assert!(ours.clients.is_empty() && ours.turns.is_empty() && ours.places.is_empty() && ours.depths.is_empty());
            prop_assert!(ours.rounds.iter().all(BTreeSet::is_empty));
        }
    }
}
