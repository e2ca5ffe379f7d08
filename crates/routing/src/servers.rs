//! The servers that policies resolve to, numbered, and which of them are up.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::external::Asking;
use crate::health::{Health, SlotId};
use crate::rotation::Turns;

/// A server's number in one generation's [`Servers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId(u32);

impl ServerId {
    /// The server with this number, which some [`Servers`] gave.
    pub const fn new(number: u32) -> ServerId {
        ServerId(number)
    }

    /// The number, from 0.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// All servers that any policy has named.
///
/// Numbers are given once and kept, so that a policy that was compiled earlier stays right.
#[derive(Clone, Debug, Default)]
pub struct Servers {
    addresses: Vec<IpAddr>,
    ids: HashMap<IpAddr, ServerId>,
    down: Vec<u64>,
    any_down: bool,
}

/// What `route` asks while it decides: which servers may be drawn, whose turn it is, and what is known of clients that
/// the partition does not know.
#[derive(Clone, Copy, Debug)]
pub struct State<'a> {
    down: &'a [u64],
    any_down: bool,
    turns: Option<Turns<'a>>,
    health: Option<&'a Health>,
    asking: Option<Asking<'a>>,
}

impl Servers {
    /// The number of an address that some policy has named.
    pub fn id(&self, address: IpAddr) -> Option<ServerId> {
        self.ids.get(&address).copied()
    }

    /// The address of a number; `None` where no server has it.
    pub fn address(&self, id: ServerId) -> Option<IpAddr> {
        self.addresses.get(id.0 as usize).copied()
    }

    /// The number of an address, given to it now where it has none. A new server is up.
    ///
    /// # Panics
    /// Beyond 2^32 servers.
    pub fn add(&mut self, address: IpAddr) -> ServerId {
        if let Some(id) = self.id(address) {
            return id;
        }
        let id = ServerId(u32::try_from(self.addresses.len()).expect("servers are numbered in 32 bits"));
        self.addresses.push(address);
        self.ids.insert(address, id);
        self.down.resize(self.addresses.len().div_ceil(64), 0);
        id
    }

    /// How many servers were named.
    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Sets exactly these servers down and all others up; addresses that no policy has named are passed over.
    pub fn set_down(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.down.fill(0);
        for id in addresses.into_iter().filter_map(|address| self.ids.get(&address)) {
            self.down[id.0 as usize / 64] |= 1 << (id.0 % 64);
        }
        self.any_down = self.down.iter().any(|word| *word != 0);
    }

    /// What `route` reads, of servers that nobody probes.
    #[inline]
    pub fn state(&self) -> State<'_> {
        State { down: &self.down, any_down: self.any_down, turns: None, health: None, asking: None }
    }
}

impl<'a> State<'a> {
    /// All servers up, and nobody's turn.
    pub const ALL_UP: State<'static> =
        State { down: &[], any_down: false, turns: None, health: None, asking: None };

    /// The same with the turns of the asked name, where policies rotate; without, a rotation begins anywhere.
    #[inline]
    pub fn with_turns(self, turns: Option<Turns<'a>>) -> State<'a> {
        State { turns, ..self }
    }

    /// The same with an external proximity service; without, it has told nothing.
    #[inline]
    pub fn with_asking(self, asking: Option<Asking<'a>>) -> State<'a> {
        State { asking, ..self }
    }

    /// An external proximity service.
    #[inline]
    pub(crate) fn asking(&self) -> Option<Asking<'a>> {
        self.asking
    }

    /// The turns of the asked name.
    #[inline]
    pub(crate) fn turns(&self) -> Option<Turns<'a>> {
        self.turns
    }

    /// The same, with what probes say.
    #[inline]
    pub fn with_health(self, health: &'a Health) -> State<'a> {
        State { health: Some(health), ..self }
    }

    /// The same, whatever probes say.
    #[inline]
    pub fn without_health(self) -> State<'a> {
        State { health: None, ..self }
    }

    /// Whether a server is up: whether nobody has set it down.
    #[inline]
    pub fn is_up(&self, server: ServerId) -> bool {
        let word = self.down.get(server.0 as usize / 64).copied().unwrap_or(0);
        word >> (server.0 % 64) & 1 == 0
    }

    /// Whether the probe of a slot fails.
    #[inline]
    pub fn is_failing(&self, slot: SlotId) -> bool {
        self.health.is_some_and(|health| health.is_failing(slot))
    }

    /// Whether any server at all is down or fails its probe: where none does, nobody need look.
    #[inline]
    pub fn any_out(&self) -> bool {
        self.any_down || self.health.is_some_and(Health::any_failing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_and_states_replaced() {
        let address = |n: u8| IpAddr::from([192, 0, 2, n]);
        let mut servers = Servers::default();
        let ids: Vec<ServerId> = (0..100).map(|n| servers.add(address(n))).collect();
        assert_eq!(servers.add(address(70)), ids[70]);
        assert_eq!(servers.address(ServerId::new(ids[70].get())), Some(address(70)));
        assert_eq!(servers.address(ServerId::new(100)), None);
        servers.set_down([address(70), address(200)]);
        assert!(
            servers.state().any_out() && !servers.state().is_up(ids[70]) && servers.state().is_up(ids[6])
        );
        servers.set_down([]);
        assert!(!servers.state().any_out() && servers.state().is_up(ids[70]));
    }
}
