//! What comes back: read from sockets, matched with what was asked.

use std::io;
use std::time::{Duration, Instant, SystemTime};

use net::client::Ready;
use net::udp::BATCH_MAX;

use super::super::agenda::What;
use super::super::carrier::Carrier;
use super::super::connection::Around;
use super::super::nanos;
use super::super::octets::Response;
use super::super::pending::{Asked, Key, Match};
use super::super::sockets::Kind;
use super::super::tally::Cause;
use super::super::told::Told;
use super::{SHARED_TOKENS, Worker, endpoint};
use crate::compare::compare;

/// The longest that a datagram waits in the kernel, in nanoseconds: what seems older says that the system's clock was set.
const UNREAD_MAX: u64 = 1_000_000_000;

/// Batches that are read of a client's own socket in a turn while it has more: several times what a turn sends, so that it is
/// emptied also where each turn has something to send, and no more than that can wait for.
const OWN_BATCHES_MAX: usize = 8;

/// The run's clock and the system's, read together.
struct Clock {
    now: u64,
    system: Duration,
}

impl Clock {
    /// The system's first: a thread that is held up in between must not make an answer older than it is.
    fn read(anchor: Instant) -> Clock {
        let system = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Clock { now: nanos(anchor.elapsed()), system }
    }

    /// When a datagram arrived, in nanoseconds from the beginning.
    fn at(&self, arrived: Option<Duration>) -> u64 {
        let age = arrived.and_then(|arrived| self.system.checked_sub(arrived)).map_or(0, nanos);
        self.now.saturating_sub(if age > UNREAD_MAX { 0 } else { age })
    }
}

/// What has arrived.
#[derive(Debug)]
pub(super) enum Heard {
    /// A message; `None` where it is no response.
    Response(Option<Response>),
    /// A query that is not answered.
    Failed(u16, Cause),
    /// A query that is to be asked elsewhere.
    Unprocessed(u16),
    /// A handshake is done.
    Secured {
        /// An earlier session goes on.
        is_resumed: bool,
    },
}

impl Heard {
    pub(super) fn of(told: &Told<'_>, is_kept: bool) -> Heard {
        match told {
            Told::Message(octets) => Heard::Response(Response::read(octets, is_kept)),
            Told::Failed(id, cause) => Heard::Failed(*id, *cause),
            Told::Unprocessed(id) => Heard::Unprocessed(*id),
            Told::Secured { is_resumed } => Heard::Secured { is_resumed: *is_resumed },
        }
    }
}

