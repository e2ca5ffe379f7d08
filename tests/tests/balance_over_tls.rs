//! Back ends that `pointsman balance` asks over TLS: Unbound and NSD, with certificates that are theirs or others'.

use std::net::SocketAddr;
use std::process::Command;

use nix::sys::signal::Signal;
use tests::balancing::Balancing;
use tests::certificate::Certificate;
use tests::folder::Folder;
use tests::peer::{Encrypted, free_address, nsd};
use tests::program::Program;
use tests::query::Question;

/// The name that each certificate is for.
const NAME: &str = "dns.example.com";

/// Unbound, over TLS too.
struct Resolver {
    certificate: Certificate,
    unbound: Encrypted,
    /// Where it answers over TLS.
    at: SocketAddr,
    _folder: Folder,
}

impl Resolver {
    fn start() -> Resolver {
        let folder = Folder::new();
        let certificate = Certificate::new(&folder);
        let unbound = Encrypted::unbound(&folder, &certificate);
        let at = SocketAddr::from(([127, 0, 0, 1], unbound.tls));
        Resolver { certificate, unbound, at, _folder: folder }
    }
}

/// NSD with a zone, over TLS alone.
fn nsd_over_tls(folder: &Folder, at: SocketAddr, certificate: &Certificate) -> Program {
    let long = format!("\"{}\" ", "0123456789".repeat(25)).repeat(12);
    let zone =
        format!("$TTL 60\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\nlong TXT {long}\n");
    let zone = folder.write("example.zone", zone);
    let Certificate { certificate, key, .. } = certificate;
    let port = at.port();
    let more = format!(
        "  server-count: 1\n  tls-port: {port}\n  tls-service-pem: \"{certificate}\"\n  tls-service-key: \"{key}\"\n"
    );
    let text = nsd(folder.path(), at, &more, &format!("zone:\n  name: example\n  zonefile: \"{zone}\"\n"));
    let mut command = Command::new("/usr/sbin/nsd");
    command.args(["-d", "-c", &folder.write("nsd.conf", text)]).current_dir(folder.path());
    let mut program = Program::spawn(command);
    program.line("nsd started");
    program
}

/// A balancer before back ends over TLS, which believes this authority.
fn balance(back_ends: &[SocketAddr], name: &str, authority: &str, more: &[&str]) -> Balancing {
    let back_ends: Vec<String> = back_ends.iter().map(|at| format!("--backend={at}#{name}")).collect();
    let mut arguments: Vec<&str> = back_ends.iter().map(String::as_str).collect();
    arguments.extend(["--authorities", authority, "--http", "127.0.0.1:0", "--probe-interval", "50 ms"]);
    arguments.extend(more);
    Balancing::start(&[], &arguments)
}

fn metric(balancing: &Balancing, name: &str, back_end: SocketAddr) -> f64 {
    balancing.metric(&format!("pointsman_balance_back_end_{name}{{back_end=\"{back_end}\"}}"))
}

#[test]
fn a_resolver_is_asked_over_tls_alone() {
    let resolver = Resolver::start();
    let Resolver { ref certificate, at, .. } = resolver;
    for (name, more) in
        [(NAME, &[][..]), ("127.0.0.1", &["--tcp", "udp"]), (NAME, &["--client-address", "subnet"])]
    {
        let balancing = balance(&[at], name, &certificate.authority, more);
        balancing.wait(at, |status| status["standing"] == "up");
        for number in 0..40 {
            let question = Question::new(&format!("{number}.example.com"), "A");
            let question = if number % 2 == 0 { question } else { question.edns() };
            for answer in [question.udp(balancing.dns), question.tcp(balancing.dns)] {
                assert_eq!(answer.data(), ["192.0.2.80"], "{number}");
                let [keepalive, padding, subnet] = [11, 12, 8].map(|option| answer.option(option));
                assert_eq!((keepalive, padding, subnet), (None, None, None));
            }
        }
        let status = balancing.back_end(at);
        assert_eq!((&status["tls"], &status["answered"]), (&name.into(), &80.into()), "{status}");
        // One after the other they need no more than a few, to which probes belong.
        let opened = metric(&balancing, "connections_total", at);
        assert!((1.0..=4.0).contains(&opened), "{opened}");
        balancing.stop();
    }
}

#[test]
fn who_shows_another_certificate_gets_no_query() {
    let (folder, other) = (Folder::new(), Folder::new());
    let (certificate, stranger) = (Certificate::new(&folder), Certificate::new(&other));
    let unbound = Encrypted::unbound(&folder, &certificate);
    let strange = Encrypted::unbound(&other, &stranger);
    let [good, bad] = [unbound.tls, strange.tls].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let mut balancing = balance(&[good, bad], NAME, &certificate.authority, &["--policy", "wrr"]);
    for number in 0..50 {
        let question = Question::new(&format!("{number}.example.com"), "A");
        assert_eq!(question.udp(balancing.dns).data(), ["192.0.2.80"], "{number}");
    }
    let told = balancing.program.line("invalid peer certificate");
    assert!(told.contains(&bad.to_string()) && told.contains("no terms over TLS"), "{told}");
    balancing.wait(bad, |status| status["standing"] == "down");
    assert_eq!(
        (balancing.back_end(bad)["answered"].as_u64(), metric(&balancing, "late_total", bad)),
        (Some(0), 0.0)
    );
    balancing.stop();
    // A name that is not the certificate's.
    let mut balancing = balance(&[good], "other.example.com", &certificate.authority, &[]);
    let told = balancing.program.line("a probe failed");
    assert!(told.contains("certificate not valid for name"), "{told}");
    let nobody = Question::new("www.example.com", "A").udp(balancing.dns);
    assert_eq!(nobody.rcode, "SERVFAIL");
    balancing.stop();
}

