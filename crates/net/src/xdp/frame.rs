//! Frames that hold a datagram: read, and the headers of an answer written. No sockets here.
//!
//! ```text
//! Ethernet 14 | IPv4 20, no options; or IPv6 40, no extensions | UDP 8 | payload
//! ```
//!
//! RFC 791, 768, 8200.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use etherparse::checksum::Sum16BitWords;

/// Octets in front of a payload, at most.
pub(super) const HEADERS_MAX: usize = ETHERNET + IPV6 + UDP;

/// Octets in front of a payload, without those that an interface's MTU does not count, at most.
pub(super) const WITHIN_MTU: usize = IPV6 + UDP;

/// Octets of an Ethernet header: destination, source, type.
pub(super) const ETHERNET: usize = 14;

/// Octets of an IPv4 header without options.
pub(super) const IPV4: usize = 20;

/// Octets of an IPv6 header.
pub(super) const IPV6: usize = 40;

/// Octets of a UDP header.
pub(super) const UDP: usize = 8;

/// Ethernet's number for IPv4.
pub(super) const TYPE_IPV4: u16 = 0x0800;

/// Ethernet's number for IPv6.
pub(super) const TYPE_IPV6: u16 = 0x86dd;

/// The number of UDP (RFC 768).
pub(super) const PROTOCOL_UDP: u8 = 17;

/// The hops that an answer may take, as many as Linux gives by default.
const HOPS: u8 = 64;

/// IPv4's "don't fragment".
const DONT_FRAGMENT: u8 = 0x40;

/// A datagram, as a frame holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Who sent it.
    pub client: SocketAddr,
    /// Whom it was sent to.
    pub server: SocketAddr,
    /// What is in front of its payload, and of an answer's: octets.
    pub headers: usize,
    /// What it holds.
    pub payload: &'a [u8],
}

/// Why a frame is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is no whole datagram of the form above.
    Malformed,
    /// A sum is wrong.
    Checksum,
    /// Nobody can be sent anything there: port 0, or an address that is no single host's on a network.
    Source,
}

/// Reads a frame.
///
/// A UDP sum may be missing over IPv4 (zero), and may be that of the pseudo-header alone, which a sender on the same
/// machine leaves for hardware that is not there.
///
/// # Errors
/// Why it is not answered.
pub fn read(frame: &[u8]) -> Result<Datagram<'_>, Fault> {
    let (ethernet, packet) = frame.split_at_checked(ETHERNET).ok_or(Fault::Malformed)?;
    let (client, server, datagram, headers) = match u16::from_be_bytes([ethernet[12], ethernet[13]]) {
        TYPE_IPV4 => {
            let (header, rest) = packet.split_first_chunk::<IPV4>().ok_or(Fault::Malformed)?;
            let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
            let is_whole = u16::from_be_bytes([header[6], header[7]]) & 0x3fff == 0;
            if header[0] != 0x45 || header[9] != PROTOCOL_UDP || !is_whole {
                return Err(Fault::Malformed);
            }
            if Sum16BitWords::new().add_slice(header).ones_complement() != 0 {
                return Err(Fault::Checksum);
            }
            let datagram = length.checked_sub(IPV4).and_then(|length| rest.get(..length));
            let address =
                |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
            let (client, server) = (address(12), address(16));
            if !is_host_v4(client) {
                return Err(Fault::Source);
            }
            (IpAddr::V4(client), IpAddr::V4(server), datagram, ETHERNET + IPV4 + UDP)
        }
        TYPE_IPV6 => {
            let (header, rest) = packet.split_first_chunk::<IPV6>().ok_or(Fault::Malformed)?;
            if header[0] >> 4 != 6 || header[6] != PROTOCOL_UDP {
                return Err(Fault::Malformed);
            }
            let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
            let address = |at: usize| {
                let octets: Option<&[u8; 16]> = header[at..].first_chunk();
                octets.map_or(Ipv6Addr::UNSPECIFIED, |octets| Ipv6Addr::from(*octets))
            };
            let (client, server) = (address(8), address(24));
            if client.is_unspecified() || client.is_loopback() || client.is_multicast() {
                return Err(Fault::Source);
            }
            (IpAddr::V6(client), IpAddr::V6(server), rest.get(..length), ETHERNET + IPV6 + UDP)
        }
        _ => return Err(Fault::Malformed),
    };
    let datagram = datagram.ok_or(Fault::Malformed)?;
    let header: &[u8; UDP] = datagram.first_chunk().ok_or(Fault::Malformed)?;
    let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let length = usize::from(number(4));
    let datagram = datagram.get(..length).filter(|_| length >= UDP).ok_or(Fault::Malformed)?;
    if number(0) == 0 {
        return Err(Fault::Source);
    }
    let covered = covered(client, server, [header[4], header[5]]);
    let is_sound = match number(6) {
        0 => client.is_ipv4(),
        // What is left for hardware is not the complement.
        _ => {
            let is_left = (!covered.ones_complement()).to_ne_bytes() == [header[6], header[7]];
            is_left || covered.add_slice(datagram).ones_complement() == 0
        }
    };
    if !is_sound {
        return Err(Fault::Checksum);
    }
    Ok(Datagram {
        client: SocketAddr::new(client, number(0)),
        server: SocketAddr::new(server, number(2)),
        headers,
        payload: &datagram[UDP..],
    })
}

