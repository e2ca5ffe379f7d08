//! The number of a region.

use std::fmt;

/// A class of client addresses; 0 stands for "unclassified".
///
/// Numbers are handed out once and never reused, from 1 to [`RegionId::MAX`]. One more is kept for [`RegionId::ASK`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(u32);

impl RegionId {
    /// Unclassified: no prefix of the partition covers the address.
    pub const NONE: RegionId = RegionId(0);
    /// The highest number, 2^24 - 2.
    pub const MAX: RegionId = RegionId(RegionId::ASK.0 - 1);
    /// No region: an external proximity service is to be asked.
    pub const ASK: RegionId = RegionId((1 << 24) - 1);
    /// The bits of a word in which a partition keeps a number.
    pub(crate) const BITS: u32 = (1 << 24) - 1;

    /// The region with this number; `None` above [`RegionId::MAX`].
    pub const fn new(id: u32) -> Option<RegionId> {
        if id <= RegionId::MAX.0 { Some(RegionId(id)) } else { None }
    }

    /// The number, from 0 to 2^24 - 1, which is [`RegionId::ASK`]'s.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Whether this is [`RegionId::NONE`].
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The region in the lower 24 bits of `word`; the others are dropped.
    pub(crate) const fn from_word(word: u32) -> RegionId {
        RegionId(word & RegionId::BITS)
    }
}

impl fmt::Display for RegionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
