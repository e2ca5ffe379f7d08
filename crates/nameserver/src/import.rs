//! Files that are imported at start and on reload, where their content changed.
//!
//! The store is the truth: an import is an edit like any other, and what no file names stays.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::{Fault, Faults};
use routing::partition::Rank;
use routing::proximity::csv;
use routing::proximity::mmdb::{self, Codes, Field};
use routing::{Partition, Prefix, RegionId};
use store::Contents;

use crate::as_path;
use crate::book::{Book, Edit, Etag, Refused, check_name};
use crate::cookies::Secrets;
use crate::generation::Settings;
use crate::health::Probes;
use crate::names::NameHash;
use crate::transfer::Secondaries;
use crate::zone::Zone;
use crate::zone::read::{self, Master};

/// The rights that nobody may have to a file with secrets: the group to write it, others any.
const SECRET_MODE_FORBIDDEN: u32 = 0o027;

/// A file to import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Import {
    /// A master file. A zone without `$ORIGIN` is named as its file is, less `.zone` or `.db`.
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
}

/// A source of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layer {
    /// A file of `prefix,region` lines.
    Csv(PathBuf),
    /// A MaxMind database.
    Mmdb {
        /// The database.
        path: PathBuf,
        /// `code,region` lines. Beside this file the regions' numbers are written back.
        regions: PathBuf,
        /// Which of the database's fields is the code.
        field: Field,
    },
    /// A BGP table, and the servers whose distance in AS hops decides.
    AsPath {
        /// The table in MRT.
        table: PathBuf,
        /// The servers.
        servers: Vec<as_path::Server>,
        /// Which link is whose: then only paths without valleys count.
        relations: Option<PathBuf>,
    },
    /// An external proximity service, for all that is left.
    Ask,
}

impl Layer {
    /// What it is, in a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Layer::Csv(_) => "csv",
            Layer::Mmdb { .. } => "mmdb",
            Layer::AsPath { .. } => "as-path",
            Layer::Ask => "external",
        }
    }

    /// What faults call it: its first file.
    fn source(&self) -> String {
        match self {
            Layer::Csv(path) | Layer::Mmdb { path, .. } | Layer::AsPath { table: path, .. } => shown(path),
            Layer::Ask => "ask".into(),
        }
    }

    /// All that it is made from, so that equal content has an equal tag.
    fn content(&self) -> Result<Vec<Vec<u8>>, Faults> {
        let files: Vec<&PathBuf> = match self {
            Layer::Csv(path) => vec![path],
            Layer::Mmdb { path, regions, .. } => vec![path, regions],
            Layer::AsPath { table, relations, .. } => [table].into_iter().chain(relations).collect(),
            Layer::Ask => Vec::new(),
        };
        let mut faults = Faults::default();
        let mut contents = Vec::with_capacity(files.len());
        for file in files {
            match load(file) {
                Ok(content) => contents.push(content),
                Err(found) => faults.append(found),
            }
        }
        faults.or(contents)
    }

    /// What beside the files decides what becomes of them.
    fn choices(&self) -> String {
        match self {
            Layer::Csv(_) | Layer::Ask => String::new(),
            Layer::Mmdb { field, .. } => format!("{field:?}"),
            Layer::AsPath { servers, relations, .. } => format!("{servers:?}{}", relations.is_some()),
        }
    }
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

