//! Which cores there are for us, staying on one, standing back for others, and resting between pieces of long work.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::prctl::set_timerslack;
use nix::unistd::Pid;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// The calling thread, as the affinity calls name it.
const THIS_THREAD: Pid = Pid::from_raw(0);

/// Lists the cores that the calling thread may run on, by number, in rising order.
///
/// In a container or under `taskset` these are fewer than the machine has.
///
/// # Errors
/// What the system says when the affinity mask cannot be read.
pub fn cores() -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(THIS_THREAD)?;
    Ok((0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or(false)).collect())
}

/// Binds the calling thread to one core, so that its caches stay warm.
///
/// # Errors
/// When there is no such core or the thread may not run there. The thread then runs as before, only not
/// pinned, so a caller reports this and goes on.
pub fn pin(core: usize) -> io::Result<()> {
    let mut only = CpuSet::new();
    only.set(core)?;
    Ok(sched_setaffinity(THIS_THREAD, &only)?)
}

/// How far behind others a thread stands that nobody waits for: it gets a tenth of a core that others want whole, and
/// all of one that nobody wants.
const BEHIND: i32 = 10;

/// Has the calling thread run when threads of ordinary priority leave time, as far as the system's scheduler knows such
/// a thing: where both are ready, it does not hold the others up for a slice of some milliseconds.
///
/// # Errors
/// When the system refuses; the thread then runs as before.
pub fn stand_back() -> io::Result<()> {
    // On Linux, priorities belong to threads, and no process means the calling thread.
    Ok(rustix::process::setpriority_process(None, BEHIND)?)
}

/// Has the calling thread's sleeps end when they are due: the kernel lets those of others last 50 microseconds longer, to
/// wake for several at once.
///
/// # Errors
/// When the system refuses; sleeps then end as before.
pub fn punctual() -> io::Result<()> {
    // 0 would mean the default.
    Ok(set_timerslack(1)?)
}

/// How long the calling thread has been ready to run and did not, as others had its core, from its beginning.
///
/// # Errors
/// Where the system's kernel does not count it, or `/proc` is not there.
pub fn waited() -> io::Result<Duration> {
    let counted = fs::read_to_string("/proc/thread-self/schedstat")?;
    // Nanoseconds on a core, nanoseconds ready, slices: sched-stats.rst of Linux.
    let ready = counted.split_whitespace().nth(1).and_then(|nanos| nanos.parse().ok());
    ready.map(Duration::from_nanos).ok_or_else(|| io::Error::other("/proc is not as expected"))
}

/// How long a thread that nobody waits for computes between two rests: so long may one that answers wait for its core.
const PIECE: Duration = Duration::from_micros(100);

/// How long it rests, to which the kernel's timers add about as much again.
const REST: Duration = Duration::from_micros(50);

/// The rests of a thread that nobody waits for and that has much to do.
///
/// Once a thread has begun, the scheduler may let it have its slice of a millisecond or several, also before one that is
/// ready and of a better priority; resting gives the core away at once.
#[derive(Debug)]
pub struct Rests {
    since: Instant,
}

impl Rests {
    /// Begins to work.
    pub fn begin() -> Rests {
        Rests { since: Instant::now() }
    }

    /// Rests, where it is time to: to be called after each step of the work, of some microseconds.
    pub fn step(&mut self) {
        if self.since.elapsed() >= PIECE {
            std::thread::sleep(REST);
            self.since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_thread_that_asks_stands_back() {
        let before = rustix::process::getpriority_process(None).expect("it can be read");
        let behind = std::thread::spawn(|| {
            stand_back().expect("nobody needs a right for it");
            rustix::process::getpriority_process(None).expect("it can be read")
        });
        assert_eq!(behind.join().expect("the thread ends"), BEHIND.max(before));
        assert_eq!(rustix::process::getpriority_process(None).expect("it can be read"), before);
    }

    #[test]
    fn only_the_thread_that_asks_is_punctual() {
        let slack = || nix::sys::prctl::get_timerslack().expect("it can be read");
        let before = slack();
        let asked = std::thread::spawn(move || {
            punctual().expect("nobody needs a right for it");
            slack()
        });
        assert_eq!((asked.join().expect("the thread ends"), slack()), (1, before));
    }

    #[test]
    fn who_shares_a_core_waits_for_it() {
        let core = cores().expect("the mask can be read")[0];
        let is_done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let busy = || {
                pin(core).expect("the mask allows it");
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            let (_one, _other) = (scope.spawn(busy), scope.spawn(busy));
            let waits = scope.spawn(|| {
                pin(core).expect("the mask allows it");
                let before = waited().expect("the kernel counts it");
                while waited().expect("the kernel counts it") == before {}
                is_done.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            waits.join().expect("others have the core in between");
        });
    }

    #[test]
    fn a_pinned_thread_has_one_core() {
        // Affinity belongs to the thread; one of its own keeps the other tests free.
        let pinned = std::thread::spawn(|| {
            let last = *cores().expect("the mask can be read").last().expect("we run somewhere");
            pin(last).expect("the mask allows it");
            (last, cores().expect("the mask can be read"))
        });
        let (core, left) = pinned.join().expect("the thread ends");
        assert_eq!(left, [core]);
    }

    #[test]
    fn a_core_that_is_not_there_is_an_error_and_changes_nothing() {
        let before = cores().expect("the mask can be read");
        for core in [CpuSet::count() - 1, CpuSet::count(), usize::MAX] {
            assert!(before.contains(&core) || pin(core).is_err(), "core {core}");
        }
        assert_eq!(cores().expect("the mask can be read"), before);
    }
}
