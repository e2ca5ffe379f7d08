//! A zone out of the records of a master file.

use std::cell::LazyCell;
use std::collections::HashSet;
use std::sync::Arc;

use api::policy::TTL_MAX;
use api::{Fault, Faults};
use dns::{Folded, Rtype};

use super::canonical::canonical;
use super::read::{Master, Record, shown};
use super::{History, Node, Zone, nsec3, rrset};
use crate::names::{NameHash, NameTable};

impl Zone {
    /// Builds a zone out of the records of a master file.
    ///
    /// A TTL that differs within an RRset is lowered to the least (RFC 2181 §5.2), one over 2^31 - 1 is 0
    /// (§8), and equal records count once (§5).
    ///
    /// # Errors
    /// All that is wrong with the zone as a whole: no SOA or several, no NS at the apex, records outside,
    /// CNAME beside other data, several CNAMEs or DNAMEs at a name, more NSEC3 iterations than 150. A signed zone without
    /// a whole chain of NSEC or NSEC3 records is served, and a warning logged.
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
            let sets = hide(owner.wire(), sets, &mut hidden);
            if !sets.is_empty() {
                zone.add_name(&owner, |arena| sets.iter().for_each(|set| set.write(arena)), hash);
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
        zone.signed_until = master.records.iter().filter_map(|record| expiration(record, master)).min();
        zone.make_links(hidden, hash);
        if let Some(what) = zone.unproven() {
            let zone = zone.origin();
            tracing::warn!(
                ?zone,
                what,
                "validators will not believe this signed zone about what it does not have"
            );
        }
        zone.names.shrink();
        Ok(zone)
    }

    /// A zone that has nothing yet.
    pub(super) fn empty(origin: Folded, names: usize, hash: &NameHash) -> Zone {
        let origin_hash = hash.of(&origin);
        let names = NameTable::new(names);
        let links = Arc::default();
        let mut zone = Zone {
            origin_hash,
            names,
            records: 0,
            steered: 0,
            signed_until: None,
            serial_added: None,
            expired: false,
            catalog: false,
            in_lines: true,
            links,
            history: History::default(),
            origin,
        };
        zone.names.insert(origin_hash, zone.origin.wire(), Node::empty());
        zone
    }

    /// Adds a name with its records, which are written as its sets, and the empty non-terminals above it.
    pub(super) fn add_name(&mut self, name: &Folded, write: impl FnOnce(&mut Vec<u8>), hash: &NameHash) {
        self.ensure(name, hash);
        self.names.change(hash.of(name), name.wire(), |node, arena| node.write_sets(arena, write));
    }
}

/// The records of one type at one name, while a zone is built.
struct Set<'a> {
    rtype: Rtype,
    ttl: u32,
    first: &'a Record,
    data: Vec<&'a [u8]>,
}

/// The most RRsets of a name, those of signatures among them: a query looks through them one by one.
pub(super) const RRSETS_MAX: usize = 1_000;

impl Set<'_> {
    fn write(&self, arena: &mut Vec<u8>) {
        rrset::write(self.rtype, self.ttl, &self.data, arena);
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
                faults.push_with(|| {
                    let what = format!("{} is outside the zone", shown(name.wire()));
                    let expected = format!("names at or below {}", shown(origin.wire()));
                    master.fault(record, what, expected)
                });
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
    // Most names have no signatures, and need it not.
    let present = LazyCell::new(|| records.iter().map(|record| record.rtype).collect::<HashSet<Rtype>>());
    let mut placed: Vec<((u16, bool), &'a Record)> = records
        .iter()
        .map(|&record| {
            let place = match covered(record.rtype, master.rdata(record)) {
                // Signatures are not signed (RFC 4035 §2.2).
                Some(covered) if covered != Rtype::RRSIG && present.contains(&covered) => {
                    (covered.to_int(), true)
                }
                Some(_) => (0, true),
                None => (record.rtype.to_int(), false),
            };
            (place, record)
        })
        .collect();
    placed.sort_by_key(|(place, _)| *place);
    let set = |same: &[((u16, bool), &'a Record)]| {
        let ttl = |record: &Record| if record.ttl > TTL_MAX { 0 } else { record.ttl };
        let first = same[0].1;
        Set {
            rtype: first.rtype,
            ttl: same.iter().map(|(_, record)| ttl(record)).min().unwrap_or_default(),
            first,
            data: same.iter().map(|(_, record)| master.rdata(record)).collect(),
        }
    };
    let mut sets: Vec<Set<'a>> = placed.chunk_by(|a, b| a.0 == b.0).map(set).collect();
    for set in &mut sets {
        remove_equal(set.rtype, &mut set.data);
    }
    sets
}

/// Takes the NSEC3 RRset, with its signatures, out of a name's sets; returns the rest.
fn hide<'a>(owner: &[u8], mut sets: Vec<Set<'a>>, hidden: &mut nsec3::Records) -> Vec<Set<'a>> {
    let Some(at) = sets.iter().position(|set| set.rtype == Rtype::NSEC3) else { return sets };
    let is_signed = sets.get(at + 1).is_some_and(|set| set.rtype == Rtype::RRSIG);
    hidden.add(owner, |octets| {
        for set in sets.drain(at..at + 1 + usize::from(is_signed)) {
            set.write(octets);
        }
    });
    sets
}

