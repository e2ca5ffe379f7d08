//! What can go wrong, told with the path, the cause and the way on.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{ErrorCode, ffi};

/// How long a statement waits for another program's lock on the database. Reading the tables or changing
/// a few rows by hand takes less; who takes longer has forgotten a transaction.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long [`Store::check`](crate::Store::check) waits for the call before it. A commit takes milliseconds, so that
/// this long means a disk that hangs, which is what the check is there to tell.
pub const CHECK_WAIT: Duration = Duration::from_secs(2);

/// The kinds of stores that the program was built with, as they are written.
pub const KINDS: &str = match (cfg!(feature = "postgres"), cfg!(feature = "mysql")) {
    (true, true) => "sqlite:PATH, postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE",
    (true, false) => "sqlite:PATH or postgres://USER@HOST/DATABASE (this program was built without mysql)",
    (false, true) => "sqlite:PATH or mysql://USER@HOST/DATABASE (this program was built without postgres)",
    (false, false) => "sqlite:PATH (this program was built without postgres and mysql)",
};

/// A URL without the password in it, for people to read; of one that may have it in the wrong place only the scheme.
pub fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once(':') else { return url.into() };
    // What is at a path has no password, whatever it looks like.
    if scheme == "sqlite" {
        return url.into();
    }
    let Some(rest) = rest.strip_prefix("//") else {
        return if rest.contains('@') { format!("{scheme}:...") } else { url.into() };
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    // The password has one of these that is not written as `%2F`: where it ends, nobody can tell.
    if rest[end..].contains('@') {
        return format!("{scheme}://...");
    }
    // What stands behind a question mark may be a password, too.
    let path = rest[end..].split(['?', '#']).next().unwrap_or_default();
    let authority = match rest[..end].rsplit_once('@') {
        Some((user, host)) => format!("{}@{host}", user.split(':').next().unwrap_or_default()),
        None => rest[..end].into(),
    };
    format!("{scheme}://{authority}{path}")
}

/// Why a store could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The URL names no kind of store that this program has.
    Unsupported {
        /// The URL as it was given.
        url: String,
    },
    /// The URL of a shared database cannot be read.
    Url {
        /// The URL without its password.
        url: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The folder that the database should be in does not exist.
    NoFolder {
        /// The database's path.
        path: PathBuf,
    },
    /// The database, its lock or its folder may not be read and written.
    Permission {
        /// The file that could not be used.
        path: PathBuf,
        /// The system's words.
        cause: String,
    },
    /// Another process has the store open.
    InUse {
        /// The database's path.
        path: PathBuf,
        /// That process, where it has left its id.
        pid: Option<u32>,
    },
    /// What stands at the path is not a store of Pointsman.
    NotAStore {
        /// The database's path.
        path: PathBuf,
        /// What it is instead.
        what: String,
    },
    /// A newer program has changed the tables to a form that this one does not know.
    Newer {
        /// The database's path.
        path: PathBuf,
        /// The first version of the tables that this program does not know.
        found: i64,
        /// The last version that it knows.
        known: i64,
        /// The copy that the newer program kept of the tables that this one knows, where there is one.
        copy: Option<PathBuf>,
    },
    /// A shared database has an older program's tables, and is not to be changed.
    Older {
        /// Its URL without the password.
        path: PathBuf,
        /// The version of its tables.
        found: i64,
        /// The version that a start of this program makes of it.
        known: i64,
    },
    /// What can also go wrong later.
    Store(StoreError),
}

