//! Answers: whether a message is one to a query, and those that are made here, without a back end.

use std::net::IpAddr;

use dns::edns::UDP_PLAIN_PAYLOAD;
use dns::edns::{Edns, ExtendedError};
pub use dns::edns::{OPT, UDP_PAYLOAD};
use dns::query::{HEADER, TRUNCATED};
use dns::{Class, Rcode, Rtype};

/// What an answer of ours says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says<'a> {
    /// This response code.
    Rcode(Rcode),
    /// This response code, by the operator's will, which is said beside it (RFC 8914).
    Barred(Rcode, ExtendedError),
    /// Those of these addresses that are of the type that was asked for, by the operator's will; at most [`ADDRESSES_MAX`]
    /// of each family.
    Addresses(&'a [IpAddr]),
    /// These resolvers that speak encrypted, the data of SVCB records, to who asks [`DESIGNATED`] for them (RFC 9462 §4), and
    /// nothing to others; at most [`SERVICES_MAX`] octets with their heads.
    Services(&'a [Vec<u8>]),
    /// Ask again over TCP.
    Truncated,
}

/// The most addresses of one family in an answer of ours: as many as fit a datagram of 512 octets behind the longest name.
pub const ADDRESSES_MAX: usize = 8;

/// The TTL of addresses that an operator chose, in seconds: another choice is soon everywhere.
pub const ADDRESSES_TTL: u32 = 60;

/// The name that clients ask for resolvers that speak encrypted, folded and in wire form (RFC 9462 §4).
pub const DESIGNATED: &[u8] = b"\x04_dns\x08resolver\x04arpa\0";

/// The TTL of what is said of such resolvers, in seconds: so soon is another one known.
pub const SERVICES_TTL: u32 = 300;

/// The most octets of an answer of ours: what any client takes.
pub const OURS_MAX: usize = UDP_PLAIN_PAYLOAD as usize;

/// The octets of a record before its data, where its name is a pointer.
pub const RECORD_HEAD: usize = 12;

/// The most octets of records that tell of resolvers.
pub const SERVICES_MAX: usize = OURS_MAX - HEADER - DESIGNATED.len() - TYPE_AND_CLASS - OPT;

const TYPE_AND_CLASS: usize = 4;

/// Writes an answer to a query whose question ends at `question_end`, and returns its length. Who speaks
/// EDNS gets an OPT record (RFC 6891 §6.1.1), with DO as it was sent (RFC 3225 §3).
///
/// # Panics
/// Where `query` is shorter than the question's end, `out` than the answer, which has [`OURS_MAX`] octets at most, or the end is
/// within the header.
pub fn answer(
    query: &[u8],
    question_end: usize,
    edns: Option<&Edns>,
    id: u16,
    says: Says<'_>,
    out: &mut [u8],
) -> usize {
    out[..question_end].copy_from_slice(&query[..question_end]);
    out[..2].copy_from_slice(&id.to_be_bytes());
    // Opcode and RD are those of the query.
    out[2] = 0x80 | out[2] & 0x79;
    out[3] &= 0x10;
    let (mut count, mut end) = (0, question_end);
    let error = match says {
        Says::Rcode(rcode) => {
            out[3] |= rcode.to_int();
            None
        }
        Says::Truncated => {
            out[2] |= TRUNCATED;
            None
        }
        Says::Barred(rcode, error) => {
            out[3] |= available(out[2]) | rcode.to_int();
            Some(error)
        }
        Says::Addresses(addresses) => {
            out[3] |= available(out[2]);
            for record in of_addresses(&query[..question_end], addresses) {
                out[end..end + record.len()].copy_from_slice(&record);
                (count, end) = (count + 1, end + record.len());
            }
            Some(ExtendedError::ForgedAnswer)
        }
        Says::Services(services) => {
            out[3] |= available(out[2]);
            for record in of_services(&query[..question_end], services) {
                out[end..end + record.len()].copy_from_slice(&record);
                (count, end) = (count + 1, end + record.len());
            }
            None
        }
    };
    out[4..HEADER].copy_from_slice(&[0, 1, 0, count, 0, 0, 0, u8::from(edns.is_some())]);
    let Some(edns) = edns else { return end };
    let ([kind, class], dnssec_ok) =
        ([Rtype::OPT.to_int(), UDP_PAYLOAD].map(u16::to_be_bytes), if edns.dnssec_ok { 0x80 } else { 0 });
    let options_start = end + OPT;
    let options = error.map_or(0, |error| error.write(&mut out[options_start..]));
    let opt =
        [0, kind[0], kind[1], class[0], class[1], 0, dns::edns::VERSION, dnssec_ok, 0, 0, options as u8];
    out[end..options_start].copy_from_slice(&opt);
    options_start + options
}

/// How long an answer may be that is given as a datagram: what the client takes, and what no way breaks into pieces.
pub fn datagram_max(edns: Option<&Edns>) -> usize {
    let most = edns.map_or(UDP_PLAIN_PAYLOAD, |edns| edns.udp_payload_size);
    most.clamp(UDP_PLAIN_PAYLOAD, UDP_PAYLOAD).into()
}

/// RA where a header's flags have RD: a stub resolver may pass over an answer from where there is no recursion, and what is
/// answered in the place of a resolver is to look like its.
fn available(flags: u8) -> u8 {
    const RECURSION_DESIRED: u8 = 1;
    const RECURSION_AVAILABLE: u8 = 0x80;
    if flags & RECURSION_DESIRED == 0 { 0 } else { RECURSION_AVAILABLE }
}

/// Records of those of these addresses that are of the type, and class IN, that a query's question asks for at its end.
fn of_addresses<'a>(question: &[u8], addresses: &'a [IpAddr]) -> impl Iterator<Item = Vec<u8>> + use<'a> {
    let asked = asked(question);
    let of_family = addresses.iter().filter_map(move |address| {
        let (rtype, octets) = match address {
            IpAddr::V4(v4) => (Rtype::A, v4.octets().to_vec()),
            IpAddr::V6(v6) => (Rtype::AAAA, v6.octets().to_vec()),
        };
        (asked == (rtype, Class::IN)).then(|| record(rtype, ADDRESSES_TTL, &octets))
    });
    of_family.take(ADDRESSES_MAX)
}

