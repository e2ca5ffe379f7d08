//! One thread: its clients' queries sent when they are due, their answers matched.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dns::query::HEADER;
use dns::{Folded, name};
use foldhash::{HashMap, HashMapExt};
use net::client::{Incoming, Outgoing, Readiness, shared};
use net::udp::BATCH_MAX;
use routing::Prefix;

use super::octets::Response;
use super::pace::{self, Step};
use super::pending::{Asked, Key, Match, Pending};
use super::sockets::{self, Kind, Sockets};
use super::tally::{Cause, Tally};
use super::{Carriers, Shared, Source};
use crate::compare::compare;
use crate::mutate;
use crate::schedule::draw::{self, For};
use crate::schedule::{Met, Planned};
use crate::trace::message::question;
use crate::trace::{Message, Transport};

/// Queries that a thread reads ahead of their time: at a root server's 38,000 a second, a fifth of a second.
const AHEAD_MAX: usize = 8_192;

/// Ids that are looked at one after the other where the four of a draw are taken: with nine in ten taken, the
/// chance that none of so many is free is nil. Beyond, the socket counts as full.
const ID_PROBES: u16 = 1_024;

/// Clients that a thread remembers, 48 octets each: 1.2 million ask a root server in an hour. Those beyond have no
/// sockets of their own that last, and count as quiet.
const CLIENTS_MAX: usize = 1 << 22;

/// Queries in a minute from which a client counts as busy.
const BUSY: u32 = 10;

/// Nanoseconds of a minute, and between two updates of the live numbers.
const MINUTE: u64 = 60_000_000_000;
const LIVE_EVERY: u64 = 100_000_000;

/// Lateness that the live numbers count, in nanoseconds.
const LATE: u64 = 1_000_000;

/// Octets of log rows that a thread collects before it writes them.
const ROWS: usize = 64 << 10;

/// The bit of an endpoint's number that says that it is a source address at a shared socket.
const SHARED: u64 = 1 << 63;

/// Tokens of the shared sockets, IPv4 and IPv6; no slot has them.
const SHARED_TOKENS: [u64; 2] = [u64::MAX, u64::MAX - 1];

/// A client, as far as it is remembered.
#[derive(Debug, Default)]
struct Client {
    /// The slots of its sockets: UDP, TCP.
    slots: [Option<usize>; 2],
    minute: u64,
    asked: u32,
}

/// Where the batch under way goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Shared(usize),
    Slot(usize),
}

/// One thread's whole state.
pub(super) struct Worker<'a, S> {
    with: &'a Shared<'a>,
    share: u64,
    source: S,
    is_read_out: bool,
    ahead: VecDeque<Planned>,
    anchor: Instant,
    pending: Pending,
    clients: HashMap<u64, Client>,
    sockets: Sockets,
    /// One for each family, where source addresses are from a prefix.
    shared: [Option<UdpSocket>; 2],
    readiness: Readiness,
    outgoing: Outgoing,
    target: Target,
    /// The queries of the batch under way, in its order: keys and due times.
    batch: VecDeque<(Key, u64)>,
    incoming: Incoming,
    /// What has arrived in this turn: endpoint and response, `None` where it is none.
    heard: Vec<(u64, Option<Response>)>,
    room: Vec<u8>,
    ids: u64,
    tally: Tally,
    shown: [u64; 3],
    next_live: u64,
    late: u64,
    rows: String,
}

