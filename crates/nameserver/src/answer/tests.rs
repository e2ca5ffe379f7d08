//! Answers, looked at as text: `check` asks a zone and compares the sections.

use std::sync::Arc;
use std::time::Duration;

use dns::{Folded, Rtype};
use domain::base::iana::Class;
use domain::base::{Message, MessageBuilder, Name};
use domain::rdata::AllRecordData;

use super::*;
use crate::book::{Book, Edit};
use crate::fast::Fast;
use crate::generation::Settings;
use crate::rate_limit::RateLimit;
use crate::zone::{Zone, read};

const NOW: Now = Now { monotonic: Duration::ZERO, unix: Duration::ZERO };

const ZONE: &str = "\
$TTL 300
@ SOA ns hm 1 7200 600 86400 60
@ NS ns
@ NS ns.other.test.
ns A 192.0.2.53
ns AAAA 2001:db8::53
www A 192.0.2.1
www A 192.0.2.2
mail MX 10 www
alias CNAME www
chain CNAME alias
out CNAME www.other.test.
dangling CNAME nowhere
loop1 CNAME loop2
loop2 CNAME loop1
*.wild TXT wild
deep.ent.wild TXT deep
*.wc CNAME www
sub NS ns.sub
sub NS sibling.peer
sub DS 1 8 2 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff
ns.sub A 192.0.2.54
peer NS sibling.peer
sibling.peer A 192.0.2.55
d DNAME target
x.target A 192.0.2.9
";

fn generation(zones: &[(&str, &str)], settings: Settings) -> Generation {
    let mut generation = Generation::empty(5, settings);
    for (origin, text) in zones {
        let origin = dns::name::from_text(origin).unwrap();
        let include = |_: &str| Err(String::new());
        let source =
            read::Source { name: "t", text: text.as_bytes(), origin: Some(&origin), include: &include };
        let zone = Zone::build(&read::read(&source).unwrap(), "t", &generation.hash).unwrap();
        generation.zones.put(Arc::new(zone), &generation.hash);
    }
    generation
}

fn example() -> Generation {
    generation(&[("example", ZONE)], Settings::default())
}

struct Query {
    name: &'static str,
    rtype: Rtype,
    class: Class,
    edns: Option<u16>,
    dnssec_ok: bool,
    transport: Transport,
}

fn ask(name: &'static str, rtype: Rtype) -> Query {
    Query { name, rtype, class: Class::IN, edns: Some(4096), dnssec_ok: false, transport: Transport::Udp }
}

fn message(query: &Query) -> Vec<u8> {
    let mut builder = MessageBuilder::new_vec().question();
    builder.push((&query.name.parse::<Name<Vec<u8>>>().unwrap(), query.rtype, query.class)).unwrap();
    let mut builder = builder.additional();
    if let Some(size) = query.edns {
        builder
            .opt(|opt| {
                opt.set_udp_payload_size(size);
                opt.set_dnssec_ok(query.dnssec_ok);
                Ok(())
            })
            .unwrap();
    }
    builder.finish()
}

fn answered(generation: &Generation, query: &[u8], transport: Transport) -> Result<Message<Vec<u8>>, Why> {
    let local = "127.0.0.1".parse().unwrap();
    let asked = Asked { query, client: local, local, transport };
    let mut out = vec![0; 65_535];
    match generation.answer(&asked, NOW, &mut fastrand::Rng::with_seed(1), &mut out) {
        Reply::Send(length) => Ok(Message::from_octets(out[..length].to_vec()).unwrap()),
        Reply::Drop(why) => Err(why),
    }
}

/// The answer as lines: rcode and flags, then the records, `an`, `au` or `ad` before each.
fn lines(generation: &Generation, query: &Query) -> Vec<String> {
    let message = answered(generation, &message(query), query.transport).unwrap();
    let header = message.header();
    let mut lines = vec![format!(
        "{}{}{}",
        message.opt_rcode(),
        if header.aa() { " aa" } else { "" },
        if header.tc() { " tc" } else { "" }
    )];
    let (_, answer, authority, additional) = message.sections().unwrap();
    for (label, section) in [("an", answer), ("au", authority), ("ad", additional)] {
        for record in section.limit_to::<AllRecordData<_, _>>() {
            let record = record.unwrap();
            if record.rtype() != Rtype::OPT {
                let (owner, ttl, rtype) = (record.owner(), record.ttl().as_secs(), record.rtype());
                lines.push(format!("{label} {owner} {ttl} {rtype} {}", record.data()));
            }
        }
    }
    lines
}

