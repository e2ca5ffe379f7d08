//! A zone as it is served: its names with their RRsets, ready to be written into answers.
//!
//! Names that have no records but lie above some that have (empty non-terminals) are in the table too, so
//! that the closest encloser of any name is found by walking down from the apex until a name is missing.
//!
//! In reading order:
//! - here: the zone, and the walk to one of its names; `rrset`: what a name holds.
//! - `zones`: several zones, and which of them a name belongs to; `views`: which of all are answered from where.
//! - `denial`: how a zone proves what is not there, by the chain of `nsec` or `nsec3`.
//! - [`read`]: a master file's records, with the `forms` of their data; `text`: the way back.
//! - `build`: a zone out of records, equal ones (`canonical`) once; `links`: what is found and composed then.
//! - `signed`: a zone with the keys, the chain and the signatures of one that is signed here.
//! - `tree`: names that come and go, and those above them with them; `steering`: policies at names.
//! - `history`: what changed from one version to the next, for secondaries; `changed`: a zone after what a primary changed;
//!   `updated`: what a client changes of one; `renewed`: the zone after that, which shares all else.

mod build;
mod canonical;
mod changed;
mod denial;
mod forms;
mod history;
mod links;
mod nsec;
mod nsec3;
pub mod read;
mod renewed;
mod rrset;
mod signed;
mod steering;
mod text;
mod tree;
mod updated;
mod views;
mod zones;

use std::sync::Arc;

use dns::{Folded, Fragment, Rtype};

pub use crate::names::Cursor;
use crate::names::{Entry, NameHash, NameTable, Value};
pub use denial::Proof;
pub(crate) use forms::hex;
use history::History;
pub use history::{Changed, Difference};
use links::Links;
pub use renewed::Renewal;
pub use rrset::Rrset;
pub(crate) use signed::{Additions, ToSign};
pub use steering::Hindrance;
pub(crate) use text::push_record;
pub use updated::{Operation, Prerequisite, Update};
#[cfg(test)]
pub(crate) use views::tests::check_in_step;
pub use views::{ADDRESSES_MAX, NAMED_MAX, Served, VIEWS_MAX, View};
pub use zones::Zones;

/// The label of a wildcard, with its length octet.
pub(crate) const WILDCARD: &[u8; 2] = b"\x01*";

/// What the data of an SOA record ends with, its serial number in front, in octets (RFC 1035 §3.3.13).
const SOA_NUMBERS: usize = 20;

/// A zone of one origin. Copies share all that neither of them changes.
#[derive(Clone)]
pub struct Zone {
    origin: Folded,
    origin_hash: u64,
    names: NameTable<Node>,
    records: usize,
    /// How many names have a policy.
    steered: usize,
    /// When the first of its signatures expires.
    signed_until: Option<u32>,
    /// What signing it here added to its serial number; `None` where it was not signed here.
    serial_added: Option<u32>,
    /// Whether its primary has not confirmed it for so long that it may not be answered from.
    expired: bool,
    /// Whether it is a catalog of zones (RFC 9432), which is not for clients.
    catalog: bool,
    /// Whether its stored text is a record a line, so that those of an owner can be replaced.
    in_lines: bool,
    /// What was found and composed when the zone was built, so that no answer has to.
    links: Arc<Links>,
    /// What changed before; kept where somebody follows.
    history: History,
}

/// A name of a zone.
#[derive(Clone)]
pub struct Node {
    sets: u32,
    sets_length: u32,
    /// How many names lie directly below.
    children: u32,
    /// Whether records, a wildcard's among them, of this kind are here: checked on the way to other names.
    has_ns: bool,
    has_dname: bool,
    has_wildcard: bool,
    /// The policy that decides the addresses here.
    policy: Option<PolicyId>,
    /// Its number in [`Links`]; 0 where it has none.
    link: u32,
}

/// Which policy of a generation; see [`crate::policies::Policies`].
pub type PolicyId = std::num::NonZeroU32;

impl Value for Node {
    fn carry(&mut self, from: &[u8], to: &mut Vec<u8>) {
        let start = to.len() as u32;
        to.extend_from_slice(&from[self.sets as usize..][..self.sets_length as usize]);
        self.sets = start;
    }
}

/// A name that was found, and what it holds.
#[derive(Clone, Copy)]
pub struct Found<'a> {
    node: Entry<'a, Node>,
    is_apex: bool,
}

