//! The service beside others over the wire: look-ups over TCP, and DNS.

use std::time::Duration;

use anyhow::{Context, Result};
use fastrand::Rng;
use reverse::NameText;

use super::load::{self, Form};
use super::names;
use super::servers::{HTTP, Names, RAPID, RESP, Server};
use crate::options::Options;
use crate::report::{Limit, Report, Table, median};
use crate::serve::place::{Place, Side};
use crate::serve::rate::Plan;
use crate::serve::source::Source;

/// Names that are asked for over TCP.
const NAMES: usize = 1_000_000;

/// The same for `--quick`.
const NAMES_QUICK: usize = 50_000;

/// Names that are asked for over DNS: as many as dnsmasq keeps without complaint.
const NAMES_DNS: usize = 10_000;

/// The least share of answers that must be names: all are known to all servers.
const NAMED_MIN: f64 = 0.999;

/// Names to ask for: made-up neighbours of real ones.
///
/// # Errors
/// Where the data is not there.
pub(crate) fn wanted(count: usize) -> Result<Names> {
    let mut wanted: Vec<(_, NameText)> = Vec::with_capacity(count);
    names::many(&names::real()?, 2 * count, |address, name| {
        if let Some(name) = name
            && wanted.len() < count
        {
            wanted.push((address, name));
        }
    });
    Ok(wanted)
}

/// Look-ups over TCP, pipelined, and what an entry takes.
///
/// # Errors
/// Where a server does not start, or does not answer with names.
pub(crate) fn tcp(options: &Options, place: &Place, report: &mut Report) -> Result<()> {
    let wanted = wanted(if options.quick { NAMES_QUICK } else { NAMES })?;
    let addresses: Vec<_> = wanted.iter().map(|(address, _)| *address).collect();
    let length = Duration::from_secs(if options.quick { 1 } else { 5 });
    let arms = [
        ("RESP GET", Server::Pointsman, Form::Resp),
        ("RESP GET", Server::Redis, Form::Resp),
        ("Rapid DNS", Server::Pointsman, Form::Rapid),
    ];
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    let mut cpus = [Vec::new(), Vec::new(), Vec::new()];
    let mut memory: [Vec<f64>; 3] = Default::default();
    let mut rng = Rng::with_seed(options.seed);
    for round in 1..=options.rounds {
        let mut order = [0, 1, 2];
        rng.shuffle(&mut order);
        for arm in order {
            let (what, server, form) = arms[arm];
            let few = server.start(place, &wanted[..1].to_vec())?.memory()?;
            let group = server.start(place, &wanted)?;
            let address = if form == Form::Rapid { RAPID } else { RESP };
            let before = group.cpu()?;
            let seen = Side::Source
                .within(|| load::run(address, form, &addresses, length, options.seed + round as u64))
                .with_context(|| format!("{what} of {}", server.name()))?;
            let cpu = group.cpu()?.saturating_sub(before);
            anyhow::ensure!(
                seen.names as f64 >= seen.answers as f64 * NAMED_MIN,
                "{} of {} answers of {} are names",
                seen.names,
                seen.answers,
                server.name()
            );
            let rate = seen.answers as f64 / seen.seconds;
            rates[arm].push(rate);
            cpus[arm].push(cpu.as_secs_f64() * 1e6 / seen.answers as f64);
            memory[arm].push((group.memory()?.saturating_sub(few)) as f64 / wanted.len() as f64);
            println!("round {round} {what:<10} {:<10} {rate:>9.0}/s", server.name());
        }
    }
    let cell = |values: &[f64], digits: usize| format!("{:.digits$}", median(values).unwrap_or_default());
    let best = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let rows = arms.iter().enumerate().map(|(arm, (what, server, _))| {
        let (rates, cpus) = (&rates[arm], &cpus[arm]);
        let cells = [cell(rates, 0), format!("{:.0}", best(rates)), cell(cpus, 3), cell(&memory[arm], 1)];
        [(*what).to_owned(), server.name().to_owned()].into_iter().chain(cells).collect()
    });
    report.add(Table {
        title: "One core, TCP, 50 connections, pipeline 64",
        head: &[
            "protocol",
            "server",
            "answers/s, median",
            "best",
            "CPU an answer, us",
            "memory an entry, octets",
        ],
        rows: rows.collect(),
    });
    let ratio = |a: &[f64], b: &[f64]| Some(median(a)? / median(b)?);
    report.must("RESP GET: answers/s over Redis's", Limit::AtLeast(1.0), ratio(&rates[0], &rates[1]));
    report.must("Rapid DNS: answers/s", Limit::AtLeast(2e6), median(&rates[2]));
    report.must("memory an entry over Redis's", Limit::AtMost(0.5), ratio(&memory[0], &memory[1]));
    Ok(())
}

