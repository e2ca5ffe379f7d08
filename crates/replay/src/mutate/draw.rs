//! Draws that follow from a seed, a place and a key alone.

use std::net::IpAddr;

use crate::schedule::draw::mix;

/// The draws of one change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw(u64);

impl Draw {
    /// Of the change at this place in its list.
    pub(super) fn new(seed: u64, place: u64) -> Draw {
        Draw(mix(mix(seed).wrapping_add(place)))
    }

    /// Whether the query of this index is in a share, from 0 to 1.
    pub(super) fn is_in_by_index(self, index: u64, share: f64) -> bool {
        is_below(mix(self.0 ^ mix(index)), share)
    }

    /// Whether a client is in a share, from 0 to 1.
    pub(super) fn is_in_by_client(self, client: IpAddr, share: f64) -> bool {
        let address = match client.to_canonical() {
            IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()),
            IpAddr::V6(address) => u128::from(address),
        };
        let (high, low) = ((address >> 64) as u64, address as u64);
        is_below(mix(mix(self.0 ^ high).wrapping_add(low)), share)
    }

    /// A number that no other index has.
    pub(super) fn label(self, index: u64) -> u64 {
        mix(self.0.wrapping_add(index))
    }
}

/// The fraction that the number's first 53 bits make is below 1, so that a share of 1 has everyone.
fn is_below(number: u64, share: f64) -> bool {
    ((number >> 11) as f64) < share * (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_met() {
        for share in [0.0, 0.001, 0.3, 0.999, 1.0] {
            let draw = Draw::new(7, 0);
            let by_index = (0..100_000).filter(|index| draw.is_in_by_index(*index, share)).count();
            let by_client =
                (0..100_000_u32).filter(|client| draw.is_in_by_client(IpAddr::V4((*client).into()), share));
            for count in [by_index, by_client.count()] {
                // Five standard deviations.
                let off = (count as f64 - share * 1e5).abs();
                assert!(off <= 5.0 * (1e5 * share * (1.0 - share)).sqrt(), "{count} at {share}");
            }
        }
    }
}
