//! The migrations, and whether a database is ours at all.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use sqlx::SqliteConnection;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{SqlSafeStr, query, query_scalar};

use crate::error::{OpenError, StoreError};
use crate::file;

/// What SQLite's header says of whose database it is: "PMan".
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"PMan");

/// A version of the tables: its number, a word for it, the SQL that leads there from the version before.
pub(crate) type Version = (i64, &'static str, &'static str);

/// The versions of the tables, in order.
pub(crate) const VERSIONS: &[Version] = &[
    (1, "tables", include_str!("../migrations/sqlite/0001_tables.sql")),
    (2, "order", include_str!("../migrations/sqlite/0002_order.sql")),
    (3, "probes", include_str!("../migrations/sqlite/0003_probes.sql")),
];

/// What was done to a store of an older program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The version that its tables had.
    pub from: i64,
    /// The version that they have now.
    pub to: i64,
    /// Where the store is kept as it was.
    pub copy: PathBuf,
}

/// Marks an empty database as ours, and refuses one that is another program's.
pub(crate) async fn recognise(sql: &mut SqliteConnection, path: &Path) -> Result<(), OpenError> {
    let id: i32 = query_scalar("PRAGMA application_id")
        .fetch_one(&mut *sql)
        .await
        .map_err(|error| OpenError::sort(path, &error))?;
    if id == APPLICATION_ID {
        return Ok(());
    }
    let objects: i64 = query_scalar("SELECT count(*) FROM sqlite_master")
        .fetch_one(&mut *sql)
        .await
        .map_err(|error| OpenError::sort(path, &error))?;
    if id != 0 || objects != 0 {
        let what = "it is another program's database".into();
        return Err(OpenError::NotAStore { path: path.to_path_buf(), what });
    }
    // Before the first table: a crash between the two must not leave a database that looks foreign.
    sqlx::query(sqlx::AssertSqlSafe(format!("PRAGMA application_id = {APPLICATION_ID}")))
        .execute(sql)
        .await
        .map_err(|error| OpenError::sort(path, &error))?;
    Ok(())
}

/// Brings the tables to the last of `versions`, each step whole or not at all. Tables that have a version already are
/// copied first.
pub(crate) async fn migrate(
    sql: &mut SqliteConnection,
    path: &Path,
    versions: &[Version],
) -> Result<Option<Migrated>, OpenError> {
    let to = versions.last().map_or(0, |(version, ..)| *version);
    let migrated = match version(sql).await.map_err(|error| OpenError::sort(path, &error))? {
        Some(from) if from < to => Some(Migrated { from, to, copy: keep_copy(sql, path, from).await? }),
        _ => None,
    };
    let steps = versions.iter().map(|&(version, word, sql)| {
        Migration::new(version, Cow::Borrowed(word), MigrationType::Simple, sql.into_sql_str(), false)
    });
    let migrator = Migrator::with_migrations(steps.collect());
    migrator.run_direct(None, sql, false).await.map_err(|error| match error {
        MigrateError::VersionMissing(found) => {
            let copy = Some(file::copy_of(path, to)).filter(|copy| copy.exists());
            OpenError::Newer { path: path.to_path_buf(), found, known: to, copy }
        }
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
            OpenError::sort(path, &error)
        }
        other => StoreError::Failed { path: path.to_path_buf(), cause: other.to_string() }.into(),
    })?;
    Ok(migrated)
}

/// The version of the tables; `None` where there are none yet.
async fn version(sql: &mut SqliteConnection) -> Result<Option<i64>, sqlx::Error> {
    let tables: i64 = query_scalar("SELECT count(*) FROM sqlite_master WHERE name = '_sqlx_migrations'")
        .fetch_one(&mut *sql)
        .await?;
    match tables {
        0 => Ok(None),
        _ => query_scalar("SELECT max(version) FROM _sqlx_migrations").fetch_one(sql).await,
    }
}

/// Copies the database, with what is only in its log, to a file beside it; an older copy of the same version goes.
async fn keep_copy(sql: &mut SqliteConnection, path: &Path, version: i64) -> Result<PathBuf, OpenError> {
    let copy = file::copy_of(path, version);
    let begun = file::begin_copy(&copy)?;
    let text = begun.to_str().ok_or_else(|| {
        let cause = "its path is not UTF-8, so that it cannot be copied before it is changed".into();
        StoreError::Failed { path: path.to_path_buf(), cause }
    })?;
    // SQLite writes into a file that is there if it is empty.
    query("VACUUM INTO ?").bind(text).execute(sql).await.map_err(|error| OpenError::sort(path, &error))?;
    file::finish_copy(&begun, &copy)?;
    Ok(copy)
}
