//! What is read of a response.

use dns::Folded;
use dns::query::HEADER;

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

    #[test]
    fn a_response_is_matched_by_its_question() {
        let mut octets = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03WWW\x07example\0\0\x01\0\x01".to_vec();
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
        fn any_octets_are_read_without_panic(octets in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Response::read(&octets);
        }
    }
}
