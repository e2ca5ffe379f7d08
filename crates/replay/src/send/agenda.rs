//! What is to happen later at a thread's sockets: octets on their way between a server and a distant client,
//! and the timers of QUIC.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::batch::Datagram;
use super::octets::Response;
use super::tally::Cause;

/// Things that may wait. Beyond, no query is sent and nothing is read from sockets until there is room again.
pub(super) const AGENDA_MAX: usize = 1 << 18;

/// What happens.
#[derive(Debug)]
pub(super) enum What {
    /// A datagram leaves for the server.
    Leaves(Box<(Datagram, Vec<u8>)>),
    /// An answer in a datagram is with its client; `None` where it was none.
    Heard(u64, Option<Response>),
    /// A client hears that its connection has come about.
    Opened,
    /// Octets of a stream, or a datagram, leave for the server.
    Out(Vec<u8>),
    /// Octets of a stream, or a datagram, are with their client.
    In(Vec<u8>),
    /// A client hears that its connection has ended.
    Ended(Cause),
    /// The time of a connection's timer has come.
    Timer,
    /// Nobody waits any longer for the answer to a query on a connection.
    GivenUp(u16),
}

/// All that waits on a thread, in order of time; of the same time, in the order in which it was put down.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    waiting: BinaryHeap<Reverse<Entry>>,
    entered: u64,
}

#[derive(Debug)]
struct Entry {
    at: u64,
    order: u64,
    token: u64,
    what: What,
}

impl Agenda {
    /// Puts down what happens at `at` to the socket of a token.
    pub(super) fn push(&mut self, at: u64, token: u64, what: What) {
        let order = self.entered;
        self.entered += 1;
        self.waiting.push(Reverse(Entry { at, order, token, what }));
    }

    /// Takes what is to happen by now: when it was to, at the socket of which token, and what.
    pub(super) fn pop(&mut self, now: u64) -> Option<(u64, u64, What)> {
        self.waiting.peek().filter(|next| next.0.at <= now)?;
        self.waiting.pop().map(|Reverse(entry)| (entry.at, entry.token, entry.what))
    }

    /// When the next thing is to happen.
    pub(super) fn next(&self) -> Option<u64> {
        self.waiting.peek().map(|next| next.0.at)
    }

    /// Whether nothing more may be put down by who can wait.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= AGENDA_MAX
    }
}

impl Entry {
    fn key(&self) -> (u64, u64) {
        (self.at, self.order)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_down_first_happens_first() {
        let mut agenda = Agenda::default();
        for (at, token) in [(5, 1), (3, 2), (5, 3), (4, 4)] {
            agenda.push(at, token, What::Opened);
        }
        assert_eq!(agenda.next(), Some(3));
        assert!(agenda.pop(2).is_none());
        let order: Vec<_> = std::iter::from_fn(|| agenda.pop(9).map(|(at, token, _)| (at, token))).collect();
        assert_eq!(order, [(3, 2), (4, 4), (5, 1), (5, 3)]);
        assert_eq!(agenda.next(), None);
    }
}
