//! A worker: one thread, one core, one UDP socket.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fastrand::Rng;
use net::clock::Clock;
use net::udp::{Batch, Datagram, UdpListener};

use crate::answer::{Asked, Reply, Transport};
use crate::counters::Counters;
use crate::publish::Published;

/// Everything that one worker needs.
pub struct Worker {
    /// Its number, from 0: its seat at [`Published`].
    pub index: usize,
    /// The core to stay on, where one is chosen.
    pub core: Option<usize>,
    /// Its own socket.
    pub listener: Arc<UdpListener>,
    /// Where generations come from.
    pub published: Arc<Published>,
    /// Where it counts.
    pub counters: Arc<Counters>,
    /// The time.
    pub clock: Clock,
    /// What its draws begin with.
    pub seed: u64,
    /// The largest answer in octets.
    pub answer_max: usize,
}

impl Worker {
    /// Serves until the listener is stopped.
    ///
    /// Nothing is allocated after the first line. A query on which the code panics is dropped and counted;
    /// the next one is served.
    pub fn run(self) {
        let mut batch = Batch::new(self.answer_max);
        let mut rng = Rng::with_seed(self.seed);
        let seat = self.published.seat(self.index);
        if let Some(core) = self.core
            && let Err(cause) = net::thread::pin(core)
        {
            tracing::warn!(worker = self.index, core, %cause, "the worker is not pinned to its core");
        }
        loop {
            seat.park();
            match batch.receive(&self.listener) {
                Ok(0) => return,
                Ok(received) => {
                    self.counters.batches.add(1);
                    self.counters.queries.add(received as u64);
                }
                Err(cause) => {
                    tracing::error!(worker = self.index, %cause, "receiving failed; the worker ends");
                    return;
                }
            }
            let generation = seat.wake();
            let now = self.clock.now();
            batch.answer_each(|Datagram { bytes, client, local, .. }, out| {
                let asked = Asked { query: bytes, client: client.ip(), local, transport: Transport::Udp };
                let answered =
                    catch_unwind(AssertUnwindSafe(|| generation.answer(&asked, now, &mut rng, out)));
                match answered {
                    Ok(Reply::Send(length)) => {
                        self.counters.answered(&out[..length]);
                        Some(length)
                    }
                    Ok(Reply::Drop(why)) => {
                        self.counters.dropped(why);
                        None
                    }
                    Err(_) => {
                        self.counters.panicked.add(1);
                        None
                    }
                }
            });
            drop(generation);
            let sent = batch.send(&self.listener);
            self.counters.send_failed.add(sent.failed as u64);
        }
    }
}
