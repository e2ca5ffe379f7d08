//! What goes wrong around a store: files, disks, other programs.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use std::sync::Arc;

use rusqlite::Connection;

use super::{Folder, open, url, zone};
use crate::embedded::Embedded as Store;
use crate::{Change, CommitError, OpenError, StoreError};

/// A connection as another program would make it.
pub(super) fn stranger(path: &Path) -> Connection {
    Connection::open(path).expect("connects")
}

/// Has the store connect anew, with more of a setup.
fn set_up(store: &mut Store, more: &str) {
    Arc::get_mut(&mut store.place).expect("nobody asks the store").setup.push_str(more);
    store.connection = Arc::default();
}

fn open_error(path: &Path) -> OpenError {
    match Store::open(&url(path)) {
        Ok(_) => panic!("{} opens", path.display()),
        Err(error) => error,
    }
}

#[tokio::test]
async fn paths_that_cannot_hold_a_store_are_told() {
    let folder = Folder::new();
    let error = open_error(&folder.0.join("no/such.db"));
    assert!(matches!(error, OpenError::NoFolder { .. }), "{error}");
    assert!(error.to_string().contains(&format!("no folder {}/no;", folder.0.display())), "{error}");

    let error = open_error(&folder.0);
    assert!(matches!(error, OpenError::NotAStore { .. }), "{error}");

    let file = folder.0.join("file");
    fs::write(&file, "").unwrap();
    let error = open_error(&file.join("x.db"));
    assert!(matches!(error, OpenError::NotAStore { .. }), "{error}");

    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o500)).unwrap();
    // Nothing is forbidden to root, who runs many a test.
    let check = || Store::check_rights(&folder.url());
    if fs::write(folder.0.join("probe"), "").is_err() {
        for error in [open_error(&folder.database()), check().unwrap_err()] {
            assert!(matches!(error, OpenError::Permission { .. }), "{error}");
        }
    }
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o700)).unwrap();
    assert!(check().is_ok() && !folder.database().exists());
}

#[tokio::test]
async fn what_is_not_a_store_is_left_as_it_is() {
    let folder = Folder::new();
    let text = folder.0.join("text");
    fs::write(&text, "some notes\n".repeat(1_000)).unwrap();
    let before = fs::read(&text).unwrap();
    let error = open_error(&text);
    assert!(matches!(error, OpenError::NotAStore { .. }), "{error}");
    assert_eq!(fs::read(&text).unwrap(), before);

    let foreign = folder.0.join("foreign");
    stranger(&foreign).execute_batch("CREATE TABLE notes (x)").unwrap();
    let before = fs::read(&foreign).unwrap();
    let error = open_error(&foreign);
    assert!(matches!(error, OpenError::NotAStore { .. }), "{error}");
    assert_eq!(fs::read(&foreign).unwrap(), before);
}

#[tokio::test]
async fn a_newer_store_is_refused() {
    let folder = Folder::new();
    open(&folder).close().await.unwrap();
    let later = "INSERT INTO _sqlx_migrations VALUES (99, 'later', 0, TRUE, x'00', 0)";
    stranger(&folder.database()).execute_batch(later).unwrap();
    let error = open_error(&folder.database());
    assert!(matches!(error, OpenError::Newer { found: 99, copy: None, .. }), "{error}");
}

#[tokio::test]
async fn a_locked_store_says_so_and_goes_on_afterwards() {
    let folder = Folder::new();
    let mut store = open(&folder);
    // Waiting for real would only slow the test down.
    set_up(&mut store, "; PRAGMA busy_timeout = 0");
    let sql = stranger(&folder.database());
    sql.execute_batch("BEGIN IMMEDIATE").unwrap();

    let locked = StoreError::Locked { path: folder.database() };
    for _ in 0..2 {
        assert_eq!(store.check().await, Err(locked.clone()));
        let result = store.commit(0, &[zone("a.", "")]).await;
        assert_eq!(result, Err(CommitError::Store(locked.clone())));
        assert_eq!(store.load().await.unwrap().generation, 0, "reading goes on");
    }
    sql.execute_batch("ROLLBACK").unwrap();
    assert_eq!(store.check().await, Ok(()));
    assert_eq!(store.commit(0, &[zone("a.", "")]).await, Ok(1));
}

