//! Clients of `pointsman balance` over TLS: a resolver's tool that verifies the certificate, and who speaks no TLS.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Instant;

use nix::sys::signal::Signal;
use tests::balancing::Balancing;
use tests::certificate::Certificate;
use tests::folder::Folder;
use tests::peer::{Peer, free_address};
use tests::program::{PROGRAM_WAIT, Program};
use tests::query::{ANSWER_WAIT, rest};
use tests::secondary::Make;

/// BIND with a zone.
fn bind(folder: &Folder) -> Peer {
    let zone = folder.write(
        "example.zone",
        "$TTL 60\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\nbig TXT \"0123456789\"\n",
    );
    let zones = format!("zone \"example\" {{ type primary; file \"{zone}\"; }};\n");
    Make::Bind.start(folder, free_address(), &zones)
}

/// What kdig says of `ns.example A` over TLS, of a server whose certificate this authority has signed.
fn kdig(at: SocketAddr, authority: &str, more: &[&str]) -> String {
    let mut command = Command::new("kdig");
    let (server, port) = (format!("@{}", at.ip()), at.port().to_string());
    let trust = format!("+tls-ca={authority}");
    command.args([&server, "-p", &port, &trust, "+tls-hostname=dns.example.com", "+timeout=20", "+retry=0"]);
    let ended = Program::spawn({
        command.args(more).args(["ns.example", "A"]);
        command
    })
    .end();
    ended.stdout + &ended.stderr
}

#[test]
fn queries_come_over_tls_and_answers_are_padded() {
    let folder = Folder::new();
    let (bind, certificate) = (bind(&folder), Certificate::new(&folder));
    for onward in ["tcp", "udp"] {
        let more = ["--tls-listen", "127.0.0.1:0", "--tls-certificate", &certificate.certificate];
        let more =
            [&more[..], &["--tls-key", &certificate.key, "--http", "127.0.0.1:0", "--tcp", onward]].concat();
        let balancing = Balancing::start(&[bind.dns], &more);
        let at = balancing.tls.expect("it was asked for");
        let plain = kdig(at, &certificate.authority, &["+nopadding"]);
        assert!(plain.contains("192.0.2.53") && plain.contains(";; TLS session (TLS1.3)"), "{plain}");
        assert!(!plain.contains("Received 468 B"), "{plain}");
        let padded = kdig(at, &certificate.authority, &["+padding=128"]);
        assert!(padded.contains("192.0.2.53") && padded.contains("Received 468 B"), "{padded}");
        assert!(padded.contains("PADDING"), "{padded}");
        // Who trusts somebody else gets nothing.
        let other = Folder::new();
        let wrong = kdig(at, &Certificate::new(&other).authority, &[]);
        assert!(!wrong.contains("192.0.2.53"), "{wrong}");
        assert_eq!(balancing.metric("pointsman_balance_queries_total"), 2.0);
        balancing.stop();
    }
}

#[test]
fn who_speaks_no_tls_is_counted_and_hinders_nobody() {
    let folder = Folder::new();
    let (bind, certificate) = (bind(&folder), Certificate::new(&folder));
    let more = ["--tls-listen", "127.0.0.1:0", "--tls-certificate", &certificate.certificate];
    let more = [&more[..], &["--tls-key", &certificate.key, "--http", "127.0.0.1:0"]].concat();
    let balancing = Balancing::start(&[bind.dns], &more);
    let at = balancing.tls.expect("it was asked for");
    let mut silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(at).expect("it listens")).collect();
    let mut plain = TcpStream::connect(at).expect("it listens");
    plain.set_read_timeout(Some(ANSWER_WAIT)).expect("the bound is not zero");
    plain.write_all(&[0; 100]).expect("it is taken");
    // It is told by an alert, or not at all.
    let mut told = Vec::new();
    let _ = plain.read_to_end(&mut told);
    assert!(told.len() < 20, "{told:?}");
    let answered = kdig(at, &certificate.authority, &[]);
    assert!(answered.contains("192.0.2.53"), "{answered}");
    // Who says nothing has as long as for one message.
    let until = Instant::now() + PROGRAM_WAIT;
    while balancing.metric("pointsman_balance_tls_failed_total") < 21.0 {
        assert!(Instant::now() < until, "{}", balancing.metric("pointsman_balance_tls_failed_total"));
        rest();
    }
    for stream in &mut silent {
        stream.set_read_timeout(Some(ANSWER_WAIT)).expect("the bound is not zero");
        assert_eq!(stream.read(&mut [0; 10]).ok(), Some(0), "it is closed");
    }
    balancing.stop();
}

