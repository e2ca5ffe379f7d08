//! A zone as it is served: its names with their RRsets, ready to be written into answers.
//!
//! Names that have no records but lie above some that have (empty non-terminals) are in the table too, so
//! that the closest encloser of any name is found by walking down from the apex until a name is missing.

mod denial;
mod forms;
mod links;
mod nsec;
mod nsec3;
pub mod read;
mod text;
mod zones;

use std::sync::Arc;

use api::{Fault, Faults};
use dns::{Folded, Fragment, Rtype};

pub use crate::names::Cursor;
use crate::names::{Entry, NameHash, NameTable, Value};
pub use denial::Proof;
use links::Links;
use read::{Master, Record, shown};
pub use zones::Zones;

/// The largest TTL in seconds (RFC 2181 §8).
const TTL_MAX: u32 = i32::MAX as u32;

/// One zone.
#[derive(Clone)]
pub struct Zone {
    origin: Folded,
    origin_hash: u64,
    names: NameTable<Node>,
    records: usize,
    /// How many names have a policy.
    steered: usize,
    /// What was found and composed when the zone was built, so that no answer has to.
    links: Arc<Links>,
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

/// An RRset: the data of its records, each behind its length, and the signatures over it.
#[derive(Clone, Copy, Debug)]
pub struct Rrset<'a> {
    /// The type.
    pub rtype: Rtype,
    /// The TTL in seconds.
    pub ttl: u32,
    data: &'a [u8],
    signatures: &'a [u8],
    signatures_ttl: u32,
}

/// Records that keep a policy from deciding the addresses at a name.
#[derive(Debug)]
pub struct Hindrance {
    /// The name that has them, in folded wire form.
    pub owner: Box<[u8]>,
    /// Their type.
    pub rtype: Rtype,
    /// What is wrong, as in a fault.
    pub what: String,
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
    /// Builds a zone out of the records of a master file.
    ///
    /// A TTL that differs within an RRset is lowered to the least (RFC 2181 §5.2), one over 2^31 - 1 is 0
    /// (§8), and equal records count once (§5).
    ///
    /// # Errors
    /// All that is wrong with the zone as a whole: no SOA or several, no NS at the apex, records outside,
    /// CNAME beside other data, several CNAMEs or DNAMEs at a name, more NSEC3 iterations than
    /// 150.
    pub fn build(master: &Master<'_>, source: &str, hash: &NameHash) -> Result<Zone, Faults> {
        let origin = find_origin(master, source)?;
        let mut faults = Faults::default();
        let owned = owned_names(master, &origin, hash, &mut faults);
        let names = owned.chunk_by(Owned::is_same);
        let mut zone = Zone::empty(origin, names.clone().count(), hash);
        let mut hidden = nsec3::Records::default();
        let mut owner = Folded::root();
        let mut records = Vec::new();
        let (mut at, mut touched) = (0, 0);
        for same in names {
            if at >= touched {
                touched = at + TOUCHED;
                touch(&owned[at..owned.len().min(touched)], master);
            }
            at += same.len();
            records.clear();
            records.extend(same.iter().map(|owned| &master.records[owned.record as usize]));
            let is_name = owner.set(master.owner(records[0]));
            assert!(is_name, "names of a master file are valid");
            let sets = grouped(&records, master);
            check_together(owner.wire(), &sets, master, &mut faults);
            zone.records += sets.iter().map(|set| set.data.len()).sum::<usize>();
            let sets = hidden.take(owner.wire(), sets);
            if !sets.is_empty() {
                zone.add_name(&owner, &sets, hash);
            }
        }
        if !zone.apex().value.has_ns {
            faults.push(Fault::whole(
                source,
                format!("the zone {} has no NS record at its apex", shown(zone.origin.wire())),
                "the zone's name servers (RFC 1035 §5.2)",
            ));
        }
        nsec3::check(master, &mut faults);
        sort_by_place(&mut faults);
        let mut zone = faults.or(zone)?;
        zone.make_links(hidden, hash);
        zone.names.shrink();
        Ok(zone)
    }

