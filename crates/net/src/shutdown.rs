//! One token that ends waiting tasks and blocked threads alike.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Tells everybody who holds a copy that it is time to end.
///
/// It goes one way and once: what has begun is never taken back.
#[derive(Clone, Default)]
pub struct Shutdown {
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    begun: AtomicBool,
    begins: Notify,
    wake_ups: Mutex<Vec<WakeUp>>,
}

type WakeUp = Box<dyn FnOnce() + Send>;

impl Shutdown {
    /// Makes a token that has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins the shutdown: ends all waits and runs the wake-ups on the calling thread. Further calls do
    /// nothing.
    pub fn begin(&self) {
        let wake_ups = {
            let mut wake_ups = self.wake_ups();
            // Within the lock, so that no wake-up is registered after the list is taken.
            self.state.begun.store(true, Ordering::Release);
            std::mem::take(&mut *wake_ups)
        };
        self.state.begins.notify_waiters();
        for wake_up in wake_ups {
            wake_up();
        }
    }

    /// Whether the shutdown has begun.
    pub fn is_begun(&self) -> bool {
        self.state.begun.load(Ordering::Acquire)
    }

    /// Returns when the shutdown has begun.
    pub async fn wait(&self) {
        // Made before the check: a begin between the two is seen by one of them.
        let begins = self.state.begins.notified();
        if !self.is_begun() {
            begins.await;
        }
    }

    /// Runs `wake_up` when the shutdown begins; at once when it has.
    ///
    /// For a thread that blocks in a system call, such as
    /// [`UdpListener::stop`](crate::udp::UdpListener::stop). There is one registration per such thread, made
    /// at start: nothing from outside can add any, which bounds their list.
    pub fn on_begin(&self, wake_up: impl FnOnce() + Send + 'static) {
        let mut wake_ups = self.wake_ups();
        if self.is_begun() {
            drop(wake_ups);
            wake_up();
        } else {
            wake_ups.push(Box::new(wake_up));
        }
    }

    fn wake_ups(&self) -> MutexGuard<'_, Vec<WakeUp>> {
        self.state.wake_ups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shutdown").field("begun", &self.is_begun()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[tokio::test]
    async fn all_waits_end_also_those_that_come_late() {
        let shutdown = Shutdown::new();
        let waits: Vec<_> = (0..3)
            .map(|_| {
                let shutdown = shutdown.clone();
                tokio::spawn(async move { shutdown.wait().await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(!shutdown.is_begun());
        assert!(waits.iter().all(|wait| !wait.is_finished()));
        shutdown.begin();
        shutdown.begin();
        assert!(shutdown.is_begun());
        for wait in waits {
            wait.await.expect("the wait ends");
        }
        shutdown.wait().await;
    }

    #[test]
    fn wake_ups_run_once() {
        let shutdown = Shutdown::new();
        let runs = Arc::new(AtomicUsize::new(0));
        let register = || {
            let runs = Arc::clone(&runs);
            shutdown.on_begin(move || {
                runs.fetch_add(1, Ordering::Relaxed);
            });
        };
        register();
        register();
        assert_eq!(runs.load(Ordering::Relaxed), 0);
        shutdown.begin();
        shutdown.clone().begin();
        assert_eq!(runs.load(Ordering::Relaxed), 2);
        register();
        assert_eq!(runs.load(Ordering::Relaxed), 3);
    }
}
