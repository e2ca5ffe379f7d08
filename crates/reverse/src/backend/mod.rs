//! What learns: takes wanted addresses, asks for them one an interval, and writes what comes back.
//!
//! - [`behaviour`]: [`Behaviour`], how it learns, as an operator chooses it.
//! - [`decisions`]: [`BackEnd`], what is asked and what is kept: no clock and no socket.
//! - `spare`: what is asked while nobody waits.
//! - [`upstreams`]: [`Upstreams`], whose turn it is to be asked.
//! - [`task`]: [`Task`] and [`run()`], the channels, the clock and the sockets around them.
//! - [`counts`]: [`Counts`] and [`UpstreamCounts`], what the metrics and the log read.

pub mod behaviour;
pub mod counts;
pub mod decisions;
mod spare;
pub mod task;
#[cfg(test)]
mod tests;
pub mod upstreams;

pub use behaviour::{Behaviour, Paper, Ttl};
pub use counts::{Counts, UpstreamCounts};
pub use decisions::{BackEnd, Due, IN_FLIGHT_MAX, Question, seconds};
pub use task::{Kept, Task, run};
pub use upstreams::Upstreams;
