//! A schedule sent: threads that own shards of clients, each sending what is due and matching what comes back.
//!
//! ```text
//! Schedule ──┐ each thread makes the whole schedule for itself and keeps its clients' queries: no queue between
//!            │ threads, at the price of reading the trace once a thread
//!   worker: send what is due │ receive │ lose what is too late │ read ahead │ sleep, then spin
//!            └ Tally, one a thread, added up at the end
//! ```
//! One monotonic anchor for all threads; deadlines are absolute, so that lateness never adds up.
//!
//! A thread does all of a client's work itself, TLS too: a state machine takes octets and hands octets out, and the
//! thread's one loop moves them between it and the socket. So nothing waits for another thread, and what a handshake
//! takes is seen as lateness instead of hiding in a queue; more threads share it.
//!
//! In reading order: [`Options`] and [`run`]; [`mod@carrier`], [`mod@tls`], [`mod@distance`]: how clients ask;
//! [`mod@tally`]: what is counted. Below: `worker` (the loop), `gate` (all begin together), `pace` (sleep or spin), `agenda`
//! (what happens later), `clients`, `sockets` with `connection` and `layer` (what streams speak; `https`), `datagrams` with `quic`, `batch`
//! (datagrams that go together), `frames` (past the system's UDP), `pending` (which answer is whose), `unheard` (how
//! long answers wait), `retries` (what is asked again over TCP once), `octets` (what is read of responses), `rows`
//! (the log), [`packed`] (from process to process), [`differing`] (pairs that are kept).

mod agenda;
mod batch;
pub mod carrier;
mod clients;
mod connection;
mod datagrams;
pub mod differing;
pub mod distance;
mod frames;
mod gate;
mod https;
mod layer;
mod octets;
mod pace;
pub mod packed;
mod pending;
mod quic;
mod retries;
mod rows;
mod secured;
mod sockets;
pub mod tally;
pub mod tls;
mod told;
mod unheard;
mod worker;

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use api::replay::ServerSecond;
use net::hop::Hop;

use crate::mutate::Mutation;
use crate::observe::{self, Observer};
use crate::schedule::{Met, Schedule};
use crate::trace::{Damage, Message};
use carrier::{Carriers, Ports};
use differing::{Differing, DifferingKept};
use distance::Distances;
use gate::Gate;
use tally::{SECONDS_MAX, Tally};
use tls::Tls;
use worker::Worker;

/// The share of the descriptor limit that sockets may take; the rest is for files and the libraries.
const DESCRIPTORS_SHARE: (u64, u64) = (8, 10);

/// The most threads: more than any machine's cores would only wait for one another.
pub const THREADS_MAX: usize = 256;

/// What is sent where, and how.
#[derive(Debug)]
pub struct Options {
    /// The servers; each client stays with one.
    pub servers: Vec<SocketAddr>,
    /// How clients ask.
    pub carriers: Carriers,
    /// Where servers listen for what has a port of its own.
    pub ports: Ports,
    /// The path of DNS over HTTPS, such as `/dns-query`.
    pub https_path: String,
    /// TLS, where a carrier needs it.
    pub tls: Option<Arc<Tls>>,
    /// How far clients are away; `None` for no further than they are.
    pub distances: Option<Distances>,
    /// The schedule tells source addresses, of the family of all `servers`; else they are the host's own.
    pub has_sources: bool,
    /// Servers to which queries over UDP go as Ethernet frames, and the first hops there; only with `has_sources`.
    pub frames: Vec<(SocketAddr, Hop)>,
    /// Copies of a client ask for names of their own.
    pub unique_names: bool,
    /// What is changed in the queries; draws by query go by its place in the schedule.
    pub mutation: Option<Mutation>,
    /// How long an answer is waited for.
    pub timeout: Duration,
    /// How long a socket stays open without a query.
    pub idle: Duration,
    /// The most unanswered queries of a thread when all is sent as soon as it can be; `None` where queries have due
    /// times.
    pub window: Option<usize>,
    /// Threads that send, at most [`THREADS_MAX`].
    pub threads: usize,
    /// Which process of the run this is.
    pub process: Process,
    /// The seed of ids and choices.
    pub seed: u64,
    /// One row a query is written here, after the heading that is there already.
    pub log: Option<File>,
    /// Answers are compared with the recorded ones, and pairs that differ go here as packets.
    pub compare: Option<File>,
    /// The server is read each second.
    pub observer: Option<Observer>,
}

/// A process of a run: clients are shared out by hash over all threads of all processes.
pub struct Process {
    /// How many there are, each with as many threads.
    pub count: usize,
    /// Which one this is, from 0.
    pub number: usize,
    /// Where there are others: is called once all is ready, and tells when the run begins; what fails ends it.
    pub begin: Option<Begin>,
}

/// Waits for the other processes, and tells the moment at which all begin.
pub type Begin = Box<dyn FnOnce() -> io::Result<Instant> + Send + Sync>;

