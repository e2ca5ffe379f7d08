//! The ranges of one family, and the tables that find the one that an address is in.

use std::fmt;

use crate::region::RegionId;

/// The bit of a range's word that says: this is a divided /64, and the lower bits are the cell's number.
///
/// Regions need the lower 24 bits only.
pub(super) const CELL: u32 = 1 << 31;

/// The bit of a slot that says that it is not an answer but refers to one. Without it the lower 24 bits
/// are the region and the 7 above them the scope, which is at most 64 there.
const REFERENCE: u32 = 1 << 31;

/// The bit of a reference that says that it is the number of the first of a few ranges, not of a table.
const WINDOW: u32 = 1 << 30;

/// How many ranges are to begin in a slot, on average: fewer make more slots answers themselves, and
/// take more memory for them.
const RANGES_PER_SLOT: usize = 2;

/// How many ranges may begin in an IPv4 slot that has no table: 8 ranges are as long as a cache line.
pub(super) const V4_WINDOW: usize = 8;

/// The same for IPv6, whose prefixes crowd: as many ranges as begin in most allocations, so that one slot is
/// most of the way. Their cache lines are fetched at the same time, where tables below tables would be fetched
/// one after the other, and would end at a depth that the processor cannot foresee.
pub(super) const V6_WINDOW: usize = 30;

/// In a window, every so many'th range is compared first, and then those between two of them.
const STRIDE: usize = 5;

/// Ranges by their first key, with a tree of tables that leads to the few that come into question.
///
/// `W` is how many ranges may begin in a slot that has no table of its own.
#[derive(Clone, Debug)]
pub(super) struct Ranges<K: Key, const W: usize> {
    /// Ascending from 0; the word is a region, or [`CELL`] and the number of a cell. At the end
    /// `W + 1` more with the highest key are filling, so that a window always fits.
    ranges: Vec<K::Range>,
    /// How many of them are ranges.
    pub(super) len: usize,
    /// All tables, each its own description, as a range, and then its slots, so that a small one is in one cache
    /// line with its slots; and last the slot that stands for all addresses.
    slots: Vec<u32>,
}

/// A table divides the keys from one start to another into slots of equal width.
#[derive(Clone, Copy, Debug)]
struct Table<K> {
    /// Where the first slot begins, a multiple of the width. Lower keys belong to that slot as well.
    low: K,
    /// The number of its last slot. Higher keys belong to that slot as well.
    last: u32,
    /// The logarithm of the width, at most 64.
    shift: u32,
}

/// The bits of a table's word that are its last slot's number; the others are the logarithm of the width.
const LAST_BITS: u32 = 25;

impl<K: Key, const W: usize> Ranges<K, W> {
    /// `ranges` ascend by start, and the first starts at 0.
    pub(super) fn new(from: Vec<(K, u32)>) -> Self {
        let len = from.len();
        let mut ranges = Vec::with_capacity(len + W + 1);
        ranges.extend(from.into_iter().map(|(start, word)| start.range(word)));
        ranges.resize(len + W + 1, K::MAX.range(0));
        let mut built = Ranges { ranges, len, slots: Vec::new() };
        let root = built.slot(0, len, K::ZERO);
        built.slots.push(root);
        built.slots.shrink_to_fit();
        built
    }

    /// The word of the range that holds `key`, and the scope there.
    #[inline(always)]
    pub(super) fn find(&self, key: K) -> (u32, u8) {
        let mut slot = *self.slots.last().expect("there is always one for all addresses");
        while slot & (REFERENCE | WINDOW) == REFERENCE {
            let table = &self.slots[(slot & !REFERENCE) as usize..];
            slot = table[K::WORDS + Table::<K>::read(table).slot_of(key) as usize];
        }
        if slot & REFERENCE == 0 {
            return (slot & RegionId::BITS, (slot >> 24) as u8);
        }
        let first = (slot & !(REFERENCE | WINDOW)) as usize;
        let window = self.ranges[first + 1..].first_chunk::<W>().expect("W + 1 are filling");
        // Ranges behind the slot's last begin behind the key, so counting needs no end.
        let begins = |range: &K::Range| usize::from(K::parts(range).0 <= key);
        let mut begun = 0;
        if W > 2 * STRIDE {
            let last_of = |stride: usize| &window[stride * STRIDE - 1];
            begun = STRIDE * (1..W / STRIDE).map(|stride| begins(last_of(stride))).sum::<usize>();
            begun += window[begun..][..STRIDE].iter().map(begins).sum::<usize>();
        } else {
            begun += window.iter().map(begins).sum::<usize>();
        }
        // The highest key counts the filling too.
        let at = (first + begun).min(self.len - 1);
        (K::parts(&self.ranges[at]).1, self.scope(at, key))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (K, u32)> + '_ {
        self.ranges[..self.len].iter().map(K::parts)
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.ranges[..]) + size_of_val(&self.slots[..])
    }

    #[inline(always)]
    fn start(&self, at: usize) -> K {
        K::parts(&self.ranges[at]).0
    }

    #[inline(always)]
    fn scope(&self, at: usize, key: K) -> u8 {
        let next = if at + 1 < self.len { Some(self.start(at + 1)) } else { None };
        scope(self.start(at), next, key)
    }

    /// What stands in the slot that begins at `key`, in range `first`, and ends before range `end`
    /// begins; makes the tables below it.
    fn slot(&mut self, first: usize, end: usize, key: K) -> u32 {
        let begin = end - first - 1;
        let word = K::parts(&self.ranges[first]).1;
        if begin == 0 && word & CELL == 0 {
            return u32::from(self.scope(first, key)) << 24 | word;
        }
        if begin <= W {
            return REFERENCE | WINDOW | first as u32;
        }
        let at = self.slots.len();
        let table = Table::over(self.start(first + 1), self.start(end - 1), begin / RANGES_PER_SLOT);
        self.slots.extend_from_slice(table.written().as_ref());
        let slots = self.slots.len();
        self.slots.resize(slots + table.last as usize + 1, 0);
        let mut from = first;
        for i in 0..=table.last {
            let rest = &self.ranges[from + 1..end];
            let to = from + 1 + rest.partition_point(|range| table.slot_of(K::parts(range).0) <= i);
            let slot = self.slot(from, to, table.low.advance(i, table.shift));
            self.slots[slots + i as usize] = slot;
            from = to - 1;
        }
        REFERENCE | at as u32
    }
}

