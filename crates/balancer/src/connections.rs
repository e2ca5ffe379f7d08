//! DNS over TCP for clients: many connections on tokio, each with several queries under way, answered as answers come
//! (RFC 7766 §7).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use dns::edns::Edns;
use dns::query::{HEADER, Refusal};
use dns::relay::{Added, add_subnet, take_out_keepalive, take_out_subnet};
use dns::writer::without_question;
use dns::{Folded, Query, Rcode, Rtype};
use net::admission::{Admission, Place};
use net::clock::Clock;
use net::framing::{Assembler, prefix};
use net::shutdown::Shutdown;
use net::tcp::{ACCEPT_PAUSE, Limits};
use routing::balance::Set;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::client_address::{ClientAddress, Transport};
use crate::clients::Clients;
use crate::counters::FrontCounters;
use crate::exchange::{Pool, TRUNCATED, ask_by_datagram};
use crate::field::{BackEnd, Field};
use crate::message::{OPT, Says, UDP_PAYLOAD, answer};
use crate::pending::rcode;
use crate::picker::{For, Picker};

/// Queries of one connection that are under way; further ones are not read meanwhile.
const PIPELINED_MAX: usize = 64;

/// Octets that are read at once.
const PIECE: usize = 8 << 10;

/// How queries over connections go to back ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onward {
    /// Over connections.
    Connections,
    /// As datagrams, and over a connection where the answer is truncated.
    Datagrams,
}

impl Onward {
    /// By which leases back ends are picked for it.
    pub fn transport(self) -> For {
        match self {
            Onward::Connections => For::Connections,
            Onward::Datagrams => For::Datagrams,
        }
    }
}

/// What the connections of all clients share.
#[derive(Debug)]
pub struct Connections {
    /// The back ends, replaced as a whole when one comes or goes.
    pub field: Arc<ArcSwap<Field>>,
    /// What is picked by, and where it is counted: both have one writer, who holds the lock.
    pub desk: Mutex<Desk>,
    /// How queries go on.
    pub onward: Onward,
    /// How back ends learn whose they are.
    pub client_address: ClientAddress,
    /// Connections to back ends.
    pub pool: Pool,
    /// The clock of the whole balancer, by which leases run out.
    pub clock: Clock,
    /// How long one back end may take for an answer, with the wait for a connection to it.
    pub timeout: Duration,
    /// To how many back ends a query may go, from 1.
    pub tries: usize,
    /// Queries that may be under way at a time; further ones are answered SERVFAIL.
    pub outstanding_max: usize,
    /// How many connections clients may have, and for how long.
    pub limits: Limits,
    /// Gives clients' connections their places, and takes them back from who is idle.
    pub admission: Arc<Admission>,
}

/// What is picked by, and where it is counted.
#[derive(Debug)]
pub struct Desk {
    /// Picks a back end for each query of all connections.
    pub picker: Picker,
    /// What is counted of clients over connections.
    pub counters: Arc<FrontCounters>,
    /// Queries under way, at most [`Connections::outstanding_max`].
    pub outstanding: usize,
    /// How many of them each client has.
    pub clients: Clients,
}

/// Who asks, and at which address.
#[derive(Clone, Copy, Debug)]
struct Way {
    client: SocketAddr,
    local: SocketAddr,
}

/// A query that may go on.
struct Asked {
    key: u64,
    question_end: usize,
    edns: Option<Edns>,
}

/// A query's place among those under way, until it is dropped.
struct Seat<'a> {
    connections: &'a Connections,
    counted_at: u32,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut desk = self.connections.desk();
        desk.outstanding -= 1;
        desk.clients.give_back(self.counted_at);
    }
}

/// A back end that was picked.
struct Picked {
    back_end: Arc<BackEnd>,
    load: u32,
    id: u16,
    sent_ns: u64,
}

