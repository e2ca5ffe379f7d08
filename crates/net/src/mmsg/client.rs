//! The batched calls of who asks: datagrams to many servers from many addresses, and what comes back.

use super::together::{self, MERGED_MESSAGE_MAX, cannot_cut};
use super::{BATCH_MAX, DATAGRAM_MAX, headers, offer_room, stride, vectors};
use crate::sockaddr::{Control, Name};
use socket2::{Domain, Protocol, Socket, Type};
use std::cmp::Reverse;
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::time::Duration;

/// The most datagrams of a batch that merges: the more there are, the more are of one length. It is also the most that the
/// kernel cuts one message into.
const MERGING_MAX: usize = 2 * BATCH_MAX;

/// Collects datagrams that are sent with one system call, at most [`BATCH_MAX`]; twice as many where it merges.
pub struct Outgoing {
    octets: Vec<u8>,
    datagrams: Vec<Ready>,
    /// Whence and whither each goes; none for a socket that is connected.
    ways: Vec<Way>,
    /// What says where to cut, for each message of several datagrams.
    cuts: Vec<(Control, usize)>,
    /// One per datagram; filled in for each sending, as headers are.
    vectors: Vec<libc::iovec>,
    /// One per message: points to its vectors, and to what is in `ways` or `cuts` for it.
    headers: Vec<libc::mmsghdr>,
    merges: bool,
    /// The longest go first, so that each may stand behind its like or a longer one.
    sorts: bool,
    is_connected: bool,
    /// What refused a message at first only.
    earlier: Option<io::Error>,
}

/// One datagram that waits to be sent.
struct Ready {
    start: usize,
    end: usize,
    /// Of how many datagrams the message consists that begins with it.
    count: usize,
    /// What it is known by to who sends it.
    mark: u32,
}

/// Addresses, each with the octets that are in use.
struct Way {
    to: Option<(Name, usize)>,
    from: Option<(Control, usize)>,
}

impl Ready {
    fn length(&self) -> usize {
        self.end - self.start
    }
}

impl Outgoing {
    /// Makes an empty batch.
    #[expect(clippy::new_without_default, reason = "named as what stands beside it")]
    pub fn new() -> Self {
        Self {
            octets: Vec::new(),
            datagrams: Vec::new(),
            ways: Vec::new(),
            cuts: Vec::new(),
            vectors: Vec::new(),
            headers: Vec::new(),
            merges: false,
            sorts: false,
            is_connected: false,
            earlier: None,
        }
    }

    /// Makes an empty batch for this socket, which is connected. The longest datagrams go first, and several of one length,
    /// with a shorter one behind them, as one message that the kernel cuts (`UDP_SEGMENT`, Linux 4.18): the way through it is
    /// gone once.
    ///
    /// Where the kernel, the device or the path cannot do so, each goes by itself.
    pub fn merging(socket: &impl AsFd) -> Self {
        // An older kernel would ignore where to cut. Nothing is cut where it is not said with the message.
        let is_known = super::set_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
        Self { merges: is_known, sorts: true, is_connected: true, ..Self::new() }
    }

    /// Makes an empty batch that is [`merging`](Self::merging), for any socket that is connected. Datagrams keep their
    /// order: those of one length that follow one another go as one message, with a shorter one that follows them.
    ///
    /// # Errors
    /// What the system says where it gives no socket to ask about.
    pub fn merging_in_order() -> io::Result<Self> {
        let any = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        Ok(Self { sorts: false, ..Self::merging(&any) })
    }

    /// The most datagrams that wait at once.
    pub fn most(&self) -> usize {
        if self.is_connected { MERGING_MAX } else { BATCH_MAX }
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
        self.datagrams.len() >= self.most()
    }

    /// Adds a datagram; `to` is `None` for a connected socket, and `from` where the system chooses the source. Returns
    /// its octets, which may still be changed.
    ///
    /// # Panics
    /// When the batch is full, and where it is [`merging`](Self::merging) and an address is given.
    pub fn push(&mut self, octets: &[u8], to: Option<SocketAddr>, from: Option<IpAddr>) -> &mut [u8] {
        if self.is_connected {
            assert!(to.is_none() && from.is_none(), "the socket is connected");
        } else {
            self.ways.push(Way { to: to.map(Name::encode), from: from.map(Control::leaving_from) });
        }
        self.push_marked(octets, 0)
    }

