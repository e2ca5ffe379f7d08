//! dnstap of `pointsman balance`: what clients ask and are answered, over whatever they ask.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use dns::dnstap::{Dnstap, Kind, Protocol};
use dns::frame_streams::{Frame, split_first};
use nix::sys::signal::Signal;
use tests::balancing::Balancing;
use tests::certificate::Certificate;
use tests::folder::Folder;
use tests::peer::{Peer, free_address};
use tests::program::{PROGRAM_WAIT, Program};
use tests::query::{self, Question, rest};
use tests::secondary::Make;

/// BIND with a zone.
fn bind(folder: &Folder) -> Peer {
    let zone = folder.write(
        "example.zone",
        "$TTL 60\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\nother A 192.0.2.1\n",
    );
    let zones = format!("zone \"example\" {{ type primary; file \"{zone}\"; }};\n");
    Make::Bind.start(folder, free_address(), &zones)
}

/// A balancer that writes dnstap to `t.dnstap`, with these further lines under its heading.
fn start(folder: &Folder, bind: &Peer, lines: &str, more: &[&str]) -> Balancing {
    let text = format!("version = \"v1\"\n[balance.dnstap]\nfile = \"t.dnstap\"\n{lines}\n");
    let config = folder.write("pointsman.toml", text);
    Balancing::start(&[bind.dns], &[&["--config", &config, "--http", "127.0.0.1:0"][..], more].concat())
}

/// A message that was told of.
#[derive(Debug)]
struct Told {
    kind: Kind,
    protocol: Option<Protocol>,
    ports: [Option<u16>; 2],
    octets: Vec<u8>,
}

/// The messages of a file that has ended in good order.
fn read(path: impl AsRef<Path>) -> Vec<Told> {
    let octets = fs::read(path).expect("it is there");
    let (mut rest, mut told, mut controls) = (&octets[..], Vec::new(), 0);
    while let Some((frame, behind)) = split_first(rest).expect("well-formed") {
        rest = behind;
        let Frame::Payload(payload) = frame else {
            controls += 1;
            continue;
        };
        let Dnstap { identity, message, .. } = Dnstap::read(payload).expect("a message");
        assert_eq!(identity, b"edge");
        let is_query = message.kind.is_query();
        assert_eq!((message.query.is_some(), message.response.is_some()), (is_query, !is_query));
        assert_eq!((message.query_time.is_some(), message.response_time.is_some()), (true, !is_query));
        assert!(message.response_time.is_none() || message.response_time >= message.query_time);
        told.push(Told {
            kind: message.kind,
            protocol: message.protocol,
            ports: [message.query_port, message.response_port],
            octets: message.query.or(message.response).expect("one of them").to_vec(),
        });
    }
    assert_eq!((controls, rest.len()), (2, 0), "START and STOP");
    told
}

