//! A generation: everything that decides an answer, as one immutable value.

use std::net::IpAddr;
use std::sync::Arc;

use dns::Folded;
use dns::edns::UDP_PAYLOAD;
use routing::{Down, State};

use crate::cookies::Secrets;
use crate::health::Table;
use crate::names::NameHash;
use crate::policies::Policies;
use crate::signing::Signed;
use crate::transfer::PrimaryZones;
use crate::zone::{Served, View};

/// The longest identifier of a server, in octets: beside it, any question and its cookie fit the smallest answer.
pub const NSID_MAX: usize = 64;

/// A published snapshot. A change makes the next one, which shares all that the change did not touch.
#[derive(Clone)]
pub struct Generation {
    /// Its number; each published change adds one.
    pub number: u64,
    /// How names are hashed in every table of this process.
    pub hash: NameHash,
    /// The zones, of which the closest one answers for a name: all of them, or those of the view that is asked.
    pub zones: Served,
    /// The policies, which names of the zones refer to.
    pub policies: Policies,
    /// The signatures of what policies answer in signed zones.
    pub signed: Signed,
    /// The servers that operators have set down.
    pub down: Arc<Down>,
    /// What probes hold of servers: fast state, the same table in all generations.
    pub health: Arc<Table>,
    /// The zones that primaries give, also those that have not come yet.
    pub primary_zones: Arc<PrimaryZones>,
    /// What cookies are made and checked with; without any there are no cookies.
    pub secrets: Arc<Secrets>,
    /// What the operator chose for all answers.
    pub settings: Settings,
}

/// What the operator chose for all answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Leave the zone's NS set out of the AUTHORITY of positive answers.
    pub minimal_responses: bool,
    /// The largest UDP payload that is sent and announced, in octets.
    pub udp_payload_max: u16,
    /// Ask clients with cookies for a valid one before they are answered over UDP.
    pub require_cookies: bool,
    /// What this server is called among others that answer alike (NSID, `id.server`); at most [`NSID_MAX`] octets.
    pub nsid: Option<Arc<str>>,
    /// Keep the program's version to itself.
    pub hide_version: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            minimal_responses: true,
            udp_payload_max: UDP_PAYLOAD,
            require_cookies: false,
            nsid: None,
            hide_version: false,
        }
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
            zones: Served::default(),
            policies: Policies::default(),
            signed: Signed::new(0),
            down: Arc::default(),
            health: Arc::default(),
            primary_zones: Arc::default(),
            secrets: Arc::default(),
            settings,
        }
    }

    /// Answers by these views from now on.
    pub fn choose_views(&mut self, views: Arc<[View]>) {
        self.zones.choose(views, &self.hash);
    }

    /// Whether a name that is in no zone at this address of ours is in one that is to come from a primary.
    pub fn awaits(&self, name: &Folded, local: IpAddr) -> bool {
        self.primary_zones.above(name).any(|origin| self.zones.is_for(origin, local))
    }

    /// Which servers may be drawn: by what operators set, and by what probes found just now.
    #[inline]
    pub fn state(&self) -> State<'_> {
        self.down.state().with_health(self.health.health())
    }
}
