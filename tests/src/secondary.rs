//! Other people's servers that follow a zone of ours.

use std::net::SocketAddr;
use std::process::Command;

use crate::folder::Folder;
use crate::peer::Peer;
use crate::program::Program;

/// A TSIG key.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// Its algorithm, such as `hmac-sha256`.
    pub algorithm: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its secret in base64.
    pub secret: &'a str,
}

impl Key<'_> {
    /// The key as `dig -y` and `tsig_keys` take it.
    pub fn line(&self) -> String {
        format!("{}:{}:{}", self.algorithm, self.name, self.secret)
    }
}

/// What a secondary is told.
#[derive(Clone, Copy, Debug)]
pub struct Follows<'a> {
    /// The address that it answers at; see [`free_address`](crate::peer::free_address).
    pub dns: SocketAddr,
    /// The zone.
    pub zone: &'a str,
    /// Where the zone comes from, and notifications of it.
    pub primary: SocketAddr,
    /// What requests and notifications are signed with.
    pub key: Option<Key<'a>>,
}

/// Starts NSD.
///
/// # Panics
/// Where it does not start.
pub fn nsd(folder: &Folder, follows: &Follows<'_>) -> Peer {
    let &Follows { dns, zone, primary, key } = follows;
    let place = folder.path().display();
    let files: String = ["pidfile", "xfrdfile", "zonelistfile", "cookie-secret-file"]
        .iter()
        .map(|option| format!("  {option}: \"{place}/nsd.{option}\"\n"))
        .collect();
    let (described, named) = key.map_or((String::new(), "NOKEY"), |Key { algorithm, name, secret }| {
        (format!("key:\n  name: {name}\n  algorithm: {algorithm}\n  secret: \"{secret}\"\n"), name)
    });
    let text = format!(
        "server:\n  ip-address: {}@{}\n  server-count: 1\n  username: \"\"\n  database: \"\"\n  zonesdir: \"\"\n\
         {files}  xfrdir: \"{place}\"\nremote-control:\n  control-enable: no\n{described}zone:\n  name: {zone}\n  \
         zonefile: \"{place}/nsd.zone\"\n  request-xfr: {}@{} {named}\n  allow-notify: {} {named}\n",
        dns.ip(),
        dns.port(),
        primary.ip(),
        primary.port(),
        primary.ip(),
    );
    let mut command = Command::new("/usr/sbin/nsd");
    command.args(["-d", "-c", &folder.write("nsd.conf", text)]);
    start(command, "nsd started", dns)
}

/// Starts Knot DNS.
///
/// # Panics
/// Where it does not start.
pub fn knot(folder: &Folder, follows: &Follows<'_>) -> Peer {
    let &Follows { dns, zone, primary, key } = follows;
    let run = folder.path().display();
    let (described, named) = key.map_or_else(Default::default, |Key { algorithm, name, secret }| {
        let described = format!("key:\n  - id: {name}\n    algorithm: {algorithm}\n    secret: {secret}\n");
        (described, format!("    key: {name}\n"))
    });
    let text = format!(
        "server:\n  rundir: {run}\n  listen: {}@{}\n  udp-workers: 1\n  tcp-workers: 1\n  background-workers: 1\n\
         database:\n  storage: {run}\nlog:\n  - target: stderr\n    any: info\n{described}remote:\n  \
         - id: primary\n    address: {}@{}\n{named}acl:\n  - id: told\n    address: {}\n{named}    action: notify\n\
         zone:\n  - domain: {zone}\n    file: {run}/knot.zone\n    master: primary\n    acl: told\n",
        dns.ip(),
        dns.port(),
        primary.ip(),
        primary.port(),
        primary.ip(),
    );
    let mut command = Command::new("/usr/sbin/knotd");
    command.args(["-c", &folder.write("knot.conf", text)]);
    start(command, "server started", dns)
}

/// Starts BIND.
///
/// # Panics
/// Where it does not start.
pub fn bind(folder: &Folder, follows: &Follows<'_>) -> Peer {
    let &Follows { dns, zone, primary, key } = follows;
    let place = folder.path().display();
    let (described, named, told) = match key {
        None => (String::new(), String::new(), primary.ip().to_string()),
        Some(Key { algorithm, name, secret }) => (
            format!("key \"{name}\" {{ algorithm {algorithm}; secret \"{secret}\"; }};\n"),
            format!(" key \"{name}\""),
            format!("key \"{name}\""),
        ),
    };
    let text = format!(
        "options {{\n  directory \"{place}\";\n  pid-file none;\n  session-keyfile none;\n  recursion no;\n  \
         notify no;\n  dnssec-validation no;\n  listen-on port {} {{ {}; }};\n  \
         listen-on-v6 {{ none; }};\n}};\ncontrols {{ }};\n{described}zone \"{zone}\" {{\n  type secondary;\n  file \"named.zone\";\n  \
         primaries {{ {} port {}{named}; }};\n  allow-notify {{ {told}; }};\n}};\n",
        dns.port(),
        dns.ip(),
        primary.ip(),
        primary.port(),
    );
    let mut command = Command::new("/usr/sbin/named");
    command.args(["-g", "-n", "1", "-c", &folder.write("named.conf", text)]);
    start(command, " running", dns)
}

fn start(command: Command, said: &str, dns: SocketAddr) -> Peer {
    let mut program = Program::spawn(command);
    program.line(said);
    Peer { dns, program }
}
