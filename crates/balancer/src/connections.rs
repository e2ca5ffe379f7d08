//! DNS over TCP for clients: what all connections share, and how a query that came over one gets its answer.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use dns::dnstap::Protocol;
use dns::edns::{Edns, OPTION};
use dns::query::{HEADER, MESSAGE_MAX, Refusal, TRUNCATED};
use dns::relay::{
    Added, PADDED_TO, add_subnet, is_padded, pad, take_out_added, take_out_cookies, take_out_of_one_hop,
};
use dns::reuse;
use dns::writer::without_question;
use dns::{Folded, Query, Rcode, Rtype};
use net::admission::Admission;
use net::clock::Clock;
use net::tcp::Limits;
use routing::Acl;
use routing::balance::Set;
use tap::{Talk, Tap};
use tokio::sync::mpsc;
use tokio::time::error::Elapsed;

use crate::cache::{self, Cache, in_pool};
use crate::client_address::{ClientAddress, Transport};
use crate::clients::Clients;
use crate::counters::FrontCounters;
use crate::exchange::{ASKED_MAX, NoAnswer, ask_by_datagram};
use crate::field::{BackEnd, Field};
use crate::health::is_failure;
use crate::message::{OPT, OURS_MAX, Says, UDP_PAYLOAD, answer, rcode};
use crate::picker::{For, Picker};
use crate::rules::{Arrival, Verdict};
use crate::told::{Overdue, Told};

/// How queries over connections go to back ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onward {
    /// Over connections.
    Connections,
    /// As datagrams, and over a connection where the answer is truncated, or the query too long for a datagram.
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
    /// Who may ask; everybody where it is not given.
    pub allow: Option<Acl>,
    /// Answers that are given again, where they are.
    pub cache: Option<Arc<Cache>>,
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
    /// Who watches, where somebody does.
    pub tap: Option<Tap>,
}

/// Who asks, at which address, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) client: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) protocol: Protocol,
}

/// Who is to get the answers.
struct Asker<'a> {
    way: Way,
    answers: &'a mpsc::Sender<Vec<u8>>,
    /// When the query came, as Unix time, where who watches is told of both.
    tapped: Option<Duration>,
}

impl Way {
    /// Whether nobody on the way sees more of messages than their lengths.
    pub(crate) fn is_encrypted(self) -> bool {
        self.protocol != Protocol::Tcp
    }

    fn talk(self, time: Duration) -> Talk {
        let Way { client, local: server, protocol } = self;
        Talk { client, server, protocol, time }
    }
}

/// A query that may go on.
struct Asked {
    key: u64,
    /// The pool whose back ends it may go to.
    pool: usize,
    /// Under what its answer may be kept; empty where it may not.
    cache_key: Vec<u8>,
    question_end: usize,
    edns: Option<Edns>,
}

/// A query's place among those under way, until it is dropped.
struct Seat<'a> {
    connections: &'a Connections,
    /// Where its client is counted, as long as that waits.
    counted_at: Option<u32>,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut desk = self.connections.desk();
        desk.outstanding -= 1;
        if let Some(counted_at) = self.counted_at {
            desk.clients.give_back(counted_at);
        }
    }
}

/// A back end that was picked.
struct Picked {
    back_end: Arc<BackEnd>,
    /// The hash of the question.
    key: u64,
    load: u32,
    id: u16,
    sent_ns: u64,
}

/// What became of a query at a back end.
enum Ended {
    /// It was answered.
    Answered(Vec<u8>),
    /// It was not; `was_idle` says that nobody has even worked for it.
    Failed { was_idle: bool },
    /// We could not send it.
    Unsent,
}

impl Connections {
    /// Whether a client may ask; one who may not is counted.
    pub(crate) fn lets_in(&self, client: IpAddr) -> bool {
        let may_ask = self.allow.as_ref().is_none_or(|allow| allow.allows(client));
        if !may_ask {
            self.desk().counters.strangers.add(1);
        }
        may_ask
    }

