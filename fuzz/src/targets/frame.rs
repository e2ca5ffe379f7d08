//! What is read of an interface's frames.

use std::net::IpAddr;

use etherparse::checksum::Sum16BitWords;
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use net::xdp::frame::{Fault, answer, read};

/// What an answer's payload is.
const REPLY: &[u8] = b"a reply";

/// Where an IPv4 header is, where its sum, and where that of a datagram behind it.
const IPV4: std::ops::Range<usize> = 14..34;
const IPV4_SUM: usize = 24;
const UDP_SUM: usize = 40;

/// Frames as they come, and with IPv4's sum made right and UDP's left out: few that are damaged would be read otherwise.
pub(super) fn frame(octets: &[u8]) {
    check(octets);
    let mut repaired = octets.to_vec();
    if repaired.len() >= UDP_SUM + 2 {
        repaired[IPV4_SUM..][..2].fill(0);
        repaired[UDP_SUM..][..2].fill(0);
        let sum = Sum16BitWords::new().add_slice(&repaired[IPV4]).ones_complement();
        repaired[IPV4_SUM..][..2].copy_from_slice(&sum.to_ne_bytes());
        check(&repaired);
    }
}

/// What is read is what `etherparse` reads of the same octets, and its answer is read again, the other way round.
fn check(octets: &[u8]) {
    let Ok(datagram) = read(octets) else { return };
    let theirs = SlicedPacket::from_ethernet(octets).expect("it is a packet");
    let addresses = match theirs.net {
        Some(NetSlice::Ipv4(ip)) => {
            let header = ip.header();
            (IpAddr::V4(header.source_addr()), IpAddr::V4(header.destination_addr()))
        }
        Some(NetSlice::Ipv6(ip)) => {
            let header = ip.header();
            (IpAddr::V6(header.source_addr()), IpAddr::V6(header.destination_addr()))
        }
        _ => panic!("it is IP"),
    };
    let Some(TransportSlice::Udp(udp)) = theirs.transport else { panic!("it is UDP") };
    assert_eq!(addresses, (datagram.client.ip(), datagram.server.ip()));
    let ports = (datagram.client.port(), datagram.server.port());
    assert_eq!((udp.source_port(), udp.destination_port()), ports);
    assert_eq!(udp.payload(), datagram.payload);

    let mut out = vec![0xaa; datagram.headers];
    out.extend_from_slice(REPLY);
    answer(octets, &datagram, &mut out);
    match read(&out) {
        Ok(back) => {
            assert_eq!((back.client, back.server, back.payload), (datagram.server, datagram.client, REPLY))
        }
        // It was asked of port 0, or of an address where nobody can be.
        Err(fault) => assert_eq!(fault, Fault::Source),
    }
    assert_eq!(
        (&out[..6], &out[6..12], out.len()),
        (&octets[6..12], &octets[..6], datagram.headers + REPLY.len())
    );
}

/// Queries in frames of both families.
pub(super) fn frames() -> Vec<Vec<u8>> {
    let ethernet = || PacketBuilder::ethernet2([2; 6], [4; 6]);
    let ipv4 = ethernet().ipv4([192, 0, 2, 1], [192, 0, 2, 53], 64);
    let ipv6 = ethernet().ipv6([0x20; 16], [0x21; 16], 64);
    let packets = [ipv4.udp(1234, 53), ipv6.udp(1234, 53)];
    let queries = super::queries();
    let written = packets.into_iter().zip(queries.iter().cycle()).map(|(packet, query)| {
        let mut frame = Vec::new();
        packet.write(&mut frame, query).expect("a vector takes it");
        frame
    });
    written.collect()
}
