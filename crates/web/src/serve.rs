//! The rim: connections, and how long each may take for what.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use net::accept::{Acceptor, Event};
use net::admission::{Admission, LOOKED_AT_MAX, Place};
use net::linger::LINGER_MAX;
use net::shutdown::Shutdown;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::body::BODY_WAIT;
use crate::counters::{Counters, add};
use crate::patient::{Answer, Question, Seated, Wire};

/// Connections open at a time. Whoever comes then takes the place of the one that has waited longest for a request; where
/// all are being answered, it waits, others behind it in the system's backlog. People, scrapers and control processes hold
/// a few each.
pub const CONNECTIONS_MAX: usize = 256;

/// The longest head of a request in octets: a name of 1,024 octets, percent-encoded, a token and some tags.
pub const HEAD_MAX: usize = 16 << 10;

/// How long a connection may wait for a request and for the whole of its head.
pub const HEAD_WAIT: Duration = Duration::from_secs(30);

/// How long a connection may be open: whoever does not take its answer must not hold a place for ever. A
/// request that is under way then has ten more seconds.
pub const CONNECTION_LIFETIME: Duration = Duration::from_secs(600);

/// How long the last request of a connection may take once the lifetime is over or the shutdown has begun: a
/// change waits five seconds for the slowest worker.
const LAST_REQUEST_WAIT: Duration = Duration::from_secs(10);

/// How long a client may go on sending what is not read, once it has its last answer: as long as a body may take that
/// is. Whoever needs its place gets it.
const LINGER_WAIT: Duration = BODY_WAIT;

/// How many octets of that are thrown away: as many as the longest body that a face takes has.
const LINGER_OCTETS_MAX: u64 = 64 << 20;

