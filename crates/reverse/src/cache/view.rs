//! The cache as it is read: a view, which is one pointer, and look-ups in it, which are plain loads.

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::{Entry, Root, SHARDS, State, Table, approach, names, octets, prefix};
use crate::name::NameText;

/// Look-ups of [`View::get_each`] that wait for memory together: what they touch is some six lines each, which the
/// nearest cache of a processor holds beside what finds them. With twice as many, one takes a tenth longer.
pub const TOGETHER: usize = 32;

/// The cache for those who read: gives a [`View`] of it as it is then. Clones are of the same cache.
#[derive(Clone, Debug)]
pub struct Reader(pub(super) Arc<ArcSwap<Root>>);

/// The cache as it is read: entries change under it, its parts do not.
#[derive(Clone, Debug)]
pub struct View {
    pub(super) root: Arc<Root>,
    /// Where those entries are found whose names were put, or moved, since.
    reader: Reader,
}

impl Reader {
    /// The cache as it is now.
    pub fn view(&self) -> View {
        View { root: self.0.load_full(), reader: self.clone() }
    }

    /// Calls `each` with all entries of addresses, in no order, but with both families in turn; what changes meanwhile is
    /// seen as it was or as it is then.
    pub fn for_each(&self, mut each: impl FnMut(IpAddr, Entry, &NameText)) {
        let _ = self.try_for_each(|address, entry, name| {
            each(address, entry, name);
            ControlFlow::<()>::Continue(())
        });
    }

    /// The same, until `each` breaks.
    pub fn try_for_each<B>(
        &self,
        mut each: impl FnMut(IpAddr, Entry, &NameText) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        (0..SHARDS).try_for_each(|index| {
            self.of_shard::<u32, B>(index, &mut each)?;
            self.of_shard::<u128, B>(index, &mut each)
        })
    }

    fn of_shard<K: Table, B>(
        &self,
        index: usize,
        each: &mut impl FnMut(IpAddr, Entry, &NameText) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        // Kept to the end: a shard that has grown is read as it was, and its names where this view has them.
        let (view, mut name) = (self.view(), NameText::EMPTY);
        let shard = K::shards(&view.root)[index].clone();
        for at in 0..shard.slots::<K>() {
            let Some((entry, key, reference)) = shard.read::<K>(at) else { continue };
            let address = key.address();
            if prefix::is_key(address) {
                continue;
            }
            name.clear();
            let known = view.named(address, entry, reference, &mut name).or_else(|| {
                // Its name was moved since: it is where a new view has it.
                self.view().get(address, &mut name)
            });
            if let Some(entry) = known {
                each(address, entry, &name)?;
            }
        }
        ControlFlow::Continue(())
    }
}

impl View {
    /// What is known of an address; its name, where it has one, goes into `name`.
    #[inline]
    pub fn get(&self, address: IpAddr, name: &mut NameText) -> Option<Entry> {
        name.clear();
        let (entry, reference) = self.root.known(address)?;
        self.named(address, entry, reference, name).or_else(|| self.anew(address, name))
    }

    /// What is known of several addresses, as [`View::get`] of each in their order; but [`TOGETHER`] of them wait for
    /// memory together, where one after the other would wait for its slot and its name alone.
    pub fn get_each(&self, addresses: &[IpAddr], mut each: impl FnMut(IpAddr, Option<Entry>, &NameText)) {
        let (mut name, mut found) = (NameText::EMPTY, [None; TOGETHER]);
        for addresses in addresses.chunks(TOGETHER) {
            self.find_each(addresses, &mut found);
            for (found, address) in found.iter().zip(addresses) {
                name.clear();
                let entry = found.and_then(|(entry, reference)| {
                    let named = self.named(*address, entry, reference, &mut name);
                    named.or_else(|| self.anew(*address, &mut name))
                });
                each(*address, entry, &name);
            }
        }
    }

    /// Has the memory fetched that look-ups of these addresses are about to read.
    pub fn approach_each(&self, addresses: &[IpAddr]) {
        for addresses in addresses.chunks(TOGETHER) {
            self.find_each(addresses, &mut [None; TOGETHER]);
        }
    }

    /// Finds some addresses, [`TOGETHER`] at most, and has their names fetched.
    #[inline]
    fn find_each(&self, addresses: &[IpAddr], found: &mut [Option<(Entry, u32)>; TOGETHER]) {
        addresses.iter().for_each(|address| self.approach(*address));
        let segments = &self.root.segments;
        for (found, address) in found.iter_mut().zip(addresses) {
            *found = self.root.known(*address);
            if let Some((Entry { state: State::Name, .. }, reference)) = found {
                names::approach(segments, *reference);
            }
        }
        for (entry, reference) in found.iter().take(addresses.len()).flatten() {
            if entry.state == State::Name {
                names::approach_tail(segments, *reference);
            }
        }
    }

    /// Looks an address up whose name this view does not have.
    #[cold]
    fn anew(&self, address: IpAddr, name: &mut NameText) -> Option<Entry> {
        let view = self.reader.view();
        let (entry, reference) = view.root.known(address)?;
        view.named(address, entry, reference, name)
    }

    /// Has the slots fetched where a look-up begins.
    #[inline]
    fn approach(&self, address: IpAddr) {
        match address {
            IpAddr::V4(v4) => approach(&self.root.v4, u32::from(v4), self.root.seed),
            IpAddr::V6(v6) => approach(&self.root.v6, u128::from(v6), self.root.seed),
        }
    }

    /// Reads the entry's name; `None` where this view does not have it.
    #[inline]
    fn named(&self, address: IpAddr, entry: Entry, reference: u32, name: &mut NameText) -> Option<Entry> {
        if entry.state == State::Name {
            names::read(&self.root.segments, reference, octets(address), name).ok()?;
        }
        Some(entry)
    }
}
