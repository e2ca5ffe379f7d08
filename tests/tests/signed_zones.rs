//! Zones that are signed here: BIND's verifier finds all signed and proven, and a resolver that validates believes the answers.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use nix::sys::signal::Signal;
use tests::folder::Folder;
use tests::peer::Peer;
use tests::program::Program;
use tests::query::{Answer, Question};
use tests::serving::Serving;
use tests::signer::{generate, verify};

const ZONE: &str = "\
$TTL 300
@ SOA ns hm 1 7200 600 86400 60
@ NS ns
@ MX 10 Mail.Example.
@ CDS 0 0 0 00
ns A 127.0.0.1
www A 192.0.2.99
www A 192.0.2.9
www 60 TXT text \"another\"
*.wild A 192.0.2.99
a.b.c TXT deep
A.B.D AAAA 2001:db8::1
chain CNAME WWW
sub NS ns.sub
sub NS ns.other.test.
ns.sub A 192.0.2.1
x.y.sub A 192.0.2.1
safe NS ns.safe
safe DS 1 13 2 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff
ns.safe A 192.0.2.1
old DNAME WWW.Example.
x.old TXT hidden
srv SRV 1 2 3 WWW.Example.
naptr NAPTR 1 2 U E2U+sip !^.*$!sip:A@b! Target.Example.
svcb SVCB 1 WWW.Example. alpn=h2
afsdb AFSDB 1 WWW.Example.
rp RP Me.Example. Text.Example.
kx KX 1 WWW.Example.
caa CAA 0 ISSUE \"CA.example\"
px PX 1 A.Example. B.Example.
rt RT 1 WWW.Example.
lp LP 1 WWW.Example.
ipsec IPSECKEY 1 3 2 GW.Example. AQID
loc LOC 52 22 23 N 4 53 32 E -2m
odd TYPE65280 \\# 2 4142
";

/// How a zone asks for NSEC3, and with which parameters.
const NSEC3: &str = "@ NSEC3PARAM 1 0 0 -\n";
const NSEC3_SALTED: &str = "@ NSEC3PARAM 1 0 5 AABB\n";

/// What the configuration names, as the files of private parts.
fn config(folder: &Folder, zone: &str, keys: &[&str]) -> String {
    let keys: Vec<String> =
        keys.iter().map(|key| format!("\"{}\"", folder.at(&format!("{key}.private")))).collect();
    let zone = folder.write("example.zone", format!("$ORIGIN example.\n{zone}"));
    let text = format!(
        "version = \"v1\"\nzone = [\"{zone}\"]\nsigning_keys = [{}]\n[[secondary]]\nfrom = [\"127.0.0.1\"]\n",
        keys.join(", ")
    );
    folder.write("pointsman.toml", text)
}

/// The zone as a secondary takes it, and its serial number.
fn given(server: SocketAddr) -> (String, u32) {
    let (ip, port) = (format!("@{}", server.ip()), server.port().to_string());
    let dig = Command::new("dig").args([&ip, "-p", &port, "example", "AXFR", "+onesoa"]).output();
    let text = String::from_utf8(dig.expect("dig (Debian: bind9-dnsutils)").stdout).expect("it writes text");
    let serial = text.lines().find_map(|line| line.split_whitespace().nth(6)?.parse().ok());
    (text.clone(), serial.unwrap_or_else(|| panic!("{text}")))
}

/// The signatures in a zone, of names other than these.
fn signatures(text: &str, but: &[&str]) -> Vec<String> {
    let words = text.lines().map(|line| (line.split_whitespace().take(4).collect::<Vec<_>>(), line));
    let signatures = words.filter(|(words, _)| words.get(3) == Some(&"RRSIG") && !but.contains(&words[0]));
    signatures.map(|(_, line)| line.to_string()).collect()
}

