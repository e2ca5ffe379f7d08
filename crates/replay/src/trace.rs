//! A trace: DNS messages with their times, read from a capture or a text as a stream.
//!
//! Memory does not grow with the trace: each table below has a limit with a name, and what it turns away is
//! counted as [`Skip`] has it.
//!
//! In reading order:
//! - [`Trace`]: opens a file of any known format and gives its messages, oldest packet first.
//! - [`mod@message`]: [`Message`], one query or response.
//! - [`skipped`]: why a packet gave no message, and how many did not.
//! - [`summary`]: what a trace is like, in a few numbers.
//! - [`text`] and [`pcap`]: traces written, as lines and as packets.
//! - [`cut`]: a part of a trace.
//! - [`looped`]: a trace that is gone through several times.
//! - below: `format`, `source` and `ahead` (what the file is, unpacked, by a thread), `capture` (blocks), `packet`
//!   (headers), `fragments`, `streams` and `stream` (what came in pieces), `recent` (their bounded table), `cdns` (pairs),
//!   `dnstap` (frames of a server), `frames` (zstd, lz4), `xz`.

mod ahead;
mod capture;
mod cdns;
pub mod cut;
mod dnstap;
mod format;
mod fragments;
mod frames;
pub mod looped;
pub mod message;
mod packet;
pub mod pairs;
pub mod pcap;
mod recent;
pub mod skipped;
mod source;
mod stream;
mod streams;
pub mod summary;
pub mod text;
pub mod top;
mod xz;

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

pub use api::TraceDamage as Damage;
pub use cut::Cut;
pub use message::{Message, Transport};
pub use skipped::{Skip, Skipped};
pub use summary::Summary;
pub use top::Top;

use capture::{Capture, Packet};
use format::Format;
use fragments::Fragments;
use packet::Segment;
use streams::{Flow, Streams};

/// Where DNS is spoken, where nothing else is said.
pub const PORT: u16 = 53;

/// How much of a file a step of [`Trace::step`] reads where nothing in it gives a message, in packets, lines of a text, pairs
/// of C-DNS or frames of dnstap: some 20 us.
pub const STEP_MAX: usize = 256;

/// A trace that is being read; an iterator of its messages.
///
/// Messages come in the order in which their last packets were captured, those behind a gap in a TCP stream once what is
/// missing is waited for no longer, up to a second later; of C-DNS, in the order of time within each block.
/// After damage, which is the one error, there are no more.
pub struct Trace {
    input: Input,
    format: Format,
    is_packed: bool,
    dissector: Dissector,
    is_over: bool,
    /// Where it breaks off: told once the messages before are taken.
    damage: Option<Damage>,
}

enum Input {
    Capture(Capture),
    Text(text::Lines),
    Cdns(Box<cdns::Pairs>),
    Dnstap(dnstap::Frames),
}

/// Why a trace cannot be read at all.
#[derive(Debug)]
pub enum Error {
    /// The system does not give the file, or its compression is broken from the start.
    Io(io::Error),
    /// There is nothing in the file.
    Empty,
    /// The format is known by this name, but not read.
    Unsupported(&'static str),
    /// The format is not known.
    Unknown,
    /// The file's first header is broken.
    Header(Damage),
}

impl Trace {
    /// Opens a file; `port` is where the servers in it listen.
    ///
    /// # Errors
    /// [`Error`]
    pub fn open(path: &Path, port: u16) -> Result<Trace, Error> {
        Trace::read(File::open(path).map_err(Error::Io)?, port)
    }

    /// Reads a file as it comes; `port` is where the servers in it listen.
    ///
    /// The format and the compression (gzip, xz, zstd, lz4) are found from the content.
    ///
    /// # Errors
    /// [`Error`]
    pub fn read(file: impl Read + Send + 'static, port: u16) -> Result<Trace, Error> {
        let mut source = source::Source::unpacked(file).map_err(Error::Io)?;
        let head = source.peek().map_err(Error::Io)?;
        let format = Format::of(head)?;
        let is_packed = source.is_packed();
        let input = match format {
            Format::Pcap | Format::Pcapng => Input::Capture(Capture::new(source).map_err(Error::Header)?),
            Format::Text => Input::Text(text::Lines::new(source)),
            Format::Dnstap => Input::Dnstap(dnstap::Frames::new(source)),
            Format::Cdns => Input::Cdns(Box::new(cdns::Pairs::new(source).map_err(Error::Header)?)),
        };
        Ok(Trace { input, format, is_packed, dissector: Dissector::new(port), is_over: false, damage: None })
    }

