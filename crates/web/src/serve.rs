//! The rim: connections, and how long each may take for what.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use net::accept::{Acceptor, Event};
use net::linger::linger;
use net::shutdown::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Sleep;

use crate::counters::{Counters, add};

/// Connections open at a time; further ones wait in the system's backlog. People, scrapers and control
/// processes hold a few each.
pub const CONNECTIONS_MAX: usize = 256;

/// The longest head of a request in octets: a name of 1,024 octets, percent-encoded, a token and some tags.
pub const HEAD_MAX: usize = 16 << 10;

/// How long a connection may wait for a request and for the whole of its head.
pub const HEAD_WAIT: Duration = Duration::from_secs(30);

/// The same of a connection that comes while more than half of [`CONNECTIONS_MAX`] are open, so that a crowd that asks
/// nothing does not shut others out for long.
pub const HEAD_WAIT_CROWDED: Duration = Duration::from_secs(5);

/// How long a connection may be open: whoever does not take its answer must not hold a place for ever. A
/// request that is under way then has ten more seconds.
pub const CONNECTION_LIFETIME: Duration = Duration::from_secs(600);

/// How long the last request of a connection may take once the lifetime is over or the shutdown has begun: a
/// change waits five seconds for the slowest worker.
const LAST_REQUEST_WAIT: Duration = Duration::from_secs(10);

/// How long a client may take none of its answer, with the system's buffers full.
pub const UNTAKEN: Duration = Duration::from_secs(10);

/// Who sent a request: an extension of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// Serves connections of `listener` from addresses that `allows` lets in, until `shutdown` begins, and then those
/// requests that are under way.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    allows: impl Fn(IpAddr) -> bool,
    counters: Arc<Counters>,
    shutdown: Shutdown,
) {
    let mut acceptor = Acceptor::new(listener, shutdown.clone()).with_open_max(CONNECTIONS_MAX);
    while let Some(event) = acceptor.next().await {
        match event {
            Event::Connected(_, client) if !allows(client.ip()) => add(&counters.strangers),
            Event::Connected(stream, client) => {
                add(&counters.accepted);
                let is_crowded = acceptor.open() >= CONNECTIONS_MAX / 2;
                let head_wait = if is_crowded { HEAD_WAIT_CROWDED } else { HEAD_WAIT };
                let stream = Patient::new(stream);
                let (router, counters, shutdown) = (router.clone(), counters.clone(), shutdown.clone());
                acceptor.spawn(connection(stream, Peer(client), head_wait, router, counters, shutdown));
            }
            Event::Aborted(_) => add(&counters.broken),
            Event::Failed { cause, is_to_tell } => {
                add(&counters.accept_failed);
                if is_to_tell {
                    tracing::warn!(%cause, "HTTP cannot accept connections; it is tried again and again");
                }
            }
            // The panic has been logged.
            Event::Panicked => {}
        }
    }
}

async fn connection(
    stream: Patient,
    peer: Peer,
    head_wait: Duration,
    router: Router,
    counters: Arc<Counters>,
    shutdown: Shutdown,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(head_wait).max_buf_size(HEAD_MAX);
    let router = TowerToHyperService::new(router);
    let counted = &*counters;
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let answered = router.call(request);
        // Only what may be moved gives its stream back.
        Box::pin(async move { answered.await.inspect(|answer| counted.answered(answer.status())) })
    });
    let mut connection = http.serve_connection(TokioIo::new(stream), service);
    let ended = tokio::select! {
        ended = poll_fn(|context| connection.poll_without_shutdown(context)) => Some(ended),
        () = tokio::time::sleep(CONNECTION_LIFETIME) => {
            add(&counters.lifetime);
            None
        }
        () = shutdown.wait() => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            Pin::new(&mut connection).graceful_shutdown();
            let last = poll_fn(|context| connection.poll_without_shutdown(context));
            let Ok(Ok(())) = tokio::time::timeout(LAST_REQUEST_WAIT, last).await else { return };
            Ok(())
        }
    };
    // What goes wrong on a connection is its client's to know; here it is only counted.
    if let Err(how) = ended {
        return counters.ended(&how);
    }
    // Who was refused before all of a body had come may still be sending it.
    let mut stream = connection.into_parts().io.into_inner();
    if stream.shutdown().await.is_ok() {
        linger(&mut stream).await;
    }
}

/// A connection that fails when nothing of what is written is taken for [`UNTAKEN`].
struct Patient {
    stream: TcpStream,
    stalled: Option<Pin<Box<Sleep>>>,
}

/// How a connection fails whose answers are not taken.
#[derive(Debug)]
pub(crate) struct Untaken;

impl Untaken {
    /// Whether a connection ended for this.
    pub(crate) fn is(how: &hyper::Error) -> bool {
        let cause = how.source().and_then(|source| source.downcast_ref::<io::Error>());
        cause.and_then(io::Error::get_ref).is_some_and(|cause| cause.is::<Untaken>())
    }
}

