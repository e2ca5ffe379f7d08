//! Rules of `pointsman balance`: which back ends take which queries, and what is answered here instead.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use nix::sys::signal::Signal;
use tests::balancing::Balancing;
use tests::folder::Folder;
use tests::peer::{Peer, free_address};
use tests::program::{PROGRAM_WAIT, Program};
use tests::query::{Answer, Question};
use tests::secondary::Make;

const EXTENDED_ERROR: u16 = 15;

/// Two of BIND: what everybody may see, and what those inside see of the same zone.
struct Both {
    folder: Folder,
    outside: Peer,
    inside: Peer,
    _own: [Folder; 2],
}

impl Both {
    fn start() -> Both {
        let (folder, own) = (Folder::new(), [Folder::new(), Folder::new()]);
        let bind = |own: &Folder, address: &str| {
            let zone = "$TTL 3600\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\n* A ";
            let zone = own.write("example.zone", format!("{zone}{address}\n"));
            let zones = format!("zone \"example\" {{ type primary; file \"{zone}\"; }};\n");
            Make::Bind.start(own, free_address(), &zones)
        };
        let (outside, inside) = (bind(&own[0], "192.0.2.1"), bind(&own[1], "10.0.0.1"));
        Both { folder, outside, inside, _own: own }
    }

    /// A balancer with the one for everybody as its back end, the other one as the pool `corp`, and these rules.
    fn balance(&self, rules: &str, more: &[&str]) -> Balancing {
        let config = self.configure(rules);
        let arguments = ["--config", &config, "--workers", "1", "--http", "127.0.0.1:0"];
        Balancing::start(&[self.outside.dns], &[&arguments[..], more].concat())
    }

    fn configure(&self, rules: &str) -> String {
        let pool = format!("[[balance.pool]]\nname = \"corp\"\nbackend = [\"{}\"]\n", self.inside.dns);
        self.folder.write("p.toml", format!("version = \"v1\"\n{pool}{rules}"))
    }
}

fn rule(name: &str, more: &str) -> String {
    format!("[[balance.rule]]\nname = \"{name}\"\n{more}\n")
}

fn met(balancing: &Balancing, rule: &str) -> f64 {
    balancing.metric(&format!("pointsman_balance_rule_met_total{{rule=\"{rule}\"}}"))
}

/// Asks from another address of this machine.
fn ask_from(client: [u8; 4], question: &Question, server: SocketAddr) -> Answer {
    let socket = UdpSocket::bind((Ipv4Addr::from(client), 0)).expect("loopback binds");
    socket.connect(server).expect("loopback has a way");
    socket.set_read_timeout(Some(PROGRAM_WAIT)).expect("the bound is not zero");
    question.at(&socket)
}

#[test]
fn queries_go_to_the_pool_that_a_rule_says_and_are_kept_apart() {
    let both = Both::start();
    let rules = rule("names", "names = [\"corp.example\"]\npool = \"corp\"")
        + &rule("people", "clients = [\"127.7.0.0/16\"]\npool = \"corp\"");
    for more in [&[][..], &["--cache", "1 MiB"]] {
        let balancing = both.balance(&rules, more);
        let (outside, inside) = (["192.0.2.1"], ["10.0.0.1"]);
        // Twice, for the second time may be answered from the cache.
        for _ in 0..2 {
            for (name, expected) in [
                ("www.example", outside),
                ("corp.example", inside),
                ("a.b.CORP.example", inside),
                ("xcorp.example", outside),
            ] {
                let question = Question::new(name, "A");
                assert_eq!(question.udp(balancing.dns).data(), expected, "{name}");
                assert_eq!(question.tcp(balancing.dns).data(), expected, "{name}");
            }
            let question = Question::new("www.example", "A");
            assert_eq!(ask_from([127, 7, 1, 1], &question, balancing.dns).data(), inside);
            assert_eq!(ask_from([127, 8, 1, 1], &question, balancing.dns).data(), outside);
        }
        assert_eq!([met(&balancing, "names"), met(&balancing, "people")], [8.0, 2.0]);
        let pools = |address| balancing.back_end(address)["pools"].clone();
        assert_eq!(pools(both.outside.dns), serde_json::json!(["default"]));
        assert_eq!(pools(both.inside.dns), serde_json::json!(["corp"]));
        let of = format!("back_end=\"{}\",pool=\"corp\"", both.inside.dns);
        assert_eq!(balancing.metric(&format!("pointsman_balance_back_end_pool{{{of}}}")), 1.0);
        balancing.stop();
    }
}

