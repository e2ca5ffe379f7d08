//! Names for addresses: the program between a client and Debian's Unbound, or an upstream that is worse.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use domain::base::iana::Rcode;
use domain::base::{Message, MessageBuilder, Name};
use domain::rdata::Ptr;
use nix::sys::signal::Signal;
use tests::folder::Folder;
use tests::http::Client;
use tests::program::Program;
use tests::query::{Answer, Question};

/// The program, and where it answers DNS.
struct Reverse {
    program: Program,
    dns: SocketAddr,
}

impl Reverse {
    fn start(upstream: &str, more: &[&str]) -> Reverse {
        let mut program =
            Program::start(&[&["reverse", "--upstream", upstream, "--dns", "127.0.0.1:0"], more].concat());
        let dns = address(&mut program, "DNS");
        Reverse { program, dns }
    }

    /// Where another face answers; the faces are told one after the other.
    fn address(&mut self, face: &str) -> SocketAddr {
        address(&mut self.program, face)
    }

    fn ask(&self, name: &str) -> Answer {
        Question::new(name, "PTR").edns().udp(self.dns)
    }

    /// Ends it; what it had to say.
    fn stop(mut self) -> String {
        self.program.line("ready");
        self.program.stop().stderr
    }
}

/// What the program tells of a face.
fn address(program: &mut Program, face: &str) -> SocketAddr {
    loop {
        let line = program.line("listening on ");
        if line.ends_with(&format!("({face})")) {
            return line.split(' ').nth(2).expect("a line of that form").parse().expect("an address");
        }
    }
}

/// Unbound with reverse zones of ours: TEST-NET-1 and a network of 2001:db8::/32.
struct Unbound {
    _program: Program,
    address: String,
    _folder: Folder,
}

impl Unbound {
    fn start() -> Unbound {
        let folder = Folder::new();
        // Unbound cannot tell which port the system chose for it.
        let address = tests::peer::free_address();
        let many: String = (0..200)
            .map(|i| format!("local-data: \"9.2.0.192.in-addr.arpa. 600 PTR n{i}.example.\"\n"))
            .collect();
        let config = format!(
            "server:\ninterface: 127.0.0.1@{port}\ndo-daemonize: no\nuse-syslog: no\nlogfile: \"\"\nverbosity: 1\n\
             chroot: \"\"\nusername: \"\"\npidfile: \"\"\ndirectory: \"{folder}\"\n\
             local-zone: \"2.0.192.in-addr.arpa.\" static\n\
             local-data: \"2.0.192.in-addr.arpa. 600 SOA ns.example. hm.example. 1 7200 600 86400 60\"\n\
             local-data: \"1.2.0.192.in-addr.arpa. 600 PTR Host1.Example.\"\n\
             local-data: \"3.2.0.192.in-addr.arpa. 600 PTR 192.0.2.3.\"\n\
             local-data: \"5.2.0.192.in-addr.arpa. 600 PTR host1.example.\"\n{many}\
             local-zone: \"example.\" static\n\
             local-data: \"host1.example. 600 A 192.0.2.1\"\n\
             local-data: \"six.example. 600 AAAA 2001:db8::1\"\n\
             local-zone: \"8.b.d.0.1.0.0.2.ip6.arpa.\" static\n\
             local-data: \"{six} 600 PTR six.example.\"\nremote-control:\ncontrol-enable: no\n",
            port = address.port(),
            folder = folder.path().display(),
            six = six(),
        );
        let config = folder.write("unbound.conf", config);
        let mut command = Command::new("unbound");
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").args(["-d", "-c", &config]);
        let mut program = Program::spawn(command);
        program.line("start of service");
        Unbound { _program: program, address: address.to_string(), _folder: folder }
    }
}

/// The reverse name of 2001:db8::1.
fn six() -> String {
    format!("1.{}8.b.d.0.1.0.0.2.ip6.arpa.", "0.".repeat(23))
}

const ONE: &str = "1.2.0.192.in-addr.arpa";

