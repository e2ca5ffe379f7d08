//! Recorded traffic, and the same traffic sent again.
//!
//! - [`trace`]: any capture in, queries and responses out, in constant memory; what was skipped is counted.
//! - [`zones`]: what responses show of the zones behind them, as zones.
//! - [`mutate`]: what if: the same queries with DO, other sizes, other names.
//! - [`mod@compare`]: an answer held against the recorded one.
//! - [`schedule`]: which client asks what, and when. Pure.
//! - [`send`]: the schedule sent on time, answers matched and counted.
//! - [`observe`]: the server while it is asked.
//! - [`mod@report`]: what came of it; [`mod@remarks`]: what that means; [`mod@page`]: the same as plots; [`plot`]: how
//!   those are drawn.
//! - below: `tables`, hash maps that never take long to grow.

pub mod compare;
pub mod mutate;
pub mod observe;
pub mod page;
pub mod plot;
pub mod remarks;
pub mod report;
pub mod schedule;
pub mod send;
mod tables;
pub mod trace;
pub mod zones;
