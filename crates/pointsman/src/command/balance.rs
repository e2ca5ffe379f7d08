//! `pointsman balance`: queries spread over name servers by what each can take.

mod back_ends;
mod cache;
mod status;

use std::sync::Arc;

use api::Faults;
use balancer::{Options, Service, measure};
use clap::{Args, Subcommand};
use net::tls::identity::Identity;
use tokio::signal::unix::{Signal, SignalKind};
use web::client::{BALANCE, Client};

use crate::account;
use crate::config::balance::{self as config, Flags, Lowered};
use crate::config::tls::Files;
use crate::failure::Failure;
use crate::log::Log;
use crate::session::{self, Session};
use crate::supervision::{self, Stop};
use crate::token;

/// The arguments of `balance`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Balance {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Print how a running balancer and its back ends are doing
    #[command(after_help = "Example:\n  pointsman balance status --watch 1s")]
    Status(status::Status),
    /// Add a back end
    #[command(after_help = "Example:\n  pointsman balance add 192.0.2.3:53")]
    Add(back_ends::Add),
    /// Take a back end out, once nothing is in flight there
    #[command(after_help = "Example:\n  pointsman balance remove 192.0.2.3:53")]
    Remove(back_ends::Named),
    /// Give a back end no more queries
    #[command(after_help = "Example:\n  pointsman balance drain 192.0.2.3:53")]
    Drain(back_ends::Named),
    /// Give a back end queries again
    #[command(after_help = "Example:\n  pointsman balance resume 192.0.2.3:53")]
    Resume(back_ends::Named),
    /// Forget the answers that are given again, or those about a name and all names below it
    #[command(after_help = "Example:\n  pointsman balance forget example.com")]
    Forget(cache::Forget),
}

/// Where a running balancer is, and how its answers are printed.
#[derive(Args, Clone, Debug)]
struct Connection {
    /// The URL of the balancer's HTTP
    #[arg(
        long,
        value_name = "URL",
        env = "POINTSMAN_BALANCE",
        default_value = "http://127.0.0.1:8055",
        hide_env_values = true
    )]
    http: String,
    #[command(flatten)]
    token: token::Source,
    /// Print what the balancer answers, as it is
    #[arg(long)]
    json: bool,
}

impl Connection {
    fn begin(&self) -> Result<Session, Failure> {
        Session::begin(&self.token, self.json, |token| Client::of(&self.http, token, BALANCE))
    }
}

impl Balance {
    /// Balances until it is told to stop, or asks one that does.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn run(self) -> Result<(), Failure> {
        match self.action {
            Some(Action::Status(status)) => status.run().await,
            Some(Action::Add(add)) => add.run().await,
            Some(Action::Remove(named)) => named.remove().await,
            Some(Action::Drain(named)) => named.change("drain").await,
            Some(Action::Resume(named)) => named.change("resume").await,
            Some(Action::Forget(forget)) => forget.run().await,
            None => run(&self.flags).await,
        }
    }
}

/// Looks at the configuration, or balances by it.
async fn run(flags: &Flags) -> Result<(), Failure> {
    let (Lowered { options, tls, form }, mut faults) = config::load(flags);
    account::look_up(options.user.as_deref(), &mut faults);
    if flags.check {
        faults.or(())?;
        return session::print(b"ok");
    }
    let log = Log { form, level: tracing::Level::INFO };
    serve(flags, options, tls, faults, log).await.map_err(|failure| log.end(failure))
}

/// Balances unless there are faults, by weights that are measured before where they are to be.
async fn serve(
    flags: &Flags,
    mut options: Options,
    shown: Option<Shown>,
    faults: Faults,
    log: Log,
) -> Result<(), Failure> {
    faults.or(())?;
    log.begin();
    // Before the start, so that a signal during it is not lost.
    let (mut stop, hang_up) = (Stop::take()?, supervision::signal(SignalKind::hangup())?);
    if flags.measure_weights {
        tokio::select! {
            measured = measure_weights(&mut options, log) => measured?,
            () = stop.wanted() => return Ok(()),
        }
    }
    let pools = options.pools.clone();
    let service = Service::start(options).await.map_err(|error| Failure::Failed(error.to_string()))?;
    for (what, address) in service.listening() {
        log.tell(&format!("listening on {address} ({what})"));
    }
    supervision::ready(log);
    tokio::select! {
        () = stop.wanted() => {}
        () = reload(flags, &pools, shown, &service, hang_up) => {}
    }
    supervision::stopping();
    tracing::info!("stopping");
    service.stop().await;
    log.tell("stopped");
    Ok(())
}

/// What clients are shown over TLS, and where it stands.
type Shown = (Arc<Identity>, Files);

/// Reads rules, certificate and key again at each SIGHUP, all of it or nothing where something is wrong, and has dnstap begin a
/// new file. It never returns.
async fn reload(
    flags: &Flags,
    pools: &[String],
    shown: Option<Shown>,
    service: &Service,
    mut hang_up: Signal,
) {
    const INSTEAD: &str =
        "back ends change over HTTP (pointsman balance add, remove), all else with a restart";
    if shown.is_none() && !flags.has_file() {
        return supervision::nothing_to_reload(hang_up, INSTEAD).await;
    }
    let what = match (flags.has_file(), &shown) {
        (true, Some(_)) => "rules, certificate and key",
        (true, None) => "rules",
        (false, _) => "certificate and key",
    };
    loop {
        hang_up.recv().await;
        service.reopen_tap();
        let (rules, mut faults) = config::load_rules(flags, pools);
        let renewed = shown.as_ref().map(|(_, files)| files.read());
        let renewed = renewed.and_then(|read| read.map_err(|fault| faults.push(fault)).ok());
        if let Err(faults) = faults.or(()) {
            for fault in &faults.faults {
                tracing::error!(%fault, "nothing is reloaded");
            }
            continue;
        }
        if let (Some((identity, _)), Some(renewed)) = (&shown, &renewed) {
            identity.renew(renewed);
        }
        let count = rules.len();
        service.replace_rules(rules).await;
        tracing::info!(rules = count, "{what} are read again; {INSTEAD}");
    }
}

/// Gives each back end the weight that its rate has beside those of others, and says so.
async fn measure_weights(options: &mut Options, log: Log) -> Result<(), Failure> {
    let mut rates = Vec::new();
    for server in &options.back_ends {
        let rate = measure::rate(server, &options.probing).await.map_err(|cause| {
            Failure::Failed(format!(
                "the weight of {server} cannot be measured: {cause}; --probe says what is asked, and a weight can be \
                 given: --backend {server}=1"
            ))
        })?;
        rates.push(rate);
    }
    for ((server, measured), rate) in options.back_ends.iter_mut().zip(measure::weights(&rates)).zip(rates) {
        server.weight = measured;
        log.tell(&format!("measured {rate:.0} answers a second: --backend {server}={measured}"));
    }
    Ok(())
}
