//! Regions: classes of client addresses.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A region that policies and partitions may name.
///
/// Region 0, "unclassified", is always there, cannot be removed and is in no list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Region {
    /// Its number, from 1 to 2^24 - 2, which no other region will ever have.
    #[schema(minimum = 1, maximum = 16_777_214)]
    pub id: u32,
    /// Its name, 1 to 63 letters, digits, '-', '_' or '.', which no other region has at the same time.
    #[schema(example = "europe", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    pub name: String,
}

/// The region to add.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRegion {
    /// Its name, 1 to 63 letters, digits, '-', '_' or '.'.
    #[schema(example = "europe", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    pub name: String,
}

/// The region that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegionAdded {
    /// The region's number.
    #[schema(minimum = 1, maximum = 16_777_214)]
    pub id: u32,
    /// The first generation that has it.
    pub generation: u64,
}
