//! What lies between a client's queries and the octets of its stream. No socket, no clock: octets in, octets out.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use net::framing::{self, Assembler};
use rustls::{ClientConnection, HandshakeKind};

use super::https::Https;
use super::tally::Cause;
use super::tls::{Session, Tls};

/// Octets of queries that may wait for a handshake or for the socket: some thousand queries. Beyond, a query is lost.
pub(super) const UNWRITTEN_MAX: usize = 256 << 10;

/// Octets of plain text that are taken out of TLS at once: a record.
const RECORD: usize = 16 << 10;

/// What is told of a stream.
pub(super) enum Told<'a> {
    /// A message.
    Message(&'a [u8]),
    /// A query that is not answered on its own, though others may be.
    Failed(u16, Cause),
    /// A query that the server has not looked at, as it takes nothing more on this connection.
    Unprocessed(u16),
    /// The handshake is done; whether an earlier session was resumed.
    Secured { is_resumed: bool },
}

/// What a stream speaks.
#[derive(Debug)]
pub(super) enum Layer {
    /// DNS over TCP: framed messages.
    Plain(Framed),
    /// The same under TLS (RFC 7858).
    Tls(Box<Secured>, Assembler),
    /// HTTP/2 under TLS (RFC 8484).
    Https(Box<Https>),
}

/// Framed messages as they are.
#[derive(Debug, Default)]
pub(super) struct Framed {
    unsent: Vec<u8>,
    assembler: Assembler,
}

/// A client's side of TLS.
#[derive(Debug)]
pub(super) struct Secured {
    connection: ClientConnection,
    tls: Arc<Tls>,
    /// Octets that wait for the handshake.
    waiting: usize,
    is_told: bool,
}

impl Layer {
    /// Begins DNS over TLS.
    ///
    /// # Errors
    /// What the handshake cannot begin with.
    pub(super) fn tls(
        tls: &Arc<Tls>,
        server: SocketAddr,
        session: Option<Arc<Session>>,
    ) -> Result<Layer, Cause> {
        Ok(Layer::Tls(Box::new(Secured::new(tls, &[], server, session)?), Assembler::default()))
    }

