//! dnstap: messages as a server saw them, in a file of Frame Streams, or of several one behind the other.

use std::io::Read;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use dns::dnstap::{Dnstap, Message as Seen, Protocol, Time};
use dns::frame_streams::{DNSTAP, Decoder, Next};
use dns::query::HEADER;

use super::Damage;
use super::message::{Message, Transport};
use super::skipped::{Skip, Skipped};
use super::source::{Failed, Source};

/// The octets that are read at a time. At most the longest frame (`FRAME_MAX`) is held beside them.
const READ: usize = 64 << 10;

/// A stream of frames.
pub(super) struct Frames {
    source: Source,
    failed: Failed,
    decoder: Decoder,
    buffer: Vec<u8>,
    /// Where in the buffer the next frame begins.
    at: usize,
    /// Octets before the buffer.
    before: u64,
    frames: u64,
    /// Which conversations' queries have frames of their own in this stream, a bit for each: those that come with their
    /// responses are then the same again.
    have_queries: u8,
}

impl Frames {
    /// Begins to read a file whose first octets are those of Frame Streams.
    pub(super) fn new(source: Source) -> Frames {
        Frames {
            failed: source.failed(),
            source,
            decoder: Decoder::new(DNSTAP),
            buffer: Vec::new(),
            at: 0,
            before: 0,
            frames: 0,
            have_queries: 0,
        }
    }

    /// How many frames with messages were read.
    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// Reads a frame and gives the messages in it. `false` after the last one.
    ///
    /// # Errors
    /// What is wrong with the stream; there are no more.
    pub(super) fn next(
        &mut self,
        port: u16,
        skipped: &mut Skipped,
        mut take: impl FnMut(Message),
    ) -> Result<bool, Damage> {
        loop {
            let mut rest = &self.buffer[self.at..];
            let next = self.decoder.next(&mut rest);
            let at = self.buffer.len() - rest.len();
            match next {
                Ok(Next::Payload(payload)) => {
                    self.frames += 1;
                    match Dnstap::read(payload) {
                        Ok(Dnstap { message, .. }) => {
                            let of = 1 << message.kind.conversation().min(u8::BITS - 1);
                            let is_query = message.kind.is_query();
                            self.have_queries |= if is_query { of } else { 0 };
                            let is_query_due = is_query || self.have_queries & of == 0;
                            for part in parts(&message, is_query_due, port) {
                                match part {
                                    Ok(message) => take(message),
                                    Err(skip) => skipped.count(skip),
                                }
                            }
                        }
                        Err(_) => skipped.count(Skip::Damaged),
                    }
                    self.at = at;
                    return Ok(true);
                }
                Ok(Next::Ended) => {
                    self.at = at;
                    if at == self.buffer.len() && !self.fill() {
                        return self
                            .failed
                            .take()
                            .map_or(Ok(false), |error| Err(self.damage(error.to_string())));
                    }
                    self.decoder = Decoder::new(DNSTAP);
                    self.have_queries = 0;
                }
                Ok(Next::Wanting) => {
                    self.at = at;
                    self.more()?;
                }
                Err(malformed) => return Err(self.damage(malformed.to_string())),
            }
        }
    }

    fn more(&mut self) -> Result<(), Damage> {
        let held = self.buffer.len() - self.at;
        if self.fill() {
            return Ok(());
        }
        let what = match held {
            0 => "the file ends without the frame that says so",
            _ => "the file ends within this frame",
        };
        Err(self.damage(self.failed.take().map_or_else(|| what.into(), |error| format!("{what}: {error}"))))
    }

    /// Reads on; false at the end.
    fn fill(&mut self) -> bool {
        self.before += self.at as u64;
        self.buffer.drain(..std::mem::take(&mut self.at));
        let held = self.buffer.len();
        self.buffer.resize(held + READ, 0);
        // A reader that fails tells so through `failed`.
        let read = self.source.read(&mut self.buffer[held..]).unwrap_or(0);
        self.buffer.truncate(held + read);
        read > 0
    }

    fn damage(&self, what: String) -> Damage {
        Damage { packet: self.frames + 1, offset: self.before + self.at as u64, what }
    }
}

