//! What is read of a response.

use dns::OptRcode;
use dns::query::{HEADER, TRUNCATED};

use crate::trace::message::{question, rcode};

/// What is read of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Response {
    /// The id.
    pub(super) id: u16,
    /// Its length in octets.
    pub(super) length: u64,
    /// The response code, with the upper bits that EDNS has.
    pub(super) rcode: OptRcode,
    /// Whether it was cut (TC).
    pub(super) is_truncated: bool,
    /// The question, as [`mod@crate::trace::message`] hashes it.
    pub(super) question: Option<u64>,
    /// All of it, where that is asked for.
    pub(super) octets: Option<Box<[u8]>>,
}

impl Response {
    /// Reads a response, and keeps its octets if so told; `None` where the octets are none.
    pub(super) fn read(octets: &[u8], is_kept: bool) -> Option<Response> {
        let header = octets.first_chunk::<HEADER>()?;
        (header[2] & 0x80 != 0).then(|| Response {
            id: u16::from_be_bytes([header[0], header[1]]),
            length: octets.len() as u64,
            rcode: rcode(octets),
            is_truncated: header[2] & TRUNCATED != 0,
            question: question(octets),
            octets: is_kept.then(|| octets.into()),
        })
    }

    /// Whether it may answer a query with this question; one without a question (FORMERR) may answer any.
    pub(super) fn answers(&self, question: Option<u64>) -> bool {
        self.question.is_none() || question.is_none() || self.question == question
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_response_is_matched_by_its_question() {
        let mut octets = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03WWW\x07example\0\0\x01\0\x01".to_vec();
        assert_eq!(Response::read(&octets, false), None);
        let ours = question(&octets);
        octets[2] |= 0x82;
        octets[3] |= 3;
        octets[HEADER + 1].make_ascii_lowercase();
        let response = Response::read(&octets, false).expect("a response");
        assert_eq!((response.id, response.rcode, response.is_truncated), (0x1234, OptRcode::NXDOMAIN, true));
        let mut bad_cookie = octets.clone();
        (bad_cookie[3], bad_cookie[11]) = (7, 1);
        bad_cookie.extend([0, 0, 41, 4, 208, 1, 0, 0, 0, 0, 0]);
        assert_eq!(Response::read(&bad_cookie, false).expect("a response").rcode, OptRcode::BADCOOKIE);
        assert!(response.answers(ours) && response.answers(None));
        octets[HEADER + 1] = b'x';
        assert!(!Response::read(&octets, false).expect("a response").answers(ours));
        octets[5] = 0;
        assert!(Response::read(&octets, false).expect("a response").answers(ours), "FORMERR has no question");
    }

    proptest! {
        #[test]
        fn any_octets_are_read_without_panic(octets in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Response::read(&octets, false);
        }
    }
}
