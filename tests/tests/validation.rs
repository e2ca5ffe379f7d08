//! Zones that are signed afresh, with each kind of proof: a resolver believes what we answer, and two other servers
//! answer the same.

use std::collections::{BTreeMap, BTreeSet};

use tests::folder::Folder;
use tests::peer::Peer;
use tests::query::{Answer, Question};
use tests::serving::Serving;
use tests::signer::sign;

const PARENT: &str = "\
$TTL 300
@ SOA ns hm 1 7200 600 86400 60
@ NS ns
ns A 127.0.0.1
www A 192.0.2.1
www TXT text
a.b.ent A 192.0.2.2
*.wild TXT wild
*.alias CNAME www
chain CNAME x.alias
dangling CNAME nowhere
d DNAME target
x.target A 192.0.2.3
secure NS ns.secure
ns.secure A 127.0.0.1
insecure NS ns.insecure
ns.insecure A 127.0.0.1
a.deep NS ns.insecure
";

const CHILD: &str = "\
$TTL 300
@ SOA ns hm 1 7200 600 86400 60
@ NS ns
ns A 127.0.0.1
www A 192.0.2.77
";

/// Whether the validator must call an answer secure.
#[derive(Clone, Copy, PartialEq)]
enum Secure {
    Yes,
    No,
    /// Not where unsigned delegations may hide (RFC 5155 §9.2).
    ButForOptOut,
}
use Secure::{ButForOptOut, No, Yes};

/// What is asked: name, type, response code, records of ANSWER without signatures, and what it is to the validator.
const CASES: &[(&str, &str, &str, usize, Secure)] = &[
    ("example", "SOA", "NOERROR", 1, Yes),
    ("example", "DNSKEY", "NOERROR", 1, Yes),
    ("www.example", "A", "NOERROR", 1, Yes),
    ("www.example", "AAAA", "NOERROR", 0, Yes),
    ("www.example", "DS", "NOERROR", 0, Yes),
    ("ent.example", "A", "NOERROR", 0, Yes),
    ("b.ent.example", "A", "NOERROR", 0, Yes),
    ("nowhere.example", "A", "NXDOMAIN", 0, ButForOptOut),
    ("a.b.nowhere.example", "A", "NXDOMAIN", 0, ButForOptOut),
    ("x.www.example", "A", "NXDOMAIN", 0, ButForOptOut),
    ("x.b.ent.example", "A", "NXDOMAIN", 0, ButForOptOut),
    ("x.wild.example", "TXT", "NOERROR", 1, ButForOptOut),
    ("x.y.wild.example", "TXT", "NOERROR", 1, ButForOptOut),
    ("x.wild.example", "A", "NOERROR", 0, ButForOptOut),
    ("*.wild.example", "TXT", "NOERROR", 1, Yes),
    ("*.wild.example", "A", "NOERROR", 0, Yes),
    ("x.alias.example", "A", "NOERROR", 2, ButForOptOut),
    ("x.alias.example", "AAAA", "NOERROR", 1, ButForOptOut),
    ("chain.example", "A", "NOERROR", 3, ButForOptOut),
    ("dangling.example", "A", "NXDOMAIN", 1, ButForOptOut),
    ("d.example", "DNAME", "NOERROR", 1, Yes),
    ("x.d.example", "A", "NOERROR", 3, Yes),
    ("y.d.example", "A", "NXDOMAIN", 2, ButForOptOut),
    ("secure.example", "DS", "NOERROR", 1, Yes),
    ("www.secure.example", "A", "NOERROR", 1, Yes),
    ("www.secure.example", "AAAA", "NOERROR", 0, Yes),
    ("nowhere.secure.example", "A", "NXDOMAIN", 0, Yes),
    ("insecure.example", "DS", "NOERROR", 0, ButForOptOut),
    ("www.insecure.example", "A", "NOERROR", 1, No),
    ("nowhere.insecure.example", "A", "NXDOMAIN", 0, No),
];

/// What else is compared with the other servers: referrals, and what only a server is asked.
const COMPARED: &[(&str, &str)] = &[
    ("x.secure.example", "A"),
    ("secure.example", "NS"),
    ("x.insecure.example", "A"),
    ("insecure.example", "NS"),
    ("x.a.deep.example", "A"),
    ("a.deep.example", "DS"),
    ("deep.example", "A"),
    ("x.deep.example", "A"),
    ("www.example", "RRSIG"),
    ("www.example", "NSEC"),
    ("example", "NSEC3PARAM"),
    ("example", "NS"),
];

