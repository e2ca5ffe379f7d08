//! What `pointsman balance` is started with.

use std::time::Duration;

use super::{Default, Key, Section};
use crate::config::kind::Kind;
use crate::config::spec::BalanceSpec;

/// As long as resolvers keep anything.
const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// The longest that a failure may be kept (RFC 9520 §3.2).
const FAILURES_MAX: Duration = Duration::from_secs(300);

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
            name: "allow",
            flag: Some("allow"),
            kind: Kind::Prefixes(|s| &mut s.allow),
            default: Default::Absent { means: "everybody", example: "[\"192.0.2.0/24\"]" },
            about: "The clients that may ask, beside loopback.",
            consequence: "Others get no answer. Resolvers see the balancer's address alone, so that in front of them nothing \
                else keeps the world out.",
        },
        Key {
            name: "backend",
            flag: Some("backend"),
            kind: Kind::BackEnds(|s| &mut s.backend),
            default: Default::Absent {
                means: "none, which is a fault",
                example: "[\"192.0.2.1:53\", \"192.0.2.2:53=3\"]",
            },
            about: "The name servers that answer; with #NAME behind the address over TLS (RFC 7858), where the certificate must \
                be for that name.",
            consequence: "Over TLS a server is asked nowhere else, at port 853 where none is given. Weights are for the policies \
                wrr, random, least-outstanding, p2c and hash; pressure needs none.",
        },
        Key {
            name: "policy",
            flag: Some("policy"),
            kind: Kind::Choice(|s| &mut s.policy, &routing::balance::NAMES),
            default: Default::Value("\"pressure\""),
            about: "Which back end gets a query.",
            consequence: "docs/concepts/balance.md (of the package: /usr/share/doc/pointsman) tells them apart.",
        },
        Key {
            name: "timeout",
            flag: Some("timeout"),
            kind: Kind::Duration(|s| &mut s.timeout, Duration::from_millis(1)..=Duration::from_secs(30)),
            default: Default::Value("\"1 s\""),
            about: "How long a back end may take for an answer.",
            consequence: "After that the query goes to another one, if the budget of 2 % allows it, else it is answered \
                SERVFAIL. No answer counts as if it had taken so \
                long; a failing one does as far as this back end fails more than others.",
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
            kind: Kind::Integer(|s| &mut s.sockets, 1..=balancer::lines::SOCKETS_MAX as u64),
            default: Default::Value("4"),
            about: "How many sockets each worker has for a back end.",
            consequence: "Each has a port of its own: more are harder to guess, and spread over the sockets of a server \
                that has several.",
        },
        Key {
            name: "workers",
            flag: Some("workers"),
            kind: Kind::Integer(|s| &mut s.workers, 1..=net::udp::WORKERS_MAX as u64),
            default: Default::Absent { means: "one for each core", example: "2" },
            about: "How many threads carry datagrams at each address.",
            consequence: "More than there are cores is slower.",
        },
        Key {
            name: "outstanding_max",
            flag: Some("outstanding-max"),
            kind: Kind::Integer(|s| &mut s.outstanding_max, 1..=10_000_000),
            default: Default::Value("100000"),
            about: "How many queries may wait for answers at a time, over UDP and over TCP.",
            consequence: "Over UDP each worker has an equal share. Beyond that queries are dropped, over TCP answered SERVFAIL, \
                and counted. Each takes about 250 octets.",
        },
        Key {
            name: "per_client_max",
            flag: Some("per-client-max"),
            kind: Kind::Integer(|s| &mut s.per_client_max, 1..=65_535),
            default: Default::Value("10000"),
            about: "How many of them one client may have at each worker, and over TCP: an IPv4 address or an IPv6 /64.",
            consequence: "Beyond that its queries are dropped, over TCP answered SERVFAIL, and counted.",
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
            name: "tls_listen",
            flag: Some("tls-listen"),
            kind: Kind::Addresses(|s| &mut s.tls_listen),
            default: Default::Absent { means: "nothing is taken over TLS", example: "[\"192.0.2.1:853\"]" },
            about: "The addresses at which queries are taken over TLS (DNS over TLS, RFC 7858).",
            consequence: "It needs tls_certificate and tls_key. Queries go on as those that come over TCP; answers are \
                padded where queries are (RFC 8467).",
        },
        Key {
            name: "https_listen",
            flag: Some("https-listen"),
            kind: Kind::Addresses(|s| &mut s.https_listen),
            default: Default::Absent { means: "nothing is taken over HTTPS", example: "[\"192.0.2.1:443\"]" },
            about: "The addresses at which queries are taken over HTTPS (DNS over HTTPS, RFC 8484), at /dns-query.",
            consequence: "It needs tls_certificate and tls_key. Clients have HTTP/2 or 1.1; all else is as over TLS.",
        },
        Key {
            name: "quic_listen",
            flag: Some("quic-listen"),
            kind: Kind::Addresses(|s| &mut s.quic_listen),
            default: Default::Absent { means: "nothing is taken over QUIC", example: "[\"192.0.2.1:853\"]" },
            about: "The addresses at which queries are taken over QUIC (DNS over QUIC, RFC 9250).",
            consequence: "It needs tls_certificate and tls_key. Each stream has one query; all else is as over TLS. It is UDP, \
                so that its port may be that of TLS.",
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
            name: "designate",
            flag: Some("designate"),
            kind: Kind::Name(|s| &mut s.designate, "a host's name, such as dns.example.com"),
            default: Default::Absent {
                means: "back ends are asked for _dns.resolver.arpa, as for any name",
                example: "\"dns.example.com\"",
            },
            about: "The name that the certificate is for: clients that ask for resolvers that speak encrypted (_dns.resolver.arpa, \
                SVCB; RFC 9462) are told of those at tls_listen, https_listen and quic_listen by it.",
            consequence: "Clients that know this go on encrypted by themselves, where the certificate is for the address, too, at \
                which they asked.",
        },
        Key {
            name: "authorities",
            flag: Some("authorities"),
            kind: Kind::Path(|s| &mut s.authorities),
            default: Default::Absent {
                means: "\"/etc/ssl/certs/ca-certificates.crt\"",
                example: "\"/etc/pointsman/authorities.pem\"",
            },
            about: "Whose certificates are believed of back ends over TLS: a file in PEM form.",
            consequence: "It is read once, at start.",
        },
        Key {
            name: "client_address",
            flag: Some("client-address"),
            kind: Kind::Choice(|s| &mut s.client_address, &["hidden", "subnet", "proxy"]),
            default: Default::Value("\"hidden\""),
            about: "How back ends learn whose query it is: not at all, by client subnet (RFC 7871), or by the PROXY \
                protocol, version 2.",
            consequence: "With subnet a query that has a client subnet keeps its own, and a signed one has none. With proxy \
                back ends must expect the header, also over TCP, where each query then has a connection of its own. It does not \
                go with back ends over TLS.",
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
            name: "cache",
            flag: Some("cache"),
            kind: Kind::Octets(|s| &mut s.cache, balancer::cache::MEMORY_MIN..=balancer::cache::MEMORY_MAX),
            default: Default::Absent { means: "no answer is given again", example: "\"256 MiB\"" },
            about: "How much answers may take that are kept, and given again to whoever asks the same.",
            consequence: "For resolvers: an answer of 100 octets takes some 170. Name servers that steer choose for each \
                query, which is lost. Cookies do not reach back ends. It does not go with client_address = \"proxy\".",
        },
        Key {
            name: "cache_ttl_max",
            flag: Some("cache-ttl-max"),
            kind: Kind::Duration(|s| &mut s.cache_ttl_max, Duration::from_secs(1)..=WEEK),
            default: Default::Value("\"1 d\""),
            about: "How long an answer is given again, at most.",
            consequence: "It is never longer than its TTLs say.",
        },
        Key {
            name: "cache_stale",
            flag: Some("cache-stale"),
            kind: Kind::Duration(|s| &mut s.cache_stale, Duration::ZERO..=WEEK),
            default: Default::Value("\"0 s\""),
            about: "For how long after that it is still given where no back end answers, or takes the query, or the one that was \
                asked says that it failed (RFC 8767).",
            consequence: "Clients may have what has changed since, for 30 s, instead of nothing.",
        },
        Key {
            name: "cache_failures",
            flag: Some("cache-failures"),
            kind: Kind::Duration(|s| &mut s.cache_failures, Duration::ZERO..=FAILURES_MAX),
            default: Default::Value("\"5 s\""),
            about: "For how long a back end's failure is given again, or what cache_stale allows in its place, before a back end \
                is asked anew (RFC 9520).",
            consequence: "Longer spares back ends what they cannot answer; clients see no sooner that they can again. With 0 s each \
                query is put to one.",
        },
        Key {
            name: "probe",
            flag: Some("probe"),
            kind: Kind::Name(|s| &mut s.probe, "a name and a type, such as \"example.com SOA\""),
            default: Default::Absent {
                means: "`. NS`, to which any answer but FORMERR and SERVFAIL will do",
                example: "\"example.com SOA\"",
            },
            about: "The question by which back ends are probed.",
            consequence: "Where it is given, REFUSED and NOTIMP are no answers either, and resolvers are to resolve it (RD).",
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
            consequence: "After three without an answer it is down, unless it answers others: then it is slow, and gets less. \
                Once down it is probed four times as often, and up again after two that are answered.",
        },
        Key {
            name: "slow_start",
            flag: Some("slow-start"),
            kind: Kind::Duration(|s| &mut s.slow_start, Duration::ZERO..=Duration::from_secs(3600)),
            default: Default::Value("\"10 s\""),
            about: "How long a back end that comes up again, or to others, gets less than its turns, from a tenth of them on.",
            consequence: "Its cache may be cold.",
        },
        Key {
            name: "credit",
            flag: Some("credit"),
            kind: Kind::Address(|s| &mut s.credit),
            default: Default::Absent { means: "no agents are waited for", example: "\"127.0.0.1:5380\"" },
            about: "The address at which agents report, over UDP.",
            consequence: "It is what `pointsman agent --balancer` is given, so on a machine with several addresses it is \
                one of them, and not 0.0.0.0. Without agents the policy pressure goes by answers alone.",
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
            consequence: "Reports that are not signed with it are dropped, and counted. A file that others may read is refused.",
        },
        Key {
            name: "http",
            flag: Some("http"),
            kind: Kind::Address(|s| &mut s.http),
            default: Default::Absent { means: "there is no HTTP", example: "\"127.0.0.1:8055\"" },
            about: "The address of HTTP: status, metrics, and back ends that come and go.",
            consequence: "Whoever reaches it can take every back end away: any address but a loopback one needs a \
                token_file, and the token crosses the network unencrypted.",
        },
        Key {
            name: "token_file",
            flag: Some("token-file"),
            kind: Kind::Path(|s| &mut s.token_file),
            default: Default::Absent { means: "HTTP asks for no token", example: "\"/etc/pointsman/token\"" },
            about: "A file with the token that HTTP asks for, on one line.",
            consequence: "Requests without `Authorization: Bearer TOKEN` are refused, those for metrics too. A file that \
                others may read is refused. It is read once, at start.",
        },
        Key {
            name: "user",
            flag: Some("user"),
            kind: Kind::Name(|s| &mut s.user, "the name of a user of this system"),
            default: Default::Absent {
                means: "the service stays the user that started it",
                example: "\"pointsman\"",
            },
            about: "The user to become once all ports are bound.",
            consequence: "For a start as root, which port 53 may need. The files of key and token are read before.",
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
