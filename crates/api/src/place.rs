//! Where a value stands in a JSON text, so that every fault can name line and column.
//!
//! `serde_json` reports the first mistake and forgets places as soon as it has read a value. What a
//! person wrote is therefore read by a `Reader`: the same syntax, checked by `serde_json`, and then value after value in
//! the order of the text, with everything that is wrong collected. An [`Origin`] maps JSON pointers (RFC 6901), in which
//! checks of the meaning name a value, to places. Neither makes a tree of the text.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::fmt::{self, Display, Write};
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::fault::{Fault, Faults};

/// The longest JSON text, in bytes: a policy of 256 servers and some hundred regions needs 4 MiB.
pub const TEXT_MAX: usize = 16 << 20;

/// How deep arrays and objects may nest; `serde_json` refuses what is deeper.
pub const NESTING_MAX: usize = 127;

/// Something wrong with the meaning of a value, which a JSON pointer (RFC 6901) names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointed {
    /// The value, such as `/servers/1/address`; made with [`pointer()`].
    pub pointer: String,
    /// What is wrong, in lower case, without a full stop.
    pub what: String,
    /// What was expected instead; may be empty.
    pub expected: String,
}

/// What a checked value was read from.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Its name in faults: a file's path, `body`, or what the value is, such as `policy www.example.com`.
    pub source: &'a str,
    /// The JSON text, where it is at hand.
    pub text: Option<&'a str>,
}

/// Takes values out of a JSON text, one after the other, and collects what is wrong with them.
///
/// Each method takes the value that is next, also where it is not the one that is wanted: that is a fault, and passed over.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    text: Text<'a>,
    scanner: Scanner<'a>,
    faults: Faults,
}

/// A JSON text and its name in faults.
#[derive(Debug)]
struct Text<'a> {
    source: &'a str,
    text: &'a str,
    /// Where each line begins, in bytes, once a fault has to tell one.
    lines: OnceCell<Vec<usize>>,
}

/// Goes through a text that `serde_json` found to be JSON. From one that is not it takes anything, but comes to its end.
#[derive(Debug)]
struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

/// A value; what is in an array or object is still ahead. A number stays text, since only its reader knows of which type
/// it is to be.
#[derive(Debug)]
enum Value<'a> {
    Null,
    Boolean,
    Number(&'a str),
    String(Cow<'a, str>),
    Array,
    Object,
}

/// What `serde_json` makes of a text that is only to be checked: nothing, after it has read every value whole.
struct Checked;

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Checked, D::Error> {
        deserializer.deserialize_any(Checked)
    }
}

impl<'de> Visitor<'de> for Checked {
    type Value = Checked;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_str<E>(self, _: &str) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Checked, A::Error> {
        while let Some(Checked) = elements.next_element()? {}
        Ok(Checked)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Checked, A::Error> {
        while let Some((Checked, Checked)) = members.next_entry()? {}
        Ok(Checked)
    }
}

impl<'a> Reader<'a> {
    /// A reader of `text`; `source` names it in faults.
    ///
    /// # Errors
    /// One fault where `text` is not JSON, is longer than [`TEXT_MAX`] or nests deeper than
    /// [`NESTING_MAX`].
    pub(crate) fn new(source: &'a str, text: &'a str) -> Result<Reader<'a>, Faults> {
        let scanner = Scanner { text, at: 0 };
        Ok(Reader { text: Text::check(source, text)?, scanner, faults: Faults::default() })
    }

    /// `value` where nothing was wrong; else all faults in the order of the text.
    pub(crate) fn finish<T>(mut self, value: Option<T>) -> Result<T, Faults> {
        self.faults.faults.sort_by_key(|fault| (fault.line, fault.column));
        match value {
            Some(value) => self.faults.or(value),
            None => Err(self.faults),
        }
    }

    /// Takes an object with no other keys than `required` and `optional`, and none of them twice; `member` takes the value
    /// of each.
    pub(crate) fn object(
        &mut self,
        required: &[&str],
        optional: &[&str],
        mut member: impl FnMut(&mut Self, &str),
    ) -> Option<()> {
        let begin = self.enter(b'{', "an object")?;
        let mut seen = 0_u64;
        while let Some((at, key)) = self.scanner.key() {
            match required.iter().chain(optional).position(|known| *known == key) {
                Some(index) if seen >> index & 1 == 0 => {
                    seen |= 1 << index;
                    self.take(|reader| member(reader, &key));
                    continue;
                }
                Some(_) => self.twice(at, &key),
                None => {
                    let known = [required, optional].concat().join(", ");
                    self.fault(at, format!("unknown key '{key}'"), known);
                }
            }
            self.scanner.skip();
        }
        for (_, key) in required.iter().enumerate().filter(|(index, _)| seen >> index & 1 == 0) {
            self.fault(begin, format!("missing key '{key}'"), "");
        }
        Some(())
    }