/// Where a walk down a zone ended.
pub enum Walk<'a> {
    /// At the name itself.
    Name(Found<'a>),
    /// At a delegation, `labels` long, of the name or an ancestor.
    Delegation(Found<'a>, usize),
    /// At a DNAME, `labels` long, of an ancestor.
    Dname(Found<'a>, usize),
    /// At the closest encloser, `labels` long, of a name that does not exist.
    Missing(Found<'a>, usize),
}

impl Zone {
    /// The zone's name.
    pub fn origin(&self) -> &Folded {
        &self.origin
    }

    /// How many records the zone holds, equal ones counted once.
    pub fn records(&self) -> usize {
        self.records
    }

    /// Whether both are copies of one zone, whatever policies decide in either.
    pub fn has_records_of(&self, other: &Zone) -> bool {
        Arc::ptr_eq(&self.links, &other.links)
    }

    /// Whether policies decide the addresses of some names here.
    pub fn is_steered(&self) -> bool {
        self.steered > 0
    }

    /// The first owner at or behind a place, which is moved to it, and all its RRsets, signatures and NSEC3 among
    /// them; in no order, and empty non-terminals too.
    pub fn owner_at<'z>(
        &'z self,
        cursor: &mut Cursor,
    ) -> Option<(&'z [u8], impl Iterator<Item = Rrset<'z>> + use<'z>)> {
        let (name, sets) = match self.names.at(cursor) {
            Some((name, node)) => (name, Found { node, is_apex: false }.sets()),
            None => self.links.hidden.at(cursor.beyond())?,
        };
        Some((name, Rrset::all(sets).flat_map(|set| [set, set.signatures()])))
    }

    /// The octets that the zone takes in memory.
    pub fn bytes(&self) -> usize {
        self.names.bytes() + self.links.bytes()
    }

    /// The serial number in the SOA record.
    pub fn serial(&self) -> u32 {
        let soa = self.soa().data().next().expect("a zone has one SOA record");
        let numbers = soa.len() - SOA_NUMBERS;
        u32::from_be_bytes(soa[numbers..numbers + 4].try_into().expect("four octets"))
    }

    /// The serial number that it was given: that of its SOA record, but for what signing it here added.
    pub fn serial_given(&self) -> u32 {
        self.serial().wrapping_sub(self.serial_added.unwrap_or_default())
    }

    /// The SOA RRset.
    pub fn soa(&self) -> Rrset<'_> {
        self.apex_found().rrset(Rtype::SOA).expect("a zone without SOA is not built")
    }

    /// The SOA record for negative answers, its TTL lowered to how long the absence may be remembered (RFC 2308
    /// §3).
    #[inline]
    pub fn negative(&self) -> Fragment<'_> {
        self.links.negative()
    }

    /// The referral at a delegation, composed beforehand where addresses belong to it.
    pub fn referral(&self, cut: Found<'_>) -> Option<Fragment<'_>> {
        self.links.referral(cut.node.value.link)
    }

    /// The NS RRset of the apex.
    pub fn ns(&self) -> Rrset<'_> {
        self.apex_found().rrset(Rtype::NS).expect("a zone without NS is not built")
    }

    /// Whether the zone is signed: it has a DNSKEY at its apex.
    pub fn is_signed(&self) -> bool {
        self.keys().is_some()
    }

    /// Whether it was signed here: its text has nothing of what that made.
    pub fn is_signed_here(&self) -> bool {
        self.serial_added.is_some()
    }

    /// Its keys: the DNSKEY set at its apex.
    pub fn keys(&self) -> Option<Rrset<'_>> {
        self.apex_found().rrset(Rtype::DNSKEY)
    }

    /// Why the zone, which is signed, cannot prove all of what is not there; `None` where it can, or is not signed.
    pub fn unproven(&self) -> Option<&'static str> {
        self.links.unproven
    }

    /// When the first of all signatures expires, in seconds since 1970 modulo 2^32 (RFC 4034 §3.1.5); `None` where the
    /// zone has none.
    pub fn signed_until(&self) -> Option<u32> {
        self.signed_until
    }

    /// Whether it may not be answered from, as its primary has not confirmed it for longer than its SOA record allows (RFC
    /// 1034 §4.3.5).
    #[inline]
    pub fn is_expired(&self) -> bool {
        self.expired
    }

    /// Sets whether it may not be answered from.
    pub fn set_expired(&mut self, expired: bool) {
        self.expired = expired;
    }

    /// Whether it is a catalog of zones, of which clients are told no more than the SOA record.
    pub fn is_catalog(&self) -> bool {
        self.catalog
    }

    /// Sets whether it is a catalog of zones.
    pub fn set_catalog(&mut self, catalog: bool) {
        self.catalog = catalog;
    }

    /// Whether its stored text is a record a line, so that those of an owner can be replaced.
    pub fn is_in_lines(&self) -> bool {
        self.in_lines
    }

    /// Sets whether its stored text is a record a line.
    pub fn set_in_lines(&mut self, in_lines: bool) {
        self.in_lines = in_lines;
    }

    /// Whether clients are not, or not simply, answered from it.
    #[inline]
    pub fn is_withheld(&self) -> bool {
        self.expired | self.catalog
    }

    /// Whether others have signed or digested the zone, its serial number with it, so that it can only be served as it
    /// is: it has a DNSKEY or ZONEMD record at its apex (RFC 4035 §2.1, RFC 8976 §2).
    pub fn is_sealed(&self) -> bool {
        let is_signed = self.is_signed() && !self.is_signed_here();
        is_signed || self.apex_found().rrset(Rtype::ZONEMD).is_some()
    }

    /// Walks down from the apex toward a name that is at or below it.
    ///
    /// Delegations and DNAMEs end the walk above what they hide (RFC 1034 §4.3.2 step 3, RFC 6672 §3.2).
    pub fn walk(&self, name: &Folded, hash: &NameHash) -> Walk<'_> {
        let mut at = self.apex_found();
        let mut at_hash = self.origin_hash;
        for depth in self.origin.labels() + 1..=name.labels() {
            if at.is_delegation() {
                return Walk::Delegation(at, depth - 1);
            }
            if at.node.value.has_dname {
                return Walk::Dname(at, depth - 1);
            }
            at_hash = hash.child(at_hash, name.label(depth));
            match self.names.find(at_hash, name.suffix(depth)) {
                Some(node) => at = Found { node, is_apex: false },
                None => return Walk::Missing(at, depth - 1),
            }
        }
        if at.is_delegation() { Walk::Delegation(at, name.labels()) } else { Walk::Name(at) }
    }

    /// The wildcard right below a name's ancestor of `labels` labels, where there is one (RFC 4592 §2.2.1).
    pub fn wildcard(
        &self,
        encloser: Found<'_>,
        name: &Folded,
        labels: usize,
        hash: &NameHash,
    ) -> Option<Found<'_>> {
        if !encloser.node.value.has_wildcard {
            return None;
        }
        let mut wire = [0; dns::name::NAME_MAX + 2];
        let suffix = name.suffix(labels);
        wire[..2].copy_from_slice(WILDCARD);
        wire[2..2 + suffix.len()].copy_from_slice(suffix);
        let parent = hash.of_suffix(name, labels);
        let node = self.names.find(hash.child(parent, WILDCARD), &wire[..2 + suffix.len()])?;
        Some(Found { node, is_apex: false })
    }

    /// A name at or below the apex, as the owner of glue: delegations hide nothing.
    pub fn glue(&self, name: &Folded, hash: &NameHash) -> Option<Found<'_>> {
        if !dns::name::is_within(name.wire(), self.origin.wire()) {
            return None;
        }
        Some(Found { node: self.names.find(hash.of(name), name.wire())?, is_apex: false })
    }

    fn apex(&self) -> Entry<'_, Node> {
        self.names.find(self.origin_hash, self.origin.wire()).expect("the apex is the first name")
    }

    fn apex_found(&self) -> Found<'_> {
        Found { node: self.apex(), is_apex: true }
    }
}

