//! The one writer: every change goes through its queue, is validated against what there is then, written to
//! the store, published, and acknowledged when the slowest worker serves it.
//!
//! ```text
//! callers ──> queue ──> editor thread: take all that wait ─> apply each to a draft ─> commit ─> publish
//!    ^                                                                                             │
//!    └──────────── acknowledged, each by a task of its own, when every worker has it <─────────────┘
//! ```
//! Changes that wait together share one commit: the disk is synced once for all of them. One that the store refuses is
//! taken out, and the others are made again without it. Where others change the same store, what they changed comes first
//! ([`follow`]), and the edits are made again on it; nor is one refused before the store was looked at.

pub mod follow;
mod panicked;
mod stuck;

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::{Fault, Faults};
use arc_swap::ArcSwap;
use dns::Folded;
use net::histogram::Histogram;
use store::{Change, CommitError, Store, StoreError};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot};

use self::panicked::Panicked;
use crate::book::{Book, Edit};
pub use crate::book::{Condition, Etag, Refused};
use crate::counters::UPDATES_US;
use crate::generation::Generation;
use crate::import::{self, Import, Loading, Outcome};
use crate::publish::Published;

/// How many changes may wait; one more is refused at once, so that callers slow down.
pub const QUEUE_MAX: usize = 1_024;

/// How many changes share a commit at most: beyond, the first would wait for too many others.
const COMMIT_MAX: usize = 256;

/// The longest policy in octets that is read on the thread that was asked to put it: reading it takes half a
/// millisecond.
pub(crate) const READ_AT_ONCE_MAX: usize = 32 << 10;

/// How long a caller waits for the slowest worker before it is told that the change is under way.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How many faults of an import the status tells.
const FAULTS_TOLD: usize = 10;

/// How often edits are made when other name servers are quicker.
const TRIES_MAX: usize = 10;

/// How many changes that the store refuses are taken out of those that share a commit, each for a commit more: then the
/// rest is refused, for others wait.
const REFUSED_MAX: usize = 8;

/// A change that took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The generation that has it.
    pub generation: u64,
    /// Whether every worker serves that generation; false after [`PATIENCE`].
    pub reached: bool,
}

/// The face of the editor thread; copies share it.
#[derive(Clone)]
pub struct Editor {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Option<mpsc::Sender<Request>>>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
    book: ArcSwap<Book>,
    published: Arc<Published>,
    store: Store,
    /// What the store said to the last commit, and to the last check.
    complaints: Mutex<Complaints>,
    /// How the partitions' files were read, as of the last time.
    loading: Mutex<BTreeMap<String, api::PartitionState>>,
    /// What was wrong with the files of the configuration, as of the last time.
    imported: Mutex<api::ImportState>,
    started: Instant,
    latency: Arc<Histogram>,
    following: follow::Following,
    panicked: Panicked,
}

/// What the store complained of. A full disk shows at commits only, so a check that finds nothing does not take
/// back all that the last commit may have failed with.
#[derive(Default)]
struct Complaints {
    commit: Option<StoreError>,
    check: Option<StoreError>,
}

struct Request {
    edits: Vec<Edit>,
    reply: oneshot::Sender<Result<Done, Refused>>,
}

/// A request that was applied to a draft, and how that ended: with a region, where one was added.
struct Tried {
    /// To be made again; absent where nobody else changes the store, and none beside it can be refused.
    edits: Vec<Edit>,
    reply: oneshot::Sender<Result<Done, Refused>>,
    outcome: Result<Option<u32>, Refused>,
    /// Whether it was tried on what is served, without any change that came with it.
    is_first: bool,
    /// Which of the commit's changes are its own.
    changes: Range<usize>,
}

/// What a commit leaves to be made again.
enum Left {
    None,
    /// All of it: others were quicker.
    Outrun(Vec<Request>),
    /// All but one, which the store refused.
    Without(Vec<Request>),
}

/// A change in the store and in the pointer.
struct Done {
    generation: u64,
    region: Option<u32>,
}

