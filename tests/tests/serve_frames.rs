//! Queries that are taken from an interface as frames: they are answered as those over sockets, and what is no such query
//! goes to the sockets.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;

use etherparse::PacketBuilder;
use nix::sys::signal::Signal;

use tests::folder::Folder;
use tests::guide;
use tests::namespace::{self, Other, ip};
use tests::program::{self, Ended, Program};
use tests::query::{ANSWER_WAIT, Answer, Question};
use tests::secondary::Key;
use tests::serving::{self, Serving};

/// The server's end: `near` has its addresses. The other end knows whom to send to.
const NEAR: &str = "address add 10.99.0.1/24 dev near
address add fd00:99::1/64 dev near nodad
address add 10.99.0.3/32 dev near";

const FAR: &str = "address add 10.99.0.2/24 dev far
address add fd00:99::2/64 dev far nodad";

const ZONE: &str = "\
$TTL 300
@ SOA ns hm 1 7200 600 86400 60
@ NS ns
ns A 192.0.2.53
www A 192.0.2.1
www AAAA 2001:db8::1
text TXT ( \"................................................................\"
\"................................................................\"
\"................................................................\" )
";

/// The addresses of [`NEAR`] that are answered at, at a port that no other server has.
const LISTEN: [&str; 2] = ["10.99.0.1:5300", "[fd00:99::1]:5300"];

/// May change everything.
const KEY: Key<'static> = Key {
    algorithm: "hmac-sha256",
    name: "all.example",
    secret: "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
};

/// What is asked, in the order of the answers.
const QUESTIONS: [(&str, &str); 5] = [
    ("www.example.com", "A"),
    ("www.example.com", "AAAA"),
    ("text.example.com", "TXT"),
    ("nothing.example.com", "A"),
    ("www.example.net", "A"),
];

fn serve(folder: &Folder, more: &[&str]) -> Serving {
    let zone = folder.write("example.com.zone", ZONE);
    let listen = LISTEN.into_iter().flat_map(|address| ["--listen", address]);
    let fixed = ["--zone", &zone, "--workers", "1"];
    let arguments: Vec<&str> = listen.chain(fixed).chain(more.iter().copied()).collect();
    Serving::start(folder, &arguments)
}

/// Asks all questions there, without EDNS and with it.
fn asked(other: &Other, server: SocketAddr) -> Vec<Answer> {
    other.run(move || {
        let questions = QUESTIONS.iter().map(|(name, rtype)| Question::new(name, rtype));
        questions.flat_map(|question| [question.clone().udp(server), question.edns().udp(server)]).collect()
    })
}

/// A counter of workers by number: sockets have the first numbers, queues those behind.
fn counted(server: &Serving, name: &str, worker: usize) -> u64 {
    let metrics = server.call("GET", "/metrics", "").text();
    let begins = format!("{name}{{worker=\"{worker}\"");
    let lines = metrics.lines().filter(|line| line.starts_with(&begins));
    lines
        .map(|line| line.rsplit(' ').next().and_then(|value| value.parse::<u64>().ok()).expect("a number"))
        .sum()
}

/// Whether a program is in the way of frames.
fn is_attached() -> bool {
    let shown = Command::new("ip").args(["link", "show", "near"]).output().expect("ip (Debian: iproute2)");
    String::from_utf8_lossy(&shown.stdout).contains("prog/xdp")
}

#[test]
fn frames_are_answered_as_datagrams_are() {
    namespace::alone(|| {
        let other = Other::joined(NEAR, FAR);
        let folder = Folder::new();
        let [by_sockets, by_frames] = [&[][..], &["--xdp", "near"]].map(|more| {
            let server = serve(&folder, more);
            assert_eq!(is_attached(), !more.is_empty());
            let answers: Vec<_> =
                server.listening.iter().flat_map(|address| asked(&other, *address)).collect();
            let workers = [0, 1, 2].map(|worker| counted(&server, "pointsman_worker_queries_total", worker));
            let each = 2 * QUESTIONS.len() as u64;
            assert_eq!(workers, if more.is_empty() { [each, each, 0] } else { [0, 0, 2 * each] });
            assert_eq!(server.stop().status.code(), Some(0));
            answers
        });
        assert_eq!(by_frames, by_sockets);
        assert!(!is_attached(), "the interface is as it was");
    });
}

