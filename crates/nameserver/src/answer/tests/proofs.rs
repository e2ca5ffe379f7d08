//! Signed zones: signatures, and proofs of what is not there.

use super::*;

/// The zone of RFC 4035 Appendix A, in short: signatures are of this form only.
const NSEC_ZONE: &str = "\
$TTL 3600
@ SOA ns1 bugs.x.w 1081539377 3600 300 3600000 1800
@ NS ns1
@ MX 1 xx
@ DNSKEY 256 3 5 AAAA
@ NSEC a NS SOA MX RRSIG NSEC DNSKEY
a NS ns1.a
a DS 57855 5 1 b6dcd485719adca18e5f3d48a2331627fdd3636b
a NSEC ai NS DS RRSIG NSEC
ns1.a A 192.0.2.5
ai A 192.0.2.9
ai NSEC b A RRSIG NSEC
b NS ns1.b
b NSEC d NS RRSIG NSEC
ns1.b A 192.0.2.7
d DNAME ai
d NSEC ns1 DNAME RRSIG NSEC
ns1 A 192.0.2.1
ns1 NSEC *.w A RRSIG NSEC
*.w MX 1 ai
*.w NSEC x.w MX RRSIG NSEC
x.w MX 1 xx
x.w NSEC x.y.w MX RRSIG NSEC
x.y.w MX 1 xx
x.y.w NSEC xx MX RRSIG NSEC
xx A 192.0.2.10
xx NSEC example. A RRSIG NSEC
";

/// The zone of RFC 5155 Appendix A, in short.
const NSEC3_ZONE: &str = "\
$TTL 3600
@ SOA ns1 bugs.x.w 1 3600 300 3600000 1800
@ NS ns1
@ MX 1 xx
@ DNSKEY 256 3 7 AAAA
@ NSEC3PARAM 1 0 12 aabbccdd
0p9mhaveqvm6t7vbl5lop2u3t2rp3tom NSEC3 1 1 12 aabbccdd 2t7b4g4vsa5smi47k61mv5bv1a22bojr MX NS SOA NSEC3PARAM RRSIG
2t7b4g4vsa5smi47k61mv5bv1a22bojr NSEC3 1 1 12 aabbccdd 2vptu5timamqttgl4luu9kg21e0aor3s A RRSIG
2vptu5timamqttgl4luu9kg21e0aor3s NSEC3 1 1 12 aabbccdd 35mthgpgcu1qg68fab165klnsnk3dpvl MX RRSIG
35mthgpgcu1qg68fab165klnsnk3dpvl NSEC3 1 1 12 aabbccdd b4um86eghhds6nea196smvmlo4ors995 NS DS RRSIG
b4um86eghhds6nea196smvmlo4ors995 NSEC3 1 1 12 aabbccdd gjeqe526plbf1g8mklp59enfd789njgi MX RRSIG
gjeqe526plbf1g8mklp59enfd789njgi NSEC3 1 1 12 aabbccdd ji6neoaepv8b5o6k4ev33abha8ht9fgc A RRSIG
ji6neoaepv8b5o6k4ev33abha8ht9fgc NSEC3 1 1 12 aabbccdd k8udemvp1j2f7eg6jebps17vp3n8i58h
k8udemvp1j2f7eg6jebps17vp3n8i58h NSEC3 1 1 12 aabbccdd kohar7mbb8dc2ce8a9qvl8hon4k53uhi
kohar7mbb8dc2ce8a9qvl8hon4k53uhi NSEC3 1 1 12 aabbccdd q04jkcevqvmu85r014c7dkba38o0ji5r A RRSIG
q04jkcevqvmu85r014c7dkba38o0ji5r NSEC3 1 1 12 aabbccdd r53bq7cc2uvmubfu5ocmm6pers9tk9en A RRSIG
r53bq7cc2uvmubfu5ocmm6pers9tk9en NSEC3 1 1 12 aabbccdd t644ebqk9bibcna874givr6joj62mlhv MX RRSIG
t644ebqk9bibcna874givr6joj62mlhv NSEC3 1 1 12 aabbccdd 0p9mhaveqvm6t7vbl5lop2u3t2rp3tom A RRSIG
2t7b4g4vsa5smi47k61mv5bv1a22bojr A 192.0.2.127
a NS ns1.a
a DS 58470 5 1 3079f1593ebad6dc121e202a8b766a6a4837206c
ns1.a A 192.0.2.5
ai A 192.0.2.9
c NS ns1.c
ns1.c A 192.0.2.7
ns1 A 192.0.2.1
ns2 A 192.0.2.2
*.w MX 1 ai
x.w MX 1 xx
x.y.w MX 1 xx
xx A 192.0.2.10
";

