//! 2,500 small zones with one query each, and the answer on which four name servers agreed.

use std::collections::BTreeMap;

use serde_json::Value;
use tests::folder::Folder;
use tests::http::Client;
use tests::query::{Answer, Question};
use tests::serving::Serving;

/// How many cases there are.
const CASES: usize = 2_500;

/// Answers that we give otherwise, with the section of the RFC that says so; at most [`OTHERWISE_MAX`].
const OTHERWISE: &[(u64, &str)] = &[];

/// How many may be listed: beyond, it is we who are wrong.
const OTHERWISE_MAX: usize = 10;

#[test]
fn zone_answers() {
    const { assert!(OTHERWISE.len() <= OTHERWISE_MAX) };
    let Some(text) = tests::data::xz_text("conformance/zone-answers.jsonl.xz") else { return };
    let folder = Folder::new();
    let server = Serving::start(&folder, &["--minimal-responses", "false"]);
    let mut client = server.client();
    let mut differing: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut otherwise = Vec::new();
    let mut cases = 0;
    for line in text.lines() {
        let case: Value = serde_json::from_str(line).expect("a line is a case");
        cases += 1;
        let id = case["id"].as_u64().expect("a case has a number");
        let (expected, got) = (wanted(&case), asked(&case, &server, &mut client));
        if expected == got {
            continue;
        }
        match OTHERWISE.iter().any(|(known, _)| *known == id) {
            true => otherwise.push(id),
            false => {
                println!(
                    "{id} {} {} {}\n{}",
                    case["tag"],
                    case["qname"],
                    case["qtype"],
                    text_of(&case, "zone")
                );
                println!("expected {expected:#?}\ngot {got:#?}\n");
                differing.entry(case["tag"].to_string()).or_default().push(id);
            }
        }
    }
    assert!(differing.is_empty(), "{differing:#?}");
    assert_eq!(otherwise.len(), OTHERWISE.len(), "what is listed and agrees is to be struck off");
    assert_eq!(cases, CASES);
    server.stop();
}

/// What is compared: response code, AA, ANSWER and AUTHORITY.
type Compared = (String, bool, Vec<String>, Vec<String>);

fn wanted(case: &Value) -> Compared {
    let list = |key: &str| {
        let lines = case[key].as_array().expect("a section is a list");
        lines.iter().map(|line| line.as_str().expect("a record is text").to_string()).collect()
    };
    let aa = case["aa"].as_bool().expect("AA is a flag");
    (text_of(case, "rcode").into(), aa, list("answer"), list("authority"))
}

/// Puts the zone, asks, deletes the zone.
fn asked(case: &Value, server: &Serving, client: &mut Client) -> Compared {
    let zone = text_of(case, "zone");
    let soa =
        zone.lines().find(|line| line.split(' ').nth(3) == Some("SOA")).expect("a zone has a SOA record");
    let origin = soa.split(' ').next().expect("a record has an owner");
    let path = format!("/v1/zones/{}", if origin == "." { "=2E" } else { origin });
    let put = client.call("PUT", &path, zone);
    assert_eq!(put.status, 200, "{zone}{}", put.text());
    let question = Question::new(text_of(case, "qname"), text_of(case, "qtype"));
    let Answer { rcode, aa, answer, authority, .. } = question.ask(server.dns());
    let deleted = client.call("DELETE", &path, "");
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    (rcode, aa, answer, authority)
}

fn text_of<'v>(case: &'v Value, key: &str) -> &'v str {
    case[key].as_str().expect("it is text")
}
