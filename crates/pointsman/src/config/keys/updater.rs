//! Who changes zones by updates.

use super::{Default, Key, Section};
use crate::config::kind::Kind;
use crate::config::spec::UpdaterSpec;

/// Who changes zones by updates; there may be several.
pub(crate) const UPDATER: Section<UpdaterSpec> = Section {
    name: "updater",
    about: "Who may change zones with DNS UPDATE (RFC 2136), such as nsupdate, an ACME client or external-dns sends it; the \
        heading may be repeated. An update is made whole or not at all, and answered when it is stored and served. Each of its \
        changes must be allowed by one heading; without any, updates are answered NOTIMP.",
    keys: &[
        Key {
            name: "key",
            flag: None,
            kind: Kind::Name(|s| &mut s.key, "the name of a key in tsig_keys"),
            default: Default::Required("\"acme.example.com\""),
            about: "The TSIG key that updates must be signed with.",
            consequence: "Who has it may change all that this heading allows; an address alone allows nothing.",
        },
        Key {
            name: "zones",
            flag: None,
            kind: Kind::Zones(|s| &mut s.zones),
            default: Default::Absent { means: "all zones", example: "[\"example.com\"]" },
            about: "The zones that may be changed.",
            consequence: "Zones that a primary gives us, and zones that others have signed, cannot be changed here.",
        },
        Key {
            name: "names",
            flag: None,
            kind: Kind::Names(|s| &mut s.names),
            default: Default::Absent { means: "all names", example: "[\"_acme-challenge.*.example.com\"]" },
            about: "The names whose records may be changed, each with all names below it; a label * stands for any one label.",
            consequence: "Give an ACME client the names of its challenges alone, so that its key is worth nothing else.",
        },
        Key {
            name: "types",
            flag: None,
            kind: Kind::Texts(|s| &mut s.types, "types of records, such as TXT or TYPE65"),
            default: Default::Absent { means: "all types", example: "[\"TXT\"]" },
            about: "The types of records that may be changed.",
            consequence: "With it, nobody deletes all that a name has, whatever its types are, in one go.",
        },
        Key {
            name: "from",
            flag: None,
            kind: Kind::Prefixes(|s| &mut s.from),
            default: Default::Absent { means: "any address", example: "[\"192.0.2.80\", \"2001:db8::/32\"]" },
            about: "The addresses that updates may come from.",
            consequence: "Beside the key, not in its place.",
        },
    ],
};
