//! The agent beside servers of four makes, with a balancer that the test plays.

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use credit::{HELLO_LEN, Hello, Key, Report, Service, Taken};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;
use socket2::{Domain, Socket, Type};
use tests::certificate::Certificate;
use tests::credit::{Balancer, key_file};
use tests::folder::Folder;
use tests::group::Group;
use tests::http::Client;
use tests::peer::{Encrypted, Peer, free_address};
use tests::program::{self, PROGRAM_WAIT, Program};
use tests::query::Question;
use tests::secondary::Make;
use tests::serving::Serving;

const ZONE: &str = "$TTL 300\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\nwww A 192.0.2.80\n";

/// An agent that runs, and its HTTP face.
struct Agent {
    program: Program,
    http: SocketAddr,
}

impl Agent {
    fn start(folder: &Folder, services: &[Service], balancer: &Balancer) -> Agent {
        Agent::spawn(Command::new(program::path()), folder, services, Some(balancer.address()))
    }

    fn spawn(
        mut command: Command,
        folder: &Folder,
        services: &[Service],
        balancer: Option<SocketAddr>,
    ) -> Agent {
        command.args(["agent", "--http", "127.0.0.1:0"]);
        for service in services {
            command.args(["--service", &service.to_string()]);
        }
        match balancer {
            Some(balancer) => command.args(["--balancer", &balancer.to_string(), "--key", &key_file(folder)]),
            None => command.arg("--print"),
        };
        let mut program = Program::spawn(command);
        let line = program.line("listening on http://");
        let http = line.rsplit('/').next().and_then(|address| address.parse().ok()).expect("an address");
        program.line("ready");
        Agent { program, http }
    }

    /// What it tells of its first service.
    fn service(&self) -> Value {
        Client::new(self.http).call("GET", "/v1/status", "").json()["services"][0].clone()
    }

    /// The same as soon as it is as wanted: it is written down some times a second.
    fn wait(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + PROGRAM_WAIT;
        loop {
            let seen = self.service();
            if wanted(&seen) {
                return seen;
            }
            assert!(Instant::now() < until, "{seen}");
        }
    }

    /// How many datagrams it has refused for a reason.
    fn refused(&self, why: &str) -> u64 {
        let name = format!("pointsman_agent_refused_total{{why=\"{why}\"}}");
        Client::new(self.http).metric(&name).expect("it is counted") as u64
    }

    fn stop(self) {
        self.program.stop();
    }
}

fn service(transport: &str, address: SocketAddr) -> Service {
    format!("{transport}:{address}").parse().expect("a service")
}

/// A process and those that it has started.
fn family(of: Pid) -> Vec<Pid> {
    let tasks = std::fs::read_dir(format!("/proc/{of}/task")).expect("it runs");
    let children =
        tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<Pid> = children
        .flat_map(|text| text.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>())
        .map(Pid::from_raw)
        .collect();
    [of].into_iter().chain(children.into_iter().flat_map(family)).collect()
}

/// What every server must show: credit while it answers, none while it is stopped and its queue fills, drops at once,
/// connections that wait, and credit again when it goes on.
fn beside(name: &str, folder: &Folder, dns: SocketAddr, server: &Program, asked: &str) {
    let services = ["udp", "tcp"].map(|transport| service(transport, dns));
    let mut balancer = Balancer::new(&services);
    let agent = Agent::start(folder, &services, &balancer);
    let [udp, tcp] = [0, 1].map(|service| balancer.wait(service, |report| report.limit > report.sent));
    assert!(udp.backlog_limit >= 32 && tcp.backlog_limit >= 5 && !udp.draining, "{name}: {udp:?} {tcp:?}");

    for _ in 0..20 {
        Question::new(asked, "A").udp(dns);
        balancer.sent[0] += 1;
    }
    let sent = balancer.sent[0];
    let answered =
        balancer.wait(0, |report| report.sent == sent && report.limit > sent && report.backlog == 0);
    assert_eq!(answered.drops, udp.drops, "{name}: {answered:?}");

    let processes = family(server.pid());
    processes.iter().for_each(|process| kill(*process, Signal::SIGSTOP).expect("it runs"));
    // From many ports, so that each of several sockets gets some.
    let clients: Vec<UdpSocket> =
        (0..16).map(|_| UdpSocket::bind("127.0.0.1:0").expect("loopback binds")).collect();
    let query = Question::new(asked, "A").message();
    let full = balancer.wait(0, |report| {
        for client in &clients {
            for _ in 0..64 {
                client.send_to(&query, dns).expect("loopback sends");
            }
        }
        // The first report of drops may come before the queue was looked at again.
        let is_full = u64::from(report.backlog) > u64::from(report.backlog_limit) * 3 / 4;
        report.drops > answered.drops && report.limit <= report.sent && is_full
    });
    assert!(!full.queue_delay.is_zero(), "{name}: {full:?}");
    agent.wait(|seen| seen["free"].as_u64().is_some_and(|free| free <= 1));
    let connections = [(); 3].map(|()| TcpStream::connect(dns).expect("the kernel takes it"));
    let waiting = balancer.wait(1, |report| report.backlog >= 3);
    assert!(waiting.limit < tcp.limit, "{name}: {waiting:?} {tcp:?}");
    drop(connections);

    processes.iter().for_each(|process| kill(*process, Signal::SIGCONT).expect("it is there"));
    let after = balancer.wait(0, |report| report.backlog == 0 && report.limit > report.sent);
    assert!(after.drops >= full.drops, "{name}: {after:?}");
    balancer.wait(1, |report| report.backlog == 0 && report.limit > report.sent);
    agent.stop();
}

