//! Names for addresses: the cache alone, the service beside Redis, Unbound and dnsmasq, and its contract.
//!
//! - [`cache`]: memory, look-ups, and how long it takes to be warm; [`names`]: what is in it.
//! - [`wire`]: look-ups over TCP ([`load`]) and DNS, beside others ([`servers`]).
//! - [`chaos`]: answers while the upstream is in trouble; [`pauses`]: when the machine was.

mod cache;
mod chaos;
mod load;
mod names;
mod pauses;
mod servers;
mod wire;

use anyhow::{Result, bail};

use crate::options::Options;
use crate::report::Report;
use crate::serve::place::{Place, Reception};
use servers::Server;

/// What can be measured.
const PARTS: &[&str] = &["cache", "tcp", "http", "dns", "chaos"];

/// Measures all parts that are wanted.
///
/// # Errors
/// Where a server does not start, a source fails, or a name in `--only` is none.
pub(crate) fn run(options: &Options, report: &mut Report) -> Result<()> {
    if let Some(unknown) = options.only.iter().find(|name| !PARTS.contains(&name.as_str())) {
        bail!("{unknown} is no part; there are {}", PARTS.join(", "));
    }
    let place = Place::make()?;
    for server in [Server::Pointsman, Server::Redis, Server::Unbound, Server::Dnsmasq] {
        report.version(server.name(), server.version());
    }
    if options.wants("cache") {
        cache::run(options, &place.folder, report)?;
    }
    place.receive(Reception::Exchanged)?;
    if options.wants("tcp") {
        wire::tcp(options, &place, report)?;
    }
    if options.wants("http") {
        wire::http(options, &place, report)?;
    }
    if options.wants("dns") {
        place.receive(Reception::Own)?;
        wire::dns(options, &place, report)?;
        place.receive(Reception::Exchanged)?;
    }
    if options.wants("chaos") {
        place.offload(true)?;
        chaos::run(options, &place, report)?;
    }
    report.note(
        "One core for the server, one for the source; only ratios between servers of one run mean something.",
    );
    report.note(
        "Over TCP, and in the contract, what the source sends is received by the source's core and what the server sends \
         by the server's: each receives once, and none interrupts the other for it.",
    );
    report.note(
        "In the contract, the server's device takes messages of several datagrams whole, as network cards of servers do, and \
         the source receives them so, as our balancer does.",
    );
    report.note(
        "In the contract, server and source come before the machine's other programs (the server by SCHED_FIFO, the source by \
         its session's nice value); the server's back end stands back (SCHED_BATCH, nice 10).",
    );
    if options.quick {
        report.note("This was a `--quick` run: it shows that everything works, not how fast it is.");
    }
    Ok(())
}
