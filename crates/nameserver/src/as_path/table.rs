//! A BGP table in MRT (RFC 6396): where each prefix begins, and which ASes are neighbours.
//!
//! TABLE_DUMP and TABLE_DUMP_V2, as they are, or packed with gzip or bzip2. The origin of a route is the last AS of its
//! path; where a path ends in an AS_SET, which stands for several ASes behind an aggregate, it is the last AS before
//! that, and the prefix is taken as a whole. Routes whose ORIGIN is INCOMPLETE are treated as all others. Both are
//! counted. Of several origins of one prefix the one of most routes counts, and of those the lowest number.

use std::collections::{HashMap, HashSet};
use std::io::{BufReader, Read};

use api::{Fault, Faults};
use bgpkit_parser::RawMrtRecord;
use routing::Prefix;
use routing::partition::PREFIXES_MAX;

use super::mrt::{self, Route};

/// The most octets of a table once it is unpacked: the largest collectors have a tenth. A packed file could go on for
/// ever.
const UNPACKED_MAX: u64 = 64 << 30;

/// The most different ASes: four times as many as there are.
const ASES_MAX: usize = 1 << 19;

/// The most links between them: ten times as many as all collectors see.
const LINKS_MAX: usize = 1 << 23;

/// The number that stands for all that old routers cannot write (RFC 6793 §9): it is no AS.
const AS_TRANS: u32 = 23_456;

/// What a table says.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The ASes of all paths.
    pub ases: Ases,
    /// Each prefix once, ascending, with the index of its origin.
    pub origins: Vec<(Prefix, u32)>,
    /// Each pair of neighbours once, by index, the lower first.
    pub links: Vec<(u32, u32)>,
    /// What was counted.
    pub counts: Counts,
}

/// The numbers of ASes, and an index for each, from 0 without gaps.
#[derive(Clone, Debug, Default)]
pub struct Ases {
    numbers: Vec<u32>,
    indices: HashMap<u32, u32>,
}

/// What was counted while a table was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records of a table.
    pub records: u64,
    /// Other records, which are passed over.
    pub other_records: u64,
    /// Routes: one for each prefix and neighbour of the collector.
    pub routes: u64,
    /// Routes whose path ends in an AS_SET.
    pub as_sets: u64,
    /// Routes whose ORIGIN is INCOMPLETE.
    pub incomplete: u64,
    /// Routes without an AS that could be the origin.
    pub without_origin: u64,
    /// Routes to everywhere, which say nothing of anybody's AS.
    pub default_routes: u64,
    /// Routes to IPv4 addresses as IPv6 has them (`::ffff:0:0/96`), which nobody may announce: those of IPv4 decide.
    pub mapped_routes: u64,
    /// Prefixes with an origin.
    pub prefixes: u64,
    /// Those of them that have several.
    pub several_origins: u64,
    /// Different ASes.
    pub ases: u64,
    /// Pairs of neighbours.
    pub links: u64,
}

impl Counts {
    /// Each count with its name.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("records", self.records),
            ("other_records", self.other_records),
            ("routes", self.routes),
            ("as_sets", self.as_sets),
            ("incomplete", self.incomplete),
            ("without_origin", self.without_origin),
            ("default_routes", self.default_routes),
            ("mapped_routes", self.mapped_routes),
            ("prefixes", self.prefixes),
            ("several_origins", self.several_origins),
            ("ases", self.ases),
            ("links", self.links),
        ]
    }
}

/// Reads a table; `source` names it in faults.
///
/// # Errors
/// A record that is cut off or damaged, with its number and where it begins; no route at all; more than one server
/// could hold.
pub fn read(source: &str, octets: &[u8]) -> Result<Table, Faults> {
    let packed = match octets {
        [0x1f, 0x8b, ..] => Packed::Gzip,
        [b'B', b'Z', b'h', ..] => Packed::Bzip2,
        _ => Packed::Not,
    };
    let mut unpacked: Box<dyn Read + '_> = match packed {
        Packed::Gzip => Box::new(flate2::read::MultiGzDecoder::new(octets)),
        Packed::Bzip2 => Box::new(bzip2::read::MultiBzDecoder::new(octets)),
        Packed::Not => Box::new(octets),
    };
    let mut reader = BufReader::with_capacity(1 << 16, unpacked.as_mut().take(UNPACKED_MAX));
    let mut reading = Reading::default();
    let (mut number, mut at) = (0u64, 0u64);
    loop {
        let fault = |what: String| {
            let place = match packed {
                Packed::Not => format!("octet {at}"),
                Packed::Gzip | Packed::Bzip2 => format!("octet {at} of what is unpacked"),
            };
            let what = format!("record {} at {place}: {what}", number + 1);
            let expected =
                "a whole table in MRT (TABLE_DUMP or TABLE_DUMP_V2), as it is or packed with gzip or bzip2";
            Faults::from(Fault::whole(source, what, expected))
        };
        let Some(record) = mrt::next(&mut reader).map_err(fault)? else { break };
        let octets = record.total_bytes_len() as u64;
        reading.record(record).map_err(fault)?;
        (number, at) = (number + 1, at + octets);
    }
    let counts = &reading.counts;
    if counts.records == 0 || reading.votes.is_empty() {
        let what =
            format!("no route in {} records of a table and {} others", counts.records, counts.other_records);
        return Err(Fault::whole(source, what, "a table of routes, not a log of updates").into());
    }
    Ok(reading.finish())
}

