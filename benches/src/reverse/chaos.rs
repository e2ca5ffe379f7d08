//! The contract: whatever becomes of the upstreams, answers come at once.
//!
//! Look-ups come at a fixed rate, a fifth of them for addresses that nobody knows, so that the stack is full and leaks all
//! the time. The time of an answer is counted from when its look-up was given to the kernel; how late that was is told
//! beside it. One thread is source and upstream, and does not rest: nothing else is on its core that it would have to
//! wait for.
//!
//! A machine may be held up as a whole, by a hypervisor that has others to run. Each core has a witness of that: the
//! source itself, and on the server's core a thread that comes before all others and only looks at the clock. So a row is
//! measured second by second: those count, with all of their look-ups, that the machine left alone. Of those in which it
//! did not, answers that may have waited for a pause are told apart ([`pauses`]).

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use experiments::disturbed;
use experiments::process::FirstSession;
use experiments::quantiles::quantile;
use fastrand::Rng;
use net::client::{Incoming, Outgoing};
use replay::observe::{self, Spent};
use replay::plot::{Axis, Line, Plot, Stroke};
use reverse::question::{Ask, question};

use super::load::{self, Form};
use super::pauses::{self, Pauses, witness};
use super::servers::{self, DNS, Names, RESP};
use super::wire::wanted;
use crate::options::Options;
use crate::report::{Limit, Report, Table};
use crate::serve::place::{Place, SERVER_CORE, Side, beside_server};
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

/// Seconds of a row, and of a short one.
const SECONDS: [usize; 2] = [10, 2];

/// How many are measured for one that counts, at most.
const TRIES: usize = 10;

/// The largest share of a second that may be held up where it counts: what the percentile that is judged leaves out.
const HELD_UP_MAX: f64 = 0.001;

/// Within how many milliseconds 99.9 % are to be answered.
const LIMIT_MS: f64 = 1.0;

/// The shares of answers whose times are told.
const SHARES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

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

/// What was seen in one second, or in those that count together.
#[derive(Default)]
struct Seen {
    sent: u64,
    /// Look-ups that may have waited for a pause of the machine, and how long the longest pause was, in milliseconds.
    held_up: u64,
    longest: f64,
    /// Look-ups without an answer, beside those.
    lost: u64,
    /// Microseconds from when a look-up was sent to its answer, in rising order; without those that were held up.
    times: Vec<f64>,
    /// The same of all look-ups.
    all: Vec<f64>,
    /// Microseconds from when look-ups were due to when they were sent, in rising order.
    late: Vec<f64>,
    /// Of the time of the server's core: busy, and taken by the hypervisor.
    busy: f64,
    stolen: f64,
}

/// What was seen on one face while the upstream was in some state.
struct Row {
    upstream: &'static str,
    face: &'static str,
    /// The seconds that count.
    seen: Seen,
    /// Of all seconds that were measured: how many, their look-ups, and microseconds from look-up to answer, in rising order.
    seconds: usize,
    sent: u64,
    all: Vec<f64>,
}

impl Seen {
    /// What was seen in all of these.
    fn together(seconds: Vec<Seen>) -> Seen {
        let count = seconds.len() as f64;
        let mut all = seconds.into_iter().fold(Seen::default(), |mut all, second| {
            all.sent += second.sent;
            all.held_up += second.held_up;
            all.longest = all.longest.max(second.longest);
            all.lost += second.lost;
            all.times.extend(second.times);
            all.all.extend(second.all);
            all.late.extend(second.late);
            all.busy += second.busy / count;
            all.stolen += second.stolen / count;
            all
        });
        for values in [&mut all.times, &mut all.all, &mut all.late] {
            values.sort_by(f64::total_cmp);
        }
        all
    }

    /// The share of look-ups that were answered, without those that were held up.
    fn answered(&self) -> f64 {
        self.times.len() as f64 / ((self.times.len() as u64 + self.lost) as f64).max(1.0)
    }

    /// The share of look-ups that may have waited for a pause.
    fn held_up(&self) -> f64 {
        self.held_up as f64 / (self.sent as f64).max(1.0)
    }