impl Editor {
    /// Starts the editor thread on what the store holds.
    ///
    /// # Errors
    /// Where the system gives no thread.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(store: Store, book: Book, published: Arc<Published>) -> io::Result<Editor> {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        let shared = Arc::new(Shared {
            queue: Mutex::new(Some(sender)),
            thread: Mutex::new(None),
            book: ArcSwap::from_pointee(book),
            published,
            store,
            complaints: Mutex::default(),
            loading: Mutex::default(),
            imported: Mutex::default(),
            started: Instant::now(),
            latency: Arc::new(Histogram::new(&UPDATES_US)),
            following: follow::Following::default(),
            panicked: Panicked::default(),
        });
        let runtime = tokio::runtime::Handle::current();
        let editing = shared.clone();
        let thread = std::thread::Builder::new()
            .name("editor".into())
            .spawn(move || edit(&editing, receiver, &runtime))?;
        *lock(&shared.thread) = Some(thread);
        if shared.store.shared().is_some() {
            *lock(&shared.following.task) = Some(tokio::spawn(follow::follow(shared.clone())));
        }
        Ok(Editor { shared })
    }

    /// What the current generation was made from.
    pub fn book(&self) -> Arc<Book> {
        self.shared.book.load_full()
    }

    /// Where generations go.
    pub fn published(&self) -> &Arc<Published> {
        &self.shared.published
    }

    /// How long commits took in microseconds, from the taking of their changes to the slowest worker's serving them.
    pub fn latency(&self) -> Arc<Histogram> {
        self.shared.latency.clone()
    }

    /// What became of what others changed in the same store.
    pub fn following(&self) -> Arc<follow::Counters> {
        self.shared.following.counters.clone()
    }

    /// How long the editor has been at work.
    pub fn uptime(&self) -> Duration {
        self.shared.started.elapsed()
    }

    /// Why changes cannot be stored, as far as is known; `None` while they can be.
    pub fn store_complaint(&self) -> Option<String> {
        let complaints = lock(&self.shared.complaints);
        let complaint = complaints.check.as_ref().or(complaints.commit.as_ref()).map(ToString::to_string);
        drop(complaints);
        let complaint = complaint.or_else(|| self.shared.panicked.complaint());
        complaint.or_else(|| self.shared.following.complaint(self.uptime()))
    }

    /// Since when what others changed in the same store could not be loaded, in Unix time in seconds; `None` while it
    /// can be.
    pub fn stuck_since(&self) -> Option<u64> {
        self.shared.following.stuck_since()
    }

    /// How often the making of changes has panicked since start.
    pub fn panicked(&self) -> Arc<AtomicU64> {
        self.shared.panicked.count()
    }

    /// Asks the store whether it could take a change now, and remembers the answer.
    pub async fn check_store(&self) -> Option<String> {
        let found = self.shared.store.check().await.err();
        let told = found.as_ref().map(ToString::to_string);
        let mut complaints = lock(&self.shared.complaints);
        if found.is_none() && complaints.commit.as_ref().is_some_and(StoreError::shows_in_check) {
            complaints.commit = None;
        }
        complaints.check = found;
        told
    }

    /// Stores what probes hold of servers.
    ///
    /// # Errors
    /// What the store complains of.
    pub async fn remember(&self, verdicts: &[store::Verdict]) -> Result<(), store::StoreError> {
        self.shared.store.remember(verdicts).await
    }

    /// Stores when primaries last confirmed zones, by origin, in Unix time in seconds.
    ///
    /// # Errors
    /// What the store complains of.
    pub async fn confirm(&self, times: &BTreeMap<String, u64>) -> Result<(), store::StoreError> {
        self.shared.store.confirm(times).await
    }

    /// Puts a zone.
    ///
    /// # Errors
    /// [`Refused`]: faults of the master file or of policies in the zone, or another origin than `origin`.
    pub async fn put_zone(
        &self,
        origin: &str,
        text: Vec<u8>,
        condition: Condition,
    ) -> Result<Applied, Refused> {
        let hash = self.book().generation.hash.clone();
        let origin = origin.to_string();
        // A zone of a million records takes a second to build: not on a thread that serves others.
        let edit = tokio::task::spawn_blocking(move || Edit::zone(&origin, &text, condition, &hash));
        self.apply(vec![edit.await??]).await
    }

    /// Puts a zone as its primary gave it; `source` is what faults call the text.
    ///
    /// # Errors
    /// As [`Editor::put_zone`].
    pub async fn take_zone(&self, source: String, zone: Folded, text: String) -> Result<Applied, Refused> {
        let hash = self.book().generation.hash.clone();
        // As a zone that is put.
        let edit =
            tokio::task::spawn_blocking(move || Edit::given_zone(&source, &zone, text.as_bytes(), &hash));
        self.apply(vec![edit.await??]).await
    }

    /// Sets whether a zone may not be answered from, as its primary does not confirm it.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn set_expired(&self, zone: Folded, expired: bool) -> Result<Applied, Refused> {
        self.apply(vec![Edit::Expired { zone: Box::new(zone), expired }]).await
    }

    /// Deletes a zone.
    ///
    /// # Errors
    /// [`Refused`]; [`Refused::InUse`] while policies have names in it.
    pub async fn delete_zone(&self, origin: &str, condition: Condition) -> Result<Applied, Refused> {
        self.apply(vec![Edit::DeleteZone { origin: origin.into(), condition }]).await
    }

    /// Adds a region; returns its id.
    ///
    /// # Errors
    /// [`Refused`]: a name that is taken, empty or too long.
    pub async fn add_region(&self, name: &str) -> Result<(u32, Applied), Refused> {
        let done = self.submit(vec![Edit::AddRegion { name: name.into() }]).await?;
        let region = done.region.expect("adding a region yields its id");
        Ok((region, self.acknowledge(done.generation).await))
    }

    /// Removes a region: its rows go, its prefixes become region 0.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn remove_region(&self, id: u32) -> Result<Applied, Refused> {
        self.apply(vec![Edit::RemoveRegion { id }]).await
    }

    /// Puts a partition from CSV; returns how many prefixes it has.
    ///
    /// # Errors
    /// [`Refused`]: faults of the text.
    pub async fn put_partition(
        &self,
        name: &str,
        text: Vec<u8>,
        condition: Condition,
    ) -> Result<(u64, Applied), Refused> {
        let (name, regions) = (name.to_string(), self.book().regions.clone());
        // As a zone, with a million prefixes.
        let edit =
            tokio::task::spawn_blocking(move || Edit::partition(&name, "body", text, condition, regions));
        let edit = edit.await??;
        let Edit::PutPartition { compiled, .. } = &edit else { unreachable!("it puts a partition") };
        let prefixes = compiled.partition.size().prefixes;
        Ok((prefixes, self.apply(vec![edit]).await?))
    }

    /// Deletes a partition.
    ///
    /// # Errors
    /// [`Refused`]; [`Refused::InUse`] while policies use it.
    pub async fn delete_partition(&self, name: &str, condition: Condition) -> Result<Applied, Refused> {
        self.apply(vec![Edit::DeletePartition { name: name.into(), condition }]).await
    }

    /// Puts a policy from JSON under its first name.
    ///
    /// # Errors
    /// [`Refused`]: faults of the text or of its meaning.
    pub async fn put_policy(
        &self,
        owner: &str,
        text: Vec<u8>,
        condition: Condition,
    ) -> Result<Applied, Refused> {
        let (owner, length) = (owner.to_string(), text.len());
        let read = move || Edit::policy(Some(&owner), "body", text, condition);
        let edit = match length {
            0..=READ_AT_ONCE_MAX => read(),
            // As a zone.
            _ => tokio::task::spawn_blocking(read).await?,
        };
        self.apply(vec![edit?]).await
    }

    /// Deletes a policy.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn delete_policy(&self, owner: &str, condition: Condition) -> Result<Applied, Refused> {
        self.apply(vec![Edit::DeletePolicy { owner: owner.into(), condition }]).await
    }

    /// Sets whether a server may be drawn.
    ///
    /// # Errors
    /// [`Refused::NotFound`] for an address that no policy has.
    pub async fn set_server(&self, address: IpAddr, up: bool) -> Result<Applied, Refused> {
        self.apply(vec![Edit::SetServer { address, up }]).await
    }

    /// Imports those files of the configuration whose content changed since they were last imported, all or none of
    /// them. What is wrong with them is in the status until the next time.
    ///
    /// # Errors
    /// [`Refused::Faults`] with the faults of all files.
    pub async fn import(&self, imports: &[Import]) -> Result<Applied, Refused> {
        let applied = self.import_some(imports).await;
        let faults = match &applied {
            Ok(_) => Faults::default(),
            Err(Refused::Faults(faults)) => faults.clone(),
            Err(other) => Fault::whole("import", other.to_string(), "").into(),
        };
        let count = faults.faults.len() as u64 + faults.omitted;
        let first = faults.in_order().faults.into_iter().take(FAULTS_TOLD).collect();
        *lock(&self.shared.imported) = api::ImportState { faults: count, first };
        applied
    }

    /// As [`Editor::import`], of some of the files, of which the status says nothing.
    ///
    /// # Errors
    /// As that.
    pub async fn import_some(&self, imports: &[Import]) -> Result<Applied, Refused> {
        let (files, book) = (imports.to_vec(), self.book());
        let read = tokio::task::spawn_blocking(move || {
            let mut loading = Vec::new();
            let edits = import::edits(&files, &book, &mut loading);
            (edits, loading)
        });
        let (edits, loading) = read.await?;
        let applied = match edits {
            Err(faults) => Err(Refused::Faults(faults)),
            Ok(edits) if edits.is_empty() => {
                let generation = self.book().generation.number;
                Ok(self.acknowledge(generation).await)
            }
            Ok(edits) => self.apply(edits).await,
        };
        self.note(loading, applied.is_ok());
        if applied.is_ok() {
            let (files, book) = (imports.to_vec(), self.book());
            let written = tokio::task::spawn_blocking(move || import::write_ids(&files, &book));
            for what in written.await.ok().and_then(Result::err).into_iter().flatten() {
                tracing::info!(%what, "the regions' numbers were not written back; nothing depends on it");
            }
        }
        applied
    }

    /// What was wrong with the files of the configuration when they were last imported.
    pub fn import_state(&self) -> api::ImportState {
        lock(&self.shared.imported).clone()
    }

    /// How the partitions' files were read, by partition.
    pub fn partition_states(&self) -> Vec<api::PartitionState> {
        lock(&self.shared.loading).values().cloned().collect()
    }

    /// Notes how partitions were read; what was read well counts only once it is installed.
    fn note(&self, loading: Vec<Loading>, is_installed: bool) {
        let mut states = lock(&self.shared.loading);
        for Loading { name, sources, outcome } in loading {
            let state = states.entry(name.clone()).or_insert_with(|| api::PartitionState {
                name: name.clone(),
                sources: Vec::new(),
                ok: true,
                message: None,
                counts: BTreeMap::new(),
            });
            state.sources = sources.into_iter().map(String::from).collect();
            match outcome {
                Outcome::Failed(what) => {
                    (state.ok, state.message) = (false, Some(what));
                }
                Outcome::Read(counts) if is_installed => {
                    if !counts.is_empty() {
                        let each = counts.iter().map(|(what, count)| format!("{what}={count}"));
                        let each = each.collect::<Vec<_>>().join(" ");
                        tracing::info!(partition = name, "the partition was read: {each}");
                    }
                    (state.ok, state.message) = (true, None);
                    state.counts =
                        counts.into_iter().map(|(what, count)| (what.to_string(), count)).collect();
                }
                Outcome::Same if is_installed => (state.ok, state.message) = (true, None),
                Outcome::Same | Outcome::Read(_) => {}
            }
        }
    }

    /// Says that the server stops: a store that others share has so long, and no longer, to answer
    /// ([`store::Store::leave`]).
    pub fn leave(&self) {
        self.shared.store.leave();
    }

    /// Finishes the changes that were taken, ends the thread and closes the store.
    pub async fn stop(self) {
        self.leave();
        drop(lock(&self.shared.queue).take());
        let following = lock(&self.shared.following.task).take();
        if let Some(task) = following {
            task.abort();
            let _ = task.await;
        }
        let thread = lock(&self.shared.thread).take();
        if let Some(thread) = thread {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
        // While someone else has a copy, the store stays open for it.
        if let Some(shared) = Arc::into_inner(self.shared)
            && let Err(cause) = shared.store.close().await
        {
            tracing::warn!(%cause, "the store was not closed; nothing is lost by that");
        }
    }

    async fn apply(&self, edits: Vec<Edit>) -> Result<Applied, Refused> {
        let done = self.submit(edits).await?;
        Ok(self.acknowledge(done.generation).await)
    }

    /// Hands edits in; they are made together or not at all.
    async fn submit(&self, edits: Vec<Edit>) -> Result<Done, Refused> {
        let (reply, answer) = oneshot::channel();
        let queue = lock(&self.shared.queue).clone().ok_or(Refused::Busy)?;
        queue.try_send(Request { edits, reply }).map_err(|unsent| match unsent {
            TrySendError::Full(_) => Refused::Busy,
            TrySendError::Closed(_) => Refused::Broken,
        })?;
        drop(queue);
        // Who stops takes the queue away first.
        answer.await.map_err(|_| match lock(&self.shared.queue).is_some() {
            true => Refused::Broken,
            false => Refused::Busy,
        })?
    }

    async fn acknowledge(&self, generation: u64) -> Applied {
        Applied { generation, reached: self.shared.published.reached(generation, PATIENCE).await }
    }
}

