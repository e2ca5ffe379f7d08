//! Figure 5.1: how long one client waits for an answer, by transport, policy and number of addresses.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use ::tests::serving::Serving;
use anyhow::{Context, Result};
use fastrand::Rng;
use replay::plot::{Axis, Line, Plot, Stroke};
use serde_json::json;

use crate::options::{Run, Size};
use crate::quantiles::quantile;
use crate::question;
use crate::report::{Limit, Report, number};
use crate::serving::{self, SENDER_CORE};

/// Queries of one arm, one after the other, as the thesis has them.
const QUERIES: usize = 2_000;

/// Addresses in an answer. The thesis has four settings and does not tell which.
const COUNTS: [usize; 4] = [1, 2, 4, 8];

/// Servers of each policy, in the ASes of 2002 in which they are said to be.
pub(super) const ASES: [u32; 8] = [3333, 701, 7018, 1221, 2914, 3356, 1103, 286];

/// How much longer a query over TCP took than one over UDP.
const PUBLISHED_TCP: f64 = 1.8;

/// How much two policies, or the fewest and the most addresses, may differ and be "negligible" beside TCP's 80 %.
const NEGLIGIBLE: f64 = 1.25;

/// How long an answer may take.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// A policy, by the first letter of its names.
struct Order {
    name: &'static str,
    letter: char,
    word: &'static str,
}

const ORDERS: [Order; 3] = [
    Order { name: "static", letter: 's', word: "fixed" },
    Order { name: "round-robin", letter: 'r', word: "rotate" },
    Order { name: "AS-path", letter: 'a', word: "nearest" },
];

impl Order {
    /// Whether each server came first as often as it should in so many answers, by how often it did in right ones.
    fn is_kept(&self, firsts: &[usize; ASES.len()], answers: usize) -> bool {
        match self.word {
            "fixed" => firsts[0] == answers,
            "rotate" => firsts.iter().all(|first| *first == answers / ASES.len()),
            _ => {
                firsts.iter().sum::<usize>() == answers
                    && firsts.iter().filter(|first| **first > 0).count() > 1
            }
        }
    }
}

/// How a query gets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Udp,
    Tcp,
    TcpKept,
}

const TRANSPORTS: [(Over, &str); 3] =
    [(Over::Udp, "UDP"), (Over::Tcp, "TCP, a connection each"), (Over::TcpKept, "TCP, kept")];

/// What one arm took, in microseconds.
#[derive(Clone, Debug)]
struct Times {
    mean: f64,
    p50: f64,
    p99: f64,
}

/// Does this part; the AS-path policy knows where clients are by `table`, or where there is none, by lines.
///
/// # Errors
/// Where the server does not start, or does not answer.
pub(super) fn perform(run: &Run, report: &mut Report, folder: &Path, table: Option<&Path>) -> Result<()> {
    report.heading("Round trips (figure 5.1)");
    let from = match table {
        Some(_) => "the BGP table of July 2002, replicas being in eight of its ASes",
        None => "lines that rank the replicas",
    };
    report.say(&format!(
        "Client and server on one machine, over loopback, the server with one worker; 2,000 queries for one name, one after \
         the other, each timed around the call: two system calls over UDP, four and a connection over TCP. Static, \
         round-robin and AS-path policies over eight replicas, 1, 2, 4 and 8 addresses in an answer. For AS-path each query \
         names a random client by client subnet; how near that is to whom is told by {from}. Every answer is read: the number of its addresses, and which comes \
         first. Published: a drawing, \"almost 80 % more time\" with TCP, and \"negligible\" and \"insignificant\" for \
         round-robin and for more addresses."
    ));
    let serving = serve(folder, table)?;
    // A core that it does not have is none to be on.
    let _ = net::thread::pin(SENDER_CORE);
    let queries = run.size.of(QUERIES, QUERIES, 200);
    let passes = run.size.of(9, 3, 1);
    let mut rng = Rng::with_seed(run.seed);
    let mut arms: Vec<(usize, usize, usize, Vec<Times>)> = Vec::new();
    let mut wrong = Vec::new();
    for pass in 0..passes {
        let mut at = 0;
        for transport in 0..TRANSPORTS.len() {
            for order in 0..ORDERS.len() {
                for count in 0..COUNTS.len() {
                    let (times, what) = arm(&serving, transport, order, count, queries, &mut rng)?;
                    wrong.extend(what);
                    if pass == 0 {
                        arms.push((transport, order, count, Vec::new()));
                    }
                    arms[at].3.push(times);
                    at += 1;
                }
            }
        }
    }
    let arms: Vec<_> = arms.into_iter().map(|(t, o, c, times)| (t, o, c, middle(times))).collect();
    told(run, &arms, passes, report);
    judged(&wrong, arms.len() * passes, queries, report);
    Ok(())
}