fn check(query: Query, expected: &[&str]) {
    assert_eq!(lines(&example(), &query), expected, "{} {}", query.name, query.rtype);
}

const SOA: &str = "au example 60 SOA ns.example. hm.example. 1 7200 600 86400 60";

#[test]
fn positive_answers() {
    check(
        ask("www.example", Rtype::A),
        &["NOERROR aa", "an www.example 300 A 192.0.2.1", "an www.example 300 A 192.0.2.2"],
    );
    check(ask("mail.example", Rtype::MX), &["NOERROR aa", "an mail.example 300 MX 10 www.example."]);
    check(
        ask("example", Rtype::NS),
        &[
            "NOERROR aa",
            "an example 300 NS ns.example.",
            "an example 300 NS ns.other.test.",
            "ad ns.example 300 A 192.0.2.53",
            "ad ns.example 300 AAAA 2001:db8::53",
        ],
    );
    check(ask("ns.example", Rtype::ANY), &["NOERROR aa", "an ns.example 300 A 192.0.2.53"]);
}

#[test]
fn names_are_echoed_as_asked() {
    let lines = lines(&example(), &ask("wWw.eXample", Rtype::A));
    assert_eq!(lines[1], "an wWw.eXample 300 A 192.0.2.1");
}

#[test]
fn the_zones_servers_come_along_unless_answers_are_minimal() {
    let full = generation(&[("example", ZONE)], Settings { minimal_responses: false, ..Settings::default() });
    let lines = lines(&full, &ask("mail.example", Rtype::MX));
    assert_eq!(lines[2..], ["au example 300 NS ns.example.", "au example 300 NS ns.other.test."]);
}

#[test]
fn negative_answers() {
    check(ask("www.example", Rtype::AAAA), &["NOERROR aa", SOA]);
    check(ask("nowhere.example", Rtype::A), &["NXDOMAIN aa", SOA]);
    check(ask("target.example", Rtype::A), &["NOERROR aa", SOA]);
    check(ask("a.www.example", Rtype::A), &["NXDOMAIN aa", SOA]);
}

#[test]
fn aliases_are_followed_in_our_zones() {
    let www = ["an www.example 300 A 192.0.2.1", "an www.example 300 A 192.0.2.2"];
    check(
        ask("chain.example", Rtype::A),
        &[
            "NOERROR aa",
            "an chain.example 300 CNAME alias.example.",
            "an alias.example 300 CNAME www.example.",
            www[0],
            www[1],
        ],
    );
    check(ask("alias.example", Rtype::CNAME), &["NOERROR aa", "an alias.example 300 CNAME www.example."]);
    check(ask("out.example", Rtype::A), &["NOERROR aa", "an out.example 300 CNAME www.other.test."]);
    check(
        ask("dangling.example", Rtype::A),
        &["NXDOMAIN aa", "an dangling.example 300 CNAME nowhere.example.", SOA],
    );
    check(
        ask("loop1.example", Rtype::A),
        &[
            "NOERROR aa",
            "an loop1.example 300 CNAME loop2.example.",
            "an loop2.example 300 CNAME loop1.example.",
        ],
    );
}

#[test]
fn wildcards() {
    check(ask("x.wild.example", Rtype::TXT), &["NOERROR aa", "an x.wild.example 300 TXT \"wild\""]);
    check(ask("x.y.wild.example", Rtype::TXT), &["NOERROR aa", "an x.y.wild.example 300 TXT \"wild\""]);
    check(ask("x.wild.example", Rtype::A), &["NOERROR aa", SOA]);
    // The empty non-terminal is the closest encloser, and has no wildcard below it.
    check(ask("x.ent.wild.example", Rtype::TXT), &["NXDOMAIN aa", SOA]);
    check(ask("ent.wild.example", Rtype::TXT), &["NOERROR aa", SOA]);
    check(ask("y.wc.example", Rtype::AAAA), &["NOERROR aa", "an y.wc.example 300 CNAME www.example.", SOA]);
}

