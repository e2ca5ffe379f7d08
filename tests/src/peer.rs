//! Other people's servers, which ours is compared with: each on a port and in a folder of its own.

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;
use std::process::Command;

use crate::certificate::Certificate;
use crate::folder::Folder;
use crate::program::Program;

/// How often a port is looked for that is free for UDP and TCP alike.
const PORT_TRIES: usize = 100;

/// A server of another make that serves one zone.
#[derive(Debug)]
pub struct Peer {
    /// The address that answers DNS.
    pub dns: SocketAddr,
    /// The process.
    pub program: Program,
}

impl Peer {
    /// Starts NSD with a zone file; without response rate limiting, which is for strangers.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn nsd(folder: &Folder, origin: &str, zone: &str) -> Peer {
        let dns = free_address();
        let (ip, port) = (dns.ip(), dns.port());
        let mut text = format!("server:\n  ip-address: {ip}@{port}\n  server-count: 1\n  username: \"\"\n");
        for option in [
            "minimal-responses: yes",
            "rrl-ratelimit: 0",
            "rrl-whitelist-ratelimit: 0",
            "database: \"\"",
            "zonesdir: \"\"",
        ] {
            writeln!(text, "  {option}").expect("writing to a string cannot fail");
        }
        for option in ["pidfile", "xfrdfile", "zonelistfile", "cookie-secret-file"] {
            writeln!(text, "  {option}: \"{}\"", folder.at(&format!("nsd.{option}")))
                .expect("writing to a string cannot fail");
        }
        writeln!(text, "  xfrdir: \"{}\"", folder.path().display()).expect("writing to a string cannot fail");
        write!(
            text,
            "remote-control:\n  control-enable: no\nzone:\n  name: {origin}\n  zonefile: \"{zone}\"\n"
        )
        .expect("writing to a string cannot fail");
        let mut command = Command::new("/usr/sbin/nsd");
        command.args(["-d", "-c", &folder.write("nsd.conf", text)]);
        let mut program = Program::spawn(command);
        program.line("nsd started");
        Peer { dns, program }
    }

    /// Starts Knot DNS with a zone file.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn knot(folder: &Folder, origin: &str, zone: &str) -> Peer {
        let dns = free_address();
        let run = folder.path().display();
        let text = format!(
            "server:\n  rundir: {run}\n  listen: {}@{}\n  udp-workers: 1\n  tcp-workers: 1\n  \
             background-workers: 1\ndatabase:\n  storage: {run}\nlog:\n  - target: stderr\n    any: info\n\
             zone:\n  - domain: {origin}\n    file: {zone}\n    zonefile-sync: -1\n    journal-content: none\n",
            dns.ip(),
            dns.port(),
        );
        let mut command = Command::new("/usr/sbin/knotd");
        command.args(["-c", &folder.write("knot.conf", text)]);
        let mut program = Program::spawn(command);
        program.line("loaded, serial");
        Peer { dns, program }
    }

    /// Starts Unbound, which validates what it is told: `anchor` is a file of keys that it trusts, and each zone of
    /// `stubs` is asked for at `server`.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn unbound(folder: &Folder, anchor: &str, stubs: &[&str], server: SocketAddr) -> Peer {
        let dns = free_address();
        let mut text = format!("server:\n  interface: {}@{}\n", dns.ip(), dns.port());
        for option in [
            "chroot: \"\"",
            "username: \"\"",
            "pidfile: \"\"",
            "use-syslog: no",
            "logfile: \"\"",
            "do-daemonize: no",
            "do-not-query-localhost: no",
            "num-threads: 1",
            // Each answer is to come from the server, none from another's proof.
            "aggressive-nsec: no",
            "qname-minimisation: no",
            "val-log-level: 2",
        ] {
            writeln!(text, "  {option}").expect("writing to a string cannot fail");
        }
        writeln!(text, "  directory: \"{}\"\n  trust-anchor-file: \"{anchor}\"", folder.path().display())
            .expect("writing to a string cannot fail");
        for stub in stubs {
            let (ip, port) = (server.ip(), server.port());
            write!(text, "stub-zone:\n  name: {stub}\n  stub-addr: {ip}@{port}\n")
                .expect("writing to a string cannot fail");
        }
        text += "remote-control:\n  control-enable: no\n";
        let mut command = Command::new("/usr/sbin/unbound");
        command.args(["-d", "-c", &folder.write("unbound.conf", text)]);
        let mut program = Program::spawn(command);
        program.line("start of service");
        Peer { dns, program }
    }
}

/// Unbound, as an answerer of everything under `example.com` over what is encrypted, too.
#[derive(Debug)]
pub struct Encrypted {
    /// The address that answers over UDP and TCP.
    pub dns: SocketAddr,
    /// The port for TLS.
    pub tls: u16,
    /// The port for HTTPS, at `/dns-query`.
    pub https: u16,
    /// The process.
    pub program: Program,
}

impl Encrypted {
    /// Starts it.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn unbound(folder: &Folder, certificate: &Certificate) -> Encrypted {
        let [dns, tls, https] = [free_address(), free_address(), free_address()];
        let mut text = String::from("server:\n");
        for address in [dns, tls, https] {
            writeln!(text, "  interface: {}@{}", address.ip(), address.port())
                .expect("writing to a string cannot fail");
        }
        for option in [
            format!("tls-port: {}", tls.port()),
            format!("https-port: {}", https.port()),
            format!("tls-service-pem: \"{}\"", certificate.certificate),
            format!("tls-service-key: \"{}\"", certificate.key),
            format!("directory: \"{}\"", folder.path().display()),
            "chroot: \"\"".into(),
            "username: \"\"".into(),
            "pidfile: \"\"".into(),
            "use-syslog: no".into(),
            "logfile: \"\"".into(),
            "do-daemonize: no".into(),
            "num-threads: 1".into(),
            "incoming-num-tcp: 300".into(),
            "local-zone: example.com. redirect".into(),
            "local-data: \"example.com. A 192.0.2.80\"".into(),
        ] {
            writeln!(text, "  {option}").expect("writing to a string cannot fail");
        }
        text += "remote-control:\n  control-enable: no\n";
        let mut command = Command::new("/usr/sbin/unbound");
        command.args(["-d", "-c", &folder.write("encrypted.conf", text)]);
        let mut program = Program::spawn(command);
        program.line("start of service");
        Encrypted { dns, tls: tls.port(), https: https.port(), program }
    }
}

/// Ports that Linux gives nobody by itself: a client's socket must not get a peer's port before the peer does.
const PORTS: Range<u16> = 20_000..32_000;

/// An address of loopback whose port was free for UDP and TCP a moment ago.
///
/// # Panics
/// Where there is none.
pub fn free_address() -> SocketAddr {
    for _ in 0..PORT_TRIES {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, fastrand::u16(PORTS)));
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no port is free for UDP and TCP alike");
}
