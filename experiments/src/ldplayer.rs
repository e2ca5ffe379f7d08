//! LDplayer's evaluation (Zhu and Heidemann, 2018), in miniature: the figures of its sections 4 and 5.
//!
//! - [`timing`]: how far from its time each query arrives (figures 6, 7 and 8);
//! - [`rate`]: the highest rate over time (figure 9);
//! - [`dnssec`]: how much a root server answers as keys grow and more clients ask for signatures (figure 10);
//! - [`connections`]: what all-TCP and all-TLS cost a server (figures 11, 13 and 14);
//! - [`distance`]: what a client's distance makes of latency (figure 15).
//!
//! [`stage`] is where it plays: one machine, loopback, sender and server on a core each; [`servers`] who is asked.

mod connections;
mod distance;
mod dnssec;
mod rate;
mod servers;
mod stage;
mod timing;

use anyhow::Result;
use experiments::traces::MINUTE;

use crate::data;
use crate::options::Run;
use crate::process::{FirstSession, Pointsman};
use crate::report::Report;
use stage::Stage;

/// The parts that can be done alone (`--only`).
pub(crate) const PARTS: &[&str] = &["timing", "rate", "dnssec", "connections", "distance"];

/// Does the experiment.
pub(crate) fn perform(run: &Run, report: &mut Report) -> Result<()> {
    report.say(
        "Everything is on one machine and goes over loopback: no network card, no cable, no loss. LDplayer had a \
         server of 24 cores, clients of 4 and a network of 1 Gb/s; so ratios and shapes compare, absolute values do \
         not. Its trace is an hour of B-Root at 38,000 queries/s, ours a minute of another root server at 172/s, \
         whose clients are multiplied where that rate is wanted. Where the machine allows it, a sender that keeps times \
         comes before other programs (`nice -n -20`, and so does its session).",
    );
    let Some(minute) = data::file(MINUTE, report) else { return Ok(()) };
    let pointsman = Pointsman::find()?;
    let _first = FirstSession::begin();
    run.within(|folder| {
        let stage = Stage { pointsman, folder: folder.to_path_buf(), minute };
        for (part, perform) in PARTS.iter().zip([
            timing::perform,
            rate::perform,
            dnssec::perform,
            connections::perform,
            distance::perform,
        ]) {
            if run.wants(part) {
                perform(&stage, run, report)?;
            }
        }
        Ok(())
    })
}
