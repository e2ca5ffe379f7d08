//! What Debian's NSD needs to have TLS.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use tests::certificate::MAKE;

use crate::process;

/// The lines of its server clause for TLS at an address, by a certificate in the folder that nobody has signed but itself.
///
/// # Errors
/// Where that cannot be made.
pub fn tls(folder: &Path, address: SocketAddr) -> Result<String> {
    let mut certificate = Command::new("openssl");
    certificate.args(MAKE).args([
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
        "-keyout",
        "tls.key",
        "-out",
        "tls.pem",
    ]);
    process::read(certificate.current_dir(folder))?;
    let (ip, port, folder) = (address.ip(), address.port(), folder.display());
    Ok(format!(
        "  ip-address: {ip}@{port}\n  tls-port: {port}\n  tls-service-key: \"{folder}/tls.key\"\n  \
         tls-service-pem: \"{folder}/tls.pem\"\n"
    ))
}
