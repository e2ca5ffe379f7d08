//! The store in a file: one connection, one writer, one lock.
//!
//! SQLite runs on the thread that asks. A commit is some tens of statements of a microsecond each and the wait for the
//! disk, so that to hand it to another thread and back costs more than it does.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::apply;
use crate::change::{Change, now};
use crate::confirmed;
use crate::contents::{self, Contents, Corrupt};
use crate::error::{BUSY_TIMEOUT, CHECK_WAIT, CommitError, OpenError, StoreError};
use crate::file::{self, FileId, Lock};
use crate::health::{self, Verdict};
use crate::known::Known;
use crate::owners;
use crate::refused::Failure;
use crate::schema::{self, Migrated, Version};

/// How many statements a connection keeps prepared: more than this crate has.
const STATEMENTS_MAX: usize = 64;

/// How many pages are copied at once while others may write.
const COPIED_AT_ONCE: i32 = 4_096;

/// After how many commits the log is brought into the database while nobody waits: some 3 MiB of it, three pages each.
pub(crate) const LOG_COMMITS_MAX: u32 = 256;

/// From how many pages on SQLite brings the log into the database by itself, at the end of a commit, which then takes
/// several times as long: 16 MiB. It comes to that where commits are large or follow one another without a pause.
const LOG_PAGES_MAX: u32 = 4_096;

/// Everything that must survive, in one SQLite database that this process alone has open as a store.
///
/// Calls from several tasks wait for each other. A call whose future is dropped leaves the store as it
/// was before or, for a commit, as it is after, never between.
#[derive(Debug)]
pub(crate) struct Embedded {
    /// Absent after a call that failed or panicked: what state such a connection is in is not worth finding out, and
    /// the next call makes a new one.
    pub(crate) connection: Arc<Mutex<Option<Connected>>>,
    migrated: Option<Migrated>,
    /// Declared last, and therefore released last.
    pub(crate) place: Arc<Place>,
}

/// Where the database is, and how to connect to it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    /// What each connection begins with.
    pub(crate) setup: String,
    /// The file that was opened, which the path must still lead to.
    database: FileId,
    _lock: Lock,
}

/// A connection, the write-ahead log that it appends to, and what it has stored.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) sql: Connection,
    log: Option<FileId>,
    /// Since the log was last brought into the database.
    commits: u32,
    known: Known,
}

impl Embedded {
    /// Opens the store at `url`, which is `sqlite:PATH`, and brings its tables up to date.
    ///
    /// Tables of an older program are copied to `PATH.version-N` first, N being their version.
    ///
    /// A database that does not exist is created, readable for its owner only. `PATH.lock` tells a second
    /// process that it is too late; it stays behind, and being there means nothing.
    ///
    /// # Errors
    ///
    /// [`OpenError`] says which file, why, and what to do.
    pub(crate) fn open(url: &str) -> Result<Embedded, OpenError> {
        Embedded::open_at(url, schema::VERSIONS)
    }

    /// Opens it with tables of the last of these versions.
    pub(crate) fn open_at(url: &str, versions: &[Version]) -> Result<Embedded, OpenError> {
        let path = file::locate(url)?;
        let lock = file::lock(&path)?;
        file::create(&path)?;
        let database = FileId::of(&path).ok_or_else(|| StoreError::Gone { path: path.clone() })?;
        let setup = format!(
            "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA wal_autocheckpoint = {LOG_PAGES_MAX}; \
             PRAGMA busy_timeout = {}",
            BUSY_TIMEOUT.as_millis()
        );
        let place = Place { path, setup, database, _lock: lock };
        let sql = place.connect().map_err(|error| OpenError::sort(&place.path, &error))?;
        schema::recognise(&sql, &place.path)?;
        let mut connected = place.prepare(sql)?;
        let migrated = schema::migrate(&mut connected.sql, &place.path, versions)?;
        let connection = Arc::new(Mutex::new(Some(connected)));
        Ok(Embedded { connection, migrated, place: Arc::new(place) })
    }

