//! A connection whose client is to take what it is sent.

use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A connection that fails with [`Untaken`] where its client takes nothing of what is written for too long, the system's
/// buffers being full.
#[derive(Debug)]
pub struct Patient<S> {
    stream: S,
    patience: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

/// How a connection fails whose client takes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Untaken {
    /// For how long it took nothing.
    pub patience: Duration,
}

impl fmt::Display for Untaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the answer was not taken for {} s", self.patience.as_secs())
    }
}

impl Error for Untaken {}

impl<S> Patient<S> {
    /// Fails where nothing is taken for so long.
    pub fn new(stream: S, patience: Duration) -> Patient<S> {
        Patient { stream, patience, stalled: None }
    }

    /// The connection itself.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    fn wait<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let patience = self.patience;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        let untaken = || io::Error::new(io::ErrorKind::TimedOut, Untaken { patience });
        stalled.as_mut().poll(context).map(|()| Err(untaken()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, room)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
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
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.wait(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.wait(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    // The clock runs by itself while everybody waits.
    #[tokio::test(start_paused = true)]
    async fn who_takes_little_is_waited_for_and_who_takes_nothing_is_not() {
        let patience = Duration::from_secs(10);
        let (mut client, server) = duplex(1);
        let mut patient = Patient::new(server, patience);
        let slow = tokio::spawn(async move {
            for _ in 0..5 {
                client.read_u8().await.expect("it is sent");
                tokio::time::sleep(patience * 9 / 10).await;
            }
            client
        });
        patient.write_all(&[7; 5]).await.expect("one by one");
        let _client = slow.await.expect("it does not panic");
        let cause = patient.write_all(&[7; 5]).await.expect_err("nobody takes them");
        assert!(cause.get_ref().is_some_and(|cause| cause.is::<Untaken>()), "{cause}");
        assert_eq!(cause.to_string(), "the answer was not taken for 10 s");
    }
}