    /// Answers one query, where it gets an answer, and ends once all that became of it is counted.
    pub(crate) async fn answer(&self, query: &[u8], way: Way, answers: &mpsc::Sender<Vec<u8>>) {
        let asker = Asker { way, answers, tapped: self.tell_query(query, way) };
        let asked = match self.read(query, way) {
            Ok(asked) => asked,
            Err(Some(answer)) => return self.tell(&asker, answer).await,
            Err(None) => return,
        };
        if let Some(answer) = self.find(query, &asked) {
            return self.tell(&asker, padded(answer, query, asked.question_end, way)).await;
        }
        let is_told = match self.seat(way.client.ip()) {
            Some(seat) => self.carry(query, &asked, seat, &asker).await.is_some(),
            None => false,
        };
        if !is_told {
            let servfail = Says::Rcode(Rcode::SERVFAIL);
            let ours = || ours(query, asked.question_end, asked.edns.as_ref(), servfail);
            let answer = self.find_after_failure(query, &asked).unwrap_or_else(ours);
            self.tell(&asker, padded(answer, query, asked.question_end, way)).await;
        }
    }

    /// Tells who watches of a query, where it is its turn; returns when it came then, as Unix time.
    fn tell_query(&self, query: &[u8], way: Way) -> Option<Duration> {
        let mut desk = self.desk();
        let Desk { counters, tap, .. } = &mut *desk;
        let tap = tap.as_mut()?;
        if !tap.takes(query) {
            return None;
        }
        let time = self.clock.now().unix;
        counters.tap_full.add(tap.query(&way.talk(time), query));
        Some(time)
    }

    /// Tells a client, who may be gone, and who watches.
    async fn tell(&self, asker: &Asker<'_>, answer: Vec<u8>) {
        if let Some(time) = asker.tapped {
            let mut desk = self.desk();
            let Desk { counters, tap, .. } = &mut *desk;
            if let Some(tap) = tap {
                let now = self.clock.now().unix;
                counters.tap_full.add(tap.response(&asker.way.talk(time), now, &answer));
            }
        }
        let _ = asker.answers.send(answer).await;
    }

