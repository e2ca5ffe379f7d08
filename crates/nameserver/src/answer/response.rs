//! The composing of one response, a function an outcome; `alias` and `referral` have those that their names say.

mod alias;
mod referral;

use std::net::IpAddr;

use dns::edns::ExtendedError;
use dns::name::NAME_MAX;
use dns::query::{HEADER, Query};
use dns::writer::{End, Full, Mark, Section, Writer};
use dns::{Class, Folded, OptRcode, Rcode, Rtype};
use fastrand::Rng;
use net::clock::Now;
use routing::external::Asking;
use routing::{Choice, Family, Why, route};

use super::chain::Chain;
use super::proofs::Proofs;
use super::{Asked, begin};
use crate::fast::Fast;
use crate::generation::Generation;
use crate::policies::Steered;
use crate::rate_limit::{self, Account};
use crate::routed::{First, Routed};
use crate::signing::{self, Signatures};
use crate::zone::{Found, Rrset, Walk, Zone, Zones};

/// A response that is being composed.
pub(super) struct Response<'a> {
    pub(super) generation: &'a Generation,
    /// What is answered from at the address that was asked.
    zones: &'a Zones,
    pub(super) query: &'a Query<'a>,
    pub(super) writer: Writer<'a>,
    empty: Mark,
    /// Who is to be served: the client of client subnet, else who asked.
    client: IpAddr,
    subnet_given: bool,
    /// DO: signatures and proofs are wanted (RFC 4035 §3.1).
    dnssec_ok: bool,
    proofs: Proofs<'a>,
    fast: Fast<'a>,
    now: Now,
    /// What came in, and how many bits of the client's address it gave.
    asked: &'a Asked<'a>,
    source: u8,
    pub(super) rng: &'a mut Rng,
    pub(super) end: End,
    /// What the answer to the asked name is counted as: a class, and how many of its last labels it is about.
    counted: (rate_limit::Class, usize),
    /// Whether the asked name is an alias: that is the same answer whatever the type.
    is_alias: bool,
    /// Whether it is about all names that a wildcard or DNAME stands in for, and not about the name above it.
    is_synthesized: bool,
    /// What policies decided, while the answer has it: the last one of aliases, and one of addresses.
    pub(super) alias: Option<Routed>,
    pub(super) routed: Option<Routed>,
}

/// The name that is looked up: the asked one at first, then each alias's target.
#[derive(Clone, Copy)]
struct Current<'n> {
    folded: &'n Folded,
    /// The wire form in the case in which it was asked, or stands in the zone.
    wire: &'n [u8],
    is_asked: bool,
}

/// A wildcard that stands in for a name that does not exist: the name's closest encloser, and its labels.
type Wildcard<'a> = Option<(Found<'a>, usize)>;

/// The name that a policy is at: so many of the last labels of the current name, or the wildcard below them.
#[derive(Clone, Copy)]
struct Owner<'a> {
    labels: usize,
    found: Found<'a>,
    wildcard: Wildcard<'a>,
}

/// What a name led to.
enum Outcome {
    /// The answer is complete.
    Done,
    /// An alias was written; its target, [`Chain::next`], is looked up.
    Alias,
}

impl<'a> Response<'a> {
    #[inline]
    pub(super) fn new(
        generation: &'a Generation,
        query: &'a Query<'a>,
        asked: &'a Asked<'a>,
        (fast, now): (Fast<'a>, Now),
        rng: &'a mut Rng,
        writer: Writer<'a>,
    ) -> Response<'a> {
        let given = query.edns.as_ref().and_then(|edns| edns.client_subnet);
        let subnet = given.and_then(|subnet| subnet.client());
        Response {
            generation,
            zones: generation.zones.at(asked.local),
            query,
            empty: writer.mark(),
            writer,
            client: subnet.unwrap_or(asked.client),
            subnet_given: subnet.is_some(),
            dnssec_ok: query.edns.is_some_and(|edns| edns.dnssec_ok),
            proofs: Proofs::new(),
            fast,
            now,
            asked,
            source: given.filter(|_| subnet.is_some()).map_or(0, |subnet| subnet.source()),
            rng,
            end: begin(generation),
            counted: (rate_limit::Class::Error, 0),
            is_alias: false,
            is_synthesized: false,
            alias: None,
            routed: None,
        }
    }

