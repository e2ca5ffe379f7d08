//! `pointsman reverse`: names for addresses, at once or not at all.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api::{Fault, Faults};
use clap::{ArgAction, Args, Subcommand};
use reverse::backend::{Behaviour, Kept, Paper, Ttl};
use reverse::cache::{self, snapshot, text};
use reverse::face::acl::{Acl, Prefix};
use reverse::face::{dns, mmdb};
use reverse::service::UPSTREAMS_MAX;
use reverse::{Options, Service};
use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;
use crate::log::{Form, Log};
use crate::session;

/// The longest time that a question may wait in a face: resolver libraries give up after 5 s.
const WAIT_MAX: Duration = Duration::from_secs(4);

/// The arguments of `reverse`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Reverse {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Subcommand, Debug)]
enum Action {
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
        /// How much the cache may take
        #[arg(long, value_name = "SIZE", default_value = "400MiB", value_parser = size)]
        memory: usize,
    },
}

#[derive(Args, Debug)]
struct Serve {
    /// The resolvers that are asked, in turn
    #[arg(long, value_name = "ADDR", value_delimiter = ',', required = true, value_parser = upstream)]
    upstream: Vec<SocketAddr>,
    /// Answer DNS here, over UDP and TCP; may be given several times
    #[arg(long, value_name = "ADDR", action = ArgAction::Append)]
    dns: Vec<SocketAddr>,
    /// Answer the Redis protocol here; may be given several times
    #[arg(long, value_name = "ADDR", action = ArgAction::Append)]
    resp: Vec<SocketAddr>,
    /// Answer the protocol of Rapid DNS here; may be given several times
    #[arg(long, value_name = "ADDR", action = ArgAction::Append)]
    rapid: Vec<SocketAddr>,
    /// How long a DNS question over UDP waits for a name that is not known yet
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = time)]
    wait: Duration,
    /// Threads for each DNS address [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: Option<u16>,
    /// Clients that may ask, beside loopback: a prefix; may be given several times
    #[arg(long, value_name = "PREFIX", action = ArgAction::Append)]
    allow: Vec<Prefix>,
    /// From one question to the next
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = time)]
    interval: Duration,
    /// Questions that may be asked at once after a pause
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    burst: u32,
    /// Addresses that may wait to be asked for
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    stack: u32,
    /// Of those, for one client [default: as many as may wait]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    per_client: Option<u32>,
    /// How long one question waits for its answer
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time)]
    timeout: Duration,
    /// How often an address is asked for before it has failed
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=10))]
    tries: u32,
    /// How long names are kept, whatever their records say; or LEAST..MOST, to keep them as records say within that
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = ttl)]
    ttl: Ttl,
    /// Ask again for addresses without a name after two minutes, instead of keeping that as long as names
    #[arg(long)]
    no_negative: bool,
    /// How long names that have expired are still answered while they are asked for anew
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = time)]
    stale: Duration,
    /// How much the cache may take
    #[arg(long, value_name = "SIZE", default_value = "400MiB", value_parser = size)]
    memory: usize,
    /// Keep the cache in this file: read at start, written at the end and every --snapshot-interval
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// From one snapshot to the next: what a crash may lose
    #[arg(long, value_name = "TIME", default_value = "5min", value_parser = time)]
    snapshot_interval: Duration,
    /// Write the names into this MaxMind database, for programs that read such files; it is replaced whole
    #[arg(long, value_name = "FILE")]
    mmdb: Option<PathBuf>,
    /// From one of them to the next
    #[arg(long, value_name = "TIME", default_value = "1min", value_parser = time)]
    mmdb_interval: Duration,
    /// How large it may get; names beyond that are left out
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    mmdb_size: usize,
    /// Learn just as Rapid DNS did: duplicates in one stack, failures forgotten, nothing stale
    #[arg(long)]
    paper: bool,
    /// Log objects, a line each
    #[arg(long)]
    json: bool,
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
            None => self.serve.run().await,
        }
    }
}

