//! DNS over QUIC (RFC 9250) as datagrams: one connection, a stream a query. No socket; the clock is an argument.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use foldhash::{HashMap, HashMapExt};
use net::framing::{self, FRAME_MAX};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint,
    EndpointConfig, Event, ReadError, StreamEvent, StreamId, TransportConfig, VarInt,
};

use super::tally::Cause;
use super::tls::{Session, Tls, Watched};
use super::told::{Told, UNWRITTEN_MAX};

/// What a client speaks, as TLS has it (ALPN).
const SPEAKS: &[u8] = b"doq";

/// The code of an end without an error (RFC 9250 §4.3).
const NO_ERROR: VarInt = VarInt::from_u32(0);

/// The code of a query that nobody waits for any longer (RFC 9250 §4.3).
const REQUEST_CANCELLED: VarInt = VarInt::from_u32(3);

/// One client's connection.
pub(super) struct Quic {
    endpoint: Endpoint,
    connection: Connection,
    handle: ConnectionHandle,
    server: SocketAddr,
    tls: Arc<Tls>,
    /// Whether a certificate was looked at: it is not where a session is resumed.
    watched: Arc<Watched>,
    /// Queries that wait for the handshake, or for the server to take one more stream.
    waiting: VecDeque<(u16, Vec<u8>)>,
    waiting_octets: usize,
    streams: HashMap<StreamId, Asked>,
    /// Datagrams that answer what belongs to no connection.
    stateless: Vec<Vec<u8>>,
}

/// A query on its stream.
#[derive(Debug)]
struct Asked {
    id: u16,
    unsent: Vec<u8>,
    received: Vec<u8>,
}

