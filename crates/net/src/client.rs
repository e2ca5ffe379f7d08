//! The sockets of who asks, none of which ever blocks, and one place to wait for all of them.
//!
//! - [`Outgoing`] and [`Incoming`]: datagrams in batches. One [`shared`] socket sends for many source addresses;
//!   a socket of [`ask`] is one client's and connected; one of [`ask_for_many`] is connected too. [`Trouble`] is what an
//!   error of theirs is about.
//! - [`frames`]: a socket for whole Ethernet frames, which go in the same batches.
//! - [`connect`]: a TCP connection that is being made.
//! - [`Readiness`]: which sockets have something, with waits in nanoseconds.

use crate::mmsg;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

pub use crate::mmsg::client::{Incoming, Outgoing, Reply};

/// Room for answers that wait at a shared socket, in octets: some 5,000 small ones. The kernel cuts it to
/// `net.core.rmem_max`.
const SHARED_RECEIVE_BUFFER: usize = 4 << 20;

/// Room for replies that wait at a socket of [`ask_for_many`], in octets: 250 where the interface charges a page for each.
/// The kernel cuts it to `net.core.rmem_max`.
const MANY_RECEIVE_BUFFER: usize = 1 << 20;

/// Room for frames that a device has not taken yet, in octets: some 5,000 small ones. The kernel cuts it to
/// `net.core.wmem_max`.
const FRAMES_SEND_BUFFER: usize = 4 << 20;

/// What the kernel charges for one datagram that was not fragmented, in octets.
const CHARGE_MAX: usize = 4_096;

/// Events that one [`Readiness::ready`] tells: what is beyond is told by the next one.
const EVENTS_MAX: usize = 64;

/// The address by which somebody is known: that of an IPv4 host written as one of IPv6 (`::ffff:192.0.2.1`) is its own; others
/// stay as they are, with the interface of a link-local one.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(v4) => (v4, address.port()).into(),
        IpAddr::V6(_) => address,
    }
}

/// Opens a socket that sends from any source address of a family and tells at which one an answer arrived, and when.
///
/// # Errors
/// What the system says.
pub fn shared(is_ipv4: bool) -> io::Result<UdpSocket> {
    let any: IpAddr = if is_ipv4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let address = SocketAddr::new(any, 0);
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    if is_ipv4 {
        mmsg::set_option(&socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
        // What cannot be cut on its way (RFC 9715 §3.1) needs no number for its pieces, which costs as much as a route.
        mmsg::set_option(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
    } else {
        socket.set_only_v6(true)?;
        mmsg::set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
    }
    socket.set_recv_buffer_size(SHARED_RECEIVE_BUFFER)?;
    socket.bind(&address.into())?;
    tell_arrivals(&socket)?;
    Ok(socket.into())
}

/// Has the kernel say of each datagram when it took it from the interface ([`Reply::arrived`]), so that who is busy may
/// receive it later.
///
/// # Errors
/// What the system says.
pub fn tell_arrivals(socket: &impl AsFd) -> io::Result<()> {
    mmsg::set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// How many datagrams a socket has room for at least, if none is longer than an unfragmented one: the kernel charges a page
/// for each at most.
///
/// # Errors
/// What the system says.
pub fn datagrams_held(socket: &impl AsFd) -> io::Result<usize> {
    Ok(SockRef::from(socket).recv_buffer_size()? / CHARGE_MAX)
}

/// Opens a socket of one client, connected to a server; `source` is `None` where the system chooses.
///
/// # Errors
/// What the system says; `EADDRNOTAVAIL` or `EAGAIN` where the source has no port left.
pub fn ask(server: SocketAddr, source: Option<IpAddr>) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(server), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    if let Some(source) = source {
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    socket.connect(&server.into())?;
    Ok(socket.into())
}

/// Opens a socket over which many queries go to a server, connected: with room for the replies to a burst of them, and where
/// the kernel puts replies of equal length together, if it can (`UDP_GRO`, Linux 5.0). They are received in an
/// [`Incoming::merged`]. Long queries may be cut on their way ([`may_be_cut`]).
///
/// # Errors
/// As [`ask`].
pub fn ask_for_many(server: SocketAddr, source: Option<IpAddr>) -> io::Result<UdpSocket> {
    let socket = ask(server, source)?;
    may_be_cut(&socket, server.is_ipv4())?;
    SockRef::from(&socket).set_recv_buffer_size(MANY_RECEIVE_BUFFER)?;
    // Where it cannot, each comes by itself.
    let _ = mmsg::set_option(&socket, libc::SOL_UDP, libc::UDP_GRO, 1);
    Ok(socket)
}

/// Turns path MTU discovery off, as where queries are answered: what is too long for a part of its way is cut there, where
/// else one long query would be an error that others over this socket are told of.
///
/// # Errors
/// What the system says.
pub fn may_be_cut(socket: &impl AsFd, is_ipv4: bool) -> io::Result<()> {
    if is_ipv4 {
        mmsg::set_option(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_OMIT)
    } else {
        mmsg::set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_OMIT)
    }
}

/// What an error of a connected socket for datagrams is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The server: nobody listens at its port.
    NobodyListens,
    /// The way to the server: there is none, or its host does not answer. Another socket may find another way.
    NoWay,
    /// The socket: its own address is gone, say. Another socket may do.
    Socket,
    /// One datagram: it is too long, a packet filter or a host on the way will not have it, or there is no room for it now.
    Datagram,
}

impl Trouble {
    /// Tells what an error is about.
    pub fn of(error: &io::Error) -> Trouble {
        match error.raw_os_error() {
            Some(libc::ECONNREFUSED) => Trouble::NobodyListens,
            Some(
                libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ENETDOWN | libc::EHOSTDOWN | libc::ENONET,
            ) => Trouble::NoWay,
            Some(
                libc::EMSGSIZE
                | libc::EPERM
                | libc::EACCES
                | libc::ENOBUFS
                | libc::ENOMEM
                | libc::EPROTO
                | libc::ENOPROTOOPT
                | libc::EOPNOTSUPP,
            ) => Trouble::Datagram,
            _ => Trouble::Socket,
        }
    }
}

/// Opens a socket that sends whole Ethernet frames through a device and receives nothing. They go past routing, the packet
/// filter and the device's queueing discipline. In an [`Outgoing`] they have no addresses but their own.
///
/// # Errors
/// What the system says: `EPERM` without the capability `CAP_NET_RAW`, `ENODEV` where there is no such device.
pub fn frames(device: u32) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::PACKET, Type::RAW.nonblocking(), None)?;
    mmsg::set_option(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
    socket.set_send_buffer_size(FRAMES_SEND_BUFFER)?;
    mmsg::bind_to_device(&socket, device)?;
    Ok(socket.into())
}

