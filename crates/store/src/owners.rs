//! Owners of a zone in a file that were changed alone: what they have stands beside the zone's text, until it is brought
//! into it when nobody waits.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension};

use crate::refused::{Failure, there_was};
use crate::text::{TEXT_MAX, pack, unpack, with_owners};

/// How many octets may stand beside a text that is shorter than that, packed: to write them is to write some 60 pages.
/// Beside a longer one as many may as that has.
const BESIDE_MIN: i64 = 256 << 10;

/// The lines of owners in each zone, by its origin, in place of what the zone's text has of them.
pub(crate) fn read(sql: &Connection) -> rusqlite::Result<BTreeMap<String, BTreeMap<String, String>>> {
    let mut zones = BTreeMap::<String, BTreeMap<String, String>>::new();
    let mut query = sql.prepare("SELECT DISTINCT origin FROM zone_owner")?;
    for origin in query.query_map([], |row| row.get::<_, String>(0))? {
        let origin = origin?;
        zones.insert(origin.clone(), read_zone(sql, &origin)?);
    }
    Ok(zones)
}

fn read_zone(sql: &Connection, origin: &str) -> rusqlite::Result<BTreeMap<String, String>> {
    let mut query = sql.prepare_cached("SELECT owner, text FROM zone_owner WHERE origin = ?")?;
    query.query_map([origin], |row| row.try_into())?.collect()
}

/// Stores what owners have in a zone, beside its text.
pub(crate) fn change(
    sql: &Connection,
    origin: &str,
    owners: &BTreeMap<String, String>,
) -> Result<(), Failure<rusqlite::Error>> {
    let is_there = sql.prepare_cached("SELECT 1 FROM zone WHERE origin = ?")?.exists([origin])?;
    there_was(is_there, || format!("there is no zone {origin}"))?;
    let mut put = sql.prepare_cached(
        "INSERT INTO zone_owner (origin, owner, text) VALUES (?, ?, ?) \
         ON CONFLICT (origin, owner) DO UPDATE SET text = excluded.text",
    )?;
    for (owner, lines) in owners {
        put.execute((origin, owner, lines))?;
    }
    Ok(())
}

/// Brings what stands beside texts into them, where it has become much.
pub(crate) fn tidy(sql: &Connection) -> rusqlite::Result<()> {
    let beside = "SELECT origin, sum(length(owner) + length(text)) FROM zone_owner GROUP BY origin";
    let beside: Vec<(String, i64)> =
        sql.prepare_cached(beside)?.query_map([], |row| row.try_into())?.collect::<Result<_, _>>()?;
    for (origin, octets) in beside.into_iter().filter(|(_, octets)| *octets > BESIDE_MIN) {
        let length = "SELECT length(text) FROM zone WHERE origin = ?";
        let length: i64 = sql.prepare_cached(length)?.query_row([&origin], |row| row.get(0))?;
        if octets > length {
            bring_in(sql, &origin)?;
        }
    }
    Ok(())
}

/// Makes a zone's text one with what stands beside it. What cannot be unpacked, or is too long then, stays as it is.
fn bring_in(sql: &Connection, origin: &str) -> rusqlite::Result<()> {
    let text = "SELECT text FROM zone WHERE origin = ?";
    let packed: Option<Vec<u8>> = sql.query_row(text, [origin], |row| row.get(0)).optional()?;
    let owners = read_zone(sql, origin)?;
    let text = packed.and_then(|packed| unpack(&packed, TEXT_MAX).ok());
    let Some(packed) = text.and_then(|text| pack(&with_owners(&text, &owners), TEXT_MAX)) else {
        return Ok(());
    };
    sql.execute("UPDATE zone SET text = ? WHERE origin = ?", (packed, origin))?;
    sql.execute("DELETE FROM zone_owner WHERE origin = ?", [origin]).map(drop)
}
