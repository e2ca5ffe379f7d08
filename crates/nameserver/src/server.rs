//! Start and stop: sockets bound, workers at their cores, the API beside them.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use api::{Fault, Faults};
use net::admission::{Admission, GIVING_WAY_MAX};
use net::clock::Clock;
use net::shutdown::Shutdown;
use net::tcp::{Limits, Verdict};
use net::udp::UdpListener;

use crate::answer::{Asked, Reply, Transport};
use crate::book::Book;
use crate::cookies::Secrets;
use crate::counters::Counters;
use crate::edit::{Applied, Editor, Refused};
use crate::external::{self, Learning};
use crate::fast::Shared;
use crate::generation::Settings;
use crate::health::{self, Probe, Probes, Table, prober};
use crate::http::{self, Tcp};
use crate::import::{self, Import};
use crate::panics::{Panics, Scene};
use crate::publish::Published;
use crate::rate_limit::{self, RateLimit};
use crate::tap::{self, Exchange, Tap, Writer, Writing};
use crate::transfer::{self, Given, Transfers, notifier};
use crate::worker::Worker;

/// The most worker threads for one address: more than any machine has cores that a socket could use.
pub const WORKERS_MAX: usize = 256;

/// Room for queries that wait for a worker, in octets: a burst of some five thousand.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Descriptors that are neither workers' sockets nor TCP connections that are kept, with room to spare: store, API, log,
/// listeners, and connections that give way.
const OTHER_DESCRIPTORS: usize = 128 + GIVING_WAY_MAX;

/// What tells the draws of probes from others that begin with the same seed.
const PROBING: u64 = 0x7072_6f62_6500_0000;

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The addresses to answer at, over UDP and TCP.
    pub listen: Vec<SocketAddr>,
    /// The address of the HTTP API.
    pub api: SocketAddr,
    /// The token that the API asks for, where it asks for one.
    pub token: Option<String>,
    /// The store: `sqlite:PATH`.
    pub store: String,
    /// Worker threads for each address; a thread for each core that we may use where not given.
    pub workers: Option<usize>,
    /// What holds for all answers.
    pub settings: Settings,
    /// Whether cookies are made and checked: with the secrets that are imported, else with one drawn at start.
    pub cookies: bool,
    /// What limits the rate of answers over UDP, where that is limited.
    pub rate_limit: Option<rate_limit::Limits>,
    /// The external proximity service, where there is one.
    pub external: Option<external::Config>,
    /// Who is told of queries and answers, where somebody is.
    pub tap: Option<tap::Config>,
    /// Files to import at start and at [`Server::reload`].
    pub imports: Vec<Import>,
    /// The user to become once all ports are bound.
    pub user: Option<String>,
    /// What all draws begin with; drawn by the system where not given.
    pub seed: Option<u64>,
    /// What TCP clients may hold.
    pub tcp: Limits,
    /// Who may take zones and is told of changes, and the keys for it.
    pub transfer: transfer::Config,
    /// The probes that policies may name.
    pub probes: Probes,
}

/// Why a server did not start.
#[derive(Debug)]
pub enum StartError {
    /// What was given or stored is wrong.
    Faults(Faults),
    /// An address cannot be had.
    Bind(io::Error),
    /// The store cannot be used.
    Store(String),
    /// The file for dnstap cannot be written.
    Tap(String),
    /// Privileges cannot be given away.
    User(String),
    /// The system refused a thread or a socket.
    System(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Faults(faults) => write!(f, "{faults}"),
            StartError::Bind(cause) => write!(f, "failed to {cause}"),
            StartError::User(what) => write!(f, "failed to {what}"),
            StartError::Tap(what) => f.write_str(what),
            StartError::Store(what) => f.write_str(what),
            StartError::System(cause) => write!(f, "the system refused a thread or a socket: {cause}"),
        }
    }
}

impl std::error::Error for StartError {}

/// A server that serves.
pub struct Server {
    listening: Vec<SocketAddr>,
    api: SocketAddr,
    editor: Editor,
    imports: Vec<Import>,
    shutdown: Shutdown,
    workers: Vec<JoinHandle<()>>,
    tasks: tokio::task::JoinSet<()>,
    tap: Option<Writing>,
}

/// The sockets of one address.
struct Bound {
    address: SocketAddr,
    udp: Vec<Arc<UdpListener>>,
    tcp: std::net::TcpListener,
}

/// What the connections of all addresses answer with.
#[derive(Clone)]
struct Answering {
    published: Arc<Published>,
    transfers: Arc<Transfers>,
    fast: Shared,
    panics: Arc<Panics>,
    clock: Clock,
}

