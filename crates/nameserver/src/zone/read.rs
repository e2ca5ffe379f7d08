//! Master files (RFC 1035 §5): records out of text, and all that is wrong with it.
//!
//! The scanning is `domain`'s. It ends at the first fault, so a text that has one is gone through a second
//! time, entry by entry, to list them all. What operators write and it does not take, such as times with units
//! (`1h30m`), is written otherwise first.

mod canonical;
mod entries;
mod numbered;
mod tokens;

use std::borrow::Cow;

use api::{Fault, Faults, file};
use bytes::Bytes;
use dns::{Class, Folded, Rtype};
use domain::base::name::{Name, ParsedName, ToName};
use domain::base::rdata::{ComposeRecordData, ParseRecordData};
use domain::dep::octseq::Parser;
use domain::rdata::ZoneRecordData;
use domain::zonefile::inplace::{Entry, ScannedRecord, Zonefile};

use super::forms;

pub use canonical::read_canonical;
pub(super) use entries::{NO_DEFAULT_ALPN, OLD_NO_DEFAULT_ALPN};

/// The largest text of one zone, its includes together, in octets: places in it are kept in 32 bits.
pub const TEXT_MAX: usize = 1 << 30;

/// How deep `$INCLUDE` may nest: enough for any layout by hand, and a loop is found at once.
const INCLUDE_DEPTH_MAX: usize = 8;

/// The most files of one zone, each counted as often as it is included: records keep theirs in 16 bits.
const FILES_MAX: usize = 10_000;

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
    read_by(source, is_valid)
}

/// Reads a master file that was taken and stored before: an older program may have let pass what [`read`] does not, and was
/// believed. What cannot be served is a fault all the same.
///
/// # Errors
/// As [`read`].
pub fn read_stored(source: &Source<'_>) -> Result<Master<'static>, Faults> {
    read_by(source, is_whole)
}

fn read_by(source: &Source<'_>, takes: Takes) -> Result<Master<'static>, Faults> {
    let mut master = Master { records: Vec::new(), octets: Vec::new(), files: Vec::new() };
    let mut faults = Faults::default();
    read_file(source, &mut Scanner::new(source.origin), (0, takes), &mut master, &mut faults);
    faults.or(master)
}

/// Whether data of a type is taken, beyond what the scanner says.
type Takes = fn(Rtype, &[u8]) -> bool;

impl Master<'_> {
    /// The same with texts of its own.
    pub fn into_owned(self) -> Master<'static> {
        let files = self.files.into_iter().map(|(name, text)| (name, text.into_owned().into())).collect();
        Master { records: self.records, octets: self.octets, files }
    }

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
        Fault::at(name.as_str(), 1 + entries::lines(&text[..start]), 1, what, expected)
    }

    /// The first record of a type at a name, which may be folded.
    pub fn first(&self, owner: &[u8], rtype: Rtype) -> Option<&Record> {
        let is_it =
            |record: &&Record| record.rtype == rtype && self.owner(record).eq_ignore_ascii_case(owner);
        self.records.iter().find(is_it)
    }

    /// Adds a record; `None` where there is no room for another.
    fn add(&mut self, record: &ScannedRecord, rtype: Rtype, file: u16, place: Place) -> Option<()> {
        let owner = self.octets.len();
        record.owner().compose(&mut self.octets).expect("appending to a vector cannot fail");
        let rdata = self.octets.len();
        record.data().compose_rdata(&mut self.octets).expect("appending to a vector cannot fail");
        self.records.push(Record {
            rtype,
            ttl: record.ttl().as_secs(),
            owner: (owner as u32, (rdata - owner) as u8),
            rdata: (rdata as u32, (self.octets.len() - rdata) as u16),
            file,
            place,
        });
        // What comes next begins here.
        u32::try_from(self.octets.len()).ok().map(|_| ())
    }
}

