//! Why a client is sent where it is: the decision for one name and one client, taken apart.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::probe::ProbeVerdict;
use crate::target::Target;

/// The question: what would this client be answered?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Explain {
    /// The name that is asked for, in any case, with or without the final dot.
    #[schema(example = "www.example.com.", min_length = 1, max_length = 1024)]
    pub name: String,
    /// The type that is asked for; where the name is an alias, it is one for any type.
    #[serde(rename = "type")]
    pub qtype: AddressType,
    /// The client's address: that of the client subnet option where there is one, else the resolver's.
    #[schema(schema_with = crate::server::address)]
    pub client: IpAddr,
}

/// A record type that policies answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum AddressType {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    #[serde(rename = "AAAA")]
    Aaaa,
}

/// The decision, taken apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// The generation that would answer.
    pub generation: u64,
    /// The epoch of the probes' results with it: how often one changed since start.
    #[serde(default)]
    pub epoch: u64,
    /// The key of the policy that decides: its first name.
    #[schema(example = "www.example.com.")]
    pub policy: String,
    /// The partition that tells the client's region.
    #[schema(example = "default")]
    pub partition: String,
    /// The client's region; null for region 0, unclassified.
    #[schema(example = "europe", required = true)]
    pub region: Option<String>,
    /// The region's number; 0 for unclassified.
    #[schema(maximum = 16_777_215)]
    pub id: u32,
    /// The scope that the answer would carry, in bits: 0 to 32 for IPv4, 0 to 128 for IPv6; 0 where the
    /// policy has no regional entries for the asked family (RFC 7871 §7.2.1).
    #[schema(maximum = 128)]
    pub scope: u8,
    /// The row that is drawn from: the servers of the asked family as configured for this client.
    pub row: Vec<RowServer>,
    /// How probable each server is to be drawn first once those that are down or failing are left out, by address or name.
    /// The values sum to 1; none are given where no server can be drawn.
    pub probabilities: BTreeMap<String, f64>,
    /// A sample answer: the servers in the order of one draw, cut to the policy's `answers`. Empty for
    /// NODATA.
    pub answer: Vec<String>,
    /// The TTL of the sample answer in seconds: that of its first server; 0 where it has none.
    pub ttl: u32,
    /// Why it is this row and these servers, in words.
    #[schema(example = "the row of region europe")]
    pub why: String,
}

/// A server in a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RowServer {
    /// What is answered: `address` or `cname`.
    #[serde(flatten)]
    pub target: Target,
    /// How probable it is in this row, from 0 to 1, whether it is up or not.
    #[schema(minimum = 0, maximum = 1)]
    pub probability: f64,
    /// The TTL of an answer that it leads, in seconds.
    pub ttl: u32,
    /// Whether it is up: whether no operator has set it down.
    pub up: bool,
    /// What its probe says; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<ProbeVerdict>,
}
