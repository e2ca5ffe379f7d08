//! The servers that are asked: Debian's NSD and ours, with a root zone.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::replay::{ReplayReport, ServerSecond};
use experiments::nsd;

use super::stage::Stage;
use crate::data;
use crate::machine;
use crate::process::{Server, free};
use crate::report::Report;
use crate::serving::{SERVER_CORE, pinned};

/// Unpacks the signed root zone; `None`, and a paragraph in the report, where it is not there.
///
/// # Errors
/// Where it cannot be unpacked.
pub(super) fn root(stage: &Stage, report: &mut Report) -> Result<Option<PathBuf>> {
    let Some(packed) = data::file("replay/root.zone.xz", report) else { return Ok(None) };
    let zone = stage.folder.join("root.zone");
    fs::write(&zone, machine::unpacked(&packed)?).with_context(|| format!("{}", zone.display()))?;
    Ok(Some(zone))
}

/// NSD with many connections, which it closes after so many idle seconds; with it the address where it has TLS.
///
/// # Errors
/// Where it does not start.
pub(super) fn nsd_with_tls(stage: &Stage, zone: &Path, timeout: u32) -> Result<(Server, SocketAddr)> {
    let address = free()?;
    let more = nsd::tls(&stage.folder, address)?;
    let server = nsd(stage, zone, &format!("  tcp-count: 10000\n  tcp-timeout: {timeout}\n{more}"))?;
    Ok((server, address))
}

/// The most that an observed server had of something in any second.
pub(super) fn most(report: &ReplayReport, of: impl Fn(&ServerSecond) -> u64) -> u64 {
    report.server_seconds.iter().flatten().map(of).max().unwrap_or(0)
}

/// How many TCP sockets of a state it had.
pub(super) fn sockets(second: &ServerSecond, state: &str) -> u64 {
    second.tcp.get(state).copied().unwrap_or(0)
}

/// Debian's NSD with this zone as its root, and more lines in its server clause.
///
/// # Errors
/// Where it does not start.
pub(super) fn nsd(stage: &Stage, zone: &Path, more: &str) -> Result<Server> {
    let address = free()?;
    let zone = format!("zone:\n  name: .\n  zonefile: \"{}\"\n", zone.display());
    let text = tests::peer::nsd(&stage.folder, address, more, &zone);
    let path = stage.folder.join("nsd.conf");
    fs::write(&path, text).with_context(|| format!("{}", path.display()))?;
    let mut command = pinned(SERVER_CORE, "nsd");
    command.arg("-d").arg("-c").arg(&path);
    Server::start(&stage.folder, "nsd", command, address)
}

/// Ours with this zone as its root.
///
/// # Errors
/// Where it does not start.
pub(super) fn ours(stage: &Stage, zone: &Path) -> Result<Server> {
    let address = free()?;
    let store = format!("sqlite:{}/store-{}", stage.folder.display(), address.port());
    let mut command = stage.pointsman.command(SERVER_CORE);
    command.args(["serve", "--listen", &address.to_string(), "--api", "127.0.0.1:0", "--workers", "1"]);
    command.args(["--store", &store, "--zone"]).arg(zone);
    Server::start(&stage.folder, "pointsman", command, address)
}
