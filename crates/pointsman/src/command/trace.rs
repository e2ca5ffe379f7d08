//! `pointsman trace`: what recorded traffic is like, the same traffic in another form, in part or changed, and the zones
//! behind it.
//!
//! - `info`: numbers; `top`: who asks most; `copy`: convert, cut and mutate, which write another trace; `zones`: zones.
//! - `output`: the file that is written, whole or not at all; `progress`: how much was read.

mod copy;
mod info;
mod output;
pub(crate) mod progress;
mod top;
mod zones;

use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::{Fault, Faults, TraceDamage};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use replay::mutate::Mutation;
use replay::remarks::counted;
use replay::trace::cut::{self, Cut, When};
use replay::trace::{self, PORT, Skip, Skipped};
use routing::Prefix;

use crate::failure::Failure;
use crate::session;
use copy::Work;
pub(super) use copy::changed;
use progress::{Line, Progress};

/// How the help ends.
pub(crate) const ENDS: &str = "\
Exit codes:
  0  done
  1  failed while running, or the trace breaks off: what stands before was used
  2  faults in what was given, all listed: nothing of the trace was used

Example:
  pointsman trace info yesterday.pcap.xz";

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
        #[command(flatten)]
        input: Input,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Tell who asks most, and for what: clients, their networks, names, domains, and domains by what failed
    #[command(after_help = "Example:\n  pointsman trace top yesterday.pcap.xz")]
    Top {
        #[command(flatten)]
        input: Input,
        /// So many of each kind
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1_000))]
        count: u16,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a trace in another form: lines of text, a query file or a new capture
    #[command(after_help = "Example:\n  pointsman trace convert yesterday.pcap.xz yesterday.txt")]
    Convert {
        #[command(flatten)]
        files: Files,
    },
    /// Write a part of a trace: of a time, of clients, of names, so many, or only its queries
    ///
    /// What is said must all hold.
    #[command(
        after_help = "Example:\n  pointsman trace cut yesterday.pcap.xz noon.pcap --from +43200 --to +43260 --queries"
    )]
    Cut {
        #[command(flatten)]
        files: Files,
        /// From this time on: such as 2016-10-06T15:00:00Z (UTC where nothing else is said), seconds since 1970, or
        /// +SECONDS since the first message
        #[arg(long, value_name = "TIME", value_parser = when)]
        from: Option<When>,
        /// Up to this time, which is not in it any more
        #[arg(long, value_name = "TIME", value_parser = when)]
        to: Option<When>,
        /// Only clients of this network, such as 192.0.2.0/24. May be given several times
        #[arg(long, value_name = "NETWORK", value_parser = cut::network)]
        client: Vec<Prefix>,
        /// Only names that end so, such as example.com
        #[arg(long, value_name = "NAME", value_parser = folded)]
        suffix: Option<Suffix>,
        /// Only queries
        #[arg(long)]
        queries: bool,
        /// The first so many messages of those
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        count: Option<u64>,
    },
    /// Write a trace's queries with changes: DO, EDNS, flags, client subnet, names, types
    ///
    /// do=SHARE, rd=SHARE, ad=SHARE, cd=SHARE: this share of the clients sets the
    /// flag, the others do not; DO adds EDNS where there is none, and without DO the
    /// EDNS stays.
    /// edns=SIZE or edns=none: EDNS with this UDP size, or none.
    /// ecs=client, ecs=NETWORK or ecs=none: client subnet.
    /// unique: a label before the name that no other query has.
    /// prefix=NAME: these labels.
    /// suffix=OLD:NEW: names that end in OLD end in NEW. type=TYPE.
    ///
    /// All but the flags take @SHARE behind them, such as edns=1232@50%. Flags, edns
    /// and ecs are drawn for a client and all of its queries, names and types for each
    /// query. Responses are left out.
    #[command(
        verbatim_doc_comment,
        after_help = "Example:\n  pointsman trace mutate yesterday.pcap.xz signed.pcap do=100% edns=1232@50%"
    )]
    Mutate {
        #[command(flatten)]
        files: Files,
        /// What is changed, in this order
        #[arg(value_name = "CHANGE", required = true)]
        changes: Vec<String>,
        /// What all draws begin with: the same seed gives the same output
        #[arg(long, value_name = "N", default_value_t = 1)]
        seed: u64,
    },
    /// Make the zones that a trace's responses show, as files that can be served
    ///
    /// The responses are those of authoritative servers: captured at one of them, or on a resolver's way to all of them.
    /// The zones have what was asked for, no more; what a zone must have and no response shows is made up, and counted.
    #[command(after_help = "Example:\n  pointsman trace zones yesterday.pcap.xz yesterday")]
    Zones {
        #[command(flatten)]
        input: Input,
        /// The folder to write: master files, and a configuration that serves them; it must not be there yet
        folder: PathBuf,
        /// Make up what a resolver needs to find all zones, from the root on, and serve each at the addresses of its
        /// servers
        #[arg(long)]
        hierarchy: bool,
        /// Print what was done as JSON
        #[arg(long)]
        json: bool,
    },
}

