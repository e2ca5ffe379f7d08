//! The first hop on the way to an address, as who sends Ethernet frames has to know it.
//!
//! The kernel is asked as `ip route get`, `ip link show` and `ip neighbour get` ask it (`rtnetlink(7)`, Linux 5.0): the
//! device and the next hop, the device's own address, the next hop's. What is not known of the next hop the kernel finds
//! out when something is sent there.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use libc::{
    ARPHRD_ETHER, NDA_DST, NDA_LLADDR, NETLINK_ROUTE, NUD_DELAY, NUD_NOARP, NUD_PERMANENT, NUD_PROBE,
    NUD_REACHABLE, NUD_STALE, RTA_DST, RTA_GATEWAY, RTA_OIF, RTM_GETLINK, RTM_GETNEIGH, RTM_GETROUTE,
};
use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable as _, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable,
    NlasIterator,
};

use crate::netlink::{Asked, Netlink};

/// How long a next hop may take to tell its address: the kernel asks three times, a second apart.
pub const ANSWER_WAIT_MAX: Duration = Duration::from_secs(3);

/// From one look at whether it has to the next.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The port that what is sent to makes the kernel look for its host: whoever listens there throws it away (RFC 863).
const DISCARD: u16 = 9;

/// States of a neighbour in which its address is known (`NUD_VALID`).
const KNOWN: u16 = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY;

/// Attributes for which there are no constants with every C library.
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const RTA_VIA: u16 = 18;

/// Octets in front of the attributes.
const ROUTE_LEN: usize = 12;
const LINK_LEN: usize = 16;
const NEIGHBOUR_LEN: usize = 12;

/// An address of Ethernet.
pub type Mac = [u8; 6];

/// Where a frame for an address goes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The number of the device that it leaves through.
    pub device: u32,
    /// The device's address.
    pub from: Mac,
    /// The address of the host or router that takes it.
    pub to: Mac,
    /// The longest IP packet that the device takes, in octets.
    pub mtu: usize,
}

/// Why there is no first hop.
#[derive(Debug)]
pub enum Error {
    /// No route leads to the address.
    NoRoute(io::Error),
    /// The route leads through a device of another kind, such as loopback.
    NotEthernet(String),
    /// The next hop does not tell its address.
    Silent(IpAddr, String),
    /// What the system says when it is asked.
    System(io::Error),
}

/// Finds the first hop on the way to an address; `wait` is how long its address is waited for where it is not known yet.
///
/// Routes that go by the source of a packet are not looked at.
///
/// # Errors
/// [`Error`].
pub fn towards(address: IpAddr, wait: Duration) -> Result<Hop, Error> {
    let mut kernel = Netlink::open(NETLINK_ROUTE).map_err(Error::System)?;
    let (device, next) = route(&mut kernel, address).map_err(Error::NoRoute)?;
    let Link { name, mac, mtu } = link(&mut kernel, device).map_err(Error::System)?;
    let Some(from) = mac else { return Err(Error::NotEthernet(name)) };
    let mut known = neighbour(&mut kernel, device, next).map_err(Error::System)?;
    if known.is_none() {
        seek(device, next).map_err(Error::System)?;
        let begun = Instant::now();
        while known.is_none() && begun.elapsed() < wait {
            thread::sleep(LOOK_EVERY);
            known = neighbour(&mut kernel, device, next).map_err(Error::System)?;
        }
    }
    let to = known.ok_or(Error::Silent(next, name))?;
    Ok(Hop { device, from, to, mtu })
}

/// The device's number, and the next hop.
fn route(kernel: &mut Netlink, address: IpAddr) -> io::Result<(u32, IpAddr)> {
    let octets = octets(address);
    let mut header = [0; ROUTE_LEN];
    header[..2].copy_from_slice(&[family(address), 8 * octets.len() as u8]);
    let answer = one(kernel, Message { kind: RTM_GETROUTE, header, attributes: vec![(RTA_DST, octets)] })?;
    let device = answer.number(RTA_OIF).ok_or(io::ErrorKind::InvalidData)?;
    // An IPv4 address may be reached by a router with an IPv6 address: then its family stands before it.
    let gateway = answer.attribute(RTA_GATEWAY).or_else(|| answer.attribute(RTA_VIA)?.get(2..));
    Ok((device, gateway.and_then(ip).unwrap_or(address)))
}

/// A device.
pub(crate) struct Link {
    name: String,
    /// Its address; `None` where it is not of Ethernet.
    pub(crate) mac: Option<Mac>,
    /// Octets of its longest packet.
    pub(crate) mtu: usize,
}

/// Looks at the device of this number.
///
/// # Errors
/// What the system says.
pub(crate) fn device(number: u32) -> io::Result<Link> {
    link(&mut Netlink::open(NETLINK_ROUTE)?, number)
}

