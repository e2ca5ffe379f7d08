//! What the balancer says of itself and of its back ends.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How the balancer is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BalanceStatus {
    /// The program's version.
    pub version: String,
    /// Seconds since start.
    pub uptime_seconds: u64,
    /// Where it answers.
    pub listening: Vec<String>,
    /// The policy.
    pub policy: String,
    /// What `pressure` goes by: `credit`, `two_choices`, `latency` or `blind`, each with the number of threads that did so
    /// at their last pick; empty before the first query, and of other policies.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub steps: BTreeMap<String, u64>,
    /// Queries of clients since start.
    pub queries: u64,
    /// Answers of back ends that went to clients.
    pub answers: u64,
    /// Queries that no back end answered.
    pub failed: u64,
    /// Queries that were shed, since nobody had credit.
    pub shed: u64,
    /// Messages that went to no back end: no query, malformed, of strangers, for a zone transfer, sent to TCP, without a
    /// place, or by a rule.
    #[serde(default)]
    pub turned_away: u64,
    /// Queries that were sent to a second back end.
    pub retries: u64,
    /// The answers that are given again, where they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheStatus>,
    /// The rules, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleStatus>,
    /// The back ends.
    pub back_ends: Vec<BackEndStatus>,
}

/// How a back end is doing; counts are since start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BackEndStatus {
    /// Its address.
    pub address: String,
    /// The name that its certificate is for; absent where it is not asked over TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<String>,
    /// `up`, `down` or `draining`.
    pub standing: String,
    /// Its weight.
    pub weight: u32,
    /// The names of the pools that it is in.
    #[serde(default)]
    pub pools: Vec<String>,
    /// The part of its turns that it gets: less than 1 while it starts, and while it fails.
    pub turns: f64,
    /// Queries sent to it.
    pub sent: u64,
    /// The part of what was sent to the back ends that there are, each since it was added.
    pub share: f64,
    /// Its answers.
    pub answered: u64,
    /// Answers that say that it failed: SERVFAIL, NOTIMP, REFUSED.
    pub failures: u64,
    /// Queries that it did not answer in time.
    pub timeouts: u64,
    /// Queries that did not come to it: nobody listens there or no way leads there, or their connection ended.
    #[serde(default)]
    pub unreached: u64,
    /// Queries in flight.
    pub in_flight: u64,
    /// Reports from its address with another key, or none.
    #[serde(default)]
    pub unsigned: u64,
    /// Queries that may still be sent by its agent's word; absent without a lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credit: Option<u64>,
    /// How long queries wait in its queue, in milliseconds; absent without a lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_delay_milliseconds: Option<f64>,
    /// How much of a processor its server may use, by its quota; absent without a lease, or where no quota is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_processors: Option<f64>,
    /// How long an answer took, in milliseconds, in the mean; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_milliseconds: Option<f64>,
}

/// A rule of a balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleStatus {
    /// Its name.
    pub name: String,
    /// The name of the pool that takes its queries; absent where they are answered here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// What they are answered here: `refused`, `nxdomain`, `nodata`, `addresses`, `services`, `truncated` or `nothing`; absent
    /// where a pool takes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// How many queries it has decided on.
    pub met: u64,
}

/// The answers that a balancer gives again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CacheStatus {
    /// Answers that it holds, also such as are not fresh any more.
    pub entries: u64,
    /// Queries that were answered from it.
    pub hits: u64,
    /// Queries that might have been, but for what it did not have.
    pub misses: u64,
    /// Queries that were answered from it by a failure that a back end had just told.
    #[serde(default)]
    pub failures: u64,
    /// Queries that no back end answered, or would as another one had just failed, and that had an answer from it which is not
    /// fresh any more.
    pub stale: u64,
    /// Answers that gave way to others while they were fresh.
    pub pushed_out: u64,
}

/// How many answers were forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Forgotten {
    /// So many.
    pub answers: u64,
}

/// A back end to be added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBackEnd {
    /// Its address and port.
    #[schema(example = "192.0.2.1:53")]
    pub address: String,
    /// The name that its certificate is for, where it is asked over TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "dns.example.com")]
    pub tls: Option<String>,
    /// Its weight, from 1 to 10,000; of use to policies that have weights.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 10_000)]
    pub weight: u32,
    /// The names of the pools that it is in; without any, of the default one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<String>,
}

fn one() -> u32 {
    1
}
