//! The cache alone, with ten million addresses: memory, look-ups, and how long it takes to be warm.

use std::fs::{self, File};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fastrand::Rng;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use reverse::NameText;
use reverse::cache::{self, Entry, Reader, State, Writer, snapshot};

use super::names;
use crate::options::Options;
use crate::report::{Limit, Report, Table, median};

/// Entries of the cache.
const ENTRIES: usize = 10_000_000;

/// The same for `--quick`.
const ENTRIES_QUICK: usize = 1_000_000;

/// The cache's limit, in octets for an entry.
const OCTETS_MAX: usize = 40;

/// Look-ups of one pass: enough that neither they nor the ways to them stay in a processor's cache.
const LOOKUPS: usize = 1 << 20;

/// Passes; the median of them counts.
const PASSES: usize = 11;

/// When everything is learned, in seconds since 1970.
const NOW: u32 = 1_500_000_000;

const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// Measures the cache.
///
/// # Errors
/// Where the data is not there or the snapshot cannot be written.
pub(crate) fn run(options: &Options, folder: &Path, report: &mut Report) -> Result<()> {
    let count = if options.quick { ENTRIES_QUICK } else { ENTRIES };
    let rows = names::real()?;
    let (before, begun) = (resident()?, Instant::now());
    let (mut writer, reader) = cache::new(count * OCTETS_MAX, 0, options.seed);
    let (mut named, mut length, mut sample) = (0usize, 0usize, Vec::with_capacity(count));
    names::many(&rows, count, |address, name| {
        let state = if name.is_some() { State::Name } else { State::NoName };
        let text = name.unwrap_or(NameText::EMPTY);
        named += usize::from(name.is_some());
        length += text.octets().len();
        writer.put(address.into(), Entry::new(state, NOW, WEEK), &text);
        sample.push(address);
    });
    let filled = begun.elapsed();
    let held = sample.capacity() * size_of::<Ipv4Addr>();
    let entries = writer.len();
    let octets = writer.octets();
    let grown = resident()?.saturating_sub(before).saturating_sub(held as u64);
    Rng::with_seed(options.seed).shuffle(&mut sample);
    sample.truncate(LOOKUPS);
    let alone = look_ups(&reader, &sample);
    let known = together(&reader, &sample);
    let unknown: Vec<Ipv4Addr> =
        sample.iter().map(|address| Ipv4Addr::from_bits(address.to_bits() ^ 0x55aa_0000)).collect();
    let unknown = together(&reader, &unknown);
    let swept = sweeps(&mut writer);

    let file = folder.join("names.cache");
    let begun = Instant::now();
    snapshot::save(&reader.view(), NOW, &file).context("the snapshot")?;
    let saved = begun.elapsed();
    drop((writer, reader));
    let size = fs::metadata(&file).context("the snapshot")?.len();
    forget(&file)?;
    let cold = warm(&file, count, entries)?.0;
    let (again, mut writer, reader) = warm(&file, count, entries)?;
    let after_start = together(&reader, &sample);
    let collected = sweeps(&mut writer);
    fs::remove_file(&file).context("the snapshot")?;

    let each = octets as f64 / entries as f64;
    let times = |(median, least): (f64, f64)| format!("{median:.1} ({least:.1})");
    let [swept, collected] = [swept, collected]
        .map(|(longest, all)| format!("{:.2}; {:.2}", longest.as_secs_f64() * 1e3, all.as_secs_f64()));
    let row = |what: &str, value: String| vec![what.to_owned(), value];
    report.add(Table {
        title: "The cache alone, one core",
        head: &["what", "value"],
        rows: vec![
            row("entries", entries.to_string()),
            row("of them with a name", named.to_string()),
            row("octets of a name, mean", format!("{:.1}", length as f64 / named as f64)),
            row("octets of an entry, counted", format!("{each:.1}")),
            row(
                "octets of an entry, grown memory of the process",
                format!("{:.1}", grown as f64 / entries as f64),
            ),
            row("put, ns", format!("{:.0}", filled.as_secs_f64() * 1e9 / count as f64)),
            row("look-up of what is known, ns: median (least)", times(known)),
            row("the same, one after the other", times(alone)),
            row("look-up of what is not, ns: median (least)", times(unknown)),
            row("snapshot, MB", format!("{:.0}", size as f64 / 1e6)),
            row("to write it, synced, s", format!("{:.2}", saved.as_secs_f64())),
            row("to be warm, file not in memory, s", format!("{:.3}", cold.as_secs_f64())),
            row("to be warm, file in memory, s", format!("{:.3}", again.as_secs_f64())),
            row("look-up after that, ns: median (least)", times(after_start)),
            row("to sweep all: longest part, ms; all parts, s", swept),
            row("the same while all names are collected", collected),
        ],
    });
    report.must("entries that are kept", Limit::AtLeast(count as f64), Some(entries as f64));
    report.must("octets of an IPv4 entry, mean", Limit::AtMost(OCTETS_MAX as f64), Some(each));
    report.must("cache look-up, independent, ns", Limit::AtMost(100.0), Some(known.0));
    report.must("warm start, file not in memory, s", Limit::AtMost(2.0), Some(cold.as_secs_f64()));
    report.must("warm start, file in memory, s", Limit::AtMost(2.0), Some(again.as_secs_f64()));
    report.note(format!(
        "Names: the {} rows of 2017 and others of their /23 with names of the same form; a name that its address does not \
         explain became another of the same length below the same domain. Look-ups are independent (throughput) of \
         {LOOKUPS} addresses in no order, each into a view, the name written out; median of {PASSES} passes.",
        rows.len(),
    ));
    Ok(())
}

