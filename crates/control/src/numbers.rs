//! What everybody may read of a running control process: its counts, and its last round.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use api::{ControlOutcome, ControlRound};
use net::clock::Clock;

/// What became of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A source told a value that can be a load.
    Measured,
    /// A source did not answer in time, or without a number.
    Failed,
    /// A source told what cannot be a load: a negative number, an infinity or NaN.
    Absurd,
    /// The server reported one by itself.
    Reported,
}

/// The words of [`Verdict`], in the order of its variants.
pub const VERDICTS: [&str; 4] = ["measured", "failed", "absurd", "reported"];

/// Counts since start, and the last round.
#[derive(Debug)]
pub struct Numbers {
    /// The clock of the process, whose monotonic time is since the start.
    pub clock: Clock,
    /// What became of requests to the face.
    pub http: Arc<web::Counters>,
    /// The names of the sources, each with how often it came to which verdict.
    sources: Vec<(String, [AtomicU64; VERDICTS.len()])>,
    rounds: [AtomicU64; ControlOutcome::ALL.len()],
    installed: AtomicU64,
    last: Mutex<Option<ControlRound>>,
}

impl Numbers {
    /// Numbers of a process that was started just now, with these sources.
    pub fn new(clock: Clock, sources: impl Iterator<Item = String>) -> Numbers {
        Numbers {
            clock,
            http: Arc::default(),
            sources: sources.map(|name| (name, Default::default())).collect(),
            rounds: Default::default(),
            installed: AtomicU64::new(0),
            last: Mutex::default(),
        }
    }

    /// Counts a measurement of a source.
    pub fn reading(&self, source: usize, verdict: Verdict) {
        self.sources[source].1[verdict as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a round, and keeps it as the last.
    pub fn round(&self, round: &ControlRound) {
        let place = ControlOutcome::ALL.iter().position(|outcome| *outcome == round.outcome);
        if let Some(count) = place.and_then(|place| self.rounds.get(place)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if round.outcome == ControlOutcome::Installed {
            self.installed.store(round.unix_seconds, Ordering::Relaxed);
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(round.clone());
    }

    /// How often each source came to which verdict.
    pub fn readings(&self) -> impl Iterator<Item = (&str, &'static str, u64)> {
        self.sources.iter().flat_map(|(name, counts)| {
            let words = VERDICTS.iter().zip(counts);
            words.map(move |(word, count)| (name.as_str(), *word, count.load(Ordering::Relaxed)))
        })
    }

    /// How many rounds came to which outcome.
    pub fn rounds(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let words = ControlOutcome::ALL.iter().zip(&self.rounds);
        words.map(|(outcome, count)| (outcome.word(), count.load(Ordering::Relaxed)))
    }

    /// When rows were last installed, in seconds since 1970; 0 for never.
    pub fn installed(&self) -> u64 {
        self.installed.load(Ordering::Relaxed)
    }

    /// The last round that came to an end; `None` before the first.
    pub fn last(&self) -> Option<ControlRound> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
