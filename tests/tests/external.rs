//! An external proximity service: answers, stalls, talks nonsense, is flooded; no query ever waits for it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::folder::Folder;
use tests::guide;
use tests::peer::free_address;
use tests::program::Program;
use tests::query::Question;
use tests::serving::Serving;

const ZONE: &str = "$TTL 300\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\n";

/// A server for each region, and one for those of whom nothing is known.
const POLICY: &str = r#"{"names": ["www.example.com"], "servers": [
    {"address": "192.0.2.1", "default": {"probability": 1, "ttl": 300}},
    {"address": "192.0.2.2", "regions": {"europe": {"probability": 1, "ttl": 300}}},
    {"address": "192.0.2.3", "regions": {"asia": {"probability": 1, "ttl": 300}}}]}"#;

/// What a test that waits for something to come true is ended by.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long an answer from ignorance may be kept here, in seconds.
const SHORT: u32 = 7;

/// What a service does with a question.
type Answers = dyn Fn(IpAddr) -> String + Send + Sync;

/// A service, on a port of the system's choice; it lives as long as the test.
struct Service {
    address: SocketAddr,
    connections: Arc<AtomicU64>,
    asked: Arc<AtomicU64>,
}

impl Service {
    fn start(answers: Arc<Answers>) -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback binds");
        let address = listener.local_addr().expect("it is bound");
        let [connections, asked] = [0, 0].map(|_| Arc::new(AtomicU64::new(0)));
        let (counted, questions) = (connections.clone(), asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                counted.fetch_add(1, Ordering::SeqCst);
                let (answers, questions) = (answers.clone(), questions.clone());
                std::thread::spawn(move || converse(stream, &*answers, &questions));
            }
        });
        Service { address, connections, asked }
    }
}

/// Answers question by question until the other side goes, or there is no more to say.
fn converse(stream: TcpStream, answers: &Answers, asked: &AtomicU64) {
    let mut to = stream.try_clone().expect("it can be copied");
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        asked.fetch_add(1, Ordering::SeqCst);
        let address = line.parse().expect("a question is an address");
        if to.write_all(answers(address).as_bytes()).is_err() {
            return;
        }
    }
}

/// Where an address really is: by the lowest bit of its third octet, or of its fourth group.
fn truth(address: IpAddr) -> &'static str {
    let odd = match address {
        IpAddr::V4(v4) => v4.octets()[2] & 1,
        IpAddr::V6(v6) => (v6.segments()[3] >> 8) as u8 & 1,
    };
    ["europe", "asia"][usize::from(odd)]
}

fn serving(folder: &Folder, service: SocketAddr, more: &str) -> Serving {
    let zone = folder.write("example.com.zone", ZONE);
    let partition =
        folder.write("partition.csv", "10.0.0.0/8,europe\n172.16.0.0/12,asia\n0.0.0.0/0,?\n::/0,?\n");
    let policy = folder.write("www.json", POLICY);
    let config = folder.write(
        "p.toml",
        format!(
            "version = \"v1\"\n[external]\nservice = \"{service}\"\nttl = \"{SHORT} s\"\n{more}\n\
             [[partition]]\ncsv = \"{partition}\"\n"
        ),
    );
    Serving::start(folder, &["--config", &config, "--zone", &zone, "--policy", &policy])
}

/// What a client is answered: the server's last octet, the TTL and the scope.
fn asked(server: &Serving, client: &str) -> (u8, u32, u8) {
    let answer = Question::new("www.example.com", "A").subnet(client).udp(server.dns());
    let words: Vec<&str> = answer.answer[0].split(' ').collect();
    let last = words[4].rsplit('.').next().and_then(|octet| octet.parse().ok()).expect("an address");
    (last, words[1].parse().expect("a TTL"), answer.subnet.expect("it is echoed").2)
}

