//! Files that are imported at start and on reload, where their content changed.
//!
//! The store is the truth: an import is an edit like any other, and what no file names stays. What several sources say
//! of a partition is laid one over the other in `layers`; `ids` writes the regions' numbers back.

mod ids;
mod layers;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::file::{self, DATA_MAX, WRITTEN_MAX};
use api::{Fault, Faults};
use store::Contents;

use crate::book::{Book, Condition, Edit, Etag, Refused, check_name};
use crate::cookies::Secrets;
use crate::generation::{Generation, Settings};
use crate::health::Probes;
use crate::names::NameHash;
use crate::signing::Signing;
use crate::transfer::{self, Primaries, Secondaries};
use crate::zone::read::{self, Master};
use crate::zone::{View, Zone};
pub use ids::write_ids;
pub use layers::Layer;
use layers::Loaded;

/// The most octets of a file of cookie secrets.
const SECRETS_MAX: u64 = 4_096;

/// A file to import, or what else a reload takes or is refused for.
#[derive(Clone, Debug)]
pub enum Import {
    /// A master file. A zone without `$ORIGIN` is named as its file is; see [`origin_of_file`].
    Zone(PathBuf),
    /// A partition, from one source or several: what the first has no region for the next one decides. Regions that do
    /// not exist are added.
    Partition {
        /// The partition's name.
        name: String,
        /// At least one.
        layers: Vec<Layer>,
    },
    /// A policy as JSON.
    Policy(PathBuf),
    /// The secrets of cookies; see [`Secrets::read`]. They never reach the store.
    CookieSecrets(PathBuf),
    /// Who follows which zone from now on: the rules for their serials and policies go by it.
    Secondaries(Arc<Secondaries>),
    /// Who gives us which zone.
    Primaries(Arc<Primaries>),
    /// What is signed by in signed zones.
    Signing(Arc<Signing>),
    /// Which zones are answered from at which address from now on.
    Views(Arc<[View]>),
    /// What is wrong with the configuration that names the files: nothing of them is imported, and faults of theirs are told
    /// behind these.
    Faults(Faults),
}

/// How the reading of a partition's files went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loading {
    /// The partition's name.
    pub name: String,
    /// What its sources are, in order.
    pub sources: Vec<&'static str>,
    /// What came of it.
    pub outcome: Outcome,
}

/// What was counted while files were read, each with its name.
pub type Counts = Vec<(&'static str, u64)>;

/// What came of reading a partition's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// They are what was read before.
    Same,
    /// They were read; with what was counted, each by its name.
    Read(Counts),
    /// They were not; with the first fault.
    Failed(String),
}

/// Reads and compiles everything aside, on what is `stored`, beside the probes, secondaries and primaries of a
/// configuration; returns what would be served.
///
/// # Errors
/// All faults of all files, or of what is stored.
pub fn check(
    imports: &[Import],
    probes: &Probes,
    transfer: &transfer::Config,
    stored: Contents,
) -> Result<Generation, Faults> {
    let mut book = Book::load(stored, 0, Settings::default())?;
    book.probes = Arc::new(probes.clone());
    book.choose_secondaries(Arc::new(transfer.secondaries.clone()));
    book.check_catalogs()?;
    book.choose_primaries(Arc::new(transfer.primaries.clone()));
    let edits = edits(imports, &book, &mut Vec::new())?;
    let faults = try_on(&mut book, edits);
    faults.or(book.generation)
}

/// The edits that the files ask for and that `book` has not had yet: zones first, then partitions, then
/// policies, as each needs the ones before. `loading` gets how each partition's reading went.
///
/// # Errors
/// Files that cannot be read, and the faults of all others. Where there are none so far, what an edit means
/// beside the others shows when they are made.
pub fn edits(imports: &[Import], book: &Book, loading: &mut Vec<Loading>) -> Result<Vec<Edit>, Faults> {
    let primaries = imports.iter().find_map(|import| match import {
        Import::Primaries(primaries) => Some(primaries),
        _ => None,
    });
    let mut out = Edits {
        book,
        primaries: primaries.unwrap_or(&book.primaries),
        edits: Vec::new(),
        regions: book.regions.clone(),
        next_region_id: book.next_region_id,
        zones: BTreeMap::new(),
        policies: BTreeMap::new(),
        unread: BTreeSet::new(),
        loading,
        faults: Faults::default(),
    };
    let order = |import: &&Import| match import {
        Import::Faults(_) => 0,
        Import::Secondaries(_) | Import::Primaries(_) | Import::Signing(_) => 1,
        Import::Views(_) => 2,
        Import::Zone(_) => 3,
        Import::Partition { .. } => 4,
        Import::Policy(_) => 5,
        Import::CookieSecrets(_) => 6,
    };
    let mut ordered: Vec<&Import> = imports.iter().collect();
    ordered.sort_by_key(order);
    for import in ordered {
        if let Err(found) = out.import(import) {
            out.faults.append(found);
        }
    }
    if out.faults.is_empty() {
        return Ok(out.edits);
    }
    // One bad file must not hide what is wrong with the next.
    let mut trial = book.clone();
    stand_in(&mut trial, &out.unread, &out.edits);
    out.faults.append(try_on(&mut trial, out.edits));
    Err(out.faults)
}