impl OpenError {
    /// Sorts an error of the file system at `path`.
    pub(crate) fn at(path: &Path, error: &io::Error) -> Self {
        let path = path.to_path_buf();
        match error.kind() {
            io::ErrorKind::NotFound => OpenError::NoFolder { path },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                OpenError::Permission { path, cause: error.to_string() }
            }
            io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => {
                OpenError::NotAStore { path, what: error.to_string() }
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                OpenError::Store(StoreError::Full { path })
            }
            _ => OpenError::Store(StoreError::Io { path, cause: error.to_string() }),
        }
    }

    /// Sorts an error of the first statements on the file at `path`, which may not be a database at all.
    pub(crate) fn sort(path: &Path, error: &rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => OpenError::NotAStore {
                path: path.to_path_buf(),
                what: "it is no SQLite database, or its first page is damaged".into(),
            },
            _ => StoreError::sort(path, error).into(),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Unsupported { url } => {
                let url = shown(url);
                write!(f, "the store '{url}' is not of a kind that is supported; write {KINDS}")
            }
            OpenError::Url { url, cause } => write!(
                f,
                "the URL of the store '{url}' is wrong: {cause}; in a user and a password, /?#@ are written as %2F %3F %23 %40"
            ),
            OpenError::NoFolder { path } => {
                let folder = path.parent().unwrap_or(path).display();
                write!(
                    f,
                    "the store {} cannot be created: there is no folder {folder}; make it, or choose \
                     another path",
                    path.display()
                )
            }
            OpenError::Permission { path, cause } => write!(
                f,
                "the store needs to read and write {}: {cause}; give this user the right to the file and \
                 its folder",
                path.display()
            ),
            OpenError::InUse { path, pid } => {
                write!(f, "the store {} is in use by ", path.display())?;
                match pid {
                    Some(pid) => write!(f, "process {pid}")?,
                    None => f.write_str("another process")?,
                }
                f.write_str("; end it, or choose another path")
            }
            OpenError::NotAStore { path, what } => {
                write!(
                    f,
                    "{} is not a store of Pointsman: {what}; choose another path, or put a backup in its \
                     place",
                    path.display()
                )
            }
            OpenError::Newer { path, found, known, copy } => {
                write!(
                    f,
                    "the store {} was changed by a newer Pointsman (its tables have version {found}, this \
                     program knows {known}); use that program, or ",
                    path.display()
                )?;
                match copy {
                    Some(copy) => write!(f, "the copy that it kept from before: {}", copy.display()),
                    None => f.write_str("a backup from before"),
                }
            }
            OpenError::Older { path, found, known } => write!(
                f,
                "the tables of {} have version {found}; this program's first start brings them to {known}, and nothing \
                 can be held against them before",
                path.display()
            ),
            OpenError::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<StoreError> for OpenError {
    fn from(error: StoreError) -> Self {
        OpenError::Store(error)
    }
}

/// Why the store could not do its work. It is usable again as soon as the cause is gone.
///
/// Nothing was changed, except that after [`StoreError::Io`], [`StoreError::Gone`], [`StoreError::Unreachable`] and
/// [`StoreError::Left`] a commit may turn out to have happened, whole. The path of a shared database is its URL
/// without the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// Another program has kept the database locked for all of [`BUSY_TIMEOUT`].
    Locked {
        /// The database's path.
        path: PathBuf,
    },
    /// A shared database cannot be reached, or went away during the call.
    Unreachable {
        /// The URL without its password.
        path: PathBuf,
        /// The cause in the system's or the database's words.
        cause: String,
        /// How to go on.
        way: &'static str,
    },
    /// A shared database had not answered when this process, which stops, waited no longer.
    Left {
        /// The URL without its password.
        path: PathBuf,
    },
    /// An earlier call has not ended in [`CHECK_WAIT`], or another program's: the disk hangs, the work is large, or a
    /// transaction was left open.
    Slow {
        /// The database's path.
        path: PathBuf,
    },
    /// There is no space left.
    Full {
        /// The database's path.
        path: PathBuf,
    },
    /// The database may not be written, or no longer.
    Permission {
        /// The database's path.
        path: PathBuf,
        /// The database's words.
        cause: String,
        /// How to go on.
        way: &'static str,
    },
    /// The file was deleted or replaced since the store was opened, or its write-ahead log was.
    Gone {
        /// The file.
        path: PathBuf,
    },
    /// The system failed to read or write.
    Io {
        /// The database's path.
        path: PathBuf,
        /// The cause in the system's or the database's words.
        cause: String,
    },
    /// What is stored cannot be what was stored.
    Corrupt {
        /// The database's path.
        path: PathBuf,
        /// The damage.
        what: String,
    },
    /// The database failed in another way: out of memory, or tables that were altered by hand.
    Failed {
        /// The database's path.
        path: PathBuf,
        /// The database's words.
        cause: String,
    },
}

