//! What is sent: LDplayer's synthetic traces, a real minute of a root server, and names for the highest rate.

use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use fastrand::Rng;
use replay::schedule::census::Census;
use replay::schedule::{Clients, Pacing, Plan, Schedule};
use replay::trace::{PORT, Trace};

use crate::errors::SECOND;

/// A real minute of a root server, in the test data.
pub const MINUTE: &str = "replay/nsd-live.raw.pcap.xz";

/// The rate of LDplayer's B-Root traces, in queries a second.
const ROOT_RATE: f64 = 38_000.0;

/// Clients of a synthetic trace, as LDplayer's Table 1 has them.
const CLIENTS: u32 = 10_000;

/// Names in a query file: more than senders remember.
const NAMES: usize = 100_000;

/// Writes queries with equal gaps, each for a name of its own from one of 10,000 random clients in
/// 172.16.0.0/12 (LDplayer's syn-0 to syn-4); returns their due times.
///
/// # Errors
/// Where it cannot be written.
pub fn even(path: &Path, gap: Duration, length: Duration, seed: u64) -> Result<Vec<u64>> {
    let mut rng = Rng::with_seed(seed);
    let clients: Vec<Ipv4Addr> =
        (0..CLIENTS).map(|_| Ipv4Addr::from_bits(0xac10_0000 | rng.u32(..1 << 20))).collect();
    let mut text = String::new();
    let mut dues = Vec::new();
    while let Some(due) = gap.checked_mul(dues.len() as u32).filter(|due| *due < length) {
        let client = clients[rng.usize(..clients.len())];
        let (seconds, rest) = (due.as_secs(), due.subsec_nanos());
        let _ = writeln!(text, "{seconds}.{rest:09} {client}:5353 udp q{}.example. A rd", dues.len());
        dues.push(due.as_nanos() as u64);
    }
    fs::write(path, text).with_context(|| format!("{}", path.display()))?;
    Ok(dues)
}

/// When the queries of a trace are due, with its clients so many times.
///
/// # Errors
/// Where the trace cannot be read.
pub fn recorded(path: &Path, factor: f64, loops: u64, limit: Option<u64>, seed: u64) -> Result<Vec<u64>> {
    let open = || Trace::open(path, PORT);
    let clients = Clients::Factor { factor, spread: None };
    let plan = Plan { pacing: Pacing::Recorded { speed: 1.0 }, clients, limit, loops, seed };
    let census = match plan.wanted() {
        Some(wanted) => Census::of(open()?, wanted)?,
        None => Census::default(),
    };
    let mut schedule = Schedule::new(plan, Arc::new(census), open);
    let mut dues = Vec::new();
    while let Some(planned) = schedule.next_query()? {
        dues.push(planned.due);
    }
    Ok(dues)
}

/// How many seconds a trace is long, and by which factor it has the rate of LDplayer's B-Root traces: 38,000 queries a
/// second.
///
/// # Errors
/// Where it cannot be read.
pub fn to_root_rate(path: &Path, seed: u64) -> Result<(f64, f64)> {
    let once = recorded(path, 1.0, 1, None, seed)?;
    let length = once.last().copied().unwrap_or(SECOND) as f64 / SECOND as f64;
    Ok((length, ROOT_RATE / (once.len() as f64 / length)))
}

/// Writes a query file of 100,000 names.
///
/// # Errors
/// Where it cannot be written.
pub fn names(path: &Path) -> Result<()> {
    let mut text = String::new();
    for i in 0..NAMES {
        let _ = writeln!(text, "q{i}.example A");
    }
    fs::write(path, text).with_context(|| format!("{}", path.display()))
}
