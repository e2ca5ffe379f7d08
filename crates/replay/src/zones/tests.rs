//! What single responses show, and what several make together.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dns::{Class, Rtype};
use domain::base::iana::Rcode;
use domain::base::message_builder::MessageBuilder;
use domain::base::name::Name;
use domain::zonefile::inplace::{Entry, Zonefile};
use proptest::prelude::*;

use super::{LeftOut, Made, MadeUp, Seen};
use crate::trace::{Message, Transport};

const ROOT: &str = "198.41.0.4";
const TEST: &str = "192.0.2.1";
const EXAMPLE: &str = "192.0.2.2";

/// Flags of a header.
#[derive(Clone, Copy, PartialEq)]
enum Flag {
    Authoritative,
    Referral,
    NoName,
    Refused,
    Truncated,
}

/// A response of a server to `question`, such as `www.example. A`, with the records of answer, authority and additional
/// section as lines of a master file.
fn response(server: &str, flag: Flag, question: &str, [answer, authority, additional]: [&str; 3]) -> Message {
    let mut message = MessageBuilder::new_vec();
    let header = message.header_mut();
    header.set_qr(true);
    header.set_aa(matches!(flag, Flag::Authoritative | Flag::NoName));
    header.set_tc(flag == Flag::Truncated);
    header.set_rcode(match flag {
        Flag::NoName => Rcode::NXDOMAIN,
        Flag::Refused => Rcode::REFUSED,
        _ => Rcode::NOERROR,
    });
    let (name, rtype) = question.split_once(' ').expect("a name and a type");
    let (name, rtype): (Name<Vec<u8>>, Rtype) =
        (name.parse().expect("a name"), rtype.parse().expect("a type"));
    let mut message = message.question();
    message.push((name, rtype)).expect("there is room");
    let mut message = message.answer();
    records(answer).into_iter().for_each(|record| message.push(record).expect("there is room"));
    let mut message = message.authority();
    records(authority).into_iter().for_each(|record| message.push(record).expect("there is room"));
    let mut message = message.additional();
    records(additional).into_iter().for_each(|record| message.push(record).expect("there is room"));
    heard(server, message.finish())
}

fn heard(server: &str, octets: Vec<u8>) -> Message {
    let server: IpAddr = server.parse().expect("an address");
    Message {
        time: Duration::ZERO,
        client: SocketAddr::from(([203, 0, 113, 1], 5353)),
        server: SocketAddr::new(server, 53),
        transport: Transport::Udp,
        octets,
    }
}

fn records(lines: &str) -> Vec<domain::zonefile::inplace::ScannedRecord> {
    let mut file = Zonefile::from(lines);
    file.set_origin(Name::root());
    file.set_default_class(Class::IN);
    let mut records = Vec::new();
    while let Some(Entry::Record(record)) = file.next_entry().expect("records") {
        records.push(record);
    }
    records
}

fn seen(responses: &[Message]) -> Seen {
    let mut seen = Seen::default();
    responses.iter().for_each(|response| seen.add(response));
    seen
}

/// The zones, a line each with `owner type` of all RRsets in the order of letters, then which servers have which.
fn told(made: &Made) -> String {
    let mut text = String::new();
    for zone in &made.zones {
        let sets = zone
            .records
            .iter()
            .map(|record| format!("{} {}", dns::name::to_text(&record.owner), record.rtype));
        let sets: Vec<String> = sets.collect::<BTreeSet<_>>().into_iter().collect();
        text += &format!("{}: {}\n", dns::name::to_text(&zone.origin), sets.join(", "));
    }
    for servers in &made.servers {
        let zones: Vec<String> = servers.zones.iter().map(|zone| dns::name::to_text(zone)).collect();
        let addresses: Vec<String> = servers.addresses.iter().map(IpAddr::to_string).collect();
        text += &format!("{}: {}\n", addresses.join(" "), zones.join(" "));
    }
    text
}

/// A resolver's way from the root to www.example.test, each step at another server.
fn way_down() -> Vec<Message> {
    vec![
        response(
            ROOT,
            Flag::Referral,
            "www.example.test. A",
            ["", "test. 172800 NS ns.test.\n", "ns.test. 172800 A 192.0.2.1\n"],
        ),
        response(
            TEST,
            Flag::Referral,
            "www.example.test. A",
            ["", "example.test. 3600 NS ns.example.test.\n", "ns.example.test. 3600 A 192.0.2.2\n"],
        ),
        response(
            EXAMPLE,
            Flag::Authoritative,
            "www.example.test. A",
            ["www.example.test. 60 A 198.51.100.7\n", "example.test. 60 NS ns.example.test.\n", ""],
        ),
        response(
            EXAMPLE,
            Flag::NoName,
            "w.example.test. A",
            ["", "example.test. 60 SOA ns.example.test. h.example.test. 7 1 1 1 1\n", ""],
        ),
    ]
}

