//! All of the service, started and stopped.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use net::clock::Clock;
use net::shutdown::Shutdown;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use crate::backend::{self, BackEnd, Behaviour, Kept, Task, Upstreams};
use crate::cache::snapshot::Unread;
use crate::cache::{self, Reader, Verdict, Why, Writer};
use crate::crawlers::Crawlers;
use crate::face::acl::Acl;
use crate::face::dns::{self, Dns};
use crate::face::mmdb;
use crate::face::rapid::{self, Rapid};
use crate::face::resp::{self, Resp};
use crate::face::stream;
use crate::front::{self, DOOR_MAX, Front, RING_MAX, Ring};

/// The most upstreams that are asked in turn: more than a site has resolvers.
pub const UPSTREAMS_MAX: usize = 16;

/// How often the counts are logged: by the hour, as the paper's figures have them.
const LOG_INTERVAL: Duration = Duration::from_secs(3600);

/// What a service is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The resolvers that are asked, in turn.
    pub upstreams: Vec<SocketAddr>,
    /// How the back end learns.
    pub behaviour: Behaviour,
    /// Whether popular names are asked for again before they expire; not as the paper had it.
    pub ahead: bool,
    /// Of so many hits one is asked for again, to see whether it is still right; 0 for none.
    pub sample_one_in: u64,
    /// Octets that the cache may take.
    pub memory: usize,
    /// How long what has expired is served while it is learned anew; zero for not at all.
    pub stale: Duration,
    /// Where the cache is kept between runs.
    pub kept: Option<Kept>,
    /// Who may ask, beside loopback.
    pub acl: Acl,
    /// The crawlers that are known.
    pub crawlers: Arc<Crawlers>,
    /// Addresses of the DNS face.
    pub dns: Vec<dns::Options>,
    /// Addresses of the Redis protocol.
    pub resp: Vec<SocketAddr>,
    /// Addresses of the protocol of Rapid DNS.
    pub rapid: Vec<SocketAddr>,
    /// The MMDB file.
    pub mmdb: Option<mmdb::Options>,
}

/// Why a service did not start.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be had.
    Bind(io::Error),
    /// The snapshot cannot be used.
    Snapshot(std::path::PathBuf, Unread),
    /// The system refused a thread or a socket.
    System(io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Bind(cause) => write!(f, "failed to {cause}"),
            StartError::Snapshot(path, why) => {
                write!(f, "{}: {why}; move it away to begin with an empty cache", path.display())
            }
            StartError::System(cause) => write!(f, "the system refused a thread or a socket: {cause}"),
        }
    }
}

impl std::error::Error for StartError {}

