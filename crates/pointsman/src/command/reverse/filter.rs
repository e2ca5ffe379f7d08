//! `pointsman reverse filter`: names in the place of addresses in a log, from a running service's cache.
//!
//! Lines are taken in batches; the different addresses of one are asked for at once over the Redis protocol, and its lines
//! are written in order. Nothing is waited for but the service's answers, which come at once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use replay::remarks::counted;
use serde_json::json;

use crate::command::trace::progress::Progress;
use crate::failure::Failure;

/// Lines of a batch: enough that one round to the service is shared by many.
const LINES_MAX: usize = 1024;

/// Octets of a line that is looked at; longer ones are passed on as they are, in pieces.
const LINE_MAX: usize = 64 << 10;

/// Octets of a batch, of lines that are long.
const BATCH_MAX: usize = 1 << 20;

/// Octets of one answer of the service: a name, or an error that is told.
const ANSWER_MAX: u64 = 1024;

/// How long the service may take for an answer: it never waits for anything itself.
const SERVICE_MAX: Duration = Duration::from_secs(5);

/// How long the service may take to be there again once it has ended a connection: it reads its snapshot before it begins.
const RESTART_MAX: Duration = Duration::from_secs(10);

/// The time between two looks for names that are not known yet, or for a service that is started anew.
const LOOK: Duration = Duration::from_millis(50);

/// Top-level domains that are counted one by one: there are some 1,500 today. What is beyond is counted together.
const DOMAINS_MAX: usize = 4096;

/// How often it is noted how far the lines came.
const NOTE_INTERVAL: Duration = Duration::from_secs(1);

/// The arguments of `reverse filter`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  pointsman reverse filter < access.log > named.log")]
pub(crate) struct Filter {
    /// A running service's address for the Redis protocol (`pointsman reverse --resp ADDR`)
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6379")]
    resp: SocketAddr,
    /// Which field of a line is the address; fields are separated by blanks
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    field: u16,
    /// How long the lines of a batch wait for names that are not known yet
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = crate::config::kind::time)]
    wait: Duration,
    /// Note in this file how far it came, and go on from there; stdin and stdout must be files
    #[arg(long, value_name = "FILE", conflicts_with = "summary")]
    resume: Option<PathBuf>,
    /// Instead of lines, print requests by top-level domain
    #[arg(long, value_name = "BY", value_parser = ["tld"])]
    summary: Option<String>,
    /// Print the summary as JSON
    #[arg(long, requires = "summary")]
    json: bool,
}

impl Filter {
    /// Names stdin's lines.
    ///
    /// # Errors
    /// [`Failure`]; what was written until then is whole lines.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut service = Service::connect(self.resp, RESTART_MAX)?;
        let (mut lines, mut out, mut noted) = self.begin()?;
        let (mut domains, mut batch) = (Domains::default(), Batch::default());
        'input: while lines.batch(&mut batch).map_err(unreadable)? {
            let named = service.names(&batch.addresses(self.field), self.wait);
            let names = named.map_err(|failure| unanswered(failure, lines.held(&batch)))?;
            for line in &batch.lines {
                // What is still being written is named when it is whole.
                if noted.is_some() && line.is_unfinished() {
                    break 'input;
                }
                let place = line.address(self.field);
                let name = place.as_ref().and_then(|(ip, _)| names.get(ip)).map(String::as_str);
                if self.summary.is_some() {
                    if line.is_request() {
                        domains.count(name);
                    }
                    continue;
                }
                let named = match (place, name) {
                    (Some((_, at)), Some(name)) => {
                        &[&line.octets[..at.start], name.as_bytes(), &line.octets[at.end..]].concat()
                    }
                    _ => &line.octets,
                };
                out.write_all(named).map_err(|cause| Failure::output(&cause))?;
                if let Some(noted) = &mut noted {
                    noted.input += line.octets.len() as u64;
                    noted.output += named.len() as u64;
                }
            }
            // Whoever reads a pipe has lines as they come.
            out.flush().map_err(|cause| Failure::output(&cause))?;
            if let (Some(noted), Some(path)) = (&mut noted, &self.resume) {
                noted.note(path, &mut out, false)?;
            }
        }
        // With it ends the progress bar.
        drop(lines);
        if self.summary.is_some() {
            let text = if self.json { domains.json() } else { domains.table() };
            out.write_all(text.as_bytes()).map_err(|cause| Failure::output(&cause))?;
        }
        if let (Some(noted), Some(path)) = (&mut noted, &self.resume) {
            noted.note(path, &mut out, true)?;
        }
        out.flush().map_err(|cause| Failure::output(&cause))?;
        service.tell_restarts();
        Ok(())
    }

    /// Opens stdin and stdout, with `--resume` where it was noted that a run before had come.
    fn begin(&self) -> Result<Begun, Failure> {
        let mut input = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(unreadable)?);
        let output = File::from(io::stdout().as_fd().try_clone_to_owned().map_err(|c| Failure::output(&c))?);
        let length = input.metadata().map(|file| if file.is_file() { file.len() } else { 0 });
        let length = length.map_err(unreadable)?;
        let noted = match &self.resume {
            Some(path) => Some(Noted::begin(path, &mut input, &output, length)?),
            None => None,
        };
        let begin = noted.as_ref().map_or(0, |noted| noted.input);
        let within = is_within(&input, begin).map_err(unreadable)?;
        let progress = Progress::new(input, length.saturating_sub(begin));
        let lines = Lines { from: BufReader::with_capacity(LINE_MAX, progress), within };
        Ok((lines, BufWriter::with_capacity(LINE_MAX, output), noted))
    }
}

