//! Floods at the speed and length that tests do not have, and what good clients and the memory have of them.
//!
//! Server, attacker and clients stand in a network namespace that the measurement makes itself: the
//! server on one core, all others on the second. Every flood meets a server of its own, with rates limited and all
//! other limits as they are by default.

use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use experiments::serving::{SENDER_CORE, SERVER_CORE, pinned};
use tests::flood::clients::{Clients, Got};
use tests::flood::{self, crowd, datagrams};
use tests::folder::Folder;
use tests::http::Client;
use tests::namespace;
use tests::program::memory_peak;
use tests::serving::Serving;

use crate::options::Options;
use crate::report::{Limit, Report, Table, quantile};
use crate::serve::servers::program;

/// Forged packets a second: more than half of what one core of a small machine answers, so that the server can take
/// them. What is beyond its speed, the kernel drops, whosever it is.
const RATE: u64 = 60_000;

/// The pieces of a second in which packets are sent.
const SLICES: u64 = 1_000;

/// The least share of it that must come to the server: a flood that does not come harms nobody.
const ARRIVED_MIN: f64 = 0.9;

/// The attacker's addresses and connections at each: two and a half times as many as there are places.
const ADDRESSES: u16 = 40;
const PER_ADDRESS: usize = 50;

/// The time between two rounds of connections that send an octet at each.
const OCTET: Duration = Duration::from_secs(1);

/// Good clients; the time between two questions of theirs; and how long they wait for an answer.
const CLIENTS: u8 = 40;
const GAP: Duration = Duration::from_millis(10);
const WAIT: Duration = Duration::from_secs(2);

#[derive(Clone, Copy)]
enum Attack {
    Datagrams(datagrams::Kind),
    Crowd(crowd::Kind),
}

const FLOODS: &[(&str, Attack)] = &[
    ("random-names", Attack::Datagrams(datagrams::Kind::RandomNames)),
    ("spoofed", Attack::Datagrams(datagrams::Kind::Spoofed)),
    ("any", Attack::Datagrams(datagrams::Kind::Any)),
    ("malformed", Attack::Datagrams(datagrams::Kind::Malformed)),
    ("silent", Attack::Crowd(crowd::Kind::Silent)),
    ("half-closed", Attack::Crowd(crowd::Kind::HalfClosed)),
    ("octet-a-second", Attack::Crowd(crowd::Kind::OctetByOctet)),
    ("untaken", Attack::Crowd(crowd::Kind::Untaken)),
];

impl Attack {
    /// Connections at a time whose answers nobody takes.
    fn untaken(self) -> u64 {
        match self {
            Attack::Crowd(crowd::Kind::Untaken) => net::tcp::Limits::default().connections_max as u64,
            Attack::Crowd(_) | Attack::Datagrams(_) => 0,
        }
    }
}

/// What one flood did.
struct Seen {
    sent: u64,
    took: Duration,
    clients: Clients,
    /// By how many octets the server's memory grew.
    growth: u64,
    /// Answers beyond the rate, messages that the kernel dropped, connections that gave way.
    counted: [u64; 3],
    /// Messages that came to the server's UDP sockets, whatever became of them.
    arrived: u64,
}

/// Measures all floods that are wanted.
///
/// # Errors
/// Where there is no namespace, or a server does not start; a name in `--only` that is none.
pub(crate) fn run(options: &Options, report: &mut Report) -> Result<()> {
    if let Some(unknown) = options.only.iter().find(|only| !FLOODS.iter().any(|(name, _)| name == only)) {
        bail!(
            "{unknown} is no flood; there are {}",
            FLOODS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
        );
    }
    namespace::enter().map_err(|why| anyhow!(why))?;
    namespace::own_every_address();
    let seconds = Duration::from_secs(if options.quick { 3 } else { 20 });
    let mut rows = Vec::new();
    for (name, attack) in FLOODS.iter().filter(|(name, _)| options.wants(name)) {
        let seen = measure(*attack, seconds, options.seed).with_context(|| format!("the flood {name}"))?;
        let (what, least, value) = match attack {
            Attack::Datagrams(_) => {
                let arrived = seen.arrived as f64 / seen.took.as_secs_f64();
                ("packets/s that came to the server", RATE as f64 * ARRIVED_MIN, arrived)
            }
            Attack::Crowd(_) => {
                let members = usize::from(ADDRESSES) * PER_ADDRESS;
                ("connections that were made", members as f64, seen.sent as f64)
            }
        };
        report.must(format!("{name}: {what}"), Limit::AtLeast(least), Some(value));
        let shares = [&seen.clients.udp, &seen.clients.cookie, &seen.clients.tcp].map(Got::share);
        for (how, share) in ["UDP", "UDP with a cookie", "TCP"].iter().zip(shares) {
            let what = format!("{name}: share of good clients' answers over {how}");
            report.must(what, Limit::AtLeast(flood::KEPT_MIN), Some(share));
        }
        let most = flood::GROWTH_MAX + attack.untaken() * flood::GROWTH_UNTAKEN_MAX;
        report.must(
            format!("{name}: growth of memory, MB"),
            Limit::AtMost(most as f64 / 1e6),
            Some(seen.growth as f64 / 1e6),
        );
        println!("{name:<16} {} in {:.0} s: {shares:.4?} of answers", seen.sent, seen.took.as_secs_f64());
        rows.push(row(name, &seen, shares));
    }
    report.add(Table {
        title: "Floods, the server on one core",
        head: &[
            "flood",
            "packets or connections/s",
            "UDP kept",
            "with cookie",
            "TCP kept",
            "UDP p50, ms",
            "UDP p99, ms",
            "over the rate",
            "dropped by the kernel",
            "gave way",
            "memory grew, MB",
        ],
        rows,
    });
    report.note(format!(
        "{} s a flood; packets from forged sources at {RATE}/s, {} connections at {ADDRESSES} addresses. Good: {CLIENTS} \
         clients and one with a cookie in the victim's network ask {} questions a second, each once, one in four over \
         TCP, and wait {} s. Rates are limited to 100/s; everything else is as by default.",
        seconds.as_secs(),
        usize::from(ADDRESSES) * PER_ADDRESS,
        1_000 / GAP.as_millis(),
        WAIT.as_secs(),
    ));
    Ok(())
}

