//! Other people's servers, which ours is compared with: each on a port and in a folder of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

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
    /// Starts NSD with a zone file.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn nsd(folder: &Folder, origin: &str, zone: &str) -> Peer {
        let zones = format!("zone:\n  name: {origin}\n  zonefile: \"{zone}\"\n");
        Make::Nsd.start(folder, free_address(), &zones)
    }

    /// Starts Knot DNS with a zone file.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn knot(folder: &Folder, origin: &str, zone: &str) -> Peer {
        let zones = format!(
            "zone:\n  - domain: {origin}\n    file: {zone}\n    zonefile-sync: -1\n    journal-content: none\n"
        );
        Make::Knot.start(folder, free_address(), &zones)
    }

    /// Starts Unbound, which validates what it is told: `anchor` is a file of keys that it trusts, and each zone of
    /// `stubs` is asked for at `server`.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn unbound(folder: &Folder, anchor: &str, stubs: &[&str], server: SocketAddr) -> Peer {
        let dns = free_address();
        let (ip, port) = (server.ip(), server.port());
        let stub = |name: &&str| format!("stub-zone:\n  name: {name}\n  stub-addr: {ip}@{port}\n");
        let stubs: String = stubs.iter().map(stub).collect();
        let options = [
            &format!("trust-anchor-file: \"{anchor}\"")[..],
            "do-not-query-localhost: no",
            // Each answer is to come from the server, none from another's proof.
            "aggressive-nsec: no",
            "qname-minimisation: no",
            "val-log-level: 2",
        ];
        Peer { dns, program: unbound(folder, &[dns], &options, &stubs) }
    }
}

/// A make of name server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make {
    /// NSD.
    Nsd,
    /// Knot DNS.
    Knot,
    /// BIND.
    Bind,
}

impl Make {
    /// Starts a server at `dns` with this configuration of its keys and zones; all else is as a test needs it.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn start(self, folder: &Folder, dns: SocketAddr, zones: &str) -> Peer {
        let place = folder.path().display();
        let (ip, port) = (dns.ip(), dns.port());
        let (mut command, said) = match self {
            Make::Nsd => {
                let text = nsd(folder.path(), dns, "  server-count: 1\n  minimal-responses: yes\n", zones);
                let mut command = Command::new("/usr/sbin/nsd");
                command.args(["-d", "-c", &folder.write("nsd.conf", text)]);
                (command, "nsd started")
            }
            Make::Knot => {
                let text = format!(
                    "server:\n  rundir: {place}\n  listen: {ip}@{port}\n  udp-workers: 1\n  tcp-workers: 1\n  \
                     background-workers: 1\ndatabase:\n  storage: {place}\nlog:\n  - target: stderr\n    any: info\n\
                     template:\n  - id: default\n    storage: {place}\n{zones}"
                );
                let mut command = Command::new("/usr/sbin/knotd");
                command.args(["-c", &folder.write("knot.conf", text)]);
                (command, "server started")
            }
            Make::Bind => {
                let text = format!(
                    "options {{\n  directory \"{place}\";\n  pid-file none;\n  session-keyfile none;\n  recursion no;\n  \
                     notify no;\n  dnssec-validation no;\n  listen-on port {port} {{ {ip}; }};\n  \
                     listen-on-v6 {{ none; }};\n}};\ncontrols {{ }};\n{zones}"
                );
                let mut command = Command::new("/usr/sbin/named");
                command.args(["-g", "-n", "1", "-c", &folder.write("named.conf", text)]);
                (command, "all zones loaded")
            }
        };
        command.current_dir(folder.path());
        let mut program = Program::spawn(command);
        program.line(said);
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
        let options = [
            &format!("tls-port: {}", tls.port())[..],
            &format!("https-port: {}", https.port()),
            &format!("tls-service-pem: \"{}\"", certificate.certificate),
            &format!("tls-service-key: \"{}\"", certificate.key),
            "incoming-num-tcp: 300",
            "local-zone: example.com. redirect",
            "local-data: \"example.com. A 192.0.2.80\"",
        ];
        let program = unbound(folder, &[dns, tls, https], &options, "");
        Encrypted { dns, tls: tls.port(), https: https.port(), program }
    }
}