impl Node {
    fn empty() -> Node {
        Node {
            sets: 0,
            sets_length: 0,
            children: 0,
            has_ns: false,
            has_dname: false,
            has_wildcard: false,
            policy: None,
            link: 0,
        }
    }

    /// Writes its RRsets behind what is in its page's arena.
    fn write_sets(&mut self, arena: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        self.sets = u32::try_from(arena.len()).expect("a page's arena stays under 4 GiB");
        write(arena);
        self.sets_length = arena.len() as u32 - self.sets;
        let sets = &arena[self.sets as usize..];
        let has = |rtype| Rrset::all(sets).any(|set| set.rtype == rtype);
        (self.has_ns, self.has_dname) = (has(Rtype::NS), has(Rtype::DNAME));
    }

    fn is_empty(&self) -> bool {
        self.sets_length == 0 && self.children == 0 && self.policy.is_none()
    }
}

impl<'a> Found<'a> {
    /// The policy that decides the addresses here.
    pub fn policy(self) -> Option<PolicyId> {
        self.node.value.policy
    }

    /// The RRsets, in order of their type; signatures are with what they cover.
    ///
    /// Signatures that cover nothing are an RRset of their own, the first.
    pub fn rrsets(self) -> impl Iterator<Item = Rrset<'a>> {
        Rrset::all(self.sets())
    }

    /// The address RRsets.
    pub fn addresses(self) -> impl Iterator<Item = Rrset<'a>> {
        self.rrsets().filter(|set| matches!(set.rtype, Rtype::A | Rtype::AAAA))
    }

    fn sets(self) -> &'a [u8] {
        let value = self.node.value;
        &self.node.arena[value.sets as usize..][..value.sets_length as usize]
    }

    /// The RRset of a type.
    pub fn rrset(self, rtype: Rtype) -> Option<Rrset<'a>> {
        self.rrsets().find(|set| set.rtype == rtype)
    }

    /// Whether the zone's authority ends here: NS records below the apex (RFC 1034 §4.2).
    pub fn is_delegation(self) -> bool {
        self.node.value.has_ns && !self.is_apex
    }
}

