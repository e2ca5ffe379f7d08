//! `pointsman trace`: what recorded traffic is like, and the same traffic in another form.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use api::{Fault, TraceInfo};
use clap::{Args, Subcommand};
use replay::trace::{self, PORT, Skip, Skipped, Summary, text};

use crate::failure::Failure;
use crate::session;

/// The most lines of a share in the table for people: the rest is one more line. `--json` has all.
const SHARES_SHOWN: usize = 8;

/// How long a command may take before it says how far it is, and how often it then does.
const PROGRESS_AFTER: Duration = Duration::from_secs(1);
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// The arguments of `trace`.
#[derive(Args, Debug)]
pub(crate) struct Trace {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Tell what a trace is like: start, length, clients, queries, their shares, and what was skipped
    #[command(after_help = "Example:\n  pointsman trace info yesterday.pcap.xz")]
    Info {
        /// A capture (pcap, pcapng) or a text of queries, plain, gzip or xz
        file: PathBuf,
        /// Where the servers in the capture listen
        #[arg(long, default_value_t = PORT)]
        port: u16,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a trace as lines of text (.txt, queries only) or as a new capture (.pcap)
    #[command(after_help = "Example:\n  pointsman trace convert yesterday.pcap.xz yesterday.txt")]
    Convert {
        /// A capture (pcap, pcapng) or a text of queries, plain, gzip or xz
        file: PathBuf,
        /// Where to write: FILE.txt or FILE.pcap; it must not be there yet
        out: PathBuf,
        /// Where the servers in the capture listen
        #[arg(long, default_value_t = PORT)]
        port: u16,
    },
}

impl Trace {
    /// Does it.
    ///
    /// # Errors
    /// [`Failure`]; what could be read of a damaged trace is printed or written before.
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.action {
            Action::Info { file, port, json } => info(&file, port, json),
            Action::Convert { file, out, port } => convert(&file, &out, port),
        }
    }
}

fn info(file: &Path, port: u16, json: bool) -> Result<(), Failure> {
    let mut trace = open(file, port)?;
    let info = Summary::of(&mut trace);
    if json {
        // A shape of strings and finite numbers.
        print_json(&info)?;
    } else if info.queries + info.responses > 0 {
        session::print(shown(&info).as_bytes())?;
    }
    if let Some(damage) = &info.damage {
        let place = place(damage.packet, damage.offset);
        return Err(Failure::Failed(format!("{}: {place}: {}", file.display(), damage.what)));
    }
    if info.queries + info.responses == 0 {
        return Err(nothing(file, port, trace.skipped()));
    }
    Ok(())
}

fn convert(file: &Path, out: &Path, port: u16) -> Result<(), Failure> {
    let is_text = match out.extension().and_then(|extension| extension.to_str()) {
        Some("txt") => true,
        Some("pcap") => false,
        _ => {
            let what = "the form is told by the end of its name, and this one is not supported";
            return Err(fault(out, what, "FILE.txt or FILE.pcap"));
        }
    };
    let trace = open(file, port)?;
    let to = File::create_new(out).map_err(|cause| fault(out, &format!("it cannot be made: {cause}"), ""))?;
    let done = write(trace, BufWriter::new(to), is_text)
        .map_err(|cause| Failure::Failed(format!("{}: {cause}", out.display())))?;
    if done.written + done.left_out == 0 && done.damage.is_none() {
        let _ = std::fs::remove_file(out);
        return Err(nothing(file, port, &done.skipped));
    }
    let left_out = match done.left_out {
        0 => String::new(),
        count => {
            format!(", {count} left out that a line has no words for (responses and what is no plain query)")
        }
    };
    session::print(format!("{}: {} messages{left_out}", out.display(), done.written).as_bytes())?;
    done.damage.map_or(Ok(()), |damage| {
        let place = place(damage.packet, damage.offset);
        Err(Failure::Failed(format!("{}: {place}: {}", file.display(), damage.what)))
    })
}

/// What came of a conversion.
struct Done {
    written: u64,
    left_out: u64,
    skipped: Skipped,
    damage: Option<trace::Damage>,
}

