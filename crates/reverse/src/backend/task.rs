//! The task around the decisions: channels, the clock, sockets and the file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use net::clock::{Clock, Now};
use net::shutdown::Shutdown;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use super::counts::Counts;
use super::decisions::{BackEnd, Due, Question, seconds};
use super::upstreams::Upstreams;
use crate::cache::{self, Reader};
use crate::front::{RING_MAX, Seen, Wanted};
use crate::question::Answered;
use crate::upstream::{self, Ids};

/// How often one shard of the cache is swept: with 512 of them, all in less than a minute.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);

/// How many wanted addresses are noted between two questions.
const NOTED_MAX: usize = 1024;

/// Where the cache is kept between runs, and how often it is written there.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The file.
    pub path: PathBuf,
    /// From one snapshot to the next.
    pub interval: Duration,
}

/// What [`run()`] works with.
#[derive(Debug)]
pub struct Task {
    /// The decisions.
    pub back_end: BackEnd,
    /// The cache as it is read: for snapshots.
    pub reader: Reader,
    /// Where wanted addresses come from.
    pub wanted: mpsc::Receiver<Wanted>,
    /// Hits that were looked at more closely.
    pub seen: mpsc::Receiver<Seen>,
    /// Who is asked.
    pub upstreams: Upstreams,
    /// How long one question waits.
    pub timeout: Duration,
    /// Where the cache is kept.
    pub kept: Option<Kept>,
    /// Told each time something was learned.
    pub learned: Arc<Notify>,
    /// The time.
    pub clock: Clock,
}

/// What comes back from the task of a question.
type Flight = (usize, Question, Answered, Duration);

/// Learns until `shutdown` begins, and writes a last snapshot.
pub async fn run(mut task: Task, shutdown: Shutdown) {
    let ids = Arc::new(Ids::new());
    let mut flights: JoinSet<Flight> = JoinSet::new();
    let mut saving: JoinSet<()> = JoinSet::new();
    let mut noted = Vec::with_capacity(NOTED_MAX);
    let mut seen = Vec::with_capacity(RING_MAX);
    let mut sweeps = tokio::time::interval(SWEEP_INTERVAL);
    sweeps.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut saved = task.clock.now().monotonic;
    let mut ends = std::pin::pin!(shutdown.wait());
    loop {
        let wait = loop {
            match task.back_end.next(task.clock.now()) {
                Due::Now(question) => task.ask(question, &ids, &mut flights),
                Due::After(wait) => break Some(wait),
                Due::Later => break None,
            }
        };
        tokio::select! {
            () = &mut ends => break,
            Some(flight) = flights.join_next() => {
                if let Ok((index, question, answered, took)) = flight {
                    let now = task.clock.now();
                    task.upstreams.answered(index, &answered, took, now.monotonic);
                    task.back_end.answered(question, answered, now);
                    task.learned.notify_waiters();
                }
            }
            // None is left once every face has ended; then only the shutdown is waited for.
            count = task.wanted.recv_many(&mut noted, NOTED_MAX), if !task.wanted.is_closed() => {
                noted.drain(..count).for_each(|wanted| task.back_end.note(wanted));
            }
            count = task.seen.recv_many(&mut seen, RING_MAX), if !task.seen.is_closed() => {
                seen.drain(..count).for_each(|one| task.back_end.see(one));
            }
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            _ = sweeps.tick() => {
                let now = task.clock.now();
                // While a snapshot is read, names stay where they are.
                if saving.try_join_next().is_some() || saving.is_empty() {
                    task.back_end.sweep(now);
                }
                task.back_end.gauge();
                if let Some(kept) = &task.kept
                    && saving.is_empty()
                    && now.monotonic.saturating_sub(saved) >= kept.interval
                {
                    saved = now.monotonic;
                    let (view, path, counts) = (task.reader.view(), kept.path.clone(), task.back_end.counts().clone());
                    saving.spawn_blocking(move || save(&view, now, &path, &counts));
                }
            }
        }
    }
    while saving.join_next().await.is_some() {}
    task.back_end.gauge();
    if let Some(kept) = task.kept {
        let (view, now, counts) = (task.reader.view(), task.clock.now(), task.back_end.counts().clone());
        let _ = tokio::task::spawn_blocking(move || save(&view, now, &kept.path, &counts)).await;
    }
}

fn save(view: &cache::View, now: Now, path: &Path, counts: &Counts) {
    let saved = cache::snapshot::save(view, seconds(now), path);
    counts.snapshots[usize::from(saved.is_err())].fetch_add(1, Ordering::Relaxed);
    match saved {
        Ok(()) => tracing::info!(path = %path.display(), "the snapshot is written"),
        Err(cause) => {
            tracing::error!(path = %path.display(), %cause, "the snapshot was not written; the one before stays");
        }
    }
}

impl Task {
    fn ask(&mut self, question: Question, ids: &Arc<Ids>, flights: &mut JoinSet<Flight>) {
        let index = self.upstreams.next(self.clock.now().monotonic);
        let (upstream, counts) = self.upstreams.at(index);
        let (ids, wait, clock) = (ids.clone(), self.timeout, self.clock);
        counts.questions.fetch_add(1, Ordering::Relaxed);
        flights.spawn(async move {
            let begun = clock.now().monotonic;
            let answered =
                upstream::ask(upstream, question.address, &question.ask, ids.next(), wait, &counts).await;
            (index, question, answered, clock.now().monotonic.saturating_sub(begun))
        });
    }
}
