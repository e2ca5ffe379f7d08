//! The configuration as it was given: every value with the place that it came from.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::Fault;
use dns::Folded;
use nameserver::as_path;
use routing::Prefix;
use rustls::pki_types::ServerName;

/// Where a value was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the table of keys.
    Default,
    /// In the configuration file; line and column in bytes, counted from 1.
    File {
        /// The file's path.
        path: Arc<str>,
        /// The line.
        line: u32,
        /// The column.
        column: u32,
    },
    /// On the command line, by this flag.
    Flag(&'static str),
}

impl Place {
    /// A fault here.
    pub(crate) fn fault(&self, what: impl Into<String>, expected: impl Into<String>) -> Fault {
        match self {
            Place::Default => Fault::whole("the defaults", what, expected),
            Place::File { path, line, column } => Fault::at(&**path, *line, *column, what, expected),
            Place::Flag(flag) => Fault::whole(format!("--{flag}"), what, expected),
        }
    }
}

/// A value and where it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed<T> {
    /// The value.
    pub(crate) value: T,
    /// Where it was given.
    pub(crate) place: Place,
}

/// Takes a path of the file as relative to the file, and any other as relative to where we are.
pub(super) fn resolve(path: &Placed<PathBuf>) -> PathBuf {
    match &path.place {
        Place::File { path: file, .. } => {
            Path::new(&**file).parent().unwrap_or(Path::new("")).join(&path.value)
        }
        Place::Default | Place::Flag(_) => path.value.clone(),
    }
}

/// The form of the file that is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version;

/// Everything that can be configured, one field for each key.
///
/// What has a default is absent only where the given value was wrong, which is a fault of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spec {
    pub(crate) version: Option<Placed<Version>>,
    pub(crate) listen: Vec<Placed<SocketAddr>>,
    pub(crate) tls_listen: Vec<Placed<SocketAddr>>,
    pub(crate) tls_certificate: Option<Placed<PathBuf>>,
    pub(crate) tls_key: Option<Placed<PathBuf>>,
    pub(crate) api: Option<Placed<SocketAddr>>,
    pub(crate) token_file: Option<Placed<PathBuf>>,
    pub(crate) store: Option<Placed<String>>,
    pub(crate) user: Option<Placed<String>>,
    pub(crate) workers: Option<Placed<u64>>,
    pub(crate) xdp: Vec<Placed<String>>,
    pub(crate) zone: Vec<Placed<PathBuf>>,
    pub(crate) policy: Vec<Placed<PathBuf>>,
    pub(crate) partition: Vec<PartitionSpec>,
    pub(crate) tsig_keys: Vec<Placed<PathBuf>>,
    pub(crate) signing_keys: Vec<Placed<PathBuf>>,
    pub(crate) secondary: Vec<SecondarySpec>,
    pub(crate) primary: Vec<PrimarySpec>,
    pub(crate) updater: Vec<UpdaterSpec>,
    pub(crate) view: Vec<ViewSpec>,
    pub(crate) probe: Vec<ProbeSpec>,
    pub(crate) minimal_responses: Option<Placed<bool>>,
    pub(crate) udp_payload_max: Option<Placed<u64>>,
    pub(crate) cookies: Option<Placed<&'static str>>,
    pub(crate) cookie_secrets: Option<Placed<PathBuf>>,
    pub(crate) nsid: Option<Placed<String>>,
    pub(crate) hide_version: Option<Placed<bool>>,
    pub(crate) seed: Option<Placed<u64>>,
    pub(crate) log: Option<Placed<&'static str>>,
    pub(crate) log_level: Option<Placed<&'static str>>,
    pub(crate) connections_max: Option<Placed<u64>>,
    pub(crate) per_client_max: Option<Placed<u64>>,
    pub(crate) idle: Option<Placed<Duration>>,
    pub(crate) idle_when_crowded: Option<Placed<Duration>>,
    pub(crate) message: Option<Placed<Duration>>,
    pub(crate) lifetime: Option<Placed<Duration>>,
    pub(crate) responses_per_second: Option<Placed<u64>>,
    pub(crate) window: Option<Placed<Duration>>,
    pub(crate) slip: Option<Placed<u64>>,
    pub(crate) ipv4_prefix_bits: Option<Placed<u64>>,
    pub(crate) ipv6_prefix_bits: Option<Placed<u64>>,
    pub(crate) dnstap: DnstapSpec,
    pub(crate) external_service: Option<Placed<SocketAddr>>,
    pub(crate) external_ttl: Option<Placed<Duration>>,
    pub(crate) external_life: Option<Placed<Duration>>,
    pub(crate) external_known: Option<Placed<u64>>,
    pub(crate) external_waiting: Option<Placed<u64>>,
    pub(crate) external_interval: Option<Placed<Duration>>,
    pub(crate) external_timeout: Option<Placed<Duration>>,
    pub(crate) reverse: ReverseSpec,
    pub(crate) balance: BalanceSpec,
}

