//! A file as memory: its pages come from the kernel when they are first looked at, and what is written stays here.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Octets of memory that begin as those of a file.
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
    fn nothing_cannot_be_mapped() {
        assert_eq!(Mapping::of(&[]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let empty = File::open("/dev/null").unwrap();
        assert_eq!(Mapping::open(&empty).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