#[test]
fn a_pool_is_by_itself() {
    let both = Both::start();
    let rules = rule("names", "names = [\"corp.example\"]\npool = \"corp\"");
    let balancing = both.balance(&rules, &["--timeout", "200 ms"]);
    let http = format!("http://{}", balancing.http.expect("it was asked for"));
    let run = |arguments: &[&str]| {
        let ended = Program::start(&[&["balance"], arguments, &["--http", &http]].concat()).end();
        (ended.status.code(), ended.stdout + &ended.stderr)
    };
    let (corp, www) = (Question::new("corp.example", "A"), Question::new("www.example", "A"));
    assert_eq!(corp.udp(balancing.dns).data(), ["10.0.0.1"]);
    let (inside, outside) = (both.inside.dns.to_string(), both.outside.dns.to_string());
    let (status, told) = run(&["drain", &inside]);
    assert!(status == Some(0) && told.contains("POOLS"), "{told}");
    for asked in [Question::udp, Question::tcp] {
        assert_eq!(asked(&corp, balancing.dns).rcode, "SERVFAIL", "nobody else may take it");
        assert_eq!(asked(&www, balancing.dns).data(), ["192.0.2.1"]);
    }
    assert_eq!(run(&["resume", &inside]).0, Some(0));
    assert_eq!(corp.udp(balancing.dns).data(), ["10.0.0.1"]);
    // All of the pool is down, and is asked all the same; who serves others is none of it.
    let at = both.inside.dns;
    both.inside.program.stop();
    assert_eq!(corp.udp(balancing.dns).rcode, "SERVFAIL");
    balancing.wait(at, |status| status["standing"] == "down");
    assert_eq!(corp.tcp(balancing.dns).rcode, "SERVFAIL");
    assert_eq!(www.udp(balancing.dns).data(), ["192.0.2.1"]);
    // The one that serves others may serve this pool, too, once it is there again with both.
    let (status, told) = run(&["add", &outside, "--pool", "corp"]);
    assert!(status != Some(0) && told.contains("there is this back end already"), "{told}");
    let (status, told) = run(&["add", "192.0.2.1:53", "--pool", "core"]);
    assert!(
        status != Some(0) && told.contains("there is no pool \"core\"; expected pools of default, corp"),
        "{told}"
    );
    assert_eq!(run(&["remove", &outside]).0, Some(0));
    assert_eq!(www.udp(balancing.dns).rcode, "SERVFAIL");
    assert_eq!(run(&["add", &outside, "--pool", "corp", "--pool", "default"]).0, Some(0));
    for question in [&corp, &www] {
        assert_eq!(question.udp(balancing.dns).data(), ["192.0.2.1"]);
    }
    balancing.stop();
}

#[test]
fn what_is_not_to_be_answered_is_not() {
    let both = Both::start();
    let rules = rule("ads", "names_files = [\"block.txt\"]\nanswer = \"nxdomain\"")
        + &rule("v6", "names = [\"four.example\"]\ntypes = [\"AAAA\"]\nanswer = \"nodata\"")
        + &rule("portal", "names = [\"portal.example\"]\naddresses = [\"192.0.2.80\", \"2001:db8::80\"]")
        + &rule("any", "types = [\"ANY\"]\nanswer = \"truncated\"")
        + &rule("guests", "clients = [\"127.9.0.0/16\"]\nanswer = \"refused\"")
        + &rule("quiet", "names = [\"quiet.example\"]\nanswer = \"nothing\"");
    both.folder.write("block.txt", "# names of others\nads.example\n");
    let balancing = both.balance(&rules, &[]);
    let dns = balancing.dns;
    let told = |answer: &Answer| answer.option(EXTENDED_ERROR).map(<[u8]>::to_vec);
    for asked in [Question::udp, Question::tcp] {
        let blocked = asked(&Question::new("x.ads.example", "A").edns(), dns);
        assert_eq!((&*blocked.rcode, told(&blocked)), ("NXDOMAIN", Some(vec![0, 15])));
        let plain = asked(&Question::new("ads.example", "TXT"), dns);
        assert_eq!((&*plain.rcode, plain.edns), ("NXDOMAIN", false));
        let no_v6 = asked(&Question::new("www.four.example", "AAAA").edns(), dns);
        assert_eq!((&*no_v6.rcode, no_v6.data().len(), told(&no_v6)), ("NOERROR", 0, Some(vec![0, 15])));
        assert_eq!(asked(&Question::new("www.four.example", "A"), dns).data(), ["192.0.2.1"]);
        let [v4, v6, no] =
            ["A", "AAAA", "MX"].map(|rtype| asked(&Question::new("a.portal.example", rtype).edns(), dns));
        assert_eq!(v4.answer, ["a.portal.example. 60 in a 192.0.2.80"]);
        assert_eq!(v6.data(), ["2001:db8::80"]);
        assert_eq!((&*no.rcode, no.data().len(), told(&no)), ("NOERROR", 0, Some(vec![0, 4])));
    }
    let any = Question::new("www.example", "ANY");
    assert!(any.udp(dns).tc && !any.tcp(dns).tc);
    let guest = ask_from([127, 9, 1, 1], &Question::new("www.example", "A").edns(), dns);
    assert_eq!((&*guest.rcode, told(&guest)), ("REFUSED", Some(vec![0, 18])));
    let quiet = Question::new("quiet.example", "A");
    assert_eq!(quiet.tcp(dns).rcode, "REFUSED");
    let socket = tests::query::socket(dns);
    socket.send(&quiet.message()).expect("loopback sends");
    // The next one is answered and that one was not.
    assert_eq!(Question::new("next.example", "A").at(&socket).data(), ["192.0.2.1"]);
    let expected =
        [("ads", 4.0), ("v6", 2.0), ("portal", 6.0), ("any", 1.0), ("guests", 1.0), ("quiet", 2.0)];
    for (name, count) in expected {
        assert_eq!(met(&balancing, name), count, "{name}");
    }
    assert_eq!(balancing.metric("pointsman_balance_ruled_total"), 16.0);
    let http = format!("http://{}", balancing.http.expect("it was asked for"));
    let printed = Program::start(&["balance", "status", "--http", &http]).end().stdout;
    assert!(printed.contains("\nads     4        nxdomain\n"), "{printed}");
    balancing.stop();
}

