//! What the kernel says of the memory of a socket.

use std::io;
use std::os::fd::AsFd;

use crate::mmsg;

/// The receiving side of a socket, in octets of the kernel's memory: a datagram takes several times its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// What is charged to the receive queue (`sk_rmem_alloc`).
    pub charged: u32,
    /// What may be charged (`sk_rcvbuf`).
    pub room: u32,
    /// Datagrams or connections that were turned away since the socket was made, 2^32 of them counted as 0.
    pub drops: u32,
}

impl Memory {
    /// Asks for one socket (`SO_MEMINFO`): one system call, which does not disturb who owns the socket.
    ///
    /// # Errors
    /// What the system says: this is no socket.
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        let [charged, room, _, _, _, _, _, _, drops] = mmsg::memory_info(socket)?;
        Ok(Self { charged, room, drops })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn what_waits_is_charged_and_what_does_not_fit_is_dropped() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        socket2::SockRef::from(&server).set_recv_buffer_size(8_192).expect("any size will do");
        let empty = Memory::of(&server).expect("a socket");
        assert_eq!((empty.charged, empty.drops), (0, 0));
        assert!(empty.room >= 8_192);
        let client = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        let at = server.local_addr().expect("it is bound");
        client.send_to(&[0; 30], at).expect("loopback sends");
        let one = Memory::of(&server).expect("a socket");
        assert!(one.charged > 30, "{one:?}");
        for _ in 0..empty.room / one.charged + 5 {
            client.send_to(&[0; 30], at).expect("loopback sends");
        }
        let full = Memory::of(&server).expect("a socket");
        assert!(full.drops > 0 && full.charged + one.charged > full.room, "{full:?}");
        let file = std::fs::File::open("/proc/self/stat").expect("Linux has it");
        assert!(Memory::of(&file).is_err());
    }
}