#[test]
fn delegations() {
    let referral = [
        "NOERROR",
        "au sub.example 300 NS ns.sub.example.",
        "au sub.example 300 NS sibling.peer.example.",
        "ad ns.sub.example 300 A 192.0.2.54",
        "ad sibling.peer.example 300 A 192.0.2.55",
    ];
    check(ask("sub.example", Rtype::NS), &referral);
    check(ask("a.b.sub.example", Rtype::A), &referral);
    check(ask("ns.sub.example", Rtype::A), &referral);
    let ds = lines(&example(), &ask("sub.example", Rtype::DS));
    assert!(ds[0] == "NOERROR aa" && ds[1].starts_with("an sub.example 300 DS 1"), "{ds:?}");
    check(ask("peer.example", Rtype::DS), &["NOERROR aa", SOA]);
}

#[test]
fn dnames_make_aliases() {
    check(
        ask("x.d.example", Rtype::A),
        &[
            "NOERROR aa",
            "an d.example 300 DNAME target.example.",
            "an x.d.example 300 CNAME x.target.example.",
            "an x.target.example 300 A 192.0.2.9",
        ],
    );
    // The alias is what was asked for, wherever it leads.
    let alias = [
        "NOERROR aa",
        "an d.example 300 DNAME target.example.",
        "an y.d.example 300 CNAME y.target.example.",
    ];
    check(ask("y.d.example", Rtype::CNAME), &alias);
    check(ask("d.example", Rtype::DNAME), &["NOERROR aa", "an d.example 300 DNAME target.example."]);
    check(ask("d.example", Rtype::A), &["NOERROR aa", SOA]);
    let long: &'static str = Box::leak(["a"; 123].join(".").into_boxed_str());
    let name: &'static str = Box::leak(format!("{}.d.example", &long[..241]).into_boxed_str());
    check(ask(name, Rtype::A), &["YXDOMAIN aa", "an d.example 300 DNAME target.example."]);
}

#[test]
fn the_longest_origin_wins_and_ds_is_the_parents() {
    let child = "$TTL 5\n@ SOA a b 1 1 1 1 1\n@ NS ns\nwww A 192.0.2.77\n";
    let both = generation(&[("example", ZONE), ("sub.example", child)], Settings::default());
    assert_eq!(lines(&both, &ask("www.sub.example", Rtype::A))[1], "an www.sub.example 5 A 192.0.2.77");
    assert!(lines(&both, &ask("sub.example", Rtype::DS))[1].starts_with("an sub.example 300 DS"));
    let alone = generation(&[("sub.example", child)], Settings::default());
    assert_eq!(lines(&alone, &ask("sub.example", Rtype::DS))[0], "NOERROR aa");
}

#[test]
fn what_is_not_ours_or_not_for_us() {
    check(ask("other.test", Rtype::A), &["REFUSED"]);
    check(Query { class: Class::CH, ..ask("www.example", Rtype::A) }, &["REFUSED"]);
    check(ask("example", Rtype::AXFR), &["REFUSED"]);
    check(ask("example", Rtype::MAILB), &["NOTIMP"]);
    assert_eq!(answered(&example(), b"short", Transport::Udp).err(), Some(Why::NoQuery));
}

#[test]
fn nobody_is_an_authority_for_all_classes() {
    let of_any = |name, rtype| Query { class: Class::ANY, ..ask(name, rtype) };
    check(of_any("alias.example", Rtype::CNAME), &["NOERROR", "an alias.example 300 CNAME www.example."]);
    check(of_any("nowhere.example", Rtype::A), &["NXDOMAIN", SOA]);
}

#[test]
fn badvers_and_formerr() {
    let generation = example();
    let mut bytes = message(&ask("www.example", Rtype::A));
    let version = bytes.len() - 5;
    bytes[version] = 1;
    let answer = answered(&generation, &bytes, Transport::Udp).unwrap();
    assert_eq!((answer.opt_rcode(), answer.opt().unwrap().version()), (OptRcode::BADVERS, 0));
    bytes[5] = 2;
    let answer = answered(&generation, &bytes, Transport::Udp).unwrap();
    assert_eq!((answer.header().rcode(), answer.as_slice().len()), (Rcode::FORMERR, 12));
}

