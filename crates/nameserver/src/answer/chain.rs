//! Chains of aliases, which an answer follows within our zones.

use dns::Folded;
use dns::name::NAME_MAX;

/// The most aliases that one answer follows: a chain of that length is a mistake, and each costs a walk.
pub(super) const CHAIN_MAX: usize = 16;

/// What a chain of aliases has been through, by the names' hashes: were two alike, it would end early.
pub(super) struct Chain {
    names: [u64; CHAIN_MAX],
    length: usize,
    dnames: [u64; CHAIN_MAX],
    dnames_length: usize,
    /// The target of the last alias.
    pub(super) next: Option<Target>,
}

/// An alias's target.
pub(super) struct Target {
    pub(super) folded: Folded,
    pub(super) wire: [u8; NAME_MAX],
}

impl Chain {
    #[inline]
    pub(super) fn new() -> Chain {
        Chain { names: [0; CHAIN_MAX], length: 0, dnames: [0; CHAIN_MAX], dnames_length: 0, next: None }
    }

    /// Adds a name; false where the chain is too long.
    #[inline]
    pub(super) fn add(&mut self, name: u64) -> bool {
        if self.length == CHAIN_MAX {
            return false;
        }
        self.names[self.length] = name;
        self.length += 1;
        true
    }

    /// Whether the chain came by this name before: it would go round for ever.
    #[inline]
    pub(super) fn has(&self, name: u64) -> bool {
        self.names[..self.length].contains(&name)
    }

    /// Adds a DNAME's owner; false where its record stands in the answer already.
    pub(super) fn is_new_dname(&mut self, owner: u64) -> bool {
        let is_new = self.dnames_length < CHAIN_MAX && !self.dnames[..self.dnames_length].contains(&owner);
        if is_new {
            self.dnames[self.dnames_length] = owner;
            self.dnames_length += 1;
        }
        is_new
    }
}

impl Target {
    /// The name at the front of `wire`, which is valid.
    pub(super) fn of(wire: &[u8]) -> Target {
        let folded = Folded::read(wire).expect("names in zones are valid");
        let mut copy = [0; NAME_MAX];
        copy[..folded.wire_length()].copy_from_slice(&wire[..folded.wire_length()]);
        Target { folded, wire: copy }
    }
}
