//! How fast a back end works off what it has: the time from one of its answers to the next, while it owes some.
//!
//! By Little's law a query waits for as many of these as are in flight. What is learned of latencies at different loads says
//! that too, and sooner; but where answers come in batches, as of a server with a quota, it is off by half for as long as
//! a queue takes to build up. And a server with a quota is as fast as any until it has used it up: what it does at rest says
//! nothing of what it does under load. So each answer counts by what was owed, and what was seen is forgotten by that, too:
//! within a tenth of a second where twenty are in flight, hardly where there is now and then one.

/// For how long what was seen counts, in nanoseconds for each that is in flight.
const MEMORY_NS: f32 = 2e9;

/// What was learned of one back end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// For how long it has owed answers, and how many came, each times what was in flight; older ones count less.
    owing_ns: f32,
    answers: f32,
    /// One by the other: it is asked for more often than it changes.
    ns: f32,
    /// Whether the last was a failure.
    has_failed: bool,
}

impl Pace {
    /// Nothing.
    pub const UNKNOWN: Pace = Pace { owing_ns: 0.0, answers: 0.0, ns: 0.0, has_failed: false };

    /// An answer has come to one of so many in flight, so long after the one before, or after the first query since nothing
    /// was in flight.
    #[inline]
    pub fn answered(&mut self, in_flight: u32, gap_ns: u64) {
        if std::mem::take(&mut self.has_failed) {
            *self = Pace::UNKNOWN;
        }
        self.observe(in_flight.max(1) as f32, gap_ns as f32);
    }

    /// A failure, which counts as so long. The first answer after it says how the back end is now, whatever was before.
    pub fn failed(&mut self, cost_ns: u64) {
        self.observe(1.0, cost_ns as f32);
        self.has_failed = true;
    }

    #[inline]
    fn observe(&mut self, in_flight: f32, gap_ns: f32) {
        let owed_ns = in_flight * gap_ns;
        let left = MEMORY_NS / (MEMORY_NS + owed_ns);
        self.owing_ns = self.owing_ns * left + owed_ns;
        self.answers = self.answers * left + in_flight;
        self.ns = self.owing_ns / self.answers;
    }

    /// From one answer to the next, in nanoseconds; 0 where nothing is known.
    #[inline]
    pub fn ns(&self) -> f32 {
        self.ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn it_is_time_by_answers_however_they_come() {
        let mut pace = Pace::UNKNOWN;
        assert_eq!(pace.ns(), 0.0);
        // Twenty at once every 100 ms.
        for _ in 0..50 {
            pace.answered(20, 100 * MS);
            (0..19).for_each(|_| pace.answered(20, 0));
        }
        assert!((pace.ns() / 1e6 - 5.0).abs() < 0.1, "{pace:?}");
    }

    #[test]
    fn what_was_seen_under_load_outlasts_a_rest() {
        let mut pace = Pace::UNKNOWN;
        (0..200).for_each(|_| pace.answered(20, 5 * MS));
        // A second in which one in ten milliseconds takes a quarter of one.
        (0..100).for_each(|_| pace.answered(1, MS / 4));
        assert!((3.0..5.0).contains(&(pace.ns() / 1e6)), "{pace:?}");
        // It is slower from now on.
        (0..50).for_each(|_| pace.answered(20, 20 * MS));
        assert!((15.0..20.0).contains(&(pace.ns() / 1e6)), "{pace:?}");
    }

    #[test]
    fn the_first_answer_after_failures_counts_alone() {
        let mut pace = Pace::UNKNOWN;
        (0..50).for_each(|_| pace.failed(1_000 * MS));
        assert!(pace.ns() > 500.0 * MS as f32);
        pace.answered(1, 2 * MS);
        assert_eq!(pace.ns(), 2.0 * MS as f32);
    }
}
