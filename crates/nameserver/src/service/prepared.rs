//! All that serving takes, as far as it can be had before anything runs: sockets, privileges given away, what is stored.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::sync::Arc;

use dns::edns::UDP_PLAIN_PAYLOAD;
use net::admission::{Admission, GIVING_WAY_MAX};
use net::clock::Clock;
use net::privileges;
use net::tcp::Limits;
use net::tls::identity::Identity;
use net::udp::{RECEIVE_BUFFER, UdpListener, WORKERS_MAX};
use net::xdp::{self, Attached, Queue};
use tap::{Kinds, Writer};

use super::{Options, StartError, signing};
use crate::answering::{Answering, Ledger};
use crate::book::Book;
use crate::connections::Connections;
use crate::cookies::Secrets;
use crate::edit::Editor;
use crate::external::Learning;
use crate::fast::Shared;
use crate::health::Probes;
use crate::http;
use crate::publish::Published;
use crate::rate_limit::RateLimit;
use crate::transfer::{Transfers, refresher};
use crate::worker::{Source, Worker};

/// Descriptors that are neither workers' sockets nor TCP connections that are kept, with room to spare: store, API, log,
/// listeners, and connections that give way.
const OTHER_DESCRIPTORS: usize = 128 + GIVING_WAY_MAX;

/// The sockets of one address.
pub(super) struct Bound {
    pub(super) address: SocketAddr,
    pub(super) udp: Vec<Arc<UdpListener>>,
    pub(super) tcp: std::net::TcpListener,
}

/// The socket of one address for connections over TLS, and what their clients are shown.
pub(super) struct BoundTls {
    pub(super) address: SocketAddr,
    pub(super) listener: std::net::TcpListener,
    pub(super) identity: Arc<Identity>,
}

/// All that serving takes, as far as it can be had before anything runs.
pub(super) struct Prepared {
    pub(super) bound: Vec<Bound>,
    /// The interfaces that queries are taken from as frames, and their queues.
    pub(super) attached: Vec<(Attached, Vec<Queue>)>,
    /// For connections over TLS, with what their clients are shown.
    pub(super) bound_tls: Vec<BoundTls>,
    pub(super) api: tokio::net::TcpListener,
    pub(super) token: Option<String>,
    pub(super) answering: Answering,
    pub(super) learning: Option<Learning>,
    pub(super) tap: Option<Writer>,
    pub(super) probes: Arc<Probes>,
    limits: Limits,
    /// Places for the connections of all addresses.
    admission: Arc<Admission>,
    /// For each worker of an address the core that it stays on.
    cores: Vec<usize>,
    answer_max: usize,
    pub(super) seed: u64,
}

impl Prepared {
    /// Binds, gives privileges away, and loads what is stored; nothing runs yet.
    pub(super) async fn new(options: Options) -> Result<(Prepared, store::Store, Book), StartError> {
        let cores = net::thread::cores().map_err(StartError::System)?;
        let workers = options.workers.unwrap_or(cores.len()).clamp(1, WORKERS_MAX);
        // The sockets take descriptors, too.
        check_descriptors(options.tcp.connections_max, workers * options.listen.len());
        let bound = bind(&options.listen, workers)?;
        if let Some(short) = net::udp::short_of(bound.iter().flat_map(|bound| &bound.udp), RECEIVE_BUFFER) {
            tracing::warn!("{short}");
        }
        let answer_max = usize::from(options.settings.udp_payload_max.max(UDP_PLAIN_PAYLOAD));
        let attached = attach(&options.xdp, &bound, answer_max)?;
        let queues: usize = attached.iter().map(|(_, queues)| queues.len()).sum();
        let bound_tls = bind_tls(options.tls).map_err(StartError::Bind)?;
        let api = net::tcp::bind(options.api).map_err(StartError::Bind)?;
        let api = tokio::net::TcpListener::from_std(api).map_err(StartError::System)?;
        if let Some(user) = &options.user {
            privileges::drop_to(user).map_err(|e| StartError::User(e.to_string()))?;
        }
        // Opened by the user that will write it: files made by root would be out of reach later.
        let store = open(&options.store).await?;
        // The standard library's hasher is keyed by the system's randomness.
        let seed = options.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        let mut contents = store.load().await.map_err(|e| StartError::Store(e.to_string()))?;
        let confirmed = std::mem::take(&mut contents.confirmed);
        let mut book = Book::load(contents, seed, options.settings).map_err(StartError::Stored)?;
        if options.cookies {
            book.generation.secrets = Arc::new(Secrets::one(secret()?));
        }
        let limit = match options.rate_limit {
            Some(limits) => Some(Arc::new(RateLimit::new(limits, secret()?))),
            None => None,
        };
        let learning = match options.external {
            Some(config) => Some(Learning::new(config, secret()?)),
            None => None,
        };
        let clock = Clock::new();
        let external = learning.as_ref().map(|learning| (learning.external().clone(), clock));
        let transfers = Arc::new(Transfers::new(options.transfer));
        book.first_serial = clock.now().unix.as_secs() as u32;
        book.choose_secondaries(Arc::new(transfers.config().secondaries.clone()));
        book.choose_primaries(Arc::new(transfers.config().primaries.clone()));
        refresher::begin(&transfers, &mut book, &confirmed, clock.now());
        book.generation.choose_views(options.views.into());
        book.choose_signing(signing(&options.signing_keys, clock)).map_err(StartError::Stored)?;
        let probes = Arc::new(options.probes);
        book.probes = probes.clone();
        let published = Arc::new(Published::new(book.generation.clone(), workers * bound.len() + queues));
        let prepared = Prepared {
            bound,
            attached,
            bound_tls,
            api,
            token: options.token,
            answering: Answering {
                published,
                transfers,
                fast: Shared { limit, external, ..Shared::default() },
                panics: Arc::default(),
                clock,
            },
            learning,
            tap: options.tap.map(|config| Writer::new(config, Kinds::AUTH)),
            probes,
            limits: options.tcp,
            admission: Arc::new(options.tcp.admission()),
            cores: (0..workers).map(|worker| cores[worker % cores.len()]).collect(),
            answer_max,
            seed,
        };
        Ok((prepared, store, book))
    }

