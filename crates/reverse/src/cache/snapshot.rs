//! The cache in a file: written beside the old one, synced, and put in its place; mode 0600, for it is a list of
//! visitors.
//!
//! ```text
//! magic 8 | version 4 | reserved 4 | seed 8 | written at 4 | shards 4
//! then for each shard, those of IPv4 first:      slots 4 | slots
//! then segments 4, and for each segment:         number 4 | octets
//! checksum 8, over all before it
//! ```
//! Numbers are little-endian. The slots are those of memory, but for what has expired, which is left out: reading
//! a file is little more than copying it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::entry;
use super::names::{SEGMENT, SEGMENTS_MAX, Segments, empty_segment};
use super::table::{Key, Shard};
use super::{Reader, Root, SHARDS, View, Writer};

const MAGIC: [u8; 8] = *b"pm-names";

/// The form that is written, and the only one that is read.
pub const VERSION: u32 = 1;

/// How many octets are moved at a time.
const PIECE: usize = 1 << 16;

/// The most slots of one shard that are read: with 256 shards, more than there are IPv4 addresses.
const SLOTS_MAX: usize = 1 << 25;

/// Why a snapshot is not read.
#[derive(Debug)]
pub enum Unread {
    /// There is none.
    Absent,
    /// The file cannot be read, or ends before its end.
    Io(io::Error),
    /// It is no snapshot, or a damaged one.
    Damaged(&'static str),
    /// It is of another version of this form.
    Version(u32),
    /// It holds more than the cache may.
    TooLarge,
}

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unread::Absent => f.write_str("there is no such file"),
            Unread::Io(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => {
                f.write_str("it is cut short")
            }
            Unread::Io(cause) => write!(f, "it cannot be read: {cause}"),
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
        if cause.kind() == io::ErrorKind::NotFound { Unread::Absent } else { Unread::Io(cause) }
    }
}

