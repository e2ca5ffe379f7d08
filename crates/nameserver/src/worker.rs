//! A worker: one thread, one core, one UDP socket.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fastrand::Rng;
use net::clock::{Clock, Now};
use net::udp::{Batch, Datagram, UdpListener};

use crate::answer::{Answered, Asked, Reply, Transport};
use crate::counters::Counters;
use crate::fast::{Fast, Shared};
use crate::generation::Generation;
use crate::panics::{Panics, Scene};
use crate::publish::Published;
use crate::rate_limit::RateLimit;
use crate::tap::{Exchange, Tap};
use crate::transfer::Transfers;

/// Everything that one worker needs.
pub struct Worker {
    /// Its number, from 0: its seat at [`Published`].
    pub index: usize,
    /// The core to stay on, where one is chosen.
    pub core: Option<usize>,
    /// Its own socket.
    pub listener: Arc<UdpListener>,
    /// What answers signed queries and transfers.
    pub transfers: Arc<Transfers>,
    /// The fast state; all workers have the same.
    pub fast: Shared,
    /// Where generations come from.
    pub published: Arc<Published>,
    /// Where it counts.
    pub counters: Arc<Counters>,
    /// What follows a panic.
    pub panics: Arc<Panics>,
    /// What limits the rate of answers, where that is limited; all workers share it.
    pub rate_limit: Option<Arc<RateLimit>>,
    /// Who is told of queries and answers, where somebody watches.
    pub tap: Option<Tap>,
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
    /// Nothing is allocated after the first line, but for signed queries and IXFR. A query on which the code
    /// panics is dropped and counted; what then follows is [`Panics::suffered`]'s.
    pub fn run(self) {
        let transfers = self.transfers.clone();
        let shared = self.fast.clone();
        match self.rate_limit.clone() {
            None => self.run_with(move |generation, asked, now, rng, out| {
                let fast = shared.fast();
                transfers
                    .answer(generation, asked, fast, now, rng, out)
                    .unwrap_or_else(|| generation.answer_counted(asked, fast, now, rng, out))
            }),
            Some(limit) => self.run_with(move |generation, asked, now, rng, out| {
                let fast = Fast { limit: Some(&limit), ..shared.fast() };
                transfers
                    .answer(generation, asked, fast, now, rng, out)
                    .unwrap_or_else(|| generation.answer_limited(asked, &limit, fast, now, rng, out))
            }),
        }
    }