/// What is seen while it runs.
#[derive(Debug, Default)]
pub struct Live {
    /// Queries sent.
    pub sent: AtomicU64,
    /// Queries answered.
    pub answered: AtomicU64,
    /// Queries lost.
    pub lost: AtomicU64,
    /// Queries sent more than a millisecond late.
    pub late: AtomicU64,
    /// The highest 99th percentile of lateness of any thread, in nanoseconds.
    pub lateness_p99: AtomicU64,
    /// Set to end the run: what is not sent is left out, what was sent is waited for no longer.
    pub stop: AtomicBool,
}

/// How a run ended.
#[derive(Debug)]
pub struct Done {
    /// All counts.
    pub tally: Tally,
    /// What was met in the trace.
    pub met: Met,
    /// From the beginning to the last query or answer; the wait for answers that never come is not in it.
    pub time: Duration,
    /// Whether it was stopped.
    pub interrupted: bool,
    /// Why the first connection under TLS, or the first query on one, failed.
    pub tls_error: Option<String>,
    /// Why the log is not whole.
    pub log_error: Option<io::Error>,
    /// The differing pairs, where answers were compared.
    pub differing: Option<DifferingKept>,
    /// What the machine's host took from its cores meanwhile; zero where the machine is none's guest.
    pub stolen: Duration,
    /// The server in each second, where it was observed; fewer where it ended before.
    pub server_seconds: Option<Vec<ServerSecond>>,
}

pub use rows::HEADING as LOG_HEADING;

/// Where rows of the log go.
#[derive(Debug)]
struct Log {
    is_wanted: bool,
    file: Mutex<Option<File>>,
    error: Mutex<Option<io::Error>>,
}

/// What all threads share.
#[derive(Debug)]
struct Shared<'a> {
    options: &'a Options,
    live: &'a Live,
    log: Log,
    /// Where answers are compared.
    differing: Option<Differing>,
    /// Descriptors that each thread's sockets may take.
    sockets_max: usize,
    anchor: OnceLock<Instant>,
    /// All threads are ready; then, all may begin.
    ready: Gate,
    start: Gate,
}

/// Sends one schedule, made once for each thread; returns when every query is answered or lost.
///
/// # Errors
/// What the system says where a thread cannot begin or a trace cannot be opened again.
///
/// # Panics
/// When `schedules` are not as many as threads.
pub fn run<I, F, M>(schedules: Vec<Schedule<I, F>>, mut options: Options, live: &Live) -> io::Result<Done>
where
    I: Iterator<Item = Result<M, Damage>> + Send,
    F: FnMut() -> io::Result<I> + Send,
    M: Into<Option<Arc<Message>>>,
{
    assert_eq!(schedules.len(), options.threads, "each thread has its schedule");
    let limit = net::descriptors::raise()? * DESCRIPTORS_SHARE.0 / DESCRIPTORS_SHARE.1;
    net::descriptors::reserve(usize::try_from(limit).unwrap_or(usize::MAX))?;
    let sockets_max = usize::try_from(limit).unwrap_or(usize::MAX) / options.threads;
    let file = options.log.take();
    let observer = options.observer.take();
    let begin = options.process.begin.take();
    let differing = options.compare.take().map(Differing::new).transpose()?;
    let shared = Shared {
        options: &options,
        live,
        log: Log { is_wanted: file.is_some(), file: Mutex::new(file), error: Mutex::new(None) },
        differing,
        sockets_max,
        anchor: OnceLock::new(),
        ready: Gate::new(options.threads + usize::from(begin.is_some())),
        start: Gate::new(options.threads + usize::from(begin.is_some()) + usize::from(observer.is_some())),
    };
    let stolen = observe::stolen();
    let (ended, server_seconds) = shared.run(schedules, observer, begin)?;
    let stolen = observe::stolen().saturating_sub(stolen);
    let mut tally = Tally::new(options.mutation.as_ref());
    let (mut met, mut end) = (Met::default(), 0);
    for ended in ended {
        let (counted, seen, until) = ended?;
        tally.merge(counted);
        (met, end) = (seen, end.max(until));
    }
    let log_error = shared.log.error.into_inner().unwrap_or_else(PoisonError::into_inner);
    let differing = shared.differing.map(Differing::finish);
    let interrupted = live.stop.load(Ordering::Relaxed);
    let tls_error = options.tls.as_ref().and_then(|tls| tls.failed().map(Into::into));
    Ok(Done {
        tally,
        tls_error,
        met,
        time: Duration::from_nanos(end),
        interrupted,
        log_error,
        differing,
        stolen,
        server_seconds,
    })
}

/// What came of a thread: its counts, what it met in the trace, and when it last sent a query or had an answer.
type Ended = io::Result<(Tally, Met, u64)>;

