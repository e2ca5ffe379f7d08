//! Policies as clients see them: regions, scopes, servers up and down, and what is refused.

use std::net::IpAddr;

use nix::sys::signal::Signal;
use serde_json::json;
use tests::folder::Folder;
use tests::query::{Question, exchange, socket};
use tests::serving::Serving;

const ZONE: &str = "\
$TTL 300
@ SOA ns hm 1 7200 600 86400 60
@ NS ns
ns A 192.0.2.53
static A 192.0.2.99
alias CNAME www
sub NS ns.sub
ns.sub A 192.0.2.54
";

const PARTITION: &str = "\
prefix,region
10.0.0.0/8,europe
10.1.0.0/16,asia
2001:db8:1::/48,europe
";

/// One server for each region, so that nothing is left to chance.
const POLICY: &str = r#"{
  "names": ["www.example.com.", "*.cdn.example.com."],
  "servers": [
    {"address": "192.0.2.1", "default": {"probability": 1, "ttl": 10}},
    {"address": "192.0.2.2", "regions": {"europe": {"probability": 1, "ttl": 20}}},
    {"address": "192.0.2.3", "regions": {"asia": {"probability": 1, "ttl": 30}}},
    {"address": "2001:db8::1", "default": {"probability": 1, "ttl": 10}},
    {"address": "2001:db8::2", "regions": {"europe": {"probability": 1, "ttl": 20}}}
  ]
}"#;

/// A server with zone, partition and policy from files.
fn steering(folder: &Folder) -> Serving {
    let zone = folder.write("example.com.zone", ZONE);
    let partition = folder.write("partition.csv", PARTITION);
    let policy = folder.write("www.json", POLICY);
    Serving::start(folder, &["--zone", &zone, "--partition", &partition, "--policy", &policy])
}

fn ask(server: &Serving, name: &str, client: &str) -> Vec<String> {
    let question = Question::new(name, "A");
    let question = if client.is_empty() { question } else { question.subnet(client) };
    question.udp(server.dns()).answer
}

#[test]
fn a_clients_region_decides_and_the_scope_says_for_whom() {
    let folder = Folder::new();
    let server = steering(&folder);
    // Of 10.0.0.0/8 all but 10.1.0.0/16 is in Europe, so that 10.2.0.0/15 is the largest block of the second.
    for (name, rtype, client, data, ttl, scope) in [
        ("www.example.com", "A", "10.2.3.0/24", "192.0.2.2", 20, 15),
        ("www.example.com", "A", "10.128.0.0/9", "192.0.2.2", 20, 9),
        ("www.example.com", "A", "10.1.2.3/32", "192.0.2.3", 30, 16),
        ("www.example.com", "A", "10.0.0.0/8", "192.0.2.2", 20, 16),
        ("www.example.com", "A", "192.0.2.0/24", "192.0.2.1", 10, 1),
        ("www.example.com", "A", "2001:db8:1:200::/56", "192.0.2.2", 20, 48),
        ("www.example.com", "AAAA", "10.2.3.0/24", "2001:db8::2", 20, 15),
        ("www.example.com", "AAAA", "2001:db8:1::/48", "2001:db8::2", 20, 48),
        ("www.example.com", "AAAA", "2001:db8:2::/48", "2001:db8::1", 10, 47),
        ("a.b.cdn.example.com", "A", "10.1.0.0/16", "192.0.2.3", 30, 16),
        ("static.example.com", "A", "10.1.0.0/16", "192.0.2.99", 300, 0),
    ] {
        for answer in [
            Question::new(name, rtype).subnet(client).udp(server.dns()),
            Question::new(name, rtype).subnet(client).tcp(server.dns()),
        ] {
            let record = format!("{name}. {ttl} in {} {data}", rtype.to_lowercase());
            assert_eq!(answer.answer, [record], "{name} {rtype} {client}");
            assert!(answer.aa, "{name}");
            let (address, source) = client.split_once('/').expect("a prefix");
            let address: IpAddr = address.parse().expect("an address");
            assert_eq!(
                answer.subnet,
                Some((address, source.parse().expect("a length"), scope)),
                "{name} {client}"
            );
        }
    }
}

