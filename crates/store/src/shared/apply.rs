//! A change in SQL, in the words that PostgreSQL and MariaDB share.
//!
//! A statement that fails ends a transaction of PostgreSQL, so that what can be refused for a reason of ours is asked
//! for first; what the tables' constraints refuse is the last of it.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use api::{Entry, Policy};

use super::sql::{Sql, Value, values};
use crate::apply::{finite, there_was};
use crate::change::Change;
use crate::text::TEXT_MAX;

/// How many rows one statement inserts or looks for: six values each stay far below the 65,535 that both databases
/// bind, and more would gain nothing.
pub(super) const ROWS_PER_STATEMENT: usize = 500;

/// Why a change was not applied.
pub(super) type Failure = crate::apply::Failure<sqlx::Error>;

/// A table that a change is of, and the zone or partition in it.
pub(super) type Changed<'c> = (&'static str, Option<&'c str>);

/// Applies one change of the commit that becomes `generation`; returns what it changed.
pub(super) async fn apply<'c>(
    sql: &mut Sql,
    generation: i64,
    change: &'c Change,
) -> Result<Vec<Changed<'c>>, Failure> {
    match change {
        Change::PutZone { origin, text } => {
            sql.run("DELETE FROM zone WHERE origin = ?", values![origin.as_str()]).await?;
            let row = values![origin.as_str(), bounded(text)?];
            sql.run("INSERT INTO zone (origin, text) VALUES (?, ?)", row).await?;
            Ok(vec![("zone", Some(origin.as_str()))])
        }
        Change::DeleteZone { origin } => {
            let gone = sql.run("DELETE FROM zone WHERE origin = ?", values![origin.as_str()]).await?;
            there_was(gone > 0, || format!("there is no zone {origin}"))?;
            Ok(vec![("zone", Some(origin.as_str()))])
        }
        Change::AddRegion { id, name } => {
            add_region(sql, i64::from(*id), name).await?;
            Ok(vec![("region", None)])
        }
        Change::RemoveRegion { id } => {
            let id = i64::from(*id);
            let text = "UPDATE region SET removed_in = ? WHERE id = ? AND removed_in IS NULL";
            there_was(sql.run(text, values![generation, id]).await? > 0, || {
                format!("there is no region {id}")
            })?;
            sql.run("DELETE FROM policy_row WHERE region_id = ?", values![id]).await?;
            Ok(vec![("region", None), ("policy_row", None)])
        }
        Change::PutPartition { name, text } => {
            sql.run(r#"DELETE FROM "partition" WHERE name = ?"#, values![name.as_str()]).await?;
            let row = values![name.as_str(), bounded(text)?];
            sql.run(r#"INSERT INTO "partition" (name, text) VALUES (?, ?)"#, row).await?;
            Ok(vec![("partition", Some(name.as_str()))])
        }
        Change::DeletePartition { name } => {
            let gone = sql.run(r#"DELETE FROM "partition" WHERE name = ?"#, values![name.as_str()]).await?;
            there_was(gone > 0, || format!("there is no partition {name}"))?;
            Ok(vec![("partition", Some(name.as_str()))])
        }
        Change::PutPolicy(policy) => {
            put_policy(sql, policy).await?;
            Ok(vec![("policy", None)])
        }
        Change::DeletePolicy { key } => match policy_id(sql, key).await? {
            Some(id) => {
                sql.run("DELETE FROM policy WHERE id = ?", values![id]).await?;
                Ok(vec![("policy", None)])
            }
            None => Err(Failure::Refused(format!("there is no policy {key}"))),
        },
        Change::SetServer { address, up } => {
            let address = address.to_string();
            sql.run("DELETE FROM server WHERE address = ?", values![address.as_str()]).await?;
            let row = values![address, i64::from(*up)];
            sql.run("INSERT INTO server (address, up) VALUES (?, ?)", row).await?;
            Ok(vec![("server", None)])
        }
        Change::Imported { path, digest } => {
            sql.run("DELETE FROM import WHERE path = ?", values![path.as_str()]).await?;
            let row = values![path.as_str(), digest.as_str()];
            sql.run("INSERT INTO import (path, digest) VALUES (?, ?)", row).await?;
            // Nothing that is served.
            Ok(vec![])
        }
    }
}

async fn add_region(sql: &mut Sql, id: i64, name: &str) -> Result<(), Failure> {
    let (last,): (i64,) = sql.row(crate::contents::LAST_REGION, values![]).await?;
    if id <= last {
        let next = last + 1;
        return Err(Failure::Refused(format!("region id {id} is or was in use; the next one is {next}")));
    }
    let text = "SELECT id FROM region WHERE name = ? AND removed_in IS NULL";
    let same: Vec<(i64,)> = sql.rows(text, values![name]).await?;
    if !same.is_empty() {
        return Err(Failure::Refused(format!("there already is a region '{name}'")));
    }
    sql.run("INSERT INTO region (id, name) VALUES (?, ?)", values![id, name]).await?;
    Ok(())
}

async fn put_policy(sql: &mut Sql, policy: &Policy) -> Result<(), Failure> {
    let Some(key) = policy.names.first() else {
        return Err(Failure::Refused("a policy needs a name".into()));
    };
    let regions = region_ids(sql, policy).await?;
    let mut addresses = HashSet::new();
    for server in &policy.servers {
        // MariaDB would not say of which table a key is.
        if !addresses.insert(server.address) {
            let what = format!("{} would be twice in policy_server", server.address);
            return Err(Failure::Refused(what));
        }
        finite(server.default)?;
        for (name, entry) in &server.regions {
            if !regions.contains_key(name) {
                return Err(Failure::Refused(format!("there is no region '{name}'")));
            }
            finite(*entry)?;
        }
    }
    let old = policy_id(sql, key).await?;
    check_names(sql, old, &policy.names).await?;
    let (order, when_all_down) = (policy.order.word(), policy.when_all_down.word());
    let mut head = values![i64::from(policy.answers), order, when_all_down, policy.partition.as_str()];
    let id = match old {
        Some(id) => {
            sql.run("DELETE FROM policy_name WHERE policy_id = ?", values![id]).await?;
            sql.run("DELETE FROM policy_server WHERE policy_id = ?", values![id]).await?;
            head.push(id.into());
            let text = r#"UPDATE policy SET answers = ?, "order" = ?, when_all_down = ?, "partition" = ? WHERE id = ?"#;
            sql.run(text, head).await?;
            id
        }
        None => {
            let text = r#"INSERT INTO policy (answers, "order", when_all_down, "partition") VALUES (?, ?, ?, ?) RETURNING id"#;
            let (id,): (i64,) = sql.row(text, head).await?;
            id
        }
    };
    let mut names = Vec::with_capacity(policy.names.len());
    for (position, name) in (0_i64..).zip(&policy.names) {
        names.push(values![id, position, name.as_str()]);
    }
    let (mut servers, mut cells) = (Vec::with_capacity(policy.servers.len()), Vec::new());
    for (position, server) in (0_i64..).zip(&policy.servers) {
        let (address, Entry { probability, ttl }) = (server.address.to_string(), server.default);
        for (name, entry) in &server.regions {
            cells.push(values![id, address.as_str(), regions[name], entry.probability, entry.ttl]);
        }
        servers.push(values![id, position, address, server.probe.clone(), probability, ttl]);
    }
    insert(sql, "policy_name (policy_id, position, name)", &names).await?;
    let columns = "policy_server (policy_id, position, address, probe, probability, ttl)";
    insert(sql, columns, &servers).await?;
    insert(sql, "policy_row (policy_id, address, region_id, probability, ttl)", &cells).await?;
    Ok(())
}

/// Refuses names that another policy than `policy` has, or that occur twice.
async fn check_names(sql: &mut Sql, policy: Option<i64>, names: &[String]) -> Result<(), Failure> {
    let mut seen = HashSet::new();
    for chunk in names.chunks(ROWS_PER_STATEMENT) {
        let mut values: Vec<Value> = chunk.iter().map(|name| name.as_str().into()).collect();
        values.push(policy.unwrap_or(0).into());
        let list = marks(chunk.len());
        let text = format!("SELECT name FROM policy_name WHERE name IN ({list}) AND policy_id <> ?");
        let taken: Vec<(String,)> = sql.rows(&text, values).await?;
        if let Some((name,)) = taken.first() {
            return Err(Failure::Refused(format!("the name {name} belongs to another policy")));
        }
        if !chunk.iter().all(|name| seen.insert(name)) {
            return Err(Failure::Refused("a name occurs twice in the policy".into()));
        }
    }
    Ok(())
}

/// Inserts rows into a table, whose columns stand behind its name.
pub(super) async fn insert(sql: &mut Sql, table: &str, rows: &[Vec<Value>]) -> Result<(), sqlx::Error> {
    for chunk in rows.chunks(ROWS_PER_STATEMENT) {
        let row = format!("({})", marks(chunk[0].len()));
        let text = format!("INSERT INTO {table} VALUES {}", vec![row; chunk.len()].join(", "));
        sql.run(&text, chunk.concat()).await?;
    }
    Ok(())
}

async fn policy_id(sql: &mut Sql, key: &str) -> Result<Option<i64>, sqlx::Error> {
    let text = "SELECT policy_id FROM policy_name WHERE name = ? AND position = 0";
    let found: Vec<(i64,)> = sql.rows(text, values![key]).await?;
    Ok(found.first().map(|(id,)| *id))
}

/// The ids of those regions of a policy that are in use.
async fn region_ids(sql: &mut Sql, policy: &Policy) -> Result<BTreeMap<String, i64>, sqlx::Error> {
    let names: BTreeSet<&String> = policy.servers.iter().flat_map(|server| server.regions.keys()).collect();
    let names: Vec<&String> = names.into_iter().collect();
    let mut ids = BTreeMap::new();
    for names in names.chunks(ROWS_PER_STATEMENT) {
        let list = marks(names.len());
        let text = format!("SELECT name, id FROM region WHERE removed_in IS NULL AND name IN ({list})");
        let values = names.iter().map(|name| name.as_str().into()).collect();
        ids.extend(sql.rows::<(String, i64)>(&text, values).await?);
    }
    Ok(ids)
}

/// So many `?`, with commas between them.
pub(super) fn marks(count: usize) -> String {
    vec!["?"; count].join(", ")
}

fn bounded(text: &str) -> Result<&str, Failure> {
    if text.len() > TEXT_MAX {
        return Err(Failure::Refused(format!("a text of {} bytes is above {TEXT_MAX}", text.len())));
    }
    Ok(text)
}
