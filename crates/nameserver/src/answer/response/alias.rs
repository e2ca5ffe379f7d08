//! Aliases: CNAME records, those that a policy has, and those that a DNAME makes.

use dns::name::NAME_MAX;
use dns::writer::{Full, Section};
use dns::{Folded, Rcode, Rtype};

use routing::Family;

use super::{Current, Outcome, Owner, Response, Wildcard};
use crate::answer::chain::{Chain, Target};
use crate::policies::Steered;
use crate::rate_limit;
use crate::routed::{First, Routed};
use crate::signing::Signatures;
use crate::zone::{Found, Rrset, Zone};

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

    /// The alias that the policy has for this client; what follows is answered for its target, unless it is itself what was
    /// asked for.
    pub(super) fn routed_alias(
        &mut self,
        zone: &'a Zone,
        steered: &Steered,
        owner: Owner<'_>,
        current: Current<'_>,
        chain: &mut Chain,
    ) -> Result<Outcome, Full> {
        self.is_alias |= current.is_asked;
        let choice = self.choose(steered, Family::Cname, owner, current);
        let cname = choice.order().first().map(|index| &steered.cnames[usize::from(*index)]);
        let target = cname.map(|wire| Target::of(wire));
        let first = target.as_ref().map(|target| First::Cname(self.generation.hash.of(&target.folded)));
        self.alias = Some(Routed { policy: steered.key_hash, region: choice.region, server: first });
        let Some(wire) = cname else { return self.none_drawn(zone, steered, &choice, current) };
        self.answer_one(Rtype::CNAME, choice.ttl, wire, current)?;
        if self.dnssec_ok && !self.generation.signed.is_empty() {
            let signed = |signatures: &'a Signatures| signatures.of_alias(Folded::read(wire)?.wire());
            self.sign_drawn(zone, signed, choice.ttl, owner, current)?;
        }
        if matches!(self.query.rtype, Rtype::CNAME | Rtype::ANY) {
            self.zone_servers(zone)?;
            return Ok(Outcome::Done);
        }
        chain.next = target;
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
