//! Who takes zones and is told of changes.

use super::{Default, Key, Section};
use crate::config::kind::Kind;
use crate::config::spec::SecondarySpec;

/// Who takes zones and is told of changes; there may be several.
pub(crate) const SECONDARY: Section<SecondarySpec> = Section {
    name: "secondary",
    about: "Servers that follow our zones; the heading may be repeated. A zone that no heading names is given to \
        nobody.",
    keys: &[
        Key {
            name: "zones",
            flag: None,
            kind: Kind::Zones(|s| &mut s.zones),
            default: Default::Absent { means: "all zones", example: "[\"example.com\"]" },
            about: "The zones that they follow.",
            consequence: "A change of such a zone must have a greater serial (RFC 1982), or it is refused. A zone with \
                policies is never given away, for a secondary could not steer: in a zone that is named here, policies \
                are refused.",
        },
        Key {
            name: "catalog",
            flag: None,
            kind: Kind::Name(|s| &mut s.catalog, "the name of a zone, which is made"),
            default: Default::Absent { means: "there is none", example: "\"catalog.example\"" },
            about: "A catalog zone (RFC 9432) that is made of those zones and given to them, too: so that they need not be told \
                of each new zone.",
            consequence: "A zone with policies is not in it. Headings may share one. Clients are refused all of it but its SOA \
                record.",
        },
        Key {
            name: "from",
            flag: None,
            kind: Kind::Prefixes(|s| &mut s.from),
            default: Default::Absent {
                means: "any address, but then there must be a key",
                example: "[\"192.0.2.53\", \"2001:db8::/32\"]",
            },
            about: "The addresses that may take the zones (AXFR, IXFR).",
            consequence: "Beside a key both must hold. Addresses alone can be claimed by whoever sits on the way.",
        },
        Key {
            name: "key",
            flag: None,
            kind: Kind::Name(|s| &mut s.key, "the name of a key in tsig_keys"),
            default: Default::Absent { means: "requests need not be signed", example: "\"ns2.example.com\"" },
            about: "The TSIG key that their requests must be signed with.",
            consequence: "Notifications to them are signed with it, too.",
        },
        Key {
            name: "notify",
            flag: None,
            kind: Kind::Addresses(|s| &mut s.notify),
            default: Default::Absent { means: "nobody is told", example: "[\"192.0.2.53:53\"]" },
            about: "Where NOTIFY is sent when a zone has a new serial, at start, and to who is new on SIGHUP.",
            consequence: "Without it they ask again only as often as the SOA record says. It is sent up to six \
                times within two minutes, from an address of listen of the same family that is not loopback: the one by which \
                the system reaches a secondary, else the first; where there is none, the system chooses.",
        },
    ],
};
