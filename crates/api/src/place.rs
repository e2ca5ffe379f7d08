//! Where a value stands in a JSON text, so that every fault can name line and column.
//!
//! `serde_json` reports the first mistake and forgets places as soon as it has read a value. What a
//! person wrote is therefore read through a [`Document`]: the same syntax, checked by `serde_json`,
//! kept as a tree of [`Node`]s that know where they begin. A [`Reader`] takes values out of it and
//! collects everything that is wrong; an [`Origin`] maps JSON pointers (RFC 6901), in which checks of the
//! meaning name a value, to places.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt::{self, Display, Write};
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::fault::{Fault, Faults};

/// The longest JSON text, in bytes: a policy of 256 servers and some hundred regions needs 4 MiB.
pub const TEXT_MAX: usize = 16 << 20;

/// How deep arrays and objects may nest; `serde_json` refuses what is deeper.
pub const NESTING_MAX: usize = 127;

/// A JSON text, read.
#[derive(Clone, Debug)]
pub struct Document<'a> {
    source: &'a str,
    text: &'a str,
    root: Node<'a>,
    /// Where each line begins, in bytes, once a fault has to tell one.
    lines: OnceCell<Vec<usize>>,
}

/// A value, and the byte at which it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Node<'a> {
    at: usize,
    value: Value<'a>,
}

/// What a [`Node`] holds. A number stays text, since only its reader knows of which type it is to be.
#[derive(Clone, Debug, PartialEq)]
enum Value<'a> {
    Null,
    Boolean(bool),
    Number(&'a str),
    String(Cow<'a, str>),
    Array(Vec<Node<'a>>),
    Object(Vec<Member<'a>>),
}

#[derive(Clone, Debug, PartialEq)]
struct Member<'a> {
    at: usize,
    key: Cow<'a, str>,
    node: Node<'a>,
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

impl<'a> Document<'a> {
    /// Reads `text`; `source` names it in faults.
    ///
    /// # Errors
    /// One fault where `text` is not JSON, is longer than [`TEXT_MAX`] or nests deeper than
    /// [`NESTING_MAX`].
    pub fn read(source: &'a str, text: &'a str) -> Result<Document<'a>, Faults> {
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
        let root = Scanner { text, at: 0 }.node(NESTING_MAX);
        let root = root.ok_or_else(|| Fault::whole(source, "not JSON", ""))?;
        Ok(Document { source, text, root, lines: OnceCell::new() })
    }

    /// The outermost value.
    pub fn root(&self) -> &Node<'a> {
        &self.root
    }

    /// The value that a JSON pointer names, or the innermost one around it where it does not exist.
    pub fn find(&self, pointer: &str) -> &Node<'a> {
        let mut node = &self.root;
        for token in pointer.split('/').skip(1) {
            let token = token.replace("~1", "/").replace("~0", "~");
            let inner = match &node.value {
                Value::Array(nodes) => token.parse::<usize>().ok().and_then(|i| nodes.get(i)),
                Value::Object(members) => members.iter().find(|m| m.key == token).map(|m| &m.node),
                _ => None,
            };
            match inner {
                Some(inner) => node = inner,
                None => break,
            }
        }
        node
    }

    fn fault(&self, at: usize, what: impl Into<String>, expected: impl Into<String>) -> Fault {
        let lines = self.lines.get_or_init(|| {
            let ends = self.text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
            std::iter::once(0).chain(ends.map(|(end, _)| end + 1)).collect()
        });
        let line = lines.partition_point(|start| *start <= at);
        let column = at - lines[line - 1] + 1;
        Fault::at(self.source, line as u32, column as u32, what, expected)
    }
}

/// Takes values out of a [`Document`], and collects what is wrong with them.
#[derive(Debug)]
pub struct Reader<'a> {
    document: &'a Document<'a>,
    faults: Faults,
}

/// An object whose keys were checked.
#[derive(Clone, Copy, Debug)]
pub struct Object<'a> {
    members: &'a [Member<'a>],
}

impl<'a> Object<'a> {
    /// The value of `key`. Of a key that stands there twice the first counts, and a fault was reported.
    pub fn get(&self, key: &str) -> Option<&'a Node<'a>> {
        self.members.iter().find(|member| member.key == key).map(|member| &member.node)
    }

    /// All keys with their values.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, &'a Node<'a>)> + use<'a> {
        self.members.iter().map(|member| (&*member.key, &member.node))
    }
}