impl Connections {
    /// Serves connections until the shutdown begins; then queries under way are answered.
    pub async fn serve(self: Arc<Self>, listener: tokio::net::TcpListener, shutdown: Shutdown) {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = shutdown.wait() => break,
                Some(_) = connections.join_next() => continue,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, client)) => {
                    let Ok(place) = self.admission.admit(client.ip()) else {
                        self.desk().counters.full.add(1);
                        continue;
                    };
                    let (this, shutdown) = (self.clone(), shutdown.clone());
                    let has_replaced = place.has_replaced();
                    connections.spawn(async move {
                        // What goes wrong on a connection is its client's to know.
                        let _ = this.converse(stream, client, place, shutdown).await;
                    });
                    // Who gives way is to be gone before too many others come.
                    if has_replaced {
                        tokio::task::yield_now().await;
                    }
                }
                Err(cause) => {
                    tracing::warn!(%cause, "a connection cannot be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }

    async fn converse(
        self: Arc<Self>,
        stream: TcpStream,
        client: SocketAddr,
        place: Place,
        shutdown: Shutdown,
    ) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let way = Way { client, local: stream.local_addr()? };
        let (mut reads, mut writes) = stream.into_split();
        let (answered, mut answers) = mpsc::channel::<Vec<u8>>(PIPELINED_MAX);
        let limits = self.limits;
        let writer = tokio::spawn(async move {
            while let Some(answer) = answers.recv().await {
                let frame = [&prefix(answer.len())[..], &answer].concat();
                match tokio::time::timeout(limits.message, writes.write_all(&frame)).await {
                    Ok(Ok(())) => {}
                    _ => return,
                }
            }
        });
        let places = Arc::new(Semaphore::new(PIPELINED_MAX));
        let (mut assembler, mut piece) = (Assembler::default(), vec![0; PIECE]);
        let mut under_way = JoinSet::new();
        let end = Instant::now() + limits.lifetime;
        // Since when a query, or the rest of one, is waited for: more octets of the same query are no new wait.
        let (mut since, mut has_asked) = (Instant::now(), false);
        place.waits(has_asked);
        let mut gives_way = pin!(place.gives_way());
        loop {
            let wait = match (assembler.is_partial(), under_way.is_empty()) {
                (true, _) => limits.message,
                (false, true) if place.is_crowded() => limits.idle.min(limits.idle_when_crowded),
                (false, true) => limits.idle,
                // Who has queries under way is not idle.
                (false, false) => limits.lifetime,
            };
            let length = tokio::select! {
                biased;
                () = shutdown.wait() => break,
                // Who takes no answers is asked for no more queries.
                () = answered.closed() => break,
                () = sleep_until(end.min(since + wait)) => break,
                () = &mut gives_way, if under_way.is_empty() => break,
                Some(_) = under_way.join_next() => {
                    if under_way.is_empty() {
                        place.waits(has_asked);
                        if !assembler.is_partial() {
                            since = Instant::now();
                        }
                    }
                    continue;
                }
                read = reads.read(&mut piece) => match read {
                    Ok(length) if length > 0 => length,
                    _ => break,
                },
            };
            let mut is_new = !assembler.is_partial();
            let mut rest = &piece[..length];
            while let Some(message) = assembler.next(&mut rest) {
                (is_new, has_asked) = (true, true);
                place.works();
                let permit = places.clone().acquire_owned().await.map_err(io::Error::other)?;
                let (this, query, answered) = (self.clone(), message.to_vec(), answered.clone());
                under_way.spawn(async move {
                    if let Some(answer) = this.answer(&query, way).await {
                        // The client may be gone.
                        let _ = answered.send(answer).await;
                    }
                    drop(permit);
                });
            }
            if is_new {
                since = Instant::now();
                if under_way.is_empty() {
                    place.waits(has_asked);
                }
            }
        }
        while under_way.join_next().await.is_some() {}
        drop(answered);
        let _ = writer.await;
        Ok(())
    }

    /// Answers one query; `None` where it gets no answer.
    async fn answer(&self, query: &[u8], way: Way) -> Option<Vec<u8>> {
        let asked = match self.read(query) {
            Ok(asked) => asked,
            Err(answer) => return answer,
        };
        let reply = match self.seat(way.client.ip()) {
            Some(_seat) => self.carry(query, &asked, way).await,
            None => None,
        };
        let servfail = Says::Rcode(Rcode::SERVFAIL);
        Some(reply.unwrap_or_else(|| ours(query, asked.question_end, asked.edns.as_ref(), servfail)))
    }

    /// Reads a query; what does not go on is answered by us, or not at all.
    fn read(&self, query: &[u8]) -> Result<Asked, Option<Vec<u8>>> {
        let mut name = Folded::root();
        let desk = self.desk();
        desk.counters.queries.add(1);
        match Query::read(query, &mut name) {
            // What has many messages for an answer is for whom a server knows, and it does not know us.
            Ok(asked) if matches!(asked.rtype, Rtype::AXFR | Rtype::IXFR) => {
                let refused = Says::Rcode(Rcode::REFUSED);
                Err(Some(ours(query, asked.head.len(), asked.edns.as_ref(), refused)))
            }
            Ok(asked) => Ok(Asked {
                key: desk.picker.hash_question(&asked),
                question_end: asked.head.len(),
                edns: asked.edns,
            }),
            Err(Refusal::Silence) => {
                desk.counters.no_query.add(1);
                Err(None)
            }
            Err(refusal) => {
                desk.counters.malformed.add(1);
                let rcode = if let Refusal::Rcode(rcode) = refusal { rcode } else { Rcode::FORMERR };
                let mut out = [0; HEADER + OPT];
                let length = without_question(query, rcode, UDP_PAYLOAD, &mut out);
                Err(length.map(|length| out[..length].to_vec()))
            }
        }
    }

    /// A place for one more query of this client; `None`, which is counted, where it or all have as many as they may.
    fn seat(&self, client: IpAddr) -> Option<Seat<'_>> {
        let mut desk = self.desk();
        if desk.outstanding >= self.outstanding_max {
            desk.counters.full.add(1);
            return None;
        }
        let hash = desk.picker.hash_client(client);
        let Some(counted_at) = desk.clients.take(hash) else {
            desk.counters.full_client.add(1);
            return None;
        };
        desk.outstanding += 1;
        Some(Seat { connections: self, counted_at })
    }

    /// Takes a query to back ends until one answers; `None`, which is counted, where none does.
    async fn carry(&self, query: &[u8], asked: &Asked, way: Way) -> Option<Vec<u8>> {
        let question_end = asked.question_end;
        let (mut onward, mut added) = (query.to_vec(), Added::Nothing);
        let length = take_out_keepalive(&mut onward, question_end);
        onward.truncate(length);
        if let Some(subnet) = self.client_address.subnet(way.client.ip()) {
            added = add_subnet(&mut onward, question_end, asked.edns.as_ref(), &subnet);
        }
        let (mut tried, mut is_free) = (Set::EMPTY, false);
        while tried.len() < self.tries {
            let picked = self.pick(asked.key, way.client.ip(), tried, is_free)?;
            tried = tried.with(picked.back_end.place);
            onward[..2].copy_from_slice(&picked.id.to_be_bytes());
            let reply = self.forward(&picked.back_end, &onward, question_end, way);
            let reply = tokio::time::timeout(self.timeout, reply).await;
            let now = self.now();
            let mut desk = self.desk();
            let (place, load) = (picked.back_end.place, picked.load);
            match reply {
                Ok(Ok(mut reply)) => {
                    let latency = now.saturating_sub(picked.sent_ns);
                    desk.picker.answered(place, load, rcode(&reply).to_int(), latency, now);
                    desk.counters.answers.add(1);
                    reply[..2].copy_from_slice(&query[..2]);
                    let length = take_out_subnet(&mut reply, question_end, added);
                    let length = take_out_keepalive(&mut reply[..length], question_end);
                    reply.truncate(length);
                    return Some(reply);
                }
                failed => {
                    // Nobody has worked for it.
                    is_free =
                        matches!(&failed, Ok(Err(cause)) if cause.kind() == io::ErrorKind::ConnectionRefused);
                    if let Some(cells) = desk.picker.cells(place) {
                        if failed.is_err() { cells.timeouts.add(1) } else { cells.refused.add(1) }
                    }
                    desk.picker.failed(place, load, now);
                }
            }
        }
        self.desk().counters.failed.add(1);
        None
    }

    /// Picks a back end that is not among `tried`; another one than the first is in the budget of those that are sent again,
    /// if it is not free. `None`, which is counted, where there is none.
    fn pick(&self, key: u64, client: IpAddr, tried: Set, is_free: bool) -> Option<Picked> {
        let now = self.now();
        let mut desk = self.desk();
        let Desk { picker, counters, .. } = &mut *desk;
        picker.look(&self.field.load_full(), now);
        if !tried.is_empty() {
            let has_others = picker.has_others(tried);
            if !has_others || !(is_free || picker.may_retry()) {
                counters.retries_denied.add(u64::from(has_others));
                counters.failed.add(1);
                return None;
            }
            counters.retries.add(1);
        }
        let Some(place) = picker.pick(key, client, tried, now, counters) else {
            counters.shed.add(1);
            return None;
        };
        let back_end = picker.back_end(place)?.clone();
        let load = if tried.is_empty() { picker.sent(place, now) } else { picker.sent_again(place, now) };
        Some(Picked { back_end, load, id: picker.rng().u16(..), sent_ns: now })
    }

    async fn forward(
        &self,
        back_end: &Arc<BackEnd>,
        query: &[u8],
        question_end: usize,
        way: Way,
    ) -> io::Result<Vec<u8>> {
        let mut preface = Vec::new();
        if self.onward == Onward::Datagrams {
            self.client_address.preface(Transport::Datagram, way.client, way.local, &mut preface);
            let reply = ask_by_datagram(back_end.address, &preface, query, question_end).await?;
            if reply[2] & TRUNCATED == 0 {
                return Ok(reply);
            }
        }
        preface.clear();
        self.client_address.preface(Transport::Stream, way.client, way.local, &mut preface);
        self.pool.ask(back_end, &preface, query, question_end).await
    }

    fn now(&self) -> u64 {
        u64::try_from(self.clock.now().monotonic.as_nanos()).unwrap_or(u64::MAX)
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer of ours.
fn ours(query: &[u8], question_end: usize, edns: Option<&Edns>, says: Says) -> Vec<u8> {
    let mut out = vec![0; question_end + OPT];
    let id = u16::from_be_bytes([query[0], query[1]]);
    let length = answer(query, question_end, edns, id, says, &mut out);
    out.truncate(length);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;
    use routing::balance::Policy;

    const A: &[u8] = b"\0\x13\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";
    /// Answered here.
    const AXFR: &[u8] = b"\0\x13\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\xfc\0\x01";

    /// What one client may have under way, and all.
    const PER_CLIENT_MAX: u16 = 2;
    const OUTSTANDING_MAX: usize = 3;

    /// Serves clients before these back ends; returns where.
    async fn start(back_ends: &[SocketAddr], limits: Limits) -> (SocketAddr, Arc<Connections>) {
        let connections = Arc::new(connections(back_ends, limits, Onward::Connections));
        let listener = net::tcp::bind(([127, 0, 0, 1], 0).into()).expect("loopback binds");
        let address = listener.local_addr().expect("it is bound");
        let listener = tokio::net::TcpListener::from_std(listener).expect("there is a runtime");
        tokio::spawn(connections.clone().serve(listener, Shutdown::new()));
        (address, connections)
    }

    fn connections(back_ends: &[SocketAddr], limits: Limits, onward: Onward) -> Connections {
        let field = back_ends.iter().fold(Field::default(), |field, address| {
            field.with(|place| BackEnd::new(place, *address, 1, 1)).expect("there is a place")
        });
        let policy = Policy::from_name("wrr").expect("one of the names");
        let picker = Picker::new(policy, onward.transport(), 0, 1_000_000_000, 7, Rng::with_seed(1));
        Connections {
            field: Arc::new(ArcSwap::from_pointee(field)),
            desk: Mutex::new(Desk {
                picker,
                counters: Arc::default(),
                outstanding: 0,
                clients: Clients::new(PER_CLIENT_MAX),
            }),
            onward,
            client_address: ClientAddress::Hidden,
            pool: Pool::default(),
            clock: Clock::new(),
            timeout: Duration::from_secs(1),
            tries: 2,
            outstanding_max: OUTSTANDING_MAX,
            limits,
            admission: Arc::new(limits.admission()),
        }
    }

    async fn ask(address: SocketAddr, query: &[u8]) -> (TcpStream, u8) {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.write_all(query).await.expect("it is taken");
        let mut reply = vec![0; query.len()];
        stream.read_exact(&mut reply).await.expect("an answer");
        (stream, reply[5] & 0x0f)
    }

    /// Where nobody listens.
    fn nowhere() -> SocketAddr {
        let listener = net::tcp::bind(([127, 0, 0, 1], 0).into()).expect("loopback binds");
        listener.local_addr().expect("it is bound")
    }

    // The clock runs by itself while everybody waits.
    #[tokio::test(start_paused = true)]
    async fn an_octet_now_and_then_does_not_keep_a_place() {
        let (address, _) = start(&[], Limits::default()).await;
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let mut octets = 0;
        // As long as the longest message, if it may.
        while octets < 1_000 {
            let wait = tokio::time::timeout(Duration::from_secs(3), stream.read_u8()).await;
            if wait.is_ok() || stream.write_all(&[1]).await.is_err() {
                break;
            }
            octets += 1;
        }
        assert!(octets < 10, "{octets}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_never_reads_is_ended() {
        let (address, _) = start(&[], Limits::default()).await;
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let queries = AXFR.repeat(1_000);
        let mut rounds = 0;
        while rounds < 1_000 {
            let wrote = tokio::time::timeout(Duration::from_secs(60), stream.write_all(&queries)).await;
            if matches!(wrote, Ok(Err(_))) {
                break;
            }
            rounds += 1;
        }
        assert!(rounds < 1_000, "it is served for ever");
    }

    #[tokio::test]
    async fn who_waits_gives_way() {
        let long = Duration::from_secs(3600);
        let limits = Limits { connections_max: 1, idle: long, idle_when_crowded: long, ..Limits::default() };
        let (address, connections) = start(&[], limits).await;
        let (mut first, rcode) = ask(address, AXFR).await;
        assert_eq!(rcode, Rcode::REFUSED.to_int());
        // Once it is known that nothing of it is under way.
        let until = Instant::now() + Duration::from_secs(60);
        while connections.admission.admit([192, 0, 2, 1].into()).is_err() {
            assert!(Instant::now() < until, "it never gives way");
            tokio::task::yield_now().await;
        }
        let ended = tokio::time::timeout(Duration::from_secs(60), first.read(&mut [0])).await;
        assert_eq!(ended.expect("it gives way").expect("it has ended"), 0);
    }

    #[tokio::test]
    async fn who_takes_no_connections_costs_no_retries() {
        let good = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback binds");
        let back_ends = [nowhere(), good.local_addr().expect("it is bound")];
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = good.accept().await {
                tokio::spawn(async move {
                    let mut query = [0; A.len()];
                    while stream.read_exact(&mut query).await.is_ok() {
                        query[4] |= 0x80;
                        if stream.write_all(&query).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        let (address, connections) = start(&back_ends, Limits::default()).await;
        for _ in 0..200 {
            assert_eq!(ask(address, A).await.1, Rcode::NOERROR.to_int());
        }
        assert_eq!(connections.desk().counters.retries_denied.get(), 0);
    }

    /// A client's way to us.
    fn way(last: u8) -> Way {
        Way { client: ([192, 0, 2, last], 9).into(), local: ([127, 0, 0, 1], 53).into() }
    }

    async fn answered(connections: &Connections) -> Rcode {
        rcode(&connections.answer(&A[2..], way(3)).await.expect("an answer"))
    }

    fn counts(connections: &Connections) -> [u64; 4] {
        let desk = connections.desk();
        let FrontCounters { full, full_client, shed, failed, .. } = &*desk.counters;
        [full, full_client, shed, failed].map(|count| count.get())
    }

    #[tokio::test]
    async fn queries_beyond_the_limits_are_counted_and_answered_here() {
        let (_, connections) = start(&[nowhere()], Limits::default()).await;
        let seats = [1, 1, 1, 2, 3].map(|last| connections.seat(way(last).client.ip()));
        assert_eq!(seats.each_ref().map(Option::is_some), [true, true, false, true, false]);
        assert_eq!(answered(&connections).await, Rcode::SERVFAIL);
        assert_eq!(counts(&connections), [2, 1, 0, 0]);
        drop(seats);
        // Nobody listens there.
        assert_eq!(answered(&connections).await, Rcode::SERVFAIL);
        assert_eq!((counts(&connections), connections.desk().outstanding), ([2, 1, 0, 1], 0));
    }

    #[tokio::test]
    async fn what_nobody_is_picked_for_is_shed_and_has_not_failed() {
        let (_, connections) = start(&[], Limits::default()).await;
        assert_eq!(answered(&connections).await, Rcode::SERVFAIL);
        assert_eq!(counts(&connections), [0, 0, 1, 0]);
    }

    #[tokio::test]
    async fn what_goes_on_as_datagrams_is_counted_as_such() {
        let server = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("loopback binds");
        let back_end = server.local_addr().expect("it is bound");
        let connections = connections(&[back_end], Limits::default(), Onward::Datagrams);
        let answers = async {
            let mut reply = [0; A.len() - 2];
            let (_, from) = server.recv_from(&mut reply).await.expect("it comes");
            reply[2] |= 0x80;
            server.send_to(&reply, from).await.expect("loopback sends")
        };
        let (rcode, _) = tokio::join!(answered(&connections), answers);
        assert_eq!(rcode, Rcode::NOERROR);
        let field = connections.field.load();
        let cells = &field.find(back_end).expect("it is there").cells[0];
        assert_eq!([&cells.sent, &cells.datagrams].map(|count| count.get()), [1, 1]);
    }

    #[tokio::test]
    async fn how_long_a_connection_may_be_idle_is_not_passed_on() {
        const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\x01\x01a\0\0\x01\0\x01\0\0\x29\x04\xd0\0\0\0\0";
        let with = |options: &[u8]| [QUERY, &[0, options.len() as u8], options].concat();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback binds");
        let (_, connections) = start(&[listener.local_addr().expect("it is bound")], Limits::default()).await;
        let back_end = async {
            let (mut stream, _) = listener.accept().await.expect("it comes");
            let mut query = vec![0; usize::from(stream.read_u16().await.expect("a query"))];
            stream.read_exact(&mut query).await.expect("all of it");
            assert_eq!(query[2..], with(&[])[2..], "the client's is not for the back end");
            let mut reply = with(b"\0\x0b\0\x02\0\x64");
            reply[..3].copy_from_slice(&[query[0], query[1], 0x81]);
            stream.write_all(&[&prefix(reply.len())[..], &reply].concat()).await.expect("it is taken");
        };
        let asked = with(b"\0\x0b\0\0");
        let (answer, ()) = tokio::join!(connections.answer(&asked, way(1)), back_end);
        let mut expected = with(&[]);
        expected[2] = 0x81;
        assert_eq!(answer, Some(expected));
    }
}
