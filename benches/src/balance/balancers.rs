//! Who balances, each on one core, over UDP, with the same back ends.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use tests::certificate::Certificate;

use super::behind::BACK_ENDS;
use crate::machine;
use crate::serve::place::{Place, SERVER, Side};
use crate::serve::servers::{self, Running, program};

/// A balancer in one of its ways of working.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Balancer {
    /// Its name in tables.
    pub(crate) name: &'static str,
    /// Whether it is ours.
    pub(crate) is_ours: bool,
    /// Our policy, or lines of dnsdist's configuration.
    way: &'static str,
}

/// All of them: our default, and the policy that needs least; dnsdist as it comes, and receiving in batches.
pub(crate) const BALANCERS: &[Balancer] = &[
    Balancer { name: "pressure", is_ours: true, way: "pressure" },
    Balancer { name: "wrr", is_ours: true, way: "wrr" },
    Balancer { name: "dnsdist", is_ours: false, way: "" },
    Balancer { name: "dnsdist-batched", is_ours: false, way: "setUDPMultipleMessagesVectorSize(32)\n" },
];

/// What the versions of both are.
pub(crate) fn versions() -> [(&'static str, String); 2] {
    [
        ("pointsman", machine::said(&program(), &["--version"])),
        ("dnsdist", machine::said("dnsdist", &["--version"])),
    ]
}

/// What a balancer is told beside its way of working.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup<'a> {
    /// Seconds until a timeout.
    pub(crate) seconds: u64,
    /// How many queries may wait.
    pub(crate) outstanding: u64,
    /// The port of the back ends.
    pub(crate) port: u16,
    /// Whether answers are given again.
    pub(crate) has_cache: bool,
    /// What back ends over TLS show; not where they are asked over UDP.
    pub(crate) certificate: Option<&'a Certificate>,
}

impl Setup<'_> {
    /// What it is told where nothing of it is measured.
    pub(crate) const USUAL: Setup<'static> =
        Setup { seconds: 2, outstanding: 65_535, port: 53, has_cache: false, certificate: None };
}

/// How many queries dnsdist may have under way over one connection: as many as we.
const UNDER_WAY: usize = 32;

/// What a cache takes, and how many answers dnsdist's may have: more than are asked for.
const CACHE: &str = "64 MiB";
const CACHED_MAX: u64 = 100_000;

impl Balancer {
    /// Starts it in a new folder, and returns when it answers.
    ///
    /// # Errors
    /// Where it does not; with the end of what it said.
    pub(crate) fn start(&self, place: &Place, setup: Setup<'_>) -> Result<Running> {
        self.started(place, setup, false)
    }

    /// The same, before others on its core (SCHED_FIFO): what else the machine does there, such as looking after itself, would
    /// hold it up for slices of 4 ms; a nice value counts within its session alone. Not where it is to be saturated: then
    /// what the kernel receives on this core would have to wait.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(crate) fn start_before_others(&self, place: &Place) -> Result<Running> {
        self.started(place, Setup::USUAL, true)
    }

    fn started(&self, place: &Place, setup: Setup<'_>, is_first: bool) -> Result<Running> {
        let room = place.room(self.name)?;
        let mut command = self.command(place, setup)?;
        if is_first {
            let inner = command;
            command = Command::new("chrt");
            command.args(["--fifo", "1"]).arg(inner.get_program()).args(inner.get_args());
        }
        // An echo has no records.
        servers::run_until(self.name, &mut command, &room, |answer| answer[3] & 15 == 0)
    }

    /// The program with its arguments; its configuration is in its folder.
    ///
    /// # Errors
    /// Where that cannot be written.
    pub(crate) fn command(&self, place: &Place, setup: Setup<'_>) -> Result<Command> {
        let Setup { seconds, outstanding, port, has_cache, certificate } = setup;
        if self.is_ours {
            let mut command = Side::Server.command(&program());
            command.args(["balance", "--workers", "1", "--policy", self.way]);
            command.args(["--listen", &format!("{SERVER}:53"), "--timeout", &format!("{seconds}s")]);
            command.args(["--outstanding-max", &(outstanding * 2).to_string()]);
            // The source has few addresses of its many in use at a time.
            command.args(["--per-client-max", "65535"]);
            for back_end in BACK_ENDS {
                let named = certificate.map_or("", |_| "#dns.example.com");
                command.args(["--backend", &format!("{back_end}:{port}{named}")]);
            }
            if let Some(Certificate { authority, .. }) = certificate {
                command.args(["--authorities", authority]);
            }
            if has_cache {
                command.args(["--cache", CACHE]);
            }
            return Ok(command);
        }
        let mut lines = format!(
            "setSecurityPollSuffix(\"\")\nsetLocal(\"{SERVER}:53\")\nsetACL({{\"0.0.0.0/0\"}})\n\
             setServerPolicy(leastOutstanding)\nsetMaxUDPOutstanding({outstanding})\nsetUDPTimeout({seconds})\n{}",
            self.way
        );
        for back_end in BACK_ENDS {
            // As it comes, it has one query under way over a connection.
            let tls = certificate.map(|Certificate { authority, .. }| {
                format!(
                    ", tls=\"openssl\", subjectName=\"dns.example.com\", caStore=\"{authority}\", \
                     maxInFlight={UNDER_WAY}"
                )
            });
            let tls = tls.unwrap_or_default();
            lines += &format!("newServer({{address=\"{back_end}:{port}\"{tls}}}):setUp()\n");
        }
        if has_cache {
            lines += &format!("getPool(\"\"):setCache(newPacketCache({CACHED_MAX}))\n");
        }
        let file = place.folder.join(format!("{}.conf", self.name));
        fs::write(&file, lines).with_context(|| format!("{}", file.display()))?;
        let mut command = Side::Server.command("dnsdist");
        command.args(["--supervised", "--disable-syslog", "-C"]).arg(file);
        Ok(command)
    }
}
