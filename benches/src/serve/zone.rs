//! What every server serves: the zone, and the steered name with its policy.

use std::fmt::Write as _;

use anyhow::{Result, anyhow};
use nameserver::book::{Book, Condition, Edit};
use nameserver::generation::Settings;
use serde_json::json;

use crate::steering::{self, REGIONS};

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

/// A policy for `name`; `turn` makes it another one.
pub(crate) fn policy(name: &str, turn: usize) -> String {
    json!({"names": [name], "servers": steering::servers(turn, REGIONS)}).to_string()
}

/// Zone and policy with a partition of these lines, as our server holds them.
///
/// # Errors
/// Where the partition has faults.
pub(crate) fn book(seed: u64, partition: String) -> Result<Book> {
    let mut book = Book::empty(seed, Settings::default());
    for region in 1..=REGIONS {
        book.apply(Edit::AddRegion { name: steering::region(region) }).map_err(|why| anyhow!("{why}"))?;
    }
    let regions = book.regions.clone();
    for edit in [
        Edit::partition("default", "partition", partition.into_bytes(), Condition::Always, regions),
        Edit::zone(ORIGIN, MASTER.as_bytes(), Condition::Always, &book.generation.hash),
        Edit::policy(Some(STEERED), "policy", policy(STEERED, 0).into_bytes(), Condition::Always),
    ] {
        let edit = edit.map_err(|faults| anyhow!("{faults}"))?;
        book.apply(edit).map_err(|why| anyhow!("{why}"))?;
    }
    Ok(book)
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
}
