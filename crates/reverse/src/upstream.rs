//! One question to one upstream: a socket of its own, so that port and id are both new each time.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::cache::Why;
use crate::question::{self, Answered};

/// The largest datagram that is taken, in octets.
const DATAGRAM_MAX: usize = 4096;

/// How many datagrams that answer another question one question waits through: so many wrong guesses of an id
/// are an attack, and then no answer of that socket is believed.
pub const FOREIGN_MAX: usize = 16;

/// Ids that nobody can foresee: a keyed hash of a count, the key from the system.
#[derive(Debug)]
pub struct Ids {
    key: RandomState,
    next: AtomicU64,
}

impl Ids {
    /// Ids of a new key.
    #[expect(clippy::new_without_default, reason = "a default value that asks the system would surprise")]
    pub fn new() -> Ids {
        Ids { key: RandomState::new(), next: AtomicU64::new(0) }
    }

    /// The next id.
    pub fn next(&self) -> u16 {
        let mut hasher = self.key.build_hasher();
        hasher.write_u64(self.next.fetch_add(1, Ordering::Relaxed));
        hasher.finish() as u16
    }
}

/// Asks over UDP and, where the answer is cut, over TCP; `foreign` counts answers to questions never asked.
///
/// Never [`Answered::Truncated`] or [`Answered::Foreign`].
pub async fn ask(
    upstream: SocketAddr,
    address: IpAddr,
    id: u16,
    wait: Duration,
    foreign: &AtomicU64,
) -> Answered {
    let asked = async {
        match over_udp(upstream, address, id, foreign).await? {
            Answered::Truncated => over_tcp(upstream, address, id).await,
            answered => Ok(answered),
        }
    };
    match timeout(wait, asked).await {
        Ok(Ok(Answered::Truncated | Answered::Foreign)) => Answered::Failed(Why::Malformed),
        Ok(Ok(answered)) => answered,
        // Nobody is there, or nobody answers: for whoever asks it is the same.
        Ok(Err(_)) | Err(_) => Answered::Failed(Why::Timeout),
    }
}

async fn over_udp(
    upstream: SocketAddr,
    address: IpAddr,
    id: u16,
    foreign: &AtomicU64,
) -> std::io::Result<Answered> {
    let any: IpAddr = match upstream {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    // The kernel drops what does not come from there.
    socket.connect(upstream).await?;
    socket.send(&question::question(address, id)).await?;
    let mut octets = vec![0; DATAGRAM_MAX];
    for _ in 0..FOREIGN_MAX {
        let length = socket.recv(&mut octets).await?;
        match question::read(&octets[..length], address, id) {
            Answered::Foreign => _ = foreign.fetch_add(1, Ordering::Relaxed),
            answered => return Ok(answered),
        }
    }
    Ok(Answered::Failed(Why::Malformed))
}

async fn over_tcp(upstream: SocketAddr, address: IpAddr, id: u16) -> std::io::Result<Answered> {
    let mut stream = TcpStream::connect(upstream).await?;
    let asked = question::question(address, id);
    stream.write_all(&[&net::framing::prefix(asked.len())[..], &asked].concat()).await?;
    let mut octets = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut octets).await?;
    Ok(question::read(&octets, address, id))
}
