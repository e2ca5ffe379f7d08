use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{Read, Write};
use std::path::PathBuf;

use proptest::prelude::*;
use routing::proximity::csv;
use routing::{Partition, Prefix, RegionId};

use super::table::Counts;
use super::*;

const TABLE: &str = "routing/bview.20020722.2337.gz";

/// A file of the folder with test data; says so where it is absent.
fn data(file: &str) -> Option<Vec<u8>> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = std::env::var_os("POINTSMAN_DATA").map_or(beside, PathBuf::from);
    let path = folder.join(file);
    match std::fs::read(&path) {
        Ok(octets) => Some(octets),
        Err(error) => {
            eprintln!("skipped: {}: {error} (POINTSMAN_DATA names the folder)", path.display());
            None
        }
    }
}

fn unpack(packed: &[u8]) -> Vec<u8> {
    let mut octets = Vec::new();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut octets).unwrap();
    octets
}

/// A path in the text form: ASes, and sets in braces.
enum Part {
    As(u32),
    Set,
}

fn parts(path: &str) -> Vec<Part> {
    path.split_ascii_whitespace().map(|part| part.parse().map_or(Part::Set, Part::As)).collect()
}

#[test]
fn a_real_table_says_what_its_text_says() {
    let (Some(packed), Some(text)) = (data(TABLE), data("routing/bview.20020722.2337.expected.bgp.gz"))
    else {
        return;
    };
    let table = table::read("bview", &packed).unwrap();
    let text = String::from_utf8(unpack(&text)).unwrap();
    let mut expected = Counts { records: table.counts.records, ..Counts::default() };
    let mut votes: BTreeMap<Prefix, BTreeMap<u32, u32>> = BTreeMap::new();
    let (mut links, mut ases) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines() {
        let columns: Vec<&str> = line.split('|').collect();
        let path = parts(columns[6]);
        expected.routes += 1;
        expected.incomplete += u64::from(columns[7] == "INCOMPLETE");
        expected.as_sets += u64::from(matches!(path.last(), Some(Part::Set)));
        let numbers = |part: &Part| if let Part::As(number) = part { Some(*number) } else { None };
        ases.extend(path.iter().filter_map(numbers));
        for pair in path.windows(2) {
            if let [Part::As(a), Part::As(b)] = pair
                && a != b
            {
                links.insert((*a.min(b), *a.max(b)));
            }
        }
        let origin = path.iter().rev().find_map(numbers).expect("every route has one");
        *votes.entry(columns[5].parse().unwrap()).or_default().entry(origin).or_insert(0) += 1;
    }
    expected.prefixes = votes.len() as u64;
    expected.several_origins = votes.values().filter(|votes| votes.len() > 1).count() as u64;
    (expected.ases, expected.links) = (ases.len() as u64, links.len() as u64);
    assert_eq!(table.counts, expected);
    assert_eq!((expected.routes, expected.prefixes, expected.ases), (115_521, 112_988, 13_463));
    let best = |votes: &BTreeMap<u32, u32>| {
        *votes.iter().max_by_key(|(number, votes)| (**votes, std::cmp::Reverse(**number))).unwrap().0
    };
    let origins: BTreeMap<Prefix, u32> =
        table.origins.iter().map(|(prefix, index)| (*prefix, table.ases.number(*index))).collect();
    assert_eq!(origins, votes.iter().map(|(prefix, votes)| (*prefix, best(votes))).collect());
    let named = |index: u32| table.ases.number(index);
    let read: BTreeSet<(u32, u32)> =
        table.links.iter().map(|&(a, b)| (named(a).min(named(b)), named(a).max(named(b)))).collect();
    assert_eq!(read, links);
}

#[test]
fn most_ases_are_three_to_five_hops_away() {
    let Some(packed) = data(TABLE) else { return };
    let table = table::read("bview", &packed).unwrap();
    let graph = Graph::new(table.ases.len(), &table.links);
    let mut rng = fastrand::Rng::with_seed(1);
    let mut at = [0u64; 16];
    for _ in 0..100 {
        for hops in graph.hops(rng.u32(..graph.len() as u32)).into_iter().flatten() {
            at[usize::from(hops).min(15)] += 1;
        }
    }
    let share = at[3..=5].iter().sum::<u64>() as f64 / at.iter().sum::<u64>() as f64;
    assert!((0.80..=0.86).contains(&share), "{share}: {at:?}");
}

fn built(servers: &[Server], relations: Option<&str>) -> Option<Result<Built, Faults>> {
    let packed = data(TABLE)?;
    let relations = relations.map(|text| Source { name: "rel", octets: text.as_bytes() });
    Some(build(Source { name: "bview", octets: &packed }, relations, servers))
}

