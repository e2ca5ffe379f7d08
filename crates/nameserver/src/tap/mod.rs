//! dnstap output: queries and answers as they are served, for programs that watch.
//!
//! ```text
//! worker, TCP ─ Tap ─ ring ─┐
//! worker ────── Tap ─ ring ─┴─ writer (one thread) ─ Unix socket or file
//! ```
//! A worker writes a message into its ring and goes on: it never waits, takes no lock and allocates nothing. What
//! does not fit is dropped and counted, so that a reader who does not keep up costs its own messages only.

mod file;
mod ring;
mod socket;
mod writer;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dns::dnstap::{Dnstap, Kind, Message, OVERHEAD_MAX, Protocol, Time};
use dns::frame_streams;
use dns::query::{HEADER, MESSAGE_MAX};

use crate::answer::Transport;

pub(crate) use writer::Writing;
pub use writer::{Counters, Writer};

/// Octets of one ring: what a worker sees in some ten milliseconds at its fastest, which is twice what the writer
/// waits between two rounds; and room for the longest TCP message.
const RING: usize = 1 << 20;

/// What is told of this program.
const VERSION: &str = concat!("pointsman ", env!("CARGO_PKG_VERSION"));

/// What is tapped, and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where it goes.
    pub destination: Destination,
    /// How large a file may become, in octets.
    pub file_max: u64,
    /// One query in so many is tapped, with its answer; at least 1.
    pub sample: u32,
    /// Whether queries are.
    pub queries: bool,
    /// Whether answers are.
    pub responses: bool,
    /// Which server says it; may be empty.
    pub identity: String,
}

/// Where a tap's messages go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To who listens at this Unix stream socket.
    Socket(PathBuf),
    /// Into this file.
    File(PathBuf),
}

/// The end of a ring at which a thread puts what it sees.
pub struct Tap {
    config: Arc<Config>,
    sender: ring::Sender,
    /// Queries to pass over before the next that is tapped.
    passing: u32,
    frame: Vec<u8>,
}

/// A query and what it was answered.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// Who asked.
    pub client: SocketAddr,
    /// Who was asked.
    pub server: SocketAddr,
    /// How.
    pub transport: Transport,
    /// When the query was taken up, as Unix time; its answer is told with the same time.
    pub time: Duration,
    /// The query.
    pub query: &'a [u8],
    /// The answer, where it got one of one message.
    pub response: Option<&'a [u8]>,
}

impl Tap {
    /// Makes a tap, and the end of its ring that the writer reads.
    fn new(config: Arc<Config>, octets: usize) -> (Tap, ring::Receiver) {
        let (sender, receiver) = ring::ring(octets);
        let frame = Vec::with_capacity(MESSAGE_MAX + OVERHEAD_MAX + VERSION.len() + config.identity.len());
        (Tap { config, sender, passing: 0, frame }, receiver)
    }

    /// Takes note of an exchange, where it is its turn and the message is a query at all; returns how many messages
    /// of it did not fit and were dropped.
    pub fn note(&mut self, exchange: &Exchange<'_>) -> u64 {
        if exchange.query.len() < HEADER || exchange.query[2] & 0x80 != 0 {
            return 0;
        }
        if self.passing > 0 {
            self.passing -= 1;
            return 0;
        }
        self.passing = self.config.sample - 1;
        let time = Time { seconds: exchange.time.as_secs(), nanoseconds: exchange.time.subsec_nanos() };
        let (client, server) = (exchange.client, exchange.server);
        let both = Message {
            protocol: Some(match exchange.transport {
                Transport::Udp => Protocol::Udp,
                Transport::Tcp { .. } => Protocol::Tcp,
                Transport::Tls { .. } => Protocol::Dot,
            }),
            query_address: Some(canonical(client)),
            response_address: Some(canonical(server)),
            query_port: Some(client.port()),
            response_port: Some(server.port()),
            query_time: Some(time),
            ..Message::default()
        };
        let mut dropped = 0;
        if self.config.queries {
            let query = Message { kind: Kind::AUTH_QUERY, query: Some(exchange.query), ..both };
            dropped += u64::from(!self.push(query));
        }
        if self.config.responses
            && let Some(response) = exchange.response
        {
            let response = Message {
                kind: Kind::AUTH_RESPONSE,
                response_time: Some(time),
                response: Some(response),
                ..both
            };
            dropped += u64::from(!self.push(response));
        }
        dropped
    }

    fn push(&mut self, message: Message<'_>) -> bool {
        let (identity, version) = (self.config.identity.as_bytes(), VERSION.as_bytes());
        self.frame.clear();
        let dnstap = Dnstap { identity, version, message };
        frame_streams::push_payload(&mut self.frame, |out| dnstap.write(out));
        self.sender.push(&self.frame)
    }
}

