//! The program beside other name servers, over the wire.
//!
//! Servers and source stand in network namespaces of their own ([`place`]), a core each. One server runs at a
//! time ([`servers`], [`process`]); kxdpgun sends ([`source`]), at rising rates ([`rate`]). Rounds go over all
//! arms, in an order that is shuffled for each. Beside the arms stand rows for both kinds of our answers in
//! [`turns`], [`tcp`], [`updates`] and the [`start`] with a large zone; [`zone`] is what everybody serves.

pub(crate) mod place;
pub(crate) mod process;
pub(crate) mod rate;
pub(crate) mod servers;
pub(crate) mod source;
mod start;
pub(crate) mod tcp;
mod turns;
mod updates;
pub(crate) mod zone;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fastrand::Rng;

use crate::options::Options;
use crate::report::{Limit, Report, Table, median, quantile};
use place::Place;
use rate::{Found, Plan};
use servers::Server;
use source::Source;

/// The rate at which CPU per answer is measured, in queries a second: all servers but the slowest answer all of
/// it.
const CPU_RATE: u64 = 50_000;

/// Seconds of it in all rounds together: more than two million answers.
const CPU_SECONDS: u64 = 41;

/// The same for `--quick`, in each round.
const CPU_SECONDS_QUICK: u64 = 4;

/// Seconds of sending before anything is measured.
const WARM_SECONDS: u64 = 1;

/// One line of the table: a server, what it is asked, and whether its policy changes meanwhile.
struct Arm {
    name: &'static str,
    server: Server,
    asked: &'static str,
    updates: bool,
}

const ARMS: &[Arm] = &[
    Arm { name: "static", server: Server::Pointsman, asked: zone::STATIC, updates: false },
    Arm { name: "steered", server: Server::Pointsman, asked: zone::STEERED, updates: false },
    Arm { name: "updated", server: Server::Pointsman, asked: zone::STEERED, updates: true },
    Arm { name: "static-xdp", server: Server::PointsmanXdp, asked: zone::STATIC, updates: false },
    Arm { name: "steered-xdp", server: Server::PointsmanXdp, asked: zone::STEERED, updates: false },
    Arm { name: "knot-xdp", server: Server::KnotXdp, asked: zone::STATIC, updates: false },
    Arm { name: "knot", server: Server::Knot, asked: zone::STATIC, updates: false },
    Arm { name: "knot-geoip", server: Server::KnotGeoip, asked: zone::STEERED, updates: false },
    Arm { name: "nsd", server: Server::Nsd, asked: zone::STATIC, updates: false },
    Arm { name: "gdnsd", server: Server::Gdnsd, asked: zone::STATIC, updates: false },
    Arm { name: "gdnsd-weighted", server: Server::Gdnsd, asked: zone::STEERED, updates: false },
    Arm { name: "pdns-geoip", server: Server::Pdns, asked: zone::STEERED, updates: false },
];

/// The rows beside the arms.
const ROWS: &[&str] = &["steering", "tcp", "updates", "start"];

/// What the rounds of one arm found.
#[derive(Default)]
struct Rounds {
    lossless: Vec<f64>,
    peak: Vec<f64>,
    /// User and system time of the measurements of it, and their answers.
    cpu: Duration,
    answers: u64,
    /// Octets, after the load.
    memory: Vec<f64>,
    /// Milliseconds from when an update was due to its answer.
    updates: Vec<f64>,
}

impl Rounds {
    /// Microseconds of processor time an answer, of all rounds together.
    fn cpu_an_answer(&self) -> Option<f64> {
        (self.answers > 0).then(|| self.cpu.as_secs_f64() * 1e6 / self.answers as f64)
    }
}

