//! The source of look-ups over TCP: pipelines on kept connections, as fast as they are answered.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fastrand::Rng;

/// How many connections ask at a time.
const CONNECTIONS: usize = 50;

/// Look-ups under way on each, where they are pipelined.
const PIPELINE: usize = 64;

/// Addresses in a bulk request.
const BULK: usize = 1000;

/// Look-ups that are prepared, and sent again and again.
const PREPARED: usize = 1 << 18;

/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// What look-ups are sent as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The Redis protocol.
    Resp,
    /// The protocol of Rapid DNS.
    Rapid,
    /// Checks over HTTP, one after the other, as web servers send them.
    Check,
    /// Many addresses in a request over HTTP.
    Bulk,
}

/// What one run saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// How many answers came.
    pub(crate) answers: u64,
    /// How many of them were names.
    pub(crate) names: u64,
    /// How long it took.
    pub(crate) seconds: f64,
}

/// An answer at the beginning of what was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Its length in octets.
    pub(crate) length: usize,
    /// How many addresses it is for.
    answers: u64,
    /// How many of these have a name.
    names: u64,
}

impl Form {
    /// Writes requests for some addresses, which are then under way together; gives how many answers there will be.
    fn batch(self, mut next: impl FnMut() -> Ipv4Addr, out: &mut Vec<u8>) -> usize {
        match self {
            Form::Resp | Form::Rapid => {
                (0..PIPELINE).for_each(|_| self.ask(next(), out));
                PIPELINE
            }
            Form::Check => {
                self.ask(next(), out);
                1
            }
            Form::Bulk => {
                let lines: String = (0..BULK).map(|_| format!("{}\n", next())).collect();
                let head = "POST /v1/names HTTP/1.1\r\nhost: names\r\ncontent-type: application/x-ndjson\r\n";
                let text = format!("{head}content-length: {}\r\n\r\n{lines}", lines.len());
                out.extend_from_slice(text.as_bytes());
                1
            }
        }
    }

    /// Writes a look-up.
    pub(crate) fn ask(self, address: Ipv4Addr, out: &mut Vec<u8>) {
        match self {
            Form::Resp => {
                let key = address.to_string();
                out.extend_from_slice(format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()).as_bytes());
            }
            Form::Rapid => {
                out.extend_from_slice(&address.octets());
                out.push(0xff);
            }
            Form::Check | Form::Bulk => {
                let text = format!("GET /v1/check HTTP/1.1\r\nhost: names\r\nx-real-ip: {address}\r\n\r\n");
                out.extend_from_slice(text.as_bytes());
            }
        }
    }

    /// The answer at the beginning; `None` where it is not whole.
    pub(crate) fn answer(self, input: &[u8]) -> Option<Answer> {
        let one = |length, is_name| Some(Answer { length, answers: 1, names: u64::from(is_name) });
        match self {
            Form::Resp => {
                let end = input.iter().position(|octet| *octet == b'\n')?;
                let digits = input.get(1..end.checked_sub(1)?)?;
                if input[0] != b'$' || digits == b"-1" {
                    return one(end + 1, false);
                }
                let whole = end + 1 + number(digits) + 2;
                if input.len() >= whole { one(whole, true) } else { None }
            }
            Form::Rapid => {
                let end = 4 + input.get(4..)?.iter().position(|octet| *octet == 0)?;
                if input.len() > end + 1 { one(end + 2, end > 4) } else { None }
            }
            Form::Check | Form::Bulk => {
                let head = find(input, b"\r\n\r\n")? + 4;
                let value = |name: &[u8]| Some(&input[find(&input[..head], name)? + name.len()..head]);
                let whole = head + value(b"content-length: ").map_or(0, number);
                let body = input.get(head..whole)?;
                if self == Form::Check {
                    return one(whole, value(b"x-client-name: ").is_some());
                }
                let lines = body.split(|octet| *octet == b'\n').filter(|line| !line.is_empty());
                let names = lines.clone().filter(|line| find(line, b"\"state\":\"name\"").is_some()).count();
                Some(Answer { length: whole, answers: lines.count() as u64, names: names as u64 })
            }
        }
    }
}

fn find(within: &[u8], wanted: &[u8]) -> Option<usize> {
    within.windows(wanted.len()).position(|window| window == wanted)
}

/// The number that these octets begin with.
fn number(octets: &[u8]) -> usize {
    let digits = octets.iter().take_while(|octet| octet.is_ascii_digit());
    digits.fold(0, |sum, digit| 10 * sum + usize::from(digit - b'0'))
}

