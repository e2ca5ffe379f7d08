//! Clients of `pointsman balance` over QUIC: a resolver's tool, recorded traffic sent again, and who does not keep to the
//! protocol.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, VarInt};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tests::balancing::{Balancing, Scripted, answer};
use tests::certificate::Certificate;
use tests::folder::Folder;
use tests::peer::{Peer, free_address};
use tests::program::{PROGRAM_WAIT, Program};
use tests::query::{Answer, Question};
use tests::secondary::Make;

/// DOQ_PROTOCOL_ERROR (RFC 9250 §4.3).
const PROTOCOL_ERROR: u32 = 2;

/// A balancer that answers over QUIC.
struct Balanced {
    folder: Folder,
    certificate: Certificate,
    /// BIND with a zone, where that is its back end.
    _bind: Option<Peer>,
    balancing: Balancing,
    at: SocketAddr,
}

impl Balanced {
    /// One before BIND with a zone.
    fn start(more: &[&str]) -> Balanced {
        let folder = Folder::new();
        let zone = folder.write(
            "example.zone",
            "$TTL 60\n@ SOA ns hm 1 7200 600 86400 40\n@ NS ns\nns 120 A 192.0.2.53\n* A 192.0.2.1\n",
        );
        let zones = format!("zone \"example\" {{ type primary; file \"{zone}\"; }};\n");
        let bind = Make::Bind.start(&folder, free_address(), &zones);
        let balanced = Balanced::before(bind.dns, folder, more);
        Balanced { _bind: Some(bind), ..balanced }
    }

    fn before(back_end: SocketAddr, folder: Folder, more: &[&str]) -> Balanced {
        let certificate = Certificate::new(&folder);
        let arguments = ["--quic-listen", "127.0.0.1:0", "--tls-certificate", &certificate.certificate];
        let arguments = [&arguments[..], &["--tls-key", &certificate.key, "--http", "127.0.0.1:0"], more];
        let balancing = Balancing::start(&[back_end], &arguments.concat());
        let at = balancing.quic.expect("it was asked for");
        Balanced { folder, certificate, _bind: None, balancing, at }
    }

    /// What kdig says of `ns.example A`.
    fn kdig(&self, more: &[&str]) -> String {
        let mut command = Command::new("kdig");
        let (server, port) = (format!("@{}", self.at.ip()), self.at.port().to_string());
        let trust = format!("+tls-ca={}", self.certificate.authority);
        command.args([&server, "-p", &port, &trust, "+tls-hostname=dns.example.com", "+quic", "+timeout=20"]);
        command.args(["+retry=0"]).args(more).args(["ns.example", "A"]);
        let ended = Program::spawn(command).end();
        ended.stdout + &ended.stderr
    }

    /// A client that trusts it, from this address.
    async fn connect(&self, from: &str) -> Result<Connection, ConnectionError> {
        let mut trusted = RootCertStore::empty();
        trusted
            .add(CertificateDer::from_pem_file(&self.certificate.authority).expect("it was made"))
            .expect("an authority");
        let provider = rustls::crypto::ring::default_provider().into();
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has them")
            .with_root_certificates(trusted)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"doq".to_vec()];
        let crypto = QuicClientConfig::try_from(tls).expect("ring has TLS 1.3");
        let mut endpoint =
            Endpoint::client(SocketAddr::new(from.parse().expect("an address"), 0)).expect("loopback binds");
        endpoint.set_default_client_config(ClientConfig::new(Arc::new(crypto)));
        endpoint.connect(self.at, "dns.example.com").expect("it can be asked").await
    }
}

/// What comes back for what is sent over a stream.
async fn exchanged(connection: &Connection, frame: &[u8]) -> Option<Vec<u8>> {
    let (mut send, mut receive) = connection.open_bi().await.ok()?;
    send.write_all(frame).await.ok()?;
    send.finish().ok()?;
    receive.read_to_end(70_000).await.ok()
}

