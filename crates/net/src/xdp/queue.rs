//! With `unsafe` code: one queue of an interface, and the frames that come by it.
//!
//! A frame belongs to one of four at a time: to the driver that fills it (the fill ring, then the receive ring), to us once
//! it is received, to the driver that sends it (the send ring, then the completion ring), or to nobody. A query's frame is
//! only read; its answer is written to another one.

use std::fmt;
use std::io;
use std::mem;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use socket2::SockRef;
use xdp::nic::NicIndex;
use xdp::slab::{HeapSlab, Slab};
use xdp::socket::{XdpSocket, XdpSocketBuilder};
use xdp::umem::{FrameSize, UmemCfgBuilder};
use xdp::{CompletionRing, FillRing, RingConfigBuilder, RxRing, TxRing, Umem};

use super::Mode;
use super::frame::{self, Fault, HEADERS_MAX};
use crate::count::Count;
use crate::mmsg::failures::Failures;
use crate::udp::{Datagram, Sent};

/// Frames in each ring: a burst of so many queries waits for its worker.
pub const RING: u32 = 2048;

/// Frames of a queue: a ring full of those that wait to be filled or read, and one of answers on their way.
const FRAMES: u32 = 2 * RING;

/// Octets of a frame, 256 of which the kernel keeps for itself.
const FRAME: usize = 2048 - 256;

/// Queries in one round.
///
/// There is no system call to receive them, and one to send the answers, so that more would save little.
pub const ROUND_MAX: usize = 64;

/// Calls to send what a round has answered: where frames are copied, the kernel takes 32 or fewer at a time.
const KICKS_MAX: usize = 16;

/// How long a queue waits before it looks whether its interface is there still, in milliseconds.
const IDLE_LOOK: u16 = 1_000;

/// Longest answer that fits a frame, in octets.
pub const ANSWER_MAX: usize = FRAME - HEADERS_MAX;

/// One queue of an interface, for the thread that answers what comes by it.
pub struct Queue {
    rings: Rings,
    umem: Umem,
    /// Frames that the driver has to fill, or that wait to be received.
    filling: u32,
    /// Queries of this round.
    received: HeapSlab,
    /// Answers of this round.
    answers: HeapSlab,
    answer_len: usize,
    /// Answers of this round for which there was no frame.
    unsent: usize,
    shared: Arc<Shared>,
    failures: Failures,
}

struct Rings {
    fill: FillRing,
    receive: RxRing,
    send: TxRing,
    completion: CompletionRing,
}

/// What others see of a queue.
#[derive(Clone)]
pub struct Watch(Arc<Shared>);

struct Shared {
    socket: XdpSocket,
    stopped: AtomicBool,
    wake: EventFd,
    counters: Counters,
}

/// What is counted of a queue: frames that are dropped, by cause, and waits that fail.
#[derive(Debug, Default)]
struct Counters {
    malformed: Count,
    checksum: Count,
    source: Count,
    failures: Count,
}

/// Frames of a queue that were dropped since the start, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// They held no whole datagram.
    pub malformed: u64,
    /// A checksum was wrong.
    pub checksum: u64,
    /// They came from where nothing can be sent.
    pub source: u64,
    /// There was no room: the worker is slower than the queries. Where the kernel cannot be asked, 0.
    pub overrun: u64,
}

// SAFETY: what is not `Send` of a queue are its slabs: frames in them are pointers into `umem`, which goes with them, and
// nobody else has these frames then.
unsafe impl Send for Queue {}

