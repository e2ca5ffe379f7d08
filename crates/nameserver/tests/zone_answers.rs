//! 2,500 small zones with one query each, and the answer on which four name servers agreed.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dns::Rtype;
use domain::base::{Message, MessageBuilder, Name};
use domain::rdata::AllRecordData;
use nameserver::answer::{Asked, Reply, Transport};
use nameserver::generation::{Generation, Settings};
use nameserver::zone::{Zone, read};
use net::clock::Now;

/// Answers that we give otherwise, with the section of the RFC that says so.
const OTHERWISE: &[(u64, &str)] = &[];

#[test]
fn zone_answers() {
    let folder = std::env::var_os("POINTSMAN_DATA").map_or("../../../shared/data".into(), PathBuf::from);
    let path = folder.join("conformance/zone-answers.jsonl.xz");
    let Ok(file) = std::fs::File::open(&path) else {
        println!("skipped: {} is not here", path.display());
        return;
    };
    let mut text = String::new();
    lzma_rust2::XzReader::new(file, true).read_to_string(&mut text).unwrap();
    let mut differing: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut cases = 0;
    for line in text.lines() {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        cases += 1;
        let id = case["id"].as_u64().unwrap();
        let (expected, got) = (wanted(&case), answer(&case));
        if expected != got && !OTHERWISE.iter().any(|(other, _)| *other == id) {
            println!(
                "{id} {} {} {}\n{}",
                case["tag"],
                case["qname"],
                case["qtype"],
                case["zone"].as_str().unwrap()
            );
            println!("expected {expected:#?}\ngot {got:#?}\n");
            differing.entry(case["tag"].to_string()).or_default().push(id);
        }
    }
    assert!(differing.is_empty(), "{differing:#?}");
    assert_eq!(cases, 2_500);
}

type Sections = (String, bool, Vec<String>, Vec<String>);

fn wanted(case: &serde_json::Value) -> Sections {
    let list = |key: &str| {
        case[key].as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_string()).collect()
    };
    (case["rcode"].as_str().unwrap().into(), case["aa"].as_bool().unwrap(), list("answer"), list("authority"))
}

fn answer(case: &serde_json::Value) -> Sections {
    let mut generation = Generation::empty(3, Settings { minimal_responses: false, ..Settings::default() });
    let include = |_: &str| Err(String::new());
    let text = case["zone"].as_str().unwrap();
    let source = read::Source { name: "zone", text: text.as_bytes(), origin: None, include: &include };
    let zone = read::read(&source).and_then(|master| Zone::build(&master, "zone", &generation.hash));
    match zone {
        Ok(zone) => generation.zones.put(Arc::new(zone), &generation.hash),
        Err(faults) => return (faults.to_string(), false, vec![], vec![]),
    }
    let mut builder = MessageBuilder::new_vec().question();
    let name: Name<Vec<u8>> = case["qname"].as_str().unwrap().parse().unwrap();
    let rtype: Rtype = case["qtype"].as_str().unwrap().parse().unwrap();
    builder.push((&name, rtype)).unwrap();
    let query = builder.finish();
    let local: IpAddr = "127.0.0.1".parse().unwrap();
    let asked = Asked { query: &query, client: local, local, transport: Transport::Tcp };
    let mut out = vec![0; 65_535];
    let now = Now { monotonic: Duration::ZERO, unix: Duration::ZERO };
    let Reply::Send(length) = generation.answer(&asked, now, &mut fastrand::Rng::with_seed(1), &mut out)
    else {
        panic!("a query is answered");
    };
    let message = Message::from_octets(&out[..length]).unwrap();
    let (_, answer, authority, _) = message.sections().unwrap();
    let list = |section: domain::base::message::RecordSection<'_, &[u8]>| {
        let mut lines: Vec<String> = section
            .limit_to::<AllRecordData<_, _>>()
            .map(|record| {
                let record = record.unwrap();
                let dot = if record.owner().to_string().is_empty() { "" } else { "." };
                format!(
                    "{}{dot} {} {} {} {}",
                    record.owner(),
                    record.ttl().as_secs(),
                    record.class(),
                    record.rtype(),
                    record.data()
                )
                .to_lowercase()
            })
            .collect();
        lines.sort();
        lines
    };
    (message.header().rcode().to_string(), message.header().aa(), list(answer), list(authority))
}
