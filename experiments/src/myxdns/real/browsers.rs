//! Clusters of browsers, each behind a caching resolver of its own, on one runtime.
//!
//! The resolver is ours: an address and when it expires, by the TTL of the answer. As many programs that each keep one
//! name would take more of the machine than all that is measured.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use fastrand::Rng;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::stage::World;
use super::{NAME, Pace};
use crate::myxdns::world::{BACKLOG_MAX, CLUSTERS, REQUESTS, TTL};
use crate::question;

/// How long a resolver waits for an answer, and how often it asks before it goes on with what it knew.
const ANSWER_MAX: Duration = Duration::from_secs(1);
const TRIES: usize = 3;

/// The largest answer over UDP that is not asked for with EDNS, in octets (RFC 1035 §4.2.1).
const MESSAGE_MAX: usize = 512;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: www.example.com\r\nConnection: close\r\n\r\n";

/// What the clusters of a world did and saw.
#[derive(Debug)]
pub(super) struct Seen {
    /// Requests to each server, by the second of the paper in which they were sent.
    requests: Vec<[AtomicU32; 2]>,
    /// Questions to the name server, and those that nobody answered.
    pub(super) questions: AtomicU32,
    pub(super) unanswered: AtomicU32,
    /// How long the requests took that were answered in time, in milliseconds.
    times: Mutex<Vec<f64>>,
}

/// A cluster of browsers.
struct Cluster {
    resolver: Resolver,
    requests: Rng,
}

/// A caching resolver of one name.
struct Resolver {
    socket: UdpSocket,
    id: u16,
    sites: [SocketAddr; 2],
    site: usize,
    expires: Instant,
}

impl Seen {
    /// Nothing yet, of so many seconds.
    pub(super) fn nothing(seconds: usize) -> Seen {
        Seen {
            requests: (0..seconds).map(|_| Default::default()).collect(),
            questions: AtomicU32::new(0),
            unanswered: AtomicU32::new(0),
            times: Mutex::default(),
        }
    }

    /// Requests to each server in a second.
    pub(super) fn requests(&self, second: usize) -> [u32; 2] {
        self.requests[second].each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// How long the requests took that were answered in time, in milliseconds, sorted.
    pub(super) fn times(&self) -> Vec<f64> {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner).clone();
        times.sort_by(f64::total_cmp);
        times
    }
}

/// Starts the clusters of a world: all worlds with one seed have clients that want the same at the same time.
///
/// # Errors
/// Where a resolver has no address.
pub(super) async fn start(
    world: &World,
    pace: Pace,
    begin: Instant,
    seed: u64,
    seen: &Arc<Seen>,
) -> Result<JoinSet<Result<()>>> {
    let mut rng = Rng::with_seed(seed);
    let mut all = JoinSet::new();
    for number in 0..CLUSTERS {
        let socket = UdpSocket::bind((world.resolver(number), 0)).await.context("a resolver's address")?;
        socket.connect(world.dns()).await.context("the name server")?;
        let resolver = Resolver {
            socket,
            id: rng.u16(..),
            sites: world.sites(),
            // They are there already, and their answers expire at different times ("staggered").
            site: number % 2,
            expires: begin + pace.second().mul_f64(rng.f64() * TTL as f64),
        };
        let cluster = Cluster { resolver, requests: rng.fork() };
        all.spawn(cluster.run(pace, begin, seen.clone()));
    }
    Ok(all)
}

impl Cluster {
    async fn run(mut self, pace: Pace, begin: Instant, seen: Arc<Seen>) -> Result<()> {
        // Bounded: each ends when its patience does.
        let mut requests = JoinSet::new();
        for second in 0..pace.seconds {
            let at = begin + pace.second() * second as u32;
            sleep_until(at).await;
            self.resolver.refresh(at, &seen).await?;
            let site = self.resolver.site;
            for _ in 0..self.requests.u32(REQUESTS.0..=REQUESTS.1) {
                let due = at + pace.second().mul_f64(self.requests.f64());
                seen.requests[second][site].fetch_add(1, Ordering::Relaxed);
                requests.spawn(request(self.resolver.sites[site], due, pace, seen.clone()));
            }
            while requests.try_join_next().is_some() {}
        }
        while requests.join_next().await.is_some() {}
        Ok(())
    }
}

impl Resolver {
    /// Asks again where the answer has expired.
    async fn refresh(&mut self, now: Instant, seen: &Seen) -> Result<()> {
        if now < self.expires {
            return Ok(());
        }
        for _ in 0..TRIES {
            seen.questions.fetch_add(1, Ordering::Relaxed);
            if let Ok(Ok((address, ttl))) = timeout(ANSWER_MAX, self.ask()).await {
                let site = self.sites.iter().position(|site| site.ip() == address);
                self.site = site.with_context(|| format!("{address} is no server's"))?;
                self.expires = now + Duration::from_secs(ttl.into());
                return Ok(());
            }
            seen.unanswered.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn ask(&mut self) -> io::Result<(Ipv4Addr, u32)> {
        self.id = self.id.wrapping_add(1);
        let query = question::query(self.id, NAME);
        self.socket.send(&query).await?;
        let mut answer = [0; MESSAGE_MAX];
        loop {
            let length = self.socket.recv(&mut answer).await?;
            // What else comes is the answer to an earlier question.
            if let Some(first) = question::first(&query, &answer[..length]) {
                return Ok(first);
            }
        }
    }
}

/// Makes a request when it is due.
async fn request(site: SocketAddr, due: Instant, pace: Pace, seen: Arc<Seen>) {
    sleep_until(due).await;
    let patience = pace.second().mul_f64(BACKLOG_MAX);
    if matches!(timeout(patience, get(site)).await, Ok(Ok(true))) {
        let took = due.elapsed().as_secs_f64() * 1e3;
        seen.times.lock().unwrap_or_else(PoisonError::into_inner).push(took);
    }
}

/// Whether a site answers with its page.
async fn get(site: SocketAddr) -> io::Result<bool> {
    let mut stream = TcpStream::connect(site).await?;
    stream.write_all(REQUEST).await?;
    let mut answer = Vec::new();
    stream.take(MESSAGE_MAX as u64).read_to_end(&mut answer).await?;
    Ok(answer.starts_with(b"HTTP/1.1 200 "))
}