impl<'a, S: Source> Worker<'a, S> {
    /// Opens what it needs from the beginning.
    pub(super) fn new(with: &'a Shared<'a>, share: u64, source: S) -> io::Result<Self> {
        let readiness = Readiness::new()?;
        let mut sockets = [None, None];
        if with.options.source.is_some() {
            for (family, is_ipv4) in [(0, true), (1, false)] {
                if with.options.servers.iter().any(|server| server.is_ipv4() == is_ipv4) {
                    let socket = shared(is_ipv4)?;
                    readiness.add(&socket, SHARED_TOKENS[family], false)?;
                    sockets[family] = Some(socket);
                }
            }
        }
        Ok(Worker {
            with,
            share,
            source,
            is_read_out: false,
            ahead: VecDeque::new(),
            anchor: Instant::now(),
            pending: Pending::new(nanos(with.options.timeout)),
            clients: HashMap::new(),
            sockets: Sockets::new(with.sockets_max),
            shared: sockets,
            readiness,
            outgoing: Outgoing::new(),
            target: Target::Shared(0),
            batch: VecDeque::new(),
            incoming: Incoming::new(),
            heard: Vec::new(),
            room: Vec::new(),
            ids: 0,
            tally: Tally::new(with.options.mutation.as_ref()),
            shown: [0; 3],
            next_live: 0,
            late: 0,
            rows: String::new(),
        })
    }

    /// Sends all and waits for the answers; returns the counts, and when the last answer came.
    pub(super) fn run(mut self) -> io::Result<(Tally, Met, u64)> {
        // What fails here must not keep the other threads waiting at the start.
        let filled = self.fill();
        self.with.start.wait();
        self.anchor = *self.with.anchor.get_or_init(Instant::now);
        if let Err(error) = filled {
            self.with.live.stop.store(true, Ordering::Relaxed);
            return Err(error);
        }
        let ended = self.go();
        if ended.is_err() {
            self.with.live.stop.store(true, Ordering::Relaxed);
        }
        ended?;
        let end = self.now();
        self.live(end, true);
        self.with.log.write(self.rows.as_bytes());
        self.tally.clients = self.clients.len() as u64;
        Ok((self.tally, self.source.met(), end))
    }

    fn go(&mut self) -> io::Result<()> {
        while !self.with.live.stop.load(Ordering::Relaxed) {
            self.send_due();
            self.receive()?;
            let now = self.now();
            self.lose(now);
            self.close_idle(now);
            if now >= self.next_live {
                self.live(now, false);
            }
            if self.ahead.is_empty() && !self.is_read_out {
                self.read_batch()?;
                continue;
            }
            if self.ahead.is_empty() && self.batch.is_empty() && self.pending.waiting() == 0 {
                return Ok(());
            }
            let may_read = !self.is_read_out && self.ahead.len() < AHEAD_MAX;
            match pace::step(self.now(), self.next_due(), self.pending.next_expiry(), may_read) {
                Step::Send => {}
                Step::Spin => std::hint::spin_loop(),
                Step::Read => self.read_one()?,
                Step::Sleep(time) => self.readiness.wait(time)?,
            }
        }
        // Interrupted: what waits is given up.
        while let Some((asked, _)) = self.pending.expire(u64::MAX) {
            self.lost(&asked, Cause::Interrupted);
        }
        Ok(())
    }

