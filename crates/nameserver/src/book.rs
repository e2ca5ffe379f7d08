//! The book: what a generation was made from, and how each edit makes the next one.
//!
//! A book is a value of shared parts, as the generation in it is: a copy costs little, so every edit is tried
//! on a copy, and one that is refused leaves nothing behind.

mod catalogs;
mod condition;
mod following;
mod members;
mod partitions;
mod policies;
mod refused;
mod regions;
mod serials;
mod signing;
mod zones;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::place::Origin;
use api::{Fault, Faults, Target, file};
use dns::Folded;
use routing::RegionId;
use store::{Change, Contents};

use crate::cookies::Secrets;
use crate::generation::{Generation, Settings};
use crate::health::record::Record;
use crate::health::{Probes, Table};
use crate::names::NameHash;
use crate::signing::Signing;
use crate::transfer::{Primaries, Secondaries};
use crate::zone::read::{self, Master};
use crate::zone::{Changed, Difference, Operation, Renewal, Update, View, Zone, push_record};
pub use condition::{Condition, Etag};
pub use members::Listed;
pub use partitions::Partitioned;
pub use refused::{Refused, Unmade};
pub use serials::Raised;

/// The partition that policies use where they name none. It is always there, empty at first.
pub const DEFAULT_PARTITION: &str = "default";

/// The longest name of a region or partition, in octets: they stand in tables, URLs and metrics.
pub const NAME_MAX: usize = 63;

/// A generation and all that it was made from.
#[derive(Clone)]
pub struct Book {
    /// What is served.
    pub generation: Generation,
    /// The regions' names by id.
    pub regions: Arc<BTreeMap<u32, String>>,
    /// The id that the next region gets.
    pub next_region_id: u32,
    /// The partitions by name.
    pub partitions: Arc<BTreeMap<String, Arc<Partitioned>>>,
    /// What the operator said of servers: whether they may be drawn.
    pub servers: Arc<BTreeMap<Target, bool>>,
    /// The digests of what was imported, by what it is.
    pub imports: Arc<BTreeMap<String, String>>,
    /// Who follows which zone: their serial numbers must grow.
    pub secondaries: Arc<Secondaries>,
    /// Who gives us which zone: nobody else may change it, nor one that a catalog of theirs lists.
    pub primaries: Arc<Primaries>,
    /// What is signed by; nothing is known of it before the start is over.
    pub signing: Option<Arc<Signing>>,
    /// Zones whose proofs tell of other types at names of policies than these answer, until [`Book::sign_proofs`].
    unproven: BTreeSet<Box<[u8]>>,
    /// The serial number that a catalog begins with which is made here: greater than any that was lost with a store.
    pub first_serial: u32,
    /// The probes that policies may name.
    pub probes: Arc<Probes>,
    /// Whether zones may have been deleted since the start: a new one may have the serial number of one that secondaries
    /// still have.
    pub zones_were_deleted: bool,
}

/// What faults call the text of a zone after an update.
const UPDATE: &str = "update";