#[test]
fn http_asks_for_the_token_that_it_was_given() {
    let folder = Folder::new();
    let token = folder.write_secret("token", "secret\n");
    let line = ["agent", "--print", "--service", "udp:127.0.0.1:53", "--http", "0.0.0.0:0"];
    let refused = Program::start(&line).end();
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
    let why = "--http: http is 0.0.0.0:0, which other machines reach, and there is no token; expected a --token-file, or";
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
    let mut agent = Program::start(&[&line[..], &["--token-file", &token]].concat());
    let told = agent.line("listening on http://");
    let port = told.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let mut client = Client::new(SocketAddr::from(([127, 0, 0, 1], port)));
    for path in ["/v1/status", "/metrics"] {
        assert_eq!(client.call("GET", path, "").status, 401, "{path}");
        for (sent, expected) in [("Bearer secret", 200), ("Bearer other", 401)] {
            let answer = client.send("GET", path, &[("Authorization", sent)], b"").expect("an answer");
            assert_eq!(answer.status, expected, "{path} {sent}");
        }
    }
    assert_eq!(client.call("GET", "/v1/health", "").text(), "{}");
    agent.stop();
}

#[test]
fn beside_ourselves() {
    let folder = Folder::new();
    let zone = folder.write("example.com.zone", ZONE);
    let ours = Serving::start(&folder, &["--zone", &zone]);
    beside("pointsman", &folder, ours.dns(), &ours.program, "www.example.com");
    ours.stop();
}

#[test]
fn beside_bind() {
    let folder = Folder::new();
    let zone = folder.write("example.com.zone", ZONE);
    let zones = format!("zone \"example.com\" {{ type primary; file \"{zone}\"; }};\n");
    let peer = Make::Bind.start(&folder, free_address(), &zones);
    beside("BIND", &folder, peer.dns, &peer.program, "www.example.com");
}

#[test]
fn beside_nsd() {
    let folder = Folder::new();
    let peer = Peer::nsd(&folder, "example.com", &folder.write("example.com.zone", ZONE));
    beside("NSD", &folder, peer.dns, &peer.program, "www.example.com");
}

#[test]
fn beside_unbound() {
    let folder = Folder::new();
    let peer = Encrypted::unbound(&folder, &Certificate::new(&folder));
    beside("Unbound", &folder, peer.dns, &peer.program, "www.example.com");
}

/// A socket that nobody reads, as a service.
fn silent() -> (UdpSocket, Service) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
    let service = service("udp", socket.local_addr().expect("it is bound"));
    (socket, service)
}

