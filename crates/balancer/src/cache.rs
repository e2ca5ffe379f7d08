//! Answers of back ends that are kept, and given again as long as they are fresh; later, too, where no back end answers.
//! Failures are kept for a moment, so that what nobody can answer is not asked for by all at once (RFC 9520); and who asks
//! shortly before an answer's time is over is put to a back end, one of many, so that not all are when it is.
//!
//! ```text
//! a shard:  octets   |  ... newer |<head      tail>| oldest, older, ...  |   entries one behind the other, in a ring
//!           buckets  [position and tag; eight of them], found by a hash of the key
//! ```
//! New entries are written over the oldest ones, and a place in a bucket counts as long as what it leads to was not written
//! over: nothing is ever taken out. All room is set aside at the beginning. Nobody waits for a shard: whoever finds it taken
//! goes on as if it were empty.

use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use dns::edns::ExtendedError;
use dns::name::is_within;
use dns::query::{HEADER, TRUNCATED};
use dns::relay::add_extended_error;
use dns::reuse::{KEY_MAX, change_ttls, name_of, whole_for};

use crate::health::is_failure;
use crate::message::rcode;

/// The least memory of a cache, in octets: of each shard, room for three of the longest entries.
pub const MEMORY_MIN: u64 = 1 << 20;

/// The most memory of a cache, in octets.
pub const MEMORY_MAX: u64 = 1 << 40;

/// The longest answer that is kept, in octets: longer ones are few, and each would take the place of dozens.
pub const ANSWER_MAX: usize = 4_096;

/// The most octets of an answer that is found: that it is stale, or a failure that is kept, is added to it.
pub const FOUND_MAX: usize = ANSWER_MAX + 6;

/// The TTL of what is no longer fresh, in seconds (RFC 8767 §4).
const STALE_TTL: u32 = 30;

/// The last part of an answer's time, in which it is asked for anew by who asks first: a tenth.
const LAST_PART: u32 = 10;

/// For how long who asks anew is waited for, in seconds, before somebody else does: as long as resolvers take for an answer,
/// if there is one.
const ANEW_S: u32 = 5;

/// So many parts have locks of their own, so that threads seldom meet.
const SHARDS: usize = 64;

/// Places in a bucket: a line of the processor's cache.
const WAYS: usize = 8;

/// The octets of a shard's ring for each place in a bucket: less than the shortest entries, so that few buckets are full.
const OCTETS_A_PLACE: usize = 64;

/// Entries begin at multiples of so many octets.
const UNIT: usize = 8;

/// How many bits of a place in a bucket are of the key's hash; the others are of the position, in units: they suffice for 2^51
/// octets, as much as ten years bring at 7 MB/s to each shard.
const TAG_BITS: u32 = 16;

/// An entry's fields before its key and its answer: when it was kept, for how long it is fresh, until when nobody need be asked
/// anew, and how long both are.
const FIELDS: usize = 16;

/// Which answers are kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caching {
    /// How much they may take, in octets, from [`MEMORY_MIN`] to [`MEMORY_MAX`].
    pub memory: u64,
    /// How long one is fresh at most.
    pub fresh_max: Duration,
    /// For how long one is given that is fresh no more, where no back end answers.
    pub stale_max: Duration,
    /// For how long a failure is given again, or what is stale in its place, before a back end is asked anew.
    pub failures_for: Duration,
}

/// Answers that are kept.
#[derive(Debug)]
pub struct Cache {
    shards: Box<[Mutex<Shard>]>,
    hasher: foldhash::fast::FixedState,
    /// As in [`Caching`], in seconds.
    fresh_max: u32,
    stale_max: u32,
    failures_for: u32,
    busy: AtomicU64,
    too_long: AtomicU64,
}

/// What an answer is that is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// A back end's, with its age taken off.
    Fresh,
    /// One that says that the back end failed, a moment ago.
    Failure,
    /// One that is not fresh any more, in the place of a failure.
    Stale,
}

/// Makes a key, if it is one, that of a question to another pool of back ends: the same question may be answered otherwise
/// there.
#[inline]
pub fn in_pool(key: &mut Vec<u8>, pool: usize) {
    if !key.is_empty() && pool > 0 {
        key.push(pool as u8);
    }
}

/// A query that may have its answer from the cache.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// What its answer depends on, as [`dns::reuse::key`] tells.
    pub key: &'a [u8],
    /// The message as the client sent it.
    pub message: &'a [u8],
    /// Where its question ends.
    pub question_end: usize,
    /// How long its answer may be, in octets.
    pub length_max: usize,
}

