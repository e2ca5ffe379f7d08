//! The control process: measures the servers' load, recomputes the rows of a policy and installs them through the API.
//!
//! - [`situation`]: what an algorithm decides from, and what it decides; [`load`]: a server's load, from what several
//!   sources say of it.
//! - [`algorithm`]: the selection algorithms, a file each. Pure: loads, ranks, rows and time are arguments.
//! - [`matrix`]: shares as a policy's rows, and rows as shares; [`out`]: whose shares nobody is sent by.
//! - [`source`]: where loads are from; [`readings`]: the last ones.
//! - [`rule`]: all of that as one function of what serves and of loads.
//! - [`controller`]: a round; [`service`]: round after round.
//! - [`face`]: reports in, numbers out; [`numbers`]: what is counted.

pub mod algorithm;
pub mod controller;
pub mod face;
pub mod load;
pub mod matrix;
#[cfg(test)]
mod model;
pub mod numbers;
pub mod out;
pub mod readings;
pub mod rule;
pub mod service;
pub mod situation;
pub mod source;

pub use algorithm::Algorithm;
pub use controller::Options;
pub use load::Load;
pub use rule::{Rule, ServerOptions};
pub use service::Service;
pub use situation::{Server, Shares, Situation};
