//! Which cores there are for us, staying on one, coming before others or standing back, and resting between pieces of
//! long work.

use crate::scheduling::{Attributes, attributes, set_attributes};
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
/// In a container or under `taskset` these are fewer than the machine has. Where the system does not say which they are,
/// as on a machine for more than 1,024 processors, they are the first ones, as many as it says there are.
///
/// # Errors
/// What the system says when it does not say how many there are, either.
pub fn cores() -> io::Result<Vec<usize>> {
    let Ok(allowed) = sched_getaffinity(THIS_THREAD) else {
        return Ok((0..std::thread::available_parallelism()?.get()).collect());
    };
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

/// How long the slices are of a thread whose answers are waited for: the shortest that Linux gives.
const SHORT: Duration = Duration::from_micros(100);

/// Has the calling thread begin as soon as it is ready, also where another has begun a longer slice of its core, of a
/// millisecond or several. Its share of the core is what it was.
///
/// Linux heeds it from 6.12 on, without any right; an older one takes no notice. A thread with another policy than the
/// usual one (SCHED_OTHER) keeps that as it is.
///
/// # Errors
/// When the system refuses; the thread then runs as before.
pub fn come_soon() -> io::Result<()> {
    let mine = attributes()?;
    if mine.sched_policy != libc::SCHED_OTHER as u32 {
        return Ok(());
    }
    set_attributes(Attributes { sched_runtime: SHORT.as_nanos() as u64, ..mine })
}

/// How far behind others a thread stands that nobody waits for: it gets a tenth of a core that others want whole, and
/// all of one that nobody wants.
const BEHIND: i32 = 10;

/// Has the calling thread run when threads of ordinary priority leave time, as far as the system's scheduler knows such
/// a thing: it takes the core from nobody when it becomes ready (SCHED_BATCH), and has a small share of it. It is so also
/// where all other threads of the process were made real-time threads.
///
/// # Errors
/// When the system refuses; the thread then runs as before.
pub fn stand_back() -> io::Result<()> {
    let mine = attributes()?;
    set_attributes(Attributes {
        sched_policy: libc::SCHED_BATCH as u32,
        sched_nice: mine.sched_nice.max(BEHIND),
        sched_priority: 0,
        // As long a slice as the system gives.
        sched_runtime: 0,
        ..mine
    })
}

/// Has the calling thread run only where no other wants its core (SCHED_IDLE), which counts as idle while it runs: threads
/// that become ready come to it, rather than to a core that is busy with something that matters.
///
/// # Errors
/// When the system refuses; the thread then runs as before.
pub fn count_as_idle() -> io::Result<()> {
    let policy = libc::SCHED_IDLE as u32;
    set_attributes(Attributes { sched_policy: policy, sched_priority: 0, sched_runtime: 0, ..attributes()? })
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

    /// What a thread has after it asked for something: its policy, its nice value, and whether its slice is short.
    fn asked(ask: fn() -> io::Result<()>) -> (u32, i32, bool) {
        let mine = || {
            let mine = attributes().expect("it can be read");
            (mine.sched_policy, mine.sched_nice, u128::from(mine.sched_runtime) == SHORT.as_nanos())
        };
        let before = mine();
        let asked = std::thread::spawn(move || {
            ask().expect("nobody needs a right for it");
            mine()
        });
        let asked = asked.join().expect("the thread ends");
        assert_eq!(mine(), before, "no other thread is concerned");
        asked
    }

    #[test]
    fn only_the_thread_that_asks_stands_back() {
        let nice = attributes().expect("it can be read").sched_nice;
        assert_eq!(asked(stand_back), (libc::SCHED_BATCH as u32, BEHIND.max(nice), false));
        // So does one that was a real-time thread, where we may have such.
        let real_time = || -> io::Result<()> {
            let mine =
                Attributes { sched_policy: libc::SCHED_FIFO as u32, sched_priority: 1, ..attributes()? };
            let _ = set_attributes(Attributes { sched_nice: 0, sched_runtime: 0, ..mine });
            come_soon().and_then(|()| stand_back())
        };
        assert_eq!(asked(real_time).0, libc::SCHED_BATCH as u32);
    }

    #[test]
    fn only_the_thread_that_asks_counts_as_idle() {
        assert_eq!(asked(count_as_idle).0, libc::SCHED_IDLE as u32);
    }

    #[test]
    fn only_the_thread_that_asks_comes_soon() {
        let before = attributes().expect("it can be read");
        // What the kernel makes of it: before 6.12, nothing, and it tells of no slices either.
        let has_slices = before.sched_runtime > 0;
        assert_eq!(asked(come_soon), (before.sched_policy, before.sched_nice, has_slices));
        // One that stands back goes on doing so, and may ask again.
        let back = || stand_back().and_then(|()| come_soon()).and_then(|()| stand_back());
        assert_eq!(asked(back), asked(stand_back));
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