impl fmt::Display for Untaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the answer was not taken for {} s", UNTAKEN.as_secs())
    }
}

impl Error for Untaken {}

impl Patient {
    fn new(stream: TcpStream) -> Patient {
        // Else an answer behind one that the client has not acknowledged yet, which it does 40 ms later, waits for that
        // (RFC 896). Where it cannot be set, the connection has ended, and whoever reads it will learn so.
        let _ = stream.set_nodelay(true);
        Patient { stream, stalled: None }
    }

    fn wait(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(UNTAKEN)));
        stalled.as_mut().poll(context).map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, Untaken)))
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, octets);
        self.wait(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, octets);
        self.wait(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use axum::http::StatusCode;
    use axum::routing::{get, put};
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn what_is_accepted_sends_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let patient = Patient::new(accepted);
        assert!(patient.stream.nodelay().unwrap());
    }

    #[tokio::test]
    async fn answers_are_counted_by_status() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (counters, shutdown) = (Arc::<Counters>::default(), Shutdown::new());
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let router = Router::new().route("/", get(|| async {}));
        let served = tokio::spawn(serve(listener, router, |_| true, counters.clone(), shutdown.clone()));
        let asked =
            "GET / HTTP/1.1\r\nhost: a\r\n\r\nGET /no HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        client.write_all(asked.as_bytes()).await.unwrap();
        let mut answered = String::new();
        client.read_to_string(&mut answered).await.unwrap();
        assert_eq!(counters.responses().collect::<Vec<_>>(), [(200, 1), (404, 1)], "{answered}");
        shutdown.begin();
        served.await.unwrap();
    }

    #[tokio::test]
    async fn who_is_refused_before_all_of_its_body_has_come_learns_why() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (counters, shutdown) = (Arc::<Counters>::default(), Shutdown::new());
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let router = Router::new().route("/", put(|| async { StatusCode::UNAUTHORIZED }));
        let served = tokio::spawn(serve(listener, router, |_| true, counters.clone(), shutdown.clone()));
        const BODY: usize = 16 << 20;
        let head = format!("PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: {BODY}\r\n\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        client.write_all(&vec![b'x'; BODY]).await.expect("it is taken, though nobody wants it");
        let mut answered = String::new();
        client.read_to_string(&mut answered).await.expect("the connection ends well");
        assert!(answered.starts_with("HTTP/1.1 401 "), "{answered}");
        drop(client);
        shutdown.begin();
        served.await.unwrap();
    }

    // The clock runs by itself while everybody waits, so the limit comes at once.
    #[tokio::test(start_paused = true)]
    async fn a_crowd_that_asks_nothing_does_not_shut_others_out_for_long() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (counters, shutdown) = (Arc::<Counters>::default(), Shutdown::new());
        let router = Router::new().route("/", get(|| async {}));
        let served = tokio::spawn(serve(listener, router, |_| true, counters.clone(), shutdown.clone()));
        let begun = tokio::time::Instant::now();
        let mut crowd = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            crowd.push(TcpStream::connect(address).await.unwrap());
        }
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answered = String::new();
        client.read_to_string(&mut answered).await.unwrap();
        assert!(answered.starts_with("HTTP/1.1 200 "), "{answered}");
        // The first half may take its time.
        assert_eq!(begun.elapsed().as_secs(), HEAD_WAIT_CROWDED.as_secs());
        assert_eq!(counters.head_late.load(Ordering::Relaxed), CONNECTIONS_MAX as u64 / 2);
        drop(crowd);
        shutdown.begin();
        served.await.unwrap();
    }

    // As there.
    #[tokio::test(start_paused = true)]
    async fn who_never_reads_is_ended_and_strangers_are_not_served() {
        let router = || Router::new().route("/", get(|| async { "x".repeat(64 << 20) }));
        let (counters, shutdown) = (Arc::<Counters>::default(), Shutdown::new());
        let start = |allowed: bool| async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            (listener, address, move |_| allowed)
        };
        let (listener, address, everybody) = start(true).await;
        let served = tokio::spawn(serve(listener, router(), everybody, counters.clone(), shutdown.clone()));
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        while counters.untaken.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let (listener, address, nobody) = start(false).await;
        let refused = tokio::spawn(serve(listener, router(), nobody, counters.clone(), shutdown.clone()));
        let mut stranger = TcpStream::connect(address).await.unwrap();
        assert_eq!(stranger.read(&mut [0]).await.unwrap_or(0), 0);
        shutdown.begin();
        served.await.unwrap();
        refused.await.unwrap();
        let counts = [&counters.accepted, &counters.strangers, &counters.untaken, &counters.broken];
        assert_eq!(counts.map(|count| count.load(Ordering::Relaxed)), [1, 1, 1, 0]);
    }
}