    /// Takes an object with any keys, and none of them twice; `member` takes the value of each.
    pub(crate) fn map(&mut self, mut member: impl FnMut(&mut Self, &str)) {
        if self.enter(b'{', "an object").is_none() {
            return;
        }
        let mut keys = Vec::new();
        while let Some((at, key)) = self.scanner.key() {
            self.take(|reader| member(reader, &key));
            keys.push((key, at));
        }
        // Keys that rise, as programs write them, are all different.
        if !keys.is_sorted_by(|(a, _), (b, _)| a < b) {
            keys.sort();
            for pair in keys.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
                self.twice(pair[1].1, &pair[1].0);
            }
        }
    }

    /// Takes an array; `element` takes each of its elements.
    pub(crate) fn array(&mut self, mut element: impl FnMut(&mut Self)) {
        if self.enter(b'[', "an array").is_some() {
            while self.scanner.has_more(b']') {
                self.take(&mut element);
            }
        }
    }

    /// Takes what `read` takes, or `null`, which stands for an absent value.
    pub(crate) fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.scanner.peek() == Some(b'n') {
            self.scanner.skip();
            return None;
        }
        read(self)
    }

    /// Takes a string.
    pub(crate) fn string(&mut self) -> Option<Cow<'a, str>> {
        self.text("a string").map(|(_, text)| text)
    }

    /// Takes one of these words, and says what it stands for.
    pub(crate) fn choice<T: Copy>(&mut self, choices: &[(&str, T)]) -> Option<T> {
        let (at, text) = self.text("a string")?;
        let chosen = choices.iter().find(|(word, _)| *word == text).map(|(_, chosen)| *chosen);
        if chosen.is_none() {
            let words: Vec<String> = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            let expected = match words.split_last() {
                Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
                _ => words.concat(),
            };
            self.fault(at, format!("unknown value '{text}'"), expected);
        }
        chosen
    }

    /// Takes a string that a type reads, such as an address; `expected` says what it takes.
    pub(crate) fn parsed<T: FromStr>(&mut self, expected: &str) -> Option<T> {
        let (at, text) = self.text(expected)?;
        let value = text.parse().ok();
        if value.is_none() {
            self.fault(at, format!("'{text}' cannot be read"), expected);
        }
        value
    }

    /// Takes a whole number within `range`.
    pub(crate) fn integer<T>(&mut self, range: RangeInclusive<T>) -> Option<T>
    where
        T: FromStr + PartialOrd + Display,
    {
        let expected = || format!("a whole number from {} to {}", range.start(), range.end());
        self.number(expected, |value| range.contains(value))
    }

    /// Takes a number that is not negative, and small enough for a 64-bit floating point number.
    pub(crate) fn magnitude(&mut self) -> Option<f64> {
        let value =
            self.number(|| "a number from 0 on".into(), |value: &f64| value.is_finite() && *value >= 0.0);
        // There is a -0.0, which equals 0.0 but is written otherwise; not every database keeps its sign.
        value.map(f64::abs)
    }

    fn number<T: FromStr>(
        &mut self,
        expected: impl Fn() -> String,
        is_within: impl Fn(&T) -> bool,
    ) -> Option<T> {
        let (at, text) = match self.scanner.value() {
            (at, Value::Number(text)) => (at, text),
            (at, other) => return self.wrong(at, &other, &expected()),
        };
        let value = text.parse().ok().filter(is_within);
        if value.is_none() {
            self.fault(at, format!("{text} is out of range"), expected());
        }
        value
    }

    fn text(&mut self, expected: &str) -> Option<(usize, Cow<'a, str>)> {
        match self.scanner.value() {
            (at, Value::String(text)) => Some((at, text)),
            (at, other) => self.wrong(at, &other, expected),
        }
    }

    /// Goes into the array or object that begins with this byte; says where it begins.
    fn enter(&mut self, first: u8, expected: &str) -> Option<usize> {
        if self.scanner.peek() == Some(first) {
            self.scanner.at += 1;
            return Some(self.scanner.at - 1);
        }
        let (at, value) = self.scanner.value();
        self.wrong(at, &value, expected)
    }

    /// Has `read` take a value, and passes over one that it does not take.
    fn take(&mut self, read: impl FnOnce(&mut Self)) {
        // White space before it, over which `read` may look without taking it, is no value.
        self.scanner.peek();
        let before = self.scanner.at;
        read(self);
        if self.scanner.at == before {
            self.scanner.skip();
        }
    }

    fn wrong<T>(&mut self, at: usize, value: &Value<'_>, expected: &str) -> Option<T> {
        if let Value::Array | Value::Object = value {
            self.scanner.skip();
        }
        self.fault(at, format!("{} is of the wrong type", value.kind()), expected);
        None
    }

    fn twice(&mut self, at: usize, key: &str) {
        self.fault(at, format!("key '{key}' stands here twice"), "each key once");
    }

    fn fault(&mut self, at: usize, what: String, expected: impl Into<String>) {
        self.faults.push(self.text.fault(at, what, expected));
    }
}

