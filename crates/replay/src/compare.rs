//! An answer held against the recorded one of the same query.

use std::collections::BTreeSet;

use domain::base::iana::Rtype;
use domain::base::message::RecordSection;
use domain::base::wire::ParseError;
use domain::base::{Message, ParsedName, Ttl};
use domain::rdata::ZoneRecordData;

use crate::trace::message::rcode;

/// What an answer is beside the recorded one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The same code and the same records.
    Same,
    /// Another response code, with the upper bits that EDNS has.
    Rcode,
    /// Other records in the answer section.
    Answer,
    /// Both have an empty answer section, and other NS records in the authority section.
    Referral,
    /// One of them is truncated, so that only the code could be compared, which is the same.
    Truncated,
    /// One of them cannot be read.
    Unreadable,
}

/// How often what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By [`Verdict::ALL`].
    pub verdicts: [u64; Verdict::ALL.len()],
    /// Answers to queries of which the trace has no response.
    pub unrecorded: u64,
}

impl Verdict {
    /// Every verdict.
    pub const ALL: [Verdict; 6] = [
        Verdict::Same,
        Verdict::Rcode,
        Verdict::Answer,
        Verdict::Referral,
        Verdict::Truncated,
        Verdict::Unreadable,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Same => "same",
            Verdict::Rcode => "rcode",
            Verdict::Answer => "answer",
            Verdict::Referral => "referral",
            Verdict::Truncated => "truncated",
            Verdict::Unreadable => "unreadable",
        }
    }

    /// Whether the answers differ: one that was truncated is not known to.
    pub fn is_difference(self) -> bool {
        !matches!(self, Verdict::Same | Verdict::Truncated)
    }
}

impl Counts {
    /// Counts a verdict; `None` where nothing was recorded.
    pub fn add(&mut self, verdict: Option<Verdict>) {
        match verdict {
            Some(verdict) => self.verdicts[verdict as usize] += 1,
            None => self.unrecorded += 1,
        }
    }
}

/// Compares two responses in wire form.
///
/// Records are sets: order, repetition and TTL make no difference, nor does case in names, of data as far as RFC 4034
/// §6.2 has it. Where neither has answers, the NS records of the authority section are compared, which is what a
/// referral says.
pub fn compare(recorded: &[u8], given: &[u8]) -> Verdict {
    let rcodes = [rcode(recorded), rcode(given)];
    let (Ok(recorded), Ok(given)) = (Message::from_slice(recorded), Message::from_slice(given)) else {
        return Verdict::Unreadable;
    };
    if rcodes[0] != rcodes[1] {
        return Verdict::Rcode;
    }
    if recorded.header().tc() || given.header().tc() {
        return Verdict::Truncated;
    }
    match (sets(recorded), sets(given)) {
        (Ok(recorded), Ok(given)) if recorded.answer != given.answer => Verdict::Answer,
        (Ok(recorded), Ok(given)) if recorded.answer.is_empty() && recorded.referral != given.referral => {
            Verdict::Referral
        }
        (Ok(_), Ok(_)) => Verdict::Same,
        _ => Verdict::Unreadable,
    }
}

struct Sets {
    answer: BTreeSet<Vec<u8>>,
    referral: BTreeSet<Vec<u8>>,
}

fn sets(message: &Message<[u8]>) -> Result<Sets, ParseError> {
    Ok(Sets {
        answer: records(message.answer()?, |_| true)?,
        referral: records(message.authority()?, |rtype| rtype == Rtype::NS)?,
    })
}

