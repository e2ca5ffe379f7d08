//! One thread: its clients' queries sent when they are due, their answers matched.
//!
//! In reading order: the loop, here; [`mod@preparing`]: queries made ready; [`mod@asking`]: queries on their way;
//! [`mod@hearing`]: what comes back; [`mod@closing`]: what is lost, and sockets that go.

mod asking;
mod closing;
mod hearing;
mod preparing;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use net::client::{Incoming, Readiness, datagrams_held, shared};

use super::agenda::Agenda;
use super::batch::Batch;
use super::carrier::Carriers;
use super::clients::{self, Clients};
use super::frames::Frames;
use super::pace::{self, Step};
use super::pending::Pending;
use super::retries::Retries;
use super::rows::Rows;
use super::sockets::Sockets;
use super::tally::{Cause, Tally};
use super::unheard::Unheard;
use super::{Shared, nanos};
use crate::schedule::{Next, Planned, draw};
use crate::trace::Transport;
use crate::trace::message::question;
use hearing::Heard;
use preparing::Prepared;

/// Queries that a thread reads ahead of their time: at a root server's 38,000 a second, a fifth of a second.
const AHEAD_MAX: usize = 8_192;

/// Queries of the schedule that a thread reads before the start, its own or not: enough for all that 32 threads may read
/// ahead. A thread that owns few clients, or none, would else read to the end while the others wait for it.
const FILL_MAX: usize = 32 * AHEAD_MAX;

/// How long before their time queries are read, in nanoseconds: more than any disk or decompressor takes. A thread that
/// owns few of many queries would else read to the end meanwhile, on a core that others need.
const READ_BEFORE: u64 = 60_000_000_000;

/// Nanoseconds between two updates of the live numbers.
const LIVE_EVERY: u64 = 100_000_000;

/// Lateness that the live numbers count, in nanoseconds.
const LATE: u64 = 1_000_000;

/// The bit of an endpoint's number that says that it is a source address at a shared socket.
const SHARED: u64 = 1 << 63;

/// Tokens of the shared sockets, IPv4 and IPv6; no slot has them.
const SHARED_TOKENS: [u64; 2] = [u64::MAX, u64::MAX - 1];

/// Where a thread's queries come from, in order of time.
type Source<'s> = dyn FnMut() -> io::Result<Next> + 's;

/// One thread's whole state.
pub(super) struct Worker<'a> {
    with: &'a Shared<'a>,
    share: u64,
    is_read_out: bool,
    /// When the query is due that was read last, whosoever it is.
    read_to: u64,
    /// Queries that were read and are not due yet; those due first are ready.
    ahead: VecDeque<Planned>,
    prepared: VecDeque<Prepared>,
    anchor: Instant,
    pending: Pending,
    retries: Retries,
    clients: Clients,
    sockets: Sockets,
    /// One for each family, where source addresses are from a prefix.
    shared: [Option<UdpSocket>; 2],
    /// Datagrams that the kernel has dropped at these, of those that queries are known to be lost by.
    shared_drops: [u32; 2],
    /// Past these, where that is asked for.
    frames: Frames,
    readiness: Readiness,
    batch: Batch,
    agenda: Agenda,
    incoming: Incoming,
    /// What has arrived in this turn, each with its endpoint and when.
    heard: Vec<(u64, u64, Heard)>,
    /// Room to read streams, and the plain text of those that are encrypted.
    room: Vec<u8>,
    plain: Vec<u8>,
    ids: u64,
    tally: Tally,
    shown: [u64; 3],
    next_live: u64,
    /// Whether the live percentile of lateness is older than the other live numbers.
    is_lateness_stale: bool,
    late: u64,
    /// When a query was last sent or answered.
    last: u64,
    /// A client's own socket has little room and is looked at each time.
    unheard: Unheard,
    rows: Rows<'a>,
}

