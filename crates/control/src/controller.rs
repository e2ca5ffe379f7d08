//! A round: what serves, what the loads are, what should serve, and its installation.
//!
//! What is not known never makes the rows worse. A server whose load is unknown keeps its shares; one that only the
//! policy knows keeps them, too; where nothing is known, nothing is installed. A server that the name server leaves out
//! says nothing by being idle: it has no share until it is back. And nobody is overwritten: rows are
//! installed only over those that they were decided from (`If-Match`), and after a change of somebody else's the
//! controller stands back for a while.

use std::sync::Arc;
use std::time::Duration;

use api::{
    Changed, ControlOutcome, ControlReading, ControlRound, ControlRow, ControlServer, Policy, ProbeState,
    ServerState,
};
use hyper::{Method, StatusCode};
use net::clock::{Clock, Now};
use net::shutdown::Shutdown;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use web::client::{Answer, Body, Call, Client, Unmet, segment};

use crate::load::Load;
use crate::matrix::{self, Column};
use crate::numbers::Numbers;
use crate::out::{self, Out};
use crate::readings::Readings;
use crate::rule::Rule;
use crate::source::Source;

/// Measurements at a time: each may be a process or a connection.
const MEASURING_MAX: usize = 64;

/// Rounds without a change of somebody else's after which the controller takes over again: an operator, or another
/// control process, that goes on changing the policy is left alone.
pub const STAND_BACK: u32 = 5;

/// What a control process is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The API of the name server.
    pub client: Client,
    /// The first name of the policy whose rows are decided.
    pub policy: String,
    /// How its rows are decided, and for which servers.
    pub rule: Rule,
    /// How long a source may take for one value; beyond, there is none in this round.
    pub timeout: Duration,
    /// How old the last good value of a source may be; beyond, the server's load is unknown.
    pub stale: Duration,
    /// The sources of the servers' loads.
    pub sources: Vec<Source>,
    /// Whether rounds end where they would install rows.
    pub dry_run: bool,
}

/// Decides the rows of a policy, round by round.
#[derive(Debug)]
pub struct Controller {
    options: Options,
    clock: Clock,
    readings: Arc<Readings>,
    numbers: Arc<Numbers>,
    shutdown: Shutdown,
    /// The tag of the policy as it was last seen or written; `None` until then.
    tag: Option<String>,
    /// Rounds that are left to stand back for.
    stand_back: u32,
    /// What each server is to the policy, as it was last seen.
    standings: Vec<Standing>,
    /// What was last told of each server, so that it is told once: whether its load is known, and its standing.
    told: Vec<(bool, Standing)>,
}

/// What a configured server is to the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Drawn,
    LeftOut(Out),
    Missing,
}

/// What a round decides from, beside loads.
struct Seen {
    policy: Policy,
    tag: String,
    /// Why each of the policy's servers is left out; `None` for one that may be drawn.
    out: Vec<Option<Out>>,
}

/// What a source said of a server, by their numbers; nothing where it is not asked.
struct Measured {
    server: usize,
    source: usize,
    value: Option<Result<f64, String>>,
    at: Duration,
}

/// Why a round came to nothing.
struct Stopped(ControlOutcome, String);

impl Controller {
    /// A controller that has not looked at anything yet.
    pub fn new(
        options: Options,
        clock: Clock,
        readings: Arc<Readings>,
        numbers: Arc<Numbers>,
        shutdown: Shutdown,
    ) -> Controller {
        let standings = vec![Standing::Drawn; options.rule.servers.len()];
        let told = standings.iter().map(|standing| (true, *standing)).collect();
        Controller { options, clock, readings, numbers, shutdown, tag: None, stand_back: 0, standings, told }
    }