/// Begins a connection without Nagle's delays; it can be written when [`Ready::writable`] says so.
///
/// # Errors
/// What the system says; `EADDRNOTAVAIL` where the source has no port left.
pub fn connect(server: SocketAddr, source: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    if let Some(source) = source {
        // The port is chosen by the connect, so that one port serves several servers.
        mmsg::set_option(&socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    match socket.connect(&server.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}

/// Whether an error says that no descriptor is left, for the process or for the system.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Whether an error says that the queue of a device is full.
pub fn is_out_of_room(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Whether an error says that a datagram is longer than the way takes in one piece.
pub fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

/// Whether an error says that a source address has no port left.
pub fn is_out_of_ports(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL | libc::EAGAIN | libc::EADDRINUSE))
}

/// Whether an error says that something of this machine has run out, and nothing of a server: descriptors, memory, room in a
/// queue, or ports of any use. That no address or port of ours leads to a server (`EADDRNOTAVAIL`) says nothing of another.
pub fn is_shortage(error: &io::Error) -> bool {
    let is_for_any = matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EAGAIN | libc::EADDRINUSE));
    is_for_any || is_out_of_descriptors(error) || is_out_of_room(error)
}

/// Waits for many sockets at once.
#[derive(Debug)]
pub struct Readiness {
    epoll: Epoll,
    events: Vec<EpollEvent>,
}

/// What a socket has.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// The number under which it was added.
    pub token: u64,
    /// Octets, an end or an error can be read.
    pub readable: bool,
    /// It can be written.
    pub writable: bool,
}