/// Measures all arms and rows that are wanted.
///
/// # Errors
/// Where a server does not start, a source fails, or a name in `--only` is none.
pub(crate) fn run(options: &Options, report: &mut Report) -> Result<()> {
    let known = |name: &String| ARMS.iter().any(|arm| arm.name == name) || ROWS.contains(&name.as_str());
    if let Some(unknown) = options.only.iter().find(|name| !known(name)) {
        let names: Vec<&str> = ARMS.iter().map(|arm| arm.name).chain(ROWS.iter().copied()).collect();
        bail!("{unknown} is no arm; there are {}", names.join(", "));
    }
    let place = Place::make()?;
    let arms: Vec<&Arm> = ARMS.iter().filter(|arm| options.wants(arm.name)).collect();
    versions(&arms, report);
    let found = rounds(options, &place, &arms)?;
    arms_of(report, &arms, &found);
    if options.wants("steering") {
        steering_rows(options, &place, report)?;
    }
    if options.wants("tcp") {
        tcp_rows(options, &place, report)?;
    }
    if options.wants("updates") {
        update_rows(options, &place, report, found.get("updated"))?;
    }
    if options.wants("start") {
        start_rows(options, &place, report)?;
    }
    report.note(
        "Lossless: the highest offered rate of which >= 99.5 % is answered and >= 98 % was really offered. One core \
         for the server, one for the source; only ratios between servers of one run mean something.",
    );
    if options.quick {
        report.note("This was a `--quick` run: it shows that everything works, not how fast it is.");
    }
    Ok(())
}

fn versions(arms: &[&Arm], report: &mut Report) {
    let mut told = Vec::new();
    for server in [Server::Pointsman, Server::Knot, Server::Nsd, Server::Gdnsd, Server::Pdns] {
        if server == Server::Pointsman || arms.iter().any(|arm| arm.server == server) {
            told.push((server.name(), server.version()));
        }
    }
    told.push(("kxdpgun", crate::machine::said("kxdpgun", &["--version"])));
    for (name, version) in told {
        report.version(name, version);
    }
}

fn rounds(options: &Options, place: &Place, arms: &[&Arm]) -> Result<BTreeMap<&'static str, Rounds>> {
    let mut rng = Rng::with_seed(options.seed);
    let mut found: BTreeMap<&'static str, Rounds> = BTreeMap::new();
    for round in 1..=options.rounds {
        let mut order = arms.to_vec();
        rng.shuffle(&mut order);
        for arm in order {
            let so_far = found.entry(arm.name).or_default();
            let measured = measure(options, place, arm, so_far);
            let Found { lossless, peak } = measured.with_context(|| format!("the arm {}", arm.name))?;
            let cpu = so_far.cpu_an_answer().unwrap_or_default();
            println!(
                "round {round} {:<16} lossless {lossless:>7}/s  peak {peak:>7.0}/s  {cpu:>6.2} us an answer so far",
                arm.name,
            );
        }
    }
    Ok(found)
}

fn measure(options: &Options, place: &Place, arm: &Arm, rounds: &mut Rounds) -> Result<Found> {
    place.free_frames()?;
    let running = arm.server.start(place)?;
    if arm.server.takes_frames() {
        place.receive_by_thread()?;
    }
    let source = Source::new(place, arm.asked)?;
    source.udp(CPU_RATE, WARM_SECONDS)?;
    let done = AtomicBool::new(false);
    let (found, updates) = thread::scope(|scope| {
        let updating = arm.updates.then(|| scope.spawn(|| updates::steadily(&done)));
        let measured = (|| {
            let seconds =
                if options.quick { CPU_SECONDS_QUICK } else { CPU_SECONDS.div_ceil(options.rounds as u64) };
            // Of what frames cost, a part is that of the kernel's thread, which cannot be read from here.
            if !arm.server.takes_frames() {
                let before = running.group.cpu()?;
                let seen = source.udp(CPU_RATE, seconds)?;
                rounds.cpu += running.group.cpu()?.saturating_sub(before);
                rounds.answers += seen.answered;
            }
            Plan::new(options.quick).search(&source)
        })();
        done.store(true, Ordering::Relaxed);
        let updates = updating
            .map(|updating| updating.join().unwrap_or_else(|_| bail!("the updating thread panicked")));
        measured.map(|found| (found, updates))
    })?;
    rounds.updates.extend(updates.transpose()?.unwrap_or_default());
    rounds.lossless.push(found.lossless as f64);
    rounds.peak.push(found.peak);
    rounds.memory.push(running.group.memory()? as f64);
    Ok(found)
}

