//! The servers with their quotas and agents, and who balances.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use credit::Key;

use super::children;
use crate::options::Size;
use crate::process::{Pointsman, Server, first, free};
use crate::quota::Quota;
use crate::serving::{SERVER_CORE, pinned};

/// What is asked for: any name of `example` is an alias of an alias, of which a server follows so many, so that it has
/// some work with each query. Else a tenth of a processor could answer more than the rest of the machine could ask.
const ALIASES: u32 = 9;

/// Keys in a list, which a server holds each query against before it takes it, and none of which it has; lists of them in a
/// list; and how often that is gone through: some tens of microseconds. Without them the replayer, which waits for due times
/// in a loop, uses all of its core for the rate that the servers can answer. They are few and gone through often, so that
/// the work fits a core's first cache, and hardly depends on what others leave in the next ones.
const KEYS: usize = 32;
const LISTS: usize = 32;
const TURNS: usize = 25;

/// Queries that a server is asked alone; unanswered ones at a time; names of the trace.
const ALONE: &str = "1000";
const WINDOW: &str = "64";
const NAMES: usize = 5_000;

/// How long credit may take to come: agents introduce themselves ten times a second.
const CREDIT_MAX: Duration = Duration::from_secs(10);

/// A way to balance.
#[derive(Debug)]
pub(super) struct Arm {
    pub(super) name: &'static str,
    who: Who,
    weights: Weights,
    /// The smallest run in which it takes part.
    least: Size,
}

/// Who balances, by which policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Ours(&'static str),
    Dnsdist(&'static str),
}

/// What the balancer is told of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weights {
    Equal,
    /// As measured.
    Tuned,
    /// As measured, but the fastest and the slowest changed for each other.
    Wrong,
}

const fn arm(name: &'static str, who: Who, weights: Weights, least: Size) -> Arm {
    Arm { name, who, weights, least }
}

/// Ours, to which the slides' rival, and the rivals of today by the beginnings of their names.
pub(super) const OURS: &str = "pressure";
pub(super) const WRR: &str = "wrr, equal";
pub(super) const DNSDIST: &str = "dnsdist";

/// Through which servers are measured: it is told nothing of them, and leaves none idle while another has work waiting.
pub(super) const NEUTRAL: Arm =
    arm("least-outstanding", Who::Ours("least-outstanding"), Weights::Equal, Size::Quick);

/// All arms that are tried.
pub(super) const ARMS: [Arm; 14] = [
    arm(OURS, Who::Ours("pressure"), Weights::Equal, Size::Smoke),
    arm("credit", Who::Ours("credit"), Weights::Equal, Size::Full),
    arm(WRR, Who::Ours("wrr"), Weights::Equal, Size::Quick),
    arm("wrr, tuned", Who::Ours("wrr"), Weights::Tuned, Size::Full),
    arm("wrr, wrong", Who::Ours("wrr"), Weights::Wrong, Size::Full),
    arm("random", Who::Ours("random"), Weights::Equal, Size::Full),
    NEUTRAL,
    arm("p2c", Who::Ours("p2c"), Weights::Equal, Size::Full),
    arm("ewma", Who::Ours("ewma"), Weights::Equal, Size::Full),
    arm("hot-cold", Who::Ours("hot-cold"), Weights::Equal, Size::Full),
    arm("hash", Who::Ours("hash"), Weights::Equal, Size::Full),
    arm("dnsdist, leastOutstanding", Who::Dnsdist("leastOutstanding"), Weights::Equal, Size::Smoke),
    arm("dnsdist, wrandom, tuned", Who::Dnsdist("wrandom"), Weights::Tuned, Size::Full),
    arm("dnsdist, roundrobin", Who::Dnsdist("roundrobin"), Weights::Equal, Size::Full),
];

/// A server with its quota.
struct BackEnd {
    /// None while it is ended. It goes first, as its quota can only go once nobody has it.
    server: Option<Server>,
    quota: Quota,
    address: SocketAddr,
    statistics: SocketAddr,
}

/// What stands behind balancers: servers with their quotas, and agents.
pub(super) struct Field {
    pub(super) pointsman: Pointsman,
    folder: PathBuf,
    key: PathBuf,
    /// The balancer's address for reports of agents.
    credit: SocketAddr,
    back_ends: Vec<BackEnd>,
    /// Queries a second that each can answer, once that was measured: what tuned weights are.
    pub(super) capacities: [f64; 3],
    /// The agents, one for each server; they end with the field.
    agents: Vec<Server>,
    /// Processor time of servers that were ended, in seconds.
    pub(super) ended: f64,
}

impl Arm {
    /// Whether it takes part in a run of this size.
    pub(super) fn takes_part(&self, size: Size) -> bool {
        size.of(true, self.least != Size::Full, self.least == Size::Smoke)
    }

