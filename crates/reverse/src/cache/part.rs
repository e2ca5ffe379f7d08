//! Memory of the cache: its own, or part of a snapshot that is mapped.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64};

use net::mapped::Mapping;

/// Atomics in a row.
#[derive(Debug)]
pub(super) enum Part<T> {
    /// Memory of its own.
    Own(Box<[T]>),
    /// These of a mapping; it ends with the last part of it.
    Mapped(Arc<Mapping>, Range<usize>),
}

impl<T> FromIterator<T> for Part<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Part::Own(items.into_iter().collect())
    }
}

impl Deref for Part<AtomicU64> {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        match self {
            Part::Own(words) => words,
            Part::Mapped(mapping, range) => &mapping.words()[range.clone()],
        }
    }
}

impl Deref for Part<AtomicU8> {
    type Target = [AtomicU8];

    #[inline]
    fn deref(&self) -> &[AtomicU8] {
        match self {
            Part::Own(octets) => octets,
            Part::Mapped(mapping, range) => &mapping.octets()[range.clone()],
        }
    }
}
