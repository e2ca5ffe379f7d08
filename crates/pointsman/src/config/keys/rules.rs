//! Which queries go to which back ends of `pointsman balance`.

use super::{Default, Key, Section};
use crate::config::kind::Kind;
use crate::config::spec::{PoolSpec, RuleSpec};
use balancer::rules::PER_SECOND_MAX;

/// Further back ends, for what rules send there; there may be several.
pub(crate) const POOL: Section<PoolSpec> = Section {
    name: "balance.pool",
    about: "Back ends for the queries that rules send there; the heading may be repeated, 31 times at most. Those of \
        `backend` above are the pool `default`, which takes all else. Pools are read at start only; back ends come and go over \
        HTTP (pointsman balance add --pool NAME).",
    keys: &[
        Key {
            name: "name",
            flag: None,
            kind: Kind::Name(|s| &mut s.name, "at most 63 letters, digits, '-' or '_'"),
            default: Default::Required("\"corp\""),
            about: "What rules call it.",
            consequence: "It is shown with each back end.",
        },
        Key {
            name: "backend",
            flag: None,
            kind: Kind::BackEnds(|s| &mut s.backend),
            default: Default::Required("[\"192.0.2.11:53\"]"),
            about: "The name servers that answer.",
            consequence: "One may be in several pools, with the same weight in each.",
        },
    ],
};

/// Which queries go where, and what is answered here instead; there may be several.
pub(crate) const RULE: Section<RuleSpec> = Section {
    name: "balance.rule",
    about: "Which queries go to which pool, or what is answered instead; the heading may be repeated, 64 times at most. Of the \
        rules that a query meets the first one decides. It meets a rule where all holds that the rule names. Rules are read \
        at start, and on SIGHUP. docs/concepts/balance-rules.md (of the package: /usr/share/doc/pointsman) says more.",
    keys: &[
        Key {
            name: "name",
            flag: None,
            kind: Kind::Name(|s| &mut s.name, "at most 63 letters, digits, '-' or '_'"),
            default: Default::Required("\"corp\""),
            about: "What it is called in `pointsman balance status` and in metrics.",
            consequence: "Each rule has its own.",
        },
        Key {
            name: "names",
            flag: None,
            kind: Kind::Zones(|s| &mut s.names),
            default: Default::Absent {
                means: "any name",
                example: "[\"corp.example.com\", \"10.in-addr.arpa\"]",
            },
            about: "It is for these names and all below them.",
            consequence: "All rules together may have 100000. How many there are costs a query nothing.",
        },
        Key {
            name: "names_files",
            flag: None,
            kind: Kind::Paths(|s| &mut s.names_files),
            default: Default::Absent { means: "none", example: "[\"/etc/pointsman/blocked.txt\"]" },
            about: "Files with further such names, one a line; what stands behind a # is passed over.",
            consequence: "They are read at start, before the user changes, and on SIGHUP.",
        },
        Key {
            name: "types",
            flag: None,
            kind: Kind::Texts(|s| &mut s.types, "types of records, such as A or TYPE65"),
            default: Default::Absent { means: "any type", example: "[\"ANY\", \"HINFO\"]" },
            about: "It is for these types.",
            consequence: "ANY is the type that is asked for, not all types.",
        },
        Key {
            name: "clients",
            flag: None,
            kind: Kind::Prefixes(|s| &mut s.clients),
            default: Default::Absent { means: "any client", example: "[\"10.0.0.0/8\", \"2001:db8::/32\"]" },
            about: "It is for clients of these networks.",
            consequence: "They are looked through one by one; all rules together may have 1024.",
        },
        Key {
            name: "per_second",
            flag: None,
            kind: Kind::Integer(|s| &mut s.per_second, 1..=PER_SECOND_MAX as u64),
            default: Default::Absent { means: "all of them", example: "100" },
            about: "It is for what one client asks beyond so many such queries a second: an IPv4 address or an IPv6 /64.",
            consequence: "Whoever forges addresses has that many for each; `truncated` has real clients ask again over TCP.",
        },
        Key {
            name: "pool",
            flag: None,
            kind: Kind::Name(|s| &mut s.pool, "the name of a pool"),
            default: Default::Absent { means: "they have an `answer` or `addresses`", example: "\"corp\"" },
            about: "The pool that takes them.",
            consequence: "`default` is the one of `backend`: so some queries are left out of the rules below.",
        },
        Key {
            name: "answer",
            flag: None,
            kind: Kind::Choice(|s| &mut s.answer, &["refused", "nxdomain", "nodata", "truncated", "nothing"]),
            default: Default::Absent { means: "they have a `pool` or `addresses`", example: "\"refused\"" },
            about: "What is answered here instead.",
            consequence: "nxdomain: there is no such name; nodata: nothing of that type. Over TCP truncated passes the rule over, \
                and nothing is REFUSED. Clients that speak EDNS are told that it is the operator's will (extended error).",
        },
        Key {
            name: "addresses",
            flag: None,
            kind: Kind::Ips(|s| &mut s.addresses),
            default: Default::Absent {
                means: "they have a `pool` or an `answer`",
                example: "[\"192.0.2.80\", \"2001:db8::80\"]",
            },
            about: "The addresses that are answered here instead, to A those of IPv4 and to AAAA those of IPv6, for 60 s.",
            consequence: "Other types have no records. At most 8 of each family. Who validates does not believe it of a name \
                that is signed.",
        },
    ],
};
