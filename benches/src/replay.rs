//! The replayer beside other senders, seen by who receives.
//!
//! Sender and receiver stand in network namespaces of their own, a core each, as in [`serve`](crate::serve). Who
//! receives tells when each query arrived ([`arrivals`]), and so how far from its due time
//! ([`errors`](experiments::errors)); for the highest rate it is an echo that costs nothing ([`driver`]). [`traces`] is
//! what is sent, [`senders`] who sends. How many [`connections`] there can be is measured beside Debian's NSD.

mod connections;
pub(crate) mod driver;
pub(crate) mod senders;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use experiments::disturbed::{HELD_UP_MAX, Runs};
use experiments::errors::{Errors, P999_MAX, QUARTILES_MAX, SECOND, SECONDS_MIN};
use experiments::process::FirstSession;
use experiments::traces::MINUTE;
use experiments::{arrivals, disturbed, traces};
use net::awake::Awake;

use crate::machine;
use crate::options::Options;
use crate::report::{Limit, Report, Table, median};
use crate::serve::place::{Place, Reception, SERVER, Side};
use crate::serve::process;
use crate::serve::servers::program;

/// The gaps of LDplayer's synthetic traces.
const GAPS: &[(&str, Duration)] = &[
    ("1s", Duration::from_secs(1)),
    ("100ms", Duration::from_millis(100)),
    ("10ms", Duration::from_millis(10)),
    ("1ms", Duration::from_millis(1)),
    ("0.1ms", Duration::from_micros(100)),
];

/// The root server's own rate, near enough to cut its minute.
const RECORDED_RATE: f64 = 172.0;

/// The limit of our highest rate over dnsperf's, and what is aimed at, in queries a second.
const OVER_DNSPERF: f64 = 1.3;
const AIM: f64 = 200_000.0;

/// How long things take.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    /// At the beginning of a run, ignored.
    ignored: Duration,
    /// What follows of a synthetic trace.
    measured: Duration,
    /// How often the root server's minute is gone through, on time and at 38,000 queries a second.
    loops: u64,
    /// Runs of each trace.
    runs: usize,
    /// Of the root server's minute, in seconds; `None` for all of it.
    cut: Option<f64>,
    /// Of a sender as fast as it goes, in seconds.
    fast: u64,
}

impl Lengths {
    fn new(options: &Options) -> Lengths {
        let (ignored, measured) = (Duration::from_secs(20), Duration::from_secs(20));
        if options.quick {
            let (ignored, measured) = (Duration::from_secs(1), Duration::from_secs(3));
            return Lengths { ignored, measured, loops: 1, runs: 1, cut: Some(5.0), fast: 3 };
        }
        Lengths { ignored, measured, loops: 6, runs: 5, cut: None, fast: 10 }
    }
}

/// By what our queries of many clients are sent, each from a source of its own.
#[derive(Clone, Copy, Debug)]
enum Sent {
    /// A socket of UDP.
    Socket,
    /// Frames, past UDP, routing and the packet filter.
    Frames,
}

impl Sent {
    const BOTH: [Sent; 2] = [Sent::Socket, Sent::Frames];

    fn options(self) -> &'static [&'static str] {
        match self {
            Sent::Socket => &["--source-prefix", senders::PREFIX],
            Sent::Frames => &["--source-prefix", senders::PREFIX, "--frames"],
        }
    }

    /// How the names of such rows end.
    fn told(self) -> &'static str {
        match self {
            Sent::Socket => "",
            Sent::Frames => ", frames",
        }
    }
}

/// Rows that can be asked for.
const ROWS: &[&str] = &["even", "awake", "recorded", "root", "rivals", "fast", "connections"];

