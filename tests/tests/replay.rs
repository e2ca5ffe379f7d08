//! Recorded traffic sent again: what arrives, what is told, and how it ends.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use tests::data;
use tests::folder::Folder;
use tests::program::{self, Ended, Program};
use tests::serving::Serving;

/// A tolerance that no machine misses: time is not what these tests are about.
const ANY: [&str; 2] = ["--tolerance", "24h"];

const ZONE: &str = "\
$ORIGIN example.com.
$TTL 300
@ SOA ns hm 1 7200 600 86400 60
@ NS ns
ns A 192.0.2.53
* A 192.0.2.80
";

fn replay(arguments: &[&str]) -> Ended {
    let mut all = vec!["replay"];
    all.extend(arguments);
    Program::start(&all).end()
}

/// Replays a trace that must end with a code; returns its report.
fn reported(code: i32, arguments: &[&str]) -> Value {
    let mut all = arguments.to_vec();
    all.push("--json");
    let ended = replay(&all);
    assert_eq!(ended.status.code(), Some(code), "{arguments:?}: {}{}", ended.stdout, ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap_or_else(|cause| panic!("{cause}: {}", ended.stdout))
}

/// `count` queries of `clients` clients, a millisecond apart.
fn trace(folder: &Folder, count: usize, clients: usize, transport: &str) -> String {
    let lines: String = (0..count)
        .map(|at| {
            let (client, seconds, millis) = (at % clients, 10 + at / 1_000, at % 1_000);
            format!(
                "{seconds}.{millis:03} 192.0.2.{client}:5353 {transport} n{at}.example.com. A rd,edns=1232\n",
            )
        })
        .collect();
    folder.write("queries.txt", lines)
}

/// The record of an answer in a capture, at the time of its query, which had this IPv4 header and these ports.
fn recorded_answer(time: &[u8], ip: &[u8], ports: &[u8], answer: &[u8]) -> Vec<u8> {
    let total = (28 + answer.len()) as u16;
    let mut back = [time, &u32::from(total).to_le_bytes(), &u32::from(total).to_le_bytes()].concat();
    back.extend(&ip[..2]);
    back.extend(total.to_be_bytes());
    back.extend(&ip[4..10]);
    back.extend([0, 0]);
    back.extend([&ip[16..20], &ip[12..16], &ports[2..4], &ports[..2]].concat());
    back.extend((total - 20).to_be_bytes());
    back.extend([0, 0]);
    back.extend(answer);
    back
}

/// Where the question of a query ends.
fn question_end(query: &[u8]) -> usize {
    let name = query[12..].iter().scan(0, |left: &mut u8, octet| {
        // A label's length, or an octet of one.
        let is_root = *left == 0 && *octet == 0;
        *left = if *left == 0 { *octet } else { *left - 1 };
        (!is_root).then_some(())
    });
    12 + name.count() + 1 + 4
}

fn serving(folder: &Folder) -> Serving {
    let zone = folder.write("example.com.zone", ZONE);
    Serving::start(folder, &["--zone", &zone])
}

#[test]
fn every_query_is_answered_over_both_transports_from_any_source() {
    let folder = Folder::new();
    let serving = serving(&folder);
    let server = serving.dns().to_string();
    let trace = trace(&folder, 300, 7, "udp");
    for (more, udp, tcp) in [
        (&[][..], 300, 0),
        (&["--source-prefix", "127.1.0.0/16", "--threads", "3"], 300, 0),
        (&["--transport", "tcp=100%", "--source-prefix", "127.1.0.0/16"], 0, 300),
        (&["--transport", "tcp=100%", "--fast"], 0, 300),
        (&["--fast", "--ecs"], 300, 0),
        (&["--fast", "--loop", "20", "--window", "50"], 6_000, 0),
        (&["--rate", "5000", "--poisson", "--threads", "2"], 300, 0),
        (&["--factor", "3", "--names", "unique", "--speed", "4", "--limit", "500"], 500, 0),
        (&["--servload", "multiply", "--factor", "2"], 600, 0),
    ] {
        let report = reported(0, &[&[&trace, "--server", &server][..], &ANY, more].concat());
        let count = |key: &str| report[key].as_u64().unwrap_or_else(|| panic!("{key}: {report}"));
        assert_eq!(
            (count("queries"), count("answers"), count("lost")),
            (udp + tcp, udp + tcp, 0),
            "{report}"
        );
        assert_eq!(report["rcodes"]["NOERROR"], udp + tcp, "{more:?}");
        assert_eq!((&report["transports"]["udp"], &report["transports"]["tcp"]), (&udp.into(), &tcp.into()));
        assert_eq!(report["unexpected"]["aliens"], 0, "{report}");
        // Addresses of a prefix share one socket a thread.
        let shared = if more.contains(&"--source-prefix") { count("threads") } else { 0 };
        assert_eq!(report["sockets"]["shared"], shared, "{report}");
        // Without due times there is nothing to count from.
        for times in ["lateness_us", "latency_us"] {
            assert_eq!(report[times].is_null(), more.contains(&"--fast"), "{times}: {report}");
        }
        assert!(report["latency_sent_us"]["max"].as_f64() > Some(0.0), "{report}");
    }
    serving.stop();
}

#[test]
fn the_report_has_its_keys_and_the_log_a_row_a_query() {
    let folder = Folder::new();
    let serving = serving(&folder);
    let (trace, log, to) = (trace(&folder, 120, 3, "udp"), folder.at("report/log"), folder.at("report"));
    let server = serving.dns().to_string();
    let ended = replay(
        &[&[&trace, "--server", &server, "--log", &log, "--report", &to, "--seed", "7"][..], &ANY].concat(),
    );
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("lateness (sent - due)"), "{}", ended.stdout);
    let report = std::fs::read(Path::new(&to).join("report.json")).expect("it was written");
    let report: Value = serde_json::from_slice(&report).expect("it is JSON");
    for times in ["lateness_us", "latency_us", "latency_sent_us"] {
        for key in ["p50", "p90", "p99", "p999", "max"] {
            assert!(report[times][key].is_f64(), "{times} {key}: {report}");
        }
    }
    for (key, expected) in [("seed", 7), ("threads", 1), ("queries", 120), ("answers", 120), ("lost", 0)] {
        assert_eq!(report[key], expected, "{key}: {report}");
    }
    assert!(report["seconds"].as_f64() > Some(0.1), "{report}");
    assert_eq!(report["awake"], false);
    assert_eq!(report["rcodes"], serde_json::json!({ "NOERROR": 120 }));
    for key in ["due_per_second", "sent_per_second"] {
        let seconds = report[key].as_array().expect("a list");
        assert_eq!(seconds.iter().filter_map(Value::as_u64).sum::<u64>(), 120, "{key}");
    }
    let page = std::fs::read_to_string(Path::new(&to).join("index.html")).expect("it was written");
    let drawn = ["<svg", "<polyline", "<circle"].map(|what| page.matches(what).count());
    assert_eq!((drawn[0], drawn[1] + drawn[2]), (3, 8));
    let rows = std::fs::read_to_string(&log).expect("it was written");
    let (heading, rows) = rows.split_once('\n').expect("a heading");
    assert!(heading.starts_with("index\tdue_us\tsent_us"));
    assert_eq!(rows.lines().filter(|row| row.contains("\tNOERROR\tn")).count(), 120);
    serving.stop();
}

