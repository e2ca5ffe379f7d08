//! Recorded traffic sent again over what is encrypted, to Debian's servers.

use std::sync::atomic::Ordering;

use serde_json::Value;
use tests::certificate::Certificate;
use tests::folder::Folder;
use tests::peer::Encrypted;
use tests::program::{Ended, Program};
use tests::quic::QuicServer;

/// A tolerance that no machine misses: time is not what these tests are about.
const ANY: [&str; 2] = ["--tolerance", "24h"];

fn replay(arguments: &[&str]) -> Ended {
    // A debug build on a busy machine takes long for handshakes; a test that is about loss says so behind this.
    let patient: &[&str] = if arguments.contains(&"--timeout") { &[] } else { &["--timeout", "30s"] };
    Program::start(&[&["replay"], arguments, &ANY, patient].concat()).end()
}

fn reported(arguments: &[&str]) -> Value {
    let ended = replay(&[arguments, &["--json"]].concat());
    assert_eq!(ended.status.code(), Some(0), "{arguments:?}: {}{}", ended.stdout, ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap_or_else(|cause| panic!("{cause}: {}", ended.stdout))
}

/// `count` queries of `clients` clients, so many milliseconds apart.
fn trace(folder: &Folder, count: usize, clients: usize, gap: usize) -> String {
    let line = |at: usize| {
        let (client, seconds, millis) = (at % clients, 10 + at * gap / 1_000, at * gap % 1_000);
        format!("{seconds}.{millis:03} 192.0.2.{client}:5353 udp n{at}.example.com. A rd,edns=1232\n")
    };
    folder.write("queries.txt", (0..count).map(line).collect::<String>())
}

#[test]
fn each_client_has_a_connection_under_tls_and_comes_back_with_its_session() {
    let folder = Folder::new();
    let certificate = Certificate::new(&folder);
    let server = Encrypted::unbound(&folder, &certificate);
    let (to, port) = (server.dns.to_string(), server.tls.to_string());
    let trace = trace(&folder, 60, 6, 5);
    let all = [&trace, "--server", &to, "--tls-port", &port, "--tls-ca", &certificate.authority];
    let tls = [&all[..], &["--transport", "tls=100%"]].concat();
    let sockets = |report: &Value, key: &str| report["sockets"][key].as_u64().expect("a count");
    for more in [&[][..], &["--tls-name", "dns.example.com"], &["--threads", "2", "--fast"]] {
        let report = reported(&[&tls[..], more].concat());
        assert_eq!((&report["answers"], &report["rcodes"]["NOERROR"]), (&60.into(), &60.into()), "{report}");
        assert_eq!(report["transports"]["tls"], 60, "{report}");
        // One connection a client serves all its queries.
        let opened = ["udp", "tcp", "tls", "tcp_established", "handshakes_full", "handshakes_resumed"]
            .map(|key| sockets(&report, key));
        assert_eq!(opened, [0, 0, 6, 6, 6, 0], "{report}");
    }
    // Queries of a client are 300 ms apart, longer than Unbound takes with Nagle's delay and the kernel's of
    // acknowledgements: each needs a connection of its own if that idles for less.
    let brief = [&tls[..], &["--idle", "1ms", "--speed", "0.1"]].concat();
    let report = reported(&brief);
    assert_eq!(report["answers"], 60, "{report}");
    assert!(sockets(&report, "closed_idle") > 30 && sockets(&report, "tls") > 30, "{report}");
    assert!(sockets(&report, "handshakes_resumed") > sockets(&report, "handshakes_full"), "{report}");
    let report = reported(&[&brief[..], &["--no-resumption"]].concat());
    assert_eq!((&report["answers"], sockets(&report, "handshakes_resumed")), (&60.into(), 0), "{report}");
    // A client has one transport, all along.
    let report =
        reported(&[&all[..], &["--transport", "udp=40%,tcp=30%,tls=30%", "--factor", "20"]].concat());
    assert_eq!((&report["answers"], &report["lost_by"]), (&1_200.into(), &serde_json::json!({})));
    for transport in ["udp", "tcp", "tls"] {
        let queries = report["transports"][transport].as_u64().expect("a count");
        assert!(queries.is_multiple_of(10) && (200..700).contains(&queries), "{report}");
        assert_eq!(sockets(&report, transport), queries / 10, "{report}");
    }
}

/// Replays over one carrier, to Debian's server or to one of our own; what holds for each of them.
fn over(folder: &Folder, certificate: &Certificate, to: &[&str], carrier: &str) {
    let share = format!("{carrier}=100%");
    // Queries of a client are 60 ms apart.
    let trace = trace(folder, 48, 6, 10);
    let all = [&[trace.as_str()], to, &["--transport", &share, "--tls-ca", &certificate.authority]].concat();
    for more in [&[][..], &["--tls-name", "dns.example.com"], &["--threads", "2", "--fast"]] {
        let report = reported(&[&all[..], more].concat());
        let opened =
            ["tcp", carrier, "handshakes_full", "handshakes_resumed"].map(|key| &report["sockets"][key]);
        assert_eq!((&report["answers"], &report["rcodes"]["NOERROR"]), (&48.into(), &48.into()), "{report}");
        assert_eq!(opened, [&0.into(), &6.into(), &6.into(), &0.into()] as [&Value; 4], "{report}");
        assert_eq!(
            (&report["transports"][carrier], &report["unexpected"]["aliens"]),
            (&48.into(), &0.into())
        );
    }
    // Ten times as far apart, each is answered before the next, also on a busy machine.
    let brief = [&all[..], &["--idle", "1ms", "--speed", "0.1"]].concat();
    let report = reported(&brief);
    let count = |key: &str| report["sockets"][key].as_u64().expect("a count");
    assert_eq!(report["answers"], 48, "{report}");
    assert!(count(carrier) > 12 && count("closed_idle") > 12, "{}", report["sockets"]);
    assert!(count("handshakes_resumed") > count("handshakes_full"), "{report}");
    let report = reported(&[&brief[..], &["--no-resumption"]].concat());
    assert_eq!(
        (&report["answers"], &report["sockets"]["handshakes_resumed"]),
        (&48.into(), &0.into()),
        "{report}"
    );
    // Queries wait for room beyond what the server takes at once.
    let report = reported(&[&all[..], &["--fast", "--loop", "30", "--window", "1000"]].concat());
    assert_eq!(report["answers"], 48 * 30, "{report}");
    // A first answer takes so many round trips: QUIC has one less.
    let distant = [&all[..], &["--rtt", "50ms..50ms", "--limit", "6"]].concat();
    let report = reported(&distant);
    let least = report["latency_us"]["min"].as_f64().expect("a time");
    let round_trips = if carrier == "quic" { 2.0 } else { 3.0 };
    assert!(report["answers"] == 6 && least >= 49_900.0 * round_trips, "{report}");
    let wrong = [&[trace.as_str()], to, &["--transport", &share]].concat();
    let ended = replay(&wrong);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("does not verify for 127.0.0.1"), "{}", ended.stderr);
    assert_eq!(reported(&[&wrong[..], &["--insecure"]].concat())["answers"], 48);
}