/// Measures all rows that are wanted.
///
/// # Errors
/// Where a sender fails, or a name in `--only` is none.
pub(crate) fn run(options: &Options, report: &mut Report) -> Result<()> {
    if let Some(unknown) = options.only.iter().find(|name| !ROWS.contains(&name.as_str())) {
        bail!("{unknown} is no row; there are {}", ROWS.join(", "));
    }
    let _first = FirstSession::begin();
    let place = Place::make()?;
    place.receive(Reception::Exchanged)?;
    let lengths = Lengths::new(options);
    for (name, version) in senders::versions() {
        report.version(name, version);
    }
    let mut timing = Timing { lengths, table: Vec::new(), musts: Vec::new(), seconds: (0, 0) };
    if options.wants("even") {
        timing.even(options, &place)?;
    }
    if options.wants("awake") {
        // Not kept meanwhile: in half of the runs cores are to rest.
        match Awake::begin().err() {
            None => timing.awake(options, &place)?,
            Some(why) => report.note(format!("The rows with \"--awake\" are left out: {why}.")),
        }
    }
    senders::allow_prefix()?;
    if options.wants("recorded") {
        for by in Sent::BOTH {
            timing.recorded(options, "nsd-live, as recorded", by, 1.0, 1, lengths.runs)?;
        }
    }
    if options.wants("root") {
        let (_, factor) = traces::to_root_rate(&machine::data(MINUTE)?, options.seed)?;
        for by in Sent::BOTH {
            timing.recorded(options, "nsd-live at 38,000/s", by, factor, 1, lengths.runs)?;
            timing.recorded(options, "nsd-live at 38,000/s, long", by, factor, lengths.loops, 1)?;
        }
    }
    if options.wants("rivals") {
        timing.rivals(options, &place)?;
    }
    timing.told(report);
    if options.wants("fast") {
        fast(options, lengths, &place, report)?;
    }
    if options.wants("connections") {
        connections::run(options.quick, &place, report)?;
    }
    report.note(
        "Errors: when the receiver's kernel took a query from the interface less when it was due, with the median of \
         these differences taken off; matched in order of time. Loopback of a kind: a veth pair in one machine, where \
         the kernel receives on the sender's core. All of these senders come before other programs (`nice -n -20`, and so \
         does their session).",
    );
    report.note(
        "Rows with \"frames\": with `--frames`, queries leave as Ethernet frames of the replayer's own, past the system's \
         UDP, routing and packet filter; the others leave through one UDP socket, with a source address each.",
    );
    report.note(
        "Rows with \"at rest\" and \"--awake\": in turns, without and with that option; all of their runs count.",
    );
    report.note(format!(
        "A run of ours is disturbed where other programs and the machine's host had more than {} % of its time, and is \
         done again; where as many as are wanted were disturbed, all count.",
        HELD_UP_MAX * 1e2
    ));
    if options.quick {
        report.note("This was a `--quick` run: it shows that everything works, not how well.");
    }
    Ok(())
}

/// The rows about timing, as they come.
struct Timing {
    lengths: Lengths,
    table: Vec<Vec<String>>,
    musts: Vec<(String, f64, f64)>,
    /// Of our own runs: seconds whose rate was judged, and kept.
    seconds: (usize, usize),
}

impl Timing {
    /// Ours, with equal gaps.
    fn even(&mut self, options: &Options, place: &Place) -> Result<()> {
        let file = place.folder.join("even.txt");
        for (name, gap) in GAPS {
            let length = (self.lengths.ignored + self.lengths.measured).max(*gap * 5);
            let runs = disturbed::runs(self.lengths.runs, |run| {
                let dues = traces::even(&file, *gap, length, options.seed + run)?;
                let (report, arrived) = received(|| senders::pointsman(&file, &[]))?;
                Ok((disturbed::held_up(&report), self.errors(&dues, &arrived)?))
            });
            self.ours(&format!("gaps of {name}"), runs.with_context(|| format!("gaps of {name}"))?);
        }
        Ok(())
    }

    /// Ours with equal gaps, where cores may rest and where they may not, in turns; all runs count.
    fn awake(&mut self, options: &Options, place: &Place) -> Result<()> {
        let file = place.folder.join("even.txt");
        let length = self.lengths.ignored + self.lengths.measured;
        for (name, gap) in &GAPS[2..4] {
            let mut arms =
                [("at rest", &[][..]), ("--awake", &["--awake"])].map(|arm| (arm, Vec::new(), 0.0));
            for run in 0..self.lengths.runs {
                let dues = traces::even(&file, *gap, length, options.seed + run as u64)?;
                for ((_, more), errors, held_up) in &mut arms {
                    let (report, arrived) = received(|| senders::pointsman(&file, more))?;
                    errors.push(self.errors(&dues, &arrived)?);
                    *held_up = disturbed::held_up(&report).max(*held_up);
                }
            }
            for ((told, _), errors, held_up) in &arms {
                let (runs, held_up) = (errors.len().to_string(), format!("{:.3}", held_up * 1e2));
                self.row("pointsman", &format!("gaps of {name}, {told}"), runs, held_up, errors);
            }
        }
        Ok(())
    }

