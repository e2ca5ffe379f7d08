//! Zones that catalogs list (RFC 9432): each is taken of its catalog's primary for as long as it is listed there.
//!
//! By which catalog a zone came, the book remembers beside what was imported. So a zone that somebody has put stays theirs,
//! whatever a catalog lists (RFC 9432 §5.1).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use api::Faults;
use dns::Folded;
use store::Change;

use super::zones::fault;
use super::{Book, Condition, Refused};
use crate::transfer::PrimaryZones;
use crate::transfer::catalog::{self, Broken, Member, Members};
use crate::zone::Zone;
use crate::zone::read::Master;

/// What the path of an import begins with that stands for a zone that came by a catalog.
const MEMBER: &str = "member ";

/// The longest name of a zone that comes by a catalog, as text: a store keeps it as part of a path.
const NAME_MAX: usize = 700;

/// What is to be done, as catalogs are now.
#[derive(Debug, Default)]
pub struct Listed {
    /// Zones that are listed from now on, or by another catalog.
    come: Vec<(Folded, Listing)>,
    /// Zones that are no longer listed, or anew, and go.
    go: Vec<Folded>,
    /// Zones that are given otherwise from now on, and stay.
    stay: Vec<Folded>,
    /// Zones, or whole catalogs, that are left alone, and why.
    pub ignored: BTreeMap<Vec<u8>, String>,
}

impl Listed {
    /// Whether there is nothing to do.
    pub fn is_done(&self) -> bool {
        self.come.is_empty() && self.go.is_empty() && self.stay.is_empty()
    }
}

/// By which catalog a zone came.
#[derive(Clone, Debug, PartialEq)]
struct Listing {
    /// The catalog's name, as text.
    catalog: String,
    /// What stands for the zone there, as text.
    label: String,
}

impl Listing {
    fn read(text: &str) -> Option<Listing> {
        let (catalog, label) = text.split_once(' ')?;
        Some(Listing { catalog: catalog.into(), label: label.into() })
    }
}

/// The catalogs that are here and not broken, by name as text.
type Catalogs = BTreeMap<String, Members>;

impl Book {
    /// The zones of the catalogs that are here, of those that the operator names.
    pub fn catalogs(&self) -> impl Iterator<Item = &Arc<Zone>> {
        let (zones, hash) = (self.generation.zones.all(), &self.generation.hash);
        self.primaries.catalogs().filter_map(Folded::read).filter_map(|name| zones.get(&name, hash))
    }

    /// What catalogs say that is not done yet.
    pub fn listed(&self) -> Listed {
        let (mut listed, mut catalogs) = (Listed::default(), Catalogs::new());
        for zone in self.catalogs() {
            match catalog::members(zone) {
                Ok(members) => _ = catalogs.insert(text(zone.origin()), members),
                Err(broken) => {
                    let first = broken.first().map_or("", |broken| broken.what.as_str());
                    let why = format!("what it lists is left as it was, for the catalog is broken: {first}");
                    listed.ignored.insert(zone.origin().wire().to_vec(), why);
                }
            }
        }
        let mut came: HashMap<Vec<u8>, Listing> = HashMap::new();
        for (zone, listing) in self.came() {
            // A catalog that is not here, or broken, says nothing.
            let is_over = catalogs.get(&listing.catalog).is_some_and(|members| {
                members.get(zone.wire()).is_none_or(|member| label(member) != listing.label)
            });
            if self.primaries.name(zone.wire()) {
                listed.stay.push(zone);
            } else if is_over {
                listed.go.push(zone);
            } else {
                came.insert(zone.wire().to_vec(), listing);
            }
        }
        let going: HashSet<Vec<u8>> = listed.go.iter().map(|zone| zone.wire().to_vec()).collect();
        for (name, members) in &catalogs {
            for (zone, member) in members {
                let zone = Folded::read(zone).expect("the names of members are valid");
                let listing = Listing { catalog: name.clone(), label: label(member) };
                let here = came.get(zone.wire());
                if here == Some(&listing) {
                    continue;
                }
                let is_free = going.contains(zone.wire()) || here.is_some() || !self.is_here(&zone);
                if let Some(why) = self
                    .left_alone(&zone, name, here, &catalogs)
                    .or((!is_free).then(|| "it has been put here, and stays as it is".into()))
                {
                    listed.ignored.insert(zone.wire().to_vec(), format!("{name} lists it; {why}"));
                    continue;
                }
                // Under another label it is another zone.
                if here.is_some_and(|here| here.label != listing.label) {
                    listed.go.push(zone.clone());
                }
                came.insert(zone.wire().to_vec(), listing.clone());
                listed.come.push((zone, listing));
            }
        }
        listed
    }