impl<'a> Worker<'a> {
    /// Opens what it needs from the beginning.
    pub(super) fn new(with: &'a Shared<'a>, share: u64) -> io::Result<Self> {
        let readiness = Readiness::new()?;
        // As fast as it goes, datagrams of a client go and come in messages of several: no time is due, and those together
        // have one time. Each source address of a prefix is another client.
        let merges = with.options.window.is_some() && !with.options.has_sources;
        let (mut sockets, mut held) = ([None, None], usize::MAX);
        let mut frames = Frames::new();
        if with.options.has_sources {
            for (family, is_ipv4) in [(0, true), (1, false)] {
                if with.options.servers.iter().any(|server| server.is_ipv4() == is_ipv4) {
                    let socket = shared(is_ipv4)?;
                    held = held.min(datagrams_held(&socket)?);
                    readiness.add(&socket, SHARED_TOKENS[family], false)?;
                    let hops = with.options.frames.iter().filter(|(server, _)| server.is_ipv4() == is_ipv4);
                    frames.open(hops, socket.local_addr()?.port())?;
                    sockets[family] = Some(socket);
                }
            }
        }
        Ok(Worker {
            with,
            share,
            is_read_out: false,
            read_to: 0,
            ahead: VecDeque::new(),
            prepared: VecDeque::new(),
            anchor: Instant::now(),
            pending: Pending::new(nanos(with.options.timeout)),
            retries: Retries::new(),
            clients: Clients::new(),
            sockets: Sockets::new(with.sockets_max, merges),
            shared: sockets,
            shared_drops: [0; 2],
            frames,
            readiness,
            batch: Batch::new(merges)?,
            agenda: Agenda::default(),
            // Servers may send longer answers than they were told of; what is never written to takes no memory.
            incoming: Incoming::whole(),
            heard: Vec::new(),
            room: Vec::new(),
            plain: Vec::new(),
            ids: 0,
            tally: Tally::new(with.options.mutation.as_ref()),
            shown: [0; 3],
            next_live: 0,
            is_lateness_stale: false,
            late: 0,
            last: 0,
            unheard: Unheard::new(if with.options.has_sources { held } else { 0 }),
            rows: Rows::new(&with.log),
        })
    }

    /// Sends all of its share and waits for the answers; returns the counts, and when a query was last sent or answered.
    pub(super) fn run(mut self, source: &mut Source<'_>) -> io::Result<(Tally, u64)> {
        // Where these are refused, the run tells how late it was.
        let _ = net::thread::punctual();
        let _ = net::thread::come_soon();
        // What fails here must not keep the other threads waiting at the start.
        let filled = self.fill(source);
        self.with.ready.wait();
        self.with.start.wait();
        self.anchor = *self.with.anchor.get_or_init(Instant::now);
        let waited = || net::thread::waited().map_or(0, nanos);
        let before = waited();
        let ended = filled.and_then(|()| self.go(source));
        self.tally.waited = waited().saturating_sub(before);
        if ended.is_err() {
            self.with.live.stop.store(true, Ordering::Relaxed);
        }
        ended?;
        let end = self.now();
        self.live(end);
        self.live_lateness();
        self.rows.write();
        self.tally.clients = self.clients.len() as u64;
        self.tally.shared = self.shared.iter().flatten().count() as u64;
        self.tally.sockets_limit = self.with.sockets_max as u64;
        // Where none was sent, the time is what it took to find that out.
        Ok((self.tally, if self.last > 0 { self.last } else { end }))
    }

    fn go(&mut self, source: &mut Source<'_>) -> io::Result<()> {
        while !self.with.live.stop.load(Ordering::Relaxed) {
            self.send_due();
            if !self.agenda.is_full() {
                self.receive()?;
            }
            let now = self.now();
            self.lose(now);
            self.close_idle(now);
            if now >= self.next_live {
                self.live(now);
            }
            // A percentile takes a walk through the histogram: not while a query is due, as one is whenever we wake.
            if self.is_lateness_stale && self.next_due().is_none_or(|due| due > now + LATE) {
                self.live_lateness();
            }
            self.with.verified()?;
            let is_dry = self.ahead.is_empty() && self.prepared.is_empty();
            let now = self.now();
            let may_read = self.may_read(now);
            if is_dry && may_read {
                self.read_batch(source)?;
                continue;
            }
            if is_dry && self.is_read_out && self.batch.queries.is_empty() && self.pending.waiting() == 0 {
                return Ok(());
            }
            match pace::step(now, self.next_due(), self.pending.next_expiry(), may_read) {
                Step::Send => {}
                Step::Read | Step::Spin | Step::Sleep(_) if self.prepare(now) => {}
                Step::Read => {
                    self.read_one(source)?;
                }
                Step::Spin => std::hint::spin_loop(),
                Step::Sleep(time) => self.readiness.wait(time)?,
            }
        }
        // Interrupted: what waits is given up.
        let mut steps = usize::MAX;
        while let Some((asked, _)) = self.pending.expire(u64::MAX, &mut steps) {
            self.lost(&asked, Cause::Interrupted);
        }
        self.with.verified()
    }

