//! The store in a file: one connection, one writer, one lock.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqliteConnection, query, query_scalar};
use tokio::sync::Mutex;

use crate::apply::{self, Failure};
use crate::change::Change;
use crate::contents::{self, Contents};
use crate::error::{CommitError, OpenError, StoreError};
use crate::file::{self, FileId, Lock};
use crate::health::{self, Verdict};
use crate::known::Known;
use crate::schema::{self, Migrated, Version};
use crate::store::{BUSY_TIMEOUT, CHECK_WAIT};

/// Everything that must survive, in one SQLite database that this process alone has open as a store.
///
/// Calls from several tasks wait for each other. A call whose future is dropped leaves the store as it
/// was before or, for a commit, as it is after, never between.
#[derive(Debug)]
pub(crate) struct Embedded {
    pub(crate) path: PathBuf,
    pub(crate) options: SqliteConnectOptions,
    /// The file that was opened, which the path must still lead to.
    database: FileId,
    /// Absent after a call that failed or was cancelled: what state such a connection is in is not worth
    /// finding out, and the next call makes a new one.
    pub(crate) connection: Mutex<Option<Connected>>,
    migrated: Option<Migrated>,
    /// Declared last, and therefore released last.
    _lock: Lock,
}

/// A connection, the write-ahead log that it appends to, and what it has stored.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) sql: SqliteConnection,
    log: Option<FileId>,
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
    pub(crate) async fn open(url: &str) -> Result<Embedded, OpenError> {
        Embedded::open_at(url, schema::VERSIONS).await
    }

    /// Opens it with tables of the last of these versions.
    pub(crate) async fn open_at(url: &str, versions: &[Version]) -> Result<Embedded, OpenError> {
        let path = file::locate(url)?;
        let lock = file::lock(&path)?;
        file::create(&path)?;
        let database = FileId::of(&path).ok_or_else(|| StoreError::Gone { path: path.clone() })?;
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .create_if_missing(false)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT)
            .thread_name(|_| "store".into())
            .disable_statement_logging();

        let mut sql = options.connect().await.map_err(|error| OpenError::sort(&path, &error))?;
        schema::recognise(&mut sql, &path).await?;
        let connection = Mutex::new(None);
        let mut store = Embedded { path, options, database, connection, migrated: None, _lock: lock };
        let mut connected = store.prepare(sql).await?;
        store.migrated = schema::migrate(&mut connected.sql, &store.path, versions).await?;
        *store.connection.lock().await = Some(connected);
        Ok(store)
    }

    /// What was done to the tables when they were opened, where they were an older program's.
    pub(crate) fn migrated(&self) -> Option<&Migrated> {
        self.migrated.as_ref()
    }

    /// Loads everything that is stored, as of one generation.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] where something cannot be what was stored, or another [`StoreError`].
    pub(crate) async fn load(&self) -> Result<Contents, StoreError> {
        let mut slot = self.connection.lock().await;
        let mut connected = self.take(&mut slot).await?;
        let contents = contents::load(&mut connected.sql).await.map_err(|failure| match failure {
            contents::Failure::Sql(error) => StoreError::sort(&self.path, &error),
            contents::Failure::Corrupt(what) => StoreError::Corrupt { path: self.path.clone(), what },
        })?;
        *slot = Some(connected);
        Ok(contents)
    }

    /// Stores all of `changes` or none, as the generation after `based_on`, and returns its number once
    /// the disk has it.
    ///
    /// One sync covers all of `changes`, so that a writer that gathers what has queued up behind it gets
    /// by with one for many.
    ///
    /// # Errors
    ///
    /// [`CommitError::Conflict`] unless `based_on` is the current generation, [`CommitError::Refused`] for
    /// the first change that contradicts what is stored, or a [`StoreError`]. After [`StoreError::Gone`]
    /// and [`StoreError::Io`] the caller must load again to know whether the commit had happened.
    pub(crate) async fn commit(&self, based_on: u64, changes: &[Change]) -> Result<u64, CommitError> {
        let mut slot = self.connection.lock().await;
        let mut connected = self.take(&mut slot).await?;
        let result = self.publish(&mut connected, based_on, changes).await;
        if matches!(result, Err(CommitError::Store(_))) {
            return result;
        }
        // Once more after the sync: what went to a file without a name must not be acknowledged.
        let still_there = self.still_there(&connected);
        *slot = Some(connected);
        still_there?;
        result
    }

    /// Stores what probes hold of servers, all of it or nothing; it is no generation's.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub(crate) async fn remember(&self, verdicts: &[Verdict]) -> Result<(), StoreError> {
        let mut slot = self.connection.lock().await;
        let mut connected = self.take(&mut slot).await?;
        let sort = |error| StoreError::sort(&self.path, &error);
        let mut transaction = connected.sql.begin_with("BEGIN IMMEDIATE").await.map_err(sort)?;
        health::remember(&mut transaction, verdicts).await.map_err(sort)?;
        transaction.commit().await.map_err(sort)?;
        *slot = Some(connected);
        Ok(())
    }

    /// Finds out whether the database can still be reached and locked for writing, without writing.
    ///
    /// A full disk shows only at the next commit.
    ///
    /// # Errors
    ///
    /// What the next commit would fail with, or [`StoreError::Slow`] while one does not end.
    pub(crate) async fn check(&self) -> Result<(), StoreError> {
        let slot = tokio::time::timeout(CHECK_WAIT, self.connection.lock()).await;
        let mut slot = slot.map_err(|_| StoreError::Slow { path: self.path.clone() })?;
        let mut connected = self.take(&mut slot).await?;
        let sort = |error| StoreError::sort(&self.path, &error);
        let transaction = connected.sql.begin_with("BEGIN IMMEDIATE").await.map_err(sort)?;
        transaction.rollback().await.map_err(sort)?;
        *slot = Some(connected);
        Ok(())
    }

    /// Closes the database and then releases the lock. A store that is dropped instead does so soon after.
    ///
    /// # Errors
    ///
    /// [`StoreError`] where the log could not be merged into the database; nothing is lost by that.
    pub(crate) async fn close(self) -> Result<(), StoreError> {
        match self.connection.into_inner() {
            Some(connected) => {
                connected.sql.close().await.map_err(|error| StoreError::sort(&self.path, &error))
            }
            None => Ok(()),
        }
    }

    /// Takes the connection out of its slot, or makes a new one. It is put back only after a call that
    /// left it in a known state.
    async fn take(&self, slot: &mut Option<Connected>) -> Result<Connected, StoreError> {
        match slot.take() {
            Some(mut connected) => match self.still_there(&connected) {
                Ok(()) => Ok(connected),
                Err(error) => {
                    // What was acknowledged may be only in a log that has lost its name: bring it home
                    // while it is open. A second connection would start a log of its own beside it.
                    let _ = query("PRAGMA wal_checkpoint(FULL)").execute(&mut connected.sql).await;
                    *slot = Some(connected);
                    Err(error)
                }
            },
            None => {
                if FileId::of(&self.path) != Some(self.database) {
                    return Err(StoreError::Gone { path: self.path.clone() });
                }
                let sql = self.options.connect().await;
                self.prepare(sql.map_err(|error| StoreError::sort(&self.path, &error))?).await
            }
        }
    }

    /// Switches a new connection to the write-ahead log, which is what makes one sync per commit enough.
    async fn prepare(&self, mut sql: SqliteConnection) -> Result<Connected, StoreError> {
        let sort = |error| StoreError::sort(&self.path, &error);
        let mode: String =
            query_scalar("PRAGMA journal_mode = WAL").fetch_one(&mut sql).await.map_err(sort)?;
        if mode != "wal" {
            let cause = format!("its file system cannot hold a write-ahead log (journal mode {mode})");
            return Err(StoreError::Io { path: self.path.clone(), cause });
        }
        // The first read creates the log and holds it: no other connection can delete it from here on.
        let _: i64 =
            query_scalar("SELECT count(*) FROM sqlite_master").fetch_one(&mut sql).await.map_err(sort)?;
        Ok(Connected { sql, log: FileId::of(&file::log_of(&self.path)), known: Known::default() })
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

    /// The transaction of a commit.
    async fn publish(
        &self,
        connected: &mut Connected,
        based_on: u64,
        changes: &[Change],
    ) -> Result<u64, CommitError> {
        if let Some(next) = self.publish_entries(connected, based_on, changes).await? {
            return Ok(next);
        }
        // What is known holds only if all of the commit does.
        let mut known = std::mem::take(&mut connected.known);
        known.is_relied_on = false;
        let mut result = self.publish_all(&mut connected.sql, &mut known, based_on, changes).await;
        if matches!(result, Err(CommitError::Refused { .. })) && known.is_relied_on {
            known = Known::default();
            result = self.publish_all(&mut connected.sql, &mut known, based_on, changes).await;
        }
        if result.is_ok() {
            connected.known = known;
        }
        result
    }

    /// The commit of nothing but new entries of a policy; `None` where it is not that, or was refused in whatever way,
    /// with nothing done: then [`Embedded::publish_all`] does it, or says why not.
    async fn publish_entries(
        &self,
        connected: &mut Connected,
        based_on: u64,
        changes: &[Change],
    ) -> Result<Option<u64>, StoreError> {
        let [Change::PutPolicy(policy)] = changes else { return Ok(None) };
        let Some(next) = based_on.checked_add(1).and_then(|next| i64::try_from(next).ok()) else {
            return Ok(None);
        };
        if apply::is_forgetful(next) {
            return Ok(None);
        }
        let Connected { sql, known, .. } = connected;
        let Some(kept) = known.alike(policy) else { return Ok(None) };
        match apply::commit_entries(sql, kept, policy, next, now()).await {
            Ok(()) => Ok(Some(next.cast_unsigned())),
            Err(Failure::Refused(_)) => {
                known.forget_all();
                self.roll_back(sql).await?;
                Ok(None)
            }
            Err(Failure::Sql(error)) => Err(StoreError::sort(&self.path, &error)),
        }
    }

    /// The transaction of any commit.
    async fn publish_all(
        &self,
        sql: &mut SqliteConnection,
        known: &mut Known,
        based_on: u64,
        changes: &[Change],
    ) -> Result<u64, CommitError> {
        let sort = |error| StoreError::sort(&self.path, &error);
        // Each call is a turn of the thread that SQLite runs on, and two changes of threads cost more than most
        // statements. So the transaction begins and ends in texts that do something, too; where it does not end,
        // the connection is not kept.
        let current: i64 = query_scalar("BEGIN IMMEDIATE; SELECT coalesce(max(number), 0) FROM generation")
            .fetch_one(&mut *sql)
            .await
            .map_err(sort)?;
        if current.cast_unsigned() != based_on {
            self.roll_back(sql).await?;
            return Err(CommitError::Conflict { current: current.cast_unsigned() });
        }
        let next = current + 1;
        for (index, change) in changes.iter().enumerate() {
            match apply::apply(sql, known, next, change).await {
                Ok(()) => {}
                Err(Failure::Refused(what)) => {
                    self.roll_back(sql).await?;
                    return Err(CommitError::Refused { change: index, what });
                }
                Err(Failure::Sql(error)) => return Err(sort(error).into()),
            }
        }
        apply::record_and_commit(sql, next, now(), changes).await.map_err(sort)?;
        Ok(next.cast_unsigned())
    }

    /// Takes back what a transaction has done.
    async fn roll_back(&self, sql: &mut SqliteConnection) -> Result<(), StoreError> {
        query("ROLLBACK").execute(sql).await.map_err(|error| StoreError::sort(&self.path, &error))?;
        Ok(())
    }
}

/// Unix time in seconds. A clock before 1970 is wrong anyway, and not worth refusing an update for.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed())
}
