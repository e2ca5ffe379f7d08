//! A zone in a list of zones. The zone itself is a master file (RFC 1035 §5), which is no JSON.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A zone that is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ZoneSummary {
    /// The zone's name: absolute, in lower case, with the final dot.
    #[schema(example = "example.com.")]
    pub origin: String,
    /// The serial number of its SOA record.
    pub serial: u32,
    /// How many records it has.
    pub records: u64,
    /// When the first of its signatures expires, in seconds since 1970 modulo 2^32 (RFC 4034 §3.1.5); absent where it
    /// has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = 1_893_456_000)]
    pub signed_until: Option<u32>,
    /// What keeps others from believing the zone, or from following it, in words; it is served all the same.
    #[serde(default)]
    pub warnings: Vec<String>,
}
