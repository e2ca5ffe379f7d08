//! Catalog zones (RFC 9432): which zones there are, told as a zone.

use std::collections::BTreeMap;

use dns::{Folded, Rtype};

use crate::zone::{Cursor, Rrset, Zone};

/// The most zones that one catalog may list.
pub const MEMBERS_MAX: usize = 100_000;

/// The version that is read, as the data of its TXT record (RFC 9432 §4.3.1).
const VERSION: &[u8] = b"\x012";

/// A zone that a catalog lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// What stands for it in the catalog: a label with its length in front, folded. Under another one it is another zone of
    /// the same name (RFC 9432 §5.3).
    pub label: Box<[u8]>,
    /// The catalog that may take it over (RFC 9432 §4.4.1), folded, in wire form.
    pub moves_to: Option<Box<[u8]>>,
}

/// What a catalog lists, by the zones' names, folded, in wire form.
pub type Members = BTreeMap<Box<[u8]>, Member>;

/// Why a zone is no catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Whose record it is about, folded, in wire form.
    pub owner: Box<[u8]>,
    /// The record's type.
    pub rtype: Rtype,
    /// What is wrong.
    pub what: String,
    /// What is right.
    pub expected: &'static str,
}

/// Reads what a catalog lists; properties other than `version` and `coo` mean nothing here.
///
/// # Errors
/// All that makes it a broken catalog, which is to be left alone (RFC 9432 §5.1), in the order of its names: another version
/// than 2 or none, a member with several names, or several with one, more than [`MEMBERS_MAX`].
pub fn members(zone: &Zone) -> Result<Members, Vec<Broken>> {
    let mut reading = Reading::default();
    let mut cursor = Cursor::default();
    while let Some((owner, sets)) = zone.owner_at(&mut cursor) {
        let name = Folded::read(owner).expect("the names of a zone are valid");
        let depth = zone.origin().labels();
        let labels: Vec<&[u8]> = (depth + 1..=name.labels()).map(|depth| name.label(depth)).collect();
        for set in sets {
            reading.take(owner, &labels, set);
        }
        cursor = cursor.next();
    }
    reading.finish(zone)
}

/// A catalog as a master file: what `members` lists, under this serial number. Its SOA record has those who follow it ask
/// once an hour, and it does not expire within months: a catalog that is lost is no reason to give zones up.
pub fn text(catalog: &Folded, serial: u32, members: &Members) -> String {
    let name = dns::name::to_text(catalog.wire());
    let within = if name == "." { String::new() } else { name.clone() };
    let mut text = format!(
        "{name} 0 IN SOA invalid. invalid. {serial} 3600 600 2147483646 0\n\
         {name} 0 IN NS invalid.\n\
         version.{within} 0 IN TXT \"2\"\n"
    );
    for (zone, member) in members {
        let label = dns::name::to_text(&[&member.label[..], &[0]].concat());
        text.push_str(&format!("{label}zones.{within} 0 IN PTR {}\n", dns::name::to_text(zone)));
        if let Some(catalog) = &member.moves_to {
            let catalog = dns::name::to_text(catalog);
            text.push_str(&format!("coo.{label}zones.{within} 0 IN PTR {catalog}\n"));
        }
    }
    text
}

/// A label, its length in front, for a zone that is listed from this serial number of a catalog on: none before had it.
pub fn label(serial: u32, index: usize) -> Box<[u8]> {
    let label = format!("{serial}-{index}");
    [&[label.len() as u8], label.as_bytes()].concat().into()
}

/// A name, or a label with its length in front, folded.
type Wire = Box<[u8]>;

#[derive(Default)]
struct Reading {
    has_version: bool,
    /// The zones, and whose records name them, by label: so what is wrong is found in an order of its own.
    members: BTreeMap<Wire, (Wire, Wire)>,
    moves: BTreeMap<Wire, Wire>,
    broken: Vec<Broken>,
}

impl Reading {
    fn take(&mut self, owner: &[u8], labels: &[&[u8]], set: Rrset<'_>) {
        match (labels, set.rtype) {
            ([b"\x07version"], Rtype::TXT) => {
                self.has_version = true;
                if set.data().any(|data| data != VERSION) || set.data().count() != 1 {
                    let what = "the version is another, or stands there several times".into();
                    self.broken(owner, Rtype::TXT, what, "one TXT record, \"2\"");
                }
            }
            ([b"\x05zones", label], Rtype::PTR) => {
                if let Some(zone) = self.one(owner, set) {
                    self.members.insert((*label).into(), (owner.into(), zone));
                }
            }
            ([b"\x05zones", label, b"\x03coo"], Rtype::PTR) => {
                if let Some(catalog) = self.one(owner, set) {
                    self.moves.insert((*label).into(), catalog);
                }
            }
            _ => {}
        }
    }

    /// The one name that a set of PTR records is to have, folded.
    fn one(&mut self, owner: &[u8], set: Rrset<'_>) -> Option<Box<[u8]>> {
        let mut names = set.data().filter_map(Folded::read);
        match (names.next(), names.next()) {
            (Some(name), None) => Some(name.wire().into()),
            _ => {
                let what = format!("{} has several PTR records", dns::name::to_text(owner));
                self.broken(owner, Rtype::PTR, what, "one");
                None
            }
        }
    }

