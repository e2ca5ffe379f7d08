//! Who may change what of our zones by updates.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use dns::{Folded, Rtype};
use routing::Prefix;

use super::keys::Key;
use crate::zone::{Operation, Update};

/// Somebody who may send updates, and what may be changed by them.
#[derive(Clone, Debug, Default)]
pub struct Updater {
    /// The zones' names, folded, in wire form; all zones where there is none.
    pub zones: HashSet<Vec<u8>>,
    /// The names that may be changed, each with all below it; a label `*` stands for any one. All where there is none.
    pub names: Vec<Folded>,
    /// The types of records that may be changed; all where there is none.
    pub types: Vec<Rtype>,
    /// The addresses that updates may come from; any where there is none.
    pub from: Vec<Prefix>,
    /// The key that updates must be signed with; nobody may where it is not there.
    pub key: Option<Arc<Key>>,
}

/// All of them; what none of them allows is refused.
#[derive(Clone, Debug, Default)]
pub struct Updaters(pub Vec<Updater>);

impl Updaters {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an update of a zone may be made: each change of it must be allowed to who signed it, by one of the rules.
    ///
    /// # Errors
    /// The first change that nobody allows; nothing where the zone is not theirs at all.
    pub fn allow<'a>(
        &self,
        zone: &Folded,
        client: IpAddr,
        key: &Key,
        update: &'a Update,
    ) -> Result<(), Option<&'a Operation>> {
        let theirs: Vec<&Updater> = self.0.iter().filter(|updater| updater.is(zone, client, key)).collect();
        if theirs.is_empty() {
            return Err(None);
        }
        let is_allowed = |operation: &&Operation| theirs.iter().any(|updater| updater.allows(operation));
        update
            .operations
            .iter()
            .find(|operation| !is_allowed(operation))
            .map_or(Ok(()), |denied| Err(Some(denied)))
    }
}

impl Updater {
    fn is(&self, zone: &Folded, client: IpAddr, key: &Key) -> bool {
        let by_key = self.key.as_ref().is_some_and(|wanted| wanted.is_same(key));
        let by_address = self.from.is_empty() || self.from.iter().any(|prefix| prefix.contains(client));
        by_key && by_address && (self.zones.is_empty() || self.zones.contains(zone.wire()))
    }

    /// Whether it may be changed. That all of a name goes needs all types.
    fn allows(&self, operation: &Operation) -> bool {
        let by_type =
            self.types.is_empty() || operation.rtype().is_some_and(|rtype| self.types.contains(&rtype));
        let by_name = self.names.is_empty() || {
            let owner = Folded::read(operation.owner()).expect("the owner of a change is a name");
            self.names.iter().any(|name| covers(name, &owner))
        };
        by_type && by_name
    }
}

/// Whether an owner is a name, or below it; a label `*` of the name stands for any one.
fn covers(name: &Folded, owner: &Folded) -> bool {
    let is_label = |depth| name.label(depth) == b"\x01*" || name.label(depth) == owner.label(depth);
    owner.labels() >= name.labels() && (1..=name.labels()).all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::keys::Algorithm;

    fn name(text: &str) -> Folded {
        Folded::read(&dns::name::from_text(text).unwrap()).unwrap()
    }

    #[test]
    fn a_name_covers_all_below_it_and_a_star_any_one_label() {
        for (pattern, owner, expected) in [
            ("a.example", "a.example", true),
            ("a.example", "b.a.example", true),
            ("a.example", "ba.example", false),
            ("a.example", "example", false),
            ("_acme-challenge.*.example", "_acme-challenge.www.example", true),
            ("_acme-challenge.*.example", "x._acme-challenge.www.example", true),
            ("_acme-challenge.*.example", "_acme-challenge.example", false),
            ("_acme-challenge.*.example", "_acme-challenge.a.b.example", false),
            ("*.example", "a.b.example", true),
            ("*.example", "example", false),
            (".", "a.example", true),
        ] {
            assert_eq!(covers(&name(pattern), &name(owner)), expected, "{pattern} {owner}");
        }
    }

    #[test]
    fn each_change_must_be_allowed_by_one_rule_of_the_key() {
        let key = |name: &[u8]| Arc::new(Key::new(name, Algorithm::Sha256, b"0123456789abcdef"));
        let (a, b) = (key(b"\x01a\0"), key(b"\x01b\0"));
        let zones = |zones: &[&str]| zones.iter().map(|zone| name(zone).wire().to_vec()).collect();
        let all = Updaters(vec![
            Updater {
                key: Some(a.clone()),
                zones: zones(&["x"]),
                names: vec![name("_acme.x")],
                types: vec![Rtype::TXT],
                ..Updater::default()
            },
            Updater {
                key: Some(a.clone()),
                zones: zones(&["x"]),
                names: vec![name("hosts.x")],
                ..Updater::default()
            },
            Updater {
                key: Some(b.clone()),
                from: vec!["192.0.2.0/24".parse().unwrap()],
                ..Updater::default()
            },
            Updater { zones: zones(&["nobody"]), ..Updater::default() },
        ]);
        let owner = |text: &str| name(text).wire().to_vec();
        let add = |text: &str, rtype| Operation::Add(owner(text), rtype, 60, Vec::new());
        let (acme, host) = (add("_acme.x", Rtype::TXT), add("h.hosts.x", Rtype::A));
        let delete_all = |text: &str| Operation::DeleteAll(owner(text));
        for (zone, client, key, operations, expected) in [
            ("x", "192.0.3.1", &a, vec![acme.clone(), host.clone()], Ok(())),
            ("x", "192.0.3.1", &a, vec![], Ok(())),
            ("x", "192.0.3.1", &a, vec![host.clone(), add("_acme.x", Rtype::A)], Err(Some(1))),
            ("x", "192.0.3.1", &a, vec![delete_all("_acme.x")], Err(Some(0))),
            ("x", "192.0.3.1", &a, vec![delete_all("h.hosts.x")], Ok(())),
            ("x", "192.0.3.1", &a, vec![delete_all("x")], Err(Some(0))),
            ("y", "192.0.3.1", &a, vec![acme.clone()], Err(None)),
            ("y", "192.0.2.1", &b, vec![delete_all("y")], Ok(())),
            ("y", "192.0.3.1", &b, vec![], Err(None)),
            ("nobody", "192.0.3.1", &a, vec![], Err(None)),
        ] {
            let update = Update { operations, ..Update::default() };
            let allowed = all.allow(&name(zone), client.parse().unwrap(), key, &update);
            let place =
                |denied: &Operation| update.operations.iter().position(|each| each == denied).unwrap();
            assert_eq!(allowed.map_err(|denied| denied.map(place)), expected, "{zone} {client} {update:?}");
        }
    }
}