/// The trace that is read.
#[derive(Args, Clone, Debug)]
struct Input {
    /// A capture (pcap, pcapng), C-DNS, dnstap or a text of queries; plain, gzip, xz, zstd or lz4. `-` is stdin
    file: PathBuf,
    /// Where the servers in a capture listen
    #[arg(long, default_value_t = PORT)]
    port: u16,
}

/// The trace that is read, and the one that is written.
#[derive(Args, Clone, Debug)]
struct Files {
    #[command(flatten)]
    input: Input,
    /// Where to write: FILE.txt for lines of text, FILE.queries for a query file (NAME TYPE), FILE.pcap for a
    /// capture; it must not be there yet
    out: PathBuf,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

/// A name in wire form and lower case.
#[derive(Clone, Debug)]
struct Suffix(Vec<u8>);

/// A time as `trace info` tells it, as RFC 3339 has it, or as [`When`] reads it.
fn when(text: &str) -> Result<When, String> {
    if let Ok(when) = text.parse() {
        return Ok(when);
    }
    let civil = text.strip_suffix(" UTC").unwrap_or(text);
    // Without an offset it is no time of its own, and with one it is.
    let at = civil.parse::<Timestamp>().or_else(|_| {
        let date = civil.parse::<DateTime>()?;
        date.to_zoned(TimeZone::UTC).map(|zoned| zoned.timestamp())
    });
    let since = at.ok().and_then(|at| Duration::try_from(at.duration_since(Timestamp::UNIX_EPOCH)).ok());
    since.map(When::At).ok_or_else(|| {
        "expected a time such as 2016-10-06T15:00:00Z, seconds since 1970, or +SECONDS since the first message".into()
    })
}

fn folded(text: &str) -> Result<Suffix, String> {
    cut::suffix(text).map(Suffix)
}

impl Trace {
    /// Tells what a trace is like, or writes another one of it.
    ///
    /// # Errors
    /// [`Failure`]; what could be read of a damaged trace is printed or written before.
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.action {
            Action::Info { input, json } => info::run(&input, json),
            Action::Top { input, count, json } => top::run(&input, count.into(), json),
            Action::Convert { files } => copy::run(files, Work::default()),
            Action::Cut { files, from, to, client, suffix, queries, count } => {
                let cut = Cut {
                    from,
                    to,
                    clients: client,
                    suffix: suffix.map(|Suffix(suffix)| suffix),
                    only_queries: queries,
                };
                copy::run(files, Work { cut, count, mutation: None })
            }
            Action::Mutate { files, changes, seed } => {
                let mutation = Mutation::parse(&changes.join(","), seed).map_err(|wrong| {
                    let mut faults = Faults::default();
                    wrong.lines().for_each(|what| faults.push(Fault::whole("CHANGE", what, "")));
                    faults
                })?;
                let cut = Cut { only_queries: true, ..Cut::default() };
                copy::run(files, Work { cut, mutation: Some(mutation), ..Work::default() })
            }
            Action::Zones { input, folder, hierarchy, json } => zones::run(&input, &folder, hierarchy, json),
        }
    }
}

