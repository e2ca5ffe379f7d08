//! Where entries of a master file begin and end, so that one bad entry does not hide the next.

use std::borrow::Cow;
use std::ops::Range;

use api::{Fault, Faults};
use domain::zonefile::inplace::Entry;

use super::{Source, include, next_entry, refused, scanner};

/// Adds every fault of `text` to `faults`, scanning each entry by itself.
///
/// Only the origin and the last owner are carried from entry to entry: what the records are no longer
/// matters.
pub(super) fn list_faults(source: &Source<'_>, text: &[u8], depth: usize, faults: &mut Faults) {
    let mut origin: Option<Vec<u8>> = source.origin.map(<[u8]>::to_vec);
    let mut owner: &[u8] = b"";
    let mut line = 1;
    for entry in Entries::new(text) {
        let octets = &text[entry.clone()];
        let owned;
        let (scanned, shift) = if octets.first().is_some_and(|o| is_blank(*o)) {
            owned = [owner, octets].concat();
            (&owned[..], owner.len())
        } else {
            if !octets.starts_with(b"$") {
                owner = first_token(octets);
            }
            (octets, 0)
        };
        if !is_balanced(octets) {
            faults.push(Fault::at(source.name, line, 1, "unbalanced parentheses", "a ')' for each '('"));
            line += lines(octets);
            continue;
        }
        let mut zonefile = scanner(scanned, origin.as_deref());
        let place = match next_entry(&mut zonefile) {
            Ok(Some(Entry::Record(record))) => {
                refused(&record).map(|fault| (1, 1, fault.what, fault.expected))
            }
            Ok(Some(Entry::Include { path, origin })) => {
                include(source, &path, origin, depth, faults, |_, _| ())
                    .err()
                    .map(|f| (1, 1, f.what, f.expected))
            }
            Ok(None) => None,
            Err(error) => {
                let (in_line, column, what) = split(&error);
                let (in_line, column, token) = token_before(scanned, in_line, column);
                let column = if in_line == 1 { column.saturating_sub(shift as u32).max(1) } else { column };
                Some((in_line, column, described(&what, token), expected(&what).to_string()))
            }
        };
        if let Some((in_line, column, what, expected)) = place {
            faults.push(Fault::at(source.name, line + in_line - 1, column, what, expected));
        }
        origin = zonefile.origin().ok().map(|name| name.as_slice().to_vec()).or(origin);
        line += lines(octets);
    }
}

/// Whether each entry closes its parentheses: the scanner must not be shown one that does not.
pub(super) fn is_balanced(text: &[u8]) -> bool {
    let mut entries = Entries::new(text);
    while entries.next().is_some() {
        if entries.unbalanced {
            return false;
        }
    }
    true
}

fn lines(octets: &[u8]) -> u32 {
    octets.iter().filter(|octet| **octet == b'\n').count() as u32
}

/// Where the entry begins that the scanner read between two of its stops: behind blank lines, comments and
/// directives, which it passes over in silence.
pub(super) fn entry_start(text: &[u8], before: usize, after: usize) -> usize {
    let mut begin = before;
    let range = text.get(before..after.min(text.len())).unwrap_or_default();
    for entry in Entries::new(range) {
        let octets = &range[entry.clone()];
        let content = octets.iter().find(|octet| !octet.is_ascii_whitespace());
        if content.is_some_and(|octet| !matches!(octet, b';' | b'$')) {
            begin = before + entry.start;
            break;
        }
    }
    begin
}

