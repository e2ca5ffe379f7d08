//! The slots: which probes of which servers there are, and what is held of each.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use api::{HealthState, ProbeState, ProbeVerdict, Target};
use routing::{Health, SlotId};
use tokio::sync::Notify;

use super::record::{Outcome, Record};

/// The most servers that a status shows: `/v1/probes` has all.
pub const SHOWN_MAX: usize = 100;

/// A server and the name of its probe.
pub type Key = (Target, String);

/// All slots, and the bits that answers read.
#[derive(Debug, Default)]
pub struct Table {
    health: Health,
    slots: Mutex<Slots>,
    /// Tells the prober of new slots.
    added: Notify,
    /// Tells that a verdict is not in the store yet.
    changed: Notify,
    /// What was counted since start.
    pub counters: Counters,
}

/// What was counted since start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Probes that passed.
    pub passed: AtomicU64,
    /// Probes that failed.
    pub failed: AtomicU64,
    /// Probes that waited since too many ran at once.
    pub delayed: AtomicU64,
    /// Probes that our own code broke off; they say nothing of the server.
    pub panicked: AtomicU64,
}

#[derive(Debug, Default)]
struct Slots {
    entries: BTreeMap<Key, Entry>,
    free: Vec<SlotId>,
    next: u32,
    /// What was held when the process began, of servers that have had no slot yet.
    remembered: BTreeMap<Key, Record>,
    /// Whose verdicts the store does not have.
    unkept: BTreeMap<Key, Option<Record>>,
}

#[derive(Debug)]
struct Entry {
    slot: Weak<Slot>,
    id: SlotId,
    is_watched: bool,
    record: Record,
}

/// One probe of one server, while anything refers to it.
#[derive(Debug)]
pub struct Slot {
    table: Arc<Table>,
    key: Key,
    id: SlotId,
}

impl Slot {
    /// Where its bit stands.
    pub fn id(&self) -> SlotId {
        self.id
    }

    /// The server and the name of its probe.
    pub fn key(&self) -> &Key {
        &self.key
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.table.release(self);
    }
}

impl Table {
    /// A table that knows what was held of servers before.
    pub fn remembering(held: impl IntoIterator<Item = (Key, Record)>) -> Table {
        let slots = Slots { remembered: held.into_iter().collect(), ..Slots::default() };
        Table { slots: Mutex::new(slots), ..Table::default() }
    }

    /// The bits of all slots, which answers read.
    #[inline]
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// What answers read, as it is at one epoch.
    pub fn snapshot(&self) -> Health {
        let _held = self.slots();
        self.health.clone()
    }

    /// The slot of a server's probe, given to it now where it has none; `None` while all are in use.
    pub fn slot(self: &Arc<Self>, server: &Target, probe: &str) -> Option<Arc<Slot>> {
        let key = (server.clone(), probe.to_string());
        let mut slots = self.slots();
        if let Some(slot) = slots.entries.get(&key).and_then(|entry| entry.slot.upgrade()) {
            return Some(slot);
        }
        let id = slots.take_number()?;
        let slot = Arc::new(Slot { table: self.clone(), key: key.clone(), id });
        // A slot of this key that is just being let go of leaves its record to the new one.
        let before = slots.entries.remove(&key).map(|entry| entry.record);
        let record = before.or_else(|| slots.remembered.remove(&key)).unwrap_or_default();
        self.health.set(id, record.verdict == ProbeVerdict::Failing);
        let entry = Entry { slot: Arc::downgrade(&slot), id, is_watched: false, record };
        slots.entries.insert(key, entry);
        drop(slots);
        self.added.notify_one();
        Some(slot)
    }

    /// The slots that nobody watches yet; who takes them watches them.
    pub fn take_unwatched(&self) -> Vec<Arc<Slot>> {
        let mut slots = self.slots();
        let unwatched = slots.entries.values_mut().filter(|entry| !entry.is_watched);
        unwatched
            .filter_map(|entry| {
                let slot = entry.slot.upgrade()?;
                entry.is_watched = true;
                Some(slot)
            })
            .collect()
    }

    /// Returns when slots were added.
    pub async fn added(&self) {
        self.added.notified().await;
    }

