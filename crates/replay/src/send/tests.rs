use std::collections::BTreeMap;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc;

use net::tls::provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::carrier::Shares;
use super::tally::Cause;
use super::tls::{Trust, tests as certificate};
use super::*;
use crate::schedule::{Clients, Pacing, Plan};
use crate::trace::Trace;

/// What sends queries to a server over UDP.
pub(super) fn options(server: SocketAddr) -> Options {
    Options {
        servers: vec![server],
        carriers: Carriers::Recorded,
        ports: Ports { tls: 853, quic: 853, https: server.port() },
        https_path: "/dns-query".into(),
        tls: None,
        distances: None,
        has_sources: false,
        frames: Vec::new(),
        unique_names: false,
        mutation: None,
        timeout: Duration::from_secs(20),
        idle: Duration::from_secs(20),
        window: None,
        threads: 1,
        process: Process { count: 1, number: 0, begin: None },
        seed: 1,
        log: None,
        compare: None,
        observer: None,
    }
}

/// Sends so many queries of one client at once.
fn sent(count: usize, options: Options) -> Done {
    let trace = "1.0 192.0.2.1:5353 udp a.example. A rd\n".repeat(count);
    let pacing = if options.window.is_some() { Pacing::Fast } else { Pacing::Recorded { speed: 1.0 } };
    sent_from(trace, pacing, options)
}

fn sent_from(trace: String, pacing: Pacing, options: Options) -> Done {
    let clients = Clients::Factor { factor: 1.0, spread: None };
    let plan = Plan { pacing, clients, limit: None, loops: 1, seed: 1 };
    let open = || Trace::read(io::Cursor::new(trace.clone()), 53).map_err(io::Error::other);
    run(vec![Schedule::new(plan, Arc::default(), open)], options, &Live::default()).expect("it runs")
}

#[test]
fn all_that_waits_at_a_closed_port_is_refused() {
    let closed = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr());
    let closed = closed.expect("loopback binds");
    for window in [None, Some(100)] {
        let tally = sent(10, Options { window, ..options(closed) }).tally;
        assert_eq!((tally.queries, tally.lost[Cause::Refused as usize]), (10, 10), "{window:?}");
    }
}

/// Reads two queries of a connection, answers so many of them, and closes it.
fn close_after(mut stream: TcpStream, answers: usize) -> io::Result<()> {
    let mut queries = [Vec::<u8>::new(), Vec::new()];
    for query in &mut queries {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        query.resize(usize::from(u16::from_be_bytes(length)), 0);
        stream.read_exact(query)?;
    }
    for query in queries.iter_mut().take(answers) {
        query[2] |= 0x80;
        stream.write_all(&[&(query.len() as u16).to_be_bytes()[..], &query[..]].concat())?;
    }
    Ok(())
}

#[test]
fn connections_that_are_closed_before_any_answer_are_counted() {
    for (answers, closed_unanswered) in [(0, 1), (1, 0)] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback binds");
        let server = listener.local_addr().expect("it is bound");
        thread::spawn(move || close_after(listener.accept().expect("it connects").0, answers));
        let shares = Shares::new([0.0, 1.0, 0.0, 0.0, 0.0]).expect("they are all");
        let tally = sent(2, Options { carriers: Carriers::Shares(shares), ..options(server) }).tally;
        let closed = (tally.closed_by_server, tally.closed_unanswered);
        assert_eq!((tally.answers, closed), (answers as u64, (1, closed_unanswered)));
    }
}

/// The types and flags of frames (RFC 9113 §6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = &(payload.len() as u32).to_be_bytes()[1..];
    [length, &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A certificate's side of TLS for HTTP/2, and who trusts it.
fn secured() -> (Arc<ServerConfig>, Arc<Tls>) {
    let certificate_of = CertificateDer::from_pem_slice(certificate::SELF.as_bytes()).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(certificate::KEY.as_bytes()).expect("a key");
    let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let config = config.expect("it is the default").with_no_client_auth();
    let mut config = config.with_single_cert(vec![certificate_of], key).expect("they belong together");
    config.alpn_protocols = vec![b"h2".to_vec()];
    let trust = Trust::of(certificate::SELF.as_bytes()).expect("a certificate");
    (Arc::new(config), Arc::new(Tls::new(&trust, None, false).expect("no name is told")))
}

/// A server's side of HTTP/2, and what a client sends first.
fn begun(
    stream: TcpStream,
    config: &Arc<ServerConfig>,
    settings: &[u8],
) -> io::Result<StreamOwned<ServerConnection, TcpStream>> {
    let connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    stream.read_exact(&mut [0; 24])?;
    stream.write_all(&frame(SETTINGS, 0, 0, settings))?;
    Ok(stream)
}

/// The next frame that is not empty: its type, its stream, and what is in it.
fn next_frame(stream: &mut impl Read) -> io::Result<(u8, u32, Vec<u8>)> {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload)?;
        if !payload.is_empty() {
            return Ok((head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload));
        }
    }
}

/// Answers a query.
fn answer(stream: &mut impl Write, id: u32, mut message: Vec<u8>) -> io::Result<()> {
    message[2] |= 0x80;
    // `:status: 200` is the eighth entry of the static table, and `content-type` the 31st, without a value.
    let head = [&[0x88, 0x0f, 31 - 15, 23][..], b"application/dns-message"].concat();
    stream.write_all(&frame(HEADERS, END_HEADERS, id, &head))?;
    stream.write_all(&frame(DATA, END_STREAM, id, &message))
}

