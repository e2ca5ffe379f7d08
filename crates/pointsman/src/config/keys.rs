//! Every key of the configuration, declared once.
//!
//! From these tables come the reader of the file, the flags of `serve`, the defaults, the template
//! `etc/pointsman.template.toml` and the page `docs/reference/configuration.md`.

use std::time::Duration;

use nameserver::health::probe::{INTERVAL_MAX, INTERVAL_MIN, STREAK_MAX};
use nameserver::rate_limit::{PER_SECOND_MAX, WINDOW_MAX};
use nameserver::server::WORKERS_MAX;
use reverse::cache::LIMIT_MIN;
use reverse::face::mmdb::{SIZE_MAX, SIZE_MIN};

use super::kind::Kind;
use super::spec::{BalanceSpec, PartitionSpec, ProbeSpec, ReverseSpec, SecondarySpec, Spec};

/// A key: what it is called, what it may be, and what follows from it.
pub(crate) struct Key<S: 'static> {
    /// Its name in the file.
    pub(crate) name: &'static str,
    /// The flag over it, which is the name with hyphens.
    pub(crate) flag: Option<&'static str>,
    /// What its value may be.
    pub(crate) kind: Kind<S>,
    /// What holds where it is not given.
    pub(crate) default: Default,
    /// What it is, in one sentence.
    pub(crate) about: &'static str,
    /// What follows from choosing it.
    pub(crate) consequence: &'static str,
}

/// What holds where a key is not given; values as the file has them.
pub(crate) enum Default {
    /// This value.
    Value(&'static str),
    /// No value, which means what is said; with a value to show how one is written.
    Absent { means: &'static str, example: &'static str },
    /// The key must be there, with such a value.
    Required(&'static str),
}

/// A part of the file: the keys under one heading.
pub(crate) struct Section<S: 'static> {
    /// The heading; empty for the keys above all headings.
    pub(crate) name: &'static str,
    /// What the keys are about.
    pub(crate) about: &'static str,
    /// The keys, in reading order.
    pub(crate) keys: &'static [Key<S>],
}

impl Default {
    /// The value as the template shows it.
    pub(crate) fn shown(&self) -> &'static str {
        match self {
            Default::Value(value) | Default::Required(value) => value,
            Default::Absent { example, .. } => example,
        }
    }
}

impl<S> Section<S> {
    /// The key of this name.
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key<S>> {
        self.keys.iter().find(|key| key.name == name)
    }
}

/// The largest UDP payload that can be chosen, in octets: the most that RFC 9715 §3.1 recommends, which an Ethernet
/// carries with room for a tunnel's headers.
const UDP_PAYLOAD_CEILING: u64 = 1400;

/// The most TCP connections that can be chosen: each takes a file descriptor and a task.
const CONNECTIONS_CEILING: u64 = 1_000_000;

/// The longest time that a TCP limit can be: longer ones protect nothing.
const TIME_CEILING: Duration = Duration::from_secs(24 * 3600);

/// The shortest time that a TCP limit can be: the way to a client and back takes as long.
const TIME_FLOOR: Duration = Duration::from_millis(100);

/// The most limited answers of which one slips: beyond, hardly any does.
const SLIP_CEILING: u64 = 100;

/// The most queries of which one is tapped: beyond, a busy server tells of one in seconds.
const SAMPLE_CEILING: u64 = 1_000_000;

/// The longest time that a question may wait for a name: resolver libraries give up after 5 s.
const WAIT_CEILING: Duration = Duration::from_secs(4);

