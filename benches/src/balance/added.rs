//! What a balancer adds to latency: from sent to answer through it, less the same with the echo in its place.

use std::time::Duration;

use anyhow::{Context, Result};
use api::replay::ReplayReport;
use experiments::traces;

use super::balancers::BALANCERS;
use super::behind::Behind;
use crate::options::Options;
use crate::replay::{driver, senders};
use crate::report::{Limit, Report, Table, median};
use crate::serve::place::Place;

/// The gap between two queries: 20,000 a second, which everybody answers with most of a core to spare.
const GAP: Duration = Duration::from_micros(50);

/// How long queries are sent.
const LENGTH: Duration = Duration::from_secs(8);
const LENGTH_QUICK: Duration = Duration::from_secs(2);

/// The least share of queries that must be answered, so that latencies are of all of them; and how often that is tried.
const ANSWERED_MIN: f64 = 0.999;
const TRIES_MAX: usize = 3;

/// A median and a 99th percentile, in microseconds.
type Latency = (f64, f64);

/// Which of the two a column shows.
type Of = fn(&Latency) -> f64;

/// Measures all balancers in rounds, each between two of the way without one.
///
/// # Errors
/// Where a balancer or the replayer fails, or many queries are lost without a balancer.
pub(crate) fn measure(options: &Options, place: &Place, behind: &Behind, report: &mut Report) -> Result<()> {
    senders::allow_prefix()?;
    let file = place.folder.join("even.txt");
    traces::even(&file, GAP, if options.quick { LENGTH_QUICK } else { LENGTH }, options.seed)?;
    let send = || Ok(latency(&senders::pointsman(&file, &["--source-prefix", senders::PREFIX])?));
    let mut direct: Vec<Latency> = Vec::new();
    let mut found: Vec<Vec<Latency>> = vec![Vec::new(); BALANCERS.len()];
    let mut lossy = [0; BALANCERS.len()];
    for _ in 0..options.rounds {
        direct.push(driver::during(place, send)?.0.context("queries are lost without a balancer")?);
        behind.answering(place, || {
            for ((balancer, rounds), lossy) in BALANCERS.iter().zip(&mut found).zip(&mut lossy) {
                for _ in 0..TRIES_MAX {
                    let running = balancer.start_before_others(place)?;
                    let turn: Result<Option<Latency>> = send();
                    let turn = turn.with_context(|| balancer.name.to_owned())?;
                    drop(running);
                    println!("latency {:<16} {turn:?}", balancer.name);
                    rounds.extend(turn);
                    if turn.is_some() {
                        break;
                    }
                    *lossy += 1;
                }
            }
            Ok(())
        })?;
    }
    let middle =
        |rounds: &[Latency], of: Of| median(&rounds.iter().map(of).collect::<Vec<f64>>()).unwrap_or(f64::NAN);
    let added = |rounds: &[Latency], of: Of| middle(rounds, of) - middle(&direct, of);
    let (p50, p99): (Of, Of) = (|latency| latency.0, |latency| latency.1);
    let row = |name: &str, rounds: &[Latency], lossy: u32| {
        let cells = [middle(rounds, p50), middle(rounds, p99), added(rounds, p50), added(rounds, p99)];
        let cells = cells.map(|cell| format!("{cell:.1}")).into_iter().chain([lossy.to_string()]);
        std::iter::once(name.to_owned()).chain(cells).collect()
    };
    let those = BALANCERS.iter().zip(&found).zip(&lossy);
    let rows = std::iter::once(row("none: the echo in its place", &direct, 0))
        .chain(those.map(|((balancer, rounds), lossy)| row(balancer.name, rounds, *lossy)));
    report.add(Table {
        title: "Latency at 20,000 queries/s, in us: medians of the rounds",
        head: &["balancer", "p50", "p99", "added, p50", "added, p99", "turns left out, with loss"],
        rows: rows.collect(),
    });
    let best = |is_ours: bool, of| {
        let those = BALANCERS.iter().zip(&found).filter(|(balancer, _)| balancer.is_ours == is_ours);
        those.map(|(_, rounds)| added(rounds, of)).fold(f64::INFINITY, f64::min)
    };
    let ours = BALANCERS.iter().zip(&found).find(|(balancer, _)| balancer.is_ours);
    report.note(format!(
        "A turn in which fewer than {} % are answered is done again, {TRIES_MAX} times in all, and left out.",
        100.0 * ANSWERED_MIN
    ));
    for (what, of) in [("p50", p50), ("p99", p99)] {
        // Without a turn of theirs that counts there is nothing to compare; without one of ours we have lost.
        let theirs = Some(best(false, of)).filter(|added| added.is_finite());
        let ratio = ours.zip(theirs).map(|((_, rounds), theirs)| match rounds.is_empty() {
            true => f64::INFINITY,
            false => added(rounds, of) / theirs,
        });
        report.must(format!("added latency, {what}, over dnsdist's best"), Limit::AtMost(1.0), ratio);
    }
    Ok(())
}

/// Nothing where many were lost.
fn latency(report: &ReplayReport) -> Option<Latency> {
    let share = report.answers as f64 / report.queries as f64;
    report.latency_sent_us.filter(|_| share >= ANSWERED_MIN).map(|times| (times.p50, times.p99))
}
