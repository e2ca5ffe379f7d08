//! Recorded traffic: what a trace holds, as one stream of DNS messages.
//!
//! - [`trace`]: any capture in, queries and responses out, in constant memory; what was skipped is counted.

pub mod trace;
