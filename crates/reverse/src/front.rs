//! What all faces ask: the cache, and where to leave what it does not know.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use net::histogram::Histogram;
use tokio::sync::mpsc;

use crate::cache::{Entry, Reader, State, TOGETHER, View};
use crate::crawlers::{Crawlers, Identity};
pub use crate::known::Known;
use crate::known::Since;
use crate::learned::Learned;
use crate::name::NameText;

/// Addresses that wait to be noted by the back end. It notes a hundred thousand a second at most, so as to leave the core to
/// those that answer; more than this at once is a flood and is turned away at the door, before it costs anything.
pub const DOOR_MAX: usize = 16_384;

/// How long a stale name may be kept by who gets it, in seconds (RFC 8767 §4).
pub const STALE_TTL: u32 = 30;

/// An address to be learned.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The address whose name is wanted.
    pub address: IpAddr,
    /// The address of the client that asked for it.
    pub client: IpAddr,
}

/// A hit that was looked at more closely: readers write nothing to the cache, and tell of a few hits here instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// The address that was looked up.
    pub address: IpAddr,
    /// Why it may be asked for.
    pub purpose: Purpose,
}

/// Why an address is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Somebody wants its name, which is not known.
    Name,
    /// Many want its name, which is about to expire.
    Ahead,
    /// It shows whether the names that are given are still right.
    Sample,
}

/// Where hits are told of: a ring that loses what finds it full.
#[derive(Clone, Debug)]
pub struct Ring {
    /// The way to the back end; [`RING_MAX`] long.
    pub seen: mpsc::Sender<Seen>,
    /// Whether names that are about to expire are told of.
    pub ahead: bool,
    /// Of so many hits one is asked for again, in steps of [`LOOKED_AT_ONE_IN`]; 0 for none.
    pub sample_one_in: u64,
}

/// Hits that wait to be noted by the back end: more than it can use between two of its turns are not worth keeping.
pub const RING_MAX: usize = 1024;

/// Of so many hits one is looked at more closely: its age is counted, and whether it is about to expire. So a name
/// that is renewed ahead of time is one that is asked for about so often in the last tenth of its life.
pub const LOOKED_AT_ONE_IN: u64 = 16;

/// Upper bounds of the ages of what was known, in seconds: up to the week that Rapid DNS kept names for, and beyond.
pub const AGES_S: [u64; 10] =
    [60, 600, 3_600, 21_600, 86_400, 172_800, 345_600, 604_800, 1_209_600, 2_592_000];

/// What a face counts, since start.
#[derive(Debug)]
#[repr(align(64))]
pub struct Counts {
    /// Look-ups by what was known, as [`crate::known::WORDS`].
    pub known: [AtomicU64; 4],
    /// Look-ups that found an entry, empty ones too: what Rapid DNS called a cache hit.
    pub hits: AtomicU64,
    /// Answers that were stale.
    pub stale: AtomicU64,
    /// Addresses that found the door full.
    pub door_full: AtomicU64,
    /// Hits that found the ring full.
    pub ring_full: AtomicU64,
    /// What was no question of this face: refused, broken, or too long.
    pub refused: AtomicU64,
    /// How long ago it was learned what hits found, in seconds; of one hit in [`LOOKED_AT_ONE_IN`].
    pub ages: Histogram,
}

impl Default for Counts {
    fn default() -> Self {
        Counts {
            known: Default::default(),
            hits: AtomicU64::default(),
            stale: AtomicU64::default(),
            door_full: AtomicU64::default(),
            ring_full: AtomicU64::default(),
            refused: AtomicU64::default(),
            ages: Histogram::new(&AGES_S),
        }
    }
}

/// What look-ups of one batch add to [`Counts`]: at once, for each cell is a word that all cores would write in turn.
#[derive(Debug, Default)]
struct Tally {
    known: [u64; 4],
    hits: u64,
    stale: u64,
    /// Hits of all time when the batch began.
    before: u64,
}

/// What all faces ask. A clone for each thread counts on its own.
#[derive(Clone, Debug)]
pub struct Front {
    reader: Reader,
    door: mpsc::Sender<Wanted>,
    /// For how many seconds it is told what has expired.
    stale: u32,
    learned: Arc<Learned>,
    crawlers: Arc<Crawlers>,
    ring: Option<Ring>,
    counts: Arc<Counts>,
    /// Whether look-ups are no requests.
    asks_again: bool,
    /// Whether what is wanted is not left for the back end.
    only_looks: bool,
}

impl Front {
    /// A front before `reader`, with `door` to the back end; what has expired is told for another `stale` seconds.
    pub fn new(reader: Reader, door: mpsc::Sender<Wanted>, stale: u32, learned: Arc<Learned>) -> Front {
        Front {
            reader,
            door,
            stale,
            learned,
            crawlers: Arc::default(),
            ring: None,
            counts: Arc::default(),
            asks_again: false,
            only_looks: false,
        }
    }

    /// The same front, which knows these crawlers.
    pub fn knowing(self, crawlers: Arc<Crawlers>) -> Front {
        Front { crawlers, ..self }
    }

    /// The same front, which tells of some of its hits.
    pub fn telling(self, ring: Ring) -> Front {
        Front { ring: Some(ring), ..self }
    }

    /// The same front, with counts of its own.
    pub fn for_thread(&self) -> Front {
        Front { counts: Arc::default(), ..self.clone() }
    }

    /// The same front for who asks again for what it waits for: its first look-up was counted, and these are not. What is
    /// wanted is left for the back end all the same.
    pub fn again(&self) -> Front {
        Front { asks_again: true, ..self.clone() }
    }

