//! `pointsman control`: rows from loads, round by round.

use std::path::PathBuf;
use std::process::ExitCode;

use api::{ControlOutcome, ControlRound, Faults};
use clap::Args;
use control::Service;
use tokio::signal::unix::SignalKind;

use crate::config::control::{self as config, Lowered};
use crate::config::page;
use crate::failure::Failure;
use crate::log::Log;
use crate::session;
use crate::supervision::{self, Stop};

/// The arguments of `control`.
#[derive(Args, Debug)]
pub(crate) struct Control {
    /// The configuration file
    #[arg(long, value_name = "FILE", required_unless_present = "template")]
    config: Option<PathBuf>,
    /// Read the configuration, list every fault, and end
    #[arg(long)]
    check: bool,
    /// Print a configuration file with every key and its default, and end
    #[arg(long, exclusive = true)]
    template: bool,
    /// Install nothing; print what would be installed, and why
    #[arg(long)]
    dry_run: bool,
    /// Make one round and end; the exit code tells whether it came to an end
    #[arg(long)]
    once: bool,
    /// Print each round as JSON, a line each
    #[arg(long)]
    json: bool,
}

impl Control {
    /// Makes rounds until it is told to stop.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn run(self) -> Result<(), Failure> {
        if self.template {
            return session::print(page::control_template().as_bytes());
        }
        let path = self.config.as_deref().expect("the command line asks for it");
        let (form, lowered) = config::load(path);
        if self.check {
            lowered?;
            return session::print(b"ok");
        }
        let log = Log { form, level: tracing::Level::INFO };
        self.control(lowered, log).await.map_err(|failure| log.end(failure))
    }

    async fn control(self, lowered: Result<Lowered, Faults>, log: Log) -> Result<(), Failure> {
        let Lowered { mut options, interval, listen, report_token } = lowered?;
        options.dry_run = self.dry_run;
        log.begin();
        // Before the start, so that a signal during it is not lost.
        let (mut stop, hang_up) = (Stop::take()?, supervision::signal(SignalKind::hangup())?);
        tokio::spawn(supervision::nothing_to_reload(hang_up, "what is configured changes with a restart"));
        // Nobody hears of a single round's face before it is gone, and the process that goes on may have the address.
        let listen = listen.filter(|_| !self.once);
        let mut service = Service::start(options, listen, report_token)
            .await
            .map_err(|cause| Failure::Failed(format!("failed to {cause}")))?;
        let shutdown = service.shutdown();
        tokio::spawn(async move {
            stop.wanted().await;
            shutdown.begin();
        });
        if let Some(address) = service.listening() {
            log.tell(&format!("listening on http://{address} (reports and metrics)"));
        }
        let shown = |round: &ControlRound| match (self.json, self.dry_run || self.once) {
            (true, _) => print_json(round),
            (false, true) => session::print(table(round).as_bytes()),
            (false, false) => Ok(()),
        };
        if self.once {
            let round = service.round().await;
            service.stop().await;
            let round =
                round.ok_or_else(|| Failure::Failed("the round was stopped before its end".into()))?;
            // Also where nobody reads it, the exit code is that of the round.
            let printed = shown(&round);
            return outcome(&round).and(printed);
        }
        supervision::ready(log);
        let mut printed = Ok(());
        let each = |round: &ControlRound| {
            printed = shown(round);
            printed.is_ok()
        };
        service.run(interval, each).await;
        supervision::stopping();
        service.stop().await;
        log.tell("stopped");
        printed
    }
}

/// Whether one round did what it was made for. Why it did not is told already, by the log and what is printed; that no
/// load is known is no event to the log.
fn outcome(round: &ControlRound) -> Result<(), Failure> {
    let is_blind = round.servers.iter().all(|server| server.load.is_none());
    match round.outcome {
        ControlOutcome::Unchanged if is_blind => Err(Failure::Failed(round.why.clone())),
        ControlOutcome::Installed | ControlOutcome::Unchanged | ControlOutcome::DryRun => Ok(()),
        ControlOutcome::Unreachable => Err(Failure::Told(ExitCode::from(3))),
        _ => Err(Failure::Told(ExitCode::FAILURE)),
    }
}

fn print_json(round: &ControlRound) -> Result<(), Failure> {
    let mut line = serde_json::to_vec(round)
        .map_err(|cause| Failure::Failed(format!("the round cannot be written: {cause}")))?;
    line.push(b'\n');
    session::print(&line)
}

/// A round for people.
fn table(round: &ControlRound) -> String {
    let mut text = format!("policy   {}\noutcome  {}: {}\n", round.policy, round.outcome.word(), round.why);
    if let Some(generation) = round.generation {
        text += &format!("served   as of generation {generation}\n");
    }
    let sources: Vec<&str> =
        round.servers.first().iter().flat_map(|s| &s.readings).map(|r| r.source.as_str()).collect();
    let headings: Vec<&str> = ["SERVER", "LOAD", "ROOM"].into_iter().chain(sources).chain(["WHY"]).collect();
    let mut servers = session::table(&headings);
    for server in &round.servers {
        let mut cells = vec![server.target.to_string(), number(server.load), number(server.room)];
        cells.extend(server.readings.iter().map(|reading| number(reading.value)));
        let is_over = server.load.is_some_and(|load| load > 1.0);
        cells.push(if server.why.is_empty() && is_over { "overloaded".into() } else { server.why.clone() });
        servers.add_row(cells);
    }
    text += &format!("\n{}\n", session::lines(servers));
    if round.rows.is_empty() {
        return text;
    }
    let addresses: Vec<String> = round.rows[0].shares.iter().map(|share| share.target.to_string()).collect();
    let headings = ["REGION", "DEMAND"].into_iter().chain(addresses.iter().map(String::as_str));
    let mut rows = session::table(&headings.collect::<Vec<_>>());
    for row in &round.rows {
        let mut cells = vec![row.region.clone().unwrap_or("default".into()), number(row.demand)];
        cells.extend(row.shares.iter().map(|share| match (share.after - share.before).abs() < 5e-4 {
            true => format!("{:.3}", share.after),
            false => format!("{:.3} -> {:.3}", share.before, share.after),
        }));
        rows.add_row(cells);
    }
    text + &format!("\n{}\n", session::lines(rows))
}

/// A number for people; one that would be wider than its column is written by its power of ten.
fn number(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value.abs() < 1e12 => format!("{value:.3}"),
        Some(value) => format!("{value:.3e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_their_columns() {
        for (value, expected) in [
            (None, "-"),
            (Some(0.25), "0.250"),
            (Some(999_999_999_999.0), "999999999999.000"),
            (Some(f64::MAX), "1.798e308"),
        ] {
            assert_eq!(number(value), expected);
        }
    }
}