#[test]
fn a_long_answer_sends_who_asks_by_datagram_to_tcp() {
    let folder = Folder::new();
    let certificate = Certificate::new(&folder);
    let at = free_address();
    let _nsd = nsd_over_tls(&folder, at, &certificate);
    for more in [&[][..], &["--cache", "1 MiB"]] {
        let balancing = balance(&[at], NAME, &certificate.authority, more);
        let question = Question::new("long.example", "TXT").edns();
        for _ in 0..2 {
            let cut = question.udp(balancing.dns);
            assert!(cut.tc && cut.data().is_empty(), "{cut:?}");
            let whole = question.tcp(balancing.dns);
            assert!(!whole.tc && whole.data()[0].len() > 3_000, "{whole:?}");
        }
        balancing.stop();
    }
}

#[test]
fn a_server_that_ends_and_begins_again_is_asked_again() {
    let folder = Folder::new();
    let certificate = Certificate::new(&folder);
    let [first, second] = [free_address(), free_address()];
    let own = [Folder::new(), Folder::new()];
    let there = nsd_over_tls(&own[0], first, &certificate);
    let _other = nsd_over_tls(&own[1], second, &certificate);
    let balancing =
        balance(&[first, second], NAME, &certificate.authority, &["--slow-start", "0 s", "--policy", "wrr"]);
    let question = Question::new("ns.example", "A");
    let ask = |times: usize| {
        for _ in 0..times {
            assert_eq!(question.udp(balancing.dns).data(), ["192.0.2.53"]);
        }
    };
    ask(20);
    assert!(
        [first, second].iter().all(|at| balancing.back_end(*at)["answered"].as_u64() >= Some(8)),
        "each worker has its turns"
    );
    there.signal(Signal::SIGTERM);
    there.end();
    // The first of them finds out.
    ask(20);
    balancing.wait(first, |status| status["standing"] == "down");
    let _again = nsd_over_tls(&own[0], first, &certificate);
    balancing.wait(first, |status| status["standing"] == "up");
    let before = balancing.back_end(first)["answered"].as_u64();
    ask(20);
    let after = balancing.back_end(first)["answered"].as_u64();
    assert!(after >= before.map(|before| before + 8), "{before:?} {after:?}");
    assert_eq!(balancing.metric("pointsman_balance_failed_total"), 0.0);
    balancing.stop();
}

#[test]
fn a_back_end_over_tls_comes_and_goes() {
    let resolver = Resolver::start();
    let Resolver { ref certificate, ref unbound, at, .. } = resolver;
    let more = ["--authorities", &certificate.authority, "--http", "127.0.0.1:0"];
    let balancing = Balancing::start(&[unbound.dns], &more);
    let http = format!("http://{}", balancing.http.expect("it was asked for"));
    let run = |arguments: &[&str]| {
        let ended = Program::start(&[&["balance"], arguments, &["--http", &http]].concat()).end();
        (ended.status.code(), ended.stdout + &ended.stderr)
    };
    let (code, table) = run(&["status"]);
    assert!(code == Some(0) && !table.contains("TLS"), "{table}");
    let (code, table) = run(&["add", &format!("{at}#{NAME}")]);
    assert_eq!(code, Some(0), "{table}");
    let line = table.lines().find(|line| line.contains(&at.to_string())).expect("it is there");
    assert!(line.contains(NAME) && table.contains("TLS"), "{table}");
    balancing.wait(at, |status| status["standing"] == "up");
    assert_eq!(run(&["remove", &unbound.dns.to_string()]).0, Some(0));
    let question = Question::new("www.example.com", "A");
    assert_eq!(question.udp(balancing.dns).data(), ["192.0.2.80"]);
    assert_eq!(balancing.back_end(at)["sent"], 1);
    assert_eq!(run(&["drain", &format!("{at}#{NAME}")]).0, Some(0));
    assert_eq!(balancing.back_end(at)["standing"], "draining");
    let (code, told) = run(&["add", &format!("{at}#a b")]);
    assert!(code == Some(2) && told.contains("the name that its certificate is for"), "{told}");
    balancing.stop();
    // Where each query would be a connection over TLS.
    let balancing = Balancing::start(&[unbound.dns], &[&more[..], &["--client-address", "proxy"]].concat());
    let body = format!("{{\"address\": \"{at}\", \"tls\": \"{NAME}\"}}");
    let refused = balancing.client().call("POST", "/v1/backends", &body);
    assert_eq!(refused.status, 409, "{}", refused.text());
    balancing.stop();
}

#[test]
fn weights_are_measured_over_tls_too() {
    let resolver = Resolver::start();
    let Resolver { ref certificate, at, .. } = resolver;
    let back_end = format!("{at}#{NAME}");
    let more = ["balance", "--listen", "127.0.0.1:0", "--backend", &back_end, "--measure-weights"];
    let probe = ["--probe", "www.example.com A", "--authorities", &certificate.authority];
    let mut program = Program::start(&[&more[..], &probe].concat());
    let told = program.line("answers a second");
    assert!(told.ends_with(&format!("--backend {back_end}=100")), "{told}");
    program.line("ready");
    program.stop();
}
