//! A worker: one thread, one core, one socket for clients, and a set of sockets for each back end.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use dns::query::Refusal;
use dns::relay::{Added, add_subnet, take_out_keepalive, take_out_subnet};
use dns::writer::without_question;
use dns::{Folded, Query, Rcode};
use net::client::{Incoming, Outgoing, Readiness, Trouble};
use net::clock::Clock;
use net::udp::{BATCH_MAX, DATAGRAM_MAX, UdpListener};
use routing::balance::{BACK_ENDS_MAX, Set};

use crate::client_address::{ClientAddress, Transport};
use crate::clients::Clients;
use crate::counters::FrontCounters;
use crate::field::{Field, Standing};
use crate::message::{Says, UDP_PAYLOAD, answer};
use crate::pending::{Asker, Index, Pending, Refused, Unmatched, rcode};
use crate::picker::Picker;

/// The most sockets of one back end: sixteen times as many ports and ids as one has.
pub const SOCKETS_MAX: usize = 16;

/// The longest that a worker waits for packets, so that it sees what has changed: back ends, leases, timeouts.
const WAIT_MAX: Duration = Duration::from_millis(20);

/// From one time that lines are opened again to the next, in nanoseconds: soon after there is a way to a back end again, and
/// seldom enough that errors, which anybody on the way can make up, cost the queries that wait only once in it.
const MEND_NS: u64 = 1_000_000_000;

/// Batches that are received from a socket before others have their turn.
const ROUNDS_MAX: usize = 8;

/// Batches of queries before replies have their turn: under load, so many go to a back end with one system call, and few
/// enough that their replies find room.
const QUERY_ROUNDS_MAX: usize = 4;

/// The number of the clients' socket; those of back ends follow.
const CLIENTS: u64 = 0;

/// How long and how much a worker waits.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long a back end may take for an answer, in nanoseconds.
    pub timeout_ns: u64,
    /// To how many back ends a query may go, one after the other; from 1.
    pub tries: usize,
    /// Sockets for each back end, from 1 to [`SOCKETS_MAX`].
    pub sockets: usize,
    /// Queries that may wait at a time; further ones are dropped.
    pub outstanding_max: usize,
    /// Queries of one client that may wait at a time; further ones are dropped.
    pub per_client_max: u16,
    /// How back ends learn whose query it is.
    pub client_address: ClientAddress,
}

/// A worker before it runs.
#[derive(Debug)]
pub struct Worker {
    /// Its number among all workers, from 0.
    pub index: usize,
    /// The core to stay on, where one is chosen.
    pub core: Option<usize>,
    /// Its socket for clients, of those that share an address.
    pub listener: Arc<UdpListener>,
    /// The back ends, replaced as a whole when one comes or goes.
    pub field: Arc<ArcSwap<Field>>,
    /// Picks a back end for each query.
    pub picker: Picker,
    /// What it counts of clients, which nobody else writes.
    pub counters: Arc<FrontCounters>,
    /// Set when it is to end, once what is in flight has ended.
    pub stops: Arc<AtomicBool>,
    /// The clock of the whole balancer, by which leases run out.
    pub clock: Clock,
    /// How long and how much it waits.
    pub limits: Limits,
}

/// A socket to a back end.
#[derive(Debug)]
struct Line {
    socket: UdpSocket,
    outgoing: Outgoing,
}

/// What a worker works with.
struct Bench {
    worker: Worker,
    readiness: Readiness,
    pending: Pending,
    lines: Vec<Option<Line>>,
    /// Lines with datagrams that wait to be sent.
    ready: Vec<u16>,
    /// Which of a back end's sockets is taken first. It is drawn anew for each round of the loop, so that what comes
    /// together goes with one system call; nobody outside knows what came together.
    socket: usize,
    answers: Outgoing,
    clients: Clients,
    name: Folded,
    room: Box<[u8; DATAGRAM_MAX]>,
    /// A query behind its preface, where there is one.
    prefaced: Vec<u8>,
    /// Back ends of which the system said just now that nobody is there.
    gone: Set,
    /// Those whose lines are to be opened anew: the system said that one of them will not do.
    broken: Set,
    /// Those that lack some of their lines, and those that lack all.
    incomplete: Set,
    closed: Set,
    /// When lines were last opened again.
    mended_ns: u64,
}

