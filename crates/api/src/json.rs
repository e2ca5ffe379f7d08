//! A JSON text, gone through value by value, with the place of each.
//!
//! `serde_json` says whether it is JSON at all; a [`Scanner`] then needs to check nothing. Neither makes a tree of the text.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::fault::{Fault, Faults};

/// The longest JSON text, in bytes: a policy of 256 servers and some hundred regions needs 4 MiB.
pub(crate) const TEXT_MAX: usize = 16 << 20;

/// A JSON text and its name in faults.
#[derive(Debug)]
pub(crate) struct Text<'a> {
    source: &'a str,
    text: &'a str,
    /// Where each line begins, in bytes, once a fault has to tell one.
    lines: OnceCell<Vec<usize>>,
}

/// Goes through a text that `serde_json` found to be JSON. From one that is not it takes anything, but comes to its end.
#[derive(Debug)]
pub(crate) struct Scanner<'a> {
    text: &'a str,
    /// How many bytes lie behind it.
    pub(crate) at: usize,
}

/// A value; what is in an array or object is still ahead. A number stays text, since only its reader knows of which type
/// it is to be.
#[derive(Debug)]
pub(crate) enum Value<'a> {
    Null,
    Boolean,
    Number(&'a str),
    String(Cow<'a, str>),
    Array,
    Object,
}

impl Value<'_> {
    /// As faults name it.
    pub(crate) fn kind(&self) -> &'static str {
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

impl<'a> Text<'a> {
    /// A text of which `serde_json` says that it is JSON.
    pub(crate) fn check(source: &'a str, text: &'a str) -> Result<Text<'a>, Faults> {
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

    /// A text that nobody has checked.
    #[cfg(test)]
    pub(crate) fn unchecked(source: &'a str, text: &'a str) -> Text<'a> {
        Text { source, text, lines: OnceCell::new() }
    }

    /// A scanner at its beginning.
    pub(crate) fn scanner(&self) -> Scanner<'a> {
        Scanner { text: self.text, at: 0 }
    }

    /// Something wrong at so many bytes.
    pub(crate) fn fault(&self, at: usize, what: impl Into<String>, expected: impl Into<String>) -> Fault {
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
    pub(crate) fn value(&mut self) -> (usize, Value<'a>) {
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
    pub(crate) fn key(&mut self) -> Option<(usize, Cow<'a, str>)> {
        if !self.has_more(b'}') {
            return None;
        }
        let (at, key) = (self.at, self.string());
        self.at += usize::from(self.peek() == Some(b':'));
        Some((at, key))
    }

    /// Goes over the comma to what comes next in an array or object; where that is its `end`, behind it.
    pub(crate) fn has_more(&mut self, end: u8) -> bool {
        self.at += usize::from(self.peek() == Some(b','));
        let next = self.peek();
        self.at += usize::from(next == Some(end));
        next.is_some_and(|next| next != end)
    }

    /// Passes over the next value.
    pub(crate) fn skip(&mut self) {
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
    pub(crate) fn peek(&mut self) -> Option<u8> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let is_white = |octet: &u8| matches!(octet, b' ' | b'\t' | b'\r' | b'\n');
        self.at += rest.iter().take_while(|octet| is_white(octet)).count();
        self.text.as_bytes().get(self.at).copied()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// How deep `serde_json` lets arrays and objects nest.
    const NESTING_MAX: usize = 127;

    #[test]
    fn syntax_is_one_fault() {
        let read = |text: &str| Text::check("body", text).map(drop);
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
}
