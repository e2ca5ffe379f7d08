//! One mistake in something that a person wrote (zone, partition, policy, configuration), with its place.

use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The most faults that one list keeps; what is beyond is counted in [`Faults::omitted`].
///
/// A person mends the first few and tries again; a broken gigabyte must not become a list of its size.
pub const FAULTS_MAX: usize = 1_000;

/// A mistake: where it is, what is wrong, and what was expected instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Fault {
    /// The file's path, or what stands for it: `body` for a request's body.
    pub source: String,
    /// The line, counted from 1; absent where the fault is about the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The column in bytes, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// What is wrong, in lower case, without a full stop.
    pub what: String,
    /// What was expected instead; empty where `what` says it all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub expected: String,
}

impl Fault {
    /// A fault about the whole of `source`.
    pub fn whole(source: impl Into<String>, what: impl Into<String>, expected: impl Into<String>) -> Self {
        Fault {
            source: source.into(),
            line: None,
            column: None,
            what: what.into(),
            expected: expected.into(),
        }
    }

    /// A fault at a line and column of `source`, both counted from 1.
    pub fn at(
        source: impl Into<String>,
        line: u32,
        column: u32,
        what: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Fault { line: Some(line), column: Some(column), ..Fault::whole(source, what, expected) }
    }
}

impl fmt::Display for Fault {
    /// `file:line:column: what; expected …`, as compilers print it, so that editors can jump there. Control characters
    /// are escaped: a fault quotes what somebody wrote, and is one line on a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_line(f, &self.source)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
            if let Some(column) = self.column {
                write!(f, ":{column}")?;
            }
        }
        f.write_str(": ")?;
        write_line(f, &self.what)?;
        if !self.expected.is_empty() {
            f.write_str("; expected ")?;
            write_line(f, &self.expected)?;
        }
        Ok(())
    }
}

fn write_line(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    text.chars().try_for_each(|character| match character {
        control if control.is_control() => write!(f, "{}", control.escape_default()),
        plain => f.write_char(plain),
    })
}

/// Everything that is wrong with one thing, in the order in which it stands there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Faults {
    /// The first [`FAULTS_MAX`] faults.
    pub faults: Vec<Fault>,
    /// How many more there were.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u64,
}

impl Faults {
    /// Adds a fault, or counts it where the list is full.
    pub fn push(&mut self, fault: Fault) {
        self.push_with(|| fault);
    }

    /// Adds the fault that `find` tells of; where the list is full, it is only counted, and its place not looked for.
    pub fn push_with(&mut self, find: impl FnOnce() -> Fault) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(find());
        } else {
            self.omitted += 1;
        }
    }

    /// Appends all of `other`.
    pub fn append(&mut self, other: Faults) {
        self.omitted += other.omitted;
        for fault in other.faults {
            self.push(fault);
        }
    }

    /// The same, source by source, in the order of their lines and columns; what is about the whole of one comes first.
    pub fn in_order(mut self) -> Faults {
        let mut sources: Vec<String> = Vec::new();
        for fault in &self.faults {
            if !sources.contains(&fault.source) {
                sources.push(fault.source.clone());
            }
        }
        let turn = |fault: &Fault| sources.iter().position(|source| *source == fault.source);
        self.faults.sort_by_key(|fault| (turn(fault), fault.line, fault.column));
        self
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty() && self.omitted == 0
    }

    /// `value` where nothing is wrong, else the faults.
    pub fn or<T>(self, value: T) -> Result<T, Faults> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Self {
        Faults { faults: vec![fault], omitted: 0 }
    }
}

impl fmt::Display for Faults {
    /// A fault a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.faults.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{fault}")?;
        }
        if self.omitted > 0 {
            write!(f, "\nand {} more", self.omitted)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_reads_like_a_compilers() {
        let fault = Fault::at("example.zone", 3, 7, "unknown type 'AA'", "a record type such as A or MX");
        assert_eq!(
            fault.to_string(),
            "example.zone:3:7: unknown type 'AA'; expected a record type such as A or MX"
        );
        assert_eq!(Fault::whole("body", "empty", "").to_string(), "body: empty");
        let quoted = Fault::whole("a\nb", "unknown key '\u{1b}[2Jé\u{9b}'", "a\tb");
        assert_eq!(quoted.to_string(), r"a\nb: unknown key '\u{1b}[2Jé\u{9b}'; expected a\tb");
    }

    #[test]
    fn faults_come_source_by_source_and_line_by_line() {
        let mut faults = Faults::default();
        for (source, line) in [("b", Some(3)), ("a", Some(2)), ("b", Some(1)), ("a", None), ("--c", None)] {
            faults.push(Fault { line, ..Fault::whole(source, "wrong", "") });
        }
        let told = faults.in_order().to_string();
        assert_eq!(told, "b:1: wrong\nb:3: wrong\na: wrong\na:2: wrong\n--c: wrong");
    }

    #[test]
    fn the_list_is_bounded_and_says_what_it_left_out() {
        let mut faults = Faults::default();
        for i in 0..FAULTS_MAX + 5 {
            faults.push(Fault::whole("x", i.to_string(), ""));
        }
        assert_eq!((faults.faults.len(), faults.omitted), (FAULTS_MAX, 5));
        faults.push_with(|| panic!("it is not looked for"));
        assert_eq!(faults.omitted, 6);
        assert!(faults.to_string().ends_with("and 6 more"));
        assert!(faults.or(()).is_err());
    }
}
