//! What is found and composed when a zone is built, so that no answer has to search for it.

use std::collections::HashSet;
use std::sync::Arc;

use dns::writer::Full;
use dns::{Folded, Fragment, Fragments, Rtype, Section, Writer};

use super::denial::Denial;
use super::{Found, Rrset, Zone, nsec3};
use crate::names::NameHash;

/// How many names may be linked, and lead elsewhere, after a zone was built: each change copies what was composed since.
pub(super) const SINCE_MAX: usize = 1_024;

/// A zone's links and composed records.
#[derive(Default)]
pub(super) struct Links {
    /// What was composed when the zone was built.
    built: Arc<Composed>,
    /// What was composed since; its numbers go on behind those.
    since: Composed,
    /// The SOA record for negative answers, alone.
    negative: Fragments,
    /// How the zone proves what is not there.
    pub(super) denial: Denial,
    /// Why it cannot prove all of that, where it is signed.
    pub(super) unproven: Option<&'static str>,
    /// The NSEC3 RRsets, which are at no name (RFC 5155 §7.2.8).
    pub(super) hidden: nsec3::Records,
    /// How long an absence may be remembered, in seconds.
    pub(super) negative_ttl: u32,
}

/// Links of names and their composed records, in flat arrays.
#[derive(Clone, Default)]
struct Composed {
    /// By the number in a name's node, from 1; 0 stands for names that have none.
    names: Vec<Link>,
    referrals: Fragments,
    /// The hashes of names in the zone that delegations have as name servers, whether they exist or not.
    targets: HashSet<u64>,
}

/// What belongs to one name.
#[derive(Clone, Copy, Default)]
struct Link {
    /// The number of the referral's fragment, from 1; 0 where there is none.
    referral: u32,
    /// Where NSEC3 records prove what is not at the name, or below it.
    nsec3: nsec3::Link,
}

impl Links {
    #[inline]
    pub(super) fn negative(&self) -> Fragment<'_> {
        self.negative.get(0)
    }

    #[inline]
    pub(super) fn referral(&self, link: u32) -> Option<Fragment<'_>> {
        let (of, link) = self.linked(link)?;
        let fragment = link.referral.checked_sub(1)?;
        Some(of.referrals.get(fragment as usize))
    }

    #[inline]
    pub(super) fn nsec3(&self, link: u32) -> nsec3::Link {
        self.linked(link).map_or_else(nsec3::Link::default, |(_, link)| link.nsec3)
    }

    #[inline]
    fn linked(&self, link: u32) -> Option<(&Composed, &Link)> {
        let index = (link as usize).checked_sub(1)?;
        match self.built.names.get(index) {
            Some(link) => Some((&self.built, link)),
            None => Some((&self.since, &self.since.names[index - self.built.names.len()])),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.built.bytes()
            + self.since.bytes()
            + self.negative.bytes()
            + self.denial.bytes()
            + self.hidden.bytes()
    }
}

impl Composed {
    fn bytes(&self) -> usize {
        self.names.capacity() * size_of::<Link>()
            + self.referrals.bytes()
            + self.targets.capacity() * size_of::<u64>()
    }
}

impl Zone {
    /// Makes the links of a zone that has all its names.
    pub(super) fn make_links(&mut self, mut hidden: nsec3::Records, hash: &NameHash) {
        let (denial, unproven) = Denial::of(self, &mut hidden, hash);
        let links_all = matches!(denial, Denial::Nsec3(_));
        let mut count = 0u32;
        self.names.change_all(|node| {
            if links_all || node.has_ns {
                count += 1;
                node.link = count;
            }
        });
        let mut built = Composed { names: Vec::with_capacity(count as usize), ..Composed::default() };
        for (wire, node) in self.names.iter().filter(|(_, node)| node.value.link != 0) {
            let name = Folded::read(wire).expect("names of a zone are valid");
            let found = Found { node, is_apex: wire == self.origin.wire() };
            let referral = if found.is_delegation() {
                if !self.is_signed() {
                    built.targets.extend(self.targets_of(found, hash));
                }
                self.compose_referral(&name, found, hash, &mut built.referrals)
            } else {
                None
            };
            let nsec3 = match &denial {
                Denial::Nsec3(chain) => chain.link(&name, self.origin.labels()),
                _ => nsec3::Link::default(),
            };
            built.names.push(Link { referral: numbered(referral), nsec3 });
        }
        built.referrals.shrink();
        built.targets.shrink_to_fit();
        let (negative, negative_ttl) = self.compose_negative();
        let since = Composed::default();
        let built = Arc::new(built);
        self.links = Arc::new(Links { built, since, negative, denial, unproven, hidden, negative_ttl });
    }

