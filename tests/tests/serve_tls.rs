//! The name server over TLS: queries and transfers by Knot's tool, which verifies the certificate; and who speaks none.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Instant;

use nix::sys::signal::Signal;
use tests::certificate::Certificate;
use tests::folder::Folder;
use tests::program::{PROGRAM_WAIT, Program};
use tests::query::{ANSWER_WAIT, rest};
use tests::serving::Serving;

/// So many names that a transfer is longer than all buffers on its way.
const NAMES: u32 = 40_000;

fn zone() -> String {
    let names = (0..NAMES).map(|name| format!("n{name} TXT \"{name:0100}\"\n"));
    let head = "$TTL 60\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\n";
    head.to_string() + &names.collect::<String>()
}

/// What kdig prints, of a server whose certificate this authority has signed.
fn kdig(at: SocketAddr, authority: &str, arguments: &[&str]) -> String {
    let mut command = Command::new("kdig");
    let (server, port, trust) =
        (format!("@{}", at.ip()), at.port().to_string(), format!("+tls-ca={authority}"));
    command.args([&server, "-p", &port, &trust, "+tls-hostname=dns.example.com", "+timeout=20", "+retry=0"]);
    command.args(arguments);
    let ended = Program::spawn(command).end();
    ended.stdout + &ended.stderr
}

/// Starts it with this certificate, and somebody who may take all zones.
fn serve(folder: &Folder, certificate: &Certificate) -> Serving {
    let text = format!(
        "version = \"v1\"\ntls_listen = [\"127.0.0.1:0\"]\ntls_certificate = \"{}\"\ntls_key = \"{}\"\n\
         [[secondary]]\nfrom = [\"127.0.0.1\"]\n[tcp]\nmessage = \"2 s\"\n",
        certificate.certificate, certificate.key
    );
    Serving::start(folder, &["--config", &folder.write("pointsman.toml", text)])
}

#[test]
fn queries_and_transfers_come_over_tls() {
    let folder = Folder::new();
    let certificate = Certificate::new(&folder);
    let ours = serve(&folder, &certificate);
    ours.call("PUT", "/v1/zones/example", &zone());
    let (at, authority) = (ours.listening[1], certificate.authority.as_str());
    let plain = kdig(at, authority, &["+nopadding", "ns.example", "A"]);
    assert!(plain.contains("192.0.2.53") && plain.contains(";; TLS session (TLS1.3)"), "{plain}");
    assert!(!plain.contains("PADDING") && !plain.contains("Received 468 B"), "{plain}");
    let padded = kdig(at, authority, &["+padding=128", "ns.example", "A"]);
    assert!(padded.contains("192.0.2.53") && padded.contains("PADDING"), "{padded}");
    assert!(padded.contains("Received 468 B"), "{padded}");
    let denied = kdig(at, authority, &["+padding=128", "nowhere.example", "A"]);
    assert!(denied.contains("NXDOMAIN") && denied.contains("Received 468 B"), "{denied}");

    let transferred = kdig(at, authority, &["+noall", "+answer", "example", "AXFR"]);
    let records = transferred.lines().filter(|line| line.contains("\tTXT\t")).count();
    assert_eq!(records, NAMES as usize, "{}", &transferred[transferred.len().saturating_sub(500)..]);
    let metric = |name: &str| ours.client().metric(name);
    let streamed =
        "pointsman_queries_total{transport=\"tls\",type=\"none\",rcode=\"none\",verdict=\"streamed\"}";
    assert_eq!(metric(streamed), Some(1.0));
    let answered = |rcode| {
        format!(
            "pointsman_queries_total{{transport=\"tls\",type=\"A\",rcode=\"{rcode}\",verdict=\"answered\"}}"
        )
    };
    assert_eq!([metric(&answered("NOERROR")), metric(&answered("NXDOMAIN"))], [Some(2.0), Some(1.0)]);
    let status = ours.call("GET", "/v1/status", "").json();
    assert_eq!((&status["tls"]["queries"], &status["tcp"]["queries"]), (&4.into(), &0.into()));

    // Who trusts somebody else gets nothing.
    let other = Folder::new();
    let wrong = kdig(at, &Certificate::new(&other).authority, &["ns.example", "A"]);
    assert!(!wrong.contains("192.0.2.53"), "{wrong}");
    ours.stop();
}

#[test]
fn who_speaks_no_tls_is_counted_and_hinders_nobody() {
    let folder = Folder::new();
    let certificate = Certificate::new(&folder);
    let ours = serve(&folder, &certificate);
    ours.call("PUT", "/v1/zones/example", "$TTL 60\n@ SOA ns hm 1 2 3 4 5\n@ NS ns\nns A 192.0.2.53\n");
    let at = ours.listening[1];
    let mut silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(at).expect("it listens")).collect();
    let mut plain = TcpStream::connect(at).expect("it listens");
    plain.set_read_timeout(Some(ANSWER_WAIT)).expect("the bound is not zero");
    plain.write_all(&[0; 100]).expect("it is taken");
    // It is told by an alert, or not at all.
    let mut told = Vec::new();
    let _ = plain.read_to_end(&mut told);
    assert!(told.len() < 20, "{told:?}");
    let answered = kdig(at, &certificate.authority, &["ns.example", "A"]);
    assert!(answered.contains("192.0.2.53"), "{answered}");
    let failed = || ours.client().metric("pointsman_tcp_ended_total{cause=\"tls_failed\"}");
    let until = Instant::now() + PROGRAM_WAIT;
    while failed() < Some(21.0) {
        assert!(Instant::now() < until, "{:?}", failed());
        rest();
    }
    for stream in &mut silent {
        stream.set_read_timeout(Some(ANSWER_WAIT)).expect("the bound is not zero");
        assert_eq!(stream.read(&mut [0; 10]).ok(), Some(0), "it is closed");
    }
    ours.stop();
}

#[test]
fn a_reload_takes_the_certificate_with_all_else_or_nothing() {
    let (folder, later) = (Folder::new(), Folder::new());
    let (first, second) = (Certificate::new(&folder), Certificate::new(&later));
    let mut ours = serve(&folder, &first);
    ours.call("PUT", "/v1/zones/example", "$TTL 60\n@ SOA ns hm 1 2 3 4 5\n@ NS ns\nns A 192.0.2.53\n");
    let at = ours.listening[1];
    let is_trusted = |authority: &str| kdig(at, authority, &["ns.example", "A"]).contains("192.0.2.53");
    let authority = folder.at("first authority");
    std::fs::copy(&first.authority, &authority).expect("there is room");
    assert!(is_trusted(&authority));

    // A certificate whose key is another's.
    std::fs::copy(&second.certificate, &first.certificate).expect("there is room");
    ours.program.signal(Signal::SIGHUP);
    ours.program.line("the key is not that of the first certificate");
    ours.program.line("not reloaded");
    assert!(is_trusted(&authority));

    std::fs::copy(&second.key, &first.key).expect("there is room");
    ours.program.signal(Signal::SIGHUP);
    ours.program.line("reloaded");
    assert!(is_trusted(&second.authority) && !is_trusted(&authority));
    ours.stop();
}
