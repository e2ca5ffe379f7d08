//! MyXDNS's evaluation (Alzoubi, Rabinovich and Spatscheck, WWW 2007): the figures of its sections 6 and 7.
//!
//! - [`closed_loop`]: what the selection algorithms do to clients and servers (figures 7 and 8), in [`world`], clients
//!   behind caches and servers on a virtual clock.

mod closed_loop;
mod world;

use anyhow::Result;

use crate::options::Run;
use crate::report::Report;

/// Does the experiment.
pub(crate) fn perform(run: &Run, report: &mut Report) -> Result<()> {
    closed_loop::perform(run, report)
}