#[test]
fn names_are_learned_from_unbound() {
    let unbound = Unbound::start();
    let reverse = Reverse::start(&unbound.address, &["--wait", "4s", "--interval", "5ms"]);
    let answer = reverse.ask(ONE);
    assert_eq!((answer.rcode.as_str(), answer.data()), ("NOERROR", vec!["host1.example."]));
    // Seven days, whatever the record says.
    let ttl: u32 = answer.answer[0].split(' ').nth(1).and_then(|ttl| ttl.parse().ok()).expect("a TTL");
    assert!((604_000..=604_800).contains(&ttl), "{ttl}");
    assert_eq!(reverse.ask(&six()).data(), ["six.example."]);
    let absent = reverse.ask("2.2.0.192.in-addr.arpa");
    assert_eq!((absent.rcode.as_str(), absent.answer.len()), ("NXDOMAIN", 0));
    // A name that reads as an address, and two hundred of them, which no datagram holds.
    let unusable = reverse.ask("3.2.0.192.in-addr.arpa");
    assert_eq!((unusable.rcode.as_str(), unusable.answer.len()), ("NOERROR", 0));
    assert_eq!(reverse.ask("9.2.0.192.in-addr.arpa").data().len(), 1);
    // What is known is there over TCP, too, and for other programs.
    assert_eq!(Question::new(ONE, "PTR").tcp(reverse.dns).data(), ["host1.example."]);
    let mut dig = Command::new("dig");
    let port = reverse.dns.port().to_string();
    dig.args(["-r", "@127.0.0.1", "-p", &port, "+short", "-x", "192.0.2.1"]);
    assert_eq!(Program::spawn(dig).end().stdout.trim(), "host1.example.");
    assert_eq!(Question::new("www.example.com", "A").udp(reverse.dns).rcode, "REFUSED");
    reverse.stop();
}

#[test]
fn each_dns_listener_waits_as_long_as_it_was_told() {
    let unbound = Unbound::start();
    let mut reverse = Reverse::start(&unbound.address, &["--interval", "50ms", "--dns", "127.0.0.1:0+4s"]);
    let waiting = reverse.address("DNS");
    let at_once = reverse.ask(ONE);
    assert_eq!((at_once.rcode.as_str(), at_once.answer.len()), ("NOERROR", 0));
    assert!(at_once.authority[0].starts_with("in-addr.arpa. 0 in soa"), "{:?}", at_once.authority);
    let later = Question::new(&six(), "PTR").edns().udp(waiting);
    assert_eq!(later.data(), ["six.example."]);
    reverse.stop();
}

#[test]
fn names_are_confirmed_by_their_addresses() {
    let unbound = Unbound::start();
    let more = ["--wait", "4s", "--interval", "5ms", "--confirm"];
    let reverse = Reverse::start(&unbound.address, &more);
    let six = six();
    // Until somebody has said whether it leads back, a name is kept for five minutes.
    for (asked, name) in
        [(ONE, "host1.example."), (&six[..], "six.example."), ("5.2.0.192.in-addr.arpa", "host1.example.")]
    {
        let ttl =
            |answer: &Answer| answer.answer[0].split(' ').nth(1).and_then(|ttl| ttl.parse::<u32>().ok());
        let confirmed = (0..100_000).map(|_| reverse.ask(asked)).find(|answer| ttl(answer) > Some(300));
        assert_eq!(confirmed.expect("it is kept for longer").data(), [name]);
    }
    let said = reverse.stop();
    assert!(said.contains(" confirmed=2 mismatch=1 unconfirmed=0 "), "{said}");
}

#[test]
fn a_network_without_names_is_not_asked_for_address_by_address() {
    let unbound = Unbound::start();
    let reverse = Reverse::start(&unbound.address, &["--wait", "4s", "--interval", "5ms"]);
    // Unbound has nothing below 10.in-addr.arpa.
    for i in 0..60 {
        assert_eq!(reverse.ask(&format!("{}.{}.1.10.in-addr.arpa", i % 10, i / 10)).rcode, "NXDOMAIN");
    }
    let said = reverse.stop();
    let count = |what: &str| {
        let (_, rest) = said.split_once(&format!(" {what}=")).expect("it is counted");
        rest.split(' ').next().and_then(|number| number.parse::<u32>().ok()).expect("a number")
    };
    assert!(count("questions") < 30 && count("empty_prefixes") > 0, "{said}");
}

/// What Debian's client of Redis prints.
fn redis_cli(address: SocketAddr, arguments: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    command.args(["-h", "127.0.0.1", "-p", &address.port().to_string()]).args(arguments);
    Program::spawn(command).end().stdout.trim().to_owned()
}

