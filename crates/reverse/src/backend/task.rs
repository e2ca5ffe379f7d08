//! The task around the decisions: channels, the clock, sockets and the file.

use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use net::clock::Clock;
use net::shutdown::Shutdown;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::counts::Counts;
use super::decisions::{BackEnd, Due, Question, seconds};
use super::upstreams::{GONE_AFTER, Upstreams, WITHOUT_EDNS};
use crate::cache::{Reader, Why, snapshot};
use crate::ending::Ending;
use crate::front::{Seen, Wanted};
use crate::learned::Learned;
use crate::question::{Answered, Ask};
use crate::upstream::{Ids, Reply, Way};
use net::whole::{self, Resting};

/// How often one shard of the cache is begun to be swept: with 64 of them, all in about a minute.
const SWEEP_INTERVAL: Duration = Duration::from_millis(800);

/// From one time that it is told that questions cannot be sent to the next.
const TOLD_INTERVAL: Duration = Duration::from_secs(60);

/// How often the gauges are set, and looked whether a sweep or a snapshot is due.
const TURN: Duration = Duration::from_millis(100);

/// How often is looked for what faces left here, while they leave something, and a part of a shard is swept. Only what is
/// left after a look that found nothing wakes the back end: a flood of look-ups does not make a system call each.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// How many wanted addresses are noted at one look, about a microsecond each: a thread that answers may have to wait so
/// long for its core. What is beyond waits for the next look, and then at the door ([`DOOR_MAX`]).
///
/// [`DOOR_MAX`]: crate::front::DOOR_MAX
const NOTED_MAX: usize = 128;

/// Where the cache is kept between runs, and how often it is written there.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The snapshot's file, which is replaced whole.
    pub path: PathBuf,
    /// How long after one snapshot was begun the next one is.
    pub interval: Duration,
}

/// What [`run()`] works with.
#[derive(Debug)]
pub struct Task {
    /// What decides what is asked and kept.
    pub back_end: BackEnd,
    /// The cache as it is read: for snapshots.
    pub reader: Reader,
    /// Where wanted addresses come from.
    pub wanted: mpsc::Receiver<Wanted>,
    /// Hits that were looked at more closely.
    pub seen: mpsc::Receiver<Seen>,
    /// The resolvers that are asked, in turn.
    pub upstreams: Upstreams,
    /// How long one question waits for its answer, one over TCP included.
    pub timeout: Duration,
    /// Where the cache is kept between runs; `None` for nowhere.
    pub kept: Option<Kept>,
    /// Where it is told that something was learned.
    pub learned: Arc<Learned>,
    /// The clock by which questions are paced and entries expire.
    pub clock: Clock,
    /// When it was last told that questions cannot be sent.
    pub told_short: Option<Duration>,
}

/// What comes back from the task of a question; an error is what this machine lacked to ask it.
type Flight = (usize, Question, io::Result<Reply>, Duration);

/// Learns until `shutdown` begins, and writes a last snapshot; whether that was written, where one is wanted.
pub async fn run(mut task: Task, shutdown: Shutdown) -> bool {
    let ids = Arc::new(Ids::new());
    let mut flights: JoinSet<Flight> = JoinSet::new();
    let mut saving: JoinSet<()> = JoinSet::new();
    let mut turns = tokio::time::interval(TURN);
    turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut saved = task.clock.now().monotonic;
    let mut swept = saved;
    let mut ends = pin!(shutdown.wait());
    let (mut is_quiet, mut is_sweeping, mut look_at) = (false, false, Instant::now());
    loop {
        if Instant::now() >= look_at {
            let has_noted = task.look();
            // While a snapshot is read, names stay where they are.
            if is_sweeping && (saving.try_join_next().is_some() || saving.is_empty()) {
                is_sweeping = !task.back_end.sweep_part(task.clock.now());
            }
            is_quiet = !has_noted && !is_sweeping;
            look_at = Instant::now() + LOOK_INTERVAL;
        }
        let due = loop {
            match task.back_end.next(task.clock.now()) {
                Due::Now(question) => task.ask(question, &ids, &mut flights),
                Due::After(wait) => break Some(Instant::now() + wait),
                Due::Later => break None,
            }
        };
        let until = if is_quiet { due } else { Some(due.map_or(look_at, |due| due.min(look_at))) };
        tokio::select! {
            () = &mut ends => break,
            Some(flight) = flights.join_next() => {
                if let Ok(flight) = flight {
                    task.land(flight);
                }
            }
            Some(wanted) = task.wanted.recv(), if is_quiet => {
                task.back_end.note(wanted);
                is_quiet = false;
            }
            Some(seen) = task.seen.recv(), if is_quiet => {
                task.back_end.see(seen);
                is_quiet = false;
            }
            () = tokio::time::sleep_until(until.unwrap_or(look_at)), if until.is_some() => {}
            _ = turns.tick() => {
                let now = task.clock.now();
                task.back_end.gauge();
                if now.monotonic.saturating_sub(swept) >= SWEEP_INTERVAL {
                    (swept, is_sweeping, is_quiet) = (now.monotonic, true, false);
                }
                if let Some(kept) = &task.kept
                    && saving.is_empty()
                    && now.monotonic.saturating_sub(saved) >= kept.interval
                {
                    saved = now.monotonic;
                    let (view, path, counts) = (task.reader.view(), kept.path.clone(), task.back_end.counts().clone());
                    let ends = shutdown.clone();
                    let save = move || {
                        let write = |file: &File| {
                            snapshot::write(&view, seconds(now), Ending::new(Resting::new(file), ends.clone()))
                        };
                        let saved = whole::replace(&path, snapshot::MODE, write);
                        // The last one is written instead.
                        if saved.is_ok() || !ends.is_begun() {
                            note_saved(saved, &path, &counts, "it is written again after an interval");
                        }
                    };
                    saving.spawn_blocking(save);
                }
            }
        }
    }
    while saving.join_next().await.is_some() {}
    task.back_end.gauge();
    if let Some(kept) = task.kept {
        let (view, now, counts) = (task.reader.view(), task.clock.now(), task.back_end.counts().clone());
        let save = move || {
            let saved = snapshot::save(&view, seconds(now), &kept.path);
            note_saved(saved, &kept.path, &counts, "what was learned since is lost")
        };
        return tokio::task::spawn_blocking(save).await.unwrap_or(false);
    }
    true
}

