//! Who may ask: the cache is a list of visitors, and answers must not go to the world.

use std::net::IpAddr;
use std::str::FromStr;

/// Clients that may ask, by prefix. Loopback always may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl(Vec<Prefix>);

/// A prefix of addresses, such as `192.0.2.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Acl {
    /// Lets clients of these prefixes ask, beside loopback.
    pub fn new(prefixes: Vec<Prefix>) -> Acl {
        Acl(prefixes)
    }

    /// Whether somebody else than loopback may ask.
    pub fn is_open(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether a client may ask.
    #[inline]
    pub fn allows(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        client.is_loopback() || self.0.iter().any(|prefix| prefix.contains(client))
    }
}

impl Prefix {
    /// The address as it was given, and how many of its bits count.
    pub(crate) fn parts(&self) -> (IpAddr, u8) {
        (self.address, self.bits)
    }

    fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = u32::from(own) ^ u32::from(other);
                differing.checked_shr(32 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = u128::from(own) ^ u128::from(other);
                differing.checked_shr(128 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Prefix, String> {
        let wrong = || format!("'{text}' is no prefix such as 192.0.2.0/24 or 2001:db8::/32");
        let (address, bits) = text.split_once('/').unwrap_or((text, ""));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = if text.contains('/') { bits.parse().map_err(|_| wrong())? } else { most };
        if bits > most { Err(wrong()) } else { Ok(Prefix { address, bits }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_let_in_by_prefix() {
        let acl = Acl::new(
            ["192.0.2.0/25", "2001:db8::/32", "10.1.1.1"].map(|text| text.parse().unwrap()).to_vec(),
        );
        for (client, allowed) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("192.0.2.127", true),
            ("::ffff:192.0.2.1", true),
            ("192.0.2.128", false),
            ("10.1.1.1", true),
            ("10.1.1.2", false),
            ("2001:db8:ffff::1", true),
            ("2001:db9::", false),
        ] {
            assert_eq!(acl.allows(client.parse().unwrap()), allowed, "{client}");
        }
        let all = Acl::new(vec!["0.0.0.0/0".parse().unwrap()]);
        assert!(all.allows("203.0.113.9".parse().unwrap()) && !all.allows("2001:db8::".parse().unwrap()));
        for wrong in ["", "192.0.2.0/33", "192.0.2.0/", "192.0.2/24", "x"] {
            assert!(wrong.parse::<Prefix>().is_err(), "{wrong}");
        }
    }
}
