//! Every key of the control process's configuration, declared once.

use std::time::Duration;

use super::spec::{ControlSpec, ServerSpec, SourceSpec};
use crate::config::keys::{Default, Key, Section};
use crate::config::kind::Kind;

/// The shortest interval: a round takes some connections.
const INTERVAL_FLOOR: Duration = Duration::from_millis(100);

/// The longest time of any key here: a day.
const TIME_CEILING: Duration = Duration::from_secs(86_400);

/// The most that nearer servers are favoured: the second nearest then counts a thousandth.
const FAVOUR_CEILING: f64 = 10.0;

/// The keys above all headings.
pub(crate) const CONTROL: Section<ControlSpec> = Section {
    name: "",
    about: "",
    keys: &[
        Key {
            name: "version",
            flag: None,
            kind: Kind::Version(|s| &mut s.version),
            default: Default::Required("\"v1\""),
            about: "The form of this file.",
            consequence: "It must be there: a later form will not be mistaken for this one.",
        },
        Key {
            name: "policy",
            flag: None,
            kind: Kind::Name(|s| &mut s.policy, "the first name of a policy"),
            default: Default::Required("\"www.example.com\""),
            about: "The policy whose rows are decided.",
            consequence: "It must be there already: names, partition and servers are the operator's, and `control` writes \
                their rows alone. A server that is not in it is left out, one that is not configured here keeps its shares.",
        },
        Key {
            name: "api",
            flag: None,
            kind: Kind::Name(|s| &mut s.api, "a URL such as http://127.0.0.1:8053"),
            default: Default::Value("\"http://127.0.0.1:8053\""),
            about: "The name server's API.",
            consequence: "While it cannot be reached, what serves goes on.",
        },
        Key {
            name: "token_file",
            flag: None,
            kind: Kind::Path(|s| &mut s.token_file),
            default: Default::Absent { means: "no token is sent", example: "\"/etc/pointsman/token\"" },
            about: "A file with the token that the API asks for, on one line.",
            consequence: "A file that others may read is refused. It is read once, at start.",
        },
        Key {
            name: "algorithm",
            flag: None,
            kind: Kind::Choice(|s| &mut s.algorithm, &["I", "II", "III"]),
            default: Default::Value("\"III\""),
            about: "The algorithm that decides.",
            consequence: "I: the nearest servers that are not overloaded. II: watermarks, nearer servers favoured. Both \
                are MyXDNS's, and both oscillate. III, ours: the nearest servers up to their capacity, steadily.",
        },
        Key {
            name: "interval",
            flag: None,
            kind: Kind::Duration(|s| &mut s.interval, INTERVAL_FLOOR..=TIME_CEILING),
            default: Default::Value("\"10 s\""),
            about: "How long apart rounds are.",
            consequence: "A round measures all loads, decides, and installs what has changed.",
        },
        Key {
            name: "timeout",
            flag: None,
            kind: Kind::Duration(|s| &mut s.timeout, INTERVAL_FLOOR..=TIME_CEILING),
            default: Default::Absent { means: "2 s, or interval where that is shorter", example: "\"2 s\"" },
            about: "How long a source may take.",
            consequence: "All are asked at once, up to 64 at a time. Where servers times sources are more, a round may take \
                so long for every 64 of them.",
        },
        Key {
            name: "stale",
            flag: None,
            kind: Kind::Duration(|s| &mut s.stale, INTERVAL_FLOOR..=TIME_CEILING),
            default: Default::Absent {
                means: "30 s, or three times interval where that is longer",
                example: "\"30 s\"",
            },
            about: "How old the last good value of a source may be.",
            consequence: "Beyond, the server's load is unknown: it keeps the shares that it has.",
        },
        Key {
            name: "ttl",
            flag: None,
            kind: Kind::Duration(|s| &mut s.ttl, Duration::from_secs(1)..=TIME_CEILING),
            default: Default::Value("\"30 s\""),
            about: "The TTL of the rows, in whole seconds.",
            consequence: "A change needs as long to reach the clients of caches.",
        },
        Key {
            name: "favour",
            flag: None,
            kind: Kind::Number(|s| &mut s.favour, 0.0..=FAVOUR_CEILING),
            default: Default::Value("1.0"),
            about: "Algorithm II: how much nearer servers are favoured.",
            consequence: "A weight is divided by rank to this power: with 0 ranks do not matter, with 1 the second \
                nearest counts half as much as the nearest.",
        },
        Key {
            name: "fill",
            flag: None,
            kind: Kind::Number(|s| &mut s.fill, f64::MIN_POSITIVE..=1.0),
            default: Default::Value("0.9"),
            about: "Algorithm III: up to which share of its threshold a server is filled while others have room.",
            consequence: "The rest is for what chance brings.",
        },
        Key {
            name: "step",
            flag: None,
            // Less at each of a server's addresses is no change (`control::matrix`).
            kind: Kind::Number(|s| &mut s.step, 0.01..=1.0),
            default: Default::Value("0.25"),
            about: "Algorithm III: the most that a share changes in a round.",
            consequence: "Smaller is slower, and calmer where a source says something wrong.",
        },
        Key {
            name: "hysteresis",
            flag: None,
            kind: Kind::Number(|s| &mut s.hysteresis, 0.0..=1.0),
            default: Default::Value("0.05"),
            about: "Algorithm III: the change of a share up to which all stays as it is.",
            consequence: "It must be below step.",
        },
        Key {
            name: "listen",
            flag: None,
            kind: Kind::Address(|s| &mut s.listen),
            default: Default::Absent { means: "there is no such face", example: "\"127.0.0.1:8056\"" },
            about: "The address of the HTTP face: reports of loads, the last round, metrics.",
            consequence: "Any address but a loopback one needs a report_token_file, and the token crosses the network \
                unencrypted.",
        },
        Key {
            name: "report_token_file",
            flag: None,
            kind: Kind::Path(|s| &mut s.report_token_file),
            default: Default::Absent {
                means: "the face asks for no token and takes no reports",
                example: "\"/etc/pointsman/report-token\"",
            },
            about: "A file with the token that the face asks for, on one line.",
            consequence: "Servers that report send it as `Authorization: Bearer TOKEN`. A file that others may read is \
                refused. It is read once, at start.",
        },
        Key {
            name: "log",
            flag: None,
            kind: Kind::Choice(|s| &mut s.log, &["text", "json"]),
            default: Default::Value("\"text\""),
            about: "The form of log lines, on stderr.",
            consequence: "json is an object a line.",
        },
    ],
};

