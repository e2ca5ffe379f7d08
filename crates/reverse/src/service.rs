//! All of the service, started and stopped.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use net::admission::{Admission, GIVING_WAY_MAX};
use net::clock::Clock;
use net::privileges::{self, PrivilegesError};
use net::shutdown::Shutdown;
use net::tcp;
use net::whole::{self, Held};
use routing::Acl;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::backend::{self, BackEnd, Behaviour, IN_FLIGHT_MAX, Kept, Task, Upstreams};
use crate::cache::snapshot::Unread;
use crate::cache::{self, Reader, Writer};
use crate::crawlers::Crawlers;
use crate::face::dns::{self, Dns};
use crate::face::http::{self, Http, check::Check};
use crate::face::mmdb;
use crate::face::rapid::{self, Rapid};
use crate::face::resp::{self, Resp};
use crate::face::stream;
use crate::front::{DOOR_MAX, Front, RING_MAX, Ring};
use crate::learned::Learned;
use crate::numbers::{Connections, Numbers};

/// The most upstreams that are asked in turn: more than a site has resolvers.
pub const UPSTREAMS_MAX: usize = 16;

/// Descriptors that are neither connections nor of questions, with room to spare: listeners, threads' sockets, log, files.
const OTHER_DESCRIPTORS: usize = 128;

/// How often the counts are logged: by the hour, as the paper's figures have them.
const LOG_INTERVAL: Duration = Duration::from_secs(3600);

/// What a service is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The user to become once all is bound; the one that started it where not given.
    pub user: Option<String>,
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
    /// Where names are written as a MaxMind database; `None` for nowhere.
    pub mmdb: Option<mmdb::Options>,
    /// Addresses of the HTTP face.
    pub http: Vec<SocketAddr>,
    /// How HTTP judges clients of web servers.
    pub check: Check,
}

/// Why a service did not start.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be had.
    Bind(io::Error),
    /// Root could not be given away.
    User(PrivilegesError),
    /// The snapshot cannot be used.
    Snapshot(PathBuf, Unread),
    /// Another process writes a file that is to be written.
    Held(PathBuf),
    /// A file that is to be written cannot be.
    Unwritable(PathBuf, io::Error),
    /// The system refused a thread or a socket.
    System(io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Bind(cause) => write!(f, "failed to {cause}"),
            StartError::User(cause) => write!(f, "failed to {cause}"),
            StartError::Snapshot(path, why) => {
                write!(f, "{}: {why}; move it away to begin with an empty cache", path.display())?;
                match why.advice() {
                    "" => Ok(()),
                    advice => write!(f, ", or {advice}"),
                }
            }
            StartError::Held(path) => {
                write!(
                    f,
                    "{}: another process writes it; stop that one, or name another file",
                    path.display()
                )
            }
            StartError::Unwritable(path, cause) => {
                write!(
                    f,
                    "{}: it cannot be written: {cause}; name another, or let the folder be written",
                    path.display()
                )
            }
            StartError::System(cause) => write!(f, "the system refused a thread or a socket: {cause}"),
        }
    }
}

impl std::error::Error for StartError {}

/// A service that serves.
#[derive(Debug)]
pub struct Service {
    listening: Vec<(&'static str, SocketAddr)>,
    numbers: Arc<Numbers>,
    shutdown: Shutdown,
    threads: Vec<JoinHandle<()>>,
    tasks: JoinSet<()>,
    back_end: JoinHandle<bool>,
    /// What holds the files that are written.
    held: Vec<Held>,
}

impl Service {
    /// Looks whether what is to be written could be and what was kept can be read, and changes nothing.
    ///
    /// # Errors
    /// [`StartError::Unwritable`], for the first that could not; [`StartError::Snapshot`].
    pub fn check(options: &Options) -> Result<(), StartError> {
        let check =
            |path: &PathBuf| whole::check(path).map_err(|cause| StartError::Unwritable(path.clone(), cause));
        written(options).try_for_each(check)?;
        warm(options).map(drop)
    }

