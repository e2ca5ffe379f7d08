//! The sockets of clients: opened when a query needs one, closed when idle, at most so many.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use net::client::{self, Readiness};
use socket2::SockRef;

use super::carrier::Carrier;
use super::connection::Connection;
use super::datagrams::Datagrams;
use super::layer::Layer;
use super::quic::Quic;
use super::tally::Tally;

/// Further loopback addresses that are tried when ports run out: each has the ports of its own.
const LOOPBACKS_MAX: u32 = 250;

/// Room for answers that wait at a client's own socket, in octets: some 2,700 small ones over loopback, where what the system
/// gives unasked holds 277. Only what is filled is memory. The kernel cuts it to `net.core.rmem_max`.
const OWN_RECEIVE_BUFFER: usize = 1 << 20;

/// No slot: the end of the list of sockets.
const NONE: usize = usize::MAX;

/// A client's socket.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) kind: Kind,
    /// Whose it is.
    pub(super) client: u64,
    pub(super) carrier: Carrier,
    /// Half a round trip to the server, in nanoseconds.
    pub(super) half: u64,
    /// Which of all sockets; never used again.
    pub(super) serial: u64,
    /// Ids that wait for answers, oldest first.
    pub(super) ids: VecDeque<u16>,
    /// Whether a query was answered at it.
    pub(super) has_answered: bool,
    /// Datagrams that the kernel has dropped at it, of those that queries are known to be lost by.
    pub(super) drops: u32,
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
    Stream(Box<Connection>),
    /// QUIC, connected to the server.
    Quic(Box<Datagrams>),
}

/// What is to be opened.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) client: u64,
    pub(super) carrier: Carrier,
    pub(super) server: SocketAddr,
    /// Where from; `None` where the system chooses.
    pub(super) source: Option<IpAddr>,
    /// Half a round trip between client and server, in nanoseconds.
    pub(super) half: u64,
    /// What the client speaks.
    pub(super) speech: Speech,
}

/// What a client speaks at a socket.
#[derive(Debug)]
pub(super) enum Speech {
    /// Messages in datagrams as they are.
    Plain,
    /// In a stream.
    Stream(Layer),
    /// QUIC.
    Quic(Box<Quic>),
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
    merges: bool,
    next_serial: u64,
    /// Which further loopback address serves when ports run out.
    loopback: u32,
}

