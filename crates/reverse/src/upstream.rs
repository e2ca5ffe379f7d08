//! One question to one upstream: a socket of its own, so that port and id are both new each time.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use net::udp::DATAGRAM_MAX;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::backend::UpstreamCounts;
use crate::cache::Why;
use crate::question::{self, Answered, Ask, NAMES_MAX};

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

    /// An id that nobody can foresee; the same one may come again.
    pub fn next(&self) -> u16 {
        let mut hasher = self.key.build_hasher();
        hasher.write_u64(self.next.fetch_add(1, Ordering::Relaxed));
        hasher.finish() as u16
    }
}

/// Asks over UDP and, where the answer is cut, over TCP; `counts` that it was asked, what came that was no answer to this, and
/// the rcodes.
///
/// Never [`Answered::Truncated`] or [`Answered::Foreign`].
///
/// # Errors
/// What this machine lacks to ask anybody.
pub async fn ask(
    upstream: SocketAddr,
    address: IpAddr,
    ask: &Ask,
    id: u16,
    wait: Duration,
    counts: &UpstreamCounts,
) -> io::Result<Answered> {
    let asked = async {
        match over_udp(upstream, address, ask, id, counts).await? {
            Answered::Truncated => {
                counts.cut.fetch_add(1, Ordering::Relaxed);
                over_tcp(upstream, address, ask, id, counts).await
            }
            answered => Ok(answered),
        }
    };
    match timeout(wait, asked).await {
        Ok(Ok(Answered::Truncated | Answered::Foreign)) => Ok(Answered::Failed(Why::Malformed)),
        Ok(Ok(answered)) => Ok(answered),
        Ok(Err(cause)) if net::client::is_shortage(&cause) => Err(cause),
        // Nobody is there, or nobody answers: for whoever asks it is the same.
        Ok(Err(_)) | Err(_) => Ok(Answered::Failed(Why::Timeout)),
    }
}

async fn over_udp(
    upstream: SocketAddr,
    address: IpAddr,
    ask: &Ask,
    id: u16,
    counts: &UpstreamCounts,
) -> io::Result<Answered> {
    // The kernel drops what does not come from there.
    let socket = UdpSocket::from_std(net::client::ask(upstream, None)?)?;
    socket.send(&question::question(address, ask, id)).await?;
    counts.questions.fetch_add(1, Ordering::Relaxed);
    let mut octets = vec![0; DATAGRAM_MAX];
    for _ in 0..FOREIGN_MAX {
        let length = socket.recv(&mut octets).await?;
        match question::read(&octets[..length], address, ask, id) {
            Answered::Foreign => _ = counts.foreign.fetch_add(1, Ordering::Relaxed),
            answered => {
                note_header(&octets, counts);
                return Ok(answered);
            }
        }
    }
    Ok(Answered::Failed(Why::Malformed))
}

async fn over_tcp(
    upstream: SocketAddr,
    address: IpAddr,
    ask: &Ask,
    id: u16,
    counts: &UpstreamCounts,
) -> io::Result<Answered> {
    let mut stream = TcpStream::connect(upstream).await?;
    let asked = question::question(address, ask, id);
    stream.write_all(&[&net::framing::prefix(asked.len())[..], &asked].concat()).await?;
    let mut octets = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut octets).await?;
    let answered = question::read(&octets, address, ask, id);
    match answered {
        Answered::Foreign => _ = counts.foreign.fetch_add(1, Ordering::Relaxed),
        _ => note_header(&octets, counts),
    }
    Ok(answered)
}

/// Counts the rcode of a message that was read, and whether it has more records than are looked at: the lower half of
/// its fourth octet, and its fourth word (RFC 1035 §4.1.1).
fn note_header(octets: &[u8], counts: &UpstreamCounts) {
    let Some([_, _, _, codes, _, _, high, low, ..]) = octets.get(..12) else { return };
    counts.rcodes[usize::from(codes & 15)].fetch_add(1, Ordering::Relaxed);
    if usize::from(u16::from_be_bytes([*high, *low])) > NAMES_MAX {
        counts.many.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_what_was_sent_counts_as_asked() {
        let gone = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        // The system refuses a socket to this one.
        let nobody = "255.255.255.255:53".parse().unwrap();
        for (upstream, questions) in [(gone, 1), (nobody, 0)] {
            let counts = UpstreamCounts::default();
            let wait = Duration::from_secs(10);
            let asked = ask(upstream, "192.0.2.1".parse().unwrap(), &Ask::Name, 7, wait, &counts).await;
            assert!(matches!(asked, Ok(Answered::Failed(Why::Timeout))), "{upstream}: {asked:?}");
            assert_eq!(counts.questions.load(Ordering::Relaxed), questions, "{upstream}");
        }
    }
}