/// Reads one file into `master`; on a fault, goes through all of it for the list, and leaves the scanner as it was.
fn read_file(
    source: &Source<'_>,
    scanner: &mut Scanner,
    (depth, takes): (usize, Takes),
    master: &mut Master<'static>,
    faults: &mut Faults,
) {
    let total: usize = master.files.iter().map(|(_, text)| text.len()).sum::<usize>() + source.text.len();
    if total > TEXT_MAX {
        faults.push(Fault::whole(
            source.name,
            "the zone's text is too large",
            format!("at most {TEXT_MAX} octets"),
        ));
        return;
    }
    if master.files.len() == FILES_MAX {
        faults.push(Fault::whole(
            source.name,
            "one file too many is included",
            format!("at most {FILES_MAX}"),
        ));
        return;
    }
    let file = master.files.len() as u16;
    let origin = scanner.zonefile.origin().ok();
    let plain = entries::without_shorthands(source.text, origin.as_ref().map(Name::as_slice));
    master.files.push((source.name.to_string(), plain.text.to_vec().into()));
    let start = scanner.clone();
    let mut included = 0;
    let scanned = each_entry(scanner, &plain.text, |scanner, entry, place| match entry {
        Entry::Record(record) => {
            if refused(&record, takes).is_some() {
                return None;
            }
            master.add(&record, plain.rtype(record.rtype(), place), file, place)
        }
        Entry::Include { path, origin } => {
            let read = |inner: &Source<'_>, scanner: &mut Scanner| {
                read_file(inner, scanner, (depth + 1, takes), master, faults);
            };
            include(source, scanner, (&path, origin), depth, read).ok()?;
            included += 1;
            Some(())
        }
    });
    if scanned.is_none()
        && let Some(fault) = no_text(source)
    {
        faults.push(fault);
        *scanner = start;
    } else if scanned.is_none() {
        let known = (faults.faults.len(), faults.omitted);
        entries::list_faults(source, &start, takes, faults, |scanner, (path, origin), faults| {
            if included > 0 {
                included -= 1;
                return Ok(());
            }
            let read = |inner: &Source<'_>, scanner: &mut Scanner| {
                read_file(inner, scanner, (depth + 1, takes), master, faults);
            };
            include(source, scanner, (path, origin), depth, read)
        });
        // Half a file must not pass for one.
        if (faults.faults.len(), faults.omitted) == known {
            faults.push(Fault::whole(source.name, "this cannot be read", "a master file (RFC 1035)"));
        }
        *scanner = start;
    }
}

/// What BIND's raw form of a zone begins with: its number, of 32 bits.
const RAW: &[u8] = b"\0\0\0\x02";

/// That what could not be read is no text at all, where it begins as something that is known: its octets, told one by one
/// as faults of entries, would help nobody.
fn no_text(source: &Source<'_>) -> Option<Fault> {
    const EXPECTED: &str = "a master file (RFC 1035)";
    if source.text.starts_with(RAW) {
        let convert = "named-compilezone -f raw -F text -o NEW-FILE ZONE FILE";
        let what = "it is no text, but a zone in BIND's raw form";
        return Some(Fault::whole(source.name, what, format!("{EXPECTED}, such as {convert} writes")));
    }
    file::compressed(source.name, source.text, EXPECTED)
}

/// Where the scanner stood before and after an entry.
type Place = (u32, u32);

/// Hands out every entry of `text`; `None` at the first fault, its own or the caller's.
fn each_entry(
    scanner: &mut Scanner,
    text: &[u8],
    mut take: impl FnMut(&mut Scanner, Entry, Place) -> Option<()>,
) -> Option<()> {
    let mut before = 0;
    for part in entries::parts(text)? {
        scanner.show(&text[part.octets.clone()]);
        if let Some(ttl) = part.ttl {
            scanner.ttl = text[ttl].to_vec();
        }
        while let Some(entry) = scanner.next_entry().ok()? {
            let after = part.octets.end.saturating_sub(scanner.pending()) as u32;
            take(scanner, entry, (before, after))?;
            before = after;
        }
    }
    Some(())
}

/// `domain`'s scanner, and what it does not tell of itself.
///
/// A file that is included goes on with a copy of it, and so with the origin, owner and TTL of the line that
/// includes it.
#[derive(Clone)]
struct Scanner {
    zonefile: Zonefile,
    /// How much it was shown.
    octets: usize,
    lines: u32,
    /// The last `$TTL` line; empty where there was none.
    ttl: Vec<u8>,
}

