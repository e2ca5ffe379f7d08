//! The list of sockets at a port, with what waits in each (`sock_diag(7)`).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use credit::Transport;
use net::netlink::{Asked, Netlink};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{
    AF_INET, AF_INET6, IPPROTO_TCP, IPPROTO_UDP, TCP_CLOSE, TCP_LISTEN,
};
use netlink_packet_sock_diag::inet::nlas::{MemInfo, Nla};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags};
use nix::libc::NETLINK_SOCK_DIAG;

use crate::queue::{Queue, Waiting};

/// How many sockets of one port are listed: more than a machine has cores, addresses and families together. Further
/// ones are passed over.
pub const SOCKETS_MAX: usize = 4096;

/// Asks the kernel for sockets.
#[derive(Debug)]
pub struct Diag {
    kernel: Netlink,
}

/// The family of sockets that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6; they may take IPv4 too.
    V6,
}

/// A socket that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// To what it is bound.
    pub address: IpAddr,
    /// Whether it is one for IPv6 that takes no IPv4.
    pub is_v6_only: bool,
    /// Whether it has a peer, and takes nothing from others.
    pub is_connected: bool,
    /// What waits at it.
    pub queue: Queue,
}

impl Diag {
    /// Opens a socket to the kernel.
    ///
    /// # Errors
    /// What the system says: it was built without, or forbids it.
    pub fn open() -> io::Result<Self> {
        Ok(Self { kernel: Netlink::open(NETLINK_SOCK_DIAG)? })
    }

    /// Adds the sockets of a family that are bound to this port; of TCP those that listen.
    ///
    /// # Errors
    /// What the system says.
    pub fn list(
        &mut self,
        transport: Transport,
        family: Family,
        port: u16,
        found: &mut Vec<Found>,
    ) -> io::Result<()> {
        let any = family.any();
        let socket_id = SocketId {
            source_port: port,
            source_address: any,
            destination_address: any,
            ..SocketId::new_v4()
        };
        self.ask(transport, family, socket_id, Asked::List, found)
    }

    /// Looks at the socket to which the kernel gives a datagram for this address; `None` where there is none. Of several
    /// that share the address it is any.
    ///
    /// A list walks over the whole table of the machine, however few sockets are in it: this does not.
    ///
    /// # Errors
    /// What the system says.
    pub fn one(&mut self, address: SocketAddr) -> io::Result<Option<Found>> {
        let family = if address.is_ipv4() { Family::V4 } else { Family::V6 };
        // From where it would come is the source here, and for the kernel alone, which took it so from the beginning.
        let socket_id = SocketId {
            destination_port: address.port(),
            source_address: family.any(),
            destination_address: address.ip(),
            cookie: [0xff; 8],
            ..SocketId::new_v4()
        };
        let mut found = Vec::new();
        match self.ask(Transport::Udp, family, socket_id, Asked::One, &mut found) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
            asked => asked.map(|()| found.pop()),
        }
    }

    fn ask(
        &mut self,
        transport: Transport,
        family: Family,
        socket_id: SocketId,
        asked: Asked,
        found: &mut Vec<Found>,
    ) -> io::Result<()> {
        let question = SockDiagMessage::InetRequest(request(transport, family, socket_id));
        self.kernel.ask(question, asked, |message| {
            if let SockDiagMessage::InetResponse(socket) = message
                && found.len() < SOCKETS_MAX
            {
                found.extend(of(&socket, transport));
            }
        })
    }
}

impl Family {
    fn any(self) -> IpAddr {
        match self {
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        }
    }
}

fn request(transport: Transport, family: Family, socket_id: SocketId) -> InetRequest {
    let family = match family {
        Family::V4 => AF_INET,
        Family::V6 => AF_INET6,
    };
    let (protocol, states) = match transport {
        // A socket for datagrams without a peer is closed, as the kernel counts.
        Transport::Udp => (IPPROTO_UDP, 1 << TCP_CLOSE),
        Transport::Tcp => (IPPROTO_TCP, 1 << TCP_LISTEN),
    };
    InetRequest {
        family,
        protocol,
        extensions: ExtensionFlags::SKMEMINFO,
        states: StateFlags::from_bits_retain(states),
        socket_id,
    }
}

/// A socket as we need it; `None` where the kernel tells nothing of its memory.
fn of(socket: &InetResponse, transport: Transport) -> Option<Found> {
    let header = &socket.header;
    let memory = socket.nlas.iter().find_map(|attribute| match attribute {
        Nla::MemInfo(memory) => Some(memory),
        _ => None,
    });
    let MemInfo { receive_queue, receive_queue_max, drops, .. } = *memory?;
    let waiting = match transport {
        Transport::Udp => Waiting::Datagrams {
            charged: receive_queue,
            room: receive_queue_max,
            // It is what is charged on kernels before 4.18.
            queued: header.recv_queue.min(receive_queue),
        },
        Transport::Tcp => Waiting::Connections { waiting: header.recv_queue, limit: header.send_queue },
    };
    Some(Found {
        address: header.socket_id.source_address.to_canonical(),
        is_v6_only: socket.nlas.iter().any(|attribute| matches!(attribute, Nla::SkV6Only(true))),
        is_connected: header.socket_id.destination_port != 0,
        queue: Queue { inode: header.inode, waiting, drops },
    })
}

