//! dnstap: what a server saw, as a protobuf message (`dnstap.proto`, dnstap.info).
//!
//! Written and read by hand: of some thirty fields, thirteen are used, all of them numbers or octets. Octets are
//! borrowed in both directions, and nothing is allocated but by the buffer that is written to.
//!
//! ```text
//! Dnstap:  1 identity  2 version  14 Message  15 type (1 = MESSAGE)
//! Message: 1 kind  2 family  3 protocol  4 query address  5 response address  6 query port  7 response port
//!          8, 9 query time  10 query  12, 13 response time  14 response
//! ```

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The one type of Dnstap that there is.
const MESSAGE: u64 = 1;

/// Octets that a message takes beside those of its DNS messages, identity and version, at most: addresses, and
/// numbers with their tags.
pub const OVERHEAD_MAX: usize = 128;

/// What a server says of one query or response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dnstap<'a> {
    /// Which server says it, by a name that its operator chose; may be empty.
    pub identity: &'a [u8],
    /// The server's program and its version; may be empty.
    pub version: &'a [u8],
    /// What it saw.
    pub message: Message<'a>,
}

/// A query or response that was seen, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message<'a> {
    /// What it is, and on which side of what program it was seen.
    pub kind: Kind,
    /// What it came over.
    pub protocol: Option<Protocol>,
    /// Who asks.
    pub query_address: Option<IpAddr>,
    /// Who answers.
    pub response_address: Option<IpAddr>,
    /// The asker's port.
    pub query_port: Option<u16>,
    /// The answerer's port.
    pub response_port: Option<u16>,
    /// When the query was seen.
    pub query_time: Option<Time>,
    /// The query as it was on the wire.
    pub query: Option<&'a [u8]>,
    /// When the response was seen.
    pub response_time: Option<Time>,
    /// The response as it was on the wire.
    pub response: Option<&'a [u8]>,
}

/// What a message is, by `dnstap.proto`'s number: queries are odd, responses even.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kind(pub u32);

impl Kind {
    /// A query that an authoritative server received.
    pub const AUTH_QUERY: Kind = Kind(1);
    /// A response that an authoritative server sent.
    pub const AUTH_RESPONSE: Kind = Kind(2);
    /// A query of a client that a server received which asks others for it.
    pub const CLIENT_QUERY: Kind = Kind(5);
    /// A response that such a server sent to a client.
    pub const CLIENT_RESPONSE: Kind = Kind(6);

    /// Who talks with whom, the same for its queries and its responses: from 0, in the order of `dnstap.proto`.
    pub fn conversation(self) -> u32 {
        self.0.saturating_sub(1) / 2
    }

    /// Whether it is a query; else it is a response.
    pub fn is_query(self) -> bool {
        self.0 % 2 == 1
    }
}

/// What a message came over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Datagrams.
    Udp = 1,
    /// A stream.
    Tcp = 2,
    /// DNS over TLS.
    Dot = 3,
    /// DNS over HTTPS.
    Doh = 4,
    /// DNSCrypt over UDP.
    DnscryptUdp = 5,
    /// DNSCrypt over TCP.
    DnscryptTcp = 6,
    /// DNS over QUIC.
    Doq = 7,
}

/// A Unix time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: u64,
    /// Nanoseconds, from 0 to 999,999,999.
    pub nanoseconds: u32,
}

/// Why octets are no dnstap message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// They are no protobuf message: a field breaks off or is of a type that there is not.
    Protobuf,
    /// A field that is used has another type than `dnstap.proto` gives it, or a value that it cannot have.
    Field(u32),
    /// There is no Message in it.
    NoMessage,
}

