//! The machine that it plays on: the program, a folder, servers that end with the run.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use api::replay::ReplayReport;

use crate::options::Run;
use crate::process::{Pointsman, Server};
use crate::serving::SERVER_CORE;

/// What all parts share.
#[derive(Debug)]
pub(super) struct Stage {
    pointsman: Pointsman,
    /// For what is needed in between; removed at the end.
    pub(super) folder: PathBuf,
    pub(super) minute: PathBuf,
}

impl Stage {
    /// Finds the program beside this one, and makes the folder.
    ///
    /// # Errors
    /// Where the program is not there or the folder cannot be made.
    pub(super) fn new(run: &Run, minute: PathBuf) -> Result<Stage> {
        let pointsman = Pointsman::find()?;
        let folder = run.folder.join("work");
        fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
        Ok(Stage { pointsman, folder: folder.canonicalize().context("the folder")?, minute })
    }

    /// Replays on the sender's core; a run that was late is told as any other.
    ///
    /// # Errors
    /// Where it fails.
    pub(super) fn replay(&self, trace: &Path, server: SocketAddr, options: &[&str]) -> Result<ReplayReport> {
        self.pointsman.replay(trace, server, options)
    }

    /// The program, pinned to a core where there is more than one.
    pub(super) fn command(&self, core: usize) -> Command {
        self.pointsman.command(core)
    }

    /// Starts a server on its core; returns when it answers.
    ///
    /// # Errors
    /// Where it does not; with what it said.
    pub(super) fn start(&self, name: &str, command: Command, address: SocketAddr) -> Result<Server> {
        Server::start(&self.folder, name, command, address)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Takes this thread to the server's core, where there is such a one.
///
/// # Errors
/// None: without the core it stays where it is.
#[expect(clippy::unnecessary_wraps, reason = "what receives may fail to get to its place")]
pub(super) fn to_server_core() -> Result<()> {
    let _ = net::thread::pin(SERVER_CORE);
    Ok(())
}