    /// Writes the whole answer.
    ///
    /// # Errors
    /// [`Full`] where something that belongs in it does not fit; then it is to be truncated.
    pub(super) fn compose(&mut self) -> Result<(), Full> {
        self.compose_sections()?;
        self.write_proofs()
    }

    fn compose_sections(&mut self) -> Result<(), Full> {
        match self.query.class {
            Class::IN | Class::ANY => {}
            Class::CH => return self.chaos(),
            _ => return self.refused(ExtendedError::NotSupported),
        }
        match self.query.rtype {
            Rtype::AXFR | Rtype::IXFR => return self.no_transfer(),
            Rtype::MAILA | Rtype::MAILB => return self.not_implemented(),
            _ => {}
        }
        let query = self.query;
        let mut current = Current { folded: query.name, wire: &query.head[HEADER..], is_asked: true };
        let mut target;
        let mut chain = Chain::new();
        loop {
            let hash = &self.generation.hash;
            let above = self.query.rtype == Rtype::DS;
            let Some(zone) = self.zones.closest(current.folded, above, hash) else {
                return if current.is_asked { self.of_no_zone() } else { Ok(()) };
            };
            if zone.is_withheld()
                && let Some(why) = self.withheld(zone, current)
            {
                return why;
            }
            let next = match (self.at(zone, current, &mut chain)?, chain.next.take()) {
                (Outcome::Alias, Some(next)) => next,
                _ => return Ok(()),
            };
            if !chain.add(hash.of(current.folded)) || chain.has(hash.of(&next.folded)) {
                return Ok(());
            }
            target = next;
            current = Current { folded: &target.folded, wire: &target.wire, is_asked: false };
        }
    }

    /// Takes everything back and sets TC: the asker comes again over TCP.
    pub(super) fn truncate(&mut self) {
        self.writer.rewind(self.empty);
        self.end.truncated = true;
        (self.alias, self.routed) = (None, None);
    }

    /// Takes everything back and asks for the cookie that comes along (RFC 7873 §5.2.3).
    pub(super) fn ask_for_cookie(&mut self) {
        self.writer.rewind(self.empty);
        (self.alias, self.routed) = (None, None);
        self.end = End { rcode: OptRcode::BADCOOKIE, ..begin(self.generation) };
    }

    /// What the answer is counted as by response rate limiting.
    pub(super) fn account(&self) -> Account {
        use rate_limit::Class;
        let (class, labels) = self.counted;
        let rtype = match class {
            Class::Positive if self.is_alias => Rtype::CNAME.to_int(),
            Class::Positive => self.query.rtype.to_int(),
            _ => 0,
        };
        let name = self.generation.hash.of_suffix(self.query.name, labels);
        Account { class, name: if self.is_synthesized { !name } else { name }, rtype }
    }

    /// Counts the answer as one that the asked name itself has.
    pub(super) fn note_name(&mut self) {
        self.counted = (rate_limit::Class::Positive, self.query.name.labels());
    }

    /// Counts the answer as of this class, about the last `labels` labels of the current name; only the asked
    /// name's own answer is counted, wherever aliases lead.
    fn note(&mut self, class: rate_limit::Class, labels: usize, current: Current<'_>) {
        if current.is_asked {
            self.counted = (class, labels);
        }
    }

    /// Ends the message; returns its length.
    pub(super) fn finish(mut self) -> usize {
        // Classes that are not ours may have more (RFC 1034 §3.7.1).
        self.end.authoritative &= self.query.class != Class::ANY;
        self.writer.finish(self.query, self.end)
    }

