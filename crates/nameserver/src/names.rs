//! A table from names to values that is copied cheaply: a change copies one page of it.
//!
//! ```text
//! NameTable ── Vec<Arc<Page>> ── Page { slots ─> entries { hash, name, value }, arena }
//! ```
//! A name's hash is built label by label from the root, so that one pass over an asked name gives the hash
//! of each of its ancestors. Its high bits choose the page, its low bits the slot there. A page keeps the
//! names, and whatever octets its values refer to, in one arena.

use std::sync::Arc;

use dns::Folded;
use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;
use std::hash::Hasher;

/// How many entries a page is meant to hold: a change copies about this many, and a million names need
/// some eight thousand pages.
const PAGE_ENTRIES: usize = 128;

/// The most slots a page may have filled, in eighths of them.
const FILL_EIGHTHS: usize = 6;

/// A hash of names, built from the root downward; seeded, so that nobody can prepare names that collide.
#[derive(Clone)]
pub struct NameHash(SharedSeed);

impl NameHash {
    /// A hash with the given seed; tables are only right for the hash that they were built with.
    pub fn new(seed: u64) -> NameHash {
        NameHash(SharedSeed::from_u64(seed))
    }

    /// The root's hash.
    pub fn root(&self) -> u64 {
        0
    }

    /// The hash of the name that `label`, folded and with its length octet, makes in front of a parent.
    #[inline]
    pub fn child(&self, parent: u64, label: &[u8]) -> u64 {
        let mut hasher = FoldHasher::with_seed(parent, &self.0);
        hasher.write(label);
        hasher.finish()
    }

    /// The hash of a whole name.
    pub fn of(&self, name: &Folded) -> u64 {
        self.of_suffix(name, name.labels())
    }

    /// The hash of the last `labels` labels of a name.
    ///
    /// # Panics
    /// Where the name has fewer.
    pub fn of_suffix(&self, name: &Folded, labels: usize) -> u64 {
        (1..=labels).fold(self.root(), |hash, depth| self.child(hash, name.label(depth)))
    }
}

/// What a table can hold.
pub trait Value: Clone {
    /// Copies what the value's ranges refer to from its page's arena to another page's, where the value is
    /// about to live. Values without such ranges have nothing to do.
    fn carry(&mut self, _from: &[u8], _to: &mut Vec<u8>) {}
}

/// A table from folded names to values.
#[derive(Clone)]
pub struct NameTable<V> {
    pages: Vec<Arc<Page<V>>>,
    length: usize,
}

/// An entry that was found: its value, and the arena that the value's ranges are in.
pub struct Entry<'a, V> {
    /// The value.
    pub value: &'a V,
    /// The page's octets.
    pub arena: &'a [u8],
}

impl<V> Clone for Entry<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Entry<'_, V> {}

/// A place in the order that a table has of itself, to go through it piece by piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    page: usize,
    entry: usize,
}

impl Cursor {
    /// The place behind the entry that this one is at.
    pub fn next(self) -> Cursor {
        Cursor { entry: self.entry + 1, ..self }
    }

    /// How many places it is beyond the table's end, once it is there: for what follows behind.
    pub fn beyond(self) -> usize {
        self.entry
    }
}

#[derive(Clone)]
struct Page<V> {
    /// 0 is empty; else the entry's index plus one in the low half, some of its hash in the high half.
    slots: Box<[u64]>,
    entries: Vec<Stored<V>>,
    arena: Vec<u8>,
}

#[derive(Clone)]
struct Stored<V> {
    hash: u64,
    name: u32,
    name_length: u8,
    value: V,
}

impl<V: Value> NameTable<V> {
    /// An empty table that is meant for about `expected` names; it grows beyond by itself.
    pub fn new(expected: usize) -> Self {
        let pages = (expected / PAGE_ENTRIES).max(1).next_power_of_two();
        NameTable { pages: (0..pages).map(|_| Arc::new(Page::new())).collect(), length: 0 }
    }

    /// A number for a name's hash, equal ones for equal hashes: in its order, names of a page are together, in a
    /// table of any size.
    pub fn page_order(hash: u64) -> u64 {
        u64::from(((hash >> 32) as u32).reverse_bits()) << 32 | hash & 0xffff_ffff
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is no name.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Finds a folded name by its hash.
    #[inline]
    pub fn find(&self, hash: u64, name: &[u8]) -> Option<Entry<'_, V>> {
        let page = &self.pages[self.page_of(hash)];
        let index = page.position(hash, name)?;
        Some(Entry { value: &page.entries[index].value, arena: &page.arena })
    }

