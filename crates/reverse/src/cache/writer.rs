//! The cache as it is changed: by one writer, which puts entries in place, makes shards grow, and sweeps.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;

use super::names::Names;
use super::table::{Key, Place, Shard};
use super::{
    Entry, Reader, Root, SHARDS, State, Table, brought, entry, find, names, octets, part, prefix, shard,
};
use crate::name::NameText;

/// The fewest octets that a cache may be limited to: some slots, and enough segments of names that one more
/// or less does not matter.
pub const LIMIT_MIN: usize = 4 << 20;

/// Slots that each shard may have whatever the limit says, 96 KiB in all: when the first entries of a family come, the others
/// may have taken everything.
const SLOTS_ALWAYS: usize = 64;

/// The most octets of slots under a limit: the last eighth is for names, so that slots do not take what lets those change.
pub(super) fn slot_octets_max(limit: usize) -> usize {
    limit - limit / 8 + SHARDS * SLOTS_ALWAYS * 8 * (u32::WORDS + u128::WORDS)
}

/// The fewest names that are worth a collection.
const DROPPED_MIN: usize = 1000;

/// Slots that one part of a sweep goes over at most, so that it takes a tenth of a millisecond: a thread that answers may
/// have to wait so long for its core.
const SWEPT_MAX: usize = 2048;

/// How many slots a name counts for that is moved: it takes a microsecond or two.
const MOVED: usize = 32;

/// How many slots of a shard show when an eighth of its names has expired.
const SAMPLE: usize = 8192;

/// Changes the cache. There is one.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<ArcSwap<Root>>,
    root: Root,
    pub(super) v4: Used,
    pub(super) v6: Used,
    pub(super) names: Names,
    limit: usize,
    slot_octets: usize,
    /// The shard that is swept next, those of IPv4 first.
    cursor: usize,
    /// How far that has come.
    sweeping: Option<Sweeping>,
    collecting: bool,
    /// Whether this round of sweeps takes out an eighth of the names, those that expire first.
    shedding: bool,
    /// Named entries that were taken out or renamed since the last collection.
    pub(super) dropped: usize,
    counts: Counts,
}

/// A shard of which a part is swept.
#[derive(Debug)]
struct Sweeping {
    shard: Arc<Shard>,
    /// The slot that is next.
    at: usize,
    /// Names that expire before this are taken out.
    shed: u32,
}

/// How full the shards of one table are: slots with entries, and slots that are not free.
#[derive(Debug)]
pub(super) struct Used {
    live: Vec<u32>,
    taken: Vec<u32>,
}

/// What became of entries, since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries that were put.
    pub puts: u64,
    /// Entries that expired and were taken out.
    pub expired: u64,
    /// Entries that had to make room for another.
    pub evicted: u64,
    /// Entries that were not put because there was no room for them or their name.
    pub no_room: u64,
    /// Collections of names that came to their end.
    pub collections: u64,
}

impl Writer {
    pub(super) fn over(root: Root, limit: usize) -> (Writer, Reader) {
        let shared = Arc::new(ArcSwap::from_pointee(root.copy()));
        let (v4, v6) = (Used::of::<u32>(&root.v4), Used::of::<u128>(&root.v6));
        let reader = Reader(shared.clone());
        let slot_octets = root.slot_octets();
        let mut names = Names::default();
        names.release(&root.segments);
        let writer = Writer {
            shared,
            root,
            v4,
            v6,
            names,
            limit: limit.max(LIMIT_MIN),
            slot_octets,
            cursor: 0,
            sweeping: None,
            collecting: false,
            shedding: false,
            dropped: 0,
            counts: Counts::default(),
        };
        (writer, reader)
    }

    /// Puts what is known of an address; `name` is looked at where the state is [`State::Name`].
    ///
    /// What does not fit the limit takes the place of what expires first nearby.
    pub fn put(&mut self, address: IpAddr, entry: Entry, name: &NameText) {
        match address {
            _ if prefix::is_key(address) => {}
            IpAddr::V4(v4) => self.put_key::<u32>(v4.into(), entry, name),
            IpAddr::V6(v6) => self.put_key::<u128>(v6.into(), entry, name),
        }
    }

    /// Puts what is known of the prefix of so many bits that an address is in: [`State::NoName`] where it has no name
    /// in it, [`State::Asked`] where it has something, or is being asked for.
    pub fn put_prefix(&mut self, address: IpAddr, bits: u8, entry: Entry) {
        self.put_key::<u128>(prefix::key(address, bits), entry, &NameText::EMPTY);
    }

