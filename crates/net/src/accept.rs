//! The connections of a listener: taken one by one, each served by a task of its own, and waited for at the end.

use crate::shutdown::Shutdown;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// How long accepting rests after the system could not give a descriptor or memory.
///
/// The connection stays in the backlog meanwhile. Without a rest the loop would spin, for the condition
/// lasts.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// From one time that it is to be told that nothing can be accepted to the next.
pub const TOLD_INTERVAL: Duration = Duration::from_secs(60);

/// Takes connections of a listener until a shutdown begins, and holds the tasks that serve them.
#[derive(Debug)]
pub struct Acceptor {
    /// Closed when the shutdown begins.
    listener: Option<TcpListener>,
    shutdown: Shutdown,
    open: JoinSet<()>,
    open_max: usize,
    rests_until: Option<Instant>,
    told: Option<Instant>,
}

/// What happens at a listener.
#[derive(Debug)]
pub enum Event {
    /// A client has connected. To drop the stream is to close the connection at once.
    Connected(TcpStream, SocketAddr),
    /// A connection was gone before it could be taken; it concerns no other.
    Aborted(io::Error),
    /// The system had no descriptor or memory for a connection. Accepting rests for [`ACCEPT_PAUSE`].
    Failed {
        /// What it said.
        cause: io::Error,
        /// Whether it is to be told: this may go on for days, and once in [`TOLD_INTERVAL`] will do.
        is_to_tell: bool,
    },
    /// A task that served a connection panicked: a fault of ours.
    Panicked,
}

impl Acceptor {
    /// Takes as many connections as come: who is given to [`spawn`](Self::spawn) has been admitted before.
    pub fn new(listener: TcpListener, shutdown: Shutdown) -> Acceptor {
        let listener = Some(listener);
        let (open, open_max) = (JoinSet::new(), usize::MAX);
        Acceptor { listener, shutdown, open, open_max, rests_until: None, told: None }
    }

    /// Takes none while so many are served: further ones wait in the system's backlog.
    #[must_use]
    pub fn with_open_max(self, open_max: usize) -> Acceptor {
        Acceptor { open_max, ..self }
    }

    /// How many are served.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Waits for what happens next; may be dropped and called again.
    ///
    /// When the shutdown has begun, the listener is closed, and connections that are served are waited for: `None` when
    /// all have ended.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let ended = match &self.listener {
                Some(listener) => tokio::select! {
                    biased;
                    () = self.shutdown.wait() => {
                        self.listener = None;
                        continue;
                    }
                    Some(ended) = self.open.join_next() => ended,
                    accepted = accept(listener, self.rests_until), if self.open.len() < self.open_max => {
                        return Some(self.event(accepted));
                    }
                },
                None => self.open.join_next().await?,
            };
            if ended.is_err() {
                return Some(Event::Panicked);
            }
        }
    }

    /// Serves a connection.
    pub fn spawn(&mut self, serving: impl Future<Output = ()> + Send + 'static) {
        self.open.spawn(serving);
    }

    fn event(&mut self, accepted: io::Result<(TcpStream, SocketAddr)>) -> Event {
        self.rests_until = None;
        match accepted {
            Ok((stream, client)) => Event::Connected(stream, client),
            Err(cause) if is_about_one_connection(&cause) => Event::Aborted(cause),
            Err(cause) => {
                let now = Instant::now();
                self.rests_until = Some(now + ACCEPT_PAUSE);
                let is_to_tell = self.told.is_none_or(|told| now - told >= TOLD_INTERVAL);
                if is_to_tell {
                    self.told = Some(now);
                }
                Event::Failed { cause, is_to_tell }
            }
        }
    }
}

async fn accept(listener: &TcpListener, rests_until: Option<Instant>) -> io::Result<(TcpStream, SocketAddr)> {
    if let Some(until) = rests_until {
        sleep_until(until).await;
    }
    listener.accept().await
}

/// Whether an error of `accept` concerns the connection that was to be accepted and no other (accept(2): such
/// errors are to be treated like "try again").
fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::EINTR
                | libc::EPERM
                | libc::EPROTO
                | libc::ENETDOWN
                | libc::ENETUNREACH
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::ENONET
                | libc::EOPNOTSUPP
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};
    use tokio::sync::oneshot;
    use tokio::time::timeout;

    /// What is there without waiting, `None` where nothing is.
    async fn now(acceptor: &mut Acceptor) -> Option<Option<Event>> {
        timeout(Duration::ZERO, acceptor.next()).await.ok()
    }

    /// A listener at which every accept fails: its socket was never told to listen.
    fn broken() -> TcpListener {
        let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None).expect("a socket");
        TcpListener::from_std(socket.into()).expect("there is a runtime")
    }

    // The clock runs by itself while everybody waits.
    #[tokio::test(start_paused = true)]
    async fn accepting_rests_when_it_fails_and_a_shutdown_ends_the_rest() {
        let shutdown = Shutdown::new();
        let mut acceptor = Acceptor::new(broken(), shutdown.clone());
        for turn in 0..3 {
            let event = acceptor.next().await;
            assert!(
                matches!(event, Some(Event::Failed { is_to_tell, .. }) if is_to_tell == (turn == 0)),
                "{event:?}"
            );
            assert!(now(&mut acceptor).await.is_none(), "it rests");
        }
        tokio::time::advance(TOLD_INTERVAL).await;
        assert!(matches!(acceptor.next().await, Some(Event::Failed { is_to_tell: true, .. })));
        shutdown.begin();
        assert!(matches!(now(&mut acceptor).await, Some(None)));
    }

    #[tokio::test]
    async fn what_is_beyond_the_bound_waits_and_what_is_served_is_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback binds");
        let address = listener.local_addr().expect("it is bound");
        let shutdown = Shutdown::new();
        let mut acceptor = Acceptor::new(listener, shutdown.clone()).with_open_max(1);
        let _first = TcpStream::connect(address).await.expect("it listens");
        let _second = TcpStream::connect(address).await.expect("it listens");
        assert!(matches!(acceptor.next().await, Some(Event::Connected(..))));
        let (end, ended) = oneshot::channel::<()>();
        acceptor.spawn(async { ended.await.expect("it is told so") });
        assert!(now(&mut acceptor).await.is_none(), "there is no place for the second");
        end.send(()).expect("it is served");
        assert!(matches!(acceptor.next().await, Some(Event::Connected(..))));
        let (end, ended) = oneshot::channel::<()>();
        acceptor.spawn(async { ended.await.expect("it is never told so") });
        shutdown.begin();
        assert!(now(&mut acceptor).await.is_none(), "one is served");
        drop(end);
        assert!(matches!(acceptor.next().await, Some(Event::Panicked)));
        assert!(acceptor.next().await.is_none());
    }

    #[test]
    fn only_errors_of_one_connection_are_passed_over_at_once() {
        for (code, expected) in [(libc::ECONNABORTED, true), (libc::EMFILE, false), (libc::ENOBUFS, false)] {
            assert_eq!(is_about_one_connection(&io::Error::from_raw_os_error(code)), expected, "{code}");
        }
    }
}