impl Input {
    /// The trace, and the line that says how far it is read.
    fn open(&self) -> Result<(trace::Trace, Line), Failure> {
        let file = match self.file.as_os_str() == "-" {
            // As it is: what was read of it before is not there any more, and a socket cannot be opened by its name.
            true => io::stdin().as_fd().try_clone_to_owned().map(File::from),
            false => File::open(&self.file),
        };
        let mut file =
            file.map_err(|cause| Failure::file(&self.file, format!("it cannot be read: {cause}"), ""))?;
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let length = length.saturating_sub(file.stream_position().unwrap_or(0));
        let progress = Progress::new(file, length);
        let line = progress.line();
        let trace = trace::Trace::read(progress, self.port)
            .map_err(|error| Failure::file(&self.file, error.to_string(), ""))?;
        Ok((trace, line))
    }

    /// Where the trace breaks off.
    fn damage(&self, trace: &trace::Trace, damage: &TraceDamage) -> Fault {
        damage.fault(&self.file.to_string_lossy(), trace.format(), trace.is_packed())
    }

    /// What to say of a trace without a message, up to where it breaks off, if it does.
    fn nothing(&self, trace: &trace::Trace, damage: Option<Fault>) -> Failure {
        nothing(&self.file, damage, self.port, "DNS message", 0, trace.skipped())
    }
}

/// What to say of a trace that breaks off behind what was used.
fn damaged(damage: &Fault) -> Failure {
    Failure::Failed(format!("{damage}\nWhat stands before it was used."))
}

/// What was skipped, by cause; `None` where that is nothing. Some causes are no packets, such as gaps.
pub(super) fn skipped(all: impl Iterator<Item = (Skip, u64)>) -> Option<String> {
    let told: Vec<String> = all.map(|(skip, count)| format!("{} ({count})", skip.description())).collect();
    (!told.is_empty()).then(|| format!("skipped: {}", told.join(", ")))
}

/// What to say of a trace without what is wanted of it: where it breaks off, if it does, and what was there instead. Of
/// `others` there are so many: queries where responses are wanted, else responses.
pub(super) fn nothing(
    file: &Path,
    damage: Option<Fault>,
    port: u16,
    wanted: &str,
    others: u64,
    skipped: &Skipped,
) -> Failure {
    let other = if wanted == "response" { "query" } else { "response" };
    let told = (others > 0).then(|| {
        let are = if others == 1 { "is" } else { "are" };
        format!("instead there {are} {}", counted(others, other))
    });
    let there: Vec<String> = told.into_iter().chain(self::skipped(skipped.iter())).collect();
    let mut faults = Faults::default();
    if let Some(damage) = damage {
        faults.push(damage);
        if there.is_empty() {
            return faults.into();
        }
    }
    let instead = if there.is_empty() { "it has no packets at all".into() } else { there.join("; ") };
    let expected =
        if skipped.of(Skip::OtherPort) > 0 { "the port at which the servers listen (--port)" } else { "" };
    faults.push(Fault::whole(
        file.to_string_lossy(),
        format!("no {wanted} at port {port}; {instead}"),
        expected,
    ));
    faults.into()
}

fn print_json(shape: &impl serde::Serialize) -> Result<(), Failure> {
    let json = serde_json::to_vec_pretty(shape)
        .map_err(|cause| Failure::Failed(format!("the numbers are no JSON: {cause}")))?;
    session::print(&json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_instead_is_told() {
        for (wanted, others, expected) in [
            ("query", 0, "it has no packets at all"),
            ("query", 1, "instead there is 1 response"),
            ("response", 2, "instead there are 2 queries"),
        ] {
            let told =
                nothing(Path::new("a.pcap"), None, 53, wanted, others, &Skipped::default()).to_string();
            assert!(told.ends_with(&format!("no {wanted} at port 53; {expected}")), "{told}");
        }
    }

    #[test]
    fn times_are_read_as_they_are_told() {
        for text in [
            "1467215534",
            "2016-06-29 15:52:14 UTC",
            "2016-06-29 15:52:14",
            "2016-06-29T15:52:14Z",
            "2016-06-29t17:52:14+02:00",
            "2016-06-29T15:52:14.000",
        ] {
            assert_eq!(when(text), Ok(When::At(Duration::from_secs(1_467_215_534))), "{text}");
        }
        assert_eq!(when("+1.5"), Ok(When::After(Duration::from_millis(1_500))));
        for text in ["", "noon", "1969-12-31T23:59:59Z", "2016-06-31 15:52:14", "+2016-06-29 15:52:14"] {
            assert!(when(text).is_err_and(|told| told.contains("such as")), "{text}");
        }
    }
}
