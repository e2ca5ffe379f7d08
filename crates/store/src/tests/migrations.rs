//! Stores of older and newer programs.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::{Folder, open, policy, region, zone};
use crate::schema::{VERSIONS, Version};
use crate::{Contents, Migrated, OpenError, Store};

/// The versions of a program after this one: it has a table more, or cannot make it.
fn next(sql: &'static str) -> Vec<Version> {
    VERSIONS.iter().copied().chain([(2, "more", sql)]).collect()
}

/// A store of this program with something of everything.
async fn filled(folder: &Folder) -> Contents {
    let store = open(folder).await;
    assert_eq!(store.migrated(), None, "a new store is nobody's");
    let policy = crate::Change::PutPolicy(policy(&["www.example."], &["europe"]));
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
    let copy = folder.0.join("pointsman.db.version-1");
    // What another upgrade left goes.
    fs::write(&copy, "old").expect("writes");
    fs::write(folder.0.join("pointsman.db.version-1.part"), "half").expect("writes");

    let versions = next("CREATE TABLE more (id INTEGER)");
    let store = Store::open_at(&folder.url(), &versions).await.expect("migrates");
    assert_eq!(store.migrated(), Some(&Migrated { from: 1, to: 2, copy: copy.clone() }));
    assert_eq!(store.load().await.expect("loads"), contents);
    store.commit(1, &[zone("example.net.", "another")]).await.expect("commits");
    store.close().await.expect("closes");
    let store = Store::open_at(&folder.url(), &versions).await.expect("opens");
    assert_eq!(store.migrated(), None, "once is enough");
    store.close().await.expect("closes");

    // The older program refuses what it does not know, and takes the copy.
    let refused = Store::open(&folder.url()).await.expect_err("it is newer");
    let OpenError::Newer { found: 2, known: 1, copy: Some(kept), .. } = &refused else {
        panic!("{refused}");
    };
    assert_eq!(kept, &copy);
    assert!(refused.to_string().ends_with(&format!("from before: {}", copy.display())), "{refused}");
    assert_eq!(fs::metadata(&copy).expect("it is there").permissions().mode() & 0o777, 0o600);
    fs::rename(&copy, folder.database()).expect("it takes the store's place");
    let store = open(&folder).await;
    assert_eq!(store.load().await.expect("loads"), contents);
    store.close().await.expect("closes");
}

#[tokio::test]
async fn a_migration_that_fails_changes_nothing() {
    let folder = Folder::new();
    let contents = filled(&folder).await;
    let versions = next("CREATE TABLE more (id INTEGER); CREATE TABLE zone (again INTEGER)");
    Store::open_at(&folder.url(), &versions).await.expect_err("the table is there already");
    assert!(folder.0.join("pointsman.db.version-1").exists(), "the copy came first");
    let store = open(&folder).await;
    assert_eq!(store.load().await.expect("loads"), contents);
    store.close().await.expect("closes");
}

#[tokio::test]
async fn a_store_that_cannot_be_copied_is_not_migrated() {
    let folder = Folder::new();
    let contents = filled(&folder).await;
    fs::create_dir(folder.0.join("pointsman.db.version-1.part")).expect("a folder in its place");
    let versions = next("CREATE TABLE more (id INTEGER)");
    let refused = Store::open_at(&folder.url(), &versions).await.expect_err("there is no place for a copy");
    assert!(refused.to_string().contains("version-1.part"), "{refused}");
    assert_eq!(open(&folder).await.load().await.expect("loads"), contents);
}