#[test]
fn the_redis_protocol_answers_from_the_same_cache() {
    let unbound = Unbound::start();
    let more = ["--wait", "4s", "--interval", "5ms", "--resp", "127.0.0.1:0"];
    let mut reverse = Reverse::start(&unbound.address, &more);
    let resp = reverse.address("RESP");
    assert_eq!(reverse.ask(ONE).data(), ["host1.example."]);
    assert_eq!(reverse.ask(&six()).data(), ["six.example."]);
    for (arguments, expected) in [
        (&["GET", "192.0.2.1"][..], "host1.example"),
        (&["-3", "GET", "2001:db8::1"], "six.example"),
        (&["MGET", "192.0.2.1", "192.0.2.200", "2001:db8::1"], "host1.example\n\nsix.example"),
        (&["-3", "EXISTS", "192.0.2.1", "192.0.2.200"], "1"),
        (&["PING"], "PONG"),
        (&["SET", "192.0.2.1", "x"], "ERR unknown command"),
        (&["GET", "www.example"], "ERR the key is no IP address"),
        (&["INFO"], "server_name:pointsman"),
    ] {
        let printed = redis_cli(resp, arguments);
        assert!(printed.starts_with(expected) || printed.contains(expected), "{arguments:?}: {printed}");
    }
    let ttl: u32 = redis_cli(resp, &["TTL", "192.0.2.1"]).parse().expect("a number");
    assert!((604_000..=604_800).contains(&ttl), "{ttl}");

    // Ten thousand at once, by somebody who reads only then, in the order of the questions.
    let mut client = TcpStream::connect(resp).expect("it listens");
    let mut questions = client.try_clone().expect("a second handle");
    let asks = std::thread::spawn(move || {
        for key in ["192.0.2.1", "2001:db8::1"].iter().cycle().take(10_000) {
            write!(questions, "*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()).expect("it is taken");
        }
        questions.write_all(b"QUIT\r\n").expect("it is taken");
    });
    let mut answers = String::new();
    client.read_to_string(&mut answers).expect("the answers, and the end");
    asks.join().expect("all was sent");
    assert_eq!(answers, "$13\r\nhost1.example\r\n$11\r\nsix.example\r\n".repeat(5_000) + "+OK\r\n");

    let mut broken = TcpStream::connect(resp).expect("it listens");
    broken.write_all(b"*1\r\n$x\r\n").expect("it is taken");
    let mut told = String::new();
    broken.read_to_string(&mut told).expect("an error, and the end");
    assert_eq!(told, "-ERR Protocol error: invalid bulk length\r\n");
    reverse.stop();
}

#[test]
fn http_answers_from_the_same_cache() {
    let (unbound, folder) = (Unbound::start(), Folder::new());
    let crawlers = folder.write("crawlers.txt", "bot 203.0.113.0/24\nother six.example\n");
    let http = ["--http", "127.0.0.1:0", "--crawlers", &crawlers, "--believe", "10.0.0.0/8"];
    let more = [&["--wait", "4s", "--interval", "5ms"][..], &http].concat();
    let mut reverse = Reverse::start(&unbound.address, &more);
    let at = reverse.address("HTTP");
    let mut client = Client::new(at);
    assert_eq!(reverse.ask(ONE).data(), ["host1.example."]);
    let known = client.call("GET", "/v1/names/192.0.2.1", "");
    let max_age: u32 = known
        .header("cache-control")
        .and_then(|age| age.strip_prefix("max-age="))
        .and_then(|age| age.parse().ok())
        .expect("a time");
    assert!((604_000..=604_800).contains(&max_age), "{max_age}");
    let known = known.json();
    assert_eq!((&known["state"], &known["name"]), (&"name".into(), &"host1.example".into()));
    assert_eq!(reverse.ask(&six()).data(), ["six.example."]);
    let claims = client.call("GET", "/v1/names/2001:db8::1", "");
    assert_eq!(
        (claims.header("cache-control"), &claims.json()["identity"]),
        (Some("no-store"), &"not_yet".into())
    );
    let unknown = client.call("GET", "/v1/names/2001:db8::77", "");
    assert_eq!(
        (unknown.header("cache-control"), &unknown.json()["state"]),
        (Some("no-store"), &"not_yet".into())
    );
    for (method, path, expected) in [
        ("GET", "/v1/names/x", 400),
        ("GET", "/v1/names/%ff", 400),
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/check?claim=x", 400),
        ("DELETE", "/v1/status", 405),
    ] {
        let answer = client.call(method, path, "");
        assert!(answer.status == expected && answer.json()["what"].is_string(), "{path}: {}", answer.text());
    }

    let text = [("content-type", "text/plain")];
    let mut bulk =
        |body: String| client.send("POST", "/v1/names", &text, body.as_bytes()).expect("an answer");
    let lines = "192.0.2.1\n\n{\"address\":\"192.0.2.200\"}\nnonsense\n\"::ffff:192.0.2.1\"\n";
    let told: Vec<serde_json::Value> = bulk(lines.into())
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect();
    let states: Vec<&str> = told.iter().filter_map(|one| one["state"].as_str()).collect();
    assert_eq!((told.len(), &states[..]), (4, &["name", "not_yet", "name"][..]));
    assert_eq!(told[2]["what"], "line 4 is no address");
    assert_eq!(bulk("192.0.2.1\n".repeat(10_001)).status, 413);

    // Below the path, with any method, as Envoy asks; and under the site's own name.
    let mut client = Client::new(at);
    let mut check = |path: &str, address: &str| {
        let headers = [("x-real-ip", address), ("host", "www.example")];
        client.send("PUT", path, &headers, b"").expect("an answer")
    };
    for path in ["/v1/check/", "/v1/check/?a", "/v1/check/any/path?claim=other&not_yet=what"] {
        let bot = check(path, "203.0.113.7");
        assert_eq!((bot.status, bot.header("x-client-verified")), (200, Some("bot")), "{path}");
    }
    assert_eq!(check("/v1/check?claim=other", "203.0.113.7").status, 403);
    let named = check("/v1/check", "192.0.2.1");
    assert_eq!((named.status, named.header("x-client-name")), (200, Some("host1.example")));
    assert_eq!(check("/v1/check?claim=bot", "198.51.100.1").status, 200);
    assert_eq!(check("/v1/check?claim=bot&not_yet=deny", "198.51.100.2").status, 403);
    assert_eq!(check("/v1/check", "unknown").status, 400);
    // A page in a browser has no business there.
    let foreign =
        client.send("GET", "/v1/names/192.0.2.1", &[("host", "www.example")], b"").expect("an answer");
    assert_eq!(foreign.status, 401);
    let headers = [("content-type", "text/plain"), ("origin", "http://www.example")];
    let foreign = client.send("POST", "/v1/names", &headers, b"192.0.2.1\n").expect("an answer");
    assert_eq!(
        (foreign.status, &foreign.json()["what"]),
        (403, &"what is for this machine alone is not changed for a page of another origin".into())
    );

    let metrics = Client::new(at).call("GET", "/metrics", "").text();
    for line in [
        "pointsman_reverse_requests_total{face=\"dns\",state=\"name\"} ",
        "pointsman_reverse_requests_total{face=\"http\",state=\"not_yet\"} ",
        "pointsman_reverse_hits_total{face=\"http\"} ",
        "pointsman_reverse_questions_total ",
        "pointsman_reverse_leaks_total{stack=\"wanted\"} 0",
        "pointsman_reverse_http_responses_total{status=\"413\"} 1",
        "pointsman_reverse_receive_failures_total 0",
        "pointsman_reverse_upstream_seconds_bucket{le=\"0.001\"",
    ] {
        assert!(metrics.lines().any(|found| found.starts_with(line)), "{line} is not in\n{metrics}");
    }
    let mut status = Command::new(tests::program::path());
    status.args(["reverse", "status", "--http", &format!("http://{at}")]);
    let printed = Program::spawn(status).end().stdout;
    assert!(printed.contains("UPSTREAM") && printed.contains(&unbound.address), "{printed}");

    // A body that breaks off, a head that is none, and a client that never reads end their connections only.
    for broken in ["POST /v1/names HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 99\r\n\r\n1", "\0\r\n\r\n"]
    {
        TcpStream::connect(at)
            .and_then(|mut stream| stream.write_all(broken.as_bytes()))
            .expect("it is taken");
    }
    // What was asked over DNS was not known when it came, and waited.
    assert_eq!(Client::new(at).call("GET", "/v1/status", "").json()["states"]["name"], 5);
    reverse.stop();
}

#[test]
fn an_upstream_that_never_answers_keeps_nobody_waiting() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let upstream = silent.local_addr().expect("it is bound").to_string();
    let reverse = Reverse::start(&upstream, &["--timeout", "30s", "--tries", "1"]);
    for i in 0..2000 {
        let answer = reverse.ask(&format!("{}.{}.0.10.in-addr.arpa", i % 250, i / 250));
        assert_eq!((answer.rcode.as_str(), answer.answer.len()), ("NOERROR", 0));
        // Not known yet: what was asked and failed would have a time to live.
        assert!(answer.authority[0].starts_with("in-addr.arpa. 0 in soa"), "{:?}", answer.authority);
    }
    reverse.stop();
}

