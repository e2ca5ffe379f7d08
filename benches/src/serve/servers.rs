//! The servers, each configured for one core and to serve the same zone.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use experiments::process::answers;

use super::place::{Place, SERVER, Side};
use super::process::Group;
use super::zone;
use crate::data;
use crate::machine;
use crate::question;
use crate::steering;

/// How long a server may take to its first answer.
const START_MAX: Duration = Duration::from_secs(180);

/// The time between two looks for a first answer.
const LOOK: Duration = Duration::from_millis(2);

/// The address of our API, inside the server's namespace.
pub(crate) const API: &str = "127.0.0.1:8053";

/// One of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    Pointsman,
    /// Ours, with queries taken from the interface as frames.
    PointsmanXdp,
    Knot,
    /// Knot, which does the same.
    KnotXdp,
    KnotGeoip,
    Nsd,
    Gdnsd,
    Pdns,
}

/// A server that answers.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) group: Group,
    /// From the start of its process to its first answer.
    pub(crate) started: Duration,
}

impl Server {
    /// Its name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Server::Pointsman => "pointsman",
            Server::PointsmanXdp => "pointsman-xdp",
            Server::Knot => "knot",
            Server::KnotXdp => "knot-xdp",
            Server::KnotGeoip => "knot-geoip",
            Server::Nsd => "nsd",
            Server::Gdnsd => "gdnsd",
            Server::Pdns => "pdns-geoip",
        }
    }

    /// What it says of its version.
    pub(crate) fn version(self) -> String {
        match self {
            Server::Pointsman | Server::PointsmanXdp => machine::said(&program(), &["--version"]),
            Server::Knot | Server::KnotXdp | Server::KnotGeoip => machine::said("knotd", &["--version"]),
            Server::Nsd => machine::said("nsd", &["-v"]),
            Server::Gdnsd => machine::said("gdnsd", &["version"]),
            Server::Pdns => machine::said("pdns_server", &["--version"]),
        }
    }

    /// Whether it is ours.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Server::Pointsman | Server::PointsmanXdp)
    }

    /// Whether it takes queries from the interface as frames.
    pub(crate) fn takes_frames(self) -> bool {
        matches!(self, Server::PointsmanXdp | Server::KnotXdp)
    }

    /// Starts it in a new folder, and returns when it answers.
    ///
    /// # Errors
    /// Where it does not; with the end of what it said.
    pub(crate) fn start(self, place: &Place) -> Result<Running> {
        let room = place.room(self.name())?;
        let mut command = match self {
            Server::Pointsman => pointsman(&room, "")?,
            Server::PointsmanXdp => pointsman(&room, &format!("xdp = [\"{}\"]\n", Side::Server.device()))?,
            Server::Knot => knot(&room, zone::MASTER, "")?,
            Server::KnotXdp => knot_xdp(&room)?,
            Server::KnotGeoip => knot_geoip(&room)?,
            Server::Nsd => nsd_with(&room, "  server-count: 1\n  tcp-count: 1000\n")?,
            Server::Gdnsd => gdnsd(&room)?,
            Server::Pdns => pdns(&room)?,
        };
        run(self.name(), &mut command, &room)
    }
}

/// Starts a program and returns when it answers.
///
/// # Errors
/// Where it does not; with the end of what it said.
pub(crate) fn run(name: &str, command: &mut Command, room: &Path) -> Result<Running> {
    run_until(name, command, room, |answer| answer[3] & 15 == 0 && answer[7] > 0)
}

/// Starts a program and returns when it answers so; what is asked has at least a header.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_until(
    name: &str,
    command: &mut Command,
    room: &Path,
    is_answer: impl Fn(&[u8]) -> bool + Send,
) -> Result<Running> {
    let log = room.join("log");
    let begin = Instant::now();
    let mut group = Group::start(command, &log)?;
    let query = question::query(0x1234, zone::STATIC);
    let is_there = Side::Source.within(|| {
        let is_vain = || begin.elapsed() >= START_MAX || group.has_ended();
        answers((SERVER, 53).into(), &query, LOOK, is_answer, is_vain)
    })?;
    let started = begin.elapsed();
    if !is_there {
        let said = fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        bail!("{name} does not answer; it said:\n{}", lines[lines.len().saturating_sub(20)..].join("\n"));
    }
    Ok(Running { group, started })
}

/// The release build of ours.
pub(crate) fn program() -> String {
    machine::root().join("target/release/pointsman").display().to_string()
}

/// Ours, with the countries' prefixes as partition, the steered name's policy, and further keys.
fn pointsman(room: &Path, keys: &str) -> Result<Command> {
    write(room, "example.com.zone", zone::MASTER)?;
    write(room, "countries.csv", &steering::partition(&data::countries()?))?;
    write(room, "cdn.json", &zone::policy(zone::STEERED, 0))?;
    let keys = format!("zone = [\"example.com.zone\"]\npolicy = [\"cdn.json\"]\n{keys}");
    pointsman_with(room, &keys, "[[partition]]\ncsv = \"countries.csv\"\n")
}

/// Ours, with these lines of configuration; its store is in `room`, and stays there.
///
/// # Errors
/// Where the configuration cannot be written.
pub(crate) fn pointsman_with(room: &Path, keys: &str, tables: &str) -> Result<Command> {
    let config = format!(
        "version = \"v1\"\nlisten = [\"{SERVER}:53\"]\napi = \"{API}\"\nworkers = 1\nstore = \"sqlite:{}\"\n{keys}\n\
         [tcp]\nconnections_max = 20000\nper_client_max = 20000\n\n{tables}",
        room.join("store.db").display(),
    );
    write(room, "pointsman.toml", &config)?;
    let mut command = Side::Server.command(&program());
    command.args(["serve", "--config"]).arg(room.join("pointsman.toml"));
    Ok(command)
}

