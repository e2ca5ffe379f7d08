//! Aliases: CNAME records, those that a DNAME makes, and chains of them.

use dns::name::NAME_MAX;
use dns::writer::{Full, Section};
use dns::{Folded, Rcode, Rtype};

use super::{Current, Outcome, Response, Wildcard};
use crate::rate_limit;
use crate::zone::{Found, Rrset, Zone};

/// The most aliases that one answer follows: a chain of that length is a mistake, and each costs a walk.
pub(in crate::answer) const CHAIN_MAX: usize = 16;

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

impl<'a> Response<'a> {
    /// An alias; what follows is answered for its target.
    pub(super) fn cname(
        &mut self,
        zone: &'a Zone,
        set: Rrset<'_>,
        wildcard: Wildcard<'_>,
        current: Current<'_>,
        chain: &mut Chain,
    ) -> Result<Outcome, Full> {
        self.is_alias |= current.is_asked;
        self.answer(set, current)?;
        self.prove_wildcard(zone, wildcard, current);
        let target = set.data().next().expect("an RRset has a record");
        chain.next = Some(Target::of(target));
        Ok(Outcome::Alias)
    }

    /// The aliases that a DNAME makes of all names below it (RFC 6672 §3.2).
    pub(super) fn dname(
        &mut self,
        found: Found<'_>,
        labels: usize,
        current: Current<'_>,
        chain: &mut Chain,
    ) -> Result<Outcome, Full> {
        self.end.authoritative |= current.is_asked;
        self.note(rate_limit::Class::Positive, labels, current);
        self.is_synthesized |= current.is_asked;
        self.is_alias |= current.is_asked;
        let set = found.rrset(Rtype::DNAME).expect("the walk ended at a DNAME");
        let owner = current.folded.suffix(labels);
        if chain.is_new_dname(self.generation.hash.of_suffix(current.folded, labels)) {
            self.whole_set(Section::Answer, owner, set)?;
        }
        let target = set.data().next().expect("an RRset has a record");
        let kept = current.folded.suffix_start(labels);
        if kept + target.len() > NAME_MAX {
            self.end.rcode = Rcode::YXDOMAIN.into();
            return Ok(Outcome::Done);
        }
        let mut wire = [0; NAME_MAX];
        wire[..kept].copy_from_slice(&current.wire[..kept]);
        wire[kept..kept + target.len()].copy_from_slice(target);
        self.answer_one(Rtype::CNAME, set.ttl, &wire[..kept + target.len()], current)?;
        if self.query.rtype == Rtype::CNAME {
            // It is what was asked for (RFC 1034 §4.3.2 step 3a).
            return Ok(Outcome::Done);
        }
        chain.next = Some(Target::of(&wire));
        Ok(Outcome::Alias)
    }
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
    fn is_new_dname(&mut self, owner: u64) -> bool {
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
    fn of(wire: &[u8]) -> Target {
        let folded = Folded::read(wire).expect("names in zones are valid");
        let mut copy = [0; NAME_MAX];
        copy[..folded.wire_length()].copy_from_slice(&wire[..folded.wire_length()]);
        Target { folded, wire: copy }
    }
}