#[test]
fn a_report_that_cannot_be_written_is_printed_all_the_same() {
    let folder = Folder::new();
    let serving = serving(&folder);
    let (trace, to) = (trace(&folder, 30, 3, "udp"), folder.at("report"));
    let server = serving.dns().to_string();
    // No octet can be written to a file.
    let full = |more: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 0 && exec \"$0\" replay \"$@\""]).arg(tests::program::path());
        command.args([&trace, "--server", &server, "--report", &to]).args(ANY).args(more);
        let ended = Program::spawn(command).end();
        let told = format!("the report {to}/report.json is not written: File too large");
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains(&told), "{}", ended.stderr);
        ended.stdout
    };
    assert!(full(&[]).contains("lateness (sent - due)"));
    assert!(!Path::new(&to).exists(), "nothing of it stays");
    let report: Value = serde_json::from_str(&full(&["--json"])).expect("it is JSON");
    assert_eq!(report["answers"], 30);
    // What was there before stays.
    std::fs::create_dir(&to).expect("it is ours");
    folder.write("report/report.json", "an older one");
    full(&[]);
    assert_eq!(std::fs::read(Path::new(&to).join("report.json")).expect("it is there"), b"an older one");
    assert_eq!(std::fs::read_dir(&to).expect("it is there").count(), 1);
    serving.stop();
}