fn row(name: &str, seen: &Seen, shares: [f64; 3]) -> Vec<String> {
    let times: Vec<f64> = seen.clients.udp.times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    let at = |share| format!("{:.2}", quantile(&times, share).unwrap_or(f64::NAN));
    let mut cells = vec![name.to_owned(), format!("{:.0}", seen.sent as f64 / seen.took.as_secs_f64())];
    cells.extend(shares.map(|share| format!("{:.2} %", share * 100.0)));
    cells.extend([at(0.5), at(0.99)]);
    cells.extend(seen.counted.map(|count| count.to_string()));
    cells.push(format!("{:.1}", seen.growth as f64 / 1e6));
    cells
}

fn measure(attack: Attack, length: Duration, seed: u64) -> Result<Seen> {
    let folder = Folder::new();
    let server = start(&folder);
    let IpAddr::V4(address) = server.dns().ip() else { bail!("it was told an IPv4 address") };
    let dns = SocketAddrV4::new(address, server.dns().port());
    let process = server.program.pid().as_raw().cast_unsigned();
    let before = memory_peak(process)?;
    let (done, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let begun = Instant::now();
    let clients = thread::scope(|scope| {
        let attacking = scope.spawn(|| {
            net::thread::pin(SENDER_CORE).context("pinning a thread")?;
            match attack {
                Attack::Datagrams(kind) => datagrams(kind, dns, seed, &done, &sent),
                Attack::Crowd(kind) => {
                    crowd(kind, dns, &done, &sent);
                    Ok(())
                }
            }
        });
        let asked = ask(dns, length);
        done.store(true, Ordering::Relaxed);
        attacking.join().unwrap_or_else(|_| bail!("the attacker panicked"))?;
        asked
    })?;
    let took = begun.elapsed();
    let growth = memory_peak(process)?.saturating_sub(before);
    let text = Client::new(server.api).call("GET", "/metrics", "").text();
    let sum = |prefix: &str| {
        let values = text.lines().filter(|line| line.starts_with(prefix));
        values.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum::<u64>()
    };
    let counted = [
        sum("pointsman_dropped_total{transport=\"udp\",cause=\"rate_limited\"}"),
        sum("pointsman_worker_overflowed_total{"),
        sum("pointsman_tcp_ended_total{cause=\"gave_way\"}"),
    ];
    let arrived = sum("pointsman_worker_queries_total{") + counted[1];
    server.stop();
    Ok(Seen { sent: sent.into_inner(), took, clients, growth, counted, arrived })
}

fn start(folder: &Folder) -> Serving {
    let zone = folder.write(&format!("{}.zone", flood::ORIGIN), flood::zone());
    let config = folder.write("pointsman.toml", flood::CONFIG);
    let listen = SocketAddr::from((flood::SERVER, 0)).to_string();
    Serving::under(
        pinned(SERVER_CORE, program()),
        folder,
        &["--zone", &zone, "--config", &config, "--listen", &listen],
    )
}

/// Sends packets at [`RATE`]; what could not be sent in time is left out.
fn datagrams(
    kind: datagrams::Kind,
    dns: SocketAddrV4,
    seed: u64,
    done: &AtomicBool,
    sent: &AtomicU64,
) -> Result<()> {
    let mut flood = datagrams::Flood::new(kind, dns, seed).context("a raw socket")?;
    let slice = Duration::from_secs(1) / SLICES as u32;
    let mut due = Instant::now();
    while !done.load(Ordering::Relaxed) {
        for _ in 0..RATE / SLICES {
            flood.send().context("sending")?;
        }
        sent.fetch_add(RATE / SLICES, Ordering::Relaxed);
        due = (due + slice).max(Instant::now() - slice);
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

fn crowd(kind: crowd::Kind, dns: SocketAddrV4, done: &AtomicBool, sent: &AtomicU64) {
    let mut crowd = crowd::Crowd::new(kind, dns, ADDRESSES, PER_ADDRESS);
    while !done.load(Ordering::Relaxed) {
        let next = Instant::now() + OCTET;
        crowd.round();
        sent.store(crowd.made, Ordering::Relaxed);
        if kind == crowd::Kind::OctetByOctet {
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
}

/// Has good clients ask in turn: two over UDP, one with a cookie, one over TCP.
fn ask(dns: SocketAddrV4, length: Duration) -> Result<Clients> {
    net::thread::pin(SENDER_CORE).context("pinning a thread")?;
    let mut clients = Clients::new(dns, CLIENTS, WAIT).context("good clients")?;
    let until = Instant::now() + length;
    let mut due = Instant::now();
    for turn in 0.. {
        if due >= until {
            break;
        }
        match turn % 4 {
            0 | 2 => clients.ask_over_udp()?,
            1 => clients.ask_with_cookie()?,
            _ => clients.ask_over_tcp(),
        }
        due += GAP;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        due = due.max(Instant::now() - GAP);
    }
    Ok(clients)
}
