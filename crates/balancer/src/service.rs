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
use net::bind_error::{BindError, Transport};
use net::clock::Clock;
use net::privileges::{self, PrivilegesError};
use net::shutdown::Shutdown;
use net::tcp::Limits as TcpLimits;
use net::tls::client::Encrypted;
use net::tls::identity::Identity;
use net::udp::{RECEIVE_BUFFER, UdpListener, WORKERS_MAX};
use quinn::Endpoint;
use routing::Acl;
use routing::balance::Policy;
use rustls::ClientConfig;
use tap::{Kinds, Writer, Writing};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::cache::{Cache, Caching};
use crate::client_address::ClientAddress;
use crate::clients::Clients;
use crate::connections::{Connections, Desk, Onward};
use crate::conversation::PIPELINED_MAX;
use crate::counters::FrontCounters;
use crate::credits::Credits;
use crate::descriptors::Descriptors;
use crate::field::{BackEnd, Field, Pools};
use crate::front::{self, Over};
use crate::http::back_ends::Editing;
use crate::http::{self, Http};
use crate::numbers::Numbers;
use crate::picker::{For, Picker};
use crate::quic;
use crate::rules::{Rule, Rules};
use crate::watch::{self, Probing};
use crate::worker::{Limits, Worker};

/// How long rules that were replaced are kept: workers look for others much more often.
const LET_GO: Duration = Duration::from_secs(1);

/// What a balancer is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The addresses to answer at, over UDP and TCP; at least one.
    pub listen: Vec<SocketAddr>,
    /// The back ends, each address once; at most `routing::balance::BACK_ENDS_MAX`.
    pub back_ends: Vec<Server>,
    /// The names of pools, by their numbers: the first one takes what no rule sends elsewhere. From 1 to
    /// [`POOLS_MAX`](crate::field::POOLS_MAX).
    pub pools: Vec<String>,
    /// Which pool takes a query, and what is answered here; at most [`RULES_MAX`](crate::rules::RULES_MAX).
    pub rules: Vec<Rule>,
    /// The policy's name, one of `routing::balance::NAMES`.
    pub policy: String,
    /// The user to become once all is bound; the one that started it where not given.
    pub user: Option<String>,
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
    /// Who may ask; everybody where it is not given.
    pub allow: Option<Acl>,
    /// How back ends learn whose query it is.
    pub client_address: ClientAddress,
    /// Which answers are given again; none where it is not given.
    pub cache: Option<Caching>,
    /// Who is told of queries and answers, if anybody.
    pub tap: Option<tap::Config>,
    /// What clients over connections may hold.
    pub tcp: TcpLimits,
    /// Further addresses to answer at, with what is spoken there.
    pub encrypted: Vec<(SocketAddr, Over)>,
    /// Addresses to answer at over QUIC, with what is shown there.
    pub quic: Vec<(SocketAddr, Arc<Identity>)>,
    /// How back ends are watched.
    pub probing: Probing,
    /// Whose certificates are believed of back ends over TLS that come while it runs; none may come where it is not given.
    pub trust: Option<Arc<ClientConfig>>,
    /// Where agents send their reports, with the key that they share.
    pub credit: Option<(SocketAddr, credit::Key)>,
    /// Where HTTP is answered; nowhere where not given.
    pub http: Option<SocketAddr>,
    /// The token that HTTP asks for, where it asks for one.
    pub token: Option<String>,
}

/// A back end to begin with.
#[derive(Clone, Debug)]
pub struct Server {
    /// Where it answers.
    pub address: SocketAddr,
    /// How it is asked over TLS, and there alone; over UDP and TCP where that is not given.
    pub tls: Option<Encrypted>,
    /// Its weight, from 1.
    pub weight: u32,
    /// The pools that it is in.
    pub pools: Pools,
}

/// As it is written: its address, and behind `#` the name that its certificate is for.
impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.tls {
            Some(Encrypted { name, .. }) => write!(f, "{}#{}", self.address, name.to_str()),
            None => self.address.fmt(f),
        }
    }
}

