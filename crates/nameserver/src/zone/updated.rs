//! What a client changes of a zone (RFC 2136 §3.2 to §3.4, §3.6).
//!
//! What was made here when the zone was signed is none of its records: nothing can be asked or changed of it.

use std::collections::{BTreeMap, BTreeSet};

use dns::{Rcode, Rtype};

use super::canonical::canonical;
use super::history::Owners;
use super::signed::with_serial;
use super::{Changed, Renewal, Rrset, SOA_NUMBERS, Zone, rrset};
use crate::names::NameHash;
use crate::transfer::serial::is_greater;

/// What a client wants to have changed, and what is to hold before. All owners are folded, and in the zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// What is to hold, in the order of the message.
    pub prerequisites: Vec<Prerequisite>,
    /// What is changed then, one after the other.
    pub operations: Vec<Operation>,
}

/// What is to hold of a zone for it to be changed (RFC 2136 §2.4); owners and data in wire form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prerequisite {
    /// The owner has records.
    InUse(Vec<u8>),
    /// It has none.
    NotInUse(Vec<u8>),
    /// It has an RRset of this type.
    Exists(Vec<u8>, Rtype),
    /// It has none.
    Missing(Vec<u8>, Rtype),
    /// It has an RRset of this type, and this record is in it, all of whose records are asked for so.
    Has(Vec<u8>, Rtype, Vec<u8>),
}

/// One change of a zone (RFC 2136 §2.5); owners and data in wire form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A record comes; its TTL in seconds becomes that of its RRset (RFC 2181 §5.2).
    Add(Vec<u8>, Rtype, u32, Vec<u8>),
    /// A record goes.
    Delete(Vec<u8>, Rtype, Vec<u8>),
    /// An RRset goes.
    DeleteSet(Vec<u8>, Rtype),
    /// All RRsets of an owner go.
    DeleteAll(Vec<u8>),
}

impl Operation {
    /// Whose records change.
    pub fn owner(&self) -> &[u8] {
        let (Operation::Add(owner, ..)
        | Operation::Delete(owner, ..)
        | Operation::DeleteSet(owner, _)
        | Operation::DeleteAll(owner)) = self;
        owner
    }

    /// Of which type; `None` where it is of any.
    pub fn rtype(&self) -> Option<Rtype> {
        match self {
            Operation::Add(_, rtype, ..)
            | Operation::Delete(_, rtype, _)
            | Operation::DeleteSet(_, rtype) => Some(*rtype),
            Operation::DeleteAll(_) => None,
        }
    }
}

/// The RRsets of an owner by their type, but for the SOA record.
type Sets = BTreeMap<Rtype, Set>;