#[test]
fn the_resolvers_own_address_decides_where_no_client_is_given() {
    let folder = Folder::new();
    let server = steering(&folder);
    let partition = format!("{PARTITION}127.0.0.0/8,asia\n");
    server.call("PUT", "/v1/partitions/default", &partition);
    let question = Question::new("www.example.com", "A");
    let asia = ["www.example.com. 30 in a 192.0.2.3"];
    let plain = question.udp(server.dns());
    assert_eq!((plain.answer.as_slice(), plain.edns), (asia.map(String::from).as_slice(), false));
    let edns = question.clone().edns().udp(server.dns());
    assert_eq!(edns.answer, asia);
    assert!(edns.edns && edns.subnet.is_none(), "none asked, none returned");
    let hidden = question.clone().subnet("0.0.0.0/0").udp(server.dns());
    assert_eq!(hidden.answer, asia);
    assert_eq!(hidden.subnet, Some(("0.0.0.0".parse().expect("an address"), 0, 0)));
    assert_eq!(question.tcp(server.dns()).answer, asia);
}

#[test]
fn client_subnet_is_echoed_as_it_was_sent_or_a_format_error() {
    let folder = Folder::new();
    let server = steering(&folder);
    let asked = |name: &str, option: &[u8]| {
        let mut message = Question::new(name, "A").edns().message();
        // OPT is the last record; its data is empty so far.
        let end = message.len();
        message[end - 2..].copy_from_slice(&(option.len() as u16).to_be_bytes());
        message.extend_from_slice(option);
        exchange(&socket(server.dns()), &message).expect("an answer")
    };
    let echoed = |name: &str, option: [u8; 11], scope: u8| {
        let mut expected = option;
        expected[7] = scope;
        let reply = asked(name, &option);
        assert!(reply.ends_with(&expected), "{name}: {reply:?}");
        assert_eq!(reply[3] & 0x0f, 0, "{name}: NOERROR");
    };
    echoed("www.example.com", [0, 8, 0, 7, 0, 1, 24, 0, 10, 1, 2], 16);
    // A referral holds for everybody (RFC 7871 §7.2.1).
    echoed("x.sub.example.com", [0, 8, 0, 7, 0, 1, 24, 0, 10, 1, 2], 0);
    for (why, option) in [
        ("a family that is none", vec![0, 8, 0, 7, 0, 3, 24, 0, 10, 1, 2]),
        ("33 bits of IPv4", vec![0, 8, 0, 9, 0, 1, 33, 0, 10, 1, 2, 3, 4]),
        ("an octet too few", vec![0, 8, 0, 6, 0, 1, 24, 0, 10, 1]),
        ("an octet too many", vec![0, 8, 0, 8, 0, 1, 24, 0, 10, 1, 2, 0]),
        ("bits behind the prefix", vec![0, 8, 0, 7, 0, 1, 20, 0, 10, 1, 2]),
        ("a scope in a query", vec![0, 8, 0, 7, 0, 1, 24, 24, 10, 1, 2]),
        ("an option that breaks off", vec![0, 8, 0, 9, 0, 1, 24, 0, 10, 1, 2]),
        ("no prefix length", vec![0, 8, 0, 2, 0, 1]),
    ] {
        assert_eq!(asked("www.example.com", &option)[3] & 0x0f, 1, "{why}: FORMERR");
    }
}

#[test]
fn an_mmdb_partition_is_flattened() {
    let Some(mmdb) = tests::data::file("routing/GeoIP2-Country-Test.mmdb") else { return };
    let folder = Folder::new();
    let zone = folder.write("example.com.zone", ZONE);
    let codes = folder.write("codes.csv", "code,region\nGB,europe\nSE,europe\nJP,asia\n");
    let policy = folder.write("www.json", POLICY);
    let mmdb = mmdb.display().to_string();
    let server = Serving::start(
        &folder,
        &["--zone", &zone, "--mmdb", &mmdb, "--regions", &codes, "--policy", &policy],
    );
    for (client, address) in [
        ("81.2.69.160/32", "192.0.2.2"),
        ("89.160.20.112/32", "192.0.2.2"),
        ("2001:218::/32", "192.0.2.3"),
        ("216.160.83.56/32", "192.0.2.1"),
        ("127.0.0.1/32", "192.0.2.1"),
    ] {
        let answer = Question::new("www.example.com", "A").subnet(client).udp(server.dns());
        assert_eq!(answer.data(), [address], "{client}");
        let lookup = client.split('/').next().expect("an address");
        let found = server.call("GET", &format!("/v1/partitions/default/lookup?address={lookup}"), "").json();
        let scope = answer.subnet.expect("it was asked for").2;
        assert_eq!(found["scope"], u64::from(scope), "{client}: {found}");
    }
}