#[test]
fn queries_are_changed_as_told() {
    let folder = Folder::new();
    let serving = serving(&folder);
    let server = serving.dns().to_string();
    let trace = trace(&folder, 60, 6, "udp");
    let changes = "suffix=example.com:example.org,type=AAAA@50%,do=100%";
    let changed = |more: &[&str]| {
        let all = [&[&trace, "--server", &server, "--mutate", changes, "--ecs"][..], &ANY, more].concat();
        let report = reported(0, &all);
        // Nobody here serves example.org.
        assert_eq!(report["rcodes"]["REFUSED"], 60, "{report}");
        report["mutation"].clone()
    };
    let one = changed(&[]);
    assert_eq!((&one["queries"], &one["changed"]), (&60.into(), &60.into()), "{one}");
    let each = one["changes"].as_array().expect("a list");
    let told = |at: usize, key: &str| each[at][key].clone();
    assert_eq!((told(0, "drawn"), told(2, "changed"), told(3, "changed")), (60.into(), 60.into(), 60.into()));
    assert_eq!(told(3, "change"), "ecs=client");
    assert!((1..60).contains(&told(1, "changed").as_u64().expect("a count")), "{one}");
    // Threads make no difference.
    assert_eq!(changed(&["--threads", "3"]), one);
    let shown = replay(&[&[&trace, "--server", &server, "--mutate", changes][..], &ANY].concat()).stdout;
    assert!(shown.contains("60 of 60 queries changed, seed 1."), "{shown}");
    let wrong = replay(&[&trace, "--server", &server, "--mutate", "do=120%"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("--mutate") && wrong.stderr.contains("do=120%"), "{}", wrong.stderr);
    serving.stop();
}

#[test]
fn answers_are_held_against_the_recorded_ones() {
    let folder = Folder::new();
    let serving = serving(&folder);
    let server = serving.dns().to_string();
    let trace = trace(&folder, 50, 5, "udp");
    // What was recorded: what the server says now of each query; but of every fifth nothing, of the first another
    // code, of the second another address, of the third another case and TTL.
    let plain = folder.at("plain.pcap");
    let made = Program::start(&["trace", "convert", &trace, &plain]).end();
    assert_eq!(made.status.code(), Some(0), "{}", made.stderr);
    let to_record = std::fs::read(&plain).expect("it was written");
    let (header, mut rest) = to_record.split_at(24);
    let mut recorded = header.to_vec();
    let asking = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
    for at in 0..50 {
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().expect("four octets")) as usize;
        let (packet, behind) = rest.split_at(16 + word(8));
        rest = behind;
        recorded.extend(packet);
        if at % 5 == 4 {
            continue;
        }
        // IPv4 without options, then UDP.
        let (ip, udp) = packet[16..].split_at(20);
        let (ports, query) = udp.split_at(8);
        asking.send_to(query, &server).expect("it is sent");
        let mut octets = [0; 1_500];
        let length = asking.recv(&mut octets).expect("it answers");
        let answer = octets[..length].as_mut();
        let behind = query.len() - 11;
        match at {
            0 => answer[3] |= 2,
            1 => answer[behind + 15] ^= 1,
            2 => {
                answer[13].make_ascii_uppercase();
                answer[behind + 9] ^= 1;
            }
            _ => {}
        }
        recorded.extend(recorded_answer(&packet[..8], ip, &ports[..4], answer));
    }
    let recorded = folder.write("recorded.pcap", recorded);
    let differing = folder.at("differing.pcap");
    let all =
        [&[&recorded, "--server", &server, "--compare", &differing, "--threads", "2"][..], &ANY].concat();
    let told = reported(0, &all)["comparison"].clone();
    let count = |key: &str| told[key].as_u64().unwrap_or_else(|| panic!("{key}: {told}"));
    assert_eq!((count("compared"), count("same"), count("unrecorded")), (40, 38, 10), "{told}");
    assert_eq!((&told["differing"]["rcode"], &told["differing"]["answer"]), (&1.into(), &1.into()), "{told}");
    assert_eq!((count("unmatched"), count("pairs_kept"), count("pairs_beyond")), (0, 2, 0), "{told}");
    // The pairs are a capture like any other: a query and two responses each.
    let info = Program::start(&["trace", "info", &differing, "--json"]).end();
    let info: Value = serde_json::from_str(&info.stdout).expect("it is JSON");
    assert_eq!((&info["queries"], &info["responses"]), (&2.into(), &4.into()), "{info}");

    // What cannot be compared is refused.
    for more in [&["--factor", "2"][..], &["--names", "unique"], &["--mutate", "type=AAAA"]] {
        let other = folder.at("other.pcap");
        let ended = replay(&[&[&recorded, "--server", &server, "--compare", &other][..], more].concat());
        assert_eq!(ended.status.code(), Some(2), "{more:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("cannot be held against the recorded ones"), "{}", ended.stderr);
        assert!(!Path::new(&other).exists());
    }
    serving.stop();
}

#[test]
fn the_server_is_observed_each_second() {
    let folder = Folder::new();
    let serving = serving(&folder);
    let (server, to) = (serving.dns().to_string(), folder.at("report"));
    let trace = trace(&folder, 1_200, 3, "tcp");
    // This process began the server: its tree holds it.
    let me = std::process::id().to_string();
    let report =
        reported(0, &[&[&trace, "--server", &server, "--observe", &me, "--report", &to][..], &ANY].concat());
    let seconds = report["server_seconds"].as_array().expect("a list");
    assert!(!seconds.is_empty(), "{report}");
    assert!(seconds[0]["processes"].as_u64() >= Some(2), "{report}");
    assert!(seconds[0]["resident_octets"].as_u64() > Some(0), "{report}");
    assert!(seconds[0]["tcp"]["listen"].as_u64() >= Some(1), "{report}");
    assert!(seconds[0]["socket_octets"].is_u64(), "{report}");
    let page = std::fs::read_to_string(Path::new(&to).join("index.html")).expect("it was written");
    assert_eq!(page.matches("<svg").count(), 7);
    let ended = replay(&[&trace, "--server", &server, "--observe", "4294967295"]);
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("--observe"), "{}", ended.stderr);
    serving.stop();
}

