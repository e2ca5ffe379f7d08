//! The external proximity service that `serve` asks.

use std::time::Duration;

use super::{Default, Key, Section, TIME_CEILING, TIME_FLOOR};
use crate::config::kind::Kind;
use crate::config::spec::Spec;

/// The longest time that an answer from ignorance may be kept.
const IGNORANCE_CEILING: Duration = Duration::from_secs(10);

/// An external proximity service.
pub(super) const EXTERNAL: Section<Spec> = Section {
    name: "external",
    about: "An external proximity service: a program that says over TCP which region an address is in. It is asked about \
        clients of whom a partition says `?` (or ask = true), in the background; no query waits for it.",
    keys: &[
        Key {
            name: "service",
            flag: None,
            kind: Kind::Address(|s| &mut s.external_service),
            default: Default::Absent { means: "nobody is asked", example: "\"127.0.0.1:5310\"" },
            about: "Where the service listens.",
            consequence: "It learns the networks of clients; the connection is not encrypted. While it is away, clients \
                that are not known get the default column.",
        },
        Key {
            name: "ttl",
            flag: None,
            kind: Kind::Duration(|s| &mut s.external_ttl, Duration::from_secs(1)..=IGNORANCE_CEILING),
            default: Default::Value("\"10 s\""),
            about: "How long an answer may be kept by a client whose region is not known yet.",
            consequence: "For so long, at most, is a cache wrong; shorter brings more queries of new clients.",
        },
        Key {
            name: "life",
            flag: None,
            kind: Kind::Duration(|s| &mut s.external_life, Duration::from_secs(4)..=TIME_CEILING),
            default: Default::Value("\"1 h\""),
            about: "How long what the service said holds.",
            consequence: "In the last quarter of it, it is asked again about clients that still come.",
        },
        Key {
            name: "known",
            flag: None,
            kind: Kind::Integer(|s| &mut s.external_known, 16..=1 << 26),
            default: Default::Value("65536"),
            about: "How many blocks of addresses (an IPv4 /24, an IPv6 /56) are known at a time.",
            consequence: "Each takes 16 octets, made at start. Beyond it, what expires first is forgotten.",
        },
        Key {
            name: "waiting",
            flag: None,
            kind: Kind::Integer(|s| &mut s.external_waiting, 1..=1_000_000),
            default: Default::Value("4096"),
            about: "How many blocks may wait to be asked about.",
            consequence: "The newest are asked about first, and the oldest are dropped; one network has half at most.",
        },
        Key {
            name: "interval",
            flag: None,
            kind: Kind::Duration(|s| &mut s.external_interval, Duration::from_millis(1)..=TIME_CEILING),
            default: Default::Value("\"1 ms\""),
            about: "From one question to the next, in the long run.",
            consequence: "Longer spares the service and learns more slowly.",
        },
        Key {
            name: "timeout",
            flag: None,
            kind: Kind::Duration(|s| &mut s.external_timeout, TIME_FLOOR..=TIME_CEILING),
            default: Default::Value("\"2 s\""),
            about: "How long the service may take for an answer.",
            consequence: "Beyond it the connection is closed and made anew.",
        },
    ],
};