#[test]
fn an_answer_without_the_question_has_opt_where_the_query_has() {
    let generation = example();
    let check = |query: &[u8], rcode: Rcode, has_opt: bool| {
        let answer = answered(&generation, query, Transport::Udp).unwrap();
        assert_eq!((answer.header().rcode(), answer.header_counts().qdcount()), (rcode, 0));
        let opt = answer.opt().map(|opt| (opt.udp_payload_size(), opt.version(), opt.dnssec_ok()));
        assert_eq!(opt, has_opt.then_some((generation.settings.udp_payload_max, 0, true)), "{query:?}");
    };
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut query = message(&Query { dnssec_ok: true, ..ask("www.example", Rtype::A) });
        change(&mut query);
        query
    };
    let opt = with(&|_| {}).len() - 11;
    check(&with(&|query| query[2] = 4 << 3), Rcode::NOTIMP, true);
    check(&with(&|query| query[opt] = 1), Rcode::FORMERR, false);
    check(&with(&|query| query.truncate(opt + 5)), Rcode::FORMERR, false);
    let twice = |query: &mut Vec<u8>| {
        query[11] = 2;
        query.extend_from_within(opt..);
    };
    check(&with(&twice), Rcode::FORMERR, true);
    // RFC 6891 §7: where it is the record itself that is broken.
    let bad_option = |query: &mut Vec<u8>| {
        query[opt + 10] = 1;
        query.push(0);
    };
    check(&with(&bad_option), Rcode::FORMERR, true);
    let plain = Query { edns: None, ..ask("www.example", Rtype::A) };
    let mut plain = message(&plain);
    plain[2] = 4 << 3;
    check(&plain, Rcode::NOTIMP, false);
}

#[test]
fn what_does_not_fit_is_truncated() {
    let many: String = (0..60).map(|i| format!("big A 192.0.2.{i}\n")).collect();
    let zone = format!("{ZONE}{many}");
    let generation = generation(&[("example", &zone)], Settings::default());
    let size = |edns, transport| {
        let query = Query { edns, transport, ..ask("big.example", Rtype::A) };
        lines(&generation, &query).len()
    };
    assert_eq!(size(None, Transport::Udp), 1, "60 records do not fit 512 octets");
    assert_eq!(size(Some(4096), Transport::Udp), 61, "1,009 octets fit our 1,232");
    assert_eq!(size(Some(600), Transport::Udp), 1);
    assert_eq!(size(Some(100), Transport::Udp), 1, "less than 512 means 512");
    assert_eq!(size(None, Transport::Tcp), 61);
    let query = Query { edns: None, ..ask("big.example", Rtype::A) };
    assert_eq!(lines(&generation, &query)[0], "NOERROR aa tc");
}

#[test]
fn glue_that_does_not_fit_sets_tc_only_in_domain() {
    let servers = |below: &str| -> String {
        (0..14)
            .map(|i| {
                format!("cut NS n{i}.{below}\nn{i}.{below} A 192.0.2.{i}\nn{i}.{below} AAAA 2001:db8::{i}\n")
            })
            .collect()
    };
    for (below, expected) in [("cut", "NOERROR tc"), ("peer", "NOERROR")] {
        let zone = format!("{ZONE}{}", servers(below));
        let generation = generation(&[("example", &zone)], Settings::default());
        let lines = lines(&generation, &Query { edns: None, ..ask("a.cut.example", Rtype::A) });
        assert_eq!(lines[0], expected, "{below}");
        assert!(lines.len() > 15, "what fits is there");
    }
}

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
    let (mut text, signature) = (zone.to_string(), "AAAA".repeat(22));
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
    generation(&[("example", &text)], Settings::default())
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
    let query = Query { transport: Transport::Tcp, ..query };
    assert_eq!(lines(&signed(NSEC3_ZONE), &query).len(), 9);
}

#[test]
fn client_subnet_is_echoed_with_scope_0() {
    let mut bytes = message(&ask("www.example", Rtype::A));
    let end = bytes.len();
    bytes[end - 1] = 11;
    bytes.extend_from_slice(&[0, 8, 0, 7, 0, 1, 24, 0, 192, 0, 2]);
    let answer = answered(&example(), &bytes, Transport::Udp).unwrap();
    assert!(answer.as_slice().ends_with(&[0, 8, 0, 7, 0, 1, 24, 0, 192, 0, 2]));
}