    /// Takes what a probe found, in seconds since 1970; a change of the verdict is heeded by the next answer.
    pub fn note(&self, slot: &Slot, outcome: Outcome, took: Duration, at: u64, (rise, fall): (u32, u32)) {
        let counter = if outcome.passed { &self.counters.passed } else { &self.counters.failed };
        counter.fetch_add(1, Ordering::Relaxed);
        let mut slots = self.slots();
        let Some(entry) = slots.entry(slot) else { return };
        let before = entry.record.verdict;
        if entry.record.note(outcome, took, at, (rise, fall)) {
            let (verdict, last) =
                (entry.record.verdict.word(), entry.record.last.clone().unwrap_or_default());
            self.changed(&mut slots, slot);
            // Who reads the log may be slow, and answers' changes wait for the slots.
            drop(slots);
            let ((server, probe), detail, reason) = (&slot.key, last.detail, last.reason);
            // The first pass of a new server: nobody needs to look.
            if before == ProbeVerdict::Unknown && last.passed {
                tracing::info!(%server, probe, verdict, reason, detail, "a server's health changed");
            } else {
                tracing::warn!(%server, probe, verdict, reason, detail, "a server's health changed");
            }
        }
    }

    /// Takes that a slot cannot be probed: its server is held to be well, as without a probe.
    pub fn give_up(&self, slot: &Slot, message: &str) {
        let mut slots = self.slots();
        let Some(entry) = slots.entry(slot) else { return };
        if entry.record.give_up(message) {
            self.changed(&mut slots, slot);
        }
    }

    /// Returns when a verdict changed that the store does not have.
    pub async fn changed_verdicts(&self) {
        self.changed.notified().await;
    }

    /// What the store does not have yet: the records of changed verdicts, none where there is nothing to hold.
    pub fn take_unkept(&self) -> BTreeMap<Key, Option<Record>> {
        std::mem::take(&mut self.slots().unkept)
    }

    /// Has the store forget what was held of servers that no policy has any more.
    pub fn forget_others(&self) {
        let mut slots = self.slots();
        let others = std::mem::take(&mut slots.remembered);
        if !others.is_empty() {
            slots.unkept.extend(others.into_keys().map(|key| (key, None)));
            self.changed.notify_one();
        }
    }

    /// Gives back what the store did not take; what changed since is newer.
    pub fn put_back(&self, unkept: BTreeMap<Key, Option<Record>>) {
        let mut slots = self.slots();
        for (key, record) in unkept {
            slots.unkept.entry(key).or_insert(record);
        }
    }

    /// Every server under a probe, those that fail first.
    pub fn states(&self) -> Vec<ProbeState> {
        let slots = self.slots();
        let mut states: Vec<ProbeState> =
            slots.entries.iter().map(|(key, entry)| state(key, &entry.record)).collect();
        drop(slots);
        states.sort_by_key(|state| state.state);
        states
    }

    /// What is held of a server by its probe.
    pub fn verdict(&self, slot: &Slot) -> ProbeVerdict {
        self.slots().entry(slot).map(|entry| entry.record.verdict).unwrap_or_default()
    }

    /// All of it together.
    pub fn status(&self) -> HealthState {
        let mut probes = self.states();
        let of = |verdict| probes.iter().filter(|state| state.state == verdict).count() as u64;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (passing, failing) = (of(ProbeVerdict::Passing), of(ProbeVerdict::Failing));
        let unknown = of(ProbeVerdict::Unknown);
        probes.truncate(SHOWN_MAX);
        HealthState {
            epoch: self.health.epoch(),
            passing,
            failing,
            unknown,
            passed: read(&self.counters.passed),
            failed: read(&self.counters.failed),
            panicked: read(&self.counters.panicked),
            delayed: read(&self.counters.delayed),
            probes,
        }
    }

    /// Has answers and the store follow a changed verdict.
    fn changed(&self, slots: &mut Slots, slot: &Slot) {
        let Some(entry) = slots.entry(slot) else { return };
        self.health.set(slot.id, entry.record.verdict == ProbeVerdict::Failing);
        let known = (entry.record.verdict != ProbeVerdict::Unknown).then(|| entry.record.clone());
        slots.unkept.insert(slot.key.clone(), known);
        self.changed.notify_one();
    }

