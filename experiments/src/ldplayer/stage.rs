//! The machine that it plays on.

use std::path::PathBuf;

use anyhow::Result;

use crate::process::Pointsman;
use crate::serving::SERVER_CORE;

/// What all parts share.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) pointsman: Pointsman,
    /// For what is needed in between; removed at the end.
    pub(super) folder: PathBuf,
    pub(super) minute: PathBuf,
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
