//! An acknowledged update: seen by every query after it, and there after any crash.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};

use nix::sys::signal::Signal;
use tests::folder::Folder;
use tests::http::Client;
use tests::program::PROGRAM_WAIT;
use tests::query::{Question, connect, receive, send, socket};
use tests::serving::Serving;

const ZONE: &str = "\
$TTL 300
@ SOA ns hm 1 7200 600 86400 60
@ NS ns
ns A 192.0.2.53
";

/// Workers: more than the cores of a small machine, so that some are always behind.
const WORKERS: &str = "4";

/// How often the policy is put.
const CHANGES: u32 = 200;

/// Sockets that ask after each change. The system chooses a worker by the asker's port: that any of the four is
/// chosen for none of 48 sockets has a probability of 4 in a million.
const SOCKETS: usize = 48;

/// How often the program is killed.
const KILLS: u32 = 50;

/// Clients that make changes when it is killed.
const WRITERS: usize = 3;

/// A policy whose one server is the number `version`.
fn policy(version: u32) -> String {
    let [_, b, c, d] = version.to_be_bytes();
    format!(r#"{{"servers":[{{"address":"10.{b}.{c}.{d}","default":{{"ttl":{version}}}}}]}}"#)
}

/// The version that an answer came from.
fn version(data: &[&str]) -> u32 {
    let [address] = data else { panic!("one address, not {data:?}") };
    let octets: std::net::Ipv4Addr = address.parse().expect("an address");
    u32::from(octets) & 0x00ff_ffff
}

#[test]
fn every_query_after_the_answer_sees_the_change() {
    let folder = Folder::new();
    let zone = folder.write("example.com.zone", ZONE);
    let server = Serving::start(&folder, &["--zone", &zone, "--workers", WORKERS]);
    let question = Question::new("www.example.com", "A");
    let sockets: Vec<UdpSocket> = (0..SOCKETS).map(|_| socket(server.dns())).collect();
    let mut stream = connect(server.dns());
    let mut client = server.client();
    let dns = server.dns();
    let put = |client: &mut Client, version: u32| {
        let response = client.call("PUT", "/v1/policies/www.example.com", &policy(version));
        assert_eq!(response.status, 200, "{}", response.text());
    };
    put(&mut client, 1);
    let acknowledged = AtomicU32::new(1);
    let done = AtomicBool::new(false);
    let asked_meanwhile: u64 = std::thread::scope(|scope| {
        // Others ask all the time, so that workers are at work when the change comes.
        let askers: Vec<_> =
            (0..2).map(|_| scope.spawn(|| ask_meanwhile(&question, dns, &acknowledged, &done))).collect();
        let ending = Ending(&done);
        for next in 2..=CHANGES {
            put(&mut client, next);
            acknowledged.store(next, Ordering::SeqCst);
            // One socket after the other would give slow workers time; all are asked, then all are read.
            let messages: Vec<Vec<u8>> = sockets.iter().map(|_| question.message()).collect();
            for (socket, message) in sockets.iter().zip(&messages) {
                socket.send(message).expect("loopback sends");
            }
            send(&mut stream, &question.message()).expect("the server takes it");
            for socket in &sockets {
                let mut reply = [0; 512];
                let length = socket.recv(&mut reply).expect("an answer");
                assert_eq!(version(&tests::query::Answer::read(&reply[..length]).data()), next, "over UDP");
            }
            let reply = receive(&mut stream).expect("an answer");
            assert_eq!(version(&tests::query::Answer::read(&reply).data()), next, "over TCP");
        }
        drop(ending);
        askers.into_iter().map(|asker| asker.join().expect("an asker sees no old answer")).sum()
    });
    assert!(asked_meanwhile > 0);
}

/// Sets a flag when it is dropped, in a panic too: others wait for it.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Asks until `done`; no answer may be older than what was acknowledged before it was asked for.
fn ask_meanwhile(
    question: &Question,
    server: SocketAddr,
    acknowledged: &AtomicU32,
    done: &AtomicBool,
) -> u64 {
    let mut asked = 0;
    while !done.load(Ordering::SeqCst) {
        // A socket each time: a worker each time.
        let socket = socket(server);
        let least = acknowledged.load(Ordering::SeqCst);
        let seen = version(&question.at(&socket).data());
        assert!(seen >= least, "version {seen} is answered after {least} was acknowledged");
        asked += 1;
    }
    asked
}

/// What a writer knows of its policy.
#[derive(Clone, Copy, Default)]
struct Known {
    /// The last version that was acknowledged.
    acknowledged: u32,
    /// The last version that was sent.
    sent: u32,
    /// The generation of the last acknowledged version.
    generation: u64,
}

#[test]
fn kill_loses_no_acknowledged_update() {
    let folder = Folder::new();
    let zone = folder.write("example.com.zone", ZONE);
    let arguments = ["--zone", zone.as_str(), "--workers", "1"];
    let mut rng = fastrand::Rng::with_seed(50);
    let mut known = [Known::default(); WRITERS];
    let mut lost_answers = 0;
    for round in 0..KILLS {
        let server = Serving::start(&folder, &arguments);
        check(&server, &mut known, round);
        let wanted = rng.u32(1..40);
        known = std::thread::scope(|scope| {
            let (acknowledgement, acknowledgements) = channel();
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (client, acknowledgement) = (server.client(), acknowledgement.clone());
                    let known = known[writer];
                    scope.spawn(move || write(writer, known, client, &acknowledgement))
                })
                .collect();
            drop(acknowledgement);
            for _ in 0..wanted {
                acknowledgements.recv_timeout(PROGRAM_WAIT).expect("updates are acknowledged");
            }
            server.program.signal(Signal::SIGKILL);
            let known: Vec<Known> =
                writers.into_iter().map(|writer| writer.join().expect("a writer ends")).collect();
            known.try_into().unwrap_or_else(|_| unreachable!("as many as there were"))
        });
        lost_answers += known.iter().filter(|known| known.sent > known.acknowledged).count();
    }
    check(&Serving::start(&folder, &arguments), &mut known, KILLS);
    assert!(lost_answers > 0, "updates were in flight when the program was killed");
}