    fn at(&self, share: f64) -> Option<f64> {
        quantile(&self.times, share)
    }
}

/// Measures the contract.
///
/// # Errors
/// Where the service does not start, or ends a connection.
pub(crate) fn run(options: &Options, place: &Place, report: &mut Report) -> Result<()> {
    let names = wanted(NAMES)?;
    let _first = FirstSession::begin();
    let wanted = SECONDS[usize::from(options.quick)];
    let mut rows = Vec::new();
    for (upstream, word) in UPSTREAMS {
        let room = place.room("chaos")?;
        let file = room.join("names.cache");
        servers::keep(&names, &file)?;
        let mut upstream = beside_server(|| Troubled::begin(upstream, options.seed))?;
        // One that answers says NXDOMAIN of all prefixes: within two seconds no look-up would be a miss any more.
        let more = ["--interval", "1ms", "--no-prefixes"];
        let mut command = servers::pointsman_first(&file, UPSTREAM, &more);
        let group = Group::start(&mut command, &room.join("log"))?;
        let _group = servers::ready(group, &room, servers::ping)?;
        let mut rng = Rng::with_seed(options.seed);
        let mut second = |mut source: Source| -> Result<Seen> {
            let (done, (begun, begins)) = (AtomicBool::new(false), mpsc::channel());
            let (seen, held) = thread::scope(|scope| {
                let held = scope.spawn(|| witness(SERVER_CORE, begun, &done));
                // No look-up waits for its beginning. Where that fails, nobody says so, and its error is told below.
                let _ = begins.recv();
                let seen = Side::Source.within(|| look_up(&mut source, &names, &mut upstream, &mut rng));
                done.store(true, Ordering::Relaxed);
                (seen, held.join().unwrap_or_else(|_| bail!("the witness panicked")))
            });
            Ok(seen.with_context(|| format!("with an upstream that is {word}"))?.judged(held?))
        };
        // Until the stack is full and questions are under way.
        second(Side::Source.within(Source::datagrams)?)?;
        for (face, source) in
            [("DNS", Source::datagrams as fn() -> Result<Source>), ("RESP", Source::connections)]
        {
            let (mut seconds, mut sent, mut all) = (0, 0, Vec::new());
            let seen = disturbed::calmest(wanted, TRIES * wanted, HELD_UP_MAX, || {
                let seen = second(Side::Source.within(source)?)?;
                seconds += 1;
                sent += seen.sent;
                all.extend(&seen.all);
                Ok((seen.held_up(), seen))
            })?;
            all.sort_by(f64::total_cmp);
            let row = Row { upstream: word, face, seen: Seen::together(seen), seconds, sent, all };
            println!("{}", row.line());
            rows.push(row);
        }
    }
    report.add(Table {
        title: "Answers while the upstream is in trouble, 100,000 look-ups/s, one core, us from when they were sent",
        head: &[
            "upstream",
            "face",
            "look-ups",
            "answered, %",
            "p50",
            "p90",
            "p99",
            "p99.9",
            "p99.99",
            "most",
            "held up, %",
            "longest pause, ms",
            "p99.9 of all",
            "sent late, p99.9",
            "core busy, %",
            "stolen, %",
            "seconds measured",
            "answered of those, %",
            "p99.9 of those",
        ],
        rows: rows.iter().map(Row::cells).collect(),
    });
    for Row { upstream, face, seen, .. } in &rows {
        let what = format!("{face}, upstream {upstream}: p99.9 of all, ms");
        // Where the machine stood still for most of the time, nothing was measured.
        let is_measured = seen.held_up() <= 0.5;
        // All count: what a machine's pauses excuse is told, and judges nothing.
        let value = quantile(&seen.all, 0.999).filter(|_| is_measured).map(|time| time / 1e3);
        report.must(what, Limit::AtMost(LIMIT_MS), value);
    }
    let answered = rows.iter().map(|row| row.seen.answered());
    report.must(
        "share of look-ups that are answered, the least",
        Limit::AtLeast(0.9999),
        answered.reduce(f64::min),
    );
    report.note(
        "Over DNS the time of an answer ends when the source's kernel takes it from the interface, over the protocol of Redis \
         when the source reads it.",
    );
    report.note(format!(
        "A row is {wanted} seconds, and each counts whole: seconds are measured until in so many no more than {} % of the \
         look-ups was held up, {} at most, and those count in which the least was. What all of those that were measured come to \
         is in the last columns. The picture is of all look-ups of those that count.",
        HELD_UP_MAX * 1e2,
        TRIES * wanted
    ));
    report.note(pauses::RULE);
    report.picture("chaos.svg", drawn(&rows).svg());
    Ok(())
}