#[test]
fn all_is_signed_and_proven_and_believed() {
    let zsk_and_ksk = [&["-a", "ED25519"][..], &["-a", "ED25519", "-f", "KSK"]];
    let two_algorithms =
        [&["-a", "ECDSAP256SHA256", "-f", "KSK"][..], &["-a", "RSASHA256", "-b", "2048", "-f", "KSK"]];
    for (keys, chain) in [
        (&[&["-a", "ECDSAP256SHA256", "-f", "KSK"][..]][..], ""),
        (&zsk_and_ksk, NSEC3),
        (&[&["-a", "ECDSAP384SHA384", "-f", "KSK"]], NSEC3_SALTED),
        (&two_algorithms, ""),
    ] {
        let folder = Folder::new();
        let keys: Vec<String> = keys.iter().map(|options| generate(&folder, "example", options)).collect();
        let names: Vec<&str> = keys.iter().map(String::as_str).collect();
        let ours =
            Serving::start(&folder, &["--config", &config(&folder, &format!("{ZONE}{chain}"), &names)]);
        let (text, _) = given(ours.dns());
        verify(&folder, "example", &text);
        let of_type =
            |rtype| text.lines().filter(|line| line.split_whitespace().nth(3) == Some(rtype)).count();
        assert_eq!(
            (of_type("NSEC") > 0, of_type("NSEC3") > 0),
            (chain.is_empty(), !chain.is_empty()),
            "{text}"
        );

        // One key of the delegation is enough to believe all.
        let anchor = folder.at(&format!("{}.key", keys[keys.len() - 1]));
        let unbound = Peer::unbound(&folder, &anchor, &["example"], ours.dns());
        for (name, rtype, rcode, records, ad) in [
            ("example", "SOA", "NOERROR", 1, true),
            ("example", "DNSKEY", "NOERROR", keys.len(), true),
            ("www.example", "A", "NOERROR", 2, true),
            ("www.example", "TXT", "NOERROR", 1, true),
            ("chain.example", "A", "NOERROR", 3, true),
            ("a.b.d.example", "AAAA", "NOERROR", 1, true),
            ("odd.example", "TYPE65280", "NOERROR", 1, true),
            ("x.wild.example", "A", "NOERROR", 1, true),
            ("x.wild.example", "AAAA", "NOERROR", 0, true),
            ("www.example", "MX", "NOERROR", 0, true),
            ("b.c.example", "A", "NOERROR", 0, true),
            ("no.example", "A", "NXDOMAIN", 0, true),
            ("no.a.b.c.example", "A", "NXDOMAIN", 0, true),
            ("safe.example", "DS", "NOERROR", 1, true),
            ("sub.example", "DS", "NOERROR", 0, true),
        ] {
            let Answer { rcode: told, answer, ad: is_believed, .. } =
                Question::new(name, rtype).edns().ad().udp(unbound.dns);
            let answer: Vec<&String> = answer.iter().filter(|record| !record.contains(" rrsig ")).collect();
            assert_eq!(
                (told.as_str(), answer.len(), is_believed),
                (rcode, records, ad),
                "{name} {rtype} {answer:?}"
            );
        }
        ours.stop();
    }
}

