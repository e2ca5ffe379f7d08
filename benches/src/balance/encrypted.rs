//! Back ends over TLS: what an answer costs, and how many there are at most. Our name server is behind, on the source's core,
//! so that the most is of all of them together.

use std::time::Duration;

use anyhow::{Context, Result};
use tests::certificate::Certificate;
use tests::folder::Folder;

use super::OVER_DNSDIST;
use super::balancers::{BALANCERS, Setup};
use super::behind::Behind;
use crate::options::Options;
use crate::report::{Limit, Report, Table, median};
use crate::serve::place::Place;
use crate::serve::source::Source;

/// The rate at which processor time is measured, in queries a second: everybody answers all of it.
const CPU_RATE: u64 = 4_000;

/// The rate at which most answers are looked for, which nobody answers all of.
const PEAK_RATE: u64 = 60_000;

/// Seconds of each.
const SECONDS: u64 = 8;
const SECONDS_QUICK: u64 = 2;

/// What the rounds of one balancer found.
#[derive(Clone, Debug, Default)]
struct Rounds {
    cpu_us: Vec<f64>,
    answered: Vec<f64>,
    most: Vec<f64>,
}

/// Measures all balancers, in rounds.
///
/// # Errors
/// Where a balancer or the source fails.
pub(crate) fn measure(
    options: &Options,
    place: &Place,
    behind: &Behind,
    questions: &str,
    report: &mut Report,
) -> Result<()> {
    let folder = Folder::new();
    let certificate = Certificate::new(&folder);
    let setup = Setup { certificate: Some(&certificate), port: 853, ..Setup::USUAL };
    let seconds = if options.quick { SECONDS_QUICK } else { SECONDS };
    let mut found = vec![Rounds::default(); BALANCERS.len()];
    behind.serving(place, Some(&certificate), || {
        for _ in 0..options.rounds {
            for (balancer, rounds) in BALANCERS.iter().zip(&mut found) {
                let running = balancer.start(place, setup).with_context(|| balancer.name.to_owned())?;
                let source = Source::of(place, "encrypted", questions)?;
                source.udp(CPU_RATE, 1)?;
                let before = running.group.cpu()?;
                let seen = source.udp(CPU_RATE, seconds)?;
                let cpu: Duration = running.group.cpu()?.saturating_sub(before);
                rounds.cpu_us.push(cpu.as_secs_f64() * 1e6 / (seen.good as f64).max(1.0));
                rounds.answered.push(100.0 * seen.good as f64 / (seen.sent as f64).max(1.0));
                let seen = source.flood(PEAK_RATE, seconds)?;
                rounds.most.push(seen.good as f64 / seen.seconds);
                println!("encrypted {:<16} {rounds:?}", balancer.name);
            }
        }
        Ok(())
    })?;
    let middle = |values: &[f64]| median(values).unwrap_or(f64::NAN);
    let rows = BALANCERS.iter().zip(&found).map(|(balancer, rounds)| {
        let Rounds { cpu_us, answered, most } = rounds;
        let cells = [(middle(cpu_us), 1), (middle(answered), 2), (middle(most), 0)];
        let cells = cells.map(|(value, digits)| format!("{value:.digits$}"));
        std::iter::once(balancer.name.to_owned()).chain(cells).collect()
    });
    report.add(Table {
        title: "One core, UDP, two back ends over TLS, names of many lengths: medians of the rounds",
        head: &[
            "balancer",
            "CPU an answer at 4,000/s, us",
            "of which answered, %",
            "most answers/s at 60,000/s",
        ],
        rows: rows.collect(),
    });
    let those = |is_ours: bool, of: fn(&Rounds) -> &Vec<f64>, better: fn(f64, f64) -> f64| {
        let all = BALANCERS.iter().zip(&found).filter(|(balancer, _)| balancer.is_ours == is_ours);
        all.map(|(_, rounds)| middle(of(rounds))).reduce(better).unwrap_or(f64::NAN)
    };
    let cpu: fn(&Rounds) -> &Vec<f64> = |rounds| &rounds.cpu_us;
    let most: fn(&Rounds) -> &Vec<f64> = |rounds| &rounds.most;
    report.must(
        "over TLS: CPU an answer over dnsdist's best",
        Limit::AtMost(1.0),
        Some(those(true, cpu, f64::min) / those(false, cpu, f64::min)),
    );
    report.must(
        "over TLS: most answers/s over dnsdist's best",
        Limit::AtLeast(OVER_DNSDIST),
        Some(those(true, most, f64::max) / those(false, most, f64::max)),
    );
    Ok(())
}
