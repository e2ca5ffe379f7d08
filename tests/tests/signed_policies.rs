//! Policies in a signed zone: a resolver that validates believes what they answer, whatever is drawn.

use std::collections::BTreeSet;

use nix::sys::signal::Signal;
use tests::folder::Folder;
use tests::peer::Peer;
use tests::query::{Answer, Question};
use tests::serving::Serving;
use tests::signer::{sign, sign_by};

/// The addresses are those of whoever signs it; policies decide others.
const ZONE: &str = "\
$TTL 300
@ SOA ns hm 1 7200 600 86400 60
@ NS ns
ns A 127.0.0.1
www A 192.0.2.99
www AAAA 2001:db8::99
www TXT text
several A 192.0.2.99
*.wild A 192.0.2.99
chain CNAME www
plain TXT text
";

/// Questions until all that can be drawn has been: the rarest pair comes once in fifty.
const QUESTIONS_MAX: usize = 5_000;

/// A policy of so many servers of IPv4, of which so many are answered at once. Nobody keeps an answer of the default column.
fn policy(servers: usize, answers: usize, more: &str) -> String {
    let server = |index: usize| {
        format!(
            r#"{{"address":"192.0.2.{index}","default":{{"ttl":0}},"regions":{{"here":{{"probability":{index},"ttl":0}}}}}}"#
        )
    };
    let servers: Vec<String> = (1..=servers).map(server).collect();
    format!(r#"{{"answers":{answers},"servers":[{}{more}]}}"#, servers.join(","))
}

/// One server of IPv6, which may be kept for a while: what others answer for less is signed for as long, too.
const V6: &str = r#",{"address":"2001:db8::1","default":{"ttl":60},"regions":{"here":{"ttl":0}}}"#;

/// A name server with policies in a zone that is signed, and what asks it.
struct Signed {
    folder: Folder,
    ours: Serving,
    unbound: Peer,
}

impl Signed {
    fn start(algorithm: &str, chain: &[&str]) -> Signed {
        let folder = Folder::new();
        let zone = sign_by(&folder, "example", ZONE, chain, algorithm);
        let config = format!(
            "version = \"v1\"\nzone = [\"{zone}\"]\nsigning_keys = [\"{}\"]\n",
            folder.at("example.private")
        );
        let file = folder.write("pointsman.toml", config);
        let ours = Serving::start(&folder, &["--config", &file]);
        ours.call("POST", "/v1/regions", r#"{"name":"here"}"#);
        ours.call("PUT", "/v1/partitions/default", "127.0.0.0/8,here\n");
        for (name, policy) in [
            ("www.example", policy(3, 1, V6)),
            ("several.example", policy(5, 2, "")),
            ("*.wild.example", policy(2, 1, "")),
        ] {
            ours.call("PUT", &format!("/v1/policies/{name}"), &policy);
        }
        let unbound = Peer::unbound(&folder, &folder.at("example.key"), &["example"], ours.dns());
        Signed { folder, ours, unbound }
    }

    /// What the resolver says, and whether it believes it.
    fn ask(&self, name: &str, rtype: &str) -> (String, Vec<String>, bool) {
        let Answer { rcode, answer, ad, .. } = Question::new(name, rtype).edns().ad().udp(self.unbound.dns);
        (rcode, answer, ad)
    }

    /// Asks until so many different answers have come, each of which is believed.
    fn sees(&self, name: &str, rtype: &str, all: usize) {
        let mut seen = BTreeSet::new();
        for _ in 0..QUESTIONS_MAX {
            seen.extend(self.drawn(name, rtype, 1));
            if seen.len() == all {
                return;
            }
        }
        panic!("{name} {rtype}: {seen:?}");
    }

    /// The answers that so many questions have; each is believed.
    fn drawn(&self, name: &str, rtype: &str, questions: usize) -> BTreeSet<Vec<String>> {
        let each = (0..questions).map(|_| {
            let (rcode, mut answer, ad) = self.ask(name, rtype);
            assert_eq!((rcode.as_str(), ad), ("NOERROR", true), "{name} {rtype} {answer:?}");
            answer.sort();
            answer
        });
        each.collect()
    }
}

#[test]
fn whatever_is_drawn_is_believed() {
    for (algorithm, chain) in [
        ("ECDSAP256SHA256", &[][..]),
        ("ECDSAP384SHA384", &[]),
        ("ED25519", &["-3", "-", "-H", "0"]),
        ("RSASHA256", &[]),
    ] {
        let signed = Signed::start(algorithm, chain);
        signed.sees("www.example", "A", 3);
        signed.sees("several.example", "A", 10);
        signed.sees("x.wild.example", "A", 2);
        signed.sees("*.wild.example", "A", 2);
        signed.sees("www.example", "AAAA", 1);
        signed.sees("www.example", "TXT", 1);
        let through: Vec<usize> = signed.drawn("chain.example", "A", 10).iter().map(Vec::len).collect();
        assert!(through.iter().all(|records| *records == 2), "{through:?}");
        for (name, rtype) in [
            ("www.example", "MX"),
            ("several.example", "AAAA"),
            ("x.wild.example", "AAAA"),
            ("wild.example", "A"),
        ] {
            assert_eq!(signed.ask(name, rtype), ("NOERROR".into(), vec![], true), "{name} {rtype}");
        }
        assert_eq!(signed.ask("no.example", "A"), ("NXDOMAIN".into(), vec![], true));

        // Whoever is down, and whatever changes.
        for index in 1..=5 {
            signed.ours.call("PUT", &format!("/v1/servers/192.0.2.{index}/state"), r#"{"up":false}"#);
            signed.drawn("several.example", "A", 10);
            signed.drawn("www.example", "A", 5);
        }
        signed.ours.call(
            "PUT",
            "/v1/policies/www.example",
            &policy(2, 1, V6).replace("192.0.2.", "198.51.100."),
        );
        signed.sees("www.example", "A", 2);
        signed.ours.call("DELETE", "/v1/policies/www.example", "");
        assert_eq!(
            signed.drawn("www.example", "A", 1).into_iter().flatten().collect::<Vec<_>>(),
            ["www.example. 300 in a 192.0.2.99"]
        );
        signed.ours.stop();
    }
}

#[test]
fn only_who_asks_for_signatures_gets_them() {
    let signed = Signed::start("ECDSAP256SHA256", &[]);
    let plain = Question::new("www.example", "A").udp(signed.ours.dns());
    assert_eq!((plain.answer.len(), plain.authority.len()), (1, 0));
    let with = Question::new("x.wild.example", "A").dnssec_ok().udp(signed.ours.dns());
    assert!(with.answer.len() == 2 && with.answer[1].contains("rrsig a 13 2 0 "), "{:?}", with.answer);
    assert!(with.authority.iter().any(|record| record.contains(" nsec ")), "{:?}", with.authority);
    signed.ours.stop();
}

#[test]
fn what_cannot_be_signed_or_proven_is_refused() {
    let mut signed = Signed::start("ECDSAP256SHA256", &[]);
    let alias = r#"{"servers":[{"cname":"www.cdn.test"}]}"#.to_string();
    let empty = policy(1, 1, "").replace("\"answers\"", "\"when_all_down\":\"empty\",\"answers\"");
    for (name, policy, expected) in [
        (
            "plain.example",
            policy(1, 1, ""),
            "plain.example. is answered with type A, of which the signed zone has no set",
        ),
        ("new.example", policy(1, 1, ""), "new.example. is answered with type A"),
        (
            "www.example",
            policy(1, 1, ""),
            "www.example. has type AAAA in the signed zone, of which the policy has no server",
        ),
        (
            "new.example",
            alias,
            "new.example. is in the zone example., which others sign, and would be an alias",
        ),
        ("several.example", empty, "which proves what is answered there"),
        ("several.example", policy(11, 0, ""), "at most 1023"),
    ] {
        let answer = signed.ours.client().call("PUT", &format!("/v1/policies/{name}"), &policy);
        assert!(answer.status == 422 && answer.text().contains(expected), "{name}: {}", answer.text());
    }
    signed.sees("www.example", "A", 3);

    // Another key signs the zone, which is not here.
    let other = Folder::new();
    let later = sign(&other, "example", &ZONE.replace(" 1 7200", " 2 7200"), &[]);
    let text = std::fs::read_to_string(&later).expect("it was made");
    let answer = signed.ours.client().call("PUT", "/v1/zones/example", &text);
    assert!(answer.status == 422 && answer.text().contains("no key of it is here"), "{}", answer.text());
    // Both are, for as long as it takes.
    let [first, second] = [&signed.folder, &other].map(|folder| folder.at("example.private"));
    let keys = |keys: &str| {
        signed.folder.write("pointsman.toml", format!("version = \"v1\"\nsigning_keys = [{keys}]\n"))
    };
    keys(&format!("\"{first}\", \"{second}\""));
    signed.ours.program.signal(Signal::SIGHUP);
    signed.ours.program.line("reloaded");
    signed.ours.call("PUT", "/v1/zones/example", &text);
    let unbound = Peer::unbound(&other, &other.at("example.key"), &["example"], signed.ours.dns());
    let believed = Question::new("several.example", "A").edns().ad().udp(unbound.dns);
    assert!(believed.ad && believed.answer.len() == 2, "{:?}", believed.answer);
    // Without its key the policies could not be answered.
    signed.folder.write("pointsman.toml", format!("version = \"v1\"\nsigning_keys = [\"{first}\"]\n"));
    signed.ours.program.signal(Signal::SIGHUP);
    signed.ours.program.line("no key of it is here");
    signed.ours.program.line("not reloaded");
    signed.ours.stop();
}

#[test]
fn what_is_stored_is_signed_at_a_start_or_not_served() {
    let signed = Signed::start("ED25519", &[]);
    let Signed { folder, ours, unbound } = signed;
    let dns = ours.dns();
    ours.stop();
    let file = folder.at("pointsman.toml");
    let ours = Serving::start(&folder, &["--config", &file, "--listen", &dns.to_string()]);
    let believed = Question::new("several.example", "A").edns().ad().udp(unbound.dns);
    assert!(believed.ad && believed.answer.len() == 2, "{:?}", believed.answer);
    ours.stop();
    let mut without = tests::program::Program::start(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--api",
        "127.0.0.1:0",
        "--store",
        &format!("sqlite:{}", folder.at("pointsman.db")),
    ]);
    without.line("no key of it is here");
    assert!(!without.end().status.success());
}
