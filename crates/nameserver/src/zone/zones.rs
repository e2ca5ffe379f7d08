//! Zones by origin, and which of them a name belongs to.

use std::sync::Arc;

use dns::Folded;

use super::Zone;
use crate::names::{NameHash, NameTable, Value};

/// Zones, of which the closest one answers for a name.
#[derive(Clone)]
pub struct Zones {
    by_origin: NameTable<Arc<Zone>>,
    /// Bit n is set where some origin has n labels: look-ups try no other depth.
    depths: u128,
}

impl Value for Arc<Zone> {}

impl Zones {
    /// No zones.
    pub fn new() -> Zones {
        Zones { by_origin: NameTable::new(0), depths: 0 }
    }

    /// How many zones there are.
    pub fn len(&self) -> usize {
        self.by_origin.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_origin.is_empty()
    }

    /// The zone with the longest origin that is the name or an ancestor of it.
    ///
    /// With `above`, an origin equal to the name counts only where there is no other: DS records live on
    /// the parent's side of a cut (RFC 4035 §3.1.4.1).
    #[inline]
    pub fn closest(&self, name: &Folded, above: bool, hash: &NameHash) -> Option<&Arc<Zone>> {
        let deepest = name.labels().min(127 - self.depths.leading_zeros().min(127) as usize);
        let mut at = hash.root();
        let mut closest = None;
        for depth in 0..=deepest {
            if depth > 0 {
                at = hash.child(at, name.label(depth));
            }
            if self.depths >> depth & 1 == 0 || (above && depth == name.labels() && closest.is_some()) {
                continue;
            }
            if let Some(found) = self.by_origin.find(at, name.suffix(depth)) {
                closest = Some(found.value);
            }
        }
        closest
    }

    /// The zone of exactly this origin.
    pub fn get(&self, origin: &Folded, hash: &NameHash) -> Option<&Arc<Zone>> {
        self.by_origin.find(hash.of(origin), origin.wire()).map(|found| found.value)
    }

    /// Adds a zone, or replaces the one of its origin.
    pub(super) fn put(&mut self, zone: Arc<Zone>, hash: &NameHash) {
        let origin = zone.origin().clone();
        let key = hash.of(&origin);
        self.by_origin.remove(key, origin.wire());
        self.by_origin.insert(key, origin.wire(), zone);
        self.depths |= 1 << origin.labels();
    }

    /// Removes a zone; returns whether there was one.
    pub(super) fn remove(&mut self, origin: &Folded, hash: &NameHash) -> bool {
        let removed = self.by_origin.remove(hash.of(origin), origin.wire()).is_some();
        self.depths = self.iter().fold(0, |depths, zone| depths | 1 << zone.origin().labels());
        removed
    }

    /// Every zone, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Zone>> {
        self.by_origin.iter().map(|(_, found)| found.value)
    }
}

impl Default for Zones {
    fn default() -> Self {
        Zones::new()
    }
}
