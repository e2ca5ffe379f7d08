//! What `pointsman reverse` needs.

use std::time::Duration;

use reverse::cache::LIMIT_MIN;
use reverse::face::mmdb::{SIZE_MAX, SIZE_MIN};

use super::{Default, Key, Section};
use crate::config::kind::Kind;
use crate::config::reverse::LIFE_CEILING;
use crate::config::spec::ReverseSpec;

/// The longest time that a question may wait for a name: resolver libraries give up after 5 s.
const WAIT_CEILING: Duration = Duration::from_secs(4);

/// The longest time that is chosen for anything of `reverse` but names: beyond, it is as good as never.
const PATIENCE_CEILING: Duration = Duration::from_secs(24 * 3600);

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
            consequence: "For clients that cannot ask twice. 4,096 wait at a time.",
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
            consequence: "An IPv4 address takes about 33 octets with its name. Full, what expires first is dropped. Names \
                take 2 GiB of it at most.",
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
            consequence: "With true: duplicates in one stack, failures forgotten, nothing stale. Not together with confirm.",
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
            consequence: "For a start as root, which port 53 may need. The snapshot and the MMDB file are read and written as this user.",
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
