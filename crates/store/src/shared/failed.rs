//! How a call ended that brought nothing.

use crate::contents::Corrupt;
use crate::error::CommitError;

/// How a call ended that brought nothing.
pub(crate) enum Failed {
    /// With a verdict; the connection is as before.
    Verdict(CommitError),
    /// The database failed; the connection is not used again.
    Sql(sqlx::Error),
    /// What is stored cannot be what was stored; the connection is not used again.
    Corrupt(String),
    /// This process stops, and did not wait for the answer.
    Left,
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Failed::Sql(error)
    }
}

impl From<Corrupt> for Failed {
    fn from(Corrupt(what): Corrupt) -> Self {
        Failed::Corrupt(what)
    }
}
