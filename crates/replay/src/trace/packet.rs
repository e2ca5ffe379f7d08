//! Headers of a packet: link, IP, UDP and TCP.
//!
//! They are read here and not by `etherparse`: its iterator over the IPv6 extensions of a packet that was cut
//! (0.21.0) reads beyond the packet's end, as the fuzz target `trace` found.

use std::net::IpAddr;

use super::skipped::Skip;

/// The most VLAN tags before IP: QinQ has two, providers stack a third and a fourth.
const TAGS_MAX: usize = 4;

/// The most IPv6 extension headers: each kind comes once, destination options twice (RFC 8200 §4.1).
const EXTENSIONS_MAX: usize = 8;

/// IP's numbers of what comes next.
const HOP_BY_HOP: u8 = 0;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ROUTING: u8 = 43;
pub(super) const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// What IP carries.
#[derive(Debug)]
pub(super) struct Datagram<'a> {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// IP's number of what the payload is.
    pub(super) protocol: u8,
    pub(super) payload: &'a [u8],
    /// Whether the capture has less of the payload than IP's header says.
    pub(super) is_cut: bool,
    /// Where the payload is a piece of a larger one.
    pub(super) fragment: Option<Fragment>,
}

/// Which piece of a datagram it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    pub(super) id: u32,
    /// In units of eight octets, at most 8,191.
    pub(super) offset: u16,
    pub(super) more: bool,
}

/// What UDP or TCP carries.
#[derive(Debug)]
pub(super) enum Segment<'a> {
    /// Without a payload where that is not as long as UDP's header says: why.
    Udp {
        source: u16,
        destination: u16,
        payload: Result<&'a [u8], Skip>,
    },
    Tcp {
        source: u16,
        destination: u16,
        piece: Piece<'a>,
    },
}

/// A piece of a TCP stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    /// The sequence number of SYN, or else of the first octet of `octets`.
    pub(super) sequence: u32,
    /// SYN
    pub(super) is_first: bool,
    /// RST, whose octets are none of the stream's (RFC 9293 §3.5.3).
    pub(super) is_reset: bool,
    pub(super) octets: &'a [u8],
    /// Whether the capture has less of it than there was.
    pub(super) is_cut: bool,
}

/// Reads link and IP headers.
pub(super) fn network(link: u16, octets: &[u8]) -> Result<Datagram<'_>, Skip> {
    let octets = ip(link, octets)?;
    match octets.first().ok_or(Skip::Broken)? >> 4 {
        4 => ipv4(octets),
        6 => ipv6(octets),
        _ => Err(Skip::Broken),
    }
}

/// Reads the header of UDP or TCP; `is_cut` says that the capture has less of it and its payload than there was.
pub(super) fn transport(protocol: u8, octets: &[u8], is_cut: bool) -> Result<Segment<'_>, Skip> {
    match protocol {
        UDP => {
            let (header, rest) = octets.split_first_chunk::<8>().ok_or(Skip::Broken)?;
            let payload = match usize::from(word(header, 4)) {
                // A jumbogram, or a length that the capturing host left to its network card.
                0 => Ok(rest),
                length => {
                    let length = length.checked_sub(header.len()).ok_or(Skip::Broken)?;
                    rest.get(..length).ok_or(if is_cut { Skip::Cut } else { Skip::Broken })
                }
            };
            Ok(Segment::Udp { source: word(header, 0), destination: word(header, 2), payload })
        }
        TCP => {
            let header = octets.first_chunk::<20>().ok_or(Skip::Broken)?;
            let length = usize::from(header[12] >> 4) * 4;
            let payload = octets.get(length..).filter(|_| length >= header.len()).ok_or(Skip::Broken)?;
            let sequence = u32::from(word(header, 4)) << 16 | u32::from(word(header, 6));
            let (is_first, is_reset) = (header[13] & 0x02 != 0, header[13] & 0x04 != 0);
            let piece = Piece { sequence, is_first, is_reset, octets: payload, is_cut };
            Ok(Segment::Tcp { source: word(header, 0), destination: word(header, 2), piece })
        }
        _ => Err(Skip::Protocol),
    }
}

