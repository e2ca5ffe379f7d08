//! zstd and lz4: files of one compressed frame or more, unpacked in constant memory.
//!
//! However much a frame unpacks to, only its window and one block of it are held.

use std::io::{self, BufRead, Read};

use lz4_flex::frame::FrameDecoder as Lz4Frames;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The largest window in octets that a zstd frame may ask for: as much as `zstd -d` gives unasked, and what
/// `--ultra -22` needs.
const WINDOW_MAX: u64 = 128 << 20;

/// Frames of zstd (RFC 8878); skippable ones are passed over.
pub(super) struct Zstd<R> {
    source: R,
    frame: FrameDecoder,
    is_within: bool,
    /// Why the frame breaks off, while what was unpacked before is read.
    failed: Option<io::Error>,
}

/// An empty last block and a checksum.
const END: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

impl<R: BufRead> Zstd<R> {
    pub(super) fn new(source: R) -> Zstd<R> {
        let mut frame = FrameDecoder::new();
        frame.set_max_window_size(WINDOW_MAX);
        Zstd { source, frame, is_within: false, failed: None }
    }

    /// Goes to the next frame; `false` where there is none.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.frame.init(&mut self.source) {
                Ok(()) => {
                    self.is_within = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = length.into();
                    if io::copy(&mut (&mut self.source).take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(FrameDecoderError::WindowSizeTooBig { requested, max }) => {
                    let what =
                        format!("a zstd frame asks for a window of {requested} octets, {max} are given");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
                Err(error) => return Err(broken(&error)),
            }
        }
        Ok(false)
    }

    /// Unpacks a block. The decoder keeps a window of what it has unpacked until the frame ends, so that a frame
    /// that breaks off is ended here, and told as broken once all of it was read.
    fn block(&mut self) -> io::Result<()> {
        let Err(error) = self.frame.decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
        else {
            return Ok(());
        };
        self.failed = Some(broken(&error));
        match self.frame.decode_blocks(&END[..], BlockDecodingStrategy::UptoBlocks(1)) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.failed.take().unwrap_or_else(|| broken(&error))),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        self.is_within = false;
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        match self.frame.get_checksum_from_data() {
            Some(told) if self.frame.get_calculated_checksum() != Some(told) => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "a zstd frame's checksum is wrong"))
            }
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if self.is_within && self.frame.can_collect() > 0 {
                return self.frame.read(buffer);
            }
            if self.is_within && self.frame.is_finished() {
                self.end()?;
            }
            if !self.is_within && !self.begin()? {
                return Ok(0);
            }
            if !self.frame.is_finished() {
                self.block()?;
            }
        }
    }
}

fn broken(error: &FrameDecoderError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a zstd frame is broken: {error}"))
}

/// Frames of lz4, of which a block has at most 4 MiB.
pub(super) struct Lz4<R: Read> {
    /// Absent between two frames only: a decoder's buffers are of its first frame's size.
    frame: Option<Lz4Frames<Tail<R>>>,
}

/// The last octets that were read, by which a frame that ends is told from a file that does.
struct Tail<R> {
    source: R,
    /// The end mark, which is four zeros, and the checksum that may follow it.
    last: [u8; 8],
}

impl<R: BufRead> Lz4<R> {
    pub(super) fn new(source: R) -> Lz4<R> {
        Lz4 { frame: Some(Lz4Frames::new(Tail { source, last: [1; 8] })) }
    }
}

impl<R: BufRead> Read for Lz4<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(frame) = &mut self.frame {
            let read = frame.read(buffer).map_err(|error| match error.kind() {
                // The decoder needs a whole block to unpack any of it.
                io::ErrorKind::UnexpectedEof => no_end(),
                _ => error,
            })?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let tail = frame.get_mut();
            if tail.source.fill_buf()?.is_empty() {
                // The decoder takes a file that ends before a block for the end of the frame.
                return match tail.last {
                    [0, 0, 0, 0, ..] | [.., 0, 0, 0, 0] => Ok(0),
                    _ => Err(no_end()),
                };
            }
            self.frame = self.frame.take().map(|frame| Lz4Frames::new(frame.into_inner()));
        }
        Ok(0)
    }
}

fn no_end() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the lz4 frame has no end")
}

impl<R: Read> Read for Tail<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        let kept = read.min(self.last.len());
        self.last.rotate_left(kept);
        let from = self.last.len() - kept;
        self.last[from..].copy_from_slice(&buffer[read - kept..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use lz4_flex::frame::{FrameEncoder, FrameInfo};
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn lz4(octets: &[u8], has_checksum: bool) -> Vec<u8> {
        let info = FrameInfo::new().content_checksum(has_checksum);
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(octets).expect("memory takes it");
        encoder.finish().expect("memory takes it")
    }

    fn zstd(octets: &[u8]) -> Vec<u8> {
        compress_to_vec(octets, CompressionLevel::Fastest)
    }

    fn unpacked(is_zstd: bool, octets: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        match is_zstd {
            true => Zstd::new(octets).read_to_end(&mut out)?,
            false => Lz4::new(octets).read_to_end(&mut out)?,
        };
        Ok(out)
    }

    #[test]
    fn frames_follow_each_other() {
        let parts: [&[u8]; 4] = [b"some text", &[7; 300_000], b"", b"the end"];
        let skippable = [0x52, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        let packed = |pack: &dyn Fn(&[u8]) -> Vec<u8>| parts.map(pack).concat();
        let whole = parts.concat();
        assert_eq!(unpacked(true, &[&skippable[..], &packed(&zstd), &skippable].concat()).unwrap(), whole);
        for has_checksum in [false, true] {
            assert_eq!(unpacked(false, &packed(&|part| lz4(part, has_checksum))).unwrap(), whole);
        }
    }

    #[test]
    fn a_frame_that_breaks_off_is_told() {
        let mut rng = fastrand::Rng::with_seed(1);
        let octets: Vec<u8> = (0..200_000).map(|_| rng.u8(1..)).collect();
        for (is_zstd, packed) in
            [(true, zstd(&octets)), (false, lz4(&octets, true)), (false, lz4(&octets, false))]
        {
            assert_eq!(unpacked(is_zstd, &packed).unwrap(), octets);
            for length in [packed.len() - 1, packed.len() - 5, packed.len() / 2, 9, 5] {
                assert!(unpacked(is_zstd, &packed[..length]).is_err(), "{is_zstd}, {length} octets");
            }
        }
        // Between two blocks of 64 KiB, which lz4 keeps as they are where they do not shrink.
        let between = lz4(&octets, false);
        assert!(unpacked(false, &between[..7 + 4 + (64 << 10)]).is_err());
    }

    #[test]
    fn what_was_changed_or_asks_too_much_is_told() {
        let mut packed = zstd(b"some text that is long enough, some text that is long enough");
        let last = packed.len() - 1;
        packed[last] ^= 1;
        assert!(unpacked(true, &packed).unwrap_err().to_string().contains("checksum"));
        // A window of 2^(10 + 21) octets.
        let window = [0x28, 0xb5, 0x2f, 0xfd, 0, 21 << 3, 1, 0, 0];
        assert!(unpacked(true, &window).unwrap_err().to_string().contains("a window of 2147483648"));
    }
}
