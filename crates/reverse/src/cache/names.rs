//! The names of the cache: each kept once, in segments that only grow.
//!
//! A name is a *head*, its template up to the part that others share, and a *tail*, that part; both are interned.
//! ```text
//! head   length 1 | octets | reference of the tail 4, 0 for none      tail   length 1 | octets
//! reference   segment 16 bits | offset 16 bits; 0 is none
//! ```
//! What was written never changes, so readers need no lock: whoever sees a reference, sees what it refers to. Nothing
//! is freed alone either. From time to time the writer *collects*: it moves every name that is still in use to
//! new segments and lets the old ones go, whose number is used again only once no reader can have them.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use net::mapped::{LARGE_PAGE, Words, fetch};

use super::part::{self, Pieces};
use super::template;
use crate::name::{NameText, SHORT_MAX};

/// The octets of a segment.
pub(super) const SEGMENT: usize = 1 << 16;

/// The most segments: as a reference can name.
pub(super) const SEGMENTS_MAX: usize = 1 << 16;

/// Octets that only grow, as words: the first is the lowest of its word, so that eight are read at once.
pub(super) type Segment = Words;

/// All segments by their number.
pub(super) type Segments = Vec<Option<Segment>>;

/// Reads a name into `name`; an error where the reference is none of these segments.
#[inline]
pub(super) fn read(
    segments: &[Option<Segment>],
    reference: u32,
    octets: Option<[u8; 4]>,
    name: &mut NameText,
) -> Result<(), ()> {
    name.clear();
    let head = Record::at(segments, reference)?;
    let tail = head.tail()?;
    let tail = if tail != 0 { Some(Record::at(segments, tail)?) } else { None };
    name.fill(|name| {
        head.each_eight(|eight, count| template::decode(eight, count, octets, name))?;
        let Some(tail) = tail else { return Ok(()) };
        name.push(b'.')?;
        match tail.short() {
            Some(eights) => name.append_short(eights, tail.length),
            None => tail.each_eight(|eight, count| name.append(eight, count)),
        }
    })
}

/// Has a name's record fetched, so that it is near when the name is read.
#[inline]
pub(super) fn approach(segments: &[Option<Segment>], reference: u32) {
    let Some(segment) = segments.get((reference >> 16) as usize).and_then(Option::as_ref) else { return };
    let (words, at): (&[AtomicU64], _) = (segment, (reference & 0xffff) as usize / 8);
    // Most records end within the second of these words; where it is in the same line, it costs nothing.
    for at in [at, at + NEAR] {
        if let Some(word) = words.get(at) {
            fetch(word);
        }
    }
}

/// Words from the beginning of a record to where most have ended.
const NEAR: usize = 3;

/// The same for the part that it shares with others, once its own is near.
#[inline]
pub(super) fn approach_tail(segments: &[Option<Segment>], reference: u32) {
    match Record::at(segments, reference).and_then(|head| head.tail()) {
        Ok(tail) if tail != 0 => approach(segments, tail),
        _ => {}
    }
}

/// The segments that a name of these is in: of its own part, and of the one that it shares with others.
pub(super) fn segments_of(segments: &[Option<Segment>], reference: u32) -> impl Iterator<Item = usize> {
    let tail = Record::at(segments, reference).and_then(Record::tail).ok().filter(|tail| *tail != 0);
    [Some(reference), tail].into_iter().flatten().map(|reference| (reference >> 16) as usize)
}

/// Whether the segment that a name's reference is to is one of these.
#[inline]
pub(super) fn is_held(segments: &[Option<Segment>], reference: u32) -> bool {
    segments.get((reference >> 16) as usize).is_some_and(Option::is_some)
}

/// A record in a segment.
#[derive(Clone, Copy)]
struct Record<'a> {
    words: &'a [AtomicU64],
    /// Where its octets begin, behind their number.
    begin: usize,
    length: usize,
}

impl Record<'_> {
    #[inline]
    fn at(segments: &[Option<Segment>], reference: u32) -> Result<Record<'_>, ()> {
        let segment = segments.get((reference >> 16) as usize).and_then(Option::as_ref).ok_or(())?;
        let (words, at): (&[AtomicU64], _) = (segment, (reference & 0xffff) as usize);
        let length = (eight(words, at) & 0xff) as usize;
        if at + 1 + length > SEGMENT { Err(()) } else { Ok(Record { words, begin: at + 1, length }) }
    }

    /// The reference behind a head.
    #[inline]
    fn tail(self) -> Result<u32, ()> {
        let at = self.begin + self.length;
        if at + 4 > SEGMENT { Err(()) } else { Ok(eight(self.words, at) as u32) }
    }

    /// All octets of a short record, and others behind them; `None` where it is longer, or ends near its segment's end.
    /// How many count is no decision then, which a processor could not foresee.
    #[inline]
    fn short(self) -> Option<[u64; SHORT_MAX / 8]> {
        let (index, bits) = (self.begin / 8, self.begin % 8 * 8);
        let words = self.words.get(index..=index + SHORT_MAX / 8).filter(|_| self.length <= SHORT_MAX)?;
        let word = |index: usize| words[index].load(Ordering::Relaxed);
        Some(std::array::from_fn(|index| joined(word(index), word(index + 1), bits)))
    }

    /// Gives the octets, eight at a time, and how many of those count.
    #[inline]
    fn each_eight(self, mut each: impl FnMut(u64, usize) -> Result<(), ()>) -> Result<(), ()> {
        let mut at = 0;
        while at < self.length {
            each(eight(self.words, self.begin + at), (self.length - at).min(8))?;
            at += 8;
        }
        Ok(())
    }
}

