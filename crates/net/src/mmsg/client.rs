//! The batched calls of who asks: datagrams to many servers from many addresses, and what comes back.

use super::{BATCH_MAX, DATAGRAM_MAX, headers, offer_room, stride, vectors};
use crate::sockaddr::{Control, Name};
use socket2::SockAddr;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

/// Collects datagrams that are sent with one system call, at most [`BATCH_MAX`].
pub struct Outgoing {
    octets: Vec<u8>,
    datagrams: Vec<Ready>,
}

/// One datagram that waits to be sent.
struct Ready {
    start: usize,
    end: usize,
    to: Option<SockAddr>,
    from: Option<(Control, usize)>,
}

impl Outgoing {
    /// Makes an empty batch.
    #[expect(clippy::new_without_default, reason = "named as what stands beside it")]
    pub fn new() -> Self {
        Self { octets: Vec::new(), datagrams: Vec::with_capacity(BATCH_MAX) }
    }

    /// How many datagrams wait.
    pub fn len(&self) -> usize {
        self.datagrams.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// Whether no further datagram has room.
    pub fn is_full(&self) -> bool {
        self.datagrams.len() >= BATCH_MAX
    }

    /// Adds a datagram; `to` is `None` for a connected socket, and `from` where the system chooses the source.
    ///
    /// # Panics
    /// When the batch is full.
    pub fn push(&mut self, octets: &[u8], to: Option<SocketAddr>, from: Option<IpAddr>) {
        assert!(!self.is_full(), "the batch is full");
        let start = self.octets.len();
        self.octets.extend_from_slice(octets);
        let from = from.map(Control::leaving_from);
        self.datagrams.push(Ready { start, end: self.octets.len(), to: to.map(SockAddr::from), from });
    }

    /// Sends what waits, with one system call unless a datagram is refused, and tells of each, in order, whether
    /// the kernel took it.
    ///
    /// A refused datagram is passed over. Returns false when the socket has no room now: the datagrams of which
    /// nothing was told wait on.
    pub fn send(&mut self, socket: &impl AsFd, mut told: impl FnMut(Result<(), io::Error>)) -> bool {
        let mut vectors: Vec<libc::iovec> = self
            .datagrams
            .iter()
            .map(|ready| libc::iovec {
                iov_base: self.octets[ready.start..].as_ptr().cast_mut().cast(),
                iov_len: ready.end - ready.start,
            })
            .collect();
        vectors.resize(BATCH_MAX, libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 });
        let mut headers = headers(vectors.as_mut_ptr());
        for (header, ready) in headers.iter_mut().zip(&self.datagrams) {
            let header = &mut header.msg_hdr;
            if let Some(to) = &ready.to {
                header.msg_name = to.as_ptr().cast_mut().cast();
                header.msg_namelen = to.len();
            }
            if let Some((control, length)) = &ready.from {
                header.msg_control = ptr::from_ref(control).cast_mut().cast();
                header.msg_controllen = *length as _;
            }
        }
        let mut done = 0;
        while done < self.datagrams.len() {
            let waiting = &mut headers[done..self.datagrams.len()];
            // SAFETY: the pointer and the count are those of a slice of headers. Each points to one iovec, which
            // points into `self.octets`, and to a SockAddr and a Control in `self.datagrams` with their lengths;
            // none of these is moved or changed while the headers live. The kernel only reads them and writes
            // each header's msg_len.
            let count = unsafe {
                libc::sendmmsg(
                    socket.as_fd().as_raw_fd(),
                    waiting.as_mut_ptr(),
                    waiting.len() as libc::c_uint,
                    // The type of the flags differs between C libraries.
                    (libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) as _,
                )
            };
            match usize::try_from(count) {
                Ok(count) if count > 0 => {
                    (0..count).for_each(|_| told(Ok(())));
                    done += count;
                }
                _ => {
                    let error = io::Error::last_os_error();
                    match error.kind() {
                        io::ErrorKind::Interrupted => {}
                        io::ErrorKind::WouldBlock => break,
                        _ => {
                            told(Err(error));
                            done += 1;
                        }
                    }
                }
            }
        }
        self.datagrams.drain(..done);
        if self.datagrams.is_empty() {
            self.octets.clear();
        }
        self.datagrams.is_empty()
    }

