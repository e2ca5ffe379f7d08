//! Names: folded for comparison, and between wire and text.
//!
//! A name on the wire is a run of labels, each a length octet and up to 63 octets, ended by the root's
//! zero octet (RFC 1035 §3.1). Letters compare without regard to case (RFC 4343), so names are looked up
//! *folded*: every `A` to `Z` made small. A length octet is at most 63 and `A` is 65, so folding can run
//! over the whole wire form without looking at where labels begin.

use std::fmt;
use std::str::FromStr;

use domain::base::name::Name;

/// The longest name on the wire, in octets, its final zero included (RFC 1035 §3.1).
pub const NAME_MAX: usize = 255;

/// The longest label, in octets (RFC 1035 §3.1).
pub const LABEL_MAX: usize = 63;

/// The most labels that a name of [`NAME_MAX`] octets can have, the root's not counted.
pub const LABELS_MAX: usize = 127;

/// A name folded to small letters, with the place of each label.
///
/// It lives on the stack, so that a query's name can be looked up without allocating.
#[derive(Clone)]
pub struct Folded {
    bytes: [u8; NAME_MAX + 1],
    length: u8,
    starts: [u8; LABELS_MAX + 1],
    labels: u8,
}

impl Folded {
    /// The root.
    #[inline]
    pub fn root() -> Folded {
        Folded { bytes: [0; NAME_MAX + 1], length: 1, starts: [0; LABELS_MAX + 1], labels: 0 }
    }

    /// Reads an uncompressed name at the front of `wire`, folding it.
    ///
    /// Octets after the name are left alone; [`Folded::wire_length`] tells how many were read. `None`
    /// where `wire` holds no whole, valid, uncompressed name.
    pub fn read(wire: &[u8]) -> Option<Folded> {
        let mut name = Folded::root();
        name.set(wire).then_some(name)
    }

    /// Reads a name as [`Folded::read`] does, in the place of this one; where there is none, false is returned
    /// and this name stays as it was.
    ///
    /// A name takes some 400 octets: who answers queries makes one and reads each name into it.
    #[inline]
    #[must_use]
    pub fn set(&mut self, wire: &[u8]) -> bool {
        let mut starts = self.starts;
        let (mut at, mut labels) = (0, 0);
        loop {
            let Some(&length) = wire.get(at) else { return false };
            let length = usize::from(length);
            if length == 0 {
                break;
            }
            // One octet is kept free for the root that must still follow.
            if length > LABEL_MAX || at + 1 + length >= NAME_MAX {
                return false;
            }
            starts[labels] = at as u8;
            labels += 1;
            at += 1 + length;
        }
        let length = at + 1;
        self.bytes[..length].copy_from_slice(&wire[..length]);
        self.bytes[..length].make_ascii_lowercase();
        (self.starts, self.labels, self.length) = (starts, labels as u8, length as u8);
        true
    }

    /// The number of labels, the root's not counted: 0 to [`LABELS_MAX`].
    #[inline]
    pub fn labels(&self) -> usize {
        usize::from(self.labels)
    }

    /// The octets of the whole name, the root's zero included: 1 to [`NAME_MAX`].
    #[inline]
    pub fn wire_length(&self) -> usize {
        usize::from(self.length)
    }

    /// The folded wire form.
    #[inline]
    pub fn wire(&self) -> &[u8] {
        &self.bytes[..self.wire_length()]
    }

    /// The folded wire form of the last `labels` labels; the root for 0.
    ///
    /// # Panics
    /// Where `labels` is more than the name has.
    #[inline]
    pub fn suffix(&self, labels: usize) -> &[u8] {
        &self.bytes[self.suffix_start(labels)..self.wire_length()]
    }

    /// Where in the wire form the last `labels` labels begin.
    ///
    /// # Panics
    /// Where `labels` is more than the name has.
    #[inline]
    pub fn suffix_start(&self, labels: usize) -> usize {
        if labels == 0 { self.wire_length() - 1 } else { usize::from(self.starts[self.labels() - labels]) }
    }