fn arms_of(report: &mut Report, arms: &[&Arm], found: &BTreeMap<&'static str, Rounds>) {
    let of = |name: &str, values: fn(&Rounds) -> &Vec<f64>| found.get(name).and_then(|r| median(values(r)));
    let rows = arms.iter().filter_map(|arm| {
        let rounds = found.get(arm.name)?;
        let best = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let middle = |values: &[f64]| median(values).unwrap_or_default();
        Some(vec![
            arm.name.to_owned(),
            arm.server.name().to_owned(),
            format!("{:.0}", middle(&rounds.lossless)),
            format!("{:.0}", best(&rounds.lossless)),
            format!("{:.0}", middle(&rounds.peak)),
            format!("{:.0}", best(&rounds.peak)),
            rounds.cpu_an_answer().map_or("-".to_owned(), |cpu| format!("{cpu:.2}")),
            format!("{:.0}", middle(&rounds.memory) / 1e6),
        ])
    });
    report.add(Table {
        title: "One core, UDP",
        head: &[
            "arm",
            "server",
            "lossless/s, median",
            "best",
            "peak/s, median",
            "best",
            "CPU an answer, us",
            "memory, MB",
        ],
        rows: rows.collect(),
    });
    let lossless = |name| of(name, |rounds| &rounds.lossless);
    let cpu = |name| found.get(name).and_then(Rounds::cpu_an_answer);
    let sockets = ARMS.iter().filter(|arm| !arm.server.is_ours() && !arm.server.takes_frames());
    let best = sockets.filter_map(|arm| lossless(arm.name)).reduce(f64::max);
    report.must(
        "steered: lossless rate over the best peer's",
        Limit::AtLeast(0.97),
        ratio(lossless("steered"), best),
    );
    report.must(
        "steered: CPU an answer over gdnsd's (weighted)",
        Limit::AtMost(1.05),
        ratio(cpu("steered"), cpu("gdnsd-weighted")),
    );
    report.must(
        "frames: lossless rate over Knot's frames",
        Limit::AtLeast(1.0),
        ratio(lossless("static-xdp"), lossless("knot-xdp")),
    );
    report.must(
        "frames: lossless rate over our sockets",
        Limit::AtLeast(1.5),
        ratio(lossless("static-xdp"), lossless("static")),
    );
    report.must(
        "100 updates/s: lossless rate over none",
        Limit::AtLeast(0.98),
        ratio(lossless("updated"), lossless("steered")),
    );
    report.must(
        "100 updates/s: CPU an answer over none",
        Limit::AtMost(1.02),
        ratio(cpu("updated"), cpu("steered")),
    );
}

fn steering_rows(options: &Options, place: &Place, report: &mut Report) -> Result<()> {
    let mut found = Vec::new();
    for round in 1..=options.rounds {
        let kinds = turns::measure(place, options.quick, round % 2 == 1).context("steering in turns")?;
        for (name, kind) in ["static", "steered"].iter().zip(&kinds) {
            let Found { lossless, peak } = kind.rate;
            println!(
                "round {round} in turns, {name:<8} lossless {lossless:>7}/s  peak {peak:>7.0}/s  {:>6.2} us an answer",
                kind.cpu,
            );
        }
        found.push(kinds);
    }
    let rows = ["static", "steered"].iter().enumerate().map(|(kind, name)| {
        let middle = |of: fn(&turns::Kind) -> f64| {
            median(&found.iter().map(|kinds| of(&kinds[kind])).collect::<Vec<f64>>()).unwrap_or_default()
        };
        vec![
            (*name).to_owned(),
            format!("{:.0}", middle(|kind| kind.rate.lossless as f64)),
            format!("{:.0}", middle(|kind| kind.rate.peak)),
            format!("{:.2}", middle(|kind| kind.cpu)),
        ]
    });
    report.add(Table {
        title: "What steering costs: both kinds of answers of one process, in turns (medians of rounds)",
        head: &["answers", "lossless/s", "peak/s", "CPU an answer, us"],
        rows: rows.collect(),
    });
    let ratios = |of: fn(&turns::Kind) -> f64| {
        found.iter().map(|[fixed, steered]| of(steered) / of(fixed)).collect::<Vec<f64>>()
    };
    let cpu_ratio = ratios(|kind| kind.cpu);
    let lossless_ratio = ratios(|kind| kind.rate.lossless as f64);
    let all =
        |ratios: &[f64]| ratios.iter().map(|ratio| format!("{ratio:.3}")).collect::<Vec<_>>().join(", ");
    report.note(format!(
        "Steered over static, each round: CPU an answer {}; lossless rate {}.",
        all(&cpu_ratio),
        all(&lossless_ratio),
    ));
    report.must("steered over our static: CPU an answer", Limit::AtMost(1.05), median(&cpu_ratio));
    report.must("steered over our static: lossless rate", Limit::AtLeast(0.95), median(&lossless_ratio));
    Ok(())
}