/// Shares of answers against the milliseconds within which they came, both on axes of powers of ten, and the limit.
fn drawn(rows: &[Row]) -> Plot {
    // How many look-ups there are to one that takes longer.
    let across = |share: f64| (1.0 / (1.0 - share)).round();
    let marks = [0.5, 0.9, 0.99, 0.999, 0.9999].map(|share| (across(share), format!("{} %", share * 1e2)));
    let line = |Row { upstream, face, seen, .. }: &Row| {
        let point = |share: &f64| Some((across(*share), quantile(&seen.all, *share)? / 1e3));
        let line = Line::new(format!("{face}, {upstream}"), SHARES.iter().filter_map(point).collect());
        line.drawn(if *face == "RESP" { Stroke::Dashed } else { Stroke::Solid })
    };
    let limit = vec![(across(0.5), LIMIT_MS), (across(0.999), LIMIT_MS)];
    Plot {
        across: Axis {
            title: "share of look-ups that are answered within so long from when they were sent".into(),
            is_log: true,
            marks: marks.into(),
            from: Some(across(0.5)),
            ..Axis::default()
        },
        up: Axis { is_log: true, from: Some(0.01), ..Axis::titled("milliseconds") },
        lines: [Line::new("limit", limit)].into_iter().chain(rows.iter().map(line)).collect(),
    }
}

impl Row {
    /// The row as it is told when it was measured.
    fn line(&self) -> String {
        let Row { upstream, face, seen, seconds, all, .. } = self;
        let told = |times: &[f64]| quantile(times, 0.999).unwrap_or(f64::NAN);
        format!(
            "{upstream:<12} {face:<5} p99.9 {:.0} us, of all {:.0} us, sent {:.0} us late, core {:.0} % busy, {:.2} % held \
             up; of all {seconds} seconds {:.0} us",
            told(&seen.times),
            told(&seen.all),
            told(&seen.late),
            100.0 * seen.busy,
            100.0 * seen.held_up(),
            told(all)
        )
    }

    /// Its cells in the table.
    fn cells(&self) -> Vec<String> {
        let Row { upstream, face, seen, seconds, sent, all } = self;
        let cell = |time: Option<f64>| time.map_or("-".into(), |time| format!("{time:.0}"));
        let mut row = vec![(*upstream).to_owned(), (*face).to_owned(), seen.sent.to_string()];
        row.push(format!("{:.4}", seen.answered() * 100.0));
        row.extend(SHARES.map(|share| cell(seen.at(share))));
        row.push(cell(seen.times.last().copied()));
        row.extend([format!("{:.2}", seen.held_up() * 100.0), format!("{:.1}", seen.longest)]);
        row.extend([cell(quantile(&seen.all, 0.999)), cell(quantile(&seen.late, 0.999))]);
        row.extend([seen.busy, seen.stolen].map(|share| format!("{:.1}", 100.0 * share)));
        row.push(seconds.to_string());
        row.push(format!("{:.4}", 100.0 * all.len() as f64 / (*sent as f64).max(1.0)));
        row.push(cell(quantile(all, 0.999)));
        row
    }
}

/// The upstream, which has its turns.
struct Troubled {
    upstream: Upstream,
    /// None where there is nobody.
    socket: Option<UdpSocket>,
    waiting: VecDeque<(Instant, Vec<u8>, SocketAddr)>,
    rng: Rng,
}