#[tokio::test]
async fn a_call_that_does_not_end_makes_the_check_say_so() {
    let folder = Folder::new();
    let store = open(&folder);
    let running = store.connection.lock().await;
    tokio::time::pause();
    assert_eq!(store.check().await, Err(StoreError::Slow { path: folder.database() }));
    tokio::time::resume();
    drop(running);
    assert_eq!(store.check().await, Ok(()));
}

#[tokio::test]
async fn a_full_disk_changes_nothing_and_is_survived() {
    let folder = Folder::new();
    let mut store = open(&folder);
    store.commit(0, &[zone("a.", "first")]).await.unwrap();
    let before = store.load().await.unwrap();
    set_up(&mut store, "; PRAGMA max_page_count = 60");

    // Numbers without a pattern, which do not compress.
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 8
    };
    let large: String = (0..100_000).map(|_| format!("{:x}\n", next())).collect();
    let full = Err(CommitError::Store(StoreError::Full { path: folder.database() }));
    for _ in 0..2 {
        let changes = [zone("b.", "small"), zone("a.", &large)];
        assert_eq!(store.commit(1, &changes).await, full);
        assert_eq!(store.load().await.as_ref(), Ok(&before));
    }
    // What still fits goes in, and the rest as soon as there is room.
    assert_eq!(store.commit(1, &[zone("b.", "small")]).await, Ok(2));
    set_up(&mut store, "; PRAGMA max_page_count = 100000");
    assert_eq!(store.commit(2, &[zone("a.", &large)]).await, Ok(3));
    assert_eq!(store.load().await.unwrap().zones["a."], large);
}

#[tokio::test]
async fn a_deleted_or_replaced_file_is_noticed_before_anything_is_written_to_it() {
    let folder = Folder::new();
    let store = open(&folder);
    store.commit(0, &[zone("a.", "")]).await.unwrap();
    let aside = folder.0.join("aside");
    let gone = StoreError::Gone { path: folder.database() };

    fs::rename(folder.database(), &aside).unwrap();
    assert_eq!(store.check().await, Err(gone.clone()));
    assert_eq!(store.commit(1, &[]).await, Err(CommitError::Store(gone.clone())));
    fs::copy(&aside, folder.database()).unwrap();
    assert_eq!(store.check().await, Err(gone.clone()));
    assert_eq!(store.commit(1, &[]).await, Err(CommitError::Store(gone.clone())));
    assert_eq!(store.load().await, Err(gone));

    fs::rename(&aside, folder.database()).unwrap();
    assert_eq!(store.check().await, Ok(()));
    assert_eq!(store.commit(1, &[zone("b.", "")]).await, Ok(2));
}

#[tokio::test]
async fn a_deleted_log_is_noticed_and_what_it_held_is_kept() {
    let folder = Folder::new();
    let store = open(&folder);
    store.commit(0, &[zone("a.", "text")]).await.unwrap();
    let log = folder.0.join("pointsman.db-wal");
    fs::remove_file(&log).unwrap();
    let gone = StoreError::Gone { path: log };
    for _ in 0..2 {
        assert_eq!(store.commit(1, &[zone("b.", "")]).await, Err(CommitError::Store(gone.clone())));
        assert_eq!(store.check().await, Err(gone.clone()));
    }
    // A process that was killed now would leave the database alone behind, and that suffices.
    let copy = folder.0.join("copy.db");
    fs::copy(folder.database(), &copy).unwrap();
    store.close().await.unwrap();
    for path in [copy, folder.database()] {
        let store = Store::open(&url(&path)).unwrap();
        assert_eq!(store.load().await.unwrap().zones.len(), 1, "{}", path.display());
        assert_eq!(store.commit(1, &[zone("b.", "")]).await, Ok(2));
    }
}