    /// Measures, decides, and installs what was decided.
    ///
    /// Where the shutdown begins before there is something to install, the round is broken off, and is none. What is on
    /// its way to the API is waited for.
    pub async fn round(&mut self) -> Option<ControlRound> {
        let began = self.clock.now();
        let mut round = ControlRound {
            unix_seconds: began.unix.as_secs(),
            policy: self.options.policy.clone(),
            outcome: ControlOutcome::Unchanged,
            why: String::new(),
            generation: None,
            servers: Vec::new(),
            rows: Vec::new(),
        };
        // Before anything is measured: what is decided from these rows is installed over these rows only.
        let seen = tokio::select! {
            seen = self.see() => seen,
            () = self.shutdown.wait() => return None,
        };
        self.measure().await?;
        if let Err(Stopped(outcome, why)) = self.work(seen, &mut round).await {
            (round.outcome, round.why) = (outcome, why);
        }
        self.tell(&round);
        self.numbers.round(&round);
        Some(round)
    }

    async fn work(&mut self, seen: Result<Seen, Stopped>, round: &mut ControlRound) -> Result<(), Stopped> {
        let now = self.clock.now();
        let mut loads = self.loads(now, round);
        let Seen { policy, tag, out } = seen?;
        self.notice(&tag);

        let mut columns = self.options.rule.columns(&policy);
        if !columns.iter().any(|column| column.configured.is_some()) {
            let what = format!("none of the configured servers is in the policy {}", self.options.policy);
            return Err(Stopped(ControlOutcome::Nothing, what));
        }
        for (number, (server, load)) in round.servers.iter_mut().zip(&mut loads).enumerate() {
            self.standings[number] = stand(number, &columns, &out, server, load);
        }
        matrix::leave_out(&mut columns, &out);
        let decision = self.options.rule.decide(now.monotonic, &policy, &columns, &loads);
        round.rows = decision.rows;
        self.install(round, &policy, decision.policy, tag).await
    }

    /// What serves, and to whom nobody is sent.
    async fn see(&self) -> Result<Seen, Stopped> {
        let (policy, tag) = self.serving().await?;
        let servers: Vec<ServerState> =
            understood(serde_json::from_slice(&self.get("/v1/servers").await?.body))?;
        let probes: Vec<ProbeState> =
            understood(serde_json::from_slice(&self.get("/v1/probes").await?.body))?;
        let out = out::of(&policy, &servers, &probes);
        Ok(Seen { policy, tag, out })
    }

    /// What serves, and its tag.
    async fn serving(&self) -> Result<(Policy, String), Stopped> {
        let answer = self.get(&self.path()).await?;
        let policy = understood(serde_json::from_slice(&answer.body))?;
        let tag = answer.tag.ok_or_else(|| Stopped(ControlOutcome::Refused, "the API gave no tag".into()))?;
        Ok((policy, tag))
    }

    async fn get(&self, path: &str) -> Result<Answer, Stopped> {
        let call = Call::new(Method::GET, path);
        self.options.client.send(call).await.map_err(|unmet| {
            let outcome = match &unmet {
                Unmet::Unreachable(_) => ControlOutcome::Unreachable,
                Unmet::Refused { status: StatusCode::NOT_FOUND, .. } => ControlOutcome::Nothing,
                _ => ControlOutcome::Refused,
            };
            Stopped(outcome, unmet.to_string())
        })
    }

    /// Asks all sources for all servers, a bounded number at a time; `None` where the shutdown began, with all that was
    /// started for it ended.
    async fn measure(&self) -> Option<()> {
        let mut measuring = self.measurements();
        loop {
            let measured = tokio::select! {
                measured = measuring.join_next() => measured,
                () = self.shutdown.wait() => {
                    // A command is killed by the end of the task that waits for it.
                    measuring.shutdown().await;
                    return None;
                }
            };
            match measured {
                None => return Some(()),
                Some(Ok(measured)) => self.note(measured),
                Some(Err(broken)) => std::panic::resume_unwind(broken.into_panic()),
            }
        }
    }

