//! Messages as packets, in a capture that other programs read.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use etherparse::{IpHeaders, PacketBuilder, PacketBuilderStep};
use net::framing;

use super::message::{Message, Transport};

/// The hop limit of the packets, as hosts begin with.
const HOPS: u8 = 64;

/// TCP's window, which nobody reads in a capture.
const WINDOW: u16 = 65_535;

/// The octets of one TCP segment: a message of 65,535 octets with its prefix does not fit in one IP packet.
const SEGMENT_MAX: usize = 60_000;

/// The octets of a UDP datagram over IPv4: what the longest packet has behind its headers.
const DATAGRAM_MAX: usize = 65_535 - 20 - 8;

/// From one stream's first sequence number to that of the next: more than a stream has octets, and odd, so that none comes
/// again before all have come. A reader takes the same SYN between the same ports for the same stream.
const SEQUENCES: u32 = (1 << 17) + 1;

/// LINKTYPE_RAW: packets begin with IP.
const LINK: u32 = 101;

/// The octets of a file's header.
pub const HEADER: usize = 24;

/// Writes a pcap file with times in nanoseconds.
///
/// Packets are made anew: raw IP, no fragments. Each message over TCP is a stream of its own, which begins
/// with SYN and ends without FIN.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    sequence: u32,
    packet: Vec<u8>,
}

/// Whether a message has a place in a pcap file: a time before 2106, addresses of one family, and at most
/// 65,535 octets, less the headers of a datagram.
pub fn has_room(message: &Message) -> bool {
    let most = match message.transport {
        Transport::Udp => DATAGRAM_MAX,
        Transport::Tcp => framing::MESSAGE_MAX,
    };
    u32::try_from(message.time.as_secs()).is_ok()
        && message.client.is_ipv4() == message.server.is_ipv4()
        && message.octets.len() <= most
}

impl<W: Write> Writer<W> {
    /// Writes the file's header.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn new(mut to: W) -> io::Result<Writer<W>> {
        to.write_all(&0xa1b2_3c4d_u32.to_le_bytes())?;
        to.write_all(&[2, 0, 4, 0])?;
        // Time zone and accuracy, which nobody sets; then the longest packet.
        for word in [0, 0, u32::from(u16::MAX) + 40, LINK] {
            to.write_all(&word.to_le_bytes())?;
        }
        Ok(Writer { to, sequence: 0, packet: Vec::new() })
    }

    /// Writes a message.
    ///
    /// # Errors
    /// Those of `to`, and what [`has_room`] denies.
    pub fn write(&mut self, message: &Message) -> io::Result<()> {
        // What had no place leaves nothing for the next.
        self.packet.clear();
        let (from, to) = match message.is_response() {
            true => (message.server, message.client),
            false => (message.client, message.server),
        };
        match message.transport {
            Transport::Udp => {
                let builder = addressed(from, to)?.udp(from.port(), to.port());
                builder.write(&mut self.packet, &message.octets).map_err(io::Error::other)?;
                self.record(message.time)
            }
            Transport::Tcp => {
                if message.octets.len() > framing::MESSAGE_MAX {
                    return Err(io::Error::other("a message of more than 65,535 octets"));
                }
                let prefix = framing::prefix(message.octets.len());
                let octets = [&prefix[..], &message.octets].concat();
                self.sequence = self.sequence.wrapping_add(SEQUENCES);
                self.segment(message.time, from, to, self.sequence, &[], true)?;
                let mut sequence = self.sequence.wrapping_add(1);
                for piece in octets.chunks(SEGMENT_MAX) {
                    self.segment(message.time, from, to, sequence, piece, false)?;
                    sequence = sequence.wrapping_add(piece.len() as u32);
                }
                Ok(())
            }
        }
    }

    /// Hands on what is held back.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    /// What is written to.
    pub fn get_ref(&self) -> &W {
        &self.to
    }

    /// Gives back what was written to, flushed.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn finish(mut self) -> io::Result<W> {
        self.to.flush()?;
        Ok(self.to)
    }

    fn segment(
        &mut self,
        time: Duration,
        from: SocketAddr,
        to: SocketAddr,
        sequence: u32,
        octets: &[u8],
        is_first: bool,
    ) -> io::Result<()> {
        let builder = addressed(from, to)?.tcp(from.port(), to.port(), sequence, WINDOW);
        let builder = if is_first { builder.syn() } else { builder };
        builder.write(&mut self.packet, octets).map_err(io::Error::other)?;
        self.record(time)
    }

    fn record(&mut self, time: Duration) -> io::Result<()> {
        let seconds = u32::try_from(time.as_secs())
            .map_err(|_| io::Error::other("a time after 2106, which pcap has no room for"))?;
        let length = self.packet.len() as u32;
        for word in [seconds, time.subsec_nanos(), length, length] {
            self.to.write_all(&word.to_le_bytes())?;
        }
        self.to.write_all(&self.packet)?;
        self.packet.clear();
        Ok(())
    }
}

fn addressed(from: SocketAddr, to: SocketAddr) -> io::Result<PacketBuilderStep<IpHeaders>> {
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Ok(PacketBuilder::ipv4(from.octets(), to.octets(), HOPS)),
        (IpAddr::V6(from), IpAddr::V6(to)) => Ok(PacketBuilder::ipv6(from.octets(), to.octets(), HOPS)),
        _ => Err(io::Error::other("an IPv4 and an IPv6 address in one message")),
    }
}