/// One edit; what it takes long to prepare has been prepared.
#[derive(Clone)]
pub enum Edit {
    /// Puts a zone.
    PutZone {
        /// The zone, without its policies.
        zone: Box<Zone>,
        /// Its canonical text; absent where that is longer than what can be stored.
        text: Option<Arc<str>>,
        /// What it was read from, for the places of faults.
        master: Arc<Master<'static>>,
        /// What must hold for the zone that has this origin now.
        condition: Condition,
        /// The zone that it was made of: whose records those must be that are here now.
        since: Option<Arc<Zone>>,
        /// Whether its primary gave it; who has one takes it of nobody else.
        by_primary: bool,
    },
    /// Puts a zone of which some owners have other records.
    ChangeZone {
        /// The zone, with the policies that it had.
        zone: Box<Zone>,
        /// What is other.
        renewal: Arc<Renewal>,
        /// The zone that it was made of: whose records those must be that are here now.
        since: Arc<Zone>,
        /// Whether its primary gave it.
        by_primary: bool,
    },
    /// Deletes a zone.
    DeleteZone {
        /// Its name.
        origin: String,
        /// What must hold for it now.
        condition: Condition,
    },
    /// Adds a region.
    AddRegion {
        /// A name that no region has.
        name: String,
    },
    /// Adds those regions that there are not yet.
    HaveRegions {
        /// Their names.
        names: Vec<String>,
    },
    /// Removes a region.
    RemoveRegion {
        /// Its id.
        id: u32,
    },
    /// Puts a partition.
    PutPartition {
        /// Its name.
        name: String,
        /// What faults call the text.
        source: String,
        /// What it becomes, as long as the regions are these.
        compiled: Arc<Partitioned>,
        /// The regions by whose ids it was compiled.
        regions: Arc<BTreeMap<u32, String>>,
        /// What must hold for the partition of this name now.
        condition: Condition,
    },
    /// Deletes a partition.
    DeletePartition {
        /// Its name.
        name: String,
        /// What must hold for it now.
        condition: Condition,
    },
    /// Puts a policy.
    PutPolicy {
        /// Its key, which the names in the text add to; without one, the first of those is it.
        owner: Option<String>,
        /// What faults call the text.
        source: String,
        /// The JSON that it was read from.
        text: String,
        /// The policy.
        spec: Box<api::Policy>,
        /// What must hold for the policy of this key now.
        condition: Condition,
    },
    /// Deletes a policy.
    DeletePolicy {
        /// Its first name.
        owner: String,
        /// What must hold for it now.
        condition: Condition,
    },
    /// Sets whether a server may be drawn.
    SetServer {
        /// The server.
        server: Target,
        /// Whether it may be drawn.
        up: bool,
    },
    /// Sets what cookies are made and checked with from now on. It is not stored: who starts the server gives it.
    CookieSecrets(Secrets),
    /// Sets whether a zone may not be answered from, as its primary does not confirm it. It is not stored: who starts the
    /// server asks anew.
    Expired {
        /// The zone's name.
        zone: Box<Folded>,
        /// Whether it may not.
        expired: bool,
    },
    /// Sets who follows which zone. It is not stored either.
    Secondaries(Arc<Secondaries>),
    /// Sets who gives us which zone. Nor is this stored.
    Primaries(Arc<Primaries>),
    /// Has those zones that catalogs list, and no longer those that they do not; and has catalogs that are made here list
    /// what they should.
    Catalogs,
    /// Sets what is signed by in signed zones. Nor is this stored.
    Signing(Arc<Signing>),
    /// Sets which zones are answered from at which address. Nor is this stored.
    Views(Arc<[View]>),
    /// Remembers what was imported.
    Imported {
        /// What: a zone or a partition by its name, or a policy's file.
        path: String,
        /// What stands for its content.
        digest: String,
    },
    /// Panics.
    #[cfg(test)]
    Panic,
}

impl Edit {
    /// Prepares to put a zone that is given as a master file, which may include nothing.
    ///
    /// # Errors
    /// All faults of the text; an origin that is no name, or another one than the SOA record's.
    pub fn zone(origin: &str, text: &[u8], condition: Condition, hash: &NameHash) -> Result<Edit, Faults> {
        const SOURCE: &str = "body";
        Edit::zone_from(SOURCE, &folded(origin, SOURCE)?, text, condition, hash)
    }

    /// Prepares to put a zone of a book as it is after an update, where it is as it was there when that is made; `None` where
    /// the update changes nothing.
    ///
    /// # Errors
    /// A prerequisite that does not hold; a zone that is not there, or would not be right.
    pub fn updated_zone(book: &Book, origin: &Folded, update: &Update) -> Result<Option<Edit>, Unmade> {
        let hash = &book.generation.hash;
        let zone = book.generation.zones.all().get(origin, hash);
        let zone = zone.ok_or_else(|| Refused::NotFound(format!("zone {origin:?}")))?;
        let Some(renewal) = zone.updated(update, hash).map_err(Unmade::Unmet)? else { return Ok(None) };
        check_added(zone, update)?;
        let renewed = if zone.is_in_lines() { zone.renewed(&renewal, hash) } else { None };
        if let Some(renewed) = renewed {
            let (zone, since) = (Box::new(renewed), zone.clone());
            let renewal = Arc::new(renewal);
            return Ok(Some(Edit::ChangeZone { zone, renewal, since, by_primary: false }));
        }
        let text = zone.renewed_text(&renewal);
        let master = match read::read_canonical(UPDATE, text.as_bytes()) {
            Some(master) => master,
            // It tells what is wrong.
            None => read_update(&text)?,
        };
        let updated = Zone::build(&master, UPDATE, hash)?;
        Ok(Some(Edit::PutZone {
            zone: Box::new(updated),
            master: Arc::new(master.into_owned()),
            text: Some(text.into()).filter(|text: &Arc<str>| text.len() <= store::TEXT_MAX),
            condition: Condition::Always,
            since: Some(zone.clone()),
            by_primary: false,
        }))
    }

