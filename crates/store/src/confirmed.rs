//! When primaries last confirmed the zones that they give. It is remembered beside the generations, and is part of none.

use std::collections::BTreeMap;

use rusqlite::Connection;

/// Stores times, in seconds since 1970, over those of the same zones.
pub(crate) fn confirm(sql: &Connection, times: &BTreeMap<String, u64>) -> rusqlite::Result<()> {
    let mut insert = sql.prepare_cached("INSERT OR REPLACE INTO confirmed (origin, at) VALUES (?, ?)")?;
    times.iter().try_for_each(|(origin, at)| insert.execute((origin, at.cast_signed())).map(drop))
}