impl Worker {
    /// Serves until it is to stop and the listener is stopped; then what is in flight is waited for.
    ///
    /// # Errors
    /// What the system says where it refuses what is needed to begin.
    pub fn run(self) -> std::io::Result<()> {
        if let Some(core) = self.core
            && let Err(cause) = net::thread::pin(core)
        {
            tracing::warn!(worker = self.index, core, %cause, "the worker is not pinned to its core");
        }
        self.bench()?.serve()
    }

    fn bench(self) -> std::io::Result<Bench> {
        let sockets = BACK_ENDS_MAX * SOCKETS_MAX;
        let readiness = Readiness::new()?;
        readiness.add(&*self.listener, CLIENTS, false)?;
        Ok(Bench {
            readiness,
            pending: Pending::new(self.limits.outstanding_max, sockets),
            lines: (0..sockets).map(|_| None).collect(),
            ready: Vec::with_capacity(sockets),
            socket: 0,
            answers: Outgoing::new(),
            clients: Clients::new(self.limits.per_client_max),
            name: Folded::root(),
            room: Box::new([0; DATAGRAM_MAX]),
            prefaced: Vec::new(),
            gone: Set::EMPTY,
            broken: Set::EMPTY,
            incomplete: Set::EMPTY,
            closed: Set::EMPTY,
            mended_ns: 0,
            worker: self,
        })
    }
}

impl Bench {
    fn serve(mut self) -> std::io::Result<()> {
        let (mut incoming, mut replies) = (Incoming::new(), Incoming::merged());
        let mut tokens = Vec::new();
        let mut ends = false;
        let mut now = self.now();
        loop {
            tokens.clear();
            let wait = self.wait(now);
            tokens.extend(self.readiness.ready_within(wait)?.map(|ready| ready.token));
            self.socket = self.worker.picker.rng().usize(..self.worker.limits.sockets);
            if !ends && self.worker.stops.load(Ordering::Acquire) {
                self.readiness.forget(&*self.worker.listener)?;
                ends = true;
            }
            if ends && self.pending.is_empty() {
                return Ok(());
            }
            now = self.now();
            self.look(now);
            for token in &tokens {
                match *token {
                    CLIENTS if ends => {}
                    CLIENTS => self.take_queries(&mut incoming, now),
                    line => self.take_replies(line as u16 - 1, &mut replies),
                }
            }
            self.expire(now);
            self.flush();
            self.bury();
            self.mend(now);
            self.flush();
        }
    }

    fn now(&self) -> u64 {
        self.worker.clock.monotonic_ns()
    }

    /// How long to wait for packets: until the next timeout, and not too long.
    fn wait(&self, now: u64) -> Duration {
        let Some(oldest) = self.pending.oldest_ns() else { return WAIT_MAX };
        let due = oldest.saturating_add(self.worker.limits.timeout_ns);
        Duration::from_nanos(due.saturating_sub(now) + 1).min(WAIT_MAX)
    }

    /// Sees what has changed.
    fn look(&mut self, now: u64) {
        let field = self.worker.field.load();
        for place in self.worker.picker.look(&field, now).iter() {
            self.replace(place, now);
        }
    }

    /// Another back end is in this place, or none.
    fn replace(&mut self, place: usize, now: u64) {
        for index in self.pending.waiting_for(place) {
            // Only a back end that has nothing in flight is taken out, so these were sent between two looks.
            let next = self.pending.time_out(index);
            self.dispatch_again(next, now);
        }
        self.close(place);
        for places in [&mut self.broken, &mut self.incomplete, &mut self.closed] {
            *places = places.without(place);
        }
        self.open(place);
    }

    fn close(&mut self, place: usize) {
        self.lines[place * SOCKETS_MAX..(place + 1) * SOCKETS_MAX].fill_with(|| None);
    }