/// Asks until the answer is as expected; every answer before must be one from ignorance.
fn until_known(server: &Serving, client: &str, expected: (u8, u32, u8)) {
    let until = Instant::now() + PATIENCE;
    loop {
        let answer = asked(server, client);
        if answer == expected {
            return;
        }
        assert_eq!(answer, (1, SHORT, expected.2), "{client}");
        assert!(Instant::now() < until, "{client} is never known");
    }
}

fn external(server: &Serving) -> Value {
    server.call("GET", "/v1/status", "").json()["external"].clone()
}

/// Looks at the status until it is as wanted.
fn until_state(server: &Serving, wanted: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + PATIENCE;
    loop {
        let state = external(server);
        if wanted(&state) {
            return state;
        }
        assert!(Instant::now() < until, "it never comes: {state}");
    }
}

#[test]
fn what_is_not_known_is_answered_at_once_and_learned() {
    let service = Service::start(Arc::new(|address| format!("{address} {}\n", truth(address))));
    let folder = Folder::new();
    let server = serving(&folder, service.address, "");
    for (client, server_of, scope) in [
        ("192.0.2.0/24", 2, 24),
        ("192.0.3.0/24", 3, 24),
        ("192.0.4.128/25", 2, 25),
        ("192.0.5.7/32", 3, 32),
        ("198.51.0.0/16", 2, 24),
        ("2001:db8:0:100::/56", 3, 56),
        ("2001:db8:0:200::/64", 2, 64),
    ] {
        until_known(&server, client, (server_of, 300, scope));
    }
    let why = |client: &str| {
        let asked = format!(r#"{{"name": "www.example.com", "type": "A", "client": "{client}"}}"#);
        let told = server.call("POST", "/v1/explain", &asked).json();
        (told["region"].clone(), told["why"].as_str().expect("a text").to_string())
    };
    assert_eq!(why("192.0.2.9"), ("europe".into(), "the row of region europe".into()));
    let not_yet = "the default column: the external proximity service has not said yet";
    assert_eq!(why("192.0.9.9"), (Value::Null, not_yet.into()));
    // A look-up in the partition says the same.
    let found = |address: &str| {
        let path = format!("/v1/partitions/default/lookup?address={address}");
        let found = server.call("GET", &path, "").json();
        (found["region"].clone(), found["prefix"].clone())
    };
    assert_eq!(found("192.0.2.9"), ("europe".into(), "192.0.2.0/24".into()));
    assert_eq!(found("192.0.9.9"), (Value::Null, "192.0.9.0/24".into()));
    // The partition knows these, and nobody is asked about them.
    let before = service.asked.load(Ordering::SeqCst);
    assert_eq!(asked(&server, "10.1.2.0/24"), (2, 300, 8));
    assert_eq!(asked(&server, "172.16.1.0/24"), (3, 300, 12));
    assert_eq!(asked(&server, "192.0.2.0/24"), (2, 300, 24));
    assert_eq!(service.asked.load(Ordering::SeqCst), before);
    let state = until_state(&server, |state| state["known"] == 7);
    assert_eq!((&state["connected"], &state["events"]["told"]), (&Value::from(true), &Value::from(7)));
    let metrics = server.call("GET", "/metrics", "").text();
    assert!(metrics.contains("pointsman_external_known 7"), "{metrics}");
}

#[test]
fn a_stalled_service_holds_nobody_up_and_is_tried_again() {
    let stalls = Arc::new(AtomicBool::new(true));
    let stalled = stalls.clone();
    let service = Service::start(Arc::new(move |address| {
        if stalled.load(Ordering::SeqCst) { String::new() } else { format!("{address} {}\n", truth(address)) }
    }));
    let folder = Folder::new();
    let server = serving(&folder, service.address, "timeout = \"100 ms\"");
    // Every query is answered while nothing comes from the service, until it was given up several times.
    let mut queries = 0;
    let until = Instant::now() + PATIENCE;
    while service.connections.load(Ordering::SeqCst) < 3 {
        assert!(Instant::now() < until, "it is not tried again");
        assert_eq!(asked(&server, "192.0.3.0/24"), (1, SHORT, 24));
        queries += 1;
    }
    let state = until_state(&server, |state| state["connected"] == false);
    assert!(
        state["message"].as_str().is_some_and(|message| message.contains("no answer to 1 questions")),
        "{state}"
    );
    assert!(queries > 0 && state["events"]["late"].as_u64() >= Some(2), "{state}");
    stalls.store(false, Ordering::SeqCst);
    until_known(&server, "192.0.3.0/24", (3, 300, 24));
}

#[test]
fn a_service_that_is_not_there_is_waited_for() {
    let unbound =
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let folder = Folder::new();
    let server = serving(&folder, unbound, "");
    assert_eq!(asked(&server, "192.0.3.0/24"), (1, SHORT, 24));
    let state = until_state(&server, |state| state["events"]["failed"].as_u64() > Some(1));
    assert_eq!(state["connected"], false);
}

#[test]
fn nonsense_is_counted_and_teaches_nothing() {
    let service = Service::start(Arc::new(|address| match address {
        IpAddr::V4(v4) if v4.octets()[0] == 192 => format!("{v4} atlantis\n"),
        IpAddr::V4(v4) if v4.octets()[0] == 198 => format!("what about {v4}?\n{v4} asia\n"),
        IpAddr::V4(v4) if v4.octets()[0] == 203 => format!("9.9.9.9 asia\n{v4} 2\n{v4} europe\n"),
        _ => format!("{address} -\n"),
    }));
    let folder = Folder::new();
    let server = serving(&folder, service.address, "");
    until_known(&server, "198.51.100.0/24", (3, 300, 24));
    // The number of a region will do, and only the first answer counts.
    until_known(&server, "203.0.113.0/24", (3, 300, 24));
    // Known to be in no region: the default column, as long as it says.
    until_known(&server, "9.8.7.0/24", (1, 300, 24));
    let until = Instant::now() + PATIENCE;
    while external(&server)["events"]["unknown_region"] == 0 {
        assert_eq!(asked(&server, "192.0.3.0/24"), (1, SHORT, 24));
        assert!(Instant::now() < until, "the unknown region is never counted");
    }
    let state = external(&server);
    let events = &state["events"];
    assert_eq!((&events["malformed"], &events["unasked"]), (&Value::from(1), &Value::from(2)), "{state}");
    assert_eq!((&state["connected"], &events["failed"]), (&Value::from(true), &Value::from(0)), "{state}");
}

#[test]
fn blocks_with_one_first_address_are_one_question() {
    let (release, held) = channel::<()>();
    let held = Mutex::new(held);
    // It says nothing until all blocks are under way.
    let service = Service::start(Arc::new(move |address| {
        let _ = held.lock().expect("nobody panics").recv();
        format!("{address} asia\n")
    }));
    let folder = Folder::new();
    let server = serving(&folder, service.address, "timeout = \"5 s\"");
    let blocks: Vec<String> = (56..65).map(|length| format!("2001:db8:1::/{length}")).collect();
    for block in &blocks {
        assert_eq!(asked(&server, block).0, 1);
    }
    until_state(&server, |state| state["events"]["asked"] == 9);
    drop(release);
    let state = until_state(&server, |state| state["events"]["told"] == 9);
    assert_eq!(
        (&state["events"]["unasked"], &state["connected"]),
        (&Value::from(0), &Value::from(true)),
        "{state}"
    );
    assert_eq!(service.asked.load(Ordering::SeqCst), 1);
}

#[test]
fn endless_lines_end_the_connection() {
    let service = Service::start(Arc::new(|_| "x".repeat(10_000)));
    let folder = Folder::new();
    let server = serving(&folder, service.address, "");
    let until = Instant::now() + PATIENCE;
    while service.connections.load(Ordering::SeqCst) < 2 {
        assert!(Instant::now() < until, "it is not connected again");
        assert_eq!(asked(&server, "192.0.3.0/24"), (1, SHORT, 24));
    }
    let state = until_state(&server, |state| state["message"].is_string());
    assert!(
        state["message"].as_str().is_some_and(|message| message.contains("a line has no end")),
        "{state}"
    );
}

#[test]
fn a_flood_of_new_addresses_is_bounded() {
    const ADDRESSES: u32 = 6_000;
    let service = Service::start(Arc::new(|address| format!("{address} {}\n", truth(address))));
    let folder = Folder::new();
    let server = serving(&folder, service.address, "known = 256\nwaiting = 64");
    for number in 0..ADDRESSES {
        let client = format!("{}/24", Ipv4Addr::from_bits(0x0b00_0000 + (number << 8)));
        // Whatever is known by then: an answer from ignorance, or the right one.
        let answer = asked(&server, &client);
        let right = 2 + u8::from(number & 1 == 1);
        assert!(answer == (1, SHORT, 24) || answer == (right, 300, 24), "{client}: {answer:?}");
    }
    let state = until_state(&server, |state| state["known"].as_u64() > Some(0));
    assert!(state["known"].as_u64() <= Some(256) && state["waiting"].as_u64() <= Some(64), "{state}");
    assert!(state["events"]["leaked"].as_u64() > Some(0), "{state}");
    until_known(&server, "192.0.3.0/24", (3, 300, 24));
}

#[test]
fn a_resolvers_cache_is_wrong_no_longer_than_the_short_time() {
    let service = Service::start(Arc::new(|address| format!("{address} {}\n", truth(address))));
    let folder = Folder::new();
    let server = serving(&folder, service.address, "");
    // A cache with a clock of its own, which jumps: an answer serves all clients in its scope until its TTL is over.
    let mut cache: HashMap<Ipv4Addr, (u8, u64)> = HashMap::new();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut now = 0u64;
    for _ in 0..2_000 {
        now += rng.u64(0..2);
        let block = Ipv4Addr::new(192, 0, rng.u8(0..20), 0);
        let cached = cache.get(&block).filter(|(_, until)| *until > now).map(|(server, _)| *server);
        let server_of = cached.unwrap_or_else(|| {
            let (server, ttl, scope) = asked(&server, &format!("{block}/24"));
            assert_eq!(scope, 24, "an answer for more than was asked about");
            cache.insert(block, (server, now + u64::from(ttl)));
            server
        });
        let right = if truth(block.into()) == "europe" { 2 } else { 3 };
        let (_, until) = cache[&block];
        let is_short = until - now <= u64::from(SHORT);
        assert!(server_of == right || is_short, "a wrong answer is kept until {until} at {now}");
    }
    for third in 0..20 {
        let right = if third & 1 == 0 { 2 } else { 3 };
        until_known(&server, &format!("192.0.{third}.0/24"), (right, 300, 24));
    }
}

#[test]
fn the_service_of_the_manual_answers_also_when_it_is_started_again() {
    if Command::new("python3").arg("--version").output().is_err() {
        return tests::data::skip("the service in Python: no python3 here");
    }
    let page = guide::read("../proximity/external.md");
    let blocks = guide::blocks(&page);
    let (_, service) = blocks.iter().find(|(kind, _)| *kind == "python").expect("the page has a service");
    let address = free_address();
    let service = service.replace("5310", &address.port().to_string());
    let folder = Folder::new();
    let path = folder.write(
        "service.py",
        format!(
            "def find_ip_region(address):\n    return 'europe' if address.startswith('192.0.2') else '-'\n\n{service}"
        ),
    );
    let start = || {
        let mut python = Command::new("python3");
        python.arg(&path);
        Program::spawn(python)
    };
    let server = serving(&folder, address, "");
    let first = start();
    until_known(&server, "192.0.2.0/25", (2, 300, 25));
    // Who closes a connection keeps its port for a while.
    drop(first);
    until_state(&server, |state| state["connected"] == false);
    let _second = start();
    until_known(&server, "192.0.2.128/25", (2, 300, 25));
}