#[test]
fn a_certificate_is_renewed_by_a_signal_or_goes_on() {
    let (folder, later) = (Folder::new(), Folder::new());
    let (bind, first, second) = (bind(&folder), Certificate::new(&folder), Certificate::new(&later));
    let more =
        ["--tls-listen", "127.0.0.1:0", "--tls-certificate", &first.certificate, "--tls-key", &first.key];
    let mut balancing = Balancing::start(&[bind.dns], &more);
    let at = balancing.tls.expect("it was asked for");
    let is_trusted = |authority: &str| kdig(at, authority, &[]).contains("192.0.2.53");
    let authority = folder.at("first authority");
    std::fs::copy(&first.authority, &authority).expect("there is room");
    assert!(is_trusted(&authority));

    // A certificate whose key is another's.
    std::fs::copy(&second.certificate, &first.certificate).expect("there is room");
    balancing.program.signal(Signal::SIGHUP);
    let told = balancing.program.line("nothing is reloaded");
    assert!(told.contains("the key is not that of the first certificate"), "{told}");
    assert!(is_trusted(&authority));

    std::fs::copy(&second.key, &first.key).expect("there is room");
    balancing.program.signal(Signal::SIGHUP);
    balancing.program.line("certificate and key are read again");
    assert!(is_trusted(&second.authority) && !is_trusted(&authority));
    balancing.stop();
}

#[test]
fn clients_find_where_it_speaks_encrypted() {
    let folder = Folder::new();
    let (bind, certificate) = (bind(&folder), Certificate::new(&folder));
    let at = free_address();
    let listen = at.to_string();
    let https = free_address().to_string();
    let more = ["--tls-listen", &listen, "--https-listen", &https, "--designate", "dns.example.com"];
    let shown = ["--tls-certificate", &certificate.certificate, "--tls-key", &certificate.key];
    let more = [&more[..], &shown, &["--http", "127.0.0.1:0"]].concat();
    let balancing = Balancing::start(&[bind.dns], &more);
    let dig = |words: &str| {
        let mut command = Command::new("dig");
        let (server, port) = (format!("@{}", balancing.dns.ip()), balancing.dns.port().to_string());
        command.args([&server, "-p", &port]).args(words.split(' '));
        let ended = Program::spawn(command).end();
        ended.stdout + &ended.stderr
    };
    let (tls_port, https_port) = (at.port(), https.rsplit(':').next().expect("a port").to_owned());
    let expected = format!(
        "1 dns.example.com. alpn=\"dot\" port={tls_port} ipv4hint=127.0.0.1\n\
         2 dns.example.com. alpn=\"h2\" port={https_port} ipv4hint=127.0.0.1 key7=\"/dns-query{{?dns}}\"\n"
    );
    for way in ["+notcp", "+tcp"] {
        assert_eq!(dig(&format!("_DNS.resolver.arpa SVCB +short {way}")), expected);
        let nothing = dig(&format!("a._dns.resolver.arpa SVCB {way}"));
        assert!(nothing.contains("status: NOERROR") && nothing.contains("ANSWER: 0"), "{nothing}");
    }
    // By what was told.
    let found = kdig(at, &certificate.authority, &[]);
    assert!(found.contains("192.0.2.53"), "{found}");
    let status = balancing.client().call("GET", "/v1/status", "").json();
    let met = |index: usize| (status["rules"][index]["name"].clone(), status["rules"][index]["met"].clone());
    assert_eq!(
        [met(0), met(1)],
        [("_dns.resolver.arpa".into(), 4.into()), ("resolver.arpa".into(), 0.into())]
    );
    assert_eq!(balancing.back_end(bind.dns)["sent"], 1);
    balancing.stop();
}
