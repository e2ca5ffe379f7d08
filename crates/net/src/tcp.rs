//! DNS over TCP and TLS: many connections on tokio, and a limit on everything that a client can hold (RFC 7766, RFC 7858).
//!
//! ```text
//! accept -> admission (how many in all, how many of this client) -> one task per connection: (TLS)
//!           read -> whole messages -> handler, one by one, in order -> all their answers with one write
//!                                                `-> a stream of messages, a batch whenever the last is taken
//! ```
//! Queries may be pipelined and are answered in the order in which they came (RFC 7766 §6.2.1.1). The handler
//! is a plain function that runs inline: it computes and never waits. What takes long it has others do ([`Verdict::Later`]).
//! While that is awaited, or answers wait to be taken by the client, nothing more is read from it.
//!
//! One query may be answered by many messages ([`Messages`]). They are asked for piece by piece, [`UNSENT_MAX`]
//! octets at most whenever the client has taken all before, so a long answer takes no more memory than a short
//! one. Each piece has [`Limits::message`] to be taken; a stream that goes on in that time outlives
//! [`Limits::lifetime`], and the queries behind it wait for its end.
//!
//! **Memory.** An idle connection holds no buffer: reading and answering use room that belongs to the thread
//! (139 KiB). What is kept for a connection is [`IDLE_CONNECTION_MAX`] octets at most for its task, and only
//! while they are there: the beginning of a query (twice its octets so far), unread queries (8 KiB), and
//! unsent answers ([`UNSENT_MAX`]). The kernel's own buffers are bounded by [`SOCKET_BUFFER`], and outlive the
//! connection by [`UNTAKEN_MAX`] at most.

use crate::accept::{Acceptor, Event};
use crate::admission::{Admission, Place, Refusal};
use crate::bind_error::{BindError, Transport};
use crate::shutdown::Shutdown;
use crate::tls::identity::{Identity, Speaks};
use crate::tls::stream::Stream;
use connection::Connection;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

pub use connection::{IDLE_CONNECTION_MAX, UNSENT_MAX};
pub use counters::Counters;
pub use limits::Limits;

mod connection;
mod counters;
mod limits;

/// Connections that the kernel completes ahead of our accepting them; `net.core.somaxconn` may cut it.
pub const LISTEN_BACKLOG: i32 = 1024;

/// Octets of each of the kernel's two buffers of a connection; the kernel doubles it for its own bookkeeping.
///
/// Without it they would grow to several megabytes each for a client that sends much and reads nothing. It
/// holds the two longest messages.
pub const SOCKET_BUFFER: usize = 128 * 1024;

/// How long the kernel keeps what a client does not take, also once the connection has ended here: longer than answers
/// may wait to be taken at any of our faces by default (10 s, of HTTP).
///
/// Without it, a client that says that it has no room holds a full buffer for minutes after its place was given away,
/// and nothing here counts it. Where [`Limits::message`] is longer, it ends who takes nothing at all for so long.
pub const UNTAKEN_MAX: Duration = Duration::from_secs(20);

/// Says what becomes of a query.
pub enum Verdict {
    /// Send this many octets of the room as the answer.
    Reply(usize),
    /// Send the messages that this makes, one by one.
    Stream(Box<dyn Messages>),
    /// Send the answer that comes of this, of at most [`MESSAGE_MAX`](crate::framing::MESSAGE_MAX) octets; nothing where its
    /// sender is gone, which must not take long.
    Later(oneshot::Receiver<Vec<u8>>),
    /// Send nothing, and go on with the next query.
    Drop,
    /// Send nothing for this query, and close when the answers before it are sent.
    Close,
}

/// An answer of many messages, made while the client takes them. It is dropped as soon as it has ended or the
/// connection has.
pub trait Messages: Send {
    /// Writes the next message into `out`, which has room for
    /// [`MESSAGE_MAX`](crate::framing::MESSAGE_MAX) octets. It computes and never waits.
    fn next(&mut self, out: &mut [u8]) -> Next;
}

/// What a stream of messages has next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A message of this many octets.
    Message(usize),
    /// Nothing: all were written.
    End,
    /// Nothing, although the answer is not whole: the connection is closed, so that the client knows.
    Broken,
}

/// Binds a listening socket, non-blocking, so that it can be served once privileges are given away.
///
/// An IPv6 socket takes no IPv4 (`IPV6_V6ONLY`). Connections of an earlier run that have not timed out are no
/// obstacle (`SO_REUSEADDR`), a program that listens now is one. Port 0 lets the system choose.
///
/// # Errors
/// A [`BindError`] in an [`io::Error`] of the cause's kind.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    bind_socket(address).map_err(|cause| BindError::wrap(Transport::Tcp, address, cause))
}

fn bind_socket(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    // Accepted sockets inherit these four, which saves four system calls per connection.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_user_timeout(Some(UNTAKEN_MAX))?;
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(LISTEN_BACKLOG)?;
    Ok(socket.into())
}

