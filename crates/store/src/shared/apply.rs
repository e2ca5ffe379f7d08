//! Changes in SQL, in the words that PostgreSQL and MariaDB share.
//!
//! A statement is a journey to the database and back, and a commit may have thousands of changes: so those of one
//! kind are applied together, as many as a batch has. One that is refused is undone and tried again by halves, down to
//! the change that is meant; that also lets through what is right only one after the other.
//!
//! A statement that fails ends a transaction of PostgreSQL, so that what can be refused for a reason of ours is asked
//! for first; what the tables' constraints refuse is the last of it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::mem::discriminant;

use api::{Entry, Policy};

use super::sql::{Sql, Value, values};
use crate::change::Change;
use crate::contents::LAST_REGION;
use crate::error::is_refusal;
use crate::refused::{finite, there_was};
use crate::text::{TEXT_MAX, with_owners};

/// How many rows one statement inserts or looks for, and how many changes a batch has: six values each stay far below
/// the 65,535 that both databases bind, and more would gain little.
pub(super) const ROWS_PER_STATEMENT: usize = 500;

/// About how many octets a batch, and a statement of several rows, has at most: far below the packet of 16 MiB that
/// MariaDB takes unless it was told otherwise, and long enough that their number hardly counts.
const OCTETS_PER_STATEMENT: usize = 512 << 10;

/// About how many octets a row has beside its texts.
const OCTETS_PER_ROW: usize = 64;

/// Why changes were not applied.
type Failure = crate::refused::Failure<sqlx::Error>;

/// Why those of a commit were not.
pub(super) enum Stopped {
    /// The database failed.
    Sql(sqlx::Error),
    /// Which is the first that is refused, counted from 0, and why.
    Refused(usize, String),
}

impl From<sqlx::Error> for Stopped {
    fn from(error: sqlx::Error) -> Self {
        Stopped::Sql(error)
    }
}

/// A table that a change is of, and the zone or partition in it.
pub(super) type Changed<'c> = (&'static str, Option<&'c str>);

/// What a change changes of what is served.
pub(super) fn changed(change: &Change) -> Vec<Changed<'_>> {
    match change {
        Change::PutZone { origin, .. }
        | Change::ChangeZone { origin, .. }
        | Change::DeleteZone { origin } => {
            vec![("zone", Some(origin))]
        }
        Change::AddRegion { .. } => vec![("region", None)],
        Change::RemoveRegion { .. } => vec![("region", None), ("policy_row", None)],
        Change::PutPartition { name, .. } | Change::DeletePartition { name } => {
            vec![("partition", Some(name))]
        }
        Change::PutPolicy(_) | Change::DeletePolicy { .. } => vec![("policy", None)],
        Change::SetServer { .. } => vec![("server", None)],
        Change::Imported { .. } | Change::ForgetImport { .. } => vec![],
    }
}

/// Applies the changes of the commit that becomes `generation`. Where one is refused, the transaction is of no use
/// any more.
pub(super) async fn apply(sql: &mut Sql, generation: i64, changes: &[Change]) -> Result<(), Stopped> {
    let order = order(changes);
    let mut refused: Option<(usize, String)> = None;
    for mut run in order.chunk_by(|&a, &b| discriminant(&changes[a]) == discriminant(&changes[b])) {
        let mut most = ROWS_PER_STATEMENT;
        // The first one that is refused is told, so that none behind it is tried.
        while let Some(&first) = run.first()
            && refused.as_ref().is_none_or(|(index, _)| first < *index)
        {
            let count = batch(changes, run, most);
            let together: Vec<&Change> = run[..count].iter().map(|&index| &changes[index]).collect();
            match apply_together(sql, generation, &together, changes.len() > 1).await? {
                Ok(()) => {
                    run = &run[count..];
                    most = (most * 2).min(ROWS_PER_STATEMENT);
                }
                Err(_) if count > 1 => most = count / 2,
                Err(what) => {
                    refused = Some((first, what));
                    break;
                }
            }
        }
    }
    refused.map_or(Ok(()), |(index, what)| Err(Stopped::Refused(index, what)))
}

