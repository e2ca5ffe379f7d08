//! dnstap output: what is asked and answered is what the reader gets, and no reader stops answers.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use dns::frame_streams::{Control, DNSTAP, push_control};
use nix::sys::signal::Signal;
use replay::trace::{Trace, Transport};
use tests::folder::Folder;
use tests::program::{PROGRAM_WAIT, Program};
use tests::query::{self, Question};
use tests::serving::Serving;

/// A zone whose text makes large answers.
const ZONE: &str = "\
$ORIGIN example.com.
@ 60 SOA ns a 1 2 3 4 5
@ 60 NS ns
ns 60 A 192.0.2.53
big 60 TXT 0123456789012345678901234567890123456789012345678901234567890123456789\
0123456789012345678901234567890123456789012345678901234567890123456789
";

/// A server with one worker that has this section for dnstap.
fn serve(folder: &Folder, section: &str) -> Serving {
    let zone = folder.write("example.com.zone", ZONE);
    let text = format!("version = \"v1\"\nnsid = \"fra1\"\n[dnstap]\n{section}\n");
    let config = folder.write("pointsman.toml", text);
    Serving::start(folder, &["--config", &config, "--zone", &zone, "--workers", "1"])
}

/// Messages with how they went.
type Messages = Vec<(Transport, Vec<u8>)>;

/// Asks over both transports; returns the queries and the answers.
fn ask(serving: &Serving) -> (Messages, Messages) {
    let (mut queries, mut answers) = (Vec::new(), Vec::new());
    let udp = query::socket(serving.dns());
    let mut tcp = query::connect(serving.dns());
    for (name, rtype) in [("ns.example.com", "A"), ("big.example.com", "TXT"), ("none.example.com", "A")] {
        let message = Question::new(name, rtype).edns().message();
        let answer = query::exchange(&udp, &message).expect("an answer");
        queries.push((Transport::Udp, message));
        answers.push((Transport::Udp, answer));
        let message = Question::new(name, rtype).message();
        query::send(&mut tcp, &message).expect("the server takes it");
        queries.push((Transport::Tcp, message));
        answers.push((Transport::Tcp, query::receive(&mut tcp).expect("an answer")));
    }
    (queries, answers)
}

/// The queries and the answers in a file, those over UDP first, for rings are not in step.
fn read(path: impl AsRef<Path>, serving_at: std::net::SocketAddr) -> (Messages, Messages) {
    let mut trace = Trace::open(path.as_ref(), serving_at.port()).expect("a trace");
    assert_eq!(trace.format(), "dnstap");
    let messages: Vec<_> = trace.by_ref().map(|message| message.expect("no damage")).collect();
    assert!(messages.iter().all(|m| m.server == serving_at && m.client.ip() == serving_at.ip()));
    let (answers, queries): (Vec<_>, Vec<_>) = messages.into_iter().partition(|m| m.is_response());
    let part = |messages: Vec<replay::trace::Message>| {
        by_transport(messages.into_iter().map(|m| (m.transport, m.octets)).collect())
    };
    (part(queries), part(answers))
}

fn by_transport(mut messages: Messages) -> Messages {
    messages.sort_by_key(|(transport, _)| *transport);
    messages
}

fn sorted((queries, answers): (Messages, Messages)) -> (Messages, Messages) {
    (by_transport(queries), by_transport(answers))
}

#[test]
fn files_hold_what_was_asked_and_answered_and_none_is_overwritten() {
    let folder = Folder::new();
    let path = folder.write("t.dnstap", "an older file");
    let mut serving = serve(&folder, "file = \"t.dnstap\"");
    let address = serving.dns();
    let first = ask(&serving);
    serving.program.signal(Signal::SIGHUP);
    serving.program.line("dnstap begins");
    let second = ask(&serving);
    serving.stop();

    let (mut older, mut ended) = (0, 0);
    for entry in fs::read_dir(folder.path()).expect("a folder") {
        let aside = entry.expect("an entry").path();
        if !aside.to_string_lossy().contains("t.dnstap.") {
            continue;
        }
        if fs::read(&aside).expect("a file") == b"an older file" {
            older += 1;
        } else {
            assert_eq!(read(&aside, address), sorted(first.clone()));
            ended += 1;
        }
    }
    assert_eq!((older, ended), (1, 1));
    assert_eq!(read(&path, address), sorted(second));
    match Command::new("dnstap-read").arg(&path).output() {
        Ok(told) => {
            let text = String::from_utf8_lossy(&told.stdout);
            assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
            // AQ and AR: what an authoritative server received and sent.
            assert!(text.contains(" AQ ") && text.contains(" AR "), "{text}");
            assert_eq!(text.lines().count(), 12, "{text}");
        }
        Err(cause) => tests::data::skip(&format!("dnstap-read does not start: {cause}")),
    }
}

