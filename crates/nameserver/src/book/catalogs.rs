//! Which zones are catalogs (RFC 9432), and those that are made here, of the zones that secondaries may take.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{Fault, Faults};
use dns::Folded;
use store::Change;

use super::{Book, Condition, Refused, folded};
use crate::transfer::catalog::{self, MEMBERS_MAX, Member, Members};
use crate::zone::Zone;
use crate::zone::read::{self, Master};

/// What faults call the text of a catalog.
const SOURCE: &str = "catalog";

impl Book {
    /// Whether a zone is a catalog: one that primaries give us, or that is made here.
    pub(super) fn is_catalog(&self, zone: &[u8]) -> bool {
        self.primaries.have_catalog(zone) || self.secondaries.have_catalog(zone)
    }

    /// Has zones know whether they are catalogs, where the operator has chosen others.
    pub(super) fn mark_catalogs(&mut self) {
        let is_marked_wrong = |zone: &&Arc<Zone>| zone.is_catalog() != self.is_catalog(zone.origin().wire());
        let wrong: Vec<Folded> = self
            .generation
            .zones
            .all()
            .iter()
            .filter(is_marked_wrong)
            .map(|zone| zone.origin().clone())
            .collect();
        for name in wrong {
            self.change_zone(&name, |zone| zone.set_catalog(!zone.is_catalog()));
        }
    }

    /// Refuses to make a catalog in the place of a zone that is none.
    pub fn check_catalogs(&self) -> Result<(), Faults> {
        let mut faults = Faults::default();
        for name in self.secondaries.catalogs() {
            if self.catalog(name).is_none() {
                let name = dns::name::to_text(name);
                let what = format!("{name} is a zone that is here, and no catalog");
                let expected = "another name for `catalog` of [[secondary]], or the zone deleted";
                faults.push(Fault::whole(SOURCE, what, expected));
            }
        }
        faults.or(())
    }

    /// Whether a commit may change what the catalogs that are made here list.
    pub fn may_list_others(&self, before: &Book, changes: &[Change]) -> bool {
        if self.secondaries.catalogs().is_empty() {
            return false;
        }
        let is_new = |origin: &str| folded(origin, SOURCE).is_ok_and(|origin| !before.is_here(&origin));
        let has_its_names = |policy: &api::Policy| {
            let key = folded(policy.names.first()?, SOURCE).ok()?;
            let steered = before.generation.policies.get(before.policy_of(&key)?)?;
            Some(steered.spec.names == policy.names)
        };
        !Arc::ptr_eq(&self.secondaries, &before.secondaries)
            || changes.iter().any(|change| match change {
                Change::DeleteZone { .. } | Change::DeletePolicy { .. } => true,
                Change::PutZone { origin, .. } => is_new(origin),
                Change::PutPolicy(policy) => has_its_names(policy) != Some(true),
                _ => false,
            })
    }

    /// Makes the catalogs that secondaries follow anew where they are to list others; returns what has to be stored for it.
    ///
    /// A zone that goes and comes again within one commit stays the same to those who follow; else it gets a label that none
    /// had before.
    pub fn make_catalogs(&mut self) -> Vec<Change> {
        let secondaries = self.secondaries.clone();
        let mut changes = Vec::new();
        for name in secondaries.catalogs() {
            let mut trial = self.clone();
            match trial.make_catalog(name) {
                Some(Ok(made)) => {
                    *self = trial;
                    changes.extend(made);
                }
                Some(Err(cause)) => {
                    let catalog = dns::name::to_text(name);
                    tracing::error!(catalog, %cause, "what a catalog lists is not changed");
                }
                None => {}
            }
        }
        changes
    }

    /// Makes a catalog anew; `None` where it lists what it should, or another zone is in its place.
    fn make_catalog(&mut self, name: &[u8]) -> Option<Result<Vec<Change>, Refused>> {
        let known = self.catalog(name)?;
        let origin = Folded::read(name).expect("the name of a zone is valid");
        let here = self.generation.zones.all().get(&origin, &self.generation.hash);
        let (is_here, serial) = (here.is_some(), here.map(|zone| zone.serial_given().wrapping_add(1)));
        let listable = |zone: &&Arc<Zone>| {
            !zone.is_steered()
                && !self.is_catalog(zone.origin().wire())
                && self.secondaries.list(name, zone.origin())
        };
        let zones = self.generation.zones.all().iter().filter(listable);
        let wanted: BTreeSet<Box<[u8]>> = zones.map(|zone| zone.origin().wire().into()).collect();
        if is_here && wanted.iter().take(MEMBERS_MAX).eq(known.keys()) {
            return None;
        }
        if wanted.len() > MEMBERS_MAX {
            let (catalog, left_out) = (dns::name::to_text(name), wanted.len() - MEMBERS_MAX);
            tracing::error!(catalog, left_out, "a catalog lists no more than {MEMBERS_MAX} zones");
        }
        let serial = serial.unwrap_or(self.first_serial);
        let new = |index| Member { label: catalog::label(serial, index), moves_to: None };
        let member = |(index, zone): (usize, Box<[u8]>)| {
            let member = known.get(&zone).cloned().unwrap_or_else(|| new(index));
            (zone, member)
        };
        let members: Members = wanted.into_iter().take(MEMBERS_MAX).enumerate().map(member).collect();
        Some(self.put_catalog(&catalog::text(&origin, serial, &members)))
    }

    fn put_catalog(&mut self, text: &str) -> Result<Vec<Change>, Refused> {
        let include = |_: &str| Err("a catalog includes nothing".to_string());
        let source = read::Source { name: SOURCE, text: text.as_bytes(), origin: None, include: &include };
        let master: Master<'static> = read::read(&source)?;
        let zone = Zone::build(&master, SOURCE, &self.generation.hash)?;
        let text = zone.to_text();
        self.put_zone(zone, Some(&text), &master, &Condition::Always)
    }

