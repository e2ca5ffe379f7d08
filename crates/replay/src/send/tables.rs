//! A hash map in many small tables, of which none takes long to grow.
//!
//! A table that grows, or is cleaned of what was removed, is moved as a whole. With half a million entries in one that
//! takes 40 ms, while queries are due; in a table of a thousandth of them it takes microseconds.

use std::hash::{BuildHasher, Hash};

use foldhash::HashMap;
use foldhash::fast::RandomState;

/// How many tables there are: at four million entries, the most that anybody keeps, each holds four thousand.
pub(super) const TABLES: usize = 1 << 10;

/// The tables.
#[derive(Debug)]
pub(super) struct Tables<K, V> {
    tables: Vec<HashMap<K, V>>,
    /// Another than that of each table, whose entries would begin alike otherwise.
    chooser: RandomState,
}

impl<K: Eq + Hash, V> Tables<K, V> {
    /// Empty ones.
    pub(super) fn new() -> Tables<K, V> {
        Tables { tables: (0..TABLES).map(|_| HashMap::default()).collect(), chooser: RandomState::default() }
    }

    /// How many entries all hold.
    pub(super) fn len(&self) -> usize {
        self.tables.iter().map(HashMap::len).sum()
    }

    /// The table that a key is in, if it is in any.
    pub(super) fn of(&self, key: &K) -> &HashMap<K, V> {
        &self.tables[self.place(key)]
    }

    /// The same, to be changed.
    pub(super) fn of_mut(&mut self, key: &K) -> &mut HashMap<K, V> {
        let place = self.place(key);
        &mut self.tables[place]
    }

    fn place(&self, key: &K) -> usize {
        (self.chooser.hash_one(key) >> (u64::BITS - TABLES.ilog2())) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_table_gets_much_more_than_its_share() {
        let mut tables = Tables::new();
        for key in 0..100_000_u64 {
            assert_eq!(tables.of_mut(&key).insert(key, key), None);
        }
        assert_eq!(tables.len(), 100_000);
        assert!((0..100_000).all(|key| tables.of(&key).get(&key) == Some(&key)));
        let most = tables.tables.iter().map(HashMap::len).max();
        assert!(most < Some(200), "{most:?}");
    }
}
