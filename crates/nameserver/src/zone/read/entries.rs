//! Where entries of a master file begin and end, so that one bad entry does not hide the next.

use std::borrow::Cow;
use std::ops::Range;

use api::{Fault, Faults};
use bytes::Bytes;
use dns::{Class, Rtype};
use domain::base::name::Name;
use domain::zonefile::inplace::Entry;

use super::tokens::{Tokens, is_space};
use super::{Place, Scanner, Source, Takes, numbered, refused};
use crate::zone::forms;

/// A file to include, and the origin that it is given.
type Included<'a> = (&'a str, Option<Name<Bytes>>);

/// The longest owner in octets of text that can be one: each of a name's octets as `\DDD`.
const OWNER_TEXT_MAX: usize = 4 * 255;

/// The most of a word, in characters, that a fault repeats.
const SHOWN_MAX: usize = 60;

/// Adds every fault of a file to `faults`, scanning each entry by itself with a copy of the scanner that began it.
///
/// Only the origin and the last owner are carried from entry to entry: what the records are no longer
/// matters. The root stands for an owner that is too long to be one: that has been told, and is not copied for each line.
pub(super) fn list_faults(
    source: &Source<'_>,
    start: &Scanner,
    takes: Takes,
    faults: &mut Faults,
    mut include: impl FnMut(&mut Scanner, Included<'_>, &mut Faults) -> Result<(), Fault>,
) {
    let text = source.text;
    let mut origin = start.zonefile.origin().ok();
    let mut owner: &[u8] = b"";
    let mut line = 1;
    for entry in Entries::new(text) {
        let octets = &text[entry.clone()];
        let owned;
        let (whole, shift) = if octets.first().is_some_and(|o| is_blank(*o)) {
            owned = [owner, octets].concat();
            (&owned[..], owner.len())
        } else {
            if !octets.starts_with(b"$") {
                let token = first_token(octets);
                owner = if token.len() <= OWNER_TEXT_MAX { token } else { b"." };
            }
            (octets, 0)
        };
        if !is_balanced(octets) {
            faults.push(Fault::at(source.name, line, 1, "unbalanced parentheses", "a ')' for each '('"));
            line += lines(octets);
            continue;
        }
        let scanned = without_shorthands(whole, origin.as_ref().map(Name::as_slice)).text;
        let mut scanner = start.clone();
        scanner.show(&scanned);
        if let Some(origin) = &origin {
            scanner.zonefile.set_origin(origin.clone());
        }
        let place = match scanner.next_entry() {
            Ok(Some(Entry::Record(record))) => {
                refused(&record, takes).map(|fault| (1, 1, fault.what, fault.expected))
            }
            Ok(Some(Entry::Include { path, origin })) => {
                let mut scanner = scanner.behind(owner);
                include(&mut scanner, (&path, origin), faults)
                    .err()
                    .map(|fault| (1, 1, fault.what, fault.expected))
            }
            Ok(None) => None,
            Err(error) => {
                let (in_line, column, what) = split(&error);
                let in_line = in_line.saturating_sub(start.lines).max(1);
                let (in_line, column, token) = token_before(&scanned, whole, in_line, column);
                let column = if in_line == 1 { column.saturating_sub(shift as u32).max(1) } else { column };
                Some((in_line, column, described(&what, token.as_deref()), expected(&what, token.as_deref())))
            }
        };
        if let Some((in_line, column, what, expected)) = place {
            faults.push(Fault::at(source.name, line + in_line - 1, column, what, expected));
        }
        origin = scanner.zonefile.origin().ok().or(origin);
        line += lines(octets);
    }
}

/// A part of a master file that ends behind an `$INCLUDE`, or the last.
pub(super) struct Part {
    /// Where it is in the text.
    pub octets: Range<usize>,
    /// Where its last `$TTL` is.
    pub ttl: Option<Range<usize>>,
}

/// The parts of a text; `None` where an entry does not close its parentheses: the scanner must not be shown one.
pub(super) fn parts(text: &[u8]) -> Option<Vec<Part>> {
    let mut parts = vec![Part { octets: 0..0, ttl: None }];
    let mut entries = Entries::new(text);
    while let Some(entry) = entries.next() {
        if entries.unbalanced {
            return None;
        }
        let part = parts.last_mut()?;
        part.octets.end = entry.end;
        if text[entry.start] != b'$' {
            continue;
        }
        let directive = first_token(&text[entry.clone()]);
        if directive.eq_ignore_ascii_case(b"$ttl") {
            part.ttl = Some(entry);
        } else if directive.eq_ignore_ascii_case(b"$include") {
            parts.push(Part { octets: entry.end..entry.end, ttl: None });
        }
    }
    Some(parts)
}

fn is_balanced(entry: &[u8]) -> bool {
    parts(entry).is_some()
}

/// How many lines end in the octets.
pub(super) fn lines(octets: &[u8]) -> u32 {
    octets.iter().filter(|octet| **octet == b'\n').count() as u32
}

/// Where the entry begins that the scanner read between two of its stops: behind blank lines, comments and
/// directives, which it passes over in silence, and behind the rest of an entry with data as octets (RFC 3597 §5), at whose
/// end it does not stand.
pub(super) fn entry_start(text: &[u8], before: usize, after: usize) -> usize {
    let mut begin = before;
    let range = text.get(before..after.min(text.len())).unwrap_or_default();
    for entry in Entries::new(range) {
        let octets = &range[entry.clone()];
        let content = octets.iter().find(|octet| !octet.is_ascii_whitespace());
        if content.is_some_and(|octet| !matches!(octet, b';' | b'$')) {
            begin = before + entry.start;
        }
    }
    begin
}

/// The text with what operators write and the scanner does not take written otherwise: times such as `1h30m` in
/// `$TTL`, as a record's TTL and in SOA as seconds; in data and directives the name `@` (RFC 1035 §5.1) as an empty
/// string, in which the scanner sees the origin; a quoted `@` as an owner, which the scanner takes for the origin, with a
/// backslash; a tab in quotes as `\009`; and names of DNSSEC algorithms as numbers.
///
/// Data of types that it does not know is written as octets (RFC 3597 §5), names in it below `origin` or the text's own;
/// or its record as one of a type with the same form. And a word of older texts of our own, `nodefaultalpn`, as
/// `no-default-alpn`.
pub(super) fn without_shorthands<'t>(text: &'t [u8], origin: Option<&[u8]>) -> Plain<'t> {
    let may_have = text.windows(2).any(|pair| match pair[1] {
        b'@' => is_space(pair[0]) || pair[0] == b'"',
        octet => pair[0].is_ascii_digit() && unit(octet).is_some(),
    });
    let has_words = || {
        let mut words = text.split(|octet| is_space(*octet) || matches!(octet, b';' | b'"'));
        words.any(|word| {
            let is_shorthand = || forms::is_named(word) || forms::algorithm(word).is_some();
            word == OLD_NO_DEFAULT_ALPN
                || numbered::is_numbered(word)
                || numbered::may_end_empty(word)
                || is_shorthand()
        })
    };
    if !may_have && !has_tab_in_quotes(text) && !has_words() {
        return Plain { text: text.into(), types: Vec::new() };
    }
    let mut out = Vec::with_capacity(text.len() + 64);
    let mut types = Vec::new();
    let mut origin = origin.map(<[u8]>::to_vec);
    for entry in Entries::new(text) {
        let octets = &text[entry];
        let (start, mut from, mut end) = (out.len() as u32, 0, 0);
        let mut kind = Kind::Open;
        for (index, token) in Tokens::new(octets).enumerate() {
            let word = &octets[token.clone()];
            end = token.end;
            if index == 0 && !octets.starts_with(b" ") && !octets.starts_with(b"\t") {
                if word.starts_with(b"$") {
                    kind = Kind::Directive(word, 0);
                } else if word == b"\"@\"" {
                    out.extend_from_slice(b"\\@");
                    from = token.end;
                }
                continue;
            }
            let mut behind = kind.behind(word);
            let plain = match (&kind, &behind) {
                (Kind::Open, Kind::Record(rtype, _)) => forms::alike(*rtype).map(|other| {
                    types.push((start, *rtype));
                    other.to_string().into_bytes().into()
                }),
                (Kind::Record(rtype, 0), _)
                    if let Some(data) = data(*rtype, &octets[token.start..], origin.as_deref()) =>
                {
                    behind = Kind::Octets;
                    Some(forms::generic(&data).into_bytes().into())
                }
                (Kind::Directive(name, 0), _) if name.eq_ignore_ascii_case(b"$origin") => {
                    origin = forms::name(word, origin.as_deref());
                    kind.plain(word)
                }
                (Kind::Record(Rtype::SVCB | Rtype::HTTPS, 2..), _)
                    if numbered::ends_empty(parameter(octets, &token)) =>
                {
                    // The scanner passes over an empty item, where it is the last.
                    let value = word.strip_suffix(b"\"").unwrap_or(word);
                    Some([value, b",", &word[value.len()..]].concat().into())
                }
                _ => kind.plain(word),
            };
            if let Some(plain) = plain.or_else(|| without_tabs(word)) {
                out.extend_from_slice(&octets[from..token.start]);
                out.extend_from_slice(&plain);
                from = token.end;
            }
            kind = behind;
        }
        // Data that may have no word at all.
        if let Kind::Record(rtype, 0) = kind
            && let Some(data) = data(rtype, b"", origin.as_deref())
        {
            out.extend_from_slice(&octets[from..end]);
            out.push(b' ');
            out.extend_from_slice(forms::generic(&data).as_bytes());
            from = end;
        }
        out.extend_from_slice(&octets[from..]);
    }
    Plain { text: out.into(), types }
}

