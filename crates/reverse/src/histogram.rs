//! How many observations were how large: cells that anybody may read while they are written.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts observations by upper bounds that were fixed when it was made.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One for each bound, and one for what is larger than all.
    cells: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// A histogram of nothing yet; `bounds` ascend.
    pub fn new(bounds: &'static [u64]) -> Histogram {
        let cells = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, cells, sum: AtomicU64::new(0) }
    }

    /// Counts an observation of this value, in the unit of the bounds.
    pub fn observe(&self, value: u64) {
        self.cells[self.bounds.partition_point(|bound| *bound < value)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// The upper bounds, with how many were at most so large but larger than the one before; last, without a bound,
    /// how many were larger than all.
    pub fn cells(&self) -> impl Iterator<Item = (Option<u64>, u64)> + '_ {
        let bounds = self.bounds.iter().copied().map(Some).chain([None]);
        bounds.zip(self.cells.iter().map(|cell| cell.load(Ordering::Relaxed)))
    }

    /// The sum of all values that were observed, in the unit of the bounds.
    pub fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_counted_once_where_it_belongs() {
        let histogram = Histogram::new(&[1, 5, 10]);
        [0, 1, 2, 5, 10, 11, 99].into_iter().for_each(|value| histogram.observe(value));
        let cells: Vec<_> = histogram.cells().collect();
        assert_eq!(cells, [(Some(1), 2), (Some(5), 2), (Some(10), 1), (None, 2)]);
        assert_eq!(histogram.sum(), 128);
    }
}
