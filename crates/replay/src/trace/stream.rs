//! One direction of a TCP connection: pieces put in order, messages cut out.
//!
//! What was captured first in a place holds: it is what the receiver took, unless it was lost on its way to him. A piece that
//! has something else there is left out whole, since what follows in it would be read as the end of another message.

use std::time::Duration;

use dns::query::HEADER;
use dns::{Class, Folded, Opcode};
use net::framing;

use super::packet::Piece;
use super::skipped::{Skip, Skipped};

/// How far a stream's pieces may be ahead of what is missing, in octets: as much as one message.
const AHEAD_MAX: usize = 65_535;

/// How far a piece that is sent again may be behind what was read, in octets: what may be under way without window scaling
/// (RFC 7323 §2). What is further behind and begins a message is of another connection.
const BEHIND_MAX: i32 = 65_535;

/// How many pieces of a stream may be ahead of what is missing. One more may be held while it is decided what goes.
const PIECES_MAX: usize = 64;

/// What a piece takes beside its octets, in octets, about.
const PIECE_COST: usize = 128;

/// How many of the octets that were read are kept, to see whether what is sent again is the same: as many as most queries
/// have; of a response, its end.
const READ_MAX: usize = 256;

/// Flags of a header (RFC 1035 §4.1.1, RFC 4035 §3).
const QR: u16 = 0x8000;
const RD: u16 = 0x0100;
const AD: u16 = 0x0020;
const CD: u16 = 0x0010;

/// The octets of the shortest record: the root's name, type, class, TTL and length (RFC 1035 §3.2.1).
const RECORD_MIN: usize = 11;

/// The most of a message that [`begins_message`] looks at: its length, header and question.
const LOOKED_AT: usize = framing::PREFIX_LEN + HEADER + dns::name::NAME_MAX + 4;

/// A stream.
pub(super) struct Stream {
    sender: Sender,
    /// SYN's sequence number, where it was seen.
    first: Option<u32>,
    place: Place,
    /// The last octets that were read before the place.
    read: Vec<u8>,
    /// Whether there were more where the capture has cut them.
    is_cut: bool,
    /// The gap that was passed last, from here to there.
    gap: Option<(u32, u32)>,
    /// How far the stream has come at least, by a piece without octets.
    reached: Option<u32>,
    /// The beginning of a message.
    begun: Vec<u8>,
    /// Pieces that came before what stands before them.
    ahead: Vec<Ahead>,
}

/// Who sends a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    Client,
    Server,
    /// Both ends are at the port where servers listen.
    Either,
}

/// Where in the stream a reader is.
#[derive(Clone, Copy)]
enum Place {
    /// The start is not in the capture, and no message has begun since.
    Unknown,
    /// Before the octet of this sequence number.
    At(u32),
    /// Behind a gap that begins at this sequence number; no message has begun since.
    Lost(u32),
}

/// A piece that came before what stands before it.
struct Ahead {
    sequence: u32,
    time: Duration,
    octets: Vec<u8>,
    /// Whether it is counted already, as cut.
    is_cut: bool,
}

impl Stream {
    pub(super) fn new(sender: Sender) -> Stream {
        Stream {
            sender,
            first: None,
            place: Place::Unknown,
            read: Vec::new(),
            is_cut: false,
            gap: None,
            reached: None,
            begun: Vec::new(),
            ahead: Vec::new(),
        }
    }

    /// Adds a piece, and gives the messages that are whole with it, each with its time.
    pub(super) fn add(
        &mut self,
        time: Duration,
        piece: &Piece<'_>,
        skipped: &mut Skipped,
        take: &mut dyn FnMut(Duration, &[u8]),
    ) {
        // What was cut off comes never, or is sent again: it is waited for as anything else. The piece counts once.
        let or_cut = |skip| if piece.is_cut { Skip::Cut } else { skip };
        if piece.is_reset {
            return skipped.count(or_cut(Skip::NoData));
        }
        let (mut sequence, octets) = (piece.sequence, piece.octets);
        if piece.is_first {
            // The same SYN once more is of the same connection; another begins the next, on the same ports.
            if self.first != Some(sequence) {
                self.begin_anew().finish(skipped, take);
                self.first = Some(sequence);
                self.place = Place::At(sequence.wrapping_add(1));
            }
            sequence = sequence.wrapping_add(1);
        }
        if octets.is_empty() {
            self.reach(sequence);
            return skipped.count(or_cut(Skip::NoData));
        }
        let next = match self.find(sequence, octets, skipped, take) {
            Ok(next) => next,
            Err(skip) => return skipped.count(or_cut(skip)),
        };
        if self.contradicts(sequence, octets, next) {
            return skipped.count(Skip::SegmentConflict);
        }
        if distance(sequence, next) > 0 {
            skipped.add(Skip::Cut, piece.is_cut.into());
            let ahead = Ahead { sequence, time, octets: octets.to_vec(), is_cut: piece.is_cut };
            return self.keep(ahead, skipped, take);
        }
        match fresh(sequence, octets, next) {
            [] => skipped.count(or_cut(self.old(sequence, octets))),
            fresh => {
                skipped.add(Skip::Cut, piece.is_cut.into());
                self.append(fresh, piece.is_cut, time, take);
                self.append_ahead(time, skipped, take);
            }
        }
    }

