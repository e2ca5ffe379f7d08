//! Queries and the responses that a trace has of them, found in constant memory.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::message::{Message, Transport, question};

/// How long after its query a response is looked for, by the trace's clock: resolvers have given up by then.
const RESPONSE_AFTER_MAX: Duration = Duration::from_secs(2);

/// The most queries that are held back: at a root server's 38,000 a second, four tenths of a second.
pub const QUERIES_MAX: usize = 16_384;

/// The most octets of messages that are held back, as responses over TCP may be long.
const OCTETS_MAX: usize = 64 << 20;

/// A line of queries in the trace's order, each held back until its response can have come.
///
/// Every query is held back for as long as every other, so that what comes out is as even as what goes in. A query
/// leaves before its time when [`QUERIES_MAX`] or 64 MiB are there; a response that comes later belongs to none.
#[derive(Debug, Default)]
pub struct Pairs {
    line: VecDeque<Pair>,
    /// The number of the first in the line.
    first: u64,
    /// Those that have no response yet, the oldest first.
    unanswered: HashMap<Key, VecDeque<Unanswered>>,
    octets: usize,
    /// The time of the last message.
    now: Duration,
    /// Responses that belong to no query in the line.
    pub unmatched: u64,
}

/// A query and its response, if the trace has one.
#[derive(Debug)]
pub struct Pair {
    /// The query.
    pub query: Arc<Message>,
    /// Its response.
    pub response: Option<Arc<Message>>,
}

/// What a query and its response have in common.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    client: SocketAddr,
    server: SocketAddr,
    transport: Transport,
    id: Option<[u8; 2]>,
}

/// A query in the line: its number, and its question where that can be read.
#[derive(Clone, Copy, Debug)]
struct Unanswered {
    number: u64,
    question: Option<u64>,
}

impl Pairs {
    /// Takes the next message of the trace.
    pub fn push(&mut self, message: Arc<Message>) {
        self.now = message.time;
        let (key, question) = (key(&message), question(&message.octets));
        if !message.is_response() {
            let number = self.first + self.line.len() as u64;
            self.unanswered.entry(key).or_default().push_back(Unanswered { number, question });
            self.octets += message.octets.len();
            self.line.push_back(Pair { query: message, response: None });
            return;
        }
        // A response without the question (FORMERR, NOTIMP) answers the oldest.
        let answers =
            |held: &Unanswered| question.is_none() || held.question.is_none() || held.question == question;
        let number = self.forget(&key, answers);
        match number.and_then(|number| self.line.get_mut((number - self.first) as usize)) {
            Some(held) => {
                self.octets += message.octets.len();
                held.response = Some(message);
            }
            None => self.unmatched += 1,
        }
    }

    /// The next query whose time has come, and its response.
    pub fn next_ripe(&mut self) -> Option<Pair> {
        let first = self.line.front()?;
        let is_ripe = self.line.len() > QUERIES_MAX
            || self.octets > OCTETS_MAX
            // A clock that was set back makes all ripe that stands before.
            || self.now.abs_diff(first.query.time) > RESPONSE_AFTER_MAX;
        if is_ripe { self.pop() } else { None }
    }

    /// The next query and its response, whether its time has come or not: the trace is at its end.
    pub fn pop(&mut self) -> Option<Pair> {
        let held = self.line.pop_front()?;
        let number = self.first;
        self.first += 1;
        self.octets -= held.query.octets.len() + held.response.as_ref().map_or(0, |held| held.octets.len());
        if held.response.is_none() {
            self.forget(&key(&held.query), |held| held.number == number);
        }
        Some(held)
    }

    /// Takes the oldest such from those of a key that have no response; returns its number.
    fn forget(&mut self, key: &Key, is_it: impl FnMut(&Unanswered) -> bool) -> Option<u64> {
        let unanswered = self.unanswered.get_mut(key)?;
        let oldest = unanswered.iter().position(is_it).and_then(|at| unanswered.remove(at));
        if unanswered.is_empty() {
            self.unanswered.remove(key);
        }
        oldest.map(|oldest| oldest.number)
    }
}