impl Troubled {
    /// Begins to answer, or not to, beside the server.
    fn begin(upstream: Upstream, seed: u64) -> Result<Troubled> {
        let socket = match upstream {
            Upstream::Dead => None,
            _ => Some(UdpSocket::bind(UPSTREAM).context("the upstream's socket")?),
        };
        if let Some(socket) = &socket {
            socket.set_nonblocking(true).context("the upstream's socket")?;
        }
        Ok(Troubled { upstream, socket, waiting: VecDeque::new(), rng: Rng::with_seed(seed) })
    }

    /// Takes one question, if there is any, and answers what is due.
    fn turn(&mut self) {
        let Some(socket) = &self.socket else { return };
        let mut octets = [0; 512];
        if let Ok((length, client)) = socket.recv_from(&mut octets) {
            let rng = &mut self.rng;
            match self.upstream {
                Upstream::Garbage => {
                    let garbage: Vec<u8> = (0..rng.usize(1..100)).map(|_| rng.u8(..)).collect();
                    // The id of the question now and then, so that some of it is read further.
                    let answer = if rng.bool() { garbage } else { [&octets[..2], &garbage].concat() };
                    let _ = socket.send_to(&answer, client);
                }
                Upstream::Slow => {
                    let due = Instant::now() + SLOW;
                    self.waiting.push_back((due, no_name(&octets[..length]), client));
                }
                Upstream::Well => _ = socket.send_to(&no_name(&octets[..length]), client),
                Upstream::Dead | Upstream::BlackHole => {}
            }
        }
        while let Some((due, answer, client)) = self.waiting.front()
            && *due <= Instant::now()
        {
            let _ = socket.send_to(answer, *client);
            self.waiting.pop_front();
        }
    }
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

/// Where look-ups go out and answers come in, on one face; each remembers when its look-ups were sent.
enum Source {
    Datagrams {
        socket: UdpSocket,
        outgoing: Box<Outgoing>,
        incoming: Incoming,
        sent: Vec<Option<Instant>>,
        id: u16,
        /// When those were sent whose id had to be used again before there was an answer.
        lost: Vec<Instant>,
    },
    Connections {
        open: Vec<Connection>,
        turn: usize,
    },
}

struct Connection {
    stream: TcpStream,
    sent: VecDeque<Instant>,
    input: Vec<u8>,
}

impl Source {
    fn datagrams() -> Result<Source> {
        let (outgoing, incoming) = (Box::new(Outgoing::new()), Incoming::merged());
        let socket = net::client::ask_for_many(DNS, None).context("a socket")?;
        net::client::tell_arrivals(&socket).context("times of arrival")?;
        Ok(Source::Datagrams {
            socket,
            outgoing,
            incoming,
            sent: vec![None; 1 << 16],
            id: 0,
            lost: Vec::new(),
        })
    }

    fn connections() -> Result<Source> {
        let mut open = Vec::new();
        for _ in 0..CONNECTIONS {
            let stream = load::connect(RESP)?;
            stream.set_nonblocking(true).context("a socket")?;
            open.push(Connection { stream, sent: VecDeque::new(), input: Vec::new() });
        }
        Ok(Source::Connections { open, turn: 0 })
    }

    /// Sends look-ups for these addresses together.
    fn send(&mut self, addresses: &[Ipv4Addr]) -> Result<()> {
        match self {
            Source::Datagrams { socket, outgoing, sent, id, lost, .. } => {
                for address in addresses {
                    *id = id.wrapping_add(1);
                    outgoing.push(&question((*address).into(), &Ask::Name, *id), None, None);
                }
                let now = Instant::now();
                for back in 0..addresses.len() as u16 {
                    lost.extend(sent[usize::from(id.wrapping_sub(back))].replace(now));
                }
                // What cannot be sent was not answered.
                outgoing.send(socket, |_| {});
                outgoing.clear();
            }
            Source::Connections { open, turn } => {
                let connection = &mut open[*turn];
                *turn = (*turn + 1) % CONNECTIONS;
                let mut requests = Vec::new();
                addresses.iter().for_each(|address| Form::Resp.ask(*address, &mut requests));
                connection.sent.extend(addresses.iter().map(|_| Instant::now()));
                // So little fits the socket's room, unless the service stopped reading.
                connection.stream.write_all(&requests).context("the service does not read")?;
            }
        }
        Ok(())
    }