/// The keys above all headings; each has a flag, but for the version.
pub(crate) const SERVER: Section<Spec> = Section {
    name: "",
    about: "",
    keys: &[
        Key {
            name: "version",
            flag: None,
            kind: Kind::Version(|s| &mut s.version),
            default: Default::Required("\"v1\""),
            about: "The form of this file.",
            consequence: "It is the only key that must be there: a later form will not be mistaken for this one.",
        },
        Key {
            name: "listen",
            flag: Some("listen"),
            kind: Kind::Addresses(|s| &mut s.listen),
            default: Default::Value("[\"127.0.0.1:5300\"]"),
            about: "The addresses at which queries are answered, over UDP and TCP.",
            consequence: "The default is seen by this machine only and needs no rights; DNS itself uses port 53. Each \
                address has its own workers.",
        },
        Key {
            name: "api",
            flag: Some("api"),
            kind: Kind::Address(|s| &mut s.api),
            default: Default::Value("\"127.0.0.1:8053\""),
            about: "The address of the HTTP API.",
            consequence: "Whoever reaches it can change every answer: any address but a loopback one needs a \
                token_file, and the token crosses the network unencrypted.",
        },
        Key {
            name: "token_file",
            flag: Some("token-file"),
            kind: Kind::Path(|s| &mut s.token_file),
            default: Default::Absent {
                means: "the API asks for no token",
                example: "\"/etc/pointsman/token\"",
            },
            about: "A file with the token that the API asks for, on one line.",
            consequence: "Requests without `Authorization: Bearer TOKEN` are refused. It is read once, at start.",
        },
        Key {
            name: "store",
            flag: Some("store"),
            kind: Kind::Store(|s| &mut s.store),
            default: Default::Value("\"sqlite:./pointsman.db\""),
            about: "Where zones, regions, partitions, policies and server states are kept.",
            consequence: "`sqlite:PATH` is created where there is none; one server has it open at a time. \
                `postgres://USER@HOST/DATABASE` and `mysql://USER@HOST/DATABASE` (MariaDB) must exist, and any number of \
                servers share it; no log shows its password. It is the truth: what it has and no import names \
                stays.",
        },
        Key {
            name: "user",
            flag: Some("user"),
            kind: Kind::Name(|s| &mut s.user, "the name of a user of this system"),
            default: Default::Absent {
                means: "the server stays the user that started it",
                example: "\"pointsman\"",
            },
            about: "The user to become once all ports are bound.",
            consequence: "For a start as root, which port 53 may need. Store and imported files are used as this user.",
        },
        Key {
            name: "workers",
            flag: Some("workers"),
            kind: Kind::Integer(|s| &mut s.workers, 1..=WORKERS_MAX as u64),
            default: Default::Absent { means: "one for each core", example: "2" },
            about: "How many threads answer UDP queries at each address.",
            consequence: "More than there are cores is slower.",
        },
        Key {
            name: "zone",
            flag: Some("zone"),
            kind: Kind::Paths(|s| &mut s.zone),
            default: Default::Absent { means: "none", example: "[\"example.com.zone\"]" },
            about: "Master files (RFC 1035) to import.",
            consequence: "They are read at start and on SIGHUP, and put into the store where their content has \
                changed; all of them or none.",
        },
        Key {
            name: "policy",
            flag: Some("policy"),
            kind: Kind::Paths(|s| &mut s.policy),
            default: Default::Absent { means: "none", example: "[\"www.json\"]" },
            about: "Policies (JSON) to import.",
            consequence: "As for zone.",
        },
        Key {
            name: "tsig_keys",
            flag: Some("tsig-keys"),
            kind: Kind::Paths(|s| &mut s.tsig_keys),
            default: Default::Absent { means: "none", example: "[\"/etc/pointsman/tsig.keys\"]" },
            about: "Files with TSIG keys, one a line: `algorithm:name:secret`, as `dig -y` takes them.",
            consequence: "Queries signed with such a key are verified and their answers signed (RFC 8945). A file that \
                others may read is refused. They are read once, at start, before the user changes. The algorithms are \
                hmac-sha256, hmac-sha384 and hmac-sha512, and hmac-sha1 for secondaries that know nothing better.",
        },
        Key {
            name: "minimal_responses",
            flag: Some("minimal-responses"),
            kind: Kind::Boolean(|s| &mut s.minimal_responses),
            default: Default::Value("true"),
            about: "Whether positive answers leave out the zone's NS set.",
            consequence: "With false it stands in AUTHORITY, which resolvers do not need and which makes answers \
                larger.",
        },
        Key {
            name: "udp_payload_max",
            flag: Some("udp-payload-max"),
            kind: Kind::Octets(|s| &mut s.udp_payload_max, 512..=UDP_PAYLOAD_CEILING),
            default: Default::Value("\"1232 B\""),
            about: "The largest UDP answer, also told to clients (EDNS).",
            consequence: "What is larger is truncated and asked again over TCP. 1232 B cross any network in one \
                piece, 1400 B most (RFC 9715); fragments get lost, and can be forged.",
        },
        Key {
            name: "cookies",
            flag: Some("cookies"),
            kind: Kind::Choice(|s| &mut s.cookies, &["off", "on", "require"]),
            default: Default::Value("\"on\""),
            about: "Whether clients get DNS cookies (RFC 7873), by which they prove their addresses.",
            consequence: "With require, a client that sends a cookie without a valid part of ours is answered \
                BADCOOKIE over UDP, and asks again. Clients without cookies are answered whatever stands here.",
        },
        Key {
            name: "cookie_secrets",
            flag: Some("cookie-secrets"),
            kind: Kind::Path(|s| &mut s.cookie_secrets),
            default: Default::Absent {
                means: "one secret, drawn anew at each start",
                example: "\"/etc/pointsman/cookie.secrets\"",
            },
            about: "A file with the secrets of cookies, each 32 hexadecimal digits on a line of its own.",
            consequence: "Servers behind one address need the same. The first makes cookies, all check them. Others \
                than its owner and group may have no right to it (mode 600 or 640). Read again on SIGHUP.",
        },
        Key {
            name: "nsid",
            flag: Some("nsid"),
            kind: Kind::Name(|s| &mut s.nsid, "a text of at most 64 octets"),
            default: Default::Absent { means: "the server keeps it to itself", example: "\"fra1\"" },
            about: "What this server is called among those that answer alike: NSID (RFC 5001), id.server, hostname.bind.",
            consequence: "Whoever asks can tell which server answered; without it those names are refused.",
        },
        Key {
            name: "hide_version",
            flag: Some("hide-version"),
            kind: Kind::Boolean(|s| &mut s.hide_version),
            default: Default::Value("false"),
            about: "Whether version.bind and version.server are refused.",
            consequence: "With false they answer the program's name and version.",
        },
        Key {
            name: "seed",
            flag: Some("seed"),
            kind: Kind::Integer(|s| &mut s.seed, 0..=i64::MAX as u64),
            default: Default::Absent { means: "drawn anew at each start", example: "1" },
            about: "What all random draws begin with.",
            consequence: "With a fixed seed whoever knows it can foresee the draws: for experiments only.",
        },
        Key {
            name: "log",
            flag: Some("log"),
            kind: Kind::Choice(|s| &mut s.log, &["text", "json"]),
            default: Default::Value("\"text\""),
            about: "The form of log lines, which go to stderr.",
            consequence: "With json each line is an object, for programs that collect logs.",
        },
        Key {
            name: "log_level",
            flag: Some("log-level"),
            kind: Kind::Choice(|s| &mut s.log_level, &["error", "warn", "info", "debug", "trace"]),
            default: Default::Value("\"info\""),
            about: "The least important kind of event that is logged.",
            consequence: "Queries are never logged, whatever the level; they are counted.",
        },
    ],
};

