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
//! says which is the first, and they are halved, without branches, until the address's own is left; one
//! with more has a table of its own.
//!
//! An IPv6 range is kept by the upper 64 bits of its address; a /64 that is itself divided is one
//! *cell*, with its own short list of lower 64 bits. Everything is a flat array of plain words.
//!
//! Tried and left: IPv6 ranges of eight octets, 48 bits of start and 16 of word, with all that is divided further in
//! cells. They are found in 9 % less time, where few are divided; a million single /56s took twice the memory, and three
//! times as long. And every fifth start once more, together, so that fewer cache lines are read: that line has to come
//! before it is known which others to read, and a million prefixes took half as long again. And windows whose starts are
//! 32 bits behind their first, with their words right behind them: a quarter of the cache lines, but more to compute, and
//! as one waits for few lines at a time, a million prefixes of IPv6 took a fifth longer. And starts with their words in cache
//! lines of five each, so that no word is fetched by itself: as long. And always a root of tables and one table below it, so
//! that nobody has to guess how deep it goes: a tenth less among today's prefixes, half as long again among a million, as more
//! lines are read. And windows whose starts are compared all at once, or every fifth and then the four behind it: 4 % longer.
//! And the words of a window fetched before it is known which one it is: as long, as other look-ups fill that time already.
//! And large pages: as long.
//!
//! In reading order: [`Partition`], here; `ranges`: the look-up; `runs`: prefixes made flat.

mod ranges;
mod runs;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::prefix::Prefix;
use crate::region::RegionId;
use ranges::{CELL, Ranges, V4_WINDOW, V6_WINDOW, scope};
use runs::{Block, Run, append, blocks, flatten, order, overlay};

/// The most prefixes that a partition is compiled from: ten times today's Internet, and well below what
/// the 30 bits of a reference can number.
pub const PREFIXES_MAX: usize = 1 << 24;

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
    /// none inside another, and as few as that allows; `None` where they are more than [`PREFIXES_MAX`].
    pub fn stack(layers: &[Partition]) -> Option<Vec<(Prefix, RegionId)>> {
        let merged = |runs: fn(&Partition) -> Vec<Run>| {
            let nobody = vec![Run { start: 0, region: RegionId::NONE }];
            layers.iter().rev().fold(nobody, |below, layer| overlay(&runs(layer), &below))
        };
        let mut prefixes = Vec::new();
        blocks(&merged(Partition::runs_v4), 32, PREFIXES_MAX, &mut prefixes)?;
        blocks(&merged(Partition::runs_v6), 128, PREFIXES_MAX, &mut prefixes)?;
        Some(prefixes)
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
        let scope = scope(u64::BITS, starts[at], starts.get(at + 1).copied(), lower);
        Leaf { region: RegionId::from_word(self.lower_words[first + at]), scope: 64 + scope }
    }

    fn of_runs(v4: &[Run], v6: &[Run], regions: BTreeMap<RegionId, u64>) -> Partition {
        let ranges = (v4.len() + v6.len()) as u64;
        let v4: Vec<(u32, u32)> = v4.iter().map(|run| (run.start as u32, run.region.get())).collect();
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
            v4: Ranges::new(&v4),
            v6: Ranges::new(&upper),
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
        let mut runs = Vec::with_capacity(self.v6.iter().len() + self.lower.len());
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
