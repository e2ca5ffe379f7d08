//! Tests on real databases in folders of their own.

mod faults;
mod kill;
mod migrations;
mod model;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use api::{Entry, Order, Policy, Server, WhenAllDown};
use sqlx::{query, query_scalar};

use crate::{Change, CommitError, Contents, GENERATIONS_KEPT, Held, OpenError, Store, Verdict};

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

async fn open(folder: &Folder) -> Store {
    Store::open(&folder.url()).await.expect("opens")
}

fn zone(origin: &str, text: &str) -> Change {
    Change::PutZone { origin: origin.into(), text: text.into() }
}

fn region(id: u32, name: &str) -> Change {
    Change::AddRegion { id, name: name.into() }
}

/// A policy with two servers, the first with an entry for each of `regions`.
fn policy(names: &[&str], regions: &[&str]) -> Policy {
    let entry = |probability, ttl| Entry { probability, ttl };
    let server = |address: &str, default, regions: &[&str]| Server {
        address: address.parse().expect("an address"),
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
async fn verdicts_are_remembered_beside_the_generations() {
    let folder = Folder::new();
    let store = open(&folder).await;
    store.commit(0, &[zone("example.", "text")]).await.unwrap();
    let held_of = |held: Option<(bool, u64)>| held.map(|(failing, since)| Held { failing, since });
    let verdict = |last: u8, probe: &str, held| Verdict {
        server: [192, 0, 2, last].into(),
        probe: probe.into(),
        held: held_of(held),
    };
    let many: Vec<Verdict> = (0..=255).map(|last| verdict(last, "many", Some((true, 1)))).collect();
    for (verdicts, server, probe, expected) in [
        (
            vec![verdict(1, "web", Some((true, 7))), verdict(1, "mail", Some((false, 8)))],
            1,
            "web",
            Some((true, 7)),
        ),
        (vec![verdict(1, "web", Some((false, 9)))], 1, "web", Some((false, 9))),
        (vec![verdict(1, "web", None), verdict(2, "web", None)], 1, "web", None),
        (many, 255, "many", Some((true, 1))),
    ] {
        store.remember(&verdicts).await.unwrap();
        let contents = store.load().await.unwrap();
        let key = ([192, 0, 2, server].into(), probe.to_string());
        assert_eq!((contents.generation, contents.health.get(&key).copied()), (1, held_of(expected)));
        assert_eq!(
            contents.health[&([192, 0, 2, 1].into(), "mail".to_string())],
            Held { failing: false, since: 8 }
        );
    }
    store.close().await.unwrap();
    assert_eq!(open(&folder).await.load().await.unwrap().health.len(), 257);
}

#[tokio::test]
async fn a_new_store_is_empty_private_and_syncs() {
    let folder = Folder::new();
    let store = open(&folder).await;
    assert_eq!(store.load().await, Ok(Contents::default()));
    store.commit(0, &[zone("example.", "text")]).await.unwrap();
    for ending in ["", "-wal", "-shm", ".lock"] {
        let path = format!("{}{ending}", folder.database().display());
        let mode = fs::metadata(&path).unwrap_or_else(|e| panic!("{path}: {e}")).permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{path}");
    }

    let mut slot = store.connection.lock().await;
    let sql = &mut slot.as_mut().expect("connected").sql;
    let synchronous: i64 = query_scalar("PRAGMA synchronous").fetch_one(&mut *sql).await.unwrap();
    let journal: String = query_scalar("PRAGMA journal_mode").fetch_one(&mut *sql).await.unwrap();
    let foreign_keys: i64 = query_scalar("PRAGMA foreign_keys").fetch_one(&mut *sql).await.unwrap();
    let busy_timeout: i64 = query_scalar("PRAGMA busy_timeout").fetch_one(&mut *sql).await.unwrap();
    assert_eq!((synchronous, journal.as_str(), foreign_keys, busy_timeout), (2, "wal", 1, 5_000));
}

#[tokio::test]
async fn the_reference_lists_every_column() {
    let reference = include_str!("../../../../docs/reference/store.md");
    let folder = Folder::new();
    let store = open(&folder).await;
    let mut slot = store.connection.lock().await;
    let columns: Vec<(String, String)> = sqlx::query_as(
        "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c
          WHERE t.type = 'table' AND t.name NOT LIKE '\\_%' ESCAPE '\\'",
    )
    .fetch_all(&mut slot.as_mut().expect("connected").sql)
    .await
    .unwrap();
    assert!(columns.len() > 20, "{columns:?}");
    let section = |table: &str| {
        let (_, rest) = reference.split_once(&format!("\n## `{table}`\n"))?;
        Some(rest.split("\n## ").next().unwrap_or(rest))
    };
    for (table, column) in &columns {
        let section = section(table).unwrap_or_else(|| panic!("no section on {table}"));
        assert!(section.contains(&format!("\n| `{column}` |")), "{table}.{column}");
    }
    let told = reference.lines().filter(|line| line.starts_with("| `") && !line.contains("`PATH")).count();
    assert_eq!(told, columns.len(), "a column that is told is not there");
}

#[tokio::test]
async fn everything_is_there_after_reopening() {
    let folder = Folder::new();
    let store = open(&folder).await;
    let changes = [
        zone("example.com.", "@ SOA . . 1 2 3 4 5\n"),
        zone(".", ""),
        region(1, "europe"),
        region(2, "asia"),
        Change::PutPartition { name: "default".into(), text: "192.0.2.0/24,europe\n".into() },
        Change::PutPolicy(policy(&["www.example.com.", "*.example.com."], &["europe", "asia"])),
        Change::SetServer { address: "192.0.2.1".parse().unwrap(), up: false },
        Change::Imported { path: "/etc/example.zone".into(), digest: "abc".into() },
    ];
    assert_eq!(store.commit(0, &changes).await, Ok(1));
    let expected = Contents {
        generation: 1,
        zones: [("example.com.", "@ SOA . . 1 2 3 4 5\n"), (".", "")]
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .into(),
        regions: [(1, "europe".to_owned()), (2, "asia".to_owned())].into(),
        next_region_id: 3,
        partitions: [("default".to_owned(), "192.0.2.0/24,europe\n".to_owned())].into(),
        policies: vec![policy(&["www.example.com.", "*.example.com."], &["europe", "asia"])],
        servers: [("192.0.2.1".parse().unwrap(), false)].into(),
        health: BTreeMap::new(),
        imports: [("/etc/example.zone".to_owned(), "abc".to_owned())].into(),
    };
    assert_eq!(store.load().await.as_ref(), Ok(&expected));
    store.close().await.unwrap();

    // Three times, so that migrations meet what they have left.
    for _ in 0..3 {
        let store = open(&folder).await;
        assert_eq!(store.load().await.as_ref(), Ok(&expected));
        assert_eq!(store.check().await, Ok(()));
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_commit_based_on_another_generation_conflicts() {
    let folder = Folder::new();
    let store = open(&folder).await;
    let conflict = |current| Err(CommitError::Conflict { current });
    assert_eq!(store.commit(1, &[zone("a.", "")]).await, conflict(0));
    assert_eq!(store.commit(u64::MAX, &[zone("a.", "")]).await, conflict(0));
    assert_eq!(store.commit(0, &[zone("a.", "")]).await, Ok(1));
    assert_eq!(store.commit(0, &[zone("b.", "")]).await, conflict(1));
    assert_eq!(store.commit(1, &[]).await, Ok(2));
    let contents = store.load().await.unwrap();
    assert_eq!((contents.generation, contents.zones.len()), (2, 1));
}

#[tokio::test]
async fn one_of_many_concurrent_commits_wins_each_generation() {
    let folder = Folder::new();
    let store = std::sync::Arc::new(open(&folder).await);
    let tasks: Vec<_> = (0..20)
        .map(|i| {
            let store = store.clone();
            tokio::spawn(async move { store.commit(0, &[zone(&format!("z{i}."), "")]).await })
        })
        .collect();
    let mut won = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(generation) => won += generation,
            Err(CommitError::Conflict { current: 1 }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(won, 1);
    assert_eq!(store.load().await.unwrap().zones.len(), 1);
}

#[tokio::test]
async fn what_contradicts_the_store_is_refused_whole_and_told() {
    let folder = Folder::new();
    let store = open(&folder).await;
    let held = [
        region(1, "europe"),
        region(2, "asia"),
        Change::RemoveRegion { id: 2 },
        zone("example.com.", "text"),
        Change::PutPolicy(policy(&["www.example.com.", "a.example.com."], &["europe"])),
    ];
    store.commit(0, &held).await.unwrap();
    let before = store.load().await.unwrap();

    let with = |change: fn(&mut Policy)| {
        let mut policy = policy(&["new.example.com."], &["europe"]);
        change(&mut policy);
        Change::PutPolicy(policy)
    };
    for (change, words) in [
        (zone("Example.com.", ""), "zone_origin_is_absolute_and_lower_case"),
        (zone("example.com", ""), "zone_origin_is_absolute_and_lower_case"),
        (zone("", ""), "zone_origin_is_absolute_and_lower_case"),
        (Change::DeleteZone { origin: "other.".into() }, "there is no zone other."),
        (region(0, "none"), "region id 0 is or was in use; the next one is 3"),
        (region(2, "again"), "region id 2 is or was in use; the next one is 3"),
        (region(1 << 31, "far"), "region_id_is_from_1_to_2147483647"),
        (region(3, "europe"), "there already is a region 'europe'"),
        (region(3, ""), "region_name_has_1_to_255_characters"),
        (Change::RemoveRegion { id: 2 }, "there is no region 2"),
        (Change::RemoveRegion { id: 0 }, "there is no region 0"),
        (Change::DeletePartition { name: "x".into() }, "there is no partition x"),
        (Change::PutPartition { name: "".into(), text: "".into() }, "partition_name_has_1_to_255"),
        (Change::DeletePolicy { key: "a.example.com.".into() }, "there is no policy a.example.com."),
        (with(|p| p.names.clear()), "a policy needs a name"),
        (with(|p| p.names.push("WWW.".into())), "policy_name_is_absolute_and_lower_case"),
        (with(|p| p.names.push("a.example.com.".into())), "a.example.com. belongs to another policy"),
        (with(|p| p.names[0] = "a.example.com.".into()), "a.example.com. belongs to another policy"),
        (with(|p| p.names.push("new.example.com.".into())), "a name occurs twice"),
        (with(|p| p.servers[1] = p.servers[0].clone()), "policy_server.address"),
        (with(|p| p.servers[0].default.probability = Some(f64::NAN)), "a probability of NaN"),
        (with(|p| p.servers[0].default.probability = Some(f64::INFINITY)), "a probability of inf"),
        (with(|p| p.servers[0].default.probability = Some(-0.1)), "probability_is_finite_and_from_0"),
        (with(|p| p.servers[0].default.ttl = Some(1 << 31)), "policy_server_ttl_is_from_0_to_2147483647"),
        (with(|p| _ = p.servers[0].regions.insert("asia".into(), Entry::default())), "no region 'asia'"),
        (
            with(|p| p.servers[0].regions.get_mut("europe").unwrap().ttl = Some(u32::MAX)),
            "policy_row_ttl_is_from_0_to_2147483647",
        ),
        (
            with(|p| p.servers[0].regions.get_mut("europe").unwrap().probability = Some(f64::NAN)),
            "a probability of NaN",
        ),
    ] {
        let told = refused(store.commit(1, &[zone("first.", ""), change.clone()]).await);
        assert!(told.0 == 1 && told.1.contains(words), "{change:?}: {told:?}");
        assert_eq!(store.load().await.as_ref(), Ok(&before), "{change:?}");
    }
    // Refusals leave a connection that works.
    assert_eq!(store.commit(1, &[zone("first.", "")]).await, Ok(2));
}

#[tokio::test]
async fn a_policy_is_replaced_whole_and_found_by_its_first_name() {
    let folder = Folder::new();
    let store = open(&folder).await;
    let first = policy(&["www.", "a.", "b."], &["europe"]);
    store.commit(0, &[region(1, "europe"), Change::PutPolicy(first)]).await.unwrap();
    let mut second = policy(&["www.", "b.", "c."], &[]);
    second.servers.reverse();
    second.answers = 0;
    second.when_all_down = WhenAllDown::Answer;
    second.partition = "other".into();
    // A name that one policy gives up may go to another in the same commit.
    let third = policy(&["a."], &[]);
    let changes = [Change::PutPolicy(second.clone()), Change::PutPolicy(third.clone())];
    store.commit(1, &changes).await.unwrap();
    assert_eq!(store.load().await.unwrap().policies, [third.clone(), second]);
    store.commit(2, &[Change::DeletePolicy { key: "www.".into() }]).await.unwrap();
    assert_eq!(store.load().await.unwrap().policies, [third]);
}

#[tokio::test]
async fn a_policy_larger_than_one_statement_is_stored() {
    let folder = Folder::new();
    let store = open(&folder).await;
    let mut large = policy(&["www."], &[]);
    large.names.extend((0..1_234).map(|i| format!("n{i}.")));
    let template = policy(&["www."], &["europe"]).servers[0].clone();
    large.servers = (0..=255_u8)
        .flat_map(|a| (0..5_u8).map(move |b| [10, 0, b, a]))
        .map(|address| Server { address: address.into(), ..template.clone() })
        .collect();
    store.commit(0, &[region(1, "europe"), Change::PutPolicy(large.clone())]).await.unwrap();
    assert_eq!(store.load().await.unwrap().policies, [large]);
}

#[tokio::test]
async fn a_removed_region_takes_its_entries_and_its_id_along() {
    let folder = Folder::new();
    let store = open(&folder).await;
    let changes = [
        region(1, "europe"),
        region(2, "asia"),
        Change::PutPolicy(policy(&["www."], &["europe", "asia"])),
        Change::RemoveRegion { id: 2 },
    ];
    store.commit(0, &changes).await.unwrap();
    store.close().await.unwrap();

    let store = open(&folder).await;
    let contents = store.load().await.unwrap();
    assert_eq!(contents.next_region_id, 3);
    assert_eq!(contents.policies, [policy(&["www."], &["europe"])]);
    let (_, what) = refused(store.commit(1, &[region(2, "asia")]).await);
    assert!(what.contains("the next one is 3"), "{what}");
    // The name is free again; ids may skip; the same name may come and go within a commit.
    let again = [
        region(5, "asia"),
        Change::RemoveRegion { id: 5 },
        region(6, "asia"),
        Change::RemoveRegion { id: 6 },
    ];
    store.commit(1, &again).await.unwrap();
    let contents = store.load().await.unwrap();
    assert_eq!((contents.next_region_id, contents.regions.len()), (7, 1));
}

#[tokio::test]
async fn a_zone_of_a_megabyte_is_stored_small() {
    let folder = Folder::new();
    let store = open(&folder).await;
    let text: String = (0..40_000).map(|i| format!("host{i} 3600 IN A 192.0.2.{}\n", i % 256)).collect();
    assert!(text.len() > 1 << 20);
    store.commit(0, &[zone("example.com.", &text)]).await.unwrap();
    assert_eq!(store.load().await.unwrap().zones["example.com."], text);
    let mut slot = store.connection.lock().await;
    let size: i64 = query_scalar("SELECT length(text) FROM zone")
        .fetch_one(&mut slot.as_mut().expect("connected").sql)
        .await
        .unwrap();
    assert!(size < 1 << 19, "{size} bytes");
}

#[tokio::test]
async fn generations_are_described_and_the_oldest_forgotten() {
    let folder = Folder::new();
    let store = open(&folder).await;
    store.commit(0, &[zone("a.", ""), region(1, "europe")]).await.unwrap();
    let mut slot = store.connection.lock().await;
    let sql = &mut slot.as_mut().expect("connected").sql;
    let what: String = query_scalar("SELECT what FROM generation").fetch_one(&mut *sql).await.unwrap();
    assert_eq!(what, "zone a. put; region 1 (europe) added");
    query("INSERT INTO generation (number, at, what) VALUES (?, 0, '')")
        .bind(GENERATIONS_KEPT)
        .execute(sql)
        .await
        .unwrap();
    drop(slot);

    let last = GENERATIONS_KEPT.cast_unsigned();
    store.commit(last, &[]).await.unwrap();
    let mut slot = store.connection.lock().await;
    let sql = &mut slot.as_mut().expect("connected").sql;
    let kept: Vec<i64> =
        query_scalar("SELECT number FROM generation ORDER BY number").fetch_all(sql).await.unwrap();
    assert_eq!(kept, [GENERATIONS_KEPT, GENERATIONS_KEPT + 1], "generation 1 is forgotten");
}

#[tokio::test]
async fn only_one_opener_at_a_time() {
    let folder = Folder::new();
    let store = open(&folder).await;
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
    assert_eq!(open(&folder).await.load().await.unwrap().generation, 1);
}

#[tokio::test]
async fn a_cancelled_commit_happened_or_did_not() {
    let folder = Folder::new();
    let store = open(&folder).await;
    let mut cut = 0;
    for polls in 0.. {
        let before = store.load().await.unwrap();
        let name = format!("r{polls}");
        let changes = [
            region(before.next_region_id, &name),
            Change::PutPolicy(policy(&["www."], &[&name])),
            zone(&format!("z{polls}."), "text"),
        ];
        let mut commit = Box::pin(store.commit(before.generation, &changes));
        let mut left = polls;
        let done = std::future::poll_fn(|context| match commit.as_mut().poll(context) {
            std::task::Poll::Ready(result) => std::task::Poll::Ready(Some(result)),
            std::task::Poll::Pending if left == 0 => std::task::Poll::Ready(None),
            std::task::Poll::Pending => {
                left -= 1;
                std::task::Poll::Pending
            }
        })
        .await;
        drop(commit);
        if let Some(result) = done {
            assert_eq!(result, Ok(before.generation + 1));
            break;
        }
        cut += 1;
        // The next commit waits for what the cancelled one may still be doing, and tells which it was.
        let added = match store.commit(before.generation, &[]).await {
            Ok(_) => 0,
            Err(CommitError::Conflict { current }) if current == before.generation + 1 => 1,
            other => panic!("after {polls} polls: {other:?}"),
        };
        let after = store.load().await.unwrap();
        assert_eq!(after.zones.len(), before.zones.len() + added, "after {polls} polls");
        assert_eq!(after.regions.len(), before.regions.len() + added, "after {polls} polls");
    }
    assert!(cut > 0, "no commit was cancelled");
}

#[tokio::test]
async fn urls_that_are_not_supported_say_what_is() {
    for url in ["", "pointsman.db", "postgres://localhost/x", "sqlite", "sqlite:", "sqlite::memory:"] {
        match Store::open(url).await {
            Err(error @ OpenError::Unsupported { .. }) => {
                assert!(error.to_string().contains("write sqlite:PATH"), "{error}");
            }
            other => panic!("{url}: {other:?}"),
        }
    }
}
