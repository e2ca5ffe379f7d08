//! The records that prove what an answer says is not there.

use dns::name::NAME_MAX;
use dns::writer::{Full, Section};

use super::response::{CHAIN_MAX, Response};
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
}

impl Response<'_> {
    /// Writes the proofs that came together.
    ///
    /// # Errors
    /// [`Full`] where one does not fit: they belong in the answer (RFC 4035 §3.1.1).
    pub(super) fn write_proofs(&mut self) -> Result<(), Full> {
        let length = std::mem::take(&mut self.proofs.length);
        for index in 0..length {
            let Some((zone, record)) = self.proofs.records[index] else { break };
            let mut room = [0; NAME_MAX];
            let (owner, set) = zone.proven(record, &mut room);
            self.whole_set(Section::Authority, owner, set)?;
        }
        Ok(())
    }
}