/// The query where it is due, and the response.
fn parts(seen: &Seen<'_>, is_query_due: bool, port: u16) -> impl Iterator<Item = Result<Message, Skip>> {
    let query =
        seen.query.filter(|_| is_query_due).map(|octets| part(seen, seen.query_time, octets, false, port));
    let response = seen.response.map(|octets| part(seen, seen.response_time, octets, true, port));
    let is_empty = seen.query.is_none() && seen.response.is_none();
    query.into_iter().chain(response).chain(is_empty.then_some(Err(Skip::NotDns)))
}

fn part(
    seen: &Seen<'_>,
    time: Option<Time>,
    octets: &[u8],
    is_response: bool,
    port: u16,
) -> Result<Message, Skip> {
    let header = octets.first_chunk::<HEADER>().ok_or(Skip::NotDns)?;
    if (header[2] & 0x80 != 0) != is_response {
        return Err(Skip::WrongWay);
    }
    let time = time.ok_or(Skip::NoTime)?;
    let client = seen.query_address.ok_or(Skip::NoClient)?;
    let unspecified = match client.is_ipv4() {
        true => Ipv4Addr::UNSPECIFIED.into(),
        false => Ipv6Addr::UNSPECIFIED.into(),
    };
    Ok(Message {
        time: Duration::from_secs(time.seconds)
            .checked_add(Duration::from_nanos(time.nanoseconds.into()))
            .unwrap_or(Duration::MAX),
        client: SocketAddr::new(client, seen.query_port.unwrap_or(0)),
        server: SocketAddr::new(
            seen.response_address.unwrap_or(unspecified),
            seen.response_port.unwrap_or(port),
        ),
        transport: transport(seen.protocol),
        octets: octets.to_vec(),
    })
}

