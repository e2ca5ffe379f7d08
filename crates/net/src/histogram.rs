//! How many observations were how large: cells that anybody may read while they are written.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts observations by upper bounds that were fixed when it was made.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One for each bound, and one for what is larger than all.
    cells: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// Without bounds: how many there were, and their sum.
impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new(&[])
    }
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

    /// Counts an observation of this duration, where bounds are in microseconds.
    pub fn observe_time(&self, took: Duration) {
        self.observe(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
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
        histogram.observe_time(Duration::from_nanos(5_999));
        assert_eq!((histogram.cells().nth(1), histogram.sum()), (Some((Some(5), 3)), 133));
    }
}
