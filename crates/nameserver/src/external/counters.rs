//! What is told of an external proximity service: one task writes, everybody reads.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::lines::Wrong;

/// How often the known blocks are counted: the whole table is looked through.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// Counts since start, and how things are.
#[derive(Debug)]
pub struct Counters {
    service: SocketAddr,
    capacity: u64,
    connected: AtomicBool,
    message: Mutex<Option<String>>,
    known: AtomicU64,
    /// When they were last counted, in milliseconds.
    counted_ms: AtomicU64,
    waiting: AtomicU64,
    asked: AtomicU64,
    told: AtomicU64,
    late: AtomicU64,
    malformed: AtomicU64,
    unknown_region: AtomicU64,
    unasked: AtomicU64,
    failed: AtomicU64,
    leaked: AtomicU64,
    lost: AtomicU64,
}

impl Counters {
    /// Of a service that was never asked.
    pub fn new(service: SocketAddr, capacity: usize) -> Counters {
        let zero = || AtomicU64::new(0);
        Counters {
            service,
            capacity: capacity as u64,
            connected: AtomicBool::new(false),
            message: Mutex::new(None),
            known: zero(),
            counted_ms: zero(),
            waiting: zero(),
            asked: zero(),
            told: zero(),
            late: zero(),
            malformed: zero(),
            unknown_region: zero(),
            unasked: zero(),
            failed: zero(),
            leaked: zero(),
            lost: zero(),
        }
    }

    /// All of it, as the status shows it.
    pub fn state(&self) -> api::ExternalState {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let events = [
            ("asked", &self.asked),
            ("told", &self.told),
            ("late", &self.late),
            ("malformed", &self.malformed),
            ("unknown_region", &self.unknown_region),
            ("unasked", &self.unasked),
            ("failed", &self.failed),
            ("leaked", &self.leaked),
            ("lost", &self.lost),
        ];
        api::ExternalState {
            service: self.service.to_string(),
            connected: self.connected.load(Ordering::Relaxed),
            message: self.message.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            known: read(&self.known),
            capacity: self.capacity,
            waiting: read(&self.waiting),
            events: events.into_iter().map(|(event, count)| (event.to_string(), read(count))).collect(),
        }
    }

    /// Blocks that it told the region of.
    pub(super) fn told(&self) -> u64 {
        self.told.load(Ordering::Relaxed)
    }

    pub(super) fn learned(&self) {
        add(&self.told);
    }

    pub(super) fn asked(&self) {
        add(&self.asked);
    }

    pub(super) fn late(&self) {
        add(&self.late);
    }

    pub(super) fn wrong(&self, what: &Wrong) {
        add(match what {
            Wrong::Endless | Wrong::Malformed(_) => &self.malformed,
            Wrong::UnknownRegion(..) => &self.unknown_region,
            Wrong::Unasked(_) => &self.unasked,
        });
    }

    pub(super) fn failed(&self, what: String) {
        add(&self.failed);
        *self.message.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
    }

    pub(super) fn set_connected(&self, connected: bool) {
        self.connected.store(connected, Ordering::Relaxed);
        if connected {
            *self.message.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    pub(super) fn set_waiting(&self, waiting: usize, leaked: u64, lost: u64) {
        self.waiting.store(waiting as u64, Ordering::Relaxed);
        self.leaked.store(leaked, Ordering::Relaxed);
        self.lost.store(lost, Ordering::Relaxed);
    }

    /// Counts what is known, unless that was done just now.
    pub(super) fn set_known(&self, now: Duration, known: impl FnOnce() -> usize) {
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let before = self.counted_ms.load(Ordering::Relaxed);
        if now_ms.saturating_sub(before) >= COUNT_INTERVAL.as_millis() as u64 {
            self.counted_ms.store(now_ms, Ordering::Relaxed);
            self.known.store(known() as u64, Ordering::Relaxed);
        }
    }
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}
