//! `pointsman replay`: the queries of a trace, sent again on time.

mod line;
mod made;
mod perform;
mod processes;
mod shown;
mod transports;

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::{Fault, Faults};
use clap::{Args, ValueEnum};
use net::hop::{self, Hop};
use replay::mutate::Mutation;
use replay::schedule::sources::Sources;
use replay::schedule::{Clients, FACTORS, Pacing, Plan};
use replay::send::carrier::{Carrier, Carriers};
use replay::send::tls::Tls;
use replay::send::{Live, THREADS_MAX};
use replay::trace::PORT;
use routing::Prefix;

use crate::config::kind;
use crate::failure::Failure;
use crate::near::is_near;
use crate::supervision::Stop;
use processes::PROCESSES_MAX;
use transports::Transports;

/// How often the live line is written.
const LIVE_PERIOD: Duration = Duration::from_millis(200);

/// The shortest and the longest of a time that can be given.
const TIMES: std::ops::RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(86_400);

/// The same of how long an answer is waited for.
const TIMEOUTS: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(86_400);

/// So many clients' addresses are looked at before the start; they are spread over their prefix.
const SOURCES_LOOKED_AT: u64 = 8;

/// The device through which a host sends to itself.
const LOOPBACK: &str = "lo";

/// How the help ends.
pub(crate) const ENDS: &str = "\
Exit codes:
  0  done
  1  failed while running, nobody answered, or the trace breaks off: what stands before was sent
  2  faults in what was given, all listed: nothing was sent
  3  lateness was out of tolerance: the queries were not sent when they were due

Example:
  pointsman replay yesterday.pcap.xz --server 127.0.0.1:5300 --report replayed";

/// The arguments of `replay`.
#[derive(Args, Debug)]
pub(crate) struct Replay {
    /// A capture or a text of queries, as `trace info` reads them
    trace: PathBuf,
    /// Where queries go, port 53 unless told; of several, each client stays with one
    #[arg(long, value_name = "ADDR", required = true, value_delimiter = ',', value_parser = server)]
    server: Vec<SocketAddr>,
    /// Where the servers in the capture listen
    #[arg(long, default_value_t = PORT)]
    port: u16,