impl Value<'_> {
    fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Boolean => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array => "an array",
            Value::Object => "an object",
        }
    }
}

impl Origin<'_> {
    /// Turns pointed faults into faults with line and column, in the order of the text. A value that is not in the text is
    /// placed where the innermost one around it begins. Where the text is not at hand the pointer follows the source's
    /// name.
    pub fn place(&self, pointed: Vec<Pointed>) -> Faults {
        let mut faults = Faults::default();
        let Some(text) = self.text.and_then(|text| Text::check(self.source, text).ok()) else {
            for fault in pointed {
                let source = format!("{} {}", self.source, fault.pointer);
                faults.push(Fault::whole(source, fault.what, fault.expected));
            }
            return faults;
        };
        let pointers = pointed.iter().flat_map(|fault| around(&fault.pointer));
        let mut places: HashMap<&str, Option<usize>> = pointers.map(|pointer| (pointer, None)).collect();
        Scanner { text: text.text, at: 0 }.locate(&mut String::new(), &mut places);
        let place = |fault: &Pointed| around(&fault.pointer).filter_map(|pointer| places[pointer]).last();
        let mut placed: Vec<(usize, &Pointed)> =
            pointed.iter().map(|fault| (place(fault).unwrap_or(0), fault)).collect();
        placed.sort_by_key(|(at, _)| *at);
        for (at, fault) in placed {
            faults.push(text.fault(at, fault.what.clone(), fault.expected.clone()));
        }
        faults
    }
}

/// The JSON pointer of these keys and indices, with `~` and `/` escaped (RFC 6901 §3).
pub fn pointer(tokens: &[&dyn Display]) -> String {
    let mut pointer = String::new();
    for token in tokens {
        extend(&mut pointer, token);
    }
    pointer
}

/// Makes a pointer one of something in the value that it names.
fn extend(pointer: &mut String, token: impl Display) {
    let token = token.to_string().replace('~', "~0").replace('/', "~1");
    write!(pointer, "/{token}").expect("a String takes everything");
}

/// The pointers of the values around the one that `pointer` names, from the outermost on, and it.
fn around(pointer: &str) -> impl Iterator<Item = &str> {
    pointer.match_indices('/').map(|(at, _)| &pointer[..at]).chain([pointer])
}

impl<'a> Text<'a> {
    /// A text of which `serde_json` says that it is JSON.
    fn check(source: &'a str, text: &'a str) -> Result<Text<'a>, Faults> {
        if text.len() > TEXT_MAX {
            return Err(Fault::whole(source, "text is too long", format!("at most {TEXT_MAX} bytes")).into());
        }
        if let Err(error) = serde_json::from_str::<Checked>(text) {
            let (line, column) = (error.line().max(1) as u32, error.column().max(1) as u32);
            let what = error.to_string();
            // The place is told in the fault's own fields.
            let what = what.rsplit_once(" at line ").map_or(what.as_str(), |(what, _)| what);
            return Err(Fault::at(source, line, column, what, "").into());
        }
        Ok(Text { source, text, lines: OnceCell::new() })
    }

    fn fault(&self, at: usize, what: String, expected: impl Into<String>) -> Fault {
        let lines = self.lines.get_or_init(|| {
            let ends = self.text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
            std::iter::once(0).chain(ends.map(|(end, _)| end + 1)).collect()
        });
        let line = lines.partition_point(|start| *start <= at);
        let column = at - lines[line - 1] + 1;
        Fault::at(self.source, line as u32, column as u32, what, expected)
    }
}