    /// The worker of this number, with a socket of its own.
    pub(super) fn socket_worker(&mut self, index: usize, listener: Arc<UdpListener>) -> Worker {
        self.worker(index, Source::socket(listener.clone(), self.answer_max), vec![listener])
    }

    /// The worker of this number, with a queue of its own, beside the sockets of all addresses.
    pub(super) fn queue_worker(
        &mut self,
        index: usize,
        queue: Queue,
        listeners: Vec<Arc<UdpListener>>,
    ) -> Worker {
        self.worker(index, Source::Queue(Box::new(queue)), listeners)
    }

    fn worker(&mut self, index: usize, source: Source, listeners: Vec<Arc<UdpListener>>) -> Worker {
        Worker {
            index,
            core: Some(self.cores[index % self.cores.len()]),
            source,
            listeners,
            answering: self.answering.clone(),
            ledger: self.ledger(),
            seed: self.seed.wrapping_add(index as u64 + 1),
        }
    }

    /// The connections of an address.
    pub(super) fn connections(
        &mut self,
        address: SocketAddr,
        listener: std::net::TcpListener,
        identity: Option<Arc<Identity>>,
    ) -> Connections {
        Connections {
            listener,
            identity,
            admission: self.admission.clone(),
            limits: self.limits,
            counters: Arc::default(),
            answering: self.answering.clone(),
            ledger: self.ledger(),
            // Workers and connections draw differently: each begins with a number of its own.
            seed: seed_of(self.seed, address),
        }
    }

    fn ledger(&mut self) -> Ledger {
        Ledger::new(self.tap.as_mut().map(Writer::tap))
    }

    /// What the API shows, as yet without those who answer.
    pub(super) fn metrics(&self, editor: &Editor) -> http::Metrics {
        http::Metrics {
            updates: editor.latency(),
            following: editor.following(),
            panicked: editor.panicked(),
            tap: self.tap.as_ref().map(|writer| writer.counters().clone()).unwrap_or_default(),
            transfers: self.answering.transfers.clone(),
            fast: self.answering.fast.clone(),
            external: self.learning.as_ref().map(|learning| learning.counters().clone()),
            ..http::Metrics::default()
        }
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

/// What the connections of an address begin to draw with.
fn seed_of(seed: u64, address: SocketAddr) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seed, address).hash(&mut hasher);
    hasher.finish()
}

/// Draws a secret that nobody can foresee, whatever seed was given.
fn secret() -> Result<[u8; 16], StartError> {
    let mut secret = [0; 16];
    let drawn = std::fs::File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut secret));
    drawn.map(|()| secret).map_err(StartError::System)
}

/// Opens the store, and warns where its tables were an older program's.
async fn open(name: &str) -> Result<store::Store, StartError> {
    let store = store::Store::open(name).await.map_err(|e| StartError::Store(e.to_string()))?;
    if let Some(store::Migrated { from, to, copy }) = store.migrated() {
        let copy = copy.display();
        tracing::warn!(from, to, %copy, "the store was an older program's: its tables are new, a copy is kept");
    }
    Ok(store)
}

/// Takes queries to the bound addresses from these interfaces as frames.
fn attach(
    interfaces: &[String],
    bound: &[Bound],
    answer_max: usize,
) -> Result<Vec<(Attached, Vec<Queue>)>, StartError> {
    let addresses: Vec<SocketAddr> = bound.iter().map(|bound| bound.address).collect();
    let attach = |interface: &String| xdp::attach(interface, &addresses, answer_max);
    let attached: Vec<_> =
        interfaces.iter().map(attach).collect::<io::Result<_>>().map_err(StartError::Frames)?;
    for (attached, queues) in &attached {
        let (interface, mode, queues) = (attached.interface(), attached.mode().name(), queues.len());
        tracing::info!(interface, mode, queues, "queries are taken from the interface as frames");
        if attached.mode() == xdp::Mode::Generic {
            tracing::warn!(
                interface,
                "frames are taken behind the interface's driver, which may be slower than sockets"
            );
        }
    }
    Ok(attached)
}

fn bind_tls(tls: Option<(Vec<SocketAddr>, Arc<Identity>)>) -> io::Result<Vec<BoundTls>> {
    let Some((addresses, identity)) = tls else { return Ok(Vec::new()) };
    let bound = addresses.into_iter().map(|wanted| {
        let listener = net::tcp::bind(wanted)?;
        Ok(BoundTls { address: listener.local_addr()?, listener, identity: identity.clone() })
    });
    bound.collect()
}

fn bind(addresses: &[SocketAddr], workers: usize) -> Result<Vec<Bound>, StartError> {
    let bind_one = |wanted: SocketAddr| -> io::Result<Bound> {
        let sockets = |address| net::udp::bind_each(address, workers, Some(RECEIVE_BUFFER));
        let (tcp, udp) = net::listen::both(wanted, sockets)?;
        Ok(Bound { address: tcp.local_addr()?, udp, tcp })
    };
    addresses.iter().map(|address| bind_one(*address)).collect::<io::Result<_>>().map_err(StartError::Bind)
}
