//! Draws that depend on what they are for, never on the order in which they are made.
//!
//! A draw is a hash of the seed and of what it decides (client, copy, position), so that any number of threads
//! draw the same.

use std::net::IpAddr;

/// What a draw decides; draws for different purposes have nothing to do with one another.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub enum For {
    /// Whether a client has one more copy.
    Copies = 1,
    /// By how much a copy is shifted.
    Phase,
    /// The gap before a query.
    Gap,
    /// A client's transport.
    Transport,
    /// A client's server.
    Server,
    /// Which client gets which source address.
    Source,
    /// A query's id.
    Id,
    /// How far a client is away.
    Distance,
}

/// Draws 64 bits.
pub fn draw(seed: u64, purpose: For, of: u64) -> u64 {
    mix(mix(seed ^ mix(purpose as u64)) ^ of)
}

/// Draws a number from 0 to just under 1.
pub fn unit(seed: u64, purpose: For, of: u64) -> f64 {
    (draw(seed, purpose, of) >> 11) as f64 / (1_u64 << 53) as f64
}

/// The number of a client's copy; copy 0 is the client itself. The same in every run and on every machine.
pub fn client(address: IpAddr, copy: u32) -> u64 {
    let (high, low) = match address {
        IpAddr::V4(v4) => (4, u64::from(u32::from(v4))),
        IpAddr::V6(v6) => ((u128::from(v6) >> 64) as u64, u128::from(v6) as u64),
    };
    mix(mix(mix(high) ^ low) ^ u64::from(copy))
}

/// Each number becomes another, and no two the same (SplitMix64; Steele, Lea and Flood, OOPSLA 2014). Written here, so that
/// a seed means the same with every version of every library.
pub(crate) fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_splitmix64() {
        // The generator's first two outputs from the seed 0: its state is the number before each step.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(0x9e37_79b9_7f4a_7c15), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn draws_are_fixed_and_even() {
        assert_eq!(draw(1, For::Phase, 2), draw(1, For::Phase, 2));
        assert_ne!(draw(1, For::Phase, 2), draw(1, For::Gap, 2));
        assert_ne!(draw(1, For::Phase, 2), draw(2, For::Phase, 2));
        let mean = (0..10_000).map(|of| unit(7, For::Copies, of)).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
    }

    #[test]
    fn clients_and_copies_are_told_apart() {
        let mut seen = std::collections::HashSet::new();
        for last in 0..=255 {
            for copy in 0..20 {
                assert!(seen.insert(client([192, 0, 2, last].into(), copy)));
            }
        }
        assert!(seen.insert(client("2001:db8::1".parse().unwrap(), 0)));
    }
}
