//! How many changes are under way at a time, and how many long texts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::reply::Failure;
use crate::edit::Refused;

/// Changes under way at a time; one more is refused with 503. Far below the number of connections, so that
/// status can still be asked for while a hanging disk holds all changes up.
pub const CHANGES_MAX: usize = 64;

/// Zones and partitions under way at a time, from the first octet to the generation: the longest bodies, of
/// which four together are a quarter of a gigabyte.
pub const TEXTS_MAX: usize = 4;

/// Long texts on their way to clients at a time, from their making to the last octet that the system takes: each is a
/// copy of a zone, a partition or a policy, which a client may take its time for.
pub const TEXTS_SENT_MAX: usize = 8;

/// The longest text in octets that needs none of [`TEXTS_SENT_MAX`] places: one for each connection is little.
pub const SHORT_MAX: usize = 32 << 10;

/// How long a zone or partition waits for one of [`TEXTS_MAX`] or [`TEXTS_SENT_MAX`] places before it is refused with
/// 503.
const TEXT_WAIT: Duration = Duration::from_secs(30);

/// The places; copies share them.
#[derive(Clone)]
pub(super) struct Admission {
    changes: Arc<Semaphore>,
    texts: Arc<Semaphore>,
    sent: Arc<Semaphore>,
    /// Texts that were not sent for want of a place.
    unsent: Arc<AtomicU64>,
}

/// A place, given back when it is dropped.
#[must_use]
pub(super) struct Place {
    _permits: [Option<OwnedSemaphorePermit>; 2],
}

impl Place {
    /// Makes a change to its end, also where the client goes away, and keeps the place until then: what was begun aside or
    /// waits in the queue holds its memory.
    pub(super) async fn hold<T: Send + 'static>(
        self,
        change: impl Future<Output = Result<T, Refused>> + Send + 'static,
    ) -> Result<T, Refused> {
        let held = tokio::spawn(async move {
            let _place = self;
            change.await
        });
        held.await?
    }
}

/// A place for a text that is sent.
#[must_use]
pub(super) struct Sending {
    _permit: OwnedSemaphorePermit,
}

impl Sending {
    /// The text, which keeps the place until it is dropped: a body may have been given away long before its octets
    /// are.
    pub(super) fn carry(self, text: String) -> Bytes {
        match text.len() {
            0..=SHORT_MAX => text.into(),
            _ => Bytes::from_owner(Carried { text, _place: self }),
        }
    }
}

struct Carried {
    text: String,
    _place: Sending,
}

impl AsRef<[u8]> for Carried {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl Admission {
    /// All places are free; `unsent` counts texts that were not sent for want of one.
    pub(super) fn new(unsent: Arc<AtomicU64>) -> Self {
        Admission {
            changes: Arc::new(Semaphore::new(CHANGES_MAX)),
            texts: Arc::new(Semaphore::new(TEXTS_MAX)),
            sent: Arc::new(Semaphore::new(TEXTS_SENT_MAX)),
            unsent,
        }
    }

    /// A place for a change with a short body.
    pub(super) fn change(&self) -> Result<Place, Failure> {
        let change = self.changes.clone().try_acquire_owned().map_err(|_| busy())?;
        Ok(Place { _permits: [Some(change), None] })
    }

    /// A place for a zone or a partition.
    pub(super) async fn text(&self) -> Result<Place, Failure> {
        // In this order: those that wait take no place of a short change. Connections bound how many do.
        let text = tokio::time::timeout(TEXT_WAIT, self.texts.clone().acquire_owned()).await;
        let text = text.ok().and_then(Result::ok).ok_or_else(busy)?;
        let change = self.changes.clone().try_acquire_owned().map_err(|_| busy())?;
        Ok(Place { _permits: [Some(change), Some(text)] })
    }

    /// A place for a text that is to be made, of whatever length.
    pub(super) async fn sending(&self) -> Result<Sending, Failure> {
        let place = tokio::time::timeout(TEXT_WAIT, self.sent.clone().acquire_owned()).await;
        let permit = place.ok().and_then(Result::ok).ok_or_else(|| self.crowded())?;
        Ok(Sending { _permit: permit })
    }