impl Scanner {
    fn new(origin: Option<&[u8]>) -> Scanner {
        let mut zonefile = Zonefile::new();
        zonefile.set_default_class(Class::IN);
        if let Some(origin) = origin.and_then(|wire| Name::from_octets(Bytes::copy_from_slice(wire)).ok()) {
            zonefile.set_origin(origin);
        }
        // It begins with an octet of its own, and counts it.
        Scanner { zonefile, octets: 1, lines: 0, ttl: Vec::new() }
    }

    /// Lets it go on with whole lines; it must have read all that it was shown before.
    fn show(&mut self, text: &[u8]) {
        let end: &[u8] = if text.is_empty() || text.ends_with(b"\n") { b"" } else { b"\n" };
        self.zonefile.reserve(text.len() + end.len());
        for octets in [text, end] {
            self.zonefile.extend_from_slice(octets);
            self.octets += octets.len();
            self.lines += entries::lines(octets);
        }
    }

    /// The scanner behind a record of an owner, where the owner can be read.
    fn behind(&self, owner: &[u8]) -> Scanner {
        let mut behind = self.clone();
        behind.show(&[owner, b" A 0.0.0.0\n"].concat());
        if behind.next_entry().is_ok() { behind } else { self.clone() }
    }

    /// How many of the octets that it was shown it may not have read.
    fn pending(&self) -> usize {
        self.octets.saturating_sub(self.zonefile.current_offset())
    }

    /// Scans one entry.
    ///
    /// The scanner has panicked on texts of an odd form before, and master files come from strangers too, so a
    /// panic of its becomes an error; the scanner is not used again.
    fn next_entry(&mut self) -> Result<Option<Entry>, String> {
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.zonefile.next_entry())) {
            Ok(scanned) => scanned.map_err(|error| error.to_string()),
            Err(_) => Err("1:1: this cannot be read".into()),
        }
    }
}

