//! What waits, and when the next question is due.

use std::hash::Hash;
use std::time::Duration;

use crate::pacer::Pacer;
use crate::waiting::{Limits, Waiting};

/// Notes what is to be learned and says what to ask next.
#[derive(Debug)]
pub struct Learner<K, L, C> {
    waiting: Waiting<K, L, C>,
    pacer: Pacer,
    hits: u64,
    questions: u64,
}

/// What [`Learner::next`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<K> {
    /// Ask for this now: the interval is spent.
    Ask(K),
    /// Something may wait, but the next question is due only after this long.
    Wait(Duration),
    /// Nothing waits that may be asked for.
    Idle,
}

impl<K: Copy + Eq + Hash, L: Copy + Ord + Hash, C: Copy + Eq + Hash> Learner<K, L, C> {
    /// A learner that nothing waits in.
    pub fn new(limits: Limits, pacer: Pacer) -> Self {
        Learner { waiting: Waiting::new(limits), pacer, hits: 0, questions: 0 }
    }

    /// Notes `key`, which belongs to `lane` and was asked for by `client`.
    pub fn ask(&mut self, key: K, lane: L, client: C) {
        self.waiting.push(key, lane, client);
    }

    /// Takes the next key to be asked for.
    ///
    /// Lanes that are not `open` are passed over for now; of those there may be a few only. Keys that `known` finds
    /// known meanwhile are back-end hits: they are passed over, counted, and cost no interval.
    pub fn next(
        &mut self,
        now: Duration,
        open: impl Fn(&L) -> bool,
        mut known: impl FnMut(&K) -> bool,
    ) -> Next<K> {
        let wait = self.pacer.wait(now);
        if !wait.is_zero() && !self.waiting.is_empty() {
            return Next::Wait(wait);
        }
        // Ends, for each turn takes one off the bounded stacks.
        while let Some(key) = self.waiting.pop(&open) {
            if known(&key) {
                self.hits += 1;
                continue;
            }
            let taken = self.pacer.take(now);
            debug_assert!(taken, "there was no wait");
            self.questions += 1;
            return Next::Ask(key);
        }
        Next::Idle
    }

    /// Spends an interval on a question of another origin, such as a retry; false where none is due yet.
    pub fn spend(&mut self, now: Duration) -> bool {
        let taken = self.pacer.take(now);
        self.questions += u64::from(taken);
        taken
    }

    /// How long until the next question may be asked.
    pub fn wait(&self, now: Duration) -> Duration {
        self.pacer.wait(now)
    }

    /// How long until an interval may be spent on what nobody waits for: until the bucket is full.
    pub fn spare(&self, now: Duration) -> Duration {
        self.pacer.full(now)
    }

    /// The keys that wait, and their counts.
    pub fn waiting(&self) -> &Waiting<K, L, C> {
        &self.waiting
    }

    /// Keys that were known when their turn came: back-end hits.
    pub fn hits(&self) -> u64 {
        self.hits
    }

    /// Intervals that were spent since start, each on one question.
    pub fn questions(&self) -> u64 {
        self.questions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waiting::{Order, Repeats};
    use proptest::prelude::*;
    use std::collections::HashMap;

    const MS: Duration = Duration::from_millis(1);

    fn learner(capacity: usize, repeats: Repeats) -> Learner<u32, u32, u8> {
        let limits = Limits { capacity, per_client: capacity, repeats, order: Order::NewestFirst };
        Learner::new(limits, Pacer::new(50 * MS, 1))
    }

    #[test]
    fn hits_cost_no_interval() {
        let mut learner = learner(64, Repeats::MoveToTop);
        for key in 0..10 {
            learner.ask(key, 0, 0);
        }
        assert_eq!(learner.next(50 * MS, |_| true, |key| *key > 3), Next::Ask(3));
        assert_eq!(learner.hits(), 6);
        assert_eq!(learner.next(60 * MS, |_| true, |_| false), Next::Wait(40 * MS));
        assert_eq!(learner.next(100 * MS, |_| true, |_| true), Next::Idle);
        assert_eq!((learner.hits(), learner.questions()), (9, 1));
    }

    #[test]
    fn the_ceiling_is_the_reciprocal_of_the_interval() {
        // Figure 5: 90 ms, more misses than can be asked for, one minute.
        let limits =
            Limits { capacity: 4096, per_client: 4096, repeats: Repeats::Keep, order: Order::NewestFirst };
        let mut learner = Learner::<u32, (), ()>::new(limits, Pacer::new(90 * MS, 1));
        let mut asked = 0u64;
        for ms in 0..60_000u32 {
            if ms % 5 == 0 {
                learner.ask(ms, (), ());
            }
            asked += u64::from(matches!(learner.next(ms * MS, |_| true, |_| false), Next::Ask(_)));
        }
        assert_eq!(asked, 60_000u64.div_ceil(90));
        let left = learner.waiting().len() as u64;
        assert_eq!(learner.waiting().leaks(), 12_000 - asked - left);
    }

    #[test]
    fn a_flooder_in_one_lane_does_not_starve_another() {
        // 20,000 new addresses a second in one lane, against one a second in another.
        let mut learner = learner(4096, Repeats::MoveToTop);
        let mut worst = Duration::ZERO;
        let mut since = HashMap::new();
        for ms in 0..10_000u32 {
            for i in 0..20 {
                learner.ask(1_000_000 + ms * 20 + i, 1, 1);
            }
            if ms % 1000 == 0 {
                learner.ask(ms, 2, 2);
                since.insert(ms, ms);
            }
            if let Next::Ask(key) = learner.next(ms * MS, |_| true, |_| false)
                && let Some(at) = since.remove(&key)
            {
                worst = worst.max((ms - at) * MS);
            }
        }
        assert!(since.is_empty(), "all of the quiet lane were asked for");
        assert!(worst <= 100 * MS, "after two intervals at most, not {worst:?}");
    }

    proptest! {
        #[test]
        fn what_is_asked_was_noted_and_is_not_known(
            asks in proptest::collection::vec((0..40u32, 0..4u32, 0..3u8, 0..30u32), 1..300),
            keep in any::<bool>(),
        ) {
            let mut learner = learner(16, if keep { Repeats::Keep } else { Repeats::MoveToTop });
            let (mut now, mut noted) = (0, std::collections::HashSet::new());
            for (key, lane, client, step) in asks {
                now += step;
                learner.ask(key, lane, client);
                noted.insert(key);
                if let Next::Ask(key) = learner.next(now * MS, |_| true, |key| key % 3 == 0) {
                    prop_assert!(noted.contains(&key) && key % 3 != 0);
                }
                prop_assert!(learner.questions() <= u64::from(1 + now / 50));
            }
            let counts = learner.waiting();
            let (pushed, left) = (counts.pushed(), counts.len() as u64);
            prop_assert_eq!(pushed, counts.moved() + counts.leaks() + learner.hits() + learner.questions() + left);
        }
    }
}