/// Says which turns of arms had answers that were not right, by arm and by how often each server came first in those that were.
fn judged(wrong: &[String], turns: usize, queries: usize, report: &mut Report) {
    report.say(&format!("{} queries were asked in all, in {turns} turns.", number((turns * queries) as f64)));
    if !wrong.is_empty() {
        report.say(&format!(
            "Not all answers were right, by the server that came first, of: {}.",
            wrong.join("; ")
        ));
    }
    report.must("turns of arms in which an answer was wrong", Limit::Exactly(0.0), wrong.len() as f64);
}

/// The server, with a policy for each order and count: eight replicas, named such as `r4.example.com`.
fn serve(folder: &Path, table: Option<&Path>) -> Result<Serving> {
    let write = |name: &str, text: String| fs::write(folder.join(name), text).context(name.to_owned());
    let addresses: Vec<Ipv4Addr> =
        (1..=ASES.len() as u8).map(|last| Ipv4Addr::new(192, 0, 2, last)).collect();
    write("example.com.zone", serving::ZONE.to_owned())?;
    let mut policies = Vec::new();
    for order in &ORDERS {
        for count in COUNTS {
            let servers: Vec<_> = addresses.iter().map(|address| json!({"address": address})).collect();
            let name = format!("{}{count}", order.letter);
            let text = json!({
                "names": [format!("{name}.example.com")],
                "order": order.word,
                "answers": count,
                "servers": servers,
            });
            write(&format!("{name}.json"), text.to_string())?;
            policies.push(format!("\"{name}.json\""));
        }
    }
    let partition = match table {
        Some(table) => {
            let servers: Vec<String> = addresses
                .iter()
                .zip(ASES)
                .map(|(address, number)| format!("\"{address}=AS{number}\""))
                .collect();
            format!("mrt = \"{}\"\nservers = [{}]", table.display(), servers.join(", "))
        }
        None => {
            let mut lines = String::from("0.0.0.0/1,near\n128.0.0.0/1,far\n");
            for (at, address) in addresses.iter().enumerate() {
                let _ =
                    writeln!(lines, "@near,{address},{}\n@far,{address},{}", at + 1, addresses.len() - at);
            }
            write("partition.csv", lines)?;
            "csv = \"partition.csv\"".to_owned()
        }
    };
    let policies = policies.join(", ");
    serving::start(
        folder,
        &format!("zone = [\"example.com.zone\"]\npolicy = [{policies}]\n\n[[partition]]\n{partition}\n"),
    )
}

/// Asks for one name, time after time; how long that took, and where answers were not right, of which arm and how often each
/// server came first in those that were.
fn arm(
    serving: &Serving,
    transport: usize,
    order: usize,
    count: usize,
    queries: usize,
    rng: &mut Rng,
) -> Result<(Times, Option<String>)> {
    let (over, transport) = TRANSPORTS[transport];
    let order = &ORDERS[order];
    let name = format!("{}{}", order.letter, COUNTS[count]);
    let mut socket = Socket::new(over, serving.dns())?;
    let mut times = Vec::with_capacity(queries);
    let mut firsts = [0_usize; ASES.len()];
    for number in 0..queries {
        // Somewhere in the first half of the addresses, most of which belonged to somebody.
        let subnet = (order.word == "nearest").then(|| [rng.u8(4..220), rng.u8(..), rng.u8(..)]);
        let query = query(number as u16, &name, subnet);
        let begin = Instant::now();
        let answer = socket.ask(&query)?;
        times.push(begin.elapsed().as_secs_f64() * 1e6);
        if let Some(first) = first(&query, answer, COUNTS[count]) {
            firsts[first] += 1;
        }
    }
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    times.sort_by(f64::total_cmp);
    let percentile = |share| quantile(&times, share).unwrap_or(f64::NAN);
    let is_kept = order.is_kept(&firsts, queries);
    let wrong =
        (!is_kept).then(|| format!("{transport}, {}, {} addresses: {firsts:?}", order.name, COUNTS[count]));
    Ok((Times { mean, p50: percentile(0.5), p99: percentile(0.99) }, wrong))
}

