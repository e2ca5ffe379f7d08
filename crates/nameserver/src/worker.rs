//! A worker: one thread, one core, one UDP socket.

use std::net::SocketAddr;
use std::sync::Arc;

use fastrand::Rng;
use net::udp::{Batch, Datagram, UdpListener};

use crate::answer::Transport;
use crate::answering::{Answering, Ledger, Received, Return};
use crate::transfer::update::Back;

/// Everything that one worker needs.
pub struct Worker {
    /// Its number, from 0: its seat at [`Published`](crate::publish::Published).
    pub index: usize,
    /// The core to stay on, where one is chosen.
    pub core: Option<usize>,
    /// Its own socket.
    pub listener: Arc<UdpListener>,
    /// What it answers from, as all workers do.
    pub answering: Answering,
    /// Where it notes what became of queries; its own.
    pub ledger: Ledger,
    /// What its draws begin with.
    pub seed: u64,
    /// The largest answer in octets.
    pub answer_max: usize,
}

impl Worker {
    /// Serves until the listener is stopped.
    ///
    /// Nothing is allocated once it receives, but by [`Answering::answer`].
    pub fn run(self) {
        let Worker { index, core, listener, answering, mut ledger, seed, answer_max } = self;
        let port = listener.local_address().port();
        let mut batch = Batch::new(answer_max);
        let mut rng = Rng::with_seed(seed);
        let seat = answering.published.seat(index);
        if let Some(core) = core
            && let Err(cause) = net::thread::pin(core)
        {
            tracing::warn!(worker = index, core, %cause, "the worker is not pinned to its core");
        }
        loop {
            seat.park();
            match batch.receive(&listener) {
                Ok(0) => return,
                Ok(received) => {
                    ledger.counters.batches.add(1);
                    ledger.counters.queries.add(received as u64);
                }
                Err(cause) => {
                    let failures = listener.receive_failures();
                    tracing::error!(worker = index, failures, %cause, "receiving fails; it is tried again");
                    continue;
                }
            }
            let generation = seat.wake();
            let now = answering.clock.now();
            batch.answer_each(|Datagram { bytes, client, local, .. }, out| {
                let received = Received {
                    query: bytes,
                    client,
                    server: SocketAddr::new(local, port),
                    transport: Transport::Udp,
                    worker: Some(index),
                    generation: &generation,
                    now,
                };
                match answering.answer(&received, &mut rng, out, || &mut ledger) {
                    Return::Message(length) => Some(length),
                    Return::Update(accepted) => {
                        accepted.wait(Back::Datagram { listener: listener.clone(), client, local });
                        None
                    }
                    Return::Stream(_) | Return::Nothing => None,
                }
            });
            drop(generation);
            let sent = batch.send(&listener);
            ledger.counters.send_failed.add(sent.failed as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
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

    fn worker() -> (Worker, SocketAddr) {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Arc::new(net::udp::bind(loopback, None).expect("loopback binds"));
        let address = listener.local_address();
        let worker = Worker {
            index: 0,
            core: None,
            listener,
            answering: Answering {
                published: Arc::new(Published::new(Generation::empty(1, Settings::default()), 1)),
                transfers: Arc::new(Transfers::new(Config::default())),
                fast: Shared::default(),
                panics: Arc::default(),
                clock: Clock::new(),
            },
            ledger: Ledger::new(None),
            seed: 1,
            answer_max: 512,
        };
        (worker, address)
    }

    fn client(server: SocketAddr) -> UdpSocket {
        let client = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        client.connect(server).expect("an address of the same family");
        client.set_read_timeout(Some(PATIENCE)).expect("the option can be set");
        client
    }

    #[test]
    fn a_worker_lives_on_where_receiving_fails() {
        let (worker, address) = worker();
        let (listener, counters) = (worker.listener.clone(), worker.ledger.counters.clone());
        let client = client(address);
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