/// The keys of a source of loads.
pub(crate) const SOURCE: Section<SourceSpec> = Section {
    name: "source",
    about: "A source of loads; the heading may be repeated. A server's load is the weighted mean of what its sources say, \
        but where one is above its threshold it is that one's. Where one says nothing, the load is unknown. In url, \
        pointer, metric and command, {address} stands for the server's address.",
    keys: &[
        Key {
            name: "name",
            flag: None,
            kind: Kind::Name(|s| &mut s.name, "a name of the source"),
            default: Default::Required("\"cpu\""),
            about: "The source's name.",
            consequence: "Reports, metrics and the log have it.",
        },
        Key {
            name: "kind",
            flag: None,
            kind: Kind::Choice(|s| &mut s.kind, &["json", "prometheus", "command", "push"]),
            default: Default::Required("\"json\""),
            about: "Where its values are from.",
            consequence: "json: a number of a JSON document (url, pointer). prometheus: a metric of a page in \
                Prometheus's text format (url, metric). command: what a command prints (command, after). push: what the \
                servers report (PUT /v1/loads/NAME/ADDRESS at listen).",
        },
        Key {
            name: "url",
            flag: None,
            kind: Kind::Name(|s| &mut s.url, "a URL such as http://{address}:9100/metrics"),
            default: Default::Absent {
                means: "kind is command or push",
                example: "\"http://{address}:9100/metrics\"",
            },
            about: "Where the document or page is.",
            consequence: "It is asked over plain HTTP in every round.",
        },
        Key {
            name: "pointer",
            flag: None,
            kind: Kind::Name(|s| &mut s.pointer, "a JSON pointer (RFC 6901) such as /load/1"),
            default: Default::Absent { means: "the document is the number", example: "\"/load\"" },
            about: "Where the number is in the document (RFC 6901).",
            consequence: "A text is no number.",
        },
        Key {
            name: "metric",
            flag: None,
            kind: Kind::Name(
                |s| &mut s.metric,
                "a metric such as node_load1 or requests_total{code=\"200\"}",
            ),
            default: Default::Absent { means: "kind is not prometheus", example: "\"node_load1\"" },
            about: "The metric, with labels that it must have.",
            consequence: "Where several samples match, their sum counts.",
        },
        Key {
            name: "command",
            flag: None,
            kind: Kind::Texts(|s| &mut s.command, "a program and its arguments"),
            default: Default::Absent {
                means: "kind is not command",
                example: "[\"ssh\", \"{address}\", \"uptime\"]",
            },
            about: "The program and its arguments.",
            consequence: "It is run without a shell, in the folder of this file, for each server in every round.",
        },
        Key {
            name: "after",
            flag: None,
            kind: Kind::Name(|s| &mut s.after, "a text that the command prints"),
            default: Default::Absent { means: "the first number counts", example: "\"load average:\"" },
            about: "The text behind which the number stands in what the command prints.",
            consequence: "Without the text there is no value.",
        },
        Key {
            name: "per_second",
            flag: None,
            kind: Kind::Boolean(|s| &mut s.per_second),
            default: Default::Value("false"),
            about: "Whether the value is a count that grows, and the load is how much in a second.",
            consequence: "The first value says nothing yet, nor does one that is smaller than the last.",
        },
        Key {
            name: "threshold",
            flag: None,
            kind: Kind::Number(|s| &mut s.threshold, f64::MIN_POSITIVE..=f64::MAX),
            default: Default::Absent { means: "that of high", example: "0.5" },
            about: "The value above which a server is overloaded.",
            consequence: "Algorithms I and III need it.",
        },
        Key {
            name: "low",
            flag: None,
            kind: Kind::Number(|s| &mut s.low, 0.0..=f64::MAX),
            default: Default::Absent { means: "0", example: "0.4" },
            about: "The low watermark: up to it a server has its whole weight.",
            consequence: "Algorithm II needs it. It must be below high.",
        },
        Key {
            name: "high",
            flag: None,
            kind: Kind::Number(|s| &mut s.high, f64::MIN_POSITIVE..=f64::MAX),
            default: Default::Absent { means: "that of threshold", example: "0.6" },
            about: "The high watermark: from it on a server has no weight.",
            consequence: "Algorithm II needs it.",
        },
        Key {
            name: "weight",
            flag: None,
            kind: Kind::Number(|s| &mut s.weight, f64::MIN_POSITIVE..=f64::MAX),
            default: Default::Value("1.0"),
            about: "How much the source counts beside the others.",
            consequence: "Only below the thresholds: one resource that is used up is not made up for by others.",
        },
    ],
};

