//! A zone as a master file again: what the API shows and the store keeps.

use std::fmt::{Arguments, Write};
use std::ops::Range;

use domain::base::name::{Name, ParsedName};
use domain::base::rdata::ParseRecordData;
use domain::base::zonefile_fmt::{self, FormatWriter, ZonefileFmt};
use domain::dep::octseq::Parser;
use domain::rdata::ZoneRecordData;
use jiff::Timestamp;

use super::signed::with_serial;
use super::{Changed, Found, Rrset, Zone, forms, read};
use dns::Rtype;

impl Zone {
    /// The zone in canonical text: one record a line, absolute names in their canonical order (RFC 4034
    /// §6.1), the SOA record first.
    ///
    /// Reading it again builds the same zone. What was made when it was signed here is not in it.
    pub fn to_text(&self) -> String {
        self.to_text_within(usize::MAX).expect("no text is longer")
    }

    /// The same; `None` where it would be longer than so many octets, of which little more is ever written.
    pub fn to_text_within(&self, octets_max: usize) -> Option<String> {
        let soa = Changed::soa(self);
        let given = with_serial(soa.data, self.serial_given());
        self.text_of(self.all_sets(), Changed { data: &given, ..soa }, octets_max)
    }

    /// The names with their sets, owners of NSEC3 records among them; in no order.
    pub(super) fn all_sets(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let names = self.names.iter().map(|(name, node)| (name, Found { node, is_apex: false }.sets()));
        names.chain(self.hidden())
    }

    /// The text of these names with their sets, and of an SOA record that stands in place of theirs.
    pub(super) fn text_of<'a>(
        &self,
        owned: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        soa: Changed<'_>,
        octets_max: usize,
    ) -> Option<String> {
        let mut owners: Vec<(Vec<u8>, &[u8], &[u8])> = owned
            .filter(|(_, sets)| !sets.is_empty())
            .map(|(name, sets)| (order_key(name), name, sets))
            .collect();
        owners.sort_unstable_by(|a, b| (&a.0, a.2).cmp(&(&b.0, b.2)));
        let mut text = String::with_capacity(self.records * 48);
        push_record(&mut text, &soa);
        for (_, name, sets) in owners {
            let owner = dns::name::to_text(name);
            let mut sets: Vec<Rrset<'_>> = Rrset::all(sets).flat_map(|set| [set, set.signatures()]).collect();
            sets.sort_by_key(|set| set.rtype.to_int());
            for set in sets.into_iter().filter(|set| set.rtype != Rtype::SOA && !self.has_made(set.rtype)) {
                for data in set.data() {
                    push(&mut text, &owner, &Changed { owner: name, rtype: set.rtype, ttl: set.ttl, data });
                    if text.len() > octets_max {
                        return None;
                    }
                }
            }
        }
        Some(text)
    }
}

/// Writes a record as a line of canonical text.
pub(crate) fn push_record(text: &mut String, record: &Changed<'_>) {
    push(text, &dns::name::to_text(record.owner), record);
}

fn push(text: &mut String, owner: &str, record: &Changed<'_>) {
    let data = shown(record.rtype, record.data);
    writeln!(text, "{owner} {} IN {} {data}", record.ttl, record.rtype)
        .expect("writing to a string cannot fail");
}

/// Record data in presentation format; in the generic one (RFC 3597 §5) where that would not be read as the same, or not by
/// other servers.
fn shown(rtype: Rtype, data: &[u8]) -> String {
    if matches!(rtype, Rtype::SVCB | Rtype::HTTPS) && forms::has_new_parameter(data) {
        return forms::generic(data);
    }
    let text = forms::text(rtype, data).or_else(|| scanned(forms::alike(rtype).unwrap_or(rtype), data));
    text.filter(|text| reads_back_always(rtype, data) || reads_back(rtype, text, data))
        .unwrap_or_else(|| forms::generic(data))
}

/// Record data of a type that the scanner reads, as it does; `None` where it is not of that type's form.
fn scanned(rtype: Rtype, data: &[u8]) -> Option<String> {
    let mut parser = Parser::from_ref(data);
    let parsed = ZoneRecordData::<&[u8], ParsedName<&[u8]>>::parse_rdata(rtype, &mut parser).ok()??;
    let mut line = Line(String::new());
    parsed.fmt(&mut line).expect("writing to a string cannot fail");
    Some(if rtype == Rtype::RRSIG { dated(&line.0) } else { line.0 })
}

/// The text of a signature with its times as dates (RFC 4034 §3.2): the same allows seconds, but NSD reads none.
fn dated(text: &str) -> String {
    let date = |(at, word): (usize, &str)| match word.parse().map(Timestamp::from_second) {
        Ok(Ok(time)) if SIGNATURE_TIMES.contains(&at) => time.strftime("%Y%m%d%H%M%S").to_string(),
        _ => word.to_owned(),
    };
    text.split(' ').enumerate().map(date).collect::<Vec<_>>().join(" ")
}

