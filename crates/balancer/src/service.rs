//! All of the balancer, started and stopped.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use fastrand::Rng;
use net::clock::Clock;
use net::shutdown::Shutdown;
use net::tcp::Limits as TcpLimits;
use net::udp::UdpListener;
use routing::balance::Policy;
use tokio::task::JoinSet;

use crate::client_address::ClientAddress;
use crate::clients::Clients;
use crate::connections::{Connections, Desk, Onward};
use crate::counters::FrontCounters;
use crate::credits::Credits;
use crate::descriptors::Descriptors;
use crate::exchange::Pool;
use crate::field::{BackEnd, Field};
use crate::http::back_ends::Editing;
use crate::http::{self, Http};
use crate::numbers::Numbers;
use crate::picker::{For, Picker};
use crate::watch::{self, Probing};
use crate::worker::{Limits, Worker};

/// The most worker threads for one address: more than any machine has cores that a socket could use.
pub const WORKERS_MAX: usize = 256;

/// Room for queries that wait for a worker, in octets: a burst of some five thousand.
const RECEIVE_BUFFER: usize = 4 << 20;

/// What a balancer is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The addresses to answer at, over UDP and TCP; at least one.
    pub listen: Vec<SocketAddr>,
    /// The back ends, with their weights from 1.
    pub back_ends: Vec<(SocketAddr, u32)>,
    /// The policy's name, one of `routing::balance::NAMES`.
    pub policy: String,
    /// Worker threads for each address; a thread for each core that we may use where not given.
    pub workers: Option<usize>,
    /// How long one back end may take for an answer.
    pub timeout: Duration,
    /// To how many back ends a query may go, one after the other; from 1.
    pub tries: usize,
    /// Sockets of each worker for each back end.
    pub sockets: usize,
    /// Queries that wait at a time: as datagrams, of which each worker has an equal share, and over connections.
    pub outstanding_max: usize,
    /// Queries of one client that wait at a time, at each worker and over connections.
    pub per_client_max: u16,
    /// How queries over connections go to back ends.
    pub onward: Onward,
    /// How back ends learn whose query it is.
    pub client_address: ClientAddress,
    /// What clients over connections may hold.
    pub tcp: TcpLimits,
    /// How back ends are watched.
    pub probing: Probing,
    /// Where agents send their reports, with the key that they share.
    pub credit: Option<(SocketAddr, credit::Key)>,
    /// Where HTTP is answered; nowhere where not given.
    pub http: Option<SocketAddr>,
}