#[test]
fn forged_and_repeated_hellos_do_nothing() {
    let folder = Folder::new();
    let (_socket, service) = silent();
    let mut balancer = Balancer::new(&[service]);
    let mut agent = Agent::start(&folder, &[service], &balancer);
    balancer.sent[0] = 500;
    let first = balancer.wait(0, |report| report.sent == 500 && report.limit > 500);

    let genuine = balancer.hello(0);
    let forged = Hello { sent: 1_000_000, sequence: u64::MAX, ..genuine };
    let old = balancer.octets(&genuine);
    balancer.send(&old);
    let answered = balancer.wait(0, |report| report.hello > genuine.sequence);
    assert_eq!(answered.nonce, first.nonce);
    let mut wrongly_keyed = vec![0; HELLO_LEN];
    forged.write(&Key::new(&[1; 32]), &mut wrongly_keyed);
    let mut changed = old.clone();
    changed[64] ^= 1;
    let unknown = balancer.octets(&Hello { nonce: 77, heard: answered.sequence + 1_000, ..forged });
    let alien =
        balancer.octets(&Hello { service: "udp:192.0.2.99:53".parse().expect("a service"), ..forged });
    for (octets, why) in [
        (&wrongly_keyed[..], "unsigned"),
        (&changed, "unsigned"),
        (&old, "old"),
        (&unknown, "old"),
        (&alien, "alien"),
        (&old[1..], "length"),
        (&[0; HELLO_LEN], "unknown"),
    ] {
        let (before, hellos) = (agent.refused(why), answered.hello);
        balancer.send(octets);
        // The next hello comes behind it; so what answers that has seen both.
        let at = balancer.hello(0).sequence;
        let after = balancer.wait(0, |report| report.hello > at);
        assert_eq!((after.sent, after.nonce), (500, first.nonce), "{why}: {after:?}");
        assert!(after.hello > hellos && after.hello < u64::MAX);
        assert_eq!(agent.refused(why), before + 1, "{why}");
    }
    // With the right key, from another address than --balancer names.
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
    let octets = balancer.octets(&forged);
    stranger.send_to(&octets, balancer.agent.expect("it has come")).expect("loopback sends");
    let at = balancer.hello(0).sequence;
    assert_eq!(balancer.wait(0, |report| report.hello > at).sent, 500);
    assert_eq!(agent.refused("stranger"), 1);
    agent.program.line("answers from an address that it is not told at");
    agent.stop();
}

/// Ten connections may wait, so as many are granted at most; who waits takes of it, and who is turned away is counted.
#[test]
fn a_backlog_of_ten_is_ten_connections() {
    let folder = Folder::new();
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    listener.bind(&"127.0.0.1:0".parse::<SocketAddr>().expect("an address").into()).expect("loopback binds");
    listener.listen(10).expect("it is bound");
    let at = listener.local_addr().ok().and_then(|at| at.as_socket()).expect("it is bound");
    let service = service("tcp", at);
    let mut balancer = Balancer::new(&[service]);
    let agent = Agent::start(&folder, &[service], &balancer);
    let idle = balancer.wait(0, |report| report.limit > report.sent && report.backlog == 0);
    assert!(idle.backlog_limit == 10 && idle.limit - idle.sent <= 10, "{idle:?}");
    let mut clients = Vec::new();
    for count in 1..=10 {
        clients.push(TcpStream::connect(at).expect("there is room"));
        balancer.sent[0] += 1;
        let sent = balancer.sent[0];
        let seen = balancer.wait(0, |report| report.backlog == count && report.sent == sent);
        assert!(seen.limit - seen.sent <= u64::from(10 - count), "{seen:?}");
    }
    // One more is taken by the kernel, and of those behind it nobody hears.
    let crowd: Vec<Socket> = (0..4)
        .map(|_| {
            let client = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None).expect("a socket");
            // It is under way, or refused: either is seen below.
            let _ = client.connect(&at.into());
            client
        })
        .collect();
    let full = balancer.wait(0, |report| report.drops > idle.drops && report.backlog >= 10);
    assert_eq!(full.limit, full.sent, "{full:?}");
    drop(crowd);
    for _ in 0..clients.len() {
        listener.accept().expect("they wait");
    }
    // Of the crowd some may have come meanwhile, and gone.
    listener.set_nonblocking(true).expect("a socket has that option");
    balancer.wait(0, |report| {
        let _ = listener.accept();
        report.backlog == 0 && report.limit > report.sent
    });
    agent.stop();
}

#[test]
fn agents_and_balancers_may_be_started_again() {
    let folder = Folder::new();
    let (_socket, service) = silent();
    let mut balancer = Balancer::new(&[service]);
    let agent = Agent::start(&folder, &[service], &balancer);
    balancer.sent[0] = 300;
    let before = balancer.wait(0, |report| report.limit > 300 && report.sent == 300);

    agent.program.signal(Signal::SIGKILL);
    agent.program.end();
    balancer.wait_for_the_end(0);
    assert_eq!(balancer.credit(0), None);
    let agent = Agent::start(&folder, &[service], &balancer);
    let again = balancer.wait(0, |report| report.limit > 300);
    assert!(again.hello > before.hello && again.drops == 0, "{again:?}");

    // What was reported to the one before means nothing to the next; its own count begins at 0.
    balancer.restart(&[service]);
    assert_eq!(balancer.credit(0), None);
    let after = balancer.wait(0, |report| report.limit > report.sent);
    assert!(after.sent == 0 && after.nonce != again.nonce && after.limit < 300, "{after:?}");
    let mut accounts = credit::Account::new(1, after.nonce, service);
    accounts.hello(std::time::Duration::ZERO, 0, 0);
    for old in [before, again] {
        assert_eq!(accounts.take(&old, std::time::Duration::ZERO), Taken::Introduction);
    }
    agent.stop();
}

