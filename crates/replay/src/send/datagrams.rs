//! A client's QUIC connection at its socket, at a distance.
//!
//! Datagrams of a distant client wait half a round trip in the agenda on either way, so that QUIC's own clocks measure
//! that distance. Its timers are on the agenda, too.

use std::io;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use super::agenda::What;
use super::connection::Around;
use super::quic::Quic;
use super::tally::Cause;
use super::told::Told;

/// Room for one datagram: what a packet of QUIC can be.
const ROOM: usize = 64 << 10;

/// The furthest ahead that a timer is put on the agenda, in nanoseconds: those of closed connections stay there, and the
/// idle timeout that a server has may be minutes. One that comes too soon asks the connection anew.
const TIMER_MAX: u64 = 1_000_000_000;

/// A connection and its socket.
#[derive(Debug)]
pub(super) struct Datagrams {
    socket: UdpSocket,
    quic: Quic,
    timers: Timers,
}

/// When the timers of a connection come that are on the agenda, the earliest last.
///
/// One that is put off stays, and when it comes the connection is asked anew. So there are few: else each query would leave
/// one behind, for as long as the server lets a connection idle.
#[derive(Debug, Default)]
struct Timers(Vec<u64>);

impl Timers {
    /// Whether one is to be put down for `at`, as none comes before.
    fn put(&mut self, at: u64) -> bool {
        let is_first = self.0.last().is_none_or(|next| at < *next);
        if is_first {
            self.0.push(at);
        }
        is_first
    }

    /// The next one has come.
    fn come(&mut self) {
        self.0.pop();
    }
}

impl Datagrams {
    /// A connection that begins at a connected socket.
    pub(super) fn new(socket: UdpSocket, quic: Quic) -> Datagrams {
        Datagrams { socket, quic, timers: Timers::default() }
    }