    /// When the look-ups were sent that have no answer.
    fn unanswered(&self) -> Vec<Instant> {
        match self {
            Source::Datagrams { sent, lost, .. } => sent.iter().flatten().chain(lost).copied().collect(),
            Source::Connections { open, .. } => open.iter().flat_map(|open| &open.sent).copied().collect(),
        }
    }

    /// Takes the answers that are there, and says when each look-up was sent, and when its answer was there.
    fn receive(&mut self, mut took: impl FnMut(Instant, Instant)) -> Result<()> {
        match self {
            Source::Datagrams { socket, incoming, sent, .. } => {
                incoming.receive(socket).context("the source's socket")?;
                // The system's clock first: where this thread is held up in between, no answer seems earlier than it was.
                let system = SystemTime::UNIX_EPOCH.elapsed().context("the system's clock")?;
                let now = Instant::now();
                for answer in incoming.replies() {
                    let age =
                        answer.arrived.and_then(|arrived| system.checked_sub(arrived)).unwrap_or_default();
                    if let [high, low, _, _, _, _, _, _, _, _, _, _, ..] = answer.octets
                        && let Some(sent) = sent[usize::from(u16::from_be_bytes([*high, *low]))].take()
                    {
                        took(sent, sent.max(now - age));
                    }
                }
            }
            Source::Connections { open, .. } => {
                let mut piece = [0; 1 << 14];
                for Connection { stream, sent, input } in open {
                    match stream.read(&mut piece) {
                        Ok(0) => bail!("the service ended a connection"),
                        Ok(length) => input.extend_from_slice(&piece[..length]),
                        Err(cause) if cause.kind() == ErrorKind::WouldBlock => continue,
                        Err(cause) => return Err(cause).context("an answer"),
                    }
                    let (mut at, now) = (0, Instant::now());
                    while let Some(answer) = Form::Resp.answer(&input[at..]) {
                        at += answer.length;
                        let sent = sent.pop_front().context("an answer that nobody asked for")?;
                        took(sent, now);
                    }
                    input.drain(..at);
                }
            }
        }
        Ok(())
    }
}

/// What the source saw, before it is known what the server's core did.
struct Raw {
    sent: u64,
    /// When each look-up was sent, and when its answer was there.
    answers: Vec<(Instant, Instant)>,
    /// When those were sent that have none.
    unanswered: Vec<Instant>,
    pauses: Pauses,
    late: Vec<f64>,
    busy: f64,
    stolen: f64,
}

impl Raw {
    /// Tells those apart that may have waited for a pause of either core.
    fn judged(self, of_server: Pauses) -> Seen {
        let Raw { sent, answers, unanswered, pauses, mut late, busy, stolen } = self;
        let (longest, within) = (pauses.longest().max(of_server.longest()), pauses.and(of_server, busy));
        let micros = |(sent, there): &(Instant, Instant)| there.duration_since(*sent).as_secs_f64() * 1e6;
        let mut all: Vec<f64> = answers.iter().map(micros).collect();
        let not_held = answers.iter().filter(|(sent, there)| !within.touch(*sent, *there));
        let mut times: Vec<f64> = not_held.map(micros).collect();
        let lost = unanswered.iter().filter(|sent| !within.touch(**sent, **sent + TICK)).count() as u64;
        for values in [&mut all, &mut times, &mut late] {
            values.sort_by(f64::total_cmp);
        }
        let held_up = sent - lost - times.len() as u64;
        let longest = longest.as_secs_f64() * 1e3;
        Seen { sent, held_up, longest, lost, times, all, late, busy, stolen }
    }
}

/// Looks names up for a second, and is the upstream meanwhile.
fn look_up(source: &mut Source, names: &Names, upstream: &mut Troubled, rng: &mut Rng) -> Result<Raw> {
    let length = Duration::from_secs(1);
    let now = Instant::now();
    let (mut sent, mut answers, mut late) =
        (0, room(RATE as usize, (now, now)), room((RATE / TOGETHER) as usize, f64::NAN));
    let mut pauses = Pauses::default();
    let before = Core::now(SERVER_CORE)?;
    // Of the time in which look-ups come: while late answers are waited for, the core may have nothing to do.
    let mut core = None;
    let (begun, mut due) = (Instant::now(), Duration::ZERO);
    let mut last = begun;
    loop {
        let now = Instant::now();
        pauses.look(last, now);
        last = now;
        let now = now.duration_since(begun);
        if due < length && now >= due {
            let addresses: Vec<_> =
                (0..TOGETHER).map(|more| next(names, (sent + more) as usize, rng)).collect();
            source.send(&addresses)?;
            sent += TOGETHER;
            late.push((now - due).as_secs_f64() * 1e6);
            due += TICK;
        }
        source.receive(|sent, there| answers.push((sent, there)))?;
        upstream.turn();
        if due >= length && core.is_none() {
            core = Some(Core::now(SERVER_CORE)?);
        }
        if due >= length && (answers.len() as u64 == sent || begun.elapsed() > length + LATE) {
            break;
        }
    }
    let (busy, stolen) = core.context("no look-up was due")?.shares_since(&before);
    Ok(Raw { sent, answers, unanswered: source.unanswered(), pauses, late, busy, stolen })
}

/// Room for so many, all of it in memory already: what has to move for want of room takes up to ten milliseconds, in which
/// nothing is sent.
fn room<T: Clone>(count: usize, any: T) -> Vec<T> {
    let mut room = vec![any; count];
    room.clear();
    room
}

/// What a core did until some moment.
struct Core {
    at: Instant,
    spent: Spent,
}

impl Core {
    fn now(core: usize) -> Result<Core> {
        let (_, cores) = observe::spent().context("/proc/stat")?;
        let at = Instant::now();
        let spent = *cores.get(core).context("no such core in /proc/stat")?;
        Ok(Core { at, spent })
    }

