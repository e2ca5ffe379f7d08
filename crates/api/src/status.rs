//! How the name server is doing, and what every change answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fault::Fault;
use crate::probe::HealthState;

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
    /// The same of queries over TCP.
    #[serde(default)]
    pub tcp: Counters,
    /// The same of queries over TLS.
    #[serde(default)]
    pub tls: Counters,
    /// Zones that secondaries follow.
    #[serde(default)]
    pub transfers: TransferState,
    /// Zones that primaries give us.
    #[serde(default)]
    pub primaries: PrimaryState,
    /// What probes say of servers.
    #[serde(default)]
    pub health: HealthState,
    /// Partitions that are imported from files.
    #[serde(default)]
    pub partitions: Vec<PartitionState>,
    /// The files of the configuration, as they were last imported.
    #[serde(default)]
    pub imports: ImportState,
    /// The external proximity service; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalState>,
}

/// A worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerState {
    /// Its number, from 0.
    pub worker: u32,
    /// The generation that it serves; 0 for the moment in which it takes the next one.
    pub generation: u64,
    /// Messages that it received since start.
    #[serde(default)]
    pub queries: u64,
    /// Batches in which it did.
    #[serde(default)]
    pub batches: u64,
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

/// A partition that is imported from files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartitionState {
    /// Its name.
    #[schema(example = "default")]
    pub name: String,
    /// What it is made of, in the order in which its layers are asked: `csv`, `mmdb`, `as-path`.
    pub sources: Vec<String>,
    /// Whether its files could be read when they were last looked at. Where not, what was read before serves on.
    pub ok: bool,
    /// What was wrong with them; absent while nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What was counted when the files were last read by this process: for a BGP table among others `routes`,
    /// `prefixes`, `as_sets` and `incomplete`.
    pub counts: BTreeMap<String, u64>,
}

/// The files of the configuration (zones, partitions, policies, cookie secrets), as they were when they were last
/// imported: at start, or at a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportState {
    /// How many faults there were: then nothing of them was imported, and what had been served goes on.
    pub faults: u64,
    /// The first ten of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first: Vec<Fault>,
}

/// An external proximity service, and what it told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExternalState {
    /// Where it is.
    #[schema(example = "192.0.2.7:5310")]
    pub service: String,
    /// Whether there is a connection to it.
    pub connected: bool,
    /// Why the last connection ended, or was not made; absent where none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Blocks of addresses whose region is known.
    pub known: u64,
    /// How many can be.
    pub capacity: u64,
    /// Blocks that it is to be asked about.
    pub waiting: u64,
    /// What was counted since start: blocks `asked` and `told`, questions `late`, lines `malformed`, of an
    /// `unknown_region` and `unasked`, connections `failed`, blocks `leaked` and notes `lost`.
    pub events: BTreeMap<String, u64>,
}

/// Whether changes can be stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreState {
    /// Whether the store takes changes, as far as is known.
    pub ok: bool,
    /// What the store last complained of; absent while it is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Since when what others changed in a shared store could not be loaded: Unix time in seconds; absent while it
    /// can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck_since: Option<u64>,
}

/// Zones that secondaries follow, and what they took since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TransferState {
    /// Secondaries of the configuration.
    pub secondaries: u64,
    /// Zones that one of them follows.
    pub followed: u64,
    /// Transfers that go on.
    pub running: u64,
    /// Transfers that ended whole.
    pub finished: u64,
    /// Transfers whose connection ended before them.
    pub cut: u64,
    /// Requests for a zone that were refused.
    pub refused: u64,
    /// Notifications that were acknowledged.
    pub acknowledged: u64,
    /// Notifications that nobody answered, up to the last repetition.
    pub given_up: u64,
}

/// Zones that primaries give us, as of now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PrimaryState {
    /// How many there are.
    pub zones: u64,
    /// Those that could not be had when they were last asked for.
    pub failing: u64,
    /// Those of them that have expired: they are answered SERVFAIL.
    pub expired: u64,
    /// The first ten of those that fail, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first: Vec<FailingZone>,
    /// Others that catalogs list and that are not taken, for they are here otherwise; and catalogs that are broken.
    #[serde(default)]
    pub left_alone: u64,
    /// The first ten of these, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first_left_alone: Vec<ZoneLeftAlone>,
}

/// A zone that a catalog lists and that is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ZoneLeftAlone {
    /// Its name.
    #[schema(example = "example.com.")]
    pub zone: String,
    /// Why.
    #[schema(example = "catalog.example. lists it; it has been put here, and stays as it is")]
    pub message: String,
}

/// A zone that its primary does not give.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailingZone {
    /// Its name.
    #[schema(example = "example.com.")]
    pub zone: String,
    /// When its primary last confirmed it: Unix time in seconds; absent where it has not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed_at: Option<u64>,
    /// Whether it has expired.
    pub expired: bool,
    /// Why it was not had, by address.
    #[schema(example = "192.0.2.1:53: no connection: Connection refused (os error 111)")]
    pub message: String,
}

/// What was counted since start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counters {
    /// Messages that came in.
    pub queries: u64,
    /// Answers by the name of their response code, such as NOERROR or, with its upper bits in EDNS, BADVERS; codes that
    /// were never answered are absent. Transfers are not among them, answers of `send_failed` are.
    pub answers: BTreeMap<String, u64>,
    /// Messages that got no answer, by cause: `no_query`, `no_room`, `rate_limited`, `send_failed` (the system did not
    /// take the answer), `panicked`.
    pub dropped: BTreeMap<String, u64>,
    /// Answers with TC set.
    pub truncated: u64,
}
