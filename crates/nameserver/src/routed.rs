//! Answers that policies decided, counted by policy, region and server.
//!
//! Which of these come together is only known when a client asks, so each worker has a small table of its own that
//! finds its cells by hashing; nobody waits and nothing is allocated.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};

use routing::RegionId;

/// The most different policies, regions and servers together that are counted apart, for each worker: a scrape of
/// more would be too large to keep. Answers beyond are in [`RoutedCounters::other`].
pub const ROUTED_MAX: u64 = 8_192;

/// The cells of a table: twice as many as are used, so that a look finds its cell soon.
const CELLS: usize = 2 * ROUTED_MAX as usize;

/// The most cells that one look goes through; in a table that is half full hardly any takes more than a few.
const PROBES_MAX: usize = 32;

/// What a policy decided for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Routed {
    /// The hash of the policy's key.
    pub policy: u64,
    /// The client's region.
    pub region: RegionId,
    /// The server that stands first; none where the answer has none.
    pub server: Option<First>,
}

/// A server as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum First {
    /// Its address.
    Address(IpAddr),
    /// The hash of its name.
    Cname(u64),
}

/// One worker's counts since start; only that worker adds to them.
pub struct RoutedCounters {
    cells: Box<[Cell]>,
    used: AtomicU64,
    other: AtomicU64,
}

/// A cell: free while its count is 0, and then for ever of one key.
#[derive(Default)]
#[repr(align(64))]
struct Cell {
    key: [AtomicU64; 4],
    count: AtomicU64,
}

/// A key as cells hold it: policy, region, and the server's address, whose IPv4 is mapped into IPv6 and which is the
/// unspecified one for no server. No policy has servers of such addresses. Beside the region stands whether it is a name's
/// hash instead.
type Key = [u64; 4];

/// What tells names from addresses: a bit that no region has.
const IS_CNAME: u64 = 1 << 63;

impl RoutedCounters {
    /// Counts an answer. Only the thread that owns the table may do so.
    #[inline]
    pub fn add(&self, routed: Routed) {
        let key = routed.key();
        let first = cell_of(&key);
        for step in 0..PROBES_MAX {
            let cell = &self.cells[(first + step) % CELLS];
            let count = cell.count.load(Ordering::Relaxed);
            if count == 0 {
                return self.begin(cell, &key);
            }
            if cell.key() == key {
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
            (count > 0).then(|| (Routed::of(cell.key()), count))
        })
    }

    /// Answers beyond [`ROUTED_MAX`].
    pub fn other(&self) -> u64 {
        self.other.load(Ordering::Relaxed)
    }

    /// Takes a free cell.
    #[cold]
    fn begin(&self, cell: &Cell, key: &Key) {
        let used = self.used.load(Ordering::Relaxed);
        if used == ROUTED_MAX {
            return self.add_other();
        }
        self.used.store(used + 1, Ordering::Relaxed);
        cell.key.iter().zip(key).for_each(|(part, value)| part.store(*value, Ordering::Relaxed));
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

impl Cell {
    #[inline]
    fn key(&self) -> Key {
        self.key.each_ref().map(|part| part.load(Ordering::Relaxed))
    }
}

impl Routed {
    #[inline]
    fn key(self) -> Key {
        let (server, is_cname) = match self.server {
            None => (0, 0),
            Some(First::Address(IpAddr::V4(v4))) => (v4.to_ipv6_mapped().to_bits(), 0),
            Some(First::Address(IpAddr::V6(v6))) => (v6.to_bits(), 0),
            Some(First::Cname(hash)) => (hash.into(), IS_CNAME),
        };
        [self.policy, u64::from(self.region.get()) | is_cname, (server >> 64) as u64, server as u64]
    }

    fn of([policy, region, upper, lower]: Key) -> Routed {
        let address = Ipv6Addr::from_bits(u128::from(upper) << 64 | u128::from(lower));
        let server = match region & IS_CNAME {
            0 => (!address.is_unspecified()).then(|| First::Address(address.to_canonical())),
            _ => Some(First::Cname(lower)),
        };
        Routed { policy, region: RegionId::new(region as u32).unwrap_or(RegionId::NONE), server }
    }
}

/// Where a look begins. The policy's hash is keyed, so nobody outside can crowd the table.
#[inline]
fn cell_of(key: &Key) -> usize {
    // Odd, and half its bits set: the fractional part of the golden ratio spreads neighbours (Knuth, 6.4). What it spreads
    // is in the upper bits, and comes down before the next part.
    let spread = |hash: u64, part: &u64| (hash.rotate_left(32) ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (key.iter().fold(0, spread) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn routed(policy: u64, region: u32, server: Option<u32>) -> Routed {
        let region = RegionId::new(region).expect("a small number");
        let server = server.map(|number| First::Address(IpAddr::V4(number.into())));
        Routed { policy, region, server }
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
            routed(0, RegionId::MAX.get(), Some(u32::MAX)),
            Routed { server: Some(First::Address("2001:db8::1".parse().unwrap())), ..routed(1, 0, None) },
            Routed { server: Some(First::Address("2001:db8:0:1::1".parse().unwrap())), ..routed(1, 0, None) },
            Routed { server: Some(First::Cname(u64::MAX)), ..routed(1, 0, None) },
            Routed { server: Some(First::Cname(0)), ..routed(1, 1, None) },
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