impl<'a> Dnstap<'a> {
    /// Reads a payload of a dnstap stream. Unknown fields are passed over; of one that comes twice the last counts.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(octets: &'a [u8]) -> Result<Dnstap<'a>, Malformed> {
        let (mut identity, mut version, mut message) = (&[][..], &[][..], None);
        each(octets, |tag, value| {
            match tag {
                1 => identity = value.octets(tag)?,
                2 => version = value.octets(tag)?,
                14 => message = Some(Message::read(value.octets(tag)?)?),
                15 if value.number(tag)? != MESSAGE => return Err(Malformed::Field(tag)),
                _ => {}
            }
            Ok(())
        })?;
        Ok(Dnstap { identity, version, message: message.ok_or(Malformed::NoMessage)? })
    }

    /// Appends the message; with `octets` of identity, version and DNS messages it takes at most
    /// [`OVERHEAD_MAX`] more.
    pub fn write(&self, out: &mut Vec<u8>) {
        for (tag, octets) in [(1, self.identity), (2, self.version)] {
            if !octets.is_empty() {
                push_octets(out, tag, octets);
            }
        }
        let start = out.len();
        self.message.write(out);
        let length = out.len() - start;
        // Its length comes before it, in as few octets as it takes.
        push_varint(out, 14 << 3 | LENGTH_DELIMITED);
        push_varint(out, length as u64);
        out[start..].rotate_left(length);
        push_number(out, 15, MESSAGE);
    }
}

