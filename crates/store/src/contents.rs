//! What a load returns, and the queries for it.

use std::collections::BTreeMap;

use api::target::NoTarget;
use api::{Entry, Order, Policy, Server, Target, WhenAllDown};
use rusqlite::{Connection, Row};

use crate::health::Held;
use crate::owners;
use crate::text::{TEXT_MAX, unpack, with_owners};

/// Everything that is stored, as of one generation.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents {
    /// The number of the last commit; 0 for a store that never had one.
    pub generation: u64,
    /// The canonical master files by origin.
    pub zones: BTreeMap<String, String>,
    /// The names of the regions in use by id.
    pub regions: BTreeMap<u32, String>,
    /// The lowest id that no region ever had, from 1.
    pub next_region_id: u32,
    /// The partitions' sources by name.
    pub partitions: BTreeMap<String, String>,
    /// The policies in the order of their keys (the bytes of the first name).
    pub policies: Vec<Policy>,
    /// Whether a server may be drawn, for those for which it was ever set.
    pub servers: BTreeMap<Target, bool>,
    /// What probes last held of servers, by server and probe.
    pub health: BTreeMap<(Target, String), Held>,
    /// When primaries last confirmed zones, by origin, in Unix time in seconds.
    pub confirmed: BTreeMap<String, u64>,
    /// The digests of imported files by path.
    pub imports: BTreeMap<String, String>,
}

impl Default for Contents {
    /// The contents of a new store.
    fn default() -> Self {
        Contents {
            generation: 0,
            zones: BTreeMap::new(),
            regions: BTreeMap::new(),
            next_region_id: 1,
            partitions: BTreeMap::new(),
            policies: Vec::new(),
            servers: BTreeMap::new(),
            health: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            imports: BTreeMap::new(),
        }
    }
}

/// What cannot be what was stored, in words.
#[derive(Debug)]
pub(crate) struct Corrupt(pub(crate) String);

/// Why the contents could not be loaded.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The database failed.
    Sql(rusqlite::Error),
    /// A value cannot be what was stored.
    Corrupt(Corrupt),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Failure::Sql(error)
    }
}

impl From<Corrupt> for Failure {
    fn from(corrupt: Corrupt) -> Self {
        Failure::Corrupt(corrupt)
    }
}

/// Loads everything in one read transaction, so that no other program's commit can come between.
pub(crate) fn load(sql: &mut Connection) -> Result<Contents, Failure> {
    let transaction = sql.transaction()?;
    let contents = read(&transaction)?;
    transaction.rollback()?;
    Ok(contents)
}

/// The number of the current generation; 0 before the first commit.
pub(crate) fn generation(sql: &Connection) -> rusqlite::Result<i64> {
    let mut last = sql.prepare_cached("SELECT coalesce(max(number), 0) FROM generation")?;
    last.query_row([], |row| row.get(0))
}

