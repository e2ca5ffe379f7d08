//! The keys above all headings: what `serve` needs first.

use net::udp::WORKERS_MAX;

use super::{Default, Key, Section};
use crate::config::kind::Kind;
use crate::config::spec::Spec;

/// The largest UDP payload that can be chosen, in octets: the most that RFC 9715 §3.1 recommends, which an Ethernet
/// carries with room for a tunnel's headers.
const UDP_PAYLOAD_CEILING: u64 = 1400;

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
            name: "tls_listen",
            flag: Some("tls-listen"),
            kind: Kind::Addresses(|s| &mut s.tls_listen),
            default: Default::Absent {
                means: "nothing is answered over TLS",
                example: "[\"192.0.2.1:853\"]",
            },
            about: "The addresses to answer at over TLS (DNS over TLS, RFC 7858), also transfers (RFC 9103).",
            consequence: "It needs tls_certificate and tls_key. Connections count among those of `[tcp]`; answers are padded \
                where queries are (RFC 8467).",
        },
        Key {
            name: "tls_certificate",
            flag: Some("tls-certificate"),
            kind: Kind::Path(|s| &mut s.tls_certificate),
            default: Default::Absent {
                means: "there is no TLS",
                example: "\"/etc/pointsman/fullchain.pem\"",
            },
            about: "The file with the certificate that clients are shown, and those that lead to its authority, in PEM form.",
            consequence: "It is read at start, before the user changes, and on SIGHUP.",
        },
        Key {
            name: "tls_key",
            flag: Some("tls-key"),
            kind: Kind::Path(|s| &mut s.tls_key),
            default: Default::Absent { means: "there is no TLS", example: "\"/etc/pointsman/privkey.pem\"" },
            about: "The file with the certificate's private key, in PEM form.",
            consequence: "It is read when the certificate is. A file that others may read is refused.",
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
            consequence: "Requests without `Authorization: Bearer TOKEN` are refused. A file that others may read is \
                refused. It is read once, at start.",
        },
        Key {
            name: "store",
            flag: Some("store"),
            kind: Kind::Store(|s| &mut s.store),
            default: Default::Value("\"sqlite:./pointsman.db\""),
            about: "Where zones, regions, partitions, policies and server states are kept.",
            consequence: "`sqlite:PATH` is created where there is none; one server has it open at a time. \
                `postgres://USER@HOST/DATABASE` and `mysql://USER@HOST/DATABASE` (MariaDB) must exist, and any number of \
                servers share it; no log shows its password. A relative PATH in the file is beside the file; the default, \
                and that of the flag, is in the folder that the server is started in. It is the truth: what it has and no import names \
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
            consequence: "For a start as root, which port 53 may need. Store and imported files are used as this user. \
                Not with the packaged unit, which starts the server as `pointsman` and has port 53.",
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
            name: "xdp",
            flag: Some("xdp"),
            kind: Kind::Texts(|s| &mut s.xdp, "names of network interfaces, such as eth0"),
            default: Default::Absent { means: "all queries come over sockets", example: "[\"eth0\"]" },
            about: "Network interfaces from which UDP queries are taken as frames, past the kernel's network stack (AF_XDP).",
            consequence: "An answer then costs much less. Addresses in `listen` must be single ones; sockets stay for what is \
                no such frame. Firewall and captures of this machine do not see these queries, and answers go back the way \
                that they came. It takes root, or CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF: see docs/guides/take-queries-as-frames.md.",
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
                others may read is refused. They are read at start, before the user changes, and on SIGHUP. The algorithms \
                are hmac-sha256, hmac-sha384 and hmac-sha512, and hmac-sha1 for secondaries that know nothing better.",
        },
        Key {
            name: "signing_keys",
            flag: Some("signing-keys"),
            kind: Kind::Paths(|s| &mut s.signing_keys),
            default: Default::Absent {
                means: "nothing is signed, and no policy may be in a signed zone",
                example: "[\"/etc/pointsman/Kexample.com.+013+12345.private\"]",
            },
            about: "Keys of zones: the file of the private part as `pointsman key zone` and `dnssec-keygen` write it, the \
                public one beside it.",
            consequence: "A zone that nobody has signed is signed here, where one of its keys has the flag that delegations \
                trust (257). In one that is signed elsewhere, and has the key among its DNSKEY records, what policies \
                answer is signed. A file that others may read is refused. They are read at start, before the user changes, \
                and on SIGHUP.",
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
            consequence: "Queries are not logged but counted, whatever the level; one that made the server panic is.",
        },
    ],
};
