//! An address prefix: an address and how many of its leading bits count.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The leading bits that all addresses of [`Prefix::MAPPED`] share.
const MAPPED_LENGTH: u8 = 96;

/// An address prefix such as `192.0.2.0/24`, with no bit set behind its length.
///
/// An IPv4-mapped IPv6 prefix (`::ffff:192.0.2.0/120`) *read from text* is the IPv4 prefix that it
/// stands for, where it is at least 96 bits long. [`Prefix::new`] keeps the family that it is given:
/// a client subnet (RFC 7871) must be answered in the family in which it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// The block of IPv4-mapped IPv6 addresses, `::ffff:0:0/96` (RFC 4291 §2.5.5.2).
    pub const MAPPED: Prefix =
        Prefix { address: IpAddr::V6(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0)), length: MAPPED_LENGTH };

    /// The prefix of `length` bits that contains `address`, whose other bits become 0; `None` where
    /// `length` is above 32 (IPv4) or 128 (IPv6).
    pub fn new(address: IpAddr, length: u8) -> Option<Prefix> {
        let address = match address {
            IpAddr::V4(v4) if length <= 32 => {
                let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
            }
            IpAddr::V6(v6) if length <= 128 => {
                let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
            }
            _ => return None,
        };
        Some(Prefix { address, length })
    }

    /// Reads an address, which is a prefix of all its bits, or a prefix whose bits behind its length do not count; `None`
    /// where it is neither.
    pub fn read(text: &str) -> Option<Prefix> {
        match text.parse() {
            Ok(prefix) | Err(ParsePrefixError::HostBits(prefix)) => Some(prefix),
            Err(ParsePrefixError::NoLength) => {
                let address: IpAddr = text.parse().ok()?;
                let whole = if address.is_ipv4() { 32 } else { 128 };
                Prefix::new(address, whole).map(Prefix::unmapped)
            }
            Err(ParsePrefixError::Address | ParsePrefixError::Length(_)) => None,
        }
    }

    /// The first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// How many leading bits count: up to 32 for IPv4, 128 for IPv6.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Whether `address` is of the same family and begins with these bits.
    pub fn contains(&self, address: IpAddr) -> bool {
        Prefix::new(address, self.length) == Some(*self)
    }
}

impl fmt::Display for Prefix {
    /// `address/length`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// Why a text is not a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsePrefixError {
    /// What stands before the slash is not an IP address.
    Address,
    /// There is no slash.
    NoLength,
    /// What stands behind the slash is not a number of bits up to the one given.
    Length(u8),
    /// Bits behind the length are set; the prefix is the one that was probably meant.
    HostBits(Prefix),
}

impl fmt::Display for ParsePrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParsePrefixError::Address => f.write_str("not an IP address"),
            ParsePrefixError::NoLength => f.write_str("prefix without a length"),
            ParsePrefixError::Length(_) => f.write_str("prefix length out of range"),
            ParsePrefixError::HostBits(_) => f.write_str("bits are set behind the prefix length"),
        }
    }
}

impl std::error::Error for ParsePrefixError {}

impl FromStr for Prefix {
    type Err = ParsePrefixError;

    /// Reads `address/length`, strictly: no bit may be set behind the length.
    fn from_str(text: &str) -> Result<Prefix, ParsePrefixError> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| ParsePrefixError::Address)?;
        let length = length.ok_or(ParsePrefixError::NoLength)?;
        let max = if address.is_ipv4() { 32 } else { 128 };
        // `u8::from_str` takes a sign and leading zeros, which no other reader of prefixes takes.
        let plain = length == "0" || length.starts_with(|first: char| matches!(first, '1'..='9'));
        let length: u8 = match length.parse() {
            Ok(n) if plain && n <= max => n,
            _ => return Err(ParsePrefixError::Length(max)),
        };
        let prefix = Prefix::new(address, length).ok_or(ParsePrefixError::Length(max))?;
        let plain = prefix.unmapped();
        if prefix.address == address { Ok(plain) } else { Err(ParsePrefixError::HostBits(plain)) }
    }
}

impl Prefix {
    fn unmapped(self) -> Prefix {
        match self.address {
            IpAddr::V6(v6) if self.length >= MAPPED_LENGTH && Prefix::MAPPED.contains(self.address) => {
                let v4 = Ipv4Addr::from_bits(v6.to_bits() as u32);
                Prefix { address: IpAddr::V4(v4), length: self.length - MAPPED_LENGTH }
            }
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_and_prefixes_are_read() {
        for (text, expected) in [
            ("192.0.2.7", Some("192.0.2.7/32")),
            ("192.0.2.7/24", Some("192.0.2.0/24")),
            ("2001:db8::9", Some("2001:db8::9/128")),
            ("::ffff:192.0.2.7", Some("192.0.2.7/32")),
            ("::ffff:192.0.2.7/120", Some("192.0.2.0/24")),
            ("192.0.2.7/33", None),
            ("192.0.2.7/+8", None),
            ("192.0.2.7/", None),
            ("example", None),
        ] {
            assert_eq!(Prefix::read(text).map(|prefix| prefix.to_string()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn texts() {
        let at = |address: &str, length| Prefix::new(address.parse().unwrap(), length).unwrap();
        for (text, expected) in [
            ("192.0.2.0/24", Ok(at("192.0.2.0", 24))),
            ("0.0.0.0/0", Ok(at("0.0.0.0", 0))),
            ("::/0", Ok(at("::", 0))),
            ("2001:DB8::/32", Ok(at("2001:db8::", 32))),
            ("255.255.255.255/32", Ok(at("255.255.255.255", 32))),
            ("::ffff:192.0.2.0/120", Ok(at("192.0.2.0", 24))),
            ("::ffff:0:0/96", Ok(at("0.0.0.0", 0))),
            ("::fffe:0:0/95", Ok(at("::fffe:0:0", 95))),
            ("192.0.2.1/24", Err(ParsePrefixError::HostBits(at("192.0.2.0", 24)))),
            ("::ffff:192.0.2.1/120", Err(ParsePrefixError::HostBits(at("192.0.2.0", 24)))),
            ("192.0.2.0", Err(ParsePrefixError::NoLength)),
            ("192.0.2.0/33", Err(ParsePrefixError::Length(32))),
            ("2001:db8::/129", Err(ParsePrefixError::Length(128))),
            ("192.0.2.0/", Err(ParsePrefixError::Length(32))),
            ("192.0.2.0/+24", Err(ParsePrefixError::Length(32))),
            ("192.0.2.0/024", Err(ParsePrefixError::Length(32))),
            ("0.0.0.0/00", Err(ParsePrefixError::Length(32))),
            ("192.0.2.0/24/24", Err(ParsePrefixError::Length(32))),
            ("192.0.2/24", Err(ParsePrefixError::Address)),
            ("192.000.2.0/24", Err(ParsePrefixError::Address)),
            ("", Err(ParsePrefixError::Address)),
        ] {
            assert_eq!(text.parse::<Prefix>(), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(address: IpAddr, length in 0u8..=128) {
            if let Some(prefix) = Prefix::new(address, length) {
                prop_assert!(prefix.contains(address));
                prop_assert_eq!(prefix.to_string().parse(), Ok(prefix.unmapped()));
            } else {
                prop_assert!(address.is_ipv4() && length > 32);
            }
        }

        #[test]
        fn any_text_is_taken(text in "[0-9a-f:./]{0,24}|.{0,40}") {
            if let Ok(prefix) = text.parse::<Prefix>() {
                prop_assert_eq!(prefix.to_string().parse(), Ok(prefix));
            }
        }
    }
}
