//! Clients of `pointsman balance` over HTTPS: a resolver's tool, a browser's way, and requests that hold no query.

use std::net::SocketAddr;
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tests::balancing::Balancing;
use tests::certificate::Certificate;
use tests::folder::Folder;
use tests::peer::{Peer, free_address};
use tests::program::Program;
use tests::query::{Question, exchange, socket};
use tests::secondary::Make;

/// The media type of a message.
const MESSAGE: &str = "content-type: application/dns-message";

/// A balancer that answers over HTTPS, before BIND with a zone.
struct Balanced {
    folder: Folder,
    certificate: Certificate,
    _bind: Peer,
    balancing: Balancing,
    at: SocketAddr,
}

impl Balanced {
    fn start(more: &[&str]) -> Balanced {
        let folder = Folder::new();
        let zone = folder.write(
            "example.zone",
            "$TTL 60\n@ SOA ns hm 1 7200 600 86400 40\n@ NS ns\nns 120 A 192.0.2.53\n",
        );
        let zones = format!("zone \"example\" {{ type primary; file \"{zone}\"; }};\n");
        let bind = Make::Bind.start(&folder, free_address(), &zones);
        let certificate = Certificate::new(&folder);
        let arguments = ["--https-listen", "127.0.0.1:0", "--tls-certificate", &certificate.certificate];
        let arguments = [&arguments[..], &["--tls-key", &certificate.key, "--http", "127.0.0.1:0"], more];
        let balancing = Balancing::start(&[bind.dns], &arguments.concat());
        let at = balancing.https.expect("it was asked for");
        Balanced { folder, certificate, _bind: bind, balancing, at }
    }

    /// What kdig says of `ns.example A`.
    fn kdig(&self, more: &[&str]) -> String {
        let mut command = Command::new("kdig");
        let (server, port) = (format!("@{}", self.at.ip()), self.at.port().to_string());
        let trust = format!("+tls-ca={}", self.certificate.authority);
        command.args([&server, "-p", &port, &trust, "+tls-hostname=dns.example.com", "+timeout=20"]);
        command.args(["+retry=0", "+https=dns.example.com/dns-query"]).args(more).args(["ns.example", "A"]);
        let ended = Program::spawn(command).end();
        ended.stdout + &ended.stderr
    }

    /// What curl gets for a path: the head of the answer, and its body.
    fn curl(&self, path: &str, more: &[&str]) -> (String, Vec<u8>) {
        let body = self.folder.at("body");
        // An answer without one leaves none.
        let _ = std::fs::remove_file(&body);
        let mut command = Command::new("curl");
        command.args([
            "--silent",
            "--show-error",
            "--max-time",
            "20",
            "--dump-header",
            "-",
            "--output",
            &body,
        ]);
        let to = format!("dns.example.com:443:{}:{}", self.at.ip(), self.at.port());
        command.args(["--cacert", &self.certificate.authority, "--connect-to", &to]).args(more);
        command.arg(format!("https://dns.example.com{path}"));
        let ended = Program::spawn(command).end();
        assert!(ended.status.success(), "{}", ended.stderr);
        (ended.stdout.to_lowercase(), std::fs::read(&body).unwrap_or_default())
    }
}

/// A message in base64url.
fn base64url(message: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(message)
}

#[test]
fn queries_come_over_https_and_answers_are_padded() {
    for onward in ["tcp", "udp"] {
        let balanced = Balanced::start(&["--tcp", onward]);
        for method in ["+https-get", "+nohttps-get"] {
            let plain = balanced.kdig(&[method, "+nopadding"]);
            assert!(plain.contains("192.0.2.53") && plain.contains(";; HTTP session (HTTP/2-"), "{plain}");
            let padded = balanced.kdig(&[method, "+padding=128"]);
            assert!(padded.contains("192.0.2.53") && padded.contains("Received 468 B"), "{padded}");
        }
        assert_eq!(balanced.balancing.metric("pointsman_balance_queries_total"), 4.0);
        balanced.balancing.stop();
    }
}

#[test]
fn an_answer_is_that_over_udp_and_says_for_how_long_it_is_fresh() {
    let balanced = Balanced::start(&[]);
    for (question, fresh) in [
        (Question::new("ns.example", "A"), 120),
        (Question::new("no.example", "A"), 40),
        (Question::new("ns.example", "TXT"), 40),
        // Refused: it is not BIND's.
        (Question::new("other.test", "A"), 0),
    ] {
        let query = question.message();
        let expected = exchange(&socket(balanced.balancing.dns), &query).expect("an answer");
        balanced.folder.write("query", &query);
        let file = format!("@{}", balanced.folder.at("query"));
        let path = format!("/dns-query?dns={}", base64url(&query));
        let post = ["--header", MESSAGE, "--data-binary", &file];
        for (version, status) in [("--http1.1", "http/1.1 200 ok\r\n"), ("--http2", "http/2 200 \r\n")] {
            for (path, more) in [("/dns-query", &post[..]), (&path, &[])] {
                let (head, body) = balanced.curl(path, &[&[version], more].concat());
                assert!(head.starts_with(status) && head.contains(MESSAGE), "{head}");
                assert!(head.contains(&format!("cache-control: max-age={fresh}\r\n")), "{head}");
                assert_eq!(body, expected, "{head}");
            }
        }
    }
    balanced.balancing.stop();
}

#[test]
fn what_is_no_query_is_told_so() {
    let balanced = Balanced::start(&[]);
    let query = Question::new("ns.example", "A").message();
    balanced.folder.write("query", &query);
    balanced.folder.write("long", vec![0; 300_000]);
    let [file, long] = ["query", "long"].map(|name| format!("@{}", balanced.folder.at(name)));
    let (get, twice) =
        (format!("dns={}", base64url(&query)), format!("/dns-query?dns={0}&dns={0}", base64url(&query)));
    let (elsewhere, padded) = (format!("/?{get}"), format!("/dns-query?{get}=="));
    let cases: [(&str, &[&str], u16, &str); 12] = [
        (&elsewhere, &[], 404, "/dns-query"),
        ("/dns-query", &[], 400, "there is not one parameter dns"),
        (&twice, &[], 400, "there is not one parameter dns"),
        (&padded, &[], 400, "without padding"),
        ("/dns-query?dns=AAAA", &[], 400, "the message is no query"),
        ("/dns-query?dns=%ff", &[], 400, "base64url"),
        ("/dns-query", &["--request", "PUT", "--data-binary", &file], 405, "method"),
        // Who still sends when it is refused hears why.
        ("/dns-query", &["--request", "PUT", "--data-binary", &long], 405, "method"),
        (&elsewhere, &["--data-binary", &long], 404, "/dns-query"),
        ("/dns-query", &["--data-binary", &file], 415, "application/dns-message"),
        ("/dns-query", &["--header", MESSAGE, "--data-binary", &long], 413, "65535 octets"),
        ("/dns-query", &["--header", MESSAGE, "--data-binary", ""], 400, "a header of 12 octets"),
    ];
    for (path, more, status, told) in cases {
        for version in ["--http1.1", "--http2"] {
            let (head, body) = balanced.curl(path, &[&[version], more].concat());
            let body = String::from_utf8_lossy(&body);
            let is_as = head.split(' ').nth(1) == Some(&status.to_string()) && body.contains(told);
            assert!(is_as, "{path} {more:?} {version}: {head}{body}");
        }
    }
    let refused = balanced.balancing.metric("pointsman_balance_https_refused_total");
    assert_eq!(refused, 2.0 * cases.len() as f64);
    balanced.balancing.stop();
}
