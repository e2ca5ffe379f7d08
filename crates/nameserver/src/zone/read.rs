//! Master files (RFC 1035 §5): records out of text, and all that is wrong with it.
//!
//! The scanning is `domain`'s. It ends at the first fault, so a text that has one is gone through a second
//! time, entry by entry, to list them all. Times may be written with units (`1h30m`), as operators do.

mod canonical;
mod entries;

use std::borrow::Cow;

use api::{Fault, Faults};
use bytes::Bytes;
use dns::{Class, Folded, Rtype};
use domain::base::name::{Name, ParsedName, ToName};
use domain::base::rdata::{ComposeRecordData, ParseRecordData};
use domain::dep::octseq::Parser;
use domain::rdata::ZoneRecordData;
use domain::zonefile::inplace::{Entry, ScannedRecord, Zonefile};

pub use canonical::read_canonical;

/// The largest text of one zone, its includes together, in octets: places in it are kept in 32 bits.
pub const TEXT_MAX: usize = 1 << 30;

/// How deep `$INCLUDE` may nest: enough for any layout by hand, and a loop is found at once.
const INCLUDE_DEPTH_MAX: usize = 8;

/// Where a master file's text comes from.
pub struct Source<'a> {
    /// What faults call it: the file's path, or `body`.
    pub name: &'a str,
    /// The text.
    pub text: &'a [u8],
    /// The initial `$ORIGIN`, in wire form, where one is known.
    pub origin: Option<&'a [u8]>,
    /// Reads a file that `$INCLUDE` names; an error says why not. A request's body may include nothing.
    pub include: &'a dyn Fn(&str) -> Result<Vec<u8>, String>,
}

/// The records of a master file, in its order.
pub struct Master<'a> {
    /// The records.
    pub records: Vec<Record>,
    octets: Vec<u8>,
    files: Vec<(String, Cow<'a, [u8]>)>,
}

/// One record: ranges of the [`Master`] that it came with.
pub struct Record {
    /// The type.
    pub rtype: Rtype,
    /// The TTL in seconds.
    pub ttl: u32,
    owner: (u32, u8),
    rdata: (u32, u16),
    file: u16,
    /// Where the scanner stood before and after it.
    place: (u32, u32),
}

/// Reads a master file.
///
/// # Errors
/// Every syntax fault, each with file, line and column.
pub fn read(source: &Source<'_>) -> Result<Master<'static>, Faults> {
    let mut master = Master { records: Vec::new(), octets: Vec::new(), files: Vec::new() };
    let mut faults = Faults::default();
    read_file(source, 0, &mut master, &mut faults);
    faults.or(master)
}

impl Master<'_> {
    /// A record's owner name, in wire form, as written.
    pub fn owner(&self, record: &Record) -> &[u8] {
        &self.octets[record.owner.0 as usize..][..usize::from(record.owner.1)]
    }

    /// A record's data in wire form, names uncompressed.
    pub fn rdata(&self, record: &Record) -> &[u8] {
        &self.octets[record.rdata.0 as usize..][..usize::from(record.rdata.1)]
    }

    /// A fault about a record, at the line where it begins.
    pub fn fault(&self, record: &Record, what: impl Into<String>, expected: impl Into<String>) -> Fault {
        let (name, text) = &self.files[usize::from(record.file)];
        let start = entries::entry_start(text, record.place.0 as usize, record.place.1 as usize);
        let line = 1 + text[..start].iter().filter(|octet| **octet == b'\n').count() as u32;
        Fault::at(name.clone(), line, 1, what, expected)
    }

    fn add(&mut self, record: &ScannedRecord, file: u16, place: (u32, u32)) {
        let owner = self.octets.len();
        record.owner().compose(&mut self.octets).expect("appending to a vector cannot fail");
        let rdata = self.octets.len();
        record.data().compose_rdata(&mut self.octets).expect("appending to a vector cannot fail");
        self.records.push(Record {
            rtype: record.rtype(),
            ttl: record.ttl().as_secs(),
            owner: (owner as u32, (rdata - owner) as u8),
            rdata: (rdata as u32, (self.octets.len() - rdata) as u16),
            file,
            place,
        });
    }
}