#[test]
fn over_https_too() {
    let folder = Folder::new();
    let certificate = Certificate::new(&folder);
    let server = Encrypted::unbound(&folder, &certificate);
    let (to, port) = (server.dns.to_string(), server.https.to_string());
    let to = ["--server", to.as_str(), "--https-port", port.as_str()];
    over(&folder, &certificate, &to, "https");
    // Another path is none of its endpoints.
    let trace = trace(&folder, 6, 2, 1);
    let elsewhere =
        [&[trace.as_str(), "--transport", "https=100%", "--insecure"], &to[..], &["--https-path", "/"]];
    let ended = replay(&elsewhere.concat());
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("http-status 6") && ended.stderr.contains("HTTP status 404"),
        "{}",
        ended.stderr
    );
}

#[test]
fn over_quic_too() {
    let folder = Folder::new();
    let certificate = Certificate::new(&folder);
    let server = QuicServer::start(&certificate);
    let (to, port) = (server.address.to_string(), server.address.port().to_string());
    over(&folder, &certificate, &["--server", &to, "--quic-port", &port], "quic");
    assert!(server.connections.load(Ordering::Relaxed) > 18);
    assert_eq!(server.faults.load(Ordering::Relaxed), 0, "each query is as RFC 9250 wants it");
    // Where nobody listens.
    drop(server);
    let trace = trace(&folder, 6, 2, 1);
    let nobody = [&trace, "--server", &to, "--quic-port", &port, "--transport", "quic=100%", "--insecure"];
    let ended = replay(&nobody);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("port unreachable 6"), "{}", ended.stderr);
}

