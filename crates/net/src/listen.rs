//! One address for connections and datagrams.

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
/// The last [`BindError`](crate::bind_error::BindError), in an [`io::Error`] of the cause's kind.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind_error::BindError;

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
