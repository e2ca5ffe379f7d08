//! DNS over HTTPS (RFC 8484) as octets of TLS: one HTTP/2 connection, a POST a query.
//!
//! The `h2` crate is written for a runtime that wakes its tasks. Here there is none: HTTP/2 reads and writes octets in
//! memory, and is asked to go on whenever some have arrived or a query is to go. Only requests whose answers have
//! something new are looked at.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use dns::query::HEADER;
use futures_util::Stream;
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::FuturesUnordered;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use http::{Method, Request, StatusCode, Uri, Version};
use net::framing::MESSAGE_MAX;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::secured::Secured;
use super::tally::Cause;
use super::tls::{Session, Tls};
use super::told::{Told, UNWRITTEN_MAX};

/// The media type of a message.
const MEDIA_TYPE: &str = "application/dns-message";

/// What many short frames of answers may cost before they are taken up, as h2 counts it: what is read at once has 64 KiB.
const FRAMES_BUDGET: usize = 1 << 20;

/// One client's HTTP/2 connection.
pub(super) struct Https {
    secured: Secured,
    pipe: Pipe,
    sender: SendRequest<Bytes>,
    connection: Pin<Box<Connection<Pipe, Bytes>>>,
    answers: FuturesUnordered<Abortable<Answer>>,
    /// What ends each of them.
    under_way: HashMap<u16, AbortHandle>,
    waiting: VecDeque<(u16, Bytes)>,
    waiting_octets: usize,
    /// The server takes no further query (GOAWAY), though it may answer those that it has.
    is_leaving: bool,
    uri: Uri,
}

/// A query's answer to come.
type Answer = Pin<Box<dyn Future<Output = (u16, Result<Vec<u8>, Refused>)> + Send>>;

/// Why there is none.
struct Refused {
    cause: Cause,
    why: String,
    /// The server has said that it did nothing with the query (RFC 9113 §6.8).
    is_unprocessed: bool,
}

