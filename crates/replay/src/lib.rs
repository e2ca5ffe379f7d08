//! Recorded traffic, and the same traffic sent again.
//!
//! - [`trace`]: any capture in, queries and responses out, in constant memory; what was skipped is counted.
//! - [`mutate`]: what if: the same queries with DO, other sizes, other names.
//! - [`schedule`]: which client asks what, and when. Pure.

pub mod mutate;
pub mod schedule;
pub mod trace;