impl<'a> Reader<'a> {
    /// A reader that has found nothing yet.
    pub fn new(document: &'a Document<'a>) -> Reader<'a> {
        Reader { document, faults: Faults::default() }
    }

    /// `value` where nothing was wrong; else all faults in the order of the text.
    pub fn finish<T>(mut self, value: Option<T>) -> Result<T, Faults> {
        self.faults.faults.sort_by_key(|fault| (fault.line, fault.column));
        match value {
            Some(value) => self.faults.or(value),
            None => Err(self.faults),
        }
    }

    /// Reports that something is wrong with `node`.
    pub fn fault(&mut self, node: &Node<'_>, what: impl Into<String>, expected: impl Into<String>) {
        self.faults.push(self.document.fault(node.at, what, expected));
    }

    /// An object with no other keys than `required` and `optional`, and none of them twice.
    pub fn object(&mut self, node: &'a Node<'a>, required: &[&str], optional: &[&str]) -> Option<Object<'a>> {
        let object = self.map(node)?;
        for member in object.members {
            let key = &*member.key;
            if !required.contains(&key) && !optional.contains(&key) {
                let known = [required, optional].concat().join(", ");
                self.faults.push(self.document.fault(member.at, format!("unknown key '{key}'"), known));
            }
        }
        let missing: Vec<&str> = required.iter().copied().filter(|key| object.get(key).is_none()).collect();
        for key in missing {
            self.fault(node, format!("missing key '{key}'"), "");
        }
        Some(object)
    }

    /// An object with any keys, and none of them twice.
    pub fn map(&mut self, node: &'a Node<'a>) -> Option<Object<'a>> {
        let Value::Object(members) = &node.value else { return self.wrong(node, "an object") };
        // Keys that rise, as programs write them, are all different.
        if members.is_sorted_by(|a, b| a.key < b.key) {
            return Some(Object { members });
        }
        let mut by_key: Vec<&Member<'_>> = members.iter().collect();
        by_key.sort_by(|a, b| (&a.key, a.at).cmp(&(&b.key, b.at)));
        for pair in by_key.windows(2).filter(|pair| pair[0].key == pair[1].key) {
            let what = format!("key '{}' stands here twice", pair[1].key);
            self.faults.push(self.document.fault(pair[1].at, what, "each key once"));
        }
        Some(Object { members })
    }

    /// The elements of an array.
    pub fn array(&mut self, node: &'a Node<'a>) -> Option<&'a [Node<'a>]> {
        match &node.value {
            Value::Array(nodes) => Some(nodes),
            _ => self.wrong(node, "an array"),
        }
    }

    /// A string.
    pub fn string(&mut self, node: &'a Node<'a>) -> Option<&'a str> {
        match &node.value {
            Value::String(text) => Some(&**text),
            _ => self.wrong(node, "a string"),
        }
    }

    /// A string that a type reads, such as an address; `expected` says what it takes.
    pub fn parsed<T: FromStr>(&mut self, node: &'a Node<'a>, expected: &str) -> Option<T> {
        let Value::String(text) = &node.value else { return self.wrong(node, expected) };
        let value = text.parse().ok();
        if value.is_none() {
            self.fault(node, format!("'{text}' cannot be read"), expected);
        }
        value
    }

    /// `true` or `false`.
    pub fn boolean(&mut self, node: &'a Node<'a>) -> Option<bool> {
        match node.value {
            Value::Boolean(value) => Some(value),
            _ => self.wrong(node, "true or false"),
        }
    }

    /// A whole number within `range`.
    pub fn integer<T>(&mut self, node: &'a Node<'a>, range: RangeInclusive<T>) -> Option<T>
    where
        T: FromStr + PartialOrd + Display,
    {
        let expected = || format!("a whole number from {} to {}", range.start(), range.end());
        let Value::Number(text) = node.value else { return self.wrong(node, &expected()) };
        let value = text.parse().ok().filter(|value| range.contains(value));
        if value.is_none() {
            self.fault(node, format!("{text} is out of range"), expected());
        }
        value
    }

    /// A number that is not negative, and small enough for a 64-bit floating point number.
    pub fn magnitude(&mut self, node: &'a Node<'a>) -> Option<f64> {
        let expected = "a number from 0 on";
        let Value::Number(text) = node.value else { return self.wrong(node, expected) };
        let value = text.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0);
        if value.is_none() {
            self.fault(node, format!("{text} is out of range"), expected);
        }
        value
    }

    fn wrong<T>(&mut self, node: &Node<'_>, expected: &str) -> Option<T> {
        self.fault(node, format!("{} is of the wrong type", node.kind()), expected);
        None
    }
}