impl Https {
    /// Begins a handshake, and HTTP/2 behind it.
    ///
    /// # Errors
    /// What it cannot begin with.
    pub(super) fn new(
        tls: &Arc<Tls>,
        path: &str,
        server: SocketAddr,
        session: Option<Arc<Session>>,
    ) -> Result<Https, Cause> {
        let mut secured = Secured::new(tls, b"h2", server, session)?;
        let authority = match tls.name(server.ip()).to_str() {
            name if name.contains(':') => format!("[{name}]:{}", server.port()),
            name => format!("{name}:{}", server.port()),
        };
        let uri = Uri::builder().scheme("https").authority(authority).path_and_query(path).build();
        let uri = uri.map_err(|error| secured.refused(&error))?;
        let pipe = Pipe::default();
        let mut builder = Builder::new();
        // What comes too late is the server's to be behind with, and no reason to end the connection.
        builder.enable_push(false).max_local_error_reset_streams(None).data_frame_budget(FRAMES_BUDGET);
        let mut begun = Box::pin(builder.handshake(pipe.clone()));
        // It only writes, and memory always has room.
        let Poll::Ready(begun) = begun.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            return Err(secured.refused(&"HTTP/2 does not begin"));
        };
        let (sender, connection) = begun.map_err(|error| secured.refused(&error))?;
        secured.write(&pipe.take())?;
        Ok(Https {
            secured,
            pipe,
            sender,
            connection: Box::pin(connection),
            answers: FuturesUnordered::new(),
            under_way: HashMap::new(),
            waiting: VecDeque::new(),
            waiting_octets: 0,
            is_leaving: false,
            uri,
        })
    }

    /// Takes a query, which goes when the server takes one more.
    ///
    /// # Errors
    /// [`Cause::NoRoom`], which leaves all as it was; or why the connection is to be closed.
    pub(super) fn ask(
        &mut self,
        id: u16,
        message: &[u8],
        told: &mut dyn FnMut(Told<'_>),
    ) -> Result<(), Cause> {
        if self.waiting_octets + message.len() > UNWRITTEN_MAX {
            return Err(Cause::NoRoom);
        }
        let mut message = message.to_vec();
        // RFC 8484 §4.1: an id of 0, as the stream tells which answer is whose.
        if let Some(place) = message.first_chunk_mut() {
            *place = [0; 2];
        }
        self.waiting_octets += message.len();
        self.waiting.push_back((id, message.into()));
        self.go_on(told)
    }

    /// Takes a query back: it goes no more, or its stream is ended, of which a server has only so many.
    ///
    /// # Errors
    /// Why the connection is to be closed.
    pub(super) fn give_up(&mut self, id: u16, told: &mut dyn FnMut(Told<'_>)) -> Result<(), Cause> {
        let place = self.waiting.iter().position(|(waiting, _)| *waiting == id);
        if let Some((_, message)) = place.and_then(|place| self.waiting.remove(place)) {
            self.waiting_octets -= message.len();
            return Ok(());
        }
        if let Some(answer) = self.under_way.remove(&id) {
            answer.abort();
        }
        self.go_on(told)
    }

    /// Takes octets from the server, and tells what they hold.
    ///
    /// # Errors
    /// Why the connection is to be closed.
    pub(super) fn receive(
        &mut self,
        octets: &[u8],
        room: &mut Vec<u8>,
        told: &mut dyn FnMut(Told<'_>),
    ) -> Result<(), Cause> {
        let pipe = &self.pipe;
        let is_open = self.secured.receive(octets, room, told, |piece, _| pipe.give(piece))?;
        if self.secured.speaks().is_some_and(|speaks| speaks != b"h2") {
            return Err(self.secured.refused(&"the server does not speak HTTP/2"));
        }
        let gone_on = self.go_on(told);
        if is_open { gone_on } else { Err(Cause::Closed) }
    }

    /// Whether the server takes no further query.
    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Adds what is to be written to `to`.
    pub(super) fn take(&mut self, to: &mut Vec<u8>) {
        self.secured.take(to);
    }

    /// Says goodbye.
    pub(super) fn close(&mut self) {
        self.secured.close();
    }

    /// Has HTTP/2 do all that it can.
    fn go_on(&mut self, told: &mut dyn FnMut(Told<'_>)) -> Result<(), Cause> {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            while !self.waiting.is_empty() {
                match self.sender.poll_ready(&mut context) {
                    Poll::Ready(Ok(())) => self.send()?,
                    Poll::Ready(Err(error)) if is_goodbye(&error) => break,
                    Poll::Ready(Err(error)) => return Err(self.secured.refused(&error)),
                    Poll::Pending => break,
                }
            }
            let ended = self.connection.as_mut().poll(&mut context);
            let ready = self.sender.poll_ready(&mut context);
            if matches!(&ready, Poll::Ready(Err(error)) if is_goodbye(error)) {
                self.is_leaving = true;
                self.waiting_octets = 0;
                self.waiting.drain(..).for_each(|(id, _)| told(Told::Unprocessed(id)));
            }
            let mut is_settled = true;
            while let Poll::Ready(Some(answer)) = Pin::new(&mut self.answers).poll_next(&mut context) {
                is_settled = false;
                // What was given up is dropped by now, which ends its stream.
                let Ok((id, answer)) = answer else { continue };
                self.under_way.remove(&id);
                match answer {
                    Ok(mut octets) => {
                        if let Some(place) = octets.first_chunk_mut() {
                            *place = id.to_be_bytes();
                        }
                        told(Told::Message(&octets));
                    }
                    Err(refused) if refused.is_unprocessed => told(Told::Unprocessed(id)),
                    Err(Refused { cause, why, .. }) => {
                        self.secured.note(&why);
                        told(Told::Failed(id, cause));
                    }
                }
            }
            match ended {
                Poll::Ready(Err(error)) => {
                    self.secured.note(&error);
                    return Err(Cause::Closed);
                }
                Poll::Ready(Ok(())) => return Err(Cause::Closed),
                Poll::Pending => {}
            }
            let leaving = self.pipe.take();
            if leaving.is_empty() && is_settled {
                return Ok(());
            }
            self.secured.write(&leaving)?;
        }
    }

    /// Sends the first query that waits.
    fn send(&mut self) -> Result<(), Cause> {
        let Some((id, message)) = self.waiting.pop_front() else { return Ok(()) };
        self.waiting_octets -= message.len();
        let request = Request::builder()
            .method(Method::POST)
            .version(Version::HTTP_2)
            .uri(self.uri.clone())
            .header(ACCEPT, MEDIA_TYPE)
            .header(CONTENT_TYPE, MEDIA_TYPE)
            .header(CONTENT_LENGTH, message.len())
            .body(())
            .map_err(|error| self.secured.refused(&error))?;
        let sent = self.sender.send_request(request, false);
        let (answer, mut body) = sent.map_err(|error| self.secured.refused(&error))?;
        body.send_data(message, true).map_err(|error| self.secured.refused(&error))?;
        let (handle, registration) = AbortHandle::new_pair();
        self.under_way.insert(id, handle);
        let answer: Answer = Box::pin(async move { (id, message_of(answer).await) });
        self.answers.push(Abortable::new(answer, registration));
        Ok(())
    }
}

/// Whether the server has said that it takes nothing more: of a query, that it has not been looked at.
fn is_goodbye(error: &h2::Error) -> bool {
    error.is_go_away() && error.is_remote()
}

/// Whether a media type is [`MEDIA_TYPE`]; it has no parameters that would say something (RFC 8484 §6).
fn is_of_messages(media_type: &[u8]) -> bool {
    let essence = media_type.split(|octet| *octet == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(MEDIA_TYPE.as_bytes())
}

/// The message of an answer.
async fn message_of(answer: ResponseFuture) -> Result<Vec<u8>, Refused> {
    let closed = |error: h2::Error| Refused {
        cause: Cause::Closed,
        why: error.to_string(),
        is_unprocessed: is_goodbye(&error),
    };
    let wrong = |why: String| Refused { cause: Cause::Status, why, is_unprocessed: false };
    let (head, mut body) = answer.await.map_err(closed)?.into_parts();
    if head.status != StatusCode::OK {
        return Err(wrong(format!("HTTP status {}", head.status)));
    }
    let media_type = head.headers.get(CONTENT_TYPE).map_or(&[][..], |value| value.as_bytes());
    if !is_of_messages(media_type) {
        let found = String::from_utf8_lossy(media_type);
        return Err(wrong(format!("HTTP status 200 with the media type '{found}', not {MEDIA_TYPE}")));
    }
    let mut octets = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.map_err(closed)?;
        if octets.len() + piece.len() > MESSAGE_MAX {
            return Err(wrong("an answer is longer than a message".into()));
        }
        octets.extend_from_slice(&piece);
        body.flow_control().release_capacity(piece.len()).map_err(closed)?;
    }
    if octets.len() < HEADER {
        return Err(wrong(format!("HTTP status 200 with {} octets, which are no message", octets.len())));
    }
    Ok(octets)
}

impl fmt::Debug for Https {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Https")
            .field("uri", &self.uri)
            .field("answers", &self.answers.len())
            .finish_non_exhaustive()
    }
}