/// Records of these services, where a query's question asks for them.
fn of_services<'a>(question: &[u8], services: &'a [Vec<u8>]) -> impl Iterator<Item = Vec<u8>> + use<'a> {
    // Rules are for names below, too, of which there are none.
    let is_theirs = question.len() == HEADER + DESIGNATED.len() + TYPE_AND_CLASS;
    let are_asked_for = is_theirs && asked(question) == (Rtype::SVCB, Class::IN);
    let services = if are_asked_for { services } else { &[] };
    services.iter().map(|data| record(Rtype::SVCB, SERVICES_TTL, data))
}

/// The type and the class at a question's end.
fn asked(question: &[u8]) -> (Rtype, Class) {
    let [type_high, type_low, class_high, class_low] = question.last_chunk().copied().unwrap_or([0; 4]);
    let class = Class::from_int(u16::from_be_bytes([class_high, class_low]));
    (Rtype::from_int(u16::from_be_bytes([type_high, type_low])), class)
}

/// A record of class IN whose name is the question's, right behind the header.
fn record(rtype: Rtype, ttl: u32, data: &[u8]) -> Vec<u8> {
    let [high, low] = rtype.to_int().to_be_bytes();
    let head = [0xc0, HEADER as u8, high, low, 0, 1];
    [&head[..], &ttl.to_be_bytes(), &(data.len() as u16).to_be_bytes(), data].concat()
}

