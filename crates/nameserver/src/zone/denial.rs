//! How a zone proves what is not there: which records belong into an answer (RFC 4035 §3.1.3, RFC 5155 §7.2).

use dns::Folded;
use dns::name::NAME_MAX;

use super::nsec::Nsec;
use super::nsec3::{self, Nsec3};
use super::{Found, Rrset, WILDCARD, Zone};
use crate::names::NameHash;

/// The most records that one proof needs: closest encloser, next closer name and wildcard (RFC 5155 §7.2.2).
const RECORDS_MAX: usize = 3;

/// The chain of records that a zone's proofs are taken from.
#[derive(Default)]
pub(super) enum Denial {
    /// The zone is not signed, or has no chain.
    #[default]
    None,
    /// NSEC records.
    Nsec(Nsec),
    /// NSEC3 records.
    Nsec3(Nsec3),
}

/// The records that prove one thing: indices for [`Zone::proven`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    records: [u32; RECORDS_MAX],
    length: usize,
}

impl Denial {
    /// The chain of a zone that has all its names, and what is wrong with it; the NSEC3 records are put into its order.
    ///
    /// A zone on its way from one to the other has both: NSEC3PARAM says that the NSEC3 chain is whole.
    pub(super) fn of(
        zone: &Zone,
        hidden: &mut nsec3::Records,
        hash: &NameHash,
    ) -> (Denial, Option<&'static str>) {
        if !zone.is_signed() {
            return (Denial::None, None);
        }
        let (chain, is_whole) = if let Some((chain, is_whole)) = Nsec3::of(zone, hidden) {
            (Denial::Nsec3(chain), is_whole)
        } else if let Some((chain, is_whole)) = Nsec::of(zone, hash) {
            (Denial::Nsec(chain), is_whole)
        } else {
            let missing = "the apex has no NSEC record, and no NSEC3 record (SHA-1) that an NSEC3PARAM record without \
                flags describes";
            return (Denial::None, Some(missing));
        };
        (chain, (!is_whole).then_some("a record of the chain does not name the next one"))
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Denial::None => 0,
            Denial::Nsec(chain) => chain.bytes(),
            Denial::Nsec3(chain) => chain.bytes(),
        }
    }
}

impl Proof {
    /// The indices, none twice.
    pub fn records(&self) -> &[u32] {
        &self.records[..self.length]
    }

    fn of(records: &[u32]) -> Proof {
        let mut proof = Proof::default();
        for &record in records {
            if nsec3::is_some(record) && !proof.records().contains(&record) {
                proof.records[proof.length] = record;
                proof.length += 1;
            }
        }
        proof
    }
}

/// Each proof is empty where the zone has none to give. A name is the last `labels` labels of `name`; an encloser
/// is the closest one of `name`.
impl Zone {
    /// That a name which exists has no records of the type (RFC 4035 §3.1.3.1, RFC 5155 §7.2.3), or a delegation no
    /// DS record (RFC 4035 §3.1.4, RFC 5155 §7.2.4 and §7.2.7).
    pub fn deny_type(&self, found: Found<'_>, name: &Folded, labels: usize) -> Proof {
        match &self.links.denial {
            Denial::None => Proof::default(),
            Denial::Nsec(chain) => Proof::of(&[chain.at_or_before(name, labels, None, self.origin.labels())]),
            Denial::Nsec3(chain) => Proof::of(&chain.deny_type(self.nsec3(found))),
        }
    }

    /// That a name does not exist, nor a wildcard in its place (RFC 4035 §3.1.3.2, RFC 5155 §7.2.2).
    pub fn deny_name(&self, name: &Folded, encloser: Found<'_>, labels: usize) -> Proof {
        let apex = self.origin.labels();
        match &self.links.denial {
            Denial::None => Proof::default(),
            Denial::Nsec(chain) => Proof::of(&[
                chain.at_or_before(name, name.labels(), None, apex),
                chain.at_or_before(name, labels, Some(WILDCARD), apex),
            ]),
            Denial::Nsec3(chain) => {
                let link = self.nsec3(encloser);
                let [encloser, next_closer] = chain.closest(link, name.suffix(labels + 1));
                Proof::of(&[encloser, next_closer, link.wildcard()])
            }
        }
    }

    /// That no name is closer than the wildcard that stood in for it (RFC 4035 §3.1.3.3, RFC 5155 §7.2.6).
    pub fn deny_closer(&self, name: &Folded, encloser: Found<'_>, labels: usize) -> Proof {
        match &self.links.denial {
            Denial::None => Proof::default(),
            Denial::Nsec(chain) => {
                Proof::of(&[chain.at_or_before(name, name.labels(), None, self.origin.labels())])
            }
            Denial::Nsec3(chain) => {
                let [_, next_closer] = chain.closest(self.nsec3(encloser), name.suffix(labels + 1));
                Proof::of(&[next_closer])
            }
        }
    }

    /// That the wildcard which stands in for a name has no records of the type, and no name is closer (RFC 4035
    /// §3.1.3.4, RFC 5155 §7.2.5).
    pub fn deny_wildcard_type(
        &self,
        name: &Folded,
        encloser: Found<'_>,
        labels: usize,
        wildcard: Found<'_>,
    ) -> Proof {
        match &self.links.denial {
            Denial::None => Proof::default(),
            // The wildcard's own record is the one at its name.
            Denial::Nsec(_) => self.deny_name(name, encloser, labels),
            Denial::Nsec3(chain) => {
                let [encloser, next_closer] = chain.closest(self.nsec3(encloser), name.suffix(labels + 1));
                Proof::of(&[encloser, next_closer, self.nsec3(wildcard).matching()])
            }
        }
    }

    /// A record of a proof: its owner and the RRset, with a TTL no larger than an absence may be remembered
    /// (RFC 9077 §3). `room` is for the owner.
    ///
    /// # Panics
    /// Where the index is none of this zone's proofs.
    pub fn proven<'a>(&'a self, record: u32, room: &'a mut [u8; NAME_MAX]) -> (&'a [u8], Rrset<'a>) {
        let (owner, set) = match &self.links.denial {
            Denial::None => panic!("a zone without proofs gives no indices"),
            Denial::Nsec(chain) => chain.proven(record, self, room),
            Denial::Nsec3(_) => Nsec3::proven(record, &self.links.hidden),
        };
        (owner, set.with_ttl_at_most(self.negative_ttl()))
    }

    /// How long an absence may be remembered, in seconds: the lower of the SOA record's TTL and its MINIMUM (RFC
    /// 2308 §3).
    pub fn negative_ttl(&self) -> u32 {
        self.links.negative_ttl
    }

    fn nsec3(&self, found: Found<'_>) -> nsec3::Link {
        self.links.nsec3(found.node.value.link)
    }
}
