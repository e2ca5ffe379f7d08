//! A worker: one thread, one core, one socket for clients, and lines to back ends.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use dns::query::Refusal;
use dns::relay::{Added, add_subnet, take_out_keepalive, take_out_subnet};
use dns::writer::without_question;
use dns::{Folded, Query, Rcode};
use net::client::{Incoming, Outgoing, Readiness, Trouble};
use net::clock::Clock;
use net::udp::{BATCH_MAX, DATAGRAM_MAX, UdpListener};
use routing::Acl;

use crate::client_address::{ClientAddress, Transport};
use crate::clients::Clients;
use crate::counters::FrontCounters;
use crate::field::{Field, Standing};
use crate::lines::{LINES_MAX, Lines, place_of};
use crate::message::{Says, UDP_PAYLOAD, answer};
use crate::pending::{Asker, Index, Pending, Unmatched, rcode};
use crate::picker::Picker;

/// The longest that a worker waits for packets, so that it sees what has changed: back ends, leases, timeouts.
const WAIT_MAX: Duration = Duration::from_millis(20);

/// The longest that it waits while something waits to be sent: the system says nothing of room.
const ROOM_WAIT: Duration = Duration::from_millis(1);

/// How long clients are left alone where nothing can be received from them, in nanoseconds.
const DEAF_NS: u64 = 50_000_000;

/// Batches that are received from a socket before others have their turn.
const ROUNDS_MAX: usize = 8;

/// Batches of queries before replies have their turn: under load, so many go to a back end with one system call, and few
/// enough that their replies find room.
const QUERY_ROUNDS_MAX: usize = 4;

/// The number of the clients' socket among those that are waited for; lines have their own.
const CLIENTS: u64 = LINES_MAX as u64;

/// How long and how much a worker waits.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long a back end may take for an answer, in nanoseconds.
    pub timeout_ns: u64,
    /// To how many back ends a query may go, one after the other; from 1.
    pub tries: usize,
    /// Sockets for each back end, from 1 to [`SOCKETS_MAX`](crate::lines::SOCKETS_MAX).
    pub sockets: usize,
    /// Queries that may wait at a time; further ones are dropped.
    pub outstanding_max: usize,
    /// Queries of one client that may wait at a time; further ones are dropped.
    pub per_client_max: u16,
    /// How back ends learn whose query it is.
    pub client_address: ClientAddress,
    /// Whether clients are sent to TCP when nobody has credit for datagrams, and somebody has for connections.
    pub steers: bool,
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
    /// Who may ask; everybody where it is not given.
    pub allow: Option<Acl>,
}

/// What a worker works with.
struct Bench {
    worker: Worker,
    readiness: Readiness,
    pending: Pending,
    lines: Lines,
    answers: Outgoing,
    clients: Clients,
    name: Folded,
    room: Box<[u8; DATAGRAM_MAX]>,
    /// A query behind its preface, where there is one.
    prefaced: Vec<u8>,
    /// Whether nothing could be received from clients at the last look.
    is_deaf: bool,
    /// Until when clients are not looked after.
    deaf_until: Option<u64>,
}

impl Worker {
    /// Has a thread serve until it is to stop and the listener is stopped; then what is in flight is waited for.
    ///
    /// # Errors
    /// What the system says where it refuses what is needed to begin.
    pub fn spawn(self) -> io::Result<JoinHandle<()>> {
        let (index, core) = (self.index, self.core);
        let bench = self.bench()?;
        std::thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
            if let Some(core) = core
                && let Err(cause) = net::thread::pin(core)
            {
                tracing::warn!(worker = index, core, %cause, "the worker is not pinned to its core");
            }
            if let Err(cause) = bench.serve() {
                tracing::error!(worker = index, %cause, "the worker ends");
            }
        })
    }

    fn bench(self) -> io::Result<Bench> {
        let readiness = Readiness::new()?;
        readiness.add(&*self.listener, CLIENTS, false)?;
        Ok(Bench {
            readiness,
            pending: Pending::new(self.limits.outstanding_max, LINES_MAX),
            lines: Lines::new(self.limits.sockets),
            answers: Outgoing::new(),
            clients: Clients::new(self.limits.per_client_max),
            name: Folded::root(),
            room: Box::new([0; DATAGRAM_MAX]),
            prefaced: Vec::new(),
            is_deaf: false,
            deaf_until: None,
            worker: self,
        })
    }
}

