//! A partition as text: `prefix,region`, a line each.
//!
//! ```text
//! # Anything behind a hash at the start of a line, and empty lines, are passed over.
//! prefix,region
//! 192.0.2.0/24,europe
//! 192.0.2.128/25,-
//! 2001:db8::/32,asia
//! ```
//!
//! The header is optional. A hyphen instead of a region's name leaves the prefix unclassified, which
//! cuts a hole into a shorter prefix; a question mark leaves it to an external proximity service. The order does not
//! matter: the longest prefix decides.
//!
//! A line that begins with `@` says how near a server is to the clients of a region, as one of that region's ranking:
//! from 1, the nearest; servers that are equally near have the same rank. Policies with `"order": "nearest"` go by it.
//!
//! ```text
//! @europe,198.51.100.1,1
//! @europe,203.0.113.1,2
//! ```

use std::collections::HashMap;
use std::fmt::Write;
use std::net::IpAddr;

use api::{Fault, Faults};

use super::lines::{Cell, Line, cell, check_length, lines, pairs, region};
use crate::partition::{PREFIXES_MAX, RANK_MAX, RANKS_MAX, Rank};
use crate::prefix::{ParsePrefixError, Prefix};
use crate::region::RegionId;

pub use super::lines::{ASK, UNCLASSIFIED};

/// What a line with a rank begins with.
const RANK: char = '@';

/// Reads the prefixes of `text`, in its order. `source` names it in faults, and `regions` tells the
/// number that belongs to a region's name.
///
/// # Errors
/// Everything that is wrong, with line and column: what is not a prefix, bits set behind its length, a prefix
/// that stands there twice, a region that does not exist, a column too few or too many.
pub fn read(
    source: &str,
    text: &str,
    regions: &dyn Fn(&str) -> Option<RegionId>,
) -> Result<Vec<(Prefix, RegionId)>, Faults> {
    let mut faults = Faults::default();
    let mut entries = Vec::new();
    let mut lines: HashMap<Prefix, u32> = HashMap::new();
    pairs(
        source,
        text,
        ["prefix", "region"],
        Some(RANK),
        &mut faults,
        |Line { number, left, right }, faults| {
            let prefix = match left.text.parse::<Prefix>() {
                Ok(prefix) => {
                    let first = *lines.entry(prefix).or_insert(number);
                    if first != number {
                        let what = format!("prefix {prefix} stands in line {first} already");
                        faults.push(Fault::at(source, number, left.column, what, "each prefix once"));
                    }
                    Some(prefix)
                }
                Err(error) => {
                    faults.push(not_a_prefix(source, number, left, error));
                    None
                }
            };
            let region = region(source, number, right, regions).map_err(|fault| faults.push(fault)).ok();
            entries.extend(prefix.zip(region));
        },
    );
    if entries.len() > PREFIXES_MAX {
        faults.push(Fault::whole(source, "too many prefixes", format!("at most {PREFIXES_MAX}")));
    }
    faults.or(entries)
}

/// Reads the ranks of servers, which are the lines that [`read`] passes over.
///
/// # Errors
/// Everything that is wrong, with line and column: a region that does not exist, what is no address, a rank out of
/// range, a server that a region has twice, a column too few or too many.
pub fn ranks(
    source: &str,
    text: &str,
    regions: &dyn Fn(&str) -> Option<RegionId>,
) -> Result<Vec<Rank>, Faults> {
    let mut faults = Faults::default();
    let mut ranks = Vec::new();
    let mut seen: HashMap<(RegionId, IpAddr), u32> = HashMap::new();
    for (line, number) in lines(text).zip(1..).filter(|(line, _)| line.trim_start().starts_with(RANK)) {
        match rank(source, number, line, regions) {
            Ok(rank) => {
                let first = *seen.entry((rank.region, rank.server)).or_insert(number);
                if first != number {
                    let what = format!("the region's rank of {} stands in line {first} already", rank.server);
                    faults.push(Fault::at(source, number, 1, what, "each server once for a region"));
                }
                ranks.push(rank);
            }
            Err(fault) => faults.push(fault),
        }
    }
    if ranks.len() > RANKS_MAX {
        faults.push(Fault::whole(source, "too many ranks", format!("at most {RANKS_MAX}")));
    }
    faults.or(ranks)
}

