//! What a worker counts: plain cells that only one thread writes, read by whoever asks.

use dns::Rtype;
use dns::query::HEADER;
use net::count::Count;

use crate::answer::Why;
use crate::rate_limit::Verdict;
use crate::routed::{Routed, RoutedCounters};

/// How many response codes are told apart: from NOERROR to BADCOOKIE (23), the greatest that we give.
pub const RCODES: usize = 24;

/// The types of questions that are counted by name; all others are together in the class behind them, and
/// answers without a question in the last.
pub const TYPES: [Rtype; 15] = [
    Rtype::A,
    Rtype::NS,
    Rtype::CNAME,
    Rtype::SOA,
    Rtype::PTR,
    Rtype::MX,
    Rtype::TXT,
    Rtype::AAAA,
    Rtype::SRV,
    Rtype::NAPTR,
    Rtype::DS,
    Rtype::DNSKEY,
    Rtype::SVCB,
    Rtype::HTTPS,
    Rtype::ANY,
];

/// How many classes of types there are: each of [`TYPES`], others, and none.
pub const TYPE_CLASSES: usize = TYPES.len() + 2;

/// The upper bounds of how long changes took, in microseconds: from what a commit takes on a fast disk to the time after
/// which a change is answered unfinished.
pub const UPDATES_US: [u64; 12] =
    [500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 5_000_000];

/// One worker's counts since start.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Counters {
    /// Messages that came in.
    pub queries: Count,
    /// Answers: whole ones first, then those with TC set; each by the class of its question's type, in the order of
    /// [`TYPES`], and by the response code.
    pub answers: [[[Count; RCODES]; TYPE_CLASSES]; 2],
    /// Answers that policies decided.
    pub routed: RoutedCounters,
    /// Queries that were answered by a stream of messages: transfers.
    pub streamed: Count,
    /// Messages that were no query: shorter than a header, or responses.
    pub no_query: Count,
    /// Queries whose question did not fit what may be sent back.
    pub no_room: Count,
    /// Answers over the rate that were dropped.
    pub rate_limited: Count,
    /// Answers over the rate that went out without their records.
    pub rate_slipped: Count,
    /// Answers that no rate limits, for their clients' cookies are valid.
    pub rate_exempt: Count,
    /// Answers that the system did not take.
    pub send_failed: Count,
    /// Messages for dnstap that its ring had no room for.
    pub tap_full: Count,
    /// Batches that were received.
    pub batches: Count,
    /// Queries that made the code panic; each was dropped.
    pub panicked: Count,
}

impl Counters {
    /// Counts an answer by its own header and question, and by what a policy decided.
    #[inline]
    pub fn answered(&self, message: &[u8], routed: [Option<Routed>; 2]) {
        if let Some(header) = message.first_chunk::<HEADER>() {
            let is_truncated = header[2] >> 1 & 1;
            let (class, end) = question(message, header);
            let rcode = usize::from(upper_rcode(message, header, end) << 4 | header[3] & 0x0f);
            if let Some(count) = self.answers[usize::from(is_truncated)][class].get(rcode) {
                count.add(1);
            }
        }
        for routed in routed.into_iter().flatten() {
            self.routed.add(routed);
        }
    }

    /// Counts a message that gets no answer.
    #[inline]
    pub fn dropped(&self, why: Why) {
        match why {
            Why::NoQuery => self.no_query.add(1),
            Why::NoRoom => self.no_room.add(1),
            Why::RateLimited => self.rate_limited.add(1),
        }
    }

    /// Counts what response rate limiting said of an answer; one that it drops is counted as dropped.
    #[inline]
    pub fn rated(&self, verdict: Verdict) {
        match verdict {
            Verdict::Within | Verdict::Drop => {}
            Verdict::Exempt => self.rate_exempt.add(1),
            Verdict::Slip => self.rate_slipped.add(1),
        }
    }
}

