//! Who gives us zones: where each is asked for, and whose notifications count.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use dns::Folded;
use net::tls::client::Encrypted;

use super::keys::Key;

/// A server, at one address or several, that gives us zones.
#[derive(Clone, Debug, Default)]
pub struct Primary {
    /// The zones' names, folded, in wire form; catalogs are not among them.
    pub zones: HashSet<Vec<u8>>,
    /// Those of catalogs (RFC 9432): what they list is given, too.
    pub catalogs: HashSet<Vec<u8>>,
    /// Where it is asked: in this order, until one answers.
    pub addresses: Vec<SocketAddr>,
    /// The key that our requests are signed with, and that its answers and notifications must be signed with.
    pub key: Option<Arc<Key>>,
    /// How it is asked over TLS (RFC 9103), where it is.
    pub tls: Option<Encrypted>,
}

/// All of them; each zone comes from one.
#[derive(Clone, Debug, Default)]
pub struct Primaries(pub Vec<Primary>);

/// The names of the zones that we are given, whether they have come or not.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PrimaryZones {
    /// Each with the catalog by which it is given; without one where the operator names it.
    names: HashMap<Vec<u8>, Option<Arc<[u8]>>>,
    /// Bit n is set where some name has n labels: look-ups try no other depth.
    depths: u128,
}

impl PrimaryZones {
    /// What the operator names, and what catalogs list beside it: zones with their catalogs, folded, in wire form.
    pub fn new(
        primaries: &Primaries,
        listed: impl IntoIterator<Item = (Vec<u8>, Arc<[u8]>)>,
    ) -> PrimaryZones {
        let listed = listed.into_iter().map(|(zone, catalog)| (zone, Some(catalog)));
        let named = primaries.zones().map(|zone| (zone.to_vec(), None));
        let names: HashMap<_, _> = listed.chain(named).collect();
        let read = names.keys().filter_map(|name| Folded::read(name));
        let depths = read.fold(0, |depths, name| depths | 1 << name.labels());
        PrimaryZones { names, depths }
    }

    /// Whether somebody gives us a zone, so that nobody else may change it.
    pub fn have(&self, zone: &Folded) -> bool {
        self.names.contains_key(zone.wire())
    }

    /// The name under which [`Primaries::of`] knows who gives us a zone: its own, or that of its catalog; `None` where nobody
    /// gives it.
    pub fn named_for<'a>(&'a self, zone: &'a [u8]) -> Option<&'a [u8]> {
        self.names.get(zone).map(|catalog| catalog.as_deref().unwrap_or(zone))
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.names.keys().map(Vec::as_slice)
    }

    /// The names that a name is at or below, in wire form.
    pub fn above<'a>(&self, name: &'a Folded) -> impl Iterator<Item = &'a [u8]> {
        let depths = (0..=name.labels()).filter(move |depth| self.depths >> depth & 1 == 1);
        depths.map(move |depth| name.suffix(depth)).filter(move |suffix| self.names.contains_key(*suffix))
    }
}

impl Primary {
    /// Whether a notification from this address, and with a right signature by this key, is one of its own (RFC 1996 §3.10).
    pub fn notifies(&self, client: IpAddr, key: Option<&Key>) -> bool {
        let by_key = self.key.as_ref().is_none_or(|wanted| key.is_some_and(|key| wanted.is_same(key)));
        by_key && self.addresses.iter().any(|address| address.ip().to_canonical() == client)
    }
}

impl Primaries {
    /// Whether nobody gives us anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Who gives us a zone or catalog that the operator names.
    pub fn of(&self, zone: &[u8]) -> Option<&Primary> {
        self.0.iter().find(|primary| primary.zones.contains(zone) || primary.catalogs.contains(zone))
    }

    /// Whether the operator names a zone or catalog.
    pub fn name(&self, zone: &[u8]) -> bool {
        self.of(zone).is_some()
    }

    /// Whether these give the same zones as others, each by each.
    pub fn give_as(&self, others: &Primaries) -> bool {
        let given = |primaries: &Primaries| -> Vec<_> {
            primaries.0.iter().map(|each| (each.zones.clone(), each.catalogs.clone())).collect()
        };
        given(self) == given(others)
    }

