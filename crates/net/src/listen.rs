//! One address for connections and datagrams; why an address could not be bound, in words that say how to go on.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};

/// How often another port is tried where the system chose one for TCP that UDP cannot have: with a tenth of all ports
/// taken, one start in 10^16 finds none.
pub const PORT_TRIES: usize = 16;

/// Binds TCP, and with `udp` the same address for datagrams. TCP comes first: there a second program is refused, while
/// UDP sockets would share the port in silence.
///
/// Where the port is 0, the system chooses one that is free for TCP; if another program has it for UDP, the next is
/// tried, up to [`PORT_TRIES`] of them.
///
/// # Errors
/// The last [`BindError`], in an [`io::Error`] of the cause's kind.
pub fn both<T>(
    wanted: SocketAddr,
    mut udp: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<(TcpListener, T)> {
    // Kept until one is found, so that the system does not choose the same port again.
    let mut refused = Vec::new();
    loop {
        let tcp = crate::tcp::bind(wanted)?;
        match udp(tcp.local_addr()?) {
            Ok(udp) => return Ok((tcp, udp)),
            Err(cause) => {
                refused.push(tcp);
                let is_taken = cause.kind() == io::ErrorKind::AddrInUse && wanted.port() == 0;
                if !is_taken || refused.len() == PORT_TRIES {
                    return Err(cause);
                }
            }
        }
    }
}

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
    fn a_port_that_udp_cannot_have_is_not_the_last_one_tried() {
        use io::ErrorKind::{AddrInUse, PermissionDenied};
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let fixed = crate::tcp::bind(any).and_then(|listener| listener.local_addr()).expect("a free port");
        // How UDP fails and how often, and how many ports are tried until what.
        for (wanted, kind, failures, tried, ends_well) in [
            (any, AddrInUse, 0, 1, true),
            (any, AddrInUse, 3, 4, true),
            (any, AddrInUse, PORT_TRIES - 1, PORT_TRIES, true),
            (any, AddrInUse, PORT_TRIES, PORT_TRIES, false),
            (any, PermissionDenied, 1, 1, false),
            (fixed, AddrInUse, 1, 1, false),
        ] {
            let mut ports = Vec::new();
            let bound = both(wanted, |address| {
                ports.push(address.port());
                if ports.len() <= failures { Err(io::Error::from(kind)) } else { Ok(address.port()) }
            });
            assert_eq!((ports.len(), bound.is_ok()), (tried, ends_well), "{kind} {failures} times");
            match bound {
                Ok((tcp, port)) => assert_eq!(tcp.local_addr().expect("it is bound").port(), port),
                Err(cause) => assert_eq!(cause.kind(), kind),
            }
            ports.sort_unstable();
            ports.dedup();
            assert_eq!(ports.len(), tried, "each is another one");
        }
    }

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

    #[test]
    fn real_refusals_are_recognised() {
        let taken = crate::tcp::bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let address = taken.local_addr().expect("a bound socket has an address");
        let error = crate::tcp::bind(address).expect_err("the port is taken");
        assert!(error.to_string().contains("another program has this port"), "{error}");

        let foreign = "192.0.2.1:0".parse().expect("an address");
        for error in [crate::tcp::bind(foreign).map(drop), crate::udp::bind(foreign, None).map(drop)]
            .map(Result::unwrap_err)
        {
            assert!(error.to_string().contains("no such address"), "{error}");
            assert!(error.get_ref().is_some_and(|inner| inner.is::<BindError>()));
        }
    }
}