fn server(address: &str, asn: Option<u32>) -> Server {
    Server { address: address.parse().unwrap(), asn }
}

/// Servers at SURFnet, by its prefix, AT&T and Telstra.
fn three() -> [Server; 3] {
    [server("145.0.0.1", None), server("192.0.2.2", Some(7018)), server("2001:db8::3", Some(1221))]
}

#[test]
fn the_partition_of_a_real_table() {
    let Some(built) = built(&three(), None) else { return };
    let built = built.unwrap();
    let region = |name: &str| {
        let at = built.regions.iter().position(|known| known == name)?;
        RegionId::new(at as u32 + 1)
    };
    let entries = csv::read("text", &built.text, &region).unwrap();
    let ranks = csv::ranks("text", &built.text, &region).unwrap();
    assert_eq!(entries.len(), 112_988);
    // Of the thirteen orders in which three servers can be seen.
    assert_eq!(built.regions.len(), 9, "{:?}", built.regions);
    let partition = Partition::compile(entries.iter().copied()).with_ranks(ranks);
    let near = |client: &str, server: &str| {
        let region = partition.lookup(client.parse().unwrap()).region;
        let server = server.parse().unwrap();
        partition.ranks().iter().find(|rank| (rank.region, rank.server) == (region, server)).unwrap().rank
    };
    // Each server's own AS is nearest to its own clients.
    for (client, nearest) in
        [("145.0.0.200", "145.0.0.1"), ("12.0.0.1", "192.0.2.2"), ("139.130.0.1", "2001:db8::3")]
    {
        for server in three() {
            let rank = near(client, &server.address.to_string());
            assert_eq!(
                rank == 1,
                server.address == nearest.parse::<IpAddr>().unwrap(),
                "{client} {server:?}"
            );
        }
    }
    let counts: HashMap<&str, u64> = built.counts.into_iter().collect();
    assert_eq!((counts["routes"], counts["unreachable_ases"]), (115_521, 0));
    assert_eq!(counts["regions"], built.regions.len() as u64);
}

#[test]
fn what_is_wrong_with_servers_is_listed() {
    let wrong = [server("198.51.100.1", None), server("192.0.2.2", Some(4_200_000_000))];
    let Some(refused) = built(&wrong, None) else { return };
    let faults = refused.unwrap_err().to_string();
    let expected = "bview: no prefix of the table has the server 198.51.100.1; \
                    expected its AS in the configuration: \"198.51.100.1=AS64496\"\n\
                    bview: AS4200000000 of the server 192.0.2.2 is not in the table; \
                    expected an AS that some path of the table has";
    assert_eq!(faults, expected);
}

#[test]
fn valley_free_paths_are_reported_beside_the_shortest() {
    let Some(packed) = data(TABLE) else { return };
    let table = table::read("bview", &packed).unwrap();
    // AT&T has peers alone: nobody's traffic goes through it, and who is behind it alone is out of the others' reach.
    let hub = table.ases.index(7018).unwrap();
    let linked = |&(a, b): &(u32, u32)| if a == hub { Some(b) } else { (b == hub).then_some(a) };
    let peers: Vec<u32> = table.links.iter().filter_map(linked).collect();
    let relations: String =
        peers.iter().map(|peer| format!("7018|{}|0\n", table.ases.number(*peer))).collect();
    let counts = |relations| {
        let built = built(&three(), relations)?.unwrap();
        Some(built.counts.into_iter().collect::<HashMap<&str, u64>>())
    };
    let (Some(plain), Some(free)) = (counts(None), counts(Some(relations.as_str()))) else { return };
    assert!(!plain.contains_key("pairs") && peers.len() > 100, "{plain:?}");
    assert_eq!(free["pairs"], 3 * free["ases"]);
    assert_eq!(free["links_without_relation"], free["links"] - peers.len() as u64);
    let [longer, lost] =
        ["longer", "unreachable"].map(|how| free[format!("pairs_{how}_without_valleys").as_str()]);
    assert!(longer > 0 && lost > 0 && longer + lost < free["pairs"] / 2, "{free:?}");
}

/// A record of TABLE_DUMP_V2: header, body.
fn record(subtype: u16, body: &[u8]) -> Vec<u8> {
    let header = [0, 0, 0, 0, 0, 13, (subtype >> 8) as u8, subtype as u8];
    [&header[..], &(body.len() as u32).to_be_bytes(), body].concat()
}

/// An entry of a RIB: ORIGIN and AS_PATH, whose segments are a type and four-octet numbers.
fn entry(origin: u8, segments: &[(u8, &[u32])]) -> Vec<u8> {
    let mut path = Vec::new();
    for (kind, numbers) in segments {
        path.extend([*kind, numbers.len() as u8]);
        path.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
    }
    let attributes = [&[0x40, 1, 1, origin, 0x40, 2, path.len() as u8][..], &path].concat();
    let mut entry = vec![0, 0, 0, 0, 0, 0];
    entry.extend((attributes.len() as u16).to_be_bytes());
    [entry, attributes].concat()
}

