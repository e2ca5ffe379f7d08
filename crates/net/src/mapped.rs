//! Memory from the kernel: a file's, whose pages come when they are first looked at and whose changes stay here, or
//! none's, in large pages; and memory asked for before it is needed.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64};

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// Octets of a large page: what the processors that we know of translate at once, where the kernel lets them.
pub const LARGE_PAGE: usize = 2 << 20;

/// Octets of memory that begin as those of a file, or as zeros.
///
/// The mapping is private: what is stored in it is seen by nobody else and never reaches the file. All access is
/// atomic, so that even a file that somebody changes meanwhile gives some value, not undefined behaviour. A file that
/// somebody *cuts* while it is mapped ends the program (SIGBUS); whoever writes such files puts a new one in the
/// place of the old, which lives on for as long as it is mapped.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<AtomicU64>,
    octets: NonZeroUsize,
}

// SAFETY: the memory is owned by this value alone, is not bound to a thread, and is reached through atomics only.
unsafe impl Send for Mapping {}
// SAFETY: as above: shared access is atomic.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a file from its beginning to its end.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::UnexpectedEof`] for an empty file.
    pub fn open(file: &File) -> io::Result<Mapping> {
        let octets = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let octets = NonZeroUsize::new(octets).ok_or(io::ErrorKind::UnexpectedEof)?;
        let (protection, flags) = (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE);
        // SAFETY: the system chooses a place where nothing is. What comes to stand there are plain integers.
        let start = unsafe { mmap(None, octets, protection, flags, file, 0) }?;
        Ok(Mapping { start: start.cast(), octets })
    }

    /// Makes a mapping of no file that begins with these octets.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::UnexpectedEof`] for no octets.
    pub fn of(content: &[u8]) -> io::Result<Mapping> {
        let octets = NonZeroUsize::new(content.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: as in `open`; the pages are zero.
        let start = unsafe { mmap_anonymous(None, octets, protection, MapFlags::MAP_PRIVATE) }?;
        let mapping = Mapping { start: start.cast(), octets };
        for (octet, value) in mapping.octets().iter().zip(content) {
            octet.store(*value, std::sync::atomic::Ordering::Relaxed);
        }
        Ok(mapping)
    }

    /// Makes a mapping of no file, of at least so many octets of zero, that begins with a large page. Where the kernel
    /// gives such pages to who asks for them, a look-up here and there finds its page in the processor's own tables.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::UnexpectedEof`] for no octets.
    pub fn zeroed(octets: usize) -> io::Result<Mapping> {
        let octets = octets.checked_next_multiple_of(PAGE_MAX).ok_or(io::ErrorKind::OutOfMemory)?;
        let octets = NonZeroUsize::new(octets).ok_or(io::ErrorKind::UnexpectedEof)?;
        let more = octets.checked_add(LARGE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: as in `of`.
        let all = unsafe { mmap_anonymous(None, more, protection, MapFlags::MAP_PRIVATE) }?;
        let address = all.addr().get();
        let before = address.next_multiple_of(LARGE_PAGE) - address;
        // SAFETY: `before` is less than a large page, by which `all` is longer than `octets`. What is before and behind
        // those are whole pages of `all` that nothing refers to. Should the kernel keep them, they are never written, and
        // take no memory. The advice is a wish: without it, all is as it is.
        let start = unsafe {
            let start = all.byte_add(before);
            let _ = if before > 0 { munmap(all, before) } else { Ok(()) };
            let _ = munmap(start.byte_add(octets.get()), LARGE_PAGE - before);
            let _ = madvise(start, octets.get(), MmapAdvise::MADV_HUGEPAGE);
            start
        };
        Ok(Mapping { start: start.cast(), octets })
    }

    /// All whole words, in the byte order of this machine; the octets of a last part of one are left out.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many octets are mapped at `start`, which is the beginning of a page, for as long as `self` is
        // borrowed. Every bit pattern is an integer, and nothing but atomics refers to it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.octets.get() / 8) }
    }

    /// All octets. Where words are stored to while octets of the same words are read, those are some mixture.
    #[inline]
    pub fn octets(&self) -> &[AtomicU8] {
        // SAFETY: as in `words`; octets need no alignment.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.octets.get()) }
    }
}

/// Words that are there for as long as anybody has them, and reached in one step: whoever has a list of such does not
/// first have to read where each of them ends up.
#[derive(Clone, Debug)]
pub struct Words {
    start: NonNull<AtomicU64>,
    count: usize,
    owner: Arc<Owner>,
}

/// What the words are part of.
#[derive(Debug)]
#[expect(dead_code, reason = "what is in it ends with the last of its words, and is reached through those")]
enum Owner {
    Mapping(Arc<Mapping>),
    Memory(Vec<AtomicU64>),
}

// SAFETY: the memory belongs to the owner, which lives as long as the value, is not bound to a thread, and is reached
// through atomics only.
unsafe impl Send for Words {}
// SAFETY: as above: shared access is atomic.
unsafe impl Sync for Words {}

