//! The source of look-ups over TCP: pipelines on kept connections, as fast as they are answered.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fastrand::Rng;

/// Connections.
const CONNECTIONS: usize = 50;

/// Look-ups under way on each.
const PIPELINE: usize = 64;

/// Batches that are prepared, and sent again and again: 262,144 look-ups.
const BATCHES: usize = 4096;

/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The Redis protocol.
    Resp,
    /// The protocol of Rapid DNS.
    Rapid,
}

/// What one run saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Answers.
    pub(crate) answers: u64,
    /// Of them, names.
    pub(crate) names: u64,
    /// How long it took.
    pub(crate) seconds: f64,
}

impl Form {
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
        }
    }

    /// The length of the answer at the beginning, and whether it is a name; `None` where it is not whole.
    pub(crate) fn answer(self, input: &[u8]) -> Option<(usize, bool)> {
        match self {
            Form::Resp => {
                let end = input.iter().position(|octet| *octet == b'\n')?;
                let digits = input.get(1..end.checked_sub(1)?)?;
                if input[0] != b'$' || digits == b"-1" {
                    return Some((end + 1, false));
                }
                let length = digits.iter().fold(0, |sum, digit| 10 * sum + usize::from(digit - b'0'));
                let whole = end + 1 + length + 2;
                (input.len() >= whole).then_some((whole, true))
            }
            Form::Rapid => {
                let end = 4 + input.get(4..)?.iter().position(|octet| *octet == 0)?;
                (input.len() > end + 1).then_some((end + 2, end > 4))
            }
        }
    }
}

struct Connection {
    stream: TcpStream,
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
    let batches: Vec<Vec<u8>> = (0..BATCHES)
        .map(|_| {
            let mut batch = Vec::new();
            (0..PIPELINE).for_each(|_| form.ask(addresses[rng.usize(..addresses.len())], &mut batch));
            batch
        })
        .collect();
    let mut batches = batches.iter().cycle();
    let mut next = || batches.next().expect("it begins again");
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = connect(at)?;
        stream.write_all(next()).context("a request")?;
        connections.push(Connection { stream, input: Vec::with_capacity(1 << 16) });
    }
    let (mut seen, begun) = (Seen::default(), Instant::now());
    while begun.elapsed() < length {
        for connection in &mut connections {
            connection.answers(form, PIPELINE, &mut seen)?;
            connection.stream.write_all(next()).context("a request")?;
        }
    }
    seen.seconds = begun.elapsed().as_secs_f64();
    Ok(seen)
}

impl Connection {
    /// Reads so many answers.
    fn answers(&mut self, form: Form, count: usize, seen: &mut Seen) -> Result<()> {
        let (mut left, mut at) = (count, 0);
        while left > 0 {
            match form.answer(&self.input[at..]) {
                Some((length, is_name)) => {
                    at += length;
                    left -= 1;
                    seen.answers += 1;
                    seen.names += u64::from(is_name);
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
        for (form, input, expected) in [
            (Form::Resp, &b"$11\r\nwww.example\r\n$"[..], Some((18, true))),
            (Form::Resp, b"$11\r\nwww.exam", None),
            (Form::Resp, b"$-1\r\n$", Some((5, false))),
            (Form::Resp, b"$1", None),
            (Form::Rapid, b"\xff\x00\x02\x01a.b\x00\xff\x01", Some((9, true))),
            (Form::Rapid, b"\xff\x00\x02\x01\x00\xff", Some((6, false))),
            (Form::Rapid, b"\xff\x00\x02\x01a.b\x00", None),
            (Form::Rapid, b"\xff\x00", None),
        ] {
            assert_eq!(form.answer(input), expected, "{input:?}");
        }
    }
}
