//! Debian's NSD as it is measured: one zone, and no limits of rates, which are for strangers.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::process;

/// Its configuration, with files in a folder, and with `more` lines of its server clause.
pub fn configuration(folder: &Path, address: SocketAddr, origin: &str, zone: &Path, more: &str) -> String {
    let (ip, port, folder, zone) = (address.ip(), address.port(), folder.display(), zone.display());
    format!(
        "server:\n  ip-address: {ip}@{port}\n  username: \"\"\n  chroot: \"\"\n  database: \"\"\n  \
         zonesdir: \"{folder}\"\n  pidfile: \"{folder}/nsd.pid\"\n  xfrdfile: \"{folder}/nsd.xfrd\"\n  \
         zonelistfile: \"{folder}/nsd.list\"\n  xfrdir: \"{folder}\"\n  rrl-ratelimit: 0\n  \
         rrl-whitelist-ratelimit: 0\n  verbosity: 0\n{more}remote-control:\n  control-enable: no\n\
         zone:\n  name: {origin}\n  zonefile: \"{zone}\"\n",
    )
}

/// The lines by which it has TLS at an address, by a certificate in the folder that nobody has signed but itself.
///
/// # Errors
/// Where that cannot be made.
pub fn tls(folder: &Path, address: SocketAddr) -> Result<String> {
    let mut certificate = Command::new("openssl");
    certificate.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
    certificate.args(["-days", "2", "-subj", "/CN=localhost", "-keyout", "tls.key", "-out", "tls.pem"]);
    process::read(certificate.current_dir(folder))?;
    let (ip, port, folder) = (address.ip(), address.port(), folder.display());
    Ok(format!(
        "  ip-address: {ip}@{port}\n  tls-port: {port}\n  tls-service-key: \"{folder}/tls.key\"\n  \
         tls-service-pem: \"{folder}/tls.pem\"\n"
    ))
}
