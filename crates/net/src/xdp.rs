//! Queries taken from an interface as frames, past the kernel's network stack (AF_XDP).
//!
//! Nearly all that an answer costs over a socket is the kernel's way from the interface to it, and back. A small program in
//! the kernel gives frames with queries for our addresses to us instead, and leaves all others on their way: fragments,
//! packets with options or extensions, VLAN tags, other ports. So [the sockets](crate::udp) stay, for those.
//!
//! ```text
//! attach(interface, addresses) -> Attached      holds the program in its place
//!                              `> Queue         one per receive queue of the interface, each for a thread:
//! loop { queue.receive(); queue.answer_each(|datagram, out| ...); queue.send(); }
//! ```
//!
//! An answer goes back to the station that its query came from, with addresses exchanged: no route is asked for. What a
//! firewall or a capture in the stack would see, it does not see of these.

pub mod frame;
// A call for which no crate has a face.
#[allow(unsafe_code)]
mod interface;
// Calls for programs, which crates make only with a reader of object files.
#[allow(unsafe_code)]
mod program;
// The crate for frames leaves it to us that none outlives the memory that it is in.
#[allow(unsafe_code)]
mod queue;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use interface::Interface;
use program::Program;

pub use program::Mode;
pub use queue::{ANSWER_MAX, Dropped, Queue, RING, ROUND_MAX, Watch};

/// The most addresses whose queries are taken: each is some comparisons for each frame of the interface.
pub const ADDRESSES_MAX: usize = 64;

/// The most receive queues that are taken from one interface.
pub const QUEUES_MAX: u32 = 256;

/// Holds a program in the way of an interface's frames; whoever drops it gives them back to the kernel.
#[derive(Debug)]
pub struct Attached {
    interface: String,
    mode: Mode,
    _link: OwnedFd,
    _program: Program,
}

impl Attached {
    /// The interface's name.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Where the program stands.
    pub fn mode(&self) -> Mode {
        self.mode
    }
}

/// Takes queries to these addresses from an interface, from now on.
///
/// Where the driver cannot run the program itself, it stands behind it ([`Mode::Generic`]). Answers have `answer_len` octets
/// at most.
///
/// # Errors
/// Fit behind "failed to": what the system says, what it was asked for, and how to go on; no interface of that name, one
/// whose packets are shorter than answers, an unspecified address, another program at the interface, rights that are missing.
pub fn attach(
    interface: &str,
    addresses: &[SocketAddr],
    answer_len: usize,
) -> io::Result<(Attached, Vec<Queue>)> {
    attach_to(interface, addresses, answer_len).map_err(|cause| {
        let hint = match cause.kind() {
            io::ErrorKind::PermissionDenied => {
                "; it takes root, or the capabilities CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF".to_owned()
            }
            io::ErrorKind::ResourceBusy => format!(
                "; another program is there, which `ip link show {interface}` names, or was left there, which `ip link set \
                 {interface} xdp off` takes away"
            ),
            _ => String::new(),
        };
        io::Error::new(cause.kind(), format!("take frames of interface {interface}: {cause}{hint}"))
    })
}

fn attach_to(
    interface: &str,
    addresses: &[SocketAddr],
    answer_len: usize,
) -> io::Result<(Attached, Vec<Queue>)> {
    if let Some(address) = addresses.iter().find(|address| address.ip().is_unspecified()) {
        let what = format!("{address} stands for all addresses; name those that are to be answered at");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    if !(1..=ADDRESSES_MAX).contains(&addresses.len()) {
        let what = format!("it can be for 1 to {ADDRESSES_MAX} addresses, and there are {}", addresses.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let Interface { index, mtu, queues } = interface::look_up(interface)?;
    let longest = mtu.saturating_sub(frame::WITHIN_MTU).min(ANSWER_MAX);
    if answer_len > longest {
        let what = format!("answers of {answer_len} octets do not fit its packets of {mtu}; {longest} would");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let told = |what: &'static str| move |e: io::Error| io::Error::new(e.kind(), format!("{what}: {e}"));
    let queues = queues.min(QUEUES_MAX);
    let program = Program::load(addresses, queues).map_err(told("load the program that picks queries"))?;
    let (link, mode) = match program.attach(index, Mode::Native) {
        Ok(link) => (link, Mode::Native),
        Err(e) if e.kind() == io::ErrorKind::ResourceBusy => return Err(e),
        Err(_) => {
            let link = program.attach(index, Mode::Generic).map_err(told("put the program in its place"))?;
            (link, Mode::Generic)
        }
    };
    let open = |number| {
        let queue = Queue::open(index, number, mode, answer_len)?;
        program.give(number, queue.watch().socket())?;
        Ok(queue)
    };
    let queues = (0..queues).map(open).collect::<io::Result<_>>()?;
    Ok((Attached { interface: interface.to_owned(), mode, _link: link, _program: program }, queues))
}
