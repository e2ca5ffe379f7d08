//! One query to one back end on the connections' side: over a pooled connection, or as a datagram.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use net::framing::{MESSAGE_MAX, prefix};
use net::shutdown::Shutdown;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, MissedTickBehavior};

use crate::field::BackEnd;
use crate::pending::answers;

/// Connections to one back end at a time (RFC 7766 §6.2.2), and so the queries that it has over connections: BIND serves 150
/// clients at a time if it is not told otherwise, some of them others. Further queries wait until one is free, which is
/// counted.
pub const OPEN_MAX: usize = 128;

/// Of them such as are new: BIND has room for ten that it has not accepted yet. One more than that is tried again by the
/// kernel only a second later.
const NEW_MAX: usize = 8;

/// How long a connection is new, where no answer comes over it before: what a server takes to accept it.
const NEW_WAIT: Duration = Duration::from_millis(10);

/// Connections of one back end that wait for their next query.
const IDLE_MAX: usize = 64;

/// How long they wait: less than the ten seconds after which most servers close them.
const IDLE_WAIT: Duration = Duration::from_secs(5);

/// Foreign messages that are passed over before a back end counts as mad.
const FOREIGN_MAX: usize = 16;

/// The room for a datagram.
const DATAGRAM_MAX: usize = 4096;

/// TC, in the third octet of a header (RFC 1035 §4.1.1).
pub const TRUNCATED: u8 = 0x02;

/// Connections to back ends that are kept for their next query, a query at a time each, so that a slow answer holds
/// nobody else up.
#[derive(Debug, Default)]
pub struct Pool {
    servers: Mutex<HashMap<SocketAddr, Arc<Server>>>,
}

/// The connections of one back end.
#[derive(Debug)]
struct Server {
    /// One for each query that has a connection, or is about to.
    places: Semaphore,
    /// One for each connection that is new.
    turns: Semaphore,
    /// Those that wait for their next query, and since when.
    idle: Mutex<Vec<(TcpStream, Instant)>>,
    /// Told when one of them has come.
    returned: Notify,
}

impl Pool {
    /// Asks over a connection, as soon as there may be one. `query` has the id with which it is asked. A connection that
    /// begins with a preface is its client's alone, and is closed.
    ///
    /// # Errors
    /// What the system says, or that the connection ended or its messages were others.
    pub async fn ask(
        &self,
        back_end: &BackEnd,
        preface: &[u8],
        query: &[u8],
        question_end: usize,
    ) -> io::Result<Vec<u8>> {
        let (server, is_shared) = (self.server(back_end.address), preface.is_empty());
        if server.places.available_permits() == 0 {
            back_end.crowded.fetch_add(1, Ordering::Relaxed);
        }
        let _place = server.places.acquire().await.map_err(io::Error::other)?;
        if is_shared && let Some(mut stream) = server.take() {
            // The server may have closed it meanwhile: then a new one is tried.
            if let Ok(reply) = converse(&mut stream, query, question_end).await {
                server.keep(stream);
                return Ok(reply);
            }
        }
        let turn = loop {
            tokio::select! {
                biased;
                turn = server.turns.acquire() => break turn.map_err(io::Error::other)?,
                () = server.returned.notified(), if is_shared => {
                    let Some(mut stream) = server.take() else { continue };
                    let reply = converse(&mut stream, query, question_end).await?;
                    server.keep(stream);
                    return Ok(reply);
                }
            }
        };
        back_end.connections.fetch_add(1, Ordering::Relaxed);
        let mut stream = TcpStream::connect(back_end.address).await?;
        stream.set_nodelay(true)?;
        stream.write_all(preface).await?;
        let reply = {
            let mut reply = pin!(converse(&mut stream, query, question_end));
            tokio::select! {
                biased;
                reply = &mut reply => reply?,
                () = tokio::time::sleep(NEW_WAIT) => {
                    drop(turn);
                    reply.await?
                }
            }
        };
        if is_shared {
            server.keep(stream);
        }
        Ok(reply)
    }

