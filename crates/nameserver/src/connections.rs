//! The connections of one address, encrypted or not, whose queries take the same path as those over UDP, one at a time.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use dns::relay;
use fastrand::Rng;
use net::admission::Admission;
use net::clock::Clock;
use net::shutdown::Shutdown;
use net::tcp::{Limits, Messages, Next, Verdict};
use net::tls::identity::Identity;
use tokio::sync::oneshot;

use crate::answer::Transport;
use crate::answering::{Answering, Ledger, Received, Return};
use crate::transfer::outgoing::Outgoing;
use crate::transfer::update::Back;

/// Everything that the connections of one address need.
pub struct Connections {
    /// Where they come in.
    pub listener: TcpListener,
    /// What is shown to clients, where they come over TLS.
    pub identity: Option<Arc<Identity>>,
    /// Who gets a place; all addresses share them.
    pub admission: Arc<Admission>,
    /// What clients may hold.
    pub limits: Limits,
    /// What is counted of connections.
    pub counters: Arc<net::tcp::Counters>,
    /// What their queries are answered from.
    pub answering: Answering,
    /// Where it is noted what became of queries.
    pub ledger: Ledger,
    /// What their draws begin with.
    pub seed: u64,
}

/// A transfer with a clock, for the time that its signatures have.
struct Timed {
    outgoing: Box<Outgoing>,
    clock: Clock,
}

impl Connections {
    /// Serves until the shutdown has begun and all connections are closed.
    pub async fn serve(self, shutdown: Shutdown) {
        let Connections { listener, identity, admission, limits, counters, answering, ledger, seed } = self;
        let is_encrypted = identity.is_some();
        let rng = Mutex::new(Rng::with_seed(seed));
        // Whoever holds the lock is the ledger's one writer; nothing slow is done meanwhile.
        let ledger = Arc::new(Mutex::new(ledger));
        let places = admission.clone();
        let handler = |client: SocketAddr, server: SocketAddr| {
            let (answering, ledger, places) = (answering.clone(), ledger.clone(), places.clone());
            let mut rng = rng.lock().unwrap_or_else(PoisonError::into_inner).fork();
            move |query: &[u8], out: &mut [u8]| {
                let generation = answering.published.load();
                let idle = limits.idle_now(places.is_crowded());
                let received = Received {
                    query,
                    client,
                    server,
                    transport: if is_encrypted { Transport::Tls { idle } } else { Transport::Tcp { idle } },
                    worker: None,
                    generation: &generation,
                    now: answering.clock.now(),
                };
                let returned = answering.answer(&received, &mut rng, out, || {
                    let ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
                    ledger.counters.queries.add(1);
                    ledger
                });
                match returned {
                    Return::Message(length) if is_encrypted => Verdict::Reply(padded(query, out, length)),
                    Return::Message(length) => Verdict::Reply(length),
                    Return::Stream(outgoing) => {
                        Verdict::Stream(Box::new(Timed { outgoing, clock: answering.clock }))
                    }
                    Return::Update(accepted) => {
                        let (connection, later) = oneshot::channel();
                        accepted.wait(Back::Connection(connection));
                        Verdict::Later(later)
                    }
                    Return::Nothing => Verdict::Drop,
                }
            }
        };
        let told = |cause: &io::Error| {
            tracing::warn!(%cause, "TCP cannot accept connections; it is tried again and again");
        };
        let front = (listener, identity);
        let served = net::tcp::serve(front, admission, limits, counters, shutdown, told, handler).await;
        if let Err(cause) = served {
            tracing::error!(%cause, "TCP is not served");
        }
    }
}

/// Pads an answer of this length where its query is, as only lengths can be seen (RFC 8467); returns its length.
fn padded(query: &[u8], out: &mut [u8], length: usize) -> usize {
    match relay::question_end(query) {
        Some(end) if relay::is_padded(query, end) => relay::pad(out, length, end, relay::PADDED_TO),
        _ => length,
    }
}

impl Messages for Timed {
    fn next(&mut self, out: &mut [u8]) -> Next {
        self.outgoing.next(self.clock.now().unix.as_secs(), out)
    }
}
