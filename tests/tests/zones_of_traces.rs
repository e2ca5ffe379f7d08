//! Zones made of traces: a root server's minute played by what it showed, and a resolver's way down through servers that
//! were heard once.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;
use tests::folder::Folder;
use tests::guide;
use tests::namespace;
use tests::peer::{Make, free_address};
use tests::program::Program;
use tests::query::{Answer, Question};
use tests::serving::Serving;

/// What the trace has: queries with answers, over UDP and TCP.
const RESPONSES: u64 = 10_432;

/// Those that were truncated when they were recorded.
const TRUNCATED: u64 = 133;

/// Recorded retries over TCP, at most, which are left out where the same was asked again already; and what a server does not
/// let in over TCP.
const RETRIES: u64 = 8;

/// Queries of class CH (`hostname.bind`), which is no zone's, and for the types of the root that there are (ANY).
const CHAOS: u64 = 4;
const ANY: u64 = 2;

#[test]
fn a_root_servers_minute_is_played_by_its_zones() {
    let Some(trace) = tests::data::file("replay/nsd-live.raw.pcap.xz") else { return };
    let trace = trace.to_str().expect("text");
    let folder = Folder::new();
    let made = folder.at("made");
    let told = json(&["trace", "zones", trace, &made, "--json"]);
    assert_eq!(told["responses"], RESPONSES);
    let zones: Vec<&str> = told["zones"].as_array().expect("zones").iter().map(origin).collect();
    assert_eq!(zones, [".", "arpa.", "root-servers.net."]);
    assert!(told["zones"].as_array().expect("zones").iter().all(|zone| zone["unservable"] == 0), "{told}");

    let played = |server: SocketAddr, differing: &str| {
        let (server, differing) = (server.to_string(), folder.at(differing));
        let paced = ["--fast", "--window", "64", "--timeout", "20s"];
        let arguments = ["replay", trace, "--server", &server, "--compare", &differing, "--json"];
        let report = json(&[&arguments[..], &paced].concat());
        report["comparison"].clone()
    };
    // All clients of the replay are one to the server.
    let config = fs::read_to_string(format!("{made}/pointsman.toml")).expect("it was written");
    fs::write(format!("{made}/pointsman.toml"), config + "\n[tcp]\nper_client_max = 800\n")
        .expect("it is ours");
    let ours = Serving::start(&folder, &["--config", &format!("{made}/pointsman.toml")]);
    let comparison = played(ours.dns(), "ours.pcap");
    is_as_recorded(&comparison);
    ours.stop();

    // Files that another make of server takes as they are, and answers from as the one that was recorded.
    let clause = |zone: &Value| {
        let file = zone["file"].as_str().expect("a file");
        format!("zone:\n  name: \"{}\"\n  zonefile: \"{made}/{file}\"\n", origin(zone))
    };
    let clauses: String = told["zones"].as_array().expect("zones").iter().map(clause).collect();
    // It resets connections beyond those it has room for.
    let clauses = format!("server:\n  tcp-count: 800\n{clauses}");
    let nsd = Make::Nsd.start(&folder, free_address(), &clauses);
    let comparison = played(nsd.dns, "nsd.pcap");
    is_as_recorded(&comparison);
}

/// Holds what was compared against the trace: all but a few that may not have been asked, and no other difference.
fn is_as_recorded(comparison: &Value) {
    let count = |what: &str| comparison[what].as_u64().expect("a count");
    let compared = count("compared");
    assert!((RESPONSES - RETRIES..=RESPONSES).contains(&compared), "{comparison}");
    let truncated = count("truncated");
    assert!((TRUNCATED - RETRIES..=TRUNCATED).contains(&truncated), "{comparison}");
    assert_eq!(count("same"), compared - truncated - CHAOS - ANY, "{comparison}");
}

