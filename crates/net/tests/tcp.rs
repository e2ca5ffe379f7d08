//! Connections through real sockets on loopback. What takes time is tested beside the code, on a clock that
//! the test turns.

use net::framing::MESSAGE_MAX;
use net::shutdown::Shutdown;
use net::tcp::{self, Counters, Limits, Verdict};
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

/// What a test that hangs is ended by; nothing here takes a hundredth of it.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_families_are_served() {
    for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
        let address: SocketAddr = address.parse().expect("an address");
        if is_skipped(address) {
            continue;
        }
        let served = Served::new(address, Limits::default());
        let mut client = served.connect().await;
        let (own, asked) = (client.local_addr().expect("connected"), client.peer_addr().expect("connected"));
        write(&mut client, b"who").await;
        assert_eq!(read(&mut client).await, format!("{own} asked {asked}").as_bytes());
        drop(client);
        let counters = served.end().await;
        assert_eq!([&counters.accepted, &counters.queries, &counters.answers].map(value), [1, 1, 1]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_with_long_pipelines_get_all_answers_in_order() {
    let served = Served::new(loopback(), Limits::default());
    let clients: Vec<_> = (0..20_u16)
        .map(|number| {
            let address = served.address;
            tokio::spawn(async move {
                let (mut reader, mut writer) =
                    TcpStream::connect(address).await.expect("the listener listens").into_split();
                let asking = tokio::spawn(async move {
                    let queries: Vec<u8> =
                        (0..2000_u16).flat_map(|query| frame(&tag(number, query))).collect();
                    // Pieces end anywhere, also within a prefix.
                    for piece in queries.chunks(1001) {
                        writer.write_all(piece).await.expect("the connection reads");
                    }
                    // Half closed: the answers must come all the same.
                });
                for query in 0..2000_u16 {
                    let len = reader.read_u16().await.expect("an answer comes");
                    let mut answer = vec![0; usize::from(len)];
                    reader.read_exact(&mut answer).await.expect("the answer is whole");
                    assert_eq!(answer, tag(number, query));
                }
                assert_eq!(reader.read(&mut [0; 1]).await.expect("the stream ends well"), 0);
                asking.await.expect("all is asked");
            })
        })
        .collect();
    for client in clients {
        client.await.expect("the client is served");
    }
    let counters = served.end().await;
    assert_eq!([&counters.queries, &counters.answers].map(value), [40_000, 40_000]);
    assert_eq!([&counters.accepted, &counters.ended_by_client].map(value), [20, 20]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_messages_pass_both_ways() {
    let served = Served::new(loopback(), Limits::default());
    let (mut reader, mut writer) = served.connect().await.into_split();
    let longest: Vec<u8> = (0..MESSAGE_MAX).map(|i| (i % 251) as u8).collect();
    let asking = tokio::spawn({
        let longest = longest.clone();
        async move {
            for _ in 0..20 {
                writer.write_all(&frame(&longest)).await.expect("the connection reads");
            }
            writer
        }
    });
    for _ in 0..20 {
        assert_eq!(usize::from(reader.read_u16().await.expect("an answer comes")), MESSAGE_MAX);
        let mut answer = vec![0; MESSAGE_MAX];
        reader.read_exact(&mut answer).await.expect("the answer is whole");
        assert!(answer == longest);
    }
    drop((reader, asking.await.expect("all is asked")));
    served.end().await;
}

#[tokio::test]
async fn a_client_beyond_its_share_is_closed_at_once_and_counted() {
    let served = Served::new(loopback(), Limits { per_client_max: 2, ..Limits::default() });
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut client = served.connect().await;
        write(&mut client, b"stay").await;
        assert_eq!(read(&mut client).await, b"stay");
        kept.push(client);
    }
    assert!(is_closed(served.connect().await).await);
    let counters = &served.counters;
    assert_eq!([&counters.refused_full, &counters.refused_per_client].map(value), [0, 1]);
    for client in &mut kept {
        write(client, b"still here").await;
        assert_eq!(read(client).await, b"still here");
    }

    // A place that is given back is given out again.
    drop(kept.pop());
    until(|| value(&counters.ended_by_client) == 1).await;
    let mut next = served.connect().await;
    write(&mut next, b"my turn").await;
    assert_eq!(read(&mut next).await, b"my turn");
    drop((next, kept));
    served.end().await;
}

#[tokio::test]
async fn those_that_ask_nothing_give_way_to_those_that_come() {
    let served = Served::new(loopback(), Limits { connections_max: 20, ..Limits::default() });
    let mut asked = Vec::new();
    for _ in 0..10 {
        asked.push(served.connect().await);
    }
    // Ten say nothing, and ten more begin a query: of twenty that never asked, ten are gone at the end. The others ask
    // now and then.
    let mut silent = Vec::new();
    for number in 0..20 {
        for client in asked.iter_mut().filter(|_| number % 10 == 0) {
            write(client, b"stay").await;
            assert_eq!(read(client).await, b"stay");
        }
        let mut client = served.connect().await;
        if number % 2 == 1 {
            client.write_all(&[0]).await.expect("the connection reads");
        }
        silent.push(client);
    }
    until(|| value(&served.counters.ended_gave_way) == 10).await;
    for client in &mut asked {
        write(client, b"still here").await;
        assert_eq!(read(client).await, b"still here");
    }
    // Nobody who comes is refused, and there is always one that has waited for longer.
    for _ in 0..100 {
        let mut client = served.connect().await;
        write(&mut client, b"new").await;
        assert_eq!(read(&mut client).await, b"new");
    }
    assert_eq!(value(&served.counters.refused_full), 0);
    drop((asked, silent));
    served.end().await;
}

#[tokio::test]
async fn a_panicking_handler_ends_its_own_connection_only() {
    let served = Served::new(loopback(), Limits::default());
    let (mut good, mut bad) = (served.connect().await, served.connect().await);
    write(&mut bad, b"panic").await;
    assert!(is_closed(bad).await);
    write(&mut good, b"fine").await;
    assert_eq!(read(&mut good).await, b"fine");
    until(|| value(&served.counters.handler_panics) == 1).await;
    drop(good);
    served.end().await;
}

#[tokio::test]
async fn a_broken_connection_is_counted() {
    let served = Served::new(loopback(), Limits::default());
    let mut client = served.connect().await;
    write(&mut client, b"hello").await;
    read(&mut client).await;
    socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).expect("the option can be set");
    drop(client);
    until(|| value(&served.counters.ended_reset) == 1).await;
    served.end().await;
}

#[tokio::test]
async fn shutdown_ends_the_listener_and_idle_connections() {
    let served = Served::new(loopback(), Limits::default());
    let mut idle = served.connect().await;
    write(&mut idle, b"one").await;
    assert_eq!(read(&mut idle).await, b"one");
    let address = served.address;
    let counters = served.end().await;
    assert_eq!(value(&counters.ended_by_shutdown), 1);
    assert!(is_closed(idle).await);
    let refused = TcpStream::connect(address).await.expect_err("nobody listens any more");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn answers_that_a_client_has_not_read_outlive_the_connection() {
    let served = Served::new(loopback(), Limits::default());
    let socket = TcpSocket::new_v4().expect("a socket");
    // So little that nearly all is still to be sent when the server ends.
    socket.set_recv_buffer_size(4096).expect("the size can be set");
    let mut client = socket.connect(served.address).await.expect("the listener listens");
    // Behind the one that closes is more than is read at a time.
    let asked = [frame(b"long"), frame(b"close"), frame(&[b'x'; 30_000])].concat();
    client.write_all(&asked).await.expect("it is taken");
    until(|| value(&served.counters.answers) == 1).await;
    let mut taken = Vec::new();
    client.read_to_end(&mut taken).await.expect("the connection ends well");
    assert_eq!(taken.len(), 2 + MESSAGE_MAX);
    drop(client);
    assert_eq!(value(&served.end().await.ended_by_handler), 1);
}

/// A served listener on this host.
struct Served {
    address: SocketAddr,
    counters: Arc<Counters>,
    shutdown: Shutdown,
    task: JoinHandle<std::io::Result<()>>,
}

impl Served {
    fn new(address: SocketAddr, limits: Limits) -> Self {
        let listener = tcp::bind(address).expect("loopback binds");
        let bound = listener.local_addr().expect("a bound socket has an address");
        let ip = if bound.ip().is_unspecified() {
            if bound.is_ipv4() { [127, 0, 0, 1].into() } else { "::1".parse().expect("an address") }
        } else {
            bound.ip()
        };
        let (counters, shutdown) = (Arc::new(Counters::default()), Shutdown::new());
        let task = tokio::spawn(tcp::serve(
            (listener, None),
            Arc::new(limits.admission()),
            limits,
            Arc::clone(&counters),
            shutdown.clone(),
            |_| {},
            |client, asked| {
                move |query: &[u8], out: &mut [u8]| match query {
                    b"who" => put(out, format!("{client} asked {asked}").as_bytes()),
                    b"panic" => panic!("asked to"),
                    b"close" => Verdict::Close,
                    b"long" => Verdict::Reply(out.len()),
                    _ => put(out, query),
                }
            },
        ));
        Self { address: SocketAddr::new(ip, bound.port()), counters, shutdown, task }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("the listener listens")
    }

    async fn end(self) -> Arc<Counters> {
        self.shutdown.begin();
        let ended = tokio::time::timeout(PATIENCE, self.task).await.expect("it ends in time");
        ended.expect("no panic").expect("no error");
        let Counters { accepted, handler_panics, .. } = &*self.counters;
        let ends = [
            &self.counters.ended_by_handler,
            &self.counters.ended_by_client,
            &self.counters.ended_cut_short,
            &self.counters.ended_reset,
            &self.counters.ended_idle,
            &self.counters.ended_query_late,
            &self.counters.ended_answers_untaken,
            &self.counters.ended_lifetime,
            &self.counters.ended_gave_way,
            &self.counters.ended_by_shutdown,
        ];
        let ended: u64 = ends.into_iter().map(value).sum();
        assert_eq!(ended + value(handler_panics), value(accepted), "every connection ends in one counter");
        self.counters
    }
}

fn put(out: &mut [u8], answer: &[u8]) -> Verdict {
    out[..answer.len()].copy_from_slice(answer);
    Verdict::Reply(answer.len())
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn tag(client: u16, query: u16) -> Vec<u8> {
    let mut tag = [client.to_be_bytes(), query.to_be_bytes()].concat();
    tag.resize(12 + usize::from(query % 50), 0);
    tag
}

fn frame(message: &[u8]) -> Vec<u8> {
    [&net::framing::prefix(message.len())[..], message].concat()
}

async fn write(client: &mut TcpStream, message: &[u8]) {
    client.write_all(&frame(message)).await.expect("the connection reads");
}

async fn read(client: &mut TcpStream) -> Vec<u8> {
    let reading = async {
        let mut message = vec![0; usize::from(client.read_u16().await.expect("an answer comes"))];
        client.read_exact(&mut message).await.expect("the answer is whole");
        message
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("the answer comes in time")
}

/// Whether the server closes or resets without a word.
async fn is_closed(mut client: TcpStream) -> bool {
    match tokio::time::timeout(PATIENCE, client.read(&mut [0; 1])).await.expect("it happens in time") {
        Ok(len) => len == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

async fn until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("it happens in time");
}

fn value(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Whether this host has no IPv6 loopback, which is then said.
fn is_skipped(address: SocketAddr) -> bool {
    let skipped = address.is_ipv6() && std::net::TcpListener::bind("[::1]:0").is_err();
    if skipped {
        // Not eprintln: the test harness would keep it to itself.
        let _ = writeln!(std::io::stderr(), "skipped {address}: this host has no IPv6 loopback");
    }
    skipped
}
