//! The salbnet slides (Jung, Kiertscher, Menski and Schnor, SPECTS 2014) and what they left out: our policy beside its
//! rivals, with unequal and moving servers and with faults of feedback.
//!
//! - [`modelled`]: all of it on a virtual clock: [`simulation`] has balancers, servers and agents, [`scenarios`] what
//!   happens to them.
//! - [`real`]: servers with small shares of a processor, our balancer and dnsdist in processes of their own.

mod modelled;
mod real;
mod scenarios;
mod simulation;

use anyhow::Result;

use crate::options::Run;
use crate::report::Report;

/// What may be done alone: all that is on the virtual clock, and each case that is really run.
pub(crate) const PARTS: &[&str] = &[VIRTUAL, "unequal", "moving", "containers", "buffers", "restart"];

const VIRTUAL: &str = "virtual";

/// Does the experiment.
pub(crate) fn perform(run: &Run, report: &mut Report) -> Result<()> {
    if run.wants(VIRTUAL) {
        modelled::perform(run, report);
    }
    real::perform(run, report)
}
