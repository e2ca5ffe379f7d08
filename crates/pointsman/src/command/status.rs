//! `pointsman status`: how a running server is doing.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use api::Status as State;
use clap::Args;
use hyper::Method;

use crate::client::Call;
use crate::failure::Failure;
use crate::session::Connection;

/// The arguments of `status`.
#[derive(Args, Debug)]
pub(crate) struct Status {
    #[command(flatten)]
    connection: Connection,
}

impl Status {
    /// Does it.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn run(self) -> Result<(), Failure> {
        self.connection.begin()?.show(Call::new(Method::GET, "/v1/status"), shown).await
    }
}

fn shown(state: State) -> String {
    let late: Vec<String> = state
        .workers
        .iter()
        .filter(|worker| worker.generation != state.generation)
        .map(|worker| format!("worker {} at {}", worker.worker, worker.generation))
        .collect();
    let workers = match late.len() {
        0 => format!("{}, all at this generation", state.workers.len()),
        _ => format!("{}; {}", state.workers.len(), late.join(", ")),
    };
    let store = match (state.store.ok, state.store.message) {
        (true, _) => "ok".into(),
        (false, message) => format!("takes no changes: {}", message.unwrap_or_default()),
    };
    let counts = state.counts;
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<12}{value}");
    };
    line("version", state.version);
    line("up for", uptime(state.uptime_seconds));
    line("generation", state.generation.to_string());
    line("workers", workers);
    line("store", store);
    line("zones", format!("{}, {} records", counts.zones, counts.records));
    line("regions", counts.regions.to_string());
    line("partitions", counts.partitions.to_string());
    line("policies", format!("{}, {} names", counts.policies, counts.names));
    line("servers", format!("{}, {} of them down", counts.servers, counts.servers_down));
    line("queries", state.counters.queries.to_string());
    line("answers", listed(&state.counters.answers));
    line("truncated", state.counters.truncated.to_string());
    line("dropped", listed(&state.counters.dropped));
    text
}

fn listed(counted: &BTreeMap<String, u64>) -> String {
    let words: Vec<String> = counted
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    if words.is_empty() { "none".into() } else { words.join(", ") }
}

/// Writes seconds with days, as people compare them.
fn uptime(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptimes_have_two_units() {
        for (seconds, text) in [
            (59, "59 s"),
            (61, "1 min 1 s"),
            (3_600, "1 h 0 min"),
            (90_000, "1 d 1 h"),
            (86_399, "23 h 59 min"),
        ] {
            assert_eq!(uptime(seconds), text);
        }
    }
}
