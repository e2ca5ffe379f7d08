//! Clients over QUIC: each stream of a connection asks one query (RFC 9250).

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use dns::dnstap::Protocol;
use dns::query::{HEADER, MESSAGE_MAX};
use dns::{Folded, Query};
use net::admission::Place;
use net::framing::prefix;
use net::shutdown::Shutdown;
use net::tcp::Limits;
use net::tls::identity::Identity;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{
    Connection, Endpoint, EndpointConfig, Incoming, ReadToEndError, RecvStream, SendStream, ServerConfig,
    TokioRuntime, TransportConfig, VarInt,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::connections::{Connections, Way};
use crate::conversation::PIPELINED_MAX;
use crate::under_way::UnderWay;

/// The octets of a message's length before it (RFC 9250 §4.2).
const LENGTH: usize = 2;

/// How long clients are waited for that were told that this is the end.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// Clients whose first datagram has come, and which nobody has looked at yet; what each may have sent, in octets.
const INCOMING_MAX: usize = 256;
const INCOMING_OCTETS: u64 = 16 << 10;

/// Why a connection is closed (RFC 9250 §4.3).
#[derive(Clone, Copy, Debug)]
enum Code {
    NoError = 0,
    ProtocolError = 2,
    RequestCancelled = 3,
    ExcessiveLoad = 4,
}

impl From<Code> for VarInt {
    fn from(code: Code) -> VarInt {
        VarInt::from_u32(code as u32)
    }
}

impl Code {
    fn close(self, connection: &Connection) {
        connection.close(self.into(), b"");
    }
}

/// What is spoken over QUIC, where addresses are told.
pub(crate) const NAME: &str = "DNS over QUIC";

/// Opens QUIC at a socket that is bound; clients wait until it is served.
///
/// # Errors
/// What the system says, and that the identity cannot be shown over QUIC.
pub(crate) fn open(socket: UdpSocket, identity: &Identity, limits: &Limits) -> io::Result<Endpoint> {
    let config = config(identity, limits)?;
    Endpoint::new(EndpointConfig::default(), Some(config), socket, Arc::new(TokioRuntime))
}

/// Serves clients until the shutdown begins; then queries under way are answered. Each has to show first that it is where it
/// says (RFC 9000 §8.1.2), so that nobody takes the places of others.
pub(crate) async fn serve(
    connections: Arc<Connections>,
    endpoint: Endpoint,
    identity: Arc<Identity>,
    shutdown: Shutdown,
) {
    let Ok(bound) = endpoint.local_addr() else { return };
    let mut clients = JoinSet::new();
    loop {
        let incoming = tokio::select! {
            biased;
            () = shutdown.wait() => break,
            Some(_) = clients.join_next() => continue,
            incoming = endpoint.accept() => incoming,
        };
        let Some(incoming) = incoming else { break };
        let client = incoming.remote_address();
        if !connections.lets_in(client.ip()) {
            incoming.ignore();
        } else if !incoming.remote_address_validated() {
            // It fails for who has shown it.
            let _ = incoming.retry();
        } else if let Ok(place) = connections.admission.admit(client.ip()) {
            let local = incoming.local_ip().unwrap_or(bound.ip());
            let way = Way { client, local: SocketAddr::new(local, bound.port()), protocol: Protocol::Doq };
            let (connections, identity, shutdown) = (connections.clone(), identity.clone(), shutdown.clone());
            clients.spawn(begin(connections, incoming, identity, way, place, shutdown));
        } else {
            connections.desk().counters.full.add(1);
            incoming.refuse();
        }
    }
    endpoint.set_server_config(None);
    while clients.join_next().await.is_some() {}
    // Who is told that this is the end may not hear it.
    let _ = timeout(FAREWELL_MAX, endpoint.wait_idle()).await;
}

/// Comes to terms with a client in the time that one message may take; then answers it.
async fn begin(
    connections: Arc<Connections>,
    incoming: Incoming,
    identity: Arc<Identity>,
    way: Way,
    place: Place,
    shutdown: Shutdown,
) {
    place.waits(false);
    let agreed = tokio::select! {
        biased;
        () = shutdown.wait() => return,
        () = place.gives_way() => return connections.desk().counters.gave_way.add(1),
        agreed = timeout(connections.limits.message, agree(incoming, &identity, &connections.limits)) => agreed,
    };
    match agreed {
        Ok(Some(connection)) => converse(connections, connection, way, place, shutdown).await,
        _ => connections.desk().counters.tls_failed.add(1),
    }
}

/// Comes to terms by the identity that is shown now.
async fn agree(incoming: Incoming, identity: &Identity, limits: &Limits) -> Option<Connection> {
    let config = config(identity, limits).ok()?;
    incoming.accept_with(Arc::new(config)).ok()?.await.ok()
}

fn config(identity: &Identity, limits: &Limits) -> io::Result<ServerConfig> {
    let crypto = QuicServerConfig::try_from(identity.quic()).map_err(io::Error::other)?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config
        .max_incoming(INCOMING_MAX)
        .incoming_buffer_size(INCOMING_OCTETS)
        .incoming_buffer_size_total(INCOMING_OCTETS * INCOMING_MAX as u64)
        .transport_config(Arc::new(transport(limits)));
    Ok(config)
}

/// What a client may hold: so many queries at a time, each of one message, and nothing else.
fn transport(limits: &Limits) -> TransportConfig {
    let mut transport = TransportConfig::default();
    let message = (LENGTH + MESSAGE_MAX) as u32;
    transport
        .max_concurrent_bidi_streams((PIPELINED_MAX as u32).into())
        .max_concurrent_uni_streams(0u32.into())
        .stream_receive_window(message.into())
        .receive_window((message * 2).into())
        .send_window(u64::from(message) * 2)
        .datagram_receive_buffer_size(None)
        // It is told apart here who is idle and who waits for answers.
        .max_idle_timeout(limits.lifetime.try_into().ok());
    transport
}

/// Answers what comes over a connection, until its client, a limit or the shutdown ends it; what is under way then is still
/// answered. Who gives way to a new client ends at once, as one over TCP does.
async fn converse(
    connections: Arc<Connections>,
    connection: Connection,
    way: Way,
    place: Place,
    shutdown: Shutdown,
) {
    let client = Arc::new(Client { connections, way, under_way: UnderWay::new(place) });
    let limits = client.connections.limits;
    let end = Instant::now() + limits.lifetime;
    let mut asked = JoinSet::new();
    loop {
        let until = client.under_way.waits_until(&limits).min(end);
        tokio::select! {
            biased;
            () = shutdown.wait() => break,
            () = client.under_way.place.gives_way() => {
                client.connections.desk().counters.gave_way.add(1);
                // What is under way at a back end ends by itself.
                asked.detach_all();
                return Code::ExcessiveLoad.close(&connection);
            }
            Some(_) = asked.join_next() => {}
            () = sleep_until(until) => if client.under_way.waits_until(&limits).min(end) <= Instant::now() { break },
            stream = connection.accept_bi() => {
                let Ok(stream) = stream else { return asked.detach_all() };
                let (client, connection) = (client.clone(), connection.clone());
                asked.spawn(async move { client.answer(stream, &connection).await });
            }
        }
    }
    let patience = client.connections.query_time_max().saturating_add(limits.message);
    let all = async { while asked.join_next().await.is_some() {} };
    if timeout(patience, all).await.is_err() {
        asked.detach_all();
    }
    Code::NoError.close(&connection);
}

/// Who has a connection.
struct Client {
    connections: Arc<Connections>,
    way: Way,
    /// Streams that are answered now.
    under_way: UnderWay,
}

impl Client {
    /// Answers the query of one stream; one that is not as it is to be ends the connection (RFC 9250 §4.3.3).
    async fn answer(&self, (mut send, mut receive): (SendStream, RecvStream), connection: &Connection) {
        let _asking = self.under_way.begin();
        let patience = self.connections.limits.message;
        let frame = match timeout(patience, receive.read_to_end(LENGTH + MESSAGE_MAX)).await {
            Ok(Ok(frame)) => Some(frame),
            Ok(Err(ReadToEndError::TooLong)) => None,
            // It is too slow, has changed its mind, or is gone.
            Ok(Err(_)) | Err(_) => {
                let _ = send.reset(Code::RequestCancelled.into());
                return;
            }
        };
        let Some(query) = frame.as_deref().and_then(message) else {
            self.connections.desk().counters.quic_refused.add(1);
            // Before the stream is dropped, which would end it in good order.
            return Code::ProtocolError.close(connection);
        };
        let (answered, mut answers) = mpsc::channel(1);
        let asked = async move { self.connections.answer(query, self.way, &answered).await };
        let told = async {
            if let Some(answer) = answers.recv().await {
                // What the client does not take is its to know.
                let _ = timeout(patience, write(send, &answer)).await;
            }
        };
        tokio::join!(asked, told);
    }
}

/// Sends an answer, and waits until the client has all of it: what it has not is lost when the connection is closed.
async fn write(mut stream: SendStream, answer: &[u8]) -> io::Result<()> {
    stream.write_all(&[&prefix(answer.len())[..], answer].concat()).await?;
    stream.finish().map_err(io::Error::other)?;
    stream.stopped().await.map_err(io::Error::other)?;
    Ok(())
}

/// The query in what came over a stream: the only message, with the id 0, and without what belongs to TCP (RFC 9250 §4.2,
/// §4.2.1, §5.5.2). A response is none.
fn message(frame: &[u8]) -> Option<&[u8]> {
    let (length, message) = frame.split_first_chunk::<LENGTH>()?;
    let is_whole = usize::from(u16::from_be_bytes(*length)) == message.len() && message.len() >= HEADER;
    let mut name = Folded::root();
    let edns = Query::read(message, &mut name).ok().and_then(|query| query.edns);
    let is_query = message.starts_with(&[0, 0]) && message.get(2).is_some_and(|flags| flags & 0x80 == 0);
    let is_fit = is_query && edns.is_none_or(|edns| !edns.tcp_keepalive);
    (is_whole && is_fit).then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_one_message_without_an_id_or_what_belongs_to_tcp() {
        const QUERY: &[u8] = b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";
        let framed = |message: &[u8]| [&(message.len() as u16).to_be_bytes()[..], message].concat();
        let with_id = [b"\0\x01", &QUERY[2..]].concat();
        let response = [b"\0\0\x80", &QUERY[3..]].concat();
        let mut keepalive = [QUERY, b"\0\0\x29\x04\xd0\0\0\0\0\0\x04\0\x0b\0\0"].concat();
        keepalive[11] = 1;
        // What is no query for other reasons is answered as elsewhere.
        let notify = [b"\0\0\x20", &QUERY[3..]].concat();
        for (frame, expected) in [
            (framed(QUERY), Some(QUERY)),
            (framed(&notify), Some(&notify[..])),
            (framed(&with_id), None),
            (framed(&response), None),
            (framed(&keepalive), None),
            (framed(&QUERY[..11]), None),
            (framed(QUERY)[..20].to_vec(), None),
            ([framed(QUERY), framed(QUERY)].concat(), None),
            (vec![0], None),
            (Vec::new(), None),
        ] {
            assert_eq!(message(&frame), expected, "{frame:?}");
        }
    }
}
