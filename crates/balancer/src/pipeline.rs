//! A connection to a back end, encrypted or not, over which several queries are under way (RFC 7766 §6.2.1.1): answers may
//! come in any order, and are matched by id and question (§7).

use std::collections::HashMap;
use std::io;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use dns::edns::OPTION;
use dns::relay::{Added, QUERY_PADDED_TO, add_opt, pad, take_out_added};
use net::framing::{Assembler, MESSAGE_MAX, prefix};
use net::tls::stream::Stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::counters::Strays;
use crate::message::answers;
use crate::pending::ID_DRAWS_MAX;

/// Messages in a row that answer nothing before a back end counts as mad, and the connection ends.
const FOREIGN_MAX: usize = 16;

/// Octets that are read at once.
const PIECE: usize = 8 << 10;

/// A connection with its queries. It is closed when this is dropped, when it has been idle for too long, and when the back end
/// closes it or sends many messages that answer nothing.
#[derive(Debug)]
pub struct Pipeline {
    queue: mpsc::Sender<Asked>,
    /// Queries that have a place in it; who gives places counts them.
    pub under_way: AtomicUsize,
    asked: AtomicU64,
    last_answered: Arc<AtomicU64>,
    is_encrypted: bool,
}

/// A query under way.
#[derive(Debug)]
struct Asked {
    /// Which of the connection's it is, from 1.
    number: u64,
    query: Vec<u8>,
    question_end: usize,
    /// What was put into it for this connection.
    added: Added,
    tell: oneshot::Sender<Vec<u8>>,
}

impl Pipeline {
    /// Takes over a connection that begins with a preface, carries so many queries at once, and waits for the next one for so
    /// long; `held` is kept until it is closed.
    pub fn begin(
        stream: Stream,
        preface: &[u8],
        (under_way_max, idle): (usize, Duration),
        strays: Arc<Strays>,
        held: impl Send + 'static,
    ) -> Pipeline {
        let (queue, asked) = mpsc::channel(under_way_max);
        let (last_answered, is_encrypted) =
            (Arc::new(AtomicU64::new(0)), matches!(stream, Stream::Encrypted(_)));
        let ends = Ends {
            out: preface.to_vec(),
            waiting: HashMap::new(),
            last_answered: last_answered.clone(),
            strays,
        };
        tokio::spawn(async move {
            ends.converse(stream, asked, idle).await;
            drop(held);
        });
        Pipeline {
            queue,
            under_way: AtomicUsize::new(0),
            asked: AtomicU64::new(0),
            last_answered,
            is_encrypted,
        }
    }

    /// The last of its queries that has been answered; 0 before the first.
    pub fn last_answered(&self) -> u64 {
        self.last_answered.load(Ordering::Relaxed)
    }

    /// Whether it is closed.
    pub fn is_over(&self) -> bool {
        self.queue.is_closed()
    }

    /// Asks, with an id that no other query has that is under way; the answer, which has it, is told. Nothing will be where
    /// the connection is closed before it comes, or is closed already. Returned with it is which of the connection's
    /// queries it is, from 1. Over TLS the query is padded.
    pub fn ask(&self, query: &[u8], question_end: usize) -> (u64, oneshot::Receiver<Vec<u8>>) {
        let (tell, told) = oneshot::channel();
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let mut query = query[..query.len().min(MESSAGE_MAX)].to_vec();
        let added = if self.is_encrypted { pad_query(&mut query, question_end) } else { Added::Nothing };
        // What finds no room is dropped, and tells so.
        let _ = self.queue.try_send(Asked { number, query, question_end, added, tell });
        (number, told)
    }
}

/// What goes in at one end of a connection, and is to come out at the other.
struct Ends {
    /// Octets that are still to be written.
    out: Vec<u8>,
    /// Queries that are not answered, by their ids; also such as nobody waits for any more.
    waiting: HashMap<u16, Asked>,
    last_answered: Arc<AtomicU64>,
    strays: Arc<Strays>,
}