/// What TCP clients may hold.
pub(crate) const TCP: Section<Spec> = Section {
    name: "tcp",
    about: "What TCP clients may hold, at all addresses of listen together.",
    keys: &[
        Key {
            name: "connections_max",
            flag: None,
            kind: Kind::Integer(|s| &mut s.connections_max, 1..=CONNECTIONS_CEILING),
            default: Default::Value("800"),
            about: "How many connections may be open at a time.",
            consequence: "For each further one, another gives way that waits for a query, first of all one that never \
                asked; where none waits, it is closed at once. Each takes a file descriptor: the hard limit \
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
            about: "How long one message may take from its first octet to its last.",
            consequence: "It is what ends clients that send or take an octet now and then.",
        },
        Key {
            name: "lifetime",
            flag: None,
            kind: Kind::Duration(|s| &mut s.lifetime, TIME_FLOOR..=TIME_CEILING),
            default: Default::Value("\"10 min\""),
            about: "How long a connection may be open at all.",
            consequence: "A busy one ends between two messages, so that places change hands.",
        },
    ],
};

/// How many like answers a network gets.
pub(crate) const RATE_LIMIT: Section<Spec> = Section {
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

/// Who is told of queries and answers.
pub(crate) const DNSTAP: Section<Spec> = Section {
    name: "dnstap",
    about: "Queries and answers for programs that watch (dnstap.info), to a socket or into a file. They never wait for \
        who reads: what does not fit 1 MiB for each worker is dropped and counted.",
    keys: &[
        Key {
            name: "socket",
            flag: None,
            kind: Kind::Path(|s| &mut s.dnstap_socket),
            default: Default::Absent { means: "file, or nothing", example: "\"/run/dnstap.sock\"" },
            about: "The Unix stream socket of who reads, such as fstrm_capture.",
            consequence: "While nobody listens there, it is tried again, at least every 10 s.",
        },
        Key {
            name: "file",
            flag: None,
            kind: Kind::Path(|s| &mut s.dnstap_file),
            default: Default::Absent { means: "socket, or nothing", example: "\"pointsman.dnstap\"" },
            about: "The file to write; not beside socket.",
            consequence: "At start and on SIGHUP a file begins; an older one of that name is renamed, the Unix time \
                behind its name. None is ever removed: it is for a while, or for a job that removes.",
        },
        Key {
            name: "file_max",
            flag: None,
            kind: Kind::Octets(|s| &mut s.dnstap_file_max, 64 << 10..=1 << 40),
            default: Default::Value("\"1 GiB\""),
            about: "How large the file may become.",
            consequence: "Then it is ended in good order, and what comes is lost and counted, until SIGHUP begins another.",
        },
        Key {
            name: "sample",
            flag: None,
            kind: Kind::Integer(|s| &mut s.dnstap_sample, 1..=SAMPLE_CEILING),
            default: Default::Value("1"),
            about: "One query in so many of each worker is told, with its answer.",
            consequence: "With 1, all are; more spares processor time.",
        },
        Key {
            name: "messages",
            flag: None,
            kind: Kind::Words(|s| &mut s.dnstap_messages, &["query", "response"]),
            default: Default::Value("[\"query\", \"response\"]"),
            about: "Whether queries (AUTH_QUERY), answers (AUTH_RESPONSE) or both are told.",
            consequence: "A transfer is told by its query only.",
        },
        Key {
            name: "identity",
            flag: None,
            kind: Kind::Name(|s| &mut s.dnstap_identity, "a text of at most 64 octets"),
            default: Default::Absent { means: "nsid, or none", example: "\"fra1\"" },
            about: "How this server is called in the messages.",
            consequence: "It tells the messages of several servers apart.",
        },
    ],
};

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
            about: "Where NOTIFY is sent when a zone has a new serial, and at start.",
            consequence: "Without it they ask again only as often as the SOA record says. It is sent from the first \
                address of listen of the same family, and repeated up to six times within two minutes.",
        },
    ],
};

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