    /// Whether something is demanded of it, or of ours beside it.
    pub(super) fn is_judged(&self) -> bool {
        self.name == OURS || self.name == WRR || self.name.starts_with(DNSDIST)
    }
}

impl Field {
    /// Starts servers, and an agent beside each. Each may use its share of one processor, refilled every `period`, and has a
    /// receive buffer of so many octets; of the system's default for 0.
    ///
    /// # Errors
    /// Where that fails.
    pub(super) fn start(
        folder: &Path,
        shares: [f64; 3],
        period: Duration,
        buffers: [u32; 3],
    ) -> Result<Field> {
        let pointsman = Pointsman::find()?;
        let (key, zone) = (folder.join("credit.key"), folder.join("root.zone"));
        fs::write(&zone, records()).context("the zone")?;
        let mut octets = [0; credit::key::KEY_LEN];
        fastrand::fill(&mut octets);
        let _ = fs::remove_file(&key);
        fs::write(&key, Key::text(&octets)).context("the key")?;
        fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).context("the key")?;
        let mut field = Field {
            pointsman,
            folder: folder.to_path_buf(),
            key,
            credit: free()?,
            back_ends: Vec::new(),
            capacities: [1.0; 3],
            agents: Vec::new(),
            ended: 0.0,
        };
        for (number, (share, buffer)) in shares.into_iter().zip(buffers).enumerate() {
            let (address, statistics) = (free()?, free()?);
            let text = format!(
                "acl keys {{ {keys}}};\nacl lists {{ !key work; {lists}}};\n\
                 options {{ directory \"{place}\"; pid-file none; session-keyfile none; recursion no; notify no; \
                 dnssec-validation no; minimal-responses yes; listen-on port {port} {{ {ip}; }}; listen-on-v6 {{ none; }}; \
                 udp-receive-buffer {buffer}; allow-query {{ {turns}any; }}; }};\ncontrols {{ }};\n\
                 key work {{ algorithm hmac-sha256; secret \"d29yaw==\"; }};\n\
                 statistics-channels {{ inet {ip} port {statistics} allow {{ any; }}; }};\n\
                 zone \".\" {{ type primary; file \"{zone}\"; }};\n",
                keys = "!key work; ".repeat(KEYS),
                // Named in another list, a list with a negation is not copied into it.
                lists = "keys; ".repeat(LISTS),
                turns = "lists; ".repeat(TURNS),
                place = folder.display(),
                zone = zone.display(),
                ip = address.ip(),
                port = address.port(),
                statistics = statistics.port(),
            );
            let path = field.configuration(number);
            fs::write(&path, text).with_context(|| format!("{}", path.display()))?;
            // It starts with all of a processor.
            let quota = Quota::new(&number.to_string(), 1.0, period)?;
            field.back_ends.push(BackEnd { server: None, quota, address, statistics });
            field.begin(number)?;
            field.back_ends[number].quota.set(share)?;
            let mut agent = field.pointsman.first(SERVER_CORE);
            agent.args(["agent", "--service", &format!("udp:{address}"), "--balancer"]);
            agent.arg(field.credit.to_string()).arg("--key").arg(&field.key);
            field.agents.push(Server::spawn(folder, &format!("agent{number}"), agent, address)?);
        }
        Ok(field)
    }

    fn configuration(&self, number: usize) -> PathBuf {
        self.folder.join(format!("named{number}.conf"))
    }

    /// Starts one of the servers.
    ///
    /// # Errors
    /// Where that fails.
    pub(super) fn begin(&mut self, number: usize) -> Result<()> {
        let mut command = pinned(SERVER_CORE, "named");
        command.args(["-g", "-n", "1", "-c"]).arg(self.configuration(number));
        let back_end = &mut self.back_ends[number];
        let server = Server::start(&self.folder, &format!("named{number}"), command, back_end.address)?;
        back_end.quota.take(server.id())?;
        back_end.server = Some(server);
        Ok(())
    }

    /// Ends one of them.
    pub(super) fn end(&mut self, number: usize) {
        let before = children();
        self.back_ends[number].server = None;
        self.ended += children() - before;
    }

    /// The agents' processes.
    pub(super) fn agents(&self) -> impl Iterator<Item = u32> {
        self.agents.iter().map(Server::id)
    }

    /// The processor time that each server has used, in seconds.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub(super) fn used(&self) -> Result<[f64; 3]> {
        let mut used = [0.0; 3];
        for (seconds, back_end) in used.iter_mut().zip(&self.back_ends) {
            *seconds = back_end.quota.counter().seconds()?;
        }
        Ok(used)
    }

    /// Changes what the servers may use.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn set(&self, shares: [f64; 3]) -> Result<()> {
        self.back_ends.iter().zip(shares).try_for_each(|(back_end, share)| back_end.quota.set(share))
    }

    /// Measures how many queries a second each server answers while it alone is asked, without a balancer: with its core
    /// and the core's caches to itself, more than beside the others.
    ///
    /// # Errors
    /// Where that fails.
    pub(super) fn alone(&self) -> Result<[f64; 3]> {
        let names = self.folder.join("names");
        let mut text = String::new();
        (0..NAMES).for_each(|number| {
            let _ = writeln!(text, "host{number}.example A");
        });
        fs::write(&names, text).context("names")?;
        let mut rates = [0.0; 3];
        for (rate, back_end) in rates.iter_mut().zip(&self.back_ends) {
            let words = ["--fast", "--window", WINDOW, "--loop", "1000", "--limit", ALONE];
            let report = self.pointsman.replay(&names, back_end.address, &words)?;
            *rate = report.answers as f64 / report.seconds;
        }
        Ok(rates)
    }

    /// How many queries each server has received.
    ///
    /// # Errors
    /// Where it does not tell.
    pub(super) fn received(&self) -> Result<[u64; 3]> {
        let mut received = [0; 3];
        for (count, back_end) in received.iter_mut().zip(&self.back_ends) {
            let text = got(back_end.statistics, "/json/v1/server").context("BIND's statistics")?;
            let value = text.split("\"Requestv4\":").nth(1).context("BIND's statistics have no Requestv4")?;
            let digits: String = value.chars().take_while(char::is_ascii_digit).collect();
            *count = digits.parse().context("BIND's Requestv4")?;
        }
        Ok(received)
    }

    /// Starts a balancer; it knows nothing yet but its weights.
    ///
    /// # Errors
    /// Where it does not start, or no credit comes.
    pub(super) fn balancer(&self, arm: &Arm) -> Result<Server> {
        let address = free()?;
        let capacities = self.capacities;
        let least = capacities.iter().copied().fold(f64::INFINITY, f64::min);
        let weight = |number: usize| {
            let of = |number: usize| (10.0 * capacities[number] / least).round();
            match arm.weights {
                Weights::Equal => 1.0,
                Weights::Tuned => of(number),
                Weights::Wrong => of(capacities.len() - 1 - number),
            }
        };
        match arm.who {
            Who::Ours(policy) => {
                let http = free()?;
                let mut command = self.pointsman.first(SERVER_CORE);
                command.args(["balance", "--listen", &address.to_string(), "--policy", policy]);
                command.args(["--workers", "1", "--http", &http.to_string()]);
                command.args(["--credit", &self.credit.to_string(), "--key"]).arg(&self.key);
                for (number, back_end) in self.back_ends.iter().enumerate() {
                    command.args(["--backend", &format!("{}={}", back_end.address, weight(number))]);
                }
                let server = Server::start(&self.folder, "balance", command, address)?;
                self.wait_for_credit(http)?;
                Ok(server)
            }
            Who::Dnsdist(policy) => {
                let mut text = format!(
                    "setLocal(\"{address}\")\nsetSecurityPollSuffix(\"\")\nsetServerPolicy({policy})\n\
                     setMaxUDPOutstanding(65535)\n"
                );
                for (number, back_end) in self.back_ends.iter().enumerate() {
                    let (to, weight) = (back_end.address, weight(number));
                    let _ = writeln!(text, "newServer({{address=\"{to}\", weight={weight}}})");
                }
                let path = self.folder.join("dnsdist.conf");
                fs::write(&path, text).with_context(|| format!("{}", path.display()))?;
                let mut command = first(SERVER_CORE, "dnsdist");
                command.args(["--supervised", "--disable-syslog", "-C"]).arg(&path);
                Server::start(&self.folder, "dnsdist", command, address)
            }
        }
    }

    /// Waits until each server's agent has granted credit.
    fn wait_for_credit(&self, http: SocketAddr) -> Result<()> {
        let begin = Instant::now();
        let mut status = String::new();
        while begin.elapsed() < CREDIT_MAX {
            status = got(http, "/v1/status").context("the balancer's status")?;
            let lines = status.split("\"credit\":").skip(1);
            let granted = lines.filter(|rest| rest.starts_with(|first: char| first.is_ascii_digit())).count();
            if granted >= self.back_ends.len() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        bail!("no credit after {} s: {status}", CREDIT_MAX.as_secs())
    }
}

/// What is answered to a GET, with its head; the connection ends with it.
fn got(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    io::read_to_string(stream)
}

/// The zone that the servers serve.
fn records() -> String {
    let mut text = "$TTL 60\n. SOA ns. hm. 1 7200 600 86400 60\n. NS ns.\nns. A 192.0.2.53\n".to_owned();
    let _ = writeln!(text, "*.example. CNAME a1.");
    for number in 1..ALIASES {
        let _ = writeln!(text, "a{number}. CNAME a{}.", number + 1);
    }
    let _ = writeln!(text, "a{ALIASES}. A 192.0.2.80");
    text
}
