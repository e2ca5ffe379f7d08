//! What is wrong: told with what, where and how to go on at start, survived while serving.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::process::Command;

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tests::folder::Folder;
use tests::program::Program;
use tests::query::{Answer, Question, connect, exchange, receive, send, socket};
use tests::serving::{Serving, store};

const ZONE: &str = "\
$TTL 300
@ SOA ns hm 1 7200 600 86400 60
@ NS ns
ns A 192.0.2.53
";

/// Packets of noise that are sent; each takes some microseconds.
const PACKETS: usize = 20_000;

/// How many of them are sent at once: fewer than a receive buffer holds.
const ROUND: usize = 1_000;

/// Zones that are put until the disk takes no more; each is 32 KiB, and the file may have 1 MiB.
const ZONES_MAX: usize = 200;

/// Starts the program, which must refuse; returns what it said.
fn refused(code: i32, arguments: &[&str]) -> String {
    let ended = Program::start(arguments).end();
    assert_eq!(ended.status.code(), Some(code), "{arguments:?}: {}{}", ended.stdout, ended.stderr);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    ended.stderr
}

/// `serve` with a store in the folder and free ports, and `more`.
fn serve<'a>(store: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["serve"];
    for pair in [["--store", store], ["--listen", "127.0.0.1:0"], ["--api", "127.0.0.1:0"]] {
        if !more.contains(&pair[0]) {
            arguments.extend(pair);
        }
    }
    arguments.extend(more);
    arguments
}

fn has_all(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "no '{part}' in:\n{said}");
    }
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let folder = Folder::new();
    let store = store(&folder);
    let missing = folder.at("missing");
    for flag in ["--zone", "--partition", "--policy", "--config", "--token-file"] {
        let said = refused(2, &serve(&store, &[flag, &missing]));
        has_all(&said, &[&missing, "cannot be read", "No such file"]);
    }
    let said = refused(2, &serve(&store, &["--mmdb", &missing, "--regions", &missing]));
    has_all(&said, &[&missing, "No such file"]);
    let garbage = folder.write("garbage", b"\xff\xfe\0garbage\nmore");
    for flag in ["--zone", "--partition", "--policy", "--config"] {
        has_all(&refused(2, &serve(&store, &[flag, &garbage])), &[&garbage]);
    }
    has_all(&refused(2, &serve(&store, &["--mmdb", &garbage, "--regions", &garbage])), &[&garbage]);
    let itself = folder.path().display().to_string();
    has_all(&refused(2, &serve(&store, &["--zone", &itself])), &[&itself, "cannot be read"]);
    for flag in ["--policy", "--config"] {
        has_all(&refused(2, &serve(&store, &[flag, "/dev/zero"])), &["/dev/zero: it is larger than"]);
    }
}

#[test]
fn a_start_with_a_broken_file_goes_on_with_what_is_stored() {
    let folder = Folder::new();
    let zone = folder.write("example.com.zone", ZONE);
    Serving::start(&folder, &["--zone", &zone]).stop();
    folder.write("example.com.zone", ZONE.replace("192.0.2.53", "192.0.2.300"));
    let server = Serving::start(&folder, &["--zone", &zone]);
    assert_eq!(Question::new("ns.example.com", "A").udp(server.dns()).data(), ["192.0.2.53"]);
    let place = format!("{zone}:4:");
    has_all(&server.stop().stderr, &["ERROR", &place, "not imported; what is stored goes on"]);
    // Who asks beforehand is told, and so is who has nothing stored.
    let stored = store(&folder);
    has_all(&refused(2, &serve(&stored, &["--zone", &zone, "--check"])), &[&place]);
    let other = Folder::new();
    has_all(&refused(2, &serve(&store(&other), &["--zone", &zone])), &[&place]);
}

#[test]
fn a_start_that_waits_for_a_file_can_be_stopped() {
    let folder = Folder::new();
    let (store, zone) = (store(&folder), folder.at("example.zone"));
    mkfifo(&*zone, Mode::S_IRWXU).expect("the folder can be written");
    let mut program = Program::start(&serve(&store, &["--zone", &zone]));
    let unwritten = std::fs::File::options().write(true).open(&zone).expect("the start reads it");
    program.signal(Signal::SIGTERM);
    program.line("stopped before the start was over");
    assert_eq!(program.end().status.code(), Some(0));
    drop(unwritten);
}

