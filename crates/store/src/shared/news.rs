//! What there is above a generation, and the queries for it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher};

use api::{Policy, Target};

use super::apply::marks;
use super::failed::Failed;
use super::sql::{Sql, Value, values};
use crate::contents::{
    CELLS, COLUMNS, CONFIRMED, Contents, HEADS, HEALTH, IMPORTS, LAST_REGION, NAMES, PolicyRows, REGIONS,
    Rows, SERVERS, servers,
};

/// How many changes `change_log` keeps below the last, beside those that no generation has: who was away for longer
/// loads everything.
pub const CHANGES_KEPT: i64 = 10_000;

/// How many zones and partitions are loaded by their names; where more were changed, everything is. For each zone that is
/// put its reader looks through all names of policies, which for so many takes no longer than to load everything.
const NAMED_MAX: usize = 64;

/// Which generation and which changes there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The current generation; 0 before the first.
    pub generation: u64,
    /// The number of the last change that it has.
    pub published: u64,
    /// The number of the last change that there is: what is above [`Seen::published`] was made directly, and nobody
    /// serves it yet.
    pub changes: u64,
    /// Stands for who published the current generation: a database that was put back may come to a number again, by
    /// another name server.
    pub publisher: u64,
}

/// What there is above a generation.
#[derive(Clone, Debug)]
pub struct News {
    /// As of which generation and changes.
    pub seen: Seen,
    /// What it is.
    pub standing: Standing,
    /// Zones that were changed directly since the current generation, which nobody serves yet: their master files as
    /// that generation has them, by name.
    pub before: BTreeMap<String, String>,
}

/// What may differ from a generation, as it is now.
#[derive(Clone, Debug)]
pub enum Standing {
    /// These parts; all else is as it was.
    Parts(Parts),
    /// Anything.
    All(Box<Contents>),
}

/// Parts that may differ from a generation, as they are now.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Master files of zones by name; `None` for a zone that is no more.
    pub zones: BTreeMap<String, Option<String>>,
    /// Sources of partitions by name; `None` for one that is no more.
    pub partitions: BTreeMap<String, Option<String>>,
    /// All policies, in the order of their keys, where one may differ.
    pub policies: Option<Vec<Policy>>,
    /// Whether a server may be drawn, for all for which it was ever set.
    pub servers: BTreeMap<Target, bool>,
    /// The digests of all imported files by path.
    pub imports: BTreeMap<String, String>,
}

impl Seen {
    /// Reads the numbers.
    pub(super) async fn look(sql: &mut Sql) -> Result<Seen, sqlx::Error> {
        let text = "SELECT coalesce(g.number, 0), coalesce(g.changes, 0), w.changes, coalesce(g.publisher, '') \
                    FROM writer w LEFT JOIN generation g ON g.number = (SELECT max(number) FROM generation)";
        let (generation, published, changes, publisher): (i64, i64, i64, String) =
            sql.row(text, values![]).await?;
        let [generation, published, changes] = [generation, published, changes].map(i64::cast_unsigned);
        Ok(Seen { generation, published, changes, publisher: mark(&publisher) })
    }
}

/// What stands for a publisher.
pub(super) fn mark(publisher: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(publisher.as_bytes());
    hasher.finish()
}

/// Loads everything, as of one moment.
pub(super) async fn load(sql: &mut Sql) -> Result<(Seen, Contents), Failed> {
    sql.begin_reading().await?;
    let seen = Seen::look(sql).await?;
    let contents = all(sql, seen.generation).await?;
    sql.raw("COMMIT").await?;
    Ok((seen, contents))
}

/// Loads what there is above a generation, and everything where that is not `publisher`'s, if given; in a transaction that
/// sees one state, or in which nobody else changes it.
pub(super) async fn news(sql: &mut Sql, above: i64, publisher: Option<u64>) -> Result<News, Failed> {
    let seen = Seen::look(sql).await?;
    let standing = match changed(sql, above, publisher, seen).await? {
        Some(changed) => Standing::Parts(parts(sql, changed).await?),
        None => Standing::All(Box::new(all(sql, seen.generation).await?)),
    };
    let mut before = BTreeMap::new();
    if seen.changes > seen.published {
        let text = "SELECT origin, text FROM zone_before WHERE text IS NOT NULL";
        before.extend(sql.rows::<(String, String)>(text, values![]).await?);
    }
    Ok(News { seen, standing, before })
}

