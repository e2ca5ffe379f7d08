//! A partition from a MaxMind database: the code that a network has there says its region.
//!
//! The paper's code-to-region file (§5.1) is a text of `code,region` lines, with the comments and the
//! optional header of [`csv`](super::csv):
//!
//! ```text
//! code,region
//! DE,europe
//! JP,asia
//! ```
//!
//! Both are flattened into prefixes when they are loaded, so that no query ever decodes a database.
//! Networks whose code is not listed are unclassified. So are the 6to4 and Teredo blocks, where
//! databases repeat the IPv4 networks: an address in them does not tell where an IPv6 client is.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::{Fault, Faults};
use maxminddb::{LookupResult, MaxMindDbError, PathElement, Reader};

use super::lines::{Cell, Line, pairs, region};
use crate::partition::PREFIXES_MAX;
use crate::prefix::Prefix;
use crate::region::RegionId;

/// The most networks that are read, with and without data. A damaged search tree can pretend to have
/// 2^128 of them.
pub const NETWORKS_MAX: usize = PREFIXES_MAX;

/// Where databases repeat the IPv4 networks: mapped addresses (RFC 4291), Teredo (RFC 4380) and 6to4
/// (RFC 3056), as first address and length.
const ALIASES: [(u128, u8); 3] = [(0xffff << 32, 96), (0x2001 << 112, 32), (0x2002 << 112, 16)];

/// Which code of a network counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Field {
    /// The two letters of the country (ISO 3166-1), and where a network has none, as satellite and
    /// anycast networks do, those of the country in which it is registered.
    #[default]
    Country,
    /// The two letters of the continent: AF, AN, AS, EU, NA, OC or SA.
    Continent,
    /// The number of the autonomous system.
    Asn,
}

/// Which code belongs to which region.
#[derive(Clone, Debug)]
pub struct Codes {
    field: Field,
    regions: HashMap<String, RegionId>,
}

impl Codes {
    /// Reads the lines of a code-to-region file. Codes are taken in any case, and AS numbers with or
    /// without `AS`. `source` names the text in faults, and `regions` tells the number that belongs to a
    /// region's name.
    ///
    /// # Errors
    /// Everything that is wrong, with line and column: what cannot be a code of this field, a code that
    /// stands there twice, a region that does not exist, a column too few or too many.
    pub fn read(
        source: &str,
        text: &str,
        field: Field,
        regions: &dyn Fn(&str) -> Option<RegionId>,
    ) -> Result<Codes, Faults> {
        let mut faults = Faults::default();
        let mut codes = Codes { field, regions: HashMap::new() };
        let mut lines: HashMap<String, u32> = HashMap::new();
        pairs(source, text, ["code", "region"], None, &mut faults, |Line { number, left, right }, faults| {
            let code = match field.code(source, number, left) {
                Ok(code) => {
                    let first = *lines.entry(code.clone()).or_insert(number);
                    if first != number {
                        let what = format!("code {code} stands in line {first} already");
                        faults.push(Fault::at(source, number, left.column, what, "each code once"));
                    }
                    Some(code)
                }
                Err(fault) => {
                    faults.push(fault);
                    None
                }
            };
            let region = region(source, number, right, regions).map_err(|fault| faults.push(fault)).ok();
            codes.regions.extend(code.zip(region));
        });
        faults.or(codes)
    }
}