fn link(kernel: &mut Netlink, device: u32) -> io::Result<Link> {
    let mut header = [0; LINK_LEN];
    header[4..8].copy_from_slice(&device.to_ne_bytes());
    let answer = one(kernel, Message { kind: RTM_GETLINK, header, attributes: Vec::new() })?;
    let name = answer.attribute(IFLA_IFNAME).unwrap_or_default();
    let is_ethernet = answer.header[2..4] == ARPHRD_ETHER.to_ne_bytes();
    Ok(Link {
        name: String::from_utf8_lossy(name.strip_suffix(b"\0").unwrap_or(name)).into_owned(),
        mac: answer.attribute(IFLA_ADDRESS).filter(|_| is_ethernet).and_then(|mac| mac.try_into().ok()),
        mtu: answer.number(IFLA_MTU).unwrap_or_default() as usize,
    })
}

/// The address of a neighbour, if it is known.
fn neighbour(kernel: &mut Netlink, device: u32, next: IpAddr) -> io::Result<Option<Mac>> {
    let mut header = [0; NEIGHBOUR_LEN];
    header[0] = family(next);
    header[4..8].copy_from_slice(&device.to_ne_bytes());
    let attributes = vec![(NDA_DST, octets(next))];
    let answer = match one(kernel, Message { kind: RTM_GETNEIGH, header, attributes }) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        answer => answer?,
    };
    let state = u16::from_ne_bytes([answer.header[8], answer.header[9]]);
    let mac = answer.attribute(NDA_LLADDR).filter(|_| state & KNOWN != 0);
    Ok(mac.and_then(|mac| mac.try_into().ok()))
}

/// Has the kernel look for a neighbour.
fn seek(device: u32, next: IpAddr) -> io::Result<()> {
    let (any, to): (IpAddr, SocketAddr) = match next {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), (next, DISCARD).into()),
        IpAddr::V6(next) => {
            let scope = if next.is_unicast_link_local() { device } else { 0 };
            (Ipv6Addr::UNSPECIFIED.into(), SocketAddrV6::new(next, DISCARD, 0, scope).into())
        }
    };
    UdpSocket::bind((any, 0))?.send_to(&[], to).map(drop)
}

/// A message of `rtnetlink(7)`: a header of so many octets, and attributes.
struct Message<const N: usize> {
    kind: u16,
    header: [u8; N],
    attributes: Vec<(u16, Vec<u8>)>,
}

/// Asks for one thing.
fn one<const N: usize>(kernel: &mut Netlink, question: Message<N>) -> io::Result<Message<N>> {
    let mut answer = None;
    kernel.ask(question, Asked::One, |message| answer = Some(message))?;
    answer.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

impl<const N: usize> Message<N> {
    fn attribute(&self, kind: u16) -> Option<&[u8]> {
        self.attributes.iter().find(|(found, _)| *found == kind).map(|(_, value)| value.as_slice())
    }

    fn number(&self, kind: u16) -> Option<u32> {
        Some(u32::from_ne_bytes(self.attribute(kind)?.try_into().ok()?))
    }

    fn written(&self) -> Vec<DefaultNla> {
        self.attributes.iter().map(|(kind, value)| DefaultNla::new(*kind, value.clone())).collect()
    }
}

impl<const N: usize> NetlinkSerializable for Message<N> {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        N + self.written().as_slice().buffer_len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer[..N].copy_from_slice(&self.header);
        self.written().as_slice().emit(&mut buffer[N..]);
    }
}

impl<const N: usize> NetlinkDeserializable for Message<N> {
    type Error = DecodeError;

    fn deserialize(told: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        let (header, rest) =
            payload.split_first_chunk().ok_or_else(|| DecodeError::from("there is no header"))?;
        let attribute = |attribute: Result<netlink_packet_core::NlaBuffer<&[u8]>, DecodeError>| {
            attribute.map(|attribute| (attribute.kind(), attribute.value().to_vec()))
        };
        let attributes = NlasIterator::new(rest).map(attribute).collect::<Result<_, _>>()?;
        Ok(Self { kind: told.message_type, header: *header, attributes })
    }
}