impl Quic {
    /// Begins a connection; its ids are the system's draws, as a server may still know those of an earlier run.
    ///
    /// # Errors
    /// What it cannot begin with.
    pub(super) fn new(
        tls: &Arc<Tls>,
        server: SocketAddr,
        session: Option<Arc<Session>>,
        now: Instant,
    ) -> Result<Quic, Cause> {
        let refused = |error: &dyn fmt::Display| {
            tls.note(&error.to_string());
            Cause::Handshake
        };
        let (config, watched) = tls.watched_config(SPEAKS, session);
        let config = QuicClientConfig::try_from(config).map_err(|error| refused(&error))?;
        let mut config = ClientConfig::new(Arc::new(config));
        let mut transport = TransportConfig::default();
        // Idle connections are closed by the thread; no packet is there to try for a larger size.
        transport.max_idle_timeout(None).mtu_discovery_config(None);
        config.transport_config(Arc::new(transport));
        let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, false, None);
        let name = tls.name(server.ip());
        let begun = endpoint.connect(now, config, server, &name.to_str());
        let (handle, connection) = begun.map_err(|error| refused(&error))?;
        Ok(Quic {
            endpoint,
            connection,
            handle,
            server,
            tls: Arc::clone(tls),
            watched,
            waiting: VecDeque::new(),
            waiting_octets: 0,
            streams: HashMap::new(),
            stateless: Vec::new(),
        })
    }

    /// Takes a query, which goes when the server takes one more.
    ///
    /// # Errors
    /// [`Cause::NoRoom`].
    pub(super) fn ask(&mut self, id: u16, message: &[u8]) -> Result<(), Cause> {
        if self.waiting_octets + message.len() > UNWRITTEN_MAX || message.len() > framing::MESSAGE_MAX {
            return Err(Cause::NoRoom);
        }
        let mut frame = [&framing::prefix(message.len())[..], message].concat();
        // RFC 9250 §4.2.1: an id of 0, as the stream tells which answer is whose.
        if let Some(place) = frame.get_mut(framing::PREFIX_LEN..framing::PREFIX_LEN + 2) {
            place.fill(0);
        }
        self.waiting_octets += frame.len();
        self.waiting.push_back((id, frame));
        Ok(())
    }

    /// Takes a query back: it goes no more, or its stream is ended, of which a server has only so many.
    pub(super) fn give_up(&mut self, id: u16) {
        let place = self.waiting.iter().position(|(waiting, _)| *waiting == id);
        if let Some((_, frame)) = place.and_then(|place| self.waiting.remove(place)) {
            self.waiting_octets -= frame.len();
            return;
        }
        let Some(stream) = self.streams.iter().find(|(_, asked)| asked.id == id).map(|(stream, _)| *stream)
        else {
            return;
        };
        self.streams.remove(&stream);
        // Where all was sent, and acknowledged, there is nothing to take back.
        let _ = self.connection.send_stream(stream).reset(REQUEST_CANCELLED);
        let _ = self.connection.recv_stream(stream).stop(REQUEST_CANCELLED);
    }

    /// Takes a datagram from the server.
    pub(super) fn receive(&mut self, datagram: &[u8], now: Instant) {
        let mut answer = Vec::new();
        let data = BytesMut::from(datagram);
        match self.endpoint.handle(now, self.server, None, None, data, &mut answer) {
            Some(DatagramEvent::ConnectionEvent(_, event)) => self.connection.handle_event(event),
            Some(DatagramEvent::Response(_)) => self.stateless.push(answer),
            Some(DatagramEvent::NewConnection(incoming)) => self.endpoint.ignore(incoming),
            None => {}
        }
    }

    /// Time has passed.
    pub(super) fn elapsed(&mut self, now: Instant) {
        self.connection.handle_timeout(now);
    }

    /// When [`Quic::elapsed`] is wanted next.
    pub(super) fn timeout(&mut self) -> Option<Instant> {
        self.connection.poll_timeout()
    }

    /// Does all that can be done: tells what has arrived, and hands out the datagrams that are to leave.
    ///
    /// # Errors
    /// Why the connection has ended.
    pub(super) fn go_on(
        &mut self,
        now: Instant,
        told: &mut dyn FnMut(Told<'_>),
        mut leaves: impl FnMut(Vec<u8>),
    ) -> Result<(), Cause> {
        self.stateless.drain(..).for_each(&mut leaves);
        let mut ended = Ok(());
        loop {
            while let Some(event) = self.connection.poll_endpoint_events() {
                if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                    self.connection.handle_event(event);
                }
            }
            let Some(event) = self.connection.poll() else { break };
            match event {
                Event::Connected => {
                    told(Told::Secured { is_resumed: !self.watched.is_looked_at() });
                }
                Event::ConnectionLost { reason } => ended = Err(self.lost(&reason)),
                Event::Stream(StreamEvent::Readable { id }) => self.read(id, told),
                Event::Stream(StreamEvent::Writable { id }) => self.write(id),
                Event::Stream(StreamEvent::Stopped { id, .. }) => {
                    if let Some(asked) = self.streams.remove(&id) {
                        told(Told::Failed(asked.id, Cause::Reset));
                    }
                }
                _ => {}
            }
        }
        if !self.connection.is_handshaking() {
            self.send();
        }
        let mut datagram = Vec::new();
        while self.connection.poll_transmit(now, 1, &mut datagram).is_some() {
            leaves(std::mem::take(&mut datagram));
        }
        ended
    }

    /// Says goodbye.
    pub(super) fn close(&mut self, now: Instant, mut leaves: impl FnMut(Vec<u8>)) {
        self.connection.close(now, NO_ERROR, Bytes::new());
        let mut datagram = Vec::new();
        while self.connection.poll_transmit(now, 1, &mut datagram).is_some() {
            leaves(std::mem::take(&mut datagram));
        }
    }

    /// Sends the queries that wait, as far as the server takes streams.
    fn send(&mut self) {
        while !self.waiting.is_empty() {
            let Some(stream) = self.connection.streams().open(Dir::Bi) else { return };
            let Some((id, unsent)) = self.waiting.pop_front() else { return };
            self.waiting_octets -= unsent.len();
            self.streams.insert(stream, Asked { id, unsent, received: Vec::new() });
            self.write(stream);
        }
    }

    fn write(&mut self, stream: StreamId) {
        let Some(asked) = self.streams.get_mut(&stream) else { return };
        let mut to = self.connection.send_stream(stream);
        while !asked.unsent.is_empty() {
            // What has no room now is told when it has.
            let Ok(written) = to.write(&asked.unsent) else { return };
            asked.unsent.drain(..written);
        }
        // A stream that the server has stopped is told as such.
        let _ = to.finish();
    }

    fn read(&mut self, stream: StreamId, told: &mut dyn FnMut(Told<'_>)) {
        let mut from = self.connection.recv_stream(stream);
        let Ok(mut chunks) = from.read(true) else { return };
        let mut asked = self.streams.get_mut(&stream);
        let failed = loop {
            match (chunks.next(usize::MAX), &mut asked) {
                (Ok(Some(chunk)), Some(asked)) if asked.received.len() < FRAME_MAX => {
                    asked.received.extend_from_slice(&chunk.bytes);
                }
                // Behind the answer nothing is of interest.
                (Ok(Some(_)), _) => {}
                (Ok(None), _) => break Some(Cause::Closed),
                (Err(ReadError::Blocked), _) => break None,
                (Err(ReadError::Reset(_)), _) => break Some(Cause::Reset),
            }
        };
        // What is to be told to the server goes with the next packets.
        let _ = chunks.finalize();
        let Some(asked) = asked else { return };
        let id = asked.id;
        if let Some((message, _)) = framing::split_first(&asked.received) {
            let mut message = message.to_vec();
            if let Some(place) = message.first_chunk_mut() {
                *place = id.to_be_bytes();
            }
            self.streams.remove(&stream);
            told(Told::Message(&message));
        } else if let Some(cause) = failed {
            self.streams.remove(&stream);
            told(Told::Failed(id, cause));
        }
    }

    fn lost(&self, reason: &ConnectionError) -> Cause {
        match reason {
            ConnectionError::TimedOut => Cause::Timeout,
            ConnectionError::Reset => Cause::Reset,
            ConnectionError::ApplicationClosed(_) | ConnectionError::LocallyClosed => Cause::Closed,
            reason => {
                self.tls.note(reason);
                Cause::Handshake
            }
        }
    }
}

impl fmt::Debug for Quic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quic")
            .field("server", &self.server)
            .field("streams", &self.streams.len())
            .finish_non_exhaustive()
    }
}
