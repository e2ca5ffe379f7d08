//! Names as they are kept: text that breaks no header, no log line and no terminal.
//!
//! What a PTR record says is written by whoever runs the address's reverse zone. Kept are letters, digits, `-`,
//! `_` and `/` (RFC 2317 zones have the last), letters small, labels joined by dots, no final dot. Everything else
//! is refused rather than escaped, so that a name means the same on every face. A name whose last label is a number,
//! decimal or hexadecimal with `0x`, is refused too: it reads as an address, and programs would take it for one.
//! `-` alone is refused: it stands for "no name" in lines of text.

use std::fmt;

/// The longest name in this form, in octets.
pub const TEXT_MAX: usize = 253;

/// Octets that a short part of a name has at most, as nearly all are: they are written at once, however many they are.
pub(crate) const SHORT_MAX: usize = 32;

/// Octets for a name: several are written at once, of which fewer may count.
const ROOM: usize = TEXT_MAX + SHORT_MAX;

/// A name in this form, on the stack.
#[derive(Clone, Copy)]
pub struct NameText {
    octets: [u8; ROOM],
    length: u8,
}

impl NameText {
    /// The empty name, which no answer has: room to be filled.
    pub const EMPTY: NameText = NameText { octets: [0; ROOM], length: 0 };

    /// Reads the uncompressed wire form; `None` where the name is not kept.
    pub fn from_wire(wire: &[u8]) -> Option<NameText> {
        let mut name = NameText::EMPTY;
        let mut rest = wire;
        loop {
            let (&length, behind) = rest.split_first()?;
            if length == 0 {
                break;
            }
            let (label, behind) = behind.split_at_checked(usize::from(length))?;
            if name.length > 0 {
                name.push(b'.').ok()?;
            }
            for octet in label {
                if *octet == b'.' {
                    return None;
                }
                name.push(octet.to_ascii_lowercase()).ok()?;
            }
            rest = behind;
        }
        name.is_kept().then_some(name)
    }

    /// Reads text, with or without the final dot; `None` where the name is not kept.
    pub fn from_text(text: &[u8]) -> Option<NameText> {
        let mut name = NameText::EMPTY;
        for octet in text.strip_suffix(b".").unwrap_or(text) {
            name.push(octet.to_ascii_lowercase()).ok()?;
        }
        name.is_kept().then_some(name)
    }

    /// Writes the wire form; returns its length, at most 255.
    pub fn to_wire(&self, out: &mut [u8; 255]) -> usize {
        let mut at = 0;
        for label in self.octets().split(|octet| *octet == b'.') {
            out[at] = label.len() as u8;
            out[at + 1..at + 1 + label.len()].copy_from_slice(label);
            at += 1 + label.len();
        }
        out[at] = 0;
        at + 1
    }

    /// The octets of the text.
    #[inline]
    pub fn octets(&self) -> &[u8] {
        &self.octets[..usize::from(self.length)]
    }

    /// The name as text, in small letters and without a final dot.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.octets()).unwrap_or_default()
    }

    /// Makes it empty again.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.length = 0;
    }

    /// Adds an octet; an error where there is no room.
    #[inline]
    pub(crate) fn push(&mut self, octet: u8) -> Result<(), ()> {
        *self.octets[..TEXT_MAX].get_mut(usize::from(self.length)).ok_or(())? = octet;
        self.length += 1;
        Ok(())
    }

    /// Makes it what `write` writes; empty where that is an error.
    #[inline]
    pub(crate) fn fill(&mut self, write: impl FnOnce(&mut Room<'_>) -> Result<(), ()>) -> Result<(), ()> {
        let mut room = Room { octets: &mut self.octets, length: 0 };
        let written = write(&mut room);
        self.length = if written.is_ok() { room.length as u8 } else { 0 };
        written
    }

    /// Whether the text is of this form.
    pub(crate) fn is_kept(&self) -> bool {
        let octets = self.octets();
        // All octets, without a decision at each: several are looked at at once.
        let all_of_form = octets.iter().fold(true, |all, octet| all & is_of_form(*octet));
        let pairs = octets.iter().zip(octets.iter().skip(1));
        let has_empty = pairs.fold(false, |any, pair| any | (pair == (&b'.', &b'.')));
        let is_open = octets.first().is_none_or(|octet| *octet == b'.') || octets.last() == Some(&b'.');
        let too_long = |label: &[u8]| label.len() > dns::name::LABEL_MAX;
        let mut labels = octets.rsplit(|octet| *octet == b'.');
        let last = labels.next().unwrap_or_default();
        let is_number = match last.strip_prefix(b"0x") {
            Some(hex) => hex.iter().all(u8::is_ascii_hexdigit),
            None => last.iter().all(u8::is_ascii_digit),
        };
        let is_long = octets.len() > dns::name::LABEL_MAX && (too_long(last) || labels.any(too_long));
        all_of_form && !has_empty && !is_open && !is_number && !is_long && octets != b"-"
    }
}

