//! `pointsman serve`: the name server, from its first address to its last answer.

use std::io;

use api::Faults;
use clap::Args;
use nameserver::edit::Refused;
use nameserver::server::{Options, Server, StartError};
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::flags::Flags;
use crate::config::{self, lower::Lowered};
use crate::failure::Failure;
use crate::log::Log;
use crate::session;

/// The arguments of `serve`.
#[derive(Args, Debug)]
pub(crate) struct Serve {
    #[command(flatten)]
    flags: Flags,
}

/// The signals that concern a server.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

/// What a signal asks for.
#[derive(Clone, Copy)]
enum Wanted {
    Stop,
    Reload,
}

impl Serve {
    /// Serves until it is told to stop.
    ///
    /// # Errors
    /// [`Failure`]; all faults of configuration and imports together.
    pub(crate) async fn run(self) -> Result<(), Failure> {
        if self.flags.template {
            return session::print(config::page::template().as_bytes());
        }
        let (Lowered { options, log, .. }, mut faults) = config::load(&self.flags);
        // The start reads the imports itself; here, what is wrong with them joins the list.
        if self.flags.check || !faults.is_empty() {
            Server::check(&options).await.unwrap_or_else(|found| faults.append(found));
        }
        if self.flags.check {
            faults.or(())?;
            return session::print(b"ok");
        }
        serve(options, faults, log).await.map_err(|failure| log.end(failure))
    }
}

/// Serves unless there are faults.
async fn serve(options: Options, faults: Faults, log: Log) -> Result<(), Failure> {
    faults.or(())?;
    log.begin();
    // Before the start, so that a signal during it is not lost.
    let mut signals = Signals::new().map_err(|cause| Failure::Failed(format!("no signals: {cause}")))?;
    let server = Server::start(options).await.map_err(|error| match error {
        StartError::Faults(faults) => Failure::Faults(faults),
        other => Failure::Failed(other.to_string()),
    })?;
    for address in server.listening() {
        log.tell(&format!("listening on {address} (UDP and TCP)"));
    }
    log.tell(&format!("listening on http://{} (API)", server.api_address()));
    log.tell("ready");
    notify(&[NotifyState::Ready]);
    while let Wanted::Reload = signals.next().await {
        // Changes that it has made already the stop finishes; all else of it may be left.
        tokio::select! {
            () = reload(&server) => {}
            () = signals.stop() => break,
        }
    }
    notify(&[NotifyState::Stopping]);
    tracing::info!("stopping");
    server.stop().await;
    log.tell("stopped");
    Ok(())
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Wanted {
        tokio::select! {
            _ = self.terminate.recv() => Wanted::Stop,
            _ = self.interrupt.recv() => Wanted::Stop,
            _ = self.hang_up.recv() => Wanted::Reload,
        }
    }

    /// Waits until one asks to stop.
    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

async fn reload(server: &Server) {
    match server.reload().await {
        Ok(applied) => tracing::info!(generation = applied.generation, "reloaded"),
        Err(Refused::Faults(faults)) => {
            for fault in &faults.faults {
                tracing::error!("{fault}");
            }
            let count = faults.faults.len() as u64 + faults.omitted;
            tracing::error!(faults = count, "not reloaded; the last generation goes on");
        }
        Err(refused) => tracing::error!(%refused, "not reloaded; the last generation goes on"),
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(cause) = sd_notify::notify(states) {
        tracing::warn!(%cause, "the service manager was not told");
    }
}
