//! The contract: whatever becomes of the upstreams, answers come at once.
//!
//! Look-ups come at a fixed rate, a fifth of them for addresses that nobody knows, so that the stack is full and leaks all
//! the time. The time of an answer is counted from when its look-up was due, so that a source that is held up is no
//! excuse.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fastrand::Rng;
use reverse::question::{Ask, question};

use super::load::{self, Form};
use super::picture;
use super::servers::{self, DNS, Names, RESP};
use super::wire::wanted;
use crate::options::Options;
use crate::report::{Limit, Report, Table};
use crate::serve::place::{Place, Side, beside_server};
use crate::serve::process::Group;

/// Look-ups a second.
const RATE: u64 = 100_000;

/// Look-ups that are due together.
const TOGETHER: u64 = 10;

/// From one such group to the next.
const TICK: Duration = Duration::from_nanos(TOGETHER * 1_000_000_000 / RATE);

/// One look-up in so many is for an address that nobody knows.
const UNKNOWN_EVERY: usize = 5;

/// Names in the cache.
const NAMES: usize = 100_000;

/// Connections, for the Redis protocol.
const CONNECTIONS: usize = 8;

/// How long answers may come after the last look-up.
const LATE: Duration = Duration::from_secs(2);

/// How long a slow upstream takes.
const SLOW: Duration = Duration::from_secs(5);

/// Where the upstream is, in the server's namespace.
const UPSTREAM: &str = "127.0.0.1:5300";

/// The shares of answers whose times are told.
pub(crate) const SHARES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// What becomes of the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Upstream {
    Well,
    Dead,
    BlackHole,
    Slow,
    Garbage,
}

const UPSTREAMS: [(Upstream, &str); 5] = [
    (Upstream::Well, "answers"),
    (Upstream::Dead, "dead"),
    (Upstream::BlackHole, "black-holed"),
    (Upstream::Slow, "slow, 5 s"),
    (Upstream::Garbage, "garbage"),
];

/// What one run saw.
struct Seen {
    sent: u64,
    /// Microseconds from when a look-up was due to its answer, in rising order.
    times: Vec<f64>,
}

impl Seen {
    fn at(&self, share: f64) -> Option<f64> {
        self.times.get(((self.times.len() as f64 * share).ceil() as usize).max(1) - 1).copied()
    }
}