#[test]
fn clients_and_what_they_are_answered_are_told_over_any_transport() {
    let folder = Folder::new();
    let (bind, certificate) = (bind(&folder), Certificate::new(&folder));
    let more = ["--tls-listen", "127.0.0.1:0", "--https-listen", "127.0.0.1:0", "--tls-certificate"];
    let more =
        [&more[..], &[&certificate.certificate, "--tls-key", &certificate.key, "--cache", "1 MiB"]].concat();
    let balancing = start(&folder, &bind, "identity = \"edge\"", &more);
    let socket = query::socket(balancing.dns);
    let port = socket.local_addr().expect("it is bound").port();
    // The second one's answer is from the cache.
    let asked = [("ns.example", 7), ("ns.example", 9), ("none.example", 11)].map(|(name, id)| {
        let mut message = Question::new(name, "A").edns().message();
        message[1] = id;
        let answer = query::exchange(&socket, &message).expect("an answer");
        [message, answer]
    });
    let mut tcp = query::connect(balancing.dns);
    let message = Question::new("other.example", "A").message();
    query::send(&mut tcp, &message).expect("it is taken");
    let over_tcp = [message, query::receive(&mut tcp).expect("an answer")];
    for (at, way) in [(balancing.tls, "+tls"), (balancing.https, "+https=dns.example.com/dns-query")] {
        let at = at.expect("it was asked for");
        let (server, port) = (format!("@{}", at.ip()), at.port().to_string());
        let trust = format!("+tls-ca={}", certificate.authority);
        let mut command = Command::new("kdig");
        command.args([&server, "-p", &port, &trust, "+tls-hostname=dns.example.com", "+timeout=20", way]);
        command.args(["ns.example", "A"]);
        let ended = Program::spawn(command).end();
        assert!(ended.stdout.contains("192.0.2.53"), "{way}: {}{}", ended.stdout, ended.stderr);
    }
    let until = Instant::now() + PROGRAM_WAIT;
    while balancing.metric("pointsman_balance_dnstap_written_total") < 12.0 {
        assert!(Instant::now() < until);
        rest();
    }
    let dns = balancing.dns;
    balancing.stop();
    let told = read(folder.at("t.dnstap"));
    let over = |protocol: Protocol| {
        let of_it = told.iter().filter(move |told| told.protocol == Some(protocol));
        of_it.map(|told| (told.kind, told.octets.clone())).collect::<Vec<_>>()
    };
    let both = |[query, answer]: [Vec<u8>; 2]| [(Kind::CLIENT_QUERY, query), (Kind::CLIENT_RESPONSE, answer)];
    assert_eq!(over(Protocol::Udp), asked.into_iter().flat_map(both).collect::<Vec<_>>());
    assert_eq!(over(Protocol::Tcp), both(over_tcp));
    let datagrams = told.iter().filter(|told| told.protocol == Some(Protocol::Udp));
    assert!(datagrams.into_iter().all(|told| told.ports == [Some(port), Some(dns.port())]), "{told:?}");
    for protocol in [Protocol::Dot, Protocol::Doh] {
        let kinds: Vec<Kind> = over(protocol).into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(kinds, [Kind::CLIENT_QUERY, Kind::CLIENT_RESPONSE], "{protocol:?}");
    }
}

#[test]
fn a_hang_up_begins_another_file_and_samples_are_whole() {
    let folder = Folder::new();
    let bind = bind(&folder);
    let mut balancing = start(&folder, &bind, "identity = \"edge\"\nsample = 2", &["--workers", "1"]);
    let ask = |balancing: &Balancing| {
        for _ in 0..4 {
            assert_eq!(Question::new("ns.example", "A").udp(balancing.dns).data(), ["192.0.2.53"]);
        }
    };
    ask(&balancing);
    balancing.program.signal(Signal::SIGHUP);
    balancing.program.line("dnstap begins");
    ask(&balancing);
    balancing.stop();
    let names = fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("an entry").path());
    let files: Vec<_> = names.filter(|path| path.to_string_lossy().contains("t.dnstap")).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    let (query, response) = (Kind::CLIENT_QUERY, Kind::CLIENT_RESPONSE);
    for file in files {
        let kinds: Vec<Kind> = read(&file).into_iter().map(|told| told.kind).collect();
        assert_eq!(kinds, [query, response, query, response], "{}", file.display());
    }
}

#[test]
fn where_nothing_can_be_written_nothing_starts() {
    let folder = Folder::new();
    let text = "version = \"v1\"\n[balance]\nbackend = [\"127.0.0.1:53\"]\n[balance.dnstap]\nfile = \"nowhere/t\"\nsample = 0\n";
    let config = folder.write("pointsman.toml", text);
    let ended = Program::start(&["balance", "--config", &config, "--check"]).end();
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    for line in ["5:8: file is", "6:10: sample is the number 0"] {
        assert!(ended.stderr.contains(line), "{}", ended.stderr);
    }
}
