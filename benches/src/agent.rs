//! The agent: what of a core it takes at fifty reports a second.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use agent::{Agent, Options as Started, Settings};
use anyhow::{Context, Result, anyhow, bail};
use credit::{INTERVAL, Report as Told, Service};
use experiments::serving;
use tests::credit::{Balancer, key};
use tests::folder::Folder;
use tests::group::Group;
use tests::program::PROGRAM_WAIT;
use tests::serving::Serving;

use crate::options::Options;
use crate::report::{Limit, Report, Table};

/// How long each case is measured.
const TIME: Duration = Duration::from_secs(10);

/// How many reports a second there are at least, of the fifty at which its cost is told.
const REPORTS_MIN: f64 = 45.0;

/// The same to see that everything works.
const QUICK: Duration = Duration::from_secs(1);

/// What is measured, and how many queries are sent in each millisecond meanwhile.
const CASES: [(&str, usize, Reader); 4] = [
    ("nothing is sent", 0, Reader::Thread),
    ("10,000/s", 10, Reader::Thread),
    ("full", 10, Reader::Nobody),
    ("10,000/s, a quota", 10, Reader::Limited),
];

/// The quota of a [`Reader::Limited`] and the period in which it has it, in microseconds: the shortest that agents tell of,
/// for which they look most often.
const QUOTA_US: (u32, u32) = (2_000, 10_000);

/// Who reads what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    /// A thread of this process.
    Thread,
    /// Nobody: the queue is full.
    Nobody,
    /// A name server of ours, in a control group with a quota of processor time.
    Limited,
}

/// Measures the agent's thread beside a service.
///
/// # Errors
/// Where the agent does not start, or the kernel does not tell of the thread.
pub(crate) fn run(options: &Options, report: &mut Report) -> Result<()> {
    let time = if options.quick { QUICK } else { TIME };
    let mut rows = Vec::new();
    for (what, burst, reader) in CASES {
        let measured = match reader {
            Reader::Thread | Reader::Nobody => measure_here(burst, reader == Reader::Thread, time).map(Some),
            Reader::Limited => measure_limited(burst, time),
        };
        let measured = measured.with_context(|| what.to_owned())?;
        let share = measured.map(|measured| measured.percent);
        report.must(format!("agent, {what}: % of a core"), Limit::AtMost(1.0), share);
        let reports = measured.map(|measured| measured.reports);
        report.must(format!("agent, {what}: reports/s"), Limit::AtLeast(REPORTS_MIN), reports);
        rows.extend(measured.map(|Measured { percent, reports, looks }| {
            vec![what.to_owned(), format!("{reports:.0}"), format!("{looks:.0}"), format!("{percent:.2}")]
        }));
    }
    report.add(Table {
        title: "The agent beside one service over UDP",
        head: &["the service", "reports/s", "looks/s", "% of a core"],
        rows,
    });
    Ok(())
}

#[derive(Clone, Copy, Debug)]
struct Measured {
    /// Of a core's time.
    percent: f64,
    /// In each second.
    reports: f64,
    looks: f64,
}

/// Measures it beside a service of this process.
fn measure_here(burst: usize, is_read: bool, time: Duration) -> Result<Measured> {
    let server = UdpSocket::bind("127.0.0.1:0")?;
    server.set_read_timeout(Some(INTERVAL))?;
    let (at, ends) = (server.local_addr()?, AtomicBool::new(false));
    thread::scope(|scope| {
        if is_read {
            scope.spawn(|| receive(&server, &ends));
        }
        let measured = measure(at, burst, time, |told| told.limit > told.sent || !is_read);
        ends.store(true, Ordering::Relaxed);
        measured
    })
}

