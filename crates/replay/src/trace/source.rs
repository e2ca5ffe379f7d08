//! A file's octets, unpacked, with the first of them looked at beforehand.

use std::io::{self, BufReader, Cursor, Read};
use std::sync::{Arc, Mutex, PoisonError};

use flate2::read::MultiGzDecoder;

use super::ahead::Ahead;
use super::frames::{Lz4, Zstd};
use super::xz::Xz;

/// How many octets are looked at to tell what they are: enough for each magic number, and for the first
/// words of a text.
const HEAD: usize = 32;

/// The octets of a file, unpacked.
///
/// Reads fill the buffer that they are given, up to the end or the first error. An error is told as an end,
/// so that all that came before it is used, and kept for [`Failed::take`].
pub(super) struct Source {
    head: Cursor<Vec<u8>>,
    rest: Box<dyn Read + Send>,
    failed: Failed,
    is_packed: bool,
}

/// Why a source ended early, if it did.
#[derive(Clone, Default)]
pub(super) struct Failed(Arc<Mutex<Option<io::Error>>>);

impl Source {
    /// Takes the compression off, where there is one; ahead of who reads, in a thread.
    pub(super) fn unpacked(file: impl Read + Send + 'static) -> io::Result<Source> {
        let mut packed = Source::new(Box::new(BufReader::new(file)), Failed::default());
        let (failed, mut is_packed) = (packed.failed(), true);
        let unpacked: Box<dyn Read + Send> = match packed.peek()? {
            [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(BufReader::new(packed))),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Box::new(Xz::new(BufReader::new(packed))),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
                Box::new(Zstd::new(BufReader::new(packed)))
            }
            [0x04, 0x22, 0x4d, 0x18, ..] => Box::new(Lz4::new(BufReader::new(packed))),
            _ => {
                is_packed = false;
                Box::new(packed)
            }
        };
        Ok(Source { is_packed, ..Source::new(Box::new(Ahead::begin(unpacked)?), failed) })
    }

    fn new(rest: Box<dyn Read + Send>, failed: Failed) -> Source {
        Source { head: Cursor::new(Vec::new()), rest, failed, is_packed: false }
    }

    /// Whether there was a compression to take off.
    pub(super) fn is_packed(&self) -> bool {
        self.is_packed
    }

    /// The first [`HEAD`] octets, or all there are; they are read again afterwards.
    pub(super) fn peek(&mut self) -> io::Result<&[u8]> {
        if self.head.get_ref().is_empty() {
            let mut head = vec![0; HEAD];
            let length = self.fill(&mut head);
            if length == 0
                && let Some(error) = self.failed.take()
            {
                return Err(error);
            }
            head.truncate(length);
            self.head = Cursor::new(head);
        }
        Ok(self.head.get_ref())
    }

    /// Where the reason is found when the source ends early.
    pub(super) fn failed(&self) -> Failed {
        self.failed.clone()
    }

    fn fill(&mut self, buffer: &mut [u8]) -> usize {
        let mut length = 0;
        while length < buffer.len() {
            match self.rest.read(&mut buffer[length..]) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failed.set(error);
                    // A decoder that failed is not asked again.
                    self.rest = Box::new(io::empty());
                    break;
                }
            }
        }
        length
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let head = self.head.read(buffer)?;
        Ok(head + self.fill(&mut buffer[head..]))
    }
}

impl Failed {
    /// The error, once.
    pub(super) fn take(&self) -> Option<io::Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Keeps the first error: a file that cannot be read on makes its compression look broken too.
    fn set(&self, error: io::Error) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}
