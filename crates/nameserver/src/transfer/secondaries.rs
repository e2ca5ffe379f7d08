//! Who follows our zones: who may take them, and who is told of changes.

use std::collections::{BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use dns::Folded;
use routing::Prefix;

use super::keys::Key;

/// A server, or several, that may take zones and are told of changes.
#[derive(Clone, Debug, Default)]
pub struct Secondary {
    /// The zones' names, folded, in wire form; all zones where there is none. Each zone is looked up after each change.
    pub zones: HashSet<Vec<u8>>,
    /// The catalog (RFC 9432) that is made of those zones and that they follow, too: its name, folded, in wire form.
    pub catalog: Option<Vec<u8>>,
    /// The addresses that may ask; any where there is none.
    pub from: Vec<Prefix>,
    /// The key that requests must be signed with, and that notifications are signed with.
    pub key: Option<Arc<Key>>,
    /// Where notifications go.
    pub notify: Vec<SocketAddr>,
}

/// All of them; a zone that none of them names is given to nobody.
#[derive(Clone, Debug, Default)]
pub struct Secondaries(pub Vec<Secondary>);

impl Secondary {
    fn follows(&self, zone: &Folded) -> bool {
        self.lists(zone) || self.catalog.as_deref() == Some(zone.wire())
    }

    /// Whether its catalog lists the zone, where it has one.
    fn lists(&self, zone: &Folded) -> bool {
        self.zones.is_empty() || self.zones.contains(zone.wire())
    }

    /// Whether all that is asked of a request holds: its address, and its key.
    fn allows(&self, client: IpAddr, key: Option<&Key>) -> bool {
        let by_address = self.from.is_empty() || self.from.iter().any(|prefix| prefix.contains(client));
        let by_key = self.key.as_ref().is_none_or(|wanted| key.is_some_and(|key| wanted.is_same(key)));
        by_address && by_key && (!self.from.is_empty() || self.key.is_some())
    }
}

impl Secondaries {
    /// Whether these follow the same zones as others, each by each.
    pub fn follow_as(&self, others: &Secondaries) -> bool {
        let followed = |all: &Secondaries| -> Vec<_> {
            all.0.iter().map(|each| (each.zones.clone(), each.catalog.clone())).collect()
        };
        followed(self) == followed(others)
    }

    /// Whether anybody follows the zone.
    pub fn follow(&self, zone: &Folded) -> bool {
        self.0.iter().any(|secondary| secondary.follows(zone))
    }

    /// Whether one of them follows the zone by its name, not just as one of all zones.
    pub fn name(&self, zone: &Folded) -> bool {
        self.0.iter().any(|secondary| !secondary.zones.is_empty() && secondary.follows(zone))
    }

    /// The catalogs that are made for them, in wire form.
    pub fn catalogs(&self) -> BTreeSet<&[u8]> {
        self.0.iter().filter_map(|secondary| secondary.catalog.as_deref()).collect()
    }

    /// Whether a zone is one of these catalogs.
    pub fn have_catalog(&self, zone: &[u8]) -> bool {
        self.0.iter().any(|secondary| secondary.catalog.as_deref() == Some(zone))
    }

    /// Whether a catalog lists a zone.
    pub fn list(&self, catalog: &[u8], zone: &Folded) -> bool {
        self.0.iter().any(|secondary| secondary.catalog.as_deref() == Some(catalog) && secondary.lists(zone))
    }

    /// Whether a request may have the zone: one of them must allow it, in everything that it asks for.
    pub fn allow(&self, zone: &Folded, client: IpAddr, key: Option<&Key>) -> bool {
        self.0.iter().any(|secondary| secondary.follows(zone) && secondary.allows(client, key))
    }

    /// Who is told of changes of any zone; an address may come several times.
    pub fn all_told(&self) -> impl Iterator<Item = SocketAddr> {
        self.0.iter().flat_map(|secondary| &secondary.notify).copied()
    }

    /// Who is told of changes of the zone, each address once.
    pub fn told_of(&self, zone: &Folded) -> Vec<(SocketAddr, Option<Arc<Key>>)> {
        let mut told: Vec<(SocketAddr, Option<Arc<Key>>)> = Vec::new();
        for secondary in self.0.iter().filter(|secondary| secondary.follows(zone)) {
            for address in &secondary.notify {
                if !told.iter().any(|(known, _)| known == address) {
                    told.push((*address, secondary.key.clone()));
                }
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::keys::Algorithm;

    fn name(text: &str) -> Folded {
        Folded::read(&dns::name::from_text(text).unwrap()).unwrap()
    }

    #[test]
    fn everything_that_one_rule_asks_for_must_hold() {
        let key = |name: &[u8]| Arc::new(Key::new(name, Algorithm::Sha256, b"0123456789abcdef"));
        let (a, b) = (key(b"\x01a\0"), key(b"\x01b\0"));
        let other_algorithm = Key::new(b"\x01a\0", Algorithm::Sha512, b"0123456789abcdef");
        let from = vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
        let rule = |zones: &[&str], from: &[Prefix], key: Option<&Arc<Key>>| Secondary {
            zones: zones.iter().map(|zone| name(zone).wire().to_vec()).collect(),
            catalog: None,
            from: from.to_vec(),
            key: key.cloned(),
            notify: vec!["192.0.2.1:53".parse().unwrap()],
        };
        let all = Secondaries(vec![
            rule(&["by-address", "x."], &from, None),
            rule(&["by-key"], &[], Some(&a)),
            rule(&["both"], &from, Some(&a)),
            rule(&["neither"], &[], None),
        ]);
        for (zone, client, key, expected) in [
            ("by-address", "192.0.2.7", None, true),
            ("BY-Address.", "2001:db8::7", None, true),
            ("by-address", "192.0.3.7", Some(&*a), false),
            ("sub.by-address", "192.0.2.7", None, false),
            ("by-key", "198.51.100.1", Some(&*a), true),
            ("by-key", "198.51.100.1", Some(&*b), false),
            ("by-key", "198.51.100.1", Some(&other_algorithm), false),
            ("by-key", "198.51.100.1", None, false),
            ("both", "192.0.2.7", Some(&*a), true),
            ("both", "192.0.2.7", None, false),
            ("both", "192.0.3.7", Some(&*a), false),
            ("neither", "192.0.2.7", Some(&*a), false),
            ("other", "192.0.2.7", Some(&*a), false),
        ] {
            let zone = name(zone);
            assert_eq!(all.allow(&zone, client.parse().unwrap(), key), expected, "{zone:?} {client} {key:?}");
        }
        assert!(Secondaries(vec![rule(&[], &from, None)]).follow(&name("any.zone")));
        assert!(!Secondaries::default().follow(&name("any.zone")));
        assert!(all.name(&name("by-key")) && !all.name(&name("other")));
        assert!(!Secondaries(vec![rule(&[], &from, None)]).name(&name("any.zone")), "all are not one");
        let twice = Secondaries(vec![rule(&["x."], &from, Some(&b)), rule(&[], &from, None)]);
        assert_eq!(twice.told_of(&name("x")).len(), 1);
    }
}
