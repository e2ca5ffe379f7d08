//! With `unsafe` code: datagrams received and sent in batches, and two socket options and a kind of address that no
//! crate offers.
//!
//! All buffers and all headers are made once. A header points to its buffers for good; a round writes only
//! the header fields that the round before has changed. The kernel fills in a client's address and the packet
//! information, and the header of the reply points to the very same octets.

pub(crate) mod client;
pub(crate) mod failures;
mod together;

use crate::sockaddr::{CONTROL_LEN, Control, NAME_LEN, Name};
use crate::udp::UdpListener;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::thread;
use std::time::Instant;
use together::Place;

pub use failures::{RECEIVE_REST_MAX, RECEIVE_TOLD};

/// Datagrams in one batch.
///
/// At 32 the system call's own cost is a thirtieth per datagram; more would only let the first wait for the
/// last.
pub const BATCH_MAX: usize = 32;

/// Longest datagram that is received whole, in octets. No query is longer; what is cut off is marked.
pub const DATAGRAM_MAX: usize = 4096;

/// Longest answer that room can be asked for, in octets: the largest EDNS size in use.
pub const ANSWER_MAX: usize = 4096;

/// Octets of a cache line. Buffers begin at odd multiples of it: at multiples of 4096 the beginnings of all
/// would compete for the same few lines of the first cache.
const CACHE_LINE: usize = 64;

/// Holds the buffers of one worker thread: up to [`BATCH_MAX`] datagrams and their answers.
///
/// About 270 KiB with the longest answers. Nothing is allocated after [`Batch::new`].
pub struct Batch {
    queries: Vec<u8>,
    answers: Vec<u8>,
    names: Vec<Name>,
    controls: Vec<Control>,
    /// Header `i` points to query `i`, name `i` and control `i`.
    receive_headers: Vec<libc::mmsghdr>,
    /// Header `i` points to answer `i`, and to the name and control of the query that it answers.
    send_headers: Vec<libc::mmsghdr>,
    /// One per receive header, which points to it; never changed.
    _query_vectors: Vec<libc::iovec>,
    /// One per send header, which points to it.
    answer_vectors: Vec<libc::iovec>,
    /// Octets from the beginning of one answer's room to the next's.
    answer_stride: usize,
    /// Octets of room for one answer.
    answer_len: usize,
    /// Where datagrams without packet information have arrived.
    bound_to: SocketAddr,
    /// Receive headers that the kernel has written to.
    used: usize,
    /// Datagrams of this round.
    received: usize,
    /// Answers of this round, in the first send headers.
    answered: usize,
    /// Which datagram each of them answers.
    answers_to: [usize; BATCH_MAX],
    /// Where several answers of a round go to one client: all of them, in the order in which they go.
    messages: Messages,
    /// Whether answers to one client go as one message.
    merges: bool,
    failures: failures::Failures,
}

/// Answers of one round as messages, each with one answer or several. No vector ever grows beyond its first room.
struct Messages {
    /// Which answer each datagram is: the order of all.
    order: Vec<Place>,
    /// One per datagram, in that order.
    vectors: Vec<libc::iovec>,
    /// Says where to cut, and whence, for each message of several datagrams.
    cuts: Vec<(Control, usize)>,
    /// One per message: points to its vectors, and to what is in `cuts` for it.
    headers: Vec<libc::mmsghdr>,
}

/// Shows one received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// What was received, at most [`DATAGRAM_MAX`] octets; may be empty.
    pub bytes: &'a [u8],
    /// Who sent it.
    pub client: SocketAddr,
    /// The address and port that were asked, from which the answer leaves.
    pub server: SocketAddr,
    /// Whether the datagram was longer than [`DATAGRAM_MAX`] and its end is lost.
    pub truncated: bool,
}

/// Says what became of the answers of one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Answers that the kernel took.
    pub sent: usize,
    /// Answers that it refused (a client port of 0, no route) or had no room for within
    /// [`SEND_WAIT_MAX`](crate::udp::SEND_WAIT_MAX).
    pub failed: usize,
}