    /// The zone's name.
    pub fn origin(&self) -> &Folded {
        &self.origin
    }

    /// How many records the zone holds, equal ones counted once.
    pub fn records(&self) -> usize {
        self.records
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
        let numbers = soa.len() - 20;
        u32::from_be_bytes(soa[numbers..numbers + 4].try_into().expect("four octets"))
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
        self.apex_found().rrset(Rtype::DNSKEY).is_some()
    }

    /// Whether others have signed or digested the zone, its serial number with it, so that it can only be served as it
    /// is: it has a DNSKEY or ZONEMD record at its apex (RFC 4035 §2.1, RFC 8976 §2).
    pub fn is_sealed(&self) -> bool {
        self.is_signed() || self.apex_found().rrset(Rtype::ZONEMD).is_some()
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

    /// Whether a policy may decide the addresses at a name.
    ///
    /// It needs our authority (no delegation or DNAME above, none at it), no CNAME beside it, and a zone that is
    /// not signed: a drawn answer has no signature.
    ///
    /// # Errors
    /// What is in its way.
    pub fn may_steer(&self, name: &Folded, hash: &NameHash) -> Result<(), Hindrance> {
        let (shown, origin) = (shown(name.wire()), shown(self.origin.wire()));
        let hindered = |owner: &[u8], rtype, what| Err(Hindrance { owner: owner.into(), rtype, what });
        if self.is_signed() {
            let what = format!("{shown} is in the signed zone {origin}");
            return hindered(self.origin.wire(), Rtype::DNSKEY, what);
        }
        match self.walk(name, hash) {
            Walk::Delegation(_, labels) => {
                let what = format!("{shown} is at or below a delegation in {origin}");
                hindered(name.suffix(labels), Rtype::NS, what)
            }
            Walk::Dname(_, labels) => {
                let what = format!("{shown} is below a DNAME record in {origin}");
                hindered(name.suffix(labels), Rtype::DNAME, what)
            }
            Walk::Name(found) if found.rrset(Rtype::CNAME).is_some() => {
                hindered(name.wire(), Rtype::CNAME, format!("{shown} has a CNAME record"))
            }
            Walk::Name(_) | Walk::Missing(_, _) => Ok(()),
        }
    }

    /// The policy at exactly this name.
    pub fn policy_at(&self, name: &Folded, hash: &NameHash) -> Option<PolicyId> {
        self.names.find(hash.of(name), name.wire())?.value.policy
    }

    /// Sets or takes away the policy at a name at or below the apex; the name comes and goes with it where it
    /// has nothing else.
    pub fn set_policy(&mut self, name: &Folded, policy: Option<PolicyId>, hash: &NameHash) {
        if policy.is_some() {
            self.ensure(name, hash);
        }
        let change = |node: &mut Node, _: &mut Vec<u8>| std::mem::replace(&mut node.policy, policy).is_some();
        if let Some(was_steered) = self.names.change(hash.of(name), name.wire(), change) {
            self.steered = self.steered + usize::from(policy.is_some()) - usize::from(was_steered);
        }
        if policy.is_none() {
            self.prune(name, hash);
        }
    }

    /// Removes a name that has become empty, and the empty non-terminals above that it held.
    fn prune(&mut self, name: &Folded, hash: &NameHash) {
        for depth in (self.origin.labels() + 1..=name.labels()).rev() {
            let at = hash.of_suffix(name, depth);
            let is_empty = self.names.find(at, name.suffix(depth)).is_some_and(|node| node.value.is_empty());
            if !is_empty {
                return;
            }
            self.names.remove(at, name.suffix(depth));
            let was_wildcard = name.label(depth) == WILDCARD;
            self.names.change(hash.of_suffix(name, depth - 1), name.suffix(depth - 1), |node, _| {
                node.children -= 1;
                node.has_wildcard &= !was_wildcard;
            });
        }
    }

    fn empty(origin: Folded, names: usize, hash: &NameHash) -> Zone {
        let origin_hash = hash.of(&origin);
        let names = NameTable::new(names);
        let mut zone = Zone { origin_hash, names, records: 0, steered: 0, links: Arc::default(), origin };
        zone.names.insert(origin_hash, zone.origin.wire(), Node::empty());
        zone
    }

    fn apex(&self) -> Entry<'_, Node> {
        self.names.find(self.origin_hash, self.origin.wire()).expect("the apex is the first name")
    }

