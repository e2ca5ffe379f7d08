//! Queries of a worker to back ends over TLS. A worker is a thread without a runtime, and such connections are shared by all
//! threads: tasks carry its queries there, and what comes back waits here until the worker takes it.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dns::relay::{question_end, take_out_of_one_hop};
use dns::{Folded, Query};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::exchange::{ENCRYPTED_MAX, Exchange};
use crate::message::{OURS_MAX, Says, answer, datagram_max};
use crate::told::Told;

/// Queries of one worker to one back end that wait for a task to take them: as many as one takes at once.
const WAITING_MAX: usize = ENCRYPTED_MAX;

/// Octets of wake-ups that are read at once.
const WAKES: usize = 64;

/// Carries the queries of one worker.
#[derive(Debug)]
pub struct Relay {
    runtime: Handle,
    patience: Duration,
    returned: Arc<Returned>,
    /// Can be read when something has come back.
    woken: UnixStream,
}

/// A worker's line to one back end; when it is dropped, what is under way is given up.
#[derive(Debug)]
pub struct Relayed(mpsc::Sender<Vec<u8>>);

/// What became of a query.
#[derive(Debug)]
pub struct Carried {
    /// The line that it went over.
    pub line: u16,
    /// The id that it had.
    pub id: u16,
    /// The answer, with this id and no longer than its client takes; or why there is none.
    pub reply: io::Result<Vec<u8>>,
}

/// What came back and nobody has taken: each of it was waited for, so that it is bounded as those are that wait.
#[derive(Debug)]
struct Returned {
    all: Mutex<Vec<Carried>>,
    wakes: UnixStream,
}

impl Relay {
    /// Has tasks of this runtime carry queries. An answer may take so long, also one that is late.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(runtime: Handle, patience: Duration) -> io::Result<Relay> {
        let (woken, wakes) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        wakes.set_nonblocking(true)?;
        Ok(Relay { runtime, patience, returned: Arc::new(Returned { all: Mutex::default(), wakes }), woken })
    }

    /// What can be read when something has come back.
    pub fn woken(&self) -> &UnixStream {
        &self.woken
    }

    /// Opens the line of this number to a back end.
    pub fn open(&self, line: u16, exchange: Arc<Exchange>) -> Relayed {
        let (asks, asked) = mpsc::channel(WAITING_MAX);
        self.runtime.spawn(carry(line, exchange, asked, self.returned.clone(), self.patience));
        Relayed(asks)
    }

    /// Takes what has come back.
    pub fn take(&self) -> Vec<Carried> {
        // Before the rest, so that what comes meanwhile wakes again.
        while (&self.woken).read(&mut [0; WAKES]).is_ok_and(|octets| octets == WAKES) {}
        std::mem::take(&mut *self.returned.all.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Relayed {
    /// Has a query carried; false where as many wait as may.
    #[must_use]
    pub fn push(&self, query: &[u8]) -> bool {
        self.0.try_send(query.to_vec()).is_ok()
    }
}

impl Returned {
    fn push(&self, carried: Carried) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(carried);
        if all.len() == 1 {
            // It is full only of others that wake, too.
            let _ = (&self.wakes).write(&[0]);
        }
    }
}

/// Carries queries over a line until it is closed.
async fn carry(
    line: u16,
    exchange: Arc<Exchange>,
    mut asked: mpsc::Receiver<Vec<u8>>,
    returned: Arc<Returned>,
    patience: Duration,
) {
    let mut under_way = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = under_way.join_next() => {}
            query = asked.recv(), if under_way.len() < ENCRYPTED_MAX => {
                let Some(query) = query else { return };
                let (exchange, returned) = (exchange.clone(), returned.clone());
                under_way.spawn(async move {
                    let Some(id) = query.first_chunk().map(|id| u16::from_be_bytes(*id)) else { return };
                    let asked = tokio::time::timeout(patience, ask(&exchange, &query)).await;
                    // Who waits knows by itself when it has waited for too long.
                    if let Ok(reply) = asked {
                        returned.push(Carried { line, id, reply });
                    }
                });
            }
        }
    }
}

