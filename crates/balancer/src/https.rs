//! A client over HTTPS: each request asks one query, over HTTP/2, several at a time, or 1.1, one after the other (RFC 8484).

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, Request};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, middleware};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dns::query::MESSAGE_MAX;
use dns::relay::question_end;
use dns::reuse::fresh_for;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use net::admission::Place;
use net::patient::Patient;
use net::shutdown::Shutdown;
use net::tls::stream::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep_until, timeout};
use web::Failure;

use crate::connections::{Connections, Way};
use crate::conversation::PIPELINED_MAX;
use crate::front::PATH;
use crate::under_way::UnderWay;

/// The media type of a message (RFC 8484 §6).
const MEDIA_TYPE: &str = "application/dns-message";

/// The octets that the head of a request may have: of those with a query in their path, all but the longest.
const HEAD_MAX: usize = 16 << 10;

/// The octets of a body that are read where it is too long.
const SENT_MAX: usize = 1 << 20;

/// Answers the requests of a connection, until its client, a limit or the shutdown ends it; what is under way then is still
/// answered, if the client takes it. Who gives way to a new client ends at once, as one over TCP does.
pub(crate) async fn converse(
    connections: Arc<Connections>,
    stream: Stream,
    way: Way,
    place: Place,
    shutdown: Shutdown,
) {
    let limits = connections.limits;
    let ending = connections.query_time_max().saturating_add(limits.message);
    let wire = Wire { stream: Patient::new(stream, limits.message), is_abandoned: Arc::default() };
    let is_abandoned = wire.is_abandoned.clone();
    let client = Arc::new(Client {
        connections,
        way,
        under_way: UnderWay::new(place),
        free: Arc::new(Semaphore::new(PIPELINED_MAX)),
    });
    let (router, asks) = (TowerToHyperService::new(router()), client.clone());
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(asks.clone());
        hyper::service::Service::call(&router, request)
    });
    let mut http = Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(limits.message).max_buf_size(HEAD_MAX);
    http.http2().max_concurrent_streams(PIPELINED_MAX as u32).max_header_list_size(HEAD_MAX as u32);
    let mut connection = pin!(http.serve_connection(TokioIo::new(wire), service));
    let end = Instant::now() + limits.lifetime;
    loop {
        let until = client.under_way.waits_until(&limits).min(end);
        tokio::select! {
            biased;
            // What goes wrong on a connection is its client's to know.
            _ = connection.as_mut() => return,
            () = shutdown.wait() => break,
            () = client.under_way.place.gives_way() => {
                client.connections.desk().counters.gave_way.add(1);
                // What the client does not take, the kernel is not to keep.
                is_abandoned.store(true, Ordering::Relaxed);
                return;
            }
            // It may have asked meanwhile.
            () = sleep_until(until) => if client.under_way.waits_until(&limits).min(end) <= Instant::now() { break },
        }
    }
    connection.as_mut().graceful_shutdown();
    // Who takes nothing more does not hear of it either.
    let _ = timeout(ending, connection).await;
}

/// What is answered: queries, and refusals that say what they expect.
fn router() -> Router {
    let routes = Router::new().route(PATH, get(by_get).post(by_post));
    web::reply::refuse_others(routes, PATH)
        .layer(middleware::map_response(counted))
        .layer(middleware::from_fn(heard_out))
}

/// Reads a body that nobody looks at: a client that is still sending when it is refused may not hear why.
async fn heard_out(Extension(client): Extension<Arc<Client>>, request: Request, next: Next) -> Response {
    if request.method() == Method::POST && request.uri().path() == PATH {
        return next.run(request).await;
    }
    let (head, body) = request.into_parts();
    // Who is too slow is refused as well.
    let _ = timeout(client.connections.limits.message, sent(body)).await;
    next.run(Request::from_parts(head, Body::empty())).await
}

/// Counts a request that held no query.
async fn counted(Extension(client): Extension<Arc<Client>>, response: Response) -> Response {
    if response.status().is_client_error() {
        client.connections.desk().counters.https_refused.add(1);
    }
    response
}

