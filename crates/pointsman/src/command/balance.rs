//! `pointsman balance`: queries spread over name servers by what each can take.

use balancer::Service;
use clap::Args;
use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::balance::{self as config, Flags, Lowered};
use crate::failure::Failure;
use crate::log::Log;
use crate::session;

/// The arguments of `balance`.
#[derive(Args, Debug)]
pub(crate) struct Balance {
    #[command(flatten)]
    flags: Flags,
}

impl Balance {
    /// Balances until it is told to stop.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let (Lowered { options, form }, faults) = config::load(&self.flags);
        faults.or(())?;
        if self.flags.check {
            return session::print(b"ok");
        }
        let log = Log { form, level: tracing::Level::INFO };
        log.begin();
        // Before the start, so that a signal during it is not lost.
        let no_signals = |cause| Failure::Failed(format!("no signals: {cause}"));
        let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
        let service = Service::start(options).await.map_err(|error| Failure::Failed(error.to_string()))?;
        for address in service.listening() {
            log.tell(&format!("listening on {address} (DNS)"));
        }
        log.tell("ready");
        notify(NotifyState::Ready);
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        notify(NotifyState::Stopping);
        tracing::info!("stopping");
        service.stop().await;
        log.tell("stopped");
        Ok(())
    }
}

fn notify(state: NotifyState<'_>) {
    if let Err(cause) = sd_notify::notify(&[state]) {
        tracing::warn!(%cause, "the service manager was not told");
    }
}