fn rank(
    source: &str,
    number: u32,
    line: &str,
    regions: &dyn Fn(&str) -> Option<RegionId>,
) -> Result<Rank, Fault> {
    check_length(source, number, line)?;
    let fault = |column: u32, what: String, expected: &str| Fault::at(source, number, column, what, expected);
    let commas: Vec<usize> = line.match_indices(',').map(|(at, _)| at).collect();
    let [first, second] = commas[..] else {
        let what = format!("{} columns", commas.len() + 1);
        return Err(fault(1, what, "@region,address,rank, such as @europe,192.0.2.1,1"));
    };
    let name = cell(line, line.find(RANK).map_or(0, |at| at + 1), first);
    let (server, rank) = (cell(line, first + 1, second), cell(line, second + 1, line.len()));
    let id = region(source, number, name, regions)?;
    if id.is_none() || id == RegionId::ASK {
        return Err(fault(name.column, "ranks of no region".into(), "the name of a region"));
    }
    let address = server.text.parse().map_err(|_| {
        let what = format!("not an address: '{}'", server.text);
        fault(server.column, what, "the address of a server, such as 192.0.2.1")
    })?;
    let number =
        rank.text.parse().ok().filter(|number| (1..=RANK_MAX).contains(number)).ok_or_else(|| {
            let what = format!("not a rank: '{}'", rank.text);
            fault(rank.column, what, &format!("a whole number from 1 to {RANK_MAX}"))
        })?;
    Ok(Rank { region: id, server: address, rank: number })
}

/// Writes ranks so that [`ranks`] gives them back; those of a region that has no name are left out.
pub fn write_ranks<'a>(ranks: &[Rank], name: &dyn Fn(RegionId) -> Option<&'a str>) -> String {
    let mut text = String::new();
    for Rank { region, server, rank } in ranks {
        if let Some(name) = name(*region) {
            writeln!(text, "{RANK}{name},{server},{rank}").expect("a String takes everything");
        }
    }
    text
}

/// Writes prefixes so that [`read`] gives them back: with a header, ordered by family, address and
/// length. `name` tells a region's name; where there is none the prefix is left unclassified.
pub fn write<'a>(entries: &[(Prefix, RegionId)], name: &dyn Fn(RegionId) -> Option<&'a str>) -> String {
    let mut ordered = entries.to_vec();
    ordered.sort_unstable();
    let mut text = String::from("prefix,region\n");
    for (prefix, region) in ordered {
        let name = if region == RegionId::ASK { ASK } else { name(region).unwrap_or(UNCLASSIFIED) };
        writeln!(text, "{prefix},{name}").expect("a String takes everything");
    }
    text
}