/// The TTL of an RRset, and its records' data by its canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Set {
    ttl: u32,
    data: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Zone {
    /// What an update renews of the zone; `None` where it changes nothing. The serial number becomes the next one, unless the
    /// update has a later one.
    ///
    /// # Errors
    /// The code of the first prerequisite that does not hold: NXDOMAIN, YXDOMAIN, NXRRSET or YXRRSET (RFC 2136 §2.4).
    pub fn updated(&self, update: &Update, hash: &NameHash) -> Result<Option<Renewal>, Rcode> {
        let mut owners = Owners::new(self, hash);
        self.hold(&update.prerequisites, &mut owners)?;
        let before = Changed::soa(self);
        let (mut soa, mut soa_ttl) = (before.data, before.ttl);
        let mut touched: BTreeMap<&[u8], Sets> = BTreeMap::new();
        for operation in &update.operations {
            let owner = operation.owner();
            let is_apex = owner == self.origin.wire();
            if let Operation::Add(_, Rtype::SOA, ttl, data) = operation {
                if is_apex && is_greater(serial(data), serial(soa)) {
                    (soa, soa_ttl) = (data, *ttl);
                }
                continue;
            }
            let sets = touched.entry(owner).or_insert_with(|| self.sets_of(owner, &mut owners));
            operate(operation, sets, is_apex);
        }
        touched.retain(|owner, sets| *sets != self.sets_of(owner, &mut owners));
        let is_raised = serial(soa) != self.serial();
        if touched.is_empty() && !is_raised {
            return Ok(None);
        }
        let next = if is_raised { serial(soa) } else { self.serial().wrapping_add(1) };
        // What signing adds to it, it adds to the text's.
        let soa = with_serial(soa, next.wrapping_sub(self.serial_added.unwrap_or_default()));
        let renewed = touched.into_iter().map(|(owner, sets)| (owner.to_vec(), written(&sets))).collect();
        Ok(Some(Renewal::new(self, (soa_ttl, soa), renewed)))
    }

    /// Whether all holds that is to.
    fn hold(&self, prerequisites: &[Prerequisite], owners: &mut Owners<'_>) -> Result<(), Rcode> {
        let mut wanted: BTreeMap<(&[u8], Rtype), BTreeSet<Vec<u8>>> = BTreeMap::new();
        for prerequisite in prerequisites {
            let (holds, code) = match prerequisite {
                Prerequisite::InUse(owner) => (!self.given_sets(owner, owners).is_empty(), Rcode::NXDOMAIN),
                Prerequisite::NotInUse(owner) => (self.given_sets(owner, owners).is_empty(), Rcode::YXDOMAIN),
                Prerequisite::Exists(owner, rtype) => {
                    (self.given_set(owner, *rtype, owners).is_some(), Rcode::NXRRSET)
                }
                Prerequisite::Missing(owner, rtype) => {
                    (self.given_set(owner, *rtype, owners).is_none(), Rcode::YXRRSET)
                }
                Prerequisite::Has(owner, rtype, data) => {
                    wanted.entry((owner, *rtype)).or_default().insert(canonical(*rtype, data).into());
                    continue;
                }
            };
            if !holds {
                return Err(code);
            }
        }
        for ((owner, rtype), wanted) in wanted {
            let set = self.given_set(owner, rtype, owners);
            let data = set.into_iter().flat_map(Rrset::data);
            let here: BTreeSet<Vec<u8>> = data.map(|data| canonical(rtype, data).into()).collect();
            if here != wanted {
                return Err(Rcode::NXRRSET);
            }
        }
        Ok(())
    }

    /// The RRsets of an owner that were not made here.
    fn given_sets<'a>(&self, owner: &[u8], owners: &mut Owners<'a>) -> Vec<Rrset<'a>> {
        Rrset::all(owners.sets(owner)[0]).filter(|set| !self.has_made(set.rtype)).collect()
    }

    fn given_set<'a>(&self, owner: &[u8], rtype: Rtype, owners: &mut Owners<'a>) -> Option<Rrset<'a>> {
        self.given_sets(owner, owners).into_iter().find(|set| set.rtype == rtype)
    }

    /// The same to be changed, without the SOA record.
    fn sets_of(&self, owner: &[u8], owners: &mut Owners<'_>) -> Sets {
        let mut sets = Sets::new();
        for set in self.given_sets(owner, owners).into_iter().filter(|set| set.rtype != Rtype::SOA) {
            for set in [set, set.signatures()].into_iter().filter(|set| !self.has_made(set.rtype)) {
                for data in set.data() {
                    let of =
                        sets.entry(set.rtype).or_insert_with(|| Set { ttl: set.ttl, data: BTreeMap::new() });
                    of.data.insert(canonical(set.rtype, data).into(), data.into());
                }
            }
        }
        sets
    }
}

/// RRsets as a zone keeps those of a name.
fn written(sets: &Sets) -> Vec<u8> {
    let mut octets = Vec::new();
    for (rtype, Set { ttl, data }) in sets {
        let data: Vec<&[u8]> = data.values().map(|data| &data[..]).collect();
        rrset::write(*rtype, *ttl, &data, &mut octets);
    }
    octets
}

