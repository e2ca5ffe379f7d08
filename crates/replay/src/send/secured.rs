//! A client's side of TLS over a stream. No socket, no clock: octets in, octets out.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::{ClientConnection, HandshakeKind};

use super::tally::Cause;
use super::tls::{Session, Tls};
use super::told::{Told, UNWRITTEN_MAX};

/// Octets of plain text that are taken out of TLS at once: a record.
const RECORD: usize = 16 << 10;

/// A client's side of TLS.
#[derive(Debug)]
pub(super) struct Secured {
    connection: ClientConnection,
    tls: Arc<Tls>,
    /// Octets that wait for the handshake.
    waiting: usize,
    is_told: bool,
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
