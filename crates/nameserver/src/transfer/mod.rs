//! Zones for other servers, and from them: AXFR and IXFR (RFC 5936, RFC 1995), signatures (RFC 8945), NOTIFY (RFC 1996); and
//! what clients change of them (RFC 2136).
//!
//! ```text
//! query ─> Transfers::answer ─> signed? verify ─> AXFR, IXFR: allowed? ─> TCP: Outgoing, message by message
//!                                              │                       `─> UDP: one SOA record or nothing
//!                                              ├> NOTIFY of a primary: Refreshes, ask for the zone soon
//!                                              ├> UPDATE: allowed? ─> Accepted ─> the maker of updates ─> the editor
//!                                              `─> anything else: Generation::answer, then sign
//! published generation ─> notifier ─> Notifications: who is to be told what, and when again
//! Refreshes: what is due ─> refresher ─> primary: SOA, AXFR ─> Incoming ─> the editor
//! ```
//! In reading order:
//! - `answering`: what is signed, and what asks for a zone.
//! - [`secondaries`]: who may take a zone and who is told; [`keys`]: what they sign with.
//! - [`signature`]: signing and verifying; [`outgoing`]: the messages of a transfer.
//! - [`serial`]: which of two serial numbers is the later one.
//! - [`notify`]: when which notification is sent; [`notifier`]: the task that sends them.
//! - [`primaries`]: who gives us zones; `notified`: what they tell of them; [`refresh`]: when each is asked for;
//!   [`incoming`]: the messages of a zone that comes; [`refresher`]: the task that asks.
//! - [`catalog`]: zones that tell which zones there are (RFC 9432).
//! - [`updaters`]: who may change what; [`update`]: what clients change (RFC 2136).
//! - [`counters`]: what is counted.
//!
//! What the operator chose is one immutable value, which a reload replaces: an answer takes it once, a transfer that runs
//! keeps its key.
//!
//! A zone with steered names is not given away: its records are only half of its answers, and a secondary would
//! answer everybody with that half. So a policy is refused in a zone that a secondary follows by name.

mod answering;
pub mod catalog;
pub mod counters;
pub mod incoming;
pub mod keys;
mod notified;
pub mod notifier;
pub mod notify;
pub mod outgoing;
pub mod primaries;
pub mod refresh;
pub mod refresher;
pub mod secondaries;
pub mod serial;
pub mod signature;
pub mod update;
pub mod updaters;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::{FailingZone, PrimaryState, ZoneLeftAlone};
use net::admission::Admission;
use tokio::sync::{Notify, mpsc, watch};

pub use answering::Given;
use counters::Counters;
pub use keys::Keys;
pub use primaries::{Primaries, Primary, PrimaryZones};
use refresh::{Refresh, Refreshes};
pub use secondaries::{Secondaries, Secondary};
use update::{WAITING_MAX, Waiting};
pub use updaters::{Updater, Updaters};

/// The most transfers at a time: each keeps its generation of the zone in memory, and a connection.
pub const TRANSFERS_MAX: usize = 64;

/// The most transfers at a time for one IPv4 address or IPv6 /64: a secondary of many zones takes several at once.
pub const TRANSFERS_PER_CLIENT_MAX: usize = 16;

/// How many zones that fail the status tells of.
const FAILING_TOLD: usize = 10;

/// What the operator chose.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The keys that messages may be signed with.
    pub keys: Keys,
    /// Who follows our zones.
    pub secondaries: Secondaries,
    /// Who gives us zones.
    pub primaries: Primaries,
    /// Who changes our zones by updates.
    pub updaters: Updaters,
}

/// Answers what is signed, and what asks for a zone.
#[derive(Debug)]
pub struct Transfers {
    config: watch::Sender<Arc<Config>>,
    admission: Arc<Admission>,
    counters: Arc<Counters>,
    /// From which second of the monotonic clock on a refusal is logged again.
    refusal_logged: AtomicU64,
    /// When which zone is asked for; notifications hasten it.
    refreshes: Mutex<Refreshes>,
    /// Zones that catalogs list and that are left alone, and why.
    ignored: Mutex<BTreeMap<Vec<u8>, String>>,
    /// A notification has come.
    notified: Notify,
    /// Where updates wait.
    waiting: mpsc::Sender<Waiting>,
    /// Where they are taken from, until somebody does.
    taken: Mutex<Option<mpsc::Receiver<Waiting>>>,
}

impl Default for Transfers {
    /// With no keys and nobody who follows.
    fn default() -> Self {
        Transfers::new(Config::default())
    }
}

impl Transfers {
    /// Answers by what the operator chose.
    pub fn new(config: Config) -> Transfers {
        let admission = Arc::new(Admission::new(TRANSFERS_MAX, TRANSFERS_PER_CLIENT_MAX));
        let config = watch::Sender::new(Arc::new(config));
        let (waiting, taken) = mpsc::channel(WAITING_MAX);
        Transfers {
            config,
            admission,
            counters: Arc::default(),
            refusal_logged: AtomicU64::new(0),
            refreshes: Mutex::default(),
            ignored: Mutex::default(),
            notified: Notify::new(),
            waiting,
            taken: Mutex::new(Some(taken)),
        }
    }

    /// What the operator chose.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.borrow())
    }

    /// Tells of what the operator chooses from now on.
    pub fn changes(&self) -> watch::Receiver<Arc<Config>> {
        self.config.subscribe()
    }

    /// Goes by another choice from now on; transfers that have begun go on as they began.
    pub fn choose(&self, config: Config) {
        self.config.send_replace(Arc::new(config));
    }

    /// How it stands with the zones that we are given.
    pub fn refreshes(&self) -> MutexGuard<'_, Refreshes> {
        self.refreshes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes which zones that catalogs list are left alone, and why; returns those of which that is new.
    fn ignore(&self, ignored: BTreeMap<Vec<u8>, String>) -> Vec<(Vec<u8>, String)> {
        let mut known = self.ignored();
        let new = ignored.iter().filter(|(zone, why)| known.get(*zone) != Some(why));
        let new = new.map(|(zone, why)| (zone.clone(), why.clone())).collect();
        *known = ignored;
        new
    }

    /// Zones that catalogs list and that are left alone, and why.
    fn ignored(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, String>> {
        self.ignored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, as the status tells it.
    pub fn primary_state(&self) -> PrimaryState {
        let (refreshes, ignored) = (self.refreshes(), self.ignored());
        let failing = |&(_, refresh): &(&[u8], &Refresh)| refresh.is_expired() || refresh.why().is_some();
        let first = refreshes.zones().filter(failing).map(|(zone, refresh)| FailingZone {
            zone: dns::name::to_text(zone),
            confirmed_at: refresh.confirmed_at(),
            expired: refresh.is_expired(),
            message: refresh.why().unwrap_or_default().into(),
        });
        let left_alone = ignored
            .iter()
            .map(|(zone, why)| ZoneLeftAlone { zone: dns::name::to_text(zone), message: why.clone() });
        PrimaryState {
            zones: refreshes.zones().len() as u64,
            failing: refreshes.zones().filter(failing).count() as u64,
            expired: refreshes.zones().filter(|(_, refresh)| refresh.is_expired()).count() as u64,
            first: first.take(FAILING_TOLD).collect(),
            left_alone: ignored.len() as u64,
            first_left_alone: left_alone.take(FAILING_TOLD).collect(),
        }
    }

    /// Where updates are taken from; once.
    fn take_waiting(&self) -> Option<mpsc::Receiver<Waiting>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// What is counted.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
}
