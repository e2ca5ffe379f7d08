//! A replay whose queries leave as Ethernet frames: they arrive as datagrams, from many addresses, and are answered.

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use serde_json::Value;
use tests::folder::Folder;
use tests::namespace::{self, Other};
use tests::program::{self, Ended, Program};

/// A tolerance that no machine misses: time is not what these tests are about.
const ANY: [&str; 3] = ["--tolerance", "24h", "--json"];

/// Queries, each of a client of its own.
const QUERIES: u64 = 400;

/// Between two networks: `near` is where the replay is. Neither end knows the other's address yet.
const NEAR: &str = "address add 10.99.0.2/24 dev near
address add fd00:99::2/64 dev near nodad
route add local 10.100.0.0/16 dev lo
route add local fd00:100::/64 dev lo
route add 10.77.0.0/16 via 10.99.0.1
route add 10.66.0.0/16 via 10.99.0.9";

/// The other end, which is a router to a further address too.
const FAR: &str = "address add 10.99.0.1/24 dev far
address add fd00:99::1/64 dev far nodad
address add 10.77.0.1/32 dev lo
route add 10.100.0.0/16 via 10.99.0.2
route add fd00:100::/64 via fd00:99::2";

/// Joins this thread's network with another one, where servers of these addresses answer everything; each query's source
/// comes out.
fn answered(servers: &'static [&'static str]) -> mpsc::Receiver<IpAddr> {
    let (tell, sources) = mpsc::channel();
    Other::joined(NEAR, FAR).run(move || {
        for server in servers {
            let (socket, tell) = (UdpSocket::bind(server).expect("it binds"), tell.clone());
            thread::spawn(move || echo(&socket, &tell));
        }
    });
    sources
}

fn echo(socket: &UdpSocket, sources: &mpsc::Sender<IpAddr>) {
    let mut octets = [0; 512];
    while let Ok((length, from)) = socket.recv_from(&mut octets) {
        // An empty one is the kernel's, which looks for this host.
        if length > 2 {
            octets[2] |= 0x80;
            let _ = sources.send(from.ip());
            let _ = socket.send_to(&octets[..length], from);
        }
    }
}

/// One query each of so many clients, a millisecond apart.
fn trace(folder: &Folder) -> String {
    let line = |client: u64| {
        let (third, last) = (client / 250, client % 250);
        format!("10.{client:03} 192.0.{third}.{last}:5353 udp n{client}.example.com. A rd\n")
    };
    folder.write("queries.txt", (0..QUERIES).map(line).collect::<String>())
}

fn replay(arguments: &[&str]) -> Ended {
    let mut command = Command::new(program::path());
    command.arg("replay").args(arguments).args(ANY);
    Program::spawn(command).end()
}

/// Datagrams that sockets of this thread's network have sent.
fn sent_by_sockets(is_ipv4: bool) -> u64 {
    if is_ipv4 {
        let table = fs::read_to_string("/proc/thread-self/net/snmp").expect("Linux has it");
        let mut lines = table.lines().filter_map(|line| line.strip_prefix("Udp: "));
        let [names, values] = [(); 2].map(|()| lines.next().expect("it has names, and numbers"));
        let at = names.split(' ').position(|name| name == "OutDatagrams").expect("it is told");
        return values.split(' ').nth(at).and_then(|value| value.parse().ok()).expect("a number");
    }
    let table = fs::read_to_string("/proc/thread-self/net/snmp6").expect("Linux has it");
    let line = table.lines().find_map(|line| line.strip_prefix("Udp6OutDatagrams")).expect("it is told");
    line.trim().parse().expect("a number")
}