impl Queue {
    /// Makes the socket of a queue, with all of its memory, 8 MiB.
    ///
    /// # Errors
    /// What the system says, with what it was asked for.
    pub(super) fn open(interface: u32, queue: u32, mode: Mode, answer_len: usize) -> io::Result<Queue> {
        let frames =
            UmemCfgBuilder { frame_size: FrameSize::TwoK, frame_count: FRAMES, ..UmemCfgBuilder::default() };
        let umem = Umem::map(frames.build().map_err(|e| io::Error::other(e.to_string()))?)?;
        let counts =
            RingConfigBuilder { rx_count: RING, tx_count: RING, fill_count: RING, completion_count: RING };
        let counts = counts.build().map_err(|e| io::Error::other(e.to_string()))?;
        let mut socket = XdpSocketBuilder::new().map_err(cause)?;
        let (rings, mut flags) = socket.build_rings(&umem, counts).map_err(cause)?;
        if mode == Mode::Generic {
            flags.force_copy();
        }
        let missing = || io::Error::other("a ring is missing");
        let rings = Rings {
            fill: rings.fill_ring,
            receive: rings.rx_ring.ok_or_else(missing)?,
            send: rings.tx_ring.ok_or_else(missing)?,
            completion: rings.completion_ring,
        };
        let socket = socket.bind(NicIndex::new(interface), queue, flags).map_err(cause)?;
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let shared = Shared { socket, stopped: AtomicBool::new(false), wake, counters: Counters::default() };
        let mut queue = Queue {
            rings,
            umem,
            filling: 0,
            received: HeapSlab::with_capacity(ROUND_MAX),
            answers: HeapSlab::with_capacity(ROUND_MAX),
            answer_len,
            unsent: 0,
            shared: Arc::new(shared),
            failures: Failures::default(),
        };
        queue.refill();
        Ok(queue)
    }

    /// What others see of it, and stop it with.
    pub fn watch(&self) -> Watch {
        Watch(self.shared.clone())
    }

    /// Waits until a query is there and receives what is waiting, up to [`ROUND_MAX`].
    ///
    /// Returns how many frames. What the round before left unanswered or unsent is forgotten. 0 means that the queue was
    /// stopped.
    ///
    /// # Errors
    /// As [`crate::udp::Batch::receive`]: an interface that is gone fails for good.
    pub fn receive(&mut self) -> io::Result<usize> {
        release(&mut self.umem, &mut self.received);
        release(&mut self.umem, &mut self.answers);
        loop {
            self.rings.completion.dequeue(&mut self.umem, RING as usize);
            self.refill();
            // SAFETY: the frames stay beside the memory that they are in, and are given back to it before it goes.
            let count = unsafe { self.rings.receive.recv(&self.umem, &mut self.received) };
            self.filling -= count as u32;
            if count > 0 {
                return Ok(count);
            }
            if self.shared.stopped.load(Ordering::Acquire) {
                return Ok(0);
            }
            self.wait()?;
        }
    }

    /// Has each query answered, as [`crate::udp::Batch::answer_each`] does.
    ///
    /// Frames that hold none are dropped, and counted.
    ///
    /// # Panics
    /// When `answer` returns more than its room.
    pub fn answer_each(&mut self, mut answer: impl FnMut(Datagram<'_>, &mut [u8]) -> Option<usize>) {
        while let Some(query) = self.received.pop_back() {
            match frame::read(&query) {
                Ok(datagram) => self.answer(&query, &datagram, &mut answer),
                Err(fault) => self.shared.counters.dropped(fault),
            }
            self.umem.free_packet(query);
        }
    }

    fn answer(
        &mut self,
        query: &[u8],
        datagram: &frame::Datagram<'_>,
        answer: &mut impl FnMut(Datagram<'_>, &mut [u8]) -> Option<usize>,
    ) {
        let frame::Datagram { client, server, headers, payload } = *datagram;
        // SAFETY: the frame goes to the slab beside the memory that it is in, or back to that.
        let Some(mut reply) = (unsafe { self.umem.alloc() }) else {
            self.unsent += 1;
            return;
        };
        let room = headers + self.answer_len;
        reply.adjust_tail(room as i32).expect("an answer with its headers fits a frame");
        let asked = Datagram { bytes: payload, client, server, truncated: false };
        let Some(length) = answer(asked, &mut reply[headers..]) else {
            self.umem.free_packet(reply);
            return;
        };
        assert!(length <= self.answer_len, "the answer is longer than its room");
        reply.adjust_tail(-((self.answer_len - length) as i32)).expect("it was longer");
        frame::answer(query, datagram, &mut reply);
        self.answers.push_front(reply);
    }

    /// Sends the answers of this round, with one system call where the driver needs one.
    ///
    /// Those that find no room in the ring are given up.
    pub fn send(&mut self) -> Sent {
        // SAFETY: the driver has these frames until they come by the completion ring; none is used meanwhile.
        let sent = unsafe { self.rings.send.send(&mut self.answers) };
        let failed = mem::take(&mut self.unsent) + release(&mut self.umem, &mut self.answers);
        if sent > 0 {
            // What fails now fails for the wait, too, which tells of it.
            let _ = self.kick();
        }
        Sent { sent, failed }
    }

    /// Has the driver look at what is to be sent. What it does not take now it takes with the next round, or with the next
    /// wait.
    fn kick(&self) -> io::Result<()> {
        let socket = self.shared.socket();
        for _ in 0..KICKS_MAX {
            match SockRef::from(&socket).send_with_flags(&[], libc::MSG_DONTWAIT) {
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {}
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                sent => return sent.map(|_| ()),
            }
        }
        Ok(())
    }

    /// Has as many frames wait for queries as the ring has room for.
    fn refill(&mut self) {
        let missing = RING - self.filling;
        // SAFETY: the driver has these frames until they are received; none is used meanwhile.
        let given = unsafe { self.rings.fill.enqueue(&mut self.umem, missing as usize) };
        self.filling += given as u32;
    }

    /// Waits until there may be something to receive, or it is time to stop.
    fn wait(&mut self) -> io::Result<()> {
        let mut waited = [
            PollFd::new(self.shared.socket(), PollFlags::POLLIN),
            PollFd::new(self.shared.wake.as_fd(), PollFlags::POLLIN),
        ];
        let cause = match poll(&mut waited, PollTimeout::from(IDLE_LOOK)) {
            // No poll tells that an interface is gone.
            Ok(0) => match self.kick() {
                Err(cause) if cause.raw_os_error() == Some(libc::ENXIO) => io::Error::new(
                    cause.kind(),
                    "the interface is gone; what comes by it after a new start is taken again",
                ),
                _ => return Ok(()),
            },
            Ok(_) | Err(Errno::EINTR) => {
                self.failures.end();
                return Ok(());
            }
            Err(errno) => errno.into(),
        };
        self.shared.counters.failures.add(1);
        thread::sleep(self.failures.rest());
        if self.failures.is_told(Instant::now()) { Err(cause) } else { Ok(()) }
    }
}

impl Watch {
    /// Wakes the thread that is blocked in [`Queue::receive`] and makes that, and all later ones, return 0.
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::Release);
        // It fails where it is full of wakes already.
        let _ = self.0.wake.write(1);
    }