#[tokio::test]
async fn damage_is_told_with_its_place() {
    let folder = Folder::new();
    let store = open(&folder);
    let changes = [
        super::region(1, "europe"),
        zone("a.", "text"),
        Change::PutPolicy(super::policy(&["www.", "b."], &["europe"]).into()),
    ];
    store.commit(0, &changes).await.unwrap();
    let good = store.load().await.unwrap();
    for (damage, repair, words) in [
        ("UPDATE zone SET text = x'ffffffff00'", "", "the text of zone a.: claims 4294967295 bytes"),
        ("DELETE FROM zone; INSERT INTO zone VALUES ('a.', x'04')", "", "the text of zone a.:"),
        ("UPDATE policy_server SET address = 'here' WHERE position = 1", "", "'here' in policy_server"),
        ("DELETE FROM policy_name WHERE position = 0", "", "no name at position 0"),
        ("DELETE FROM policy_name", "", "a policy has no name"),
        ("UPDATE region SET removed_in = 1", "", "region 1, not in use"),
        ("INSERT INTO server VALUES ('nowhere', 1)", "DELETE FROM server", "'nowhere' in server"),
    ] {
        let sql = stranger(&folder.database());
        sql.execute_batch(damage).unwrap();
        match store.load().await {
            Err(StoreError::Corrupt { what, .. }) => assert!(what.contains(words), "{damage}: {what}"),
            other => panic!("{damage}: {other:?}"),
        }
        // Putting everything back by the API is a way out.
        sql.execute_batch("UPDATE region SET removed_in = NULL; DELETE FROM policy").unwrap();
        sql.execute_batch(repair).unwrap();
        sql.execute_batch("DELETE FROM generation").unwrap();
        drop(sql);
        assert_eq!(store.commit(0, &changes[1..]).await, Ok(1), "{damage}");
        assert_eq!(store.load().await.as_ref(), Ok(&good), "{damage}");
    }
}

#[tokio::test]
async fn which_generation_there_is_is_known_without_what_it_has() {
    let folder = Folder::new();
    let store = open(&folder);
    assert_eq!(store.generation().await, Ok(0));
    store.commit(0, &[zone("a.", "text")]).await.unwrap();
    stranger(&folder.database()).execute_batch("UPDATE zone SET text = x'ff'").unwrap();
    assert_eq!(store.generation().await, Ok(1));
    store.close().await.unwrap();
    let store = crate::Store::open(&folder.url()).await.unwrap();
    assert_eq!(store.has_published(1).await, Ok(true));
    assert_eq!(store.has_published(2).await, Ok(false));
}

#[tokio::test]
async fn overwritten_pages_are_an_error_and_no_panic() {
    let mut told = 0;
    for page in 0..12 {
        let folder = Folder::new();
        let store = open(&folder);
        let zones: Vec<Change> = (0..40).map(|i| zone(&format!("z{i}."), &"text ".repeat(i))).collect();
        store.commit(0, &zones).await.unwrap();
        store.close().await.unwrap();
        let mut file = fs::OpenOptions::new().write(true).open(folder.database()).unwrap();
        file.seek(SeekFrom::Start(page * 4_096)).unwrap();
        file.write_all(&[0x5a; 4_096]).unwrap();
        drop(file);

        let error = match Store::open(&folder.url()) {
            Ok(store) => store.load().await.err().map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(error) = error {
            told += 1;
            assert!(error.contains("pointsman.db"), "page {page}: {error}");
        }
        assert!(page != 0 || told == 1, "the first page says what the file is");
    }
    // Pages of indexes that nothing reads may be damaged unseen.
    assert!(told >= 4, "{told} of 12 damaged pages were told");
}
