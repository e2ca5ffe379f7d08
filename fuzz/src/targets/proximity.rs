//! Where partitions come from besides texts: tables of routes, and a service outside.

use std::cell::Cell;

use nameserver::as_path::{Server, Source, build};
use nameserver::external::lines::{LINE_MAX, Lines};
use routing::RegionId;
use routing::proximity::csv;

/// A table is built into a partition that can be read, or is refused with a reason; so are relations.
pub(super) fn mrt(octets: &[u8]) {
    let servers = [
        Server { address: [10, 0, 0, 1].into(), asn: None },
        Server { address: [192, 0, 2, 1].into(), asn: Some(3) },
    ];
    let source = |octets| Source { name: "fuzz", octets };
    // What is no table may still be relations, of a table that is right.
    let good = table();
    for (table, relations) in [(octets, None), (&good[..], Some(source(octets)))] {
        match build(source(table), relations, &servers) {
            Ok(built) => {
                let count = Cell::new(0);
                let region = |_: &str| {
                    count.set(count.get() + 1);
                    RegionId::new(1)
                };
                csv::read("built", &built.text, &region).expect("it was written by us");
            }
            Err(faults) => assert!(!faults.is_empty()),
        }
    }
}

/// Relations, packed by others with gzip and bzip2.
const PACKED: [&str; 2] = [
    "1f8b080000000000020333ac31aad135e432aa31ae31a8494a2fe00200473e2b4311000000",
    "425a683931415926535960780e59000002d980001000027800108040042000221a34321003045c13404269f53f177245\
    38509060780e59",
];

/// A small table in both forms, and relations, as they are and packed.
pub(super) fn tables() -> Vec<Vec<u8>> {
    let [gzip, bzip2] = PACKED.map(|hex| crate::from_hex(hex).expect("hexadecimal digits"));
    vec![table(), b"1|2|-1\n2|3|0|bgp\n# all\n".to_vec(), first_form(), gzip, bzip2]
}

fn record(kind: u8, subtype: u8, body: &[u8]) -> Vec<u8> {
    let header = [0, 0, 0, 0, 0, kind, 0, subtype];
    [&header[..], &(body.len() as u32).to_be_bytes(), body].concat()
}

/// ORIGIN, and a path that is one sequence of numbers of so many octets.
fn attributes(numbers: &[u32], octets: usize) -> Vec<u8> {
    let mut path = vec![2, numbers.len() as u8];
    path.extend(numbers.iter().flat_map(|number| number.to_be_bytes()[4 - octets..].to_vec()));
    [&[0x40, 1, 1, 0, 0x40, 2, path.len() as u8][..], &path].concat()
}

fn table() -> Vec<u8> {
    let rib = |subtype, prefix: &[u8], numbers: &[u32]| {
        let attributes = attributes(numbers, 4);
        let entry = [&[0; 6][..], &(attributes.len() as u16).to_be_bytes(), &attributes].concat();
        record(13, subtype, &[&[0, 0, 0, 1][..], prefix, &[0, 1], &entry].concat())
    };
    [
        record(13, 1, &[192, 0, 2, 1, 0, 0, 0, 0]),
        rib(2, &[8, 10], &[1, 2, 3]),
        rib(2, &[24, 192, 0, 2], &[1, 2]),
        rib(4, &[32, 0x20, 1, 0xd, 0xb8], &[1, 3]),
    ]
    .concat()
}

fn first_form() -> Vec<u8> {
    let attributes = attributes(&[1, 2, 3], 2);
    let body = [
        &[0, 0, 0, 1, 10, 0, 0, 0, 8, 1, 0, 0, 0, 0, 192, 0, 2, 1, 0, 1][..],
        &(attributes.len() as u16).to_be_bytes(),
        &attributes,
    ];
    record(12, 1, &body.concat())
}

/// Lines are told the same however they are cut, and none is longer than it may be.
pub(super) fn lines(octets: &[u8]) {
    let read = |parts: &[&[u8]]| {
        let (mut lines, mut told) = (Lines::default(), Vec::new());
        let ended = parts.iter().try_for_each(|part| {
            lines.push(part, &mut |said| {
                told.push(said.map(|said| {
                    assert!(said.region.len() <= LINE_MAX);
                    (said.address, said.region.to_owned())
                }));
            })
        });
        (told, ended)
    };
    let cut = octets.first().map_or(0, |first| usize::from(*first)).min(octets.len());
    assert_eq!(read(&[octets]), read(&[&octets[..cut], &octets[cut..]]));
}

pub(super) fn said() -> Vec<Vec<u8>> {
    vec![b"192.0.2.0 europe\n2001:db8:: -\n10.0.0.0 7\r\n".to_vec(), vec![b'x'; LINE_MAX + 1]]
}
