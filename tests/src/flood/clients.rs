//! Clients that ask for a name that is there, and count what they get.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use super::{ORIGIN, connect_from, datagrams};
use crate::query::{Question, receive, send};

/// The option code of cookies, and the octets of the client's part.
const COOKIE: u16 = 10;
const COOKIE_CLIENT: usize = 8;

/// What clients got.
#[derive(Clone, Debug, Default)]
pub struct Got {
    /// Questions that were asked, each once.
    pub asked: u64,
    /// Those of them with the right answer; a truncated one counts where TCP then gave it.
    pub answered: u64,
    /// Those of them that needed TCP.
    pub over_tcp: u64,
    /// How long each answer took.
    pub times: Vec<Duration>,
}

impl Got {
    /// The share that was answered.
    pub fn share(&self) -> f64 {
        self.answered as f64 / self.asked as f64
    }
}

/// Clients that take turns, each in a network of its own, so that their own rate is no matter; one is in the network
/// of the victim of [`datagrams::Kind::Any`], and proves by a cookie who it is.
#[derive(Debug)]
pub struct Clients {
    server: SocketAddrV4,
    wait: Duration,
    sockets: Vec<(Ipv4Addr, UdpSocket)>,
    /// The victim's socket, and its cookie with the server's part.
    victim: (UdpSocket, Vec<u8>),
    next: usize,
    /// Over UDP.
    pub udp: Got,
    /// Over TCP, a connection for each question.
    pub tcp: Got,
    /// The victim, over UDP.
    pub cookie: Got,
}

impl Clients {
    /// So many clients, each of which waits so long for an answer; the victim asks for a cookie first.
    ///
    /// # Errors
    /// Where the system has no socket, or the server gives no cookie.
    pub fn new(server: SocketAddrV4, count: u8, wait: Duration) -> io::Result<Clients> {
        let socket = |address: Ipv4Addr| {
            let socket = UdpSocket::bind((address, 0))?;
            socket.connect(server)?;
            socket.set_read_timeout(Some(wait))?;
            Ok::<_, io::Error>(socket)
        };
        let address = |number: u8| Ipv4Addr::new(203, 0, number, 53);
        let sockets: io::Result<_> =
            (0..count).map(|number| Ok((address(number), socket(address(number))?))).collect();
        let [a, b, c] = datagrams::VICTIM;
        let mut clients = Clients {
            server,
            wait,
            sockets: sockets?,
            victim: (socket(Ipv4Addr::new(a, b, c, 53))?, vec![7; COOKIE_CLIENT]),
            next: 0,
            udp: Got::default(),
            tcp: Got::default(),
            cookie: Got::default(),
        };
        clients.ask_with_cookie()?;
        if clients.victim.1.len() == COOKIE_CLIENT {
            return Err(io::Error::other("the server gives no cookie"));
        }
        clients.cookie = Got::default();
        Ok(clients)
    }

    /// Has the next client ask over UDP, and over TCP where the answer is truncated.
    ///
    /// # Errors
    /// What the system says when sending; no answer is none.
    pub fn ask_over_udp(&mut self) -> io::Result<()> {
        let (address, socket) = &self.sockets[self.next % self.sockets.len()];
        self.next += 1;
        let (query, begun) = (question().message(), Instant::now());
        self.udp.asked += 1;
        socket.send(&query)?;
        let Some(answer) = answer_to(&query, socket) else { return Ok(()) };
        let answer = if is_truncated(&answer) {
            self.udp.over_tcp += 1;
            over_tcp(*address, self.server, self.wait, &query).ok()
        } else {
            Some(answer)
        };
        self.udp.note(answer, begun);
        Ok(())
    }

    /// Has the next client ask over a TCP connection of its own.
    pub fn ask_over_tcp(&mut self) {
        let (address, _) = self.sockets[self.next % self.sockets.len()];
        self.next += 1;
        let (query, begun) = (question().message(), Instant::now());
        self.tcp.asked += 1;
        let answer = over_tcp(address, self.server, self.wait, &query).ok();
        self.tcp.note(answer, begun);
    }

    /// Has the victim ask with its cookie, of which the server may make a new one.
    ///
    /// # Errors
    /// What the system says when sending; no answer is none.
    pub fn ask_with_cookie(&mut self) -> io::Result<()> {
        let (socket, cookie) = &mut self.victim;
        let (query, begun) = (question().option(COOKIE, cookie).message(), Instant::now());
        self.cookie.asked += 1;
        socket.send(&query)?;
        let answer = answer_to(&query, socket).filter(|answer| !is_truncated(answer));
        let read = answer.as_deref().map(crate::query::Answer::read);
        if let Some(given) = read.as_ref().and_then(|answer| answer.option(COOKIE)) {
            *cookie = given.to_vec();
        }
        self.cookie.note(answer, begun);
        Ok(())
    }
}

impl Got {
    fn note(&mut self, answer: Option<Vec<u8>>, begun: Instant) {
        if answer.is_some_and(|answer| is_right(&answer)) {
            self.answered += 1;
            self.times.push(begun.elapsed());
        }
    }
}

fn question() -> Question {
    Question::new(&format!("www.{ORIGIN}"), "A")
}

/// The answer to this query and no earlier one; `None` where it does not come in time.
fn answer_to(query: &[u8], socket: &UdpSocket) -> Option<Vec<u8>> {
    let mut reply = vec![0; 4_096];
    loop {
        let length = socket.recv(&mut reply).ok()?;
        if reply[..length].get(..2) == query.get(..2) {
            reply.truncate(length);
            return Some(reply);
        }
    }
}

fn over_tcp(from: Ipv4Addr, server: SocketAddrV4, wait: Duration, query: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = connect_from(from, server, wait)?;
    stream.set_read_timeout(Some(wait))?;
    send(&mut stream, query)?;
    receive(&mut stream)
}

/// TC, the second lowest bit of the header's third octet.
fn is_truncated(message: &[u8]) -> bool {
    message.get(2).is_some_and(|flags| flags & 2 != 0)
}

/// NOERROR with a record in ANSWER.
fn is_right(message: &[u8]) -> bool {
    message.len() > 12 && message[3] & 0x0f == 0 && message[6..8] != [0, 0]
}
