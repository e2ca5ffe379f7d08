//! What is told of all runs.

use replay::plot::{Axis, Line, Plot};

use super::cases::Case;
use super::field::{ARMS, DNSDIST, OURS, WRR};
use super::outcome::{Conditions, Median, Outcome, interval, middle};
use super::turns::Sample;
use crate::options::{Run, Size};
use crate::report::{Limit, Report, number};

/// How a value is read from the outcome of a turn.
type Value = fn(&Outcome) -> f64;

const MEAN: Value = Outcome::mean;
const P99: Value = |outcome| outcome.quantile(0.99);
const ERRORS: Value = Outcome::errors;
const PERCENT: Value = |outcome| outcome.errors() * 100.0;
const COST: Value = |outcome| outcome.work.cost_us();
const LOAD_HAD: Value = |outcome| outcome.conditions.load_had;

/// Answered in runs that are too short to say more, at least.
const ANSWERED_LEAST: f64 = 0.3;

/// Tells all runs of a case.
pub(super) fn all(
    run: &Run,
    case: &Case,
    samples: &[Sample],
    loads: &[f64],
    capacities: &[f64; 3],
    report: &mut Report,
) {
    let whole: f64 = capacities.iter().sum();
    report.say(&format!(
        "Of all queries the servers can take {}.",
        capacities.map(|one| format!("{:.0} %", 100.0 * one / whole)).join(", ")
    ));
    if let Some(why) = void(samples) {
        report.say(&format!("{why} What such runs alone say is in parentheses, and counts for nothing."));
    }
    for load in loads {
        table(&format!("{}, load {load}", case.name), case, samples, *load, report);
        if case.demands(run.size, *load) {
            musts(case, samples, *load, report);
        }
        if *load > 1.0 {
            report.say(&format!(
                "At load {load} {:.1} % of all queries are more than the servers can answer. Whoever balances, so many are \
                 errors, less what still waits at the end: nobody can have half as many as another one there, however \
                 long or short queues are kept.",
                100.0 * (1.0 - 1.0 / *load)
            ));
        }
    }
    if run.size != Size::Full {
        let answered = samples.iter().map(|one| 1.0 - one.outcome.errors()).fold(1.0, f64::min);
        let name = format!("really run, {}: answered at least, share", case.name);
        report.must(name, Limit::AtLeast(ANSWERED_LEAST), answered);
    }
    if loads.len() < 2 {
        return;
    }
    slides(samples, loads, report);
    let drawings: [(&str, &str, Value, bool); 3] = [
        ("Mean response time by load", "ms", MEAN, true),
        ("p99 by load", "ms", P99, true),
        ("Errors by load", "percent", PERCENT, false),
    ];
    for (title, unit, value, is_log) in drawings {
        let lines = present(samples)
            .map(|arm| {
                let point = |load: &f64| {
                    let mut values = values(samples, arm, *load, value);
                    values.sort_by(f64::total_cmp);
                    Some((*load, middle(&values)?))
                };
                let points = loads.iter().filter_map(point);
                Line::new(ARMS[arm].name, points.collect())
            })
            .collect();
        let up = Axis { is_log, ..Axis::titled(unit) };
        let from = loads.iter().copied().reduce(f64::min);
        let across = Axis { from, ..Axis::titled("load, of what the servers can") };
        report.plot(format!("Really run, {}: {title}", case.name), Plot { across, up, lines });
    }
}

/// How many turns were void, and why, and how many runs are after their last turn; where there were such.
fn void(samples: &[Sample]) -> Option<String> {
    let runs = samples.len();
    let mut whys: Vec<&str> = samples.iter().filter_map(|sample| sample.outcome.conditions.void()).collect();
    let void_runs = whys.len();
    whys.extend(samples.iter().flat_map(|sample| &sample.voids));
    let (voids, turns) = (whys.len(), runs + whys.len() - void_runs);
    whys.sort_unstable();
    let counts =
        whys.chunk_by(|one, next| one == next).map(|of_one| format!("{} ({})", of_one[0], of_one.len()));
    let counts = counts.collect::<Vec<_>>().join("; ");
    (voids > 0).then(|| {
        format!(
            "{voids} of {turns} turns were void: {counts}. After their last, {void_runs} of {runs} runs are."
        )
    })
}

/// The arms that took part.
fn present(samples: &[Sample]) -> impl Iterator<Item = usize> {
    (0..ARMS.len()).filter(|arm| samples.iter().any(|sample| sample.arm == *arm))
}

/// The values of an arm's runs at a load that are not void.
fn values(samples: &[Sample], arm: usize, load: f64, value: Value) -> Vec<f64> {
    let of_it = outcomes(samples, arm, load);
    of_it.filter(|outcome| outcome.conditions.void().is_none()).map(value).collect()
}

/// The same with those that are.
fn all_values(samples: &[Sample], arm: usize, load: f64, value: Value) -> Vec<f64> {
    outcomes(samples, arm, load).map(value).collect()
}

