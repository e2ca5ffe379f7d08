//! A partition: which region a client address is in, and how large the block around it is that is too.
//!
//! # Structure
//!
//! Overlapping prefixes are flattened when the partition is compiled. What remains is, for each
//! family, the sorted list of *ranges*: maximal runs of addresses in one region. A look-up finds the
//! range of an address; the range's ends alone give the exact scope, so that no trie of blocks has to
//! be stored: a prefix costs at most two ranges, whatever its length.
//!
//! ```text
//! region       0           A      B      A        0
//!        |-----------|-----------|--|-----------|--------|
//! starts 0           a           b  c           d
//! ```
//!
//! The range of an address is found through tables of slots of equal width, as many slots as ranges
//! call for. A slot that is wholly in one range is the answer itself; one in which a few ranges begin
//! says which is the first, and those that begin before the address are counted without branches; one
//! with more has a table of its own.
//!
//! An IPv6 range is kept by the upper 64 bits of its address; a /64 that is itself divided is one
//! *cell*, with its own short list of lower 64 bits. Everything is a flat array of plain words.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::prefix::Prefix;
use crate::region::RegionId;

/// The most prefixes that a partition is compiled from: ten times today's Internet, and well below what
/// the 30 bits of a reference can number.
pub const PREFIXES_MAX: usize = 1 << 24;

/// The bit of a range's word that says: this is a divided /64, and the lower bits are the cell's number.
///
/// Regions need the lower 24 bits only.
const CELL: u32 = 1 << 31;

/// The bit of a slot that says that it is not an answer but refers to one. Without it the lower 24 bits
/// are the region and the 7 above them the scope, which is at most 64 there.
const REFERENCE: u32 = 1 << 31;

/// The bit of a reference that says that it is the number of the first of a few ranges, not of a table.
const WINDOW: u32 = 1 << 30;

/// How many ranges are to begin in a slot, on average: fewer make more slots answers themselves, and
/// take more memory for them.
const RANGES_PER_SLOT: usize = 2;

/// How many ranges may begin in an IPv4 slot that has no table: 8 ranges are as long as a cache line.
const V4_WINDOW: usize = 8;

/// The same for IPv6, whose prefixes crowd: as many ranges as begin in most allocations, so that one slot is
/// most of the way. Their cache lines are fetched at the same time, where tables below tables would be fetched
/// one after the other, and would end at a depth that the processor cannot foresee.
const V6_WINDOW: usize = 48;

/// In a window, every so many'th range is compared first, and then those between two of them.
const STRIDE: usize = 6;

/// An immutable map from address to region, with the scope of every answer.
#[derive(Clone, Debug)]
pub struct Partition {
    v4: Ranges<u32, V4_WINDOW>,
    /// By the upper 64 bits; a word with [`CELL`] refers to `cells`.
    v6: Ranges<u64, V6_WINDOW>,
    /// Where each divided /64 begins in `lower`; one more entry marks the end.
    cells: Vec<u32>,
    /// The ranges within divided /64s: lower 64 bits of the start.
    lower: Vec<u64>,
    /// The regions of `lower`.
    lower_words: Vec<u32>,
    regions: Vec<(RegionId, u64)>,
    ranges: u64,
    /// By region and server, each pair once.
    ranks: Vec<Rank>,
}

/// How near a server is to the clients of a region, as one of the region's ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// The region.
    pub region: RegionId,
    /// The server.
    pub server: IpAddr,
    /// Its rank: from 1, the best, to [`RANK_MAX`]; not unique.
    pub rank: u16,
}

/// The lowest rank: far more than a policy has servers.
pub const RANK_MAX: u16 = 10_000;

/// The most ranks of one partition: as many regions as a policy may have, each with 64 servers.
pub const RANKS_MAX: usize = 1 << 18;

/// What a partition says of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The region, [`RegionId::NONE`] where no prefix covers the address.
    pub region: RegionId,
    /// The shortest prefix length, in bits, whose whole block around the address is in `region`.
    pub scope: u8,
}