/// What is read, what is written to, and how far it is noted that this has come.
type Begun = (Lines<Progress>, BufWriter<File>, Option<Noted>);

fn unreadable(cause: io::Error) -> Failure {
    Failure::Failed(format!("stdin cannot be read: {cause}"))
}

/// A service that does not answer, and how many lines that leaves without an answer.
fn unanswered(failure: Failure, lines: u64) -> Failure {
    match failure {
        Failure::Unreachable(what) => {
            Failure::Unreachable(format!("{what}; {} of stdin not answered", counted(lines, "line")))
        }
        other => other,
    }
}

/// Lines that are named together.
#[derive(Default)]
struct Batch {
    lines: Vec<Line>,
}

/// A line with its end, or a piece of one that is too long.
struct Line {
    octets: Vec<u8>,
    /// Whether it begins where a line does.
    is_begin: bool,
}

impl Line {
    /// Whether its end is still to come.
    fn is_unfinished(&self) -> bool {
        self.octets.last() != Some(&b'\n') && self.octets.len() < LINE_MAX
    }

    /// Whether it stands for a request: an empty one does not, nor does what follows in a long one.
    fn is_request(&self) -> bool {
        self.is_begin && !self.octets.trim_ascii().is_empty()
    }

    /// The address in a field, and where it stands.
    fn address(&self, field: u16) -> Option<(IpAddr, Range<usize>)> {
        self.is_begin.then(|| address(&self.octets, field)).flatten()
    }
}

