//! Prefixes without any name in them, as one entry each: NXDOMAIN says that there is nothing below (RFC 8020).
//!
//! They are in the table of IPv6, under addresses that nobody has: in a multicast address the first flag must be zero
//! (RFC 4291 §2.7), here it is one.
//! ```text
//! fff4 or fff6 (16 bits) | bits of the prefix (8) | the prefix, left-aligned (64) | zero (40)
//! ```
//! An address that has no entry of its own has that of the longest such prefix that it is in. Prefixes that have
//! something in them have an entry, too ([`State::Asked`](super::State::Asked)): of their addresses nothing is known,
//! whatever was said of a shorter prefix.

use std::net::{IpAddr, Ipv6Addr};

const V4: u128 = 0xfff4 << 112;
const V6: u128 = 0xfff6 << 112;

/// The lengths of prefixes that are asked for, longest first: where reverse zones are cut.
pub fn lengths(address: IpAddr) -> [u8; 3] {
    match address {
        IpAddr::V4(_) => [24, 16, 8],
        IpAddr::V6(_) => [64, 48, 32],
    }
}

/// The key of the prefix of so many bits that an address is in; 1 to 64 bits, of IPv4 32 at most.
pub(super) fn key(address: IpAddr, bits: u8) -> u128 {
    let (family, first) = match address {
        IpAddr::V4(v4) => (V4, u64::from(u32::from(v4)) << 32),
        IpAddr::V6(v6) => (V6, (u128::from(v6) >> 64) as u64),
    };
    let masked = first & (u64::MAX << (64 - u32::from(bits.clamp(1, 64))));
    family | u128::from(bits) << 104 | u128::from(masked) << 40
}

/// Whether an address is one of those that stand for prefixes.
#[inline]
pub fn is_key(address: IpAddr) -> bool {
    let IpAddr::V6(v6) = address else { return false };
    matches!(Ipv6Addr::segments(&v6)[0], 0xfff4 | 0xfff6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_prefix_have_one_key() {
        let key = |text: &str, bits| key(text.parse().unwrap(), bits);
        assert_eq!(key("192.0.2.1", 24), key("192.0.2.255", 24));
        assert_ne!(key("192.0.2.1", 24), key("192.0.3.1", 24));
        assert_ne!(key("192.0.0.1", 24), key("192.0.0.1", 16));
        assert_eq!(key("2001:db8:1::1", 48), key("2001:db8:1:ffff::", 48));
        assert_ne!(key("2001:db8:1::1", 48), key("2001:db8:2::1", 48));
        assert_ne!(key("192.0.2.1", 24), key("c000:200::", 24));
    }

    #[test]
    fn no_address_in_use_is_a_key() {
        for (address, expected) in
            [("ff02::1", false), ("ff0e::1", false), ("192.0.2.1", false), ("fff4::", true)]
        {
            assert_eq!(is_key(address.parse().unwrap()), expected, "{address}");
        }
        let keyed = key("192.0.2.1".parse().unwrap(), 24);
        assert!(is_key(IpAddr::V6(keyed.into())));
    }
}
