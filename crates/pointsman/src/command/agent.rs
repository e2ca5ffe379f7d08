//! `pointsman agent`: tells balancers what the server beside it can still take.

mod print;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use agent::http::Http;
use agent::run::{BALANCERS_MAX, SERVICES_MAX};
use agent::{Options, Settings};
use api::{Fault, Faults};
use balancer::circle::is_nowhere;
use clap::Args;
use credit::{Key, Service};
use net::shutdown::Shutdown;
use tokio::signal::unix::SignalKind;

use crate::config::kind;
use crate::config::lower::unguarded;
use crate::config::spec::{Place, Placed};
use crate::credit_key;
use crate::failure::Failure;
use crate::log::{Form, Log};
use crate::supervision::{self, Stop, signal};
use crate::token;
use print::Print;

/// How long a query may be meant to wait: below a tick of the agent nothing can be held, above a second nobody waits.
const TARGET_DELAY: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(1);

/// The arguments of `agent`.
#[derive(Args, Debug)]
pub(crate) struct Agent {
    /// What to look at, as udp:ADDRESS:PORT or tcp:ADDRESS:PORT; the address as balancers know it
    #[arg(long, value_name = "SERVICE", required = true)]
    service: Vec<Service>,
    /// Where balancers take reports; may be left out with --print, which then only shows what is seen
    #[arg(long, value_name = "ADDR", value_delimiter = ',', requires = "key")]
    balancer: Vec<SocketAddr>,
    /// The file with the key that the balancers have too
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// How long a query should wait in the queue at most
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = target_delay)]
    target_delay: Duration,
    /// Answer /v1/status and /metrics over HTTP at this address
    #[arg(long, value_name = "ADDR")]
    http: Option<SocketAddr>,
    /// The file with the token that HTTP asks for; it must be given where other machines reach the address
    #[arg(long, value_name = "FILE", requires = "http")]
    token_file: Option<PathBuf>,
    /// Show what is seen, on stdout: a table on a terminal, else a line a second
    #[arg(long)]
    print: bool,
    /// With --print: an object a second
    #[arg(long, requires = "print")]
    json: bool,
    /// The form of log lines
    #[arg(long, value_name = "FORM", default_value = "text", value_parser = ["text", "json"])]
    log: String,
}

impl Agent {
    /// Reports until it is told to stop.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let form = Form::of(&self.log);
        // A table would be torn by every line.
        let level = if self.print { tracing::Level::WARN } else { tracing::Level::INFO };
        let log = Log { form, level };
        self.report(log).await.map_err(|failure| log.end(failure))
    }

    async fn report(self, log: Log) -> Result<(), Failure> {
        let (key, token) = self.check()?;
        log.begin();
        let mut stop = Stop::take()?;
        let (mut drain, mut take) =
            (signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?);
        let hang_up = signal(SignalKind::hangup())?;
        tokio::spawn(supervision::nothing_to_reload(hang_up, "what is given changes with a restart"));
        let settings = Settings { target_delay: self.target_delay, ..Settings::default() };
        let options = Options { services: self.service, balancers: self.balancer, key, settings };
        let http = self.http.map(Http::bind).transpose();
        let http = http.map_err(|cause| Failure::Failed(format!("failed to {cause}")))?;
        let agent = agent::Agent::start(options).map_err(|error| Failure::Failed(error.to_string()))?;
        let shutdown = Shutdown::new();
        let served = http.map(|http| {
            log.tell(&format!("listening on http://{}", http.address()));
            tokio::spawn(http.serve(agent.view(), token, shutdown.clone()))
        });
        supervision::ready(log);
        let print = self.print.then(|| Print::new(self.json).begin(agent.view())).transpose()?;
        let unread = async {
            match print {
                Some(told) => told.await.ok(),
                None => std::future::pending().await,
            }
        };
        let mut unread = pin!(unread);
        let failed = loop {
            tokio::select! {
                () = stop.wanted() => break None,
                failed = &mut unread => break failed,
                _ = drain.recv() => {
                    agent.drain(true);
                    tracing::info!("draining: no more credit, until SIGUSR2");
                }
                _ = take.recv() => {
                    agent.drain(false);
                    tracing::info!("taking queries again");
                }
            }
        };
        supervision::stopping();
        shutdown.begin();
        agent.stop();
        if let Some(served) = served {
            // A panic of it is in the log.
            let _ = served.await;
        }
        log.tell("stopped");
        failed.map_or(Ok(()), Err)
    }

    /// Checks what was given, as a whole; returns the key, and the token of HTTP.
    fn check(&self) -> Result<(Key, Option<String>), Failure> {
        let mut faults = Faults::default();
        let mut at_most = |flag: &str, count: usize, most: usize| {
            if count > most {
                faults.push(Fault::whole(
                    flag,
                    format!("it is given {count} times"),
                    format!("at most {most}"),
                ));
            }
        };
        at_most("--service", self.service.len(), SERVICES_MAX);
        at_most("--balancer", self.balancer.len(), BALANCERS_MAX);
        if self.balancer.is_empty() && !self.print {
            let expected = "where balancers take reports, or --print to look without telling anybody";
            faults.push(Fault::whole("--balancer", "it is not given", expected));
        }
        let mut services = self.service.clone();
        services.sort_unstable();
        for same in services.windows(2).filter(|pair| pair[0] == pair[1]) {
            faults.push(Fault::whole(
                "--service",
                format!("{} is given twice", same[0]),
                "each service once",
            ));
        }
        let mut balancers = self.balancer.clone();
        balancers.sort_unstable();
        for same in balancers.windows(2).filter(|pair| pair[0] == pair[1]) {
            faults.push(Fault::whole(
                "--balancer",
                format!("{} is given twice", same[0]),
                "each balancer once",
            ));
        }
        for service in self.service.iter().filter(|service| is_nowhere(service.address())) {
            let what = format!("{service} is no service's address");
            faults.push(Fault::whole("--service", what, "the address and port by which balancers know it"));
        }
        for balancer in self.balancer.iter().filter(|balancer| is_nowhere(**balancer)) {
            let what = format!("{balancer} is no balancer's address");
            faults.push(Fault::whole("--balancer", what, "an address and a port (what its credit says)"));
        }
        let key = match &self.key {
            Some(path) => credit_key::read(path).map_err(|fault| faults.push(fault)).ok(),
            // Nothing is signed where there is nobody to tell.
            None => Some(Key::new(&[0; credit::key::KEY_LEN])),
        };
        let given = |value| Placed { value, place: Place::Flag("http") };
        let token = ("a --token-file", self.token_file.is_some());
        unguarded("http", self.http.map(given).as_ref(), token, &mut faults);
        let token = self.token_file.as_deref().map(token::read).transpose();
        let token = token.map_err(|fault| faults.push(fault)).ok().flatten();
        faults.or(())?;
        Ok((key.expect("without a key there is a fault"), token))
    }
}

fn target_delay(text: &str) -> Result<Duration, String> {
    kind::time_within(text, &TARGET_DELAY)
}