fn not_a_prefix(source: &str, line: u32, cell: Cell<'_>, error: ParsePrefixError) -> Fault {
    let behind_slash = cell.text.find('/').map_or(cell.text.len(), |slash| slash + 1) as u32;
    let (column, what, expected) = match error {
        ParsePrefixError::Length(max) => {
            (cell.column + behind_slash, error.to_string(), format!("a number from 0 to {max}"))
        }
        ParsePrefixError::HostBits(prefix) => (cell.column, error.to_string(), prefix.to_string()),
        ParsePrefixError::NoLength => {
            (cell.column + behind_slash, error.to_string(), "such as 192.0.2.0/24".into())
        }
        ParsePrefixError::Address => {
            let what = format!("not an address prefix: '{}'", cell.text);
            (cell.column, what, "such as 192.0.2.0/24 or 2001:db8::/32".into())
        }
    };
    Fault::at(source, line, column, what, expected)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;

    const NAMES: [&str; 3] = ["europe", "asia", "north america"];

    fn number(name: &str) -> Option<RegionId> {
        NAMES.iter().position(|n| *n == name).and_then(|i| RegionId::new(i as u32 + 1))
    }

    fn name(region: RegionId) -> Option<&'static str> {
        NAMES.get((region.get() as usize).checked_sub(1)?).copied()
    }

    #[test]
    fn a_good_text() {
        let text = "\u{feff}# ours\r\n\nPrefix, Region\r\n 192.0.2.0/24 , europe\n  # x\n192.0.2.0/25,-\n192.0.2.0/26,?\n\
                    2001:db8::/32,north america\n::ffff:198.51.100.0/120,asia";
        let entries = read("x.csv", text, &number).unwrap();
        let canonical = "prefix,region\n192.0.2.0/24,europe\n192.0.2.0/25,-\n192.0.2.0/26,?\n198.51.100.0/24,asia\n2001:db8::/32,north america\n";
        assert_eq!(write(&entries, &name), canonical);
        let mut again = read("x.csv", canonical, &number).unwrap();
        again.sort_unstable();
        let mut entries = entries;
        entries.sort_unstable();
        assert_eq!(again, entries);
    }

    #[test]
    fn all_faults_at_once() {
        let text = "192.0.2.1/24,europe\n\
                    192.0.2.0/33,europe\n\
                    192.0.2.0/24,mars\n\
                    nonsense,europe\n\
                    10.0.0.0/8\n\
                    10.0.0.0/8,\n\
                    198.51.100.0/24,asia\n\
                    \x20198.51.100.0/24, asia\n\
                    203.0.113.0/24,asia,2\n\
                    prefix,region\n\
                    203.0.113.0,pluto\n";
        let faults = read("x.csv", text, &number).unwrap_err();
        let expected = [
            "x.csv:1:1: bits are set behind the prefix length; expected 192.0.2.0/24",
            "x.csv:2:11: prefix length out of range; expected a number from 0 to 32",
            "x.csv:3:14: unknown region 'mars'; expected a region that was added (a name of letters, digits, -, _ and .), or -",
            "x.csv:4:1: not an address prefix: 'nonsense'; expected such as 192.0.2.0/24 or 2001:db8::/32",
            "x.csv:5:11: no region behind the prefix; expected prefix,region",
            "x.csv:6:12: no region; expected the name of a region, or -",
            "x.csv:8:2: prefix 198.51.100.0/24 stands in line 7 already; expected each prefix once",
            "x.csv:9:20: more than two columns; expected prefix,region",
            "x.csv:10:1: not an address prefix: 'prefix'; expected such as 192.0.2.0/24 or 2001:db8::/32",
            "x.csv:10:8: unknown region 'region'; expected a region that was added (a name of letters, digits, -, _ and .), or -",
            "x.csv:11:12: prefix without a length; expected such as 192.0.2.0/24",
            "x.csv:11:13: unknown region 'pluto'; expected a region that was added (a name of letters, digits, -, _ and .), or -",
        ];
        assert_eq!(faults.to_string().lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn ranks_stand_between_prefixes() {
        let text = "\u{feff}@europe,192.0.2.1,1\n192.0.2.0/24,europe\n @ asia , 2001:db8::1 , 10000\n";
        let ranks = ranks("x.csv", text, &number).unwrap();
        assert_eq!(write_ranks(&ranks, &name), "@europe,192.0.2.1,1\n@asia,2001:db8::1,10000\n");
        assert_eq!(read("x.csv", text, &number).unwrap().len(), 1);
        let text = "@europe,192.0.2.1\n@mars,192.0.2.1,1\n@-,192.0.2.1,1\n@asia,nowhere,1\n@asia,192.0.2.1,0\n\
                    @asia,192.0.2.1,1\n@asia,192.0.2.1,1\n@asia,192.0.2.1,1,2\n@asia,192.0.2.9,10001\n";
        let faults = super::ranks("x.csv", text, &number).unwrap_err();
        let expected = [
            "x.csv:1:1: 2 columns; expected @region,address,rank, such as @europe,192.0.2.1,1",
            "x.csv:2:2: unknown region 'mars'; expected a region that was added (a name of letters, digits, -, _ and .), or -",
            "x.csv:3:2: ranks of no region; expected the name of a region",
            "x.csv:4:7: not an address: 'nowhere'; expected the address of a server, such as 192.0.2.1",
            "x.csv:5:17: not a rank: '0'; expected a whole number from 1 to 10000",
            "x.csv:7:1: the region's rank of 192.0.2.1 stands in line 6 already; \
             expected each server once for a region",
            "x.csv:8:1: 4 columns; expected @region,address,rank, such as @europe,192.0.2.1,1",
            "x.csv:9:17: not a rank: '10001'; expected a whole number from 1 to 10000",
        ];
        assert_eq!(faults.to_string().lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_line_is_bounded() {
        let text = format!("192.0.2.0/24,{}\n", "x".repeat(2_000));
        let faults = read("x.csv", &text, &number).unwrap_err();
        assert_eq!(faults.to_string(), "x.csv:1:1: line is too long; expected at most 1024 bytes");
        let faults = ranks("x.csv", &format!("@europe{}", ",".repeat(2_000)), &number).unwrap_err();
        assert_eq!(faults.to_string(), "x.csv:1:1: line is too long; expected at most 1024 bytes");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            entries in prop::collection::btree_map((any::<IpAddr>(), 0u8..=32), 0u32..4, 0..50)
        ) {
            // What stands for IPv4 inside IPv6 comes back as IPv4.
            let entries = entries.into_iter().map(|((address, length), id)| {
                let prefix = Prefix::new(address, length).unwrap().to_string();
                (prefix.parse::<Prefix>().unwrap(), RegionId::new(id).unwrap())
            });
            let entries: Vec<_> = entries.collect::<BTreeMap<_, _>>().into_iter().collect();
            prop_assert_eq!(read("x.csv", &write(&entries, &name), &number), Ok(entries));
        }

        #[test]
        fn any_text_is_taken(text in "([0-9a-f:./]{0,12}[,#\r\n ]{0,3}(europe)?){0,12}|(?s).{0,60}") {
            if let Ok(entries) = read("x.csv", &text, &number) {
                let again = read("x.csv", &write(&entries, &name), &number);
                prop_assert_eq!(again.map(|again| again.len()), Ok(entries.len()));
            }
        }
    }
}
