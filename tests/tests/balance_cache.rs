//! Answers that `pointsman balance` gives again: to whom, for how long, and when no back end answers any more.

use std::time::Instant;

use tests::balancing::Balancing;
use tests::folder::Folder;
use tests::peer::{Peer, free_address};
use tests::program::{PROGRAM_WAIT, Program};
use tests::query::{Answer, Question, rest};
use tests::secondary::Make;

const COOKIE: u16 = 10;
const EXTENDED_ERROR: u16 = 15;

/// BIND with a zone.
fn bind(folder: &Folder) -> Peer {
    let zone = folder.write(
        "example.zone",
        "$TTL 3600\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\nwww A 192.0.2.1\na.www A 192.0.2.2\n\
         short 1 A 192.0.2.3\nnever 0 A 192.0.2.4\n",
    );
    let zones = format!("zone \"example\" {{ type primary; file \"{zone}\"; }};\n");
    Make::Bind.start(folder, free_address(), &zones)
}

fn start(bind: &Peer, more: &[&str]) -> Balancing {
    let with_cache = ["--cache", "1 MiB", "--workers", "1", "--http", "127.0.0.1:0"];
    Balancing::start(&[bind.dns], &[&with_cache[..], more].concat())
}

fn hits_and_misses(balancing: &Balancing) -> [f64; 2] {
    ["hits", "misses"].map(|what| balancing.metric(&format!("pointsman_balance_cache_{what}_total")))
}

/// An answer without what tells how old it is.
fn ageless(answer: Answer) -> Answer {
    let without_ttl = |records: Vec<String>| {
        let ageless = |record: String| {
            let mut words: Vec<&str> = record.split(' ').collect();
            words.remove(1);
            words.join(" ")
        };
        records.into_iter().map(ageless).collect()
    };
    let (records, authority) = (without_ttl(answer.answer), without_ttl(answer.authority));
    Answer { answer: records, authority, ..answer }
}

#[test]
fn who_asks_the_same_has_the_same_answer_over_any_transport() {
    let folder = Folder::new();
    let bind = bind(&folder);
    let balancing = start(&bind, &[]);
    let mut expected = [0.0; 2];
    for (name, rtype) in [("www.example", "A"), ("no.example", "A"), ("www.example", "TXT")] {
        for question in [
            Question::new(name, rtype),
            Question::new(name, rtype).edns(),
            Question::new(name, rtype).dnssec_ok(),
            Question::new(name, rtype).ad(),
            Question::new(name, rtype).subnet("192.0.2.0/24"),
        ] {
            let direct = ageless(question.udp(bind.dns));
            assert_eq!(ageless(question.udp(balancing.dns)), direct);
            assert_eq!(ageless(question.udp(balancing.dns)), direct);
            assert_eq!(ageless(question.tcp(balancing.dns)), direct);
            expected = [expected[0] + 2.0, expected[1] + 1.0];
            assert_eq!(hits_and_misses(&balancing), expected, "{question:?}");
        }
    }
    // BIND would send one, and does not see that it was asked for one.
    let cookie = Question::new("www.example", "A").option(COOKIE, b"12345678");
    assert!(cookie.udp(bind.dns).option(COOKIE).is_some());
    assert_eq!(cookie.udp(balancing.dns).option(COOKIE), None);
    assert_eq!(hits_and_misses(&balancing), [expected[0] + 1.0, expected[1]]);
    let cookie = Question::new("ns.example", "A").option(COOKIE, b"12345678");
    assert_eq!(cookie.udp(balancing.dns).option(COOKIE), None);
    let status = balancing.client().call("GET", "/v1/status", "").json();
    assert_eq!((&status["cache"]["entries"], &status["cache"]["pushed_out"]), (&16.into(), &0.into()));
    let http = format!("http://{}", balancing.http.expect("it was asked for"));
    let printed = Program::start(&["balance", "status", "--http", &http]).end().stdout;
    let line = "cache          31 hits (66.0 %), 0 by failures, 0 stale; 16 kept, 0 pushed out while fresh";
    assert!(printed.contains(line), "{printed}");
    balancing.stop();
}

