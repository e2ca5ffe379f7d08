//! As many clients with a connection each as the descriptors of several processes allow, and what a connection costs.

use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use api::replay::ReplayReport;
use experiments::nsd::tls;

use super::senders;
use crate::report::{Limit, Report, Table};
use crate::serve::place::{Place, SERVER, Side};
use crate::serve::process::Group;
use crate::serve::servers::{self, program};
use crate::serve::zone;

/// Of the replay: each holds 80 % of its descriptors at most, of which there are 20,000.
const PROCESSES: u32 = 3;

/// Processes of NSD, which closes idle connections at once where more than half of those that it may have are open.
const SERVERS: u32 = 6;

/// Clients, each with one connection: what that many processes can hold, less what a hash shares out unevenly.
const CLIENTS: u32 = 46_000;
const CLIENTS_QUICK: u32 = 1_500;

/// Clients of the run whose memory is taken off: what there is without connections.
const CLIENTS_FEW: u32 = 100;

/// The first of the clients' addresses, in [`senders::PREFIX`].
const FIRST: u32 = 0x0a64_0001;

/// The time between two new connections: a handshake of TLS takes both ends' cores.
const TCP_GAP: Duration = Duration::from_micros(250);
const TLS_GAP: Duration = Duration::from_micros(1_500);

/// Between the last connection and the second round of queries, when all must still be there.
const PAUSE: Duration = Duration::from_secs(2);

/// Between two looks at the memory of both ends.
const LOOK: Duration = Duration::from_millis(250);

/// The port of DNS over TLS, of all of NSD's processes.
const TLS_PORT: u16 = 853;

/// Before the ports of NSD's processes, one each: over one port for all, a process that is awake accepts more than
/// its share, until it has too many.
const PORTS_BEFORE: u32 = 5300;

/// Measures connections over TCP and over TLS.
///
/// # Errors
/// Where NSD or the replay fails.
pub(super) fn run(quick: bool, place: &Place, report: &mut Report) -> Result<()> {
    let clients = if quick { CLIENTS_QUICK } else { CLIENTS };
    let mut rows = Vec::new();
    for (transport, gap) in [("tcp", TCP_GAP), ("tls", TLS_GAP)] {
        let few = play(place, transport, gap, CLIENTS_FEW)?;
        let many = play(place, transport, gap, clients)?;
        println!("{transport}: {} connections at once, {} answers", many.open, many.answers);
        let more = f64::from(clients - CLIENTS_FEW);
        let each = |of: fn(&Held) -> u64| {
            format!("{:.1}", of(&many).saturating_sub(of(&few)) as f64 / more / 1024.0)
        };
        rows.push(vec![
            transport.to_owned(),
            many.open.to_string(),
            many.begun.to_string(),
            each(|held| held.replay),
            each(|held| held.server),
            each(|held| held.machine),
        ]);
        let clients = f64::from(clients);
        report.must(
            format!("{transport}: connections at once, of {clients}"),
            Limit::AtLeast(clients),
            Some(many.open as f64),
        );
        let answered = many.answers as f64 / (2.0 * clients);
        report.must(
            format!("{transport}: two queries a client, answered"),
            Limit::AtLeast(1.0),
            Some(answered),
        );
    }
    report.add(Table {
        title: "Clients with a connection each, all open at once, and KiB of memory for each",
        head: &["transport", "at once", "begun", "replay", "NSD", "machine in all, kernel too"],
        rows,
    });
    report.note(format!(
        "Connections: {PROCESSES} processes of the replay on one core, and {SERVERS} of Debian's NSD on the other, with at \
         most 20,000 descriptors each. Memory: the most that was seen, less that of a run with {CLIENTS_FEW} clients.",
    ));
    Ok(())
}

/// What was held at once, at most; memory in octets.
struct Held {
    open: u64,
    begun: u64,
    answers: u64,
    replay: u64,
    server: u64,
    machine: u64,
}

fn play(place: &Place, transport: &str, gap: Duration, clients: u32) -> Result<Held> {
    let room = place.room("connections")?;
    let trace = room.join("clients.txt");
    fs::write(&trace, queries(gap, clients)).with_context(|| format!("{}", trace.display()))?;
    let before = available()?;
    let server = servers::run("nsd", &mut nsd(&room)?, &room)?.group;
    let mut command = Side::Source.command(&program());
    let addresses: Vec<String> = (1..=SERVERS).map(|at| format!("{SERVER}:{}", PORTS_BEFORE + at)).collect();
    command.arg("replay").arg(&trace).args(["--server", &addresses.join(","), "--transport"]);
    command.arg(format!("{transport}=100%")).args(["--source-prefix", senders::PREFIX, "--idle", "1h"]);
    command.args([
        "--tls-port",
        &TLS_PORT.to_string(),
        "--insecure",
        "--timeout",
        "30s",
        "--tolerance",
        "1h",
    ]);
    command.args(["--processes", &PROCESSES.to_string(), "--threads", "1", "--json"]);
    let log = room.join("replay.log");
    let mut replay = Group::start(&mut command, &log)?;
    let mut held = Held { open: 0, begun: 0, answers: 0, replay: 0, server: 0, machine: 0 };
    while !replay.has_ended() {
        held.replay = held.replay.max(replay.memory()?);
        held.server = held.server.max(server.memory()?);
        held.machine = held.machine.max(before.saturating_sub(available()?));
        thread::sleep(LOOK);
    }
    let said = fs::read_to_string(&log).with_context(|| format!("{}", log.display()))?;
    let report = said.find('{').and_then(|from| serde_json::from_str(&said[from..]).ok());
    let report: ReplayReport = report.with_context(|| format!("no report; it said:\n{said}"))?;
    let sockets = &report.sockets;
    held.open = sockets.most_open;
    held.begun = if transport == "tls" { sockets.tls } else { sockets.tcp };
    held.answers = report.answers;
    Ok(held)
}

/// Two queries a client: a round that opens all connections, and one over those.
fn queries(gap: Duration, clients: u32) -> String {
    let again = gap * clients + PAUSE;
    let rounds = [(Duration::ZERO, gap), (again, TCP_GAP)];
    let mut text = String::new();
    for (begin, gap) in rounds {
        for i in 0..clients {
            let due = begin + gap * i;
            let (seconds, rest, client) = (due.as_secs(), due.subsec_nanos(), Ipv4Addr::from_bits(FIRST + i));
            let _ = writeln!(text, "{seconds}.{rest:09} {client}:5353 tcp {} A rd", zone::STATIC);
        }
    }
    text
}

/// NSD with as many connections as its processes may hold, in clear and over TLS.
fn nsd(room: &Path) -> Result<Command> {
    let tls = tls(room, (SERVER, TLS_PORT).into())?;
    let addresses: String = (1..=SERVERS)
        .map(|at| format!("  ip-address: {SERVER}@{} servers=\"{at}\"\n", PORTS_BEFORE + at))
        .collect();
    let processes = format!("  server-count: {SERVERS}\n  reuseport: yes\n");
    let limits = "  tcp-count: 19000\n  tcp-timeout: 600\n";
    servers::nsd_with(room, &[&addresses, &processes, limits, &tls].concat())
}

/// Octets of the machine's memory that programs can still have.
fn available() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let Some(kib) = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()) else {
        bail!("/proc/meminfo does not say what is available");
    };
    Ok(kib * 1024)
}
