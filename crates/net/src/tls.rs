//! TLS: which certificates clients take ([`client`]); what servers show theirs ([`identity`]), and the connections that come
//! of it ([`stream`]).

pub mod client;
pub mod identity;
pub mod stream;

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// The cryptography of all clients and servers: `ring`.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The protocol that DNS over TLS is called by who names one (RFC 7858, RFC 9103 §7.1).
pub const DOT: &[u8] = b"dot";

/// The protocol that DNS over QUIC is called (RFC 9250 §4.1).
pub const DOQ: &[u8] = b"doq";

/// The authorities whose certificates are in a PEM text, whatever else is in it; `None` where there is none.
pub fn authorities(pem: &[u8]) -> Option<RootCertStore> {
    let mut authorities = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
    (authorities.add_parsable_certificates(certificates).0 > 0).then_some(authorities)
}

/// What failed, in words also where the library has only a name for it.
pub fn told(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            format!("{error}: nobody who is trusted has signed it")
        }
        Error::InvalidCertificate(CertificateError::Other(other)) if other.to_string() == AUTHORITYS => {
            let words = "it is an authority's, which must not be a server's (basicConstraints CA:TRUE)";
            format!("invalid peer certificate: {AUTHORITYS}: {words}")
        }
        _ => error.to_string(),
    }
}

/// How the library calls a certificate of an authority that a server presents as its own.
const AUTHORITYS: &str = "CaUsedAsEndEntity";

/// Takes any certificate, but not a forged handshake: that the certificate's key signed it is still looked at.
#[derive(Debug)]
pub struct Anybody(pub Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::OtherError;

    #[derive(Debug)]
    struct CaUsedAsEndEntity;

    impl std::fmt::Display for CaUsedAsEndEntity {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{self:?}")
        }
    }

    impl std::error::Error for CaUsedAsEndEntity {}

    #[test]
    fn names_of_errors_become_words() {
        let authoritys = CertificateError::Other(OtherError(Arc::new(CaUsedAsEndEntity)));
        for (error, expected) in [
            (CertificateError::UnknownIssuer, "UnknownIssuer: nobody who is trusted has signed it"),
            (authoritys, "CaUsedAsEndEntity: it is an authority's, which must not be a server's"),
            (CertificateError::Expired, "certificate"),
        ] {
            let told = told(&Error::InvalidCertificate(error));
            assert!(told.contains(expected), "{told}");
        }
    }
}
