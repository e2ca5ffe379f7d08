//! Memory of the cache: its own, or part of a snapshot that is mapped.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use net::mapped::Mapping;

/// Words in a row.
#[derive(Debug)]
pub(super) enum Part {
    /// Memory of its own.
    Own(Box<[AtomicU64]>),
    /// These of a mapping; it ends with the last part of it.
    Mapped(Arc<Mapping>, Range<usize>),
}

impl FromIterator<AtomicU64> for Part {
    fn from_iter<I: IntoIterator<Item = AtomicU64>>(words: I) -> Self {
        Part::Own(words.into_iter().collect())
    }
}

impl Deref for Part {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        match self {
            Part::Own(words) => words,
            Part::Mapped(mapping, range) => &mapping.words()[range.clone()],
        }
    }
}
