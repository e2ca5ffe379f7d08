//! The receiver: answers every query, and keeps when the kernel took each one from the interface.

use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce, ReceiveTimestampns};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendto, setsockopt};
use nix::sys::time::TimeSpec;

/// Room for queries that wait, in octets: a second of 38,000 a second, at about 800 each.
const RECEIVE_BUFFER: usize = 32 << 20;

/// How long the sink goes on looking after a query by itself: to be woken is work for the sender's core, a fifth of what a
/// query costs there.
const AWAKE: Duration = Duration::from_millis(5);

/// The time between two of these looks. In between its core is idle, so that other programs come to it rather than to the
/// sender's.
const NAP: Duration = Duration::from_micros(200);

/// Queries whose times of arrival have room from the beginning, so that the list does not move: six minutes of 38,000 a
/// second. The system gives the memory as it is used.
const ARRIVALS: usize = 1 << 24;

/// How long the sink waits for a query before it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);

/// Receives at `address` while `work` is done, in a thread that does `enter` first; returns with the result of `work`
/// when each query arrived, in nanoseconds of the kernel's clock, ascending.
///
/// # Errors
/// Those of `work` and `enter`, and where there is no socket.
pub fn during<T>(
    address: SocketAddr,
    enter: impl FnOnce() -> Result<()> + Send,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Vec<u64>)> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (ready, is_ready) = mpsc::channel();
        let stop = &stop;
        let sink = scope.spawn(move || {
            // The kernel tells when a query arrived, whenever it is taken; and other programs go where a core is idle, not to
            // the sender's. Where this is refused, the sender tells what others had of its time.
            let _ = net::thread::count_as_idle();
            enter()?;
            receive(address, stop, ready)
        });
        // Where the sink has failed, there is nobody to say that it is ready, and it has an error to tell.
        let done = is_ready.recv().ok().map(|()| work());
        stop.store(true, Ordering::Relaxed);
        let Ok(arrived) = sink.join() else { bail!("the sink panicked") };
        let mut arrived = arrived?;
        let Some(done) = done else { bail!("the sink ended before it began") };
        arrived.sort_unstable();
        Ok((done?, arrived))
    })
}

fn receive(address: SocketAddr, stop: &AtomicBool, ready: mpsc::Sender<()>) -> Result<Vec<u64>> {
    let socket = UdpSocket::bind(address).context("the sink's socket")?;
    setsockopt(&socket, ReceiveTimestampns, &true).context("times of arrival")?;
    // Beyond the system's limit only with rights; without them a burst may be lost, which is told as such.
    if setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER).is_err() {
        setsockopt(&socket, RcvBuf, &RECEIVE_BUFFER).context("room for queries")?;
    }
    socket.set_read_timeout(Some(LOOK)).context("the sink's socket")?;
    ready.send(()).context("nobody waits for the sink")?;
    let mut arrived = Vec::with_capacity(ARRIVALS);
    let mut query = [0_u8; 4096];
    let mut control = nix::cmsg_space!(TimeSpec);
    let mut last = Instant::now();
    loop {
        let flags = if last.elapsed() < AWAKE { MsgFlags::MSG_DONTWAIT } else { MsgFlags::empty() };
        let (length, from, at) = {
            let mut room = [IoSliceMut::new(&mut query)];
            match recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut room, Some(&mut control), flags) {
                Ok(got) => {
                    let at = got.cmsgs().context("the times of arrival")?.find_map(|message| match message {
                        ControlMessageOwned::ScmTimestampns(at) => Some(at),
                        _ => None,
                    });
                    (got.bytes, got.address, at)
                }
                Err(Errno::EAGAIN) if flags.contains(MsgFlags::MSG_DONTWAIT) => {
                    thread::sleep(NAP);
                    continue;
                }
                Err(Errno::EAGAIN) if stop.load(Ordering::Relaxed) => return Ok(arrived),
                Err(Errno::EAGAIN | Errno::EINTR) => continue,
                Err(error) => return Err(error).context("the sink's socket"),
            }
        };
        last = Instant::now();
        let at = at.context("the kernel told no time of arrival")?;
        arrived.push(Duration::from(at).as_nanos() as u64);
        if let (Some(from), true) = (from, length > 2) {
            query[2] |= 0x80;
            // An answer that does not fit is one that the sender counts as lost; arrivals are what is asked for.
            let _ = sendto(socket.as_raw_fd(), &query[..length], &from, MsgFlags::empty());
        }
    }
}
