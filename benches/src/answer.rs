//! `answer` alone: no socket, no system call; what a query costs of our own code.

use std::hint::black_box;
use std::net::IpAddr;
use std::time::Instant;

use anyhow::{Result, anyhow};
use fastrand::Rng;
use nameserver::answer::{Asked, Reply, Transport};
use net::clock::Clock;

use crate::data;
use crate::options::Options;
use crate::question;
use crate::report::{Limit, Report, Table, median};
use crate::serve::zone;
use crate::steering;

/// Different clients, so that the ways to their regions do not stay in a cache.
const CLIENTS: usize = 1 << 20;

/// Passes over the clients; the median of them counts.
const PASSES: usize = 11;

/// Measures an answer from the zone and a steered one, on the zone, partition and policy of `bench serve`.
///
/// # Errors
/// Where the data is not there.
pub(crate) fn run(options: &Options, report: &mut Report) -> Result<()> {
    let book = zone::book(options.seed, steering::partition(&data::countries()?))?;
    let generation = &book.generation;
    let mut rng = Rng::with_seed(options.seed);
    let clients = data::uniform_v4(CLIENTS, &mut rng);
    let now = Clock::new().now();
    let mut rows = Vec::new();
    for (what, name) in [("from the zone", zone::STATIC), ("steered", zone::STEERED)] {
        let query = question::query(0x1234, name);
        let mut out = [0; 1232];
        let mut times = Vec::new();
        for _ in 0..PASSES {
            let start = Instant::now();
            let mut octets = 0;
            for client in &clients {
                let asked = Asked {
                    query: black_box(&query),
                    client: IpAddr::V4(*client),
                    local: IpAddr::from([127, 0, 0, 1]),
                    transport: Transport::Udp,
                };
                match generation.answer(&asked, now, &mut rng, &mut out) {
                    Reply::Send(length) => octets += length,
                    Reply::Drop(why) => return Err(anyhow!("a query was dropped: {why:?}")),
                }
            }
            black_box(octets);
            times.push(start.elapsed().as_secs_f64() * 1e9 / CLIENTS as f64);
        }
        let middle = median(&times).expect("some passes");
        report.must(format!("answer {what}, ns"), Limit::AtMost(300.0), Some(middle));
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        rows.push(vec![what.to_owned(), format!("{middle:.0}"), format!("{least:.0}")]);
    }
    report.add(Table {
        title: "`answer` alone",
        head: &["answer", "ns, median of passes", "ns, least"],
        rows,
    });
    Ok(())
}
