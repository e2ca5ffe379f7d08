//! The ranges of one family, and the tables that find the one that an address is in.

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

/// How many starts may be looked at in an IPv4 slot that has no table: the one in force as the slot begins, those of the
/// ranges that begin in it, 7 at most, and the one behind them.
pub(super) const V4_WINDOW: usize = 1 + 7 + 1;

/// The same for IPv6, whose prefixes crowd: as many ranges as begin in most allocations, so that one slot is
/// most of the way. They are halved as often whatever the key, so that the processor works on the next look-up
/// meanwhile, where tables below tables would end at a depth that it cannot foresee.
pub(super) const V6_WINDOW: usize = 1 + 31 + 1;

/// Ranges by their first key, with a tree of tables that leads to the few that come into question.
///
/// `W` is the size of a window: two more than ranges may begin in a slot that has no table of its own, and one more than a
/// power of two.
#[derive(Clone, Debug)]
pub(super) struct Ranges<K: Key, const W: usize> {
    /// Where ranges begin, ascending from 0. At the end `W` more of the highest key are filling, so that a
    /// window always fits. They lie close together, as those of a window are read from side to side.
    starts: Vec<K>,
    /// What each says: a region, or [`CELL`] and the number of a cell.
    words: Vec<u32>,
    /// The table of all keys. It is here, not among its slots, as each look-up begins with it.
    root: Table,
    /// The slots of the root; then all other tables, each its own description and then its slots, so that a small one is
    /// in one cache line with its slots.
    slots: Vec<u32>,
}

/// A table divides the keys from one start to another into slots of equal width.
#[derive(Clone, Copy, Debug)]
struct Table {
    /// Where the first slot begins, a multiple of the width. Lower keys belong to that slot as well.
    low: u64,
    /// The number of its last slot. Higher keys belong to that slot as well.
    last: u32,
    /// The logarithm of the width, below 64.
    shift: u32,
}

/// How many words describe a table.
const TABLE_WORDS: usize = 3;

/// The bits of a table's word that are its last slot's number; the others are the logarithm of the width.
const LAST_BITS: u32 = 26;

impl<K: Key, const W: usize> Ranges<K, W> {
    /// `from` ascends by start, and the first start is 0.
    pub(super) fn new(from: &[(K, u32)]) -> Self {
        const { assert!((W - 1).is_power_of_two(), "a window is halved until one start is left") };
        let mut starts = Vec::with_capacity(from.len() + W);
        starts.extend(from.iter().map(|(start, _)| *start));
        starts.resize(from.len() + W, K::MAX);
        let words = from.iter().map(|(_, word)| *word).collect();
        let lowest = if from.len() > 1 { 1 } else { 0 };
        let root =
            Table::over(starts[lowest].into(), starts[from.len() - 1].into(), from.len() / RANGES_PER_SLOT);
        let mut built = Ranges { starts, words, root, slots: Vec::new() };
        built.fill(root, 0, from.len());
        built.slots.shrink_to_fit();
        built
    }

