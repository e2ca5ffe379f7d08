//! What HTTPS probes take for a valid certificate.

use std::sync::Arc;

use net::tls::{Anybody, authorities, provider};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;

/// Whose certificates are valid.
#[derive(Clone, Copy, Debug)]
pub enum Trust<'a> {
    /// Those that lead to one of these authorities, in PEM form, and are for the host that was asked for.
    Authorities(&'a [u8]),
    /// All, whoever signed them, for whatever host.
    Anybody,
}

/// The configuration of connections that trust so. No session is resumed: each probe looks at the certificate.
///
/// # Errors
/// What the authorities lack, as a fragment such as "hold no certificate".
pub fn config(trust: &Trust<'_>) -> Result<Arc<ClientConfig>, String> {
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
    Ok(Arc::new(config))
}

/// Whether a text can be the host of a probe: a name or an address.
pub fn is_host(text: &str) -> bool {
    ServerName::try_from(text).is_ok()
}
