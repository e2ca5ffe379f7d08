//! What an external proximity service said of clients, and whom it is still to be asked about.
//!
//! Beside the generation and never in it: a bounded table of regions that expire, and a bounded queue of blocks of
//! addresses that nobody knows yet. A decision reads the one and writes to the other, and waits for neither: both are
//! atomic words. Who asks the service empties the queue and fills the table.
//!
//! ```text
//! route ─> region(client): known? ─ yes ─> its region
//!                             └ no ─> no region, for a short time; noted ─> next_note ─> asked ─> learn
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use siphasher::sip::SipHasher13;

use crate::prefix::Prefix;
use crate::region::RegionId;

/// The bits of an IPv4 client that are asked about as one, unless the query tells more: the networks that RFC 7871
/// §11.1 recommends, and in which clients are together nearly always.
pub const V4_BITS: u8 = 24;

/// The same for IPv6.
pub const V6_BITS: u8 = 56;

/// How many notes may wait to be fetched: those of a burst between two looks. Further ones are lost, and come again
/// with the next query.
pub const NOTES_MAX: usize = 1 << 13;

/// How many cells one block can be in: the table's memory is one line of cache for each.
const WAYS: usize = 4;

/// How often a note tries to take a place that other threads take too.
const TRIES_MAX: usize = 8;

/// After so many parts of its life, of [`PARTS`], a region that is asked for is to be asked about again.
const FRESH_PARTS: u64 = 3;

/// The parts that a life is told in.
const PARTS: u64 = 4;

/// What the service said, and what it is to be asked.
pub struct External {
    key: [u8; 16],
    short_ttl: u32,
    life: Duration,
    cells: Box<[Cell]>,
    slots: Box<[Slot]>,
    noted: AtomicUsize,
    fetched: AtomicUsize,
    lost: AtomicU64,
}

/// What is known of one block. Both words are written apart, and a reader that meets half of each finds that they do not
/// belong together: `check` is the block's hash with the bits of `word` turned over.
#[derive(Default)]
struct Cell {
    check: AtomicU64,
    /// The region in the lower 24 bits, and above them the second in which it expires; 0 for nothing.
    word: AtomicU64,
}

/// A place in the queue (after D. Vyukov's bounded queue): `turn` says who may use it next.
struct Slot {
    turn: AtomicUsize,
    words: [AtomicU64; 4],
}

/// A block that the service is to be asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The block.
    pub block: Prefix,
    /// Who wanted to know, as a number of its network.
    pub asker: u64,
}

/// What is known of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its region; [`RegionId::NONE`] where the service has none, or has not said yet.
    pub region: RegionId,
    /// For how many leading bits of its address that holds.
    pub scope: u8,
    /// Whether the service said so.
    pub is_known: bool,
}

/// A query's side: the service, the time, and how much of the client's address is given.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// What the service said so far.
    pub external: &'a External,
    /// The monotonic time.
    pub now: Duration,
    /// How many bits of the address client subnet gave; 0 without it.
    pub source: u8,
    /// Who sent the query; nothing is noted for nobody.
    pub asker: Option<IpAddr>,
}

