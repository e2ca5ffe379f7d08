//! The cache in a file: written beside the old one, synced, and put in its place; mode 0600, for it is a list of
//! visitors.
//!
//! ```text
//! magic 8 | version 4, shards 4 | seed 8 | written at 8 | segments 8
//! slots of each shard 8, those of IPv4 first | number of each segment 8
//! the slots | the segments
//! checksum 8, over all before it
//! ```
//! Numbers and slots are in the byte order of the machine: on another, the version is none that is known. The slots
//! are those of memory, but for what the next sweep takes out, which is left out: the file is mapped and looked at
//! once, for its checksum, and then is the cache. It is never written to again, and must not be cut while it is in use.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use net::mapped::{Mapping, Words};
use net::whole;

use super::names::{SEGMENT, SEGMENTS_MAX, Segments};
use super::table::{Key, Shard};
use super::writer::slot_octets_max;
use super::{Reader, Root, SHARDS, View, Writer, entry, names};

const MAGIC: u64 = u64::from_ne_bytes(*b"pm-names");

/// The form that is written, and the only one that is read.
pub const VERSION: u32 = 3;

/// Who may read the file: it is a list of visitors.
pub const MODE: u32 = 0o600;

/// Words before the table.
const HEADER: usize = 5;

/// How many octets are written at a time.
const PIECE: usize = 1 << 16;

/// The most slots of one shard that are read: with 32 shards, more than there are IPv4 addresses.
const SLOTS_MAX: u64 = 1 << 28;

/// Why a snapshot is not read.
#[derive(Debug)]
pub enum Unread {
    /// There is no such file.
    Absent,
    /// The file cannot be read.
    Io(io::Error),
    /// The file ends before its end.
    Cut,
    /// It is no snapshot, or a damaged one.
    Damaged(&'static str),
    /// It is of another version of this form.
    Version(u32),
    /// It holds more than the cache may.
    TooLarge,
}

impl Unread {
    /// What can be done to have its names all the same: a fragment, empty where nothing can.
    pub fn advice(&self) -> &'static str {
        match self {
            Unread::Absent | Unread::Io(_) => "",
            Unread::Cut | Unread::Damaged(_) => "use a copy of it that is whole",
            Unread::Version(_) => {
                "bring it over: `pointsman reverse export` of the program that wrote it, `pointsman reverse import` of this one"
            }
            Unread::TooLarge => "give the cache more memory",
        }
    }
}

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unread::Absent => f.write_str("there is no such file"),
            Unread::Io(cause) => write!(f, "it cannot be read: {cause}"),
            Unread::Cut => f.write_str("it is cut short"),
            Unread::Damaged(what) => write!(f, "{what}"),
            Unread::Version(version) => {
                write!(f, "it has version {version}, and this program reads version {VERSION}")
            }
            Unread::TooLarge => f.write_str("it holds more than the cache may (--memory)"),
        }
    }
}

impl std::error::Error for Unread {}

impl From<io::Error> for Unread {
    fn from(cause: io::Error) -> Self {
        match cause.kind() {
            io::ErrorKind::NotFound => Unread::Absent,
            io::ErrorKind::UnexpectedEof => Unread::Cut,
            _ => Unread::Io(cause),
        }
    }
}

/// Writes the cache to `path`, so that there is always a whole file, this one or the one before.
///
/// # Errors
/// As [`whole::replace`] has them.
pub fn save(view: &View, now: u32, path: &Path) -> io::Result<()> {
    whole::replace(path, MODE, |file| write(view, now, file))
}

/// Maps the file at `path` and takes it for the cache.
///
/// # Errors
/// [`Unread`].
pub fn load(path: &Path, limit: usize, stale: u32) -> Result<(Writer, Reader), Unread> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory).into());
    }
    over(Mapping::open(&file)?, limit, stale)
}

/// Takes a copy of a file's octets for the cache.
///
/// # Errors
/// [`Unread`].
pub fn read(octets: &[u8], limit: usize, stale: u32) -> Result<(Writer, Reader), Unread> {
    over(Mapping::of(octets)?, limit, stale)
}