    /// Reads what the store at `url` holds and changes nothing; `None` where there is none yet. What is an older program's is
    /// brought up to date in memory.
    ///
    /// # Errors
    ///
    /// [`OpenError`]; no lock is taken, so another process may have it open.
    pub(crate) fn peek(url: &str) -> Result<Option<Contents>, OpenError> {
        Embedded::peek_at(url, schema::VERSIONS)
    }

    /// Reads it by tables of the last of these versions.
    pub(crate) fn peek_at(url: &str, versions: &[Version]) -> Result<Option<Contents>, OpenError> {
        let path = file::locate(url)?;
        if FileId::of(&path).is_none() {
            return Ok(None);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let sort = |error: rusqlite::Error| OpenError::sort(&path, &error);
        let mut sql = Connection::open_with_flags(&path, flags).map_err(sort)?;
        sql.busy_timeout(BUSY_TIMEOUT).map_err(sort)?;
        let Some(found) = schema::version(&sql, &path, versions)? else { return Ok(None) };
        if versions.last().is_some_and(|(last, ..)| found < *last) {
            let mut copy = Connection::open_in_memory().map_err(sort)?;
            let copied = Backup::new(&sql, &mut copy)
                .and_then(|backup| backup.run_to_completion(COPIED_AT_ONCE, Duration::ZERO, None));
            copied.and_then(|()| schema::bring_up(&mut copy, found, versions)).map_err(sort)?;
            sql = copy;
        }
        contents::load(&mut sql).map(Some).map_err(|failure| unloaded(&path, failure).into())
    }

    /// Sees whether the store at `url` could be opened with this process's rights, and makes nothing.
    ///
    /// # Errors
    ///
    /// [`OpenError`] of its path.
    pub(crate) fn check_rights(url: &str) -> Result<(), OpenError> {
        file::check(&file::locate(url)?)
    }

    /// What was done to the tables when they were opened, where they were an older program's.
    pub(crate) fn migrated(&self) -> Option<&Migrated> {
        self.migrated.as_ref()
    }

    /// Loads everything that is stored, as of one generation, on the thread that asks.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] where something cannot be what was stored, or another [`StoreError`].
    pub(crate) async fn load(&self) -> Result<Contents, StoreError> {
        let mut slot = self.connection.lock().await;
        let mut connected = self.place.take(&mut slot)?;
        let contents =
            contents::load(&mut connected.sql).map_err(|failure| unloaded(&self.place.path, failure))?;
        *slot = Some(connected);
        Ok(contents)
    }

    /// The current generation; 0 before the first.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub(crate) async fn generation(&self) -> Result<u64, StoreError> {
        let mut slot = self.connection.lock().await;
        let connected = self.place.take(&mut slot)?;
        let generation = contents::generation(&connected.sql).map_err(|error| self.place.sort(&error))?;
        *slot = Some(connected);
        Ok(generation.cast_unsigned())
    }

    /// Stores all of `changes` or none, as the generation after `based_on`, and returns its number once
    /// the disk has it. Until then the thread that asks is held up.
    ///
    /// One sync covers all of `changes`, so that a writer that gathers what has queued up behind it gets
    /// by with one for many.
    ///
    /// # Errors
    ///
    /// [`CommitError::Conflict`] unless `based_on` is the current generation, [`CommitError::Refused`] for
    /// the first change that contradicts what is stored, or a [`StoreError`], after which only a load tells whether the
    /// commit had happened.
    pub(crate) async fn commit(&self, based_on: u64, changes: &[Change]) -> Result<u64, CommitError> {
        let mut slot = self.connection.lock().await;
        let mut connected = self.place.take(&mut slot)?;
        let result = self.place.publish(&mut connected, based_on, changes);
        if matches!(result, Err(CommitError::Store(_))) {
            return result;
        }
        // Once more after the sync: what went to a file without a name must not be acknowledged.
        let still_there = self.place.still_there(&connected);
        *slot = Some(connected);
        still_there?;
        result
    }