/// Whether an octet is one of a label, or the dot between two.
#[inline]
fn is_of_form(octet: u8) -> bool {
    octet.is_ascii_lowercase() | octet.is_ascii_digit() | (octet == b'_') | matches!(octet, b'-'..=b'/')
}

/// A name while it is written.
pub(crate) struct Room<'a> {
    octets: &'a mut [u8; ROOM],
    length: usize,
}

impl Room<'_> {
    /// Adds an octet; an error where there is no room.
    #[inline]
    pub(crate) fn push(&mut self, octet: u8) -> Result<(), ()> {
        self.append(octet.into(), 1)
    }

    /// Adds the lowest so many octets of a word, the lowest first; an error where there is no room.
    #[inline]
    pub(crate) fn append(&mut self, word: u64, count: usize) -> Result<(), ()> {
        let room = self.octets.get_mut(self.length..self.length + 8).ok_or(())?;
        room.copy_from_slice(&word.to_le_bytes());
        self.length += count.min(8);
        if self.length > TEXT_MAX { Err(()) } else { Ok(()) }
    }

    /// Adds the first so many octets of these words, the lowest of each first; an error where there is no room.
    #[inline]
    pub(crate) fn append_short(&mut self, words: [u64; SHORT_MAX / 8], count: usize) -> Result<(), ()> {
        let room = self.octets.get_mut(self.length..self.length + SHORT_MAX).ok_or(())?;
        for (room, word) in room.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *room = word.to_le_bytes();
        }
        self.length += count.min(SHORT_MAX);
        if self.length > TEXT_MAX { Err(()) } else { Ok(()) }
    }
}

impl PartialEq for NameText {
    fn eq(&self, other: &NameText) -> bool {
        self.octets() == other.octets()
    }
}

impl Eq for NameText {}

impl fmt::Debug for NameText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_kept() {
        for (text, kept) in [
            ("www.Example.COM", Some("www.example.com")),
            ("a_b.1-2.example.", Some("a_b.1-2.example")),
            ("7.0/25.2.0.192.in-addr.arpa", Some("7.0/25.2.0.192.in-addr.arpa")),
            ("localhost", Some("localhost")),
            ("", None),
            (".", None),
            ("a..b", None),
            (".a", None),
            ("a.b..", None),
            ("192.0.2.1", None),
            ("host.7", None),
            ("0x7f000001", None),
            ("127.0.0.0X1", None),
            ("host.0x", None),
            ("host.0x1g", Some("host.0x1g")),
            ("-", None),
            ("-.example", Some("-.example")),
            ("a b.example", None),
            ("a\r\nb.example", None),
            ("\u{1b}[31m.example", None),
            ("*.example", None),
            ("a\"b.example", None),
            ("2001:db8::1", None),
            ("é.example", None),
        ] {
            let read = NameText::from_text(text.as_bytes());
            assert_eq!(read.as_ref().map(NameText::as_str), kept, "{text:?}");
        }
        for at in 0..3 {
            let mut labels = ["a", "b", "c"].map(|octet| octet.repeat(63));
            assert!(NameText::from_text(labels.join(".").as_bytes()).is_some());
            labels[at].push('x');
            assert!(NameText::from_text(labels[at].as_bytes()).is_none());
            assert!(NameText::from_text(labels.join(".").as_bytes()).is_none(), "label {at}");
        }
        let kept = |octet: &u8| NameText::from_text(&[b'a', *octet, b'a']).is_some();
        let all: String = (0..=255).filter(kept).map(char::from).collect();
        assert_eq!(all, "-./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz");
        let longest =
            [[b'a'; 63], [b'b'; 63], [b'c'; 63], [b'd'; 63]].map(|label| label.to_vec()).join(&b'.');
        assert!(NameText::from_text(&longest[..253]).is_some());
        assert!(NameText::from_text(&longest).is_none());
    }

    #[test]
    fn a_dot_in_a_label_is_not_kept() {
        assert!(NameText::from_wire(b"\x03a.b\x07example\0").is_none());
        assert!(NameText::from_wire(b"\0").is_none());
        assert!(NameText::from_wire(b"\x03ab").is_none());
    }

    proptest! {
        #[test]
        fn wire_and_back(labels in proptest::collection::vec("[a-z0-9_-]{0,12}[a-z]", 1..12)) {
            let text = labels.join(".");
            let name = NameText::from_text(text.as_bytes()).unwrap();
            let mut wire = [0; 255];
            let length = name.to_wire(&mut wire);
            let read = NameText::from_wire(&wire[..length]).unwrap();
            prop_assert_eq!(read.as_str(), text);
        }

        #[test]
        fn any_octets(octets in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Some(name) = NameText::from_wire(&octets) {
                prop_assert!(name.as_str().bytes().all(|o| o.is_ascii_graphic()));
            }
        }
    }
}
