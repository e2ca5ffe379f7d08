//! What must survive: zones, regions, partitions, policies, server states and generations, in SQL.
//!
//! A [`Store`] is one database that one program at a time writes to. Its methods are the whole boundary:
//! [`Store::open`] it, [`Store::load`] everything, [`Store::commit`] changes as one new generation,
//! [`Store::remember`] what probes found, and [`Store::check`] whether it would take a change. What the tables mean is documented in `docs/reference/store.md`, because
//! other programs may read them, and one day write them.
//!
//! The store keeps what it is given. It knows no DNS and judges no policy; it refuses what its tables
//! cannot hold or what contradicts what they hold. SQLite is the one database today.
//!
//! - [`change`]: what a commit is made of.
//! - [`contents`]: what a load returns, and the queries for it.
//! - [`health`]: what probes last held of servers, which is remembered beside the generations.
//! - [`error`]: what can go wrong, told with the path, the cause and the way on.
//! - `apply`: a change in SQL.
//! - `file`: the database's file: its lock, its identity, its creation.
//! - `schema`: the versions of the tables, a copy before they change, and whether a database is ours at all.
//! - `text`: long texts, compressed.

mod apply;
pub mod change;
pub mod contents;
pub mod error;
mod file;
pub mod health;
mod schema;
mod store;
mod text;

#[cfg(test)]
mod tests;

pub use apply::GENERATIONS_KEPT;
pub use change::Change;
pub use contents::Contents;
pub use error::{CommitError, OpenError, StoreError};
pub use health::{Held, Verdict};
pub use schema::Migrated;
pub use store::{BUSY_TIMEOUT, CHECK_WAIT, Store};
pub use text::TEXT_MAX;