/// Why a balancer did not start.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be had.
    Bind(io::Error),
    /// The system refused a thread or a socket.
    System(io::Error),
    /// Root could not be given away.
    User(PrivilegesError),
    /// The file for dnstap cannot be written.
    Tap(String),
    /// The options contradict each other.
    Options(String),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Bind(cause) => write!(f, "failed to {cause}"),
            StartError::System(cause) => write!(f, "the system refused a thread or a socket: {cause}"),
            StartError::User(cause) => write!(f, "failed to {cause}"),
            StartError::Tap(what) | StartError::Options(what) => f.write_str(what),
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
    editing: Arc<Editing>,
    listeners: Vec<Weak<UdpListener>>,
    /// Keep the ports until the threads have ended.
    ports: Vec<TcpListener>,
    threads: Vec<JoinHandle<()>>,
    tasks: JoinSet<()>,
    tap: Option<Writing>,
}

/// All that a balancer listens with. It is had before anything runs, so that nothing runs where some of it is refused.
struct Bound {
    /// For datagrams: one for each worker.
    sockets: Vec<Arc<UdpListener>>,
    /// For connections, and once more to keep the ports when these are closed.
    streams: Vec<(tokio::net::TcpListener, Over)>,
    quic: Vec<(Endpoint, Arc<Identity>)>,
    ports: Vec<TcpListener>,
    /// At which addresses these are.
    addresses: Vec<SocketAddr>,
    credits: Option<Credits>,
    pages: Option<tokio::net::TcpListener>,
    /// All addresses, with what is answered there.
    listening: Vec<(&'static str, SocketAddr)>,
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
        let field = field(&options, all + 1)
            .ok_or_else(|| StartError::Options("there are too many back ends".into()))?;
        let field = Arc::new(ArcSwap::from_pointee(field));
        let connections_max = options.tcp.connections_max;
        let descriptors = Descriptors::raise(all, options.sockets, connections_max, datagrams_max(&options));
        descriptors.check(options.back_ends.len());
        let (clock, stops) = (Clock::new(), Arc::new(AtomicBool::new(false)));
        let bound = Bound::bind(&options, workers, &field, clock).await?;
        if let Some(short) = net::udp::short_of(&bound.sockets, RECEIVE_BUFFER) {
            tracing::warn!("{short}");
        }
        if let Some(user) = &options.user {
            privileges::drop_to(user).map_err(StartError::User)?;
        }
        let mut writer = options.tap.clone().map(|config| Writer::new(config, Kinds::CLIENT));
        if let Some(writer) = &mut writer {
            writer.make_file().map_err(StartError::Tap)?;
        }
        let limits = limits(&options, all);
        let fronts: Vec<Arc<FrontCounters>> = (0..=all).map(|_| Arc::default()).collect();
        let cache = options.cache.map(|caching| Arc::new(Cache::new(&caching, seed())));
        let listeners: Vec<Weak<UdpListener>> = bound.sockets.iter().map(Arc::downgrade).collect();
        let numbers = Arc::new(Numbers {
            clock,
            policy: options.policy.clone(),
            listening: bound.addresses,
            field: field.clone(),
            fronts: fronts.clone(),
            sockets: listeners.clone(),
            credits: bound.credits.as_ref().map(Credits::counters),
            cache: cache.clone(),
            tap: writer.as_ref().map(|writer| writer.counters().clone()),
        });
        let mut service = Service {
            listening: bound.listening,
            stops: stops.clone(),
            shutdown: Shutdown::new(),
            editing: Arc::new(Editing::new(field.clone(), all + 1, descriptors, options.trust.clone())),
            listeners,
            ports: bound.ports,
            threads: Vec::new(),
            tasks: JoinSet::new(),
            tap: None,
        };
        // Ids must not be foreseen: each thread draws from a seed of the system's.
        let hash_seed = seed();
        let picker = |transport, thread| {
            let rng = Rng::with_seed(seed());
            Picker::new(policy.clone(), transport, thread, limits.timeout_ns, hash_seed, rng)
        };
        let doubted = Arc::new(Notify::new());
        let threads = bound.sockets.into_iter().enumerate().map(|(index, listener)| Worker {
            index,
            core: Some(cores[index % workers % cores.len()]),
            listener,
            field: field.clone(),
            picker: picker(For::Datagrams, index),
            counters: fronts[index].clone(),
            stops: stops.clone(),
            clock,
            limits,
            allow: options.allow.clone(),
            cache: cache.clone(),
            doubted: doubted.clone(),
            runtime: Handle::current(),
            tap: writer.as_mut().map(Writer::tap),
        });
        let threads: Vec<Worker> = threads.collect();
        let tap = writer.as_mut().map(Writer::tap);
        let begun = writer.map(Writer::start).transpose().and_then(|writing| {
            service.tap = writing;
            service.spawn(threads)
        });
        if let Err(cause) = begun {
            service.stop().await;
            return Err(StartError::System(cause));
        }
        // From here on nothing can fail.
        let desk = Desk {
            picker: picker(options.onward.transport(), all),
            counters: fronts[all].clone(),
            outstanding: 0,
            clients: Clients::new(limits.per_client_max),
            tap,
        };
        let connections = Arc::new(connections(&options, field.clone(), desk, cache, clock));
        let Service { editing, shutdown, tasks, .. } = &mut service;
        for (listener, over) in bound.streams {
            tasks.spawn(front::serve(connections.clone(), listener, over, shutdown.clone()));
        }
        for (endpoint, identity) in bound.quic {
            tasks.spawn(quic::serve(connections.clone(), endpoint, identity, shutdown.clone()));
        }
        if let Some(credits) = bound.credits {
            tasks.spawn(credits.run(shutdown.clone()));
        }
        tasks.spawn(watch::run(field.clone(), options.probing, clock, doubted, shutdown.clone()));
        if let Some(listener) = bound.pages {
            let router = http::router(Http { numbers, editing: editing.clone() }, options.token);
            // Whoever has the token, or is on this machine, may ask: there is no list.
            tasks.spawn(web::serve(listener, router, |_| true, Arc::default(), shutdown.clone()));
        }
        Ok(service)
    }

