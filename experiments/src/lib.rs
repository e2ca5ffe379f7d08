//! What experiments and measurements share.
//!
//! - [`traces`]: what is sent;
//! - [`arrivals`]: when it came to who receives; [`errors`]: how far that is from when it was due;
//! - [`echo`]: who receives at next to no cost.

pub mod arrivals;
pub mod echo;
pub mod errors;
pub mod traces;
