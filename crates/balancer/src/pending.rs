//! Queries that wait for a back end's reply: found by socket and id, and in the order of their timeouts.
//!
//! All memory is taken at the beginning, but for the messages', which grow to the longest that a place has held. A query
//! that has timed out keeps its id for a while: a reply to it is late, not alien, and its id is not another's
//! meanwhile. Where the query went on to another back end, the late one leads there.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dns::query::HEADER;
use dns::relay::Added;
use fastrand::Rng;
use routing::balance::Set;

use crate::message::answers;

/// How often a random id is drawn for a socket before it counts as having none left.
pub const ID_DRAWS_MAX: usize = 16;

/// The most that one socket may have waiting: with a quarter of all ids in use, sixteen draws fail once in four billion.
pub const PER_SOCKET_MAX: u32 = 1 << 14;

/// How long a query that has timed out keeps its id, in nanoseconds: resolvers answer within two seconds or not at all.
pub const LATE_NS: u64 = 2_000_000_000;

/// None, where places follow each other.
const NONE: u32 = u32::MAX;

/// Where an answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct To {
    /// The client's address and port.
    pub client: SocketAddr,
    /// The address that it asked, where the socket does not say it.
    pub local: Option<IpAddr>,
    /// When its query came, as Unix time, where who watches is told of both.
    pub tapped: Option<Duration>,
}

/// Who is to get the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Where it goes.
    pub to: To,
    /// The id that the client gave, which the answer has again.
    pub id: u16,
    /// The place of the client in what counts queries by client.
    pub counted_at: u32,
    /// What was put into its query, and is to be taken out of the answer.
    pub added: Added,
}

/// A query that waits.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Who is to get the answer.
    pub asker: Asker,
    /// The message as it was sent.
    pub query: Vec<u8>,
    /// Where the question ends in it.
    pub question_end: usize,
    /// A hash of the question.
    pub key: u64,
    /// The pool whose back ends it may go to.
    pub pool: usize,
    /// Under what its answer may be kept; empty where it may not.
    pub cache_key: Vec<u8>,
    /// The place of the back end that it went to last.
    pub back_end: usize,
    /// The places of all back ends that it went to.
    pub tried: Set,
    /// How many were in flight there when it was sent, with it.
    pub load: u32,
    /// When it went there, in nanoseconds of the monotonic clock.
    pub sent_ns: u64,
    /// Whether its asker has an answer already, of a back end that was late.
    pub is_answered: bool,
    /// Which of all queries it is: places are used again.
    number: u64,
    /// Of one that is late: the place of the query itself.
    origin: u32,
    socket: u16,
    id: u16,
    state: State,
    before: u32,
    after: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Waits,
    IsLate,
}

/// A query in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index(pub(crate) u32);

/// Why a reply ends nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmatched {
    /// It is no response, or answers nothing that was asked over this socket.
    Alien,
    /// Its query has timed out; where that still waits for another back end and has no answer, this is it.
    Late(Option<Index>),
    /// It answers another question than its query asked.
    WrongQuestion,
}

/// Why a query cannot wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// All places are taken.
    Full,
    /// The socket has no id left.
    NoId,
}

/// All queries of one thread that wait.
#[derive(Debug)]
pub struct Pending {
    places: Vec<Waiting>,
    free: Vec<u32>,
    /// Open addressing by socket and id; a place's number or [`NONE`]. At least twice as many as places.
    ids: Vec<u32>,
    per_socket: Vec<u32>,
    waits: List,
    late: List,
    /// How many queries were taken.
    taken: u64,
}

/// The first and the last of those that follow each other.
#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
    length: usize,
}