    /// Takes a query.
    ///
    /// # Errors
    /// Why the connection is to be closed; [`Cause::NoRoom`] alone leaves all as it was.
    pub(super) fn ask(
        &mut self,
        id: u16,
        message: &[u8],
        told: &mut dyn FnMut(Told<'_>),
    ) -> Result<(), Cause> {
        if message.len() > framing::MESSAGE_MAX {
            return Err(Cause::NoRoom);
        }
        if let Layer::Https(https) = self {
            return https.ask(id, message, told);
        }
        let frame = [&framing::prefix(message.len())[..], message].concat();
        match self {
            Layer::Plain(framed) if framed.unsent.len() > UNWRITTEN_MAX => Err(Cause::NoRoom),
            Layer::Plain(framed) => {
                framed.unsent.extend(frame);
                Ok(())
            }
            Layer::Tls(secured, _) => secured.write(&frame),
            Layer::Https(_) => Ok(()),
        }
    }

    /// Takes a query back, where that can be.
    ///
    /// # Errors
    /// Why the connection is to be closed.
    pub(super) fn give_up(&mut self, id: u16, told: &mut dyn FnMut(Told<'_>)) -> Result<(), Cause> {
        match self {
            Layer::Plain(_) | Layer::Tls(..) => Ok(()),
            Layer::Https(https) => https.give_up(id, told),
        }
    }

    /// Takes octets from the server, and tells what they hold.
    ///
    /// # Errors
    /// Why the connection is to be closed.
    pub(super) fn receive(
        &mut self,
        octets: &[u8],
        room: &mut Vec<u8>,
        told: &mut dyn FnMut(Told<'_>),
    ) -> Result<(), Cause> {
        let assemble = |assembler: &mut Assembler, mut piece: &[u8], told: &mut dyn FnMut(Told<'_>)| {
            while let Some(message) = assembler.next(&mut piece) {
                told(Told::Message(message));
            }
            assembler.release();
        };
        match self {
            Layer::Plain(framed) => {
                assemble(&mut framed.assembler, octets, told);
                Ok(())
            }
            Layer::Https(https) => https.receive(octets, room, told),
            Layer::Tls(secured, assembler) => {
                let is_open =
                    secured.receive(octets, room, told, |piece, told| assemble(assembler, piece, told))?;
                if is_open { Ok(()) } else { Err(Cause::Closed) }
            }
        }
    }

    /// Whether the server takes no further query.
    pub(super) fn is_leaving(&self) -> bool {
        matches!(self, Layer::Https(https) if https.is_leaving())
    }

    /// Adds what is to be written to `to`.
    pub(super) fn take(&mut self, to: &mut Vec<u8>) {
        match self {
            Layer::Plain(framed) => to.append(&mut framed.unsent),
            Layer::Tls(secured, _) => secured.take(to),
            Layer::Https(https) => https.take(to),
        }
    }

    /// Says goodbye, where that is done in octets.
    pub(super) fn close(&mut self) {
        match self {
            Layer::Plain(_) => {}
            Layer::Tls(secured, _) => secured.close(),
            Layer::Https(https) => https.close(),
        }
    }
}

impl Secured {
    /// Begins a handshake.
    ///
    /// # Errors
    /// What it cannot begin with.
    pub(super) fn new(
        tls: &Arc<Tls>,
        speaks: &[u8],
        server: SocketAddr,
        session: Option<Arc<Session>>,
    ) -> Result<Secured, Cause> {
        let made = ClientConnection::new(tls.config(speaks, session), tls.name(server.ip()));
        let mut connection = made.map_err(|error| {
            tls.note(&error);
            Cause::Handshake
        })?;
        // What waits is bounded here, so that a query goes whole or not at all.
        connection.set_buffer_limit(None);
        Ok(Secured { connection, tls: Arc::clone(tls), waiting: 0, is_told: false })
    }

    /// What the server has chosen to speak (ALPN), once the handshake is done; nothing is empty.
    pub(super) fn speaks(&self) -> Option<&[u8]> {
        let is_done = !self.connection.is_handshaking();
        is_done.then(|| self.connection.alpn_protocol().unwrap_or_default())
    }

    /// Keeps why something failed, if it is the first.
    pub(super) fn note(&self, why: &impl ToString) {
        self.tls.note(why);
    }

    /// Keeps why no connection is made, if it is the first.
    pub(super) fn refused(&self, why: &impl ToString) -> Cause {
        self.note(why);
        Cause::Handshake
    }

    /// Says goodbye.
    pub(super) fn close(&mut self) {
        self.connection.send_close_notify();
    }

    /// Takes plain text.
    ///
    /// # Errors
    /// [`Cause::NoRoom`].
    pub(super) fn write(&mut self, octets: &[u8]) -> Result<(), Cause> {
        if self.connection.is_handshaking() {
            if self.waiting > UNWRITTEN_MAX {
                return Err(Cause::NoRoom);
            }
            self.waiting += octets.len();
        }
        self.connection.writer().write_all(octets).map_err(|_| Cause::NoRoom)
    }

    /// Takes octets from the server and hands out the plain text in pieces; false when the server has said goodbye.
    ///
    /// # Errors
    /// Why the connection is to be closed.
    pub(super) fn receive(
        &mut self,
        mut octets: &[u8],
        room: &mut Vec<u8>,
        told: &mut dyn FnMut(Told<'_>),
        mut piece: impl FnMut(&[u8], &mut dyn FnMut(Told<'_>)),
    ) -> Result<bool, Cause> {
        room.resize(RECORD.max(room.len()), 0);
        while !octets.is_empty() {
            // Reading from memory does not fail; TLS takes nothing more after the server's goodbye.
            if self.connection.read_tls(&mut octets).map_or(0, |taken| taken) == 0 {
                break;
            }
            let state = self.connection.process_new_packets().map_err(|error| {
                self.tls.note(&error);
                Cause::Handshake
            })?;
            if !self.is_told && !self.connection.is_handshaking() {
                self.is_told = true;
                let is_resumed = self.connection.handshake_kind() == Some(HandshakeKind::Resumed);
                told(Told::Secured { is_resumed });
            }
            let mut left = state.plaintext_bytes_to_read();
            while left > 0 {
                let length = match self.connection.reader().read(room) {
                    Ok(length) if length > 0 => length,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    _ => break,
                };
                piece(&room[..length], told);
                left = left.saturating_sub(length);
            }
            if state.peer_has_closed() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds what is to be written to `to`.
    pub(super) fn take(&mut self, to: &mut Vec<u8>) {
        while self.connection.wants_write() {
            // Writing to memory does not fail.
            if self.connection.write_tls(to).is_err() {
                break;
            }
        }
    }
}
