//! The start with a large zone: from process start to the first answer, and memory then.

use std::fs;

use anyhow::{Context, Result, bail};

use super::place::Place;
use super::servers::{self, Server};
use super::zone;
use crate::report::median;

/// Records of the zone.
const RECORDS: usize = 1_000_000;

/// What starts took: medians.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// Seconds until the first answer.
    pub(crate) seconds: f64,
    /// Memory at that time, in octets.
    pub(crate) memory: f64,
}

/// Starts a server this often with the zone of [`RECORDS`]: ours with the zone in the store, where a start before has put
/// it; Knot with it as a zone file. Ready is who answers.
///
/// # Errors
/// Where it does not start.
pub(crate) fn measure(server: Server, place: &Place, rounds: usize) -> Result<Start> {
    let room = place.room(&format!("{}-start", server.name()))?;
    let master = zone::large(RECORDS);
    let mut command = match server {
        Server::Pointsman => {
            let file = room.join("example.com.zone");
            fs::write(&file, master).with_context(|| format!("{}", file.display()))?;
            let mut import = servers::pointsman_with(&room, "zone = [\"example.com.zone\"]\n", "")?;
            drop(servers::run("pointsman, importing", &mut import, &room)?);
            fs::remove_file(&file).with_context(|| format!("{}", file.display()))?;
            servers::pointsman_with(&room, "", "")?
        }
        Server::Knot => servers::knot(&room, &master, "")?,
        other => bail!("{} has no start to be measured", other.name()),
    };
    let (mut seconds, mut memory) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let running = servers::run(server.name(), &mut command, &room)?;
        seconds.push(running.started.as_secs_f64());
        memory.push(running.group.memory()? as f64);
    }
    let middle = |values: &[f64]| median(values).context("no round");
    Ok(Start { seconds: middle(&seconds)?, memory: middle(&memory)? })
}
