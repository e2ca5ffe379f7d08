//! DNS messages in TCP streams (RFC 1035 §4.2.2): pieces put in order, messages cut out.
//!
//! What is missing in the capture is waited for until too much is ahead of it, a second is over, or the stream is given up.
//! Then it goes on with the first piece behind the gap that begins a message. Such messages have the times of their own
//! packets, so that times go back, by a second at most.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use net::framing;

use super::packet::Piece;
use super::recent::Recent;
use super::skipped::{Skip, Skipped};

/// Half of the streams that are followed at a time. One direction of a connection is a stream: a busy root
/// server has some 45,000 connections open.
const HALF_MAX: usize = 65_536;

/// How far a stream's pieces may be ahead of what is missing, in octets: as much as one message.
const AHEAD_MAX: usize = 65_535;

/// How far a piece that is sent again may be behind what was read, in octets: what may be under way without window scaling
/// (RFC 7323 §2). What is further behind and begins a message is of another connection.
const BEHIND_MAX: i32 = 65_535;

/// How many pieces of a stream may be ahead of what is missing. One more may be held while it is decided what goes.
const PIECES_MAX: usize = 64;

/// What a piece takes beside its octets, in octets, about.
const PIECE_COST: usize = 128;

/// How long what is missing is waited for, by the trace's clock. A segment that was lost on its way comes again within a
/// second of the next one, nearly always: TCP's timer for that begins so (RFC 6298 §2), and most systems' is shorter once
/// they know the way. One that the capture lost never comes. A schedule takes what goes back by no more for late, and not
/// for a clock that was set.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The most pieces of that time that came too early, of all streams: 5 MiB. Beyond, the oldest gap is waited for no longer.
const EARLY_MAX: usize = 1 << 16;

/// The most octets that are held for all streams, above which those not touched for longest are given up.
const HELD_MAX: usize = 64 << 20;

/// Source and destination of a stream.
pub(super) type Flow = (SocketAddr, SocketAddr);

/// The streams that are followed.
pub(super) struct Streams {
    recent: Recent<Flow, Stream>,
    held: usize,
    /// When pieces came that were ahead, and of which stream; the oldest first.
    early: VecDeque<(Duration, Flow)>,
}

#[derive(Default)]
struct Stream {
    /// SYN's sequence number, where it was seen.
    first: Option<u32>,
    /// The sequence number of the next octet, where it is known.
    next: Option<u32>,
    /// The beginning of a message.
    begun: Vec<u8>,
    /// Pieces that came before what stands before them.
    ahead: Vec<Ahead>,
}

/// A piece that came before what stands before it.
struct Ahead {
    sequence: u32,
    time: Duration,
    octets: Vec<u8>,
    /// Whether it is counted already, as cut.
    is_cut: bool,
}

impl Default for Streams {
    fn default() -> Streams {
        Streams { recent: Recent::new(HALF_MAX), held: 0, early: VecDeque::new() }
    }
}

impl Streams {
    /// Adds a piece, captured at `time`, to its stream, and gives the messages that are whole with it, each with its time.
    pub(super) fn add(
        &mut self,
        flow: Flow,
        time: Duration,
        piece: &Piece<'_>,
        skipped: &mut Skipped,
        take: &mut dyn FnMut(Flow, Duration, &[u8]),
    ) {
        let mut stream = self.recent.take(&flow).unwrap_or_default();
        self.held -= stream.held();
        let is_known = stream.first.is_some() || stream.next.is_some();
        stream.add(time, piece, skipped, &mut |time, octets| take(flow, time, octets));
        if stream.ahead.iter().any(|ahead| ahead.time == time) {
            self.early.push_back((time, flow));
        }
        // What says nothing of a stream needs no place in the table.
        if is_known || stream.next.is_some() {
            self.keep(flow, stream, skipped, take);
        }
    }

    /// Whether [`Streams::go_on`] has something to do at `now`.
    pub(super) fn is_waiting_too_long(&self, now: Duration) -> bool {
        let oldest = self.early.front();
        oldest.is_some_and(|(time, _)| now.abs_diff(*time) > WAIT_MAX || self.early.len() > EARLY_MAX)
    }

    /// Gives the messages behind gaps that are waited for no longer at `now`.
    pub(super) fn go_on(
        &mut self,
        now: Duration,
        skipped: &mut Skipped,
        take: &mut dyn FnMut(Flow, Duration, &[u8]),
    ) {
        while self.is_waiting_too_long(now)
            && let Some((time, flow)) = self.early.pop_front()
        {
            let Some(mut stream) = self.recent.take(&flow) else { continue };
            self.held -= stream.held();
            while stream.ahead.iter().any(|ahead| ahead.time <= time) {
                stream.pass_gap(skipped, &mut |time, octets| take(flow, time, octets));
            }
            self.keep(flow, stream, skipped, take);
        }
    }

    /// Gives the messages behind gaps, and counts what never became whole.
    pub(super) fn finish(&mut self, skipped: &mut Skipped, take: &mut dyn FnMut(Flow, Duration, &[u8])) {
        give_up(self.recent.drain(), skipped, take);
        self.held = 0;
    }

    /// Puts a stream into the table, and gives up those for which there is no room beside it.
    fn keep(
        &mut self,
        flow: Flow,
        stream: Stream,
        skipped: &mut Skipped,
        take: &mut dyn FnMut(Flow, Duration, &[u8]),
    ) {
        self.held += stream.held();
        let gone = self.recent.put(flow, stream);
        self.held -= give_up(gone, skipped, take);
        while self.held > HELD_MAX {
            let gone = self.recent.age();
            self.held -= give_up(gone.into_iter(), skipped, take);
        }
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held
    }
}

