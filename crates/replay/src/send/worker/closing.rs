//! What is lost, and sockets that go.

use std::time::Instant;

use net::memory::Memory;

use super::super::agenda::What;
use super::super::batch::Target;
use super::super::carrier::Carrier;
use super::super::nanos;
use super::super::pending::{Asked, Key};
use super::super::sockets::{self, Kind, Socket};
use super::super::tally::Cause;
use super::Worker;

impl Worker<'_> {
    /// Loses what has waited too long: no more in a turn than what a turn can ask, as after a burst thousands may be lost or
    /// forgotten at once, while queries are due.
    pub(super) fn lose(&mut self, now: u64) {
        let mut steps = 2 * self.batch.outgoing.most();
        while let Some((asked, is_crowded)) = self.pending.expire(now, &mut steps) {
            if let Some(slot) = asked.slot {
                // The oldest of its socket, as all wait equally long.
                if let Some(socket) = self.sockets.get(slot)
                    && let Some(id) = socket.ids.pop_front()
                {
                    let token = sockets::token(slot, socket.serial);
                    self.happen_on_connection(token, What::GivenUp(id), now);
                }
            }
            let cause = match is_crowded {
                true => Cause::GivenUp,
                false if self.was_dropped(&asked) => Cause::Dropped,
                false => Cause::Timeout,
            };
            self.lost(&asked, cause);
        }
    }

    /// Whether a datagram was dropped at the socket at which an answer was waited for, of which no other query has
    /// heard. Whose answer it was the kernel does not say.
    fn was_dropped(&mut self, asked: &Asked) -> bool {
        if asked.carrier != Carrier::Udp {
            return false;
        }
        let family = usize::from(self.server(asked.planned.client).is_ipv6());
        let (socket, known) = match asked.slot.map(|slot| self.sockets.get(slot)) {
            Some(Some(Socket { kind: Kind::Udp(socket), drops, .. })) => (&*socket, drops),
            Some(_) => return false,
            None => match &self.shared[family] {
                Some(socket) => (socket, &mut self.shared_drops[family]),
                None => return false,
            },
        };
        let is_new = Memory::of(socket).is_ok_and(|memory| memory.drops > *known);
        *known += u32::from(is_new);
        is_new
    }

    /// Closes what has been idle for long; passes no more that waits in a turn than what a turn can ask.
    pub(super) fn close_idle(&mut self, now: u64) {
        let mut steps = self.batch.outgoing.most();
        while let Some(slot) = self.sockets.idle(now, nanos(self.with.options.idle), &mut steps) {
            self.tally.closed_idle += 1;
            self.close(slot, Cause::Evicted);
        }
    }

    /// Closes the socket that was not used for the longest time; false where there is none.
    pub(super) fn evict(&mut self) -> bool {
        let Some(slot) = self.sockets.oldest() else { return false };
        self.tally.evicted += 1;
        self.close(slot, Cause::Evicted);
        true
    }

    /// Closes a socket; what waits on it is lost.
    pub(super) fn close(&mut self, slot: usize, cause: Cause) {
        // Datagrams that wait for this socket go first.
        if self.batch.target == Target::Slot(slot) {
            self.flush();
        }
        let Some(mut socket) = self.sockets.close(slot) else { return };
        // A client may have gone on at another.
        if self.clients.slot(socket.client, socket.carrier) == Some(slot) {
            self.clients.keep_slot(socket.client, socket.carrier, None);
        }
        match &mut socket.kind {
            Kind::Udp(_) => {}
            Kind::Stream(connection) => connection.close(),
            Kind::Quic(datagrams) => datagrams.close(Instant::now()),
        }
        while let Some(id) = socket.ids.pop_front() {
            self.fail(Key { endpoint: socket.serial, id }, cause);
        }
    }

    /// Loses what has left by a socket of datagrams and waits for an answer: nobody listens at the server's port.
    ///
    /// The kernel keeps one refusal a socket, however many datagrams are refused before it is heard.
    pub(super) fn refuse(&mut self, slot: usize, now: u64) {
        let Some(socket) = self.sockets.get(slot) else { return };
        let (endpoint, half) = (socket.serial, socket.half);
        let key = |id: u16| Key { endpoint, id };
        // What a distant client asks leaves later, and what is in the batch under way leaves now.
        let has_left = |id: &u16| {
            let planned = self.pending.planned(key(*id));
            planned.is_none_or(|planned| planned.due.saturating_add(half) <= now)
                && !self.batch.holds(key(*id))
        };
        let refused: Vec<u16> = socket.ids.iter().copied().take_while(has_left).collect();
        refused.into_iter().for_each(|id| self.fail(key(id), Cause::Refused));
    }

    /// Loses the query of a key, if it still waits.
    pub(super) fn fail(&mut self, key: Key, cause: Cause) {
        if let Some(asked) = self.pending.fail(key) {
            self.release(key, &asked);
            self.lost(&asked, cause);
        }
    }

    /// Takes an id from those that its socket waits for; returns the socket, unless it was closed since.
    pub(super) fn release(&mut self, key: Key, asked: &Asked) -> Option<&mut Socket> {
        let socket = self.sockets.get(asked.slot?).filter(|socket| socket.serial == key.endpoint)?;
        // Answers come in the order of their queries, nearly always.
        if socket.ids.front() == Some(&key.id) {
            socket.ids.pop_front();
        } else if let Some(at) = socket.ids.iter().position(|id| *id == key.id) {
            socket.ids.remove(at);
        }
        Some(socket)
    }

    /// Counts a query as lost.
    pub(super) fn lost(&mut self, asked: &Asked, cause: Cause) {
        self.tally.lost(cause);
        let round_trip = self.round_trip(asked.planned.client);
        self.rows.add(asked, None, cause.name(), round_trip);
    }
}
