//! Probes as they are configured.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

/// The longest name of a probe, in octets: it stands in tables and metrics.
pub const NAME_MAX: usize = 63;

/// The shortest interval between two probes of one server: more often would be load, not measurement.
pub const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// The longest interval between two probes, and the longest timeout: who waits longer knows nothing.
pub const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// The most results in a row that a change of the verdict may take.
pub const STREAK_MAX: u32 = 100;

/// Of what stands for the server's address in the arguments of a command.
pub const PLACEHOLDER: &str = "{server}";

/// All probes by name.
pub type Probes = BTreeMap<String, Arc<Probe>>;

/// A way to find out whether a server can be used.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Its name, which policies give.
    pub name: String,
    /// What is done to a server, and what must come of it.
    pub check: Check,
    /// From one probe of a server to the next; each is up to a tenth earlier or later.
    pub interval: Duration,
    /// How long one may take.
    pub timeout: Duration,
    /// How many must pass in a row until a failing server passes.
    pub rise: u32,
    /// How many must fail in a row until a passing server fails.
    pub fall: u32,
}

/// What a probe does.
#[derive(Clone, Debug)]
pub enum Check {
    /// Connects to this port over TCP, and closes.
    Tcp(u16),
    /// Gets a page.
    Http(Http),
    /// Runs a program, without a shell: its path, and its arguments, in which [`PLACEHOLDER`] is the server's address.
    /// Exit code 0 passes.
    Command(Vec<String>),
}

/// A page to get.
#[derive(Clone, Debug)]
pub struct Http {
    /// The port.
    pub port: u16,
    /// What is asked for, from its slash on.
    pub path: String,
    /// The host that is asked for, and named in the certificate; the server's address where there is none.
    pub host: Option<String>,
    /// The status codes that pass.
    pub status: RangeInclusive<u16>,
    /// What TLS takes for valid, where it is HTTPS.
    pub tls: Option<Arc<ClientConfig>>,
}