/// A text as the scanner takes it.
pub(super) struct Plain<'a> {
    /// The text.
    pub(super) text: Cow<'a, [u8]>,
    /// Where entries begin that are written as records of another type, and the type they are of.
    types: Vec<(u32, Rtype)>,
}

impl Plain<'_> {
    /// The type of a record that the scanner read between two of its stops, as one of this type.
    pub(super) fn rtype(&self, scanned: Rtype, (before, after): Place) -> Rtype {
        let behind = self.types.partition_point(|(start, _)| *start < after);
        let entry = self.types[..behind].last().filter(|(start, _)| *start >= before);
        entry.map_or(scanned, |(_, rtype)| *rtype)
    }
}

/// Whether a line has a tab behind one quote and before another.
fn has_tab_in_quotes(text: &[u8]) -> bool {
    text.split(|octet| *octet == b'\n').any(|line| {
        let quotes = line.iter().position(|o| *o == b'"').zip(line.iter().rposition(|o| *o == b'"'));
        quotes.is_some_and(|(first, last)| line[first..last].contains(&b'\t'))
    })
}

/// A quoted word that has tabs, each as an escape.
fn without_tabs(word: &[u8]) -> Option<Cow<'static, [u8]>> {
    if !word.starts_with(b"\"") || !word.contains(&b'\t') {
        return None;
    }
    let octets = word.split(|octet| *octet == b'\t').collect::<Vec<_>>().join(&b"\\009"[..]);
    Some(octets.into())
}