/// A way to the server.
struct Socket {
    over: Over,
    server: SocketAddr,
    udp: UdpSocket,
    tcp: Option<TcpStream>,
    answer: Vec<u8>,
}

impl Socket {
    fn new(over: Over, server: SocketAddr) -> Result<Socket> {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("a socket")?;
        udp.connect(server).context("a socket")?;
        udp.set_read_timeout(Some(WAIT_MAX)).context("a socket")?;
        Ok(Socket { over, server, udp, tcp: None, answer: vec![0; 4096] })
    }

    /// Sends a query with its length in front of it, and returns the answer.
    fn ask(&mut self, query: &[u8]) -> Result<&[u8]> {
        if self.over == Over::Udp {
            self.udp.send(&query[2..]).context("a query")?;
            let length = self.udp.recv(&mut self.answer).context("an answer")?;
            return Ok(&self.answer[..length]);
        }
        let stream = match &mut self.tcp {
            Some(stream) => stream,
            none => {
                let stream = TcpStream::connect(self.server).context("a connection")?;
                stream.set_nodelay(true).context("a connection")?;
                stream.set_read_timeout(Some(WAIT_MAX)).context("a connection")?;
                none.insert(stream)
            }
        };
        stream.write_all(query).context("a query")?;
        let mut length = [0; 2];
        stream.read_exact(&mut length).context("an answer")?;
        let length = usize::from(u16::from_be_bytes(length));
        self.answer.resize(length.max(4096), 0);
        stream.read_exact(&mut self.answer[..length]).context("an answer")?;
        if self.over == Over::Tcp {
            self.tcp = None;
        }
        Ok(&self.answer[..length])
    }
}

/// A query for the IPv4 addresses of a label in example.com, with its length in front of it, for a client in this /24.
fn query(id: u16, label: &str, subnet: Option<[u8; 3]>) -> Vec<u8> {
    let mut query = question::query(id, &format!("{label}.example.com"));
    if let Some(octets) = subnet {
        query[11] = 1;
        // OPT: root, type 41, 1,232 octets, no flags, 11 octets: option 8, 7 octets, IPv4, /24, scope 0 (RFC 7871).
        query.extend([0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 11, 0, 8, 0, 7, 0, 1, 24, 0]);
        query.extend(octets);
    }
    [&(query.len() as u16).to_be_bytes(), &query[..]].concat()
}

/// Which server a right answer has first: one with so many addresses.
fn first(query: &[u8], answer: &[u8], count: usize) -> Option<usize> {
    let (address, _) = question::first(&query[2..], answer)?;
    let at = usize::from(address.octets()[3]).checked_sub(1)?;
    (usize::from(answer[7]) == count && at < ASES.len()).then_some(at)
}

/// The run whose mean is in the middle.
fn middle(mut times: Vec<Times>) -> Times {
    times.sort_by(|a, b| a.mean.total_cmp(&b.mean));
    times.swap_remove(times.len() / 2)
}