#[test]
fn what_may_not_be_kept_is_asked_for_each_time() {
    let folder = Folder::new();
    let bind = bind(&folder);
    let balancing = start(&bind, &["--cache-failures", "0 s"]);
    for (name, rtype) in [("never.example", "A"), ("other.test", "A"), ("www.example", "ANY")] {
        let question = Question::new(name, rtype);
        let direct = question.udp(bind.dns);
        assert_eq!([(); 2].map(|()| question.udp(balancing.dns)), [direct.clone(), direct]);
    }
    let [hits, kept] =
        [hits_and_misses(&balancing)[0], balancing.metric("pointsman_balance_cache_kept_total")];
    assert_eq!((hits, kept), (0.0, 0.0));
    balancing.stop();
}

#[test]
fn clients_whose_subnet_is_told_have_answers_of_their_own() {
    let folder = Folder::new();
    let bind = bind(&folder);
    let balancing = start(&bind, &["--client-address", "subnet", "--subnet-v4", "16"]);
    let ask = |from: [u8; 4]| {
        let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::from(from), 0)).expect("loopback binds");
        socket.connect(balancing.dns).expect("loopback has a way");
        socket.set_read_timeout(Some(PROGRAM_WAIT)).expect("the bound is not zero");
        let answer = Question::new("www.example", "A").at(&socket);
        assert_eq!((answer.data(), answer.edns), (vec!["192.0.2.1"], false));
        hits_and_misses(&balancing)
    };
    assert_eq!(ask([127, 0, 0, 1]), [0.0, 1.0]);
    assert_eq!(ask([127, 0, 7, 7]), [1.0, 1.0]);
    assert_eq!(ask([127, 1, 0, 1]), [1.0, 2.0]);
    balancing.stop();
}

#[test]
fn what_is_stale_is_better_than_nothing_where_it_may_be() {
    for (stale, is_given) in [("1 h", true), ("0 s", false)] {
        let folder = Folder::new();
        let bind = bind(&folder);
        let balancing = start(&bind, &["--cache-stale", stale, "--timeout", "100 ms", "--tries", "1"]);
        for question in [Question::new("short.example", "A"), Question::new("short.example", "A").edns()] {
            assert_eq!(question.udp(balancing.dns).data(), ["192.0.2.3"]);
        }
        bind.program.stop();
        // Those that it has are given until they are no longer fresh.
        let until = Instant::now() + PROGRAM_WAIT;
        while Question::new("short.example", "A").udp(balancing.dns).rcode == "NOERROR" {
            if balancing.metric("pointsman_balance_cache_stale_total") > 0.0 {
                break;
            }
            assert!(Instant::now() < until);
            rest();
        }
        for asked in [Question::udp, Question::tcp] {
            let plain = asked(&Question::new("short.example", "A"), balancing.dns);
            let edns = asked(&Question::new("short.example", "A").edns(), balancing.dns);
            let unknown = asked(&Question::new("www.example", "A").edns(), balancing.dns);
            assert_eq!(unknown.rcode, "SERVFAIL");
            if is_given {
                assert_eq!((plain.data(), plain.edns), (vec!["192.0.2.3"], false));
                assert_eq!(edns.answer, ["short.example. 1 in a 192.0.2.3"]);
                assert_eq!(edns.option(EXTENDED_ERROR), Some(&[0, 3][..]));
            } else {
                assert_eq!([&*plain.rcode, &edns.rcode], ["SERVFAIL"; 2]);
            }
        }
        balancing.stop();
    }
}