/// The text with times such as `1h30m` written as seconds: in `$TTL`, as a record's TTL, and in SOA.
pub(super) fn without_units(text: &[u8]) -> Cow<'_, [u8]> {
    let may_have = text.windows(2).any(|pair| pair[0].is_ascii_digit() && unit(pair[1]).is_some());
    if !may_have {
        return text.into();
    }
    let mut out = Vec::with_capacity(text.len() + 64);
    for entry in Entries::new(text) {
        let octets = &text[entry];
        let mut from = 0;
        let mut soa = false;
        let mut typed = false;
        for (index, token) in Tokens::new(octets).enumerate() {
            let word = &octets[token.clone()];
            let is_owner = index == 0 && !octets.starts_with(b" ") && !octets.starts_with(b"\t");
            if is_owner && !word.eq_ignore_ascii_case(b"$ttl") {
                if word.starts_with(b"$") {
                    break;
                }
                continue;
            }
            match seconds(word) {
                Some(time) if !typed || soa => {
                    out.extend_from_slice(&octets[from..token.start]);
                    out.extend_from_slice(time.to_string().as_bytes());
                    from = token.end;
                }
                _ => {
                    let number = word.iter().all(u8::is_ascii_digit);
                    let class =
                        [&b"in"[..], b"ch", b"hs", b"$ttl"].iter().any(|c| word.eq_ignore_ascii_case(c));
                    soa |= !typed && word.eq_ignore_ascii_case(b"soa");
                    typed |= !number && !class;
                }
            }
        }
        out.extend_from_slice(&octets[from..]);
    }
    out.into()
}

/// A time with units: `90s`, `1h30m`. `None` for anything else, plain numbers too.
fn seconds(word: &[u8]) -> Option<u32> {
    let (mut total, mut number) = (0u32, None);
    for &octet in word {
        match (octet, number) {
            (b'0'..=b'9', _) => {
                number = Some(number.unwrap_or(0u32).checked_mul(10)?.checked_add(u32::from(octet - b'0'))?);
            }
            (_, Some(n)) => {
                total = total.checked_add(unit(octet)?.checked_mul(n)?)?;
                number = None;
            }
            _ => return None,
        }
    }
    (number.is_none() && !word.is_empty()).then_some(total)
}

fn unit(octet: u8) -> Option<u32> {
    match octet.to_ascii_lowercase() {
        b's' => Some(1),
        b'm' => Some(60),
        b'h' => Some(3_600),
        b'd' => Some(86_400),
        b'w' => Some(604_800),
        _ => None,
    }
}

/// The entries of a master file: lines, but for parentheses and quotes that go on over their end.
struct Entries<'a> {
    text: &'a [u8],
    at: usize,
    /// Whether the last entry had a parenthesis too many, on either side.
    unbalanced: bool,
}

impl<'a> Entries<'a> {
    fn new(text: &'a [u8]) -> Self {
        Entries { text, at: 0, unbalanced: false }
    }
}

impl Iterator for Entries<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        if start == self.text.len() {
            return None;
        }
        let (mut depth, mut quoted, mut comment) = (0u32, false, false);
        self.unbalanced = false;
        while self.at < self.text.len() {
            let octet = self.text[self.at];
            self.at += 1;
            match octet {
                b'\n' => {
                    comment = false;
                    if depth == 0 {
                        break;
                    }
                    // A quote that was left open must not swallow the rest of the file.
                    quoted = false;
                }
                _ if comment => {}
                b'\\' => self.at = (self.at + 1).min(self.text.len()),
                b'"' => quoted = !quoted,
                _ if quoted => {}
                b';' => comment = true,
                b'(' => depth += 1,
                b')' if depth == 0 => self.unbalanced = true,
                b')' => depth -= 1,
                _ => {}
            }
        }
        self.unbalanced |= depth > 0;
        Some(start..self.at)
    }
}

/// The unquoted words of one entry.
struct Tokens<'a> {
    entry: &'a [u8],
    at: usize,
}

impl<'a> Tokens<'a> {
    fn new(entry: &'a [u8]) -> Self {
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
                b'"' => {
                    self.at += 1;
                    while let Some(octet) = self.entry.get(self.at) {
                        self.at += if *octet == b'\\' { 2 } else { 1 };
                        if *octet == b'"' {
                            break;
                        }
                    }
                }
                _ if octet.is_ascii_whitespace() || matches!(octet, b'(' | b')') => self.at += 1,
                _ => break,
            }
        }
        let start = self.at;
        while let Some(octet) = self.entry.get(self.at) {
            if octet.is_ascii_whitespace() || matches!(octet, b'(' | b')' | b';' | b'"') {
                break;
            }
            self.at = (self.at + if *octet == b'\\' { 2 } else { 1 }).min(self.entry.len());
        }
        Some(start..self.at)
    }
}