#[test]
fn who_asks_too_often_is_held_to_a_rate() {
    let both = Both::start();
    let rules = rule("often", "names = [\"slow.example\"]\nper_second = 1\nanswer = \"refused\"");
    let balancing = both.balance(&rules, &[]);
    let ask = |client| {
        let question = Question::new("slow.example", "A");
        (0..30).filter(|_| ask_from(client, &question, balancing.dns).rcode == "NOERROR").count()
    };
    let (one, other) = (ask([127, 0, 0, 2]), ask([127, 0, 0, 3]));
    assert!((1..30).contains(&one) && (1..30).contains(&other), "{one} {other}");
    assert_eq!(met(&balancing, "often"), (60 - one - other) as f64);
    assert_eq!(Question::new("fast.example", "A").udp(balancing.dns).data(), ["192.0.2.1"]);
    balancing.stop();
}

#[test]
fn rules_are_read_again_as_a_whole_or_not_at_all() {
    let both = Both::start();
    let first = rule("ads", "names_files = [\"block.txt\"]\nanswer = \"nxdomain\"");
    both.folder.write("block.txt", "ads.example\n");
    let mut balancing = both.balance(&first, &[]);
    let dns = balancing.dns;
    let rcode = |name: &str| Question::new(name, "A").udp(dns).rcode;
    assert_eq!([rcode("ads.example"), rcode("more.example")], ["NXDOMAIN", "NOERROR"]);
    both.folder.write("block.txt", "more.example\na..b\n");
    balancing.program.signal(Signal::SIGHUP);
    let told = balancing.program.line("nothing is reloaded");
    assert!(told.contains("block.txt:2:1: ") && told.contains("is no name"), "{told}");
    assert_eq!([rcode("ads.example"), rcode("more.example")], ["NXDOMAIN", "NOERROR"]);
    both.folder.write("block.txt", "more.example\n");
    let pool = format!("[[balance.pool]]\nname = \"late\"\nbackend = [\"{}\"]\n", both.inside.dns);
    both.configure(&(pool + &first));
    balancing.program.signal(Signal::SIGHUP);
    let told = balancing.program.line("nothing is reloaded");
    assert!(told.contains("the pool \"late\" is new, and pools are read at start"), "{told}");
    assert_eq!([rcode("ads.example"), rcode("more.example")], ["NXDOMAIN", "NOERROR"]);
    both.configure(&(rule("new", "names = [\"corp.example\"]\npool = \"corp\"") + &first));
    balancing.program.signal(Signal::SIGHUP);
    let told = balancing.program.line("are read again");
    assert!(told.contains("rules are read again") && !told.contains("certificate"), "{told}");
    assert_eq!([rcode("ads.example"), rcode("more.example")], ["NOERROR", "NXDOMAIN"]);
    assert_eq!(Question::new("corp.example", "A").udp(dns).data(), ["10.0.0.1"]);
    assert_eq!([met(&balancing, "ads"), met(&balancing, "new")], [4.0, 1.0]);
    balancing.stop();
}
