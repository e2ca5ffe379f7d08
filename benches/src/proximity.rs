//! Proximity services: how long a table of routes takes to serve, and what an external service costs a query.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use fastrand::Rng;
use nameserver::answer::{Asked, Reply, Transport};
use nameserver::as_path::Server;
use nameserver::book::Book;
use nameserver::fast::Fast;
use nameserver::generation::Settings;
use nameserver::import::{self, Import, Layer};
use net::clock::Clock;
use routing::{External, Prefix, RegionId};
use tests::program::memory_peak;

use crate::data;
use crate::options::Options;
use crate::question;
use crate::report::{Limit, Report, Table, median};
use crate::serve::zone;
use crate::steering;

/// Different clients: far more than the table of the external service has cells.
const CLIENTS: usize = 1 << 20;

/// Passes over the clients; the median of them counts.
const PASSES: usize = 7;

/// Measures both.
///
/// # Errors
/// Where the data is not there.
pub(crate) fn run(options: &Options, report: &mut Report) -> Result<()> {
    if options.wants("as-path") {
        as_path(options, report)?;
    }
    if options.wants("external") {
        external(options, report)?;
    }
    Ok(())
}

/// From the file to a generation, as an import at start does it.
fn as_path(options: &Options, report: &mut Report) -> Result<()> {
    let server = |address: [u8; 4], asn| Server { address: address.into(), asn };
    let servers = vec![
        server([145, 0, 0, 1], None),
        server([192, 0, 2, 2], Some(7018)),
        server([192, 0, 2, 3], Some(1221)),
        server([192, 0, 2, 4], Some(2914)),
        server([192, 0, 2, 5], Some(3356)),
    ];
    let layer = Layer::AsPath { table: crate::machine::data(steering::ROUTES)?, servers, relations: None };
    let imports = [Import::Partition { name: "default".into(), layers: vec![layer] }];
    let mut times = Vec::new();
    for _ in 0..options.rounds {
        let mut book = Book::empty(options.seed, Settings::default());
        let start = Instant::now();
        let edits = import::edits(&imports, &book, &mut Vec::new()).map_err(|faults| anyhow!("{faults}"))?;
        for edit in edits {
            book.apply(edit).map_err(|refused| anyhow!("{refused}"))?;
        }
        times.push(start.elapsed().as_secs_f64());
        black_box(&book);
    }
    let took = median(&times).context("some rounds")?;
    let peak = memory_peak(std::process::id()).context("its memory")? as f64 / 1e6;
    report.must("from a table of 115,521 routes to a generation, s", Limit::AtMost(4.0), Some(took));
    report.must("memory of that at its peak, MB", Limit::AtMost(300.0), Some(peak));
    report.add(Table {
        title: "A partition by AS path",
        head: &["table", "s, median", "peak MB"],
        rows: vec![vec![steering::ROUTES.to_owned(), format!("{took:.2}"), format!("{peak:.0}")]],
    });
    Ok(())
}

/// What an answer takes while nothing, everything and something new is known, beside that of a plain partition.
fn external(options: &Options, report: &mut Report) -> Result<()> {
    let clock = Clock::new();
    let mut rng = Rng::with_seed(options.seed);
    let clients = data::uniform_v4(CLIENTS, &mut rng);
    let few: Vec<Ipv4Addr> = clients[..CLIENTS / 64].iter().copied().cycle().take(CLIENTS).collect();
    let made = || External::new(1 << 16, Duration::from_secs(3_600), 10, [7; 16]);
    let mut rows = Vec::new();
    let mut middle_of = Vec::new();
    for (what, asks, clients, is_flood) in [
        ("partition alone", false, &clients, false),
        ("known to the service", true, &few, false),
        ("a flood of new clients", true, &clients, true),
    ] {
        let divided = || format!("0.0.0.0/1,{}\n128.0.0.0/1,{}\n", steering::region(1), steering::region(2));
        let book = zone::book(options.seed, if asks { "0.0.0.0/0,?\n".into() } else { divided() })?;
        let external = made();
        if !is_flood {
            for client in clients {
                let block = Prefix::new(IpAddr::V4(*client), 24).context("24 bits of 32")?;
                external.learn(block, RegionId::new(1).context("one")?, clock.now().monotonic);
            }
        }
        let stop = AtomicBool::new(false);
        let times = std::thread::scope(|scope| {
            // Who asks the service takes the notes as often as it can, and each is answered at once.
            scope.spawn(|| {
                let region = RegionId::new(1).expect("it is not 0");
                while !stop.load(Ordering::Relaxed) {
                    while let Some(note) = external.next_note() {
                        external.learn(note.block, region, clock.now().monotonic);
                    }
                    std::thread::yield_now();
                }
            });
            let times = passes(&book, clients, asks.then_some(&external), &clock, &mut rng);
            stop.store(true, Ordering::Relaxed);
            times
        })?;
        let middle = median(&times).context("some passes")?;
        let worst = times.iter().copied().fold(0.0, f64::max);
        middle_of.push(middle);
        rows.push(vec![
            what.to_owned(),
            format!("{middle:.0}"),
            format!("{worst:.0}"),
            external.lost().to_string(),
        ]);
    }
    report.must("an answer while new clients flood, ns", Limit::AtMost(1_000.0), middle_of.last().copied());
    report.add(Table {
        title: "Answers with an external proximity service",
        head: &["clients", "ns, median of passes", "ns, worst pass", "notes lost"],
        rows,
    });
    Ok(())
}

fn passes(
    book: &Book,
    clients: &[Ipv4Addr],
    external: Option<&External>,
    clock: &Clock,
    rng: &mut Rng,
) -> Result<Vec<f64>> {
    let query = question::query(0x1234, zone::STEERED);
    let fast = Fast { external, ..Fast::default() };
    let local = IpAddr::from([127, 0, 0, 1]);
    let mut out = [0; 1232];
    let mut times = Vec::new();
    for _ in 0..PASSES {
        let (start, now) = (Instant::now(), clock.now());
        for client in clients {
            let client = IpAddr::V4(*client);
            let asked = Asked { query: black_box(&query), client, local, transport: Transport::Udp };
            match book.generation.answer_counted(&asked, fast, now, rng, &mut out).reply {
                Reply::Send(length) => black_box(length),
                Reply::Drop(why) => return Err(anyhow!("a query was dropped: {why:?}")),
            };
        }
        times.push(start.elapsed().as_secs_f64() * 1e9 / clients.len() as f64);
    }
    Ok(times)
}
