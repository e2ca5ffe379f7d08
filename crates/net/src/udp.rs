//! Datagrams in batches.
//!
//! Nearly all that an answer costs is the kernel's, and each system call saved is seen. So a worker thread
//! has a socket of its own ([`bind`] with the same address for each) and a [`Batch`], and goes round: one
//! call receives what is there, each datagram is answered into a buffer beside it, one call sends the
//! answers.
//!
//! ```text
//! loop { batch.receive(&listener);                  // blocks until a datagram is there; 0 after stop()
//!        batch.answer_each(|datagram, out| ...);    // Some(length of the answer) or None
//!        batch.send(&listener); }
//! ```
//!
//! Answers of one length in one round to one client and port go as one message that the kernel cuts, so that the way
//! through it is gone once.
//! Every reply leaves from the address that was asked, also where the socket is bound to all addresses.

use crate::bind_error::{BindError, Transport};
use crate::memory::Memory;
use crate::mmsg;
use socket2::{Domain, Protocol, Socket, Type};
use std::fmt;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub use crate::mmsg::{
    ANSWER_MAX, BATCH_MAX, Batch, DATAGRAM_MAX, Datagram, RECEIVE_REST_MAX, RECEIVE_TOLD, Sent,
};

/// The most workers for one address: more than any machine has cores that a socket could use.
pub const WORKERS_MAX: usize = 256;

/// Room for queries that wait for a worker, in octets: a burst of some five thousand.
pub const RECEIVE_BUFFER: usize = 4 << 20;

/// Longest time that a send may wait for room in the socket's send buffer.
///
/// The buffer is full when the link is slower than we are, or when datagrams wait in it for a neighbour that
/// does not answer (three seconds by default). Fifty milliseconds let a burst through and keep one silent
/// neighbour from stopping a worker.
pub const SEND_WAIT_MAX: Duration = Duration::from_millis(50);

/// Room for answers that the interface has not sent, or the peer's core not taken, in octets: some 5,000 small ones.
///
/// The system's own 208 KiB hold 277 of them, 2 ms of 150,000/s: while the other side is held up for longer, a worker would
/// wait for it instead of reading on.
pub const SEND_BUFFER: usize = 4 << 20;

/// Owns a bound, blocking datagram socket.
///
/// One thread receives; any thread may [`stop`](Self::stop) it.
#[derive(Debug)]
pub struct UdpListener {
    socket: Socket,
    address: SocketAddr,
    stopped: AtomicBool,
    failures: AtomicU64,
    /// Whether the kernel cuts messages of several datagrams (Linux 4.18): an older one would not look at where to cut.
    cuts: bool,
}

/// Binds a socket for one worker thread.
///
/// Several sockets may be bound to one address (`SO_REUSEPORT`): the kernel gives all datagrams of one client
/// port to the same one. A second program of the same user could join them unnoticed, so bind TCP first where
/// both are served: there a second program is refused. An IPv6 socket takes no IPv4 (`IPV6_V6ONLY`). Port 0
/// lets the system choose.
///
/// `receive_buffer` is the room for datagrams that wait to be received, in octets; the kernel counts about
/// 800 of them for a small query. Beyond `net.core.rmem_max` it needs CAP_NET_ADMIN and is otherwise cut
/// without an error: [`UdpListener::receive_buffer`] tells what was had. `None` leaves the system's default.
///
/// # Errors
/// A [`BindError`] in an [`io::Error`] of the cause's kind.
pub fn bind(address: SocketAddr, receive_buffer: Option<usize>) -> io::Result<UdpListener> {
    bind_socket(address, receive_buffer).map_err(|cause| BindError::wrap(Transport::Udp, address, cause))
}

/// Binds a socket that nobody else is to share an address with, and that never blocks.
///
/// # Errors
/// As [`bind`].
pub fn bind_alone(address: SocketAddr) -> io::Result<UdpSocket> {
    let bound = || {
        let kind = Type::DGRAM.nonblocking();
        let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        set_room(&socket, RECEIVE_BUFFER, [libc::SO_RCVBUFFORCE, libc::SO_RCVBUF])?;
        set_room(&socket, SEND_BUFFER, [libc::SO_SNDBUFFORCE, libc::SO_SNDBUF])?;
        socket.bind(&address.into())?;
        Ok(socket.into())
    };
    bound().map_err(|cause| BindError::wrap(Transport::Udp, address, cause))
}

/// Binds a socket for each of so many worker threads, all to one address; at least one.
///
/// # Errors
/// As [`bind`].
pub fn bind_each(
    address: SocketAddr,
    workers: usize,
    receive_buffer: Option<usize>,
) -> io::Result<Vec<Arc<UdpListener>>> {
    (0..workers.max(1)).map(|_| bind(address, receive_buffer).map(Arc::new)).collect()
}

/// Why bursts are lost that were to be kept: the system allows less room for datagrams that wait than was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    /// The least that a socket was given, in octets.
    pub given: usize,
    /// What was asked for, in octets.
    pub wanted: usize,
}