impl Words {
    /// These of a mapping, which ends with the last of them; `None` where it has not so many.
    pub fn of(mapping: &Arc<Mapping>, range: Range<usize>) -> Option<Words> {
        let words = mapping.words().get(range)?;
        let (start, count) = (NonNull::from(words).cast(), words.len());
        Some(Words { start, count, owner: Arc::new(Owner::Mapping(mapping.clone())) })
    }

    /// So many words of zero in ordinary memory.
    pub fn zeroed(count: usize) -> Words {
        let words: Vec<_> = (0..count).map(|_| AtomicU64::new(0)).collect();
        let start = NonNull::from(&words[..]).cast();
        Words { start, count, owner: Arc::new(Owner::Memory(words)) }
    }

    /// Whether others have them, too.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.owner) > 1
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: so many words begin at `start`, in memory that the owner neither moves nor frees while it lives, which is
        // as long as `self`. Every bit pattern is an integer, and nothing but atomics refers to it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

/// The largest of the pages that kernels have as their ordinary ones, in octets.
const PAGE_MAX: usize = 64 << 10;

/// Has the processor fetch a word that will be read soon, and does not wait for it.
#[inline]
pub fn fetch(word: &AtomicU64) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has it, and it does nothing that a program could see, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(word.as_ptr().cast_const().cast()) };
    }
    // Elsewhere it is read: what is done next goes on meanwhile, as far as the processor looks ahead.
    #[cfg(not(target_arch = "x86_64"))]
    std::hint::black_box(word.load(std::sync::atomic::Ordering::Relaxed));
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly this was mapped, and nobody can refer to it any more. The only error is a wrong argument.
        let _ = unsafe { munmap(self.start.cast(), self.octets.get()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_file_is_seen_and_not_written() {
        let path = std::env::temp_dir().join(format!("pointsman-mapped-{}", std::process::id()));
        let content: Vec<u8> = (0..10_003u32).map(|i| i as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let mapping = Mapping::open(&File::open(&path).unwrap()).unwrap();
        let copied = Mapping::of(&content).unwrap();
        for mapping in [&mapping, &copied] {
            let seen: Vec<u8> = mapping.octets().iter().map(|octet| octet.load(Ordering::Relaxed)).collect();
            assert_eq!(seen, content);
            assert_eq!(mapping.words().len(), 10_003 / 8);
            let second = u64::from_ne_bytes(content[8..16].try_into().unwrap());
            assert_eq!(mapping.words()[1].load(Ordering::Relaxed), second);
        }
        std::thread::scope(|scope| {
            scope.spawn(|| mapping.words()[1].store(7, Ordering::Relaxed));
        });
        assert_eq!(mapping.words()[1].load(Ordering::Relaxed), 7);
        assert_eq!(std::fs::read(&path).unwrap(), content);
        // The file that was mapped lives on under the mapping when another takes its place.
        std::fs::remove_file(&path).unwrap();
        File::create(&path).unwrap().write_all(b"other").unwrap();
        assert_eq!(mapping.octets()[0x1ff].load(Ordering::Relaxed), 0xff);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn zeros_begin_with_a_large_page_and_end_where_they_should() {
        for octets in [8, 4096, LARGE_PAGE - 8, LARGE_PAGE, 3 * LARGE_PAGE + 24] {
            let mapping = Mapping::zeroed(octets).unwrap();
            let words = mapping.words();
            let expected = octets.next_multiple_of(PAGE_MAX) / 8;
            assert_eq!((words.as_ptr().addr() % LARGE_PAGE, words.len()), (0, expected));
            for word in words {
                assert_eq!(word.fetch_add(7, Ordering::Relaxed), 0);
                fetch(word);
            }
            assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 7));
        }
    }

    #[test]
    fn words_outlive_what_they_were_taken_from() {
        let mapping = Arc::new(Mapping::of(&[7; 80]).unwrap());
        let (some, mine) = (Words::of(&mapping, 2..5).unwrap(), Words::zeroed(3));
        assert!(
            Words::of(&mapping, 2..11).is_none()
                && Words::of(&mapping, 0..0).is_some_and(|none| none.is_empty())
        );
        drop(mapping);
        assert!(!some.is_shared());
        let copies = [some.clone(), mine.clone()];
        assert!(some.is_shared() && mine.is_shared());
        copies.iter().for_each(|words| words[2].store(9, Ordering::Relaxed));
        drop(copies);
        let all = |words: &Words| words.iter().map(|word| word.load(Ordering::Relaxed)).collect::<Vec<_>>();
        assert_eq!(all(&some), [0x0707_0707_0707_0707, 0x0707_0707_0707_0707, 9]);
        assert_eq!(all(&mine), [0, 0, 9]);
        assert!(!some.is_shared() && Words::zeroed(0).is_empty());
    }

    #[test]
    fn nothing_cannot_be_mapped() {
        assert_eq!(Mapping::zeroed(0).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(Mapping::zeroed(usize::MAX - 8).is_err());
        assert_eq!(Mapping::of(&[]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let empty = File::open("/dev/null").unwrap();
        assert_eq!(Mapping::open(&empty).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