    /// Takes a query.
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
        self.quic.ask(id, message)?;
        self.go_on(around, told)
    }

    /// Takes a query back.
    ///
    /// # Errors
    /// Why the connection is to be closed.
    pub(super) fn give_up(
        &mut self,
        id: u16,
        around: &mut Around<'_>,
        told: &mut dyn FnMut(Told<'_>),
    ) -> Result<(), Cause> {
        self.quic.give_up(id);
        self.go_on(around, told)
    }

    /// Reads what is there, and tells of it or puts it on its way to the client.
    ///
    /// # Errors
    /// Why the connection is to be closed.
    pub(super) fn readable(
        &mut self,
        room: &mut Vec<u8>,
        around: &mut Around<'_>,
        told: &mut dyn FnMut(Told<'_>),
    ) -> Result<(), Cause> {
        room.resize(ROOM.max(room.len()), 0);
        while !around.agenda.is_full() {
            match self.socket.recv(room) {
                Ok(length) if around.half == 0 => self.quic.receive(&room[..length], around.instant()),
                Ok(length) => {
                    let on_its_way = What::In(room[..length].to_vec());
                    around.agenda.push(around.now + around.half, around.token, on_its_way);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Nobody listens there.
                Err(error) => return Err(Cause::of(&error)),
            }
        }
        if around.half == 0 { self.go_on(around, told) } else { Ok(()) }
    }

    /// Takes a datagram that is with the client.
    ///
    /// # Errors
    /// Why the connection is to be closed.
    pub(super) fn receive(
        &mut self,
        datagram: &[u8],
        around: &mut Around<'_>,
        told: &mut dyn FnMut(Told<'_>),
    ) -> Result<(), Cause> {
        self.quic.receive(datagram, around.instant());
        self.go_on(around, told)
    }

    /// Hands a datagram to the kernel; one that it has no room for is lost, as on any way.
    ///
    /// # Errors
    /// [`Cause::Refused`], where nobody listened to one before: the kernel tells of it once, at whichever call is next.
    pub(super) fn leave(&self, datagram: &[u8]) -> Result<(), Cause> {
        leave(&self.socket, datagram)
    }

    /// The time of a timer has come.
    ///
    /// # Errors
    /// Why the connection is to be closed.
    pub(super) fn elapsed(
        &mut self,
        around: &mut Around<'_>,
        told: &mut dyn FnMut(Told<'_>),
    ) -> Result<(), Cause> {
        self.timers.come();
        self.quic.elapsed(around.instant());
        self.go_on(around, told)
    }

    /// Says goodbye.
    pub(super) fn close(&mut self, now: Instant) {
        let Datagrams { socket, quic, .. } = self;
        quic.close(now, |datagram| {
            let _ = socket.send(&datagram);
        });
    }

    fn go_on(&mut self, around: &mut Around<'_>, told: &mut dyn FnMut(Told<'_>)) -> Result<(), Cause> {
        let Datagrams { socket, quic, timers } = self;
        let mut left = Ok(());
        let gone_on = quic.go_on(around.instant(), told, |datagram| {
            if around.half == 0 {
                left = left.and(leave(socket, &datagram));
            } else {
                around.agenda.push(around.now + around.half, around.token, What::Out(datagram));
            }
        });
        if let Some(at) = quic.timeout() {
            let at = super::nanos(at.saturating_duration_since(around.anchor));
            let at = at.clamp(around.now + 1, around.now + TIMER_MAX);
            if timers.put(at) {
                around.agenda.push(at, around.token, What::Timer);
            }
        }
        gone_on.and(left)
    }
}

fn leave(socket: &UdpSocket, datagram: &[u8]) -> Result<(), Cause> {
    match socket.send(datagram) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Err(Cause::of(&error)),
        _ => Ok(()),
    }
}

impl Around<'_> {
    fn instant(&self) -> Instant {
        self.anchor + Duration::from_nanos(self.now)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use net::client::Readiness;

    use super::super::agenda::Agenda;
    use super::super::tls::{Tls, Trust};
    use super::*;

    #[test]
    fn that_nobody_listens_is_heard_also_by_the_next_to_leave() {
        let anchor = Instant::now();
        let mut datagrams = to_nobody(anchor);
        let readiness = Readiness::new().expect("a descriptor");
        let mut agenda = Agenda::default();
        let mut around =
            Around { readiness: &readiness, agenda: &mut agenda, token: 0, anchor, half: 0, now: 0 };
        let mut told = |_: Told<'_>| panic!("nobody answered");
        // The refusal waits at the socket, which nobody reads before the timer comes.
        assert_eq!(datagrams.ask(1, &[0; 12], &mut around, &mut told), Ok(()));
        let timer = around.agenda.next().expect("what stays unanswered is sent again");
        assert!(around.agenda.pop(timer).is_some());
        around.now = timer;
        assert_eq!(datagrams.elapsed(&mut around, &mut told), Err(Cause::Refused));
    }

    #[test]
    fn that_nobody_listens_is_heard_also_of_a_distant_client() {
        let datagrams = to_nobody(Instant::now());
        assert_eq!(datagrams.leave(b"one"), Ok(()));
        assert_eq!(datagrams.leave(b"another"), Err(Cause::Refused));
    }

    #[test]
    fn timers_do_not_pile_up() {
        const MS: u64 = 1_000_000;
        let (mut timers, mut agenda, mut waiting) = (Timers::default(), Agenda::default(), 0);
        for at in 0..40_000 {
            let now = at * MS;
            // A query each 20 ms: 5 ms later something is to be acknowledged, 30 s later the connection has been idle.
            let (asked, since) = (at / 20 * 20, at % 20);
            let wanted = MS * if since < 5 { asked + 5 } else { asked + 30_000 };
            let mut is_due = since == 0;
            while agenda.pop(now).is_some() {
                (waiting, is_due) = (waiting - 1, true);
                timers.come();
            }
            if is_due && timers.put(wanted) {
                agenda.push(wanted, 0, What::Timer);
                waiting += 1;
            }
            assert!(waiting <= 2, "{waiting} after {at} ms");
            assert!(agenda.next().is_some_and(|next| next <= wanted), "none comes in time after {at} ms");
        }
    }

    /// A connection to a port of this host that nobody listens at.
    fn to_nobody(now: Instant) -> Datagrams {
        let gone = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let server = gone.local_addr().expect("an address");
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        socket.connect(server).expect("a way to this host");
        let tls = Arc::new(Tls::new(&Trust::Anybody, None, false).expect("no files are read"));
        Datagrams::new(socket, Quic::new(&tls, server, None, now).expect("a connection"))
    }
}
