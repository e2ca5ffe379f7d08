//! Queries on their way: from the schedule to the kernel, or onto the agenda of a distant client.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use super::super::agenda::What;
use super::super::batch::{Datagram, Target, set_id};
use super::super::carrier::Carrier;
use super::super::connection::Around;
use super::super::https::Https;
use super::super::layer::Layer;
use super::super::nanos;
use super::super::pending::{Asked, Key};
use super::super::quic::Quic;
use super::super::sockets::{self, Kind, Opening, Speech};
use super::super::tally::Cause;
use super::super::told::Told;
use super::hearing::Heard;
use super::preparing::Prepared;
use super::{LATE, Worker, endpoint};

/// How often a query is asked again: a server that says goodbye to each connection is not asked for ever.
const AGAIN_MAX: u8 = 2;

impl Worker<'_> {
    /// Sends what is due, at most a batch before answers are looked at again.
    pub(super) fn send_due(&mut self) {
        if !self.flush() {
            return;
        }
        let left = self.happen();
        let mut now = self.now();
        for _ in left..self.batch.outgoing.most() {
            let Some(due) = self.due() else { break };
            // Behind its time, the clock is not looked at for each.
            if due > now {
                now = self.now();
            }
            let is_due = match self.with.options.window {
                Some(window) => self.pending.waiting() < window,
                None => due <= now,
            };
            if !is_due {
                break;
            }
            let Some(mut prepared) = self.next_prepared(now) else { break };
            if self.with.options.window.is_some() {
                prepared.asked.planned.due = now;
            }
            self.ask(prepared, now);
        }
        self.flush();
    }

    /// Asks a query for the first time.
    fn ask(&mut self, mut prepared: Prepared, now: u64) {
        // A client's own socket is a system call for each, so that the others' of this turn have taken their time.
        let is_shared = prepared.asked.carrier == Carrier::Udp && prepared.source.is_some();
        let now = if is_shared { now } else { self.now() };
        let asked = &mut prepared.asked;
        (asked.sent, asked.until) = (now, now.saturating_add(nanos(self.with.options.timeout)));
        self.tally.due(asked.planned.due, asked.carrier);
        if let (Some(tally), Some(outcome)) = (&mut self.tally.mutation, &prepared.outcome) {
            tally.add(outcome);
        }
        self.tally.unchanged += u64::from(!prepared.has_its_name);
        self.put(prepared, now);
    }

    /// Asks over TCP what was truncated over UDP.
    pub(super) fn ask_again(&mut self, mut asked: Box<Asked>, now: u64) {
        asked.is_retry = true;
        asked.carrier = Carrier::Tcp;
        self.put_again(asked, now);
    }

    /// Asks on another connection what the server has not looked at, as it takes nothing more on this one.
    pub(super) fn ask_elsewhere(&mut self, key: Key, now: u64) {
        let Some(asked) = self.pending.fail(key) else { return };
        self.release(key, &asked);
        if asked.again >= AGAIN_MAX {
            return self.lost(&asked, Cause::Closed);
        }
        self.tally.unprocessed += 1;
        self.put_again(asked, now);
    }

    fn put_again(&mut self, mut asked: Box<Asked>, now: u64) {
        asked.again += 1;
        asked.until = now.saturating_add(nanos(self.with.options.timeout));
        let prepared = self.addressed(asked);
        self.put(prepared, now);
    }

    /// Puts a query on its way.
    fn put(&mut self, prepared: Prepared, now: u64) {
        let Prepared { mut asked, octets, server, source, .. } = prepared;
        if self.agenda.is_full() {
            return self.lost(&asked, Cause::NoRoom);
        }
        if let (Carrier::Udp, Some(source)) = (asked.carrier, source) {
            let length = octets.as_ref().unwrap_or(&asked.planned.message.octets).len();
            let target = match self.frames.device(server, length) {
                Some(device) => Target::Device(device),
                None => Target::Shared(usize::from(server.is_ipv6())),
            };
            // Another that was prepared may have taken it since.
            let still = prepared.key.filter(|key| self.pending.is_free(*key));
            let Some(key) = still.or_else(|| self.key(endpoint(source, server))) else {
                return self.lost(&asked, Cause::NoRoom);
            };
            let (way, due) = (Some((server, source)), asked.planned.due);
            return self.put_datagram(asked, Datagram { target, key, way, due }, octets);
        }
        let slot = match self.slot(&asked, (server, source), now) {
            Ok(Ok(slot)) => slot,
            Ok(Err(cause)) => return self.lost(&asked, cause),
            Err(error) => return self.lost(&asked, Cause::of(&error)),
        };
        asked.slot = Some(slot);
        let Some(socket) = self.sockets.get(slot) else { return self.lost(&asked, Cause::NoSocket) };
        let serial = socket.serial;
        let Some(key) = self.key(serial) else { return self.lost(&asked, Cause::NoRoom) };
        if asked.carrier == Carrier::Udp {
            let (target, way, due) = (Target::Slot(slot), None, asked.planned.due);
            self.put_datagram(asked, Datagram { target, key, way, due }, octets);
        } else {
            self.put_on_connection(asked, octets, slot, key);
        }
    }

    fn put_datagram(&mut self, asked: Box<Asked>, mut datagram: Datagram, octets: Option<Vec<u8>>) {
        let half = self.half(asked.planned.client);
        if half == 0 {
            if !self.leave(datagram, octets.as_ref().unwrap_or(&asked.planned.message.octets)) {
                return self.lost(&asked, Cause::NoRoom);
            }
            return self.remember(datagram.key, asked);
        }
        datagram.due += half;
        let octets = octets.unwrap_or_else(|| asked.planned.message.octets.clone());
        self.remember(datagram.key, asked);
        self.agenda.push(datagram.due, 0, What::Leaves(Box::new((datagram, octets))));
    }

    /// Adds a datagram to the batch under way; false where the kernel has no room for what is before it.
    fn leave(&mut self, datagram: Datagram, octets: &[u8]) -> bool {
        if !self.batch.takes(datagram.target) && !self.flush() {
            // Only a shared socket and a device keep their batch, and then nothing is asked before it is sent.
            return false;
        }
        match (datagram.target, datagram.way) {
            (Target::Device(_), Some(way)) => {
                let Some(frame) = self.frames.write(way, datagram.key.id, octets) else { return false };
                self.batch.push(Datagram { way: None, ..datagram }, frame);
            }
            _ => set_id(self.batch.push(datagram, octets), datagram.key.id),
        }
        if !matches!(datagram.target, Target::Slot(_)) {
            self.unheard.sent();
        }
        true
    }

    fn put_on_connection(&mut self, asked: Box<Asked>, octets: Option<Vec<u8>>, slot: usize, key: Key) {
        let mut octets = octets.unwrap_or_else(|| asked.planned.message.octets.clone());
        set_id(&mut octets, key.id);
        let now = self.now();
        let Some(socket) = self.sockets.get(slot) else { return self.lost(&asked, Cause::NoSocket) };
        let endpoint = socket.serial;
        let mut around = Around {
            readiness: &self.readiness,
            agenda: &mut self.agenda,
            token: sockets::token(slot, endpoint),
            anchor: self.anchor,
            half: socket.half,
            now,
        };
        let (heard, is_kept) = (&mut self.heard, self.with.differing.is_some());
        let mut told = |told: Told<'_>| heard.push((endpoint, now, Heard::of(&told, is_kept)));
        let taken = match &mut socket.kind {
            Kind::Stream(connection) => connection.ask(key.id, &octets, &mut around, &mut told),
            Kind::Quic(datagrams) => datagrams.ask(key.id, &octets, &mut around, &mut told),
            Kind::Udp(_) => Err(Cause::NoSocket),
        };
        let (due, again) = (asked.planned.due, asked.again);
        match taken {
            Err(Cause::NoRoom) => return self.lost(&asked, Cause::NoRoom),
            Err(cause) => {
                self.remember(key, asked);
                self.close(slot, cause);
            }
            Ok(()) => self.remember(key, asked),
        }
        if again == 0 {
            let sent = self.now();
            self.sent(due, sent);
        }
    }

    fn remember(&mut self, key: Key, asked: Box<Asked>) {
        if let Some(socket) = asked.slot.and_then(|slot| self.sockets.get(slot)) {
            socket.ids.push_back(key.id);
        }
        self.pending.add(key, asked);
    }

    /// Does what is on the agenda for now, up to a batch of datagrams, which are answered like any others; says how many left.
    fn happen(&mut self) -> usize {
        // What is put down meanwhile is for a later turn.
        let (now, mut left) = (self.now(), 0);
        while left < self.batch.outgoing.most()
            && let Some((at, token, what)) = self.agenda.pop(now)
        {
            match what {
                What::Leaves(leaving) => {
                    let (datagram, octets) = *leaving;
                    let key = datagram.key;
                    // The call for a client's own socket is made for it alone, and takes time of those behind it.
                    let now = if matches!(datagram.target, Target::Slot(_)) { self.now() } else { now };
                    // Where its socket was closed since, it was lost with that.
                    let Some(asked) = self.pending.asked(key) else { continue };
                    // Its client has sent it half a round trip before.
                    asked.sent = asked.planned.due + now.saturating_sub(datagram.due);
                    left += 1;
                    if !self.leave(datagram, &octets) {
                        self.fail(key, Cause::NoRoom);
                    }
                }
                What::Heard(endpoint, response) => self.hear_one(endpoint, response, at),
                what => self.happen_on_connection(token, what, now),
            }
        }
        left
    }

    /// Hands the batch under way to the kernel; false where that has no room for all of it now.
    pub(super) fn flush(&mut self) -> bool {
        if self.batch.outgoing.is_empty() {
            return true;
        }
        let mut told = Vec::with_capacity(self.batch.outgoing.len());
        let socket = match self.batch.target {
            Target::Shared(family) => self.shared[family].as_ref().map(AsFd::as_fd),
            Target::Device(device) => self.frames.socket(device),
            Target::Slot(slot) => match self.sockets.get(slot).map(|socket| &socket.kind) {
                Some(Kind::Udp(socket)) => Some(socket.as_fd()),
                _ => None,
            },
        };
        let is_done = match socket {
            Some(socket) => self.batch.outgoing.send(&socket, |sent| told.push(sent)),
            None => false,
        };
        let sent_at = self.now();
        // What the socket had heard before of what it sent: said once, to whoever sends next.
        let earlier = self.batch.outgoing.take_earlier();
        if let (Some(error), Target::Slot(slot)) = (earlier, self.batch.target) {
            self.troubled(slot, Cause::of(&error), sent_at);
        }
        let mut is_refused = false;
        for sent in told {
            let Some((key, due)) = self.batch.queries.pop_front() else { break };
            match sent.map_err(|error| Cause::of(&error)) {
                Ok(()) => self.sent(due, sent_at),
                Err(cause) => {
                    is_refused |= cause == Cause::Refused;
                    self.fail(key, cause);
                }
            }
        }
        if let (true, Target::Slot(slot)) = (is_refused, self.batch.target) {
            self.refuse(slot, sent_at);
        }
        // A client's own socket that is full or gone holds nobody else up.
        if !is_done && matches!(self.batch.target, Target::Slot(_)) {
            self.batch.outgoing.clear();
            while let Some((key, _)) = self.batch.queries.pop_front() {
                self.fail(key, Cause::NoRoom);
            }
            return true;
        }
        is_done
    }

    fn sent(&mut self, due: u64, sent: u64) {
        // With a window nothing is due at any time, and so nothing is late.
        let due = if self.with.options.window.is_some() { sent } else { due };
        self.last = self.last.max(sent);
        self.late += u64::from(sent.saturating_sub(due) > LATE);
        self.tally.sent(due, sent);
    }

    /// The client's socket, opened where there is none.
    fn slot(
        &mut self,
        asked: &Asked,
        (server, source): (SocketAddr, Option<IpAddr>),
        now: u64,
    ) -> io::Result<Result<usize, Cause>> {
        let (client, carrier) = (asked.planned.client, asked.carrier);
        // Where the server takes nothing more, what it still answers comes there, and the client goes on elsewhere.
        let known = self.clients.slot(client, carrier).filter(|slot| !self.sockets.is_leaving(*slot));
        if let Some(slot) = known {
            self.sockets.touch(slot, now);
            return Ok(Ok(slot));
        }
        if self.sockets.is_full() {
            self.evict();
        }
        let half = self.half(client);
        let open = |worker: &mut Self| {
            let speech = match worker.speech(client, carrier, server) {
                Ok(speech) => speech,
                Err(cause) => return Ok(Err(cause)),
            };
            let opening = Opening { client, carrier, server, source, half, speech };
            worker.sockets.open(opening, now, &worker.readiness, &mut worker.tally).map(Ok)
        };
        let mut opened = open(self);
        // A closed connection of TCP keeps its port for a while, another's socket does not.
        let has_run_out = |error: &io::Error| {
            net::client::is_out_of_descriptors(error)
                || matches!(carrier, Carrier::Udp | Carrier::Quic) && net::client::is_out_of_ports(error)
        };
        if opened.as_ref().is_err_and(has_run_out) && self.evict() {
            opened = open(self);
        }
        if let Ok(Ok(slot)) = opened {
            self.clients.keep_slot(client, carrier, Some(slot));
        }
        opened
    }

    /// What a client speaks over a carrier.
    fn speech(&mut self, client: u64, carrier: Carrier, server: SocketAddr) -> Result<Speech, Cause> {
        let options = self.with.options;
        if carrier == Carrier::Udp {
            return Ok(Speech::Plain);
        }
        let Some(tls) = options.tls.as_ref().filter(|_| carrier.is_secure()) else {
            return Ok(Speech::Stream(Layer::Plain(Default::default())));
        };
        let session = if tls.is_resuming() { self.clients.session(client) } else { None };
        match carrier {
            Carrier::Quic => {
                let now = self.anchor + Duration::from_nanos(self.now());
                Quic::new(tls, server, session, now).map(|quic| Speech::Quic(Box::new(quic)))
            }
            Carrier::Https => {
                let made = Https::new(tls, &options.https_path, server, session)?;
                Ok(Speech::Stream(Layer::Https(Box::new(made))))
            }
            _ => Layer::tls(tls, server, session).map(Speech::Stream),
        }
    }
}