    /// Changes a name's value in place, where the table holds it; `change` may add to the arena.
    pub fn change<R>(
        &mut self,
        hash: u64,
        name: &[u8],
        change: impl FnOnce(&mut V, &mut Vec<u8>) -> R,
    ) -> Option<R> {
        let page = self.page_of(hash);
        self.pages[page].position(hash, name)?;
        let page = Arc::make_mut(&mut self.pages[page]);
        let index = page.position(hash, name)?;
        Some(change(&mut page.entries[index].value, &mut page.arena))
    }

    /// As [`NameTable::change`], and the page keeps nothing of what the value referred to before.
    pub fn renew(&mut self, hash: u64, name: &[u8], change: impl FnOnce(&mut V, &mut Vec<u8>)) {
        let number = self.page_of(hash);
        let page = &self.pages[number];
        let Some(index) = page.position(hash, name) else { return };
        let mut renewed = Page::with_room_of(page);
        for (i, stored) in page.entries.iter().enumerate() {
            if i != index {
                renewed.carry(stored, page);
            }
        }
        let mut value = page.entries[index].value.clone();
        change(&mut value, &mut renewed.arena);
        renewed.insert(hash, name, value);
        self.pages[number] = Arc::new(renewed);
    }

    /// Adds a name that the table does not hold.
    ///
    /// # Panics
    /// Where the name is in the table already, or a page's arena would pass 4 GiB.
    pub fn insert(&mut self, hash: u64, name: &[u8], value: V) {
        assert!(self.find(hash, name).is_none(), "a name is added once");
        if self.length >= self.pages.len() * PAGE_ENTRIES * 2 {
            self.split_pages();
        }
        self.length += 1;
        let page = self.page_of(hash);
        Arc::make_mut(&mut self.pages[page]).insert(hash, name, value);
    }

    /// Removes a name; returns its value where the table held it.
    pub fn remove(&mut self, hash: u64, name: &[u8]) -> Option<V> {
        let page = self.page_of(hash);
        let index = self.pages[page].position(hash, name)?;
        let mut without = Page::with_room_of(&self.pages[page]);
        for (i, stored) in self.pages[page].entries.iter().enumerate() {
            if i != index {
                without.carry(stored, &self.pages[page]);
            }
        }
        let removed = self.pages[page].entries[index].value.clone();
        self.pages[page] = Arc::new(without);
        self.length -= 1;
        Some(removed)
    }

    /// Every name with its entry, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Entry<'_, V>)> {
        self.pages.iter().flat_map(|page| {
            page.entries
                .iter()
                .map(|stored| (page.name(stored), Entry { value: &stored.value, arena: &page.arena }))
        })
    }

    /// Changes every value in place, in the order of [`NameTable::iter`].
    pub fn change_all(&mut self, mut change: impl FnMut(&mut V)) {
        for page in &mut self.pages {
            for stored in &mut Arc::make_mut(page).entries {
                change(&mut stored.value);
            }
        }
    }

    /// The first name at or behind a place, which is moved to it; `None` at the end.
    pub fn at(&self, cursor: &mut Cursor) -> Option<(&[u8], Entry<'_, V>)> {
        while let Some(page) = self.pages.get(cursor.page) {
            if let Some(stored) = page.entries.get(cursor.entry) {
                return Some((page.name(stored), Entry { value: &stored.value, arena: &page.arena }));
            }
            *cursor = Cursor { page: cursor.page + 1, entry: 0 };
        }
        None
    }

    /// Gives back the room that growing left over.
    pub fn shrink(&mut self) {
        for page in &mut self.pages {
            let page = Arc::make_mut(page);
            page.arena.shrink_to_fit();
            page.entries.shrink_to_fit();
        }
    }

    /// The octets that the table takes, without what its values own elsewhere.
    pub fn bytes(&self) -> usize {
        self.pages
            .iter()
            .map(|page| {
                page.arena.capacity()
                    + page.slots.len() * 8
                    + page.entries.capacity() * size_of::<Stored<V>>()
            })
            .sum()
    }

    #[inline]
    fn page_of(&self, hash: u64) -> usize {
        // The number of pages is a power of two; a shift by 64 would be for one page alone.
        ((hash >> 32) as usize) & (self.pages.len() - 1)
    }

    fn split_pages(&mut self) {
        let mut grown = NameTable::new(self.pages.len() * 2 * PAGE_ENTRIES);
        for page in &self.pages {
            for stored in &page.entries {
                let to = grown.page_of(stored.hash);
                Arc::make_mut(&mut grown.pages[to]).carry(stored, page);
            }
        }
        grown.length = self.length;
        *self = grown;
    }
}

impl<V: Value> Page<V> {
    fn new() -> Self {
        Page { slots: vec![0; 8].into(), entries: Vec::new(), arena: Vec::new() }
    }