/// What the program prints as JSON; it may say that the replay was late, which nobody cares about here.
fn json(arguments: &[&str]) -> Value {
    let ended = Program::start(arguments).end();
    assert!(matches!(ended.status.code(), Some(0 | 3)), "{arguments:?}: {}", ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap_or_else(|cause| panic!("{cause}: {}", ended.stdout))
}

fn origin(zone: &Value) -> &str {
    zone["origin"].as_str().expect("a zone has an origin")
}

/// Servers of a small world; the root is wherever a resolver may look for it, as at one that is not there it gives up.
const WORLD: &str = r#"
version = "v1"
listen = ["0.0.0.0:53", "[::]:53"]
zone = ["root.master", "com.master", "example.master", "other.master"]

[[view]]
addresses = [
    "198.41.0.4", "170.247.170.2", "192.33.4.12", "199.7.91.13", "192.203.230.10", "192.5.5.241", "192.112.36.4",
    "198.97.190.53", "192.36.148.17", "192.58.128.30", "193.0.14.129", "199.7.83.42", "202.12.27.33",
    "2001:503:ba3e::2:30", "2801:1b8:10::b", "2001:500:2::c", "2001:500:2d::d", "2001:500:a8::e", "2001:500:2f::f",
    "2001:500:12::d0d", "2001:500:1::53", "2001:7fe::53", "2001:503:c27::2:30", "2001:7fd::1", "2001:500:9f::42",
    "2001:dc3::35",
]
zones = ["."]

[[view]]
addresses = ["192.5.6.30", "2001:503:a83e::2:30"]
zones = ["com"]

[[view]]
addresses = ["192.0.2.53"]
zones = ["example.com"]

[[view]]
addresses = ["192.0.2.54"]
zones = ["other"]

[dnstap]
file = "heard.dnstap"
"#;

const ZONES: [(&str, &str); 4] = [
    (
        "root.master",
        "$ORIGIN .\n$TTL 300\n@ SOA a.root-servers.net hm 1 7200 600 86400 60\n@ NS a.root-servers.net\n\
         a.root-servers.net A 198.41.0.4\na.root-servers.net AAAA 2001:503:ba3e::2:30\n\
         com NS a.gtld.com\na.gtld.com A 192.5.6.30\na.gtld.com AAAA 2001:503:a83e::2:30\n\
         other NS ns.other\nns.other A 192.0.2.54\n",
    ),
    (
        "com.master",
        "$ORIGIN com.\n$TTL 300\n@ SOA a.gtld hm 1 7200 600 86400 60\n@ NS a.gtld\na.gtld A 192.5.6.30\n\
         a.gtld AAAA 2001:503:a83e::2:30\nexample NS ns.example\nns.example A 192.0.2.53\n",
    ),
    (
        "example.master",
        "$ORIGIN example.com.\n$TTL 300\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\n\
         www A 192.0.2.80\nwww A 192.0.2.81\nalias CNAME www.other.\n*.wild TXT \"any\"\n",
    ),
    (
        "other.master",
        "$ORIGIN other.\n$TTL 300\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.54\n\
         www A 192.0.2.90\nwww MX 10 www.example.com.\n",
    ),
];

/// What is asked of the resolver.
const QUESTIONS: [(&str, &str); 8] = [
    ("www.example.com", "A"),
    ("www.example.com", "AAAA"),
    ("alias.example.com", "A"),
    ("www.other", "MX"),
    ("a.wild.example.com", "TXT"),
    ("nowhere.example.com", "A"),
    ("nowhere", "A"),
    ("example.com", "NS"),
];

#[test]
fn a_resolver_finds_in_what_was_heard_what_it_found_in_the_world() {
    namespace::alone(|| {
        namespace::own_every_address();
        let folder = Folder::new();
        for (file, text) in ZONES {
            folder.write(file, text);
        }
        let config = folder.write("world.toml", WORLD);
        let in_the_world = found(&folder, &config);
        let rcodes: Vec<&str> = in_the_world.iter().map(|answer| &*answer.rcode).collect();
        let expected = [["NOERROR"; 5].as_slice(), &["NXDOMAIN"; 2], &["NOERROR"]].concat();
        assert_eq!(rcodes, expected, "{in_the_world:?}");

        let made = folder.at("made");
        let told = json(&["trace", "zones", &folder.at("heard.dnstap"), &made, "--hierarchy", "--json"]);
        let zones: Vec<&str> = told["zones"].as_array().expect("zones").iter().map(origin).collect();
        assert_eq!(zones, [".", "com.", "other.", "example.com."], "{told}");
        fs::remove_file(folder.at("pointsman.db")).expect("the world's store");
        assert_eq!(found(&folder, &format!("{made}/pointsman.toml")), in_the_world);
    });
}

/// What Unbound finds, with the guide's configuration and an empty cache, where this configuration is served.
fn found(folder: &Folder, config: &str) -> Vec<Answer> {
    let listen = ["--listen", "0.0.0.0:53", "--listen", "[::]:53"];
    let server = Serving::start(folder, &[&["--config", config][..], &listen].concat());
    let text = guide::read("resolve-without-the-internet.md");
    let (_, unbound) =
        guide::blocks(&text).into_iter().find(|(kind, _)| *kind == "file unbound.conf").expect("it is there");
    let mut command = Command::new("/usr/sbin/unbound");
    command.args(["-d", "-c", &folder.write("unbound.conf", unbound)]).current_dir(folder.path());
    let mut resolver = Program::spawn(command);
    resolver.line("start of service");
    let address = SocketAddr::from(([127, 0, 0, 1], 5353));
    let ask = |(name, rtype): (&str, &str)| Question::new(name, rtype).ad().udp(address);
    let answers = QUESTIONS.into_iter().map(ask).collect();
    resolver.stop();
    server.stop();
    answers
}