    fn zone_from(
        source: &str,
        origin: &Folded,
        text: &[u8],
        condition: Condition,
        hash: &NameHash,
    ) -> Result<Edit, Faults> {
        let (zone, master) = read_zone(source, origin, text, hash)?;
        Ok(Edit::put_zone(zone, master, condition, false))
    }

    /// Puts a zone that was read from a master file.
    pub(crate) fn put_zone(
        zone: Zone,
        master: Master<'static>,
        condition: Condition,
        by_primary: bool,
    ) -> Edit {
        let text = zone.to_text_within(store::TEXT_MAX).map(Arc::from);
        Edit::PutZone {
            zone: Box::new(zone),
            text,
            master: Arc::new(master),
            condition,
            since: None,
            by_primary,
        }
    }

    /// Prepares to put a zone as its primary gave it; `source` is what faults call the text.
    ///
    /// # Errors
    /// As [`Edit::zone`].
    pub fn given_zone(source: &str, origin: &Folded, text: &[u8], hash: &NameHash) -> Result<Edit, Faults> {
        let mut edit = Edit::zone_from(source, origin, text, Condition::Always, hash)?;
        if let Edit::PutZone { by_primary, .. } = &mut edit {
            *by_primary = true;
        }
        Ok(edit)
    }

    /// Prepares to put a zone after what its primary changed of it; `source` is what faults call that.
    ///
    /// # Errors
    /// Where the differences are not of this zone; faults as of [`Edit::given_zone`].
    pub fn given_changes(
        source: &str,
        since: &Arc<Zone>,
        differences: &[Difference],
        hash: &NameHash,
    ) -> Result<Edit, Faults> {
        let origin = since.origin();
        let misfit = |what| Faults::from(Fault::whole(source, what, "what changed of the zone that is here"));
        if since.is_in_lines() && since.is_renewable() {
            let (part, owners) = since.changed_part(differences, hash).map_err(misfit)?;
            // What a zone may not have, it has at one name: a part of it has the same faults.
            let (part, _) = read_zone(source, origin, part.as_bytes(), hash)?;
            let renewal = Renewal::of_part(&part, owners, hash);
            let renewed = renewal.and_then(|renewal| Some((since.renewed(&renewal, hash)?, renewal)));
            if let Some((zone, renewal)) = renewed {
                let (zone, renewal, since) = (Box::new(zone), Arc::new(renewal), since.clone());
                return Ok(Edit::ChangeZone { zone, renewal, since, by_primary: true });
            }
        }
        let text = since.changed(differences, hash).map_err(misfit)?;
        Edit::given_zone(source, origin, text.as_bytes(), hash)
    }

    /// Prepares to put a partition that is given as `prefix,region` lines, of these `regions`; `source` is what faults call
    /// the text. Where the regions are others by the time that the edit is made, it is compiled again.
    ///
    /// # Errors
    /// All faults of the name and of the text.
    pub fn partition(
        name: &str,
        source: &str,
        text: Vec<u8>,
        condition: Condition,
        regions: Arc<BTreeMap<u32, String>>,
    ) -> Result<Edit, Faults> {
        let mut faults = check_name(name).err().map(Faults::from).unwrap_or_default();
        let text = file::text(source, text).map_err(Faults::from);
        if let Ok(text) = &text {
            faults.append(partitions::zeros(source, text));
        }
        match text.and_then(|text| Partitioned::compile(source, text, &regions)) {
            Ok(compiled) => faults.or(Edit::PutPartition {
                name: name.into(),
                source: source.into(),
                compiled: Arc::new(compiled),
                regions,
                condition,
            }),
            Err(found) => {
                faults.append(found);
                Err(faults)
            }
        }
    }

    /// Prepares to put a policy that is given as JSON, under `owner` or else its first name; `source` is what faults call
    /// the text.
    ///
    /// # Errors
    /// All faults of the text's form. What is wrong with its meaning shows when the edit is made.
    pub fn policy(
        owner: Option<&str>,
        source: &str,
        text: Vec<u8>,
        condition: Condition,
    ) -> Result<Edit, Faults> {
        let text = file::text(source, text)?;
        let spec = Box::new(api::Policy::read(source, &text)?);
        Ok(Edit::PutPolicy { owner: owner.map(Into::into), source: source.into(), text, spec, condition })
    }
}

impl Book {
    /// An empty book: generation 0.
    pub fn empty(seed: u64, settings: Settings) -> Book {
        Book::load(Contents::default(), seed, settings).expect("an empty store has no faults")
    }