/// The checksum that stands behind these words.
pub fn checksum(words: impl Iterator<Item = u64>) -> u64 {
    let mut sum = Sum::new();
    words.for_each(|word| sum.add(word));
    sum.finish()
}

/// Writes the cache as it was when `view` was taken, without what is not kept any longer at `now`.
///
/// # Errors
/// What `out` says.
pub fn write(view: &View, now: u32, out: impl Write) -> io::Result<()> {
    let root = &view.root;
    let mut out = Summed { out, piece: Vec::with_capacity(PIECE), sum: Sum::new() };
    let segments = || (0u64..).zip(&root.segments).filter_map(|(id, segment)| Some((id, segment.as_ref()?)));
    let kind = u64::from(VERSION) << 32 | SHARDS as u64;
    for word in [MAGIC, kind, root.seed, now.into(), segments().count() as u64] {
        out.put(word)?;
    }
    for shard in &root.v4 {
        out.put(shard.slots::<u32>() as u64)?;
    }
    for shard in &root.v6 {
        out.put(shard.slots::<u128>() as u64)?;
    }
    for (id, _) in segments() {
        out.put(id)?;
    }
    for shard in &root.v4 {
        write_shard::<u32>(shard, now, root, &mut out)?;
    }
    for shard in &root.v6 {
        write_shard::<u128>(shard, now, root, &mut out)?;
    }
    for (_, segment) in segments() {
        for word in segment.iter() {
            out.put(word.load(Ordering::Relaxed))?;
        }
    }
    let sum = out.sum.finish();
    out.put(sum)?;
    out.flush()
}

fn write_shard<K: Key>(shard: &Shard, now: u32, root: &Root, out: &mut Summed<impl Write>) -> io::Result<()> {
    for at in 0..shard.slots::<K>() {
        // A name that was put since the view was taken is in no segment of it.
        let read = shard.read::<K>(at).filter(|(entry, _, name)| {
            let known = entry.state != entry::State::Name || names::is_held(&root.segments, *name);
            entry.state != entry::State::Asked && entry.is_kept(now, root.stale) && known
        });
        // A look-up must go on over a slot that something was in.
        let was = shard.words[at * K::WORDS].load(Ordering::Relaxed) != 0;
        let gone = if was { entry::GONE << 48 } else { 0 };
        let (first, rest) =
            read.map_or((gone, [0; 3]), |(entry, key, name)| (entry::pack(&entry, 0), key.write(name)));
        out.put(first)?;
        for word in &rest[..K::WORDS - 1] {
            out.put(*word)?;
        }
    }
    Ok(())
}