    /// Looks the current name up in its zone (RFC 1034 §4.3.2 step 3).
    fn at(&mut self, zone: &'a Zone, current: Current<'_>, chain: &mut Chain) -> Result<Outcome, Full> {
        let name = current.folded;
        let mut wildcard = None;
        let (found, labels) = match zone.walk(name, &self.generation.hash) {
            Walk::Name(found) => (found, name.labels()),
            // The parent's side of the cut holds the DS records (RFC 4035 §3.1.4.1).
            Walk::Delegation(cut, labels) if self.query.rtype == Rtype::DS && labels == name.labels() => {
                (cut, labels)
            }
            Walk::Delegation(cut, labels) => {
                // Where only the parent's parent is served, the child itself says that it has no DS (RFC 4035 §3.1.4.1).
                let child = (self.query.rtype == Rtype::DS)
                    .then(|| self.zones.get(name, &self.generation.hash))
                    .flatten();
                return match child {
                    Some(child) => self.at(child, current, chain),
                    None => self.referral(zone, cut, labels, current),
                };
            }
            Walk::Dname(found, labels) => return self.dname(found, labels, current, chain),
            Walk::Missing(encloser, labels) => {
                match zone.wildcard(encloser, name, labels, &self.generation.hash) {
                    Some(found) => {
                        wildcard = Some((encloser, labels));
                        (found, labels)
                    }
                    None => return self.nxdomain(zone, encloser, labels, current),
                }
            }
        };
        self.end.authoritative |= current.is_asked;
        self.note(rate_limit::Class::Positive, labels, current);
        self.is_synthesized |= wildcard.is_some() && current.is_asked;
        let rtype = self.query.rtype;
        if let Some(steered) = found.policy().and_then(|id| self.generation.policies.get(id)) {
            // A wildcard is one name, whatever it is asked as.
            let owner = Owner { labels, found, wildcard };
            match rtype {
                _ if steered.policy.is_alias() => {
                    return self.routed_alias(zone, steered, owner, current, chain);
                }
                Rtype::A => return self.routed(zone, steered, Family::V4, owner, current),
                Rtype::AAAA => return self.routed(zone, steered, Family::V6, owner, current),
                Rtype::ANY => {
                    let no_v4 = steered.policy.servers(Family::V4).is_empty();
                    let family = if no_v4 { Family::V6 } else { Family::V4 };
                    return self.routed(zone, steered, family, owner, current);
                }
                _ => {}
            }
        }
        if rtype == Rtype::ANY {
            return self.any(zone, found, wildcard, current);
        }
        if rtype == Rtype::RRSIG && found.rrsets().any(|set| set.is_signed() || set.rtype == Rtype::RRSIG) {
            return self.signatures(zone, found, wildcard, current);
        }
        if let Some(set) = found.rrset(rtype) {
            return self.positive(zone, set, wildcard, current);
        }
        if let Some(cname) = found.rrset(Rtype::CNAME) {
            return self.cname(zone, cname, wildcard, current, chain);
        }
        self.nodata(zone, found, wildcard, current)
    }

    /// The RRset that was asked for.
    fn positive(
        &mut self,
        zone: &'a Zone,
        mut set: Rrset<'_>,
        wildcard: Wildcard<'_>,
        current: Current<'_>,
    ) -> Result<Outcome, Full> {
        if set.rtype == Rtype::NSEC {
            // Whoever asks may take it for a proof (RFC 9077 §3).
            set = set.with_ttl_at_most(zone.negative_ttl());
        }
        self.answer(set, current)?;
        self.prove_wildcard(zone, wildcard, current);
        let is_apex = current.folded.wire() == zone.origin().wire();
        if set.rtype == Rtype::NS && is_apex {
            self.write_proofs()?;
            self.name_servers_addresses(zone, set);
        } else {
            self.zone_servers(zone)?;
        }
        Ok(Outcome::Done)
    }

    /// All signatures at a name, of which only the type was asked for; those that cover nothing there are a set of their own.
    fn signatures(
        &mut self,
        zone: &'a Zone,
        found: Found<'_>,
        wildcard: Wildcard<'_>,
        current: Current<'_>,
    ) -> Result<Outcome, Full> {
        found.rrsets().try_for_each(|set| {
            let is_of_nothing = set.rtype == Rtype::RRSIG;
            self.answer(if is_of_nothing { set } else { set.signatures() }, current)
        })?;
        self.prove_wildcard(zone, wildcard, current);
        self.zone_servers(zone)?;
        Ok(Outcome::Done)
    }