/// The zone with a signature, in form only, over every RRset but those of delegations and below.
fn signed(zone: &str) -> Generation {
    signed_in(zone, 66, Settings::default())
}

/// With signatures of so many octets, a multiple of three.
fn signed_in(zone: &str, octets: usize, settings: Settings) -> Generation {
    let (mut text, signature) = (zone.to_string(), "AAAA".repeat(octets / 3));
    for line in zone.lines().skip(1) {
        let [owner, rtype, ..] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let is_delegated = owner.starts_with("ns1.") || (rtype == "NS" && owner != "@");
        let is_again = text.contains(&format!("\n{owner} RRSIG {rtype} "));
        if !is_delegated && !is_again {
            text += &format!(
                "{owner} RRSIG {rtype} 5 1 3600 20040509183619 20040409183619 1 example. {signature}\n"
            );
        }
    }
    generation(&[("example", &text)], settings)
}

/// The answer with DO, in short: rcode and flags; then section, owner and type of each RRset, `+` if it is signed.
fn outline(generation: &Generation, name: &'static str, rtype: Rtype) -> Vec<String> {
    let mut outline: Vec<String> = Vec::new();
    for line in lines(generation, &Query { dnssec_ok: true, ..ask(name, rtype) }) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            [section, owner, _, "RRSIG", covered, ..]
                if outline.last().is_some_and(|last| *last == format!("{section} {owner} {covered}")) =>
            {
                *outline.last_mut().unwrap() += "+";
            }
            [section, owner, _, rtype, ..] => {
                let set = format!("{section} {owner} {rtype}");
                if outline.last() != Some(&set) {
                    outline.push(set);
                }
            }
            _ => outline.push(line),
        }
    }
    outline
}