/// The octets of data that begins an entry's rest, where it is read here.
fn data(rtype: Rtype, rest: &[u8], origin: Option<&[u8]>) -> Option<Vec<u8>> {
    if matches!(rtype, Rtype::SVCB | Rtype::HTTPS) {
        return numbered::data(rtype, rest, origin);
    }
    forms::example(rtype)?;
    let words: Vec<&[u8]> = Tokens::new(rest).map(|token| &rest[token]).collect();
    forms::read(rtype, &words, origin)
}

/// The word that ends with a token: what is quoted goes on with what stands right before it.
fn parameter<'t>(octets: &'t [u8], token: &Range<usize>) -> &'t [u8] {
    let is_quoted = octets[token.start] == b'"';
    let before = octets[..token.start].rsplit(|octet| is_space(*octet)).next().filter(|_| is_quoted);
    &octets[token.start - before.map_or(0, <[u8]>::len)..token.end]
}

/// The origin, as `domain` reads it in data and directives.
const ORIGIN: &[u8] = b"\"\"";

/// A key of SVCB and HTTPS records (RFC 9460 §7.1).
pub(in crate::zone) const NO_DEFAULT_ALPN: &str = "no-default-alpn";

/// What `domain` writes for [`NO_DEFAULT_ALPN`], and does not read.
pub(in crate::zone) const OLD_NO_DEFAULT_ALPN: &[u8] = b"nodefaultalpn";

