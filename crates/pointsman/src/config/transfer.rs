//! Who follows our zones, who gives us zones and who changes them: with keys and authorities, which are read from their files.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::{Faults, file};
use dns::Folded;
use nameserver::transfer::keys::Key;
use nameserver::transfer::{Config, Keys, Primaries, Primary, Secondaries, Secondary, Updater, Updaters};
use net::tls::DOT;
use net::tls::client::{self, Encrypted};

use super::spec::{Placed, PrimarySpec, SecondarySpec, UpdaterSpec};
use super::{rules, tls};

/// The largest file of keys, in octets: ten thousand of the longest.
const KEYS_FILE_MAX: u64 = 8 << 20;

/// Reads the keys and gives each secondary, primary and updater its own; adds what is wrong to `faults`.
pub(crate) fn read(
    files: &[Placed<PathBuf>],
    secondaries: &[SecondarySpec],
    primaries: &[PrimarySpec],
    updaters: &[UpdaterSpec],
    faults: &mut Faults,
) -> Config {
    let mut keys = Keys::default();
    let mut are_whole = true;
    for file in files {
        if let Err(found) = read_keys(&file.value, &mut keys) {
            faults.append(found);
            are_whole = false;
        }
    }
    let wire = |zones: &[Placed<Folded>]| zones.iter().map(|zone| zone.value.wire().to_vec()).collect();
    let values = |addresses: &[Placed<SocketAddr>]| addresses.iter().map(|address| address.value).collect();
    let catalogs: Vec<Option<Vec<u8>>> =
        secondaries.iter().map(|spec| catalog(spec, primaries, faults)).collect();
    // A key of a file that could not be read would be told twice.
    let mut named = |name: &Option<Placed<String>>| named(&keys, name.as_ref(), are_whole, faults);
    let secondaries = secondaries.iter().zip(catalogs).map(|(spec, catalog)| Secondary {
        zones: wire(&spec.zones),
        catalog,
        from: spec.from.iter().map(|prefix| prefix.value).collect(),
        key: named(&spec.key),
        notify: values(&spec.notify),
    });
    let secondaries = Secondaries(secondaries.collect());
    let primary_keys: Vec<Option<Arc<Key>>> = primaries.iter().map(|spec| named(&spec.key)).collect();
    let updater_keys: Vec<Option<Arc<Key>>> = updaters.iter().map(|spec| named(&spec.key)).collect();
    let primaries = primaries.iter().zip(primary_keys).map(|(spec, key)| Primary {
        zones: wire(&spec.zones),
        catalogs: wire(&spec.catalogs),
        addresses: values(&spec.addresses),
        key,
        tls: encrypted(spec, faults),
    });
    let primaries = Primaries(primaries.collect());
    let updaters = updaters.iter().zip(updater_keys).map(|(spec, key)| Updater {
        zones: wire(&spec.zones),
        names: spec.names.iter().map(|name| name.value.clone()).collect(),
        types: rules::types(&spec.types, faults),
        from: spec.from.iter().map(|prefix| prefix.value).collect(),
        key,
    });
    let updaters = Updaters(updaters.collect());
    Config { keys, secondaries, primaries, updaters }
}

/// The name of the catalog that is made for a secondary, in wire form.
fn catalog(spec: &SecondarySpec, primaries: &[PrimarySpec], faults: &mut Faults) -> Option<Vec<u8>> {
    let Placed { value, place } = spec.catalog.as_ref()?;
    let name = match dns::name::folded_from_text(value) {
        Ok(name) => name,
        Err(what) => {
            faults.push(place.fault(what, "the name of a zone, such as catalog.example"));
            return None;
        }
    };
    let mut given = primaries.iter().flat_map(|primary| primary.zones.iter().chain(&primary.catalogs));
    if given.any(|zone| zone.value.wire() == name) {
        let what = format!("{value:?} is given by a primary, and cannot be made here");
        faults.push(place.fault(what, "another name"));
    }
    Some(name)
}

/// How a primary is asked over TLS, where it is.
fn encrypted(spec: &PrimarySpec, faults: &mut Faults) -> Option<Encrypted> {
    let Some(Placed { value, place }) = &spec.tls else {
        if let Some(file) = &spec.authorities {
            faults.push(file.place.fault("authorities without tls has no effect", "both or neither"));
        }
        return None;
    };
    let name = client::host(value);
    if name.is_none() {
        let expected = "the name or address that its certificate is for";
        faults.push(place.fault(format!("tls is {value:?}"), expected));
    }
    let expected = "certificates in PEM form (Debian: ca-certificates)";
    let config = tls::trusting(spec.authorities.as_ref(), Some(DOT), (place, expected), faults);
    Some(Encrypted { name: name?, config: config? })
}

/// The key of a name, where one is given; that there is none is told where `is_to_tell`.
fn named(
    keys: &Keys,
    name: Option<&Placed<String>>,
    is_to_tell: bool,
    faults: &mut Faults,
) -> Option<Arc<Key>> {
    let name = name?;
    let key = keys.named(&name.value).cloned();
    if key.is_none() && is_to_tell {
        let what = format!("the key {:?} is in no file of tsig_keys", name.value);
        faults.push(name.place.fault(what, "the name of a key that is"));
    }
    key
}