/// A server of HTTP/2 that takes one query at a time, and answers the second one only.
fn answer_the_second(stream: TcpStream, config: &Arc<ServerConfig>) -> io::Result<()> {
    let one_at_a_time = [&3_u16.to_be_bytes()[..], &1_u32.to_be_bytes()].concat();
    let mut stream = begun(stream, config, &one_at_a_time)?;
    let (mut queries, mut is_taken_back) = (0, false);
    loop {
        let (kind, id, message) = next_frame(&mut stream)?;
        is_taken_back |= kind == RST_STREAM;
        queries += u64::from(kind == DATA);
        if kind == DATA && queries == 2 && is_taken_back {
            answer(&mut stream, id, message)?;
        }
    }
}

#[test]
fn what_is_lost_at_a_server_of_http_makes_room_for_the_next() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback binds");
    let server = listener.local_addr().expect("it is bound");
    let (config, tls) = secured();
    thread::spawn(move || answer_the_second(listener.accept().expect("it connects").0, &config));
    let shares = Shares::new([0.0, 0.0, 0.0, 0.0, 1.0]).expect("they are all");
    let options = Options {
        carriers: Carriers::Shares(shares),
        tls: Some(tls),
        timeout: Duration::from_secs(2),
        ..options(server)
    };
    let trace = "1.0 192.0.2.1:5353 udp a.example. A rd\n2.9 192.0.2.1:5353 udp b.example. A rd\n";
    let tally = sent_from(trace.into(), Pacing::Recorded { speed: 1.0 }, options).tally;
    assert_eq!((tally.answers, tally.lost[Cause::Timeout as usize]), (1, 1));
}

/// A server of HTTP/2 that answers the first `answered` queries of a connection once so many more are there, and takes
/// no more of it.
fn serve(stream: TcpStream, config: &Arc<ServerConfig>, answered: usize, more: usize) -> io::Result<()> {
    let mut stream = begun(stream, config, &[])?;
    let mut queries = BTreeMap::new();
    while queries.len() < answered + more {
        let (kind, id, message) = next_frame(&mut stream)?;
        if kind == DATA {
            queries.insert(id, message);
        }
    }
    let last = queries.keys().nth(answered.wrapping_sub(1)).copied().unwrap_or(0);
    stream.write_all(&frame(GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat()))?;
    for (id, message) in queries.into_iter().take(answered) {
        answer(&mut stream, id, message)?;
    }
    // Until the client ends it.
    io::copy(&mut stream, &mut io::sink()).map(drop)
}

#[test]
fn what_a_server_says_goodbye_to_is_asked_again() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback binds");
    let server = listener.local_addr().expect("it is bound");
    let (config, tls) = secured();
    thread::spawn(move || {
        // Two of five, then one of three, then none of the two that were asked three times.
        for (answered, more) in [(2, 3), (1, 2), (0, 2)] {
            let (stream, config) = (listener.accept().expect("it connects").0, Arc::clone(&config));
            thread::spawn(move || serve(stream, &config, answered, more));
        }
    });
    let shares = Shares::new([0.0, 0.0, 0.0, 0.0, 1.0]).expect("they are all");
    let options = Options { carriers: Carriers::Shares(shares), tls: Some(tls), ..options(server) };
    let tally = sent(5, options).tally;
    let lost = (tally.lost_total(), tally.lost[Cause::Closed as usize]);
    assert_eq!((tally.queries, tally.answers, lost), (5, 3, (2, 2)));
    // Three once, two of them twice.
    assert_eq!((tally.unprocessed, tally.lateness.len()), (5, 5));
}

/// A server that truncates all that it answers over UDP, and at the same port one that answers over TCP; tells of
/// each query over TCP.
fn truncating() -> (SocketAddr, mpsc::Receiver<()>) {
    // Of some port that is free for UDP, another may have that for TCP.
    let both = (0..100).find_map(|_| {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback binds");
        let server = socket.local_addr().expect("it is bound");
        Some((socket, TcpListener::bind(server).ok()?, server))
    });
    let (socket, listener, server) = both.expect("one is free for both");
    thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut query) {
            query[2] |= 0x82;
            let _ = socket.send_to(&query[..length], from);
        }
    });
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("it connects");
        let mut length = [0; 2];
        while stream.read_exact(&mut length).is_ok() {
            let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut query).expect("all of it comes");
            let _ = tell.send(());
            query[2] |= 0x80;
            stream.write_all(&[&length[..], &query].concat()).expect("it is taken");
        }
    });
    (server, told)
}

#[test]
fn a_recorded_retry_and_our_own_are_one() {
    let (server, told) = truncating();
    let queries = ["1.0 192.0.2.1:5353 udp a", "1.2 192.0.2.1:4000 tcp A", "1.2 192.0.2.1:4001 tcp b"];
    let trace = queries.map(|query| format!("{query}.example. A rd\n")).concat();
    let tally = sent_from(trace, Pacing::Recorded { speed: 1.0 }, options(server)).tally;
    assert_eq!((told.iter().count(), tally.answers), (2, 3));
    assert_eq!((tally.truncated, tally.left_out), (0, 0), "the recorded one stands for ours");
    // Over UDP alone, no recorded query over TCP stands for a retry.
    let (server, told) = truncating();
    let shares = Shares::new([1.0, 0.0, 0.0, 0.0, 0.0]).expect("they are all");
    let options = Options { carriers: Carriers::Shares(shares), ..options(server) };
    let trace = "1.0 192.0.2.1:4000 tcp a.example. A rd\n".into();
    let tally = sent_from(trace, Pacing::Recorded { speed: 1.0 }, options).tally;
    assert_eq!((told.iter().count(), tally.answers, tally.truncated), (1, 1, 1));
}
