//! Who waits for an address is told when something of it was learned.

use std::net::IpAddr;

use tokio::sync::Notify;

/// Places to wait at: with as many who wait as may, each of them has a handful, and those are woken for each other.
const PLACES: usize = 1024;

/// Where those wait who want an address, each at the address's place.
#[derive(Debug)]
pub struct Learned {
    places: Vec<Notify>,
}

impl Default for Learned {
    fn default() -> Learned {
        Learned { places: (0..PLACES).map(|_| Notify::new()).collect() }
    }
}

impl Learned {
    /// The place of an address.
    pub fn of(&self, address: IpAddr) -> &Notify {
        let bits = match address.to_canonical() {
            IpAddr::V4(v4) => v4.to_bits().into(),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        let mixed = (bits ^ bits >> 64) as u64;
        let mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - PLACES.ilog2());
        &self.places[mixed as usize]
    }

    /// Wakes who waits for an address, and a few others.
    pub fn tell(&self, address: IpAddr) {
        self.of(address).notify_waiters();
    }

    /// Wakes everybody: what was learned is of many addresses.
    pub fn tell_all(&self) {
        self.places.iter().for_each(Notify::notify_waiters);
    }
}