enum Packed {
    Not,
    Gzip,
    Bzip2,
}

/// What was read so far.
#[derive(Default)]
struct Reading {
    ases: Ases,
    /// How many routes each prefix has with each origin.
    votes: HashMap<(Prefix, u32), u32>,
    links: HashSet<(u32, u32)>,
    counts: Counts,
}

impl Reading {
    /// Reads one record; or says what is wrong with it.
    fn record(&mut self, record: RawMrtRecord) -> Result<(), String> {
        if !mrt::is_table(&record) {
            self.counts.other_records += 1;
            return Ok(());
        }
        self.counts.records += 1;
        mrt::routes(record, &mut |route| self.route(route))
    }

    fn route(&mut self, route: &Route) -> Result<(), String> {
        self.counts.routes += 1;
        self.counts.incomplete += u64::from(route.is_incomplete);
        self.counts.as_sets += u64::from(route.path.last() == Some(&None));
        if route.length == 0 {
            self.counts.default_routes += 1;
            return Ok(());
        }
        let prefix = Prefix::new(route.address, route.length).ok_or("a prefix is longer than an address")?;
        if route.length >= Prefix::MAPPED.length() && Prefix::MAPPED.contains(route.address) {
            self.counts.mapped_routes += 1;
            return Ok(());
        }
        let origin = self.path(&route.path)?;
        let Some(origin) = origin else {
            self.counts.without_origin += 1;
            return Ok(());
        };
        *self.votes.entry((prefix, origin)).or_insert(0) += 1;
        if self.votes.len() > PREFIXES_MAX {
            return Err(format!("the table has more than {PREFIXES_MAX} prefixes"));
        }
        Ok(())
    }

    /// Notes the neighbours on a path; returns its origin.
    fn path(&mut self, path: &[Option<u32>]) -> Result<Option<u32>, String> {
        let (mut before, mut origin) = (None, None);
        for number in path {
            // Members of a set are in no order, so that it is nobody's neighbour.
            let Some(number) = number.filter(|number| !matches!(*number, 0 | AS_TRANS)) else {
                before = None;
                continue;
            };
            let index = self.ases.add(number);
            if let Some(before) = before
                && before != index
            {
                self.links.insert((index.min(before), index.max(before)));
            }
            (before, origin) = (Some(index), Some(index));
        }
        if self.ases.len() > ASES_MAX || self.links.len() > LINKS_MAX {
            return Err(format!("the table has more than {ASES_MAX} ASes or {LINKS_MAX} links"));
        }
        Ok(origin)
    }

    fn finish(mut self) -> Table {
        let mut votes: Vec<(Prefix, u32, u32)> =
            self.votes.into_iter().map(|((prefix, origin), votes)| (prefix, votes, origin)).collect();
        let ases = &self.ases;
        votes.sort_unstable_by_key(|(prefix, votes, origin)| {
            (*prefix, std::cmp::Reverse(*votes), ases.number(*origin))
        });
        let mut origins: Vec<(Prefix, u32)> = Vec::with_capacity(votes.len());
        let mut several = HashSet::new();
        for (prefix, _, origin) in votes {
            match origins.last() {
                Some((last, _)) if *last == prefix => {
                    several.insert(prefix);
                }
                _ => origins.push((prefix, origin)),
            }
        }
        let mut links: Vec<(u32, u32)> = self.links.into_iter().collect();
        links.sort_unstable();
        self.counts.prefixes = origins.len() as u64;
        self.counts.several_origins = several.len() as u64;
        self.counts.ases = self.ases.len() as u64;
        self.counts.links = links.len() as u64;
        Table { ases: self.ases, origins, links, counts: self.counts }
    }
}

impl Ases {
    /// These ASes, each once.
    pub fn of(numbers: impl IntoIterator<Item = u32>) -> Ases {
        let mut ases = Ases::default();
        numbers.into_iter().for_each(|number| {
            ases.add(number);
        });
        ases
    }

    /// The index of an AS that was added.
    pub fn index(&self, number: u32) -> Option<u32> {
        self.indices.get(&number).copied()
    }

    /// The number of the AS with this index.
    ///
    /// # Panics
    /// Where there is none.
    pub fn number(&self, index: u32) -> u32 {
        self.numbers[index as usize]
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    fn add(&mut self, number: u32) -> u32 {
        let next = self.numbers.len() as u32;
        *self.indices.entry(number).or_insert_with(|| {
            self.numbers.push(number);
            next
        })
    }
}
