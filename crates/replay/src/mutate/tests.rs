//! Queries as lines, changed and written as lines again.

use std::io::Cursor;

use dns::Folded;
use proptest::prelude::*;

use super::*;
use crate::trace::{PORT, Trace, text};

const LINES: &str = "\
10.000000000 192.0.2.1:1 udp www.Example.com. A rd
11.000000000 192.0.2.1:2 udp www.example.org. AAAA rd,edns=4096,do
12.000000000 [2001:db8:1:2:3::9]:3 tcp . NS cd,edns=512
";

fn queries(lines: &str) -> Vec<Message> {
    let trace = Trace::read(Cursor::new(lines.to_owned().into_bytes()), PORT).expect("lines");
    trace.map(|message| message.expect("a line")).collect()
}

fn mutation(text: &str) -> Mutation {
    Mutation::parse(text, 7).unwrap_or_else(|what| panic!("{what}"))
}

/// The words of each line after its changes, from the name on, and what they came to.
fn changed(changes: &str) -> (Vec<String>, Tally) {
    let mutation = mutation(changes);
    let mut tally = Tally::new(&mutation);
    let lines = (0..).zip(queries(LINES)).map(|(index, message)| {
        let (message, outcome) = mutation.apply(index, message);
        tally.add(&outcome);
        let line = text::line(&message).expect("it is still a query");
        line.splitn(4, ' ').nth(3).expect("a name").to_owned()
    });
    (lines.collect(), tally)
}

#[test]
fn each_change_does_what_it_says() {
    let [first, second, third] =
        ["www.Example.com. A rd", "www.example.org. AAAA rd,edns=4096,do", ". NS cd,edns=512"];
    let cases: [(&str, [&str; 3], u64); 16] = [
        ("do=100%", ["www.Example.com. A rd,edns=1232,do", second, ". NS cd,edns=512,do"], 2),
        ("do=0%", [first, "www.example.org. AAAA rd,edns=4096", third], 1),
        ("rd=0%", ["www.Example.com. A -", "www.example.org. AAAA edns=4096,do", third], 2),
        ("rd=100%", [first, second, ". NS rd,cd,edns=512"], 1),
        (
            "ad=100%",
            ["www.Example.com. A rd,ad", "www.example.org. AAAA rd,ad,edns=4096,do", ". NS ad,cd,edns=512"],
            3,
        ),
        ("cd=0%", [first, second, ". NS edns=512"], 1),
        ("edns=512", ["www.Example.com. A rd,edns=512", "www.example.org. AAAA rd,edns=512,do", third], 2),
        ("edns=none", [first, "www.example.org. AAAA rd", ". NS cd"], 2),
        ("ecs=none", [first, second, third], 0),
        (
            "prefix=a.b",
            ["a.b.www.Example.com. A rd", "a.b.www.example.org. AAAA rd,edns=4096,do", "a.b. NS cd,edns=512"],
            3,
        ),
        ("suffix=example.COM:test", ["www.test. A rd", second, third], 1),
        (
            "suffix=.:test",
            [
                "www.Example.com.test. A rd",
                "www.example.org.test. AAAA rd,edns=4096,do",
                "test. NS cd,edns=512",
            ],
            3,
        ),
        ("suffix=xample.com:test", [first, second, third], 0),
        ("type=AAAA", ["www.Example.com. AAAA rd", second, ". AAAA cd,edns=512"], 2),
        ("type=AAAA@0%", [first, second, third], 0),
        (
            "edns=none,do=100%",
            [
                "www.Example.com. A rd,edns=1232,do",
                "www.example.org. AAAA rd,edns=1232,do",
                ". NS cd,edns=1232,do",
            ],
            3,
        ),
    ];
    for (changes, expected, count) in cases {
        let (lines, tally) = changed(changes);
        assert_eq!(lines, expected, "{changes}");
        assert_eq!((tally.queries, tally.changed), (3, count), "{changes}");
    }
}