    /// Whether a piece that came at `time` waits for what stands before it.
    pub(super) fn waits_since(&self, time: Duration) -> bool {
        self.ahead.iter().any(|ahead| ahead.time == time)
    }

    /// Waits no longer for what is missing before pieces that came at `time` or earlier.
    pub(super) fn go_on(
        &mut self,
        time: Duration,
        skipped: &mut Skipped,
        take: &mut dyn FnMut(Duration, &[u8]),
    ) {
        while self.ahead.iter().any(|ahead| ahead.time <= time) {
            self.pass_gap(skipped, take);
        }
    }

    /// Gives the messages behind gaps, and counts what never became whole.
    pub(super) fn finish(mut self, skipped: &mut Skipped, take: &mut dyn FnMut(Duration, &[u8])) {
        while !self.ahead.is_empty() {
            self.pass_gap(skipped, take);
        }
        skipped.add(Skip::Unfinished, (!self.begun.is_empty()).into());
        // FIN has a number of its own.
        let is_behind = |next, reached| distance(reached, next) > 1 && !self.is_cut;
        if let (Place::At(next), Some(reached)) = (self.place, self.reached) {
            skipped.add(Skip::Gap, is_behind(next, reached).into());
        }
    }

    /// Whether it says anything of what comes.
    pub(super) fn is_known(&self) -> bool {
        !matches!(self.place, Place::Unknown)
    }