    /// Does what catalogs say.
    pub(super) fn follow_catalogs(&mut self) -> Result<Vec<Change>, Refused> {
        let Listed { come, go, stay, ignored: _ } = self.listed();
        let mut changes = Vec::new();
        for zone in &go {
            match self.delete_zone(&text(zone), &Condition::Always) {
                Ok(deleted) => changes.extend(deleted),
                // It never came.
                Err(Refused::NotFound(_)) => {}
                Err(cause) => {
                    tracing::warn!(?zone, %cause, "a zone that its catalog does not list any more, or lists anew, stays");
                }
            }
        }
        changes.extend(go.iter().chain(&stay).filter_map(|zone| self.forget_member(zone)));
        let gives_what_is_here = come.iter().any(|(zone, _)| self.is_here(zone));
        for (zone, Listing { catalog, label }) in come {
            let (path, digest) = (format!("{MEMBER}{}", text(&zone)), format!("{catalog} {label}"));
            Arc::make_mut(&mut self.imports).insert(path.clone(), digest.clone());
            changes.push(Change::Imported { path, digest });
        }
        self.list_given();
        // What a primary gives is not signed here any more.
        if let Some(signing) = self.signing.clone().filter(|_| gives_what_is_here) {
            self.choose_signing(signing)?;
        }
        Ok(changes)
    }

    /// Forgets that a zone came by a catalog, where it did.
    pub(super) fn forget_member(&mut self, zone: &Folded) -> Option<Change> {
        let path = format!("{MEMBER}{}", text(zone));
        // Who changes them copies them.
        self.imports.get(&path)?;
        Arc::make_mut(&mut self.imports).remove(&path);
        Some(Change::ForgetImport { path })
    }

    /// Holds a catalog to what makes one.
    pub(super) fn check_catalog(&self, zone: &Zone, master: Option<&Master<'_>>) -> Result<(), Faults> {
        if !self.primaries.have_catalog(zone.origin().wire()) {
            return Ok(());
        }
        let broken = catalog::members(zone).err().unwrap_or_default();
        let mut faults = Faults::default();
        for Broken { owner, rtype, what, expected } in broken {
            faults.push_with(|| fault(master, (&owner, rtype), zone.origin(), what, expected));
        }
        faults.or(())
    }

    /// Notes what is given: what the operator names, and what came by catalogs that it names.
    pub(super) fn list_given(&mut self) {
        let listed = self.came().filter_map(|(zone, listing)| {
            let catalog = dns::name::folded_from_text(&listing.catalog).ok()?;
            self.primaries.have_catalog(&catalog).then(|| (zone.wire().to_vec(), catalog.into()))
        });
        let given = PrimaryZones::new(&self.primaries, listed);
        if *self.generation.primary_zones != given {
            self.generation.primary_zones = Arc::new(given);
        }
    }

    /// Why a zone that a catalog lists is not taken by it, whoever has it now.
    fn left_alone(
        &self,
        zone: &Folded,
        catalog: &str,
        here: Option<&Listing>,
        catalogs: &Catalogs,
    ) -> Option<String> {
        if text(zone).len() > NAME_MAX {
            return Some(format!("its name as text is longer than {NAME_MAX} octets"));
        }
        if self.primaries.name(zone.wire()) {
            return Some("[[primary]] names it".into());
        }
        let other = &here?.catalog;
        let is_followed =
            dns::name::folded_from_text(other).is_ok_and(|name| self.primaries.have_catalog(&name));
        let member = catalogs.get(other).and_then(|members| members.get(zone.wire()));
        let moves_to = member.and_then(|member| member.moves_to.as_deref());
        let moves_here = moves_to.is_some_and(|name| dns::name::to_text(name) == catalog);
        (is_followed && !moves_here).then(|| format!("so does {other}, by which it came"))
    }

    pub(super) fn is_here(&self, zone: &Folded) -> bool {
        self.generation.zones.all().get(zone, &self.generation.hash).is_some()
    }

    /// The zones that came by catalogs, also by those that nobody follows any more.
    fn came(&self) -> impl Iterator<Item = (Folded, Listing)> {
        let members = self.imports.range(MEMBER.to_string()..);
        let members = members.map_while(|(path, digest)| Some((path.strip_prefix(MEMBER)?, digest)));
        members.filter_map(|(zone, listing)| {
            let wire = dns::name::folded_from_text(zone).ok()?;
            Some((Folded::read(&wire)?, Listing::read(listing)?))
        })
    }
}

fn text(name: &Folded) -> String {
    dns::name::to_text(name.wire())
}