impl Batch {
    /// The different addresses of the lines.
    fn addresses(&self, field: u16) -> Vec<IpAddr> {
        let addresses = self.lines.iter().filter_map(|line| line.address(field));
        let mut all: Vec<IpAddr> = addresses.map(|(ip, _)| ip).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

struct Lines<R> {
    from: BufReader<R>,
    /// Whether the piece before was no whole line.
    within: bool,
}

impl<R: Read> Lines<R> {
    /// Fills a batch; false where there is nothing more. A batch ends early where the input has nothing at hand, so that
    /// a pipe's lines are not held back.
    fn batch(&mut self, batch: &mut Batch) -> io::Result<bool> {
        batch.lines.clear();
        let mut octets = 0;
        while batch.lines.len() < LINES_MAX && octets < BATCH_MAX {
            if !batch.lines.is_empty() && !self.from.buffer().contains(&b'\n') {
                break;
            }
            let mut line = Vec::new();
            (&mut self.from).take(LINE_MAX as u64).read_until(b'\n', &mut line)?;
            if line.is_empty() {
                break;
            }
            octets += line.len();
            let is_begin = !self.within;
            self.within = line.last() != Some(&b'\n');
            // A long line has no whole field to be sure of.
            let is_whole = !self.within || line.len() < LINE_MAX;
            batch.lines.push(Line { octets: line, is_begin: is_begin && is_whole });
        }
        Ok(!batch.lines.is_empty())
    }

    /// How many lines were read and are not written yet: those of this batch, and what was read ahead.
    fn held(&self, batch: &Batch) -> u64 {
        let octets = || batch.lines.iter().flat_map(|line| &line.octets).chain(self.from.buffer());
        let whole = octets().filter(|octet| **octet == b'\n').count() as u64;
        whole + u64::from(octets().last().is_some_and(|octet| *octet != b'\n'))
    }
}

/// Whether a place in a file is within a line: a note may be of the pieces of one that is too long.
fn is_within(file: &File, at: u64) -> io::Result<bool> {
    let Some(before) = at.checked_sub(1) else { return Ok(false) };
    let mut octet = [0];
    file.read_exact_at(&mut octet, before)?;
    Ok(octet != *b"\n")
}

/// The address in a field of a line, and where it stands.
fn address(line: &[u8], field: u16) -> Option<(IpAddr, Range<usize>)> {
    let mut at = 0;
    for number in 1.. {
        at += line[at..].iter().take_while(|octet| octet.is_ascii_whitespace()).count();
        let length = line[at..].iter().take_while(|octet| !octet.is_ascii_whitespace()).count();
        if length == 0 {
            return None;
        }
        if number == field {
            let address = std::str::from_utf8(&line[at..at + length]).ok()?.parse().ok()?;
            return Some((address, at..at + length));
        }
        at += length;
    }
    None
}

/// A connection to a running service.
struct Service {
    address: SocketAddr,
    /// How long it may take to be there again.
    restart: Duration,
    stream: BufReader<TcpStream>,
    /// How often it was connected again.
    again: u64,
}

/// Addresses of which the names are asked for.
struct Asked {
    /// Those that are without an answer, or without one that will do.
    wanted: Vec<IpAddr>,
    names: HashMap<IpAddr, String>,
    /// When no name is waited for any more.
    until: Instant,
}

impl Asked {
    fn drop_named(&mut self) {
        self.wanted.retain(|address| !self.names.contains_key(address));
    }
}

impl Service {
    fn connect(address: SocketAddr, restart: Duration) -> Result<Service, Failure> {
        match connected(address) {
            Ok(stream) => Ok(Service { address, restart, stream, again: 0 }),
            Err(cause) => Err(unreachable(address, &cause)),
        }
    }

    /// Connects again, as soon as the service is there again.
    fn connect_again(&mut self) -> io::Result<()> {
        let until = Instant::now() + self.restart;
        self.stream = loop {
            match connected(self.address) {
                Err(_) if Instant::now() < until => std::thread::sleep(LOOK),
                tried => break tried?,
            }
        };
        self.again += 1;
        Ok(())
    }

    /// The names of these addresses, as far as they are known, or get known within `wait`. A connection that the service
    /// has ended, for it was silent for long or the service was started anew, is made again, once, and what has no name yet
    /// is asked for again.
    fn names(&mut self, addresses: &[IpAddr], wait: Duration) -> Result<HashMap<IpAddr, String>, Failure> {
        let until = Instant::now() + wait;
        let mut asked = Asked { wanted: addresses.to_vec(), names: HashMap::new(), until };
        let mut named = self.name(&mut asked);
        if named.as_ref().is_err_and(|cause| ENDED.contains(&cause.kind())) {
            named = self.connect_again().and_then(|()| self.name(&mut asked));
        }
        named.map_err(|cause| unreachable(self.address, &cause))?;
        Ok(asked.names)
    }

    fn name(&mut self, asked: &mut Asked) -> io::Result<()> {
        asked.drop_named();
        // Each is counted where it is first asked for, and not while it is waited for.
        let mut waits = false;
        loop {
            self.ask("GET", &asked.wanted, |address, name| {
                name.map(|name| asked.names.insert(address, name));
            })?;
            asked.drop_named();
            let left = asked.until.saturating_duration_since(Instant::now());
            if asked.wanted.is_empty() || left.is_zero() {
                break;
            }
            if !waits {
                waits = true;
                self.tell("CLIENT NO-TOUCH ON")?;
            }
            // -1 is known to have none to give, -2 is not known yet; others got their name since it was asked for.
            let mut nameless = HashSet::new();
            self.ask("TTL", &asked.wanted, |address, state| {
                state.filter(|state| state == "-1").map(|_| nameless.insert(address));
            })?;
            asked.wanted.retain(|address| !nameless.contains(address));
            if asked.wanted.is_empty() {
                break;
            }
            std::thread::sleep(LOOK.min(left));
        }
        if waits {
            self.tell("CLIENT NO-TOUCH OFF")?;
        }
        Ok(())
    }

    /// Says on stderr how often the service was connected again.
    fn tell_restarts(&self) {
        if self.again > 0 {
            let ended = counted(self.again, "connection");
            // Nobody may read it.
            let _ = writeln!(
                io::stderr(),
                "pointsman: the service ended {ended}; what was not answered was asked again"
            );
        }
    }

    /// Hands on the answer for each address, `None` for nil.
    fn ask(
        &mut self,
        verb: &str,
        addresses: &[IpAddr],
        mut each: impl FnMut(IpAddr, Option<String>),
    ) -> io::Result<()> {
        let asked: String = addresses.iter().map(|address| format!("{verb} {address}\r\n")).collect();
        self.stream.get_mut().write_all(asked.as_bytes())?;
        for address in addresses {
            each(*address, answer(&mut self.stream)?);
        }
        Ok(())
    }

    /// Tells it something that has no answer of interest.
    fn tell(&mut self, command: &str) -> io::Result<()> {
        self.stream.get_mut().write_all(format!("{command}\r\n").as_bytes())?;
        answer(&mut self.stream).map(drop)
    }
}

fn connected(address: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect_timeout(&address, SERVICE_MAX)?;
    stream.set_read_timeout(Some(SERVICE_MAX))?;
    stream.set_write_timeout(Some(SERVICE_MAX))?;
    Ok(BufReader::new(stream))
}

/// How a connection fails that the other end has ended.
const ENDED: [io::ErrorKind; 4] = [
    io::ErrorKind::UnexpectedEof,
    io::ErrorKind::ConnectionReset,
    io::ErrorKind::ConnectionAborted,
    io::ErrorKind::BrokenPipe,
];

fn unreachable(address: SocketAddr, cause: &io::Error) -> Failure {
    Failure::Unreachable(format!(
        "the service at {address} does not answer: {cause}; start one with `pointsman reverse --resp {address}`"
    ))
}

/// Reads an answer of the Redis protocol: a text, a number, or nil.
fn answer(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let read = |from: &mut dyn BufRead| -> io::Result<String> {
        let mut line = Vec::new();
        from.take(ANSWER_MAX).read_until(b'\n', &mut line)?;
        let line = line.strip_suffix(b"\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(String::from_utf8_lossy(line).into_owned())
    };
    let head = read(from)?;
    match head.split_at_checked(1) {
        Some(("$", "-1")) => Ok(None),
        Some(("$", _)) => read(from).map(Some),
        Some((":" | "+", text)) => Ok(Some(text.to_owned())),
        _ => Err(io::Error::other(format!("it said {head:?}"))),
    }
}

/// How far the lines came, in octets of stdin and of stdout, and the inode of stdin, as it stands in a file, a line each.
///
/// The inode's device is left out: over a restart of the machine many have another number.
struct Noted {
    input: u64,
    output: u64,
    inode: u64,
    last: Instant,
}

impl Noted {
    /// Goes on where a file says, or begins.
    fn begin(path: &Path, input: &mut File, mut output: &File, length: u64) -> Result<Noted, Failure> {
        let failed = |what: &str| Failure::Failed(format!("{}: {what}", path.display()));
        let is_file = |file: &File| file.metadata().is_ok_and(|file| file.is_file());
        if !is_file(input) || !is_file(output) {
            return Err(failed("--resume needs files: < access.log >> named.log"));
        }
        let cause = |cause: io::Error| failed(&cause.to_string());
        let inode = input.metadata().map_err(cause)?.ino();
        let (read, written, noted) = match fs::read_to_string(path) {
            Ok(text) => noted(&text)
                .ok_or_else(|| failed("it does not say how far the lines came; remove it to begin anew"))?,
            Err(absent) if absent.kind() == io::ErrorKind::NotFound => {
                (0, output.metadata().map_err(cause)?.len(), None)
            }
            Err(unread) => return Err(cause(unread)),
        };
        if noted.is_some_and(|noted| noted != inode) {
            return Err(failed(
                "stdin is another file than the one that it is of; was it rotated? end the old one first \
                 (< access.log.1), then remove it to begin anew",
            ));
        }
        if read > length || written > output.metadata().map_err(cause)?.len() {
            return Err(failed(
                "the files are shorter than what was done; were they rotated? remove it to begin anew",
            ));
        }
        input.seek(SeekFrom::Start(read)).map_err(cause)?;
        // What was written after the last note is written again.
        output.set_len(written).map_err(cause)?;
        output.seek(SeekFrom::Start(written)).map_err(cause)?;
        Ok(Noted { input: read, output: written, inode, last: Instant::now() })
    }

    /// Writes it down, once a second, or now.
    fn note(&mut self, path: &Path, out: &mut BufWriter<File>, now: bool) -> Result<(), Failure> {
        if !now && self.last.elapsed() < NOTE_INTERVAL {
            return Ok(());
        }
        self.last = Instant::now();
        out.flush().map_err(|cause| Failure::output(&cause))?;
        let noted = net::whole::replace(path, 0o600, |mut file| {
            file.write_all(format!("{}\n{}\n{}\n", self.input, self.output, self.inode).as_bytes())
        });
        noted.map_err(|cause| Failure::Failed(format!("{}: {cause}", path.display())))
    }
}

/// What a note says: octets of stdin and stdout, and the inode, which those of older programs do not have.
fn noted(text: &str) -> Option<(u64, u64, Option<u64>)> {
    let mut numbers = text.lines().map(|line| line.parse().ok());
    Some((numbers.next()??, numbers.next()??, numbers.next().map_or(Some(None), |inode| inode.map(Some))?))
}

/// Requests by top-level domain.
#[derive(Default)]
struct Domains {
    counts: BTreeMap<String, u64>,
    unknown: u64,
    other: u64,
}

impl Domains {
    fn count(&mut self, name: Option<&str>) {
        let Some(domain) = name.and_then(|name| name.rsplit('.').next()) else { return self.unknown += 1 };
        if let Some(count) = self.counts.get_mut(domain) {
            *count += 1;
        } else if self.counts.len() < DOMAINS_MAX {
            self.counts.insert(domain.to_owned(), 1);
        } else {
            self.other += 1;
        }
    }

    /// All of them, the most frequent first, then what has no name and what was not counted on its own.
    fn rows(&self) -> Vec<(&str, u64)> {
        let mut rows: Vec<(&str, u64)> =
            self.counts.iter().map(|(domain, count)| (domain.as_str(), *count)).collect();
        rows.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        rows.extend(
            [("(no name)", self.unknown), ("(other)", self.other)].iter().filter(|(_, count)| *count > 0),
        );
        rows
    }

    fn table(&self) -> String {
        let rows = self.rows();
        let all = rows.iter().map(|(_, count)| count).sum::<u64>().max(1);
        let line = |(domain, count): &(&str, u64)| {
            format!("{count:>12} {:>6.2} % {domain}\n", *count as f64 * 100.0 / all as f64)
        };
        rows.iter().map(line).collect()
    }

    fn json(&self) -> String {
        let domains: serde_json::Map<_, _> =
            self.counts.iter().map(|(domain, count)| (domain.clone(), json!(count))).collect();
        let all = json!({"top_level_domains": domains, "no_name": self.unknown, "other": self.other});
        all.to_string() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_their_field() {
        for (line, field, expected) in [
            ("192.0.2.1 - - [x]\n", 1, Some(("192.0.2.1", 0))),
            ("  2001:db8::1\tx", 1, Some(("2001:db8::1", 2))),
            ("a 192.0.2.1\n", 2, Some(("192.0.2.1", 2))),
            ("a 192.0.2.1\n", 3, None),
            ("host.example - -\n", 1, None),
            ("192.0.2.1, 192.0.2.2\n", 1, None),
            ("\n", 1, None),
            ("", 1, None),
        ] {
            let found = address(line.as_bytes(), field).map(|(address, at)| (address.to_string(), at.start));
            assert_eq!(found, expected.map(|(address, at)| (address.to_owned(), at)), "{line:?}");
        }
    }

    #[test]
    fn lines_keep_their_order_and_long_ones_come_in_pieces() {
        let long = format!("192.0.2.9 {}\n", "x".repeat(2 * LINE_MAX));
        let text = format!("192.0.2.1 a\n{long}192.0.2.1 b\n\n192.0.2.2");
        let mut lines = Lines { from: BufReader::with_capacity(LINE_MAX, text.as_bytes()), within: false };
        let (mut batch, mut seen, mut addresses) = (Batch::default(), Vec::new(), Vec::new());
        while lines.batch(&mut batch).unwrap() {
            addresses.extend(batch.addresses(1));
            batch.lines.iter().for_each(|line| seen.extend_from_slice(&line.octets));
        }
        assert!(seen == text.as_bytes());
        addresses.dedup();
        assert_eq!(addresses, ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse::<IpAddr>().unwrap()));
    }

    #[test]
    fn a_note_is_of_one_file_also_when_the_next_is_longer() {
        assert_eq!(noted("5\n7\n"), Some((5, 7, None)), "of an older program");
        assert_eq!(noted("5\n7\n9\n"), Some((5, 7, Some(9))));
        assert_eq!([noted(""), noted("5\n"), noted("5\n7\nx\n")], [None; 3]);

        let folder = std::env::temp_dir().join(format!("pointsman-filter-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let [log, rotated, out, state] = ["log", "log.1", "out", "state"].map(|name| folder.join(name));
        let begin = |text: Option<&str>, log: &Path| {
            if let Some(text) = text {
                fs::write(log, text).unwrap();
            }
            let mut input = File::open(log).unwrap();
            let output = File::options().create(true).append(true).open(&out).unwrap();
            let length = input.metadata().unwrap().len();
            let noted = Noted::begin(&state, &mut input, &output, length);
            noted.map(|noted| (noted, BufWriter::new(output))).map_err(|failure| format!("{failure:?}"))
        };
        let (mut first, mut to) = begin(Some("192.0.2.1 a\n"), &log).unwrap();
        first.input = 12;
        first.note(&state, &mut to, true).unwrap();
        fs::rename(&log, &rotated).unwrap();
        let refused = begin(Some("192.0.2.2 b\n192.0.2.3 c\n"), &log).err().unwrap();
        assert!(refused.contains("was it rotated?"), "{refused}");
        assert_eq!(begin(None, &rotated).unwrap().0.input, 12, "the old one can be ended");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn answers_of_the_service() {
        let read = |text: &str| answer(&mut text.as_bytes()).map_err(|cause| cause.to_string());
        assert_eq!(read("$11\r\nwww.example\r\n"), Ok(Some("www.example".into())));
        assert_eq!(read("$-1\r\n"), Ok(None));
        assert_eq!(read(":-2\r\n"), Ok(Some("-2".into())));
        assert!(read("-ERR no\r\n").unwrap_err().contains("ERR no"));
        assert!(read("$11\r\nwww").is_err() && read("").is_err() && read(&"x".repeat(5000)).is_err());
    }

    #[test]
    fn a_name_that_comes_between_two_questions_is_taken() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut service = Service::connect(listener.local_addr().unwrap(), Duration::ZERO).unwrap();
        let script = [
            ("GET 192.0.2.1", "$-1"),
            ("CLIENT NO-TOUCH ON", "+OK"),
            ("TTL 192.0.2.1", ":100"),
            ("GET 192.0.2.1", "$12\r\nhost.example"),
            ("CLIENT NO-TOUCH OFF", "+OK"),
        ];
        let told = std::thread::spawn(move || {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            for (asked, said) in script {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                assert_eq!(line.trim_end(), asked);
                stream.get_mut().write_all(format!("{said}\r\n").as_bytes()).unwrap();
            }
        });
        let address = "192.0.2.1".parse().unwrap();
        let names = service.names(&[address], Duration::from_secs(30)).unwrap();
        assert_eq!(names.get(&address).map(String::as_str), Some("host.example"));
        told.join().unwrap();
    }

    #[test]
    fn what_the_service_has_not_answered_when_it_ends_is_asked_again_once() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut service = Service::connect(listener.local_addr().unwrap(), Duration::ZERO).unwrap();
        // What is asked on each connection, and what is said before it ends.
        let script: [(&[&str], &str); 4] = [
            (&["GET 192.0.2.1", "GET 192.0.2.2"], "$7\r\na.first\r\n$8\r\nhalf"),
            (&["GET 192.0.2.2"], "$8\r\na.second\r\n"),
            (&["GET 192.0.2.3"], ""),
            (&[], ""),
        ];
        let told = std::thread::spawn(move || {
            for (asked, said) in script {
                let mut stream = BufReader::new(listener.accept().unwrap().0);
                for expected in asked {
                    let mut line = String::new();
                    stream.read_line(&mut line).unwrap();
                    assert_eq!(line.trim_end(), *expected);
                }
                stream.get_mut().write_all(said.as_bytes()).unwrap();
            }
        });
        let [first, second, third] = [1, 2, 3].map(|last| IpAddr::from([192, 0, 2, last]));
        let names = service.names(&[first, second], Duration::ZERO).unwrap();
        let named = [first, second].map(|address| names.get(&address).map(String::as_str));
        assert_eq!(named, [Some("a.first"), Some("a.second")]);
        // The second connection has ended, too, and the third ends before its answer: then it is told.
        let Err(Failure::Unreachable(what)) = service.names(&[third], Duration::ZERO) else { panic!() };
        assert_eq!(service.again, 2, "{what}");
        // So it is where nobody is there any more.
        service.stream = connected(service.address).unwrap();
        told.join().unwrap();
        assert!(matches!(service.names(&[third], Duration::ZERO), Err(Failure::Unreachable(_))));
        assert_eq!(service.again, 2);
    }

    #[test]
    fn a_service_that_is_started_anew_is_waited_for() {
        // An address of its own: others take free ports of 127.0.0.1.
        let listener = std::net::TcpListener::bind("127.77.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut service = Service::connect(at, RESTART_MAX).unwrap();
        let told = std::thread::spawn(move || {
            let before = listener.accept().unwrap();
            drop((listener, before));
            let mut stream = BufReader::new(std::net::TcpListener::bind(at).unwrap().accept().unwrap().0);
            stream.read_line(&mut String::new()).unwrap();
            stream.get_mut().write_all(b"$12\r\nhost.example\r\n").unwrap();
        });
        let address = "192.0.2.1".parse().unwrap();
        let names = service.names(&[address], Duration::ZERO).unwrap();
        assert_eq!((names.get(&address).map(String::as_str), service.again), (Some("host.example"), 1));
        told.join().unwrap();
    }

    #[test]
    fn lines_without_an_answer_are_told() {
        for (text, expected) in [
            ("192.0.2.1 a\n", "1 line"),
            ("192.0.2.1 a\n192.0.2.2 b", "2 lines"),
            // A batch and what was read ahead.
            (&"192.0.2.1\n".repeat(LINES_MAX + 7), "1031 lines"),
        ] {
            let from = BufReader::with_capacity(LINE_MAX, text.as_bytes());
            let (mut lines, mut batch) = (Lines { from, within: false }, Batch::default());
            assert!(lines.batch(&mut batch).unwrap());
            let failure = unanswered(Failure::Unreachable("it is away".into()), lines.held(&batch));
            assert_eq!(failure.messages(), [format!("it is away; {expected} of stdin not answered")]);
        }
    }

    #[test]
    fn domains_are_counted_and_bounded() {
        let mut domains = Domains::default();
        for name in [Some("a.com"), Some("b.com"), Some("localhost"), None] {
            domains.count(name);
        }
        assert_eq!(domains.rows(), [("com", 2), ("localhost", 1), ("(no name)", 1)]);
        assert!(domains.table().starts_with("           2  50.00 % com\n"), "{}", domains.table());
        (0..2 * DOMAINS_MAX).for_each(|i| domains.count(Some(&format!("x.t{i}"))));
        assert_eq!((domains.counts.len(), domains.other), (DOMAINS_MAX, DOMAINS_MAX as u64 + 2));
    }
}