fn told(run: &Run, arms: &[(usize, usize, usize, Times)], passes: usize, report: &mut Report) {
    let of = |transport: usize, order: usize, count: usize| {
        arms.iter().find(|arm| (arm.0, arm.1, arm.2) == (transport, order, count)).map(|arm| &arm.3)
    };
    let mean = |transport, order, count| of(transport, order, count).map_or(f64::NAN, |times| times.mean);
    let over_counts = |transport, order| {
        (0..COUNTS.len()).map(|count| mean(transport, order, count)).sum::<f64>() / COUNTS.len() as f64
    };
    let lines = TRANSPORTS.iter().enumerate().flat_map(|(transport, (_, over))| {
        ORDERS.iter().enumerate().map(move |(order, policy)| (transport, *over, order, policy.name))
    });
    let lines = lines.map(|(transport, over, order, policy)| {
        let points = COUNTS.iter().enumerate();
        let points = points.map(|(count, addresses)| (*addresses as f64, mean(transport, order, count)));
        let stroke = if order == 0 { Stroke::Solid } else { Stroke::Dashed };
        Line::new(format!("{over}, {policy}"), points.collect()).drawn(stroke)
    });
    let lines = lines.collect();
    let marks = COUNTS.iter().map(|count| (*count as f64, count.to_string())).collect();
    let across = Axis { marks, ..Axis::titled("addresses in an answer") };
    let plot = Plot { across, up: Axis::titled("mean round trip, us"), lines };
    report.plot("Figure 5.1: mean round trip", plot);

    let rows = arms.iter().map(|(transport, order, count, times)| {
        let micros = [times.mean, times.p50, times.p99].map(|value| format!("{value:.1}"));
        let names = [TRANSPORTS[*transport].1, ORDERS[*order].name].map(str::to_owned);
        names.into_iter().chain([COUNTS[*count].to_string()]).chain(micros).collect()
    });
    let head = ["transport", "policy", "addresses", "mean, us", "p50, us", "p99, us"];
    let rows = rows.collect();
    report.table(&format!("Of {passes} passes the one with the middle mean"), &head, rows);

    let (udp, tcp, kept) = (over_counts(0, 0), over_counts(1, 0), over_counts(2, 0));
    let turns = over_counts(0, 1) / udp;
    let path = over_counts(0, 2) / udp;
    let addresses = mean(0, 0, COUNTS.len() - 1) / mean(0, 0, 0);
    let percent = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
    let rows = [
        ("TCP beside UDP, a connection each", percent(PUBLISHED_TCP), percent(tcp / udp)),
        ("TCP beside UDP, kept", "-".to_owned(), percent(kept / udp)),
        ("round-robin beside static, UDP", "negligible".to_owned(), percent(turns)),
        ("8 addresses beside 1, static, UDP", "insignificant".to_owned(), percent(addresses)),
        ("AS-path beside static, UDP", "-".to_owned(), percent(path)),
    ];
    let rows = rows.map(|(what, published, ours)| vec![what.to_owned(), published, ours]).into();
    report.table("What it adds to the mean", &["", "published", "here"], rows);
    if run.size != Size::Smoke {
        report.must("TCP beside UDP", Limit::AtLeast(1.0), tcp / udp);
        report.must("round-robin beside static", Limit::AtMost(NEGLIGIBLE), turns);
        report.must("8 addresses beside 1", Limit::AtMost(NEGLIGIBLE), addresses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_and_answers_are_read_as_they_are_written() {
        let query = query(0x1234, "s2", Some([192, 0, 2]));
        assert_eq!(usize::from(u16::from_be_bytes([query[0], query[1]])), query.len() - 2);
        let question = &query[14..14 + 20];
        let header = [0x12, 0x34, 0x84, 0, 0, 1, 0, 2, 0, 0, 0, 0];
        let record = |last: u8| [0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 192, 0, 2, last];
        let answer = [&header[..], question, &record(3), &record(1)].concat();
        assert_eq!(first(&query, &answer, 2), Some(2));
        assert_eq!(first(&query, &answer, 1), None, "another number of addresses");
        assert_eq!(first(&query, &answer[..20], 2), None, "truncated");
    }

    #[test]
    fn a_turn_with_a_wrong_answer_does_not_hold() {
        for (order, firsts, is_kept) in [
            (0, [16, 0, 0, 0, 0, 0, 0, 0], true),
            (0, [15, 1, 0, 0, 0, 0, 0, 0], false),
            (0, [15, 0, 0, 0, 0, 0, 0, 0], false),
            (1, [2; 8], true),
            (1, [1, 3, 2, 2, 2, 2, 2, 2], false),
            (1, [2, 2, 2, 2, 2, 2, 2, 1], false),
            (2, [9, 0, 7, 0, 0, 0, 0, 0], true),
            (2, [9, 0, 6, 0, 0, 0, 0, 0], false),
            (2, [0, 0, 16, 0, 0, 0, 0, 0], false),
        ] {
            assert_eq!(ORDERS[order].is_kept(&firsts, 16), is_kept, "{} {firsts:?}", ORDERS[order].name);
        }
        for (wrong, holds) in [(&[][..], true), (&["UDP, static, 1 addresses: [1]".to_owned()][..], false)] {
            let (_, mut report) = Report::of_a_test(Size::Smoke);
            judged(wrong, 36, 200, &mut report);
            assert_eq!(report.holds(), holds);
        }
    }
}
