//! The sockets of clients: opened when a query needs one, closed when idle, at most so many.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};

use net::client::{self, Readiness};
use net::framing::{self, Assembler};

use super::tally::{Cause, Tally};

/// Octets that may wait to be written to one connection: some thousand queries. Beyond, a query is lost.
const UNWRITTEN_MAX: usize = 256 << 10;

/// Octets that are read from a connection at once.
const READ: usize = 64 << 10;

/// Further loopback addresses that are tried when ports run out: each has the ports of its own.
const LOOPBACKS_MAX: u32 = 250;

/// No slot: the end of the list of sockets.
const NONE: usize = usize::MAX;

/// A client's socket.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) kind: Kind,
    /// Whose it is.
    pub(super) client: u64,
    /// Which of all sockets; never used again.
    pub(super) serial: u64,
    /// Ids that wait for answers, oldest first.
    pub(super) ids: VecDeque<u16>,
    /// When it was last used, in nanoseconds from the beginning.
    used: u64,
    newer: usize,
    older: usize,
}

/// What a socket is.
#[derive(Debug)]
pub(super) enum Kind {
    /// Connected to the server.
    Udp(UdpSocket),
    /// A stream.
    Tcp(Connection),
}

/// A TCP connection and what is under way on it.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    is_open: bool,
    asks_to_write: bool,
    unwritten: Vec<u8>,
    assembler: Assembler,
}

/// All sockets of a thread, in the order of their last use.
#[derive(Debug)]
pub(super) struct Sockets {
    slots: Vec<Option<Socket>>,
    free: Vec<usize>,
    newest: usize,
    oldest: usize,
    open: usize,
    most: usize,
    next_serial: u64,
    /// Which further loopback address serves when ports run out.
    loopback: u32,
}

impl Sockets {
    /// At most `most` open ones.
    pub(super) fn new(most: usize) -> Sockets {
        Sockets {
            slots: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            open: 0,
            most: most.max(1),
            next_serial: 1,
            loopback: 0,
        }
    }

    /// The socket of a slot.
    pub(super) fn get(&mut self, slot: usize) -> Option<&mut Socket> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// The socket that an event is about; none where it was closed since.
    pub(super) fn of_token(&mut self, token: u64) -> Option<usize> {
        let slot = (token & 0xffff_ffff) as usize;
        (self.get(slot)?.serial as u32 == (token >> 32) as u32).then_some(slot)
    }

    /// Whether one must be closed before another is opened.
    pub(super) fn is_full(&self) -> bool {
        self.open >= self.most
    }

    /// The socket that was not used for the longest time.
    pub(super) fn oldest(&self) -> Option<usize> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// The oldest socket, if it has been idle for `idle` nanoseconds.
    ///
    /// One that waits for answers is not idle: its queries are lost when their time is over.
    pub(super) fn idle(&mut self, now: u64, idle: u64) -> Option<usize> {
        let slot = self.oldest()?;
        let socket = self.get(slot)?;
        (socket.ids.is_empty() && now >= socket.used.saturating_add(idle)).then_some(slot)
    }

