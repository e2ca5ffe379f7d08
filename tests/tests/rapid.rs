//! A web farm on three Rapid DNS servers, as the paper's: 250 processes with a connection to each.

use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nix::sys::signal::Signal;
use rapid::{Client, GIVE_UP};
use tests::folder::Folder;
use tests::program::{self, Program};
use tokio::runtime::Runtime;

/// Processes of web servers.
const CLIENTS: usize = 250;

/// How long a look-up waits here for a server that answers, on a machine under load.
const PATIENCE: Duration = Duration::from_secs(30);

/// The same, for those that are to be given up.
const SHORT: Duration = Duration::from_secs(2);

/// The program with a name for each of 192.0.2.0 to 192.0.2.249, and nobody to learn more from.
struct Server {
    program: Program,
    at: SocketAddr,
    _upstream: UdpSocket,
}

impl Server {
    fn start(folder: &Folder, number: usize) -> Server {
        let upstream = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let snapshot = folder.at(&format!("{number}.cache"));
        std::fs::copy(folder.at("names.cache"), &snapshot).expect("the folder can be written");
        let address = upstream.local_addr().expect("it is bound").to_string();
        let arguments =
            ["reverse", "--upstream", &address, "--rapid", "127.0.0.1:0", "--snapshot", &snapshot];
        let mut program = Program::start(&arguments);
        let line = program.line("(Rapid DNS)");
        program.line("ready");
        let at = line.split(' ').nth(2).and_then(|at| at.parse().ok()).expect("an address");
        Server { program, at, _upstream: upstream }
    }
}

fn names(folder: &Folder) {
    let lines: String = (0..CLIENTS).map(|i| format!("192.0.2.{i}\t4000000000\thost{i}.example\n")).collect();
    let text = folder.write("names.txt", lines);
    let mut import = Command::new(program::path());
    import.args(["reverse", "import", &text, &folder.at("names.cache")]);
    let ended = Program::spawn(import).end();
    assert!(ended.status.success(), "{}", ended.stderr);
}

/// Each client looks its own address up, all at once; how many got its name.
fn all_look_up(runtime: &Runtime, clients: &[Client]) -> usize {
    let look_ups: Vec<_> = clients
        .iter()
        .enumerate()
        .map(|(i, client)| {
            let client = client.clone();
            runtime.spawn(async move { client.look_up(Ipv4Addr::new(192, 0, 2, i as u8)).await })
        })
        .collect();
    let mut named = 0;
    for (i, look_up) in look_ups.into_iter().enumerate() {
        if let Some(name) = runtime.block_on(look_up).expect("it ends") {
            assert_eq!(name, format!("host{i}.example"));
            named += 1;
        }
    }
    named
}

fn sum(clients: &[Client], count: fn(&rapid::client::Counts) -> &std::sync::atomic::AtomicU64) -> u64 {
    clients.iter().map(|client| count(client.counts()).load(Ordering::Relaxed)).sum()
}

#[test]
fn a_farm_outlives_a_server_that_dies_and_one_that_hangs() {
    let folder = Folder::new();
    names(&folder);
    let [one, two, three] = [1, 2, 3].map(|number| Server::start(&folder, number));
    let servers = [one.at, two.at, three.at];
    let runtime = Runtime::new().expect("a runtime");
    let start = |give_up| -> Vec<Client> {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| runtime.spawn(async move { Client::start(&servers, give_up).await }))
            .collect();
        clients.into_iter().map(|client| runtime.block_on(client).expect("it starts")).collect()
    };
    let clients = start(PATIENCE);
    assert_eq!(sum(&clients, |counts| &counts.connections), 3 * CLIENTS as u64);
    for _ in 0..3 {
        assert_eq!(all_look_up(&runtime, &clients), CLIENTS);
    }
    assert_eq!(sum(&clients, |counts| &counts.named), 3 * CLIENTS as u64);

    // Killed: what it owed is asked of the others, and nobody notices.
    three.program.signal(Signal::SIGKILL);
    three.program.end();
    for _ in 0..3 {
        assert_eq!(all_look_up(&runtime, &clients), CLIENTS);
    }
    drop(clients);

    // Stopped, it keeps its connections and answers nothing: each client gives up on it once, then leaves it alone.
    let clients = start(SHORT);
    two.program.signal(Signal::SIGSTOP);
    for _ in 0..2 {
        all_look_up(&runtime, &clients);
    }
    for _ in 0..3 {
        assert_eq!(all_look_up(&runtime, &clients), CLIENTS);
    }
    assert_eq!(sum(&clients, |counts| &counts.given_up), CLIENTS as u64);
    two.program.signal(Signal::SIGCONT);

    // With nobody left, the answer is "not known", at once where no connection is.
    for server in [one, two] {
        server.program.signal(Signal::SIGKILL);
        server.program.end();
    }
    let alone = runtime.block_on(Client::start(&servers, GIVE_UP));
    assert_eq!(runtime.block_on(alone.look_up(Ipv4Addr::new(192, 0, 2, 1))), None);
    assert_eq!(alone.counts().not_asked.load(Ordering::Relaxed), 1);
}

#[test]
fn broken_framing_is_resynced_and_counted() {
    use std::io::{Read, Write};
    let folder = Folder::new();
    names(&folder);
    let server = Server::start(&folder, 1);
    let mut stream = TcpStream::connect(server.at).expect("it listens");
    stream.write_all(b"\xC0\0\x02\x01\xFFGET / HTTP/1.0\r\n\r\n\xFF").expect("it is taken");
    stream.write_all(&b"\xC0\0\x02\x02\xFF".repeat(3)).expect("it is taken");
    let expected = b"\xC0\0\x02\x01host1.example\0\xFFGET \0\xFF\xC0\0\x02\x02host2.example\0\xFF";
    let mut answers = vec![0; expected.len()];
    stream.read_exact(&mut answers).expect("the answers");
    assert_eq!(answers, expected);
    let ended = server.program.stop();
    assert!(ended.stderr.contains("refused=1 "), "{}", ended.stderr);
}
