//! The start with a large zone: from process start to the first answer, and memory then.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::place::Place;
use super::servers::{self, Server};
use super::zone;

/// Records of the zone.
const RECORDS: usize = 1_000_000;

/// What a start took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) time: Duration,
    pub(crate) memory: u64,
}

/// Starts a server with the zone of [`RECORDS`]: ours with the zone in the store, where a start before has put
/// it; Knot with it as a zone file. Ready is who answers.
///
/// # Errors
/// Where it does not start.
pub(crate) fn measure(server: Server, place: &Place) -> Result<Start> {
    let room = place.room(&format!("{}-start", server.name()))?;
    let master = zone::large(RECORDS);
    let command = match server {
        Server::Pointsman => {
            let file = room.join("example.com.zone");
            fs::write(&file, master).with_context(|| format!("{}", file.display()))?;
            let import = servers::pointsman_with(&room, "zone = [\"example.com.zone\"]\n", "")?;
            drop(servers::run("pointsman, importing", import, &room)?);
            fs::remove_file(&file).with_context(|| format!("{}", file.display()))?;
            servers::pointsman_with(&room, "", "")?
        }
        Server::Knot => servers::knot(&room, &master, "")?,
        other => bail!("{} has no start to be measured", other.name()),
    };
    let running = servers::run(server.name(), command, &room)?;
    Ok(Start { time: running.started, memory: running.group.memory()? })
}