/// RFC 791 §3.1.
fn ipv4(octets: &[u8]) -> Result<Datagram<'_>, Skip> {
    let header = octets.first_chunk::<20>().ok_or(Skip::Broken)?;
    let length = usize::from(header[0] & 0x0f) * 4;
    let rest = octets.get(length..).filter(|_| length >= header.len()).ok_or(Skip::Broken)?;
    let (payload, is_cut) = match usize::from(word(header, 2)) {
        // A length that the capturing host left to its network card.
        0 => (rest, false),
        total => {
            let wanted = total.checked_sub(length).ok_or(Skip::Broken)?;
            (&rest[..wanted.min(rest.len())], wanted > rest.len())
        }
    };
    let place = word(header, 6);
    let (offset, more) = (place & 0x1fff, place & 0x2000 != 0);
    let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
    Ok(Datagram {
        source: [s0, s1, s2, s3].into(),
        destination: [d0, d1, d2, d3].into(),
        protocol: header[9],
        payload,
        is_cut,
        fragment: (more || offset > 0).then(|| Fragment { id: word(header, 4).into(), offset, more }),
    })
}

/// RFC 8200 §3 and §4.
fn ipv6(octets: &[u8]) -> Result<Datagram<'_>, Skip> {
    let (header, rest) = octets.split_first_chunk::<40>().ok_or(Skip::Broken)?;
    let address = |at: usize| -> IpAddr {
        let mut address = [0; 16];
        address.copy_from_slice(&header[at..at + 16]);
        address.into()
    };
    let (rest, is_cut) = match usize::from(word(header, 4)) {
        // A jumbogram, or a length that the capturing host left to its network card.
        0 => (rest, false),
        wanted => (&rest[..wanted.min(rest.len())], wanted > rest.len()),
    };
    let (protocol, payload, fragment) = extensions(header[6], rest)?;
    Ok(Datagram { source: address(8), destination: address(24), protocol, payload, is_cut, fragment })
}

/// The protocol and payload of a datagram that was put together of its pieces: destination options of IPv6 are in the
/// pieces, too (RFC 8200 §4.5). Nobody makes pieces of pieces: a host makes them, once.
pub(super) fn whole(is_ipv6: bool, protocol: u8, octets: &[u8]) -> Result<(u8, &[u8]), Skip> {
    if !is_ipv6 {
        return Ok((protocol, octets));
    }
    match extensions(protocol, octets)? {
        (protocol, payload, None) => Ok((protocol, payload)),
        (.., Some(_)) => Err(Skip::Broken),
    }
}

/// What stands behind IPv6's extension headers: its protocol, itself, and which piece it is, where it is one.
fn extensions(mut protocol: u8, mut payload: &[u8]) -> Result<(u8, &[u8], Option<Fragment>), Skip> {
    for _ in 0..EXTENSIONS_MAX {
        if !matches!(protocol, HOP_BY_HOP | ROUTING | DESTINATION | FRAGMENT) {
            break;
        }
        let extension = payload.first_chunk::<8>().ok_or(Skip::Broken)?;
        let length = if protocol == FRAGMENT { 8 } else { (usize::from(extension[1]) + 1) * 8 };
        payload = payload.get(length..).ok_or(Skip::Broken)?;
        let is_fragment = protocol == FRAGMENT;
        protocol = extension[0];
        let (offset, more) = (word(extension, 2) >> 3, extension[3] & 1 != 0);
        // One that is all of the datagram is like none (RFC 6946).
        if is_fragment && (more || offset > 0) {
            let id = u32::from(word(extension, 4)) << 16 | u32::from(word(extension, 6));
            return Ok((protocol, payload, Some(Fragment { id, offset, more })));
        }
    }
    Ok((protocol, payload, None))
}