/// Those of all sockets of a port to which the kernel gives what is sent to an address: the ones that are bound to just
/// that, else those bound to any.
pub fn serving(all: &[Found], address: SocketAddr) -> Vec<Found> {
    let all = || all.iter().filter(|found| !found.is_connected);
    let of =
        |wanted: IpAddr| -> Vec<Found> { all().filter(|found| found.address == wanted).copied().collect() };
    let exact = of(address.ip());
    if !exact.is_empty() {
        return exact;
    }
    match address {
        SocketAddr::V6(_) => of(Ipv6Addr::UNSPECIFIED.into()),
        SocketAddr::V4(_) => {
            let any = of(Ipv4Addr::UNSPECIFIED.into());
            if !any.is_empty() {
                return any;
            }
            of(Ipv6Addr::UNSPECIFIED.into()).into_iter().filter(|found| !found.is_v6_only).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    fn listed(transport: Transport, at: SocketAddr) -> Vec<Found> {
        let mut found = Vec::new();
        let family = if at.is_ipv4() { Family::V4 } else { Family::V6 };
        Diag::open()
            .expect("Linux has it")
            .list(transport, family, at.port(), &mut found)
            .expect("it answers");
        serving(&found, at)
    }

    #[test]
    fn datagrams_that_wait_are_seen_from_outside() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        let at = server.local_addr().expect("it is bound");
        let client = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        for _ in 0..3 {
            client.send_to(&[1; 40], at).expect("loopback sends");
        }
        let found = listed(Transport::Udp, at);
        let [
            Found {
                queue: Queue { waiting: Waiting::Datagrams { charged, room, queued }, drops: 0, .. },
                ..
            },
        ] = found[..]
        else {
            panic!("{found:?}")
        };
        assert!(charged == queued && charged > 0 && charged.is_multiple_of(3) && room > charged, "{found:?}");
        // One is received: with two left nothing is given back, but less waits.
        server.recv(&mut [0; 64]).expect("it is there");
        let found = listed(Transport::Udp, at);
        let Waiting::Datagrams { charged: still, queued: less, .. } = found[0].queue.waiting else {
            panic!("{found:?}")
        };
        assert_eq!((still, less), (charged, charged / 3 * 2));
        // A socket with a peer takes nothing from others.
        client.connect(at).expect("loopback connects");
        assert!(listed(Transport::Udp, client.local_addr().expect("it is bound")).is_empty());
    }

    #[test]
    fn one_socket_is_told_as_in_the_list() {
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            let server = UdpSocket::bind(address).expect("loopback binds");
            let mut at = server.local_addr().expect("it is bound");
            if at.ip().is_unspecified() {
                at.set_ip(if at.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
            }
            let client = UdpSocket::bind((at.ip(), 0)).expect("loopback binds");
            for _ in 0..3 {
                client.send_to(&[1; 40], at).expect("loopback sends");
            }
            server.recv(&mut [0; 64]).expect("it is there");
            let mut diag = Diag::open().expect("Linux has it");
            let one = diag.one(at).expect("it answers");
            assert!(one.is_some());
            assert_eq!(one, listed(Transport::Udp, at).first().copied(), "{address}");
            drop(server);
            assert_eq!(diag.one(at).expect("it answers"), None, "{address}");
        }
    }

    #[test]
    fn connections_that_wait_are_seen_from_outside() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let server = TcpListener::bind(address).expect("loopback binds");
            let at = server.local_addr().expect("it is bound");
            let clients = [(); 2].map(|()| TcpStream::connect(at).expect("loopback connects"));
            let found = listed(Transport::Tcp, at);
            let [Found { queue: Queue { waiting: Waiting::Connections { waiting, limit }, .. }, .. }] =
                found[..]
            else {
                panic!("{found:?}")
            };
            assert_eq!(waiting, clients.len() as u32);
            assert!(limit >= 100, "{found:?}");
        }
    }

    #[test]
    fn the_kernel_prefers_the_nearest() {
        let bound = |address: &str, is_v6_only, is_connected| Found {
            address: address.parse().expect("an address"),
            is_v6_only,
            is_connected,
            queue: Queue { inode: 0, waiting: Waiting::Connections { waiting: 0, limit: 0 }, drops: 0 },
        };
        let [one, other] = [bound("192.0.2.1", false, false), bound("192.0.2.2", false, false)];
        let [any, any_v6, only_v6] =
            [bound("0.0.0.0", false, false), bound("::", false, false), bound("::", true, false)];
        let connected = bound("192.0.2.1", false, true);
        let own_v6 = bound("2001:db8::1", true, false);
        for (what, all, address, expected) in [
            ("nothing", vec![], "192.0.2.1:53", vec![]),
            ("the exact ones", vec![one, other, any, one], "192.0.2.1:53", vec![one, one]),
            ("any", vec![other, any, any_v6], "192.0.2.1:53", vec![any]),
            ("any of both families", vec![other, any_v6, only_v6], "192.0.2.1:53", vec![any_v6]),
            ("a client's", vec![connected], "192.0.2.1:53", vec![]),
            ("of IPv6", vec![own_v6, only_v6, any], "[2001:db8::1]:53", vec![own_v6]),
            ("any of IPv6", vec![only_v6, any], "[2001:db8::1]:53", vec![only_v6]),
        ] {
            assert_eq!(serving(&all, address.parse().expect("an address")), expected, "{what}");
        }
    }
}
