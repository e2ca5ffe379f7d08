//! Recorded traffic: what a trace holds, as one stream of DNS messages.
//!
//! - [`trace`]: any capture in, queries and responses out, in constant memory; what was skipped is counted.
//! - [`mutate`]: what if: the same queries with DO, other sizes, other names.

pub mod mutate;
pub mod trace;