fn outcomes(samples: &[Sample], arm: usize, load: f64) -> impl Iterator<Item = &Outcome> {
    let of_it = samples.iter().filter(move |sample| sample.arm == arm && sample.load == load);
    of_it.map(|sample| &sample.outcome)
}

fn table(title: &str, case: &Case, samples: &[Sample], load: f64, report: &mut Report) {
    let cell = |arm: usize, value: Value| {
        let (mean, half) = interval(&values(samples, arm, load, value));
        match (mean.is_nan(), half.is_nan()) {
            // All are void: what they would say.
            (true, _) => format!("({})", number(interval(&all_values(samples, arm, load, value)).0)),
            (_, true) => number(mean),
            _ => format!("{} ± {}", number(mean), number(half)),
        }
    };
    let each = |arm: usize| {
        let of_run = |outcome: &Outcome| match outcome.conditions.void() {
            None => number(P99(outcome)),
            Some(_) => format!("({})", number(P99(outcome))),
        };
        outcomes(samples, arm, load).map(of_run).collect::<Vec<_>>().join("; ")
    };
    let share = |sample: &Sample| {
        let all: u64 = sample.outcome.work.received.iter().sum();
        if case.restarted().is_some() {
            return "-".to_owned();
        }
        sample
            .outcome
            .work
            .received
            .map(|one| format!("{:.0}", 100.0 * one as f64 / all.max(1) as f64))
            .join(" / ")
    };
    let mut rows = Vec::new();
    for arm in present(samples) {
        let runs = || samples.iter().filter(move |sample| sample.arm == arm && sample.load == load);
        let void = runs().filter(|sample| sample.outcome.conditions.void().is_some()).count();
        let most = |of: fn(&Conditions) -> f64| {
            runs().map(|sample| of(&sample.outcome.conditions)).fold(0.0, f64::max)
        };
        rows.push(vec![
            ARMS[arm].name.to_owned(),
            cell(arm, MEAN),
            cell(arm, |outcome| outcome.quantile(0.5)),
            cell(arm, P99),
            each(arm),
            cell(arm, |outcome| outcome.quantile(0.999)),
            cell(arm, PERCENT),
            cell(arm, |outcome| outcome.unanswered() * 100.0),
            cell(arm, Outcome::goodput),
            runs().next().map(share).unwrap_or_default(),
            cell(arm, COST),
            cell(arm, LOAD_HAD),
            cell(arm, |outcome| outcome.conditions.servers * 100.0),
            format!("{:.0} %", 100.0 * most(|conditions| conditions.machine)),
            format!("{:.0} %", 100.0 * most(|conditions| conditions.others)),
            format!("{:.1} %", 100.0 * most(|conditions| conditions.waited)),
            number(most(|conditions| conditions.late)),
            if void == 0 { "-".to_owned() } else { format!("{void} of {}", runs().count()) },
        ]);
    }
    let head = [
        "",
        "mean, ms",
        "p50, ms",
        "p99, ms",
        "p99 of each run, ms",
        "p99.9, ms",
        "errors, %",
        "unanswered, %",
        "good answers/s",
        "received, %",
        "a query took the servers, us",
        "load it had",
        "servers used of what they may, %",
        "machine used at most",
        "by others at most",
        "balancer waited for its core at most",
        "sent late, p99 at most, ms",
        "void",
    ];
    report.table(title, &head, rows);
}

/// What must hold at a load, of what our runs came to beside a rival's of the same rounds: the median over rounds, and of
/// several rivals the one beside whom it is the highest. Where too few rounds have two runs that count, it does not hold.
fn musts(case: &Case, samples: &[Sample], load: f64, report: &mut Report) {
    let mut rows = Vec::new();
    for (rival, words, value, most) in [
        (DNSDIST, "p99 beside dnsdist's best", P99, 0.7),
        (DNSDIST, "errors beside dnsdist's fewest", ERRORS, 0.5),
        (WRR, "mean response time beside wrr's with equal weights", MEAN, 0.2),
        (WRR, "errors beside wrr's with equal weights", ERRORS, 0.25),
    ] {
        let mut highest = f64::NEG_INFINITY;
        for arm in (0..ARMS.len()).filter(|arm| ARMS[*arm].name.starts_with(rival)) {
            let ratios = beside(samples, arm, load, value);
            let rounds = ratios.len();
            let found = Median::of(ratios);
            let median = found.map_or(f64::NAN, |found| found.value);
            // Not `f64::max`, to which what is no number is nothing.
            highest = if median > highest || median.is_nan() { median } else { highest };
            let (name, words) = (ARMS[arm].name, words.split(' ').take_while(|word| *word != "beside"));
            let mut row = vec![name.to_owned(), words.collect::<Vec<_>>().join(" "), rounds.to_string()];
            let cells = |found: Median| {
                let numbers = [found.value, found.from, found.to].map(number);
                numbers.into_iter().chain([format!("{:.1}", 100.0 * found.sure)]).collect()
            };
            row.extend(found.map_or(vec!["-".to_owned(); 4], cells));
            rows.push(row);
        }
        let name = format!("really run, {}, load {load}: {words}", case.name);
        report.must(name, Limit::AtMost(most), highest);
    }
    let head = ["beside", "of", "rounds", "median", "that of all lies from", "to", "sure to, %"];
    report.table(&format!("{}, load {load}: {OURS} beside rivals, round by round", case.name), &head, rows);
}