/// Reads one file into `master`; on a fault, goes through all of it for the list.
fn read_file(source: &Source<'_>, depth: usize, master: &mut Master<'static>, faults: &mut Faults) {
    let total: usize = master.files.iter().map(|(_, text)| text.len()).sum::<usize>() + source.text.len();
    if total > TEXT_MAX {
        faults.push(Fault::whole(
            source.name,
            "the zone's text is too large",
            format!("at most {TEXT_MAX} octets"),
        ));
        return;
    }
    let file = master.files.len() as u16;
    let text = entries::without_units(source.text);
    master.files.push((source.name.to_string(), text.to_vec().into()));
    let scanned = each_entry(source, &text, |entry, place| match entry {
        Entry::Record(record) => {
            if let Some(fault) = refused(&record) {
                return Err(Some((place, fault)));
            }
            master.add(&record, file, place);
            Ok(())
        }
        Entry::Include { path, origin } => include(source, &path, origin, depth, faults, |inner, faults| {
            read_file(inner, depth + 1, master, faults)
        })
        .map_err(|fault| Some((place, fault))),
    });
    if scanned.is_err() {
        entries::list_faults(source, &text, depth, faults);
    }
}

/// Where the scanner stood before and after an entry.
type Place = (u32, u32);

/// Hands out every entry of `text`; ends at the first error, its own or the caller's.
fn each_entry(
    source: &Source<'_>,
    text: &[u8],
    mut take: impl FnMut(Entry, Place) -> Result<(), Option<(Place, Fault)>>,
) -> Result<(), Option<(Place, Fault)>> {
    if !entries::is_balanced(text) {
        return Err(None);
    }
    let mut zonefile = scanner(text, source.origin);
    let mut before = 0;
    loop {
        match next_entry(&mut zonefile) {
            Ok(Some(entry)) => {
                let after = zonefile.current_offset() as u32;
                take(entry, (before, after))?;
                before = after;
            }
            Ok(None) => return Ok(()),
            Err(_) => return Err(None),
        }
    }
}

/// Scans one entry.
///
/// The scanner has panicked on texts of an odd form before, and master files come from strangers too, so a
/// panic of its becomes an error; the scanner is not used again.
fn next_entry(zonefile: &mut Zonefile) -> Result<Option<Entry>, String> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| zonefile.next_entry())) {
        Ok(scanned) => scanned.map_err(|error| error.to_string()),
        Err(_) => Err("1:1: this cannot be read".into()),
    }
}

fn scanner(text: &[u8], origin: Option<&[u8]>) -> Zonefile {
    let mut zonefile = Zonefile::from(text);
    zonefile.set_default_class(Class::IN);
    if !text.ends_with(b"\n") {
        zonefile.extend_from_slice(b"\n");
    }
    if let Some(origin) = origin.and_then(|wire| Name::from_octets(Bytes::copy_from_slice(wire)).ok()) {
        zonefile.set_origin(origin);
    }
    zonefile
}