/// How large a partition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Distinct prefixes that it was compiled from.
    pub prefixes: u64,
    /// Maximal runs of addresses in one region, of both families.
    pub ranges: u64,
    /// Bytes of its arrays.
    pub bytes: u64,
}

impl Partition {
    /// Compiles prefixes, in any order: the longest that contains an address decides its region, and
    /// of two equal ones the later.
    ///
    /// # Panics
    /// With more than [`PREFIXES_MAX`] prefixes, which every reader of prefixes refuses before.
    pub fn compile(entries: impl IntoIterator<Item = (Prefix, RegionId)>) -> Partition {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (prefix, region) in entries {
            match prefix.address() {
                IpAddr::V4(address) => {
                    v4.push(Block::new(u128::from(address.to_bits()), prefix.length(), 32, region));
                }
                IpAddr::V6(address) => v6.push(Block::new(address.to_bits(), prefix.length(), 128, region)),
            }
        }
        assert!(v4.len() + v6.len() <= PREFIXES_MAX, "readers refuse more than PREFIXES_MAX prefixes");
        let mut regions = BTreeMap::new();
        for blocks in [&mut v4, &mut v6] {
            order(blocks);
            for block in blocks {
                *regions.entry(block.region).or_insert(0) += 1;
            }
        }
        Partition::of_runs(&flatten(&v4, u128::from(u32::MAX)), &flatten(&v6, u128::MAX), regions)
    }

    /// The region of `address` and the scope of that answer. An IPv4-mapped IPv6 address is looked
    /// up as the IPv6 address that it is: the source of a packet from a dual-stack socket should be
    /// passed through [`IpAddr::to_canonical`] first, a client subnet of family 2 should not.
    #[inline]
    pub fn lookup(&self, address: IpAddr) -> Leaf {
        match address {
            IpAddr::V4(address) => self.lookup_v4(address),
            IpAddr::V6(address) => self.lookup_v6(address),
        }
    }

    /// [`Partition::lookup`] for IPv4.
    #[inline]
    pub fn lookup_v4(&self, address: Ipv4Addr) -> Leaf {
        let (word, scope) = self.v4.find(address.to_bits());
        Leaf { region: RegionId::from_word(word), scope }
    }

    /// [`Partition::lookup`] for IPv6.
    #[inline]
    pub fn lookup_v6(&self, address: Ipv6Addr) -> Leaf {
        let address = address.to_bits();
        let (word, scope) = self.v6.find((address >> 64) as u64);
        if word & CELL == 0 {
            return Leaf { region: RegionId::from_word(word), scope };
        }
        self.lookup_in_cell((word & !CELL) as usize, address as u64)
    }

    /// The same with these ranks of servers, in place of those that it had; of two for one region and server the better
    /// counts.
    pub fn with_ranks(mut self, mut ranks: Vec<Rank>) -> Partition {
        ranks.sort_unstable();
        ranks.dedup_by_key(|rank| (rank.region, rank.server));
        self.ranks = ranks;
        self
    }

    /// What several partitions say together: for each address the first that has a region for it. The prefixes are
    /// none inside another, and as few as that allows.
    pub fn stack(layers: &[Partition]) -> Vec<(Prefix, RegionId)> {
        let merged = |runs: fn(&Partition) -> Vec<Run>| {
            let nobody = vec![Run { start: 0, region: RegionId::NONE }];
            layers.iter().rev().fold(nobody, |below, layer| overlay(&runs(layer), &below))
        };
        let mut prefixes = Vec::new();
        blocks(&merged(Partition::runs_v4), 32, &mut prefixes);
        blocks(&merged(Partition::runs_v6), 128, &mut prefixes);
        prefixes
    }

    /// The ranks of servers, by region and server.
    pub fn ranks(&self) -> &[Rank] {
        &self.ranks
    }

