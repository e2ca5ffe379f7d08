//! Referrals to the name servers of a delegated zone, and addresses that come along with NS records.

use dns::name::is_within;
use dns::writer::{Full, Section, wire_length};
use dns::{Folded, Fragment, Rtype};

use super::{Current, Outcome, Response};
use crate::rate_limit;
use crate::zone::{Found, Rrset, Zone};

impl<'a> Response<'a> {
    /// The name servers of a delegated zone, with their addresses (RFC 1034 §4.3.2 step 3b).
    pub(super) fn referral(
        &mut self,
        zone: &'a Zone,
        cut: Found<'_>,
        labels: usize,
        current: Current<'_>,
    ) -> Result<Outcome, Full> {
        if current.is_asked {
            self.end.authoritative = false;
            self.counted = (rate_limit::Class::Referral, labels);
            // Addresses that a policy decides are none of the zone's, and are in what was composed all the same.
            if let Some(fragment) = zone.referral(cut).filter(|_| !zone.is_steered()) {
                let mark = self.writer.mark();
                if self.composed_referral(zone, fragment, cut, labels, current).is_ok() {
                    return Ok(Outcome::Done);
                }
                self.writer.rewind(mark);
            }
        }
        let owner = current.folded.suffix(labels);
        let set = cut.rrset(Rtype::NS).expect("a delegation has NS records");
        self.whole_set(Section::Authority, owner, set)?;
        self.delegation_signer(zone, cut, labels, current)?;
        // In-domain glue belongs in the referral, without it the zone cannot be reached; sibling glue comes
        // along where there is room (RFC 9471 §2).
        for in_domain in [true, false] {
            for target in set.data() {
                let Some(name) = Folded::read(target) else { continue };
                if is_within(name.wire(), owner) == in_domain
                    && self.addresses(zone, &name, target).is_err()
                    && in_domain
                {
                    self.end.truncated = true;
                }
            }
        }
        Ok(Outcome::Done)
    }

    /// A referral that was composed when the zone was built, if all of it fits.
    fn composed_referral(
        &mut self,
        zone: &'a Zone,
        fragment: Fragment<'_>,
        cut: Found<'_>,
        labels: usize,
        current: Current<'_>,
    ) -> Result<(), Full> {
        let offset = current.folded.suffix_start(labels);
        let at = self.writer.push_fragment(Section::Authority, &fragment, offset, None)?;
        self.delegation_signer(zone, cut, labels, current)?;
        self.writer.push_fragment(Section::Additional, &fragment, offset, Some(at))?;
        Ok(())
    }

    /// The DS records of a delegated zone, or the proof that it has none (RFC 4035 §3.1.4).
    fn delegation_signer(
        &mut self,
        zone: &'a Zone,
        cut: Found<'_>,
        labels: usize,
        current: Current<'_>,
    ) -> Result<(), Full> {
        if !self.dnssec_ok {
            return Ok(());
        }
        match cut.rrset(Rtype::DS) {
            Some(set) => self.whole_set(Section::Authority, current.folded.suffix(labels), set)?,
            None => self.proofs.add(zone, zone.deny_type(cut, current.folded, labels)),
        }
        self.write_proofs()
    }

    /// Addresses of the zone's own name servers, where there is room: resolvers start with them (RFC 8109).
    pub(super) fn name_servers_addresses(&mut self, zone: &Zone, set: Rrset<'_>) {
        for target in set.data() {
            if let Some(name) = Folded::read(target) {
                let _ = self.addresses(zone, &name, target);
            }
        }
    }

    /// Writes the addresses that the zone has for a name, all or none; none where a policy decides them.
    fn addresses(&mut self, zone: &Zone, name: &Folded, wire: &[u8]) -> Result<(), Full> {
        let found = zone.glue(name, &self.generation.hash).filter(|found| found.policy().is_none());
        let Some(found) = found else { return Ok(()) };
        let (mark, owner) = (self.writer.mark(), &wire[..wire_length(wire)]);
        found
            .addresses()
            .try_for_each(|set| self.whole_set(Section::Additional, owner, set))
            .inspect_err(|_| self.writer.rewind(mark))
    }
}