impl StoreError {
    /// Whether [`Store::check`](crate::Store::check) would find it, too, as long as it lasts. What has to do with writing,
    /// such as a full disk, shows at commits only.
    pub fn shows_in_check(&self) -> bool {
        matches!(self, StoreError::Locked { .. } | StoreError::Unreachable { .. } | StoreError::Slow { .. })
    }

    /// Sorts an error of SQLite at `path`.
    pub(crate) fn sort(path: &Path, error: &rusqlite::Error) -> Self {
        use rusqlite::Error::{
            FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error,
        };
        let path = path.to_path_buf();
        let cause = error.to_string();
        match (error.sqlite_error_code(), error) {
            (Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked), _) => StoreError::Locked { path },
            (Some(ErrorCode::DiskFull), _) => StoreError::Full { path },
            // The index of the log could not grow: the first that a start on a full disk meets.
            _ if extended_code(error) == Some(ffi::SQLITE_IOERR_SHMSIZE) => StoreError::Full { path },
            (Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied), _) => {
                StoreError::Permission { path, cause, way: "give this user the right to it and its folder" }
            }
            (Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen), _) => StoreError::Io { path, cause },
            (Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase), _) => {
                StoreError::Corrupt { path, what: cause }
            }
            (
                _,
                FromSqlConversionFailure(..)
                | IntegralValueOutOfRange(..)
                | InvalidColumnType(..)
                | Utf8Error(..),
            ) => StoreError::Corrupt { path, what: cause },
            _ => StoreError::Failed { path, cause },
        }
    }

    /// Sorts an error of a shared database by its SQLSTATE, and by MariaDB's own number where it has none of its own.
    pub(crate) fn sort_shared(path: &Path, error: &sqlx::Error) -> Self {
        let path = path.to_path_buf();
        // Without the library's own words before them.
        let unreachable = |cause: String, way| StoreError::Unreachable { path: path.clone(), cause, way };
        let database = match error {
            sqlx::Error::Database(database) => &**database,
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => {
                return StoreError::Corrupt { path, what: error.to_string() };
            }
            sqlx::Error::Io(cause) => return unreachable(cause.to_string(), way_to(cause)),
            sqlx::Error::Tls(cause) => return unreachable(cause.to_string(), TLS),
            other => return unreachable(other.to_string(), LOOK),
        };
        let code = database.code().unwrap_or_default();
        let cause = database.message().to_owned();
        match (&*code, mysql_number(database)) {
            ("55P03", _) | (_, Some(1205)) => StoreError::Locked { path },
            ("53100", _) | (_, Some(1021 | 1114)) => StoreError::Full { path },
            ("42501", _) | (_, Some(1044 | 1142 | 1143 | 1227 | 1370)) => {
                StoreError::Permission { path, cause, way: RIGHTS }
            }
            ("25006", _) | (_, Some(1290 | 1792 | 1836)) => {
                StoreError::Permission { path, cause, way: PRIMARY }
            }
            ("3D000", _) | (_, Some(1046 | 1049)) => unreachable(cause, DATABASE),
            ("53300", _) | (_, Some(1040 | 1203 | 1226)) => unreachable(cause, CONNECTIONS),
            (_, Some(1045 | 1130 | 1251 | 1698)) => unreachable(cause, USER),
            (code, None) if code.starts_with("28") => unreachable(cause, USER),
            // It starts, stops or has no place; or somebody ended the connection.
            (code, None) if ["57P", "53", "08", "25P03"].iter().any(|class| code.starts_with(class)) => {
                unreachable(cause, LOOK)
            }
            (_, Some(1053 | 1317 | 1927)) => unreachable(cause, LOOK),
            _ => StoreError::Failed { path, cause },
        }
    }
}

