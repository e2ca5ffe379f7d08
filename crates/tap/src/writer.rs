//! The one thread that takes messages out of all rings and writes them.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver as Ended, RecvTimeoutError, channel};
use std::thread::{Thread, park_timeout};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dns::frame_streams::{Control, DNSTAP, push_control};

use super::{Config, Destination, Kinds, RING, Tap, file, ring, socket};

/// How long the writer rests when all rings are empty: senders do not wake it, for that is a system call.
const REST: Duration = Duration::from_millis(5);

/// Octets that are collected for one write.
const CHUNK: usize = 64 << 10;

/// Octets that end a file: an escape, the length of the frame, and the frame, which is its type.
const STOP: usize = 12;

/// The first wait after a failure; each further one is twice as long.
const BACK_OFF_MIN: Duration = Duration::from_millis(100);

/// The longest wait between two tries.
const BACK_OFF_MAX: Duration = Duration::from_secs(10);

/// How long a reader may take to greet us.
const GREETING_MAX: Duration = Duration::from_secs(5);

/// How long a reader may take for what is left when we stop.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// How long a stop waits for the writer, which a file system or a socket may hold beyond [`LEAVE_MAX`].
const STOP_MAX: Duration = Duration::from_secs(3);

/// What the writer counts.
#[derive(Debug, Default)]
pub struct Counters {
    /// Messages that were written.
    pub written: AtomicU64,
    /// Messages that were lost as the reader went, or the file took no more.
    pub failed: AtomicU64,
    /// Messages that were lost since the file was as large as it may be.
    pub beyond: AtomicU64,
}

/// A writer that is not running yet: taps are made first.
pub struct Writer {
    config: Arc<Config>,
    kinds: Kinds,
    rings: Vec<ring::Receiver>,
    /// The ring that comes first in the next round.
    first: usize,
    counters: Arc<Counters>,
    wanted: Arc<Wanted>,
    /// When the end was seen to be wanted.
    stop_seen: Option<Instant>,
    chunk: Vec<u8>,
    /// The file that was made before the thread.
    made: Option<Output>,
    /// The file that could not be written, and is tried again.
    kept: Option<Output>,
}

/// A writer that runs.
pub struct Writing {
    thread: Thread,
    wanted: Arc<Wanted>,
    ended: Ended<()>,
}

/// What the writer is asked to do.
#[derive(Default)]
struct Wanted {
    stop: AtomicBool,
    reopen: AtomicBool,
}

/// What is written to.
enum Output {
    Socket(UnixStream),
    /// A file, and how many octets it has.
    File(File, u64),
    /// A file that has all that it may, and was ended.
    Full,
}

/// Why an output is left in good order.
#[derive(PartialEq, Eq)]
enum Left {
    Reopen,
    Stop,
}

impl Writer {
    /// Makes a writer without rings, for who tells of such messages.
    pub fn new(config: Config, kinds: Kinds) -> Writer {
        Writer {
            config: Arc::new(config),
            kinds,
            rings: Vec::new(),
            first: 0,
            counters: Arc::default(),
            wanted: Arc::default(),
            stop_seen: None,
            chunk: Vec::with_capacity(2 * CHUNK),
            made: None,
            kept: None,
        }
    }

    /// Makes the tap of one more thread.
    pub fn tap(&mut self) -> Tap {
        let (tap, ring) = Tap::new(self.config.clone(), self.kinds, RING);
        self.rings.push(ring);
        tap
    }

