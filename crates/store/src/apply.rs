//! A change in SQL.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::{Entry, Order, Policy, WhenAllDown};
use sqlx::error::{DatabaseError, ErrorKind};
use sqlx::{QueryBuilder, Sqlite, SqliteConnection, query, query_scalar};

use crate::change::{Change, describe};
use crate::known::{Kept, Known};
use crate::text::{TEXT_MAX, pack};

/// How many generations the store remembers the description of, at least: hours of a steady update per second, and
/// a few megabytes at most.
pub const GENERATIONS_KEPT: i64 = 10_000;

/// Of how many generations one at least forgets those that are too many, where updates come one by one: to do so each
/// time would write one page more each time.
const FORGETFUL: i64 = 64;

/// How many rows one statement inserts or looks for: five values each stay far below the 32,766 that
/// SQLite binds, and more would gain nothing.
pub(crate) const ROWS_PER_STATEMENT: usize = 500;

/// Why a change was not applied.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It contradicts what is stored, or is outside what can be.
    Refused(String),
    /// The database failed.
    Sql(sqlx::Error),
}

impl From<sqlx::Error> for Failure {
    /// A constraint that does not hold is the change's fault, everything else the database's.
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(database) if database.kind() != ErrorKind::Other => {
                Failure::Refused(database.message().to_owned())
            }
            _ => Failure::Sql(error),
        }
    }
}