    /// The addresses that are listened at, with what is answered there, ports as they were given by the system.
    pub fn listening(&self) -> &[(&'static str, SocketAddr)] {
        &self.listening
    }

    /// Has queries that come from now on go by these rules; at most [`RULES_MAX`](crate::rules::RULES_MAX). Counts of those
    /// whose names there were before go on.
    pub async fn replace_rules(&self, rules: Vec<Rule>) {
        let _turn = self.editing.turn.lock().await;
        let field = self.editing.field.load_full();
        let rules = Arc::new(Rules::new(rules, &field.rules));
        self.editing.field.store(Arc::new(Field { rules, ..(*field).clone() }));
        // Whoever lets go of it last frees all of its names, and workers have queries to answer.
        tokio::spawn(async move {
            tokio::time::sleep(LET_GO).await;
            drop(field);
        });
    }

    /// Begins a new file for dnstap, where it goes into one.
    pub fn reopen_tap(&self) {
        if let Some(tap) = &self.tap {
            tap.reopen();
        }
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
        if let Some(tap) = self.tap {
            let _ = tokio::task::spawn_blocking(move || tap.stop()).await;
        }
    }

    fn spawn(&mut self, workers: Vec<Worker>) -> io::Result<()> {
        for worker in workers {
            self.threads.push(worker.spawn()?);
        }
        Ok(())
    }
}

impl Bound {
    async fn bind(
        options: &Options,
        workers: usize,
        field: &Arc<ArcSwap<Field>>,
        clock: Clock,
    ) -> Result<Bound, StartError> {
        let (mut sockets, mut streams, mut ports) = (Vec::new(), Vec::new(), Vec::new());
        let mut listening = Vec::new();
        for address in &options.listen {
            let each = |address| net::udp::bind_each(address, workers, Some(RECEIVE_BUFFER));
            let (port, each) = net::listen::both(*address, each).map_err(StartError::Bind)?;
            sockets.extend(each);
            listening.push((Over::Tcp.name(), port.local_addr().map_err(StartError::System)?));
            let stream = port.try_clone().and_then(tokio::net::TcpListener::from_std);
            streams.push((stream.map_err(StartError::System)?, Over::Tcp));
            ports.push(port);
        }
        for (address, over) in &options.encrypted {
            let stream = net::tcp::bind(*address).map_err(StartError::Bind)?;
            listening.push((over.name(), stream.local_addr().map_err(StartError::System)?));
            let stream = tokio::net::TcpListener::from_std(stream).map_err(StartError::System)?;
            streams.push((stream, over.clone()));
        }
        let mut quic = Vec::new();
        for (address, identity) in &options.quic {
            let socket = net::udp::bind_alone(*address).map_err(StartError::Bind)?;
            listening.push((quic::NAME, socket.local_addr().map_err(StartError::System)?));
            let endpoint = quic::open(socket, identity, &options.tcp).map_err(StartError::System)?;
            quic.push((endpoint, identity.clone()));
        }
        let addresses = listening.iter().map(|(_, address)| *address).collect();
        let pages = options.http.map(net::tcp::bind).transpose().map_err(StartError::Bind)?;
        let pages = pages.map(tokio::net::TcpListener::from_std).transpose().map_err(StartError::System)?;
        let credits = match &options.credit {
            Some((address, key)) => {
                let names = (name(&options.listen), seed());
                let credits = Credits::bind(*address, key.clone(), names, field.clone(), clock).await;
                let not_bound = |cause| BindError::wrap(Transport::Udp, *address, cause);
                Some(credits.map_err(|cause| StartError::Bind(not_bound(cause)))?)
            }
            None => None,
        };
        if let Some(credits) = &credits {
            listening.push(("credit", credits.local_address().map_err(StartError::System)?));
        }
        if let Some(pages) = &pages {
            listening.push(("HTTP", pages.local_addr().map_err(StartError::System)?));
        }
        Ok(Bound { sockets, streams, quic, ports, addresses, credits, pages, listening })
    }
}

/// The back ends to begin with, each counted by so many threads; `None` where there are too many.
fn field(options: &Options, threads: usize) -> Option<Field> {
    let rules = Arc::new(Rules::new(options.rules.clone(), &Rules::default()));
    let none = Field { places: Vec::new(), pools: options.pools.clone().into(), rules };
    options.back_ends.iter().try_fold(none, |field, Server { address, tls, weight, pools }| {
        let back_end = |place| BackEnd::new(place, *address, *weight, threads);
        field.with(|place| back_end(place).of_pools(*pools).over_tls(tls.clone()))
    })
}

/// Datagrams that queries of connections wait with at a time: each try has a socket of its own, and keeps it for an answer
/// that comes late.
fn datagrams_max(options: &Options) -> usize {
    match options.onward {
        Onward::Connections => 0,
        Onward::Datagrams => {
            let of_connections = options.tcp.connections_max.saturating_mul(PIPELINED_MAX);
            options.outstanding_max.min(of_connections).saturating_mul(options.tries)
        }
    }
}

/// What each of so many workers is held to.
fn limits(options: &Options, workers: usize) -> Limits {
    Limits {
        timeout_ns: u64::try_from(options.timeout.as_nanos()).unwrap_or(u64::MAX),
        tries: options.tries,
        sockets: options.sockets,
        outstanding_max: options.outstanding_max.div_ceil(workers),
        per_client_max: options.per_client_max,
        client_address: options.client_address,
        // Over datagrams a query of a connection would find the same queues full.
        steers: options.onward == Onward::Connections,
    }
}

/// What the connections of clients share.
fn connections(
    options: &Options,
    field: Arc<ArcSwap<Field>>,
    desk: Desk,
    cache: Option<Arc<Cache>>,
    clock: Clock,
) -> Connections {
    Connections {
        field,
        desk: Mutex::new(desk),
        onward: options.onward,
        client_address: options.client_address,
        clock,
        timeout: options.timeout,
        tries: options.tries,
        outstanding_max: options.outstanding_max,
        limits: options.tcp,
        admission: Arc::new(options.tcp.admission()),
        allow: options.allow.clone(),
        cache,
    }
}

/// Draws a number that nobody can foresee: the standard library's hasher is keyed by the system's randomness.
fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// What this balancer is called by its agents: the same after a restart, and another one on another host (FNV-1a).
fn name(listen: &[SocketAddr]) -> u64 {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let text = format!("{} {listen:?}", host.to_string_lossy());
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, octet| (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3))
}
