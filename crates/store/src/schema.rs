//! The migrations, and whether a database is ours at all.

use std::borrow::Cow;
use std::path::Path;

use sqlx::SqliteConnection;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{SqlSafeStr, query_scalar};

use crate::error::{OpenError, StoreError};

/// What SQLite's header says of whose database it is: "PMan".
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"PMan");

/// The versions of the tables, in order: a number, a word for it, the SQL that leads there.
const MIGRATIONS: [(i64, &str, &str); 1] =
    [(1, "tables", include_str!("../migrations/sqlite/0001_tables.sql"))];

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

/// Brings the tables to the last version that this program knows, each step whole or not at all.
pub(crate) async fn migrate(sql: &mut SqliteConnection, path: &Path) -> Result<(), OpenError> {
    let migrations = MIGRATIONS.map(|(version, word, sql)| {
        Migration::new(version, Cow::Borrowed(word), MigrationType::Simple, sql.into_sql_str(), false)
    });
    let known = MIGRATIONS[MIGRATIONS.len() - 1].0;
    Migrator::with_migrations(migrations.to_vec()).run_direct(None, sql, false).await.map_err(|error| {
        match error {
            MigrateError::VersionMissing(found) => {
                OpenError::Newer { path: path.to_path_buf(), found, known }
            }
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
                OpenError::sort(path, &error)
            }
            other => StoreError::Failed { path: path.to_path_buf(), cause: other.to_string() }.into(),
        }
    })
}
