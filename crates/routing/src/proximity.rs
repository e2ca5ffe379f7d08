//! Where partitions come from: each source is read whole, before any query, into prefixes and regions.
//!
//! - [`csv`]: a text of prefixes and region names.
//! - [`mmdb`]: a MaxMind database, with a text that says which code belongs to which region.

pub mod csv;
mod lines;
pub mod mmdb;

#[cfg(test)]
pub(crate) use tests::{country_entries, data};

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::io::Read;
    use std::path::PathBuf;

    use crate::prefix::Prefix;
    use crate::region::RegionId;

    /// A file of the folder with test data; says so where it is absent.
    pub(crate) fn data(file: &str) -> Option<Vec<u8>> {
        let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
        let folder = std::env::var_os("POINTSMAN_DATA").map_or(beside, PathBuf::from);
        let path = folder.join(file);
        match std::fs::read(&path) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                eprintln!("skipped: {}: {error} (POINTSMAN_DATA names the folder)", path.display());
                None
            }
        }
    }

    /// The countries of the real prefixes, numbered in the order in which they appear.
    pub(crate) fn country_entries() -> Option<Vec<(Prefix, RegionId)>> {
        let packed = data("routing/country-cidrs.csv.gz")?;
        let mut text = String::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
        let text = text.strip_prefix("cidr,country\n").expect("the file's header");
        let mut numbers = HashMap::new();
        for line in text.lines() {
            let next = numbers.len() as u32 + 1;
            numbers.entry(line.split_once(',').unwrap().1).or_insert(RegionId::new(next).unwrap());
        }
        let entries = super::csv::read("country-cidrs.csv", text, &|name| numbers.get(name).copied());
        Some(entries.unwrap_or_else(|faults| panic!("{faults}")))
    }
}
