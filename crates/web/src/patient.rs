//! The stream of a connection: its answers are to be taken, and it has a place only as long as nobody needs it more.

use std::error::Error;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use hyper::body::{Frame, Incoming, SizeHint};
use net::admission::Place;
use net::patient::{Patient, Untaken};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// How long a client may take none of its answer, with the system's buffers full.
pub const UNTAKEN: Duration = Duration::from_secs(10);

/// No whole head of a request is here.
const WAITS: u8 = 0;
/// A request is read, or its answer made.
const ASKED: u8 = 1;
/// The answer is made, and not all of it written.
const ANSWERED: u8 = 2;

/// The place of a connection, and what its client has it for.
pub(crate) struct Seated {
    stage: AtomicU8,
    /// Whether all of the last request has been read.
    is_read: AtomicBool,
    place: Place,
    /// Behind the place, which is free once this is dropped.
    freed: Freed,
}

/// Tells who waits for a place that there may be one, also at its end.
struct Freed(Arc<Notify>);

impl Drop for Freed {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Seated {
    /// A place of one that has not asked yet, and who is told when it may be free.
    pub(crate) fn new(place: Place, freed: Arc<Notify>) -> Seated {
        place.waits(false);
        Seated { stage: AtomicU8::new(WAITS), is_read: AtomicBool::new(true), place, freed: Freed(freed) }
    }

    /// Says that a head has come, and with it all of the request, or not.
    pub(crate) fn asks(&self, is_read: bool) {
        self.stage.store(ASKED, Ordering::Relaxed);
        self.is_read.store(is_read, Ordering::Relaxed);
        self.place.works();
    }

    /// Whether all of the last request has been read. Where it has not, its connection cannot be used again.
    pub(crate) fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Relaxed)
    }

    /// Says that nothing but the end of what it sends is waited for.
    pub(crate) fn parts(&self) {
        self.stage.store(WAITS, Ordering::Relaxed);
        self.place.waits(true);
        self.freed.0.notify_one();
    }

    /// Whether no whole head of a request is here.
    pub(crate) fn waits(&self) -> bool {
        self.stage.load(Ordering::Relaxed) == WAITS
    }

    /// Waits until another needs the place.
    pub(crate) async fn gives_way(&self) {
        self.place.gives_way().await;
    }

    fn is_flushed(&self) {
        if self.stage.load(Ordering::Relaxed) == ANSWERED {
            self.parts();
        }
    }
}

/// The body of a request, which tells when all of it is read.
pub(crate) struct Question {
    body: Incoming,
    seated: Arc<Seated>,
}

impl Question {
    pub(crate) fn new(body: Incoming, seated: Arc<Seated>) -> Question {
        seated.asks(body.is_end_stream());
        Question { body, seated }
    }
}

impl HttpBody for Question {
    type Data = <Incoming as HttpBody>::Data;
    type Error = <Incoming as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.seated.is_read.store(true, Ordering::Relaxed);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer, which tells when all of it is with the one who writes it.
pub(crate) struct Answer {
    body: Body,
    seated: Arc<Seated>,
}

impl Answer {
    pub(crate) fn new(body: Body, seated: Arc<Seated>) -> Answer {
        Answer { body, seated }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.seated.stage.store(ANSWERED, Ordering::Relaxed);
    }
}

impl HttpBody for Answer {
    type Data = <Body as HttpBody>::Data;
    type Error = <Body as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection that tells when an answer is written, and fails where one is not taken for [`UNTAKEN`].
pub(crate) struct Wire {
    stream: Patient<TcpStream>,
    seated: Arc<Seated>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream, seated: Arc<Seated>) -> Wire {
        // Else an answer behind one that the client has not acknowledged yet, which it does 40 ms later, waits for that
        // (RFC 896). Where it cannot be set, the connection has ended, and whoever reads it will learn so.
        let _ = stream.set_nodelay(true);
        Wire { stream: Patient::new(stream, UNTAKEN), seated }
    }
}

/// Whether a connection ended for an answer that was not taken.
pub(crate) fn is_untaken(how: &hyper::Error) -> bool {
    let cause = how.source().and_then(|source| source.downcast_ref::<io::Error>());
    cause.and_then(io::Error::get_ref).is_some_and(|cause| cause.is::<Untaken>())
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
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

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, octets)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // It comes only once everything that there was has been written.
        self.seated.is_flushed();
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::admission::Admission;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn what_is_accepted_sends_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let place = Arc::new(Admission::new(1, 1)).admit([127, 0, 0, 1].into()).unwrap();
        let wire = Wire::new(accepted, Arc::new(Seated::new(place, Arc::default())));
        assert!(wire.stream.get_ref().nodelay().unwrap());
    }
}