    /// Makes the links of an unsigned zone anew for names that have other records, and for delegations to name servers of which
    /// others have `addressed` ones; false where that is too much.
    pub(super) fn renew_links(
        &mut self,
        changed: Vec<Folded>,
        addressed: &HashSet<u64>,
        hash: &NameHash,
    ) -> bool {
        let (built, mut since) = (self.links.built.clone(), self.links.since.clone());
        let mut cuts: Vec<Folded> = changed;
        if addressed.iter().any(|hash| built.targets.contains(hash) || since.targets.contains(hash)) {
            let known: HashSet<&[u8]> = cuts.iter().map(Folded::wire).collect();
            let leads_there = |found| self.targets_of(found, hash).any(|target| addressed.contains(&target));
            let others: Vec<Folded> = self
                .names
                .iter()
                .map(|(wire, node)| (wire, Found { node, is_apex: wire == self.origin.wire() }))
                .filter(|(wire, found)| found.is_delegation() && !known.contains(wire) && leads_there(*found))
                .map(|(wire, _)| Folded::read(wire).expect("names of a zone are valid"))
                .collect();
            cuts.extend(others);
        }
        for name in cuts {
            let Some(node) = self.names.find(hash.of(&name), name.wire()) else { continue };
            let found = Found { node, is_apex: false };
            let mut link = 0;
            if found.is_delegation() {
                since.targets.extend(self.targets_of(found, hash));
                let referral = self.compose_referral(&name, found, hash, &mut since.referrals);
                if referral.is_some() {
                    since.names.push(Link { referral: numbered(referral), nsec3: nsec3::Link::default() });
                    link = (built.names.len() + since.names.len()) as u32;
                }
            }
            self.names.change(hash.of(&name), name.wire(), |node, _| node.link = link);
        }
        if since.names.len() > SINCE_MAX || since.targets.len() > SINCE_MAX {
            return false;
        }
        let (negative, negative_ttl) = self.compose_negative();
        self.links = Arc::new(Links { built, since, negative, negative_ttl, ..Links::default() });
        true
    }

    /// The SOA record for negative answers, and how long they hold.
    fn compose_negative(&self) -> (Fragments, u32) {
        let (soa, mut negative) = (self.soa(), Fragments::default());
        let ttl = negative_ttl(soa);
        let data = soa.data().next().expect("an RRset has a record");
        let write = |writer: &mut Writer<'_>| {
            writer.push(Section::Authority, self.origin.wire(), Rtype::SOA, ttl, data)
        };
        negative.add(&self.origin, write).expect("a SOA record is smaller than a fragment may be");
        negative.shrink();
        (negative, ttl)
    }

    /// The hashes of a delegation's name servers in the zone.
    fn targets_of<'a>(&'a self, cut: Found<'a>, hash: &'a NameHash) -> impl Iterator<Item = u64> + 'a {
        let servers = cut.rrset(Rtype::NS).expect("a delegation has NS records");
        let names = servers.data().filter_map(Folded::read);
        let within = names.filter(|name| dns::name::is_within(name.wire(), self.origin.wire()));
        within.map(|name| hash.of(&name))
    }

    /// Composes a referral where the zone has addresses of its name servers.
    ///
    /// Signed addresses are not composed: whether their signatures belong to them depends on who asks.
    fn compose_referral(
        &self,
        owner: &Folded,
        cut: Found<'_>,
        hash: &NameHash,
        fragments: &mut Fragments,
    ) -> Option<usize> {
        let servers = cut.rrset(Rtype::NS).expect("a delegation has NS records");
        let glue: Vec<(&[u8], Rrset<'_>)> = self.glue_of(servers, owner.wire(), hash).collect();
        if glue.is_empty() || glue.iter().any(|(_, set)| set.is_signed()) {
            return None;
        }
        let write = |writer: &mut Writer<'_>| -> Result<(), Full> {
            for data in servers.data() {
                writer.push(Section::Authority, owner.wire(), Rtype::NS, servers.ttl, data)?;
            }
            for (target, set) in &glue {
                for data in set.data() {
                    writer.push(Section::Additional, target, set.rtype, set.ttl, data)?;
                }
            }
            Ok(())
        };
        fragments.add(owner, write)
    }

    /// The address RRsets that the zone has for the servers of a delegation: first those in its own domain,
    /// without which it cannot be reached, then siblings (RFC 9471 §2).
    fn glue_of<'a>(
        &'a self,
        servers: Rrset<'a>,
        owner: &'a [u8],
        hash: &'a NameHash,
    ) -> impl Iterator<Item = (&'a [u8], Rrset<'a>)> {
        let of = move |in_domain: bool| {
            servers.data().filter_map(move |target| {
                let name = Folded::read(target)?;
                let belongs = dns::name::is_within(name.wire(), owner) == in_domain;
                let found = if belongs { self.glue(&name, hash) } else { None };
                Some((target, found?))
            })
        };
        of(true).chain(of(false)).flat_map(|(target, found)| {
            found.addresses().map(move |set| (&target[..dns::writer::wire_length(target)], set))
        })
    }
}

/// The number of a fragment, from 1; 0 where there is none.
fn numbered(fragment: Option<usize>) -> u32 {
    fragment.map_or(0, |fragment| fragment as u32 + 1)
}

/// The lower of the SOA record's TTL and its MINIMUM.
fn negative_ttl(soa: Rrset<'_>) -> u32 {
    let minimum = soa.data().next().and_then(|data| data.last_chunk::<4>());
    soa.ttl.min(minimum.map_or(0, |octets| u32::from_be_bytes(*octets)))
}