    /// Ours, with the root server's minute.
    fn recorded(
        &mut self,
        options: &Options,
        what: &str,
        by: Sent,
        factor: f64,
        loops: u64,
        runs: usize,
    ) -> Result<()> {
        let trace = machine::data(MINUTE)?;
        let limit = self.lengths.cut.map(|seconds| (RECORDED_RATE * factor * seconds) as u64);
        let runs = disturbed::runs(runs, |run| {
            let seed = options.seed + run;
            let dues = traces::recorded(&trace, factor, loops, limit, seed)?;
            let words = [factor.to_string(), loops.to_string(), seed.to_string(), dues.len().to_string()];
            let more =
                ["--factor", &words[0], "--loop", &words[1], "--seed", &words[2], "--limit", &words[3]];
            let (report, arrived) =
                received(|| senders::pointsman(&trace, &[&more[..], by.options()].concat()))?;
            Ok((disturbed::held_up(&report), self.errors(&dues, &arrived)?))
        });
        let what = format!("{what}{}", by.told());
        self.ours(&what, runs.with_context(|| what.clone())?);
        Ok(())
    }

    /// Others, with what they can do of it.
    fn rivals(&mut self, options: &Options, place: &Place) -> Result<()> {
        let names = place.folder.join("names");
        traces::names(&names)?;
        let seconds = (self.lengths.ignored + self.lengths.measured).as_secs();
        for (name, gap) in &GAPS[2..] {
            let rate = (SECOND / gap.as_nanos() as u64).max(1);
            let ideal = |arrived: &[u64]| -> Vec<u64> {
                (0..arrived.len() as u64).map(|i| i * gap.as_nanos() as u64).collect()
            };
            let ((), arrived) = received(|| senders::dnsperf_rate(&names, rate, seconds))?;
            let run = self.errors(&ideal(&arrived), &arrived).context("dnsperf")?;
            self.other("dnsperf", &format!("gaps of {name}"), run);
            let ((), arrived) = received(|| senders::kxdpgun_rate(&names, rate, seconds))?;
            let run = self.errors(&ideal(&arrived), &arrived).context("kxdpgun")?;
            self.other("kxdpgun", &format!("gaps of {name}"), run);
        }
        if options.quick {
            return Ok(());
        }
        let capture = place.folder.join("minute.pcap");
        let mut convert = std::process::Command::new(program());
        convert.args(["trace", "convert"]).arg(machine::data(MINUTE)?).arg(&capture);
        process::read(&mut convert)?;
        let dues = traces::recorded(&capture, 1.0, 1, None, options.seed)?;
        let (_, arrived) = received(|| senders::dnsreplay(&capture))?;
        match self.errors(&dues, &arrived) {
            Ok(run) => self.other("dnsreplay", "nsd-live, as recorded", run),
            // It leaves out what it cannot match, so nothing says which query arrived when.
            Err(_) => {
                let what = format!("{} of {} queries were sent", arrived.len(), dues.len());
                self.table.push(vec!["dnsreplay".into(), "nsd-live, as recorded".into(), what]);
            }
        }
        Ok(())
    }

    fn errors(&self, dues: &[u64], arrived: &[u64]) -> Result<Errors> {
        Errors::of(dues, arrived, self.lengths.ignored.as_nanos() as u64)
    }

    fn ours(&mut self, what: &str, runs: Runs) {
        self.musts.push((what.to_owned(), runs.worst(Errors::quartiles), runs.worst(Errors::p999)));
        self.seconds.0 += runs.counted.iter().map(|run| run.rates_off().len()).sum::<usize>();
        self.seconds.1 += runs.counted.iter().map(Errors::rates_kept).sum::<usize>();
        let held_up = format!("{:.3}", runs.held_up * 1e2);
        self.row("pointsman", what, runs.told(), held_up, &runs.counted);
    }

    /// One run of another sender, of which nobody tells how it was held up.
    fn other(&mut self, who: &str, what: &str, run: Errors) {
        self.row(who, what, "1".into(), String::new(), &[run]);
    }