/// Measures the contract.
///
/// # Errors
/// Where the service does not start, or ends a connection.
pub(crate) fn run(options: &Options, place: &Place, report: &mut Report) -> Result<()> {
    let names = wanted(NAMES)?;
    let length = Duration::from_secs(if options.quick { 2 } else { 10 });
    let mut curves = Vec::new();
    for (upstream, word) in UPSTREAMS {
        let room = place.room("chaos")?;
        let file = room.join("names.cache");
        servers::keep(&names, &file)?;
        let done = AtomicBool::new(false);
        let seen: Result<Vec<(&str, Seen)>> = thread::scope(|scope| {
            let serving = scope.spawn(|| beside_server(|| serve(upstream, &done, options.seed)));
            let measured = (|| {
                let mut command = servers::pointsman(&file, UPSTREAM, &["--interval", "1ms"]);
                let group = Group::start(&mut command, &room.join("log"))?;
                let _group = servers::ready(group, &room, servers::ping)?;
                let mut rng = Rng::with_seed(options.seed);
                // Until the stack is full and questions are under way.
                Side::Source.within(|| datagrams(&names, Duration::from_secs(1), &mut rng))?;
                let dns = Side::Source.within(|| datagrams(&names, length, &mut rng))?;
                let resp = Side::Source.within(|| connections(&names, length, &mut rng))?;
                Ok(vec![("DNS", dns), ("RESP", resp)])
            })();
            done.store(true, Ordering::Relaxed);
            serving.join().unwrap_or_else(|_| bail!("the upstream panicked"))?;
            measured
        });
        for (face, seen) in seen.with_context(|| format!("with an upstream that is {word}"))? {
            println!("{word:<12} {face:<5} p99.9 {:.0} us", seen.at(0.999).unwrap_or(f64::NAN));
            curves.push((word, face, seen));
        }
    }
    let rows = curves.iter().map(|(word, face, seen)| {
        let mut row = vec![(*word).to_owned(), (*face).to_owned(), seen.sent.to_string()];
        row.push(format!("{:.4}", seen.times.len() as f64 * 100.0 / seen.sent as f64));
        row.extend(SHARES.map(|share| seen.at(share).map_or("-".into(), |time| format!("{time:.0}"))));
        row.push(seen.times.last().map_or("-".into(), |time| format!("{time:.0}")));
        row
    });
    report.add(Table {
        title: "Answers while the upstream is in trouble, 100,000 look-ups/s, one core, us from when they were due",
        head: &["upstream", "face", "look-ups", "answered, %", "p50", "p90", "p99", "p99.9", "p99.99", "most"],
        rows: rows.collect(),
    });
    for (word, face, seen) in &curves {
        let what = format!("{face}, upstream {word}: p99.9, ms");
        report.must(what, Limit::AtMost(1.0), seen.at(0.999).map(|time| time / 1e3));
    }
    let answered = curves.iter().map(|(_, _, seen)| seen.times.len() as f64 / seen.sent as f64);
    report.must(
        "share of look-ups that are answered, the least",
        Limit::AtLeast(0.9999),
        answered.reduce(f64::min),
    );
    let drawn: Vec<picture::Curve> = curves
        .iter()
        .map(|(word, face, seen)| picture::Curve {
            name: format!("{face}, {word}"),
            is_dashed: *face == "RESP",
            points: SHARES.iter().filter_map(|share| Some((*share, seen.at(*share)?))).collect(),
        })
        .collect();
    report
        .picture("chaos.svg", picture::latencies("Answers while the upstream is in trouble", &drawn, 1000.0));
    Ok(())
}

