//! Memory of the cache: ordinary, or cut from large pages.

use std::sync::Arc;

use net::mapped::{LARGE_PAGE, Mapping, Words};

/// So many words; or some more or fewer, an eighth at most, where those end with a large page: what is in the last part of
/// one lies in ordinary pages.
pub(super) fn fitted(words: usize) -> usize {
    const PAGE: usize = LARGE_PAGE / 8;
    let whole = (words + PAGE / 2) / PAGE * PAGE;
    if whole.abs_diff(words) <= words / 8 { whole } else { words }
}

/// So many words of zero, in large pages where they fill some: otherwise most look-ups in a large cache would first
/// have to find where the kernel put the page.
pub(super) fn zeroed(words: usize) -> Words {
    let is_large = 8 * words >= LARGE_PAGE;
    let large = is_large.then(|| Mapping::zeroed(8 * words).ok()).flatten();
    large.and_then(|mapping| Words::of(&Arc::new(mapping), 0..words)).unwrap_or_else(|| Words::zeroed(words))
}

/// Parts of the same length, cut from large pages.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// The page that is being cut, and how many of its words are used.
    page: Option<(Arc<Mapping>, usize)>,
}

impl Pieces {
    /// The next piece of zeros; a page goes when all of its pieces have gone.
    pub(super) fn next(&mut self, words: usize) -> Words {
        let (page, used) = match self.page.take() {
            Some((page, used)) if used + words <= page.words().len() => (page, used),
            _ => match Mapping::zeroed(LARGE_PAGE.max(8 * words)) {
                Ok(page) => (Arc::new(page), 0),
                Err(_) => return Words::zeroed(words),
            },
        };
        let piece = Words::of(&page, used..used + words);
        self.page = Some((page, used + words));
        piece.unwrap_or_else(|| Words::zeroed(words))
    }
}