/// Eight octets from one on; 0 stands for those beyond the end.
#[inline]
fn eight(words: &[AtomicU64], at: usize) -> u64 {
    let word = |index: usize| words.get(index).map_or(0, |word| word.load(Ordering::Relaxed));
    joined(word(at / 8), word(at / 8 + 1), at % 8 * 8)
}

/// The 64 bits that begin at this one of the first word.
#[inline]
fn joined(first: u64, second: u64, bits: usize) -> u64 {
    // In two steps, for there is no shift by all 64.
    first >> bits | second << (63 - bits) << 1
}

/// The bits of the lowest so many octets; of eight at most.
#[inline]
fn lowest(count: usize) -> u64 {
    u64::MAX >> (64 - 8 * count.clamp(1, 8))
}

/// The writer's side: where the next name goes, and which are there already.
#[derive(Debug)]
pub(super) struct Names {
    heads: Index,
    tails: Index,
    /// The key of their hash: names are attackers' data, and who could foresee it would have all of theirs in one place.
    key: RandomState,
    /// The segment that is being filled, and how far it is.
    filling: Option<(u16, usize)>,
    /// What segments are cut from once there are some.
    pieces: Pieces,
    /// Segments that are filled by the current collection or since; the others go when it ends.
    young: Vec<bool>,
    /// How many those are.
    young_held: usize,
    retired: Vec<(u16, Segment)>,
    /// Segments that names are in. Retired ones do not count: they go by themselves, as soon as nobody reads there.
    held: usize,
    /// Segments that names in use may take: half of the numbers, for a collection moves all of them.
    pub(super) most: usize,
    /// Whether there are segments that readers were not given yet.
    pub(super) has_grown: bool,
    template: Vec<u8>,
    record: Vec<u8>,
}

impl Default for Names {
    fn default() -> Names {
        Names {
            heads: Index::default(),
            tails: Index::default(),
            key: RandomState::new(),
            filling: None,
            pieces: Pieces::default(),
            young: Vec::new(),
            young_held: 0,
            retired: Vec::new(),
            held: 0,
            most: SEGMENTS_MAX / 2,
            has_grown: false,
            template: Vec::new(),
            record: Vec::new(),
        }
    }
}

/// What [`Names::intern`] needs more of.
#[derive(Debug)]
pub(super) struct NoRoom;

impl Names {
    /// Finds a name, or keeps it, for which it makes another segment where it may.
    pub(super) fn intern(
        &mut self,
        segments: &mut Segments,
        name: &[u8],
        octets: Option<[u8; 4]>,
        may_grow: bool,
    ) -> Result<u32, NoRoom> {
        let mut whole = std::mem::take(&mut self.template);
        template::encode(name, octets, &mut whole);
        let shared = template::shared_from(&whole);
        let head = shared.map_or(&whole[..], |at| &whole[..at - 1]);
        let interned = (|| {
            let tail = match shared {
                Some(at) => self.keep(segments, &whole[at..], None, may_grow)?,
                None => 0,
            };
            self.keep(segments, head, Some(tail), may_grow)
        })();
        self.template = whole;
        interned
    }

    fn keep(
        &mut self,
        segments: &mut Segments,
        octets: &[u8],
        tail: Option<u32>,
        may_grow: bool,
    ) -> Result<u32, NoRoom> {
        let mut bytes = std::mem::take(&mut self.record);
        bytes.clear();
        bytes.push(octets.len() as u8);
        bytes.extend_from_slice(octets);
        bytes.extend(tail.into_iter().flat_map(u32::to_le_bytes));
        let hash = hash(&self.key, eights(&bytes));
        let index = if tail.is_some() { &mut self.heads } else { &mut self.tails };
        let found = index.find(hash, |reference| is(segments, reference, &bytes));
        let kept = match found {
            Some(reference) => Ok(reference),
            None => {
                let key = &self.key;
                index.make_room(hash, |reference| hash_at(key, segments, reference, tail.is_some()));
                self.append(segments, &bytes, may_grow).inspect(|reference| {
                    let index = if tail.is_some() { &mut self.heads } else { &mut self.tails };
                    index.insert(hash, *reference);
                })
            }
        };
        self.record = bytes;
        kept
    }