/// Who is told of queries and answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct DnstapSpec {
    pub(crate) socket: Option<Placed<PathBuf>>,
    pub(crate) file: Option<Placed<PathBuf>>,
    pub(crate) file_max: Option<Placed<u64>>,
    pub(crate) sample: Option<Placed<u64>>,
    pub(crate) messages: Vec<Placed<&'static str>>,
    pub(crate) identity: Option<Placed<String>>,
}

/// What `reverse` was given, one field for each key of its section.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReverseSpec {
    pub(crate) upstream: Vec<Placed<SocketAddr>>,
    pub(crate) dns: Vec<Placed<(SocketAddr, Option<Duration>)>>,
    pub(crate) resp: Vec<Placed<SocketAddr>>,
    pub(crate) rapid: Vec<Placed<SocketAddr>>,
    pub(crate) http: Vec<Placed<SocketAddr>>,
    pub(crate) client_header: Option<Placed<String>>,
    pub(crate) believe: Vec<Placed<Prefix>>,
    pub(crate) not_yet: Option<Placed<&'static str>>,
    pub(crate) mmdb: Option<Placed<PathBuf>>,
    pub(crate) mmdb_interval: Option<Placed<Duration>>,
    pub(crate) mmdb_size: Option<Placed<u64>>,
    pub(crate) wait: Option<Placed<Duration>>,
    pub(crate) workers: Option<Placed<u64>>,
    pub(crate) allow: Vec<Placed<Prefix>>,
    pub(crate) interval: Option<Placed<Duration>>,
    pub(crate) burst: Option<Placed<u64>>,
    pub(crate) stack: Option<Placed<u64>>,
    pub(crate) per_client: Option<Placed<u64>>,
    pub(crate) timeout: Option<Placed<Duration>>,
    pub(crate) tries: Option<Placed<u64>>,
    pub(crate) ttl: Option<Placed<String>>,
    pub(crate) no_negative: Option<Placed<bool>>,
    pub(crate) confirm: Option<Placed<bool>>,
    pub(crate) crawlers: Option<Placed<PathBuf>>,
    pub(crate) no_prefixes: Option<Placed<bool>>,
    pub(crate) no_ahead: Option<Placed<bool>>,
    pub(crate) sample: Option<Placed<u64>>,
    pub(crate) stale: Option<Placed<Duration>>,
    pub(crate) memory: Option<Placed<u64>>,
    pub(crate) snapshot: Option<Placed<PathBuf>>,
    pub(crate) snapshot_interval: Option<Placed<Duration>>,
    pub(crate) paper: Option<Placed<bool>>,
    pub(crate) user: Option<Placed<String>>,
    pub(crate) log: Option<Placed<&'static str>>,
}

/// What `balance` was given, one field for each key of its section.
#[derive(Clone, Debug, Default)]
pub(crate) struct BalanceSpec {
    pub(crate) listen: Vec<Placed<SocketAddr>>,
    pub(crate) allow: Vec<Placed<Prefix>>,
    pub(crate) backend: Vec<Placed<BackEndSpec>>,
    pub(crate) policy: Option<Placed<&'static str>>,
    pub(crate) timeout: Option<Placed<Duration>>,
    pub(crate) tries: Option<Placed<u64>>,
    pub(crate) sockets: Option<Placed<u64>>,
    pub(crate) workers: Option<Placed<u64>>,
    pub(crate) outstanding_max: Option<Placed<u64>>,
    pub(crate) per_client_max: Option<Placed<u64>>,
    pub(crate) tcp: Option<Placed<&'static str>>,
    pub(crate) tls_listen: Vec<Placed<SocketAddr>>,
    pub(crate) https_listen: Vec<Placed<SocketAddr>>,
    pub(crate) quic_listen: Vec<Placed<SocketAddr>>,
    pub(crate) tls_certificate: Option<Placed<PathBuf>>,
    pub(crate) tls_key: Option<Placed<PathBuf>>,
    pub(crate) designate: Option<Placed<String>>,
    pub(crate) authorities: Option<Placed<PathBuf>>,
    pub(crate) client_address: Option<Placed<&'static str>>,
    pub(crate) subnet_v4: Option<Placed<u64>>,
    pub(crate) subnet_v6: Option<Placed<u64>>,
    pub(crate) cache: Option<Placed<u64>>,
    pub(crate) cache_ttl_max: Option<Placed<Duration>>,
    pub(crate) cache_stale: Option<Placed<Duration>>,
    pub(crate) cache_failures: Option<Placed<Duration>>,
    pub(crate) probe: Option<Placed<String>>,
    pub(crate) probe_interval: Option<Placed<Duration>>,
    pub(crate) slow_start: Option<Placed<Duration>>,
    pub(crate) credit: Option<Placed<SocketAddr>>,
    pub(crate) key: Option<Placed<PathBuf>>,
    pub(crate) http: Option<Placed<SocketAddr>>,
    pub(crate) token_file: Option<Placed<PathBuf>>,
    pub(crate) user: Option<Placed<String>>,
    pub(crate) log: Option<Placed<&'static str>>,
    pub(crate) pool: Vec<PoolSpec>,
    pub(crate) rule: Vec<RuleSpec>,
    pub(crate) dnstap: DnstapSpec,
}

