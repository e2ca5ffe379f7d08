//! What one algorithm's world consists of: two sites with a quota each, a name server, a control process.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use api::Policy;
use control::matrix;
use serde_json::json;
use tests::serving::Serving;

use super::{NAME, Pace, SHARE};
use crate::myxdns::closed_loop::DEMAND;
use crate::myxdns::world::{CLUSTERS, REGION, REQUESTS, SCALE};
use crate::process::{Killed, logged};
use crate::quota::{Counter, PERIOD, Quota};
use crate::serving::{self, ENDS_WITH_US, program};

/// The second octet of all addresses of the first world, those of the next being one more: of loopback, which has them
/// all. Sites are in the third octet 0, clusters in 1.
const NETWORK: u8 = 71;

/// The time of a source of loads may be as long as a round, and a value as old as three.
const STALE_ROUNDS: u32 = 3;

/// A world: two sites and the name server that steers between them.
pub(super) struct World {
    number: u8,
    sites: [Site; 2],
    serving: Serving,
    folder: PathBuf,
}

/// An HTTP server in a quota of its own.
struct Site {
    child: Killed,
    address: SocketAddr,
    /// Removed after the process has ended.
    quota: Quota,
}

/// The control process of a world.
pub(super) struct Control {
    child: Killed,
    log: PathBuf,
}

/// What can be seen of a world at some time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// What each site has used of a processor so far, in seconds.
    pub(super) used: [f64; 2],
    /// Each server's probability.
    pub(super) shares: [f64; 2],
}

impl World {
    /// Starts sites and name server; `folder` is for their files.
    ///
    /// # Errors
    /// Where one does not start.
    pub(super) fn start(folder: &Path, number: u8, pace: Pace) -> Result<World> {
        let folder = folder.join(format!("world{number}"));
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let site = |server: u8| Site::start(Ipv4Addr::new(127, NETWORK + number, 0, server), pace);
        let sites = [site(1)?, site(2)?];
        let write = |name: &str, text: String| fs::write(folder.join(name), text).context(name.to_owned());
        let servers = sites
            .each_ref()
            .map(|site| json!({"address": site.address.ip(), "default": {"ttl": pace.ttl()}}));
        write("www.json", json!({"names": [NAME], "servers": servers}).to_string())?;
        write("clients.csv", format!("127.0.0.0/8,{REGION}\n"))?;
        write("example.com.zone", serving::ZONE.to_owned())?;
        let lines = "zone = [\"example.com.zone\"]\npolicy = [\"www.json\"]\n\n[[partition]]\ncsv = \"clients.csv\"\n";
        let serving = serving::start(&folder, lines)?;
        Ok(World { number, sites, serving, folder })
    }

    /// Starts the control process with this algorithm: its first round is now.
    ///
    /// # Errors
    /// Where it does not start.
    pub(super) fn control(&self, algorithm: &str, pace: Pace) -> Result<Control> {
        let (config, log) = (self.folder.join("control.toml"), self.folder.join("control.log"));
        fs::write(&config, self.configuration(algorithm, pace)?).context("control.toml")?;
        let mut command = Command::new("setpriv");
        command.args(ENDS_WITH_US).arg(program()?).args(["control", "--config"]).arg(&config);
        Ok(Control { child: Killed(logged(&mut command, &log)?), log })
    }