fn word(header: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

/// Where IP begins behind a link header.
fn ip(link: u16, octets: &[u8]) -> Result<&[u8], Skip> {
    let (ether_type, rest) = match link {
        // LINKTYPE_ETHERNET
        1 => typed(octets, 12, 14)?,
        // LINKTYPE_LINUX_SLL and LINKTYPE_LINUX_SLL2
        113 => typed(octets, 14, 16)?,
        276 => typed(octets, 0, 20)?,
        // LINKTYPE_NULL and LINKTYPE_LOOP: an address family of the capturing host, in its byte order or in
        // the network's. IPv6 differs from system to system, so IP's own version tells.
        0 | 108 => {
            let (_, rest) = octets.split_first_chunk::<4>().ok_or(Skip::Broken)?;
            return versioned(rest);
        }
        // LINKTYPE_RAW with the values that systems used before it, LINKTYPE_IPV4 and LINKTYPE_IPV6
        12 | 14 | 101 | 228 | 229 => return versioned(octets),
        _ => return Err(Skip::Link),
    };
    untagged(ether_type, rest)
}

fn typed(octets: &[u8], at: usize, length: usize) -> Result<(u16, &[u8]), Skip> {
    let (header, rest) = octets.split_at_checked(length).ok_or(Skip::Broken)?;
    Ok((word(header, at), rest))
}

fn untagged(mut ether_type: u16, mut rest: &[u8]) -> Result<&[u8], Skip> {
    for _ in 0..=TAGS_MAX {
        match ether_type {
            0x0800 | 0x86dd => return Ok(rest),
            // 802.1Q, 802.1ad, and what came before 802.1ad.
            0x8100 | 0x88a8 | 0x9100 => (ether_type, rest) = typed(rest, 2, 4)?,
            _ => return Err(Skip::Network),
        }
    }
    Err(Skip::Network)
}

fn versioned(octets: &[u8]) -> Result<&[u8], Skip> {
    match octets.first().ok_or(Skip::Broken)? >> 4 {
        4 | 6 => Ok(octets),
        _ => Err(Skip::Network),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv6 packet with these extension headers and payload.
    fn ipv6_packet(first: u8, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, rest.len() as u8, first, 64];
        packet.extend([1; 16]);
        packet.extend([2; 16]);
        packet.extend(rest);
        packet
    }

    #[test]
    fn extension_headers_are_passed_over() {
        let options = [DESTINATION, 0, 0, 0, 0, 0, 0, 0];
        let more_options = [[UDP, 1, 0, 0, 0, 0, 0, 0], [0; 8]].concat();
        let packet = ipv6_packet(HOP_BY_HOP, &[&options[..], &more_options, b"payload"].concat());
        let datagram = network(101, &packet).unwrap();
        assert_eq!((datagram.protocol, datagram.payload), (UDP, &b"payload"[..]));
        assert_eq!(datagram.source, IpAddr::from([1; 16]));
        assert_eq!(datagram.destination, IpAddr::from([2; 16]));
        // One extension after another without an end is no DNS.
        let endless = ipv6_packet(HOP_BY_HOP, &[0; 240]);
        let datagram = network(101, &endless).unwrap();
        assert_eq!(transport(datagram.protocol, datagram.payload, false).unwrap_err(), Skip::Protocol);
    }

    #[test]
    fn ipv6_fragments_are_told() {
        let header = |place: [u8; 2]| [UDP, 0, place[0], place[1], 0, 1, 0, 2, 9, 9];
        let fragment = |place| network(101, &ipv6_packet(FRAGMENT, &header(place))).unwrap().fragment;
        assert!(fragment([0, 0]).is_none());
        let found = fragment([0xff, 0xf9]).expect("a piece");
        assert_eq!((found.id, found.offset, found.more), (0x1_0002, 8_191, true));
        assert!(fragment([0, 8]).is_some_and(|found| found.offset == 1 && !found.more));
    }

    #[test]
    fn a_packet_that_was_cut_is_told_at_any_length() {
        let udp = [0, 1, 0, 53, 0, 12, 0, 0, b'a', b'b', b'c', b'd'];
        let options = [UDP, 0, 0, 0, 0, 0, 0, 0];
        let whole = ipv6_packet(DESTINATION, &[&options[..], &udp].concat());
        for length in 0..whole.len() {
            let read = network(101, &whole[..length]).and_then(|datagram| {
                transport(datagram.protocol, datagram.payload, datagram.is_cut).map(|_| datagram.is_cut)
            });
            assert!(read.is_err() || read == Ok(true), "{length}: {read:?}");
        }
        assert!(network(101, &whole).is_ok_and(|datagram| !datagram.is_cut));
    }
}
