//! Sockets of a replay: idle ones close, too many close the least recently used, and what is done where ports or
//! descriptors run out.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::thread;

use serde_json::Value;
use tests::folder::Folder;
use tests::namespace::{self, ip};
use tests::program::{self, Ended, Program};

/// A tolerance that no machine misses: time is not what these tests are about.
const ANY: [&str; 3] = ["--tolerance", "24h", "--json"];

/// One query each of so many clients, a millisecond apart.
fn trace(folder: &Folder, clients: usize) -> String {
    let line = |client: usize| {
        let (millis, third, last) = (client % 1_000, client / 250, client % 250);
        let seconds = 10 + client / 1_000;
        format!("{seconds}.{millis:03} 192.0.{third}.{last}:5353 udp n{client}.example.com. A rd\n")
    };
    folder.write("queries.txt", (0..clients).map(line).collect::<String>())
}

/// Answers everything until the test ends; returns where.
fn answering() -> String {
    answering_at(Ipv4Addr::LOCALHOST)
}

fn answering_at(address: Ipv4Addr) -> String {
    let socket = UdpSocket::bind((address, 0)).expect("an address of this machine binds");
    let address = socket.local_addr().expect("it is bound").to_string();
    thread::spawn(move || {
        let mut octets = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut octets) {
            octets[2] |= 0x80;
            let _ = socket.send_to(&octets[..length], from);
        }
    });
    address
}

fn report(ended: &Ended) -> Value {
    assert_eq!(ended.status.code(), Some(0), "{}{}", ended.stdout, ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap_or_else(|cause| panic!("{cause}: {}", ended.stdout))
}

fn count(report: &Value, key: &str) -> u64 {
    report["sockets"][key].as_u64().or(report[key].as_u64()).unwrap_or_else(|| panic!("{key}: {report}"))
}

/// Replays with at most so many descriptors.
fn limited(descriptors: u32, arguments: &[&str]) -> Ended {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {descriptors}; exec \"$@\""), "sh"]);
    command.arg(program::path()).arg("replay").args(arguments).args(ANY);
    Program::spawn(command).end()
}

#[test]
fn idle_sockets_close_and_the_least_recently_used_where_too_many_are_open() {
    let folder = Folder::new();
    let (trace, server) = (trace(&folder, 300), answering());
    let all = [trace.as_str(), "--server", &server, "--idle"];
    let idle = report(&limited(1_000, &[&all[..], &["1ms", "--speed", "0.5"]].concat()));
    assert_eq!((count(&idle, "udp"), count(&idle, "evicted")), (300, 0), "{idle}");
    // Those of the last milliseconds may still be open at the end.
    assert!(count(&idle, "closed_idle") > 250 && count(&idle, "answers") > 290, "{idle}");
    // Four fifths of the descriptors are for sockets.
    let full = report(&limited(100, &[&all[..], &["1h"]].concat()));
    let told = ["udp", "most_open", "limit", "evicted", "closed_idle"].map(|key| count(&full, key));
    assert_eq!(told, [300, 80, 80, 220, 0], "{full}");
    assert_eq!(count(&full, "answers") + count(&full, "lost"), 300, "{full}");
    // Who is asked and answers later loses what was sent from sockets that made way, and says so.
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback binds");
    let nobody = silent.local_addr().expect("it is bound").to_string();
    let lost =
        limited(100, &[&trace, "--server", &nobody, "--timeout", "1s", "--report", &folder.at("lost")]);
    let page = std::fs::read_to_string(folder.at("lost/index.html")).expect("it was written");
    for part in ["220 queries lost here", "evicted 220: 80 sockets", "ulimit -n", "--processes"] {
        assert!(lost.stderr.contains(part) && page.contains(part), "no '{part}' in: {}", lost.stderr);
    }
    // Twice as many processes may have twice as many open.
    let shared = report(&limited(100, &[&all[..], &["1h", "--processes", "2"]].concat()));
    assert_eq!(["udp", "most_open", "evicted"].map(|key| count(&shared, key)), [300, 160, 140], "{shared}");
    assert_eq!(
        (&shared["processes"], &shared["threads"], &shared["clients"]),
        (&2.into(), &2.into(), &300.into())
    );
}

#[test]
fn without_descriptors_it_goes_on_with_what_it_has() {
    let folder = Folder::new();
    let (trace, server) = (trace(&folder, 60), answering());
    // So few that the files of the program itself leave less than the sockets' share.
    let ended = limited(20, &[&trace, "--server", &server, "--idle", "1h"]);
    let report = report(&ended);
    assert_eq!(
        (count(&report, "queries"), count(&report, "answers") + count(&report, "lost")),
        (60, 60),
        "{report}"
    );
    assert!(count(&report, "evicted") > 40 && count(&report, "answers") > 0, "{report}");
    // None at all: what, and how to go on.
    let ended = limited(5, &[&trace, "--server", &server]);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("open files"), "{}", ended.stderr);
}

