//! Who may have a place: so many in all, so many per client. A place is a connection, or something else that a
//! client holds for a while.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Hands out places; it remembers no more clients than there are places.
#[derive(Debug)]
pub struct Admission {
    places_max: usize,
    per_client_max: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    total: usize,
    by_client: HashMap<IpAddr, usize>,
}

/// Says why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// All places are taken.
    Full,
    /// This client has all that one client may have.
    PerClient,
}

/// Holds a place until it is dropped.
#[derive(Debug)]
pub struct Place {
    admission: Arc<Admission>,
    client: IpAddr,
}

impl Admission {
    /// Has `places_max` places, of which one client gets `per_client_max`: an IPv4 address or an IPv6 /64,
    /// which is what one host can choose from.
    pub fn new(places_max: usize, per_client_max: usize) -> Self {
        Self { places_max, per_client_max, open: Mutex::default() }
    }

    /// Gives a place to the client at `address`.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Result<Place, Refusal> {
        let client = client_of(address);
        let mut open = self.open();
        if open.total >= self.places_max {
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
    pub fn is_crowded(&self) -> bool {
        self.admission.open().total > self.admission.places_max / 2
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

    fn admission(places_max: usize, per_client_max: usize) -> Arc<Admission> {
        Arc::new(Admission::new(places_max, per_client_max))
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
