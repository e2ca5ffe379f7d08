//! MyXDNS's evaluation (Alzoubi, Rabinovich and Spatscheck, WWW 2007): the figures of its sections 6 and 7.
//!
//! - [`closed_loop`]: what the selection algorithms do to clients and servers (figures 7 and 8), in [`world`], clients
//!   behind caches and servers on a virtual clock;
//! - [`rates`]: response time and answered share by offered rate and by updates (figures 3 to 6), of [`servers`].

mod closed_loop;
mod rates;
mod servers;
mod world;

use anyhow::Result;

use crate::options::Run;
use crate::report::Report;

/// Does the experiment.
pub(crate) fn perform(run: &Run, report: &mut Report) -> Result<()> {
    closed_loop::perform(run, report)?;
    run.within(|folder| {
        let stage = servers::Stage::new(run, folder, report)?;
        rates::perform(run, &stage, report)
    })
}