/// A value of ours beside that of another arm in each round in which the runs of both count.
fn beside(samples: &[Sample], arm: usize, load: f64, value: Value) -> Vec<f64> {
    let counts = |sample: &&Sample| sample.load == load && sample.outcome.conditions.void().is_none();
    let counting = || samples.iter().filter(counts);
    let mut ratios = Vec::new();
    for ours in counting().filter(|sample| ARMS[sample.arm].name == OURS) {
        let theirs = counting().find(|sample| sample.arm == arm && sample.round == ours.round);
        let Some(theirs) = theirs.map(|sample| value(&sample.outcome)) else { continue };
        let ours = value(&ours.outcome);
        // Nothing beside nothing is no more.
        ratios.push(if ours == 0.0 && theirs == 0.0 { 0.0 } else { ours / theirs });
    }
    ratios
}

/// The slides' table beside ours.
fn slides(samples: &[Sample], loads: &[f64], report: &mut Report) {
    let published = [
        ("400", 4.05, 0.64, 1_273.0, 343.0),
        ("800", 4.33, 0.62, 2_038.0, 759.0),
        ("1600", 4.24, 0.60, 2_910.0, 1_612.0),
    ];
    let row = |what: String, values: [f64; 4]| {
        let [wrr, other, wrr_errors, other_errors] = values;
        let share = |of: f64, whole: f64| format!("{:.1} %", 100.0 * of / whole);
        vec![
            what,
            number(wrr),
            number(other),
            share(other, wrr),
            number(wrr_errors),
            number(other_errors),
            share(other_errors, wrr_errors),
        ]
    };
    let mut rows: Vec<Vec<String>> = published
        .into_iter()
        .map(|(factor, wrr, dpr, errors, fewer)| {
            row(format!("slides, factor {factor}"), [wrr, dpr, errors, fewer])
        })
        .collect();
    let arm = |name: &str| ARMS.iter().position(|arm| arm.name == name).unwrap_or(0);
    for load in loads {
        let of = |name: &str, value: Value| interval(&values(samples, arm(name), *load, value)).0;
        rows.push(row(
            format!("ours, load {load}, errors in percent"),
            [of(WRR, MEAN), of(OURS, MEAN), of(WRR, PERCENT), of(OURS, PERCENT)],
        ));
    }
    let head = [
        "",
        "wrr: first response, ms",
        "DPR, pressure: ms",
        "of wrr's",
        "wrr: errors",
        "DPR, pressure: errors",
        "of wrr's",
    ];
    report.table("The slides' table beside ours", &head, rows);
    report.say(
        "The slides' servers and load are not ours, so ratios compare and values do not: theirs were never so loaded that \
         errors became more than one in a thousand.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::salbnet::real::cases::CASES;
    use crate::salbnet::real::outcome::{Window, Work};

    /// Rounds at a load in which each arm has a turn, ours with answers after 1 ms and all others with answers after 9.
    fn samples(rounds: u64) -> Vec<Sample> {
        let sample = |(round, arm): (u64, usize)| {
            let latency = if ARMS[arm].name == OURS { 1_000 } else { 9_000 };
            let log = format!("head\n0\t1\t1\t{latency}\tc\t0\tudp\tNOERROR\n");
            let window = Window { from_us: 0.0, until_us: 2.0 };
            let outcome = Outcome::of(&log, window, Conditions::default(), Work::default()).expect("a log");
            Sample { round, arm, load: 0.9, outcome, voids: Vec::new() }
        };
        (0..rounds).flat_map(|round| (0..ARMS.len()).map(move |arm| (round, arm))).map(sample).collect()
    }

    #[test]
    fn fewer_than_five_pairs_prove_nothing() {
        for (rounds, confidence, holds) in
            [(0, "-", false), (4, "-", false), (5, "93.8", true), (7, "98.4", true)]
        {
            let (_, mut report) = Report::of_a_test(Size::Full);
            musts(&CASES[0], &samples(rounds), 0.9, &mut report);
            assert!(report.musts().iter().all(|must| must.holds() == holds), "{rounds}: {}", report.told());
            let json = report.json();
            let rows = json["tables"][0]["rows"].as_array().expect("a table");
            assert!(rows.iter().all(|row| row[6] == confidence), "{rounds}: {rows:?}");
        }
    }
}
