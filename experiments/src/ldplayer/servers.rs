//! The servers that are asked: Debian's NSD and ours, with a root zone.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::stage::Stage;
use crate::data;
use crate::process::{Server, free};
use crate::report::Report;
use crate::serving::{SERVER_CORE, pinned};

/// Unpacks the signed root zone; `None`, and a paragraph in the report, where it is not there.
///
/// # Errors
/// Where it cannot be unpacked.
pub(super) fn root(stage: &Stage, report: &mut Report) -> Result<Option<PathBuf>> {
    let Some(packed) = data::file("replay/root.zone.xz", report) else { return Ok(None) };
    let output = Command::new("xz").arg("-dc").arg(&packed).output().context("xz (Debian: xz-utils)")?;
    let zone = stage.folder.join("root.zone");
    fs::write(&zone, output.stdout).with_context(|| format!("{}", zone.display()))?;
    Ok(Some(zone))
}

/// NSD with many connections, which it closes after so many idle seconds; with it the address where it has TLS.
///
/// # Errors
/// Where it does not start.
pub(super) fn nsd_with_tls(stage: &Stage, zone: &Path, timeout: u32) -> Result<(Server, SocketAddr)> {
    certificate(stage)?;
    let tls = free()?;
    let folder = stage.folder.display();
    let more = format!(
        "  tcp-count: 10000\n  tcp-timeout: {timeout}\n  ip-address: 127.0.0.1@{port}\n  tls-port: {port}\n  \
         tls-service-key: \"{folder}/tls.key\"\n  tls-service-pem: \"{folder}/tls.pem\"\n",
        port = tls.port(),
    );
    Ok((nsd(stage, zone, &more)?, tls))
}

/// Debian's NSD with this zone as its root, and more lines in its server clause.
///
/// # Errors
/// Where it does not start.
pub(super) fn nsd(stage: &Stage, zone: &Path, more: &str) -> Result<Server> {
    let (address, folder) = (free()?, stage.folder.display());
    let text = format!(
        "server:\n  ip-address: 127.0.0.1@{port}\n  server-count: 1\n  username: \"\"\n  chroot: \"\"\n  database: \"\"\n  \
         zonesdir: \"{folder}\"\n  pidfile: \"{folder}/nsd.pid\"\n  xfrdfile: \"{folder}/xfrd.state\"\n  \
         zonelistfile: \"{folder}/zone.list\"\n  rrl-ratelimit: 0\n{more}remote-control:\n  control-enable: no\n\
         zone:\n  name: .\n  zonefile: \"{zone}\"\n",
        port = address.port(),
        zone = zone.display(),
    );
    let path = stage.folder.join("nsd.conf");
    fs::write(&path, text).with_context(|| format!("{}", path.display()))?;
    let mut command = pinned(SERVER_CORE, "nsd");
    command.arg("-d").arg("-c").arg(&path);
    stage.start("nsd", command, address)
}

/// Ours with this zone as its root.
///
/// # Errors
/// Where it does not start.
pub(super) fn ours(stage: &Stage, zone: &Path) -> Result<Server> {
    let address = free()?;
    let store = format!("sqlite:{}/store-{}", stage.folder.display(), address.port());
    let mut command = stage.command(SERVER_CORE);
    command.args(["serve", "--listen", &address.to_string(), "--api", "127.0.0.1:0", "--workers", "1"]);
    command.args(["--store", &store, "--zone"]).arg(zone);
    stage.start("pointsman", command, address)
}

/// A key and a certificate that nobody has signed but itself.
fn certificate(stage: &Stage) -> Result<()> {
    let mut command = Command::new("openssl");
    command.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]);
    command
        .args(["-subj", "/CN=localhost", "-keyout", "tls.key", "-out", "tls.pem"])
        .current_dir(&stage.folder);
    let output = command.output().context("openssl")?;
    if !output.status.success() {
        bail!("openssl: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