/// What everybody may read of a running service.
#[derive(Debug)]
pub struct Numbers {
    /// When it was started.
    pub clock: Clock,
    /// The back end's.
    pub back_end: Arc<backend::Counts>,
    /// Each upstream's.
    pub upstreams: Vec<(SocketAddr, Arc<backend::UpstreamCounts>)>,
    /// The MMDB file's, where there is one.
    pub mmdb: Option<Arc<mmdb::Counts>>,
    /// Queries that made the code panic; each was dropped.
    pub panics: Arc<AtomicU64>,
    faces: Mutex<Vec<(&'static str, Arc<front::Counts>)>>,
    connections: Mutex<Vec<(&'static str, Arc<stream::Counters>)>>,
}

impl Numbers {
    /// The counts of the faces by name, one for each thread.
    pub fn faces(&self) -> Vec<(&'static str, Arc<front::Counts>)> {
        self.faces.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Logs what the paper's figures show, and what became of the questions.
    fn log(&self) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let faces = self.faces();
        let sum =
            |of: &dyn Fn(&front::Counts) -> u64| faces.iter().map(|(_, counts)| of(counts)).sum::<u64>();
        let [name, no_name, failed, not_yet] =
            [0, 1, 2, 3].map(|state| sum(&|counts| get(&counts.known[state])));
        let back_end = &self.back_end;
        tracing::info!(
            requests = name + no_name + failed + not_yet,
            hits = sum(&|counts| get(&counts.hits)),
            questions = get(&back_end.questions),
            leaks = get(&back_end.leaks),
            name,
            no_name,
            failed,
            not_yet,
            stale = sum(&|counts| get(&counts.stale)),
            refused = sum(&|counts| get(&counts.refused)),
            door_full = sum(&|counts| get(&counts.door_full)),
            back_end_hits = get(&back_end.hits),
            moved = get(&back_end.moved),
            confirmed = get(&back_end.verdicts[Verdict::Confirmed as usize]),
            mismatch = get(&back_end.verdicts[Verdict::Mismatch as usize]),
            unconfirmed = get(&back_end.verdicts[Verdict::NotYet as usize]),
            empty_prefixes = get(&back_end.prefixes[0]),
            prefixes_in_use = get(&back_end.prefixes[1]),
            contradicted = get(&back_end.contradicted),
            ahead = get(&back_end.asked[1]),
            samples_same = get(&back_end.staleness[0]),
            samples_changed = get(&back_end.staleness[1]),
            samples_gone = get(&back_end.staleness[2]),
            depth = get(&back_end.depth),
            lanes = get(&back_end.lanes),
            in_flight = get(&back_end.in_flight),
            entries = get(&back_end.entries),
            octets = get(&back_end.octets),
            expired = get(&back_end.expired),
            evicted = get(&back_end.evicted),
            no_room = get(&back_end.no_room),
            snapshots = get(&back_end.snapshots[0]),
            snapshots_failed = get(&back_end.snapshots[1]),
            panics = get(&self.panics),
            "counts since start"
        );
        for (address, counts) in &self.upstreams {
            tracing::info!(
                upstream = %address,
                questions = get(&counts.questions),
                names = get(&counts.answers[0]),
                no_names = get(&counts.answers[1]),
                unusable = get(&counts.answers[2]),
                timeouts = get(&counts.failures[Why::Timeout as usize]),
                servfail = get(&counts.failures[Why::Servfail as usize]),
                refused = get(&counts.failures[Why::Refused as usize]),
                malformed = get(&counts.failures[Why::Malformed as usize]),
                foreign = get(&counts.foreign),
                many = get(&counts.many),
                cut = get(&counts.cut),
                milliseconds = counts.times.sum(),
                "upstream since start"
            );
        }
        if let Some(counts) = &self.mmdb {
            tracing::info!(
                written = get(&counts.written),
                failed = get(&counts.failed),
                names = get(&counts.names),
                left_out = get(&counts.left_out),
                "MMDB files since start"
            );
        }
        self.log_connections();
    }

    fn log_connections(&self) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        for (face, counters) in &*self.connections.lock().unwrap_or_else(PoisonError::into_inner) {
            tracing::info!(
                face,
                accepted = get(&counters.accepted),
                strangers = get(&counters.strangers),
                refused = get(&counters.refused),
                accept_failed = get(&counters.accept_failed),
                idle = get(&counters.idle),
                late = get(&counters.late),
                untaken = get(&counters.untaken),
                panics = get(&counters.panics),
                "connections since start"
            );
        }
    }

    pub(crate) fn add(&self, face: &'static str, front: &Front) {
        self.faces.lock().unwrap_or_else(PoisonError::into_inner).push((face, front.counts().clone()));
    }
}

/// A service that serves.
#[derive(Debug)]
pub struct Service {
    listening: Vec<(&'static str, SocketAddr)>,
    numbers: Arc<Numbers>,
    shutdown: Shutdown,
    threads: Vec<JoinHandle<()>>,
    tasks: JoinSet<()>,
    back_end: JoinHandle<()>,
}

impl Service {
    /// Starts everything; returns when all faces answer.
    ///
    /// # Errors
    /// [`StartError`]; nothing of the service is left then.
    pub async fn start(options: Options) -> Result<Service, StartError> {
        let faces: Vec<Dns> =
            options.dns.iter().map(Dns::bind).collect::<io::Result<_>>().map_err(StartError::Bind)?;
        let streams = bind_streams(&options).map_err(StartError::Bind)?;
        let (cache, reader) = warm(&options)?;

        let (door, wanted) = mpsc::channel(DOOR_MAX);
        let learned = Arc::new(Notify::new());
        let (database, serve_stale) = (reader.clone(), !options.stale.is_zero());
        let (ring, seen) = mpsc::channel(RING_MAX);
        let front = Front::new(reader.clone(), door, !options.stale.is_zero(), learned.clone())
            .knowing(options.crawlers);
        let is_paper = options.behaviour.paper.is_some();
        let ring = Ring {
            seen: ring,
            ahead: options.ahead && !is_paper,
            sample_one_in: if is_paper { 0 } else { options.sample_one_in },
        };
        let front = front.telling(ring);
        let clock = Clock::new();
        let upstreams: Vec<_> = options
            .upstreams
            .iter()
            .map(|address| (*address, Arc::<backend::UpstreamCounts>::default()))
            .collect();
        let timeout = options.behaviour.timeout;
        let back_end = BackEnd::new(cache, options.behaviour);
        let numbers = Arc::new(Numbers {
            clock,
            back_end: back_end.counts().clone(),
            upstreams,
            mmdb: options.mmdb.is_some().then(Arc::default),
            panics: Arc::default(),
            faces: Mutex::default(),
            connections: Mutex::default(),
        });
        let task = Task {
            timeout,
            back_end,
            reader,
            wanted,
            seen,
            upstreams: Upstreams::new(&numbers.upstreams),
            kept: options.kept,
            learned,
            clock,
        };
        let shutdown = Shutdown::new();
        let back_end = learn(task, shutdown.clone()).map_err(StartError::System)?;
        let mut service = Service {
            listening: Vec::new(),
            numbers: numbers.clone(),
            shutdown: shutdown.clone(),
            threads: Vec::new(),
            tasks: JoinSet::new(),
            back_end,
        };
        for face in faces {
            service.listening.push(("DNS", face.address));
            let served = face.serve(&front, &options.acl, &numbers, &mut service.tasks, &shutdown);
            match served {
                Ok(threads) => service.threads.extend(threads),
                Err(cause) => {
                    service.stop().await;
                    return Err(StartError::System(cause));
                }
            }
        }
        for (kind, address, listener) in streams {
            service.listening.push((kind.word(), address));
            service.converse(kind, listener, &front, &options.acl);
        }
        if let (Some(file), Some(counts)) = (options.mmdb, numbers.mmdb.clone()) {
            let shutdown = shutdown.clone();
            service.tasks.spawn(publish(file, database, serve_stale, clock, counts, shutdown));
        }
        service.tasks.spawn(async move {
            while tokio::time::timeout(LOG_INTERVAL, shutdown.wait()).await.is_err() {
                numbers.log();
            }
        });
        Ok(service)
    }

