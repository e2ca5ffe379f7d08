//! How servers are probed.

use nameserver::health::probe::{INTERVAL_MAX, INTERVAL_MIN, STREAK_MAX};

use super::{Default, Key, Section};
use crate::config::kind::Kind;
use crate::config::spec::ProbeSpec;

/// How servers are probed; there may be several ways.
pub(crate) const PROBE: Section<ProbeSpec> = Section {
    name: "probe",
    about: "A way to find out whether a server can be used; the heading may be repeated. It probes those servers of \
        policies that name it, as long as they do, from this process and beside the answers.",
    keys: &[
        Key {
            name: "name",
            flag: None,
            kind: Kind::Name(|s| &mut s.name, "at most 63 letters, digits, '-' or '_'"),
            default: Default::Required("\"web\""),
            about: "What policies call it.",
            consequence: "A server of a policy that has `\"probe\": \"web\"` is probed so. A stored policy with a name that \
                stands here no more has its servers taken to be well, and the log says so.",
        },
        Key {
            name: "check",
            flag: None,
            kind: Kind::Choice(|s| &mut s.check, &["tcp", "http", "https", "command"]),
            default: Default::Required("\"http\""),
            about: "What is done: connect, get a page, or run a command.",
            consequence: "tcp passes once the connection is made, http and https by the status code of the answer, whose \
                body is not read, and a command by exit code 0.",
        },
        Key {
            name: "port",
            flag: None,
            kind: Kind::Integer(|s| &mut s.port, 1..=65_535),
            default: Default::Absent { means: "80 for http, 443 for https", example: "8080" },
            about: "The port of the server to connect to; tcp must have one.",
            consequence: "A command has none.",
        },
        Key {
            name: "path",
            flag: None,
            kind: Kind::Name(|s| &mut s.path, "a path from its slash on, of visible ASCII"),
            default: Default::Absent { means: "\"/\"", example: "\"/health\"" },
            about: "The page that http and https get.",
            consequence: "It is asked for each time, so it should cost the server little.",
        },
        Key {
            name: "host",
            flag: None,
            kind: Kind::Name(|s| &mut s.host, "the name of a host"),
            default: Default::Absent { means: "the server's address", example: "\"www.example.com\"" },
            about: "The host that http and https ask for.",
            consequence: "The certificate must be for it.",
        },
        Key {
            name: "status",
            flag: None,
            kind: Kind::Name(|s| &mut s.status, "a status code or a range of them, such as 200 or 200-399"),
            default: Default::Absent { means: "\"200-399\"", example: "\"200\"" },
            about: "The status codes by which http and https pass.",
            consequence: "Redirections are not followed.",
        },
        Key {
            name: "certificate",
            flag: None,
            kind: Kind::Choice(|s| &mut s.certificate, &["valid", "any"]),
            default: Default::Absent { means: "\"valid\"", example: "\"valid\"" },
            about: "Whether https asks for a valid certificate.",
            consequence: "With any, an expired one or one for another host passes, which browsers would refuse.",
        },
        Key {
            name: "authorities",
            flag: None,
            kind: Kind::Path(|s| &mut s.authorities),
            default: Default::Absent {
                means: "\"/etc/ssl/certs/ca-certificates.crt\"",
                example: "\"/etc/pointsman/authorities.pem\"",
            },
            about: "Whose certificates https believes: a file in PEM form.",
            consequence: "It is read once, at start.",
        },
        Key {
            name: "command",
            flag: None,
            kind: Kind::Texts(|s| &mut s.command, "the full path of a program, and its arguments"),
            default: Default::Absent {
                means: "there is none",
                example: "[\"/usr/lib/nagios/plugins/check_ssh\", \"{server}\"]",
            },
            about: "The program that check = \"command\" runs, by its full path, and its arguments.",
            consequence: "No shell sees it. {server} in an argument is the server's address, as is POINTSMAN_SERVER in \
                the environment. It runs as this server's user; what it still does after timeout is ended, with all \
                that it started. The first line that it prints is told with the result.",
        },
        Key {
            name: "interval",
            flag: None,
            kind: Kind::Duration(|s| &mut s.interval, INTERVAL_MIN..=INTERVAL_MAX),
            default: Default::Absent { means: "\"10 s\"", example: "\"10 s\"" },
            about: "The time from one probe of a server to the next.",
            consequence: "Each is up to a tenth longer or shorter, so that probes do not come all at once. At most 64 run at \
                a time; others wait, and are counted.",
        },
        Key {
            name: "timeout",
            flag: None,
            kind: Kind::Duration(|s| &mut s.timeout, INTERVAL_MIN..=INTERVAL_MAX),
            default: Default::Absent {
                means: "\"2 s\", or the interval where that is shorter",
                example: "\"2 s\"",
            },
            about: "How long a probe may take; at most the interval.",
            consequence: "What takes longer has failed.",
        },
        Key {
            name: "rise",
            flag: None,
            kind: Kind::Integer(|s| &mut s.rise, 1..=STREAK_MAX as u64),
            default: Default::Absent { means: "2", example: "2" },
            about: "How many probes in a row must pass until a server that fails is drawn again.",
            consequence: "More keeps one that comes and goes out for longer.",
        },
        Key {
            name: "fall",
            flag: None,
            kind: Kind::Integer(|s| &mut s.fall, 1..=STREAK_MAX as u64),
            default: Default::Absent { means: "3", example: "3" },
            about: "How many in a row must fail until it is not drawn any more.",
            consequence: "With 1, a single lost packet takes a server out. The very first probe of a server decides alone.",
        },
    ],
};