    /// A text that is made, where there is a place for it: what waited for one would be held meanwhile.
    pub(super) fn carry(&self, text: String) -> Result<Bytes, Failure> {
        if text.len() <= SHORT_MAX {
            return Ok(text.into());
        }
        let permit = self.sent.clone().try_acquire_owned().map_err(|_| self.crowded())?;
        Ok(Sending { _permit: permit }.carry(text))
    }

    fn crowded(&self) -> Failure {
        self.unsent.fetch_add(1, Ordering::Relaxed);
        let what = "too many long texts are on their way to clients";
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, what, "the same again shortly")
    }
}

fn busy() -> Failure {
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, "too many changes are under way", "the same again shortly")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_too_many_is_refused_until_one_ends() {
        let admission = Admission::new(Arc::default());
        let mut places: Vec<Place> = (0..CHANGES_MAX).map(|_| admission.change().expect("a place")).collect();
        assert_eq!(admission.change().err().expect("none left").status, StatusCode::SERVICE_UNAVAILABLE);
        places.pop();
        assert!(admission.change().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_text_too_many_waits_and_is_then_refused() {
        let admission = Arc::new(Admission::new(Arc::default()));
        let mut places = Vec::new();
        for _ in 0..TEXTS_MAX {
            places.push(admission.text().await.expect("a place"));
        }
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..CHANGES_MAX {
            let admission = Arc::clone(&admission);
            waiting.spawn(async move { admission.text().await.err().map(|told| told.status) });
        }
        tokio::task::yield_now().await;
        assert!(admission.change().is_ok(), "short changes go on, whatever waits");
        let told = waiting.join_all().await;
        assert_eq!(told, [Some(StatusCode::SERVICE_UNAVAILABLE); CHANGES_MAX]);
        places.pop();
        assert!(admission.text().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn long_texts_keep_their_places_until_their_octets_are_gone() {
        let unsent = Arc::<AtomicU64>::default();
        let admission = Admission::new(unsent.clone());
        let long = || "x".repeat(SHORT_MAX + 1);
        let mut sent = vec![admission.carry(long()).expect("a place")];
        for _ in 1..TEXTS_SENT_MAX {
            sent.push(admission.sending().await.expect("a place").carry(long()));
        }
        assert_eq!(&sent[0][..], long().as_bytes());
        let told = [admission.sending().await.map(drop), admission.carry(long()).map(drop)];
        let told = told.map(|told| told.expect_err("none is left").status);
        assert_eq!(told, [StatusCode::SERVICE_UNAVAILABLE; 2]);
        assert_eq!(unsent.load(Ordering::Relaxed), 2);
        assert!(admission.carry("x".repeat(SHORT_MAX)).is_ok(), "short ones need none");
        assert!(admission.change().is_ok(), "changes go on");
        // The last part of one is one, too.
        let rest = sent.pop().expect("it is there").split_off(SHORT_MAX);
        assert!(admission.carry(long()).is_err());
        drop(rest);
        let short = admission.sending().await.expect("a place").carry("x".repeat(SHORT_MAX));
        assert!(admission.carry(long()).is_ok());
        drop(short);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_goes_away_keeps_its_place_until_the_change_is_made() {
        let admission = Admission::new(Arc::default());
        let mut changes = Vec::new();
        for _ in 0..TEXTS_MAX {
            let (make, made) = tokio::sync::oneshot::channel::<()>();
            let change = async {
                let _ = made.await;
                Err::<(), _>(Refused::Busy)
            };
            let place = admission.text().await.expect("a place");
            let answer = tokio::time::timeout(Duration::ZERO, place.hold(change));
            assert!(answer.await.is_err(), "the client goes away");
            changes.push(make);
        }
        assert!(admission.text().await.is_err(), "all are under way");
        drop(changes.pop());
        assert!(admission.text().await.is_ok());
    }
}