/// Applies one change of the commit that becomes `generation`, with what is `known` of the tables.
pub(crate) async fn apply(
    sql: &mut SqliteConnection,
    known: &mut Known,
    generation: i64,
    change: &Change,
) -> Result<(), Failure> {
    match change {
        Change::PutZone { origin, text } => {
            // Deleting first is the one form of "insert or replace" that all databases share.
            query("DELETE FROM zone WHERE origin = ?").bind(origin).execute(&mut *sql).await?;
            query("INSERT INTO zone (origin, text) VALUES (?, ?)")
                .bind(origin)
                .bind(packed(text)?)
                .execute(sql)
                .await?;
        }
        Change::DeleteZone { origin } => {
            let done = query("DELETE FROM zone WHERE origin = ?").bind(origin).execute(sql).await?;
            there_was(done.rows_affected(), || format!("there is no zone {origin}"))?;
        }
        Change::AddRegion { id, name } => add_region(sql, *id, name).await?,
        Change::RemoveRegion { id } => {
            known.forget_all();
            remove_region(sql, generation, *id).await?;
        }
        Change::PutPartition { name, text } => {
            query(r#"DELETE FROM "partition" WHERE name = ?"#).bind(name).execute(&mut *sql).await?;
            query(r#"INSERT INTO "partition" (name, text) VALUES (?, ?)"#)
                .bind(name)
                .bind(packed(text)?)
                .execute(sql)
                .await?;
        }
        Change::DeletePartition { name } => {
            let done = query(r#"DELETE FROM "partition" WHERE name = ?"#).bind(name).execute(sql).await?;
            there_was(done.rows_affected(), || format!("there is no partition {name}"))?;
        }
        Change::PutPolicy(policy) => match known.alike(policy) {
            Some(kept) => {
                let mut entries = QueryBuilder::new("");
                kept.rewrite(policy, &mut entries);
                entries.build().execute(sql).await?;
            }
            None => put_policy(sql, known, policy).await?,
        },
        Change::DeletePolicy { key } => match policy_id(sql, key).await? {
            Some(id) => {
                known.forget(key);
                query("DELETE FROM policy WHERE id = ?").bind(id).execute(sql).await?;
            }
            None => return Err(Failure::Refused(format!("there is no policy {key}"))),
        },
        Change::SetServer { address, up } => {
            let address = address.to_string();
            query("DELETE FROM server WHERE address = ?").bind(&address).execute(&mut *sql).await?;
            query("INSERT INTO server (address, up) VALUES (?, ?)")
                .bind(&address)
                .bind(*up)
                .execute(sql)
                .await?;
        }
        Change::Imported { path, digest } => {
            query("DELETE FROM import WHERE path = ?").bind(path).execute(&mut *sql).await?;
            query("INSERT INTO import (path, digest) VALUES (?, ?)")
                .bind(path)
                .bind(digest)
                .execute(sql)
                .await?;
        }
    }
    Ok(())
}

/// Makes the commit that is only new entries of one policy and becomes `generation`: all of it as a single text, which
/// takes a single turn of the thread that SQLite runs on.
///
/// # Errors
/// A refusal also where the current generation is not the one before, or the tables are not as they are known to be.
pub(crate) async fn commit_entries(
    sql: &mut SqliteConnection,
    kept: &mut Kept,
    policy: &Arc<Policy>,
    generation: i64,
    at: i64,
) -> Result<(), Failure> {
    let mut text = QueryBuilder::<Sqlite>::new("BEGIN IMMEDIATE; ");
    kept.rewrite(policy, &mut text);
    text.push("INSERT INTO generation (number, at, what) VALUES (").push_bind(generation);
    // A generation needs a time, so that there is none after another than the last.
    text.push(", CASE (SELECT max(number) FROM generation) WHEN ").push_bind(generation - 1);
    text.push(" THEN ").push_bind(at).push(" END, ");
    text.push_bind(describe(&[Change::PutPolicy(policy.clone())])).push("); COMMIT");
    text.build().execute(sql).await?;
    Ok(())
}

/// Whether the commit that becomes this generation is to forget others, which [`commit_entries`] does not.
pub(crate) fn is_forgetful(generation: i64) -> bool {
    generation % FORGETFUL == 0
}

/// Records the generation that the commit becomes, forgets the oldest, and commits.
pub(crate) async fn record_and_commit(
    sql: &mut SqliteConnection,
    generation: i64,
    at: i64,
    changes: &[Change],
) -> Result<(), sqlx::Error> {
    query(
        "INSERT INTO generation (number, at, what) VALUES (?, ?, ?); DELETE FROM generation WHERE number <= ?; COMMIT",
    )
    .bind(generation)
        .bind(at)
        .bind(describe(changes))
        .bind(generation - GENERATIONS_KEPT)
        .execute(sql)
        .await?;
    Ok(())
}

async fn add_region(sql: &mut SqliteConnection, id: u32, name: &str) -> Result<(), Failure> {
    let last: i64 = query_scalar("SELECT coalesce(max(id), 0) FROM region").fetch_one(&mut *sql).await?;
    if i64::from(id) <= last {
        let next = last + 1;
        return Err(Failure::Refused(format!("region id {id} is or was in use; the next one is {next}")));
    }
    if region_id(sql, name).await?.is_some() {
        return Err(Failure::Refused(format!("there already is a region '{name}'")));
    }
    query("INSERT INTO region (id, name) VALUES (?, ?)").bind(i64::from(id)).bind(name).execute(sql).await?;
    Ok(())
}

async fn remove_region(sql: &mut SqliteConnection, generation: i64, id: u32) -> Result<(), Failure> {
    let done = query("UPDATE region SET removed_in = ? WHERE id = ? AND removed_in IS NULL")
        .bind(generation)
        .bind(i64::from(id))
        .execute(&mut *sql)
        .await?;
    there_was(done.rows_affected(), || format!("there is no region {id}"))?;
    query("DELETE FROM policy_row WHERE region_id = ?").bind(i64::from(id)).execute(sql).await?;
    Ok(())
}

async fn put_policy(
    sql: &mut SqliteConnection,
    known: &mut Known,
    policy: &Arc<Policy>,
) -> Result<(), Failure> {
    let Some(key) = policy.names.first() else {
        return Err(Failure::Refused("a policy needs a name".into()));
    };
    let when_all_down = match policy.when_all_down {
        WhenAllDown::Answer => "answer",
        WhenAllDown::Empty => "empty",
    };
    let order = match policy.order {
        Order::Weighted => "weighted",
        Order::Fixed => "fixed",
        Order::Rotate => "rotate",
        Order::Nearest => "nearest",
    };
    let Stored { policy: id, regions } = stored(sql, key, policy).await?;
    let cells = cells(policy, &regions)?;
    for server in &policy.servers {
        finite(server.default)?;
    }
    // What stands in one text takes one turn of the thread that SQLite runs on: that, and not SQL, is most of what a
    // small policy costs.
    let mut joined = Joined::default();
    let id = match id {
        Some(id) => {
            joined.sql.push("DELETE FROM policy_name WHERE policy_id = ").push_bind(id);
            joined.sql.push("; DELETE FROM policy_server WHERE policy_id = ").push_bind(id);
            joined.sql.push("; UPDATE policy SET answers = ").push_bind(policy.answers);
            joined.sql.push(r#", "order" = "#).push_bind(order);
            joined.sql.push(", when_all_down = ").push_bind(when_all_down);
            joined.sql.push(r#", "partition" = "#).push_bind(policy.partition.clone());
            joined.sql.push(" WHERE id = ").push_bind(id);
            joined.rows = 1;
            id
        }
        None => query_scalar(
            r#"INSERT INTO policy (answers, "order", when_all_down, "partition") VALUES (?, ?, ?, ?) RETURNING id"#,
        )
        .bind(policy.answers)
        .bind(order)
        .bind(when_all_down)
        .bind(&policy.partition)
        .fetch_one(&mut *sql)
        .await?,
    };
    match insert(sql, &mut joined, id, policy, &cells).await {
        // Which of them it was is not worth asking for before.
        Err(sqlx::Error::Database(error)) if is_name_taken(&*error) => {
            return Err(Failure::Refused(taken(sql, id, &policy.names).await?));
        }
        done => done?,
    }
    known.learn(id, policy, &cells);
    Ok(())
}

/// Statements that go to the database together, while they are small.
struct Joined {
    sql: QueryBuilder<Sqlite>,
    /// How many rows they insert; 1 for statements that insert none.
    rows: usize,
}

impl Default for Joined {
    fn default() -> Self {
        Joined { sql: QueryBuilder::new(""), rows: 0 }
    }
}

impl Joined {
    /// Begins another statement that inserts so many rows; what does not fit beside it is executed first.
    async fn begin(
        &mut self,
        sql: &mut SqliteConnection,
        rows: usize,
        text: &str,
    ) -> Result<(), sqlx::Error> {
        if self.rows + rows > ROWS_PER_STATEMENT {
            self.execute(sql).await?;
        }
        if self.rows > 0 {
            self.sql.push("; ");
        }
        self.sql.push(text);
        self.rows += rows;
        Ok(())
    }

    /// Executes what is there.
    async fn execute(&mut self, sql: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let Joined { sql: mut joined, rows } = std::mem::take(self);
        if rows > 0 {
            joined.build().execute(sql).await?;
        }
        Ok(())
    }
}

/// Inserts names, servers and cells of a policy.
async fn insert(
    sql: &mut SqliteConnection,
    joined: &mut Joined,
    id: i64,
    policy: &Policy,
    cells: &[(IpAddr, i64, Entry)],
) -> Result<(), sqlx::Error> {
    for (chunk, names) in policy.names.chunks(ROWS_PER_STATEMENT).enumerate() {
        let first = position(chunk * ROWS_PER_STATEMENT);
        joined.begin(sql, names.len(), "INSERT INTO policy_name (policy_id, position, name) ").await?;
        joined.sql.push_values((first..).zip(names), |mut row, (position, name)| {
            row.push_bind(id).push_bind(position).push_bind(name.clone());
        });
    }
    for (chunk, servers) in policy.servers.chunks(ROWS_PER_STATEMENT).enumerate() {
        let first = position(chunk * ROWS_PER_STATEMENT);
        let text = "INSERT INTO policy_server (policy_id, position, address, probe, probability, ttl) ";
        joined.begin(sql, servers.len(), text).await?;
        joined.sql.push_values((first..).zip(servers), |mut row, (position, server)| {
            row.push_bind(id).push_bind(position).push_bind(server.address.to_string());
            row.push_bind(server.probe.clone());
            row.push_bind(server.default.probability).push_bind(server.default.ttl);
        });
    }
    for cells in cells.chunks(ROWS_PER_STATEMENT) {
        let text = "INSERT INTO policy_row (policy_id, address, region_id, probability, ttl) ";
        joined.begin(sql, cells.len(), text).await?;
        joined.sql.push_values(cells, |mut row, (address, region, entry)| {
            row.push_bind(id).push_bind(address.to_string()).push_bind(*region);
            row.push_bind(entry.probability).push_bind(entry.ttl);
        });
    }
    joined.execute(sql).await
}

/// The entries of a policy's servers by region id.
fn cells(policy: &Policy, regions: &BTreeMap<String, i64>) -> Result<Vec<(IpAddr, i64, Entry)>, Failure> {
    let mut cells = Vec::new();
    for server in &policy.servers {
        for (name, entry) in &server.regions {
            let Some(region) = regions.get(name) else {
                return Err(Failure::Refused(format!("there is no region '{name}'")));
            };
            finite(*entry)?;
            cells.push((server.address, *region, *entry));
        }
    }
    Ok(cells)
}

/// Whether an insertion failed for a name that there is already.
fn is_name_taken(error: &dyn DatabaseError) -> bool {
    error.is_unique_violation() && error.message().contains("policy_name")
}

/// Says which of `names` could not be given to a policy. What it inserted of them before is its own.
async fn taken(sql: &mut SqliteConnection, id: i64, names: &[String]) -> Result<String, sqlx::Error> {
    for name in names {
        let other: Option<i64> = query_scalar("SELECT policy_id FROM policy_name WHERE name = ?")
            .bind(name)
            .fetch_optional(&mut *sql)
            .await?;
        if other.is_some_and(|other| other != id) {
            return Ok(format!("the name {name} belongs to another policy"));
        }
    }
    Ok("a name occurs twice in the policy".into())
}

async fn policy_id(sql: &mut SqliteConnection, key: &str) -> Result<Option<i64>, sqlx::Error> {
    query_scalar("SELECT policy_id FROM policy_name WHERE name = ? AND position = 0")
        .bind(key)
        .fetch_optional(sql)
        .await
}

/// What a policy refers to, and is, in the tables.
struct Stored {
    /// The id of the policy with this key; `None` where there is none yet.
    policy: Option<i64>,
    /// The ids of those of the policy's regions that are in use.
    regions: BTreeMap<String, i64>,
}

/// Looks up the policy of `key` and the regions that `policy` names. What is put a thousand times a second should not
/// cost a statement for each of them.
async fn stored(sql: &mut SqliteConnection, key: &str, policy: &Policy) -> Result<Stored, sqlx::Error> {
    let names: BTreeSet<&String> = policy.servers.iter().flat_map(|server| server.regions.keys()).collect();
    let names: Vec<&String> = names.into_iter().collect();
    let mut stored = Stored { policy: None, regions: BTreeMap::new() };
    // Without any region there is still the policy to look for.
    let chunks = names.chunks(ROWS_PER_STATEMENT).chain(names.is_empty().then_some(&[][..]));
    for names in chunks {
        let mut select = QueryBuilder::<Sqlite>::new("SELECT NULL, policy_id FROM policy_name WHERE name = ");
        select.push_bind(key);
        select.push(
            " AND position = 0 UNION ALL SELECT name, id FROM region WHERE removed_in IS NULL AND name IN (",
        );
        let mut list = select.separated(", ");
        for name in names {
            list.push_bind(*name);
        }
        select.push(")");
        let found: Vec<(Option<String>, i64)> = select.build_query_as().fetch_all(&mut *sql).await?;
        for (region, id) in found {
            match region {
                Some(name) => {
                    stored.regions.insert(name, id);
                }
                None => stored.policy = Some(id),
            }
        }
    }
    Ok(stored)
}

async fn region_id(sql: &mut SqliteConnection, name: &str) -> Result<Option<i64>, sqlx::Error> {
    query_scalar("SELECT id FROM region WHERE name = ? AND removed_in IS NULL")
        .bind(name)
        .fetch_optional(sql)
        .await
}

/// Refuses what not all tables' constraints would see: SQLite takes "not a number" for "not given".
pub(crate) fn finite(entry: Entry) -> Result<(), Failure> {
    match entry.probability {
        Some(probability) if !probability.is_finite() => {
            Err(Failure::Refused(format!("a probability of {probability}")))
        }
        _ => Ok(()),
    }
}

pub(crate) fn there_was(rows: u64, else_say: impl FnOnce() -> String) -> Result<(), Failure> {
    if rows == 0 { Err(Failure::Refused(else_say())) } else { Ok(()) }
}

fn packed(text: &str) -> Result<Vec<u8>, Failure> {
    pack(text, TEXT_MAX)
        .ok_or_else(|| Failure::Refused(format!("a text of {} bytes is above {TEXT_MAX}", text.len())))
}

/// A place in a list as the tables hold it.
fn position(index: usize) -> i64 {
    i64::try_from(index).expect("no list in memory is longer than 2^63")
}
