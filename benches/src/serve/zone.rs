//! What every server serves: the zone, the steered name with its policy, and queries for them.

use std::fmt::Write as _;

use routing::{Prefix, RegionId};

use crate::data::REGIONS;

/// The zone's name.
pub(crate) const ORIGIN: &str = "example.com";

/// A name with one address, which every server answers from its zone.
pub(crate) const STATIC: &str = "www.example.com";

/// A name with one of six addresses, drawn by their weights.
pub(crate) const STEERED: &str = "cdn.example.com";

/// The zone as a master file; servers that draw addresses replace the address of `cdn`.
pub(crate) const MASTER: &str = "\
$ORIGIN example.com.
$TTL 300
@ IN SOA ns hostmaster 1 7200 600 1209600 300
@ IN NS ns
ns IN A 192.0.2.53
www IN A 192.0.2.80
cdn IN A 192.0.2.1
";

/// The weights of the six addresses, where they do not depend on the client.
pub(crate) const WEIGHTS: [u32; 6] = [10, 20, 30, 15, 5, 20];

/// One of the six addresses.
pub(crate) fn address(index: usize) -> String {
    format!("192.0.2.{}", index + 1)
}

/// The name of a region, from 1.
pub(crate) fn region(number: u32) -> String {
    format!("region{number}")
}

/// Prefixes as the text of a partition.
pub(crate) fn partition(entries: &[(Prefix, RegionId)]) -> String {
    let mut text = String::from("prefix,region\n");
    for (prefix, id) in entries {
        let _ = writeln!(text, "{prefix},{}", region(id.get()));
    }
    text
}

/// A policy for `name`: six servers, each with a weight of its own in each region; `turn` shifts the weights, so
/// that each update changes every row.
pub(crate) fn policy(name: &str, turn: usize) -> String {
    let weight = |index: usize| f64::from(WEIGHTS[index % WEIGHTS.len()]) / 100.0;
    let servers: Vec<serde_json::Value> = (0..WEIGHTS.len())
        .map(|index| {
            let entry =
                |shift: usize| serde_json::json!({"probability": weight(index + shift + turn), "ttl": 300});
            let regions: serde_json::Map<_, _> =
                (1..=REGIONS).map(|number| (region(number), entry(number as usize))).collect();
            serde_json::json!({"address": address(index), "default": entry(0), "regions": regions})
        })
        .collect();
    serde_json::json!({"names": [name], "servers": servers}).to_string()
}

/// A query for a name's IPv4 addresses.
pub(crate) fn query(name: &str) -> Vec<u8> {
    let mut query = vec![0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(label.len() as u8);
        query.extend(label.as_bytes());
    }
    query.extend([0, 0, 1, 0, 1]);
    query
}

/// A zone of this many records: `SOA`, `NS`, and addresses of different names.
pub(crate) fn large(records: usize) -> String {
    let mut text = String::from(MASTER);
    for number in MASTER.lines().count() - 2..records {
        let octets = (number as u32).to_be_bytes();
        let _ = writeln!(text, "host{number} IN A 10.{}.{}.{}", octets[1], octets[2], octets[3]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_zone_has_that_many_records() {
        let records = large(1_000).lines().filter(|line| line.contains(" IN ")).count();
        assert_eq!(records, 1_000);
    }

    #[test]
    fn weights_sum_up_to_a_whole() {
        assert_eq!(WEIGHTS.iter().sum::<u32>(), 100);
    }
}