/// Changes the RRsets of an owner (RFC 2136 §3.4.2). What would leave a zone without what each has, or an alias beside other
/// records, is not done, and not told: so the standard has it.
fn operate(operation: &Operation, sets: &mut Sets, is_apex: bool) {
    match operation {
        Operation::Add(_, rtype, ttl, data) => {
            let is_alias = *rtype == Rtype::CNAME;
            let others = sets.keys().any(|other| (*other == Rtype::CNAME) != is_alias);
            if others {
                return;
            }
            let set = sets.entry(*rtype).or_insert_with(|| Set { ttl: *ttl, data: BTreeMap::new() });
            // Of these a name has one (RFC 2136 §3.4.2.2, RFC 6672 §5.2).
            if matches!(*rtype, Rtype::CNAME | Rtype::DNAME) {
                set.data.clear();
            }
            set.ttl = *ttl;
            // A name in another case is no other one.
            set.data.entry(canonical(*rtype, data).into()).or_insert_with(|| data.clone());
        }
        Operation::Delete(_, rtype, data) => {
            let Some(set) = sets.get_mut(rtype) else { return };
            let key = canonical(*rtype, data);
            let is_last = set.data.len() == 1 && set.data.contains_key(&*key);
            if is_last && is_apex && *rtype == Rtype::NS {
                return;
            }
            set.data.remove(&*key);
            if set.data.is_empty() {
                sets.remove(rtype);
            }
        }
        Operation::DeleteSet(_, rtype) if is_apex && *rtype == Rtype::NS => {}
        Operation::DeleteSet(_, rtype) => {
            sets.remove(rtype);
        }
        Operation::DeleteAll(_) => sets.retain(|rtype, _| is_apex && *rtype == Rtype::NS),
    }
}