    fn apex_found(&self) -> Found<'_> {
        Found { node: self.apex(), is_apex: true }
    }

    /// Adds a name with its records, and the empty non-terminals above it.
    fn add_name(&mut self, name: &Folded, sets: &[Set<'_>], hash: &NameHash) {
        self.ensure(name, hash);
        let has = |rtype| sets.iter().any(|set| set.rtype == rtype);
        let (has_ns, has_dname) = (has(Rtype::NS), has(Rtype::DNAME));
        self.names.change(hash.of(name), name.wire(), |node, arena| {
            node.sets = u32::try_from(arena.len()).expect("a page's arena stays under 4 GiB");
            for set in sets {
                set.write(arena);
            }
            node.sets_length = arena.len() as u32 - node.sets;
            (node.has_ns, node.has_dname) = (has_ns, has_dname);
        });
    }

    /// Makes sure that a name and all above it, up to the apex, are in the table.
    fn ensure(&mut self, name: &Folded, hash: &NameHash) {
        let mut at = self.origin_hash;
        for depth in self.origin.labels() + 1..=name.labels() {
            let parent = at;
            at = hash.child(parent, name.label(depth));
            if self.names.find(at, name.suffix(depth)).is_none() {
                self.names.insert(at, name.suffix(depth), Node::empty());
                let is_wildcard = name.label(depth) == WILDCARD;
                self.names.change(parent, name.suffix(depth - 1), |node, _| {
                    node.children += 1;
                    node.has_wildcard |= is_wildcard;
                });
            }
        }
    }
}

/// The label of a wildcard, with its length octet.
const WILDCARD: &[u8; 2] = b"\x01*";

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

impl<'a> Rrset<'a> {
    /// The data of each record in wire form, names uncompressed.
    pub fn data(self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.data;
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk::<2>()?;
            let (data, behind) = behind.split_at(usize::from(u16::from_be_bytes(*length)));
            rest = behind;
            Some(data)
        })
    }

    /// The signatures over it, an RRset of their own that may be empty.
    pub fn signatures(self) -> Rrset<'a> {
        Rrset {
            rtype: Rtype::RRSIG,
            ttl: self.signatures_ttl,
            data: self.signatures,
            signatures: &[],
            signatures_ttl: 0,
        }
    }

    /// Whether there are signatures over it.
    pub fn is_signed(self) -> bool {
        !self.signatures.is_empty()
    }

    /// The RRset, and its signatures with it, with no larger TTL than this.
    pub fn with_ttl_at_most(self, ttl: u32) -> Rrset<'a> {
        Rrset { ttl: self.ttl.min(ttl), signatures_ttl: self.signatures_ttl.min(ttl), ..self }
    }

    /// The RRsets of one name.
    fn all(mut octets: &'a [u8]) -> impl Iterator<Item = Rrset<'a>> {
        std::iter::from_fn(move || {
            let (mut set, mut rest) = Rrset::read(octets)?;
            if set.rtype != Rtype::RRSIG && rest.starts_with(&Rtype::RRSIG.to_int().to_be_bytes()) {
                let (signatures, behind) = Rrset::read(rest)?;
                (set.signatures, set.signatures_ttl) = (signatures.data, signatures.ttl);
                rest = behind;
            }
            octets = rest;
            Some(set)
        })
    }

    /// The RRset at the front of a name's: type, TTL and length, then the data of each record behind its length.
    fn read(octets: &'a [u8]) -> Option<(Rrset<'a>, &'a [u8])> {
        let (head, rest) = octets.split_first_chunk::<10>()?;
        let rtype = Rtype::from_int(u16::from_be_bytes([head[0], head[1]]));
        let ttl = u32::from_be_bytes([head[2], head[3], head[4], head[5]]);
        let length = u32::from_be_bytes([head[6], head[7], head[8], head[9]]) as usize;
        let (data, rest) = rest.split_at(length);
        Some((Rrset { rtype, ttl, data, signatures: &[], signatures_ttl: 0 }, rest))
    }
}

