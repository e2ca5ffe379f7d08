//! Zones made of what a trace's responses show of them (LDplayer's zone constructor).
//!
//! A server that was captured can be played by another one: its zones, as far as anybody asked for them. And with what a
//! resolver asked of all the servers of the world, those can be played, each at its own address.
//!
//! - [`Seen`]: RRsets of responses, each with who said it and where in the response it stood; `holdings`: which zones each
//!   server has, by that.
//! - [`Made`]: zones out of both, with what is missing made up.
//! - below: `name`, names and which of several is the closest.

mod holdings;
mod made;
mod name;
mod seen;
#[cfg(test)]
mod tests;

pub use made::{Made, MadeUp, Record, Servers, Zone};
pub use seen::{Counts, LeftOut, OCTETS_MAX, Seen};