/// The editor thread.
fn edit(shared: &Shared, mut queue: mpsc::Receiver<Request>, runtime: &tokio::runtime::Handle) {
    // The workers' queries wait for microseconds, whoever changes something for milliseconds.
    if let Err(cause) = net::thread::stand_back() {
        tracing::warn!(%cause, "changes are made with the priority of the workers");
    }
    let mut requests = Vec::with_capacity(COMMIT_MAX);
    while runtime.block_on(next(&mut queue, &mut requests, &shared.following.news)) {
        if requests.is_empty() {
            follow::catch_up(shared, runtime);
            continue;
        }
        let taken = std::mem::take(&mut requests);
        // Who asked is told by the end of its channel.
        let made = surviving(shared, || make(shared, taken, runtime));
        if made.is_err() {
            let _ = surviving(shared, || follow::see_again(shared, runtime));
        }
        if queue.is_empty()
            && let Err(cause) = runtime.block_on(shared.store.tidy())
        {
            tracing::warn!(%cause, "the store was not tidied; nothing is lost by that");
        }
    }
}

/// Does what may panic, for a fault of ours. What is published and what it was made from are replaced whole and last,
/// so that they are as they were.
///
/// # Errors
/// What the panic says; it has been counted and logged.
fn surviving<T>(shared: &Shared, work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic: Box<dyn Any + Send>| {
        let generation = shared.book.load().generation.number;
        shared.panicked.suffered(generation, &*panic, shared.started.elapsed())
    })
}