impl<'a> Scanner<'a> {
    /// Takes the next value, and says where it begins; an array or object stays ahead.
    fn value(&mut self) -> (usize, Value<'a>) {
        let first = self.peek();
        let at = self.at;
        let value = match first {
            Some(b'{') => Value::Object,
            Some(b'[') => Value::Array,
            Some(b'"') => Value::String(self.string()),
            _ => match self.word() {
                "null" => Value::Null,
                "true" | "false" => Value::Boolean,
                number => Value::Number(number),
            },
        };
        (at, value)
    }

    /// Takes the next key of an object and the colon behind it; `None` behind the object's end.
    fn key(&mut self) -> Option<(usize, Cow<'a, str>)> {
        if !self.has_more(b'}') {
            return None;
        }
        let (at, key) = (self.at, self.string());
        self.at += usize::from(self.peek() == Some(b':'));
        Some((at, key))
    }

    /// Goes over the comma to what comes next in an array or object; where that is its `end`, behind it.
    fn has_more(&mut self, end: u8) -> bool {
        self.at += usize::from(self.peek() == Some(b','));
        let next = self.peek();
        self.at += usize::from(next == Some(end));
        next.is_some_and(|next| next != end)
    }

    /// Passes over the next value.
    fn skip(&mut self) {
        let mut depth = 0_usize;
        loop {
            match self.peek() {
                None => return,
                Some(b'"') => drop(self.string()),
                Some(b'{' | b'[') => (self.at, depth) = (self.at + 1, depth + 1),
                Some(b'}' | b']') => (self.at, depth) = (self.at + 1, depth.saturating_sub(1)),
                Some(b',' | b':') => self.at += 1,
                Some(_) => _ = self.word(),
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// Passes over the next value, whose pointer is `path`, and notes where it and the values in it begin, as far as
    /// `places` has their pointers. Of a key that stands there twice the first counts.
    fn locate(&mut self, path: &mut String, places: &mut HashMap<&str, Option<usize>>) {
        let first = self.peek();
        match places.get_mut(path.as_str()) {
            Some(place) if place.is_none() => *place = Some(self.at),
            _ => return self.skip(),
        }
        let length = path.len();
        match first {
            Some(b'{') => {
                self.at += 1;
                while let Some((_, key)) = self.key() {
                    extend(path, key);
                    self.locate(path, places);
                    path.truncate(length);
                }
            }
            Some(b'[') => {
                self.at += 1;
                let mut index = 0_usize;
                while self.has_more(b']') {
                    extend(path, index);
                    self.locate(path, places);
                    path.truncate(length);
                    index += 1;
                }
            }
            _ => self.skip(),
        }
    }

    fn string(&mut self) -> Cow<'a, str> {
        let octets = self.text.as_bytes();
        let (begin, mut end, mut plain) = (self.at, self.at + 1, true);
        while let Some(octet) = octets.get(end) {
            match octet {
                b'"' => break,
                b'\\' => (end, plain) = (end + 2, false),
                _ => end += 1,
            }
        }
        self.at = octets.len().min(end + 1);
        let quoted = self.text.get(begin..self.at).unwrap_or_default();
        if plain {
            let bare = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
            return Cow::Borrowed(bare.unwrap_or_default());
        }
        Cow::Owned(serde_json::from_str(quoted).unwrap_or_default())
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self) -> &'a str {
        let begin = self.at;
        let rest = self.text.as_bytes().get(begin..).unwrap_or_default();
        let ends = |octet: &u8| matches!(octet, b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n');
        self.at += rest.iter().position(ends).unwrap_or(rest.len());
        self.text.get(begin..self.at).unwrap_or_default()
    }

    /// The next octet that is not white space, which stays.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let is_white = |octet: &u8| matches!(octet, b' ' | b'\t' | b'\r' | b'\n');
        self.at += rest.iter().take_while(|octet| is_white(octet)).count();
        self.text.as_bytes().get(self.at).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "{\n  \"a/b\": [1, {\"x~\": \"\\u00e9\\\"\"}, null],\n  \"c\": -1.5e3, \"c\": 2}\n";

    #[test]
    fn pointers_lead_to_places() {
        for (keys, line, column) in [
            (&[][..], 1, 1),
            (&["a/b"], 2, 10),
            (&["a/b", "0"], 2, 11),
            (&["a/b", "1", "x~"], 2, 21),
            (&["a/b", "1", "none", "x"], 2, 14),
            (&["a/b", "2"], 2, 34),
            (&["a/b", "3"], 2, 10),
            (&["c"], 3, 8),
            (&["c", "d"], 3, 8),
            (&["d"], 1, 1),
        ] {
            let keys: Vec<&dyn Display> = keys.iter().map(|key| key as &dyn Display).collect();
            let pointer = pointer(&keys);
            let fault = Pointed { pointer: pointer.clone(), what: "bad".into(), expected: "good".into() };
            let faults = Origin { source: "body", text: Some(TEXT) }.place(vec![fault.clone()]);
            assert_eq!(faults.faults, [Fault::at("body", line, column, "bad", "good")], "{pointer}");
            let faults = Origin { source: "policy x", text: None }.place(vec![fault]);
            assert_eq!(faults.to_string(), format!("policy x {pointer}: bad; expected good"));
        }
    }

    #[test]
    fn faults_come_in_the_order_of_the_text() {
        let fault =
            |pointer: &str| Pointed { pointer: pointer.into(), what: "bad".into(), expected: "".into() };
        let pointed = ["/c", "/a~1b/1", "", "/a~1b/0"].map(fault).into();
        let faults = Origin { source: "body", text: Some(TEXT) }.place(pointed);
        let places: Vec<_> = faults.faults.iter().map(|fault| (fault.line, fault.column)).collect();
        assert_eq!(
            places,
            [(1, 1), (2, 11), (2, 14), (3, 8)].map(|(line, column)| (Some(line), Some(column)))
        );
    }

    #[test]
    fn syntax_is_one_fault() {
        let read = |text: &str| Reader::new("body", text).map(drop);
        for (text, line, column, what) in [
            ("", 1, 1, "EOF while parsing a value"),
            ("{\"a\": }", 1, 7, "expected value"),
            ("{\n\"a\": 1,,}", 2, 8, "key must be a string"),
            ("[1e999]", 1, 6, "number out of range"),
            ("{} x", 1, 4, "trailing characters"),
        ] {
            assert_eq!(read(text).unwrap_err().faults, [Fault::at("body", line, column, what, "")], "{text}");
        }
        let deep = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(read(&deep(NESTING_MAX)).is_ok());
        assert!(read(&deep(NESTING_MAX + 1)).is_err());
        assert!(read(&" ".repeat(TEXT_MAX + 1)).is_err());
    }

    #[test]
    fn a_reader_collects_everything() {
        let text = "{\"a\": 1, \"a\": [2], \"b\": \"x\", \"z\": {\"y\": [true]}, \"d\": -1,\n \"e\": 1.5, \"f\": 70000, \
                    \"g\": [{}, 5, [\"u\\u0041\"]], \"h\": null, \"i\": [7], \"j\": \"no\", \"k\": {\"q\": 1, \"p\": 2, \"q\": 3}}";
        let mut reader = Reader::new("body", text).unwrap();
        let mut read = Vec::new();
        let optional = ["d", "e", "f", "g", "h", "i", "j", "k"];
        let done = reader.object(&["a", "b", "missing"], &optional, |reader, key| {
            let value = match key {
                "a" => reader.integer(0..=1u8).map(|value| value.to_string()),
                "b" => reader.parsed::<std::net::IpAddr>("an address").map(|value| value.to_string()),
                "d" => reader.magnitude().map(|value| value.to_string()),
                "e" => reader.integer(0..=9u32).map(|value| value.to_string()),
                "f" => reader.integer(0..=u16::MAX).map(|value| value.to_string()),
                "h" => reader.optional(|reader| reader.string()).map(Cow::into_owned),
                "i" => reader.string().map(Cow::into_owned),
                "j" => reader.choice(&[("yes", 1), ("maybe", 2), ("if", 3)]).map(|value| value.to_string()),
                "k" => {
                    let mut keys = String::new();
                    reader.map(|_, key| keys += key);
                    Some(keys)
                }
                _ => {
                    // Of the elements the second is not taken; it is passed over.
                    let (mut at, mut texts) = (0, String::new());
                    reader.array(|reader| {
                        at += 1;
                        match at {
                            1 => reader.map(|_, _| {}),
                            2 => {}
                            _ => reader.array(|reader| texts += &reader.string().unwrap_or_default()),
                        }
                    });
                    Some(texts)
                }
            };
            read.push((key.to_owned(), value));
        });
        let value = |of: &str| read.iter().find(|(key, _)| key == of).and_then(|(_, value)| value.as_deref());
        assert_eq!(
            (value("a"), value("g"), value("k"), value("h")),
            (Some("1"), Some("uA"), Some("qpq"), None)
        );
        let faults = reader.finish(done).unwrap_err().to_string();
        let expected = "body:1:1: missing key 'missing'\n\
            body:1:10: key 'a' stands here twice; expected each key once\n\
            body:1:25: 'x' cannot be read; expected an address\n\
            body:1:30: unknown key 'z'; expected a, b, missing, d, e, f, g, h, i, j, k\n\
            body:1:55: -1 is out of range; expected a number from 0 on\n\
            body:2:7: 1.5 is out of range; expected a whole number from 0 to 9\n\
            body:2:17: 70000 is out of range; expected a whole number from 0 to 65535\n\
            body:2:67: an array is of the wrong type; expected a string\n\
            body:2:77: unknown value 'no'; expected \"yes\", \"maybe\" or \"if\"\n\
            body:2:105: key 'q' stands here twice; expected each key once";
        assert_eq!(faults, expected);
    }

    #[test]
    fn what_is_only_looked_at_is_passed_over() {
        let mut reader = Reader::new("body", "{\"a\":  [1], \"b\": 2}").unwrap();
        let mut read = None;
        let done = reader.object(&["a", "b"], &[], |reader, key| match key {
            "a" => _ = reader.optional(|_| None::<()>),
            _ => read = reader.integer(0..=9u8),
        });
        assert_eq!((reader.finish(done), read), (Ok(()), Some(2)));
    }

    /// The next value without places, as `serde_json` sees it.
    fn plain(reader: &mut Reader<'_>) -> serde_json::Value {
        match reader.scanner.peek() {
            Some(b'{') => {
                let mut members = serde_json::Map::new();
                reader.map(|reader, key| drop(members.insert(key.to_owned(), plain(reader))));
                members.into()
            }
            Some(b'[') => {
                let mut elements = Vec::new();
                reader.array(|reader| elements.push(plain(reader)));
                elements.into()
            }
            _ => match reader.scanner.value().1 {
                Value::String(text) => text.into_owned().into(),
                Value::Number(text) => serde_json::from_str(text).unwrap_or_default(),
                Value::Null => serde_json::Value::Null,
                // Which of them it is nobody asks for.
                _ => true.into(),
            },
        }
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            Just(serde_json::Value::Bool(true)),
            any::<i64>().prop_map(Into::into),
            (-1e9..1e9f64).prop_map(Into::into),
            ".{0,8}".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                prop::collection::btree_map(".{0,5}", inner, 0..6)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_taken_is_serde_jsons(value in json()) {
            let text = format!(" {value:#} ");
            let mut reader = Reader::new("body", &text).unwrap();
            let taken = plain(&mut reader);
            prop_assert_eq!(taken, serde_json::from_str::<serde_json::Value>(&text).unwrap());
            prop_assert_eq!((reader.scanner.peek(), reader.faults.is_empty()), (None, true));
            let mut scanner = Scanner { text: &text, at: 0 };
            scanner.skip();
            prop_assert_eq!(scanner.peek(), None, "what is passed over is one value");
        }

        /// The scanner ends, and does not panic, also where nobody has checked the text.
        #[test]
        fn any_text_is_taken(text in "[\\[\\]{},:\"\\\\ 0-9a-zé\n]{0,30}|(?s).{0,40}", pointer in "(/.{0,3}){0,4}|.{0,9}") {
            let pointed = Pointed { pointer, what: "bad".into(), expected: "".into() };
            let faults = Origin { source: "body", text: Some(&text) }.place(vec![pointed]);
            prop_assert_eq!(faults.faults.len(), 1);
            let scanner = Scanner { text: &text, at: 0 };
            let unchecked = Text { source: "body", text: &text, lines: OnceCell::new() };
            let mut reader = Reader { text: unchecked, scanner, faults: Faults::default() };
            while reader.scanner.peek().is_some() {
                reader.take(|reader| drop(plain(reader)));
            }
        }
    }
}