impl External {
    /// A table of nothing, for at least `known` blocks; what is learned holds for `life`. Answers from ignorance hold
    /// for `short_ttl` seconds at most. `key` should be secret, or clients could crowd the table.
    pub fn new(known: usize, life: Duration, short_ttl: u32, key: [u8; 16]) -> External {
        let slot = |turn| Slot { turn: AtomicUsize::new(turn), words: Default::default() };
        External {
            key,
            short_ttl,
            life,
            cells: (0..known.max(WAYS).next_power_of_two()).map(|_| Cell::default()).collect(),
            slots: (0..NOTES_MAX).map(slot).collect(),
            noted: AtomicUsize::new(0),
            fetched: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// The longest time, in seconds, that an answer from ignorance may be kept.
    pub fn short_ttl(&self) -> u32 {
        self.short_ttl
    }

    /// How many blocks can be known at a time.
    pub fn capacity(&self) -> usize {
        self.cells.len()
    }

    /// How many blocks are known.
    pub fn known(&self, now: Duration) -> usize {
        self.cells.iter().filter(|cell| expires(cell.word.load(Ordering::Relaxed)) > now.as_secs()).count()
    }

    /// Notes that found the queue full.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// The region of a block, and whether it is still fresh; `None` where it is not known.
    pub fn find(&self, block: Prefix, now: Duration) -> Option<(RegionId, bool)> {
        let hash = self.hash(block);
        let found = self.set(hash).iter().find_map(|cell| {
            let word = cell.word.load(Ordering::Relaxed);
            (word != 0 && cell.check.load(Ordering::Relaxed) == hash ^ word).then_some(word)
        })?;
        let left = expires(found).checked_sub(now.as_secs()).filter(|left| *left > 0)?;
        let is_fresh = left * PARTS > self.life.as_secs() * (PARTS - FRESH_PARTS);
        Some((RegionId::from_word(found as u32), is_fresh))
    }

    /// Keeps what the service said of a block; where there is no room, what expires first goes. Meant for one thread.
    pub fn learn(&self, block: Prefix, region: RegionId, now: Duration) {
        let hash = self.hash(block);
        let until = now.as_secs().saturating_add(self.life.as_secs().max(1));
        let word = until << 24 | u64::from(region.get());
        let of_block = |cell: &&Cell| {
            let word = cell.word.load(Ordering::Relaxed);
            word != 0 && cell.check.load(Ordering::Relaxed) == hash ^ word
        };
        let first = |cell: &&Cell| expires(cell.word.load(Ordering::Relaxed));
        let set = self.set(hash);
        let Some(cell) = set.iter().find(of_block).or_else(|| set.iter().min_by_key(first)) else { return };
        cell.word.store(word, Ordering::Relaxed);
        cell.check.store(hash ^ word, Ordering::Relaxed);
    }

    /// The oldest note that was not fetched yet.
    pub fn next_note(&self) -> Option<Note> {
        let at = self.fetched.load(Ordering::Relaxed);
        let slot = &self.slots[at % NOTES_MAX];
        if slot.turn.load(Ordering::Acquire) != at.wrapping_add(1) {
            return None;
        }
        let [high, low, about, asker] = [0, 1, 2, 3].map(|word| slot.words[word].load(Ordering::Relaxed));
        self.fetched.store(at.wrapping_add(1), Ordering::Relaxed);
        slot.turn.store(at.wrapping_add(NOTES_MAX), Ordering::Release);
        let address = match about >> 8 {
            0 => IpAddr::V4(Ipv4Addr::from_bits(low as u32)),
            _ => IpAddr::V6(Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low))),
        };
        Some(Note { block: Prefix::new(address, about as u8)?, asker })
    }

    fn note(&self, block: Prefix, asker: u64) {
        let (high, low, family) = match block.address() {
            IpAddr::V4(v4) => (0, u64::from(v4.to_bits()), 0),
            IpAddr::V6(v6) => ((v6.to_bits() >> 64) as u64, v6.to_bits() as u64, 1),
        };
        let words = [high, low, family << 8 | u64::from(block.length()), asker];
        let mut at = self.noted.load(Ordering::Relaxed);
        for _ in 0..TRIES_MAX {
            let slot = &self.slots[at % NOTES_MAX];
            let turn = slot.turn.load(Ordering::Acquire);
            if turn != at {
                let next = self.noted.load(Ordering::Relaxed);
                if next == at {
                    // Its place is still in use: the queue is full.
                    break;
                }
                at = next;
                continue;
            }
            let next = at.wrapping_add(1);
            match self.noted.compare_exchange_weak(at, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    for (word, value) in slot.words.iter().zip(words) {
                        word.store(value, Ordering::Relaxed);
                    }
                    slot.turn.store(next, Ordering::Release);
                    return;
                }
                Err(other) => at = other,
            }
        }
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// The cells that a block can be in.
    fn set(&self, hash: u64) -> &[Cell] {
        let sets = self.cells.len() / WAYS;
        let first = (hash as usize % sets) * WAYS;
        &self.cells[first..first + WAYS]
    }

