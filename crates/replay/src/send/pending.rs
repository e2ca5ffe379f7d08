//! Queries that were sent: which answer belongs to which, and when one is lost.

use std::collections::VecDeque;
use std::collections::hash_map::Entry::Occupied;

use net::udp::BATCH_MAX;

use super::carrier::Carrier;
use crate::schedule::Planned;
use crate::tables::Tables;

/// The most queries that a thread remembers, answered or not: about 60 MB. Beyond, the oldest is forgotten; if it was
/// not answered yet, it is lost before its time, which is counted.
pub(super) const REMEMBERED_MAX: usize = 1 << 18;

/// Where an answer must come from: an endpoint ([`super::sockets`]) and an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) endpoint: u64,
    pub(super) id: u16,
}

/// A query that was sent.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) planned: Planned,
    /// When the call began that sent it, or began its connection, in nanoseconds from the beginning.
    pub(super) sent: u64,
    /// When it is lost.
    pub(super) until: u64,
    pub(super) question: Option<u64>,
    /// It is asked again over TCP, as its answer was truncated.
    pub(super) is_retry: bool,
    /// How often it was asked again, for whatever reason.
    pub(super) again: u8,
    /// Its client had asked little before.
    pub(super) is_quiet: bool,
    /// What carries it.
    pub(super) carrier: Carrier,
    /// The slot of its socket, unless that is shared.
    pub(super) slot: Option<usize>,
}

/// What an answer is.
#[derive(Debug)]
pub(super) enum Match {
    /// The first to a query.
    First(Box<Asked>),
    /// One more to an answered query.
    Duplicate,
    /// To a query that was lost.
    Late,
    /// To nothing that is remembered.
    Alien,
}

#[derive(Debug)]
enum State {
    Waiting(Box<Asked>),
    Answered,
    Lost,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    until: u64,
    question: Option<u64>,
    state: State,
}

/// The last query of a key. Each id that is drawn is looked up here, and the queries themselves are far apart.
#[derive(Debug)]
struct Last {
    number: u64,
    waits: bool,
}

/// The queries that were sent last, oldest first.
///
/// All wait equally long, so that the oldest is lost first. What is answered or lost is remembered for as long again,
/// to tell duplicate and late answers.
#[derive(Debug)]
pub(super) struct Pending {
    /// With its room from the beginning, of which the system gives what is used: to grow by moving them all takes milliseconds,
    /// while queries are due.
    entries: VecDeque<Entry>,
    /// The number of the first entry.
    first: u64,
    /// The number of the first entry that may still wait.
    waiting_from: u64,
    by_key: Tables<Key, Last>,
    waiting: usize,
    timeout: u64,
}

impl Pending {
    pub(super) fn new(timeout: u64) -> Pending {
        Pending {
            entries: VecDeque::with_capacity(REMEMBERED_MAX + BATCH_MAX),
            first: 0,
            waiting_from: 0,
            by_key: Tables::new(),
            waiting: 0,
            timeout,
        }
    }

    /// How many wait for their answers.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether a query may use a key: no query that waits does.
    pub(super) fn is_free(&self, key: Key) -> bool {
        !self.by_key.of(&key).get(&key).is_some_and(|last| last.waits)
    }

    /// Adds a query under a key that is free.
    pub(super) fn add(&mut self, key: Key, asked: Box<Asked>) {
        let number = self.first + self.entries.len() as u64;
        self.by_key.of_mut(&key).insert(key, Last { number, waits: true });
        let (until, question) = (asked.until, asked.question);
        self.entries.push_back(Entry { key, until, question, state: State::Waiting(asked) });
        self.waiting += 1;
    }

    /// What waits under a key.
    pub(super) fn planned(&self, key: Key) -> Option<&Planned> {
        let number = self.by_key.of(&key).get(&key)?.number;
        match &self.entries[(number - self.first) as usize].state {
            State::Waiting(asked) => Some(&asked.planned),
            State::Answered | State::Lost => None,
        }
    }

