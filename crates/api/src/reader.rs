//! What a person wrote as JSON, read value after value in the order of the text, with everything that is wrong collected.
//!
//! `serde_json` reports the first mistake and forgets places as soon as it has read a value.

use std::borrow::Cow;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::fault::Faults;
use crate::json::{Scanner, Text, Value};

/// Takes values out of a JSON text, one after the other, and collects what is wrong with them.
///
/// Each method takes the value that is next, also where it is not the one that is wanted: that is a fault, and passed over.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    text: Text<'a>,
    scanner: Scanner<'a>,
    faults: Faults,
}

impl<'a> Reader<'a> {
    /// A reader of `text`; `source` names it in faults.
    ///
    /// # Errors
    /// One fault where `text` is not JSON, is longer than [`TEXT_MAX`](crate::json::TEXT_MAX) or nests deeper than
    /// `serde_json` reads (127).
    pub(crate) fn new(source: &'a str, text: &'a str) -> Result<Reader<'a>, Faults> {
        let text = Text::check(source, text)?;
        Ok(Reader { scanner: text.scanner(), text, faults: Faults::default() })
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
    /// of each. Returns where it begins.
    pub(crate) fn object(
        &mut self,
        required: &[&str],
        optional: &[&str],
        mut member: impl FnMut(&mut Self, &str),
    ) -> Option<usize> {
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
        Some(begin)
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

    /// Notes what is wrong at a place.
    pub(crate) fn fault(&mut self, at: usize, what: impl Into<String>, expected: impl Into<String>) {
        self.faults.push(self.text.fault(at, what, expected));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
        assert_eq!((reader.finish(done), read), (Ok(0), Some(2)));
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
            let mut scanner = reader.text.scanner();
            let taken = plain(&mut reader);
            prop_assert_eq!(taken, serde_json::from_str::<serde_json::Value>(&text).unwrap());
            prop_assert_eq!((reader.scanner.peek(), reader.faults.is_empty()), (None, true));
            scanner.skip();
            prop_assert_eq!(scanner.peek(), None, "what is passed over is one value");
        }

        /// The scanner ends, and does not panic, also where nobody has checked the text.
        #[test]
        fn any_text_is_taken(text in "[\\[\\]{},:\"\\\\ 0-9a-zé\n]{0,30}|(?s).{0,40}") {
            let text = Text::unchecked("body", &text);
            let mut reader = Reader { scanner: text.scanner(), text, faults: Faults::default() };
            while reader.scanner.peek().is_some() {
                reader.take(|reader| drop(plain(reader)));
            }
        }
    }
}