    /// The label at `depth`, counted from the root's side: depth 1 is the top-level label. Its length
    /// octet comes first.
    ///
    /// # Panics
    /// Where `depth` is 0 or more than [`Folded::labels`].
    #[inline]
    pub fn label(&self, depth: usize) -> &[u8] {
        let start = usize::from(self.starts[self.labels() - depth]);
        &self.bytes[start..start + 1 + usize::from(self.bytes[start])]
    }
}

impl fmt::Debug for Folded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_text(self.wire()))
    }
}

/// Writes a valid wire-form name as absolute text, `www.example.com.`, with RFC 1035 §5.1 escapes.
///
/// # Panics
/// Where `wire` is not exactly one valid uncompressed name: it must have been checked before.
pub fn to_text(wire: &[u8]) -> String {
    let mut text = String::with_capacity(wire.len());
    push_text(&mut text, wire);
    text
}

/// Writes a name as [`to_text`] does, at the end of a text.
///
/// # Panics
/// As [`to_text`].
pub fn push_text(text: &mut String, wire: &[u8]) {
    let name = Name::from_slice(wire).expect("the name was checked when it was read");
    for label in name.iter().filter(|label| !label.is_root() || name.is_root()) {
        for octet in label.as_slice() {
            match *octet {
                octet @ b' '..=b'~' => {
                    if matches!(octet, b' ' | b'.' | b'\\') || is_special(octet.into()) {
                        text.push('\\');
                    }
                    text.push(octet.into());
                }
                octet => {
                    text.push('\\');
                    text.extend(
                        [octet / 100, octet / 10 % 10, octet % 10].map(|digit| char::from(b'0' + digit)),
                    );
                }
            }
        }
        text.push('.');
    }
}

