//! A worker's lines: its sockets to back ends, opened, mended, and sent over in batches; and its ways to those over TLS.

use std::net::UdpSocket;
use std::sync::Arc;

use net::client::{Outgoing, Readiness, Trouble};
use net::count::Count;
use routing::balance::{BACK_ENDS_MAX, Set};

use crate::exchange::Exchange;
use crate::pending::Index;
use crate::relay::{Carried, Relay, Relayed};

/// The most lines of one back end: sixteen times as many ports and ids as one has.
pub const SOCKETS_MAX: usize = 16;

/// All lines that there may be: a back end in place n has those from n x [`SOCKETS_MAX`] on.
pub const LINES_MAX: usize = BACK_ENDS_MAX * SOCKETS_MAX;

/// From one time that lines are opened again to the next, in nanoseconds: soon after there is a way to a back end again, and
/// seldom enough that errors, which anybody on the way can make up, cost the queries that wait only once in it.
pub const MEND_NS: u64 = 1_000_000_000;

/// A way to a back end.
#[derive(Debug)]
enum Line {
    /// A socket, and what waits to be sent over it.
    Datagrams { socket: UdpSocket, outgoing: Outgoing },
    /// Over TLS.
    Relayed(Relayed),
}

/// The lines of one worker to all back ends. A line goes by its number, a back end by its place.
#[derive(Debug)]
pub struct Lines {
    lines: Vec<Option<Line>>,
    /// How many each back end has, from 1 to [`SOCKETS_MAX`].
    sockets: usize,
    /// Which of a back end's is taken first.
    first: usize,
    /// Lines with datagrams that wait to be sent.
    ready: Vec<u16>,
    /// Queries that the system refused to send, with their lines.
    refused: Vec<(u16, Index)>,
    /// Back ends that are said to be gone: nobody listens there, or no way leads there.
    gone: Set,
    /// Those whose lines are to be opened anew: the system said that one of them will not do.
    broken: Set,
    /// Those that lack some of their lines, and those that lack all.
    incomplete: Set,
    closed: Set,
    /// When lines were last opened again.
    mended_ns: u64,
    relay: Relay,
}

/// The place of the back end that a line leads to.
pub fn place_of(line: u16) -> usize {
    usize::from(line) / SOCKETS_MAX
}

impl Lines {
    /// None is open yet; each back end is to have so many, or one by the relay where it is asked over TLS.
    pub fn new(sockets: usize, relay: Relay) -> Lines {
        Lines {
            lines: (0..LINES_MAX).map(|_| None).collect(),
            sockets,
            first: 0,
            ready: Vec::with_capacity(LINES_MAX),
            refused: Vec::new(),
            gone: Set::EMPTY,
            broken: Set::EMPTY,
            incomplete: Set::EMPTY,
            closed: Set::EMPTY,
            mended_ns: 0,
            relay,
        }
    }

    /// Opens the lines of a back end that are not open; `readiness` tells of each socket by its line's number.
    pub fn open(&mut self, place: usize, to: &Arc<Exchange>, readiness: &Readiness) {
        let (first, address) = (place * SOCKETS_MAX, to.address());
        if to.tls().is_some() {
            let relay = &self.relay;
            self.lines[first].get_or_insert_with(|| Line::Relayed(relay.open(first as u16, to.clone())));
            return;
        }
        let mut refused = None;
        for line in first..first + self.sockets {
            if self.lines[line].is_some() {
                continue;
            }
            let opened = net::client::ask_for_many(address, None).and_then(|socket| {
                readiness.add(&socket, line as u64, false)?;
                let outgoing = Outgoing::merging(&socket);
                Ok(Line::Datagrams { socket, outgoing })
            });
            match opened {
                Ok(opened) => self.lines[line] = Some(opened),
                Err(cause) => refused = Some(cause),
            }
        }
        let is_closed = self.lines[first..first + self.sockets].iter().all(Option::is_none);
        self.closed = if is_closed { self.closed.with(place) } else { self.closed.without(place) };
        // It may go on for days, and is told once.
        match (refused, self.incomplete.contains(place)) {
            (Some(cause), false) => {
                tracing::error!(%address, %cause, "sockets to the back end cannot be opened; it is tried again and again");
                self.incomplete = self.incomplete.with(place);
            }
            (None, true) => {
                tracing::info!(%address, "all sockets to the back end are open now");
                self.incomplete = self.incomplete.without(place);
            }
            _ => {}
        }
    }

