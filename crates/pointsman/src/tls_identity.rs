//! The certificate and the key that clients are shown over TLS, as they stand in files.

use std::path::PathBuf;
use std::sync::Arc;

use api::{Fault, file};
use net::tls::identity::Identity;

/// The largest file of certificates, in octets: a chain has a few, of some kilobytes each.
const CERTIFICATES_MAX: u64 = 1 << 20;

/// The largest file of a key, in octets.
const KEY_MAX: u64 = 64 << 10;

/// Where both are.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// The server's certificate, and those that lead from it to an authority.
    pub(crate) certificate: PathBuf,
    /// Its private key.
    pub(crate) key: PathBuf,
}

impl Files {
    /// Reads both.
    ///
    /// # Errors
    /// What is wrong with either file, or with both together; nothing of the key is told.
    pub(crate) fn read(&self) -> Result<Arc<Identity>, Fault> {
        let (chain, key) = self.octets()?;
        Identity::new(&chain, key.as_bytes()).map(Arc::new).map_err(|what| self.fault(what))
    }

    /// Reads both again, and has them shown from now on.
    ///
    /// # Errors
    /// As [`Files::read`]; then what was shown before still is.
    pub(crate) fn renew(&self, identity: &Identity) -> Result<(), Fault> {
        let (chain, key) = self.octets()?;
        identity.renew(&chain, key.as_bytes()).map_err(|what| self.fault(what))
    }

    fn octets(&self) -> Result<(Vec<u8>, String), Fault> {
        let chain = file::read(&self.certificate, CERTIFICATES_MAX, "a certificate in PEM form")?;
        let key = file::read_secret(&self.key, KEY_MAX, "a private key in PEM form")?;
        Ok((chain, key))
    }

    fn fault(&self, what: String) -> Fault {
        let expected = format!("a certificate in PEM form, and its private key in {}", self.key.display());
        Fault::whole(self.certificate.to_string_lossy(), what, expected)
    }
}
