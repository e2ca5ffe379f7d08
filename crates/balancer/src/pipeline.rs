//! A connection to a back end over which several queries are under way (RFC 7766 §6.2.1.1): answers may come in any order,
//! and are matched by id and question (§7).

use std::collections::HashMap;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use net::framing::{Assembler, MESSAGE_MAX, prefix};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::counters::Strays;
use crate::field::BackEnd;
use crate::message::answers;
use crate::pending::ID_DRAWS_MAX;

/// Queries under way over one connection at most: BIND works on 23 of a connection at once, and lets further ones wait.
pub const UNDER_WAY_MAX: usize = 16;

/// How long a connection waits for its next query: less than the ten seconds after which most servers close it.
pub const IDLE_WAIT: Duration = Duration::from_secs(5);

/// Messages in a row that answer nothing before a back end counts as mad, and the connection ends.
const FOREIGN_MAX: usize = 16;

/// Octets that are read at once.
const PIECE: usize = 8 << 10;

/// A connection with its queries. It is closed when this is dropped, when it has been idle for [`IDLE_WAIT`], and when the
/// back end closes it or sends many messages that answer nothing.
#[derive(Debug)]
pub struct Pipeline {
    queue: mpsc::Sender<Asked>,
    /// Queries that have a place in it, from 0 to [`UNDER_WAY_MAX`]; who gives places counts them.
    pub under_way: AtomicUsize,
}

/// A query under way.
#[derive(Debug)]
struct Asked {
    query: Vec<u8>,
    question_end: usize,
    tell: oneshot::Sender<Vec<u8>>,
}

impl Pipeline {
    /// Takes over a connection that begins with a preface; `held` is kept until it is closed.
    pub fn begin(
        stream: TcpStream,
        preface: &[u8],
        back_end: Arc<BackEnd>,
        held: impl Send + 'static,
    ) -> Pipeline {
        let (queue, asked) = mpsc::channel(UNDER_WAY_MAX);
        let ends = Ends { out: preface.to_vec(), waiting: HashMap::new(), back_end };
        tokio::spawn(async move {
            ends.converse(stream, asked).await;
            drop(held);
        });
        Pipeline { queue, under_way: AtomicUsize::new(0) }
    }

    /// Whether it is closed.
    pub fn is_over(&self) -> bool {
        self.queue.is_closed()
    }

    /// Asks, with an id that no other query has that is under way; the answer, which has it, is told. Nothing will be where
    /// the connection is closed before it comes, or is closed already.
    pub fn ask(&self, query: &[u8], question_end: usize) -> oneshot::Receiver<Vec<u8>> {
        let (tell, told) = oneshot::channel();
        let query = query[..query.len().min(MESSAGE_MAX)].to_vec();
        // What finds no room is dropped, and tells so.
        let _ = self.queue.try_send(Asked { query, question_end, tell });
        told
    }
}

/// What goes in at one end of a connection, and is to come out at the other.
struct Ends {
    /// Octets that are still to be written.
    out: Vec<u8>,
    /// Queries that are not answered, by their ids; also such as nobody waits for any more.
    waiting: HashMap<u16, Asked>,
    back_end: Arc<BackEnd>,
}

impl Ends {
    /// Carries queries and answers until the connection is to be closed; what is not answered then is told so by being
    /// dropped.
    async fn converse(mut self, mut stream: TcpStream, mut asked: mpsc::Receiver<Asked>) {
        let (mut reads, mut writes) = stream.split();
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
                written = writes.write(&self.out), if !self.out.is_empty() => match written {
                    Ok(length @ 1..) => drop(self.out.drain(..length)),
                    _ => return,
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
                () = sleep_until(idle_since + IDLE_WAIT), if self.waiting.is_empty() => return,
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
        let Strays { late, alien, wrong_question } = &self.back_end.strays;
        let id = reply.first_chunk().map(|id| u16::from_be_bytes(*id));
        let Some((id, asked)) = id.and_then(|id| Some((id, self.waiting.get(&id)?))) else {
            alien.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        if !answers(reply, &asked.query, asked.question_end) {
            wrong_question.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let is_late = self.waiting.remove(&id).is_some_and(|asked| asked.tell.send(reply.to_vec()).is_err());
        late.fetch_add(u64::from(is_late), Ordering::Relaxed);
        true
    }
}
