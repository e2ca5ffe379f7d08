//! What lies between a client's queries and the octets of its stream. No socket, no clock: octets in, octets out.

use std::net::SocketAddr;
use std::sync::Arc;

use net::framing::{self, Assembler};

use super::https::Https;
use super::secured::Secured;
use super::tally::Cause;
use super::tls::{Session, Tls};
use super::told::{Told, UNWRITTEN_MAX};

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
