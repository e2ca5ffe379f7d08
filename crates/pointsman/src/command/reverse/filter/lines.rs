//! Lines as they come, in batches, and the address in each.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::IpAddr;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Lines of a batch: enough that one round to the service is shared by many.
pub(super) const LINES_MAX: usize = 1024;

/// Octets of a line that is looked at; longer ones are passed on as they are, in pieces.
pub(super) const LINE_MAX: usize = 64 << 10;

/// Octets of a batch, of lines that are long.
const BATCH_MAX: usize = 1 << 20;

/// Lines that are named together.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) lines: Vec<Line>,
}

/// A line with its end, or a piece of one that is too long.
pub(super) struct Line {
    pub(super) octets: Vec<u8>,
    /// Whether it begins where a line does.
    is_begin: bool,
}

impl Line {
    /// Whether its end is still to come.
    pub(super) fn is_unfinished(&self) -> bool {
        self.octets.last() != Some(&b'\n') && self.octets.len() < LINE_MAX
    }

    /// Whether it stands for a request: an empty one does not, nor does what follows in a long one.
    pub(super) fn is_request(&self) -> bool {
        self.is_begin && !self.octets.trim_ascii().is_empty()
    }

    /// The address in a field, and where it stands.
    pub(super) fn address(&self, field: u16) -> Option<(IpAddr, Range<usize>)> {
        self.is_begin.then(|| address(&self.octets, field)).flatten()
    }
}

impl Batch {
    /// The different addresses of the lines.
    pub(super) fn addresses(&self, field: u16) -> Vec<IpAddr> {
        let addresses = self.lines.iter().filter_map(|line| line.address(field));
        let mut all: Vec<IpAddr> = addresses.map(|(ip, _)| ip).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

pub(super) struct Lines<R> {
    pub(super) from: BufReader<R>,
    /// Whether the piece before was no whole line.
    pub(super) within: bool,
}

impl<R: Read> Lines<R> {
    /// Fills a batch; false where there is nothing more. A batch ends early where the input has nothing at hand, so that
    /// a pipe's lines are not held back.
    pub(super) fn batch(&mut self, batch: &mut Batch) -> io::Result<bool> {
        batch.lines.clear();
        let mut octets = 0;
        while batch.lines.len() < LINES_MAX && octets < BATCH_MAX {
            if !batch.lines.is_empty() && !self.from.buffer().contains(&b'\n') {
                break;
            }
            let mut line = Vec::new();
            (&mut self.from).take(LINE_MAX as u64).read_until(b'\n', &mut line)?;
            if line.is_empty() {
                break;
            }
            octets += line.len();
            let is_begin = !self.within;
            self.within = line.last() != Some(&b'\n');
            // A long line has no whole field to be sure of.
            let is_whole = !self.within || line.len() < LINE_MAX;
            batch.lines.push(Line { octets: line, is_begin: is_begin && is_whole });
        }
        Ok(!batch.lines.is_empty())
    }

    /// How many lines were read and are not written yet: those of this batch, and what was read ahead.
    pub(super) fn held(&self, batch: &Batch) -> u64 {
        let octets = || batch.lines.iter().flat_map(|line| &line.octets).chain(self.from.buffer());
        let whole = octets().filter(|octet| **octet == b'\n').count() as u64;
        whole + u64::from(octets().last().is_some_and(|octet| *octet != b'\n'))
    }
}

/// Whether a place in a file is within a line: a note may be of the pieces of one that is too long.
pub(super) fn is_within(file: &File, at: u64) -> io::Result<bool> {
    let Some(before) = at.checked_sub(1) else { return Ok(false) };
    let mut octet = [0];
    file.read_exact_at(&mut octet, before)?;
    Ok(octet != *b"\n")
}

/// The address in a field of a line, and where it stands.
fn address(line: &[u8], field: u16) -> Option<(IpAddr, Range<usize>)> {
    let mut at = 0;
    for number in 1.. {
        at += line[at..].iter().take_while(|octet| octet.is_ascii_whitespace()).count();
        let length = line[at..].iter().take_while(|octet| !octet.is_ascii_whitespace()).count();
        if length == 0 {
            return None;
        }
        if number == field {
            let address = std::str::from_utf8(&line[at..at + length]).ok()?.parse().ok()?;
            return Some((address, at..at + length));
        }
        at += length;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_their_field() {
        for (line, field, expected) in [
            ("192.0.2.1 - - [x]\n", 1, Some(("192.0.2.1", 0))),
            ("  2001:db8::1\tx", 1, Some(("2001:db8::1", 2))),
            ("a 192.0.2.1\n", 2, Some(("192.0.2.1", 2))),
            ("a 192.0.2.1\n", 3, None),
            ("host.example - -\n", 1, None),
            ("192.0.2.1, 192.0.2.2\n", 1, None),
            ("\n", 1, None),
            ("", 1, None),
        ] {
            let found = address(line.as_bytes(), field).map(|(address, at)| (address.to_string(), at.start));
            assert_eq!(found, expected.map(|(address, at)| (address.to_owned(), at)), "{line:?}");
        }
    }

    #[test]
    fn lines_keep_their_order_and_long_ones_come_in_pieces() {
        let long = format!("192.0.2.9 {}\n", "x".repeat(2 * LINE_MAX));
        let text = format!("192.0.2.1 a\n{long}192.0.2.1 b\n\n192.0.2.2");
        let mut lines = Lines { from: BufReader::with_capacity(LINE_MAX, text.as_bytes()), within: false };
        let (mut batch, mut seen, mut addresses) = (Batch::default(), Vec::new(), Vec::new());
        while lines.batch(&mut batch).unwrap() {
            addresses.extend(batch.addresses(1));
            batch.lines.iter().for_each(|line| seen.extend_from_slice(&line.octets));
        }
        assert!(seen == text.as_bytes());
        addresses.dedup();
        assert_eq!(addresses, ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse::<IpAddr>().unwrap()));
    }
}
