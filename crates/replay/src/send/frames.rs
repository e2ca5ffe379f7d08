//! Queries as Ethernet frames of our own, past what the kernel does for a datagram. Pure but for the opening.
//!
//! ```text
//! Ethernet 14 │ IPv4 20 or IPv6 40 │ UDP 8 │ query
//!             lengths, source address, checksums: written for each query; all else stands in the server's template
//! ```
//! The source port is that of the shared socket, so that answers come there as to queries that it sends itself.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use etherparse::checksum::Sum16BitWords;
use etherparse::{PacketBuilder, ip_number};
use foldhash::{HashMap, HashMapExt};
use net::hop::Hop;

use super::batch::set_id;

/// The hop limit of the packets, as hosts begin with.
const HOPS: u8 = 64;

/// Octets of headers.
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;

/// Places in an IPv4 header (RFC 791 §3.1): the length of all, the checksum, the source.
const V4_LENGTH: usize = ETHERNET + 2;
const V4_CHECKSUM: usize = ETHERNET + 10;
const V4_SOURCE: usize = ETHERNET + 12;

/// Places in an IPv6 header (RFC 8200 §3): the length of what follows, the source.
const V6_LENGTH: usize = ETHERNET + 4;
const V6_SOURCE: usize = ETHERNET + 8;

/// Places in a UDP header (RFC 768).
const UDP_LENGTH: usize = 4;
const UDP_CHECKSUM: usize = 6;

/// The ways of frames to servers.
#[derive(Debug)]
pub(super) struct Frames {
    /// A socket for each device, with the device's number.
    devices: Vec<(u32, OwnedFd)>,
    /// For each server the place of its device, and how its frames begin.
    servers: HashMap<SocketAddr, (usize, Template)>,
    /// The frame written last.
    frame: Vec<u8>,
}

impl Frames {
    /// None: nothing goes as a frame.
    pub(super) fn new() -> Frames {
        Frames { devices: Vec::new(), servers: HashMap::new(), frame: Vec::new() }
    }

    /// Opens the ways over these first hops to servers; `port` is that of the socket that hears their answers.
    ///
    /// # Errors
    /// What the system says, above all without the capability `CAP_NET_RAW`.
    pub(super) fn open<'a>(
        &mut self,
        hops: impl Iterator<Item = &'a (SocketAddr, Hop)>,
        port: u16,
    ) -> io::Result<()> {
        for (server, hop) in hops {
            let known = self.devices.iter().position(|(number, _)| *number == hop.device);
            let device = known.unwrap_or(self.devices.len());
            if known.is_none() {
                self.devices.push((hop.device, net::client::frames(hop.device)?));
            }
            self.servers.insert(*server, (device, Template::new(*server, hop, port)?));
        }
        Ok(())
    }

    /// The place of the device for a query of so many octets to a server; `None` where it does not go as a frame.
    pub(super) fn device(&self, server: SocketAddr, length: usize) -> Option<usize> {
        let (device, template) = self.servers.get(&server)?;
        (length <= template.room).then_some(*device)
    }

    /// The socket of a device.
    pub(super) fn socket(&self, device: usize) -> Option<BorrowedFd<'_>> {
        self.devices.get(device).map(|(_, socket)| socket.as_fd())
    }

    /// The frame of a query with this id; `None` where [`device`](Self::device) is.
    pub(super) fn write(
        &mut self,
        (server, source): (SocketAddr, IpAddr),
        id: u16,
        query: &[u8],
    ) -> Option<&[u8]> {
        let (_, template) = self.servers.get(&server)?;
        template.write(source, id, query, &mut self.frame);
        Some(&self.frame)
    }
}

/// How frames to a server begin.
#[derive(Debug)]
struct Template {
    /// All headers, with zeros for what is written for each query.
    headers: Vec<u8>,
    /// The most octets of a query that the device takes.
    room: usize,
    /// Sums of what stands already: of the IPv4 header, and of UDP's and what it is summed with (RFC 768, RFC 8200 §8.1).
    ip: Sum16BitWords,
    udp: Sum16BitWords,
}