#[test]
fn a_check_looks_for_the_user() {
    let folder = Folder::new();
    let store = store(&folder);
    let said = refused(2, &serve(&store, &["--check", "--user", "nobody-of-that-name"]));
    has_all(&said, &["user: the server could not become user", "no such user"]);
}

#[test]
fn where_log_lines_are_objects_so_are_the_faults_at_start() {
    let folder = Folder::new();
    let (store, missing) = (store(&folder), folder.at("missing"));
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let taken = tcp.local_addr().expect("it is bound").to_string();
    for (code, more, messages) in [
        (2, ["--zone", &missing, "--policy", &missing], &["missing: ", "missing: "][..]),
        (2, ["--workers", "0", "--token-file", &missing], &["--workers: ", "missing: "]),
        (1, ["--listen", &taken, "--api", "127.0.0.1:0"], &["failed to bind"]),
    ] {
        let more = [&["--log", "json"][..], &more].concat();
        let said = refused(code, &serve(&store, &more));
        let lines = said.lines().map(|line| serde_json::from_str(line).expect(&said));
        let lines: Vec<serde_json::Value> = lines.collect();
        assert_eq!(lines.len(), messages.len(), "{said}");
        for (line, message) in lines.iter().zip(messages) {
            assert_eq!((&line["level"], &line["target"]), (&"ERROR".into(), &"pointsman".into()));
            has_all(line["fields"]["message"].as_str().unwrap_or_default(), &[message]);
        }
    }
}

#[test]
fn a_stop_does_not_wait_for_a_reload() {
    let folder = Folder::new();
    let zone = folder.write("example.com.zone", ZONE);
    let serving = Serving::start(&folder, &["--zone", &zone]);
    std::fs::remove_file(&zone).expect("the file is there");
    mkfifo(&*zone, Mode::S_IRWXU).expect("the folder can be written");
    serving.program.signal(Signal::SIGHUP);
    // Opening waits for a reader: then the reload has begun, and it reads on until this is dropped.
    let unwritten = std::fs::File::options().write(true).open(&zone).expect("the reload reads it");
    serving.stop();
    drop(unwritten);
}

#[test]
fn ports_that_are_taken_are_named() {
    let folder = Folder::new();
    let store = store(&folder);
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let tcp = tcp.local_addr().expect("it is bound").to_string();
    let udp = udp.local_addr().expect("it is bound").to_string();
    for (flag, address) in [("--listen", &tcp), ("--listen", &udp), ("--api", &tcp)] {
        let said = refused(1, &serve(&store, &[flag, address]));
        has_all(&said, &[address, "another program has this port", "choose another"]);
    }
    // An address that this machine has not.
    let said = refused(1, &serve(&store, &["--listen", "192.0.2.1:5300"]));
    has_all(&said, &["192.0.2.1:5300"]);
    // Another of ours: its UDP sockets would share the port in silence.
    let other = Folder::new();
    let none: &[&str] = &[];
    let first = Serving::start(&other, none);
    let said = refused(1, &serve(&store, &["--listen", &first.dns().to_string()]));
    has_all(&said, &[&first.dns().to_string(), "another program has this port"]);
}