impl Readiness {
    /// Makes one without sockets.
    ///
    /// # Errors
    /// What the system says.
    pub fn new() -> io::Result<Readiness> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Readiness { epoll, events: vec![EpollEvent::empty(); EVENTS_MAX] })
    }

    /// Adds a socket; closing it takes it out again. `writes` asks for writability too.
    ///
    /// # Errors
    /// What the system says.
    pub fn add(&self, socket: &impl AsFd, token: u64, writes: bool) -> io::Result<()> {
        Ok(self.epoll.add(socket, EpollEvent::new(flags(writes), token))?)
    }

    /// Changes whether a socket's writability is asked for.
    ///
    /// # Errors
    /// What the system says.
    pub fn change(&self, socket: &impl AsFd, token: u64, writes: bool) -> io::Result<()> {
        Ok(self.epoll.modify(socket, &mut EpollEvent::new(flags(writes), token))?)
    }

    /// Takes a socket out that stays open.
    ///
    /// # Errors
    /// What the system says.
    pub fn forget(&self, socket: &impl AsFd) -> io::Result<()> {
        Ok(self.epoll.delete(socket)?)
    }

    /// Waits until a socket has something, at most for `time`; a signal ends it too.
    ///
    /// # Errors
    /// What the system says.
    pub fn wait(&self, time: Duration) -> io::Result<()> {
        let mut descriptors = [PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut descriptors, Some(TimeSpec::from_duration(time)), None) {
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Tells which sockets have something now, without waiting; at most some, the next call tells more.
    ///
    /// # Errors
    /// What the system says.
    pub fn ready(&mut self) -> io::Result<impl Iterator<Item = Ready> + '_> {
        self.ready_within(Duration::ZERO)
    }

    /// Tells the same, and waits for it where nothing has anything: for so long, in whole milliseconds rounded up, at most
    /// some 65 s. One system call, where [`wait`](Self::wait) and [`ready`](Self::ready) are two.
    ///
    /// # Errors
    /// What the system says.
    pub fn ready_within(&mut self, time: Duration) -> io::Result<impl Iterator<Item = Ready> + '_> {
        let millis = u16::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u16::MAX);
        let count = match self.epoll.wait(&mut self.events, EpollTimeout::from(millis)) {
            Err(nix::Error::EINTR) => 0,
            counted => counted?,
        };
        Ok(self.events[..count].iter().map(|event| Ready {
            token: event.data(),
            readable: event
                .events()
                .intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP),
            writable: event.events().contains(EpollFlags::EPOLLOUT),
        }))
    }
}