#[test]
fn a_zone_is_what_its_servers_say_of_it() {
    let seen = seen(&way_down());
    let counts = seen.counts;
    let made = Made::of(seen, false);
    let expected = "\
.: . NS, . SOA, made-up-ns. A, ns.test. A, test. NS
test.: example.test. NS, ns.example.test. A, test. NS, test. SOA
example.test.: example.test. NS, example.test. SOA, www.example.test. A
198.41.0.4: .
192.0.2.1: test.
192.0.2.2: example.test.
";
    assert_eq!(told(&made), expected);
    // The name servers of test are known from above; those of the root from nowhere.
    assert_eq!(made.made_up, MadeUp { soa: 2, name_servers: 2, ..MadeUp::default() });
    assert_eq!((counts.responses, counts.differing, made.outside), (4, 0, 0));
}

#[test]
fn a_resolver_finds_its_way_where_steps_are_missing() {
    // The last step is all that was seen, as of a resolver that knew the others.
    let made = Made::of(seen(&way_down()[2..]), true);
    let text = told(&made);
    let expected = "\
.: . NS, . SOA, example.test. NS, made-up-ns. A, made-up-ns. AAAA, made-up-ns.example.test. A
example.test.: example.test. NS, example.test. SOA, made-up-ns.example.test. A, www.example.test. A
";
    assert_eq!(&text[..expected.len()], expected, "{text}");
    // No response has an address of ns.example.test, so that only a name server that is made up can be found.
    assert!(text.contains("192.0.2.2: example.test.\n"), "{text}");
    assert!(
        text.contains("192.33.4.12") && text.contains(": .\n"),
        "the root is where resolvers look for it: {text}"
    );
    let expected = MadeUp { soa: 1, name_servers: 1, zones: 1, delegations: 1, names: 0 };
    assert_eq!(made.made_up, expected);

    // A step between two is made up where both sides are known.
    let [root, _, last, _] = <[Message; 4]>::try_from(way_down()).expect("four");
    let made = Made::of(seen(&[root, last]), true);
    let text = told(&made);
    assert!(
        text.contains(
            "\ntest.: example.test. NS, made-up-ns.example.test. A, ns.test. A, test. NS, test. SOA\n"
        ),
        "{text}"
    );
    assert!(text.contains("192.0.2.1: test.\n"), "{text}");
}

#[test]
fn addresses_of_name_servers_are_where_a_resolver_looks_for_them() {
    let elsewhere = response(
        TEST,
        Flag::Referral,
        "www.example.test. A",
        ["", "example.test. 60 NS ns.host.net.\n", "ns.host.net. 60 A 192.0.2.2\n"],
    );
    let root = way_down().remove(0);
    let www = ["www.example.test. 60 A 198.51.100.7\n", "", ""];
    let answer = response(EXAMPLE, Flag::Authoritative, "www.example.test. A", www);
    let text = told(&Made::of(seen(&[root.clone(), elsewhere.clone(), answer.clone()]), true));
    // Nobody was seen to have net: the root tells the address itself.
    assert!(text.starts_with(".: . NS, . SOA, made-up-ns. A, ns.host.net. A, ns.test. A"), "{text}");
    // Who delegates net sends a resolver there.
    let net = ["", "net. 60 NS ns.net.\n", "ns.net. 60 A 192.0.2.9\n"];
    let net = response(ROOT, Flag::Referral, "ns.host.net. A", net);
    let text = told(&Made::of(seen(&[root, net, elsewhere, answer]), true));
    assert!(text.contains("\nnet.: net. NS, net. SOA, ns.host.net. A, ns.net. A\n"), "{text}");
    assert!(text.contains("192.0.2.9: net.\n"), "{text}");
}