    /// A task for each server and source.
    fn measurements(&self) -> JoinSet<Measured> {
        let places = Arc::new(Semaphore::new(MEASURING_MAX));
        let mut measuring = JoinSet::new();
        for (server, options) in self.options.rule.servers.iter().enumerate() {
            for (source, asked) in self.options.sources.iter().enumerate() {
                let (kind, timeout) = (asked.kind.clone(), self.options.timeout);
                let (server_asked, places, clock) = (options.targets[0].clone(), places.clone(), self.clock);
                measuring.spawn(async move {
                    let _place = places.acquire_owned().await;
                    let value = kind.measure(&server_asked, timeout).await;
                    Measured { server, source, value, at: clock.now().monotonic }
                });
            }
        }
        measuring
    }

    fn note(&self, Measured { server, source, value, at }: Measured) {
        let Some(value) = value else { return };
        let per_second = self.options.sources[source].per_second;
        let verdict = self.readings.note(server, source, value, at, per_second);
        self.numbers.reading(source, verdict);
    }

    /// The load of each configured server, noted in the round.
    fn loads(&self, now: Now, round: &mut ControlRound) -> Vec<Option<Load>> {
        let stale = self.options.stale;
        let mut loads = Vec::new();
        for (number, server) in self.options.rule.servers.iter().enumerate() {
            let read: Vec<_> = (0..self.options.sources.len())
                .map(|source| self.readings.value(number, source, now.monotonic, stale))
                .collect();
            let scaled: Vec<_> =
                self.options.sources.iter().zip(&read).map(|(s, (v, _))| (s.scale, *v)).collect();
            let load = Load::of(&scaled);
            let unknown = self.options.sources.iter().zip(&read).find(|(_, (value, _))| value.is_none());
            let why = match unknown {
                Some((source, (_, why))) => format!("its load is unknown: {}: {why}", source.name),
                None if load.is_none() => {
                    "its load is unknown: its values over their thresholds are more than any load".into()
                }
                None => String::new(),
            };
            round.servers.push(ControlServer {
                target: server.targets[0].clone(),
                load: load.map(|load| load.relative),
                room: load.map(|load| load.room),
                readings: self
                    .options
                    .sources
                    .iter()
                    .zip(read)
                    .map(|(source, (value, why))| ControlReading { source: source.name.clone(), value, why })
                    .collect(),
                why,
            });
            loads.push(load);
        }
        loads
    }

    /// Sees whether somebody else changed the policy since the last round.
    fn notice(&mut self, tag: &str) {
        match &self.tag {
            Some(known) if known != tag => {
                self.stand_back = STAND_BACK;
                let policy = &self.options.policy;
                tracing::warn!(policy, "somebody else changed the policy; standing back");
            }
            _ => self.stand_back = self.stand_back.saturating_sub(1),
        }
        self.tag = Some(tag.to_owned());
    }

    async fn install(
        &mut self,
        round: &mut ControlRound,
        present: &Policy,
        decided: Policy,
        tag: String,
    ) -> Result<(), Stopped> {
        if decided == *present {
            let known = round.servers.iter().any(|server| server.load.is_some());
            round.why = if known { "the rows serve already" } else { "no server's load is known" }.into();
            return Ok(());
        }
        if self.stand_back > 0 {
            let what =
                format!("somebody else changed the policy not long ago; {} rounds to go", self.stand_back);
            return Err(Stopped(ControlOutcome::StoodBack, what));
        }
        if self.options.dry_run {
            return Err(Stopped(ControlOutcome::DryRun, "the rows would be installed".into()));
        }
        let mut call = Call::new(Method::PUT, self.path());
        (call.body, call.if_match) = (Some(Body::json(&decided)), Some(tag));
        match self.options.client.send(call).await {
            Ok(answer) => {
                let changed: Option<Changed> = serde_json::from_slice(&answer.body).ok();
                round.outcome = ControlOutcome::Installed;
                round.generation = changed.map(|changed| changed.generation);
                round.why = "every worker serves the rows".into();
                if answer.status == StatusCode::ACCEPTED {
                    round.why = "the rows are stored, and not every worker serves them yet".into();
                }
            }
            Err(Unmet::Refused { status: StatusCode::PRECONDITION_FAILED, .. }) => {
                self.stand_back = STAND_BACK;
                self.tag = None;
                let what = "somebody else changed the policy within the round (412)";
                return Err(Stopped(ControlOutcome::Overtaken, what.into()));
            }
            Err(unmet) => {
                // Whether it was done is not known where the connection was lost: the next round looks.
                self.tag = None;
                let outcome = match &unmet {
                    Unmet::Unreachable(_) => ControlOutcome::Unreachable,
                    _ => ControlOutcome::Refused,
                };
                return Err(Stopped(outcome, unmet.to_string()));
            }
        }
        // Only for the next round: it knows its own rows again.
        let shutdown = self.shutdown.clone();
        tokio::select! {
            () = self.remember(&decided) => {}
            () = shutdown.wait() => {}
        }
        Ok(())
    }