impl Ends {
    /// Carries queries and answers until the connection is to be closed; what is not answered then is told so by being
    /// dropped.
    async fn converse(mut self, stream: Stream, mut asked: mpsc::Receiver<Asked>, idle: Duration) {
        let (mut reads, mut writes) = tokio::io::split(stream);
        // Encrypted, what was written may still be on its way into the socket.
        let mut is_flushed = true;
        let (mut assembler, mut piece) = (Assembler::default(), vec![0; PIECE]);
        let (mut foreign, mut idle_since) = (0, Instant::now());
        loop {
            tokio::select! {
                biased;
                next = asked.recv() => match next {
                    Some(asked) => self.send(asked),
                    // Nobody waits, and nobody will ask.
                    None => return,
                },
                written = write(&mut writes, &self.out), if !self.out.is_empty() || !is_flushed => match written {
                    Ok(length) => {
                        is_flushed = self.out.is_empty();
                        self.out.drain(..length);
                    }
                    Err(_) => return,
                },
                read = reads.read(&mut piece) => {
                    let Ok(length @ 1..) = read else { return };
                    let mut rest = &piece[..length];
                    while let Some(reply) = assembler.next(&mut rest) {
                        foreign = if self.take(reply) { 0 } else { foreign + 1 };
                    }
                    if foreign >= FOREIGN_MAX {
                        return;
                    }
                    idle_since = Instant::now();
                }
                () = sleep_until(idle_since + idle), if self.waiting.is_empty() => return,
            }
        }
    }

    /// Has a query written, with the id that it comes with, or another one by chance where that is taken.
    fn send(&mut self, mut asked: Asked) {
        let own = u16::from_be_bytes([asked.query[0], asked.query[1]]);
        let mut ids = iter::once(own).chain(iter::repeat_with(|| fastrand::u16(..))).take(ID_DRAWS_MAX);
        // With so few of all ids taken, so many draws do not fail.
        let Some(id) = ids.find(|id| !self.waiting.contains_key(id)) else { return };
        asked.query[..2].copy_from_slice(&id.to_be_bytes());
        self.out.extend_from_slice(&prefix(asked.query.len()));
        self.out.extend_from_slice(&asked.query);
        self.waiting.insert(id, asked);
    }

    /// Hands an answer to who waits for it; whether it answers anything.
    fn take(&mut self, reply: &[u8]) -> bool {
        let Strays { late, alien, wrong_question } = &*self.strays;
        let id = reply.first_chunk().map(|id| u16::from_be_bytes(*id));
        let Some((id, asked)) = id.and_then(|id| Some((id, self.waiting.get(&id)?))) else {
            alien.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        if !answers(reply, &asked.query, asked.question_end) {
            wrong_question.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.last_answered.fetch_max(asked.number, Ordering::Relaxed);
        let mut reply = reply.to_vec();
        let length = take_out_added(&mut reply, asked.question_end, asked.added);
        reply.truncate(length);
        let is_late = self.waiting.remove(&id).is_some_and(|asked| asked.tell.send(reply).is_err());
        late.fetch_add(u64::from(is_late), Ordering::Relaxed);
        true
    }
}

/// Has the length of a query say little (RFC 8467 §4.1), where there is room for that.
fn pad_query(query: &mut Vec<u8>, question_end: usize) -> Added {
    let added = add_opt(query, question_end);
    let length = query.len();
    query.resize(length + OPTION + QUERY_PADDED_TO, 0);
    let padded = pad(query, length, question_end, QUERY_PADDED_TO);
    query.truncate(padded);
    added
}

/// Writes some of these octets, or, where there are none, what is still on its way into the socket; returns how many.
async fn write(writes: &mut WriteHalf<Stream>, out: &[u8]) -> io::Result<usize> {
    match out {
        [] => writes.flush().await.map(|()| 0),
        out => match writes.write(out).await? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            length => Ok(length),
        },
    }
}