/// The order in which changes are applied: what is of other tables may come in another one, for an import alternates
/// between two.
fn order(changes: &[Change]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..changes.len()).collect();
    let regions_first = may_add_regions_first(changes);
    order.sort_by_key(|&index| match &changes[index] {
        Change::PutZone { .. } | Change::ChangeZone { .. } | Change::DeleteZone { .. } => 0,
        Change::PutPartition { .. } | Change::DeletePartition { .. } => 1,
        Change::SetServer { .. } => 2,
        Change::Imported { .. } | Change::ForgetImport { .. } => 3,
        Change::AddRegion { .. } if regions_first => 4,
        Change::AddRegion { .. }
        | Change::RemoveRegion { .. }
        | Change::PutPolicy(_)
        | Change::DeletePolicy { .. } => 5,
    });
    order
}

/// Whether it is the same to add regions before all that is done to policies: none is removed, whose name may come again,
/// and no policy has the name of one before that is added, for which it is refused.
fn may_add_regions_first(changes: &[Change]) -> bool {
    let mut named = HashSet::new();
    changes.iter().all(|change| match change {
        Change::RemoveRegion { .. } => false,
        Change::AddRegion { name, .. } => !named.contains(name),
        Change::PutPolicy(policy) => {
            named.extend(policy.servers.iter().flat_map(|server| server.regions.keys()));
            true
        }
        _ => true,
    })
}

/// How many changes at the beginning of a run are applied together: one at least, `most` at most.
fn batch(changes: &[Change], run: &[usize], most: usize) -> usize {
    let mut sum = 0;
    let fitting = run.iter().take(most).take_while(|&&index| {
        sum += octets(&changes[index]);
        sum <= OCTETS_PER_STATEMENT
    });
    fitting.count().max(1)
}

/// About how many octets a change has.
fn octets(change: &Change) -> usize {
    let texts = match change {
        Change::PutZone { text, .. } | Change::PutPartition { text, .. } => text.len(),
        Change::PutPolicy(policy) => {
            let names: usize = policy.names.iter().map(|name| OCTETS_PER_ROW + name.len()).sum();
            let rows: usize = policy.servers.iter().map(|server| 1 + server.regions.len()).sum();
            names + rows * OCTETS_PER_ROW
        }
        _ => 0,
    };
    OCTETS_PER_ROW + texts
}

/// Applies changes of one kind, all or none of them where the transaction `goes_on` after that; says why they are
/// refused together, where they are.
async fn apply_together(
    sql: &mut Sql,
    generation: i64,
    changes: &[&Change],
    goes_on: bool,
) -> Result<Result<(), String>, sqlx::Error> {
    if goes_on {
        sql.raw("SAVEPOINT batch").await?;
    }
    let refused = match apply_kind(sql, generation, changes).await {
        Ok(()) => None,
        Err(Failure::Refused(what)) => Some(what),
        Err(Failure::Sql(error)) if is_refusal(&error) => Some(match error.as_database_error() {
            Some(database) => database.message().to_owned(),
            None => error.to_string(),
        }),
        Err(Failure::Sql(error)) => return Err(error),
    };
    if goes_on {
        let undo = if refused.is_some() { "ROLLBACK TO SAVEPOINT batch; " } else { "" };
        // It is let go of, for PostgreSQL would keep each one.
        sql.raw(&format!("{undo}RELEASE SAVEPOINT batch")).await?;
    }
    Ok(refused.map_or(Ok(()), Err))
}