fn read(sql: &Connection) -> Result<Contents, Failure> {
    let mut zones = texts(rows(sql, "SELECT origin, text FROM zone")?, "zone")?;
    for (origin, owners) in owners::read(sql)? {
        zones.entry(origin).and_modify(|text| *text = with_owners(text, &owners));
    }
    let partitions = texts(rows(sql, r#"SELECT name, text FROM "partition""#)?, "partition")?;
    let found = Rows {
        generation: generation(sql)?,
        zones,
        partitions,
        last_region: sql.query_row(LAST_REGION, [], |row| row.get(0))?,
        regions: rows(sql, REGIONS)?,
        policies: PolicyRows {
            heads: rows(sql, HEADS)?,
            names: rows(sql, NAMES)?,
            columns: rows(sql, COLUMNS)?,
            cells: rows(sql, CELLS)?,
        },
        servers: rows(sql, SERVERS)?,
        health: rows(sql, HEALTH)?,
        confirmed: rows(sql, CONFIRMED)?,
        imports: rows(sql, IMPORTS)?,
    };
    Ok(found.contents()?)
}

/// All that a query finds.
fn rows<T>(sql: &Connection, text: &str) -> rusqlite::Result<Vec<T>>
where
    T: for<'r> TryFrom<&'r Row<'r>, Error = rusqlite::Error>,
{
    let mut query = sql.prepare(text)?;
    let found = query.query_map([], |row| T::try_from(row))?;
    found.collect()
}

/// The highest id that a region ever had.
pub(crate) const LAST_REGION: &str = "SELECT coalesce(max(id), 0) FROM region";
/// [`Rows::regions`].
pub(crate) const REGIONS: &str = "SELECT id, name FROM region WHERE removed_in IS NULL";
/// [`PolicyRows::heads`].
pub(crate) const HEADS: &str = r#"SELECT id, answers, "order", when_all_down, "partition" FROM policy"#;
/// [`PolicyRows::names`].
pub(crate) const NAMES: &str =
    "SELECT policy_id, position, name FROM policy_name ORDER BY policy_id, position";
/// [`PolicyRows::columns`].
pub(crate) const COLUMNS: &str =
    "SELECT policy_id, address, probe, probability, ttl FROM policy_server ORDER BY policy_id, position";
/// [`PolicyRows::cells`].
pub(crate) const CELLS: &str = "SELECT policy_id, address, region_id, probability, ttl FROM policy_row";
/// [`Rows::servers`].
pub(crate) const SERVERS: &str = "SELECT address, up FROM server";
/// [`Rows::health`].
pub(crate) const HEALTH: &str = "SELECT server, probe, failing, since FROM health";
/// [`Rows::confirmed`].
pub(crate) const CONFIRMED: &str = "SELECT origin, at FROM confirmed";
/// [`Rows::imports`].
pub(crate) const IMPORTS: &str = "SELECT path, digest FROM import";

/// What the tables hold, as every database gives it.
pub(crate) struct Rows {
    pub(crate) generation: i64,
    pub(crate) zones: BTreeMap<String, String>,
    pub(crate) partitions: BTreeMap<String, String>,
    pub(crate) last_region: i64,
    pub(crate) regions: Vec<(i64, String)>,
    pub(crate) policies: PolicyRows,
    /// Address, and whether it is up.
    pub(crate) servers: Vec<(String, i64)>,
    /// Server, probe, whether it fails, since when.
    pub(crate) health: Vec<(String, String, i64, i64)>,
    /// Origin, and when.
    pub(crate) confirmed: Vec<(String, i64)>,
    pub(crate) imports: Vec<(String, String)>,
}

/// A row of `policy_server`: policy, address, probe, probability, TTL.
type Column = (i64, String, Option<String>, Option<f64>, Option<i64>);

/// A row of `policy_row`: policy, address, region, probability, TTL.
type Cell = (i64, String, i64, Option<f64>, Option<i64>);

/// What the tables of policies hold.
pub(crate) struct PolicyRows {
    /// Id, answers, order, when_all_down, partition.
    pub(crate) heads: Vec<(i64, i64, String, String, String)>,
    /// Policy, position, name; in that order.
    pub(crate) names: Vec<(i64, i64, String)>,
    /// In the order of positions.
    pub(crate) columns: Vec<Column>,
    pub(crate) cells: Vec<Cell>,
}

impl Rows {
    /// Puts them together.
    pub(crate) fn contents(self) -> Result<Contents, Corrupt> {
        let policies = self.policies.policies(&self.regions)?;
        let mut regions = BTreeMap::new();
        for (id, name) in self.regions {
            regions.insert(number(id, "region id")?, name);
        }
        let mut health = BTreeMap::new();
        for (text, probe, failing, since) in self.health {
            let held = Held { failing: failing != 0, since: since.max(0).cast_unsigned() };
            health.insert((target(&text, "health")?, probe), held);
        }
        let confirmed = self.confirmed.into_iter().map(|(origin, at)| (origin, at.max(0).cast_unsigned()));
        Ok(Contents {
            generation: self.generation.cast_unsigned(),
            zones: self.zones,
            regions,
            next_region_id: number(self.last_region + 1, "next region id")?,
            partitions: self.partitions,
            policies,
            servers: servers(self.servers)?,
            health,
            confirmed: confirmed.collect(),
            imports: self.imports.into_iter().collect(),
        })
    }
}

/// Whether servers may be drawn, from server and state.
pub(crate) fn servers(rows: Vec<(String, i64)>) -> Result<BTreeMap<Target, bool>, Corrupt> {
    rows.into_iter().map(|(text, up)| Ok((target(&text, "server")?, up != 0))).collect()
}

fn texts(rows: Vec<(String, Vec<u8>)>, table: &str) -> Result<BTreeMap<String, String>, Corrupt> {
    let unpack = |(name, packed): (String, Vec<u8>)| match unpack(&packed, TEXT_MAX) {
        Ok(text) => Ok((name, text)),
        Err(what) => Err(Corrupt(format!("the text of {table} {name}: {what}"))),
    };
    rows.into_iter().map(unpack).collect()
}

impl PolicyRows {
    /// Puts them together, in the order of keys.
    pub(crate) fn policies(self, regions: &[(i64, String)]) -> Result<Vec<Policy>, Corrupt> {
        let regions: BTreeMap<i64, &String> = regions.iter().map(|(id, name)| (*id, name)).collect();
        let mut policies: BTreeMap<i64, Policy> = BTreeMap::new();
        for (id, answers, order, when_all_down, partition) in self.heads {
            let order =
                Order::of_word(&order).ok_or_else(|| Corrupt(format!("policy {id}: order '{order}'")))?;
            let when_all_down = WhenAllDown::of_word(&when_all_down)
                .ok_or_else(|| Corrupt(format!("policy {id}: when_all_down '{when_all_down}'")))?;
            let answers = number(answers, "number of answers")?;
            let (names, servers) = (Vec::new(), Vec::new());
            let policy = Policy { answers, order, when_all_down, partition, names, servers };
            policies.insert(id, policy);
        }

        for (id, position, name) in self.names {
            let names = &mut policy(&mut policies, id)?.names;
            if i64::try_from(names.len()) != Ok(position) {
                let position = names.len();
                return Err(Corrupt(format!("policy {id} has no name at position {position}")));
            }
            names.push(name);
        }

        for (id, text, probe, probability, ttl) in self.columns {
            let (target, default) = (target(&text, "policy_server")?, entry(probability, ttl)?);
            let regions = BTreeMap::new();
            policy(&mut policies, id)?.servers.push(Server { target, probe, default, regions });
        }

        for (id, text, region, probability, ttl) in self.cells {
            let target = target(&text, "policy_row")?;
            let Some(region) = regions.get(&region) else {
                let what = format!("policy {id} has an entry for region {region}, not in use");
                return Err(Corrupt(what));
            };
            let servers = &mut policy(&mut policies, id)?.servers;
            let Some(server) = servers.iter_mut().find(|server| server.target == target) else {
                let what = format!("policy {id} has an entry for {target}, not its server");
                return Err(Corrupt(what));
            };
            server.regions.insert((*region).clone(), entry(probability, ttl)?);
        }

        let mut policies: Vec<Policy> = policies.into_values().collect();
        if policies.iter().any(|policy| policy.names.is_empty()) {
            return Err(Corrupt("a policy has no name".into()));
        }
        policies.sort_by(|a, b| a.names[0].cmp(&b.names[0]));
        Ok(policies)
    }
}

fn entry(probability: Option<f64>, ttl: Option<i64>) -> Result<Entry, Corrupt> {
    Ok(Entry { probability, ttl: ttl.map(|ttl| number(ttl, "TTL")).transpose()? })
}

fn number<N: TryFrom<i64>>(number: i64, what: &str) -> Result<N, Corrupt> {
    number.try_into().map_err(|_| Corrupt(format!("the {what} {number} is out of range")))
}

fn policy(policies: &mut BTreeMap<i64, Policy>, id: i64) -> Result<&mut Policy, Corrupt> {
    policies.get_mut(&id).ok_or_else(|| Corrupt(format!("there is no policy {id}")))
}

fn target(text: &str, table: &str) -> Result<Target, Corrupt> {
    text.parse().map_err(|NoTarget| {
        Corrupt(format!("'{text}' in {table} is neither an address nor a name that ends with a dot"))
    })
}
