//! The sockets of the DNS face: threads for datagrams, tasks for connections.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use dns::edns::UDP_PAYLOAD;
use net::client::Outgoing;
use net::clock::Clock;
use net::shutdown::Shutdown;
use net::tcp::{Limits, Verdict};
use net::udp::{BATCH_MAX, Batch, Datagram, UdpListener};
use routing::Acl;
use tokio::sync::Semaphore;

use super::{Reply, answer};
use crate::backend::seconds;
use crate::front::Front;
use crate::numbers::{Connections, Numbers};
use crate::question::glance;

/// Questions that wait at one listener for what is not known yet; further ones are answered at once.
pub const WAITING_MAX: usize = 4096;

/// Room for queries that wait for a worker, in octets: some 10,000 small ones, what a busy host sends while a machine
/// stands still for a tenth of a second.
const RECEIVE_BUFFER: usize = 8 << 20;

/// One address that is listened at.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address for UDP and TCP; with port 0 the system chooses one for both.
    pub address: SocketAddr,
    /// How long a datagram's question waits for what is not known yet.
    pub wait: Duration,
    /// Threads that answer datagrams, each with a socket; at least one.
    pub workers: usize,
}

/// The DNS face at one address, bound and not served yet.
#[derive(Debug)]
pub struct Dns {
    /// The address, with the port that the system chose.
    pub address: SocketAddr,
    wait: Duration,
    udp: Vec<Arc<UdpListener>>,
    tcp: std::net::TcpListener,
}

/// What waiting questions need.
#[derive(Debug)]
struct Waits {
    wait: Duration,
    /// Counts and leaves nothing that was counted and left when the question came.
    front: Front,
    socket: UdpSocket,
    places: Arc<Semaphore>,
    runtime: tokio::runtime::Handle,
}

impl Dns {
    /// Binds TCP and UDP.
    ///
    /// # Errors
    /// What the system says.
    pub fn bind(options: &Options) -> io::Result<Dns> {
        let (tcp, udp) = net::listen::both(options.address, |address| {
            net::udp::bind_each(address, options.workers, Some(RECEIVE_BUFFER))
        })?;
        if let Some(short) = net::udp::short_of(&udp, RECEIVE_BUFFER) {
            tracing::warn!("{short}");
        }
        Ok(Dns { address: tcp.local_addr()?, wait: options.wait, udp, tcp })
    }

    /// Serves until `shutdown` begins; returns the threads, which end then.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub fn serve(
        self,
        front: &Front,
        acl: &Acl,
        numbers: &Numbers,
        tasks: &mut tokio::task::JoinSet<()>,
        shutdown: &Shutdown,
    ) -> io::Result<Vec<JoinHandle<()>>> {
        let clock = numbers.clock;
        let mut threads = Vec::new();
        let places = Arc::new(Semaphore::new(WAITING_MAX));
        for (index, listener) in self.udp.into_iter().enumerate() {
            let (front, acl, panics) = (front.for_thread(), acl.clone(), numbers.panics.clone());
            numbers.add("dns", &front);
            numbers.add_socket(&listener);
            let waits = if self.wait.is_zero() {
                None
            } else {
                // Answers that come later are sent past the batch, through the same socket.
                let socket = UdpSocket::from(listener.as_fd().try_clone_to_owned()?);
                let runtime = tokio::runtime::Handle::current();
                let (wait, front, places) = (self.wait, front.waiting(), places.clone());
                Some(Arc::new(Waits { wait, front, socket, places, runtime }))
            };
            let stop = listener.clone();
            shutdown.on_begin(move || stop.stop());
            let name = format!("dns-{}-{index}", self.address.port());
            let work = move || work(&listener, &front, &acl, clock, waits.as_ref(), &panics);
            threads.push(std::thread::Builder::new().name(name).spawn(work)?);
        }
        let (front, acl, shutdown, tcp) = (front.for_thread(), acl.clone(), shutdown.clone(), self.tcp);
        numbers.add("dns", &front);
        let counters = Arc::new(net::tcp::Counters::default());
        numbers.add_connections("dns", Connections::Dns(counters.clone()));
        tasks.spawn(async move {
            let handler = |client: SocketAddr, _: SocketAddr| {
                let (front, allowed) = (front.clone(), acl.allows(client.ip()));
                move |message: &[u8], out: &mut [u8]| {
                    if !allowed {
                        return Verdict::Close;
                    }
                    let now = seconds(clock.now());
                    match answer(&front, &front.view(), message, client.ip(), now, Some(out.len()), out) {
                        Reply::Send(length) | Reply::NotYet(length, _) => Verdict::Reply(length),
                        Reply::Drop => Verdict::Drop,
                    }
                }
            };
            let limits = Limits::default();
            let places = Arc::new(limits.admission());
            let told = |cause: &io::Error| {
                tracing::warn!(%cause, "TCP cannot accept connections; it is tried again and again");
            };
            let served =
                net::tcp::serve((tcp, None), places, limits, counters, shutdown, told, handler).await;
            if let Err(cause) = served {
                tracing::error!(%cause, "TCP is not served");
            }
        });
        Ok(threads)
    }
}