    /// What a catalog that is made here lists, which is nothing where it is not here; `None` where another zone is in its
    /// place.
    fn catalog(&self, name: &[u8]) -> Option<Members> {
        let name = Folded::read(name).expect("the name of a zone is valid");
        match self.generation.zones.all().get(&name, &self.generation.hash) {
            Some(zone) => catalog::members(zone).ok(),
            None => Some(Members::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::Edit;
    use crate::generation::Settings;
    use crate::transfer::{Secondaries, Secondary};

    const ZONE: &str = "@ 60 SOA ns hm 1 2 3 4 5\n@ 60 NS ns\n";

    fn wire(text: &str) -> Vec<u8> {
        dns::name::folded_from_text(text).unwrap()
    }

    fn secondary(catalog: Option<&str>, zones: &[&str]) -> Secondary {
        let zones = zones.iter().map(|zone| wire(zone)).collect();
        Secondary { zones, catalog: catalog.map(wire), ..Secondary::default() }
    }

    fn followed_by(secondaries: Vec<Secondary>) -> Book {
        let mut book = Book::empty(1, Settings::default());
        book.first_serial = 7;
        book.apply(Edit::Secondaries(Arc::new(Secondaries(secondaries)))).unwrap();
        book
    }

    /// Makes an edit, and catalogs as a commit does.
    fn commit(book: &mut Book, edit: Edit) {
        let before = book.clone();
        let changes = book.apply(edit).unwrap();
        if book.may_list_others(&before, &changes) {
            book.make_catalogs();
        }
        assert!(book.make_catalogs().is_empty(), "all is made");
    }

    fn put(zone: &str, book: &Book) -> Edit {
        Edit::zone(zone, ZONE.as_bytes(), Condition::Always, &book.generation.hash).unwrap()
    }

    /// The serial number of a catalog, and what it lists, by label.
    fn listed(book: &Book, catalog: &str) -> (u32, Vec<(String, String)>) {
        let origin = Folded::read(&wire(catalog)).unwrap();
        let zone = book.generation.zones.all().get(&origin, &book.generation.hash).expect("it is made");
        assert!(zone.is_catalog());
        let members = catalog::members(zone).unwrap().into_iter();
        let text = |label: &[u8]| String::from_utf8(label[1..].to_vec()).unwrap();
        let each = members.map(|(zone, member)| (dns::name::to_text(&zone), text(&member.label)));
        (zone.serial(), each.collect())
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(zone, label)| (zone.to_string(), label.to_string())).collect()
    }

    #[test]
    fn a_catalog_lists_what_its_secondaries_may_take() {
        let mut book = followed_by(vec![
            secondary(Some("all"), &[]),
            secondary(Some("some"), &["two"]),
            secondary(Some("some"), &["three"]),
            secondary(None, &["one"]),
        ]);
        let edit = Edit::Catalogs;
        commit(&mut book, edit);
        assert_eq!((listed(&book, "all"), listed(&book, "some")), ((7, vec![]), (7, vec![])));
        for zone in ["one", "two"] {
            let edit = put(zone, &book);
            commit(&mut book, edit);
        }
        assert_eq!(listed(&book, "all"), (9, pairs(&[("one.", "8-0"), ("two.", "9-1")])));
        assert_eq!(listed(&book, "some"), (8, pairs(&[("two.", "8-0")])));
        // A change of what is listed is none of the catalog.
        let edit = put("one", &book);
        commit(&mut book, edit);
        assert_eq!(listed(&book, "all").0, 9);
        // What comes again is another zone.
        for edit in
            [Edit::DeleteZone { origin: "one".into(), condition: Condition::Always }, put("one", &book)]
        {
            commit(&mut book, edit);
        }
        assert_eq!(listed(&book, "all"), (11, pairs(&[("one.", "11-0"), ("two.", "9-1")])));

        let policy = br#"{"names":["www.one"],"servers":[{"address":"192.0.2.1"}]}"#;
        let mut steered = book.clone();
        let by_catalog = vec![secondary(Some("all"), &[]), secondary(Some("some"), &["two"])];
        steered.apply(Edit::Secondaries(Arc::new(Secondaries(by_catalog)))).unwrap();
        let edit = Edit::policy(None, "body", policy.to_vec(), Condition::Always).unwrap();
        commit(&mut steered, edit);
        assert_eq!(listed(&steered, "all"), (12, pairs(&[("two.", "9-1")])), "who could take it");
        commit(&mut steered, Edit::DeletePolicy { owner: "www.one".into(), condition: Condition::Always });
        assert_eq!(listed(&steered, "all").1.len(), 2);
    }

    #[test]
    fn nobody_else_makes_a_catalog_and_it_is_made_in_nobodys_place() {
        let mut book = followed_by(vec![secondary(Some("all"), &[])]);
        commit(&mut book, Edit::Catalogs);
        let told = book.clone().apply(put("all", &book)).unwrap_err().to_string();
        assert!(told.contains("all. is a catalog that is made here"), "{told}");
        let edit = put("zone", &book);
        commit(&mut book, edit);
        let other = Secondaries(vec![secondary(Some("zone"), &[])]);
        let told = book.clone().apply(Edit::Secondaries(Arc::new(other))).unwrap_err().to_string();
        assert!(told.contains("zone. is a zone that is here, and no catalog"), "{told}");
        // Without it, it is a zone like any other.
        commit(&mut book, Edit::Secondaries(Arc::default()));
        assert!(book.generation.zones.all().iter().all(|zone| !zone.is_catalog()));
        book.apply(Edit::DeleteZone { origin: "all".into(), condition: Condition::Always }).unwrap();
    }
}
