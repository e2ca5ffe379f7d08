//! Datagrams that go to the kernel together.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use net::client::Outgoing;

use super::pending::Key;

/// Which socket a batch goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The shared one of a family: 0 for IPv4, 1 for IPv6.
    Shared(usize),
    /// A client's own, by its slot.
    Slot(usize),
}

/// A query as a datagram.
#[derive(Debug)]
pub(super) struct Datagram {
    pub(super) target: Target,
    pub(super) key: Key,
    pub(super) octets: Vec<u8>,
    /// Server and source address, at a shared socket.
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
    /// An empty one.
    pub(super) fn new() -> Batch {
        Batch { target: Target::Shared(0), outgoing: Outgoing::new(), queries: VecDeque::new() }
    }

    /// Whether a datagram for a target can join without another going first.
    pub(super) fn takes(&self, target: Target) -> bool {
        self.outgoing.is_empty() || (self.target == target && !self.outgoing.is_full())
    }

    /// Adds a datagram that it takes.
    pub(super) fn push(&mut self, datagram: &Datagram) {
        self.target = datagram.target;
        let (server, source) = datagram.way.unzip();
        self.outgoing.push(&datagram.octets, server, source);
        self.queries.push_back((datagram.key, datagram.due));
    }
}
