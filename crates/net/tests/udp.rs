//! Datagrams through real sockets on loopback: batches, families, the address asked, stopping.

use net::shutdown::Shutdown;
use net::udp::{self, BATCH_MAX, Batch, DATAGRAM_MAX, Sent, UdpListener};
use socket2::SockRef;
use std::collections::HashSet;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// What a test that hangs is ended by; nothing here takes a hundredth of it.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn both_families_are_answered_from_the_address_asked() {
    for (bound, asked) in [
        ("127.0.0.1:0", "127.0.0.1"),
        ("127.0.0.2:0", "127.0.0.2"),
        ("0.0.0.0:0", "127.0.0.1"),
        ("0.0.0.0:0", "127.0.0.2"),
        ("0.0.0.0:0", "127.9.8.7"),
        ("[::1]:0", "::1"),
        ("[::]:0", "::1"),
    ] {
        let bound: SocketAddr = bound.parse().expect("an address");
        if is_skipped(bound) {
            continue;
        }
        let listener = listener(bound);
        let asked = SocketAddr::new(asked.parse().expect("an address"), listener.local_address().port());
        // Connected: the kernel then delivers only what comes from the address asked.
        let client = client(asked.ip());
        client.connect(asked).expect("loopback is reachable");
        let mut batch = Batch::new(512);
        client.send(b"who is there").expect("loopback sends");
        assert_eq!(batch.receive(&listener).expect("a datagram is there"), 1);
        batch.answer_each(|datagram, out| {
            assert_eq!(datagram.server, asked);
            assert_eq!(datagram.client, client.local_addr().expect("a bound socket has an address"));
            assert_eq!(datagram.bytes, b"who is there");
            assert!(!datagram.truncated);
            out[..3].copy_from_slice(b"me!");
            Some(3)
        });
        assert_eq!(batch.send(&listener), Sent { sent: 1, failed: 0 });
        assert_eq!(received(&client), b"me!");
    }
}

#[test]
fn an_ipv6_socket_takes_no_ipv4() {
    let wildcard: SocketAddr = "[::]:0".parse().expect("an address");
    if is_skipped(wildcard) {
        return;
    }
    let (datagrams, connections) = (listener(wildcard), net::tcp::bind(wildcard).expect("loopback binds"));
    assert!(SockRef::from(&datagrams).only_v6().expect("the option can be read"));
    assert!(SockRef::from(&connections).only_v6().expect("the option can be read"));
}

#[test]
fn drops_in_a_batch_keep_answers_and_clients_together() {
    for bound in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
        let bound: SocketAddr = bound.parse().expect("an address");
        if is_skipped(bound) {
            continue;
        }
        let listener = listener(bound);
        let port = listener.local_address().port();
        // On IPv4 the clients of a wildcard socket ask different addresses.
        let asked = |i: usize| -> SocketAddr {
            match bound.ip() {
                IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::from(([127, 0, 0, 1 + i as u8], port)),
                IpAddr::V4(_) => SocketAddr::from(([127, 0, 0, 1], port)),
                IpAddr::V6(_) => SocketAddr::new("::1".parse().expect("an address"), port),
            }
        };
        let clients: Vec<UdpSocket> = (0..BATCH_MAX).map(|_| client(asked(0).ip())).collect();
        let mut batch = Batch::new(512);
        // More than one round, so that what one round leaves in the headers would be seen by the next.
        for round in 0..3_u8 {
            for (i, client) in clients.iter().enumerate() {
                client.connect(asked(i)).expect("loopback is reachable");
                client.send(&[round, i as u8]).expect("loopback sends");
            }
            let is_answered = |i: u8| !(i + round).is_multiple_of(3);
            let (mut seen, mut sent) = (0, Sent::default());
            while seen < BATCH_MAX {
                seen += batch.receive(&listener).expect("datagrams are there");
                batch.answer_each(|datagram, out| {
                    let &[_, i] = datagram.bytes else { panic!("{:?}", datagram.bytes) };
                    assert_eq!(datagram.server.ip(), asked(usize::from(i)).ip());
                    // Written also where nothing is sent: it must not reach anybody.
                    out[..3].copy_from_slice(&[round, i, 0xaa]);
                    // Lengths differ, so that one which is left from another answer would be seen.
                    is_answered(i).then_some(2 + usize::from(i % 2))
                });
                let now = batch.send(&listener);
                sent = Sent { sent: sent.sent + now.sent, failed: sent.failed + now.failed };
            }
            assert_eq!(sent, Sent { sent: (0..32).filter(|i| is_answered(*i)).count(), failed: 0 });
            for (i, client) in clients.iter().enumerate() {
                let i = i as u8;
                if is_answered(i) {
                    assert_eq!(
                        received(client),
                        [round, i, 0xaa][..2 + usize::from(i % 2)],
                        "{bound} {round}"
                    );
                }
                client.set_nonblocking(true).expect("the mode can be set");
                client.recv(&mut [0; 16]).expect_err("a second answer, or one that was not to be sent");
                client.set_nonblocking(false).expect("the mode can be set");
            }
        }
    }
}

