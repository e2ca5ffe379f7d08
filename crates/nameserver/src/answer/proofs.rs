//! The records that prove what an answer says is not there.

use super::chain::CHAIN_MAX;
use crate::zone::{Proof, Zone};

/// The most records that the proofs of one answer take: one for each wildcard that an alias came from, and three
/// for its end.
const PROOFS_MAX: usize = CHAIN_MAX + 3;

/// Records that belong into AUTHORITY, behind all of ANSWER: each once.
pub(super) struct Proofs<'a> {
    records: [Option<(&'a Zone, u32)>; PROOFS_MAX],
    length: usize,
}

impl<'a> Proofs<'a> {
    pub(super) fn new() -> Proofs<'a> {
        Proofs { records: [None; PROOFS_MAX], length: 0 }
    }

    pub(super) fn add(&mut self, zone: &'a Zone, proof: Proof) {
        for &record in proof.records() {
            let is_there = |(there, other): (&Zone, u32)| std::ptr::eq(there, zone) && other == record;
            if self.length < PROOFS_MAX
                && !self.records[..self.length].iter().flatten().copied().any(is_there)
            {
                self.records[self.length] = Some((zone, record));
                self.length += 1;
            }
        }
    }

    /// How many came together; what is added from here on comes in their place.
    pub(super) fn end(&mut self) -> usize {
        std::mem::take(&mut self.length)
    }

    /// One of those that came together.
    pub(super) fn get(&self, index: usize) -> Option<(&'a Zone, u32)> {
        self.records[index]
    }
}