/// Writes the headers of an answer in front of its payload: back the way that the query's frame has come.
///
/// `answer` has as many octets of headers as the query's, all of which are written, and then the payload. Answers are no
/// fragments and never become some: they are sent with "don't fragment", beside which an identification means nothing
/// (RFC 6864 §4.1).
///
/// # Panics
/// Where `datagram` is not what [`read`] gave for `query`, or the answer is shorter than the headers or longer than 65,535
/// octets.
pub fn answer(query: &[u8], datagram: &Datagram<'_>, answer: &mut [u8]) {
    let Datagram { client, server, headers, .. } = datagram;
    let (headers, payload) = answer.split_at_mut(*headers);
    let (ethernet, packet) = headers.split_at_mut(ETHERNET);
    ethernet[..6].copy_from_slice(&query[6..12]);
    ethernet[6..12].copy_from_slice(&query[..6]);
    ethernet[12..].copy_from_slice(&query[12..ETHERNET]);
    let (ip, udp) = packet.split_at_mut(packet.len() - UDP);
    let octets = length(UDP + payload.len());
    match (server.ip(), client.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            ip[..2].copy_from_slice(&[0x45, 0]);
            ip[2..4].copy_from_slice(&length(IPV4 + UDP + payload.len()));
            ip[4..8].copy_from_slice(&[0, 0, DONT_FRAGMENT, 0]);
            ip[8..12].copy_from_slice(&[HOPS, PROTOCOL_UDP, 0, 0]);
            ip[12..16].copy_from_slice(&from.octets());
            ip[16..].copy_from_slice(&to.octets());
            let checksum = Sum16BitWords::new().add_slice(ip).ones_complement();
            ip[10..12].copy_from_slice(&checksum.to_ne_bytes());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            ip[..4].copy_from_slice(&[0x60, 0, 0, 0]);
            ip[4..6].copy_from_slice(&octets);
            ip[6..8].copy_from_slice(&[PROTOCOL_UDP, HOPS]);
            ip[8..24].copy_from_slice(&from.octets());
            ip[24..].copy_from_slice(&to.octets());
        }
        _ => unreachable!("a datagram's addresses are of one family"),
    }
    udp[..2].copy_from_slice(&server.port().to_be_bytes());
    udp[2..4].copy_from_slice(&client.port().to_be_bytes());
    udp[4..6].copy_from_slice(&octets);
    udp[6..].fill(0);
    let sum = covered(server.ip(), client.ip(), octets).add_slice(udp).add_slice(payload);
    udp[6..].copy_from_slice(&sum.to_ones_complement_with_no_zero().to_ne_bytes());
}

/// A length, as headers have it.
fn length(octets: usize) -> [u8; 2] {
    u16::try_from(octets).expect("no payload is that long").to_be_bytes()
}

/// Whether an address can be one host's, on a network.
fn is_host_v4(address: Ipv4Addr) -> bool {
    !address.is_multicast() && !address.is_loopback() && !address.is_broadcast() && address.octets()[0] != 0
}