    /// Forgets what waits.
    pub fn clear(&mut self) {
        self.datagrams.clear();
        self.octets.clear();
    }
}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outgoing").field("datagrams", &self.datagrams.len()).finish_non_exhaustive()
    }
}

/// Holds what one system call has received: at most [`BATCH_MAX`] datagrams of [`DATAGRAM_MAX`] octets.
pub struct Incoming {
    octets: Vec<u8>,
    names: Vec<Name>,
    controls: Vec<Control>,
    headers: Vec<libc::mmsghdr>,
    /// One per header, which points to it; never changed.
    _vectors: Vec<libc::iovec>,
    received: usize,
}

/// Shows one datagram that came back.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// What was received, at most [`DATAGRAM_MAX`] octets; what is longer is cut off.
    pub octets: &'a [u8],
    /// Who sent it; `None` where the kernel does not say.
    pub peer: Option<SocketAddr>,
    /// The address it was sent to, where the socket was told to say so.
    pub local: Option<IpAddr>,
}

impl Incoming {
    /// Allocates everything: about 130 KiB.
    #[expect(clippy::new_without_default, reason = "it allocates")]
    pub fn new() -> Self {
        let stride = stride(DATAGRAM_MAX);
        let mut octets = vec![0; BATCH_MAX * stride];
        let mut names = vec![Name::ZERO; BATCH_MAX];
        let mut controls = vec![Control::ZERO; BATCH_MAX];
        let mut vectors = vectors(octets.as_mut_ptr(), stride, DATAGRAM_MAX);
        let mut headers = headers(vectors.as_mut_ptr());
        for (i, header) in headers.iter_mut().enumerate() {
            header.msg_hdr.msg_name = names.as_mut_ptr().wrapping_add(i).cast();
            header.msg_hdr.msg_control = controls.as_mut_ptr().wrapping_add(i).cast();
        }
        Self { octets, names, controls, headers, _vectors: vectors, received: 0 }
    }

    /// Receives what is there, without waiting; returns how many, 0 when nothing is.
    ///
    /// # Errors
    /// What the system says: at a connected socket also that a datagram was refused.
    pub fn receive(&mut self, socket: &impl AsFd) -> io::Result<usize> {
        for header in &mut self.headers[..self.received] {
            offer_room(header);
        }
        if self.received == 0 {
            self.headers.iter_mut().for_each(offer_room);
        }
        self.received = 0;
        loop {
            // SAFETY: there are BATCH_MAX headers. Each points to one iovec, one Name and one Control, all in
            // vectors that live as long as the headers and are never resized; the lengths in the header and the
            // iovec are those of the rooms. No reference into them is alive, as `self` is borrowed exclusively.
            let count = unsafe {
                libc::recvmmsg(
                    socket.as_fd().as_raw_fd(),
                    self.headers.as_mut_ptr(),
                    BATCH_MAX as libc::c_uint,
                    // The type of the flags differs between C libraries.
                    libc::MSG_DONTWAIT as _,
                    ptr::null_mut(),
                )
            };
            if let Ok(count) = usize::try_from(count) {
                self.received = count;
                return Ok(count);
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => return Ok(0),
                _ => return Err(error),
            }
        }
    }

    /// The datagrams that the last call has received.
    pub fn replies(&self) -> impl Iterator<Item = Reply<'_>> {
        (0..self.received).map(|i| {
            let header = &self.headers[i];
            let length = (header.msg_len as usize).min(DATAGRAM_MAX);
            #[allow(clippy::unnecessary_cast, reason = "the type differs between C libraries")]
            let control_octets = header.msg_hdr.msg_controllen as usize;
            Reply {
                octets: &self.octets[i * stride(DATAGRAM_MAX)..][..length],
                peer: self.names[i].decode(header.msg_hdr.msg_namelen as usize),
                local: self.controls[i].asked(control_octets),
            }
        })
    }
}

// SAFETY: the raw pointers in the headers and vectors lead only to heap memory that the same value owns and that
// does not move with it. They are used only through an exclusive borrow.
unsafe impl Send for Incoming {}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Incoming").field("received", &self.received).finish_non_exhaustive()
    }
}