impl<K: Key> Table<K> {
    /// A table of `slots` slots or down to half as many, the first of which holds `lowest` and the
    /// last `highest`.
    fn over(lowest: K, highest: K, slots: usize) -> Self {
        let mut shift = 0;
        // The width is a power of two, so that every slot but the first and the last is a block.
        while highest.distance(lowest.floor(shift), shift) > slots as u64 {
            shift += 1;
        }
        let low = lowest.floor(shift);
        Table { low, last: highest.distance(low, shift) as u32, shift }
    }

    /// The table that these words begin with.
    #[inline(always)]
    fn read(words: &[u32]) -> Self {
        let (low, word) = K::read(words);
        Table { low, last: word & ((1 << LAST_BITS) - 1), shift: word >> LAST_BITS }
    }

    fn written(&self) -> K::Range {
        self.low.range(self.shift << LAST_BITS | self.last)
    }

    #[inline(always)]
    fn slot_of(&self, key: K) -> u32 {
        key.distance(self.low, self.shift).min(u64::from(self.last)) as u32
    }
}

/// The shortest prefix length whose block around `key` does not leave the range that begins at
/// `start` and ends before `next`.
///
/// A block leaves the range when it reaches its nearest neighbour on either side, `start - 1` or
/// `next`. So it must be one bit longer than what `key` has in common with either of them.
#[inline(always)]
pub(super) fn scope<K: Key>(start: K, next: Option<K>, key: K) -> u8 {
    let left = start.predecessor().map_or(0, |before| 1 + key.common_bits(before));
    let right = next.map_or(0, |behind| 1 + key.common_bits(behind));
    left.max(right) as u8
}

/// A word of address.
pub(super) trait Key: Copy + Ord {
    /// A range: the key at which it begins, low word first, and its word. They lie together so that
    /// one cache line holds both.
    type Range: Copy + fmt::Debug + AsRef<[u32]>;
    /// How many words a range has.
    const WORDS: usize;
    /// The lowest address.
    const ZERO: Self;
    /// The highest address.
    const MAX: Self;

    /// The range that begins here.
    fn range(self, word: u32) -> Self::Range;

    /// Where a range begins, and its word.
    fn parts(range: &Self::Range) -> (Self, u32);

    /// The same of the range that these words begin with.
    fn read(words: &[u32]) -> (Self, u32);

    /// The address before it.
    fn predecessor(self) -> Option<Self>;

    /// How many leading bits are equal.
    fn common_bits(self, other: Self) -> u32;

    /// How far it lies behind `from`, in units of 2^`shift`; 0 where it lies before it.
    fn distance(self, from: Self, shift: u32) -> u64;

    /// The next lower multiple of 2^`shift`.
    fn floor(self, shift: u32) -> Self;

    /// The address `units` of 2^`shift` further on.
    fn advance(self, units: u32, shift: u32) -> Self;
}

macro_rules! key {
    ($word:ty, $words:literal, $range:expr, $parts:expr) => {
        impl Key for $word {
            type Range = [u32; $words];
            const WORDS: usize = $words;
            const ZERO: $word = 0;
            const MAX: $word = <$word>::MAX;

            fn range(self, word: u32) -> [u32; $words] {
                $range(self, word)
            }

            #[inline(always)]
            fn parts(range: &[u32; $words]) -> ($word, u32) {
                $parts(range)
            }

            #[inline(always)]
            fn read(words: &[u32]) -> ($word, u32) {
                $parts(words.first_chunk().expect("a range is written whole"))
            }

            #[inline(always)]
            fn predecessor(self) -> Option<$word> {
                self.checked_sub(1)
            }

            #[inline(always)]
            fn common_bits(self, other: $word) -> u32 {
                (self ^ other).leading_zeros()
            }

            #[inline(always)]
            fn distance(self, from: $word, shift: u32) -> u64 {
                u64::from(self.saturating_sub(from) >> shift)
            }

            fn floor(self, shift: u32) -> $word {
                self >> shift << shift
            }

            fn advance(self, units: u32, shift: u32) -> $word {
                self + (<$word>::from(units) << shift)
            }
        }
    };
}

key!(u32, 2, |start, word| [start, word], |range: &[u32; 2]| (range[0], range[1]));
key!(u64, 3, |start: u64, word| [start as u32, (start >> 32) as u32, word], |range: &[u32; 3]| {
    (u64::from(range[1]) << 32 | u64::from(range[0]), range[2])
});