/// A RIB record: subtype 2 for IPv4, 4 for IPv6.
fn rib(subtype: u16, prefix: &[u8], entries: &[Vec<u8>]) -> Vec<u8> {
    let body = [&[0, 0, 0, 1][..], prefix, &(entries.len() as u16).to_be_bytes(), &entries.concat()].concat();
    record(subtype, &body)
}

const SEQUENCE: u8 = 2;
const SET: u8 = 1;

/// A small table of the second form, with IPv6, numbers of four octets, a set, two origins and a way to everywhere.
fn second_form() -> Vec<u8> {
    let peers = record(1, &[192, 0, 2, 1, 0, 0, 0, 0]);
    let sequence = |numbers| entry(0, &[(SEQUENCE, numbers)]);
    [
        peers,
        rib(2, &[8, 10], &[sequence(&[1, 2, 2, 3]), sequence(&[4, 3]), sequence(&[4, 70_000])]),
        rib(2, &[16, 10, 1], &[entry(2, &[(SEQUENCE, &[1, 5]), (SET, &[6, 7])])]),
        rib(2, &[0], &[sequence(&[1])]),
        rib(4, &[32, 0x20, 1, 0xd, 0xb8], &[sequence(&[1, 70_000])]),
        rib(4, &[112, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1], &[sequence(&[1, 9])]),
        rib(2, &[24, 10, 2, 3], &[entry(0, &[(SET, &[8])])]),
    ]
    .concat()
}

#[test]
fn the_second_form_and_both_packers() {
    let plain = second_form();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).unwrap();
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(&plain).unwrap();
    for octets in [plain, gzip.finish().unwrap(), bzip2.finish().unwrap()] {
        let table = table::read("t", &octets).unwrap();
        let expected = Counts {
            records: 7,
            routes: 8,
            as_sets: 2,
            incomplete: 1,
            without_origin: 1,
            default_routes: 1,
            mapped_routes: 1,
            prefixes: 3,
            several_origins: 1,
            ases: 6,
            links: 6,
            ..Counts::default()
        };
        assert_eq!(table.counts, expected);
        let origins: Vec<(String, u32)> = table
            .origins
            .iter()
            .map(|(prefix, index)| (prefix.to_string(), table.ases.number(*index)))
            .collect();
        let expected = [("10.0.0.0/8", 3), ("10.1.0.0/16", 5), ("2001:db8::/32", 70_000)];
        assert_eq!(origins, expected.map(|(prefix, number)| (prefix.to_string(), number)));
    }
}

#[test]
fn a_table_that_is_cut_off_is_a_fault_that_names_the_record() {
    let plain = second_form();
    for length in 0..plain.len() {
        // A cut between two records cannot be seen, but the first ones have no route.
        if let Err(faults) = table::read("t", &plain[..length]) {
            let told = faults.to_string();
            assert!(told.starts_with("t: record ") || told.starts_with("t: no route in "), "{told}");
        }
    }
    let whole = 12 + 8;
    let faults = table::read("t", &plain[..whole + 20]).unwrap_err().to_string();
    let expected = format!("t: record 2 at octet {whole}: truncated MRT body");
    assert!(faults.starts_with(&expected) && faults.contains("expected a whole table in MRT"), "{faults}");
    // An entry that claims more than its record has.
    let mut damaged = plain.clone();
    damaged[whole + 12 + 8 + 6] = 0xff;
    let faults = table::read("t", &damaged).unwrap_err().to_string();
    assert!(faults.contains("record 2 at octet 20: entry 1 is damaged: it is cut off"), "{faults}");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).unwrap();
    let packed = gzip.finish().unwrap();
    let faults = table::read("t", &packed[..packed.len() / 2]).unwrap_err().to_string();
    assert!(faults.contains(" of what is unpacked: "), "{faults}");
    for nonsense in [&b""[..], b"prefix,region\n192.0.2.0/24,europe\n", &[0; 64], b"BZh9", &[0x1f, 0x8b]] {
        assert!(table::read("t", nonsense).is_err(), "{nonsense:?}");
    }
}

proptest! {
    #[test]
    fn damage_is_a_fault_or_goes_unseen(at: prop::sample::Index, with: u8, cut: prop::sample::Index) {
        let mut octets = second_form();
        let place = at.index(octets.len());
        octets[place] = with;
        octets.truncate(cut.index(octets.len()) + 1);
        let source = Source { name: "t", octets: &octets };
        let _ = build(source, None, &[Server { address: [10, 1, 2, 3].into(), asn: Some(3) }]);
    }
}