impl<'a> Message<'a> {
    fn read(octets: &'a [u8]) -> Result<Message<'a>, Malformed> {
        let mut message = Message::default();
        each(octets, |tag, value| {
            match tag {
                1 => message.kind = Kind(value.u32(tag)?),
                3 => message.protocol = Protocol::of(value.number(tag)?),
                4 => message.query_address = Some(value.address(tag)?),
                5 => message.response_address = Some(value.address(tag)?),
                6 => message.query_port = Some(value.port(tag)?),
                7 => message.response_port = Some(value.port(tag)?),
                8 => message.query_time.get_or_insert_default().seconds = value.number(tag)?,
                9 => message.query_time.get_or_insert_default().nanoseconds = value.nanoseconds(tag)?,
                10 => message.query = Some(value.octets(tag)?),
                12 => message.response_time.get_or_insert_default().seconds = value.number(tag)?,
                13 => message.response_time.get_or_insert_default().nanoseconds = value.nanoseconds(tag)?,
                14 => message.response = Some(value.octets(tag)?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(message)
    }

    fn write(&self, out: &mut Vec<u8>) {
        push_number(out, 1, self.kind.0.into());
        if let Some(address) = self.query_address.or(self.response_address) {
            push_number(out, 2, if address.is_ipv4() { 1 } else { 2 });
        }
        if let Some(protocol) = self.protocol {
            push_number(out, 3, protocol as u64);
        }
        for (tag, address) in [(4, self.query_address), (5, self.response_address)] {
            match address {
                Some(IpAddr::V4(v4)) => push_octets(out, tag, &v4.octets()),
                Some(IpAddr::V6(v6)) => push_octets(out, tag, &v6.octets()),
                None => {}
            }
        }
        for (tag, port) in [(6, self.query_port), (7, self.response_port)] {
            if let Some(port) = port {
                push_number(out, tag, port.into());
            }
        }
        for (tag, time, message) in
            [(8, self.query_time, self.query), (12, self.response_time, self.response)]
        {
            if let Some(time) = time {
                push_number(out, tag, time.seconds);
                push_varint(out, u64::from(tag + 1) << 3 | FIXED_32);
                out.extend_from_slice(&time.nanoseconds.to_le_bytes());
            }
            if let Some(message) = message {
                push_octets(out, tag + 2, message);
            }
        }
    }
}

impl Protocol {
    /// The protocol of a number; none for those that were not defined when this was written.
    fn of(number: u64) -> Option<Protocol> {
        use Protocol::{DnscryptTcp, DnscryptUdp, Doh, Doq, Dot, Tcp, Udp};
        [Udp, Tcp, Dot, Doh, DnscryptUdp, DnscryptTcp, Doq].into_iter().find(|known| *known as u64 == number)
    }
}

// The types of protobuf's fields on the wire (protobuf.dev, "Encoding").
const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;
const FIXED_32: u64 = 5;

/// The most octets of a number: 64 bits, seven an octet.
const VARINT_MAX: usize = 10;

/// A field's value as it was on the wire.
#[derive(Clone, Copy)]
enum Value<'a> {
    Number(u64),
    Fixed32(u32),
    /// Used by no field that is read.
    Fixed64,
    Octets(&'a [u8]),
}

impl<'a> Value<'a> {
    fn number(self, tag: u32) -> Result<u64, Malformed> {
        match self {
            Value::Number(number) => Ok(number),
            _ => Err(Malformed::Field(tag)),
        }
    }

    fn u32(self, tag: u32) -> Result<u32, Malformed> {
        u32::try_from(self.number(tag)?).map_err(|_| Malformed::Field(tag))
    }

    fn port(self, tag: u32) -> Result<u16, Malformed> {
        u16::try_from(self.number(tag)?).map_err(|_| Malformed::Field(tag))
    }

    fn nanoseconds(self, tag: u32) -> Result<u32, Malformed> {
        match self {
            Value::Fixed32(nanoseconds @ 0..1_000_000_000) => Ok(nanoseconds),
            _ => Err(Malformed::Field(tag)),
        }
    }

    fn octets(self, tag: u32) -> Result<&'a [u8], Malformed> {
        match self {
            Value::Octets(octets) => Ok(octets),
            _ => Err(Malformed::Field(tag)),
        }
    }

    fn address(self, tag: u32) -> Result<IpAddr, Malformed> {
        let octets = self.octets(tag)?;
        let v4 = <[u8; 4]>::try_from(octets).map(|octets| IpAddr::V4(Ipv4Addr::from(octets)));
        let v6 = || <[u8; 16]>::try_from(octets).map(|octets| IpAddr::V6(Ipv6Addr::from(octets)));
        v4.or_else(|_| v6()).map_err(|_| Malformed::Field(tag))
    }
}

/// Calls `take` for each field of a message.
fn each<'a>(
    mut rest: &'a [u8],
    mut take: impl FnMut(u32, Value<'a>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    while !rest.is_empty() {
        let tag = varint(&mut rest)?;
        let number = u32::try_from(tag >> 3).map_err(|_| Malformed::Protobuf)?;
        let value = match tag & 7 {
            VARINT => Value::Number(varint(&mut rest)?),
            FIXED_32 => {
                let (octets, after) = rest.split_first_chunk().ok_or(Malformed::Protobuf)?;
                rest = after;
                Value::Fixed32(u32::from_le_bytes(*octets))
            }
            FIXED_64 => {
                (_, rest) = rest.split_first_chunk::<8>().ok_or(Malformed::Protobuf)?;
                Value::Fixed64
            }
            LENGTH_DELIMITED => {
                let length = usize::try_from(varint(&mut rest)?).map_err(|_| Malformed::Protobuf)?;
                let (octets, after) = rest.split_at_checked(length).ok_or(Malformed::Protobuf)?;
                rest = after;
                Value::Octets(octets)
            }
            _ => return Err(Malformed::Protobuf),
        };
        take(number, value)?;
    }
    Ok(())
}

fn varint(rest: &mut &[u8]) -> Result<u64, Malformed> {
    let mut number = 0;
    for (index, octet) in rest.iter().take(VARINT_MAX).enumerate() {
        // Bits above the 64th are dropped, as protobuf's own readers do.
        number |= u64::from(octet & 0x7f) << (7 * index);
        if octet & 0x80 == 0 {
            *rest = &rest[index + 1..];
            return Ok(number);
        }
    }
    Err(Malformed::Protobuf)
}

fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn push_number(out: &mut Vec<u8>, tag: u32, number: u64) {
    push_varint(out, u64::from(tag) << 3 | VARINT);
    push_varint(out, number);
}

fn push_octets(out: &mut Vec<u8>, tag: u32, octets: &[u8]) {
    push_varint(out, u64::from(tag) << 3 | LENGTH_DELIMITED);
    push_varint(out, octets.len() as u64);
    out.extend_from_slice(octets);
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Protobuf => f.write_str("no protobuf message"),
            Malformed::Field(tag) => write!(f, "a value of field {tag} that dnstap does not have"),
            Malformed::NoMessage => f.write_str("no message in it"),
        }
    }
}

impl std::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame_streams::{DNSTAP, Decoder, Next};
    use proptest::prelude::*;