#[test]
fn a_failure_is_told_as_one() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let upstream = silent.local_addr().expect("it is bound").to_string();
    let reverse = Reverse::start(&upstream, &["--timeout", "50ms", "--tries", "1", "--wait", "4s"]);
    let failed = reverse.ask(ONE);
    let ttl: u32 = failed.authority[0].split(' ').nth(1).and_then(|ttl| ttl.parse().ok()).expect("a TTL");
    assert!(failed.rcode == "NOERROR" && failed.answer.is_empty() && ttl <= 1, "{failed:?}");
    reverse.stop();
}

#[test]
fn answers_to_other_questions_are_not_believed() {
    let upstream = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let address = upstream.local_addr().expect("it is bound").to_string();
    let garbage = std::thread::spawn(move || {
        let mut octets = [0; 512];
        let (length, client) = upstream.recv_from(&mut octets).expect("a question comes");
        let question = Message::from_slice(&octets[..length]).expect("a question");
        let answer = |name: &str| {
            let mut answer =
                MessageBuilder::new_vec().start_answer(question, Rcode::NOERROR).expect("there is room");
            let owner = question.sole_question().expect("one question").into_qname();
            let name: Name<Vec<u8>> = name.parse().expect("a name");
            answer.push((owner, 600, Ptr::new(name))).expect("there is room");
            answer.finish()
        };
        let mut other_id = answer("forged.example");
        other_id[0] ^= 1;
        let mut other_name = answer("forged.example");
        other_name[13] ^= 1;
        for datagram in
            [&b"junk"[..], &[], &octets[..length], &other_id, &other_name, &answer("true.example")]
        {
            upstream.send_to(datagram, client).expect("it is sent");
        }
    });
    let reverse = Reverse::start(&address, &["--wait", "4s"]);
    assert_eq!(reverse.ask(ONE).data(), ["true.example."]);
    garbage.join().expect("the upstream was asked once");
    reverse.stop();
}