#[test]
fn a_store_that_cannot_be_used_is_named() {
    let folder = Folder::new();
    let said = refused(1, &serve(&format!("sqlite:{}", folder.at("no/such/pointsman.db")), &[]));
    has_all(&said, &["no folder", &folder.at("no/such"), "make it"]);

    let other = folder.write("other.db", "this is no database, but long enough to look at".repeat(100));
    let said = refused(1, &serve(&format!("sqlite:{other}"), &[]));
    has_all(&said, &[&other, "is not a store of Pointsman", "backup"]);

    // What stands behind the scheme may be a password.
    let said = refused(2, &serve("oracle://dns:secret@here/dns", &[]));
    has_all(&said, &["\"oracle:...\"", "sqlite:PATH"]);
    assert!(!said.contains("secret"), "{said}");

    let server = Serving::start(&folder, &["--zone", &folder.write("example.com.zone", ZONE)]);
    let said = refused(1, &serve(&store(&folder), &[]));
    let pid = format!("process {}", server.program.pid());
    has_all(&said, &[&folder.at("pointsman.db"), "in use", &pid, "choose another path"]);
    server.stop();

    // Its pages are damaged, its first one is not.
    let path = folder.at("pointsman.db");
    let mut bytes = std::fs::read(&path).expect("the store is there");
    bytes[4096..].fill(0xa5);
    std::fs::write(&path, bytes).expect("the store can be written");
    let said = refused(1, &serve(&store(&folder), &[]));
    has_all(&said, &[&path, "backup"]);
}

#[test]
fn a_wrong_configuration_is_listed_whole() {
    let folder = Folder::new();
    let store = store(&folder);
    let config = folder.write(
        "pointsman.toml",
        "version = \"v1\"\nlisten = [\"127.0.0.1\"]\ncolour = \"red\"\nudp_payload_max = \"9 KiB\"\n[tcp]\nidle = 7\n",
    );
    let said = refused(2, &["serve", "--store", &store, "--config", &config]);
    let at = |line: u32, what: &str| format!("{config}:{line}:{what}");
    has_all(&said, &[&at(2, ""), &at(3, "1: unknown key colour"), &at(4, ""), &at(6, "")]);
    let said = refused(2, &serve(&store, &["--api", "0.0.0.0:0"]));
    has_all(&said, &["token_file", "loopback"]);
    let said = refused(2, &serve(&store, &["--workers", "0"]));
    has_all(&said, &["--workers", "256"]);
    has_all(&refused(2, &["serve", "--colour"]), &["--colour"]);
    let version = folder.write("old.toml", "version = \"v0\"\n");
    has_all(&refused(2, &serve(&store, &["--config", &version])), &[&version, "v1"]);
    assert!(!std::path::Path::new(&folder.at("pointsman.db")).exists(), "nothing was begun");
}

#[test]
fn check_lists_the_faults_of_all_files_at_once() {
    let folder = Folder::new();
    let store = store(&folder);
    let zone = folder
        .write("bad.zone", "$TTL x\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.300\nq QQ q\n");
    let partition = folder.write("bad.csv", "10.0.0.0/33,europe\n10.0.0.1/8,asia\nasia\n");
    let policy =
        folder.write("bad.json", "{\n \"answers\": -1,\n \"servers\": [{\"address\": \"here\"}]\n}\n");
    let config = folder.write(
        "bad.toml",
        "version = \"v1\"\nzone = [\"bad.zone\"]\npolicy = [\"bad.json\"]\nlog = \"loud\"\n\
         [[partition]]\ncsv = \"bad.csv\"\n",
    );
    for check in [&["--check"][..], &[]] {
        let mut arguments = vec!["serve", "--store", &store, "--config", &config];
        arguments.extend(check);
        let said = refused(2, &arguments);
        let places = [
            format!("{config}:4:"),
            format!("{zone}:1:"),
            format!("{zone}:4:"),
            format!("{zone}:5:"),
            format!("{partition}:1:"),
            format!("{partition}:2:"),
            format!("{partition}:3:"),
            format!("{policy}:2:"),
            format!("{policy}:3:"),
        ];
        for place in places {
            assert!(
                said.lines().any(|line| line.starts_with(&place)),
                "no line begins with {place}:\n{said}"
            );
        }
        has_all(&said, &["expected"]);
    }
    let good = folder.write("example.com.zone", ZONE);
    let ended = Program::start(&["serve", "--store", &store, "--zone", &good, "--check"]).end();
    let told = format!("ok, with nothing stored yet in {store}\n");
    assert_eq!((ended.status.code(), &ended.stdout), (Some(0), &told), "{}", ended.stderr);
    assert!(!std::path::Path::new(&folder.at("pointsman.db")).exists(), "a check makes no store");
}