impl Node<'_> {
    /// Whether it is `null`, which stands for an absent value.
    pub fn is_null(&self) -> bool {
        self.value == Value::Null
    }

    fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "null",
            Value::Boolean(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        }
    }
}

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

impl Origin<'_> {
    /// Turns pointed faults into faults with line and column, in the order of the text. Where the text is not
    /// at hand the pointer follows the source's name.
    pub fn place(&self, pointed: Vec<Pointed>) -> Faults {
        let mut faults = Faults::default();
        match self.text.and_then(|text| Document::read(self.source, text).ok()) {
            Some(document) => {
                let mut placed: Vec<(usize, Pointed)> =
                    pointed.into_iter().map(|fault| (document.find(&fault.pointer).at, fault)).collect();
                placed.sort_by_key(|(at, _)| *at);
                for (at, fault) in placed {
                    faults.push(document.fault(at, fault.what, fault.expected));
                }
            }
            None => {
                for fault in pointed {
                    let source = format!("{} {}", self.source, fault.pointer);
                    faults.push(Fault::whole(source, fault.what, fault.expected));
                }
            }
        }
        faults
    }
}

/// The JSON pointer of these keys and indices, with `~` and `/` escaped (RFC 6901 §3).
pub fn pointer(tokens: &[&dyn Display]) -> String {
    let mut pointer = String::new();
    for token in tokens {
        let token = token.to_string().replace('~', "~0").replace('/', "~1");
        write!(pointer, "/{token}").expect("a String takes everything");
    }
    pointer
}

