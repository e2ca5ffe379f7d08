//! Regions: names that people give to classes of clients, and ids that are never used again.

use std::collections::HashSet;
use std::sync::Arc;

use api::{Fault, Faults};
use routing::RegionId;
use store::Change;

use super::{Book, Refused, check_name};

impl Book {
    /// The id of a region's name.
    pub fn region_id(&self, name: &str) -> Option<RegionId> {
        let (id, _) = self.regions.iter().find(|(_, region)| *region == name)?;
        RegionId::new(*id)
    }

    pub(super) fn add_region(&mut self, name: String) -> Result<Vec<Change>, Refused> {
        if self.region_id(&name).is_some() {
            let what = format!("there is a region {name} already");
            return Err(Faults::from(Fault::whole("name", what, "a name that no region has")).into());
        }
        Ok(vec![self.new_region(name)?])
    }

    /// Adds those that are not there. A partition may name a million.
    pub(super) fn have_regions(&mut self, names: Vec<String>) -> Result<Vec<Change>, Refused> {
        let mut known: HashSet<String> = self.regions.values().cloned().collect();
        let new = names.into_iter().filter(|name| known.insert(name.clone()));
        new.map(|name| self.new_region(name)).collect()
    }

    fn new_region(&mut self, name: String) -> Result<Change, Refused> {
        check_name(&name).map_err(Faults::from)?;
        let id = self.next_region_id;
        if RegionId::new(id).is_none() {
            let what = "no region ids are left: they are never used again";
            return Err(Faults::from(Fault::whole("name", what, "")).into());
        }
        self.next_region_id += 1;
        Arc::make_mut(&mut self.regions).insert(id, name.clone());
        Ok(Change::AddRegion { id, name })
    }

    /// Takes a region's columns out of all policies, and makes its prefixes unclassified in all partitions.
    pub(super) fn remove_region(&mut self, id: u32) -> Result<Vec<Change>, Refused> {
        let Some(name) = Arc::make_mut(&mut self.regions).remove(&id) else {
            let what = match id {
                0 => "region 0 that could be removed: it is where clients of no other region are".into(),
                _ => format!("region {id}"),
            };
            return Err(Refused::NotFound(what));
        };
        // Policies first: they are compiled again with each partition, and must not name the region by then.
        self.take_region_out_of_policies(&name)?;
        let mut changes = self.take_region_out_of_partitions(id, &name)?;
        changes.push(Change::RemoveRegion { id });
        Ok(changes)
    }
}