/// A back end of a balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BackEndSpec {
    pub(crate) address: SocketAddr,
    /// The name that its certificate is for, where it is asked over TLS.
    pub(crate) tls: Option<ServerName<'static>>,
    pub(crate) weight: u32,
}

/// Further back ends of a balancer.
#[derive(Clone, Debug)]
pub(crate) struct PoolSpec {
    /// Where the pool as a whole was given.
    pub(crate) place: Place,
    pub(crate) given: Present,
    pub(crate) name: Option<Placed<String>>,
    pub(crate) backend: Vec<Placed<BackEndSpec>>,
}

impl PoolSpec {
    /// A pool of which nothing is known yet.
    pub(crate) fn at(place: Place, given: Present) -> PoolSpec {
        PoolSpec { place, given, name: None, backend: Vec::new() }
    }
}

/// Which queries a pool takes, or what they have for an answer.
#[derive(Clone, Debug)]
pub(crate) struct RuleSpec {
    /// Where the rule as a whole was given.
    pub(crate) place: Place,
    pub(crate) given: Present,
    pub(crate) name: Option<Placed<String>>,
    pub(crate) names: Vec<Placed<Folded>>,
    pub(crate) names_files: Vec<Placed<PathBuf>>,
    pub(crate) types: Vec<Placed<String>>,
    pub(crate) clients: Vec<Placed<Prefix>>,
    pub(crate) per_second: Option<Placed<u64>>,
    pub(crate) pool: Option<Placed<String>>,
    pub(crate) answer: Option<Placed<&'static str>>,
    pub(crate) addresses: Vec<Placed<IpAddr>>,
}

impl RuleSpec {
    /// A rule of which nothing is known yet.
    pub(crate) fn at(place: Place, given: Present) -> RuleSpec {
        RuleSpec {
            place,
            given,
            name: None,
            names: Vec::new(),
            names_files: Vec::new(),
            types: Vec::new(),
            clients: Vec::new(),
            per_second: None,
            pool: None,
            answer: None,
            addresses: Vec::new(),
        }
    }
}

/// One secondary, or several alike.
#[derive(Clone, Debug)]
pub(crate) struct SecondarySpec {
    /// Where the secondary as a whole was given.
    pub(crate) place: Place,
    pub(crate) zones: Vec<Placed<Folded>>,
    pub(crate) catalog: Option<Placed<String>>,
    pub(crate) from: Vec<Placed<Prefix>>,
    pub(crate) key: Option<Placed<String>>,
    pub(crate) notify: Vec<Placed<SocketAddr>>,
}

impl SecondarySpec {
    /// A secondary of which nothing is known yet.
    pub(crate) fn at(place: Place) -> SecondarySpec {
        SecondarySpec {
            place,
            zones: Vec::new(),
            catalog: None,
            from: Vec::new(),
            key: None,
            notify: Vec::new(),
        }
    }
}

/// One primary, at one address or several.
#[derive(Clone, Debug)]
pub(crate) struct PrimarySpec {
    /// Where the primary as a whole was given.
    pub(crate) place: Place,
    pub(crate) given: Present,
    pub(crate) zones: Vec<Placed<Folded>>,
    pub(crate) catalogs: Vec<Placed<Folded>>,
    pub(crate) addresses: Vec<Placed<SocketAddr>>,
    pub(crate) key: Option<Placed<String>>,
    pub(crate) tls: Option<Placed<String>>,
    pub(crate) authorities: Option<Placed<PathBuf>>,
}

