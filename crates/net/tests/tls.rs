//! Connections over TLS, with a client that trusts anybody.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ::tests::certificate::Certificate;
use ::tests::folder::Folder;
use net::framing::prefix;
use net::shutdown::Shutdown;
use net::tcp::{self, Counters, Limits, Verdict};
use net::tls::identity::Identity;
use net::tls::{Anybody, provider};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The octets of each answer.
const ANSWER: usize = 30_000;

/// Answers each query with its octets, again and again.
fn answer(query: &[u8], out: &mut [u8]) -> Verdict {
    out[..ANSWER].iter_mut().zip(query.iter().cycle()).for_each(|(to, from)| *to = *from);
    Verdict::Reply(ANSWER)
}

/// A server of one certificate; where it is, what it counts, and what ends it.
fn start() -> (SocketAddr, Arc<Counters>, Shutdown) {
    let folder = Folder::new();
    let made = Certificate::new(&folder);
    let [chain, key] = [made.certificate, made.key].map(|path| std::fs::read(path).expect("it was made"));
    let identity = Arc::new(Identity::new(&chain, &key).expect("they are of one"));
    let listener = tcp::bind(([127, 0, 0, 1], 0).into()).expect("loopback binds");
    let address = listener.local_addr().expect("it is bound");
    let (limits, counters, shutdown) = (Limits::default(), Arc::<Counters>::default(), Shutdown::new());
    let front = (listener, Some(identity));
    let admission = Arc::new(limits.admission());
    let served =
        tcp::serve(front, admission, limits, counters.clone(), shutdown.clone(), |_| {}, |_, _| answer);
    tokio::spawn(served);
    (address, counters, shutdown)
}

async fn connect(address: SocketAddr) -> TlsStream<TcpStream> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider())))
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.expect("it listens");
    let name = ServerName::try_from("dns.example.com").expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("it comes to terms")
}

/// Reads one answer; returns its first octets.
async fn receive(stream: &mut TlsStream<TcpStream>) -> [u8; 4] {
    let length = stream.read_u16().await.expect("an answer comes");
    let mut message = vec![0; length.into()];
    stream.read_exact(&mut message).await.expect("the answer is whole");
    assert_eq!(message.len(), ANSWER);
    *message.first_chunk().expect("it is longer")
}

#[tokio::test]
async fn answers_come_in_order_and_whole_however_late_they_are_taken() {
    let (address, counters, shutdown) = start();
    let mut stream = connect(address).await;
    let query = |number: u32| [&prefix(4)[..], &number.to_be_bytes()].concat();
    let all: Vec<u8> = (0..500).flat_map(query).collect();
    stream.write_all(&all).await.expect("it is taken");
    stream.flush().await.expect("it is taken");
    // As many as there is room for are answered; the rest waits for the client.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    for number in 0..500_u32 {
        assert_eq!(receive(&mut stream).await, number.to_be_bytes());
    }
    assert_eq!(counters.answers.load(Relaxed), 500);
    // An end that was agreed on is told.
    shutdown.begin();
    assert_eq!(stream.read(&mut [0; 1]).await.expect("it ends in good order"), 0);
}

#[tokio::test]
async fn who_closes_without_a_word_has_closed() {
    let (address, counters, _shutdown) = start();
    let mut stream = connect(address).await;
    stream.write_all(&[0, 1, 7]).await.expect("it is taken");
    stream.flush().await.expect("it is taken");
    assert_eq!(receive(&mut stream).await, [7; 4]);
    drop(stream.into_inner().0);
    while counters.ended_by_client.load(Relaxed) == 0 {
        assert_eq!(counters.ended_reset.load(Relaxed), 0);
        tokio::task::yield_now().await;
    }
}