    /// Frames that were dropped. One system call.
    pub fn dropped(&self) -> Dropped {
        let Shared { socket, counters, .. } = &*self.0;
        let overrun = socket.statistics().map_or(0, |seen| {
            seen.rx_dropped.saturating_add(seen.rx_ring_full).saturating_add(seen.rx_fill_ring_empty_descs)
        });
        let Counters { malformed, checksum, source, .. } = counters;
        Dropped { malformed: malformed.get(), checksum: checksum.get(), source: source.get(), overrun }
    }

    /// Counts the waits for queries that failed since the start.
    pub fn receive_failures(&self) -> u64 {
        self.0.counters.failures.get()
    }

    /// The socket, for who gives it frames.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.0.socket()
    }
}

impl Shared {
    fn socket(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket is open for as long as `self` is there.
        unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.0.counters).finish()
    }
}

impl Counters {
    fn dropped(&self, fault: Fault) {
        let counter = match fault {
            Fault::Malformed => &self.malformed,
            Fault::Checksum => &self.checksum,
            Fault::Source => &self.source,
        };
        counter.add(1);
    }
}

/// Gives frames back that nobody has; returns how many.
fn release(umem: &mut Umem, frames: &mut HeapSlab) -> usize {
    let count = frames.len();
    while let Some(frame) = frames.pop_back() {
        umem.free_packet(frame);
    }
    count
}

/// What the system said, with what it was asked for.
fn cause(error: xdp::error::SocketError) -> io::Error {
    use xdp::error::SocketError;

    let (what, cause) = match error {
        SocketError::SocketCreation(cause) => ("make a socket for frames", cause),
        SocketError::SetSockOpt { inner, .. } if inner.raw_os_error() == Some(libc::ENOBUFS) => {
            ("give the socket 8 MiB, more than `ulimit -l` (LimitMEMLOCK) allows", inner)
        }
        SocketError::SetSockOpt { inner, .. } => ("give the socket its memory", inner),
        SocketError::GetSockOpt { inner, .. } => ("ask for the rings", inner),
        SocketError::RingMap { inner, .. } => ("map the rings", inner),
        SocketError::Bind(cause) => ("bind the socket to the queue", cause),
    };
    io::Error::new(cause.kind(), format!("{what}: {cause}"))
}
