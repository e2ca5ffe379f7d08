//! The orders of policies, over the wire: fixed, in turn over all workers, nearest first.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::json;
use tests::folder::Folder;
use tests::query::Question;
use tests::serving::Serving;

const ZONE: &str = "$TTL 300\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\n";

/// Clients that ask at the same time.
const CLIENTS: usize = 8;

/// How often each of them asks for each name.
const ASKED: usize = 60;

fn serving(folder: &Folder, more: &[&str]) -> Serving {
    let zone = folder.write("example.com.zone", ZONE);
    Serving::start(folder, &[&["--zone", &zone], more].concat())
}

/// Puts a policy of three servers at `name`.
fn put(server: &Serving, name: &str, order: &str, answers: u16) {
    let servers: Vec<_> = (1..=3).map(|n| json!({"address": format!("198.51.100.{n}")})).collect();
    let policy = json!({"order": order, "answers": answers, "servers": servers});
    server.call("PUT", &format!("/v1/policies/{name}"), &policy.to_string());
}

/// The last octets of an answer's addresses.
fn asked(server: SocketAddr, question: &Question, is_udp: bool) -> Vec<u8> {
    let answer = if is_udp { question.udp(server) } else { question.tcp(server) };
    let last = |line: &String| line.rsplit('.').next().and_then(|octet| octet.parse().ok());
    answer.answer.iter().map(|line| last(line).expect("an address")).collect()
}

#[test]
fn a_fixed_order_is_the_same_each_time() {
    let folder = Folder::new();
    let server = serving(&folder, &[]);
    put(&server, "www.example.com", "fixed", 2);
    for _ in 0..9 {
        assert_eq!(asked(server.dns(), &Question::new("www.example.com", "A"), true), [1, 2]);
    }
    server.call("PUT", "/v1/servers/198.51.100.1/state", r#"{"up": false}"#);
    assert_eq!(asked(server.dns(), &Question::new("www.example.com", "A"), true), [2, 3]);
}

#[test]
fn a_rotation_is_exact_over_all_workers_and_transports() {
    let folder = Folder::new();
    let server = serving(&folder, &["--workers", "4"]);
    put(&server, "www.example.com", "rotate", 1);
    put(&server, "*.example.com", "rotate", 1);
    let address = server.dns();
    let counts: Vec<BTreeMap<(String, u8), usize>> = std::thread::scope(|scope| {
        let ask = |client: usize| {
            scope.spawn(move || {
                let mut counts = BTreeMap::new();
                for at in 0..ASKED {
                    // Every name below the wildcard has the wildcard's turn.
                    let other = format!("x{client}-{at}.example.com");
                    for (owner, name) in [("www", "www.example.com"), ("*", other.as_str())] {
                        let first = asked(address, &Question::new(name, "A"), client > 1)[0];
                        *counts.entry((owner.to_string(), first)).or_default() += 1;
                    }
                }
                counts
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(ask).collect();
        clients.into_iter().map(|client| client.join().expect("a client ends")).collect()
    });
    let mut sums = BTreeMap::new();
    for (key, count) in counts.into_iter().flatten() {
        *sums.entry(key).or_insert(0) += count;
    }
    let due = CLIENTS * ASKED / 3;
    let expected = ["*", "www"].map(|owner| [1, 2, 3].map(|server| ((owner.to_string(), server), due)));
    assert_eq!(sums, expected.into_iter().flatten().collect());
    let workers = server.call("GET", "/v1/status", "").json();
    let busy = workers["workers"].as_array().expect("workers").iter().filter(|w| w["queries"] != 0).count();
    assert!(busy > 1, "one worker alone answered: {workers}");
}

#[test]
fn the_nearest_by_a_partitions_ranks() {
    let folder = Folder::new();
    let text = "@here,198.51.100.3,1\n@here,198.51.100.2,2\n@here,198.51.100.1,2\n10.0.0.0/8,here\n11.0.0.0/8,there\n";
    let partition = folder.write("partition.csv", text);
    let server = serving(&folder, &["--partition", &partition]);
    put(&server, "www.example.com", "nearest", 2);
    let question = Question::new("www.example.com", "A");
    let seen = |client: &str| {
        let question = question.clone().subnet(client);
        let mut seen: Vec<_> = (0..60).map(|_| asked(server.dns(), &question, true)).collect();
        seen.sort();
        seen.dedup();
        seen
    };
    assert_eq!(seen("10.1.0.0/16"), [[1, 3], [2, 3]], "the nearest, and one of two that are alike; sorted");
    assert_eq!(seen("11.1.0.0/16"), [[1, 2]], "nothing is known of them: as they are listed");
    assert_eq!(seen("192.0.2.0/24"), [[1, 2]]);
    // A region's number goes, and its ranks with it.
    server.call("DELETE", "/v1/regions/1", "");
    assert_eq!(seen("10.1.0.0/16"), [[1, 2]]);
    let text = server.call("GET", "/v1/partitions/default", "").text();
    assert_eq!(text, "prefix,region\n10.0.0.0/8,-\n11.0.0.0/8,there\n");
}