    /// A row: the medians over the runs, and the worst run.
    fn row(&mut self, who: &str, what: &str, told: String, held_up: String, runs: &[Errors]) {
        let of = |value: fn(&Errors) -> f64| runs.iter().map(value).collect::<Vec<f64>>();
        let cell = |values: Vec<f64>| {
            let worst = values.iter().copied().fold(0.0, f64::max);
            format!("{:.1} ({worst:.1})", median(&values).unwrap_or_default())
        };
        let queries: usize = runs.iter().map(Errors::queries).sum();
        println!("{who} {what}: p99.9 {}", cell(of(Errors::p999)));
        self.table.push(vec![
            who.to_owned(),
            what.to_owned(),
            told,
            held_up,
            queries.to_string(),
            cell(of(Errors::quartiles)),
            cell(of(Errors::p999)),
            cell(of(Errors::extreme)),
        ]);
    }

    fn told(self, report: &mut Report) {
        report.add(Table {
            title: "Timing errors at the receiver, in us: the median over the runs (the worst run)",
            head: &["sender", "trace", "runs", "held up, %", "queries", "quartiles", "p99.9", "extreme"],
            rows: self.table,
        });
        for (what, quartiles, p999) in self.musts {
            report.must(format!("{what}: quartiles, us"), Limit::AtMost(QUARTILES_MAX), Some(quartiles));
            report.must(format!("{what}: p99.9, us"), Limit::AtMost(P999_MAX), Some(p999));
        }
        let (judged, kept) = self.seconds;
        report.note(format!(
            "Seconds with 10,000 queries and more: {judged}; within 0.1 % of their rate: {kept}."
        ));
        let share = (judged > 0).then(|| kept as f64 / judged as f64);
        report.must("seconds within 0.1 % of their rate, share", Limit::AtLeast(SECONDS_MIN), share);
    }
}

/// Does something while the server's side receives; with its result, when each query arrived.
fn received<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<u64>)> {
    arrivals::during((SERVER, 53).into(), || Side::Server.enter(), work)
}

/// The highest rate, in rounds beside dnsperf.
fn fast(options: &Options, lengths: Lengths, place: &Place, report: &mut Report) -> Result<()> {
    let (names, log) = (place.folder.join("names"), place.folder.join("rows"));
    traces::names(&names)?;
    let many = place.folder.join("clients.txt");
    traces::even(&many, Duration::from_micros(10), Duration::from_secs(1), options.seed)?;
    let mut found: [Vec<f64>; 3] = Default::default();
    let ((), echo) = driver::during(place, || {
        for _ in 0..options.rounds {
            found[0].push(senders::pointsman_fast(&names, &log, lengths.fast * AIM as u64, &[])?);
            let prefix = ["--source-prefix", senders::PREFIX];
            found[1].push(senders::pointsman_fast(&many, &log, lengths.fast * AIM as u64, &prefix)?);
            found[2].push(senders::dnsperf_fast(&names, lengths.fast)?);
            println!("as fast as it goes: {:?}", found.iter().map(|rates| rates.last()).collect::<Vec<_>>());
        }
        Ok(())
    })?;
    let medians = found.each_ref().map(|rates| median(rates));
    let row = |who: &str, rates: &[f64]| {
        let best = rates.iter().copied().fold(0.0, f64::max);
        vec![who.to_owned(), format!("{:.0}", median(rates).unwrap_or_default()), format!("{best:.0}")]
    };
    report.add(Table {
        title: "The highest rate over UDP sockets, every query's times kept: answers a second from one core",
        head: &["sender", "median", "best"],
        rows: vec![
            row("pointsman, one client", &found[0]),
            row("pointsman, 10,000 clients of a prefix", &found[1]),
            row("dnsperf, one client", &found[2]),
        ],
    });
    report.note(format!("As fast as it goes, against {}.", echo.name()));
    let over = medians[0].zip(medians[2]).map(|(ours, theirs)| ours / theirs);
    report.must("highest rate over dnsperf's", Limit::AtLeast(OVER_DNSPERF), over);
    report.must("highest rate, answers a second (an aim)", Limit::AtLeast(AIM), medians[0]);
    Ok(())
}