/// The lower of the SOA record's TTL and its MINIMUM.
fn negative_ttl(soa: Rrset<'_>) -> u32 {
    let minimum = soa.data().next().and_then(|data| data.last_chunk::<4>());
    soa.ttl.min(minimum.map_or(0, |octets| u32::from_be_bytes(*octets)))
}

/// The records of one type at one name, while a zone is built.
struct Set<'a> {
    rtype: Rtype,
    ttl: u32,
    first: &'a Record,
    data: Vec<&'a [u8]>,
}

impl Set<'_> {
    fn write(&self, arena: &mut Vec<u8>) {
        let length: usize = self.data.iter().map(|data| 2 + data.len()).sum();
        arena.extend_from_slice(&self.rtype.to_int().to_be_bytes());
        arena.extend_from_slice(&self.ttl.to_be_bytes());
        arena.extend_from_slice(&(length as u32).to_be_bytes());
        for data in &self.data {
            arena.extend_from_slice(&(data.len() as u16).to_be_bytes());
            arena.extend_from_slice(data);
        }
    }
}

/// Whose a record is, while a zone is built.
struct Owned<'a> {
    /// The place of its name in the order of the table's pages.
    order: u64,
    /// Its name as written.
    name: &'a [u8],
    /// Its number in the master file.
    record: u32,
}

impl Owned<'_> {
    fn is_same(&self, other: &Self) -> bool {
        self.order == other.order && self.name.eq_ignore_ascii_case(other.name)
    }
}

/// The records within the zone, those of a name together, in the order of the master file; what is outside is a fault.
///
/// Names come in the order of the pages that they will be in, so that a page is filled while it is in the
/// processor's cache.
fn owned_names<'a>(
    master: &'a Master<'_>,
    origin: &Folded,
    hash: &NameHash,
    faults: &mut Faults,
) -> Vec<Owned<'a>> {
    let mut owned: Vec<Owned<'a>> = Vec::with_capacity(master.records.len());
    let mut name = Folded::root();
    for (number, record) in master.records.iter().enumerate() {
        let wire = master.owner(record);
        let order = match owned.last() {
            Some(last) if last.name == wire => last.order,
            _ if name.set(wire) && dns::name::is_within(name.wire(), origin.wire()) => {
                NameTable::<Node>::page_order(hash.of(&name))
            }
            _ => {
                let what = format!("{} is outside the zone", shown(name.wire()));
                let expected = format!("names at or below {}", shown(origin.wire()));
                faults.push(master.fault(record, what, expected));
                continue;
            }
        };
        owned.push(Owned { order, name: wire, record: number as u32 });
    }
    let folded = |name: &'a [u8]| name.iter().map(u8::to_ascii_lowercase);
    owned.sort_unstable_by(|a, b| {
        let names = || folded(a.name).cmp(folded(b.name));
        a.order.cmp(&b.order).then_with(names).then(a.record.cmp(&b.record))
    });
    owned
}

/// How many records are looked at together: more than the processor can wait for at once, and few enough to stay
/// in its first cache.
const TOUCHED: usize = 64;

