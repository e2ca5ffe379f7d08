//! Slots in shards: open addressing, read without a lock.
//!
//! A slot is a few atomic words: what `entry::pack` makes, and the key with the reference of its
//! name. There is one writer. It marks a slot busy, changes the other words, and sets the first word with a new
//! version; a reader takes the other words only if the first one was the same before and after. What was in a busy
//! slot stands beside the slots meanwhile, and readers take it from there: they never wait, and what is known is never
//! out of sight while it changes. Where only the first word is new, nothing is marked.
//! ```text
//! IPv4, 16 octets   entry | key 32, name 32
//! IPv6, 32 octets   entry | name 32 | key, first half | key, second half
//! ```

use std::sync::atomic::{AtomicU64, Ordering, fence};

use net::mapped::{Words, fetch};

use super::entry::{self, Entry};
use super::part;

/// How many slots one look-up goes over at most. With three quarters of the slots taken, one that finds nothing goes
/// over nine; what would be farther away than this is put in the place of what expires first.
pub(super) const PROBES_MAX: usize = 256;

/// How often a reader tries to read a slot: each try that fails has seen another change of that very slot, so that
/// more than a few take a writer that does nothing else.
const TRIES_MAX: usize = 64;

/// Words of a line of the processor's cache.
const LINE: usize = 8;

/// The most words of a slot.
const WORDS_MAX: usize = 4;

/// What slots are found by.
pub(super) trait Key: Copy + Eq {
    /// Words of a slot.
    const WORDS: usize;
    /// The words behind the first.
    fn write(self, name: u32) -> [u64; WORDS_MAX - 1];
    /// Key and name reference of those words.
    fn read(words: &[u64; WORDS_MAX - 1]) -> (Self, u32);
    /// Whether a slot's second word can be this key's: look-ups pass over most others by it alone.
    fn is_like(self, second: u64) -> bool;
    /// A hash; `seed` is nobody's to know.
    fn hash(self, seed: u64) -> u64;
}

impl Key for u32 {
    const WORDS: usize = 2;

    #[inline]
    fn write(self, name: u32) -> [u64; 3] {
        [u64::from(self) << 32 | u64::from(name), 0, 0]
    }

    #[inline]
    fn read(words: &[u64; 3]) -> (u32, u32) {
        ((words[0] >> 32) as u32, words[0] as u32)
    }

    #[inline]
    fn is_like(self, second: u64) -> bool {
        (second >> 32) as u32 == self
    }

    #[inline]
    fn hash(self, seed: u64) -> u64 {
        fold(u64::from(self) ^ seed, 0x9e37_79b9_7f4a_7c15)
    }
}

impl Key for u128 {
    const WORDS: usize = 4;

    #[inline]
    fn write(self, name: u32) -> [u64; 3] {
        [u64::from(name), (self >> 64) as u64, self as u64]
    }

    #[inline]
    fn read(words: &[u64; 3]) -> (u128, u32) {
        (u128::from(words[1]) << 64 | u128::from(words[2]), words[0] as u32)
    }

    #[inline]
    fn is_like(self, _: u64) -> bool {
        true
    }

    #[inline]
    fn hash(self, seed: u64) -> u64 {
        fold((self >> 64) as u64 ^ fold(self as u64 ^ seed, 0x9e37_79b9_7f4a_7c15), 0xd1b5_4a32_d192_ed03)
    }
}

/// Multiplies to 128 bits and folds the halves.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a | 1 << 63) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

/// Some slots, read by all and written by one.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) words: Words,
    /// The words of the slot that is busy, as they were before.
    before: [AtomicU64; WORDS_MAX],
}

/// Where a key is, or could be.
pub(super) enum Place {
    /// It is there.
    Found(usize, Entry, u32),
    /// It is not; this slot is free, whether nothing was ever in it, and which entry before it expires first.
    Free(usize, bool, Option<usize>),
    /// It is not, and no slot is free within reach; this one expires first.
    Full(usize),
    /// There are no slots.
    None,
}

impl Shard {
    /// A shard of free slots.
    pub(super) fn new<K: Key>(slots: usize) -> Shard {
        Shard::over(part::zeroed(slots * K::WORDS))
    }

    /// A shard of these slots.
    pub(super) fn over(words: Words) -> Shard {
        Shard { words, before: Default::default() }
    }

    /// How many slots it has.
    #[inline]
    pub(super) fn slots<K: Key>(&self) -> usize {
        self.words.len() / K::WORDS
    }

    /// Finds a key.
    #[inline]
    pub(super) fn get<K: Key>(&self, key: K, hash: u64) -> Option<(Entry, u32)> {
        let words = &*self.words;
        let slots = words.len() / K::WORDS;
        let mut at = start(hash, slots);
        for _ in 0..PROBES_MAX.min(slots) {
            let slot = words.get(at * K::WORDS..(at + 1) * K::WORDS)?;
            let first = slot[0].load(Ordering::Acquire);
            if first == 0 {
                return None;
            }
            if key.is_like(slot[1].load(Ordering::Relaxed))
                && let Some((entry, found, name)) = self.read_from::<K>(slot, first)
                && found == key
            {
                return Some((entry, name));
            }
            at = if at + 1 == slots { 0 } else { at + 1 };
        }
        None
    }

