//! Who is whose customer: which links may follow one another on a path.
//!
//! ```text
//! # provider|customer|-1 and peer|peer|0, as CAIDA publishes them; further columns are passed over.
//! 3356|64496|-1
//! 3356|1299|0
//! ```

use std::collections::HashMap;

use api::{Fault, Faults};

use super::table::Ases;

/// The most lines of a file: ten times as many as there are links today.
const LINES_MAX: usize = 8_000_000;

/// The longest line, in octets: two numbers of ten digits, the kind, and who says so.
const LINE_MAX: usize = 256;

/// What a link is, seen from where it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It leads from a customer to its provider.
    ToProvider,
    /// It leads from a provider to its customer.
    ToCustomer,
    /// It joins two that carry their customers' traffic for each other.
    Peering,
}

/// The relations that are known, by index of both ASes.
#[derive(Clone, Debug, Default)]
pub struct Relations(HashMap<(u32, u32), Kind>);

impl Relations {
    /// Reads the relations of those ASes that `ases` has; others are passed over.
    ///
    /// # Errors
    /// Everything that is wrong, with its line.
    pub fn read(source: &str, octets: &[u8], ases: &Ases) -> Result<Relations, Faults> {
        let mut faults = Faults::default();
        let mut read = Vec::new();
        for (line, number) in octets.split(|octet| *octet == b'\n').zip(1..) {
            if number as usize > LINES_MAX {
                faults.push(Fault::at(source, number, 1, "too many lines", format!("at most {LINES_MAX}")));
                break;
            }
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            match relation(line) {
                Some((a, b, kind)) => {
                    read.extend(ases.index(a).zip(ases.index(b)).map(|link| (link, kind)));
                }
                None => {
                    let shown = String::from_utf8_lossy(&line[..line.len().min(40)]).into_owned();
                    let what = format!("not a relation: '{}'", shown.escape_debug());
                    let expected = "PROVIDER|CUSTOMER|-1 or PEER|PEER|0, such as 64496|64511|-1";
                    faults.push(Fault::at(source, number, 1, what, expected));
                }
            }
        }
        faults.or(Relations::of(read))
    }

    /// These relations, each in one direction; of two of one link the later counts.
    pub fn of(given: impl IntoIterator<Item = ((u32, u32), Kind)>) -> Relations {
        let mut relations = HashMap::new();
        for ((a, b), kind) in given {
            let back = match kind {
                Kind::ToProvider => Kind::ToCustomer,
                Kind::ToCustomer => Kind::ToProvider,
                Kind::Peering => Kind::Peering,
            };
            relations.insert((a, b), kind);
            relations.insert((b, a), back);
        }
        Relations(relations)
    }

    /// What the link from one AS to another is, where that is known.
    pub fn kind(&self, from: u32, to: u32) -> Option<Kind> {
        self.0.get(&(from, to)).copied()
    }
}

fn relation(line: &[u8]) -> Option<(u32, u32, Kind)> {
    let line = str::from_utf8(line).ok().filter(|line| line.len() <= LINE_MAX)?;
    let mut columns = line.split('|');
    let mut number = || columns.next()?.trim().parse::<u32>().ok();
    let (a, b) = (number()?, number()?);
    let kind = match columns.next()?.trim() {
        "-1" => Kind::ToCustomer,
        "0" => Kind::Peering,
        _ => return None,
    };
    (a != b).then_some((a, b, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_wrong_ones_listed() {
        let ases = Ases::of([10, 20, 30]);
        let text = b"# a comment\n10|20|-1\r\n\n20|30|0|bgp\n10|99|-1\n";
        let relations = Relations::read("rel", text, &ases).unwrap();
        let kinds = [(0, 1), (1, 0), (1, 2), (2, 1), (0, 2)].map(|(a, b)| relations.kind(a, b));
        let expected =
            [Some(Kind::ToCustomer), Some(Kind::ToProvider), Some(Kind::Peering), Some(Kind::Peering), None];
        assert_eq!(kinds, expected);
        let faults =
            Relations::read("rel", b"10|20\nx|20|0\n10|20|1\n10|10|0\n\xff|1|0\n", &ases).unwrap_err();
        let lines: Vec<String> = faults.faults.iter().map(ToString::to_string).collect();
        assert_eq!(lines.len(), 5, "{faults}");
        assert!(lines[0].starts_with("rel:1:1: not a relation: '10|20'; expected PROVIDER|"), "{faults}");
    }
}