impl Server {
    /// Holds the imports against what is stored, as a start would, and changes nothing.
    ///
    /// # Errors
    /// All faults of the imports, or of what is stored.
    pub async fn check(options: &Options) -> Result<(), Faults> {
        let stored = store::Store::peek(&options.store).await;
        let stored = stored.map_err(|cause| Fault::whole("store", cause.to_string(), ""))?;
        let secondaries = &options.transfer.secondaries;
        import::check(&options.imports, &options.probes, secondaries, stored.unwrap_or_default())
    }

    /// Starts everything; returns when all workers serve the stored generation with all imports.
    ///
    /// # Errors
    /// [`StartError`]; nothing of the server is left then.
    pub async fn start(options: Options) -> Result<Server, StartError> {
        let cores = net::thread::cores().map_err(StartError::System)?;
        let workers = options.workers.unwrap_or(cores.len()).clamp(1, WORKERS_MAX);
        let bound = bind(&options.listen, workers)?;
        check_descriptors(options.tcp.connections_max, workers * bound.len());
        let api = tokio::net::TcpListener::bind(options.api).await.map_err(|cause| {
            StartError::Bind(io::Error::other(net::listen::BindError {
                transport: net::listen::Transport::Tcp,
                address: options.api,
                cause,
            }))
        })?;
        let api_address = api.local_addr().map_err(StartError::System)?;
        if let Some(user) = &options.user {
            net::privileges::drop_to(user).map_err(|e| StartError::User(e.to_string()))?;
        }
        // Opened by the user that will write it: files made by root would be out of reach later.
        let store = store::Store::open(&options.store).await.map_err(|e| StartError::Store(e.to_string()))?;
        if let Some(store::Migrated { from, to, copy }) = store.migrated() {
            let copy = copy.display();
            tracing::warn!(from, to, %copy, "the store was an older program's: its tables are new, a copy is kept");
        }
        // The standard library's hasher is keyed by the system's randomness.
        let seed = options.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        let contents = store.load().await.map_err(|e| StartError::Store(e.to_string()))?;
        let answer_max = usize::from(options.settings.udp_payload_max).max(512);
        let mut book = Book::load(contents, seed, options.settings).map_err(StartError::Faults)?;
        if options.cookies {
            book.generation.secrets = Arc::new(Secrets::one(secret().map_err(StartError::System)?));
        }
        let rate_limit = match options.rate_limit {
            Some(limits) => Some(Arc::new(RateLimit::new(limits, secret().map_err(StartError::System)?))),
            None => None,
        };
        let transfers = Arc::new(Transfers::new(options.transfer));
        book.secondaries = Arc::new(transfers.secondaries().clone());
        let (health, probes) = (book.generation.health.clone(), Arc::new(options.probes));
        book.probes = probes.clone();
        let published = Arc::new(Published::new(book.generation.clone(), workers * bound.len()));
        let editor = Editor::start(store, book, published.clone()).map_err(StartError::System)?;
        import(&editor, &options.imports).await?;
        warn_of_steered(&editor.book());
        let mut tap = options.tap.map(Writer::new);
        if let Some(writer) = &mut tap {
            writer.make_file().map_err(StartError::Tap)?;
        }

        let shutdown = Shutdown::new();
        let clock = Clock::new();
        let mut server = Server {
            listening: bound.iter().map(|bound| bound.address).collect(),
            api: api_address,
            editor,
            imports: options.imports,
            shutdown,
            workers: Vec::new(),
            tasks: tokio::task::JoinSet::new(),
            tap: None,
        };
        let learning = match options.external {
            Some(config) => Some(Learning::new(config, secret().map_err(StartError::System)?)),
            None => None,
        };
        let external = learning.as_ref().map(|learning| (learning.external().clone(), clock));
        let fast = Shared { external, ..Shared::default() };
        let mut counters = http::Metrics {
            tap: tap.as_ref().map(|writer| writer.counters().clone()).unwrap_or_default(),
            updates: server.editor.latency(),
            following: server.editor.following(),
            transfers: transfers.counters().clone(),
            fast: fast.clone(),
            external: learning.as_ref().map(|learning| learning.counters().clone()),
            ..http::Metrics::default()
        };
        let panics = Arc::new(Panics::default());
        let admission = Arc::new(options.tcp.admission());
        for bound in bound {
            for listener in bound.udp {
                let index = server.workers.len();
                let worker = Worker {
                    index,
                    core: Some(cores[index % workers % cores.len()]),
                    listener: listener.clone(),
                    transfers: transfers.clone(),
                    fast: fast.clone(),
                    published: published.clone(),
                    counters: Arc::new(Counters::default()),
                    panics: panics.clone(),
                    rate_limit: rate_limit.clone(),
                    tap: tap.as_mut().map(Writer::tap),
                    clock,
                    seed: seed.wrapping_add(index as u64 + 1),
                    answer_max,
                };
                counters.udp.push(worker.counters.clone());
                counters.sockets.push(listener.clone());
                server.shutdown.on_begin(move || listener.stop());
                let name = format!("worker-{index}");
                let thread = std::thread::Builder::new().name(name).spawn(|| worker.run());
                server.workers.push(thread.map_err(StartError::System)?);
            }
            // Workers and connections draw differently: each begins with a number of its own.
            let rng = fastrand::Rng::with_seed(seed ^ u64::from(bound.address.port()));
            let answering = Answering {
                published: published.clone(),
                transfers: transfers.clone(),
                fast: fast.clone(),
                panics: panics.clone(),
                clock,
            };
            let places = (admission.clone(), options.tcp);
            let tap = tap.as_mut().map(Writer::tap);
            server.serve_tcp(bound.tcp, places, answering, (rng, tap), &mut counters);
        }
        server.tap = match tap {
            Some(writer) => Some(writer.start().map_err(StartError::System)?),
            None => None,
        };
        server.probe(health, probes, clock, fastrand::Rng::with_seed(seed ^ PROBING));
        if let Some(learning) = learning {
            let (editor, stop) = (server.editor.clone(), server.shutdown.clone());
            server.tasks.spawn(async move { learning.run(editor, clock, stop).await });
        }
        server.notify(transfers, published, clock, fastrand::Rng::with_seed(seed ^ u64::MAX));
        let requests = counters.api.clone();
        let router = http::router(server.editor.clone(), options.token, counters);
        let stop = server.shutdown.clone();
        server.tasks.spawn(async move {
            // Whoever has the token, or is on this machine, may ask: there is no list.
            web::serve(api, router, |_| true, requests, stop).await;
        });
        Ok(server)
    }