/// Writes the cache to `path`, so that there is always a whole file, this one or the one before.
///
/// # Errors
/// What the system says; the file at `path` is then what it was.
pub fn save(view: &View, now: u32, path: &Path) -> io::Result<()> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(".new");
    let beside = path.with_file_name(name);
    match fs::remove_file(&beside) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
        _ => {}
    }
    let written = (|| {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        let mut out = BufWriter::with_capacity(PIECE, file);
        write(view, now, &mut out)?;
        out.into_inner()?.sync_all()?;
        fs::rename(&beside, path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    })();
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Reads the cache from `path`.
///
/// # Errors
/// [`Unread`].
pub fn load(path: &Path, limit: usize, stale: u32) -> Result<(Writer, Reader), Unread> {
    read(BufReader::with_capacity(PIECE, File::open(path)?), limit, stale)
}

/// Writes the cache as it was when `view` was taken, without what has expired at `now`.
///
/// # Errors
/// What `out` says.
pub fn write(view: &View, now: u32, out: &mut impl Write) -> io::Result<()> {
    let root = &view.0;
    let mut out = Summed { inner: out, sum: Sum::new() };
    out.put(&MAGIC)?;
    out.put(&VERSION.to_le_bytes())?;
    out.put(&[0; 4])?;
    out.put(&root.seed.to_le_bytes())?;
    out.put(&now.to_le_bytes())?;
    out.put(&(SHARDS as u32).to_le_bytes())?;
    for shard in &root.v4 {
        write_shard::<u32>(shard, now, root, &mut out)?;
    }
    for shard in &root.v6 {
        write_shard::<u128>(shard, now, root, &mut out)?;
    }
    let segments =
        || root.segments.iter().enumerate().filter_map(|(id, segment)| Some((id, segment.as_ref()?)));
    out.put(&(segments().count() as u32).to_le_bytes())?;
    let mut piece = vec![0; SEGMENT];
    for (id, segment) in segments() {
        for (octet, atomic) in piece.iter_mut().zip(segment.iter()) {
            *octet = atomic.load(Ordering::Relaxed);
        }
        out.put(&(id as u32).to_le_bytes())?;
        out.put(&piece)?;
    }
    let sum = out.sum.finish();
    out.inner.write_all(&sum.to_le_bytes())
}

fn write_shard<K: Key>(
    shard: &Shard,
    now: u32,
    root: &Root,
    out: &mut Summed<&mut impl Write>,
) -> io::Result<()> {
    out.put(&(shard.slots::<K>() as u32).to_le_bytes())?;
    let mut slot = Vec::with_capacity(8 * K::WORDS);
    for at in 0..shard.slots::<K>() {
        slot.clear();
        // A name that was put since the view was taken is in no segment of it.
        let read = shard.read::<K>(at).filter(|(entry, _, name)| {
            let known = entry.state != entry::State::Name
                || root.segments.get((name >> 16) as usize).is_some_and(Option::is_some);
            entry.state != entry::State::Asked && !entry.is_stale(now) && known
        });
        match read {
            Some((entry, key, name)) => {
                slot.extend_from_slice(&entry::pack(&entry, 0).to_le_bytes());
                slot.extend(key.write(name).iter().take(K::WORDS - 1).flat_map(|word| word.to_le_bytes()));
            }
            // A look-up must go on over a slot that something was in.
            None => {
                let was = shard.words[at * K::WORDS].load(Ordering::Relaxed) != 0;
                slot.extend_from_slice(&(if was { entry::GONE << 48 } else { 0 }).to_le_bytes());
                slot.resize(8 * K::WORDS, 0);
            }
        }
        out.put(&slot)?;
    }
    Ok(())
}

/// Reads a cache; never more of it into memory than `limit` allows.
///
/// # Errors
/// [`Unread`].
pub fn read(from: impl Read, limit: usize, stale: u32) -> Result<(Writer, Reader), Unread> {
    let mut from = Summed { inner: from, sum: Sum::new() };
    if from.take::<8>()? != MAGIC {
        return Err(Unread::Damaged("it is no snapshot of names"));
    }
    let version = u32::from_le_bytes(from.take()?);
    if version != VERSION {
        return Err(Unread::Version(version));
    }
    from.take::<4>()?;
    let seed = u64::from_le_bytes(from.take()?);
    from.take::<4>()?;
    if u32::from_le_bytes(from.take()?) as usize != SHARDS {
        return Err(Unread::Damaged("it is damaged: another number of shards"));
    }
    let mut room = limit;
    let mut v4 = Vec::with_capacity(SHARDS);
    for _ in 0..SHARDS {
        v4.push(Arc::new(read_shard::<u32>(&mut from, &mut room)?));
    }
    let mut v6 = Vec::with_capacity(SHARDS);
    for _ in 0..SHARDS {
        v6.push(Arc::new(read_shard::<u128>(&mut from, &mut room)?));
    }
    let segments = read_segments(&mut from, &mut room)?;
    let sum = from.sum.finish();
    let mut stored = [0; 8];
    from.inner.read_exact(&mut stored)?;
    if u64::from_le_bytes(stored) != sum {
        return Err(Unread::Damaged("it is damaged: its checksum is another"));
    }
    let (mut writer, reader) = Writer::over(Root { seed, v4, v6, segments }, limit, stale);
    // Which names are there already, the writer learns by collecting them with its first sweeps.
    writer.dropped = usize::MAX;
    Ok((writer, reader))
}

fn read_shard<K: Key>(from: &mut Summed<impl Read>, room: &mut usize) -> Result<Shard, Unread> {
    let slots = u32::from_le_bytes(from.take()?) as usize;
    if slots > SLOTS_MAX {
        return Err(Unread::Damaged("it is damaged: too many slots"));
    }
    *room = room.checked_sub(slots * K::WORDS * 8).ok_or(Unread::TooLarge)?;
    let mut left = slots * K::WORDS;
    let mut words = Vec::new();
    let mut piece = vec![0; PIECE];
    // What the file says is believed only as far as it goes on.
    while left > 0 {
        let now = left.min(PIECE / 8);
        let octets = &mut piece[..8 * now];
        from.fill(octets)?;
        words.extend(octets.as_chunks::<8>().0.iter().map(|word| AtomicU64::new(u64::from_le_bytes(*word))));
        left -= now;
    }
    Ok(Shard { words: words.into() })
}

fn read_segments(from: &mut Summed<impl Read>, room: &mut usize) -> Result<Segments, Unread> {
    let mut segments = Segments::new();
    let mut piece = vec![0; SEGMENT];
    for _ in 0..u32::from_le_bytes(from.take()?) {
        let id = u32::from_le_bytes(from.take()?) as usize;
        if id >= SEGMENTS_MAX || segments.get(id).is_some_and(Option::is_some) {
            return Err(Unread::Damaged("it is damaged: a segment's number"));
        }
        *room = room.checked_sub(SEGMENT).ok_or(Unread::TooLarge)?;
        from.fill(&mut piece)?;
        let segment = empty_segment();
        for (atomic, octet) in segment.iter().zip(&piece) {
            AtomicU8::store(atomic, *octet, Ordering::Relaxed);
        }
        if segments.len() <= id {
            segments.resize(id + 1, None);
        }
        segments[id] = Some(Arc::new(segment));
    }
    Ok(segments)
}

/// A checksum against accidents, not against forgers: words of eight octets, multiplied and folded.
struct Sum(u64, u64);

impl Sum {
    fn new() -> Sum {
        Sum(0x243f_6a88_85a3_08d3, 0)
    }

    /// Adds a field; each is of its own, so that none needs the end of another.
    fn add(&mut self, field: &[u8]) {
        let (words, rest) = field.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        for word in words.iter().chain((!rest.is_empty()).then_some(&last)) {
            let product = u128::from(self.0 ^ u64::from_le_bytes(*word)) * 0x9e37_79b9_7f4a_7c15;
            self.0 = (product >> 64) as u64 ^ product as u64;
        }
        self.1 += field.len() as u64;
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.1
    }
}

struct Summed<T> {
    inner: T,
    sum: Sum,
}

impl<W: Write> Summed<W> {
    fn put(&mut self, octets: &[u8]) -> io::Result<()> {
        self.sum.add(octets);
        self.inner.write_all(octets)
    }
}

impl<R: Read> Summed<R> {
    fn fill(&mut self, octets: &mut [u8]) -> io::Result<()> {
        self.inner.read_exact(octets)?;
        self.sum.add(octets);
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut octets = [0; N];
        self.fill(&mut octets)?;
        Ok(octets)
    }
}
