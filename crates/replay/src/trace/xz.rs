//! xz, unpacked as far as its octets go.

use std::io::{self, BufRead, Read};

use lzma_rust2::{Action, Status, XzStream};

/// The largest window that a block may ask for, in KiB; `xz -9` has 64 MiB, and a header can ask for 4 GiB.
const WINDOW_MAX: u32 = 128 << 10;

/// What unpacking takes beside the window, in KiB, as the crate counts it.
const BESIDE: u32 = 40;

/// Streams of xz, one after the other.
///
/// The crate's own reader would keep back what it has unpacked at once before a file breaks off, up to 2 MiB that
/// `xz -d` gives.
pub(super) struct Xz<R> {
    source: R,
    stream: XzStream,
    /// Why the stream breaks off, once what was unpacked before is given.
    failed: Option<io::Error>,
}

impl<R: BufRead> Xz<R> {
    pub(super) fn new(source: R) -> Xz<R> {
        Xz { source, stream: XzStream::new_mem_limit(true, WINDOW_MAX + BESIDE), failed: None }
    }

    /// The error in words for people, where a window is too large.
    fn told(&self, error: io::Error) -> io::Error {
        let window = self.stream.memory_usage().map_or(0, |usage| usage.saturating_sub(BESIDE));
        if window <= WINDOW_MAX {
            return error;
        }
        let what = format!("an xz block asks for a window of {window} KiB, {WINDOW_MAX} KiB are given");
        io::Error::new(io::ErrorKind::InvalidData, what)
    }
}

impl<R: BufRead> Read for Xz<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        loop {
            let packed = self.source.fill_buf()?;
            let action = if packed.is_empty() { Action::Finish } else { Action::Run };
            let before = self.stream.total_out();
            let done = match self.stream.process(packed, buffer, action) {
                Ok(done) => done,
                Err(error) => {
                    let error = self.told(error);
                    match self.stream.total_out() - before {
                        0 => return Err(error),
                        given => {
                            self.failed = Some(error);
                            return Ok(given as usize);
                        }
                    }
                }
            };
            self.source.consume(done.bytes_consumed);
            if done.bytes_produced > 0 || buffer.is_empty() || done.status == Status::StreamEnd {
                return Ok(done.bytes_produced);
            }
            if done.bytes_consumed == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the xz stream has no end"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use lzma_rust2::{XzOptions, XzWriter};

    use super::*;

    fn packed(octets: &[u8]) -> Vec<u8> {
        let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(1)).expect("memory takes it");
        writer.write_all(octets).expect("memory takes it");
        writer.finish().expect("memory takes it")
    }

    fn lines() -> Vec<u8> {
        let line =
            |at: u32| format!("{at}.0 192.0.2.{}:1 udp n{}.example. A -\n", at % 97, at * 7919 % 10_007);
        (0..20_000).map(line).collect::<String>().into_bytes()
    }

    #[test]
    fn streams_follow_one_another() {
        let (one, other) = (lines(), b"the end".to_vec());
        let mut unpacked = Vec::new();
        // Padding is of four zeros.
        let file = [packed(&one), vec![0; 8], packed(&other)].concat();
        Xz::new(&file[..]).read_to_end(&mut unpacked).expect("it is whole");
        assert!(unpacked == [one, other].concat());
    }

    #[test]
    fn the_window_is_bounded() {
        // A line by `xz` itself; the window of 2^27 octets, and the next larger one of half as much again, stand in
        // the header of a block with that header's checksum.
        let file = |window: [u8; 8]| {
            let mut file = b"\xfd7zXZ\0\0\x01\x69\x22\xde\x36\x02\0\x21\x01".to_vec();
            file.extend(window);
            file.extend(b"\x01\0\x1a0.0 192.0.2.1:1 udp a. A -\n\0\0\x48\xc8\x8c\x16");
            file.extend(b"\0\x01\x2f\x1b\xaa\x44\xff\xb8\x90\x42\x99\x0d\x01\0\0\0\0\x01YZ");
            file
        };
        let unpacked = |file: &[u8]| {
            let mut unpacked = Vec::new();
            Xz::new(file).read_to_end(&mut unpacked).map(|_| unpacked)
        };
        let given = unpacked(&file([30, 0, 0, 0, 0x9b, 0x07, 0x51, 0x66])).expect("as much is given");
        assert_eq!(given, b"0.0 192.0.2.1:1 udp a. A -\n");
        let error = unpacked(&file([31, 0, 0, 0, 0xfe, 0x60, 0xed, 0xde])).expect_err("it is too much");
        assert!(error.to_string().contains("a window of 196608 KiB, 131072 KiB are given"), "{error}");
    }

    #[test]
    fn what_stands_before_the_break_is_given() {
        let whole = lines();
        let file = packed(&whole);
        for (end, expected) in [(file.len() - 1, 100), (file.len() / 2, 45), (file.len() / 10, 7)] {
            let mut unpacked = Vec::new();
            let error = Xz::new(&file[..end]).read_to_end(&mut unpacked).expect_err("it breaks off");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
            assert!(whole.starts_with(&unpacked));
            let percent = unpacked.len() * 100 / whole.len();
            assert!(percent >= expected, "{end} of {}: {percent} %", file.len());
        }
    }
}
