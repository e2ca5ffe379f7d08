//! A worker: one thread, one core, one socket for clients, and lines to back ends.
//!
//! In reading order: the rounds that it makes, here; `forward`: what becomes of a query.

mod forward;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use dns::Folded;
use dns::dnstap::Protocol;
use net::client::{Incoming, Outgoing, Readiness, Trouble};
use net::clock::Clock;
use net::udp::{BATCH_MAX, DATAGRAM_MAX, UdpListener};
use routing::Acl;
use tap::{Talk, Tap};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::cache::Cache;
use crate::client_address::ClientAddress;
use crate::clients::Clients;
use crate::counters::FrontCounters;
use crate::doubts::Doubts;
use crate::field::Field;
use crate::lines::{LINES_MAX, Lines, place_of};
use crate::pending::{LATE_NS, Pending, To};
use crate::picker::Picker;
use crate::relay::Relay;

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

/// The number of what tells that something has come back from back ends over TLS.
const CARRIED: u64 = CLIENTS + 1;

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
    /// Answers that are given again, where they are.
    pub cache: Option<Arc<Cache>>,
    /// Told when a back end is doubted, so that it is probed at once.
    pub doubted: Arc<Notify>,
    /// Where tasks carry queries to back ends over TLS.
    pub runtime: Handle,
    /// Who watches, where somebody does.
    pub tap: Option<Tap>,
}

/// What a worker works with.
struct Bench {
    worker: Worker,
    readiness: Readiness,
    pending: Pending,
    lines: Lines,
    doubts: Doubts,
    answers: Outgoing,
    clients: Clients,
    name: Folded,
    cache_key: Vec<u8>,
    room: Box<[u8; DATAGRAM_MAX]>,
    /// A query behind its preface, where there is one.
    prefaced: Vec<u8>,
    /// Whether nothing could be received from clients at the last look.
    is_deaf: bool,
    /// Until when clients are not looked after.
    deaf_until: Option<u64>,
    /// When all sockets were last looked after, in nanoseconds of the monotonic clock.
    all_heard_ns: u64,
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

    /// Tells who watches of a query, where it is its turn; returns when it came then, as Unix time.
    #[inline]
    fn tell_query(&mut self, octets: &[u8], client: SocketAddr, local: Option<IpAddr>) -> Option<Duration> {
        let tap = self.tap.as_mut()?;
        if !tap.takes(octets) {
            return None;
        }
        let (time, server) = (self.clock.now().unix, asked_at(&self.listener, local));
        let talk = Talk { client, server, protocol: Protocol::Udp, time };
        self.counters.tap_full.add(tap.query(&talk, octets));
        Some(time)
    }

    /// The same of its answer, where it was told of the query.
    #[inline]
    fn tell_answer(&mut self, to: To, octets: &[u8]) {
        if let To { client, local, tapped: Some(time) } = to
            && let Some(tap) = &mut self.tap
        {
            let server = asked_at(&self.listener, local);
            let talk = Talk { client, server, protocol: Protocol::Udp, time };
            self.counters.tap_full.add(tap.response(&talk, self.clock.now().unix, octets));
        }
    }

    fn bench(self) -> io::Result<Bench> {
        let readiness = Readiness::new()?;
        readiness.add(&*self.listener, CLIENTS, false)?;
        self.listener.wait_at_most(WAIT_MAX)?;
        let patience = Duration::from_nanos(self.limits.timeout_ns.saturating_add(LATE_NS));
        let relay = Relay::new(self.runtime.clone(), patience)?;
        readiness.add(relay.woken(), CARRIED, false)?;
        Ok(Bench {
            readiness,
            pending: Pending::new(self.limits.outstanding_max, LINES_MAX),
            lines: Lines::new(self.limits.sockets, relay),
            doubts: Doubts::new(),
            answers: Outgoing::new(),
            clients: Clients::new(self.limits.per_client_max),
            name: Folded::root(),
            cache_key: Vec::new(),
            room: Box::new([0; DATAGRAM_MAX]),
            prefaced: Vec::new(),
            is_deaf: false,
            deaf_until: None,
            all_heard_ns: 0,
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
            // Where queries alone can come, they come with one system call instead of two.
            let first = (!ends && self.has_none_under_way(now))
                .then(|| incoming.receive_waiting(&*self.worker.listener));
            if first.is_none() {
                let wait = self.wait(now);
                tokens.extend(self.readiness.ready_within(wait)?.map(|ready| ready.token));
            }
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
            if first.is_none() {
                self.all_heard_ns = now;
            }
            let mut has_queries = first.is_some();
            for token in &tokens {
                match *token {
                    CLIENTS => has_queries = !ends,
                    CARRIED => self.take_carried(),
                    line => self.take_replies(line as u16, &mut replies),
                }
            }
            // Who has waited longest comes first: sending queries takes as long as sending answers.
            self.send_answers();
            if has_queries {
                self.take_queries(&mut incoming, first, now);
            }
            self.expire(now);
            self.flush(now);
            self.bury(now);
            self.mend(now);
            self.flush(now);
        }
    }

    fn now(&self) -> u64 {
        self.worker.clock.monotonic_ns()
    }

    /// Whether nothing but queries can come: no back end is waited for, and its sockets were looked after lately, where
    /// something may have come that nobody waits for.
    fn has_none_under_way(&self, now: u64) -> bool {
        let is_idle = self.pending.is_empty() && self.answers.is_empty() && !self.lines.is_waiting();
        is_idle
            && self.deaf_until.is_none()
            && now.saturating_sub(self.all_heard_ns) < WAIT_MAX.as_nanos() as u64
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
        self.pending.forget_late_of(place);
        self.lines.forget(place);
        self.doubts.forget(place);
        self.open(place);
    }

    fn open(&mut self, place: usize) {
        if let Some(back_end) = self.worker.picker.back_end(place) {
            self.lines.open(place, &back_end.exchange, &self.readiness);
        }
    }

    /// Opens lines that are missing, and anew those that will not do, if it is time.
    fn mend(&mut self, now: u64) {
        let (ailing, broken) = self.lines.ailing(now, self.doubts.all());
        for place in ailing.iter() {
            if broken.contains(place) {
                self.lines.close(place);
                self.send_elsewhere(place, now);
            }
            self.open(place);
        }
    }

    /// Takes in what clients have sent; `first` is what came of a look that was made already.
    fn take_queries(&mut self, incoming: &mut Incoming, mut first: Option<io::Result<usize>>, now: u64) {
        for _ in 0..QUERY_ROUNDS_MAX {
            let received = first.take().unwrap_or_else(|| incoming.receive(&*self.worker.listener));
            let received = match received {
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

    fn flush(&mut self, now: u64) {
        self.lines.flush(&self.worker.counters.send_failed);
        // Before what was refused goes on, for others are preferred.
        self.doubt_gone(now);
        // Each goes to a few back ends at most.
        while self.redirect(now) {
            self.lines.flush(&self.worker.counters.send_failed);
        }
        self.send_answers();
    }

    fn send_answers(&mut self) {
        let mut failed = 0;
        self.answers.send(&*self.worker.listener, |told| failed += u64::from(told.is_err()));
        self.worker.counters.send_failed.add(failed);
    }
}

/// The address at which a client asked.
fn asked_at(listener: &UdpListener, local: Option<IpAddr>) -> SocketAddr {
    let bound = listener.local_address();
    local.map_or(bound, |local| SocketAddr::new(local, bound.port()))
}