    /// The addresses that are answered at, ports as they were given by the system.
    pub fn listening(&self) -> &[SocketAddr] {
        &self.listening
    }

    /// The address of the API.
    pub fn api_address(&self) -> SocketAddr {
        self.api
    }

    /// Where changes are made.
    pub fn editor(&self) -> &Editor {
        &self.editor
    }

    /// Imports again those files whose content changed, all or none of them, and begins a new file for dnstap.
    ///
    /// # Errors
    /// [`Refused`]; then what serves goes on serving.
    pub async fn reload(&self) -> Result<Applied, Refused> {
        if let Some(tap) = &self.tap {
            tap.reopen();
        }
        self.editor.import(&self.imports).await
    }

    /// Ends all of it: queries that were received are answered, changes that were taken are finished.
    pub async fn stop(mut self) {
        self.shutdown.begin();
        while self.tasks.join_next().await.is_some() {}
        for worker in self.workers {
            // A worker only ends by itself; what it panicked with has been logged.
            let _ = tokio::task::spawn_blocking(move || worker.join()).await;
        }
        if let Some(tap) = self.tap {
            let _ = tokio::task::spawn_blocking(move || tap.stop()).await;
        }
        self.editor.stop().await;
    }

    fn serve_tcp(
        &mut self,
        listener: std::net::TcpListener,
        (admission, limits): (Arc<Admission>, Limits),
        answering: Answering,
        (rng, tap): (fastrand::Rng, Option<Tap>),
        counters: &mut http::Metrics,
    ) {
        let shutdown = self.shutdown.clone();
        let (tcp, counted) = (Arc::new(net::tcp::Counters::default()), Arc::new(Counters::default()));
        counters.tcp.push(Tcp { connections: tcp.clone(), queries: counted.clone() });
        let rng = Mutex::new(rng);
        // Counters and taps have one writer: the one who holds the lock, which nothing slow does.
        let counted = Arc::new(Mutex::new((counted, tap)));
        self.tasks.spawn(async move {
            let handler = |client: SocketAddr, server: SocketAddr| {
                let Answering { published, transfers, fast, panics, clock } = answering.clone();
                let counted = counted.clone();
                let mut rng = rng.lock().unwrap_or_else(PoisonError::into_inner).fork();
                move |query: &[u8], out: &mut [u8]| {
                    let (peer, local) = (client.ip().to_canonical(), server.ip());
                    let asked = Asked { query, client: peer, local, transport: Transport::Tcp };
                    let (generation, now) = (published.load(), clock.now());
                    let fast = fast.fast();
                    let answered = catch_unwind(AssertUnwindSafe(|| {
                        transfers
                            .stream(&generation, &asked, fast, clock, &mut rng, out)
                            .map(|given| (given, None))
                            .unwrap_or_else(|| {
                                let answered = generation.answer_counted(&asked, fast, now, &mut rng, out);
                                (Given::Reply(answered.reply), answered.routed)
                            })
                    }));
                    let mut held = counted.lock().unwrap_or_else(PoisonError::into_inner);
                    let (counted, tap) = &mut *held;
                    counted.queries.add(1);
                    let verdict = match answered {
                        Ok((Given::Stream(messages), _)) => {
                            counted.streamed.add(1);
                            Verdict::Stream(messages)
                        }
                        Ok((Given::Reply(Reply::Send(length)), routed)) => {
                            counted.answered(&out[..length], routed);
                            Verdict::Reply(length)
                        }
                        Ok((Given::Reply(Reply::Drop(why)), _)) => {
                            counted.dropped(why);
                            Verdict::Drop
                        }
                        Err(panic) => {
                            counted.panicked.add(1);
                            let scene = Scene { worker: None, generation: generation.number, query };
                            panics.suffered(scene, &*panic, now.monotonic);
                            Verdict::Drop
                        }
                    };
                    if let Some(tap) = tap {
                        let response = match &verdict {
                            Verdict::Reply(length) => Some(&out[..*length]),
                            _ => None,
                        };
                        let (transport, time) = (Transport::Tcp, now.unix);
                        let exchange = Exchange { client, server, transport, time, query, response };
                        counted.tap_full.add(tap.note(&exchange));
                    }
                    verdict
                }
            };
            if let Err(cause) = net::tcp::serve(listener, admission, limits, tcp, shutdown, handler).await {
                tracing::error!(%cause, "TCP is not served");
            }
        });
    }