/// What an entry is known to be, from its words so far.
enum Kind<'a> {
    /// A record whose type is still to come.
    Open,
    /// A record, and how many words of its data there were.
    Record(Rtype, usize),
    Directive(&'a [u8], usize),
    /// A record whose data is written with its first word: the others are left out.
    Octets,
}

impl Kind<'_> {
    /// What an entry is behind one more word.
    fn behind(&self, word: &[u8]) -> Self {
        match *self {
            Kind::Record(rtype, words) => Kind::Record(rtype, words + 1),
            Kind::Directive(name, words) => Kind::Directive(name, words + 1),
            Kind::Octets => Kind::Octets,
            Kind::Open => {
                let is_ttl = word.iter().all(u8::is_ascii_digit);
                let text = std::str::from_utf8(word).unwrap_or_default();
                let rtype = text.parse::<Rtype>().ok();
                let is_class = rtype.is_none() && text.parse::<Class>().is_ok();
                if is_ttl || is_class || seconds(word).is_some() {
                    return Kind::Open;
                }
                // Of a type that is none no word is known.
                Kind::Record(rtype.unwrap_or(Rtype::NULL), 0)
            }
        }
    }

    /// How the next word is written plainly, where it is a shorthand.
    fn plain(&self, word: &[u8]) -> Option<Cow<'static, [u8]>> {
        let has_times = match *self {
            Kind::Open => true,
            // Behind two names and the serial number.
            Kind::Record(rtype, words) => rtype == Rtype::SOA && words > 2,
            Kind::Directive(name, _) => name.eq_ignore_ascii_case(b"$ttl"),
            Kind::Octets => return Some(Cow::Borrowed(b"")),
        };
        if let Some(time) = seconds(word).filter(|_| has_times) {
            return Some(time.to_string().into_bytes().into());
        }
        match (word, self) {
            (b"@", _) => self.takes_name().then(|| ORIGIN.into()),
            _ if self.takes_algorithm() => {
                forms::algorithm(word).map(|number| number.to_string().into_bytes().into())
            }
            (OLD_NO_DEFAULT_ALPN, Kind::Record(Rtype::SVCB | Rtype::HTTPS, _)) => {
                Some(NO_DEFAULT_ALPN.as_bytes().into())
            }
            _ => None,
        }
    }

    /// Whether the next word is a DNSSEC algorithm.
    fn takes_algorithm(&self) -> bool {
        match *self {
            Kind::Record(rtype, words) => match forms::alike(rtype).unwrap_or(rtype) {
                Rtype::DS | Rtype::CDS | Rtype::RRSIG => words == 1,
                Rtype::DNSKEY | Rtype::CDNSKEY => words == 2,
                _ => false,
            },
            Kind::Open | Kind::Directive(..) | Kind::Octets => false,
        }
    }

    /// Whether the next word is a name.
    fn takes_name(&self) -> bool {
        match *self {
            Kind::Open | Kind::Octets => false,
            Kind::Directive(name, words) => words == usize::from(name.eq_ignore_ascii_case(b"$include")),
            Kind::Record(rtype, words) => match forms::alike(rtype).unwrap_or(rtype) {
                Rtype::NS | Rtype::MD | Rtype::MF | Rtype::CNAME | Rtype::MB | Rtype::MG | Rtype::MR => {
                    words == 0
                }
                Rtype::PTR | Rtype::DNAME | Rtype::NSEC => words == 0,
                Rtype::SOA | Rtype::MINFO | Rtype::RP => words <= 1,
                Rtype::MX | Rtype::SVCB | Rtype::HTTPS => words == 1,
                Rtype::SRV | Rtype::IPSECKEY => words == 3,
                Rtype::NAPTR => words == 5,
                Rtype::RRSIG => words == 7,
                _ => false,
            },
        }
    }
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

