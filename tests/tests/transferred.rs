//! What `dig` gets of a signed zone by AXFR is what stands in its master file, record by record.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::process::Command;

use tests::folder::Folder;
use tests::program::Program;
use tests::serving::Serving;
use tests::signer::sign;

const SMALL: &str = "\
$TTL 300
@ SOA ns hm 1 7200 600 86400 60
@ NS ns
ns A 127.0.0.1
a.b.ent A 192.0.2.2
*.wild TXT wild
d DNAME target
sub NS ns.sub
ns.sub A 192.0.2.3
";

#[test]
fn the_root_zone() {
    let Some(zone) = tests::data::xz_text("replay/root.zone.xz") else { return };
    let counts = check(".", &zone);
    assert!(counts["NSEC"] > 1000 && counts["RRSIG"] > 1000 && counts["DS"] > 1000, "{counts:?}");
}

#[test]
fn a_zone_signed_with_nsec3() {
    let folder = Folder::new();
    let signed = sign(&folder, "example", SMALL, &["-3", "aabb", "-H", "1", "-O", "full"]);
    let text = std::fs::read_to_string(signed).expect("it was made");
    let counts = check("example", &text);
    // The names with their empty non-terminals: example, ns, ent, b.ent, a.b.ent, wild, *.wild, d, sub.
    assert_eq!((counts["NSEC3"], counts["NSEC3PARAM"]), (9, 1), "{counts:?}");
    assert!(counts["RRSIG"] > counts["NSEC3"], "{counts:?}");
}

/// Compares a zone, one record a line, with its transfer; returns how many records of each type it has.
fn check(origin: &str, text: &str) -> BTreeMap<String, usize> {
    let folder = Folder::new();
    let file = folder.write("zone", text);
    let config = folder.write("pointsman.toml", "version = \"v1\"\n[[secondary]]\nfrom = [\"127.0.0.1\"]\n");
    let ours = Serving::start(&folder, &["--config", &config, "--zone", &file]);
    let mut dig = Command::new("dig");
    dig.args(["-r", "@127.0.0.1", "-p", &ours.dns().port().to_string(), origin, "AXFR"]);
    dig.args(["+onesoa", "+noall", "+answer", "+nosplit", "+tries=1", "+time=20"]);
    let ended = Program::spawn(dig).end();
    assert!(ended.status.success(), "{}{}", ended.stdout, ended.stderr);
    let [given, wanted] = [&ended.stdout, text].map(records);
    let differing: Vec<_> = given.iter().filter(|(line, count)| wanted.get(*line) != Some(count)).collect();
    assert!(differing.is_empty(), "not in the zone: {differing:#?}");
    let missing: Vec<_> = wanted.iter().filter(|(line, count)| given.get(*line) != Some(count)).collect();
    assert!(missing.is_empty(), "not transferred: {missing:#?}");
    ours.stop();
    let mut counts = BTreeMap::new();
    for record in given.keys() {
        let rtype = record.split(' ').nth(3).expect("a record has a type");
        *counts.entry(rtype.to_string()).or_default() += 1;
    }
    counts
}

/// The records of a text, with their number; the blanks in their data, which have no meaning in these zones, left
/// out.
fn records(text: &str) -> BTreeMap<String, usize> {
    let mut records = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with(';')) {
        let mut words = line.split_ascii_whitespace();
        let head: Vec<&str> = words.by_ref().take(4).collect();
        let (owner, head) = head.split_first().expect("a record has an owner");
        let data: String = words.collect();
        // What may be written in several ways.
        let data = match head.last().copied() {
            Some("DS") => data.to_uppercase(),
            Some("AAAA") => data.parse::<Ipv6Addr>().expect("an address").to_string(),
            _ => data,
        };
        let record = format!("{} {} {data}", owner.to_lowercase(), head.join(" "));
        *records.entry(record).or_default() += 1;
    }
    records
}