impl Worker<'_> {
    /// Takes what has arrived at clients' sockets, and at shared ones unless it can wait there.
    pub(super) fn receive(&mut self) -> io::Result<()> {
        let hears_shared = self.shared.iter().any(Option::is_some) && !self.may_hear_later();
        if !hears_shared && self.sockets.oldest().is_none() {
            return Ok(());
        }
        let mut is_all = true;
        let ready: Vec<Ready> = self.readiness.ready()?.collect();
        for ready in ready {
            if let Some(family) = SHARED_TOKENS.iter().position(|token| *token == ready.token) {
                if hears_shared {
                    is_all &= self.receive_shared(family)?;
                }
                continue;
            }
            let Some(slot) = self.sockets.of_token(ready.token) else { continue };
            self.receive_own(slot, ready);
        }
        if hears_shared {
            self.unheard.heard(is_all);
        }
        Ok(())
    }

    /// Takes what has arrived at a client's socket.
    fn receive_own(&mut self, slot: usize, ready: Ready) {
        let (now, is_kept) = (self.now(), self.with.differing.is_some());
        let Some(socket) = self.sockets.get(slot) else { return };
        let (endpoint, half) = (socket.serial, socket.half);
        let failed = match &mut socket.kind {
            Kind::Udp(datagrams) => {
                let mut batches = 1..OWN_BATCHES_MAX;
                let received = loop {
                    let received = match self.incoming.receive(datagrams) {
                        Ok(received) => received,
                        Err(error) => break Err(error),
                    };
                    let clock = Clock::read(self.anchor);
                    for reply in self.incoming.replies() {
                        let (at, response) = (clock.at(reply.arrived), Response::read(reply.octets, is_kept));
                        if half == 0 {
                            self.heard.push((endpoint, at, Heard::Response(response)));
                        } else {
                            self.agenda.push(at + half, ready.token, What::Heard(endpoint, response));
                        }
                    }
                    if received < BATCH_MAX || batches.next().is_none() {
                        break Ok(());
                    }
                };
                if let Err(error) = received {
                    // What has come before it is answered.
                    self.hear();
                    if let Some(slot) = self.sockets.of_token(ready.token) {
                        self.troubled(slot, Cause::of(&error), now);
                    }
                }
                None
            }
            Kind::Stream(connection) => {
                let (readiness, agenda, anchor) = (&self.readiness, &mut self.agenda, self.anchor);
                let mut around = Around { readiness, agenda, token: ready.token, anchor, half, now };
                let mut failed = None;
                if ready.writable {
                    match connection.writable(&mut around) {
                        Ok(has_come_about) => self.tally.established += u64::from(has_come_about),
                        Err(cause) => failed = Some(cause),
                    }
                }
                if ready.readable && failed.is_none() {
                    let heard = &mut self.heard;
                    let mut told = |told: Told<'_>| heard.push((endpoint, now, Heard::of(&told, is_kept)));
                    let (room, plain) = (&mut self.room, &mut self.plain);
                    failed = connection.readable(room, plain, &mut around, &mut told).err();
                }
                failed
            }
            Kind::Quic(datagrams) => {
                let (readiness, agenda, anchor) = (&self.readiness, &mut self.agenda, self.anchor);
                let mut around = Around { readiness, agenda, token: ready.token, anchor, half, now };
                let heard = &mut self.heard;
                let mut told = |told: Told<'_>| heard.push((endpoint, now, Heard::of(&told, is_kept)));
                datagrams.readable(&mut self.room, &mut around, &mut told).err()
            }
        };
        self.hear();
        if let Some(cause) = failed {
            self.end(ready.token, cause);
        }
    }

    /// Loses what a client's socket for datagrams says that it lost.
    pub(super) fn troubled(&mut self, slot: usize, cause: Cause, now: u64) {
        if cause == Cause::Refused {
            return self.refuse(slot, now);
        }
        // One datagram has failed; which, the system does not say: the oldest.
        if let Some(socket) = self.sockets.get(slot)
            && let Some(id) = socket.ids.front().copied()
        {
            let key = Key { endpoint: socket.serial, id };
            if !self.batch.holds(key) {
                self.fail(key, cause);
            }
        }
    }

    /// Takes what has arrived at a shared socket, as far as nothing is due; says whether that was all.
    fn receive_shared(&mut self, family: usize) -> io::Result<bool> {
        let is_kept = self.with.differing.is_some();
        loop {
            let Some(socket) = &self.shared[family] else { return Ok(true) };
            let received = self.incoming.receive(socket)?;
            let clock = Clock::read(self.anchor);
            let heard = self.incoming.replies().filter_map(|reply| {
                let response = Response::read(reply.octets, is_kept);
                let from = endpoint(reply.local?, reply.peer?);
                Some((from, clock.at(reply.arrived), Heard::Response(response)))
            });
            self.heard.extend(heard);
            if self.with.options.distances.is_some() {
                self.delay();
            }
            self.hear();
            // What has arrived can wait in the kernel; what is due cannot.
            if received < BATCH_MAX {
                return Ok(true);
            }
            if self.next_due().is_some_and(|due| due <= self.now()) {
                return Ok(false);
            }
        }
    }

    /// Puts answers from a shared socket on their way to their clients.
    fn delay(&mut self) {
        let mut heard = std::mem::take(&mut self.heard);
        for (endpoint, at, heard) in heard.drain(..) {
            let Heard::Response(response) = heard else { continue };
            let planned = response.as_ref().and_then(|response| {
                let key = Key { endpoint, id: response.id };
                self.pending.planned(key)
            });
            let half = planned.map_or(0, |planned| self.half(planned.client));
            self.agenda.push(at + half, 0, What::Heard(endpoint, response));
        }
        self.heard = heard;
    }

    /// Does what is on the agenda for a client's connection, if that is still open.
    pub(super) fn happen_on_connection(&mut self, token: u64, what: What, now: u64) {
        let Some(slot) = self.sockets.of_token(token) else { return };
        let is_kept = self.with.differing.is_some();
        let Some(socket) = self.sockets.get(slot) else { return };
        let (endpoint, half) = (socket.serial, socket.half);
        let (readiness, agenda, anchor) = (&self.readiness, &mut self.agenda, self.anchor);
        let mut around = Around { readiness, agenda, token, anchor, half, now };
        let heard = &mut self.heard;
        let mut told = |told: Told<'_>| heard.push((endpoint, now, Heard::of(&told, is_kept)));
        let happened = match (&mut socket.kind, what) {
            (_, What::Ended(cause)) => Err(cause),
            (Kind::Stream(connection), What::GivenUp(id)) => connection.give_up(id, &mut around, &mut told),
            (Kind::Quic(datagrams), What::GivenUp(id)) => datagrams.give_up(id, &mut around, &mut told),
            (Kind::Stream(connection), What::Opened) => connection.opened(&mut around),
            (Kind::Stream(connection), What::Out(octets)) => connection.leave(&octets, &mut around),
            (Kind::Stream(connection), What::In(octets)) => {
                connection.receive(&octets, &mut self.plain, &mut around, &mut told)
            }
            (Kind::Quic(datagrams), What::Out(datagram)) => datagrams.leave(&datagram),
            (Kind::Quic(datagrams), What::In(datagram)) => {
                datagrams.receive(&datagram, &mut around, &mut told)
            }
            (Kind::Quic(datagrams), What::Timer) => datagrams.elapsed(&mut around, &mut told),
            _ => Ok(()),
        };
        self.hear();
        if let Err(cause) = happened {
            self.end(token, cause);
        }
    }

    /// Matches what was heard.
    fn hear(&mut self) {
        let mut heard = std::mem::take(&mut self.heard);
        // What is asked again meanwhile may be told of at once, at most as often as it is asked.
        while !heard.is_empty() {
            for (endpoint, at, heard) in heard.drain(..) {
                match heard {
                    Heard::Response(response) => self.hear_one(endpoint, response, at),
                    Heard::Failed(id, cause) => self.fail(Key { endpoint, id }, cause),
                    Heard::Unprocessed(id) => self.ask_elsewhere(Key { endpoint, id }, at),
                    Heard::Secured { is_resumed } => self.tally.handshakes[usize::from(is_resumed)] += 1,
                }
            }
            std::mem::swap(&mut heard, &mut self.heard);
        }
        self.heard = heard;
    }

    /// Matches one response, which has arrived at `at`.
    pub(super) fn hear_one(&mut self, endpoint: u64, response: Option<Response>, at: u64) {
        let Some(response) = response else {
            self.tally.aliens += 1;
            return;
        };
        let key = Key { endpoint, id: response.id };
        match self.pending.answer(key, |question| response.answers(question)) {
            Match::First(asked) => self.answered(key, asked, response, at),
            Match::Duplicate => self.tally.duplicates += 1,
            Match::Late => self.tally.late_answers += 1,
            Match::Alien => self.tally.aliens += 1,
        }
    }

    fn answered(&mut self, key: Key, asked: Box<Asked>, response: Response, at: u64) {
        if let Some(socket) = self.release(key, &asked) {
            socket.has_answered = true;
        }
        self.tally.answer_octets += response.length;
        if response.is_truncated && asked.carrier == Carrier::Udp && self.has_no_retry(&asked.planned) {
            self.tally.truncated += 1;
            return self.ask_again(asked, self.now());
        }
        self.last = self.last.max(at);
        self.tally.answered(asked.planned.due, asked.sent, at, response.rcode, asked.is_quiet);
        self.compare(&asked, response.octets, at);
        if self.with.log.is_wanted {
            let round_trip = self.round_trip(asked.planned.client);
            self.rows.add(&asked, Some(at), response.rcode, round_trip);
        }
    }

    /// Holds an answer against the recorded one.
    fn compare(&mut self, asked: &Asked, given: Option<Box<[u8]>>, at: u64) {
        let (Some(differing), Some(given)) = (&self.with.differing, given) else { return };
        let planned = &asked.planned;
        let verdict = planned.recorded.as_ref().map(|recorded| (recorded, compare(&recorded.octets, &given)));
        self.tally.comparison.add(verdict.map(|(_, verdict)| verdict));
        if let Some((recorded, verdict)) = verdict
            && verdict.is_difference()
        {
            let after = Duration::from_nanos(at.saturating_sub(planned.due));
            differing.keep(&planned.message, recorded, given.into(), self.server(planned.client), after);
        }
    }

    /// Closes a connection that the server has ended, or that failed, unless it made way for another since.
    fn end(&mut self, token: u64, cause: Cause) {
        let Some(slot) = self.sockets.of_token(token) else { return };
        if let (Cause::Closed | Cause::Reset, Some(socket)) = (cause, self.sockets.get(slot)) {
            self.tally.closed_by_server += 1;
            self.tally.closed_unanswered += u64::from(!socket.has_answered && !socket.ids.is_empty());
        }
        self.close(slot, cause);
    }
}