    /// What it counts.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Makes the file, where it is one, so that a wrong path is seen before anything starts. Where there is no room for it now,
    /// that is tried again later: nobody goes unanswered for it.
    ///
    /// # Errors
    /// What the system says of the file, with its path.
    pub fn make_file(&mut self) -> Result<(), String> {
        if let Destination::File(path) = &self.config.destination {
            let path = path.display().to_string();
            match self.open() {
                Ok(made) => self.made = Some(made),
                Err(cause) if is_full(&cause) => {
                    tracing::warn!(path, %cause, "no room for the dnstap file; it is tried again and again");
                }
                Err(cause) => return Err(format!("failed to make the dnstap file {path}: {cause}")),
            }
        }
        Ok(())
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// What the system says of the thread.
    pub fn start(self) -> io::Result<Writing> {
        let wanted = self.wanted.clone();
        let (end, ended) = channel();
        let thread = std::thread::Builder::new().name("dnstap".into()).spawn(move || {
            self.run();
            // Who stops us may have gone.
            let _ = end.send(());
        })?;
        Ok(Writing { thread: thread.thread().clone(), wanted, ended })
    }

    fn run(mut self) {
        let mut back_off = BACK_OFF_MIN;
        // One line for all failures in a row.
        let mut is_told = false;
        loop {
            let written = self.counters.written.load(Ordering::Relaxed);
            let kept = self.kept.take();
            let carried = kept.map_or_else(|| self.begin(), Ok).and_then(|output| self.carry(output));
            if self.counters.written.load(Ordering::Relaxed) > written {
                (back_off, is_told) = (BACK_OFF_MIN, false);
            }
            match carried {
                Ok(Left::Stop) => return,
                Ok(Left::Reopen) => continue,
                Err(cause) if !is_told => {
                    is_told = true;
                    tracing::warn!(to = %self.config.destination, %cause, "dnstap is not written; trying again");
                }
                Err(cause) => tracing::debug!(%cause, "dnstap is still not written"),
            }
            if self.is_stopping() {
                return;
            }
            park_timeout(back_off);
            back_off = (2 * back_off).min(BACK_OFF_MAX);
        }
    }

    /// What is written to from now on.
    fn begin(&mut self) -> io::Result<Output> {
        let made = self.made.take();
        let output = made.map_or_else(|| self.open(), Ok)?;
        tracing::info!(to = %self.config.destination, "dnstap begins");
        Ok(output)
    }

    fn open(&mut self) -> io::Result<Output> {
        let config = self.config.clone();
        match &config.destination {
            Destination::Socket(path) => self.connect(path).map(Output::Socket),
            Destination::File(path) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let mut file = file::create(path, now.as_secs())?;
                let mut start = Vec::new();
                push_control(&mut start, Control::Start, Some(DNSTAP));
                // What holds nothing would be put aside by the next try.
                file.write_all(&start).inspect_err(|_| drop(fs::remove_file(path)))?;
                Ok(Output::File(file, start.len() as u64))
            }
        }
    }

    fn connect(&mut self, path: &Path) -> io::Result<UnixStream> {
        let mut stream = UnixStream::connect(path)?;
        let until = Instant::now() + GREETING_MAX;
        socket::greet(&mut stream, &mut || self.is_stopping() || Instant::now() > until)?;
        Ok(stream)
    }

    /// Writes what comes until something else is wanted.
    fn carry(&mut self, mut output: Output) -> io::Result<Left> {
        loop {
            // Seen before the rings are: what came before the wish is written before it is followed.
            let is_stopping = self.is_stopping();
            let messages = self.collect();
            if messages > 0 {
                let chunk = std::mem::take(&mut self.chunk);
                if !output.has_room(chunk.len(), self.config.file_max) {
                    // Also where it has no room for its end, no other begins.
                    let _ = output.finish(&mut || self.must_leave());
                    output = Output::Full;
                    let (to, octets) = (&self.config.destination, self.config.file_max);
                    tracing::warn!(%to, octets, "dnstap ends: the file is full until SIGHUP begins another");
                }
                let written = output.write_all(&chunk, &mut || self.must_leave());
                self.chunk = chunk;
                let count = match (&written, &output) {
                    (Ok(()), Output::Full) => &self.counters.beyond,
                    (Ok(()), _) => &self.counters.written,
                    (Err(_), _) => &self.counters.failed,
                };
                count.fetch_add(messages, Ordering::Relaxed);
                if let Err(cause) = written {
                    self.keep(output);
                    return Err(cause);
                }
            }
            if self.is_reopening() {
                output.finish(&mut || self.must_leave())?;
                return Ok(Left::Reopen);
            }
            if messages == 0 {
                if is_stopping {
                    output.finish(&mut || self.must_leave())?;
                    return Ok(Left::Stop);
                }
                park_timeout(REST);
            }
        }
    }