#[test]
fn what_is_delegated_is_its_servers_own() {
    // One server has both: what it answers below the cut is the child's, the DS record the parent's.
    let made = Made::of(
        seen(&[
            response(TEST, Flag::Referral, "x.other.test. A", ["", "other.test. 60 NS ns.other.test.\n", ""]),
            response(TEST, Flag::Referral, "x.sub.test. A", ["", "sub.test. 60 NS ns.test.\n", ""]),
            response(TEST, Flag::Authoritative, "sub.test. DS", ["sub.test. 60 DS 1 8 2 00\n", "", ""]),
            response(
                TEST,
                Flag::Authoritative,
                "www.sub.test. A",
                ["www.sub.test. 60 A 192.0.2.9\n", "", ""],
            ),
            response(TEST, Flag::NoName, "n.test. A", ["", "test. 60 SOA . . 1 1 1 1 1\n", ""]),
            // Where the alias leads, this server has nothing to say, whatever it says.
            response(
                TEST,
                Flag::Authoritative,
                "alias.test. A",
                ["alias.test. 60 CNAME a.elsewhere.\na.elsewhere. 60 A 192.0.2.3\n", "", ""],
            ),
        ]),
        false,
    );
    let expected = "\
test.: alias.test. CNAME, made-up-ns.test. A, other.test. NS, sub.test. DS, sub.test. NS, test. NS, test. SOA
sub.test.: sub.test. NS, sub.test. SOA, www.sub.test. A
192.0.2.1: sub.test. test.
";
    assert_eq!(told(&made), expected);
    assert_eq!(made.outside, 1);
}

#[test]
fn what_was_made_for_an_answer_is_taken_back() {
    let signature = |labels: u8| format!("A 8 {labels} 60 20300101000000 20200101000000 1 test. AAAA\n");
    let wild = format!("a.b.w.test. 60 A 192.0.2.1\na.b.w.test. 60 RRSIG {}", signature(2));
    let made = Made::of(
        seen(&[
            response(TEST, Flag::Authoritative, "a.b.w.test. A", [&wild, "", ""]),
            response(
                TEST,
                Flag::Authoritative,
                "x.d.test. A",
                [
                    "d.test. 60 DNAME e.test.\nx.d.test. 60 CNAME x.e.test.\nx.e.test. 60 A 192.0.2.4\n",
                    "",
                    "",
                ],
            ),
            // A signature that nothing belongs to, or that has more labels than its owner, proves nothing.
            response(
                TEST,
                Flag::Authoritative,
                "s.test. RRSIG",
                [&format!("s.test. 60 RRSIG {}", signature(2)), "", ""],
            ),
            response(
                TEST,
                Flag::Authoritative,
                "t.test. RRSIG",
                [&format!("t.test. 60 RRSIG {}", signature(9)), "", ""],
            ),
        ]),
        false,
    );
    let expected = "test.: *.w.test. A, *.w.test. RRSIG, d.test. DNAME, made-up-ns.test. A, test. NS, test. SOA, x.e.test. A\n";
    let text = told(&made);
    assert_eq!(&text[..expected.len().min(text.len())], expected, "{text}");
}

#[test]
fn names_are_there_though_no_record_of_them_was_seen() {
    let none =
        |name: &str| response(TEST, Flag::Authoritative, name, ["", "test. 60 SOA . . 1 1 1 1 1\n", ""]);
    let made = Made::of(
        seen(&[
            none("bare.test. A"),
            none("above.test. A"),
            none("a.wild.test. A"),
            none("x.cut.test. A"),
            none("cut.test. DS"),
            response(
                TEST,
                Flag::Authoritative,
                "x.above.test. A",
                ["x.above.test. 60 A 192.0.2.1\n", "", ""],
            ),
            response(TEST, Flag::Authoritative, "*.wild.test. TXT", ["*.wild.test. 60 TXT a\n", "", ""]),
            response(TEST, Flag::Referral, "y.cut.test. A", ["", "cut.test. 60 NS ns.elsewhere.\n", ""]),
        ]),
        false,
    );
    let placeholders = made.zones[0].records.iter().filter(|record| record.rtype == Rtype::from_int(65_280));
    let placeholders: Vec<String> = placeholders.map(|record| dns::name::to_text(&record.owner)).collect();
    assert_eq!(placeholders, ["bare.test."]);
    assert_eq!(made.made_up.names, 1);
    assert!(made.zones[0].master().contains("bare.test. 60 IN TYPE65280 \\# 0 \n"));
}

#[test]
fn the_first_answer_counts_and_the_one_with_the_most_authority() {
    let answered = |address: &str| {
        let answer = format!("www.test. 60 A {address}\n");
        response(
            TEST,
            Flag::Authoritative,
            "www.test. A",
            [&answer, "test. 60 NS ns.test.\n", "ns.test. 60 A 192.0.2.1\n"],
        )
    };
    let glue = response(TEST, Flag::Authoritative, "ns.test. A", ["ns.test. 9 A 192.0.2.8\n", "", ""]);
    let seen = seen(&[answered("192.0.2.5"), answered("192.0.2.6"), answered("192.0.2.5"), glue]);
    assert_eq!(seen.counts.differing, 1);
    let made = Made::of(seen, false);
    let addresses = made.zones[0].records.iter().filter(|record| record.rtype == Rtype::A);
    let addresses: Vec<(u32, &[u8])> = addresses.map(|record| (record.ttl, &record.data[..])).collect();
    assert_eq!(addresses, [(9, &[192, 0, 2, 8][..]), (60, &[192, 0, 2, 5])]);
}

