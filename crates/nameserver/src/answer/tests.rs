//! Answers, looked at as text: `check` asks a zone and compares the sections.

use std::sync::Arc;
use std::time::Duration;

use dns::{Folded, Rtype};
use domain::base::iana::Class;
use domain::base::{Message, MessageBuilder, Name};
use domain::rdata::AllRecordData;

use super::*;
use crate::book::{Book, Condition, Edit};
use crate::fast::Fast;
use crate::generation::Settings;
use crate::rate_limit::RateLimit;
use crate::transfer::{Primaries, Primary, PrimaryZones};
use crate::zone::{View, Zone, read};

mod aliases;
mod options;
mod proofs;

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

/// A connection with ten seconds for the next query.
const TCP: Transport = Transport::Tcp { idle: Duration::from_secs(10) };

fn answered(generation: &Generation, query: &[u8], transport: Transport) -> Result<Message<Vec<u8>>, Why> {
    answered_at("127.0.0.1", generation, query, transport)
}

fn answered_at(
    local: &str,
    generation: &Generation,
    query: &[u8],
    transport: Transport,
) -> Result<Message<Vec<u8>>, Why> {
    let asked =
        Asked { query, client: "127.0.0.1".parse().unwrap(), local: local.parse().unwrap(), transport };
    let mut out = vec![0; 65_535];
    match generation.answer(&asked, NOW, &mut fastrand::Rng::with_seed(1), &mut out) {
        Reply::Send(length) => Ok(Message::from_octets(out[..length].to_vec()).unwrap()),
        Reply::Drop(why) => Err(why),
    }
}

/// The answer as lines: rcode and flags, then the records, `an`, `au` or `ad` before each.
fn lines(generation: &Generation, query: &Query) -> Vec<String> {
    lines_at("127.0.0.1", generation, query)
}