/// Puts something in the place of partitions that could not be read, and the regions that policies name where one could
/// not: what policies miss of them is no fault of theirs, and its cause is told already.
fn stand_in(book: &mut Book, unread: &BTreeSet<String>, edits: &[Edit]) {
    if unread.is_empty() {
        return;
    }
    let named = edits.iter().filter_map(|edit| match edit {
        Edit::PutPolicy { spec, .. } => Some(&spec.servers),
        _ => None,
    });
    let named: BTreeSet<&String> = named.flatten().flat_map(|server| server.regions.keys()).collect();
    let names = named.into_iter().filter(|name| check_name(name).is_ok()).cloned().collect();
    let missing = unread.iter().filter(|name| !book.partitions.contains_key(*name));
    let none = || b"0.0.0.0/0,-".to_vec();
    let empty = |name| Edit::partition(name, name, none(), Condition::Always, book.regions.clone()).ok();
    let empty: Vec<Edit> = missing.filter_map(|name| empty(name)).collect();
    // Whatever is wrong with these is not to be told.
    try_on(book, [Edit::HaveRegions { names }].into_iter().chain(empty).collect());
}

/// What is wrong with edits that are made one after the other.
fn try_on(book: &mut Book, edits: Vec<Edit>) -> Faults {
    let mut faults = Faults::default();
    for edit in edits {
        match book.apply(edit) {
            Ok(_) => {}
            Err(Refused::Faults(found)) => faults.append(found),
            Err(other) => faults.push(Fault::whole("import", other.to_string(), "")),
        }
    }
    faults
}

struct Edits<'b> {
    book: &'b Book,
    /// Who gives us zones from now on.
    primaries: &'b Primaries,
    edits: Vec<Edit>,
    /// The regions that there are, and those that an edit before adds.
    regions: Arc<BTreeMap<u32, String>>,
    next_region_id: u32,
    /// The zones so far, each with its file.
    zones: BTreeMap<String, String>,
    /// The policies so far, by their keys, folded.
    policies: BTreeMap<Vec<u8>, String>,
    /// The partitions that could not be read.
    unread: BTreeSet<String>,
    loading: &'b mut Vec<Loading>,
    faults: Faults,
}

