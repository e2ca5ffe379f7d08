//! Datagrams that go to the kernel together.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};

use net::client::Outgoing;

use super::pending::Key;

/// Which socket a batch goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The shared one of a family: 0 for IPv4, 1 for IPv6.
    Shared(usize),
    /// That of a device, for frames, by its place.
    Device(usize),
    /// A client's own, by its slot.
    Slot(usize),
}

/// The way of a query as a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram {
    pub(super) target: Target,
    pub(super) key: Key,
    /// Server and source address, at a shared socket and a device's.
    pub(super) way: Option<(SocketAddr, IpAddr)>,
    /// When it is to be handed to the kernel, in nanoseconds from the beginning.
    pub(super) due: u64,
}

/// The batch under way.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) target: Target,
    pub(super) outgoing: Outgoing,
    /// Its queries in their order: keys and due times.
    pub(super) queries: VecDeque<(Key, u64)>,
}

impl Batch {
    /// An empty one; `merges` says that neighbours of one length go as one message, all targets being clients' own.
    pub(super) fn new(merges: bool) -> io::Result<Batch> {
        let outgoing = if merges { Outgoing::merging_in_order()? } else { Outgoing::new() };
        Ok(Batch { target: Target::Shared(0), outgoing, queries: VecDeque::new() })
    }

    /// Whether a datagram for a target can join without another going first.
    pub(super) fn takes(&self, target: Target) -> bool {
        self.outgoing.is_empty() || (self.target == target && !self.outgoing.is_full())
    }

    /// Whether a query is in it.
    pub(super) fn holds(&self, key: Key) -> bool {
        self.queries.iter().any(|(held, _)| *held == key)
    }

    /// Adds a datagram that it takes; returns its octets, which may still be changed.
    pub(super) fn push(&mut self, datagram: Datagram, octets: &[u8]) -> &mut [u8] {
        self.target = datagram.target;
        let (server, source) = datagram.way.unzip();
        self.queries.push_back((datagram.key, datagram.due));
        self.outgoing.push(octets, server, source)
    }
}

/// Gives a message its id.
pub(super) fn set_id(octets: &mut [u8], id: u16) {
    if let Some(place) = octets.first_chunk_mut() {
        *place = id.to_be_bytes();
    }
}