    /// Adds a datagram for a connected socket, of which [`send_marked`](Self::send_marked) tells by this mark, which may be any.
    /// Returns its octets, which may still be changed.
    ///
    /// # Panics
    /// When the batch is full.
    pub fn push_marked(&mut self, octets: &[u8], mark: u32) -> &mut [u8] {
        assert!(!self.is_full(), "the batch is full");
        let start = self.octets.len();
        self.octets.extend_from_slice(octets);
        self.datagrams.push(Ready { start, end: self.octets.len(), count: 1, mark });
        &mut self.octets[start..]
    }

    /// Sends what waits, with one system call unless a datagram is refused, and tells of each, in the order in which
    /// they go, whether the kernel took it.
    ///
    /// A datagram that is refused twice in a row is passed over, and with it those of its message: once, it can be for
    /// one sent before ([`take_earlier`](Self::take_earlier)). Returns false when the socket has no room now: the
    /// datagrams of which nothing was told wait on.
    pub fn send(&mut self, socket: &impl AsFd, mut told: impl FnMut(Result<(), io::Error>)) -> bool {
        self.send_marked(socket, |_, is_taken| told(is_taken))
    }

    /// As [`send`](Self::send), and tells of each by its mark, too.
    pub fn send_marked(
        &mut self,
        socket: &impl AsFd,
        mut told: impl FnMut(u32, Result<(), io::Error>),
    ) -> bool {
        if self.merges {
            self.put_together();
        }
        self.describe(0);
        // Datagrams and messages.
        let (mut done, mut gone) = (0, 0);
        // What has refused the next message just now.
        let mut first = None;
        while gone < self.headers.len() {
            let waiting = &mut self.headers[gone..];
            // SAFETY: the pointer and the count are those of a slice of headers. `describe` has made each point to some of
            // `self.vectors`, which point into `self.octets`; to a Name and a Control in `self.ways`, or to a Control in
            // `self.cuts`, with their lengths. None of these vectors is changed or grows between the two. The kernel only
            // reads them and writes each header's msg_len.
            let count = unsafe {
                libc::sendmmsg(
                    socket.as_fd().as_raw_fd(),
                    waiting.as_mut_ptr(),
                    waiting.len() as libc::c_uint,
                    // The type of the flags differs between C libraries.
                    (libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) as _,
                )
            };
            #[allow(clippy::unnecessary_cast, reason = "the type differs between C libraries")]
            let datagrams = |header: &libc::mmsghdr| header.msg_hdr.msg_iovlen as usize;
            match usize::try_from(count) {
                Ok(count) if count > 0 => {
                    let taken = waiting[..count].iter().map(datagrams).sum::<usize>();
                    self.datagrams[done..][..taken].iter().for_each(|ready| told(ready.mark, Ok(())));
                    (done, gone) = (done + taken, gone + count);
                    self.earlier = first.take().or(self.earlier.take());
                }
                _ => {
                    let error = io::Error::last_os_error();
                    let refused = datagrams(&waiting[0]);
                    match error.kind() {
                        io::ErrorKind::Interrupted => {}
                        io::ErrorKind::WouldBlock => break,
                        // What the socket has heard of a datagram before, it says once, and sends nothing.
                        _ if first.is_none() => first = Some(error),
                        _ if refused > 1 && cannot_cut(&error) => {
                            self.take_apart();
                            self.describe(done);
                            (gone, first) = (0, None);
                        }
                        kind => {
                            let again =
                                || error.raw_os_error().map_or(kind.into(), io::Error::from_raw_os_error);
                            let refused = &self.datagrams[done..][..refused];
                            refused.iter().for_each(|ready| told(ready.mark, Err(again())));
                            let refused = refused.len();
                            (done, gone, first) = (done + refused, gone + 1, None);
                        }
                    }
                }
            }
        }
        self.datagrams.drain(..done);
        self.ways.drain(..done.min(self.ways.len()));
        self.keep_what_waits();
        self.datagrams.is_empty()
    }

    /// The last error, since this was last asked, that refused a message at first and not when it was sent again: at a
    /// connected socket mostly an ICMP message that a datagram sent before has met with.
    pub fn take_earlier(&mut self) -> Option<io::Error> {
        self.earlier.take()
    }

    /// Lets go of the octets of what is gone, also where something waits on at every sending.
    fn keep_what_waits(&mut self) {
        let before = mem::take(&mut self.octets);
        if self.datagrams.is_empty() {
            self.octets = before;
            return self.octets.clear();
        }
        for ready in &mut self.datagrams {
            let start = self.octets.len();
            self.octets.extend_from_slice(&before[ready.start..ready.end]);
            (ready.start, ready.end) = (start, self.octets.len());
        }
    }

