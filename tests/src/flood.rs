//! Floods of a name server, and clients that want their answers meanwhile.
//!
//! All of it stands in a [network of its own](crate::namespace) that has every address. So sources can be forged by who
//! may, and an attacker has as many addresses as it likes.
//!
//! - [`datagrams`]: floods over UDP, from forged sources;
//! - [`crowd`]: floods of TCP connections;
//! - [`clients`]: those who only want to know.

pub mod clients;
pub mod crowd;
pub mod datagrams;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// Where the server listens in the namespace.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);

/// The zone that is asked for.
pub const ORIGIN: &str = "example.com";

/// Its content: `www` is what good clients ask for, `large` what takes 4 kB to answer.
pub fn zone() -> String {
    let text = ["\"", &"x".repeat(250), "\" "].concat().repeat(16);
    format!(
        "$TTL 300\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 10.99.0.1\nwww A 192.0.2.1\n\
         www AAAA 2001:db8::1\nwww MX 10 mail\nwww TXT \"some text, so that ANY would be large\"\n\
         large TXT {text}\n"
    )
}

/// The configuration of a server that limits rates.
pub const CONFIG: &str = "version = \"v1\"\n[rate_limit]\nresponses_per_second = 100\n";

/// The share of their answers that good clients must get.
pub const KEPT_MIN: f64 = 0.95;

/// By how many octets a flood may make the server's memory grow (docs/guides/face-the-internet.md): 8 MiB are the
/// table of rates, and what allocators keep is the rest.
pub const GROWTH_MAX: u64 = 32 << 20;

/// By how many more for each connection whose client takes no answers.
pub const GROWTH_UNTAKEN_MAX: u64 = 270 << 10;

/// A TCP connection from an address of the namespace.
fn connect_from(from: Ipv4Addr, server: SocketAddrV4, wait: Duration) -> io::Result<TcpStream> {
    connect(Socket::new(Domain::IPV4, Type::STREAM, None)?, from, server, wait)
}

fn connect(socket: Socket, from: Ipv4Addr, server: SocketAddrV4, wait: Duration) -> io::Result<TcpStream> {
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect_timeout(&SocketAddr::from(server).into(), wait)?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket.into())
}