#[test]
fn a_certificate_that_does_not_verify_ends_the_run_unless_any_is_taken() {
    let folder = Folder::new();
    let certificate = Certificate::new(&folder);
    let server = Encrypted::unbound(&folder, &certificate);
    let (to, port) = (server.dns.to_string(), server.tls.to_string());
    let trace = trace(&folder, 10, 2, 1);
    let tls = [&trace, "--server", &to, "--tls-port", &port, "--transport", "tls=100%"];
    for (more, code, part) in [
        // The host's authorities know nothing of ours.
        (&[][..], 1, "does not verify for 127.0.0.1: invalid peer certificate: UnknownIssuer"),
        (
            &["--tls-ca", &certificate.authority, "--tls-name", "other.example"],
            1,
            "does not verify for other.example",
        ),
        (&["--tls-ca", &certificate.authority, "--tls-name", "not a name"], 2, "--tls-name"),
        (&["--tls-ca", &trace], 2, "no certificate is in it"),
        (&["--tls-ca", "/no/such/file"], 2, "cannot be read"),
    ] {
        let ended = replay(&[&tls[..], more].concat());
        assert_eq!(ended.status.code(), Some(code), "{more:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(part), "no '{part}' in: {}", ended.stderr);
        assert!(code == 2 || ended.stderr.contains("--insecure"), "{}", ended.stderr);
    }
    assert_eq!(reported(&[&tls[..], &["--insecure"]].concat())["answers"], 10);
    // What speaks no TLS is told, too, with the port where that was tried.
    let elsewhere = format!("{}:1", server.dns.ip());
    let plain = [&trace, "--server", &elsewhere, "--tls-port", &server.dns.port().to_string(), "--insecure"];
    let ended = replay(&[&plain[..], &["--transport", "tls=100%", "--timeout", "500ms"]].concat());
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("nobody answered at {}:", server.dns)), "{}", ended.stderr);
}

#[test]
fn distance_is_felt_in_each_round_trip() {
    let folder = Folder::new();
    let certificate = Certificate::new(&folder);
    let server = Encrypted::unbound(&folder, &certificate);
    let (to, port) = (server.dns.to_string(), server.tls.to_string());
    let trace = trace(&folder, 4, 4, 1);
    let all = [&trace, "--server", &to, "--tls-port", &port, "--transport"];
    let least = |more: &[&str]| {
        let report = reported(&[&all[..], more].concat());
        assert_eq!((&report["answers"], &report["unexpected"]["aliens"]), (&4.into(), &0.into()), "{report}");
        report["latency_us"]["min"].as_f64().expect("a time")
    };
    // A first answer takes so many round trips.
    for (transport, round_trips) in
        [(&["udp=100%"][..], 1.0), (&["tcp=100%"], 2.0), (&["tls=100%", "--insecure"], 3.0)]
    {
        let rtt = folder.write("rtt", "# milliseconds\n50ms\n");
        for rtt in ["50ms..50ms", &rtt] {
            let least = least(&[transport, &["--rtt", rtt]].concat());
            assert!(least >= 49_900.0 * round_trips, "{least} over {transport:?}");
        }
    }
    let shared = least(&["udp=100%", "--rtt", "50ms..60ms", "--source-prefix", "127.1.0.0/16"]);
    assert!(shared >= 49_900.0, "{shared}");
    // The log tells each client's.
    let log = folder.at("log");
    least(&["tcp=100%", "--rtt", "10ms..90ms", "--log", &log, "--seed", "3"]);
    let rows = std::fs::read_to_string(&log).expect("it was written");
    let times = rows.lines().skip(1).filter_map(|row| row.rsplit_once('\t')?.1.parse::<u64>().ok());
    let times: Vec<u64> = times.collect();
    assert!(times.len() == 4 && times.iter().all(|time| (10_000..90_000).contains(time)), "{rows}");
    for wrong in ["140ms..0", "0..1h", "/no/such/file"] {
        let ended = replay(&[&all[..], &["udp=100%", "--rtt", wrong]].concat());
        assert_eq!(ended.status.code(), Some(2), "{wrong}: {}", ended.stderr);
    }
}