    /// Closes connections that have waited for so long, also those of back ends that are gone, until the shutdown begins.
    pub async fn tidy(&self, shutdown: Shutdown) {
        let mut turns = tokio::time::interval(IDLE_WAIT);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = shutdown.wait() => return,
                _ = turns.tick() => self.forget(),
            }
        }
    }

    fn forget(&self) {
        self.servers().retain(|_, server| {
            let mut idle = server.idle();
            idle.retain(is_fresh);
            // Who asks there now has it, too.
            !idle.is_empty() || Arc::strong_count(server) > 1
        });
    }

    fn server(&self, address: SocketAddr) -> Arc<Server> {
        let new = || Server {
            places: Semaphore::new(OPEN_MAX),
            turns: Semaphore::new(NEW_MAX),
            idle: Mutex::default(),
            returned: Notify::new(),
        };
        self.servers().entry(address).or_insert_with(|| Arc::new(new())).clone()
    }

    fn servers(&self) -> MutexGuard<'_, HashMap<SocketAddr, Arc<Server>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    fn take(&self) -> Option<TcpStream> {
        let mut idle = self.idle();
        // The last one is the freshest.
        let last = idle.pop().filter(is_fresh);
        if last.is_none() {
            idle.clear();
        }
        last.map(|(stream, _)| stream)
    }

    fn keep(&self, stream: TcpStream) {
        let mut idle = self.idle();
        idle.retain(is_fresh);
        if idle.len() < IDLE_MAX {
            idle.push((stream, Instant::now()));
            self.returned.notify_one();
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(TcpStream, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_fresh((_, since): &(TcpStream, Instant)) -> bool {
    since.elapsed() < IDLE_WAIT
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

/// Asks as a datagram, from a socket and a port for this query alone; `preface` stands before it. An answer that may be
/// longer than there is room for says that it is truncated.
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
    net::client::may_be_cut(&socket, server.is_ipv4())?;
    socket.connect(server).await?;
    socket.send(&[preface, query].concat()).await?;
    let mut reply = vec![0; DATAGRAM_MAX];
    loop {
        let length = socket.recv(&mut reply).await?;
        let told = &reply[..length];
        if told.first_chunk::<2>() == query.first_chunk() && answers(told, query, question_end) {
            reply.truncate(length);
            if length == DATAGRAM_MAX {
                reply[2] |= TRUNCATED;
            }
            return Ok(reply);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";

    fn reply() -> Vec<u8> {
        let mut reply = QUERY.to_vec();
        reply[2] |= 0x80;
        reply
    }

    /// Answers what comes over a connection, as long as it comes.
    async fn serve(mut stream: TcpStream) {
        let mut query = [0; 2 + QUERY.len()];
        while stream.read_exact(&mut query).await.is_ok() {
            let frame = [&prefix(QUERY.len())[..], &reply()].concat();
            if stream.write_all(&frame).await.is_err() {
                return;
            }
        }
    }

    #[tokio::test]
    async fn queries_share_so_many_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback binds");
        let address = listener.local_addr().expect("it is bound");
        let (pool, back_end) = (Arc::new(Pool::default()), Arc::new(BackEnd::new(0, address, 1, 1)));
        let asked: Vec<_> = (0..2 * OPEN_MAX)
            .map(|_| {
                let (pool, back_end) = (pool.clone(), back_end.clone());
                tokio::spawn(async move { pool.ask(&back_end, &[], QUERY, QUERY.len()).await })
            })
            .collect();
        let mut accepted = Vec::new();
        while accepted.len() < OPEN_MAX {
            accepted.push(listener.accept().await.expect("one comes").0);
        }
        // Nobody is answered yet, and all others wait.
        assert_eq!(back_end.crowded.load(Ordering::Relaxed), OPEN_MAX as u64);
        assert_eq!(back_end.connections.load(Ordering::Relaxed), OPEN_MAX as u64);
        accepted.into_iter().for_each(|stream| drop(tokio::spawn(serve(stream))));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
        for asked in asked {
            assert_eq!(asked.await.expect("no panic").expect("an answer"), reply());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_wait_for_too_long_are_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback binds");
        let address = listener.local_addr().expect("it is bound");
        let pool = Pool::default();
        let stream = TcpStream::connect(address).await.expect("it listens");
        let (mut served, _) = listener.accept().await.expect("it is there");
        pool.server(address).keep(stream);
        pool.forget();
        assert_eq!(pool.servers().len(), 1);
        tokio::time::advance(IDLE_WAIT).await;
        pool.forget();
        assert!(pool.servers().is_empty());
        assert_eq!(served.read(&mut [0]).await.expect("it has ended"), 0);
    }

    #[tokio::test]
    async fn a_datagram_that_may_be_cut_says_so() {
        let server = UdpSocket::bind("127.0.0.1:0").await.expect("loopback binds");
        let address = server.local_addr().expect("it is bound");
        for (length, is_truncated) in
            [(DATAGRAM_MAX - 1, false), (DATAGRAM_MAX, true), (DATAGRAM_MAX + 1, true)]
        {
            let answers = async {
                let (_, from) = server.recv_from(&mut [0; 64]).await.expect("it comes");
                let mut reply = reply();
                reply.resize(length, 0);
                server.send_to(&reply, from).await.expect("loopback sends")
            };
            let (told, _) = tokio::join!(ask_by_datagram(address, &[], QUERY, QUERY.len()), answers);
            let told = told.expect("an answer");
            assert_eq!(told[2] & TRUNCATED != 0, is_truncated, "{length}");
            assert_eq!(told.len(), length.min(DATAGRAM_MAX));
        }
    }
}