/// Whether a response tells of the question that a query asked, which ends at `question_end`; ids are not looked at.
pub fn answers(reply: &[u8], query: &[u8], question_end: usize) -> bool {
    let Some(header) = reply.first_chunk::<HEADER>() else { return false };
    match u16::from_be_bytes([header[4], header[5]]) {
        _ if header[2] & 0xf8 != 0x80 => false,
        1 => reply
            .get(HEADER..question_end)
            .is_some_and(|told| is_same_question(told, &query[HEADER..question_end])),
        // Who cannot read a query says so without it, with EDNS at most; nobody can be sent elsewhere by that.
        0 => is_bare(header, &reply[HEADER..]) && !matches!(header[3] & 0x0f, 0 | 3),
        _ => false,
    }
}

/// The response code of a message that has a header.
pub fn rcode(message: &[u8]) -> Rcode {
    Rcode::masked_from_int(message.get(3).copied().unwrap_or(0) & 0x0f)
}

/// Whether a message without a question has nothing else either, but for an OPT record (RFC 6891 §6.1.2).
fn is_bare(header: &[u8; HEADER], rest: &[u8]) -> bool {
    // The name of the root and a type.
    const BEGIN_OF_OPT: [u8; 3] = [0, 0, 41];
    match header[6..] {
        [0, 0, 0, 0, 0, 0] => rest.is_empty(),
        [0, 0, 0, 0, 0, 1] => rest.starts_with(&BEGIN_OF_OPT),
        _ => false,
    }
}

