//! The servers that are asked for names, each on one core and with the same names.

use std::fs;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use reverse::NameText;
use reverse::cache::{self, Entry, State, snapshot};
use reverse::question::{Ask, question};

use super::load;
use crate::machine;
use crate::serve::place::{Place, SERVER, Side};
use crate::serve::process::Group;
use crate::serve::servers::program;

/// How long a server may take to its first answer.
const START_MAX: Duration = Duration::from_secs(60);

/// The time between two looks for it, and for the answer to one question.
const LOOK: Duration = Duration::from_millis(20);

/// How long names are kept.
const WEEK: u64 = 7 * 86_400;

/// The port of the Redis protocol.
pub(crate) const RESP: SocketAddr = SocketAddr::new(IpAddr::V4(SERVER), 6379);

/// The port of the protocol of Rapid DNS.
pub(crate) const RAPID: SocketAddr = SocketAddr::new(IpAddr::V4(SERVER), 5354);

/// The port of HTTP.
pub(crate) const HTTP: SocketAddr = SocketAddr::new(IpAddr::V4(SERVER), 8054);

/// The port of DNS.
pub(crate) const DNS: SocketAddr = SocketAddr::new(IpAddr::V4(SERVER), 53);

/// Where what warms other caches answers, in the server's namespace.
const UPSTREAM: &str = "127.0.0.1:5300";

/// Questions that are sent before their answers are looked for, while a cache is warmed.
const WARM_BATCH: usize = 32;

/// What is asked for.
pub(crate) type Names = Vec<(Ipv4Addr, NameText)>;

/// One of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    Pointsman,
    Redis,
    Unbound,
    Dnsmasq,
}

impl Server {
    /// Its name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Server::Pointsman => "pointsman",
            Server::Redis => "redis",
            Server::Unbound => "unbound",
            Server::Dnsmasq => "dnsmasq",
        }
    }

    /// What it says of its version.
    pub(crate) fn version(self) -> String {
        match self {
            Server::Pointsman => machine::said(&program(), &["--version"]),
            Server::Redis => machine::said("redis-server", &["--version"]),
            Server::Unbound => machine::said("unbound", &["-V"]),
            Server::Dnsmasq => machine::said("dnsmasq", &["--version"]),
        }
    }

    /// Starts it in a new folder; returns when it answers and has all names.
    ///
    /// # Errors
    /// Where it does not.
    pub(crate) fn start(self, place: &Place, names: &Names) -> Result<Group> {
        let room = place.room(self.name())?;
        match self {
            Server::Pointsman => {
                let file = room.join("names.cache");
                keep(names, &file)?;
                let group = Group::start(&mut pointsman(&file, "127.0.0.1:9", &[]), &room.join("log"))?;
                ready(group, &room, ping)
            }
            Server::Redis => {
                let mut command = Side::Server.command("redis-server");
                command.args(["--bind", &SERVER.to_string(), "--port", "6379", "--protected-mode", "no"]);
                command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(&room);
                let group = ready(Group::start(&mut command, &room.join("log"))?, &room, ping)?;
                Side::Source.within(|| set(names))?;
                Ok(group)
            }
            Server::Unbound => cached(&room, names, unbound(&room)?),
            Server::Dnsmasq => cached(&room, names, dnsmasq()),
        }
    }
}

/// Ours, with the names of a snapshot; whoever it asks is of no account.
pub(crate) fn pointsman(snapshot: &Path, upstream: &str, more: &[&str]) -> Command {
    names(Side::Server.command(&program()), snapshot, upstream, more)
}

/// The same, before the machine's other programs.
pub(crate) fn pointsman_first(snapshot: &Path, upstream: &str, more: &[&str]) -> Command {
    let mut command = Side::Server.command("chrt");
    command.args(["--fifo", "1", &program()]);
    names(command, snapshot, upstream, more)
}

/// What ours is told, behind its name.
fn names(mut command: Command, snapshot: &Path, upstream: &str, more: &[&str]) -> Command {
    command.args(["reverse", "--upstream", upstream, "--workers", "1", "--allow", "0.0.0.0/0"]);
    command.args(["--believe", "0.0.0.0/0", "--snapshot"]).arg(snapshot).args([
        "--snapshot-interval",
        "1h",
        "--memory",
        "1GiB",
    ]);
    for (face, address) in [("--resp", RESP), ("--rapid", RAPID), ("--dns", DNS), ("--http", HTTP)] {
        command.arg(face).arg(address.to_string());
    }
    command.args(more);
    command
}

/// Writes the names as a snapshot.
///
/// # Errors
/// Where it cannot be written.
pub(crate) fn keep(names: &Names, file: &Path) -> Result<()> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).context("the time")?;
    let now = u32::try_from(since.as_secs()).context("the time")?;
    let (mut writer, reader) = cache::new(1 << 30, 0, 1);
    for (address, name) in names {
        writer.put((*address).into(), Entry::new(State::Name, now, Duration::from_secs(WEEK)), name);
    }
    snapshot::save(&reader.view(), now, file).with_context(|| format!("{}", file.display()))
}