    /// Whether pieces wait for what stands before them.
    pub(super) fn is_waiting(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// How many octets it holds, about.
    pub(super) fn held(&self) -> usize {
        let ahead = self.ahead.iter().map(|ahead| ahead.octets.capacity() + PIECE_COST);
        self.read.capacity() + self.begun.capacity() + ahead.sum::<usize>()
    }

    /// What it was before the next connection on the same ports.
    fn begin_anew(&mut self) -> Stream {
        std::mem::replace(self, Stream::new(self.sender))
    }

    /// Notes that all before this sequence number was sent.
    fn reach(&mut self, sequence: u32) {
        if self.reached.is_none_or(|reached| distance(sequence, reached) > 0) {
            self.reached = Some(sequence);
        }
    }

    /// The sequence number of the octet that comes next, where a piece is of use; else why it is of none.
    fn find(
        &mut self,
        sequence: u32,
        octets: &[u8],
        skipped: &mut Skipped,
        take: &mut dyn FnMut(Duration, &[u8]),
    ) -> Result<u32, Skip> {
        let sender = self.sender;
        let begins = || begins_message(octets, sender);
        match self.place {
            // The same ports once more; the capture lacks the SYN.
            Place::At(from) | Place::Lost(from) if distance(sequence, from) < -BEHIND_MAX && begins() => {
                self.begin_anew().finish(skipped, take);
            }
            Place::At(next) => return Ok(next),
            Place::Lost(from) if distance(sequence, from) < 0 => return Err(Skip::Repeated),
            Place::Lost(from) if begins() => self.gap = Some((from, sequence)),
            Place::Lost(_) => return Err(Skip::AfterGap),
            Place::Unknown if begins() => {}
            Place::Unknown => return Err(Skip::Stream),
        }
        self.place = Place::At(sequence);
        Ok(sequence)
    }

    /// Whether a piece has other octets than came before in the same place, as far as these are still here.
    fn contradicts(&self, sequence: u32, octets: &[u8], next: u32) -> bool {
        // Who asks whether the other is still there sends an octet again, which may be any (RFC 9293 §3.8.4).
        let is_probe = octets.len() == 1 && distance(sequence, next) == -1;
        let read = (next.wrapping_sub(self.read.len() as u32), self.read.as_slice());
        let ahead = self.ahead.iter().map(|ahead| (ahead.sequence, ahead.octets.as_slice()));
        !is_probe && std::iter::once(read).chain(ahead).any(|there| differ(there, (sequence, octets)))
    }

    /// What a piece is of which all stands before the place.
    fn old(&self, sequence: u32, octets: &[u8]) -> Skip {
        let end = sequence.wrapping_add(octets.len() as u32);
        match self.gap {
            Some((from, to)) if distance(end, from) > 0 && distance(sequence, to) < 0 => Skip::AfterGap,
            _ => Skip::Repeated,
        }
    }

    /// Takes octets that come next; what is whole with them is so from `time` on.
    fn append(&mut self, octets: &[u8], is_cut: bool, time: Duration, take: &mut dyn FnMut(Duration, &[u8])) {
        let mut take = |octets: &[u8]| take(time, octets);
        if let Place::At(next) = &mut self.place {
            // A segment's length is at most that of an IP packet.
            *next = next.wrapping_add(octets.len() as u32);
        }
        self.is_cut = is_cut;
        self.remember(octets);
        if !self.begun.is_empty() {
            self.begun.extend_from_slice(octets);
            if framing::split_first(&self.begun).is_some() {
                let begun = std::mem::take(&mut self.begun);
                self.begun = cut(&begun, &mut take).to_vec();
            }
            return;
        }
        self.begun = cut(octets, &mut take).to_vec();
    }

    fn remember(&mut self, octets: &[u8]) {
        let octets = &octets[octets.len().saturating_sub(READ_MAX)..];
        let excess = (self.read.len() + octets.len()).saturating_sub(READ_MAX);
        self.read.drain(..excess);
        self.read.reserve_exact(octets.len());
        self.read.extend_from_slice(octets);
    }

    /// Takes what waited for the octets that came at `time`: what is whole with them is so from then on.
    fn append_ahead(
        &mut self,
        mut time: Duration,
        skipped: &mut Skipped,
        take: &mut dyn FnMut(Duration, &[u8]),
    ) {
        while let Place::At(next) = self.place
            && let Some(at) = self.ahead.iter().position(|ahead| distance(ahead.sequence, next) <= 0)
        {
            let ahead = self.ahead.swap_remove(at);
            match fresh(ahead.sequence, &ahead.octets, next) {
                [] => skipped.add(Skip::Repeated, (!ahead.is_cut).into()),
                fresh => {
                    time = time.max(ahead.time);
                    self.append(fresh, ahead.is_cut, time, take);
                }
            }
        }
    }

    /// Keeps what is ahead; with too much of it, what is missing will not come.
    fn keep(&mut self, ahead: Ahead, skipped: &mut Skipped, take: &mut dyn FnMut(Duration, &[u8])) {
        self.ahead.push(ahead);
        let is_full = |ahead: &[Ahead]| {
            ahead.len() > PIECES_MAX
                || ahead.iter().map(|ahead| ahead.octets.len()).sum::<usize>() > AHEAD_MAX
        };
        while is_full(&self.ahead) {
            self.pass_gap(skipped, take);
        }
    }

    /// Goes on with the first piece ahead that begins a message; where none does, wherever a later one begins. At least one
    /// piece is ahead no more then.
    fn pass_gap(&mut self, skipped: &mut Skipped, take: &mut dyn FnMut(Duration, &[u8])) {
        // Nothing is ahead of an unknown place.
        let Place::At(next) = self.place else { return self.ahead.clear() };
        skipped.add(Skip::Unfinished, (!self.begun.is_empty()).into());
        // What the capture has cut is counted as that.
        skipped.add(Skip::Gap, (!std::mem::take(&mut self.is_cut)).into());
        (self.begun, self.read) = (Vec::new(), Vec::new());
        self.ahead.sort_by_key(|ahead| distance(ahead.sequence, next));
        let found = (0..self.ahead.len()).find(|at| begins_message(&self.run(*at), self.sender));
        let useless = self.ahead.drain(..found.unwrap_or(self.ahead.len()));
        skipped.add(Skip::AfterGap, useless.filter(|ahead| !ahead.is_cut).count() as u64);
        match self.ahead.first() {
            None => self.place = Place::Lost(next),
            Some(Ahead { sequence, .. }) => {
                self.gap = Some((next, *sequence));
                self.place = Place::At(*sequence);
                self.append_ahead(Duration::ZERO, skipped, take);
            }
        }
    }

    /// What stands in a piece ahead and those that follow it at once, as far as is looked at.
    fn run(&self, at: usize) -> Vec<u8> {
        let (mut run, mut end) = (Vec::new(), self.ahead[at].sequence);
        for ahead in &self.ahead[at..] {
            if run.len() >= LOOKED_AT || distance(ahead.sequence, end) > 0 {
                break;
            }
            let fresh = fresh(ahead.sequence, &ahead.octets, end);
            run.extend_from_slice(&fresh[..fresh.len().min(LOOKED_AT)]);
            end = end.wrapping_add(fresh.len() as u32);
        }
        run
    }
}

/// Gives the whole messages at the beginning; returns the rest.
fn cut<'a>(mut octets: &'a [u8], take: &mut dyn FnMut(&[u8])) -> &'a [u8] {
    while let Some((message, rest)) = framing::split_first(octets) {
        take(message);
        octets = rest;
    }
    octets
}