/// Puts one version after the other until the program is gone.
fn write(writer: usize, mut known: Known, mut client: Client, acknowledgement: &Sender<()>) -> Known {
    loop {
        known.sent += 1;
        let path = format!("/v1/policies/w{writer}.example.com");
        let Ok(response) = client.send("PUT", &path, &[], policy(known.sent).as_bytes()) else {
            return known;
        };
        assert_eq!(response.status, 200, "{}", response.text());
        let generation = response.generation();
        assert!(generation > known.generation, "{generation} after {}", known.generation);
        (known.acknowledged, known.generation) = (known.sent, generation);
        // Nobody counts any more once the program is killed.
        let _ = acknowledgement.send(());
    }
}

/// Compares what is there after a start with what was acknowledged before; an update that was not may be there.
fn check(server: &Serving, known: &mut [Known; WRITERS], round: u32) {
    let generation = server.call("GET", "/v1/health", "").generation();
    for (writer, known) in known.iter_mut().enumerate() {
        assert!(
            generation >= known.generation,
            "kill {round}: generation {} became {generation}",
            known.generation
        );
        let name = format!("w{writer}.example.com");
        let answer = Question::new(&name, "A").udp(server.dns());
        let found = if answer.answer.is_empty() { 0 } else { version(&answer.data()) };
        let Known { acknowledged, sent, .. } = *known;
        assert!(
            (acknowledged..=sent).contains(&found),
            "kill {round}: {found} is not {acknowledged}..={sent}"
        );
        if found > 0 {
            let stored = server.call("GET", &format!("/v1/policies/{name}"), "").json();
            assert_eq!(
                stored["servers"][0]["default"]["ttl"], found,
                "one update, not a mix of two: {stored}"
            );
        }
        *known = Known { acknowledged: found, sent: found, generation };
    }
}

