//! What clients may take of a name server.

use nameserver::rate_limit::{PER_SECOND_MAX, WINDOW_MAX};

use super::{Default, Key, Section, TIME_CEILING, TIME_FLOOR};
use crate::config::kind::Kind;
use crate::config::spec::Spec;

/// The most TCP connections that can be chosen: each takes a file descriptor and a task.
const CONNECTIONS_CEILING: u64 = 1_000_000;

/// The most limited answers of which one slips: beyond, hardly any does.
const SLIP_CEILING: u64 = 100;

/// What TCP clients may hold.
pub(super) const TCP: Section<Spec> = Section {
    name: "tcp",
    about: "What clients over TCP and TLS may hold, at all addresses of listen and tls_listen together.",
    keys: &[
        Key {
            name: "connections_max",
            flag: None,
            kind: Kind::Integer(|s| &mut s.connections_max, 1..=CONNECTIONS_CEILING),
            default: Default::Value("800"),
            about: "How many connections may be open at a time.",
            consequence: "For each further one, another gives way: the one that has waited longest for its client, to ask \
                or to take its answers, later where it has asked before. Each takes a file descriptor: the hard limit \
                (`ulimit -Hn`) must be larger, else a start warns.",
        },
        Key {
            name: "per_client_max",
            flag: None,
            kind: Kind::Integer(|s| &mut s.per_client_max, 1..=CONNECTIONS_CEILING),
            default: Default::Value("100"),
            about: "How many of them one IPv4 address or one IPv6 /64 may have.",
            consequence: "Too few shuts out resolvers that share an address; too many lets one client take all places.",
        },
        Key {
            name: "idle",
            flag: None,
            kind: Kind::Duration(|s| &mut s.idle, TIME_FLOOR..=TIME_CEILING),
            default: Default::Value("\"10 s\""),
            about: "How long a connection may be open without a query under way.",
            consequence: "Longer saves resolvers from connecting again, and keeps places taken (RFC 7766 §6.2.3).",
        },
        Key {
            name: "idle_when_crowded",
            flag: None,
            kind: Kind::Duration(|s| &mut s.idle_when_crowded, TIME_FLOOR..=TIME_CEILING),
            default: Default::Value("\"1 s\""),
            about: "What idle becomes while more than half of connections_max are open.",
            consequence: "Below the time to a client and back, connections end before their first query comes.",
        },
        Key {
            name: "message",
            flag: None,
            kind: Kind::Duration(|s| &mut s.message, TIME_FLOOR..=TIME_CEILING),
            default: Default::Value("\"5 s\""),
            about: "How long one message may take from its first octet to its last, and a client over TLS to come to terms.",
            consequence: "It is what ends clients that send or take an octet now and then.",
        },
        Key {
            name: "lifetime",
            flag: None,
            kind: Kind::Duration(|s| &mut s.lifetime, TIME_FLOOR..=TIME_CEILING),
            default: Default::Value("\"10 min\""),
            about: "How long a connection may be open at all.",
            consequence: "A busy one ends between two answers, so that places change hands.",
        },
    ],
};

/// How many like answers a network gets.
pub(super) const RATE_LIMIT: Section<Spec> = Section {
    name: "rate_limit",
    about: "How many like answers go to one network over UDP, all addresses of listen together. Answers are alike that \
        are about the same name and type, or say of the same zone or delegation that a name is not there or elsewhere, \
        or are errors.",
    keys: &[
        Key {
            name: "responses_per_second",
            flag: None,
            kind: Kind::Integer(|s| &mut s.responses_per_second, 1..=PER_SECOND_MAX as u64),
            default: Default::Absent { means: "nothing is limited", example: "100" },
            about: "How many of them go out in a second, in the long run.",
            consequence: "More are dropped, or truncated now and then. Valid cookies and TCP are exempt. Too few hurts \
                large resolvers that know no cookies.",
        },
        Key {
            name: "window",
            flag: None,
            kind: Kind::Duration(|s| &mut s.window, TIME_FLOOR..=WINDOW_MAX),
            default: Default::Value("\"1 s\""),
            about: "For how long a silent network saves up answers, which then may go out at once.",
            consequence: "Longer lets larger bursts through; the rate in the long run is the same.",
        },
        Key {
            name: "slip",
            flag: None,
            kind: Kind::Integer(|s| &mut s.slip, 0..=SLIP_CEILING),
            default: Default::Value("2"),
            about: "One in so many limited answers goes out truncated, so that a real client comes over TCP.",
            consequence: "1 drops none and reflects as many packets as come in, each no larger than its query; 0 drops \
                all, and shuts real clients out with the forged ones. Who knows cookies gets BADCOOKIE instead.",
        },
        Key {
            name: "ipv4_prefix_bits",
            flag: None,
            kind: Kind::Integer(|s| &mut s.ipv4_prefix_bits, 0..=32),
            default: Default::Value("24"),
            about: "How many bits of an IPv4 address are one network.",
            consequence: "A forger can choose all addresses of the network that it floods.",
        },
        Key {
            name: "ipv6_prefix_bits",
            flag: None,
            kind: Kind::Integer(|s| &mut s.ipv6_prefix_bits, 0..=128),
            default: Default::Value("56"),
            about: "How many bits of an IPv6 address are one network.",
            consequence: "As for ipv4_prefix_bits.",
        },
    ],
};
