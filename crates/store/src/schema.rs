//! The migrations, and whether a database is ours at all.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType};

use crate::error::{OpenError, StoreError};
use crate::file;

/// What SQLite's header says of whose database it is: "PMan".
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"PMan");

/// A version of the tables: its number, a word for it, the SQL that leads there from the version before.
pub(crate) type Version = (i64, &'static str, &'static str);

/// The versions of the tables, in order; the fourth is shared databases' alone, the seventh files'.
pub(crate) const VERSIONS: &[Version] = &[
    (1, "tables", include_str!("../migrations/sqlite/0001_tables.sql")),
    (2, "order", include_str!("../migrations/sqlite/0002_order.sql")),
    (3, "probes", include_str!("../migrations/sqlite/0003_probes.sql")),
    (5, "confirmed", include_str!("../migrations/sqlite/0005_confirmed.sql")),
    (6, "aliases", include_str!("../migrations/sqlite/0006_aliases.sql")),
    (7, "owners", include_str!("../migrations/sqlite/0007_owners.sql")),
];

/// The table of the versions that there have been. Its form is that of sqlx's migrator, which shared databases have and
/// files had once: older programs must know a newer store when they see one.
const MIGRATIONS: &str = "CREATE TABLE IF NOT EXISTS _sqlx_migrations (
    version BIGINT PRIMARY KEY,
    description TEXT NOT NULL,
    installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    success BOOLEAN NOT NULL,
    checksum BLOB NOT NULL,
    execution_time BIGINT NOT NULL
)";

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
pub(crate) fn recognise(sql: &Connection, path: &Path) -> Result<(), OpenError> {
    if is_ours(sql, path)? {
        return Ok(());
    }
    // Before the first table: a crash between the two must not leave a database that looks foreign.
    sql.pragma_update(None, "application_id", APPLICATION_ID).map_err(|error| OpenError::sort(path, &error))
}

/// The version of the tables, which is none beyond `versions`; `None` where there are none.
pub(crate) fn version(sql: &Connection, path: &Path, versions: &[Version]) -> Result<Option<i64>, OpenError> {
    let sort = |error: rusqlite::Error| OpenError::sort(path, &error);
    // Between the mark and the first table, and before the mark, there is nothing to be read.
    if !is_ours(sql, path)? || !sql.table_exists(None, "_sqlx_migrations").map_err(sort)? {
        return Ok(None);
    }
    let found = made(sql).map_err(sort)?.last().map_or(0, |(version, _)| *version);
    let known = versions.last().map_or(0, |(version, ..)| *version);
    if found > known {
        return Err(OpenError::Newer { path: path.to_path_buf(), found, known, copy: None });
    }
    Ok((found > 0).then_some(found))
}

/// Whether a database is marked as ours; an error where it is another program's, and not empty.
fn is_ours(sql: &Connection, path: &Path) -> Result<bool, OpenError> {
    let sort = |error: rusqlite::Error| OpenError::sort(path, &error);
    let id: i32 = sql.query_row("PRAGMA application_id", [], |row| row.get(0)).map_err(sort)?;
    if id == APPLICATION_ID {
        return Ok(true);
    }
    let objects = sql.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0));
    let objects: i64 = objects.map_err(sort)?;
    if id != 0 || objects != 0 {
        let what = "it is another program's database".into();
        return Err(OpenError::NotAStore { path: path.to_path_buf(), what });
    }
    Ok(false)
}

/// Brings the tables to the last of `versions`, each step whole or not at all. Tables that have a version already are
/// copied first.
pub(crate) fn migrate(
    sql: &mut Connection,
    path: &Path,
    versions: &[Version],
) -> Result<Option<Migrated>, OpenError> {
    let sort = |error: rusqlite::Error| OpenError::sort(path, &error);
    sql.execute_batch(MIGRATIONS).map_err(sort)?;
    let made = made(sql).map_err(sort)?;
    let to = versions.last().map_or(0, |(version, ..)| *version);
    for (found, checksum) in &made {
        let Some(version) = versions.iter().find(|(version, ..)| version == found) else {
            let copy = Some(file::copy_of(path, to)).filter(|copy| copy.exists());
            return Err(OpenError::Newer { path: path.to_path_buf(), found: *found, known: to, copy });
        };
        if *checksum != *migration(version).checksum {
            let cause = format!("version {found} of its tables is not the one that this program knows");
            return Err(StoreError::Failed { path: path.to_path_buf(), cause }.into());
        }
    }
    let migrated = match made.last() {
        Some(&(from, _)) if from < to => Some(Migrated { from, to, copy: keep_copy(sql, path, from)? }),
        _ => None,
    };
    let begun = made.last().map_or(0, |(version, _)| *version);
    bring_up(sql, begun, versions).map_err(sort)?;
    Ok(migrated)
}

/// Makes the tables of the last of `versions` from those of an earlier one, or from none (0).
pub(crate) fn bring_up(sql: &mut Connection, from: i64, versions: &[Version]) -> rusqlite::Result<()> {
    versions.iter().filter(|(version, ..)| *version > from).try_for_each(|version| make(sql, version))
}

/// The versions that the tables have had, in order, and the checksums of what made them.
fn made(sql: &Connection) -> rusqlite::Result<Vec<(i64, Vec<u8>)>> {
    let mut query = sql.prepare("SELECT version, checksum FROM _sqlx_migrations ORDER BY version")?;
    let found = query.query_map([], |row| row.try_into())?;
    found.collect()
}

/// Makes a version of the tables from the one before it.
fn make(sql: &mut Connection, version: &Version) -> rusqlite::Result<()> {
    let &(number, word, text) = version;
    let transaction = sql.transaction()?;
    transaction.execute_batch(text)?;
    transaction.execute(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (?, ?, TRUE, ?, 0)",
        (number, word, &*migration(version).checksum),
    )?;
    transaction.commit()
}

/// A version as shared databases' migrator has it, whose checksums all stores have.
fn migration(&(version, word, text): &Version) -> Migration {
    Migration::new(version, Cow::Borrowed(word), MigrationType::Simple, text.into_sql_str(), false)
}

/// Copies the database, with what is only in its log, to a file beside it; an older copy of the same version goes.
fn keep_copy(sql: &Connection, path: &Path, version: i64) -> Result<PathBuf, OpenError> {
    let copy = file::copy_of(path, version);
    let begun = file::begin_copy(&copy)?;
    let text = begun.to_str().ok_or_else(|| {
        let cause = "its path is not UTF-8, so that it cannot be copied before it is changed".into();
        StoreError::Failed { path: path.to_path_buf(), cause }
    })?;
    // SQLite writes into a file that is there if it is empty.
    sql.execute("VACUUM INTO ?", [text]).map_err(|error| OpenError::sort(path, &error))?;
    file::finish_copy(&begun, &copy)?;
    Ok(copy)
}