    /// Opens the lines of a back end that are not open.
    fn open(&mut self, place: usize) {
        let Some(back_end) = self.worker.picker.back_end(place) else { return };
        let address = back_end.address;
        let (first, sockets) = (place * SOCKETS_MAX, self.worker.limits.sockets);
        let mut refused = None;
        for line in first..first + sockets {
            if self.lines[line].is_some() {
                continue;
            }
            let opened = net::client::ask_for_many(address, None).and_then(|socket| {
                self.readiness.add(&socket, line as u64 + 1, false)?;
                let outgoing = Outgoing::merging(&socket);
                Ok(Line { socket, outgoing })
            });
            match opened {
                Ok(opened) => self.lines[line] = Some(opened),
                Err(cause) => refused = Some(cause),
            }
        }
        let is_closed = self.lines[first..first + sockets].iter().all(Option::is_none);
        self.closed = if is_closed { self.closed.with(place) } else { self.closed.without(place) };
        // It may go on for days, and is told once.
        match (refused, self.incomplete.contains(place)) {
            (Some(cause), false) => {
                tracing::error!(%address, %cause, "sockets to the back end cannot be opened; it is tried again and again");
                self.incomplete = self.incomplete.with(place);
            }
            (None, true) => {
                tracing::info!(%address, "all sockets to the back end are open now");
                self.incomplete = self.incomplete.without(place);
            }
            _ => {}
        }
    }

    /// Opens lines that are missing, and anew those that will not do, if it is time.
    fn mend(&mut self, now: u64) {
        let ailing = self.broken.or(self.incomplete);
        if ailing.is_empty() || now.saturating_sub(self.mended_ns) < MEND_NS {
            return;
        }
        self.mended_ns = now;
        let broken = std::mem::take(&mut self.broken);
        for place in ailing.iter() {
            if broken.contains(place) {
                self.close(place);
                self.abandon(place, now);
            }
            self.open(place);
        }
    }

    fn take_queries(&mut self, incoming: &mut Incoming, now: u64) {
        for _ in 0..QUERY_ROUNDS_MAX {
            let received = match incoming.receive(&*self.worker.listener) {
                Ok(received) => received,
                Err(cause) => {
                    tracing::error!(worker = self.worker.index, %cause, "receiving from clients failed");
                    return;
                }
            };
            for datagram in incoming.replies() {
                self.worker.counters.queries.add(1);
                if let Some(client) = datagram.peer {
                    self.take_query(datagram.octets, client, datagram.local, now);
                }
            }
            if received < BATCH_MAX {
                return;
            }
        }
    }

    fn take_query(&mut self, octets: &[u8], client: SocketAddr, local: Option<IpAddr>, now: u64) {
        let (key, question_end, edns) = match Query::read(octets, &mut self.name) {
            Ok(query) => (self.worker.picker.hash_question(&query), query.head.len(), query.edns),
            Err(Refusal::Silence) => return self.worker.counters.no_query.add(1),
            Err(refusal) => {
                let rcode = match refusal {
                    Refusal::Rcode(rcode) => rcode,
                    _ => Rcode::FORMERR,
                };
                self.worker.counters.malformed.add(1);
                if let Some(length) = without_question(octets, rcode, UDP_PAYLOAD, &mut self.room[..]) {
                    self.send_answer(length, client, local);
                }
                return;
            }
        };
        let Some(counted_at) = self.clients.take(self.worker.picker.hash_client(client.ip())) else {
            return self.worker.counters.full_client.add(1);
        };
        let id = u16::from_be_bytes([octets[0], octets[1]]);
        let asker = Asker { client, local, id, counted_at, added: Added::Nothing };
        match self.pending.take(asker, octets, question_end, key) {
            Ok(index) => {
                if edns.as_ref().is_some_and(|edns| edns.tcp_keepalive) {
                    let query = &mut self.pending.get_mut(index).query;
                    let length = take_out_keepalive(query, question_end);
                    query.truncate(length);
                }
                if let Some(subnet) = self.worker.limits.client_address.subnet(client.ip()) {
                    let waiting = self.pending.get_mut(index);
                    waiting.asker.added =
                        add_subnet(&mut waiting.query, question_end, edns.as_ref(), &subnet);
                }
                self.dispatch(index, now, Picker::sent);
            }
            Err(_) => {
                self.clients.give_back(counted_at);
                self.worker.counters.full.add(1);
            }
        }
    }

