//! Other programs, each in a process group of its own and each with a time limit.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::Pid;

/// How long a process group may take to end after SIGTERM, before SIGKILL: time for clean-up on exit.
const GRACE_MAX: Duration = Duration::from_secs(10);

/// Starts programs one at a time, and ends them on a time limit or when this program is told to end.
pub(crate) struct Runner {
    signals: SigSet,
    events: Receiver<Event>,
    sender: Sender<Event>,
    interrupted: Cell<bool>,
}

/// Why a program did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It could not be started.
    NotStarted(io::Error),
    /// It ended with another status than 0.
    Ended(ExitStatus),
    /// It was still running at its limit; its process group was killed.
    TimedOut(Duration),
    /// This program was told to end (SIGINT, SIGTERM or SIGHUP) and passed it on.
    Interrupted,
}

enum Event {
    Ended(io::Result<Output>),
    ToldToEnd,
}

impl Runner {
    /// Takes over SIGINT, SIGTERM and SIGHUP: they arrive as events, so that no program is left running.
    ///
    /// Must be called before any other thread is started, because threads inherit the signal mask.
    pub(crate) fn new() -> nix::Result<Self> {
        let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
        signals.thread_block()?;
        let (sender, events) = mpsc::channel();
        let told = sender.clone();
        thread::spawn(move || while signals.wait().is_ok() && told.send(Event::ToldToEnd).is_ok() {});
        Ok(Runner { signals, events, sender, interrupted: Cell::new(false) })
    }

    /// Runs a program whose output goes where ours goes, and waits for its end.
    pub(crate) fn run(&self, command: &mut Command, limit: Duration) -> Result<(), Failure> {
        self.finish(command, limit).map(drop)
    }

    /// Runs a program and returns what it wrote to its standard output.
    pub(crate) fn read(&self, command: &mut Command, limit: Duration) -> Result<String, Failure> {
        let output = self.finish(command.stdout(Stdio::piped()), limit)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Whether this program was told to end; nothing more should be started then.
    pub(crate) fn interrupted(&self) -> bool {
        self.interrupted.get()
    }

    fn finish(&self, command: &mut Command, limit: Duration) -> Result<Output, Failure> {
        if self.interrupted() {
            return Err(Failure::Interrupted);
        }
        let group = self.spawn(command)?;
        match self.events.recv_timeout(limit) {
            Ok(Event::Ended(output)) => {
                // What it has left in its group is nobody's any more.
                let _ = killpg(group, Signal::SIGKILL);
                let output = output.map_err(Failure::NotStarted)?;
                if output.status.success() { Ok(output) } else { Err(Failure::Ended(output.status)) }
            }
            Ok(Event::ToldToEnd) => {
                self.interrupted.set(true);
                self.end(group);
                Err(Failure::Interrupted)
            }
            // The other reason for an error, no sender, cannot be: `self` holds one.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                self.end(group);
                Err(Failure::TimedOut(limit))
            }
        }
    }

    /// Starts a program as the leader of a new process group; its end will be an event.
    fn spawn(&self, command: &mut Command) -> Result<Pid, Failure> {
        // A child inherits the mask, and would not hear SIGTERM. A signal that comes between these lines ends
        // this program in the ordinary way.
        self.signals.thread_unblock().map_err(|error| Failure::NotStarted(error.into()))?;
        let child = command.stdin(Stdio::null()).process_group(0).spawn();
        self.signals.thread_block().map_err(|error| Failure::NotStarted(error.into()))?;
        let child = child.map_err(Failure::NotStarted)?;
        let group = Pid::from_raw(child.id().cast_signed());
        let ended = self.sender.clone();
        thread::spawn(move || ended.send(Event::Ended(child.wait_with_output())));
        Ok(group)
    }

    /// Ends a process group; returns when its leader is gone.
    fn end(&self, group: Pid) {
        // A group that is gone already (ESRCH) is what we want.
        let _ = killpg(group, Signal::SIGTERM);
        let mut wait = GRACE_MAX;
        loop {
            match self.events.recv_timeout(wait) {
                Ok(Event::Ended(_)) => break,
                Ok(Event::ToldToEnd) => self.interrupted.set(true),
                Err(_) => {}
            }
            // Past the grace, or told to end a second time.
            let _ = killpg(group, Signal::SIGKILL);
            wait = Duration::from_secs(1);
        }
        // The leader may have ended in peace while a grandchild did not.
        let _ = killpg(group, Signal::SIGKILL);
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NotStarted(error) => write!(f, "could not be started: {error}"),
            Failure::Ended(status) => write!(f, "ended with {status}"),
            Failure::TimedOut(limit) => write!(f, "still running after {} s, killed", limit.as_secs()),
            Failure::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn each_end_of_a_program_has_its_outcome() {
        let runner = Runner::new().expect("signals can be blocked");
        let long = Duration::from_secs(60);
        assert_eq!(runner.read(&mut sh("echo out"), long).expect("succeeds"), "out\n");
        assert!(matches!(runner.run(&mut sh("exit 3"), long), Err(Failure::Ended(s)) if s.code() == Some(3)));
        let absent = runner.run(&mut Command::new("/nonexistent/program"), long);
        assert!(matches!(absent, Err(Failure::NotStarted(_))));
    }

    #[test]
    fn the_whole_group_is_killed_at_the_limit() {
        let runner = Runner::new().expect("signals can be blocked");
        // The pipe stays open as long as any of the two sleepers lives: without the group's end, `read` would
        // return only after an hour.
        let outcome = runner.read(&mut sh("sleep 3600 & sleep 3600"), Duration::from_millis(50));
        assert!(matches!(outcome, Err(Failure::TimedOut(_))));
        assert!(!runner.interrupted());
    }

    #[test]
    fn a_program_that_ignores_the_polite_signal_is_killed() {
        let runner = Runner::new().expect("signals can be blocked");
        let group = runner.spawn(&mut sh("trap '' TERM; sleep 3600 & wait")).expect("sh starts");
        // Being told to end while ending takes the grace away.
        runner.sender.send(Event::ToldToEnd).expect("the runner listens");
        runner.end(group);
        assert!(runner.interrupted());
        assert!(matches!(runner.run(&mut sh("exit 0"), GRACE_MAX), Err(Failure::Interrupted)));
    }
}
