//! What clients are shown over TLS, a certificate and its key; and which authorities servers are believed by. From files.

use std::path::PathBuf;
use std::sync::Arc;

use api::file::WRITTEN_MAX;
use api::{Fault, Faults, file};
use net::tls::client::{self, Trust};
use net::tls::identity::Identity;
use rustls::ClientConfig;

use super::spec::{Place, Placed, resolve};

/// Where Debian keeps the certificates of authorities that browsers believe.
pub(crate) const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The largest file of certificates, in octets: a chain has a few, of some kilobytes each.
const CERTIFICATES_MAX: u64 = 1 << 20;

/// The largest file of a key, in octets.
const KEY_MAX: u64 = 64 << 10;

/// The files of both.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    /// Reads both.
    ///
    /// # Errors
    /// What is wrong with either file, or with both together; nothing of the key is told.
    pub(crate) fn read(&self) -> Result<Identity, Fault> {
        let chain = file::read(&self.certificate, CERTIFICATES_MAX, "a certificate in PEM form")?;
        let key = file::read_secret(&self.key, KEY_MAX, "a private key in PEM form")?;
        Identity::new(&chain, key.as_bytes()).map_err(|what| {
            let expected =
                format!("a certificate in PEM form, and its private key in {}", self.key.display());
            Fault::whole(self.certificate.to_string_lossy(), what, expected)
        })
    }
}

/// Where what clients are shown stands: where there is one of address, certificate and key, there are all. `listen` is where
/// the first address was given, and how one can be.
pub(super) fn files(
    (listen, addresses): (Option<&Place>, &str),
    certificate: Option<&Placed<PathBuf>>,
    key: Option<&Placed<PathBuf>>,
    faults: &mut Faults,
) -> Option<Files> {
    let places = [listen, certificate.map(|file| &file.place), key.map(|file| &file.place)];
    let place = places.into_iter().flatten().next()?;
    let needed = [
        (listen.is_none(), "no address for it", addresses),
        (certificate.is_none(), "no certificate", "tls_certificate (--tls-certificate FILE)"),
        (key.is_none(), "no key", "tls_key (--tls-key FILE)"),
    ];
    for (_, what, expected) in needed.into_iter().filter(|(is_missing, ..)| *is_missing) {
        faults.push(place.fault(format!("there is TLS and {what}"), expected));
    }
    Some(Files { certificate: resolve(certificate?), key: resolve(key?) })
}

/// What clients are shown; `None` where there is no TLS, or what is shown is wrong, which is added to `faults`.
pub(super) fn shown(files: Option<&Files>, faults: &mut Faults) -> Option<Arc<Identity>> {
    files?.read().map_err(|fault| faults.push(fault)).ok().map(Arc::new)
}

/// The configuration of connections to servers whose certificates lead to an authority in this file, or in
/// [`AUTHORITIES`]; `protocol` is what they speak, `given` where that is asked for and what is expected there. `None` where
/// the file is wrong, which is added to `faults`.
pub(super) fn trusting(
    file: Option<&Placed<PathBuf>>,
    protocol: Option<&[u8]>,
    given: (&Place, &str),
    faults: &mut Faults,
) -> Option<Arc<ClientConfig>> {
    let path: PathBuf = file.map_or(AUTHORITIES.into(), resolve);
    let config = file::read(&path, WRITTEN_MAX, "")
        .map_err(|fault| fault.what)
        .and_then(|octets| client::config(&Trust::Authorities(&octets), protocol));
    let (place, expected) = given;
    let place = file.map_or(place, |file| &file.place);
    let told = |cause| place.fault(format!("the authorities in {}: {cause}", path.display()), expected);
    config.map_err(|cause| faults.push(told(cause))).ok()
}