    /// Does what need not be done while somebody waits, after some hundred commits: brings what stands beside zones' texts
    /// into them, and the log into the database. Until then the thread that asks is held up.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; nothing is lost by that, and it is tried again after as many commits.
    pub(crate) async fn tidy(&self) -> Result<(), StoreError> {
        let mut slot = self.connection.lock().await;
        let Some(connected) = slot.as_mut().filter(|connected| connected.commits >= LOG_COMMITS_MAX) else {
            return Ok(());
        };
        connected.commits = 0;
        let tidied = begin(&mut connected.sql).and_then(|transaction| {
            owners::tidy(&transaction)?;
            transaction.commit()
        });
        tidied.map_err(|error| self.place.sort(&error))?;
        let done = connected.sql.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        done.map_err(|error| self.place.sort(&error))
    }

    /// Stores what probes hold of servers, all of it or nothing; it is no generation's.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub(crate) async fn remember(&self, verdicts: &[Verdict]) -> Result<(), StoreError> {
        let verdicts = verdicts.to_vec();
        self.aside(self.connection.clone().lock_owned().await, move |sql| {
            let transaction = begin(sql)?;
            health::remember(&transaction, &verdicts)?;
            transaction.commit()
        })
        .await
    }

    /// Stores when primaries last confirmed zones, all of it or nothing; it is no generation's.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub(crate) async fn confirm(&self, times: &BTreeMap<String, u64>) -> Result<(), StoreError> {
        let times = times.clone();
        self.aside(self.connection.clone().lock_owned().await, move |sql| {
            let transaction = begin(sql)?;
            confirmed::confirm(&transaction, &times)?;
            transaction.commit()
        })
        .await
    }

    /// Finds out whether the database can still be reached and locked for writing, without writing.
    ///
    /// A full disk shows only at the next commit.
    ///
    /// # Errors
    ///
    /// What the next commit would fail with, or [`StoreError::Slow`] while one does not end.
    pub(crate) async fn check(&self) -> Result<(), StoreError> {
        let slot = tokio::time::timeout(CHECK_WAIT, self.connection.clone().lock_owned()).await;
        let slot = slot.map_err(|_| StoreError::Slow { path: self.place.path.clone() })?;
        self.aside(slot, |sql| begin(sql)?.rollback()).await
    }

    /// Closes the database and then releases the lock. A store that is dropped instead does so, too.
    ///
    /// # Errors
    ///
    /// [`StoreError`] where the log could not be merged into the database; nothing is lost by that.
    pub(crate) async fn close(self) -> Result<(), StoreError> {
        match self.connection.lock().await.take() {
            Some(connected) => connected.sql.close().map_err(|(_, error)| self.place.sort(&error)),
            None => Ok(()),
        }
    }

    /// Makes a call on a thread that may wait for a disk: who asks has other things to do.
    async fn aside(
        &self,
        mut slot: OwnedMutexGuard<Option<Connected>>,
        call: impl FnOnce(&mut Connection) -> rusqlite::Result<()> + Send + 'static,
    ) -> Result<(), StoreError> {
        let place = self.place.clone();
        let done = tokio::task::spawn_blocking(move || {
            let mut connected = place.take(&mut slot)?;
            call(&mut connected.sql).map_err(|error| place.sort(&error))?;
            *slot = Some(connected);
            // Before the lock on the store, which `place` has.
            drop(slot);
            Ok(())
        });
        let died = |cause: tokio::task::JoinError| StoreError::Failed {
            path: self.place.path.clone(),
            cause: cause.to_string(),
        };
        done.await.map_err(died)?
    }
}

impl Place {
    fn connect(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let sql = Connection::open_with_flags(&self.path, flags)?;
        sql.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        sql.execute_batch(&self.setup)?;
        Ok(sql)
    }

    /// Takes the connection out of its slot, or makes a new one. It is put back only after a call that
    /// left it in a known state.
    fn take(&self, slot: &mut Option<Connected>) -> Result<Connected, StoreError> {
        match slot.take() {
            Some(connected) => match self.still_there(&connected) {
                Ok(()) => Ok(connected),
                Err(error) => {
                    // What was acknowledged may be only in a log that has lost its name: bring it home
                    // while it is open. A second connection would start a log of its own beside it.
                    let _ = connected.sql.query_row("PRAGMA wal_checkpoint(FULL)", [], |_| Ok(()));
                    *slot = Some(connected);
                    Err(error)
                }
            },
            None => {
                if FileId::of(&self.path) != Some(self.database) {
                    return Err(StoreError::Gone { path: self.path.clone() });
                }
                self.prepare(self.connect().map_err(|error| self.sort(&error))?)
            }
        }
    }