/// Waits for requests, or for news of the store, which leave `requests` empty; false at the end.
async fn next(queue: &mut mpsc::Receiver<Request>, requests: &mut Vec<Request>, news: &Notify) -> bool {
    tokio::select! {
        count = queue.recv_many(requests, COMMIT_MAX) => count > 0,
        () = news.notified() => true,
    }
}

/// Makes what was asked together, until nothing of it is left.
fn make(shared: &Shared, requests: Vec<Request>, runtime: &tokio::runtime::Handle) {
    let (mut left, mut outrun, mut refused) = (requests, 0, 0);
    while outrun < TRIES_MAX {
        match commit(shared, left, refused < REFUSED_MAX, runtime) {
            Left::None => {
                left = Vec::new();
                break;
            }
            // Nobody was quicker, so that nothing is to be loaded before the others are made.
            Left::Without(others) => {
                (left, refused) = (others, refused + 1);
                continue;
            }
            Left::Outrun(again) => (left, outrun) = (again, outrun + 1),
        }
        follow::catch_up_in_turn(shared, runtime);
        // No try can succeed on top of what cannot be served, or loaded.
        if shared.following.obstacle(shared.started.elapsed()).is_some() {
            break;
        }
    }
    if outrun > 0 {
        follow::end_turn(shared, runtime);
    }
    for Request { reply, .. } in left {
        let why = shared.following.obstacle(shared.started.elapsed());
        let why = why.map_or(Refused::Outrun, Refused::Store);
        let _ = reply.send(Err(why));
    }
}

