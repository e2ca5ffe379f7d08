//! What the back end counts: cells that the metrics and the log read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::cache::Why;
use crate::histogram::Histogram;
use crate::question::Answered;

/// What questions are asked for, in the order of [`Counts::asked`].
///
/// The first three are [`crate::front::Purpose`]: an address was wanted; a name that many ask for is about to expire;
/// whether a name that was given is still right. `confirm`: whether a name leads back. `prefix`: whether there is
/// anything in a prefix. `retry`: any of these, again.
pub const PURPOSES: [&str; 6] = ["name", "ahead", "sample", "confirm", "prefix", "retry"];
pub(super) const CONFIRM: usize = 3;
pub(super) const PREFIX: usize = 4;
pub(super) const RETRY: usize = 5;

/// What became of re-asked hits, in the order of [`Counts::staleness`]: the name was the same, it was another, there
/// is none any more, and nobody said.
pub const STALENESS: [&str; 4] = ["same", "changed", "gone", "failed"];

/// Upper bounds of how long questions took, in milliseconds.
pub const TIMES_MS: [u64; 12] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000];

/// What the back end did, since start, and what it holds now.
#[derive(Debug, Default)]
pub struct Counts {
    /// Intervals spent, each on one question.
    pub questions: AtomicU64,
    /// The same by what they were asked for, as [`PURPOSES`].
    pub asked: [AtomicU64; 6],
    /// Addresses that were known when their turn came: back-end hits.
    pub hits: AtomicU64,
    /// Addresses dropped at the bottom of a stack.
    pub leaks: AtomicU64,
    /// Addresses that moved to the top because they were wanted again.
    pub moved: AtomicU64,
    /// Addresses that wait, now.
    pub depth: AtomicU64,
    /// Lanes in which some wait, now.
    pub lanes: AtomicU64,
    /// Addresses whose questions are under way, now.
    pub in_flight: AtomicU64,
    /// Names by what was found of whether they lead back, as [`crate::cache::Verdict::ALL`]: the first are those that
    /// nobody could tell of.
    pub verdicts: [AtomicU64; 3],
    /// Prefixes that turned out to have no name in them, and to have something.
    pub prefixes: [AtomicU64; 2],
    /// Prefixes without a name in which a name was found after all.
    pub contradicted: AtomicU64,
    /// Re-asked hits by what became of them, as [`STALENESS`].
    pub staleness: [AtomicU64; 4],
    /// Addresses that wait for an interval that nobody needs, to be asked for ahead of time or as samples, now.
    pub spare_depth: AtomicU64,
    /// Addresses that were dropped at the bottom of that stack.
    pub spare_leaks: AtomicU64,
    /// Entries in the cache, now.
    pub entries: AtomicU64,
    /// Octets of the cache, now.
    pub octets: AtomicU64,
    /// Entries that were taken out of the cache because they had expired.
    pub expired: AtomicU64,
    /// Entries that made room for others.
    pub evicted: AtomicU64,
    /// Entries that found no room for their name.
    pub no_room: AtomicU64,
    /// Snapshots that were written, and that failed.
    pub snapshots: [AtomicU64; 2],
}

/// What an upstream did, since start.
#[derive(Debug)]
pub struct UpstreamCounts {
    /// Questions that it was asked.
    pub questions: AtomicU64,
    /// What its answers meant: a name, or whether one leads back; nothing of that kind; a name that is not kept.
    pub answers: [AtomicU64; 3],
    /// Questions that failed, as [`Why::ALL`].
    pub failures: [AtomicU64; 5],
    /// Answers that were believed, by the rcode in their header.
    pub rcodes: [AtomicU64; 16],
    /// Answers that were cut, and asked for again over TCP.
    pub cut: AtomicU64,
    /// Answers with more records than [`crate::question::NAMES_MAX`].
    pub many: AtomicU64,
    /// Answers to questions that were never asked.
    pub foreign: AtomicU64,
    /// How long questions took until they were answered or given up, in milliseconds.
    pub times: Histogram,
}

impl Default for UpstreamCounts {
    fn default() -> Self {
        UpstreamCounts {
            questions: AtomicU64::default(),
            answers: Default::default(),
            failures: Default::default(),
            rcodes: Default::default(),
            cut: AtomicU64::default(),
            many: AtomicU64::default(),
            foreign: AtomicU64::default(),
            times: Histogram::new(&TIMES_MS),
        }
    }
}

impl UpstreamCounts {
    /// Counts how a question ended.
    pub(super) fn count(&self, answered: &Answered, took: Duration) {
        let add = |count: &AtomicU64| _ = count.fetch_add(1, Ordering::Relaxed);
        self.times.observe(took.as_millis() as u64);
        match answered {
            Answered::Name(..) | Answered::Verdict(..) => add(&self.answers[0]),
            Answered::NoName(_) | Answered::Nothing(_) => add(&self.answers[1]),
            Answered::Unusable(_) => add(&self.answers[2]),
            Answered::Failed(why) => add(&self.failures[*why as usize]),
            Answered::Truncated | Answered::Foreign => add(&self.failures[Why::Malformed as usize]),
        }
    }
}
