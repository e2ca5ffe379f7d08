//! Why a change is not applied, in whichever database.

use api::Entry;
use rusqlite::ErrorCode;
use sqlx::error::ErrorKind;

/// Why a change was not applied; `E` is what the database fails with.
#[derive(Debug)]
pub(crate) enum Failure<E> {
    /// It contradicts what is stored, or is outside what can be.
    Refused(String),
    /// The database failed.
    Sql(E),
}

/// Why no database would take a change.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) String);

impl<E> From<Refusal> for Failure<E> {
    fn from(Refusal(what): Refusal) -> Self {
        Failure::Refused(what)
    }
}

impl From<rusqlite::Error> for Failure<rusqlite::Error> {
    /// A constraint that does not hold is the change's fault, everything else the database's.
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::ConstraintViolation) => Failure::Refused(error.to_string()),
            _ => Failure::Sql(error),
        }
    }
}

impl From<sqlx::Error> for Failure<sqlx::Error> {
    /// As above.
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(database) if database.kind() != ErrorKind::Other => {
                Failure::Refused(database.message().to_owned())
            }
            _ => Failure::Sql(error),
        }
    }
}

/// Refuses what not all tables' constraints would see: SQLite takes "not a number" for "not given".
pub(crate) fn finite(entry: Entry) -> Result<(), Refusal> {
    match entry.probability {
        Some(probability) if !probability.is_finite() => {
            Err(Refusal(format!("a probability of {probability}")))
        }
        _ => Ok(()),
    }
}

/// Refuses to do something to what was not there.
pub(crate) fn there_was(was_there: bool, else_say: impl FnOnce() -> String) -> Result<(), Refusal> {
    if was_there { Ok(()) } else { Err(Refusal(else_say())) }
}