    /// Begins a collection: what is kept from now on goes to new segments.
    pub(super) fn begin_collection(&mut self) {
        self.heads = Index::default();
        self.tails = Index::default();
        self.filling = None;
        self.young.fill(false);
        self.young_held = 0;
    }

    /// Whether a reference is of a segment that goes when the collection ends.
    pub(super) fn is_old(&self, reference: u32) -> bool {
        !self.young.get((reference >> 16) as usize).copied().unwrap_or(false)
    }

    /// Ends it: old segments go.
    pub(super) fn end_collection(&mut self, segments: &mut Segments) {
        for (id, segment) in segments.iter_mut().enumerate() {
            if !self.young.get(id).copied().unwrap_or(false)
                && let Some(segment) = segment.take()
            {
                self.retired.push((id as u16, segment));
            }
        }
    }

    /// Whether there may be another segment with so many octets for all of it; `collecting` where names are moved, and only
    /// those segments count that stay.
    pub(super) fn may_grow(&self, collecting: bool, octets: usize) -> bool {
        let in_use = if collecting { self.young_held } else { self.held };
        in_use < self.most && self.octets_of(in_use + 1) <= octets
    }

    /// Whether nearly all numbers are taken that segments of names in use may have.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.held > self.most - self.most / 16
    }

    /// Octets that all of it takes.
    pub(super) fn octets(&self) -> usize {
        self.octets_of(self.held)
    }

    /// The same with so many segments.
    fn octets_of(&self, segments: usize) -> usize {
        self.heads.octets() + self.tails.octets() + segments * SEGMENT
    }

    /// Lets those retired segments go that no reader has.
    pub(super) fn release(&mut self, segments: &Segments) {
        // What readers hold, they hold through a root, which holds the segment.
        self.retired.retain(|(_, segment)| segment.is_shared());
        self.held = segments.iter().flatten().count();
    }

    fn append(&mut self, segments: &mut Segments, bytes: &[u8], may_grow: bool) -> Result<u32, NoRoom> {
        let (id, at) = match self.filling {
            Some((id, at)) if at + bytes.len() <= SEGMENT => (id, at),
            _ if !may_grow => return Err(NoRoom),
            _ => {
                self.release(segments);
                let id = new_segment(segments, &self.retired, &mut self.pieces).ok_or(NoRoom)?;
                self.has_grown = true;
                self.held += 1;
                if self.young.len() <= usize::from(id) {
                    self.young.resize(usize::from(id) + 1, false);
                }
                self.young[usize::from(id)] = true;
                self.young_held += 1;
                // Offset 0 of segment 0 would be the reference 0, which is none.
                (id, 1)
            }
        };
        let segment = segments[usize::from(id)].as_ref().ok_or(NoRoom)?;
        for (at, byte) in (at..).zip(bytes) {
            // Nothing was there but zeros, and nobody else writes.
            let word = &segment[at / 8];
            word.store(word.load(Ordering::Relaxed) | u64::from(*byte) << (at % 8 * 8), Ordering::Relaxed);
        }
        self.filling = Some((id, at + bytes.len()));
        Ok(u32::from(id) << 16 | at as u32)
    }
}

/// From so many segments on, they are cut from large pages, of which each holds so many.
const MANY: usize = LARGE_PAGE / SEGMENT;

fn new_segment(segments: &mut Segments, retired: &[(u16, Segment)], pieces: &mut Pieces) -> Option<u16> {
    let taken = |id: usize| segments[id].is_some() || retired.iter().any(|(old, _)| usize::from(*old) == id);
    let id = (0..segments.len()).find(|id| !taken(*id)).unwrap_or(segments.len());
    if id >= SEGMENTS_MAX {
        return None;
    }
    let words = SEGMENT / 8;
    let segment = if id < MANY { part::zeroed(words) } else { pieces.next(words) };
    if id == segments.len() {
        segments.push(None);
    }
    segments[id] = Some(segment);
    Some(id as u16)
}

/// Whether what a reference refers to begins with these octets.
fn is(segments: &[Option<Segment>], reference: u32, bytes: &[u8]) -> bool {
    let Some(words) = segments.get((reference >> 16) as usize).and_then(Option::as_ref) else { return false };
    let at = (reference & 0xffff) as usize;
    at + bytes.len() <= SEGMENT && eights(bytes).eq(eights_at(words, at..at + bytes.len()))
}

/// Some octets, eight at a time; zeros stand behind the last.
fn eights(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks(8).map(|some| {
        let mut eight = [0; 8];
        eight[..some.len()].copy_from_slice(some);
        u64::from_le_bytes(eight)
    })
}