#[test]
fn answers_are_heard_whole_however_long_they_are() {
    const LENGTH: usize = 8_500;
    let folder = Folder::new();
    let udp = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
    let server = udp.local_addr().expect("it is bound").to_string();
    // Answers of that many octets, whatever was asked: the query and a record of NULL (RFC 1035 §3.3.10) behind it.
    let answer = |query: &[u8]| {
        let mut answer = query.to_vec();
        answer[2] |= 0x80;
        (answer[7], answer[11]) = (1, 0);
        answer.truncate(question_end(query));
        let room = LENGTH - answer.len() - 12;
        answer.extend([0xc0, 12, 0, 10, 0, 1, 0, 0, 0, 1]);
        answer.extend((room as u16).to_be_bytes());
        answer.resize(LENGTH, 7);
        answer
    };
    thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((length, from)) = udp.recv_from(&mut query) {
            let _ = udp.send_to(&answer(&query[..length]), from);
        }
    });
    let text = trace(&folder, 20, 4, "udp");
    // What was recorded: these queries, and these answers from where the server of the capture stood.
    let plain = folder.at("plain.pcap");
    let made = Program::start(&["trace", "convert", &text, &plain]).end();
    assert_eq!(made.status.code(), Some(0), "{}", made.stderr);
    let octets = std::fs::read(&plain).expect("it was written");
    let (header, mut rest) = octets.split_at(24);
    let mut recorded = header.to_vec();
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[8..12].try_into().expect("four octets")) as usize;
        let (packet, behind) = rest.split_at(16 + length);
        rest = behind;
        recorded.extend(packet);
        let (ip, udp) = packet[16..].split_at(20);
        recorded.extend(recorded_answer(&packet[..8], ip, &udp[..4], &answer(&udp[8..])));
    }
    let recorded = folder.write("recorded.pcap", recorded);
    for (at, more) in [&[][..], &["--fast"], &["--source-prefix", "127.1.0.0/16"]].into_iter().enumerate() {
        let differing = folder.at(&format!("differing-{at}.pcap"));
        let all = [&[&recorded, "--server", &server, "--compare", &differing][..], more];
        let any = if at == 1 { &[][..] } else { &ANY };
        let report = reported(0, &[all[0], all[1], any].concat());
        assert_eq!(report["answer_octets"], 20 * LENGTH, "{more:?}: {report}");
        assert_eq!(report["comparison"]["same"], 20, "{more:?}: {report}");
    }
}