    /// An answer from a wildcard is right only if there is no closer name (RFC 4035 §3.1.3.3).
    fn prove_wildcard(&mut self, zone: &'a Zone, wildcard: Wildcard<'_>, current: Current<'_>) {
        if let Some((encloser, labels)) = wildcard
            && self.dnssec_ok
        {
            self.proofs.add(zone, zone.deny_closer(current.folded, encloser, labels));
        }
    }

    /// The zone's NS set beside a positive answer and its proofs, where that is wanted and there is room.
    fn zone_servers(&mut self, zone: &Zone) -> Result<(), Full> {
        if !self.generation.settings.minimal_responses {
            self.write_proofs()?;
            let _ = self.whole_set(Section::Authority, zone.origin().wire(), zone.ns());
        }
        Ok(())
    }

    /// The servers that the policy has for this client, in its order; one TTL for all (RFC 2181 §5.2).
    fn routed(
        &mut self,
        zone: &'a Zone,
        steered: &Steered,
        family: Family,
        owner: Owner<'_>,
        current: Current<'_>,
    ) -> Result<Outcome, Full> {
        let choice = self.choose(steered, family, owner, current);
        let servers = steered.policy.servers(family);
        let address = |index: &u8| servers[usize::from(*index)].target.address();
        let first = choice.order().first().and_then(address).map(First::Address);
        self.routed = Some(Routed { policy: steered.key_hash, region: choice.region, server: first });
        if choice.order().is_empty() {
            // The policy decides addresses only: the name may have other records.
            let is_other = |set: &Rrset<'_>| !matches!(set.rtype, Rtype::A | Rtype::AAAA);
            if self.query.rtype == Rtype::ANY
                && let Some(set) = owner.found.rrsets().find(is_other)
            {
                return self.positive(zone, set, owner.wildcard, current);
            }
            if zone.is_signed() {
                return self.nodata(zone, owner.found, owner.wildcard, current);
            }
            return self.none_drawn(zone, steered, &choice, current);
        }
        for address in choice.order().iter().filter_map(address) {
            match address {
                IpAddr::V4(v4) => self.answer_one(Rtype::A, choice.ttl, &v4.octets(), current)?,
                IpAddr::V6(v6) => self.answer_one(Rtype::AAAA, choice.ttl, &v6.octets(), current)?,
            }
        }
        if self.dnssec_ok && !self.generation.signed.is_empty() {
            let drawn = choice.order().iter().filter_map(address);
            let signed = |signatures: &'a Signatures| signatures.get(family, drawn);
            self.sign_drawn(zone, signed, choice.ttl, owner, current)?;
        }
        self.zone_servers(zone)?;
        Ok(Outcome::Done)
    }