    /// Closes all lines of a back end.
    pub fn close(&mut self, place: usize) {
        self.lines[place * SOCKETS_MAX..(place + 1) * SOCKETS_MAX].fill_with(|| None);
    }

    /// Closes the lines of a back end that has left its place, and forgets what was heard of it.
    pub fn forget(&mut self, place: usize) {
        self.close(place);
        for places in [&mut self.broken, &mut self.incomplete, &mut self.closed] {
            *places = places.without(place);
        }
    }

    /// The back ends whose missing lines are to be opened now, if it is time; and those of them whose others are to be
    /// closed before, for they will not do. Those in doubt keep theirs: an answer over them ends the doubt.
    pub fn ailing(&mut self, now_ns: u64, doubted: Set) -> (Set, Set) {
        let broken = doubted.iter().fold(self.broken, Set::without);
        let ailing = broken.or(self.incomplete);
        if ailing.is_empty() || now_ns.saturating_sub(self.mended_ns) < MEND_NS {
            return (Set::EMPTY, Set::EMPTY);
        }
        self.mended_ns = now_ns;
        self.broken = self.broken.and(doubted);
        (ailing, broken)
    }

    /// Notes what the system says of a line to a back end.
    pub fn hear(&mut self, place: usize, trouble: Trouble) {
        if matches!(trouble, Trouble::NobodyListens | Trouble::NoWay) {
            self.gone = self.gone.with(place);
        }
        if matches!(trouble, Trouble::NoWay | Trouble::Socket) {
            self.broken = self.broken.with(place);
        }
    }

    /// The back ends of which was said, since this was last asked, that nobody listens or no way leads there.
    pub fn take_gone(&mut self) -> Set {
        std::mem::take(&mut self.gone)
    }

    /// The back ends that have no line, although they are to have some.
    pub fn closed(&self) -> Set {
        self.closed
    }

    /// Takes this one of a back end's first from now on, from 0.
    pub fn begin_with(&mut self, first: usize) {
        self.first = first;
    }

    /// The open lines of a back end, in the order in which they are to be taken.
    pub fn of(&self, place: usize) -> impl Iterator<Item = u16> {
        let numbers =
            (0..self.sockets).map(move |turn| place * SOCKETS_MAX + (self.first + turn) % self.sockets);
        numbers.filter(move |line| self.lines[*line].is_some()).map(|line| line as u16)
    }

    /// The socket of a line, if it has one.
    pub fn socket(&self, line: u16) -> Option<&UdpSocket> {
        match &self.lines[usize::from(line)] {
            Some(Line::Datagrams { socket, .. }) => Some(socket),
            _ => None,
        }
    }

    /// Takes what has come back from back ends over TLS, of which no socket tells.
    pub fn take_carried(&self) -> Vec<Carried> {
        self.relay.take()
    }

    /// Sends the datagram of a query over a line with others, at the next [`flush`](Self::flush) at the latest;
    /// `failed` counts what the system refuses. False where the line is full of what there is no room for now.
    #[must_use]
    pub fn push(&mut self, line: u16, query: Index, octets: &[u8], failed: &Count) -> bool {
        let outgoing = match &mut self.lines[usize::from(line)] {
            Some(Line::Datagrams { outgoing, .. }) => outgoing,
            Some(Line::Relayed(relayed)) => return relayed.push(octets),
            None => return false,
        };
        if outgoing.is_full() {
            return false;
        }
        if outgoing.is_empty() {
            self.ready.push(line);
        }
        outgoing.push_marked(octets, query.0);
        if outgoing.is_full() {
            self.send(line, failed);
        }
        true
    }

