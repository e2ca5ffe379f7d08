//! `pointsman balance` before name servers of other makes, and before such as answer whatever a test wants.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use tests::folder::Folder;
use tests::peer::{Peer, free_address};
use tests::program::{Ended, Program};
use tests::query::{self, Answer, Question};
use tests::secondary::Make;

const ZONE: &str = "$TTL 60\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\nwww A 192.0.2.80\n";

/// A running balancer.
struct Balancing {
    program: Program,
    dns: SocketAddr,
}

impl Balancing {
    fn start(back_ends: &[SocketAddr], more: &[&str]) -> Balancing {
        let back_ends: Vec<String> = back_ends.iter().map(|address| format!("--backend={address}")).collect();
        let mut arguments = vec!["balance", "--listen", "127.0.0.1:0"];
        arguments.extend(back_ends.iter().map(String::as_str));
        arguments.extend(more);
        let mut program = Program::start(&arguments);
        let line = program.line("(DNS)");
        let dns = line.split(' ').nth(2).and_then(|text| text.parse().ok()).expect("an address");
        program.line("ready");
        Balancing { program, dns }
    }

    fn stop(self) -> Ended {
        self.program.signal(Signal::SIGTERM);
        let ended = self.program.end();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        ended
    }
}

/// A back end that does with each query what a test says.
struct Scripted {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Scripted {
    /// `reply` gets the query, its number, and the socket with the address to reply to.
    fn start(reply: impl Fn(&[u8], usize, &UdpSocket, SocketAddr) + Send + 'static) -> Scripted {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        let address = socket.local_addr().expect("it is bound");
        let asked = Arc::new(AtomicUsize::new(0));
        let counts = asked.clone();
        std::thread::spawn(move || {
            let mut octets = [0; 4096];
            // The thread ends with the test's process.
            while let Ok((length, from)) = socket.recv_from(&mut octets) {
                let number = counts.fetch_add(1, Ordering::SeqCst);
                reply(&octets[..length], number, &socket, from);
            }
        });
        Scripted { address, asked }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// An answer without records.
fn answer(query: &[u8], rcode: u8) -> Vec<u8> {
    let mut reply = query.to_vec();
    reply[2] |= 0x80;
    reply[3] = reply[3] & 0xf0 | rcode;
    reply
}

fn ask(dns: SocketAddr, name: &str) -> Answer {
    Question::new(name, "A").udp(dns)
}

#[test]
fn queries_are_spread_over_bind_and_nsd() {
    let folders = [Folder::new(), Folder::new()];
    let zone = folders[0].write("example.zone", ZONE);
    let bind = Make::Bind.start(
        &folders[0],
        free_address(),
        &format!("zone \"example\" {{ type primary; file \"{zone}\"; }};\n"),
    );
    let nsd = Peer::nsd(&folders[1], "example", &zone);
    for policy in
        ["pressure", "wrr", "random", "least-outstanding", "p2c", "ewma", "hot-cold", "hash", "credit"]
    {
        let balancing = Balancing::start(&[bind.dns, nsd.dns], &["--policy", policy]);
        for _ in 0..20 {
            assert_eq!(ask(balancing.dns, "www.example").data(), ["192.0.2.80"], "{policy}");
        }
        let signed = Question::new("nothing.example", "A").dnssec_ok().udp(balancing.dns);
        assert_eq!((signed.rcode.as_str(), signed.edns), ("NXDOMAIN", true), "{policy}");
        balancing.stop();
    }
}

#[test]
fn only_the_reply_to_the_query_reaches_the_client() {
    let back_end = Scripted::start(|query, _, socket, from| {
        let good = answer(query, 0);
        let mut others = vec![good.clone(), good.clone(), good.clone(), good[..11].to_vec(), Vec::new()];
        // Another id, another question, a query, a part.
        others[0][1] ^= 1;
        others[1][13] ^= 0x03;
        others[2][2] &= 0x7f;
        for other in others {
            socket.send_to(&other, from).expect("loopback sends");
        }
        // Right, but from another address.
        let stranger = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        stranger.send_to(&answer(query, 3), from).expect("loopback sends");
        socket.send_to(&answer(query, 5), from).expect("loopback sends");
    });
    let balancing = Balancing::start(&[back_end.address], &["--tries", "1"]);
    for name in ["www.example", "WwW.eXample", "."] {
        assert_eq!(ask(balancing.dns, name).rcode, "REFUSED", "{name}");
    }
    balancing.stop();
}

#[test]
fn who_does_not_answer_is_replaced_and_a_late_reply_is_not_taken() {
    // It keeps its answers until the next query comes.
    let kept = std::sync::Mutex::new(Vec::new());
    let slow = Scripted::start(move |query, _, socket, from| {
        let mut kept = kept.lock().expect("nothing panics");
        for (reply, to) in kept.drain(..) {
            socket.send_to(reply, to).expect("loopback sends");
        }
        kept.push((Box::leak(answer(query, 3).into_boxed_slice()) as &[u8], from));
    });
    let good = Scripted::start(|query, _, socket, from| {
        socket.send_to(&answer(query, 0), from).expect("loopback sends");
    });
    let more = ["--policy", "wrr", "--timeout", "100ms"];
    let balancing = Balancing::start(&[slow.address, good.address], &more);
    for _ in 0..8 {
        assert_eq!(ask(balancing.dns, "www.example").rcode, "NOERROR");
    }
    assert!(slow.asked() >= 2 && good.asked() >= 6);
    balancing.stop();
}

#[test]
fn where_nobody_answers_the_client_is_told() {
    let silent = Scripted::start(|_, _, _, _| {});
    let balancing = Balancing::start(&[silent.address], &["--timeout", "50ms"]);
    assert_eq!(ask(balancing.dns, "www.example").rcode, "SERVFAIL");
    balancing.stop();
}

#[test]
fn who_is_gone_is_passed_over_at_once() {
    let gone = free_address();
    let good = Scripted::start(|query, _, socket, from| {
        socket.send_to(&answer(query, 0), from).expect("loopback sends");
    });
    // Much longer than a test may take: only what the system says of the port can help.
    let more = ["--policy", "wrr", "--timeout", "30s"];
    let balancing = Balancing::start(&[gone, good.address], &more);
    for _ in 0..50 {
        assert_eq!(ask(balancing.dns, "www.example").rcode, "NOERROR");
    }
    assert!(balancing.stop().stderr.contains("nobody listens"));
    let balancing = Balancing::start(&[gone], &more);
    assert_eq!(ask(balancing.dns, "www.example").rcode, "SERVFAIL");
    balancing.stop();
}

#[test]
fn what_is_malformed_is_answered_here() {
    let back_end = Scripted::start(|query, _, socket, from| {
        socket.send_to(&answer(query, 0), from).expect("loopback sends");
    });
    let balancing = Balancing::start(&[back_end.address], &[]);
    let socket = query::socket(balancing.dns);
    let good = Question::new("www.example", "A").message();
    let mut two = good.clone();
    two[5] = 2;
    let mut update = good.clone();
    update[2] = 5 << 3;
    for (message, rcode) in [(&two, 1), (&good[..20].to_vec(), 1), (&update, 4)] {
        let reply = query::exchange(&socket, message).expect("an answer");
        assert_eq!((reply.len(), reply[3] & 0x0f), (12, rcode));
    }
    let mut response = good.clone();
    response[2] |= 0x80;
    for silent in [&response[..], &good[..11], &[]] {
        socket.send(silent).expect("loopback sends");
    }
    // They were sent before this one, and over the same socket.
    assert_eq!(Question::new("www.example", "A").at(&socket).rcode, "NOERROR");
    assert_eq!(back_end.asked(), 1);
    balancing.stop();
}

#[test]
fn one_client_and_all_together_have_limits() {
    let silent = Scripted::start(|_, _, _, _| {});
    let more = ["--workers", "1", "--timeout", "200ms", "--tries", "1", "--per-client-max", "3"];
    let balancing = Balancing::start(&[silent.address], &more);
    let socket = query::socket(balancing.dns);
    let message = Question::new("www.example", "A").message();
    for _ in 0..10 {
        socket.send(&message).expect("loopback sends");
    }
    // Three are sent, and told that nobody answered; of the others nothing is heard.
    for _ in 0..3 {
        let mut reply = [0; 512];
        let length = socket.recv(&mut reply).expect("an answer");
        assert_eq!((length, reply[3] & 0x0f), (message.len(), 2));
    }
    assert_eq!(ask(balancing.dns, "www.example").rcode, "SERVFAIL");
    assert_eq!(silent.asked(), 4);
    balancing.stop();
}

#[test]
fn what_is_in_flight_is_answered_before_the_end() {
    let (told, asked) = std::sync::mpsc::channel();
    let slow = Scripted::start(move |query, _, socket, from| {
        told.send(()).expect("the test listens");
        std::thread::sleep(Duration::from_millis(300));
        socket.send_to(&answer(query, 0), from).expect("loopback sends");
    });
    let balancing = Balancing::start(&[slow.address], &["--timeout", "30s"]);
    let socket = query::socket(balancing.dns);
    let message = Question::new("www.example", "A").message();
    socket.send(&message).expect("loopback sends");
    asked.recv().expect("the query was forwarded");
    balancing.stop();
    let mut reply = [0; 512];
    assert_eq!(socket.recv(&mut reply).expect("an answer"), message.len());
}