/// The type that a signature covers (RFC 4034 §3.1.1).
fn covered(rtype: Rtype, data: &[u8]) -> Option<Rtype> {
    let covered = data.first_chunk().filter(|_| rtype == Rtype::RRSIG)?;
    Some(Rtype::from_int(u16::from_be_bytes(*covered)))
}

/// When a signature expires (RFC 4034 §3.1.5).
fn expiration(record: &Record, master: &Master<'_>) -> Option<u32> {
    let data = (record.rtype == Rtype::RRSIG).then(|| master.rdata(record))?;
    Some(u32::from_be_bytes(*data.get(8..)?.first_chunk()?))
}

/// Keeps the first of equal data, in order; the case of a name in it makes no difference (RFC 4034 §6.2).
fn remove_equal(rtype: Rtype, data: &mut Vec<&[u8]>) {
    if data.len() < 2 {
        return;
    }
    let mut seen = HashSet::new();
    data.retain(|octets| seen.insert(canonical(rtype, octets)));
}

/// What may not stand together at one name.
fn check_together(owner: &[u8], sets: &[Set<'_>], master: &Master<'_>, faults: &mut Faults) {
    if let Some(beyond) = sets.get(RRSETS_MAX) {
        let what = || format!("{} has {} RRsets", shown(owner), sets.len());
        faults.push_with(|| master.fault(beyond.first, what(), format!("at most {RRSETS_MAX}")));
    }
    for set in sets {
        let alone = match set.rtype {
            Rtype::CNAME => "a CNAME record",
            Rtype::DNAME => "a DNAME record",
            Rtype::SOA => "a SOA record",
            _ => continue,
        };
        if set.data.len() > 1 {
            let what = || format!("{} has more than one {alone}", shown(owner));
            faults.push_with(|| master.fault(set.first, what(), "one"));
        }
    }
    let signature = |rtype| matches!(rtype, Rtype::RRSIG | Rtype::NSEC | Rtype::KEY);
    if let Some(cname) = sets.iter().find(|set| set.rtype == Rtype::CNAME)
        && let Some(other) = sets.iter().find(|set| set.rtype != Rtype::CNAME && !signature(set.rtype))
    {
        let what = || format!("{} has a CNAME record and other data ({})", shown(owner), other.rtype);
        let expected = "nothing beside CNAME (RFC 1034 §3.6.2)";
        faults.push_with(|| master.fault(cname.first, what(), expected));
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
            let what = || format!("a second SOA record, of {}", shown(master.owner(other)));
            faults.push_with(|| master.fault(other, what(), "one zone in a file"));
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
    use super::super::Walk;
    use super::super::tests::{HEAD, build, name, try_build};
    use super::*;

    #[test]
    fn what_a_signed_zone_cannot_prove_is_told() {
        let signed = format!("{HEAD}@ DNSKEY 257 3 13 AAAA\n");
        let apex = "3msev9usmd4br9s97v51r2tdvmr9iqo1";
        let other = "2vptu5timamqttgl4luu9kg21e0aor3s";
        let nsec3 = |owner: &str, next: &str| format!("{owner} NSEC3 1 0 0 - {next} NS SOA\n");
        let parameters = "@ NSEC3PARAM 1 0 0 -\n";
        let (missing, broken) = ("the apex has no NSEC record", "a record of the chain");
        for (chain, expected) in [
            (String::new(), Some(missing)),
            ("a NSEC example. A\n".into(), Some(missing)),
            ("@ NSEC A.example. A\na NSEC example. A\n".into(), None),
            ("@ NSEC b.example. A\na NSEC example. A\n".into(), Some(broken)),
            ("@ NSEC a.example. A\na NSEC b.example. A\n".into(), Some(broken)),
            (nsec3(apex, apex), Some(missing)),
            (nsec3(apex, apex) + parameters, None),
            (nsec3(apex, apex) + "@ NSEC3PARAM 1 1 0 -\n", Some(missing)),
            (nsec3(apex, apex) + "@ NSEC3PARAM 1 0 0 aa\n", Some(missing)),
            (nsec3(other, other) + parameters, Some(missing)),
            (nsec3(apex, other) + &nsec3(other, apex) + parameters, None),
            (nsec3(apex, apex) + &nsec3(other, apex) + parameters, Some(broken)),
        ] {
            let told = try_build(&format!("{signed}{chain}")).expect("it is served").unproven();
            assert_eq!(told.map(|what| &what[..expected.map_or(0, str::len)]), expected, "{chain}");
            let unsigned = try_build(&format!("{HEAD}{chain}")).expect("it is served");
            assert_eq!(unsigned.unproven(), None, "{chain}");
        }
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
        ));
        let hash = NameHash::new(1);
        let Walk::Name(found) = zone.walk(&name("a.example"), &hash) else { panic!("a exists") };
        let rows: Vec<_> = found.rrsets().map(|set| (set.rtype, set.signatures().data().count())).collect();
        assert_eq!(rows, [(Rtype::RRSIG, 0), (Rtype::A, 1), (Rtype::TXT, 1)]);
        assert_eq!(found.rrset(Rtype::TXT).unwrap().signatures().ttl, 50);
        let hidden = name("0000000000000000000000000000000a.example");
        assert!(matches!(zone.walk(&hidden, &hash), Walk::Missing(_, 1)));
        let again = signature("b", 60, "A").replace("2030", "2029");
        let until = |more| build(&format!("{HEAD}{}{more}", signature("a", 60, "A"))).signed_until();
        assert_eq!(
            [build(HEAD).signed_until(), until(""), until(&again)],
            [None, Some(1_893_456_000), Some(1_861_920_000)]
        );
        let text = zone.to_text();
        assert_eq!(text.lines().count(), zone.records());
        let again = build(&text);
        assert_eq!((again.records(), again.to_text()), (zone.records(), text));
    }

    #[test]
    fn a_name_has_so_many_rrsets_and_no_more() {
        let of = |count: usize| {
            let types: String = (0..count).map(|i| format!("many TYPE{} \\# 1 00\n", 1_000 + i)).collect();
            try_build(&format!("{HEAD}{types}"))
        };
        assert!(of(RRSETS_MAX).is_ok());
        let told = of(RRSETS_MAX + 5).err().unwrap();
        assert_eq!(told.len(), 1);
        let place = 3 + RRSETS_MAX + 1;
        let expected = format!("t:{place}:1: many.example. has 1005 RRsets; expected at most 1000");
        assert_eq!(told[0], expected);
    }

    #[test]
    fn what_is_wrong_with_a_zone_is_listed() {
        let listed = try_build(&format!(
            "{HEAD}c CNAME d\nc A 192.0.2.1\nout.other. A 192.0.2.1\nd CNAME a\nd CNAME b\nx.example. SOA a b 1 1 1 1 1\n"
        ))
        .err()
        .unwrap();
        assert!(listed[0].starts_with("t:9:1: a second SOA record, of x.example."), "{listed:#?}");
        let listed = try_build(&format!(
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
        let listed = try_build(&format!("{HEAD}@ NSEC3PARAM 1 0 151 -\n")).err().unwrap();
        assert!(listed[0].starts_with("t:4:1: 151 additional iterations"), "{listed:#?}");
        assert!(try_build(&format!("{HEAD}@ NSEC3PARAM 1 0 150 -\n")).is_ok());
        assert!(try_build(&format!("{HEAD}@ NSEC3PARAM 1 1 151 -\n")).is_ok(), "it is of no chain");
        assert!(try_build("@ 60 NS a\n").err().unwrap()[0].contains("no SOA"));
        assert!(try_build("@ 60 SOA a b 1 1 1 1 1\n").err().unwrap()[0].contains("no NS"));
    }
}