/// What of each change of one kind its statements need.
macro_rules! each {
    ($changes:expr, $kind:pat => $value:expr) => {
        $changes
            .iter()
            .filter_map(|change| match change {
                $kind => Some($value),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
}

/// Applies changes of one kind; where that fails, an unknown part of them. What is of others before it in the same
/// batch is refused here.
async fn apply_kind(sql: &mut Sql, generation: i64, changes: &[&Change]) -> Result<(), Failure> {
    match changes {
        [] => Ok(()),
        [Change::PutZone { .. }, ..] => {
            let rows =
                each!(changes, Change::PutZone { origin, text } => (origin.clone(), text.as_str().into()));
            unconfirm(sql, &each!(changes, Change::PutZone { origin, .. } => origin.as_str())).await?;
            put(sql, &ZONE, rows).await
        }
        [Change::ChangeZone { .. }, ..] => {
            let zones = each!(changes, Change::ChangeZone { origin, owners } => (origin.as_str(), owners));
            for (origin, owners) in zones {
                change_zone(sql, origin, owners).await?;
            }
            Ok(())
        }
        [Change::DeleteZone { .. }, ..] => {
            let origins = each!(changes, Change::DeleteZone { origin } => origin.as_str());
            unconfirm(sql, &origins).await?;
            delete(sql, &ZONE, &origins).await
        }
        [Change::AddRegion { .. }, ..] => {
            let regions = each!(changes, Change::AddRegion { id, name } => (i64::from(*id), name.as_str()));
            add_regions(sql, &regions).await
        }
        [Change::RemoveRegion { .. }, ..] => {
            let ids = each!(changes, Change::RemoveRegion { id } => i64::from(*id));
            remove_regions(sql, generation, &ids).await
        }
        [Change::PutPartition { .. }, ..] => {
            let rows =
                each!(changes, Change::PutPartition { name, text } => (name.clone(), text.as_str().into()));
            put(sql, &PARTITION, rows).await
        }
        [Change::DeletePartition { .. }, ..] => {
            delete(sql, &PARTITION, &each!(changes, Change::DeletePartition { name } => name.as_str())).await
        }
        [Change::PutPolicy(_), ..] => {
            put_policies(sql, &each!(changes, Change::PutPolicy(policy) => &**policy)).await
        }
        [Change::DeletePolicy { .. }, ..] => {
            delete_policies(sql, &each!(changes, Change::DeletePolicy { key } => key.as_str())).await
        }
        [Change::SetServer { .. }, ..] => {
            let rows = each!(
                changes,
                Change::SetServer { server, up } => (server.to_string(), i64::from(*up).into())
            );
            put(sql, &SERVER, rows).await
        }
        [Change::Imported { .. }, ..] => {
            let rows =
                each!(changes, Change::Imported { path, digest } => (path.clone(), digest.as_str().into()));
            put(sql, &IMPORT, rows).await
        }
        [Change::ForgetImport { .. }, ..] => {
            delete(sql, &IMPORT, &each!(changes, Change::ForgetImport { path } => path.as_str())).await
        }
    }
}

/// A table of a key and a value.
struct Keyed {
    /// Its name, as people read it.
    word: &'static str,
    /// Its name in SQL.
    table: &'static str,
    key: &'static str,
    value: &'static str,
}

const ZONE: Keyed = Keyed { word: "zone", table: "zone", key: "origin", value: "text" };
const PARTITION: Keyed = Keyed { word: "partition", table: r#""partition""#, key: "name", value: "text" };
const SERVER: Keyed = Keyed { word: "server", table: "server", key: "address", value: "up" };
const IMPORT: Keyed = Keyed { word: "import", table: "import", key: "path", value: "digest" };

/// Puts rows in the place of those with their keys.
async fn put(sql: &mut Sql, of: &Keyed, rows: Vec<(String, Value)>) -> Result<(), Failure> {
    let longest = rows.iter().map(|(_, value)| value.octets()).max().unwrap_or(0);
    if longest > TEXT_MAX {
        return Err(Failure::Refused(format!("a text of {longest} bytes is above {TEXT_MAX}")));
    }
    // The database would end the connection, and nobody could tell which change it was.
    if longest > OCTETS_PER_STATEMENT
        && let Some(most) = sql.text_max().await?
        && longest > most
    {
        let what = format!(
            "a text of {longest} bytes is above the {most} that the database takes; raise max_allowed_packet there"
        );
        return Err(Failure::Refused(what));
    }
    let keys: Vec<&str> = rows.iter().map(|(key, _)| key.as_str()).collect();
    distinct(&keys)?;
    take_away(sql, of, &keys).await?;
    let table = format!("{} ({}, {})", of.table, of.key, of.value);
    let rows = rows.into_iter().map(|(key, value)| vec![key.into(), value]).collect();
    Ok(insert(sql, &table, rows).await?)
}

/// Puts a zone in its own place with other lines of some owners: other programs read its text, which has to be whole.
async fn change_zone(sql: &mut Sql, origin: &str, owners: &BTreeMap<String, String>) -> Result<(), Failure> {
    let found: Vec<(String,)> = sql.rows("SELECT text FROM zone WHERE origin = ?", values![origin]).await?;
    let Some((text,)) = found.first() else {
        return Err(Failure::Refused(format!("there is no zone {origin}")));
    };
    unconfirm(sql, &[origin]).await?;
    put(sql, &ZONE, vec![(origin.to_owned(), with_owners(text, owners).as_str().into())]).await
}

/// Takes rows away that there must be.
async fn delete(sql: &mut Sql, of: &Keyed, keys: &[&str]) -> Result<(), Failure> {
    distinct(keys)?;
    let gone = take_away(sql, of, keys).await?;
    Ok(there_was(gone == keys.len() as u64, || format!("there is no {} {}", of.word, keys[0]))?)
}

/// Takes away the rows of these keys that there are; returns how many.
async fn take_away(sql: &mut Sql, of: &Keyed, keys: &[&str]) -> Result<u64, sqlx::Error> {
    let text = format!("DELETE FROM {} WHERE {} IN ({})", of.table, of.key, marks(keys.len()));
    sql.run(&text, keys.iter().map(|key| (*key).into()).collect()).await
}

/// Stores when primaries last confirmed zones, over what was stored of the same.
pub(super) async fn confirm(sql: &mut Sql, times: &BTreeMap<String, u64>) -> Result<(), sqlx::Error> {
    let times: Vec<(&str, u64)> = times.iter().map(|(origin, at)| (origin.as_str(), *at)).collect();
    for times in times.chunks(ROWS_PER_STATEMENT) {
        let origins: Vec<&str> = times.iter().map(|(origin, _)| *origin).collect();
        unconfirm(sql, &origins).await?;
        let rows = times.iter().map(|(origin, at)| values![*origin, at.cast_signed()]).collect();
        insert(sql, "confirmed (origin, at)", rows).await?;
    }
    Ok(())
}

/// Forgets that zones were confirmed: whoever confirmed one has said nothing of another version.
async fn unconfirm(sql: &mut Sql, origins: &[&str]) -> Result<(), sqlx::Error> {
    let text = format!("DELETE FROM confirmed WHERE origin IN ({})", marks(origins.len()));
    sql.run(&text, origins.iter().map(|origin| (*origin).into()).collect()).await.map(drop)
}

async fn add_regions(sql: &mut Sql, regions: &[(i64, &str)]) -> Result<(), Failure> {
    let names: Vec<&str> = regions.iter().map(|(_, name)| *name).collect();
    distinct(&names)?;
    let (mut last,): (i64,) = sql.row(LAST_REGION, values![]).await?;
    for (id, _) in regions {
        if *id <= last {
            let next = last + 1;
            let what = format!("region id {id} is or was in use; the next one is {next}");
            return Err(Failure::Refused(what));
        }
        last = *id;
    }
    if let Some(name) = region_ids(sql, &names).await?.keys().next() {
        return Err(Failure::Refused(format!("there already is a region '{name}'")));
    }
    let rows = regions.iter().map(|(id, name)| values![*id, *name]).collect();
    Ok(insert(sql, "region (id, name)", rows).await?)
}

async fn remove_regions(sql: &mut Sql, generation: i64, ids: &[i64]) -> Result<(), Failure> {
    distinct(ids)?;
    let list = marks(ids.len());
    let of_ids = |first: Option<i64>| first.into_iter().chain(ids.iter().copied()).map(Value::from).collect();
    let text = format!("UPDATE region SET removed_in = ? WHERE id IN ({list}) AND removed_in IS NULL");
    let removed = sql.run(&text, of_ids(Some(generation))).await?;
    there_was(removed == ids.len() as u64, || format!("there is no region {}", ids[0]))?;
    sql.run(&format!("DELETE FROM policy_row WHERE region_id IN ({list})"), of_ids(None)).await?;
    Ok(())
}

async fn put_policies(sql: &mut Sql, policies: &[&Policy]) -> Result<(), Failure> {
    for policy in policies {
        check_policy(policy)?;
    }
    let named: BTreeSet<&str> = policies
        .iter()
        .flat_map(|policy| &policy.servers)
        .flat_map(|server| server.regions.keys().map(String::as_str))
        .collect();
    let regions = region_ids(sql, &Vec::from_iter(named.iter().copied())).await?;
    if let Some(name) = named.iter().find(|name| !regions.contains_key(**name)) {
        return Err(Failure::Refused(format!("there is no region '{name}'")));
    }
    let olds = old_ids(sql, policies).await?;
    let ids = put_heads(sql, policies, &olds).await?;

    let (mut names, mut servers, mut cells) = (Vec::new(), Vec::new(), Vec::new());
    for (policy, id) in policies.iter().zip(ids) {
        for (position, name) in (0_i64..).zip(&policy.names) {
            names.push(values![id, position, name.as_str()]);
        }
        for (position, server) in (0_i64..).zip(&policy.servers) {
            let (address, Entry { probability, ttl }) = (server.target.to_string(), server.default);
            for (name, entry) in &server.regions {
                cells.push(values![id, address.as_str(), regions[name], entry.probability, entry.ttl]);
            }
            servers.push(values![id, position, address, server.probe.clone(), probability, ttl]);
        }
    }
    insert(sql, "policy_name (policy_id, position, name)", names).await?;
    insert(sql, "policy_server (policy_id, position, address, probe, probability, ttl)", servers).await?;
    insert(sql, "policy_row (policy_id, address, region_id, probability, ttl)", cells).await?;
    Ok(())
}

/// Refuses what a policy cannot be by itself.
fn check_policy(policy: &Policy) -> Result<(), Failure> {
    if policy.names.is_empty() {
        return Err(Failure::Refused("a policy needs a name".into()));
    }
    let mut targets = HashSet::new();
    for server in &policy.servers {
        // MariaDB would not say of which table a key is.
        if !targets.insert(&server.target) {
            let what = format!("{} would be twice in policy_server", server.target);
            return Err(Failure::Refused(what));
        }
        finite(server.default)?;
        server.regions.values().try_for_each(|entry| finite(*entry))?;
    }
    Ok(())
}

/// The ids under which policies are there already. Refuses names that others than their own have, or that occur
/// twice.
async fn old_ids(sql: &mut Sql, policies: &[&Policy]) -> Result<Vec<Option<i64>>, Failure> {
    let names: Vec<&str> = policies.iter().flat_map(|policy| &policy.names).map(String::as_str).collect();
    let owners = owners(sql, &names).await?;
    let mut olds = Vec::with_capacity(policies.len());
    for policy in policies {
        let old = owners.get(&policy.names[0]).and_then(|(id, position)| (*position == 0).then_some(*id));
        for name in &policy.names {
            if owners.get(name).is_some_and(|(id, _)| Some(*id) != old) {
                return Err(Failure::Refused(format!("the name {name} belongs to another policy")));
            }
        }
        olds.push(old);
    }
    if HashSet::<&str>::from_iter(names.iter().copied()).len() < names.len() {
        return Err(Failure::Refused("a name occurs twice in the policy".into()));
    }
    Ok(olds)
}

/// Writes what policies have one of, and takes away what they had several of; returns their ids, which stay what they
/// were.
async fn put_heads(
    sql: &mut Sql,
    policies: &[&Policy],
    olds: &[Option<i64>],
) -> Result<Vec<i64>, sqlx::Error> {
    delete_ids(sql, &olds.iter().copied().flatten().collect::<Vec<_>>()).await?;
    let (mut kept, mut new) = (Vec::new(), Vec::new());
    for (policy, old) in policies.iter().zip(olds) {
        let (order, when_all_down) = (policy.order.word(), policy.when_all_down.word());
        let head = values![i64::from(policy.answers), order, when_all_down, policy.partition.as_str()];
        match old {
            Some(id) => kept.push([values![*id], head].concat()),
            None => new.push(head),
        }
    }
    let columns = r#"answers, "order", when_all_down, "partition""#;
    insert(sql, &format!("policy (id, {columns})"), kept).await?;
    // Whose a returned row is no database promises. Those of one head are alike.
    let mut made: HashMap<(i64, String, String, String), Vec<i64>> = HashMap::new();
    for rows in new.chunks(ROWS_PER_STATEMENT) {
        let text = format!("INSERT INTO policy ({columns}) VALUES {} RETURNING id, {columns}", list(rows));
        let rows: Vec<(i64, i64, String, String, String)> = sql.rows(&text, rows.concat()).await?;
        for (id, answers, order, when_all_down, partition) in rows {
            made.entry((answers, order, when_all_down, partition)).or_default().push(id);
        }
    }
    let mut id_of = |policy: &Policy| {
        let (order, when_all_down) = (policy.order.word().into(), policy.when_all_down.word().into());
        let head = (i64::from(policy.answers), order, when_all_down, policy.partition.clone());
        made.get_mut(&head).and_then(Vec::pop).ok_or(sqlx::Error::RowNotFound)
    };
    policies.iter().zip(olds).map(|(policy, old)| old.map_or_else(|| id_of(policy), Ok)).collect()
}

async fn delete_policies(sql: &mut Sql, keys: &[&str]) -> Result<(), Failure> {
    distinct(keys)?;
    let owners = owners(sql, keys).await?;
    let ids: Vec<i64> =
        owners.into_values().filter(|(_, position)| *position == 0).map(|(id, _)| id).collect();
    there_was(ids.len() == keys.len(), || format!("there is no policy {}", keys[0]))?;
    Ok(delete_ids(sql, &ids).await?)
}

/// Takes policies away, with all that they have.
async fn delete_ids(sql: &mut Sql, ids: &[i64]) -> Result<(), sqlx::Error> {
    if !ids.is_empty() {
        let text = format!("DELETE FROM policy WHERE id IN ({})", marks(ids.len()));
        sql.run(&text, ids.iter().copied().map(Value::from).collect()).await?;
    }
    Ok(())
}

/// The policies that have names, and at which positions.
async fn owners(sql: &mut Sql, names: &[&str]) -> Result<HashMap<String, (i64, i64)>, sqlx::Error> {
    let mut owners = HashMap::new();
    for names in names.chunks(ROWS_PER_STATEMENT) {
        let text = format!(
            "SELECT name, policy_id, position FROM policy_name WHERE name IN ({})",
            marks(names.len())
        );
        let found: Vec<(String, i64, i64)> =
            sql.rows(&text, names.iter().map(|name| (*name).into()).collect()).await?;
        owners.extend(found.into_iter().map(|(name, id, position)| (name, (id, position))));
    }
    Ok(owners)
}

/// The ids of those regions of these names that are in use.
async fn region_ids(sql: &mut Sql, names: &[&str]) -> Result<BTreeMap<String, i64>, sqlx::Error> {
    let mut ids = BTreeMap::new();
    for names in names.chunks(ROWS_PER_STATEMENT) {
        let list = marks(names.len());
        let text = format!("SELECT name, id FROM region WHERE removed_in IS NULL AND name IN ({list})");
        let values = names.iter().map(|name| (*name).into()).collect();
        ids.extend(sql.rows::<(String, i64)>(&text, values).await?);
    }
    Ok(ids)
}

/// Refuses keys that occur twice: what is done to one is done in turn.
fn distinct<K: Eq + std::hash::Hash + std::fmt::Display>(keys: &[K]) -> Result<(), Failure> {
    let mut seen = HashSet::with_capacity(keys.len());
    match keys.iter().find(|key| !seen.insert(*key)) {
        Some(key) => Err(Failure::Refused(format!("{key} occurs twice"))),
        None => Ok(()),
    }
}

/// Inserts rows into a table, whose columns stand behind its name.
pub(super) async fn insert(sql: &mut Sql, table: &str, rows: Vec<Vec<Value>>) -> Result<(), sqlx::Error> {
    let mut rows = rows.into_iter().peekable();
    while let Some(first) = rows.next() {
        let mut octets: usize = first.iter().map(Value::octets).sum();
        let mut some = vec![first];
        while some.len() < ROWS_PER_STATEMENT
            && let Some(row) = rows.next_if(|row| {
                octets += row.iter().map(Value::octets).sum::<usize>();
                octets <= OCTETS_PER_STATEMENT
            })
        {
            some.push(row);
        }
        let text = format!("INSERT INTO {table} VALUES {}", list(&some));
        sql.run(&text, some.into_iter().flatten().collect()).await?;
    }
    Ok(())
}

/// A list of so many rows, with a `?` for each value.
fn list(rows: &[Vec<Value>]) -> String {
    let row = format!("({})", marks(rows.first().map_or(0, Vec::len)));
    vec![row; rows.len()].join(", ")
}

/// So many `?`, with commas between them.
pub(super) fn marks(count: usize) -> String {
    vec!["?"; count].join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{policy, region};

    #[test]
    fn regions_are_added_first_where_that_is_the_same() {
        let put = |name: &str, regions: &[&str]| Change::PutPolicy(policy(&[name], regions).into());
        let (a, b) = (region(1, "a"), region(2, "b"));
        let delete = Change::DeletePolicy { key: "q.".into() };
        for (changes, expected) in [
            (vec![a.clone(), put("p.", &["a"]), b.clone(), put("q.", &["a", "b"])], vec![0, 2, 1, 3]),
            (vec![put("p.", &[]), a.clone(), delete, b.clone()], vec![1, 3, 0, 2]),
            // There is no such region yet.
            (vec![a.clone(), put("p.", &["b"]), b.clone()], vec![0, 1, 2]),
            (vec![put("p.", &["a"]), Change::RemoveRegion { id: 1 }, region(2, "a")], vec![0, 1, 2]),
        ] {
            assert_eq!(order(&changes), expected, "{changes:?}");
        }
    }
}