    /// Nothing yet, and room for what another page has.
    fn with_room_of(page: &Page<V>) -> Self {
        Page {
            slots: vec![0; page.slots.len()].into(),
            entries: Vec::with_capacity(page.entries.len()),
            arena: Vec::with_capacity(page.arena.len()),
        }
    }

    fn name(&self, stored: &Stored<V>) -> &[u8] {
        &self.arena[stored.name as usize..][..usize::from(stored.name_length)]
    }

    #[inline]
    fn position(&self, hash: u64, name: &[u8]) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        // A page always keeps empty slots, so the walk ends.
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return None;
            }
            if (slot ^ hash) >> 32 == 0 {
                let index = (slot as u32 - 1) as usize;
                let stored = &self.entries[index];
                if stored.hash == hash && self.name(stored) == name {
                    return Some(index);
                }
            }
            at = (at + 1) & mask;
        }
    }

    fn insert(&mut self, hash: u64, name: &[u8], value: V) {
        let start = u32::try_from(self.arena.len()).expect("a page's arena stays under 4 GiB");
        self.arena.extend_from_slice(name);
        self.entries.push(Stored { hash, name: start, name_length: name.len() as u8, value });
        if self.entries.len() * 8 > self.slots.len() * FILL_EIGHTHS {
            self.fill_slots(self.slots.len() * 2);
        } else {
            self.fill_slot(self.entries.len() - 1);
        }
    }

    /// Adds an entry of another page, with what its value refers to.
    fn carry(&mut self, stored: &Stored<V>, from: &Page<V>) {
        let mut value = stored.value.clone();
        value.carry(&from.arena, &mut self.arena);
        self.insert(stored.hash, from.name(stored), value);
    }

    fn fill_slots(&mut self, slots: usize) {
        self.slots = vec![0; slots].into();
        for index in 0..self.entries.len() {
            self.fill_slot(index);
        }
    }

    fn fill_slot(&mut self, index: usize) {
        let hash = self.entries[index].hash;
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at] != 0 {
            at = (at + 1) & mask;
        }
        self.slots[at] = hash & !0xffff_ffff | (index as u64 + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    impl Value for u16 {}

    impl Value for std::ops::Range<usize> {
        fn carry(&mut self, from: &[u8], to: &mut Vec<u8>) {
            let start = to.len();
            to.extend_from_slice(&from[self.clone()]);
            *self = start..to.len();
        }
    }

    fn folded(text: &str) -> Folded {
        Folded::read(&dns::name::from_text(text).unwrap()).unwrap()
    }

    #[test]
    fn a_copy_does_not_see_later_changes() {
        let hash = NameHash::new(7);
        let name = folded("a.example");
        let mut table = NameTable::new(0);
        table.insert(hash.of(&name), name.wire(), 1u16);
        let before = table.clone();
        table.change(hash.of(&name), name.wire(), |value, _| *value = 2).unwrap();
        assert_eq!(*before.find(hash.of(&name), name.wire()).unwrap().value, 1);
        assert_eq!(*table.find(hash.of(&name), name.wire()).unwrap().value, 2);
    }

    #[test]
    fn values_keep_their_arena_while_the_table_grows() {
        let hash = NameHash::new(1);
        let mut table = NameTable::new(0);
        let names: Vec<Folded> = (0..3_000).map(|i| folded(&format!("n{i}.example"))).collect();
        for (i, name) in names.iter().enumerate() {
            table.insert(hash.of(name), name.wire(), 0..0);
            table.change(hash.of(name), name.wire(), |range, arena| {
                *range = arena.len()..arena.len() + 4;
                arena.extend_from_slice(&(i as u32).to_be_bytes());
            });
        }
        for (i, name) in names.iter().enumerate() {
            let entry = table.find(hash.of(name), name.wire()).unwrap();
            assert_eq!(entry.arena[entry.value.clone()], (i as u32).to_be_bytes());
        }
        assert_eq!(table.iter().count(), 3_000);
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec((0u16..600, any::<bool>()), 0..1500)) {
            let hash = NameHash::new(3);
            let (mut table, mut model) = (NameTable::new(0), HashMap::new());
            for (number, add) in steps {
                let name = folded(&format!("n{number}"));
                let (key, wire) = (hash.of(&name), name.wire());
                if add && !model.contains_key(&number) {
                    table.insert(key, wire, number);
                    model.insert(number, ());
                } else if !add {
                    prop_assert_eq!(table.remove(key, wire).is_some(), model.remove(&number).is_some());
                }
            }
            prop_assert_eq!(table.len(), model.len());
            for number in 0..600 {
                let name = folded(&format!("n{number}"));
                let found = table.find(hash.of(&name), name.wire()).map(|entry| *entry.value);
                prop_assert_eq!(found, model.contains_key(&number).then_some(number));
            }
        }
    }
}
