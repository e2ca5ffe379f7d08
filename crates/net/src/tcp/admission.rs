//! Who may have a connection: so many in all, so many per client.

use super::Limits;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Hands out places to connections; at most [`Limits::connections_max`] entries.
#[derive(Debug)]
pub(super) struct Admission {
    connections_max: usize,
    per_client_max: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    total: usize,
    by_client: HashMap<IpAddr, usize>,
}

/// Says why a connection gets no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// All places are taken.
    Full,
    /// This client has all that one client may have.
    PerClient,
}

/// Holds a connection's place until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    admission: Arc<Admission>,
    client: IpAddr,
}

impl Admission {
    pub(super) fn new(limits: Limits) -> Self {
        let Limits { connections_max, per_client_max, .. } = limits;
        Self { connections_max, per_client_max, open: Mutex::default() }
    }

    /// Gives a place to a connection from `address`.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Result<Place, Refusal> {
        let client = client_of(address);
        let mut open = self.open();
        if open.total >= self.connections_max {
            return Err(Refusal::Full);
        }
        let of_client = open.by_client.get(&client).copied().unwrap_or(0);
        if of_client >= self.per_client_max {
            return Err(Refusal::PerClient);
        }
        open.by_client.insert(client, of_client + 1);
        open.total += 1;
        Ok(Place { admission: Arc::clone(self), client })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Whether more than half of all places are taken.
    pub(super) fn is_crowded(&self) -> bool {
        self.admission.open().total > self.admission.connections_max / 2
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.admission.open();
        open.total -= 1;
        if let Some(of_client) = open.by_client.get_mut(&self.client) {
            *of_client -= 1;
            if *of_client == 0 {
                open.by_client.remove(&self.client);
            }
        }
    }
}

/// Returns the address that stands for all addresses one client can choose from: of IPv6 the /64.
fn client_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(connections_max: usize, per_client_max: usize) -> Arc<Admission> {
        Arc::new(Admission::new(Limits { connections_max, per_client_max, ..Limits::default() }))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn places_are_bounded_in_all_and_come_back() {
        let admission = admission(2, 2);
        let first = admission.admit(ip("192.0.2.1")).expect("a free place");
        let second = admission.admit(ip("192.0.2.2")).expect("a free place");
        assert_eq!(admission.admit(ip("192.0.2.3")).unwrap_err(), Refusal::Full);
        drop(first);
        let third = admission.admit(ip("192.0.2.3")).expect("the place has come back");
        drop((second, third));
        assert_eq!(admission.open().total, 0);
        assert!(admission.open().by_client.is_empty());
    }

    #[test]
    fn places_are_bounded_per_client() {
        // (held, asked, refused)
        for (held, asked, refused) in [
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("2001:db8::1", "2001:db8::2:3:4:5", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
        ] {
            let admission = admission(10, 1);
            let _held = admission.admit(ip(held)).expect("a free place");
            let refusal = admission.admit(ip(asked)).err();
            assert_eq!(refusal, refused.then_some(Refusal::PerClient), "{held} {asked}");
        }
    }

    #[test]
    fn more_than_half_is_a_crowd() {
        let admission = admission(4, 4);
        let mut places = Vec::new();
        for crowded in [false, false, true, true] {
            places.push(admission.admit(ip("192.0.2.1")).expect("a free place"));
            assert_eq!(places[0].is_crowded(), crowded, "{} of 4", places.len());
        }
    }

    #[test]
    fn no_places_at_all_refuses_everybody() {
        assert_eq!(admission(0, 1).admit(ip("192.0.2.1")).unwrap_err(), Refusal::Full);
    }
}