    /// The configuration of the control process: loads come from the kernel's counts, as use over quota.
    fn configuration(&self, algorithm: &str, pace: Pace) -> Result<String> {
        let Counter { file, after, per_second } = self.sites[0].quota.counter();
        let own = self.sites[0].address.ip().to_string();
        let file = file.to_str().context("a plain path")?.replace(&own, "{address}");
        let quota = SHARE * per_second;
        let round = pace.round().as_millis();
        let mut text = format!(
            "version = \"v1\"\npolicy = \"{NAME}\"\napi = \"http://{}\"\nalgorithm = \"{algorithm}\"\nttl = \"{} s\"\n\
             interval = \"{round} ms\"\ntimeout = \"{round} ms\"\nstale = \"{} ms\"\n\n\
             [[source]]\nname = \"processor\"\nkind = \"command\"\ncommand = [\"cat\", \"{file}\"]\nper_second = true\n\
             threshold = {:.1}\nlow = {:.1}\nhigh = {:.1}\n",
            self.serving.api,
            pace.ttl(),
            round * u128::from(STALE_ROUNDS),
            SCALE.threshold * quota,
            SCALE.low * quota,
            SCALE.high * quota,
        );
        if !after.is_empty() {
            text += &format!("after = \"{after}\"\n");
        }
        for (rank, site) in self.sites.iter().enumerate() {
            text += &format!(
                "\n[[server]]\naddress = \"{}\"\nranks = {{ {REGION} = {} }}\n",
                site.address.ip(),
                rank + 1
            );
        }
        Ok(text)
    }

    /// Where its sites listen.
    pub(super) fn sites(&self) -> [SocketAddr; 2] {
        self.sites.each_ref().map(|site| site.address)
    }

    /// Where its name server answers.
    pub(super) fn dns(&self) -> SocketAddr {
        self.serving.dns()
    }

    /// The address of a cluster's resolver.
    pub(super) fn resolver(&self, cluster: usize) -> Ipv4Addr {
        Ipv4Addr::new(127, NETWORK + self.number, 1, cluster as u8 + 1)
    }

    /// What can be seen of it now.
    ///
    /// # Errors
    /// Where the kernel's counts cannot be read, or the name server does not tell its policy.
    pub(super) fn sample(&mut self) -> Result<Sample> {
        let [first, second] = self.sites.each_ref().map(|site| site.quota.counter().seconds());
        let used = [first?, second?];
        // A connection each, as the API ends one that is ten minutes old.
        let told =
            self.serving.client().done("GET", &format!("/v1/policies/{NAME}"), "").context("the API")?;
        let policy = Policy::read(NAME, &told.text()).map_err(|faults| anyhow!("the policy: {faults}"))?;
        let servers = self.sites.each_ref().map(|site| vec![site.address.ip().into()]);
        let columns = matrix::columns(&policy, &servers);
        let shares = matrix::shares(&policy, &columns, &[REGION.to_owned()]);
        // The default column comes first, then our region.
        Ok(Sample { used, shares: [shares[1][0], shares[1][1]] })
    }
}

impl Site {
    fn start(address: Ipv4Addr, pace: Pace) -> Result<Site> {
        let quota = Quota::new(&address.to_string(), SHARE, PERIOD)?;
        let requests = f64::from(REQUESTS.0 + REQUESTS.1) / 2.0 * CLUSTERS as f64;
        let work = pace.second().mul_f64(DEMAND * SCALE.threshold * SHARE / requests);
        let site = program()?.with_file_name("site");
        let mut command = Command::new(&site);
        command.arg(format!("{address}:0")).arg(work.as_micros().to_string());
        // Its end is that of its stdin.
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| site.display().to_string())?;
        let pipe = child.stdout.take().context("its stdout")?;
        let mut site = Site { child: Killed(child), address: (address, 0).into(), quota };
        let mut line = String::new();
        BufReader::new(pipe).read_line(&mut line).context("a site's address")?;
        site.address = line.trim().parse().with_context(|| format!("a site's address: {line:?}"))?;
        site.quota.take(site.child.0.id())?;
        Ok(site)
    }
}

impl Control {
    /// Checks that it still runs.
    ///
    /// # Errors
    /// Where it does not; with what it said.
    pub(super) fn runs(&mut self) -> Result<()> {
        if let Some(status) = self.child.0.try_wait().context("the control process")? {
            let said = fs::read_to_string(&self.log).unwrap_or_default();
            bail!("the control process ended with {status}; it said:\n{said}");
        }
        Ok(())
    }
}