/// Is the upstream until it is told to end.
fn serve(upstream: Upstream, done: &AtomicBool, seed: u64) -> Result<()> {
    let socket = match upstream {
        Upstream::Dead => None,
        _ => Some(UdpSocket::bind(UPSTREAM).context("the upstream's socket")?),
    };
    let mut rng = Rng::with_seed(seed);
    let (mut waiting, mut octets) = (VecDeque::new(), [0; 512]);
    while !done.load(Ordering::Relaxed) {
        let (Some(socket), false) = (&socket, upstream == Upstream::BlackHole) else {
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        socket.set_read_timeout(Some(Duration::from_millis(10))).context("the upstream's socket")?;
        if let Ok((length, client)) = socket.recv_from(&mut octets) {
            match upstream {
                Upstream::Garbage => {
                    let garbage: Vec<u8> = (0..rng.usize(1..100)).map(|_| rng.u8(..)).collect();
                    // The id of the question now and then, so that some of it is read further.
                    let answer = if rng.bool() { garbage } else { [&octets[..2], &garbage].concat() };
                    let _ = socket.send_to(&answer, client);
                }
                Upstream::Slow => {
                    waiting.push_back((Instant::now() + SLOW, no_name(&octets[..length]), client))
                }
                _ => _ = socket.send_to(&no_name(&octets[..length]), client),
            }
        }
        while let Some((due, answer, client)) = waiting.front()
            && *due <= Instant::now()
        {
            let _ = socket.send_to(answer, *client);
            waiting.pop_front();
        }
    }
    Ok(())
}

/// NXDOMAIN to a question, without its OPT record.
fn no_name(asked: &[u8]) -> Vec<u8> {
    let name = asked[12..].iter().position(|octet| *octet == 0).unwrap_or(0);
    let mut answer = asked[..(12 + name + 5).min(asked.len())].to_vec();
    (answer[2], answer[3], answer[10], answer[11]) = (0x81, 0x83, 0, 0);
    answer
}

fn next(names: &Names, count: usize, rng: &mut Rng) -> Ipv4Addr {
    if count.is_multiple_of(UNKNOWN_EVERY) {
        Ipv4Addr::from_bits(rng.u32(..))
    } else {
        names[rng.usize(..names.len())].0
    }
}

/// Look-ups over DNS.
fn datagrams(names: &Names, length: Duration, rng: &mut Rng) -> Result<Seen> {
    let socket = UdpSocket::bind("0.0.0.0:0").context("a socket")?;
    socket.connect(DNS).context("a socket")?;
    socket.set_nonblocking(true).context("a socket")?;
    let mut seen = Seen { sent: 0, times: Vec::new() };
    let mut sent: Vec<Option<Duration>> = vec![None; 1 << 16];
    let (begun, mut due, mut answer) = (Instant::now(), Duration::ZERO, [0; 1232]);
    loop {
        if due < length && begun.elapsed() >= due {
            for _ in 0..TOGETHER {
                let id = seen.sent as u16;
                sent[usize::from(id)] = Some(due);
                // What cannot be sent was not answered.
                let _ = socket.send(&question(next(names, seen.sent as usize, rng).into(), &Ask::Name, id));
                seen.sent += 1;
            }
            due += TICK;
        }
        while let Ok(length) = socket.recv(&mut answer) {
            let id = u16::from_be_bytes([answer[0], answer[1]]);
            if length >= 12
                && let Some(due) = sent[usize::from(id)].take()
            {
                seen.times.push((begun.elapsed().saturating_sub(due)).as_secs_f64() * 1e6);
            }
        }
        let is_over =
            due >= length && (seen.times.len() as u64 == seen.sent || begun.elapsed() > length + LATE);
        if is_over {
            seen.times.sort_by(f64::total_cmp);
            return Ok(seen);
        }
    }
}

/// Look-ups over the Redis protocol.
fn connections(names: &Names, length: Duration, rng: &mut Rng) -> Result<Seen> {
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS {
        let stream = load::connect(RESP)?;
        stream.set_nonblocking(true).context("a socket")?;
        open.push((stream, VecDeque::<Duration>::new(), Vec::<u8>::new()));
    }
    let mut seen = Seen { sent: 0, times: Vec::new() };
    let (begun, mut due, mut requests, mut piece) =
        (Instant::now(), Duration::ZERO, Vec::new(), vec![0; 1 << 14]);
    let mut turn = 0;
    loop {
        if due < length && begun.elapsed() >= due {
            let (stream, pending, _) = &mut open[turn];
            turn = (turn + 1) % CONNECTIONS;
            requests.clear();
            for _ in 0..TOGETHER {
                Form::Resp.ask(next(names, seen.sent as usize, rng), &mut requests);
                pending.push_back(due);
                seen.sent += 1;
            }
            // So little fits the socket's room, unless the service stopped reading.
            stream.write_all(&requests).context("the service does not read")?;
            due += TICK;
        }
        for (stream, pending, input) in &mut open {
            match stream.read(&mut piece) {
                Ok(0) => bail!("the service ended a connection"),
                Ok(length) => input.extend_from_slice(&piece[..length]),
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => continue,
                Err(cause) => return Err(cause).context("an answer"),
            }
            let (mut at, now) = (0, begun.elapsed());
            while let Some(answer) = Form::Resp.answer(&input[at..]) {
                at += answer.length;
                let due = pending.pop_front().context("an answer that nobody asked for")?;
                seen.times.push(now.saturating_sub(due).as_secs_f64() * 1e6);
            }
            input.drain(..at);
        }
        let is_over =
            due >= length && (seen.times.len() as u64 == seen.sent || begun.elapsed() > length + LATE);
        if is_over {
            seen.times.sort_by(f64::total_cmp);
            return Ok(seen);
        }
    }
}