/// The sum of what UDP's covers beside the datagram: addresses, protocol and length (RFC 768, RFC 8200 §8.1).
fn covered(from: IpAddr, to: IpAddr, length: [u8; 2]) -> Sum16BitWords {
    let sum = Sum16BitWords::new().add_2bytes([0, PROTOCOL_UDP]).add_2bytes(length);
    [from, to].into_iter().fold(sum, |mut sum, address| match address {
        IpAddr::V4(address) => sum.add_4bytes(address.octets()),
        IpAddr::V6(address) => sum.add_16bytes(address.octets()),
    })
}

#[cfg(test)]
mod tests {
    use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    use super::*;

    const SWITCH: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const OURS: [u8; 6] = [2, 0, 0, 0, 0, 2];

    /// A frame as another library writes it.
    fn frame(client: SocketAddr, server: SocketAddr, payload: &[u8]) -> Vec<u8> {
        let ethernet = PacketBuilder::ethernet2(SWITCH, OURS);
        let packet = match (client.ip(), server.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => ethernet.ipv4(from.octets(), to.octets(), 9),
            (IpAddr::V6(from), IpAddr::V6(to)) => ethernet.ipv6(from.octets(), to.octets(), 9),
            _ => panic!("one family"),
        };
        let packet = packet.udp(client.port(), server.port());
        let mut frame = Vec::new();
        packet.write(&mut frame, payload).expect("a vector takes it");
        frame
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn any_pair() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
        let ipv4 = |[a, b, c, d]: [u8; 4]| IpAddr::from([a % 223 + 1, b, c, d]);
        let hosts = prop_oneof![
            any::<[[u8; 4]; 2]>().prop_map(move |pair| pair.map(ipv4)),
            any::<[[u8; 15]; 2]>().prop_map(|pair| {
                pair.map(|rest| {
                    let mut octets = [0x20; 16];
                    octets[1..].copy_from_slice(&rest);
                    IpAddr::from(octets)
                })
            }),
        ];
        let sound = hosts.prop_filter("127/8 is no host's", |pair| pair.iter().all(|ip| !ip.is_loopback()));
        (sound, 1u16.., any::<u16>()).prop_map(|([client, server], from, to)| {
            (SocketAddr::new(client, from), SocketAddr::new(server, to))
        })
    }