/// Streams are told from datagrams; where nothing is said, it was a datagram.
fn transport(protocol: Option<Protocol>) -> Transport {
    match protocol {
        None | Some(Protocol::Udp | Protocol::DnscryptUdp | Protocol::Doq) => Transport::Udp,
        Some(Protocol::Tcp | Protocol::Dot | Protocol::Doh | Protocol::DnscryptTcp) => Transport::Tcp,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use dns::dnstap::Kind;
    use dns::frame_streams::{Control, push_control, push_payload};

    use super::*;
    use crate::trace::tests::{data, messages};
    use crate::trace::{PORT, Trace};

    const QUERY: &[u8] = b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";
    const RESPONSE: &[u8] = b"\0\x01\x81\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";

    /// What a resolver asked a server and received, and was asked by its client and sent, by `dnstap.proto`.
    const RESOLVER_QUERY: Kind = Kind(3);
    const RESOLVER_RESPONSE: Kind = Kind(4);
    const CLIENT_QUERY: Kind = Kind(5);
    const CLIENT_RESPONSE: Kind = Kind(6);

    fn seen(kind: Kind) -> Seen<'static> {
        let time = |seconds| Some(Time { seconds, nanoseconds: 123_456_789 });
        Seen {
            kind,
            protocol: Some(Protocol::Dot),
            query_address: Some([192, 0, 2, 1].into()),
            response_address: Some([192, 0, 2, 53].into()),
            query_port: Some(5_353),
            response_port: Some(853),
            query_time: time(10),
            query: Some(QUERY),
            response_time: time(11),
            response: (!kind.is_query()).then_some(RESPONSE),
        }
    }

    fn file(seen: &[Seen<'_>]) -> Vec<u8> {
        let mut file = Vec::new();
        push_control(&mut file, Control::Start, Some(DNSTAP));
        for message in seen {
            let dnstap = Dnstap { message: *message, ..Dnstap::default() };
            push_payload(&mut file, |out| dnstap.write(out));
        }
        push_control(&mut file, Control::Stop, None);
        file
    }

    fn read(file: Vec<u8>) -> Trace {
        Trace::read(Cursor::new(file), PORT).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_sample_is_read() {
        let Some(mut trace) = data("replay/test.dnstap") else { return };
        let (found, damage) = messages(&mut trace);
        let queries = found.iter().filter(|message| !message.is_response()).count();
        assert_eq!((damage, trace.format()), (None, "dnstap"));
        assert!(queries > 0 && found.len() > queries, "{queries} queries of {} messages", found.len());
        assert_eq!(trace.skipped().iter().next(), None);
    }

    #[test]
    fn frames_become_messages() {
        let query = Message {
            time: Duration::new(10, 123_456_789),
            client: "192.0.2.1:5353".parse().expect("an address"),
            server: "192.0.2.53:853".parse().expect("an address"),
            transport: Transport::Tcp,
            octets: QUERY.to_vec(),
        };
        let response =
            Message { time: Duration::new(11, 123_456_789), octets: RESPONSE.to_vec(), ..query.clone() };
        // A response brings its query along, unless queries have frames of their own.
        for kind in [Kind::AUTH_RESPONSE, RESOLVER_RESPONSE, CLIENT_RESPONSE] {
            let (found, damage) = messages(&mut read(file(&[seen(kind)])));
            assert_eq!((found, damage), (vec![query.clone(), response.clone()], None), "{kind:?}");
        }
        let both = [seen(CLIENT_QUERY), seen(CLIENT_RESPONSE)];
        assert_eq!(messages(&mut read(file(&both))).0, [query.clone(), response.clone()]);
        // What a resolver asks is not what its clients do.
        let others = [seen(RESOLVER_QUERY), seen(CLIENT_RESPONSE), seen(RESOLVER_RESPONSE)];
        let found = messages(&mut read(file(&others))).0;
        assert_eq!(found, [query.clone(), query.clone(), response.clone(), response]);

        let bare =
            Seen { response_address: None, response_port: None, query_port: None, protocol: None, ..both[0] };
        let expected = Message {
            client: "192.0.2.1:0".parse().expect("an address"),
            server: "0.0.0.0:53".parse().expect("an address"),
            transport: Transport::Udp,
            ..query
        };
        assert_eq!(messages(&mut read(file(&[bare]))).0, [expected]);
    }

    #[test]
    fn files_may_stand_one_behind_the_other() {
        let one = file(&[seen(Kind::AUTH_QUERY)]);
        let (found, damage) = messages(&mut read([&one[..], &one, &file(&[]), &one].concat()));
        assert_eq!((found.len(), damage), (3, None));
        for (more, what) in [(&b"\0\0\0\x01x"[..], "START"), (b"x", "within this frame")] {
            let (found, damage) = messages(&mut read([&one[..], more].concat()));
            let damage = damage.expect("something else stands behind it");
            assert!(damage.what.contains(what), "{damage}");
            assert_eq!((found.len(), damage.offset), (1, one.len() as u64));
        }
        // What is due of one does not hang on what stands before it.
        let other = file(&[seen(Kind::AUTH_RESPONSE)]);
        for both in [[&one[..], &other], [&other, &one]] {
            let (found, _) = messages(&mut read(both.concat()));
            assert_eq!(found.iter().filter(|message| !message.is_response()).count(), 2);
        }
    }

    #[test]
    fn what_lacks_something_is_counted_and_what_breaks_off_is_told() {
        let query = seen(Kind::AUTH_QUERY);
        let mut trace = read(file(&[
            Seen { query_time: None, ..query },
            Seen { query_address: None, ..query },
            Seen { query: None, ..query },
            Seen { query: Some(RESPONSE), ..query },
            query,
        ]));
        assert_eq!(messages(&mut trace).0.len(), 1);
        let skipped: Vec<_> = trace.skipped().iter().collect();
        let expected = [(Skip::NotDns, 1), (Skip::WrongWay, 1), (Skip::NoTime, 1), (Skip::NoClient, 1)];
        assert_eq!(skipped, expected);

        let whole = file(&[query, query]);
        let start = file(&[]).len() - 12;
        let frame = (whole.len() - 12 - start) / 2;
        for (length, what) in [
            (whole.len() - 12, "without the frame that says so"),
            (whole.len() - 1, "within this frame"),
            (whole.len() - 13, "within this frame"),
        ] {
            let (found, damage) = messages(&mut read(whole[..length].to_vec()));
            let damage = damage.expect("it breaks off");
            assert!(damage.what.contains(what), "{damage}");
            assert_eq!(
                (found.len() as u64 + 1, damage.offset),
                match length {
                    length if length == whole.len() - 13 => (2, (start + frame) as u64),
                    _ => (3, (start + 2 * frame) as u64),
                }
            );
        }
    }
}