    /// Serves a face over TCP.
    fn converse(&mut self, kind: Stream, listener: TcpListener, front: &Front, acl: &Acl) {
        let (front, acl, shutdown) = (front.for_thread(), acl.clone(), self.shutdown.clone());
        let (clock, counters) = (self.numbers.clock, Arc::<stream::Counters>::default());
        self.numbers.add(kind.word(), &front);
        let mut connections = self.numbers.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.push((kind.word(), counters.clone()));
        drop(connections);
        self.tasks.spawn(async move {
            let served = match kind {
                Stream::Resp => {
                    let mut id = 0;
                    let begin = move |client: IpAddr| {
                        id += 1;
                        Resp { front: front.clone(), clock, session: resp::Session::new(client, id) }
                    };
                    stream::serve(listener, acl, counters, shutdown, begin).await
                }
                Stream::Rapid => {
                    let begin = move |client: IpAddr| Rapid {
                        front: front.clone(),
                        clock,
                        session: rapid::Session::new(client),
                    };
                    stream::serve(listener, acl, counters, shutdown, begin).await
                }
            };
            if let Err(cause) = served {
                tracing::error!(%cause, face = kind.word(), "the face is not served");
            }
        });
    }

    /// The addresses that are listened at, with the face's name, ports as they were given by the system.
    pub fn listening(&self) -> &[(&'static str, SocketAddr)] {
        &self.listening
    }

    /// What it counts.
    pub fn numbers(&self) -> &Arc<Numbers> {
        &self.numbers
    }

    /// Ends all of it; the cache is written where it is kept.
    pub async fn stop(mut self) {
        self.shutdown.begin();
        while self.tasks.join_next().await.is_some() {}
        for thread in self.threads {
            // A thread only ends by itself; what it panicked with has been logged.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
        let _ = tokio::task::spawn_blocking(move || self.back_end.join()).await;
        self.numbers.log();
    }
}

/// Starts the back end in a thread of its own: while the cache is swept, grows or collects names, which may take some
/// ten milliseconds, no connection waits.
fn learn(task: Task, shutdown: Shutdown) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new()
        .name("back end".into())
        .spawn(move || runtime.block_on(backend::run(task, shutdown)))
}

/// Writes the MMDB file now and every interval, until `shutdown` begins.
async fn publish(
    file: mmdb::Options,
    reader: Reader,
    stale: bool,
    clock: Clock,
    counts: Arc<mmdb::Counts>,
    shutdown: Shutdown,
) {
    loop {
        let (this, reader, counts) = (file.clone(), reader.clone(), counts.clone());
        let now = backend::seconds(clock.now());
        let written = tokio::task::spawn_blocking(move || this.write(&reader, now, stale, &counts));
        let _ = written.await;
        if tokio::time::timeout(file.interval, shutdown.wait()).await.is_ok() {
            return;
        }
    }
}

/// A face over TCP.
#[derive(Clone, Copy, Debug)]
enum Stream {
    Resp,
    Rapid,
}

impl Stream {
    fn word(self) -> &'static str {
        match self {
            Stream::Resp => "RESP",
            Stream::Rapid => "Rapid DNS",
        }
    }
}

fn bind_streams(options: &Options) -> io::Result<Vec<(Stream, SocketAddr, TcpListener)>> {
    let resp = options.resp.iter().map(|address| (Stream::Resp, address));
    let rapid = options.rapid.iter().map(|address| (Stream::Rapid, address));
    resp.chain(rapid)
        .map(|(kind, address)| {
            let listener = net::tcp::bind(*address)?;
            Ok((kind, listener.local_addr()?, listener))
        })
        .collect()
}

/// The cache as it was kept, or an empty one.
fn warm(options: &Options) -> Result<(Writer, Reader), StartError> {
    let stale = u32::try_from(options.stale.as_secs()).unwrap_or(u32::MAX);
    let empty = || {
        // The standard library's hasher is keyed by the system's randomness.
        cache::new(options.memory, stale, RandomState::new().build_hasher().finish())
    };
    let Some(path) = options.kept.as_ref().map(|kept| Path::new(&kept.path)) else { return Ok(empty()) };
    match cache::snapshot::load(path, options.memory, stale) {
        Ok(cache) => {
            tracing::info!(path = %path.display(), entries = cache.0.len(), "the snapshot is read");
            Ok(cache)
        }
        Err(Unread::Absent) => Ok(empty()),
        Err(why) => Err(StartError::Snapshot(path.to_owned(), why)),
    }
}