/// The keys of a server.
pub(crate) const SERVER: Section<ServerSpec> = Section {
    name: "server",
    about: "A server; the heading may be repeated.",
    keys: &[
        Key {
            name: "address",
            flag: None,
            kind: Kind::Target(|s| &mut s.address),
            default: Default::Required("\"192.0.2.1\""),
            about: "Its address, as the policy has it; its name, where the policy's servers are names.",
            consequence: "Its load is asked for there, where a source says {address}.",
        },
        Key {
            name: "also",
            flag: None,
            kind: Kind::Ips(|s| &mut s.also),
            default: Default::Absent { means: "none", example: "[\"2001:db8::1\"]" },
            about: "Further addresses of the same machine; a name has none.",
            consequence: "They have the same load, and the same shares among those of their family.",
        },
        Key {
            name: "capacity",
            flag: None,
            kind: Kind::Number(|s| &mut s.capacity, f64::MIN_POSITIVE..=f64::MAX),
            default: Default::Value("1.0"),
            about: "How much it can take at its threshold, beside the others.",
            consequence: "Algorithm III is steady while this is right to a factor of two.",
        },
        Key {
            name: "ranks",
            flag: None,
            kind: Kind::Ranks(|s| &mut s.ranks),
            default: Default::Absent {
                means: "there are no regions, and only the default column is decided",
                example: "{ europe = 1, asia = 2 }",
            },
            about: "How near it is to each region: 1 is nearest, ranks need not be unique.",
            consequence: "Every server ranks every region. The largest rank is the number of regions, or that of servers \
                where they are more.",
        },
    ],
};
