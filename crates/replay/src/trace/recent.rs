//! A bounded table that forgets what was not touched for the longest time.

use std::collections::HashMap;
use std::hash::Hash;

/// A table of at most `2 * half` entries, in two halves: when the young one is full, the old one goes and the
/// young one takes its place. What is touched becomes young.
///
/// So nothing goes that was touched among the last `half` different keys, and no step depends on the size.
pub(super) struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    half: usize,
}

impl<K: Eq + Hash, V> Recent<K, V> {
    pub(super) fn new(half: usize) -> Recent<K, V> {
        Recent { young: HashMap::new(), old: HashMap::new(), half }
    }

    /// Takes the entry out; [`Recent::put`] puts it back as the youngest.
    pub(super) fn take(&mut self, key: &K) -> Option<V> {
        self.young.remove(key).or_else(|| self.old.remove(key))
    }

    /// Puts an entry in; returns what had to go for it.
    pub(super) fn put(&mut self, key: K, value: V) -> impl Iterator<Item = (K, V)> + use<K, V> {
        let gone = if self.young.len() >= self.half { self.age() } else { HashMap::new() };
        self.young.insert(key, value);
        gone.into_iter()
    }

    /// Makes all that is there old, and returns what was old.
    pub(super) fn age(&mut self) -> HashMap<K, V> {
        std::mem::replace(&mut self.old, std::mem::take(&mut self.young))
    }

    /// Every entry.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &V> {
        self.young.values().chain(self.old.values())
    }

    /// Takes everything out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (K, V)> + use<K, V> {
        let old = self.age();
        old.into_iter().chain(self.age())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_touched_last_stays() {
        let mut recent = Recent::new(10);
        let mut gone = 0;
        for key in 1..1_000 {
            assert_eq!(recent.take(&0), (key > 1).then_some(0), "{key}");
            for (_, entry) in recent.put(0, 0).chain(recent.put(key, key)) {
                assert!(entry != 0 && entry + 9 <= key, "{entry} went for {key}");
                gone += 1;
            }
        }
        assert!(recent.young.len() + recent.old.len() <= 20);
        assert_eq!(gone + recent.drain().count(), 1_000);
    }
}
