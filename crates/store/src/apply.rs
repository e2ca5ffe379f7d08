//! A change in SQL.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Entry, Policy, Target};
use rusqlite::{Connection, OptionalExtension, ffi};

use crate::change::{Change, describe};
use crate::contents::LAST_REGION;
use crate::known::Known;
use crate::owners;
use crate::refused::{Failure, Refusal, finite, there_was};
use crate::text::{TEXT_MAX, pack};

/// How many generations the store remembers the description of, at least: hours of a steady update per second, and
/// a few megabytes at most.
pub const GENERATIONS_KEPT: i64 = 10_000;

/// One generation of so many forgets those that are too many: to do so each time would write one page more each time.
pub(crate) const FORGETFUL: i64 = 64;

/// Whoever confirmed a zone has said nothing of another version.
const UNCONFIRM: &str = "DELETE FROM confirmed WHERE origin = ?";

/// What comes of a statement of a change.
type Applied<T = ()> = Result<T, Failure<rusqlite::Error>>;

/// Applies one change of the commit that becomes `generation`, with what is `known` of the tables.
pub(crate) fn apply(sql: &Connection, known: &mut Known, generation: i64, change: &Change) -> Applied {
    let run = |text: &str, values: &[&dyn rusqlite::ToSql]| sql.prepare_cached(text)?.execute(values);
    match change {
        Change::PutZone { origin, text } => {
            // Deleting first is the one form of "insert or replace" that all databases share.
            run("DELETE FROM zone WHERE origin = ?", &[origin])?;
            run("INSERT INTO zone (origin, text) VALUES (?, ?)", &[origin, &packed(text)?])?;
            run(UNCONFIRM, &[origin])?;
        }
        Change::ChangeZone { origin, owners } => {
            owners::change(sql, origin, owners)?;
            run(UNCONFIRM, &[origin])?;
        }
        Change::DeleteZone { origin } => {
            let gone = run("DELETE FROM zone WHERE origin = ?", &[origin])?;
            there_was(gone > 0, || format!("there is no zone {origin}"))?;
            run(UNCONFIRM, &[origin])?;
        }
        Change::AddRegion { id, name } => add_region(sql, *id, name)?,
        Change::RemoveRegion { id } => {
            known.forget_all();
            let text = "UPDATE region SET removed_in = ? WHERE id = ? AND removed_in IS NULL";
            let removed = run(text, &[&generation, id])?;
            there_was(removed > 0, || format!("there is no region {id}"))?;
            run("DELETE FROM policy_row WHERE region_id = ?", &[id])?;
        }
        Change::PutPartition { name, text } => {
            run(r#"DELETE FROM "partition" WHERE name = ?"#, &[name])?;
            run(r#"INSERT INTO "partition" (name, text) VALUES (?, ?)"#, &[name, &packed(text)?])?;
        }
        Change::DeletePartition { name } => {
            let gone = run(r#"DELETE FROM "partition" WHERE name = ?"#, &[name])?;
            there_was(gone > 0, || format!("there is no partition {name}"))?;
        }
        Change::PutPolicy(policy) => match known.alike(policy) {
            Some(kept) => kept.rewrite(policy, sql)?,
            None => put_policy(sql, known, policy)?,
        },
        Change::DeletePolicy { key } => {
            let Some(id) = policy_id(sql, key)? else {
                return Err(Failure::Refused(format!("there is no policy {key}")));
            };
            known.forget(key);
            run("DELETE FROM policy WHERE id = ?", &[&id])?;
        }
        Change::SetServer { server, up } => {
            let address = server.to_string();
            run("DELETE FROM server WHERE address = ?", &[&address])?;
            run("INSERT INTO server (address, up) VALUES (?, ?)", &[&address, up])?;
        }
        Change::Imported { path, digest } => {
            run("DELETE FROM import WHERE path = ?", &[path])?;
            run("INSERT INTO import (path, digest) VALUES (?, ?)", &[path, digest])?;
        }
        Change::ForgetImport { path } => {
            let gone = run("DELETE FROM import WHERE path = ?", &[path])?;
            there_was(gone > 0, || format!("there is no import {path}"))?;
        }
    }
    Ok(())
}

/// Records the generation that the commit becomes, and forgets the oldest now and then.
pub(crate) fn record(sql: &Connection, generation: i64, at: i64, changes: &[Change]) -> rusqlite::Result<()> {
    sql.prepare_cached("INSERT INTO generation (number, at, what) VALUES (?, ?, ?)")?.execute((
        generation,
        at,
        describe(changes),
    ))?;
    if generation % FORGETFUL == 0 {
        let last = generation - GENERATIONS_KEPT;
        sql.prepare_cached("DELETE FROM generation WHERE number <= ?")?.execute([last])?;
    }
    Ok(())
}

fn add_region(sql: &Connection, id: u32, name: &str) -> Applied {
    let last: i64 = sql.query_row(LAST_REGION, [], |row| row.get(0))?;
    if i64::from(id) <= last {
        let next = last + 1;
        return Err(Failure::Refused(format!("region id {id} is or was in use; the next one is {next}")));
    }
    if region_id(sql, name)?.is_some() {
        return Err(Failure::Refused(format!("there already is a region '{name}'")));
    }
    sql.prepare_cached("INSERT INTO region (id, name) VALUES (?, ?)")?.execute((id, name))?;
    Ok(())
}

fn put_policy(sql: &Connection, known: &mut Known, policy: &Arc<Policy>) -> Applied {
    let Some(key) = policy.names.first() else {
        return Err(Failure::Refused("a policy needs a name".into()));
    };
    let cells = cells(policy, &region_ids(sql, policy)?)?;
    for server in &policy.servers {
        finite(server.default)?;
    }
    let id = put_head(sql, key, policy)?;
    match insert(sql, id, policy, &cells) {
        // Which of them it was is not worth asking for before.
        Err(error) if is_name_taken(&error) => {
            return Err(Failure::Refused(taken(sql, id, &policy.names)?));
        }
        done => done?,
    }
    known.learn(id, policy, &cells);
    Ok(())
}

/// Writes what a policy has one of, and takes away what it had several of; returns its id.
fn put_head(sql: &Connection, key: &str, policy: &Policy) -> Applied<i64> {
    let (order, when_all_down) = (policy.order.word(), policy.when_all_down.word());
    let head = (policy.answers, order, when_all_down, &policy.partition);
    let Some(id) = policy_id(sql, key)? else {
        let text = r#"INSERT INTO policy (answers, "order", when_all_down, "partition") VALUES (?, ?, ?, ?)"#;
        return Ok(sql.prepare_cached(text)?.insert(head)?);
    };
    sql.prepare_cached("DELETE FROM policy_name WHERE policy_id = ?")?.execute([id])?;
    // Their cells go with them.
    sql.prepare_cached("DELETE FROM policy_server WHERE policy_id = ?")?.execute([id])?;
    let text =
        r#"UPDATE policy SET answers = ?, "order" = ?, when_all_down = ?, "partition" = ? WHERE id = ?"#;
    let (answers, order, when_all_down, partition) = head;
    sql.prepare_cached(text)?.execute((answers, order, when_all_down, partition, id))?;
    Ok(id)
}

/// Inserts names, servers and cells of a policy.
fn insert(
    sql: &Connection,
    id: i64,
    policy: &Policy,
    cells: &[(Target, i64, Entry)],
) -> rusqlite::Result<()> {
    let text = "INSERT INTO policy_name (policy_id, position, name) VALUES (?, ?, ?)";
    let mut statement = sql.prepare_cached(text)?;
    for (position, name) in (0_i64..).zip(&policy.names) {
        statement.execute((id, position, name))?;
    }
    let text = "INSERT INTO policy_server (policy_id, position, address, probe, probability, ttl) \
                VALUES (?, ?, ?, ?, ?, ?)";
    let mut statement = sql.prepare_cached(text)?;
    for (position, server) in (0_i64..).zip(&policy.servers) {
        let Entry { probability, ttl } = server.default;
        let address = server.target.to_string();
        statement.execute((id, position, address, &server.probe, probability, ttl))?;
    }
    let text = "INSERT INTO policy_row (policy_id, address, region_id, probability, ttl) \
                VALUES (?, ?, ?, ?, ?)";
    let mut statement = sql.prepare_cached(text)?;
    for (address, region, Entry { probability, ttl }) in cells {
        statement.execute((id, address.to_string(), region, probability, ttl))?;
    }
    Ok(())
}

/// The entries of a policy's servers by region id.
fn cells(policy: &Policy, regions: &BTreeMap<&str, i64>) -> Result<Vec<(Target, i64, Entry)>, Refusal> {
    let mut cells = Vec::new();
    for server in &policy.servers {
        for (name, entry) in &server.regions {
            let Some(region) = regions.get(name.as_str()) else {
                return Err(Refusal(format!("there is no region '{name}'")));
            };
            finite(*entry)?;
            cells.push((server.target.clone(), *region, *entry));
        }
    }
    Ok(cells)
}

/// Whether an insertion failed for a name that there is already.
fn is_name_taken(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    let is_key = matches!(code, Some(ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY));
    is_key && error.to_string().contains("policy_name")
}

/// Says which of `names` could not be given to a policy. What it inserted of them before is its own.
fn taken(sql: &Connection, id: i64, names: &[String]) -> rusqlite::Result<String> {
    let mut owner = sql.prepare_cached("SELECT policy_id FROM policy_name WHERE name = ?")?;
    for name in names {
        let other: Option<i64> = owner.query_row([name], |row| row.get(0)).optional()?;
        if other.is_some_and(|other| other != id) {
            return Ok(format!("the name {name} belongs to another policy"));
        }
    }
    Ok("a name occurs twice in the policy".into())
}

fn policy_id(sql: &Connection, key: &str) -> rusqlite::Result<Option<i64>> {
    let mut id = sql.prepare_cached("SELECT policy_id FROM policy_name WHERE name = ? AND position = 0")?;
    id.query_row([key], |row| row.get(0)).optional()
}

/// The ids of those of a policy's regions that are in use.
fn region_ids<'p>(sql: &Connection, policy: &'p Policy) -> rusqlite::Result<BTreeMap<&'p str, i64>> {
    let mut ids = BTreeMap::new();
    for name in policy.servers.iter().flat_map(|server| server.regions.keys()) {
        if !ids.contains_key(name.as_str())
            && let Some(id) = region_id(sql, name)?
        {
            ids.insert(name.as_str(), id);
        }
    }
    Ok(ids)
}

fn region_id(sql: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    let mut id = sql.prepare_cached("SELECT id FROM region WHERE name = ? AND removed_in IS NULL")?;
    id.query_row([name], |row| row.get(0)).optional()
}

fn packed(text: &str) -> Result<Vec<u8>, Refusal> {
    pack(text, TEXT_MAX).ok_or_else(|| Refusal(format!("a text of {} bytes is above {TEXT_MAX}", text.len())))
}