    /// So many times as fast as recorded
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = positive, conflicts_with_all = ["rate", "fast"])]
    speed: f64,
    /// So many queries a second instead of the recorded times
    #[arg(long, value_name = "Q", value_parser = positive, conflicts_with = "fast")]
    rate: Option<f64>,
    /// With --rate: draw the gaps (a Poisson process)
    #[arg(long, requires = "rate")]
    poisson: bool,
    /// As fast as answers come back
    #[arg(long)]
    fast: bool,
    /// With --fast: the most unanswered queries of a thread
    #[arg(long, value_name = "N", default_value_t = 1_000, requires = "fast", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    window: u32,
    /// The most queries
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Go through the trace so many times
    #[arg(long = "loop", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    loops: u64,
    /// The seed of every draw: the same seed gives the same schedule
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Multiply the clients, 0.1 to 10000 times: each copy is a new client with the same think times
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    factor: f64,
    /// Shift copies by less than this; the trace's mean gap, at most 1s, where not given
    #[arg(long, value_name = "TIME", value_parser = time)]
    spread: Option<Duration>,
    /// What is multiplied, by servload's rules at the same instants; --factor is a whole number then
    #[arg(long, value_name = "MODE", conflicts_with = "spread")]
    servload: Option<Servload>,
    /// Whether copies of a client ask for the same names, or each for its own (a label in front)
    #[arg(long, value_enum, default_value = "shared")]
    names: Names,

    #[command(flatten)]
    transports: Transports,
    /// Give each client, copies too, a source address of its own in a prefix of this host, such as 127.1.0.0/16; where
    /// these are too few, clients share them evenly
    #[arg(long, value_name = "PREFIX")]
    source_prefix: Option<Prefix>,
    /// With --source-prefix: send queries over UDP as Ethernet frames, past this host's routing, firewall and connection
    /// tracking. Needs the capability CAP_NET_RAW; not over loopback
    #[arg(long)]
    frames: bool,
    /// Change the queries as `trace mutate` does, such as do=100%,edns=1232@50%
    #[arg(long, value_name = "CHANGE,...")]
    mutate: Option<String>,
    /// Tell each client's recorded address in client subnet, cut to 24 or 56 bits: --mutate ecs=client
    #[arg(long)]
    ecs: bool,
    /// How long an answer is waited for
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = timeout)]
    timeout: Duration,
    /// How long a client's socket stays open without a query
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time)]
    idle: Duration,
    /// Threads that send; each reads the trace for itself
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=THREADS_MAX as i64))]
    threads: u16,

    /// Processes that send, each with --threads, as many sockets as one may open, and the trace for itself
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=PROCESSES_MAX))]
    processes: u16,
    /// Which of them this is; those that the first begins are told so
    #[arg(long, value_name = "I", hide = true)]
    process: Option<u16>,

    /// Keep this host's cores from resting meanwhile, as those of a virtual machine wake late. Needs root
    #[arg(long)]
    awake: bool,
    /// The most that the 99.9th percentile of lateness may be
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = time)]
    tolerance: Duration,
    /// A folder for report.json and index.html, the same as plots
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Write one row a query to this file, which must not be there yet
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Hold each answer against the recorded one, and keep pairs that differ in this capture, which must not be there
    /// yet
    #[arg(long, value_name = "FILE.pcap")]
    compare: Option<PathBuf>,
    /// Read processor time, memory and TCP sockets of the server's process, and of all that it began, each second
    #[arg(long, value_name = "PID")]
    observe: Option<u32>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Send to addresses that are neither loopback nor private
    #[arg(long)]
    i_may_load_this_server: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Servload {
    /// Every client
    Multiply,
    /// Queries in seconds whose rate is the median or more
    Peak,
    /// Clients whose sessions are close to the median one
    Score,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Names {
    /// The recorded names
    Shared,
    /// Names of their own
    Unique,
}

/// What is to be done.
struct Said {
    plan: Plan,
    mutation: Option<Mutation>,
    tls: Option<Arc<Tls>>,
    /// Where frames go first on their way to servers, where they are wanted.
    hops: Vec<(SocketAddr, Hop)>,
}

impl Replay {
    /// Sends the trace's queries until all are sent or a signal comes, and reports.
    ///
    /// # Errors
    /// [`Failure`]; the report is printed and written before.
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let said = self.said()?;
        let live = Arc::new(Live::default());
        let (told, mut stop) = (Arc::clone(&live), Stop::take()?.or_hang_up()?);
        let waits = tokio::spawn(async move {
            stop.wanted().await;
            told.stop.store(true, Ordering::Relaxed);
        });
        let ended = tokio::task::spawn_blocking(move || self.replay(said, &live)).await;
        waits.abort();
        ended.unwrap_or_else(|cause| Err(Failure::Failed(format!("the replay has panicked: {cause}"))))
    }

    /// What is to be done, with all faults of what was said.
    fn said(&self) -> Result<Said, Failure> {
        let mut faults = Faults::default();
        let mut fault =
            |flag: &str, what: String, expected: &str| faults.push(Fault::whole(flag, what, expected));
        for server in &self.server {
            if let Some((what, expected)) = self.unfit(*server) {
                fault("--server", what, expected);
            }
            if self.source_prefix.is_some_and(|prefix| prefix.address().is_ipv4() != server.is_ipv4()) {
                fault("--source-prefix", format!("it is of another family than {server}"), "");
            }
        }
        if let Some((prefix, address)) = self.not_ours() {
            let nonlocal = if prefix.address().is_ipv6() && self.uses_sockets() {
                " and `sysctl net.ipv6.ip_nonlocal_bind=1`"
            } else {
                ""
            };
            let example = if self.frames { "" } else { ", such as 127.1.0.0/16" };
            let all_ours = format!(
                "a prefix of which all addresses are{example}, or first `ip route add local {prefix} dev lo`{nonlocal}"
            );
            let (what, expected) = match self.frames && address.is_loopback() {
                true => {
                    ("is none that a host takes frames from", "a prefix outside of 127.0.0.0/8".to_owned())
                }
                false => ("is no address of this host", all_ours),
            };
            fault("--source-prefix", format!("{address} {what}"), &expected);
        }
        let hops = if self.frames { self.hops(&mut fault) } else { Vec::new() };
        if !FACTORS.contains(&self.factor) {
            fault("--factor", self.factor.to_string(), "a number from 0.1 to 10000");
        }
        if self.servload.is_some() && (self.factor.fract() != 0.0 || self.factor < 1.0) {
            fault("--factor", self.factor.to_string(), "a whole number with --servload");
        }
        if self.processes > 1 && self.compare.is_some() {
            fault(
                "--compare",
                "answers are compared in one process".into(),
                "--processes 1, and more --threads",
            );
        }
        if self.process.is_some_and(|process| process >= self.processes) {
            fault("--process", "there is no such process".into(), "a number below --processes");
        }
        if let Some(file) = self.compare.as_ref().filter(|file| file.extension() != Some("pcap".as_ref())) {
            let what =
                format!("{}: the form is told by the end of its name, and this is a capture", file.display());
            fault("--compare", what, "FILE.pcap");
        }
        let mutation = self.mutation().unwrap_or_else(|wrong| {
            wrong.lines().for_each(|what| fault("--mutate", what.into(), ""));
            None
        });
        if self.compare.is_some() {
            let changes = mutation.as_ref().map_or(&[][..], Mutation::changes);
            let asks_else = changes.iter().find(|change| !change.is_by_client());
            let why = if self.factor != 1.0 || self.servload.is_some() {
                Some("clients are multiplied".to_owned())
            } else if self.names == Names::Unique {
                Some("clients ask for names of their own".to_owned())
            } else {
                asks_else.map(|change| format!("{change} makes it another question"))
            };
            if let Some(why) = why {
                let what = format!("answers cannot be held against the recorded ones: {why}");
                fault("--compare", what, "--factor 1, shared names, and no changes to names and types");
            }
        }
        let clients = match self.servload {
            None => Clients::Factor { factor: self.factor, spread: self.spread },
            Some(Servload::Multiply) => Clients::Multiply(self.factor as u32),
            Some(Servload::Peak) => Clients::Peak(self.factor as u32),
            Some(Servload::Score) => Clients::Score(self.factor as u32),
        };
        let pacing = match self.rate {
            _ if self.fast => Pacing::Fast,
            Some(per_second) => Pacing::Rate { per_second, poisson: self.poisson },
            None => Pacing::Recorded { speed: self.speed },
        };
        let plan = Plan { pacing, clients, limit: self.limit, loops: self.loops, seed: self.seed };
        let tls = self.transports.tls().unwrap_or_else(|fault| {
            faults.push(fault);
            None
        });
        Ok(faults.or(Said { plan, mutation, tls, hops })?)
    }

    /// Why a server is not to be sent to, and what would be expected.
    fn unfit(&self, server: SocketAddr) -> Option<(String, &'static str)> {
        if server.ip().is_unspecified() || server.ip().is_multicast() || server.port() == 0 {
            return Some((format!("{server} is no server's address"), "an address and a port"));
        }
        let is_allowed = self.i_may_load_this_server || is_near(server.ip());
        let what = || format!("{server} is neither a loopback nor a private address");
        (!is_allowed).then(|| (what(), "--i-may-load-this-server where its operator agrees to the load"))
    }

    /// The prefix of sources, and one of the first clients' addresses, where answers to it would not come here or what is to
    /// be sent from it could not be.
    fn not_ours(&self) -> Option<(Prefix, IpAddr)> {
        let prefix = self.source_prefix?;
        let sources = Sources::new(prefix, self.seed);
        let is_ours = |address: &IpAddr| {
            (!self.frames || is_taken(*address)) && (!self.uses_sockets() || can_send(*address))
        };
        let mut first = (0..SOURCES_LOOKED_AT).map(|client| sources.address(client));
        first.find(|address| !is_ours(address)).map(|address| (prefix, address))
    }

    /// Whether sockets send from clients' addresses; that a trace with frames has no connections is known only later.
    fn uses_sockets(&self) -> bool {
        let carriers = self.transports.carriers();
        let connects = |carrier| carrier != Carrier::Udp && carriers.uses(carrier);
        !self.frames || !matches!(carriers, Carriers::Recorded) && Carrier::ALL.into_iter().any(connects)
    }

    /// Where frames go first on their way to the servers, with all that keeps them from going.
    fn hops(&self, mut fault: impl FnMut(&str, String, &str)) -> Vec<(SocketAddr, Hop)> {
        let mut fault = |what: String, expected: &str| fault("--frames", what, expected);
        if self.source_prefix.is_none() {
            fault("clients have sockets of their own".into(), "--source-prefix beside it");
        }
        if !self.transports.carriers().uses(Carrier::Udp) {
            fault("no query goes over UDP; leave it out".into(), "");
        }
        let mut hops = Vec::new();
        for server in self.server.iter().filter(|server| self.unfit(**server).is_none()) {
            match hop::towards(server.ip(), hop::ANSWER_WAIT_MAX) {
                Ok(hop) => hops.push((*server, hop)),
                Err(why) => fault(format!("no frame gets to {server}: {why}; leave it out"), ""),
            }
        }
        if let Some((_, hop)) = hops.first()
            && let Err(cause) = net::client::frames(hop.device)
        {
            fault(format!("this process may send none ({cause})"), "the capability CAP_NET_RAW");
        }
        hops
    }

    /// What is changed in the queries.
    fn mutation(&self) -> Result<Option<Mutation>, String> {
        let told = self.mutate.as_deref().into_iter().chain(self.ecs.then_some("ecs=client"));
        let changes = told.collect::<Vec<_>>().join(",");
        if self.mutate.is_none() && !self.ecs {
            return Ok(None);
        }
        Mutation::parse(&changes, self.seed).map(Some)
    }
}