#[test]
fn where_a_driver_runs_no_program_it_stands_behind_the_driver() {
    namespace::alone(|| {
        let above = "link add link near name above type macvlan mode bridge\nlink set above up\n";
        let other = Other::joined(&[above, &NEAR.replace("dev near", "dev above")].concat(), FAR);
        let folder = Folder::new();
        let mut server = serve(&folder, &["--xdp", "above"]);
        let line = server.program.has_said("queries are taken from the interface");
        assert!(line.contains("mode=\"generic\""), "{line}");
        // Over IPv4 the device below says that it has the address, too.
        let answers = asked(&other, server.listening[1]).len() as u64;
        let queries = [0, 1, 2].map(|worker| counted(&server, "pointsman_worker_queries_total", worker));
        assert_eq!(queries, [0, 0, answers]);
        assert_eq!(server.stop().status.code(), Some(0));
    });
}

#[test]
fn what_is_no_such_query_goes_to_the_sockets() {
    namespace::alone(|| {
        let other = Other::joined(NEAR, FAR);
        let folder = Folder::new();
        let server = serve(&folder, &["--xdp", "near"]);
        let queries = |worker| counted(&server, "pointsman_worker_queries_total", worker);
        for (place, address) in server.listening.iter().copied().enumerate() {
            // A datagram of several packets.
            let before = queries(2);
            let long = Question::new("www.example.com", "A").option(12, &[0; 2_000]);
            let answer = other.run(move || long.udp(address));
            assert_eq!(answer.rcode, "NOERROR");
            assert_eq!((queries(place), queries(2)), (1, before), "the socket of {address} has it");
            let answer = other.run(move || Question::new("www.example.com", "A").tcp(address));
            assert_eq!(answer.rcode, "NOERROR");
        }
        // Another address of this machine, and a port at which nobody is: what the kernel says comes back.
        for nobody in ["10.99.0.3:5300", "10.99.0.1:5301"] {
            let refused = other.run(move || {
                let client = UdpSocket::bind("10.99.0.2:0").expect("it binds");
                client.connect(nobody).expect("it is reachable");
                client.send(&[0; 12]).expect("it is reachable");
                client.recv(&mut [0; 12]).map_err(|cause| cause.kind())
            });
            assert_eq!(refused, Err(ErrorKind::ConnectionRefused), "{nobody}");
        }
        assert_eq!(server.stop().status.code(), Some(0));
    });
}

#[test]
fn updates_that_came_as_frames_are_answered_by_a_socket() {
    namespace::alone(|| {
        let other = Other::joined(NEAR, FAR);
        let folder = Folder::new();
        folder.write_secret("tsig.keys", KEY.line());
        let config = "version = \"v1\"\ntsig_keys = [\"tsig.keys\"]\n[[updater]]\nkey = \"all.example\"\n";
        let config = folder.write("pointsman.toml", config);
        let server = serve(&folder, &["--config", &config, "--xdp", "near"]);
        for (number, address) in server.listening.iter().enumerate() {
            let (ip, port) = (address.ip(), address.port());
            let lines = format!(
                "server {ip} {port}\nzone example.com\nadd new{number}.example.com 60 A 192.0.2.9\nsend\n"
            );
            let script = folder.write("update", lines);
            let done = other.run(move || {
                Command::new("nsupdate").args(["-d", "-r", "0", "-y", &KEY.line(), &script]).output()
            });
            let done = done.expect("nsupdate (Debian: bind9-dnsutils)");
            let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success() && said.contains("status: NOERROR"), "{said}");
            let (name, address) = (format!("new{number}.example.com"), *address);
            let answer = other.run(move || Question::new(&name, "A").udp(address));
            assert_eq!(answer.data(), ["192.0.2.9"]);
        }
        assert_eq!([0, 1].map(|worker| counted(&server, "pointsman_worker_queries_total", worker)), [0, 0]);
    });
}