#[test]
fn an_agent_that_is_to_tell_nobody_is_asked_to_show_it() {
    let ended = Program::start(&["agent", "--service", "udp:127.0.0.1:53"]).end();
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    has_all(&ended.stderr, &["--balancer: it is not given", "--print"]);
}

#[test]
fn a_check_is_of_what_a_start_would_do_with_this_store() {
    let folder = Folder::new();
    let store = store(&folder);
    let zone = folder.write("example.com.zone", ZONE);
    folder.write(
        "policy.json",
        r#"{"names": ["www.example.com"], "servers": [{"address": "192.0.2.1", "regions": {"europe": {}}}]}"#,
    );
    let config = folder.write("c.toml", "version = \"v1\"\npolicy = [\"policy.json\"]\n");
    let check = || {
        let ended = Program::start(&["serve", "--store", &store, "--config", &config, "--check"]).end();
        (ended.status.code(), ended.stdout, ended.stderr)
    };
    let (code, _, said) = check();
    assert_eq!(code, Some(2), "{said}");
    has_all(&said, &["europe", "www.example.com. is in none of our zones"]);
    let server = Serving::start(&folder, &["--zone", &zone]);
    assert_eq!(server.call("POST", "/v1/regions", r#"{"name": "europe"}"#).status, 200);
    let is_ok = || {
        let (code, printed, logged) = check();
        assert_eq!((code, printed), (Some(0), format!("ok, with what is stored in {store}\n")), "{logged}");
        assert_eq!(logged.lines().count(), 1, "{logged}");
        has_all(&logged, &["a policy is read policy=\"www.example.com\"", "policy.json"]);
    };
    is_ok();
    server.stop();
    is_ok();
    Serving::start(&folder, &["--config", &config]);
}

#[test]
fn a_bad_change_leaves_the_old_generation() {
    let folder = Folder::new();
    let server = Serving::start(&folder, &["--zone", &folder.write("example.com.zone", ZONE)]);
    let generation = server.call("GET", "/v1/health", "").generation();
    let mut client = server.client();
    for (path, body, lines) in [
        (
            "/v1/zones/example.com",
            "@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.300\nx QQ y\n",
            vec![3, 4],
        ),
        ("/v1/zones/example.com", "", vec![]),
        ("/v1/zones/example.com", "@ NS ns\nns A 192.0.2.1\n", vec![]),
        ("/v1/zones/example.net", "example.com. 1 SOA ns hm 1 1 1 1 1\nexample.com. 1 NS ns\n", vec![]),
        ("/v1/zones/example.com", "$INCLUDE /etc/hostname\n", vec![1]),
        ("/v1/policies/www.example.com", "{\n\"servers\": [{}],\n\"x\": 1}", vec![2, 3]),
        ("/v1/policies/www.example.com", "{", vec![1]),
        ("/v1/partitions/default", "10.0.0.0/8\n\n10.0.0.0/40,-\n", vec![1, 3]),
    ] {
        let response = client.call("PUT", path, body);
        // A body that is empty has no type.
        let expected = if body.is_empty() { 415 } else { 422 };
        assert_eq!(response.status, expected, "{path} {body:?}: {}", response.text());
        let problem = response.json();
        let faults = problem["faults"].as_array().cloned().unwrap_or_default();
        for line in lines {
            assert!(faults.iter().any(|fault| fault["line"] == line), "no line {line} in {problem}");
        }
        let answer = Question::new("ns.example.com", "A").udp(server.dns());
        assert_eq!(answer.data(), ["192.0.2.53"]);
    }
    assert_eq!(server.call("GET", "/v1/health", "").generation(), generation);
}

#[test]
fn a_store_that_is_deleted_stops_changes_and_not_answers() {
    let folder = Folder::new();
    let server = Serving::start(&folder, &["--zone", &folder.write("example.com.zone", ZONE)]);
    let status = || server.call("GET", "/v1/status", "").json();
    assert_eq!(status()["store"]["ok"], true);
    std::fs::remove_file(folder.at("pointsman.db")).expect("the store is there");
    refuses_changes(&server, &folder.at("pointsman.db"));
    server.stop();
}

/// Looks whether a change is refused with 503 while all else goes on, and whether that can be seen.
fn refuses_changes(server: &Serving, path: &str) {
    let generation = server.call("GET", "/v1/health", "").generation();
    let put = server.client().call("PUT", "/v1/zones/example.net", ZONE);
    assert_eq!(put.status, 503, "{}", put.text());
    has_all(&put.text(), &[path]);
    assert_eq!(server.call("GET", "/v1/health", "").generation(), generation);
    let answer = Question::new("ns.example.com", "A").udp(server.dns());
    assert_eq!(answer.data(), ["192.0.2.53"]);
    assert_eq!(Question::new("ns.example.net", "A").udp(server.dns()).rcode, "REFUSED");
    let status = server.call("GET", "/v1/status", "").json();
    assert_eq!(status["store"]["ok"], false, "{status}");
    has_all(&status["store"]["message"].to_string(), &[path]);
    has_all(&server.call("GET", "/metrics", "").text(), &["\npointsman_store_ok 0\n"]);
}

#[test]
fn a_disk_that_takes_no_more_stops_changes_and_not_answers() {
    let folder = Folder::new();
    let zone = folder.write("example.com.zone", ZONE);
    // Files may have 1 MiB: as near to a full disk as one gets without a disk of one's own.
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -f 2048; exec \"$0\" \"$@\""]).arg(tests::program::path());
    let server = Serving::under(shell, &folder, &["--zone", &zone]);
    let mut client = server.client();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut taken = 0;
    let full = (0..ZONES_MAX).find_map(|number| {
        let noise = |_| format!("@ TXT {}\n", (0..128).map(|_| rng.alphanumeric()).collect::<String>());
        let text = format!("{ZONE}{}", (0..256).map(noise).collect::<String>());
        let response = client.call("PUT", &format!("/v1/zones/z{number}.example.com"), &text);
        taken += usize::from(response.status == 200);
        (response.status != 200).then_some(response)
    });
    let full = full.expect("the disk takes no more at some time");
    assert_eq!(full.status, 503, "{}", full.text());
    let status = server.call("GET", "/v1/status", "").json();
    assert_eq!(status["store"]["ok"], false, "after {}: {status}", full.text());
    has_all(&server.call("GET", "/metrics", "").text(), &["\npointsman_store_ok 0\n"]);
    let generation = server.call("GET", "/v1/health", "").generation();
    let answer = Question::new("ns.example.com", "A").udp(server.dns());
    assert_eq!(answer.data(), ["192.0.2.53"]);
    server.program.signal(Signal::SIGKILL);
    server.program.end();

    let again = Serving::start(&folder, &["--zone", &zone]);
    let zones = again.call("GET", "/v1/zones", "").json();
    assert_eq!(zones.as_array().map(Vec::len), Some(taken + 1), "what was acknowledged is there");
    assert_eq!(again.call("GET", "/v1/health", "").generation(), generation);
    assert_eq!(again.call("GET", "/v1/status", "").json()["store"]["ok"], true);
}

