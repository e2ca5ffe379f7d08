//! Cores that do not rest.
//!
//! A core of a virtual machine that has nothing to do goes back to the machine's host. A timer that ends or a packet that
//! comes wakes it, and it begins once the host has a core for it: on a busy host that takes milliseconds, where a core
//! that was kept begins within a tenth of one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::Duration;

use crate::thread::{cores, count_as_idle, pin};

/// How long a thread has to say that it has begun: a core that lets it wait for longer does not rest.
const BEGIN_MAX: Duration = Duration::from_millis(200);

/// Keeps the cores that the calling thread may run on from resting, as long as it is there: a thread on each computes
/// while nobody else wants the core (SCHED_IDLE).
///
/// It takes time from no thread with an ordinary policy, and uses all that is left. So it is nothing for a container
/// whose processor time is limited: it would use up what the others need.
#[derive(Debug)]
pub struct Awake {
    /// Set when it is to end. The threads are not waited for: on a busy core they see it late.
    is_over: Arc<AtomicBool>,
}

impl Awake {
    /// Keeps them from resting from now on.
    ///
    /// # Errors
    /// When the system does not say which cores there are, gives no thread for one, or does not let it stay on its core
    /// and behind all others; nothing is kept awake then.
    pub fn begin() -> io::Result<Awake> {
        let awake = Awake { is_over: Arc::default() };
        for core in cores()? {
            let is_over = Arc::clone(&awake.is_over);
            let (begins, has_begun) = channel();
            Builder::new().name(format!("awake-{core}")).spawn(move || {
                // One that did not get this policy would take time from others.
                let asked = pin(core).and_then(|()| count_as_idle());
                let is_behind = asked.is_ok();
                let _ = begins.send(asked);
                while is_behind && !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })?;
            match has_begun.recv_timeout(BEGIN_MAX) {
                Ok(asked) => asked?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("a thread has panicked")),
            }
        }
        Ok(awake)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The cores that threads of this process keep awake, with each one's policy.
    fn awake() -> Vec<(String, String)> {
        let tasks = fs::read_dir("/proc/self/task").expect("it can be read").flatten();
        let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
        let mut awake: Vec<_> = stats
            .filter_map(|stat| {
                // proc_pid_stat(5): the policy is the 41st, of which two stand up to the name's end.
                let (before, behind) = stat.rsplit_once(')')?;
                let core = before.split_once("(awake-")?.1.to_owned();
                Some((core, behind.split_whitespace().nth(38)?.to_owned()))
            })
            .collect();
        awake.sort();
        awake
    }

    #[test]
    fn each_core_is_kept_awake_as_long_as_it_is_wanted() {
        let kept = Awake::begin().expect("nobody needs a right for it");
        let policy = nix::libc::SCHED_IDLE.to_string();
        let mut expected: Vec<_> =
            cores().expect("the mask can be read").iter().map(usize::to_string).collect();
        expected.sort();
        let expected: Vec<_> = expected.into_iter().map(|core| (core, policy.clone())).collect();
        // On a busy core a thread may not have begun yet.
        while awake() != expected {
            std::thread::yield_now();
        }
        drop(kept);
        while !awake().is_empty() {
            std::thread::yield_now();
        }
    }
}
