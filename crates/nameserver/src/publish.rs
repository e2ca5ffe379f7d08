//! The one pointer: how a generation reaches every worker, and how one knows that it did.
//!
//! A worker says `parked` before it may block and loads the pointer when it wakes, so a worker that waits for
//! packets holds no change up: whatever it answers next, it answers from the generation of then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::watch;

use crate::generation::Generation;

/// A worker that holds no generation.
const PARKED: u64 = u64::MAX;

/// A worker that is about to load the pointer.
const WAKING: u64 = u64::MAX - 1;

/// How long [`Published::reached`] sleeps between looks at the workers: tokio's timer counts milliseconds.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// How long [`Published::reached_soon`] sleeps between looks: a batch takes some tens of microseconds.
const SOON_INTERVAL: Duration = Duration::from_micros(100);

/// How often [`Published::reached_soon`] looks: for a millisecond, which the next changes may wait.
const SOON_LOOKS_MAX: usize = 10;

/// The published generation, and where each worker is.
pub struct Published {
    current: ArcSwap<Generation>,
    changes: watch::Sender<u64>,
    workers: Box<[Cell]>,
}

/// What a worker last said; on a cache line of its own, since only that worker writes it.
#[repr(align(64))]
struct Cell(AtomicU64);

/// A worker's side.
pub struct Seat<'a> {
    published: &'a Published,
    cell: &'a AtomicU64,
}

impl Published {
    /// Publishes the first generation to `workers` workers, all of them parked.
    pub fn new(generation: Generation, workers: usize) -> Published {
        Published {
            changes: watch::Sender::new(generation.number),
            current: ArcSwap::from_pointee(generation),
            workers: (0..workers).map(|_| Cell(AtomicU64::new(PARKED))).collect(),
        }
    }

    /// The current generation, for those who need it for one answer.
    pub fn load(&self) -> Guard<Arc<Generation>> {
        self.current.load()
    }

    /// The current generation, to keep.
    pub fn current(&self) -> Arc<Generation> {
        self.current.load_full()
    }

    /// Makes `generation` the current one; returns the one before.
    ///
    /// Workers answer their next batch from it. The caller should keep the old one until [`Published::reached`],
    /// so that no worker is the last to let go of it and has to free it.
    pub fn publish(&self, generation: Arc<Generation>) -> Arc<Generation> {
        let number = generation.number;
        let before = self.current.swap(generation);
        self.changes.send_replace(number);
        before
    }

    /// The number of the current generation, for those who wait for the next.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Waits until every worker serves generation `number` or a later one; false after `patience`.
    pub async fn reached(&self, number: u64, patience: Duration) -> bool {
        let waited = async {
            while self.slowest() < number {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        };
        self.slowest() >= number || tokio::time::timeout(patience, waited).await.is_ok()
    }

    /// Waits on the calling thread until every worker serves generation `number` or a later one; false where one takes
    /// longer than a batch should.
    pub fn reached_soon(&self, number: u64) -> bool {
        for _ in 1..SOON_LOOKS_MAX {
            if self.slowest() >= number {
                return true;
            }
            std::thread::sleep(SOON_INTERVAL);
        }
        self.slowest() >= number
    }

    /// The generation that each worker serves; the current one where it is parked.
    pub fn served(&self) -> Vec<u64> {
        // Paired with the fence in `wake`: either we see that the worker is waking, or it sees our pointer.
        fence(Ordering::SeqCst);
        let current = self.current.load().number;
        self.workers
            .iter()
            .map(|cell| match cell.0.load(Ordering::Acquire) {
                PARKED => current,
                WAKING => 0,
                number => number,
            })
            .collect()
    }

    /// The oldest generation that may still be answered from.
    pub fn slowest(&self) -> u64 {
        let current = self.current.load().number;
        self.served().into_iter().min().unwrap_or(current)
    }

    /// A worker's side.
    ///
    /// # Panics
    /// Where there are fewer workers.
    pub fn seat(&self, worker: usize) -> Seat<'_> {
        Seat { published: self, cell: &self.workers[worker].0 }
    }
}

impl Seat<'_> {
    /// Loads the current generation and says that it is served from now on.
    #[inline]
    pub fn wake(&self) -> Guard<Arc<Generation>> {
        self.cell.store(WAKING, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let generation = self.published.current.load();
        self.cell.store(generation.number, Ordering::Release);
        generation
    }

    /// Says that no generation is held: to be called, with the guard dropped, before anything that may block.
    #[inline]
    pub fn park(&self) {
        self.cell.store(PARKED, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generation::Settings;

    fn generation(number: u64) -> Generation {
        Generation { number, ..Generation::empty(1, Settings::default()) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_waits_for_the_slowest_worker() {
        let published = Published::new(generation(1), 2);
        assert!(published.reached(1, Duration::ZERO).await, "parked workers hold nothing up");
        let (first, second) = (published.seat(0), published.seat(1));
        let held = (first.wake(), second.wake());
        published.publish(Arc::new(generation(2)));
        assert!(!published.reached(2, Duration::from_secs(5)).await);
        assert!(!published.reached_soon(2) && published.reached_soon(1));
        drop(held);
        first.park();
        assert_eq!(second.wake().number, 2);
        assert_eq!(published.served(), [2, 2]);
        assert!(published.reached(2, Duration::ZERO).await && published.reached_soon(2));
    }

    #[test]
    fn no_worker_serves_an_older_generation_than_it_is_believed_to() {
        const CHANGES: u64 = 20_000;
        let published = Published::new(generation(1), 1);
        let done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let seat = published.seat(0);
                while done.load(Ordering::Acquire) < CHANGES {
                    // What was acknowledged before the wake must be seen by it.
                    let acknowledged = done.load(Ordering::Acquire);
                    let generation = seat.wake();
                    assert!(generation.number >= acknowledged);
                    drop(generation);
                    seat.park();
                }
            });
            for number in 2..=CHANGES {
                let old = published.publish(Arc::new(generation(number)));
                while published.slowest() < number {
                    std::hint::spin_loop();
                }
                drop(old);
                done.store(number, Ordering::Release);
            }
        });
    }
}
