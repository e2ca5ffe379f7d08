//! A generation: everything that decides an answer, as one immutable value.

use std::sync::Arc;

use routing::Servers;

use crate::names::NameHash;
use crate::policies::Policies;
use crate::zone::Zones;

/// The largest UDP payload that is sent or announced by default, in octets: it crosses any network
/// unfragmented (RFC 9715 §3.2).
pub const UDP_PAYLOAD: u16 = 1232;

/// A published snapshot. A change makes the next one, which shares all that the change did not touch.
#[derive(Clone)]
pub struct Generation {
    /// Its number; each published change adds one.
    pub number: u64,
    /// How names are hashed in every table of this process.
    pub hash: NameHash,
    /// The zones.
    pub zones: Zones,
    /// The policies, which names of the zones refer to.
    pub policies: Policies,
    /// The servers of all policies, and which of them are down.
    pub servers: Arc<Servers>,
    /// What the operator chose for all answers.
    pub settings: Settings,
}

/// What the operator chose for all answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Leave the zone's NS set out of the AUTHORITY of positive answers.
    pub minimal_responses: bool,
    /// The largest UDP payload that is sent and announced, in octets.
    pub udp_payload_max: u16,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { minimal_responses: true, udp_payload_max: UDP_PAYLOAD }
    }
}

impl Generation {
    /// Generation 0: no zones; everything is refused.
    ///
    /// `seed` is drawn once a process; see [`NameHash`].
    pub fn empty(seed: u64, settings: Settings) -> Generation {
        Generation {
            number: 0,
            hash: NameHash::new(seed),
            zones: Zones::new(),
            policies: Policies::default(),
            servers: Arc::default(),
            settings,
        }
    }
}