#[cfg(test)]
mod tests {
    use api::Faults;

    use super::*;

    /// What the zones of tests begin with.
    pub(super) const HEAD: &str = "$TTL 60\n@ SOA ns hm 7 2 3 4 5\n@ NS ns\n";

    /// The zone `example` of a text.
    pub(super) fn build(text: &str) -> Zone {
        try_build(text).unwrap_or_else(|faults| panic!("{faults:#?}\n{text}"))
    }

    /// As [`build`], or its faults.
    pub(super) fn try_build(text: &str) -> Result<Zone, Vec<String>> {
        let origin = b"\x07example\0";
        let include = |_: &str| Err("nothing is included".to_string());
        let source =
            read::Source { name: "t", text: text.as_bytes(), origin: Some(origin), include: &include };
        let listed = |faults: Faults| faults.faults.iter().map(ToString::to_string).collect::<Vec<_>>();
        let master = read::read(&source).map_err(listed)?;
        Zone::build(&master, "t", &NameHash::new(1)).map_err(listed)
    }

    pub(super) fn name(text: &str) -> Folded {
        Folded::read(&dns::name::from_text(text).unwrap()).unwrap()
    }

    #[test]
    fn a_zone_is_built() {
        let zone = build(&format!("{HEAD}a.b A 192.0.2.1\nA.b 30 A 192.0.2.1\na.b A 192.0.2.2\n*.w TXT x\n"));
        assert_eq!((zone.serial(), zone.records()), (7, 5));
        let hash = NameHash::new(1);
        let Walk::Name(found) = zone.walk(&name("a.B.example"), &hash) else { panic!("a.b exists") };
        let set = found.rrset(Rtype::A).unwrap();
        assert_eq!(
            (set.ttl, set.data().collect::<Vec<_>>()),
            (30, vec![&[192, 0, 2, 1][..], &[192, 0, 2, 2]])
        );
        assert!(
            matches!(zone.walk(&name("b.example"), &hash), Walk::Name(found) if found.rrsets().count() == 0)
        );
        let missing = name("x.y.w.example");
        let Walk::Missing(encloser, 2) = zone.walk(&missing, &hash) else { panic!("w is the encloser") };
        assert!(zone.wildcard(encloser, &missing, 2, &hash).unwrap().rrset(Rtype::TXT).is_some());
    }

    #[test]
    fn a_delegation_ends_the_walk() {
        let zone = build(&format!("{HEAD}sub NS ns.sub\nns.sub A 192.0.2.1\n"));
        let hash = NameHash::new(1);
        for below in ["sub.example", "ns.sub.example", "a.b.sub.example"] {
            assert!(matches!(zone.walk(&name(below), &hash), Walk::Delegation(_, 2)), "{below}");
        }
        assert!(zone.glue(&name("ns.sub.example"), &hash).unwrap().addresses().count() == 1);
    }
}
