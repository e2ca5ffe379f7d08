//! A client of DNS: messages made and read by `domain`, over plain sockets.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use domain::base::iana::{OptionCode, Rtype};
use domain::base::opt::{ClientSubnet, UnknownOptData};
use domain::base::wire::ParseError;
use domain::base::{Message, MessageBuilder, Name};
use domain::rdata::AllRecordData;

use crate::program::PROGRAM_WAIT;

/// How long an answer may take on a machine that has much else to do. Nothing gets lost on loopback, so a query
/// is sent once.
pub const ANSWER_WAIT: Duration = Duration::from_secs(20);

/// The largest answer over UDP that is asked for with EDNS, in octets.
const PAYLOAD: u16 = 4096;

/// How long who asks again and again rests between.
const RESTED: Duration = Duration::from_millis(5);

/// Each message has an id of its own, so that an answer cannot be taken for one to an earlier question.
static NEXT_ID: AtomicU16 = AtomicU16::new(1);

/// A question to be asked.
#[derive(Clone, Debug)]
pub struct Question {
    name: Name<Vec<u8>>,
    rtype: Rtype,
    edns: bool,
    dnssec_ok: bool,
    ad: bool,
    subnet: Option<(IpAddr, u8)>,
    options: Vec<(u16, Vec<u8>)>,
}

/// An answer, its records as text: owner, TTL, class, type and data, in lower case, sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The response code, with EDNS's part of it.
    pub rcode: String,
    /// Whether it is authoritative.
    pub aa: bool,
    /// Whether it is truncated.
    pub tc: bool,
    /// Whether all of it was validated.
    pub ad: bool,
    /// The records of ANSWER.
    pub answer: Vec<String>,
    /// The records of AUTHORITY.
    pub authority: Vec<String>,
    /// Whether there is an OPT record.
    pub edns: bool,
    /// Client subnet: address, SOURCE and SCOPE.
    pub subnet: Option<(IpAddr, u8, u8)>,
    /// The options of the OPT record, client subnet too: code and data.
    pub options: Vec<(u16, Vec<u8>)>,
}

impl Question {
    /// Asks for a name and type, without EDNS.
    ///
    /// # Panics
    /// Where either cannot be read.
    pub fn new(name: &str, rtype: &str) -> Question {
        Question {
            name: name.parse().expect("a name"),
            rtype: rtype.parse().expect("a type"),
            edns: false,
            dnssec_ok: false,
            ad: false,
            subnet: None,
            options: Vec::new(),
        }
    }

    /// Adds an OPT record.
    pub fn edns(self) -> Question {
        Question { edns: true, ..self }
    }

    /// Adds an OPT record with DO, by which signatures and proofs are asked for (RFC 3225).
    pub fn dnssec_ok(self) -> Question {
        Question { edns: true, dnssec_ok: true, ..self }
    }

    /// Asks a resolver, and to be told whether it has validated the answer (RFC 6840 §5.7).
    pub fn ad(self) -> Question {
        Question { ad: true, ..self }
    }

    /// Adds client subnet: `192.0.2.0/24`.
    ///
    /// # Panics
    /// Where it cannot be read.
    pub fn subnet(self, prefix: &str) -> Question {
        let (address, length) = prefix.split_once('/').expect("an address and a length");
        let subnet = (address.parse().expect("an address"), length.parse().expect("a length"));
        Question { edns: true, subnet: Some(subnet), ..self }
    }

    /// Adds an option: its code and data.
    pub fn option(mut self, code: u16, data: &[u8]) -> Question {
        self.edns = true;
        self.options.push((code, data.to_vec()));
        self
    }

    /// The message.
    ///
    /// # Panics
    /// Never: it is short.
    pub fn message(&self) -> Vec<u8> {
        let mut builder = MessageBuilder::new_vec();
        builder.header_mut().set_ad(self.ad);
        builder.header_mut().set_rd(self.ad);
        builder.header_mut().set_id(NEXT_ID.fetch_add(1, Ordering::Relaxed));
        let mut builder = builder.question();
        builder.push((&self.name, self.rtype)).expect("there is room");
        let mut builder = builder.additional();
        if self.edns {
            let built = builder.opt(|opt| {
                opt.set_udp_payload_size(PAYLOAD);
                opt.set_dnssec_ok(self.dnssec_ok);
                if let Some((address, source)) = self.subnet {
                    opt.push(&ClientSubnet::new(source, 0, address))?;
                }
                self.options.iter().try_for_each(|(code, data)| {
                    let code = OptionCode::from_int(*code);
                    opt.push(&UnknownOptData::new(code, data).expect("an option is short"))
                })
            });
            built.expect("there is room");
        }
        builder.finish()
    }

    /// Asks over UDP.
    ///
    /// # Panics
    /// Where no answer comes, or a malformed one.
    pub fn udp(&self, server: SocketAddr) -> Answer {
        self.at(&socket(server))
    }

    /// Asks over UDP from a connected socket.
    ///
    /// # Panics
    /// Where no answer comes, or a malformed one.
    pub fn at(&self, socket: &UdpSocket) -> Answer {
        let message = self.message();
        let reply = exchange(socket, &message).unwrap_or_else(|cause| panic!("{self:?}: no answer: {cause}"));
        assert_eq!(reply[..2], message[..2], "the id is echoed");
        Answer::read(&reply)
    }

    /// Asks over TCP, on a connection for this question alone.
    ///
    /// # Panics
    /// Where no answer comes, or a malformed one.
    pub fn tcp(&self, server: SocketAddr) -> Answer {
        let mut stream = connect(server);
        send(&mut stream, &self.message()).expect("the server takes it");
        Answer::read(&receive(&mut stream).unwrap_or_else(|cause| panic!("{self:?}: no answer: {cause}")))
    }

