//! What a round of the control process measured, decided and did.

use serde::{Deserialize, Serialize};

use crate::target::Target;

/// A round of the control process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControlRound {
    /// When it began, in seconds since 1970.
    pub unix_seconds: u64,
    /// The policy whose rows it decides.
    pub policy: String,
    /// What became of it.
    pub outcome: ControlOutcome,
    /// Why, in words.
    pub why: String,
    /// The first generation that has the rows, where they were installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The servers and their loads.
    pub servers: Vec<ControlServer>,
    /// The rows; empty where it did not come to a decision.
    pub rows: Vec<ControlRow>,
}

/// What became of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlOutcome {
    /// The rows serve.
    Installed,
    /// They serve already.
    Unchanged,
    /// They would have been installed, but for the dry run.
    DryRun,
    /// Somebody else changed the policy not long ago, so nothing was installed.
    StoodBack,
    /// Somebody else changed the policy within the round (412), so nothing was installed.
    Overtaken,
    /// There is no policy of this name, or none of its servers is configured.
    Nothing,
    /// The API refused to tell the policy or to take the rows.
    Refused,
    /// The API cannot be reached.
    Unreachable,
}

/// A server of the control process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControlServer {
    /// Its address, the first where it has several, or the name that it is: `address` or `cname`.
    #[serde(flatten)]
    pub target: Target,
    /// Its load over its threshold; null where it is unknown.
    pub load: Option<f64>,
    /// The room that is left below the watermarks, from 0 to 1; null where it is unknown.
    pub room: Option<f64>,
    /// What the sources say.
    pub readings: Vec<ControlReading>,
    /// What else there is to say, such as why its load is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// What a source says of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControlReading {
    /// The source.
    pub source: String,
    /// The value that counts; null where there is none, or it is too old.
    pub value: Option<f64>,
    /// What went wrong when it was last measured.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// A row, before and after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControlRow {
    /// The region; null for the default column.
    pub region: Option<String>,
    /// The clients' demand as Algorithm III estimates it, in units of capacity at the threshold; absent where no
    /// server's load is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demand: Option<f64>,
    /// The servers.
    pub shares: Vec<ControlShare>,
}

/// A server's share of a region's clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControlShare {
    /// Its address, the first where it has several, or the name that it is: `address` or `cname`.
    #[serde(flatten)]
    pub target: Target,
    /// What it had.
    pub before: f64,
    /// What was decided.
    pub after: f64,
}

/// The load that a server reports by itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadReport {
    /// The load, in the unit of its source.
    pub value: f64,
}

impl ControlOutcome {
    /// All of them, in the order of their numbers.
    pub const ALL: [ControlOutcome; 8] = [
        ControlOutcome::Installed,
        ControlOutcome::Unchanged,
        ControlOutcome::DryRun,
        ControlOutcome::StoodBack,
        ControlOutcome::Overtaken,
        ControlOutcome::Nothing,
        ControlOutcome::Refused,
        ControlOutcome::Unreachable,
    ];

    /// Its word, as JSON and metrics have it.
    pub fn word(self) -> &'static str {
        match self {
            ControlOutcome::Installed => "installed",
            ControlOutcome::Unchanged => "unchanged",
            ControlOutcome::DryRun => "dry_run",
            ControlOutcome::StoodBack => "stood_back",
            ControlOutcome::Overtaken => "overtaken",
            ControlOutcome::Nothing => "nothing",
            ControlOutcome::Refused => "refused",
            ControlOutcome::Unreachable => "unreachable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_have_one_word() {
        for outcome in ControlOutcome::ALL {
            let written = serde_json::to_string(&outcome).expect("it has a form");
            assert_eq!(written, format!("\"{}\"", outcome.word()));
        }
    }
}
