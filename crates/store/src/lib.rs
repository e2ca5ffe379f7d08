//! What must survive: zones, regions, partitions, policies, server states and generations, in SQL.
//!
//! A [`Store`] is one database. Its methods are the whole boundary: [`Store::open`] it, [`Store::load`] everything,
//! [`Store::commit`] changes as one new generation, [`Store::remember`] what probes found, [`Store::confirm`] what
//! primaries confirmed, and [`Store::check`] whether it would take a change. What the tables mean is documented in
//! `docs/reference/store.md`, because other programs may read them, and change those of a [`Shared`] one.
//!
//! The store keeps what it is given. It knows no DNS and judges no policy; it refuses what its tables
//! cannot hold or what contradicts what they hold. It is a file of SQLite, which one process has open, or a database in
//! PostgreSQL or MariaDB, which several share (features `postgres` and `mysql`). The two are written apart: a file has a
//! lock, a log and a copy to care for, and statements that are fastest together; a shared database has others who write.
//!
//! - [`change`]: what a commit is made of.
//! - [`contents`]: what a load returns, and the queries for it.
//! - [`health`]: what probes last held of servers, which is remembered beside the generations.
//! - `confirmed`: when primaries last confirmed their zones, which is so, too.
//! - [`error`]: what can go wrong, told with the path, the cause and the way on.
//! - `shared`: a database that several name servers share.
//! - `embedded`: a database in a file, `apply`: a change in its SQL, `known`: what need not be written again, and `owners`:
//!   what is changed of a zone without writing it again.
//! - `file`: the database's file: its lock, its identity, its creation.
//! - `refused`: why a change is not applied, in whichever database.
//! - `schema`: the versions of the tables, a copy before they change, and whether a database is ours at all.
//! - `text`: long texts, compressed, and a zone's with other lines.

mod apply;
pub mod change;
mod confirmed;
pub mod contents;
mod embedded;
pub mod error;
mod file;
pub mod health;
mod known;
mod owners;
mod refused;
mod schema;
#[cfg_attr(
    not(any(feature = "postgres", feature = "mysql")),
    allow(unused, unreachable_code, reason = "built without both, there is no value of its types")
)]
pub mod shared;
mod store;
mod text;

#[cfg(test)]
mod tests;

pub use apply::GENERATIONS_KEPT;
pub use change::Change;
pub use contents::Contents;
pub use error::{BUSY_TIMEOUT, CHECK_WAIT, CommitError, OpenError, StoreError};
pub use health::{Held, Verdict};
pub use schema::Migrated;
pub use shared::{News, Parts, Seen, Shared, Standing, Watch};
pub use store::Store;
pub use text::TEXT_MAX;