/// What may come back for a malformed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Formerr,
    Notimp,
    Silence,
}

impl Expected {
    fn rcode(self) -> Option<u8> {
        match self {
            Expected::Formerr => Some(1),
            Expected::Notimp => Some(4),
            Expected::Silence => None,
        }
    }
}

#[test]
fn malformed_packets_get_a_format_error_or_silence() {
    use Expected::{Formerr, Notimp, Silence};
    let folder = Folder::new();
    let server = Serving::start(&folder, &["--zone", &folder.write("example.com.zone", ZONE)]);
    let question = Question::new("ns.example.com", "A");
    let good = question.clone().edns().message();
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut message = good.clone();
        change(&mut message);
        message
    };
    for (why, packet, expected) in [
        ("nothing", vec![], Silence),
        ("an octet", vec![0], Silence),
        ("less than a header", good[..11].to_vec(), Silence),
        ("a response", with(&|m| m[2] |= 0x80), Silence),
        ("a header alone", good[..12].to_vec(), Formerr),
        ("a question that breaks off in its name", good[..15].to_vec(), Formerr),
        ("a question that breaks off in its type", good[..good.len() - 11 - 2].to_vec(), Formerr),
        ("no question", with(&|m| m[5] = 0), Formerr),
        ("two questions", with(&|m| m[5] = 2), Formerr),
        ("65,535 questions", with(&|m| (m[4], m[5]) = (0xff, 0xff)), Formerr),
        ("a pointer to itself", with(&|m| (m[12], m[13]) = (0xc0, 12)), Formerr),
        ("a pointer to the header", with(&|m| (m[12], m[13]) = (0xc0, 0)), Formerr),
        ("a label of an unknown kind", with(&|m| m[12] = 0x80), Formerr),
        ("a name of 256 octets", with(&|m| drop(m.splice(12..12, [63u8; 64 * 4]))), Formerr),
        ("an OPT that breaks off", with(&|m| m.truncate(m.len() - 5)), Formerr),
        ("more records than there are", with(&|m| m[11] = 200), Formerr),
        (
            "two OPTs",
            with(&|m| {
                m[11] = 2;
                m.extend_from_within(m.len() - 11..);
            }),
            Formerr,
        ),
        ("an UPDATE", with(&|m| m[2] = 5 << 3), Notimp),
        ("a NOTIFY", with(&|m| m[2] = 4 << 3), Notimp),
    ] {
        // Packets from one port reach one worker in their order, so what is silence shows by the next answer.
        let socket = socket(server.dns());
        socket.send(&packet).expect("loopback sends");
        if expected != Silence {
            let mut reply = [0; 512];
            let length = socket.recv(&mut reply).expect("an answer");
            assert_eq!((Some(reply[3] & 0x0f), &reply[..2]), (expected.rcode(), &packet[..2]), "{why}");
            assert!(length <= packet.len().max(12), "{why}: nothing is amplified");
        }
        assert_eq!(question.at(&socket).data(), ["192.0.2.53"], "after {why}");
        // Over TCP answers may overtake each other, and a connection takes the next query all the same.
        let mut stream = connect(server.dns());
        send(&mut stream, &packet).expect("the server takes it");
        let next = question.message();
        send(&mut stream, &next).expect("the server takes it");
        let mut replies = vec![receive(&mut stream).expect("an answer")];
        if expected != Silence {
            replies.push(receive(&mut stream).expect("an answer to each"));
        }
        replies.retain(|reply| reply[..2] != next[..2]);
        let rcodes: Vec<u8> = replies.iter().map(|reply| reply[3] & 0x0f).collect();
        assert_eq!(rcodes, expected.rcode().into_iter().collect::<Vec<u8>>(), "{why} over TCP");
    }
}