#[test]
fn client_subnet_is_put_replaced_and_removed() {
    let subnets = |messages: &[Message]| -> Vec<Option<(IpAddr, u8)>> {
        messages
            .iter()
            .map(|message| {
                let mut name = Folded::root();
                let subnet = message.query(&mut name)?.edns?.client_subnet?;
                Some((subnet.client()?, subnet.source()))
            })
            .collect()
    };
    let apply = |changes: &str, messages: Vec<Message>| -> Vec<Message> {
        let mutation = mutation(changes);
        (0..).zip(messages).map(|(index, message)| mutation.apply(index, message).0).collect()
    };
    let network = |text: &str, length| Some((text.parse().expect("an address"), length));
    let (v4, v6) = (network("192.0.2.0", 24), network("2001:db8:1::", 56));
    let with = apply("ecs=client", queries(LINES));
    assert_eq!(subnets(&with), [v4, v4, v6]);
    let other = network("198.51.100.64", 26);
    assert_eq!(subnets(&apply("ecs=198.51.100.77/26", with.clone())), [other; 3]);
    let without = apply("ecs=none", with);
    assert_eq!(subnets(&without), [None; 3]);
    // The OPT that was added for it stays; the others are as they were.
    assert_eq!(without[1..], queries(LINES)[1..]);
}

#[test]
fn what_is_no_plain_query_is_left_alone() {
    let query = queries(LINES).remove(0);
    let mut response = query.clone();
    response.octets[2] |= 0x80;
    let mut update = query.clone();
    update.octets[2] |= 5 << 3;
    let mut signed = query.clone();
    signed.octets[11] = 1;
    signed.octets.extend_from_slice(b"\x01k\0\0\xfa\0\xff\0\0\0\0\0\0");
    let mutation = mutation("do=100%,unique");
    let mut tally = Tally::new(&mutation);
    for (message, expected) in
        [(response, Outcome::Response), (update, Outcome::Unreadable), (signed, Outcome::Records)]
    {
        let (after, outcome) = mutation.apply(0, message.clone());
        assert_eq!((after, &outcome), (message, &expected));
        tally.add(&outcome);
    }
    assert_eq!((tally.queries, tally.unreadable, tally.records), (2, 1, 1));
    assert_eq!(tally.counters().map(|counter| *counter).sum::<u64>(), 4);

    let long = format!("1 192.0.2.1:1 udp {} A -", ["a"; 121].join("."));
    let (after, outcome) = mutation.apply(0, queries(&long).remove(0));
    assert_eq!(outcome, Outcome::Query(vec![Effect::Changed { is_in: true }, Effect::TooLong]));
    assert!(after.query(&mut Folded::root()).is_some_and(|query| query.edns.is_some()));
}

#[test]
fn unique_names_are_unique_and_as_long_as_each_other() {
    let names = |seed: u64| -> Vec<Vec<u8>> {
        let mutation = Mutation::parse("unique", seed).expect("a change");
        let query = queries(LINES).remove(0);
        (0..5_000).map(|index| mutation.apply(index, query.clone()).0.octets[12..29].to_vec()).collect()
    };
    let mut labels = names(1);
    assert!(names(2).iter().all(|label| !labels.contains(label)), "another seed has other names");
    assert!(labels.iter().all(|label| label[0] == 16 && label[1..].iter().all(u8::is_ascii_hexdigit)));
    labels.sort_unstable();
    labels.dedup();
    assert_eq!(labels.len(), 5_000);
}

