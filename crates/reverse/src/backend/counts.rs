//! What the back end counts: cells that the metrics and the log read.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use net::histogram::Histogram;

use crate::cache::Why;
use crate::question::Answered;

/// Upper bounds of how long questions took, in microseconds.
pub const TIMES_US: [u64; 14] = [
    200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000,
    5_000_000,
];

/// What the back end did, since start, and what it holds now.
#[derive(Debug, Default)]
pub struct Counts {
    /// Intervals spent, each on one question.
    pub questions: AtomicU64,
    /// The same by what they were asked for.
    pub asked: Asked,
    /// Questions that this machine had no socket for; each is asked again.
    pub unsent: AtomicU64,
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
    /// Prefixes that turned out to have no name in them.
    pub empty_prefixes: AtomicU64,
    /// Prefixes that turned out to have something.
    pub prefixes_in_use: AtomicU64,
    /// Prefixes that were said to have no name, in which one was known or found.
    pub contradicted: AtomicU64,
    /// Re-asked hits by what became of them.
    pub staleness: Staleness,
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
    /// Snapshots that were written.
    pub snapshots_written: AtomicU64,
    /// Snapshots that failed.
    pub snapshots_failed: AtomicU64,
}

/// Questions by what they were asked for.
#[derive(Debug, Default)]
pub struct Asked {
    /// An address was wanted.
    pub name: AtomicU64,
    /// A name that many ask for is about to expire.
    pub ahead: AtomicU64,
    /// Whether a name that was given is still right.
    pub sample: AtomicU64,
    /// Whether a name leads back.
    pub confirm: AtomicU64,
    /// Whether there is anything in a prefix.
    pub prefix: AtomicU64,
    /// Any of these, again.
    pub retry: AtomicU64,
}

/// What became of hits that were asked for again.
#[derive(Debug, Default)]
pub struct Staleness {
    /// The name was the same.
    pub same: AtomicU64,
    /// It was another.
    pub changed: AtomicU64,
    /// There is none any more.
    pub gone: AtomicU64,
    /// Nobody said.
    pub failed: AtomicU64,
}

/// What an upstream did, since start.
#[derive(Debug)]
pub struct UpstreamCounts {
    /// Questions that it was asked.
    pub questions: AtomicU64,
    /// Its answers that were a name, or said whether one leads back.
    pub names: AtomicU64,
    /// Its answers that there is nothing of that kind.
    pub no_names: AtomicU64,
    /// Its answers that were a name that is not kept.
    pub unusable: AtomicU64,
    /// Questions that failed, as [`Why::ALL`].
    pub failures: [AtomicU64; 5],
    /// Answers that were believed, by the rcode in their header.
    pub rcodes: [AtomicU64; 16],
    /// Answers that were cut, and asked for again over TCP.
    pub cut: AtomicU64,
    /// Answers that a question with EDNS was not understood, which was asked again without.
    pub not_understood: AtomicU64,
    /// Whether it was found not to take EDNS, and not to take it since, now.
    pub is_without_edns: AtomicBool,
    /// Answers with more records than [`crate::question::NAMES_MAX`].
    pub many: AtomicU64,
    /// Answers to questions that were never asked.
    pub foreign: AtomicU64,
    /// How long questions took until they were answered or given up, in microseconds.
    pub times: Histogram,
}

impl Default for UpstreamCounts {
    fn default() -> Self {
        UpstreamCounts {
            questions: AtomicU64::default(),
            names: AtomicU64::default(),
            no_names: AtomicU64::default(),
            unusable: AtomicU64::default(),
            failures: Default::default(),
            rcodes: Default::default(),
            cut: AtomicU64::default(),
            not_understood: AtomicU64::default(),
            is_without_edns: AtomicBool::default(),
            many: AtomicU64::default(),
            foreign: AtomicU64::default(),
            times: Histogram::new(&TIMES_US),
        }
    }
}

impl UpstreamCounts {
    /// What its answers meant, by the words of metrics and status.
    pub(crate) fn answers(&self) -> [(&'static str, &AtomicU64); 3] {
        [("name", &self.names), ("no_name", &self.no_names), ("unusable", &self.unusable)]
    }

    /// Why it gave none, by the same words: a name that is not kept is an answer.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (&'static str, &AtomicU64)> {
        let counted = Why::ALL.into_iter().zip(&self.failures);
        counted.filter(|(why, _)| *why != Why::Unusable).map(|(why, count)| (why.word(), count))
    }

    /// Counts how a question ended.
    pub(super) fn count(&self, answered: &Answered, took: Duration) {
        let add = |count: &AtomicU64| _ = count.fetch_add(1, Ordering::Relaxed);
        self.times.observe_time(took);
        match answered {
            Answered::Name(..) | Answered::Verdict(..) => add(&self.names),
            Answered::NoName(_) | Answered::Nothing(_) => add(&self.no_names),
            Answered::Unusable(_) => add(&self.unusable),
            Answered::Failed(why) => add(&self.failures[*why as usize]),
            // They end where they are asked.
            Answered::Truncated | Answered::Foreign | Answered::NotUnderstood => {
                add(&self.failures[Why::Malformed as usize]);
            }
        }
    }
}
