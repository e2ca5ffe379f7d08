//! Memory of the cache: its own, or part of a mapping, which is of a snapshot or of large pages.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use net::mapped::{LARGE_PAGE, Mapping};

/// Words in a row.
#[derive(Debug)]
pub(super) enum Part {
    /// Memory of its own.
    Own(Box<[AtomicU64]>),
    /// These of a mapping; it ends with the last part of it.
    Mapped(Arc<Mapping>, Range<usize>),
}

impl Part {
    /// So many words of zero, in large pages where they fill some: otherwise most look-ups in a large cache would first
    /// have to find where the kernel put the page.
    pub(super) fn zeroed(words: usize) -> Part {
        if 8 * words >= LARGE_PAGE
            && let Ok(mapping) = Mapping::zeroed(8 * words)
        {
            return Part::Mapped(Arc::new(mapping), 0..words);
        }
        Part::Own((0..words).map(|_| AtomicU64::new(0)).collect())
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

/// Parts of the same length, cut from large pages.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// The page that is being cut, and how many of its words are used.
    page: Option<(Arc<Mapping>, usize)>,
}

impl Pieces {
    /// The next piece of zeros; a page goes when all of its pieces have gone.
    pub(super) fn next(&mut self, words: usize) -> Part {
        let (page, used) = match self.page.take() {
            Some((page, used)) if used + words <= page.words().len() => (page, used),
            _ => match Mapping::zeroed(LARGE_PAGE.max(8 * words)) {
                Ok(page) => (Arc::new(page), 0),
                Err(_) => return Part::zeroed(words),
            },
        };
        self.page = Some((page.clone(), used + words));
        Part::Mapped(page, used..used + words)
    }
}