/// What `pointsman key zone` makes is as dnssec-keygen would have made it.
#[test]
fn a_key_of_ours_is_one_to_others() {
    for (algorithm, number) in [("ecdsap256sha256", 13), ("ecdsap384sha384", 14), ("ed25519", 15)] {
        let folder = Folder::new();
        let private = folder.at("example.private");
        let made = Program::start(&["key", "zone", "Example", &private, "--algorithm", algorithm]).end();
        let public = folder.at("example.key");
        let ds = Command::new("dnssec-dsfromkey").args(["-2", &public]).output();
        let ds = String::from_utf8(ds.expect("dnssec-dsfromkey (Debian: bind9-utils)").stdout).expect("text");
        assert_eq!(made.stdout, ds);
        assert!(ds.contains(&format!(" {number} 2 ")), "{ds}");
        let mode = |file: &str| fs::metadata(file).expect("it was made").permissions().mode() & 0o777;
        assert_eq!((mode(&private), mode(&public)), (0o600, 0o644));
        // BIND's signer takes it.
        let zone = folder.write("example", format!("$ORIGIN example.\n{ZONE}$INCLUDE {public}\n"));
        let key = private.strip_suffix(".private").expect("it ends so");
        let signed = Command::new("dnssec-signzone")
            .args(["-z", "-o", "example", &zone, key])
            .current_dir(folder.path())
            .output();
        let signed = signed.expect("dnssec-signzone (Debian: bind9-utils)");
        assert!(signed.status.success(), "{}", String::from_utf8_lossy(&signed.stderr));
        // And none is written over.
        let before = fs::read_to_string(&private).expect("it was made");
        for removed in ["", &private] {
            let _ = fs::remove_file(removed);
            let again = Program::start(&["key", "zone", "example", &private]).end();
            assert!(
                again.status.code() == Some(2) && again.stderr.contains("it is there already"),
                "{}",
                again.stderr
            );
        }
        assert!(!fs::exists(&private).expect("the folder is ours"), "half a key stays: {before}");
    }
    let refused = Program::start(&["key", "zone", "a..b"]).end();
    assert!(
        refused.status.code() == Some(2) && refused.stderr.contains("'a..b' is no name"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_change_signs_what_it_changes() {
    let folder = Folder::new();
    let key = generate(&folder, "example", &["-a", "ECDSAP256SHA256", "-f", "KSK"]);
    let ours = Serving::start(&folder, &["--config", &config(&folder, ZONE, &[&key])]);
    let (first, serial) = given(ours.dns());
    assert!(serial > 1, "the periods are added: {serial}");
    // What is put is what is got, and goes on from its own serial number.
    let put = ours.client().call("GET", "/v1/zones/example", "").text();
    assert!(
        put.contains(" hm.example. 1 7200 ") && !put.contains("RRSIG") && !put.contains("DNSKEY"),
        "{put}"
    );
    let later = put.replace(" hm.example. 1 ", " hm.example. 2 ") + "new.example. 60 IN A 192.0.2.7\n";
    ours.call("PUT", "/v1/zones/example", &later);
    assert_eq!(
        ours.client().call("GET", "/v1/zones/example", "").text().lines().count(),
        later.lines().count()
    );
    let (second, then) = given(ours.dns());
    assert_eq!(then, serial + 1);
    verify(&folder, "example", &second);
    // It stands between a neighbour and the next one.
    let touched = ["example.", "new.example.", "naptr.example."];
    assert_eq!(signatures(&second, &touched), signatures(&first, &touched));
    assert_eq!(signatures(&second, &[]).len(), signatures(&first, &[]).len() + 2);
    let refused = ours.client().call("PUT", "/v1/zones/example", &put);
    assert!(
        refused.status == 422 && refused.text().contains("its serial 1 is not after 2"),
        "{}",
        refused.text()
    );

    // After a start the same is served; signatures of ECDSA are others.
    ours.stop();
    let ours = Serving::start(&folder, &["--config", &folder.at("pointsman.toml")]);
    let (third, again) = given(ours.dns());
    assert_eq!((again, third.lines().count()), (then, second.lines().count()));
    verify(&folder, "example", &third);
    ours.stop();
}

#[test]
fn what_policies_answer_is_proven_as_they_come_and_go() {
    for chain in ["", NSEC3] {
        let folder = Folder::new();
        let key = generate(&folder, "example", &["-a", "ED25519", "-f", "KSK"]);
        let ours =
            Serving::start(&folder, &["--config", &config(&folder, &format!("{ZONE}{chain}"), &[&key])]);
        // What was proven before is remembered for a while: each stage has a resolver of its own.
        let sees = |expected: &[(&str, &str, &str, usize)]| {
            let own = Folder::new();
            let unbound = Peer::unbound(&own, &folder.at(&format!("{key}.key")), &["example"], ours.dns());
            for (name, rtype, rcode, records) in expected {
                let answer = Question::new(name, rtype).edns().ad().udp(unbound.dns);
                let told = (answer.rcode.as_str(), answer.answer.len(), answer.ad);
                assert_eq!(told, (*rcode, *records, true), "{name} {rtype} {:?}", answer.answer);
            }
        };
        let [v4, v6] = ["192.0.2.1", "2001:db8::1"].map(|address| format!(r#"{{"address":"{address}"}}"#));
        let put = |name: &str, servers: &[&str]| {
            let policy = format!(r#"{{"servers":[{}]}}"#, servers.join(","));
            ours.call("PUT", &format!("/v1/policies/{name}"), &policy);
        };
        put("www.example", &[&v6]);
        put("deep.geo.example", &[&v4]);
        put("*.far.example", &[&v4, &v6]);
        let aliases = ["NS.example", "mail.b.c.example"].map(|name| format!(r#"{{"cname":"{name}"}}"#));
        let all = [&*aliases[0], &aliases[1]];
        put("alias.example", &all);
        put("alias.example", &all[..1]);
        put("*.aliases.example", &all[..1]);
        sees(&[
            ("alias.example", "A", "NOERROR", 2),
            ("alias.example", "CNAME", "NOERROR", 1),
            ("alias.example", "TXT", "NOERROR", 1),
            ("x.aliases.example", "A", "NOERROR", 2),
            ("y.x.aliases.example", "CNAME", "NOERROR", 1),
            ("www.example", "AAAA", "NOERROR", 1),
            ("www.example", "A", "NOERROR", 0),
            ("www.example", "TXT", "NOERROR", 1),
            ("deep.geo.example", "A", "NOERROR", 1),
            ("deep.geo.example", "AAAA", "NOERROR", 0),
            ("geo.example", "A", "NOERROR", 0),
            ("no.geo.example", "A", "NXDOMAIN", 0),
            ("x.far.example", "A", "NOERROR", 1),
            ("x.far.example", "AAAA", "NOERROR", 1),
            ("x.far.example", "MX", "NOERROR", 0),
            ("x.wild.example", "A", "NOERROR", 1),
        ]);
        put("www.example", &[&v4]);
        put("alias.example", &[&v6]);
        put("deep.geo.example", &[&v4, &v6]);
        ours.call("DELETE", "/v1/policies/*.far.example", "");
        let later = ZONE.replace(" 1 7200", " 2 7200") + chain + "later A 192.0.2.7\n";
        ours.call("PUT", "/v1/zones/example", &later);
        sees(&[
            ("alias.example", "AAAA", "NOERROR", 1),
            ("alias.example", "CNAME", "NOERROR", 0),
            ("www.example", "A", "NOERROR", 1),
            ("www.example", "AAAA", "NOERROR", 0),
            ("deep.geo.example", "AAAA", "NOERROR", 1),
            ("x.far.example", "A", "NXDOMAIN", 0),
            ("later.example", "A", "NOERROR", 1),
        ]);
        ours.call("DELETE", "/v1/policies/www.example", "");
        ours.call("DELETE", "/v1/policies/alias.example", "");
        ours.call("DELETE", "/v1/policies/*.aliases.example", "");
        ours.call("DELETE", "/v1/policies/deep.geo.example", "");
        sees(&[
            ("www.example", "A", "NOERROR", 2),
            ("deep.geo.example", "A", "NXDOMAIN", 0),
            ("geo.example", "A", "NXDOMAIN", 0),
        ]);
        verify(&folder, "example", &given(ours.dns()).0);
        ours.stop();
    }
}

#[test]
fn policies_and_keys_come_and_go() {
    let folder = Folder::new();
    let [old, new] = [(); 2].map(|()| generate(&folder, "example", &["-a", "ED25519", "-f", "KSK"]));
    let mut ours = Serving::start(&folder, &["--config", &config(&folder, ZONE, &[&old])]);
    let dns = ours.dns();
    let policy = r#"{"servers":[{"address":"198.51.100.1"}]}"#;
    ours.call("PUT", "/v1/policies/www.example", policy);
    let believed = |key: &str, name: &str, expected: &str| {
        let folder = Folder::new();
        let anchor = fs::read_to_string(key).expect("it was made");
        let unbound = Peer::unbound(&folder, &folder.write("anchor", anchor), &["example"], dns);
        let answer = Question::new(name, "A").edns().ad().udp(unbound.dns);
        assert!(answer.ad && answer.answer[0].ends_with(expected), "{name} {:?}", answer.answer);
    };
    let [old_key, new_key] = [&old, &new].map(|key| folder.at(&format!("{key}.key")));
    let reload = |ours: &mut Serving, keys: &[&str]| {
        config(&folder, ZONE, keys);
        ours.program.signal(Signal::SIGHUP);
        ours.program.line("reloaded");
    };
    believed(&old_key, "www.example", "198.51.100.1");
    believed(&old_key, "ns.example", "127.0.0.1");
    reload(&mut ours, &[&old, &new]);
    for key in [&old_key, &new_key] {
        believed(key, "www.example", "198.51.100.1");
        believed(key, "ns.example", "127.0.0.1");
    }
    reload(&mut ours, &[&new]);
    believed(&new_key, "www.example", "198.51.100.1");
    believed(&new_key, "ns.example", "127.0.0.1");

    // What would be signed twice is refused, and what is there stays.
    let signed = format!("$ORIGIN example.\n{ZONE}www NSEC example. A\n").replace(" 1 7200", " 2 7200");
    let answer = ours.client().call("PUT", "/v1/zones/example", &signed);
    let expected = "example. is to be signed here, but it has NSEC records";
    assert!(answer.status == 422 && answer.text().contains(expected), "{}", answer.text());
    believed(&new_key, "ns.example", "127.0.0.1");

    // Without a key it is as it was given; one that delegations do not trust is none of a whole zone.
    let of_zone = generate(&folder, "example", &["-a", "ED25519"]);
    let of_another = generate(&folder, "example.org", &["-a", "ED25519", "-f", "KSK"]);
    reload(&mut ours, &[&of_zone, &of_another]);
    ours.program.has_said("nobody has signed the zone");
    ours.program.has_said("the zone is not here");
    let plain = Question::new("ns.example", "A").dnssec_ok().udp(ours.dns());
    assert_eq!(plain.answer, ["ns.example. 300 in a 127.0.0.1"]);
    assert!(Question::new("example", "DNSKEY").udp(ours.dns()).answer.is_empty());
    ours.stop();
}