#[test]
fn frames_that_are_dropped_are_counted() {
    namespace::alone(|| {
        let other = Other::joined(NEAR, FAR);
        let folder = Folder::new();
        let server = serve(&folder, &["--xdp", "near"]);
        let address = server.listening[0];
        let sound = Question::new("www.example.com", "A");
        let query = sound.message();
        other.run(move || {
            let frame = |source: [u8; 4]| {
                // To all on the link.
                let packet = PacketBuilder::ethernet2([2; 6], [0xff; 6]).ipv4(source, [10, 99, 0, 1], 64);
                let mut frame = Vec::new();
                packet.udp(4321, 5300).write(&mut frame, &query).expect("a vector takes it");
                frame
            };
            let [whole, mut checksum, mut malformed] = [(); 3].map(|()| frame([10, 99, 0, 2]));
            let last = checksum.len() - 1;
            checksum[last] ^= 1;
            malformed.truncate(last);
            let hop = net::hop::towards(address.ip(), ANSWER_WAIT).expect("it is on this link");
            let socket = net::client::frames(hop.device).expect("it opens");
            for frame in [whole, checksum, malformed, frame([127, 0, 0, 1])] {
                let sent = nix::unistd::write(&socket, &frame).expect("it is sent");
                assert_eq!(sent, frame.len());
            }
        });
        // They came before.
        other.run(move || sound.udp(address));
        let metrics = server.call("GET", "/metrics", "").text();
        for (cause, count) in [("malformed", 1), ("checksum", 1), ("source", 1)] {
            let line =
                format!("pointsman_worker_frames_dropped_total{{worker=\"2\",cause=\"{cause}\"}} {count}\n");
            assert!(metrics.contains(&line), "no {line} in {metrics}");
        }
        assert_eq!(counted(&server, "pointsman_worker_queries_total", 2), 2, "the whole ones");
    });
}

#[test]
fn the_guide_s_configuration_takes_frames_with_the_rights_that_it_names() {
    namespace::alone(|| {
        let addresses = "address add 192.0.2.53/24 dev eth0\naddress add 2001:db8::53/64 dev eth0 nodad";
        let renamed = "link set near down\nlink set near name eth0\nlink set eth0 up";
        let other = Other::joined(
            &format!("{renamed}\n{addresses}"),
            "address add 192.0.2.1/24 dev far\naddress add 2001:db8::1/64 dev far nodad",
        );
        let (folder, text) = (Folder::new(), guide::read("take-queries-as-frames.md"));
        let (_, config) = guide::blocks(&text)
            .into_iter()
            .find(|(kind, _)| *kind == "file frames.toml")
            .expect("it is there");
        folder.write("example.com.zone", ZONE);
        let config = folder.write("frames.toml", config);
        let rights = ["net_admin", "net_raw", "bpf"];
        assert!(rights.iter().all(|right| text.contains(&format!("CAP_{}", right.to_uppercase()))));
        // Port 53, which the unit has; the right that stands for LimitMEMLOCK, which not everybody may raise.
        let kept = format!("-all,+{},+net_bind_service,+ipc_lock", rights.join(",+"));
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", &kept]).arg(program::path());
        let listen = ["--listen", "192.0.2.53:53", "--listen", "[2001:db8::53]:53"];
        let server = Serving::under(command, &folder, &[&["--config", &config], &listen[..]].concat());
        for address in server.listening.clone() {
            let answer = other.run(move || Question::new("www.example.com", "A").udp(address));
            assert_eq!(answer.data(), ["192.0.2.1"]);
        }
        let workers = server.listening.len() * net::thread::cores().expect("Linux tells").len();
        assert_eq!(counted(&server, "pointsman_worker_queries_total", workers), 2);
        assert_eq!(server.stop().status.code(), Some(0));
    });
}