impl Edits<'_> {
    fn import(&mut self, import: &Import) -> Result<(), Faults> {
        match import {
            Import::Zone(path) => self.zone(path),
            Import::Partition { name, layers } => {
                let read = self.partition(name, layers);
                let outcome = match &read {
                    Ok(outcome) => outcome.clone(),
                    Err(faults) => {
                        self.unread.insert(name.clone());
                        Outcome::Failed(faults.faults.first().map(ToString::to_string).unwrap_or_default())
                    }
                };
                let sources = layers.iter().map(Layer::kind).collect();
                self.loading.push(Loading { name: name.clone(), sources, outcome });
                read.map(|_| ())
            }
            Import::Policy(path) => self.policy(path),
            Import::CookieSecrets(path) => self.cookie_secrets(path),
            Import::Primaries(primaries) => {
                if !primaries.give_as(&self.book.primaries) {
                    self.edits.push(Edit::Primaries(primaries.clone()));
                }
                Ok(())
            }
            Import::Secondaries(secondaries) => {
                if !secondaries.follow_as(&self.book.secondaries) {
                    self.edits.push(Edit::Secondaries(secondaries.clone()));
                }
                Ok(())
            }
            Import::Signing(signing) => {
                if !self.book.signing.as_ref().is_some_and(|now| now.signs_as(signing)) {
                    self.edits.push(Edit::Signing(signing.clone()));
                }
                Ok(())
            }
            Import::Views(views) => {
                if views != self.book.generation.zones.views() {
                    self.edits.push(Edit::Views(views.clone()));
                }
                Ok(())
            }
            Import::Faults(faults) => Err(faults.clone()),
        }
    }

    fn cookie_secrets(&mut self, path: &Path) -> Result<(), Faults> {
        let text = file::read_secret(path, SECRETS_MAX, "a file with a secret a line")?;
        let secrets = Secrets::read(&shown(path), text.as_bytes())?;
        if secrets != *self.book.generation.secrets {
            self.edits.push(Edit::CookieSecrets(secrets));
        }
        Ok(())
    }

    fn zone(&mut self, path: &Path) -> Result<(), Faults> {
        let source = shown(path);
        let (zone, master) = read_zone(path, &self.book.generation.hash)?;
        // What a file includes counts as its content too, so the zone itself is compared.
        let digest = Etag::of(zone.to_text().as_bytes());
        let origin = dns::name::to_text(zone.origin().wire());
        if let Some(other) = self.zones.insert(origin.clone(), source.clone()) {
            return Err(Fault::whole(
                source,
                format!("{origin} is in {other}, too"),
                "each zone in one file",
            )
            .into());
        }
        let former = format!("{source} as {origin}");
        let imported = self.news(format!("zone {origin}"), Some(&former), &digest);
        // One that a primary gives is refused each time that its file is named, not only where that is new.
        if imported.is_some() || self.is_given(zone.origin().wire()) {
            tracing::info!(zone = origin, file = source, "a zone is read");
            let put = Edit::put_zone(zone, master, Condition::Always, false);
            self.edits.extend([put].into_iter().chain(imported));
        }
        Ok(())
    }

    /// Whether primaries are to give a zone from now on: by its name, or by a catalog.
    fn is_given(&self, zone: &[u8]) -> bool {
        let by_catalog = self.book.generation.primary_zones.named_for(zone);
        self.primaries.name(zone) || by_catalog.is_some_and(|catalog| self.primaries.name(catalog))
    }

    fn policy(&mut self, path: &Path) -> Result<(), Faults> {
        let (source, text) = (shown(path), file::read(path, WRITTEN_MAX, "a policy in JSON")?);
        let imported = self.news(source.clone(), None, &Etag::of(&text));
        let edit = Edit::policy(None, &source, text, Condition::Always)?;
        let name = if let Edit::PutPolicy { spec, .. } = &edit { spec.names.first().cloned() } else { None };
        if let Some(name) = &name
            && let Ok(owner) = dns::name::folded_from_text(name)
            && let Some(other) = self.policies.insert(owner, source.clone())
        {
            let what = format!("the policy {name} is in {other}, too");
            return Err(Fault::whole(source, what, "each policy in one file").into());
        }
        if let Some(imported) = imported {
            tracing::info!(policy = name, file = source, "a policy is read");
            self.edits.extend([edit, imported]);
        }
        Ok(())
    }

    fn partition(&mut self, name: &str, layers: &[Layer]) -> Result<Outcome, Faults> {
        let loaded = Loaded::load(layers)?;
        let paths: Vec<String> = layers.iter().map(Layer::source).collect();
        let source = paths.join(" and ");
        // A table of routes takes seconds to read: not when it is the one that was read before.
        let former = format!("{source} as partition {name}");
        let imported = self.news(format!("partition {name}"), Some(&former), &loaded.digest());
        let Some(imported) = imported else { return Ok(Outcome::Same) };
        let built = loaded.build()?;
        let known: HashSet<&str> = self.regions.values().map(String::as_str).collect();
        let new: Vec<String> =
            built.regions.into_iter().filter(|region| !known.contains(region.as_str())).collect();
        Arc::make_mut(&mut self.regions).extend((self.next_region_id..).zip(new.iter().cloned()));
        self.next_region_id += new.len() as u32;
        if !new.is_empty() {
            // While the table was read, somebody else may have added some.
            self.edits.push(Edit::HaveRegions { names: new });
        }
        let (text, regions) = (built.text.into_bytes(), self.regions.clone());
        let edit = Edit::partition(name, &source, text, Condition::Always, regions)?;
        if let Edit::PutPartition { compiled, .. } = &edit {
            let prefixes = compiled.partition.size().prefixes;
            tracing::info!(partition = name, file = source, prefixes, "a partition is read");
        }
        self.edits.extend([edit, imported]);
        Ok(Outcome::Read(built.counts))
    }

    /// What is to be remembered with an import, unless it is what was imported last as `what`: the content counts,
    /// whichever file it is from. A store of an older program remembers it as `former`.
    fn news(&self, what: String, former: Option<&str>, digest: &Etag) -> Option<Edit> {
        let imports = &self.book.imports;
        let last = imports.get(&what).or_else(|| imports.get(former?));
        (last != Some(&digest.0)).then(|| Edit::Imported { path: what, digest: digest.0.clone() })
    }
}

