//! All of the balancer, started and stopped.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use fastrand::Rng;
use net::clock::Clock;
use net::udp::UdpListener;
use routing::balance::Policy;

use crate::counters::FrontCounters;
use crate::field::{BackEnd, Field};
use crate::picker::{For, Picker};
use crate::worker::{Limits, Worker};

/// The most worker threads for one address: more than any machine has cores that a socket could use.
pub const WORKERS_MAX: usize = 256;

/// Room for queries that wait for a worker, in octets: a burst of some five thousand.
const RECEIVE_BUFFER: usize = 4 << 20;

/// What a balancer is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The addresses to answer at.
    pub listen: Vec<SocketAddr>,
    /// The back ends, with their weights.
    pub back_ends: Vec<(SocketAddr, u32)>,
    /// The policy's name, one of `routing::balance::NAMES`.
    pub policy: String,
    /// Worker threads for each address; a thread for each core that we may use where not given.
    pub workers: Option<usize>,
    /// How long a back end may take.
    pub timeout: Duration,
    /// To how many back ends a query may go, one after the other.
    pub tries: usize,
    /// Sockets of each worker for each back end.
    pub sockets: usize,
    /// Queries that wait at a time, of all workers together.
    pub outstanding_max: usize,
    /// The same of one client, at each worker.
    pub per_client_max: u16,
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
    listening: Vec<SocketAddr>,
    stops: Arc<AtomicBool>,
    listeners: Vec<Arc<UdpListener>>,
    threads: Vec<JoinHandle<()>>,
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
        let mut bound = Vec::new();
        for address in &options.listen {
            bound.extend(bind(*address, workers).map_err(StartError::Bind)?);
        }
        let mut listening: Vec<SocketAddr> = bound.iter().map(|listener| listener.local_address()).collect();
        listening.dedup();
        let (clock, stops) = (Clock::new(), Arc::new(AtomicBool::new(false)));
        let timeout_ns = u64::try_from(options.timeout.as_nanos()).unwrap_or(u64::MAX);
        let limits = Limits {
            timeout_ns,
            tries: options.tries,
            sockets: options.sockets,
            outstanding_max: options.outstanding_max.div_ceil(all),
            per_client_max: options.per_client_max,
        };
        let mut service =
            Service { listening, stops: stops.clone(), listeners: bound.clone(), threads: Vec::new() };
        // Ids must not be foreseen: each thread draws from a seed of the system's.
        for (index, listener) in bound.into_iter().enumerate() {
            let rng = Rng::with_seed(seed());
            let worker = Worker {
                index,
                core: Some(cores[index % workers % cores.len()]),
                listener,
                field: field.clone(),
                picker: Picker::new(policy.clone(), For::Datagrams, index, timeout_ns, rng),
                counters: Arc::<FrontCounters>::default(),
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
        Ok(service)
    }

    /// The addresses that are answered at, ports as they were given by the system.
    pub fn listening(&self) -> &[SocketAddr] {
        &self.listening
    }

    /// Ends all of it; what is in flight is waited for.
    pub async fn stop(self) {
        self.stops.store(true, Ordering::Release);
        self.listeners.iter().for_each(|listener| listener.stop());
        for thread in self.threads {
            // A thread only ends by itself; what it panicked with has been logged.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
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

/// Sockets of one address for so many workers.
fn bind(address: SocketAddr, workers: usize) -> io::Result<Vec<Arc<UdpListener>>> {
    let first = net::udp::bind(address, Some(RECEIVE_BUFFER))?;
    let address = first.local_address();
    let others = (1..workers).map(|_| net::udp::bind(address, Some(RECEIVE_BUFFER)));
    std::iter::once(Ok(first)).chain(others).map(|bound| bound.map(Arc::new)).collect()
}

/// Draws a number that nobody can foresee: the standard library's hasher is keyed by the system's randomness.
fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}
