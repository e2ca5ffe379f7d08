//! Clients: which sockets they have, how much they ask, and whom.

use std::net::SocketAddr;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};

use super::carrier::Carrier;
use super::tls::Session;
use crate::schedule::draw::{self, For};
use crate::tables::{TABLES, Tables};

/// Clients that a thread remembers, 48 octets each: 1.2 million ask a root server in an hour. Those beyond have no
/// sockets of their own that last, and count as quiet.
const CLIENTS_MAX: usize = 1 << 22;

/// Clients whose sessions a thread remembers, some kilobytes each: the certificates are part of them. Those beyond
/// begin anew each time, which is counted as a full handshake.
const SESSIONS_MAX: usize = 1 << 16;

/// Queries in a minute from which a client counts as busy.
const BUSY: u32 = 10;

/// Nanoseconds of a minute.
const MINUTE: u64 = 60_000_000_000;

/// The clients of a thread, as far as they are remembered.
#[derive(Debug)]
pub(super) struct Clients {
    table: Tables<u64, Client>,
    sessions: HashMap<u64, Arc<Session>>,
}

#[derive(Debug, Default)]
struct Client {
    /// The slots of its sockets: of datagrams, of its connection.
    slots: [Option<usize>; 2],
    minute: u64,
    asked: u32,
}

impl Clients {
    /// None yet.
    pub(super) fn new() -> Clients {
        Clients { table: Tables::new(), sessions: HashMap::new() }
    }

    /// How many are remembered.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether a client has asked little in this minute; counts one query more.
    pub(super) fn is_quiet(&mut self, client: u64, now: u64) -> bool {
        let table = self.table.of_mut(&client);
        if table.len() >= CLIENTS_MAX / TABLES && !table.contains_key(&client) {
            return true;
        }
        let client = table.entry(client).or_default();
        if client.minute != now / MINUTE {
            (client.minute, client.asked) = (now / MINUTE, 0);
        }
        client.asked += 1;
        client.asked < BUSY
    }

    /// The slot of a client's socket for a carrier.
    pub(super) fn slot(&self, client: u64, carrier: Carrier) -> Option<usize> {
        self.table.of(&client).get(&client)?.slots[usize::from(carrier != Carrier::Udp)]
    }

    /// Keeps the slot of a client's socket, or that there is none.
    pub(super) fn keep_slot(&mut self, client: u64, carrier: Carrier, slot: Option<usize>) {
        if let Some(client) = self.table.of_mut(&client).get_mut(&client) {
            client.slots[usize::from(carrier != Carrier::Udp)] = slot;
        }
    }

    /// What a client remembers of its sessions, if it does.
    pub(super) fn session(&mut self, client: u64) -> Option<Arc<Session>> {
        if self.sessions.len() >= SESSIONS_MAX && !self.sessions.contains_key(&client) {
            return None;
        }
        Some(Arc::clone(self.sessions.entry(client).or_default()))
    }
}

/// Whom a client asks.
pub(super) fn server(servers: &[SocketAddr], client: u64, seed: u64) -> SocketAddr {
    let draw = if servers.len() == 1 { 0 } else { draw::draw(seed, For::Server, client) };
    servers[(draw % servers.len() as u64) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_quiet_until_it_asks_much_in_a_minute() {
        let mut clients = Clients::new();
        let quiet = (0..12).filter(|_| clients.is_quiet(1, 5)).count();
        assert_eq!((quiet, clients.len()), (9, 1));
        assert!(clients.is_quiet(1, MINUTE));
    }
}