#[test]
fn any_bytes_get_an_answer_that_fits_or_none() {
    use proptest::prelude::*;
    let generation = example();
    proptest!(|(bytes in proptest::collection::vec(any::<u8>(), 0..300), name in "(a|x|www|sub|d|wild|chain|\\*)(\\.(sub|d|wild|wc|target))?\\.example",
        rtype in 0u16..300, changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3), room in 0usize..1300)| {
        let name: &'static str = Box::leak(name.into_boxed_str());
        let mut asked = message(&ask(name, Rtype::from_int(rtype)));
        for (at, value) in changes {
            let at = at.index(asked.len());
            asked[at] = value;
        }
        for query in [&bytes, &asked] {
            let local = "127.0.0.1".parse().unwrap();
            let mut out = vec![0; room];
            let asked = Asked { query, client: local, local, transport: Transport::Udp };
            if let Reply::Send(length) = generation.answer(&asked, NOW, &mut fastrand::Rng::with_seed(1), &mut out) {
                prop_assert!(length <= room && length <= 1232);
                let read = Message::from_slice(&out[..length]).unwrap();
                prop_assert!(read.header().qr() && read.header().id() == u16::from_be_bytes([query[0], query[1]]));
                for record in read.iter() {
                    prop_assert!(record.is_ok());
                }
            }
        }
    });
}

#[test]
fn names_of_every_case_find_the_same() {
    let hash = example().hash;
    let name = |text: &str| Folded::read(&dns::name::from_text(text).unwrap()).unwrap();
    assert_eq!(hash.of(&name("WWW.EXAMPLE")), hash.of(&name("www.example")));
}

/// A query with these octets as its OPT record's data.
fn with_options(name: &'static str, rtype: Rtype, options: &[u8]) -> Vec<u8> {
    let mut bytes = message(&ask(name, rtype));
    let end = bytes.len();
    bytes[end - 2..].copy_from_slice(&(options.len() as u16).to_be_bytes());
    bytes.extend_from_slice(options);
    bytes
}

/// The options of an answer: code and data.
fn options_of(answer: &Message<Vec<u8>>) -> Vec<(u16, Vec<u8>)> {
    let Some(opt) = answer.opt() else { return vec![] };
    let options = opt.opt().iter::<domain::base::opt::UnknownOptData<_>>();
    options.map(|option| option.unwrap()).map(|o| (o.code().to_int(), o.data().to_vec())).collect()
}

/// The secrets of which cookies are made in these tests.
fn with_cookies(settings: Settings) -> Generation {
    let secrets = Arc::new(crate::cookies::Secrets::one([7; 16]));
    Generation { secrets, ..generation(&[("example", ZONE)], settings) }
}

fn cookie(data: &[u8]) -> Vec<u8> {
    [&[0, 10, 0, data.len() as u8], data].concat()
}

/// What is answered to www.example with a cookie: the code, whether there are addresses, and the cookie.
fn cookie_answer(generation: &Generation, data: &[u8], transport: Transport) -> (OptRcode, bool, Vec<u8>) {
    let query = with_options("www.example", Rtype::A, &cookie(data));
    let answer = answered(generation, &query, transport).unwrap();
    let given = options_of(&answer).into_iter().find(|(code, _)| *code == 10).map(|(_, data)| data);
    (answer.opt_rcode(), answer.header_counts().ancount() > 0, given.unwrap_or_default())
}

#[test]
fn cookies_are_given_and_checked() {
    let generation = with_cookies(Settings::default());
    let (rcode, has_records, given) = cookie_answer(&generation, &[1; 8], Transport::Udp);
    assert_eq!((rcode, has_records, given.len()), (OptRcode::NOERROR, true, 24));
    assert_eq!(given[..9], [1, 1, 1, 1, 1, 1, 1, 1, 1], "the client's part, and version 1");
    assert_eq!(cookie_answer(&generation, &given, Transport::Udp), (OptRcode::NOERROR, true, given.clone()));
    // A bad one is treated as none.
    let bad = [&given[..8], &[9; 16]].concat();
    assert_eq!(cookie_answer(&generation, &bad, Transport::Udp), (OptRcode::NOERROR, true, given.clone()));
    // Without secrets the option is unknown, but malformed all the same where it is.
    assert_eq!(cookie_answer(&example(), &given, Transport::Udp), (OptRcode::NOERROR, true, vec![]));
    for length in [0, 7, 9, 15, 41] {
        let query = with_options("www.example", Rtype::A, &cookie(&vec![1; length]));
        let answer = answered(&generation, &query, Transport::Udp).unwrap();
        assert_eq!(answer.header().rcode(), Rcode::FORMERR, "{length} octets");
    }
}

