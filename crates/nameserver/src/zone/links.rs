//! What is found and composed when a zone is built, so that no answer has to search for it.

use dns::writer::Full;
use dns::{Folded, Fragment, Fragments, Rtype, Section, Writer};

use super::denial::Denial;
use super::{Found, Rrset, Zone, nsec3};
use crate::names::NameHash;

/// A zone's links and composed records, in flat arrays.
#[derive(Default)]
pub(super) struct Links {
    /// By the number in a name's node; the first stands for names that have none.
    names: Vec<Link>,
    /// The SOA record for negative answers, then referrals.
    fragments: Fragments,
    /// How the zone proves what is not there.
    pub(super) denial: Denial,
    /// Why it cannot prove all of that, where it is signed.
    pub(super) unproven: Option<&'static str>,
    /// The NSEC3 RRsets, which are at no name (RFC 5155 §7.2.8).
    pub(super) hidden: nsec3::Records,
    /// How long an absence may be remembered, in seconds.
    pub(super) negative_ttl: u32,
}

/// What belongs to one name.
#[derive(Clone, Copy, Default)]
struct Link {
    /// The referral's fragment; 0, which is the SOA record, where there is none.
    referral: u32,
    /// Where NSEC3 records prove what is not at the name, or below it.
    nsec3: nsec3::Link,
}

impl Links {
    #[inline]
    pub(super) fn negative(&self) -> Fragment<'_> {
        self.fragments.get(0)
    }

    #[inline]
    pub(super) fn referral(&self, link: u32) -> Option<Fragment<'_>> {
        match self.names[link as usize].referral {
            0 => None,
            fragment => Some(self.fragments.get(fragment as usize)),
        }
    }

    #[inline]
    pub(super) fn nsec3(&self, link: u32) -> nsec3::Link {
        self.names[link as usize].nsec3
    }

    pub(super) fn bytes(&self) -> usize {
        self.names.capacity() * size_of::<Link>()
            + self.fragments.bytes()
            + self.denial.bytes()
            + self.hidden.bytes()
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
        let mut links = Links { denial, unproven, hidden, ..Links::default() };
        let soa = self.soa();
        links.negative_ttl = negative_ttl(soa);
        links
            .fragments
            .add(&self.origin, |writer| {
                let data = soa.data().next().expect("an RRset has a record");
                writer.push(Section::Authority, self.origin.wire(), Rtype::SOA, links.negative_ttl, data)
            })
            .expect("a SOA record is smaller than a fragment may be");
        links.names = Vec::with_capacity(count as usize + 1);
        links.names.push(Link::default());
        for (wire, node) in self.names.iter().filter(|(_, node)| node.value.link != 0) {
            let name = Folded::read(wire).expect("names of a zone are valid");
            let found = Found { node, is_apex: wire == self.origin.wire() };
            let referral = if found.is_delegation() {
                self.compose_referral(&name, found, hash, &mut links.fragments)
            } else {
                None
            };
            let nsec3 = match &links.denial {
                Denial::Nsec3(chain) => chain.link(&name, self.origin.labels()),
                _ => nsec3::Link::default(),
            };
            links.names.push(Link { referral: referral.map_or(0, |fragment| fragment as u32), nsec3 });
        }
        links.fragments.shrink();
        self.links = links.into();
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

/// The lower of the SOA record's TTL and its MINIMUM.
fn negative_ttl(soa: Rrset<'_>) -> u32 {
    let minimum = soa.data().next().and_then(|data| data.last_chunk::<4>());
    soa.ttl.min(minimum.map_or(0, |octets| u32::from_be_bytes(*octets)))
}