fn family(address: IpAddr) -> u8 {
    (if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn ip(octets: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(octets).ok().map(IpAddr::from);
    v4().or_else(|| <[u8; 16]>::try_from(octets).ok().map(IpAddr::from))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoRoute(cause) => write!(f, "no route leads there ({cause})"),
            Error::NotEthernet(name) => write!(f, "the way there is {name}, which is no Ethernet device"),
            Error::Silent(next, name) => {
                write!(f, "the next hop, {next} on {name}, does not tell its address")
            }
            Error::System(cause) => write!(f, "the system does not tell the way ({cause})"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Outgoing, frames};
    use crate::mmsg;
    use nix::sched::{CloneFlags, unshare};
    use socket2::{Domain, Protocol, Socket, Type};
    use std::process::Command;

    /// Two joined devices, and ways through the first of them.
    const NETWORK: &str = "link set lo up
link add near address 02:00:00:00:00:0a mtu 1400 type veth peer name far
link set near up
link set far up
address add 10.9.0.1/24 dev near
neighbour add 10.9.0.2 lladdr 02:00:00:00:00:22 dev near nud permanent
neighbour add 10.9.0.3 lladdr 02:00:00:00:00:33 dev near nud noarp
neighbour add fe80::5 lladdr 02:00:00:00:00:55 dev near nud permanent
route add 10.8.0.0/16 via 10.9.0.3
route add 10.7.0.0/16 via inet6 fe80::5 dev near
route add fd00:8::/64 via fe80::5 dev near
route add unreachable 10.6.0.0/16";

    fn ip(arguments: &str) -> String {
        let done =
            Command::new("ip").args(arguments.split_whitespace()).output().expect("ip (Debian: iproute2)");
        assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// Does something in that network, in a thread that is alone there.
    fn within(work: impl FnOnce() + Send + 'static) {
        let done = thread::spawn(|| match unshare(CloneFlags::CLONE_NEWNET) {
            Err(cause) => eprintln!("skipped: no network namespace can be made here ({cause})"),
            Ok(()) => {
                NETWORK.lines().for_each(|line| drop(ip(line)));
                work();
            }
        });
        done.join().expect("it holds");
    }

    fn device(name: &str) -> u32 {
        let told = ip(&format!("-o link show {name}"));
        told.split(':').next().and_then(|number| number.parse().ok()).expect("a number comes first")
    }

    #[test]
    fn the_kernel_tells_the_way() {
        within(|| {
            let near = device("near");
            for (address, expected) in [
                ("10.9.0.2", Ok(0x22)),
                ("10.8.1.1", Ok(0x33)),
                ("10.7.1.1", Ok(0x55)),
                ("fd00:8::1", Ok(0x55)),
                ("10.9.0.1", Err("the way there is lo, which is no Ethernet device")),
                ("127.0.0.1", Err("the way there is lo, which is no Ethernet device")),
                ("::1", Err("the way there is lo, which is no Ethernet device")),
                ("10.6.0.1", Err("no route leads there (No route to host (os error 113))")),
                ("192.0.2.1", Err("no route leads there (Network is unreachable (os error 101))")),
                ("10.9.0.4", Err("the next hop, 10.9.0.4 on near, does not tell its address")),
            ] {
                let hop = towards(address.parse().expect("an address"), Duration::ZERO);
                let expected = expected.map_err(str::to_owned).map(|last| Hop {
                    device: near,
                    from: [2, 0, 0, 0, 0, 0x0a],
                    to: [2, 0, 0, 0, 0, last],
                    mtu: 1400,
                });
                assert_eq!(hop.map_err(|error| error.to_string()), expected, "{address}");
            }
        });
    }

    #[test]
    fn frames_go_through_a_device_as_they_are() {
        within(|| {
            // An EtherType for experiments (RFC 9542 §B.1).
            const KIND: u16 = 0x88b5;
            let other = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(i32::from(KIND.to_be()))))
                .expect("root may");
            other.set_read_timeout(Some(Duration::from_secs(10))).expect("it is set");
            mmsg::bind_to_device(&other, device("far")).expect("it is there");
            let socket = frames(device("near")).expect("root may");
            let mut outgoing = Outgoing::new();
            let frame = |octet: u8| [&[octet; 12][..], &KIND.to_be_bytes(), &[octet; 50]].concat();
            for octet in [2, 4] {
                outgoing.push(&frame(octet), None, None);
            }
            assert!(outgoing.send(&socket, |told| told.expect("the device takes it")));
            for octet in [2, 4] {
                let mut room = [0; 100];
                let length = io::Read::read(&mut (&other), &mut room).expect("it arrives");
                assert_eq!(room[..length], frame(octet));
            }
            let absent = frames(u32::MAX >> 1).expect_err("there are not as many");
            assert_eq!(absent.raw_os_error(), Some(libc::ENODEV));
        });
    }

    #[test]
    fn what_the_kernel_never_sends_is_an_error() {
        let read = |payload: &[u8]| Message::<4>::deserialize(&NetlinkHeader::default(), payload).ok();
        for payload in
            [&[][..], &[0; 3], &[0, 0, 0, 0, 1], &[0, 0, 0, 0, 3, 0, 1, 0], &[0, 0, 0, 0, 9, 0, 1, 0]]
        {
            assert!(read(payload).is_none(), "{payload:?}");
        }
        let message = read(&[0, 0, 0, 0, 6, 0, 1, 0, 7, 7, 0, 0, 4, 0, 2, 0]).expect("it is well-formed");
        assert_eq!(message.attribute(1), Some(&[7, 7][..]));
        assert_eq!(
            (message.attribute(2), message.attribute(3), message.number(1)),
            (Some(&[][..]), None, None)
        );
    }
}