/// Finds the parts of a cache in a mapping; nothing of what it says is believed before its checksum was seen to be
/// right, and nothing larger than three times `limit` is looked at.
fn over(mapping: Mapping, limit: usize, stale: u32) -> Result<(Writer, Reader), Unread> {
    let word = |at: usize| mapping.words().get(at).map(|word| word.load(Ordering::Relaxed));
    // Also where it is shorter than a header: what begins otherwise is not cut, but something else.
    let mut start = MAGIC.to_ne_bytes().into_iter().zip(mapping.octets());
    if start.any(|(expected, octet)| octet.load(Ordering::Relaxed) != expected) {
        return Err(Unread::Damaged("it is no snapshot of names"));
    }
    let header: Vec<u64> = (0..HEADER).map_while(word).collect();
    let [_, kind, seed, _, count] = header[..] else { return Err(Unread::Cut) };
    let (version, shards) = ((kind >> 32) as u32, kind as u32);
    if version != VERSION {
        return Err(Unread::Version(version));
    }
    if shards as usize != SHARDS || count > SEGMENTS_MAX as u64 {
        return Err(Unread::Damaged("it is damaged: another number of shards, or too many segments"));
    }
    let table: Vec<u64> = (HEADER..HEADER + 2 * SHARDS + count as usize).map_while(word).collect();
    if table.len() < 2 * SHARDS + count as usize {
        return Err(Unread::Cut);
    }
    let (slots, ids) = table.split_at(2 * SHARDS);
    if slots.iter().any(|slots| *slots > SLOTS_MAX) {
        return Err(Unread::Damaged("it is damaged: too many slots"));
    }
    let (v4, v6) = slots.split_at(SHARDS);
    let mut end = HEADER + table.len();
    let (v4, v6) = (parts::<u32>(v4, &mut end), parts::<u128>(v6, &mut end));
    let begin = end;
    end += ids.len() * (SEGMENT / 8);
    // One that is written while names are collected has those in use twice; three times where that was so at the start
    // before, too. The first sweeps let them go. Slots never get fewer, so those keep to what `Writer::grow` leaves them.
    let octets = |words: usize| words * 8;
    let (slots, all) = (octets(begin - HEADER - table.len()), octets(end - HEADER - table.len()));
    if slots > slot_octets_max(limit) || all > limit.saturating_mul(3) {
        return Err(Unread::TooLarge);
    }
    match mapping.octets().len().cmp(&((end + 1) * 8)) {
        std::cmp::Ordering::Less => return Err(Unread::Cut),
        std::cmp::Ordering::Greater => {
            return Err(Unread::Damaged("it is damaged: it goes on beyond its end"));
        }
        std::cmp::Ordering::Equal => {}
    }
    if word(end) != Some(checksum(mapping.words()[..end].iter().map(|word| word.load(Ordering::Relaxed)))) {
        return Err(Unread::Damaged("it is damaged: its checksum is another"));
    }
    let mapping = Arc::new(mapping);
    let segments = segments(&mapping, ids, begin)?;
    let words = |range| Words::of(&mapping, range).ok_or(Unread::Cut);
    let shards = |parts: Vec<Range<usize>>| -> Result<Vec<_>, Unread> {
        parts.into_iter().map(|range| words(range).map(|words| Arc::new(Shard::over(words)))).collect()
    };
    let root = Root { seed, stale, v4: shards(v4)?, v6: shards(v6)?, segments };
    let (mut writer, reader) = Writer::over(root, limit);
    let damage = "it is damaged: a slot, or a name in a segment that is not there";
    writer.look_at_names().ok_or(Unread::Damaged(damage))?;
    // Which names are there already, the writer learns by collecting them with its first sweeps.
    writer.dropped = usize::MAX;
    Ok((writer, reader))
}

/// Where the slots of shards stand, one after the other from `end` on.
fn parts<K: Key>(slots: &[u64], end: &mut usize) -> Vec<Range<usize>> {
    let part = |slots: &u64| {
        let begin = *end;
        *end += *slots as usize * K::WORDS;
        begin..*end
    };
    slots.iter().map(part).collect()
}

fn segments(mapping: &Arc<Mapping>, ids: &[u64], begin: usize) -> Result<Segments, Unread> {
    let mut segments = Segments::new();
    for (index, id) in ids.iter().enumerate() {
        let id = usize::try_from(*id).unwrap_or(SEGMENTS_MAX);
        if id >= SEGMENTS_MAX || segments.get(id).is_some_and(Option::is_some) {
            return Err(Unread::Damaged("it is damaged: a segment's number"));
        }
        if segments.len() <= id {
            segments.resize(id + 1, None);
        }
        let begin = begin + index * (SEGMENT / 8);
        segments[id] = Some(Words::of(mapping, begin..begin + SEGMENT / 8).ok_or(Unread::Cut)?);
    }
    Ok(segments)
}

/// A checksum against accidents, not against forgers: words multiplied and folded.
struct Sum(u64);

impl Sum {
    fn new() -> Sum {
        Sum(0x243f_6a88_85a3_08d3)
    }

    #[inline]
    fn add(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

struct Summed<W> {
    out: W,
    piece: Vec<u8>,
    sum: Sum,
}

impl<W: Write> Summed<W> {
    fn put(&mut self, word: u64) -> io::Result<()> {
        self.sum.add(word);
        self.piece.extend_from_slice(&word.to_ne_bytes());
        if self.piece.len() >= PIECE { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.piece)?;
        self.piece.clear();
        Ok(())
    }
}
