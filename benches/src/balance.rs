//! The balancer beside Debian's dnsdist, and what a pick costs.
//!
//! ```text
//! source, core 1: kxdpgun, our replayer ──vc─vs── balancer, core 0 ──vb─ve── back ends that cost next to nothing
//! ```
//! Source and balancer are placed as in [`serve`](crate::serve), the back ends behind a pair of their own ([`behind`]).
//! In reading order: [`balancers`] who balances, [`added`] what it adds to latency, [`outstanding`] what memory queries
//! take that wait, [`encrypted`] what back ends over TLS cost, [`picks`] what a pick takes, [`judged`] what rules take,
//! both without any network.

mod added;
mod balancers;
mod behind;
mod encrypted;
mod judged;
mod outstanding;
mod picks;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fastrand::Rng;

use crate::options::Options;
use crate::report::{Limit, Report, Table, median};
use crate::serve::place::Place;
use crate::serve::rate::Plan;
use crate::serve::source::Source;
use crate::serve::zone;
use balancers::{BALANCERS, Balancer, Setup};
use behind::Behind;

/// The parts that can be asked for.
const PARTS: &[&str] = &["picks", "rules", "rate", "mixed", "cached", "encrypted", "latency", "memory"];

/// The rate at which processor time is measured, in queries a second: everybody answers all of it.
const CPU_RATE: u64 = 40_000;

/// Seconds of it in each round.
const CPU_SECONDS: u64 = 10;
const CPU_SECONDS_QUICK: u64 = 2;

/// How many names are asked for in turn where they are of many lengths, and how long their first labels are.
const NAMES: usize = 1_000;
const LABEL: RangeInclusive<usize> = 1..=40;

/// How many queries a second we must carry for each of dnsdist's.
const OVER_DNSDIST: f64 = 1.5;

/// What the rounds of one balancer found.
#[derive(Default)]
struct Rounds {
    lossless: Vec<f64>,
    peak: Vec<f64>,
    /// User and system time at [`CPU_RATE`], and the answers of it.
    cpu: Duration,
    answers: u64,
}

/// Measures all parts that are wanted.
///
/// # Errors
/// Where a balancer does not start, a source fails, or a name in `--only` is none.
pub(crate) fn run(options: &Options, report: &mut Report) -> Result<()> {
    if let Some(unknown) = options.only.iter().find(|name| !PARTS.contains(&name.as_str())) {
        bail!("{unknown} is no part; there are {}", PARTS.join(", "));
    }
    if options.wants("picks") {
        picks::measure(options, report);
    }
    if options.wants("rules") {
        judged::measure(options, report)?;
    }
    if !PARTS[2..].iter().any(|part| options.wants(part)) {
        return Ok(());
    }
    let place = Place::make()?;
    let behind = Behind::make()?;
    for (name, version) in balancers::versions() {
        report.version(name, version);
    }
    report.version("kxdpgun", crate::machine::said("kxdpgun", &["--version"]));
    if options.wants("latency") {
        added::measure(options, &place, &behind, report)?;
    }
    if options.wants("memory") {
        outstanding::measure(&place, &behind, report)?;
    }
    let mut answered_by = None;
    for asked in [Asked::one_name(), Asked::many_lengths(options.seed)] {
        if options.wants(asked.part) {
            let measured = || rates(options, &place, &asked);
            let (found, echo) = behind.answering(&place, measured)?;
            tell(report, &asked, &found);
            answered_by = Some(echo);
        }
    }
    let asked = Asked::of_cache(options.seed);
    if options.wants(asked.part) {
        let found = behind.serving(&place, None, || rates(options, &place, &asked))?;
        tell(report, &asked, &found);
    }
    if options.wants("encrypted") {
        let questions = Asked::many_lengths(options.seed).questions;
        encrypted::measure(options, &place, &behind, &questions, report)?;
    }
    if let Some(echo) = answered_by {
        report.note(format!(
            "Lossless: the highest offered rate of which >= 99.5 % is answered and >= 98 % was really offered. The back \
             ends are {}, whose work is done on the balancer's core.",
            echo.name(),
        ));
    }
    if options.quick {
        report.note("This was a `--quick` run: it shows that everything works, not how fast it is.");
    }
    Ok(())
}

/// What is asked while rates are measured.
struct Asked {
    part: &'static str,
    title: &'static str,
    /// The questions that are sent, a line `name type` for each.
    questions: String,
    setup: Setup<'static>,
}