/// Where another server answers otherwise: the chains (`nsec`, `nsec3`, `salted`, `opt-out`), who, what, and why.
const DIFFERENCES: &[(&[&str], &str, &str, &str, &str)] = &[
    (ALL, "knot", "www.example", "RRSIG", "Knot gives one of the signatures, we all that there are"),
    (
        &["nsec3", "salted", "opt-out"],
        "nsd",
        "*.wild.example",
        "A",
        "NSD proves the closest encloser, too, as if the wildcard stood in for another name; Knot does not",
    ),
    (
        &["nsec"],
        "nsd",
        "y.d.example",
        "A",
        "NSD 4.6 does not prove that the DNAME's target is missing; Knot does",
    ),
    (
        &["opt-out"],
        "nsd",
        "x.deep.example",
        "A",
        "NSD 4.6 takes an empty non-terminal without an NSEC3 record for the closest provable encloser; Knot does not",
    ),
];

const ALL: &[&str] = &["nsec", "nsec3", "salted", "opt-out"];

#[test]
fn nsec_proofs_are_believed() {
    check("nsec", &[], Yes);
}

#[test]
fn nsec3_proofs_are_believed() {
    check("nsec3", &["-3", "-", "-H", "0"], Yes);
}

#[test]
fn nsec3_proofs_with_salt_and_iterations_are_believed() {
    check("salted", &["-3", "aabbccdd", "-H", "12"], Yes);
}

#[test]
fn opt_out_proofs_are_believed() {
    check("opt-out", &["-3", "-", "-H", "0", "-A"], No);
}

fn check(chain: &str, options: &[&str], secure_by_opt_out: Secure) {
    let folder = Folder::new();
    let child = sign(&folder, "secure.example", CHILD, &[]);
    let delegation_signer = std::fs::read_to_string(folder.at("dsset-secure.example.")).expect("it was made");
    let parent = sign(&folder, "example", &format!("{PARENT}{delegation_signer}"), options);
    let insecure = folder.write("insecure", format!("$ORIGIN insecure.example.\n{CHILD}"));
    let ours = Serving::start(&folder, &["--zone", &parent, "--zone", &child, "--zone", &insecure]);

    let zones = ["example", "secure.example", "insecure.example"];
    let unbound = Peer::unbound(&folder, &folder.at("example.key"), &zones, ours.dns());
    for &(name, rtype, rcode, records, secure) in CASES {
        let Answer { rcode: found, answer, ad, .. } = Question::new(name, rtype).edns().ad().udp(unbound.dns);
        let secure = if secure == ButForOptOut { secure_by_opt_out } else { secure };
        let is_secure = secure == Yes;
        assert_eq!(
            (found.as_str(), answer.len(), ad),
            (rcode, records, is_secure),
            "{name} {rtype} {chain:?}"
        );
    }

    // The children are served here, by the others not: they would be asked in vain.
    ours.call("DELETE", "/v1/zones/secure.example", "");
    ours.call("DELETE", "/v1/zones/insecure.example", "");
    let peers =
        [("nsd", Peer::nsd(&folder, "example", &parent)), ("knot", Peer::knot(&folder, "example", &parent))];
    let mut differing = BTreeMap::new();
    for (peer, server) in &peers {
        let cases = CASES.iter().map(|case| (case.0, case.1));
        for (name, rtype) in cases.chain(COMPARED.iter().copied()) {
            for question in [Question::new(name, rtype), Question::new(name, rtype).dnssec_ok()] {
                let [our, their] = [ours.dns(), server.dns].map(|server| {
                    let Answer { rcode, aa, answer, authority, .. } = question.ask(server);
                    (rcode, aa, answer, authority)
                });
                if our != their {
                    differing.insert((*peer, name, rtype), format!("ours {our:#?}\ntheirs {their:#?}"));
                }
            }
        }
    }
    let of_chain = DIFFERENCES.iter().filter(|(chains, ..)| chains.contains(&chain));
    let listed: BTreeSet<_> = of_chain.map(|(_, peer, name, rtype, _)| (*peer, *name, *rtype)).collect();
    assert_eq!(differing.keys().copied().collect::<BTreeSet<_>>(), listed, "{chain}: {differing:#?}");
    ours.stop();
}