/// Looks at records that are about to be read. In the order of the pages, each is somewhere else in memory; here
/// nothing depends on the one before, so that the processor waits for many at a time.
fn touch(owned: &[Owned<'_>], master: &Master<'_>) {
    for owned in owned {
        std::hint::black_box(master.rdata(&master.records[owned.record as usize]).first());
    }
}

/// The records of a name as RRsets, in order of their type, each with the signatures that cover it behind it;
/// signatures that cover nothing come first.
fn grouped<'a>(records: &[&'a Record], master: &'a Master<'_>) -> Vec<Set<'a>> {
    let has = |rtype| records.iter().any(|record| record.rtype == rtype);
    let mut sets: Vec<((u16, bool), Set<'a>)> = Vec::new();
    for &record in records {
        let ttl = if record.ttl > TTL_MAX { 0 } else { record.ttl };
        let data = master.rdata(record);
        let place = match covered(record.rtype, data) {
            // Signatures are not signed (RFC 4035 §2.2).
            Some(covered) if covered != Rtype::RRSIG && has(covered) => (covered.to_int(), true),
            Some(_) => (0, true),
            None => (record.rtype.to_int(), false),
        };
        match sets.iter_mut().find(|(there, _)| *there == place) {
            Some((_, set)) => {
                set.ttl = set.ttl.min(ttl);
                set.data.push(data);
            }
            None => sets.push((place, Set { rtype: record.rtype, ttl, first: record, data: vec![data] })),
        }
    }
    sets.sort_by_key(|(place, _)| *place);
    let mut sets: Vec<Set<'a>> = sets.into_iter().map(|(_, set)| set).collect();
    for set in &mut sets {
        remove_equal(&mut set.data);
    }
    sets
}

/// The type that a signature covers (RFC 4034 §3.1.1).
fn covered(rtype: Rtype, data: &[u8]) -> Option<Rtype> {
    let covered = data.first_chunk().filter(|_| rtype == Rtype::RRSIG)?;
    Some(Rtype::from_int(u16::from_be_bytes(*covered)))
}

/// Keeps the first of equal data, in order.
fn remove_equal(data: &mut Vec<&[u8]>) {
    if data.len() < 2 {
        return;
    }
    let mut seen = std::collections::HashSet::new();
    data.retain(|octets| seen.insert(*octets));
}

