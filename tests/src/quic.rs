//! A server of DNS over QUIC (RFC 9250) for tests, as Debian has none: it says yes to every query.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, Incoming, RecvStream, SendStream, ServerConfig};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::runtime::{Builder, Runtime};

use crate::certificate::Certificate;

/// The longest query with its length prefix, in octets.
const QUERY_MAX: usize = 2 + 65_535;

/// A running server; it ends with this value.
#[derive(Debug)]
pub struct QuicServer {
    /// Where it listens.
    pub address: SocketAddr,
    /// Connections that came about.
    pub connections: Arc<AtomicU64>,
    /// Queries that were not as RFC 9250 wants them.
    pub faults: Arc<AtomicU64>,
    _runtime: Runtime,
}

impl QuicServer {
    /// Starts it on loopback.
    ///
    /// # Panics
    /// Where the certificate cannot be used or no port is free.
    pub fn start(certificate: &Certificate) -> QuicServer {
        let chain = CertificateDer::from_pem_file(&certificate.certificate).expect("it was made");
        let key = PrivateKeyDer::from_pem_file(&certificate.key).expect("it was made");
        let mut tls =
            rustls::ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
                .with_safe_default_protocol_versions()
                .expect("ring has them")
                .with_no_client_auth()
                .with_single_cert(vec![chain], key)
                .expect("they belong together");
        tls.alpn_protocols = vec![b"doq".to_vec()];
        let crypto = QuicServerConfig::try_from(tls).expect("ring has TLS 1.3");
        let config = ServerConfig::with_crypto(Arc::new(crypto));
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let (connections, faults) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let endpoint = {
            let _inside = runtime.enter();
            Endpoint::server(config, (Ipv4Addr::LOCALHOST, 0).into()).expect("loopback binds")
        };
        let address = endpoint.local_addr().expect("it is bound");
        let counts = (Arc::clone(&connections), Arc::clone(&faults));
        runtime.spawn(async move {
            while let Some(incoming) = endpoint.accept().await {
                tokio::spawn(serve(incoming, counts.clone()));
            }
        });
        QuicServer { address, connections, faults, _runtime: runtime }
    }
}

async fn serve(incoming: Incoming, (connections, faults): (Arc<AtomicU64>, Arc<AtomicU64>)) {
    let Ok(connection) = incoming.await else { return };
    connections.fetch_add(1, Ordering::Relaxed);
    while let Ok((send, receive)) = connection.accept_bi().await {
        let faults = Arc::clone(&faults);
        tokio::spawn(async move {
            if answer(send, receive).await.is_none() {
                faults.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
}

/// Answers the query of a stream: one message, with its length before it, an id of 0 and the stream's end behind it.
async fn answer(mut send: SendStream, mut receive: RecvStream) -> Option<()> {
    let mut frame = receive.read_to_end(QUERY_MAX).await.ok()?;
    let (length, message) = frame.split_first_chunk_mut::<2>()?;
    let is_query = usize::from(u16::from_be_bytes(*length)) == message.len() && message.len() >= 12;
    if !is_query || message[..2] != [0, 0] {
        return None;
    }
    message[2] |= 0x80;
    send.write_all(&frame).await.ok()?;
    send.finish().ok()
}
