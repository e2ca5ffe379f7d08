//! What probes last held of servers. It is remembered beside the generations, and is part of none.

use std::net::IpAddr;

use sqlx::{QueryBuilder, Sqlite, SqliteConnection, query};

/// How many verdicts one statement stores: four values each stay below the 32,766 that SQLite binds.
const VERDICTS_PER_STATEMENT: usize = 1_000;

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
    pub server: IpAddr,
    /// The probe's name.
    pub probe: String,
    /// What is held; `None` to forget it.
    pub held: Option<Held>,
}

/// Stores verdicts over those of the same server and probe.
pub(crate) async fn remember(sql: &mut SqliteConnection, verdicts: &[Verdict]) -> Result<(), sqlx::Error> {
    for verdict in verdicts {
        query("DELETE FROM health WHERE server = ? AND probe = ?")
            .bind(verdict.server.to_string())
            .bind(&verdict.probe)
            .execute(&mut *sql)
            .await?;
    }
    let held: Vec<(&Verdict, Held)> =
        verdicts.iter().filter_map(|verdict| Some((verdict, verdict.held?))).collect();
    for held in held.chunks(VERDICTS_PER_STATEMENT) {
        let mut insert = QueryBuilder::<Sqlite>::new("INSERT INTO health (server, probe, failing, since) ");
        insert.push_values(held, |mut row, (verdict, held)| {
            row.push_bind(verdict.server.to_string()).push_bind(&verdict.probe);
            row.push_bind(held.failing).push_bind(held.since.cast_signed());
        });
        insert.build().execute(&mut *sql).await?;
    }
    Ok(())
}