impl Sockets {
    /// At most `most` open ones; `merges` says that answers in datagrams may come as one message, each with the time at which
    /// the last arrived.
    pub(super) fn new(most: usize, merges: bool) -> Sockets {
        Sockets {
            slots: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            open: 0,
            most: most.max(1),
            merges,
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

    /// Whether the server takes no further query at a socket.
    pub(super) fn is_leaving(&mut self, slot: usize) -> bool {
        let kind = self.get(slot).map(|socket| &socket.kind);
        matches!(kind, Some(Kind::Stream(connection)) if connection.is_leaving())
    }

    /// Whether one must be closed before another is opened.
    pub(super) fn is_full(&self) -> bool {
        self.open >= self.most
    }

    /// The socket that was not used for the longest time.
    pub(super) fn oldest(&self) -> Option<usize> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// The oldest socket that has been idle for `idle` nanoseconds.
    ///
    /// One that waits for answers is not idle: its queries are lost when their time is over. It counts as used now, so
    /// that it keeps none behind it open. That is done for at most `steps`, which are counted down.
    pub(super) fn idle(&mut self, now: u64, idle: u64, steps: &mut usize) -> Option<usize> {
        loop {
            let slot = self.oldest()?;
            let socket = self.get(slot)?;
            if now < socket.used.saturating_add(idle) {
                return None;
            }
            if socket.ids.is_empty() {
                return Some(slot);
            }
            *steps = steps.checked_sub(1)?;
            self.touch(slot, now);
        }
    }

    /// Opens a socket of a client.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn open(
        &mut self,
        opening: Opening,
        now: u64,
        readiness: &Readiness,
        tally: &mut Tally,
    ) -> io::Result<usize> {
        let Opening { client, carrier, server, source, half, speech } = opening;
        let is_stream = matches!(speech, Speech::Stream(_));
        let mut made = make(&speech, self.merges, server, source.or_else(|| self.further(server)));
        while let Err(error) = &made
            && client::is_out_of_ports(error)
            && source.is_none()
            && is_loopback_v4(server)
            && self.loopback < LOOPBACKS_MAX
        {
            self.loopback += 1;
            made = make(&speech, self.merges, server, self.further(server));
        }
        let made = made?;
        tally.further_sources += u64::from(source.is_none() && self.further(server).is_some());
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let serial = self.next_serial;
        self.next_serial += 1;
        if let Err(error) = readiness.add(&made, token(slot, serial), is_stream) {
            self.free.push(slot);
            return Err(error);
        }
        let kind = match speech {
            Speech::Plain => Kind::Udp(made.into()),
            Speech::Quic(quic) => Kind::Quic(Box::new(Datagrams::new(made.into(), *quic))),
            Speech::Stream(layer) => Kind::Stream(Box::new(Connection::new(made.into(), layer))),
        };
        self.slots[slot] = Some(Socket {
            kind,
            client,
            carrier,
            half,
            serial,
            ids: VecDeque::new(),
            has_answered: false,
            drops: 0,
            used: now,
            newer: NONE,
            older: NONE,
        });
        self.push_newest(slot);
        self.open += 1;
        tally.most_open = tally.most_open.max(self.open as u64);
        tally.opened[carrier as usize] += 1;
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

fn make(speech: &Speech, merges: bool, server: SocketAddr, source: Option<IpAddr>) -> io::Result<OwnedFd> {
    let socket = match speech {
        Speech::Stream(_) => return client::connect(server, source).map(Into::into),
        Speech::Plain if merges => client::ask_for_many(server, source)?,
        Speech::Plain => {
            let socket = client::ask(server, source)?;
            SockRef::from(&socket).set_recv_buffer_size(OWN_RECEIVE_BUFFER)?;
            socket
        }
        Speech::Quic(_) => client::ask(server, source)?,
    };
    client::tell_arrivals(&socket)?;
    Ok(socket.into())
}

fn is_loopback_v4(server: SocketAddr) -> bool {
    matches!(server.ip(), IpAddr::V4(address) if address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What opens sockets of clients.
    fn opener() -> impl FnMut(&mut Sockets, u64, u64) -> usize {
        let server = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        let server = server.local_addr().expect("it is bound");
        let readiness = Readiness::new().expect("an epoll");
        let mut tally = Tally::new(None);
        move |sockets, client, now| {
            let (carrier, source, half, speech) = (Carrier::Udp, None, 0, Speech::Plain);
            let opening = Opening { client, carrier, server, source, half, speech };
            sockets.open(opening, now, &readiness, &mut tally).expect("a socket")
        }
    }

    fn idle(sockets: &mut Sockets, now: u64, mut steps: usize) -> Option<usize> {
        sockets.idle(now, 5, &mut steps)
    }

    #[test]
    fn one_that_waits_keeps_none_behind_it_open() {
        let (mut sockets, mut open) = (Sockets::new(9, false), opener());
        let slots: Vec<usize> = (0..5).map(|client| open(&mut sockets, client, client)).collect();
        for slot in &slots[..3] {
            sockets.get(*slot).expect("it is open").ids.push_back(7);
        }
        assert_eq!(idle(&mut sockets, 100, 2), None, "two steps lead past two");
        assert_eq!(idle(&mut sockets, 100, 2), Some(slots[3]));
        sockets.close(slots[3]);
        assert_eq!(idle(&mut sockets, 100, 2), Some(slots[4]));
        sockets.close(slots[4]);
        assert_eq!(idle(&mut sockets, 100, 9), None);
        // What is answered closes when its time has come again.
        sockets.get(slots[1]).expect("it is open").ids.clear();
        assert_eq!(idle(&mut sockets, 104, 9), None);
        assert_eq!(idle(&mut sockets, 105, 9), Some(slots[1]));
    }

    #[test]
    fn the_oldest_goes_first_and_slots_are_used_again() {
        let (mut sockets, mut open) = (Sockets::new(3, false), opener());
        let slots: Vec<usize> = (0..3).map(|client| open(&mut sockets, client, client)).collect();
        assert!(sockets.is_full());
        sockets.touch(slots[0], 10);
        assert_eq!(sockets.oldest(), Some(slots[1]));
        assert_eq!(idle(&mut sockets, 5, 1), None);
        assert_eq!(idle(&mut sockets, 6, 1), Some(slots[1]));
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
