//! The back ends: addresses behind a veth pair of their own, where each query is turned round as its own answer.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{Context, Result, bail};
use experiments::echo;
use tests::certificate::Certificate;

use crate::replay::driver::{self, Echo, End};
use crate::serve::place::{self, Place, SOURCE_CORE};
use crate::serve::process::{self, Group};
use crate::serve::servers::program;
use crate::serve::zone;

/// The back ends' addresses.
pub(crate) const BACK_ENDS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 98, 0, 1), Ipv4Addr::new(10, 98, 0, 2)];

/// The namespace of the back ends.
const NAMESPACE: &str = "behind";

/// The back ends' end of the pair, and the balancer's.
const THEIRS: End = End { namespace: NAMESPACE, device: "ve" };
const OURS: End = End { namespace: "server", device: "vb" };

/// The back ends' network, once it was made.
#[derive(Debug)]
pub(crate) struct Behind(());

impl Behind {
    /// Makes it, beside a [`Place`].
    ///
    /// # Errors
    /// Where a step fails.
    pub(crate) fn make() -> Result<Behind> {
        let [one, other] = BACK_ENDS;
        // Who is asked is known beforehand, so that nothing is to be resolved.
        let steps = format!(
            "ip netns add {NAMESPACE}
             ip link add vb netns server type veth peer name ve netns {NAMESPACE}
             ip -n server addr add 10.98.0.254/24 dev vb
             ip -n {NAMESPACE} addr add {one}/24 dev ve
             ip -n {NAMESPACE} addr add {other}/24 dev ve
             ip -n {NAMESPACE} link set lo up
             ip -n {NAMESPACE} link set ve up
             ip -n server link set vb up
             hardware=$(ip -n {NAMESPACE} -brief link show ve | awk '{{ print $3 }}')
             ip -n server neigh replace {one} lladdr $hardware dev vb nud permanent
             ip -n server neigh replace {other} lladdr $hardware dev vb nud permanent"
        );
        let status = Command::new("sh").args(["-euc", &steps]).status().context("sh")?;
        if !status.success() {
            bail!("the back ends' network could not be made ({status}); see above");
        }
        driver::leave_checksums_to_sender(OURS)?;
        Ok(Behind(()))
    }

    /// Has the back ends answer while `work` is done; tells with its result what answers.
    ///
    /// # Errors
    /// Those of `work`, and where there is no echo of either kind.
    pub(crate) fn answering<T>(&self, place: &Place, work: impl FnOnce() -> Result<T>) -> Result<(T, Echo)> {
        match driver::attach(place, THEIRS, OURS) {
            Ok(()) => {
                let done = work();
                driver::detach(THEIRS, OURS)?;
                driver::leave_checksums_to_sender(OURS)?;
                Ok((done?, Echo::Xdp))
            }
            Err(error) => {
                println!("no XDP echo, so one on a socket: {error:#}");
                let any = (Ipv4Addr::UNSPECIFIED, 53).into();
                let enter = || place::enter(NAMESPACE, SOURCE_CORE);
                Ok((echo::during(any, enter, work)?, Echo::Socket))
            }
        }
    }

    /// Has a name server answer at their addresses while `work` is done, with addresses that may be kept for all names of
    /// `example.com`; also over TLS, where it has what to show.
    ///
    /// # Errors
    /// Those of `work`, and where it does not start.
    pub(crate) fn serving<T>(
        &self,
        place: &Place,
        certificate: Option<&Certificate>,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let room = place.room("behind")?;
        let zone = room.join("example.com.zone");
        let wildcard = "* IN A 192.0.2.81\n";
        fs::write(&zone, zone::MASTER.to_owned() + wildcard).with_context(|| zone.display().to_string())?;
        let mut command = Command::new("ip");
        command.args([
            "netns",
            "exec",
            NAMESPACE,
            "taskset",
            "-c",
            &SOURCE_CORE.to_string(),
            &program(),
            "serve",
        ]);
        command.args(["--workers", "1", "--api", "127.0.0.1:0", "--zone"]).arg(&zone);
        command.args(["--store", &format!("sqlite:{}", room.join("store.db").display())]);
        for back_end in BACK_ENDS {
            command.args(["--listen", &format!("{back_end}:53")]);
            if certificate.is_some() {
                command.args(["--tls-listen", &format!("{back_end}:853")]);
            }
        }
        if let Some(Certificate { certificate, key, .. }) = certificate {
            command.args(["--tls-certificate", certificate, "--tls-key", key]);
        }
        // A balancer that is started after it answers where it does.
        let _server = Group::start(&mut command, &room.join("log"))?;
        work()
    }

    /// Does something in a thread in the back ends' namespace.
    ///
    /// # Errors
    /// What it fails with; that the namespace cannot be entered.
    pub(crate) fn within<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        place::inside(NAMESPACE, SOURCE_CORE, work)
    }

    /// How many datagrams have come to the back ends. The device counts what the sender's kernel has not yet cut as one;
    /// it has cut all where it computes checksums.
    ///
    /// # Errors
    /// Where the system does not say.
    pub(crate) fn received(&self) -> Result<u64> {
        let text = process::read(Command::new("ip").args([
            "netns",
            "exec",
            NAMESPACE,
            "cat",
            "/sys/class/net/ve/statistics/rx_packets",
        ]))?;
        text.trim().parse().with_context(|| format!("the packets of ve: {text}"))
    }
}