fn tcp_rows(options: &Options, place: &Place, report: &mut Report) -> Result<()> {
    let servers = [Server::Pointsman, Server::Knot];
    let mut found = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
    for _ in 0..options.rounds {
        for (server, (queries, connections)) in servers.iter().zip(&mut found) {
            let _running = server.start(place)?;
            let source = Source::new(place, zone::STATIC)?;
            let tcp = tcp::measure(place, &source, options.quick)
                .with_context(|| format!("TCP of {}", server.name()))?;
            println!(
                "tcp {:<16} {:.0} queries/s, {:.0} connections/s",
                server.name(),
                tcp.queries,
                tcp.connections
            );
            queries.push(tcp.queries);
            connections.push(tcp.connections);
        }
    }
    let rows = servers.iter().zip(&found).map(|(server, (queries, connections))| {
        let cell = |values: &[f64]| format!("{:.0}", median(values).unwrap_or_default());
        vec![server.name().to_owned(), cell(queries), cell(connections)]
    });
    report.add(Table {
        title: "One core, TCP (medians)",
        head: &["server", "queries/s, 100 kept connections", "connections/s, a query each"],
        rows: rows.collect(),
    });
    let [(ours, our_connections), (knots, knot_connections)] = &found;
    report.must("TCP: queries/s over Knot's", Limit::AtLeast(1.0), ratio(median(ours), median(knots)));
    report.must(
        "TCP: connections/s over Knot's",
        Limit::AtLeast(1.0),
        ratio(median(our_connections), median(knot_connections)),
    );
    Ok(())
}

fn update_rows(options: &Options, place: &Place, report: &mut Report, arm: Option<&Rounds>) -> Result<()> {
    let length = Duration::from_secs(if options.quick { 3 } else { 20 });
    let running = Server::Pointsman.start(place)?;
    let done = AtomicBool::new(false);
    let idle = thread::scope(|scope| {
        let updating = scope.spawn(|| updates::steadily(&done));
        thread::sleep(length);
        done.store(true, Ordering::Relaxed);
        updating.join().unwrap_or_else(|_| bail!("the updating thread panicked"))
    })?;
    let most = updates::at_once(length)?;
    drop(running);
    let loaded = arm.map_or(&[][..], |rounds| &rounds.updates);
    let row = |what: &str, times: &[f64]| {
        let cell = |share| quantile(times, share).map_or("-".to_owned(), |time| format!("{time:.1}"));
        vec![what.to_owned(), times.len().to_string(), cell(0.5), cell(0.99), cell(1.0)]
    };
    report.add(Table {
        title: "Updates: from due to visible, ms",
        head: &["100 updates/s", "updates", "p50", "p99", "most"],
        rows: vec![row("without queries", &idle), row("under the arm's load, overload included", loaded)],
    });
    report.must("100 updates/s: p99 until visible, ms", Limit::AtMost(20.0), quantile(&idle, 0.99));
    report.note(format!(
        "Updates as fast as they go, 32 connections, each its own policy: {most:.0} a second."
    ));
    Ok(())
}

fn start_rows(options: &Options, place: &Place, report: &mut Report) -> Result<()> {
    let ours = start::measure(Server::Pointsman, place, options.rounds).context("the start of pointsman")?;
    let knot = start::measure(Server::Knot, place, options.rounds).context("the start of knot")?;
    let row = |name: &str, start: start::Start| {
        vec![name.to_owned(), format!("{:.2}", start.seconds), format!("{:.0}", start.memory / 1e6)]
    };
    report.add(Table {
        title: "Start with a zone of 1,000,000 records, to the first answer (medians)",
        head: &["server", "s", "memory, MB"],
        rows: vec![row("pointsman, from its store", ours), row("knot, from a zone file", knot)],
    });
    report.must("start: time over Knot's", Limit::AtMost(1.0), ratio(Some(ours.seconds), Some(knot.seconds)));
    report.must("start: memory over Knot's", Limit::AtMost(1.0), ratio(Some(ours.memory), Some(knot.memory)));
    Ok(())
}

/// `None` where either was not measured, or there is nothing to compare with.
fn ratio(ours: Option<f64>, theirs: Option<f64>) -> Option<f64> {
    Some(ours? / theirs.filter(|theirs| *theirs > 0.0)?)
}