    fn release(&self, slot: &Slot) {
        let mut slots = self.slots();
        self.health.set(slot.id, false);
        slots.free.push(slot.id);
        if slots.entry(slot).is_some() {
            slots.entries.remove(&slot.key);
            slots.unkept.insert(slot.key.clone(), None);
            self.changed.notify_one();
        }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    /// The entry of a slot, unless another slot has its key by now.
    fn entry(&mut self, slot: &Slot) -> Option<&mut Entry> {
        self.entries.get_mut(&slot.key).filter(|entry| entry.id == slot.id)
    }

    fn take_number(&mut self) -> Option<SlotId> {
        if let Some(id) = self.free.pop() {
            return Some(id);
        }
        let id = SlotId::new(self.next)?;
        self.next += 1;
        Some(id)
    }
}

fn state((server, probe): &Key, record: &Record) -> ProbeState {
    ProbeState {
        server: server.to_string(),
        probe: probe.clone(),
        state: record.verdict,
        since: (record.verdict != ProbeVerdict::Unknown).then_some(record.since),
        last: record.last.clone(),
        message: record.message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Reason;
    use super::*;

    fn address(last: u8) -> Target {
        [192, 0, 2, last].into()
    }

    fn note(table: &Table, slot: &Slot, passed: bool) {
        let outcome = Outcome { passed, reason: Reason::Connected, detail: String::new() };
        table.note(slot, outcome, Duration::ZERO, 5, (1, 1));
    }

    #[test]
    fn a_slot_lives_while_it_is_named_and_its_number_comes_again() {
        let table = Arc::new(Table::default());
        let slot = table.slot(&address(1), "web").expect("room");
        let same = table.slot(&address(1), "web").expect("room");
        let other = table.slot(&address(1), "mail").expect("room");
        assert!(Arc::ptr_eq(&slot, &same) && slot.id() != other.id());
        assert_eq!(table.take_unwatched().len(), 2);
        assert!(table.take_unwatched().is_empty());
        note(&table, &slot, false);
        assert!(table.health().is_failing(slot.id()) && !table.health().is_failing(other.id()));
        assert_eq!((table.status().failing, table.status().unknown), (1, 1));

        let number = slot.id();
        drop(slot);
        assert!(table.health().is_failing(number), "one of two is left");
        drop(same);
        assert!(!table.health().any_failing());
        assert_eq!(table.states().len(), 1);
        assert_eq!(table.take_unkept()[&(address(1), "web".to_string())], None, "the store forgets it");
        let again = table.slot(&address(2), "web").expect("room");
        assert_eq!(again.id(), number);
        assert_eq!(table.verdict(&again), ProbeVerdict::Unknown);
    }

    #[test]
    fn what_was_held_before_the_start_decides_at_once() {
        let key = (address(1), "web".to_string());
        let table = Arc::new(Table::remembering([(key.clone(), Record::remembered(true, 3))]));
        assert!(!table.health().any_failing(), "nobody has the server yet");
        let slot = table.slot(&address(1), "web").expect("room");
        assert!(table.snapshot().is_failing(slot.id()));
        let states = table.states();
        assert_eq!(
            (states[0].state, states[0].since, &states[0].last),
            (ProbeVerdict::Failing, Some(3), &None)
        );
        note(&table, &slot, true);
        let unkept = table.take_unkept();
        assert_eq!(
            unkept[&key].as_ref().map(|record| (record.verdict, record.since)),
            Some((ProbeVerdict::Passing, 5))
        );
        note(&table, &slot, false);
        table.put_back(unkept);
        assert_eq!(
            table.take_unkept()[&key].as_ref().map(|r| r.verdict),
            Some(ProbeVerdict::Failing),
            "the newer"
        );
        table.give_up(&slot, "no such probe");
        assert!(!table.health().any_failing());
        assert_eq!(table.states()[0].message.as_deref(), Some("no such probe"));
    }

    #[test]
    fn beyond_the_table_there_is_no_slot() {
        let table = Arc::new(Table::default());
        let server = |n: u32| Target::from((n as u128).to_be_bytes());
        let held: Vec<_> =
            (0..routing::health::SLOTS_MAX as u32).map(|n| table.slot(&server(n), "web")).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(table.slot(&server(u32::MAX), "web").is_none());
        drop(held);
        assert!(table.slot(&server(u32::MAX), "web").is_some());
    }
}
