//! What there is above a generation, and the queries for it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::Policy;

use super::sql::{Sql, values};
use super::{CHANGES_KEPT, Failed};
use crate::contents::{
    CELLS, COLUMNS, Contents, Failure, HEADS, HEALTH, IMPORTS, LAST_REGION, NAMES, PolicyRows, REGIONS, Rows,
    SERVERS, servers,
};

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
}

/// What there is above a generation.
#[derive(Clone, Debug)]
pub struct News {
    /// As of which generation and changes.
    pub seen: Seen,
    /// What it is.
    pub standing: Standing,
}

/// What may differ from a generation, as it is now.
#[derive(Clone, Debug)]
pub enum Standing {
    /// Policies and what operators said of servers; all else is as it was.
    Policies {
        /// All policies, in the order of their keys.
        policies: Vec<Policy>,
        /// Whether a server may be drawn, for those for which it was ever set.
        servers: BTreeMap<IpAddr, bool>,
        /// The digests of imported files by path.
        imports: BTreeMap<String, String>,
    },
    /// Anything.
    All(Box<Contents>),
}

impl Seen {
    /// Reads the numbers.
    pub(super) async fn look(sql: &mut Sql) -> Result<Seen, sqlx::Error> {
        let text = "SELECT coalesce(g.number, 0), coalesce(g.changes, 0), w.changes FROM writer w \
                    LEFT JOIN generation g ON g.number = (SELECT max(number) FROM generation)";
        let (generation, published, changes): (i64, i64, i64) = sql.row(text, values![]).await?;
        let [generation, published, changes] = [generation, published, changes].map(i64::cast_unsigned);
        Ok(Seen { generation, published, changes })
    }
}

/// Loads everything, as of one moment.
pub(super) async fn load(sql: &mut Sql) -> Result<Contents, Failed> {
    sql.begin_reading().await?;
    let generation = Seen::look(sql).await?.generation;
    let contents = all(sql, generation).await?;
    sql.raw("COMMIT").await?;
    Ok(contents)
}

/// Loads what there is above a generation; in a transaction that sees one state, or in which nobody else changes it.
pub(super) async fn news(sql: &mut Sql, above: i64) -> Result<News, Failed> {
    let seen = Seen::look(sql).await?;
    let standing = if policies_only(sql, above, seen).await? {
        Standing::Policies {
            policies: policies(sql).await?.policies(&sql.rows(REGIONS, values![]).await?)?,
            servers: servers(sql.rows(SERVERS, values![]).await?)?,
            imports: sql.rows::<(String, String)>(IMPORTS, values![]).await?.into_iter().collect(),
        }
    } else {
        Standing::All(Box::new(all(sql, seen.generation).await?))
    };
    Ok(News { seen, standing })
}

/// Whether no change above a generation is of anything but policies and servers. It is not where the log no longer
/// tells.
async fn policies_only(sql: &mut Sql, above: i64, seen: Seen) -> Result<bool, sqlx::Error> {
    let text = "SELECT changes FROM generation WHERE number = ?";
    let known: Vec<(i64,)> = sql.rows(text, values![above]).await?;
    let Some((known,)) = known.first() else { return Ok(false) };
    if seen.changes.cast_signed() - known > CHANGES_KEPT {
        return Ok(false);
    }
    let text = "SELECT count(*) FROM change_log WHERE number > ? \
                AND what NOT IN ('policy', 'policy_name', 'policy_server', 'policy_row', 'server')";
    let (others,): (i64,) = sql.row(text, values![*known]).await?;
    Ok(others == 0)
}

async fn policies(sql: &mut Sql) -> Result<PolicyRows, sqlx::Error> {
    Ok(PolicyRows {
        heads: sql.rows(HEADS, values![]).await?,
        names: sql.rows(NAMES, values![]).await?,
        columns: sql.rows(COLUMNS, values![]).await?,
        cells: sql.rows(CELLS, values![]).await?,
    })
}

async fn all(sql: &mut Sql, generation: u64) -> Result<Contents, Failure> {
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
        imports: sql.rows(IMPORTS, values![]).await?,
    };
    rows.contents()
}