/// Puts a backslash before what means something in a master file (RFC 1035 §5.1): `domain` writes names without.
///
/// `shown` is a name as `domain` shows it: no such character has a backslash of its own yet.
pub fn escape(shown: &str) -> String {
    let mut text = String::with_capacity(shown.len());
    for c in shown.chars() {
        if is_special(c) {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

fn is_special(c: char) -> bool {
    matches!(c, '"' | '(' | ')' | ';' | '@' | '$')
}

/// Reads a name from text, in any case, with or without the final dot, into its wire form as written.
///
/// # Errors
/// A fragment that says what is wrong: an empty or too long label, a too long name, a bad escape.
pub fn from_text(text: &str) -> Result<Vec<u8>, String> {
    if text.is_empty() {
        return Err("the name is empty".into());
    }
    let name =
        Name::<Vec<u8>>::from_str(text).map_err(|cause| format!("'{text}' is not a domain name: {cause}"))?;
    let wire = name.into_octets();
    // `domain` takes a relative text of one octet too many and makes it absolute.
    if wire.len() > NAME_MAX {
        return Err(format!("'{text}' is not a domain name: it is longer than {NAME_MAX} octets"));
    }
    Ok(wire)
}

/// Reads a name from text into its folded wire form: what names are compared and stored by.
///
/// # Errors
/// As [`from_text`].
pub fn folded_from_text(text: &str) -> Result<Vec<u8>, String> {
    let mut wire = from_text(text)?;
    wire.make_ascii_lowercase();
    Ok(wire)
}

/// Reads the name of a host from text into its folded wire form; what was meant for an address is none, as no name ends with
/// a label of digits alone (RFC 3696 §2).
///
/// # Errors
/// As [`from_text`].
pub fn host_from_text(text: &str) -> Result<Vec<u8>, String> {
    let host = text.strip_suffix('.').unwrap_or(text);
    let last = host.rsplit('.').next().unwrap_or_default();
    if host.contains(':') || !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("'{text}' is no name"));
    }
    folded_from_text(text)
}

/// Whether the valid wire-form name `name` is `zone` or below it; both folded.
pub fn is_within(name: &[u8], zone: &[u8]) -> bool {
    let mut at = 0;
    loop {
        let rest = &name[at..];
        if rest.len() <= zone.len() {
            return rest == zone;
        }
        at += 1 + usize::from(rest[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_address_is_no_host() {
        for text in ["192.0.2.1", "192.0.2.300", "192.0.2.1.", "2001:db8::1", "1", "a..b", ""] {
            assert!(host_from_text(text).is_err(), "{text}");
        }
        for text in ["www.Example.com", "1.example.", "localhost", "a1.b2", "."] {
            assert_eq!(host_from_text(text), folded_from_text(text), "{text}");
        }
    }

    fn folded(text: &str) -> Folded {
        Folded::read(&from_text(text).unwrap()).unwrap()
    }

    #[test]
    fn a_name_is_folded_and_its_labels_are_found() {
        let name = folded("WWW.Example.COM");
        assert_eq!(name.wire(), b"\x03www\x07example\x03com\0");
        assert_eq!(name.labels(), 3);
        assert_eq!(name.label(1), b"\x03com");
        assert_eq!(name.label(3), b"\x03www");
        assert_eq!(name.suffix(2), b"\x07example\x03com\0");
        assert_eq!(name.suffix(0), b"\0");
    }

    #[test]
    fn the_root_has_no_labels() {
        let root = folded(".");
        assert_eq!((root.wire(), root.labels(), root.suffix(0)), (&b"\0"[..], 0, &b"\0"[..]));
        assert_eq!(to_text(root.wire()), ".");
    }

    #[test]
    fn names_at_and_over_the_limits() {
        let longest = [&[1, b'a'].repeat(127)[..], &[0]].concat();
        assert_eq!(Folded::read(&longest).unwrap().labels(), LABELS_MAX);
        let over = [&[1, b'a'].repeat(127)[..], &[1, b'a', 0]].concat();
        assert!(Folded::read(&over).is_none());
        for bad in [&b""[..], b"\x03ww", b"\x40", b"\xc0\x0c", b"\x01a"] {
            assert!(Folded::read(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn a_text_of_one_octet_too_many_is_refused() {
        assert_eq!(from_text(&["a"; 127].join(".")).unwrap().len(), NAME_MAX);
        for over in [format!("{}.bb", ["a"; 126].join(".")), format!("{}.bb.", ["a"; 126].join("."))] {
            assert!(from_text(&over).is_err(), "{over}");
        }
    }

    #[test]
    fn within_compares_whole_labels() {
        let wire = |text| folded_from_text(text).unwrap();
        for (name, zone, expected) in [
            ("www.example.com", "example.com", true),
            ("example.com", "example.com", true),
            ("wwwexample.com", "example.com", false),
            ("com", "example.com", false),
            ("example.com", ".", true),
        ] {
            assert_eq!(is_within(&wire(name), &wire(zone)), expected, "{name} in {zone}");
        }
    }

    proptest! {
        #[test]
        fn texts_are_those_of_domain_with_escapes(
            labels in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..=LABEL_MAX), 0..=3),
        ) {
            let mut wire = labels.iter().fold(Vec::new(), |mut wire, label| {
                wire.push(label.len() as u8);
                wire.extend(label);
                wire
            });
            wire.push(0);
            let theirs = format!("{}.", Name::from_slice(&wire).expect("it is short"));
            prop_assert_eq!(to_text(&wire), escape(if labels.is_empty() { "." } else { &theirs }));
        }

        #[test]
        fn reading_agrees_with_domain(wire in proptest::collection::vec(any::<u8>(), 0..300)) {
            let theirs = Name::from_slice(&wire);
            let mut parser = domain::dep::octseq::Parser::from_ref(wire.as_slice());
            let parsed = domain::base::name::ParsedName::parse_ref(&mut parser);
            match Folded::read(&wire) {
                Some(name) => {
                    let front = Name::from_slice(&wire[..name.wire_length()]).expect("we read it");
                    prop_assert_eq!(name.wire(), front.as_slice().to_ascii_lowercase());
                    prop_assert_eq!(name.labels() + 1, front.label_count());
                }
                None => {
                    prop_assert!(theirs.is_err());
                    // What we refuse, `domain` refuses too, or it followed a compression pointer.
                    if let Ok(name) = parsed { prop_assert!(name.is_compressed()); }
                }
            }
        }
    }
}