    /// Fills in vectors and headers for all datagrams from `first` on. A message of several datagrams has a vector for
    /// each.
    fn describe(&mut self, first: usize) {
        let waiting = &self.datagrams[first..];
        self.vectors.clear();
        self.vectors.extend(waiting.iter().map(|ready| libc::iovec {
            iov_base: self.octets[ready.start..].as_ptr().cast_mut().cast(),
            iov_len: ready.length(),
        }));
        self.headers.clear();
        let (mut at, mut cuts) = (0, self.cuts.iter());
        while let Some(ready) = waiting.get(at) {
            // SAFETY: an mmsghdr consists of integers and raw pointers, for all of which zero is a valid value. It cannot be
            // written as a literal: some C libraries have private padding in it.
            let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
            let header = &mut message.msg_hdr;
            header.msg_iov = self.vectors.as_mut_ptr().wrapping_add(at);
            header.msg_iovlen = ready.count as _;
            let way = self.ways.get(first + at);
            if let Some((name, length)) = way.and_then(|way| way.to.as_ref()) {
                header.msg_name = ptr::from_ref(name).cast_mut().cast();
                header.msg_namelen = *length as _;
            }
            let with = if ready.count > 1 { cuts.next() } else { way.and_then(|way| way.from.as_ref()) };
            if let Some((control, length)) = with {
                header.msg_control = ptr::from_ref(control).cast_mut().cast();
                header.msg_controllen = *length as _;
            }
            self.headers.push(message);
            at += ready.count;
        }
    }

    /// Says where the messages of several datagrams begin.
    fn put_together(&mut self) {
        if self.sorts {
            self.datagrams.sort_unstable_by_key(|ready| (Reverse(ready.length()), ready.start));
        }
        self.cuts.clear();
        let mut at = 0;
        while at < self.datagrams.len() {
            let count = together::cuttable(self.datagrams[at..].iter().map(Ready::length));
            let ready = &mut self.datagrams[at];
            ready.count = count;
            if count > 1 {
                self.cuts.push(Control::cut_at(ready.length() as u16));
            }
            at += count;
        }
    }

    fn take_apart(&mut self) {
        self.merges = false;
        self.datagrams.iter_mut().for_each(|ready| ready.count = 1);
    }

    /// Forgets what waits.
    pub fn clear(&mut self) {
        self.datagrams.clear();
        self.ways.clear();
        self.octets.clear();
    }
}

// SAFETY: the raw pointers in headers and vectors are made for each sending, and lead only to heap memory that the same value
// owns. They are used only through an exclusive borrow.
unsafe impl Send for Outgoing {}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outgoing").field("datagrams", &self.datagrams.len()).finish_non_exhaustive()
    }
}

/// Holds what one system call has received: at most [`BATCH_MAX`] messages.
pub struct Incoming {
    octets: Vec<u8>,
    /// Octets from the beginning of one message's room to the next's, and of the room.
    stride: usize,
    room: usize,
    /// The most octets of one datagram that are shown.
    datagram_max: usize,
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
    /// What was received, at most [`DATAGRAM_MAX`] octets, and whole with [`Incoming::whole`]; what is longer is cut off.
    pub octets: &'a [u8],
    /// Who sent it; `None` where the kernel does not say.
    pub peer: Option<SocketAddr>,
    /// The address it was sent to, where the socket was told to say so.
    pub local: Option<IpAddr>,
    /// When the kernel took it from the interface, since 1970 by the system's clock, where the socket was told to say so.
    pub arrived: Option<Duration>,
}

impl Incoming {
    /// Allocates everything: about 130 KiB.
    #[expect(clippy::new_without_default, reason = "it allocates")]
    pub fn new() -> Self {
        Self::with_room(DATAGRAM_MAX, DATAGRAM_MAX)
    }

    /// Allocates room for messages that the kernel has put together of several datagrams, at a socket of
    /// [`ask_for_many`](crate::client::ask_for_many): about 2 MiB, of which only what was ever written to is in memory.
    pub fn merged() -> Self {
        Self::with_room(MERGED_MESSAGE_MAX, DATAGRAM_MAX)
    }

    /// Allocates the same room, and shows datagrams of any length whole, those put together too.
    pub fn whole() -> Self {
        Self::with_room(MERGED_MESSAGE_MAX, MERGED_MESSAGE_MAX)
    }

