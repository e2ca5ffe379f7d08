//! Stores of older and newer programs.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::{Folder, open, policy, region, zone};
use crate::embedded::Embedded as Store;
use crate::schema::{VERSIONS, Version};
use crate::{Change, Contents, Migrated, OpenError};

/// The versions of a program after this one: it has a table more, or cannot make it.
fn next(sql: &'static str) -> Vec<Version> {
    VERSIONS.iter().copied().chain([(LAST + 1, "more", sql)]).collect()
}

/// The version of this program's tables.
const LAST: i64 = VERSIONS[VERSIONS.len() - 1].0;

/// A store of this program with something of everything.
async fn filled(folder: &Folder) -> Contents {
    let store = open(folder);
    assert_eq!(store.migrated(), None, "a new store is nobody's");
    let policy = crate::Change::PutPolicy(policy(&["www.example."], &["europe"]).into());
    let changes = [zone("example.", "a zone"), region(1, "europe"), policy];
    store.commit(0, &changes).await.expect("commits");
    let contents = store.load().await.expect("loads");
    store.close().await.expect("closes");
    contents
}

#[tokio::test]
async fn an_older_store_is_migrated_and_a_copy_kept() {
    let folder = Folder::new();
    let contents = filled(&folder).await;
    let copy = folder.0.join(format!("pointsman.db.version-{LAST}"));
    // What another upgrade left goes.
    fs::write(&copy, "old").expect("writes");
    fs::write(folder.0.join(format!("pointsman.db.version-{LAST}.part")), "half").expect("writes");

    let versions = next("CREATE TABLE more (id INTEGER)");
    let peeked = Store::peek_at(&folder.url(), &versions).expect("reads");
    assert_eq!(peeked.as_ref(), Some(&contents), "as the next start has it");
    assert!(Store::peek_at(&folder.url(), VERSIONS).is_ok(), "nothing was changed");
    let store = Store::open_at(&folder.url(), &versions).expect("migrates");
    assert_eq!(store.migrated(), Some(&Migrated { from: LAST, to: LAST + 1, copy: copy.clone() }));
    assert_eq!(store.load().await.expect("loads"), contents);
    store.commit(1, &[zone("example.net.", "another")]).await.expect("commits");
    store.close().await.expect("closes");
    let store = Store::open_at(&folder.url(), &versions).expect("opens");
    assert_eq!(store.migrated(), None, "once is enough");
    store.close().await.expect("closes");

    // The older program refuses what it does not know, and takes the copy.
    let refused = Store::open(&folder.url()).expect_err("it is newer");
    let unread = Store::peek_at(&folder.url(), VERSIONS).expect_err("it is newer");
    assert!(matches!(unread, OpenError::Newer { .. }), "{unread}");
    let OpenError::Newer { found, known, copy: Some(kept), .. } = &refused else { panic!("{refused}") };
    assert_eq!((*found, *known), (LAST + 1, LAST));
    assert_eq!(kept, &copy);
    assert!(refused.to_string().ends_with(&format!("from before: {}", copy.display())), "{refused}");
    assert_eq!(fs::metadata(&copy).expect("it is there").permissions().mode() & 0o777, 0o600);
    fs::rename(&copy, folder.database()).expect("it takes the store's place");
    let store = open(&folder);
    assert_eq!(store.load().await.expect("loads"), contents);
    store.close().await.expect("closes");
}

#[tokio::test]
async fn a_migration_that_fails_changes_nothing() {
    let folder = Folder::new();
    let contents = filled(&folder).await;
    let versions = next("CREATE TABLE more (id INTEGER); CREATE TABLE zone (again INTEGER)");
    Store::open_at(&folder.url(), &versions).expect_err("the table is there already");
    assert!(folder.0.join(format!("pointsman.db.version-{LAST}")).exists(), "the copy came first");
    let store = open(&folder);
    assert_eq!(store.load().await.expect("loads"), contents);
    store.close().await.expect("closes");
}

#[tokio::test]
async fn a_store_that_cannot_be_copied_is_not_migrated() {
    let folder = Folder::new();
    let contents = filled(&folder).await;
    fs::create_dir(folder.0.join(format!("pointsman.db.version-{LAST}.part")))
        .expect("a folder in its place");
    let versions = next("CREATE TABLE more (id INTEGER)");
    let refused = Store::open_at(&folder.url(), &versions).expect_err("there is no place for a copy");
    assert!(refused.to_string().contains(&format!("version-{LAST}.part")), "{refused}");
    assert_eq!(open(&folder).load().await.expect("loads"), contents);
}

#[tokio::test]
async fn policies_of_the_first_tables_are_drawn_by_weight() {
    let folder = Folder::new();
    let store = Store::open_at(&folder.url(), &VERSIONS[..1]).expect("opens");
    let sql = r#"INSERT INTO policy (id, answers, when_all_down, "partition") VALUES (1, 1, 'empty', 'default');
        INSERT INTO policy_name VALUES (1, 0, 'www.example.');"#;
    store.connection.lock().await.as_ref().expect("connected").sql.execute_batch(sql).expect("inserts");
    store.close().await.expect("closes");
    let store = open(&folder);
    assert_eq!(store.load().await.expect("loads").policies[0].order, api::Order::Weighted);
}

#[tokio::test]
async fn a_store_of_the_first_version_keeps_all_it_had() {
    let folder = Folder::new();
    let store = Store::open_at(&folder.url(), &VERSIONS[..1]).expect("opens");
    let partition = Change::PutPartition { name: "default".into(), text: "192.0.2.0/24,europe\n".into() };
    store.commit(0, &[partition, region(1, "europe")]).await.expect("commits");
    {
        // A policy as the first program wrote it.
        let slot = store.connection.lock().await;
        let sql = &slot.as_ref().expect("connected").sql;
        for insert in [
            "INSERT INTO policy VALUES (1, 1, 'answer', 'default')",
            "INSERT INTO policy_name VALUES (1, 0, 'www.example.')",
            "INSERT INTO policy_server VALUES (1, 0, '192.0.2.1', 0.5, 30)",
            "INSERT INTO policy_row VALUES (1, '192.0.2.1', 1, NULL, 60)",
        ] {
            sql.execute_batch(insert).expect("inserts");
        }
    }
    store.close().await.expect("closes");

    let store = open(&folder);
    assert_eq!(store.migrated().map(|migrated| (migrated.from, migrated.to)), Some((1, LAST)));
    assert!(folder.0.join("pointsman.db.version-1").exists());
    let contents = store.load().await.expect("loads");
    assert_eq!((contents.generation, contents.partitions.len(), contents.regions.len()), (1, 1, 1));
    let server = &contents.policies[0].servers[0];
    assert_eq!(
        (server.probe.as_deref(), server.default.ttl, server.regions["europe"].ttl),
        (None, Some(30), Some(60))
    );
    let mut policy = contents.policies[0].clone();
    policy.servers[0].probe = Some("web".into());
    store.commit(1, &[Change::PutPolicy(policy.clone().into())]).await.expect("commits");
    assert_eq!(store.load().await.expect("loads").policies, [policy]);
    store.close().await.expect("closes");
}