    /// The query that waits under a key.
    pub(super) fn asked(&mut self, key: Key) -> Option<&mut Asked> {
        let number = self.by_key.of(&key).get(&key)?.number;
        match &mut self.entries[(number - self.first) as usize].state {
            State::Waiting(asked) => Some(asked),
            State::Answered | State::Lost => None,
        }
    }

    /// Takes an answer.
    pub(super) fn answer(&mut self, key: Key, fits: impl Fn(Option<u64>) -> bool) -> Match {
        let Some(last) = self.by_key.of_mut(&key).get_mut(&key) else { return Match::Alien };
        let entry = &mut self.entries[(last.number - self.first) as usize];
        if !fits(entry.question) {
            return Match::Alien;
        }
        last.waits = false;
        match std::mem::replace(&mut entry.state, State::Answered) {
            State::Waiting(asked) => {
                self.waiting -= 1;
                Match::First(asked)
            }
            State::Answered => Match::Duplicate,
            State::Lost => {
                entry.state = State::Lost;
                Match::Late
            }
        }
    }

    /// Gives a query up whose socket has failed.
    pub(super) fn fail(&mut self, key: Key) -> Option<Box<Asked>> {
        let number = self.by_key.of(&key).get(&key)?.number;
        self.lose(number)
    }

    /// The next query that is lost at `now`, or that must go for want of room, if it is found within `steps`, which are taken
    /// from; call it until there is none. A query takes two: one when it is lost or was answered, one when it is forgotten.
    pub(super) fn expire(&mut self, now: u64, steps: &mut usize) -> Option<(Box<Asked>, bool)> {
        loop {
            *steps = steps.checked_sub(1)?;
            let front = self.entries.front()?;
            let is_crowded = self.entries.len() > REMEMBERED_MAX;
            if is_crowded || now >= front.until.saturating_add(self.timeout) {
                let number = self.first;
                let lost = self.lose(number);
                let entry = self.entries.pop_front()?;
                self.first += 1;
                if let Occupied(last) = self.by_key.of_mut(&entry.key).entry(entry.key)
                    && last.get().number == number
                {
                    last.remove();
                }
                match lost {
                    Some(asked) => return Some((asked, is_crowded)),
                    None => continue,
                }
            }
            self.waiting_from = self.waiting_from.max(self.first);
            let entry = self.entries.get((self.waiting_from - self.first) as usize)?;
            if now < entry.until {
                return None;
            }
            self.waiting_from += 1;
            if let Some(asked) = self.lose(self.waiting_from - 1) {
                return Some((asked, false));
            }
        }
    }

    /// When the next query may be lost.
    pub(super) fn next_expiry(&self) -> Option<u64> {
        let from = self.waiting_from.max(self.first) - self.first;
        if self.waiting == 0 { None } else { self.entries.get(from as usize).map(|entry| entry.until) }
    }

