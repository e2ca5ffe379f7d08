//! Floods of TCP connections, from many addresses.

use std::io::{self, ErrorKind, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::{ORIGIN, connect};
use crate::query::Question;

/// What the connections do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    Silent,
    /// They send the beginning of a query and close their half.
    HalfClosed,
    /// They send one octet of a query at each round.
    OctetByOctet,
    /// They ask for more than all buffers hold, and take no answer.
    Untaken,
}

/// How long a connection may take to come about before it counts as refused.
const CONNECT_WAIT: Duration = Duration::from_millis(500);

/// The length that is told of a query, of which one octet comes at a time: its end never does.
const TOLD: [u8; 2] = [0xff, 0xff];

/// Queries of one who takes no answer, each for 4 kB.
const UNTAKEN: usize = 100;

/// Octets of the buffer for the answers of one who takes none.
const UNTAKEN_BUFFER: usize = 4096;

/// Connections of an attacker, each made anew as soon as it is closed.
#[derive(Debug)]
pub struct Crowd {
    kind: Kind,
    server: SocketAddrV4,
    /// Who connects, and the connection with how many octets it has sent.
    members: Vec<(Ipv4Addr, Option<(TcpStream, usize)>)>,
    /// Connections that came about.
    pub made: u64,
}

impl Crowd {
    /// A crowd of `per_address` members at each of so many addresses; none has connected.
    pub fn new(kind: Kind, server: SocketAddrV4, addresses: u16, per_address: usize) -> Crowd {
        let address = |number: u16| {
            let [high, low] = number.to_be_bytes();
            Ipv4Addr::new(100, 64, high, low)
        };
        let of = |number| std::iter::repeat_with(move || (address(number), None)).take(per_address);
        Crowd { kind, server, members: (0..addresses).flat_map(of).collect(), made: 0 }
    }

    /// Goes round once: connects whoever is not connected, and has each do what it does.
    pub fn round(&mut self) {
        for (address, place) in &mut self.members {
            if place.as_mut().is_some_and(|(stream, _)| is_closed(stream)) {
                *place = None;
            }
            if place.is_none()
                && let Ok(stream) = self.kind.connect(*address, self.server)
                && stream.set_nonblocking(true).is_ok()
            {
                self.made += 1;
                *place = Some((stream, 0));
            }
            let Some((stream, sent)) = place else { continue };
            match self.kind {
                Kind::Silent => {}
                Kind::HalfClosed if *sent == 0 => {
                    *sent += stream.write(&TOLD).unwrap_or(0);
                    let _ = stream.shutdown(Shutdown::Write);
                }
                Kind::HalfClosed => {}
                Kind::OctetByOctet => {
                    let octet = TOLD.get(*sent).copied().unwrap_or(0);
                    *sent += stream.write(&[octet]).unwrap_or(0);
                }
                Kind::Untaken if *sent == 0 => {
                    let query = Question::new(&format!("large.{ORIGIN}"), "TXT").message();
                    let framed = [&(query.len() as u16).to_be_bytes()[..], &query].concat();
                    *sent += stream.write(&framed.repeat(UNTAKEN)).unwrap_or(0);
                }
                Kind::Untaken => {}
            }
        }
    }
}

impl Kind {
    fn connect(self, from: Ipv4Addr, server: SocketAddrV4) -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        if self == Kind::Untaken {
            socket.set_recv_buffer_size(UNTAKEN_BUFFER)?;
        }
        connect(socket, from, server, CONNECT_WAIT)
    }
}

/// Whether the server has ended it; nothing is taken.
fn is_closed(stream: &TcpStream) -> bool {
    let is_broken = stream.take_error().map_or(true, |broken| broken.is_some());
    is_broken
        || match stream.peek(&mut [0]) {
            Ok(length) => length == 0,
            Err(cause) => cause.kind() != ErrorKind::WouldBlock,
        }
}