fn is_blank(octet: u8) -> bool {
    octet == b' ' || octet == b'\t'
}

fn first_token(octets: &[u8]) -> &[u8] {
    Tokens::new(octets).next().map_or(&b""[..], |range| &octets[range])
}

/// The word that the scanner had begun when it stood at a line and column, both from 1, and its own place.
fn token_before(entry: &[u8], line: u32, column: u32) -> (u32, u32, Option<&str>) {
    let line_start = |line: u32| {
        let ends = entry.iter().enumerate().filter(|(_, octet)| **octet == b'\n');
        if line <= 1 { 0 } else { ends.map(|(at, _)| at + 1).nth(line as usize - 2).unwrap_or(entry.len()) }
    };
    let at = line_start(line) + column.saturating_sub(1) as usize;
    let Some(token) = Tokens::new(entry).take_while(|token| token.start < at.max(1)).last() else {
        return (line, column, None);
    };
    let line = 1 + lines(&entry[..token.start]);
    let column = 1 + (token.start - line_start(line)) as u32;
    (line, column, std::str::from_utf8(&entry[token]).ok())
}

/// `domain`'s error is `line:column: what`; it offers no other way to its parts.
fn split(error: &str) -> (u32, u32, String) {
    let mut parts = error.splitn(3, ':');
    let mut number = || parts.next().and_then(|part| part.trim().parse().ok()).unwrap_or(1);
    let (line, column) = (number(), number());
    (line, column, parts.next().unwrap_or(error).trim().to_string())
}

fn described(what: &str, token: Option<&str>) -> String {
    let what = match what {
        "expected rtype" => "no record type",
        "missing origin" => "a relative name without an origin",
        "missing last owner" => "a record without an owner name",
        "trailing tokens" => "more than the record type takes",
        other => other,
    };
    match token {
        Some(token) => format!("{what} at '{token}'"),
        None => what.to_string(),
    }
}

fn expected(what: &str) -> &'static str {
    match what {
        "expected rtype" => "a TTL, the class IN or a record type such as A, AAAA or TYPE65280",
        "missing origin" => "$ORIGIN before it, or a name that ends with a dot",
        "missing last owner" => "a name at the beginning of the line",
        "unexpected end of entry" => "more fields for this record type",
        "trailing tokens" => "the end of the line",
        what if what.starts_with("unknown control") => "$ORIGIN, $TTL or $INCLUDE",
        what if what.starts_with("different class") => "class IN",
        "bad name" => "labels of 1 to 63 octets, 255 in all",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_units() {
        for (word, expected) in [
            (&b"1h30m"[..], Some(5400)),
            (b"2W", Some(1_209_600)),
            (b"90", None),
            (b"h", None),
            (b"1h3", None),
            (b"", None),
            (b"99999999999w", None),
        ] {
            assert_eq!(seconds(word), expected, "{word:?}");
        }
    }

    #[test]
    fn entries_go_over_lines_in_parentheses() {
        let text = b"a A 1\nb ( SOA ; (\n x )\n\nc TXT \"(\"\n d";
        let entries: Vec<&[u8]> = Entries::new(text).map(|range| &text[range]).collect();
        assert_eq!(entries, [&b"a A 1\n"[..], b"b ( SOA ; (\n x )\n", b"\n", b"c TXT \"(\"\n", b" d"]);
    }

    #[test]
    fn units_are_rewritten_only_where_times_stand() {
        let text = b"1h 1d IN A 192.0.2.1\n$TTL 1d\nx TXT 1h\n 2h MX 10 1d\n";
        assert_eq!(
            String::from_utf8_lossy(&without_units(text)),
            "1h 86400 IN A 192.0.2.1\n$TTL 86400\nx TXT 1h\n 7200 MX 10 1d\n"
        );
    }
}