    /// Sends a query to a back end; `sent` counts it there.
    fn dispatch(&mut self, index: Index, now: u64, sent: fn(&mut Picker, usize, u64) -> u32) {
        let waiting = self.pending.get(index);
        let (key, client, tried) = (waiting.key, waiting.asker.client.ip(), waiting.tried);
        let (worker, passed_over) = (&mut self.worker, tried.or(self.closed));
        let Some(place) = worker.picker.pick(key, client, passed_over, now, &worker.counters) else {
            let says = if !self.closed.is_empty() && !worker.picker.has_others(passed_over) {
                worker.counters.no_socket.add(1);
                Some(Says::Rcode(Rcode::SERVFAIL))
            } else if worker.picker.has_connections(now) {
                worker.counters.steered.add(1);
                Some(Says::Truncated)
            } else {
                worker.counters.shed.add(1);
                None
            };
            return self.give_up(index, says);
        };
        let sockets = worker.limits.sockets;
        for turn in 0..sockets {
            let line = (place * SOCKETS_MAX + (self.socket + turn) % sockets) as u16;
            if self.lines[usize::from(line)].is_none() {
                continue;
            }
            // What follows from the back end is set before it waits, for then its place in the order is fixed.
            let waiting = self.pending.get_mut(index);
            (waiting.back_end, waiting.sent_ns, waiting.tried) = (place, now, tried.with(place));
            match self.pending.sent(index, line, self.worker.picker.rng()) {
                Ok(()) => {
                    let load = sent(&mut self.worker.picker, place, now);
                    self.pending.get_mut(index).load = load;
                    return self.push(line, index);
                }
                Err(Refused::NoId | Refused::Full) => {}
            }
        }
        self.worker.counters.no_id.add(1);
        self.give_up(index, Some(Says::Rcode(Rcode::SERVFAIL)));
    }

    /// Sends a query to another back end, or gives it up.
    fn dispatch_again(&mut self, index: Index, now: u64) {
        let tried = self.pending.get(index).tried;
        let picker = &mut self.worker.picker;
        if tried.len() < self.worker.limits.tries && picker.has_others(tried.or(self.closed)) {
            if picker.may_retry() {
                self.worker.counters.retries.add(1);
                return self.dispatch(index, now, Picker::sent_again);
            }
            self.worker.counters.retries_denied.add(1);
        }
        self.worker.counters.failed.add(1);
        self.give_up(index, Some(Says::Rcode(Rcode::SERVFAIL)));
    }

    /// A query that does not wait is answered by us, or not at all.
    fn give_up(&mut self, index: Index, says: Option<Says>) {
        let waiting = self.pending.get(index);
        let asker = waiting.asker;
        if let Some(says) = says {
            let length = self.answer(index, says);
            self.send_answer(length, asker.client, asker.local);
        }
        self.clients.give_back(asker.counted_at);
        self.pending.give_back(index);
    }

    /// Writes an answer of ours to the query in a place.
    fn answer(&mut self, index: Index, says: Says) -> usize {
        let waiting = self.pending.get(index);
        let edns = match waiting.asker.added {
            Added::Record => None,
            _ => Query::read(&waiting.query, &mut self.name).ok().and_then(|query| query.edns),
        };
        answer(
            &waiting.query,
            waiting.question_end,
            edns.as_ref(),
            waiting.asker.id,
            says,
            &mut self.room[..],
        )
    }

