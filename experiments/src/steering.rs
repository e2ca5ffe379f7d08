//! By what clients are steered: the regions of their addresses, and six servers with weights in each.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use routing::{Prefix, RegionId};
use serde_json::{Map, Value, json};

use crate::machine;

/// 243,034 prefixes with their countries, in the test data.
pub const COUNTRIES: &str = "routing/country-cidrs.csv.gz";

/// The largest table of routes that is at hand: that of the month of NetAirt's thesis.
pub const ROUTES: &str = "routing/bview.20020722.2337.gz";

/// How many regions the countries are dealt out to.
pub const REGIONS: u32 = 8;

/// The weights of the six addresses in percent, where they do not depend on the client.
pub const WEIGHTS: [u32; 6] = [10, 20, 30, 15, 5, 20];

/// One of the six addresses.
pub fn address(index: usize) -> String {
    format!("192.0.2.{}", index + 1)
}

/// The name of a region, from 1.
pub fn region(number: u32) -> String {
    format!("region{number}")
}

/// The prefixes of [`COUNTRIES`], the file being there; the countries are dealt out to the regions in the order in which
/// they appear.
///
/// # Errors
/// Where the file is not there or cannot be read.
///
/// # Panics
/// Never: the regions are few.
pub fn countries(file: &Path) -> Result<Vec<(Prefix, RegionId)>> {
    let mut numbers = BTreeMap::new();
    let mut entries = Vec::new();
    for line in machine::unpacked(file)?.lines().skip(1) {
        let (prefix, country) = line.split_once(',').with_context(|| format!("no comma: {line}"))?;
        let next = numbers.len() as u32 % REGIONS + 1;
        let region = *numbers.entry(country.to_owned()).or_insert(next);
        entries.push((prefix.parse().ok().context("not a prefix")?, RegionId::new(region).expect("small")));
    }
    Ok(entries)
}

/// Prefixes as the text of a partition.
pub fn partition(entries: &[(Prefix, RegionId)]) -> String {
    let mut text = String::from("prefix,region\n");
    for (prefix, id) in entries {
        let _ = writeln!(text, "{prefix},{}", region(id.get()));
    }
    text
}

/// The servers of a policy: the six, each with a weight of its own in each of so many regions; `turn` shifts the weights,
/// so that each update changes every row.
pub fn servers(turn: usize, regions: u32) -> Vec<Value> {
    let weight = |index: usize| f64::from(WEIGHTS[index % WEIGHTS.len()]) / 100.0;
    let server = |index: usize| {
        let entry = |shift: usize| json!({"probability": weight(index + shift + turn), "ttl": 300});
        let regions: Map<_, _> =
            (1..=regions).map(|number| (region(number), entry(number as usize))).collect();
        json!({"address": address(index), "default": entry(0), "regions": regions})
    };
    (0..WEIGHTS.len()).map(server).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_sum_up_to_a_whole() {
        assert_eq!(WEIGHTS.iter().sum::<u32>(), 100);
    }
}
