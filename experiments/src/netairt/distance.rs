//! How far networks are from each other, and what finding the nearest replica costs: for each query as NetAirt does, and
//! once at load as we do.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use fastrand::Rng;
use nameserver::as_path::graph::{Graph, Hops};
use nameserver::as_path::table::{self, Table};
use replay::plot::{Axis, Line, Plot, Stroke};
use routing::{Partition, Prefix, RegionId};

use super::transport::ASES;
use crate::options::Run;
use crate::quantiles::quantile;
use crate::report::{Limit, Report, number};

/// Clients whose distances to all ASes are counted.
const CLIENTS: usize = 100;

/// Searches that are timed.
const SEARCHES: usize = 20_000;

/// Look-ups that are timed for each distance, and over how many of them at a time.
const LOOKUPS: usize = 1 << 16;

/// The thesis: "the majority of ASes" is at these distances.
const MAJORITY: std::ops::RangeInclusive<usize> = 3..=5;

/// Distances that are told apart; beyond, they are one.
const FARTHEST: usize = 12;

/// Does this part.
///
/// # Errors
/// Where the table cannot be read.
pub(super) fn perform(run: &Run, report: &mut Report, path: &Path) -> Result<()> {
    report.heading("AS distances, and the search");
    report.say(
        "The BGP table of RIPE's collector of 22 July 2002, the month of the thesis; two ASes are neighbours where they stand \
         side by side on a path. NetAirt searches the graph from the client's AS for every query until it finds the nearest \
         replica, breadth first: here the same search, for random clients and eight replicas. We search from each \
         replica's AS once, at load, so that a query costs one look-up of its address, which is timed for addresses of ASes \
         at each distance.",
    );
    let octets = std::fs::read(path).with_context(|| path.display().to_string())?;
    let table = table::read("the table", &octets).map_err(|faults| anyhow!("{faults}"))?;
    let graph = Graph::new(table.ases.len(), &table.links);
    let mut rng = Rng::with_seed(run.seed);
    histogram(&graph, &mut rng, report);
    search(run, &table, &graph, &mut rng, report)
}

/// How far all ASes are from random ones.
fn histogram(graph: &Graph, rng: &mut Rng, report: &mut Report) {
    let mut counts = [0_usize; FARTHEST + 1];
    for _ in 0..CLIENTS {
        let hops = graph.hops(rng.u32(0..graph.len() as u32));
        // Its own distance to itself is none.
        for hop in hops.iter().flatten().filter(|hop| **hop > 0) {
            counts[usize::from(*hop).min(FARTHEST)] += 1;
        }
    }
    let all: usize = counts.iter().sum();
    let percent = |count: usize| count as f64 * 100.0 / all as f64;
    let points = (1..=FARTHEST).map(|at| (at as f64, percent(counts[at]))).collect();
    let lines = vec![Line::new(format!("{CLIENTS} random clients, all ASes"), points).drawn(Stroke::Area)];
    let across = Axis { from: Some(1.0), ..Axis::titled("AS hops") };
    report.plot("How far ASes are from each other", Plot { across, up: Axis::titled("% of ASes"), lines });
    let rows = (1..=FARTHEST).filter(|at| counts[*at] > 0);
    let rows = rows.map(|at| vec![at.to_string(), format!("{:.2} %", percent(counts[at]))]).collect();
    report.table("How far ASes are from each other", &["AS hops", "of all"], rows);
    let majority: usize = counts[MAJORITY].iter().sum();
    report.must("ASes at 3 to 5 hops (\"the majority\"), %", Limit::AtLeast(50.0), percent(majority));
}