    /// The same front for who waits for what was left for the back end at its first look-up: nothing is counted or left
    /// again.
    pub fn waiting(&self) -> Front {
        Front { only_looks: true, ..self.again() }
    }

    /// The counts of this front: those of one face, or of one of its threads.
    pub fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// The cache as it is now: to be taken for a batch of look-ups, and dropped.
    pub fn view(&self) -> View {
        self.reader.view()
    }

    /// Where it is told that something was learned.
    pub fn learned(&self) -> &Learned {
        &self.learned
    }

    /// Says what is known at `now`, in seconds since 1970; a name goes into `name`. What is not known, or not any
    /// more, is left for the back end.
    pub fn look_up(
        &self,
        view: &View,
        address: IpAddr,
        client: IpAddr,
        now: u32,
        name: &mut NameText,
    ) -> Known {
        let address = address.to_canonical();
        let entry = view.get(address, name);
        let mut tally = self.begin();
        let known = self.tell(address, entry, client, now, &mut tally);
        self.add(&tally);
        known
    }

    /// Says what is known of several addresses, as [`Front::look_up`] does of each in their order, in less time: they
    /// wait for memory together.
    pub fn look_up_each(
        &self,
        view: &View,
        addresses: &[IpAddr],
        client: IpAddr,
        now: u32,
        mut each: impl FnMut(IpAddr, Known, &NameText),
    ) {
        let mut canonical = [client; TOGETHER];
        let mut tally = self.begin();
        for addresses in addresses.chunks(TOGETHER) {
            for (canonical, address) in canonical.iter_mut().zip(addresses) {
                *canonical = address.to_canonical();
            }
            view.get_each(&canonical[..addresses.len()], |address, entry, name| {
                each(address, self.tell(address, entry, client, now, &mut tally), name);
            });
        }
        self.add(&tally);
    }

    /// What look-ups from now on are counted with.
    #[inline]
    fn begin(&self) -> Tally {
        Tally { before: self.counts.hits.load(Ordering::Relaxed), ..Tally::default() }
    }

    /// Adds what was counted.
    #[inline]
    fn add(&self, tally: &Tally) {
        if self.asks_again {
            return;
        }
        let Tally { known, hits, stale, before: _ } = tally;
        let cells = self.counts.known.iter().chain([&self.counts.hits, &self.counts.stale]);
        for (cell, count) in cells.zip(known.iter().chain([hits, stale])) {
            if *count > 0 {
                cell.fetch_add(*count, Ordering::Relaxed);
            }
        }
    }

    /// Says what was found, counts it, and leaves to the back end what is wanted.
    #[inline]
    fn tell(
        &self,
        address: IpAddr,
        entry: Option<Entry>,
        client: IpAddr,
        now: u32,
        tally: &mut Tally,
    ) -> Known {
        let (known, wanted) = match entry {
            None => (Known::NotYet, true),
            Some(entry) => self.known(&entry, now),
        };
        tally.known[known.index()] += 1;
        if let Some(entry) = entry.filter(|entry| !entry.is_stale(now) && !self.asks_again) {
            self.hit(address, &entry, now, tally.before.wrapping_add(tally.hits));
            tally.hits += 1;
        }
        if let Known::Name(Since { stale: true, .. }, _) | Known::NoName(Since { stale: true, .. }) = known {
            tally.stale += 1;
        }
        if wanted && !self.only_looks && self.door.try_send(Wanted { address, client }).is_err() {
            self.counts.door_full.fetch_add(1, Ordering::Relaxed);
        }
        known
    }

    /// Says which crawler an address is, given what [`Front::look_up`] said of it.
    pub fn identify(&self, address: IpAddr, known: &Known, name: &NameText) -> Identity<'_> {
        self.crawlers.identify(address.to_canonical(), known, name)
    }

    /// Looks at some hits more closely; `before` is how many there were.
    #[inline]
    fn hit(&self, address: IpAddr, entry: &Entry, now: u32, before: u64) {
        // Scattered, so that whoever asks in a fixed rhythm is not always or never seen.
        let draw = before.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        if !draw.is_multiple_of(LOOKED_AT_ONE_IN) {
            return;
        }
        self.counts.ages.observe(entry.age(now).into());
        let Some(ring) = self.ring.as_ref().filter(|_| entry.state == State::Name) else { return };
        let is_sample = ring.sample_one_in > 0
            && (draw / LOOKED_AT_ONE_IN).is_multiple_of(ring.sample_one_in.div_ceil(LOOKED_AT_ONE_IN));
        let purpose = match (is_sample, ring.ahead && entry.is_ending(now)) {
            (true, _) => Purpose::Sample,
            (false, true) => Purpose::Ahead,
            (false, false) => return,
        };
        if ring.seen.try_send(Seen { address, purpose }).is_err() {
            self.counts.ring_full.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What an entry means now, and whether it is to be learned anew.
    fn known(&self, entry: &Entry, now: u32) -> (Known, bool) {
        let (expired, is_told) = (entry.is_stale(now), entry.is_told(now, self.stale));
        // A name whose renewal failed is stale, and left alone until it is tried again.
        let stale = expired || entry.failures > 0;
        let left = if stale { STALE_TTL } else { entry.left(now) };
        let since = Since { age: entry.age(now), left, stale };
        match entry.state {
            State::Name if is_told => (Known::Name(since, entry.verdict), expired),
            State::NoName if is_told => (Known::NoName(since), expired),
            State::Failed(why) if !expired => {
                (Known::Failed(why, Since { left: entry.left(now), stale: false, ..since }), false)
            }
            _ => (Known::NotYet, expired),
        }
    }
}