struct Connection {
    stream: TcpStream,
    /// Answers that are to come.
    pending: usize,
    input: Vec<u8>,
}

/// Asks for these addresses, at random, for so long.
///
/// # Errors
/// Where the server ends a connection or an answer does not come.
pub(crate) fn run(
    at: SocketAddr,
    form: Form,
    addresses: &[Ipv4Addr],
    length: Duration,
    seed: u64,
) -> Result<Seen> {
    let mut rng = Rng::with_seed(seed);
    let mut left = PREPARED;
    let mut batches = Vec::new();
    while left > 0 {
        let mut requests = Vec::new();
        let mut next = || {
            left = left.saturating_sub(1);
            addresses[rng.usize(..addresses.len())]
        };
        let answers = form.batch(&mut next, &mut requests);
        batches.push((requests, answers));
    }
    let mut batches = batches.iter().cycle();
    let mut next = || batches.next().expect("it begins again");
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let (requests, pending) = next();
        let mut stream = connect(at)?;
        stream.write_all(requests).context("a request")?;
        connections.push(Connection { stream, pending: *pending, input: Vec::with_capacity(1 << 16) });
    }
    let (mut seen, begun) = (Seen::default(), Instant::now());
    while begun.elapsed() < length {
        for connection in &mut connections {
            connection.answers(form, &mut seen)?;
            let (requests, pending) = next();
            connection.pending = *pending;
            connection.stream.write_all(requests).context("a request")?;
        }
    }
    seen.seconds = begun.elapsed().as_secs_f64();
    Ok(seen)
}

impl Connection {
    /// Reads all answers that are to come.
    fn answers(&mut self, form: Form, seen: &mut Seen) -> Result<()> {
        let mut at = 0;
        while self.pending > 0 {
            match form.answer(&self.input[at..]) {
                Some(Answer { length, answers, names }) => {
                    at += length;
                    self.pending -= 1;
                    seen.answers += answers;
                    seen.names += names;
                }
                None => {
                    self.input.drain(..at);
                    at = 0;
                    let held = self.input.len();
                    self.input.resize(held + (1 << 14), 0);
                    let read = self.stream.read(&mut self.input[held..]).context("an answer")?;
                    self.input.truncate(held + read);
                    if read == 0 {
                        bail!("the server ended a connection");
                    }
                }
            }
        }
        self.input.drain(..at);
        Ok(())
    }
}

/// A connection that gives up in time.
///
/// # Errors
/// Where there is none to be had.
pub(crate) fn connect(at: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&at, ANSWER_MAX).with_context(|| format!("{at}"))?;
    stream.set_nodelay(true).context("a socket")?;
    stream.set_read_timeout(Some(ANSWER_MAX)).context("a socket")?;
    stream.set_write_timeout(Some(ANSWER_MAX)).context("a socket")?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        let check = b"HTTP/1.1 200 OK\r\nx-client-name: a.b\r\ncontent-length: 0\r\n\r\nH";
        let bulk = b"HTTP/1.1 200 OK\r\ncontent-length: 31\r\n\r\n{\"state\":\"name\"}\n{\"state\":\"x\"}\nH";
        for (form, input, expected) in [
            (Form::Resp, &b"$11\r\nwww.example\r\n$"[..], Some((18, 1, 1))),
            (Form::Resp, b"$11\r\nwww.exam", None),
            (Form::Resp, b"$-1\r\n$", Some((5, 1, 0))),
            (Form::Resp, b"$1", None),
            (Form::Rapid, b"\xff\x00\x02\x01a.b\x00\xff\x01", Some((9, 1, 1))),
            (Form::Rapid, b"\xff\x00\x02\x01\x00\xff", Some((6, 1, 0))),
            (Form::Rapid, b"\xff\x00\x02\x01a.b\x00", None),
            (Form::Rapid, b"\xff\x00", None),
            (Form::Check, check, Some((check.len() - 1, 1, 1))),
            (Form::Check, &check[..40], None),
            (Form::Bulk, bulk, Some((bulk.len() - 1, 2, 1))),
            (Form::Bulk, &bulk[..bulk.len() - 2], None),
        ] {
            let answer = form.answer(input).map(|answer| (answer.length, answer.answers, answer.names));
            assert_eq!(answer, expected, "{input:?}");
        }
    }
}