#[test]
fn a_service_may_be_absent_and_started_again() {
    let folder = Folder::new();
    let at = free_address();
    let service = service("udp", at);
    let mut balancer = Balancer::new(&[service]);
    let mut agent = Agent::start(&folder, &[service], &balancer);
    let is_absent = |report: &Report| report.backlog_limit == 0;
    let absent = balancer.wait(0, |report| is_absent(report) && report.sequence > 0);
    assert_eq!(absent.limit, absent.sent);
    agent.program.has_said("there is no such service here");
    for turn in 0..3 {
        let server = UdpSocket::bind(at).expect("nobody holds the port, the agent neither");
        agent.program.line("found");
        balancer.wait(0, |report| report.limit > report.sent);
        if turn == 0 {
            server.send_to(&[0; 40], at).expect("loopback sends");
            balancer.wait(0, |report| report.backlog == 1);
        }
        drop(server);
        if turn < 2 {
            balancer.wait(0, |report| is_absent(report) && report.limit <= report.sent);
        }
    }
    agent.stop();
}

#[test]
fn drained_it_takes_no_more() {
    let folder = Folder::new();
    let (_socket, service) = silent();
    let mut balancer = Balancer::new(&[service]);
    let agent = Agent::start(&folder, &[service], &balancer);
    balancer.wait(0, |report| report.limit > report.sent && !report.draining);
    agent.program.signal(Signal::SIGUSR1);
    let drained = balancer.wait(0, |report| report.draining);
    assert_eq!(drained.limit, drained.sent);
    agent.wait(|seen| seen["draining"] == true);
    agent.program.signal(Signal::SIGUSR2);
    balancer.wait(0, |report| report.limit > report.sent && !report.draining);
    agent.stop();
}

/// Another user's agent may not duplicate sockets, and sees them through the kernel's list all the same.
#[test]
fn without_rights_the_list_of_sockets_is_enough() {
    if !geteuid().is_root() {
        // Not eprintln: the test harness would keep it to itself.
        let _ = std::io::Write::write_all(
            &mut std::io::stderr(),
            b"skipped: only root starts others' programs\n",
        );
        return;
    }
    let folder = Folder::new();
    let (socket, service) = silent();
    let at = socket.local_addr().expect("it is bound");
    let look = |agent: &Agent, backlog: u64| {
        let seen = agent.wait(|seen| seen["backlog"].as_u64() == Some(backlog) && seen["sockets"] == 1);
        seen["look"].as_str().expect("a word").to_owned()
    };
    // The folder of the program that is tested may be closed to others.
    let copy = folder.at("pointsman");
    std::fs::copy(program::path(), &copy).expect("a program can be copied");
    let mut nobody = Command::new(copy);
    nobody.uid(65_534).gid(65_534);
    for (command, expected) in [(nobody, "netlink"), (Command::new(program::path()), "duplicate")] {
        let agent = Agent::spawn(command, &folder, &[service], None);
        look(&agent, 0);
        socket.send_to(&[0; 40], at).expect("loopback sends");
        assert_eq!(look(&agent, 1), expected);
        socket.recv(&mut [0; 64]).expect("it is there");
        agent.stop();
    }
}

