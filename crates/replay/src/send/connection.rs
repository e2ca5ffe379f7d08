//! A client's connection: a layer on a TCP stream, at a distance.
//!
//! Octets of a distant client wait half a round trip in the [`Agenda`] on either way, and a connection has come about
//! for it a round trip after it was begun, so that each flight of a handshake takes a round trip as it does between
//! machines. The kernel's own connection knows nothing of that.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use net::client::Readiness;

use super::agenda::{Agenda, What};
use super::layer::Layer;
use super::tally::Cause;
use super::told::{Told, UNWRITTEN_MAX};

/// Octets that are read from a connection at once.
const READ: usize = 64 << 10;

/// What a connection has around it.
pub(super) struct Around<'a> {
    pub(super) readiness: &'a Readiness,
    pub(super) agenda: &'a mut Agenda,
    pub(super) token: u64,
    /// When the run began.
    pub(super) anchor: Instant,
    /// Half a round trip, in nanoseconds.
    pub(super) half: u64,
    pub(super) now: u64,
}

/// A connection and what is under way on it.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    layer: Layer,
    /// It has come about for the kernel.
    is_connected: bool,
    /// It has come about for the client.
    is_open: bool,
    /// Its end was read; a distant client has yet to hear of it.
    has_ended: bool,
    asks_to_write: bool,
    unwritten: Vec<u8>,
}

impl Connection {
    /// A connection that was begun.
    pub(super) fn new(stream: TcpStream, layer: Layer) -> Connection {
        Connection {
            stream,
            layer,
            is_connected: false,
            is_open: false,
            has_ended: false,
            asks_to_write: true,
            unwritten: Vec::new(),
        }
    }

