//! Which servers may be drawn.

use api::Target;

use crate::external::Asking;
use crate::health::{Health, SlotId};
use crate::rotation::Turns;

/// The servers that an operator has set down. All others are up, also those that no policy has named.
#[derive(Clone, Debug, Default)]
pub struct Down(Box<[Target]>);

/// What `route` asks while it decides: which servers may be drawn, whose turn it is, and what is known of clients that
/// the partition does not know.
#[derive(Clone, Copy, Debug)]
pub struct State<'a> {
    /// Ascending.
    down: &'a [Target],
    turns: Option<Turns<'a>>,
    health: Option<&'a Health>,
    asking: Option<Asking<'a>>,
}

impl Down {
    /// What `route` reads, of servers that nobody probes.
    #[inline]
    pub fn state(&self) -> State<'_> {
        State { down: &self.0, ..State::ALL_UP }
    }
}

impl FromIterator<Target> for Down {
    fn from_iter<I: IntoIterator<Item = Target>>(servers: I) -> Down {
        let mut down: Box<[Target]> = servers.into_iter().collect();
        down.sort_unstable();
        Down(down)
    }
}

impl<'a> State<'a> {
    /// All servers up, and nobody's turn.
    pub const ALL_UP: State<'static> = State { down: &[], turns: None, health: None, asking: None };

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
    pub fn is_up(&self, server: &Target) -> bool {
        self.down.binary_search(server).is_err()
    }

    /// Whether the probe of a slot fails.
    #[inline]
    pub fn is_failing(&self, slot: SlotId) -> bool {
        self.health.is_some_and(|health| health.is_failing(slot))
    }

    /// Whether any server at all is down or fails its probe: where none does, nobody need look.
    #[inline]
    pub fn any_out(&self) -> bool {
        !self.down.is_empty() || self.health.is_some_and(Health::any_failing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn exactly_those_that_were_set_down_are() {
        let target = |n: u8| match n {
            0..50 => IpAddr::from([192, 0, 2, n]).into(),
            50..80 => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(n)]).into(),
            _ => Target::Cname(format!("{n}.cdn.example.")),
        };
        for down in [&[][..], &[7], &[99, 70, 6, 70, 3]] {
            let servers: Down = down.iter().map(|n| target(*n)).collect();
            let state = servers.state();
            assert_eq!(state.any_out(), !down.is_empty());
            (0..100).for_each(|n| assert_eq!(state.is_up(&target(n)), !down.contains(&n), "{n} of {down:?}"));
        }
    }
}