#[test]
fn a_failure_is_told_once_in_a_while() {
    let folder = Folder::new();
    let bind = bind(&folder);
    let balancing = start(&bind, &["--cache-failures", "5 min"]);
    let sent = || balancing.back_end(bind.dns)["sent"].as_u64().expect("a count");
    let failures = || balancing.metric("pointsman_balance_cache_failures_total");
    let question = Question::new("other.test", "A").edns();
    let direct = question.udp(bind.dns);
    assert_eq!(direct.rcode, "REFUSED");
    for turn in [1, 2] {
        assert_eq!(question.udp(balancing.dns).option(EXTENDED_ERROR), direct.option(EXTENDED_ERROR));
        for asked in [Question::udp, Question::tcp] {
            let answer = asked(&question, balancing.dns);
            assert_eq!(answer.rcode, "REFUSED");
            assert_eq!(answer.option(EXTENDED_ERROR), Some(&[0, 13][..]));
        }
        assert_eq!((sent(), failures()), (turn, turn as f64 * 2.0));
        let http = format!("http://{}", balancing.http.expect("it was asked for"));
        let ended = Program::start(&["balance", "forget", "--http", &http, "other.test"]).end();
        assert_eq!(ended.stdout, "1 answer forgotten\n");
    }
    balancing.stop();
}

#[test]
fn what_is_stale_is_better_than_a_failure() {
    let (folder, later) = (Folder::new(), Folder::new());
    let first = bind(&folder);
    let balancing = start(&first, &["--cache-stale", "1 h", "--cache-failures", "0 s"]);
    let question = || Question::new("short.example", "A").edns();
    assert_eq!(question().udp(balancing.dns).data(), ["192.0.2.3"]);
    first.program.stop();
    // At the same address, and of that zone it knows nothing.
    let zone =
        later.write("other.zone", "$TTL 3600\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\n");
    let zones = format!("zone \"other\" {{ type primary; file \"{zone}\"; }};\n");
    let second = Make::Bind.start(&later, first.dns, &zones);
    assert_eq!(question().udp(second.dns).rcode, "REFUSED");
    let refused = || balancing.back_end(second.dns)["failures"].as_u64().expect("a count");
    let until = Instant::now() + PROGRAM_WAIT;
    // Before, it may still be fresh, or the server be down.
    while refused() == 0 {
        assert_eq!(question().udp(balancing.dns).data(), ["192.0.2.3"]);
        assert!(Instant::now() < until);
        rest();
    }
    for asked in [Question::udp, Question::tcp] {
        let before = refused();
        let answer = asked(&question(), balancing.dns);
        assert_eq!(answer.data(), ["192.0.2.3"]);
        assert_eq!(answer.option(EXTENDED_ERROR), Some(&[0, 3][..]));
        assert_eq!(refused(), before + 1);
        assert_eq!(asked(&Question::new("www.example", "A"), balancing.dns).rcode, "REFUSED");
    }
    balancing.stop();
}

#[test]
fn answers_are_forgotten_at_once() {
    let folder = Folder::new();
    let bind = bind(&folder);
    let balancing = start(&bind, &[]);
    let http = format!("http://{}", balancing.http.expect("it was asked for"));
    let forget = |more: &[&str]| {
        let ended = Program::start(&[&["balance", "forget", "--http", &http], more].concat()).end();
        (ended.status.code(), ended.stdout + &ended.stderr)
    };
    let ask = || {
        for name in ["ns.example", "www.example", "a.www.example"] {
            assert_eq!(Question::new(name, "A").udp(balancing.dns).rcode, "NOERROR");
        }
        hits_and_misses(&balancing)
    };
    assert_eq!([ask(), ask()], [[0.0, 3.0], [3.0, 3.0]]);
    assert_eq!(forget(&["WWW.example"]), (Some(0), "2 answers forgotten\n".into()));
    assert_eq!(ask(), [4.0, 5.0]);
    assert_eq!(forget(&["."]), (Some(0), "3 answers forgotten\n".into()));
    assert_eq!(forget(&["--json"]), (Some(0), "{\"answers\":0}\n".into()));
    assert_eq!(ask(), [4.0, 8.0]);
    let (status, told) = forget(&["a..b"]);
    assert!(status != Some(0) && told.contains("a name, such as example.com"), "{told}");
    balancing.stop();
    let without = Balancing::start(&[bind.dns], &["--http", "127.0.0.1:0"]);
    let http = format!("http://{}", without.http.expect("it was asked for"));
    let told = Program::start(&["balance", "forget", "--http", &http]).end().stderr;
    assert!(told.contains("no answers are kept here"), "{told}");
    without.stop();
}