    fn full() -> Dnstap<'static> {
        Dnstap {
            identity: b"ns1",
            version: b"pointsman 1",
            message: Message {
                kind: Kind::AUTH_RESPONSE,
                protocol: Some(Protocol::Tcp),
                query_address: Some("2001:db8::1".parse().unwrap()),
                response_address: Some("2001:db8::2".parse().unwrap()),
                query_port: Some(65_535),
                response_port: Some(53),
                query_time: Some(Time { seconds: u64::MAX, nanoseconds: 999_999_999 }),
                query: Some(&[0; 12]),
                response_time: Some(Time { seconds: 1, nanoseconds: 0 }),
                response: Some(&[1; 300]),
            },
        }
    }

    fn written(dnstap: &Dnstap<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        dnstap.write(&mut out);
        out
    }

    #[test]
    fn what_is_written_reads_back_and_is_as_short_as_said() {
        for dnstap in [full(), Dnstap::default()] {
            let octets = written(&dnstap);
            assert_eq!(Dnstap::read(&octets), Ok(dnstap));
            let message = dnstap.message;
            let given = [dnstap.identity, dnstap.version];
            let given = given.into_iter().chain(message.query).chain(message.response).map(<[u8]>::len);
            assert!(octets.len() <= given.sum::<usize>() + OVERHEAD_MAX, "{} octets", octets.len());
        }
    }

    #[test]
    fn what_is_no_dnstap_is_refused_by_cause() {
        let cases: [(&[u8], Malformed); 11] = [
            (&[], Malformed::NoMessage),
            (&[0x78, 1], Malformed::NoMessage),
            (&[0x78, 2], Malformed::Field(15)),
            (&[0x08, 1], Malformed::Field(1)),
            (&[0x72, 2, 0x08], Malformed::Protobuf),
            (&[0x72, 1, 0x08], Malformed::Protobuf),
            (&[0x73], Malformed::Protobuf),
            (&[0x80; 11], Malformed::Protobuf),
            (&[0x72, 5, 0x22, 3, 1, 2, 3], Malformed::Field(4)),
            (&[0x72, 4, 0x30, 0x80, 0x80, 0x04], Malformed::Field(6)),
            (&[0x72, 5, 0x4d, 0xff, 0xff, 0xff, 0xff], Malformed::Field(9)),
        ];
        for (octets, expected) in cases {
            assert_eq!(Dnstap::read(octets), Err(expected), "{octets:02x?}");
        }
    }

    #[test]
    fn unknown_fields_are_passed_over() {
        let mut octets = written(&full());
        octets.extend_from_slice(&[0x1a, 1, 9, 0xa9, 0x06, 1, 2, 3, 4, 5, 6, 7, 8, 0xad, 0x06, 1, 2, 3, 4]);
        assert_eq!(Dnstap::read(&octets), Ok(full()));
    }

    /// A file that another program wrote; see the design's table of data.
    #[test]
    fn a_captured_file_is_read_and_written_back_the_same() {
        let folder = std::env::var("POINTSMAN_DATA").map_or_else(
            |_| std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
            std::path::PathBuf::from,
        );
        let path = folder.join("replay/test.dnstap");
        let Ok(file) = std::fs::read(&path) else {
            println!("skipped: there is no {}", path.display());
            return;
        };
        let (mut decoder, mut rest, mut kinds) = (Decoder::new(DNSTAP), &file[..], Vec::new());
        while let Next::Payload(payload) = decoder.next(&mut rest).expect("a stream") {
            let read = Dnstap::read(payload).expect("a message");
            assert_eq!(written(&read), payload);
            let message = read.message;
            assert_eq!(message.kind.is_query(), message.query.is_some());
            assert_eq!(message.kind.is_query(), message.response.is_none());
            assert_eq!(message.protocol, Some(Protocol::Udp));
            assert!(message.query_address.is_some_and(|address| address.is_ipv4()));
            assert_eq!(
                message.query_time.or(message.response_time).unwrap().seconds >> 20,
                0x603e_6616 >> 20
            );
            kinds.push(message.kind);
        }
        assert!(rest.is_empty());
        assert_eq!(kinds.len(), 10);
    }

    proptest! {
        #[test]
        fn any_octets_are_read_without_panic(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Dnstap::read(&octets);
        }
    }
}