/// How to go on where a database cannot be reached.
const LOOK: &str = "see whether the database runs, and what its log says";
/// How to go on where it does not let us in.
const USER: &str =
    "correct the user and the password in its URL, or have the database let that user in from here";
/// How to go on where a URL names none.
const DATABASE: &str = "create that database, or correct its name in the URL";
/// How to go on where others have taken all.
const CONNECTIONS: &str = "let the database have more connections, or end some";
/// How to go on where there is no TLS, or none that is trusted.
const TLS: &str = "set up TLS in the database, or correct what its URL says of TLS and certificates";
/// How to go on where a user may not do something.
const RIGHTS: &str = "have its user own that database (PostgreSQL), or have all rights in it (MariaDB)";
/// How to go on where nobody may write.
const PRIMARY: &str = "it is a standby, or was made read-only: name the one that may be written in the URL";

/// How to go on where the system could not connect.
fn way_to(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::ConnectionRefused => "start the database, or correct the host and the port in its URL",
        io::ErrorKind::NotFound => "correct the path in its URL",
        io::ErrorKind::PermissionDenied => "give this user the right to the path in its URL",
        // What rustls says of certificates.
        io::ErrorKind::InvalidData => TLS,
        io::ErrorKind::TimedOut => "see whether the database runs, and what on the way there drops packets",
        // The standard library has no kind for it.
        _ if cause.to_string().starts_with("failed to lookup address") => {
            "correct the host in its URL, or see why this system does not resolve it"
        }
        _ => LOOK,
    }
}

/// SQLite's number of an error, with what its kind leaves out.
fn extended_code(error: &rusqlite::Error) -> Option<i32> {
    error.sqlite_error().map(|error| error.extended_code)
}

/// MariaDB's number of an error that MariaDB returned.
fn mysql_number(error: &dyn sqlx::error::DatabaseError) -> Option<u16> {
    #[cfg(feature = "mysql")]
    return error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>().map(|error| error.number());
    #[cfg(not(feature = "mysql"))]
    {
        let _ = error;
        None
    }
}

/// Whether a shared database refused a statement for what it says, and would again: data that cannot be, or that
/// contradicts other data (SQLSTATE classes 22 and 23).
pub(crate) fn is_refusal(error: &sqlx::Error) -> bool {
    let Some(database) = error.as_database_error() else { return false };
    let code = database.code().unwrap_or_default();
    // "Incorrect string value" and "Illegal mix of collations" are of no class.
    code.starts_with("22") || code.starts_with("23") || matches!(mysql_number(database), Some(1267 | 1366))
}

/// Whether a shared database broke a transaction off in favour of another, so that it may be tried again.
pub(crate) fn is_deadlock(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|database| database.code());
    code.is_some_and(|code| matches!(&*code, "40001" | "40P01"))
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Locked { path } => write!(
                f,
                "the store {} is locked by another program for more than {} s; end its transaction",
                path.display(),
                BUSY_TIMEOUT.as_secs()
            ),
            StoreError::Unreachable { path, cause, way } => {
                write!(f, "the store {} cannot be reached: {cause}; {way}", path.display())
            }
            StoreError::Left { path } => write!(
                f,
                "the store {} did not answer before this name server stopped; whether it has the change is not known",
                path.display()
            ),
            StoreError::Slow { path } => write!(
                f,
                "the store {} has been busy for more than {} s; look whether another program keeps a transaction open, or \
                 its disk hangs",
                path.display(),
                CHECK_WAIT.as_secs()
            ),
            StoreError::Full { path } => {
                write!(f, "there is no space left for the store {}; free some", path.display())
            }
            StoreError::Permission { path, cause, way } => {
                write!(f, "the store {} may not be written: {cause}; {way}", path.display())
            }
            StoreError::Gone { path } => write!(
                f,
                "{} was deleted or replaced while in use; put it back, or restart with what is there now",
                path.display()
            ),
            StoreError::Io { path, cause } => {
                write!(f, "the store {} could not be read or written: {cause}", path.display())
            }
            StoreError::Corrupt { path, what } => {
                write!(f, "the store {} is damaged: {what}; restore a backup", path.display())
            }
            StoreError::Failed { path, cause } => {
                write!(f, "the store {} failed: {cause}", path.display())
            }
        }
    }
}

