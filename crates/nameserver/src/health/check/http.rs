//! GET over TCP or TLS. No more is read than the answer's head.

use std::net::IpAddr;
use std::sync::Arc;

use api::Target;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::probe::Http;
use super::super::record::{Outcome, Reason};
use super::answer::{HEAD_MAX, Head, head};
use super::{broken, connect};

/// How much is taken from a connection at once, in octets: the largest record of TLS.
const TAKEN: usize = 16 << 10;

/// Gets a page; what is wrong on the way is an outcome, too.
pub(super) async fn get(page: &Http, server: &Target) -> Result<Outcome, Outcome> {
    let mut stream = match &page.tls {
        None => Stream { tcp: connect(server, page.port).await?, tls: None },
        Some(config) => {
            let tls = session(config, page.host.as_deref(), server)?;
            Stream { tcp: connect(server, page.port).await?, tls: Some(Box::new(tls)) }
        }
    };
    stream.write(request(page, server).as_bytes()).await?;
    let mut octets = Vec::new();
    loop {
        match head(&octets) {
            Head::Status(status) => {
                let passed = page.status.contains(&status);
                return Ok(Outcome { passed, reason: Reason::Status, detail: format!("status {status}") });
            }
            Head::Partial if octets.len() < HEAD_MAX => stream.read(&mut octets).await?,
            Head::Partial | Head::Malformed => {
                return Err(Outcome::failed(Reason::Malformed, "the answer is not one of HTTP/1"));
            }
        }
    }
}

fn request(page: &Http, server: &Target) -> String {
    let host = page.host.clone().unwrap_or_else(|| match server {
        Target::Address(IpAddr::V6(v6)) => format!("[{v6}]"),
        other => other.host(),
    });
    let usual = if page.tls.is_some() { 443 } else { 80 };
    let port = if page.port == usual { String::new() } else { format!(":{}", page.port) };
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "GET {} HTTP/1.1\r\nHost: {host}{port}\r\nUser-Agent: pointsman/{version} (health)\r\nAccept: */*\r\n\
         Connection: close\r\n\r\n",
        page.path
    )
}

fn session(
    config: &Arc<ClientConfig>,
    host: Option<&str>,
    server: &Target,
) -> Result<ClientConnection, Outcome> {
    let of_server = || match server {
        Target::Address(address) => Ok(ServerName::IpAddress((*address).into())),
        Target::Cname(_) => ServerName::try_from(server.host()),
    };
    let name = host.map_or_else(of_server, |host| ServerName::try_from(host.to_owned()));
    let name = name.map_err(|cause| Outcome::failed(Reason::Tls, cause.to_string()))?;
    ClientConnection::new(config.clone(), name).map_err(|cause| failed(&cause))
}

fn closed() -> Outcome {
    Outcome::failed(Reason::Closed, "the connection was closed before an answer")
}

fn failed(cause: &rustls::Error) -> Outcome {
    Outcome::failed(Reason::Tls, net::tls::told(cause))
}

/// A connection, with TLS on it or not.
struct Stream {
    tcp: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

impl Stream {
    async fn write(&mut self, octets: &[u8]) -> Result<(), Outcome> {
        let Some(tls) = &mut self.tls else {
            return self.tcp.write_all(octets).await.map_err(|cause| broken(&cause));
        };
        std::io::Write::write_all(&mut tls.writer(), octets).map_err(|cause| broken(&cause))?;
        self.flush().await
    }

    /// Appends what comes next; that the other end closed is a failure, for something was to come.
    async fn read(&mut self, into: &mut Vec<u8>) -> Result<(), Outcome> {
        let mut taken = vec![0; TAKEN];
        loop {
            let count = self.tcp.read(&mut taken).await.map_err(|cause| broken(&cause))?;
            if count == 0 {
                return Err(closed());
            }
            let Some(tls) = &mut self.tls else {
                into.extend_from_slice(&taken[..count]);
                return Ok(());
            };
            let before = into.len();
            let mut octets = &taken[..count];
            while !octets.is_empty() {
                // TLS takes nothing more behind the other end's goodbye.
                if tls.read_tls(&mut octets).map_err(|cause| broken(&cause))? == 0 {
                    return if into.len() > before { Ok(()) } else { Err(closed()) };
                }
                let state = match tls.process_new_packets() {
                    Ok(state) => state,
                    Err(cause) => {
                        // The other end is told why; whether it listens is its own affair.
                        let _ = self.flush().await;
                        return Err(failed(&cause));
                    }
                };
                let mut plain = vec![0; state.plaintext_bytes_to_read()];
                std::io::Read::read_exact(&mut tls.reader(), &mut plain).map_err(|cause| broken(&cause))?;
                into.extend_from_slice(&plain);
            }
            self.flush().await?;
            if into.len() > before {
                return Ok(());
            }
        }
    }

    /// Sends what TLS has to say.
    async fn flush(&mut self) -> Result<(), Outcome> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        let mut said = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut said).map_err(|cause| broken(&cause))?;
        }
        self.tcp.write_all(&said).await.map_err(|cause| broken(&cause))
    }
}