    fn push(&mut self, line: u16, index: Index) {
        let Some(open) = &mut self.lines[usize::from(line)] else { return };
        if open.outgoing.is_empty() {
            self.ready.push(line);
        }
        let waiting = self.pending.get(index);
        if self.worker.limits.client_address == ClientAddress::Proxy {
            let bound = self.worker.listener.local_address();
            let local = waiting.asker.local.map_or(bound, |local| SocketAddr::new(local, bound.port()));
            self.prefaced.clear();
            let way = self.worker.limits.client_address;
            way.preface(Transport::Datagram, waiting.asker.client, local, &mut self.prefaced);
            self.prefaced.extend_from_slice(&waiting.query);
            open.outgoing.push(&self.prefaced, None, None);
        } else {
            open.outgoing.push(&waiting.query, None, None);
        }
        if open.outgoing.is_full() {
            self.send(line);
        }
    }

    /// Sends what the room holds, with the other answers of this turn.
    fn send_answer(&mut self, length: usize, client: SocketAddr, local: Option<IpAddr>) {
        self.make_room();
        self.answers.push(&self.room[..length], Some(client), local);
    }

    /// Sends an answer in the same way; returns its octets, which may still be changed.
    fn pass_on(&mut self, octets: &[u8], client: SocketAddr, local: Option<IpAddr>) -> &mut [u8] {
        self.make_room();
        self.answers.push(octets, Some(client), local)
    }

    fn make_room(&mut self) {
        if self.answers.is_full() {
            self.send_answers();
        }
    }

    fn take_replies(&mut self, line: u16, incoming: &mut Incoming) {
        let place = usize::from(line) / SOCKETS_MAX;
        for _ in 0..ROUNDS_MAX {
            let Some(open) = &self.lines[usize::from(line)] else { return };
            let received = match incoming.receive(&open.socket) {
                Ok(received) => received,
                // An ICMP message; the error is taken with it, and replies may stand behind it.
                Err(error) => {
                    self.hear(place, Trouble::of(&error));
                    continue;
                }
            };
            let now = self.now();
            for reply in incoming.replies() {
                self.take_reply(line, place, reply.octets, now);
            }
            if received < BATCH_MAX {
                return;
            }
        }
    }

    /// Notes what the system says of a line.
    fn hear(&mut self, place: usize, trouble: Trouble) {
        if matches!(trouble, Trouble::NobodyListens | Trouble::NoWay) {
            self.gone = self.gone.with(place);
        }
        if matches!(trouble, Trouble::NoWay | Trouble::Socket) {
            self.broken = self.broken.with(place);
        }
    }

    fn take_reply(&mut self, line: u16, place: usize, octets: &[u8], now: u64) {
        let index = match self.pending.matching(line, octets) {
            Ok(index) => index,
            Err(why) => {
                if let Some(cells) = self.worker.picker.cells(place) {
                    match why {
                        Unmatched::Alien => cells.alien.add(1),
                        Unmatched::Late => cells.late.add(1),
                        Unmatched::WrongQuestion => cells.wrong_question.add(1),
                    }
                }
                return;
            }
        };
        let waiting = self.pending.get(index);
        let (asker, load) = (waiting.asker, waiting.load);
        let latency = now.saturating_sub(waiting.sent_ns);
        if octets.len() < DATAGRAM_MAX && asker.added == Added::Nothing {
            let passed_on = self.pass_on(octets, asker.client, asker.local);
            passed_on[..2].copy_from_slice(&asker.id.to_be_bytes());
        } else {
            let length = if octets.len() >= DATAGRAM_MAX {
                // Its end may be lost.
                self.answer(index, Says::Truncated)
            } else {
                self.room[..octets.len()].copy_from_slice(octets);
                self.room[..2].copy_from_slice(&asker.id.to_be_bytes());
                let question_end = self.pending.get(index).question_end;
                take_out_subnet(&mut self.room[..octets.len()], question_end, asker.added)
            };
            self.send_answer(length, asker.client, asker.local);
        }
        self.worker.picker.answered(place, load, rcode(octets).to_int(), latency, now);
        self.worker.counters.answers.add(1);
        self.clients.give_back(asker.counted_at);
        self.pending.end(index);
    }

