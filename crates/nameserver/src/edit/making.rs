//! The editor thread: takes the requests that wait, makes the edits of each on a draft, commits them together, and
//! publishes what comes of it.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use api::Faults;
use store::{Change, CommitError};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot};

use super::{Complaints, Done, PATIENCE, Request, Shared, follow, lock};
use crate::book::{Book, Edit, Refused};
use crate::generation::Generation;

/// How many changes share a commit at most: beyond, the first would wait for too many others.
const COMMIT_MAX: usize = 256;

/// How often edits are made when other name servers are quicker.
const TRIES_MAX: usize = 10;

/// How many changes that the store refuses are taken out of those that share a commit, each for a commit more: then the
/// rest is refused, for others wait.
pub(super) const REFUSED_MAX: usize = 8;

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

/// The editor thread, until its queue is gone.
pub(super) fn run(shared: &Shared, mut queue: mpsc::Receiver<Request>, runtime: &Handle) {
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
pub(super) fn surviving<T>(shared: &Shared, work: impl FnOnce() -> T) -> Result<T, String> {
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
pub(super) fn make(shared: &Shared, requests: Vec<Request>, runtime: &Handle) {
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
fn commit(shared: &Shared, requests: Vec<Request>, may_part: bool, runtime: &Handle) -> Left {
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
    // Once for all of them, for it takes each zone as a whole.
    draft.sign_proofs();
    if draft.may_list_others(&before, &changes) {
        changes.extend(draft.make_catalogs());
    }
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
pub(super) type Replaced = (Arc<Generation>, Arc<Book>);

/// Makes a book that is in the store the current one. Returns what the caller may let go of; `None` where a worker still
/// needs it. Then it waits aside: freeing it is not a worker's business.
pub(super) fn install(
    shared: &Shared,
    book: Book,
    before: Arc<Book>,
    begun: Instant,
    runtime: &Handle,
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
    runtime: &Handle,
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