#[test]
fn every_length_comes_and_goes() {
    let listener = listener("127.0.0.1:0".parse().expect("an address"));
    let client = client(listener.local_address().ip());
    let mut batch = Batch::new(udp::ANSWER_MAX);
    // (sent, received, truncated)
    for (len, expected, truncated) in [
        (0, 0, false),
        (1, 1, false),
        (DATAGRAM_MAX, DATAGRAM_MAX, false),
        (DATAGRAM_MAX + 1, DATAGRAM_MAX, true),
        (0, 0, false),
        (512, 512, false),
    ] {
        let octets: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        client.send_to(&octets, listener.local_address()).expect("loopback sends");
        assert_eq!(batch.receive(&listener).expect("a datagram is there"), 1);
        batch.answer_each(|datagram, out| {
            assert_eq!((datagram.bytes.len(), datagram.truncated), (expected, truncated));
            assert!(datagram.bytes == &octets[..expected]);
            assert_eq!(out.len(), udp::ANSWER_MAX);
            out[..expected].copy_from_slice(datagram.bytes);
            Some(expected)
        });
        assert_eq!(batch.send(&listener), Sent { sent: 1, failed: 0 });
        assert!(received(&client) == octets[..expected], "{len} octets");
    }
}

#[test]
fn a_batch_without_room_sends_empty_answers() {
    let listener = listener("127.0.0.1:0".parse().expect("an address"));
    let client = client(listener.local_address().ip());
    let mut batch = Batch::new(0);
    client.send_to(b"?", listener.local_address()).expect("loopback sends");
    assert_eq!(batch.receive(&listener).expect("a datagram is there"), 1);
    batch.answer_each(|_, out| Some(out.len()));
    assert_eq!(batch.send(&listener), Sent { sent: 1, failed: 0 });
    assert_eq!(received(&client), b"");
}

#[test]
#[should_panic(expected = "longer than its room")]
fn an_answer_longer_than_its_room_is_a_fault_of_ours() {
    let listener = listener("127.0.0.1:0".parse().expect("an address"));
    let client = client(listener.local_address().ip());
    client.send_to(b"?", listener.local_address()).expect("loopback sends");
    let mut batch = Batch::new(512);
    batch.receive(&listener).expect("a datagram is there");
    batch.answer_each(|_, out| Some(out.len() + 1));
}

#[test]
fn a_group_shares_the_clients() {
    let first = listener("127.0.0.1:0".parse().expect("an address"));
    let second = listener(first.local_address());
    let clients: Vec<UdpSocket> = (0..64).map(|_| client(first.local_address().ip())).collect();
    let shares: Vec<HashSet<SocketAddr>> = thread::scope(|scope| {
        let workers = [&first, &second].map(|listener| scope.spawn(|| echo_until_stopped(listener)));
        for client in &clients {
            for _ in 0..2 {
                client.send_to(b"?", first.local_address()).expect("loopback sends");
                assert_eq!(received(client), b"?");
            }
        }
        first.stop();
        second.stop();
        workers.map(|worker| worker.join().expect("the worker ends")).into()
    });
    assert!(shares[0].is_disjoint(&shares[1]), "datagrams of one client went to both");
    // Each client goes to either with even odds: that all go to one happens once in 2^63 runs.
    assert_eq!(shares[0].len() + shares[1].len(), clients.len());
    assert!(shares.iter().all(|share| !share.is_empty()));
}

#[test]
fn stopping_wakes_a_blocked_receiver_for_good() {
    for bound in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
        let bound: SocketAddr = bound.parse().expect("an address");
        if is_skipped(bound) {
            continue;
        }
        let listener = Arc::new(listener(bound));
        let shutdown = Shutdown::new();
        shutdown.on_begin({
            let listener = Arc::clone(&listener);
            move || listener.stop()
        });
        let (id, started) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let receiver = thread::spawn({
            let listener = Arc::clone(&listener);
            move || {
                let mut batch = Batch::new(512);
                id.send(nix::unistd::gettid()).expect("the test listens");
                for _ in 0..2 {
                    tell.send(batch.receive(&listener)).expect("the test listens");
                }
            }
        });
        wait_until_asleep(started.recv_timeout(PATIENCE).expect("the thread starts"));
        shutdown.begin();
        for _ in 0..2 {
            let received = told.recv_timeout(PATIENCE).expect("the receiver wakes");
            assert_eq!(received.expect("stopped is no error"), 0, "{bound}");
        }
        receiver.join().expect("the thread ends");
    }
}

