//! What probes say of servers: fast state, one flat table of atomic cells.
//!
//! ```text
//! word 0  │ slot 0 .. 63    a bit each: 1 while the probe fails
//! word 1  │ slot 64 .. 127
//! ...
//! ```
//! A slot is of one probe of one server, and is named by compiled policies. The table outlives them: results
//! change while generations stay. Reading takes no lock; who writes sees to it that nobody else does.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The most slots of a table: 8 KiB of bits, and with one probe in ten seconds each, 6,500 probes a second.
pub const SLOTS_MAX: usize = 65_536;

/// A place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(u32);

impl SlotId {
    /// Of a server that is not probed.
    pub const NONE: SlotId = SlotId(u32::MAX);

    /// The slot with this number; `None` beyond the table.
    pub const fn new(number: u32) -> Option<SlotId> {
        if (number as usize) < SLOTS_MAX { Some(SlotId(number)) } else { None }
    }

    /// Its number, from 0.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Which slots fail.
#[derive(Debug)]
pub struct Health {
    failing: Box<[AtomicU64]>,
    count: AtomicU32,
    epoch: AtomicU64,
}

impl Default for Health {
    /// A table in which nothing fails, at epoch 0.
    fn default() -> Self {
        Health {
            failing: (0..SLOTS_MAX / 64).map(|_| AtomicU64::new(0)).collect(),
            count: AtomicU32::new(0),
            epoch: AtomicU64::new(0),
        }
    }
}

impl Clone for Health {
    /// The table as it is; whoever wants all of one epoch keeps writers away meanwhile.
    fn clone(&self) -> Self {
        let copied = |word: &AtomicU64| AtomicU64::new(word.load(Ordering::Relaxed));
        Health {
            failing: self.failing.iter().map(copied).collect(),
            count: AtomicU32::new(self.count.load(Ordering::Relaxed)),
            epoch: AtomicU64::new(self.epoch()),
        }
    }
}

impl Health {
    /// Whether the probe of a slot fails.
    #[inline]
    pub fn is_failing(&self, slot: SlotId) -> bool {
        let word = self.failing.get(slot.0 as usize / 64).map_or(0, |word| word.load(Ordering::Relaxed));
        word >> (slot.0 % 64) & 1 != 0
    }

    /// Whether any probe fails: where none does, nobody need look.
    #[inline]
    pub fn any_failing(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// How often anything changed.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Sets whether the probe of a slot fails; a change begins the next epoch. One thread at a time may call it.
    pub fn set(&self, slot: SlotId, failing: bool) {
        let Some(word) = self.failing.get(slot.0 as usize / 64) else { return };
        if self.is_failing(slot) == failing {
            return;
        }
        let bit = 1 << (slot.0 % 64);
        if failing {
            word.fetch_or(bit, Ordering::Relaxed);
            self.count.fetch_add(1, Ordering::Relaxed);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        self.epoch.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_an_epoch_and_other_slots_stay() {
        let slot = |number| SlotId::new(number).expect("within the table");
        let last = slot(SLOTS_MAX as u32 - 1);
        assert_eq!(SlotId::new(SLOTS_MAX as u32), None);
        let health = Health::default();
        for (id, failing, epoch, any) in [
            (slot(64), true, 1, true),
            (slot(64), true, 1, true),
            (last, true, 2, true),
            (SlotId::NONE, true, 2, true),
            (slot(64), false, 3, true),
            (slot(63), false, 3, true),
            (last, false, 4, false),
        ] {
            health.set(id, failing);
            assert_eq!((health.epoch(), health.any_failing()), (epoch, any), "{id:?} {failing}");
            assert_eq!(health.is_failing(id), failing && id != SlotId::NONE);
        }
        health.set(last, true);
        let copy = health.clone();
        health.set(last, false);
        assert!(copy.is_failing(last) && copy.any_failing() && copy.epoch() == 5);
        assert!(!health.is_failing(slot(63)) && !health.is_failing(slot(65)));
    }
}