    /// Serves with this function, so that tests can have one that panics.
    fn run_with<A>(mut self, answer: A)
    where
        A: Fn(&Generation, &Asked<'_>, Now, &mut Rng, &mut [u8]) -> Answered,
    {
        let port = self.listener.local_address().port();
        let mut tap = self.tap.take();
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
                    let failures = self.listener.receive_failures();
                    tracing::error!(worker = self.index, failures, %cause, "receiving fails; it is tried again");
                    continue;
                }
            }
            let generation = seat.wake();
            let now = self.clock.now();
            batch.answer_each(|Datagram { bytes, client, local, .. }, out| {
                let asked = Asked { query: bytes, client: client.ip(), local, transport: Transport::Udp };
                let answered =
                    catch_unwind(AssertUnwindSafe(|| answer(&generation, &asked, now, &mut rng, out)));
                let length = match answered {
                    Ok(Answered { reply: Reply::Send(length), verdict, routed }) => {
                        self.counters.rated(verdict);
                        self.counters.answered(&out[..length], routed);
                        Some(length)
                    }
                    Ok(Answered { reply: Reply::Drop(why), .. }) => {
                        self.counters.dropped(why);
                        None
                    }
                    Err(panic) => {
                        self.counters.panicked.add(1);
                        let (worker, generation) = (Some(self.index), generation.number);
                        let scene = Scene { worker, generation, query: bytes };
                        self.panics.suffered(scene, &*panic, now.monotonic);
                        None
                    }
                };
                if let Some(tap) = &mut tap {
                    let exchange = Exchange {
                        client,
                        server: SocketAddr::new(local, port),
                        transport: Transport::Udp,
                        time: now.unix,
                        query: bytes,
                        response: length.map(|length| &out[..length]),
                    };
                    self.counters.tap_full.add(tap.note(&exchange));
                }
                length
            });
            drop(generation);
            let sent = batch.send(&self.listener);
            self.counters.send_failed.add(sent.failed as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::UdpSocket;
    use std::os::fd::AsFd as _;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::time::Duration;

    use super::*;
    use crate::generation::Settings;

    /// What a test that hangs is ended by.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Tells the test, started again, that it is to be aborted.
    const ABORTS: &str = "POINTSMAN_TEST_ABORTS";

    fn worker() -> (Worker, SocketAddr) {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Arc::new(net::udp::bind(loopback, None).expect("loopback binds"));
        let address = listener.local_address();
        let worker = Worker {
            index: 0,
            rate_limit: None,
            fast: Shared::default(),
            transfers: Arc::new(Transfers::new(crate::transfer::Config::default())),
            core: None,
            listener,
            published: Arc::new(Published::new(Generation::empty(1, Settings::default()), 1)),
            counters: Arc::default(),
            panics: Arc::default(),
            tap: None,
            clock: Clock::new(),
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
    fn a_query_that_panics_is_dropped_and_counted_and_the_next_one_is_answered() {
        let (worker, address) = worker();
        let (counters, listener) = (worker.counters.clone(), worker.listener.clone());
        let client = client(address);
        let serving = std::thread::spawn(move || {
            worker.run_with(|_, asked, _, _, out| match asked.query {
                b"bad" => panic!("this query is bad"),
                good => {
                    out[..good.len()].copy_from_slice(good);
                    Reply::Send(good.len()).into()
                }
            });
        });
        for query in [b"bad", b"fit"] {
            client.send(query).expect("loopback takes it");
        }
        let mut answer = [0; 512];
        let length = client.recv(&mut answer).expect("an answer");
        assert_eq!(&answer[..length], b"fit");
        listener.stop();
        serving.join().expect("the worker survives");
        assert_eq!((counters.queries.get(), counters.panicked.get()), (2, 1));
    }

    #[test]
    fn a_worker_lives_on_where_receiving_fails() {
        let (worker, address) = worker();
        let listener = worker.listener.clone();
        let client = client(address);
        // A socket that has sent to a port where nobody listens is told so as it receives next.
        let same = UdpSocket::from(listener.as_fd().try_clone_to_owned().expect("it can be cloned"));
        let closed = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        same.connect(closed.expect("loopback binds")).expect("an address of the same family");
        same.send(b"anybody").expect("loopback takes it");
        same.connect(client.local_addr().expect("it is bound")).expect("an address of the same family");
        let serving = std::thread::spawn(move || {
            worker.run_with(|_, asked, _, _, out| {
                out[..asked.query.len()].copy_from_slice(asked.query);
                Reply::Send(asked.query.len()).into()
            });
        });
        client.send(b"still here").expect("loopback takes it");
        let mut answer = [0; 512];
        let length = client.recv(&mut answer).expect("an answer");
        assert_eq!((&answer[..length], listener.receive_failures()), (&b"still here"[..], 1));
        listener.stop();
        serving.join().expect("the worker survives");
    }

    #[test]
    fn two_panics_in_a_second_abort_with_what_was_done_in_the_log() {
        if std::env::var_os(ABORTS).is_some() {
            return abort();
        }
        let this = std::env::current_exe().expect("a test knows where it is");
        let name = "worker::tests::two_panics_in_a_second_abort_with_what_was_done_in_the_log";
        let ended = Command::new(this).args([name, "--exact", "--nocapture"]).env(ABORTS, "1").output();
        let ended = ended.expect("the test starts again");
        let log = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.signal(), Some(6), "{log}");
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("ERROR")).collect();
        let [first, second] = lines[..] else { panic!("{log}") };
        assert!(first.contains("it is dropped") && first.contains("query=\"6f6e65\""), "{first}");
        for part in ["aborting", "worker=0", "generation=0", "query=\"74776f\"", "panic=\"always\""] {
            assert!(second.contains(part), "no {part} in {second}");
        }
    }

    /// Panics twice within one batch, which has one time.
    fn abort() {
        tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
        let (worker, address) = worker();
        let client = client(address);
        for query in [b"one", b"two", b"end"] {
            client.send(query).expect("loopback takes it");
        }
        worker.run_with(|_, asked, _, _, _| {
            if asked.query == b"end" {
                let _ = writeln!(std::io::stderr(), "the second panic did not abort");
                std::process::exit(1);
            }
            panic!("always")
        });
    }
}