/// Ends streams; returns how many octets they held.
fn give_up(
    gone: impl Iterator<Item = (Flow, Stream)>,
    skipped: &mut Skipped,
    take: &mut dyn FnMut(Flow, Duration, &[u8]),
) -> usize {
    let (mut held, mut gapped) = (0, Vec::new());
    for (flow, stream) in gone {
        held += stream.held();
        if stream.ahead.is_empty() {
            stream.finish(skipped, &mut |_, _| {});
        } else {
            gapped.push((flow, stream));
        }
    }
    // A table has its entries in another order each time; a trace gives the same messages in the same order.
    gapped.sort_unstable_by_key(|(flow, _)| *flow);
    for (flow, stream) in gapped {
        stream.finish(skipped, &mut |time, octets| take(flow, time, octets));
    }
    held
}

impl Stream {
    fn add(
        &mut self,
        time: Duration,
        piece: &Piece<'_>,
        skipped: &mut Skipped,
        take: &mut dyn FnMut(Duration, &[u8]),
    ) {
        let mut sequence = piece.sequence;
        if piece.is_first {
            // The same SYN once more is of the same connection; another begins the next, on the same ports.
            if self.first != Some(sequence) {
                std::mem::take(self).finish(skipped, take);
                self.first = Some(sequence);
                self.next = Some(sequence.wrapping_add(1));
            }
            sequence = sequence.wrapping_add(1);
        }
        // What was cut off comes never, or is sent again: it is waited for as anything else. The piece counts once.
        let or_cut = |skip| if piece.is_cut { Skip::Cut } else { skip };
        if piece.octets.is_empty() {
            return skipped.count(or_cut(Skip::NoData));
        }
        let next = match self.next {
            // The same ports once more; the capture lacks the SYN.
            Some(next) if distance(sequence, next) < -BEHIND_MAX && begins_message(piece.octets) => {
                std::mem::take(self).finish(skipped, take);
                *self.next.insert(sequence)
            }
            Some(next) => next,
            None if begins_message(piece.octets) => *self.next.insert(sequence),
            None => return skipped.count(or_cut(Skip::Stream)),
        };
        if distance(sequence, next) > 0 {
            skipped.add(Skip::Cut, piece.is_cut.into());
            let (octets, is_cut) = (piece.octets.to_vec(), piece.is_cut);
            return self.keep(Ahead { sequence, time, octets, is_cut }, skipped, take);
        }
        match fresh(sequence, piece.octets, next) {
            [] => skipped.count(or_cut(Skip::Repeated)),
            fresh => {
                skipped.add(Skip::Cut, piece.is_cut.into());
                self.append(fresh, time, take);
            }
        }
        self.append_ahead(time, take);
    }

    /// Takes octets that come next; what is whole with them is so from `time` on.
    fn append(&mut self, octets: &[u8], time: Duration, take: &mut dyn FnMut(Duration, &[u8])) {
        let mut take = |octets: &[u8]| take(time, octets);
        // A segment's length is at most that of an IP packet.
        self.next = self.next.map(|next| next.wrapping_add(octets.len() as u32));
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

    /// Takes what waited for the octets that came at `time`: what is whole with them is so from then on.
    fn append_ahead(&mut self, mut time: Duration, take: &mut dyn FnMut(Duration, &[u8])) {
        while let Some(next) = self.next
            && let Some(at) = self.ahead.iter().position(|ahead| distance(ahead.sequence, next) <= 0)
        {
            let ahead = self.ahead.swap_remove(at);
            time = time.max(ahead.time);
            self.append(fresh(ahead.sequence, &ahead.octets, next), time, take);
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
        let Some(next) = self.next else { return self.ahead.clear() };
        skipped.add(Skip::Unfinished, (!self.begun.is_empty()).into());
        self.begun = Vec::new();
        self.ahead.sort_by_key(|ahead| distance(ahead.sequence, next));
        let found = self.ahead.iter().position(|ahead| begins_message(&ahead.octets));
        let useless = self.ahead.drain(..found.unwrap_or(self.ahead.len()));
        skipped.add(Skip::Stream, useless.filter(|ahead| !ahead.is_cut).count() as u64);
        self.next = self.ahead.first().map(|ahead| ahead.sequence);
        self.append_ahead(Duration::ZERO, take);
    }

    fn held(&self) -> usize {
        let ahead = self.ahead.iter().map(|ahead| ahead.octets.capacity() + PIECE_COST);
        self.begun.capacity() + ahead.sum::<usize>()
    }

    fn finish(mut self, skipped: &mut Skipped, take: &mut dyn FnMut(Duration, &[u8])) {
        while !self.ahead.is_empty() {
            self.pass_gap(skipped, take);
        }
        skipped.add(Skip::Unfinished, (!self.begun.is_empty()).into());
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

/// Whether a piece from the middle of a stream looks like the beginning of a message: a length that has room
/// for a header, an opcode in use and one question.
fn begins_message(octets: &[u8]) -> bool {
    let Some((prefix, message)) = octets.split_first_chunk::<2>() else { return false };
    let Some(header) = message.first_chunk::<{ dns::query::HEADER }>() else { return false };
    let opcode = header[2] >> 3 & 0x0f;
    usize::from(u16::from_be_bytes(*prefix)) >= header.len()
        && matches!(opcode, 0 | 4 | 5)
        && header[4..6] == [0, 1]
}