/// Nanoseconds a look-up where a batch waits for memory together: the median and the least of all passes.
fn together(reader: &Reader, addresses: &[Ipv4Addr]) -> (f64, f64) {
    let addresses: Vec<IpAddr> = addresses.iter().copied().map(IpAddr::V4).collect();
    passes(addresses.len(), || {
        let mut sum = 0;
        reader.view().get_each(&addresses, |_, entry, name| {
            sum += entry.map_or(0, |entry| u64::from(entry.expiry) + name.octets().len() as u64);
        });
        sum
    })
}

/// The same for one look-up after the other.
fn look_ups(reader: &Reader, addresses: &[Ipv4Addr]) -> (f64, f64) {
    let mut name = NameText::EMPTY;
    passes(addresses.len(), || {
        let view = reader.view();
        let found = |address: &Ipv4Addr| {
            let entry = view.get(IpAddr::V4(*address), &mut name);
            entry.map_or(0, |entry| u64::from(entry.expiry) + name.octets().len() as u64)
        };
        addresses.iter().map(found).sum()
    })
}

fn passes(count: usize, mut pass: impl FnMut() -> u64) -> (f64, f64) {
    let times: Vec<f64> = (0..PASSES)
        .map(|_| {
            let begun = Instant::now();
            black_box(pass());
            begun.elapsed().as_secs_f64() * 1e9 / count as f64
        })
        .collect();
    (median(&times).unwrap_or_default(), times.iter().copied().fold(f64::INFINITY, f64::min))
}

/// Sweeps all once, in parts, as the back end does: the longest part, and how long all took.
fn sweeps(writer: &mut Writer) -> (Duration, Duration) {
    let (mut longest, mut all) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..Writer::SWEEPS {
        let mut is_last = false;
        while !is_last {
            let begun = Instant::now();
            is_last = writer.sweep_part(NOW);
            let took = begun.elapsed();
            (longest, all) = (longest.max(took), all + took);
        }
    }
    (longest, all)
}

/// From nothing to the first look-ups.
fn warm(file: &Path, count: usize, entries: usize) -> Result<(Duration, Writer, Reader)> {
    let begun = Instant::now();
    let (writer, reader) = snapshot::load(file, count * OCTETS_MAX, 0).context("the snapshot")?;
    let took = begun.elapsed();
    anyhow::ensure!(writer.len() == entries, "the snapshot has {} entries, not {entries}", writer.len());
    Ok((took, writer, reader))
}

/// Lets the kernel forget what it keeps of a file.
fn forget(file: &Path) -> Result<()> {
    let file = File::open(file).context("the snapshot")?;
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).context("the snapshot")
}

/// Octets of memory that this process holds.
fn resident() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/smaps_rollup").context("/proc/self/smaps_rollup")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.context("no line Pss")? * 1024)
}
