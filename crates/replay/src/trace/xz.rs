//! xz, unpacked as far as its octets go.

use std::io::{self, BufRead, Read};

use lzma_rust2::{Action, Status, XzStream};

/// The most memory that unpacking may take, in KiB; `xz -9` needs 64 MiB, and a header can ask for 4 GiB.
const KIB_MAX: u32 = 128 << 10;

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
        Xz { source, stream: XzStream::new_mem_limit(true, KIB_MAX), failed: None }
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
                Err(error) => match self.stream.total_out() - before {
                    0 => return Err(error),
                    given => {
                        self.failed = Some(error);
                        return Ok(given as usize);
                    }
                },
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
