//! A worker: one thread, one core, and one UDP socket or one queue of an interface.

use std::io;
use std::sync::Arc;

use fastrand::Rng;
use net::udp::{Batch, Datagram, Sent, UdpListener};
use net::xdp::Queue;

use crate::answer::Transport;
use crate::answering::{Answering, Ledger, Received, Return};
use crate::transfer::update::Back;

/// Everything that one worker needs.
pub struct Worker {
    /// Its number, from 0: its seat at [`Published`](crate::publish::Published).
    pub index: usize,
    /// The core to stay on, where one is chosen.
    pub core: Option<usize>,
    /// Where its queries come from; its own.
    pub source: Source,
    /// A socket of each address that it has queries to: answers that come later leave by those.
    pub listeners: Vec<Arc<UdpListener>>,
    /// What it answers from, as all workers do.
    pub answering: Answering,
    /// Where it notes what became of queries; its own.
    pub ledger: Ledger,
    /// What its draws begin with.
    pub seed: u64,
}

/// Where a worker's queries come from, and its answers go.
pub enum Source {
    /// A socket, and the room for a batch.
    Socket(Arc<UdpListener>, Box<Batch>),
    /// A queue of an interface.
    Queue(Box<Queue>),
}

impl Worker {
    /// Serves until its source is stopped.
    ///
    /// Nothing is allocated once it receives, but by [`Answering::answer`].
    pub fn run(self) {
        let Worker { index, core, mut source, listeners, answering, mut ledger, seed } = self;
        let mut rng = Rng::with_seed(seed);
        let seat = answering.published.seat(index);
        if let Some(core) = core
            && let Err(cause) = net::thread::pin(core)
        {
            tracing::warn!(worker = index, core, %cause, "the worker is not pinned to its core");
        }
        loop {
            seat.park();
            match source.receive() {
                Ok(0) => return,
                Ok(_) => ledger.counters.batches.add(1),
                Err(cause) => {
                    let failures = source.receive_failures();
                    tracing::error!(worker = index, failures, %cause, "receiving fails; it is tried again");
                    continue;
                }
            }
            let generation = seat.wake();
            let now = answering.clock.now();
            // Not all that is received holds a message.
            let mut messages = 0;
            source.answer_each(|Datagram { bytes, client, server, .. }, out| {
                messages += 1;
                let received = Received {
                    query: bytes,
                    client,
                    server,
                    transport: Transport::Udp,
                    worker: Some(index),
                    generation: &generation,
                    now,
                };
                match answering.answer(&received, &mut rng, out, || &mut ledger) {
                    Return::Message(length) => Some(length),
                    Return::Update(accepted) => {
                        if let Some(listener) = listeners.iter().find(|listener| listener.is_at(server)) {
                            let listener = listener.clone();
                            accepted.wait(Back::Datagram { listener, client, local: server.ip() });
                        }
                        None
                    }
                    Return::Stream(_) | Return::Nothing => None,
                }
            });
            drop(generation);
            ledger.counters.queries.add(messages);
            let sent = source.send();
            ledger.counters.send_failed.add(sent.failed as u64);
        }
    }
}

impl Source {
    /// A socket, with room for answers of up to `answer_max` octets.
    ///
    /// # Panics
    /// As [`Batch::new`].
    pub fn socket(listener: Arc<UdpListener>, answer_max: usize) -> Source {
        Source::Socket(listener, Box::new(Batch::new(answer_max)))
    }

    fn receive(&mut self) -> io::Result<usize> {
        match self {
            Source::Socket(listener, batch) => batch.receive(listener),
            Source::Queue(queue) => queue.receive(),
        }
    }

    #[inline]
    fn answer_each(&mut self, answer: impl FnMut(Datagram<'_>, &mut [u8]) -> Option<usize>) {
        match self {
            Source::Socket(_, batch) => batch.answer_each(answer),
            Source::Queue(queue) => queue.answer_each(answer),
        }
    }

    fn receive_failures(&self) -> u64 {
        match self {
            Source::Socket(listener, _) => listener.receive_failures(),
            Source::Queue(queue) => queue.watch().receive_failures(),
        }
    }

    fn send(&mut self) -> Sent {
        match self {
            Source::Socket(listener, batch) => batch.send(listener),
            Source::Queue(queue) => queue.send(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};
    use std::os::fd::AsFd as _;
    use std::time::Duration;

    use net::clock::Clock;

    use super::*;
    use crate::fast::Shared;
    use crate::generation::{Generation, Settings};
    use crate::publish::Published;
    use crate::transfer::{Config, Transfers};

    /// What a test that hangs is ended by.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Asks for the addresses of the root, which are not ours to give.
    const QUERY: &[u8] = &[0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1];

    fn worker() -> (Worker, Arc<UdpListener>) {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Arc::new(net::udp::bind(loopback, None).expect("loopback binds"));
        let worker = Worker {
            index: 0,
            core: None,
            source: Source::socket(listener.clone(), 512),
            listeners: vec![listener.clone()],
            answering: Answering {
                published: Arc::new(Published::new(Generation::empty(1, Settings::default()), 1)),
                transfers: Arc::new(Transfers::new(Config::default())),
                fast: Shared::default(),
                panics: Arc::default(),
                clock: Clock::new(),
            },
            ledger: Ledger::new(None),
            seed: 1,
        };
        (worker, listener)
    }

    fn client(server: SocketAddr) -> UdpSocket {
        let client = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        client.connect(server).expect("an address of the same family");
        client.set_read_timeout(Some(PATIENCE)).expect("the option can be set");
        client
    }

    #[test]
    fn a_worker_lives_on_where_receiving_fails() {
        let (worker, listener) = worker();
        let counters = worker.ledger.counters.clone();
        let client = client(listener.local_address());
        // A socket that has sent to a port where nobody listens is told so as it receives next.
        let same = UdpSocket::from(listener.as_fd().try_clone_to_owned().expect("it can be cloned"));
        let closed = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        same.connect(closed.expect("loopback binds")).expect("an address of the same family");
        same.send(b"anybody").expect("loopback takes it");
        same.connect(client.local_addr().expect("it is bound")).expect("an address of the same family");
        let serving = std::thread::spawn(move || worker.run());
        client.send(QUERY).expect("loopback takes it");
        let mut answer = [0; 512];
        let length = client.recv(&mut answer).expect("an answer");
        assert_eq!((&answer[..2], length, listener.receive_failures()), (&QUERY[..2], QUERY.len(), 1));
        listener.stop();
        serving.join().expect("the worker survives");
        assert_eq!(counters.queries.get(), 1);
    }
}
