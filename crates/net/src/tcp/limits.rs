//! What a TCP client may hold, and for how long.

use crate::admission::Admission;
use std::time::Duration;

/// Bounds what connections may take.
///
/// Durations above a year count as a year.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections open at a time over all listeners that share an [`Admission`]; for one more,
    /// another gives way, or it is closed at once. Each needs a file descriptor, and so do those that give way
    /// ([`GIVING_WAY_MAX`](crate::admission::GIVING_WAY_MAX)), so stay below `RLIMIT_NOFILE`. Default 800, which
    /// leaves room under the usual 1024.
    pub connections_max: usize,
    /// Connections open at a time from one IPv4 address or one IPv6 /64, which is what one host can choose
    /// from. Default 100: RFC 7766 §6.2.2 asks resolvers for few, but several may share an address.
    pub per_client_max: usize,
    /// How long a connection may be open without any query under way. Default 10 s: RFC 7766 §6.2.3
    /// recommends a few seconds.
    pub idle: Duration,
    /// What `idle` becomes while more than half of `connections_max` are open, where it is shorter. Seen when
    /// a connection next begins to wait. Default 1 s: enough for the first query to come round the world.
    pub idle_when_crowded: Duration,
    /// How long a message may be under way: a query from its first octet to its last, and the answers that
    /// wait at one time (up to [`UNSENT_MAX`](super::UNSENT_MAX) octets) until the client has taken the last
    /// of them. One octet a second does not extend it. A client over TLS has as long to come to terms. Beyond [`UNTAKEN_MAX`](super::UNTAKEN_MAX), it is for those who
    /// take something now and then. Default 5 s.
    pub message: Duration,
    /// How long a connection may be open at all, however busy; it ends between two answers. Default 10 min,
    /// so that places change hands.
    pub lifetime: Duration,
}

impl Limits {
    /// The places for connections that these limits allow, to be shared by listeners.
    pub fn admission(&self) -> Admission {
        Admission::new(self.connections_max, self.per_client_max)
    }

    /// For how long a connection that begins to wait for a query now may do so.
    pub fn idle_now(&self, is_crowded: bool) -> Duration {
        if is_crowded { self.idle.min(self.idle_when_crowded) } else { self.idle }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 800,
            per_client_max: 100,
            idle: Duration::from_secs(10),
            idle_when_crowded: Duration::from_secs(1),
            message: Duration::from_secs(5),
            lifetime: Duration::from_secs(600),
        }
    }
}
