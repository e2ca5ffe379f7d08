//! Where the answer to one try of a query comes: also for whoever still waits for it when its time is over.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use dns::query::TRUNCATED;
use net::udp::DATAGRAM_MAX;
use tokio::io::ReadBuf;
use tokio::net::UdpSocket;
use tokio::sync::oneshot;

use crate::message::answers;
use crate::pipeline::Pipeline;

/// What a try is told by. It outlives who asks, so that an answer that comes later is still found here.
#[derive(Debug, Default)]
pub enum Told {
    /// Nothing was asked, or all has been told.
    #[default]
    Nothing,
    /// A connection, which is kept for it.
    Connection(oneshot::Receiver<Vec<u8>>, Arc<Pipeline>),
    /// A socket for this query alone.
    Datagram(Datagram),
}

/// A query that went as a datagram.
#[derive(Debug)]
pub struct Datagram {
    socket: UdpSocket,
    query: Vec<u8>,
    question_end: usize,
    room: Vec<u8>,
}

impl Told {
    /// The answer to a query that is sent over a connection: `None` where that ends before.
    pub async fn over_connection(
        &mut self,
        answer: oneshot::Receiver<Vec<u8>>,
        pipeline: Arc<Pipeline>,
    ) -> Option<Vec<u8>> {
        *self = Told::Connection(answer, pipeline);
        poll_fn(|cx| self.poll(cx)).await.ok()
    }

    /// The answer to a query that went over this socket. One that may be longer than there is room for says that it is
    /// truncated.
    ///
    /// # Errors
    /// What the system says: also that nobody listens.
    pub async fn by_datagram(
        &mut self,
        socket: UdpSocket,
        query: &[u8],
        question_end: usize,
    ) -> io::Result<Vec<u8>> {
        let (query, room) = (query.to_vec(), vec![0; DATAGRAM_MAX]);
        *self = Told::Datagram(Datagram { socket, query, question_end, room });
        poll_fn(|cx| self.poll(cx)).await
    }

    /// The answer, if it is there; then nothing more is told.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Vec<u8>>> {
        let ended = || io::ErrorKind::ConnectionAborted.into();
        let told = match self {
            Told::Nothing => Err(ended()),
            Told::Connection(answer, _) => ready!(Pin::new(answer).poll(cx)).map_err(|_| ended()),
            Told::Datagram(asked) => ready!(asked.poll(cx)),
        };
        *self = Told::Nothing;
        Poll::Ready(told)
    }
}

impl Datagram {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Vec<u8>>> {
        let Datagram { socket, query, question_end, room } = self;
        loop {
            let mut read = ReadBuf::new(room);
            ready!(socket.poll_recv(cx, &mut read))?;
            let reply = read.filled_mut();
            if reply.first_chunk::<2>() == query.first_chunk() && answers(reply, query, *question_end) {
                if reply.len() == DATAGRAM_MAX {
                    reply[2] |= TRUNCATED;
                }
                return Poll::Ready(Ok(reply.to_vec()));
            }
        }
    }
}

/// Tries of a query whose time is over, each with what is known of it.
#[derive(Debug)]
pub struct Overdue<T>(Vec<(T, Told)>);

impl<T> Overdue<T> {
    /// There is none.
    #[expect(clippy::new_without_default, reason = "named as what stands beside it")]
    pub fn new() -> Overdue<T> {
        Overdue(Vec::new())
    }

    /// The time of another one is over.
    pub fn push(&mut self, of: T, told: Told) {
        self.0.push((of, told));
    }

    /// The next answer that comes, and to which one; never, where none does. Nothing is lost where nobody waits to the end.
    pub async fn next(&mut self) -> (T, Vec<u8>) {
        poll_fn(|cx| {
            let mut at = 0;
            while let Some((_, told)) = self.0.get_mut(at) {
                match told.poll(cx) {
                    Poll::Pending => at += 1,
                    Poll::Ready(told) => {
                        let (of, _) = self.0.swap_remove(at);
                        if let Ok(answer) = told {
                            return Poll::Ready((of, answer));
                        }
                    }
                }
            }
            Poll::Pending
        })
        .await
    }
}
