//! Who sends, each from one core of the source's side.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use api::replay::ReplayReport;
use experiments::process::{PROMPT, replayed};

use crate::machine;
use crate::serve::place::{SERVER, Side};
use crate::serve::process;
use crate::serve::servers::program;
use crate::serve::tcp::queries_per_second;

/// The source addresses of our clients, where one socket sends for all of them: all of it is local there.
pub(crate) const PREFIX: &str = "10.100.0.0/16";

/// Unanswered queries of a sender that goes as fast as it can: both have the same.
const WINDOW: &str = "1000";

/// What the versions of the senders are.
pub(crate) fn versions() -> Vec<(&'static str, String)> {
    vec![
        ("pointsman", machine::said(&program(), &["--version"])),
        ("dnsperf", machine::said("dnsperf", &["-h"])),
        ("dnsreplay", machine::said("dnsreplay", &["--version"])),
        ("kxdpgun", machine::said("kxdpgun", &["--version"])),
    ]
}

/// Makes [`PREFIX`] local to the source's side.
///
/// # Errors
/// Where the route is refused.
pub(crate) fn allow_prefix() -> Result<()> {
    let mut command = Side::Source.command("ip");
    process::read(command.args(["route", "add", "local", PREFIX, "dev", "lo"])).map(drop)
}

/// A sender that keeps times, before others.
fn prompt(program: &str) -> Command {
    let [nice, more @ ..] = PROMPT;
    let mut command = Side::Source.command(nice);
    command.args(more).arg(program);
    command
}

/// Sends a trace on time with our replayer; returns its report.
///
/// # Errors
/// Where it fails.
pub(crate) fn pointsman(trace: &Path, options: &[&str]) -> Result<ReplayReport> {
    let mut command = prompt(&program());
    command.arg("replay").arg(trace);
    command.args([
        "--server",
        &format!("{SERVER}:53"),
        "--transport",
        "udp=100%",
        "--tolerance",
        "1h",
        "--json",
    ]);
    replayed(command.args(options))
}

/// As [`pointsman`], but as fast as answers come back, with one row a query kept; returns answers a second.
///
/// # Errors
/// As [`pointsman`].
pub(crate) fn pointsman_fast(names: &Path, log: &Path, queries: u64, more: &[&str]) -> Result<f64> {
    let _ = std::fs::remove_file(log);
    let mut command = Side::Source.command(&program());
    command.arg("replay").arg(names).arg("--log").arg(log).args(["--limit", &queries.to_string()]);
    command.args(["--server", &format!("{SERVER}:53"), "--fast", "--window", WINDOW, "--loop", "100000"]);
    let report = replayed(command.args(["--tolerance", "1h", "--json"]).args(more))?;
    Ok(report.answers as f64 / report.seconds)
}

/// dnsperf as fast as answers come back; answers a second.
///
/// # Errors
/// Where it fails.
pub(crate) fn dnsperf_fast(names: &Path, seconds: u64) -> Result<f64> {
    let text = process::read(dnsperf(Side::Source.command("dnsperf"), names, seconds).args(["-q", WINDOW]))?;
    queries_per_second(&text).with_context(|| format!("dnsperf said:\n{text}"))
}

/// dnsperf at a rate.
///
/// # Errors
/// Where it fails.
pub(crate) fn dnsperf_rate(names: &Path, rate: u64, seconds: u64) -> Result<()> {
    process::read(dnsperf(prompt("dnsperf"), names, seconds).args(["-Q", &rate.to_string()])).map(drop)
}

fn dnsperf(mut command: Command, names: &Path, seconds: u64) -> Command {
    command.args([
        "-T",
        "1",
        "-c",
        "1",
        "-l",
        &seconds.to_string(),
        "-s",
        &SERVER.to_string(),
        "-p",
        "53",
        "-d",
    ]);
    command.arg(names);
    command
}

/// kxdpgun at a rate, one query at a time.
///
/// # Errors
/// Where it fails.
pub(crate) fn kxdpgun_rate(names: &Path, rate: u64, seconds: u64) -> Result<()> {
    let mut command = prompt("kxdpgun");
    command.args([
        "-I",
        "vc",
        "-b",
        "1",
        "-p",
        "53",
        "-Q",
        &rate.to_string(),
        "-t",
        &seconds.to_string(),
        "-i",
    ]);
    process::read(command.arg(names).arg(SERVER.to_string())).map(drop)
}

/// dnsreplay with a capture in pcap; what it says, and how long it took.
///
/// # Errors
/// Where it fails.
pub(crate) fn dnsreplay(capture: &Path) -> Result<Duration> {
    let mut command = prompt("dnsreplay");
    let begin = Instant::now();
    process::read(command.arg("--quiet=1").arg(capture).arg(SERVER.to_string()).arg("53"))?;
    Ok(begin.elapsed())
}
