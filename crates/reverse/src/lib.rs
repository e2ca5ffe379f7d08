//! Names for addresses, at once or not at all: the reverse look-up service.
//!
//! Every question is answered from the cache. What is not there is "not yet", and is asked for in the background,
//! one question an interval (Rapid DNS, LeFebvre and Craig, USITS 1999).
//!
//! ```text
//! faces ──> Front::look_up ──> cache::View        name | no name | failed | not yet
//!               │ not yet
//!               └> door, a bounded queue ──> BackEnd ──> learn::Learner ──> upstream ──> cache::Writer
//! ```
//! In reading order:
//! - [`front`]: [`Front`], what all faces ask, and [`known`], what it says; [`face`]: DNS, RESP, Rapid DNS, HTTP and MMDB
//!   files; [`learned`]: who waits.
//! - [`backend`]: what learns; [`question`] and [`upstream`]: one question to a resolver, and its answer.
//! - [`crawlers`]: which crawler an address is.
//! - [`cache`]: what is known; [`name`]: which names are kept.
//! - [`service`]: [`Service`], all of it, started and stopped; `ending`: files that a stop gives up; [`numbers`]: what it
//!   counts.

pub mod backend;
pub mod cache;
pub mod crawlers;
mod ending;
pub mod face;
pub mod front;
pub mod known;
pub mod learned;
pub mod name;
pub mod numbers;
pub mod question;
pub mod service;
pub mod upstream;

pub use crawlers::{Crawlers, Identity};
pub use front::{Front, Known};
pub use name::NameText;
pub use service::{Options, Service};