/// Whether two questions are the same, but for the case of names (RFC 4343).
fn is_same_question(told: &[u8], asked: &[u8]) -> bool {
    let Some((told_name, told_type)) = told.split_last_chunk::<4>() else { return false };
    let Some((name, kind)) = asked.split_last_chunk::<4>() else { return false };
    // Lengths of labels are below every letter, so they are compared as they are.
    told_type == kind && told_name.eq_ignore_ascii_case(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::base::Message;

    #[test]
    fn addresses_are_of_the_family_that_was_asked_for_and_fit_any_datagram() {
        use domain::base::iana::Class;
        use domain::rdata::{A, Aaaa};
        // The longest name there is.
        let label = [&[63], &[b'a'; 63][..]].concat();
        let name = [label.repeat(3), [&[61], &[b'a'; 61][..]].concat(), vec![0]].concat();
        let addresses: Vec<IpAddr> = (0..=ADDRESSES_MAX as u8)
            .flat_map(|last| {
                [[192, 0, 2, last].into(), [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last].into()]
            })
            .collect();
        let mut out = [0; 512];
        for (rtype, class, count) in
            [(Rtype::A, 1, 8), (Rtype::AAAA, 1, 8), (Rtype::TXT, 1, 0), (Rtype::A, 3, 0)]
        {
            let head = [&[0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0], &name[..]].concat();
            let query = [&head[..], &rtype.to_int().to_be_bytes(), &[0, class]].concat();
            let edns = Edns::read(512, 0, &[]);
            let says = Says::Addresses(&addresses);
            let length = answer(&query, query.len(), edns.as_ref(), 1, says, &mut out);
            let message = Message::from_octets(&out[..length]).expect("a header");
            assert!(message.header().ra() && message.opt().is_some());
            let records = message.answer().expect("a section");
            let found: Vec<IpAddr> = records
                .map(|record| {
                    let record = record.expect("it is whole");
                    assert_eq!((record.class(), record.ttl().as_secs()), (Class::IN, ADDRESSES_TTL));
                    let v4 = record.to_record::<A>().expect("it can be read");
                    v4.map(|record| record.data().addr().into()).unwrap_or_else(|| {
                        let v6 = record.to_record::<Aaaa>().expect("it can be read").expect("one of both");
                        v6.data().addr().into()
                    })
                })
                .collect();
            let expected = addresses.iter().filter(|address| address.is_ipv4() == (rtype == Rtype::A));
            assert_eq!(found, expected.copied().take(count).collect::<Vec<_>>());
        }
        const AAAA: usize = RECORD_HEAD + 16;
        let behind = ADDRESSES_MAX * AAAA + OPT + ExtendedError::LENGTH;
        assert_eq!(HEADER + 255 + TYPE_AND_CLASS + behind, OURS_MAX);
    }

    #[test]
    fn resolvers_are_told_to_who_asks_for_them_by_their_name() {
        let services = vec![vec![0, 1, 0], vec![7; SERVICES_MAX - 2 * RECORD_HEAD - 3]];
        let mut out = [0; OURS_MAX];
        for (below, rtype, class, expected) in [
            (&b""[..], Rtype::SVCB, Class::IN, 2),
            (b"", Rtype::HTTPS, Class::IN, 0),
            (b"", Rtype::SVCB, Class::CH, 0),
            (b"\x01a", Rtype::SVCB, Class::IN, 0),
        ] {
            let head = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0";
            let (rtype, class) = (rtype.to_int().to_be_bytes(), class.to_int().to_be_bytes());
            let query = [head, below, DESIGNATED, &rtype, &class].concat();
            let edns = Edns::read(1232, 0, &[]);
            let said = Says::Services(&services);
            let length = answer(&query, query.len(), edns.as_ref(), 0x1234, said, &mut out);
            let message = Message::from_octets(&out[..length]).expect("a header");
            let (counts, header) = (message.header_counts(), message.header());
            assert_eq!((counts.ancount(), counts.arcount(), header.ra()), (expected, 1, true));
            assert_eq!(header.rcode(), Rcode::NOERROR);
            if expected > 0 {
                assert_eq!(length, OURS_MAX);
                assert_eq!(out[query.len()..][..15], *b"\xc0\x0c\0\x40\0\x01\0\0\x01\x2c\0\x03\0\x01\0");
            }
        }
    }

    #[test]
    fn the_question_is_echoed_and_that_edns_is_spoken() {
        let query = b"\x12\x34\x01\x10\0\x01\0\0\0\0\0\x01\x01a\0\0\x01\0\x01\0\0\x29\x04\xd0\0\0\0\0\0\0";
        let mut out = [0; 64];
        let (servfail, truncated) = (Says::Rcode(Rcode::SERVFAIL), Says::Truncated);
        let barred = Says::Barred(Rcode::NXDOMAIN, ExtendedError::Blocked);
        let edns = |flags| Edns::read(1232, flags, &[]);
        for (says, rcode, tc, edns) in [
            (servfail, Rcode::SERVFAIL, false, None),
            (truncated, Rcode::NOERROR, true, None),
            (servfail, Rcode::SERVFAIL, false, edns(0)),
            (truncated, Rcode::NOERROR, true, edns(0x8000)),
            (barred, Rcode::NXDOMAIN, false, None),
            (barred, Rcode::NXDOMAIN, false, edns(0)),
        ] {
            let length = answer(query, 19, edns.as_ref(), 0x4321, says, &mut out);
            let message = Message::from_octets(&out[..length]).expect("a header");
            let header = message.header();
            assert!(header.qr() && header.rd() && !header.aa() && header.tc() == tc);
            assert_eq!((header.id(), header.rcode()), (0x4321, rcode));
            assert_eq!(message.sole_question().expect("one").qname().to_string(), "a");
            let opt = message.opt().map(|opt| (opt.udp_payload_size(), opt.version(), opt.dnssec_ok()));
            assert_eq!(opt, edns.as_ref().map(|edns| (UDP_PAYLOAD, 0, edns.dnssec_ok)));
            let told: &[u8] = if says == barred { b"\0\x0f\0\x02\0\x0f" } else { b"" };
            assert_eq!(length, if edns.is_some() { 19 + OPT + told.len() } else { 19 });
            assert!(edns.is_none() || out[19 + OPT..length] == *told);
        }
    }
}
