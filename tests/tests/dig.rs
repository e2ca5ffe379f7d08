//! The server as Debian's `dig` sees it.

use std::process::Command;

use tests::folder::Folder;
use tests::program::Program;
use tests::serving::Serving;

const ZONE: &str = "\
$TTL 300
@ SOA ns hm 1 7200 600 86400 60
@ NS ns
ns A 192.0.2.53
ns AAAA 2001:db8::53
";

const POLICY: &str = r#"{"servers": [
    {"address": "192.0.2.1", "default": {"probability": 1, "ttl": 10}},
    {"address": "192.0.2.2", "regions": {"europe": {"probability": 1, "ttl": 20}}}
]}"#;

#[test]
fn dig_reads_every_answer() {
    if Command::new("dig").arg("-v").output().is_err() {
        tests::data::skip("dig is not here");
        return;
    }
    let folder = Folder::new();
    let zone = folder.write("example.com.zone", ZONE);
    let partition = folder.write("partition.csv", "10.0.0.0/8,europe\n");
    let server = Serving::start(&folder, &["--zone", &zone, "--partition", &partition, "--nsid", "fra1"]);
    server.call("PUT", "/v1/policies/www.example.com", POLICY);

    let soa = "example.com. 60 IN SOA ns.example.com. hm.example.com. 1 7200 600 86400 60";
    let (default, europe) = ("www.example.com. 10 IN A 192.0.2.1", "www.example.com. 20 IN A 192.0.2.2");
    for (asked, lines) in [
        (
            "ns.example.com A",
            vec![
                "status: NOERROR",
                "flags: qr aa",
                "ns.example.com. 300 IN A 192.0.2.53",
                "EDNS: version: 0",
            ],
        ),
        ("ns.example.com AAAA", vec!["ns.example.com. 300 IN AAAA 2001:db8::53"]),
        ("nS.exAmple.com A", vec!["nS.exAmple.com. 300 IN A 192.0.2.53"]),
        ("www.example.com A", vec![default]),
        ("www.example.com A +subnet=10.1.2.0/24", vec![europe, "CLIENT-SUBNET: 10.1.2.0/24/8"]),
        ("www.example.com A +subnet=192.0.2.0/24", vec![default, "CLIENT-SUBNET: 192.0.2.0/24/1"]),
        ("www.example.com A +subnet=0", vec![default, "CLIENT-SUBNET: 0.0.0.0/0/0"]),
        ("www.example.com A +tcp +subnet=10.1.2.0/24", vec![europe, "(TCP)"]),
        ("www.example.com A +noedns", vec![default, "ADDITIONAL: 0"]),
        ("www.example.com AAAA", vec!["status: NOERROR", "ANSWER: 0", soa]),
        ("www.example.com ANY", vec![default, "ANSWER: 1"]),
        ("ns.example.com ANY", vec!["ANSWER: 1"]),
        ("nowhere.example.com A", vec!["status: NXDOMAIN", "flags: qr aa", soa]),
        ("example.com SOA +nsid", vec!["status: NOERROR", "ANSWER: 1", "NSID: 66 72 61 31 (\"fra1\")"]),
        ("example.com SOA +cookie", vec!["status: NOERROR", "ANSWER: 1", "(good)"]),
        ("+cookie +header-only", vec!["status: NOERROR", "QUERY: 0, ANSWER: 0", "(good)"]),
        ("example.com SOA +tcp +keepalive", vec!["status: NOERROR", "KEEPALIVE: 10.0 secs"]),
        ("example.com SOA +ednsopt=65001:c0ffee", vec!["status: NOERROR", "ANSWER: 1"]),
        ("example.net A", vec!["status: REFUSED", "ANSWER: 0", "EDE: 20 (Not Authoritative)"]),
        ("ns.example.com A +edns=1 +noednsnegotiation", vec!["status: BADVERS"]),
        ("ns.example.com A +edns=1 +noednsnegotiation +nsid +cookie", vec!["status: BADVERS"]),
        ("version.bind CH TXT", vec!["status: NOERROR", "version.bind. 0 CH TXT \"Pointsman"]),
        ("id.server CH TXT", vec!["id.server. 0 CH TXT \"fra1\""]),
        ("authors.bind CH TXT", vec!["status: REFUSED"]),
    ] {
        let said = dig(&server, asked);
        for line in lines {
            assert!(said.contains(line), "dig {asked}: no '{line}' in\n{said}");
        }
        for trouble in ["WARNING", "malformed", "FORMERR", "mismatch", "extra bytes"] {
            assert!(!said.contains(trouble), "dig {asked}: {trouble} in\n{said}");
        }
    }
    // Of which dig warns, as the refusal is not signed.
    let said = dig(&server, "example.com SOA -y hmac-sha256:nobody:c2VjcmV0 +cookie +nsid");
    for line in ["status: NOTAUTH", "(good)", "NSID: 66 72 61 31", "BADKEY"] {
        assert!(said.contains(line), "no '{line}' in\n{said}");
    }
}

/// What dig prints, with single spaces between words.
fn dig(server: &Serving, asked: &str) -> String {
    let mut command = Command::new("dig");
    command.args(["-r", "@127.0.0.1", "-p", &server.dns().port().to_string()]);
    // Recursion is not ours to offer, and dig would warn.
    command.args(asked.split(' ')).args(["+norecurse", "+tries=1", "+time=20"]);
    let ended = Program::spawn(command).end();
    assert!(ended.status.success(), "dig {asked}: {}{}", ended.stdout, ended.stderr);
    let line = |line: &str| line.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    ended.stdout.lines().map(line).collect::<Vec<_>>().join("\n")
}