/// Which words of a signature are its times: expiration and inception.
const SIGNATURE_TIMES: Range<usize> = 4..6;

/// Whether record data is of a form whose text is known to be read as the same.
///
/// Most records of any large zone are, and need not be read again to see it.
fn reads_back_always(rtype: Rtype, data: &[u8]) -> bool {
    match rtype {
        Rtype::A | Rtype::AAAA | Rtype::NS | Rtype::CNAME | Rtype::PTR | Rtype::DNAME => true,
        Rtype::SOA | Rtype::MX | Rtype::SRV => true,
        Rtype::DS | Rtype::RRSIG => true,
        Rtype::TXT => !data.is_empty(),
        Rtype::NSEC => behind_name(data).is_some_and(is_tidy),
        Rtype::NSEC3 => {
            let hash = data.get(NSEC3_FIXED..).and_then(behind_length);
            let types = hash.filter(|hash| hash.first() > Some(&0)).and_then(behind_length);
            types.is_some_and(is_tidy)
        }
        _ => false,
    }
}

/// Algorithm, flags and iterations of an NSEC3 record, in octets (RFC 5155 §3.2).
const NSEC3_FIXED: usize = 4;

/// What is behind the name that the octets begin with.
fn behind_name(mut octets: &[u8]) -> Option<&[u8]> {
    while octets.first()? > &0 {
        octets = behind_length(octets)?;
    }
    octets.get(1..)
}

/// What is behind octets that have their number before them.
fn behind_length(octets: &[u8]) -> Option<&[u8]> {
    let (length, rest) = octets.split_first()?;
    rest.get(usize::from(*length)..)
}

/// Whether a type bitmap is what text gives: windows in order, in each up to 32 octets, the last of them not zero
/// (RFC 4034 §4.1.2).
fn is_tidy(mut bitmap: &[u8]) -> bool {
    let mut last = None;
    while let [window, length @ 1..=32, rest @ ..] = bitmap {
        let Some((types, behind)) = rest.split_at_checked(usize::from(*length)) else { return false };
        if last >= Some(*window) || types.last() == Some(&0) {
            return false;
        }
        (last, bitmap) = (Some(*window), behind);
    }
    bitmap.is_empty()
}

/// Whether a record with this text is read as one with this data, and no other record beside it.
fn reads_back(rtype: Rtype, text: &str, data: &[u8]) -> bool {
    let line = format!(". 0 IN {rtype} {text}\n");
    let include = |_: &str| Err("a record includes nothing".to_owned());
    let source = read::Source { name: "", text: line.as_bytes(), origin: None, include: &include };
    read::read(&source).is_ok_and(|master| match &master.records[..] {
        [record] => record.rtype == rtype && master.rdata(record) == data,
        _ => false,
    })
}

/// Record data on one line, its names escaped.
struct Line(String);

impl FormatWriter for Line {
    fn fmt_token(&mut self, token: Arguments<'_>) -> zonefile_fmt::Result {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
        let token = token.to_string();
        // Strings end with a quote; of all else, only absolute names end so.
        if token.ends_with('.') {
            self.0.push_str(&dns::name::escape(&token));
        } else if token.as_bytes() == read::OLD_NO_DEFAULT_ALPN {
            self.0.push_str(read::NO_DEFAULT_ALPN);
        } else {
            self.0.push_str(&token);
        }
        Ok(())
    }

    fn begin_block(&mut self) -> zonefile_fmt::Result {
        Ok(())
    }

    fn end_block(&mut self) -> zonefile_fmt::Result {
        Ok(())
    }

    fn fmt_comment(&mut self, _: Arguments<'_>) -> zonefile_fmt::Result {
        Ok(())
    }

    fn newline(&mut self) -> zonefile_fmt::Result {
        Ok(())
    }
}