#[test]
fn truncated_answers_are_asked_again_over_tcp() {
    let folder = Folder::new();
    let trace = trace(&folder, 20, 4, "udp");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("loopback binds");
    let server = tcp.local_addr().expect("it is bound");
    let udp = UdpSocket::bind(server).expect("the same port is free");
    // Answers stop when the test ends, as the process does.
    thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((length, from)) = udp.recv_from(&mut query) {
            query[2] |= 0x82;
            let _ = udp.send_to(&query[..length], from);
        }
    });
    thread::spawn(move || {
        for mut stream in tcp.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut frame = [0; 514];
                while stream.read_exact(&mut frame[..2]).is_ok() {
                    let length = usize::from(u16::from_be_bytes([frame[0], frame[1]]));
                    if stream.read_exact(&mut frame[2..2 + length]).is_err() {
                        break;
                    }
                    frame[4] |= 0x80;
                    let _ = stream.write_all(&frame[..2 + length]);
                }
            });
        }
    });
    let report = reported(0, &[&[&trace, "--server", &server.to_string()][..], &ANY].concat());
    assert_eq!((&report["answers"], &report["tc_retries"]), (&20.into(), &20.into()), "{report}");
    assert_eq!(report["sockets"]["tcp"], 4, "a connection a client: {report}");
}

#[test]
fn a_server_that_refuses_or_is_silent_is_told() {
    let folder = Folder::new();
    let trace = trace(&folder, 10, 2, "udp");
    let nobody =
        UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("loopback binds");
    let silent = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
    let silent = silent.local_addr().map(|address| (address.to_string(), silent)).expect("it is bound");
    for (server, more, cause) in [
        (nobody.to_string(), &[][..], "refused"),
        (nobody.to_string(), &["--transport", "tcp=100%"], "refused"),
        (silent.0.clone(), &["--timeout", "50ms"], "timeout"),
    ] {
        let arguments = [&[&trace, "--server", &server][..], &ANY, more].concat();
        let report = reported(1, &arguments);
        assert_eq!((&report["lost"], &report["answers"]), (&10.into(), &0.into()), "{report}");
        assert!(report["lost_by"][cause].as_u64() > Some(0), "{cause}: {report}");
        for times in ["/latency_us", "/latency_sent_us", "/quiet/latency_us", "/busy/latency_us"] {
            assert_eq!(report.pointer(times), Some(&Value::Null), "{times}: {report}");
        }
        assert!(replay(&arguments).stderr.contains("nobody answered at"));
    }
}

#[test]
fn a_capture_that_breaks_off_is_replayed_as_far_as_it_goes() {
    let folder = Folder::new();
    let serving = serving(&folder);
    let (text, whole) = (trace(&folder, 40, 4, "udp"), folder.at("whole.pcap"));
    assert_eq!(Program::start(&["trace", "convert", &text, &whole]).end().status.code(), Some(0));
    let octets = std::fs::read(&whole).expect("it was written");
    let server = serving.dns().to_string();
    // The last packet of those that are left is cut.
    let cut = octets.len() / 2;
    let cut = folder.write("cut.pcap", &octets[..cut]);
    for more in [&[][..], &["--processes", "2"]] {
        let arguments = [&[&cut, "--server", &server, "--json"][..], &ANY, more].concat();
        let ended = replay(&arguments);
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
        let report: Value = serde_json::from_str(&ended.stdout).expect("a report");
        let answers = report["answers"].as_u64().expect("a count");
        assert!((15..=20).contains(&answers) && report["lost"] == 0, "{report}");
        let place = format!("cut.pcap: packet {}, octet ", answers + 1);
        assert!(ended.stderr.contains(&place), "no '{place}' in: {}", ended.stderr);
        assert!(ended.stderr.contains("what stands before was replayed"), "{}", ended.stderr);
    }
    serving.stop();
}