    /// Starts everything; returns when all faces answer.
    ///
    /// # Errors
    /// [`StartError`]; nothing of the service is left then.
    pub async fn start(options: Options) -> Result<Service, StartError> {
        raise_descriptors(&options);
        let faces: Vec<Dns> =
            options.dns.iter().map(Dns::bind).collect::<io::Result<_>>().map_err(StartError::Bind)?;
        let streams = bind_streams(&options).map_err(StartError::Bind)?;
        let pages = bind(&options.http).map_err(StartError::Bind)?;
        if let Some(user) = &options.user {
            privileges::drop_to(user).map_err(StartError::User)?;
        }
        // By the user that will write it.
        let held = hold(&options)?;
        let (front, numbers, task) = lay_out(&options)?;
        let (clock, database) = (numbers.clock, task.reader.clone());
        let shutdown = Shutdown::new();
        let back_end = learn(task, shutdown.clone()).map_err(StartError::System)?;
        let mut service = Service {
            listening: Vec::new(),
            numbers: numbers.clone(),
            shutdown: shutdown.clone(),
            threads: Vec::new(),
            tasks: JoinSet::new(),
            back_end,
            held,
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
        service.listening.extend(pages.iter().map(|(address, _)| ("HTTP", *address)));
        let http = Http {
            front,
            clock,
            numbers: numbers.clone(),
            check: Arc::new(options.check),
            crawlers: options.crawlers,
            loopback_only: !options.acl.is_open(),
            listening: service.listening.clone().into(),
            bulks: Arc::new(Semaphore::new(http::names::BULKS_MAX)),
        };
        for (_, listener) in pages {
            if let Err(cause) = service.pages(listener, &http, &options.acl) {
                service.stop().await;
                return Err(StartError::System(cause));
            }
        }
        if let (Some(file), Some(counts)) = (options.mmdb, numbers.mmdb.clone()) {
            let (stale, shutdown) = (seconds(options.stale), shutdown.clone());
            service.tasks.spawn(publish(file, database, stale, clock, counts, shutdown));
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
        self.numbers.add(kind.label(), &front);
        self.numbers.add_connections(kind.label(), Connections::Stream(counters.clone()));
        let places = Admission::new(stream::CONNECTIONS_MAX, stream::PER_CLIENT_MAX);
        self.tasks.spawn(async move {
            let told = |cause: &io::Error| {
                tracing::warn!(
                    %cause,
                    face = kind.label(),
                    "the face cannot accept connections; it is tried again and again"
                );
            };
            let served = match kind {
                Stream::Resp => {
                    let mut id = 0;
                    let begin = move |client: IpAddr| {
                        id += 1;
                        Resp { front: front.clone(), clock, session: resp::Session::new(client, id) }
                    };
                    stream::serve(listener, places, acl, counters, shutdown, told, begin).await
                }
                Stream::Rapid => {
                    let begin = move |client: IpAddr| Rapid {
                        front: front.clone(),
                        clock,
                        session: rapid::Session::new(client),
                    };
                    stream::serve(listener, places, acl, counters, shutdown, told, begin).await
                }
            };
            if let Err(cause) = served {
                tracing::error!(%cause, face = kind.label(), "the face is not served");
            }
        });
    }

    /// Serves HTTP.
    fn pages(&mut self, listener: TcpListener, http: &Http, acl: &Acl) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let http = Http { front: http.front.for_thread(), ..http.clone() };
        let (acl, shutdown) = (acl.clone(), self.shutdown.clone());
        let counters = Arc::<web::Counters>::default();
        self.numbers.add("http", &http.front);
        self.numbers.add_connections("http", Connections::Http(counters.clone()));
        let router = http::router(http);
        self.tasks.spawn(web::serve(listener, router, move |client| acl.allows(client), counters, shutdown));
        Ok(())
    }

    /// The addresses that are listened at, with the face's name, ports as they were given by the system.
    pub fn listening(&self) -> &[(&'static str, SocketAddr)] {
        &self.listening
    }

    /// The counts of all parts of the service.
    pub fn numbers(&self) -> &Arc<Numbers> {
        &self.numbers
    }

    /// Ends all of it; the cache is written where it is kept. False where that failed, as the log says.
    pub async fn stop(mut self) -> bool {
        self.shutdown.begin();
        while self.tasks.join_next().await.is_some() {}
        for thread in self.threads {
            // A thread only ends by itself; what it panicked with has been logged.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
        let kept = tokio::task::spawn_blocking(move || self.back_end.join()).await;
        self.numbers.log();
        // Others may write them now.
        drop(self.held);
        matches!(kept, Ok(Ok(true)))
    }
}

/// Raises the limit on descriptors as far as it goes, and warns where that is less than all faces and questions may need.
fn raise_descriptors(options: &Options) {
    let streams = (options.resp.len() + options.rapid.len()) * (stream::CONNECTIONS_MAX + GIVING_WAY_MAX);
    let datagrams = options.dns.len() * (tcp::Limits::default().connections_max + GIVING_WAY_MAX);
    let pages = options.http.len() * web::serve::CONNECTIONS_MAX;
    let needed = (streams + datagrams + pages + IN_FLIGHT_MAX + OTHER_DESCRIPTORS) as u64;
    match net::descriptors::raise() {
        Ok(limit) if limit >= needed => {}
        Ok(limit) => tracing::warn!(
            limit,
            needed,
            "fewer files can be open than connections and questions may need: raise `ulimit -n` (LimitNOFILE)"
        ),
        Err(cause) => tracing::warn!(%cause, "the limit on open files is not known"),
    }
}

/// Sees that nobody else writes the files that are to be written.
fn hold(options: &Options) -> Result<Vec<Held>, StartError> {
    let hold = |path: &PathBuf| match whole::hold(path) {
        Ok(held) => held.ok_or_else(|| StartError::Held(path.clone())),
        Err(cause) => Err(StartError::Unwritable(path.clone(), cause)),
    };
    written(options).map(hold).collect()
}

/// The files that are to be written.
fn written(options: &Options) -> impl Iterator<Item = &PathBuf> {
    let (kept, mmdb) = (options.kept.iter(), options.mmdb.iter());
    kept.map(|kept| &kept.path).chain(mmdb.map(|mmdb| &mmdb.path))
}

/// Makes what all faces ask, what counts, and what learns, around the cache.
fn lay_out(options: &Options) -> Result<(Front, Arc<Numbers>, Task), StartError> {
    let (cache, reader) = warm(options)?;
    let (door, wanted) = mpsc::channel(DOOR_MAX);
    let (ring, seen) = mpsc::channel(RING_MAX);
    let learned = Arc::<Learned>::default();
    let is_paper = options.behaviour.paper.is_some();
    let ring = Ring {
        seen: ring,
        ahead: options.ahead && !is_paper,
        sample_one_in: if is_paper { 0 } else { options.sample_one_in },
    };
    let front = Front::new(reader.clone(), door, seconds(options.stale), learned.clone())
        .knowing(options.crawlers.clone())
        .telling(ring);
    let clock = Clock::new();
    let upstreams = options.upstreams.iter().map(|address| (*address, Arc::default())).collect();
    let back_end = BackEnd::new(cache, options.behaviour.clone());
    let mmdb = options.mmdb.is_some().then(Arc::default);
    let numbers = Arc::new(Numbers::new(clock, back_end.counts().clone(), upstreams, mmdb));
    let task = Task {
        timeout: options.behaviour.timeout,
        back_end,
        reader,
        wanted,
        seen,
        upstreams: Upstreams::new(&numbers.upstreams),
        kept: options.kept.clone(),
        learned,
        clock,
        told_short: None,
    };
    Ok((front, numbers, task))
}

/// As entries have times.
fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

/// Starts the back end in a thread of its own: while the cache is swept, grows or collects names, which may take some
/// ten milliseconds, no connection waits. It stands back for the threads that answer: names may come later, answers not.
fn learn(task: Task, shutdown: Shutdown) -> io::Result<JoinHandle<bool>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("back end".into()).spawn(move || {
        if let Err(cause) = net::thread::stand_back() {
            tracing::warn!(%cause, "the back end has the priority of those that answer");
        }
        runtime.block_on(backend::run(task, shutdown))
    })
}

/// Writes the MMDB file now and every interval, until `shutdown` begins.
async fn publish(
    file: mmdb::Options,
    reader: Reader,
    stale: u32,
    clock: Clock,
    counts: Arc<mmdb::Counts>,
    shutdown: Shutdown,
) {
    loop {
        let (this, reader, counts, ends) = (file.clone(), reader.clone(), counts.clone(), shutdown.clone());
        let now = backend::seconds(clock.now());
        let written = tokio::task::spawn_blocking(move || this.write(&reader, now, stale, &counts, &ends));
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

    /// As the metrics and the log say it.
    fn label(self) -> &'static str {
        match self {
            Stream::Resp => "resp",
            Stream::Rapid => "rapid",
        }
    }
}

fn bind_streams(options: &Options) -> io::Result<Vec<(Stream, SocketAddr, TcpListener)>> {
    let mut streams = Vec::new();
    for (kind, addresses) in [(Stream::Resp, &options.resp), (Stream::Rapid, &options.rapid)] {
        streams.extend(bind(addresses)?.into_iter().map(|(address, listener)| (kind, address, listener)));
    }
    Ok(streams)
}

/// Binds addresses; returns them with the ports that the system chose.
fn bind(addresses: &[SocketAddr]) -> io::Result<Vec<(SocketAddr, TcpListener)>> {
    let one = |address: &SocketAddr| {
        let listener = net::tcp::bind(*address)?;
        Ok((listener.local_addr()?, listener))
    };
    addresses.iter().map(one).collect()
}

/// The cache as it was kept, or an empty one.
fn warm(options: &Options) -> Result<(Writer, Reader), StartError> {
    let stale = seconds(options.stale);
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
