//! dnstap output: queries and answers as they are served, for programs that watch.
//!
//! ```text
//! thread ─ Tap ─ ring ─┐
//! thread ─ Tap ─ ring ─┴─ writer (one thread) ─ Unix socket or file
//! ```
//! A thread writes a message into its ring and goes on: it never waits, takes no lock and allocates nothing. What
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

pub use writer::{Counters, Writer, Writing};

/// Octets of one ring: what a thread sees in some ten milliseconds at its fastest, which is twice what the writer
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

/// Which messages a program tells of, as `dnstap.proto` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds {
    /// Of queries.
    pub query: Kind,
    /// Of answers.
    pub response: Kind,
}

impl Kinds {
    /// What an authoritative server is asked, and answers.
    pub const AUTH: Kinds = Kinds { query: Kind::AUTH_QUERY, response: Kind::AUTH_RESPONSE };

    /// What clients ask who asks others for them, and are answered.
    pub const CLIENT: Kinds = Kinds { query: Kind::CLIENT_QUERY, response: Kind::CLIENT_RESPONSE };
}

/// The end of a ring at which a thread puts what it sees.
pub struct Tap {
    config: Arc<Config>,
    kinds: Kinds,
    sender: ring::Sender,
    /// Queries to pass over before the next that is tapped.
    passing: u32,
    frame: Vec<u8>,
}

/// Who asked whom, and when.
#[derive(Clone, Copy, Debug)]
pub struct Talk {
    /// Who asked.
    pub client: SocketAddr,
    /// Who was asked.
    pub server: SocketAddr,
    /// How.
    pub protocol: Protocol,
    /// When the query was taken up, as Unix time.
    pub time: Duration,
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tap").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Tap {
    /// Makes a tap, and the end of its ring that the writer reads.
    fn new(config: Arc<Config>, kinds: Kinds, octets: usize) -> (Tap, ring::Receiver) {
        let (sender, receiver) = ring::ring(octets);
        let frame = Vec::with_capacity(MESSAGE_MAX + OVERHEAD_MAX + VERSION.len() + config.identity.len());
        (Tap { config, kinds, sender, passing: 0, frame }, receiver)
    }

    /// Whether it is the turn of this message, with its answer, where it is a query at all.
    #[inline]
    pub fn takes(&mut self, message: &[u8]) -> bool {
        if message.len() < HEADER || message[2] & 0x80 != 0 {
            return false;
        }
        if self.passing > 0 {
            self.passing -= 1;
            return false;
        }
        self.passing = self.config.sample - 1;
        true
    }

    /// Tells of a query, where queries are told of; returns how many messages did not fit and were dropped.
    pub fn query(&mut self, talk: &Talk, query: &[u8]) -> u64 {
        let is_told = self.config.queries;
        self.tell(is_told, Message { kind: self.kinds.query, query: Some(query), ..message(talk) })
    }

    /// The same of an answer that was given at this Unix time.
    pub fn response(&mut self, talk: &Talk, time: Duration, response: &[u8]) -> u64 {
        let (is_told, response_time) = (self.config.responses, Some(unix(time)));
        let kind = self.kinds.response;
        self.tell(is_told, Message { kind, response_time, response: Some(response), ..message(talk) })
    }

    fn tell(&mut self, is_told: bool, message: Message<'_>) -> u64 {
        u64::from(is_told && !self.push(message))
    }

    fn push(&mut self, message: Message<'_>) -> bool {
        let (identity, version) = (self.config.identity.as_bytes(), VERSION.as_bytes());
        self.frame.clear();
        let dnstap = Dnstap { identity, version, message };
        frame_streams::push_payload(&mut self.frame, |out| dnstap.write(out));
        self.sender.push(&self.frame)
    }
}

fn message(talk: &Talk) -> Message<'static> {
    let Talk { client, server, protocol, time } = *talk;
    Message {
        protocol: Some(protocol),
        query_address: Some(canonical(client)),
        response_address: Some(canonical(server)),
        query_port: Some(client.port()),
        response_port: Some(server.port()),
        query_time: Some(unix(time)),
        ..Message::default()
    }
}

fn unix(time: Duration) -> Time {
    Time { seconds: time.as_secs(), nanoseconds: time.subsec_nanos() }
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

    fn talk() -> Talk {
        Talk {
            client: "[::ffff:192.0.2.1]:4711".parse().expect("an address"),
            server: "192.0.2.53:53".parse().expect("an address"),
            protocol: Protocol::Udp,
            time: Duration::new(7, 5),
        }
    }

    /// Tells of a message and its answer, where it is its turn; returns how many did not fit.
    fn note(tap: &mut Tap, query: &[u8], response: Option<&[u8]>) -> u64 {
        if !tap.takes(query) {
            return 0;
        }
        let dropped = tap.query(&talk(), query);
        dropped + response.map_or(0, |response| tap.response(&talk(), Duration::new(8, 0), response))
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
            let (mut tap, mut receiver) = Tap::new(Arc::new(config), Kinds::AUTH, RING);
            for id in 1..=3 {
                let query = query(id);
                let response = (id != 2).then_some(&query[..]);
                assert_eq!(note(&mut tap, &query, response), 0);
            }
            assert_eq!(taken(&mut receiver), expected, "1 in {sample}");
        }
    }

    #[test]
    fn what_is_no_query_is_not_told() {
        let (mut tap, mut receiver) = Tap::new(Arc::new(config()), Kinds::AUTH, RING);
        let response = [0, 1, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for message in [&[][..], &response[..11], &response] {
            assert_eq!(note(&mut tap, message, None), 0);
        }
        assert_eq!(taken(&mut receiver), []);
    }

    #[test]
    fn what_a_full_ring_does_not_take_is_counted() {
        let (mut tap, mut receiver) = Tap::new(Arc::new(config()), Kinds::AUTH, 512);
        let dropped: u64 = (0..9).map(|id| note(&mut tap, &query(id), None)).sum();
        let kept = taken(&mut receiver);
        assert_eq!(kept.len() as u64 + dropped, 9);
        assert!(dropped > 0 && !kept.is_empty());
        assert!(kept.iter().map(|(_, id)| *id).eq(0..kept.len() as u8), "the first are kept, in order");
        assert_eq!(note(&mut tap, &query(9), None), 0, "there is room again");
    }

    #[test]
    fn the_longest_messages_fit() {
        let (mut tap, mut receiver) = Tap::new(Arc::new(config()), Kinds::AUTH, RING);
        let longest = vec![1; MESSAGE_MAX];
        assert_eq!(note(&mut tap, &longest, Some(&longest)), 0);
        assert_eq!(taken(&mut receiver).len(), 2);
    }
}