    /// Sends all that waits to be sent; `failed` counts what the system refuses. What it has no room for now waits on.
    pub fn flush(&mut self, failed: &Count) {
        let mut ready = std::mem::take(&mut self.ready);
        ready.retain(|line| {
            self.send(*line, failed);
            let line = &self.lines[usize::from(*line)];
            matches!(line, Some(Line::Datagrams { outgoing, .. }) if !outgoing.is_empty())
        });
        self.ready = ready;
    }

    /// Whether something waits to be sent.
    pub fn is_waiting(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes queries, with their lines, that the system refused to send, as a packet filter has it do, or for want of a
    /// way: they wait in vain.
    pub fn take_refused(&mut self) -> Vec<(u16, Index)> {
        std::mem::take(&mut self.refused)
    }

    fn send(&mut self, line: u16, failed: &Count) {
        let Some(Line::Datagrams { socket, outgoing }) = &mut self.lines[usize::from(line)] else { return };
        let (mut troubles, refused) = ([None; 2], &mut self.refused);
        outgoing.send_marked(socket, |query, told| {
            let Err(error) = told else { return };
            failed.add(1);
            refused.push((line, Index(query)));
            match Trouble::of(&error) {
                Trouble::Datagram => {}
                trouble @ Trouble::Socket => troubles[1] = Some(trouble),
                trouble => troubles[0] = Some(trouble),
            }
        });
        let earlier = outgoing.take_earlier().map(|error| Trouble::of(&error));
        for trouble in troubles.into_iter().chain([earlier]).flatten() {
            self.hear(place_of(line), trouble);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;
    use std::time::Duration;

    use super::*;

    impl Lines {
        /// Has the lines of a back end lead to a socket for datagrams of any length.
        pub(crate) fn divert(&mut self, place: usize) -> UnixDatagram {
            let (ours, theirs) = UnixDatagram::pair().expect("a pair");
            ours.set_nonblocking(true).expect("it is set");
            for line in self.lines[place * SOCKETS_MAX..][..SOCKETS_MAX].iter_mut().flatten() {
                if let Line::Datagrams { socket, .. } = line {
                    *socket = UdpSocket::from(OwnedFd::from(ours.try_clone().expect("a descriptor")));
                }
            }
            theirs
        }

        /// Has the lines of a back end lead to where nobody takes anything; returns what must be kept for that.
        pub(crate) fn stop_up(&mut self, place: usize) -> UnixDatagram {
            let theirs = self.divert(place);
            let socket = self.socket((place * SOCKETS_MAX) as u16).expect("it is open");
            while socket.send(&[0; 64]).is_ok() {}
            theirs
        }
    }

    fn relay() -> Relay {
        Relay::new(crate::relay::tests::nowhere(), Duration::ZERO).expect("there are descriptors")
    }

    fn to(address: SocketAddr) -> Arc<Exchange> {
        Arc::new(Exchange::new(address, None))
    }

    #[test]
    fn what_finds_no_room_waits_until_there_is_some() {
        let readiness = Readiness::new().expect("there are descriptors");
        let (mut lines, failed) = (Lines::new(1, relay()), Count::default());
        lines.open(1, &to(([127, 0, 0, 1], 9).into()), &readiness);
        let theirs = lines.stop_up(1);
        let line = SOCKETS_MAX as u16;
        let mut pushed = 0_u64;
        while lines.push(line, Index::ANY, &[7; 32], &failed) {
            pushed += 1;
        }
        lines.flush(&failed);
        assert!(pushed > 0 && lines.is_waiting() && !lines.push(line, Index::ANY, &[7; 32], &failed));
        theirs.set_nonblocking(true).expect("it is set");
        let (mut octets, mut arrived) = ([0; 65_536], 0);
        while lines.is_waiting() {
            while let Ok(length) = theirs.recv(&mut octets) {
                arrived += length;
            }
            lines.flush(&failed);
        }
        while let Ok(length) = theirs.recv(&mut octets) {
            arrived += length;
        }
        assert_eq!((arrived % 64, failed.get()), (pushed as usize * 32 % 64, 0));
        assert!(arrived >= pushed as usize * 32 && lines.push(line, Index::ANY, &[7; 32], &failed));
    }

    #[test]
    fn lines_that_are_missing_are_opened_again_and_the_others_stay() {
        let readiness = Readiness::new().expect("there are descriptors");
        let mut lines = Lines::new(2, relay());
        let address = ([127, 0, 0, 1], 9).into();
        let port = |lines: &Lines, line| lines.socket(line).and_then(|socket| socket.local_addr().ok());
        lines.open(1, &to(address), &readiness);
        let (first, second) = (SOCKETS_MAX as u16, SOCKETS_MAX as u16 + 1);
        let before = port(&lines, first);
        lines.lines[usize::from(second)] = None;
        lines.incomplete = lines.incomplete.with(1);
        assert!(lines.ailing(MEND_NS - 1, Set::EMPTY).0.is_empty(), "it is not time yet");
        let (ailing, broken) = lines.ailing(MEND_NS, Set::EMPTY);
        assert_eq!((ailing, broken), (Set::EMPTY.with(1), Set::EMPTY));
        assert_eq!(lines.of(1).collect::<Vec<_>>(), [first]);
        lines.begin_with(1);
        lines.open(1, &to(address), &readiness);
        assert_eq!(lines.of(1).collect::<Vec<_>>(), [second, first]);
        assert!(before.is_some() && port(&lines, first) == before && lines.incomplete.is_empty());
    }

    #[test]
    fn what_a_query_before_has_met_with_is_heard_and_the_next_one_sent() {
        let nobody = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        let address = nobody.local_addr().expect("it is bound");
        drop(nobody);
        let mut readiness = Readiness::new().expect("there are descriptors");
        let (mut lines, failed) = (Lines::new(1, relay()), Count::default());
        lines.open(1, &to(address), &readiness);
        let line = SOCKETS_MAX as u16;
        assert!(lines.push(line, Index::ANY, &[7; 32], &failed));
        lines.flush(&failed);
        assert!(lines.take_gone().is_empty());
        let told = readiness.ready_within(Duration::from_secs(10)).expect("it waits").count();
        let somebody = UdpSocket::bind(address).expect("the port is free again");
        assert!(told == 1 && lines.push(line, Index::ANY, &[8; 32], &failed));
        lines.flush(&failed);
        assert_eq!((lines.take_gone(), failed.get()), (Set::EMPTY.with(1), 0));
        let mut octets = [0; 64];
        assert_eq!((somebody.recv(&mut octets).expect("it arrives"), octets[0]), (32, 8));
    }

    #[test]
    fn which_queries_were_refused_is_known() {
        let readiness = Readiness::new().expect("there are descriptors");
        let (mut lines, failed) = (Lines::new(1, relay()), Count::default());
        lines.open(1, &to(([127, 0, 0, 1], 9).into()), &readiness);
        // The system has no datagrams that are so long.
        let (line, too_long) = (SOCKETS_MAX as u16, 65_520);
        let mut count = 0;
        for datagrams in [&[too_long][..], &[too_long, too_long + 1], &[32, too_long, 40], &[32]] {
            let mut expected = Vec::new();
            for (query, length) in (7..).zip(datagrams) {
                assert!(lines.push(line, Index(query), &vec![7; *length], &failed));
                expected.extend((*length >= too_long).then_some((line, Index(query))));
            }
            lines.flush(&failed);
            let mut refused = lines.take_refused();
            refused.sort_unstable_by_key(|(_, query)| query.0);
            assert_eq!(refused, expected);
            count += expected.len() as u64;
            assert_eq!(failed.get(), count, "each is counted");
        }
    }

    #[test]
    fn only_some_troubles_are_of_the_line_or_of_who_is_there() {
        for (trouble, is_broken, is_gone) in [
            (Trouble::Datagram, false, false),
            (Trouble::NobodyListens, false, true),
            (Trouble::NoWay, true, true),
            (Trouble::Socket, true, false),
        ] {
            let mut lines = Lines::new(1, relay());
            lines.hear(3, trouble);
            let heard = [lines.broken, lines.take_gone()].map(|places| places.contains(3));
            assert_eq!(heard, [is_broken, is_gone], "{trouble:?}");
        }
    }
}
