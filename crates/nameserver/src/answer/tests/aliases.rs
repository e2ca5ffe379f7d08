//! Names that a policy makes aliases of others.

use super::*;
use crate::routed::First;

/// The example with a partition of two regions and these policies, by their names.
fn with(policies: &[(&str, &str)]) -> Book {
    let mut book = Book::empty(5, Settings { minimal_responses: true, ..Settings::default() });
    for edit in [
        Edit::zone("example", ZONE.as_bytes(), Condition::Always, &book.generation.hash).unwrap(),
        Edit::HaveRegions { names: vec!["europe".into(), "asia".into()] },
    ] {
        book.apply(edit).unwrap();
    }
    let text = "192.0.2.0/24,europe\n198.51.100.0/25,asia\n";
    let edit = Edit::partition("default", "p", text.into(), Condition::Always, book.regions.clone());
    book.apply(edit.unwrap()).unwrap();
    for (owner, policy) in policies {
        book.apply(Edit::policy(Some(owner), "policy", (*policy).into(), Condition::Always).unwrap())
            .unwrap();
    }
    book
}

/// What a client of client subnet is answered: the lines, the scope, and what is counted of it.
fn told(book: &Book, name: &str, rtype: Rtype, client: &str) -> (Vec<String>, u8, [Option<First>; 2]) {
    let mut builder = MessageBuilder::new_vec().question();
    builder.push((&name.parse::<Name<Vec<u8>>>().unwrap(), rtype)).unwrap();
    let mut builder = builder.additional();
    let subnet = domain::base::opt::ClientSubnet::new(32, 0, client.parse().unwrap());
    builder.opt(|opt| opt.push(&subnet)).unwrap();
    let query = builder.finish();
    let loopback: IpAddr = "127.0.0.1".parse().unwrap();
    let asked = Asked { query: &query, client: loopback, local: loopback, transport: TCP };
    let mut out = vec![0; 65_535];
    let (mut rng, fast) = (fastrand::Rng::with_seed(1), Fast::default());
    let answered = book.generation.answer_counted(&asked, fast, NOW, &mut rng, &mut out);
    let Reply::Send(length) = answered.reply else { panic!("{answered:?}") };
    let message = Message::from_octets(out[..length].to_vec()).unwrap();
    let lines = message.answer().unwrap().limit_to::<AllRecordData<_, _>>().map(|record| {
        let record = record.unwrap();
        format!("{} {} {} {}", record.owner(), record.ttl().as_secs(), record.rtype(), record.data())
    });
    let subnets = message.opt().unwrap();
    let subnet = subnets.opt().iter::<domain::base::opt::ClientSubnet>().next().unwrap().unwrap();
    let first = |routed: Option<Routed>| routed.and_then(|routed| routed.server);
    (lines.collect(), subnet.scope_prefix_len(), [first(answered.alias), first(answered.routed)])
}

const CDNS: &str = r#"{"servers": [
    {"cname": "WWW.cdn.test", "default": {"probability": 1, "ttl": 30}},
    {"cname": "www.example.", "default": {"probability": 0}, "regions": {"europe": {"ttl": 20}}},
    {"cname": "own.example.", "default": {"probability": 0}, "regions": {"asia": {}}}]}"#;

const OWN: &str = r#"{"servers": [{"address": "203.0.113.1", "regions": {"asia": {"ttl": 7}}}]}"#;

#[test]
fn the_alias_is_the_regions_and_is_followed_where_its_target_is_ours() {
    let book = with(&[("cdn.example", CDNS), ("own.example", OWN)]);
    let hash = |name: &str| {
        let wire = dns::name::folded_from_text(name).unwrap();
        Some(First::Cname(book.generation.hash.of(&Folded::read(&wire).unwrap())))
    };
    let (lines, scope, counted) = told(&book, "cdn.example", Rtype::AAAA, "203.0.113.9");
    assert_eq!((&*lines, scope), (&["cdn.example 30 CNAME www.cdn.test.".to_owned()][..], 5));
    assert_eq!(counted, [hash("www.cdn.test"), None]);

    let (lines, scope, counted) = told(&book, "cdn.example", Rtype::A, "192.0.2.9");
    let expected =
        ["cdn.example 20 CNAME www.example.", "www.example 300 A 192.0.2.1", "www.example 300 A 192.0.2.2"];
    assert_eq!((&*lines, scope), (&expected.map(str::to_owned)[..], 24));
    assert_eq!(counted, [hash("www.example"), None]);

    // Both decisions must hold for all in the scope.
    let (lines, scope, counted) = told(&book, "cdn.example", Rtype::A, "198.51.100.9");
    let expected = ["cdn.example 360 CNAME own.example.", "own.example 7 A 203.0.113.1"];
    assert_eq!((&*lines, scope), (&expected.map(str::to_owned)[..], 25));
    assert_eq!(counted, [hash("own.example"), Some(First::Address("203.0.113.1".parse().unwrap()))]);
}