    fn broken(&mut self, owner: &[u8], rtype: Rtype, what: String, expected: &'static str) {
        self.broken.push(Broken { owner: owner.into(), rtype, what, expected });
    }

    fn finish(mut self, zone: &Zone) -> Result<Members, Vec<Broken>> {
        let apex = zone.origin().wire();
        if !self.has_version {
            let what = "the zone has no version, so it is no catalog".into();
            self.broken(apex, Rtype::SOA, what, "a TXT record \"2\" at the name version in it (RFC 9432)");
        }
        if self.members.len() > MEMBERS_MAX {
            let what = format!("it lists {} zones", self.members.len());
            self.broken(apex, Rtype::SOA, what, "fewer, or several catalogs");
        }
        let mut members = Members::new();
        for (label, (owner, zone)) in std::mem::take(&mut self.members) {
            let moves_to = self.moves.remove(&label);
            if members.insert(zone.clone(), Member { label, moves_to }).is_some() {
                let what = format!("{} is listed a second time", dns::name::to_text(&zone));
                self.broken(&owner, Rtype::PTR, what, "each zone once");
            }
        }
        self.broken.sort_by(|a, b| (&a.owner, &a.what).cmp(&(&b.owner, &b.what)));
        if self.broken.is_empty() { Ok(members) } else { Err(self.broken) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::NameHash;
    use crate::zone::read;

    fn catalog(text: &str) -> Zone {
        let text = format!("$ORIGIN cat.example.\n$TTL 0\n@ SOA . . 1 60 60 600 0\n@ NS invalid.\n{text}");
        let include = |_: &str| Err("nothing is included".to_string());
        let source = read::Source { name: "t", text: text.as_bytes(), origin: None, include: &include };
        Zone::build(&read::read(&source).unwrap(), "t", &NameHash::new(1)).unwrap()
    }

    fn wire(name: &str) -> Box<[u8]> {
        dns::name::folded_from_text(name).unwrap().into()
    }

    #[test]
    fn what_a_catalog_lists_is_read() {
        let zone = catalog(
            "version TXT 2\nversion TXT \"2\"\nversion.x TXT 3\n\
             A.zones PTR One.example.\nb.zones PTR two.example.\ncoo.b.zones PTR other.example.\n\
             group.b.zones TXT x\nx.ext.b.zones PTR three.example.\nb.zones A 192.0.2.1\nzones PTR four.example.\n",
        );
        let listed = members(&zone).unwrap();
        let member = |label: &[u8], moves_to: Option<&str>| Member {
            label: label.into(),
            moves_to: moves_to.map(wire),
        };
        let expected = [
            (wire("one.example."), member(b"\x01a", None)),
            (wire("two.example."), member(b"\x01b", Some("other.example."))),
        ];
        assert_eq!(listed, Members::from(expected));
        assert_eq!(members(&catalog("version TXT 2\n")), Ok(Members::new()));
    }

    #[test]
    fn what_is_written_is_read() {
        let zones = [("a.example", 0), (".", 1), ("\\032\\.b.example", 22)];
        let moves_to = |index| (index == 1).then(|| wire("other.example"));
        let member = |index| Member { label: label(4_294_967_295, index), moves_to: moves_to(index) };
        let listed: Members = zones.map(|(zone, index)| (wire(zone), member(index))).into();
        for (name, members_of) in [("cat.example", &listed), (".", &listed), ("x\\.y", &Members::new())] {
            let catalog = Folded::read(&wire(name)).unwrap();
            let text = text(&catalog, 7, members_of);
            let include = |_: &str| Err("nothing is included".to_string());
            let source = read::Source { name: "t", text: text.as_bytes(), origin: None, include: &include };
            let zone = Zone::build(&read::read(&source).unwrap(), "t", &NameHash::new(1)).unwrap();
            assert_eq!((zone.serial(), zone.origin().wire()), (7, catalog.wire()));
            assert_eq!(members(&zone).as_ref(), Ok(members_of), "{text}");
        }
    }

    #[test]
    fn a_broken_catalog_is_told_with_all_that_is_wrong() {
        for (text, expected) in [
            ("", &["the zone has no version, so it is no catalog"][..]),
            ("version A 192.0.2.1\n", &["the zone has no version, so it is no catalog"]),
            ("version TXT 1\n", &["the version is another, or stands there several times"]),
            ("version TXT 2\nversion TXT 3\n", &["the version is another, or stands there several times"]),
            ("version TXT 2 2\n", &["the version is another, or stands there several times"]),
            (
                "version TXT 2\na.zones PTR b.\na.zones PTR c.\nd.zones PTR e.\nf.zones PTR E.\n",
                &["a.zones.cat.example. has several PTR records", "e. is listed a second time"],
            ),
            (
                "version TXT 2\na.zones PTR b.\ncoo.a.zones PTR c.\ncoo.a.zones PTR d.\n",
                &["coo.a.zones.cat.example. has several PTR records"],
            ),
        ] {
            let broken = members(&catalog(text)).unwrap_err();
            let told: Vec<&str> = broken.iter().map(|broken| broken.what.as_str()).collect();
            assert_eq!(told, expected, "{text}");
        }
    }
}