/// Octets that sort as names do: labels from the root downward.
pub(super) fn order_key(name: &[u8]) -> Vec<u8> {
    let name = Name::from_slice(name).expect("names of a zone are valid");
    let mut labels: Vec<&[u8]> = name.iter().map(|label| label.as_slice()).collect();
    labels.reverse();
    let mut key = Vec::with_capacity(name.len());
    for label in labels {
        // A zero octet must sort behind the end of a label.
        for &octet in label {
            if octet < 2 {
                key.push(1);
            }
            key.push(octet);
        }
        key.push(0);
    }
    key
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::tests::{HEAD, build};
    use super::*;
    use crate::names::Cursor;

    /// All records of a zone, sorted: owner, type, TTL and data.
    fn records(zone: &Zone) -> Vec<(Vec<u8>, Rtype, u32, Vec<u8>)> {
        let (mut cursor, mut records) = (Cursor::default(), Vec::new());
        while let Some((owner, sets)) = zone.owner_at(&mut cursor) {
            let rows = |set: Rrset<'_>| {
                let row = |data: &[u8]| (owner.to_vec(), set.rtype, set.ttl, data.to_vec());
                set.data().map(row).collect::<Vec<_>>()
            };
            records.extend(sets.flat_map(rows));
            cursor = cursor.next();
        }
        records.sort();
        records
    }

    /// Holds how a record is written, and that it is read again as it was.
    fn check(record: &str, written: &str) {
        let zone = build(&format!("{HEAD}x {record}\n"));
        let text = zone.to_text();
        assert_eq!(text.lines().find_map(|line| line.strip_prefix("x.example. 60 IN ")), Some(written));
        assert_eq!(records(&build(&text)), records(&zone), "{text}");
    }

    #[test]
    fn times_of_signatures_are_dates() {
        for times in [
            "20300101000000 20161006123456",
            // The first and the last second of 32 bits.
            "21060207062815 19700101000000",
        ] {
            let signature = format!("RRSIG A 13 2 60 {times} 1 example. AAAA");
            check(&signature, &signature);
        }
    }

    #[test]
    fn a_text_that_is_too_long_is_none() {
        let zone = build(HEAD);
        let text = zone.to_text();
        assert_eq!(zone.to_text_within(text.len()), Some(text.clone()));
        assert_eq!(zone.to_text_within(text.len() - 1), None);
    }

    #[test]
    fn data_whose_text_would_not_give_it_back_is_written_as_octets() {
        for (record, written) in [
            ("HTTPS 1 . alpn=h2", "HTTPS 1 . alpn=h2"),
            ("HTTPS 1 . alpn=h2 no-default-alpn", "HTTPS 1 . alpn=h2 no-default-alpn"),
            ("HTTPS 1 . alpn=h2 nodefaultalpn", "HTTPS 1 . alpn=h2 no-default-alpn"),
            (r#"HTTPS 1 . dohpath="/q{?dns};a b""#, r"HTTPS \# 19 0001000007000c2f717b3f646e737d3b612062"),
            (r#"SVCB 1 . key667="a;(\"\001""#, r"SVCB \# 12 000100029b0005613b282201"),
            ("SVCB 1 . alpn=h2 ohttp", r"SVCB \# 14 0001000001000302683200080000"),
            ("SVCB 1 . key9=ab", r"SVCB \# 9 000100000900026162"),
            ("SVCB 1 . key13=ab", "SVCB 1 . key13=ab"),
            ("TYPE64 \\# 7 00010000050000", "SVCB \\# 7 00010000050000"),
            ("TYPE257 \\# 2 0000", "CAA \\# 2 0000"),
            ("TYPE47 \\# 4 00000100", "NSEC \\# 4 00000100"),
            (r#"CNAME \"a."#, r#"CNAME \"a."#),
            (r#"MX 1 \"a."#, r#"MX 1 \"a."#),
            (r#"SRV 1 2 3 \"a."#, r#"SRV 1 2 3 \"a."#),
            (r#"RP \"a. \"b."#, r#"RP \"a. \"b."#),
        ] {
            check(record, written);
        }
    }

    #[test]
    fn hidden_names_without_a_hash_read_back() {
        let zone = build(&format!("{HEAD}x TYPE50 \\# 6 010000000000\n"));
        assert_eq!(records(&build(&zone.to_text())), records(&zone));
    }

    #[test]
    fn any_data_reads_back() {
        let octets = |range: std::ops::Range<usize>| vec(any::<u8>(), range);
        let label = prop_oneof![octets(1..5), "[\"@.;($\\\\ a]{1,4}".prop_map(String::into_bytes)];
        let string = |octets: Vec<u8>| [&[octets.len() as u8], &octets[..]].concat();
        let name = vec(label.prop_map(string), 0..4).prop_map(|labels| [labels.concat(), vec![0]].concat());
        let string = octets(0..20).prop_map(string);
        let bitmap = vec((0u8..4, octets(0..4)), 0..3).prop_map(|windows| {
            let window = |(window, types): (u8, Vec<u8>)| [vec![window, types.len() as u8], types].concat();
            windows.into_iter().flat_map(window).collect::<Vec<u8>>()
        });
        let parameters = vec((0u8..10, octets(0..6)), 0..4).prop_map(|mut parameters| {
            parameters.sort();
            let parameter =
                |(key, value): (u8, Vec<u8>)| [vec![0, key, 0, value.len() as u8], value].concat();
            parameters.into_iter().flat_map(parameter).collect::<Vec<u8>>()
        });
        let strings = || vec(string.clone(), 0..4).prop_map(|strings| strings.concat());
        let data = prop_oneof![
            octets(0..40),
            strings(),
            (octets(0..21), name.clone(), octets(0..40)).prop_map(|(a, b, c)| [a, b, c].concat()),
            (octets(18..19), name.clone(), octets(0..90)).prop_map(|(a, b, c)| [a, b, c].concat()),
            (octets(2..3), name.clone(), parameters).prop_map(|(a, b, c)| [a, b, c].concat()),
            (octets(15..16), any::<bool>()).prop_map(|(mut place, near)| {
                place.insert(0, 0);
                if near {
                    (place[4], place[8]) = (0x80, 0x7f);
                }
                place
            }),
            (octets(6..7), bitmap.clone()).prop_map(|(a, b)| [a, b].concat()),
            (octets(6..7), name.clone()).prop_map(|(a, b)| [a, b].concat()),
            (octets(4..5), strings(), name.clone()).prop_map(|(a, b, c)| [a, b, c].concat()),
            (name.clone(), name.clone(), octets(20..21)).prop_map(|(a, b, c)| [a, b, c].concat()),
            (name.clone(), name.clone()).prop_map(|(a, b)| [a, b].concat()),
            (octets(2..3), name.clone(), name.clone()).prop_map(|(a, b, c)| [a, b, c].concat()),
            (octets(1..3), octets(1..3), name.clone()).prop_map(|(a, b, c)| {
                let head = [a.len() as u8, 2, 0, b.len() as u8];
                [&head[..], &a, &b, &c].concat()
            }),
            (1u8..3, 0u8..130, any::<bool>(), octets(0..6)).prop_map(|(family, bits, not, address)| {
                let head = [0, family, bits, u8::from(not) << 7 | address.len() as u8];
                [&head[..], &address].concat()
            }),
            (name.clone(), bitmap.clone()).prop_map(|(a, b)| [a, b].concat()),
            (octets(4..5), string.clone(), string.clone(), bitmap)
                .prop_map(|(a, b, c, d)| [a, b, c, d].concat()),
        ];
        let always = [1, 2, 5, 6, 12, 15, 16, 28, 33, 39, 43, 46, 47, 50];
        let others = [13, 14, 17, 26, 35, 44, 45, 48, 51, 52, 59, 60, 61, 63, 64, 65, 257, 65_280];
        let others = others.into_iter().chain(forms::types().map(Rtype::to_int));
        let written = std::cell::RefCell::new(std::collections::BTreeSet::new());
        proptest!(ProptestConfig::with_cases(2048), |(data in data)| {
            for rtype in always.into_iter().chain(others.clone()).map(Rtype::from_int) {
                if !read::is_valid(rtype, &data) {
                    continue;
                }
                let text = shown(rtype, &data);
                prop_assert!(reads_back(rtype, &text, &data), "{} {}", rtype, text);
                if reads_back_always(rtype, &data) {
                    written.borrow_mut().insert(rtype.to_int());
                }
            }
        });
        assert_eq!(written.into_inner(), always.into());
    }

    #[test]
    fn names_with_characters_of_the_master_file_read_back() {
        let name = r#"\;\"\(\)\@\$\\\.\ \200"#;
        let text = build(&format!(
            "{HEAD}{name} NS {name}\n\\@ MX 1 \\@\nns SRV 1 2 3 {name}.x\n\
             h HTTPS 1 {name} alpn=h2\nt TXT \"; a ( b\"\n"
        ))
        .to_text();
        assert!(text.contains(&format!("{name}.example. 60 IN NS {name}.example.\n")), "{text}");
        assert_eq!(build(&text).to_text(), text);
    }

    #[test]
    fn text_reads_back_to_the_same_zone() {
        let zone = build(&format!(
            "{HEAD}b.a A 192.0.2.1\n*.w TXT \"a b\" \"\\200;\\\"\"\nx\\.y MX 10 ns\n_s._tcp SRV 1 2 53 ns\n\
             c CAA 0 issue \"ca.example\"\nh HTTPS 1 . alpn=h2 ipv4hint=192.0.2.1\nu TYPE65000 \\# 3 010203\n\
             d DS 1 8 2 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\nn NAPTR 1 2 u E2U !x! .\n"
        ));
        let text = zone.to_text();
        assert!(text.starts_with("example. 60 IN SOA ns.example. hm.example. 7 2 3 4 5\n"), "{text}");
        let again = build(&text);
        assert_eq!((again.records(), again.to_text()), (zone.records(), text));
    }
}