    fn hash(&self, block: Prefix) -> u64 {
        let mut hashed = [0; 18];
        match block.address() {
            IpAddr::V4(v4) => hashed[..4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => hashed[..16].copy_from_slice(&v6.octets()),
        }
        hashed[16] = u8::from(block.address().is_ipv6());
        hashed[17] = block.length();
        SipHasher13::new_with_key(&self.key).hash(&hashed)
    }
}

impl Asking<'_> {
    /// What is known of a client of whom the partition says "ask", for blocks of `leaf_scope` bits around it. What is
    /// not known, or not for long any more, is noted.
    pub fn region(&self, client: IpAddr, leaf_scope: u8) -> Told {
        let bits = if client.is_ipv4() { V4_BITS } else { V6_BITS };
        let scope = bits.max(self.source).max(leaf_scope);
        let Some(block) = Prefix::new(client, scope) else {
            return Told { region: RegionId::NONE, scope, is_known: false };
        };
        let found = self.external.find(block, self.now);
        if let Some(asker) = self.asker
            && found.is_none_or(|(_, is_fresh)| !is_fresh)
        {
            self.external.note(block, network(asker));
        }
        let region = found.map_or(RegionId::NONE, |(region, _)| region);
        Told { region, scope, is_known: found.is_some() }
    }
}

/// A number for the network of who asks, so that one that floods takes no other's place.
fn network(asker: IpAddr) -> u64 {
    match asker {
        IpAddr::V4(v4) => u64::from(v4.to_bits() >> (32 - V4_BITS)),
        IpAddr::V6(v6) => 1 << 63 | (v6.to_bits() >> (128 - V6_BITS)) as u64,
    }
}

/// The second in which a cell's word expires.
fn expires(word: u64) -> u64 {
    word >> 24
}

impl std::fmt::Debug for External {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("External").field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn external(known: usize) -> External {
        External::new(known, seconds(100), 10, [7; 16])
    }

    fn region(id: u32) -> RegionId {
        RegionId::new(id).unwrap()
    }