/// A section's records in canonical form, without their TTL.
fn records(
    section: RecordSection<'_, [u8]>,
    is_wanted: impl Fn(Rtype) -> bool,
) -> Result<BTreeSet<Vec<u8>>, ParseError> {
    let mut set = BTreeSet::new();
    for record in section.limit_to::<ZoneRecordData<_, ParsedName<_>>>() {
        let mut record = record?;
        if is_wanted(record.rtype()) {
            record.set_ttl(Ttl::ZERO);
            let mut canonical = Vec::new();
            record.compose_canonical(&mut canonical).unwrap_or_else(|infallible| match infallible {});
            set.insert(canonical);
        }
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// www.example. A, with these records behind the question: answers and authority.
    fn response(rcode: u8, counts: [u8; 2], records: &[u8]) -> Vec<u8> {
        let mut octets = b"\0\x07\x84\0\0\x01\0\0\0\0\0\0\x03www\x07example\0\0\x01\0\x01".to_vec();
        (octets[3], octets[7], octets[9]) = (rcode, counts[0], counts[1]);
        octets.extend(records);
        octets
    }

    const ONE: &[u8] = b"\xc0\x0c\0\x01\0\x01\0\0\0\x05\0\x04\xc0\0\x02\x01";
    const TWO: &[u8] = b"\xc0\x0c\0\x01\0\x01\0\0\0\x05\0\x04\xc0\0\x02\x02";
    /// The first with another TTL, and its name written out in other case.
    const ONE_AGAIN: &[u8] = b"\x03WWW\x07eXample\0\0\x01\0\x01\0\0\x01\0\0\x04\xc0\0\x02\x01";
    const CNAME: &[u8] = b"\xc0\x0c\0\x05\0\x01\0\0\0\x05\0\x04\x01b\xc0\x10";
    const CNAME_AGAIN: &[u8] = b"\xc0\x0c\0\x05\0\x01\0\0\0\x09\0\x0b\x01B\x07EXAMPLE\0";
    const NS: &[u8] = b"\xc0\x10\0\x02\0\x01\0\0\0\x05\0\x04\x01b\xc0\x10";
    const NS_OTHER: &[u8] = b"\xc0\x10\0\x02\0\x01\0\0\0\x05\0\x04\x01c\xc0\x10";

    /// The same with an OPT record that has these upper bits of the code (RFC 6891 §6.1.3).
    fn extended(mut octets: Vec<u8>, upper: u8) -> Vec<u8> {
        octets[11] = 1;
        octets.extend([0, 0, 41, 4, 208, upper, 0, 0, 0, 0, 0]);
        octets
    }

    #[test]
    fn answers_are_compared_as_sets() {
        let none = response(0, [0, 0], &[]);
        let mut cut = response(0, [0, 0], &[]);
        cut[2] |= 2;
        let both = [ONE, TWO].concat();
        for (recorded, given, expected) in [
            (response(0, [1, 0], ONE), response(0, [1, 0], ONE), Verdict::Same),
            (response(0, [1, 0], ONE), response(0, [1, 0], ONE_AGAIN), Verdict::Same),
            (response(0, [2, 0], &both), response(0, [2, 0], &[TWO, ONE_AGAIN].concat()), Verdict::Same),
            (response(0, [1, 0], CNAME), response(0, [1, 0], CNAME_AGAIN), Verdict::Same),
            (response(0, [1, 0], ONE), response(0, [1, 0], TWO), Verdict::Answer),
            (response(0, [2, 0], &both), response(0, [1, 0], ONE), Verdict::Answer),
            (response(0, [1, 0], ONE), none.clone(), Verdict::Answer),
            (none.clone(), response(3, [0, 0], &[]), Verdict::Rcode),
            (none.clone(), extended(none.clone(), 0), Verdict::Same),
            (none.clone(), extended(none.clone(), 1), Verdict::Rcode),
            // YXRRSET and BADCOOKIE, which the header does not tell apart.
            (extended(response(7, [0, 0], &[]), 0), extended(response(7, [0, 0], &[]), 1), Verdict::Rcode),
            (response(0, [0, 1], NS), response(0, [0, 1], NS_OTHER), Verdict::Referral),
            (response(0, [0, 1], NS), response(0, [0, 1], NS), Verdict::Same),
            // With answers, the authority section is the server's own matter.
            (response(0, [1, 1], &[ONE, NS].concat()), response(0, [1, 0], ONE), Verdict::Same),
            (cut.clone(), response(0, [1, 0], ONE), Verdict::Truncated),
            (cut, response(2, [0, 0], &[]), Verdict::Rcode),
            (response(0, [1, 0], &ONE[..9]), response(0, [1, 0], ONE), Verdict::Unreadable),
            (none, vec![0; 5], Verdict::Unreadable),
        ] {
            assert_eq!(compare(&recorded, &given), expected, "{recorded:?} {given:?}");
            assert_eq!(compare(&given, &recorded), expected, "the other way round");
        }
        for (at, verdict) in Verdict::ALL.into_iter().enumerate() {
            assert_eq!(verdict as usize, at);
        }
    }

    proptest! {
        #[test]
        fn any_octets_are_compared_without_panic(
            tail in prop::collection::vec(any::<u8>(), 0..80), counts in any::<[u8; 2]>(),
        ) {
            let one = response(0, counts, &tail);
            let found = compare(&one, &one);
            prop_assert!(matches!(found, Verdict::Same | Verdict::Unreadable), "{found:?}");
            let _ = compare(&tail, &one);
        }
    }
}