    /// Reads on to the next message, or within what gives none, as far as [`STEP_MAX`]: `None` in the place of a message.
    pub fn step(&mut self) -> Option<Result<Option<Message>, Damage>> {
        for _ in 0..STEP_MAX {
            if let Some(message) = self.dissector.ready.pop_front() {
                return Some(Ok(Some(message)));
            }
            if self.is_over {
                return self.damage.take().map(Err);
            }
            let more = match &mut self.input {
                Input::Text(lines) => lines.next(|message| self.dissector.ready.push_back(message)),
                Input::Capture(capture) => capture.next(|packet| match packet {
                    Ok(packet) => self.dissector.packet(packet),
                    Err((skip, count)) => self.dissector.skipped.add(skip, count),
                }),
                Input::Cdns(pairs) => {
                    let Dissector { port, skipped, ready, .. } = &mut self.dissector;
                    pairs.next(*port, skipped, |message| ready.push_back(message))
                }
                Input::Dnstap(frames) => {
                    let Dissector { port, skipped, ready, .. } = &mut self.dissector;
                    frames.next(*port, skipped, |message| ready.push_back(message))
                }
            };
            match more {
                Ok(true) => {}
                Ok(false) => {
                    self.is_over = true;
                    self.dissector.finish();
                }
                Err(damage) => {
                    self.is_over = true;
                    self.dissector.finish();
                    self.damage = Some(damage);
                }
            }
        }
        Some(Ok(None))
    }

    /// The name of the file's format: `pcap`, `pcapng`, `C-DNS`, `dnstap` or `text`.
    pub fn format(&self) -> &'static str {
        self.format.name()
    }

    /// Whether the file is compressed.
    pub fn is_packed(&self) -> bool {
        self.is_packed
    }

    /// What gave no message so far, by cause.
    pub fn skipped(&self) -> &Skipped {
        &self.dissector.skipped
    }

    /// Which packet, line of a text, pair of C-DNS or frame of dnstap the message that was given last was whole with; 1
    /// for the first.
    pub fn packet(&self) -> u64 {
        match &self.input {
            Input::Cdns(pairs) => pairs.pair(),
            _ => self.packets(),
        }
    }

    /// How many packets, lines of a text, pairs of C-DNS or frames of dnstap were read so far.
    pub fn packets(&self) -> u64 {
        match &self.input {
            Input::Capture(capture) => capture.packets(),
            Input::Text(lines) => lines.lines(),
            Input::Cdns(pairs) => pairs.pairs(),
            Input::Dnstap(frames) => frames.frames(),
        }
    }
}

impl Iterator for Trace {
    type Item = Result<Message, Damage>;

    fn next(&mut self) -> Option<Result<Message, Damage>> {
        loop {
            if let Some(told) = self.step()?.transpose() {
                return Some(told);
            }
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("format", &self.format).field("packets", &self.packets()).finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(cause) => write!(f, "it cannot be read: {cause}"),
            Error::Empty => f.write_str("the file is empty"),
            Error::Unsupported(name) => {
                write!(f, "{name} is not supported; supported are {}", format::SUPPORTED)
            }
            Error::Unknown => write!(f, "the format is not known; supported are {}", format::SUPPORTED),
            // No packet stands before it.
            Error::Header(damage) => f.write_str(&damage.what),
        }
    }
}

impl std::error::Error for Error {}

/// Packets in, messages out.
struct Dissector {
    port: u16,
    fragments: Fragments,
    streams: Streams,
    skipped: Skipped,
    /// The messages of the last packet that nobody has taken yet: at most as many as fit in what one stream may hold;
    /// where streams are given up, in what all may.
    ready: VecDeque<Message>,
}

