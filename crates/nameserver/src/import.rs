//! Files that are imported at start and on reload, where their content changed.
//!
//! The store is the truth: an import is an edit like any other, and what no file names stays.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use api::{Fault, Faults};
use routing::proximity::csv;
use routing::proximity::mmdb::{self, Codes, Field};
use routing::{Prefix, RegionId};

use crate::book::{Book, Edit, Etag, Refused};
use crate::cookies::Secrets;
use crate::generation::Settings;
use crate::names::NameHash;
use crate::zone::{Zone, read};

/// The rights that nobody may have to a file with secrets: the group to write it, others any.
const SECRET_MODE_FORBIDDEN: u32 = 0o027;

/// A file to import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Import {
    /// A master file. A zone without `$ORIGIN` is named as its file is, less `.zone` or `.db`.
    Zone(PathBuf),
    /// A partition as `prefix,region` lines; regions that do not exist are added.
    Partition {
        /// The partition's name.
        name: String,
        /// The file.
        path: PathBuf,
    },
    /// A partition as a MaxMind database; regions that do not exist are added.
    Mmdb {
        /// The partition's name.
        name: String,
        /// The database.
        path: PathBuf,
        /// `code,region` lines.
        regions: PathBuf,
        /// Which of the database's fields is the code.
        field: Field,
    },
    /// A policy as JSON.
    Policy(PathBuf),
    /// The secrets of cookies; see [`Secrets::read`]. They never reach the store.
    CookieSecrets(PathBuf),
}

/// Reads and compiles everything aside, without a store.
///
/// # Errors
/// All faults of all files.
pub fn check(imports: &[Import]) -> Result<(), Faults> {
    let book = Book::empty(0, Settings::default());
    let edits = edits(imports, &book)?;
    try_on(book, edits).or(())
}

/// The edits that the files ask for and that `book` has not had yet: zones first, then partitions, then
/// policies, as each needs the ones before.
///
/// # Errors
/// Files that cannot be read, and the faults of all others. Where there are none so far, what an edit means
/// beside the others shows when they are made.
pub fn edits(imports: &[Import], book: &Book) -> Result<Vec<Edit>, Faults> {
    let mut out = Edits { book, edits: Vec::new(), regions: BTreeSet::new(), faults: Faults::default() };
    let order = |import: &&Import| match import {
        Import::Zone(_) => 0,
        Import::Partition { .. } | Import::Mmdb { .. } => 1,
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
    /// Regions that an edit before adds.
    regions: BTreeSet<String>,
    faults: Faults,
}

impl Edits<'_> {
    fn import(&mut self, import: &Import) -> Result<(), Faults> {
        match import {
            Import::Zone(path) => self.zone(path),
            Import::Partition { name, path } => self.partition(name, path),
            Import::Mmdb { name, path, regions, field } => self.mmdb(name, path, regions, *field),
            Import::Policy(path) => {
                let text = load(path)?;
                let edit = |source, text| Edit::PutPolicy { owner: None, source, text, if_match: None };
                self.add(path, Etag::of(&text), || edit(shown(path), text));
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
        let zone = read_zone(path, &load(path)?, &self.book.generation.hash)?;
        // What a file includes counts as its content too, so the zone itself is compared.
        let digest = Etag::of(zone.to_text().as_bytes());
        let origin = dns::name::to_text(zone.origin().wire());
        self.add_as(format!("{source} as {origin}"), digest, || Edit::PutZone {
            zone: Box::new(zone),
            if_match: None,
        });
        Ok(())
    }

    fn partition(&mut self, name: &str, path: &Path) -> Result<(), Faults> {
        let text = load(path)?;
        let source = shown(path);
        let regions = Provisional::default();
        let content = utf8(&source, &text)?;
        csv::read(&source, &content, &|region| regions.id(region))?;
        csv::ranks(&source, &content, &|region| regions.id(region))?;
        self.put_partition(name, path, Etag::of(&text), regions, source, text);
        Ok(())
    }

    fn mmdb(&mut self, name: &str, path: &Path, codes: &Path, field: Field) -> Result<(), Faults> {
        let (database, codes_text) = (load(path)?, load(codes)?);
        let digest = Etag::of(&[&database[..], &codes_text[..], format!("{field:?}").as_bytes()].concat());
        let regions = Provisional::default();
        let codes_source = shown(codes);
        let codes = Codes::read(&codes_source, &utf8(&codes_source, &codes_text)?, field, &|region| {
            regions.id(region)
        })?;
        let entries: Vec<(Prefix, RegionId)> = mmdb::read(&shown(path), &database, &codes)?;
        let names = regions.0.borrow().clone();
        let text = csv::write(&entries, &|region| names.get(region.get() as usize - 1).map(String::as_str));
        self.put_partition(name, path, digest, regions, shown(path), text.into_bytes());
        Ok(())
    }

    fn put_partition(
        &mut self,
        name: &str,
        path: &Path,
        digest: Etag,
        regions: Provisional,
        source: String,
        text: Vec<u8>,
    ) {
        let missing: Vec<String> = regions
            .0
            .into_inner()
            .into_iter()
            .filter(|region| self.book.region_id(region).is_none() && !self.regions.contains(region))
            .collect();
        let before = self.edits.len();
        self.add_as(format!("{} as partition {name}", shown(path)), digest, || Edit::PutPartition {
            name: name.into(),
            source,
            text,
            if_match: None,
        });
        if self.edits.len() > before {
            self.regions.extend(missing.iter().cloned());
            let added = missing.into_iter().map(|name| Edit::AddRegion { name });
            self.edits.splice(before..before, added);
        }
    }

    fn add(&mut self, path: &Path, digest: Etag, edit: impl FnOnce() -> Edit) {
        self.add_as(shown(path), digest, edit);
    }

    /// Adds an edit, unless the same content was imported before.
    fn add_as(&mut self, path: String, digest: Etag, edit: impl FnOnce() -> Edit) {
        if self.book.imports.get(&path) != Some(&digest.0) {
            self.edits.push(edit());
            self.edits.push(Edit::Imported { path, digest: digest.0 });
        }
    }
}

/// Regions by the order in which a file names them, before they have ids of their own.
#[derive(Default)]
struct Provisional(RefCell<Vec<String>>);

impl Provisional {
    fn id(&self, name: &str) -> Option<RegionId> {
        let mut names = self.0.borrow_mut();
        let index = names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(name.into());
            names.len() - 1
        });
        RegionId::new(index as u32 + 1)
    }
}

fn read_zone(path: &Path, text: &[u8], hash: &NameHash) -> Result<Zone, Faults> {
    let source = shown(path);
    let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
    let include = |file: &str| fs::read(folder.join(file)).map_err(|cause| cause.to_string());
    let origin = origin_of_file(path);
    let read = read::Source { name: &source, text, origin: origin.as_deref(), include: &include };
    Zone::build(&read::read(&read)?, &source, hash)
}

/// The origin that a file's name gives: `example.com` for `example.com.zone`.
fn origin_of_file(path: &Path) -> Option<Vec<u8>> {
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

fn utf8(source: &str, text: &[u8]) -> Result<String, Faults> {
    String::from_utf8(text.to_vec())
        .map_err(|cause| Fault::whole(source, format!("the text is not UTF-8: {cause}"), "").into())
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
