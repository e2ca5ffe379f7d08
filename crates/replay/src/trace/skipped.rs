//! Why a packet gave no message.

use std::collections::BTreeMap;

/// Why a packet gave no message; in pieces, why a piece did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Skip {
    /// A block of pcapng of a type that is not known; no packet.
    Block,
    /// No packet of the trace: one that the capturing program says it or its system has dropped, or a message that it left out
    /// for its opcode.
    Dropped,
    /// A link type that is not read.
    Link,
    /// Neither IPv4 nor IPv6, such as ARP.
    Network,
    /// A link, IP, UDP or TCP header that is broken.
    Broken,
    /// Neither UDP nor TCP, such as ICMP.
    Protocol,
    /// Neither end is at the DNS port.
    OtherPort,
    /// The capture kept only a part of the packet (its snap length).
    Cut,
    /// Shorter than a DNS header.
    NotDns,
    /// A query from the DNS port elsewhere, or a response to it.
    WrongWay,
    /// A fragment whose datagram never became whole within 30 s, or came in more than 256 pieces.
    Fragment,
    /// A fragment of a datagram whose fragments contradict each other: with other octets in one place, or another end; of
    /// IPv6 also one that overlaps with another and is more than it (RFC 8200 §4.5). All of the datagram's count.
    FragmentConflict,
    /// A TCP segment without data, which opens, acknowledges or closes; also one that resets, whatever it says.
    NoData,
    /// A TCP segment or a fragment with nothing new.
    Repeated,
    /// A TCP segment that has other octets than were captured before in the same place.
    SegmentConflict,
    /// A TCP segment in the middle of a stream whose start is not in the capture.
    Stream,
    /// No packet: a gap in a TCP stream, up to the next message that begins, as one segment or more are not in the capture.
    /// What was in them is not known.
    Gap,
    /// A TCP segment behind a gap, with which no message begins; or one that fills it too late.
    AfterGap,
    /// No packet: a message in a TCP stream whose end is not in the capture, or came after its stream was given up for room.
    Unfinished,
    /// C-DNS or dnstap without the time of a message.
    NoTime,
    /// C-DNS or dnstap without the client's address.
    NoClient,
    /// C-DNS without name, type or class of the question.
    NoQuestion,
    /// C-DNS whose tables lack what a pair points at, or have something else there; dnstap that is no message.
    Damaged,
    /// A message that the writer of C-DNS could not read.
    Malformed,
}

/// The most that is counted of a cause, so that sums of counts fit: what a trace says of itself may be any number.
const COUNT_MAX: u64 = 1 << 48;

/// How often each cause came up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    pub(crate) counts: [u64; Skip::ALL.len()],
}

impl Skip {
    /// Every cause, in the order of its variants.
    pub const ALL: [Skip; 24] = [
        Skip::Block,
        Skip::Dropped,
        Skip::Link,
        Skip::Network,
        Skip::Broken,
        Skip::Protocol,
        Skip::OtherPort,
        Skip::Cut,
        Skip::NotDns,
        Skip::WrongWay,
        Skip::Fragment,
        Skip::FragmentConflict,
        Skip::NoData,
        Skip::Repeated,
        Skip::SegmentConflict,
        Skip::Stream,
        Skip::Gap,
        Skip::AfterGap,
        Skip::Unfinished,
        Skip::NoTime,
        Skip::NoClient,
        Skip::NoQuestion,
        Skip::Damaged,
        Skip::Malformed,
    ];

    /// The cause's key in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Skip::Block => "block",
            Skip::Dropped => "dropped",
            Skip::Link => "link",
            Skip::Network => "network",
            Skip::Broken => "broken",
            Skip::Protocol => "protocol",
            Skip::OtherPort => "other_port",
            Skip::Cut => "cut",
            Skip::NotDns => "not_dns",
            Skip::WrongWay => "wrong_way",
            Skip::Fragment => "fragment",
            Skip::FragmentConflict => "fragment_conflict",
            Skip::NoData => "no_data",
            Skip::Repeated => "repeated",
            Skip::SegmentConflict => "segment_conflict",
            Skip::Stream => "stream",
            Skip::Gap => "gap",
            Skip::AfterGap => "after_gap",
            Skip::Unfinished => "unfinished",
            Skip::NoTime => "no_time",
            Skip::NoClient => "no_client",
            Skip::NoQuestion => "no_question",
            Skip::Damaged => "damaged",
            Skip::Malformed => "malformed",
        }
    }

    /// The cause for people.
    pub fn description(self) -> &'static str {
        match self {
            Skip::Block => "blocks of unknown types",
            Skip::Dropped => "dropped while they were captured",
            Skip::Link => "of a link type that is not read",
            Skip::Network => "neither IPv4 nor IPv6",
            Skip::Broken => "with a broken header",
            Skip::Protocol => "neither UDP nor TCP",
            Skip::OtherPort => "at other ports",
            Skip::Cut => "cut by the capture's snap length",
            Skip::NotDns => "shorter than a DNS header",
            Skip::WrongWay => "queries from the DNS port, or responses to it",
            Skip::Fragment => "fragments without the rest",
            Skip::FragmentConflict => "fragments that contradict each other",
            Skip::NoData => "TCP segments without data",
            Skip::Repeated => "TCP segments or fragments sent again",
            Skip::SegmentConflict => "TCP segments sent again with other content",
            Skip::Stream => "TCP segments of streams without their start",
            Skip::Gap => "gaps in TCP streams",
            Skip::AfterGap => "TCP segments behind a gap, or too late for it",
            Skip::Unfinished => "TCP messages without their end",
            Skip::NoTime => "stored without time",
            Skip::NoClient => "stored without client address",
            Skip::NoQuestion => "stored without question",
            Skip::Damaged => "stored damaged",
            Skip::Malformed => "stored as malformed messages",
        }
    }
}

impl Skipped {
    /// Nothing came up.
    pub(super) const NONE: Skipped = Skipped { counts: [0; Skip::ALL.len()] };

    /// Every cause that came up, with how often.
    pub fn iter(&self) -> impl Iterator<Item = (Skip, u64)> {
        Skip::ALL.into_iter().zip(self.counts).filter(|(_, count)| *count > 0)
    }

    /// The same by the causes' keys in JSON.
    pub fn named(&self) -> BTreeMap<String, u64> {
        self.iter().map(|(skip, count)| (skip.name().into(), count)).collect()
    }

    /// How often this cause came up.
    pub fn of(&self, skip: Skip) -> u64 {
        self.counts[skip as usize]
    }

    pub(super) fn count(&mut self, skip: Skip) {
        self.add(skip, 1);
    }

    /// Counts so many, [`COUNT_MAX`] at most.
    pub(super) fn add(&mut self, skip: Skip, count: u64) {
        let counted = &mut self.counts[skip as usize];
        *counted = counted.saturating_add(count).min(COUNT_MAX);
    }

    pub(crate) fn merge(&mut self, other: &Skipped) {
        for (skip, count) in other.iter() {
            self.add(skip, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_own_count_and_name() {
        let mut skipped = Skipped::default();
        for (index, skip) in Skip::ALL.into_iter().enumerate() {
            assert_eq!(skip as usize, index, "{skip:?}");
            skipped.add(skip, index as u64 + 1);
        }
        assert!(skipped.iter().enumerate().all(|(index, (_, count))| count == index as u64 + 1));
        let mut names: Vec<&str> = Skip::ALL.map(Skip::name).into();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Skip::ALL.len());
    }
}