#[test]
fn a_run_that_is_late_ends_with_3() {
    let folder = Folder::new();
    let serving = serving(&folder);
    let trace = trace(&folder, 50, 2, "udp");
    let server = serving.dns().to_string();
    let ended = replay(&[&trace, "--server", &server, "--tolerance", "0ms"]);
    assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
    for part in ["OUT OF TOLERANCE", "--awake on a virtual machine"] {
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
    serving.stop();
}

#[test]
fn cores_are_kept_awake_where_that_can_be() {
    let folder = Folder::new();
    let serving = serving(&folder);
    let (trace, server) = (trace(&folder, 5, 1, "udp"), serving.dns().to_string());
    let arguments = [&[&trace, "--server", &server, "--awake"][..], &ANY].concat();
    match net::awake::Awake::begin() {
        Ok(_) => assert_eq!(reported(0, &arguments)["awake"], true),
        Err(why) => {
            let ended = replay(&arguments);
            assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
            assert!(
                ended.stderr.contains(&format!("--awake: cores cannot be kept from resting: {why}")),
                "{}",
                ended.stderr
            );
        }
    }
    serving.stop();
}

#[test]
fn what_is_said_wrongly_is_refused_before_anything_is_sent() {
    let folder = Folder::new();
    let trace = trace(&folder, 1, 1, "udp");
    let missing = folder.at("missing");
    for (arguments, part) in [
        (&[trace.as_str(), "--server", "198.41.0.4"][..], "--i-may-load-this-server"),
        (&[&trace, "--server", "0.0.0.0:53"], "no server's address"),
        (&[&trace, "--server", "127.0.0.1", "--factor", "0.01"], "0.1 to 10000"),
        (&[&trace, "--server", "127.0.0.1", "--servload", "peak", "--factor", "1.5"], "a whole number"),
        (&[&trace, "--server", "127.0.0.1", "--source-prefix", "fd00::/64"], "another family"),
        (
            &[&trace, "--server", "127.0.0.1", "--source-prefix", "192.0.2.0/24"],
            "is no address of this host; expected a prefix of which all addresses are, such as 127.1.0.0/16, or first \
             `ip route add local 192.0.2.0/24 dev lo`",
        ),
        // Most of its addresses are none, but not all.
        (&[&trace, "--server", "127.0.0.1", "--source-prefix", "126.0.0.0/7"], "is no address of this host"),
        (&[&trace, "--server", "127.0.0.1", "--window", "5"], "--fast"),
        (&[&trace, "--server", "127.0.0.1", "--compare", "diff.txt"], "--compare: diff.txt: the form"),
        (&[&trace, "--server", "127.0.0.1", "--log", &trace], "it is there already; expected another name"),
        (&[&trace, "--server", "127.0.0.1", "--report", &trace], "it is there already, and no folder"),
        (&[&trace, "--server", "127.0.0.1", "--log", "/dev/full/a"], "it cannot be made"),
        (&[&trace, "--server", "127.0.0.1", "--mutate", "do=2,ecs=0"], "--mutate: ecs=0: 0 is neither"),
        (&[&trace, "--server", "127.0.0.1", "--tls-port", "0"], "--tls-port"),
        (&[&trace, "--server", "127.0.0.1", "--tls-ca", &missing], "--tls-ca: it has no effect"),
        (
            &[&trace, "--server", "127.0.0.1", "--tls-name", "a", "--transport", "udp=100%"],
            "--tls-name: it has",
        ),
        (&["-", "--server", "127.0.0.1"], "-: it is no regular file, and a trace is read several times"),
        (&[&missing, "--server", "127.0.0.1"], "cannot be read"),
    ] {
        let ended = replay(arguments);
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(part), "no '{part}' in: {}", ended.stderr);
    }
}