impl Dissector {
    fn new(port: u16) -> Dissector {
        Dissector {
            port,
            fragments: Fragments::default(),
            streams: Streams::new(port),
            skipped: Skipped::default(),
            ready: VecDeque::new(),
        }
    }

    fn packet(&mut self, packet: Packet<'_>) {
        if self.streams.is_waiting_too_long(packet.time) {
            self.of_streams(|streams, skipped, take| streams.go_on(packet.time, skipped, take));
        }
        if let Err(skip) = self.dissect(&packet) {
            // A header that is not there whole was cut off like anything else.
            self.skipped.count(if packet.is_cut && skip == Skip::Broken { Skip::Cut } else { skip });
        }
    }

    fn dissect(&mut self, packet: &Packet<'_>) -> Result<(), Skip> {
        let datagram = packet::network(packet.link, packet.octets)?;
        let whole;
        let (protocol, payload) = match datagram.fragment {
            None => (datagram.protocol, datagram.payload),
            // A piece that was cut in the capture would leave its octets out of the whole.
            Some(_) if datagram.is_cut => return Err(Skip::Cut),
            Some(_) => match self.fragments.add(&datagram, packet.time, &mut self.skipped)? {
                None => return Ok(()),
                Some((protocol, octets)) => {
                    whole = octets;
                    packet::whole(datagram.source.is_ipv6(), protocol, &whole)?
                }
            },
        };
        match packet::transport(protocol, payload, datagram.is_cut)? {
            Segment::Udp { source, destination, payload } => {
                let (source, destination) =
                    ((datagram.source, source).into(), (datagram.destination, destination).into());
                self.at_port(source, destination)?;
                let message = sorted(self.port, Transport::Udp, packet.time, source, destination, payload?)?;
                self.ready.push_back(message);
            }
            Segment::Tcp { source, destination, piece } => {
                let (source, destination) =
                    ((datagram.source, source).into(), (datagram.destination, destination).into());
                self.at_port(source, destination)?;
                self.of_streams(|streams, skipped, take| {
                    streams.add((source, destination), packet.time, &piece, skipped, take);
                });
            }
        }
        Ok(())
    }

    fn at_port(&self, source: SocketAddr, destination: SocketAddr) -> Result<(), Skip> {
        if source.port() == self.port || destination.port() == self.port {
            Ok(())
        } else {
            Err(Skip::OtherPort)
        }
    }

    /// Takes the messages that streams give.
    fn of_streams(
        &mut self,
        give: impl FnOnce(&mut Streams, &mut Skipped, &mut dyn FnMut(Flow, Duration, &[u8])),
    ) {
        let Dissector { port, streams, skipped, ready, .. } = self;
        let mut refused = Skipped::default();
        give(streams, skipped, &mut |(source, destination), time, octets| match sorted(
            *port,
            Transport::Tcp,
            time,
            source,
            destination,
            octets,
        ) {
            Ok(message) => ready.push_back(message),
            Err(skip) => refused.count(skip),
        });
        skipped.merge(&refused);
    }

    fn finish(&mut self) {
        self.fragments.finish(&mut self.skipped);
        self.of_streams(|streams, skipped, take| streams.finish(skipped, take));
    }
}

/// Tells queries from responses and clients from servers.
fn sorted(
    port: u16,
    transport: Transport,
    time: Duration,
    source: SocketAddr,
    destination: SocketAddr,
    octets: &[u8],
) -> Result<Message, Skip> {
    let header = octets.first_chunk::<{ dns::query::HEADER }>().ok_or(Skip::NotDns)?;
    let is_response = header[2] & 0x80 != 0;
    let (client, server) = if is_response { (destination, source) } else { (source, destination) };
    if server.port() != port {
        return Err(Skip::WrongWay);
    }
    Ok(Message { time, client, server, transport, octets: octets.to_vec() })
}

#[cfg(test)]
mod tests;