/// Runs `read` on an included file, with the scanner to read it with.
///
/// Behind it the origin and the owner are again those before it, while a `$TTL` in it holds on: BIND has it so, and
/// RFC 1035 §5.1 speaks of the origin only.
fn include(
    outer: &Source<'_>,
    scanner: &mut Scanner,
    (path, origin): (&str, Option<Name<Bytes>>),
    depth: usize,
    read: impl FnOnce(&Source<'_>, &mut Scanner),
) -> Result<(), Fault> {
    if depth >= INCLUDE_DEPTH_MAX {
        return Err(Fault::whole(
            outer.name,
            format!("'{path}' is included too deep"),
            format!("at most {INCLUDE_DEPTH_MAX} levels of $INCLUDE"),
        ));
    }
    // The scanner leaves the second of two quotes.
    let path = path.strip_suffix('"').unwrap_or(path);
    let text = (outer.include)(path)
        .map_err(|why| Fault::whole(outer.name, format!("'{path}' cannot be included: {why}"), ""))?;
    let mut inner = scanner.clone();
    if let Some(origin) = origin {
        inner.zonefile.set_origin(origin);
    }
    read(&Source { name: path, text: &text, origin: None, include: outer.include }, &mut inner);
    if inner.ttl != scanner.ttl {
        scanner.show(&inner.ttl);
        scanner.ttl = inner.ttl;
    }
    Ok(())
}

/// What no zone may hold, though the scanner takes it; `takes` says whether data is of its type.
fn refused(record: &ScannedRecord, takes: impl FnOnce(Rtype, &[u8]) -> bool) -> Option<Fault> {
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
    if whole_owner && takes(rtype, data) {
        return None;
    }
    let (what, expected) = if !whole_owner {
        ("an empty label in a name".to_owned(), "labels of 1 to 63 octets between the dots")
    } else if matches!(record.data(), ZoneRecordData::Unknown(_)) {
        let expected = "octets that are, with names written out (RFC 3597 §4)";
        (format!("the octets are no data of {rtype}"), expected)
    } else if matches!(rtype, Rtype::SVCB | Rtype::HTTPS) && is_whole(rtype, data) {
        let what = format!(
            "a parameter of {rtype} has a value, or an item of it, that its key does not take, or is missing"
        );
        (
            what,
            "no empty items, alpn beside no-default-alpn, and all that mandatory lists (RFC 9460 §7 and §8)",
        )
    } else if is_whole(rtype, data) {
        (format!("a field of {rtype} is empty"), "all fields of the type; the line may have been cut")
    } else {
        let expected = "the fields of the type, with labels of 1 to 63 octets between the dots of names";
        (format!("this is no data of {rtype}, or has an empty label in a name"), expected)
    };
    Some(Fault::whole("", what, expected))
}

/// Whether record data reads as its type from end to end: the scanner lets empty labels pass, and octets (RFC 3597 §5) may
/// be anything.
pub(super) fn is_whole(rtype: Rtype, data: &[u8]) -> bool {
    let mut parser = Parser::from_ref(data);
    let rtype = forms::alike(rtype).unwrap_or(rtype);
    let read = ZoneRecordData::<&[u8], ParsedName<&[u8]>>::parse_rdata(rtype, &mut parser);
    let Ok(Some(read)) = read else { return false };
    parser.remaining() == 0 && !has_pointer(&read, data)
}

/// As [`is_whole`], and no field is empty that may not be: older programs took such, so a store may have them.
pub(super) fn is_valid(rtype: Rtype, data: &[u8]) -> bool {
    is_whole(rtype, data) && forms::is_complete(rtype, data)
}

/// Whether a name in record data ends with a pointer (RFC 1035 §4.1.4), which leads nowhere in a zone.
fn has_pointer(read: &ZoneRecordData<&[u8], ParsedName<&[u8]>>, data: &[u8]) -> bool {
    if data.iter().all(|octet| *octet < 0xc0) {
        return false;
    }
    let mut unpacked = Vec::with_capacity(data.len());
    read.compose_rdata(&mut unpacked).expect("appending to a vector cannot fail");
    unpacked != data
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
    fn octets_are_those_of_their_type_without_pointers() {
        for line in [
            "mx MX \\# 4 0000C000",
            "@ SOA \\# 23 00C0000000000100000001000000010000000100000001",
            "s SRV \\# 8 000000000000C000",
            "d AFSDB \\# 4 0001C000",
            "u URI \\# 0",
            "i ISDN \\# 0",
            "l L32 \\# 1 00",
            "p PX \\# 6 000a0161c00c",
            "k DS \\# 4 00010d02",
            "t TXT \\# 0",
            "t SPF \\# 0",
            "a A \\# 3 C00002",
        ] {
            let told = faults(&format!("{line}\n"));
            assert!(told[0].contains(":1:1: the octets are no data of "), "{line}: {told:?}");
        }
        assert!(read(&source("mx 1 MX \\# 4 000001C0\n")).is_err(), "a name has an end");
        let text = "a 1 A \\# 4 C000C001\nmx 1 MX \\# 5 000001C100\nt 1 TXT \\# 1 00\n";
        assert_eq!(read(&source(text)).unwrap().records.len(), 3);
    }

    #[test]
    fn fields_that_a_cut_line_lacks_are_not_empty() {
        for line in [
            "x DS 1 13 2",
            "x CDS 1 13 2",
            "x DLV 1 13 2",
            "x DNSKEY 257 3 13",
            "x CDNSKEY 257 3 13",
            "x KEY 256 3 13",
            "x TLSA 3 1 1",
            "x SMIMEA 3 1 1",
            "x SSHFP 1 1",
            "x OPENPGPKEY",
            "x DHCID",
            "x CERT 1 2 3",
            "x RRSIG A 13 3 300 20300101000000 20200101000000 1 @",
        ] {
            let told = faults(&format!("$TTL 1\n{line}\n"));
            let is_told = told[0].contains("is empty; expected all fields")
                || told[0].contains("the octets are no data");
            assert!(is_told && told[0].contains(":2:"), "{line}: {told:?}");
        }
        // To take a key or a digest back (RFC 8078 §4), to have none (RFC 2535 §3.1.2), and what may be empty.
        let text = "$TTL 1\nx CDS 0 0 0 00\nx CDNSKEY 0 3 0 AA==\nx KEY 49152 3 13\nx APL\nx APL ; none\nx SVCB 1 . alpn=h2\n\
                    x CSYNC 66 3\n";
        assert_eq!(read(&source(text)).unwrap().records.len(), 7);
    }

    #[test]
    fn a_parameter_by_its_number_has_the_octets_of_its_value() {
        for (parameters, expected) in [
            (r"key1=\002h2", &b"\0\x01\0\x03\x02h2"[..]),
            (r#"key3="\001\187" alpn="h2""#, b"\0\x01\0\x03\x02h2\0\x03\0\x02\x01\xbb"),
            (r"key4=\192\000\002\001", b"\0\x04\0\x04\xc0\0\x02\x01"),
            ("key5=AQID", b"\0\x05\0\x04AQID"),
            ("key9=ab key65333", b"\0\x09\0\x02ab\xff\x35\0\0"),
            ("dohpath=/q{?dns}", b"\0\x07\0\x08/q{?dns}"),
            ("dohpath=/q{?a,dns}", b"\0\x07\0\x0a/q{?a,dns}"),
            (r"key1=\004f\\o\044", b"\0\x01\0\x05\x04f\\o,"),
            ("mandatory=key9,port key9=a port=1", b"\0\0\0\x04\0\x03\0\x09\0\x03\0\x02\0\x01\0\x09\0\x01a"),
        ] {
            let master = read(&source(&format!("x 1 SVCB 1 t {parameters}\n"))).unwrap();
            let data = master.rdata(&master.records[0]);
            assert_eq!(data, [b"\0\x01\x01t\x07example\0", expected].concat(), "{parameters}");
        }
        // No data of its key; one key twice; no template with `dns` (RFC 9461 §5).
        for parameters in [
            "dohpath=/q",
            "dohpath=q{?dns}",
            "dohpath=/q{?dnssec}",
            "key1=h2",
            "key3=443",
            "key1=\\002h2 alpn=h2",
            "key65333=a key65333=b",
            "mandatory=key9 key65333=a",
            "mandatory=key9,key9 key9=a",
            "mandatory=key9,none key9=a",
            "mandatory= key9=a",
            "mandatory=key9 mandatory=key9 key9=a",
            r"key0=\000\009 mandatory=key9 key9=a",
        ] {
            assert!(read(&source(&format!("x 1 HTTPS 1 t {parameters}\n"))).is_err(), "{parameters}");
        }
    }

    #[test]
    fn no_item_of_a_parameters_list_is_empty() {
        for (parameters, place, what) in [
            ("ipv4hint=192.0.2.1,", 14, "invalid ipv4 in ipv4hint param at 'ipv4hint=192.0.2.1,'"),
            ("ipv4hint=192.0.2.1,,192.0.2.2", 14, "invalid ipv4"),
            ("ipv4hint=,192.0.2.1", 14, "invalid ipv4"),
            ("ipv6hint=2001:db8::1,", 14, "invalid ipv6"),
            ("alpn=h2,", 1, "a parameter of SVCB"),
            ("alpn=\"h2,\" port=443", 1, "a parameter of SVCB"),
            ("alpn=h2,,h3", 1, "a parameter of SVCB"),
            ("mandatory=alpn, alpn=h2", 14, "invalid key"),
            ("port=443 mandatory=\"port,\"", 33, "invalid key"),
            // What is missing.
            ("mandatory=alpn port=443", 29, "all SvcParamKeys listed in mandatory"),
            ("no-default-alpn port=1", 1, "a parameter of SVCB"),
        ] {
            let told = faults(&format!("x 1 SVCB 1 . {parameters}\n"));
            assert!(told[0].starts_with(&format!("t.zone:1:{place}: {what}")), "{parameters}: {told:?}");
        }
        // One by its number hides none.
        for parameters in ["key9=a alpn=h2,", "key9=a ipv4hint=192.0.2.1,", r"key0=\000\001 port=443"] {
            assert!(read(&source(&format!("x 1 SVCB 1 . {parameters}\n"))).is_err(), "{parameters}");
        }
        // A comma that ends no list.
        let text = "x 1 SVCB 1 . dohpath=/q{?dns},\nx 1 TXT alpn=h2, \"alpn=h2,\"\n\
                    x 1 SVCB 1 . mandatory=port,alpn alpn=h2 no-default-alpn port=1\n";
        assert_eq!(read(&source(text)).unwrap().records.len(), 3);
    }

    #[test]
    fn the_names_of_an_soa_record_are_no_times() {
        let master = read(&source("@ 1 SOA 1h 1d 1 2h 3m 4w 5s\n")).unwrap();
        let expected =
            b"\x021h\x07example\0\x021d\x07example\0\0\0\0\x01\0\0\x1c\x20\0\0\0\xb4\0\x24\xea\0\0\0\0\x05";
        assert_eq!(master.rdata(&master.records[0]), expected);
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
    fn a_fault_stands_where_it_was_written_and_says_what_helps() {
        for (record, expected) in [
            ("x 1h MX @ 10", "t.zone:1:9: "),
            ("x MX 10 @ more", "t.zone:1:9: more than the record type takes at '@'"),
            ("x MX ( 10\n @ more )", "t.zone:2:2: more than the record type takes at '@'"),
            (
                "x LOC 52 N 4 0m",
                "t.zone:1:3: unknown record type with concrete data at 'LOC'; expected data such as \
                 52 22 23 N 4 53 32 E -2m (RFC 1876), or \\# LENGTH HEX (RFC 3597)",
            ),
            (
                "x NSAP 0x47",
                "t.zone:1:3: unknown record type with concrete data at 'NSAP'; expected its data as \\# LENGTH HEX (RFC 3597)",
            ),
            (
                "x AFSDB 1",
                "t.zone:1:9: unexpected end of entry at '1'; expected more fields for this record type",
            ),
            (
                "x TXT f\u{fc}r",
                "t.zone:1:7: bad symbol at 'f\u{fc}r'; expected printable ASCII, any other octet as \\DDD",
            ),
            (
                "x TXT a\\256",
                "t.zone:1:7: bad symbol: illegal escape sequence at 'a\\256'; expected printable ASCII, any other octet as \\DDD",
            ),
            (&format!("x TXT {}", "a".repeat(256)), "t.zone:1:7: bad charstr"),
            ("x HTTPS 1 . ipv4hint=192.0.2.x", "t.zone:1:13: invalid"),
            (
                "x DS 1 RSA256 2 00",
                "t.zone:1:8: no DNSSEC algorithm at 'RSA256'; expected a number or name such as 13 or ECDSAP256SHA256",
            ),
            ("x HTTPS 1 . port=", "t.zone:1:13: port"),
            ("x TXT \"a b\n", "t.zone:1:7: bad symbol at '\"a b'; expected a quote behind the text"),
        ] {
            let listed = read(&source(record)).err().map(|faults| faults.to_string());
            assert!(
                listed.as_ref().is_some_and(|listed| listed.starts_with(expected)),
                "{record}: {listed:?}"
            );
        }
    }

    #[test]
    fn an_at_sign_in_data_is_the_origin() {
        let text = "$TTL 60\n@ SOA @ hm 1 2 3 4 5\n@ MX 1 @\na CNAME @\na SRV 1 2 3 @\na HTTPS 1 @\n\
                    $ORIGIN sub\na DNAME @\n$ORIGIN @\na PTR @\na RP @ \"\\@\"\na TXT @ \"@\"\n";
        let master = read(&source(text)).unwrap();
        let data: Vec<&[u8]> = master.records.iter().map(|record| master.rdata(record)).collect();
        assert!(data[0].starts_with(b"\x07example\0\x02hm\x07example\0"));
        let (apex, sub) = (&b"\x07example\0"[..], &b"\x03sub\x07example\0"[..]);
        assert_eq!(data[1], [&b"\0\x01"[..], apex].concat());
        assert_eq!(data[2], apex);
        assert_eq!(data[3], [&b"\0\x01\0\x02\0\x03"[..], apex].concat());
        assert_eq!(data[4], [&b"\0\x01"[..], apex].concat());
        assert_eq!(data[5], sub);
        assert_eq!(data[6], sub);
        assert_eq!(data[7], [sub, b"\x01@", sub].concat());
        assert_eq!(data[8], b"\x01@\x01@");
        let without = Source { origin: None, ..source("a. 60 CNAME @\n") };
        let listed = read(&without).err().unwrap().to_string();
        assert!(listed.contains("a relative name without an origin at '@'"), "{listed}");
    }

    #[test]
    fn the_manual_lists_the_types_that_are_read_by_name() {
        let manual = include_str!("../../../../docs/reference/master-files.md");
        let (_, behind) = manual.split_once("read by name:").expect("the list");
        let (list, _) = behind.split_once("\n\nData").expect("what follows it");
        let listed: Vec<&str> = list.split('`').map(str::trim).filter(|word| !word.is_empty()).collect();
        let is_read = |rtype: &Rtype| {
            let listed = read(&source(&format!("x {rtype}\n"))).err();
            let is_scanned = listed.is_none_or(|faults| !faults.to_string().contains("unknown record type"));
            is_scanned || forms::example(*rtype).is_some()
        };
        let is_meta = |number: &u16| matches!(number, 41 | 128..=255);
        let mut read: Vec<String> = (1..=300)
            .chain([Rtype::DLV.to_int()])
            .filter(|number| !is_meta(number))
            .map(Rtype::from_int)
            .filter(is_read)
            .map(|rtype| rtype.to_string())
            .collect();
        read.sort();
        assert_eq!(listed, read);
    }

    #[test]
    fn what_is_no_text_is_told_once() {
        let mut raw = b"\0\0\0\x02\0\0\0\x01k\x0b\x91M".to_vec();
        raw.resize(32, 0);
        raw.extend_from_slice(b"\0\0\0\x57\0\x01\0\x06\0\0\0\0\x01,\0\0\0\x01\0\r\x07example\n\0;\n(");
        let told = |octets: &[u8]| {
            let include = |_: &str| Ok(octets.to_vec());
            let of =
                |text| read(&Source { text, include: &include, ..source("") }).err().unwrap().to_string();
            let [alone, included] = [octets, b"$INCLUDE inner\n"].map(of);
            assert_eq!(alone.strip_prefix("t.zone: "), included.strip_prefix("inner: "));
            alone
        };
        let expected = "t.zone: it is no text, but a zone in BIND's raw form; expected a master file (RFC 1035), such \
                        as named-compilezone -f raw -F text -o NEW-FILE ZONE FILE writes";
        assert_eq!(told(&raw), expected);
        let expected =
            "t.zone: it is compressed with gzip; expected a master file (RFC 1035), unpacked first (gzip -d)";
        assert_eq!(told(b"\x1f\x8b\x08\x08M\x91\x0b\nk\0\n"), expected);
        // A text that begins alike has its faults told as others.
        assert!(faults("BZh91 A 192.0.2.1\nBZh91 A x\n")[0].starts_with("t.zone:2:9: "));
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
    fn the_quotes_around_a_path_are_none_of_it() {
        let files =
            |path: &str| (path == "in ner").then(|| b"x A 192.0.2.9\n".to_vec()).ok_or(path.to_owned());
        for text in ["$INCLUDE \"in ner\" sub\n", "$INCLUDE in\\ ner sub\n", "$INCLUDE \"in\\ ner\" sub\n"] {
            let master = read(&Source { include: &files, ..source(text) });
            let master = master.unwrap_or_else(|faults| panic!("{faults}"));
            assert_eq!(shown(master.owner(&master.records[0])), "x.sub.example.");
        }
    }

    #[test]
    fn algorithms_have_names() {
        let data = |text: &str| {
            let master = read(&source(text)).unwrap_or_else(|faults| panic!("{faults}"));
            master.rdata(&master.records[0]).to_vec()
        };
        for (before, name, number, behind) in [
            ("x DNSKEY 257 3", "RSASHA256", 8, "AQID"),
            ("x CDNSKEY 257 3", "ed25519", 15, "AQID"),
            ("x KEY 257 3", "ECDSAP256SHA256", 13, "AQID"),
            ("x DS 1", "RSASHA1-NSEC3-SHA1", 7, "1 00"),
            ("x CDS 1", "RSASHA256", 8, "1 00"),
            ("x DLV 1", "RSASHA256", 8, "1 00"),
            ("x CERT PKIX 1", "RSASHA256", 8, "AQID"),
            ("x RRSIG A", "ECDSAP384SHA384", 14, "2 60 20300101000000 20200101000000 1 example. AQID"),
        ] {
            let [named, plain] = [name.to_owned(), number.to_string()]
                .map(|algorithm| data(&format!("{before} {algorithm} {behind}\n")));
            assert_eq!(named, plain, "{before}");
        }
    }

    #[test]
    fn what_is_told_of_faults_is_no_larger_for_a_long_owner() {
        let owner = "a".repeat(100_000);
        let told = faults(&format!("{owner} 60 A 192.0.2.1\n{}", "\tA 192.0.2.1\n".repeat(1_000)));
        assert!(told.concat().len() < 1_000, "{} octets", told.concat().len());
        assert!(told[0].starts_with("t.zone:1:1: ") && told[0].contains("aaa...'"), "{told:?}");
        let told = faults(&format!("a A {owner}\n"));
        assert!(told[0].len() < 1_000, "{} octets", told[0].len());
    }

    #[test]
    fn so_many_files_are_included_and_no_more() {
        let empty = |_: &str| Ok(Vec::new());
        let of = |includes: usize| {
            let text = "$INCLUDE inner\n".repeat(includes);
            let source = Source { text: text.as_bytes(), include: &empty, ..source("") };
            read(&source).map(|_| ()).map_err(|faults| faults.to_string())
        };
        assert_eq!(of(FILES_MAX - 1), Ok(()));
        let told = format!("inner: one file too many is included; expected at most {FILES_MAX}");
        assert_eq!(of(FILES_MAX), Err(told));
    }

    #[test]
    fn an_included_file_goes_on_where_it_is_included() {
        let files = |path: &str| match path {
            "inner" => Ok(b" TXT a\ni A 192.0.2.4\n".to_vec()),
            "ttl" => Ok(b"$ORIGIN deep\n$TTL 2m\ni A 192.0.2.5\n".to_vec()),
            "deeper" => Ok(b"$INCLUDE ttl\n$INCLUDE inner .".to_vec()),
            "wrong" => Ok(b"x A y\n$INCLUDE also".to_vec()),
            "also" => Ok(b"\n A z\n$TTL b\n".to_vec()),
            _ => Err("no such file".into()),
        };
        let of = |text: &str| {
            let text = format!("$ORIGIN sub\no A 192.0.2.1\n{text}");
            let source = Source { text: text.as_bytes(), include: &files, ..source("") };
            let rows = |master: Master<'_>| {
                let row = |record| format!("{} {}", shown(master.owner(record)), record.ttl);
                master.records.iter().skip(1).map(row).collect::<Vec<_>>()
            };
            read(&source).map(rows).map_err(|faults| faults.to_string())
        };
        for (text, expected) in [
            ("$INCLUDE inner\n", "o.sub.example. 3600, i.sub.example. 3600"),
            (
                "$TTL 100\n$INCLUDE inner\n TXT b\n",
                "o.sub.example. 100, i.sub.example. 100, o.sub.example. 100",
            ),
            ("p 7 A 192.0.2.1\n$INCLUDE inner b.\n", "p.sub.example. 7, p.sub.example. 7, i.b. 7"),
            ("$TTL 100\n$INCLUDE ttl\nz TXT b\n", "i.deep.sub.example. 120, z.sub.example. 120"),
            ("$TTL 100\n$INCLUDE ttl @\n TXT b\n", "i.deep.sub.example. 120, o.sub.example. 120"),
            (
                "$INCLUDE deeper\n TXT b",
                "i.deep.sub.example. 120, o.sub.example. 120, i. 120, o.sub.example. 120",
            ),
        ] {
            assert_eq!(of(text).map(|rows| rows.join(", ")).as_deref(), Ok(expected), "{text}");
        }
        // All that is wrong is listed once, also in files that come behind the first fault.
        let listed = of("$INCLUDE wrong\nv A w\n$INCLUDE wrong\n$INCLUDE none\n").unwrap_err();
        let places: Vec<&str> = listed.lines().map(|line| line.split(": ").next().unwrap()).collect();
        assert_eq!(
            places,
            [
                "wrong:1:5",
                "also:2:4",
                "also:3:6",
                "t.zone:4:5",
                "wrong:1:5",
                "also:2:4",
                "also:3:6",
                "t.zone:6:1"
            ],
            "{listed}"
        );
    }

    #[test]
    fn any_text_is_read_without_panic() {
        use proptest::prelude::*;
        proptest!(|(text in "([a-z@$(); \"\\\\\n\t0-9.]|A |IN |TXT |\\$TTL |\\$ORIGIN ){0,80}")| {
            let _ = read(&source(&text));
        });
    }
}