/// How often a place is looked for before one is waited for: so often that all connections are looked at.
const SEARCHES: usize = CONNECTIONS_MAX.div_ceil(LOOKED_AT_MAX) + 1;

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
    let admission = Arc::new(Admission::new(CONNECTIONS_MAX, usize::MAX));
    let freed = Arc::<Notify>::default();
    // One more, to which another gives way.
    let mut acceptor = Acceptor::new(listener, shutdown.clone()).with_open_max(CONNECTIONS_MAX + 1);
    while let Some(event) = acceptor.next().await {
        match event {
            Event::Connected(_, client) if !allows(client.ip()) => add(&counters.strangers),
            Event::Connected(stream, client) => {
                let place = tokio::select! {
                    biased;
                    () = shutdown.wait() => continue,
                    place = admitted(&admission, client.ip(), &freed) => place,
                };
                add(&counters.accepted);
                let seated = Arc::new(Seated::new(place, freed.clone()));
                let stream = Wire::new(stream, seated.clone());
                let (router, counters, shutdown) = (router.clone(), counters.clone(), shutdown.clone());
                acceptor.spawn(connection(stream, Peer(client), seated, router, counters, shutdown));
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

/// A place for a client, as soon as there is one.
async fn admitted(admission: &Arc<Admission>, client: IpAddr, freed: &Notify) -> Place {
    loop {
        if let Some(place) = (0..SEARCHES).find_map(|_| admission.admit(client).ok()) {
            return place;
        }
        freed.notified().await;
    }
}

async fn connection(
    stream: Wire,
    peer: Peer,
    seated: Arc<Seated>,
    router: Router,
    counters: Arc<Counters>,
    shutdown: Shutdown,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT).max_buf_size(HEAD_MAX);
    let router = TowerToHyperService::new(router);
    let (counted, seat) = (&*counters, seated.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let answered = router.call(request.map(|body| Question::new(body, seat.clone())));
        let seat = seat.clone();
        // Only what may be moved gives its stream back.
        Box::pin(async move {
            let mut answer = answered.await?;
            counted.answered(answer.status());
            // Else a client would ask on, and never hear of it.
            if !seat.is_read() {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(answer.map(|body| Answer::new(body, seat)))
        })
    });
    let mut connection = http.serve_connection(TokioIo::new(stream), service);
    let (mut lifetime, mut is_told) = (pin!(tokio::time::sleep(CONNECTION_LIFETIME)), false);
    let ended = loop {
        tokio::select! {
            biased;
            ended = poll_fn(|context| connection.poll_without_shutdown(context)) => break Some(ended),
            () = seated.gives_way(), if !is_told => {
                if seated.waits() {
                    return add(&counters.head_late);
                }
                // Its request came at the same moment.
                is_told = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            () = &mut lifetime => {
                add(&counters.lifetime);
                break None;
            }
            () = shutdown.wait() => break None,
        }
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
        counters.ended(&how);
        // What cannot be read has been answered.
        if !how.is_parse() {
            return;
        }
    }
    // Who was refused before all of a request had come may still be sending it.
    seated.parts();
    let mut stream = connection.into_parts().io.into_inner();
    if stream.shutdown().await.is_ok() {
        tokio::select! {
            () = seated.gives_way() => {}
            () = discard(&mut stream) => {}
            () = async { shutdown.wait().await; tokio::time::sleep(LINGER_MAX).await } => {}
        }
    }
}

/// Reads and throws away what a client sends that has its last answer, until it closes its side: closed before, the
/// connection would be reset, and an answer that the client has not read yet would be lost.
async fn discard(stream: &mut Wire) {
    let mut sent = stream.take(LINGER_OCTETS_MAX);
    // Whoever takes longer, or sends more, is cut off.
    let _ = tokio::time::timeout(LINGER_WAIT, tokio::io::copy(&mut sent, &mut tokio::io::sink())).await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use axum::http::StatusCode;
    use axum::routing::{get, put};
    use tokio::net::TcpStream;
    use tokio::sync::Semaphore;
    use tokio::task::JoinHandle;

    async fn start(router: Router) -> (SocketAddr, Arc<Counters>, Shutdown, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (counters, shutdown) = (Arc::<Counters>::default(), Shutdown::new());
        let served = tokio::spawn(serve(listener, router, |_| true, counters.clone(), shutdown.clone()));
        (address, counters, shutdown, served)
    }

    /// Sends a request and reads what its answer begins with.
    async fn ask(client: &mut TcpStream) -> String {
        client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let mut begins = [0; 13];
        client.read_exact(&mut begins).await.unwrap();
        String::from_utf8_lossy(&begins).into_owned()
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

    // Nobody who writes all before it reads hears of a connection that is reset.
    #[tokio::test]
    async fn a_connection_with_an_unread_body_is_said_to_end_and_any_other_goes_on() {
        let router = Router::new()
            .route("/unread", put(|| async { StatusCode::UNSUPPORTED_MEDIA_TYPE }))
            .route("/read", put(|_: String| async {}));
        let (address, _, shutdown, served) = start(router).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        for (path, is_last) in [("/read", false), ("/read", false), ("/unread", true)] {
            let head = format!("PUT {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n");
            client.write_all(head.as_bytes()).await.unwrap();
            if !is_last {
                client.write_all(b"ab").await.unwrap();
            }
            let mut told = Vec::new();
            while !told.ends_with(b"\r\n\r\n") {
                told.push(client.read_u8().await.unwrap());
            }
            let told = String::from_utf8(told).unwrap();
            assert_eq!(told.contains("connection: close\r\n"), is_last, "{path}: {told}");
        }
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        drop(client);
        shutdown.begin();
        served.await.unwrap();
    }

    #[tokio::test]
    async fn whose_request_cannot_be_read_learns_why() {
        let (address, counters, shutdown, served) = start(Router::new()).await;
        let long = "a".repeat(2 * HEAD_MAX);
        for (head, status) in [(format!("PUT /{long} HTTP/1.1\r\n"), 431), ("PUT\r\n\r\n".into(), 400)] {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(head.as_bytes()).await.unwrap();
            client.write_all(&vec![b'x'; 8 << 20]).await.expect("it is taken, though nobody wants it");
            let mut answered = String::new();
            client.read_to_string(&mut answered).await.expect("the connection ends well");
            assert!(answered.starts_with(&format!("HTTP/1.1 {status} ")), "{answered}");
        }
        assert_eq!(counters.malformed.load(Ordering::Relaxed), 2);
        shutdown.begin();
        served.await.unwrap();
    }

    #[tokio::test]
    async fn who_comes_takes_the_place_of_one_that_asks_nothing() {
        let (address, counters, shutdown, served) = start(Router::new().route("/", get(|| async {}))).await;
        let mut crowd = Vec::new();
        for nth in 0..CONNECTIONS_MAX {
            let mut idle = TcpStream::connect(address).await.unwrap();
            // Some have been served, some have begun to ask.
            match nth % 3 {
                0 => assert_eq!(ask(&mut idle).await, "HTTP/1.1 200 "),
                1 => idle.write_all(b"GET / HTTP/1.1\r\nho").await.unwrap(),
                _ => {}
            }
            crowd.push(idle);
        }
        for nth in 1..=CONNECTIONS_MAX as u64 {
            let mut client = TcpStream::connect(address).await.unwrap();
            assert_eq!(ask(&mut client).await, "HTTP/1.1 200 ");
            assert_eq!(counters.head_late.load(Ordering::Relaxed), nth);
            crowd.push(client);
        }
        shutdown.begin();
        served.await.unwrap();
    }

    #[tokio::test]
    async fn who_is_being_answered_keeps_its_place_and_who_comes_waits() {
        let (gate, asked) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (opened, begun) = (gate.clone(), asked.clone());
        let router = Router::new().route(
            "/",
            get(async move || {
                begun.add_permits(1);
                opened.acquire().await.unwrap().forget();
            }),
        );
        let (address, counters, shutdown, served) = start(router).await;
        let client = || async move { ask(&mut TcpStream::connect(address).await.unwrap()).await };
        let mut clients: Vec<_> = (0..CONNECTIONS_MAX).map(|_| tokio::spawn(client())).collect();
        asked.acquire_many(CONNECTIONS_MAX as u32).await.unwrap().forget();
        clients.push(tokio::spawn(client()));
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(counters.accepted.load(Ordering::Relaxed), CONNECTIONS_MAX as u64);
        gate.add_permits(1);
        asked.acquire().await.unwrap().forget();
        gate.add_permits(CONNECTIONS_MAX);
        for client in clients {
            assert_eq!(client.await.unwrap(), "HTTP/1.1 200 ");
        }
        shutdown.begin();
        served.await.unwrap();
    }

    #[tokio::test]
    async fn what_nobody_wants_is_not_taken_without_end() {
        let (address, _, shutdown, served) = start(Router::new()).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000000\r\n\r\n").await.unwrap();
        let mebibyte = vec![b'x'; 1 << 20];
        let mut taken = 0;
        while client.write_all(&mebibyte).await.is_ok() {
            taken += mebibyte.len() as u64;
            assert!(taken < 2 * LINGER_OCTETS_MAX);
        }
        assert!(taken >= LINGER_OCTETS_MAX - (1 << 20), "{taken}");
        shutdown.begin();
        served.await.unwrap();
    }

    // The clock runs by itself while everybody waits.
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
