//! Addresses that may be loaded without asking anybody.

use std::net::IpAddr;

/// Whether an address is of this host or of a private network.
pub(crate) fn is_near(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => is_near(v4.into()),
            None => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
        },
    }
}