/// Asks, and returns the answer as a back end gives one as a datagram.
async fn ask(exchange: &Arc<Exchange>, query: &[u8]) -> io::Result<Vec<u8>> {
    let question_end = question_end(query).ok_or(io::ErrorKind::InvalidInput)?;
    let mut reply = exchange.ask(&[], query, question_end, &mut Told::Nothing).await?;
    reply[..2].copy_from_slice(&query[..2]);
    let length = take_out_of_one_hop(&mut reply, question_end);
    reply.truncate(length);
    let mut name = Folded::root();
    let edns = Query::read(query, &mut name).ok().and_then(|query| query.edns);
    if reply.len() > datagram_max(edns.as_ref()) {
        let id = u16::from_be_bytes([query[0], query[1]]);
        reply.resize(OURS_MAX, 0);
        let length = answer(query, question_end, edns.as_ref(), id, Says::Truncated, &mut reply);
        reply.truncate(length);
    }
    Ok(reply)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use ::tests::certificate::Certificate;
    use ::tests::folder::Folder;
    use dns::query::TRUNCATED;
    use net::client::Readiness;
    use net::framing::{Assembler, prefix};
    use net::shutdown::Shutdown;
    use net::tcp::Limits;
    use net::tls::DOT;
    use net::tls::client::{Encrypted, Trust, config, host};
    use net::tls::identity::{Identity, Speaks};
    use std::fs;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// `a. A`, with EDNS for 600 octets.
    const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\x01\x01a\0\0\x01\0\x01\0\0\x29\x02\x58\0\0\0\0\0\0";

    const QUESTION_END: usize = 19;

    /// A runtime that runs nothing.
    pub(crate) fn nowhere() -> Handle {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("there is memory");
        runtime.handle().clone()
    }

    /// A server over TLS that answers each query with what this makes of it; and how it is asked, by a name.
    async fn start(name: &str, answer: fn(&[u8]) -> Vec<u8>) -> (SocketAddr, Encrypted) {
        let folder = Folder::new();
        let made = Certificate::new(&folder);
        let read = |path: &String| fs::read(path).expect("it was made");
        let identity = Identity::new(&read(&made.certificate), &read(&made.key)).expect("they are of one");
        let trust = config(&Trust::Authorities(&read(&made.authority)), Some(DOT)).expect("an authority");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback binds");
        let address = listener.local_addr().expect("it is bound");
        let identity = Arc::new(identity);
        tokio::spawn(async move {
            let admission = Arc::new(Limits::default().admission());
            while let Ok((stream, client)) = listener.accept().await {
                let (identity, admission) = (identity.clone(), admission.clone());
                tokio::spawn(async move {
                    let place = admission.admit(client.ip()).expect("there is room");
                    let patience = Duration::from_secs(10);
                    let agreed =
                        identity.agree(stream, Speaks::Dns, &place, patience, &Shutdown::new()).await;
                    let Ok(mut stream) = agreed else { return };
                    let (mut assembler, mut piece) = (Assembler::default(), [0; 4096]);
                    while let Ok(length @ 1..) = stream.read(&mut piece).await {
                        let mut octets = &piece[..length];
                        while let Some(query) = assembler.next(&mut octets) {
                            let reply = answer(query);
                            let frame = [&prefix(reply.len())[..], &reply].concat();
                            stream.write_all(&frame).await.expect("it is taken");
                            stream.flush().await.expect("it is taken");
                        }
                    }
                });
            }
        });
        (address, Encrypted { name: host(name).expect("a name"), config: trust })
    }

    /// Says that a query is answered.
    fn echo(query: &[u8]) -> Vec<u8> {
        let mut reply = query.to_vec();
        reply[2] |= 0x80;
        reply
    }

    /// What comes back, when something does.
    async fn carried(relay: &Relay) -> Vec<Carried> {
        let mut readiness = Readiness::new().expect("there are descriptors");
        readiness.add(relay.woken(), 7, false).expect("it can be waited for");
        loop {
            if readiness.ready().expect("it can be asked").next().is_some() {
                return relay.take();
            }
            tokio::task::yield_now().await;
        }
    }

    fn relay() -> Relay {
        Relay::new(Handle::current(), Duration::from_secs(10)).expect("there are descriptors")
    }

    #[tokio::test]
    async fn what_is_asked_comes_back_with_its_id_over_one_connection_and_padding_stays_there() {
        let (address, tls) = start("dns.example.com", |query| {
            assert!(query.len() == 128 && query[10..12] == [0, 1], "{query:?}");
            echo(query)
        })
        .await;
        let (relay, exchange) = (relay(), Arc::new(Exchange::new(address, Some(tls))));
        let line = relay.open(5, exchange.clone());
        let mut found = Vec::new();
        for id in 0..20_u8 {
            let mut query = QUERY.to_vec();
            if id % 2 == 1 {
                // Without EDNS.
                query.truncate(QUESTION_END);
                query[11] = 0;
            }
            query[1] = id;
            assert!(line.push(&query));
            while found.len() <= id.into() {
                for Carried { line, id, reply } in carried(&relay).await {
                    let (expected, reply) = (echo(&query), reply.expect("an answer"));
                    assert_eq!((line, &id.to_be_bytes()[..], &reply[..]), (5, &query[..2], &expected[..]));
                    found.push(id);
                }
            }
        }
        assert_eq!(exchange.opened.load(std::sync::atomic::Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn an_answer_that_a_client_has_no_room_for_sends_it_to_tcp() {
        fn long(query: &[u8], length: usize) -> Vec<u8> {
            let mut reply = echo(&query[..QUESTION_END]);
            reply[10..12].fill(0);
            reply.resize(length, 0);
            reply
        }
        for (answer, is_truncated) in
            [((|query| long(query, 600)) as fn(&[u8]) -> Vec<u8>, false), (|query| long(query, 601), true)]
        {
            let (address, tls) = start("127.0.0.1", answer).await;
            let relay = relay();
            let line = relay.open(0, Arc::new(Exchange::new(address, Some(tls))));
            assert!(line.push(QUERY));
            let reply = carried(&relay).await.pop().expect("one").reply.expect("an answer");
            assert_eq!(reply[2] & TRUNCATED != 0, is_truncated);
            assert_eq!(reply.len(), if is_truncated { QUERY.len() } else { 600 });
        }
    }

    #[tokio::test]
    async fn who_is_not_the_one_that_is_asked_for_gets_no_query() {
        let (address, tls) = start("other.example.com", |_| panic!("a query came")).await;
        let (_, stranger) = start("dns.example.com", echo).await;
        let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback binds");
        let nobody_at = nobody.local_addr().expect("it is bound");
        drop(nobody);
        for (address, tls, expected) in [
            (address, tls.clone(), "certificate not valid for name"),
            (address, stranger, "no terms over TLS: invalid peer certificate"),
            (nobody_at, tls, "refused"),
        ] {
            let relay = relay();
            let line = relay.open(0, Arc::new(Exchange::new(address, Some(tls))));
            assert!(line.push(QUERY));
            let found = carried(&relay).await.pop().expect("one");
            let cause = found.reply.expect_err("nobody answers");
            assert_eq!(
                (found.id, crate::exchange::NoAnswer::of(&cause)),
                (0x1234, crate::exchange::NoAnswer::Unreached)
            );
            assert!(cause.to_string().contains(expected), "{cause}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_finds_no_room_is_not_taken() {
        let (address, tls) = start("dns.example.com", echo).await;
        let relay = relay();
        let line = relay.open(0, Arc::new(Exchange::new(address, Some(tls))));
        // Nobody has taken one yet.
        assert!((0..WAITING_MAX).all(|_| line.push(QUERY)));
        assert!(!line.push(QUERY));
    }
}
