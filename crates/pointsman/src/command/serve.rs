//! `pointsman serve`: the name server, from its first address to its last answer.

use std::sync::Arc;

use api::Faults;
use clap::Args;
use nameserver::edit::{Applied, Refused};
use nameserver::import::Import;
use nameserver::service::{Options, Service};
use net::privileges;
use tokio::signal::unix::{Signal, SignalKind};

use crate::account::become_user;
use crate::config::serve::Flags;
use crate::config::spec::Spec;
use crate::config::{self, change, lower::Lowered};
use crate::failure::Failure;
use crate::log::Log;
use crate::session;
use crate::supervision::{self, Stop};

/// The arguments of `serve`.
#[derive(Args, Debug)]
pub(crate) struct Serve {
    #[command(flatten)]
    flags: Flags,
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
        let (Lowered { options, log, spec, .. }, faults) = config::load(&self.flags);
        // The start reads the imports itself; here, what is wrong with them joins the list.
        if self.flags.check {
            log.begin();
            let held = check(&options, faults).await?;
            return session::print(format!("ok, with {held}").as_bytes());
        }
        let served = match faults.is_empty() {
            true => serve(options, log, Reloading { flags: self.flags.into(), spec }).await,
            false => check(&options, faults).await.map(|_| ()),
        };
        served.map_err(|failure| log.end(failure))
    }
}

/// Looks for all that is wrong beside `faults`; what the server would begin with.
async fn check(options: &Options, mut faults: Faults) -> Result<String, Failure> {
    // That there is no such user is told with all else.
    become_user(options.user.as_deref().filter(|user| privileges::look_up(user).is_ok()))?;
    let checked = Service::check(options).await.map_err(|found| faults.append(found));
    Ok(faults.or(checked.unwrap_or_default())?)
}

async fn serve(options: Options, log: Log, reloading: Reloading) -> Result<(), Failure> {
    log.begin();
    // Before the start, so that a signal during it is not lost.
    let (mut stop, hang_up) = (Stop::take()?, supervision::signal(SignalKind::hangup())?);
    // On a thread of its own: a file or a store may keep it waiting.
    let start = tokio::spawn(Service::start(options));
    let service = tokio::select! {
        () = stop.wanted() => {
            log.tell("stopped before the start was over");
            return Ok(());
        }
        started = start => started.map_err(|cause| Failure::Failed(format!("the start failed: {cause}")))??,
    };
    for address in service.listening() {
        log.tell(&format!("listening on {address} (UDP and TCP)"));
    }
    for address in service.listening_tls() {
        log.tell(&format!("listening on {address} (TLS)"));
    }
    log.tell(&format!("listening on http://{} (API)", service.api_address()));
    supervision::ready(log);
    // Changes that a reload has made already the stop finishes; all else of it may be left.
    tokio::select! {
        () = stop.wanted() => {}
        () = reloading.run(&service, hang_up) => {}
    }
    supervision::stopping();
    tracing::info!("stopping");
    service.stop().await;
    log.tell("stopped");
    Ok(())
}

/// What a reload goes by.
struct Reloading {
    flags: Arc<Flags>,
    /// What the server was started with.
    spec: Spec,
}

impl Reloading {
    /// Reloads at each SIGHUP. It never returns.
    async fn run(&self, service: &Service, mut hang_up: Signal) {
        loop {
            hang_up.recv().await;
            match self.reload(service).await {
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
    }

    /// Reads the configuration again, and what it names.
    async fn reload(&self, service: &Service) -> Result<Applied, Refused> {
        let flags = self.flags.clone();
        let read = tokio::task::spawn_blocking(move || config::load_again(&flags));
        let (Lowered { options, spec, .. }, faults) = read.await?;
        let mut imports = options.imports;
        if !faults.is_empty() {
            imports.push(Import::Faults(faults));
        }
        let tls = options.tls.as_ref().map(|(_, identity)| &**identity);
        let applied =
            service.reload(imports, options.transfer, options.views, &options.signing_keys, tls).await?;
        for key in change::kept(&self.spec, &spec) {
            tracing::warn!("{key} differs; restart to use it");
        }
        Ok(applied)
    }
}