/// One draft, one commit, one pointer for all that was asked. Where the store refuses a change, `may_part` lets the others
/// be made again without it.
fn commit(shared: &Shared, requests: Vec<Request>, may_part: bool, runtime: &tokio::runtime::Handle) -> Left {
    let begun = Instant::now();
    let before = shared.book.load_full();
    let mut draft: Option<Book> = None;
    let mut changes = Vec::new();
    let mut tried = Vec::with_capacity(requests.len());
    let is_kept = shared.store.shared().is_some() || requests.len() > 1;
    for Request { edits, reply } in requests {
        let again = if is_kept { edits.clone() } else { Vec::new() };
        let (first, is_first) = (changes.len(), draft.is_none());
        let mut trial = Book::clone(draft.as_ref().unwrap_or(&before));
        // One that panics is refused alone, for its trial is its own.
        let applied = surviving(shared, || apply_all(&mut trial, edits)).unwrap_or(Err(Refused::Broken));
        let outcome = applied.map(|(made, region)| {
            draft = Some(trial);
            changes.extend(made);
            region
        });
        tried.push(Tried { edits: again, reply, outcome, is_first, changes: first..changes.len() });
    }
    let number = before.generation.number;
    let Some(mut draft) = draft else {
        match follow::is_abreast(shared, runtime) {
            Ok(true) => answer(tried, |outcome| outcome.map(|region| Done { generation: number, region })),
            Ok(false) => return Left::Outrun(again(tried)),
            Err(why) => answer(tried, |_| Err(why.clone())),
        }
        return Left::None;
    };
    match store_changes(shared, number, &changes, runtime) {
        Ok(number) => {
            draft.generation.number = number;
            shared.panicked.survived();
            let replaced = install(shared, draft, before, begun, runtime);
            // The commit was on top of all there was: so what was refused is refused by that.
            answer(tried, |outcome| outcome.map(|region| Done { generation: number, region }));
            // Freeing it takes time that nobody need wait for.
            drop(replaced);
        }
        Err(why @ (CommitError::Conflict { .. } | CommitError::Unpublished))
            if shared.store.shared().is_some() =>
        {
            // What was changed directly is no other name server's commit.
            if matches!(why, CommitError::Conflict { .. }) {
                shared.following.counters.outrun.fetch_add(1, Ordering::Relaxed);
            }
            return Left::Outrun(again(tried));
        }
        Err(CommitError::Refused { change, what }) if may_part && tried.len() > 1 => {
            tracing::error!(%what, "the store did not take a change; those that came with it are made without it");
            let is_it = |tried: &Tried| tried.changes.contains(&change);
            let (it, others): (Vec<Tried>, Vec<Tried>) = tried.into_iter().partition(is_it);
            answer(it, |_| Err(Refused::Store(what.clone())));
            return Left::Without(again(others));
        }
        Err(what) => {
            tracing::error!(%what, "the store did not take a change");
            // Nobody else commits there: so one of ours had happened, of which the store could tell nothing.
            if matches!(what, CommitError::Conflict { .. }) {
                follow::load_again(shared, runtime);
            }
            // Where the store failed that others change, too, nobody can tell what it would have refused.
            let is_open = shared.store.shared().is_some() && matches!(what, CommitError::Store(_));
            let failed = Refused::Store(what.to_string());
            for Tried { reply, outcome, is_first, .. } in tried {
                // Nor what is refused for another change, which is not made.
                let own = outcome.err().filter(|_| is_first && !is_open);
                let _ = reply.send(Err(own.unwrap_or_else(|| failed.clone())));
            }
        }
    }
    Left::None
}