/// Waits until a server answers.
pub(crate) fn ready(mut group: Group, room: &Path, answers: fn() -> bool) -> Result<Group> {
    let begun = Instant::now();
    let is_ready = Side::Source.within(|| {
        while begun.elapsed() < START_MAX && !group.has_ended() {
            if answers() {
                return Ok(true);
            }
            thread::sleep(LOOK);
        }
        Ok(false)
    })?;
    if !is_ready {
        let said = fs::read_to_string(room.join("log")).unwrap_or_default();
        bail!("{} does not answer; it said:\n{said}", room.display());
    }
    Ok(group)
}

/// Whether the Redis protocol is answered.
pub(crate) fn ping() -> bool {
    let pinged = load::connect(RESP).and_then(|mut stream| {
        stream.write_all(b"PING\r\n")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line)
    });
    pinged.is_ok_and(|line| line.starts_with("+PONG"))
}

/// Gives Redis the names.
fn set(names: &Names) -> Result<()> {
    let stream = load::connect(RESP)?;
    let (mut out, mut input) = (BufWriter::new(stream.try_clone()?), BufReader::new(stream));
    for names in names.chunks(1000) {
        for (address, name) in names {
            let (key, name) = (address.to_string(), name.as_str());
            let (keys, length) = (key.len(), name.len());
            write!(
                out,
                "*5\r\n$3\r\nSET\r\n${keys}\r\n{key}\r\n${length}\r\n{name}\r\n$2\r\nEX\r\n$6\r\n{WEEK}\r\n"
            )?;
        }
        out.flush()?;
        let mut line = String::new();
        for _ in names {
            line.clear();
            input.read_line(&mut line)?;
            anyhow::ensure!(line == "+OK\r\n", "Redis said {line:?}");
        }
    }
    Ok(())
}

/// A resolver that has the names in its cache; who told it is gone when this returns.
fn cached(room: &Path, names: &Names, mut command: Command) -> Result<Group> {
    let file = room.join("names.cache");
    keep(names, &file)?;
    let mut upstream = Side::Server.command(&program());
    upstream.args(["reverse", "--upstream", "127.0.0.1:9", "--dns", UPSTREAM, "--snapshot"]).arg(&file);
    let _upstream = Group::start(&mut upstream, &room.join("upstream.log"))?;
    let mut group = Group::start(&mut command, &room.join("log"))?;
    let begun = Instant::now();
    Side::Source.within(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").context("a socket")?;
        socket.connect(DNS).context("a socket")?;
        socket.set_read_timeout(Some(LOOK)).context("a socket")?;
        let mut known = vec![false; names.len()];
        while !known.iter().all(|known| *known) {
            anyhow::ensure!(
                begun.elapsed() < START_MAX && !group.has_ended(),
                "{} has not all names",
                room.display()
            );
            let missing: Vec<usize> = (0..names.len()).filter(|at| !known[*at]).collect();
            for some in missing.chunks(WARM_BATCH) {
                for at in some {
                    // A refused port is an error of the next call: it is not there yet.
                    let _ = socket.send(&question(names[*at].0.into(), &Ask::Name, *at as u16));
                }
                let mut answer = [0; 512];
                for _ in some {
                    let Ok(length) = socket.recv(&mut answer) else { break };
                    let id = usize::from(u16::from_be_bytes([answer[0], answer[1]]));
                    let has_name = length > 12 && answer[3] & 15 == 0 && answer[7] > 0;
                    known.get_mut(id).into_iter().for_each(|known| *known |= has_name);
                }
            }
        }
        Ok(())
    })?;
    Ok(group)
}

fn unbound(room: &Path) -> Result<Command> {
    let config = format!(
        "server:\n  interface: {SERVER}\n  do-daemonize: no\n  use-syslog: no\n  logfile: \"\"\n  verbosity: 0\n  \
         num-threads: 1\n  chroot: \"\"\n  username: \"\"\n  pidfile: \"\"\n  directory: \"{folder}\"\n  \
         module-config: \"iterator\"\n  access-control: 0.0.0.0/0 allow\n  do-not-query-localhost: no\n  \
         msg-cache-size: 64m\n  rrset-cache-size: 128m\n  so-rcvbuf: 4m\n\
         forward-zone:\n  name: \".\"\n  forward-addr: 127.0.0.1@5300\nremote-control:\n  control-enable: no\n",
        folder = room.display(),
    );
    let file: PathBuf = room.join("unbound.conf");
    fs::write(&file, config).with_context(|| format!("{}", file.display()))?;
    let mut command = Side::Server.command("unbound");
    command.arg("-d").arg("-c").arg(file);
    Ok(command)
}

fn dnsmasq() -> Command {
    let mut command = Side::Server.command("dnsmasq");
    command.args([
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--no-resolv",
        "--no-hosts",
        "--user=root",
    ]);
    command.args(["--pid-file=", "--server=127.0.0.1#5300", "--cache-size=20000", "--bind-interfaces"]);
    command.args(["--dns-forward-max=1000", &format!("--listen-address={SERVER}")]);
    command
}
