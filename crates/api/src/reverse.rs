//! What the reverse look-up service says of an address, and of itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An address that is asked for, as a line of a bulk request: its text, or an object with it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum AskedAddress {
    /// The text.
    Text(String),
    /// An object; its other members are passed over.
    Object {
        /// The text.
        address: String,
    },
}

impl AskedAddress {
    /// The text.
    pub fn text(&self) -> &str {
        match self {
            AskedAddress::Text(text) | AskedAddress::Object { address: text } => text,
        }
    }
}

/// What is known of an address now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnownAddress {
    /// The address.
    pub address: String,
    /// `name`, `no_name`, `failed` or `not_yet`.
    pub state: String,
    /// The name, without the final dot; where the state is `name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether the name leads back to the address: `confirmed`, `mismatch` or `not_yet`; where there is a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// Whether it is a crawler: `none`, `not_yet`, `verified` or `spoofed`.
    pub identity: String,
    /// The crawler that it is, or whose name it has without being it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crawler: Option<String>,
    /// Why it could not be learned: `timeout`, `servfail`, `refused`, `malformed` or `unusable`; where the state is
    /// `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Seconds since this was learned; absent where the state is `not_yet`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u32>,
    /// Seconds for which it may be kept; of a failure, until it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_seconds: Option<u32>,
    /// Whether it has expired, and is being learned anew.
    pub stale: bool,
}

/// How the reverse look-up service is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReverseStatus {
    /// The program's version.
    pub version: String,
    /// Seconds since start.
    pub uptime_seconds: u64,
    /// Where it answers.
    pub faces: Vec<FaceAddress>,
    /// Look-ups since start.
    pub requests: u64,
    /// The same by what was known: `name`, `no_name`, `failed`, `not_yet`.
    pub states: BTreeMap<String, u64>,
    /// Look-ups that found an entry, empty ones too.
    pub hits: u64,
    /// Questions that were asked, since start.
    pub questions: u64,
    /// Addresses that were not noted, for too many came at once.
    #[serde(default)]
    pub door_full: u64,
    /// Addresses that were dropped at the bottom of a stack.
    pub leaks: u64,
    /// Addresses that were known when their turn came.
    pub back_end_hits: u64,
    /// Addresses that wait.
    pub waiting: u64,
    /// Addresses whose questions are under way.
    pub in_flight: u64,
    /// Entries in the cache.
    pub entries: u64,
    /// Octets of the cache.
    pub octets: u64,
    /// Who is asked.
    pub upstreams: Vec<UpstreamStatus>,
}

/// A face and where it answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FaceAddress {
    /// `DNS`, `RESP`, `Rapid DNS` or `HTTP`.
    pub face: String,
    /// The address.
    pub address: String,
}

/// What an upstream did, since start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UpstreamStatus {
    /// Its address.
    pub address: String,
    /// Questions that it was asked.
    pub questions: u64,
    /// Its answers by what they said: `name`, `no_name`, `unusable`.
    pub answers: BTreeMap<String, u64>,
    /// Questions that failed, by cause: `timeout`, `servfail`, `refused`, `malformed`.
    pub failures: BTreeMap<String, u64>,
    /// Whether it does not take EDNS, and is asked without for ten minutes at a time.
    #[serde(default)]
    pub without_edns: bool,
    /// How long a question took, in milliseconds, in the mean; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_milliseconds: Option<f64>,
}
