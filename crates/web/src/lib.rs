//! What is common to the HTTP faces of the programs: connections, bodies, refusals, and numbers that are scraped; and
//! the client of them.
//!
//! - [`serve()`]: connections, and how long each may take for what.
//! - [`patient`]: the stream of a connection, whose answers are to be taken, and its place.
//! - [`counters`]: what became of requests and connections.
//! - [`host`]: which names a request may be sent to; [`token`]: what it must carry; [`path`]: what it names; [`body`]: what
//!   it brings.
//! - [`reply`]: [`Failure`], the one shape of every refusal, and what each face says of paths that it does not have.
//! - [`metrics`]: numbers declared once, for Prometheus and for a page of the documentation.
//! - [`client`]: one request and its answer, from the other side.

pub mod body;
pub mod client;
pub mod counters;
pub mod host;
pub mod metrics;
pub mod path;
pub mod patient;
pub mod reply;
pub mod serve;
pub mod token;

pub use counters::Counters;
pub use reply::Failure;
pub use serve::{Peer, serve};

#[cfg(test)]
mod tests;