fn work(
    listener: &UdpListener,
    front: &Front,
    acl: &Acl,
    clock: Clock,
    waits: Option<&Arc<Waits>>,
    panics: &AtomicU64,
) {
    if let Err(cause) = net::thread::come_soon() {
        tracing::warn!(%cause, "answers wait for whoever has begun a slice of their core");
    }
    let mut batch = Batch::new(usize::from(UDP_PAYLOAD));
    loop {
        match batch.receive(listener) {
            Ok(0) => return,
            Ok(_) => {}
            Err(cause) => {
                let failures = listener.receive_failures();
                tracing::error!(%cause, failures, "receiving fails; it is tried again");
                continue;
            }
        }
        let (view, now) = (front.view(), seconds(clock.now()));
        // So that all wait for memory together, and not each for its own.
        let mut wanted = [IpAddr::V4(Ipv4Addr::UNSPECIFIED); BATCH_MAX];
        let glances = batch.queries().filter_map(glance);
        let count = wanted.iter_mut().zip(glances).map(|(wanted, address)| *wanted = address).count();
        view.approach_each(&wanted[..count]);
        batch.answer_each(|datagram, out| {
            let Datagram { bytes, client, .. } = datagram;
            // Nothing at all to strangers: an answer would be sent to whomever they name.
            if !acl.allows(client.ip()) {
                front.counts().refused.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            // Nobody else counts there.
            let door_full = || front.counts().door_full.load(Ordering::Relaxed);
            let before = door_full();
            let answered =
                catch_unwind(AssertUnwindSafe(|| answer(front, &view, bytes, client.ip(), now, None, out)));
            match answered {
                Ok(Reply::Send(length)) => Some(length),
                // What found no room at the door is not learned, and not worth the wait.
                Ok(Reply::NotYet(length, address)) => match waits {
                    Some(waits) if door_full() == before && waits.answer_later(&datagram, address, clock) => {
                        None
                    }
                    _ => Some(length),
                },
                Ok(Reply::Drop) => None,
                Err(_) => {
                    panics.fetch_add(1, Ordering::Relaxed);
                    None
                }
            }
        });
        drop(view);
        batch.send(listener);
    }
}

impl Waits {
    /// Answers when it is known, or when it has waited long enough; false where too many wait.
    fn answer_later(self: &Arc<Self>, datagram: &Datagram<'_>, address: IpAddr, clock: Clock) -> bool {
        let Ok(place) = self.places.clone().try_acquire_owned() else { return false };
        let Datagram { bytes, client, server, .. } = *datagram;
        let (waits, message) = (self.clone(), bytes.to_vec());
        self.runtime.spawn(async move {
            let front = &waits.front;
            let until = tokio::time::Instant::now() + waits.wait;
            let mut out = [0; UDP_PAYLOAD as usize];
            loop {
                let mut learned = std::pin::pin!(front.learned().of(address).notified());
                // Before the look: what is learned between the two is not missed.
                learned.as_mut().enable();
                let now = seconds(clock.now());
                let is_last = tokio::time::Instant::now() >= until;
                let reply = answer(front, &front.view(), &message, client.ip(), now, None, &mut out);
                match reply {
                    Reply::NotYet(..) if !is_last => {}
                    Reply::Send(length) | Reply::NotYet(length, _) => {
                        // From the address that was asked, as those of the batch.
                        let mut outgoing = Outgoing::new();
                        outgoing.push(&out[..length], Some(client), Some(server.ip()));
                        outgoing.send(&waits.socket, |_| {});
                        break;
                    }
                    Reply::Drop => break,
                }
                let _ = tokio::time::timeout_at(until, learned).await;
            }
            drop(place);
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::task::JoinSet;

    use super::*;
    use crate::face::dns::tests::front;
    use crate::question::{Ask, question};

    /// The face at loopback with one thread, and what ends it.
    struct Serving {
        at: SocketAddr,
        numbers: Numbers,
        threads: Vec<JoinHandle<()>>,
        tasks: JoinSet<()>,
        shutdown: Shutdown,
    }

    impl Serving {
        fn begin(dns: Dns, front: &Front) -> Serving {
            let numbers = Numbers::new(Clock::new(), Arc::default(), Vec::new(), None);
            let (at, mut tasks, shutdown) = (dns.address, JoinSet::new(), Shutdown::new());
            let served = dns.serve(front, &Acl::default(), &numbers, &mut tasks, &shutdown);
            Serving { at, numbers, threads: served.expect("it starts"), tasks, shutdown }
        }

        async fn end(mut self) {
            self.shutdown.begin();
            while self.tasks.join_next().await.is_some() {}
            for thread in self.threads {
                thread.join().expect("the thread survives");
            }
        }
    }

    fn bind(wait: Duration) -> (Dns, UdpSocket) {
        let address = "127.0.0.1:0".parse().expect("an address");
        let dns = Dns::bind(&Options { address, wait, workers: 1 }).expect("loopback binds");
        let client = UdpSocket::bind(address).expect("loopback binds");
        (dns, client)
    }

    fn ask(last: u8) -> Vec<u8> {
        question(IpAddr::from([198, 51, 100, last]), &Ask::Name, last.into())
    }

    #[tokio::test]
    async fn a_receive_call_that_fails_is_counted_and_made_again() {
        let (dns, client) = bind(Duration::ZERO);
        // A socket that has sent to a port where nobody listens is told so as it receives next.
        let same = UdpSocket::from(dns.udp[0].as_fd().try_clone_to_owned().expect("it can be cloned"));
        let closed = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        same.connect(closed.expect("loopback binds")).expect("an address of the same family");
        same.send(b"anybody").expect("loopback takes it");
        same.connect(client.local_addr().expect("it is bound")).expect("an address of the same family");

        let (front, _door) = front();
        let serving = Serving::begin(dns, &front);
        client.send_to(&ask(9), serving.at).expect("loopback takes it");
        client.recv(&mut [0; 512]).expect("an answer");
        assert_eq!(serving.numbers.receive_failures(), 1);
        serving.end().await;
    }

    #[tokio::test]
    async fn who_waits_is_answered_from_the_address_that_was_asked() {
        let address = "0.0.0.0:0".parse().expect("an address");
        let wait = Duration::from_millis(1);
        let dns = Dns::bind(&Options { address, wait, workers: 1 }).expect("any address binds");
        let (front, _door) = front();
        let serving = Serving::begin(dns, &front);
        let client = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        // Takes datagrams from there only.
        client.connect(("127.0.0.2", serving.at.port())).expect("loopback connects");
        client.send(&ask(9)).expect("loopback takes it");
        let answered = tokio::task::spawn_blocking(move || {
            client.set_read_timeout(Some(Duration::from_secs(30))).expect("not zero");
            client.recv(&mut [0; 512])
        });
        answered.await.expect("it does not panic").expect("an answer");
        serving.end().await;
    }

    #[tokio::test]
    async fn what_finds_the_door_full_is_answered_at_once_and_who_waits_leaves_nothing_again() {
        let (dns, client) = bind(Duration::from_secs(3600));
        let (front, mut door) = front();
        let serving = Serving::begin(dns, &front);
        // Eight have room, and wait.
        for last in 1..=9 {
            client.send_to(&ask(last), serving.at).expect("loopback takes it");
        }
        client.set_read_timeout(Some(Duration::from_secs(30))).expect("not zero");
        let mut answer = [0; 512];
        client.recv(&mut answer).expect("an answer");
        assert_eq!(answer[..2], [0, 9]);
        let wanted: Vec<IpAddr> =
            std::iter::from_fn(|| door.try_recv().ok()).map(|one| one.address).collect();
        assert_eq!(wanted, (1..=8).map(|last| IpAddr::from([198, 51, 100, last])).collect::<Vec<_>>());
        // Those look again, and again nothing is known.
        front.learned().tell_all();
        tokio::task::yield_now().await;
        assert!(door.try_recv().is_err());
        serving.end().await;
    }
}