#[test]
fn the_mmdb_file_is_read_by_other_programs() {
    let unbound = Unbound::start();
    let folder = Folder::new();
    let mmdb = folder.at("names.mmdb");
    let more = ["--wait", "4s", "--interval", "5ms", "--mmdb", &mmdb, "--mmdb-interval", "1s"];
    let mut reverse = Reverse::start(&unbound.address, &more);
    assert_eq!(reverse.ask(ONE).data(), ["host1.example."]);
    assert_eq!(reverse.ask(&six()).data(), ["six.example."]);
    // Each look sees a whole file: the one of the start, or a later one.
    let look_up = |address: &str| {
        let mut command = Command::new("mmdblookup");
        command.args(["--file", &mmdb, "--ip", address, "name"]);
        Program::spawn(command).end()
    };
    // A file that has the later one has the other, too.
    let mut found = look_up("2001:db8::1");
    while !found.stdout.contains("\"six.example\" <utf8_string>") {
        assert!(reverse.program.is_running(), "{}{}", found.stdout, found.stderr);
        found = look_up("2001:db8::1");
    }
    assert!(look_up("192.0.2.1").stdout.contains("host1.example"));
    assert!(!look_up("192.0.2.2").status.success());
    reverse.stop();
}

/// What `reverse filter` makes of `log`; its output goes behind what is in `out`.
fn filter(resp: SocketAddr, more: &[&str], log: &str, out: &str) -> (Option<i32>, String) {
    let out = std::fs::OpenOptions::new().append(true).create(true).open(out).expect("a file");
    let log = std::fs::File::open(log).expect("a file");
    let mut command = Command::new(tests::program::path());
    command.args(["reverse", "filter", "--resp", &resp.to_string()]).args(more).stdin(log).stdout(out);
    let ended = command.output().expect("it is started");
    (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
}

/// `reverse filter` between two pipes.
struct Piped {
    program: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Piped {
    fn start(resp: SocketAddr) -> Piped {
        let mut command = Command::new(tests::program::path());
        command.args(["reverse", "filter", "--resp", &resp.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = command.spawn().expect("it is started");
        let (to, from) = (program.stdin.take().expect("a pipe"), program.stdout.take().expect("a pipe"));
        Piped { program, to, from: BufReader::new(from) }
    }

    /// What becomes of a line.
    fn name(&mut self, line: &str) -> String {
        writeln!(self.to, "{line}").expect("it is read");
        let mut named = String::new();
        self.from.read_line(&mut named).expect("a line");
        named
    }

    /// How it ends when no more lines come, and what it had to say.
    fn end(self) -> (Option<i32>, String) {
        drop(self.to);
        let ended = self.program.wait_with_output().expect("it ends");
        (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
    }
}

#[test]
fn a_log_gets_names() {
    let unbound = Unbound::start();
    let mut reverse = Reverse::start(&unbound.address, &["--interval", "5ms", "--resp", "127.0.0.1:0"]);
    let resp = reverse.address("RESP");
    let folder = Folder::new();
    let first = "192.0.2.1 - - \"GET /\" 200\n2001:db8::1 x\n192.0.2.200 y\nhost.test z\n\n192.0.2.1 last";
    let log = folder.write("access.log", first);
    // It waits for what is not known yet, and not for what is known to have no name.
    let out = folder.at("named.log");
    assert_eq!(filter(resp, &["--wait", "30s"], &log, &out), (Some(0), String::new()));
    let named = first.replace("192.0.2.1 ", "host1.example ").replace("2001:db8::1", "six.example");
    let read = |path: &str| std::fs::read_to_string(path).expect("a file");
    assert_eq!(read(&out), named);
    // Three addresses in a batch and one in the next, however often it looked for them.
    let info = redis_cli(resp, &["INFO"]);
    let count = |name| info.lines().find_map(|line| line.trim_end().strip_prefix(name)).expect("it is told");
    let counts =
        ["keyspace_hits:", "keyspace_misses:"].map(|name| count(name).parse::<u32>().expect("a number"));
    assert_eq!(counts.iter().sum::<u32>(), 4, "{info}");

    // What was added since is named, and nothing is written twice.
    let (out, state) = (folder.at("resumed.log"), folder.at("state"));
    let resume = ["--resume", state.as_str()];
    assert_eq!(filter(resp, &resume, &log, &out).0, Some(0));
    assert!(read(&out).ends_with("\n") && named.starts_with(&read(&out)), "only whole lines");
    folder.write("access.log", format!("{first}\n192.0.2.1 more\n"));
    std::fs::write(&out, read(&out) + "half a line that was written after the last note").expect("a file");
    for _ in 0..2 {
        assert_eq!(filter(resp, &resume, &log, &out).0, Some(0));
        assert_eq!(read(&out), format!("{named}\nhost1.example more\n"));
    }
    folder.write("access.log", "192.0.2.1 rotated\n");
    let (code, said) = filter(resp, &resume, &log, &out);
    assert!(code == Some(1) && said.contains("rotated"), "{said}");

    // A line that is too long stays as it is, also where it was ended between two runs.
    let (out, state) = (folder.at("long.named"), folder.at("long.state"));
    let resume = ["--resume", state.as_str()];
    let long = "x".repeat(64 << 10);
    let log = folder.write("long.log", &long);
    assert_eq!(filter(resp, &resume, &log, &out).0, Some(0));
    assert_eq!(read(&out), long);
    let log = folder.write("long.log", format!("{long}192.0.2.1 of the long one\n192.0.2.1 next\n"));
    assert_eq!(filter(resp, &resume, &log, &out).0, Some(0));
    assert_eq!(read(&out), format!("{long}192.0.2.1 of the long one\nhost1.example next\n"));

    // A pipe's lines are there before the next one is.
    let mut piped = Piped::start(resp);
    for number in 0..3 {
        assert_eq!(piped.name(&format!("192.0.2.1 {number}")), format!("host1.example {number}\n"));
    }
    assert_eq!(piped.end(), (Some(0), String::new()));

    let log = folder.write("fields.log", "a 192.0.2.1\nb 2001:db8::1\n\nc 192.0.2.200\nd\n");
    let out = folder.at("summary");
    assert_eq!(filter(resp, &["--field", "2", "--summary", "tld", "--json"], &log, &out).0, Some(0));
    assert_eq!(read(&out), "{\"no_name\":2,\"other\":0,\"top_level_domains\":{\"example\":2}}\n");
    reverse.stop();
    let (code, said) = filter(resp, &[], &log, &out);
    assert!(code == Some(3) && said.contains("does not answer"), "{said}");
}

#[test]
fn a_log_is_named_on_when_the_service_was_started_again() {
    let folder = Folder::new();
    let names = folder.write("names.txt", "192.0.2.1\t4000000000\thost1.example\n");
    let snapshot = folder.at("names.cache");
    assert!(Program::start(&["reverse", "import", &names, &snapshot]).end().status.success());
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let upstream = silent.local_addr().expect("it is bound").to_string();
    let start = |resp: &str| {
        let mut reverse = Reverse::start(&upstream, &["--snapshot", &snapshot, "--resp", resp]);
        let resp = reverse.address("RESP");
        (reverse, resp)
    };
    // Between the two nobody else takes a port of this address.
    let (first, resp) = start("127.0.0.77:0");
    let mut piped = Piped::start(resp);
    assert_eq!(piped.name("192.0.2.1 before"), "host1.example before\n");
    first.stop();
    let (second, _) = start(&resp.to_string());
    assert_eq!(piped.name("192.0.2.1 after"), "host1.example after\n");
    let (code, said) = piped.end();
    assert!(code == Some(0) && said.contains("the service ended 1 connection;"), "{said}");
    second.stop();
}

#[test]
fn a_snapshot_outlives_the_program() {
    let unbound = Unbound::start();
    let folder = Folder::new();
    let snapshot = folder.at("names.cache");
    let more = ["--wait", "4s", "--snapshot", &snapshot, "--snapshot-interval", "1s"];
    let mut reverse = Reverse::start(&unbound.address, &more);
    assert_eq!(reverse.ask(ONE).data(), ["host1.example."]);
    // What was learned before the last snapshot outlives a kill: the second one began after the answer.
    reverse.program.line("the snapshot is written");
    reverse.program.line("the snapshot is written");
    reverse.program.signal(Signal::SIGKILL);
    reverse.program.end();

    let text = Program::start(&["reverse", "export", &snapshot]).end();
    assert!(
        text.status.success() && text.stdout.starts_with("192.0.2.1\t"),
        "{}{}",
        text.stdout,
        text.stderr
    );
    assert!(text.stdout.trim_end().ends_with("\thost1.example"), "{}", text.stdout);

    // Nobody is asked any more, and a kill leaves the file as it was.
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let upstream = silent.local_addr().expect("it is bound").to_string();
    let more = ["--snapshot", &snapshot];
    for _ in 0..2 {
        let reverse = Reverse::start(&upstream, &more);
        assert_eq!(reverse.ask(ONE).data(), ["host1.example."]);
        reverse.program.signal(Signal::SIGKILL);
        reverse.program.end();
    }

    let lines = folder.write("names.txt", &text.stdout);
    let again = folder.at("again.cache");
    assert!(Program::start(&["reverse", "import", &lines, &again]).end().status.success());
    assert_eq!(Program::start(&["reverse", "export", &again]).end().stdout, text.stdout);
    let expired = folder.write("expired.txt", format!("{}192.0.2.2\t1000\t-\n", text.stdout));
    let ended = Program::start(&["reverse", "import", &expired, &folder.at("fewer.cache")]).end();
    assert!(ended.stdout.trim_end().ends_with("fewer.cache: 1 entry of 2 lines"), "{}", ended.stdout);

    // What was to make the lines has failed: the snapshot stays.
    let empty = folder.write("empty.txt", "");
    let ended = Program::start(&["reverse", "import", &empty, &again]).end();
    assert!(ended.stderr.contains("empty.txt: no line in it; expected at least one"), "{}", ended.stderr);
    assert_eq!(Program::start(&["reverse", "export", &again]).end().stdout, text.stdout);

    let wrong = folder.write("wrong.txt", format!("x\n{}y\t1\t-\n", text.stdout));
    let ended = Program::start(&["reverse", "import", &wrong, &again]).end();
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    let places: Vec<bool> = ended
        .stderr
        .lines()
        .zip([1, 3])
        .map(|(line, at)| line.starts_with(&format!("{wrong}:{at}:")))
        .collect();
    assert_eq!(places, [true, true], "{}", ended.stderr);
    // What a link leads to is replaced, a device is not.
    let link = folder.at("link.cache");
    std::os::unix::fs::symlink(&again, &link).expect("it is ours");
    assert!(Program::start(&["reverse", "import", &lines, &link]).end().status.success());
    assert_eq!(std::fs::read_link(&link).expect("it is a link still"), std::path::Path::new(&again));
    let ended = Program::start(&["reverse", "import", &lines, "/dev/null"]).end();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("/dev/null: it cannot be written: it is there and no regular"),
        "{}",
        ended.stderr
    );
    let itself = folder.path().to_string_lossy();
    let ended = Program::start(&["reverse", "export", &itself]).end();
    assert!(
        ended.stderr.contains(&format!("{itself}: it cannot be read: is a directory")),
        "{}",
        ended.stderr
    );

    let mut damaged = std::fs::read(&snapshot).expect("the snapshot is there");
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    let damaged = folder.write("damaged.cache", damaged);
    let start = ["reverse", "--upstream", &upstream, "--dns", "127.0.0.1:0", "--snapshot", &damaged];
    for (arguments, code) in
        [(&start[..], 1), (&[&start[..], &["--check"]].concat(), 1), (&["reverse", "export", &damaged], 2)]
    {
        let ended = Program::start(arguments).end();
        assert_eq!(ended.status.code(), Some(code), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("damaged.cache: it is damaged"), "{}", ended.stderr);
        assert!(ended.stderr.trim_end().ends_with("use a copy of it that is whole"), "{}", ended.stderr);
    }
}

#[test]
fn an_import_beyond_its_memory_tells_how_many_made_room() {
    let folder = Folder::new();
    let line = |n: u32| format!("10.0.{}.{}\t4000000000\th{n:060}.example\n", n >> 8, n & 255);
    let lines = folder.write("names.txt", (0..45_000).map(line).collect::<String>());
    let import = ["reverse", "import", &lines, &folder.at("names.cache"), "--memory", "4MiB"];
    let ended = Program::start(&import).end();
    assert!(ended.status.success() && ended.stdout.contains(" entries of 45000 lines; "), "{}", ended.stdout);
    let end = " made room for others, 0 found none (--memory)";
    assert!(ended.stdout.trim_end().ends_with(end), "{}", ended.stdout);
}

#[test]
fn an_import_does_not_replace_the_lines_that_it_reads() {
    let folder = Folder::new();
    let line = "192.0.2.1\t4000000000\thost1.example\n";
    let lines = folder.write("names.txt", line);
    std::os::unix::fs::symlink(&lines, folder.at("link")).expect("it is ours");
    for snapshot in [&lines, &folder.at("link")] {
        let ended = Program::start(&["reverse", "import", &lines, snapshot]).end();
        assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("the lines come from there; expected another file for"),
            "{}",
            ended.stderr
        );
        assert_eq!(std::fs::read_to_string(&lines).expect("it stays"), line);
    }
}

#[test]
fn one_service_keeps_its_cache_in_a_file() {
    let folder = Folder::new();
    let (snapshot, lines) = (folder.at("names.cache"), folder.write("names.txt", ""));
    let reverse = Reverse::start("127.0.0.1:1", &["--snapshot", &snapshot]);
    let arguments = ["reverse", "--upstream", "127.0.0.1:1", "--dns", "127.0.0.1:0", "--snapshot", &snapshot];
    let second = || Program::start(&arguments);
    let ended = second().end();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("names.cache: another process writes it"), "{}", ended.stderr);
    let ended = Program::start(&["reverse", "import", &lines, &snapshot]).end();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("a service that runs keeps its cache there"), "{}", ended.stderr);
    assert_eq!(Program::start(&[&arguments[..], &["--check"]].concat()).end().status.code(), Some(0));
    reverse.program.signal(Signal::SIGKILL);
    reverse.program.end();
    let mut second = second();
    second.line("ready");
    second.stop();
}

#[test]
fn a_last_snapshot_that_fails_is_told_by_the_exit_code() {
    let (unbound, folder) = (Unbound::start(), Folder::new());
    let kept = folder.path().join("kept");
    std::fs::create_dir(&kept).expect("it is ours");
    let snapshot = kept.join("names.cache").to_string_lossy().into_owned();
    let mut reverse = Reverse::start(&unbound.address, &["--snapshot", &snapshot]);
    reverse.program.line("ready");
    std::fs::remove_dir_all(&kept).expect("it is ours");
    reverse.program.signal(Signal::SIGTERM);
    let ended = reverse.program.end();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.ends_with("pointsman: the last snapshot was not written"), "{}", ended.stderr);
}