/// The octets between HTTP/2 and TLS. What is written is taken at once; what is read was given before.
#[derive(Clone, Debug, Default)]
struct Pipe(Arc<Mutex<Ends>>);

#[derive(Debug, Default)]
struct Ends {
    given: VecDeque<u8>,
    written: Vec<u8>,
}

impl Pipe {
    fn with<T>(&self, then: impl FnOnce(&mut Ends) -> T) -> T {
        then(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn give(&self, octets: &[u8]) {
        self.with(|ends| ends.given.extend(octets));
    }

    fn take(&self) -> Vec<u8> {
        self.with(|ends| std::mem::take(&mut ends.written))
    }
}

impl AsyncRead for Pipe {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.with(|ends| {
            let (first, _) = ends.given.as_slices();
            let length = first.len().min(to.remaining());
            if length == 0 {
                return Poll::Pending;
            }
            to.put_slice(&first[..length]);
            ends.given.drain(..length);
            Poll::Ready(Ok(()))
        })
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        self.with(|ends| ends.written.extend_from_slice(octets));
        Poll::Ready(Ok(octets.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_media_type_is_of_messages() {
        for (media_type, expected) in [
            ("application/dns-message", true),
            ("Application/DNS-Message ; charset=utf-8", true),
            ("application/dns-message+json", false),
            ("text/html", false),
            ("", false),
        ] {
            assert_eq!(is_of_messages(media_type.as_bytes()), expected, "{media_type}");
        }
    }
}