    proptest! {
        #[test]
        fn what_is_written_elsewhere_is_read_and_answered(
            (client, server) in any_pair(),
            query in prop::collection::vec(any::<u8>(), 0..300),
            reply in prop::collection::vec(any::<u8>(), 0..300),
            padding in 0usize..20,
        ) {
            let mut frame = frame(client, server, &query);
            frame.resize(frame.len() + padding, 0xee);
            let datagram = read(&frame).expect("it is whole");
            prop_assert_eq!((datagram.client, datagram.server), (client, server));
            prop_assert_eq!(datagram.payload, &query);

            let mut out = vec![0xaa; datagram.headers];
            out.extend_from_slice(&reply);
            answer(&frame, &datagram, &mut out);
            let read_back = read(&out).expect("it is whole");
            prop_assert_eq!((read_back.client, read_back.server), (server, client));
            prop_assert_eq!(read_back.payload, &reply);
            let theirs = SlicedPacket::from_ethernet(&out).expect("it is a packet");
            let link = theirs.link.expect("a link").to_header().expect("a header");
            let link = link.ethernet2().expect("Ethernet");
            prop_assert_eq!((link.source, link.destination), (OURS, SWITCH));
            let Some(TransportSlice::Udp(udp)) = theirs.transport else { panic!("UDP") };
            prop_assert_eq!(udp.payload(), &reply);
            let header = udp.to_header();
            let checksum = match theirs.net {
                Some(NetSlice::Ipv4(ip)) => {
                    let ip = ip.header().to_header();
                    prop_assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                    prop_assert!(ip.dont_fragment && !ip.is_fragmenting_payload());
                    header.calc_checksum_ipv4(&ip, &reply)
                }
                Some(NetSlice::Ipv6(ip)) => header.calc_checksum_ipv6(&ip.header().to_header(), &reply),
                _ => panic!("IP"),
            };
            prop_assert_eq!(header.checksum, checksum.expect("it is short"));
        }

        #[test]
        fn a_changed_octet_is_found(
            (client, server) in any_pair(),
            query in prop::collection::vec(any::<u8>(), 12..60),
            at in any::<prop::sample::Index>(),
            change in 1u8..,
        ) {
            let whole = frame(client, server, &query);
            let mut changed = whole.clone();
            // Behind the link's addresses, which no checksum covers.
            let at = 12 + at.index(whole.len() - 12);
            changed[at] ^= change;
            let is_covered = client.is_ipv4() || !(ETHERNET..ETHERNET + 4).contains(&at) && at != ETHERNET + 7;
            match read(&changed) {
                Err(_) => {}
                // The class, the flow and the hop limit of IPv6.
                Ok(found) if !is_covered => prop_assert_eq!(found, read(&whole).expect("it is whole")),
                Ok(found) => {
                    // A missing sum is none that is wrong.
                    let udp = found.headers - UDP;
                    prop_assert_eq!(&changed[udp + 6..][..2], &[0, 0], "octet {}", at);
                }
            }
        }

        #[test]
        fn anything_is_read_or_refused(octets in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&octets);
        }
    }

    #[test]
    fn what_is_no_whole_datagram_is_refused() {
        let (client, server) = (address("192.0.2.1:5353"), address("192.0.2.53:53"));
        let whole = frame(client, server, b"a query");
        assert!((0..whole.len()).all(|length| read(&whole[..length]) == Err(Fault::Malformed)));
        let changed = |at: usize, to: &[u8]| {
            let mut frame = whole.clone();
            frame[at..at + to.len()].copy_from_slice(to);
            let ip = &mut frame[ETHERNET..][..IPV4];
            ip[10..12].fill(0);
            let checksum = Sum16BitWords::new().add_slice(ip).ones_complement();
            ip[10..12].copy_from_slice(&checksum.to_ne_bytes());
            read(&frame).err()
        };
        assert_eq!(changed(ETHERNET + 8, &[1]), None, "a hop limit is nobody's");
        for (what, at, to) in [
            ("a VLAN's tag", 12, &[0x81, 0x00][..]),
            ("options", ETHERNET, &[0x46]),
            ("TCP", ETHERNET + 9, &[6]),
            ("more fragments", ETHERNET + 6, &[0x20, 0]),
            ("a later fragment", ETHERNET + 6, &[0, 1]),
            ("a packet beyond its frame", ETHERNET + 2, &[0, 200]),
            ("a packet shorter than its header", ETHERNET + 2, &[0, 19]),
            ("a datagram beyond its packet", ETHERNET + IPV4 + 4, &[0, 100]),
            ("a datagram shorter than its header", ETHERNET + IPV4 + 4, &[0, 7]),
        ] {
            assert_eq!(changed(at, to), Some(Fault::Malformed), "{what}");
        }
    }

    #[test]
    fn nothing_is_sent_to_where_nobody_can_be() {
        let server = address("192.0.2.53:53");
        for client in
            ["0.0.0.0:1", "0.1.2.3:1", "127.0.0.1:1", "224.0.0.1:1", "255.255.255.255:1", "192.0.2.1:0"]
        {
            assert_eq!(read(&frame(address(client), server, b"")), Err(Fault::Source), "{client}");
        }
        let server = address("[2001:db8::53]:53");
        for client in ["[::]:1", "[::1]:1", "[ff02::1]:1", "[2001:db8::1]:0"] {
            assert_eq!(read(&frame(address(client), server, b"")), Err(Fault::Source), "{client}");
        }
    }

    #[test]
    fn sums_may_be_missing_over_ipv4_or_left_to_hardware() {
        for (client, server) in [("192.0.2.1:1", "192.0.2.53:53"), ("[2001:db8::1]:1", "[2001:db8::53]:53")] {
            let (client, server) = (address(client), address(server));
            let mut frame = frame(client, server, b"a query");
            let udp = read(&frame).expect("it is whole").headers - UDP;
            let octets = length(frame.len() - udp);
            let left = !covered(client.ip(), server.ip(), octets).ones_complement();
            frame[udp + 6..][..2].copy_from_slice(&left.to_ne_bytes());
            assert!(read(&frame).is_ok(), "left to hardware");
            frame[udp + 6..][..2].copy_from_slice(&(left ^ 1).to_ne_bytes());
            assert_eq!(read(&frame), Err(Fault::Checksum));
            frame[udp + 6..][..2].fill(0);
            let expected = if client.is_ipv4() { None } else { Some(Fault::Checksum) };
            assert_eq!(read(&frame).err(), expected, "missing");
        }
    }
}
