//! Who is told of queries and answers.

use super::{Default, Key, Section};
use crate::config::kind::Kind;
use crate::config::spec::DnstapSpec;

/// The most queries of which one is tapped: beyond, a busy server tells of one in seconds.
const SAMPLE_CEILING: u64 = 1_000_000;

/// Who is told of queries and answers.
pub(crate) const DNSTAP: Section<DnstapSpec> = Section {
    name: "dnstap",
    about: "Queries and answers for programs that watch (dnstap.info), to a socket or into a file. They never wait for \
        who reads: what does not fit 1 MiB for each worker is dropped and counted. What stands under [balance.dnstap] is of \
        the balancer's clients.",
    keys: &[
        Key {
            name: "socket",
            flag: None,
            kind: Kind::Path(|s| &mut s.socket),
            default: Default::Absent { means: "file, or nothing", example: "\"/run/dnstap.sock\"" },
            about: "The Unix stream socket of who reads, such as fstrm_capture.",
            consequence: "While nobody listens there, it is tried again, at least every 10 s.",
        },
        Key {
            name: "file",
            flag: None,
            kind: Kind::Path(|s| &mut s.file),
            default: Default::Absent {
                means: "socket, or nothing",
                example: "\"/var/lib/pointsman/pointsman.dnstap\"",
            },
            about: "The file to write; not beside socket.",
            consequence: "At start and on SIGHUP a file begins; an older one of that name is renamed, the Unix time \
                behind its name. None is ever removed: it is for a while, or for a job that removes.",
        },
        Key {
            name: "file_max",
            flag: None,
            kind: Kind::Octets(|s| &mut s.file_max, 64 << 10..=1 << 40),
            default: Default::Value("\"1 GiB\""),
            about: "How large the file may become.",
            consequence: "Then it is ended in good order, and what comes is lost and counted, until SIGHUP begins another.",
        },
        Key {
            name: "sample",
            flag: None,
            kind: Kind::Integer(|s| &mut s.sample, 1..=SAMPLE_CEILING),
            default: Default::Value("1"),
            about: "One query in so many of each worker is told, with its answer.",
            consequence: "With 1, all are; more spares processor time.",
        },
        Key {
            name: "messages",
            flag: None,
            kind: Kind::Words(|s| &mut s.messages, &["query", "response"]),
            default: Default::Value("[\"query\", \"response\"]"),
            about: "Whether queries (AUTH_QUERY, of the balancer CLIENT_QUERY), answers (AUTH_RESPONSE, CLIENT_RESPONSE) or both \
                are told.",
            consequence: "A transfer is told by its query only.",
        },
        Key {
            name: "identity",
            flag: None,
            kind: Kind::Name(|s| &mut s.identity, "a text of at most 64 octets"),
            default: Default::Absent { means: "nsid of serve, or none", example: "\"fra1\"" },
            about: "How this server is called in the messages.",
            consequence: "It tells the messages of several servers apart.",
        },
    ],
};