    /// The shares of the time since `before` in which it was busy, and not to be had.
    ///
    /// Idle time is measured, as what was stolen is. What a core was busy with is not ([`Spent::busy`]).
    fn shares_since(&self, before: &Core) -> (f64, f64) {
        let all = self.at.duration_since(before.at).as_secs_f64().max(f64::EPSILON);
        let spent = self.spent.since(before.spent);
        let [idle, stolen] = [spent.idle, spent.stolen].map(|time| time.as_secs_f64() / all);
        ((1.0 - idle - stolen).clamp(0.0, 1.0), stolen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_busy_when_it_is_neither_idle_nor_taken_away() {
        let at = Instant::now();
        let core = |seconds: f64, idle: u64, stolen: u64| Core {
            at: at + Duration::from_secs_f64(seconds),
            spent: Spent {
                idle: Duration::from_millis(idle),
                stolen: Duration::from_millis(stolen),
                ..Spent::default()
            },
        };
        let (busy, stolen) = core(2.0, 5_500, 1_100).shares_since(&core(0.0, 5_000, 1_000));
        assert!((busy - 0.7).abs() < 1e-9 && (stolen - 0.05).abs() < 1e-9, "{busy} {stolen}");
        // Ticks are ten milliseconds, and may be more than the time.
        assert_eq!(core(0.001, 10, 0).shares_since(&core(0.0, 0, 0)), (0.0, 0.0));
        assert!(Core::now(0).is_ok());
    }

    #[test]
    fn what_was_seen_is_drawn_within_the_axes() {
        let row = |face, slow: f64| {
            let all = (0..20_000).map(|n| if n < 19_990 { 100.0 } else { slow }).collect();
            let seen = Seen { all, ..Seen::default() };
            Row { upstream: "silent", face, seen, seconds: 1, sent: 1, all: Vec::new() }
        };
        let plot = drawn(&[row("DNS", 400.0), row("RESP", 20_000.0)]);
        let names: Vec<&str> = plot.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["limit", "DNS, silent", "RESP, silent"]);
        let ends = [1, 2].map(|line| plot.lines[line].points.last().map(|(_, ms)| *ms));
        assert_eq!(ends, [Some(0.4), Some(20.0)]);
        let svg = plot.svg();
        assert!(svg.contains(">50 %</text>") && svg.contains(">99.99 %</text>"), "{svg}");
    }
}
