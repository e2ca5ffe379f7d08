//! Readers of what strangers send, run on damaged input.
//!
//! A target is a plain function that takes any bytes and panics when something is wrong; a coverage-guided
//! fuzzer may call it as well. The loop here needs none: it damages the target's seeds ([`mutate`]) and
//! runs the target on the result ([`run()`]). Nothing is kept from one execution to the next, so each one can
//! be repeated alone from the seed and its index.
//!
//! A guided run finds what blind damage does not: [`Guided`] runs the targets under libFuzzer and keeps inputs
//! that reach code of their own ([`corpus`]); they join the seeds from then on.
//!
//! `cargo test` runs every target of [`TARGETS`] for a fixed number of executions; `cargo run -p fuzz -- TARGET`
//! runs one for as many as wanted. Both say how to repeat a failure. What ends the process (an endless
//! loop, an exhausted stack) is found by halving the range of executions.

pub mod corpus;
mod guide;
pub mod mutate;
mod run;
mod targets;

pub use corpus::{from_hex, to_hex};
pub use guide::{Done, Guided, PATIENCE_SECONDS};
pub use run::{Failure, input, run};
pub use targets::{TARGETS, Target};