impl std::error::Error for StoreError {}

/// Why nothing of a commit was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitError {
    /// The commit was based on another generation than the current one.
    Conflict {
        /// The current generation.
        current: u64,
    },
    /// The tables hold changes that were made directly, above the generation that this is based on, and are not
    /// published.
    Unpublished,
    /// A change contradicts what is stored, or is outside what can be stored.
    Refused {
        /// Which of the changes, counted from 0.
        change: usize,
        /// Why, in lower case, without a full stop.
        what: String,
    },
    /// The store could not do its work.
    Store(StoreError),
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommitError::Conflict { current } => {
                write!(f, "the current generation is {current}, which is not the one this is based on")
            }
            CommitError::Unpublished => {
                f.write_str("the tables hold changes that were made directly and are not published yet")
            }
            CommitError::Refused { what, .. } => f.write_str(what),
            CommitError::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CommitError {}

impl From<StoreError> for CommitError {
    fn from(error: StoreError) -> Self {
        CommitError::Store(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (url, expected) in [
            ("sqlite:/srv/dns.db", "sqlite:/srv/dns.db"),
            ("postgres://dns:secret@db.example/dns", "postgres://dns@db.example/dns"),
            ("postgres://dns:s@cret@db.example:5433/dns?password=x", "postgres://dns@db.example:5433/dns"),
            ("mysql://db.example", "mysql://db.example"),
            ("mysql://dns:secret@db.example?socket=/run/x", "mysql://dns@db.example"),
            ("postgres://dns:sec/ret@db.example/dns", "postgres://..."),
            ("postgres://dns:se?cr#et@db.example/dns", "postgres://..."),
            ("postgres:///dns:secret@db.example/dns", "postgres://..."),
            ("Postgres://dns:secret@db.example/dns", "Postgres://dns@db.example/dns"),
            ("postgres:dns:secret@db.example/dns", "postgres:..."),
            ("sqlite:/srv/a@b:c/dns.db", "sqlite:/srv/a@b:c/dns.db"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }

    #[test]
    fn a_full_disk_is_told_in_the_same_words_whatever_met_it() {
        let path = Path::new("/srv/dns/pointsman.db");
        for code in [ffi::SQLITE_FULL, ffi::SQLITE_IOERR_SHMSIZE] {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            let told = "there is no space left for the store /srv/dns/pointsman.db; free some";
            assert_eq!(StoreError::sort(path, &error).to_string(), told, "{code}");
            assert_eq!(OpenError::sort(path, &error).to_string(), told, "{code}");
        }
    }

    #[test]
    fn errors_of_the_file_system_are_sorted() {
        let path = Path::new("/srv/dns/pointsman.db");
        for (kind, words) in [
            (io::ErrorKind::NotFound, "there is no folder /srv/dns; make it"),
            (io::ErrorKind::PermissionDenied, "give this user the right"),
            (io::ErrorKind::ReadOnlyFilesystem, "give this user the right"),
            (io::ErrorKind::IsADirectory, "is not a store of Pointsman"),
            (io::ErrorKind::StorageFull, "no space left for the store /srv/dns/pointsman.db"),
            (io::ErrorKind::TimedOut, "could not be read or written"),
        ] {
            let told = OpenError::at(path, &io::Error::from(kind)).to_string();
            assert!(told.contains(words), "{kind:?}: {told}");
        }
    }
}