/// The longest time that is chosen for anything of `reverse` but names: beyond, it is as good as never.
const PATIENCE_CEILING: Duration = Duration::from_secs(24 * 3600);

/// The longest time for which names are kept or served: longer than anybody's.
const LIFE_CEILING: Duration = Duration::from_secs(365 * 24 * 3600);

/// The largest cache that can be chosen, in octets: more than all addresses of IPv4 take.
const MEMORY_CEILING: u64 = 1 << 40;

/// What `pointsman reverse` needs; each key has a flag.
pub(crate) const REVERSE: Section<ReverseSpec> = Section {
    name: "reverse",
    about: "What `pointsman reverse` needs; `serve` does not look at it, nor that at anything else.",
    keys: &[
        Key {
            name: "upstream",
            flag: Some("upstream"),
            kind: Kind::Resolvers(|s| &mut s.upstream),
            default: Default::Absent { means: "the service does not start", example: "[\"192.0.2.53\"]" },
            about: "The resolvers that are asked, in turn.",
            consequence: "One that does not answer is left out for a while, unless all do.",
        },
        Key {
            name: "dns",
            flag: Some("dns"),
            kind: Kind::Waiting(|s| &mut s.dns, Duration::ZERO..=WAIT_CEILING),
            default: Default::Absent { means: "DNS is not answered", example: "[\"127.0.0.1:5353\"]" },
            about: "The addresses at which DNS is answered, over UDP and TCP; behind a +, how long questions wait there.",
            consequence: "Any program that asks for names of addresses works unchanged.",
        },
        Key {
            name: "resp",
            flag: Some("resp"),
            kind: Kind::Addresses(|s| &mut s.resp),
            default: Default::Absent {
                means: "the Redis protocol is not answered",
                example: "[\"127.0.0.1:6379\"]",
            },
            about: "The addresses at which the Redis protocol is answered.",
            consequence: "Clients of Redis ask with an address as key, and never wait.",
        },
        Key {
            name: "rapid",
            flag: Some("rapid"),
            kind: Kind::Addresses(|s| &mut s.rapid),
            default: Default::Absent {
                means: "the protocol of Rapid DNS is not answered",
                example: "[\"127.0.0.1:5354\"]",
            },
            about: "The addresses at which the protocol of Rapid DNS is answered.",
            consequence: "It has IPv4 only, and no difference between no name and not yet.",
        },
        Key {
            name: "http",
            flag: Some("http"),
            kind: Kind::Addresses(|s| &mut s.http),
            default: Default::Absent { means: "HTTP is not answered", example: "[\"127.0.0.1:8054\"]" },
            about: "The addresses at which HTTP is answered: names, checks of web servers' clients, status and metrics.",
            consequence: "It is not encrypted, and asks for no token.",
        },
        Key {
            name: "client_header",
            flag: Some("client-header"),
            kind: Kind::Name(
                |s| &mut s.client_header,
                "the name of a header such as x-real-ip or x-forwarded-for",
            ),
            default: Default::Value("\"x-real-ip\""),
            about: "The header of a check over HTTP that says who the client is: its last address.",
            consequence: "What a web server does not set itself, its clients can.",
        },
        Key {
            name: "believe",
            flag: Some("believe"),
            kind: Kind::Prefixes(|s| &mut s.believe),
            default: Default::Absent { means: "nobody", example: "[\"192.0.2.80\"]" },
            about: "From whom that header is believed, beside loopback.",
            consequence: "For all others, the client is who asks.",
        },
        Key {
            name: "not_yet",
            flag: Some("not-yet"),
            kind: Kind::Choice(|s| &mut s.not_yet, &["allow", "deny"]),
            default: Default::Value("\"allow\""),
            about: "What a check answers for a client that is not known yet, unless the request says it.",
            consequence: "With deny, a crawler's first request is refused, and it comes again.",
        },
        Key {
            name: "mmdb",
            flag: Some("mmdb"),
            kind: Kind::Path(|s| &mut s.mmdb),
            default: Default::Absent { means: "none is written", example: "\"/run/pointsman/names.mmdb\"" },
            about: "A MaxMind database to write the names into, for programs that read such files.",
            consequence: "It is replaced whole, and everybody who may enter its folder may read it.",
        },
        Key {
            name: "mmdb_interval",
            flag: Some("mmdb-interval"),
            kind: Kind::Duration(|s| &mut s.mmdb_interval, Duration::from_secs(1)..=PATIENCE_CEILING),
            default: Default::Value("\"1 min\""),
            about: "From one MaxMind database to the next.",
            consequence: "A name is in it so much later than it was learned.",
        },
        Key {
            name: "mmdb_size",
            flag: Some("mmdb-size"),
            kind: Kind::Octets(|s| &mut s.mmdb_size, SIZE_MIN as u64..=SIZE_MAX as u64),
            default: Default::Value("\"256 MiB\""),
            about: "How large the MaxMind database may get.",
            consequence: "Names beyond that are left out, by chance. While it is made it is in memory.",
        },
        Key {
            name: "wait",
            flag: Some("wait"),
            kind: Kind::Duration(|s| &mut s.wait, Duration::ZERO..=WAIT_CEILING),
            default: Default::Value("\"0 ms\""),
            about: "How long a DNS question over UDP waits for a name that is not known yet, at addresses of dns that \
                do not say it.",
            consequence: "For clients that cannot ask twice. 4,096 wait at a time; the addresses of dns must then be \
                those of one interface.",
        },
        Key {
            name: "workers",
            flag: Some("workers"),
            kind: Kind::Integer(|s| &mut s.workers, 1..=256),
            default: Default::Absent { means: "one for each core", example: "2" },
            about: "How many threads answer UDP questions at each address of dns.",
            consequence: "More than there are cores is slower.",
        },
        Key {
            name: "allow",
            flag: Some("allow"),
            kind: Kind::Prefixes(|s| &mut s.allow),
            default: Default::Absent { means: "nobody", example: "[\"192.0.2.0/24\"]" },
            about: "The clients that may ask, beside loopback.",
            consequence: "The cache is a list of visitors. An address that is not loopback needs at least one.",
        },
        Key {
            name: "interval",
            flag: Some("interval"),
            kind: Kind::Duration(|s| &mut s.interval, Duration::ZERO..=PATIENCE_CEILING),
            default: Default::Value("\"50 ms\""),
            about: "From one question to the next.",
            consequence: "Shorter learns faster and asks the resolvers, and other people's servers, more.",
        },
        Key {
            name: "burst",
            flag: Some("burst"),
            kind: Kind::Integer(|s| &mut s.burst, 1..=1_000),
            default: Default::Value("1"),
            about: "How many questions may be asked at once after a pause.",
            consequence: "With 1 they are an interval apart, always.",
        },
        Key {
            name: "stack",
            flag: Some("stack"),
            kind: Kind::Integer(|s| &mut s.stack, 1..=1_000_000),
            default: Default::Value("4096"),
            about: "How many addresses may wait to be asked for.",
            consequence: "Beyond that the bottom of the deepest stack is dropped: a leak.",
        },
        Key {
            name: "per_client",
            flag: Some("per-client"),
            kind: Kind::Integer(|s| &mut s.per_client, 1..=1_000_000),
            default: Default::Absent { means: "half of them", example: "1024" },
            about: "How many of those one client may have waiting.",
            consequence: "One client's flood then leaves the others their places.",
        },
        Key {
            name: "timeout",
            flag: Some("timeout"),
            kind: Kind::Duration(|s| &mut s.timeout, Duration::from_millis(1)..=PATIENCE_CEILING),
            default: Default::Value("\"2 s\""),
            about: "How long one question waits for its answer.",
            consequence: "No client waits for it.",
        },
        Key {
            name: "tries",
            flag: Some("tries"),
            kind: Kind::Integer(|s| &mut s.tries, 1..=10),
            default: Default::Value("2"),
            about: "How often an address is asked for before it has failed.",
            consequence: "Each costs an interval. What has failed is tried again after 1 s, doubling up to 5 min.",
        },
        Key {
            name: "ttl",
            flag: Some("ttl"),
            kind: Kind::Name(|s| &mut s.ttl, "a time such as 7 d, or LEAST..MOST such as 1 min..1 d"),
            default: Default::Value("\"7 d\""),
            about: "How long names are kept, whatever their records say; or LEAST..MOST, to keep them as records say \
                within that.",
            consequence: "Longer asks less; of names of 2017, 97 of 100 were the same after three months.",
        },
        Key {
            name: "no_negative",
            flag: Some("no-negative"),
            kind: Kind::Boolean(|s| &mut s.no_negative),
            default: Default::Value("false"),
            about: "Whether addresses without a name are asked for again after two minutes.",
            consequence: "With false that is kept as long as names.",
        },
        Key {
            name: "confirm",
            flag: Some("confirm"),
            kind: Kind::Boolean(|s| &mut s.confirm),
            default: Default::Value("false"),
            about: "Whether it is asked, too, if each name leads back to its address, and the verdict kept.",
            consequence: "Each new name costs a second interval. Crawlers are verified by nothing less.",
        },
        Key {
            name: "crawlers",
            flag: Some("crawlers"),
            kind: Kind::Path(|s| &mut s.crawlers),
            default: Default::Absent { means: "no crawler is known", example: "\"/etc/pointsman/crawlers\"" },
            about: "The names and prefixes of crawlers, which are told apart from those that only say so. It is read \
                once, at start.",
            consequence: "A name alone proves nothing: by names they are verified with confirm only.",
        },
        Key {
            name: "no_prefixes",
            flag: Some("no-prefixes"),
            kind: Kind::Boolean(|s| &mut s.no_prefixes),
            default: Default::Value("false"),
            about: "Whether each address is asked for alone, instead of keeping prefixes without any name as one entry.",
            consequence: "Where nothing has a name, each address then costs an interval and an entry.",
        },
        Key {
            name: "no_ahead",
            flag: Some("no-ahead"),
            kind: Kind::Boolean(|s| &mut s.no_ahead),
            default: Default::Value("false"),
            about: "Whether popular names are asked for only once they have expired.",
            consequence: "They are then stale for a moment, each time.",
        },
        Key {
            name: "sample",
            flag: Some("sample"),
            kind: Kind::Integer(|s| &mut s.sample, 0..=1_000_000_000),
            default: Default::Value("10000"),
            about: "Of so many names that are given, one is asked for again, to count how many are still right; 0 for \
                none.",
            consequence: "Only intervals that nobody waits for are used.",
        },
        Key {
            name: "stale",
            flag: Some("stale"),
            kind: Kind::Duration(|s| &mut s.stale, Duration::ZERO..=LIFE_CEILING),
            default: Default::Value("\"1 d\""),
            about: "How long names that have expired are still answered while they are asked for anew.",
            consequence: "With 0 s an expired name is not yet known again.",
        },
        Key {
            name: "memory",
            flag: Some("memory"),
            kind: Kind::Octets(|s| &mut s.memory, LIMIT_MIN as u64..=MEMORY_CEILING),
            default: Default::Value("\"400 MiB\""),
            about: "How much the cache may take.",
            consequence: "An IPv4 address takes about 30 octets with its name. Full, what expires first is dropped.",
        },
        Key {
            name: "snapshot",
            flag: Some("snapshot"),
            kind: Kind::Path(|s| &mut s.snapshot),
            default: Default::Absent {
                means: "the cache begins empty",
                example: "\"/var/lib/pointsman/names.cache\"",
            },
            about: "The file in which the cache is kept: mapped at start, written at the end and every \
                snapshot_interval.",
            consequence: "It is a list of visitors, and only its owner may read it.",
        },
        Key {
            name: "snapshot_interval",
            flag: Some("snapshot-interval"),
            kind: Kind::Duration(|s| &mut s.snapshot_interval, Duration::from_secs(1)..=PATIENCE_CEILING),
            default: Default::Value("\"5 min\""),
            about: "From one snapshot to the next.",
            consequence: "A crash loses what was learned since the last one.",
        },
        Key {
            name: "paper",
            flag: Some("paper"),
            kind: Kind::Boolean(|s| &mut s.paper),
            default: Default::Value("false"),
            about: "Whether it learns just as Rapid DNS did.",
            consequence: "With true: duplicates in one stack, failures forgotten, nothing stale.",
        },
        Key {
            name: "log",
            flag: Some("log"),
            kind: Kind::Choice(|s| &mut s.log, &["text", "json"]),
            default: Default::Value("\"text\""),
            about: "The form of log lines, which go to stderr.",
            consequence: "With json each line is an object, for programs that collect logs.",
        },
    ],
};

