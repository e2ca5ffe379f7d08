//! Canonical text, as [`Zone::to_text`](crate::zone::Zone::to_text) writes it and the store keeps it: a record a
//! line, absolute names, TTL, class and type in each.
//!
//! A line means the same wherever it stands, so the plain ones, most of any large zone, are read right here, a
//! tenth of the scanner's work; all others are handed to the scanner, together.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};

use dns::Rtype;
use dns::name::{LABEL_MAX, NAME_MAX};
use domain::rdata::ZoneRecordData;
use domain::zonefile::inplace::{Entry, ScannedRecordData};

use super::entries::without_shorthands;
use super::{Master, Record, Scanner, each_entry, is_whole, refused};
use crate::zone::forms;

/// Reads canonical text; `None` where it is none, or has a fault: [`read`](super::read) then tells which.
pub fn read_canonical<'a>(name: &str, text: &'a [u8]) -> Option<Master<'a>> {
    let mut master = Master {
        records: Vec::new(),
        octets: Vec::new(),
        files: vec![(name.to_owned(), Cow::Borrowed(text))],
    };
    if text.len() > super::TEXT_MAX {
        return None;
    }
    let (mut others, mut places) = (Vec::new(), Vec::new());
    let mut start = 0;
    for line in text.split_inclusive(|octet| *octet == b'\n') {
        let place = (start as u32, (start + line.len()) as u32);
        start += line.len();
        if master.add_plain(line, place).is_none() {
            if !stands_alone(line) {
                return None;
            }
            others.extend_from_slice(line);
            places.push(place);
        }
    }
    if !others.is_empty() {
        master.add_scanned(&others, places)?;
        // The records of an RRset stay in their order, which answers and tags go by.
        master.records.sort_by_key(|record| record.place);
    }
    Some(master)
}

impl Master<'_> {
    /// Adds the record of a line that needs no scanner: plain names, addresses in their usual form.
    fn add_plain(&mut self, line: &[u8], place: (u32, u32)) -> Option<()> {
        let before = self.octets.len();
        let added = self.plain(line, place);
        if added.is_none() {
            self.octets.truncate(before);
        }
        added
    }

    fn plain(&mut self, line: &[u8], place: (u32, u32)) -> Option<()> {
        let mut words = line.strip_suffix(b"\n")?.split(|octet| *octet == b' ');
        let owner = self.octets.len();
        push_name(&mut self.octets, words.next()?)?;
        let rdata = self.octets.len();
        let ttl = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
        let (b"IN", word, data, None) = (words.next()?, words.next()?, words.next()?, words.next()) else {
            return None;
        };
        let text = std::str::from_utf8(data).ok()?;
        let rtype = match word {
            b"A" => {
                self.octets.extend(text.parse::<Ipv4Addr>().ok()?.octets());
                Rtype::A
            }
            b"AAAA" => {
                self.octets.extend(text.parse::<Ipv6Addr>().ok()?.octets());
                Rtype::AAAA
            }
            b"CNAME" => {
                push_name(&mut self.octets, data)?;
                Rtype::CNAME
            }
            b"NS" => {
                push_name(&mut self.octets, data)?;
                Rtype::NS
            }
            b"PTR" => {
                push_name(&mut self.octets, data)?;
                Rtype::PTR
            }
            _ => return None,
        };
        self.records.push(Record {
            rtype,
            ttl,
            owner: (owner as u32, (rdata - owner) as u8),
            rdata: (rdata as u32, (self.octets.len() - rdata) as u16),
            file: 0,
            place,
        });
        Some(())
    }

    /// Adds the records of all other lines; they must be one a line.
    fn add_scanned(&mut self, text: &[u8], places: Vec<(u32, u32)>) -> Option<()> {
        let (mut places, plain) = (places.into_iter(), without_shorthands(text, None));
        each_entry(&mut Scanner::new(None), &plain.text, |_, entry, scanned| {
            let (Entry::Record(record), Some(place)) = (entry, places.next()) else { return None };
            let rtype = plain.rtype(record.rtype(), scanned);
            let takes = |_, data: &[u8]| is_whole(rtype, data) || was_opaque(rtype, record.data());
            if refused(&record, takes).is_some() {
                return None;
            }
            self.add(&record, rtype, 0, place)
        })?;
        places.next().is_none().then_some(())
    }
}