    /// Probes the servers of policies, and has the store remember what is found.
    fn probe(&mut self, health: Arc<Table>, probes: Arc<Probes>, clock: Clock, rng: fastrand::Rng) {
        // All that is stored and imported has its slots by now.
        health.forget_others();
        let check = |probe: Arc<Probe>, server| async move { health::check::check(&probe, server).await };
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(prober::keep(health.clone(), self.editor.clone(), shutdown.clone()));
        self.tasks.spawn(prober::run(health, probes, check, clock, rng, shutdown));
    }

    /// Tells secondaries of changes, where there are any.
    fn notify(
        &mut self,
        transfers: Arc<Transfers>,
        published: Arc<Published>,
        clock: Clock,
        rng: fastrand::Rng,
    ) {
        if transfers.secondaries().is_empty() {
            return;
        }
        let (local, shutdown) = (self.listening.clone(), self.shutdown.clone());
        self.tasks.spawn(async move {
            if let Err(cause) = notifier::run(transfers, published, local, clock, rng, shutdown).await {
                tracing::error!(%cause, "secondaries are not told of changes");
            }
        });
    }
}

/// Raises the limit on descriptors as far as it goes, and warns where that is not far enough.
fn check_descriptors(connections_max: usize, sockets: usize) {
    let needed = connections_max.saturating_add(sockets).saturating_add(OTHER_DESCRIPTORS) as u64;
    match net::descriptors::raise() {
        Ok(limit) if limit >= needed => {}
        Ok(limit) => tracing::warn!(
            limit,
            needed,
            connections_max,
            "fewer files can be open than TCP may need: raise `ulimit -n` (LimitNOFILE), or lower tcp.connections_max"
        ),
        Err(cause) => tracing::warn!(%cause, "the limit on open files is not known"),
    }
}

/// Draws a secret that nobody can foresee, whatever seed was given.
fn secret() -> io::Result<[u8; 16]> {
    let mut secret = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut secret)?;
    Ok(secret)
}

/// Tells of zones that secondaries follow and cannot take, for they had policies before.
fn warn_of_steered(book: &Book) {
    let zones = book.generation.zones.iter();
    for zone in zones.filter(|zone| zone.is_steered() && book.secondaries.name(zone.origin())) {
        tracing::warn!(
            zone = ?zone.origin(),
            "secondaries follow this zone and cannot take it, for it has policies; delete those, or take it out of \
             [[secondary]]"
        );
    }
}

/// Imports at start, where a fault ends the program.
async fn import(editor: &Editor, imports: &[Import]) -> Result<(), StartError> {
    editor.import(imports).await.map(|_| ()).map_err(|refused| match refused {
        Refused::Faults(faults) => StartError::Faults(faults),
        other => StartError::Store(other.to_string()),
    })
}

fn bind(addresses: &[SocketAddr], workers: usize) -> Result<Vec<Bound>, StartError> {
    let bind_one = |wanted: SocketAddr| -> io::Result<Bound> {
        let sockets = |address| net::udp::bind_each(address, workers, Some(RECEIVE_BUFFER));
        let (tcp, udp) = net::listen::both(wanted, sockets)?;
        Ok(Bound { address: tcp.local_addr()?, udp, tcp })
    };
    addresses.iter().map(|address| bind_one(*address)).collect::<io::Result<_>>().map_err(StartError::Bind)
}