#[test]
fn processes_share_clients_and_tell_one_report() {
    let folder = Folder::new();
    let (trace, server, log) = (trace(&folder, 400), answering(), folder.at("log"));
    let me = std::process::id().to_string();
    let all = [trace.as_str(), "--server", &server, "--mutate", "do=50%", "--seed", "5"];
    let one = report(&limited(1_000, &[&all[..], &["--threads", "6"]].concat()));
    let more = ["--threads", "2", "--processes", "3", "--log", &log, "--observe", &me];
    let three = report(&limited(1_000, &[&all[..], &more].concat()));
    for key in
        ["queries", "answers", "lost", "clients", "rcodes", "transports", "mutation", "threads", "seed"]
    {
        assert_eq!(one[key], three[key], "{key}");
    }
    assert_eq!((&one["answers"], &three["processes"]), (&400.into(), &3.into()), "{three}");
    let sum =
        |key: &str| three[key].as_array().expect("a list").iter().filter_map(Value::as_u64).sum::<u64>();
    assert_eq!(["due_per_second", "sent_per_second", "answered_per_second"].map(sum), [400; 3]);
    assert!(three["latency_us"]["max"].as_f64() > Some(0.0), "{three}");
    let seconds = three["server_seconds"].as_array().expect("it was observed");
    assert!(seconds.iter().all(|second| !second["cores"].as_array().expect("a list").is_empty()), "{three}");
    let rows = std::fs::read_to_string(&log).expect("it was written");
    let mut indices: Vec<u64> =
        rows.lines().skip(1).filter_map(|row| row.split_once('\t')?.0.parse().ok()).collect();
    indices.sort_unstable();
    assert!(rows.starts_with("index\tdue_us") && indices.into_iter().eq(0..400), "{rows}");
    // Behind `--` there are no options.
    let mut said = vec!["replay", "--server", &server, "--processes", "2"];
    said.extend(ANY.iter().chain(&["--", &trace]));
    assert_eq!(count(&report(&Program::start(&said).end()), "answers"), 400);
    // What fails in one of them is told once.
    for (more, part) in [
        (&["--compare", "differing.pcap", "--processes", "2"][..], "in one process"),
        (&["--processes", "2", "--process", "2"], "no such process"),
    ] {
        let ended = limited(1_000, &[&all[..], more].concat());
        assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(part), "no '{part}' in: {}", ended.stderr);
    }
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback binds");
    let nobody = silent.local_addr().expect("it is bound").to_string();
    let ended = limited(1_000, &[&trace, "--server", &nobody, "--timeout", "50ms", "--processes", "2"]);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("nobody answered") && ended.stderr.contains("timeout 400"),
        "{}",
        ended.stderr
    );
}

#[test]
fn without_threads_it_says_so() {
    let mut command = Command::new(program::path());
    // Stacks of a petabyte, which no address space has.
    command.arg("status").env("RUST_MIN_STACK", (1_u64 << 50).to_string());
    let ended = Program::spawn(command).end();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.starts_with("the system gives no threads: "), "{}", ended.stderr);
}

/// Does this where clients have 32 ports.
fn with_few_ports(work: impl FnOnce() + Send) {
    namespace::alone(|| {
        std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "20000 20031")
            .expect("it is this namespace's");
        work();
    });
}

#[test]
fn a_server_that_no_way_leads_to_is_told() {
    namespace::alone(|| {
        let folder = Folder::new();
        let trace = trace(&folder, 20);
        // What is neither on this machine nor private is only tried where that is allowed.
        let allowed = ["198.41.0.4", "--i-may-load-this-server"];
        for server in [&["10.0.0.1"][..], &["10.0.0.1", "--transport", "tcp=100%"], &allowed] {
            let ended = limited(1_000, &[&[trace.as_str(), "--server"], server].concat());
            assert_eq!(ended.status.code(), Some(1), "{server:?}: {}", ended.stderr);
            let part = format!("nobody answered at {}:53: unreachable 20", server[0]);
            assert!(ended.stderr.contains(&part), "no '{part}' in: {}", ended.stderr);
        }
    });
}

#[test]
fn further_loopback_addresses_have_ports_where_one_has_none_left() {
    with_few_ports(|| {
        let folder = Folder::new();
        let (trace, server) = (trace(&folder, 150), answering());
        let report = report(&limited(1_000, &[&trace, "--server", &server, "--idle", "1h"]));
        assert_eq!((count(&report, "answers"), count(&report, "most_open")), (150, 150), "{report}");
        assert!((118..=150).contains(&count(&report, "further_sources")), "{report}");
    });
}

#[test]
fn where_ports_run_out_the_least_recently_used_socket_gives_its_own() {
    with_few_ports(|| {
        // No loopback address, so that there is one to send from.
        let address = Ipv4Addr::new(10, 9, 0, 1);
        ip("address add 10.9.0.1/32 dev lo");
        let folder = Folder::new();
        let (trace, server) = (trace(&folder, 150), answering_at(address));
        let report = report(&limited(1_000, &[&trace, "--server", &server, "--idle", "1h"]));
        let told = ["udp", "most_open", "further_sources"].map(|key| count(&report, key));
        // One port is the server's.
        assert_eq!(told, [150, 31, 0], "{report}");
        assert_eq!(count(&report, "evicted"), 150 - 31, "{report}");
        assert_eq!(count(&report, "answers") + count(&report, "lost"), 150, "{report}");
        // Who came last gave nothing, however late the answers were.
        assert!(count(&report, "answers") >= 31, "{report}");
    });
}