/// The serial number of an SOA record's data.
fn serial(soa: &[u8]) -> u32 {
    let numbers = soa.len().checked_sub(SOA_NUMBERS).and_then(|at| soa[at..].first_chunk());
    u32::from_be_bytes(*numbers.expect("the data of an SOA record ends with its numbers"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{HEAD, build, name, try_build};
    use super::*;

    const HASH: u64 = 1;

    fn owner(text: &str) -> Vec<u8> {
        name(text).wire().to_vec()
    }

    /// A type and the data of a record of it, as its line says.
    fn data(line: &str) -> (Rtype, Vec<u8>) {
        let zone = build(&format!("{HEAD}only {line}\n"));
        let hash = NameHash::new(HASH);
        let sets = Owners::new(&zone, &hash).sets(&owner("only.example"))[0];
        let set = Rrset::all(sets).next().expect("it has one");
        (set.rtype, set.data().next().expect("it has one").to_vec())
    }

    fn updated(
        zone: &Zone,
        prerequisites: Vec<Prerequisite>,
        operations: Vec<Operation>,
    ) -> Result<Option<String>, Rcode> {
        let renewal = zone.updated(&Update { prerequisites, operations }, &NameHash::new(HASH))?;
        Ok(renewal.map(|renewal| zone.renewed_text(&renewal)))
    }

    #[test]
    fn a_prerequisite_holds_or_its_code_is_told() {
        let zone = build(&format!("{HEAD}a A 192.0.2.1\na A 192.0.2.2\nb.c MX 10 a\n"));
        let has = |name: &str, line: &str| {
            let (rtype, data) = data(line);
            Prerequisite::Has(owner(name), rtype, data)
        };
        for (prerequisites, expected) in [
            (vec![Prerequisite::InUse(owner("a.example"))], None),
            (vec![Prerequisite::InUse(owner("d.example"))], Some(Rcode::NXDOMAIN)),
            // A name that is there for those below it alone has no records.
            (vec![Prerequisite::InUse(owner("c.example"))], Some(Rcode::NXDOMAIN)),
            (vec![Prerequisite::NotInUse(owner("c.example"))], None),
            (vec![Prerequisite::NotInUse(owner("a.example"))], Some(Rcode::YXDOMAIN)),
            (vec![Prerequisite::Exists(owner("example"), Rtype::SOA)], None),
            (vec![Prerequisite::Exists(owner("a.example"), Rtype::AAAA)], Some(Rcode::NXRRSET)),
            (vec![Prerequisite::Missing(owner("a.example"), Rtype::AAAA)], None),
            (vec![Prerequisite::Missing(owner("a.example"), Rtype::A)], Some(Rcode::YXRRSET)),
            (vec![has("a.example", "A 192.0.2.2"), has("a.example", "A 192.0.2.1")], None),
            (vec![has("a.example", "A 192.0.2.2")], Some(Rcode::NXRRSET)),
            (vec![has("a.example", "A 192.0.2.1"), has("a.example", "A 192.0.2.3")], Some(Rcode::NXRRSET)),
            (vec![has("b.c.example", "MX 10 A.Example.")], None),
            (vec![has("d.example", "MX 10 a")], Some(Rcode::NXRRSET)),
        ] {
            let told = updated(&zone, prerequisites.clone(), vec![]);
            assert_eq!(told, expected.map_or(Ok(None), Err), "{prerequisites:?}");
        }
    }

    #[test]
    fn what_changes_is_changed_and_the_serial_number_is_the_next() {
        let add = |name: &str, ttl: u32, line: &str| {
            let (rtype, data) = data(line);
            Operation::Add(owner(name), rtype, ttl, data)
        };
        let delete = |name: &str, line: &str| {
            let (rtype, data) = data(line);
            Operation::Delete(owner(name), rtype, data)
        };
        let before = "a A 192.0.2.1\na TXT x\nalias CNAME a\n";
        let soa = |serial: u32| {
            let zone = build(&HEAD.replace(" 7 ", &format!(" {serial} ")));
            Operation::Add(owner("example"), Rtype::SOA, 60, Changed::soa(&zone).data.to_vec())
        };
        for (operations, serial, after) in [
            (
                vec![add("a.example", 30, "A 192.0.2.2")],
                8,
                "a 30 A 192.0.2.1\na 30 A 192.0.2.2\na TXT x\nalias CNAME a\n",
            ),
            (vec![delete("a.example", "A 192.0.2.1")], 8, "a TXT x\nalias CNAME a\n"),
            (vec![Operation::DeleteSet(owner("a.example"), Rtype::TXT)], 8, "a A 192.0.2.1\nalias CNAME a\n"),
            (vec![Operation::DeleteAll(owner("a.example"))], 8, "alias CNAME a\n"),
            // Where it is as it was, nothing is changed.
            (vec![add("a.example", 60, "A 192.0.2.1")], 7, before),
            (vec![delete("a.example", "A 192.0.2.9"), Operation::DeleteAll(owner("no.example"))], 7, before),
            (vec![add("b.example", 60, "A 192.0.2.1"), Operation::DeleteAll(owner("b.example"))], 7, before),
            // An alias stands alone, and is replaced by another.
            (vec![add("alias.example", 60, "A 192.0.2.1"), add("a.example", 60, "CNAME b")], 7, before),
            (vec![add("alias.example", 60, "CNAME b")], 8, "a A 192.0.2.1\na TXT x\nalias CNAME b\n"),
            // A zone keeps its SOA record and a name server.
            (
                vec![
                    Operation::DeleteAll(owner("example")),
                    Operation::DeleteSet(owner("example"), Rtype::NS),
                ],
                7,
                before,
            ),
            (vec![delete("example", "NS ns"), Operation::DeleteSet(owner("example"), Rtype::SOA)], 7, before),
            // A later serial number is the update's own.
            (vec![soa(99)], 99, before),
            (vec![soa(99), Operation::DeleteAll(owner("a.example"))], 99, "alias CNAME a\n"),
            (vec![soa(6)], 7, before),
        ] {
            let zone = build(&format!("{HEAD}{before}"));
            let told = updated(&zone, vec![], operations.clone()).expect("nothing is to hold");
            let expected = build(&(HEAD.replace(" 7 ", &format!(" {serial} ")) + after)).to_text();
            assert_eq!(told.is_none(), serial == 7, "{operations:?}");
            assert_eq!(
                told.map_or_else(|| zone.to_text(), |text| build(&text).to_text()),
                expected,
                "{operations:?}"
            );
        }
        let zone = build(HEAD);
        let text =
            updated(&zone, vec![], vec![add("ns.example", 60, "DNAME a"), add("ns.example", 60, "DNAME b")]);
        assert!(
            try_build(&text.expect("nothing is to hold").expect("it changes")).is_ok(),
            "of these there is one"
        );
    }
}