#[test]
fn a_client_is_in_a_share_with_all_of_its_queries() {
    let mutation = mutation("do=40%,type=MX@40%");
    let query = queries(LINES).remove(0);
    let (mut with, mut types) = (0, 0);
    for client in 0..500_u16 {
        let [high, low] = client.to_be_bytes();
        let of_client: Vec<Vec<Effect>> = (0..10)
            .map(|index| {
                let address = ([10, 0, high, low], 1_000 + index as u16).into();
                match mutation
                    .apply(u64::from(client) * 10 + index, Message { client: address, ..query.clone() })
                    .1
                {
                    Outcome::Query(effects) => effects,
                    other => panic!("{other:?}"),
                }
            })
            .collect();
        let count = of_client.iter().filter(|effects| effects[0].is_in()).count();
        assert!(count == 0 || count == 10, "{count} of 10");
        with += count / 10;
        types += of_client.iter().filter(|effects| effects[1].is_in()).count();
    }
    assert!((150..=250).contains(&with), "{with} of 500 clients");
    assert!((1_800..=2_200).contains(&types), "{types} of 5,000 queries");
}

#[test]
fn the_order_and_the_number_of_threads_make_no_difference() {
    let lines: String =
        (0..2_000).map(|n| format!("{n} 10.0.{}.{}:5 udp n{n}.example. A rd\n", n % 7, n % 90)).collect();
    let messages: Vec<(u64, Message)> = (0..).zip(queries(&lines)).collect();
    let mutation = mutation("do=50%,unique@30%,type=MX@20%,ecs=client@70%,suffix=example:test@50%");
    let apply = |(index, message): (u64, Message)| mutation.apply(index, message);
    let in_order: Vec<_> = messages.iter().cloned().map(apply).collect();
    let mut backwards: Vec<_> = messages.iter().rev().cloned().map(apply).collect();
    backwards.reverse();
    assert_eq!(in_order, backwards);
    let threads: Vec<_> = std::thread::scope(|scope| {
        let parts: Vec<_> = messages
            .chunks(300)
            .map(|part| scope.spawn(|| part.iter().cloned().map(apply).collect::<Vec<_>>()))
            .collect();
        parts.into_iter().flat_map(|part| part.join().expect("no panic")).collect()
    });
    assert_eq!(in_order, threads);
}

proptest! {
    #[test]
    fn whatever_is_changed_stays_a_query(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        line in 0..3_usize,
        index: u64,
    ) {
        let mut message = queries(LINES).remove(line);
        for (at, value) in changes {
            let at = at.index(message.octets.len());
            message.octets[at] = value;
        }
        let is_query = message.query(&mut Folded::root()).is_some();
        let list = "do=100%,edns=900@50%,ecs=client,unique,prefix=x,suffix=com:net,type=MX@50%,rd=50%";
        let (after, outcome) = mutation(list).apply(index, message.clone());
        prop_assert_eq!(after.query(&mut Folded::root()).is_some(), is_query);
        prop_assert_eq!(matches!(outcome, Outcome::Query(_) | Outcome::Records), is_query);
        if !matches!(outcome, Outcome::Query(_)) {
            prop_assert_eq!(after, message);
        }
    }
}

#[test]
fn a_label_more_is_put_in_front() {
    let labelled_lines = queries(LINES).into_iter().map(|mut message| {
        assert!(labelled(&mut message, "c7"));
        text::line(&message).expect("it is still a query").splitn(4, ' ').nth(3).expect("a name").to_owned()
    });
    assert_eq!(
        labelled_lines.collect::<Vec<_>>(),
        ["c7.www.Example.com. A rd", "c7.www.example.org. AAAA rd,edns=4096,do", "c7. NS cd,edns=512"]
    );
    let long =
        [[61; 1].as_slice(), &[b'b'; 61], &[&[63][..], &[b'a'; 63]].concat().repeat(3), b"\0"].concat();
    let mut message = queries(LINES).remove(0);
    message.octets = [&message.octets[..12], &long, b"\0\x01\0\x01"].concat();
    let before = message.clone();
    assert!(message.query(&mut Folded::root()).is_some());
    assert!(!labelled(&mut message, "c7") && message == before);
    message.octets.truncate(5);
    assert!(!labelled(&mut message, "c7"));
}