/// Holds what sockets were given for datagrams that wait against what was asked for, in octets; `None` where all have it, or do
/// not say.
pub fn short_of<'a>(sockets: impl IntoIterator<Item = &'a Arc<UdpListener>>, wanted: usize) -> Option<Short> {
    let given = sockets.into_iter().filter_map(|socket| socket.receive_buffer().ok()).min()?;
    (given < wanted).then_some(Short { given, wanted })
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Short { given, wanted } = self;
        // The kernel doubles what it is asked for.
        let setting = wanted / 2;
        write!(
            f,
            "shorter bursts of queries fit the kernel's receive buffers: {given} octets each and not {wanted}, unless \
             `sysctl net.core.rmem_max={setting}`"
        )
    }
}

fn bind_socket(address: SocketAddr, receive_buffer: Option<usize>) -> io::Result<UdpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_port(true)?;
    socket.set_write_timeout(Some(SEND_WAIT_MAX))?;
    // Path MTU discovery is off, as in NSD and Unbound: a forged "fragmentation needed" could otherwise make
    // us believe in a small path MTU, and small fragments are what poisoning caches needs (RFC 9715).
    // "Omit" ignores such messages and still lets the local interface's MTU split what would not fit it.
    if address.is_ipv4() {
        mmsg::set_option(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_OMIT)?;
    } else {
        socket.set_only_v6(true)?;
        mmsg::set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_OMIT)?;
    }
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => {
            mmsg::set_option(&socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
        }
        IpAddr::V6(ip) if ip.is_unspecified() => {
            mmsg::set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
            // Where a route makes a whole prefix ours, no interface has the address that was asked; over IPv4 the kernel
            // takes it as a source, over IPv6 only from such a socket.
            socket.set_freebind_v6(true)?;
        }
        _ => {}
    }
    if let Some(octets) = receive_buffer {
        set_room(&socket, octets, [libc::SO_RCVBUFFORCE, libc::SO_RCVBUF])?;
    }
    set_room(&socket, SEND_BUFFER, [libc::SO_SNDBUFFORCE, libc::SO_SNDBUF])?;
    socket.bind(&address.into())?;
    let address = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::Unsupported)?;
    // Nothing is cut where it is not said with the message.
    let cuts = mmsg::set_option(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
    Ok(UdpListener { socket, address, stopped: AtomicBool::new(false), failures: AtomicU64::new(0), cuts })
}

/// Sets one of a socket's two buffers, beyond what the system allows to all where we may.
fn set_room(socket: &Socket, octets: usize, [forced, allowed]: [libc::c_int; 2]) -> io::Result<()> {
    // The kernel doubles the number, to pay for its own bookkeeping.
    let half = i32::try_from(octets / 2).unwrap_or(i32::MAX / 2);
    mmsg::set_option(socket, libc::SOL_SOCKET, forced, half)
        .or_else(|_| mmsg::set_option(socket, libc::SOL_SOCKET, allowed, half))
}

impl UdpListener {
    /// Returns the bound address, with the port that the system chose if it was to.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Whether what is sent to this address and port is received here.
    pub fn is_at(&self, asked: SocketAddr) -> bool {
        let (ip, asked_ip) = (self.address.ip(), asked.ip());
        let is_one = ip == asked_ip || ip.is_unspecified() && ip.is_ipv4() == asked_ip.is_ipv4();
        is_one && self.address.port() == asked.port()
    }

    /// Whoever waits for a datagram here does so for this time at most, which is not zero.
    ///
    /// # Errors
    /// What the system says.
    pub fn wait_at_most(&self, time: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(time))
    }

    /// Wakes the thread that is blocked in [`Batch::receive`] and makes that, and all later ones, return 0.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        // Linux wakes the receiver and then says ENOTCONN, for the socket has no peer: that is not a failure.
        // Only receiving ends, so that what was answered can still be sent.
        let _ = self.socket.shutdown(Shutdown::Read);
    }

    /// Returns the room for datagrams that wait to be received, in octets as the kernel counts them.
    ///
    /// # Errors
    /// What the system says when the socket cannot be asked.
    pub fn receive_buffer(&self) -> io::Result<usize> {
        self.socket.recv_buffer_size()
    }

    /// Counts the datagrams that the kernel dropped since the bind, mostly because the receive buffer was
    /// full.
    ///
    /// The count wraps at 2^32. One system call, made only when asked: for metrics, not for each batch.
    ///
    /// # Errors
    /// What the system says when the socket cannot be asked.
    pub fn kernel_drops(&self) -> io::Result<u32> {
        Memory::of(&self.socket).map(|memory| memory.drops)
    }

    /// Counts the calls to receive that failed since the bind.
    pub fn receive_failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    pub(crate) fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn cuts(&self) -> bool {
        self.cuts
    }

    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

impl AsFd for UdpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