#[test]
fn what_was_received_before_stopping_can_be_answered() {
    let listener = listener("127.0.0.1:0".parse().expect("an address"));
    let client = client(listener.local_address().ip());
    client.send_to(b"?", listener.local_address()).expect("loopback sends");
    let mut batch = Batch::new(512);
    assert_eq!(batch.receive(&listener).expect("a datagram is there"), 1);
    listener.stop();
    batch.answer_each(|_, out| {
        out[0] = b'!';
        Some(1)
    });
    assert_eq!(batch.send(&listener), Sent { sent: 1, failed: 0 });
    assert_eq!(received(&client), b"!");
    assert_eq!(batch.receive(&listener).expect("stopped is no error"), 0);
}

#[test]
fn a_full_receive_buffer_is_counted() {
    let listener = udp::bind("127.0.0.1:0".parse().expect("an address"), Some(8192)).expect("loopback binds");
    let room = listener.receive_buffer().expect("the socket can be asked");
    assert!(room < 100_000, "{room} octets");
    assert_eq!(listener.kernel_drops().expect("the socket can be asked"), 0);
    let client = client(listener.local_address().ip());
    for _ in 0..200 {
        client.send_to(&[0; 512], listener.local_address()).expect("loopback sends");
    }
    assert!(listener.kernel_drops().expect("the socket can be asked") > 0);
}

#[test]
fn the_receive_buffer_is_what_was_asked_for() {
    // Under the default of net.core.rmem_max, so that it needs no privilege.
    let listener =
        udp::bind("127.0.0.1:0".parse().expect("an address"), Some(100_000)).expect("loopback binds");
    assert_eq!(listener.receive_buffer().expect("the socket can be asked"), 100_000);
    let sockets = [Arc::new(listener)];
    assert_eq!(udp::short_of(&sockets, 100_000), None);
    let short = udp::short_of(&sockets, 200_000).expect("half of that");
    assert_eq!((short.given, short.wanted), (100_000, 200_000));
    assert!(short.to_string().ends_with("`sysctl net.core.rmem_max=100000`"), "{short}");
}

fn listener(address: SocketAddr) -> UdpListener {
    udp::bind(address, None).expect("loopback binds")
}

/// Binds a client of the same family as `asked`, on loopback.
fn client(asked: IpAddr) -> UdpSocket {
    let own = if asked.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    let client = UdpSocket::bind(own).expect("loopback binds");
    client.set_read_timeout(Some(PATIENCE)).expect("the option can be set");
    client
}

fn received(client: &UdpSocket) -> Vec<u8> {
    let mut octets = vec![0; 65_536];
    let len = client.recv(&mut octets).expect("an answer arrives");
    octets.truncate(len);
    octets
}

/// Sends everything back until the listener is stopped; returns who has asked.
fn echo_until_stopped(listener: &UdpListener) -> HashSet<SocketAddr> {
    let mut clients = HashSet::new();
    let mut batch = Batch::new(512);
    while batch.receive(listener).expect("the socket is sound") > 0 {
        batch.answer_each(|datagram, out| {
            clients.insert(datagram.client);
            out[..datagram.bytes.len()].copy_from_slice(datagram.bytes);
            Some(datagram.bytes.len())
        });
        batch.send(listener);
    }
    clients
}

/// Returns when the kernel says that a thread of this process sleeps: a receiver then is in its system call.
fn wait_until_asleep(id: nix::unistd::Pid) {
    let path = format!("/proc/self/task/{id}/stat");
    loop {
        let stat = std::fs::read_to_string(&path).expect("the thread lives");
        let (_, after_name) = stat.rsplit_once(") ").expect("the state follows the name");
        if after_name.starts_with('S') {
            return;
        }
        thread::yield_now();
    }
}

/// Whether this host has no IPv6 loopback, which is then said.
fn is_skipped(address: SocketAddr) -> bool {
    let skipped = address.is_ipv6() && UdpSocket::bind("[::1]:0").is_err();
    if skipped {
        // Not eprintln: the test harness would keep it to itself.
        let _ = writeln!(std::io::stderr(), "skipped {address}: this host has no IPv6 loopback");
    }
    skipped
}