fn flags(writes: bool) -> EpollFlags {
    if writes { EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::BATCH_MAX;
    use std::cmp::Reverse;
    use std::net::Shutdown;
    use std::time::SystemTime;

    /// How long a test waits for loopback to deliver.
    const WAIT: Duration = Duration::from_secs(10);

    #[test]
    fn only_a_mapped_address_is_another_one() {
        for (given, known) in [
            ("[::ffff:192.0.2.1]:53", "192.0.2.1:53"),
            ("192.0.2.1:53", "192.0.2.1:53"),
            ("[fe80::1%2]:53", "[fe80::1%2]:53"),
        ] {
            assert_eq!(canonical(given.parse().expect("an address")).to_string(), known);
        }
    }

    #[test]
    fn one_socket_asks_from_many_addresses_and_hears_where() {
        let begun = SystemTime::UNIX_EPOCH.elapsed().expect("the clock is set");
        let server = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        let to = server.local_addr().expect("it is bound");
        let socket = shared(true).expect("a socket");
        let mut outgoing = Outgoing::new();
        for last in 1..=5_u8 {
            outgoing.push(&[last; 3], Some(to), Some(Ipv4Addr::new(127, 1, 0, last).into()));
        }
        let mut taken = 0;
        assert!(outgoing.send(&socket, |told| taken += u32::from(told.is_ok())));
        assert_eq!((taken, outgoing.len()), (5, 0));
        for _ in 0..5 {
            let mut octets = [0; 8];
            let (length, from) = server.recv_from(&mut octets).expect("it arrives");
            assert_eq!(from.ip(), Ipv4Addr::new(127, 1, 0, octets[0]));
            server.send_to(&octets[..length], from).expect("loopback sends");
        }
        let mut readiness = Readiness::new().expect("an epoll");
        readiness.add(&socket, 7, false).expect("it is added");
        let mut incoming = Incoming::new();
        let mut seen = Vec::new();
        while seen.len() < 5 {
            readiness.wait(WAIT).expect("it waits");
            assert!(readiness.ready().expect("it tells").all(|ready| ready.token == 7 && ready.readable));
            assert!(incoming.receive(&socket).expect("it receives") > 0);
            for reply in incoming.replies() {
                assert_eq!(reply.peer, Some(to));
                assert_eq!(reply.local, Some(Ipv4Addr::new(127, 1, 0, reply.octets[0]).into()));
                assert_eq!(reply.octets.len(), 3);
                assert!(reply.arrived >= Some(begun), "{:?}", reply.arrived);
                seen.push(reply.octets[0]);
            }
        }
        assert_eq!(seen, [1, 2, 3, 4, 5]);
        assert_eq!(incoming.receive(&socket).expect("nothing is there"), 0);
    }

    #[test]
    fn what_is_refused_is_told_and_the_rest_is_sent() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        let to = server.local_addr().expect("it is bound");
        let socket = shared(true).expect("a socket");
        let mut outgoing = Outgoing::new();
        for octet in 0..3 {
            // Linux refuses to send to port 0.
            let to = if octet == 1 { SocketAddr::new(to.ip(), 0) } else { to };
            outgoing.push(&[octet], Some(to), None);
        }
        let mut told = Vec::new();
        assert!(outgoing.send(&socket, |done| told.push(done.is_ok())));
        assert_eq!(told, [true, false, true]);
    }

    /// What a connected pair of sockets carries: as it was sent, and in which order it goes.
    #[test]
    fn what_goes_as_one_message_arrives_as_it_was() {
        for is_merged in [false, true] {
            let server = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
            let client = ask(server.local_addr().expect("it is bound"), None).expect("a socket");
            if is_merged {
                mmsg::set_option(&server, libc::SOL_UDP, libc::UDP_GRO, 1).expect("Linux 5.0 has it");
            }
            let mut outgoing = Outgoing::merging(&client);
            // Many of one length, few of another, and one without octets.
            let datagrams: Vec<Vec<u8>> = (0..BATCH_MAX as u8)
                .map(|n| vec![n; if n == 0 { 0 } else { [40, 40, 40, 41, 1232][usize::from(n) % 5] }])
                .collect();
            for datagram in &datagrams {
                outgoing.push(datagram, None, None);
            }
            let mut taken = 0;
            assert!(outgoing.send(&client, |told| taken += usize::from(told.is_ok())));
            assert_eq!((taken, outgoing.is_empty()), (datagrams.len(), true));
            let mut readiness = Readiness::new().expect("an epoll");
            readiness.add(&server, 1, false).expect("it is added");
            let (mut incoming, mut seen, mut messages) = (Incoming::merged(), Vec::new(), 0);
            while seen.len() < datagrams.len() {
                assert_eq!(readiness.ready_within(WAIT).expect("it waits").count(), 1);
                messages += incoming.receive(&server).expect("it receives");
                seen.extend(incoming.replies().map(|reply| reply.octets.to_vec()));
            }
            let mut expected = datagrams;
            expected.sort_by_key(|datagram| Reverse(datagram.len()));
            assert!(seen == expected, "{:?}", seen.iter().map(Vec::len).collect::<Vec<_>>());
            // Over loopback nothing is cut for who takes it whole: 6 of 1232 octets and one of 41, 5 of 41 and one of 40, 18 of
            // 40, and the empty one.
            assert_eq!(messages, if is_merged { 4 } else { BATCH_MAX });
        }
    }

    #[test]
    fn in_order_only_neighbours_go_as_one_message() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        mmsg::set_option(&server, libc::SOL_UDP, libc::UDP_GRO, 1).expect("Linux 5.0 has it");
        let client = ask(server.local_addr().expect("it is bound"), None).expect("a socket");
        let mut outgoing = Outgoing::merging_in_order().expect("there is a socket");
        let lengths = [[30; 6], [31; 6], [30; 6], [40, 41, 40, 41, 41, 41]].concat();
        for (number, length) in (0_u8..).zip(&lengths) {
            outgoing.push(&vec![number; *length], None, None);
        }
        assert!(outgoing.send(&client, |told| assert!(told.is_ok())));
        let mut readiness = Readiness::new().expect("an epoll");
        readiness.add(&server, 1, false).expect("it is added");
        let (mut incoming, mut seen, mut messages) = (Incoming::merged(), Vec::new(), 0);
        while seen.len() < lengths.len() {
            assert_eq!(readiness.ready_within(WAIT).expect("it waits").count(), 1);
            messages += incoming.receive(&server).expect("it receives");
            seen.extend(incoming.replies().map(|reply| (reply.octets[0], reply.octets.len())));
        }
        assert!(seen.into_iter().eq((0_u8..).zip(lengths)));
        // A shorter one goes with those before it: 6, 7 and 5 datagrams, then 1, 2 and 3.
        assert_eq!(messages, 3 + 3);
    }

    #[test]
    fn long_ones_go_as_several_messages() {
        let server = UdpSocket::bind("[::1]:0").expect("loopback binds");
        let client = ask(server.local_addr().expect("it is bound"), None).expect("a socket");
        SockRef::from(&server).set_recv_buffer_size(MANY_RECEIVE_BUFFER).expect("any size will do");
        let mut outgoing = Outgoing::merging(&client);
        let mut count = 0;
        while !outgoing.is_full() {
            outgoing.push(&[7; 1213], None, None);
            count += 1;
        }
        let mut told = Vec::new();
        assert!(outgoing.send(&client, |done| told.push(done.is_ok())));
        assert_eq!(told, vec![true; count]);
        for _ in 0..count {
            assert_eq!(server.recv(&mut [0; 2048]).expect("it arrives"), 1213);
        }
    }

    #[test]
    fn what_a_datagram_before_has_met_with_refuses_no_other() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        let to = server.local_addr().expect("it is bound");
        let client = ask(to, None).expect("a socket");
        drop(server);
        let mut outgoing = Outgoing::merging(&client);
        let mut told = Vec::new();
        outgoing.push(&[7; 30], None, None);
        assert!(outgoing.send(&client, |done| told.push(done.is_ok())));
        let mut readiness = Readiness::new().expect("an epoll");
        readiness.add(&client, 1, false).expect("it is added");
        assert_eq!(readiness.ready_within(WAIT).expect("it waits").count(), 1, "nobody listened");
        let server = UdpSocket::bind(to).expect("the port is free again");
        for _ in 0..5 {
            outgoing.push(&[7; 30], None, None);
        }
        assert!(outgoing.send(&client, |done| told.push(done.is_ok())));
        assert_eq!(told, [true; 6]);
        for _ in 0..5 {
            assert_eq!(server.recv(&mut [0; 64]).expect("it arrives"), 30);
        }
        let earlier = outgoing.take_earlier().map(|error| Trouble::of(&error));
        assert_eq!((earlier, outgoing.take_earlier().is_some()), (Some(Trouble::NobodyListens), false));
    }

    #[test]
    fn what_goes_as_one_message_is_told_as_refused_together() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        let client = ask(server.local_addr().expect("it is bound"), None).expect("a socket");
        SockRef::from(&client).shutdown(Shutdown::Write).expect("one side can be closed");
        let mut outgoing = Outgoing::merging(&client);
        for length in [30, 30, 30, 40] {
            outgoing.push(&vec![7; length], None, None);
        }
        let mut told = Vec::new();
        assert!(outgoing.send(&client, |done| told.push(done.is_ok())));
        assert_eq!((told, outgoing.is_empty()), (vec![false; 4], true));
    }

    #[test]
    fn errors_are_about_the_server_the_way_the_socket_or_one_datagram() {
        for (code, expected) in [
            (libc::ECONNREFUSED, Trouble::NobodyListens),
            (libc::EHOSTUNREACH, Trouble::NoWay),
            (libc::ENETUNREACH, Trouble::NoWay),
            (libc::EMSGSIZE, Trouble::Datagram),
            (libc::EPERM, Trouble::Datagram),
            (libc::ENOBUFS, Trouble::Datagram),
            (libc::EINVAL, Trouble::Socket),
            (libc::EADDRNOTAVAIL, Trouble::Socket),
        ] {
            assert_eq!(Trouble::of(&io::Error::from_raw_os_error(code)), expected, "{code}");
        }
    }

    #[test]
    fn what_lacks_for_one_server_may_be_there_for_another() {
        for (code, expected) in [
            (libc::EMFILE, true),
            (libc::ENOBUFS, true),
            (libc::ENOMEM, true),
            (libc::EADDRINUSE, true),
            (libc::EADDRNOTAVAIL, false),
            (libc::ECONNREFUSED, false),
        ] {
            assert_eq!(is_shortage(&io::Error::from_raw_os_error(code)), expected, "{code}");
        }
    }

    #[test]
    fn a_connection_is_made_without_waiting() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback binds");
        let to = listener.local_addr().expect("it is bound");
        let stream = connect(to, Some(Ipv4Addr::new(127, 0, 0, 9).into())).expect("it begins");
        let mut readiness = Readiness::new().expect("an epoll");
        readiness.add(&stream, 1, true).expect("it is added");
        readiness.wait(WAIT).expect("it waits");
        assert!(readiness.ready().expect("it tells").any(|ready| ready.writable));
        let (_, from) = listener.accept().expect("it is there");
        assert_eq!(from.ip(), Ipv4Addr::new(127, 0, 0, 9));
    }
}
