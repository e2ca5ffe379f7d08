//! TCP: queries over connections that are kept, and connections for one query each.

use std::fs;

use anyhow::{Context, Result};

use super::place::{Place, SERVER, Side};
use super::process;
use super::rate::TRIES;
use super::source::Source;
use super::zone;

/// Connections that are kept.
const KEPT: usize = 100;

/// The rates of connections that are tried, in connections a second.
const RATES: &[u64] = &[1_000, 2_000, 5_000, 10_000, 15_000, 20_000, 25_000, 30_000, 40_000, 50_000, 60_000];

/// The least share of connections that must have their answer.
const ANSWERED_MIN: f64 = 0.98;

/// What was measured over TCP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// Queries a second over [`KEPT`] connections.
    pub(crate) queries: f64,
    /// Answered connections a second, at the highest rate of which [`ANSWERED_MIN`] were answered in one try.
    pub(crate) connections: f64,
}

/// Measures the server that runs: dnsperf on kept connections as fast as it goes, kxdpgun at rising rates of
/// new ones.
///
/// # Errors
/// Where a source fails.
pub(crate) fn measure(place: &Place, source: &Source, quick: bool) -> Result<Found> {
    let seconds = if quick { 3 } else { 10 };
    let queries = place.folder.join("tcp.queries");
    fs::write(&queries, format!("{} A\n", zone::STATIC)).with_context(|| format!("{}", queries.display()))?;
    let mut command = Side::Source.command("dnsperf");
    command.args(["-m", "tcp", "-T", "1", "-c", &KEPT.to_string(), "-l", &seconds.to_string()]);
    command.args(["-q", "1000", "-s", &SERVER.to_string(), "-p", "53", "-d"]).arg(&queries);
    let text = process::read(&mut command)?;
    let per_second = queries_per_second(&text).with_context(|| format!("dnsperf said:\n{text}"))?;
    let mut connections: f64 = 0.0;
    for &rate in RATES {
        let Some(answered) = lossless(source, rate, if quick { 1 } else { TRIES })? else { break };
        connections = answered;
    }
    Ok(Found { queries: per_second, connections })
}

/// How many connections a second were answered of so many; `None` where that was too few in each of the tries.
fn lossless(source: &Source, rate: u64, tries: usize) -> Result<Option<f64>> {
    for _ in 0..tries {
        let seen = source.connections(rate, 2)?;
        if seen.share() >= ANSWERED_MIN && seen.offered() >= ANSWERED_MIN * rate as f64 {
            return Ok(Some(seen.rate()));
        }
    }
    Ok(None)
}

/// The rate that dnsperf tells at its end; `None` where it does not.
pub(crate) fn queries_per_second(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("Queries per second:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read() {
        let text = "  Run time (s):         3.0\n  Queries per second:   19422.242968\n";
        assert_eq!(queries_per_second(text), Some(19422.242968));
        assert_eq!(queries_per_second("Warning: nothing\n"), None);
    }
}