/// Reads a zone from a file and those that it includes, which have [`DATA_MAX`] octets at most, together.
fn read_zone(path: &Path, hash: &NameHash) -> Result<(Zone, Master<'static>), Faults> {
    let source = shown(path);
    let text = file::read(path, DATA_MAX, "a master file (RFC 1035)")?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let left = Cell::new(DATA_MAX - text.len() as u64);
    let include = |name: &str| {
        let included = file::read(&folder.join(name), left.get(), "").map_err(|fault| fault.what)?;
        left.set(left.get() - included.len() as u64);
        Ok(included)
    };
    let origin = origin_of_file(path);
    let read = read::Source { name: &source, text: &text, origin: origin.as_deref(), include: &include };
    let master = read::read(&read)?;
    Ok((Zone::build(&master, &source, hash)?, master))
}

/// The origin that a file's name gives, in wire form: `example.com` for `example.com.zone`, `example.com.db`,
/// `db.example.com` and `example.com`. `None` where that is no name, or no zone's: one label, as `db.root` and `local.zone`
/// have, and numbers, as `db.192.0.2` has, say what the file is for and not which zone it is.
pub fn origin_of_file(path: &Path) -> Option<Vec<u8>> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_suffix(".zone").or_else(|| name.strip_suffix(".db")).unwrap_or(name);
    let name = name.strip_prefix("db.").unwrap_or(name);
    let (_, last) = name.trim_end_matches('.').rsplit_once('.')?;
    let is_number = last.bytes().all(|octet| octet.is_ascii_digit());
    dns::name::folded_from_text(name).ok().filter(|_| !is_number)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::transfer::{Primary, Secondaries, Secondary};
    use ::tests::folder::Folder;

    /// Imports, and says how many edits that took, those aside that only remember it.
    fn import(book: &mut Book, imports: &[Import]) -> usize {
        let edits = edits(imports, book, &mut Vec::new()).unwrap();
        let is_kept = |edit: &&Edit| !matches!(edit, Edit::Imported { .. });
        let count = edits.iter().filter(is_kept).count();
        edits.into_iter().for_each(|edit| drop(book.apply(edit).unwrap()));
        count
    }

    fn csv(files: &[&str]) -> Import {
        let layers = files.iter().map(|file| Layer::Csv(file.into())).collect();
        Import::Partition { name: "default".into(), layers }
    }

    fn region(book: &Book, address: &str) -> String {
        book.lookup("default", address.parse().unwrap()).unwrap().1.to_owned()
    }

    #[test]
    fn what_is_imported_is_what_is_named_now() {
        let folder = Folder::new();
        let a = folder.write("a.csv", "10.0.0.0/8,eu\n");
        let b = folder.write("b.csv", "192.0.2.0/24,us\n");
        let mut book = Book::empty(1, Settings::default());
        assert_eq!(import(&mut book, &[csv(&[&a])]), 2, "a region and the partition");
        assert_eq!(import(&mut book, &[csv(&[&a])]), 0);
        assert_eq!(import(&mut book, &[csv(&[&a, &b])]), 2);
        assert_eq!((region(&book, "10.1.1.1"), region(&book, "192.0.2.1")), ("eu".into(), "us".into()));
        assert_eq!(import(&mut book, &[csv(&[&a])]), 1, "a layer is taken away");
        assert_eq!(region(&book, "192.0.2.1"), "");

        let zone = |serial: u32| format!("@ 60 SOA ns hm {serial} 2 3 4 5\n@ 60 NS ns\n");
        let one = folder.write("one.zone", format!("$ORIGIN example.com.\n{}", zone(1)));
        let two = folder.write("two.zone", format!("$ORIGIN example.com.\n{}", zone(2)));
        for (file, edits, serial) in [(&one, 1, 1), (&two, 1, 2), (&two, 0, 2), (&one, 1, 1)] {
            assert_eq!(import(&mut book, &[Import::Zone(file.into())]), edits, "{file}");
            assert_eq!(book.generation.zones.all().iter().next().unwrap().serial(), serial);
        }
    }

    #[test]
    fn a_serial_that_does_not_grow_is_told_with_its_line() {
        let folder = Folder::new();
        let zone =
            |more: &str| format!("$ORIGIN example.com.\n$TTL 60\n@ SOA ns hm 1 2 3 4 5\n@ NS ns\n{more}");
        let file = folder.write("one.zone", zone(""));
        let mut book = Book::empty(1, Settings::default());
        book.secondaries = Arc::new(Secondaries(vec![Secondary::default()]));
        let imports = [Import::Zone((&file).into())];
        assert_eq!(import(&mut book, &imports), 1);
        folder.write("one.zone", zone("www A 192.0.2.1\n"));
        let edits = edits(&imports, &book, &mut Vec::new()).expect("the zone is right");
        let told: Vec<String> =
            edits.into_iter().filter_map(|edit| Some(book.apply(edit).err()?.to_string())).collect();
        let [told] = &told[..] else { panic!("{told:?}") };
        assert!(told.starts_with(&format!("{file}:3:1: example.com. has changed")), "{told}");
    }

    #[test]
    fn a_zone_is_in_a_file_or_given_by_a_primary() {
        let folder = Folder::new();
        let file = folder.write("one.zone", "$ORIGIN example.com.\n@ 60 SOA ns hm 1 2 3 4 5\n@ 60 NS ns\n");
        let zone = Import::Zone((&file).into());
        let mut book = Book::empty(1, Settings::default());
        assert_eq!(import(&mut book, std::slice::from_ref(&zone)), 1);
        let zones = [b"\x07example\x03com\0".to_vec()].into();
        let primaries = Arc::new(Primaries(vec![Primary { zones, ..Primary::default() }]));
        // Although the file is as it was.
        let refused = |imports: &[Import], book: &Book| {
            let edits = edits(imports, book, &mut Vec::new()).expect("each is right by itself");
            try_on(&mut book.clone(), edits).to_string()
        };
        let told = format!("{file}:2:1: example.com. is given by a primary");
        let reloaded = refused(&[Import::Primaries(primaries.clone()), zone.clone()], &book);
        assert!(reloaded.starts_with(&told), "{reloaded}");
        book.choose_primaries(primaries);
        let started = refused(std::slice::from_ref(&zone), &book);
        assert!(started.starts_with(&told), "{started}");
        assert_eq!(import(&mut book, &[Import::Primaries(Arc::default()), zone]), 1, "it is given no more");
    }

    #[test]
    fn a_zone_is_in_one_file() {
        let folder = Folder::new();
        let text = "$ORIGIN example.com.\n@ 60 SOA ns hm 1 2 3 4 5\n@ 60 NS ns\n";
        let files = ["one.zone", "two.zone"].map(|name| folder.write(name, text));
        let imports = files.clone().map(|file| Import::Zone(file.into()));
        let book = Book::empty(1, Settings::default());
        let faults = edits(&imports, &book, &mut Vec::new()).map(|_| ()).unwrap_err().to_string();
        let [one, two] = files;
        assert_eq!(faults, format!("{two}: example.com. is in {one}, too; expected each zone in one file"));
    }

    #[test]
    fn a_policy_is_in_one_file() {
        let folder = Folder::new();
        let policy = |name: &str| {
            format!("{{\"names\": [\"{name}\"], \"servers\": [{{\"address\": \"192.0.2.1\"}}]}}")
        };
        let one = folder.write("one.json", policy("www.example.com"));
        let two = folder.write("two.json", policy("WWW.example.com."));
        let zone = folder.write("one.zone", "$ORIGIN example.com.\n@ 60 SOA ns hm 1 2 3 4 5\n@ 60 NS ns\n");
        let imports = |policies: &[&String]| -> Vec<Import> {
            let policies = policies.iter().map(|file| Import::Policy(file.into()));
            [Import::Zone((&zone).into())].into_iter().chain(policies).collect()
        };
        let mut book = Book::empty(1, Settings::default());
        assert_eq!(import(&mut book, &imports(&[&one])), 2);
        // Also where one of them is what was imported before.
        let faults = edits(&imports(&[&one, &two]), &book, &mut Vec::new()).map(|_| ()).unwrap_err();
        let told =
            format!("{two}: the policy WWW.example.com. is in {one}, too; expected each policy in one file");
        assert_eq!(faults.to_string(), told);
    }

    #[test]
    fn a_policy_is_not_blamed_for_its_partitions_faults() {
        let folder = Folder::new();
        let zone = folder.write("one.zone", "$ORIGIN example.com.\n@ 60 SOA ns hm 1 2 3 4 5\n@ 60 NS ns\n");
        let lines = folder.write("topology.csv", "10.0.0.0/8,eu\n192.0.2.0/33,us\n");
        let policy = |partition: &str, servers: &str| {
            let text = r#"{"names": ["www.example.com"], "partition": "PARTITION", "servers": [SERVERS]}"#;
            folder.write("www.json", text.replace("PARTITION", partition).replace("SERVERS", servers))
        };
        let told = |name: &str, policy: String| {
            let topology = Import::Partition { name: name.into(), layers: vec![Layer::Csv((&lines).into())] };
            let imports = [Import::Zone((&zone).into()), topology, Import::Policy((&policy).into())];
            let book = Book::empty(1, Settings::default());
            edits(&imports, &book, &mut Vec::new()).map(|_| ()).unwrap_err().to_string()
        };
        let server = r#"{"address": "192.0.2.1", "regions": {"eu": {"probability": 1}}}"#;
        let cause = format!("{lines}:2:11: ");
        for name in ["topology", "default"] {
            let told = told(name, policy(name, server));
            assert!(told.starts_with(&cause) && told.lines().count() == 1, "{told}");
        }
        // What is its own fault is told beside it.
        for (partition, servers, own) in [
            ("topology", format!("{server}, {server}"), "the server 192.0.2.1 is listed twice"),
            ("nowhere", server.to_owned(), "there is no partition 'nowhere'"),
        ] {
            let told = told("topology", policy(partition, &servers));
            assert!(told.starts_with(&cause) && told.contains(own), "{told}");
            assert_eq!(told.lines().count(), 2, "{told}");
        }
    }

    #[test]
    fn what_a_store_of_an_older_program_remembers_is_not_imported_again() {
        let folder = Folder::new();
        let a = folder.write("a.csv", "10.0.0.0/8,eu\n");
        let mut book = Book::empty(1, Settings::default());
        let path = format!("{a} as partition default");
        let digest = Etag::of(b"10.0.0.0/8,eu\n").0;
        book.apply(Edit::Imported { path, digest }).unwrap();
        assert_eq!(import(&mut book, &[csv(&[&a])]), 0);
        folder.write("a.csv", "10.0.0.0/9,eu\n");
        assert_eq!(import(&mut book, &[csv(&[&a])]), 2);
    }

    #[test]
    fn an_empty_layer_is_told_with_its_file() {
        let folder = Folder::new();
        let full = folder.write("full.csv", "10.0.0.0/8,eu\n");
        let ranks = folder.write("ranks.csv", "@eu,192.0.2.1,1\n");
        let empty = folder.write("empty.csv", "prefix,region\n");
        let mut book = Book::empty(1, Settings::default());
        assert_eq!(import(&mut book, &[csv(&[&full])]), 2);
        for files in [&[&empty][..], &[&empty, &full]] {
            let files: Vec<&str> = files.iter().map(|file| file.as_str()).collect();
            let faults = edits(&[csv(&files)], &book, &mut Vec::new()).map(|_| ()).unwrap_err().to_string();
            assert!(faults.starts_with(&format!("{empty}: no prefix in it; expected")), "{faults}");
            assert_eq!(faults.lines().count(), 1, "{faults}");
        }
        assert_eq!(import(&mut book, &[csv(&[&ranks, &full])]), 1, "ranks may have a file of their own");
    }

    #[test]
    fn a_name_that_no_region_can_have_is_told_with_its_line() {
        let folder = Folder::new();
        let file = folder.write("c.csv", "10.0.0.0/8,eu\n192.0.2.0/24,New York\n");
        let book = Book::empty(1, Settings::default());
        let faults = edits(&[csv(&[&file])], &book, &mut Vec::new()).map(|_| ()).unwrap_err().to_string();
        assert!(faults.starts_with(&format!("{file}:2:14: unknown region 'New York'; expected")), "{faults}");
        assert_eq!(faults.lines().count(), 1, "{faults}");
    }
}
