//! What is common to the HTTP faces of the programs: connections, bodies, refusals, and numbers that are scraped.
//!
//! - [`serve()`]: connections, and how long each may take for what.
//! - [`counters`]: what became of requests and connections.
//! - [`host`]: which names a request may be sent to; [`body`]: what it brings.
//! - [`reply`]: [`Failure`], the one shape of every refusal.
//! - [`metrics`]: numbers declared once, for Prometheus and for a page of the documentation.

pub mod body;
pub mod counters;
pub mod host;
pub mod metrics;
pub mod reply;
pub mod serve;

pub use counters::Counters;
pub use reply::Failure;
pub use serve::{Peer, serve};