impl Batch {
    /// Allocates everything, with room for answers of up to `answer_len` octets.
    ///
    /// # Panics
    /// When `answer_len` is above [`ANSWER_MAX`].
    pub fn new(answer_len: usize) -> Self {
        assert!(answer_len <= ANSWER_MAX, "answers have at most {ANSWER_MAX} octets");
        let query_stride = stride(DATAGRAM_MAX);
        let answer_stride = stride(answer_len);
        let mut queries = vec![0; BATCH_MAX * query_stride];
        let mut answers = vec![0; BATCH_MAX * answer_stride];
        let mut names = vec![Name::ZERO; BATCH_MAX];
        let mut controls = vec![Control::ZERO; BATCH_MAX];
        let mut query_vectors = vectors(queries.as_mut_ptr(), query_stride, DATAGRAM_MAX);
        let mut answer_vectors = vectors(answers.as_mut_ptr(), answer_stride, 0);
        let mut receive_headers = headers(query_vectors.as_mut_ptr());
        for (i, header) in receive_headers.iter_mut().enumerate() {
            header.msg_hdr.msg_name = names.as_mut_ptr().wrapping_add(i).cast();
            header.msg_hdr.msg_control = controls.as_mut_ptr().wrapping_add(i).cast();
            offer_room(header);
        }
        let send_headers = headers(answer_vectors.as_mut_ptr());
        Self {
            queries,
            answers,
            names,
            controls,
            receive_headers,
            send_headers,
            _query_vectors: query_vectors,
            answer_vectors,
            answer_stride,
            answer_len,
            bound_to: SocketAddr::from(([0, 0, 0, 0], 0)),
            used: 0,
            received: 0,
            answered: 0,
            answers_to: [0; BATCH_MAX],
            messages: Messages {
                order: Vec::with_capacity(BATCH_MAX),
                vectors: Vec::with_capacity(BATCH_MAX),
                cuts: Vec::with_capacity(BATCH_MAX),
                headers: Vec::with_capacity(BATCH_MAX),
            },
            merges: true,
            failures: failures::Failures::default(),
        }
    }

    /// Waits until a datagram is there and receives what is waiting, up to [`BATCH_MAX`], with one system
    /// call.
    ///
    /// Returns how many. What the round before left unanswered or unsent is forgotten. 0 means that the
    /// listener was stopped.
    ///
    /// # Errors
    /// What the system says, once in [`RECEIVE_TOLD`] at most: for the log. The next call tries again. All failures are
    /// counted ([`UdpListener::receive_failures`]), and after each is a rest of up to [`RECEIVE_REST_MAX`]. An
    /// interruption by a signal is none.
    pub fn receive(&mut self, listener: &UdpListener) -> io::Result<usize> {
        self.bound_to = listener.local_address();
        self.received = 0;
        self.answered = 0;
        while !listener.is_stopped() {
            for header in &mut self.receive_headers[..self.used] {
                offer_room(header);
            }
            self.used = 0;
            // SAFETY: there are BATCH_MAX headers. Each points to one iovec, one Name and one Control, all in
            // vectors that live as long as the headers and are never resized; the lengths in the header and
            // the iovec are those of the rooms. No reference into them is alive during the call, as `self` is
            // borrowed exclusively.
            let count = unsafe {
                libc::recvmmsg(
                    listener.as_fd().as_raw_fd(),
                    self.receive_headers.as_mut_ptr(),
                    BATCH_MAX as libc::c_uint,
                    // The type of the flags differs between C libraries.
                    libc::MSG_WAITFORONE as _,
                    ptr::null_mut(),
                )
            };
            let Ok(count) = usize::try_from(count) else {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                listener.count_failure();
                thread::sleep(self.failures.rest());
                if self.failures.is_told(Instant::now()) {
                    return Err(error);
                }
                continue;
            };
            self.failures.end();
            self.used = count;
            // A stopped socket yields messages without a sender when nothing is waiting any more.
            let has_sender = |header: &&libc::mmsghdr| header.msg_hdr.msg_namelen != 0;
            self.received = self.receive_headers[..count].iter().take_while(has_sender).count();
            if self.received > 0 {
                break;
            }
        }
        Ok(self.received)
    }