    /// Takes a query, and writes what can be.
    ///
    /// # Errors
    /// Why the connection is to be closed; [`Cause::NoRoom`] alone leaves it as it was.
    pub(super) fn ask(
        &mut self,
        id: u16,
        message: &[u8],
        around: &mut Around<'_>,
        told: &mut dyn FnMut(Told<'_>),
    ) -> Result<(), Cause> {
        if self.unwritten.len() > UNWRITTEN_MAX {
            return Err(Cause::NoRoom);
        }
        self.layer.ask(id, message, told)?;
        self.pump(around)
    }

    /// Takes a query back, where that can be.
    ///
    /// # Errors
    /// Why the connection is to be closed.
    pub(super) fn give_up(
        &mut self,
        id: u16,
        around: &mut Around<'_>,
        told: &mut dyn FnMut(Told<'_>),
    ) -> Result<(), Cause> {
        self.layer.give_up(id, told)?;
        self.pump(around)
    }

    /// The socket can be written: it has come about, or has room again. Tells whether it has just come about.
    ///
    /// # Errors
    /// Why the connection is to be closed.
    pub(super) fn writable(&mut self, around: &mut Around<'_>) -> Result<bool, Cause> {
        let has_come_about = !self.is_connected;
        if has_come_about {
            match self.stream.take_error() {
                Ok(None) => self.is_connected = true,
                Ok(Some(error)) | Err(error) => return Err(Cause::of(&error)),
            }
            if around.half == 0 {
                self.opened(around)?;
            } else {
                around.agenda.push(around.now + 2 * around.half, around.token, What::Opened);
                // Nothing is to be written before.
                self.write(around)?;
            }
        } else {
            self.write(around)?;
        }
        Ok(has_come_about)
    }

    /// The client hears that its connection has come about.
    ///
    /// # Errors
    /// Why it is to be closed.
    pub(super) fn opened(&mut self, around: &mut Around<'_>) -> Result<(), Cause> {
        self.is_open = true;
        self.pump(around)?;
        if around.half == 0 { self.write(around) } else { Ok(()) }
    }

    /// Reads what is there, and tells of it or puts it on its way to the client.
    ///
    /// # Errors
    /// Why the connection is to be closed.
    pub(super) fn readable(
        &mut self,
        room: &mut Vec<u8>,
        plain: &mut Vec<u8>,
        around: &mut Around<'_>,
        told: &mut dyn FnMut(Told<'_>),
    ) -> Result<(), Cause> {
        room.resize(READ, 0);
        loop {
            let ended = match self.stream.read(room) {
                Ok(0) => Cause::Closed,
                Ok(length) => {
                    if around.half > 0 {
                        let on_its_way = What::In(room[..length].to_vec());
                        around.agenda.push(around.now + around.half, around.token, on_its_way);
                    } else {
                        self.receive(&room[..length], plain, around, told)?;
                    }
                    if length < READ || around.agenda.is_full() {
                        return Ok(());
                    }
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Cause::of(&error),
            };
            if around.half == 0 {
                return Err(ended);
            }
            // Not to be told of the end again and again until the client hears of it.
            self.has_ended = true;
            around.readiness.forget(&self.stream).map_err(|error| Cause::of(&error))?;
            around.agenda.push(around.now + around.half, around.token, What::Ended(ended));
            return Ok(());
        }
    }

    /// Takes octets that are with the client.
    ///
    /// # Errors
    /// Why the connection is to be closed.
    pub(super) fn receive(
        &mut self,
        octets: &[u8],
        plain: &mut Vec<u8>,
        around: &mut Around<'_>,
        told: &mut dyn FnMut(Told<'_>),
    ) -> Result<(), Cause> {
        let received = self.layer.receive(octets, plain, told);
        // What a failed layer has left to say is why.
        let pumped = self.pump(around);
        received.and(pumped)
    }

    /// Takes octets that leave for the server.
    ///
    /// # Errors
    /// Why the connection is to be closed.
    pub(super) fn leave(&mut self, octets: &[u8], around: &mut Around<'_>) -> Result<(), Cause> {
        if self.has_ended {
            return Ok(());
        }
        self.unwritten.extend(octets);
        self.write(around)
    }

    /// Whether the server takes no further query.
    pub(super) fn is_leaving(&self) -> bool {
        self.layer.is_leaving()
    }

    /// Says goodbye; what the socket does not take at once is not said.
    pub(super) fn close(&mut self) {
        if self.is_open {
            self.layer.close();
            self.layer.take(&mut self.unwritten);
            let _ = self.stream.write(&self.unwritten);
        }
    }

    /// Puts what the layer has to say on its way.
    fn pump(&mut self, around: &mut Around<'_>) -> Result<(), Cause> {
        if !self.is_open {
            return Ok(());
        }
        if around.half == 0 {
            self.layer.take(&mut self.unwritten);
            return if self.unwritten.is_empty() { Ok(()) } else { self.write(around) };
        }
        let mut leaving = Vec::new();
        self.layer.take(&mut leaving);
        if !leaving.is_empty() {
            around.agenda.push(around.now + around.half, around.token, What::Out(leaving));
        }
        Ok(())
    }

    fn write(&mut self, around: &Around<'_>) -> Result<(), Cause> {
        let mut written = 0;
        while written < self.unwritten.len() {
            match self.stream.write(&self.unwritten[written..]) {
                Ok(length) => written += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What the server has sent before is with a distant client first: reading finds that this is the end.
                Err(_) if around.half > 0 => written = self.unwritten.len(),
                Err(error) => return Err(Cause::of(&error)),
            }
        }
        self.unwritten.drain(..written);
        let asks = !self.unwritten.is_empty();
        if asks != std::mem::replace(&mut self.asks_to_write, asks) {
            let changed = around.readiness.change(&self.stream, around.token, asks);
            changed.map_err(|error| Cause::of(&error))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::super::layer::Framed;
    use super::*;

    /// How often a client writes to who has gone: more often than it takes to be told.
    const WRITES: u32 = 100;

    #[test]
    fn a_distant_client_hears_what_was_sent_before_the_end() {
        for is_read_before in [true, false] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback binds");
            let stream =
                TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it connects");
            let (mut server, _) = listener.accept().expect("it is there");
            let readiness = Readiness::new().expect("an epoll");
            readiness.add(&stream, 1, false).expect("it is open");
            let mut agenda = Agenda::default();
            let (anchor, half) = (Instant::now(), 1_000);
            let mut around =
                Around { readiness: &readiness, agenda: &mut agenda, token: 1, anchor, half, now: 0 };
            let mut connection = Connection::new(stream, Layer::Plain(Framed::default()));
            server.write_all(b"\0\x0canswer").expect("somebody reads");
            drop(server);
            let (mut room, mut plain) = (Vec::new(), Vec::new());
            let mut read = |connection: &mut Connection, around: &mut Around<'_>| {
                connection.readable(&mut room, &mut plain, around, &mut |_| {}).expect("it goes on");
            };
            // What the server has said, then that it ends.
            if is_read_before {
                (0..2).for_each(|_| read(&mut connection, &mut around));
            }
            for now in 1..=u64::from(WRITES) {
                around.now = now;
                assert_eq!(connection.leave(b"\0\x0cquery", &mut around), Ok(()), "{now}");
            }
            if !is_read_before {
                (0..2).for_each(|_| read(&mut connection, &mut around));
            }
            let told = |(_, _, what)| match what {
                What::In(octets) => Some(octets),
                What::Ended(_) => None,
                what => panic!("{what:?}"),
            };
            let heard: Vec<Option<Vec<u8>>> = std::iter::from_fn(|| agenda.pop(u64::MAX).map(told)).collect();
            assert_eq!(heard, [Some(b"\0\x0canswer".to_vec()), None]);
        }
    }
}