/// Measures it beside a server with a quota; nothing where no control group can be made.
fn measure_limited(burst: usize, time: Duration) -> Result<Option<Measured>> {
    let (quota_us, period_us) = QUOTA_US;
    let group = match Group::limited(quota_us, period_us) {
        Ok(group) => group,
        Err(cause) => {
            eprintln!("no control group with a quota can be made here: {cause}");
            return Ok(None);
        }
    };
    let folder = Folder::new();
    let server = Serving::under(Command::new(serving::program()?), &folder, &["--workers", "1"]);
    group.take(server.program.pid());
    measure(server.dns(), burst, time, |told| told.quota.is_some()).map(Some)
}

/// Measures the agent from when it tells what it is to tell.
fn measure(at: SocketAddr, burst: usize, time: Duration, tells: impl Fn(&Told) -> bool) -> Result<Measured> {
    let service: Service = format!("udp:{at}").parse().map_err(|what: String| anyhow!(what))?;
    let mut balancer = Balancer::new(&[service]);
    let started = Started {
        services: vec![service],
        balancers: vec![balancer.address()],
        key: key(),
        settings: Settings::default(),
    };
    let agent = Agent::start(started)?;
    let view = agent.view();
    let counts = || {
        let counts = view.counts();
        let looks = counts.samples.load(Ordering::Relaxed) + counts.glances.load(Ordering::Relaxed);
        let links = view.status().services.into_iter().flat_map(|service| service.balancers);
        (links.map(|link| link.reports).sum::<u64>(), looks)
    };
    let ends = AtomicBool::new(false);
    let measured = thread::scope(|scope| {
        scope.spawn(|| send(at, burst, &ends));
        let measured = (|| {
            let (begun, mut has_told) = (Instant::now(), false);
            balance(&mut balancer, burst, |told| {
                has_told |= told.is_some_and(&tells);
                has_told || begun.elapsed() > PROGRAM_WAIT
            });
            if !has_told {
                bail!("the agent does not tell what it is to tell");
            }
            let (before, (reports, looks), start) = (processor()?, counts(), Instant::now());
            balance(&mut balancer, burst, |_| start.elapsed() >= time);
            let ((now_reports, now_looks), used) = (counts(), processor()? - before);
            let a_second = |count: u64| count as f64 / time.as_secs_f64();
            Ok(Measured {
                percent: used.as_secs_f64() / time.as_secs_f64() * 100.0,
                reports: a_second(now_reports - reports),
                looks: a_second(now_looks - looks),
            })
        })();
        ends.store(true, Ordering::Relaxed);
        measured
    });
    agent.stop();
    measured
}

/// Says hello in each interval as a balancer that sends so many in each millisecond, all of which are answered, until it is
/// over; that is asked before each, with the last report.
fn balance(balancer: &mut Balancer, burst: usize, mut is_over: impl FnMut(Option<&Told>) -> bool) {
    let (mut hello, mut last) = (Instant::now(), None);
    while !is_over(last.as_ref()) {
        balancer.sent[0] += burst as u64 * INTERVAL.as_millis() as u64;
        balancer.greet(0);
        hello += INTERVAL;
        while Instant::now() < hello {
            last = balancer.hear().map(|(_, told, _)| told).or(last);
        }
    }
}

fn send(to: SocketAddr, burst: usize, ends: &AtomicBool) {
    let client = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
    while !ends.load(Ordering::Relaxed) {
        for _ in 0..burst {
            client.send_to(&[0; 40], to).expect("loopback sends");
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn receive(server: &UdpSocket, ends: &AtomicBool) {
    let mut room = [0; 64];
    while !ends.load(Ordering::Relaxed) {
        // A server with something to do for each: some wait meanwhile.
        let _ = server.recv(&mut room);
        let busy = Instant::now();
        while busy.elapsed() < Duration::from_micros(50) {
            std::hint::spin_loop();
        }
    }
}

/// The processor time that the agent's thread has had.
fn processor() -> Result<Duration> {
    for task in fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        if fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "agent") {
            let text = fs::read_to_string(path.join("schedstat"))?;
            let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
            return nanos.map(Duration::from_nanos).context("the kernel tells no processor time");
        }
    }
    Err(anyhow!("there is no thread of an agent"))
}