    /// What is known of the prefix of so many bits that an address is in.
    pub fn prefix(&self, address: IpAddr, bits: u8) -> Option<Entry> {
        find(&self.root.v6, prefix::key(address, bits), self.root.seed).map(|(entry, _)| entry)
    }

    /// Whether a name that has not expired at `now` is known in the prefix of so many bits that an address is in. Only where
    /// that has few enough addresses to look at all, an IPv4 /24 or a longer one: it takes some ten microseconds.
    pub fn knows_name_in(&self, address: IpAddr, bits: u8, now: u32) -> bool {
        let (IpAddr::V4(v4), 24..=32) = (address, bits) else { return false };
        let last = u32::MAX.checked_shr(bits.into()).unwrap_or(0);
        let mut all = v4.to_bits() & !last..=v4.to_bits() | last;
        all.any(|key| {
            let found = find(&self.root.v4, key, self.root.seed);
            found.is_some_and(|(entry, _)| entry.state == State::Name && !entry.is_stale(now))
        })
    }

    /// What is known of an address.
    pub fn get(&self, address: IpAddr) -> Option<Entry> {
        self.root.known(address).map(|(entry, _)| entry)
    }

    /// Reads the name of an address, where it has one.
    pub fn name(&self, address: IpAddr, name: &mut NameText) {
        if let Some((Entry { state: State::Name, .. }, reference)) = self.root.known(address)
            && names::read(&self.root.segments, reference, octets(address), name).is_err()
        {
            name.clear();
        }
    }

    /// Goes over the next shard: takes out what has expired, and moves names while they are collected. With
    /// [`Writer::SWEEPS`] of them, all was gone over.
    pub fn sweep(&mut self, now: u32) {
        while !self.sweep_part(now) {}
    }

    /// Goes over a part of the next shard, which takes about a tenth of a millisecond; whether that was the last of it.
    pub fn sweep_part(&mut self, now: u32) -> bool {
        if self.cursor == 0 && self.sweeping.is_none() {
            self.turn();
        }
        let is_last = match self.cursor {
            shard @ 0..SHARDS => self.sweep_shard::<u32>(shard, now),
            shard => self.sweep_shard::<u128>(shard - SHARDS, now),
        };
        if is_last {
            self.cursor = (self.cursor + 1) % Writer::SWEEPS;
        }
        is_last
    }

    /// How many sweeps go over all.
    pub const SWEEPS: usize = 2 * SHARDS;