impl Serve {
    async fn run(self) -> Result<(), Failure> {
        let form = if self.json { Form::Json } else { Form::Text };
        let options = self.options()?;
        Log { form, level: tracing::Level::INFO }.begin();
        // Before the start, so that a signal during it is not lost.
        let no_signals = |cause| Failure::Failed(format!("no signals: {cause}"));
        let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
        let service = Service::start(options).await.map_err(|error| Failure::Failed(error.to_string()))?;
        for (face, address) in service.listening() {
            tell(&format!("listening on {address} ({face})"));
        }
        tell("ready");
        notify(NotifyState::Ready);
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        notify(NotifyState::Stopping);
        tracing::info!("stopping");
        service.stop().await;
        tell("stopped");
        Ok(())
    }

    fn options(self) -> Result<Options, Failure> {
        let mut faults = Faults::default();
        let mut fault = |what: &str, expected: &str| faults.push(Fault::whole("reverse", what, expected));
        let mut addresses = self.dns.iter().chain(&self.resp).chain(&self.rapid).peekable();
        if addresses.peek().is_none() && self.mmdb.is_none() {
            fault("there is nowhere to answer", "--dns ADDR, --resp ADDR, --rapid ADDR or --mmdb FILE");
        }
        let acl = Acl::new(self.allow);
        if addresses.any(|address| !address.ip().is_loopback()) && !acl.is_open() {
            fault(
                "an address that is not loopback, and nobody who may ask there",
                "--allow PREFIX for each network of clients",
            );
        }
        if self.upstream.len() > UPSTREAMS_MAX {
            fault("too many upstreams", &format!("{UPSTREAMS_MAX} at most"));
        }
        if self.wait > WAIT_MAX {
            fault("--wait is too long", "4s at most");
        }
        if self.wait > Duration::ZERO && self.dns.iter().any(|address| address.ip().is_unspecified()) {
            fault("--wait with an address for all interfaces", "an address for each interface");
        }
        if self.memory < cache::LIMIT_MIN {
            fault("--memory is too little", "4MiB at least");
        }
        if self.timeout.is_zero() || self.snapshot_interval < Duration::from_secs(1) {
            fault(
                "--timeout or --snapshot-interval is too short",
                "some milliseconds, and a second at least",
            );
        }
        if self.mmdb_interval < Duration::from_secs(1) || self.mmdb_size > mmdb::SIZE_MAX {
            fault("--mmdb-interval is too short or --mmdb-size too large", "1s at least, 2GiB at most");
        }
        let cores = net::thread::cores().map_or(1, |cores| cores.len());
        let workers = self.workers.map_or(cores, usize::from);
        let stack = self.stack as usize;
        faults.or(())?;
        Ok(Options {
            upstreams: self.upstream,
            behaviour: Behaviour {
                interval: self.interval,
                burst: self.burst,
                stack,
                per_client: self.per_client.map_or(stack, |most| most as usize),
                timeout: self.timeout,
                tries: self.tries,
                ttl: self.ttl,
                negative: !self.no_negative,
                paper: self.paper.then(Paper::default),
            },
            memory: self.memory,
            stale: if self.paper { Duration::ZERO } else { self.stale },
            kept: self.snapshot.map(|path| Kept { path, interval: self.snapshot_interval }),
            acl,
            crawlers: Arc::default(),
            dns: self
                .dns
                .into_iter()
                .map(|address| dns::Options { address, wait: self.wait, workers })
                .collect(),
            resp: self.resp,
            rapid: self.rapid,
            mmdb: self.mmdb.map(|path| mmdb::Options {
                path,
                interval: self.mmdb_interval,
                size: self.mmdb_size,
            }),
        })
    }
}

fn export(path: &Path) -> Result<(), Failure> {
    let (_cache, reader) =
        snapshot::load(path, usize::MAX, 0).map_err(|why| whole(path, &why.to_string(), ""))?;
    let mut out = BufWriter::new(io::stdout().lock());
    text::write(&reader, now(), &mut out).and_then(|_| out.flush()).map_err(|cause| Failure::output(&cause))
}