    /// Opens a socket of a client.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn open(
        &mut self,
        is_tcp: bool,
        client: u64,
        to: (SocketAddr, Option<IpAddr>),
        now: u64,
        readiness: &Readiness,
        tally: &mut Tally,
    ) -> io::Result<usize> {
        let (server, source) = to;
        let mut made = make(is_tcp, server, source.or_else(|| self.further(server)));
        while let Err(error) = &made
            && client::is_out_of_ports(error)
            && source.is_none()
            && is_loopback_v4(server)
            && self.loopback < LOOPBACKS_MAX
        {
            self.loopback += 1;
            made = make(is_tcp, server, self.further(server));
        }
        let kind = made?;
        tally.further_sources += u64::from(source.is_none() && self.further(server).is_some());
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let serial = self.next_serial;
        self.next_serial += 1;
        let token = token(slot, serial);
        let added = match &kind {
            Kind::Udp(socket) => readiness.add(socket, token, false),
            Kind::Tcp(connection) => readiness.add(&connection.stream, token, true),
        };
        if let Err(error) = added {
            self.free.push(slot);
            return Err(error);
        }
        self.slots[slot] =
            Some(Socket { kind, client, serial, ids: VecDeque::new(), used: now, newer: NONE, older: NONE });
        self.push_newest(slot);
        self.open += 1;
        tally.most_open = tally.most_open.max(self.open as u64);
        if is_tcp {
            tally.connections += 1;
        } else {
            tally.udp_sockets += 1;
        }
        Ok(slot)
    }

    /// Marks a socket as used now.
    pub(super) fn touch(&mut self, slot: usize, now: u64) {
        self.take_out(slot);
        self.push_newest(slot);
        if let Some(socket) = self.get(slot) {
            socket.used = now;
        }
    }

    /// Closes a socket; it is what it was.
    pub(super) fn close(&mut self, slot: usize) -> Option<Socket> {
        self.get(slot)?;
        self.take_out(slot);
        self.free.push(slot);
        self.open -= 1;
        self.slots[slot].take()
    }

    /// The further loopback address in use, where ports have run out.
    fn further(&self, server: SocketAddr) -> Option<IpAddr> {
        (self.loopback > 0 && is_loopback_v4(server))
            .then(|| Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST) + self.loopback).into())
    }

    fn take_out(&mut self, slot: usize) {
        let Some(socket) = self.get(slot) else { return };
        let (newer, older) = (socket.newer, socket.older);
        match self.get(newer) {
            Some(socket) => socket.older = older,
            None => self.newest = older,
        }
        match self.get(older) {
            Some(socket) => socket.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn push_newest(&mut self, slot: usize) {
        let before = std::mem::replace(&mut self.newest, slot);
        if let Some(socket) = self.get(slot) {
            (socket.newer, socket.older) = (NONE, before);
        }
        match self.get(before) {
            Some(socket) => socket.newer = slot,
            None => self.oldest = slot,
        }
    }
}

/// The number under which a socket's events are told.
pub(super) fn token(slot: usize, serial: u64) -> u64 {
    slot as u64 | u64::from(serial as u32) << 32
}

/// What a failed system call means for a query.
pub(super) fn cause(error: &io::Error) -> Cause {
    match error.kind() {
        _ if client::is_out_of_descriptors(error) || client::is_out_of_ports(error) => Cause::NoSocket,
        io::ErrorKind::ConnectionRefused => Cause::Refused,
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Cause::Reset,
        io::ErrorKind::TimedOut => Cause::Timeout,
        _ => Cause::Unreachable,
    }
}

impl Connection {
    /// Takes a query to be written, and writes what can be.
    ///
    /// # Errors
    /// Why the connection is to be closed; [`Cause::NoRoom`] alone leaves it as it was.
    pub(super) fn ask(&mut self, message: &[u8], readiness: &Readiness, token: u64) -> Result<(), Cause> {
        if self.unwritten.len() > UNWRITTEN_MAX || message.len() > framing::MESSAGE_MAX {
            return Err(Cause::NoRoom);
        }
        self.unwritten.extend(framing::prefix(message.len()));
        self.unwritten.extend(message);
        if self.is_open { self.write(readiness, token) } else { Ok(()) }
    }

    /// The socket can be written: it has come about, or has room again. Tells whether it has just come about.
    ///
    /// # Errors
    /// Why the connection is to be closed.
    pub(super) fn writable(&mut self, readiness: &Readiness, token: u64) -> Result<bool, Cause> {
        let has_come_about = !self.is_open;
        if has_come_about {
            match self.stream.take_error() {
                Ok(None) => self.is_open = true,
                Ok(Some(error)) | Err(error) => return Err(cause(&error)),
            }
        }
        self.write(readiness, token)?;
        Ok(has_come_about)
    }

    /// Reads what is there and tells each message.
    ///
    /// # Errors
    /// Why the connection is to be closed.
    pub(super) fn read(&mut self, room: &mut Vec<u8>, mut told: impl FnMut(&[u8])) -> Result<(), Cause> {
        room.resize(READ, 0);
        loop {
            match self.stream.read(room) {
                Ok(0) => return Err(Cause::Closed),
                Ok(length) => {
                    let mut piece = &room[..length];
                    while let Some(message) = self.assembler.next(&mut piece) {
                        told(message);
                    }
                    self.assembler.release();
                    if length < READ {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(cause(&error)),
            }
        }
    }

    fn write(&mut self, readiness: &Readiness, token: u64) -> Result<(), Cause> {
        let mut written = 0;
        while written < self.unwritten.len() {
            match self.stream.write(&self.unwritten[written..]) {
                Ok(length) => written += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(cause(&error)),
            }
        }
        self.unwritten.drain(..written);
        let asks = !self.unwritten.is_empty();
        if asks != std::mem::replace(&mut self.asks_to_write, asks) {
            readiness.change(&self.stream, token, asks).map_err(|error| cause(&error))?;
        }
        Ok(())
    }
}

fn make(is_tcp: bool, server: SocketAddr, source: Option<IpAddr>) -> io::Result<Kind> {
    if !is_tcp {
        return client::ask(server, source).map(Kind::Udp);
    }
    let stream = client::connect(server, source)?;
    Ok(Kind::Tcp(Connection {
        stream,
        is_open: false,
        asks_to_write: true,
        unwritten: Vec::new(),
        assembler: Assembler::default(),
    }))
}

fn is_loopback_v4(server: SocketAddr) -> bool {
    matches!(server.ip(), IpAddr::V4(address) if address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first_and_slots_are_used_again() {
        let server = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        let to = (server.local_addr().expect("it is bound"), None);
        let readiness = Readiness::new().expect("an epoll");
        let (mut sockets, mut tally) = (Sockets::new(3), Tally::new(None));
        let mut open = |sockets: &mut Sockets, client, now| {
            sockets.open(false, client, to, now, &readiness, &mut tally).expect("a socket")
        };
        let slots: Vec<usize> = (0..3).map(|client| open(&mut sockets, client, client)).collect();
        assert!(sockets.is_full());
        sockets.touch(slots[0], 10);
        assert_eq!(sockets.oldest(), Some(slots[1]));
        assert_eq!(sockets.idle(5, 5), None);
        assert_eq!(sockets.idle(6, 5), Some(slots[1]));
        sockets.get(slots[1]).expect("it is open").ids.push_back(7);
        assert_eq!(sockets.idle(100, 5), None, "it waits");
        let old = token(slots[1], sockets.get(slots[1]).expect("it is open").serial);
        assert_eq!(sockets.of_token(old), Some(slots[1]));
        assert_eq!(sockets.close(slots[1]).map(|socket| socket.client), Some(1));
        assert_eq!(sockets.of_token(old), None);
        assert_eq!(open(&mut sockets, 9, 20), slots[1]);
        assert_eq!(sockets.of_token(old), None, "a new socket has another serial");
        let order: Vec<u64> = std::iter::from_fn(|| {
            let slot = sockets.oldest()?;
            sockets.close(slot).map(|socket| socket.client)
        })
        .collect();
        assert_eq!(order, [2, 0, 9]);
    }
}
