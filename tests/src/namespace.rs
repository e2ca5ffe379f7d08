//! Networks of a test's own: namespaces in which there is only what the test puts there, and from which no way leads out.

use std::panic;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Pid, gettid};

use crate::data::skip;
use crate::program;

/// Does `work` in a thread with a network of its own, and with it all that it starts; where none can be made, says that
/// the test skips.
///
/// # Panics
/// As `work` does; where loopback cannot be set up.
pub fn alone(work: impl FnOnce() + Send) {
    // Built while there is still a way out.
    program::path();
    let test = || match enter() {
        Ok(()) => work(),
        Err(why) => skip(&why),
    };
    // A thread for itself: the others of this program stay where they are.
    if let Err(panicked) = thread::scope(|scope| scope.spawn(test).join()) {
        panic::resume_unwind(panicked);
    }
}

/// Moves the calling thread into a network of its own, with loopback, and with it all that it starts. The network ends
/// with the last of them.
///
/// # Errors
/// Why there is none.
///
/// # Panics
/// Where loopback cannot be set up.
pub fn enter() -> Result<(), String> {
    unshare(CloneFlags::CLONE_NEWNET)
        .map_err(|cause| format!("the system makes no network namespace: {cause}"))?;
    ip("link set lo up");
    Ok(())
}

/// Another network, joined with the calling thread's by a pair of Ethernet devices: `near` is here, `far` there.
///
/// It ends with its thread, which ends where this is dropped, and with what was started in it.
#[derive(Debug)]
pub struct Other {
    work: mpsc::Sender<Work>,
    id: Pid,
}

type Work = Box<dyn FnOnce() + Send>;

impl Other {
    /// Makes it, and has iproute2 set up both ends: lines as of [`ip`], of here once there is `near`, and of there.
    ///
    /// # Panics
    /// Where a line fails.
    pub fn joined(here: &str, there: &'static str) -> Other {
        let (work, given) = mpsc::channel::<Work>();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            enter().expect("there is one more");
            tell.send(gettid()).expect("it is waited for");
            given.iter().for_each(|work| work());
        });
        let other = Other { work, id: told.recv().expect("it has a network") };
        ip("link add near type veth peer name far\nlink set near up");
        ip(here);
        ip(&format!("link set far netns {}", other.id));
        other.run(|| {
            ip("link set far up");
            ip(there);
        });
        other
    }

    /// Does `work` there; what it starts stays there.
    ///
    /// # Panics
    /// Where it does.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = mpsc::channel();
        let work = Box::new(move || {
            let _ = tell.send(work());
        });
        self.work.send(work).expect("its thread waits for work");
        told.recv().expect("the work ends well")
    }
}

/// Makes every address this network's own.
///
/// # Panics
/// Where that cannot be.
pub fn own_every_address() {
    ip("route add local 0.0.0.0/0 dev lo\nroute add local ::/0 dev lo");
}

/// Has iproute2 do this, a line each.
///
/// # Panics
/// Where one fails, or there is none (Debian: iproute2).
pub fn ip(lines: &str) {
    for line in lines.lines() {
        let done = Command::new("ip").args(line.split(' ')).output().expect("ip (Debian: iproute2)");
        assert!(done.status.success(), "ip {line}: {}", String::from_utf8_lossy(&done.stderr));
    }
}
