//! Follows a store that others change, too: other name servers publish generations in it, and other programs change
//! its tables directly.
//!
//! ```text
//! watch ─> look ─> news? ─> editor thread: load ─> validate ─┬─> published by another: its number, our pointer
//!                                                            ├─> made directly: published as the next generation,
//!                                                            │   under greater serial numbers
//!                                                            └─> cannot be served: refused, and the reason stored
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use api::Faults;
use store::{Change, CommitError, News, Seen, Standing, StoreError};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::making::{install, surviving};
use super::stuck::Stuck;
use super::{Shared, lock};
use crate::book::{Book, Raised, Refused};

/// How often it is looked again when another is quicker, before the next wake: those who change all the time must not
/// keep the editor from its queue.
const ROUNDS_MAX: usize = 8;

/// How many faults of changes made directly are written down.
const FAULTS_TOLD: usize = 50;

/// What became of what others changed.
#[derive(Debug, Default)]
pub struct Counters {
    /// Generations of other name servers that were taken over; one stands for those that came together.
    pub followed: AtomicU64,
    /// Generations that were published of changes made directly.
    pub published: AtomicU64,
    /// Changes made directly that were refused.
    pub refused: AtomicU64,
    /// Commits of ours that another name server's came before.
    pub outrun: AtomicU64,
    /// Looks at the store that failed.
    pub lost: AtomicU64,
    /// Take-overs that failed: what others changed could not be loaded.
    pub failed: AtomicU64,
}

/// How far one has followed.
#[derive(Default)]
pub(super) struct Following {
    pub(super) counters: Arc<Counters>,
    /// Wakes the editor thread.
    pub(super) news: Notify,
    pub(super) task: std::sync::Mutex<Option<JoinHandle<()>>>,
    /// What cannot be served, and why; it is not tried again.
    refused: std::sync::Mutex<Option<(Seen, String)>>,
    /// Why the store could not be looked at.
    lost: std::sync::Mutex<Option<String>>,
    /// Ends the pause before a lost store is looked at again.
    back: Notify,
    /// What others changed and could not be loaded yet.
    pub(super) stuck: std::sync::Mutex<Option<Stuck>>,
}

impl Following {
    /// What keeps the store from being followed, at a time of the editor's clock.
    pub(super) fn complaint(&self, now: Duration) -> Option<String> {
        lock(&self.lost).clone().or_else(|| self.obstacle(now))
    }

    /// Why nothing can be published on top of what the store holds: it cannot be served, or not be loaded.
    pub(super) fn obstacle(&self, now: Duration) -> Option<String> {
        self.refusal().or_else(|| lock(&self.stuck).as_ref().map(|stuck| stuck.told(now)))
    }

    /// Since when what others changed could not be loaded: Unix time in seconds.
    pub(super) fn stuck_since(&self) -> Option<u64> {
        lock(&self.stuck).as_ref().map(|stuck| stuck.since)
    }

    /// Says that the store has answered: it is not lost, whatever the last look found.
    pub(super) fn reached(&self) {
        if lock(&self.lost).take().is_some() {
            tracing::info!("the store is back");
            self.back.notify_waiters();
        }
    }

    /// Says that what the store holds is served, whatever was refused before.
    fn accepted(&self, generation: u64) {
        if lock(&self.refused).take().is_some() {
            tracing::info!(generation, "what the store holds can be served again, and is");
        }
    }

    /// Why what the store holds cannot be served.
    pub(super) fn refusal(&self) -> Option<String> {
        lock(&self.refused).as_ref().map(|(_, why)| why.clone())
    }
}

/// Looks at the store whenever it may have changed, and wakes the editor thread where it has.
pub(super) async fn follow(shared: Arc<Shared>) {
    let Some(store) = shared.store.shared() else { return };
    let (mut watch, following) = (store.watch(), &shared.following);
    let mut is_told = false;
    loop {
        watch.wait().await;
        match store.look().await {
            Ok(seen) => {
                watch.reached();
                following.reached();
                if watch.is_deaf() && !std::mem::replace(&mut is_told, true) {
                    tracing::warn!(
                        "the store cannot notify us: others' changes are served later, by up to a second"
                    );
                }
                if is_news(&shared, seen) {
                    following.news.notify_one();
                }
            }
            Err(cause) => {
                following.counters.lost.fetch_add(1, Ordering::Relaxed);
                let what = cause.to_string();
                if lock(&following.lost).replace(what).is_none() {
                    tracing::error!(%cause, "the store was lost; the last generation goes on");
                }
                tokio::select! {
                    () = watch.pause() => {}
                    () = following.back.notified() => watch.reached(),
                }
            }
        }
    }
}

