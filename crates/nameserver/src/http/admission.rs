//! How many changes are under way at a time.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::reply::Failure;
use crate::edit::{Applied, Refused};

/// Changes under way at a time; one more is refused with 503. Far below the number of connections, so that
/// status can still be asked for while a hanging disk holds all changes up.
pub const CHANGES_MAX: usize = 64;

/// Zones and partitions under way at a time, from the first octet to the generation: the longest bodies, of
/// which four together are a quarter of a gigabyte.
pub const TEXTS_MAX: usize = 4;

/// How long a zone or partition waits for one of [`TEXTS_MAX`] places before it is refused with 503.
const TEXT_WAIT: Duration = Duration::from_secs(30);

/// The places; copies share them.
#[derive(Clone)]
pub(super) struct Admission {
    changes: Arc<Semaphore>,
    texts: Arc<Semaphore>,
}

/// A place, given back when it is dropped.
#[must_use]
pub(super) struct Place {
    _permits: [Option<OwnedSemaphorePermit>; 2],
}

impl Place {
    /// Makes a change to its end, also where the client goes away, and keeps the place until then: what was begun aside or
    /// waits in the queue holds its memory.
    pub(super) async fn hold(
        self,
        change: impl Future<Output = Result<Applied, Refused>> + Send + 'static,
    ) -> Result<Applied, Refused> {
        let held = tokio::spawn(async move {
            let _place = self;
            change.await
        });
        held.await?
    }
}

impl Admission {
    pub(super) fn new() -> Self {
        Admission {
            changes: Arc::new(Semaphore::new(CHANGES_MAX)),
            texts: Arc::new(Semaphore::new(TEXTS_MAX)),
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
}

fn busy() -> Failure {
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, "too many changes are under way", "the same again shortly")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_too_many_is_refused_until_one_ends() {
        let admission = Admission::new();
        let mut places: Vec<Place> = (0..CHANGES_MAX).map(|_| admission.change().expect("a place")).collect();
        assert_eq!(admission.change().err().expect("none left").status, StatusCode::SERVICE_UNAVAILABLE);
        places.pop();
        assert!(admission.change().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_text_too_many_waits_and_is_then_refused() {
        let admission = Arc::new(Admission::new());
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
    async fn a_client_that_goes_away_keeps_its_place_until_the_change_is_made() {
        let admission = Admission::new();
        let mut changes = Vec::new();
        for _ in 0..TEXTS_MAX {
            let (make, made) = tokio::sync::oneshot::channel::<()>();
            let change = async {
                let _ = made.await;
                Err(Refused::Busy)
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
