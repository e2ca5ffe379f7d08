//! DNS over TCP for clients: many connections on tokio, each with several queries under way, answered as answers come
//! (RFC 7766 §7).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use dns::query::Refusal;
use dns::relay::{Added, add_subnet, take_out_subnet};
use dns::writer::header_only;
use dns::{Folded, Query, Rcode, Rtype};
use net::admission::Admission;
use net::clock::Clock;
use net::framing::{Assembler, prefix};
use net::shutdown::Shutdown;
use net::tcp::{ACCEPT_PAUSE, Limits};
use routing::balance::Set;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::client_address::{ClientAddress, Transport};
use crate::counters::FrontCounters;
use crate::exchange::{Pool, ask_by_datagram};
use crate::field::{BackEnd, Field};
use crate::message::{Says, answer};
use crate::pending::rcode;
use crate::picker::Picker;

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

/// What all connections share.
#[derive(Debug)]
pub struct Connections {
    /// The back ends.
    pub field: Arc<ArcSwap<Field>>,
    /// What is picked by, and where it is counted: both have one writer, who holds the lock.
    pub desk: Mutex<Desk>,
    /// How queries go on.
    pub onward: Onward,
    /// How back ends learn whose they are.
    pub client_address: ClientAddress,
    /// Connections to back ends.
    pub pool: Pool,
    /// The time.
    pub clock: Clock,
    /// How long a back end may take.
    pub timeout: Duration,
    /// To how many back ends a query may go.
    pub tries: usize,
    /// What clients may hold.
    pub limits: Limits,
    /// Who has a place.
    pub admission: Arc<Admission>,
}

/// What is picked by, and where it is counted.
#[derive(Debug)]
pub struct Desk {
    /// The one.
    pub picker: Picker,
    /// The other.
    pub counters: Arc<FrontCounters>,
}

