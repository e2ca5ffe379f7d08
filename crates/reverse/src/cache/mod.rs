//! The cache: what is known of addresses, for any number of readers and one writer.
//!
//! Readers write nothing and never wait. A [`Reader`] gives a [`View`], which is one pointer; look-ups in it are plain
//! loads. The [`Writer`] puts entries in place (`table`), keeps names once (`names`, `template`), and replaces the
//! root, a list of shared parts, only when a part grows. Whoever keeps a view for long may see what was there when it
//! was taken; so a view is taken for a batch of questions and dropped before waiting for the next.
//!
//! - `view`: [`Reader`] and [`View`]; `writer`: [`Writer`].
//! - [`entry`]: [`Entry`], what is known, in one word.
//! - [`prefix`]: whole prefixes without a name, as one entry each.
//! - [`snapshot`]: all of it in a file, and back, where `brought` looks at it; [`text`]: the same as lines, as Rapid DNS
//!   had it.

mod brought;
pub mod entry;
mod names;
mod part;
pub mod prefix;
pub mod snapshot;
mod table;
mod template;
#[cfg(test)]
mod tests;
pub mod text;
mod view;
mod writer;

use std::net::IpAddr;
use std::sync::Arc;

pub use entry::{Entry, State, Verdict, Why};
use names::Segments;
use table::{Key, Shard};
pub use view::{Reader, TOGETHER, View};
use writer::Used;
pub use writer::{Counts, LIMIT_MIN, Writer};

/// Shards of each table: one grows while the others stay, so that growing stops the writer for a moment only. With ten
/// million entries that is some ten milliseconds, and each shard fills some large pages.
pub const SHARDS: usize = 1 << SHARD_BITS;

/// The bits of a hash that choose the shard: its first.
const SHARD_BITS: u32 = 5;

/// Everything, as shared parts.
#[derive(Debug)]
struct Root {
    seed: u64,
    /// For how many seconds expired names and absences are kept.
    stale: u32,
    v4: Vec<Arc<Shard>>,
    v6: Vec<Arc<Shard>>,
    segments: Segments,
}

/// An empty cache, limited to so many octets; expired names and absences are kept for another `stale` seconds.
///
/// The limit is for all that grows with the entries: slots, names, and what finds names that are there already.
/// While names are collected, and until nobody reads there any more, those in use are held twice, which the limit does not
/// count.
pub fn new(limit: usize, stale: u32, seed: u64) -> (Writer, Reader) {
    let shards = |new: fn(usize) -> Shard| (0..SHARDS).map(|_| Arc::new(new(0))).collect();
    let (v4, v6) = (shards(Shard::new::<u32>), shards(Shard::new::<u128>));
    Writer::over(Root { seed, stale, v4, v6, segments: Vec::new() }, limit)
}

#[inline]
fn find<K: Key>(shards: &[Arc<Shard>], key: K, seed: u64) -> Option<(Entry, u32)> {
    let hash = key.hash(seed);
    shards[shard(hash)].get(key, hash)
}

#[inline]
fn approach<K: Key>(shards: &[Arc<Shard>], key: K, seed: u64) {
    let hash = key.hash(seed);
    shards[shard(hash)].approach::<K>(hash);
}

/// Which shard a hash is of.
#[inline]
fn shard(hash: u64) -> usize {
    (hash >> (u64::BITS - SHARD_BITS)) as usize
}

/// The octets that names may have in them.
#[inline]
fn octets(address: IpAddr) -> Option<[u8; 4]> {
    match address {
        IpAddr::V4(v4) => Some(v4.octets()),
        IpAddr::V6(_) => None,
    }
}

/// A table of the root, by its key.
trait Table: Key {
    fn shards(root: &Root) -> &[Arc<Shard>];
    fn shards_mut(root: &mut Root) -> &mut [Arc<Shard>];
    fn used(writer: &mut Writer) -> &mut Used;
    fn address(self) -> IpAddr;
}

impl Table for u32 {
    fn shards(root: &Root) -> &[Arc<Shard>] {
        &root.v4
    }

    fn shards_mut(root: &mut Root) -> &mut [Arc<Shard>] {
        &mut root.v4
    }

    fn used(writer: &mut Writer) -> &mut Used {
        &mut writer.v4
    }

    fn address(self) -> IpAddr {
        IpAddr::V4(self.into())
    }
}

impl Table for u128 {
    fn shards(root: &Root) -> &[Arc<Shard>] {
        &root.v6
    }

    fn shards_mut(root: &mut Root) -> &mut [Arc<Shard>] {
        &mut root.v6
    }

    fn used(writer: &mut Writer) -> &mut Used {
        &mut writer.v6
    }

    fn address(self) -> IpAddr {
        IpAddr::V6(self.into())
    }
}

impl Root {
    fn copy(&self) -> Root {
        let Root { seed, stale, v4, v6, segments } = self;
        Root { seed: *seed, stale: *stale, v4: v4.clone(), v6: v6.clone(), segments: segments.clone() }
    }

    /// What is known of an address, of itself or by its prefix, and where its name is.
    #[inline]
    fn known(&self, address: IpAddr) -> Option<(Entry, u32)> {
        let found = match address {
            IpAddr::V4(v4) => find(&self.v4, u32::from(v4), self.seed),
            IpAddr::V6(v6) => find(&self.v6, u128::from(v6), self.seed),
        };
        match found {
            Some(found) if !prefix::is_key(address) => Some(found),
            _ => self.empty_prefix(address).map(|entry| (entry, 0)),
        }
    }

    /// What is known of the longest prefix that an address is in, where that has no name in it. One that has something
    /// says more than a shorter one around it that is said to be empty.
    fn empty_prefix(&self, address: IpAddr) -> Option<Entry> {
        let find = |bits| find(&self.v6, prefix::key(address, bits), self.seed);
        let (entry, _) = prefix::lengths(address).into_iter().find_map(find)?;
        (entry.state == State::NoName).then_some(entry)
    }

    /// Octets of all slots.
    fn slot_octets(&self) -> usize {
        self.v4.iter().chain(&self.v6).map(|shard| 8 * shard.words.len()).sum()
    }
}