/// What a cache has done and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheNumbers {
    /// Answers that it holds, fresh or not.
    pub entries: u64,
    /// Answers that it was given to keep.
    pub kept: u64,
    /// Those of them that gave way to others while they were fresh.
    pub pushed_out: u64,
    /// Answers that were too long to be kept.
    pub too_long: u64,
    /// Times that somebody found what they needed in use.
    pub busy: u64,
}

impl Cache {
    /// An empty cache; the seed is one that nobody can foresee.
    pub fn new(caching: &Caching, seed: u64) -> Cache {
        let Caching { memory, fresh_max, stale_max, failures_for } = *caching;
        let [fresh_max, stale_max, failures_for] = [fresh_max, stale_max, failures_for]
            .map(|time| u32::try_from(time.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX));
        let shard = usize::try_from(memory.clamp(MEMORY_MIN, MEMORY_MAX)).unwrap_or(usize::MAX) / SHARDS;
        Cache {
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::new(shard))).collect(),
            hasher: foldhash::fast::FixedState::with_seed(seed),
            fresh_max,
            stale_max,
            failures_for,
            busy: AtomicU64::new(0),
            too_long: AtomicU64::new(0),
        }
    }

    /// Writes the answer to a query to the front of `out`, if one is kept that fits and for which no back end need be asked;
    /// returns its length, and what it is. What is fresh has TTLs that are less by its age. A failure says that it is kept,
    /// where it has an OPT record (RFC 8914 §4.14). Of those who ask in the last tenth of an answer's time, the first is to
    /// ask a back end, and for five seconds all others have what is kept.
    ///
    /// # Panics
    /// Where the query is shorter than its question's end.
    pub fn find(&self, asked: Asked<'_>, now_ns: u64, out: &mut [u8]) -> Option<(usize, Kept)> {
        self.found(asked, now_ns, false, out)
    }

    /// The same for a query that no back end answers, which gets no failure that is kept. What is not fresh any more is to be
    /// kept for 30 seconds at most, and says that it is stale where it has an OPT record (RFC 8767 §4, RFC 8914 §4.4). For a
    /// while it is what is found for such queries (RFC 8767 §5).
    ///
    /// # Panics
    /// Where the query is shorter than its question's end.
    pub fn find_after_failure(&self, asked: Asked<'_>, now_ns: u64, out: &mut [u8]) -> Option<(usize, Kept)> {
        self.found(asked, now_ns, true, out)
    }

    /// Keeps the answer to a query whose question ends at `question_end`, if it may be kept. A failure takes the place of no
    /// answer that can still be given.
    ///
    /// # Panics
    /// Where the answer is shorter than a header.
    pub fn keep(&self, key: &[u8], answer: &[u8], question_end: usize, now_ns: u64) {
        let is_failed = is_failure(rcode(answer).to_int());
        let fresh = match is_failed {
            true if answer[2] & TRUNCATED == 0 => self.failures_for,
            true => 0,
            false => whole_for(answer, question_end).min(self.fresh_max),
        };
        if fresh == 0 || key.is_empty() {
            return;
        }
        if answer.len() > ANSWER_MAX || key.len() > KEY_MAX {
            self.too_long.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let (hash, now) = (self.hash(key), seconds(now_ns));
        if let Some(mut shard) = self.shard(hash)
            && !(is_failed && shard.find(hash, key).is_some_and(|entry| self.is_answer(&shard, &entry, now)))
        {
            shard.keep(hash, key, answer, now, fresh);
        }
    }

    /// Forgets all answers, or those about one name, which is folded and in wire form, and what is below it; returns how many
    /// there were.
    pub fn forget(&self, at_and_below: Option<&[u8]>) -> u64 {
        let forget = |shard: &Mutex<Shard>| lock(shard).forget(at_and_below);
        self.shards.iter().map(forget).sum()
    }

    /// What it has done, and what it holds.
    pub fn numbers(&self) -> CacheNumbers {
        let [busy, too_long] = [&self.busy, &self.too_long].map(|count| count.load(Ordering::Relaxed));
        self.shards.iter().fold(CacheNumbers { busy, too_long, ..CacheNumbers::default() }, |sum, shard| {
            let shard = lock(shard);
            CacheNumbers {
                entries: sum.entries + shard.entries,
                kept: sum.kept + shard.kept,
                pushed_out: sum.pushed_out + shard.pushed_out,
                ..sum
            }
        })
    }

    fn found(
        &self,
        asked: Asked<'_>,
        now_ns: u64,
        has_failed: bool,
        out: &mut [u8],
    ) -> Option<(usize, Kept)> {
        let (length, kept, age) = self.copy(asked, seconds(now_ns), has_failed, out)?;
        let (answer, question_end) = (&mut out[..length], asked.question_end);
        match kept {
            Kept::Stale => change_ttls(answer, question_end, |ttl| ttl.min(STALE_TTL)),
            Kept::Fresh | Kept::Failure => change_ttls(answer, question_end, |ttl| ttl.saturating_sub(age)),
        }
        let why = match kept {
            Kept::Fresh => return Some((length, kept)),
            Kept::Failure => ExtendedError::CachedError,
            Kept::Stale => ExtendedError::StaleAnswer,
        };
        let room = out.len().min(asked.length_max);
        Some((add_extended_error(&mut out[..room], length, question_end, why), kept))
    }

    /// Copies an answer; returns its length, what it is and its age. After a failure it need not be fresh, and is no failure.
    fn copy(
        &self,
        asked: Asked<'_>,
        now: u32,
        has_failed: bool,
        out: &mut [u8],
    ) -> Option<(usize, Kept, u32)> {
        let hash = self.hash(asked.key);
        let (length, kept, age) = {
            let mut shard = self.shard(hash)?;
            let entry = shard.find(hash, asked.key)?;
            let is_settled = now < entry.settled_until_s;
            let kept = match (shard.is_failure(&entry), entry.is_fresh(now)) {
                (true, true) if !has_failed => Kept::Failure,
                (true, _) => return None,
                (false, true) => Kept::Fresh,
                (false, false) if (has_failed || is_settled) && self.is_answer(&shard, &entry, now) => {
                    Kept::Stale
                }
                (false, false) => return None,
            };
            let answer = &shard.octets[entry.answer.clone()];
            if answer.len() > asked.length_max.min(out.len()) {
                return None;
            }
            if has_failed {
                shard.settle(&entry, now.saturating_add(self.failures_for));
            } else if kept == Kept::Fresh && !is_settled && entry.is_in_last_part(now) {
                shard.settle(&entry, now.saturating_add(ANEW_S));
                return None;
            }
            out[..entry.answer.len()].copy_from_slice(&shard.octets[entry.answer.clone()]);
            (entry.answer.len(), kept, now.saturating_sub(entry.kept_s))
        };
        // The id, and the name in the case in which it was asked for: the key has one of the same length.
        let question = HEADER..asked.question_end;
        out[..2].copy_from_slice(&asked.message[..2]);
        out[question.clone()].copy_from_slice(&asked.message[question]);
        Some((length, kept, age))
    }

    /// Whether an entry is no failure, and may be given at least where no back end answers.
    fn is_answer(&self, shard: &Shard, entry: &Entry, now: u32) -> bool {
        !shard.is_failure(entry)
            && now.saturating_sub(entry.kept_s) < entry.fresh_s.saturating_add(self.stale_max)
    }

    fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        hasher.finish()
    }

    /// The shard of this hash, where nobody has it; otherwise that is counted.
    fn shard(&self, hash: u64) -> Option<MutexGuard<'_, Shard>> {
        match self.shards[(hash >> 58) as usize % self.shards.len()].try_lock() {
            Ok(shard) => Some(shard),
            Err(TryLockError::Poisoned(shard)) => Some(shard.into_inner()),
            Err(TryLockError::WouldBlock) => {
                self.busy.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn seconds(ns: u64) -> u32 {
    u32::try_from(ns / 1_000_000_000).unwrap_or(u32::MAX)
}

/// A part of the cache.
///
/// Positions count all octets that were ever written, those that were left out at the ring's end too: what was written at a
/// position is there until as much was written behind it as the ring has room for.
#[repr(align(64))]
struct Shard {
    octets: Box<[u8]>,
    buckets: Box<[[u64; WAYS]]>,
    /// Where the next entry is written.
    head: u64,
    /// Where the oldest entry begins that is whole.
    tail: u64,
    entries: u64,
    kept: u64,
    pushed_out: u64,
}

/// An entry as it is read.
#[derive(Debug)]
struct Entry {
    at: u64,
    kept_s: u32,
    /// 0 where it is forgotten, or was kept anew elsewhere.
    fresh_s: u32,
    /// Until when it is what there is, fresh or not: back ends have just failed, or one is asked.
    settled_until_s: u32,
    key: Range<usize>,
    answer: Range<usize>,
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard").field("octets", &self.octets.len()).field("entries", &self.entries).finish()
    }
}

impl Shard {
    /// A shard that takes so many octets.
    fn new(memory: usize) -> Shard {
        let bucket = OCTETS_A_PLACE * WAYS;
        let buckets = (memory / (bucket + size_of::<[u64; WAYS]>())).max(1);
        let ring = buckets * bucket;
        // A position of 0 is none.
        let begin = ring as u64;
        Shard {
            octets: vec![0; ring].into(),
            buckets: vec![[0; WAYS]; buckets].into(),
            head: begin,
            tail: begin,
            entries: 0,
            kept: 0,
            pushed_out: 0,
        }
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<Entry> {
        let bucket = &self.buckets[self.bucket(hash)];
        let mut places =
            bucket.iter().filter(|place| tag(**place) == tag(hash)).map(|place| position(*place));
        let entry =
            places.find_map(|at| self.entry(at).filter(|entry| self.octets[entry.key.clone()] == *key));
        entry.filter(|entry| entry.fresh_s > 0)
    }

    fn keep(&mut self, hash: u64, key: &[u8], answer: &[u8], now: u32, fresh_s: u32) {
        let size = (FIELDS + key.len() + answer.len()).next_multiple_of(UNIT);
        if size > self.octets.len() {
            return;
        }
        let bucket = self.bucket(hash);
        let way = self.way(bucket, hash, key);
        self.supersede(position(self.buckets[bucket][way]), key, now);
        let left = self.octets.len() - self.place(self.head);
        if left < size {
            // An entry of no key says so where there is room for one: the next one is at the beginning.
            self.make_room(left, now);
            let place = self.place(self.head);
            self.octets[place..place + left.min(FIELDS)].fill(0);
            self.head += left as u64;
        }
        self.make_room(size, now);
        let place = self.place(self.head);
        let [key_length, answer_length] = [key, answer].map(|octets| (octets.len() as u16).to_le_bytes());
        let fields = [now, fresh_s, 0].map(u32::to_le_bytes);
        let parts = [fields.as_flattened(), &key_length, &answer_length, key, answer];
        let mut at = place;
        for part in parts {
            self.octets[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        self.buckets[bucket][way] = ((self.head / UNIT as u64) << TAG_BITS) | tag(hash);
        self.head += size as u64;
        self.entries += 1;
        self.kept += 1;
    }

    fn forget(&mut self, at_and_below: Option<&[u8]>) -> u64 {
        let (mut at, mut forgotten) = (self.tail, 0);
        while at < self.head {
            let Some(entry) = self.entry(at) else {
                at = self.next_round(at);
                continue;
            };
            let is_meant =
                at_and_below.is_none_or(|name| is_within(name_of(&self.octets[entry.key.clone()]), name));
            if entry.fresh_s > 0 && is_meant {
                self.outdate(&entry);
                forgotten += 1;
            }
            at = after(at, &entry);
        }
        forgotten
    }

    fn bucket(&self, hash: u64) -> usize {
        // The upper bits choose the shard, the lowest are the tag.
        (hash >> TAG_BITS) as usize % self.buckets.len()
    }

    /// Where in a bucket an entry of this key is, or is to be: in the place of who is there no more, or else of the oldest.
    fn way(&self, bucket: usize, hash: u64, key: &[u8]) -> usize {
        let places = &self.buckets[bucket];
        let is_its = |place: u64| {
            tag(place) == tag(hash)
                && self.entry(position(place)).is_some_and(|entry| self.octets[entry.key.clone()] == *key)
        };
        let its = places.iter().position(|place| is_its(*place));
        its.unwrap_or_else(|| (0..WAYS).min_by_key(|way| position(places[*way])).unwrap_or(0))
    }

    /// What stands at this position is found no more: an entry of the same key, or one that gives way to it.
    fn supersede(&mut self, at: u64, key: &[u8], now: u32) {
        let Some(entry) = self.entry(at) else { return };
        if self.octets[entry.key.clone()] != *key {
            self.pushed_out += u64::from(entry.is_fresh(now));
        }
        self.outdate(&entry);
    }

    /// Lets the oldest entries go until so many octets behind the head are nobody's.
    fn make_room(&mut self, octets: usize, now: u32) {
        let end = self.head + octets as u64;
        while self.tail + (self.octets.len() as u64) < end {
            let at = self.tail;
            let Some(entry) = self.entry(at) else {
                self.tail = self.next_round(at);
                continue;
            };
            self.entries -= 1;
            self.pushed_out += u64::from(entry.is_fresh(now));
            self.tail = after(at, &entry);
        }
    }

    /// The entry at a position, where one is that was not written over.
    fn entry(&self, at: u64) -> Option<Entry> {
        if at < self.tail || at >= self.head {
            return None;
        }
        let place = self.place(at);
        let fields = self.octets.get(place..place + FIELDS)?;
        let long =
            |at: usize| u32::from_le_bytes([fields[at], fields[at + 1], fields[at + 2], fields[at + 3]]);
        let short = |at: usize| usize::from(u16::from_le_bytes([fields[at], fields[at + 1]]));
        let key = place + FIELDS..place + FIELDS + short(12);
        let answer = key.end..key.end + short(14);
        let entry = Entry { at, kept_s: long(0), fresh_s: long(4), settled_until_s: long(8), key, answer };
        (!entry.key.is_empty()).then_some(entry)
    }

    fn is_failure(&self, entry: &Entry) -> bool {
        is_failure(rcode(&self.octets[entry.answer.clone()]).to_int())
    }

    /// What an entry says holds no more.
    fn outdate(&mut self, entry: &Entry) {
        self.set(entry, 4, 0);
    }

    /// Until then it is what there is.
    fn settle(&mut self, entry: &Entry, until_s: u32) {
        self.set(entry, 8, until_s);
    }

    fn set(&mut self, entry: &Entry, field: usize, seconds: u32) {
        let place = self.place(entry.at) + field;
        self.octets[place..place + 4].copy_from_slice(&seconds.to_le_bytes());
    }

    fn place(&self, at: u64) -> usize {
        (at % self.octets.len() as u64) as usize
    }

    /// Where the ring begins again behind a position.
    fn next_round(&self, at: u64) -> u64 {
        let ring = self.octets.len() as u64;
        (at / ring + 1) * ring
    }
}

impl Entry {
    fn is_fresh(&self, now: u32) -> bool {
        now.saturating_sub(self.kept_s) < self.fresh_s
    }

    /// Whether it is in the last part of its time; one of a few seconds has none.
    fn is_in_last_part(&self, now: u32) -> bool {
        let left = self.fresh_s.saturating_sub(now.saturating_sub(self.kept_s));
        left <= self.fresh_s / LAST_PART
    }
}

/// Where the next entry begins behind one.
fn after(at: u64, entry: &Entry) -> u64 {
    at + (FIELDS + entry.key.len() + entry.answer.len()).next_multiple_of(UNIT) as u64
}

fn tag(of: u64) -> u64 {
    of & ((1 << TAG_BITS) - 1)
}

fn position(place: u64) -> u64 {
    (place >> TAG_BITS) * UNIT as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use dns::{Folded, Query};
    use proptest::prelude::*;
    use std::collections::HashMap;

    const SECOND: u64 = 1_000_000_000;

    fn cache(memory: u64, stale_max: Duration) -> Cache {
        let (fresh_max, failures_for) = (Duration::from_secs(1_000), Duration::from_secs(5));
        Cache::new(&Caching { memory, fresh_max, stale_max, failures_for }, 7)
    }

    /// A query for the address of `name.example`, with EDNS.
    fn query(name: &str) -> (Vec<u8>, usize) {
        let head = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\x01";
        let question = [&[name.len() as u8][..], name.as_bytes(), b"\x07example\0\0\x01\0\x01"].concat();
        let end = HEADER + question.len();
        ([&head[..], &question, b"\0\0\x29\x04\xd0\0\0\0\0\0\0"].concat(), end)
    }

    fn key(query: &[u8]) -> Vec<u8> {
        let (mut name, mut key) = (Folded::root(), Vec::new());
        let query_read = Query::read(query, &mut name).expect("a query");
        assert!(dns::reuse::key(&query_read, query, None, &mut key));
        key
    }

    /// An answer to it: an address that ends in this octet, and so many octets of another record.
    fn answer(query: &[u8], end: usize, ttl: u32, last: u8, more: usize) -> Vec<u8> {
        let mut head = query[..end].to_vec();
        (head[2], head[3], head[7], head[11]) = (0x81, 0x80, 2, 1);
        let ttl = ttl.to_be_bytes();
        let address = [&b"\xc0\x0c\0\x01\0\x01"[..], &ttl, &[0, 4, 192, 0, 2, last]].concat();
        let text =
            [&b"\xc0\x0c\0\x10\0\x01"[..], &ttl, &(more as u16).to_be_bytes(), &vec![7; more]].concat();
        [head, address, text, query[end..].to_vec()].concat()
    }

    /// What is found for a query, over UDP.
    fn found(cache: &Cache, query: &[u8], end: usize, now_ns: u64, is_stale: bool) -> Option<Vec<u8>> {
        let mut out = vec![0; 1_232];
        let key = key(query);
        let asked = Asked { key: &key, message: query, question_end: end, length_max: 1_232 };
        let found = if is_stale {
            cache.find_after_failure(asked, now_ns, &mut out)
        } else {
            cache.find(asked, now_ns, &mut out)
        };
        out.truncate(found?.0);
        Some(out)
    }

    /// What is found for a query over UDP that is not put to a back end yet.
    fn kept(cache: &Cache, query: &[u8], end: usize, seconds: u64) -> Option<Kept> {
        let key = key(query);
        let asked = Asked { key: &key, message: query, question_end: end, length_max: 1_232 };
        cache.find(asked, seconds * SECOND, &mut [0; 1_232]).map(|(_, kept)| kept)
    }

    /// A back end's SERVFAIL.
    fn failure(query: &[u8]) -> Vec<u8> {
        let mut failure = query.to_vec();
        (failure[2], failure[3]) = (0x81, 0x82);
        failure
    }

    #[test]
    fn an_answer_is_given_again_with_its_age_and_to_whom_it_is_for() {
        let cache = cache(MEMORY_MIN, Duration::ZERO);
        let (asked, end) = query("www");
        assert_eq!(found(&cache, &asked, end, 0, false), None);
        cache.keep(&key(&asked), &answer(&asked, end, 60, 1, 0), end, 5 * SECOND);
        let (mut other, _) = query("wWw");
        other[..2].copy_from_slice(&[9, 9]);
        for (seconds, expected) in [(5, Some(60)), (58, Some(7)), (59, None), (63, Some(2)), (65, None)] {
            let expected = expected.map(|ttl| {
                let mut answer = answer(&other, end, ttl, 1, 0);
                answer[..2].copy_from_slice(&[9, 9]);
                answer
            });
            assert_eq!(found(&cache, &other, end, seconds * SECOND, false), expected, "{seconds}");
        }
        assert_eq!(found(&cache, &asked, end, 65 * SECOND, true), None, "nothing is given that is stale");
        assert_eq!(found(&cache, &query("ww").0, end - 1, 5 * SECOND, false), None);
        let expected = CacheNumbers { entries: 1, kept: 1, ..CacheNumbers::default() };
        assert_eq!(cache.numbers(), expected);
    }

    #[test]
    fn what_is_stale_says_so() {
        let cache = cache(MEMORY_MIN, Duration::from_secs(100));
        let (asked, end) = query("www");
        cache.keep(&key(&asked), &answer(&asked, end, 60, 1, 0), end, 0);
        assert_eq!(found(&cache, &asked, end, 60 * SECOND, false), None);
        assert_eq!(
            found(&cache, &asked, end, 10 * SECOND, true),
            Some(answer(&asked, end, 50, 1, 0)),
            "it is fresh"
        );
        for (seconds, is_there) in [(60, true), (159, true), (160, false)] {
            let mut expected = answer(&asked, end, STALE_TTL, 1, 0);
            let length = expected.len();
            expected[length - 1] = 6;
            expected.extend(b"\0\x0f\0\x02\0\x03");
            let told = found(&cache, &asked, end, seconds * SECOND, true);
            assert_eq!(told, is_there.then_some(expected), "{seconds}");
        }
        assert_eq!(cache.forget(None), 1);
        assert_eq!(found(&cache, &asked, end, 60 * SECOND, true), None, "it is forgotten");
    }

    #[test]
    fn a_failure_is_given_for_a_moment_and_says_that_it_is_kept() {
        let cache = cache(MEMORY_MIN, Duration::from_secs(100));
        let (asked, end) = query("www");
        let key = key(&asked);
        let mut truncated = failure(&asked);
        truncated[2] |= TRUNCATED;
        cache.keep(&key, &truncated, end, 0);
        assert_eq!(kept(&cache, &asked, end, 0), None, "it may be answered over TCP");
        cache.keep(&key, &failure(&asked), end, 0);
        let mut expected = failure(&asked);
        let length = expected.len();
        expected[length - 1] = 6;
        expected.extend(b"\0\x0f\0\x02\0\x0d");
        assert_eq!(found(&cache, &asked, end, 4 * SECOND, false), Some(expected));
        assert_eq!(found(&cache, &asked, end, 4 * SECOND, true), None, "it is in nobody's place");
        assert_eq!([4, 5].map(|at| kept(&cache, &asked, end, at)), [Some(Kept::Failure), None]);
        cache.keep(&key, &answer(&asked, end, 60, 1, 0), end, 4 * SECOND);
        assert_eq!(kept(&cache, &asked, end, 4), Some(Kept::Fresh), "an answer takes its place");
    }

    #[test]
    fn a_failure_takes_the_place_of_no_answer_that_may_be_given() {
        let (asked, end) = query("www");
        let key = key(&asked);
        for (stale, at, expected) in [
            (0, 50, Some(Kept::Fresh)),
            (0, 60, Some(Kept::Failure)),
            (100, 60, None),
            (100, 159, None),
            (100, 160, Some(Kept::Failure)),
        ] {
            let cache = cache(MEMORY_MIN, Duration::from_secs(stale));
            cache.keep(&key, &answer(&asked, end, 60, 1, 0), end, 0);
            cache.keep(&key, &failure(&asked), end, at * SECOND);
            assert_eq!(kept(&cache, &asked, end, at), expected, "{stale} {at}");
        }
    }

    #[test]
    fn what_is_stale_is_what_there_is_until_back_ends_are_asked_anew() {
        let cache = cache(MEMORY_MIN, Duration::from_secs(100));
        let (asked, end) = query("www");
        cache.keep(&key(&asked), &answer(&asked, end, 60, 1, 0), end, 0);
        assert_eq!(kept(&cache, &asked, end, 70), None);
        assert!(found(&cache, &asked, end, 70 * SECOND, true).is_some());
        assert_eq!([74, 75].map(|at| kept(&cache, &asked, end, at)), [Some(Kept::Stale), None]);
        assert!(found(&cache, &asked, end, 158 * SECOND, true).is_some());
        assert_eq!([159, 160].map(|at| kept(&cache, &asked, end, at)), [Some(Kept::Stale), None]);
        cache.keep(&key(&asked), &answer(&asked, end, 60, 2, 0), end, 161 * SECOND);
        assert_eq!(kept(&cache, &asked, end, 161), Some(Kept::Fresh));
    }

    #[test]
    fn who_asks_first_in_the_last_tenth_asks_a_back_end() {
        let (asked, end) = query("www");
        let answer = |ttl: u32, last: u8| answer(&asked, end, ttl, last, 0);
        let cache = cache(MEMORY_MIN, Duration::ZERO);
        cache.keep(&key(&asked), &answer(100, 1), end, 0);
        let fresh = Some(Kept::Fresh);
        let told = [89, 90, 90, 94, 95, 95, 99].map(|at| kept(&cache, &asked, end, at));
        assert_eq!(told, [fresh, None, fresh, fresh, None, fresh, fresh]);
        // It fails, and what is kept is better than that.
        assert_eq!(found(&cache, &asked, end, 99 * SECOND, true), Some(answer(1, 1)));
        assert_eq!(kept(&cache, &asked, end, 100), None);
        cache.keep(&key(&asked), &answer(100, 2), end, 100 * SECOND);
        assert_eq!([100, 189, 190].map(|at| kept(&cache, &asked, end, at)), [fresh, fresh, None]);
        assert_eq!(found(&cache, &asked, end, 190 * SECOND, false), Some(answer(10, 2)));
        // Of a few seconds no part is the last: it would be asked for all the time.
        cache.keep(&key(&asked), &answer(9, 3), end, 200 * SECOND);
        assert_eq!([200, 208, 209].map(|at| kept(&cache, &asked, end, at)), [fresh, fresh, None]);
        // A stale answer may be given while a back end is asked.
        let cache = self::cache(MEMORY_MIN, Duration::from_secs(100));
        cache.keep(&key(&asked), &answer(100, 1), end, 0);
        let told = [99, 99, 103, 104].map(|at| kept(&cache, &asked, end, at));
        assert_eq!(told, [None, fresh, Some(Kept::Stale), None]);
    }

    #[test]
    fn what_is_too_long_is_kept_for_nobody_or_for_who_takes_it() {
        let cache = cache(MEMORY_MIN, Duration::ZERO);
        let (asked, end) = query("www");
        cache.keep(&key(&asked), &answer(&asked, end, 60, 1, 1_400), end, 0);
        assert_eq!(found(&cache, &asked, end, 0, false), None, "not over UDP");
        let key = key(&asked);
        let over_tcp = Asked { key: &key, message: &asked, question_end: end, length_max: 65_535 };
        let mut out = vec![0; 65_535];
        let (length, _) = cache.find(over_tcp, 0, &mut out).expect("over TCP");
        assert_eq!(out[..length], answer(&asked, end, 60, 1, 1_400));
        cache.keep(&key, &answer(&asked, end, 60, 2, ANSWER_MAX), end, 0);
        assert_eq!(cache.numbers().too_long, 1);
    }

    #[test]
    fn names_are_forgotten_with_all_below_them() {
        let cache = cache(MEMORY_MIN, Duration::ZERO);
        for name in ["a", "b", "c"] {
            let (asked, end) = query(name);
            cache.keep(&key(&asked), &answer(&asked, end, 60, 1, 0), end, 0);
        }
        assert_eq!(cache.forget(Some(b"\x01a\x07example\0")), 1);
        assert_eq!(cache.forget(Some(b"\x01a\x07example\0")), 0, "there is none any more");
        let is_there = ["a", "b"].map(|name| {
            let (asked, end) = query(name);
            found(&cache, &asked, end, 0, false).is_some()
        });
        assert_eq!(is_there, [false, true]);
        assert_eq!(cache.forget(Some(b"\x07example\0")), 2);
    }

    #[test]
    fn who_finds_a_shard_taken_goes_on() {
        let cache = cache(MEMORY_MIN, Duration::ZERO);
        let (asked, end) = query("www");
        cache.keep(&key(&asked), &answer(&asked, end, 60, 1, 0), end, 0);
        let taken: Vec<_> = cache.shards.iter().map(lock).collect();
        assert_eq!(found(&cache, &asked, end, 0, false), None);
        cache.keep(&key(&asked), &answer(&asked, end, 60, 2, 0), end, 0);
        drop(taken);
        assert_eq!(found(&cache, &asked, end, 0, false), Some(answer(&asked, end, 60, 1, 0)));
        assert_eq!((cache.numbers().busy, cache.numbers().kept), (2, 1));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Keep { name: u16, ttl: u32, last: u8, more: usize },
        Find(u16),
        Wait(u32),
        Forget(Option<u16>),
    }

    fn step() -> impl Strategy<Value = Step> {
        let name = 0u16..300;
        prop_oneof![
            8 => (name.clone(), 1u32..200, any::<u8>(), 0usize..800)
                .prop_map(|(name, ttl, last, more)| Step::Keep { name, ttl, last, more }),
            8 => name.clone().prop_map(Step::Find),
            1 => (0u32..50).prop_map(Step::Wait),
            1 => proptest::option::weighted(0.9, name).prop_map(Step::Forget),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// One small shard, so that its ring goes round many times, against a map that loses nothing.
        #[test]
        fn what_is_found_was_kept_last(steps in proptest::collection::vec(step(), 1..1_500)) {
            let mut cache = cache(MEMORY_MIN, Duration::ZERO);
            cache.shards = Box::new([Mutex::new(Shard::new(16 << 10))]);
            let mut model: HashMap<u16, (u32, u32, u8, usize)> = HashMap::new();
            let mut now: u32 = 0;
            for step in steps {
                let at = u64::from(now) * SECOND;
                let named = |name: u16| query(&format!("n{name}"));
                match step {
                    Step::Keep { name, ttl, last, more } => {
                        let (asked, end) = named(name);
                        cache.keep(&key(&asked), &answer(&asked, end, ttl, last, more), end, at);
                        model.insert(name, (now, ttl, last, more));
                        let told = found(&cache, &asked, end, at, false);
                        prop_assert_eq!(told, Some(answer(&asked, end, ttl, last, more)), "what came last is there");
                    }
                    Step::Find(name) => {
                        let (asked, end) = named(name);
                        if let Some(told) = found(&cache, &asked, end, at, false) {
                            let (kept, ttl, last, more) = model[&name];
                            prop_assert!(now - kept < ttl);
                            prop_assert_eq!(told, answer(&asked, end, ttl - (now - kept), last, more));
                        }
                    }
                    Step::Wait(seconds) => now += seconds,
                    Step::Forget(name) => {
                        let folded = name.map(|name| named(name).0[HEADER..].to_vec());
                        // Up to and with the root's octet.
                        let folded = folded.map(|name| name[..name.len() - 15].to_vec());
                        cache.forget(folded.as_deref());
                        match name {
                            Some(name) => drop(model.remove(&name)),
                            None => model.clear(),
                        }
                    }
                }
                let shard = lock(&cache.shards[0]);
                prop_assert!(shard.head - shard.tail <= shard.octets.len() as u64);
                prop_assert!(shard.entries <= (shard.octets.len() / 64) as u64);
            }
        }
    }
}