/// A question with its length before it, and this id.
fn frame(question: &Question, id: u16) -> Vec<u8> {
    let mut message = question.message();
    message[..2].copy_from_slice(&id.to_be_bytes());
    [&(message.len() as u16).to_be_bytes()[..], &message].concat()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[test]
fn queries_come_over_quic_and_answers_are_padded() {
    for onward in ["tcp", "udp"] {
        let balanced = Balanced::start(&["--tcp", onward]);
        let plain = balanced.kdig(&["+nopadding"]);
        assert!(plain.contains("192.0.2.53") && plain.contains(";; QUIC session (QUICv1)"), "{plain}");
        let padded = balanced.kdig(&["+padding=128"]);
        assert!(padded.contains("192.0.2.53") && padded.contains("Received 468 B"), "{padded}");
        assert_eq!(balanced.balancing.metric("pointsman_balance_queries_total"), 2.0);
        balanced.balancing.stop();
    }
}

#[test]
fn recorded_traffic_comes_over_quic() {
    let balanced = Balanced::start(&[]);
    let line = |at: usize| {
        format!("1{}.{:02} 192.0.2.{}:5353 udp n{at}.example. A rd\n", at / 100, at % 100, at % 6)
    };
    let trace = balanced.folder.write("queries.txt", (0..60).map(line).collect::<String>());
    let (to, port) = (balanced.at.to_string(), balanced.at.port().to_string());
    let all = [
        "replay",
        &trace,
        "--server",
        &to,
        "--quic-port",
        &port,
        "--tls-ca",
        &balanced.certificate.authority,
    ];
    let more = ["--transport", "quic=100%", "--tolerance", "24h", "--timeout", "30s", "--json"];
    let ended = Program::start(&[&all[..], &more].concat()).end();
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("a report");
    assert_eq!((&report["answers"], &report["rcodes"]["NOERROR"]), (&60.into(), &60.into()), "{report}");
    assert_eq!(report["sockets"]["quic"], 6, "{report}");
    balanced.balancing.stop();
}

#[test]
fn many_streams_are_answered_and_the_wrong_ones_end_their_connection() {
    let balanced = Balanced::start(&[]);
    runtime().block_on(async {
        let connection = balanced.connect("127.0.0.1").await.expect("it comes about");
        let mut asked = tokio::task::JoinSet::new();
        for at in 0..200 {
            let connection = connection.clone();
            asked.spawn(async move {
                let question = Question::new(&format!("n{at}.example"), "A").edns();
                exchanged(&connection, &frame(&question, 0)).await.expect("an answer")
            });
        }
        while let Some(answered) = asked.join_next().await {
            let answered = answered.expect("no panic");
            assert_eq!((answered.len() - 2) as u16, u16::from_be_bytes([answered[0], answered[1]]));
            assert_eq!(answered[2..4], [0, 0]);
            assert_eq!(Answer::read(&answered[2..]).data(), ["192.0.2.1"]);
        }
        let good = Question::new("ns.example", "A");
        let keepalive = good.clone().option(11, b"");
        for wrong in [
            frame(&good, 1),
            frame(&keepalive, 0),
            frame(&good, 0)[..20].to_vec(),
            [frame(&good, 0), frame(&good, 0)].concat(),
            vec![0; 65_538],
            Vec::new(),
        ] {
            let connection = balanced.connect("127.0.0.1").await.expect("it comes about");
            assert_eq!(exchanged(&connection, &wrong).await, None, "{wrong:?}");
            let ConnectionError::ApplicationClosed(closed) = connection.closed().await else {
                panic!("{wrong:?}")
            };
            assert_eq!(closed.error_code, VarInt::from_u32(PROTOCOL_ERROR), "{wrong:?}");
        }
        assert_eq!(balanced.balancing.metric("pointsman_balance_quic_refused_total"), 6.0);
        // Others went on meanwhile.
        assert!(exchanged(&connection, &frame(&good, 0)).await.is_some());
    });
    balanced.balancing.stop();
}

#[test]
fn strangers_hear_nothing_and_garbage_hinders_nobody() {
    let balanced = Balanced::start(&["--allow", "192.0.2.0/24"]);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
    for at in 0..2_000u16 {
        let garbage = [&[0xc0 | at as u8, 0, 0, 0, 1][..], &at.to_be_bytes(), &[at as u8; 1_200]].concat();
        // Its buffer may be full.
        let _ = socket.send_to(&garbage, balanced.at);
    }
    let told = balanced.kdig(&[]);
    assert!(told.contains("192.0.2.53"), "{told}");
    balanced.balancing.stop();
}

#[test]
fn a_stop_answers_what_is_under_way() {
    let (release, released) = mpsc::channel();
    let slow = Scripted::start(move |query, _, socket, from| {
        released.recv().expect("the test goes on");
        socket.send_to(&answer(query, 0), from).expect("loopback sends");
    });
    let more = ["--tcp", "udp", "--timeout", "20s", "--tries", "1"];
    let mut balanced = Balanced::before(slow.address, Folder::new(), &more);
    runtime().block_on(async {
        let connection = balanced.connect("127.0.0.1").await.expect("it comes about");
        let asking = connection.clone();
        let asked =
            tokio::spawn(
                async move { exchanged(&asking, &frame(&Question::new("ns.example", "A"), 0)).await },
            );
        let until = Instant::now() + PROGRAM_WAIT;
        while slow.asked() == 0 {
            assert!(Instant::now() < until);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        balanced.balancing.program.signal(Signal::SIGTERM);
        balanced.balancing.program.has_said("stopping");
        release.send(()).expect("it waits");
        let answered = asked.await.expect("no panic").expect("an answer");
        assert_eq!(Answer::read(&answered[2..]).rcode, "NOERROR");
        let ConnectionError::ApplicationClosed(closed) = connection.closed().await else {
            panic!("it is told")
        };
        assert_eq!(closed.error_code, VarInt::from_u32(0));
    });
    let ended = balanced.balancing.program.end();
    assert!(ended.status.success(), "{}", ended.stderr);
}