    fn with_room(room: usize, datagram_max: usize) -> Self {
        let stride = stride(room);
        let mut octets = vec![0; BATCH_MAX * stride];
        let mut names = vec![Name::ZERO; BATCH_MAX];
        let mut controls = vec![Control::ZERO; BATCH_MAX];
        let mut vectors = vectors(octets.as_mut_ptr(), stride, room);
        let mut headers = headers(vectors.as_mut_ptr());
        for (i, header) in headers.iter_mut().enumerate() {
            header.msg_hdr.msg_name = names.as_mut_ptr().wrapping_add(i).cast();
            header.msg_hdr.msg_control = controls.as_mut_ptr().wrapping_add(i).cast();
        }
        Self { octets, stride, room, datagram_max, names, controls, headers, _vectors: vectors, received: 0 }
    }

    /// Receives what is there, without waiting; returns how many messages, 0 when nothing is. Fewer than [`BATCH_MAX`] say
    /// that nothing was left.
    ///
    /// # Errors
    /// What the system says: at a connected socket also that a datagram was refused.
    pub fn receive(&mut self, socket: &impl AsFd) -> io::Result<usize> {
        self.received(socket, libc::MSG_DONTWAIT)
    }

    /// Receives what is there, or the next message that comes within the time that the socket waits; 0 when none does.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn receive_waiting(&mut self, socket: &impl AsFd) -> io::Result<usize> {
        self.received(socket, libc::MSG_WAITFORONE)
    }

    fn received(&mut self, socket: &impl AsFd, flags: libc::c_int) -> io::Result<usize> {
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
                    flags as _,
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
        self.headers[..self.received].iter().enumerate().flat_map(move |(i, header)| {
            let length = (header.msg_len as usize).min(self.room);
            let message = &self.octets[i * self.stride..][..length];
            #[allow(clippy::unnecessary_cast, reason = "the type differs between C libraries")]
            let control_octets = header.msg_hdr.msg_controllen as usize;
            let peer = self.names[i].decode(header.msg_hdr.msg_namelen as usize);
            let local = self.controls[i].asked(control_octets);
            let arrived = self.controls[i].arrived(control_octets);
            let each = self.controls[i].merged_at(control_octets).unwrap_or(length).max(1);
            // One without octets is one all the same.
            (0..length.div_ceil(each).max(1)).map(move |number| {
                let octets = &message[number * each..];
                let octets = &octets[..octets.len().min(each).min(self.datagram_max)];
                Reply { octets, peer, local, arrived }
            })
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

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn which_ones_are_refused_is_told_in_whatever_order_they_go() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        let client = crate::client::ask(server.local_addr().expect("it is bound"), None).expect("a socket");
        let mut outgoing = Outgoing::merging(&client);
        // The system has no datagrams as long as two of these.
        for (mark, length) in [(7, 30), (3, 65_520), (4, 40), (9, 65_530), (5, 30)] {
            outgoing.push_marked(&vec![7; length], mark);
        }
        let mut told = Vec::new();
        assert!(outgoing.send_marked(&client, |mark, is_taken| told.push((mark, is_taken.is_ok()))));
        told.sort_unstable();
        assert_eq!(told, [(3, false), (4, true), (5, true), (7, true), (9, false)]);
    }

    #[test]
    fn what_finds_no_room_waits_on_and_nothing_else_is_kept() {
        let (client, server) = UnixDatagram::pair().expect("a pair");
        client.set_nonblocking(true).expect("it is set");
        let mut outgoing = Outgoing::new();
        let (mut pushed, mut taken, mut arrived) = (0_u32, 0, Vec::new());
        for _ in 0..1000 {
            while !outgoing.is_full() {
                outgoing.push(&[&pushed.to_be_bytes()[..], &[7; 1000]].concat(), None, None);
                pushed += 1;
            }
            if !outgoing.send(&client, |told| taken += u32::from(told.is_ok())) {
                let mut octets = [0; 2000];
                assert_eq!(server.recv(&mut octets).expect("there is one"), 1004);
                arrived.push(u32::from_be_bytes([octets[0], octets[1], octets[2], octets[3]]));
            }
        }
        assert!(taken > 500 && pushed - taken == outgoing.len() as u32, "{pushed} {taken}");
        assert!(arrived.len() > 500 && arrived.iter().copied().eq(0..arrived.len() as u32), "in their order");
        assert!(outgoing.octets.capacity() < 1 << 20, "{}", outgoing.octets.capacity());
    }
}
