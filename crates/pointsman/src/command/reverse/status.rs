//! `pointsman reverse status`: how a running service is doing, as its HTTP face says.

use std::fmt::Write as _;

use api::ReverseStatus;
use clap::Args;

use crate::command::status::uptime;
use crate::failure::Failure;
use crate::session::{self, Session};
use web::client::{Client, REVERSE};

/// The arguments of `reverse status`.
#[derive(Args, Debug)]
pub(super) struct Status {
    /// The URL of the service's HTTP face
    #[arg(
        long,
        value_name = "URL",
        env = "POINTSMAN_REVERSE",
        default_value = "http://127.0.0.1:8054",
        hide_env_values = true
    )]
    http: String,
    /// Print what the service answers, as it is
    #[arg(long)]
    json: bool,
}

impl Status {
    /// Asks the service how it is doing, and prints that.
    ///
    /// # Errors
    /// [`Failure`].
    pub(super) async fn run(self) -> Result<(), Failure> {
        let client = Client::of(&self.http, None, REVERSE)?;
        Session::new(client, self.json).look("/v1/status", shown).await
    }
}

fn shown(state: ReverseStatus) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<15}{value}");
    };
    let share = |part: u64| match state.requests {
        0 => part.to_string(),
        all => format!("{part} ({:.1} %)", part as f64 * 100.0 / all as f64),
    };
    let known = |state_word: &str| share(state.states.get(state_word).copied().unwrap_or(0));
    let faces: Vec<String> =
        state.faces.iter().map(|face| format!("{} {}", face.face, face.address)).collect();
    line("version", state.version);
    line("up for", uptime(state.uptime_seconds));
    line("faces", faces.join(", "));
    line("requests", state.requests.to_string());
    line("  name", known("name"));
    line("  no name", known("no_name"));
    line("  failed", known("failed"));
    line("  not yet", known("not_yet"));
    line("hits", share(state.hits));
    line("questions", state.questions.to_string());
    line("door full", state.door_full.to_string());
    line("leaks", state.leaks.to_string());
    line("back-end hits", state.back_end_hits.to_string());
    line("waiting", format!("{}, {} under way", state.waiting, state.in_flight));
    let entries = if state.entries == 1 { "entry" } else { "entries" };
    line("cache", format!("{} {entries}, {}", state.entries, size(state.octets)));
    text.push('\n');
    let mut table =
        session::table(&["UPSTREAM", "QUESTIONS", "NAMES", "NO NAME", "UNUSABLE", "FAILED", "MEAN"]);
    for upstream in state.upstreams {
        let answers = |word: &str| upstream.answers.get(word).copied().unwrap_or(0).to_string();
        table.add_row([
            format!("{}{}", upstream.address, if upstream.without_edns { " (without EDNS)" } else { "" }),
            upstream.questions.to_string(),
            answers("name"),
            answers("no_name"),
            answers("unusable"),
            upstream.failures.values().sum::<u64>().to_string(),
            upstream.mean_milliseconds.map_or_else(|| "-".into(), |mean| format!("{mean:.1} ms")),
        ]);
    }
    text + &session::lines(table)
}

/// Small caches are less than a hundredth of a mebibyte.
fn size(octets: u64) -> String {
    let kibibytes = octets as f64 / 1024.0;
    if kibibytes < 1024.0 { format!("{kibibytes:.1} KiB") } else { format!("{:.1} MiB", kibibytes / 1024.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::UpstreamStatus;

    #[test]
    fn shares_and_upstreams_are_shown() {
        let state = ReverseStatus {
            requests: 8,
            states: [("name".into(), 6), ("not_yet".into(), 2)].into(),
            door_full: 5,
            entries: 1,
            octets: 1_536,
            upstreams: vec![UpstreamStatus {
                address: "192.0.2.53:53".into(),
                questions: 3,
                without_edns: true,
                mean_milliseconds: Some(1.25),
                ..UpstreamStatus::default()
            }],
            ..ReverseStatus::default()
        };
        let text = shown(state);
        for line in [
            "requests       8",
            "  name         6 (75.0 %)",
            "  failed       0 (0.0 %)",
            "door full      5",
            "cache          1 entry, 1.5 KiB",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{text}");
        }
        let last = text.lines().last().unwrap_or_default();
        assert!(last.starts_with("192.0.2.53:53 (without EDNS) ") && last.ends_with("1.2 ms"), "{text}");
        assert!(shown(ReverseStatus::default()).contains("  name         0\n"));
        assert_eq!(size(3 << 19), "1.5 MiB");
    }
}
