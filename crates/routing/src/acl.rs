//! Who may ask.

use std::net::IpAddr;

use crate::prefix::Prefix;

/// Clients that may ask, by prefix. Loopback always may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl(Vec<Prefix>);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_let_in_by_prefix() {
        let acl = Acl::new(
            ["192.0.2.0/25", "2001:db8::/32", "10.1.1.1/32"].map(|text| text.parse().unwrap()).to_vec(),
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
    }
}
