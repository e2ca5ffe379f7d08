//! What a query says of its asker, and what that changes: EDNS options, cookies, rates.

use super::*;

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
    assert_eq!(cookie_answer(&generation, &[1; 8], TCP).0, OptRcode::NOERROR);
    let mut bad = given.clone();
    bad[20] ^= 1;
    assert_eq!(cookie_answer(&generation, &bad, Transport::Udp), (OptRcode::BADCOOKIE, false, given.clone()));
    assert_eq!(cookie_answer(&generation, &bad, TCP), (OptRcode::NOERROR, true, given));
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
    assert_eq!(ask(&named, &keepalive, TCP), [(11, vec![0, 100])]);
    let both = [&nsid[..], &keepalive].concat();
    assert_eq!(ask(&named, &both, TCP), [(3, b"fra1".to_vec()), (11, vec![0, 100])]);
    assert_eq!(ask(&named, &[0xff, 0xf0, 0, 3, 1, 2, 3], Transport::Udp), [], "an unknown option");
}

#[test]
fn errors_say_more_to_those_with_edns() {
    for (name, rtype, class, expected) in [
        ("other.test", Rtype::A, Class::IN, Some(20)),
        ("example", Rtype::AXFR, Class::IN, Some(18)),
        ("www.example", Rtype::IXFR, Class::IN, Some(20)),
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

/// A rate that two like answers use up.
fn limit() -> RateLimit {
    let limits = crate::rate_limit::Limits { per_second: 2, slip: 1, ..crate::rate_limit::Limits::default() };
    RateLimit::new(limits, [1; 16])
}

/// What becomes of a query, and its answer.
fn limited(generation: &Generation, limit: &RateLimit, query: &[u8]) -> (Verdict, Message<Vec<u8>>) {
    let client = "127.0.0.1".parse().unwrap();
    let asked = Asked { query, client, local: client, transport: Transport::Udp };
    let (mut out, mut rng) = (vec![0; 1232], fastrand::Rng::with_seed(1));
    let fast = Fast { limit: Some(limit), ..Fast::default() };
    let Answered { reply, verdict, .. } = generation.answer_counted(&asked, fast, NOW, &mut rng, &mut out);
    let Reply::Send(length) = reply else { panic!("slip 1 drops nothing") };
    (verdict, Message::from_octets(out[..length].to_vec()).unwrap())
}

/// What becomes of three queries at a rate that two like answers use up.
fn verdicts(generation: &Generation, all: [&'static str; 3]) -> [Verdict; 3] {
    let limit = limit();
    all.map(|asked| {
        let (name, rtype) = asked.split_once(' ').unwrap();
        limited(generation, &limit, &message(&ask(name, rtype.parse().unwrap()))).0
    })
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
        // An alias is the same answer for each type.
        (Verdict::Slip, ["alias.example A", "alias.example MX", "alias.example CNAME"]),
        (Verdict::Slip, ["x.wc.example A", "y.wc.example MX", "z.wc.example CNAME"]),
        (Verdict::Slip, ["q.d.example A", "r.d.example MX", "s.d.example CNAME"]),
    ] {
        assert_eq!(verdicts(&generation, all), [Verdict::Within, Verdict::Within, third], "{all:?}");
    }
}

#[test]
fn what_stands_in_for_many_names_has_a_rate_of_its_own() {
    let text = "$TTL 300\n@ SOA ns hm 1 2 3 4 5\n@ NS ns\nns A 192.0.2.53\n@ A 192.0.2.1\n* A 192.0.2.2\nd DNAME other\n";
    let generation = generation(&[("example", text)], Settings::default());
    for (third, all) in [
        (Verdict::Slip, ["a.example A", "b.example A", "c.example A"]),
        (Verdict::Within, ["a.example A", "b.example A", "example A"]),
        (Verdict::Within, ["a.example AAAA", "b.example AAAA", "example AAAA"]),
        (Verdict::Within, ["a.d.example DNAME", "b.d.example DNAME", "d.example DNAME"]),
    ] {
        assert_eq!(verdicts(&generation, all), [Verdict::Within, Verdict::Within, third], "{all:?}");
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
