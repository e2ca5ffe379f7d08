//! What carries a client's queries: which transport, to which port.

use std::net::SocketAddr;

use crate::schedule::draw::{self, For};
use crate::trace::Transport;

/// How queries go to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// In datagrams.
    Udp,
    /// In a TCP stream (RFC 7766).
    Tcp,
    /// In a stream under TLS (RFC 7858).
    Tls,
    /// In streams of QUIC (RFC 9250).
    Quic,
    /// In requests of HTTP/2 under TLS (RFC 8484).
    Https,
}

impl Carrier {
    /// Every carrier.
    pub const ALL: [Carrier; 5] = [Carrier::Udp, Carrier::Tcp, Carrier::Tls, Carrier::Quic, Carrier::Https];

    /// Its name on command lines, in reports and in logs.
    pub fn name(self) -> &'static str {
        match self {
            Carrier::Udp => "udp",
            Carrier::Tcp => "tcp",
            Carrier::Tls => "tls",
            Carrier::Quic => "quic",
            Carrier::Https => "https",
        }
    }

    /// Whether what it carries is encrypted.
    pub fn is_secure(self) -> bool {
        !matches!(self, Carrier::Udp | Carrier::Tcp)
    }
}

/// How clients ask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Carriers {
    /// As recorded, query by query.
    Recorded,
    /// By shares of clients.
    Shares(Shares),
}

/// Shares of clients from 0 to 1, by [`Carrier::ALL`]; together they are 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares([f64; Carrier::ALL.len()]);

impl Shares {
    /// Shares that make 1; `None` where they do not, or where one is beyond 0 to 1.
    pub fn new(shares: [f64; Carrier::ALL.len()]) -> Option<Shares> {
        let is_share = shares.iter().all(|share| (0.0..=1.0).contains(share));
        (is_share && (shares.iter().sum::<f64>() - 1.0).abs() < 1e-8).then_some(Shares(shares))
    }
}

impl Carriers {
    /// What carries a query of a client that was recorded so.
    pub(super) fn of(self, client: u64, recorded: Transport, seed: u64) -> Carrier {
        let shares = match (self, recorded) {
            (Carriers::Shares(Shares(shares)), _) => shares,
            (Carriers::Recorded, Transport::Udp) => return Carrier::Udp,
            (Carriers::Recorded, Transport::Tcp) => return Carrier::Tcp,
        };
        let mut left = draw::unit(seed, For::Transport, client);
        // From the last: that all are over UDP is what remains.
        for (carrier, share) in Carrier::ALL.into_iter().zip(shares).rev() {
            if left < share {
                return carrier;
            }
            left -= share;
        }
        Carrier::Udp
    }

    /// Whether some client may ask over a carrier.
    pub fn uses(self, carrier: Carrier) -> bool {
        match self {
            Carriers::Recorded => !carrier.is_secure(),
            Carriers::Shares(Shares(shares)) => shares[carrier as usize] > 0.0,
        }
    }
}

/// Where servers listen for what has a port of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// For DNS over TLS.
    pub tls: u16,
    /// For DNS over QUIC.
    pub quic: u16,
    /// For DNS over HTTPS.
    pub https: u16,
}

impl Ports {
    /// Where a server listens for a carrier.
    pub fn of(self, carrier: Carrier, mut server: SocketAddr) -> SocketAddr {
        server.set_port(match carrier {
            Carrier::Udp | Carrier::Tcp => server.port(),
            Carrier::Tls => self.tls,
            Carrier::Quic => self.quic,
            Carrier::Https => self.https,
        });
        server
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_kept_and_make_one() {
        assert_eq!(Shares::new([0.5, 0.2, 0.2, 0.0, 0.0]), None);
        assert_eq!(Shares::new([1.5, -0.5, 0.0, 0.0, 0.0]), None);
        let carriers = Carriers::Shares(Shares::new([0.5, 0.2, 0.1, 0.1, 0.1]).expect("they make 1"));
        let mut counts = [0; Carrier::ALL.len()];
        for client in 0..10_000 {
            let carrier = carriers.of(client, Transport::Udp, 1);
            assert_eq!(carrier, carriers.of(client, Transport::Tcp, 1), "what was recorded does not matter");
            counts[carrier as usize] += 1;
        }
        for (count, share) in counts.iter().zip([5_000, 2_000, 1_000, 1_000, 1_000]) {
            assert!(i32::abs(count - share) < 200, "{counts:?}");
        }
        for carrier in Carrier::ALL {
            let mut all = [0.0; Carrier::ALL.len()];
            all[carrier as usize] = 1.0;
            let all = Carriers::Shares(Shares::new(all).expect("it is 1"));
            assert!((0..100).all(|client| all.of(client, Transport::Udp, 2) == carrier));
            assert!(all.uses(carrier));
        }
        assert_eq!(Carriers::Recorded.of(1, Transport::Tcp, 1), Carrier::Tcp);
        assert!(!Carriers::Recorded.uses(Carrier::Tls));
    }
}