    /// The same without `region`: its addresses become unclassified, also where its prefixes lie
    /// inside those of another region.
    pub fn without_region(&self, region: RegionId) -> Partition {
        let without = |runs: Vec<Run>| {
            let mut kept = Vec::with_capacity(runs.len());
            for run in runs {
                let region = if run.region == region { RegionId::NONE } else { run.region };
                append(&mut kept, Run { start: run.start, region });
            }
            kept
        };
        let mut regions = BTreeMap::new();
        for &(counted, prefixes) in &self.regions {
            let counted = if counted == region { RegionId::NONE } else { counted };
            *regions.entry(counted).or_insert(0) += prefixes;
        }
        let ranks = self.ranks.iter().filter(|rank| rank.region != region).copied().collect();
        Partition::of_runs(&without(self.runs_v4()), &without(self.runs_v6()), regions).with_ranks(ranks)
    }

    /// The regions that prefixes were given for, ascending, with the number of those prefixes.
    pub fn regions(&self) -> impl Iterator<Item = (RegionId, u64)> + '_ {
        self.regions.iter().copied()
    }

    /// How many prefixes, ranges and bytes it holds.
    pub fn size(&self) -> Size {
        let bytes = self.v4.bytes()
            + self.v6.bytes()
            + size_of_val(&self.cells[..])
            + size_of_val(&self.lower[..])
            + size_of_val(&self.lower_words[..])
            + size_of_val(&self.regions[..])
            + size_of_val(&self.ranks[..]);
        Size {
            prefixes: self.regions.iter().map(|(_, prefixes)| prefixes).sum(),
            ranges: self.ranges,
            bytes: bytes as u64,
        }
    }

    #[inline(never)]
    fn lookup_in_cell(&self, cell: usize, lower: u64) -> Leaf {
        let (first, end) = (self.cells[cell] as usize, self.cells[cell + 1] as usize);
        let starts = &self.lower[first..end];
        let at = starts.partition_point(|start| *start <= lower) - 1;
        let scope = scope(starts[at], starts.get(at + 1).copied(), lower);
        Leaf { region: RegionId::from_word(self.lower_words[first + at]), scope: 64 + scope }
    }

    fn of_runs(v4: &[Run], v6: &[Run], regions: BTreeMap<RegionId, u64>) -> Partition {
        let ranges = (v4.len() + v6.len()) as u64;
        let v4 = v4.iter().map(|run| (run.start as u32, run.region.get())).collect();
        let mut upper: Vec<(u64, u32)> = Vec::with_capacity(v6.len());
        let (mut cells, mut lower, mut lower_words) = (Vec::new(), Vec::new(), Vec::new());
        let mut before = RegionId::NONE;
        let mut groups = v6.chunk_by(|a, b| a.start >> 64 == b.start >> 64).peekable();
        while let Some(group) = groups.next() {
            let high = (group[0].start >> 64) as u64;
            if let [Run { start, region }] = *group
                && start as u64 == 0
            {
                upper.push((high, region.get()));
                before = region;
                continue;
            }
            upper.push((high, CELL | cells.len() as u32));
            cells.push(lower.len() as u32);
            if group[0].start as u64 != 0 {
                lower.push(0);
                lower_words.push(before.get());
            }
            for run in group {
                lower.push(run.start as u64);
                lower_words.push(run.region.get());
                before = run.region;
            }
            // A cell is one /64: what goes on behind it needs an entry, unless something begins there.
            if let Some(behind) = high.checked_add(1)
                && groups.peek().is_none_or(|next| (next[0].start >> 64) as u64 != behind)
            {
                upper.push((behind, before.get()));
            }
        }
        if !cells.is_empty() {
            cells.push(lower.len() as u32);
        }
        lower.shrink_to_fit();
        lower_words.shrink_to_fit();
        Partition {
            v4: Ranges::new(v4),
            v6: Ranges::new(upper),
            cells,
            lower,
            lower_words,
            regions: regions.into_iter().collect(),
            ranges,
            ranks: Vec::new(),
        }
    }

    fn runs_v4(&self) -> Vec<Run> {
        self.v4.iter().map(|(start, word)| Run::new(u128::from(start), word)).collect()
    }

    fn runs_v6(&self) -> Vec<Run> {
        let mut runs = Vec::with_capacity(self.v6.len + self.lower.len());
        for (high, word) in self.v6.iter() {
            let high = u128::from(high) << 64;
            if word & CELL == 0 {
                append(&mut runs, Run::new(high, word));
                continue;
            }
            let cell = (word & !CELL) as usize;
            for at in self.cells[cell] as usize..self.cells[cell + 1] as usize {
                append(&mut runs, Run::new(high | u128::from(self.lower[at]), self.lower_words[at]));
            }
        }
        runs
    }
}