/// Whether a socket can send from an address. What else may be wrong is told where it happens.
fn can_send(address: IpAddr) -> bool {
    let bound = UdpSocket::bind((address, 0));
    !bound.is_err_and(|cause| cause.kind() == io::ErrorKind::AddrNotAvailable)
}

/// Whether this host takes what another one sends to an address or says to be from it, where the system tells.
fn is_taken(address: IpAddr) -> bool {
    if address.is_loopback() {
        return false;
    }
    match hop::towards(address, Duration::ZERO) {
        Err(hop::Error::NotEthernet(device)) => device == LOOPBACK,
        Err(hop::Error::System(_)) => true,
        _ => false,
    }
}

fn server(text: &str) -> Result<SocketAddr, String> {
    let with_port = text.parse().or_else(|_| text.parse().map(|address: IpAddr| (address, PORT).into()));
    with_port.map_err(|_| "expected an IP address, with a port or without, such as 127.0.0.1:5300".into())
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0".into())
}

fn time(text: &str) -> Result<Duration, String> {
    within(text, &TIMES)
}

fn timeout(text: &str) -> Result<Duration, String> {
    within(text, &TIMEOUTS)
}

fn within(text: &str, range: &std::ops::RangeInclusive<Duration>) -> Result<Duration, String> {
    let unit = if text.parse::<f64>().is_ok() { "it has no unit: " } else { "" };
    kind::time_within(text, range).map_err(|expected| format!("{unit}{expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_is_loaded() {
        for (address, expected) in [
            ("127.0.0.1", true),
            ("10.1.2.3", true),
            ("172.16.0.1", true),
            ("192.168.1.1", true),
            ("169.254.1.1", true),
            ("::1", true),
            ("fd00::1", true),
            ("fe80::1", true),
            ("::ffff:10.0.0.1", true),
            ("::ffff:198.41.0.4", false),
            ("198.41.0.4", false),
            ("172.32.0.1", false),
            ("100.64.0.1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_near(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn times_have_units_and_a_timeout_is_some_time() {
        let range = "from 1 ms to 24 h, in ms, s, min or h";
        assert_eq!(timeout("0"), Err(format!("it has no unit: expected a time {range}")));
        assert_eq!(timeout("0s"), Err(format!("expected a time {range}")));
        assert_eq!((timeout("1ms"), time("0s")), (Ok(Duration::from_millis(1)), Ok(Duration::ZERO)));
    }

    #[test]
    fn servers_have_port_53_unless_told() {
        for (text, expected) in [
            ("127.0.0.1", "127.0.0.1:53"),
            ("::1", "[::1]:53"),
            ("[::1]:99", "[::1]:99"),
            ("10.0.0.1:5", "10.0.0.1:5"),
        ] {
            assert_eq!(server(text).unwrap().to_string(), expected);
        }
        assert!(server("localhost").is_err());
    }
}