    /// Switches a new connection to the write-ahead log, which is what makes one sync per commit enough.
    fn prepare(&self, sql: Connection) -> Result<Connected, StoreError> {
        let mode: rusqlite::Result<String> = sql.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0));
        let mode = mode.map_err(|error| self.sort(&error))?;
        if mode != "wal" {
            let cause = format!("its file system cannot hold a write-ahead log (journal mode {mode})");
            return Err(StoreError::Io { path: self.path.clone(), cause });
        }
        // The first read creates the log and holds it: no other connection can delete it from here on.
        let first = sql.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()));
        first.map_err(|error| self.sort(&error))?;
        let log = FileId::of(&file::log_of(&self.path));
        Ok(Connected { sql, log, commits: 0, known: Known::default() })
    }

    /// Fails where the database or its log was deleted or replaced: the connection would go on writing
    /// into files that no restart finds.
    fn still_there(&self, connected: &Connected) -> Result<(), StoreError> {
        if FileId::of(&self.path) != Some(self.database) {
            return Err(StoreError::Gone { path: self.path.clone() });
        }
        let log = file::log_of(&self.path);
        if connected.log.is_none() || FileId::of(&log) != connected.log {
            return Err(StoreError::Gone { path: log });
        }
        Ok(())
    }

    /// The transaction of a commit; once more without what is known of the tables, where that may be why it was refused.
    fn publish(
        &self,
        connected: &mut Connected,
        based_on: u64,
        changes: &[Change],
    ) -> Result<u64, CommitError> {
        // What is known holds only if all of the commit does.
        let mut known = std::mem::take(&mut connected.known);
        known.is_relied_on = false;
        let mut result = self.publish_knowing(&mut connected.sql, &mut known, based_on, changes);
        if matches!(result, Err(CommitError::Refused { .. })) && known.is_relied_on {
            known = Known::default();
            result = self.publish_knowing(&mut connected.sql, &mut known, based_on, changes);
        }
        if result.is_ok() {
            connected.known = known;
            connected.commits = connected.commits.saturating_add(1);
        }
        result
    }

    fn publish_knowing(
        &self,
        sql: &mut Connection,
        known: &mut Known,
        based_on: u64,
        changes: &[Change],
    ) -> Result<u64, CommitError> {
        let sort = |error: rusqlite::Error| self.sort(&error);
        // Dropped before its end, it is rolled back.
        let transaction = begin(sql).map_err(sort)?;
        let current = contents::generation(&transaction).map_err(sort)?;
        if current.cast_unsigned() != based_on {
            return Err(CommitError::Conflict { current: current.cast_unsigned() });
        }
        let next = current + 1;
        for (index, change) in changes.iter().enumerate() {
            match apply::apply(&transaction, known, next, change) {
                Ok(()) => {}
                Err(Failure::Refused(what)) => return Err(CommitError::Refused { change: index, what }),
                Err(Failure::Sql(error)) => return Err(sort(error).into()),
            }
        }
        apply::record(&transaction, next, now(), changes).map_err(sort)?;
        // As `Transaction::commit` does, which has the statement compiled each time; dropped after it, it does nothing.
        transaction.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([])).map_err(sort)?;
        Ok(next.cast_unsigned())
    }

    fn sort(&self, error: &rusqlite::Error) -> StoreError {
        StoreError::sort(&self.path, error)
    }
}

/// Why what is stored was not loaded.
fn unloaded(path: &Path, failure: contents::Failure) -> StoreError {
    match failure {
        contents::Failure::Sql(error) => StoreError::sort(path, &error),
        contents::Failure::Corrupt(Corrupt(what)) => StoreError::Corrupt { path: path.to_path_buf(), what },
    }
}

/// Begins to write, so that nobody else can before the end.
fn begin(sql: &mut Connection) -> rusqlite::Result<Transaction<'_>> {
    sql.transaction_with_behavior(TransactionBehavior::Immediate)
}
