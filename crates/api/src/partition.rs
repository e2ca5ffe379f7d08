//! Partitions: which region a client address is in. A partition itself is CSV, which is no JSON.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A partition that policies may name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartitionSummary {
    /// Its name.
    #[schema(example = "default")]
    pub name: String,
    /// How many distinct prefixes it maps to regions.
    pub prefixes: u64,
}

/// The partition that was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartitionPut {
    /// How many distinct prefixes it maps to regions.
    pub prefixes: u64,
    /// The first generation that has it.
    pub generation: u64,
}

/// What a partition says of a client address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lookup {
    /// The region's name; null for region 0, unclassified.
    #[schema(example = "europe", required = true)]
    pub region: Option<String>,
    /// The region's number; 0 for unclassified.
    #[schema(maximum = 16_777_215)]
    pub id: u32,
    /// The largest block around the address that is wholly in this region: the address cut to `scope`
    /// bits, then a slash and `scope`.
    #[schema(example = "192.0.2.0/24")]
    pub prefix: String,
    /// The length of `prefix` in bits: 0 to 32 for IPv4, 0 to 128 for IPv6 (RFC 7871 §7.2.1).
    #[schema(maximum = 128)]
    pub scope: u8,
}