#[test]
fn a_file_ends_at_its_limit_and_another_begins_when_that_is_wished() {
    const LIMIT: u64 = 64 << 10;
    let folder = Folder::new();
    let mut serving = serve(&folder, "file = \"t\"\nfile_max = \"64 KiB\"");
    let mut told = 0;
    for _ in 0..80 {
        let (queries, answers) = ask(&serving);
        told += (queries.len() + answers.len()) as u64;
    }
    serving.program.line("the file is full");
    serving.program.signal(Signal::SIGHUP);
    // It empties the rings first.
    serving.program.line("dnstap begins");
    let metrics = serving.call("GET", "/metrics", "").text();
    let read_metric = |name: &str| -> u64 {
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        value.trim().parse().expect("a number")
    };
    let written = read_metric("pointsman_dnstap_written_total ");
    let beyond = read_metric("pointsman_dnstap_dropped_total{cause=\"limit\"} ");
    assert!(beyond > 0 && written > 0);
    assert_eq!(written + beyond, told);
    let address = serving.dns();
    serving.stop();
    let older = fs::read_dir(folder.path())
        .expect("it is there")
        .filter_map(|entry| entry.ok())
        .map(|entry| entry.path());
    let older: Vec<_> = older
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("t.")))
        .collect();
    assert_eq!(older.len(), 1, "{older:?}");
    let size = fs::metadata(&older[0]).expect("it is there").len();
    assert!(size <= LIMIT, "{size}");
    let (queries, answers) = read(&older[0], address);
    assert_eq!((queries.len() + answers.len()) as u64, written);
}

#[test]
fn a_file_that_cannot_be_written_goes_on_once_it_can() {
    let folder = Folder::new();
    let mut serving = serve(&folder, "file = \"t.dnstap\"");
    let pid = serving.program.pid();
    let limit = |octets: &str| {
        let mut command = Command::new("prlimit");
        let status = command.args([format!("--pid={pid}"), format!("--fsize={octets}:")]).status();
        assert!(status.is_ok_and(|status| status.success()));
    };
    limit("4096");
    let mut told = 0;
    let mut ask = |serving: &Serving| {
        let (queries, answers) = ask(serving);
        told += (queries.len() + answers.len()) as u64;
        told
    };
    for _ in 0..10 {
        ask(&serving);
    }
    serving.program.line("dnstap is not written");
    limit("unlimited");
    let told = ask(&serving);
    let counted = |serving: &Serving| {
        let metrics = serving.call("GET", "/metrics", "").text();
        let read = |name: &str| -> u64 {
            let value = metrics.lines().find_map(|line| line.strip_prefix(name)).expect(name);
            value.trim().parse().expect("a number")
        };
        (read("pointsman_dnstap_written_total "), read("pointsman_dnstap_dropped_total{cause=\"failed\"} "))
    };
    let (mut written, mut failed) = counted(&serving);
    let until = Instant::now() + PROGRAM_WAIT;
    while written + failed < told {
        assert!(Instant::now() < until, "{written} written and {failed} failed of {told}");
        (written, failed) = counted(&serving);
    }
    let address = serving.dns();
    serving.stop();
    assert!(failed > 0, "{written} written");
    let (queries, answers) = read(folder.at("t.dnstap"), address);
    assert_eq!((queries.len() + answers.len()) as u64, written);
    let names = fs::read_dir(folder.path()).expect("it is there").filter_map(|entry| entry.ok());
    let aside = names.filter(|entry| entry.file_name().to_string_lossy().starts_with("t.dnstap."));
    assert_eq!(aside.count(), 0, "nothing torn is put aside");
}

