//! With `unsafe` code, as no crate has the call: what is to be known of an interface.

use std::ffi::CString;
use std::io;
use std::mem;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

use xdp::nic::NicIndex;

use crate::hop;

/// `ETHTOOL_GCHANNELS` (linux/ethtool.h).
const GET_CHANNELS: u32 = 0x3c;

/// What an interface is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) index: u32,
    /// Octets of its longest packet.
    pub(super) mtu: usize,
    /// Receive queues that are in use; one at least.
    pub(super) queues: u32,
}

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    /// The most of each kind.
    _limits: [u32; 4],
    receive: u32,
    _send: u32,
    _other: u32,
    combined: u32,
}

/// Looks at an interface of this process's network namespace.
///
/// # Errors
/// What the system says; that there is none of this name, or that it has no Ethernet frames.
pub(super) fn look_up(name: &str) -> io::Result<Interface> {
    let found = NicIndex::lookup_by_name(&CString::new(name)?)?;
    let missing = || io::Error::new(io::ErrorKind::NotFound, "there is no interface of this name");
    let index = found.ok_or_else(missing)?.into();
    let link = hop::device(index)?;
    if link.mac.is_none() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no Ethernet device"));
    }
    Ok(Interface { index, mtu: link.mtu, queues: queues(name) })
}

/// How many queues receive; one where the driver does not say.
fn queues(name: &str) -> u32 {
    // SAFETY: zeros are a request without a name.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last octet stays zero.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let mut channels = Channels { command: GET_CHANNELS, ..Channels::default() };
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    // Any socket will do.
    let Ok(socket) = UdpSocket::bind("0.0.0.0:0") else { return 1 };
    // SAFETY: the request ends its name with zero and points to what the command fills in, and both outlive the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if result == 0 { (channels.receive + channels.combined).max(1) } else { 1 }
}