    /// The octets of the received datagrams, in the order of arrival.
    pub fn queries(&self) -> impl Iterator<Item = &[u8]> {
        let queries = self.queries.chunks(stride(DATAGRAM_MAX));
        let lengths = self.receive_headers[..self.received].iter().map(|header| header.msg_len as usize);
        queries.zip(lengths).map(|(query, length)| &query[..length.min(DATAGRAM_MAX)])
    }

    /// Has each received datagram answered, in the order of arrival.
    ///
    /// `answer` writes into the room that it is given, whose old content means nothing, and returns the
    /// length, or `None` to send nothing. An answer of length 0 is sent as an empty datagram.
    ///
    /// # Panics
    /// When `answer` returns more than its room.
    pub fn answer_each(&mut self, mut answer: impl FnMut(Datagram<'_>, &mut [u8]) -> Option<usize>) {
        self.answered = 0;
        for i in 0..self.received {
            let header = &self.receive_headers[i];
            let name_len = header.msg_hdr.msg_namelen;
            let control_len = header.msg_hdr.msg_controllen;
            #[allow(clippy::unnecessary_cast, reason = "the type differs between C libraries")]
            let control_octets = control_len as usize;
            let Some(client) = self.names[i].decode(name_len as usize) else { continue };
            let datagram = Datagram {
                bytes: &self.queries[i * stride(DATAGRAM_MAX)..]
                    [..(header.msg_len as usize).min(DATAGRAM_MAX)],
                client,
                server: SocketAddr::new(
                    self.controls[i].asked(control_octets).unwrap_or(self.bound_to.ip()),
                    self.bound_to.port(),
                ),
                truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            };
            let out = &mut self.answers[self.answered * self.answer_stride..][..self.answer_len];
            let Some(len) = answer(datagram, out) else { continue };
            assert!(len <= self.answer_len, "the answer is longer than its room");

            self.controls[i].unpin_interface(control_octets);
            self.answer_vectors[self.answered].iov_len = len;
            let reply = &mut self.send_headers[self.answered].msg_hdr;
            reply.msg_name = self.receive_headers[i].msg_hdr.msg_name;
            reply.msg_namelen = name_len;
            reply.msg_control = self.receive_headers[i].msg_hdr.msg_control;
            reply.msg_controllen = control_len;
            self.answers_to[self.answered] = i;
            self.answered += 1;
        }
    }

    /// Sends the answers of this round, with one system call unless one of them is refused.
    ///
    /// Several to one client go as one message that the kernel cuts (`UDP_SEGMENT`), the longest first; once that is
    /// refused where each by itself is not, all go by themselves for good. A refused answer is counted and passed over.
    /// When the send buffer stays full, the rest is given up.
    pub fn send(&mut self, listener: &UdpListener) -> Sent {
        let answered = mem::take(&mut self.answered);
        let mut sent = Sent::default();
        if !listener.cuts() || !self.put_together(answered) {
            send_each(listener, &mut self.send_headers[..answered], &mut sent);
            return sent;
        }
        // Datagrams and messages.
        let (mut done, mut gone) = (0, 0);
        while gone < self.messages.headers.len() {
            match submit(listener, &mut self.messages.headers[gone..]) {
                Ok(count) => {
                    let taken = self.messages.headers[gone..][..count].iter().map(datagrams).sum::<usize>();
                    sent.sent += taken;
                    (done, gone) = (done + taken, gone + count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    sent.failed += answered - done;
                    break;
                }
                Err(error) => {
                    let refused = datagrams(&self.messages.headers[gone]);
                    if refused > 1 && together::cannot_cut(&error) {
                        let before = sent.sent;
                        for place in &self.messages.order[done..][..refused] {
                            let alone = &mut self.send_headers[place.number()..=place.number()];
                            send_each(listener, alone, &mut sent);
                        }
                        // A client that cannot be answered at all says nothing of others.
                        self.merges &= sent.sent == before;
                    } else {
                        sent.failed += refused;
                    }
                    (done, gone) = (done + refused, gone + 1);
                }
            }
        }
        sent
    }

    /// Puts answers to one client behind each other, and says which go as one message; false where none do.
    fn put_together(&mut self, answered: usize) -> bool {
        let Messages { order, vectors, cuts, headers } = &mut self.messages;
        if answered < 2 || !self.merges {
            return false;
        }
        let (name, control) = (
            |number: usize| &self.names[self.answers_to[number]],
            |number: usize| &self.controls[self.answers_to[number]],
        );
        #[allow(clippy::unnecessary_cast, reason = "the types differ between C libraries")]
        let lengths = |header: &libc::mmsghdr| {
            (header.msg_hdr.msg_namelen as usize, header.msg_hdr.msg_controllen as usize)
        };
        let replies = &self.send_headers[..answered];
        order.clear();
        order.extend(replies.iter().zip(&self.answer_vectors).enumerate().map(
            |(number, (header, answer))| {
                Place::new(name(number).mixed(lengths(header).0), answer.iov_len, number)
            },
        ));
        order.sort_unstable();
        if order.windows(2).all(|pair| pair[0].client() != pair[1].client()) {
            return false;
        }
        vectors.clear();
        vectors.extend(order.iter().map(|place| self.answer_vectors[place.number()]));
        cuts.clear();
        headers.clear();
        let mut at = 0;
        while let Some(first) = order.get(at) {
            let first = first.number();
            let (mut message, of_first) = (replies[first], lengths(&replies[first]));
            let is_same = |place: &&Place| {
                let other = place.number();
                lengths(&replies[other]) == of_first
                    && name(other).is_like(name(first), of_first.0)
                    && control(other).is_like(control(first), of_first.1)
            };
            let same = order[at..].iter().take_while(is_same).count();
            let mut count = together::cuttable(vectors[at..][..same].iter().map(|vector| vector.iov_len));
            if count > 1 {
                let length = vectors[at].iov_len as u16;
                match control(first).and_cut_at(of_first.1, length) {
                    Some(cut) => {
                        cuts.push(cut);
                        let (control, length) = cuts.last().expect("it was just put there");
                        message.msg_hdr.msg_control = ptr::from_ref(control).cast_mut().cast();
                        message.msg_hdr.msg_controllen = *length as _;
                    }
                    None => count = 1,
                }
            }
            message.msg_hdr.msg_iov = vectors.as_mut_ptr().wrapping_add(at);
            message.msg_hdr.msg_iovlen = count as _;
            headers.push(message);
            at += count;
        }
        headers.len() < answered
    }
}

/// How many datagrams a message is cut into.
#[allow(clippy::unnecessary_cast, reason = "the type differs between C libraries")]
fn datagrams(header: &libc::mmsghdr) -> usize {
    header.msg_hdr.msg_iovlen as usize
}

/// Sends these messages, each of which is one datagram.
fn send_each(listener: &UdpListener, mut waiting: &mut [libc::mmsghdr], sent: &mut Sent) {
    while !waiting.is_empty() {
        let passed = match submit(listener, waiting) {
            Ok(count) => {
                sent.sent += count;
                count
            }
            Err(error) => {
                let passed = if error.kind() == io::ErrorKind::WouldBlock { waiting.len() } else { 1 };
                sent.failed += passed;
                passed
            }
        };
        waiting = &mut waiting[passed..];
    }
}

/// Has the kernel take messages of a batch, from the first on; returns how many it took.
fn submit(listener: &UdpListener, messages: &mut [libc::mmsghdr]) -> io::Result<usize> {
    loop {
        // SAFETY: the pointer and the count are those of a slice of headers. Each is one that `answer_each` has made point to
        // a Name and a Control of its batch, with the lengths that the kernel gave, and to an iovec whose length is
        // within the answer's room; or a copy of such a one that `put_together` has made point to some of the batch's
        // `messages.vectors`, which are copies of those iovecs, and perhaps to a Control in `messages.cuts`. All of these
        // live in vectors of the batch that are not resized between the two. The kernel only reads them and writes each
        // header's msg_len.
        let count = unsafe {
            libc::sendmmsg(
                listener.as_fd().as_raw_fd(),
                messages.as_mut_ptr(),
                messages.len() as libc::c_uint,
                // The type of the flags differs between C libraries.
                libc::MSG_NOSIGNAL as _,
            )
        };
        match usize::try_from(count) {
            Ok(count) if count > 0 => return Ok(count),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

// SAFETY: the raw pointers in the headers and vectors lead only to heap memory that the same batch owns and
// that does not move with it. They are used only through an exclusive borrow.
unsafe impl Send for Batch {}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { answer_len, received, answered, .. } = self;
        f.debug_struct("Batch")
            .field("answer_len", answer_len)
            .field("received", received)
            .field("answered", answered)
            .finish_non_exhaustive()
    }
}

/// Sets a socket option whose value is one C `int`.
pub(crate) fn set_option(socket: &impl AsFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of `value`, which outlives the call; the kernel only reads
    // it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Binds a socket of `AF_PACKET` to a device.
pub(crate) fn bind_to_device(socket: &impl AsFd, device: u32) -> io::Result<()> {
    let (name, len) = Name::device(device);
    // SAFETY: the pointer is that of `name`, which has `len` octets and more and outlives the call; the kernel only
    // reads it.
    let result =
        unsafe { libc::bind(socket.as_fd().as_raw_fd(), (&raw const name).cast(), len as libc::socklen_t) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Numbers that `SO_MEMINFO` tells on Linux 4.12 and later.
pub(crate) const MEMORY_NUMBERS: usize = 9;

/// Reads what the kernel says of a socket's memory: the numbers of `SK_MEMINFO_*`, in their order.
pub(crate) fn memory_info(socket: &impl AsFd) -> io::Result<[u32; MEMORY_NUMBERS]> {
    let mut memory_info = [0_u32; MEMORY_NUMBERS];
    let mut len = size_of_val(&memory_info) as libc::socklen_t;
    // SAFETY: the pointer and the length are those of `memory_info`, which outlives the call; the kernel
    // writes at most `len` octets, and any octets are valid numbers.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            memory_info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result == 0 { Ok(memory_info) } else { Err(io::Error::last_os_error()) }
}

/// Offers a receive header's full rooms; the kernel leaves in it what it has used of them.
#[inline]
fn offer_room(header: &mut libc::mmsghdr) {
    header.msg_hdr.msg_namelen = NAME_LEN as _;
    header.msg_hdr.msg_controllen = CONTROL_LEN as _;
}

/// Returns the distance between the beginnings of two buffers of `len` octets.
const fn stride(len: usize) -> usize {
    (len.div_ceil(CACHE_LINE) | 1) * CACHE_LINE
}

/// Makes one vector per buffer, from the first one on; the buffers lie `stride` octets apart.
fn vectors(first: *mut u8, stride: usize, len: usize) -> Vec<libc::iovec> {
    (0..BATCH_MAX)
        .map(|i| libc::iovec { iov_base: first.wrapping_add(i * stride).cast(), iov_len: len })
        .collect()
}

/// Makes one header per vector, from the first one on, which points to it.
fn headers(first: *mut libc::iovec) -> Vec<libc::mmsghdr> {
    (0..BATCH_MAX)
        .map(|i| {
            // SAFETY: an mmsghdr consists of integers and raw pointers, for all of which zero is a valid
            // value. It cannot be written as a literal: some C libraries have private padding in it.
            let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
            header.msg_hdr.msg_iov = first.wrapping_add(i);
            header.msg_hdr.msg_iovlen = 1;
            header
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn strides_hold_the_buffer_and_are_odd_in_cache_lines() {
        for len in [0, 1, 63, 64, 65, 512, 1232, 4096] {
            assert!(stride(len) >= len);
            assert_eq!(stride(len) / CACHE_LINE % 2, 1, "{len}");
            assert_eq!(stride(len) % CACHE_LINE, 0, "{len}");
        }
    }

    /// Has `clients` ask, each for answers of these lengths, and says how many messages all answers were, and their lengths
    /// as each client received them.
    fn answered(listener: &str, clients: &[UdpSocket], lengths: &[u8]) -> (usize, Vec<Vec<usize>>) {
        let listener = crate::udp::bind(listener.parse().expect("an address"), None).expect("loopback binds");
        let mut batch = Batch::new(1232);
        for length in lengths {
            for client in clients {
                let local = client.local_addr().expect("it is bound").ip();
                client.send_to(&[*length], (local, listener.local_address().port())).expect("loopback sends");
            }
        }
        let wanted = lengths.len() * clients.len();
        // On loopback all are there once they are sent.
        assert_eq!(batch.receive(&listener).expect("datagrams are there"), wanted);
        batch.answer_each(|datagram, out| {
            let length = usize::from(datagram.bytes[0]) * 4;
            out[..length].fill(datagram.bytes[0]);
            Some(length)
        });
        assert_eq!(batch.send(&listener), Sent { sent: wanted, failed: 0 });
        let received = clients.iter().map(|client| {
            let mut all: Vec<usize> = (0..lengths.len())
                .map(|_| {
                    let mut answer = [0; 2048];
                    let (length, from) = client.recv_from(&mut answer).expect("an answer arrives");
                    assert_eq!(from.ip(), client.local_addr().expect("it is bound").ip());
                    assert!(answer[..length].iter().all(|octet| usize::from(*octet) * 4 == length));
                    length
                })
                .collect();
            all.sort_unstable();
            all
        });
        (batch.messages.headers.len(), received.collect())
    }

    #[test]
    fn answers_to_one_client_go_together_and_from_the_address_asked() {
        let bound = |address: &str| UdpSocket::bind(address).expect("loopback binds");
        for (listener, clients, lengths, messages) in [
            ("127.0.0.1:0", &["127.0.0.1:0"][..], &[30, 20, 30, 10, 20, 30][..], 2),
            ("0.0.0.0:0", &["127.0.0.1:0", "127.0.0.1:0", "127.0.0.2:0"], &[30, 20, 30, 10, 20, 30], 6),
            ("[::]:0", &["[::1]:0", "[::1]:0"], &[9, 8, 7, 6, 5], 6),
            ("[::1]:0", &["[::1]:0"], &[200, 0, 200, 7], 2),
            // Each is another client.
            ("127.0.0.1:0", &["127.0.0.1:0", "127.0.0.1:0"], &[30], 0),
            ("127.0.0.1:0", &["127.0.0.1:0"], &[30], 0),
        ] {
            let clients: Vec<_> = clients.iter().map(|address| bound(address)).collect();
            let mut expected: Vec<usize> = lengths.iter().map(|length| usize::from(*length) * 4).collect();
            expected.sort_unstable();
            let (sent, received) = answered(listener, &clients, lengths);
            assert!(received.iter().all(|lengths| *lengths == expected), "{received:?}");
            assert_eq!(sent, messages, "{lengths:?}");
        }
    }

    #[test]
    fn a_refused_answer_is_counted_and_the_rest_is_sent() {
        let listener =
            crate::udp::bind("127.0.0.1:0".parse().expect("an address"), None).expect("loopback binds");
        let client = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        let mut batch = Batch::new(16);
        while batch.received < 5 {
            for octet in 0..5 {
                client.send_to(&[octet], listener.local_address()).expect("loopback sends");
            }
            batch.receive(&listener).expect("datagrams are there");
        }
        batch.received = 5;
        let mut octets = Vec::new();
        batch.answer_each(|datagram, out| {
            octets.push(datagram.bytes[0]);
            out[0] = datagram.bytes[0];
            Some(1)
        });
        // Linux refuses to send to port 0. First, in the middle and last.
        for refused in [0, 2, 4] {
            batch.names[refused] = Name::from_octets(
                &[&(libc::AF_INET as u16).to_ne_bytes()[..], &[0, 0, 127, 0, 0, 1]].concat(),
            );
        }
        assert_eq!(batch.send(&listener), Sent { sent: 2, failed: 3 });
        for expected in [octets[1], octets[3]] {
            let mut answer = [0; 4];
            assert_eq!(client.recv(&mut answer).expect("an answer arrives"), 1);
            assert_eq!(answer[0], expected);
        }
        assert_eq!(batch.send(&listener), Sent::default(), "answers are sent once");
    }
}