    /// Has the line fetched where a look-up begins, and the one behind that, where many go on.
    #[inline]
    pub(super) fn approach<K: Key>(&self, hash: u64) {
        let words = &*self.words;
        let at = start(hash, words.len() / K::WORDS) * K::WORDS;
        for at in [at, at + LINE] {
            if let Some(word) = words.get(at) {
                fetch(word);
            }
        }
    }

    /// Reads a slot; `None` where it holds nothing, or is being written.
    pub(super) fn read<K: Key>(&self, at: usize) -> Option<(Entry, K, u32)> {
        let slot = &self.words[at * K::WORDS..(at + 1) * K::WORDS];
        self.read_from(slot, slot[0].load(Ordering::Acquire))
    }

    /// Finds where a key is or may go. For the writer alone.
    pub(super) fn place<K: Key>(&self, key: K, hash: u64) -> Place {
        let slots = self.slots::<K>();
        if slots == 0 {
            return Place::None;
        }
        let mut at = start(hash, slots);
        let (mut free, mut soonest): (_, Option<(u32, usize)>) = (None, None);
        for _ in 0..PROBES_MAX.min(slots) {
            let slot = &self.words[at * K::WORDS..(at + 1) * K::WORDS];
            let first = slot[0].load(Ordering::Relaxed);
            match self.read_from::<K>(slot, first) {
                Some((entry, found, name)) if found == key => return Place::Found(at, entry, name),
                Some((entry, ..)) => {
                    let this = (entry.expiry, at);
                    soonest = Some(soonest.map_or(this, |other| other.min(this)));
                }
                None => free = free.or(Some((at, first == 0))),
            }
            if first == 0 {
                break;
            }
            at = if at + 1 == slots { 0 } else { at + 1 };
        }
        let soonest = soonest.map(|(_, at)| at);
        match (free, soonest) {
            (Some((at, fresh)), soonest) => Place::Free(at, fresh, soonest),
            (None, Some(at)) => Place::Full(at),
            (None, None) => Place::None,
        }
    }

    /// Writes a slot. For the writer alone.
    pub(super) fn write<K: Key>(&self, at: usize, key: K, entry: &Entry, name: u32) {
        let slot = &self.words[at * K::WORDS..(at + 1) * K::WORDS];
        let before = slot[0].load(Ordering::Relaxed);
        let version = entry::version(before);
        let words = key.write(name);
        let is_same = |(atomic, word): (&AtomicU64, &u64)| atomic.load(Ordering::Relaxed) == *word;
        // A name that is only renewed needs no more than its first word.
        if !slot[1..].iter().zip(&words).all(is_same) {
            // Whoever sees these has seen the last change complete, and whoever sees the mark sees these.
            fence(Ordering::Release);
            for (kept, atomic) in self.before.iter().zip(slot) {
                kept.store(atomic.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            slot[0].store(entry::BUSY << 48 | version << 56, Ordering::Release);
            fence(Ordering::Release);
            for (atomic, word) in slot[1..].iter().zip(words) {
                atomic.store(word, Ordering::Relaxed);
            }
        }
        slot[0].store(entry::pack(entry, (version + 1) & 0xff), Ordering::Release);
    }

    /// Reads a slot whose first word was just read.
    #[inline]
    fn read_from<K: Key>(&self, slot: &[AtomicU64], mut first: u64) -> Option<(Entry, K, u32)> {
        for _ in 0..TRIES_MAX {
            let mut words = [0; WORDS_MAX - 1];
            let mut take = |from: &[AtomicU64]| {
                for (word, atomic) in words.iter_mut().zip(from) {
                    *word = atomic.load(Ordering::Relaxed);
                }
            };
            let entry = if entry::kind(first) == entry::BUSY {
                take(&self.before[1..slot.len()]);
                entry::unpack(self.before[0].load(Ordering::Relaxed))
            } else {
                take(&slot[1..]);
                Some(entry::unpack(first)?)
            };
            // All of one state where the slot is still what it was.
            fence(Ordering::Acquire);
            let again = slot[0].load(Ordering::Relaxed);
            if again == first {
                let (key, name) = K::read(&words);
                return Some((entry?, key, name));
            }
            first = slot[0].load(Ordering::Acquire);
        }
        None
    }

    /// Takes what is in a slot out of it. For the writer alone.
    pub(super) fn remove<K: Key>(&self, at: usize) {
        let first = &self.words[at * K::WORDS];
        let version = (entry::version(first.load(Ordering::Relaxed)) + 1) & 0xff;
        first.store(entry::GONE << 48 | version << 56, Ordering::Release);
    }
}

/// The first slot of a hash: its lower half, stretched over the slots, for the upper bits chose the shard.
#[inline]
fn start(hash: u64, slots: usize) -> usize {
    (((hash & 0xffff_ffff) * slots as u64) >> 32) as usize
}
