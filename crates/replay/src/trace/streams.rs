//! DNS messages in TCP streams (RFC 1035 §4.2.2): pieces put in order, messages cut out.

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

/// How many pieces of a stream may be ahead of what is missing.
const PIECES_MAX: usize = 64;

/// What a piece takes beside its octets, in octets, about.
const PIECE_COST: usize = 64;

/// The most octets that are held for all streams, above which those not touched for longest are given up.
const HELD_MAX: usize = 64 << 20;

/// Source and destination of a stream.
type Flow = (SocketAddr, SocketAddr);

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
        take: &mut dyn FnMut(&[u8]),
    ) {
        let mut stream = self.recent.take(&flow).unwrap_or_default();
        self.held -= stream.held();
        let is_known = stream.first.is_some() || stream.next.is_some();
        stream.add(piece, skipped, take);
        // What says nothing of a stream needs no place in the table.
        if is_known || stream.next.is_some() {
            self.held += stream.held();
            for gone in self.recent.put(flow, stream) {
                self.held -= gone.held();
                gone.finish(skipped);
            }
        }
        while self.held > HELD_MAX {
            for gone in self.recent.age().into_values() {
                self.held -= gone.held();
                gone.finish(skipped);
            }
        }
    }

    /// Counts what never became whole.
    pub(super) fn finish(&mut self, skipped: &mut Skipped) {
        for gone in self.recent.drain() {
            gone.finish(skipped);
        }
        self.held = 0;
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held
    }
}

impl Stream {
    fn add(&mut self, piece: &Piece<'_>, skipped: &mut Skipped, take: &mut dyn FnMut(&[u8])) {
        let mut sequence = piece.sequence;
        if piece.is_first {
            // The same SYN once more is of the same connection; another begins the next, on the same ports.
            if self.first != Some(sequence) {
                std::mem::take(self).finish(skipped);
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
            return self.keep(sequence, piece.octets, skipped);
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
    fn keep(&mut self, sequence: u32, octets: &[u8], skipped: &mut Skipped) {
        let held: usize = self.ahead.iter().map(|(_, octets)| octets.len()).sum();
        if self.ahead.len() < PIECES_MAX && held + octets.len() <= AHEAD_MAX {
            self.ahead.push((sequence, octets.to_vec()));
            return;
        }
        let first = self.first;
        std::mem::take(self).finish(skipped);
        self.first = first;
        skipped.count(Skip::Stream);
    }

    fn held(&self) -> usize {
        let ahead = self.ahead.iter().map(|(_, octets)| octets.capacity() + PIECE_COST);
        self.begun.capacity() + ahead.sum::<usize>()
    }

    fn finish(self, skipped: &mut Skipped) {
        skipped.add(Skip::Unfinished, (!self.begun.is_empty()).into());
        skipped.add(Skip::Stream, self.ahead.len() as u64);
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
