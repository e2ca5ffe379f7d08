//! What a snapshot has brought, which is somebody's file: looked at once, by several threads, before anybody is told of it.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::{Entry, Root, SHARDS, State, Table, entry, names, octets};
use crate::name::NameText;

/// The most threads that look: each has a list of the names of one shard, some megabytes of ten million entries, and a disk
/// gives no more at once.
const THREADS_MAX: usize = 8;

/// How many names ahead one is fetched that is looked at.
const LOOKED_AHEAD: usize = 16;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Slots whose name is none that is kept, by their shard; those of IPv4 first.
    pub(super) unkept: Vec<(usize, Vec<usize>)>,
    /// Of each segment, whether a name is in it.
    pub(super) in_use: Vec<bool>,
}

/// Looks at all shards: `None` where a slot is not whole, or a name's segment is not there, whose number may go to another
/// later.
pub(super) fn look(root: &Root) -> Option<Found> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Found { in_use: vec![false; root.segments.len()], ..Found::default() };
        loop {
            let unkept = match next.fetch_add(1, Ordering::Relaxed) {
                shard @ 0..SHARDS => (shard, look_at_shard::<u32>(root, shard, &mut found.in_use)?),
                shard if shard < 2 * SHARDS => {
                    (shard, look_at_shard::<u128>(root, shard - SHARDS, &mut found.in_use)?)
                }
                _ => return Some(found),
            };
            found.unkept.push(unkept);
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX);
    thread::scope(|scope| {
        // This one looks, too, and alone where the system gives no other.
        let others: Vec<_> =
            (1..threads).map_while(|_| thread::Builder::new().spawn_scoped(scope, work).ok()).collect();
        let mut all = work();
        for other in others {
            let other = other.join().ok().flatten();
            all = all.zip(other).map(|(all, other)| all.and(other));
        }
        all
    })
}

impl Found {
    fn and(mut self, other: Found) -> Found {
        self.unkept.extend(other.unkept);
        self.in_use.iter_mut().zip(other.in_use).for_each(|(in_use, other)| *in_use |= other);
        self
    }
}

/// The slots of a shard whose name is none that is kept; notes which segments the others are in.
fn look_at_shard<K: Table>(root: &Root, index: usize, in_use: &mut [bool]) -> Option<Vec<usize>> {
    let shard = &K::shards(root)[index];
    let mut named = Vec::new();
    for (at, slot) in shard.words.chunks(K::WORDS).enumerate() {
        // Who reads a slot that is being written finds what the writer has changed last, wherever that is.
        if entry::kind(slot[0].load(Ordering::Relaxed)) == entry::BUSY {
            return None;
        }
        if let Some((Entry { state: State::Name, .. }, key, reference)) = shard.read::<K>(at) {
            named.push((reference, at as u32, key));
        }
    }
    // In the order in which they lie in memory: in that of their slots, each would be in another page.
    named.sort_unstable_by_key(|(reference, ..)| *reference);
    let (mut unkept, mut name) = (Vec::new(), NameText::EMPTY);
    for (turn, &(reference, at, key)) in named.iter().enumerate() {
        if let Some((ahead, ..)) = named.get(turn + LOOKED_AHEAD) {
            names::approach(&root.segments, *ahead);
        }
        if !names::is_held(&root.segments, reference) {
            return None;
        }
        let read = names::read(&root.segments, reference, octets(key.address()), &mut name);
        if read.is_err() || !name.is_kept() {
            unkept.push(at as usize);
            continue;
        }
        names::segments_of(&root.segments, reference).for_each(|segment| in_use[segment] = true);
    }
    Some(unkept)
}
