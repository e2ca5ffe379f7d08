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
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, NamedGroup, RootCertStore, SignatureScheme};

/// Tickets that a client keeps of TLS 1.3, each good for one connection: what servers give out at once, and as many
/// again.
const TICKETS_MAX: usize = 4;

/// Whom clients trust.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Servers whose certificate one of these authorities has signed.
    Authorities(Arc<RootCertStore>),
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
    /// Trusts the authorities whose certificates are in a PEM file.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn read(path: &Path) -> Result<Trust, String> {
        let octets = std::fs::read(path).map_err(|cause| format!("it cannot be read: {cause}"))?;
        let authorities =
            authorities(&octets).ok_or("no certificate is in it that could be an authority's")?;
        Ok(Trust::Authorities(Arc::new(authorities)))
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
            Trust::Authorities(authorities) => Arc::new(Verifying {
                by: WebPkiServerVerifier::builder_with_provider(
                    Arc::clone(authorities),
                    Arc::clone(&provider),
                )
                .build()
                .map_err(|cause| cause.to_string())?,
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

    /// Keeps why a connection was not made, if it is the first.
    pub(super) fn note(&self, error: &impl ToString) {
        self.failed.get_or_init(|| error.to_string());
    }

    /// Why the first connection that was not made was not, if there was one.
    pub(super) fn failed(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }
}

/// Looks at certificates, and keeps why the first one was refused.
#[derive(Debug)]
struct Verifying {
    by: Arc<WebPkiServerVerifier>,
    unverified: Arc<OnceLock<String>>,
}

impl ServerCertVerifier for Verifying {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verdict = self.by.verify_server_cert(certificate, chain, name, ocsp, now);
        if let Err(error) = &verdict {
            self.unverified.get_or_init(|| format!("for {}: {error}", name.to_str()));
        }
        verdict
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.by.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
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
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.is_looked_at.store(true, Ordering::Relaxed);
        self.by.verify_server_cert(certificate, chain, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.by.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
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
