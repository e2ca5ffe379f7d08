//! Partitions: named maps from prefixes to regions.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use api::{Fault, Faults};
use routing::proximity::csv;
use routing::{Leaf, Partition, RegionId};
use store::Change;

use super::{Book, Condition, DEFAULT_PARTITION, Etag, Refused, too_long};

/// What is expected of a text that has no prefix.
const PREFIX: &str = "at least one line prefix,region; 0.0.0.0/0,- where all are to be without a region";

/// A partition and the text that it was made from.
pub struct Partitioned {
    /// `prefix,region` lines, regions by name.
    pub text: String,
    /// As it is executed.
    pub partition: Arc<Partition>,
}

impl Partitioned {
    /// Reads and compiles a text that is given, which takes a second for a million prefixes. One without a prefix is
    /// a fault: a file that was emptied by accident would take every client's region away.
    pub(super) fn compile(
        source: &str,
        text: String,
        regions: &BTreeMap<u32, String>,
    ) -> Result<Partitioned, Faults> {
        let read = Partitioned::read(source, text, regions)?;
        if read.partition.size().prefixes == 0 {
            return Err(Partitioned::empty(source).into());
        }
        Ok(read)
    }

    /// That a text has no prefix.
    pub(crate) fn empty(source: &str) -> Fault {
        Fault::whole(source, "no prefix in it", PREFIX)
    }

    fn read(source: &str, text: String, regions: &BTreeMap<u32, String>) -> Result<Partitioned, Faults> {
        let ids = region_ids(regions);
        let region = |name: &str| ids.get(name).copied();
        let mut faults = Faults::default();
        let entries = csv::read(source, &text, &region).unwrap_or_else(|found| {
            faults.append(found);
            Vec::new()
        });
        let ranks = csv::ranks(source, &text, &region).unwrap_or_else(|found| {
            faults.append(found);
            Vec::new()
        });
        faults.in_order().or(())?;
        Ok(Partitioned { partition: Arc::new(Partition::compile(entries).with_ranks(ranks)), text })
    }
}

impl Book {
    /// A partition's text and tag.
    pub fn partition(&self, name: &str) -> Option<(String, Etag)> {
        let text = &self.partitions.get(name)?.text;
        Some((text.clone(), Etag::of(text.as_bytes())))
    }

    /// What a partition says of an address, with the region's name; `None` where there is no such partition. The default
    /// one is none until it is put, although policies may use it.
    pub fn lookup(&self, partition: &str, address: IpAddr) -> Option<(Leaf, &str)> {
        let leaf = self.partitions.get(partition)?.partition.lookup(address);
        Some((leaf, self.region_name(leaf.region)))
    }

    /// The name of a region; empty for region 0.
    pub fn region_name(&self, region: RegionId) -> &str {
        self.regions.get(&region.get()).map_or("", String::as_str)
    }

    /// A partition as policies use it; the default one is empty until it is put.
    pub(super) fn compiled(&self, name: &str) -> Option<Arc<Partition>> {
        match self.partitions.get(name) {
            Some(found) => Some(found.partition.clone()),
            None => (name == DEFAULT_PARTITION).then(|| Arc::new(Partition::compile([]))),
        }
    }

    pub(super) fn load_partition(&mut self, name: &str, text: &str) -> Result<(), Faults> {
        let source = format!("stored partition {name}");
        let compiled = Partitioned::read(&source, text.to_string(), &self.regions)?;
        Arc::make_mut(&mut self.partitions).insert(name.into(), Arc::new(compiled));
        Ok(())
    }

    /// Puts what was compiled by the ids of `regions`, or the same text compiled by those that there are now.
    pub(super) fn put_partition(
        &mut self,
        name: String,
        source: &str,
        mut compiled: Arc<Partitioned>,
        regions: &Arc<BTreeMap<u32, String>>,
        condition: &Condition,
    ) -> Result<Vec<Change>, Refused> {
        condition.check(|| self.partition(&name).map(|(_, tag)| tag))?;
        if *regions != self.regions {
            compiled = Arc::new(Partitioned::compile(source, compiled.text.clone(), &self.regions)?);
        }
        let text = compiled.text.clone();
        if text.len() > store::TEXT_MAX {
            return Err(too_long(&name));
        }
        self.install_partition(name.clone(), compiled)?;
        Ok(vec![Change::PutPartition { name, text }])
    }

    pub(super) fn delete_partition(
        &mut self,
        name: &str,
        condition: &Condition,
    ) -> Result<Vec<Change>, Refused> {
        if !self.partitions.contains_key(name) {
            return Err(Refused::NotFound(format!("partition {name}")));
        }
        condition.check(|| self.partition(name).map(|(_, tag)| tag))?;
        let user = self.generation.policies.iter().find(|(_, steered)| steered.spec.partition == name);
        if let Some((_, steered)) = user {
            let key = dns::name::to_text(steered.key());
            return Err(Refused::InUse(format!("the policy {key} uses the partition {name}")));
        }
        Arc::make_mut(&mut self.partitions).remove(name);
        Ok(vec![Change::DeletePartition { name: name.into() }])
    }

    /// Makes a region's prefixes unclassified. They stay in the text, without a region, since they may lie in
    /// larger ones of another region.
    pub(super) fn take_region_out_of_partitions(
        &mut self,
        id: u32,
        region: &str,
    ) -> Result<Vec<Change>, Refused> {
        let gone = RegionId::new(id).ok_or_else(|| Refused::NotFound(format!("region {id}")))?;
        let mut changes = Vec::new();
        // The region itself is no longer among them.
        let regions = self.regions.clone();
        let ids = region_ids(&regions);
        for (name, found) in self.partitions.clone().iter() {
            let ranks = found.partition.ranks().iter().any(|rank| rank.region == gone);
            if !ranks && !found.partition.regions().any(|(region, _)| region == gone) {
                continue;
            }
            let known = |name: &str| if name == region { Some(gone) } else { ids.get(name).copied() };
            let entries = csv::read(name, &found.text, &known)?;
            let shown = |region: RegionId| regions.get(&region.get()).map(String::as_str);
            let ranks = csv::write_ranks(found.partition.ranks(), &shown);
            let text = ranks + &csv::write(&entries, &shown);
            let partition = Arc::new(found.partition.without_region(gone));
            self.install_partition(name.clone(), Arc::new(Partitioned { text: text.clone(), partition }))?;
            changes.push(Change::PutPartition { name: name.clone(), text });
        }
        Ok(changes)
    }

    /// Puts a partition in its place, and under the policies that use it.
    fn install_partition(&mut self, name: String, compiled: Arc<Partitioned>) -> Result<(), Faults> {
        Arc::make_mut(&mut self.partitions).insert(name.clone(), compiled);
        self.compile_policies_again(|spec| spec.partition == name)
    }
}

/// The lines with a character 0, each once: PostgreSQL stores no such text, and a comment may have one.
pub(super) fn zeros(source: &str, text: &str) -> Faults {
    let mut faults = Faults::default();
    for (line, number) in text.lines().zip(1..) {
        if let Some(at) = line.find('\0') {
            let column = u32::try_from(at + 1).unwrap_or(u32::MAX);
            faults.push(Fault::at(source, number, column, "a character U+0000", "a text without it"));
        }
    }
    faults
}

/// The ids of regions by name: a partition may name them a million times.
pub(super) fn region_ids(regions: &BTreeMap<u32, String>) -> HashMap<&str, RegionId> {
    regions.iter().filter_map(|(id, name)| Some((name.as_str(), RegionId::new(*id)?))).collect()
}
