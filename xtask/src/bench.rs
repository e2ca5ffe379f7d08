//! `cargo xtask bench`: builds what is measured and what measures, and starts it where it can do no harm.

use std::collections::HashSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::checkout::Checkout;
use crate::packages::{self, Package};

/// What may be said behind `bench`, as `benches` tells it: nobody waits for that to be built to read it.
pub(crate) const USAGE: &str = include_str!("../../benches/usage.txt");

/// Third-party crates and ours, optimised: two to nine minutes on two cores.
const BUILD_MAX: Duration = Duration::from_secs(1_200);

/// Three rounds over all arms take less than an hour; five, with servers that are slow, two.
const RUN_MAX: Duration = Duration::from_secs(3 * 3_600);

/// The core of what is measured (`benches/src/serve/place.rs`), and how the names of kernel threads begin that receive for it
/// once they are threads.
const SERVER_CORE: usize = 0;
const RECEIVERS: &str = "napi/vs-";

/// The time between two looks for such threads.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The servers that are measured, and what measures them. They are not needed by any test.
pub(crate) const PACKAGES: &[Package] = &[
    Package::program("clang", "clang", "an echo in the driver, for the highest rate of a sender"),
    Package::program("dnsperf", "dnsperf", "queries over TCP connections that are kept"),
    Package::program("ethtool", "ethtool", "checksums are computed on the way to XDP"),
    Package::program("gdnsd", "gdnsd", "a server to measure: weighted addresses"),
    Package::program("iproute2", "ip", "network namespaces"),
    Package::program("knot", "knotd", "a server to measure"),
    Package::program("knot-dnsutils", "kxdpgun", "the source of queries"),
    Package::library("knot-module-geoip", "knot/modules-3.2/geoip.so", "Knot's weighted addresses"),
    Package::program("nsd", "nsd", "a server to measure"),
    Package::library("pdns-backend-geoip", "pdns/libgeoipbackend.so", "PowerDNS's weighted addresses"),
    Package::program("pdns-server", "pdns_server", "a server to measure"),
    Package::program("pdns-tools", "dnsreplay", "a sender to measure"),
];

/// What the measurement `floods` needs.
const FOR_FLOODS: &[Package] = &[Package::program("iproute2", "ip", "network namespaces")];

/// The balancer that `balance` is measured beside, and what measures both.
pub(crate) const BALANCE: &[Package] = &[
    Package::program("clang", "clang", "back ends in the driver, which cost next to nothing"),
    Package::program("dnsdist", "dnsdist", "a balancer to measure"),
    Package::program("ethtool", "ethtool", "checksums are computed on the way to XDP"),
    Package::program("iproute2", "ip", "network namespaces"),
    Package::program("knot-dnsutils", "kxdpgun", "the source of queries"),
];

/// The servers that `reverse` is measured beside, and what measures them.
pub(crate) const REVERSE: &[Package] = &[
    Package::program("dnsmasq-base", "dnsmasq", "a server to measure"),
    Package::program("ethtool", "ethtool", "checksums are computed on the way to XDP"),
    Package::program("iproute2", "ip", "network namespaces"),
    Package::program("knot-dnsutils", "kxdpgun", "the source of queries"),
    Package::program("redis-server", "redis-server", "a server to measure"),
    Package::program("unbound", "unbound", "a server to measure"),
];

/// The databases that name servers share in `shared`.
pub(crate) const SHARED: &[Package] = &[
    Package::program("mariadb-server", "mariadbd", "a database to share"),
    Package::library("postgresql-15", "15/bin/postgres", "a database to share"),
];

/// Builds, and runs the measurement that the words name; `benches/src/options.rs` reads them.
///
/// What starts servers runs in a PID namespace and a mount namespace of its own, so that nothing that it
/// starts outlives it.
///
/// # Errors
/// [`packages::Missing`] when something is needed and not to be installed; another error when a step failed.
pub(crate) fn run(checkout: &Checkout, words: &[&str]) -> Result<()> {
    let needed = match words.first() {
        Some(&"serve" | &"replay") => Some(PACKAGES),
        Some(&"floods") => Some(FOR_FLOODS),
        Some(&"reverse") => Some(REVERSE),
        Some(&"shared") => Some(SHARED),
        // What a pick takes needs no network.
        Some(&"balance") if !words.windows(2).any(|pair| pair == ["--only", "picks"]) => Some(BALANCE),
        _ => None,
    };
    if let Some(needed) = needed {
        if !nix::unistd::geteuid().is_root() {
            bail!("this makes namespaces of its own, for packets and for all that it starts: it needs root");
        }
        packages::provide(checkout, needed, words.contains(&"--install"))?;
        checkout.cargo(&["build", "--release", "--package", "pointsman"], BUILD_MAX)?;
    }
    checkout.cargo(&["build", "--release", "--package", "benches"], BUILD_MAX)?;
    let program = checkout.root.join("target/release/benches");
    let mut command = if needed.is_some() {
        let mut command = checkout.command("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]).arg(&program);
        command
    } else {
        checkout.command(&program)
    };
    command.args(words.iter().filter(|word| **word != "--install"));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        if words.first() == Some(&"serve") {
            scope.spawn(|| keep_receivers(&done));
        }
        let ran = checkout.runner.run(&mut command, RUN_MAX);
        done.store(true, Ordering::Relaxed);
        Ok(ran?)
    })
}

/// Keeps kernel threads that receive for the server's device on the server's core. They are in the first PID namespace, where
/// what measures cannot see them.
fn keep_receivers(done: &AtomicBool) {
    let mut kept = HashSet::new();
    let mut server = CpuSet::new();
    server.set(SERVER_CORE).expect("each machine has this one");
    while !done.load(Ordering::Relaxed) {
        let threads = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse::<i32>().ok()?;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            name.starts_with(RECEIVERS).then_some(pid)
        });
        for pid in threads {
            // One that has ended by now needs no core.
            if kept.insert(pid) {
                let _ = sched_setaffinity(Pid::from_raw(pid), &server);
            }
        }
        thread::sleep(LOOK_EVERY);
    }
}