/// The label that stands for a member, as text.
fn label(member: &Member) -> String {
    dns::name::to_text(&[&member.label[..], &[0]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::Edit;
    use crate::generation::Settings;
    use crate::transfer::{Primaries, Primary};
    use crate::zone::Difference;

    const ZONE: &str = "@ 60 SOA ns hm 1 2 3 4 5\n@ 60 NS ns\n";

    fn name(text: &str) -> Folded {
        Folded::read(&dns::name::folded_from_text(text).unwrap()).unwrap()
    }

    /// A book that follows these catalogs.
    fn following(catalogs: &[&str]) -> Book {
        let mut book = Book::empty(1, Settings::default());
        follow(&mut book, catalogs);
        book
    }

    fn follow(book: &mut Book, catalogs: &[&str]) {
        let catalogs = catalogs.iter().map(|catalog| name(catalog).wire().to_vec()).collect();
        let primary = Primary { catalogs, ..Primary::default() };
        book.apply(Edit::Primaries(Arc::new(Primaries(vec![primary])))).unwrap();
    }

    /// Has a primary give a zone.
    fn give(book: &mut Book, zone: &str, text: &str) -> Result<Vec<Change>, String> {
        let edit = Edit::given_zone("given", &name(zone), text.as_bytes(), &book.generation.hash).unwrap();
        book.apply(edit).map_err(|refused| refused.to_string())
    }

    /// Has a primary give a catalog of these lines, and does what it says; returns what changed in words, and what was left
    /// alone.
    fn list(book: &mut Book, catalog: &str, serial: u32, lines: &str) -> (Vec<String>, Vec<String>) {
        let text = format!("$TTL 0\n@ SOA . . {serial} 60 60 600 0\n@ NS invalid.\nversion TXT 2\n{lines}");
        give(book, catalog, &text).unwrap();
        done(book)
    }

    fn done(book: &mut Book) -> (Vec<String>, Vec<String>) {
        let ignored = book.listed().ignored.into_iter();
        let ignored = ignored.map(|(zone, why)| format!("{}: {why}", dns::name::to_text(&zone))).collect();
        let changes = book.apply(Edit::Catalogs).unwrap();
        assert!(book.listed().is_done());
        (changes.iter().map(ToString::to_string).collect(), ignored)
    }

    fn served(book: &Book) -> Vec<String> {
        let mut zones: Vec<String> =
            book.generation.zones.all().iter().map(|zone| text(zone.origin())).collect();
        zones.sort();
        zones
    }

    #[test]
    fn zones_come_and_go_as_they_are_listed() {
        let mut book = following(&["cat"]);
        let (changes, ignored) = list(&mut book, "cat", 1, "a.zones PTR one.\nb.zones PTR two.\n");
        assert_eq!(changes, ["file member one. imported", "file member two. imported"]);
        assert!(ignored.is_empty());
        assert!(book.generation.primary_zones.have(&name("one")));
        assert_eq!(book.generation.primary_zones.named_for(name("one").wire()), Some(name("cat").wire()));
        give(&mut book, "one", ZONE).unwrap();
        give(&mut book, "two", ZONE).unwrap();
        let told = give(&mut book, "three", ZONE).unwrap_err();
        assert!(told.contains("three. is given by no primary any more"), "{told}");
        let edit = Edit::DeleteZone { origin: "one".into(), condition: Condition::Always };
        let told = book.clone().apply(edit).unwrap_err().to_string();
        assert!(told.contains("one. is given by a primary"), "{told}");

        // Two goes, and one is another zone by now.
        let (changes, _) = list(&mut book, "cat", 2, "c.zones PTR one.\n");
        let expected = [
            "zone one. deleted",
            "zone two. deleted",
            "file member one. forgotten",
            "file member two. forgotten",
            "file member one. imported",
        ];
        assert_eq!(changes, expected);
        assert_eq!(served(&book), ["cat."]);
        assert!(book.generation.primary_zones.have(&name("one")));
        assert!(!book.generation.primary_zones.have(&name("two")));
        assert_eq!(done(&mut book), (vec![], vec![]));
    }

    #[test]
    fn who_has_put_a_zone_keeps_it() {
        let mut book = following(&["cat"]);
        let put = |zone: &str, hash: &_| Edit::zone(zone, ZONE.as_bytes(), Condition::Always, hash).unwrap();
        let hash = book.generation.hash.clone();
        book.apply(put("one", &hash)).unwrap();
        let (changes, ignored) = list(&mut book, "cat", 1, "a.zones PTR one.\nb.zones PTR cat.\n");
        assert!(changes.is_empty());
        let expected = [
            "cat.: cat. lists it; [[primary]] names it",
            "one.: cat. lists it; it has been put here, and stays as it is",
        ];
        assert_eq!(ignored, expected);
        // As soon as it is deleted, the catalog has its way.
        book.apply(Edit::DeleteZone { origin: "one".into(), condition: Condition::Always }).unwrap();
        assert_eq!(done(&mut book).0, ["file member one. imported"]);
        give(&mut book, "one", ZONE).unwrap();
        // Whose catalog nobody follows any more, is anybody's: and whoever puts it has it.
        follow(&mut book, &[]);
        assert_eq!(served(&book), ["cat.", "one."]);
        let changes = book.apply(put("one", &hash)).unwrap();
        assert!(matches!(&changes[..], [Change::PutZone { .. }, Change::ForgetImport { .. }]), "{changes:?}");
        follow(&mut book, &["cat"]);
        assert_eq!(done(&mut book).1, expected);
    }

    #[test]
    fn a_zone_moves_between_catalogs_where_the_first_one_lets_it() {
        let mut book = following(&["cat", "dog"]);
        list(&mut book, "cat", 1, "a.zones PTR one.\nb.zones PTR two.\n");
        give(&mut book, "one", ZONE).unwrap();
        let (changes, ignored) = list(&mut book, "dog", 1, "a.zones PTR one.\n");
        let told = "one.: dog. lists it; so does cat., by which it came";
        assert_eq!((changes.is_empty(), ignored), (true, vec![told.to_string()]));
        let with = "a.zones PTR one.\ncoo.a.zones PTR dog.\nb.zones PTR two.\n";
        let (changes, ignored) = list(&mut book, "cat", 2, with);
        assert_eq!((changes, ignored), (vec!["file member one. imported".to_string()], vec![]));
        assert_eq!(served(&book), ["cat.", "dog.", "one."], "with the same label it is the same zone");
        assert_eq!(book.generation.primary_zones.named_for(name("one").wire()), Some(name("dog").wire()));
        let (changes, ignored) = list(&mut book, "cat", 3, "");
        assert_eq!((changes, ignored), (vec!["file member two. forgotten".to_string()], vec![]));
    }

    #[test]
    fn what_a_catalog_lists_stays_while_it_is_broken_or_gone() {
        let mut book = following(&["cat"]);
        list(&mut book, "cat", 1, "a.zones PTR one.\n");
        let broken = "@ 0 SOA . . 2 60 60 600 0\n@ 0 NS invalid.\nversion 0 TXT 2\n\
                      a.zones 0 PTR one.\nb.zones 0 PTR one.\n";
        let told = give(&mut book.clone(), "cat", broken).unwrap_err();
        assert_eq!(told, "given:5:1: one. is listed a second time; expected each zone once");

        // By what changed it comes to the same.
        let (hash, cat) = (book.generation.hash.clone(), name("cat"));
        let here = book.generation.zones.all().get(&cat, &hash).cloned().unwrap();
        let Ok(Edit::PutZone { zone: mut later, .. }) =
            Edit::given_zone("given", &cat, broken.as_bytes(), &hash)
        else {
            panic!("it is a zone")
        };
        later.remember(&here, None, &hash);
        let differences: Vec<Difference> =
            later.since(1).unwrap().iter().map(|difference| Difference::clone(difference)).collect();
        let edit = Edit::given_changes("given", &here, &differences, &hash).unwrap();
        assert!(matches!(edit, Edit::ChangeZone { .. }));
        let told = book.clone().apply(edit).unwrap_err().to_string();
        assert_eq!(told, "cat.: one. is listed a second time; expected each zone once");

        // One that was there before it was followed as a catalog.
        let mut other = following(&[]);
        let edit = Edit::zone("cat", broken.as_bytes(), Condition::Always, &other.generation.hash).unwrap();
        other.apply(edit).unwrap();
        follow(&mut other, &["cat"]);
        let (changes, ignored) = done(&mut other);
        assert!(
            changes.is_empty() && ignored[0].starts_with("cat.: what it lists is left as it was"),
            "{ignored:?}"
        );

        assert!(book.generation.zones.remove(&name("cat"), &book.generation.hash.clone()));
        assert_eq!(done(&mut book), (vec![], vec![]));
        assert!(book.generation.primary_zones.have(&name("one")));
    }

    #[test]
    fn a_zone_with_policies_stays_when_it_is_listed_no_more() {
        let mut book = following(&["cat"]);
        list(&mut book, "cat", 1, "a.zones PTR one.\n");
        give(&mut book, "one", ZONE).unwrap();
        let policy = br#"{"names":["www.one"],"servers":[{"address":"192.0.2.1"}]}"#;
        book.apply(Edit::policy(None, "body", policy.to_vec(), Condition::Always).unwrap()).unwrap();
        let (changes, _) = list(&mut book, "cat", 2, "");
        assert_eq!(changes, ["file member one. forgotten"]);
        assert_eq!(served(&book), ["cat.", "one."]);
        assert!(!book.generation.primary_zones.have(&name("one")));
    }
}
