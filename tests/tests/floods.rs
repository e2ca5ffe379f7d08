//! Floods, in a network namespace that each test makes itself: good clients keep their answers, and memory its bound.
//!
//! The numbers of packets and connections are bounded, and nobody sends faster than the server answers, so that a
//! slow machine gives the same result. `cargo xtask bench floods` has the speed and the length.

use std::net::{IpAddr, SocketAddr, SocketAddrV4};

use tests::flood::clients::{Clients, Got};
use tests::flood::{self, GROWTH_MAX, GROWTH_UNTAKEN_MAX, KEPT_MIN, ORIGIN, crowd, datagrams};
use tests::folder::Folder;
use tests::http::Client;
use tests::namespace;
use tests::program::memory_peak;
use tests::query::ANSWER_WAIT;
use tests::serving::Serving;

/// The good clients; each asks at most as often as its network may in a second.
const CLIENTS: u8 = 20;
const ROUNDS: usize = 400;

/// Forged packets between two good questions: well below what a worker's receive buffer holds.
const BURST: usize = 50;

/// Rounds of crowds, in each of which every member acts and two good clients ask.
const CROWD_ROUNDS: usize = 60;

/// Places for TCP connections, and those of one address; attackers are three times as many.
const PLACES: usize = 60;
const PER_ADDRESS: usize = 10;

#[test]
fn random_names() {
    datagrams(
        datagrams::Kind::RandomNames,
        "pointsman_dropped_total{transport=\"udp\",cause=\"rate_limited\"}",
    );
}

#[test]
fn spoofed_sources() {
    datagrams(
        datagrams::Kind::Spoofed,
        "pointsman_queries_total{transport=\"udp\",type=\"A\",rcode=\"NOERROR\",verdict=\"answered\"}",
    );
}

#[test]
fn any_to_a_victim() {
    datagrams(datagrams::Kind::Any, "pointsman_dropped_total{transport=\"udp\",cause=\"rate_limited\"}");
}

#[test]
fn wrong_signatures() {
    datagrams(
        datagrams::Kind::BadlySigned,
        "pointsman_dropped_total{transport=\"udp\",cause=\"rate_limited\"}",
    );
}

#[test]
fn malformed() {
    datagrams(datagrams::Kind::Malformed, "pointsman_dropped_total{transport=\"udp\",cause=\"no_query\"}");
}

#[test]
fn connections_that_say_nothing() {
    connections(crowd::Kind::Silent, "gave_way");
}

#[test]
fn half_closed_connections() {
    connections(crowd::Kind::HalfClosed, "cut_short");
}

#[test]
fn an_octet_at_a_time() {
    connections(crowd::Kind::OctetByOctet, "gave_way");
}

#[test]
fn answers_that_nobody_takes() {
    connections(crowd::Kind::Untaken, "gave_way");
}

/// Floods over UDP; `metric` is one that counts what became of much of it.
fn datagrams(kind: datagrams::Kind, metric: &str) {
    in_a_namespace("", GROWTH_MAX, |served| {
        let mut flood = datagrams::Flood::new(kind, served.dns, 1).expect("root has raw sockets");
        let mut clients = Clients::new(served.dns, CLIENTS, ANSWER_WAIT).expect("the server gives a cookie");
        for _ in 0..ROUNDS {
            for _ in 0..BURST {
                flood.send().expect("the namespace takes it");
            }
            clients.ask_over_udp().expect("the namespace takes it");
            clients.ask_with_cookie().expect("the namespace takes it");
        }
        kept(&format!("{kind:?}: plain"), &clients.udp);
        kept(&format!("{kind:?}: by cookie"), &clients.cookie);
        let counted = served.metric(metric);
        assert!(counted >= (ROUNDS * BURST / 10) as u64, "{kind:?}: {metric} is {counted}");
    });
}

/// Floods of TCP connections; `cause` is what ends at least as many of them as there are places.
fn connections(kind: crowd::Kind, cause: &str) {
    let config = format!("[tcp]\nconnections_max = {PLACES}\nper_client_max = {PER_ADDRESS}\n");
    let untaken = if kind == crowd::Kind::Untaken { PLACES as u64 * GROWTH_UNTAKEN_MAX } else { 0 };
    in_a_namespace(&config, GROWTH_MAX + untaken, |served| {
        let addresses = 3 * PLACES / PER_ADDRESS;
        let mut crowd = crowd::Crowd::new(kind, served.dns, addresses as u16, PER_ADDRESS);
        let mut clients = Clients::new(served.dns, CLIENTS, ANSWER_WAIT).expect("the server gives a cookie");
        for _ in 0..CROWD_ROUNDS {
            crowd.round();
            clients.ask_over_tcp();
            clients.ask_over_udp().expect("the namespace takes it");
        }
        kept(&format!("{kind:?}: over TCP"), &clients.tcp);
        kept(&format!("{kind:?}: over UDP"), &clients.udp);
        let ended = served.metric(&format!("pointsman_tcp_ended_total{{cause=\"{cause}\"}}"));
        assert!(ended >= PLACES as u64, "{kind:?}: {ended} ended by {cause}, {} were made", crowd.made);
    });
}

fn kept(who: &str, got: &Got) {
    assert!(got.share() >= KEPT_MIN, "{who}: {} of {} answered", got.answered, got.asked);
}

/// A server in the namespace.
struct Served {
    dns: SocketAddrV4,
    api: SocketAddr,
}

impl Served {
    /// The value of a metric; 0 where it is not there.
    fn metric(&self, name: &str) -> u64 {
        Client::new(self.api).metric(name).unwrap_or(0.0) as u64
    }
}

/// Runs `work` beside a server with rates limited and this further configuration, in a namespace of its own; the
/// server's memory must grow by no more than `growth_max` octets.
fn in_a_namespace(config: &str, growth_max: u64, work: impl FnOnce(&Served) + Send) {
    namespace::alone(|| {
        namespace::own_every_address();
        let folder = Folder::new();
        let zone = folder.write(&format!("{ORIGIN}.zone"), flood::zone());
        let listen = SocketAddr::from((flood::SERVER, 0)).to_string();
        let mut flags = vec!["--zone".to_owned(), zone, "--listen".to_owned(), listen];
        flags.extend([
            "--config".to_owned(),
            folder.write("pointsman.toml", [flood::CONFIG, config].concat()),
        ]);
        let server = Serving::start(&folder, &flags);
        let IpAddr::V4(address) = server.dns().ip() else { unreachable!("it was told an IPv4 address") };
        let served = Served { dns: SocketAddrV4::new(address, server.dns().port()), api: server.api };
        let process = server.program.pid().as_raw().cast_unsigned();
        let memory = || memory_peak(process).expect("the server runs");
        let before = memory();
        work(&served);
        let growth = memory() - before;
        assert!(growth <= growth_max, "memory grew by {growth} octets");
        server.stop();
    });
}