#[test]
fn cookies_may_be_required_of_those_who_know_them() {
    let generation = with_cookies(Settings { require_cookies: true, ..Settings::default() });
    let (rcode, has_records, given) = cookie_answer(&generation, &[1; 8], Transport::Udp);
    assert_eq!((rcode, has_records, given.len()), (OptRcode::BADCOOKIE, false, 24));
    assert_eq!(cookie_answer(&generation, &given, Transport::Udp).0, OptRcode::NOERROR);
    assert_eq!(cookie_answer(&generation, &[1; 8], Transport::Tcp).0, OptRcode::NOERROR);
    let mut bad = given.clone();
    bad[20] ^= 1;
    assert_eq!(cookie_answer(&generation, &bad, Transport::Udp), (OptRcode::BADCOOKIE, false, given.clone()));
    assert_eq!(cookie_answer(&generation, &bad, Transport::Tcp), (OptRcode::NOERROR, true, given));
    assert_eq!(lines(&generation, &ask("www.example", Rtype::A))[0], "NOERROR aa", "without a cookie");
}

#[test]
fn a_cookie_is_checked_without_a_question() {
    let alone = |data: &[u8]| {
        let option = cookie(data);
        let length = (option.len() as u16).to_be_bytes();
        let head = [0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 41, 4, 208, 0, 0, 0, 0];
        [&head[..], &length, &option].concat()
    };
    let generation = with_cookies(Settings::default());
    let ask = |data: &[u8]| {
        let answer = answered(&generation, &alone(data), Transport::Udp).unwrap();
        let counts = answer.header_counts();
        assert_eq!((counts.qdcount(), counts.ancount(), counts.nscount(), counts.arcount()), (0, 0, 0, 1));
        (answer.opt_rcode(), options_of(&answer).remove(0).1)
    };
    let (rcode, given) = ask(&[1; 8]);
    assert_eq!((rcode, given.len()), (OptRcode::NOERROR, 24));
    assert_eq!(ask(&given), (OptRcode::NOERROR, given.clone()));
    assert_eq!(ask(&[&given[..8], &[0; 8]].concat()), (OptRcode::BADCOOKIE, given));
    let off = answered(&example(), &alone(&[1; 8]), Transport::Udp).unwrap();
    assert_eq!((off.header().rcode(), off.as_slice().len()), (Rcode::FORMERR, 23), "a header and OPT");
}

#[test]
fn nsid_and_keepalive_are_told_to_those_who_ask() {
    let settings = Settings { nsid: Some("fra1".into()), ..Settings::default() };
    let named = generation(&[("example", ZONE)], settings);
    let ask = |generation: &Generation, options: &[u8], transport| {
        let query = with_options("www.example", Rtype::A, options);
        options_of(&answered(generation, &query, transport).unwrap())
    };
    let (nsid, keepalive) = ([0, 3, 0, 0], [0, 11, 0, 0]);
    assert_eq!(ask(&named, &[], Transport::Udp), []);
    assert_eq!(ask(&named, &nsid, Transport::Udp), [(3, b"fra1".to_vec())]);
    assert_eq!(ask(&example(), &nsid, Transport::Udp), []);
    assert_eq!(ask(&named, &keepalive, Transport::Udp), []);
    assert_eq!(ask(&named, &keepalive, Transport::Tcp), [(11, vec![0, 100])]);
    let both = [&nsid[..], &keepalive].concat();
    assert_eq!(ask(&named, &both, Transport::Tcp), [(3, b"fra1".to_vec()), (11, vec![0, 100])]);
    assert_eq!(ask(&named, &[0xff, 0xf0, 0, 3, 1, 2, 3], Transport::Udp), [], "an unknown option");
}