fn lines_at(local: &str, generation: &Generation, query: &Query) -> Vec<String> {
    let message = answered_at(local, generation, &message(query), query.transport).unwrap();
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
fn equal_records_are_one_whatever_the_case_of_a_name() {
    let text = "$TTL 300\n@ SOA ns hm 1 2 3 4 5\n@ NS ns\n@ NS NS\nns A 192.0.2.53\na CNAME ns\na CNAME nS\nt TXT a\nt TXT A\n";
    let zone = generation(&[("example", text)], Settings::default());
    let answers = |name, rtype| {
        lines(&zone, &ask(name, rtype)).into_iter().filter(|line| line.starts_with("an ")).collect::<Vec<_>>()
    };
    assert_eq!(answers("example", Rtype::NS), ["an example 300 NS ns.example."]);
    assert_eq!(answers("a.example", Rtype::CNAME), ["an a.example 300 CNAME ns.example."]);
    assert_eq!(answers("t.example", Rtype::TXT).len(), 2);
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
    let grandchild = generation(&[("example", ZONE), ("a.sub.example", child)], Settings::default());
    assert_eq!(
        lines(&grandchild, &ask("a.sub.example", Rtype::DS)),
        ["NOERROR aa", "au a.sub.example 1 SOA a.a.sub.example. b.a.sub.example. 1 1 1 1 1"]
    );
}

#[test]
fn signatures_that_cover_nothing_stand_beside_the_others() {
    let signature =
        |covered| format!("a RRSIG {covered} 13 2 60 20300101000000 20200101000000 1 example. AAAA\n");
    let zone =
        format!("$TTL 5\n@ SOA a b 1 1 1 1 1\n@ NS ns\na A 192.0.2.1\n{}{}", signature("A"), signature("MX"));
    let answered =
        lines(&generation(&[("example", &zone)], Settings::default()), &ask("a.example", Rtype::RRSIG));
    let of =
        |covered: &str| answered.iter().filter(|line| line.contains(&format!("RRSIG {covered} "))).count();
    assert_eq!((of("A"), of("MX")), (1, 1), "{answered:?}");
}

#[test]
fn what_is_not_ours_or_not_for_us() {
    check(ask("other.test", Rtype::A), &["REFUSED"]);
    check(Query { class: Class::CH, ..ask("www.example", Rtype::A) }, &["REFUSED"]);
    for rtype in [Rtype::AXFR, Rtype::IXFR] {
        check(ask("example", rtype), &["REFUSED"]);
        // No zone of ours, as over TCP, and as of NSD, Knot and BIND.
        check(ask("www.example", rtype), &["NOTAUTH"]);
        check(ask("other.test", rtype), &["NOTAUTH"]);
    }
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
    assert_eq!(size(None, TCP), 61);
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
            let client = "127.0.0.1".parse().unwrap();
            let mut out = vec![0; room];
            let asked = Asked { query, client, local: client, transport: Transport::Udp };
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

#[test]
fn any_is_answered_with_one_rrset() {
    assert_eq!(lines(&example(), &ask("example", Rtype::ANY)), lines(&example(), &ask("example", Rtype::NS)));
    check(ask("target.example", Rtype::ANY), &["NOERROR aa", SOA]);
    check(ask("alias.example", Rtype::ANY), &["NOERROR aa", "an alias.example 300 CNAME www.example."]);
}

#[test]
fn what_is_answered_depends_on_the_address_that_was_asked() {
    let child = ZONE.replace("@ NS ns\n", "@ NS ns\nonly A 192.0.2.7\nto CNAME www.example.\n");
    let mut generation = generation(&[("example", ZONE), ("sub.example", &child)], Settings::default());
    let wire = |name: &str| dns::name::from_text(name).unwrap();
    let view = |addresses: [&str; 2], zone| View {
        addresses: addresses.map(|address| address.parse().unwrap()).to_vec(),
        zones: vec![wire(zone)],
    };
    let views = [
        view(["192.0.2.53", "2001:db8::53"], "example"),
        view(["192.0.2.54", "2001:db8::54"], "sub.example"),
    ];
    let at = |local, name, rtype, generation: &Generation| lines_at(local, generation, &ask(name, rtype));
    let name = "only.sub.example";
    let answer = ["NOERROR aa", "an only.sub.example 300 A 192.0.2.7"];
    assert_eq!(at("192.0.2.53", name, Rtype::A, &generation), answer, "without views all are everywhere");
    generation.choose_views(views.into());
    for (parent, child) in [("192.0.2.53", "192.0.2.54"), ("2001:db8::53", "2001:db8::54")] {
        let referral = at(parent, name, Rtype::A, &generation);
        assert_eq!(referral[..2], ["NOERROR", "au sub.example 300 NS ns.sub.example."]);
        assert_eq!(at(child, name, Rtype::A, &generation), answer);
        assert_eq!(at(child, "www.example", Rtype::A, &generation), ["REFUSED"]);
        // An alias leads no further than to the zones of the view.
        let alias = ["NOERROR aa", "an to.sub.example 300 CNAME www.example."];
        assert_eq!(at(child, "to.sub.example", Rtype::A, &generation), alias);
        // The parent has the DS record, the child has none (RFC 4035 §3.1.4.1).
        assert!(at(parent, "sub.example", Rtype::DS, &generation)[1].contains(" DS 1 8 2 "));
        assert!(at(child, "sub.example", Rtype::DS, &generation)[1].starts_with("au sub.example 60 SOA"));
        assert_eq!(at(parent, "example", Rtype::AXFR, &generation), ["REFUSED"]);
        assert_eq!(at(child, "example", Rtype::AXFR, &generation), ["NOTAUTH"]);
    }
    assert_eq!(at("192.0.2.55", "example", Rtype::SOA, &generation), ["REFUSED"]);
    // What is to come from a primary is only awaited where it would be answered from.
    let zones = [wire("example"), wire("awaited")].into();
    let primaries = Primaries(vec![Primary { zones, ..Primary::default() }]);
    generation.primary_zones = Arc::new(PrimaryZones::new(&primaries, []));
    for (local, name, expected) in [
        ("192.0.2.55", "x.awaited", "SERVFAIL"),
        ("192.0.2.53", "awaited", "REFUSED"),
        ("192.0.2.55", "www.example", "REFUSED"),
    ] {
        assert_eq!(at(local, name, Rtype::A, &generation), [expected], "{local} {name}");
    }
}

/// The example with a policy at `www`, which has other records, too, and serves a delegation and the apex.
fn steered(is_up: bool) -> Generation {
    let mut book = Book::empty(5, Settings { minimal_responses: true, ..Settings::default() });
    let zone = format!("{ZONE}www TXT text\n@ NS www\nby NS www\nby NS ns\n");
    let policy = r#"{"servers": [{"address": "203.0.113.1"}], "when_all_down": "empty"}"#;
    for edit in [
        Edit::zone("example", zone.as_bytes(), Condition::Always, &book.generation.hash).unwrap(),
        Edit::policy(Some("www.example"), "policy", policy.into(), Condition::Always).unwrap(),
        Edit::SetServer { server: "203.0.113.1".parse().unwrap(), up: is_up },
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

#[test]
fn that_no_server_is_up_is_remembered_for_no_longer_than_the_policy_says() {
    let soa = |ttl: u32, regions: &str, name, rtype| {
        let mut book = Book::empty(5, Settings::default());
        let policy = format!(
            r#"{{"when_all_down": "empty", "servers": [{{"address": "203.0.113.1", "default": {{"ttl": {ttl}}}{regions}}}]}}"#
        );
        for edit in [
            Edit::zone("example", ZONE.as_bytes(), Condition::Always, &book.generation.hash).unwrap(),
            Edit::HaveRegions { names: vec!["eu".into()] },
            Edit::policy(Some("steered.example"), "policy", policy.into(), Condition::Always).unwrap(),
            Edit::SetServer { server: "203.0.113.1".parse().unwrap(), up: false },
        ] {
            book.apply(edit).unwrap();
        }
        let lines = lines(&book.generation, &ask(name, rtype));
        assert_eq!((lines.len(), &*lines[0]), (2, "NOERROR aa"), "{lines:?}");
        lines[1].clone()
    };
    let of = |ttl: u32| SOA.replacen("60", &ttl.to_string(), 1);
    let steered = "steered.example";
    assert_eq!(soa(5, "", steered, Rtype::A), of(5));
    assert_eq!(soa(0, "", steered, Rtype::A), of(0));
    assert_eq!(soa(61, "", steered, Rtype::A), SOA);
    // The answer holds for every client, so for those of the region, too.
    assert_eq!(soa(61, r#", "regions": {"eu": {"ttl": 7}}"#, steered, Rtype::A), of(7));
    // That there is no server of a family, and no other type, is as lasting as the zone.
    assert_eq!(soa(5, "", steered, Rtype::AAAA), SOA);
    assert_eq!(soa(5, "", steered, Rtype::TXT), SOA);
}
