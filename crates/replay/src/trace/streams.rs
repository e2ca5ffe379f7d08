//! DNS messages in TCP streams (RFC 1035 §4.2.2): a bounded table of those that are followed.
//!
//! What is missing in the capture is waited for until too much is ahead of it, a second is over, or the stream is given up.
//! Then it goes on with the first piece behind the gap that begins a message. Such messages have the times of their own
//! packets, so that times go back, by a second at most.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use super::packet::Piece;
use super::recent::Recent;
use super::skipped::Skipped;
use super::stream::{Sender, Stream};

/// Half of the streams that are followed at a time. One direction of a connection is a stream: a busy root
/// server has some 45,000 connections open.
const HALF_MAX: usize = 65_536;

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
    /// Where servers listen.
    port: u16,
    recent: Recent<Flow, Stream>,
    held: usize,
    /// When pieces came that were ahead, and of which stream; the oldest first.
    early: VecDeque<(Duration, Flow)>,
}

impl Streams {
    /// None yet; `port` is where servers listen.
    pub(super) fn new(port: u16) -> Streams {
        Streams { port, recent: Recent::new(HALF_MAX), held: 0, early: VecDeque::new() }
    }

    /// Adds a piece, captured at `time`, to its stream, and gives the messages that are whole with it, each with its time.
    pub(super) fn add(
        &mut self,
        flow: Flow,
        time: Duration,
        piece: &Piece<'_>,
        skipped: &mut Skipped,
        take: &mut dyn FnMut(Flow, Duration, &[u8]),
    ) {
        let mut stream = self.recent.take(&flow).unwrap_or_else(|| Stream::new(self.sender(flow)));
        self.held -= stream.held();
        stream.add(time, piece, skipped, &mut |time, octets| take(flow, time, octets));
        if stream.waits_since(time) {
            self.early.push_back((time, flow));
        }
        // What says nothing of a stream needs no place in the table.
        if stream.is_known() {
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
            stream.go_on(time, skipped, &mut |time, octets| take(flow, time, octets));
            self.keep(flow, stream, skipped, take);
        }
    }

    /// Gives the messages behind gaps, and counts what never became whole.
    pub(super) fn finish(&mut self, skipped: &mut Skipped, take: &mut dyn FnMut(Flow, Duration, &[u8])) {
        give_up(self.recent.drain(), skipped, take);
        self.held = 0;
    }

    fn sender(&self, (source, destination): Flow) -> Sender {
        match (source.port() == self.port, destination.port() == self.port) {
            (true, true) => Sender::Either,
            (true, false) => Sender::Server,
            (false, _) => Sender::Client,
        }
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
        if stream.is_waiting() {
            gapped.push((flow, stream));
        } else {
            stream.finish(skipped, &mut |_, _| {});
        }
    }
    // A table has its entries in another order each time; a trace gives the same messages in the same order.
    gapped.sort_unstable_by_key(|(flow, _)| *flow);
    for (flow, stream) in gapped {
        stream.finish(skipped, &mut |time, octets| take(flow, time, octets));
    }
    held
}