/// What the search for the nearest replica costs, by how far that is.
fn search(run: &Run, table: &Table, graph: &Graph, rng: &mut Rng, report: &mut Report) -> Result<()> {
    let replicas: Option<Vec<u32>> = ASES.iter().map(|number| table.ases.index(*number)).collect();
    let replicas = replicas.context("an AS of the replicas is not in the table")?;
    let from_replicas: Vec<Hops> = replicas.iter().map(|replica| graph.hops(*replica)).collect();
    let nearest = |client: usize| from_replicas.iter().filter_map(|hops| hops[client]).min();
    let links = Links::new(table);
    let mut is_replica = vec![false; links.len()];
    replicas.iter().for_each(|replica| is_replica[*replica as usize] = true);
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); FARTHEST + 1];
    for _ in 0..run.size.of(SEARCHES, SEARCHES, 0) {
        let client = rng.usize(0..links.len());
        let begin = Instant::now();
        let found = black_box(links.search(client as u32, &is_replica));
        let took = begin.elapsed().as_secs_f64() * 1e6;
        let known = nearest(client).map(usize::from);
        if found != known {
            return Err(anyhow!("the search found {found:?} hops, the load {known:?}"));
        }
        if let Some(found) = found {
            times[found.min(FARTHEST)].push(took);
        }
    }
    let lookups = lookups(table, &nearest, rng)?;
    let (mut mean, mut ours, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for (hops, times) in times.iter_mut().enumerate().filter(|(_, times)| !times.is_empty()) {
        times.sort_by(f64::total_cmp);
        let percentile = |share| quantile(times, share).unwrap_or(f64::NAN);
        let middle = times.iter().sum::<f64>() / times.len() as f64;
        mean.push((hops as f64, middle));
        ours.extend(lookups[hops].map(|took| (hops as f64, took)));
        let ours = lookups[hops].map_or("-".to_owned(), |took| format!("{took:.3}"));
        let cells = [middle, percentile(0.5), percentile(0.99)].map(number);
        rows.push(
            [hops.to_string(), number(times.len() as f64)].into_iter().chain(cells).chain([ours]).collect(),
        );
    }
    let lines = vec![Line::new("NetAirt: a search a query", mean), Line::new("ours: a look-up", ours)];
    let up = Axis { is_log: true, from: Some(0.001), ..Axis::titled("us, mean") };
    let plot = Plot { across: Axis::titled("AS hops to the nearest of eight replicas"), up, lines };
    report.plot("What it costs to find the nearest replica", plot);
    let head = ["AS hops", "searches", "mean, us", "p50, us", "p99, us", "a look-up of ours, us"];
    report.table("What it costs to find the nearest replica", &head, rows);
    Ok(())
}

/// The mean time of a look-up in microseconds, for addresses of ASes at each distance.
fn lookups(table: &Table, nearest: &dyn Fn(usize) -> Option<u8>, rng: &mut Rng) -> Result<Vec<Option<f64>>> {
    let region = |at: u8| RegionId::new(u32::from(at) + 1).context("a region's number");
    let mut entries = Vec::new();
    let mut prefixes: Vec<Vec<Prefix>> = vec![Vec::new(); FARTHEST + 1];
    for (prefix, origin) in &table.origins {
        if let Some(hops) = nearest(*origin as usize) {
            entries.push((*prefix, region(hops)?));
            prefixes[usize::from(hops).min(FARTHEST)].push(*prefix);
        }
    }
    let partition = Partition::compile(entries);
    let mut took = Vec::new();
    for prefixes in prefixes {
        if prefixes.is_empty() {
            took.push(None);
            continue;
        }
        let addresses: Vec<_> =
            (0..LOOKUPS).map(|_| prefixes[rng.usize(0..prefixes.len())].address()).collect();
        let begin = Instant::now();
        for address in &addresses {
            black_box(partition.lookup(black_box(*address)));
        }
        took.push(Some(begin.elapsed().as_secs_f64() * 1e6 / LOOKUPS as f64));
    }
    Ok(took)
}

/// The links of every AS as the thesis keeps them: one array, and where each AS begins in it.
struct Links {
    first: Vec<usize>,
    to: Vec<u32>,
}

impl Links {
    fn new(table: &Table) -> Links {
        let mut of: Vec<Vec<u32>> = vec![Vec::new(); table.ases.len()];
        for (a, b) in &table.links {
            of[*a as usize].push(*b);
            of[*b as usize].push(*a);
        }
        let mut first = vec![0];
        for links in &of {
            first.push(first[first.len() - 1] + links.len());
        }
        Links { first, to: of.concat() }
    }

    fn len(&self) -> usize {
        self.first.len() - 1
    }

    /// How many hops from `client` the nearest AS of these is.
    fn search(&self, client: u32, is_replica: &[bool]) -> Option<usize> {
        let mut is_seen = vec![false; self.len()];
        is_seen[client as usize] = true;
        let (mut near, mut hops) = (vec![client], 0);
        while !near.is_empty() {
            let mut far = Vec::new();
            for at in near {
                if is_replica[at as usize] {
                    return Some(hops);
                }
                for to in &self.to[self.first[at as usize]..self.first[at as usize + 1]] {
                    if !std::mem::replace(&mut is_seen[*to as usize], true) {
                        far.push(*to);
                    }
                }
            }
            (near, hops) = (far, hops + 1);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_finds_what_the_load_knows() {
        let mut table = Table { links: vec![(0, 1), (1, 2), (2, 3), (0, 4)], ..Table::default() };
        table.ases = table::Ases::of(10..16);
        let links = Links::new(&table);
        let hops = Graph::new(6, &table.links).hops(3);
        let is_replica: Vec<bool> = (0..6).map(|at| at == 3).collect();
        for client in 0..6 {
            assert_eq!(links.search(client, &is_replica), hops[client as usize].map(usize::from), "{client}");
        }
    }
}