/// Knot with this zone, and further lines of configuration: of the server above, of the zone below.
///
/// # Errors
/// Where the configuration cannot be written.
pub(crate) fn knot(room: &Path, master: &str, modules: &str) -> Result<Command> {
    write(room, "example.com.zone", master)?;
    let folder = room.display();
    let module = if modules.is_empty() { "" } else { "    module: mod-geoip/weights\n" };
    let config = format!(
        "server:\n    listen: {SERVER}@53\n    udp-workers: 1\n    tcp-workers: 1\n    background-workers: 1\n    \
         rundir: {folder}\n    tcp-max-clients: 20000\ndatabase:\n    storage: {folder}\nlog:\n  - target: stderr\n    any: warning\n\
         {modules}zone:\n  - domain: {}\n    file: {folder}/example.com.zone\n    zonefile-sync: -1\n    \
         journal-content: none\n{module}",
        zone::ORIGIN,
    );
    write(room, "knot.conf", &config)?;
    let mut command = Side::Server.command("knotd");
    command.arg("-c").arg(room.join("knot.conf"));
    Ok(command)
}

fn knot_xdp(room: &Path) -> Result<Command> {
    let command = knot(room, zone::MASTER, "")?;
    let mut config = OpenOptions::new().append(true).open(room.join("knot.conf")).context("knot.conf")?;
    writeln!(config, "xdp:\n    listen: {}@53", Side::Server.device()).context("knot.conf")?;
    Ok(command)
}

fn knot_geoip(room: &Path) -> Result<Command> {
    let mut weights = format!("{}:\n", zone::STEERED);
    for (index, weight) in steering::WEIGHTS.iter().enumerate() {
        weights += &format!("  - weight: {weight}\n    A: {}\n", steering::address(index));
    }
    write(room, "weights.conf", &weights)?;
    let modules = format!(
        "mod-geoip:\n  - id: weights\n    config-file: {}/weights.conf\n    ttl: 300\n    mode: weighted\n",
        room.display(),
    );
    knot(room, zone::MASTER, &modules)
}

/// NSD, with further lines of its server clause.
///
/// # Errors
/// Where the configuration cannot be written.
pub(crate) fn nsd_with(room: &Path, more: &str) -> Result<Command> {
    write(room, "example.com.zone", zone::MASTER)?;
    let zone = format!("zone:\n  name: {}\n  zonefile: example.com.zone\n", zone::ORIGIN);
    let config = tests::peer::nsd(room, (SERVER, 53).into(), &format!("  verbosity: 0\n{more}"), &zone);
    write(room, "nsd.conf", &config)?;
    let mut command = Side::Server.command("nsd");
    command.arg("-d").arg("-c").arg(room.join("nsd.conf"));
    Ok(command)
}

fn gdnsd(room: &Path) -> Result<Command> {
    fs::create_dir_all(room.join("zones")).context("zones")?;
    let dynamic = zone::MASTER.replace("cdn IN A 192.0.2.1", "cdn 300 IN DYNA weighted!cdn");
    // It has no $ORIGIN at the top that differs from the file's name, and wants none.
    write(room, "zones/example.com", &dynamic.replace("$ORIGIN example.com.\n", ""))?;
    let weights: Vec<String> = (0..steering::WEIGHTS.len())
        .map(|index| format!("a{index} = [ {}, {} ]", steering::address(index), steering::WEIGHTS[index]))
        .collect();
    let folder = room.display();
    let config = format!(
        "options => {{\n  listen => [ {SERVER} ]\n  udp_threads = 1\n  tcp_threads = 1\n  run_dir = \"{folder}/run\"\n  \
         state_dir = \"{folder}/state\"\n}}\nplugins => {{ weighted => {{\n  service_types = up\n  cdn => {{\n    {}\n  }}\n}} }}\n",
        weights.join("\n    "),
    );
    fs::create_dir_all(room.join("run")).context("run")?;
    fs::create_dir_all(room.join("state")).context("state")?;
    write(room, "config", &config)?;
    let mut command = Side::Server.command("gdnsd");
    command.arg("-c").arg(room).arg("start");
    Ok(command)
}

fn pdns(room: &Path) -> Result<Command> {
    let mut zones = String::from(
        "domains:\n- domain: example.com\n  ttl: 300\n  records:\n    example.com:\n    - soa: ns.example.com \
         hostmaster.example.com 1 7200 600 1209600 300\n    - ns: ns.example.com\n    ns.example.com:\n    - a: \
         192.0.2.53\n    www.example.com:\n    - a: 192.0.2.80\n    cdn.example.com:\n",
    );
    for (index, weight) in steering::WEIGHTS.iter().enumerate() {
        zones += &format!("    - a: {{content: {}, weight: {weight}}}\n", steering::address(index));
    }
    write(room, "zones.yaml", &zones)?;
    let folder = room.display();
    let config = format!(
        "launch=geoip\ngeoip-zones-file={folder}/zones.yaml\ngeoip-database-files=\nlocal-address={SERVER}\nlocal-port=53\n\
         receiver-threads=1\ndistributor-threads=1\nsocket-dir={folder}\nloglevel=3\nsecurity-poll-suffix=\nguardian=no\ndaemon=no\n",
    );
    write(room, "pdns.conf", &config)?;
    let mut command = Side::Server.command("pdns_server");
    command.arg(format!("--config-dir={folder}"));
    Ok(command)
}

fn write(room: &Path, name: &str, text: &str) -> Result<()> {
    let path = room.join(name);
    fs::write(&path, text).with_context(|| format!("{}", path.display()))
}