    /// Whether what has arrived at shared sockets can wait in the kernel, as something is due and there is room.
    fn may_hear_later(&self) -> bool {
        self.with.options.window.is_none()
            && self.unheard.may_wait()
            && self.next_due().is_some_and(|due| due <= self.now())
    }

    /// When something can be sent next: a query, with a window once it has room; or what is on the agenda.
    fn next_due(&self) -> Option<u64> {
        if !self.batch.queries.is_empty() {
            return Some(0);
        }
        let query = self.due().filter(|_| match self.with.options.window {
            Some(window) => self.pending.waiting() < window,
            None => true,
        });
        query.into_iter().chain(self.agenda.next()).min()
    }

    fn now(&self) -> u64 {
        nanos(self.anchor.elapsed())
    }

    /// Reads ahead before the start, as far as [`FILL_MAX`] and unless it is stopped, and makes ready what is due at once.
    fn fill(&mut self, source: &mut Source<'_>) -> io::Result<()> {
        let mut read = 0;
        while read < FILL_MAX && !self.with.live.stop.load(Ordering::Relaxed) && self.may_read(0) {
            read += usize::from(self.read_one(source)?);
        }
        while self.prepare(0) {}
        Ok(())
    }

    /// Whether there is something to read, and room for it.
    fn may_read(&self, now: u64) -> bool {
        let is_near = self.read_to <= now.saturating_add(READ_BEFORE);
        !self.is_read_out && self.ahead.len() < AHEAD_MAX && is_near
    }

    /// Reads what may fill a batch, when nothing is left of what was read ahead.
    fn read_batch(&mut self, source: &mut Source<'_>) -> io::Result<()> {
        for _ in 0..self.batch.outgoing.most() {
            if !self.read_one(source)? {
                break;
            }
        }
        Ok(())
    }

    /// Reads on to one query of the schedule, and keeps it if it is of this share; false where there is none, or none yet.
    fn read_one(&mut self, source: &mut Source<'_>) -> io::Result<bool> {
        match source()? {
            Next::Query(planned) => {
                self.read_to = planned.due;
                if planned.client % self.with.shares() == self.share {
                    if self.is_to_be_sent(&planned) {
                        self.ahead.push_back(planned);
                    } else {
                        self.tally.left_out += 1;
                    }
                }
                return Ok(true);
            }
            Next::NotYet => {}
            Next::End => self.is_read_out = true,
        }
        Ok(false)
    }

    /// Whether a query that was read is to be sent: not where it is the recorded retry of what was asked again
    /// already.
    fn is_to_be_sent(&mut self, planned: &Planned) -> bool {
        let message = &planned.message;
        let is_as_recorded = self.with.options.carriers == Carriers::Recorded;
        let over_tcp = Some(message).filter(|message| is_as_recorded && message.transport == Transport::Tcp);
        over_tcp
            .and_then(|message| question(&message.octets))
            .is_none_or(|question| self.retries.recorded(planned.client, question, message.time))
    }

    /// Whether a query over UDP is to be asked again over TCP by us, as no recorded one does so.
    fn has_no_retry(&mut self, planned: &Planned) -> bool {
        let message = &planned.message;
        let is_as_recorded = self.with.options.carriers == Carriers::Recorded;
        question(&message.octets)
            .filter(|_| is_as_recorded)
            .is_none_or(|question| self.retries.ours(planned.client, question, message.time))
    }

    fn server(&self, client: u64) -> SocketAddr {
        clients::server(&self.with.options.servers, client, self.with.options.seed)
    }

    /// A client's round trip to its server.
    fn round_trip(&self, client: u64) -> Duration {
        let seed = self.with.options.seed;
        self.with.options.distances.as_ref().map_or(Duration::ZERO, |distances| distances.of(client, seed))
    }

    /// Half of it, in nanoseconds.
    fn half(&self, client: u64) -> u64 {
        nanos(self.round_trip(client) / 2)
    }

    /// Updates the live numbers.
    fn live(&mut self, now: u64) {
        (self.next_live, self.is_lateness_stale) = (now + LIVE_EVERY, true);
        let live = self.with.live;
        let seen = [self.tally.lateness.len(), self.tally.answers, self.tally.lost_total()];
        for ((shown, seen), cell) in
            self.shown.iter_mut().zip(seen).zip([&live.sent, &live.answered, &live.lost])
        {
            cell.fetch_add(seen - std::mem::replace(shown, seen), Ordering::Relaxed);
        }
        live.late.fetch_add(std::mem::take(&mut self.late), Ordering::Relaxed);
    }