/// What came of reading a partition's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// They are what was read before.
    Same,
    /// They were read; with what was counted, each by its name.
    Read(Vec<(&'static str, u64)>),
    /// They were not; with the first fault.
    Failed(String),
}

/// Reads and compiles everything aside, on what is `stored`; beside the probes and secondaries of a configuration.
///
/// # Errors
/// All faults of all files, or of what is stored.
pub fn check(
    imports: &[Import],
    probes: &Probes,
    secondaries: &Secondaries,
    stored: Contents,
) -> Result<(), Faults> {
    let mut book = Book::load(stored, 0, Settings::default())?;
    (book.probes, book.secondaries) = (Arc::new(probes.clone()), Arc::new(secondaries.clone()));
    let edits = edits(imports, &book, &mut Vec::new())?;
    try_on(book, edits).or(())
}

/// The edits that the files ask for and that `book` has not had yet: zones first, then partitions, then
/// policies, as each needs the ones before. `loading` gets how each partition's reading went.
///
/// # Errors
/// Files that cannot be read, and the faults of all others. Where there are none so far, what an edit means
/// beside the others shows when they are made.
pub fn edits(imports: &[Import], book: &Book, loading: &mut Vec<Loading>) -> Result<Vec<Edit>, Faults> {
    let mut out = Edits {
        book,
        edits: Vec::new(),
        regions: book.regions.clone(),
        next_region_id: book.next_region_id,
        zones: BTreeMap::new(),
        loading,
        faults: Faults::default(),
    };
    let order = |import: &&Import| match import {
        Import::Zone(_) => 0,
        Import::Partition { .. } => 1,
        Import::Policy(_) => 2,
        Import::CookieSecrets(_) => 3,
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
    out.faults.append(try_on(book.clone(), out.edits));
    Err(out.faults)
}

/// What is wrong with edits that are made one after the other.
fn try_on(mut book: Book, edits: Vec<Edit>) -> Faults {
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
    edits: Vec<Edit>,
    /// The regions that there are, and those that an edit before adds.
    regions: Arc<BTreeMap<u32, String>>,
    next_region_id: u32,
    /// The zones so far, each with its file.
    zones: BTreeMap<String, String>,
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
                        Outcome::Failed(faults.faults.first().map(ToString::to_string).unwrap_or_default())
                    }
                };
                let sources = layers.iter().map(Layer::kind).collect();
                self.loading.push(Loading { name: name.clone(), sources, outcome });
                read.map(|_| ())
            }
            Import::Policy(path) => {
                let (source, text) = (shown(path), load(path)?);
                if let Some(imported) = self.news(source.clone(), None, &Etag::of(&text)) {
                    self.edits.extend([Edit::policy(None, &source, text, None)?, imported]);
                }
                Ok(())
            }
            Import::CookieSecrets(path) => self.cookie_secrets(path),
        }
    }

    fn cookie_secrets(&mut self, path: &Path) -> Result<(), Faults> {
        let secrets = Secrets::read(&shown(path), &load_secret(path)?)?;
        if secrets != *self.book.generation.secrets {
            self.edits.push(Edit::CookieSecrets(secrets));
        }
        Ok(())
    }

    fn zone(&mut self, path: &Path) -> Result<(), Faults> {
        let source = shown(path);
        let (zone, master) = read_zone(path, &load(path)?, &self.book.generation.hash)?;
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
        if let Some(imported) = self.news(format!("zone {origin}"), Some(&former), &digest) {
            let (zone, master) = (Box::new(zone), Arc::new(master));
            self.edits.extend([Edit::PutZone { zone, master, if_match: None }, imported]);
        }
        Ok(())
    }

    fn partition(&mut self, name: &str, layers: &[Layer]) -> Result<Outcome, Faults> {
        let mut faults = Faults::default();
        let mut contents = Vec::with_capacity(layers.len());
        let mut digested = Vec::new();
        for layer in layers {
            match layer.content() {
                Ok(content) => {
                    digested.extend(content.iter().flatten());
                    digested.extend(layer.choices().into_bytes());
                    contents.push(content);
                }
                Err(found) => faults.append(found),
            }
        }
        faults.or(())?;
        let paths: Vec<String> = layers.iter().map(Layer::source).collect();
        let source = paths.join(" and ");
        // A table of routes takes seconds to read: not when it is the one that was read before.
        let former = format!("{source} as partition {name}");
        let imported = self.news(format!("partition {name}"), Some(&former), &Etag::of(&digested));
        let Some(imported) = imported else { return Ok(Outcome::Same) };
        drop(digested);
        let regions = Provisional::default();
        let built = stack(layers, contents, &regions)?;
        let regions = regions.0.into_inner().names;
        for region in regions {
            if !self.regions.values().any(|known| *known == region) {
                Arc::make_mut(&mut self.regions).insert(self.next_region_id, region.clone());
                self.next_region_id += 1;
                self.edits.push(Edit::AddRegion { name: region });
            }
        }
        let (text, regions) = (built.text.into_bytes(), self.regions.clone());
        self.edits.extend([Edit::partition(name, &source, text, None, regions)?, imported]);
        Ok(Outcome::Read(built.counts))
    }

    /// What is to be remembered with an import, unless it is `what` was imported last: the content counts, whichever file it is
    /// from. A store of an older program remembers it as `former`.
    fn news(&self, what: String, former: Option<&str>, digest: &Etag) -> Option<Edit> {
        let imports = &self.book.imports;
        let last = imports.get(&what).or_else(|| imports.get(former?));
        (last != Some(&digest.0)).then(|| Edit::Imported { path: what, digest: digest.0.clone() })
    }
}

