//! Answers that policies decided, counted by policy, region and server.
//!
//! Which of these come together is only known when a client asks, so each worker has a small table of its own that
//! finds its cells by hashing; nobody waits and nothing is allocated.

use std::sync::atomic::{AtomicU64, Ordering};

use routing::{RegionId, ServerId};

/// The most different policies, regions and servers together that are counted apart, for each worker: a scrape of
/// more would be too large to keep. Answers beyond are in [`RoutedCounters::other`].
pub const ROUTED_MAX: u64 = 8_192;

/// The cells of a table: twice as many as are used, so that a look finds its cell soon.
const CELLS: usize = 2 * ROUTED_MAX as usize;

/// The most cells that one look goes through; in a table that is half full hardly any takes more than a few.
const PROBES_MAX: usize = 32;

/// What stands for no server in a cell's key.
const NO_SERVER: u32 = u32::MAX;

/// What a policy decided for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Routed {
    /// The hash of the policy's key.
    pub policy: u64,
    /// The client's region.
    pub region: RegionId,
    /// The server that stands first; none where the answer has no address.
    pub server: Option<ServerId>,
}

/// One worker's counts since start; only that worker adds to them.
pub struct RoutedCounters {
    cells: Box<[Cell]>,
    used: AtomicU64,
    other: AtomicU64,
}

/// A cell: free while its count is 0, and then for ever of one key.
#[derive(Default)]
#[repr(align(32))]
struct Cell {
    policy: AtomicU64,
    /// The region's number in the upper half, the server's in the lower.
    place: AtomicU64,
    count: AtomicU64,
}

impl RoutedCounters {
    /// Counts an answer. Only the thread that owns the table may do so.
    #[inline]
    pub fn add(&self, routed: Routed) {
        let place = routed.place();
        let first = cell_of(routed.policy, place);
        for step in 0..PROBES_MAX {
            let cell = &self.cells[(first + step) % CELLS];
            let count = cell.count.load(Ordering::Relaxed);
            if count == 0 {
                return self.begin(cell, routed.policy, place);
            }
            if cell.place.load(Ordering::Relaxed) == place
                && cell.policy.load(Ordering::Relaxed) == routed.policy
            {
                cell.count.store(count.wrapping_add(1), Ordering::Release);
                return;
            }
        }
        self.add_other();
    }

    /// Everything that was counted apart.
    pub fn iter(&self) -> impl Iterator<Item = (Routed, u64)> {
        self.cells.iter().filter_map(|cell| {
            // What the first count of a cell came after can be seen by who sees the count.
            let count = cell.count.load(Ordering::Acquire);
            let policy = cell.policy.load(Ordering::Relaxed);
            (count > 0).then(|| (Routed::at(policy, cell.place.load(Ordering::Relaxed)), count))
        })
    }

    /// Answers beyond [`ROUTED_MAX`].
    pub fn other(&self) -> u64 {
        self.other.load(Ordering::Relaxed)
    }

    /// Takes a free cell.
    #[cold]
    fn begin(&self, cell: &Cell, policy: u64, place: u64) {
        let used = self.used.load(Ordering::Relaxed);
        if used == ROUTED_MAX {
            return self.add_other();
        }
        self.used.store(used + 1, Ordering::Relaxed);
        cell.policy.store(policy, Ordering::Relaxed);
        cell.place.store(place, Ordering::Relaxed);
        cell.count.store(1, Ordering::Release);
    }

    fn add_other(&self) {
        self.other.store(self.other().wrapping_add(1), Ordering::Relaxed);
    }
}

impl Default for RoutedCounters {
    fn default() -> Self {
        let cells = (0..CELLS).map(|_| Cell::default()).collect();
        RoutedCounters { cells, used: AtomicU64::new(0), other: AtomicU64::new(0) }
    }
}

impl std::fmt::Debug for RoutedCounters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Routed {
    fn place(self) -> u64 {
        let server = self.server.map_or(NO_SERVER, ServerId::get);
        u64::from(self.region.get()) << 32 | u64::from(server)
    }

    fn at(policy: u64, place: u64) -> Routed {
        let server = place as u32;
        Routed {
            policy,
            region: RegionId::new((place >> 32) as u32).unwrap_or(RegionId::NONE),
            server: (server != NO_SERVER).then(|| ServerId::new(server)),
        }
    }
}

/// Where a look begins. The policy's hash is keyed, so nobody outside can crowd the table.
#[inline]
fn cell_of(policy: u64, place: u64) -> usize {
    // Odd, and half its bits set: the fractional part of the golden ratio spreads neighbours (Knuth, 6.4).
    ((policy ^ place).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn routed(policy: u64, region: u32, server: Option<u32>) -> Routed {
        let region = RegionId::new(region).expect("a small number");
        Routed { policy, region, server: server.map(ServerId::new) }
    }

    #[test]
    fn answers_are_counted_apart() {
        let counters = RoutedCounters::default();
        let keys = [
            routed(1, 0, Some(0)),
            routed(1, 0, Some(1)),
            routed(1, 0, None),
            routed(1, 1, Some(0)),
            routed(2, 1, Some(0)),
            routed(0, RegionId::MAX.get(), Some(NO_SERVER - 1)),
        ];
        let mut expected = BTreeMap::new();
        for (times, key) in keys.into_iter().enumerate() {
            (0..=times).for_each(|_| counters.add(key));
            expected.insert(key, times as u64 + 1);
        }
        assert_eq!(counters.iter().collect::<BTreeMap<_, _>>(), expected);
        assert_eq!(counters.other(), 0);
    }

    #[test]
    fn what_is_beyond_the_limit_is_counted_together() {
        let counters = RoutedCounters::default();
        let mut rng = fastrand::Rng::with_seed(1);
        let keys: Vec<Routed> = (0..2 * ROUTED_MAX as u32)
            .map(|number| routed(rng.u64(..), number % 8, Some(number / 8)))
            .collect();
        for _ in 0..3 {
            keys.iter().for_each(|key| counters.add(*key));
        }
        let apart: u64 = counters.iter().map(|(_, count)| count).sum();
        let different = counters.iter().count() as u64;
        assert_eq!((different, apart), (ROUTED_MAX, 3 * ROUTED_MAX));
        assert_eq!(counters.other(), 3 * ROUTED_MAX);
    }

    #[test]
    fn servers_of_one_policy_find_their_cells_at_once() {
        let counters = RoutedCounters::default();
        let keys = (0..200).flat_map(|region| (0..20).map(move |server| routed(77, region, Some(server))));
        keys.for_each(|key| counters.add(key));
        assert_eq!((counters.iter().count(), counters.other()), (4_000, 0));
    }
}