impl Shared<'_> {
    /// Has a thread do each schedule; returns what came of each, and the server's seconds.
    ///
    /// # Errors
    /// What cannot be opened at the beginning.
    fn run<I, F, M>(
        &self,
        schedules: Vec<Schedule<I, F>>,
        observer: Option<Observer>,
        begin: Option<Begin>,
    ) -> io::Result<(Vec<Ended>, Option<Vec<ServerSecond>>)>
    where
        I: Iterator<Item = Result<M, Damage>> + Send,
        F: FnMut() -> io::Result<I> + Send,
        M: Into<Option<Arc<Message>>>,
    {
        // All that can fail at the beginning does so before a thread waits for the others.
        let first_share = (self.options.process.number * self.options.threads) as u64;
        let workers: Vec<Worker<'_>> = (first_share..)
            .take(self.options.threads)
            .map(|share| Worker::new(self, share))
            .collect::<io::Result<_>>()?;
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            let named = || thread::Builder::new().name("replay".into());
            let observing = observer.map(|observer| {
                self.begun(named().spawn_scoped(scope, || observe(observer, self, &is_done)))
            });
            let telling =
                begin.map(|begin| self.begun(named().spawn_scoped(scope, || await_others(begin, self))));
            let mut threads = Vec::new();
            for (worker, mut schedule) in workers.into_iter().zip(schedules) {
                threads.push(self.begun(named().spawn_scoped(scope, move || {
                    let ended = worker.run(&mut || schedule.step());
                    ended.map(|(tally, end)| (tally, schedule.met(), end))
                })));
            }
            let mut ended: Vec<Ended> = Vec::new();
            for thread in threads {
                let joined = thread.and_then(|thread| {
                    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")))
                });
                ended.push(joined);
            }
            is_done.store(true, Ordering::Relaxed);
            telling.transpose()?;
            let server_seconds = observing.transpose()?.map(|observing| {
                observing.thread().unpark();
                observing.join().unwrap_or_default()
            });
            Ok((ended, server_seconds))
        })
    }

    /// Ends the run where the system gives a thread no place: the others must not wait for it.
    fn begun<T>(&self, thread: io::Result<T>) -> io::Result<T> {
        thread.inspect_err(|_| {
            self.live.stop.store(true, Ordering::Relaxed);
            self.ready.give_up();
            self.start.give_up();
        })
    }

    /// Threads of all processes.
    fn shares(&self) -> u64 {
        (self.options.threads * self.options.process.count) as u64
    }

    /// Whether all certificates have verified so far.
    ///
    /// # Errors
    /// Why the first one did not.
    fn verified(&self) -> io::Result<()> {
        match self.options.tls.as_ref().and_then(|tls| tls.unverified()) {
            None => Ok(()),
            Some(why) => Err(io::Error::other(format!(
                "the server's certificate does not verify {why}; give a file of its authority's or of itself (--tls-ca) \
                 and its name (--tls-name), or take any certificate (--insecure)"
            ))),
        }
    }
}

/// Says that this process is ready, and waits for the moment at which all begin.
fn await_others(begin: Begin, shared: &Shared<'_>) {
    if !shared.ready.wait() {
        return;
    }
    match begin() {
        Ok(anchor) => {
            let _ = shared.anchor.set(anchor);
            thread::sleep(anchor.saturating_duration_since(Instant::now()));
        }
        Err(_) => shared.live.stop.store(true, Ordering::Relaxed),
    }
    shared.start.wait();
}

/// Reads the server at each second of the run, and at its end.
fn observe(observer: Observer, shared: &Shared<'_>, is_done: &AtomicBool) -> Vec<ServerSecond> {
    if !shared.start.wait() {
        return Vec::new();
    }
    observe_from(*shared.anchor.get_or_init(Instant::now), observer, is_done)
}

/// Reads the server at each second from the anchor on until it is done; what parks is to be unparked then.
pub fn observe_from(anchor: Instant, mut observer: Observer, is_done: &AtomicBool) -> Vec<ServerSecond> {
    // What was done before is of no second.
    thread::sleep(anchor.saturating_duration_since(Instant::now()));
    let mut seconds = Vec::new();
    let mut before = anchor.elapsed();
    if observer.second(1.0).is_err() {
        return seconds;
    }
    while !is_done.load(Ordering::Relaxed) && seconds.len() < SECONDS_MAX {
        let due = Duration::from_secs(seconds.len() as u64 + 1);
        let left = due.saturating_sub(anchor.elapsed());
        if !left.is_zero() {
            thread::park_timeout(left);
            if anchor.elapsed() < due && !is_done.load(Ordering::Relaxed) {
                continue;
            }
        }
        let now = anchor.elapsed();
        // A server that ended is seen no more.
        match observer.second((now - before).as_secs_f64().max(1e-3)) {
            // One that came late is the mean of all seconds that have passed since the one before.
            Ok(second) => {
                let passed = usize::try_from(now.as_secs()).unwrap_or(usize::MAX).min(SECONDS_MAX);
                seconds.resize(passed.max(seconds.len() + 1), second);
            }
            Err(_) => break,
        }
        before = now;
    }
    seconds
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process")
            .field("count", &self.count)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

/// A time in nanoseconds.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Log {
    fn write(&self, rows: &[u8]) {
        let lock = |error: PoisonError<_>| error.into_inner();
        let mut file = self.file.lock().unwrap_or_else(lock);
        if let Some(to) = &mut *file
            && let Err(error) = to.write_all(rows)
        {
            *file = None;
            *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }
}

#[cfg(test)]
mod tests;