/// Whether the store holds what is neither served here nor known not to be servable.
fn is_news(shared: &Shared, seen: Seen) -> bool {
    let current = shared.book.load().generation.number;
    let is_another = shared.store.shared().is_some_and(|store| store.is_another(seen));
    if seen.generation == current && seen.changes == seen.published && !is_another {
        shared.following.accepted(current);
        went_on(shared);
        return false;
    }
    let refused = lock(&shared.following.refused);
    !refused.as_ref().is_some_and(|(known, _)| *known == seen)
}

/// Whether what is served is what the store holds, so that what is refused by one is refused by the other.
///
/// # Errors
/// Why nobody can tell: what the store complains of, or what it holds and cannot be served.
pub(super) fn is_abreast(shared: &Shared, runtime: &tokio::runtime::Handle) -> Result<bool, Refused> {
    let Some(store) = shared.store.shared() else { return Ok(true) };
    match runtime.block_on(store.look()) {
        Ok(seen) if is_news(shared, seen) => Ok(false),
        Ok(_) => shared.following.refusal().map_or(Ok(true), |why| Err(Refused::Store(why))),
        Err(cause) => {
            tracing::warn!(%cause, "what others changed was not looked for");
            Err(Refused::Store(cause.to_string()))
        }
    }
}

/// Takes over what others changed; on the editor thread. Where that failed a moment ago, nothing: the follower sees
/// that it is still there, and wakes us again.
pub(super) fn catch_up(shared: &Shared, runtime: &tokio::runtime::Handle) {
    if is_pausing(shared) {
        return;
    }
    for _ in 0..ROUNDS_MAX {
        let done = surviving(shared, || take_over(shared, runtime).map_err(|cause| cause.to_string()));
        match done.unwrap_or_else(|panic| Err(format!("we panicked over it: {panic}"))) {
            Ok(true) => {}
            Ok(false) => return went_on(shared),
            Err(why) => return failed(shared, why),
        }
    }
}

/// Whether a take-over failed, and it is too early to try again.
fn is_pausing(shared: &Shared) -> bool {
    lock(&shared.following.stuck).as_ref().is_some_and(|stuck| stuck.is_pausing(shared.started.elapsed()))
}

/// Notes that a take-over failed.
fn failed(shared: &Shared, why: String) {
    shared.following.counters.failed.fetch_add(1, Ordering::Relaxed);
    tracing::warn!(%why, "what others changed was not loaded");
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (now, draw) = (shared.started.elapsed(), fastrand::Rng::new().f64());
    let mut stuck = lock(&shared.following.stuck);
    *stuck = Some(Stuck::after(stuck.take(), why, now, unix, draw));
}

/// Notes that what others changed is taken over, or that there is nothing of it.
fn went_on(shared: &Shared) {
    if lock(&shared.following.stuck).take().is_some() {
        tracing::info!("what others changed is loaded again");
    }
}

/// As [`catch_up`], and keeps others from publishing anything until the commit that follows: who must load first what
/// another published would else be outrun again and again by one who need not.
pub(super) fn catch_up_in_turn(shared: &Shared, runtime: &tokio::runtime::Handle) {
    if is_pausing(shared) {
        return;
    }
    if let Some(store) = shared.store.shared()
        && let Err(cause) = runtime.block_on(store.take_turn())
    {
        tracing::warn!(%cause, "a change waited for its turn in vain");
    }
    catch_up(shared, runtime);
}

/// Lets others publish again, where a turn was not used.
pub(super) fn end_turn(shared: &Shared, runtime: &tokio::runtime::Handle) {
    if let Some(store) = shared.store.shared()
        && let Err(cause) = runtime.block_on(store.end_turn())
    {
        // The turn has ended with the connection.
        tracing::warn!(%cause, "the store was lost after a change");
    }
}

/// Sees whether the store holds more than is served, after a panic between the two.
pub(super) fn see_again(shared: &Shared, runtime: &tokio::runtime::Handle) {
    let next = shared.book.load().generation.number + 1;
    match shared.store.shared() {
        Some(_) => shared.following.news.notify_one(),
        None => {
            if let Ok(true) = runtime.block_on(shared.store.has_published(next)) {
                load_again(shared, runtime);
            }
        }
    }
}

/// Loads all of a store that nobody shares, whose last commit had an end that was not known.
pub(super) fn load_again(shared: &Shared, runtime: &tokio::runtime::Handle) {
    let (begun, before) = (Instant::now(), shared.book.load_full());
    let contents = runtime.block_on(shared.store.load()).map_err(|cause| cause.to_string());
    let draft = contents.and_then(|contents| {
        let number = contents.generation;
        let mut draft = before.following(contents).map_err(|faults| told(&faults))?;
        draft.generation.number = number;
        Ok(draft)
    });
    match draft {
        Ok(draft) => {
            tracing::warn!(generation = draft.generation.number, "what the store holds was loaded again");
            drop(install(shared, draft, before, begun, runtime));
        }
        Err(why) => tracing::error!(%why, "what the store holds was not loaded again"),
    }
}