fn is_blank(octet: u8) -> bool {
    octet == b' ' || octet == b'\t'
}

fn first_token(octets: &[u8]) -> &[u8] {
    Tokens::new(octets).next().map_or(&b""[..], |range| &octets[range])
}

/// The word that the scanner had begun when it stood at a line and column, both from 1, and its place and text in
/// the entry as it was before shorthands were taken from it.
fn token_before<'a>(
    scanned: &[u8],
    entry: &'a [u8],
    line: u32,
    column: u32,
) -> (u32, u32, Option<Cow<'a, str>>) {
    let at = line_start(scanned, line) + column.saturating_sub(1) as usize;
    let begun = Tokens::new(scanned).take_while(|token| token.start < at.max(1)).count();
    let Some(token) = Tokens::new(entry).take(begun).last() else {
        return (line, column, None);
    };
    let line = 1 + lines(&entry[..token.start]);
    let column = 1 + (token.start - line_start(entry, line)) as u32;
    (line, column, Some(String::from_utf8_lossy(entry[token].trim_ascii_end())))
}

/// Where a line of an entry starts; lines are counted from 1.
fn line_start(entry: &[u8], line: u32) -> usize {
    let ends = entry.iter().enumerate().filter(|(_, octet)| **octet == b'\n');
    if line <= 1 { 0 } else { ends.map(|(at, _)| at + 1).nth(line as usize - 2).unwrap_or(entry.len()) }
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
        "expected SecurityAlgorithm" => "no DNSSEC algorithm",
        "missing origin" => "a relative name without an origin",
        "missing last owner" => "a record without an owner name",
        "trailing tokens" => "more than the record type takes",
        other => other,
    };
    match token.map(|token| (token, token.char_indices().nth(SHOWN_MAX))) {
        Some((token, Some((end, _)))) => format!("{what} at '{}...'", &token[..end]),
        Some((token, None)) => format!("{what} at '{token}'"),
        None => what.to_string(),
    }
}

/// What words about the parameters of SVCB and HTTPS records have in them.
const SVC_PARAMS: [&str; 9] =
    ["SvcParam", "svc param", "alpn", "mandatory", "hint", "port ", "ech ", "dohpath", "ohttp"];