fn import(from: &Path, to: &Path, memory: usize) -> Result<(), Failure> {
    let seed = fastrand::u64(..);
    let (mut cache, reader) = cache::new(memory, 0, seed);
    let read = if from == Path::new("-") {
        text::read(io::stdin().lock(), now(), &mut cache)
    } else {
        let file =
            File::open(from).map_err(|cause| whole(from, &format!("it cannot be read: {cause}"), ""))?;
        text::read(BufReader::new(file), now(), &mut cache)
    };
    let count = read.map_err(|(line, what)| {
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        let expected = "address<TAB>expiry in seconds since 1970<TAB>name, or - for no name";
        Failure::Faults(Fault::at(from.to_string_lossy(), line, 1, what, expected).into())
    })?;
    snapshot::save(&reader.view(), now(), to)
        .map_err(|cause| Failure::Failed(format!("{}: {cause}", to.display())))?;
    let kept = cache.len();
    session::print(format!("{}: {kept} entries of {count} lines", to.display()).as_bytes())
}

fn whole(path: &Path, what: &str, expected: &str) -> Failure {
    Failure::Faults(Fault::whole(path.to_string_lossy(), what, expected).into())
}

fn now() -> u32 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}

/// An address with or without a port, which is then 53.
fn upstream(text: &str) -> Result<SocketAddr, String> {
    let with_port = text.parse().or_else(|_| text.parse().map(|ip| SocketAddr::new(ip, 53)));
    with_port.map_err(|_| "expected an IP address, with a port where it is not 53".into())
}

fn time(text: &str) -> Result<Duration, String> {
    let expected = || "expected a time such as 50ms, 2s, 5min, 1h or 7d".to_owned();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u32 = number.parse().map_err(|_| expected())?;
    let unit = match unit {
        "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        "min" => Duration::from_secs(60),
        "h" => Duration::from_secs(3_600),
        "d" => Duration::from_secs(86_400),
        _ => return Err(expected()),
    };
    unit.checked_mul(number).ok_or_else(expected)
}

fn ttl(text: &str) -> Result<Ttl, String> {
    match text.split_once("..") {
        None => time(text).map(Ttl::Fixed),
        Some((least, most)) => {
            let (least, most) = (time(least)?, time(most)?);
            if least > most {
                Err("the first time is the longer one".into())
            } else {
                Ok(Ttl::Record(least, most))
            }
        }
    }
}

fn size(text: &str) -> Result<usize, String> {
    let expected = || "expected a size such as 64MiB or 2GiB".to_owned();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: usize = number.parse().map_err(|_| expected())?;
    let shift = match unit {
        "MiB" => 20,
        "GiB" => 30,
        _ => return Err(expected()),
    };
    number.checked_mul(1 << shift).ok_or_else(expected)
}

/// Tells the one who started us, whatever the form of the log.
fn tell(line: &str) {
    // Nobody may be reading any more, which is no reason not to serve.
    let _ = writeln!(io::stderr(), "{line}");
}

fn notify(state: NotifyState<'_>) {
    if let Err(cause) = sd_notify::notify(&[state]) {
        tracing::warn!(%cause, "the service manager was not told");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_sizes_and_upstreams() {
        for (text, expected) in [
            ("50ms", Some(50)),
            ("2s", Some(2000)),
            ("5min", Some(300_000)),
            ("2", None),
            ("", None),
            ("-1s", None),
        ] {
            assert_eq!(time(text).ok(), expected.map(Duration::from_millis), "{text}");
        }
        assert_eq!(ttl("7d"), Ok(Ttl::Fixed(Duration::from_secs(604_800))));
        assert_eq!(ttl("1min..1h"), Ok(Ttl::Record(Duration::from_secs(60), Duration::from_secs(3600))));
        assert!(ttl("1h..1min").is_err() && ttl("1h..").is_err());
        assert_eq!((size("64MiB"), size("1GiB")), (Ok(64 << 20), Ok(1 << 30)));
        assert!(size("64").is_err() && size("99999999999999999999GiB").is_err());
        assert_eq!(upstream("192.0.2.1"), Ok("192.0.2.1:53".parse().unwrap()));
        assert_eq!(upstream("[2001:db8::1]:5353"), Ok("[2001:db8::1]:5353".parse().unwrap()));
        assert!(upstream("ns.example").is_err());
    }
}
