//! MyXDNS's evaluation (Alzoubi, Rabinovich and Spatscheck, WWW 2007): the figures of its sections 6 and 7.
//!
//! - [`rates`]: response time and answered share by offered rate and by updates (figures 3 to 6), of [`servers`];
//!   above what a sender that times every query can offer, most come in [`bursts`];
//! - [`closed_loop`]: what the selection algorithms do to clients and servers (figures 7 and 8), in [`world`], clients
//!   behind caches and servers on a virtual clock; [`real`]: the same in real time, with real ones;
//! - [`outcome`]: what a run of those is worth, and how it is drawn.

mod bursts;
mod closed_loop;
mod outcome;
mod rates;
mod real;
mod servers;
mod world;

use anyhow::Result;

use crate::options::Run;
use crate::report::Report;

/// The parts that can be done alone (`--only`).
pub(crate) const PARTS: &[&str] = &["stress", "virtual", "real"];

/// Does the experiment.
pub(crate) fn perform(run: &Run, report: &mut Report) -> Result<()> {
    if run.wants("stress") {
        run.within(|folder| {
            let stage = servers::Stage::new(run, folder, report)?;
            rates::perform(run, &stage, report)
        })?;
    }
    let modelled = run.wants("virtual").then(|| closed_loop::perform(run, report)).transpose()?;
    if run.wants("real") {
        run.within(|folder| real::perform(run, folder, modelled.as_deref(), report))?;
    }
    Ok(())
}