fn read_keys(path: &Path, keys: &mut Keys) -> Result<(), Faults> {
    let text = file::read_secret(path, KEYS_FILE_MAX, "a file with a key a line")?;
    keys.read(&path.to_string_lossy(), &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::spec::{Place, Present};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_primary_is_asked_over_tls_or_not_at_all() {
        let placed = |text: &str| Some(Placed { value: text.to_string(), place: Place::Flag("tls") });
        let file =
            |path: &str| Some(Placed { value: PathBuf::from(path), place: Place::Flag("authorities") });
        for (name, authorities, expected) in [
            (None, None, &[][..]),
            (None, file("/no/file"), &["authorities without tls has no effect"]),
            (
                placed("a b"),
                file("/no/file"),
                &["tls is \"a b\"", "the authorities in /no/file: it cannot be read"],
            ),
            (
                placed("ns1.example.com"),
                file("/no/file"),
                &["the authorities in /no/file: it cannot be read"],
            ),
            (placed("192.0.2.1"), file("/dev/null"), &["the authorities in /dev/null: hold no certificate"]),
        ] {
            let spec =
                PrimarySpec { tls: name, authorities, ..PrimarySpec::at(Place::Default, Present::default()) };
            let mut faults = Faults::default();
            let primary = read(&[], &[], &[spec], &[], &mut faults).primaries.0.remove(0);
            let told: Vec<&str> = faults.faults.iter().map(|fault| fault.what.as_str()).collect();
            let are_as = told.iter().zip(expected).all(|(told, expected)| told.starts_with(expected));
            assert!(told.len() == expected.len() && are_as, "{told:?}");
            assert!(primary.tls.is_none());
        }
    }

    #[test]
    fn a_catalog_has_a_name_that_no_primary_gives() {
        let placed = |text: &str| Placed { value: text.to_string(), place: Place::Flag("catalog") };
        let zone = |text: &str| {
            let name = dns::name::folded_from_text(text).expect("a name");
            Placed { value: Folded::read(&name).expect("a name"), place: Place::Flag("zones") }
        };
        let catalogs = vec![zone("given.example")];
        let primary = PrimarySpec { catalogs, ..PrimarySpec::at(Place::Default, Present::default()) };
        for (name, expected) in [
            ("Catalog.example", None),
            ("given.example.", Some("\"given.example.\" is given by a primary, and cannot be made here")),
            ("a..b", Some("a..b")),
        ] {
            let spec = SecondarySpec { catalog: Some(placed(name)), ..SecondarySpec::at(Place::Default) };
            let mut faults = Faults::default();
            let read = read(&[], &[spec], std::slice::from_ref(&primary), &[], &mut faults);
            let told: Vec<&str> = faults.faults.iter().map(|fault| fault.what.as_str()).collect();
            assert_eq!(told.len(), usize::from(expected.is_some()), "{told:?}");
            assert!(
                told.iter().all(|told| expected.is_some_and(|expected| told.contains(expected))),
                "{told:?}"
            );
            let made = read.secondaries.0[0].catalog.as_deref();
            assert!(expected.is_some() || made == Some(b"\x07catalog\x07example\0"), "{made:?}");
        }
    }

    #[test]
    fn what_an_updater_names_is_there() {
        let placed = |text: &str| Placed { value: text.to_string(), place: Place::Flag("updater") };
        let spec = UpdaterSpec {
            key: Some(placed("acme.example")),
            types: ["TXT", "type65", "WORDS"].map(placed).into(),
            ..UpdaterSpec::at(Place::Default, Present::default())
        };
        let mut faults = Faults::default();
        let updaters = read(&[], &[], &[], &[spec], &mut faults).updaters;
        let told: Vec<&str> = faults.faults.iter().map(|fault| fault.what.as_str()).collect();
        assert_eq!(told, ["the key \"acme.example\" is in no file of tsig_keys", "types has \"WORDS\""]);
        assert_eq!((updaters.0[0].types.len(), updaters.0[0].key.is_none()), (2, true));
    }

    #[test]
    fn keys_come_from_closed_files_only() {
        let folder = std::env::temp_dir().join(format!("pointsman-keys-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder can be made");
        let path = folder.join("keys");
        fs::write(&path, "hmac-sha256:ns2.example:MDEyMzQ1Njc4OWFiY2RlZg==\n").expect("it can be written");
        let key = |name: &str| SecondarySpec {
            key: Some(Placed { value: name.into(), place: Place::Flag("key") }),
            ..SecondarySpec::at(Place::Default)
        };
        let files = [Placed { value: path.clone(), place: Place::Default }];
        for (mode, name, expected) in [
            (0o600, "NS2.example.", ""),
            (0o640, "ns2.example", ""),
            (0o644, "ns2.example", "the file holds secrets and is open to others (mode 644)"),
            (0o600, "ns3.example", "the key \"ns3.example\" is in no file of tsig_keys"),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
            let mut faults = Faults::default();
            let config = read(&files, &[key(name)], &[], &[], &mut faults);
            let told: Vec<&str> = faults.faults.iter().map(|fault| fault.what.as_str()).collect();
            let expected: Vec<&str> = Some(expected).filter(|what| !what.is_empty()).into_iter().collect();
            assert_eq!(told, expected, "{mode:o} {name}");
            assert_eq!(config.secondaries.0[0].key.is_some(), faults.is_empty());
        }
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}
