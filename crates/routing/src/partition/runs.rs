//! Overlapping prefixes made flat: which region begins where, and back to prefixes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::prefix::Prefix;
use crate::region::RegionId;

/// A prefix as numbers, with IPv4 addresses in the lower 32 bits.
pub(super) struct Block {
    first: u128,
    last: u128,
    length: u8,
    pub(super) region: RegionId,
}

impl Block {
    pub(super) fn new(first: u128, length: u8, bits: u8, region: RegionId) -> Block {
        let hosts = 1u128.checked_shl(u32::from(bits - length)).unwrap_or(0).wrapping_sub(1);
        Block { first, last: first | hosts, length, region }
    }
}

/// Sorts by address, then the shorter first; of equal ones keeps the last.
pub(super) fn order(blocks: &mut Vec<Block>) {
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
pub(super) struct Run {
    pub(super) start: u128,
    pub(super) region: RegionId,
}

impl Run {
    pub(super) fn new(start: u128, word: u32) -> Run {
        Run { start, region: RegionId::from_word(word) }
    }
}

/// The runs of ordered blocks up to the address `max`, in one sweep with a stack of the open blocks.
pub(super) fn flatten(blocks: &[Block], max: u128) -> Vec<Run> {
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
pub(super) fn append(runs: &mut Vec<Run>, run: Run) {
    if runs.last().is_some_and(|last| last.start == run.start) {
        runs.pop();
    }
    if runs.last().is_none_or(|last| last.region != run.region) {
        runs.push(run);
    }
}

/// The runs of `above`, and where it has no region those of `below`; both begin at 0.
pub(super) fn overlay(above: &[Run], below: &[Run]) -> Vec<Run> {
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

/// Appends the blocks that runs of addresses of `bits` bits consist of, those without a region left out; `None` where there
/// would be more than `most`: a host that is cut out of a network leaves a block for each bit.
pub(super) fn blocks(runs: &[Run], bits: u8, most: usize, into: &mut Vec<(Prefix, RegionId)>) -> Option<()> {
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
            if into.len() >= most {
                return None;
            }
            into.extend(Prefix::new(address, bits - size as u8).map(|prefix| (prefix, run.region)));
            match end(size).checked_add(1) {
                Some(next) if next <= last => start = next,
                _ => break,
            }
        }
    }
    Some(())
}