    /// Makes the book of what is stored.
    ///
    /// # Errors
    /// Everything stored that cannot be served, which another program must have written.
    pub fn load(contents: Contents, seed: u64, settings: Settings) -> Result<Book, Faults> {
        let mut book = Book {
            generation: Generation::empty(seed, settings),
            regions: Arc::default(),
            next_region_id: 1,
            partitions: Arc::default(),
            servers: Arc::default(),
            imports: Arc::default(),
            secondaries: Arc::default(),
            primaries: Arc::default(),
            signing: None,
            unproven: BTreeSet::new(),
            first_serial: 1,
            probes: Arc::default(),
            zones_were_deleted: false,
        };
        let held = contents.health.iter();
        let held = held.map(|(key, held)| (key.clone(), Record::remembered(held.failing, held.since)));
        book.generation.health = Arc::new(Table::remembering(held));
        book.fill(contents)?;
        Ok(book)
    }

    /// Fills a book that has neither zones, partitions nor policies.
    fn fill(&mut self, contents: Contents) -> Result<(), Faults> {
        let book = self;
        book.regions = Arc::new(contents.regions);
        book.next_region_id = contents.next_region_id;
        book.servers = Arc::new(contents.servers);
        book.imports = Arc::new(contents.imports);
        let mut faults = Faults::default();
        // The highest that any region ever had: beyond, none could be added any more.
        let last = contents.next_region_id - 1;
        if RegionId::new(last).is_none() {
            let (what, max) = (format!("the id {last} is too high, in use or not"), RegionId::MAX.get());
            faults.push(Fault::whole("stored region", what, format!("ids from 1 to {max}")));
        }
        for (origin, text) in contents.zones {
            book.load_zone(&origin, &text).unwrap_or_else(|found| faults.append(found));
        }
        for (name, text) in &contents.partitions {
            book.load_partition(name, text).unwrap_or_else(|found| faults.append(found));
        }
        for policy in contents.policies {
            book.load_policy(policy).unwrap_or_else(|found| faults.append(found));
        }
        book.mark_down();
        book.generation.number = contents.generation;
        faults.or(())
    }

    /// Goes by these primaries from now on: what they give is awaited until it comes.
    pub fn choose_primaries(&mut self, primaries: Arc<Primaries>) {
        self.primaries = primaries;
        self.mark_catalogs();
        self.list_given();
    }

    /// Goes by these secondaries from now on.
    pub fn choose_secondaries(&mut self, secondaries: Arc<Secondaries>) {
        self.secondaries = secondaries;
        self.mark_catalogs();
    }

    /// Sets whether a zone may not be answered from, as its primary does not confirm it.
    pub fn set_expired(&mut self, zone: &Folded, expired: bool) {
        self.change_zone(zone, |zone| zone.set_expired(expired));
    }

    /// Makes one edit; returns what has to be stored for it.
    ///
    /// # Errors
    /// [`Refused`]; the book may then be half changed and must be thrown away.
    pub fn apply(&mut self, edit: Edit) -> Result<Vec<Change>, Refused> {
        match edit {
            Edit::PutZone { zone, text, master, condition, since, by_primary } => {
                let origin = zone.origin().clone();
                self.check_given(&origin, Some(&master), by_primary)?;
                if let Some(since) = since {
                    self.check_unchanged(&since)?;
                }
                let mut changes = self.put_zone(*zone, text.as_deref(), &master, &condition)?;
                if !by_primary {
                    changes.extend(self.forget_member(&origin));
                }
                Ok(changes)
            }
            Edit::ChangeZone { zone, renewal, since, by_primary } => {
                let origin = zone.origin().clone();
                self.check_given(&origin, None, by_primary)?;
                self.check_unchanged(&since)?;
                let mut changes = self.change_owners(*zone, &renewal, &since)?;
                if !by_primary {
                    changes.extend(self.forget_member(&origin));
                }
                Ok(changes)
            }
            Edit::DeleteZone { origin, condition } => {
                let name = folded(&origin, "origin")?;
                self.check_given(&name, None, false)?;
                let mut changes = self.delete_zone(&origin, &condition)?;
                changes.extend(self.forget_member(&name));
                Ok(changes)
            }
            Edit::AddRegion { name } => self.add_region(name),
            Edit::HaveRegions { names } => self.have_regions(names),
            Edit::RemoveRegion { id } => self.remove_region(id),
            Edit::PutPartition { name, source, compiled, regions, condition } => {
                self.put_partition(name, &source, compiled, &regions, &condition)
            }
            Edit::DeletePartition { name, condition } => self.delete_partition(&name, &condition),
            Edit::PutPolicy { owner, source, text, spec, condition } => {
                let origin = Origin { source: &source, text: Some(&text) };
                self.put_policy(owner.as_deref(), *spec, origin, &condition)
            }
            Edit::DeletePolicy { owner, condition } => self.delete_policy(&owner, &condition),
            Edit::SetServer { server, up } => self.set_server(server, up),
            Edit::CookieSecrets(secrets) => {
                self.generation.secrets = Arc::new(secrets);
                Ok(vec![])
            }
            Edit::Expired { zone, expired } => {
                self.set_expired(&zone, expired);
                Ok(vec![])
            }
            Edit::Secondaries(secondaries) => {
                self.choose_secondaries(secondaries);
                self.check_catalogs()?;
                Ok(vec![])
            }
            Edit::Primaries(primaries) => {
                self.choose_primaries(primaries);
                // What one gives from now on is signed there, or nowhere.
                if let Some(signing) = self.signing.clone() {
                    self.choose_signing(signing)?;
                }
                Ok(vec![])
            }
            Edit::Catalogs => {
                let followed = self.follow_catalogs()?;
                Ok([followed, self.make_catalogs()].concat())
            }
            Edit::Signing(signing) => {
                self.choose_signing(signing)?;
                Ok(vec![])
            }
            Edit::Views(views) => {
                self.generation.choose_views(views);
                Ok(vec![])
            }
            Edit::Imported { path, digest } => {
                Arc::make_mut(&mut self.imports).insert(path.clone(), digest.clone());
                Ok(vec![Change::Imported { path, digest }])
            }
            #[cfg(test)]
            Edit::Panic => panic!("as the test wants it"),
        }
    }
}