    /// The names of the zones that the operator names, catalogs among them, in wire form.
    pub fn zones(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().flat_map(|primary| primary.zones.iter().chain(&primary.catalogs)).map(Vec::as_slice)
    }

    /// Those of the catalogs among them, in wire form.
    pub fn catalogs(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().flat_map(|primary| &primary.catalogs).map(Vec::as_slice)
    }

    /// Whether a zone is one of the catalogs.
    pub fn have_catalog(&self, zone: &[u8]) -> bool {
        self.0.iter().any(|primary| primary.catalogs.contains(zone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::keys::Algorithm;

    #[test]
    fn a_name_is_given_with_the_zones_above_it() {
        let wire = |name: &str| dns::name::folded_from_text(name).unwrap();
        let of = |names: &[&str]| Primary {
            zones: names.iter().map(|name| wire(name)).collect(),
            ..Primary::default()
        };
        let primaries = Primaries(vec![of(&["a.example", "b.c.example"]), of(&["cat.example"])]);
        let catalog: Arc<[u8]> = wire("cat.example").into();
        let listed = ["c.example", "a.example"].map(|name| (wire(name), catalog.clone()));
        let given = PrimaryZones::new(&primaries, listed);
        for (name, expected) in [
            ("a.example", &["a.example"][..]),
            ("x.y.b.c.example", &["c.example", "b.c.example"]),
            ("d.example", &[]),
            ("example", &[]),
            (".", &[]),
        ] {
            let name = Folded::read(&wire(name)).unwrap();
            let above: Vec<Vec<u8>> = given.above(&name).map(<[u8]>::to_vec).collect();
            assert_eq!(above, expected.iter().map(|name| wire(name)).collect::<Vec<_>>());
        }
        let root = PrimaryZones::new(&Primaries(vec![of(&["."])]), []);
        assert_eq!(root.above(&Folded::root()).count(), 1);
        for (zone, expected) in
            [("a.example", Some("a.example")), ("c.example", Some("cat.example")), ("d.example", None)]
        {
            assert_eq!(given.named_for(&wire(zone)), expected.map(wire).as_deref(), "{zone}");
        }
    }

    #[test]
    fn a_notification_must_come_from_the_primary_and_be_signed_as_it_signs() {
        let key = |name: &[u8], algorithm| Arc::new(Key::new(name, algorithm, b"0123456789abcdef"));
        let a = key(b"\x01a\0", Algorithm::Sha256);
        let addresses = vec!["192.0.2.1:53".parse().unwrap(), "[::ffff:192.0.2.2]:5300".parse().unwrap()];
        let zones = HashSet::from([b"\x07example\0".to_vec()]);
        let plain = Primary { zones, addresses, ..Primary::default() };
        let keyed = Primary { key: Some(a.clone()), ..plain.clone() };
        let (b, weaker) = (key(b"\x01b\0", Algorithm::Sha256), key(b"\x01a\0", Algorithm::Sha1));
        for (primary, client, key, expected) in [
            (&plain, "192.0.2.1", None, true),
            (&plain, "192.0.2.2", None, true),
            (&plain, "192.0.2.1", Some(&b), true),
            (&plain, "192.0.2.3", None, false),
            (&keyed, "192.0.2.1", Some(&a), true),
            (&keyed, "192.0.2.1", Some(&b), false),
            (&keyed, "192.0.2.1", Some(&weaker), false),
            (&keyed, "192.0.2.1", None, false),
            (&keyed, "192.0.2.3", Some(&a), false),
        ] {
            let is = primary.notifies(client.parse().unwrap(), key.map(|key| &**key));
            assert_eq!(is, expected, "{client} {key:?}");
        }
        let given = PrimaryZones::new(&Primaries(vec![keyed]), []);
        let name = |text: &str| Folded::read(&dns::name::from_text(text).unwrap()).unwrap();
        assert!(given.have(&name("EXAMPLE.")) && !given.have(&name("www.example")));
        assert_eq!(given.iter().collect::<Vec<_>>(), [b"\x07example\0"]);
    }
}