fn canonical(address: SocketAddr) -> IpAddr {
    address.ip().to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dns::frame_streams::{Frame, split_first};

    fn config() -> Config {
        let destination = Destination::File("/nowhere".into());
        Config {
            destination,
            file_max: u64::MAX,
            sample: 1,
            queries: true,
            responses: true,
            identity: "fra1".into(),
        }
    }

    fn query(id: u8) -> Vec<u8> {
        vec![0, id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    }

    /// The kinds and the ids of what is in the ring.
    fn taken(receiver: &mut ring::Receiver) -> Vec<(Kind, u8)> {
        let (mut frame, mut taken) = (Vec::new(), Vec::new());
        while receiver.pop(&mut frame) {
            let (Frame::Payload(payload), rest) = split_first(&frame).expect("well-formed").expect("whole")
            else {
                panic!("no payload in {frame:02x?}")
            };
            let Dnstap { identity, version, message } = Dnstap::read(payload).expect("a message");
            assert!(identity == b"fra1" && version.starts_with(b"pointsman ") && rest.is_empty());
            assert_eq!(message.protocol, Some(Protocol::Udp));
            assert_eq!(message.query_address, Some([192, 0, 2, 1].into()));
            assert_eq!(message.response_address, Some([192, 0, 2, 53].into()));
            assert_eq!((message.query_port, message.response_port), (Some(4711), Some(53)));
            assert_eq!(message.query_time, Some(Time { seconds: 7, nanoseconds: 5 }));
            let is_query = message.kind.is_query();
            assert_eq!((message.query.is_some(), message.response_time.is_some()), (is_query, !is_query));
            taken.push((message.kind, message.query.or(message.response).expect("one of them")[1]));
            frame.clear();
        }
        taken
    }

    fn exchange<'a>(query: &'a [u8], response: Option<&'a [u8]>) -> Exchange<'a> {
        Exchange {
            client: "[::ffff:192.0.2.1]:4711".parse().expect("an address"),
            server: "192.0.2.53:53".parse().expect("an address"),
            transport: Transport::Udp,
            time: Duration::new(7, 5),
            query,
            response,
        }
    }

    #[test]
    fn what_is_chosen_is_told_in_order() {
        const QUERY: Kind = Kind::AUTH_QUERY;
        const RESPONSE: Kind = Kind::AUTH_RESPONSE;
        let cases = [
            (1, true, true, vec![(QUERY, 1), (RESPONSE, 1), (QUERY, 2), (QUERY, 3), (RESPONSE, 3)]),
            (1, true, false, vec![(QUERY, 1), (QUERY, 2), (QUERY, 3)]),
            (1, false, true, vec![(RESPONSE, 1), (RESPONSE, 3)]),
            (2, true, true, vec![(QUERY, 1), (RESPONSE, 1), (QUERY, 3), (RESPONSE, 3)]),
        ];
        for (sample, queries, responses, expected) in cases {
            let config = Config { sample, queries, responses, ..config() };
            let (mut tap, mut receiver) = Tap::new(Arc::new(config), RING);
            for id in 1..=3 {
                let query = query(id);
                let response = (id != 2).then_some(&query[..]);
                assert_eq!(tap.note(&exchange(&query, response)), 0);
            }
            assert_eq!(taken(&mut receiver), expected, "1 in {sample}");
        }
    }

    #[test]
    fn what_is_no_query_is_not_told() {
        let (mut tap, mut receiver) = Tap::new(Arc::new(config()), RING);
        let response = [0, 1, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for message in [&[][..], &response[..11], &response] {
            assert_eq!(tap.note(&exchange(message, None)), 0);
        }
        assert_eq!(taken(&mut receiver), []);
    }

    #[test]
    fn what_a_full_ring_does_not_take_is_counted() {
        let (mut tap, mut receiver) = Tap::new(Arc::new(config()), 512);
        let dropped: u64 = (0..9).map(|id| tap.note(&exchange(&query(id), None))).sum();
        let kept = taken(&mut receiver);
        assert_eq!(kept.len() as u64 + dropped, 9);
        assert!(dropped > 0 && !kept.is_empty());
        assert!(kept.iter().map(|(_, id)| *id).eq(0..kept.len() as u8), "the first are kept, in order");
        assert_eq!(tap.note(&exchange(&query(9), None)), 0, "there is room again");
    }

    #[test]
    fn the_longest_messages_fit() {
        let (mut tap, mut receiver) = Tap::new(Arc::new(config()), RING);
        let longest = vec![1; MESSAGE_MAX];
        assert_eq!(tap.note(&exchange(&longest, Some(&longest))), 0);
        assert_eq!(taken(&mut receiver).len(), 2);
    }
}
