//! What `/metrics` says of queries, held against the queries that were sent.

use std::collections::BTreeMap;

use tests::folder::Folder;
use tests::query::{Question, exchange, socket};
use tests::serving::Serving;

const ZONE: &str = "\
$TTL 300
@ SOA ns hm 1 7200 600 86400 60
@ NS ns
ns A 192.0.2.53
big TXT \"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\"
big TXT \"1123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\"
big TXT \"2123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\"
big TXT \"3123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\"
big TXT \"4123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\"
alias CNAME www
";

const POLICY: &str = r#"{
  "names": ["www.example.com.", "*.cdn.example.com."],
  "servers": [
    {"address": "192.0.2.1", "default": {"probability": 1, "ttl": 10}},
    {"address": "192.0.2.2", "regions": {"europe": {"probability": 1, "ttl": 20}}}
  ]
}"#;

const SINGLE: &str =
    r#"{"names": ["one.example.com."], "when_all_down": "empty", "servers": [{"address": "192.0.2.9"}]}"#;

#[test]
fn queries_are_counted_by_what_became_of_them() {
    let folder = Folder::new();
    let files = [
        ("example.com.zone", ZONE),
        ("where.csv", "10.0.0.0/8,europe\n"),
        ("a.json", POLICY),
        ("b.json", SINGLE),
    ];
    let [zone, partition, policy, single] = files.map(|(name, text)| folder.write(name, text));
    let more = ["--zone", &zone, "--partition", &partition, "--policy", &policy, "--policy", &single];
    let server = Serving::start(&folder, &more);
    server.call("PUT", "/v1/servers/192.0.2.9/state", r#"{"up": false}"#);

    let ask = |name: &str, rtype| Question::new(name, rtype);
    for question in [
        ask("www.example.com", "A").subnet("10.1.2.0/24"),
        ask("a.cdn.example.com", "A").subnet("10.1.2.0/24"),
        ask("alias.example.com", "A").subnet("10.1.2.0/24"),
        ask("www.example.com", "A"),
        ask("www.example.com", "AAAA"),
        ask("one.example.com", "A"),
        ask("no.example.com", "A"),
        ask("example.org", "MX"),
    ] {
        question.udp(server.dns());
    }
    let big = ask("big.example.com", "TXT");
    assert!(big.udp(server.dns()).tc && !big.tcp(server.dns()).tc);
    ask("www.example.com", "A").tcp(server.dns());
    let socket = socket(server.dns());
    let mut newer = ask("example.com", "SOA").edns().message();
    let version = newer.len() - 5;
    newer[version] = 1;
    exchange(&socket, &newer).expect("an answer");
    socket.send(b"no query").expect("loopback takes it");
    // Answered behind it, so that it was counted.
    ask("ns.example.com", "A").at(&socket);

    let metrics = server.call("GET", "/metrics", "").text();
    let queries = samples(&metrics, "pointsman_queries_total");
    let expected = [
        (r#"transport="tcp",type="A",rcode="NOERROR",verdict="answered""#, 1),
        (r#"transport="tcp",type="TXT",rcode="NOERROR",verdict="answered""#, 1),
        (r#"transport="tcp",type="none",rcode="none",verdict="dropped""#, 0),
        (r#"transport="tcp",type="none",rcode="none",verdict="streamed""#, 0),
        (r#"transport="tls",type="none",rcode="none",verdict="dropped""#, 0),
        (r#"transport="tls",type="none",rcode="none",verdict="streamed""#, 0),
        (r#"transport="udp",type="A",rcode="NOERROR",verdict="answered""#, 6),
        (r#"transport="udp",type="A",rcode="NXDOMAIN",verdict="answered""#, 1),
        (r#"transport="udp",type="AAAA",rcode="NOERROR",verdict="answered""#, 1),
        (r#"transport="udp",type="MX",rcode="REFUSED",verdict="answered""#, 1),
        (r#"transport="udp",type="SOA",rcode="BADVERS",verdict="answered""#, 1),
        (r#"transport="udp",type="TXT",rcode="NOERROR",verdict="truncated""#, 1),
        (r#"transport="udp",type="none",rcode="none",verdict="dropped""#, 1),
        (r#"transport="udp",type="none",rcode="none",verdict="streamed""#, 0),
    ];
    assert_eq!(queries, BTreeMap::from(expected));
    let routed = samples(&metrics, "pointsman_routed_answers_total");
    let expected = [
        (r#"policy="one.example.com.",region="unclassified",server="none""#, 1),
        (r#"policy="other",region="other",server="other""#, 0),
        (r#"policy="www.example.com.",region="europe",server="192.0.2.2""#, 3),
        (r#"policy="www.example.com.",region="unclassified",server="192.0.2.1""#, 2),
        (r#"policy="www.example.com.",region="unclassified",server="none""#, 1),
    ];
    assert_eq!(routed, BTreeMap::from(expected));
    assert_eq!(samples(&metrics, "pointsman_dropped_total")[r#"transport="udp",cause="no_query""#], 1);
    let workers = |name| samples(&metrics, name).into_values().sum::<u64>();
    assert_eq!(workers("pointsman_worker_queries_total"), 12);
    assert_eq!(workers("pointsman_worker_overflowed_total"), 0);
    assert!((1..=12).contains(&workers("pointsman_worker_batches_total")));

    // What is no more keeps its counts, and its name where a scrape had told it; a counter that falls would be taken
    // for a restart.
    server.call("DELETE", "/v1/policies/www.example.com", "");
    let routed_now = || {
        let metrics = server.call("GET", "/metrics", "").text();
        let routed = samples(&metrics, "pointsman_routed_answers_total");
        routed.into_iter().map(|(labels, count)| (labels.to_owned(), count)).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(routed_now()[r#"policy="www.example.com.",region="europe",server="192.0.2.2""#], 3);
    server.call("PUT", "/v1/policies/two.example.com", &SINGLE.replace("one.", "two."));
    ask("two.example.com", "A").udp(server.dns());
    server.call("DELETE", "/v1/policies/two.example.com", "");
    let removed = r#"policy="removed",region="unclassified",server="none""#;
    assert_eq!(routed_now()[removed], 1);
    server.call("PUT", "/v1/policies/two.example.com", &SINGLE.replace("one.", "two."));
    assert_eq!(routed_now()[removed], 1);
    server.stop();
}

/// The samples of a metric by their labels.
fn samples<'t>(metrics: &'t str, name: &str) -> BTreeMap<&'t str, u64> {
    let lines =
        metrics.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{')?.split_once("} "));
    lines.map(|(labels, value)| (labels, value.parse().expect("a number"))).collect()
}
