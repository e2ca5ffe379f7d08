//! A zone with what signing it here makes: its keys, the chain that proves what is not there, and signatures over all that is
//! its own (RFC 4035 §2, RFC 5155 §7.1).

use std::borrow::Cow;

use dns::name::NAME_MAX;
use dns::{Folded, Rtype};
use domain::rdata::dnssec::RtypeBitmap;

use super::canonical::canonical;
use super::history::Owners;
use super::nsec3::{self, Nsec3};
use super::text::order_key;
use super::{Found, PolicyId, Rrset, Walk, Zone, rrset};
use crate::names::NameHash;

/// The types of what signing makes; a zone that is to be signed here has none of them.
const MADE: [Rtype; 4] = [Rtype::DNSKEY, Rtype::NSEC, Rtype::NSEC3, Rtype::RRSIG];

/// Whether records of a type are made when a zone is signed here.
fn is_made(rtype: Rtype) -> bool {
    MADE.contains(&rtype)
}

/// What a zone is signed with.
pub(crate) struct Additions<'a> {
    /// The data of its DNSKEY records.
    pub(crate) keys: &'a [&'a [u8]],
    /// The types that a policy answers with, in place of addresses that its names have here.
    pub(crate) answers: &'a dyn Fn(PolicyId) -> Vec<Rtype>,
    /// What is added to its serial number.
    pub(crate) serial: u32,
    /// When the signatures expire (RFC 4034 §3.1.5).
    pub(crate) until: u32,
}

/// A set that is to be signed: at this name, of this type and TTL.
pub(crate) struct ToSign<'a> {
    pub(crate) owner: &'a Folded,
    pub(crate) rtype: Rtype,
    pub(crate) ttl: u32,
    /// The data of its records in canonical form and order (RFC 4034 §6.2, §6.3).
    pub(crate) data: Vec<Cow<'a, [u8]>>,
    /// The signatures over the same set in the version before.
    pub(crate) known: Vec<&'a [u8]>,
}

/// A name with what it has.
struct Owned {
    name: Folded,
    authority: Authority,
    /// As a name's sets, without signatures.
    sets: Vec<u8>,
    /// What proofs tell that it has.
    types: Vec<Rtype>,
    policy: Option<PolicyId>,
}

/// Whose the records of a name are.
#[derive(Clone, Copy, PartialEq)]
enum Authority {
    /// The zone's.
    Zone,
    /// Those of the zone below it, which is delegated here, but for what the parent says of it.
    Cut,
    /// Those of the zone below it, or of nobody, for they are below a DNAME.
    Below,
}

impl Authority {
    fn signs(self, rtype: Rtype) -> bool {
        match self {
            Authority::Zone => true,
            Authority::Cut => matches!(rtype, Rtype::DS | Rtype::NSEC),
            Authority::Below => false,
        }
    }

    /// Whether proofs tell of a type at a name.
    fn tells(self, rtype: Rtype) -> bool {
        self.signs(rtype) || self == Authority::Cut && rtype == Rtype::NS
    }
}

impl Zone {
    /// Whether records of a type are here because the zone was signed here.
    pub(crate) fn has_made(&self, rtype: Rtype) -> bool {
        self.is_signed_here() && is_made(rtype)
    }

    /// What keeps a zone from being signed here, as a fragment such as "it has NSEC records"; policies at its names do not.
    pub(crate) fn unsignable(&self) -> Option<String> {
        if Nsec3::wanted(self).is_some() && self.origin.wire().len() + nsec3::LABEL > NAME_MAX {
            return Some("its name is too long for the owners of NSEC3 records".into());
        }
        if self.links.hidden.len() > 0 {
            return Some("it has NSEC3 records".into());
        }
        let sets = self.names.iter().flat_map(|(_, node)| (Found { node, is_apex: false }).rrsets());
        let is_foreign =
            |set: &Rrset<'_>| is_made(set.rtype) || set.is_signed() || set.rtype == Rtype::ZONEMD;
        let foreign =
            sets.filter(is_foreign).map(|set| if set.is_signed() { Rtype::RRSIG } else { set.rtype });
        foreign.min().map(|rtype| format!("it has {rtype} records"))
    }