#[test]
fn an_alias_is_the_same_whatever_is_asked_for() {
    let one = r#"{"servers": [{"cname": "alias.example"}]}"#;
    let book = with(&[("cdn.example", one), ("*.w.example", one)]);
    let of = |name, rtype| lines(&book.generation, &ask(name, rtype));
    for name in ["cdn.example", "x.y.w.example"] {
        let cname = format!("an {name} 360 CNAME alias.example.");
        for rtype in [Rtype::CNAME, Rtype::ANY] {
            assert_eq!(of(name, rtype), ["NOERROR aa", &cname], "{name} {rtype}");
        }
        let www = "an alias.example 300 CNAME www.example.";
        let addresses = ["an www.example 300 A 192.0.2.1", "an www.example 300 A 192.0.2.2"];
        assert_eq!(of(name, Rtype::A), [&["NOERROR aa", &cname, www], &addresses[..]].concat());
        let nodata = of(name, Rtype::MX);
        assert_eq!(nodata[..3], ["NOERROR aa".to_owned(), cname, www.to_owned()]);
        assert!(nodata[3].starts_with("au example 60 SOA") && nodata.len() == 4, "{nodata:?}");
    }
    assert!(of("w.example", Rtype::A)[1].starts_with("au "), "an empty non-terminal");
}

/// What answers to a static alias are is held against other servers' elsewhere.
#[test]
fn a_policy_of_one_alias_answers_as_a_record_does() {
    for target in
        ["alias.example", "nowhere.example", "x.sub.example", "x.d.example", "loop1.example", "a.test"]
    {
        let policy = format!(r#"{{"servers": [{{"cname": "{target}", "default": {{"ttl": 300}}}}]}}"#);
        let steered = with(&[("cdn.example", &policy), ("*.w.example", &policy)]).generation;
        let zone = format!("{ZONE}cdn CNAME {target}.\n*.w CNAME {target}.\n");
        let settings = Settings { minimal_responses: true, ..Settings::default() };
        let fixed = generation(&[("example", &zone)], settings);
        for name in ["cdn.example", "x.cdn.example", "x.w.example", "w.example"] {
            for rtype in [Rtype::A, Rtype::AAAA, Rtype::TXT, Rtype::NS, Rtype::DS, Rtype::CNAME, Rtype::ANY] {
                let query = ask(name, rtype);
                assert_eq!(lines(&steered, &query), lines(&fixed, &query), "{name} {rtype}, {target}");
            }
        }
    }
}

#[test]
fn a_target_that_is_not_there_is_an_error_only_where_it_is_ours() {
    let of = |target: &str| {
        let policy = format!(r#"{{"servers": [{{"cname": "{target}"}}]}}"#);
        lines(&with(&[("cdn.example", &policy)]).generation, &ask("cdn.example", Rtype::A))
    };
    assert_eq!(of("nowhere.other"), ["NOERROR aa", "an cdn.example 360 CNAME nowhere.other."]);
    let missing = of("nowhere.example");
    assert_eq!(missing[..2], ["NXDOMAIN aa", "an cdn.example 360 CNAME nowhere.example."]);
    assert!(missing[2].starts_with("au example 60 SOA"), "{missing:?}");
}

#[test]
fn who_is_down_is_no_alias() {
    let policy = r#"{"when_all_down": "empty", "servers": [
        {"cname": "a.other", "default": {"probability": 1, "ttl": 5}},
        {"cname": "b.other", "default": {"probability": 0}}]}"#;
    let mut book = with(&[("cdn.example", policy)]);
    let mut seen = Vec::new();
    for server in ["a.other.", "b.other."] {
        book.apply(Edit::SetServer { server: server.parse().unwrap(), up: false }).unwrap();
        seen.push(lines(&book.generation, &ask("cdn.example", Rtype::TXT)));
    }
    assert_eq!(seen[0], ["NOERROR aa", "an cdn.example 360 CNAME b.other."]);
    assert!(seen[1].len() == 2 && seen[1][1].starts_with("au example 5 SOA"), "{seen:?}");
    let unknown = Edit::SetServer { server: "c.other.".parse().unwrap(), up: false };
    assert!(book.apply(unknown).is_err());
}
