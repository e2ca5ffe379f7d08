//! The selection algorithms, behind one call.
//!
//! - [`first`] and [`second`]: MyXDNS's (section 5.2), functions of the moment.
//! - [`third`]: ours, which remembers what it has answered.

pub mod first;
pub mod second;
pub mod third;

use std::time::Duration;

use crate::situation::{Shares, Situation};
use third::Third;

/// An algorithm and its parameters.
#[derive(Clone, Debug)]
pub enum Algorithm {
    /// The nearest servers that are not overloaded.
    First,
    /// Watermarks; with how much nearer servers are favoured.
    Second(f64),
    /// The nearest servers up to their capacity, without oscillation.
    Third(Third),
}

impl Algorithm {
    /// Decides; `now` never goes back from one call to the next.
    pub fn decide(&mut self, now: Duration, situation: &Situation<'_>) -> Shares {
        match self {
            Algorithm::First => first::decide(situation),
            Algorithm::Second(favour) => second::decide(situation, *favour),
            Algorithm::Third(third) => third.decide(now, situation),
        }
    }
}