fn key(message: &Message) -> Key {
    Key {
        client: message.client,
        server: message.server,
        transport: message.transport,
        id: message.octets.first_chunk().copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of client 192.0.2.`client` at so many milliseconds; `mark` is the first octet of its name.
    fn message(millis: u64, client: u8, id: u8, mark: u8, is_response: bool) -> Arc<Message> {
        let mut octets = b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01".to_vec();
        (octets[1], octets[13]) = (id, mark);
        octets[2] |= u8::from(is_response) << 7;
        Arc::new(Message {
            time: Duration::from_millis(1_000_000 + millis),
            client: ([192, 0, 2, client], 5353).into(),
            server: ([192, 0, 2, 53], 53).into(),
            transport: Transport::Udp,
            octets,
        })
    }

    /// Whether each query got a response, in order.
    fn paired(messages: Vec<Arc<Message>>) -> (Vec<(u8, Option<u64>)>, u64) {
        let mut pairs = Pairs::default();
        let mut out = Vec::new();
        let told = |Pair { query, response }: Pair| {
            (query.octets[1], response.map(|response| response.time.as_millis() as u64 - 1_000_000))
        };
        for message in messages {
            pairs.push(message);
            out.extend(std::iter::from_fn(|| pairs.next_ripe()).map(told));
        }
        out.extend(std::iter::from_fn(|| pairs.pop()).map(told));
        assert!(pairs.unanswered.is_empty() && pairs.octets == 0 && pairs.line.is_empty());
        (out, pairs.unmatched)
    }

    #[test]
    fn responses_find_their_queries() {
        let (pairs, unmatched) = paired(vec![
            message(0, 1, 1, b'a', false),
            message(1, 2, 2, b'a', false),
            message(2, 1, 1, b'b', true),
            message(3, 2, 2, b'A', true),
            message(4, 1, 1, b'a', true),
            message(5, 1, 1, b'a', true),
        ]);
        assert_eq!((pairs, unmatched), (vec![(1, Some(4)), (2, Some(3))], 2));
    }

    #[test]
    fn a_response_without_a_question_is_of_its_id() {
        let mut formerr = message(2, 1, 1, b'a', true);
        let octets = &mut Arc::get_mut(&mut formerr).expect("it is ours alone").octets;
        octets.truncate(12);
        octets[5] = 0;
        let (pairs, unmatched) = paired(vec![
            message(0, 1, 2, b'a', false),
            message(1, 1, 1, b'a', false),
            formerr,
            message(3, 1, 2, b'a', true),
            message(4, 1, 1, b'a', true),
        ]);
        assert_eq!((pairs, unmatched), (vec![(2, Some(3)), (1, Some(2))], 1));
    }

    #[test]
    fn a_query_sent_again_has_a_response_of_its_own() {
        let again = |at, is_response| message(at, 1, 7, b'a', is_response);
        let (pairs, unmatched) =
            paired(vec![again(0, false), again(1, false), again(2, true), again(3, true)]);
        assert_eq!((pairs, unmatched), (vec![(7, Some(2)), (7, Some(3))], 0));
    }

    #[test]
    fn late_responses_belong_to_none_and_memory_is_bounded() {
        let (pairs, unmatched) = paired(vec![
            message(0, 1, 1, b'a', false),
            message(2_001, 1, 2, b'a', false),
            message(2_002, 1, 1, b'a', true),
            message(2_003, 1, 2, b'a', true),
        ]);
        assert_eq!((pairs, unmatched), (vec![(1, None), (2, Some(2_003))], 1));

        let mut pairs = Pairs::default();
        for at in 0..3 * QUERIES_MAX {
            pairs.push(message(0, at as u8, (at >> 8) as u8, b'a', false));
            while pairs.next_ripe().is_some() {}
            assert!(pairs.line.len() <= QUERIES_MAX);
        }
        assert_eq!(pairs.line.len(), QUERIES_MAX);
    }
}