#[test]
fn errors_say_more_to_those_with_edns() {
    for (name, rtype, class, expected) in [
        ("other.test", Rtype::A, Class::IN, Some(20)),
        ("example", Rtype::AXFR, Class::IN, Some(18)),
        ("example", Rtype::MAILB, Class::IN, Some(21)),
        ("www.example", Rtype::A, Class::HS, Some(21)),
        ("authors.bind", Rtype::TXT, Class::CH, Some(21)),
        ("id.server", Rtype::TXT, Class::CH, Some(18)),
        ("www.example", Rtype::A, Class::IN, None),
        ("nowhere.example", Rtype::A, Class::IN, None),
    ] {
        for edns in [Some(1232), None] {
            let query = message(&Query { class, edns, ..ask(name, rtype) });
            let answer = answered(&example(), &query, Transport::Udp).unwrap();
            let told: Vec<u16> = options_of(&answer).iter().map(|(_, data)| u16::from(data[1])).collect();
            let expected: Vec<u16> = edns.and(expected).into_iter().collect();
            assert_eq!(told, expected, "{name} {rtype} {class} {edns:?}");
        }
    }
}

#[test]
fn a_server_tells_its_version_and_its_name_or_not() {
    let settings = Settings { nsid: Some("fra1".into()), ..Settings::default() };
    let open = generation(&[("example", ZONE)], settings);
    let shut = generation(&[("example", ZONE)], Settings { hide_version: true, ..Settings::default() });
    let version = format!("0 TXT \"Pointsman {}\"", env!("CARGO_PKG_VERSION"));
    for (name, text) in [
        ("version.bind", version.as_str()),
        ("VERSION.server", &version),
        ("id.server", "0 TXT \"fra1\""),
        ("hostname.bind", "0 TXT \"fra1\""),
    ] {
        for rtype in [Rtype::TXT, Rtype::ANY] {
            let query = Query { class: Class::CH, ..ask(name, rtype) };
            let told = lines(&open, &query);
            assert_eq!(told, ["NOERROR aa".into(), format!("an {name} {text}")]);
            assert_eq!(lines(&shut, &query), ["REFUSED"], "{name}");
        }
        let query = Query { class: Class::CH, ..ask(name, Rtype::A) };
        assert_eq!(lines(&open, &query), ["NOERROR aa"], "{name} has no addresses");
    }
    check(Query { class: Class::CH, ..ask("www.example", Rtype::TXT) }, &["REFUSED"]);
}

#[test]
fn any_is_answered_with_one_rrset() {
    assert_eq!(lines(&example(), &ask("example", Rtype::ANY)), lines(&example(), &ask("example", Rtype::NS)));
    check(ask("target.example", Rtype::ANY), &["NOERROR aa", SOA]);
    check(ask("alias.example", Rtype::ANY), &["NOERROR aa", "an alias.example 300 CNAME www.example."]);
}

/// The example with a policy at `www`, which has other records, too, and serves a delegation and the apex.
fn steered(is_up: bool) -> Generation {
    let mut book = Book::empty(5, Settings { minimal_responses: true, ..Settings::default() });
    let zone = format!("{ZONE}www TXT text\n@ NS www\nby NS www\nby NS ns\n");
    let policy = r#"{"servers": [{"address": "203.0.113.1"}], "when_all_down": "empty"}"#;
    for edit in [
        Edit::zone("example", zone.as_bytes(), None, &book.generation.hash).unwrap(),
        Edit::policy(Some("www.example"), "policy", policy.into(), None).unwrap(),
        Edit::SetServer { address: "203.0.113.1".parse().unwrap(), up: is_up },
    ] {
        book.apply(edit).unwrap();
    }
    book.generation
}

#[test]
fn addresses_that_a_policy_decides_come_along_with_nothing() {
    let generation = steered(true);
    let additional = |name, rtype| -> Vec<String> {
        lines(&generation, &ask(name, rtype)).into_iter().filter(|line| line.starts_with("ad ")).collect()
    };
    let of_ns = ["ad ns.example 300 A 192.0.2.53", "ad ns.example 300 AAAA 2001:db8::53"];
    assert_eq!(additional("x.by.example", Rtype::A), of_ns);
    assert_eq!(additional("example", Rtype::NS), of_ns);
}

#[test]
fn any_is_answered_by_what_a_policy_does_not_decide_where_it_has_no_server() {
    let of = |is_up, rtype| lines(&steered(is_up), &ask("www.example", rtype));
    assert_eq!(of(true, Rtype::ANY), ["NOERROR aa", "an www.example 360 A 203.0.113.1"]);
    assert_eq!(of(false, Rtype::ANY), ["NOERROR aa", "an www.example 300 TXT \"text\""]);
    assert_eq!(of(false, Rtype::A).len(), 2, "the zone's SOA record says that there is none");
}