#[test]
fn a_clean_end_leaves_the_whole_store_in_one_file() {
    let folder = Folder::new();
    let zone = folder.write("example.com.zone", ZONE);
    let server = Serving::start(&folder, &["--zone", &zone]);
    server.call("PUT", "/v1/policies/www.example.com", &policy(7));
    server.stop();
    // Whoever now copies the one file has everything.
    assert!(!Path::new(&folder.at("pointsman.db-wal")).exists(), "the log is merged into the database");
    let copied = Folder::new();
    std::fs::copy(folder.at("pointsman.db"), copied.at("pointsman.db")).expect("the store can be copied");
    let none: &[&str] = &[];
    let server = Serving::start(&copied, none);
    assert_eq!(version(&Question::new("www.example.com", "A").udp(server.dns()).data()), 7);
}

/// A system call in the trace, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// The write-ahead log is written.
    LogWritten,
    /// The write-ahead log has been synced.
    LogSynced,
    /// The answer to a change begins to be written.
    Answered,
}

#[test]
fn the_sync_comes_before_the_answer() {
    const PUTS: u32 = 20;
    let folder = Folder::new();
    let trace = folder.at("trace");
    let works = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).output();
    if !works.is_ok_and(|tried| tried.status.success()) {
        tests::data::skip("strace is not here, or tracing is not allowed");
        return;
    }
    let zone = folder.write("example.com.zone", ZONE);
    let mut strace = Command::new("strace");
    // -D: the tracer stands aside, so that the program is our child and ends with its guard.
    strace.args(["-D", "-f", "-y", "-s", "80", "-o", &trace, "-e"]);
    strace.arg("trace=fsync,fdatasync,write,writev,pwrite64,pwritev,sendto,sendmsg");
    strace.arg(tests::program::path());
    let server = Serving::under(strace, &folder, &["--zone", &zone]);
    let mut client = server.client();
    for version in 1..=PUTS {
        assert_eq!(client.call("PUT", "/v1/policies/www.example.com", &policy(version)).status, 200);
    }
    server.stop();
    let text = trace_when_complete(&trace);
    let calls: Vec<Call> = calls(&text);
    let mut answers = 0;
    for between in calls.split_inclusive(|call| *call == Call::Answered) {
        let Some(before) = between.strip_suffix(&[Call::Answered]) else { continue };
        answers += 1;
        let synced = before.iter().rposition(|call| *call == Call::LogSynced);
        let written = before.iter().rposition(|call| *call == Call::LogWritten);
        assert!(written.is_some() && synced > written, "answer {answers} came after {before:?} only");
    }
    assert_eq!(answers, PUTS, "all answers are in the trace:\n{text}");
}

/// The trace once the tracer has written all of it: its last line tells the program's end.
fn trace_when_complete(path: &str) -> String {
    let until = std::time::Instant::now() + PROGRAM_WAIT;
    loop {
        let text = std::fs::read_to_string(path).expect("strace writes a trace");
        if text.trim_end().ends_with("+++ exited with 0 +++") {
            return text;
        }
        assert!(std::time::Instant::now() < until, "the trace does not end:\n{text}");
        std::thread::yield_now();
    }
}

/// Picks those calls out of strace's lines that matter: `PID fdatasync(9</path-wal>) = 0`, or, where another
/// thread's call came between, `PID fdatasync(9</path-wal> <unfinished ...>` and `PID <... fdatasync resumed>) = 0`.
fn calls(text: &str) -> Vec<Call> {
    let mut unfinished: BTreeMap<&str, &str> = BTreeMap::new();
    let mut calls = Vec::new();
    for line in text.lines() {
        let (thread, call) = line.split_once(' ').expect("a line begins with a thread");
        let call = call.trim_start();
        let name = call.split('(').next().unwrap_or_default();
        // Written is what has begun to be; synced is only what has ended so.
        let of_log = |call: &str| {
            call.split_once('<').is_some_and(|(_, file)| file.starts_with('/') && file.contains("-wal>"))
        };
        if name.contains("sync") && of_log(call) {
            if call.ends_with("= 0") {
                calls.push(Call::LogSynced);
            } else {
                unfinished.insert(thread, call);
            }
        } else if call.starts_with("<... f") && call.ends_with("= 0") && unfinished.remove(thread).is_some() {
            calls.push(Call::LogSynced);
        } else if name.contains("write") && of_log(call) {
            calls.push(Call::LogWritten);
        } else if call.contains("HTTP/1.1 200 OK") {
            calls.push(Call::Answered);
        }
    }
    calls
}
