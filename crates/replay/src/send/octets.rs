//! Messages as they are sent and as they come back: what is changed in a query, what is read of a response.

use std::net::IpAddr;

use dns::edns::ClientSubnet;
use dns::name::NAME_MAX;
use dns::query::HEADER;
use dns::{Folded, Query, Rtype};

/// The UDP payload that a query without EDNS announces when it is given a client subnet (RFC 9715 §3.2).
const UDP_PAYLOAD: u16 = 1232;

/// Octets of an OPT record without options: root, type, class, TTL, length.
const OPT_HEAD: usize = 11;

/// The bits of an address that client subnet tells (RFC 7871 §11.1).
const SUBNET_BITS: [u8; 2] = [24, 56];

/// Puts a label in front of the asked name, so that a copy of a client asks for names of its own.
///
/// Names are `label.` and the asked name; false, and nothing changed, where that has no room or the question cannot
/// be read. Records behind the question whose names point into it would be shifted: a query with such is left alone.
pub(super) fn label(octets: &mut Vec<u8>, label: &str) -> bool {
    let mut name = Folded::root();
    let Ok(query) = Query::read(octets, &mut name) else { return false };
    let room = query.name.wire_length() + 1 + label.len() <= NAME_MAX;
    let has_pointers =
        octets[query.head.len()..].iter().any(|octet| *octet >= 0xc0) && !is_opt_alone(octets, &query);
    if !room || has_pointers {
        return false;
    }
    let label = std::iter::once(label.len() as u8).chain(label.bytes());
    octets.splice(HEADER..HEADER, label);
    true
}

/// Tells a client's address in client subnet (RFC 7871), cut to 24 or 56 bits; false, and nothing changed, where the
/// query tells one already, cannot be read, or has records behind its OPT.
pub(super) fn subnet(octets: &mut Vec<u8>, client: IpAddr) -> bool {
    let mut name = Folded::root();
    let Ok(query) = Query::read(octets, &mut name) else { return false };
    let mut option = [0; ClientSubnet::WRITTEN_MAX];
    let bits = SUBNET_BITS[usize::from(client.is_ipv6())];
    let Some(length) = ClientSubnet::new(client, bits).write(0, &mut option) else { return false };
    let option = &option[..length];
    match query.edns {
        Some(edns) if edns.client_subnet.is_some() || !is_opt_alone(octets, &query) => return false,
        Some(_) => {
            let at = query.head.len() + OPT_HEAD - 2;
            let rdata = u16::from_be_bytes([octets[at], octets[at + 1]]);
            let Some(rdata) = rdata.checked_add(length as u16) else { return false };
            octets[at..at + 2].copy_from_slice(&rdata.to_be_bytes());
        }
        None if query.head.len() != octets.len() => return false,
        None => {
            octets[HEADER - 1] = 1;
            octets.extend([0, 0, Rtype::OPT.to_int() as u8]);
            octets.extend(UDP_PAYLOAD.to_be_bytes());
            octets.extend([0; 4]);
            octets.extend((length as u16).to_be_bytes());
        }
    }
    octets.extend(option);
    true
}

/// Whether an OPT record is all that stands behind the question.
fn is_opt_alone(octets: &[u8], query: &Query<'_>) -> bool {
    let behind = &octets[query.head.len()..];
    query.edns.is_some()
        && octets[6..HEADER] == [0, 0, 0, 0, 0, 1]
        && behind.len() >= OPT_HEAD
        && usize::from(u16::from_be_bytes([behind[OPT_HEAD - 2], behind[OPT_HEAD - 1]])) + OPT_HEAD
            == behind.len()
}

/// What is read of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Response {
    /// The id.
    pub(super) id: u16,
    /// The response code of the header.
    pub(super) rcode: u8,
    /// Whether it was cut (TC).
    pub(super) is_truncated: bool,
    /// The question, as [`question`] has it.
    pub(super) question: Option<u64>,
}

