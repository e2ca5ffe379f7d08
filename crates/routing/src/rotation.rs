//! Whose turn it is: how many queries each name had, so that round-robin begins each one place further.
//!
//! The one thing that a decision writes. All workers share the table and none waits for another: a name finds its
//! cell by hashing, the first to come takes a free one for it for ever, and a turn is one atomic addition. So the
//! turns of a name are exact, whichever threads its queries reach.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::policy::Family;
use crate::region::RegionId;

/// How many rotations are exact: a name has one for each family and each region's row that was asked for since the
/// start.
pub const ROTATIONS_MAX: usize = 1 << 16;

/// Two for each rotation, so that keys find a free one near by: two mebibytes, made once.
const CELLS: usize = 2 * ROTATIONS_MAX;

/// The most cells that one look goes through: where that many neighbours are taken, more than half of all are.
const PROBES_MAX: usize = 128;

/// The cells that rotations beyond the table share: a rotation there is still even over all that share its cell.
const SHARED: usize = 1 << 10;

/// The table of all rotations; it outlives generations.
pub struct Rotation {
    cells: Box<[Cell]>,
    shared: Box<[AtomicU64]>,
    beyond: AtomicU64,
}

/// A cell: free while its key is 0, and then for ever of one key.
#[derive(Default)]
struct Cell {
    key: AtomicU64,
    next: AtomicU64,
}

/// A name's place in the table.
#[derive(Clone, Copy, Debug)]
pub struct Turns<'a> {
    rotation: &'a Rotation,
    name: u64,
}

impl Rotation {
    /// A table in which every rotation begins with its first server.
    pub fn new() -> Rotation {
        Rotation {
            cells: (0..CELLS).map(|_| Cell::default()).collect(),
            shared: (0..SHARED).map(|_| AtomicU64::new(0)).collect(),
            beyond: AtomicU64::new(0),
        }
    }

    /// The turns of the name with this hash, which must be keyed, or clients could crowd the table.
    pub fn of(&self, name: u64) -> Turns<'_> {
        Turns { rotation: self, name }
    }

    /// Turns that were taken in a shared cell, because the table was full where they belong.
    pub fn beyond(&self) -> u64 {
        self.beyond.load(Ordering::Relaxed)
    }

    fn take(&self, key: u64) -> u64 {
        let first = key as usize;
        for step in 0..PROBES_MAX {
            let cell = &self.cells[first.wrapping_add(step) % CELLS];
            let held = cell.key.load(Ordering::Relaxed);
            // Cells are never given back, so that every thread finds a key in the same one.
            if held == key || held == 0 && cell.claim(key) {
                return cell.next.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.beyond.fetch_add(1, Ordering::Relaxed);
        self.shared[first % SHARED].fetch_add(1, Ordering::Relaxed)
    }
}

impl Default for Rotation {
    fn default() -> Self {
        Rotation::new()
    }
}

impl std::fmt::Debug for Rotation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rotation").field("beyond", &self.beyond()).finish_non_exhaustive()
    }
}

impl Cell {
    /// Takes a free cell; false where another key was faster.
    #[cold]
    fn claim(&self, key: u64) -> bool {
        match self.key.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(held) => held == key,
        }
    }
}

impl Turns<'_> {
    /// The next turn in the row of `region`: how many there were before.
    pub(crate) fn take(&self, family: Family, region: RegionId) -> u64 {
        let row = u64::from(region.get()) << 2 | family as u64;
        // Odd, and half its bits set: the fractional part of the golden ratio spreads neighbours (Knuth, 6.4).
        let key = self.name.wrapping_add(row.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        self.rotation.take(key.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_counts_on_in_the_same_rotation() {
        const THREADS: u64 = 8;
        const TURNS: u64 = 5_000;
        let rotation = Rotation::new();
        let names = [7, 7 + CELLS as u64, u64::MAX];
        let mut taken: Vec<(u64, u64)> = std::thread::scope(|scope| {
            let count = |seed: u64| {
                let (rotation, names) = (&rotation, &names);
                scope.spawn(move || {
                    let turns = (0..TURNS).map(move |turn| names[((turn + seed) % 3) as usize]);
                    turns.map(|name| (name, rotation.of(name).take(Family::V4, RegionId::NONE))).collect()
                })
            };
            let threads: Vec<_> = (0..THREADS).map(count).collect();
            threads.into_iter().flat_map(|thread| -> Vec<(u64, u64)> { thread.join().unwrap() }).collect()
        });
        taken.sort_unstable();
        for name in names {
            let of_name: Vec<u64> =
                taken.iter().filter(|taken| taken.0 == name).map(|taken| taken.1).collect();
            assert_eq!(of_name, (0..of_name.len() as u64).collect::<Vec<_>>(), "each turn once");
        }
        assert_eq!((taken.len() as u64, rotation.beyond()), (THREADS * TURNS, 0));
    }

    #[test]
    fn rows_and_families_have_turns_of_their_own() {
        let rotation = Rotation::new();
        let region = |id| RegionId::new(id).unwrap();
        for expected in 0..3 {
            for (family, id) in [(Family::V4, 0), (Family::V6, 0), (Family::V4, 1), (Family::V6, 9)] {
                assert_eq!(rotation.of(42).take(family, region(id)), expected);
            }
        }
    }

    #[test]
    fn a_full_table_still_rotates_and_says_so() {
        let rotation = Rotation::new();
        let mut rng = fastrand::Rng::with_seed(1);
        let mut fill = |count| (0..count).for_each(|_| _ = rotation.take(rng.u64(1..)));
        fill(ROTATIONS_MAX);
        assert_eq!(rotation.beyond(), 0, "as many as are promised");
        fill(2 * CELLS - ROTATIONS_MAX);
        let before = rotation.beyond();
        assert!((CELLS..CELLS + 10_000).contains(&(before as usize)), "{before}");
        let next = rotation.take(5);
        assert_eq!((rotation.take(5), rotation.take(5)), (next + 1, next + 2));
    }
}