impl Template {
    fn new(server: SocketAddr, hop: &Hop, port: u16) -> io::Result<Template> {
        let ethernet = PacketBuilder::ethernet2(hop.from, hop.to);
        // Not to be cut on its way, as etherparse has it by itself.
        let (packet, destination) = match server.ip() {
            IpAddr::V4(to) => (ethernet.ipv4([0; 4], to.octets(), HOPS), to.octets().to_vec()),
            IpAddr::V6(to) => (ethernet.ipv6([0; 16], to.octets(), HOPS), to.octets().to_vec()),
        };
        let packet = packet.udp(port, server.port());
        let mut headers = Vec::with_capacity(packet.size(0));
        packet.write(&mut headers, &[]).map_err(io::Error::other)?;
        let udp = headers.len() - UDP;
        headers[udp + UDP_LENGTH..].fill(0);
        if server.is_ipv4() {
            headers[V4_LENGTH..][..2].fill(0);
            headers[V4_CHECKSUM..][..2].fill(0);
        } else {
            headers[V6_LENGTH..][..2].fill(0);
        }
        Ok(Template {
            room: hop.mtu.min(usize::from(u16::MAX)).saturating_sub(headers.len() - ETHERNET),
            ip: Sum16BitWords::new().add_slice(&headers[ETHERNET..udp]),
            udp: Sum16BitWords::new()
                .add_slice(&destination)
                .add_2bytes([0, ip_number::UDP.0])
                .add_slice(&headers[udp..]),
            headers,
        })
    }