/// What `balance` does; each key has a flag.
pub(crate) const BALANCE: Section<BalanceSpec> = Section {
    name: "balance",
    about: "What `pointsman balance` is started with; `serve` passes over it. Its flags replace what stands here.",
    keys: &[
        Key {
            name: "listen",
            flag: Some("listen"),
            kind: Kind::Addresses(|s| &mut s.listen),
            default: Default::Value("[\"127.0.0.1:5300\"]"),
            about: "The addresses at which queries are taken.",
            consequence: "Each address has its own workers.",
        },
        Key {
            name: "backend",
            flag: Some("backend"),
            kind: Kind::BackEnds(|s| &mut s.backend),
            default: Default::Absent {
                means: "none, which is a fault",
                example: "[\"192.0.2.1:53\", \"192.0.2.2:53=3\"]",
            },
            about: "The name servers that answer.",
            consequence: "Weights are for the policies wrr, random, least-outstanding, p2c and hash; pressure needs none.",
        },
        Key {
            name: "policy",
            flag: Some("policy"),
            kind: Kind::Choice(|s| &mut s.policy, &routing::balance::NAMES),
            default: Default::Value("\"pressure\""),
            about: "Which back end gets a query.",
            consequence: "docs/concepts/balance.md tells them apart.",
        },
        Key {
            name: "timeout",
            flag: Some("timeout"),
            kind: Kind::Duration(|s| &mut s.timeout, Duration::from_millis(1)..=Duration::from_secs(30)),
            default: Default::Value("\"1 s\""),
            about: "How long a back end may take for an answer.",
            consequence: "After that the query goes to another one, if the budget of 2 % allows it, else it is answered \
                SERVFAIL. Failures count as if they had taken so long.",
        },
        Key {
            name: "tries",
            flag: Some("tries"),
            kind: Kind::Integer(|s| &mut s.tries, 1..=8),
            default: Default::Value("2"),
            about: "To how many back ends a query may go, one after the other.",
            consequence: "With 1 it is never sent a second time.",
        },
        Key {
            name: "sockets",
            flag: Some("sockets"),
            kind: Kind::Integer(|s| &mut s.sockets, 1..=balancer::worker::SOCKETS_MAX as u64),
            default: Default::Value("4"),
            about: "How many sockets each worker has for a back end.",
            consequence: "Each has a port of its own: more are harder to guess, and spread over the sockets of a server \
                that has several.",
        },
        Key {
            name: "workers",
            flag: Some("workers"),
            kind: Kind::Integer(|s| &mut s.workers, 1..=balancer::service::WORKERS_MAX as u64),
            default: Default::Absent { means: "one for each core", example: "2" },
            about: "How many threads carry datagrams at each address.",
            consequence: "More than there are cores is slower.",
        },
        Key {
            name: "outstanding_max",
            flag: Some("outstanding-max"),
            kind: Kind::Integer(|s| &mut s.outstanding_max, 1..=10_000_000),
            default: Default::Value("100000"),
            about: "How many queries may wait for answers at a time.",
            consequence: "Beyond that queries are dropped, and counted. Each takes about 250 octets.",
        },
        Key {
            name: "per_client_max",
            flag: Some("per-client-max"),
            kind: Kind::Integer(|s| &mut s.per_client_max, 1..=65_535),
            default: Default::Value("10000"),
            about: "How many of them one client may have at each worker: an IPv4 address or an IPv6 /64.",
            consequence: "Beyond that its queries are dropped, and counted.",
        },
        Key {
            name: "tcp",
            flag: Some("tcp"),
            kind: Kind::Choice(|s| &mut s.tcp, &["tcp", "udp"]),
            default: Default::Value("\"tcp\""),
            about: "How queries that come over TCP go to back ends.",
            consequence: "With udp they go as datagrams, and over TCP where the answer is truncated.",
        },
        Key {
            name: "client_address",
            flag: Some("client-address"),
            kind: Kind::Choice(|s| &mut s.client_address, &["hidden", "subnet", "proxy"]),
            default: Default::Value("\"hidden\""),
            about: "How back ends learn whose query it is: not at all, by client subnet (RFC 7871), or by the PROXY \
                protocol, version 2.",
            consequence: "With subnet a query that has a client subnet keeps its own, and a signed one has none. With proxy \
                back ends must expect the header, also over TCP, where each query then has a connection of its own.",
        },
        Key {
            name: "subnet_v4",
            flag: Some("subnet-v4"),
            kind: Kind::Integer(|s| &mut s.subnet_v4, 1..=32),
            default: Default::Value("24"),
            about: "How many bits of an IPv4 client's address its subnet has.",
            consequence: "More say more about the client, and caches of back ends hold less.",
        },
        Key {
            name: "subnet_v6",
            flag: Some("subnet-v6"),
            kind: Kind::Integer(|s| &mut s.subnet_v6, 1..=128),
            default: Default::Value("56"),
            about: "The same of IPv6.",
            consequence: "A site has some 56.",
        },
        Key {
            name: "probe",
            flag: Some("probe"),
            kind: Kind::Name(|s| &mut s.probe, "a name and a type, such as \"example.com SOA\""),
            default: Default::Absent {
                means: "`. NS`, to which any answer but SERVFAIL will do",
                example: "\"example.com SOA\"",
            },
            about: "The question by which back ends are probed.",
            consequence: "Where it is given, REFUSED and NOTIMP are no answers either.",
        },
        Key {
            name: "probe_interval",
            flag: Some("probe-interval"),
            kind: Kind::Duration(
                |s| &mut s.probe_interval,
                Duration::from_millis(10)..=Duration::from_secs(3600),
            ),
            default: Default::Value("\"1 s\""),
            about: "From one probe of a back end to the next.",
            consequence: "After three without an answer it is down; it is then probed four times as often, and up again \
                after two that are answered.",
        },
        Key {
            name: "slow_start",
            flag: Some("slow-start"),
            kind: Kind::Duration(|s| &mut s.slow_start, Duration::ZERO..=Duration::from_secs(3600)),
            default: Default::Value("\"10 s\""),
            about: "How long a back end that comes up again gets less than its turns, from a tenth of them on.",
            consequence: "Its cache may be cold.",
        },
        Key {
            name: "credit",
            flag: Some("credit"),
            kind: Kind::Address(|s| &mut s.credit),
            default: Default::Absent { means: "no agents are waited for", example: "\"127.0.0.1:5380\"" },
            about: "The address at which agents report, over UDP.",
            consequence: "It is what `pointsman agent --balancer` is given. Without agents the policy pressure goes by \
                answers alone.",
        },
        Key {
            name: "key",
            flag: Some("key"),
            kind: Kind::Path(|s| &mut s.key),
            default: Default::Absent {
                means: "there is no credit",
                example: "\"/etc/pointsman/credit.key\"",
            },
            about: "The file with the key that balancer and agents share, as `pointsman key new` makes it.",
            consequence: "Reports that are not signed with it are dropped, and counted.",
        },
        Key {
            name: "http",
            flag: Some("http"),
            kind: Kind::Address(|s| &mut s.http),
            default: Default::Absent { means: "there is no HTTP", example: "\"127.0.0.1:8055\"" },
            about: "The address of HTTP: status, metrics, and back ends that come and go.",
            consequence: "There is no token, so it must be a loopback address.",
        },
        Key {
            name: "log",
            flag: Some("log"),
            kind: Kind::Choice(|s| &mut s.log, &["text", "json"]),
            default: Default::Value("\"text\""),
            about: "The form of log lines, which go to stderr.",
            consequence: "With json each line is an object, for programs that collect logs.",
        },
    ],
};