/// Tells each caller how it ended.
fn answer(tried: Vec<Tried>, end: impl Fn(Result<Option<u32>, Refused>) -> Result<Done, Refused>) {
    for Tried { reply, outcome, .. } in tried {
        // The caller may have gone away; then nobody wants to know.
        let _ = reply.send(end(outcome));
    }
}

/// What was tried, to be tried again.
fn again(tried: Vec<Tried>) -> Vec<Request> {
    tried.into_iter().map(|Tried { edits, reply, .. }| Request { edits, reply }).collect()
}

/// What was published before, with its book.
type Replaced = (Arc<Generation>, Arc<Book>);

/// Makes a book that is in the store the current one. Returns what the caller may let go of; `None` where a worker still
/// needs it. Then it waits aside: freeing it is not a worker's business.
fn install(
    shared: &Shared,
    book: Book,
    before: Arc<Book>,
    begun: Instant,
    runtime: &tokio::runtime::Handle,
) -> Option<Replaced> {
    let number = book.generation.number;
    let generation = Arc::new(book.generation.clone());
    shared.book.store(Arc::new(book));
    let replaced = (shared.published.publish(generation), before);
    // Workers that wait for packets need nothing, and others end their batch first.
    if shared.published.reached_soon(number) {
        shared.latency.observe_time(begun.elapsed());
        return Some(replaced);
    }
    let (published, latency) = (shared.published.clone(), shared.latency.clone());
    runtime.spawn(async move {
        published.reached(number, PATIENCE).await;
        latency.observe_time(begun.elapsed());
        drop(replaced);
    });
    None
}