    /// Goes on later with a file that could not be written, so that each try does not put a torn one aside. Where another is
    /// wanted, or none, it ends here.
    fn keep(&mut self, mut output: Output) {
        if output.take_back().is_err() {
            return;
        }
        if self.is_reopening() || self.is_stopping() {
            // It may have no room for that either.
            let _ = output.finish(&mut || true);
        } else {
            self.kept = Some(output);
        }
    }

    /// Collects messages from all rings, up to a chunk; returns how many.
    fn collect(&mut self) -> u64 {
        self.chunk.clear();
        let (count, mut messages) = (self.rings.len(), 0);
        for number in 0..count {
            let ring = &mut self.rings[(self.first + number) % count];
            while self.chunk.len() < CHUNK && ring.pop(&mut self.chunk) {
                messages += 1;
            }
        }
        // No ring is always the last.
        self.first = (self.first + 1) % count.max(1);
        messages
    }

    fn is_stopping(&mut self) -> bool {
        if self.stop_seen.is_none() && self.wanted.stop.load(Ordering::Acquire) {
            self.stop_seen = Some(Instant::now());
        }
        self.stop_seen.is_some()
    }

    /// Takes the wish for another file; a socket has nothing to be opened anew.
    fn is_reopening(&self) -> bool {
        matches!(self.config.destination, Destination::File(_))
            && self.wanted.reopen.swap(false, Ordering::AcqRel)
    }

    /// Whether a reader has had its time since the stop.
    fn must_leave(&mut self) -> bool {
        self.is_stopping() && self.stop_seen.is_some_and(|seen| seen.elapsed() > LEAVE_MAX)
    }
}

impl fmt::Debug for Writing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writing").finish_non_exhaustive()
    }
}

impl Writing {
    /// Has the file ended and another one begun; nothing for a socket.
    pub fn reopen(&self) {
        self.wanted.reopen.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// Ends it: what is in the rings is written, where that goes on. Blocks for a few seconds at most.
    pub fn stop(self) {
        self.wanted.stop.store(true, Ordering::Release);
        self.thread.unpark();
        if self.ended.recv_timeout(STOP_MAX) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("dnstap is given up: its socket or file blocks");
        }
    }
}

impl Output {
    /// Whether a chunk and the end fit a file of `file_max` octets; a socket and what is full take any.
    fn has_room(&self, chunk: usize, file_max: u64) -> bool {
        match self {
            Output::Socket(_) | Output::Full => true,
            Output::File(_, octets) => octets + (chunk + STOP) as u64 <= file_max,
        }
    }

    fn write_all(&mut self, octets: &[u8], give_up: &mut dyn FnMut() -> bool) -> io::Result<()> {
        match self {
            Output::Socket(stream) => socket::write_all(stream, octets, give_up),
            Output::File(file, written) => {
                file.write_all(octets)?;
                *written += octets.len() as u64;
                Ok(())
            }
            Output::Full => Ok(()),
        }
    }

    /// Cuts off what was written in part. Not of a socket: its stream is broken.
    fn take_back(&mut self) -> io::Result<()> {
        let Output::File(file, written) = self else { return Err(io::ErrorKind::Unsupported.into()) };
        file.set_len(*written)?;
        file.seek(SeekFrom::Start(*written)).map(|_| ())
    }

    fn finish(&mut self, give_up: &mut dyn FnMut() -> bool) -> io::Result<()> {
        match self {
            Output::Socket(stream) => socket::leave(stream, give_up),
            Output::Full => Ok(()),
            Output::File(file, _) => {
                let mut stop = Vec::new();
                push_control(&mut stop, Control::Stop, None);
                file.write_all(&stop)
            }
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Destination::Socket(path) | Destination::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Whether a file cannot be written for want of room alone, which somebody may make.
fn is_full(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_want_of_room_is_waited_for() {
        let [no_space, no_quota, no_right] = [28, 122, 13].map(io::Error::from_raw_os_error);
        assert!(is_full(&no_space) && is_full(&no_quota) && !is_full(&no_right));
    }
}