/// Takes over what there is; whether somebody was quicker, so that there is more.
fn take_over(shared: &Shared, runtime: &tokio::runtime::Handle) -> Result<bool, StoreError> {
    let Some(store) = shared.store.shared() else { return Ok(false) };
    let begun = Instant::now();
    let seen = runtime.block_on(store.look())?;
    if !is_news(shared, seen) {
        return Ok(false);
    }
    let before = shared.book.load_full();
    if seen.generation < before.generation.number {
        let (there, here) = (seen.generation, before.generation.number);
        let why = format!(
            "it is at generation {there}, and generation {here} is served: it was put back; restart all name servers \
             to serve it"
        );
        return refuse(shared, runtime, seen, why);
    }
    let (seen, drafted) = match runtime.block_on(store.news(before.generation.number)) {
        Ok(News { seen, standing, before: published }) => {
            let drafted = draft(shared, runtime, &before, standing)?.and_then(|mut draft| {
                let raised =
                    draft.raise_serials(&published, &before.generation).map_err(|faults| told(&faults))?;
                // Who publishes a change, has catalogs list it.
                let is_direct = seen.changes != seen.published;
                let listed = if is_direct { draft.make_catalogs() } else { Vec::new() };
                Ok((draft, raised, listed))
            });
            (seen, drafted)
        }
        Err(StoreError::Corrupt { what, .. }) => (seen, Err(what)),
        Err(error) => return Err(error),
    };
    let (mut draft, raised, listed) = match drafted {
        Ok(drafted) => drafted,
        Err(why) => return refuse(shared, runtime, seen, why),
    };
    draft.generation.number = seen.generation;
    let counters = &shared.following.counters;
    if seen.changes == seen.published {
        counters.followed.fetch_add(1, Ordering::Relaxed);
        store.take(seen);
    } else {
        match runtime.block_on(store.publish_direct(seen, &[&raised.changes[..], &listed].concat())) {
            Ok(number) => draft.generation.number = number,
            Err(CommitError::Store(error)) => return Err(error),
            Err(CommitError::Refused { what, .. }) => return refuse(shared, runtime, seen, what),
            Err(CommitError::Conflict { .. } | CommitError::Unpublished) => return Ok(true),
        }
        counters.published.fetch_add(1, Ordering::Relaxed);
        tell_of_serials(&raised);
    }
    let number = draft.generation.number;
    drop(install(shared, draft, before, begun, runtime));
    shared.following.accepted(number);
    Ok(false)
}

/// Tells of zones that were changed directly under a serial number that is not greater than their last.
fn tell_of_serials(raised: &Raised) {
    for change in &raised.changes {
        if let Change::PutZone { origin, .. } = change {
            tracing::info!(
                zone = origin,
                "a zone was changed directly, but not its serial number: it was raised"
            );
        }
    }
    for origin in &raised.kept {
        tracing::warn!(
            zone = origin,
            "a zone was changed directly, but not its serial number, which stays, for others have signed it: \
             secondaries do not notice"
        );
    }
}

/// The book of what stands in the store, or why it cannot be served.
fn draft(
    shared: &Shared,
    runtime: &tokio::runtime::Handle,
    before: &Book,
    standing: Standing,
) -> Result<Result<Book, String>, StoreError> {
    let contents = match standing {
        Standing::Parts(parts) => match before.following_parts(before.generation.number, parts) {
            Ok(draft) => return Ok(Ok(draft)),
            Err(_) => match runtime.block_on(shared.store.load()) {
                Ok(contents) => contents,
                Err(StoreError::Corrupt { what, .. }) => return Ok(Err(what)),
                Err(error) => return Err(error),
            },
        },
        Standing::All(contents) => *contents,
    };
    Ok(before.following(contents).map_err(|faults| told(&faults)))
}

/// Notes what cannot be served, where others find it, too.
fn refuse(
    shared: &Shared,
    runtime: &tokio::runtime::Handle,
    seen: Seen,
    why: String,
) -> Result<bool, StoreError> {
    tracing::error!(generation = seen.generation, changes = seen.changes, %why, "what the store holds is not served");
    if seen.changes > seen.published {
        shared.following.counters.refused.fetch_add(1, Ordering::Relaxed);
        if let Some(store) = shared.store.shared() {
            runtime.block_on(store.refuse(seen.changes, &why))?;
        }
    }
    let why = format!("what the store's tables hold cannot be served: {why}");
    *lock(&shared.following.refused) = Some((seen, why));
    Ok(false)
}

fn told(faults: &Faults) -> String {
    let told: Vec<String> = faults.faults.iter().take(FAULTS_TOLD).map(ToString::to_string).collect();
    let more = (faults.faults.len() - told.len()) as u64 + faults.omitted;
    let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
    told.join("\n") + &more
}
