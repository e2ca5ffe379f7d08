//! Which questions are asked again over TCP: by us, as an answer over UDP was truncated, or by a client of the
//! recording, for the same reason. Of the two one is enough. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long after a query over UDP the same over TCP is its retry, by the trace's clock: a response is its query's for as
/// long, and the retry follows at once.
const WITHIN: Duration = Duration::from_secs(2);

/// The most that are remembered, of those that came last: about 5 MB. Whose retry is forgotten asks twice.
const REMEMBERED_MAX: usize = 1 << 16;

/// A client, copies told apart; the hash of a question; and when it was recorded over TCP, or of a retry of ours,
/// over UDP.
type Key = (u64, u64, Duration);

/// What is asked over TCP about now.
#[derive(Debug)]
pub(super) struct Retries {
    /// Whether each is a retry of ours.
    are_ours: BTreeMap<Key, bool>,
    /// Oldest first.
    order: VecDeque<Key>,
}

impl Retries {
    /// Nothing is.
    pub(super) fn new() -> Retries {
        Retries { are_ours: BTreeMap::new(), order: VecDeque::new() }
    }

    /// A query that was recorded over UDP at `time` has a truncated answer: whether we are to ask again, as no retry
    /// was recorded that was or will be sent.
    pub(super) fn ours(&mut self, client: u64, question: u64, time: Duration) -> bool {
        self.take((client, question, time), true, (time, time.saturating_add(WITHIN)))
    }

    /// A query that was recorded over TCP at `time` was read: whether it is to be sent, as it is no retry of what we
    /// have asked again already.
    pub(super) fn recorded(&mut self, client: u64, question: u64, time: Duration) -> bool {
        self.take((client, question, time), false, (time.saturating_sub(WITHIN), time))
    }

    /// Either takes the place of one of the other, once.
    fn take(&mut self, key: Key, is_ours: bool, (from, to): (Duration, Duration)) -> bool {
        let (client, question, _) = key;
        let mut near = self.are_ours.range((client, question, from)..=(client, question, to));
        if let Some(other) = near.find(|(_, other)| **other != is_ours).map(|(key, _)| *key) {
            self.are_ours.remove(&other);
            return false;
        }
        self.are_ours.insert(key, is_ours);
        self.order.push_back(key);
        if self.order.len() > REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.are_ours.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn either_takes_the_place_of_the_other_once() {
        let mut retries = Retries::new();
        assert!(retries.recorded(1, 7, s(12)) && retries.recorded(1, 7, s(50)), "both are read ahead");
        assert!(retries.ours(2, 7, s(10)) && retries.ours(1, 8, s(10)), "another client, another question");
        assert!(!retries.ours(1, 7, s(10)));
        assert!(retries.ours(1, 7, s(10)), "it has taken one place");
        assert!(!retries.recorded(1, 7, s(11)) && retries.recorded(1, 7, s(11)));
        assert!(!retries.ours(1, 7, s(49)), "the other one has its own");
    }

    #[test]
    fn what_comes_before_or_much_later_is_no_retry() {
        let mut retries = Retries::new();
        assert!(retries.ours(1, 7, s(10)) && retries.recorded(1, 7, s(13)));
        assert!(retries.ours(1, 7, s(14)), "the one over TCP was before");
        assert!(retries.recorded(1, 7, s(9)), "that over UDP comes later");
    }

    #[test]
    fn memory_is_bounded() {
        let mut retries = Retries::new();
        for question in 0..=REMEMBERED_MAX as u64 {
            assert!(retries.ours(1, question, s(1)));
        }
        assert_eq!((retries.are_ours.len(), retries.order.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
        assert!(retries.recorded(1, 0, s(1)) && !retries.recorded(1, 2, s(1)));
    }
}