/// Whether data is in octets and of a type that older programs knew nothing of: they took any, and what a store has of
/// them must not keep a server from starting.
fn was_opaque(rtype: Rtype, data: &ScannedRecordData) -> bool {
    matches!(data, ZoneRecordData::Unknown(_)) && forms::alike(rtype).is_some()
}

/// Whether a line takes neither owner, TTL nor class from those before it, which the scanner does not see all of.
fn stands_alone(line: &[u8]) -> bool {
    let mut is_escaped = false;
    let mut words = line.split(|octet| {
        let ends_word = *octet == b' ' && !is_escaped;
        is_escaped = *octet == b'\\' && !is_escaped;
        ends_word
    });
    let mut word = || words.next().unwrap_or_default();
    let (owner, ttl, class) = (word(), word(), word());
    !owner.is_empty()
        && !owner.iter().any(|octet| octet.is_ascii_whitespace() && *octet != b' ')
        && !ttl.is_empty()
        && ttl.iter().all(u8::is_ascii_digit)
        && class == b"IN"
}

/// Appends a plain name's wire form: absolute, of letters, digits, `-`, `_` and `*`.
fn push_name(octets: &mut Vec<u8>, name: &[u8]) -> Option<()> {
    // The length octet of each label stands where the dot before it was.
    if name.len() < 2 || name.len() >= NAME_MAX {
        return None;
    }
    let start = octets.len();
    octets.push(0);
    octets.extend_from_slice(name);
    let (mut label, mut at) = (start, start + 1);
    while let Some(&octet) = octets.get(at) {
        if octet == b'.' {
            let length = at - label - 1;
            if length == 0 || length > LABEL_MAX {
                return None;
            }
            octets[label] = length as u8;
            label = at;
        } else if !octet.is_ascii_alphanumeric() && !matches!(octet, b'-' | b'_' | b'*') {
            return None;
        }
        at += 1;
    }
    // An absolute name ends with a dot, where the root's octet comes to stand.
    if label + 1 != octets.len() {
        return None;
    }
    octets[label] = 0;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::super::{Source, read};
    use super::*;

    #[test]
    fn records_stay_in_their_order() {
        let text = b"a. 60 IN NS \\000z.\na. 60 IN NS b.\na. 60 IN MX 1 c.\na. 60 IN NS d.\n";
        let master = read_canonical("t", text).expect("it is canonical");
        let data: Vec<&[u8]> = master.records.iter().map(|record| master.rdata(record)).collect();
        assert_eq!(data, [&b"\x02\0z\0"[..], b"\x01b\0", b"\0\x01\x01c\0", b"\x01d\0"]);
    }

    type Row = (Vec<u8>, Rtype, u32, Vec<u8>);

    fn rows(master: &Master<'_>) -> Vec<Row> {
        let row = |record| (master.owner(record).to_vec(), master.rdata(record).to_vec());
        let mut rows: Vec<Row> = master
            .records
            .iter()
            .map(|record| {
                let (owner, data) = row(record);
                (owner, record.rtype, record.ttl, data)
            })
            .collect();
        rows.sort();
        rows
    }

    fn scanned(text: &[u8]) -> Option<Vec<Row>> {
        let include = |_: &str| Err("nothing is included".to_owned());
        read(&Source { name: "t", text, origin: None, include: &include }).ok().map(|master| rows(&master))
    }

    #[test]
    fn plain_lines_and_others_are_read_as_the_scanner_does() {
        let text = b"example. 60 IN SOA ns.example. hm.example. 1 2 3 4 5\nexample. 60 IN NS ns.example.\n\
                     *.a_b.example. 60 IN A 192.0.2.1\nX.example. 4294967295 IN AAAA 2001:db8::1\n\
                     a\\.b.example. 60 IN CNAME x.example.\nt.example. 60 IN TXT \"a; b\" \"(\"\n\
                     p.example. 0 IN PTR \\032.example.\n. 60 IN NS a.\n\\ 7\\\\.example. 60 IN MX 1 \\ .\n";
        let master = read_canonical("t", text).expect("canonical");
        assert_eq!(Some(rows(&master)), scanned(text));
        assert_eq!(rows(&master).len(), 9);
        let txt = master.records.iter().find(|record| record.rtype == Rtype::TXT).expect("there is one");
        assert_eq!(master.fault(txt, "", "").line, Some(6));
    }

    #[test]
    fn octets_that_an_older_program_took_are_read_as_they_are() {
        let text = b"a.example. 60 IN AFSDB \\# 3 000102\na.example. 60 IN TYPE21 \\# 4 00010161\n";
        assert!(scanned(text).is_none());
        let master = read_canonical("t", text).expect("canonical");
        let data: Vec<&[u8]> = master.records.iter().map(|record| master.rdata(record)).collect();
        assert_eq!(data, [&[0, 1, 2][..], &[0, 1, 1, b'a']]);
    }

    #[test]
    fn what_is_not_canonical_is_left_to_the_scanner() {
        for text in [
            &b"a.example. 60 IN A 192.0.2.256\n"[..],
            b"a..example. 60 IN A 192.0.2.1\n",
            b"a.example 60 IN A 192.0.2.1\n",
            b"a.example. 60 IN SOA ( a.\n b. 1 2 3 4 5 )\n",
            b"$ORIGIN example.\na.example. 60 IN A 192.0.2.1\n",
            b"a.example. 60 IN TYPE41 \\# 0\n",
            b"a.example. 60 IN A\n",
            b"a.example. 60 IN MX \\# 3 000102\n",
            b"a.example. 60 IN AFSDB 1 a..b.\n",
            b"a..example. 60 IN AFSDB \\# 3 000102\n",
            b"a.example. 60 IN TXT \"a\n",
            // What they lack the plain line would give them, which the scanner is not shown.
            b"a.example. 60 IN TXT a\nb.example. 50 IN A 192.0.2.1\n 60 IN TXT b\n",
            b"a.example. 60 IN TXT a\nb.example. 50 IN A 192.0.2.1\n\t60 IN TXT b\n",
            b"a.example. 60 IN TXT a\nb.example. 50 IN A 192.0.2.1\nb.example. IN TXT b\n",
        ] {
            assert!(read_canonical("t", text).is_none(), "{}", String::from_utf8_lossy(text));
        }
        let long = [vec![b'a'; 64], b". 60 IN A 192.0.2.1\n".to_vec()].concat();
        assert!(read_canonical("t", &long).is_none());
    }

    #[test]
    fn a_line_is_never_read_otherwise_than_by_the_scanner() {
        use proptest::prelude::*;
        let word = "(\\.|[ab*_]{1,3}\\.|[ab]{60,66}\\.|a\\.b\\.|a\\\\.\\.| |60 |IN |A |NS |AAAA |192\\.0\\.2\\.1|::1|x){1,4}";
        let line = (word, "(60|4294967295|4294967296|1h| )", "(IN|in|CH)", "(A|NS|CNAME|PTR|AAAA|TXT)", word);
        proptest!(|(lines in proptest::collection::vec(line, 1..4))| {
            let text: String = lines
                .iter()
                .map(|(owner, ttl, class, rtype, data)| format!("{owner} {ttl} {class} {rtype} {data}\n"))
                .collect();
            if let Some(master) = read_canonical("t", text.as_bytes()) {
                prop_assert_eq!(Some(rows(&master)), scanned(text.as_bytes()), "{}", text);
            }
        });
    }
}