#[test]
fn noise_ends_no_worker() {
    let folder = Folder::new();
    let server = Serving::start(&folder, &["--zone", &folder.write("example.com.zone", ZONE)]);
    let question = Question::new("ns.example.com", "A");
    let good = question.clone().subnet("10.1.2.0/24").message();
    let mut rng = fastrand::Rng::with_seed(7);
    let sockets: Vec<UdpSocket> = (0..16).map(|_| socket(server.dns())).collect();
    for number in 0..PACKETS {
        let mut packet = good.clone();
        if rng.bool() {
            packet.resize(rng.usize(0..600), 0);
            rng.fill(&mut packet);
        } else {
            for _ in 0..rng.usize(1..6) {
                let at = rng.usize(0..packet.len());
                packet[at] = rng.u8(..);
            }
        }
        sockets[number % sockets.len()].send(&packet).expect("loopback sends");
        // Answers in between say that the noise before them is read: more than a buffer holds would be lost.
        if number % ROUND == ROUND - 1 {
            for _ in &sockets {
                assert_eq!(question.udp(server.dns()).data(), ["192.0.2.53"]);
            }
        }
    }
    let status = server.call("GET", "/v1/status", "").json();
    let counters = &status["counters"];
    assert!(counters["queries"].as_u64() > Some(PACKETS as u64), "{counters}");
    assert_eq!(counters["dropped"]["panicked"].as_u64().unwrap_or(0), 0, "{counters}");
    let ended = server.stop();
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}

