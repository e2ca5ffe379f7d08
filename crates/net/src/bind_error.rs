//! Why an address could not be bound, in words that say how to go on.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;

/// Names a transport, as a user reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Datagrams.
    Udp,
    /// Connections.
    Tcp,
}

/// Says that an address could not be bound.
///
/// [`udp::bind`](crate::udp::bind) and [`tcp::bind`](crate::tcp::bind) put it into an [`io::Error`] of the
/// same kind as the cause.
#[derive(Debug)]
pub struct BindError {
    /// The transport that was to be served.
    pub transport: Transport,
    /// The address that was to be bound.
    pub address: SocketAddr,
    /// What the system said.
    pub cause: io::Error,
}

impl BindError {
    /// An error of the cause's kind that says so.
    pub fn wrap(transport: Transport, address: SocketAddr, cause: io::Error) -> io::Error {
        io::Error::new(cause.kind(), Self { transport, address, cause })
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
        })
    }
}

impl fmt::Display for BindError {
    /// Writes a fragment that fits behind "failed to".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transport, address, cause } = self;
        write!(f, "bind {transport} {address}: ")?;
        match cause.kind() {
            io::ErrorKind::AddrInUse => {
                let port = address.port();
                let socket_type = match transport {
                    Transport::Udp => 'u',
                    Transport::Tcp => 't',
                };
                write!(
                    f,
                    "another program has this port; `ss -ln{socket_type}p 'sport = :{port}'` shows which: stop it \
                     or choose another port"
                )
            }
            io::ErrorKind::PermissionDenied if address.port() < 1024 => f.write_str(
                "ports under 1024 need a privilege: choose a port from 1024 on, give the program CAP_NET_BIND_SERVICE, or \
                 start as root (`serve` then goes on as its `user`)",
            ),
            io::ErrorKind::AddrNotAvailable => f.write_str(
                "this host has no such address; `ip address` lists those it has (with a scope, as in fe80::1%2, \
                 where it is link-local); where it comes later, `sysctl net.ipv4.ip_nonlocal_bind=1`, or \
                 net.ipv6.ip_nonlocal_bind, lets programs wait for it",
            ),
            _ => write!(f, "{cause}"),
        }
    }
}

// No source: Display tells the cause, mostly in better words, and it must not be told twice.
impl Error for BindError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_how_to_go_on() {
        let check = |transport, address: &str, kind: io::ErrorKind, expected: &[&str]| {
            let address = address.parse().expect("an address");
            let error = BindError::wrap(transport, address, io::Error::from(kind));
            assert_eq!(error.kind(), kind);
            for part in expected {
                assert!(error.to_string().contains(part), "{error}: no {part:?}");
            }
        };
        use io::ErrorKind::*;
        check(
            Transport::Udp,
            "127.0.0.1:53",
            AddrInUse,
            &["bind UDP 127.0.0.1:53", "ss -lnup 'sport = :53'"],
        );
        check(Transport::Tcp, "[::1]:53", AddrInUse, &["bind TCP [::1]:53", "ss -lntp"]);
        check(Transport::Tcp, "0.0.0.0:53", PermissionDenied, &["CAP_NET_BIND_SERVICE", "1024"]);
        check(Transport::Tcp, "0.0.0.0:5353", PermissionDenied, &["permission denied"]);
        check(Transport::Udp, "192.0.2.1:53", AddrNotAvailable, &["no such address", "ip address"]);
        check(Transport::Udp, "192.0.2.1:53", OutOfMemory, &["out of memory"]);
    }
}
