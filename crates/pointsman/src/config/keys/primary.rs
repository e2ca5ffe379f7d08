//! Who gives us zones.

use super::{Default, Key, Section};
use crate::config::kind::Kind;
use crate::config::spec::PrimarySpec;

/// Who gives us zones; there may be several.
pub(crate) const PRIMARY: Section<PrimarySpec> = Section {
    name: "primary",
    about: "Servers that give us zones, of which we are a secondary; the heading may be repeated. A zone is taken at start, \
        after each NOTIFY, and as often as its SOA record says, with IXFR or AXFR over TCP or TLS; it is kept in the store. \
        One that is not confirmed for as long as that record allows is answered SERVFAIL.",
    keys: &[
        Key {
            name: "zones",
            flag: None,
            kind: Kind::Zones(|s| &mut s.zones),
            default: Default::Absent {
                means: "those of catalogs",
                example: "[\"example.com\", \"example.net\"]",
            },
            about: "The zones that it gives us.",
            consequence: "Nobody else may put or delete them, neither the API nor `zone`. Policies may have names in them. A \
                zone that is no longer named stays, as it was taken last.",
        },
        Key {
            name: "catalogs",
            flag: None,
            kind: Kind::Zones(|s| &mut s.catalogs),
            default: Default::Absent { means: "none", example: "[\"catalog.example\"]" },
            about: "Catalog zones (RFC 9432, version 2): it gives us the zones that they list, too.",
            consequence: "A zone comes when it is listed, and is deleted when it is listed no more. One that is here otherwise, \
                or that another catalog lists, stays as it is. Clients are refused all of a catalog but its SOA record.",
        },
        Key {
            name: "addresses",
            flag: None,
            kind: Kind::Addresses(|s| &mut s.addresses),
            default: Default::Required("[\"192.0.2.1:53\", \"[2001:db8::1]:53\"]"),
            about: "Where it is asked: in this order, but who sent NOTIFY first, until one answers.",
            consequence: "NOTIFY is taken from these addresses only, from any port. It is asked from an address of listen, as \
                notify of a secondary is sent.",
        },
        Key {
            name: "key",
            flag: None,
            kind: Kind::Name(|s| &mut s.key, "the name of a key in tsig_keys"),
            default: Default::Absent { means: "nothing is signed", example: "\"ns2.example.com\"" },
            about: "The TSIG key that our requests are signed with, and that answers and NOTIFY must be signed with.",
            consequence: "Without it, and without tls, whoever sits on the way may change the zones.",
        },
        Key {
            name: "tls",
            flag: None,
            kind: Kind::Name(|s| &mut s.tls, "the name or address that its certificate is for"),
            default: Default::Absent { means: "it is asked over TCP", example: "\"ns1.example.com\"" },
            about: "The name by which its certificate is believed: it is asked over TLS (RFC 9103).",
            consequence: "Its addresses are those where it answers so, usually at port 853. NOTIFY comes as ever, \
                unencrypted; it says that there is something new, and not what.",
        },
        Key {
            name: "authorities",
            flag: None,
            kind: Kind::Path(|s| &mut s.authorities),
            default: Default::Absent {
                means: "\"/etc/ssl/certs/ca-certificates.crt\"",
                example: "\"/etc/pointsman/authorities.pem\"",
            },
            about: "Whose certificates are believed: a file in PEM form, which may be the primary's own.",
            consequence: "It is read at start, and on SIGHUP.",
        },
    ],
};