/// How far a sequence number is after another, around the end of numbers.
fn distance(sequence: u32, next: u32) -> i32 {
    sequence.wrapping_sub(next).cast_signed()
}

/// What of a piece that does not begin after `next` is new.
fn fresh(sequence: u32, octets: &[u8], next: u32) -> &[u8] {
    let known = next.wrapping_sub(sequence) as usize;
    octets.get(known..).unwrap_or_default()
}

/// Whether two pieces, each with its sequence number, have different octets in a place that both have.
fn differ(one: (u32, &[u8]), other: (u32, &[u8])) -> bool {
    let ((first, one), (second, other)) =
        if distance(other.0, one.0) < 0 { (other, one) } else { (one, other) };
    fresh(first, one, second).iter().zip(other).any(|(one, other)| one != other)
}

/// Whether what stands in the middle of a stream looks like the beginning of a message.
///
/// It is a query or a response, by who sends it; it has an opcode in use and the flags that go with it, one question of a
/// class in use, and a length with room for that and for as many records as are counted.
/// The question must be there whole. Less would not do: the records of a zone transfer look like a header every few octets.
fn begins_message(octets: &[u8], sender: Sender) -> bool {
    let Some((prefix, message)) = octets.split_first_chunk() else { return false };
    let Some((header, rest)) = message.split_first_chunk::<HEADER>() else { return false };
    let Some(name) = Folded::read(rest) else { return false };
    let Some([_, _, class @ ..]) = rest.get(name.wire_length()..).and_then(<[u8]>::first_chunk::<4>) else {
        return false;
    };
    let [flags, questions, answers, authorities, additional] =
        [2, 4, 6, 8, 10].map(|at| u16::from_be_bytes([header[at], header[at + 1]]));
    let is_response = flags & QR != 0;
    let is_plausible = match Opcode::from_int((flags >> 11) as u8 & 0x0f) {
        Opcode::QUERY if is_response => true,
        // An incremental transfer is asked for with a SOA record (RFC 1995 §3).
        Opcode::QUERY => flags & !(RD | AD | CD) == 0 && answers == 0 && authorities <= 1,
        Opcode::NOTIFY | Opcode::UPDATE => true,
        _ => false,
    };
    let is_senders = match sender {
        Sender::Client => !is_response,
        Sender::Server => is_response,
        Sender::Either => true,
    };
    let records = [answers, authorities, additional].map(usize::from).iter().sum::<usize>();
    let classes = [Class::IN, Class::CH, Class::HS, Class::NONE, Class::ANY];
    is_plausible
        && is_senders
        && questions == 1
        && classes.contains(&Class::from_int(u16::from_be_bytes(*class)))
        && usize::from(u16::from_be_bytes(*prefix)) >= HEADER + name.wire_length() + 4 + RECORD_MIN * records
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message behind its length: a header with these flags and counts, then this.
    fn message(flags: u16, counts: [u16; 4], rest: &[u8]) -> Vec<u8> {
        let words = [0x1234, flags].into_iter().chain(counts).flat_map(u16::to_be_bytes);
        let message: Vec<u8> = words.chain(rest.iter().copied()).collect();
        [&(message.len() as u16).to_be_bytes(), &message[..]].concat()
    }

    #[test]
    fn messages_begin_with_a_header_and_a_question() {
        const QUESTION: &[u8] = b"\x03www\x07example\0\0\x01\0\x01";
        const OPT: &[u8] = b"\0\0\x29\x04\xd0\0\0\x80\0\0\0";
        const SOA: &[u8] =
            b"\xc0\x0c\0\x06\0\x01\0\0\0\0\0\x16\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        let class = |class: u8| [&QUESTION[..QUESTION.len() - 1], &[class]].concat();
        let cases = [
            (message(0x0100, [1, 0, 0, 0], QUESTION), true),
            (message(0x0100, [1, 0, 0, 1], &[QUESTION, OPT].concat()), true),
            (message(0x0000, [1, 0, 1, 0], &[QUESTION, SOA].concat()), true),
            (message(0x8580, [1, 1, 0, 1], &[QUESTION, SOA, OPT].concat()), true),
            (message(0x2400, [1, 1, 0, 0], &[QUESTION, SOA].concat()), true),
            (message(0x2800, [1, 1, 1, 0], &[QUESTION, SOA, SOA].concat()), true),
            (message(0x0000, [1, 0, 0, 0], &class(255)), true),
            // A flag that no query has, a class that is none, no question or two, an opcode out of use.
            (message(0x0500, [1, 0, 0, 0], QUESTION), false),
            (message(0x0000, [1, 0, 0, 0], &class(0)), false),
            (message(0x0100, [0, 0, 0, 0], QUESTION), false),
            (message(0x0100, [2, 0, 0, 0], &[QUESTION, QUESTION].concat()), false),
            (message(0x0800, [1, 0, 0, 0], QUESTION), false),
            // A query with answers; more records than there is room for.
            (message(0x0100, [1, 1, 0, 0], &[QUESTION, SOA].concat()), false),
            (message(0x0100, [1, 0, 0, 2], &[QUESTION, OPT].concat()), false),
            // A name that points elsewhere.
            (message(0x0100, [1, 0, 0, 0], b"\xc0\x0c\0\x01\0\x01"), false),
        ];
        for (octets, expected) in cases {
            let [answers, asks] =
                [Sender::Server, Sender::Client].map(|sender| begins_message(&octets, sender));
            let is_response = octets[4] & 0x80 != 0;
            assert_eq!((answers, asks), (expected && is_response, expected && !is_response), "{octets:02x?}");
            let begins_message = |octets: &[u8]| begins_message(octets, Sender::Either);
            // What is behind the question may come later, and no less.
            let question = framing::PREFIX_LEN + HEADER + QUESTION.len();
            let least = octets.len().min(question);
            assert_eq!(begins_message(&octets[..least]), expected, "{octets:02x?}");
            assert!((0..least).all(|length| !begins_message(&octets[..length])), "{octets:02x?}");
        }
    }

    #[test]
    fn no_message_begins_within_a_zone_transfer() {
        let names: [&[u8]; 4] = [b"\xc0\x0c", b"\0", b"\x03ns1\xc0\x0c", b"\x01a\x07example\0"];
        let data: [(u16, &[u8]); 9] = [
            (1, &[192, 0, 2, 1]),
            (1, &[0, 0, 1, 0]),
            (2, b"\x03ns1\x07example\0"),
            (5, b"\x01a\xc0\x0c"),
            (6, b"\x03ns1\xc0\x0c\x05admin\xc0\x0c\0\0\0\x01\0\0\x0e\x10\0\0\0\x01\0\x01\0\x01\0\0\0\x01"),
            (15, b"\0\x01\x04mail\x07example\0"),
            (16, b"\x0a0123456789\x03abc"),
            (28, &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
            (33, b"\0\0\0\x01\0\x35\x03ns1\x07example\0"),
        ];
        for ttl in [0_u32, 1, 60, 300, 3_600, 86_400, 1 << 16, 0x1_0001] {
            // Each record behind each other one, each with each name.
            let mut records = Vec::new();
            let mut count = 0;
            for (first, name) in data.iter().flat_map(|first| names.map(|name| (first, name))) {
                for (rtype, octets) in data.iter().flat_map(|second| [first, second]) {
                    records.extend_from_slice(name);
                    records.extend_from_slice(&rtype.to_be_bytes());
                    records.extend_from_slice(&[0, 1]);
                    records.extend_from_slice(&ttl.to_be_bytes());
                    records.extend_from_slice(&(octets.len() as u16).to_be_bytes());
                    records.extend_from_slice(octets);
                    count += 1;
                }
            }
            let transfer =
                message(0x8400, [1, count, 0, 0], &[b"\x07example\0\0\xfc\0\x01", &records[..]].concat());
            let begin = |at: &usize| begins_message(&transfer[*at..], Sender::Server);
            assert_eq!((0..transfer.len()).filter(begin).collect::<Vec<_>>(), [0], "TTL {ttl}");
        }
    }
}