impl Pending {
    /// Room for so many queries over so many sockets.
    pub fn new(places: usize, sockets: usize) -> Pending {
        let places = places.clamp(1, 1 << 24);
        let empty = Waiting {
            asker: Asker {
                to: To { client: ([0, 0, 0, 0], 0).into(), local: None, tapped: None },
                id: 0,
                counted_at: 0,
                added: Added::Nothing,
            },
            query: Vec::new(),
            question_end: 0,
            key: 0,
            pool: 0,
            cache_key: Vec::new(),
            back_end: 0,
            tried: Set::EMPTY,
            load: 0,
            sent_ns: 0,
            is_answered: false,
            number: 0,
            origin: NONE,
            socket: 0,
            id: 0,
            state: State::Free,
            before: NONE,
            after: NONE,
        };
        let list = List { first: NONE, last: NONE, length: 0 };
        Pending {
            places: vec![empty; places],
            free: (0..places as u32).rev().collect(),
            ids: vec![NONE; (places * 2).next_power_of_two()],
            per_socket: vec![0; sockets],
            waits: list,
            late: list,
            taken: 0,
        }
    }

    /// How many wait; those that have timed out do not.
    pub fn len(&self) -> usize {
        self.waits.length
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A place for a query of this asker; it waits once it was [`sent`](Self::sent).
    ///
    /// # Errors
    /// [`Refused::Full`].
    pub fn take(
        &mut self,
        asker: Asker,
        query: &[u8],
        question_end: usize,
        key: u64,
    ) -> Result<Index, Refused> {
        if self.free.is_empty() && self.late.first != NONE {
            self.release(self.late.first);
        }
        let place = self.free.pop().ok_or(Refused::Full)?;
        self.taken += 1;
        let waiting = &mut self.places[place as usize];
        (waiting.asker, waiting.is_answered, waiting.number) = (asker, false, self.taken);
        waiting.query.clear();
        waiting.query.extend_from_slice(query);
        waiting.cache_key.clear();
        (waiting.question_end, waiting.key, waiting.pool) = (question_end, key, 0);
        waiting.tried = Set::EMPTY;
        Ok(Index(place))
    }

    /// Gives a place back that was taken, and never sent.
    pub fn give_back(&mut self, index: Index) {
        self.free.push(index.0);
    }

    /// Draws an id for a query that goes out over this socket, and writes it into the message; from now on it waits.
    ///
    /// # Errors
    /// [`Refused::NoId`]; it does not wait then.
    pub fn sent(&mut self, index: Index, socket: u16, rng: &mut Rng) -> Result<(), Refused> {
        if self.per_socket[usize::from(socket)] >= PER_SOCKET_MAX {
            return Err(Refused::NoId);
        }
        for _ in 0..ID_DRAWS_MAX {
            let id = rng.u16(..);
            let (slot, found) = self.slot(socket, id);
            if found.is_some() {
                continue;
            }
            self.ids[slot] = index.0;
            self.per_socket[usize::from(socket)] += 1;
            let waiting = &mut self.places[index.0 as usize];
            (waiting.socket, waiting.id, waiting.state) = (socket, id, State::Waits);
            waiting.query[..2].copy_from_slice(&id.to_be_bytes());
            self.append(index.0, false);
            return Ok(());
        }
        Err(Refused::NoId)
    }

    /// Finds the query that a reply, which came over this socket, answers.
    ///
    /// # Errors
    /// [`Unmatched`].
    pub fn matching(&self, socket: u16, reply: &[u8]) -> Result<Index, Unmatched> {
        let header = reply.first_chunk::<HEADER>().ok_or(Unmatched::Alien)?;
        let is_response = header[2] & 0xf8 == 0x80;
        let id = u16::from_be_bytes([header[0], header[1]]);
        let (_, found) = self.slot(socket, id);
        let place = found.filter(|_| is_response).ok_or(Unmatched::Alien)?;
        let waiting = &self.places[place as usize];
        let is_same = answers(reply, &waiting.query, waiting.question_end);
        match (is_same, waiting.state) {
            (false, _) => Err(Unmatched::WrongQuestion),
            (true, State::Waits) => Ok(Index(place)),
            (true, _) => Err(Unmatched::Late(self.wanting(waiting))),
        }
    }

    /// The query that an answer to one that is late would still help.
    fn wanting(&self, late: &Waiting) -> Option<Index> {
        let query = self.places.get(late.origin as usize)?;
        let wants = query.number == late.number && query.state == State::Waits && !query.is_answered;
        wants.then_some(Index(late.origin))
    }

    /// The query in a place.
    pub fn get(&self, index: Index) -> &Waiting {
        &self.places[index.0 as usize]
    }

    /// The query in a place, to be changed.
    pub fn get_mut(&mut self, index: Index) -> &mut Waiting {
        &mut self.places[index.0 as usize]
    }

    /// A query no longer waits, and its id is free.
    pub fn end(&mut self, index: Index) {
        self.release(index.0);
    }

    /// The query that waits for a reply with this id over this socket.
    pub fn waiting_over(&self, socket: u16, id: u16) -> Option<Index> {
        let (_, found) = self.slot(socket, id);
        found.map(Index).filter(|index| self.waits_over(*index, socket))
    }

    /// Whether a query waits for a reply over this socket.
    pub fn waits_over(&self, index: Index, socket: u16) -> bool {
        let waiting = self.get(index);
        waiting.state == State::Waits && waiting.socket == socket
    }

    /// A query was not sent after all: it no longer waits, and keeps its place.
    pub fn unsent(&mut self, index: Index) {
        self.remove(index.0);
        self.remove_id(index.0);
        self.places[index.0 as usize].state = State::Free;
    }

    /// The first query that was sent before this time, if any still waits.
    pub fn first_sent_before(&self, time_ns: u64) -> Option<Index> {
        let first = self.places.get(self.waits.first as usize)?;
        (first.sent_ns < time_ns).then_some(Index(self.waits.first))
    }

    /// When the one that waits longest was sent.
    pub fn oldest_ns(&self) -> Option<u64> {
        self.places.get(self.waits.first as usize).map(|waiting| waiting.sent_ns)
    }

    /// A query has timed out: it no longer waits and keeps its place, and another place keeps its id, so that a reply
    /// is known to be late. Where there is no other place, the id is free.
    pub fn time_out(&mut self, index: Index) {
        if self.free.is_empty() && self.late.first != NONE {
            self.release(self.late.first);
        }
        self.remove(index.0);
        let here = index.0 as usize;
        self.places[here].state = State::Free;
        let Some(place) = self.free.pop() else { return self.remove_id(index.0) };
        let there = place as usize;
        // A late reply is held against the message, so both have it.
        let mut query = std::mem::take(&mut self.places[there].query);
        query.clone_from(&self.places[here].query);
        // It is kept under what stands at the query itself.
        let cache_key = std::mem::take(&mut self.places[there].cache_key);
        let (slot, _) = self.slot(self.places[here].socket, self.places[here].id);
        self.ids[slot] = place;
        self.places[there] =
            Waiting { query, cache_key, origin: index.0, state: State::IsLate, ..self.places[here] };
        self.append(place, true);
    }

    /// A query has timed out whose asker has an answer: it goes nowhere else, and a reply to it is late.
    pub fn lapse(&mut self, index: Index) {
        self.remove(index.0);
        let waiting = &mut self.places[index.0 as usize];
        (waiting.origin, waiting.state) = (NONE, State::IsLate);
        self.append(index.0, true);
    }

    /// Forgets those that timed out at a back end whose sockets are closed: what comes over others is no answer to
    /// them.
    pub fn forget_late_of(&mut self, back_end: usize) {
        let mut at = self.late.first;
        while let Some(late) = self.places.get(at as usize) {
            let (place, is_its) = (at, late.back_end == back_end);
            at = late.after;
            if is_its {
                self.release(place);
            }
        }
    }

    /// Forgets those that timed out so long ago that nobody answers any more.
    pub fn forget_late(&mut self, now_ns: u64, timeout_ns: u64) {
        while let Some(first) = self.places.get(self.late.first as usize) {
            if now_ns.saturating_sub(first.sent_ns) < timeout_ns + LATE_NS {
                return;
            }
            self.release(self.late.first);
        }
    }

    /// Those that wait for a back end, in the order in which they were sent.
    pub fn waiting_for(&self, back_end: usize) -> Vec<Index> {
        let (mut found, mut at) = (Vec::new(), self.waits.first);
        while let Some(waiting) = self.places.get(at as usize) {
            if waiting.back_end == back_end {
                found.push(Index(at));
            }
            at = waiting.after;
        }
        found
    }

    fn release(&mut self, place: u32) {
        self.remove(place);
        self.remove_id(place);
        self.places[place as usize].state = State::Free;
        self.free.push(place);
    }

    fn list(&mut self, is_late: bool) -> &mut List {
        if is_late { &mut self.late } else { &mut self.waits }
    }

    fn append(&mut self, place: u32, is_late: bool) {
        let last = self.list(is_late).last;
        self.places[place as usize].before = last;
        self.places[place as usize].after = NONE;
        match self.places.get_mut(last as usize) {
            Some(last) => last.after = place,
            None => self.list(is_late).first = place,
        }
        let list = self.list(is_late);
        list.last = place;
        list.length += 1;
    }

    fn remove(&mut self, place: u32) {
        let waiting = &self.places[place as usize];
        let (before, after, is_late) = (waiting.before, waiting.after, waiting.state == State::IsLate);
        match self.places.get_mut(before as usize) {
            Some(before) => before.after = after,
            None => self.list(is_late).first = after,
        }
        match self.places.get_mut(after as usize) {
            Some(after) => after.before = before,
            None => self.list(is_late).last = before,
        }
        self.list(is_late).length -= 1;
    }

    /// Where socket and id stand, or would; and the place that has them.
    fn slot(&self, socket: u16, id: u16) -> (usize, Option<u32>) {
        let mask = self.ids.len() - 1;
        let mut slot = home(socket, id) & mask;
        loop {
            let Some(waiting) = self.places.get(self.ids[slot] as usize) else { return (slot, None) };
            if (waiting.socket, waiting.id) == (socket, id) {
                return (slot, Some(self.ids[slot]));
            }
            slot = (slot + 1) & mask;
        }
    }

    fn remove_id(&mut self, place: u32) {
        let waiting = &self.places[place as usize];
        let socket = waiting.socket;
        let (mut gap, found) = self.slot(socket, waiting.id);
        if found != Some(place) {
            return;
        }
        self.per_socket[usize::from(socket)] -= 1;
        let mask = self.ids.len() - 1;
        let mut slot = gap;
        // Those behind move up, unless they would come before where they begin to be looked for.
        loop {
            slot = (slot + 1) & mask;
            let Some(waiting) = self.places.get(self.ids[slot] as usize) else { break };
            let home = home(waiting.socket, waiting.id) & mask;
            if (slot.wrapping_sub(home) & mask) >= (slot.wrapping_sub(gap) & mask) {
                self.ids[gap] = self.ids[slot];
                gap = slot;
            }
        }
        self.ids[gap] = NONE;
    }
}

/// Where the search for socket and id begins: ids are random, so they are spread as they are.
fn home(socket: u16, id: u16) -> usize {
    (u32::from(id) ^ u32::from(socket).wrapping_mul(0x9e37_79b1)) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use fastrand::Rng;
    use proptest::prelude::*;

    impl Index {
        /// One for whoever only passes it on.
        pub(crate) const ANY: Index = Index(0);
    }

    /// A query for `aN.` and where its question ends.
    fn query(number: u8) -> (Vec<u8>, usize) {
        let mut message =
            vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, b'a', b'a' + number % 26, 0, 0, 1, 0, 1];
        let end = message.len();
        message.extend_from_slice(&[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
        (message, end)
    }

    fn asker(id: u16) -> Asker {
        let to = To { client: ([192, 0, 2, 1], 5353).into(), local: None, tapped: None };
        Asker { to, id, counted_at: 0, added: Added::Nothing }
    }

    fn sent(pending: &mut Pending, number: u8, socket: u16, now: u64, rng: &mut Rng) -> Index {
        let (message, end) = query(number);
        let index = pending.take(asker(7), &message, end, 1).expect("a place");
        pending.get_mut(index).sent_ns = now;
        pending.sent(index, socket, rng).expect("an id");
        index
    }

    fn reply(pending: &Pending, index: Index) -> Vec<u8> {
        let mut reply = pending.get(index).query.clone();
        reply[2] |= 0x80;
        reply
    }

    #[test]
    fn only_the_answer_to_the_question_over_its_socket_matches() {
        let mut rng = Rng::with_seed(1);
        let mut pending = Pending::new(4, 2);
        let index = sent(&mut pending, 0, 1, 5, &mut rng);
        let good = reply(&pending, index);
        let check = |socket, change: &dyn Fn(&mut Vec<u8>), expected| {
            let mut reply = good.clone();
            change(&mut reply);
            assert_eq!(pending.matching(socket, &reply), expected, "{reply:?}");
        };
        check(1, &|_| {}, Ok(index));
        check(1, &|reply| reply[13] = b'A', Ok(index));
        check(1, &|reply| reply[3] |= 2, Ok(index));
        check(0, &|_| {}, Err(Unmatched::Alien));
        check(1, &|reply| reply[0] ^= 1, Err(Unmatched::Alien));
        check(1, &|reply| reply[2] &= 0x7f, Err(Unmatched::Alien));
        check(1, &|reply| reply[2] |= 0x28, Err(Unmatched::Alien));
        check(1, &|reply| reply.truncate(11), Err(Unmatched::Alien));
        check(1, &|reply| reply[13] = b'b', Err(Unmatched::WrongQuestion));
        check(1, &|reply| reply[17] = 28, Err(Unmatched::WrongQuestion));
        check(1, &|reply| reply[12] = 0xc0, Err(Unmatched::WrongQuestion));
        check(1, &|reply| reply.truncate(15), Err(Unmatched::WrongQuestion));
        let bare = |rcode, records, behind: &'static [u8]| {
            move |reply: &mut Vec<u8>| {
                reply.truncate(HEADER);
                reply.extend(behind);
                (reply[3], reply[5], reply[11]) = (rcode, 0, records);
            }
        };
        let opt = b"\0\0\x29\x04\xd0\0\0\0\0\0\0";
        check(1, &bare(1, 0, b""), Ok(index));
        check(1, &bare(1, 1, opt), Ok(index));
        check(1, &bare(0, 0, b""), Err(Unmatched::WrongQuestion));
        check(1, &bare(3, 1, opt), Err(Unmatched::WrongQuestion));
        check(1, &bare(1, 1, b"\0\0\x01\0\x01\0\0\0\0\0\0"), Err(Unmatched::WrongQuestion));
        check(1, &bare(1, 2, opt), Err(Unmatched::WrongQuestion));
    }

    #[test]
    fn a_query_that_times_out_is_late_for_a_while() {
        let mut rng = Rng::with_seed(1);
        let mut pending = Pending::new(2, 1);
        let index = sent(&mut pending, 0, 0, 5, &mut rng);
        let late = reply(&pending, index);
        assert_eq!((pending.first_sent_before(5), pending.first_sent_before(6)), (None, Some(index)));
        pending.time_out(index);
        assert_eq!(pending.matching(0, &late), Err(Unmatched::Late(None)));
        assert!(pending.is_empty());
        pending.get_mut(index).sent_ns = 9;
        pending.sent(index, 0, &mut rng).expect("an id");
        assert_eq!(pending.matching(0, &reply(&pending, index)), Ok(index));
        assert_eq!(pending.matching(0, &late), Err(Unmatched::Late(Some(index))));
        // Where there is no other place, those that are late give theirs.
        let third = sent(&mut pending, 1, 0, 10, &mut rng);
        assert_eq!(pending.matching(0, &late), Err(Unmatched::Alien));
        assert_eq!(pending.take(asker(1), &query(2).0, 20, 1), Err(Refused::Full));
        assert_eq!(pending.waiting_for(0), [index, third]);
        // With no place at all for the late one, it is forgotten at once.
        pending.time_out(third);
        pending.give_back(third);
        assert_eq!(pending.len(), 1);
    }

    #[test]
    fn what_is_late_leads_to_its_own_query_as_long_as_that_waits_for_an_answer() {
        let mut rng = Rng::with_seed(1);
        let mut pending = Pending::new(3, 1);
        let index = sent(&mut pending, 0, 0, 5, &mut rng);
        let late = reply(&pending, index);
        pending.time_out(index);
        pending.sent(index, 0, &mut rng).expect("an id");
        let second = reply(&pending, index);
        pending.time_out(index);
        pending.sent(index, 0, &mut rng).expect("an id");
        for late in [&late, &second] {
            assert_eq!(pending.matching(0, late), Err(Unmatched::Late(Some(index))));
        }
        pending.get_mut(index).is_answered = true;
        assert_eq!(pending.matching(0, &late), Err(Unmatched::Late(None)));
        let third = reply(&pending, index);
        pending.lapse(index);
        assert_eq!((pending.matching(0, &third), pending.len()), (Err(Unmatched::Late(None)), 0));
        // Its place is another query's now.
        pending.release(index.0);
        assert_eq!(sent(&mut pending, 0, 0, 9, &mut rng), index);
        assert_eq!(pending.matching(0, &late), Err(Unmatched::Late(None)));
        pending.forget_late_of(1);
        assert_eq!(pending.matching(0, &late), Err(Unmatched::Late(None)));
        pending.forget_late_of(0);
        for late in [&late, &second] {
            assert_eq!(pending.matching(0, late), Err(Unmatched::Alien));
        }
        assert_eq!(pending.len(), 1);
    }

    #[test]
    fn the_late_are_forgotten_in_time() {
        let mut rng = Rng::with_seed(1);
        let mut pending = Pending::new(4, 1);
        let index = sent(&mut pending, 0, 0, 5, &mut rng);
        let late = reply(&pending, index);
        pending.time_out(index);
        pending.give_back(index);
        pending.forget_late(5 + LATE_NS + 99, 100);
        assert_eq!(pending.matching(0, &late), Err(Unmatched::Late(None)));
        pending.forget_late(5 + LATE_NS + 100, 100);
        assert_eq!(pending.matching(0, &late), Err(Unmatched::Alien));
        assert_eq!(pending.free.len(), 4);
    }

    #[test]
    fn a_socket_runs_out_of_ids() {
        let mut rng = Rng::with_seed(1);
        let mut pending = Pending::new(PER_SOCKET_MAX as usize + 10, 2);
        for _ in 0..PER_SOCKET_MAX {
            sent(&mut pending, 0, 0, 1, &mut rng);
        }
        let (message, end) = query(0);
        let index = pending.take(asker(7), &message, end, 1).expect("a place");
        assert_eq!(pending.sent(index, 0, &mut rng), Err(Refused::NoId));
        assert_eq!(pending.sent(index, 1, &mut rng), Ok(()), "another socket has some");
    }

    proptest! {
        /// Whatever comes and goes, each query that waits is found by its reply, and nothing else is.
        #[test]
        fn what_waits_is_found(seed: u64, events in prop::collection::vec((0..4_u8, 0..40_usize), 1..300)) {
            let mut rng = Rng::with_seed(seed);
            let mut pending = Pending::new(32, 3);
            let mut model: HashMap<u32, Vec<u8>> = HashMap::new();
            let mut now = 0;
            for (event, number) in events {
                now += 1;
                let waiting: Vec<u32> = { let mut keys: Vec<u32> = model.keys().copied().collect(); keys.sort(); keys };
                match event {
                    0 | 1 => {
                        let (message, end) = query(number as u8);
                        let Ok(index) = pending.take(asker(7), &message, end, 1) else {
                            prop_assert_eq!(model.len(), 32);
                            continue;
                        };
                        pending.get_mut(index).sent_ns = now;
                        pending.sent(index, (number % 3) as u16, &mut rng).expect("an id");
                        model.insert(index.0, reply(&pending, index));
                    }
                    2 if !waiting.is_empty() => {
                        let place = waiting[number % waiting.len()];
                        pending.end(Index(place));
                        model.remove(&place);
                    }
                    3 if !waiting.is_empty() => {
                        let place = waiting[number % waiting.len()];
                        model.remove(&place);
                        pending.time_out(Index(place));
                        pending.give_back(Index(place));
                    }
                    _ => pending.forget_late(now + LATE_NS, 0),
                }
                prop_assert_eq!(pending.len(), model.len());
                for (place, reply) in &model {
                    let socket = pending.places[*place as usize].socket;
                    prop_assert_eq!(pending.matching(socket, reply), Ok(Index(*place)));
                }
            }
        }
    }
}