    /// Finds the tag of what was just installed, unless somebody else was quicker still.
    async fn remember(&mut self, installed: &Policy) {
        self.tag = None;
        if let Ok((policy, tag)) = self.serving().await {
            if policy.servers == installed.servers {
                self.tag = Some(tag);
            } else {
                self.stand_back = STAND_BACK;
            }
        }
    }

    /// Says in the log what a round came to: what was done and what went wrong, and of each server what is new.
    fn tell(&mut self, round: &ControlRound) {
        let (policy, outcome) = (&round.policy, round.outcome.word());
        let standings = self.told.iter_mut().zip(&self.standings);
        for ((told, standing), server) in standings.zip(&round.servers) {
            // The reason alone may be another one in each round. Who has no share has no load either, also in a round that
            // ended before that was looked at.
            let state = (server.load.is_some() && *standing == Standing::Drawn, *standing);
            if std::mem::replace(told, state) != state {
                match server.why.as_str() {
                    "" => tracing::info!(server = %server.target, "its load is known"),
                    why => tracing::warn!(server = %server.target, "{why}"),
                }
            }
        }
        match round.outcome {
            ControlOutcome::Unchanged => tracing::debug!(policy, outcome, "{}", round.why),
            ControlOutcome::Installed => {
                tracing::info!(policy, generation = round.generation, "installed: {}", rows(round));
            }
            ControlOutcome::DryRun => tracing::info!(policy, "would be installed: {}", rows(round)),
            ControlOutcome::StoodBack => tracing::info!(policy, outcome, "{}", round.why),
            // A line of the log is one event.
            _ => tracing::error!(policy, outcome, "{}", round.why.replace('\n', " ")),
        }
    }

    fn path(&self) -> String {
        format!("/v1/policies/{}", segment(&self.options.policy))
    }
}

fn understood<T>(read: serde_json::Result<T>) -> Result<T, Stopped> {
    read.map_err(|cause| {
        Stopped(ControlOutcome::Refused, format!("the API's answer is not understood: {cause}"))
    })
}

/// What the server of this number is to the policy, noted beside its load; one that is left out has none, for being idle
/// says nothing of it.
fn stand(
    number: usize,
    columns: &[Column],
    out: &[Option<Out>],
    server: &mut ControlServer,
    load: &mut Option<Load>,
) -> Standing {
    let Some(column) = columns.iter().find(|column| column.configured == Some(number)) else {
        server.why = add(&server.why, "it is not in the policy");
        return Standing::Missing;
    };
    let Some(out) = column.out(out) else { return Standing::Drawn };
    (server.load, server.room, *load) = (None, None, None);
    server.why = format!("its load is unknown: {}", out.why());
    Standing::LeftOut(out)
}

/// The rows in one line.
fn rows(round: &ControlRound) -> String {
    let row = |row: &ControlRow| {
        let shares: Vec<String> =
            row.shares.iter().map(|share| format!("{} {:.3}", share.target, share.after)).collect();
        format!("{}: {}", row.region.as_deref().unwrap_or("default"), shares.join(", "))
    };
    round.rows.iter().map(row).collect::<Vec<_>>().join("; ")
}

fn add(why: &str, more: &str) -> String {
    if why.is_empty() { more.into() } else { format!("{why}; {more}") }
}