    /// The word of the range that holds `key`, and the scope there.
    #[inline(always)]
    pub(super) fn find(&self, key: K) -> (u32, u8) {
        let mut slot = self.slots[self.root.slot_of(key.into()) as usize];
        while slot & (REFERENCE | WINDOW) == REFERENCE {
            let table = &self.slots[(slot & !REFERENCE) as usize..];
            slot = table[TABLE_WORDS + Table::read(table).slot_of(key.into()) as usize];
        }
        if slot & REFERENCE == 0 {
            return (slot & RegionId::BITS, (slot >> 24) as u8);
        }
        let first = (slot & !(REFERENCE | WINDOW)) as usize;
        let window = self.starts[first..].first_chunk::<W>().expect("W are filling");
        // Ranges behind the slot's last begin behind the key, so the search needs no end.
        let mut begun = 0;
        let mut half = (W - 1) / 2;
        while half > 0 {
            begun += half * usize::from(window[begun + half] <= key);
            half /= 2;
        }
        let at = first + begun;
        if at + 1 < self.words.len() {
            (self.words[at], scope(K::BITS, window[begun].into(), Some(window[begun + 1].into()), key.into()))
        } else {
            self.last(key)
        }
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (K, u32)> + '_ {
        self.words.iter().zip(&self.starts).map(|(word, start)| (*start, *word))
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.starts[..]) + size_of_val(&self.words[..]) + size_of_val(&self.slots[..])
    }

    /// What [`Ranges::find`] says in the last range. The highest key is there, for which the filling has begun too.
    #[cold]
    fn last(&self, key: K) -> (u32, u8) {
        let at = self.words.len() - 1;
        (self.words[at], self.scope(at, key.into()))
    }

    fn start(&self, at: usize) -> u64 {
        self.starts[at].into()
    }

    fn scope(&self, at: usize, key: u64) -> u8 {
        let next = if at + 1 < self.words.len() { Some(self.start(at + 1)) } else { None };
        scope(K::BITS, self.start(at), next, key)
    }

    /// What stands in the slot that begins at `key`, in range `first`, and ends before range `end`
    /// begins; makes the tables below it.
    fn slot(&mut self, first: usize, end: usize, key: u64) -> u32 {
        let begin = end - first - 1;
        let word = self.words[first];
        if begin == 0 && word & CELL == 0 {
            return u32::from(self.scope(first, key)) << 24 | word;
        }
        if begin <= W - 2 {
            return REFERENCE | WINDOW | first as u32;
        }
        let at = self.slots.len();
        let table = Table::over(self.start(first + 1), self.start(end - 1), begin / RANGES_PER_SLOT);
        self.slots.extend(table.written());
        self.fill(table, first, end);
        REFERENCE | at as u32
    }

    /// Adds the slots of a table, which begins in range `first` and ends before range `end` begins.
    fn fill(&mut self, table: Table, first: usize, end: usize) {
        let slots = self.slots.len();
        self.slots.resize(slots + table.last as usize + 1, 0);
        let mut from = first;
        for i in 0..=table.last {
            let rest = &self.starts[from + 1..end];
            let to = from + 1 + rest.partition_point(|start| table.slot_of((*start).into()) <= i);
            let slot = self.slot(from, to, table.low + (u64::from(i) << table.shift));
            self.slots[slots + i as usize] = slot;
            from = to - 1;
        }
    }
}

impl Table {
    /// A table of `slots` slots or down to half as many, at least one, the first of which holds `lowest` and the
    /// last `highest`.
    fn over(lowest: u64, highest: u64, slots: usize) -> Self {
        let slots = slots.clamp(1, (1 << LAST_BITS) - 1) as u64;
        let mut shift = 0;
        // The width is a power of two, so that every slot but the first and the last is a block.
        while (highest >> shift) - (lowest >> shift) > slots {
            shift += 1;
        }
        let last = ((highest >> shift) - (lowest >> shift)) as u32;
        Table { low: lowest >> shift << shift, last, shift }
    }

    /// The table that these words begin with.
    #[inline(always)]
    fn read(words: &[u32]) -> Self {
        let [low, high, word] = *words.first_chunk::<TABLE_WORDS>().expect("a table is written whole");
        let low = u64::from(high) << 32 | u64::from(low);
        Table { low, last: word & ((1 << LAST_BITS) - 1), shift: word >> LAST_BITS }
    }

    fn written(&self) -> [u32; TABLE_WORDS] {
        [self.low as u32, (self.low >> 32) as u32, self.shift << LAST_BITS | self.last]
    }

    #[inline(always)]
    fn slot_of(&self, key: u64) -> u32 {
        (key.saturating_sub(self.low) >> self.shift).min(u64::from(self.last)) as u32
    }
}

/// The shortest prefix length whose block around `key`, of `bits` bits, does not leave the range that begins at
/// `start` and ends before `next`; 0 where that is all there is.
///
/// A block leaves the range when it reaches its nearest neighbour on either side, `start - 1` or
/// `next`. So it must be one bit longer than what `key` has in common with either of them.
#[inline(always)]
pub(super) fn scope(bits: u32, start: u64, next: Option<u64>, key: u64) -> u8 {
    if start == 0 && next.is_none() {
        return 0;
    }
    // Where there is no neighbour, a key that differs in each bit stands for it.
    let all = u64::MAX >> (u64::BITS - bits);
    let left = if start == 0 { all } else { key ^ (start - 1) };
    let right = next.map_or(all, |next| key ^ next);
    // Neither neighbour is the key itself, so the last bit changes nothing; known to be set, it spares a test.
    let same = (left.min(right) | 1).leading_zeros() - (u64::BITS - bits);
    1 + same as u8
}

/// The bits of an address, or of its upper half.
pub(super) trait Key: Copy + Ord + Into<u64> {
    /// How many bits.
    const BITS: u32;
    /// The highest.
    const MAX: Self;
}

impl Key for u32 {
    const BITS: u32 = u32::BITS;
    const MAX: u32 = u32::MAX;
}

impl Key for u64 {
    const BITS: u32 = u64::BITS;
    const MAX: u64 = u64::MAX;
}
