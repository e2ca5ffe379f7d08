//! One probe: a connection, a page or a command.
//!
//! None of them takes a time itself: who calls gives up in time, and what was begun then ends, a command with all
//! that it started.
//!
//! `http` asks for a page, over TLS or without, and `answer` reads what comes; `command` runs a program.

pub mod answer;
mod command;
mod http;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use api::Target;
use tokio::net::TcpStream;

use super::probe::{Check, Probe};
use super::record::{Outcome, Reason};

pub use command::OUTPUT_MAX;

/// Does one probe of a server.
pub async fn check(probe: &Probe, server: &Target) -> Outcome {
    let done = match &probe.check {
        Check::Tcp(port) => connect(server, *port)
            .await
            .map(|_| Outcome::passed(Reason::Connected, format!("connected to port {port}"))),
        Check::Http(page) => http::get(page, server).await,
        Check::Command(line) => command::run(line, server, &probe.name).await,
    };
    done.unwrap_or_else(|failed| failed)
}

/// Connects to an address, or to one that the system's resolver has for a name.
async fn connect(server: &Target, port: u16) -> Result<TcpStream, Outcome> {
    let (connected, shown) = match server.address() {
        Some(address) => {
            let address = SocketAddr::new(address, port);
            (TcpStream::connect(address).await, address.to_string())
        }
        None => {
            let host = server.host();
            (TcpStream::connect((host.as_str(), port)).await, format!("{host}:{port}"))
        }
    };
    connected.map_err(|cause| {
        let reason = match cause.kind() {
            ErrorKind::ConnectionRefused => Reason::Refused,
            ErrorKind::TimedOut => Reason::Timeout,
            ErrorKind::ConnectionReset => Reason::Closed,
            _ => Reason::Unreachable,
        };
        Outcome::failed(reason, format!("{shown}: {cause}"))
    })
}

/// What became of a connection that was made.
fn broken(cause: &io::Error) -> Outcome {
    Outcome::failed(Reason::Closed, format!("the connection broke: {cause}"))
}