    /// Writes a frame for a query of at most `room` octets, from a source of the server's family.
    fn write(&self, source: IpAddr, id: u16, query: &[u8], frame: &mut Vec<u8>) {
        frame.clear();
        frame.extend_from_slice(&self.headers);
        frame.extend_from_slice(query);
        let (headers, query) = frame.split_at_mut(self.headers.len());
        set_id(query, id);
        let length = (UDP + query.len()) as u16;
        let mut sum = self.udp.clone();
        match source {
            IpAddr::V4(source) => {
                let (source, all) = (source.octets(), (IPV4 as u16 + length).to_be_bytes());
                headers[V4_LENGTH..][..2].copy_from_slice(&all);
                headers[V4_SOURCE..][..4].copy_from_slice(&source);
                let checksum = self.ip.clone().add_4bytes(source).add_2bytes(all).ones_complement();
                headers[V4_CHECKSUM..][..2].copy_from_slice(&checksum.to_ne_bytes());
                sum = sum.add_4bytes(source);
            }
            IpAddr::V6(source) => {
                headers[V6_LENGTH..][..2].copy_from_slice(&length.to_be_bytes());
                headers[V6_SOURCE..][..16].copy_from_slice(&source.octets());
                sum = sum.add_16bytes(source.octets());
            }
        }
        let length = length.to_be_bytes();
        // It stands in the header, and before it in what is summed.
        let sum = sum.add_2bytes(length).add_2bytes(length).add_slice(query);
        let udp = headers.len() - UDP;
        headers[udp + UDP_LENGTH..][..2].copy_from_slice(&length);
        headers[udp + UDP_CHECKSUM..].copy_from_slice(&sum.to_ones_complement_with_no_zero().to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    const HOP: Hop = Hop { device: 1, from: [2, 0, 0, 0, 0, 1], to: [2, 0, 0, 0, 0, 2], mtu: 1500 };

    /// The sum that RFC 1071 asks for, which is all ones where a checksum in it is right.
    fn sum(parts: &[&[u8]]) -> u16 {
        let words = parts.iter().flat_map(|part| part.chunks(2));
        let mut sum: u32 =
            words.map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0))).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// Writes a frame, and holds it against what was to be in it.
    fn check(server: SocketAddr, source: IpAddr, port: u16, id: u16, query: &[u8]) {
        let template = Template::new(server, &HOP, port).expect("a template");
        // Whatever stood there before.
        let mut frame = vec![0xaa; 77];
        template.write(source, id, query, &mut frame);
        let packet = SlicedPacket::from_ethernet(&frame).expect("it is well-formed");
        let ethernet = packet.link.as_ref().expect("it is Ethernet").to_header().expect("it has a header");
        let ethernet = ethernet.ethernet2().expect("it is Ethernet");
        assert_eq!((ethernet.source, ethernet.destination), (HOP.from, HOP.to));
        let Some(TransportSlice::Udp(udp)) = &packet.transport else { panic!("{packet:?}") };
        assert_eq!((udp.source_port(), udp.destination_port()), (port, server.port()));
        let mut expected = query.to_vec();
        set_id(&mut expected, id);
        assert_eq!(udp.payload(), expected);
        assert_eq!(usize::from(udp.length()), UDP + query.len());
        assert_ne!(udp.checksum(), 0, "that would say that there is none");
        let pseudo = [&[0, ip_number::UDP.0][..], &udp.length().to_be_bytes()].concat();
        let addresses = match packet.net.expect("it is IP") {
            NetSlice::Ipv4(v4) => {
                let header = v4.header();
                let is_whole = header.dont_fragment() && !header.more_fragments();
                assert!(is_whole && header.fragments_offset().value() == 0, "{header:?}");
                assert_eq!((usize::from(header.total_len()), header.ttl()), (frame.len() - ETHERNET, HOPS));
                assert_eq!(
                    (header.source_addr().into(), header.destination_addr().into()),
                    (source, server.ip())
                );
                assert_eq!(sum(&[header.slice()]), 0xffff);
                [&header.source()[..], &header.destination()].concat()
            }
            NetSlice::Ipv6(v6) => {
                let header = v6.header();
                assert_eq!((header.payload_length(), header.hop_limit()), (udp.length(), HOPS));
                assert_eq!(
                    (header.source_addr().into(), header.destination_addr().into()),
                    (source, server.ip())
                );
                [header.source(), header.destination()].concat()
            }
            NetSlice::Arp(arp) => panic!("{arp:?}"),
        };
        assert_eq!(sum(&[&addresses, &pseudo, udp.slice()]), 0xffff);
    }

    #[test]
    fn a_sum_of_zero_is_written_as_all_ones() {
        let (server, source) =
            ("192.0.2.1:53".parse().expect("an address"), "192.0.2.2".parse().expect("an address"));
        // Of all words one makes the sum so, whatever the others are.
        for id in 0..=u16::MAX {
            check(server, source, 40_000, id, &[0, 0, 1, 2, 3]);
        }
    }

    #[test]
    fn what_the_device_does_not_take_is_no_frame() {
        for (server, room) in [("192.0.2.1:53", 1472), ("[2001:db8::1]:53", 1452)] {
            let server = server.parse().expect("an address");
            let mut frames = Frames::new();
            assert_eq!((frames.device(server, 1), frames.socket(0).is_none()), (None, true));
            frames.servers.insert(server, (0, Template::new(server, &HOP, 1).expect("a template")));
            assert_eq!([room, room + 1].map(|length| frames.device(server, length)), [Some(0), None]);
            let narrow = Template::new(server, &Hop { mtu: 20, ..HOP }, 1).expect("a template");
            assert_eq!(narrow.room, 0);
        }
    }

    proptest! {
        #[test]
        fn frames_are_what_the_system_would_send(
            servers: ([u8; 4], [u8; 16]),
            sources: ([u8; 4], [u8; 16]),
            ports: (u16, u16),
            id: u16,
            query in proptest::collection::vec(any::<u8>(), 0..1453),
        ) {
            let (server, from) = ports;
            check((servers.0, server).into(), sources.0.into(), from, id, &query);
            check((servers.1, server).into(), sources.1.into(), from, id, &query);
        }
    }
}