/// A partition that was made from its layers.
struct Built {
    text: String,
    counts: Vec<(&'static str, u64)>,
}

/// Makes one partition of all layers. A single file of lines stays as it is.
fn stack(layers: &[Layer], contents: Vec<Vec<Vec<u8>>>, regions: &Provisional) -> Result<Built, Faults> {
    let mut faults = Faults::default();
    let mut counts = Vec::new();
    let mut compiled: Vec<Partition> = Vec::new();
    for (layer, content) in layers.iter().zip(contents) {
        let is_alone = layers.len() == 1;
        let text = match text(layer, content, regions) {
            Ok(built) => {
                counts.extend(built.counts);
                built.text
            }
            Err(found) => {
                faults.append(found);
                continue;
            }
        };
        let source = layer.source();
        let entries = csv::read(&source, &text, &|region| regions.id(region));
        let ranks = csv::ranks(&source, &text, &|region| regions.id(region));
        match (entries, ranks) {
            (Ok(_), Ok(_)) if is_alone => return Ok(Built { text, counts }),
            (Ok(entries), Ok(ranks)) => compiled.push(Partition::compile(entries).with_ranks(ranks)),
            (entries, ranks) => {
                [entries.err(), ranks.err()].into_iter().flatten().for_each(|found| faults.append(found));
            }
        }
    }
    faults.or(())?;
    let names = &regions.0.borrow().names;
    let name = |region: RegionId| names.get((region.get() as usize).wrapping_sub(1)).map(String::as_str);
    let ranks: Vec<Rank> = compiled.iter().flat_map(|layer| layer.ranks().iter().copied()).collect();
    let ranks = Partition::default().with_ranks(ranks);
    let text = csv::write_ranks(ranks.ranks(), &name) + &csv::write(&Partition::stack(&compiled), &name);
    Ok(Built { text, counts })
}

/// A layer as a text of prefixes and regions.
fn text(layer: &Layer, mut content: Vec<Vec<u8>>, regions: &Provisional) -> Result<Built, Faults> {
    let source = layer.source();
    match layer {
        Layer::Csv(_) => Ok(Built { text: utf8(&source, content.remove(0))?, counts: Vec::new() }),
        Layer::Ask => {
            let text = format!("0.0.0.0/0,{0}\n::/0,{0}\n", csv::ASK);
            Ok(Built { text, counts: Vec::new() })
        }
        Layer::Mmdb { regions: codes, field, .. } => {
            let codes_source = shown(codes);
            let lines = utf8(&codes_source, content.remove(1))?;
            let codes = Codes::read(&codes_source, &lines, *field, &|region| regions.id(region))?;
            let entries: Vec<(Prefix, RegionId)> = mmdb::read(&source, &content[0], &codes)?;
            let names = &regions.0.borrow().names;
            let name =
                |region: RegionId| names.get((region.get() as usize).wrapping_sub(1)).map(String::as_str);
            Ok(Built { text: csv::write(&entries, &name), counts: Vec::new() })
        }
        Layer::AsPath { servers, relations, .. } => {
            let relations_source = relations.as_deref().map(shown);
            let relations = relations_source.as_ref().zip(content.get(1));
            let relations = relations.map(|(name, octets)| as_path::Source { name, octets });
            let table = as_path::Source { name: &source, octets: &content[0] };
            let built = as_path::build(table, relations, servers)?;
            Ok(Built { text: built.text, counts: built.counts })
        }
    }
}

/// Writes the regions' numbers beside the files that say which code is in which region, as the control process of the
/// MyXDNS paper does (§5.1): `FILE.ids`, of lines `region,id`.
///
/// # Errors
/// Files that cannot be written, each with its cause; the others are.
pub fn write_ids(imports: &[Import], book: &Book) -> Result<(), Vec<String>> {
    let ids: BTreeMap<&str, u32> = book.regions.iter().map(|(id, name)| (name.as_str(), *id)).collect();
    let partitions = imports.iter().filter_map(|import| match import {
        Import::Partition { layers, .. } => Some(layers),
        _ => None,
    });
    let mut failed = Vec::new();
    for layer in partitions.flatten() {
        let Layer::Mmdb { regions, field, .. } = layer else { continue };
        if let Err(what) = write_ids_of(regions, *field, &ids) {
            failed.push(format!("{}.ids: {what}", shown(regions)));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed) }
}

fn write_ids_of(codes: &Path, field: Field, ids: &BTreeMap<&str, u32>) -> Result<(), String> {
    let text = fs::read_to_string(codes).map_err(|cause| cause.to_string())?;
    let named = RefCell::new(BTreeSet::new());
    let note = |region: &str| {
        named.borrow_mut().insert(region.to_string());
        RegionId::new(1)
    };
    Codes::read(&shown(codes), &text, field, &note).map_err(|faults| faults.to_string())?;
    let mut lines = String::from("# The numbers of the regions, written by pointsman.\nregion,id\n");
    for region in named.into_inner() {
        if let Some(id) = ids.get(region.as_str()) {
            lines.push_str(&format!("{region},{id}\n"));
        }
    }
    let mut beside = codes.as_os_str().to_owned();
    beside.push(".ids");
    if fs::read_to_string(&beside).is_ok_and(|before| before == lines) {
        return Ok(());
    }
    let mut part = beside.clone();
    part.push(".part");
    // Whoever reads it finds it whole.
    fs::write(&part, lines).and_then(|()| fs::rename(&part, &beside)).map_err(|cause| cause.to_string())
}

/// Regions by the order in which files name them, before they have ids of their own.
#[derive(Default)]
struct Provisional(RefCell<Named>);

#[derive(Default)]
struct Named {
    names: Vec<String>,
    ids: HashMap<String, RegionId>,
}

impl Provisional {
    /// The id of a region of this name; `None` where no region can have it.
    fn id(&self, name: &str) -> Option<RegionId> {
        let mut named = self.0.borrow_mut();
        if let Some(id) = named.ids.get(name) {
            return Some(*id);
        }
        check_name(name).ok()?;
        let id = RegionId::new(named.names.len() as u32 + 1)?;
        named.names.push(name.into());
        named.ids.insert(name.into(), id);
        Some(id)
    }
}

fn read_zone(path: &Path, text: &[u8], hash: &NameHash) -> Result<(Zone, Master<'static>), Faults> {
    let source = shown(path);
    let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
    let include = |file: &str| fs::read(folder.join(file)).map_err(|cause| cause.to_string());
    let origin = origin_of_file(path);
    let read = read::Source { name: &source, text, origin: origin.as_deref(), include: &include };
    let master = read::read(&read)?;
    Ok((Zone::build(&master, &source, hash)?, master))
}

/// The origin that a file's name gives, in wire form: `example.com` for `example.com.zone`, `example.com.db` and
/// `example.com`. `None` where that is no name.
pub fn origin_of_file(path: &Path) -> Option<Vec<u8>> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_suffix(".zone").or_else(|| name.strip_suffix(".db")).unwrap_or(name);
    dns::name::folded_from_text(name).ok()
}

