//! What an external proximity service says: lines `ADDRESS REGION`, of a bounded length.

use std::fmt;
use std::net::IpAddr;

/// The longest line, in octets: an address has 45 at most, the name of a region 63.
pub const LINE_MAX: usize = 256;

/// A line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said<'a> {
    /// The address that was asked about.
    pub address: IpAddr,
    /// The word behind it.
    pub region: &'a str,
}

/// What is wrong with what it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// More than [`LINE_MAX`] octets without a line's end; nothing behind can be understood.
    Endless,
    /// A line of another form; what is not printable in it is escaped.
    Malformed(String),
    /// A region that there is not, said of an address.
    UnknownRegion(IpAddr, String),
    /// An address that is not asked about.
    Unasked(IpAddr),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Endless => write!(f, "a line has no end; expected at most {LINE_MAX} octets"),
            Wrong::Malformed(line) => write!(f, "the line '{line}' is malformed; expected ADDRESS REGION"),
            Wrong::UnknownRegion(address, region) => write!(
                f,
                "the line '{address} {}' names a region that does not exist; expected the name or number of one that \
                 was added, or -",
                region.escape_debug()
            ),
            Wrong::Unasked(address) => {
                write!(f, "{address} was not asked about; expected an address that was, once")
            }
        }
    }
}

/// Puts octets together to lines.
#[derive(Debug, Default)]
pub struct Lines {
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
}

impl Lines {
    /// Takes octets as they come, and tells each line that is whole.
    ///
    /// # Errors
    /// [`Wrong::Endless`]; the connection is then of no more use.
    pub fn push(
        &mut self,
        octets: &[u8],
        tell: &mut dyn FnMut(Result<Said<'_>, Wrong>),
    ) -> Result<(), Wrong> {
        let mut rest = octets;
        while let Some(end) = rest.iter().position(|octet| *octet == b'\n') {
            let (line, behind) = (&rest[..end], &rest[end + 1..]);
            if self.begun.len() + line.len() > LINE_MAX {
                return Err(Wrong::Endless);
            }
            if self.begun.is_empty() {
                tell(read(line));
            } else {
                self.begun.extend_from_slice(line);
                tell(read(&self.begun));
                self.begun.clear();
            }
            rest = behind;
        }
        if self.begun.len() + rest.len() > LINE_MAX {
            return Err(Wrong::Endless);
        }
        self.begun.extend_from_slice(rest);
        Ok(())
    }
}

fn read(line: &[u8]) -> Result<Said<'_>, Wrong> {
    let malformed = || Wrong::Malformed(line.trim_ascii_end().escape_ascii().to_string());
    let text = str::from_utf8(line).map_err(|_| malformed())?;
    let mut words = text.split_ascii_whitespace();
    let (Some(address), Some(region), None) = (words.next(), words.next(), words.next()) else {
        return Err(malformed());
    };
    Ok(Said { address: address.parse().map_err(|_| malformed())?, region })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What was told: address and region.
    type Told = Result<(String, String), Wrong>;

    fn told(parts: &[&[u8]]) -> (Vec<Told>, Result<(), Wrong>) {
        let (mut lines, mut told) = (Lines::default(), Vec::new());
        for part in parts {
            let mut tell = |said: Result<Said<'_>, Wrong>| {
                told.push(said.map(|said| (said.address.to_string(), said.region.to_string())));
            };
            if let Err(wrong) = lines.push(part, &mut tell) {
                return (told, Err(wrong));
            }
        }
        (told, Ok(()))
    }

    #[test]
    fn lines_are_put_together_and_read() {
        let said = |address: &str, region: &str| Ok((address.to_string(), region.to_string()));
        let (lines, outcome) = told(&[
            b"192.0.2.0 eu",
            b"rope\r\n2001:DB8::  -\n",
            b"\nnowhere europe\n192.0.2.0\n192.0.2.0 a b\n\xff\xfe x\n192.0.2.1 7",
        ]);
        let wrong = |line: &str| Err(Wrong::Malformed(line.into()));
        let expected = [
            said("192.0.2.0", "europe"),
            said("2001:db8::", "-"),
            wrong(""),
            wrong("nowhere europe"),
            wrong("192.0.2.0"),
            wrong("192.0.2.0 a b"),
            wrong(r"\xff\xfe x"),
        ];
        assert_eq!((lines, outcome), (expected.to_vec(), Ok(())));
    }

    #[test]
    fn what_is_wrong_names_the_line_and_the_region() {
        let address = IpAddr::from([192, 0, 2, 1]);
        for (wrong, expected) in [
            (
                Wrong::UnknownRegion(address, "atlan\u{7}tis".into()),
                r"the line '192.0.2.1 atlan\u{7}tis' names a region that does not exist; expected ",
            ),
            (Wrong::Unasked(address), "192.0.2.1 was not asked about; expected "),
            (Wrong::Malformed("a b c".into()), "the line 'a b c' is malformed; expected ADDRESS REGION"),
        ] {
            assert!(wrong.to_string().starts_with(expected), "{wrong}");
        }
    }

    #[test]
    fn a_line_without_end_is_the_end() {
        let long = [b'1'; LINE_MAX];
        assert_eq!(told(&[&long]).1, Ok(()));
        assert_eq!(told(&[&long, b"\n"]), (vec![Err(Wrong::Malformed("1".repeat(LINE_MAX)))], Ok(())));
        assert_eq!(told(&[&long, b"1"]), (vec![], Err(Wrong::Endless)));
        assert_eq!(told(&[b"1", &long, b"\n"]), (vec![], Err(Wrong::Endless)));
    }

    proptest! {
        #[test]
        fn how_octets_are_cut_does_not_matter(
            text in "([0-9a-f.:]{0,9} ?[a-z\\n]{0,4}){0,20}", cuts in proptest::collection::vec(0usize..200, 0..5),
        ) {
            let octets = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(octets.len())).chain([0, octets.len()]).collect();
            cuts.sort_unstable();
            let parts: Vec<&[u8]> = cuts.windows(2).map(|cut| &octets[cut[0]..cut[1]]).collect();
            prop_assert_eq!(told(&parts), told(&[octets]));
        }
    }
}