#[test]
fn a_crowd_is_told_for_how_long_it_may_be_idle() {
    let folder = Folder::new();
    let zone = folder.write("example.com.zone", ZONE);
    let limits = "version = \"v1\"\n[tcp]\nconnections_max = 2\nper_client_max = 2\nidle = \"9 s\"\nidle_when_crowded = \"4 s\"\n";
    let server =
        Serving::start(&folder, &["--config", &folder.write("pointsman.toml", limits), "--zone", &zone]);
    const KEEPALIVE: u16 = 11;
    let message = Question::new("ns.example.com", "A").option(KEEPALIVE, &[]).message();
    let told = |stream: &mut TcpStream| {
        send(stream, &message).expect("the server takes it");
        let answer = Answer::read(&receive(stream).expect("an answer"));
        answer.option(KEEPALIVE).map(<[u8]>::to_vec)
    };
    let mut first = connect(server.dns());
    assert_eq!(told(&mut first), Some(vec![0, 90]));
    let mut second = connect(server.dns());
    assert_eq!(
        [told(&mut second), told(&mut first)],
        [(); 2].map(|()| Some(vec![0, 40])),
        "in tenths of a second"
    );
    server.stop();
}

#[test]
fn slow_and_half_closed_connections_hold_nobody_up() {
    let folder = Folder::new();
    let zone = folder.write("example.com.zone", ZONE);
    let config = folder.write(
        "pointsman.toml",
        "version = \"v1\"\n[tcp]\nidle = \"1 s\"\nidle_when_crowded = \"1 s\"\nmessage = \"1 s\"\n",
    );
    let server = Serving::start(&folder, &["--config", &config, "--zone", &zone]);
    let question = Question::new("ns.example.com", "A");
    let message = question.message();
    let framed = [&(message.len() as u16).to_be_bytes()[..], &message].concat();

    // These say nothing, or stop in the length, in the message, or before the second one.
    let mut slow: Vec<_> = [0, 1, 2, 20]
        .map(|length| {
            let mut stream = connect(server.dns());
            stream.write_all(&framed[..length]).expect("the server takes it");
            stream
        })
        .into();
    let mut second = connect(server.dns());
    second.write_all(&[&framed[..], &framed[..9]].concat()).expect("the server takes it");
    assert_eq!(Answer::read(&receive(&mut second).expect("an answer")).data(), ["192.0.2.53"]);
    slow.push(second);

    // Meanwhile others are served: whole, in pieces, several at once, and half closed.
    assert_eq!(question.tcp(server.dns()).data(), ["192.0.2.53"]);
    let mut pieces = connect(server.dns());
    for piece in framed.chunks(1) {
        pieces.write_all(piece).expect("the server takes it");
    }
    assert_eq!(Answer::read(&receive(&mut pieces).expect("an answer")).data(), ["192.0.2.53"]);
    let mut half = connect(server.dns());
    let several: Vec<Vec<u8>> = (0..20).map(|_| question.message()).collect();
    for message in &several {
        send(&mut half, message).expect("the server takes it");
    }
    half.shutdown(Shutdown::Write).expect("it is open");
    let mut ids: Vec<[u8; 2]> = Vec::new();
    for _ in &several {
        let reply = receive(&mut half).expect("an answer");
        ids.push([reply[0], reply[1]]);
    }
    ids.sort_unstable();
    let mut wanted: Vec<[u8; 2]> = several.iter().map(|message| [message[0], message[1]]).collect();
    wanted.sort_unstable();
    assert_eq!(ids, wanted, "each query has its answer");
    slow.push(half);

    for (number, mut stream) in slow.into_iter().enumerate() {
        let mut rest = Vec::new();
        // Reset or closed, but not open for ever.
        match stream.read_to_end(&mut rest) {
            Ok(0) => {}
            Ok(_) => panic!("connection {number} got {rest:?}"),
            Err(cause) => {
                assert_eq!(cause.kind(), std::io::ErrorKind::ConnectionReset, "connection {number}")
            }
        }
    }
    let reply = exchange(&socket(server.dns()), &question.message()).expect("an answer");
    assert_eq!(Answer::read(&reply).data(), ["192.0.2.53"]);
    server.stop();
}
