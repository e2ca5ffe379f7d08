//! Clients over connections as they come: who may, who has a place, and what is spoken then.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use dns::dnstap::Protocol;
use net::accept::{Acceptor, Event};
use net::admission::Place;
use net::shutdown::Shutdown;
use net::tls::identity::{Identity, NoTerms, Speaks};
use net::tls::stream::Stream;
use tokio::net::{TcpListener, TcpStream};

use crate::connections::{Connections, Way};
use crate::{conversation, https};

/// What is spoken over the connections of a listener.
#[derive(Clone, Debug)]
pub enum Over {
    /// DNS over TCP (RFC 7766).
    Tcp,
    /// DNS over TLS (RFC 7858), by this identity.
    Tls(Arc<Identity>),
    /// DNS over HTTPS (RFC 8484), by this identity.
    Https(Arc<Identity>),
}

impl Over {
    /// What it is called where addresses are told.
    pub fn name(&self) -> &'static str {
        match self {
            Over::Tcp => "DNS",
            Over::Tls(_) => "DNS over TLS",
            Over::Https(_) => "DNS over HTTPS",
        }
    }

    fn protocol(&self) -> Protocol {
        match self {
            Over::Tcp => Protocol::Tcp,
            Over::Tls(_) => Protocol::Dot,
            Over::Https(_) => Protocol::Doh,
        }
    }
}

/// The path of queries over HTTPS, which clients call `https://NAME/dns-query{?dns}`.
pub const PATH: &str = "/dns-query";

/// Serves connections until the shutdown begins; then queries under way are answered.
pub async fn serve(connections: Arc<Connections>, listener: TcpListener, over: Over, shutdown: Shutdown) {
    let mut acceptor = Acceptor::new(listener, shutdown.clone());
    while let Some(event) = acceptor.next().await {
        match event {
            Event::Connected(_, client) if !connections.lets_in(client.ip()) => {}
            Event::Connected(stream, client) => {
                let Ok(place) = connections.admission.admit(client.ip()) else {
                    connections.desk().counters.full.add(1);
                    continue;
                };
                let (connections, over, shutdown) = (connections.clone(), over.clone(), shutdown.clone());
                let has_replaced = place.has_replaced();
                acceptor.spawn(async move {
                    // What goes wrong on a connection is its client's to know.
                    let _ = begin(connections, (stream, client), over, place, shutdown).await;
                });
                // Who gives way is to be gone before too many others come.
                if has_replaced {
                    tokio::task::yield_now().await;
                }
            }
            Event::Failed { cause, is_to_tell: true } => {
                tracing::warn!(%cause, "connections cannot be accepted; it is tried again and again");
            }
            // The panic has been logged, and who is gone has nothing to lose.
            Event::Aborted(_) | Event::Failed { .. } | Event::Panicked => {}
        }
    }
}

/// Comes to terms with a client where its connection is to be encrypted, in the time that one message may take; then
/// answers it.
///
/// # Errors
/// What the system says where the connection is gone at once.
async fn begin(
    connections: Arc<Connections>,
    (stream, client): (TcpStream, SocketAddr),
    over: Over,
    place: Place,
    shutdown: Shutdown,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let way = Way { client, local: stream.local_addr()?, protocol: over.protocol() };
    place.waits(false);
    let patience = connections.limits.message;
    let agreed = match &over {
        Over::Tcp => Ok(Stream::Plain(stream)),
        Over::Tls(identity) => identity.agree(stream, Speaks::Dns, &place, patience, &shutdown).await,
        Over::Https(identity) => identity.agree(stream, Speaks::Http, &place, patience, &shutdown).await,
    };
    match agreed {
        Ok(stream) if matches!(over, Over::Https(_)) => {
            https::converse(connections, stream, way, place, shutdown).await;
        }
        Ok(stream) => conversation::converse(connections, stream, way, place, shutdown).await?,
        Err(NoTerms::Failed) => connections.desk().counters.tls_failed.add(1),
        Err(NoTerms::GaveWay) => connections.desk().counters.gave_way.add(1),
        Err(NoTerms::ByShutdown) => {}
    }
    Ok(())
}
