//! Which questions were asked again over TCP lately: by us, as an answer over UDP was truncated, or as a client of the
//! recording did for the same reason. Of the two one is enough. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use crate::tables::Tables;

/// How long after a query over UDP the same over TCP is its retry, by the trace's clock: a response is its query's for as
/// long, and the retry follows at once.
const WITHIN: Duration = Duration::from_secs(2);

/// The most that are remembered, of those asked last: about 5 MB. Whose retry is forgotten asks twice.
const REMEMBERED_MAX: usize = 1 << 16;

/// A client, copies told apart, and the hash of a question.
type Key = (u64, u64);

/// What was asked over TCP.
#[derive(Debug)]
struct Last {
    number: u64,
    is_ours: bool,
    /// When the query over TCP was recorded; of a retry of ours, when that over UDP was.
    recorded: Duration,
}

/// What was asked over TCP lately.
#[derive(Debug)]
pub(super) struct Retries {
    by_key: Tables<Key, Last>,
    /// Oldest first, with the number of each.
    order: VecDeque<(Key, u64)>,
    added: u64,
}

impl Retries {
    /// Nothing was.
    pub(super) fn new() -> Retries {
        Retries { by_key: Tables::new(), order: VecDeque::new(), added: 0 }
    }

    /// A query that was recorded at `time` has a truncated answer: whether it is to be asked again, as its recorded retry was
    /// not sent before.
    pub(super) fn ours(&mut self, client: u64, question: u64, time: Duration) -> bool {
        self.take((client, question), true, time, |last| last.checked_sub(time))
    }

    /// A query over TCP that was recorded at `time` is due: whether it is to be sent, as it is no retry of what was asked
    /// again already.
    pub(super) fn recorded(&mut self, client: u64, question: u64, time: Duration) -> bool {
        self.take((client, question), false, time, |last| time.checked_sub(last))
    }

    /// Either takes the place of one of the other, once.
    fn take(
        &mut self,
        key: Key,
        is_ours: bool,
        recorded: Duration,
        after: impl Fn(Duration) -> Option<Duration>,
    ) -> bool {
        let by_key = self.by_key.of_mut(&key);
        let is_other = |last: &Last| {
            last.is_ours != is_ours && after(last.recorded).is_some_and(|after| after <= WITHIN)
        };
        if by_key.get(&key).is_some_and(is_other) {
            by_key.remove(&key);
            return false;
        }
        self.added += 1;
        by_key.insert(key, Last { number: self.added, is_ours, recorded });
        self.order.push_back((key, self.added));
        if self.order.len() > REMEMBERED_MAX
            && let Some((oldest, number)) = self.order.pop_front()
        {
            let by_key = self.by_key.of_mut(&oldest);
            if by_key.get(&oldest).is_some_and(|last| last.number == number) {
                by_key.remove(&oldest);
            }
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
        assert!(retries.ours(1, 7, s(10)));
        assert!(
            retries.recorded(2, 7, s(10)) && retries.recorded(1, 8, s(10)),
            "another client, another question"
        );
        assert!(!retries.recorded(1, 7, s(12)));
        assert!(retries.recorded(1, 7, s(12)), "it has taken one place");
        assert!(!retries.ours(1, 7, s(10)));
        assert!(retries.ours(1, 7, s(10)));
    }

    #[test]
    fn what_comes_before_or_much_later_is_no_retry() {
        let mut retries = Retries::new();
        assert!(retries.ours(1, 7, s(10)) && retries.recorded(1, 7, s(13)));
        assert!(retries.ours(1, 7, s(14)), "the one over TCP was before");
        assert!(retries.recorded(1, 7, s(13)), "that over UDP comes later");
    }

    #[test]
    fn memory_is_bounded() {
        let mut retries = Retries::new();
        for question in 0..=REMEMBERED_MAX as u64 {
            assert!(retries.ours(1, question, s(1)));
        }
        assert_eq!((retries.by_key.len(), retries.order.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
        assert!(retries.recorded(1, 0, s(1)) && !retries.recorded(1, 2, s(1)));
    }
}