/// Runs `read` on an included file.
fn include(
    outer: &Source<'_>,
    path: &str,
    origin: Option<Name<Bytes>>,
    depth: usize,
    faults: &mut Faults,
    read: impl FnOnce(&Source<'_>, &mut Faults),
) -> Result<(), Fault> {
    if depth >= INCLUDE_DEPTH_MAX {
        return Err(Fault::whole(
            outer.name,
            format!("'{path}' is included too deep"),
            format!("at most {INCLUDE_DEPTH_MAX} levels of $INCLUDE"),
        ));
    }
    let text = (outer.include)(path)
        .map_err(|why| Fault::whole(outer.name, format!("'{path}' cannot be included: {why}"), ""))?;
    let origin = origin.as_ref().map_or(outer.origin, |name| Some(name.as_slice()));
    read(&Source { name: path, text: &text, origin, include: outer.include }, faults);
    Ok(())
}

/// What no zone may hold, though the scanner takes it.
fn refused(record: &ScannedRecord) -> Option<Fault> {
    let rtype = record.rtype();
    let meta = matches!(rtype.to_int(), 0 | 41 | 128..=255);
    if meta {
        let what = format!("{rtype} is no type of data");
        return Some(Fault::whole("", what, "a type that a zone can hold, such as A or MX"));
    }
    let mut octets = Vec::new();
    record.owner().compose(&mut octets).expect("appending to a vector cannot fail");
    let owner_ends = octets.len();
    record.data().compose_rdata(&mut octets).expect("appending to a vector cannot fail");
    let (owner, data) = octets.split_at(owner_ends);
    let whole_owner = Folded::read(owner).is_some_and(|name| name.wire_length() == owner.len());
    (!whole_owner || !is_whole(rtype, data))
        .then(|| Fault::whole("", "an empty label in a name", "labels of 1 to 63 octets between the dots"))
}

/// Whether record data reads as its type from end to end: the scanner lets empty labels pass.
fn is_whole(rtype: Rtype, data: &[u8]) -> bool {
    let mut parser = Parser::from_ref(data);
    let read = ZoneRecordData::<&[u8], ParsedName<&[u8]>>::parse_rdata(rtype, &mut parser);
    matches!(read, Ok(Some(_))) && parser.remaining() == 0
}

/// The text of a name in wire form, for faults.
pub fn shown(wire: &[u8]) -> Cow<'_, str> {
    dns::name::to_text(wire).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_include(path: &str) -> Result<Vec<u8>, String> {
        Err(format!("there is no {path}"))
    }

    fn source(text: &str) -> Source<'_> {
        Source { name: "t.zone", text: text.as_bytes(), origin: Some(b"\x07example\0"), include: &no_include }
    }

    fn faults(text: &str) -> Vec<String> {
        read(&source(text)).err().expect("faults").faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn directives_and_units_are_understood() {
        let text = "$TTL 1h30m\n@ IN SOA ns hm ( 1 ; serial\n 1d 2h 4w 5m )\n  NS ns\nns 1w A 192.0.2.1\n\
                    $ORIGIN sub\nwww TXT \"a;b 1h\" 1d\nx TYPE65534 \\# 2 abcd\n";
        let master = read(&source(text)).unwrap();
        let rows: Vec<_> =
            master.records.iter().map(|r| (shown(master.owner(r)).to_string(), r.rtype, r.ttl)).collect();
        assert_eq!(rows[0], ("example.".into(), Rtype::SOA, 5400));
        assert_eq!(rows[2], ("ns.example.".into(), Rtype::A, 604_800));
        assert_eq!(rows[3], ("www.sub.example.".into(), Rtype::TXT, 5400));
        let soa = master.rdata(&master.records[0]);
        assert_eq!(soa[soa.len() - 16..][..4], 86_400u32.to_be_bytes());
        assert_eq!(master.rdata(&master.records[3]), b"\x06a;b 1h\x021d");
        assert_eq!(master.rdata(&master.records[4]), b"\xab\xcd");
    }

    #[test]
    fn every_fault_is_listed_with_its_place() {
        let text = "@ 60 IN SOA ns hm 1 2 3 4 5\n@ NS\nwww A 192.0.2.300\nwww AA 1\n   A 192.0.2.1\n\
                    $FOO x\nbad..name A 192.0.2.1\nok A 192.0.2.2\nm ( A\n 192.0.2.x )\n$INCLUDE other\n";
        let listed = faults(text);
        let lines: Vec<&str> = listed.iter().map(|f| f.split(':').nth(1).unwrap()).collect();
        assert_eq!(lines, ["2", "3", "4", "6", "7", "10", "11"], "{listed:#?}");
        assert!(listed[2].contains("'AA'"), "{}", listed[2]);
        assert!(listed[6].contains("there is no other"), "{}", listed[6]);
    }

    #[test]
    fn meta_types_are_no_data() {
        assert!(faults("a 1 IN TYPE41 \\# 0\n")[0].contains("OPT is no type of data"));
        assert!(faults("a 1 IN TYPE255 \\# 0\nb A x\n").len() == 2);
    }

    #[test]
    fn includes_nest_and_loops_end() {
        let files = |path: &str| match path {
            "inner" => Ok(b"x A 192.0.2.9\n".to_vec()),
            "loop" => Ok(b"$INCLUDE loop\n".to_vec()),
            _ => Err("no such file".into()),
        };
        let of = |text| read(&Source { name: "t", text, origin: Some(b"\x07example\0"), include: &files });
        let master = of(b"$INCLUDE inner sub\n").unwrap();
        assert_eq!(shown(master.owner(&master.records[0])), "x.sub.example.");
        assert!(of(b"$INCLUDE loop\n").err().unwrap().to_string().contains("too deep"));
    }

    #[test]
    fn any_text_is_read_without_panic() {
        use proptest::prelude::*;
        proptest!(|(text in "([a-z@$(); \"\\\\\n\t0-9.]|A |IN |TXT |\\$TTL |\\$ORIGIN ){0,80}")| {
            let _ = read(&source(&text));
        });
    }
}