    fn live_lateness(&mut self) {
        self.is_lateness_stale = false;
        let p99 = self.tally.lateness.value_at_percentile(99.0);
        self.with.live.lateness_p99.fetch_max(p99, Ordering::Relaxed);
    }
}

/// The number of a source address at a shared socket, as asked from it and as answered to it.
fn endpoint(source: IpAddr, server: SocketAddr) -> u64 {
    SHARED | draw::client(source, 0) ^ draw::client(server.ip(), u32::from(server.port()))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, UdpSocket};
    use std::sync::{Arc, Mutex, OnceLock};

    use super::super::Live;
    use super::super::Log;
    use super::super::Options;
    use super::super::distance::Distances;
    use super::super::gate::Gate;
    use super::super::pending::Key;
    use super::super::sockets::Kind;
    use super::super::tests::options;
    use super::*;
    use crate::schedule::{Clients, Pacing, Plan, Schedule};
    use crate::trace::Trace;
    use net::memory::Memory;

    const PLAN: Plan = Plan {
        pacing: Pacing::Recorded { speed: 1.0 },
        clients: Clients::Factor { factor: 1.0, spread: None },
        limit: None,
        loops: 1,
        seed: 1,
    };

    fn shared<'s>(options: &'s Options, live: &'s Live) -> Shared<'s> {
        let log = Log { is_wanted: false, file: Mutex::new(None), error: Mutex::new(None) };
        let (anchor, ready, start) = (OnceLock::new(), Gate::new(1), Gate::new(1));
        Shared { options, live, log, differing: None, sockets_max: 8, anchor, ready, start }
    }

    #[test]
    fn a_stretch_without_queries_holds_up_neither_what_is_due_nor_an_end() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback binds");
        server.set_nonblocking(true).expect("it can be");
        let (options, live) = (options(server.local_addr().expect("it is bound")), Live::default());
        let shared = shared(&options, &live);
        let mut worker = Worker::new(&shared, 0).expect("it opens sockets");
        let line = "1.0 192.0.2.1:5353 udp a.example. A rd\n";
        let open = || Trace::read(io::Cursor::new(line), 53).map_err(io::Error::other);
        let mut schedule = Schedule::new(PLAN, Arc::default(), open);
        let mut steps = 0;
        let ended = worker.go(&mut || {
            steps += 1;
            match schedule.step()? {
                Next::End if server.recv(&mut [0; 512]).is_ok() => live.stop.store(true, Ordering::Relaxed),
                Next::End => assert!(steps < 10_000_000, "nothing is sent meanwhile"),
                next => return Ok(next),
            }
            Ok(Next::NotYet)
        });
        ended.expect("it is stopped");
        assert_eq!(worker.tally.lost[Cause::Interrupted as usize], 1);
    }

    /// Reads so many queries of one client, all due at once.
    fn fill(worker: &mut Worker<'_>, count: usize) {
        let trace = "1.0 192.0.2.1:5353 udp a.example. A rd\n".repeat(count);
        let open = || Trace::read(io::Cursor::new(trace.clone()), 53).map_err(io::Error::other);
        let schedule = Schedule::new(PLAN, Arc::default(), open);
        let mut schedule = match worker.with.options.has_sources {
            true => schedule.with_sources("127.0.0.1/32".parse().expect("a prefix")),
            false => schedule,
        };
        worker.fill(&mut || schedule.step()).expect("it is read");
    }

    #[test]
    fn clients_own_sockets_are_heard_while_answers_at_shared_ones_wait() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback binds");
        let mut options = options(listener.local_addr().expect("it is bound"));
        options.has_sources = true;
        let live = Live::default();
        let shared = shared(&options, &live);
        let mut worker = Worker::new(&shared, 0).expect("it opens sockets");
        let more = "1.0 192.0.2.1:5353 udp a.example. A rd\n".repeat(1_000);
        let trace = format!("1.0 192.0.2.1:5353 tcp a.example. A rd\n{more}");
        let open = || Trace::read(io::Cursor::new(trace.clone()), 53).map_err(io::Error::other);
        let schedule = Schedule::new(PLAN, Arc::default(), open);
        let mut schedule = schedule.with_sources("127.0.0.0/8".parse().expect("a prefix"));
        worker.fill(&mut || schedule.step()).expect("it is read");
        worker.send_due();
        assert!(worker.may_hear_later(), "more is due");
        worker.readiness.wait(Duration::from_secs(20)).expect("it waits");
        worker.receive().expect("it receives");
        assert_eq!(worker.tally.established, 1);
    }

    /// Clients ten seconds away from a server, behind a shared socket.
    fn distant(server: &UdpSocket) -> Options {
        let away = Distances::Between(Duration::from_secs(10), Duration::from_secs(10));
        let options = options(server.local_addr().expect("it is bound"));
        Options { has_sources: true, distances: Some(away), ..options }
    }

    #[test]
    fn at_a_distance_the_time_of_an_answer_holds_no_delay_of_ours() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback binds");
        let options = distant(&server);
        let live = Live::default();
        let shared = shared(&options, &live);
        let mut worker = Worker::new(&shared, 0).expect("it opens sockets");
        fill(&mut worker, 1);
        worker.send_due();
        // What leaves two seconds late was sent two seconds late.
        worker.anchor -= Duration::from_secs(7);
        worker.send_due();
        let mut query = [0; 512];
        let (length, from) = server.recv_from(&mut query).expect("it has left");
        let id = u16::from_be_bytes([query[0], query[1]]);
        let source = "127.0.0.1".parse().expect("an address");
        let key = Key { endpoint: endpoint(source, worker.server(0)), id };
        let sent = worker.pending.asked(key).expect("it waits").sent;
        assert!(sent >= 2_000_000_000 && sent + 5_000_000_000 <= worker.now(), "{sent}");
        // The answer is heard when it was to be, however late we look.
        query[2] |= 0x80;
        server.send_to(&query[..length], from).expect("it is sent");
        worker.readiness.wait(Duration::from_secs(20)).expect("it waits");
        worker.receive().expect("it receives");
        let at = worker.agenda.next().expect("it is on its way");
        worker.anchor -= Duration::from_secs(3_600);
        worker.send_due();
        assert_eq!((worker.tally.answers, worker.last), (1, at));
    }

    #[test]
    fn what_leaves_for_distant_clients_is_heard_between_batches() {
        const QUERIES: usize = 3_000;
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback binds");
        let options = distant(&server);
        let live = Live::default();
        let shared = shared(&options, &live);
        let mut worker = Worker::new(&shared, 0).expect("it opens sockets");
        fill(&mut worker, QUERIES);
        while worker.pending.waiting() < QUERIES {
            worker.send_due();
        }
        assert!(worker.unheard.may_wait(), "none has left, so that no answer waits");
        worker.anchor -= Duration::from_secs(5);
        let batch = worker.batch.outgoing.most() as u64;
        for turn in 1..=2 {
            worker.send_due();
            assert_eq!(worker.tally.lateness.len(), turn * batch);
        }
        while worker.tally.lateness.len() < QUERIES as u64 {
            worker.send_due();
        }
        assert!(!worker.unheard.may_wait(), "all have left");
    }

    #[test]
    fn what_was_refused_before_is_lost_and_the_next_is_sent() {
        let nobody = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback binds");
        let options = options(nobody.local_addr().expect("it is bound"));
        drop(nobody);
        let live = Live::default();
        let shared = shared(&options, &live);
        let mut worker = Worker::new(&shared, 0).expect("it opens sockets");
        let line = |second| format!("{second} 192.0.2.1:5353 udp a.example. A rd\n");
        let trace = ["1.0", "1.0", "9.0"].map(line).concat();
        let open = || Trace::read(io::Cursor::new(trace.clone()), 53).map_err(io::Error::other);
        let mut schedule = Schedule::new(PLAN, Arc::default(), open);
        worker.fill(&mut || schedule.step()).expect("it is read");
        worker.send_due();
        worker.readiness.wait(Duration::from_secs(20)).expect("it waits");
        // What the socket has heard is told to whoever sends next, not to who looks for answers.
        let server = UdpSocket::bind(options.servers[0]).expect("the port is free again");
        worker.anchor -= Duration::from_secs(8);
        worker.send_due();
        assert_eq!((worker.tally.lost[Cause::Refused as usize], worker.tally.lost_total()), (2, 2));
        assert_eq!((worker.pending.waiting(), worker.tally.lateness.len()), (1, 3));
        assert!(server.recv(&mut [0; 512]).is_ok(), "the third");
    }

    #[test]
    fn a_recorded_retry_that_is_read_after_ours_is_left_out() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback binds");
        let options = options(server.local_addr().expect("it is bound"));
        let live = Live::default();
        let shared = shared(&options, &live);
        let mut worker = Worker::new(&shared, 0).expect("it opens sockets");
        let trace = "1.0 192.0.2.1:5353 udp a.example. A rd\n1.1 192.0.2.1:5353 tcp a.example. A rd\n";
        let open = || Trace::read(io::Cursor::new(trace), 53).map_err(io::Error::other);
        let mut schedule = Schedule::new(PLAN, Arc::default(), open);
        while worker.ahead.is_empty() {
            worker.read_one(&mut || schedule.step()).expect("it is read");
        }
        worker.send_due();
        let mut query = [0; 512];
        let (length, from) = server.recv_from(&mut query).expect("it comes");
        query[2] |= 0x82;
        server.send_to(&query[..length], from).expect("it is sent");
        worker.readiness.wait(Duration::from_secs(20)).expect("it waits");
        worker.receive().expect("it receives");
        worker.fill(&mut || schedule.step()).expect("it is read");
        assert_eq!((worker.tally.truncated, worker.tally.left_out), (1, 1));
        assert!(worker.ahead.is_empty() && worker.prepared.is_empty());
    }

    #[test]
    fn what_was_dropped_at_our_own_socket_is_not_the_servers_loss() {
        for has_sources in [false, true] {
            let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback binds");
            let options = Options { has_sources, ..options(server.local_addr().expect("it is bound")) };
            let live = Live::default();
            let shared = shared(&options, &live);
            let mut worker = Worker::new(&shared, 0).expect("it opens sockets");
            let trace = "1.0 192.0.2.1:5353 udp a.example. A rd\n1.0 192.0.2.2:5353 udp a.example. A rd\n";
            let open = || Trace::read(io::Cursor::new(trace), 53).map_err(io::Error::other);
            let schedule = Schedule::new(PLAN, Arc::default(), open);
            let mut schedule = match has_sources {
                true => schedule.with_sources("127.0.0.0/8".parse().expect("a prefix")),
                false => schedule,
            };
            worker.fill(&mut || schedule.step()).expect("it is read");
            worker.send_due();
            let (_, client) = server.recv_from(&mut [0; 512]).expect("it comes");
            let ours = match &worker.shared[0] {
                Some(socket) => socket.try_clone(),
                None => (0..2)
                    .find_map(|slot| match &worker.sockets.get(slot)?.kind {
                        Kind::Udp(socket) if socket.local_addr().ok()? == client => Some(socket.try_clone()),
                        _ => None,
                    })
                    .expect("one of them has asked"),
            };
            let ours = ours.expect("there are descriptors");
            while Memory::of(&ours).expect("it is a socket").drops == 0 {
                server.send_to(&[0; 12], client).expect("it is sent");
            }
            worker.lose(u64::MAX / 2);
            let lost = [Cause::Dropped, Cause::Timeout].map(|cause| worker.tally.lost[cause as usize]);
            assert_eq!(lost, [1, 1], "with sources: {has_sources}");
        }
    }

    #[test]
    fn more_than_a_turn_sends_is_heard_of_a_clients_own_socket() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback binds");
        let options = options(server.local_addr().expect("it is bound"));
        let live = Live::default();
        let shared = shared(&options, &live);
        let mut worker = Worker::new(&shared, 0).expect("it opens sockets");
        fill(&mut worker, 1);
        worker.send_due();
        let mut query = [0; 512];
        let (length, from) = server.recv_from(&mut query).expect("it comes");
        query[2] |= 0x80;
        // More than there is room for unasked, of which one turn takes twice as many as any sends.
        for _ in 0..500 {
            server.send_to(&query[..length], from).expect("it is sent");
        }
        worker.readiness.wait(Duration::from_secs(20)).expect("it waits");
        worker.receive().expect("it receives");
        assert!(worker.tally.answers + worker.tally.duplicates >= 2 * worker.batch.outgoing.most() as u64);
        for _ in 0..20 {
            worker.receive().expect("it receives");
        }
        assert_eq!((worker.tally.answers, worker.tally.duplicates), (1, 499));
    }
}
