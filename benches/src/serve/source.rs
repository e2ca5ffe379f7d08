//! The source of queries: kxdpgun, which sends and receives below the kernel's UDP path.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::place::{Place, SERVER, Side};
use super::process;

/// The addresses that queries come from: 2^28 of them, in a part of IPv4 with many prefixes of many countries,
/// so that look-ups of the clients' regions differ.
const CLIENTS: &str = "80.0.0.0/4";

/// Datagrams that are handed over together.
const BATCH: &str = "32";

/// The least share of answers that must be NOERROR. What is counted as an answer must be one.
const GOOD_MIN: f64 = 0.999;

/// What kxdpgun says, and then ends as if all were well, while the kernel still holds the interface's queue for
/// the one before it.
const SOCKET_BUSY: &str = "requested resource is busy";

/// Tries to get the queue, and the time between two: the kernel gives it back a moment after the end.
const SOCKET_TRIES: usize = 20;
const SOCKET_PAUSE: Duration = Duration::from_millis(250);

/// Sends queries, again and again.
#[derive(Debug)]
pub(crate) struct Source {
    queries: PathBuf,
}

/// What one run of the source saw.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// How long it sent, in seconds.
    pub(crate) seconds: f64,
    /// Queries sent; over TCP, connections begun.
    pub(crate) sent: u64,
    /// Answers received.
    pub(crate) answered: u64,
    /// Answers of them that say NOERROR.
    pub(crate) good: u64,
}

impl Seen {
    /// Queries a second that were really sent.
    pub(crate) fn offered(&self) -> f64 {
        self.sent as f64 / self.seconds
    }

    /// Answers a second.
    pub(crate) fn rate(&self) -> f64 {
        self.answered as f64 / self.seconds
    }

    /// The share of queries that were answered.
    pub(crate) fn share(&self) -> f64 {
        self.answered as f64 / (self.sent as f64).max(1.0)
    }
}

impl Source {
    /// A source of queries for the IPv4 addresses of `name`.
    ///
    /// # Errors
    /// Where its file cannot be written.
    pub(crate) fn new(place: &Place, name: &str) -> Result<Source> {
        Source::of(place, name, &format!("{name} A\n"))
    }

    /// A source of these queries, a line each, `name type`.
    ///
    /// # Errors
    /// Where its file, which is called so, cannot be written.
    pub(crate) fn of(place: &Place, name: &str, lines: &str) -> Result<Source> {
        let queries = place.folder.join(format!("{name}.queries"));
        fs::write(&queries, lines).with_context(|| format!("{}", queries.display()))?;
        Ok(Source { queries })
    }

    /// Sends at this rate, over UDP.
    ///
    /// # Errors
    /// Where the source fails, or the answers are not those that were asked for.
    pub(crate) fn udp(&self, rate: u64, seconds: u64) -> Result<Seen> {
        self.good(&["-b", BATCH], rate, seconds)
    }

    /// The same beyond what can be answered, where other answers are to be expected.
    ///
    /// # Errors
    /// Where the source fails.
    pub(crate) fn flood(&self, rate: u64, seconds: u64) -> Result<Seen> {
        Ok(self.run(&["-b", BATCH], rate, seconds)?.0)
    }

    /// Begins connections at this rate, each for one query.
    ///
    /// # Errors
    /// As [`Source::udp`].
    pub(crate) fn connections(&self, rate: u64, seconds: u64) -> Result<Seen> {
        self.good(&["-T"], rate, seconds)
    }

    fn good(&self, transport: &[&str], rate: u64, seconds: u64) -> Result<Seen> {
        let (seen, text) = self.run(transport, rate, seconds)?;
        if (seen.good as f64) < seen.answered as f64 * GOOD_MIN {
            bail!("of {} answers only {} are NOERROR; kxdpgun said:\n{text}", seen.answered, seen.good);
        }
        Ok(seen)
    }

    /// What was seen, with all that the source said.
    fn run(&self, transport: &[&str], rate: u64, seconds: u64) -> Result<(Seen, String)> {
        let mut command = Side::Source.command("kxdpgun");
        command.args(transport);
        command.args(["-I", "vc", "-l", CLIENTS, "-p", "53", "-Q", &rate.to_string()]);
        command.args(["-t", &seconds.to_string(), "-i"]).arg(&self.queries).arg(SERVER.to_string());
        let mut text = process::read(&mut command)?;
        for _ in 1..SOCKET_TRIES {
            if !text.contains(SOCKET_BUSY) {
                break;
            }
            thread::sleep(SOCKET_PAUSE);
            text = process::read(&mut command)?;
        }
        let seen = seen(&text, seconds as f64).with_context(|| format!("kxdpgun said:\n{text}"))?;
        Ok((seen, text))
    }
}

/// Reads kxdpgun's summary. Over TCP the first line counts connections begun.
fn seen(text: &str, seconds: f64) -> Option<Seen> {
    let number = |starts: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(starts))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let sent = number("total SYNs:").or_else(|| number("total queries:"))?;
    // Without any answer it leaves these lines out.
    let answered = number("total replies:").unwrap_or(0);
    let good = number("responded NOERROR:").unwrap_or(0);
    Some(Seen { seconds, sent, answered, good })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read() {
        let text = "using interface vc, XDP threads 1, UDP, native mode\n\
                    thread#00: sent 100000, received 99990\n\
                    total queries:     100000 (50000 pps)\n\
                    total replies:     99990 (49995 pps) (99%)\n\
                    average DNS reply size: 49 B\n\
                    responded NOERROR: 99980\n\
                    duration: 2 s\n";
        let expected = Seen { seconds: 2.0, sent: 100_000, answered: 99_990, good: 99_980 };
        assert_eq!(seen(text, 2.0), Some(expected));
        assert_eq!(seen("total queries:     5 (1 pps)\n", 5.0).map(|seen| seen.answered), Some(0));
        assert_eq!(seen("error: no such interface\n", 2.0), None);
    }
}
