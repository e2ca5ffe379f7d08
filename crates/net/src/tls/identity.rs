//! What a server of TLS shows its clients: a certificate, and that it has its key.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{Error, ServerConfig};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::stream::Stream;
use super::{DOQ, DOT, provider};
use crate::admission::Place;
use crate::shutdown::Shutdown;

/// The certificate and the key of a server. They may be renewed while it serves: connections that are open go on as they
/// began.
#[derive(Debug)]
pub struct Identity(RwLock<Configs>);

/// What is shown, by what is spoken then.
#[derive(Clone, Debug)]
struct Configs {
    dns: Arc<ServerConfig>,
    http: Arc<ServerConfig>,
    quic: Arc<ServerConfig>,
}

/// What is spoken over TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// DNS, each message with its length before it (RFC 7858).
    Dns,
    /// HTTP, version 2 where the client has it, else 1.1 (RFC 8484).
    Http,
}

/// Why a client and we came to no terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTerms {
    /// What the client sends is no TLS, it wants what we do not have, it takes too long, or it is gone.
    Failed,
    /// Its place went to another.
    GaveWay,
    /// The shutdown has begun.
    ByShutdown,
}

impl Identity {
    /// The identity of a chain of certificates, the server's first, and of its private key, both in PEM form.
    ///
    /// # Errors
    /// What they lack, as a fragment such as "the certificates hold none".
    pub fn new(chain: &[u8], key: &[u8]) -> Result<Identity, String> {
        let mut dns = config(chain, key)?;
        let (mut http, mut quic) = (dns.clone(), dns.clone());
        quic.alpn_protocols = vec![DOQ.into()];
        dns.alpn_protocols = vec![DOT.into()];
        http.alpn_protocols = vec![b"h2".into(), b"http/1.1".into()];
        Ok(Identity(RwLock::new(Configs { dns: Arc::new(dns), http: Arc::new(http), quic: Arc::new(quic) })))
    }

    /// Shows what another one does from now on.
    pub fn renew(&self, renewed: &Identity) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = renewed.configs();
    }

    /// What is shown over QUIC now, where DNS is spoken (RFC 9250).
    pub fn quic(&self) -> Arc<ServerConfig> {
        self.configs().quic
    }

    fn configs(&self) -> Configs {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Comes to terms with a client that has a place, within `patience`.
    ///
    /// # Errors
    /// [`NoTerms`].
    pub async fn agree(
        &self,
        stream: TcpStream,
        speaks: Speaks,
        place: &Place,
        patience: Duration,
        shutdown: &Shutdown,
    ) -> Result<Stream, NoTerms> {
        let configs = self.configs();
        let config = if speaks == Speaks::Dns { configs.dns } else { configs.http };
        tokio::select! {
            biased;
            () = shutdown.wait() => Err(NoTerms::ByShutdown),
            () = place.gives_way() => Err(NoTerms::GaveWay),
            agreed = timeout(patience, TlsAcceptor::from(config).accept(stream)) => match agreed {
                Ok(Ok(stream)) => Ok(Stream::Encrypted(Box::new(stream.into()))),
                Ok(Err(_)) | Err(_) => Err(NoTerms::Failed),
            },
        }
    }
}

fn config(chain: &[u8], key: &[u8]) -> Result<ServerConfig, String> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(|cause| format!("the certificates cannot be read: {cause:?}"))?;
    if chain.is_empty() {
        return Err("the certificates hold none: no -----BEGIN CERTIFICATE-----".into());
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|cause| match cause {
        PemError::NoItemsFound => "the key holds none: no -----BEGIN PRIVATE KEY-----".to_string(),
        _ => "the key cannot be read".into(),
    })?;
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().map_err(|cause| cause.to_string())?;
    builder.with_no_client_auth().with_single_cert(chain, key).map_err(|cause| match cause {
        Error::InconsistentKeys(_) => "the key is not that of the first certificate".to_string(),
        cause => format!("the certificate or the key cannot be used: {cause}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::tests::certificate::Certificate;
    use ::tests::folder::Folder;
    use std::fs;

    #[test]
    fn what_is_no_identity_is_told() {
        let folders = [Folder::new(), Folder::new()];
        let [[chain, key], [other_chain, other_key]] = folders.each_ref().map(|folder| {
            let made = Certificate::new(folder);
            [made.certificate, made.key].map(|path| fs::read(path).expect("it was made"))
        });
        assert!(Identity::new(&chain, &key).is_ok() && Identity::new(&other_chain, &other_key).is_ok());
        for (chain, key, expected) in [
            (&b""[..], &key[..], "the certificates hold none"),
            (&key, &key, "the certificates hold none"),
            (&chain, b"", "the key holds none"),
            (&chain, &chain, "the key holds none"),
            (&chain, &other_key, "the key is not that of the first certificate"),
            (&chain[..chain.len() - 40], &key, "the certificates cannot be read"),
            (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &key, "cannot be used"),
        ] {
            let why = Identity::new(chain, key).expect_err(expected);
            assert!(why.contains(expected), "{why}");
        }
    }
}
