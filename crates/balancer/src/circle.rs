//! Who must not be a back end: nobody, and the balancer itself.

use std::net::{IpAddr, SocketAddr};

/// Whether no server can be at an address: it has no port, or is none of one host's.
pub fn is_nowhere(at: SocketAddr) -> bool {
    at.port() == 0 || at.ip().is_unspecified() || is_of_many(at.ip())
}

/// Whether an address is one of many hosts at a time, multicast or broadcast: nobody can be asked or listen over TCP there.
pub fn is_of_many(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_multicast(),
    }
}

/// Whether what is sent to `back_end` comes to who listens at `listens`: an address and port, or all addresses of this
/// machine of one family with a port. Which they are the system is asked, without a packet.
pub fn leads_to(listens: SocketAddr, back_end: SocketAddr) -> bool {
    let (own, other) = (listens.ip().to_canonical(), back_end.ip().to_canonical());
    listens.port() == back_end.port()
        && own.is_ipv4() == other.is_ipv4()
        && (own == other || own.is_unspecified() && is_ours(back_end))
}

/// Whether an address is this machine's: then what goes there comes from there. A machine may bind addresses that are not
/// its own (`ip_nonlocal_bind`), so binding tells nothing.
fn is_ours(at: SocketAddr) -> bool {
    let at = net::client::canonical(at);
    let address = at.ip();
    let source = || net::client::ask(at, None).ok()?.local_addr().ok();
    address.is_loopback() || source().is_some_and(|source| source.ip().to_canonical() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_at_some_addresses() {
        for (at, expected) in [
            ("192.0.2.1:53", false),
            ("[2001:db8::1]:53", false),
            ("127.0.0.1:0", true),
            ("0.0.0.0:53", true),
            ("[::]:53", true),
            ("224.0.0.251:5353", true),
            ("[ff02::fb]:5353", true),
            ("255.255.255.255:53", true),
            ("[::ffff:224.0.0.251]:53", true),
        ] {
            assert_eq!(is_nowhere(at.parse().expect("an address")), expected, "{at}");
        }
    }

    #[test]
    fn what_leads_back_is_found() {
        for (listens, back_end, expected) in [
            ("127.0.0.1:53", "127.0.0.1:53", true),
            ("127.0.0.1:53", "127.0.0.1:54", false),
            ("127.0.0.1:53", "127.0.0.2:53", false),
            ("0.0.0.0:53", "127.0.0.2:53", true),
            ("0.0.0.0:53", "127.0.0.2:54", false),
            ("0.0.0.0:53", "[::ffff:127.0.0.1]:53", true),
            ("0.0.0.0:53", "192.0.2.1:53", false),
            ("0.0.0.0:53", "[::1]:53", false),
            ("[::]:53", "[::1]:53", true),
            ("[::]:53", "127.0.0.1:53", false),
            ("[::]:53", "[2001:db8::1]:53", false),
        ] {
            let at = |text: &str| text.parse().expect("an address");
            assert_eq!(leads_to(at(listens), at(back_end)), expected, "{listens} {back_end}");
        }
    }
}
