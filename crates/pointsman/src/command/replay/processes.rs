//! A replay in several processes, where more sockets are wanted than one may have open: the first begins the others and
//! puts together what they tell.
//!
//! ```text
//! from a process, on its stdout:  tag, 1 octet │ length, 4 octets, little-endian │ octets
//!                                 'r' ready     'l' live numbers     'd' done: what came of it, packed
//! to a process, on its stdin:     8 octets, little-endian: the beginning, on the clock that all share; its end: stop
//! ```

use std::io::{self, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use net::clock;
use replay::mutate::Mutation;
use replay::observe::Observer;
use replay::send::packed::{merge, pack, unpack};
use replay::send::{Begin, Done, Live, observe_from};

use super::LIVE_PERIOD;
use crate::failure::Failure;

/// The most processes: each takes memory of its own, and reads the trace.
pub(super) const PROCESSES_MAX: i64 = 64;

/// The option that tells a process its number.
pub(super) const NUMBER: &str = "--process";

/// How long after all are ready the run begins: what it takes to tell all of them.
const BEGIN_AFTER: Duration = Duration::from_millis(50);

/// The most octets of a frame: what came of a run has a week of seconds three times, and five distributions.
const FRAME_MAX: u32 = 64 << 20;

/// The most octets that are kept of what a process says of its failure.
const SAID_MAX: u64 = 64 << 10;

/// What a process tells.
enum Told {
    Ready,
    Live([u64; 5]),
    Done(Vec<u8>),
    /// Nothing more.
    Ended,
}

/// The other processes of a run.
struct Others {
    children: Vec<Child>,
    /// Closed to stop them.
    stdins: Vec<Option<ChildStdin>>,
}

/// Runs so many processes of this program with the same arguments, and adds up what they tell.
pub(super) fn run(
    count: usize,
    mutation: Option<&Mutation>,
    live: &Live,
    observer: Option<Observer>,
    show: impl Fn(),
) -> Result<Done, Failure> {
    let mut others = Others::begin(count).map_err(|cause| failed(&cause))?;
    let is_done = &AtomicBool::new(false);
    let (packed, said, server_seconds) = thread::scope(|scope| {
        let (told, errors) = others.hear(scope);
        let mut observer = observer;
        let mut observing = None;
        let (mut ready, mut ended) = (0, 0);
        let mut packed: Vec<Option<Vec<u8>>> = vec![None; count];
        let mut shown = vec![[0; 5]; count];
        while ended < count {
            match told.recv_timeout(LIVE_PERIOD) {
                Ok((_, Told::Ready)) => {
                    ready += 1;
                    if ready == count
                        && let Ok(anchor) = others.start()
                        && let Some(observer) = observer.take()
                    {
                        observing = Some(scope.spawn(move || observe_from(anchor, observer, is_done)));
                    }
                }
                Ok((number, Told::Live(numbers))) => {
                    add(live, std::mem::replace(&mut shown[number], numbers), numbers);
                }
                Ok((number, Told::Done(octets))) => packed[number] = Some(octets),
                Ok((number, Told::Ended)) => {
                    ended += 1;
                    // One that fails ends the run.
                    if packed[number].is_none() {
                        others.stop();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if live.stop.load(Ordering::Relaxed) {
                others.stop();
            }
            show();
        }
        is_done.store(true, Ordering::Relaxed);
        let server_seconds = observing.map(|observing| {
            observing.thread().unpark();
            observing.join().unwrap_or_default()
        });
        let said: Vec<String> = errors.into_iter().map(|error| error.join().unwrap_or_default()).collect();
        (packed, said, server_seconds)
    });
    drop(others);
    let mut all = together(packed, &said, mutation)?;
    all.server_seconds = server_seconds;
    Ok(all)
}

/// Puts together what each process has told at its end; where one has not, what it has `said` on stderr is why.
fn together(
    packed: Vec<Option<Vec<u8>>>,
    said: &[String],
    mutation: Option<&Mutation>,
) -> Result<Done, Failure> {
    let mut all: Option<Done> = None;
    for (octets, said) in packed.into_iter().zip(said) {
        let octets = octets.ok_or_else(|| match said.trim().trim_start_matches("pointsman: ") {
            "" => Failure::Failed("a process of the run has ended before its time".into()),
            why => Failure::Failed(why.into()),
        })?;
        let done = unpack(&octets, mutation).map_err(|cause| failed(&cause))?;
        match &mut all {
            None => all = Some(done),
            Some(all) => merge(all, done),
        }
    }
    all.ok_or_else(|| Failure::Failed("no process was begun".into()))
}

fn failed(cause: &io::Error) -> Failure {
    Failure::Failed(format!("failed to begin further processes: {cause}"))
}

impl Others {
    fn begin(count: usize) -> io::Result<Others> {
        let program = std::env::current_exe()?;
        let mut others = Others { children: Vec::new(), stdins: Vec::new() };
        for number in 0..count {
            let mut command = Command::new(&program);
            // Behind the subcommand: at the end there may be no place for options (`--`).
            let mut said = std::env::args_os().skip(1);
            command.args(said.by_ref().take(1)).args([NUMBER, &number.to_string()]).args(said);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn()?;
            others.stdins.push(child.stdin.take());
            others.children.push(child);
        }
        Ok(others)
    }

    /// Hears what all tell, each with its number, and at their end what they have said on stderr.
    fn hear<'s>(
        &mut self,
        scope: &'s Scope<'s, '_>,
    ) -> (Receiver<(usize, Told)>, Vec<ScopedJoinHandle<'s, String>>) {
        let (tell, told) = mpsc::channel();
        let mut errors = Vec::new();
        for (number, child) in self.children.iter_mut().enumerate() {
            let (mut stdout, stderr, tell) = (child.stdout.take(), child.stderr.take(), tell.clone());
            scope.spawn(move || {
                while let Some(Ok(told)) = stdout.as_mut().map(read) {
                    let _ = tell.send((number, told));
                }
                let _ = tell.send((number, Told::Ended));
            });
            errors.push(scope.spawn(move || {
                let mut said = Vec::new();
                if let Some(mut stderr) = stderr {
                    let _ = stderr.by_ref().take(SAID_MAX).read_to_end(&mut said);
                    let _ = io::copy(&mut stderr, &mut io::sink());
                }
                String::from_utf8_lossy(&said).into_owned()
            }));
        }
        (told, errors)
    }

    /// Tells all when the run begins.
    fn start(&mut self) -> io::Result<Instant> {
        let begins = clock::shared()? + BEGIN_AFTER.as_nanos() as u64;
        for stdin in self.stdins.iter_mut().flatten() {
            // One that has ended is told of as such.
            let _ = stdin.write_all(&begins.to_le_bytes());
        }
        clock::of_shared(begins)
    }

    /// Tells all to stop.
    fn stop(&mut self) {
        self.stdins.iter_mut().for_each(|stdin| *stdin = None);
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        // All have told what they had to, or nobody wants it.
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Adds what a process tells since it told last.
fn add(live: &Live, before: [u64; 5], now: [u64; 5]) {
    let cells = [&live.sent, &live.answered, &live.lost, &live.late];
    for ((cell, before), now) in cells.into_iter().zip(before).zip(now) {
        cell.fetch_add(now.saturating_sub(before), Ordering::Relaxed);
    }
    live.lateness_p99.fetch_max(now[4], Ordering::Relaxed);
}

/// In one of the processes: hears from now on when the run begins, and that it is stopped.
pub(super) fn listen(live: &Arc<Live>) -> JoinHandle<io::Result<u64>> {
    let live = Arc::clone(live);
    thread::spawn(move || {
        let mut begins = [0; 8];
        let heard = io::stdin().read_exact(&mut begins);
        let stop = move || live.stop.store(true, Ordering::Relaxed);
        match heard {
            Ok(()) => drop(thread::spawn(move || {
                let _ = io::copy(&mut io::stdin(), &mut io::sink());
                stop();
            })),
            Err(_) => stop(),
        }
        heard.map(|()| u64::from_le_bytes(begins))
    })
}

/// In one of the processes: says that it is ready, and waits for the beginning.
pub(super) fn begin(begins: JoinHandle<io::Result<u64>>) -> Begin {
    Box::new(move || {
        write(b'r', &[])?;
        let begins = begins.join().unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")))?;
        clock::of_shared(begins)
    })
}

/// In one of the processes: tells the live numbers; who cannot be told is gone, and the run with it.
pub(super) fn tell_live(live: &Live) {
    let cells: [&AtomicU64; 5] = [&live.sent, &live.answered, &live.lost, &live.late, &live.lateness_p99];
    let octets: Vec<u8> = cells.iter().flat_map(|cell| cell.load(Ordering::Relaxed).to_le_bytes()).collect();
    if write(b'l', &octets).is_err() {
        live.stop.store(true, Ordering::Relaxed);
    }
}

/// In one of the processes: tells what came of it.
pub(super) fn tell_done(done: &Done) -> Result<(), Failure> {
    write(b'd', &pack(done)).map_err(|cause| Failure::output(&cause))
}

fn write(tag: u8, octets: &[u8]) -> io::Result<()> {
    let length = u32::try_from(octets.len()).ok().filter(|length| *length <= FRAME_MAX);
    let length = length.ok_or_else(|| io::Error::other("too much came of it to be told"))?;
    let mut stdout = io::stdout().lock();
    stdout.write_all(&[&[tag][..], &length.to_le_bytes(), octets].concat())?;
    stdout.flush()
}

fn read(from: &mut impl Read) -> io::Result<Told> {
    let mut head = [0; 5];
    from.read_exact(&mut head)?;
    let [tag, length @ ..] = head;
    let length = u32::from_le_bytes(length);
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "no frame");
    if length > FRAME_MAX {
        return Err(wrong());
    }
    let mut octets = Vec::new();
    from.take(length.into()).read_to_end(&mut octets)?;
    if octets.len() != length as usize {
        return Err(wrong());
    }
    match tag {
        b'r' => Ok(Told::Ready),
        b'd' => Ok(Told::Done(octets)),
        b'l' => {
            let (words, _) = octets.as_chunks::<8>();
            let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
            words.try_into().map(Told::Live).map_err(|_| wrong())
        }
        _ => Err(wrong()),
    }
}