#[test]
fn what_is_given_wrong_is_told() {
    for (arguments, expected) in [
        (vec!["reverse"], "--upstream"),
        (vec!["reverse", "--config", "/nowhere"], "cannot be read"),
        (vec!["reverse", "--upstream", "192.0.2.1"], "nowhere to answer"),
        (vec!["reverse", "--upstream", "192.0.2.1", "--dns", "0.0.0.0:0"], "nobody who may ask"),
        (vec!["reverse", "--upstream", "ns.example", "--dns", "127.0.0.1:0"], "IP address"),
        (
            vec!["reverse", "--upstream", "192.0.2.1", "--dns", "127.0.0.1:0", "--interval", "x"],
            "a time from",
        ),
        (
            vec!["reverse", "--upstream", "192.0.2.1", "--dns", "127.0.0.1:0", "--ttl", "x"],
            "expected a time such as 7 d, or LEAST..MOST",
        ),
    ] {
        let ended = Program::start(&arguments).end();
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{arguments:?}: {}", ended.stderr);
    }
    for option in ["--snapshot", "--mmdb"] {
        let arguments =
            ["reverse", "--upstream", "192.0.2.1", "--dns", "127.0.0.1:0", option, "/nowhere/file"];
        for (path, why) in [
            ("/nowhere/file", "there is no such folder"),
            ("/proc", "it is a folder"),
            ("/dev/null", "it is there and no regular file"),
        ] {
            for check in [&[][..], &["--check"]] {
                let ended = Program::start(&[&arguments[..6], &[path], check].concat()).end();
                assert_eq!(ended.status.code(), Some(2), "{option}: {}", ended.stderr);
                let told = format!("{path}, and it cannot be written: {why}; expected a file in a folder");
                assert!(ended.stderr.contains(&told), "{}", ended.stderr);
            }
        }
        // Not even root makes a file there.
        let ended = Program::start(&[&arguments[..6], &["/proc/file"]].concat()).end();
        assert_eq!(ended.status.code(), Some(1), "{option}: {}", ended.stderr);
        assert!(ended.stderr.contains("/proc/file: it cannot be written: "), "{}", ended.stderr);
    }
}