#[test]
fn one_query_in_so_many_is_told_and_only_what_is_chosen() {
    let folder = Folder::new();
    let serving = serve(&folder, "file = \"t.dnstap\"\nsample = 3\nmessages = [\"query\"]");
    let address = serving.dns();
    let (queries, _) = ask(&serving);
    serving.stop();
    // The first of three over UDP, and of three over TCP.
    assert_eq!(read(folder.at("t.dnstap"), address), (queries[..2].to_vec(), Vec::new()));
}

#[test]
fn a_wrong_path_is_told_before_anything_is_imported() {
    let folder = Folder::new();
    let zone = folder.write("example.com.zone", ZONE);
    let store = folder.at("store.db");
    let from = ["--zone", &zone, "--store", &format!("sqlite:{store}")];
    let (nowhere, beside) = ("nowhere/t", "example.com.zone");
    for (key, name, found) in [
        ("file", nowhere, "it cannot be written: there is no such folder"),
        ("socket", beside, "it is there and no socket"),
    ] {
        let text = format!("version = \"v1\"\nworkers = 0\n[dnstap]\n{key} = \"{name}\"\n");
        let config = folder.write("p.toml", text);
        for more in [&["--check"][..], &["--listen", "127.0.0.1:0", "--api", "127.0.0.1:0"]] {
            let ended = Program::start(&[&["serve", "--config", &config], &from[..], more].concat()).end();
            assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
            let path = folder.at(name);
            for wrong in [format!("{config}:2:11: workers"), format!("{path}, and {found}")] {
                assert!(ended.stderr.contains(&wrong), "{wrong}: {}", ended.stderr);
            }
            assert!(!Path::new(&store).exists(), "{more:?} has begun to import");
        }
    }
}

#[test]
fn fstrm_capture_gets_all_from_the_socket() {
    let folder = Folder::new();
    let (socket, captured) = (folder.at("s"), folder.at("captured.dnstap"));
    let mut serving = serve(&folder, "socket = \"s\"");
    // It is tried again until somebody listens.
    let mut command = Command::new("fstrm_capture");
    if command.arg("--help").output().is_err() {
        tests::data::skip("fstrm_capture is not here");
        return;
    }
    let mut command = Command::new("fstrm_capture");
    command.args(["-t", "protobuf:dnstap.Dnstap", "-u", &socket, "-w", &captured]);
    let capture = Program::spawn(command);
    serving.program.line("dnstap begins");
    let address = serving.dns();
    let asked = ask(&serving);
    serving.stop();
    capture.signal(Signal::SIGTERM);
    capture.end();
    assert_eq!(read(captured, address), sorted(asked));
}

#[test]
fn a_reader_that_never_reads_costs_messages_and_no_answer() {
    /// Far more than socket and ring hold, at some 400 octets each.
    const QUERIES: usize = 8_000;
    let folder = Folder::new();
    let listener = UnixListener::bind(folder.at("s")).expect("a socket");
    let mut serving = serve(&folder, "socket = \"s\"");
    let (mut reader, _) = listener.accept().expect("the server comes");
    reader.set_read_timeout(Some(PROGRAM_WAIT)).expect("the bound is not zero");
    let mut frame = Vec::new();
    push_control(&mut frame, Control::Ready, Some(DNSTAP));
    let mut octets = vec![0; frame.len()];
    reader.read_exact(&mut octets).expect("READY");
    assert_eq!(octets, frame);
    frame.clear();
    push_control(&mut frame, Control::Accept, Some(DNSTAP));
    reader.write_all(&frame).expect("the server reads");
    serving.program.line("dnstap begins");

    let client = query::socket(serving.dns());
    for _ in 0..QUERIES {
        Question::new("big.example.com", "TXT").at(&client);
    }
    let metrics = serving.call("GET", "/metrics", "").text().to_owned();
    let dropped = metrics.lines().find_map(|line| {
        line.strip_prefix("pointsman_dnstap_dropped_total{cause=\"full\"} ")
            .and_then(|n| n.parse::<u64>().ok())
    });
    assert!(dropped.is_some_and(|dropped| dropped > 0), "{metrics}");
    serving.stop();
}
