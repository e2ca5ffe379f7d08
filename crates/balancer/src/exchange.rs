//! One query to one back end on the connections' side: over a pooled connection, or as a datagram.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use net::framing::{MESSAGE_MAX, prefix};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::Instant;

use crate::pending::answers;

/// Connections of one back end that wait for their next query.
const IDLE_MAX: usize = 64;

/// How long they wait: less than the ten seconds after which most servers close them.
const IDLE_WAIT: Duration = Duration::from_secs(5);

/// Foreign messages that are passed over before a back end counts as mad.
const FOREIGN_MAX: usize = 16;

/// The room for a datagram.
const DATAGRAM_MAX: usize = 4096;

/// Connections to back ends that are kept for their next query, a query at a time each, so that a slow answer holds
/// nobody else up.
#[derive(Debug, Default)]
pub struct Pool {
    idle: Mutex<HashMap<SocketAddr, Vec<(TcpStream, Instant)>>>,
}

impl Pool {
    /// Asks over a connection. `query` has the id with which it is asked; `opened` counts connections. One that begins
    /// with a preface is its client's alone, and is closed.
    ///
    /// # Errors
    /// What the system says, or that the connection ended or its messages were others.
    pub async fn ask(
        &self,
        server: SocketAddr,
        preface: &[u8],
        query: &[u8],
        question_end: usize,
        opened: &AtomicU64,
    ) -> io::Result<Vec<u8>> {
        if let Some(mut stream) = self.take(server).filter(|_| preface.is_empty()) {
            // The server may have closed it meanwhile: then a new one is tried.
            if let Ok(reply) = converse(&mut stream, query, question_end).await {
                self.keep(server, stream);
                return Ok(reply);
            }
        }
        opened.fetch_add(1, Ordering::Relaxed);
        let mut stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        stream.write_all(preface).await?;
        let reply = converse(&mut stream, query, question_end).await?;
        if preface.is_empty() {
            self.keep(server, stream);
        }
        Ok(reply)
    }

    fn take(&self, server: SocketAddr) -> Option<TcpStream> {
        let mut idle = self.idle();
        let streams = idle.get_mut(&server)?;
        while let Some((stream, since)) = streams.pop() {
            if since.elapsed() < IDLE_WAIT {
                return Some(stream);
            }
        }
        idle.remove(&server);
        None
    }

    fn keep(&self, server: SocketAddr, stream: TcpStream) {
        let mut idle = self.idle();
        let streams = idle.entry(server).or_default();
        streams.retain(|(_, since)| since.elapsed() < IDLE_WAIT);
        if streams.len() < IDLE_MAX {
            streams.push((stream, Instant::now()));
        }
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<SocketAddr, Vec<(TcpStream, Instant)>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn converse(stream: &mut TcpStream, query: &[u8], question_end: usize) -> io::Result<Vec<u8>> {
    let length = query.len().min(MESSAGE_MAX);
    stream.write_all(&[&prefix(length), &query[..length]].concat()).await?;
    for _ in 0..FOREIGN_MAX {
        let mut length = [0; 2];
        stream.read_exact(&mut length).await?;
        let mut reply = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut reply).await?;
        if reply.first_chunk::<2>() == query.first_chunk() && answers(&reply, query, question_end) {
            return Ok(reply);
        }
    }
    Err(io::Error::other("the server answers what was not asked"))
}

/// Asks as a datagram, from a socket and a port for this query alone; `preface` stands before it.
///
/// # Errors
/// What the system says: also that nobody listens.
pub async fn ask_by_datagram(
    server: SocketAddr,
    preface: &[u8],
    query: &[u8],
    question_end: usize,
) -> io::Result<Vec<u8>> {
    let any = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    socket.connect(server).await?;
    socket.send(&[preface, query].concat()).await?;
    let mut reply = vec![0; DATAGRAM_MAX];
    loop {
        let length = socket.recv(&mut reply).await?;
        let told = &reply[..length];
        if told.first_chunk::<2>() == query.first_chunk() && answers(told, query, question_end) {
            reply.truncate(length);
            return Ok(reply);
        }
    }
}