/// What a control group leaves its server is told with what a query costs, and no longer once the server has left the group.
#[test]
fn a_quota_of_processor_time_is_told() {
    let group = match Group::limited(20_000, 100_000) {
        Ok(group) => group,
        Err(cause) => {
            // Not eprintln: the test harness would keep it to itself.
            let skipped = format!("skipped: no control group with a quota can be made here: {cause}\n");
            let _ = std::io::Write::write_all(&mut std::io::stderr(), skipped.as_bytes());
            return;
        }
    };
    let folder = Folder::new();
    let ours = Serving::start(&folder, &["--zone", &folder.write("example.com.zone", ZONE)]);
    group.take(ours.program.pid());
    let services = [service("udp", ours.dns())];
    let mut balancer = Balancer::new(&services);
    let agent = Agent::start(&folder, &services, &balancer);
    balancer.wait(0, |report| report.limit > report.sent);
    let mut asked_until = |is_wanted: &dyn Fn(&Report) -> bool| {
        let until = Instant::now() + PROGRAM_WAIT;
        loop {
            (0..5).for_each(|_| drop(Question::new("www.example.com", "A").udp(ours.dns())));
            balancer.sent[0] += 5;
            let sent = balancer.sent[0];
            let report = balancer.wait(0, |report| report.sent == sent);
            if is_wanted(&report) {
                return report;
            }
            assert!(Instant::now() < until, "{report:?}");
        }
    };
    let told = asked_until(&|report| report.quota.is_some()).quota.expect("it is there");
    let (quota, period) = (Duration::from_millis(20), Duration::from_millis(100));
    assert_eq!((told.quota, told.period), (quota, period));
    assert!(told.refill <= period && told.left_us <= 20_000, "{told:?}");
    assert!(told.cost > Duration::ZERO && told.cost < quota, "{told:?}");
    agent.wait(|seen| seen["quota"]["period_us"] == 100_000);
    group.release(ours.program.pid());
    asked_until(&|report| report.quota.is_none());
    agent.wait(|seen| seen["quota"].is_null());
    agent.stop();
    ours.stop();
}

#[test]
fn what_is_printed() {
    let (_socket, service) = silent();
    let first_line = |more: &str| {
        let mut shell = Command::new("sh");
        let program = program::path().display();
        // It ends when nobody reads any more.
        shell.args(["-c", &format!("'{program}' agent --service {service} --print {more} | head -n 1")]);
        let ended = Program::spawn(shell).end();
        assert!(ended.stderr.contains("stopped"), "{}", ended.stderr);
        ended.stdout
    };
    let line = first_line("");
    assert!(line.contains(&format!("{service}  queue 0 of ")), "{line}");
    let seen: Value = serde_json::from_str(&first_line("--json")).expect("an object a line");
    assert_eq!(seen["services"][0]["service"], service.to_string());
}

#[test]
fn keys_and_arguments() {
    let folder = Folder::new();
    let run = |arguments: &[&str]| Program::start(arguments).end();
    let file = folder.at("new.key");
    assert_eq!(run(&["key", "new", &file]).status.code(), Some(0));
    let text = std::fs::read_to_string(&file).expect("it was made");
    assert!(Key::parse(&text).is_ok());
    let mode = std::fs::metadata(&file).expect("it was made").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = run(&["key", "new", &file]);
    assert!(
        again.status.code() == Some(2) && again.stderr.contains("it is there already"),
        "{}",
        again.stderr
    );
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), text, "it is not replaced");
    // No octet can be written to a file.
    let full = folder.at("full.key");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 0 && exec \"$0\" key new \"$1\""]);
    command.arg(program::path()).arg(&full);
    let ended = Program::spawn(command).end();
    assert!(ended.status.code() == Some(1) && ended.stderr.contains("cannot be made"), "{}", ended.stderr);
    assert!(!std::fs::exists(&full).expect("the folder is there"), "a part of it stays");
    let printed = run(&["key", "new"]).stdout;
    assert!(Key::parse(&printed).is_ok() && printed != text);

    let open = folder.write("open.key", &text);
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).expect("it is ours");
    let one = ["--service", "udp:127.0.0.1:53"];
    let told = ["--balancer", "127.0.0.1:1"];
    for (arguments, said) in [
        (vec![], "--service"),
        (vec!["--service", "53"], "expected udp:ADDRESS:PORT or tcp:ADDRESS:PORT"),
        (vec!["--service", "udp:127.0.0.1:0"], "its port is 0"),
        (one.to_vec(), "--balancer"),
        ([one, told].concat(), "--key"),
        ([&one[..], &told, &["--key", &open]].concat(), "mode 644"),
        ([&one[..], &told, &["--key", "/nowhere"]].concat(), "/nowhere"),
        ([&one[..], &one, &told, &["--key", &file]].concat(), "given twice"),
        (
            [&["--service", "udp:0.0.0.0:53"][..], &told, &["--key", &file]].concat(),
            "is no service's address",
        ),
        (
            [&one[..], &["--balancer", "[::]:5310", "--key", &file]].concat(),
            "[::]:5310 is no balancer's address",
        ),
        (
            [&one[..], &told, &["--key", &file, "--target-delay", "1h"]].concat(),
            "expected a time from 1 ms to 1 s",
        ),
    ] {
        let ended = run(&[&["agent"], &arguments[..]].concat());
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(said), "{arguments:?}: {}", ended.stderr);
    }
}