impl Asked {
    fn one_name() -> Asked {
        Asked {
            part: "rate",
            title: "One core, UDP, two back ends, one name",
            questions: format!("{} A\n", zone::STATIC),
            setup: Setup::USUAL,
        }
    }

    /// As they come from resolvers: of those that come together few are equally long.
    fn many_lengths(seed: u64) -> Asked {
        let mut rng = Rng::with_seed(seed);
        let mut label = || -> String { (0..rng.usize(LABEL)).map(|_| rng.lowercase()).collect() };
        Asked {
            part: "mixed",
            title: "One core, UDP, two back ends, names of many lengths",
            questions: (0..NAMES).map(|_| format!("{}.example.com A\n", label())).collect(),
            setup: Setup::USUAL,
        }
    }

    /// The same, of which balancers have the answers.
    fn of_cache(seed: u64) -> Asked {
        Asked {
            part: "cached",
            title: "One core, UDP, names of many lengths, answers from the balancers' caches",
            setup: Setup { has_cache: true, ..Setup::USUAL },
            ..Asked::many_lengths(seed)
        }
    }
}

/// What was found of each balancer, by its name.
type Found = BTreeMap<&'static str, Rounds>;

fn rates(options: &Options, place: &Place, asked: &Asked) -> Result<Found> {
    let mut rng = Rng::with_seed(options.seed);
    let mut found = Found::new();
    for round in 1..=options.rounds {
        let mut order = BALANCERS.to_vec();
        rng.shuffle(&mut order);
        for balancer in &order {
            let rounds = found.entry(balancer.name).or_default();
            rate(options, place, balancer, asked, rounds).with_context(|| balancer.name.to_owned())?;
            println!(
                "round {round} {:<16} lossless {:>7.0}/s  peak {:>7.0}/s",
                balancer.name,
                rounds.lossless.last().copied().unwrap_or_default(),
                rounds.peak.last().copied().unwrap_or_default(),
            );
        }
    }
    Ok(found)
}

fn tell(report: &mut Report, asked: &Asked, found: &Found) {
    let rows = BALANCERS.iter().filter_map(|balancer| {
        let rounds = found.get(balancer.name)?;
        let best = |values: &[f64]| format!("{:.0}", values.iter().copied().fold(0.0, f64::max));
        let middle = |values: &[f64]| format!("{:.0}", median(values).unwrap_or_default());
        Some(vec![
            balancer.name.to_owned(),
            middle(&rounds.lossless),
            best(&rounds.lossless),
            middle(&rounds.peak),
            best(&rounds.peak),
            format!("{:.2}", rounds.cpu.as_secs_f64() * 1e6 / (rounds.answers as f64).max(1.0)),
        ])
    });
    report.add(Table {
        title: asked.title,
        head: &["balancer", "lossless/s, median", "best", "peak/s, median", "best", "CPU an answer, us"],
        rows: rows.collect(),
    });
    let of = |values: fn(&Rounds) -> &Vec<f64>, is_ours: bool| {
        let those = BALANCERS.iter().filter(|balancer| balancer.is_ours == is_ours);
        those.filter_map(|balancer| median(values(found.get(balancer.name)?))).reduce(f64::max)
    };
    for (what, values) in [
        ("lossless queries/s", (|rounds| &rounds.lossless) as fn(&Rounds) -> &Vec<f64>),
        ("most answers/s", |rounds| &rounds.peak),
    ] {
        let ratio = of(values, true).zip(of(values, false).filter(|theirs| *theirs > 0.0));
        report.must(
            format!("{}: {what} over dnsdist's best", asked.part),
            Limit::AtLeast(OVER_DNSDIST),
            ratio.map(|(ours, theirs)| ours / theirs),
        );
    }
}

fn rate(
    options: &Options,
    place: &Place,
    balancer: &Balancer,
    asked: &Asked,
    rounds: &mut Rounds,
) -> Result<()> {
    let running = balancer.start(place, asked.setup)?;
    let source = Source::of(place, asked.part, &asked.questions)?;
    source.udp(CPU_RATE, 1)?;
    let before = running.group.cpu()?;
    let seen = source.udp(CPU_RATE, if options.quick { CPU_SECONDS_QUICK } else { CPU_SECONDS })?;
    rounds.cpu += running.group.cpu()?.saturating_sub(before);
    rounds.answers += seen.answered;
    let found = Plan::new(options.quick).search(&source)?;
    rounds.lossless.push(found.lossless as f64);
    rounds.peak.push(found.peak);
    Ok(())
}