/// A query in the path (RFC 8484 §4.1).
async fn by_get(
    Extension(client): Extension<Arc<Client>>,
    parameters: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Result<Response, Failure> {
    let wrong = |what: &str| {
        let expected = format!("{PATH}?dns= and a message in base64url without padding");
        Failure::new(StatusCode::BAD_REQUEST, what, expected)
    };
    let parameters = parameters.map_or_else(|_| Vec::new(), |Query(parameters)| parameters);
    let mut messages = parameters.iter().filter(|(name, _)| name == "dns").map(|(_, value)| value);
    let (Some(message), None) = (messages.next(), messages.next()) else {
        return Err(wrong("there is not one parameter dns"));
    };
    let query = URL_SAFE_NO_PAD.decode(message).map_err(|cause| wrong(&format!("the message: {cause}")))?;
    client.answer(query).await
}

/// A query as the body.
async fn by_post(Extension(client): Extension<Arc<Client>>, request: Request) -> Result<Response, Failure> {
    let body = async {
        let (head, body) = request.into_parts();
        let request = Request::from_parts(head, Body::from(sent(body).await));
        web::body::read(request, &[MEDIA_TYPE], MESSAGE_MAX).await
    };
    let patience = client.connections.limits.message;
    let query = timeout(patience, body).await.unwrap_or_else(|_| {
        let expected = format!("all of it within {} seconds", patience.as_secs());
        Err(Failure::new(StatusCode::REQUEST_TIMEOUT, "the body is too slow", expected))
    })?;
    client.answer(query).await
}

/// What a body begins with, at most one octet more than a message may have. The rest is read, too, up to [`SENT_MAX`]: a
/// client that is still sending when it is refused may not hear why.
async fn sent(mut body: Body) -> Vec<u8> {
    let (mut kept, mut length) = (Vec::new(), 0);
    while length <= SENT_MAX
        && let Some(Ok(frame)) = body.frame().await
    {
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        let room = (MESSAGE_MAX + 1).saturating_sub(kept.len());
        kept.extend_from_slice(&data[..data.len().min(room)]);
    }
    kept
}

/// Who has a connection.
struct Client {
    connections: Arc<Connections>,
    way: Way,
    /// Requests that are answered now.
    under_way: UnderWay,
    /// For queries under way: those that their client no longer waits for count, too.
    free: Arc<Semaphore>,
}

impl Client {
    /// Takes a query to back ends, and answers with what they say.
    ///
    /// # Errors
    /// A message that is no query has no answer.
    async fn answer(self: Arc<Self>, query: Vec<u8>) -> Result<Response, Failure> {
        let _asking = self.under_way.begin();
        let permit = self.free.clone().acquire_owned().await;
        let (answered, mut answers) = mpsc::channel(1);
        let client = self.clone();
        // What is under way at a back end ends by itself: before, it would be in flight there for ever.
        tokio::spawn(async move {
            client.connections.answer(&query, client.way, &answered).await;
            drop(permit);
        });
        let Some(answer) = answers.recv().await else {
            let expected = "a DNS query, which has a header of 12 octets, and is no response";
            return Err(Failure::new(StatusCode::BAD_REQUEST, "the message is no query", expected));
        };
        let fresh = question_end(&answer).map_or(0, |question_end| fresh_for(&answer, question_end));
        let head: [(HeaderName, String); 2] =
            [(CONTENT_TYPE, MEDIA_TYPE.into()), (CACHE_CONTROL, format!("max-age={fresh}"))];
        Ok((head, Body::from(answer)).into_response())
    }
}

/// A connection that is reset when it is dropped abandoned.
struct Wire {
    stream: Patient<Stream>,
    is_abandoned: Arc<AtomicBool>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.is_abandoned.load(Ordering::Relaxed) {
            // Where it cannot be set, the connection is gone.
            let _ = self.stream.get_ref().socket().set_zero_linger();
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, room)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, octets)
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
    use super::*;
    use crate::connections::Onward;
    use crate::connections::tests::connections;
    use net::tcp::Limits;
    use std::net::SocketAddr;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpSocket, TcpStream};

    /// Answered here.
    const AXFR: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\xfc\0\x01";

    /// Asked of a back end.
    const ASKED: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";

    fn get_of(query: &[u8]) -> String {
        format!("GET {PATH}?dns={} HTTP/1.1\r\nhost: a\r\n\r\n", URL_SAFE_NO_PAD.encode(query))
    }

    /// Serves clients without TLS, with these back ends; returns where, and what ends it.
    async fn start(back_ends: &[SocketAddr], limits: Limits) -> (SocketAddr, Arc<Connections>, Shutdown) {
        let connections = Arc::new(connections(back_ends, limits, Onward::Connections));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback binds");
        let local = listener.local_addr().expect("it is bound");
        let (shared, shutdown) = (connections.clone(), Shutdown::new());
        let ends = shutdown.clone();
        tokio::spawn(async move {
            while let Ok((stream, client)) = listener.accept().await {
                let place = shared.admission.admit(client.ip()).expect("there is a place");
                let way = Way { client, local, protocol: dns::dnstap::Protocol::Doh };
                tokio::spawn(converse(shared.clone(), Stream::Plain(stream), way, place, ends.clone()));
            }
        });
        (local, connections, shutdown)
    }

    /// What comes until the end.
    async fn all(stream: &mut TcpStream) -> String {
        let mut octets = Vec::new();
        // It may be reset.
        let _ = stream.read_to_end(&mut octets).await;
        String::from_utf8_lossy(&octets).into_owned()
    }

    // The clock runs by itself while everybody waits.
    #[tokio::test(start_paused = true)]
    async fn who_asks_nothing_or_not_all_is_ended() {
        let limits = Limits::default();
        let (address, ..) = start(&[], limits).await;
        let (whole, slow) = (get_of(AXFR), format!("POST {PATH} HTTP/1.1\r\nhost: a\r\n"));
        let slow = format!("{slow}content-type: {MEDIA_TYPE}\r\ncontent-length: 99\r\n\r\n1");
        for (sent, expected) in [
            ("", ""),
            ("GET /dns", ""),
            (&slow, "HTTP/1.1 408 "),
            (&whole, "HTTP/1.1 200 "),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", "\0\0"),
        ] {
            let begun = Instant::now();
            let mut stream = TcpStream::connect(address).await.expect("it listens");
            stream.write_all(sent.as_bytes()).await.expect("it is taken");
            let told = all(&mut stream).await;
            assert!(told.starts_with(expected), "{sent:?}: {told:?}");
            assert!(begun.elapsed() < limits.idle + limits.message * 2, "{sent:?}: {:?}", begun.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_no_answers_is_ended() {
        let (address, ..) = start(&[], Limits::default()).await;
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4096).expect("the option can be set");
        let mut stream = socket.connect(address).await.expect("it listens");
        let queries = get_of(AXFR).repeat(1_000);
        let mut rounds = 0;
        while rounds < 1_000 {
            let wrote = timeout(Duration::from_secs(60), stream.write_all(queries.as_bytes())).await;
            if matches!(wrote, Ok(Err(_))) {
                break;
            }
            rounds += 1;
        }
        assert!(rounds < 1_000, "it is served for ever");
    }

    #[tokio::test]
    async fn what_is_under_way_when_the_shutdown_begins_is_answered() {
        let back_end = TcpListener::bind("127.0.0.1:0").await.expect("loopback binds");
        let (address, _, shutdown) =
            start(&[back_end.local_addr().expect("it is bound")], Limits::default()).await;
        let mut client = TcpStream::connect(address).await.expect("it listens");
        client.write_all(get_of(ASKED).as_bytes()).await.expect("it is taken");
        let (mut asked, _) = back_end.accept().await.expect("it is asked");
        let mut query = [0; 2 + ASKED.len()];
        asked.read_exact(&mut query).await.expect("a query");
        shutdown.begin();
        query[4] |= 0x80;
        asked.write_all(&query).await.expect("it is taken");
        let told = all(&mut client).await;
        assert!(told.starts_with("HTTP/1.1 200 OK\r\n") && told.contains("max-age=0\r\n"), "{told:?}");
    }

    #[tokio::test]
    async fn who_is_silent_gives_way() {
        let long = Duration::from_secs(3600);
        let limits = Limits { connections_max: 1, idle: long, idle_when_crowded: long, ..Limits::default() };
        let (address, connections, _) = start(&[], limits).await;
        let mut first = TcpStream::connect(address).await.expect("it listens");
        first.write_all(get_of(AXFR).as_bytes()).await.expect("it is taken");
        first.read_exact(&mut [0; 15]).await.expect("an answer");
        let next = connections.admission.admit([192, 0, 2, 1].into()).expect("the first one gives way");
        assert!(next.has_replaced());
        timeout(Duration::from_secs(60), all(&mut first)).await.expect("it is ended");
        assert_eq!(connections.desk().counters.gave_way.get(), 1);
    }
}