fn apply_all(book: &mut Book, edits: Vec<Edit>) -> Result<(Vec<Change>, Option<u32>), Refused> {
    let mut changes = Vec::new();
    let mut faults = Faults::default();
    let mut region = None;
    for edit in edits {
        match book.apply(edit) {
            Ok(made) => {
                region = made.iter().find_map(|change| match change {
                    Change::AddRegion { id, .. } => Some(*id),
                    _ => None,
                });
                changes.extend(made);
            }
            Err(Refused::Faults(found)) => faults.append(found),
            Err(other) => return Err(other),
        }
    }
    Ok((faults.or(changes)?, region))
}

fn store_changes(
    shared: &Shared,
    based_on: u64,
    changes: &[Change],
    runtime: &tokio::runtime::Handle,
) -> Result<u64, CommitError> {
    let mut committed = runtime.block_on(shared.store.commit(based_on, changes));
    // Who stops takes the queue away, and does not wait for a store once more that is to be left.
    let is_stopping = lock(&shared.queue).is_none();
    if matches!(&committed, Err(CommitError::Store(_))) && !is_stopping {
        // The commit may have happened although its answer was lost; only the store knows.
        if let Ok(true) = runtime.block_on(shared.store.has_published(based_on + 1)) {
            committed = Ok(based_on + 1);
        }
    }
    let complaint = match &committed {
        // Another's commit is no failure of the store, nor is a change that cannot be stored.
        Ok(_)
        | Err(CommitError::Conflict { .. } | CommitError::Unpublished | CommitError::Refused { .. }) => {
            shared.following.reached();
            None
        }
        Err(CommitError::Store(cause)) => Some(cause.clone()),
    };
    *lock(&shared.complaints) = Complaints { commit: complaint, check: None };
    committed
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