fn write(mut trace: trace::Trace, mut to: impl Write, is_text: bool) -> io::Result<Done> {
    let mut done = Done { written: 0, left_out: 0, skipped: Skipped::default(), damage: None };
    if is_text {
        writeln!(to, "{}", text::HEADING)?;
        for message in trace.by_ref() {
            match message.map(|message| text::line(&message)) {
                Ok(Some(line)) => {
                    writeln!(to, "{line}")?;
                    done.written += 1;
                }
                Ok(None) => done.left_out += 1,
                Err(damage) => done.damage = Some(damage),
            }
        }
        to.flush()?;
    } else {
        let mut packets = trace::pcap::Writer::new(to)?;
        for message in trace.by_ref() {
            match message {
                Ok(message) => {
                    packets.write(&message)?;
                    done.written += 1;
                }
                Err(damage) => done.damage = Some(damage),
            }
        }
        packets.finish()?;
    }
    done.skipped = trace.skipped().clone();
    Ok(done)
}

fn open(path: &Path, port: u16) -> Result<trace::Trace, Failure> {
    let file = File::open(path).map_err(|cause| fault(path, &format!("it cannot be read: {cause}"), ""))?;
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    trace::Trace::read(Progress::new(file, length), port).map_err(|error| fault(path, &error.to_string(), ""))
}

fn fault(path: &Path, what: &str, expected: &str) -> Failure {
    Failure::Faults(Fault::whole(path.to_string_lossy(), what, expected).into())
}

fn place(packet: u64, offset: u64) -> String {
    format!("packet or line {packet}, octet {offset} of the uncompressed file")
}

/// What to say of a trace without a message: what was there instead.
fn nothing(file: &Path, port: u16, skipped: &Skipped) -> Failure {
    let instead: Vec<String> = described(skipped.iter());
    let instead = if instead.is_empty() {
        "it has no packets at all".into()
    } else {
        format!("instead there are packets {}", instead.join(", "))
    };
    let hint = if skipped.of(Skip::OtherPort) > 0 { "\n--port tells where the servers listen." } else { "" };
    Failure::Failed(format!("{}: no DNS message at port {port}; {instead}{hint}", file.display()))
}

fn described(skipped: impl Iterator<Item = (Skip, u64)>) -> Vec<String> {
    skipped.map(|(skip, count)| format!("{} ({count})", skip.description())).collect()
}

fn print_json(info: &TraceInfo) -> Result<(), Failure> {
    let json = serde_json::to_vec_pretty(info)
        .map_err(|cause| Failure::Failed(format!("the numbers are no JSON: {cause}")))?;
    session::print(&json)
}

/// LDplayer's row of a trace, then the shares.
fn shown(info: &TraceInfo) -> String {
    let mut row = session::table(&["START", "LENGTH", "INTER-ARRIVAL", "CLIENTS", "QUERIES"]);
    row.add_row([
        utc(info.start_ns),
        format!("{:.3} s", info.seconds),
        format!("{:.6} ± {:.6} s", info.gap_mean_seconds, info.gap_deviation_seconds),
        info.clients.to_string(),
        info.queries.to_string(),
    ]);
    let mut shares = session::table(&["OF", "WHAT", "COUNT", "SHARE"]);
    let mut add = |of: &str, counts: &BTreeMap<String, u64>, total: u64| {
        let mut counts: Vec<(&str, u64)> =
            counts.iter().map(|(what, count)| (what.as_str(), *count)).collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let rest = counts.split_off(counts.len().min(SHARES_SHOWN));
        if !rest.is_empty() {
            counts.push(("others", rest.iter().map(|(_, count)| count).sum()));
        }
        for (what, count) in counts {
            shares.add_row([of.to_owned(), what.to_owned(), count.to_string(), percent(count, total)]);
        }
    };
    add("transport", &info.transports, info.queries);
    add("DNSSEC", &BTreeMap::from([("DO".into(), info.dnssec_ok)]), info.queries);
    add("EDNS size", &info.edns_sizes, info.queries);
    add("type", &info.types, info.queries);
    if info.unreadable > 0 {
        add("type", &BTreeMap::from([("unreadable".into(), info.unreadable)]), info.queries);
    }
    add("responses", &info.rcodes, info.responses);
    let skipped = Skip::ALL.into_iter().filter_map(|skip| Some((skip, *info.skipped.get(skip.name())?)));
    let skipped: String =
        skipped.map(|(skip, count)| format!("\n  {count:>9} {}", skip.description())).collect();
    let skipped = if skipped.is_empty() { "\n  nothing".into() } else { skipped };
    let steps_back = match info.steps_back {
        0 => String::new(),
        count => {
            format!("\n{count} queries are earlier than the query before them; their gaps are left out.")
        }
    };
    format!(
        "{}\n\nThe busiest 1 % of clients send {:.1} % of the queries.{steps_back}\n\n{}\n\n\
         Skipped of {} packets or lines ({}):{skipped}",
        session::lines(row),
        info.busiest_share * 100.0,
        session::lines(shares),
        info.packets,
        info.format,
    )
}