fn check_proofs(zone: &str, cases: &[(&'static str, Rtype, &[&str])]) {
    let generation = signed(zone);
    for (name, rtype, expected) in cases {
        assert_eq!(outline(&generation, name, *rtype), *expected, "{name} {rtype}");
    }
}

#[test]
fn what_may_be_left_out_makes_no_answer_too_long() {
    let [minimal, full] = [true, false].map(|minimal_responses| {
        signed_in(NSEC_ZONE, 258, Settings { minimal_responses, ..Settings::default() })
    });
    let is_cut = |generation, size| {
        let query = ask("a.z.w.example", Rtype::MX);
        let query = Query { dnssec_ok: true, edns: Some(size), ..query };
        let answer = answered(generation, &message(&query), query.transport).unwrap();
        (answer.header().tc(), answer.as_slice().len())
    };
    let lengths: Vec<usize> = (512..1232)
        .map(|size| {
            let ((cut, _), (full_cut, length)) = (is_cut(&minimal, size), is_cut(&full, size));
            assert_eq!(cut, full_cut, "at {size} octets");
            length
        })
        .collect();
    assert!(
        lengths.iter().any(|length| *length > is_cut(&minimal, 1232).1),
        "there is room for them in the end"
    );
}

#[test]
fn nsec_proofs_of_rfc_4035_appendix_b() {
    let soa = "au example SOA+";
    check_proofs(
        NSEC_ZONE,
        &[
            ("x.w.example", Rtype::MX, &["NOERROR aa", "an x.w.example MX+"]),
            ("ml.example", Rtype::A, &["NXDOMAIN aa", soa, "au d.example NSEC+", "au example NSEC+"]),
            ("ns1.example", Rtype::MX, &["NOERROR aa", soa, "au ns1.example NSEC+"]),
            (
                "mc.a.example",
                Rtype::MX,
                &["NOERROR", "au a.example NS", "au a.example DS+", "ad ns1.a.example A"],
            ),
            (
                "mc.b.example",
                Rtype::MX,
                &["NOERROR", "au b.example NS", "au b.example NSEC+", "ad ns1.b.example A"],
            ),
            ("b.example", Rtype::DS, &["NOERROR aa", soa, "au b.example NSEC+"]),
            ("a.z.w.example", Rtype::MX, &["NOERROR aa", "an a.z.w.example MX+", "au x.y.w.example NSEC+"]),
            (
                "a.z.w.example",
                Rtype::AAAA,
                &["NOERROR aa", soa, "au x.y.w.example NSEC+", "au *.w.example NSEC+"],
            ),
            // One record proves that neither the name nor the wildcard is there.
            ("aa.example", Rtype::A, &["NXDOMAIN aa", soa, "au a.example NSEC+", "au example NSEC+"]),
            ("a.ai.example", Rtype::A, &["NXDOMAIN aa", soa, "au ai.example NSEC+"]),
            // The last record of the chain reaches round to the apex.
            ("zz.example", Rtype::A, &["NXDOMAIN aa", soa, "au xx.example NSEC+", "au example NSEC+"]),
            // Empty non-terminals have no record of their own.
            ("y.w.example", Rtype::A, &["NOERROR aa", soa, "au x.w.example NSEC+"]),
            ("example", Rtype::DS, &["NOERROR aa", soa, "au example NSEC+"]),
        ],
    );
}

#[test]
fn a_dname_is_signed_and_its_alias_is_not() {
    check_proofs(
        NSEC_ZONE,
        &[(
            "x.d.example",
            Rtype::MX,
            &[
                "NXDOMAIN aa",
                "an d.example DNAME+",
                "an x.d.example CNAME",
                "au example SOA+",
                "au ai.example NSEC+",
            ],
        )],
    );
}

#[test]
fn nsec3_proofs_of_rfc_5155_appendix_b() {
    const APEX: &str = "au 0p9mhaveqvm6t7vbl5lop2u3t2rp3tom.example NSEC3+";
    const NS1: &str = "au 2t7b4g4vsa5smi47k61mv5bv1a22bojr.example NSEC3+";
    const A: &str = "au 35mthgpgcu1qg68fab165klnsnk3dpvl.example NSEC3+";
    const XW: &str = "au b4um86eghhds6nea196smvmlo4ors995.example NSEC3+";
    const YW: &str = "au ji6neoaepv8b5o6k4ev33abha8ht9fgc.example NSEC3+";
    const W: &str = "au k8udemvp1j2f7eg6jebps17vp3n8i58h.example NSEC3+";
    const NS2: &str = "au q04jkcevqvmu85r014c7dkba38o0ji5r.example NSEC3+";
    const WILD: &str = "au r53bq7cc2uvmubfu5ocmm6pers9tk9en.example NSEC3+";
    let soa = "au example SOA+";
    check_proofs(
        NSEC3_ZONE,
        &[
            ("a.c.x.w.example", Rtype::A, &["NXDOMAIN aa", soa, XW, APEX, A]),
            ("ns1.example", Rtype::MX, &["NOERROR aa", soa, NS1]),
            ("y.w.example", Rtype::A, &["NOERROR aa", soa, YW]),
            (
                "mc.a.example",
                Rtype::MX,
                &["NOERROR", "au a.example NS", "au a.example DS+", "ad ns1.a.example A"],
            ),
            // Opt-Out: the closest provable encloser, and what covers the delegation.
            ("mc.c.example", Rtype::MX, &["NOERROR", "au c.example NS", APEX, A, "ad ns1.c.example A"]),
            ("c.example", Rtype::DS, &["NOERROR aa", soa, APEX, A]),
            ("a.z.w.example", Rtype::MX, &["NOERROR aa", "an a.z.w.example MX+", NS2]),
            ("a.z.w.example", Rtype::AAAA, &["NOERROR aa", soa, W, NS2, WILD]),
            ("example", Rtype::DS, &["NOERROR aa", soa, APEX]),
            (
                "2t7b4g4vsa5smi47k61mv5bv1a22bojr.example",
                Rtype::A,
                &["NOERROR aa", "an 2t7b4g4vsa5smi47k61mv5bv1a22bojr.example A+"],
            ),
        ],
    );
    // The owner of an NSEC3 record is no name of the zone (RFC 5155 §7.2.8).
    let generation = signed(NSEC3_ZONE);
    for rtype in [Rtype::A, Rtype::NSEC3] {
        let outline = outline(&generation, "q04jkcevqvmu85r014c7dkba38o0ji5r.example", rtype);
        assert_eq!(outline[..3], ["NXDOMAIN aa", soa, APEX], "{rtype}");
    }
}

#[test]
fn without_do_only_what_is_asked_for() {
    for zone in [NSEC_ZONE, NSEC3_ZONE] {
        let generation = signed(zone);
        for (name, rtype) in [
            ("example", Rtype::MX),
            ("nowhere.example", Rtype::A),
            ("ns1.example", Rtype::MX),
            ("x.a.example", Rtype::A),
            ("a.z.w.example", Rtype::MX),
            ("a.z.w.example", Rtype::A),
            ("x.d.example", Rtype::MX),
        ] {
            let all = lines(&generation, &ask(name, rtype)).join("\n");
            assert!(
                !["RRSIG", "NSEC", "DS"].iter().any(|unasked| all.contains(unasked)),
                "{name} {rtype}:\n{all}"
            );
        }
        let of_type = |name, rtype| lines(&generation, &ask(name, rtype)).len();
        assert_eq!(of_type("example", Rtype::DNSKEY), 2);
        assert_eq!(of_type("a.example", Rtype::DS), 2);
        assert!(of_type("example", Rtype::RRSIG) >= 5);
    }
    assert_eq!(lines(&signed(NSEC_ZONE), &ask("ai.example", Rtype::NSEC)).len(), 2);
}

#[test]
fn an_absence_is_remembered_for_as_long_with_proof_as_without() {
    // The zone's records have 3,600 seconds, its SOA record says 1,800 (RFC 9077).
    for zone in [NSEC_ZONE, NSEC3_ZONE] {
        for (name, rtype) in [("nowhere.example", Rtype::A), ("a.z.w.example", Rtype::A)] {
            let query = Query { dnssec_ok: true, ..ask(name, rtype) };
            for line in &lines(&signed(zone), &query)[1..] {
                assert_eq!(line.split(' ').nth(2), Some("1800"), "{line}");
            }
        }
    }
    let asked = lines(&signed(NSEC_ZONE), &Query { dnssec_ok: true, ..ask("ai.example", Rtype::NSEC) });
    assert!(asked[1..].iter().all(|line| line.split(' ').nth(2) == Some("1800")), "{asked:?}");
}

#[test]
fn ad_and_cd_are_no_business_of_an_authority() {
    let generation = signed(NSEC_ZONE);
    let mut bytes = message(&Query { dnssec_ok: true, ..ask("ns1.example", Rtype::A) });
    bytes[3] |= 0x30;
    let answer = answered(&generation, &bytes, Transport::Udp).unwrap();
    assert!(!answer.header().ad() && !answer.header().cd());
    assert!(answer.opt().unwrap().dnssec_ok());
}

#[test]
fn a_proof_that_does_not_fit_truncates() {
    let query = Query { dnssec_ok: true, edns: Some(512), ..ask("a.c.x.w.example", Rtype::A) };
    assert_eq!(lines(&signed(NSEC3_ZONE), &query), ["NXDOMAIN aa tc"]);
    let query = Query { transport: TCP, ..query };
    assert_eq!(lines(&signed(NSEC3_ZONE), &query).len(), 9);
}
