//! What memory queries take that wait: 100,000 of them, at back ends that never answer.

use std::net::{Ipv4Addr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::balancers::{BALANCERS, Setup};
use super::behind::Behind;
use crate::report::{Report, Table};
use crate::serve::place::Place;
use crate::serve::process::Group;
use crate::serve::source::Source;
use crate::serve::zone;

/// How many queries wait at a time.
const OUTSTANDING: u64 = 100_000;

/// The rate at which they come, in queries a second: nobody drops any.
const RATE: u64 = 25_000;

/// The port of back ends that take everything and say nothing: the echo in the driver passes it over.
const PORT: u16 = 54;

/// How long none times out, in seconds.
const PATIENCE: u64 = 30;

/// How long a balancer may take to its start.
const START_MAX: Duration = Duration::from_secs(20);

/// Measures each way of working of each balancer.
///
/// # Errors
/// Where one does not start, or forwards too few.
pub(crate) fn measure(place: &Place, behind: &Behind, report: &mut Report) -> Result<()> {
    // What nobody reads the kernel drops in silence, and nobody is told that nobody listens.
    let silent =
        behind.within(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).context("a silent back end"))?;
    let mut rows = Vec::new();
    for balancer in BALANCERS {
        let setup = Setup { seconds: PATIENCE, port: PORT, ..Setup::USUAL };
        let room = place.room(balancer.name)?;
        let mut group = Group::start(&mut balancer.command(place, setup)?, &room.join("log"))?;
        let source = Source::new(place, zone::STATIC)?;
        let begin = Instant::now();
        // It takes queries once one of them gets through.
        let idle = behind.received()?;
        while behind.received()? < idle + 100 {
            if group.has_ended() || begin.elapsed() > START_MAX {
                bail!("{} forwards nothing", balancer.name);
            }
            source.udp(1_000, 1)?;
        }
        let (before, octets) = (behind.received()?, group.memory()?);
        source.udp(RATE, OUTSTANDING / RATE)?;
        thread::sleep(Duration::from_millis(200));
        let waiting = behind.received()? - before;
        if (waiting as f64) < OUTSTANDING as f64 * 0.98 {
            bail!("of {OUTSTANDING} queries {} forwarded {waiting}", balancer.name);
        }
        let now = group.memory()?;
        println!("memory {:<16} {octets} {now}", balancer.name);
        rows.push(vec![
            balancer.name.to_owned(),
            waiting.to_string(),
            format!("{:.1}", octets as f64 / 1e6),
            format!("{:.1}", now as f64 / 1e6),
        ]);
    }
    drop(silent);
    report.add(Table {
        title: "Memory while 100,000 queries wait (PSS)",
        head: &["balancer", "waiting", "before, MB", "then, MB"],
        rows,
    });
    Ok(())
}
