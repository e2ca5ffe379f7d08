//! What HTTPS probes take for a valid certificate.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// Whose certificates are valid.
#[derive(Clone, Copy, Debug)]
pub enum Trust<'a> {
    /// Those that lead to one of these authorities, in PEM form, and are for the host that was asked for.
    Authorities(&'a [u8]),
    /// All.
    Anybody,
}

/// The configuration of connections that trust so. No session is resumed: each probe looks at the certificate.
///
/// # Errors
/// What the authorities lack, as a fragment such as "hold no certificate".
pub fn config(trust: &Trust<'_>) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(|cause| cause.to_string())?;
    let mut config = match trust {
        Trust::Authorities(octets) => {
            let mut roots = RootCertStore::empty();
            let certificates = CertificateDer::pem_slice_iter(octets).filter_map(Result::ok);
            if roots.add_parsable_certificates(certificates).0 == 0 {
                return Err("hold no certificate that could be an authority's".into());
            }
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

/// Takes any certificate, but not a forged handshake.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
