//! Shapes that a second program reads: what goes over the HTTP API, into files and out of `--json`.
//!
//! Everything below the surface works on types of its own. The same fact has the same name here as in the configuration, the
//! metrics and the documentation.
//!
//! - [`fault`]: one mistake in something that a person wrote, with its place; [`mod@file`]: what they wrote it into;
//!   [`problem`]: why a request was refused.
//! - [`place`]: where a value stands in a JSON text; `reader`: what people write as JSON, read with everything that is wrong;
//!   `json`: the text, gone through value by value, for both.
//! - [`policy`]: MyXDNS's matrix as people write it; [`target`]: what its servers are answered as.
//! - [`zone`], [`region`], [`partition`], [`server`]: what else a name server holds.
//! - [`probe`]: what probes say of servers.
//! - [`explain`]: why a client is sent where it is; [`status`]: how the server is doing.
//! - [`trace`]: what recorded traffic is like, and what was changed in it; [`replay`]: what came of sending it again.
//! - [`agent`]: what an agent beside a server sees.
//! - [`control`]: what the control process measured, decided and did.
//! - [`balance`]: what the balancer says of itself and of its back ends.
//! - [`reverse`]: what the reverse look-up service says of an address, and of itself.

pub mod agent;
pub mod balance;
pub mod control;
pub mod explain;
pub mod fault;
pub mod file;
mod json;
pub mod partition;
pub mod place;
pub mod policy;
pub mod probe;
pub mod problem;
mod reader;
pub mod region;
pub mod replay;
pub mod reverse;
pub mod server;
pub mod status;
pub mod target;
pub mod trace;
pub mod zone;

pub use agent::{AgentBalancer, AgentQuota, AgentService, AgentStatus};
pub use balance::{BackEndStatus, BalanceStatus, CacheStatus, Forgotten, NewBackEnd, RuleStatus};
pub use control::{
    ControlOutcome, ControlReading, ControlRound, ControlRow, ControlServer, ControlShare, LoadReport,
};
pub use explain::{AddressType, Explain, Explanation, RowServer};
pub use fault::{Fault, Faults};
pub use partition::{Lookup, PartitionPut, PartitionSummary};
pub use place::Origin;
pub use policy::{Entry, Order, Policy, Server, WhenAllDown};
pub use probe::{HealthState, ProbeResult, ProbeState, ProbeVerdict};
pub use problem::Problem;
pub use region::{NewRegion, Region, RegionAdded};
pub use replay::ReplayReport;
pub use reverse::{AskedAddress, FaceAddress, KnownAddress, ReverseStatus, UpstreamStatus};
pub use server::{NewServerState, ServerState};
pub use status::{
    Changed, Counters, Counts, ExternalState, FailingZone, Health, ImportState, PartitionState, PrimaryState,
    Status, StoreState, TransferState, WorkerState, ZoneLeftAlone,
};
pub use target::Target;
pub use trace::{
    TraceChange, TraceCount, TraceDamage, TraceInfo, TraceMutation, TraceTop, TraceWritten, TraceZone,
    TraceZones,
};
pub use zone::ZoneSummary;
