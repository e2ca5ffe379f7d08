//! DNS messages in TCP streams (RFC 1035 §4.2.2): pieces put in order, messages cut out.
//!
//! What is missing in the capture is waited for until too much is ahead of it, or until the stream is given up. Then it goes on
//! with the first piece behind the gap that begins a message; such messages have the time at which that was decided, so that
//! times never go back.

use std::net::SocketAddr;

use net::framing;

use super::packet::Piece;
use super::recent::Recent;
use super::skipped::{Skip, Skipped};

/// Half of the streams that are followed at a time. One direction of a connection is a stream: a busy root
/// server has some 45,000 connections open.
const HALF_MAX: usize = 65_536;

/// How far a stream's pieces may be ahead of what is missing, in octets: as much as one message.
const AHEAD_MAX: usize = 65_535;

/// How many pieces of a stream may be ahead of what is missing. One more may be held while it is decided what goes.
const PIECES_MAX: usize = 64;

/// What a piece takes beside its octets, in octets, about.
const PIECE_COST: usize = 64;

/// The most octets that are held for all streams, above which those not touched for longest are given up.
const HELD_MAX: usize = 64 << 20;

/// Source and destination of a stream.
pub(super) type Flow = (SocketAddr, SocketAddr);

/// The streams that are followed.
pub(super) struct Streams {
    recent: Recent<Flow, Stream>,
    held: usize,
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
    ahead: Vec<(u32, Vec<u8>)>,
}

impl Default for Streams {
    fn default() -> Streams {
        Streams { recent: Recent::new(HALF_MAX), held: 0 }
    }
}

impl Streams {
    /// Adds a piece to its stream, and gives the messages that are whole with it.
    pub(super) fn add(
        &mut self,
        flow: Flow,
        piece: &Piece<'_>,
        skipped: &mut Skipped,
        take: &mut dyn FnMut(Flow, &[u8]),
    ) {
        let mut stream = self.recent.take(&flow).unwrap_or_default();
        self.held -= stream.held();
        let is_known = stream.first.is_some() || stream.next.is_some();
        stream.add(piece, skipped, &mut |octets| take(flow, octets));
        // What says nothing of a stream needs no place in the table.
        if is_known || stream.next.is_some() {
            self.held += stream.held();
            let gone = self.recent.put(flow, stream);
            self.held -= give_up(gone, skipped, take);
        }
        while self.held > HELD_MAX {
            let gone = self.recent.age();
            self.held -= give_up(gone.into_iter(), skipped, take);
        }
    }

    /// Gives the messages behind gaps, and counts what never became whole.
    pub(super) fn finish(&mut self, skipped: &mut Skipped, take: &mut dyn FnMut(Flow, &[u8])) {
        give_up(self.recent.drain(), skipped, take);
        self.held = 0;
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
    take: &mut dyn FnMut(Flow, &[u8]),
) -> usize {
    let (mut held, mut gapped) = (0, Vec::new());
    for (flow, stream) in gone {
        held += stream.held();
        if stream.ahead.is_empty() {
            stream.finish(skipped, &mut |_| {});
        } else {
            gapped.push((flow, stream));
        }
    }
    // A table has its entries in another order each time; a trace gives the same messages in the same order.
    gapped.sort_unstable_by_key(|(flow, _)| *flow);
    for (flow, stream) in gapped {
        stream.finish(skipped, &mut |octets| take(flow, octets));
    }
    held
}

impl Stream {
    fn add(&mut self, piece: &Piece<'_>, skipped: &mut Skipped, take: &mut dyn FnMut(&[u8])) {
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
        if piece.octets.is_empty() {
            skipped.count(Skip::NoData);
            return;
        }
        let next = match self.next {
            Some(next) => next,
            None if begins_message(piece.octets) => *self.next.insert(sequence),
            None => return skipped.count(Skip::Stream),
        };
        if distance(sequence, next) > 0 {
            return self.keep(sequence, piece.octets, skipped, take);
        }
        match fresh(sequence, piece.octets, next) {
            [] => skipped.count(Skip::Repeated),
            fresh => self.append(fresh, take),
        }
        self.append_ahead(take);
    }

    /// Takes octets that come next.
    fn append(&mut self, octets: &[u8], take: &mut dyn FnMut(&[u8])) {
        // A segment's length is at most that of an IP packet.
        self.next = self.next.map(|next| next.wrapping_add(octets.len() as u32));
        if !self.begun.is_empty() {
            self.begun.extend_from_slice(octets);
            if framing::split_first(&self.begun).is_some() {
                let begun = std::mem::take(&mut self.begun);
                self.begun = cut(&begun, take).to_vec();
            }
            return;
        }
        self.begun = cut(octets, take).to_vec();
    }

    /// Takes what waited for the octets that came.
    fn append_ahead(&mut self, take: &mut dyn FnMut(&[u8])) {
        while let Some(next) = self.next
            && let Some(at) = self.ahead.iter().position(|(sequence, _)| distance(*sequence, next) <= 0)
        {
            let (sequence, octets) = self.ahead.swap_remove(at);
            self.append(fresh(sequence, &octets, next), take);
        }
    }

    /// Keeps what is ahead; with too much of it, what is missing will not come.
    fn keep(&mut self, sequence: u32, octets: &[u8], skipped: &mut Skipped, take: &mut dyn FnMut(&[u8])) {
        self.ahead.push((sequence, octets.to_vec()));
        let is_full = |ahead: &[(u32, Vec<u8>)]| {
            ahead.len() > PIECES_MAX
                || ahead.iter().map(|(_, octets)| octets.len()).sum::<usize>() > AHEAD_MAX
        };
        while is_full(&self.ahead) {
            self.pass_gap(skipped, take);
        }
    }

    /// Goes on with the first piece ahead that begins a message; where none does, wherever a later one begins. At least one
    /// piece is ahead no more then.
    fn pass_gap(&mut self, skipped: &mut Skipped, take: &mut dyn FnMut(&[u8])) {
        let Some(next) = self.next else { return self.ahead.clear() };
        skipped.add(Skip::Unfinished, (!self.begun.is_empty()).into());
        self.begun = Vec::new();
        self.ahead.sort_by_key(|(sequence, _)| distance(*sequence, next));
        let found = self.ahead.iter().position(|(_, octets)| begins_message(octets));
        let useless = self.ahead.drain(..found.unwrap_or(self.ahead.len()));
        skipped.add(Skip::Stream, useless.len() as u64);
        drop(useless);
        self.next = self.ahead.first().map(|(sequence, _)| *sequence);
        self.append_ahead(take);
    }

    fn held(&self) -> usize {
        let ahead = self.ahead.iter().map(|(_, octets)| octets.capacity() + PIECE_COST);
        self.begun.capacity() + ahead.sum::<usize>()
    }

    fn finish(mut self, skipped: &mut Skipped, take: &mut dyn FnMut(&[u8])) {
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