impl PrimarySpec {
    /// A primary of which nothing is known yet.
    pub(crate) fn at(place: Place, given: Present) -> PrimarySpec {
        PrimarySpec {
            place,
            given,
            zones: Vec::new(),
            catalogs: Vec::new(),
            addresses: Vec::new(),
            key: None,
            tls: None,
            authorities: None,
        }
    }
}

/// One who changes zones by updates, or several with one key.
#[derive(Clone, Debug)]
pub(crate) struct UpdaterSpec {
    /// Where the updater as a whole was given.
    pub(crate) place: Place,
    pub(crate) given: Present,
    pub(crate) key: Option<Placed<String>>,
    pub(crate) zones: Vec<Placed<Folded>>,
    pub(crate) names: Vec<Placed<Folded>>,
    pub(crate) types: Vec<Placed<String>>,
    pub(crate) from: Vec<Placed<Prefix>>,
}

impl UpdaterSpec {
    /// An updater of which nothing is known yet.
    pub(crate) fn at(place: Place, given: Present) -> UpdaterSpec {
        UpdaterSpec {
            place,
            given,
            key: None,
            zones: Vec::new(),
            names: Vec::new(),
            types: Vec::new(),
            from: Vec::new(),
        }
    }
}

/// Some of our addresses, and the zones that are answered from there.
#[derive(Clone, Debug)]
pub(crate) struct ViewSpec {
    /// Where the view as a whole was given.
    pub(crate) place: Place,
    pub(crate) given: Present,
    pub(crate) addresses: Vec<Placed<IpAddr>>,
    pub(crate) zones: Vec<Placed<Folded>>,
}

impl ViewSpec {
    /// A view of which nothing is known yet.
    pub(crate) fn at(place: Place, given: Present) -> ViewSpec {
        ViewSpec { place, given, addresses: Vec::new(), zones: Vec::new() }
    }
}

/// The keys that were given under a heading, those of wrong values too: what was told to be wrong is not missing as well.
#[derive(Clone, Debug, Default)]
pub(crate) struct Present(pub(super) BTreeSet<String>);

impl Present {
    /// Whether a key was not given at all.
    pub(crate) fn lacks(&self, key: &str) -> bool {
        !self.0.contains(key)
    }
}

/// One way to probe servers.
#[derive(Clone, Debug)]
pub(crate) struct ProbeSpec {
    /// Where the probe as a whole was given.
    pub(crate) place: Place,
    pub(crate) given: Present,
    pub(crate) name: Option<Placed<String>>,
    pub(crate) check: Option<Placed<&'static str>>,
    pub(crate) port: Option<Placed<u64>>,
    pub(crate) path: Option<Placed<String>>,
    pub(crate) host: Option<Placed<String>>,
    pub(crate) status: Option<Placed<String>>,
    pub(crate) certificate: Option<Placed<&'static str>>,
    pub(crate) authorities: Option<Placed<PathBuf>>,
    pub(crate) command: Vec<Placed<String>>,
    pub(crate) interval: Option<Placed<Duration>>,
    pub(crate) timeout: Option<Placed<Duration>>,
    pub(crate) rise: Option<Placed<u64>>,
    pub(crate) fall: Option<Placed<u64>>,
}

impl ProbeSpec {
    /// A probe of which nothing is known yet.
    pub(crate) fn at(place: Place, given: Present) -> ProbeSpec {
        ProbeSpec {
            place,
            given,
            name: None,
            check: None,
            port: None,
            path: None,
            host: None,
            status: None,
            certificate: None,
            authorities: None,
            command: Vec::new(),
            interval: None,
            timeout: None,
            rise: None,
            fall: None,
        }
    }
}

/// One partition to import.
#[derive(Clone, Debug)]
pub(crate) struct PartitionSpec {
    /// Where the partition as a whole was given.
    pub(crate) place: Place,
    pub(crate) name: Option<Placed<String>>,
    pub(crate) csv: Option<Placed<PathBuf>>,
    pub(crate) mmdb: Option<Placed<PathBuf>>,
    pub(crate) regions: Option<Placed<PathBuf>>,
    pub(crate) field: Option<Placed<&'static str>>,
    pub(crate) mrt: Option<Placed<PathBuf>>,
    pub(crate) servers: Vec<Placed<as_path::Server>>,
    pub(crate) relations: Option<Placed<PathBuf>>,
    pub(crate) ask: Option<Placed<bool>>,
}

impl PartitionSpec {
    /// A partition of which nothing is known yet.
    pub(crate) fn at(place: Place) -> PartitionSpec {
        PartitionSpec {
            place,
            name: None,
            csv: None,
            mmdb: None,
            regions: None,
            field: None,
            mrt: None,
            servers: Vec::new(),
            relations: None,
            ask: None,
        }
    }
}