impl Response {
    /// Reads a response; `None` where the octets are none.
    pub(super) fn read(octets: &[u8]) -> Option<Response> {
        let header = octets.first_chunk::<HEADER>()?;
        (header[2] & 0x80 != 0).then(|| Response {
            id: u16::from_be_bytes([header[0], header[1]]),
            rcode: header[3] & 0x0f,
            is_truncated: header[2] & 0x02 != 0,
            question: question(octets),
        })
    }

    /// Whether it may answer a query with this question; one without a question (FORMERR) may answer any.
    pub(super) fn answers(&self, question: Option<u64>) -> bool {
        self.question.is_none() || question.is_none() || self.question == question
    }
}

/// A hash of the first question, without regard to case; `None` where there is none that can be read.
pub(super) fn question(octets: &[u8]) -> Option<u64> {
    let counted = octets.get(4..6)?;
    if counted == [0, 0] {
        return None;
    }
    let name = Folded::read(octets.get(HEADER..)?)?;
    let end = HEADER + name.wire_length();
    let kind = octets.get(end..end + 4)?;
    // FNV-1a: short, and the same everywhere.
    let hash = name.wire().iter().chain(kind).fold(0xcbf2_9ce4_8422_2325_u64, |hash, octet| {
        (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3)
    });
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn asked(edns: bool) -> Vec<u8> {
        let mut octets = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03WWW\x07example\0\0\x01\0\x01".to_vec();
        if edns {
            octets[11] = 1;
            octets.extend(b"\0\0\x29\x10\0\0\0\x80\0\0\0");
        }
        octets
    }

    #[test]
    fn a_label_goes_in_front() {
        for edns in [false, true] {
            let mut octets = asked(edns);
            assert!(label(&mut octets, "c1z"));
            let mut name = Folded::root();
            let query = Query::read(&octets, &mut name).expect("a query");
            assert_eq!(query.name.wire(), b"\x03c1z\x03www\x07example\0");
            assert_eq!(query.edns.is_some(), edns);
        }
        let mut long = asked(false);
        let labels: Vec<u8> =
            std::iter::repeat_n([&[63_u8][..], &[b'a'; 63]].concat(), 3).flatten().collect();
        long.splice(HEADER..HEADER, [&[45][..], &[b'b'; 45], &labels].concat());
        let before = long.clone();
        assert!(!label(&mut long, "copy12") && long == before);
        assert!(!label(&mut vec![0; 5], "c1"));
    }

    #[test]
    fn a_client_subnet_is_told_once() {
        for edns in [false, true] {
            let mut octets = asked(edns);
            assert!(subnet(&mut octets, "192.0.2.77".parse().unwrap()));
            let mut name = Folded::root();
            let told = Query::read(&octets, &mut name).expect("a query").edns.expect("an OPT");
            assert_eq!(told.dnssec_ok, edns);
            assert_eq!(told.client_subnet, Some(ClientSubnet::new("192.0.2.0".parse().unwrap(), 24)));
            assert!(!subnet(&mut octets, "192.0.2.77".parse().unwrap()));
        }
    }

    #[test]
    fn a_response_is_matched_by_its_question() {
        let mut octets = asked(false);
        assert_eq!(Response::read(&octets), None);
        let ours = question(&octets);
        octets[2] |= 0x82;
        octets[3] |= 3;
        octets[HEADER + 1].make_ascii_lowercase();
        let response = Response::read(&octets).expect("a response");
        assert_eq!((response.id, response.rcode, response.is_truncated), (0x1234, 3, true));
        assert!(response.answers(ours) && response.answers(None));
        octets[HEADER + 1] = b'x';
        assert!(!Response::read(&octets).expect("a response").answers(ours));
        octets[5] = 0;
        assert!(Response::read(&octets).expect("a response").answers(ours), "FORMERR has no question");
    }

    proptest! {
        #[test]
        fn any_octets_are_read_and_changed_without_panic(octets in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Response::read(&octets);
            let _ = label(&mut octets.clone(), "c1");
            let _ = subnet(&mut octets.clone(), [192, 0, 2, 1].into());
        }
    }
}