    /// When the next query can be sent; with a window, once it has room.
    fn next_due(&self) -> Option<u64> {
        if !self.batch.is_empty() {
            return Some(0);
        }
        let next = self.ahead.front()?;
        match self.with.options.window {
            Some(window) if self.pending.waiting() >= window => None,
            _ => Some(next.due),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.anchor.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Reads ahead before the start.
    fn fill(&mut self) -> io::Result<()> {
        while !self.is_read_out && self.ahead.len() < AHEAD_MAX {
            self.read_one()?;
        }
        Ok(())
    }

    /// Reads what may fill a batch, when nothing is left of what was read ahead.
    fn read_batch(&mut self) -> io::Result<()> {
        for _ in 0..BATCH_MAX {
            self.read_one()?;
        }
        Ok(())
    }

    /// Reads one query of the schedule, and keeps it if it is of this share.
    fn read_one(&mut self) -> io::Result<()> {
        match self.source.next_query()? {
            None => self.is_read_out = true,
            Some(planned) if planned.client % self.with.options.threads as u64 == self.share => {
                self.ahead.push_back(planned);
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Sends what is due, at most a batch before answers are looked at again.
    fn send_due(&mut self) {
        if !self.flush() {
            return;
        }
        for _ in 0..BATCH_MAX {
            let now = self.now();
            let Some(next) = self.ahead.front() else { break };
            let is_due = match self.with.options.window {
                Some(window) => self.pending.waiting() < window,
                None => next.due <= now,
            };
            if !is_due {
                break;
            }
            let Some(mut planned) = self.ahead.pop_front() else { break };
            if self.with.options.window.is_some() {
                planned.due = now;
            }
            self.ask(planned, now);
        }
        self.flush();
    }

    /// Asks a query for the first time.
    fn ask(&mut self, planned: Planned, now: u64) {
        let options = self.with.options;
        let is_tcp = match options.carriers {
            Carriers::Recorded => planned.message.transport == Transport::Tcp,
            Carriers::TcpShare(share) => draw::unit(options.seed, For::Transport, planned.client) < share,
        };
        self.tally.due(planned.due, is_tcp);
        let is_quiet = self.is_quiet(planned.client, now);
        let asked = Asked {
            sent: now,
            until: now.saturating_add(nanos(options.timeout)),
            question: None,
            is_retry: false,
            is_quiet,
            is_udp: !is_tcp,
            slot: None,
            planned,
        };
        self.put(asked, now);
    }

    /// Asks over TCP what was truncated over UDP.
    fn ask_again(&mut self, mut asked: Asked, now: u64) {
        asked.is_retry = true;
        asked.is_udp = false;
        asked.until = now.saturating_add(nanos(self.with.options.timeout));
        self.put(asked, now);
    }

    /// Puts a query on its way.
    fn put(&mut self, mut asked: Asked, now: u64) {
        let octets = self.wire(&asked);
        asked.question = question(&octets);
        let server = self.server(asked.planned.client);
        let source = self
            .with
            .options
            .source
            .map(|prefix| source(prefix, asked.planned.client, self.with.options.seed));
        if let (true, Some(source)) = (asked.is_udp, source) {
            let target = Target::Shared(usize::from(server.is_ipv6()));
            self.put_datagram(asked, octets, target, endpoint(source, server), Some((server, source)));
            return;
        }
        let slot = match self.slot(&asked, (server, source), now) {
            Ok(slot) => slot,
            Err(error) => return self.lost(&asked, sockets::cause(&error)),
        };
        asked.slot = Some(slot);
        let Some(socket) = self.sockets.get(slot) else { return self.lost(&asked, Cause::NoSocket) };
        let serial = socket.serial;
        if asked.is_udp {
            self.put_datagram(asked, octets, Target::Slot(slot), serial, None);
        } else {
            self.put_on_stream(asked, octets, slot, serial);
        }
    }

    fn put_datagram(
        &mut self,
        asked: Asked,
        mut octets: Vec<u8>,
        target: Target,
        endpoint: u64,
        way: Option<(SocketAddr, IpAddr)>,
    ) {
        if (self.target != target || self.outgoing.is_full()) && !self.flush() {
            // Only a shared socket keeps its batch, and then nothing is asked before it is sent.
            return self.lost(&asked, Cause::NoRoom);
        }
        self.target = target;
        let Some(key) = self.key(endpoint) else { return self.lost(&asked, Cause::NoRoom) };
        set_id(&mut octets, key.id);
        self.outgoing.push(&octets, way.map(|(server, _)| server), way.map(|(_, source)| source));
        self.batch.push_back((key, asked.planned.due));
        self.remember(key, asked);
    }

    fn put_on_stream(&mut self, asked: Asked, mut octets: Vec<u8>, slot: usize, serial: u64) {
        let Some(key) = self.key(serial) else { return self.lost(&asked, Cause::NoRoom) };
        set_id(&mut octets, key.id);
        let token = sockets::token(slot, serial);
        let Some(Kind::Tcp(connection)) = self.sockets.get(slot).map(|socket| &mut socket.kind) else {
            return self.lost(&asked, Cause::NoSocket);
        };
        let taken = connection.ask(&octets, &self.readiness, token);
        let (due, is_retry) = (asked.planned.due, asked.is_retry);
        match taken {
            Err(Cause::NoRoom) => return self.lost(&asked, Cause::NoRoom),
            Err(cause) => {
                self.remember(key, asked);
                self.close(slot, cause);
            }
            Ok(()) => self.remember(key, asked),
        }
        if !is_retry {
            let sent = self.now();
            self.sent(due, sent);
        }
    }

    fn remember(&mut self, key: Key, asked: Asked) {
        if let Some(socket) = asked.slot.and_then(|slot| self.sockets.get(slot)) {
            socket.ids.push_back(key.id);
        }
        self.pending.add(key, asked);
    }

    /// Hands the batch under way to the kernel; false where that has no room for all of it now.
    fn flush(&mut self) -> bool {
        if self.outgoing.is_empty() {
            return true;
        }
        let mut told = Vec::with_capacity(BATCH_MAX);
        let socket = match self.target {
            Target::Shared(family) => self.shared[family].as_ref(),
            Target::Slot(slot) => match self.sockets.get(slot).map(|socket| &socket.kind) {
                Some(Kind::Udp(socket)) => Some(socket),
                _ => None,
            },
        };
        let is_done = match socket {
            Some(socket) => self.outgoing.send(socket, |sent| told.push(sent)),
            None => false,
        };
        let sent_at = self.now();
        for sent in told {
            let Some((key, due)) = self.batch.pop_front() else { break };
            match sent {
                Ok(()) => self.sent(due, sent_at),
                Err(error) => self.fail(key, sockets::cause(&error)),
            }
        }
        // A client's own socket that is full or gone holds nobody else up.
        if !is_done && matches!(self.target, Target::Slot(_)) {
            self.outgoing.clear();
            while let Some((key, _)) = self.batch.pop_front() {
                self.fail(key, Cause::NoRoom);
            }
            return true;
        }
        is_done
    }

    /// Takes what has arrived at all sockets.
    fn receive(&mut self) -> io::Result<()> {
        if self.shared.iter().all(Option::is_none) && self.sockets.oldest().is_none() {
            return Ok(());
        }
        let is_kept = self.with.differing.is_some();
        let ready: Vec<net::client::Ready> = self.readiness.ready()?.collect();
        for ready in ready {
            if let Some(family) = SHARED_TOKENS.iter().position(|token| *token == ready.token) {
                self.receive_shared(family)?;
                continue;
            }
            let Some(slot) = self.sockets.of_token(ready.token) else { continue };
            let Some(socket) = self.sockets.get(slot) else { continue };
            let endpoint = socket.serial;
            let failed = match &mut socket.kind {
                Kind::Udp(datagrams) => match self.incoming.receive(datagrams) {
                    Ok(_) => {
                        let heard = self
                            .incoming
                            .replies()
                            .map(|reply| (endpoint, Response::read(reply.octets, is_kept)));
                        self.heard.extend(heard);
                        None
                    }
                    // One datagram was refused; which, the system does not say: the oldest.
                    Err(error) => {
                        if let Some(id) = socket.ids.front().copied() {
                            self.fail(Key { endpoint, id }, sockets::cause(&error));
                        }
                        None
                    }
                },
                Kind::Tcp(connection) => {
                    let mut failed = None;
                    if ready.writable {
                        match connection.writable(&self.readiness, ready.token) {
                            Ok(has_come_about) => self.tally.established += u64::from(has_come_about),
                            Err(cause) => failed = Some(cause),
                        }
                    }
                    if ready.readable && failed.is_none() {
                        let heard = &mut self.heard;
                        let told = |octets: &[u8]| heard.push((endpoint, Response::read(octets, is_kept)));
                        failed = connection.read(&mut self.room, told).err();
                    }
                    failed
                }
            };
            let now = self.now();
            self.hear(now);
            if let Some(cause) = failed {
                self.tally.closed_by_server += u64::from(matches!(cause, Cause::Closed | Cause::Reset));
                self.close(slot, cause);
            }
        }
        Ok(())
    }

    fn receive_shared(&mut self, family: usize) -> io::Result<()> {
        let is_kept = self.with.differing.is_some();
        let Some(socket) = &self.shared[family] else { return Ok(()) };
        loop {
            let received = self.incoming.receive(socket)?;
            let heard = self.incoming.replies().filter_map(|reply| {
                Some((endpoint(reply.local?, reply.peer?), Response::read(reply.octets, is_kept)))
            });
            self.heard.extend(heard);
            if received < BATCH_MAX {
                break;
            }
        }
        let now = self.now();
        self.hear(now);
        Ok(())
    }

    /// Matches what was heard.
    fn hear(&mut self, now: u64) {
        let mut heard = std::mem::take(&mut self.heard);
        for (endpoint, response) in heard.drain(..) {
            let Some(response) = response else {
                self.tally.aliens += 1;
                continue;
            };
            let key = Key { endpoint, id: response.id };
            match self.pending.answer(key, |question| response.answers(question)) {
                Match::First(asked) => self.answered(key, asked, response, now),
                Match::Duplicate => self.tally.duplicates += 1,
                Match::Late => self.tally.late_answers += 1,
                Match::Alien => self.tally.aliens += 1,
            }
        }
        self.heard = heard;
    }

    fn answered(&mut self, key: Key, asked: Box<Asked>, response: Response, now: u64) {
        self.release(key, &asked);
        if response.is_truncated && asked.is_udp {
            self.tally.truncated += 1;
            return self.ask_again(*asked, now);
        }
        self.tally.answered(asked.planned.due, asked.sent, now, response.rcode, asked.is_quiet);
        self.compare(&asked, response.octets, now);
        if self.is_logged() {
            let rcode = dns::Rcode::masked_from_int(response.rcode).to_string();
            self.row(&asked, Some(now), &rcode);
        }
    }

    /// Holds an answer against the recorded one.
    fn compare(&mut self, asked: &Asked, given: Option<Box<[u8]>>, now: u64) {
        let (Some(differing), Some(given)) = (&self.with.differing, given) else { return };
        let planned = &asked.planned;
        let verdict = planned.recorded.as_ref().map(|recorded| (recorded, compare(&recorded.octets, &given)));
        self.tally.comparison.add(verdict.map(|(_, verdict)| verdict));
        if let Some((recorded, verdict)) = verdict
            && verdict.is_difference()
        {
            let after = Duration::from_nanos(now.saturating_sub(planned.due));
            differing.keep(&planned.message, recorded, given.into(), self.server(planned.client), after);
        }
    }

    /// Loses what has waited too long.
    fn lose(&mut self, now: u64) {
        while let Some((asked, is_crowded)) = self.pending.expire(now) {
            if let Some(slot) = asked.slot {
                // The oldest of its socket, as all wait equally long.
                if let Some(socket) = self.sockets.get(slot) {
                    socket.ids.pop_front();
                }
            }
            self.lost(&asked, if is_crowded { Cause::GivenUp } else { Cause::Timeout });
        }
    }

    fn close_idle(&mut self, now: u64) {
        while let Some(slot) = self.sockets.idle(now, nanos(self.with.options.idle)) {
            self.tally.closed_idle += 1;
            self.close(slot, Cause::Evicted);
        }
    }

    /// The client's socket, opened where there is none.
    fn slot(&mut self, asked: &Asked, to: (SocketAddr, Option<IpAddr>), now: u64) -> io::Result<usize> {
        let (client, kind) = (asked.planned.client, usize::from(!asked.is_udp));
        if let Some(slot) = self.clients.get(&client).and_then(|client| client.slots[kind]) {
            self.sockets.touch(slot, now);
            return Ok(slot);
        }
        if self.sockets.is_full() {
            self.evict();
        }
        let mut opened = self.sockets.open(kind == 1, client, to, now, &self.readiness, &mut self.tally);
        if opened.as_ref().is_err_and(net::client::is_out_of_descriptors) && self.evict() {
            opened = self.sockets.open(kind == 1, client, to, now, &self.readiness, &mut self.tally);
        }
        let slot = opened?;
        if let Some(client) = self.clients.get_mut(&client) {
            client.slots[kind] = Some(slot);
        }
        Ok(slot)
    }

    /// Closes the socket that was not used for the longest time; false where there is none.
    fn evict(&mut self) -> bool {
        let Some(slot) = self.sockets.oldest() else { return false };
        self.tally.evicted += 1;
        self.close(slot, Cause::Evicted);
        true
    }

    /// Closes a socket; what waits on it is lost.
    fn close(&mut self, slot: usize, cause: Cause) {
        // Datagrams that wait for this socket go first.
        if self.target == Target::Slot(slot) {
            self.flush();
        }
        let Some(mut socket) = self.sockets.close(slot) else { return };
        let kind = usize::from(matches!(socket.kind, Kind::Tcp(_)));
        if let Some(client) = self.clients.get_mut(&socket.client) {
            client.slots[kind] = None;
        }
        while let Some(id) = socket.ids.pop_front() {
            self.fail(Key { endpoint: socket.serial, id }, cause);
        }
    }

    /// Loses the query of a key, if it still waits.
    fn fail(&mut self, key: Key, cause: Cause) {
        if let Some(asked) = self.pending.fail(key) {
            self.release(key, &asked);
            self.lost(&asked, cause);
        }
    }

    /// Takes an id from those that its socket waits for.
    fn release(&mut self, key: Key, asked: &Asked) {
        let Some(socket) = asked.slot.and_then(|slot| self.sockets.get(slot)) else { return };
        if socket.serial == key.endpoint
            && let Some(at) = socket.ids.iter().position(|id| *id == key.id)
        {
            socket.ids.remove(at);
        }
    }

    fn sent(&mut self, due: u64, sent: u64) {
        self.late += u64::from(sent.saturating_sub(due) > LATE);
        self.tally.sent(due, sent);
    }

    fn lost(&mut self, asked: &Asked, cause: Cause) {
        self.tally.lost(cause);
        if self.is_logged() {
            self.row(asked, None, cause.name());
        }
    }

    /// Whether a client has asked little in this minute; counts one query more.
    fn is_quiet(&mut self, client: u64, now: u64) -> bool {
        if self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(&client) {
            return true;
        }
        let client = self.clients.entry(client).or_default();
        if client.minute != now / MINUTE {
            (client.minute, client.asked) = (now / MINUTE, 0);
        }
        client.asked += 1;
        client.asked < BUSY
    }

    fn server(&self, client: u64) -> SocketAddr {
        let servers = &self.with.options.servers;
        let draw =
            if servers.len() == 1 { 0 } else { draw::draw(self.with.options.seed, For::Server, client) };
        servers[(draw % servers.len() as u64) as usize]
    }

    /// The query as it is sent, with the recorded id.
    fn wire(&mut self, asked: &Asked) -> Vec<u8> {
        let planned = &asked.planned;
        let options = self.with.options;
        let has_own_name = options.unique_names && planned.copy > 0;
        if options.mutation.is_none() && !has_own_name {
            return planned.message.octets.clone();
        }
        let mut message = Message::clone(&planned.message);
        if let Some(mutation) = &options.mutation {
            let (changed, outcome) = mutation.apply(planned.index, message);
            message = changed;
            // What is asked again was counted before.
            if let (Some(tally), false) = (&mut self.tally.mutation, asked.is_retry) {
                tally.add(&outcome);
            }
        }
        if has_own_name && !mutate::labelled(&mut message, &format!("c{}", planned.copy)) {
            self.tally.unchanged += u64::from(!asked.is_retry);
        }
        message.octets
    }

    /// A key of an endpoint with an id on which nothing waits; `None` where next to all 65,536 wait.
    fn key(&mut self, endpoint: u64) -> Option<Key> {
        self.ids += 1;
        let seed = self.with.options.seed ^ self.share;
        let drawn = draw::draw(seed, For::Id, self.ids);
        let tries = (0..4).map(|at| (drawn >> (16 * at)) as u16);
        let rest = (0..ID_PROBES).map(|step| (drawn as u16).wrapping_add(step));
        tries.chain(rest).map(|id| Key { endpoint, id }).find(|key| self.pending.is_free(*key))
    }

    fn is_logged(&self) -> bool {
        self.with.log.is_wanted
    }

    /// One row of the log.
    fn row(&mut self, asked: &Asked, answered: Option<u64>, result: &str) {
        let planned = &asked.planned;
        let micros = |nanos: u64| nanos as f64 / 1_000.0;
        let latency =
            answered.map_or("-".into(), |at| format!("{:.3}", micros(at.saturating_sub(planned.due))));
        let mut name = Folded::root();
        let (asked_name, rtype) = match planned.message.query(&mut name) {
            Some(query) => {
                let asked_name = &query.head[HEADER..HEADER + query.name.wire_length()];
                (name::to_text(asked_name).replace('\t', "\\009"), query.rtype.to_string())
            }
            None => ("-".into(), "-".into()),
        };
        let transport = match (asked.is_udp, asked.is_retry) {
            (true, _) => "udp",
            (false, true) => "udp+tcp",
            (false, false) => "tcp",
        };
        let _ = writeln!(
            self.rows,
            "{}\t{:.3}\t{:.3}\t{latency}\t{}\t{}\t{transport}\t{result}\t{asked_name}\t{rtype}",
            planned.index,
            micros(planned.due),
            micros(asked.sent),
            planned.message.client.ip(),
            planned.copy,
        );
        if self.rows.len() >= ROWS {
            self.with.log.write(self.rows.as_bytes());
            self.rows.clear();
        }
    }

    /// Updates the live numbers.
    fn live(&mut self, now: u64, is_end: bool) {
        self.next_live = now + LIVE_EVERY;
        let live = self.with.live;
        let seen = [self.tally.lateness.len(), self.tally.answers, self.tally.lost_total()];
        for ((shown, seen), cell) in
            self.shown.iter_mut().zip(seen).zip([&live.sent, &live.answered, &live.lost])
        {
            cell.fetch_add(seen - std::mem::replace(shown, seen), Ordering::Relaxed);
        }
        live.late.fetch_add(std::mem::take(&mut self.late), Ordering::Relaxed);
        // A percentile takes a walk through the histogram: not while a query is due.
        if is_end || self.next_due().is_none_or(|due| due > now + LATE) {
            live.lateness_p99.fetch_max(self.tally.lateness.value_at_percentile(99.0), Ordering::Relaxed);
        }
    }
}

fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn set_id(octets: &mut [u8], id: u16) {
    if let Some(place) = octets.first_chunk_mut() {
        *place = id.to_be_bytes();
    }
}

/// The number of a source address at a shared socket, as asked from it and as answered to it.
fn endpoint(source: IpAddr, server: SocketAddr) -> u64 {
    SHARED | draw::client(source, 0) ^ draw::client(server.ip(), u32::from(server.port()))
}

/// A client's address in a prefix; not the first and not the last, which may be a network's own.
fn source(prefix: Prefix, client: u64, seed: u64) -> IpAddr {
    let draw = u128::from(draw::draw(seed, For::Source, client));
    let within = |bits: u32| match bits {
        0 => 0,
        1 => draw & 1,
        bits => 1 + draw % ((1_u128 << bits.min(64)) - 2),
    };
    match prefix.address() {
        IpAddr::V4(first) => {
            let host = within(32 - u32::from(prefix.length())) as u32;
            Ipv4Addr::from(u32::from(first) | host).into()
        }
        IpAddr::V6(first) => {
            let host = within(128 - u32::from(prefix.length()));
            Ipv6Addr::from(u128::from(first) | host).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_lie_in_their_prefix() {
        for prefix in
            ["127.1.0.0/16", "192.0.2.0/30", "192.0.2.8/31", "192.0.2.7/32", "2001:db8::/48", "::1/128"]
        {
            let prefix: Prefix = prefix.parse().expect("a prefix");
            for client in 0..200 {
                let address = source(prefix, client, 1);
                assert!(prefix.contains(address), "{address} in {prefix}");
                let is_edge = address == prefix.address() && prefix.length() < 31 && address.is_ipv4();
                assert!(!is_edge, "{address}");
            }
        }
    }
}
