//! The rim: connections, and how long each may take for what.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use net::shutdown::Shutdown;
use net::tcp::ACCEPT_PAUSE;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::counters::{Counters, count};

/// Connections open at a time; further ones wait in the system's backlog. People, scrapers and control
/// processes hold a few each.
pub const CONNECTIONS_MAX: usize = 256;

/// The longest head of a request in octets: a name of 1,024 octets, percent-encoded, a token and some tags.
pub const HEAD_MAX: usize = 16 << 10;

/// How long a connection may wait for a request and for the whole of its head.
pub const HEAD_WAIT: Duration = Duration::from_secs(30);

/// How long a connection may be open: whoever does not take its answer must not hold a place for ever. A
/// request that is under way then has ten more seconds.
pub const CONNECTION_LIFETIME: Duration = Duration::from_secs(600);

/// How long the last request of a connection may take once the lifetime is over or the shutdown has begun: a
/// change waits five seconds for the slowest worker.
const LAST_REQUEST_WAIT: Duration = Duration::from_secs(10);

/// Serves connections of `listener` until `shutdown` begins, and then those requests that are under way.
///
/// # Errors
/// None today: what accepting fails with passes, and is waited for.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    counters: Arc<Counters>,
    shutdown: Shutdown,
) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let mut ends = pin!(shutdown.wait());
    loop {
        let accepted = async {
            let place = places.clone().acquire_owned().await.expect("the places are never closed");
            (place, listener.accept().await)
        };
        tokio::select! {
            () = &mut ends => break,
            (place, accepted) = accepted => match accepted {
                Ok((stream, _)) => {
                    let served = connection(stream, router.clone(), counters.clone(), shutdown.clone());
                    connections.spawn(async move {
                        served.await;
                        drop(place);
                    });
                }
                Err(cause) => {
                    count(&counters.accept_failed);
                    tracing::warn!(%cause, "the API cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    Ok(())
}

async fn connection(stream: TcpStream, router: Router, counters: Arc<Counters>, shutdown: Shutdown) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT).max_buf_size(HEAD_MAX);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    tokio::select! {
        // What goes wrong on a connection is its client's to know; here it is only counted.
        ended = &mut connection => return ended.unwrap_or_else(|how| counters.ended(&how)),
        () = tokio::time::sleep(CONNECTION_LIFETIME) => count(&counters.lifetime),
        () = shutdown.wait() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(LAST_REQUEST_WAIT, connection).await;
}
