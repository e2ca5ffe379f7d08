//! TLS as clients speak it: whom they trust, and what each remembers of its sessions.
//!
//! The one place that makes configurations.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use net::tls::{Anybody, authorities, provider};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue, WebPkiServerVerifier,
    verify_server_name,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, NamedGroup, RootCertStore, SignatureScheme,
};

/// Tickets that a client keeps of TLS 1.3, each good for one connection: what servers give out at once, and as many
/// again.
const TICKETS_MAX: usize = 4;

/// Whom clients trust.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Servers whose certificate one of these authorities has signed, or is one of those given.
    Authorities {
        /// Who signs.
        signers: Arc<RootCertStore>,
        /// All certificates of the file.
        given: Arc<[CertificateDer<'static>]>,
    },
    /// Everybody: certificates are not looked at.
    Anybody,
}

/// TLS for all clients of a run.
#[derive(Debug)]
pub struct Tls {
    config: ClientConfig,
    verifier: Arc<dyn ServerCertVerifier>,
    name: Option<ServerName<'static>>,
    is_resuming: bool,
    unverified: Arc<OnceLock<String>>,
    failed: OnceLock<String>,
}

/// What one client remembers for its next connection.
#[derive(Debug, Default)]
pub(super) struct Session {
    remembered: Mutex<Remembered>,
    watched: OnceLock<Arc<Watched>>,
}

#[derive(Debug, Default)]
struct Remembered {
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl Trust {
    /// Trusts the authorities whose certificates are in a PEM file, and servers whose own certificate is.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn read(path: &Path) -> Result<Trust, String> {
        let octets = std::fs::read(path).map_err(|cause| format!("it cannot be read: {cause}"))?;
        Trust::of(&octets)
    }

    pub(super) fn of(pem: &[u8]) -> Result<Trust, String> {
        let signers = authorities(pem).ok_or("no certificate is in it that could be an authority's")?;
        let given = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect();
        Ok(Trust::Authorities { signers: Arc::new(signers), given })
    }
}

impl Tls {
    /// TLS for clients that trust so; `name` is what certificates must be for, where that is not the server's address.
    ///
    /// # Errors
    /// Why the name cannot be one.
    pub fn new(trust: &Trust, name: Option<&str>, is_resuming: bool) -> Result<Tls, String> {
        let name = name.map(|name| ServerName::try_from(name.to_owned())).transpose();
        let name = name.map_err(|_| "it is neither a host's name nor an address".to_owned())?;
        let provider = provider();
        let unverified = Arc::new(OnceLock::new());
        let verifier: Arc<dyn ServerCertVerifier> = match trust {
            Trust::Anybody => Arc::new(Anybody(Arc::clone(&provider))),
            Trust::Authorities { signers, given } => Arc::new(Verifying {
                by: WebPkiServerVerifier::builder_with_provider(Arc::clone(signers), Arc::clone(&provider))
                    .build()
                    .map_err(|cause| cause.to_string())?,
                given: Arc::clone(given),
                unverified: Arc::clone(&unverified),
            }),
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|cause| cause.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&verifier))
            .with_no_client_auth();
        Ok(Tls { config, verifier, name, is_resuming, unverified, failed: OnceLock::new() })
    }

    /// The configuration of one connection: what it speaks (ALPN; empty for nothing to be said of it), and the session
    /// of its client.
    pub(super) fn config(&self, speaks: &[u8], session: Option<Arc<Session>>) -> Arc<ClientConfig> {
        let mut config = self.config.clone();
        config.resumption = match session {
            Some(session) => Resumption::store(session),
            None => Resumption::disabled(),
        };
        if !speaks.is_empty() {
            config.alpn_protocols = vec![speaks.to_vec()];
        }
        Arc::new(config)
    }

    /// The same, with what notices whether a certificate is looked at: it is in a full handshake only.
    pub(super) fn watched_config(
        &self,
        speaks: &[u8],
        session: Option<Arc<Session>>,
    ) -> (Arc<ClientConfig>, Arc<Watched>) {
        let new =
            || Arc::new(Watched { by: Arc::clone(&self.verifier), is_looked_at: AtomicBool::new(false) });
        // A session is resumed only under the very verifier that it began with.
        let watched = match &session {
            Some(session) => Arc::clone(session.watched.get_or_init(new)),
            None => new(),
        };
        watched.is_looked_at.store(false, Ordering::Relaxed);
        let mut config = ClientConfig::clone(&self.config(speaks, session));
        let verifier: Arc<dyn ServerCertVerifier> = Arc::<Watched>::clone(&watched);
        config.dangerous().set_certificate_verifier(verifier);
        (Arc::new(config), watched)
    }

    /// Whom a certificate must be for.
    pub(super) fn name(&self, server: IpAddr) -> ServerName<'static> {
        self.name.clone().unwrap_or_else(|| ServerName::IpAddress(server.into()))
    }

    /// Whether clients come back with their sessions.
    pub(super) fn is_resuming(&self) -> bool {
        self.is_resuming
    }

    /// Why the first certificate that does not verify does not, if there was one.
    pub(super) fn unverified(&self) -> Option<&str> {
        self.unverified.get().map(String::as_str)
    }

    /// Keeps why a connection, or a query on one, failed, if it is the first.
    pub(super) fn note(&self, error: &impl ToString) {
        self.failed.get_or_init(|| error.to_string());
    }

    /// Why the first connection, or query on one, failed, if one did.
    pub(super) fn failed(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }
}

