//! Which zones each server has, by what it said.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use dns::Rtype;

use super::name::{self, Name, ROOT};
use super::seen::{Key, Place, Set};

/// The zones of each server of a trace.
pub(super) struct Holdings {
    zones: BTreeMap<IpAddr, BTreeSet<Name>>,
    /// All that are the apex of some zone.
    apexes: BTreeSet<Name>,
}

impl Holdings {
    /// What servers showed that they have: the SOA record of a zone, its NS records as the zone's own, its signatures, or an
    /// authoritative answer below its apex.
    pub(super) fn of(sets: &BTreeMap<Key, Set>) -> Holdings {
        let mut zones: BTreeMap<IpAddr, BTreeSet<Name>> = BTreeMap::new();
        let mut apexes = BTreeSet::new();
        for key in sets.keys() {
            let is_own = matches!(key.place, Place::Answer | Place::Authority);
            let shows_apex = is_own && matches!(key.rtype, Rtype::SOA | Rtype::NS | Rtype::DNSKEY);
            let apex = if shows_apex { Some(&key.owner) } else { key.signer.as_ref() };
            if let Some(apex) = apex {
                apexes.insert(apex.clone());
                zones.entry(key.server).or_default().insert(apex.clone());
            }
            // What is delegated is the apex of a zone, whoever has it.
            if (key.place, key.rtype) == (Place::Cut, Rtype::NS) {
                apexes.insert(key.owner.clone());
            }
        }
        let mut holdings = Holdings { zones, apexes };
        // Only now is it known which apexes there are above what was answered.
        let answered = sets.keys().filter(|key| key.place == Place::Answer && key.signer.is_none());
        let answered = answered.filter_map(|key| Some((key.server, holdings.apex_of(key)?.clone())));
        for (server, apex) in answered.collect::<Vec<_>>() {
            holdings.zones.entry(server).or_default().insert(apex);
        }
        // Who refers and shows nothing else has the zone next above, or that of the root.
        for key in sets.keys().filter(|key| key.place == Place::Cut && *key.owner != *ROOT) {
            let zones = holdings.zones.entry(key.server).or_default();
            if name::closest_above(zones, &key.owner).is_none() {
                let above = name::closest_above(&holdings.apexes, &key.owner);
                zones.insert(above.map_or(ROOT, |above| above).into());
            }
        }
        holdings
    }

    /// The zone that an RRset belongs to; `None` where its server has none such.
    pub(super) fn zone_of(&self, key: &Key) -> Option<Name> {
        if key.signer.is_some() {
            return key.signer.clone();
        }
        let zones = self.zones.get(&key.server)?;
        let is_of_parent = key.place == Place::Cut || key.rtype == Rtype::DS;
        let zone = if is_of_parent {
            name::closest_above(zones, &key.owner)
        } else {
            name::closest(zones, &key.owner)
        };
        zone.cloned()
    }

    /// Each server with its zones.
    pub(super) fn iter(&self) -> impl Iterator<Item = (IpAddr, &BTreeSet<Name>)> {
        self.zones.iter().map(|(server, zones)| (*server, zones))
    }

    /// The closest apex that an authoritative answer can be from.
    fn apex_of(&self, key: &Key) -> Option<&Name> {
        match key.rtype {
            Rtype::DS => name::closest_above(&self.apexes, &key.owner),
            _ => name::closest(&self.apexes, &key.owner),
        }
    }
}
