//! How the name server is doing, and what every change answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a change answers once it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Changed {
    /// The first generation that has the change.
    pub generation: u64,
}

/// That the process answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// The current generation.
    pub generation: u64,
}

/// How the name server is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// The program's version.
    #[schema(example = "0.1.0")]
    pub version: String,
    /// Seconds since start.
    pub uptime_seconds: u64,
    /// The current generation.
    pub generation: u64,
    /// The workers, in the order of their numbers.
    pub workers: Vec<WorkerState>,
    /// How much there is of everything.
    pub counts: Counts,
    /// Whether changes can be stored.
    pub store: StoreState,
    /// What the workers counted since start.
    pub counters: Counters,
}

/// A worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerState {
    /// Its number, from 0.
    pub worker: u32,
    /// The generation that it serves; 0 for the moment in which it takes the next one.
    pub generation: u64,
}

/// How much there is of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// Zones.
    pub zones: u64,
    /// Records of all zones.
    pub records: u64,
    /// Regions, without region 0.
    pub regions: u64,
    /// Partitions.
    pub partitions: u64,
    /// Policies.
    pub policies: u64,
    /// Names that policies serve.
    pub names: u64,
    /// Distinct servers of all policies.
    pub servers: u64,
    /// Those of them that are down.
    pub servers_down: u64,
}

/// Whether changes can be stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreState {
    /// Whether the store takes changes, as far as is known.
    pub ok: bool,
    /// What the store last complained of; absent while it is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What the workers counted since start: queries over UDP. Those over TCP are among the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counters {
    /// Messages that came in.
    pub queries: u64,
    /// Answers by the name of the header's response code, such as NOERROR; codes that were never answered
    /// are absent.
    pub answers: BTreeMap<String, u64>,
    /// Messages that got no answer, by cause: `no_query`, `no_room`, `rate_limited`, `send_failed`,
    /// `panicked`.
    pub dropped: BTreeMap<String, u64>,
    /// Answers with TC set.
    pub truncated: u64,
}