/// What changes are of.
#[derive(Default)]
struct Changed {
    zones: BTreeSet<String>,
    partitions: BTreeSet<String>,
    policies: bool,
}

/// What was changed above a generation; `None` where that is too much, or the log does not tell.
async fn changed(
    sql: &mut Sql,
    above: i64,
    publisher: Option<u64>,
    seen: Seen,
) -> Result<Option<Changed>, sqlx::Error> {
    let text = "SELECT changes, publisher FROM generation WHERE number = ?";
    let known: Vec<(i64, String)> = sql.rows(text, values![above]).await?;
    let Some((known, by)) = known.first() else { return Ok(None) };
    if publisher.is_some_and(|publisher| publisher != mark(by)) {
        return Ok(None);
    }
    if seen.changes.cast_signed() - known > CHANGES_KEPT {
        return Ok(None);
    }
    let text = "SELECT DISTINCT what, name FROM change_log WHERE number > ?";
    let logged: Vec<(String, Option<String>)> = sql.rows(text, values![*known]).await?;
    let mut changed = Changed::default();
    for (what, name) in logged {
        match (what.as_str(), name) {
            ("zone", Some(origin)) => _ = changed.zones.insert(origin),
            ("partition", Some(name)) => _ = changed.partitions.insert(name),
            ("policy" | "policy_name" | "policy_server" | "policy_row", _) => changed.policies = true,
            ("server", _) => {}
            // Regions: policies and partitions name them.
            _ => return Ok(None),
        }
    }
    let named = changed.zones.len() + changed.partitions.len();
    Ok((named <= NAMED_MAX).then_some(changed))
}

async fn parts(sql: &mut Sql, changed: Changed) -> Result<Parts, Failed> {
    let zones = "SELECT origin, text FROM zone WHERE origin IN";
    let partitions = r#"SELECT name, text FROM "partition" WHERE name IN"#;
    Ok(Parts {
        zones: named(sql, zones, changed.zones).await?,
        partitions: named(sql, partitions, changed.partitions).await?,
        policies: match changed.policies {
            true => Some(policies(sql).await?.policies(&sql.rows(REGIONS, values![]).await?)?),
            false => None,
        },
        servers: servers(sql.rows(SERVERS, values![]).await?)?,
        imports: sql.rows::<(String, String)>(IMPORTS, values![]).await?.into_iter().collect(),
    })
}

/// What a query for names, which it ends before, finds of each.
async fn named(
    sql: &mut Sql,
    query: &str,
    names: BTreeSet<String>,
) -> Result<BTreeMap<String, Option<String>>, sqlx::Error> {
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let text = format!("{query} ({})", marks(names.len()));
    let found: Vec<(String, String)> =
        sql.rows(&text, names.iter().cloned().map(Value::from).collect()).await?;
    let mut texts: BTreeMap<String, Option<String>> = names.into_iter().map(|name| (name, None)).collect();
    texts.extend(found.into_iter().map(|(name, text)| (name, Some(text))));
    Ok(texts)
}

async fn policies(sql: &mut Sql) -> Result<PolicyRows, sqlx::Error> {
    Ok(PolicyRows {
        heads: sql.rows(HEADS, values![]).await?,
        names: sql.rows(NAMES, values![]).await?,
        columns: sql.rows(COLUMNS, values![]).await?,
        cells: sql.rows(CELLS, values![]).await?,
    })
}

async fn all(sql: &mut Sql, generation: u64) -> Result<Contents, Failed> {
    let texts = |rows: Vec<(String, String)>| rows.into_iter().collect();
    let (last_region,) = sql.row(LAST_REGION, values![]).await?;
    let rows = Rows {
        generation: generation.cast_signed(),
        zones: texts(sql.rows("SELECT origin, text FROM zone", values![]).await?),
        partitions: texts(sql.rows(r#"SELECT name, text FROM "partition""#, values![]).await?),
        last_region,
        regions: sql.rows(REGIONS, values![]).await?,
        policies: policies(sql).await?,
        servers: sql.rows(SERVERS, values![]).await?,
        health: sql.rows(HEALTH, values![]).await?,
        confirmed: sql.rows(CONFIRMED, values![]).await?,
        imports: sql.rows(IMPORTS, values![]).await?,
    };
    Ok(rows.contents()?)
}
