//! Whether queries to a back end would come back to the balancer.

use std::net::SocketAddr;

/// Whether what is sent to `back_end` comes to who listens at `listens`: an address and port, or all addresses of this
/// machine of one family with a port. Which they are the system is asked, without a packet.
pub fn leads_to(listens: SocketAddr, back_end: SocketAddr) -> bool {
    let (own, other) = (listens.ip().to_canonical(), back_end.ip().to_canonical());
    listens.port() == back_end.port()
        && own.is_ipv4() == other.is_ipv4()
        && (own == other
            || own.is_unspecified() && is_ours(back_end)
            || other.is_unspecified() && own.is_loopback())
}

/// Whether an address is this machine's: then what goes there comes from there. A machine may bind addresses that are not
/// its own (`ip_nonlocal_bind`), so binding tells nothing.
fn is_ours(at: SocketAddr) -> bool {
    let at = net::client::canonical(at);
    let address = at.ip();
    let source = || net::client::ask(at, None).ok()?.local_addr().ok();
    address.is_loopback()
        || address.is_unspecified()
        || source().is_some_and(|source| source.ip().to_canonical() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_back_is_found() {
        for (listens, back_end, expected) in [
            ("127.0.0.1:53", "127.0.0.1:53", true),
            ("127.0.0.1:53", "127.0.0.1:54", false),
            ("127.0.0.1:53", "127.0.0.2:53", false),
            ("0.0.0.0:53", "127.0.0.2:53", true),
            ("0.0.0.0:53", "127.0.0.2:54", false),
            ("0.0.0.0:53", "[::ffff:127.0.0.1]:53", true),
            ("0.0.0.0:53", "0.0.0.0:53", true),
            ("127.0.0.1:53", "0.0.0.0:53", true),
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