    /// Asks over UDP and, where the answer is truncated, over TCP.
    ///
    /// # Panics
    /// Where no answer comes, or a malformed one.
    pub fn ask(&self, server: SocketAddr) -> Answer {
        let answer = self.udp(server);
        if answer.tc { self.tcp(server) } else { answer }
    }
}

impl Answer {
    /// Reads a response.
    ///
    /// # Panics
    /// Where it is malformed, or none.
    pub fn read(reply: &[u8]) -> Answer {
        let message = Message::from_slice(reply).expect("a message has a header");
        assert!(message.header().qr(), "a response");
        let (_, answer, authority, mut additional) = message.sections().expect("sections can be read");
        assert!(additional.all(|record| record.is_ok()), "records can be read");
        let list = |section: domain::base::message::RecordSection<'_, [u8]>| {
            let mut lines: Vec<String> = section
                .limit_to::<AllRecordData<_, _>>()
                .map(|record| {
                    let record = record.expect("records can be read");
                    let dot = if record.owner().to_string().is_empty() { "" } else { "." };
                    let (owner, ttl, class) = (record.owner(), record.ttl().as_secs(), record.class());
                    let line = format!("{owner}{dot} {ttl} {class} {} {}", record.rtype(), record.data());
                    line.to_lowercase()
                })
                .collect();
            lines.sort();
            lines
        };
        let opt = message.opt();
        let subnet = opt.as_ref().and_then(|opt| opt.opt().iter::<ClientSubnet>().next());
        let subnet = subnet.map(|subnet| subnet.expect("client subnet can be read"));
        Answer {
            rcode: message.opt_rcode().to_string(),
            aa: message.header().aa(),
            tc: message.header().tc(),
            ad: message.header().ad(),
            answer: list(answer),
            authority: list(authority),
            edns: opt.is_some(),
            subnet: subnet.map(|s| (s.addr(), s.source_prefix_len(), s.scope_prefix_len())),
            options: opt.iter().flat_map(|opt| opt.opt().iter::<UnknownOptData<_>>()).map(option).collect(),
        }
    }

    /// The data of the first option of a code.
    pub fn option(&self, code: u16) -> Option<&[u8]> {
        self.options.iter().find(|(there, _)| *there == code).map(|(_, data)| &data[..])
    }

    /// The data of the records of ANSWER alone: for addresses, the addresses.
    pub fn data(&self) -> Vec<&str> {
        self.answer.iter().map(|line| line.splitn(5, ' ').nth(4).expect("a record has data")).collect()
    }
}

fn option(read: Result<UnknownOptData<&[u8]>, ParseError>) -> (u16, Vec<u8>) {
    let option = read.expect("options can be read");
    (option.code().to_int(), option.data().to_vec())
}

/// A socket of its own port, connected to the server.
///
/// # Panics
/// Where the system refuses it.
pub fn socket(server: SocketAddr) -> UdpSocket {
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).expect("a port is free");
    socket.connect(server).expect("loopback is there");
    socket.set_read_timeout(Some(ANSWER_WAIT)).expect("the bound is not zero");
    socket
}

/// A TCP connection to the server.
///
/// # Panics
/// Where the system or the server refuses it.
pub fn connect(server: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(server).expect("the server accepts");
    stream.set_read_timeout(Some(ANSWER_WAIT)).expect("the bound is not zero");
    stream.set_write_timeout(Some(ANSWER_WAIT)).expect("the bound is not zero");
    stream.set_nodelay(true).expect("a stream has that option");
    stream
}

/// Rests before the same is asked again: who asks without a rest takes the processors from who is to change the answer, the
/// kernel's own threads too, for a minute and more where there are two.
pub fn rest() {
    std::thread::sleep(RESTED);
}

/// Asks with EDNS until the answer is as wanted.
///
/// # Panics
/// Where it is not within [`PROGRAM_WAIT`].
pub fn wait(server: SocketAddr, name: &str, rtype: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
    let until = Instant::now() + PROGRAM_WAIT;
    let socket = socket(server);
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("the bound is not zero");
    let mut last: io::Result<Answer>;
    loop {
        let message = Question::new(name, rtype).edns().message();
        last = exchange(&socket, &message).map(|octets| Answer::read(&octets));
        match last {
            Ok(answer) if wanted(&answer) => return answer,
            _ => assert!(Instant::now() < until, "{name} {rtype}: {last:?}"),
        }
        rest();
    }
}

/// Sends a datagram and waits for one.
///
/// # Errors
/// Where none comes within [`ANSWER_WAIT`].
pub fn exchange(socket: &UdpSocket, message: &[u8]) -> io::Result<Vec<u8>> {
    socket.send(message)?;
    let mut reply = vec![0; usize::from(u16::MAX)];
    let length = socket.recv(&mut reply)?;
    reply.truncate(length);
    Ok(reply)
}

/// Sends a message over TCP, its length in front (RFC 1035 §4.2.2).
///
/// # Errors
/// Where the connection does not take it.
///
/// # Panics
/// For a message over 65,535 octets.
pub fn send(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).expect("a message has at most 65,535 octets");
    stream.write_all(&[&length.to_be_bytes(), message].concat())
}

/// Receives a message over TCP.
///
/// # Errors
/// Where the connection ends first, or no answer comes within [`ANSWER_WAIT`].
pub fn receive(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message)?;
    Ok(message)
}