/// Look-ups over HTTP: nobody else answers them.
///
/// # Errors
/// Where the service does not start, or does not answer with names.
pub(crate) fn http(options: &Options, place: &Place, report: &mut Report) -> Result<()> {
    let wanted = wanted(if options.quick { NAMES_QUICK } else { NAMES })?;
    let addresses: Vec<_> = wanted.iter().map(|(address, _)| *address).collect();
    let length = Duration::from_secs(if options.quick { 1 } else { 5 });
    let mut rows = Vec::new();
    for (what, form) in [("checks, one after the other", Form::Check), ("bulk, 1,000 addresses", Form::Bulk)]
    {
        let (mut rates, mut cpus) = (Vec::new(), Vec::new());
        for round in 1..=options.rounds {
            let group = Server::Pointsman.start(place, &wanted)?;
            let before = group.cpu()?;
            let seed = options.seed + round as u64;
            let seen = Side::Source.within(|| load::run(HTTP, form, &addresses, length, seed))?;
            let cpu = group.cpu()?.saturating_sub(before);
            anyhow::ensure!(
                seen.names as f64 >= seen.answers as f64 * NAMED_MIN,
                "some have no name: {seen:?}"
            );
            rates.push(seen.answers as f64 / seen.seconds);
            cpus.push(cpu.as_secs_f64() * 1e6 / seen.answers as f64);
            println!("round {round} HTTP {what}: {:.0}/s", rates[rates.len() - 1]);
        }
        let middle =
            |values: &[f64], digits: usize| format!("{:.digits$}", median(values).unwrap_or_default());
        rows.push(vec![what.to_owned(), middle(&rates, 0), middle(&cpus, 2)]);
    }
    report.add(Table {
        title: "One core, HTTP, 50 connections",
        head: &["what", "addresses/s, median", "CPU an address, us"],
        rows,
    });
    Ok(())
}

/// DNS from a warm cache.
///
/// # Errors
/// Where a server does not start, or the source fails.
pub(crate) fn dns(options: &Options, place: &Place, report: &mut Report) -> Result<()> {
    let wanted = wanted(NAMES_DNS)?;
    let queries: String = wanted
        .iter()
        .map(|(address, _)| {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa PTR\n")
        })
        .collect();
    let servers = [Server::Pointsman, Server::Unbound, Server::Dnsmasq];
    let (mut lossless, mut peak) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
    let mut rng = Rng::with_seed(options.seed);
    for round in 1..=options.rounds {
        let mut order = [0, 1, 2];
        rng.shuffle(&mut order);
        for arm in order {
            let server = servers[arm];
            let _group = server.start(place, &wanted)?;
            let source = Source::of(place, "reverse", &queries)?;
            let found = Plan::new(options.quick).search(&source).with_context(|| server.name())?;
            println!(
                "round {round} DNS {:<10} lossless {:>7}/s  peak {:>7.0}/s",
                server.name(),
                found.lossless,
                found.peak
            );
            lossless[arm].push(found.lossless as f64);
            peak[arm].push(found.peak);
        }
    }
    let middle = |values: &[f64]| format!("{:.0}", median(values).unwrap_or_default());
    let rows = servers
        .iter()
        .enumerate()
        .map(|(arm, server)| vec![server.name().to_owned(), middle(&lossless[arm]), middle(&peak[arm])]);
    report.add(Table {
        title: "One core, DNS over UDP, 10,000 names in the cache",
        head: &["server", "lossless/s, median", "peak/s, median"],
        rows: rows.collect(),
    });
    let over = |values: &[Vec<f64>; 3], arm: usize| {
        Some(median(&values[0])? / median(&values[arm]).filter(|theirs| *theirs > 0.0)?)
    };
    report.must("DNS: lossless rate over Unbound's", Limit::AtLeast(1.0), over(&lossless, 1));
    report.must("DNS: peak over Unbound's", Limit::AtLeast(1.0), over(&peak, 1));
    Ok(())
}