/// A name from text, folded.
fn folded(name: &str, source: &str) -> Result<Folded, Faults> {
    let wire = dns::name::folded_from_text(name)
        .map_err(|what| Faults::from(Fault::whole(source, what, "a domain name such as www.example.com")))?;
    Ok(Folded::read(&wire).expect("a name from text is valid"))
}

/// Holds what an update brings to what a master file may have; what signing makes it may not.
fn check_added(zone: &Zone, update: &Update) -> Result<(), Faults> {
    let mut text = String::new();
    for operation in &update.operations {
        let Operation::Add(owner, rtype, ttl, data) = operation else { continue };
        if zone.has_made(*rtype) {
            let owner = dns::name::to_text(owner);
            let what = format!("a record {owner} {rtype} comes to a zone that is signed here");
            return Err(Fault::whole(UPDATE, what, "none of what signing makes").into());
        }
        push_record(&mut text, &Changed { owner, rtype: *rtype, ttl: *ttl, data });
    }
    read_update(&text).map(|_| ())
}

/// Reads a zone of this name from a master file, which may include nothing.
fn read_zone(
    source: &str,
    origin: &Folded,
    text: &[u8],
    hash: &NameHash,
) -> Result<(Zone, Master<'static>), Faults> {
    let include = |_: &str| Err("a request may not include files".to_string());
    let read = read::Source { name: source, text, origin: Some(origin.wire()), include: &include };
    let master = read::read(&read)?;
    let zone = Zone::build(&master, source, hash)?;
    if zone.origin().wire() != origin.wire() {
        let what = format!("the SOA record is of {:?}", zone.origin());
        return Err(Fault::whole(source, what, format!("{origin:?}, the zone that is put")).into());
    }
    Ok((zone, master))
}

fn read_update(text: &str) -> Result<Master<'static>, Faults> {
    let (text, include) = (text.as_bytes(), |_: &str| Err("an update includes nothing".into()));
    read::read(&read::Source { name: UPDATE, text, origin: None, include: &include })
}

/// Refuses what is short enough to be taken, and in its canonical form too long to be stored.
fn too_long(source: &str) -> Refused {
    let what = format!("its text would have more than {} octets as it is stored", store::TEXT_MAX);
    Refused::Faults(Fault::whole(source, what, "less, or several with a part each").into())
}

/// Checks the name of a region or partition. It begins with a letter or digit, so that it is a path segment of
/// its own in a URL.
///
/// # Errors
/// What it is instead.
pub fn check_name(name: &str) -> Result<(), Fault> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if begins && name.len() <= NAME_MAX && name.chars().all(plain) {
        return Ok(());
    }
    let what = format!("'{}' is no name for a region or partition", name.escape_debug());
    let expected = format!("at most {NAME_MAX} letters, digits, '-', '_' or '.', a letter or digit first");
    Err(Fault::whole("name", what, expected))
}

#[cfg(test)]
mod tests;