    /// Goes on with queries whose back ends did not answer in time.
    fn expire(&mut self, now: u64) {
        let timeout = self.worker.limits.timeout_ns;
        while let Some(index) = self.pending.first_sent_before(now.saturating_sub(timeout)) {
            let waiting = self.pending.get(index);
            let (place, load) = (waiting.back_end, waiting.load);
            if let Some(cells) = self.worker.picker.cells(place) {
                cells.timeouts.add(1);
            }
            self.worker.picker.failed(place, load, now);
            let next = self.pending.time_out(index);
            self.dispatch_again(next, now);
        }
        self.pending.forget_late(now, timeout);
    }

    /// Goes on with queries of back ends that are gone: nobody is there, so nobody answers.
    fn bury(&mut self) {
        if self.gone.is_empty() {
            return;
        }
        let now = self.now();
        for place in std::mem::take(&mut self.gone).iter() {
            if let Some(back_end) = self.worker.picker.back_end(place) {
                if back_end.standing() == Standing::Up {
                    tracing::warn!(back_end = %back_end.address, "nobody listens at the back end, or no way leads there");
                }
                back_end.set_down(true);
            }
            self.look(now);
            self.abandon(place, now);
        }
    }

    /// Goes on with the queries that wait for a back end.
    fn abandon(&mut self, place: usize, now: u64) {
        for index in self.pending.waiting_for(place) {
            let load = self.pending.get(index).load;
            if let Some(cells) = self.worker.picker.cells(place) {
                cells.refused.add(1);
            }
            self.worker.picker.failed(place, load, now);
            let next = self.pending.time_out(index);
            self.dispatch_again(next, now);
        }
    }

    fn flush(&mut self) {
        while let Some(line) = self.ready.pop() {
            self.send(line);
        }
        self.send_answers();
    }

    fn send(&mut self, line: u16) {
        let Some(open) = &mut self.lines[usize::from(line)] else { return };
        let (mut troubles, mut failed) = ([None; 2], 0);
        let counters = &self.worker.counters;
        // What is not sent is found among those that wait.
        let all = open.outgoing.send(&open.socket, |told| {
            let Err(error) = told else { return };
            match Trouble::of(&error) {
                Trouble::Datagram => failed += 1,
                trouble @ Trouble::Socket => troubles[1] = Some(trouble),
                trouble => troubles[0] = Some(trouble),
            }
        });
        if !all {
            failed += open.outgoing.len() as u64;
            open.outgoing.clear();
        }
        if failed > 0 {
            counters.send_failed.add(failed);
        }
        for trouble in troubles.into_iter().flatten() {
            self.hear(usize::from(line) / SOCKETS_MAX, trouble);
        }
    }