/// Serves connections of `listener` until `shutdown` begins; with an identity they are encrypted, and a client has
/// [`Limits::message`] to come to terms.
///
/// `make_handler` is called once per connection with the client's address and the address that it asked, and
/// makes the function that answers this connection's queries: the query without its prefix and room for
/// [`MESSAGE_MAX`](crate::framing::MESSAGE_MAX) octets of answer in, a [`Verdict`] out. A handler that panics
/// or claims more than its room ends its own connection only, and is counted.
///
/// When no place is free (see [`Limits::admission`]), a connection gives way to the new one: the one that has waited
/// longest for its client, as [`Admission`] counts it, be it for a query, for the rest of one, or for the client to take
/// more of its answers, which are then cut. Where too many are giving way already, and where the client has all that one
/// client may have, the new connection is accepted and closed at once, so that it learns it without a time-out.
/// Connections that hold a place without using it lose it early in a crowd ([`Limits::idle_when_crowded`]) in any case.
///
/// After the shutdown began, nothing more is answered, the answers that wait are sent, and the function returns
/// when all connections are closed, at most [`Limits::message`] and [`LINGER_MAX`](crate::linger::LINGER_MAX) later.
/// Where a connection ends by the shutdown, by its lifetime or by the handler, the client has the latter to take what it
/// was sent.
///
/// `told` hears why the system gives no descriptor for a connection, at most once in
/// [`TOLD_INTERVAL`](crate::accept::TOLD_INTERVAL).
///
/// `admission` and [`Counters`] may be shared by several listeners: places are counted over all of them.
///
/// # Errors
/// Only before the first connection, when tokio cannot take the listener.
///
/// # Panics
/// Outside of a tokio runtime with I/O and time.
pub async fn serve<M, H>(
    (listener, identity): (TcpListener, Option<Arc<Identity>>),
    admission: Arc<Admission>,
    limits: Limits,
    counters: Arc<Counters>,
    shutdown: Shutdown,
    told: impl Fn(&io::Error),
    make_handler: M,
) -> io::Result<()>
where
    M: Fn(SocketAddr, SocketAddr) -> H,
    H: FnMut(&[u8], &mut [u8]) -> Verdict + Send + 'static,
{
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut acceptor = Acceptor::new(listener, shutdown.clone());
    while let Some(event) = acceptor.next().await {
        match event {
            Event::Connected(stream, client) => {
                let place = match admission.admit(client.ip()) {
                    Ok(place) => place,
                    Err(Refusal::Full) => {
                        Counters::add(&counters.refused_full, 1);
                        tokio::task::yield_now().await;
                        continue;
                    }
                    Err(Refusal::PerClient) => {
                        Counters::add(&counters.refused_per_client, 1);
                        continue;
                    }
                };
                // Fails only when the connection is already gone.
                let Ok(local) = stream.local_addr() else {
                    Counters::add(&counters.accept_aborted, 1);
                    continue;
                };
                Counters::add(&counters.accepted, 1);
                place.waits(false);
                let has_replaced = place.has_replaced();
                let handler = make_handler(client, local);
                let (stream, counters) = ((stream, identity.clone()), Arc::clone(&counters));
                let task = converse(stream, handler, place, counters, limits, shutdown.clone());
                acceptor.spawn(task);
                // Who gives way is to be gone before too many others come.
                if has_replaced {
                    tokio::task::yield_now().await;
                }
            }
            Event::Aborted(_) => Counters::add(&counters.accept_aborted, 1),
            Event::Failed { cause, is_to_tell } => {
                Counters::add(&counters.accept_failed, 1);
                if is_to_tell {
                    told(&cause);
                }
            }
            Event::Panicked => Counters::add(&counters.handler_panics, 1),
        }
    }
    Ok(())
}

async fn converse<H>(
    (stream, identity): (TcpStream, Option<Arc<Identity>>),
    handler: H,
    place: Place,
    counters: Arc<Counters>,
    limits: Limits,
    shutdown: Shutdown,
) where
    H: FnMut(&[u8], &mut [u8]) -> Verdict,
{
    let agreed = match identity {
        None => Ok(Stream::Plain(stream)),
        Some(identity) => identity.agree(stream, Speaks::Dns, &place, limits.message, &shutdown).await,
    };
    let mut stream = match agreed {
        Ok(stream) => stream,
        Err(why) => return counters.count_end(why.into()),
    };
    let end = Connection::new(&mut stream, handler, &place, &counters, &limits).converse(&shutdown).await;
    counters.count_end(end);
    if end.is_untaken() {
        // The kernel is not to go on keeping what the client does not take: it is reset.
        let _ = stream.socket().set_zero_linger();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn accepted_sockets_inherit_what_the_listener_was_given() {
        let listener = bind("127.0.0.1:0".parse().expect("an address")).expect("loopback binds");
        let address = listener.local_addr().expect("a bound socket has an address");
        listener.set_nonblocking(false).expect("the mode can be set");
        let _client = TcpStream::connect(address).expect("the listener listens");
        let (accepted, _) = listener.accept().expect("a client has connected");
        assert!(accepted.nodelay().expect("the option can be read"));
        let accepted = Socket::from(accepted);
        let untaken = accepted.tcp_user_timeout().expect("the option can be read");
        assert_eq!(untaken, Some(UNTAKEN_MAX));
        assert!(
            UNTAKEN_MAX > Limits::default().message,
            "it is for those of whom no limit here thinks any more"
        );
        for size in [accepted.send_buffer_size(), accepted.recv_buffer_size()] {
            let size = size.expect("the option can be read");
            assert!(size <= 2 * SOCKET_BUFFER, "{size} octets");
        }
    }
}