impl Bench {
    fn serve(mut self) -> io::Result<()> {
        let (mut incoming, mut replies) = (Incoming::new(), Incoming::merged());
        let mut tokens = Vec::new();
        let mut ends = false;
        let mut now = self.now();
        loop {
            tokens.clear();
            let wait = self.wait(now);
            tokens.extend(self.readiness.ready_within(wait)?.map(|ready| ready.token));
            // Drawn anew for each round, so that what comes together goes with one system call; nobody outside knows what
            // came together.
            self.lines.begin_with(self.worker.picker.rng().usize(..self.worker.limits.sockets));
            if !ends && self.worker.stops.load(Ordering::Acquire) {
                if self.deaf_until.is_none() {
                    self.readiness.forget(&*self.worker.listener)?;
                }
                ends = true;
            }
            if ends && self.pending.is_empty() {
                return Ok(());
            }
            now = self.now();
            if !ends {
                self.hear_again(now);
            }
            self.look(now);
            for token in &tokens {
                match *token {
                    CLIENTS if ends => {}
                    CLIENTS => self.take_queries(&mut incoming, now),
                    line => self.take_replies(line as u16, &mut replies),
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
        let most = if self.lines.is_waiting() || !self.answers.is_empty() { ROOM_WAIT } else { WAIT_MAX };
        let Some(oldest) = self.pending.oldest_ns() else { return most };
        let due = oldest.saturating_add(self.worker.limits.timeout_ns);
        Duration::from_nanos(due.saturating_sub(now) + 1).min(most)
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
            self.dispatch_again(index, now);
        }
        self.lines.forget(place);
        self.open(place);
    }

    fn open(&mut self, place: usize) {
        if let Some(back_end) = self.worker.picker.back_end(place) {
            self.lines.open(place, back_end.address, &self.readiness);
        }
    }

    /// Opens lines that are missing, and anew those that will not do, if it is time.
    fn mend(&mut self, now: u64) {
        let (ailing, broken) = self.lines.ailing(now);
        for place in ailing.iter() {
            if broken.contains(place) {
                self.lines.close(place);
                self.send_elsewhere(place, now);
            }
            self.open(place);
        }
    }

    fn take_queries(&mut self, incoming: &mut Incoming, now: u64) {
        for _ in 0..QUERY_ROUNDS_MAX {
            let received = match incoming.receive(&*self.worker.listener) {
                Ok(received) => received,
                Err(cause) => return self.go_deaf(&cause, now),
            };
            self.is_deaf = false;
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

    /// Leaves clients alone for a while: what waits there would wake us again and again.
    fn go_deaf(&mut self, cause: &io::Error, now: u64) {
        self.worker.counters.receive_failed.add(1);
        // It may go on for days, and is told once.
        if !std::mem::replace(&mut self.is_deaf, true) {
            tracing::error!(worker = self.worker.index, %cause, "receiving from clients failed");
        }
        if self.readiness.forget(&*self.worker.listener).is_ok() {
            self.deaf_until = Some(now + DEAF_NS);
        }
    }

    /// Looks after clients again, if it is time.
    fn hear_again(&mut self, now: u64) {
        if self.deaf_until.is_some_and(|until| until <= now) {
            let added = self.readiness.add(&*self.worker.listener, CLIENTS, false);
            self.deaf_until = added.is_err().then_some(now + DEAF_NS);
        }
    }

    fn take_query(&mut self, octets: &[u8], client: SocketAddr, local: Option<IpAddr>, now: u64) {
        // Nothing at all to strangers: an answer would be sent to whomever they name.
        if self.worker.allow.as_ref().is_some_and(|allow| !allow.allows(client.ip())) {
            return self.worker.counters.strangers.add(1);
        }
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
                self.dispatch(index, now);
            }
            Err(_) => {
                self.clients.give_back(counted_at);
                self.worker.counters.full.add(1);
            }
        }
    }

    /// Sends a query to a back end, for the first time or again.
    fn dispatch(&mut self, index: Index, now: u64) {
        let waiting = self.pending.get(index);
        let (key, client, tried) = (waiting.key, waiting.asker.client.ip(), waiting.tried);
        let closed = self.lines.closed();
        let (worker, passed_over) = (&mut self.worker, tried.or(closed));
        let Some(place) = worker.picker.pick(key, client, passed_over, now, &worker.counters) else {
            let (servfail, has_others) =
                (Says::Rcode(Rcode::SERVFAIL), worker.picker.has_others(passed_over));
            let says = if !has_others && !closed.is_empty() {
                worker.counters.no_socket.add(1);
                Some(servfail)
            } else if !has_others || !tried.is_empty() {
                worker.counters.failed.add(1);
                Some(servfail)
            } else if worker.limits.steers && worker.picker.has_connections(now) {
                worker.counters.steered.add(1);
                Some(Says::Truncated)
            } else {
                worker.counters.shed.add(1);
                None
            };
            return self.give_up(index, says);
        };
        // What follows from the back end is set before it waits, for then its place in the order is fixed.
        let waiting = self.pending.get_mut(index);
        (waiting.back_end, waiting.sent_ns, waiting.tried) = (place, now, tried.with(place));
        let (pending, rng) = (&mut self.pending, worker.picker.rng());
        let line = self.lines.of(place).find(|line| pending.sent(index, *line, rng).is_ok());
        let Some(line) = line else {
            self.worker.counters.no_id.add(1);
            return self.give_up(index, Some(Says::Rcode(Rcode::SERVFAIL)));
        };
        if !self.push(line, index) {
            // What we lack here is no back end's fault, and uses up nothing that it grants.
            self.worker.counters.send_failed.add(1);
            self.pending.unsent(index);
            return self.give_up(index, Some(Says::Rcode(Rcode::SERVFAIL)));
        }
        let picker = &mut self.worker.picker;
        self.pending.get_mut(index).load = if tried.is_empty() {
            picker.sent(place, now)
        } else {
            self.worker.counters.retries.add(1);
            picker.sent_again(place, now)
        };
    }

    /// Sends a query that has waited in vain to another back end, or gives it up.
    fn dispatch_again(&mut self, index: Index, now: u64) {
        let index = self.pending.time_out(index);
        let tried = self.pending.get(index).tried;
        let picker = &self.worker.picker;
        if tried.len() < self.worker.limits.tries && picker.has_others(tried.or(self.lines.closed())) {
            if picker.may_retry() {
                return self.dispatch(index, now);
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

    fn push(&mut self, line: u16, index: Index) -> bool {
        let waiting = self.pending.get(index);
        let mut octets = &waiting.query;
        let way = self.worker.limits.client_address;
        if way == ClientAddress::Proxy {
            let bound = self.worker.listener.local_address();
            let local = waiting.asker.local.map_or(bound, |local| SocketAddr::new(local, bound.port()));
            self.prefaced.clear();
            way.preface(Transport::Datagram, waiting.asker.client, local, &mut self.prefaced);
            self.prefaced.extend_from_slice(&waiting.query);
            octets = &self.prefaced;
        }
        self.lines.push(line, octets, &self.worker.counters.send_failed)
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
        if self.answers.is_full() {
            self.worker.counters.send_failed.add(self.answers.len() as u64);
            self.answers.clear();
        }
    }

    fn take_replies(&mut self, line: u16, incoming: &mut Incoming) {
        let place = place_of(line);
        for _ in 0..ROUNDS_MAX {
            let Some(socket) = self.lines.socket(line) else { return };
            let received = match incoming.receive(socket) {
                Ok(received) => received,
                // An ICMP message; the error is taken with it, and replies may stand behind it.
                Err(error) => {
                    self.lines.hear(place, Trouble::of(&error));
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
            self.dispatch_again(index, now);
        }
        self.pending.forget_late(now, timeout);
    }

    /// Goes on with queries of back ends that are gone: nobody is there, so nobody answers.
    fn bury(&mut self) {
        let gone = self.lines.take_gone();
        if gone.is_empty() {
            return;
        }
        let now = self.now();
        for place in gone.iter() {
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
            self.dispatch_again(index, now);
        }
    }

    /// Goes on with the queries that wait at lines of ours that are closed, for which no back end is to blame.
    fn send_elsewhere(&mut self, place: usize, now: u64) {
        for index in self.pending.waiting_for(place) {
            self.worker.picker.unsent(place);
            self.dispatch_again(index, now);
        }
    }

    fn flush(&mut self) {
        self.lines.flush(&self.worker.counters.send_failed);
        self.send_answers();
    }

    fn send_answers(&mut self) {
        let mut failed = 0;
        self.answers.send(&*self.worker.listener, |told| failed += u64::from(told.is_err()));
        self.worker.counters.send_failed.add(failed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::{BackEnd, Drained};
    use crate::lines::MEND_NS;
    use crate::picker::For;
    use fastrand::Rng;
    use net::count::Count;
    use routing::balance::{Lease, Policy};

    fn picker(policy: &str) -> Picker {
        let policy = Policy::from_name(policy).expect("one of the names");
        Picker::new(policy, For::Datagrams, 0, 1_000, 7, Rng::with_seed(1))
    }

    /// A worker that has looked at these back ends once.
    fn bench(back_ends: &[SocketAddr]) -> Bench {
        let field = back_ends.iter().fold(Field::default(), |field, address| {
            field.with(|place| BackEnd::new(place, *address, 1, 1)).expect("there is a place")
        });
        let listener = net::udp::bind(([127, 0, 0, 1], 0).into(), None).expect("loopback binds");
        let worker = Worker {
            index: 0,
            core: None,
            listener: Arc::new(listener),
            field: Arc::new(ArcSwap::from_pointee(field)),
            picker: picker("wrr"),
            counters: Arc::default(),
            stops: Arc::default(),
            clock: Clock::new(),
            allow: None,
            limits: Limits {
                timeout_ns: 1_000,
                tries: 2,
                sockets: 2,
                outstanding_max: 16,
                per_client_max: 16,
                client_address: ClientAddress::Hidden,
                steers: true,
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
        let sockets = bench.lines.of(place).filter_map(|line| bench.lines.socket(line));
        sockets.map(|socket| socket.local_addr().expect("it is bound").port()).collect()
    }

    #[test]
    fn a_line_that_will_not_do_is_opened_anew_and_what_waits_goes_on() {
        let mut bench = bench(&[([127, 0, 0, 1], 9).into(), ([127, 0, 0, 2], 9).into()]);
        (0..4).for_each(|_| ask(&mut bench));
        let waiting = |bench: &Bench| [0, 1].map(|place| bench.pending.waiting_for(place).len());
        assert_eq!(waiting(&bench), [2, 2]);
        let before = [0, 1].map(|place| ports(&bench, place));
        for trouble in [Trouble::Datagram, Trouble::NobodyListens] {
            bench.lines.hear(0, trouble);
            bench.mend(MEND_NS);
            assert_eq!(ports(&bench, 0), before[0], "{trouble:?} is not the line's");
        }
        bench.lines.hear(0, Trouble::Socket);
        bench.mend(MEND_NS);
        let after = [0, 1].map(|place| ports(&bench, place));
        assert!(before[0].iter().all(|port| !after[0].contains(port)), "{before:?} {after:?}");
        assert_eq!((&before[1], after[0].len()), (&after[1], 2));
        assert_eq!(waiting(&bench), [0, 4]);
        let cells = bench.worker.picker.cells(0).expect("it is there");
        assert_eq!([cells.refused.get(), cells.in_flight()], [0, 0], "its socket is ours");
        bench.lines.hear(0, Trouble::Socket);
        bench.mend(MEND_NS + 1);
        assert_eq!(ports(&bench, 0), after[0], "it is not time yet");
    }

    #[test]
    fn strangers_get_nothing() {
        let mut bench = bench(&[([127, 0, 0, 1], 9).into()]);
        bench.worker.allow = Some(Acl::new(vec!["192.0.2.0/24".parse().expect("a prefix")]));
        let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";
        for (client, octets) in [
            ([192, 0, 2, 7], &query[..]),
            ([198, 51, 100, 7], query),
            ([198, 51, 100, 7], &query[..13]),
            ([127, 0, 0, 1], query),
        ] {
            bench.take_query(octets, (client, 9).into(), None, 1);
        }
        let counts = &bench.worker.counters;
        assert_eq!([&counts.strangers, &counts.malformed].map(|count| count.get()), [2, 0]);
        assert_eq!((bench.pending.waiting_for(0).len(), bench.answers.len()), (2, 0));
    }

    #[test]
    fn so_many_queries_are_outstanding_and_no_more() {
        let mut bench = bench(&[([127, 0, 0, 1], 9).into()]);
        let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";
        for client in 1..=20 {
            bench.take_query(query, ([127, 0, client, 1], 9).into(), None, 1);
        }
        let counts = &bench.worker.counters;
        assert_eq!([&counts.full, &counts.full_client].map(|count| count.get()), [4, 0]);
        assert_eq!(bench.pending.waiting_for(0).len(), 16);
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
    fn what_the_system_has_no_room_for_is_no_back_ends_fault() {
        let mut bench = bench(&[([127, 0, 0, 1], 9).into()]);
        let (_theirs, failed) = (bench.lines.stop_up(0), Count::default());
        for line in bench.lines.of(0).collect::<Vec<_>>() {
            while bench.lines.push(line, &[7; 32], &failed) {}
        }
        ask(&mut bench);
        let cells = bench.worker.picker.cells(0).expect("it is there");
        assert_eq!([&cells.timeouts, &cells.refused].map(|count| count.get()), [0, 0]);
        assert_eq!([&cells.sent, &cells.datagrams].map(|count| count.get()), [0, 0], "nothing has left");
        assert_eq!((cells.in_flight(), bench.worker.counters.send_failed.get()), (0, 1));
        assert!(bench.pending.is_empty() && bench.answers.len() == 1);
        assert_eq!(bench.wait(1), ROOM_WAIT);
    }

    #[test]
    fn clients_who_cannot_be_heard_are_left_alone_for_a_while() {
        let mut bench = bench(&[]);
        let to = bench.worker.listener.local_address();
        let client = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        client.send_to(&[0], to).expect("it is sent");
        bench.readiness.wait(Duration::from_secs(10)).expect("it waits");
        let hears = |bench: &mut Bench| {
            let mut ready = bench.readiness.ready().expect("it tells");
            ready.any(|ready| ready.token == CLIENTS)
        };
        assert!(hears(&mut bench));
        bench.go_deaf(&io::ErrorKind::OutOfMemory.into(), 1);
        bench.hear_again(DEAF_NS);
        assert!(!hears(&mut bench), "it would be looked at again and again");
        bench.hear_again(DEAF_NS + 1);
        assert!(hears(&mut bench) && bench.worker.counters.receive_failed.get() == 1);
    }

    fn counts(bench: &Bench) -> [u64; 4] {
        let FrontCounters { failed, shed, steered, retries, .. } = &*bench.worker.counters;
        [failed, shed, steered, retries].map(|count| count.get())
    }

    /// An agent has just said that the queue has room for one, which something waits in.
    fn grant_one(back_end: &BackEnd) {
        let one = Lease { limit: 1, hard_until_ns: u64::MAX, until_ns: u64::MAX, queue_ns: 1, room: 1 };
        back_end.udp.put(one);
    }

    #[test]
    fn where_no_back_end_is_queries_fail_and_without_credit_they_are_shed() {
        let mut bench = bench(&[([127, 0, 0, 1], 9).into()]);
        bench.worker.picker = picker("credit");
        let back_end = bench.worker.field.load().iter().next().expect("it is there").clone();
        grant_one(&back_end);
        bench.look(1);
        (0..2).for_each(|_| ask(&mut bench));
        assert_eq!(bench.pending.waiting_for(0).len(), 1);
        assert_eq!((counts(&bench), bench.answers.len()), ([0, 1, 0, 0], 0));
        back_end.set_draining(Drained::ByOperator, true);
        bench.look(1);
        ask(&mut bench);
        assert_eq!((counts(&bench), bench.answers.len()), ([1, 1, 0, 0], 1));
        assert_eq!(bench.pending.waiting_for(0).len(), 1);
    }

    #[test]
    fn clients_are_sent_to_tcp_only_where_it_is_another_way() {
        for (steers, expected) in [(true, [0, 0, 1, 0]), (false, [0, 1, 0, 0])] {
            let mut bench = bench(&[([127, 0, 0, 1], 9).into()]);
            (bench.worker.picker, bench.worker.limits.steers) = (picker("credit"), steers);
            let back_end = bench.worker.field.load().iter().next().expect("it is there").clone();
            grant_one(&back_end);
            back_end.tcp.put(Lease { limit: 9, until_ns: u64::MAX, ..Lease::NONE });
            bench.look(1);
            (0..2).for_each(|_| ask(&mut bench));
            assert_eq!((counts(&bench), bench.answers.len()), (expected, usize::from(steers)));
        }
    }

    #[test]
    fn what_was_sent_and_finds_nobody_else_with_credit_has_failed() {
        let mut bench = bench(&[([127, 0, 0, 1], 9).into(), ([127, 0, 0, 2], 9).into()]);
        bench.worker.picker = picker("credit");
        bench.worker.field.load().iter().for_each(|back_end| grant_one(back_end));
        bench.look(1);
        (0..2).for_each(|_| ask(&mut bench));
        bench.abandon(0, 1);
        assert_eq!((counts(&bench), bench.answers.len()), ([1, 0, 0, 0], 1));
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
