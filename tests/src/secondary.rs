//! Other people's servers that follow a zone of ours.

use std::net::SocketAddr;

use crate::folder::Folder;
use crate::peer::Peer;

pub use crate::peer::Make;

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

impl Make {
    /// Starts a server that does what it is told.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn follow(self, folder: &Folder, follows: &Follows<'_>) -> Peer {
        let zones = match self {
            Make::Nsd => nsd_zone(follows),
            Make::Knot => knot_zone(follows),
            Make::Bind => bind_zone(follows),
        };
        self.start(folder, follows.dns, &zones)
    }
}

fn nsd_zone(follows: &Follows<'_>) -> String {
    let &Follows { zone, primary, key, .. } = follows;
    let (described, named) = key.map_or((String::new(), "NOKEY"), |Key { algorithm, name, secret }| {
        (format!("key:\n  name: {name}\n  algorithm: {algorithm}\n  secret: \"{secret}\"\n"), name)
    });
    format!(
        "{described}zone:\n  name: {zone}\n  zonefile: \"nsd.zone\"\n  request-xfr: {}@{} {named}\n  \
         allow-notify: {} {named}\n",
        primary.ip(),
        primary.port(),
        primary.ip(),
    )
}

fn knot_zone(follows: &Follows<'_>) -> String {
    let &Follows { zone, primary, key, .. } = follows;
    let (described, named) = key.map_or_else(Default::default, |Key { algorithm, name, secret }| {
        let described = format!("key:\n  - id: {name}\n    algorithm: {algorithm}\n    secret: {secret}\n");
        (described, format!("    key: {name}\n"))
    });
    format!(
        "{described}remote:\n  - id: primary\n    address: {}@{}\n{named}acl:\n  - id: told\n    address: {}\n{named}    \
         action: notify\nzone:\n  - domain: {zone}\n    file: knot.zone\n    master: primary\n    acl: told\n",
        primary.ip(),
        primary.port(),
        primary.ip(),
    )
}

fn bind_zone(follows: &Follows<'_>) -> String {
    let &Follows { zone, primary, key, .. } = follows;
    let (described, named, told) = match key {
        None => (String::new(), String::new(), primary.ip().to_string()),
        Some(Key { algorithm, name, secret }) => (
            format!("key \"{name}\" {{ algorithm {algorithm}; secret \"{secret}\"; }};\n"),
            format!(" key \"{name}\""),
            format!("key \"{name}\""),
        ),
    };
    format!(
        "{described}zone \"{zone}\" {{\n  type secondary;\n  file \"named.zone\";\n  \
         primaries {{ {} port {}{named}; }};\n  allow-notify {{ {told}; }};\n}};\n",
        primary.ip(),
        primary.port(),
    )
}