#[test]
fn where_there_is_nothing_to_send_it_says_what_there_was() {
    let folder = Folder::new();
    let nothing = folder.write("nothing.txt", "# no query\n\n");
    let hello = folder.write("hello.txt", "hello\n");
    let (text, packets) = (trace(&folder, 9, 1, "udp"), folder.at("packets.pcap"));
    assert_eq!(Program::start(&["trace", "convert", &text, &packets]).end().status.code(), Some(0));
    for (arguments, part) in [
        (&[nothing.as_str()][..], "no query at port 53; it has no packets at all"),
        (&[&packets, "--port", "54"], "no query at port 54; skipped: at other ports (9)"),
        (&[&packets, "--port", "54", "--processes", "2"], "no query at port 54; skipped: at other ports (9)"),
        (&[&packets, "--factor", "0.1", "--seed", "1"], "--factor: 0.1 leaves none of the clients"),
        (&[&hello, "--report", &folder.at("report")], "hello.txt:1: expected TIME"),
        (&[&hello, "--processes", "2"], "hello.txt:1: expected TIME"),
    ] {
        let ended = replay(&[arguments, &["--server", "127.0.0.1:1"]].concat());
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(part), "no '{part}' in: {}", ended.stderr);
        assert!(ended.stdout.is_empty() && !Path::new(&folder.at("report")).exists(), "{}", ended.stdout);
    }
    let ended = replay(&[&packets, "--server", "127.0.0.1:1", "--limit", "0"]);
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
}

#[test]
fn what_gave_no_query_is_counted_by_cause() {
    let folder = Folder::new();
    let serving = serving(&folder);
    let (text, packets) = (trace(&folder, 10, 2, "tcp"), folder.at("packets.pcap"));
    assert_eq!(Program::start(&["trace", "convert", &text, &packets]).end().status.code(), Some(0));
    let server = serving.dns().to_string();
    for more in [&[][..], &["--threads", "2"], &["--processes", "2"]] {
        let all = [&[&packets, "--server", &server][..], &ANY, more].concat();
        let report = reported(0, &all);
        // Each message is a stream of its own, which begins without data.
        assert_eq!(report["schedule"]["skipped"], serde_json::json!({ "no_data": 10 }), "{report}");
        let shown = replay(&all).stdout;
        assert!(shown.contains("skipped: TCP segments without data (10)"), "{shown}");
    }
    serving.stop();
}

#[test]
fn a_trace_is_read_from_where_stdin_is() {
    let folder = Folder::new();
    let text = trace(&folder, 10, 2, "udp");
    let told = |stdin: Stdio| {
        let ended =
            Command::new(program::path()).args(["trace", "info", "-", "--json"]).stdin(stdin).output();
        let ended = ended.expect("it is started");
        assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
        serde_json::from_slice::<Value>(&ended.stdout).expect("JSON")["queries"].as_u64()
    };
    let (mut ours, theirs) = UnixStream::pair().expect("sockets");
    ours.write_all(&std::fs::read(&text).expect("it was written")).expect("there is room");
    drop(ours);
    assert_eq!(told(OwnedFd::from(theirs).into()), Some(10));
    let mut file = File::open(&text).expect("it was written");
    let line =
        std::fs::read_to_string(&text).expect("it was written").find('\n').map_or(0, |end| end as u64 + 1);
    file.seek(SeekFrom::Start(line)).expect("it is a file");
    assert_eq!(told(file.into()), Some(9));
}

