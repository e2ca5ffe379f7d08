//! What a load returns, and the queries for it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::{Entry, Order, Policy, Server, WhenAllDown};
use sqlx::{Connection, SqliteConnection, query_as, query_scalar};

use crate::health::Held;
use crate::text::{TEXT_MAX, unpack};

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
    pub servers: BTreeMap<IpAddr, bool>,
    /// What probes last held of servers, by server and probe.
    pub health: BTreeMap<(IpAddr, String), Held>,
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
            imports: BTreeMap::new(),
        }
    }
}

/// Why the contents could not be loaded.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The database failed.
    Sql(sqlx::Error),
    /// A value cannot be what was stored.
    Corrupt(String),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Failure::Sql(error)
    }
}

/// Loads everything in one read transaction, so that no other program's commit can come between.
pub(crate) async fn load(sql: &mut SqliteConnection) -> Result<Contents, Failure> {
    let mut transaction = sql.begin().await?;
    let contents = read(&mut transaction).await?;
    transaction.rollback().await?;
    Ok(contents)
}

/// The number of the current generation; 0 before the first commit.
pub(crate) async fn generation(sql: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    query_scalar("SELECT coalesce(max(number), 0) FROM generation").fetch_one(sql).await
}

async fn read(sql: &mut SqliteConnection) -> Result<Contents, Failure> {
    let generation = generation(sql).await?;
    let zones = texts(query_as("SELECT origin, text FROM zone").fetch_all(&mut *sql).await?, "zone")?;
    let partitions =
        texts(query_as(r#"SELECT name, text FROM "partition""#).fetch_all(&mut *sql).await?, "partition")?;

    let last_region: i64 =
        query_scalar("SELECT coalesce(max(id), 0) FROM region").fetch_one(&mut *sql).await?;
    let regions: Vec<(u32, String)> =
        query_as("SELECT id, name FROM region WHERE removed_in IS NULL").fetch_all(&mut *sql).await?;
    let regions: BTreeMap<u32, String> = regions.into_iter().collect();
    let policies = policies(sql, &regions).await?;

    let mut servers = BTreeMap::new();
    let states: Vec<(String, bool)> = query_as("SELECT address, up FROM server").fetch_all(&mut *sql).await?;
    for (text, up) in states {
        servers.insert(address(&text, "server")?, up);
    }
    let mut health = BTreeMap::new();
    let held: Vec<(String, String, bool, i64)> =
        query_as("SELECT server, probe, failing, since FROM health").fetch_all(&mut *sql).await?;
    for (text, probe, failing, since) in held {
        let since = since.max(0).cast_unsigned();
        health.insert((address(&text, "health")?, probe), Held { failing, since });
    }
    let imports: Vec<(String, String)> =
        query_as("SELECT path, digest FROM import").fetch_all(&mut *sql).await?;

    Ok(Contents {
        generation: generation.cast_unsigned(),
        zones,
        regions,
        next_region_id: u32::try_from(last_region + 1)
            .map_err(|_| Failure::Corrupt(format!("region {last_region} is out of range")))?,
        partitions,
        policies,
        servers,
        health,
        imports: imports.into_iter().collect(),
    })
}

fn texts(rows: Vec<(String, Vec<u8>)>, table: &str) -> Result<BTreeMap<String, String>, Failure> {
    let unpack = |(name, packed): (String, Vec<u8>)| match unpack(&packed, TEXT_MAX) {
        Ok(text) => Ok((name, text)),
        Err(what) => Err(Failure::Corrupt(format!("the text of {table} {name}: {what}"))),
    };
    rows.into_iter().map(unpack).collect()
}

/// A row of `policy_server`: policy, address, probe, probability, TTL.
type Column = (i64, String, Option<String>, Option<f64>, Option<u32>);

/// A row of `policy_row`: policy, address, region, probability, TTL.
type Cell = (i64, String, u32, Option<f64>, Option<u32>);

async fn policies(
    sql: &mut SqliteConnection,
    regions: &BTreeMap<u32, String>,
) -> Result<Vec<Policy>, Failure> {
    let mut policies: BTreeMap<i64, Policy> = BTreeMap::new();
    let heads: Vec<(i64, u16, String, String, String)> =
        query_as(r#"SELECT id, answers, "order", when_all_down, "partition" FROM policy"#)
            .fetch_all(&mut *sql)
            .await?;
    for (id, answers, order, when_all_down, partition) in heads {
        let order = match order.as_str() {
            "weighted" => Order::Weighted,
            "fixed" => Order::Fixed,
            "rotate" => Order::Rotate,
            "nearest" => Order::Nearest,
            other => return Err(Failure::Corrupt(format!("policy {id}: order '{other}'"))),
        };
        let when_all_down = match when_all_down.as_str() {
            "answer" => WhenAllDown::Answer,
            "empty" => WhenAllDown::Empty,
            other => return Err(Failure::Corrupt(format!("policy {id}: when_all_down '{other}'"))),
        };
        let (names, servers) = (Vec::new(), Vec::new());
        let policy = Policy { answers, order, when_all_down, partition, names, servers };
        policies.insert(id, policy);
    }

    let names: Vec<(i64, u32, String)> =
        query_as("SELECT policy_id, position, name FROM policy_name ORDER BY policy_id, position")
            .fetch_all(&mut *sql)
            .await?;
    for (id, position, name) in names {
        let names = &mut policy(&mut policies, id)?.names;
        if names.len() != position as usize {
            return Err(Failure::Corrupt(format!("policy {id} has no name at position {}", names.len())));
        }
        names.push(name);
    }

    let servers: Vec<Column> = query_as(
        "SELECT policy_id, address, probe, probability, ttl FROM policy_server ORDER BY policy_id, position",
    )
    .fetch_all(&mut *sql)
    .await?;
    for (id, text, probe, probability, ttl) in servers {
        let address = address(&text, "policy_server")?;
        let default = Entry { probability, ttl };
        policy(&mut policies, id)?.servers.push(Server { address, probe, default, regions: BTreeMap::new() });
    }

    let cells: Vec<Cell> = query_as("SELECT policy_id, address, region_id, probability, ttl FROM policy_row")
        .fetch_all(&mut *sql)
        .await?;
    for (id, text, region, probability, ttl) in cells {
        let address = address(&text, "policy_row")?;
        let Some(region) = regions.get(&region) else {
            return Err(Failure::Corrupt(format!(
                "policy {id} has an entry for region {region}, not in use"
            )));
        };
        let servers = &mut policy(&mut policies, id)?.servers;
        let Some(server) = servers.iter_mut().find(|server| server.address == address) else {
            return Err(Failure::Corrupt(format!("policy {id} has an entry for {address}, not its server")));
        };
        server.regions.insert(region.clone(), Entry { probability, ttl });
    }

    let mut policies: Vec<Policy> = policies.into_values().collect();
    if policies.iter().any(|policy| policy.names.is_empty()) {
        return Err(Failure::Corrupt("a policy has no name".into()));
    }
    policies.sort_by(|a, b| a.names[0].cmp(&b.names[0]));
    Ok(policies)
}

fn policy(policies: &mut BTreeMap<i64, Policy>, id: i64) -> Result<&mut Policy, Failure> {
    policies.get_mut(&id).ok_or_else(|| Failure::Corrupt(format!("there is no policy {id}")))
}

fn address(text: &str, table: &str) -> Result<IpAddr, Failure> {
    text.parse().map_err(|_| Failure::Corrupt(format!("'{text}' in {table} is not an address")))
}