fn percent(count: u64, total: u64) -> String {
    if total == 0 { "-".into() } else { format!("{:.1} %", count as f64 * 100.0 / total as f64) }
}

/// A time in UTC, to the second (days to civil: Hinnant's algorithm, in years that begin in March).
fn utc(nanos: u64) -> String {
    let seconds = nanos / 1_000_000_000;
    let (days, time) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// A file that says on a terminal how much of it was read.
struct Progress {
    file: File,
    length: u64,
    read: u64,
    next: Option<Instant>,
    is_shown: bool,
}

impl Progress {
    fn new(file: File, length: u64) -> Progress {
        let next = io::stderr().is_terminal().then(|| Instant::now() + PROGRESS_AFTER);
        Progress { file, length, read: 0, next, is_shown: false }
    }
}

impl Read for Progress {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read += read as u64;
        if self.next.is_some_and(|next| Instant::now() >= next) {
            self.next = Some(Instant::now() + PROGRESS_EVERY);
            self.is_shown = true;
            // A terminal that takes nothing is no reason to stop.
            let _ = write!(io::stderr(), "\r{} of the file read", percent(self.read, self.length));
        }
        Ok(read)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_utc() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_475_745_600, "2016-10-06 09:20:00"),
            (4_102_444_800, "2100-01-01 00:00:00"),
        ] {
            assert_eq!(utc(seconds * 1_000_000_000), expected);
        }
    }

    #[test]
    fn lines_become_packets_and_lines_again() {
        let lines = "# time client transport name type flags\n\
                     10.000000001 192.0.2.1:5353 udp Example.com. A rd,edns=1232,do\n\
                     11.000000000 [2001:db8::1]:99 tcp www.example. TYPE65280 -\n";
        let read =
            |file: Vec<u8>| trace::Trace::read(io::Cursor::new(file), PORT).expect("the file is right");
        let mut packets = Vec::new();
        let done = write(read(lines.into()), &mut packets, false).unwrap();
        assert_eq!((done.written, done.left_out), (2, 0));
        let mut again = Vec::new();
        assert_eq!(write(read(packets), &mut again, true).unwrap().written, 2);
        assert_eq!(String::from_utf8(again).unwrap(), lines);
    }

    #[test]
    fn the_table_has_the_row_and_the_shares() {
        let lines = "10.5 192.0.2.1:1 udp a. A rd,edns=1232,do\n12.5 192.0.2.1:1 udp a. MX rd\n";
        let mut trace = trace::Trace::read(io::Cursor::new(lines.as_bytes()), PORT).expect("lines");
        let expected = "\
START                LENGTH   INTER-ARRIVAL          CLIENTS  QUERIES
1970-01-01 00:00:10  2.000 s  2.000000 ± 0.000000 s  1        2

The busiest 1 % of clients send 100.0 % of the queries.

OF         WHAT  COUNT  SHARE
transport  udp   2      100.0 %
transport  tcp   0      0.0 %
DNSSEC     DO    1      50.0 %
EDNS size  1232  1      50.0 %
EDNS size  none  1      50.0 %
type       A     1      50.0 %
type       MX    1      50.0 %

Skipped of 2 packets or lines (text):
  nothing";
        assert_eq!(shown(&Summary::of(&mut trace)), expected);
    }
}