/// Starts Unbound at these addresses, with further options of its server clause and further clauses.
fn unbound(folder: &Folder, addresses: &[SocketAddr], options: &[&str], clauses: &str) -> Program {
    let mut text = String::from("server:\n");
    for address in addresses {
        text += &format!("  interface: {}@{}\n", address.ip(), address.port());
    }
    let directory = format!("directory: \"{}\"", folder.path().display());
    let usual = ["chroot: \"\"", "username: \"\"", "pidfile: \"\"", "use-syslog: no", "logfile: \"\""];
    for option in usual.iter().chain(&["do-daemonize: no", "num-threads: 1", &directory]).chain(options) {
        text += &format!("  {option}\n");
    }
    text = text + "remote-control:\n  control-enable: no\n" + clauses;
    let mut command = Command::new("/usr/sbin/unbound");
    command.args(["-d", "-c", &folder.write("unbound.conf", text)]);
    let mut program = Program::spawn(command);
    program.line("start of service");
    program
}

/// The configuration of an NSD with its files in a folder, with `more` lines of its server clause, and further clauses,
/// which are its zones. Rates are not limited: that is for strangers.
pub fn nsd(folder: &Path, address: SocketAddr, more: &str, clauses: &str) -> String {
    let (ip, port, folder) = (address.ip(), address.port(), folder.display());
    format!(
        "server:\n  ip-address: {ip}@{port}\n  username: \"\"\n  chroot: \"\"\n  database: \"\"\n  \
         zonesdir: \"{folder}\"\n  pidfile: \"{folder}/nsd.pid\"\n  xfrdfile: \"{folder}/nsd.xfrd\"\n  \
         zonelistfile: \"{folder}/nsd.list\"\n  cookie-secret-file: \"{folder}/nsd.cookie\"\n  \
         xfrdir: \"{folder}\"\n  rrl-ratelimit: 0\n  rrl-whitelist-ratelimit: 0\n{more}\
         remote-control:\n  control-enable: no\n{clauses}",
    )
}

/// Ports that Linux gives nobody by itself: a client's socket must not get a peer's port before the peer does.
const PORTS: Range<u16> = 20_000..32_000;

/// How many of them this process has looked at: nobody is told one that another is about to take.
static LOOKED_AT: AtomicU32 = AtomicU32::new(0);

/// An address of loopback whose port was free for UDP and TCP a moment ago.
///
/// # Panics
/// Where there is none.
pub fn free_address() -> SocketAddr {
    find_address().expect("a port is free for UDP and TCP alike")
}

/// As [`free_address`]; `None` where there is none.
pub fn find_address() -> Option<SocketAddr> {
    // Processes begin at different ports.
    let begin = std::process::id().wrapping_mul(61);
    let mut tries = (0..PORT_TRIES).map(|_| {
        let step = begin.wrapping_add(LOOKED_AT.fetch_add(1, Ordering::Relaxed)) % PORTS.len() as u32;
        SocketAddr::from((Ipv4Addr::LOCALHOST, PORTS.start + step as u16))
    });
    tries.find(|address| !is_taken(address.port()))
}

/// Whether any socket of this machine has the port. That is read and not tried: a process that is begun meanwhile would have
/// the socket that it is tried with, too, until it has become the program that it is to be.
fn is_taken(port: u16) -> bool {
    ["tcp", "tcp6", "udp", "udp6"].into_iter().any(|transport| {
        let table = std::fs::read_to_string(format!("/proc/net/{transport}")).unwrap_or_default();
        let own =
            |line: &str| line.split_whitespace().nth(1)?.rsplit_once(':').map(|(_, port)| port.to_owned());
        table.lines().skip(1).filter_map(own).any(|own| u16::from_str_radix(&own, 16) == Ok(port))
    })
}