/// The same of these octets of a segment.
fn eights_at(words: &[AtomicU64], octets: Range<usize>) -> impl Iterator<Item = u64> {
    let end = octets.end;
    octets.step_by(8).map(move |at| eight(words, at) & lowest(end - at))
}

fn hash_at(key: &RandomState, segments: &[Option<Segment>], reference: u32, is_head: bool) -> u64 {
    let Ok(record) = Record::at(segments, reference) else { return 0 };
    let end = record.begin + record.length + if is_head { 4 } else { 0 };
    hash(key, eights_at(record.words, record.begin - 1..end))
}

/// The hash of a record: its first octet says where its last eight end.
fn hash(key: &RandomState, eights: impl Iterator<Item = u64>) -> u64 {
    let mut hasher = key.build_hasher();
    eights.for_each(|eight| hasher.write_u64(eight));
    hasher.finish()
}

/// References by the hash of what they refer to: open addressing in parts, nothing is ever taken out.
///
/// A part grows alone, and each at another time than the others, so that nobody waits for all of it at once.
#[derive(Debug, Default)]
struct Index {
    parts: Vec<Slots>,
    /// Slots of all parts.
    slots: usize,
}

/// Parts of an index: of ten million names each has some ten thousand, which are put in their new places in about a
/// millisecond.
const PARTS: usize = 1024;

/// Slots that the first part has at first; the last one has twice as many.
const SLOTS_FIRST: usize = 8;

#[derive(Clone, Debug, Default)]
struct Slots {
    slots: Vec<u32>,
    taken: usize,
}

impl Index {
    fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        self.parts.get(part(hash))?.find(hash, is)
    }

    /// Sees that another one with this hash fits.
    fn make_room(&mut self, hash: u64, hash_of: impl Fn(u32) -> u64) {
        self.parts.resize(PARTS, Slots::default());
        self.slots += self.parts[part(hash)].make_room(part(hash), hash_of);
    }

    fn insert(&mut self, hash: u64, reference: u32) {
        if let Some(slots) = self.parts.get_mut(part(hash)) {
            slots.insert(hash, reference);
        }
    }

    /// Octets that it takes.
    fn octets(&self) -> usize {
        size_of::<Slots>() * self.parts.len() + 4 * self.slots
    }
}

fn part(hash: u64) -> usize {
    (hash >> 54) as usize
}

impl Slots {
    fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.start(hash)?;
        loop {
            match self.slots[at] {
                0 => return None,
                reference if is(reference) => return Some(reference),
                _ => at = (at + 1) % self.slots.len(),
            }
        }
    }

    /// A quarter more slots where four fifths are taken, and in later parts more than that, so that parts which fill
    /// alike do not grow at the same time; how many more.
    fn make_room(&mut self, part: usize, hash_of: impl Fn(u32) -> u64) -> usize {
        let before = self.slots.len();
        if (self.taken + 1) * 5 <= before * 4 {
            return 0;
        }
        let slots =
            (before * 5 / 4 + before * part / PARTS / 16).max(SLOTS_FIRST + SLOTS_FIRST * part / PARTS);
        let old = std::mem::replace(&mut self.slots, vec![0; slots]);
        self.taken = 0;
        for reference in old.into_iter().filter(|reference| *reference != 0) {
            self.insert(hash_of(reference), reference);
        }
        slots - before
    }

    fn insert(&mut self, hash: u64, reference: u32) {
        let Some(mut at) = self.start(hash) else { return };
        while self.slots[at] != 0 {
            at = (at + 1) % self.slots.len();
        }
        self.slots[at] = reference;
        self.taken += 1;
    }

    /// The bits below those that chose the part, stretched over the slots.
    fn start(&self, hash: u64) -> Option<usize> {
        let below = hash >> 22 & 0xffff_ffff;
        (!self.slots.is_empty()).then(|| ((below * self.slots.len() as u64) >> 32) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_one_hash_of_which_others_know_nothing() {
        let (mut segments, mut names, other) = (Segments::new(), Names::default(), Names::default());
        for name in ["a.example", "host-with-a-long-name.some-network.example", "localhost"] {
            let reference = names.intern(&mut segments, name.as_bytes(), None, true).unwrap();
            let record = Record::at(&segments, reference).unwrap();
            let mut bytes = vec![record.length as u8];
            bytes.extend(&name.as_bytes()[..record.length]);
            bytes.extend(record.tail().unwrap().to_le_bytes());
            let written = hash(&names.key, eights(&bytes));
            assert_eq!(hash_at(&names.key, &segments, reference, true), written);
            assert_ne!(hash(&other.key, eights(&bytes)), written);
            assert!(is(&segments, reference, &bytes) && !is(&segments, reference + 1, &bytes));
        }
    }
}