#[test]
fn a_root_servers_minute_is_answered_by_its_zone() {
    let Some(trace) = data::file("replay/nsd-live.raw.pcap.xz") else { return };
    let Some(zone) = data::xz_text("replay/root.zone.xz") else { return };
    let folder = Folder::new();
    let zone = folder.write("root.zone", zone);
    let serving = Serving::start(&folder, &["--zone", &zone]);
    let (trace, server) = (trace.display().to_string(), serving.dns().to_string());
    // Sources of their own: the server bounds the connections of one address.
    let pace = ["--speed", "60", "--timeout", "10s", "--source-prefix", "127.1.0.0/16"];
    let report = reported(0, &[&[&trace, "--server", &server][..], &pace, &ANY].concat());
    // A recorded retry is left out where it is read after our own: seldom, on a machine that is behind.
    let retries = report["schedule"]["skipped"]["retry"].as_u64().unwrap_or(0);
    let with_retries = |count: &Value| count.as_u64().map(|count| count + retries);
    assert_eq!(with_retries(&report["queries"]), Some(10_432), "{report}");
    assert_eq!(with_retries(&report["transports"]["tcp"]), Some(106), "{report}");
    assert_eq!((&report["clients"], report["schedule"]["responses"].is_u64()), (&2_491.into(), true));
    // Queries that a name server leaves without an answer are few, if any.
    assert!(report["answers"].as_u64() > Some(10_400), "{report}");
    serving.stop();
}

#[test]
fn an_interrupted_run_still_reports() {
    let folder = Folder::new();
    let server = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
    server.set_read_timeout(Some(Duration::from_secs(60))).expect("it is a time");
    let lines = "10.0 192.0.2.1:1 udp a.example. A -\n9000.0 192.0.2.1:1 udp b.example. A -\n";
    let trace = folder.write("queries.txt", lines);
    let address = server.local_addr().expect("it is bound").to_string();
    for (signal, more) in [
        (Signal::SIGINT, &[][..]),
        (Signal::SIGTERM, &[]),
        (Signal::SIGHUP, &[]),
        // A thread that owns no client has the same beginning and end as the others.
        (Signal::SIGTERM, &["--loop", "1000000000", "--threads", "2"]),
        (Signal::SIGTERM, &["--loop", "1000000000", "--processes", "2"]),
    ] {
        let asked =
            ["replay", &trace, "--server", &address, "--timeout", "1h", "--tolerance", "1h", "--json"];
        // Whoever runs this may do so under nohup.
        let mut command = Command::new("env");
        command.arg("--default-signal").arg(program::path()).args([&asked, more].concat());
        let program = Program::spawn(command);
        server.recv_from(&mut [0; 512]).expect("the first query comes");
        program.signal(signal);
        let ended = program.end();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        let report: Value = serde_json::from_str(&ended.stdout).expect("a report");
        let told = (&report["interrupted"], &report["lost_by"]["interrupted"]);
        assert_eq!(told, (&true.into(), &1.into()), "{signal} {more:?}: {report}");
    }
}

#[test]
fn a_run_under_nohup_outlives_its_terminal() {
    let folder = Folder::new();
    let server = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
    server.set_read_timeout(Some(Duration::from_secs(60))).expect("it is a time");
    let lines = ["10.0", "11.0", "9000.0"].map(|at| format!("{at} 192.0.2.1:1 udp a.example. A -\n"));
    let trace = folder.write("queries.txt", lines.concat());
    let mut command = Command::new("nohup");
    command.arg(program::path()).args(["replay", &trace, "--timeout", "1h", "--tolerance", "1h", "--json"]);
    command.args(["--server", &server.local_addr().expect("it is bound").to_string()]);
    let program = Program::spawn(command);
    server.recv_from(&mut [0; 512]).expect("the first query comes");
    program.signal(Signal::SIGHUP);
    server.recv_from(&mut [0; 512]).expect("it has gone on");
    program.signal(Signal::SIGTERM);
    let ended = program.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).expect("a report");
    assert_eq!(report["lost_by"]["interrupted"], 2, "{report}");
}

#[test]
fn what_can_be_read_only_once_is_refused() {
    let folder = Folder::new();
    let pipe = folder.at("pipe");
    nix::unistd::mkfifo(Path::new(&pipe), nix::sys::stat::Mode::S_IRWXU).expect("it is made");
    // Nobody writes to it: a trace that is opened before it is looked at would be waited for without end.
    let ended = replay(&[&pipe, "--server", "127.0.0.1:1"]);
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("no regular file"), "{}", ended.stderr);
}
