//! Partition look-ups: throughput, memory, build.

use std::hint::black_box;
use std::net::IpAddr;
use std::time::Instant;

use anyhow::Result;
use fastrand::Rng;
use routing::{Leaf, Partition, Prefix, RegionId};

use crate::data;
use crate::options::Options;
use crate::report::{Limit, Report, Table, median};

/// Different addresses: enough that neither they nor the ways to them stay in a cache.
const ADDRESSES: usize = 1 << 20;

/// Passes over the addresses, some seconds in all, as caches are shared with the neighbours of a virtual machine; the
/// median of them counts.
const PASSES: usize = 101;

/// Measures the partition of the countries' prefixes, and one of a million.
///
/// Look-ups are independent of one another, as those of a batch are: the next begins before the one before it
/// has ended, so it is the throughput that is told. The time includes reading the addresses, one after the
/// other, from memory.
///
/// # Errors
/// Where the data is not there.
pub(crate) fn run(options: &Options, report: &mut Report) -> Result<()> {
    let mut rows = Vec::new();
    for (name, entries) in [("243 k", data::countries()?), ("1 M", data::million(options.seed)?)] {
        let mut rng = Rng::with_seed(options.seed);
        let mut builds = Vec::new();
        for _ in 0..3 {
            let given = entries.clone();
            let start = Instant::now();
            black_box(Partition::compile(given));
            builds.push(start.elapsed().as_secs_f64());
        }
        let partition = Partition::compile(entries.iter().copied());
        let size = partition.size();
        let build = median(&builds).expect("three");
        let megabytes = size.bytes as f64 / 1e6;
        let v4 = data::uniform_v4(ADDRESSES, &mut rng);
        let v4 = passes(&v4, |address| partition.lookup_v4(*address));
        let v6 = data::covered_v6(&entries, ADDRESSES, &mut rng);
        let v6 = passes(&v6, |address| partition.lookup_v6(*address));
        report.must(format!("look-up of IPv4, {name} prefixes, ns"), Limit::AtMost(30.0), Some(v4.0));
        report.must(format!("look-up of IPv6, {name} prefixes, ns"), Limit::AtMost(30.0), Some(v6.0));
        if name == "1 M" {
            report.must("memory of 1 M prefixes, MB", Limit::AtMost(32.0), Some(megabytes));
            report.must("build of 1 M prefixes, s", Limit::AtMost(2.0), Some(build));
        }
        let families = |is_v4: fn(&IpAddr) -> bool| count(&entries, is_v4);
        rows.push(vec![
            name.to_owned(),
            families(IpAddr::is_ipv4),
            families(IpAddr::is_ipv6),
            size.ranges.to_string(),
            format!("{megabytes:.1}"),
            format!("{build:.3}"),
            format!("{:.1} ({:.1})", v4.0, v4.1),
            format!("{:.1} ({:.1})", v6.0, v6.1),
        ]);
    }
    report.add(Table {
        title: "Partitions",
        head: &[
            "prefixes",
            "of IPv4",
            "of IPv6",
            "ranges",
            "MB",
            "build, s",
            "IPv4, ns: median (least)",
            "IPv6, ns: median (least)",
        ],
        rows,
    });
    report.note(format!(
        "Look-ups are independent (throughput), {ADDRESSES} addresses, median of {PASSES} passes; IPv4 uniform, \
         IPv6 inside covered prefixes. 1 M: 500,000 drawn from the routing table of 2014-05-13 and 500,000 \
         made-up IPv6 prefixes in 20,000 allocations, 8 regions.",
    ));
    Ok(())
}

/// Nanoseconds an address: the median and the least of all passes.
fn passes<A>(addresses: &[A], lookup: impl Fn(&A) -> Leaf) -> (f64, f64) {
    let times: Vec<f64> = (0..PASSES)
        .map(|_| {
            let start = Instant::now();
            let sum = addresses.iter().fold(0u32, |sum, address| {
                let leaf = lookup(address);
                sum.wrapping_add(leaf.region.get()).wrapping_add(leaf.scope.into())
            });
            black_box(sum);
            start.elapsed().as_secs_f64() * 1e9 / addresses.len() as f64
        })
        .collect();
    (median(&times).expect("some passes"), times.iter().copied().fold(f64::INFINITY, f64::min))
}

fn count(entries: &[(Prefix, RegionId)], of: fn(&IpAddr) -> bool) -> String {
    entries.iter().filter(|(prefix, _)| of(&prefix.address())).count().to_string()
}
