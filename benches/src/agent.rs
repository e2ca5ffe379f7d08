//! The agent: what of a core it takes at fifty reports a second.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use agent::{Agent, Options as Started, Settings};
use anyhow::{Context, Result, anyhow};
use credit::{INTERVAL, Service};
use tests::credit::{Balancer, key};

use crate::options::Options;
use crate::report::{Limit, Report, Table};

/// How long each case is measured.
const TIME: Duration = Duration::from_secs(10);

/// How many reports a second there are at least, of the fifty at which its cost is told.
const REPORTS_MIN: f64 = 45.0;

/// The same to see that everything works.
const QUICK: Duration = Duration::from_secs(1);

/// What happens to the service meanwhile: queries in each millisecond, and whether it reads them.
const CASES: [(&str, usize, bool); 3] =
    [("nothing is sent", 0, true), ("10,000/s", 10, true), ("full", 10, false)];

/// Measures the agent's thread beside a service of this process.
///
/// # Errors
/// Where the agent does not start, or the kernel does not tell of the thread.
pub(crate) fn run(options: &Options, report: &mut Report) -> Result<()> {
    let time = if options.quick { QUICK } else { TIME };
    let mut rows = Vec::new();
    for (what, burst, is_read) in CASES {
        let measured = measure(burst, is_read, time).with_context(|| what.to_owned())?;
        let share = measured.processor.as_secs_f64() / time.as_secs_f64() * 100.0;
        report.must(format!("agent, {what}: % of a core"), Limit::AtMost(1.0), Some(share));
        let reports = measured.reports as f64 / time.as_secs_f64();
        report.must(format!("agent, {what}: reports/s"), Limit::AtLeast(REPORTS_MIN), Some(reports));
        let rate = |count: u64| format!("{:.0}", count as f64 / time.as_secs_f64());
        rows.push(vec![what.to_owned(), rate(measured.reports), rate(measured.looks), format!("{share:.2}")]);
    }
    report.add(Table {
        title: "The agent beside one service over UDP",
        head: &["the service", "reports/s", "looks/s", "% of a core"],
        rows,
    });
    Ok(())
}

struct Measured {
    processor: Duration,
    reports: u64,
    looks: u64,
}

fn measure(burst: usize, is_read: bool, time: Duration) -> Result<Measured> {
    let server = UdpSocket::bind("127.0.0.1:0")?;
    server.set_read_timeout(Some(INTERVAL))?;
    let at = server.local_addr()?;
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
    let ends = AtomicBool::new(false);
    let measured = thread::scope(|scope| {
        scope.spawn(|| send(at, burst, &ends));
        if is_read {
            scope.spawn(|| receive(&server, &ends));
        }
        balancer.wait(0, |report| report.limit > report.sent || !is_read);
        let counts = || {
            let counts = view.counts();
            let looks = counts.samples.load(Ordering::Relaxed) + counts.glances.load(Ordering::Relaxed);
            let links = view.status().services.into_iter().flat_map(|service| service.balancers);
            (links.map(|link| link.reports).sum::<u64>(), looks)
        };
        let measured = (|| {
            let (before, (reports, looks), start) = (processor()?, counts(), Instant::now());
            let mut hello = start;
            while start.elapsed() < time {
                balancer.sent[0] += (burst as u64) * 20;
                balancer.greet(0);
                hello += INTERVAL;
                while Instant::now() < hello {
                    balancer.hear();
                }
            }
            let (now_reports, now_looks) = counts();
            let processor = processor()? - before;
            Ok(Measured { processor, reports: now_reports - reports, looks: now_looks - looks })
        })();
        ends.store(true, Ordering::Relaxed);
        measured
    });
    agent.stop();
    measured
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
