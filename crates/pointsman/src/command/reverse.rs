//! `pointsman reverse`: names for addresses, at once or not at all.

mod filter;
mod status;

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use api::{Fault, Faults};
use clap::{Args, Subcommand};
use net::whole;
use reverse::cache::{self, snapshot, text};
use reverse::{Options, Service};
use tokio::signal::unix::SignalKind;

use crate::account;
use crate::config::kind;
use crate::config::reverse::{self as config, Flags, Lowered};
use crate::failure::Failure;
use crate::log::Log;
use crate::session;
use crate::supervision::{self, Stop};

/// The arguments of `reverse`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Reverse {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Print how a running service is doing
    #[command(after_help = "Example:\n  pointsman reverse status --http http://127.0.0.1:8054")]
    Status(status::Status),
    /// Write a snapshot as lines `address<TAB>expiry<TAB>name`, `-` for no name
    #[command(after_help = "Example:\n  pointsman reverse export names.cache > names.txt")]
    Export {
        /// The snapshot
        snapshot: PathBuf,
    },
    /// Make a snapshot of such lines, without those that have expired
    #[command(after_help = "Example:\n  pointsman reverse import names.txt names.cache")]
    Import {
        /// The lines; `-` is stdin
        text: PathBuf,
        /// The snapshot; one that is there is replaced
        snapshot: PathBuf,
        /// How much the cache may take; names take 2 GiB at most
        #[arg(long, value_name = "SIZE", default_value = "400MiB", value_parser = size)]
        memory: usize,
    },
    /// Put names in the place of addresses in a log, from a running service: stdin to stdout
    Filter(filter::Filter),
}

impl Reverse {
    /// Serves until it is told to stop, or converts.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn run(self) -> Result<(), Failure> {
        match self.action {
            Some(Action::Export { snapshot }) => export(&snapshot),
            Some(Action::Import { text, snapshot, memory }) => import(&text, &snapshot, memory),
            Some(Action::Filter(filter)) => {
                // It reads and writes files and one connection, and nothing else runs beside it.
                let filtered = tokio::task::spawn_blocking(|| filter.run()).await;
                filtered.map_err(|panic| Failure::Failed(panic.to_string()))?
            }
            Some(Action::Status(status)) => status.run().await,
            None => run(&self.flags).await,
        }
    }
}

/// Looks at the configuration, or serves by it.
async fn run(flags: &Flags) -> Result<(), Failure> {
    let (Lowered { options, form }, mut faults) = config::load(flags);
    account::look_up(options.user.as_deref(), &mut faults);
    if flags.check {
        faults.or(())?;
        account::become_user(options.user.as_deref())?;
        Service::check(&options).map_err(|error| Failure::Failed(error.to_string()))?;
        return session::print(b"ok");
    }
    let log = Log { form, level: tracing::Level::INFO };
    serve(options, faults, log).await.map_err(|failure| log.end(failure))
}

/// Serves unless there are faults.
async fn serve(options: Options, faults: Faults, log: Log) -> Result<(), Failure> {
    faults.or(())?;
    log.begin();
    // Before the start, so that a signal during it is not lost.
    let (mut stop, hang_up) = (Stop::take()?, supervision::signal(SignalKind::hangup())?);
    let service = Service::start(options).await.map_err(|error| Failure::Failed(error.to_string()))?;
    for (face, address) in service.listening() {
        log.tell(&format!("listening on {address} ({face})"));
    }
    supervision::ready(log);
    tokio::select! {
        () = stop.wanted() => {}
        () = supervision::nothing_to_reload(hang_up, "what is configured changes with a restart") => {}
    }
    supervision::stopping();
    tracing::info!("stopping");
    if !service.stop().await {
        return Err(Failure::Failed("the last snapshot was not written".into()));
    }
    log.tell("stopped");
    Ok(())
}

fn export(path: &Path) -> Result<(), Failure> {
    let unread = |why: snapshot::Unread| match why.advice() {
        "" => Failure::file(path, why.to_string(), ""),
        advice => Failure::file(path, format!("{why}; {advice}"), ""),
    };
    let (_cache, reader) = snapshot::load(path, usize::MAX, 0).map_err(unread)?;
    let mut out = BufWriter::new(io::stdout().lock());
    text::write(&reader, now(), &mut out).and_then(|_| out.flush()).map_err(|cause| Failure::output(&cause))
}

fn import(from: &Path, to: &Path, memory: usize) -> Result<(), Failure> {
    if let (Ok(lines), Ok(snapshot)) = (from.canonicalize(), to.canonicalize())
        && lines == snapshot
    {
        return Err(Failure::file(to, "the lines come from there", "another file for the snapshot"));
    }
    whole::check(to).map_err(|cause| unwritten(to, &cause))?;
    let held = whole::hold(to).map_err(|cause| unwritten(to, &cause))?;
    // Until it is written: what begins meanwhile would read the one before, and put it back.
    let Some(_held) = held else {
        return Err(unwritten(to, &"a service that runs keeps its cache there, or another import goes on"));
    };
    let seed = fastrand::u64(..);
    let (mut cache, reader) = cache::new(memory, 0, seed);
    let mut faults = Faults::default();
    let wrong = |line, what| {
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        let expected = "address<TAB>expiry in seconds since 1970<TAB>name, or - for no name";
        faults.push(Fault::at(from.to_string_lossy(), line, 1, what, expected));
    };
    let read = if from == Path::new("-") {
        text::read(io::stdin().lock(), now(), &mut cache, wrong)
    } else {
        File::open(from).and_then(|file| text::read(BufReader::new(file), now(), &mut cache, wrong))
    };
    let count = read.map_err(|cause| Failure::file(from, format!("it cannot be read: {cause}"), ""))?;
    faults.or(())?;
    if count == 0 {
        // What made it has failed, more likely than not; an empty snapshot would take all names away.
        return Err(Failure::file(from, "no line in it", "at least one, of address<TAB>expiry<TAB>name"));
    }
    snapshot::save(&reader.view(), now(), to).map_err(|cause| unwritten(to, &cause))?;
    let (kept, counts) = (cache.len(), cache.counts());
    let lost = match counts.evicted + counts.no_room {
        0 => String::new(),
        _ => format!("; {} made room for others, {} found none (--memory)", counts.evicted, counts.no_room),
    };
    let entries = if kept == 1 { "entry" } else { "entries" };
    let lines = if count == 1 { "line" } else { "lines" };
    session::print(format!("{}: {kept} {entries} of {count} {lines}{lost}", to.display()).as_bytes())
}

fn unwritten(path: &Path, cause: &dyn std::fmt::Display) -> Failure {
    Failure::Failed(format!("{}: it cannot be written: {cause}", path.display()))
}

fn now() -> u32 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}

fn size(text: &str) -> Result<usize, String> {
    kind::size(text).and_then(|octets| usize::try_from(octets).map_err(|cause| cause.to_string()))
}
