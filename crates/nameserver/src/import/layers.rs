//! The layers of a partition: what each source says, one over the other, as one text of prefixes and regions.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;

use api::file::{self, DATA_MAX};
use api::{Fault, Faults};
use routing::partition::{PREFIXES_MAX, Rank};
use routing::proximity::csv;
use routing::proximity::mmdb::{self, Codes, Field};
use routing::{Partition, RegionId};

use super::{Counts, shown};
use crate::as_path;
use crate::book::{Etag, Partitioned, check_name};

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

/// Layers, and what is in their files.
pub(super) struct Loaded<'a> {
    layers: &'a [Layer],
    /// Of each layer, file by file.
    contents: Vec<Vec<Vec<u8>>>,
}

/// A partition that was made from its layers.
pub(super) struct Built {
    /// Prefixes and regions, as a file of lines has them.
    pub(super) text: String,
    /// The regions that the layers name, in that order.
    pub(super) regions: Vec<String>,
    /// What was counted, each by its name.
    pub(super) counts: Counts,
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
    pub(super) fn source(&self) -> String {
        match self {
            Layer::Csv(path) | Layer::Mmdb { path, .. } | Layer::AsPath { table: path, .. } => shown(path),
            Layer::Ask => "ask".into(),
        }
    }

    /// All that is in its files.
    fn content(&self) -> Result<Vec<Vec<u8>>, Faults> {
        let files: Vec<&PathBuf> = match self {
            Layer::Csv(path) => vec![path],
            Layer::Mmdb { path, regions, .. } => vec![path, regions],
            Layer::AsPath { table, relations, .. } => [table].into_iter().chain(relations).collect(),
            Layer::Ask => Vec::new(),
        };
        let mut faults = Faults::default();
        let mut contents = Vec::with_capacity(files.len());
        for path in files {
            match file::read(path, DATA_MAX, "") {
                Ok(content) => contents.push(content),
                Err(found) => faults.push(found),
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

    /// The layer as a text of prefixes and regions, and what was counted.
    fn text(&self, mut content: Vec<Vec<u8>>, regions: &Provisional) -> Result<(String, Counts), Faults> {
        let source = self.source();
        match self {
            Layer::Csv(_) => Ok((file::text(&source, content.remove(0))?, Vec::new())),
            Layer::Ask => Ok((format!("0.0.0.0/0,{0}\n::/0,{0}\n", csv::ASK), Vec::new())),
            Layer::Mmdb { regions: codes, field, .. } => {
                let codes_source = shown(codes);
                let lines = file::text(&codes_source, content.remove(1))?;
                let codes = Codes::read(&codes_source, &lines, *field, &|region| regions.id(region))?;
                let (entries, unseen) = mmdb::read(&source, &content[0], &codes)?;
                let named = regions.0.borrow();
                let text = csv::write(&entries, &|region| named.name(region));
                Ok((text, vec![("codes_without_networks", unseen)]))
            }
            Layer::AsPath { servers, relations, .. } => {
                let relations_source = relations.as_deref().map(shown);
                let relations = relations_source.as_ref().zip(content.get(1));
                let relations = relations.map(|(name, octets)| as_path::Source { name, octets });
                let table = as_path::Source { name: &source, octets: &content[0] };
                let built = as_path::build(table, relations, servers)?;
                Ok((built.text, built.counts))
            }
        }
    }
}

impl<'a> Loaded<'a> {
    /// Reads the files of all layers.
    ///
    /// # Errors
    /// Those that cannot be read.
    pub(super) fn load(layers: &'a [Layer]) -> Result<Loaded<'a>, Faults> {
        let mut faults = Faults::default();
        let mut contents = Vec::with_capacity(layers.len());
        for layer in layers {
            match layer.content() {
                Ok(content) => contents.push(content),
                Err(found) => faults.append(found),
            }
        }
        faults.or(Loaded { layers, contents })
    }

    /// Equal layers of equal content have an equal tag, whichever files it is from.
    pub(super) fn digest(&self) -> Etag {
        // A file of lines alone has the tag that it always had: what the API has changed since is not undone by an upgrade.
        if let ([Layer::Csv(_)], [content]) = (self.layers, self.contents.as_slice()) {
            return Etag::of(&content.concat());
        }
        let mut digested = Vec::new();
        for (layer, content) in self.layers.iter().zip(&self.contents) {
            digested.extend(format!("{} {}\n", layer.kind(), layer.choices()).into_bytes());
            for file in content {
                // Where one file ends and the next begins counts, too.
                digested.extend(file.len().to_be_bytes());
                digested.extend(file);
            }
        }
        Etag::of(&digested)
    }

    /// Makes one partition of all layers. A single file of lines stays as it is.
    ///
    /// # Errors
    /// All faults of all layers.
    pub(super) fn build(self) -> Result<Built, Faults> {
        let is_alone = self.layers.len() == 1;
        let regions = Provisional::default();
        let mut faults = Faults::default();
        let mut counts = Vec::new();
        let mut compiled: Vec<Partition> = Vec::new();
        for (layer, content) in self.layers.iter().zip(self.contents) {
            let text = match layer.text(content, &regions) {
                Ok((text, counted)) => {
                    counts.extend(counted);
                    text
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
                // Ranks alone are for the regions of the other layers.
                (Ok(entries), Ok(ranks)) if entries.is_empty() && ranks.is_empty() => {
                    faults.push(Partitioned::empty(&source));
                }
                (Ok(_), Ok(_)) if is_alone => {
                    return Ok(Built { text, regions: regions.0.into_inner().names, counts });
                }
                (Ok(entries), Ok(ranks)) => compiled.push(Partition::compile(entries).with_ranks(ranks)),
                (entries, ranks) => {
                    [entries.err(), ranks.err()].into_iter().flatten().for_each(|found| faults.append(found));
                }
            }
        }
        faults.or(())?;
        let ranks: Vec<Rank> = compiled.iter().flat_map(|layer| layer.ranks().iter().copied()).collect();
        let ranks = Partition::default().with_ranks(ranks);
        let named = regions.0.into_inner();
        let name = |region: RegionId| named.name(region);
        let stacked = Partition::stack(&compiled).ok_or_else(|| {
            let what =
                "the layers together need too many prefixes: a host cut out of a network leaves one a bit";
            let layers: Vec<String> = self.layers.iter().map(Layer::source).collect();
            Faults::from(Fault::whole(layers.join(" and "), what, format!("at most {PREFIXES_MAX}")))
        })?;
        let text = csv::write_ranks(ranks.ranks(), &name) + &csv::write(&stacked, &name);
        Ok(Built { text, regions: named.names, counts })
    }
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

impl Named {
    fn name(&self, region: RegionId) -> Option<&str> {
        self.names.get((region.get() as usize).wrapping_sub(1)).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::tests::folder::Folder;

    #[test]
    fn each_file_and_each_layer_counts() {
        let folder = Folder::new();
        let file = |name: &str, text: &str| PathBuf::from(folder.write(name, text));
        let (first, second) = ("10.0.0.0/8,europe\n", "192.0.2.0/24,asia\n");
        let alone = vec![Layer::Csv(file("alone.csv", first))];
        let two = vec![Layer::Csv(file("a.csv", first)), Layer::Csv(file("b.csv", second))];
        let moved =
            vec![Layer::Csv(file("c.csv", &(first.to_owned() + second))), Layer::Csv(file("d.csv", ""))];
        let asking: Vec<Layer> = two.iter().cloned().chain([Layer::Ask]).collect();
        let tag = |layers: &[Layer]| Loaded::load(layers).expect("the files are there").digest().0;
        let mut tags = [&alone, &two, &moved, &asking].map(|layers| tag(layers));
        assert_eq!(tags[0], Etag::of(first.as_bytes()).0, "as older programs remember it");
        assert_eq!(tags[1], tag(&[Layer::Csv(file("e.csv", first)), Layer::Csv(file("f.csv", second))]));
        tags.sort();
        assert!(tags.windows(2).all(|pair| pair[0] != pair[1]), "{tags:?}");
    }
}