/// A rate that two like answers use up.
fn limit() -> RateLimit {
    let limits = crate::rate_limit::Limits { per_second: 2, slip: 1, ..crate::rate_limit::Limits::default() };
    RateLimit::new(limits, [1; 16])
}

/// What becomes of a query, and its answer.
fn limited(generation: &Generation, limit: &RateLimit, query: &[u8]) -> (Verdict, Message<Vec<u8>>) {
    let local = "127.0.0.1".parse().unwrap();
    let asked = Asked { query, client: local, local, transport: Transport::Udp };
    let (mut out, mut rng) = (vec![0; 1232], fastrand::Rng::with_seed(1));
    let fast = Fast { limit: Some(limit), ..Fast::default() };
    let Answered { reply, verdict, .. } = generation.answer_counted(&asked, fast, NOW, &mut rng, &mut out);
    let Reply::Send(length) = reply else { panic!("slip 1 drops nothing") };
    (verdict, Message::from_octets(out[..length].to_vec()).unwrap())
}

#[test]
fn like_answers_share_a_rate() {
    let generation = example();
    for (third, all) in [
        (Verdict::Slip, ["www.example A", "www.example A", "wWw.example A"]),
        (Verdict::Within, ["www.example A", "www.example A", "www.example AAAA"]),
        (Verdict::Within, ["www.example A", "www.example A", "mail.example MX"]),
        (Verdict::Slip, ["a.example A", "b.example A", "c.e.example AAAA"]),
        (Verdict::Slip, ["a.wild.example TXT", "b.wild.example TXT", "c.d.wild.example TXT"]),
        (Verdict::Slip, ["a.sub.example A", "b.sub.example A", "c.sub.example AAAA"]),
        (Verdict::Within, ["a.sub.example A", "b.sub.example A", "c.peer.example AAAA"]),
        (Verdict::Slip, ["www.example AAAA", "www.example MX", "www.example TXT"]),
        (Verdict::Slip, ["other.test A", "more.test A", "example AXFR"]),
        (Verdict::Slip, ["x.wc.example A", "y.wc.example A", "z.wc.example A"]),
        (Verdict::Slip, ["q.d.example A", "r.d.example A", "s.d.example A"]),
    ] {
        let limit = limit();
        let verdicts = all.map(|asked| {
            let (name, rtype) = asked.split_once(' ').unwrap();
            limited(&generation, &limit, &message(&ask(name, rtype.parse().unwrap()))).0
        });
        assert_eq!(verdicts, [Verdict::Within, Verdict::Within, third], "{all:?}");
    }
}

#[test]
fn over_the_rate_a_client_is_told_how_to_prove_itself() {
    let (generation, limit) = (with_cookies(Settings::default()), limit());
    let plain = message(&ask("www.example", Rtype::A));
    limited(&generation, &limit, &plain);
    limited(&generation, &limit, &plain);
    let (verdict, answer) = limited(&generation, &limit, &plain);
    assert_eq!((verdict, answer.header().tc(), answer.header_counts().ancount()), (Verdict::Slip, true, 0));
    assert!(answer.as_slice().len() <= plain.len(), "no larger than the query");

    let new = with_options("www.example", Rtype::A, &cookie(&[1; 8]));
    let (verdict, answer) = limited(&generation, &limit, &new);
    let told = (verdict, answer.opt_rcode(), answer.header().tc(), answer.header_counts().ancount());
    assert_eq!(told, (Verdict::Slip, OptRcode::BADCOOKIE, false, 0));
    let given = options_of(&answer).remove(0).1;
    let proven = with_options("www.example", Rtype::A, &cookie(&given));
    for _ in 0..10 {
        let (verdict, answer) = limited(&generation, &limit, &proven);
        assert_eq!((verdict, answer.header_counts().ancount()), (Verdict::Exempt, 2));
    }

    let mut malformed = plain.clone();
    malformed[5] = 2;
    let verdicts = [0; 3].map(|_| limited(&generation, &limit, &malformed).0);
    assert_eq!(verdicts, [Verdict::Within, Verdict::Within, Verdict::Slip]);
}
