//! The words of an entry of a master file.

use std::ops::Range;

/// The words of one entry, what is quoted with its quotes.
pub(super) struct Tokens<'a> {
    entry: &'a [u8],
    at: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(entry: &'a [u8]) -> Self {
        Tokens { entry, at: 0 }
    }
}

impl Iterator for Tokens<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        loop {
            let octet = *self.entry.get(self.at)?;
            match octet {
                b';' => {
                    let rest = &self.entry[self.at..];
                    self.at += rest.iter().position(|o| *o == b'\n').unwrap_or(rest.len());
                }
                _ if is_space(octet) => self.at += 1,
                _ => break,
            }
        }
        let start = self.at;
        let is_quoted = self.entry[start] == b'"';
        self.at += usize::from(is_quoted);
        while let Some(octet) = self.entry.get(self.at) {
            if is_quoted && *octet == b'"' {
                self.at += 1;
                break;
            }
            if !is_quoted && (is_space(*octet) || matches!(octet, b';' | b'"')) {
                break;
            }
            self.at = (self.at + if *octet == b'\\' { 2 } else { 1 }).min(self.entry.len());
        }
        Some(start..self.at)
    }
}

/// Whether an octet can stand before a word.
pub(super) fn is_space(octet: u8) -> bool {
    octet.is_ascii_whitespace() || matches!(octet, b'(' | b')')
}