/// What may not stand together at one name.
fn check_together(owner: &[u8], sets: &[Set<'_>], master: &Master<'_>, faults: &mut Faults) {
    for set in sets {
        let alone = match set.rtype {
            Rtype::CNAME => "a CNAME record",
            Rtype::DNAME => "a DNAME record",
            Rtype::SOA => "a SOA record",
            _ => continue,
        };
        if set.data.len() > 1 {
            faults.push(master.fault(
                set.first,
                format!("{} has more than one {alone}", shown(owner)),
                "one",
            ));
        }
    }
    let signature = |rtype| matches!(rtype, Rtype::RRSIG | Rtype::NSEC | Rtype::KEY);
    if let Some(cname) = sets.iter().find(|set| set.rtype == Rtype::CNAME)
        && let Some(other) = sets.iter().find(|set| set.rtype != Rtype::CNAME && !signature(set.rtype))
    {
        faults.push(master.fault(
            cname.first,
            format!("{} has a CNAME record and other data ({})", shown(owner), other.rtype),
            "nothing beside CNAME (RFC 1034 §3.6.2)",
        ));
    }
}

/// The owner of the zone's one SOA record.
fn find_origin(master: &Master<'_>, source: &str) -> Result<Folded, Faults> {
    let mut soas = master.records.iter().filter(|record| record.rtype == Rtype::SOA);
    let Some(first) = soas.next() else {
        return Err(Fault::whole(source, "the zone has no SOA record", "one, at the zone's apex").into());
    };
    let owner = master.owner(first).to_ascii_lowercase();
    let mut faults = Faults::default();
    for other in soas {
        if !master.owner(other).eq_ignore_ascii_case(&owner) {
            let what = format!("a second SOA record, of {}", shown(master.owner(other)));
            faults.push(master.fault(other, what, "one zone in a file"));
        }
    }
    faults.or(Folded::read(&owner).expect("names of a master file are valid"))
}

/// Names are gone through in no order; people read a file from its top.
fn sort_by_place(faults: &mut Faults) {
    faults.faults.sort_by(|a, b| (&a.source, a.line, a.column).cmp(&(&b.source, b.line, b.column)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(text: &str) -> Result<Zone, Vec<String>> {
        let origin = b"\x07example\0";
        let include = |_: &str| Err("nothing is included".to_string());
        let source =
            read::Source { name: "t", text: text.as_bytes(), origin: Some(origin), include: &include };
        let listed = |faults: Faults| faults.faults.iter().map(ToString::to_string).collect::<Vec<_>>();
        let master = read::read(&source).map_err(listed)?;
        Zone::build(&master, "t", &NameHash::new(1)).map_err(listed)
    }

    const HEAD: &str = "$TTL 60\n@ SOA ns hm 7 2 3 4 5\n@ NS ns\n";

    #[test]
    fn a_zone_is_built() {
        let zone = build(&format!("{HEAD}a.b A 192.0.2.1\nA.b 30 A 192.0.2.1\na.b A 192.0.2.2\n*.w TXT x\n"))
            .unwrap();
        assert_eq!((zone.serial(), zone.records()), (7, 5));
        let hash = NameHash::new(1);
        let name = |text: &str| Folded::read(&dns::name::from_text(text).unwrap()).unwrap();
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
        let zone = build(&format!("{HEAD}sub NS ns.sub\nns.sub A 192.0.2.1\n")).unwrap();
        let hash = NameHash::new(1);
        let name = |text: &str| Folded::read(&dns::name::from_text(text).unwrap()).unwrap();
        for below in ["sub.example", "ns.sub.example", "a.b.sub.example"] {
            assert!(matches!(zone.walk(&name(below), &hash), Walk::Delegation(_, 2)), "{below}");
        }
        assert!(zone.glue(&name("ns.sub.example"), &hash).unwrap().addresses().count() == 1);
    }

    #[test]
    fn a_policys_name_comes_and_goes_with_it() {
        let mut zone = build(&format!("{HEAD}c CNAME ns\nsub NS ns\nd DNAME x\n")).unwrap();
        let hash = NameHash::new(1);
        let name = |text: &str| Folded::read(&dns::name::from_text(text).unwrap()).unwrap();
        for (bad, why) in [
            ("c.example", "CNAME"),
            ("sub.example", "delegation"),
            ("a.sub.example", "delegation"),
            ("a.d.example", "DNAME"),
        ] {
            assert!(zone.may_steer(&name(bad), &hash).unwrap_err().what.contains(why), "{bad}");
        }
        let before = zone.to_text();
        let (deep, wild) = (name("a.b.ns.example"), name("*.w.example"));
        for steered in [&deep, &wild] {
            zone.may_steer(steered, &hash).unwrap();
            zone.set_policy(steered, PolicyId::new(9), &hash);
            assert_eq!(zone.policy_at(steered, &hash), PolicyId::new(9));
        }
        assert!(matches!(zone.walk(&name("b.ns.example"), &hash), Walk::Name(_)), "an empty non-terminal");
        let under = name("x.w.example");
        let Walk::Missing(encloser, labels) = zone.walk(&under, &hash) else { panic!("x.w is missing") };
        assert!(zone.wildcard(encloser, &under, labels, &hash).unwrap().policy().is_some());
        for steered in [&deep, &wild] {
            zone.set_policy(steered, None, &hash);
        }
        assert_eq!(
            zone.names.len(),
            build(&format!("{HEAD}c CNAME ns\nsub NS ns\nd DNAME x\n")).unwrap().names.len()
        );
        assert_eq!(zone.to_text(), before);
    }

    #[test]
    fn text_reads_back_to_the_same_zone() {
        let zone = build(&format!(
            "{HEAD}b.a A 192.0.2.1\n*.w TXT \"a b\" \"\\200;\\\"\"\nx\\.y MX 10 ns\n_s._tcp SRV 1 2 53 ns\n\
             c CAA 0 issue \"ca.example\"\nh HTTPS 1 . alpn=h2 ipv4hint=192.0.2.1\nu TYPE65000 \\# 3 010203\n\
             d DS 1 8 2 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\nn NAPTR 1 2 u E2U !x! .\n"
        ))
        .unwrap();
        let text = zone.to_text();
        assert!(text.starts_with("example. 60 IN SOA ns.example. hm.example. 7 2 3 4 5\n"), "{text}");
        assert_eq!(build(&text).map(|zone| (zone.records(), zone.to_text())), Ok((zone.records(), text)));
    }

    #[test]
    fn signatures_stand_with_what_they_cover() {
        let signature = |owner, ttl, covered| {
            format!("{owner} {ttl} RRSIG {covered} 13 2 60 20300101000000 20200101000000 1 example. AAAA\n")
        };
        let zone = build(&format!(
            "{HEAD}a TXT t\na A 192.0.2.1\n{}{}{}{}@ NSEC3PARAM 1 0 0 -\n\
             0000000000000000000000000000000a NSEC3 1 0 0 - 0000000000000000000000000000000b A\n{}",
            signature("a", 60, "A"),
            signature("a", 30, "MX"),
            signature("a", 20, "RRSIG"),
            signature("a", 50, "TXT"),
            signature("0000000000000000000000000000000a", 60, "NSEC3"),
        ))
        .unwrap();
        let hash = NameHash::new(1);
        let name = |text: &str| Folded::read(&dns::name::from_text(text).unwrap()).unwrap();
        let Walk::Name(found) = zone.walk(&name("a.example"), &hash) else { panic!("a exists") };
        let rows: Vec<_> = found.rrsets().map(|set| (set.rtype, set.signatures().data().count())).collect();
        assert_eq!(rows, [(Rtype::RRSIG, 0), (Rtype::A, 1), (Rtype::TXT, 1)]);
        assert_eq!(found.rrset(Rtype::TXT).unwrap().signatures().ttl, 50);
        let hidden = name("0000000000000000000000000000000a.example");
        assert!(matches!(zone.walk(&hidden, &hash), Walk::Missing(_, 1)));
        let text = zone.to_text();
        assert_eq!(text.lines().count(), zone.records());
        assert_eq!(build(&text).map(|zone| (zone.records(), zone.to_text())), Ok((zone.records(), text)));
    }

    #[test]
    fn what_is_wrong_with_a_zone_is_listed() {
        let listed = build(&format!(
            "{HEAD}c CNAME d\nc A 192.0.2.1\nout.other. A 192.0.2.1\nd CNAME a\nd CNAME b\nx.example. SOA a b 1 1 1 1 1\n"
        ))
        .err()
        .unwrap();
        assert!(listed[0].starts_with("t:9:1: a second SOA record, of x.example."), "{listed:#?}");
        let listed = build(&format!(
            "{HEAD}c CNAME d\n\nc A 192.0.2.1\nout.other. A 192.0.2.1\nd CNAME a\nd CNAME b\n"
        ))
        .err()
        .unwrap();
        let starts = [
            "t:4:1: c.example. has a CNAME",
            "t:7:1: out.other. is outside",
            "t:8:1: d.example. has more than one",
        ];
        assert_eq!(listed.len(), starts.len(), "{listed:#?}");
        for (line, start) in listed.iter().zip(starts) {
            assert!(line.starts_with(start), "{line}");
        }
        let listed = build(&format!("{HEAD}@ NSEC3PARAM 1 0 151 -\n")).err().unwrap();
        assert!(listed[0].starts_with("t:4:1: 151 additional iterations"), "{listed:#?}");
        assert!(build(&format!("{HEAD}@ NSEC3PARAM 1 0 150 -\n")).is_ok());
        assert!(build("@ 60 NS a\n").err().unwrap()[0].contains("no SOA"));
        assert!(build("@ 60 SOA a b 1 1 1 1 1\n").err().unwrap()[0].contains("no NS"));
    }
}