    fn send_answers(&mut self) {
        let mut failed = 0;
        let all = self.answers.send(&*self.worker.listener, |told| failed += u64::from(told.is_err()));
        if !all {
            failed += self.answers.len() as u64;
            self.answers.clear();
        }
        self.worker.counters.send_failed.add(failed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::BackEnd;
    use crate::picker::For;
    use fastrand::Rng;
    use routing::balance::Policy;

    /// A worker that has looked at these back ends once.
    fn bench(back_ends: &[SocketAddr]) -> Bench {
        let field = back_ends.iter().fold(Field::default(), |field, address| {
            field.with(|place| BackEnd::new(place, *address, 1, 1)).expect("there is a place")
        });
        let listener = net::udp::bind(([127, 0, 0, 1], 0).into(), None).expect("loopback binds");
        let policy = Policy::from_name("wrr").expect("one of the names");
        let worker = Worker {
            index: 0,
            core: None,
            listener: Arc::new(listener),
            field: Arc::new(ArcSwap::from_pointee(field)),
            picker: Picker::new(policy, For::Datagrams, 0, 1_000, 7, Rng::with_seed(1)),
            counters: Arc::default(),
            stops: Arc::default(),
            clock: Clock::new(),
            limits: Limits {
                timeout_ns: 1_000,
                tries: 2,
                sockets: 2,
                outstanding_max: 16,
                per_client_max: 16,
                client_address: ClientAddress::Hidden,
            },
        };
        let mut bench = worker.bench().expect("there are descriptors");
        bench.look(1);
        bench
    }

    /// A query of a client comes.
    fn ask(bench: &mut Bench) {
        let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";
        bench.take_query(query, ([127, 0, 0, 1], 9).into(), None, 1);
    }

    fn ports(bench: &Bench, place: usize) -> Vec<u16> {
        let lines = &bench.lines[place * SOCKETS_MAX..][..SOCKETS_MAX];
        let port = |line: &Line| line.socket.local_addr().expect("it is bound").port();
        lines.iter().flatten().map(port).collect()
    }

    #[test]
    fn lines_that_are_missing_are_opened_again_and_the_others_stay() {
        let mut bench = bench(&[([127, 0, 0, 1], 9).into()]);
        let before = ports(&bench, 0);
        bench.lines[1] = None;
        bench.incomplete = bench.incomplete.with(0);
        for (now, count) in [(MEND_NS - 1, 1), (MEND_NS, 2)] {
            bench.mend(now);
            assert_eq!(ports(&bench, 0).len(), count, "at {now}");
        }
        assert!(ports(&bench, 0).contains(&before[0]) && bench.incomplete.is_empty());
    }

    #[test]
    fn a_line_that_will_not_do_is_opened_anew_and_what_waits_goes_on() {
        let mut bench = bench(&[([127, 0, 0, 1], 9).into(), ([127, 0, 0, 2], 9).into()]);
        (0..4).for_each(|_| ask(&mut bench));
        let waiting = |bench: &Bench| [0, 1].map(|place| bench.pending.waiting_for(place).len());
        assert_eq!(waiting(&bench), [2, 2]);
        let before = [0, 1].map(|place| ports(&bench, place));
        for trouble in [Trouble::Datagram, Trouble::NobodyListens, Trouble::Socket] {
            bench.hear(0, trouble);
            assert_eq!(bench.broken.contains(0), trouble == Trouble::Socket);
        }
        bench.mend(MEND_NS);
        let after = [0, 1].map(|place| ports(&bench, place));
        assert!(before[0].iter().all(|port| !after[0].contains(port)), "{before:?} {after:?}");
        assert_eq!((&before[1], after[0].len()), (&after[1], 2));
        assert_eq!(waiting(&bench), [0, 4]);
        bench.hear(0, Trouble::Socket);
        bench.mend(MEND_NS + 1);
        assert_eq!(ports(&bench, 0), after[0], "it is not time yet");
    }

    #[test]
    fn who_has_no_line_is_passed_over() {
        // Nobody may send there without having asked for it.
        let unreachable = ([255, 255, 255, 255], 9).into();
        let mut bench = bench(&[unreachable, ([127, 0, 0, 1], 9).into()]);
        (0..4).for_each(|_| ask(&mut bench));
        assert_eq!(bench.pending.waiting_for(1).len(), 4);
        let mut bench = self::bench(&[unreachable]);
        ask(&mut bench);
        let counts = &bench.worker.counters;
        assert_eq!([&counts.no_socket, &counts.no_id, &counts.shed].map(|count| count.get()), [1, 0, 0]);
        assert!(bench.pending.is_empty() && bench.answers.len() == 1);
    }

    #[test]
    fn how_long_a_connection_may_be_idle_is_asked_no_back_end() {
        let mut bench = bench(&[([127, 0, 0, 1], 9).into()]);
        let plain = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\x01\x01a\0\0\x01\0\x01\0\0\x29\x04\xd0\0\0\0\0\0\0";
        let mut query = [&plain[..], b"\0\x0b\0\0"].concat();
        query[plain.len() - 1] = 4;
        bench.take_query(&query, ([127, 0, 0, 1], 9).into(), None, 1);
        let waiting = bench.pending.waiting_for(0);
        assert_eq!(bench.pending.get(waiting[0]).query[2..], plain[2..]);
    }
}