/// The longest time that an answer from ignorance may be kept.
const IGNORANCE_CEILING: Duration = Duration::from_secs(10);

/// An external proximity service.
const EXTERNAL: Section<Spec> = Section {
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

/// The sections that appear once, in reading order.
pub(crate) const SECTIONS: [&Section<Spec>; 4] = [&TCP, &RATE_LIMIT, &DNSTAP, &EXTERNAL];

/// A partition to import; there may be several.
pub(crate) const PARTITION: Section<PartitionSpec> = Section {
    name: "partition",
    about: "A source of a partition: one of csv, mmdb, mrt and ask; the heading may be repeated. Where several have one name, \
        they are stacked: what the first has no region for, the next one decides. Read as zone is.",
    keys: &[
        Key {
            name: "name",
            flag: None,
            kind: Kind::Name(|s| &mut s.name, "the name of a partition"),
            default: Default::Value("\"default\""),
            about: "The partition's name.",
            consequence: "Policies use the partition default unless they name another.",
        },
        Key {
            name: "csv",
            flag: None,
            kind: Kind::Path(|s| &mut s.csv),
            default: Default::Absent { means: "mmdb or mrt is given", example: "\"partition.csv\"" },
            about: "A file of lines `prefix,region`.",
            consequence: "Regions that do not exist yet are added. Addresses that no prefix has are in region 0.",
        },
        Key {
            name: "mmdb",
            flag: None,
            kind: Kind::Path(|s| &mut s.mmdb),
            default: Default::Absent { means: "csv or mrt is given", example: "\"GeoLite2-Country.mmdb\"" },
            about: "A MaxMind database.",
            consequence: "It is flattened when it is read: queries never look into it.",
        },
        Key {
            name: "regions",
            flag: None,
            kind: Kind::Path(|s| &mut s.regions),
            default: Default::Absent { means: "csv or mrt is given", example: "\"regions.csv\"" },
            about: "A file of lines `code,region` that says which region a code of mmdb is in.",
            consequence: "Codes that it does not have are in region 0. The numbers of the regions are written beside it, \
                to the same name with .ids at its end.",
        },
        Key {
            name: "field",
            flag: None,
            kind: Kind::Choice(|s| &mut s.field, &["country", "continent", "asn"]),
            default: Default::Absent { means: "country, where mmdb is given", example: "\"country\"" },
            about: "What of mmdb is the code.",
            consequence: "country: ISO 3166-1 such as DE; continent: such as EU; asn: a number such as 64496.",
        },
        Key {
            name: "mrt",
            flag: None,
            kind: Kind::Path(|s| &mut s.mrt),
            default: Default::Absent { means: "csv or mmdb is given", example: "\"bview.gz\"" },
            about: "A BGP table in MRT (TABLE_DUMP or TABLE_DUMP_V2), as it is or packed with gzip or bzip2.",
            consequence: "Clients whose AS sees the servers in the same order, by AS hops, are one region, and the \
                partition ranks the servers for it: for policies with `\"order\": \"nearest\"`.",
        },
        Key {
            name: "servers",
            flag: None,
            kind: Kind::Servers(|s| &mut s.servers),
            default: Default::Absent {
                means: "csv or mmdb is given",
                example: "[\"192.0.2.1\", \"198.51.100.1=AS64496\"]",
            },
            about: "The servers whose distance to each AS of mrt decides.",
            consequence: "A server's AS is looked up in the table where it is not given.",
        },
        Key {
            name: "relations",
            flag: None,
            kind: Kind::Path(|s| &mut s.relations),
            default: Default::Absent { means: "any links may follow one another", example: "\"as-rel.txt\"" },
            about: "A file of lines `provider|customer|-1` and `peer|peer|0`.",
            consequence: "Then only paths without a valley count, as traffic takes them; the status tells how often that \
                makes a difference.",
        },
        Key {
            name: "ask",
            flag: None,
            kind: Kind::Boolean(|s| &mut s.ask),
            default: Default::Absent { means: "the partition has a file", example: "true" },
            about: "Whether all clients that the layers before do not know are left to the service of external.",
            consequence: "It is the last layer of its partition. In a file of lines, `?` instead of a region leaves single \
                prefixes to it.",
        },
    ],
};
