//! A hash map in many small tables, of which none takes long to grow.
//!
//! A table that grows, or is cleaned of what was removed, is moved as a whole. With half a million entries in one that
//! takes 40 ms, while queries are due; in a table of a thousandth of them it takes microseconds.

use std::hash::{BuildHasher, Hash};

use foldhash::HashMap;
use foldhash::quality::SeedableRandomState;

/// How many tables there are: at four million entries, the most that anybody keeps, each holds four thousand.
pub(crate) const TABLES: usize = 1 << 10;

/// The tables.
#[derive(Debug)]
pub(crate) struct Tables<K, V> {
    tables: Vec<HashMap<K, V>>,
    /// Another than that of each table, whose entries would begin alike otherwise; and of good quality, as the fast one
    /// gives the upper bits of some seeds to few tables.
    chooser: SeedableRandomState,
}

impl<K: Eq + Hash, V> Tables<K, V> {
    /// Empty ones.
    pub(crate) fn new() -> Tables<K, V> {
        Tables {
            tables: (0..TABLES).map(|_| HashMap::default()).collect(),
            chooser: SeedableRandomState::random(),
        }
    }

    /// How many entries all hold.
    pub(crate) fn len(&self) -> usize {
        self.tables.iter().map(HashMap::len).sum()
    }

    /// The table that a key is in, if it is in any.
    pub(crate) fn of(&self, key: &K) -> &HashMap<K, V> {
        &self.tables[self.place(key)]
    }

    /// The same, to be changed.
    pub(crate) fn of_mut(&mut self, key: &K) -> &mut HashMap<K, V> {
        let place = self.place(key);
        &mut self.tables[place]
    }

    fn place(&self, key: &K) -> usize {
        (self.chooser.hash_one(key) >> (u64::BITS - TABLES.ilog2())) as usize
    }
}

#[cfg(test)]
mod tests {
    use foldhash::SharedSeed;

    use super::*;

    #[test]
    fn what_was_put_in_is_found() {
        let mut tables = Tables::new();
        for key in 0..100_000_u64 {
            assert_eq!(tables.of_mut(&key).insert(key, key), None);
        }
        assert_eq!(tables.len(), 100_000);
        assert!((0..100_000).all(|key| tables.of(&key).get(&key) == Some(&key)));
    }

    #[test]
    fn no_table_gets_much_more_than_its_share_whatever_the_seed() {
        for seed in 0..200 {
            let shared = Box::leak(Box::new(SharedSeed::from_u64(seed)));
            let chooser = SeedableRandomState::with_seed(seed, shared);
            let tables = Tables::<u64, ()> { chooser, ..Tables::new() };
            let mut shares = [0; TABLES];
            (0..20_000).for_each(|key| shares[tables.place(&key)] += 1);
            // The share is 20; of a random choice, one table in 10^16 gets more than 65.
            assert!(shares.iter().all(|share| *share <= 65), "{seed}: {:?}", shares.iter().max());
        }
    }
}