    fn block(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_learned_is_found_until_it_expires() {
        let external = external(64);
        let (v4, v6) = (block("192.0.2.0/24"), block("2001:db8::/56"));
        external.learn(v4, region(5), seconds(10));
        external.learn(v6, RegionId::NONE, seconds(10));
        for (block, at, expected) in [
            (v4, 10, Some((region(5), true))),
            (v4, 84, Some((region(5), true))),
            (v4, 85, Some((region(5), false))),
            (v4, 109, Some((region(5), false))),
            (v4, 110, None),
            (v6, 11, Some((RegionId::NONE, true))),
            (self::block("192.0.2.0/25"), 11, None),
            (self::block("0.0.0.0/24"), 11, None),
        ] {
            assert_eq!(external.find(block, seconds(at)), expected, "{block} at {at}");
        }
        external.learn(v4, region(6), seconds(90));
        assert_eq!(external.find(v4, seconds(150)), Some((region(6), true)));
        assert_eq!((external.known(seconds(109)), external.known(seconds(110))), (2, 1));
    }

    #[test]
    fn a_client_that_is_not_known_is_noted_with_its_block() {
        let external = external(64);
        let asker = Some("198.51.100.7".parse().unwrap());
        let at = |source| Asking { external: &external, now: seconds(1), source, asker };
        for (client, source, leaf, expected) in [
            ("192.0.2.77", 0, 0, "192.0.2.0/24"),
            ("192.0.3.77", 20, 8, "192.0.3.0/24"),
            ("192.0.2.77", 28, 0, "192.0.2.64/28"),
            ("192.0.2.77", 0, 30, "192.0.2.76/30"),
            ("2001:db8:0:1ff::1", 0, 0, "2001:db8:0:100::/56"),
            ("2001:db8:0:1ff::1", 64, 0, "2001:db8:0:1ff::/64"),
        ] {
            let told = at(source).region(client.parse().unwrap(), leaf);
            let expected = block(expected);
            let note = external.next_note().expect("it was noted");
            assert_eq!((told.region, told.is_known, told.scope), (RegionId::NONE, false, expected.length()));
            assert_eq!((note.block, note.asker), (expected, 198 << 16 | 51 << 8 | 100));
            external.learn(expected, region(3), seconds(1));
            let told = at(source).region(client.parse().unwrap(), leaf);
            assert_eq!((told.region, told.is_known, told.scope), (region(3), true, expected.length()));
            assert_eq!(external.next_note(), None, "what is fresh is not asked about");
        }
        let nobody = Asking { asker: None, ..at(0) };
        assert!(!nobody.region("203.0.113.1".parse().unwrap(), 0).is_known);
        assert_eq!(external.next_note(), None, "nobody wants to know");
        let late = Asking { now: seconds(90), ..at(0) };
        assert!(late.region("192.0.2.1".parse().unwrap(), 0).is_known);
        assert_eq!(
            external.next_note().map(|note| note.block),
            Some(block("192.0.2.0/24")),
            "ahead of its end"
        );
    }

    #[test]
    fn the_table_and_the_queue_are_bounded() {
        let external = external(1_000);
        assert_eq!(external.capacity(), 1_024);
        for number in 0..100_000u32 {
            let block = Prefix::new(Ipv4Addr::from_bits(number << 8).into(), 24).unwrap();
            external.learn(block, region(1), seconds(5));
            external.note(block, 1);
        }
        assert!((512..=1_024).contains(&external.known(seconds(5))));
        assert_eq!(external.lost(), 100_000 - NOTES_MAX as u64);
        let fetched = std::iter::from_fn(|| external.next_note()).count();
        assert_eq!(fetched, NOTES_MAX);
        external.note(block("10.0.0.0/24"), 2);
        assert_eq!(external.next_note(), Some(Note { block: block("10.0.0.0/24"), asker: 2 }));
    }

    #[test]
    fn threads_note_side_by_side_and_nothing_is_torn() {
        const THREADS: u32 = 4;
        const NOTES: u32 = 30_000;
        let external = external(1 << 12);
        let of = |number: u32| Prefix::new(Ipv4Addr::from_bits(number << 8).into(), 24).unwrap();
        let fetched = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let external = &external;
                    scope.spawn(move || {
                        for number in (thread * NOTES)..((thread + 1) * NOTES) {
                            external.note(of(number), u64::from(number));
                            // A block has its own number as its region, whoever reads when.
                            if let Some((region, _)) = external.find(of(number % 512), seconds(1)) {
                                assert_eq!(region.get(), number % 512 + 1);
                            }
                        }
                    })
                })
                .collect();
            let mut fetched = Vec::new();
            let mut learned = 0;
            while writers.iter().any(|writer| !writer.is_finished()) {
                fetched.extend(std::iter::from_fn(|| external.next_note()));
                external.learn(of(learned % 512), region(learned % 512 + 1), seconds(1));
                learned += 1;
            }
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            fetched.extend(std::iter::from_fn(|| external.next_note()));
            fetched
        });
        assert!(fetched.iter().all(|note| note.block == of(note.asker as u32)), "a torn note");
        let different: HashSet<u64> = fetched.iter().map(|note| note.asker).collect();
        assert_eq!(different.len(), fetched.len(), "each at most once");
        assert_eq!(fetched.len() as u64 + external.lost(), u64::from(THREADS * NOTES));
    }
}