#[test]
fn what_shows_no_zone_is_left_out_and_counted() {
    let www = "www.test. 60 A 192.0.2.5\n";
    let mut other_class = response(TEST, Flag::Authoritative, "www.test. A", ["", "", ""]);
    *other_class.octets.last_mut().expect("a question") = 3;
    let mut update = response(TEST, Flag::Authoritative, "www.test. A", [www, "", ""]);
    update.octets[2] |= 5 << 3;
    let mut cut = response(TEST, Flag::Authoritative, "www.test. A", [www, "", ""]);
    cut.octets.pop();
    let mut query = response(TEST, Flag::Authoritative, "www.test. A", [www, "", ""]);
    query.octets[2] &= 0x7f;
    let seen = seen(&[
        response(TEST, Flag::Refused, "www.test. A", ["", "", ""]),
        response(TEST, Flag::Truncated, "www.test. A", [www, "", ""]),
        // As of a resolver, and of a server that knows nothing.
        response(TEST, Flag::Referral, "www.test. A", [www, "", ""]),
        response(TEST, Flag::Referral, "www.test. A", ["", "", ""]),
        other_class,
        update,
        cut,
        query,
    ]);
    let left_out: Vec<(&str, u64)> = seen.counts.left_out().map(|(why, count)| (why.name(), count)).collect();
    let expected =
        [("failed", 1), ("not_authoritative", 2), ("other", 2), ("truncated", 1), ("unreadable", 1)];
    assert_eq!((left_out.as_slice(), seen.counts.responses), (&expected[..], 7));
    assert!(Made::of(seen, true).zones.is_empty());
    for (at, why) in LeftOut::ALL.into_iter().enumerate() {
        assert_eq!(why as usize, at);
    }
}

proptest! {
    /// Names, types and flags that often meet, in any order.
    #[test]
    fn zones_are_made_of_any_responses(
        given in prop::collection::vec((0..4u8, 0..5usize, 0..6usize, 0..6usize, 0..6usize), 0..12),
    ) {
        let flags = [Flag::Authoritative, Flag::Referral, Flag::NoName, Flag::Refused, Flag::Truncated];
        let lines = [
            "",
            "a.b. 5 NS a.b.\nb. 5 NS c.\n",
            "b. 5 SOA . . 1 1 1 1 1\na.b. 5 DS 1 8 2 00\n",
            "*.b. 5 A 192.0.2.1\n. 5 NS b.\nc. 5 CNAME a.b.\n",
            "a.b. 5 CNAME c.\nc. 5 CNAME a.b.\nb. 5 DNAME b.c.\n",
            "a.a.b. 5 A 192.0.2.1\na.a.b. 5 RRSIG A 8 1 5 20300101000000 20200101000000 1 b. AAAA\n",
        ];
        let questions = ["a.b. A", "b. NS", ". SOA", "a.a.b. DS", "c. A"];
        let responses: Vec<Message> = given
            .into_iter()
            .map(|(server, kind, answer, authority, additional)| {
                let (server, sections) = (format!("192.0.2.{server}"), [lines[answer], lines[authority], lines[additional]]);
                response(&server, flags[kind], questions[(answer + kind) % 5], sections)
            })
            .collect();
        for hierarchy in [false, true] {
            let made = Made::of(seen(&responses), hierarchy);
            for zone in &made.zones {
                prop_assert_eq!((&zone.records[0].owner, zone.records[0].rtype), (&zone.origin, Rtype::SOA));
                prop_assert!(zone.records.iter().any(|record| record.owner == zone.origin && record.rtype == Rtype::NS));
                prop_assert!(zone.records.iter().all(|record| dns::name::is_within(&record.owner, &zone.origin)));
                prop_assert_eq!(zone.master().lines().count(), zone.records.len());
            }
            // From the root on, each zone is delegated by the one above it.
            if hierarchy && let Some(first) = made.zones.first() {
                prop_assert_eq!(&*first.origin, &[0][..]);
                for zone in &made.zones[1..] {
                    let is_way = |record: &super::Record| record.owner == zone.origin && record.rtype == Rtype::NS;
                    let above = made.zones.iter().filter(|above| above.origin != zone.origin);
                    prop_assert!(above.flat_map(|above| &above.records).any(is_way));
                }
            }
        }
    }

    #[test]
    fn octets_of_any_kind_are_taken(octets in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut seen = Seen::default();
        seen.add(&heard(TEST, octets));
        Made::of(seen, true);
    }
}