    /// The signature of what a policy answers, with the proof that a wildcard stands in for the name.
    #[inline(never)]
    fn sign_drawn(
        &mut self,
        zone: &'a Zone,
        signed_as: impl FnOnce(&'a Signatures) -> Option<&'a [u8]>,
        ttl: u32,
        owner: Owner<'_>,
        current: Current<'_>,
    ) -> Result<(), Full> {
        let Generation { signed, hash, .. } = self.generation;
        let is_wildcard = owner.wildcard.is_some();
        let signatures = signing::find(signed, current.folded, owner.labels, is_wildcard, hash);
        if let Some(signature) = signatures.and_then(signed_as) {
            self.answer_one(Rtype::RRSIG, ttl, signature, current)?;
            self.prove_wildcard(zone, owner.wildcard, current);
        }
        Ok(())
    }

    /// What the policy decides for this client.
    fn choose(
        &mut self,
        steered: &Steered,
        family: Family,
        owner: Owner<'_>,
        current: Current<'_>,
    ) -> Choice {
        let policy = &steered.policy;
        let turns = self.fast.rotation.filter(|_| policy.rotates()).map(|rotation| {
            let name = self.generation.hash.of_suffix(current.folded, owner.labels);
            rotation.of(if owner.wildcard.is_some() { !name } else { name })
        });
        let asking = self.fast.external.map(|external| Asking {
            external,
            now: self.now.monotonic,
            source: self.source,
            asker: Some(self.asked.client),
        });
        let state = self.generation.state().with_turns(turns).with_asking(asking);
        let choice = route(policy, family, self.client, state, self.rng);
        // A resolver that gave SOURCE 0 has asked for an answer that holds for everybody it serves. One that several
        // policies made holds for whom all of them would say the same.
        if self.subnet_given {
            self.end.scope = self.end.scope.max(choice.scope);
        }
        choice
    }

    /// The policy has nothing for this client, in a zone that is not signed: there is nothing to prove.
    #[cold]
    fn none_drawn(
        &mut self,
        zone: &Zone,
        steered: &Steered,
        choice: &Choice,
        current: Current<'_>,
    ) -> Result<Outcome, Full> {
        let ttl_max = if choice.why == Why::Empty { steered.empty_ttl } else { u32::MAX };
        self.negative_soa_at_most(zone, ttl_max, current)?;
        Ok(Outcome::Done)
    }

    /// One of the RRsets, which is answer enough to ANY (RFC 8482 §4.1).
    fn any(
        &mut self,
        zone: &'a Zone,
        found: Found<'_>,
        wildcard: Wildcard<'_>,
        current: Current<'_>,
    ) -> Result<Outcome, Full> {
        match found.rrsets().find(|set| set.rtype != Rtype::RRSIG) {
            Some(set) => self.positive(zone, set, wildcard, current),
            None => self.nodata(zone, found, wildcard, current),
        }
    }

    /// The name exists, the type does not (RFC 2308 §2.2).
    fn nodata(
        &mut self,
        zone: &'a Zone,
        found: Found<'_>,
        wildcard: Wildcard<'_>,
        current: Current<'_>,
    ) -> Result<Outcome, Full> {
        self.note(rate_limit::Class::Nodata, self.counted.1, current);
        self.negative_soa(zone, current)?;
        if self.dnssec_ok {
            let name = current.folded;
            let proof = match wildcard {
                Some((encloser, labels)) => zone.deny_wildcard_type(name, encloser, labels, found),
                None => zone.deny_type(found, name, name.labels()),
            };
            self.proofs.add(zone, proof);
        }
        Ok(Outcome::Done)
    }

    /// The name does not exist (RFC 2308 §2.1); for an alias's target too (RFC 6604 §3).
    fn nxdomain(
        &mut self,
        zone: &'a Zone,
        encloser: Found<'_>,
        labels: usize,
        current: Current<'_>,
    ) -> Result<Outcome, Full> {
        self.end.authoritative |= current.is_asked;
        self.end.rcode = Rcode::NXDOMAIN.into();
        self.note(rate_limit::Class::Nxdomain, zone.origin().labels(), current);
        self.negative_soa(zone, current)?;
        if self.dnssec_ok {
            self.proofs.add(zone, zone.deny_name(current.folded, encloser, labels));
        }
        Ok(Outcome::Done)
    }

    /// Nothing for this client, or not here.
    pub(super) fn refused(&mut self, why: ExtendedError) -> Result<(), Full> {
        self.end.rcode = Rcode::REFUSED.into();
        self.end.extended_error = Some(why);
        Ok(())
    }

    /// The name is in no zone that is here.
    fn of_no_zone(&mut self) -> Result<(), Full> {
        if !self.generation.awaits(self.query.name, self.asked.local) {
            return self.refused(ExtendedError::NotAuthoritative);
        }
        self.end.rcode = Rcode::SERVFAIL.into();
        self.end.extended_error = Some(ExtendedError::NotReady);
        Ok(())
    }

    /// The zone is ours, and nobody says any more that it is as it was (RFC 1034 §4.3.5); or it is a catalog, and not for
    /// clients: those who follow it ask for its SOA record first. `None` where it is answered from nevertheless.
    #[cold]
    fn withheld(&mut self, zone: &Zone, current: Current<'_>) -> Option<Result<(), Full>> {
        if !current.is_asked {
            return Some(Ok(()));
        }
        if zone.is_expired() {
            self.end.rcode = Rcode::SERVFAIL.into();
            self.end.extended_error = Some(ExtendedError::InvalidData);
            return Some(Ok(()));
        }
        let is_soa = self.query.rtype == Rtype::SOA && current.folded.wire() == zone.origin().wire();
        (!is_soa).then(|| self.refused(ExtendedError::Prohibited))
    }

    /// A zone is given by `transfer` alone: not over UDP (RFC 5936 §4.2), nor without the SOA record that is known (RFC 1995
    /// §3). What is no zone of ours is so over any transport.
    fn no_transfer(&mut self) -> Result<(), Full> {
        if self.zones.get(self.query.name, &self.generation.hash).is_some() {
            return self.refused(ExtendedError::Prohibited);
        }
        self.end.rcode = Rcode::NOTAUTH.into();
        self.end.extended_error = Some(ExtendedError::NotAuthoritative);
        Ok(())
    }

    fn not_implemented(&mut self) -> Result<(), Full> {
        self.end.rcode = Rcode::NOTIMP.into();
        self.end.extended_error = Some(ExtendedError::NotSupported);
        Ok(())
    }

    /// The zone's SOA, which says how long the absence may be remembered (RFC 2308 §3).
    fn negative_soa(&mut self, zone: &Zone, current: Current<'_>) -> Result<(), Full> {
        self.negative_soa_at_most(zone, u32::MAX, current)
    }

    /// The same, where the absence may be remembered for so many seconds and no longer.
    fn negative_soa_at_most(&mut self, zone: &Zone, ttl_max: u32, current: Current<'_>) -> Result<(), Full> {
        let set = zone.soa().with_ttl_at_most(zone.negative_ttl().min(ttl_max));
        if !current.is_asked || ttl_max < zone.negative_ttl() {
            return self.whole_set(Section::Authority, zone.origin().wire(), set);
        }
        let offset = current.folded.suffix_start(zone.origin().labels());
        self.writer.push_fragment(Section::Authority, &zone.negative(), offset, None)?;
        if self.dnssec_ok {
            self.whole_set(Section::Authority, zone.origin().wire(), set.signatures())?;
        }
        Ok(())
    }

    /// Writes an RRset of the current name into ANSWER.
    fn answer(&mut self, set: Rrset<'_>, current: Current<'_>) -> Result<(), Full> {
        set.data().try_for_each(|data| self.answer_one(set.rtype, set.ttl, data, current))?;
        if self.dnssec_ok && set.is_signed() {
            return self.answer(set.signatures(), current);
        }
        Ok(())
    }

    fn answer_one(&mut self, rtype: Rtype, ttl: u32, data: &[u8], current: Current<'_>) -> Result<(), Full> {
        if current.is_asked {
            self.writer.answer_asked(rtype, ttl, data)
        } else {
            self.writer.push(Section::Answer, current.wire, rtype, ttl, data)
        }
    }

    /// Writes the proofs that came together.
    ///
    /// # Errors
    /// [`Full`] where one does not fit: they belong in the answer (RFC 4035 §3.1.1).
    fn write_proofs(&mut self) -> Result<(), Full> {
        for index in 0..self.proofs.end() {
            let Some((zone, record)) = self.proofs.get(index) else { break };
            let mut room = [0; NAME_MAX];
            let (owner, set) = zone.proven(record, &mut room);
            self.whole_set(Section::Authority, owner, set)?;
        }
        Ok(())
    }

    /// Writes an RRset with its signatures, or nothing of it.
    fn whole_set(&mut self, section: Section, owner: &[u8], set: Rrset<'_>) -> Result<(), Full> {
        let mark = self.writer.mark();
        let signatures = self.dnssec_ok.then(|| set.signatures());
        std::iter::once(set)
            .chain(signatures)
            .flat_map(|set| set.data().map(move |data| (set, data)))
            .try_for_each(|(set, data)| self.writer.push(section, owner, set.rtype, set.ttl, data))
            .inspect_err(|_| self.writer.rewind(mark))
    }
}