fn expected(what: &str, token: Option<&str>) -> String {
    let example = token.and_then(|token| forms::example(token.parse().ok()?));
    if let ("unknown record type with concrete data", Some(example)) = (what, example) {
        return format!("data such as {example}, or \\# LENGTH HEX (RFC 3597)");
    }
    let is_open = token.is_some_and(|token| token.starts_with('"') && !token[1..].ends_with('"'));
    match what {
        "expected rtype" => "a TTL, the class IN or a record type such as A, AAAA or TYPE65280",
        "missing origin" => "$ORIGIN before it, or a name that ends with a dot",
        "missing last owner" => "a name at the beginning of the line",
        "unexpected end of entry" => "more fields for this record type",
        "unknown record type with concrete data" => "its data as \\# LENGTH HEX (RFC 3597)",
        what if what.starts_with("bad symbol") && is_open => "a quote behind the text, on the same line",
        what if what.starts_with("bad symbol") => {
            "printable ASCII, any other octet as \\DDD in decimal digits up to \\255 (RFC 1035 §5.1)"
        }
        "bad charstr" => "strings of at most 255 octets each, several side by side (RFC 1035 §3.3)",
        "decimal number overflow" => "a whole number that the field holds",
        "expected SecurityAlgorithm" => {
            "a number or name such as 13 or ECDSAP256SHA256 (RFC 4034 appendix A.1)"
        }
        "illegal signature time" => "YYYYMMDDHHmmSS in UTC, or seconds since 1970 (RFC 4034 §3.2)",
        "illegal NSEC3 salt" => "at most 255 octets in hexadecimal digits, or - for none (RFC 5155 §3.3)",
        "trailing tokens" => "the end of the line",
        what if what.starts_with("unknown control") => {
            "$ORIGIN, $TTL or $INCLUDE; what $GENERATE stands for is written by named-compilezone"
        }
        what if what.starts_with("different class") => "class IN",
        "bad name" => "labels of 1 to 63 octets, 255 in all",
        what if SVC_PARAMS.iter().any(|part| what.contains(part)) => {
            "parameters such as alpn=h2,h3 port=443 ipv4hint=192.0.2.1, without escapes (RFC 9460 §7)"
        }
        _ => "",
    }
    .to_owned()
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
    fn shorthands_are_rewritten_only_where_they_stand() {
        for (text, expected) in [
            ("1h 1d IN A 192.0.2.1\n$TTL 1d\n", "1h 86400 IN A 192.0.2.1\n$TTL 86400\n"),
            ("x TXT 1h\n 2h MX 10 1d\n", "x TXT 1h\n 7200 MX 10 1d\n"),
            ("x CLASS1 1h NS @\n", "x CLASS1 3600 NS \"\"\n"),
            ("@ SOA ( @\n@ 1 1h )\n", "@ SOA ( \"\"\n\"\" 1 3600 )\n"),
            ("@ TYPE15 1 @\na@ NS @;\n", "@ TYPE15 1 \"\"\na@ NS \"\";\n"),
            ("a TXT @ \"@\" @\na CNAME \"@\"\na NS \\@\n", "a TXT @ \"@\" @\na CNAME \"@\"\na NS \\@\n"),
            ("a TYPE65000 @\na @ @\na LOC @\n", "a TYPE65000 @\na @ @\na LOC @\n"),
            ("\"@\" NS @\n\"@\" TXT \"@\"\n", "\\@ NS \"\"\n\\@ TXT \"@\"\n"),
            ("a\tTXT\t\"b\tc\"\td\n", "a\tTXT\t\"b\\009c\"\td\n"),
            ("a TXT \"b\tc\nd\tTXT \"e\tf\"\n", "a TXT \"b\\009c\nd\tTXT \"e\\009f\"\n"),
            ("a NAPTR 1 1 \"\" @ @ @\n", "a NAPTR 1 1 \"\" @ @ \"\"\n"),
            ("a MX @ @\na RP @ @ @\n", "a MX @ \"\"\na RP \"\" \"\" @\n"),
            ("$ORIGIN @\n$INCLUDE @ @ ; @\n", "$ORIGIN \"\"\n$INCLUDE @ \"\" ; @\n"),
            ("a HTTPS 1 . nodefaultalpn\n", "a HTTPS 1 . no-default-alpn\n"),
            ("a TXT nodefaultalpn\n", "a TXT nodefaultalpn\n"),
            ("a HTTPS 1 . nodefaultalpn;\n", "a HTTPS 1 . no-default-alpn;\n"),
            ("a afsdb ( 1 ; b\n @ )\n", "a MX ( 1 ; b\n \"\" )\n"),
            ("a 60 NID ( 1 ; b\n 1:2:3:4 ) ; c\n", "a 60 NID ( \\# 10 00010001000200030004 ; b\n  ) ; c\n"),
            ("a NID 1 1:2:3\na ISDN \\# 0\na NID\n", "a NID 1 1:2:3\na ISDN \\# 0\na NID\n"),
            ("loc TXT loc spf\n", "loc TXT loc spf\n"),
            (
                "a PX 1 a. b\n$origin @\n$ORIGIN p\na PX 1 @ .\n",
                "a PX \\# 10 00010161000162016f00  \n$origin \"\"\n$ORIGIN p\na PX \\# 8 00010170016f0000  \n",
            ),
        ] {
            let plain = without_shorthands(text.as_bytes(), Some(b"\x01o\0"));
            assert_eq!(String::from_utf8_lossy(&plain.text), expected);
        }
    }
}
