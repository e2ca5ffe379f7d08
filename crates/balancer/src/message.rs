//! Answers that are made here, without a back end.

use dns::Rcode;
use dns::query::HEADER;

/// What an answer of ours says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// This response code.
    Rcode(Rcode),
    /// Ask again over TCP.
    Truncated,
}

/// Writes an answer without records to a query whose question ends at `question_end`, and returns its length.
///
/// # Panics
/// Where `query` or `out` is shorter than the question's end, or that is within the header.
pub fn answer(query: &[u8], question_end: usize, id: u16, says: Says, out: &mut [u8]) -> usize {
    out[..question_end].copy_from_slice(&query[..question_end]);
    out[..2].copy_from_slice(&id.to_be_bytes());
    // Opcode and RD are those of the query.
    out[2] = 0x80 | out[2] & 0x79;
    out[3] &= 0x10;
    match says {
        Says::Rcode(rcode) => out[3] |= rcode.to_int() & 0x0f,
        Says::Truncated => out[2] |= 0x02,
    }
    out[4..HEADER].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
    question_end
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::base::Message;

    #[test]
    fn the_question_is_echoed_and_nothing_else() {
        let query = b"\x12\x34\x01\x10\0\x01\0\0\0\0\0\x01\x01a\0\0\x01\0\x01\0\0\x29\x04\xd0\0\0\0\0\0\0";
        let mut out = [0; 64];
        for (says, rcode, tc) in
            [(Says::Rcode(Rcode::SERVFAIL), Rcode::SERVFAIL, false), (Says::Truncated, Rcode::NOERROR, true)]
        {
            let length = answer(query, 19, 0x4321, says, &mut out);
            let message = Message::from_octets(&out[..length]).expect("a header");
            let header = message.header();
            assert!(header.qr() && header.rd() && !header.aa() && header.tc() == tc);
            assert_eq!((header.id(), header.rcode()), (0x4321, rcode));
            assert_eq!(message.sole_question().expect("one").qname().to_string(), "a");
            assert_eq!(length, 19);
        }
    }
}