/// Reads the networks of `database` whose codes are listed, ascending by family and address, and how many of the listed
/// codes no network has. `source` names the database in faults.
///
/// # Errors
/// A fault where the database is damaged, has more than [`NETWORKS_MAX`] networks, or has no network
/// with such a code, or none with one that is listed.
pub fn read(source: &str, database: &[u8], codes: &Codes) -> Result<(Vec<(Prefix, RegionId)>, u64), Faults> {
    let damaged = |error: MaxMindDbError| {
        Faults::from(Fault::whole(source, error.to_string(), "a MaxMind database that is not damaged"))
    };
    let reader = Reader::from_source(database).map_err(damaged)?;
    let mut networks = Networks {
        reader: &reader,
        codes,
        regions: HashMap::new(),
        unseen: codes.regions.keys().map(String::as_str).collect(),
        entries: Vec::new(),
        read: 0,
    };
    networks.read_v4().map_err(damaged)?;
    if reader.metadata().ip_version == 6 {
        networks.read_v6().map_err(damaged)?;
    }
    if networks.read > NETWORKS_MAX {
        let expected = format!("at most {NETWORKS_MAX}");
        return Err(Fault::whole(source, "too many networks", expected).into());
    }
    let (kind, path) = match codes.field {
        Field::Country => ("a country", "country/iso_code"),
        Field::Continent => ("a continent", "continent/code"),
        Field::Asn => ("an AS number", "autonomous_system_number"),
    };
    if networks.regions.values().all(Option::is_none) {
        return Err(
            Fault::whole(source, format!("no network has {kind}"), format!("records with {path}")).into()
        );
    }
    let (unseen, listed) = (networks.unseen.len(), codes.regions.len());
    if listed > 0 && unseen == listed {
        let expected = format!("codes as they stand in {path}, or another field");
        return Err(Fault::whole(source, "no network has any of the codes that are listed", expected).into());
    }
    Ok((networks.entries, unseen as u64))
}

impl Field {
    /// The code that stands in `cell`, in the form in which [`Networks`] looks for it.
    fn code(self, source: &str, line: u32, cell: Cell<'_>) -> Result<String, Fault> {
        let code = cell.text.to_ascii_uppercase();
        let (expected, code) = match self {
            Field::Country => ("two letters such as DE", Some(code).filter(|code| is_two_letters(code))),
            Field::Continent => ("two letters such as EU", Some(code).filter(|code| is_two_letters(code))),
            Field::Asn => {
                let digits = code.strip_prefix("AS").unwrap_or(&code);
                let digits = Some(digits).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
                let number = digits.and_then(|digits| digits.parse::<u32>().ok());
                ("a number up to 4294967295, such as AS64496", number.map(|n| n.to_string()))
            }
        };
        let what = || format!("not a code: '{}'", cell.text);
        code.ok_or_else(|| Fault::at(source, line, cell.column, what(), expected))
    }
}

fn is_two_letters(code: &str) -> bool {
    code.len() == 2 && code.bytes().all(|b| b.is_ascii_uppercase())
}

/// The way through a database, look-up by look-up: every network ends where the next begins.
struct Networks<'a> {
    reader: &'a Reader<&'a [u8]>,
    codes: &'a Codes,
    /// What the records say, by where they lie: many networks share one. `None` where it has no code.
    regions: HashMap<usize, Option<RegionId>>,
    /// Listed codes that no record has had so far.
    unseen: HashSet<&'a str>,
    entries: Vec<(Prefix, RegionId)>,
    read: usize,
}

