//! What probes say of servers: fast state, which changes without a new generation.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A server under one probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProbeState {
    /// The server that is probed: an address or a name.
    #[schema(example = "192.0.2.1")]
    pub server: String,
    /// The probe's name in the configuration.
    #[schema(example = "web")]
    pub probe: String,
    /// What is held of the server.
    pub state: ProbeVerdict,
    /// Since when, in seconds since 1970; absent while unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// What the last probe found; absent before the first one of this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<ProbeResult>,
    /// Why there is nothing to probe with, where the configuration has no such probe any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What is held of a server, by its probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProbeVerdict {
    /// It is not drawn.
    Failing,
    /// Nothing is known yet; it is drawn.
    #[default]
    Unknown,
    /// It is drawn.
    Passing,
}

impl ProbeVerdict {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            ProbeVerdict::Failing => "failing",
            ProbeVerdict::Unknown => "unknown",
            ProbeVerdict::Passing => "passing",
        }
    }
}

/// What one probe found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProbeResult {
    /// Whether it passed.
    pub passed: bool,
    /// Why, in one word: `connected`, `status`, `exit`, `refused`, `unreachable`, `timeout`, `closed`, `tls`,
    /// `malformed`, `signal` or `not_started`.
    #[schema(example = "status")]
    pub reason: String,
    /// The same at length, such as the status code or the command's first line.
    #[schema(example = "status 200")]
    pub detail: String,
    /// When it ended, in seconds since 1970.
    pub at: u64,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

/// What probes say of all servers together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthState {
    /// How often a server's verdict changed since start: the number of this fast state.
    pub epoch: u64,
    /// Servers under a probe that passes, counted once for each probe.
    pub passing: u64,
    /// Those under one that fails.
    pub failing: u64,
    /// Those of which nothing is known yet.
    pub unknown: u64,
    /// Probes that passed.
    pub passed: u64,
    /// Probes that failed.
    pub failed: u64,
    /// Probes that our own code broke off; they say nothing of the server.
    #[serde(default)]
    pub panicked: u64,
    /// Probes that waited since too many ran at once.
    pub delayed: u64,
    /// The servers, those that fail first, then those of which nothing is known; at most 100 of them. `/v1/probes`
    /// has all.
    pub probes: Vec<ProbeState>,
}
