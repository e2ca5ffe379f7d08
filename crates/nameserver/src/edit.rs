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
//!
//! In reading order: this face of it; `making`: the editor thread; `imports`: files of the configuration; [`follow`]: what
//! others change in the same store; `stuck` and `panicked`: what keeps changes from being made.

pub mod follow;
mod imports;
mod making;
mod panicked;
mod stuck;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::Target;
use arc_swap::ArcSwap;
use dns::Folded;
use net::histogram::Histogram;
use store::{Store, StoreError};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use self::panicked::Panicked;
use crate::book::{Book, Edit};
pub use crate::book::{Condition, Etag, Refused, Unmade};
use crate::counters::UPDATES_US;
use crate::publish::Published;
use crate::signing::Signing;
use crate::zone::{Difference, Update, Zone};

/// How many changes may wait; one more is refused at once, so that callers slow down.
pub const QUEUE_MAX: usize = 1_024;

/// The longest policy in octets that is read on the thread that was asked to put it: reading it takes half a
/// millisecond.
pub(crate) const READ_AT_ONCE_MAX: usize = 32 << 10;

/// How long a caller waits for the slowest worker before it is told that the change is under way.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How often an update is made when others change its zone meanwhile.
const UPDATE_TRIES_MAX: usize = 10;

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
            .spawn(move || making::run(&editing, receiver, &runtime))?;
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

    /// Changes a zone by an update, on what there is of it by then; `None` where that changes nothing.
    ///
    /// # Errors
    /// [`Unmade`]; faults are of the zone as it would be.
    pub async fn update_zone(
        &self,
        origin: &Folded,
        update: &Arc<Update>,
    ) -> Result<Option<Applied>, Unmade> {
        for _ in 0..UPDATE_TRIES_MAX {
            let book = self.book();
            let (origin, update) = (origin.clone(), update.clone());
            // As a zone that is put.
            let edit = tokio::task::spawn_blocking(move || Edit::updated_zone(&book, &origin, &update));
            let Some(edit) = edit.await?? else { return Ok(None) };
            match self.apply(vec![edit]).await {
                // Others have changed the zone since it was read.
                Err(Refused::Precondition { .. }) => {}
                applied => return Ok(Some(applied?)),
            }
        }
        Err(Refused::Outrun.into())
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

    /// Puts a zone after what its primary changed of this one; `source` is what faults call that.
    ///
    /// # Errors
    /// As [`Editor::put_zone`]; where the differences are not of this zone, or it is not the one that is here any more.
    pub async fn take_changes(
        &self,
        source: String,
        since: Arc<Zone>,
        differences: Vec<Difference>,
    ) -> Result<Applied, Refused> {
        let hash = self.book().generation.hash.clone();
        // As a zone that is put.
        let edit =
            tokio::task::spawn_blocking(move || Edit::given_changes(&source, &since, &differences, &hash));
        self.apply(vec![edit.await??]).await
    }

    /// Signs so from now on in signed zones.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn sign(&self, signing: Signing) -> Result<Applied, Refused> {
        self.apply(vec![Edit::Signing(Arc::new(signing))]).await
    }

    /// Sets whether a zone may not be answered from, as its primary does not confirm it.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn set_expired(&self, zone: Folded, expired: bool) -> Result<Applied, Refused> {
        self.apply(vec![Edit::Expired { zone: Box::new(zone), expired }]).await
    }

    /// Has those zones that catalogs list, and no longer those that they do not; returns what is left alone, and why.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn follow_catalogs(&self) -> Result<BTreeMap<Vec<u8>, String>, Refused> {
        let book = self.book();
        // There may be a hundred thousand of them.
        let listed = tokio::task::spawn_blocking(move || book.listed()).await?;
        if !listed.is_done() {
            self.apply(vec![Edit::Catalogs]).await?;
        }
        Ok(listed.ignored)
    }

    /// Has the catalogs that are made here list what they should.
    ///
    /// # Errors
    /// [`Refused`]: another zone is in the place of one.
    pub async fn make_catalogs(&self) -> Result<(), Refused> {
        let mut trial = Book::clone(&self.book());
        trial.check_catalogs()?;
        let made = tokio::task::spawn_blocking(move || trial.make_catalogs()).await?;
        if !made.is_empty() {
            self.apply(vec![Edit::Catalogs]).await?;
        }
        Ok(())
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
    /// [`Refused::NotFound`] for one that no policy has.
    pub async fn set_server(&self, server: Target, up: bool) -> Result<Applied, Refused> {
        self.apply(vec![Edit::SetServer { server, up }]).await
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

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