impl Networks<'_> {
    fn read_v4(&mut self) -> Result<(), MaxMindDbError> {
        let mut next = Some(0u32);
        while let Some(at) = next
            && self.read <= NETWORKS_MAX
        {
            let address = Ipv4Addr::from_bits(at);
            let found = self.reader.lookup(address.into())?;
            let network = found.network()?;
            // A database of IPv6 networks alone can have one that is larger than all of IPv4.
            let length = if network.is_ipv4() { network.prefix() } else { 0 };
            self.add(address.into(), length, found)?;
            next = 1u32.checked_shl(32 - u32::from(length)).and_then(|size| at.checked_add(size));
        }
        Ok(())
    }

    fn read_v6(&mut self) -> Result<(), MaxMindDbError> {
        let mut next = Some(0u128);
        while let Some(at) = next
            && self.read <= NETWORKS_MAX
        {
            let address = Ipv6Addr::from_bits(at);
            let found = self.reader.lookup(address.into())?;
            let mut length = found.network()?.prefix();
            // The IPv4 networks themselves lie in the first 2^32 addresses.
            let v4 = (at == 0).then_some(96);
            let alias = ALIASES.into_iter().find(|alias| alias.0 == at).map(|alias| alias.1);
            match v4.or(alias) {
                Some(skipped) if length >= skipped => length = skipped,
                _ => self.add(address.into(), length, found)?,
            }
            next = 1u128.checked_shl(128 - u32::from(length)).and_then(|size| at.checked_add(size));
        }
        Ok(())
    }

    fn add(
        &mut self,
        address: IpAddr,
        length: u8,
        found: LookupResult<'_, &[u8]>,
    ) -> Result<(), MaxMindDbError> {
        self.read += 1;
        let Some(record) = found.offset() else { return Ok(()) };
        let region = match self.regions.get(&record) {
            Some(region) => *region,
            None => {
                let region = self.region(found)?;
                self.regions.insert(record, region);
                region
            }
        };
        if let (Some(region), Some(prefix)) = (region, Prefix::new(address, length))
            && !region.is_none()
        {
            self.entries.push((prefix, region));
        }
        Ok(())
    }

    /// The region of a record's code: [`RegionId::NONE`] where it is not listed.
    fn region(&mut self, found: LookupResult<'_, &[u8]>) -> Result<Option<RegionId>, MaxMindDbError> {
        let text = |path: [&str; 2]| found.decode_path::<&str>(&path.map(PathElement::Key));
        let code = match self.codes.field {
            Field::Country => match text(["country", "iso_code"])? {
                None => text(["registered_country", "iso_code"])?.map(str::to_ascii_uppercase),
                code => code.map(str::to_ascii_uppercase),
            },
            Field::Continent => text(["continent", "code"])?.map(str::to_ascii_uppercase),
            Field::Asn => {
                let path = [PathElement::Key("autonomous_system_number")];
                found.decode_path::<u32>(&path)?.map(|number| number.to_string())
            }
        };
        Ok(code.map(|code| {
            self.unseen.remove(code.as_str());
            self.codes.regions.get(&code).copied().unwrap_or_default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use maxminddb::WithinOptions;
    use proptest::prelude::*;

    use super::*;
    use crate::partition::Partition;
    use crate::proximity::data;

    const FILES: [(&str, Field); 6] = [
        ("routing/GeoIP2-Country-Test.mmdb", Field::Country),
        ("routing/GeoIP2-Country-Test.mmdb", Field::Continent),
        ("routing/GeoIP2-City-Test.mmdb", Field::Country),
        ("routing/GeoIP2-City-Test.mmdb", Field::Continent),
        ("routing/GeoLite2-ASN-Test.mmdb", Field::Asn),
        ("routing/GeoIP2-Country-Test.mmdb", Field::Asn),
    ];

    fn code(found: LookupResult<'_, &[u8]>, field: Field) -> Option<String> {
        let text = |a, b| found.decode_path::<String>(&[PathElement::Key(a), PathElement::Key(b)]).unwrap();
        match field {
            Field::Country => text("country", "iso_code").or_else(|| text("registered_country", "iso_code")),
            Field::Continent => text("continent", "code"),
            Field::Asn => {
                let path = [PathElement::Key("autonomous_system_number")];
                found.decode_path::<u32>(&path).unwrap().map(|n| n.to_string())
            }
        }
    }

    /// Region names are the codes themselves, `R` before them.
    fn number(codes: &BTreeSet<String>, code: &str) -> RegionId {
        let number = codes.iter().position(|c| c == code).map_or(0, |i| i as u32 + 1);
        RegionId::new(number).unwrap()
    }

    #[test]
    fn every_network_is_where_the_database_says() {
        for (file, field) in FILES {
            let Some(database) = data(file) else { return };
            let reader = Reader::from_source(&database[..]).unwrap();
            let all = || reader.networks(WithinOptions::default()).unwrap().map(Result::unwrap);
            let codes: BTreeSet<String> = all().filter_map(|found| code(found, field)).collect();
            // One code is not listed, so its networks must stay unclassified.
            let listed: BTreeSet<String> = codes.iter().skip(1).cloned().collect();
            let text: String = listed.iter().map(|code| format!("{code},R{code}\n")).collect();
            let known =
                |name: &str| Some(number(&listed, name.strip_prefix('R')?)).filter(|id| !id.is_none());
            let entries = Codes::read("codes", &text, field, &known)
                .and_then(|codes| read("database", &database, &codes));
            if codes.is_empty() {
                assert!(entries.unwrap_err().to_string().contains("no network has an AS number"));
                continue;
            }
            let (entries, unseen) = entries.unwrap();
            assert_eq!(unseen, 0, "{file}");
            let partition = Partition::compile(entries);
            let mut classified = 0;
            for found in all() {
                let network = found.network().unwrap();
                let expected = code(found, field).map_or(RegionId::NONE, |code| number(&listed, &code));
                for address in [network.network(), network.broadcast()] {
                    let leaf = partition.lookup(address);
                    assert_eq!(leaf.region, expected, "{file} {network}");
                    assert!(expected.is_none() || leaf.scope <= network.prefix(), "{file} {network}");
                }
                classified += u32::from(!expected.is_none());
            }
            assert!(classified > 20, "{file}: {classified}");
        }
    }

    #[test]
    fn codes_that_no_network_has_are_told() {
        let Some(database) = data("routing/GeoIP2-Country-Test.mmdb") else { return };
        let known = |_: &str| RegionId::new(1);
        let read = |field, text: &str| {
            let codes = Codes::read("codes", text, field, &known).expect("codes");
            read("database", &database, &codes).map(|(entries, unseen)| (entries.len(), unseen))
        };
        let (countries, unseen) =
            read(Field::Country, "GB,europe\nUK,europe\nZZ,europe\n").expect("one is there");
        assert!(countries > 0 && unseen == 2, "{countries} {unseen}");
        let fault =
            read(Field::Continent, "DE,europe\nFR,europe\n").expect_err("countries are no continents");
        let expected = "database: no network has any of the codes that are listed; expected codes as they stand in \
                        continent/code, or another field";
        assert_eq!(fault.to_string(), expected);
        assert_eq!(read(Field::Country, "# none yet\n").expect("none is wrong"), (0, 0));
    }

    #[test]
    fn codes_are_checked() {
        let known = |name: &str| (name == "europe").then(|| RegionId::new(1).unwrap());
        for (field, text, expected) in [
            (
                Field::Country,
                "code,region\nDE,europe\nde,europe\nDEU,europe\nFR,mars\n",
                "c:3:1: code DE stands in line 2 already; expected each code once\n\
                 c:4:1: not a code: 'DEU'; expected two letters such as DE\n\
                 c:5:4: unknown region 'mars'; expected a region that was added (a name of letters, digits, -, _ and .), or -",
            ),
            (
                Field::Asn,
                "AS1,europe\n1,-\nAS+2,europe\nAS4294967296,europe",
                "c:2:1: code 1 stands in line 1 already; expected each code once\n\
                 c:3:1: not a code: 'AS+2'; expected a number up to 4294967295, such as AS64496\n\
                 c:4:1: not a code: 'AS4294967296'; expected a number up to 4294967295, such as AS64496",
            ),
        ] {
            let faults = Codes::read("c", text, field, &known).unwrap_err();
            assert_eq!(faults.to_string(), expected);
        }
    }

    fn gb_codes() -> Codes {
        Codes { field: Field::Country, regions: HashMap::from([("GB".into(), RegionId::new(1).unwrap())]) }
    }

    #[test]
    fn a_truncated_database_is_a_fault() {
        let Some(database) = data("routing/GeoIP2-Country-Test.mmdb") else { return };
        for length in (0..database.len()).step_by(97) {
            assert!(read("database", &database[..length], &gb_codes()).is_err(), "{length}");
        }
    }

    #[test]
    fn damage_is_a_fault_or_goes_unseen() {
        let Some(database) = data("routing/GeoIP2-Country-Test.mmdb") else { return };
        let mut rng = fastrand::Rng::with_seed(9);
        let mut faults = 0;
        for _ in 0..300 {
            let mut database = database.clone();
            for _ in 0..rng.usize(1..20) {
                let at = rng.usize(..database.len());
                database[at] = rng.u8(..);
            }
            faults += u32::from(read("database", &database, &gb_codes()).is_err());
        }
        assert!(faults > 0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(bytes: Vec<u8>, field in 0usize..3) {
            let codes = Codes { field: [Field::Country, Field::Continent, Field::Asn][field], ..gb_codes() };
            prop_assert!(read("database", &bytes, &codes).is_err());
        }

        #[test]
        fn any_text_is_taken(text in "([A-Za-z0-9]{0,4},?(europe)?\n){0,9}|(?s).{0,60}") {
            let known = |name: &str| (name == "europe").then(|| RegionId::new(1).unwrap());
            for field in [Field::Country, Field::Continent, Field::Asn] {
                let _ = Codes::read("codes", &text, field, &known);
            }
        }
    }
}
