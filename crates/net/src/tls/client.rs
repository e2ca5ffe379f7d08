//! Clients of TLS: whose certificates they take, and the connections that come of it.

use std::io;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, Error};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::stream::Stream;
use super::{Anybody, authorities, provider, told};

/// Whose certificates are valid.
#[derive(Clone, Copy, Debug)]
pub enum Trust<'a> {
    /// Those that lead to one of these authorities, in PEM form, and are for the host that was asked for.
    Authorities(&'a [u8]),
    /// All, whoever signed them, for whatever host.
    Anybody,
}

/// The configuration of connections that trust so, and call what they speak by this name where they do. No session is
/// resumed: each time the certificate is looked at.
///
/// # Errors
/// What the authorities lack, as a fragment such as "hold no certificate".
pub fn config(trust: &Trust<'_>, protocol: Option<&[u8]>) -> Result<Arc<ClientConfig>, String> {
    let provider = provider();
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(|cause| cause.to_string())?;
    let mut config = match trust {
        Trust::Authorities(octets) => {
            let roots = authorities(octets).ok_or("hold no certificate that could be an authority's")?;
            builder.with_root_certificates(roots).with_no_client_auth()
        }
        Trust::Anybody => {
            let verifier = Arc::new(Anybody(provider));
            builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
        }
    };
    config.resumption = Resumption::disabled();
    config.alpn_protocols = protocol.map(<[u8]>::to_vec).into_iter().collect();
    Ok(Arc::new(config))
}

/// The name that a text can be of a host: a name or an address.
pub fn host(text: &str) -> Option<ServerName<'static>> {
    ServerName::try_from(text.to_owned()).ok()
}

/// How a server is asked over TLS.
#[derive(Clone, Debug)]
pub struct Encrypted {
    /// The name that its certificate is for.
    pub name: ServerName<'static>,
    /// Whose certificates are believed.
    pub config: Arc<ClientConfig>,
}

impl Encrypted {
    /// Comes to terms with the server.
    ///
    /// # Errors
    /// Why it does not, in words.
    pub async fn agree(&self, stream: TcpStream) -> Result<Stream, String> {
        let agreed = TlsConnector::from(self.config.clone()).connect(self.name.clone(), stream).await;
        agreed.map(|stream| Stream::Encrypted(Box::new(stream.into()))).map_err(|cause| words(&cause))
    }
}

fn words(cause: &io::Error) -> String {
    let error = cause.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    error.map_or_else(|| cause.to_string(), told)
}