    /// How many entries there are: names, absences, failures, empty entries and prefixes.
    pub fn len(&self) -> usize {
        self.v4.live.iter().chain(&self.v6.live).map(|live| *live as usize).sum()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Octets that are held for entries and names: what the limit is for.
    pub fn octets(&self) -> usize {
        self.slot_octets + self.names.octets()
    }

    /// Whether so much of the limit, or of what names may take, is taken that the next round of sweeps takes out an eighth of
    /// the names.
    pub fn is_nearly_full(&self) -> bool {
        self.octets() > self.limit - self.limit / 16 || self.names.is_nearly_full()
    }

    /// For how many seconds expired names and absences are kept.
    pub fn stale(&self) -> u32 {
        self.root.stale
    }

    /// What became of entries since start.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Looks at what a snapshot has brought: `None` where it is damaged. Entries whose name is none that is kept are taken
    /// out. Segments without names go: a collection has left them that did not come to its end, and each start could leave
    /// more.
    pub(super) fn look_at_names(&mut self) -> Option<()> {
        let found = brought::look(&self.root)?;
        for (shard, slots) in found.unkept {
            for at in slots {
                match shard {
                    0..SHARDS => self.evict::<u32>(shard, at),
                    _ => self.evict::<u128>(shard - SHARDS, at),
                }
            }
        }
        for (segment, _) in self.root.segments.iter_mut().zip(found.in_use).filter(|(_, in_use)| !in_use) {
            *segment = None;
        }
        self.names.release(&self.root.segments);
        self.publish();
        Some(())
    }

    fn publish(&mut self) {
        self.shared.store(Arc::new(self.root.copy()));
    }

    fn put_key<K: Table>(&mut self, key: K, entry: Entry, name: &NameText) {
        let reference = match entry.state {
            State::Name => self.intern(key.address(), name),
            _ => Some(0),
        };
        let Some(reference) = reference else {
            self.counts.no_room += 1;
            return self.make_room(key);
        };
        let hash = key.hash(self.root.seed);
        let index = shard(hash);
        self.grow::<K>(index);
        let place = K::shards(&self.root)[index].place(key, hash);
        let (at, fresh) = match place {
            Place::None => {
                self.counts.no_room += 1;
                return;
            }
            Place::Found(at, old, was) => {
                self.dropped =
                    self.dropped.saturating_add(usize::from(old.state == State::Name && was != reference));
                (at, None)
            }
            Place::Free(_, _, Some(soonest)) if self.is_crowded::<K>(index) => {
                self.evict::<K>(index, soonest);
                (soonest, Some(false))
            }
            Place::Free(at, fresh, _) => (at, Some(fresh)),
            Place::Full(at) => {
                self.evict::<K>(index, at);
                (at, Some(false))
            }
        };
        self.counts.puts += 1;
        K::shards(&self.root)[index].write(at, key, &entry, reference);
        if let Some(fresh) = fresh {
            let used = K::used(self);
            used.live[index] += 1;
            used.taken[index] += u32::from(fresh);
        }
    }

    fn intern(&mut self, address: IpAddr, name: &NameText) -> Option<u32> {
        let may_grow = self.names.may_grow(self.collecting, self.limit.saturating_sub(self.slot_octets));
        let kept = self.names.intern(&mut self.root.segments, name.octets(), octets(address), may_grow);
        if std::mem::take(&mut self.names.has_grown) {
            self.publish();
        }
        kept.ok()
    }

    /// Takes out what a key had whose name has no room, as it is not true any more; else what expires first near it.
    fn make_room<K: Table>(&mut self, key: K) {
        let hash = key.hash(self.root.seed);
        let index = shard(hash);
        match K::shards(&self.root)[index].place(key, hash) {
            // It takes no room of names, and without it the key would be asked for again at each look-up.
            Place::Found(_, Entry { state: State::Asked, .. }, _) => {}
            Place::Found(at, ..) | Place::Full(at) => self.evict::<K>(index, at),
            Place::Free(_, _, Some(soonest)) => self.evict::<K>(index, soonest),
            Place::Free(..) | Place::None => {}
        }
    }

    fn evict<K: Table>(&mut self, index: usize, at: usize) {
        self.counts.evicted += 1;
        self.take_out::<K>(index, at);
    }

    fn take_out<K: Table>(&mut self, index: usize, at: usize) {
        let shard = &K::shards(&self.root)[index];
        let named = shard.read::<K>(at).is_some_and(|(entry, ..)| entry.state == State::Name);
        shard.remove::<K>(at);
        self.dropped = self.dropped.saturating_add(usize::from(named));
        K::used(self).live[index] -= 1;
    }

    /// Sees that a shard has a slot to spare: beyond three quarters it is made anew with about three fifths taken, where
    /// the limit allows.
    fn grow<K: Table>(&mut self, index: usize) {
        let old = K::shards(&self.root)[index].clone();
        let slots = old.slots::<K>();
        let (live, taken) = (K::used(self).live[index] as usize, K::used(self).taken[index] as usize);
        if (taken + 1) * 4 <= slots * 3 {
            return;
        }
        let slot = 8 * K::WORDS;
        let wanted = ((live + 1) * 5 / 3).max(8);
        let room = (self.limit - self.limit / 8).saturating_sub(self.octets() - slots * slot) / slot;
        let room = room.max(SLOTS_ALWAYS);
        let fitted = part::fitted(wanted * K::WORDS) / K::WORDS;
        let size = if wanted.min(room) > slots {
            if fitted <= room { fitted } else { wanted.min(room) }
        } else if (taken - live) * 16 >= slots && slots > 0 {
            // Without room for more, it is made anew for the sake of the slots that were taken out alone.
            wanted.min(slots)
        } else {
            return;
        };
        let shard = Shard::new::<K>(size);
        let mut lost = 0;
        for at in 0..slots {
            let Some((entry, key, name)) = old.read::<K>(at) else { continue };
            match shard.place(key, key.hash(self.root.seed)) {
                Place::Free(at, ..) => shard.write(at, key, &entry, name),
                _ => lost += 1,
            }
        }
        self.counts.evicted += lost as u64;
        self.slot_octets = self.slot_octets + 8 * shard.words.len() - 8 * old.words.len();
        let used = K::used(self);
        used.live[index] -= lost;
        used.taken[index] = used.live[index];
        K::shards_mut(&mut self.root)[index] = Arc::new(shard);
        self.publish();
    }

    /// Whether a shard is so full, because it may not grow, that look-ups would take long: then entries make room
    /// before slots run out.
    fn is_crowded<K: Table>(&mut self, index: usize) -> bool {
        let slots = K::shards(&self.root)[index].slots::<K>();
        K::used(self).live[index] as usize * 20 >= slots * 17
    }

    /// Goes over a part of a shard; whether that was the last.
    fn sweep_shard<K: Table>(&mut self, index: usize, now: u32) -> bool {
        let shard = K::shards(&self.root)[index].clone();
        let mut name = NameText::EMPTY;
        // One that grew meanwhile is begun anew: what is in it stands elsewhere now.
        let (mut at, shed) = match self.sweeping.take() {
            Some(begun) if Arc::ptr_eq(&begun.shard, &shard) => (begun.at, begun.shed),
            _ => (0, if self.shedding { first_eighth::<K>(&shard) } else { 0 }),
        };
        let mut work = SWEPT_MAX;
        while at < shard.slots::<K>() {
            let Some(left) = work.checked_sub(1) else {
                self.sweeping = Some(Sweeping { shard, at, shed });
                return false;
            };
            work = left;
            let slot = at;
            at += 1;
            let Some((entry, key, reference)) = shard.read::<K>(slot) else { continue };
            // Of those that expire at that very time, which may be all, an eighth goes too: others each time, for new ones
            // come into the slots that become free.
            let is_its_turn = (slot as u64 + self.counts.collections).is_multiple_of(8);
            let is_shed = entry.expiry < shed || entry.expiry == shed && is_its_turn;
            if entry.state == State::Name && is_shed {
                self.evict::<K>(index, slot);
                continue;
            }
            if !entry.is_kept(now, self.root.stale) {
                self.counts.expired += 1;
                self.take_out::<K>(index, slot);
            } else if self.collecting && entry.state == State::Name && self.names.is_old(reference) {
                work = work.saturating_sub(MOVED);
                let read = names::read(&self.root.segments, reference, octets(key.address()), &mut name);
                match read.ok().and_then(|()| self.intern(key.address(), &name)) {
                    Some(reference) => shard.write(slot, key, &entry, reference),
                    None => self.evict::<K>(index, slot),
                }
            }
        }
        true
    }

    /// Ends the collection that went over all, and begins one where much of the names is not in use any more.
    fn turn(&mut self) {
        if self.collecting {
            self.names.end_collection(&mut self.root.segments);
            self.collecting = false;
            self.counts.collections += 1;
            self.publish();
        }
        self.names.release(&self.root.segments);
        // Before there is no room for a name that was just learned, those that expire first make some.
        // Of what a snapshot has brought, the first collection shows how much is in use: names may stand there twice.
        self.shedding = self.dropped < usize::MAX && self.is_nearly_full();
        if self.shedding || self.dropped > (self.len() / 2).max(DROPPED_MIN) {
            self.names.begin_collection();
            (self.collecting, self.dropped) = (true, 0);
        }
    }
}

impl Used {
    fn of<K: Key>(shards: &[Arc<Shard>]) -> Used {
        let count = |shard: &Arc<Shard>, is: fn(u64) -> bool| {
            let words = shard.words.iter().step_by(K::WORDS);
            words.filter(|word| is(word.load(Ordering::Relaxed))).count() as u32
        };
        let counts = |is| shards.iter().map(|shard| count(shard, is)).collect();
        Used { live: counts(|word| entry::unpack(word).is_some()), taken: counts(|word| word != 0) }
    }
}

/// When the eighth of a shard's names has expired that does so first, as far as some thousand of them show it.
fn first_eighth<K: Key>(shard: &Shard) -> u32 {
    let step = (shard.slots::<K>() / SAMPLE).max(1);
    let entries = (0..shard.slots::<K>()).step_by(step).filter_map(|at| shard.read::<K>(at));
    let mut expiries: Vec<u32> =
        entries.filter(|(entry, ..)| entry.state == State::Name).map(|(entry, ..)| entry.expiry).collect();
    let eighth = expiries.len() / 8;
    if expiries.is_empty() { 0 } else { *expiries.select_nth_unstable(eighth).1 }
}
