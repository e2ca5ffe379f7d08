//! Tests on real databases in folders of their own.
//!
//! Here the file; `suite` is what every kind of store must do, `model` holds random changes against a map, `entries` and
//! `direct` are about changes of a few rows and those of other programs, `migrations` about older and newer stores,
//! `faults` and `kill` about disks that fail and processes that end, `far` about databases that are slow to answer,
//! `denied` about what they refuse and how their administrators set them up.

mod denied;
mod direct;
mod entries;
mod far;
mod faults;
mod kill;
mod migrations;
mod model;
mod suite;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use api::{Entry, Order, Policy, Server, WhenAllDown};
use rusqlite::Connection;
use rusqlite::types::FromSql;

use self::faults::stranger;
use crate::apply::FORGETFUL;
use crate::embedded::{Embedded, LOG_COMMITS_MAX};
use crate::{Change, CommitError, Contents, GENERATIONS_KEPT, OpenError, Store};

/// A folder that is gone when the test is.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pointsman-store-{}-{count}", std::process::id()));
        // What a killed run with the same process id has left.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a temporary folder");
        Folder(path.canonicalize().expect("it exists"))
    }

    fn database(&self) -> PathBuf {
        self.0.join("pointsman.db")
    }

    fn url(&self) -> String {
        url(&self.database())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

fn open(folder: &Folder) -> Embedded {
    Embedded::open(&folder.url()).expect("opens")
}

/// What a query on the store's own connection finds, by its first column.
async fn found<T: FromSql>(store: &Embedded, text: &str) -> Vec<T> {
    column(&store.connection.lock().await.as_ref().expect("connected").sql, text)
}

/// What a query finds, by its first column.
fn column<T: FromSql>(sql: &Connection, text: &str) -> Vec<T> {
    let mut query = sql.prepare(text).expect("a query");
    let rows = query.query_map([], |row| row.get(0)).expect("it is made");
    rows.collect::<Result<_, _>>().expect("values of that type")
}

fn zone(origin: &str, text: &str) -> Change {
    Change::PutZone { origin: origin.into(), text: text.into() }
}

pub(crate) fn region(id: u32, name: &str) -> Change {
    Change::AddRegion { id, name: name.into() }
}

/// A policy with two servers, the first with an entry for each of `regions`.
pub(crate) fn policy(names: &[&str], regions: &[&str]) -> Policy {
    let entry = |probability, ttl| Entry { probability, ttl };
    let server = |address: &str, default, regions: &[&str]| Server {
        target: address.parse().expect("an address or a name"),
        probe: address.contains(':').then(|| "web".into()),
        default,
        regions: regions.iter().map(|name| ((*name).to_owned(), entry(Some(0.75), Some(60)))).collect(),
    };
    Policy {
        answers: 1,
        order: Order::Rotate,
        when_all_down: WhenAllDown::Empty,
        partition: "default".into(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        servers: vec![
            server("2001:db8::1", entry(Some(0.5), None), regions),
            server("192.0.2.1", entry(None, Some(30)), &[]),
        ],
    }
}

fn refused(result: Result<u64, CommitError>) -> (usize, String) {
    match result {
        Err(CommitError::Refused { change, what }) => (change, what),
        other => panic!("{other:?} where a refusal was expected"),
    }
}

#[tokio::test]
async fn a_new_store_is_empty_private_and_syncs() {
    let folder = Folder::new();
    let store = open(&folder);
    assert_eq!(store.load().await, Ok(Contents::default()));
    store.commit(0, &[zone("example.", "text")]).await.unwrap();
    for ending in ["", "-wal", "-shm", ".lock"] {
        let path = format!("{}{ending}", folder.database().display());
        let mode = fs::metadata(&path).unwrap_or_else(|e| panic!("{path}: {e}")).permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{path}");
    }

    assert_eq!(found::<String>(&store, "PRAGMA journal_mode").await, ["wal"]);
    for (setting, value) in
        [("synchronous", 2), ("foreign_keys", 1), ("busy_timeout", 5_000), ("wal_autocheckpoint", 4_096)]
    {
        assert_eq!(found::<i64>(&store, &format!("PRAGMA {setting}")).await, [value], "{setting}");
    }
    // What `.cargo/config.toml` says of it has been heeded; whether fdatasync is taken SQLite does not tell.
    let compiled: Vec<String> = found(&store, "PRAGMA compile_options").await;
    assert!(compiled.contains(&"DEFAULT_MEMSTATUS=0".into()), "{compiled:?}");
    assert!(!compiled.contains(&"ENABLE_MEMORY_MANAGEMENT".into()), "{compiled:?}");
}

#[tokio::test]
async fn the_reference_lists_every_column() {
    let reference = include_str!("../../../../docs/reference/store.md");
    let folder = Folder::new();
    let store = open(&folder);
    let columns = "SELECT t.name || '.' || c.name FROM sqlite_master t, pragma_table_info(t.name) c
                    WHERE t.type = 'table' AND t.name NOT LIKE '\\_%' ESCAPE '\\'";
    let columns: Vec<String> = found(&store, columns).await;
    assert!(columns.len() > 20, "{columns:?}");
    let section = |table: &str| {
        let (_, rest) = reference.split_once(&format!("\n## `{table}`\n"))?;
        Some(rest.split("\n## ").next().unwrap_or(rest))
    };
    for (table, column) in columns.iter().map(|named| named.split_once('.').expect("two names")) {
        let section = section(table).unwrap_or_else(|| panic!("no section on {table}"));
        assert!(section.contains(&format!("\n| `{column}` |")), "{table}.{column}");
    }
    let told = reference.lines().filter(|line| line.starts_with("| `") && !line.contains("`PATH")).count();
    assert_eq!(told, columns.len(), "a column that is told is not there");
}

#[tokio::test]
async fn a_zone_of_a_megabyte_is_stored_small() {
    let folder = Folder::new();
    let store = open(&folder);
    let text: String = (0..40_000).map(|i| format!("host{i} 3600 IN A 192.0.2.{}\n", i % 256)).collect();
    assert!(text.len() > 1 << 20);
    store.commit(0, &[zone("example.com.", &text)]).await.unwrap();
    assert_eq!(store.load().await.unwrap().zones["example.com."], text);
    let size: i64 = found(&store, "SELECT length(text) FROM zone").await[0];
    assert!(size < 1 << 19, "{size} bytes");
}

#[tokio::test]
async fn generations_are_described() {
    let folder = Folder::new();
    let store = open(&folder);
    store.commit(0, &[zone("a.", ""), region(1, "europe")]).await.unwrap();
    let what: Vec<String> = found(&store, "SELECT what FROM generation").await;
    assert_eq!(what, ["zone a. put; region 1 (europe) added"]);
}

#[tokio::test]
async fn the_oldest_generations_are_forgotten_now_and_then() {
    let folder = Folder::new();
    let store = open(&folder);
    store.commit(0, &[]).await.unwrap();
    // The next but one is one of those that forget.
    let last = (GENERATIONS_KEPT / FORGETFUL + 2) * FORGETFUL - 2;
    let sql = stranger(&folder.database());
    sql.execute("INSERT INTO generation (number, at, what) VALUES (?, 0, '')", [last]).unwrap();
    for (based_on, oldest) in [(last, 1), (last + 1, last), (last + 2, last)] {
        store.commit(based_on.cast_unsigned(), &[]).await.unwrap();
        let kept: Vec<i64> = column(&sql, "SELECT min(number) FROM generation");
        assert_eq!(kept, [oldest], "after {based_on}");
    }
}

#[tokio::test]
async fn the_log_is_brought_home_when_it_has_grown_long() {
    let folder = Folder::new();
    let store = open(&folder);
    // What a copy of the database alone has.
    let home = || {
        let copy = folder.0.join("copy.db");
        fs::copy(folder.database(), &copy).expect("it is copied");
        let sql = Connection::open(&copy).expect("connects");
        sql.query_row("SELECT max(number) FROM generation", [], |row| row.get::<_, i64>(0)).ok()
    };
    for generation in 0..u64::from(LOG_COMMITS_MAX) - 1 {
        store.commit(generation, &[zone("a.", &generation.to_string())]).await.unwrap();
        store.tidy().await.unwrap();
    }
    assert_eq!(home(), None, "nothing before it is long");
    store.commit(u64::from(LOG_COMMITS_MAX) - 1, &[]).await.unwrap();
    assert_eq!(home(), None, "nothing while somebody waits");
    store.tidy().await.unwrap();
    assert_eq!(home(), Some(i64::from(LOG_COMMITS_MAX)));
    store.commit(u64::from(LOG_COMMITS_MAX), &[]).await.unwrap();
    store.tidy().await.unwrap();
    assert_eq!(home(), Some(i64::from(LOG_COMMITS_MAX)), "it is not long any more");
}

#[tokio::test]
async fn owners_that_were_changed_stand_beside_a_zone_until_they_are_long() {
    let folder = Folder::new();
    let store = open(&folder);
    let before: String = (0..9_000).map(|i| format!("h{i}.a. 60 IN A 192.0.2.{}\n", i % 256)).collect();
    store.commit(0, &[zone("a.", &before), zone("b.", "b. x\n")]).await.unwrap();
    let change = |owners: std::ops::Range<u32>| {
        let line = |i| format!("h{i}.a. 60 IN AAAA 2001:db8::{i:x}\n");
        let owners = owners.map(|i| (format!("h{i}.a."), if i % 3 > 0 { line(i) } else { String::new() }));
        Change::ChangeZone { origin: "a.".into(), owners: owners.collect() }
    };
    let beside = async || found::<i64>(&store, "SELECT count(*) FROM zone_owner").await[0];
    let whole = async || store.load().await.unwrap().zones["a."].lines().count();
    let mut generation = 1;
    // A few again and again, as an ACME client does, are a few.
    for _ in 0..LOG_COMMITS_MAX {
        generation = store.commit(generation, &[change(0..3)]).await.unwrap();
    }
    store.tidy().await.unwrap();
    assert_eq!((beside().await, whole().await), (3, 8_999));
    generation = store.commit(generation, &[change(0..9_000)]).await.unwrap();
    assert_eq!((beside().await, whole().await), (9_000, 6_000));
    for _ in 0..LOG_COMMITS_MAX {
        generation = store.commit(generation, &[change(0..1)]).await.unwrap();
    }
    store.tidy().await.unwrap();
    assert_eq!((beside().await, whole().await), (0, 6_000), "it is in the text");
    generation = store.commit(generation, &[change(1..2), zone("a.", "a. y\n")]).await.unwrap();
    assert_eq!((beside().await, whole().await), (0, 1), "a zone that is put is put whole");
    let other = Change::ChangeZone { origin: "c.".into(), owners: Default::default() };
    let refused = store.commit(generation, &[other]).await.expect_err("there is none");
    assert!(refused.to_string().contains("there is no zone c."), "{refused}");
}

#[tokio::test]
async fn only_one_opener_at_a_time() {
    let folder = Folder::new();
    let store = open(&folder);
    // By a link, too: it is the file that counts.
    let link = folder.0.join("link.db");
    std::os::unix::fs::symlink(folder.database(), &link).unwrap();
    for url in [folder.url(), url(&link)] {
        match Store::open(&url).await {
            Err(OpenError::InUse { pid, .. }) => assert_eq!(pid, Some(std::process::id()), "{url}"),
            other => panic!("{url}: {other:?}"),
        }
    }
    // The refused ones have not harmed the first.
    store.commit(0, &[zone("a.", "")]).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(open(&folder).load().await.unwrap().generation, 1);
}

#[tokio::test]
async fn a_link_to_nowhere_is_told_as_one() {
    let folder = Folder::new();
    let link = folder.0.join("link.db");
    std::os::unix::fs::symlink("/nowhere/pointsman.db", &link).unwrap();
    let Err(error) = Store::open(&url(&link)).await else { panic!("there is nothing to open") };
    let said = error.to_string();
    assert!(said.contains("it is a link to /nowhere/pointsman.db, where nothing is"), "{said}");
    assert!(link.read_link().is_ok(), "the link stays");
}

#[tokio::test]
async fn urls_that_are_not_supported_say_what_is() {
    for url in ["", "pointsman.db", "oracle://localhost/x", "sqlite", "sqlite:", "sqlite::memory:"] {
        match Store::open(url).await {
            Err(error @ OpenError::Unsupported { .. }) => {
                assert!(error.to_string().contains("write sqlite:PATH"), "{error}");
            }
            other => panic!("{url}: {other:?}"),
        }
    }
}