/// Goes through a text that `serde_json` found to be JSON; what is not is `None` all the same.
struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    fn node(&mut self, nesting: usize) -> Option<Node<'a>> {
        let first = self.peek()?;
        let at = self.at;
        let value = match first {
            b'{' => Value::Object(self.list(b'}', nesting, |scanner, nesting| {
                scanner.peek()?;
                let at = scanner.at;
                let key = scanner.string()?;
                scanner.take(b':')?;
                Some(Member { at, key, node: scanner.node(nesting)? })
            })?),
            b'[' => Value::Array(self.list(b']', nesting, Self::node)?),
            b'"' => Value::String(self.string()?),
            _ => match self.word() {
                "null" => Value::Null,
                "true" => Value::Boolean(true),
                "false" => Value::Boolean(false),
                number => Value::Number(number),
            },
        };
        Some(Node { at, value })
    }

    /// What stands between commas up to `end`.
    fn list<T>(
        &mut self,
        end: u8,
        nesting: usize,
        item: impl Fn(&mut Self, usize) -> Option<T>,
    ) -> Option<Vec<T>> {
        let nesting = nesting.checked_sub(1)?;
        self.at += 1;
        let mut items = Vec::new();
        if self.peek()? == end {
            self.at += 1;
            return Some(items);
        }
        loop {
            items.push(item(self, nesting)?);
            let separator = self.peek()?;
            self.at += 1;
            match separator {
                b',' => {}
                _ if separator == end => return Some(items),
                _ => return None,
            }
        }
    }

    fn string(&mut self) -> Option<Cow<'a, str>> {
        let start = self.at;
        let mut bytes = self.text.as_bytes()[start..].iter().skip(1);
        let (mut length, mut plain) = (2, true);
        loop {
            match bytes.next()? {
                b'"' => break,
                b'\\' => {
                    bytes.next()?;
                    length += 2;
                    plain = false;
                }
                _ => length += 1,
            }
        }
        self.at += length;
        if plain {
            return self.text.get(start + 1..self.at - 1).map(Cow::Borrowed);
        }
        serde_json::from_str(self.text.get(start..self.at)?).ok().map(Cow::Owned)
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let ends = |byte: u8| matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n');
        let length = rest.bytes().position(ends);
        let word = &rest[..length.unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        let found = self.peek()? == byte;
        self.at += usize::from(found);
        found.then_some(())
    }

    /// The next byte that is not white space, which stays.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))?;
        Some(self.text.as_bytes()[self.at])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "{\n  \"a/b\": [1, {\"x~\": \"\\u00e9\\\"\"}, null],\n  \"c\": -1.5e3}\n";

    #[test]
    fn pointers_lead_to_places() {
        let document = Document::read("body", TEXT).unwrap();
        for (keys, line, column) in [
            (&[][..], 1, 1),
            (&["a/b"], 2, 10),
            (&["a/b", "0"], 2, 11),
            (&["a/b", "1", "x~"], 2, 21),
            (&["a/b", "1", "none", "x"], 2, 14),
            (&["a/b", "2"], 2, 34),
            (&["a/b", "3"], 2, 10),
            (&["c"], 3, 8),
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
        assert_eq!(document.find("/a~1b/1/x~0").value, Value::String("é\"".into()));
    }

    #[test]
    fn syntax_is_one_fault() {
        for (text, line, column, what) in [
            ("", 1, 1, "EOF while parsing a value"),
            ("{\"a\": }", 1, 7, "expected value"),
            ("{\n\"a\": 1,,}", 2, 8, "key must be a string"),
            ("[1e999]", 1, 6, "number out of range"),
            ("{} x", 1, 4, "trailing characters"),
        ] {
            let faults = Document::read("body", text).unwrap_err();
            assert_eq!(faults.faults, [Fault::at("body", line, column, what, "")], "{text}");
        }
        let deep = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(Document::read("body", &deep(NESTING_MAX)).is_ok());
        assert!(Document::read("body", &deep(NESTING_MAX + 1)).is_err());
        assert!(Document::read("body", &" ".repeat(TEXT_MAX + 1)).is_err());
    }

    #[test]
    fn a_reader_collects_everything() {
        let text = "{\"a\": 1, \"a\": 2, \"b\": \"x\", \"z\": true, \"d\": -1,\n \"e\": 1.5, \"f\": 70000, \"g\": [{}]}";
        let document = Document::read("body", text).unwrap();
        let mut reader = Reader::new(&document);
        let object = reader.object(document.root(), &["a", "b", "missing"], &["d", "e", "f", "g"]).unwrap();
        let get = |key| object.get(key).unwrap();
        assert_eq!(reader.integer(get("a"), 0..=1u8), Some(1));
        assert_eq!(reader.integer(get("b"), 0..=1u8), None);
        assert_eq!(reader.magnitude(get("d")), None);
        assert_eq!(reader.integer(get("e"), 0..=9u32), None);
        assert_eq!(reader.integer(get("f"), 0..=u16::MAX), None);
        assert_eq!(reader.parsed::<std::net::IpAddr>(get("b"), "an address"), None);
        let elements = reader.array(get("g")).unwrap();
        assert!(reader.map(&elements[0]).is_some());
        assert_eq!(reader.boolean(get("a")), None);
        assert_eq!(reader.string(get("a")), None);
        let faults = reader.finish(Some(())).unwrap_err().to_string();
        let expected = "body:1:1: missing key 'missing'\n\
            body:1:7: a number is of the wrong type; expected true or false\n\
            body:1:7: a number is of the wrong type; expected a string\n\
            body:1:10: key 'a' stands here twice; expected each key once\n\
            body:1:23: a string is of the wrong type; expected a whole number from 0 to 1\n\
            body:1:23: 'x' cannot be read; expected an address\n\
            body:1:28: unknown key 'z'; expected a, b, missing, d, e, f, g\n\
            body:1:44: -1 is out of range; expected a number from 0 on\n\
            body:2:7: 1.5 is out of range; expected a whole number from 0 to 9\n\
            body:2:17: 70000 is out of range; expected a whole number from 0 to 65535";
        assert_eq!(faults, expected);
    }

    /// The tree without places, as `serde_json` sees it.
    fn plain(node: &Node<'_>) -> serde_json::Value {
        match &node.value {
            Value::Null => serde_json::Value::Null,
            Value::Boolean(value) => (*value).into(),
            Value::Number(text) => serde_json::from_str(text).unwrap(),
            Value::String(text) => text.to_string().into(),
            Value::Array(nodes) => nodes.iter().map(plain).collect::<Vec<_>>().into(),
            Value::Object(members) => serde_json::Value::Object(
                members.iter().map(|m| (m.key.to_string(), plain(&m.node))).collect(),
            ),
        }
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
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
        fn the_tree_is_serde_jsons(value in json()) {
            let text = format!("{value:#}");
            let document = Document::read("body", &text).unwrap();
            prop_assert_eq!(plain(document.root()), serde_json::from_str::<serde_json::Value>(&text).unwrap());
        }

        #[test]
        fn any_text_is_taken(text in "[\\[\\]{},:\"\\\\ 0-9a-z\n]{0,30}|(?s).{0,40}", pointer in "(/.{0,3}){0,4}|.{0,9}") {
            match Document::read("body", &text) {
                Ok(document) => {
                    document.find(&pointer);
                }
                Err(faults) => prop_assert!(!faults.is_empty()),
            }
        }
    }
}