/// Counts and logs what became of a snapshot; `otherwise` is what follows where it failed.
fn note_saved(saved: io::Result<()>, path: &Path, counts: &Counts, otherwise: &str) -> bool {
    let is_saved = saved.is_ok();
    let count = if is_saved { &counts.snapshots_written } else { &counts.snapshots_failed };
    count.fetch_add(1, Ordering::Relaxed);
    match saved {
        Ok(()) => tracing::info!(path = %path.display(), "the snapshot is written"),
        Err(cause) => {
            let path = path.display();
            tracing::error!(%path, %cause, "the snapshot was not written; the one before stays, and {otherwise}");
        }
    }
    is_saved
}

impl Task {
    /// Notes what faces left since the last look; false where that was nothing.
    fn look(&mut self) -> bool {
        let (mut wanted, mut seen) = (0, 0);
        while wanted < NOTED_MAX
            && let Ok(one) = self.wanted.try_recv()
        {
            self.back_end.note(one);
            wanted += 1;
        }
        while seen < NOTED_MAX
            && let Ok(one) = self.seen.try_recv()
        {
            self.back_end.see(one);
            seen += 1;
        }
        wanted + seen > 0
    }

    fn ask(&mut self, question: Question, ids: &Arc<Ids>, flights: &mut JoinSet<Flight>) {
        let begun = self.clock.now().monotonic;
        let index = self.upstreams.next(begun);
        let (upstream, counts) = self.upstreams.at(index);
        let with_edns = self.upstreams.is_asked_with_edns(index, begun);
        let (ids, wait, clock) = (ids.clone(), self.timeout, self.clock);
        flights.spawn(async move {
            let Question { address, ask, .. } = &question;
            let way = Way { upstream, address: *address, ask, ids: &ids, counts: &counts };
            let reply = caught(way.ask(with_edns, wait)).await;
            (index, question, reply, clock.now().monotonic.saturating_sub(begun))
        });
    }

    fn land(&mut self, (index, question, reply, took): Flight) {
        let now = self.clock.now();
        let Reply { answered, takes_edns } = match reply {
            Ok(reply) => reply,
            Err(cause) => {
                if self.told_short.is_none_or(|told| now.monotonic.saturating_sub(told) >= TOLD_INTERVAL) {
                    self.told_short = Some(now.monotonic);
                    tracing::error!(%cause, "questions cannot be sent; each is tried again and again");
                }
                return self.back_end.unsent(question);
            }
        };
        let upstream = self.upstreams.at(index).0;
        match self.upstreams.answered(index, &answered, took, now.monotonic) {
            Some(true) => tracing::info!(%upstream, "the upstream answers again"),
            Some(false) => tracing::warn!(
                %upstream,
                unanswered = GONE_AFTER,
                "the upstream does not answer: it is asked now and then until it does, and always where no other answers; \
                 is the address right, and may this machine ask there?"
            ),
            None => {}
        }
        match takes_edns.filter(|takes_edns| self.upstreams.shown(index, *takes_edns, now.monotonic)) {
            Some(true) => tracing::info!(%upstream, "the upstream takes EDNS again"),
            Some(false) => tracing::warn!(
                %upstream,
                seconds = WITHOUT_EDNS.as_secs(),
                "the upstream does not take EDNS (RFC 6891): it is asked without, and with it again after so long; \
                 answers of more than 512 octets come over TCP until then"
            ),
            None => {}
        }
        self.back_end.answered(question, answered, now);
        match question.ask {
            Ask::Prefix(_) => self.learned.tell_all(),
            _ => self.learned.tell(question.address),
        }
    }
}

/// What a question comes to. One that makes the code panic has failed, and is told of like others: else its address would be
/// in flight for ever.
async fn caught(asked: impl Future<Output = io::Result<Reply>>) -> io::Result<Reply> {
    let mut asked = pin!(asked);
    let failed = Reply { answered: Answered::Failed(Why::Malformed), takes_edns: None };
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| asked.as_mut().poll(context)));
        polled.unwrap_or(Poll::Ready(Ok(failed)))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_question_that_panics_has_failed() {
        async fn panics() -> io::Result<Reply> {
            tokio::task::yield_now().await;
            panic!("as a reader of answers might")
        }
        let failed = caught(panics()).await.map(|reply| reply.answered);
        assert!(matches!(failed, Ok(Answered::Failed(Why::Malformed))));
        let good = caught(async { Ok(Reply { answered: Answered::NoName(7), takes_edns: None }) }).await;
        assert!(matches!(good.map(|reply| reply.answered), Ok(Answered::NoName(7))));
    }
}
