//! The number of a region.

use std::fmt;

/// A class of client addresses; 0 stands for "unclassified".
///
/// Numbers are handed out once and never reused, from 1 to [`RegionId::MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(u32);

impl RegionId {
    /// Unclassified: no prefix of the partition covers the address.
    pub const NONE: RegionId = RegionId(0);
    /// The highest number, 2^24 - 1: a partition keeps it in the lower bits of a 32-bit word.
    pub const MAX: RegionId = RegionId((1 << 24) - 1);

    /// The region with this number; `None` above [`RegionId::MAX`].
    pub const fn new(id: u32) -> Option<RegionId> {
        if id <= RegionId::MAX.0 { Some(RegionId(id)) } else { None }
    }

    /// The number, from 0 to 2^24 - 1.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Whether this is [`RegionId::NONE`].
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The region in the lower 24 bits of `word`; the others are dropped.
    pub(crate) const fn from_word(word: u32) -> RegionId {
        RegionId(word & RegionId::MAX.0)
    }
}

impl fmt::Display for RegionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