/// Who asks, and at which address.
#[derive(Clone, Copy, Debug)]
struct Way {
    client: SocketAddr,
    local: SocketAddr,
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
                    connections.spawn(async move {
                        // What goes wrong on a connection is its client's to know.
                        let _ = this.converse(stream, client, shutdown).await;
                        drop(place);
                    });
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
        shutdown: Shutdown,
    ) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let way = Way { client, local: stream.local_addr()? };
        let (mut reads, mut writes) = stream.into_split();
        let (answered, mut answers) = mpsc::channel::<Vec<u8>>(PIPELINED_MAX);
        let message_wait = self.limits.message;
        let writer = tokio::spawn(async move {
            while let Some(answer) = answers.recv().await {
                let frame = [&prefix(answer.len())[..], &answer].concat();
                match tokio::time::timeout(message_wait, writes.write_all(&frame)).await {
                    Ok(Ok(())) => {}
                    _ => return,
                }
            }
        });
        let places = Arc::new(Semaphore::new(PIPELINED_MAX));
        let (mut assembler, mut piece) = (Assembler::default(), vec![0; PIECE]);
        let mut under_way = JoinSet::new();
        let begun = tokio::time::Instant::now();
        loop {
            while under_way.try_join_next().is_some() {}
            let wait = if assembler.is_partial() { self.limits.message } else { self.limits.idle };
            let read = tokio::select! {
                biased;
                () = shutdown.wait() => break,
                read = tokio::time::timeout(wait, reads.read(&mut piece)) => read,
            };
            let length = match read {
                Ok(Ok(length)) if length > 0 && begun.elapsed() < self.limits.lifetime => length,
                // Who has queries under way is not idle.
                Err(_) if places.available_permits() < PIPELINED_MAX && !assembler.is_partial() => continue,
                _ => break,
            };
            let mut rest = &piece[..length];
            while let Some(message) = assembler.next(&mut rest) {
                let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
                let (this, query, answered) = (self.clone(), message.to_vec(), answered.clone());
                under_way.spawn(async move {
                    if let Some(answer) = this.answer(&query, way).await {
                        // The client may be gone.
                        let _ = answered.send(answer).await;
                    }
                    drop(place);
                });
            }
        }
        while under_way.join_next().await.is_some() {}
        drop(answered);
        let _ = writer.await;
        Ok(())
    }

    /// Answers one query; `None` where it gets no answer.
    async fn answer(&self, query: &[u8], way: Way) -> Option<Vec<u8>> {
        let mut name = Folded::root();
        let (key, question_end, edns) = {
            let desk = self.desk();
            desk.counters.queries.add(1);
            match Query::read(query, &mut name) {
                // What has many messages for an answer is for whom a server knows, and it does not know us.
                Ok(asked) if matches!(asked.rtype, Rtype::AXFR | Rtype::IXFR) => {
                    return Some(ours(query, asked.head.len(), Says::Rcode(Rcode::REFUSED)));
                }
                Ok(asked) => (desk.picker.hash_question(&asked), asked.head.len(), asked.edns),
                Err(Refusal::Silence) => {
                    desk.counters.no_query.add(1);
                    return None;
                }
                Err(refusal) => {
                    desk.counters.malformed.add(1);
                    let rcode = if let Refusal::Rcode(rcode) = refusal { rcode } else { Rcode::FORMERR };
                    let mut out = [0; 12];
                    return header_only(query, rcode, &mut out).map(|length| out[..length].to_vec());
                }
            }
        };
        let (mut asked, mut added) = (query.to_vec(), Added::Nothing);
        if let Some(subnet) = self.client_address.subnet(way.client.ip()) {
            added = add_subnet(&mut asked, question_end, edns.as_ref(), &subnet);
        }
        let mut tried = Set::EMPTY;
        while tried.len() < self.tries {
            let Some(picked) = self.pick(key, way.client.ip(), tried) else { break };
            tried = tried.with(picked.back_end.place);
            asked[..2].copy_from_slice(&picked.id.to_be_bytes());
            let reply =
                tokio::time::timeout(self.timeout, self.forward(&picked.back_end, &asked, question_end, way));
            let reply = reply.await;
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
                    reply.truncate(length);
                    return Some(reply);
                }
                failed => {
                    if let Some(cells) = desk.picker.cells(place) {
                        if failed.is_err() { cells.timeouts.add(1) } else { cells.refused.add(1) }
                    }
                    desk.picker.failed(place, load, now);
                }
            }
        }
        self.desk().counters.failed.add(1);
        Some(ours(query, question_end, Says::Rcode(Rcode::SERVFAIL)))
    }

    fn pick(&self, key: u64, client: IpAddr, tried: Set) -> Option<Picked> {
        let now = self.now();
        let mut desk = self.desk();
        let Desk { picker, counters } = &mut *desk;
        picker.look(&self.field.load_full(), now);
        if !tried.is_empty() {
            if !picker.has_others(tried) {
                return None;
            }
            if !picker.may_retry() {
                counters.retries_denied.add(1);
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
        back_end: &BackEnd,
        query: &[u8],
        question_end: usize,
        way: Way,
    ) -> io::Result<Vec<u8>> {
        let mut preface = Vec::new();
        if self.onward == Onward::Datagrams {
            self.client_address.preface(Transport::Datagram, way.client, way.local, &mut preface);
            let reply = ask_by_datagram(back_end.address, &preface, query, question_end).await?;
            let is_truncated = reply[2] & 0x02 != 0;
            if !is_truncated {
                return Ok(reply);
            }
        }
        preface.clear();
        self.client_address.preface(Transport::Stream, way.client, way.local, &mut preface);
        self.pool.ask(back_end.address, &preface, query, question_end, &back_end.connections).await
    }

    fn now(&self) -> u64 {
        u64::try_from(self.clock.now().monotonic.as_nanos()).unwrap_or(u64::MAX)
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer of ours.
fn ours(query: &[u8], question_end: usize, says: Says) -> Vec<u8> {
    let mut out = vec![0; question_end];
    let id = u16::from_be_bytes([query[0], query[1]]);
    answer(query, question_end, id, says, &mut out);
    out
}
