//! The end of a connection whose client may still be sending.
//!
//! Closed while something of the client's is unread, a connection is reset by the kernel, and what waited in its buffer
//! for the client is lost, though it was accepted for sending long ago (RFC 1122 §4.2.2.13). So our side is closed first,
//! and what still comes is read and thrown away until the client has closed its own.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::timeout;

/// How long a client may take to close a connection whose other side has ended, and for what it was sent last.
pub const LINGER_MAX: Duration = Duration::from_secs(1);

/// Octets that are thrown away at a time.
const PIECE: usize = 4096;

/// Throws away what still comes, until the client has closed its side or [`LINGER_MAX`] is over. Our own side has been
/// closed before, as otherwise the client would not know. May be dropped at any time.
pub async fn linger<S: AsyncRead + Unpin>(reads: &mut S) {
    let discarded = poll_fn(|context| {
        let mut piece = [0; PIECE];
        loop {
            let mut room = ReadBuf::new(&mut piece);
            match ready!(Pin::new(&mut *reads).poll_read(context, &mut room)) {
                Ok(()) if !room.filled().is_empty() => {}
                _ => return Poll::Ready(()),
            }
        }
    });
    // Whoever takes longer is cut off.
    let _ = timeout(LINGER_MAX, discarded).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncWriteExt, duplex};
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn it_lasts_until_the_client_closes_or_the_time_is_over() {
        let begun = Instant::now();
        let (mut client, mut reads) = duplex(2 * PIECE);
        client.write_all(&[0; PIECE + 1]).await.expect("the pipe has room");
        drop(client);
        linger(&mut reads).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);

        let (_stays, mut reads) = duplex(2 * PIECE);
        linger(&mut reads).await;
        assert_eq!(begun.elapsed().as_secs(), LINGER_MAX.as_secs());
    }
}