impl Default for Partition {
    /// The empty partition: every address is unclassified, with scope 0.
    fn default() -> Self {
        Partition::compile([])
    }
}

/// The shortest prefix length whose block around `key` does not leave the range that begins at
/// `start` and ends before `next`.
///
/// A block leaves the range when it reaches its nearest neighbour on either side, `start - 1` or
/// `next`. So it must be one bit longer than what `key` has in common with either of them.
#[inline(always)]
fn scope<K: Key>(start: K, next: Option<K>, key: K) -> u8 {
    let left = start.predecessor().map_or(0, |before| 1 + key.common_bits(before));
    let right = next.map_or(0, |behind| 1 + key.common_bits(behind));
    left.max(right) as u8
}

/// A word of address.
trait Key: Copy + Ord {
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

/// Ranges by their first key, with a tree of tables that leads to the few that come into question.
///
/// `W` is how many ranges may begin in a slot that has no table of its own.
#[derive(Clone, Debug)]
struct Ranges<K: Key, const W: usize> {
    /// Ascending from 0; the word is a region, or [`CELL`] and the number of a cell. At the end
    /// `W + 1` more with the highest key are filling, so that a window always fits.
    ranges: Vec<K::Range>,
    /// How many of them are ranges.
    len: usize,
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
    fn new(from: Vec<(K, u32)>) -> Self {
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
    fn find(&self, key: K) -> (u32, u8) {
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

    fn iter(&self) -> impl Iterator<Item = (K, u32)> + '_ {
        self.ranges[..self.len].iter().map(K::parts)
    }

    fn bytes(&self) -> usize {
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

/// A prefix as numbers, with IPv4 addresses in the lower 32 bits.
struct Block {
    first: u128,
    last: u128,
    length: u8,
    region: RegionId,
}

impl Block {
    fn new(first: u128, length: u8, bits: u8, region: RegionId) -> Block {
        let hosts = 1u128.checked_shl(u32::from(bits - length)).unwrap_or(0).wrapping_sub(1);
        Block { first, last: first | hosts, length, region }
    }
}

/// Sorts by address, then the shorter first; of equal ones keeps the last.
fn order(blocks: &mut Vec<Block>) {
    blocks.sort_by_key(|block| (block.first, block.length));
    blocks.dedup_by(|later, kept| {
        let equal = (later.first, later.length) == (kept.first, kept.length);
        if equal {
            kept.region = later.region;
        }
        equal
    });
}

/// Where a maximal run of addresses in one region begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: u128,
    region: RegionId,
}

impl Run {
    fn new(start: u128, word: u32) -> Run {
        Run { start, region: RegionId::from_word(word) }
    }
}

/// The runs of ordered blocks up to the address `max`, in one sweep with a stack of the open blocks.
fn flatten(blocks: &[Block], max: u128) -> Vec<Run> {
    let mut runs = Vec::with_capacity(blocks.len() + 1);
    runs.push(Run { start: 0, region: RegionId::NONE });
    let mut open: Vec<&Block> = Vec::new();
    let close = |open: &mut Vec<&Block>, runs: &mut Vec<Run>| {
        if let Some(closed) = open.pop() {
            let region = open.last().map_or(RegionId::NONE, |block| block.region);
            if closed.last < max {
                append(runs, Run { start: closed.last + 1, region });
            }
        }
    };
    for block in blocks {
        while open.last().is_some_and(|top| top.last < block.first) {
            close(&mut open, &mut runs);
        }
        append(&mut runs, Run { start: block.first, region: block.region });
        open.push(block);
    }
    while !open.is_empty() {
        close(&mut open, &mut runs);
    }
    runs
}

/// Appends a run: it replaces one with the same start, and disappears in one of the same region.
fn append(runs: &mut Vec<Run>, run: Run) {
    if runs.last().is_some_and(|last| last.start == run.start) {
        runs.pop();
    }
    if runs.last().is_none_or(|last| last.region != run.region) {
        runs.push(run);
    }
}

/// The runs of `above`, and where it has no region those of `below`; both begin at 0.
fn overlay(above: &[Run], below: &[Run]) -> Vec<Run> {
    let mut runs = Vec::with_capacity(above.len() + below.len());
    let (mut a, mut b) = (0, 0);
    loop {
        let region = if above[a].region.is_none() { below[b].region } else { above[a].region };
        append(&mut runs, Run { start: above[a].start.max(below[b].start), region });
        let next = |runs: &[Run], at: usize| runs.get(at + 1).map(|run| run.start);
        match (next(above, a), next(below, b)) {
            (None, None) => return runs,
            (Some(of_a), of_b) if of_b.is_none_or(|of_b| of_a < of_b) => a += 1,
            (of_a, of_b) => {
                a += usize::from(of_a == of_b);
                b += 1;
            }
        }
    }
}

/// Appends the blocks that runs of addresses of `bits` bits consist of, those without a region left out.
fn blocks(runs: &[Run], bits: u8, into: &mut Vec<(Prefix, RegionId)>) {
    let max = if bits == 32 { u128::from(u32::MAX) } else { u128::MAX };
    for (at, run) in runs.iter().enumerate().filter(|(_, run)| !run.region.is_none()) {
        let last = runs.get(at + 1).map_or(max, |next| next.start - 1);
        let mut start = run.start;
        loop {
            // The largest block that begins here and ends in time.
            let mut size = start.trailing_zeros().min(u32::from(bits));
            let end = |size: u32| start | 1u128.checked_shl(size).map_or(u128::MAX, |size| size - 1);
            while end(size) > last {
                size -= 1;
            }
            let address = match bits {
                32 => IpAddr::V4(Ipv4Addr::from_bits(start as u32)),
                _ => IpAddr::V6(Ipv6Addr::from_bits(start)),
            };
            into.extend(Prefix::new(address, bits - size as u8).map(|prefix| (prefix, run.region)));
            match end(size).checked_add(1) {
                Some(next) if next <= last => start = next,
                _ => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::proximity::country_entries;

    fn region(id: u32) -> RegionId {
        RegionId::new(id).unwrap()
    }

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    fn leaf(id: u32, scope: u8) -> Leaf {
        Leaf { region: region(id), scope }
    }

    /// A partition by definition: the prefixes, one after the other.
    struct Plain(Vec<(Prefix, RegionId)>);

    impl Plain {
        fn region(&self, address: IpAddr) -> RegionId {
            let covering = self.0.iter().filter(|(prefix, _)| prefix.contains(address));
            covering.max_by_key(|(prefix, _)| prefix.length()).map_or(RegionId::NONE, |entry| entry.1)
        }

        /// The region can change only where a prefix begins or right behind its end.
        fn is_uniform(&self, block: Prefix) -> bool {
            let expected = self.region(block.address());
            self.0.iter().flat_map(|(prefix, _)| ends(*prefix)).all(|point| {
                !point.is_some_and(|point| block.contains(point) && self.region(point) != expected)
            })
        }

        fn lookup(&self, address: IpAddr) -> Leaf {
            let bits = if address.is_ipv4() { 32 } else { 128 };
            let scope = (0..=bits).find(|&n| self.is_uniform(Prefix::new(address, n).unwrap())).unwrap();
            Leaf { region: self.region(address), scope }
        }
    }

    /// The first address of a prefix and the one behind its last.
    fn ends(prefix: Prefix) -> [Option<IpAddr>; 2] {
        let behind = match prefix.address() {
            IpAddr::V4(first) => 1u32
                .checked_shl(32 - u32::from(prefix.length()))
                .and_then(|n| first.to_bits().checked_add(n))
                .map(|n| Ipv4Addr::from_bits(n).into()),
            IpAddr::V6(first) => 1u128
                .checked_shl(128 - u32::from(prefix.length()))
                .and_then(|n| first.to_bits().checked_add(n))
                .map(|n| Ipv6Addr::from_bits(n).into()),
        };
        [Some(prefix.address()), behind]
    }

    fn before(address: IpAddr) -> Option<IpAddr> {
        match address {
            IpAddr::V4(a) => a.to_bits().checked_sub(1).map(|n| Ipv4Addr::from_bits(n).into()),
            IpAddr::V6(a) => a.to_bits().checked_sub(1).map(|n| Ipv6Addr::from_bits(n).into()),
        }
    }

    /// The corners of the entries, and a few addresses elsewhere.
    fn probes(entries: &[(Prefix, RegionId)], others: Vec<IpAddr>) -> Vec<IpAddr> {
        let points = entries.iter().flat_map(|(prefix, _)| ends(*prefix)).flatten();
        let mut probes: Vec<IpAddr> =
            points.flat_map(|point| [Some(point), before(point)]).flatten().collect();
        probes.extend(others);
        for edge in ["0.0.0.0", "255.255.255.255", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"] {
            probes.push(edge.parse().unwrap());
        }
        probes
    }

    /// Addresses that often share leading bits, so that prefixes nest and touch.
    fn address() -> impl Strategy<Value = IpAddr> {
        let v4 = (prop::sample::select(vec![0u32, 0xc000_0200, 0xffff_ff00]), 0u32..=32, any::<u32>())
            .prop_map(|(base, keep, noise)| base ^ (u64::from(noise) >> keep) as u32)
            .prop_map(|bits| IpAddr::from(Ipv4Addr::from_bits(bits)));
        let base =
            prop::sample::select(vec![0u128, 0x2001_0db8 << 96, 0x2001_0db8 << 96 | 1 << 63, u128::MAX]);
        let v6 = (base, 0u32..128, any::<u128>())
            .prop_map(|(base, keep, noise)| IpAddr::from(Ipv6Addr::from_bits(base ^ noise >> keep)));
        prop_oneof![v4, v6]
    }

    fn entry() -> impl Strategy<Value = (Prefix, RegionId)> {
        (address(), 0u8..=128, 0u32..4).prop_map(|(address, length, id)| {
            let length = if address.is_ipv4() { length % 33 } else { length };
            (Prefix::new(address, length).unwrap(), region(id))
        })
    }

    #[test]
    fn in_a_stack_the_first_that_has_a_region_decides() {
        let layer = |entries: &[(&str, u32)]| {
            Partition::compile(entries.iter().map(|(text, id)| (prefix(text), region(*id))))
        };
        let first = layer(&[("10.0.0.0/8", 1), ("10.1.0.0/16", 0), ("2001:db8::/32", 1)]);
        let second = layer(&[("10.1.2.0/24", 2), ("10.2.0.0/16", 2), ("0.0.0.0/0", 3)]);
        let stacked = Partition::compile(Partition::stack(&[first, second]));
        for (address, id) in [
            ("10.0.0.1", 1),
            ("10.2.0.1", 1),
            ("10.1.2.3", 2),
            ("10.1.3.3", 3),
            ("192.0.2.1", 3),
            ("255.255.255.255", 3),
            ("2001:db8::1", 1),
            ("2001:db9::", 0),
        ] {
            assert_eq!(stacked.lookup(address.parse().unwrap()).region, region(id), "{address}");
        }
        let whole = layer(&[("::/0", 7), ("0.0.0.0/0", 7)]);
        assert_eq!(
            Partition::stack(&[whole]),
            [(prefix("0.0.0.0/0"), region(7)), (prefix("::/0"), region(7))]
        );
        assert_eq!(Partition::stack(&[]), []);
    }

    proptest! {
        #[test]
        fn a_stack_is_what_its_layers_say(
            layers in prop::collection::vec(prop::collection::vec((address(), any::<u8>(), 0u32..4), 0..8), 0..4),
            others in prop::collection::vec(any::<IpAddr>(), 0..4),
        ) {
            let entries = |layer: &Vec<(IpAddr, u8, u32)>| -> Vec<(Prefix, RegionId)> {
                let prefix = |address: IpAddr, length: u8| {
                    Prefix::new(address, length % if address.is_ipv4() { 33 } else { 129 }).unwrap()
                };
                layer.iter().map(|&(address, length, id)| (prefix(address, length), region(id))).collect()
            };
            let layers: Vec<Vec<(Prefix, RegionId)>> = layers.iter().map(entries).collect();
            let compiled: Vec<Partition> = layers.iter().cloned().map(Partition::compile).collect();
            let stacked = Partition::compile(Partition::stack(&compiled));
            for probe in probes(&layers.concat(), others) {
                let mut each = compiled.iter().map(|layer| layer.lookup(probe).region);
                let expected = each.find(|region| !region.is_none()).unwrap_or(RegionId::NONE);
                prop_assert_eq!(stacked.lookup(probe).region, expected, "{}", probe);
            }
        }

        #[test]
        fn equals_a_linear_scan(
            entries in prop::collection::vec(entry(), 0..40),
            others in prop::collection::vec(address(), 0..20),
            gone in 0u32..4,
        ) {
            // Of equal prefixes the linear scan knows only the later one.
            let unique: BTreeMap<Prefix, RegionId> = entries.iter().copied().collect();
            let plain = Plain(unique.into_iter().collect());
            let partition = Partition::compile(entries.iter().copied());
            let without = Partition::compile(plain.0.iter().map(|&(prefix, id)| {
                (prefix, if id == region(gone) { RegionId::NONE } else { id })
            }));
            let removed = partition.without_region(region(gone));
            prop_assert_eq!(partition.size().prefixes, plain.0.len() as u64);
            prop_assert_eq!(removed.size().ranges, without.size().ranges);
            prop_assert_eq!(removed.regions().collect::<Vec<_>>(), without.regions().collect::<Vec<_>>());
            for probe in probes(&entries, others) {
                prop_assert_eq!(partition.lookup(probe), plain.lookup(probe), "{}", probe);
                prop_assert_eq!(removed.lookup(probe), without.lookup(probe), "{}", probe);
            }
        }

    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Enough prefixes that tables have tables.
        #[test]
        fn equals_a_linear_scan_where_prefixes_crowd(
            seed: u64,
            crowds in prop::collection::vec((address(), 8u8..40), 1..4),
        ) {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut entries = Vec::new();
            for (at, free) in crowds {
                for _ in 0..60 {
                    let noise = rng.u64(..) >> (64 - free);
                    let (at, bits) = match at {
                        IpAddr::V4(at) => (Ipv4Addr::from_bits(at.to_bits() ^ noise as u32).into(), 32),
                        IpAddr::V6(at) => {
                            (Ipv6Addr::from_bits(at.to_bits() ^ u128::from(noise) << 64).into(), 64)
                        }
                    };
                    entries.push((Prefix::new(at, rng.u8(bits - 4..=bits)).unwrap(), region(rng.u32(0..3))));
                }
            }
            let unique: BTreeMap<Prefix, RegionId> = entries.iter().copied().collect();
            let plain = Plain(unique.into_iter().collect());
            let partition = Partition::compile(entries.iter().copied());
            for &(prefix, _) in entries.iter().step_by(7) {
                for probe in ends(prefix).into_iter().flatten() {
                    prop_assert_eq!(partition.lookup(probe), plain.lookup(probe), "{}", probe);
                }
            }
        }
    }

    #[test]
    fn an_empty_partition_is_one_block() {
        let partition = Partition::default();
        for address in ["0.0.0.0", "192.0.2.1", "255.255.255.255", "::", "2001:db8::1"] {
            assert_eq!(partition.lookup(address.parse().unwrap()), leaf(0, 0), "{address}");
        }
        assert_eq!(partition.size().prefixes, 0);
        assert_eq!(partition.size().ranges, 2);
    }

    #[test]
    fn equal_neighbours_are_one_block() {
        let partition = Partition::compile([
            (prefix("192.0.2.0/25"), region(7)),
            (prefix("192.0.2.128/25"), region(7)),
            (prefix("2001:db8::/33"), region(7)),
            (prefix("2001:db8:8000::/33"), region(7)),
            (prefix("2001:db8:0:1::1/128"), region(8)),
        ]);
        for (address, expected) in [
            ("192.0.2.200", leaf(7, 24)),
            ("192.0.3.0", leaf(0, 24)),
            ("10.0.0.0", leaf(0, 1)),
            ("2001:db8:ffff::", leaf(7, 33)),
            ("2001:db8:0:1::1", leaf(8, 128)),
            ("2001:db8:0:1::", leaf(7, 128)),
            ("2001:db8:0:1::2", leaf(7, 127)),
            ("2001:db8:0:1:8000::", leaf(7, 65)),
            ("2001:db8:0:0:8000::", leaf(7, 64)),
            ("::ffff:192.0.2.1", leaf(0, 3)),
        ] {
            assert_eq!(partition.lookup(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn a_removed_region_leaves_a_hole() {
        let partition = Partition::compile([
            (prefix("192.0.0.0/16"), region(1)),
            (prefix("192.0.2.0/24"), region(2)),
            (prefix("192.0.2.0/24"), region(3)),
        ]);
        assert_eq!(partition.regions().collect::<Vec<_>>(), [(region(1), 1), (region(3), 1)]);
        let without = partition.without_region(region(3));
        assert_eq!(without.lookup("192.0.2.1".parse().unwrap()), leaf(0, 24));
        assert_eq!(without.lookup("192.0.3.1".parse().unwrap()), leaf(1, 24));
        assert_eq!(without.regions().collect::<Vec<_>>(), [(region(0), 1), (region(1), 1)]);
    }

    /// 243,034 real prefixes against the longest match found length by length.
    #[test]
    fn real_prefixes() {
        let Some(entries) = country_entries() else { return };
        let partition = Partition::compile(entries.iter().copied());
        assert_eq!(partition.size().prefixes, entries.len() as u64);
        let by_prefix: HashMap<Prefix, RegionId> = entries.iter().copied().collect();
        let region = |address: IpAddr| {
            let max = if address.is_ipv4() { 32 } else { 128 };
            let lengths = (0..=max).rev().filter_map(|length| Prefix::new(address, length));
            lengths.filter_map(|prefix| by_prefix.get(&prefix)).next().copied().unwrap_or_default()
        };
        let mut points: Vec<IpAddr> = entries.iter().flat_map(|entry| ends(entry.0)).flatten().collect();
        points.sort_unstable();
        points.dedup();
        let is_uniform = |block: Prefix| {
            let first = points.partition_point(|point| *point < block.address());
            let expected = region(block.address());
            points[first..].iter().take_while(|point| block.contains(**point)).all(|p| region(*p) == expected)
        };
        let mut rng = fastrand::Rng::with_seed(20_260_200);
        for i in 0..4_000 {
            let (prefix, _) = entries[rng.usize(..entries.len())];
            let address = match prefix.address() {
                _ if i % 4 == 0 => Ipv4Addr::from_bits(rng.u32(..)).into(),
                IpAddr::V4(a) => Ipv4Addr::from_bits(a.to_bits() ^ rng.u32(..) >> rng.u32(..32)).into(),
                IpAddr::V6(a) => Ipv6Addr::from_bits(a.to_bits() ^ rng.u128(..) >> rng.u32(..128)).into(),
            };
            let found = partition.lookup(address);
            assert_eq!(found.region, region(address), "{address}");
            assert!(is_uniform(Prefix::new(address, found.scope).unwrap()), "{address} {found:?}");
            if found.scope > 0 {
                assert!(!is_uniform(Prefix::new(address, found.scope - 1).unwrap()), "{address} {found:?}");
            }
        }
    }
}