    /// The zone as it is signed here, by `sign`, which returns the data of the RRSIG records of a set; `before` is a version
    /// that was signed before. It has no history.
    ///
    /// # Panics
    /// Where it is [`unsignable`](Zone::unsignable).
    pub(crate) fn signed(
        &self,
        additions: &Additions<'_>,
        before: Option<&Zone>,
        mut sign: impl FnMut(&ToSign<'_>) -> Vec<Vec<u8>>,
        hash: &NameHash,
    ) -> Zone {
        let (mut owned, ttl) = (self.owned(additions, hash), self.negative_ttl());
        let mut chain = Vec::new();
        match Nsec3::wanted(self) {
            Some(hashing) => {
                let known = owned.iter().filter(|owned| owned.authority != Authority::Below);
                let names = known.map(|owned| (&owned.name, bitmap(&owned.types)));
                chain = hashing.records_of(names, &self.origin);
            }
            None => add_nsec(&mut owned, ttl),
        }
        let mut known = before.map(|before| Owners::new(before, hash));
        let mut records = 0;
        let mut write = |owned: &Owned, is_hidden: bool, octets: &mut Vec<u8>| {
            let before =
                known.as_mut().map_or(&[][..], |known| known.sets(owned.name.wire())[usize::from(is_hidden)]);
            let mut sets: Vec<Rrset<'_>> = Rrset::all(&owned.sets).collect();
            sets.sort_by_key(|set| set.rtype.to_int());
            for set in sets {
                let data: Vec<&[u8]> = set.data().collect();
                rrset::write(set.rtype, set.ttl, &data, octets);
                records += data.len();
                if owned.authority.signs(set.rtype) {
                    let signatures = sign(&ToSign::of(&owned.name, set, before));
                    records += signatures.len();
                    let data: Vec<&[u8]> = signatures.iter().map(Vec::as_slice).collect();
                    rrset::write(Rtype::RRSIG, set.ttl, &data, octets);
                }
            }
        };
        let mut zone = Zone::empty(self.origin.clone(), owned.len(), hash);
        for owned in &owned {
            if !owned.sets.is_empty() {
                zone.add_name(&owned.name, |arena| write(owned, false, arena), hash);
            }
            if owned.policy.is_some() {
                zone.set_policy(&owned.name, owned.policy, hash);
            }
        }
        let mut hidden = nsec3::Records::default();
        for (owner, data) in chain {
            let name = Folded::read(&owner).expect("a hash is a label, and there is room for it");
            let mut sets = Vec::new();
            rrset::write(Rtype::NSEC3, ttl, &[&data], &mut sets);
            let owned = Owned { name, authority: Authority::Zone, sets, types: Vec::new(), policy: None };
            hidden.add(&owner, |octets| write(&owned, true, octets));
        }
        zone.records = records;
        zone.signed_until = Some(additions.until);
        zone.serial_added = Some(additions.serial);
        zone.expired = self.expired;
        zone.make_links(hidden, hash);
        zone.names.shrink();
        zone
    }

    /// All names in canonical order, with the keys and the new serial number at the apex.
    fn owned(&self, additions: &Additions<'_>, hash: &NameHash) -> Vec<Owned> {
        let mut owned: Vec<(Vec<u8>, Owned)> = Vec::with_capacity(self.names.len());
        for (wire, node) in self.names.iter() {
            let name = Folded::read(wire).expect("names of a zone are valid");
            let authority = match self.walk(&name, hash) {
                Walk::Delegation(_, labels) if labels < name.labels() => Authority::Below,
                Walk::Dname(..) => Authority::Below,
                Walk::Delegation(..) => Authority::Cut,
                _ => Authority::Zone,
            };
            let is_apex = wire == self.origin.wire();
            let sets = match is_apex {
                true => self.apex_sets(additions),
                false => Found { node, is_apex }.sets().to_vec(),
            };
            let policy = node.value.policy;
            let mut types: Vec<Rtype> = Rrset::all(&sets).map(|set| set.rtype).collect();
            if let Some(policy) = policy {
                types.retain(|rtype| !matches!(*rtype, Rtype::A | Rtype::AAAA));
                types.extend((additions.answers)(policy));
            }
            types.retain(|rtype| authority.tells(*rtype));
            if types.iter().any(|rtype| authority.signs(*rtype)) {
                types.push(Rtype::RRSIG);
            }
            owned.push((order_key(wire), Owned { name, authority, sets, types, policy }));
        }
        owned.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        owned.into_iter().map(|(_, owned)| owned).collect()
    }

    fn apex_sets(&self, additions: &Additions<'_>) -> Vec<u8> {
        let (mut octets, soa) = (Vec::new(), self.soa());
        for set in self.apex_found().rrsets() {
            let data = set.data().map(|data| match set.rtype {
                Rtype::SOA => with_serial(data, self.serial().wrapping_add(additions.serial)).into(),
                _ => Cow::from(data),
            });
            let data: Vec<Cow<'_, [u8]>> = data.collect();
            rrset::write(
                set.rtype,
                set.ttl,
                &data.iter().map(|data| &**data).collect::<Vec<_>>(),
                &mut octets,
            );
        }
        rrset::write(Rtype::DNSKEY, soa.ttl, additions.keys, &mut octets);
        octets
    }
}

impl<'a> ToSign<'a> {
    /// A set of an owner that had these sets before.
    fn of(owner: &'a Folded, set: Rrset<'a>, before: &'a [u8]) -> ToSign<'a> {
        let mut data: Vec<Cow<'_, [u8]>> = set.data().map(|data| canonical(set.rtype, data)).collect();
        data.sort_unstable();
        let is_same = |other: &Rrset<'_>| {
            other.rtype == set.rtype && other.ttl == set.ttl && other.data().eq(set.data())
        };
        let known = Rrset::all(before).find(is_same);
        let known = known.into_iter().flat_map(|set| set.signatures().data()).collect();
        ToSign { owner, rtype: set.rtype, ttl: set.ttl, data, known }
    }
}

/// A type bitmap (RFC 4034 §4.1.2).
fn bitmap(types: &[Rtype]) -> Vec<u8> {
    let mut bitmap = RtypeBitmap::<Vec<u8>>::builder();
    for rtype in types {
        bitmap.add(*rtype).expect("memory has room");
    }
    bitmap.finalize().as_slice().to_vec()
}

/// Adds the NSEC records of names in canonical order: of all that have records, and are not below a delegation or a DNAME
/// (RFC 4035 §2.3).
fn add_nsec(owned: &mut [Owned], ttl: u32) {
    let mut chained: Vec<&mut Owned> = owned.iter_mut().filter(|owned| !owned.types.is_empty()).collect();
    let mut next: Vec<Vec<u8>> = chained.iter().map(|owned| owned.name.wire().to_vec()).collect();
    next.rotate_left(1);
    for (owned, next) in chained.iter_mut().zip(next) {
        let types = [&owned.types[..], &[Rtype::NSEC, Rtype::RRSIG]].concat();
        let data = [next, bitmap(&types)].concat();
        rrset::write(Rtype::NSEC, ttl, &[&data], &mut owned.sets);
    }
}

/// The data of an SOA record under another serial number.
pub(super) fn with_serial(data: &[u8], serial: u32) -> Vec<u8> {
    let (names, numbers) = data.split_at(data.len() - super::SOA_NUMBERS);
    [names, &serial.to_be_bytes(), &numbers[4..]].concat()
}