#[test]
fn who_is_killed_leaves_the_interface_as_it_was() {
    namespace::alone(|| {
        let other = Other::joined(NEAR, FAR);
        let folder = Folder::new();
        let server = serve(&folder, &["--xdp", "near"]);
        assert!(is_attached());
        server.program.signal(Signal::SIGKILL);
        server.program.end();
        assert!(!is_attached());
        let server = serve(&folder, &["--xdp", "near"]);
        let address = server.listening[0];
        assert_eq!(
            other.run(move || Question::new("www.example.com", "A").udp(address)).data(),
            ["192.0.2.1"]
        );
    });
}

#[test]
fn an_interface_that_goes_away_takes_nobody_with_it() {
    namespace::alone(|| {
        let other = Other::joined(NEAR, FAR);
        let folder = Folder::new();
        let mut server = serve(&folder, &["--listen", "127.0.0.1:5300", "--xdp", "near"]);
        ip("link delete near");
        let line = server.program.line("receiving fails");
        assert!(line.contains("worker=3"), "{line}");
        drop(other);
        let loopback: SocketAddr = "127.0.0.1:5300".parse().expect("an address");
        assert_eq!(Question::new("www.example.com", "A").udp(loopback).data(), ["192.0.2.1"]);
        assert!(counted(&server, "pointsman_worker_receive_failures_total", 3) > 0);
        assert_eq!(server.stop().status.code(), Some(0));
    });
}

#[test]
fn where_frames_cannot_be_taken_it_says_so_and_how_to_go_on() {
    namespace::alone(|| {
        let _other = Other::joined(NEAR, FAR);
        ip("link set near mtu 1280");
        let folder = Folder::new();
        let try_to = |mut command: Command, more: &[&str]| -> Ended {
            command.args(["serve", "--api", "127.0.0.1:0", "--store", &serving::store(&folder)]).args(more);
            Program::spawn(command).end()
        };
        let first = ["--listen", LISTEN[0]];
        for (more, code, parts) in [
            (
                &["--xdp", "eth77"][..],
                1,
                &["take frames of interface eth77", "no interface of this name"][..],
            ),
            (&["--xdp", "lo"], 1, &["take frames of interface lo", "no Ethernet device"]),
            (&["--xdp", "near", "--udp-payload-max", "1400B"], 1, &["its packets of 1280; 1232 would"]),
            (&["--xdp", "near", "--xdp", "near"], 2, &["xdp has \"near\" twice"]),
            (&["--xdp", "near", "--listen", "0.0.0.0:5301"], 2, &["listen has 0.0.0.0:5301", "one by one"]),
        ] {
            let ended = try_to(Command::new(program::path()), &[&first[..], more].concat());
            assert_eq!(ended.status.code(), Some(code), "{more:?}: {}", ended.stderr);
            for part in parts {
                assert!(ended.stderr.contains(part), "no '{part}' in: {}", ended.stderr);
            }
        }
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-all"]).arg(program::path());
        let ended = try_to(command, &[&first[..], &["--xdp", "near"]].concat());
        assert!(
            ended.stderr.contains("the capabilities CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF"),
            "{}",
            ended.stderr
        );
        let mut command = Command::new("prlimit");
        command.args(["--memlock=65536", "setpriv", "--bounding-set", "-ipc_lock"]).arg(program::path());
        let ended = try_to(command, &[&first[..], &["--xdp", "near"]].concat());
        assert!(ended.stderr.contains("`ulimit -l` (LimitMEMLOCK)"), "{}", ended.stderr);
        let server = serve(&folder, &["--xdp", "near"]);
        let second = ["--listen", "10.99.0.3:5300", "--xdp", "near"];
        let ended = try_to(Command::new(program::path()), &second);
        assert!(ended.stderr.contains("another program is there"), "{}", ended.stderr);
        assert_eq!(server.stop().status.code(), Some(0));
    });
}
