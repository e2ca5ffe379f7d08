//! Whoever runs this process, systemd or a person at a terminal: is told how far it is, and asks things of it by signals.

use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use nix::sys::signal::Signal as System;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind};

use crate::failure::Failure;
use crate::log::Log;

/// The signals that ask the process to end: SIGTERM and SIGINT.
#[derive(Debug)]
pub(crate) struct Stop(Vec<Signal>);

impl Stop {
    /// Takes the signals from now on: one that comes before it is waited for is not lost.
    ///
    /// # Errors
    /// As [`signal`] has them.
    pub(crate) fn take() -> Result<Stop, Failure> {
        Ok(Stop(vec![signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?]))
    }

    /// Takes SIGHUP, too, unless it is ignored (`nohup`): for what somebody looks at, once nobody does any more.
    ///
    /// # Errors
    /// As [`signal`] has them.
    pub(crate) fn or_hang_up(mut self) -> Result<Stop, Failure> {
        if !ignores_hang_up() {
            self.0.push(signal(SignalKind::hangup())?);
        }
        Ok(self)
    }

    /// Waits until one has come.
    pub(crate) async fn wanted(&mut self) {
        poll_fn(|context| match self.has_come(context) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// Whether one has come, for who is busy and looks now and then.
    pub(crate) fn is_wanted(&mut self) -> bool {
        self.has_come(&mut Context::from_waker(Waker::noop()))
    }

    fn has_come(&mut self, context: &mut Context<'_>) -> bool {
        self.0.iter_mut().any(|signal| signal.poll_recv(context).is_ready())
    }
}

/// Whether whoever began this process had it ignore SIGHUP.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    ignored.is_some_and(|set| set & 1 << (System::SIGHUP as u64 - 1) != 0)
}

/// Takes a signal from now on, whose own action is then not taken any more.
///
/// # Errors
/// [`Failure`] where the system gives none.
pub(crate) fn signal(kind: SignalKind) -> Result<Signal, Failure> {
    tokio::signal::unix::signal(kind).map_err(|cause| Failure::Failed(format!("no signals: {cause}")))
}

/// Has a write beyond the largest size of a file (`ulimit -f`) fail with an error that is told, for as long as the process
/// lives: SIGXFSZ, which would end it, does nothing where it is taken. Commands that it starts are not held to that.
///
/// # Errors
/// As [`signal`] has them.
pub(crate) fn outlast_full_files() -> Result<(), Failure> {
    // Tokio takes a signal for good, whoever waits for it.
    signal(SignalKind::from_raw(System::SIGXFSZ as i32)).map(drop)
}

/// Says at each SIGHUP that there is nothing to reload, and what to do `instead`. It never returns.
pub(crate) async fn nothing_to_reload(mut hang_up: Signal, instead: &str) {
    loop {
        hang_up.recv().await;
        tracing::info!("nothing to reload: {instead}");
    }
}

/// Tells that the process does what it is for.
pub(crate) fn ready(log: Log) {
    log.tell("ready");
    notify(NotifyState::Ready);
}

/// Tells the service manager that the process ends.
pub(crate) fn stopping() {
    notify(NotifyState::Stopping);
}

/// Tells the service manager, where there is one.
fn notify(state: NotifyState<'_>) {
    if let Err(cause) = sd_notify::notify(&[state]) {
        tracing::warn!(%cause, "the service manager was not told");
    }
}
