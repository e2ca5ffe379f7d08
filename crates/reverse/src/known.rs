//! What is known of an address, as all faces tell it.

use crate::cache::{Verdict, Why};

/// What is known of an address now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// The address has a name, with what is known of whether that leads back.
    Name(Since, Verdict),
    /// The address has no name.
    NoName(Since),
    /// It could not be learned; `left` is when it is tried again.
    Failed(Why, Since),
    /// Nothing yet: it is being learned, if there is room.
    NotYet,
}

/// Since when something is known, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// Seconds since it was learned.
    pub age: u32,
    /// Seconds for which it may be kept.
    pub left: u32,
    /// Whether it has expired, and is being learned anew.
    pub stale: bool,
}

impl Known {
    /// The state as all faces and metrics name it.
    pub fn word(&self) -> &'static str {
        WORDS[self.index()]
    }

    /// Where its word stands in [`WORDS`].
    pub(crate) fn index(&self) -> usize {
        match self {
            Known::Name(..) => 0,
            Known::NoName(_) => 1,
            Known::Failed(..) => 2,
            Known::NotYet => 3,
        }
    }
}

/// The words of [`Known::word`], in the order of [`crate::front::Counts::known`].
pub const WORDS: [&str; 4] = ["name", "no_name", "failed", "not_yet"];
