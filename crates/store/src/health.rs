//! What probes last held of servers. It is remembered beside the generations, and is part of none.

use api::Target;
use rusqlite::Connection;

/// What is held of a server by a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Whether the probe fails.
    pub failing: bool,
    /// Since when, in seconds since 1970.
    pub since: u64,
}

/// What is to be remembered of a server under a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The server.
    pub server: Target,
    /// The probe's name.
    pub probe: String,
    /// What is held; `None` to forget it.
    pub held: Option<Held>,
}

/// Stores verdicts over those of the same server and probe.
pub(crate) fn remember(sql: &Connection, verdicts: &[Verdict]) -> rusqlite::Result<()> {
    let mut delete = sql.prepare_cached("DELETE FROM health WHERE server = ? AND probe = ?")?;
    let mut insert =
        sql.prepare_cached("INSERT INTO health (server, probe, failing, since) VALUES (?, ?, ?, ?)")?;
    for Verdict { server, probe, held } in verdicts {
        let server = server.to_string();
        delete.execute((&server, probe))?;
        if let Some(held) = held {
            insert.execute((&server, probe, held.failing, held.since.cast_signed()))?;
        }
    }
    Ok(())
}