fn load(path: &Path) -> Result<Vec<u8>, Faults> {
    fs::read(path)
        .map_err(|cause| Fault::whole(shown(path), format!("the file cannot be read: {cause}"), "").into())
}

/// Reads a file that only its owner may change, and only its owner and group may read.
fn load_secret(path: &Path) -> Result<Vec<u8>, Faults> {
    let mode = fs::metadata(path).map(|metadata| metadata.permissions().mode());
    if let Ok(mode) = mode
        && mode & SECRET_MODE_FORBIDDEN != 0
    {
        let what =
            format!("others than the file's owner and group have rights to it (mode {:o})", mode & 0o777);
        return Err(
            Fault::whole(shown(path), what, format!("mode 600 or 640: chmod 600 {}", shown(path))).into()
        );
    }
    load(path)
}

fn utf8(source: &str, text: Vec<u8>) -> Result<String, Faults> {
    String::from_utf8(text)
        .map_err(|cause| Fault::whole(source, format!("the text is not UTF-8: {cause}"), "").into())
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::transfer::{Secondaries, Secondary};
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
            assert_eq!(book.generation.zones.iter().next().unwrap().serial(), serial);
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
    fn a_name_that_no_region_can_have_is_told_with_its_line() {
        let folder = Folder::new();
        let file = folder.write("c.csv", "10.0.0.0/8,eu\n192.0.2.0/24,New York\n");
        let book = Book::empty(1, Settings::default());
        let faults = edits(&[csv(&[&file])], &book, &mut Vec::new()).map(|_| ()).unwrap_err().to_string();
        assert!(faults.starts_with(&format!("{file}:2:14: unknown region 'New York'; expected")), "{faults}");
        assert_eq!(faults.lines().count(), 1, "{faults}");
    }
}