/// The name of a class of types: the type's, `other` or `none`.
pub fn type_name(class: usize) -> String {
    match TYPES.get(class) {
        // `domain` shows it as * in some places.
        Some(&Rtype::ANY) => "ANY".into(),
        Some(rtype) => rtype.to_string(),
        None if class == TYPES.len() => "other".into(),
        None => "none".into(),
    }
}

/// The class of the type that a response's question asks for, and where the question ends. We wrote it: its name is
/// whole and not compressed.
#[inline]
fn question(message: &[u8], header: &[u8; HEADER]) -> (usize, usize) {
    let mut at = HEADER;
    if header[4..6] == [0, 0] {
        return (TYPES.len() + 1, at);
    }
    while let Some(&length @ 1..) = message.get(at) {
        at += 1 + usize::from(length);
    }
    match message.get(at + 1..at + 5) {
        Some(&[high, low, ..]) => {
            let asked = Rtype::from_int(u16::from_be_bytes([high, low]));
            (TYPES.iter().position(|rtype| *rtype == asked).unwrap_or(TYPES.len()), at + 5)
        }
        _ => (TYPES.len() + 1, at),
    }
}

/// The upper bits of a response code, which the OPT record has (RFC 6891 §6.1.3). We wrote it: answers with such a
/// code have no record before their OPT.
#[inline]
fn upper_rcode(message: &[u8], header: &[u8; HEADER], question_end: usize) -> u8 {
    let [high, low] = Rtype::OPT.to_int().to_be_bytes();
    match message.get(question_end..question_end + 6) {
        Some(&[0, first, second, _, _, upper])
            if header[6..10] == [0; 4] && [first, second] == [high, low] =>
        {
            upper
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_rcode_type_and_truncation() {
        let answer = |flags: [u8; 2], question: &[u8]| {
            [&[0, 0, flags[0], flags[1], 0, 1, 0, 0, 0, 0, 0, 0], question].concat()
        };
        let opt = |upper: u8| [0, 0, 41, 4, 0xd0, upper, 0, 0, 0, 0, 0];
        let with = |mut message: Vec<u8>, upper: u8| {
            message[11] = 1;
            [message, opt(upper).to_vec()].concat()
        };
        let alone = |upper: u8, flags: u8| with([&[0, 0, 0x80, flags][..], &[0; 8]].concat(), upper);
        let mut referral = with(answer([0x80, 7], b"\0\0\x02\0\x01"), 1);
        referral[9] = 1;
        let cases: [(Vec<u8>, usize, &str, usize); 12] = [
            (answer([0x84, 0], b"\x03www\0\0\x01\0\x01rest"), 0, "A", 0),
            (answer([0x86, 3], b"\0\0\x1c\0\x01"), 3, "AAAA", 1),
            (answer([0x80, 5], b"\0\0\xff\0\x01"), 5, "ANY", 0),
            (answer([0x80, 0], b"\0\x80\x01\0\x01"), 0, "other", 0),
            (answer([0x80, 1], b""), 1, "none", 0),
            ([&[0, 0, 0x80, 4][..], &[0; 8]].concat(), 4, "none", 0),
            (with(answer([0x80, 3], b"\0\0\x1c\0\x01"), 0), 3, "AAAA", 0),
            (with(answer([0x80, 0], b"\0\0\x06\0\x01"), 1), 16, "SOA", 0),
            (with(answer([0x80, 7], b"\x03www\0\0\x01\0\x01"), 1), 23, "A", 0),
            (alone(0, 0), 0, "none", 0),
            (alone(1, 7), 23, "none", 0),
            (referral, 7, "NS", 0),
        ];
        for (message, rcode, name, truncated) in cases {
            let counters = Counters::default();
            counters.answered(&message, [None; 2]);
            let counted: Vec<String> = (0..TYPE_CLASSES)
                .filter(|class| counters.answers[truncated][*class][rcode].get() == 1)
                .map(type_name)
                .collect();
            assert_eq!(counted, [name], "{message:02x?}");
            let all = counters.answers.iter().flatten().flatten();
            assert_eq!(all.map(Count::get).sum::<u64>(), 1, "{message:02x?}");
        }
    }
}