#[test]
fn a_server_that_is_down_is_not_answered() {
    let folder = Folder::new();
    let server = steering(&folder);
    let policy = |when: &str| {
        json!({"answers": 0, "when_all_down": when, "servers": [{"address": "192.0.2.1"}, {"address": "192.0.2.2"}]})
            .to_string()
    };
    let set = |address: &str, up: bool| {
        server.call("PUT", &format!("/v1/servers/{address}/state"), &json!({ "up": up }).to_string());
    };
    let asked = || {
        let mut data: Vec<String> = ask(&server, "pool.example.com", "10.1.0.0/16");
        data.iter_mut().for_each(|line| *line = line.rsplit(' ').next().expect("data").into());
        data
    };
    server.call("PUT", "/v1/policies/pool.example.com", &policy("answer"));
    assert_eq!(asked(), ["192.0.2.1", "192.0.2.2"]);
    set("192.0.2.1", false);
    assert_eq!(asked(), ["192.0.2.2"]);
    set("192.0.2.2", false);
    assert_eq!(asked(), ["192.0.2.1", "192.0.2.2"], "as if all were up");
    server.call("PUT", "/v1/policies/pool.example.com", &policy("empty"));
    let empty = Question::new("pool.example.com", "A").udp(server.dns());
    assert_eq!(
        (empty.rcode.as_str(), empty.answer.len(), empty.authority.len()),
        ("NOERROR", 0, 1),
        "NODATA"
    );
    let states = server.call("GET", "/v1/servers", "").json();
    assert!(states.as_array().expect("a list").contains(&json!({"address": "192.0.2.2", "up": false})));
    set("192.0.2.2", true);
    assert_eq!(asked(), ["192.0.2.2"]);
    set("192.0.2.1", true);
    assert_eq!(asked(), ["192.0.2.1", "192.0.2.2"]);
    let unknown = server.client().call("PUT", "/v1/servers/192.0.2.77/state", r#"{"up":false}"#);
    assert_eq!(unknown.status, 404, "{}", unknown.text());
}

#[test]
fn an_alias_leads_to_a_steered_name() {
    let folder = Folder::new();
    let server = steering(&folder);
    let answer = Question::new("alias.example.com", "A").subnet("10.1.2.0/24").udp(server.dns());
    assert_eq!(
        answer.answer,
        ["alias.example.com. 300 in cname www.example.com.", "www.example.com. 30 in a 192.0.2.3"]
    );
    assert_eq!(answer.subnet.expect("it was asked for").2, 16);
    let other = Question::new("www.example.com", "TXT").subnet("10.1.2.0/24").udp(server.dns());
    assert_eq!((other.rcode.as_str(), other.answer.len()), ("NOERROR", 0), "a steered name exists");
}

#[test]
fn a_name_of_one_family_has_no_address_of_the_other_in_any_region() {
    let folder = Folder::new();
    let server = steering(&folder);
    let policy = json!({"servers": [{"address": "192.0.2.7", "regions": {"asia": {"probability": 1}}}]});
    server.call("PUT", "/v1/policies/four.example.com", &policy.to_string());
    for client in ["10.1.0.0/16", "10.2.0.0/16", "192.0.2.0/24"] {
        let answer = Question::new("four.example.com", "AAAA").subnet(client).udp(server.dns());
        assert_eq!((answer.rcode.as_str(), answer.answer.len()), ("NOERROR", 0), "{client}");
        assert_eq!(answer.subnet.expect("it was asked for").2, 0, "{client}: alike everywhere");
        assert_eq!(ask(&server, "four.example.com", client), ["four.example.com. 360 in a 192.0.2.7"]);
    }
}

#[test]
fn regions_come_and_go_while_serving() {
    let folder = Folder::new();
    let server = steering(&folder);
    let region = |name: &str| {
        let regions = server.call("GET", "/v1/regions", "").json();
        let all = regions.as_array().expect("a list").clone();
        all.iter()
            .find(|region| region["name"] == name)
            .map(|region| region["id"].as_u64().expect("a number"))
    };
    let added = server.call("POST", "/v1/regions", r#"{"name":"africa"}"#).json();
    assert_eq!(Some(added["id"].as_u64().expect("a number")), region("africa"));
    server.call("PUT", "/v1/partitions/default", &format!("{PARTITION}10.1.9.0/24,africa\n"));
    // A region without a row has the default column.
    assert_eq!(ask(&server, "www.example.com", "10.1.9.0/24"), ["www.example.com. 10 in a 192.0.2.1"]);
    assert_eq!(ask(&server, "www.example.com", "10.1.8.0/24"), ["www.example.com. 30 in a 192.0.2.3"]);

    let asia = region("asia").expect("asia is a region");
    server.call("DELETE", &format!("/v1/regions/{asia}"), "");
    // Its prefixes become region 0, and not that of the larger prefix around them.
    assert_eq!(ask(&server, "www.example.com", "10.1.8.0/24"), ["www.example.com. 10 in a 192.0.2.1"]);
    assert_eq!(ask(&server, "www.example.com", "10.2.0.0/16"), ["www.example.com. 20 in a 192.0.2.2"]);
    let policy = server.call("GET", "/v1/policies/www.example.com", "").text();
    assert!(!policy.contains("asia"), "its rows go: {policy}");
    let lookup = server.call("GET", "/v1/partitions/default/lookup?address=10.1.8.1", "").json();
    assert_eq!((&lookup["id"], &lookup["region"]), (&json!(0), &json!(null)), "{lookup}");

    let again = server.call("POST", "/v1/regions", r#"{"name":"asia"}"#).json();
    assert!(again["id"].as_u64() > Some(asia).max(added["id"].as_u64()), "ids are never used again: {again}");
    assert_eq!(ask(&server, "www.example.com", "10.1.8.0/24"), ["www.example.com. 10 in a 192.0.2.1"]);
}

#[test]
fn what_others_need_or_have_changed_is_refused() {
    let folder = Folder::new();
    let server = steering(&folder);
    let mut client = server.client();
    let mut refused = |method: &str, path: &str, tag: Option<&str>, body: &str, status: u16, say: &str| {
        let headers: Vec<(&str, &str)> = tag.into_iter().map(|tag| ("If-Match", tag)).collect();
        let response = client.send(method, path, &headers, body.as_bytes()).expect("an answer");
        assert_eq!(response.status, status, "{method} {path}: {}", response.text());
        assert!(response.text().contains(say), "{method} {path}: {} has not {say}", response.text());
    };
    let generation = server.call("GET", "/v1/health", "").generation();
    refused("DELETE", "/v1/zones/example.com", None, "", 409, "example.com.");
    refused("DELETE", "/v1/policies/nothing.example.com", None, "", 404, "nothing.example.com.");
    refused("DELETE", "/v1/regions/77", None, "", 404, "77");
    refused("GET", "/v1/zones/example.net", None, "", 404, "example.net");
    refused("PUT", "/v1/zones/example.com", Some("\"other\""), ZONE, 412, "tag");
    refused("PUT", "/v1/policies/www.example.com", Some("\"other\""), POLICY, 412, "tag");
    refused(
        "PUT",
        "/v1/policies/new.example.com",
        Some("*"),
        r#"{"servers":[]}"#,
        412,
        "nothing of this name",
    );
    refused("DELETE", "/v1/partitions/default", Some("\"other\""), "", 412, "tag");
    refused("DELETE", "/v1/partitions/default", None, "", 409, "www.example.com.");
    let one = r#"{"servers":[{"address":"192.0.2.1"}]}"#;
    refused("PUT", "/v1/policies/alias.example.com", None, one, 422, "CNAME");
    refused("PUT", "/v1/policies/www.example.net", None, one, 422, "in none of our zones");
    refused("PUT", "/v1/policies/x.sub.example.com", None, one, 422, "below a delegation");
    let unknown = r#"{"servers":[{"address":"192.0.2.1","regions":{"atlantis":{}}}],"partition":"none"}"#;
    refused("PUT", "/v1/policies/p.example.com", None, unknown, 422, "atlantis");
    refused("PUT", "/v1/policies/p.example.com", None, unknown, 422, "none");
    refused(
        "PUT",
        "/v1/partitions/default",
        None,
        "10.0.0.0/8,atlantis\n10.0.0.0/33,europe\n",
        422,
        "atlantis",
    );
    refused(
        "PUT",
        "/v1/partitions/default",
        None,
        "10.0.0.0/8,atlantis\n10.0.0.0/33,europe\n",
        422,
        "\"line\":2",
    );
    refused("POST", "/v1/regions", None, r#"{"name":"europe"}"#, 422, "europe");
    // A zone that would leave a policy on a CNAME.
    let aliased = format!("{ZONE}www CNAME static\n");
    refused("PUT", "/v1/zones/example.com", None, &aliased, 422, "www.example.com");
    assert_eq!(server.call("GET", "/v1/health", "").generation(), generation, "nothing has changed");

    let tag =
        server.call("GET", "/v1/policies/www.example.com", "").header("etag").expect("a tag").to_owned();
    let put =
        server.client().send("PUT", "/v1/policies/www.example.com", &[("If-Match", &tag)], POLICY.as_bytes());
    assert_eq!(put.expect("an answer").status, 200, "the tag that was got matches");
}

#[test]
fn a_reload_takes_all_or_nothing() {
    let folder = Folder::new();
    let mut server = steering(&folder);
    let moved = |zone: &str, policy: &str| {
        folder.write("example.com.zone", zone);
        folder.write("www.json", policy);
    };
    let zone = ZONE.replace("192.0.2.99", "192.0.2.98");
    let policy = POLICY.replace("192.0.2.3", "192.0.2.33");
    let seen = |server: &Serving| {
        [ask(server, "static.example.com", ""), ask(server, "www.example.com", "10.1.0.0/16")].concat()
    };
    let before = ["static.example.com. 300 in a 192.0.2.99", "www.example.com. 30 in a 192.0.2.3"];
    let after = ["static.example.com. 300 in a 192.0.2.98", "www.example.com. 30 in a 192.0.2.33"];
    assert_eq!(seen(&server), before);

    moved(&zone, "{\"servers\": 7, \"colour\": 1}");
    server.program.signal(Signal::SIGHUP);
    for fault in ["www.json:1:13:", "www.json:1:16:", "not reloaded"] {
        server.program.line(fault);
    }
    assert_eq!(seen(&server), before, "the good zone waits for the policy");

    moved(&zone, &policy);
    server.program.signal(Signal::SIGHUP);
    server.program.line("reloaded");
    assert_eq!(seen(&server), after);

    // What was changed through the API since stays: the files are as they were when they were imported.
    server.call("PUT", "/v1/policies/www.example.com", POLICY);
    let generation = server.call("GET", "/v1/health", "").generation();
    server.program.signal(Signal::SIGHUP);
    server.program.line("reloaded");
    assert_eq!(seen(&server), [after[0], before[1]]);
    assert_eq!(server.call("GET", "/v1/health", "").generation(), generation);
}

#[test]
fn a_restart_keeps_everything() {
    let folder = Folder::new();
    let server = steering(&folder);
    server.call("POST", "/v1/regions", r#"{"name":"africa"}"#);
    server.call("PUT", "/v1/partitions/other", "10.3.0.0/16,africa\n");
    let policy = json!({"partition": "other", "servers": [
        {"address": "192.0.2.21", "regions": {"africa": {"probability": 1}}},
        {"address": "192.0.2.22", "default": {"probability": 1}},
    ]});
    server.call("PUT", "/v1/policies/other.example.com", &policy.to_string());
    server.call(
        "PUT",
        "/v1/zones/example.net",
        "$TTL 5\n@ SOA ns hm 7 1 1 1 1\n@ NS ns.example.com.\n@ A 192.0.2.9\n",
    );
    server.call("PUT", "/v1/servers/192.0.2.2/state", r#"{"up":false}"#);
    let seen = |server: &Serving| {
        let paths = [
            "/v1/zones",
            "/v1/zones/example.com",
            "/v1/zones/example.net",
            "/v1/regions",
            "/v1/partitions",
            "/v1/partitions/default",
            "/v1/partitions/other",
            "/v1/policies",
            "/v1/servers",
            "/v1/health",
        ];
        let texts = paths.map(|path| server.call("GET", path, "").text());
        let tags = paths.map(|path| server.call("GET", path, "").header("etag").map(str::to_owned));
        let answers = [
            ask(server, "other.example.com", "10.3.0.0/16"),
            ask(server, "other.example.com", "10.4.0.0/16"),
            ask(server, "www.example.com", "10.1.0.0/16"),
            ask(server, "example.net", ""),
        ];
        (texts, tags, answers)
    };
    let before = seen(&server);
    assert_eq!(before.2[0], ["other.example.com. 360 in a 192.0.2.21"]);
    server.stop();
    let without_files: &[&str] = &[];
    let server = Serving::start(&folder, without_files);
    assert_eq!(seen(&server), before);
    server.stop();
    let server = steering(&folder);
    assert_eq!(seen(&server), before, "files that have not changed change nothing");
}
