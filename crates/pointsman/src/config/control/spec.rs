//! The control process's configuration as it was given: every value with its place.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use api::Target;

use crate::config::spec::{Place, Placed, Present, Version};

/// What stands above all headings, and under them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ControlSpec {
    pub(crate) version: Option<Placed<Version>>,
    pub(crate) policy: Option<Placed<String>>,
    pub(crate) api: Option<Placed<String>>,
    pub(crate) token_file: Option<Placed<PathBuf>>,
    pub(crate) algorithm: Option<Placed<&'static str>>,
    pub(crate) interval: Option<Placed<Duration>>,
    pub(crate) timeout: Option<Placed<Duration>>,
    pub(crate) stale: Option<Placed<Duration>>,
    pub(crate) ttl: Option<Placed<Duration>>,
    pub(crate) favour: Option<Placed<f64>>,
    pub(crate) fill: Option<Placed<f64>>,
    pub(crate) step: Option<Placed<f64>>,
    pub(crate) hysteresis: Option<Placed<f64>>,
    pub(crate) listen: Option<Placed<SocketAddr>>,
    pub(crate) report_token_file: Option<Placed<PathBuf>>,
    pub(crate) log: Option<Placed<&'static str>>,
    pub(crate) source: Vec<SourceSpec>,
    pub(crate) server: Vec<ServerSpec>,
}

/// A source of loads.
#[derive(Clone, Debug)]
pub(crate) struct SourceSpec {
    /// Where the source as a whole was given.
    pub(crate) place: Place,
    pub(crate) given: Present,
    pub(crate) name: Option<Placed<String>>,
    pub(crate) kind: Option<Placed<&'static str>>,
    pub(crate) url: Option<Placed<String>>,
    pub(crate) pointer: Option<Placed<String>>,
    pub(crate) metric: Option<Placed<String>>,
    pub(crate) command: Vec<Placed<String>>,
    pub(crate) after: Option<Placed<String>>,
    pub(crate) per_second: Option<Placed<bool>>,
    pub(crate) threshold: Option<Placed<f64>>,
    pub(crate) low: Option<Placed<f64>>,
    pub(crate) high: Option<Placed<f64>>,
    pub(crate) weight: Option<Placed<f64>>,
}

/// A server.
#[derive(Clone, Debug)]
pub(crate) struct ServerSpec {
    /// Where the server as a whole was given.
    pub(crate) place: Place,
    pub(crate) given: Present,
    pub(crate) address: Option<Placed<Target>>,
    pub(crate) also: Vec<Placed<IpAddr>>,
    pub(crate) capacity: Option<Placed<f64>>,
    pub(crate) ranks: Vec<Placed<(String, u32)>>,
}

impl SourceSpec {
    /// A source of which nothing is known yet.
    pub(crate) fn at(place: Place, given: Present) -> SourceSpec {
        SourceSpec {
            place,
            given,
            name: None,
            kind: None,
            url: None,
            pointer: None,
            metric: None,
            command: Vec::new(),
            after: None,
            per_second: None,
            threshold: None,
            low: None,
            high: None,
            weight: None,
        }
    }
}

impl ServerSpec {
    /// A server of which nothing is known yet.
    pub(crate) fn at(place: Place, given: Present) -> ServerSpec {
        ServerSpec { place, given, address: None, also: Vec::new(), capacity: None, ranks: Vec::new() }
    }
}