/// Looks at certificates, and keeps why the first one was refused.
#[derive(Debug)]
struct Verifying {
    by: Arc<WebPkiServerVerifier>,
    given: Arc<[CertificateDer<'static>]>,
    unverified: Arc<OnceLock<String>>,
}

impl Verifying {
    /// Takes a certificate that nobody signed whom we trust, where it is itself one of those given.
    ///
    /// Such are those that servers sign themselves: as an authority's, which must not be a server's, or without a signer.
    /// The period of validity has been looked at before either is found; the name is here.
    fn verify_given(
        &self,
        certificate: &CertificateDer<'_>,
        name: &ServerName<'_>,
        error: Error,
    ) -> Result<ServerCertVerified, Error> {
        use CertificateError::{Other, UnknownIssuer};
        let has_no_signer = matches!(error, Error::InvalidCertificate(UnknownIssuer | Other(_)));
        if !has_no_signer || !self.given.iter().any(|given| given == certificate) {
            return Err(error);
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        Ok(ServerCertVerified::assertion())
    }
}

impl ServerCertVerifier for Verifying {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verdict = self.by.verify_server_cert(certificate, chain, name, ocsp, now);
        let verdict = verdict.or_else(|error| self.verify_given(certificate, name, error));
        if let Err(error) = &verdict {
            self.unverified.get_or_init(|| format!("for {}: {}", name.to_str(), net::tls::told(error)));
        }
        verdict
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by.supported_verify_schemes()
    }
}

/// Notices that a certificate is looked at.
#[derive(Debug)]
pub(super) struct Watched {
    by: Arc<dyn ServerCertVerifier>,
    is_looked_at: AtomicBool,
}

impl Watched {
    /// Whether one was, in the last connection that was begun with this.
    pub(super) fn is_looked_at(&self) -> bool {
        self.is_looked_at.load(Ordering::Relaxed)
    }
}

impl ServerCertVerifier for Watched {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.is_looked_at.store(true, Ordering::Relaxed);
        self.by.verify_server_cert(certificate, chain, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by.supported_verify_schemes()
    }
}

impl Session {
    fn with<T>(&self, then: impl FnOnce(&mut Remembered) -> T) -> T {
        then(&mut self.remembered.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A client stays with one server, so that what it remembers needs no name.
impl ClientSessionStore for Session {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.with(|held| held.group = Some(group));
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.with(|held| held.group)
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.with(|held| held.tls12 = Some(value));
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.with(|held| held.tls12.clone())
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.with(|held| held.tls12 = None);
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.with(|held| {
            if held.tickets.len() >= TICKETS_MAX {
                held.tickets.pop_front();
            }
            held.tickets.push_back(value);
        });
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.with(|held| held.tickets.pop_back())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;

    /// Signed by itself and an authority's, as `openssl req -x509` makes them: for dns.example.com and 127.0.0.1, from
    /// November 2026 for a hundred years.
    pub(in crate::send) const SELF: &str = "\
-----BEGIN CERTIFICATE-----
MIIBkTCCATegAwIBAgIUa4t36A/lbAHPrOCx2PpyxTDJkPIwCgYIKoZIzj0EAwIw
DDEKMAgGA1UEAwwBczAgFw0yNjExMjUwMDM4NTdaGA8yMTI2MTEwMTAwMzg1N1ow
DDEKMAgGA1UEAwwBczBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABDmPQzT1xRK1
D+fSztQyU7TalB7zaVzaO7zGsEI0i6GlEA+hK83854QSM4JywnvT9oHo1P9Ki2Vl
X4aN0RtHgWWjdTBzMB0GA1UdDgQWBBSeHrQQKt4ZdI7ierpWFtMEsmgHdzAfBgNV
HSMEGDAWgBSeHrQQKt4ZdI7ierpWFtMEsmgHdzAPBgNVHRMBAf8EBTADAQH/MCAG
A1UdEQQZMBeCD2Rucy5leGFtcGxlLmNvbYcEfwAAATAKBggqhkjOPQQDAgNIADBF
AiEAoOB1XU2+JVE/rGf/UjMGx3uuFHN9528OrWYm39xVsdYCIETM64GnHEX2iQok
H/lUFYPxibQGEejF1mFDG0UZiPPz
-----END CERTIFICATE-----
";

    /// The key of [`SELF`].
    pub(in crate::send) const KEY: &str = "\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg3SlB8hrjZ0SWVgy2
uZO6F1ucaD/S4F17Cw5/8p+9JoChRANCAAQ5j0M09cUStQ/n0s7UMlO02pQe82lc
2ju8xrBCNIuhpRAPoSvN/OeEEjOCcsJ70/aB6NT/SotlZV+GjdEbR4Fl
-----END PRIVATE KEY-----
";

    /// For dns.example.com, in the same years, signed by an authority that is not here.
    const SIGNED: &str = "\
-----BEGIN CERTIFICATE-----
MIIBiDCCAS6gAwIBAgIUN6hFp+ocPH5NPi59aQe9uaViegowCgYIKoZIzj0EAwIw
DDEKMAgGA1UEAwwBYTAgFw0yNjExMjUwMDM4NTdaGA8yMTI2MTEwMTAwMzg1N1ow
DDEKMAgGA1UEAwwBbDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABCDyR3MBUurd
1/4NM+UXY0QdPljccIXhS67OpxGOHQ9rmCe0xs7jSUpvV4X9JzKroYebe0RH4XB1
7QiW126swMKjbDBqMB0GA1UdDgQWBBTUC6x0DJjh99oezEzgMLUqVUusEjAfBgNV
HSMEGDAWgBR+DXim6/VFiQWUKbvjCukpgJNDKTAMBgNVHRMBAf8EAjAAMBoGA1Ud
EQQTMBGCD2Rucy5leGFtcGxlLmNvbTAKBggqhkjOPQQDAgNIADBFAiAHllOlTTn0
YF6VEHi6yt/Y9gN/QaXIi378SSbwUY8qCgIhAK3Ke9uOLhbpMevODY4B3V4O/Rap
cjpdOk5/cv9X6Lqv
-----END CERTIFICATE-----
";

    /// 2100 and 2200, in seconds since 1970.
    const IN_TIME: u64 = 4_102_444_800;
    const TOO_LATE: u64 = 7_258_118_400;

    #[test]
    fn a_certificate_that_is_itself_given_is_taken() {
        let both = format!("{SELF}{SIGNED}");
        for (given, shown, name, at, expected) in [
            (SELF, SELF, "dns.example.com", IN_TIME, ""),
            (SELF, SELF, "127.0.0.1", IN_TIME, ""),
            (&both, SIGNED, "dns.example.com", IN_TIME, ""),
            (SELF, SELF, "dns.example.org", IN_TIME, "not valid for name"),
            (SELF, SELF, "127.0.0.2", IN_TIME, "not valid for name"),
            (SELF, SELF, "dns.example.com", TOO_LATE, "expired"),
            (&both, SIGNED, "dns.example.com", TOO_LATE, "expired"),
            (SELF, SIGNED, "dns.example.com", IN_TIME, "UnknownIssuer"),
            (SIGNED, SELF, "dns.example.com", IN_TIME, "CaUsedAsEndEntity"),
        ] {
            let tls = Tls::new(&Trust::of(given.as_bytes()).expect("certificates"), None, false);
            let tls = tls.expect("no name is told");
            let shown = CertificateDer::from_pem_slice(shown.as_bytes()).expect("a certificate");
            let name = ServerName::try_from(name).expect("a name");
            let now = UnixTime::since_unix_epoch(Duration::from_secs(at));
            let told = match tls.verifier.verify_server_cert(&shown, &[], &name, &[], now) {
                Ok(_) => String::new(),
                Err(error) => error.to_string(),
            };
            assert!(told.contains(expected) && told.is_empty() == expected.is_empty(), "{expected}: {told}");
            assert_eq!(tls.unverified().is_none(), expected.is_empty());
        }
    }
}