    fn lose(&mut self, number: u64) -> Option<Box<Asked>> {
        let entry = &mut self.entries[(number - self.first) as usize];
        match std::mem::replace(&mut entry.state, State::Lost) {
            State::Waiting(asked) => {
                self.waiting -= 1;
                if let Some(last) = self.by_key.of_mut(&entry.key).get_mut(&entry.key)
                    && last.number == number
                {
                    last.waits = false;
                }
                Some(asked)
            }
            before => {
                entry.state = before;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Message, Transport};
    use std::sync::Arc;

    const TIMEOUT: u64 = 100;

    fn asked(sent: u64) -> Box<Asked> {
        let message = Message {
            time: std::time::Duration::ZERO,
            client: ([192, 0, 2, 1], 1).into(),
            server: ([192, 0, 2, 53], 53).into(),
            transport: Transport::Udp,
            octets: vec![0; 12],
        };
        Box::new(Asked {
            planned: Planned {
                due: sent,
                index: sent,
                client: 0,
                copy: 0,
                source: None,
                message: Arc::new(message),
                recorded: None,
            },
            sent,
            until: sent + TIMEOUT,
            question: Some(7),
            is_retry: false,
            again: 0,
            is_quiet: true,
            carrier: Carrier::Udp,
            slot: None,
        })
    }

    fn expire(pending: &mut Pending, now: u64) -> Option<(Box<Asked>, bool)> {
        pending.expire(now, &mut usize::MAX.clone())
    }

    fn key(id: u16) -> Key {
        Key { endpoint: 1, id }
    }

    #[test]
    fn answers_are_told_apart() {
        let mut pending = Pending::new(TIMEOUT);
        pending.add(key(1), asked(0));
        pending.add(key(2), asked(10));
        assert!(!pending.is_free(key(1)) && pending.is_free(key(3)));
        let right = |question| question == Some(7);
        assert!(matches!(pending.answer(key(3), right), Match::Alien));
        assert!(matches!(pending.answer(key(1), |_| false), Match::Alien));
        assert!(matches!(pending.answer(key(1), right), Match::First(asked) if asked.sent == 0));
        assert!(matches!(pending.answer(key(1), right), Match::Duplicate));
        assert!(pending.is_free(key(1)));
        assert_eq!((pending.waiting(), pending.next_expiry()), (1, Some(100)));
        assert!(expire(&mut pending, 109).is_none());
        assert!(matches!(expire(&mut pending, 110), Some((asked, false)) if asked.sent == 10));
        assert!(expire(&mut pending, 110).is_none());
        assert!(matches!(pending.answer(key(2), right), Match::Late));
        assert_eq!((pending.waiting(), pending.next_expiry()), (0, None));
        // As long again, then it is forgotten.
        assert!(expire(&mut pending, 210).is_none());
        assert!(matches!(pending.answer(key(2), right), Match::Alien));
        assert!(pending.by_key.len() == 0 && pending.entries.is_empty());
    }

    #[test]
    fn a_key_is_used_again_while_its_old_query_is_remembered() {
        let mut pending = Pending::new(TIMEOUT);
        pending.add(key(1), asked(0));
        assert!(matches!(pending.answer(key(1), |_| true), Match::First(_)));
        pending.add(key(1), asked(50));
        assert!(expire(&mut pending, 200 + 40).is_some_and(|(asked, _)| asked.sent == 50));
        assert!(matches!(pending.answer(key(1), |_| true), Match::Late));
    }

    #[test]
    fn a_failed_socket_gives_its_query_up() {
        let mut pending = Pending::new(TIMEOUT);
        pending.add(key(1), asked(0));
        assert!(pending.fail(key(1)).is_some_and(|asked| asked.sent == 0));
        assert!(pending.fail(key(1)).is_none() && pending.fail(key(2)).is_none());
        assert!(pending.is_free(key(1)));
        assert_eq!(pending.waiting(), 0);
    }

    #[test]
    fn a_turn_is_bounded() {
        let mut pending = Pending::new(TIMEOUT);
        for id in 0..10 {
            pending.add(key(id), asked(0));
        }
        for (now, steps, lost, left) in
            [(TIMEOUT, 4, 4, 10), (2 * TIMEOUT, 3, 0, 7), (2 * TIMEOUT, 100, 6, 0)]
        {
            let (mut steps, mut seen) = (steps, 0);
            while pending.expire(now, &mut steps).is_some() {
                seen += 1;
            }
            assert_eq!((seen, pending.entries.len()), (lost, left));
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut pending = Pending::new(TIMEOUT);
        for number in 0..REMEMBERED_MAX as u64 + 10 {
            pending.add(Key { endpoint: number, id: 0 }, asked(0));
        }
        let mut early = 0;
        while let Some((_, is_crowded)) = expire(&mut pending, 1) {
            early += u64::from(is_crowded);
        }
        assert_eq!((early, pending.entries.len()), (10, REMEMBERED_MAX));
    }
}