/// Why a balancer did not start.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be had.
    Bind(io::Error),
    /// The system refused a thread or a socket.
    System(io::Error),
    /// The options contradict each other.
    Options(String),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Bind(cause) => write!(f, "failed to {cause}"),
            StartError::System(cause) => write!(f, "the system refused a thread or a socket: {cause}"),
            StartError::Options(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for StartError {}

/// A balancer that balances.
#[derive(Debug)]
pub struct Service {
    listening: Vec<(&'static str, SocketAddr)>,
    stops: Arc<AtomicBool>,
    shutdown: Shutdown,
    listeners: Vec<Weak<UdpListener>>,
    /// Keep the ports until the threads have ended.
    ports: Vec<TcpListener>,
    threads: Vec<JoinHandle<()>>,
    tasks: JoinSet<()>,
}

impl Service {
    /// Starts everything; returns when queries are taken.
    ///
    /// # Errors
    /// [`StartError`]; nothing of the balancer is left then.
    pub async fn start(options: Options) -> Result<Service, StartError> {
        let cores = net::thread::cores().map_err(StartError::System)?;
        let workers = options.workers.unwrap_or(cores.len()).clamp(1, WORKERS_MAX);
        let all = workers * options.listen.len();
        let policy = Policy::from_name(&options.policy)
            .ok_or_else(|| StartError::Options(format!("there is no policy {}", options.policy)))?;
        let mut field = Field::default();
        for (address, weight) in &options.back_ends {
            field = field
                .with(|place| BackEnd::new(place, *address, *weight, all + 1))
                .ok_or_else(|| StartError::Options("there are too many back ends".into()))?;
        }
        let field = Arc::new(ArcSwap::from_pointee(field));
        let descriptors = Descriptors::raise(all, options.sockets, options.tcp.connections_max);
        descriptors.check(options.back_ends.len());
        let (mut bound, mut streams) = (Vec::new(), Vec::new());
        for address in &options.listen {
            let sockets = |address| net::udp::bind_each(address, workers, Some(RECEIVE_BUFFER));
            let (stream, sockets) = net::listen::both(*address, sockets).map_err(StartError::Bind)?;
            bound.extend(sockets);
            streams.push((stream.local_addr().map_err(StartError::System)?, stream));
        }
        let pages = options.http.map(bind_page).transpose().map_err(StartError::Bind)?;
        let (clock, stops) = (Clock::new(), Arc::new(AtomicBool::new(false)));
        let credits = match &options.credit {
            Some((address, key)) => {
                let names = (name(&options.listen), seed());
                let credits = Credits::bind(*address, key.clone(), names, field.clone(), clock).await;
                Some(credits.map_err(|cause| StartError::Bind(not_bound(*address, cause)))?)
            }
            None => None,
        };
        let timeout_ns = u64::try_from(options.timeout.as_nanos()).unwrap_or(u64::MAX);
        let limits = Limits {
            timeout_ns,
            tries: options.tries,
            sockets: options.sockets,
            outstanding_max: options.outstanding_max.div_ceil(all),
            per_client_max: options.per_client_max,
            client_address: options.client_address,
        };
        let addresses: Vec<SocketAddr> = streams.iter().map(|(address, _)| *address).collect();
        let fronts: Vec<Arc<FrontCounters>> = (0..=all).map(|_| Arc::default()).collect();
        let numbers = Arc::new(Numbers {
            clock,
            policy: options.policy.clone(),
            listening: addresses.clone(),
            field: field.clone(),
            fronts: fronts.clone(),
            sockets: bound.iter().map(Arc::downgrade).collect(),
            credits: credits.as_ref().map(Credits::counters),
        });
        let mut service = Service {
            listening: addresses.iter().map(|address| ("DNS", *address)).collect(),
            stops: stops.clone(),
            shutdown: Shutdown::new(),
            listeners: bound.iter().map(Arc::downgrade).collect(),
            ports: Vec::new(),
            threads: Vec::new(),
            tasks: JoinSet::new(),
        };
        // Ids must not be foreseen: each thread draws from a seed of the system's.
        let hash_seed = seed();
        for (index, listener) in bound.into_iter().enumerate() {
            let rng = Rng::with_seed(seed());
            let worker = Worker {
                index,
                core: Some(cores[index % workers % cores.len()]),
                listener,
                field: field.clone(),
                picker: Picker::new(policy.clone(), For::Datagrams, index, timeout_ns, hash_seed, rng),
                counters: fronts[index].clone(),
                stops: stops.clone(),
                clock,
                limits,
            };
            match spawn(worker) {
                Ok(thread) => service.threads.push(thread),
                Err(cause) => {
                    service.stop().await;
                    return Err(StartError::System(cause));
                }
            }
        }
        let rng = Rng::with_seed(seed());
        let picker = Picker::new(policy, options.onward.transport(), all, timeout_ns, hash_seed, rng);
        let connections = Arc::new(Connections {
            field: field.clone(),
            desk: Mutex::new(Desk {
                picker,
                counters: fronts[all].clone(),
                outstanding: 0,
                clients: Clients::new(limits.per_client_max),
            }),
            onward: options.onward,
            client_address: options.client_address,
            pool: Pool::default(),
            clock,
            timeout: options.timeout,
            tries: options.tries,
            outstanding_max: options.outstanding_max,
            limits: options.tcp,
            admission: Arc::new(options.tcp.admission()),
        });
        for (_, stream) in streams {
            service.ports.push(stream.try_clone().map_err(StartError::System)?);
            let listener = tokio::net::TcpListener::from_std(stream).map_err(StartError::System)?;
            service.tasks.spawn(connections.clone().serve(listener, service.shutdown.clone()));
        }
        if let Some(credits) = credits {
            service.listening.push(("credit", credits.local_address().map_err(StartError::System)?));
            service.tasks.spawn(credits.run(service.shutdown.clone()));
        }
        service.tasks.spawn(watch::run(field.clone(), options.probing, clock, service.shutdown.clone()));
        if let Some(listener) = pages {
            let listener = tokio::net::TcpListener::from_std(listener).map_err(StartError::System)?;
            service.listening.push(("HTTP", listener.local_addr().map_err(StartError::System)?));
            let turn = tokio::sync::Mutex::default();
            let editing = Arc::new(Editing { field, threads: all + 1, descriptors, turn });
            let counters = Arc::<web::Counters>::default();
            let router = http::router(Http { numbers, editing });
            let shutdown = service.shutdown.clone();
            // It is bound to an address of this machine.
            service
                .tasks
                .spawn(async move { web::serve(listener, router, |_| true, counters, shutdown).await });
        }
        Ok(service)
    }

    /// The addresses that are listened at, with what is answered there, ports as they were given by the system.
    pub fn listening(&self) -> &[(&'static str, SocketAddr)] {
        &self.listening
    }

    /// Ends all of it; what is in flight is waited for.
    ///
    /// Each thread closes its socket for datagrams when it ends, and then the ports are free: as long as one is open that
    /// nobody reads, the kernel gives it a part of the queries of whoever listens there next. With the port of TCP still
    /// taken, nobody does.
    pub async fn stop(mut self) {
        self.stops.store(true, Ordering::Release);
        self.shutdown.begin();
        self.listeners.iter().filter_map(Weak::upgrade).for_each(|listener| listener.stop());
        for thread in self.threads {
            // A thread only ends by itself; what it panicked with has been logged.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
        drop(self.ports);
        // Last, for a request may take longer than what is in flight.
        while self.tasks.join_next().await.is_some() {}
    }
}

fn spawn(worker: Worker) -> io::Result<JoinHandle<()>> {
    let index = worker.index;
    std::thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
        if let Err(cause) = worker.run() {
            tracing::error!(worker = index, %cause, "the worker ends");
        }
    })
}

/// Draws a number that nobody can foresee: the standard library's hasher is keyed by the system's randomness.
fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Binds HTTP's address.
fn bind_page(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    net::tcp::bind(address)
}

fn not_bound(address: SocketAddr, cause: io::Error) -> io::Error {
    io::Error::other(net::listen::BindError { transport: net::listen::Transport::Udp, address, cause })
}

/// What this balancer is called by its agents: the same after a restart, and another one on another host (FNV-1a).
fn name(listen: &[SocketAddr]) -> u64 {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let text = format!("{host} {listen:?}");
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, octet| (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3))
}