    /// Reads a query; what does not go on is answered by us, or not at all.
    fn read(&self, query: &[u8], way: Way) -> Result<Asked, Option<Vec<u8>>> {
        let (mut name, mut cache_key) = (Folded::root(), Vec::new());
        let desk = self.desk();
        desk.counters.queries.add(1);
        match Query::read(query, &mut name) {
            Ok(asked) => {
                let (client, question_end) = (way.client.ip(), asked.head.len());
                let told = |says| {
                    let answer = ours(query, question_end, asked.edns.as_ref(), says);
                    Err(Some(padded(answer, query, question_end, way)))
                };
                // What has many messages for an answer is for whom a server knows, and it does not know us.
                if matches!(asked.rtype, Rtype::AXFR | Rtype::IXFR) {
                    desk.counters.transfers.add(1);
                    return told(Says::Rcode(Rcode::REFUSED));
                }
                let arrival = Arrival { client, is_datagram: false, now_ns: self.now() };
                let field = self.field.load();
                let pool = match field.rules.judge(&asked, arrival, || desk.picker.hash_client(client)) {
                    Verdict::Pool(pool) => pool,
                    Verdict::Says(says) => {
                        desk.counters.ruled.add(1);
                        return told(says);
                    }
                    Verdict::Nothing => {
                        desk.counters.ruled.add(1);
                        return Err(None);
                    }
                };
                if self.cache.is_some() {
                    let subnet = self.client_address.subnet(client);
                    reuse::key(&asked, query, subnet.as_ref(), &mut cache_key);
                    in_pool(&mut cache_key, pool);
                }
                let key = desk.picker.hash_question(&asked);
                Ok(Asked { key, pool, cache_key, question_end, edns: asked.edns })
            }
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

    /// The answer to a query that is kept, if there is one.
    fn find(&self, query: &[u8], asked: &Asked) -> Option<Vec<u8>> {
        self.kept(query, asked, |cache, of, out| {
            let found = cache.find(of, self.now(), out);
            self.desk().counters.count_found(found.map(|(_, kept)| kept));
            found.map(|(length, _)| length)
        })
    }

    /// The same for a query that no back end answers: it need not be fresh.
    fn find_after_failure(&self, query: &[u8], asked: &Asked) -> Option<Vec<u8>> {
        self.kept(query, asked, |cache, of, out| {
            let (length, kept) = cache.find_after_failure(of, self.now(), out)?;
            self.desk().counters.count_after_failure(kept);
            Some(length)
        })
    }

    fn kept(
        &self,
        query: &[u8],
        asked: &Asked,
        find: impl FnOnce(&Cache, cache::Asked<'_>, &mut [u8]) -> Option<usize>,
    ) -> Option<Vec<u8>> {
        let Asked { cache_key, question_end, .. } = asked;
        let cache = self.cache.as_ref().filter(|_| !cache_key.is_empty())?;
        let of = cache::Asked {
            key: cache_key,
            message: query,
            question_end: *question_end,
            length_max: MESSAGE_MAX,
        };
        let mut out = vec![0; cache::FOUND_MAX];
        let length = find(cache, of, &mut out)?;
        out.truncate(length);
        Some(out)
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
        Some(Seat { connections: self, counted_at: Some(counted_at) })
    }

    /// Takes a query to back ends until one answers, which its client is told; `None`, which is counted, where none does.
    /// One that answers while another one is waited for, its own time being over, is told at once; the other is measured on.
    async fn carry(&self, query: &[u8], asked: &Asked, mut seat: Seat<'_>, asker: &Asker<'_>) -> Option<()> {
        let (way, question_end) = (asker.way, asked.question_end);
        let (mut onward, mut added) = (query.to_vec(), Added::Nothing);
        let length = take_out_of_one_hop(&mut onward, question_end);
        onward.truncate(length);
        if self.cache.is_some() {
            let length = take_out_cookies(&mut onward, question_end);
            onward.truncate(length);
        }
        if let Some(subnet) = self.client_address.subnet(way.client.ip()) {
            added = add_subnet(&mut onward, question_end, asked.edns.as_ref(), &subnet);
        }
        let for_client = |mut reply: Vec<u8>| {
            // An answer that is kept, fresh or stale, is better than a failure (RFC 8767 §5).
            if is_failure(rcode(&reply).to_int())
                && let Some(kept) = self.find_after_failure(query, asked)
            {
                return padded(kept, query, question_end, way);
            }
            reply[..2].copy_from_slice(&query[..2]);
            let length = take_out_added(&mut reply, question_end, added);
            let length = take_out_of_one_hop(&mut reply[..length], question_end);
            reply.truncate(length);
            if let Some(cache) = &self.cache {
                cache.keep(&asked.cache_key, &reply, question_end, self.now());
            }
            padded(reply, query, question_end, way)
        };
        let (mut tried, mut tries, mut is_free) = (Set::EMPTY, 0, false);
        let mut overdue = Overdue::new();
        while tries < self.tries {
            let picked = self.pick(asked, way.client.ip(), tried, is_free)?;
            tried = tried.with(picked.back_end.place);
            onward[..2].copy_from_slice(&picked.id.to_be_bytes());
            let mut told = Told::Nothing;
            let ended = {
                let reply = self.forward(&picked.back_end, &onward, question_end, way, &mut told);
                let mut reply = pin!(tokio::time::timeout(self.timeout, reply));
                tokio::select! {
                    biased;
                    late = first_good(&mut overdue) => {
                        self.is_answered_late(&mut seat);
                        // However slowly the client takes its answer.
                        let measured = async {
                            self.ended(&picked, reply.await, true);
                            drop(seat);
                        };
                        tokio::join!(measured, self.tell(asker, for_client(late)));
                        return Some(());
                    }
                    reply = &mut reply => self.ended(&picked, reply, false),
                }
            };
            match ended {
                Ended::Answered(reply) => {
                    drop(seat);
                    self.tell(asker, for_client(reply)).await;
                    return Some(());
                }
                // One that was not reached has cost nothing: there may be as many of them as there are back ends.
                Ended::Failed { was_idle } => {
                    is_free = was_idle;
                    tries += usize::from(!was_idle);
                    overdue.push(picked.back_end, told);
                }
                Ended::Unsent => break,
            }
        }
        self.desk().counters.failed.add(1);
        None
    }

    /// Counts that a client has got an answer whose time was over, and that it no longer waits.
    fn is_answered_late(&self, seat: &mut Seat<'_>) {
        let mut desk = self.desk();
        desk.counters.answers.add(1);
        desk.counters.late_answers.add(1);
        if let Some(counted_at) = seat.counted_at.take() {
            desk.clients.give_back(counted_at);
        }
    }

    /// Counts what became of a query at a back end; its client may have an answer already.
    fn ended(&self, picked: &Picked, reply: Result<io::Result<Vec<u8>>, Elapsed>, has_answer: bool) -> Ended {
        let now = self.now();
        let mut desk = self.desk();
        let Desk { picker, counters, .. } = &mut *desk;
        let (place, key, load) = (picked.back_end.place, picked.key, picked.load);
        let why = match reply {
            Ok(Ok(reply)) => {
                let latency = now.saturating_sub(picked.sent_ns);
                picker.answered(place, key, load, rcode(&reply).to_int(), latency, now);
                counters.answers.add(u64::from(!has_answer));
                return Ended::Answered(reply);
            }
            Ok(Err(cause)) => NoAnswer::of(&cause),
            Err(_) => {
                picker.timed_out(place, key, load, now);
                return Ended::Failed { was_idle: false };
            }
        };
        picker.unanswered(place, why, load, now, counters);
        match why {
            NoAnswer::Shortage => Ended::Unsent,
            _ => Ended::Failed { was_idle: why != NoAnswer::Ended },
        }
    }

    /// Picks a back end of the query's pool that is not among `tried`; another one than the first is in the budget of those
    /// that are sent again, if it is not free. `None`, which is counted, where there is none.
    fn pick(&self, asked: &Asked, client: IpAddr, tried: Set, is_free: bool) -> Option<Picked> {
        let Asked { key, pool, .. } = *asked;
        let now = self.now();
        let mut desk = self.desk();
        let Desk { picker, counters, .. } = &mut *desk;
        picker.look(&self.field.load_full(), now);
        let (is_first, has_others) = (tried.is_empty(), picker.has_others(pool, tried));
        let is_denied = has_others && !is_first && !is_free && !picker.may_retry();
        if !has_others || is_denied {
            counters.retries_denied.add(u64::from(is_denied));
            counters.failed.add(1);
            return None;
        }
        let Some(place) = picker.pick(pool, key, client, tried, now, counters) else {
            if is_first {
                counters.shed.add(1)
            } else {
                counters.failed.add(1)
            }
            return None;
        };
        let back_end = picker.back_end(place)?.clone();
        counters.retries.add(u64::from(!is_first));
        let load = match (is_first, is_free) {
            (true, _) => picker.sent(place, now),
            (false, true) => picker.sent_for_free(place, now),
            (false, false) => picker.sent_again(place, now),
        };
        Some(Picked { back_end, key, load, id: picker.rng().u16(..), sent_ns: now })
    }

    async fn forward(
        &self,
        back_end: &Arc<BackEnd>,
        query: &[u8],
        question_end: usize,
        way: Way,
        told: &mut Told,
    ) -> io::Result<Vec<u8>> {
        let mut preface = Vec::new();
        if self.onward == Onward::Datagrams && back_end.tls().is_none() {
            self.client_address.preface(Transport::Datagram, way.client, way.local, &mut preface);
            if preface.len() + query.len() <= ASKED_MAX {
                let address = back_end.address;
                let reply = ask_by_datagram(address, &preface, query, question_end, told).await?;
                if reply[2] & TRUNCATED == 0 {
                    return Ok(reply);
                }
            }
        }
        preface.clear();
        self.client_address.preface(Transport::Stream, way.client, way.local, &mut preface);
        back_end.exchange.ask(&preface, query, question_end, told).await
    }

    fn now(&self) -> u64 {
        self.clock.monotonic_ns()
    }

    /// How long a query may take at all, whatever back ends do.
    pub(crate) fn query_time_max(&self) -> Duration {
        self.timeout.saturating_mul(u32::try_from(self.tries).unwrap_or(u32::MAX))
    }

    pub(crate) fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer as it is sent: padded where the query is, and only lengths can be seen.
fn padded(mut answer: Vec<u8>, query: &[u8], question_end: usize, way: Way) -> Vec<u8> {
    if way.is_encrypted() && is_padded(query, question_end) {
        let length = answer.len();
        // The least room that has a multiple behind the longest option.
        answer.resize(length + OPTION + PADDED_TO, 0);
        let padded = pad(&mut answer, length, question_end, PADDED_TO);
        answer.truncate(padded);
    }
    answer
}

/// The first answer of those whose time is over that is one: a failure is none, nor is one that is truncated.
async fn first_good(overdue: &mut Overdue<Arc<BackEnd>>) -> Vec<u8> {
    loop {
        let (back_end, reply) = overdue.next().await;
        back_end.exchange.strays.late.fetch_add(1, Ordering::Relaxed);
        if reply[2] & TRUNCATED == 0 && !is_failure(rcode(&reply).to_int()) {
            return reply;
        }
    }
}

/// An answer of ours.
fn ours(query: &[u8], question_end: usize, edns: Option<&Edns>, says: Says<'_>) -> Vec<u8> {
    let mut out = vec![0; OURS_MAX];
    let id = u16::from_be_bytes([query[0], query[1]]);
    let length = answer(query, question_end, edns, id, says, &mut out);
    out.truncate(length);
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use fastrand::Rng;
    use net::framing::prefix;
    use nix::libc;
    use routing::balance::{Lease, Policy};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A query, with its length before it.
    const A: &[u8] = b"\0\x13\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";

    /// What one client may have under way, and all.
    const PER_CLIENT_MAX: u16 = 2;
    const OUTSTANDING_MAX: usize = 3;

    /// What connections share before these back ends.
    pub(crate) fn connections(back_ends: &[SocketAddr], limits: Limits, onward: Onward) -> Connections {
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
                tap: None,
            }),
            onward,
            client_address: ClientAddress::Hidden,
            clock: Clock::new(),
            timeout: Duration::from_secs(1),
            tries: 2,
            outstanding_max: OUTSTANDING_MAX,
            limits,
            admission: Arc::new(limits.admission()),
            allow: None,
            cache: None,
        }
    }

    #[test]
    fn strangers_are_not_let_in() {
        let mut connections = connections(&[], Limits::default(), Onward::Connections);
        assert!(connections.lets_in([198, 51, 100, 7].into()));
        connections.allow = Some(Acl::new(vec!["192.0.2.0/24".parse().expect("a prefix")]));
        let let_in = [[192, 0, 2, 7], [198, 51, 100, 7], [127, 0, 0, 1]]
            .map(|client| connections.lets_in(client.into()));
        assert_eq!((let_in, connections.desk().counters.strangers.get()), ([true, false, true], 1));
    }

    /// Where nobody listens.
    fn nowhere() -> SocketAddr {
        let listener = net::tcp::bind(([127, 0, 0, 1], 0).into()).expect("loopback binds");
        listener.local_addr().expect("it is bound")
    }

    #[tokio::test]
    async fn who_takes_no_connections_costs_no_tries() {
        let good = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback binds");
        let back_ends = [nowhere(), nowhere(), nowhere(), good.local_addr().expect("it is bound")];
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
        let connections = connections(&back_ends, Limits::default(), Onward::Connections);
        for _ in 0..200 {
            assert_eq!(answered(&connections).await, Rcode::NOERROR);
        }
        assert_eq!(connections.desk().counters.retries_denied.get(), 0);
    }

    /// A question with a hash of 1.
    fn asked() -> Asked {
        Asked { key: 1, pool: 0, cache_key: Vec::new(), question_end: 0, edns: None }
    }

    #[tokio::test]
    async fn what_we_have_run_out_of_is_no_back_ends_fault() {
        let connections = connections(&[nowhere()], Limits::default(), Onward::Connections);
        let told = |cause: i32| {
            let picked =
                connections.pick(&asked(), way(1).client.ip(), Set::EMPTY, false).expect("it is there");
            let ended = connections.ended(&picked, Ok(Err(io::Error::from_raw_os_error(cause))), false);
            let cells = &picked.back_end.cells[0];
            assert_eq!(cells.in_flight(), 0);
            (matches!(ended, Ended::Unsent), cells.refused.get(), connections.desk().counters.no_socket.get())
        };
        let shortages = [libc::EMFILE, libc::ENFILE, libc::EADDRINUSE, libc::ENOBUFS, libc::ENOMEM];
        for (cause, count) in shortages.into_iter().zip(1..) {
            assert_eq!(told(cause), (true, 0, count));
        }
        for (cause, count) in [libc::ECONNREFUSED, libc::EHOSTUNREACH, libc::ETIMEDOUT].into_iter().zip(1..) {
            assert_eq!(told(cause), (false, count, 5));
        }
        // Where no address or port of ours leads, or no way, or nothing may leave, another back end costs no try.
        for (cause, expected) in [
            (libc::EADDRNOTAVAIL, true),
            (libc::ETIMEDOUT, false),
            (libc::ENETUNREACH, true),
            (libc::EHOSTUNREACH, true),
            (libc::EPERM, true),
        ] {
            let picked =
                connections.pick(&asked(), way(1).client.ip(), Set::EMPTY, false).expect("it is there");
            let ended = connections.ended(&picked, Ok(Err(io::Error::from_raw_os_error(cause))), false);
            assert!(matches!(ended, Ended::Failed { was_idle } if was_idle == expected), "{cause}");
        }
        let field = connections.field.load();
        let cells = &field.iter().next().expect("it is there").cells[0];
        assert_eq!((cells.refused.get(), cells.in_flight()), (6, 0), "those that are its own");
        let FrontCounters { no_socket, send_failed, .. } = &*connections.desk().counters;
        assert_eq!([no_socket, send_failed].map(|count| count.get()), [6, 1]);
    }

    #[tokio::test]
    async fn what_is_answered_here_is_counted_once() {
        let connections = connections(&[nowhere()], Limits::default(), Onward::Connections);
        for (kind, expected) in [(1, Rcode::SERVFAIL), (251, Rcode::REFUSED), (252, Rcode::REFUSED)] {
            let mut query = A[2..].to_vec();
            query[16] = kind;
            let told = answer(&connections, &query, way(1)).await.expect("an answer");
            assert_eq!(rcode(&told), expected, "{kind}");
        }
        answer(&connections, &A[2..14], way(1)).await.expect("an answer");
        let desk = connections.desk();
        let FrontCounters { queries, failed, .. } = &*desk.counters;
        let counts = [queries.get(), failed.get(), desk.counters.turned_away()];
        assert_eq!((counts, desk.counters.transfers.get()), ([4, 1, 3], 2));
    }

    /// A client's way to us.
    fn way(last: u8) -> Way {
        Way {
            client: ([192, 0, 2, last], 9).into(),
            local: ([127, 0, 0, 1], 53).into(),
            protocol: Protocol::Tcp,
        }
    }

    async fn answered(connections: &Connections) -> Rcode {
        rcode(&answer(connections, &A[2..], way(3)).await.expect("an answer"))
    }

    async fn answer(connections: &Connections, query: &[u8], way: Way) -> Option<Vec<u8>> {
        let (answers, mut told) = mpsc::channel(2);
        connections.answer(query, way, &answers).await;
        drop(answers);
        let answer = told.recv().await;
        assert_eq!(told.recv().await, None, "it is answered once");
        answer
    }

    fn counts(connections: &Connections) -> [u64; 4] {
        let desk = connections.desk();
        let FrontCounters { full, full_client, shed, failed, .. } = &*desk.counters;
        [full, full_client, shed, failed].map(|count| count.get())
    }

    #[tokio::test]
    async fn queries_beyond_the_limits_are_counted_and_answered_here() {
        let connections = connections(&[nowhere()], Limits::default(), Onward::Connections);
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
    async fn where_no_back_end_is_queries_fail_and_without_credit_they_are_shed() {
        let none = connections(&[], Limits::default(), Onward::Connections);
        assert_eq!(answered(&none).await, Rcode::SERVFAIL);
        assert_eq!(counts(&none), [0, 0, 0, 1]);
        let connections = connections(&[nowhere(), nowhere()], Limits::default(), Onward::Connections);
        // A queue that is full, as an agent has just said.
        let full = Lease { hard_until_ns: u64::MAX, until_ns: u64::MAX, queue_ns: 1, ..Lease::NONE };
        connections.field.load().iter().for_each(|back_end| back_end.tcp.put(full));
        let policy = Policy::from_name("credit").expect("one of the names");
        let mut picker = Picker::new(policy, For::Connections, 0, 1, 7, Rng::with_seed(1));
        // Each has had something in flight for longer than anybody may wait.
        picker.look(&connections.field.load_full(), 0);
        for place in 0..2 {
            picker.sent(place, 0);
        }
        connections.desk().picker = picker;
        assert_eq!(answered(&connections).await, Rcode::SERVFAIL);
        assert_eq!(counts(&connections), [0, 0, 1, 0]);
        let first = Set::EMPTY.with(0);
        assert!(connections.pick(&asked(), way(1).client.ip(), first, false).is_none());
        assert_eq!((counts(&connections), connections.desk().counters.retries.get()), ([0, 0, 1, 1], 0));
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

    /// The first connection to a back end, and its first query.
    async fn asked_of(listener: &tokio::net::TcpListener) -> (tokio::net::TcpStream, Vec<u8>) {
        let (mut stream, _) = listener.accept().await.expect("it comes");
        let mut query = vec![0; usize::from(stream.read_u16().await.expect("a query"))];
        stream.read_exact(&mut query).await.expect("all of it");
        (stream, query)
    }

    #[tokio::test]
    async fn what_is_too_long_for_a_datagram_goes_on_over_a_connection() {
        let head = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\x01\x01a\0\0\x01\0\x01\0\0\x29\x04\xd0\0\0\0\0";
        // An option for local use (RFC 6891 §9).
        let padding = (ASKED_MAX + 1 - head.len() - 6) as u16;
        let options = [&[0xfd, 0xe9], &padding.to_be_bytes()[..], &vec![0; padding.into()]].concat();
        let asked = [&head[..], &(options.len() as u16).to_be_bytes(), &options].concat();
        assert_eq!(asked.len(), ASKED_MAX + 1);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback binds");
        let address = listener.local_addr().expect("it is bound");
        let connections = connections(&[address], Limits::default(), Onward::Datagrams);
        let back_end = async {
            let (mut stream, mut query) = asked_of(&listener).await;
            query[2] |= 0x80;
            stream.write_all(&[&prefix(query.len())[..], &query].concat()).await.expect("it is taken");
        };
        let answered = async { tokio::join!(answer(&connections, &asked, way(1)), back_end).0 };
        let answer = tokio::time::timeout(Duration::from_secs(60), answered).await.expect("it is asked");
        assert_eq!(answer.map(|answer| answer.len()), Some(asked.len()));
        let field = connections.field.load();
        assert_eq!(field.find(address).expect("it is there").cells[0].refused.get(), 0);
    }

    /// What was counted of a back end: answers, time-outs, late answers, and what is in flight.
    fn measured(connections: &Connections, place: usize) -> [u64; 4] {
        let field = connections.field.load();
        let back_end = field.iter().find(|back_end| back_end.place == place).expect("it is there");
        let cells = &back_end.cells[0];
        let late = back_end.exchange.strays.late.load(Ordering::Relaxed);
        [cells.answers(), cells.timeouts.get(), late, cells.in_flight()]
    }

    /// What a back end answers, with its length before it.
    fn replied(query: &[u8], rcode: u8) -> Vec<u8> {
        let mut reply = [&prefix(query.len())[..], query].concat();
        (reply[4], reply[5]) = (reply[4] | 0x80, rcode);
        reply
    }

    // In these the clock runs by itself while everybody waits.
    #[tokio::test(start_paused = true)]
    async fn an_answer_that_comes_late_goes_to_who_still_waits_for_another_one() {
        for (rcode, is_good) in [(0, true), (2, false)] {
            let bind =
                || async { tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback binds") };
            let listeners = [bind().await, bind().await];
            let addresses = listeners.each_ref().map(|one| one.local_addr().expect("it is bound"));
            let connections = Arc::new(connections(&addresses, Limits::default(), Onward::Connections));
            let (answers, mut told) = mpsc::channel(1);
            let asking = connections.clone();
            let asking = tokio::spawn(async move { asking.answer(&A[2..], way(1), &answers).await });
            let (first, (mut slow, query)) = tokio::select! {
                asked = asked_of(&listeners[0]) => (0, asked),
                asked = asked_of(&listeners[1]) => (1, asked),
            };
            let second = 1 - first;
            let (mut quick, query_again) = asked_of(&listeners[second]).await;
            assert_eq!([first, second].map(|at| measured(&connections, at)), [[0, 1, 0, 0], [0, 0, 0, 1]]);
            slow.write_all(&replied(&query, rcode)).await.expect("it is taken");
            if is_good {
                assert_eq!(told.recv().await.expect("an answer")[..2], A[2..4]);
                assert!(connections.seat(way(1).client.ip()).is_some());
                assert_eq!(measured(&connections, second), [0, 0, 0, 1], "it is measured on");
            } else {
                while measured(&connections, first)[2] == 0 {
                    tokio::task::yield_now().await;
                }
                assert!(told.try_recv().is_err(), "another one may know more");
            }
            quick.write_all(&replied(&query_again, 0)).await.expect("it is taken");
            asking.await.expect("no panic");
            assert_eq!(told.recv().await.is_some(), !is_good, "it is answered once");
            assert_eq!([first, second].map(|at| measured(&connections, at)), [[0, 1, 1, 0], [1, 0, 0, 0]]);
            let desk = connections.desk();
            let counts = [&desk.counters.answers, &desk.counters.late_answers].map(|count| count.get());
            assert_eq!((counts, desk.outstanding), ([1, u64::from(is_good)], 0));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_goes_on_as_datagrams_may_be_answered_late_too() {
        let bind = || async { tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("loopback binds") };
        let servers = [bind().await, bind().await];
        let addresses = servers.each_ref().map(|one| one.local_addr().expect("it is bound"));
        let connections = connections(&addresses, Limits::default(), Onward::Datagrams);
        let late = async {
            let mut rooms = [[0; A.len() - 2]; 2];
            let [one, other] = &mut rooms;
            let (one, other) = tokio::join!(servers[0].recv_from(one), servers[1].recv_from(other));
            // The first one, whichever it is, has timed out then; the other one stays silent.
            for (place, from) in [one, other].map(|from| from.expect("it comes").1).into_iter().enumerate() {
                if measured(&connections, place)[1] == 1 {
                    rooms[place][2] |= 0x80;
                    servers[place].send_to(&rooms[place], from).await.expect("loopback sends");
                }
            }
        };
        let (rcode, ()) = tokio::join!(answered(&connections), late);
        assert_eq!((rcode, connections.desk().counters.late_answers.get()), (Rcode::NOERROR, 1));
        let mut measured = [0, 1].map(|place| measured(&connections, place));
        measured.sort_unstable();
        assert_eq!(measured, [[0, 1, 0, 0], [0, 1, 1, 0]]);
    }

    #[tokio::test]
    async fn how_long_a_connection_may_be_idle_is_not_passed_on() {
        const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\x01\x01a\0\0\x01\0\x01\0\0\x29\x04\xd0\0\0\0\0";
        let with = |options: &[u8]| [QUERY, &[0, options.len() as u8], options].concat();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback binds");
        let address = listener.local_addr().expect("it is bound");
        let connections = connections(&[address], Limits::default(), Onward::Connections);
        let back_end = async {
            let (mut stream, query) = asked_of(&listener).await;
            assert_eq!(query[2..], with(&[])[2..], "the client's is not for the back end");
            let mut reply = with(b"\0\x0b\0\x02\0\x64");
            reply[..3].copy_from_slice(&[query[0], query[1], 0x81]);
            stream.write_all(&[&prefix(reply.len())[..], &reply].concat()).await.expect("it is taken");
        };
        let asked = with(b"\0\x0b\0\0");
        let (answer, ()) = tokio::join!(answer(&connections, &asked, way(1)), back_end);
        let mut expected = with(&[]);
        expected[2] = 0x81;
        assert_eq!(answer, Some(expected));
    }
}
