//! The versions of the tables in a shared database, and whether a database is ours at all.

use std::borrow::Cow;
use std::path::Path;

use sqlx::SqlSafeStr;
#[cfg(feature = "mysql")]
use sqlx::migrate::Migrate as _;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};

use super::sql::{Sql, values};
use crate::error::{OpenError, StoreError};
use crate::schema::Version;

/// The versions of the tables in PostgreSQL. Numbers are those of the tables' meaning: a version is the same in all
/// databases that have it. Shared ones began with the third, the fourth is theirs alone, and they have no seventh.
#[cfg(feature = "postgres")]
const POSTGRES: &[Version] = &[
    (3, "tables", include_str!("../../migrations/postgres/0003_tables.sql")),
    (4, "names", include_str!("../../migrations/postgres/0004_names.sql")),
    (5, "confirmed", include_str!("../../migrations/postgres/0005_confirmed.sql")),
    (6, "aliases", include_str!("../../migrations/postgres/0006_aliases.sql")),
];

/// The versions of the tables in MariaDB.
#[cfg(feature = "mysql")]
const MYSQL: &[Version] = &[
    (3, "tables", include_str!("../../migrations/mysql/0003_tables.sql")),
    (4, "names", include_str!("../../migrations/mysql/0004_names.sql")),
    (5, "confirmed", include_str!("../../migrations/mysql/0005_confirmed.sql")),
    (6, "aliases", include_str!("../../migrations/mysql/0006_aliases.sql")),
];

/// The versions of the tables in a database of this kind.
pub(crate) fn versions(sql: &Sql) -> &'static [Version] {
    match sql {
        #[cfg(feature = "postgres")]
        Sql::Postgres(_) => POSTGRES,
        #[cfg(feature = "mysql")]
        Sql::Mysql(_) => MYSQL,
        #[cfg(not(all(feature = "postgres", feature = "mysql")))]
        Sql::Absent(never) => match *never {},
    }
}

/// Brings the tables to the last of `versions`; programs that start together wait for each other.
pub(crate) async fn migrate(sql: &mut Sql, path: &Path, versions: &[Version]) -> Result<(), OpenError> {
    let sort = |error: sqlx::Error| OpenError::from(StoreError::sort_shared(path, &error));
    let known = versions.last().map_or(0, |(version, ..)| *version);
    let failed = |error| match error {
        MigrateError::VersionMissing(found) => {
            OpenError::Newer { path: path.to_path_buf(), found, known, copy: None }
        }
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => sort(error),
        other => StoreError::Failed { path: path.to_path_buf(), cause: other.to_string() }.into(),
    };
    // The migrator makes its own table first. Where it would do nothing it need not: a standby can only be read.
    if are_there(sql, path).await? {
        if are_made(sql, versions).await.map_err(sort)? {
            return Ok(());
        }
        forget_broken_off(sql).await.map_err(failed)?;
    }
    let steps = versions.iter().map(|&(version, word, text)| {
        Migration::new(version, Cow::Borrowed(word), MigrationType::Simple, text.into_sql_str(), false)
    });
    let migrator = Migrator::with_migrations(steps.collect());
    let done: Result<(), MigrateError> = match sql {
        #[cfg(feature = "postgres")]
        Sql::Postgres(sql) => migrator.run_direct(None, &mut **sql, false).await,
        #[cfg(feature = "mysql")]
        Sql::Mysql(sql) => migrator.run_direct(None, &mut **sql, false).await,
        #[cfg(not(all(feature = "postgres", feature = "mysql")))]
        Sql::Absent(never) => match *never {},
    };
    done.map_err(failed)
}

/// Whether all of `versions` were made, to their ends, and no later one.
async fn are_made(sql: &mut Sql, versions: &[Version]) -> Result<bool, sqlx::Error> {
    let text = "SELECT version FROM _sqlx_migrations WHERE success = TRUE ORDER BY version";
    let made: Vec<(i64,)> = sql.rows(text, values![]).await?;
    Ok(made.iter().map(|(version,)| *version).eq(versions.iter().map(|(version, ..)| *version)))
}

/// Has a migration that was broken off run again, in MariaDB: there each of its statements is committed, and may be run
/// twice. In PostgreSQL they are one transaction.
async fn forget_broken_off(sql: &mut Sql) -> Result<(), MigrateError> {
    match sql {
        #[cfg(feature = "postgres")]
        Sql::Postgres(_) => Ok(()),
        #[cfg(feature = "mysql")]
        Sql::Mysql(sql) => {
            // Who holds the lock may be in the middle of one.
            sql.lock().await?;
            let text = "DELETE FROM _sqlx_migrations WHERE success = FALSE";
            let forgotten = sqlx::query(text).execute(&mut **sql).await;
            sql.unlock().await?;
            forgotten?;
            Ok(())
        }
        #[cfg(not(all(feature = "postgres", feature = "mysql")))]
        Sql::Absent(never) => match *never {},
    }
}

/// Whether the tables are there, of the last of `versions`.
pub(crate) async fn are_current(sql: &mut Sql, path: &Path, versions: &[Version]) -> Result<bool, OpenError> {
    if !are_there(sql, path).await? {
        return Ok(false);
    }
    let sort = |error: sqlx::Error| OpenError::from(StoreError::sort_shared(path, &error));
    let text = "SELECT coalesce(max(version), 0) FROM _sqlx_migrations";
    let (found,): (i64,) = sql.row(text, values![]).await.map_err(sort)?;
    let known = versions.last().map_or(0, |(version, ..)| *version);
    if found > known {
        return Err(OpenError::Newer { path: path.to_path_buf(), found, known, copy: None });
    }
    if found > 0 && found < known {
        return Err(OpenError::Older { path: path.to_path_buf(), found, known });
    }
    Ok(found == known)
}

/// Whether there are tables of ours, or none at all; an error where there are others.
async fn are_there(sql: &mut Sql, path: &Path) -> Result<bool, OpenError> {
    let sort = |error: sqlx::Error| OpenError::from(StoreError::sort_shared(path, &error));
    let schema = match sql {
        #[cfg(feature = "postgres")]
        Sql::Postgres(_) => "current_schema()",
        #[cfg(feature = "mysql")]
        Sql::Mysql(_) => "database()",
        #[cfg(not(all(feature = "postgres", feature = "mysql")))]
        Sql::Absent(never) => match *never {},
    };
    let text = format!(
        "SELECT count(*), count(CASE WHEN table_name = '_sqlx_migrations' THEN 1 END) \
         FROM information_schema.tables WHERE table_schema = {schema}"
    );
    let (tables, ours): (i64, i64) = sql.row(&text, values![]).await.map_err(sort)?;
    if tables > 0 && ours == 0 {
        let what = "it has another program's tables".into();
        return Err(OpenError::NotAStore { path: path.to_path_buf(), what });
    }
    Ok(ours > 0)
}
