//! Where partitions come from: texts and databases.

use routing::proximity::csv;
use routing::proximity::mmdb::{self, Codes, Field};
use routing::{Partition, RegionId};

fn region(name: &str) -> Option<RegionId> {
    match name {
        "europe" => RegionId::new(1),
        "asia" => RegionId::new(2),
        _ => None,
    }
}

/// A partition compiles or its faults are listed; what is read writes and reads back the same.
pub(super) fn partition(octets: &[u8]) {
    let Ok(text) = std::str::from_utf8(octets) else { return };
    if let Ok(ranks) = csv::ranks("fuzz", text, &region) {
        let name = |id: RegionId| if id.get() == 1 { Some("europe") } else { Some("asia") };
        let again = csv::ranks("again", &csv::write_ranks(&ranks, &name), &region);
        assert_eq!(again, Ok(ranks));
    }
    match csv::read("fuzz", text, &region) {
        Ok(entries) => {
            let names = |id: RegionId| match id.get() {
                1 => Some("europe"),
                2 => Some("asia"),
                _ => None,
            };
            let mut again =
                csv::read("again", &csv::write(&entries, &names), &region).expect("it was written by us");
            let mut entries = entries;
            entries.sort_unstable();
            again.sort_unstable();
            assert_eq!(again, entries);
            let partition = Partition::compile(entries.iter().copied());
            for (prefix, _) in entries {
                let leaf = partition.lookup(prefix.address());
                assert!(leaf.scope <= if prefix.address().is_ipv4() { 32 } else { 128 });
            }
        }
        Err(faults) => assert!(!faults.is_empty()),
    }
}

pub(super) fn partitions() -> Vec<Vec<u8>> {
    vec![
        b"prefix,region\n# ours\n10.0.0.0/8,europe\n10.1.0.0/16,-\n2001:db8::/32,asia\n".to_vec(),
        b"@asia,192.0.2.1,1\n@europe,2001:db8::1,10000\n10.0.0.0/8,asia\n10.0.0.0/9,?\n".to_vec(),
        b"0.0.0.0/0,asia\n::/0,europe\n192.0.2.1/32,europe\n".to_vec(),
    ]
}

/// A code-to-region file is read or its faults are listed.
pub(super) fn codes(octets: &[u8]) {
    let Ok(text) = std::str::from_utf8(octets) else { return };
    for field in [Field::Country, Field::Continent, Field::Asn] {
        if let Err(faults) = Codes::read("fuzz", text, field, &region) {
            assert!(!faults.is_empty());
        }
    }
}

pub(super) fn code_files() -> Vec<Vec<u8>> {
    vec![b"code,region\nDE,europe\njp,asia\n".to_vec(), b"AS64496,europe\n64497,asia\n".to_vec()]
}

/// A database is flattened or refused; a damaged one must not run long or panic.
pub(super) fn database(octets: &[u8]) {
    let codes = Codes::read("codes", "DE,europe\nEU,europe\n", Field::Country, &region).expect("two codes");
    if let Err(faults) = mmdb::read("fuzz", octets, &codes) {
        assert!(!faults.is_empty());
    }
}

/// A database of one network, as small as the format allows: a tree of one node, its data and its metadata.
pub(super) fn databases() -> Vec<Vec<u8>> {
    let string = |text: &str| [&[0x40 | text.len() as u8][..], text.as_bytes()].concat();
    let small = |kind: u8, value: u8| vec![kind << 5 | 1, value];
    let map = |length: u8| vec![0xe0 | length];
    // Record size 24: the left record points at the data section (node count + 16), the right one nowhere.
    let tree = [0, 0, 17, 0, 0, 1];
    let data = [map(1), string("country"), map(1), string("iso_code"), string("DE")].concat();
    let metadata = [
        map(7),
        string("binary_format_major_version"),
        small(5, 2),
        string("binary_format_minor_version"),
        small(5, 0),
        string("build_epoch"),
        vec![1, 2, 1],
        string("database_type"),
        string("T"),
        string("ip_version"),
        small(5, 4),
        string("node_count"),
        small(6, 1),
        string("record_size"),
        small(5, 24),
    ]
    .concat();
    vec![[&tree[..], &[0; 16], &data, b"\xab\xcd\xefMaxMind.com", &metadata].concat()]
}