#[test]
fn queries_arrive_from_many_addresses_and_are_answered() {
    namespace::alone(|| {
        let sources = answered(&["10.99.0.1:53", "10.77.0.1:53", "[fd00:99::1]:53"]);
        let folder = Folder::new();
        let trace = trace(&folder);
        for (servers, prefix, more) in [
            ("10.99.0.1", "10.100.0.0/16", &["--threads", "2"][..]),
            // Directly, and by a router; each at a distance.
            ("10.99.0.1,10.77.0.1", "10.100.0.0/16", &["--rtt", "0..20ms"]),
            ("10.77.0.1", "10.100.0.0/16", &["--processes", "2", "--mutate", "do=50%"]),
            ("fd00:99::1", "fd00:100::/64", &["--fast", "--window", "50"]),
        ] {
            let is_ipv4 = !servers.contains("::");
            let before = sent_by_sockets(is_ipv4);
            let all = [trace.as_str(), "--server", servers, "--source-prefix", prefix, "--frames"];
            let ended = replay(&[&all[..], more].concat());
            assert_eq!(ended.status.code(), Some(0), "{servers}: {}{}", ended.stdout, ended.stderr);
            let report: Value = serde_json::from_str(&ended.stdout).expect("a report");
            assert_eq!(
                (&report["queries"], &report["answers"]),
                (&QUERIES.into(), &QUERIES.into()),
                "{report}"
            );
            assert_eq!(report["unexpected"]["aliens"], 0, "{report}");
            let seen: Vec<IpAddr> = sources.try_iter().collect();
            let different: HashSet<IpAddr> = seen.iter().copied().collect();
            // Of 400 sources of 65,536 addresses few are the same.
            assert!(seen.len() as u64 == QUERIES && different.len() > 380, "{servers}: {}", different.len());
            // A socket sends only what has the kernel look for the next hop.
            assert!(sent_by_sockets(is_ipv4) - before <= 2, "{servers}: they went past sockets");
        }
    });
}

#[test]
fn where_frames_cannot_go_it_says_so_and_how_to_go_on() {
    namespace::alone(|| {
        let _sources = answered(&["10.99.0.1:53"]);
        let folder = Folder::new();
        let trace = trace(&folder);
        let near = ["--source-prefix", "10.100.0.0/16", "--frames"];
        for (servers, more, parts) in [
            // All that is wrong, at once.
            (
                "127.0.0.1,10.99.0.2",
                &near[..],
                &["127.0.0.1:53", "10.99.0.2:53", "lo, which is no Ethernet device", "leave it out"][..],
            ),
            ("10.99.0.1", &["--frames"], &["--source-prefix"]),
            ("10.99.0.1", &[&near[..], &["--transport", "tcp=100%"]].concat(), &["no query goes over UDP"]),
            ("192.168.1.1", &near, &["192.168.1.1:53: no route leads there", "leave it out"]),
            (
                "10.66.0.1",
                &near,
                &["10.66.0.1:53: the next hop, 10.99.0.9 on near, does not tell its address"],
            ),
            // What is answered would not come here, or be thrown away.
            (
                "10.99.0.1",
                &["--source-prefix", "10.101.0.0/16", "--frames"],
                &["is no address of this host", "ip route add local 10.101.0.0/16 dev lo"],
            ),
            (
                "fd00:99::1",
                &["--source-prefix", "fd00:99::/64", "--frames"],
                &["route add local fd00:99::/64"],
            ),
            (
                "10.99.0.1",
                &["--source-prefix", "127.1.0.0/16", "--frames"],
                &["is none that a host takes frames from; expected a prefix outside"],
            ),
            // Their answers would come, but no connection can begin there.
            (
                "fd00:99::1",
                &["--source-prefix", "fd00:100::/64", "--frames", "--transport", "udp=50%,tcp=50%"],
                &["is no address of this host", "sysctl net.ipv6.ip_nonlocal_bind=1"],
            ),
        ] {
            let ended = replay(&[&[trace.as_str(), "--server", servers], more].concat());
            assert_eq!(ended.status.code(), Some(2), "{servers}: {}{}", ended.stdout, ended.stderr);
            for part in parts {
                assert!(ended.stderr.contains(part), "no '{part}' in: {}", ended.stderr);
            }
        }
        // Without the right to send them.
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-net_raw"]).arg(program::path()).args(["replay", &trace]);
        command.args(["--server", "10.99.0.1"]).args(near);
        let ended = Program::spawn(command).end();
        assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains("the capability CAP_NET_RAW"), "{}", ended.stderr);
    });
}
