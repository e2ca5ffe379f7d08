use std::net::Ipv6Addr;
use std::path::Path;

use clap::Parser;
use nameserver::generation::Settings;
use nameserver::import::{Import, Layer};
use nameserver::rate_limit;
use nameserver::service::Options;
use nameserver::zone::{ADDRESSES_MAX, NAMED_MAX, VIEWS_MAX, View};

use super::*;
use keys::{PARTITION, PRIMARY, PROBE, REVERSE, SECONDARY, SECTIONS, SERVER, UPDATER, VIEW};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    flags: Flags,
}

/// Reads a file's text and flags, as `load` does, without the token's file.
fn lowered(text: &str, flags: &[&str]) -> Result<Lowered, String> {
    let mut faults = Faults::default();
    let mut spec = defaults();
    file::read(Path::new("/etc/p.toml"), text, &mut spec, &mut faults);
    let line = Line::try_parse_from(["serve"].iter().chain(flags)).expect("flags are only read later");
    line.flags.read(&mut spec, &mut faults);
    let lowered = lower::lower(spec, &mut faults);
    faults.or(lowered).map_err(|faults| faults.to_string())
}

fn options(text: &str, flags: &[&str]) -> Options {
    lowered(text, flags).expect("the test gives what is right").options
}

/// What is wrong with `version = "v1"`, then `text` from line 2 on, and with flags.
fn check(text: &str, flags: &[&str], expected: &[&str]) {
    let found = lowered(&format!("version = \"v1\"\n{text}"), flags).map(drop);
    let expected = if expected.is_empty() { Ok(()) } else { Err(expected.join("\n")) };
    assert_eq!(found, expected, "for\n{text}\n{flags:?}");
}

#[test]
fn what_is_wrong_with_a_stores_url_has_its_place_and_no_password() {
    let expected = "expected sqlite:PATH, postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE";
    for (url, told) in [
        (
            "postgres://a:hunter2@db/dns?sslmdoe=x",
            "postgres://a@db/dns\", which is wrong: the parameter 'sslmdoe' is not known",
        ),
        (
            "postgres://a:hunter2@db:port/dns",
            "postgres://a@db:port/dns\", which is wrong: invalid port number",
        ),
        ("mysql://a:hunter2@db", "mysql://a@db\", which is wrong: it names no database"),
        ("mysql://a:hunter2@db/dns?ssl-mode=x", "mysql://a@db/dns\", which is wrong: unknown value"),
        ("postgres://a:12/hunter2@db/dns", "postgres://...\", which is wrong: an @ stands behind its host"),
        ("postgres:a:hunter2@db/dns", "postgres:...\""),
        ("oracle://a:hunter2@db/dns", "oracle:...\""),
        ("sqlite::memory:", "sqlite::memory:\""),
        ("sqlite:", "sqlite:\""),
    ] {
        let text = format!("version = \"v1\"\nstore = \"{url}\"\n");
        let of_file = lowered(&text, &[]).map(drop).expect_err("it is wrong");
        let of_flag = lowered("version = \"v1\"", &["--store", url]).map(drop).expect_err("it is wrong");
        assert!(of_file.starts_with(&format!("/etc/p.toml:2:9: store is \"{told}")), "{of_file}");
        assert!(of_flag.starts_with(&format!("--store: store is \"{told}")), "{of_flag}");
        for found in [of_file, of_flag] {
            assert!(found.ends_with(expected) && !found.contains("hunter2"), "{found}");
        }
    }
}

#[test]
fn declared_defaults_are_those_of_the_rooms() {
    let options = options("version = \"v1\"", &[]);
    assert_eq!(options.tcp, net::tcp::Limits::default());
    assert_eq!(options.settings, Settings::default());
    assert_eq!(options.listen, ["127.0.0.1:5300".parse().expect("an address")]);
    assert_eq!(options.api, "127.0.0.1:8053".parse().expect("an address"));
    assert_eq!(options.store, "sqlite:./pointsman.db");
    assert_eq!((options.workers, options.seed, options.user), (None, None, None));
    assert_eq!((options.cookies, options.rate_limit), (true, None));
}

#[test]
fn everything_wrong_is_listed_at_once_with_its_place() {
    let text = "\
listen = [\"127.0.0.1\", 53, \"[::1]:53\"]
  lisen = [\"127.0.0.1:53\"]
api = \"localhost:8053\"
store = \"oracle://localhost\"
workers = 0
minimal_responses = \"no\"
udp_payload_max = 1232
zone = \"example.com.zone\"
log = \"xml\"

[tcp]
idle = 10
message = \"1 week\"
speed = 9
";
    check(
        text,
        &["--seed", "-1", "--listen", "::1:x"],
        &[
            "/etc/p.toml:2:11: listen is \"127.0.0.1\"; expected IP addresses and ports, such as 127.0.0.1:53 or [::1]:53",
            "/etc/p.toml:2:24: listen is the number 53; expected IP addresses and ports, such as 127.0.0.1:53 or [::1]:53",
            "/etc/p.toml:3:3: unknown key lisen; expected version, listen, tls_listen, tls_certificate, tls_key, api, token_file, store, user, workers, xdp, zone, \
             policy, tsig_keys, signing_keys, minimal_responses, udp_payload_max, cookies, cookie_secrets, nsid, hide_version, seed, log, \
             log_level, tcp, rate_limit, external, dnstap, secondary, primary, updater, view, probe, partition, reverse or balance",
            "/etc/p.toml:4:7: api is \"localhost:8053\"; expected an IP address and a port, such as 127.0.0.1:53 or [::1]:53",
            "/etc/p.toml:5:9: store is \"oracle:...\"; expected sqlite:PATH, \
             postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE",
            "/etc/p.toml:6:11: workers is the number 0; expected a whole number from 1 to 256",
            "/etc/p.toml:7:21: minimal_responses is \"no\"; expected true or false",
            "/etc/p.toml:8:19: udp_payload_max is the number 1232 without a unit; expected a size from 512 B to 1400 B, \
             in B or KiB",
            "/etc/p.toml:9:8: zone is \"example.com.zone\"; expected an array of paths of files",
            "/etc/p.toml:10:7: log is \"xml\"; expected text or json",
            "/etc/p.toml:13:8: idle is the number 10 without a unit; expected a time from 100 ms to 24 h, in ms, s, min or h",
            "/etc/p.toml:14:11: message is \"1 week\"; expected a time from 100 ms to 24 h, in ms, s, min or h",
            "/etc/p.toml:15:1: unknown key speed in tcp; expected connections_max, per_client_max, idle, \
             idle_when_crowded, message or lifetime",
            "--listen: listen is \"::1:x\"; expected IP addresses and ports, such as 127.0.0.1:53 or [::1]:53",
            "--seed: seed is \"-1\"; expected a whole number of at least 0",
        ],
    );
}

#[test]
fn broken_toml_is_told_once_a_line() {
    let check = |text: &str, places: &[&str]| {
        let found = lowered(text, &[]).map(drop).expect_err("it is broken");
        let told: Vec<&str> = found.lines().map(|line| line.split(": ").next().unwrap_or(line)).collect();
        assert_eq!(told, places, "for\n{text}\n{found}");
    };
    check("version = \"v1\nworkers = = 1\nspeed = 3\n", &["/etc/p.toml:1:14", "/etc/p.toml:2:11"]);
    check("version = \"v1\"\nworkers = 1\nworkers = 2\n", &["/etc/p.toml:3:1"]);
    check("version = \"v1\"\n[tcp\n", &["/etc/p.toml:2:5"]);
}

#[test]
fn a_key_that_is_there_twice_is_named() {
    for (text, fault) in [
        ("workers = 1\nworkers = 2", "/etc/p.toml:3:1: duplicate key workers; expected each key once"),
        (
            "[tcp]\nidle = \"5 s\"\nidle = \"6 s\"",
            "/etc/p.toml:4:1: duplicate key idle; expected each key once",
        ),
        (
            "[tcp]\nidle = \"5 s\"\n[tcp]\nmessage = \"6 s\"",
            "/etc/p.toml:4:2: duplicate key tcp; expected each key once",
        ),
    ] {
        check(text, &[], &[fault]);
    }
}

#[test]
fn a_partition_of_which_nothing_is_known_is_not_imported() {
    let text = "version = \"v1\"\n[[partition]]\ncsv = \"a.csv\"\nmmdb = \"b.mmdb\"";
    let mut spec = defaults();
    let mut faults = Faults::default();
    file::read(Path::new("/etc/p.toml"), text, &mut spec, &mut faults);
    let lowered = lower::lower(spec, &mut faults);
    assert_eq!(faults.faults.len(), 1, "{faults}");
    assert!(lowered.options.imports.is_empty(), "its file would be told to have no prefix");
}

#[test]
fn the_version_must_be_there_and_ours() {
    let missing = "/etc/p.toml: the key version is missing; expected a line version = \"v1\"";
    assert_eq!(lowered("", &[]).map(drop), Err(missing.into()));
    let other = "/etc/p.toml:1:11: version is \"v2\"; expected \"v1\"";
    assert_eq!(lowered("version = \"v2\"", &[]).map(drop), Err(other.into()));
}

#[test]
fn what_would_have_no_effect_is_a_fault() {
    check(
        "[tcp]\nidle = \"2 s\"\nidle_when_crowded = \"3 s\"",
        &[],
        &["/etc/p.toml:4:21: idle_when_crowded in ms is 3000, idle in ms only 2000; expected \
           idle_when_crowded in ms <= idle in ms"],
    );
    check("[tcp]\nidle = \"100 ms\"", &[], &[]);
    check(
        "[rate_limit]\nwindow = \"2 s\"\nslip = 2\nipv4_prefix_bits = 24\nipv6_prefix_bits = 48",
        &[],
        &[
            "/etc/p.toml:3:10: window without responses_per_second has no effect; expected both or neither",
            "/etc/p.toml:4:8: slip without responses_per_second has no effect; expected both or neither",
            "/etc/p.toml:5:20: ipv4_prefix_bits without responses_per_second has no effect; expected both or neither",
            "/etc/p.toml:6:20: ipv6_prefix_bits without responses_per_second has no effect; expected both or neither",
        ],
    );
    check("[rate_limit]\nresponses_per_second = 5\nwindow = \"2 s\"", &[], &[]);
    check(
        "[external]\nttl = \"2 s\"\nknown = 65536\ntimeout = \"1 s\"",
        &[],
        &[
            "/etc/p.toml:3:7: ttl without service has no effect; expected both or neither",
            "/etc/p.toml:4:9: known without service has no effect; expected both or neither",
            "/etc/p.toml:5:11: timeout without service has no effect; expected both or neither",
        ],
    );
    check(
        "[dnstap]\nsample = 2\nmessages = [\"query\"]",
        &[],
        &[
            "/etc/p.toml:3:10: sample without socket or file has no effect; expected both or neither",
            "/etc/p.toml:4:13: messages without socket or file has no effect; expected both or neither",
        ],
    );
    check(
        "[dnstap]\nsocket = \"/run/tap.sock\"\nfile_max = \"2 GiB\"",
        &[],
        &["/etc/p.toml:4:12: file_max without file has no effect; expected both or neither"],
    );
}

#[test]
fn contradictions_are_faults_where_they_were_given() {
    let public = "which other machines reach, and there is no token; expected a token_file (--token-file), or a \
                  loopback address";
    check("api = \"0.0.0.0:8053\"", &[], &[&format!("/etc/p.toml:2:7: api is 0.0.0.0:8053, {public}")]);
    check("", &["--api", "[2001:db8::1]:8053"], &[&format!("--api: api is [2001:db8::1]:8053, {public}")]);
    check("api = \"0.0.0.0:8053\"", &["--token-file", "t"], &[]);
    check("api = \"0.0.0.0:8053\"", &["--api", "[::1]:8053"], &[]);
    check("api = \"[::ffff:127.0.0.1]:8053\"", &[], &[]);
    // Nothing can be bound to one of IPv6.
    let mapped = options("version = \"v1\"\nlisten = [\"[::ffff:127.0.0.1]:53\"]", &[]).listen;
    assert_eq!(mapped.iter().map(ToString::to_string).collect::<Vec<_>>(), ["127.0.0.1:53"]);
    check(
        "api = \"127.0.0.1:53\"\nlisten = [\"127.0.0.1:53\", \"127.0.0.1:53\"]",
        &[],
        &[
            "/etc/p.toml:3:27: listen has 127.0.0.1:53 twice; expected each address once",
            "/etc/p.toml:2:7: api and listen are both 127.0.0.1:53; expected another port for one of them",
        ],
    );
    check("listen = [\"[fe80::1%2]:53\", \"[fe80::1%3]:53\"]", &[], &[]);
    check(
        "api = \"127.0.0.1:53\"\nlisten = [\"127.0.0.1:5300\", \"[::]:53\", \"0.0.0.0:5300\", \"0.0.0.0:53\"]",
        &[],
        &[
            "/etc/p.toml:3:40: listen has 0.0.0.0:5300 and 127.0.0.1:5300, one of which has the other within it; \
             expected one for all interfaces, or one for each",
            "/etc/p.toml:2:7: api is 127.0.0.1:53, and listen 0.0.0.0:53 at the same port; expected another port for \
             one of them",
        ],
    );
    check("listen = [\"127.0.0.1:0\", \"127.0.0.1:0\"]", &[], &[]);
    check(
        "listen = []",
        &[],
        &[
            "/etc/p.toml:2:10: listen is an empty array; expected an array of IP addresses and ports, such as 127.0.0.1:53 or \
           [::1]:53",
        ],
    );
    check(
        "[tcp]\nconnections_max = 50\nidle = \"2 h\"",
        &[],
        &[
            "/etc/p.toml:3:19: per_client_max is 100, connections_max only 50; expected per_client_max <= connections_max",
            "/etc/p.toml:4:8: idle in ms is 7200000, lifetime in ms only 600000; expected idle in ms <= lifetime in ms",
        ],
    );
}

#[test]
fn cookies_and_what_a_server_is_called() {
    let said = |text: &str| options(&format!("version = \"v1\"\n{text}"), &[]);
    let off = said("cookies = \"off\"");
    assert_eq!((off.cookies, off.settings.require_cookies), (false, false));
    let required = said("cookies = \"require\"\ncookie_secrets = \"s\"\nnsid = \"fra1\"");
    assert_eq!((required.cookies, required.settings.require_cookies), (true, true));
    assert!(matches!(&required.imports[..], [Import::CookieSecrets(path)] if path == Path::new("/etc/s")));
    assert_eq!(required.settings.nsid.as_deref(), Some("fra1"));
    check(
        &format!("cookies = \"off\"\ncookie_secrets = \"s\"\nnsid = \"{}\"", "ä".repeat(33)),
        &[],
        &[
            "/etc/p.toml:4:8: nsid has 66 octets; expected at most 64",
            "/etc/p.toml:3:18: there are cookie_secrets, and cookies are off; expected cookies on, or no cookie_secrets",
        ],
    );
}

#[test]
fn rates_are_limited_where_one_is_given() {
    let said = |text: &str| options(&format!("version = \"v1\"\n{text}"), &[]).rate_limit;
    assert_eq!(said("[rate_limit]"), None);
    let expected =
        rate_limit::Limits { per_second: 20, slip: 0, ipv6_prefix: 48, ..rate_limit::Limits::default() };
    assert_eq!(
        said("[rate_limit]\nresponses_per_second = 20\nslip = 0\nipv6_prefix_bits = 48"),
        Some(expected)
    );
    check(
        "rate_limit = 5",
        &[],
        &["/etc/p.toml:2:14: rate_limit is the number 5; expected a heading [rate_limit]"],
    );
}

#[test]
fn dnstap_goes_to_one_place() {
    let said = |text: &str| options(&format!("version = \"v1\"\n{text}"), &[]).tap;
    assert_eq!(said("[dnstap]"), None);
    let expected = tap::Config {
        file_max: 1 << 30,
        destination: tap::Destination::File("/etc/t".into()),
        sample: 1,
        queries: true,
        responses: true,
        identity: "fra1".into(),
    };
    assert_eq!(said("nsid = \"fra1\"\n[dnstap]\nfile = \"t\""), Some(expected.clone()));
    let expected = tap::Config {
        destination: tap::Destination::Socket("/run/t".into()),
        sample: 9,
        responses: false,
        identity: "other".into(),
        ..expected
    };
    assert_eq!(
        said(
            "nsid = \"fra1\"\n[dnstap]\nsocket = \"/run/t\"\nsample = 9\nmessages = [\"query\"]\nidentity = \"other\""
        ),
        Some(expected)
    );
    check(
        "[dnstap]\nsocket = \"s\"\nfile = \"f\"\nmessages = [\"answer\"]",
        &[],
        &[
            "/etc/p.toml:5:13: messages is \"answer\"; expected query or response",
            "/etc/p.toml:4:8: dnstap has both socket and file; expected one of them",
        ],
    );
}

#[test]
fn partitions_have_one_source_each() {
    let two = "
[[partition]]
csv = \"a.csv\"
[[partition]]
name = \"geo\"
mmdb = \"g.mmdb\"
regions = \"/r.csv\"
field = \"asn\"
";
    let partitions = |text: &str| -> Vec<(String, Vec<Layer>)> {
        let imports = options(&format!("version = \"v1\"\n{text}"), &[]).imports;
        let read = |import| match import {
            Import::Partition { name, layers } => (name, layers),
            other => panic!("{other:?}"),
        };
        imports.into_iter().map(read).collect()
    };
    let partition = |name: &str, layers| (name.to_owned(), layers);
    let mmdb = |path: &str, field| Layer::Mmdb { path: path.into(), regions: "/r.csv".into(), field };
    let asn = routing::proximity::mmdb::Field::Asn;
    let csv = || Layer::Csv("/etc/a.csv".into());
    let expected = [partition("default", vec![csv()]), partition("geo", vec![mmdb("/etc/g.mmdb", asn)])];
    assert_eq!(partitions(two), expected);
    // One name: stacked, wherever they stand.
    let third = "[[partition]]\nmrt = \"t.gz\"\nservers = [\"192.0.2.1\", \"::1=AS5\"]\nrelations = \"r\"\n";
    let server =
        |address: &str, asn| nameserver::as_path::Server { address: address.parse().expect("one"), asn };
    let as_path = Layer::AsPath {
        table: "/etc/t.gz".into(),
        servers: vec![server("192.0.2.1", None), server("::1", Some(5))],
        relations: Some("/etc/r".into()),
    };
    let both = partition("default", vec![csv(), as_path]);
    let expected = [both, partition("geo", vec![mmdb("/etc/g.mmdb", asn)])];
    assert_eq!(partitions(&format!("{two}{third}")), expected);

    check(
        "[[partition]]\nmrt = \"a\"\n[[partition]]\nmrt = \"a\"\nservers = [\"::1\", \"::1=7\", \"::1=ASx\"]\nfield = \"asn\"",
        &[],
        &[
            "/etc/p.toml:6:28: servers is \"::1=ASx\"; expected addresses of servers, with =AS64496 where its AS is not \
             to be looked up",
            "/etc/p.toml:3:7: there is an mrt, and servers has 0; expected 1 to 256 servers: who is near is told for them",
            "/etc/p.toml:7:9: field beside mrt; expected field only beside mmdb",
            "/etc/p.toml:6:19: servers has ::1 twice; expected each server once",
        ],
    );
    check(
        "[[partition]]\n[[partition]]\nname = \"a\"\ncsv = \"a\"\nmmdb = \"b\"\n[[partition]]\nname = \"a\"\nmmdb = \"c\"\n\
         [[partition]]\nname = \"b\"\ncsv = \"a\"\nfield = \"asn\"\nsize = 3",
        &[],
        &[
            "/etc/p.toml:14:1: unknown key size in partition; expected name, csv, mmdb, regions, field, mrt, servers, relations or ask",
            "/etc/p.toml:2:1: the partition has no source; expected csv, or mmdb and regions, or mrt and servers, or ask",
            "/etc/p.toml:5:7: there are both csv and mmdb; expected one of them",
            "/etc/p.toml:9:8: there is an mmdb and no regions; expected a file of lines code,region (key regions, flag \
             --regions)",
            "/etc/p.toml:13:9: field beside csv; expected field only beside mmdb",
        ],
    );
    check(
        "[[partition]]\nask = true\nregions = \"r\"\n[external]\nservice = \"127.0.0.1:1\"",
        &[],
        &["/etc/p.toml:4:11: regions beside ask; expected regions only beside mmdb"],
    );
    check(
        "partition = 5",
        &[],
        &["/etc/p.toml:2:13: partition is the number 5; expected headings [[partition]]"],
    );
    check(
        "partition = [5]",
        &[],
        &["/etc/p.toml:2:14: partition is the number 5; expected headings [[partition]]"],
    );
    check(
        "",
        &["--mmdb", "x.mmdb", "--field", "planet", "--field", "asn"],
        &[
            "--field: field is \"planet\"; expected country, continent or asn",
            "--field: given 2 times, --mmdb once; expected a --field for an --mmdb, in the same order",
            "--mmdb: there is an mmdb and no regions; expected a file of lines code,region (key regions, flag --regions)",
        ],
    );
}

#[test]
fn primaries_are_checked_whole() {
    let text = "\
[[primary]]
zones = [\"example.com\", \".\"]
addresses = [\"192.0.2.1:53\", \"[2001:db8::1]:5353\"]
[[primary]]
catalogs = [\"catalog.example\"]
addresses = [\"192.0.2.1:53\"]
";
    let given = lowered(&format!("version = \"v1\"\n{text}"), &[]).expect("it is right").primaries;
    assert_eq!((given.len(), given[0].zones.len(), given[0].addresses.len()), (2, 2, 2));
    assert_eq!((given[1].zones.len(), given[1].catalogs.len()), (0, 1));

    check(
        "[[primary]]\nzones = [\"example.com\"]\nkey = \"\"\n[[primary]]\naddresses = [\"192.0.2.1\"]\nnotify = 1\n\
         [[primary]]\nzones = [\"Example.COM.\", \"a\"]\ncatalogs = [\"a\"]\naddresses = [\"192.0.2.1:53\"]",
        &[],
        &[
            "/etc/p.toml:4:7: key is an empty text; expected the name of a key in tsig_keys",
            "/etc/p.toml:6:14: addresses is \"192.0.2.1\"; expected IP addresses and ports, such as 127.0.0.1:53 or [::1]:53",
            "/etc/p.toml:7:1: unknown key notify in primary; expected zones, catalogs, addresses, key, tls or \
             authorities",
            "/etc/p.toml:2:1: the primary has no addresses; expected a line such as addresses = [\"192.0.2.1:53\", \
             \"[2001:db8::1]:53\"]",
            "/etc/p.toml:5:1: the primary has neither zones nor catalogs: it gives nothing; expected zones, catalogs or both",
            "/etc/p.toml:9:10: example.com. is given by a primary already; expected each zone once, with all addresses that \
             have it",
            "/etc/p.toml:10:13: a. is given by a primary already; expected each zone once, with all addresses that have it",
        ],
    );
}

#[test]
fn updaters_are_checked_whole() {
    let text = "\
[[updater]]
key = \"acme\"
zones = [\"example.com\"]
names = [\"_acme-challenge.*.Example.com\"]
types = [\"TXT\", \"TYPE65\"]
from = [\"192.0.2.1\"]
";
    let given = lowered(&format!("version = \"v1\"\n{text}"), &[]).expect("it is right").updaters;
    let given = [&given[0].zones, &given[0].names];
    assert_eq!(
        given.map(|names| names.iter().map(|name| name.value.labels()).collect::<Vec<_>>()),
        [vec![2], vec![4]]
    );

    check(
        "[[updater]]\nzones = [\"a..b\"]\nnames = [1]\ntype = \"TXT\"\n",
        &[],
        &[
            "/etc/p.toml:3:10: zones is \"a..b\"; expected names of zones, such as example.com",
            "/etc/p.toml:4:10: names is the number 1; expected names, such as www.example.com",
            "/etc/p.toml:5:1: unknown key type in updater; expected key, zones, names, types or from",
            "/etc/p.toml:2:1: the updater has no key; expected a line such as key = \"acme.example.com\"",
        ],
    );
}

#[test]
fn secondaries_are_checked_whole() {
    let text = "\
[[secondary]]
zones = [\"example.com\", \".\"]
from = [\"192.0.2.1\", \"2001:db8::/32\"]
notify = [\"192.0.2.1:53\"]
[[secondary]]
from = [\"::1\"]
";
    let given = lowered(&format!("version = \"v1\"\n{text}"), &[]).expect("it is right").secondaries;
    let secondary = &given[0];
    assert_eq!(secondary.zones.iter().map(|zone| zone.value.labels()).collect::<Vec<_>>(), [2, 0]);
    let from: Vec<String> = secondary.from.iter().map(|prefix| prefix.value.to_string()).collect();
    assert_eq!(from, ["192.0.2.1/32", "2001:db8::/32"]);
    assert_eq!((given.len(), given[1].from.len(), given[1].zones.len()), (2, 1, 0));

    check(
        "[[secondary]]\nzones = [\"a..b\"]\nkey = \"\"\n[[secondary]]\nfrom = [\"192.0.2.0/33\", \"x\"]\nkey = \"k\"\n\
         notify = [\"192.0.2.1\"]\nwho = 1",
        &[],
        &[
            "/etc/p.toml:3:10: zones is \"a..b\"; expected names of zones, such as example.com",
            "/etc/p.toml:4:7: key is an empty text; expected the name of a key in tsig_keys",
            "/etc/p.toml:6:9: from is \"192.0.2.0/33\"; expected addresses or prefixes, such as 192.0.2.1 or 2001:db8::/32",
            "/etc/p.toml:6:25: from is \"x\"; expected addresses or prefixes, such as 192.0.2.1 or 2001:db8::/32",
            "/etc/p.toml:8:11: notify is \"192.0.2.1\"; expected IP addresses and ports, such as 127.0.0.1:53 or [::1]:53",
            "/etc/p.toml:9:1: unknown key who in secondary; expected zones, catalog, from, key or notify",
            "/etc/p.toml:2:1: the secondary has neither from nor key: everybody could take the zones; expected from, key \
             or both",
        ],
    );
}

#[test]
fn views_have_addresses_of_their_own() {
    let text = "\
[[view]]
addresses = [\"198.41.0.4\", \"2001:503:ba3e::2:30\"]
zones = [\".\"]
[[view]]
addresses = [\"::ffff:192.5.6.30\"]
zones = [\"COM\", \".\"]
";
    let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("an address")).collect();
    let expected = [
        View { addresses: addresses(&["198.41.0.4", "2001:503:ba3e::2:30"]), zones: vec![b"\0".into()] },
        View { addresses: addresses(&["192.5.6.30"]), zones: vec![b"\x03com\0".into(), b"\0".into()] },
    ];
    assert_eq!(options(&format!("version = \"v1\"\n{text}"), &[]).views, expected);
    check(
        "[[view]]\naddresses = []\nzones = []\n[[view]]\n[[view]]\n\
         addresses = [\"192.0.2.1\", \"::ffff:192.0.2.1\", \"0.0.0.0\", \"x\"]\nzones = [\"a\", \"A.\", \"a..b\"]\n\
         [[view]]\naddresses = [\"::1\", \"192.0.2.1\"]\nzones = [\"a\"]\nzone = \"b\"",
        &[],
        &[
            "/etc/p.toml:3:13: addresses is an empty array; expected an array of IP addresses, such as 192.0.2.1 or \
             2001:db8::1",
            "/etc/p.toml:4:9: zones is an empty array; expected an array of names of zones, such as example.com",
            "/etc/p.toml:7:58: addresses is \"x\"; expected IP addresses, such as 192.0.2.1 or 2001:db8::1",
            "/etc/p.toml:8:21: zones is \"a..b\"; expected names of zones, such as example.com",
            "/etc/p.toml:12:1: unknown key zone in view; expected addresses or zones",
            "/etc/p.toml:5:1: the view has no addresses; expected a line such as addresses = [\"192.0.2.53\", \
             \"2001:db8::53\"]",
            "/etc/p.toml:5:1: the view has no zones; expected a line such as zones = [\"example.com\", \"example.net\"]",
            "/etc/p.toml:7:27: addresses has 192.0.2.1 twice; expected each address once",
            "/etc/p.toml:7:47: addresses has 0.0.0.0, which nobody can ask; expected addresses of ours: those in no view \
             answer from the zones that no view names",
            "/etc/p.toml:8:15: zones has a. twice; expected each zone once",
            "/etc/p.toml:10:21: 192.0.2.1 is in another view, too; expected each address in one view",
        ],
    );
    check("[view]", &[], &["/etc/p.toml:2:1: view is a table; expected headings [[view]]"]);
}

#[test]
fn there_are_so_many_views_at_most() {
    let text = |views: usize, addresses: usize, zones: usize| {
        let view = |view: usize| {
            let address =
                |n: usize| Ipv6Addr::from_bits(0x2001_0db8 << 96 | (view as u128) << 32 | n as u128);
            let addresses = (0..addresses).map(|n| format!("\"{}\"", address(n)));
            let zones = (0..zones).map(|n| format!("\"z{n}\""));
            let [addresses, zones] =
                [addresses.collect(), zones.collect()].map(|all: Vec<String>| all.join(","));
            format!("[[view]]\naddresses = [{addresses}]\nzones = [{zones}]\n")
        };
        (0..views).map(view).collect::<String>()
    };
    let told = |views, addresses, zones| {
        let text = format!("version = \"v1\"\n{}", text(views, addresses, zones));
        let told = lowered(&text, &[]).map(drop).err().unwrap_or_default();
        told.lines().filter_map(|line| line.split(": ").nth(1).map(String::from)).collect::<Vec<_>>()
    };
    let (addresses, zones) = (ADDRESSES_MAX / VIEWS_MAX, NAMED_MAX / VIEWS_MAX);
    assert_eq!(told(VIEWS_MAX, addresses, zones), [""; 0]);
    assert_eq!(told(VIEWS_MAX + 1, 1, 1), ["there are more than 4096 views; expected fewer"]);
    let too_many = ["65536 addresses in views", "65536 names of zones in views"];
    let too_many = too_many.map(|what| format!("there are more than {what}; expected fewer"));
    assert_eq!(told(1, ADDRESSES_MAX + 1, NAMED_MAX + 1), too_many);
}

#[test]
fn flags_replace_what_the_file_says_key_by_key() {
    let text = "version = \"v1\"\nlisten = [\"127.0.0.1:1\"]\nzone = [\"a.zone\"]\nstore = \"sqlite:x.db\"\nworkers = 3\n\
                [[partition]]\ncsv = \"a.csv\"\n";
    let from_file = options(text, &[]);
    assert_eq!(from_file.store, "sqlite:/etc/x.db");
    assert_eq!(from_file.workers, Some(3));
    assert!(matches!(&from_file.imports[0], Import::Zone(path) if path == Path::new("/etc/a.zone")));

    let flags = [
        "--listen",
        "127.0.0.1:2",
        "--listen",
        "[::1]:2",
        "--zone",
        "b.zone",
        "--store",
        "sqlite:y.db",
        "--partition",
        "geo=b.csv",
        "--partition",
        "c.csv",
        "--policy",
        "p.json",
        "--minimal-responses",
        "false",
    ];
    let over = options(text, &flags);
    assert_eq!(over.listen, ["127.0.0.1:2", "[::1]:2"].map(|address| address.parse().expect("an address")));
    assert_eq!((over.store.as_str(), over.workers), ("sqlite:y.db", Some(3)));
    assert!(!over.settings.minimal_responses);
    let [
        Import::Zone(zone),
        Import::Partition { name: geo, layers: b },
        Import::Partition { name, layers: c },
        Import::Policy(policy),
    ] = &over.imports[..]
    else {
        panic!("{:?}", over.imports);
    };
    assert_eq!([zone, policy], [Path::new("b.zone"), Path::new("p.json")]);
    assert_eq!([&b[..], &c[..]].concat(), ["b.csv", "c.csv"].map(|path| Layer::Csv(path.into())));
    assert_eq!((geo.as_str(), name.as_str()), ("geo", "default"));
}

#[test]
fn a_token_file_that_is_not_there_joins_the_list() {
    let line = Line::try_parse_from(["serve", "--token-file", "/nowhere/token", "--workers", "many"]);
    let (_, faults) = load(&line.expect("flags are only read later").flags);
    let faults: Vec<&str> = faults.faults.iter().map(|fault| fault.source.as_str()).collect();
    assert_eq!(faults, ["--workers", "/nowhere/token"]);
}

#[test]
fn flags_have_the_names_of_keys() {
    for key in SERVER.keys {
        let expected = (key.name != "version").then(|| key.name.replace('_', "-"));
        assert_eq!(key.flag, expected.as_deref());
    }
    assert!(SECTIONS.iter().flat_map(|section| section.keys).all(|key| key.flag.is_none()));
    for key in REVERSE.keys {
        assert_eq!(key.flag, Some(&*key.name.replace('_', "-")));
    }
    assert!(SECONDARY.keys.iter().all(|key| key.flag.is_none()));
    assert!(PRIMARY.keys.iter().all(|key| key.flag.is_none()));
    assert!(UPDATER.keys.iter().all(|key| key.flag.is_none()));
    assert!(VIEW.keys.iter().all(|key| key.flag.is_none()));
    assert!(PROBE.keys.iter().all(|key| key.flag.is_none()));
    assert!(PARTITION.keys.iter().all(|key| key.flag.is_none()));
}

#[test]
fn the_template_is_fresh_and_holds_when_uncommented() {
    let template = page::template();
    ::tests::fresh::check("etc/pointsman.template.toml", &template);
    assert_eq!(options(&template, &[]).imports.len(), 0, "as it is, it says nothing but its version");

    let settings = |line: &str| {
        let setting = line.strip_prefix('#').filter(|rest| !rest.starts_with(' ') && !rest.is_empty());
        setting.unwrap_or(line).to_owned() + "\n"
    };
    let uncommented: String = template.lines().map(settings).collect();
    let options = options(&uncommented, &[]);
    assert_eq!(options.imports.len(), 6);
    assert!(options.external.is_some());
    assert_eq!((options.workers, options.seed), (Some(2), Some(1)));
    assert_eq!(options.rate_limit, Some(rate_limit::Limits::default()));
    assert!(options.tap.is_some());
    assert_eq!((options.views.len(), options.views[0].zones.len()), (1, 2));
    let names = SECTIONS.iter().chain([&&SERVER]).flat_map(|section| section.keys).map(|key| key.name);
    // What may stand there several times, and what `reverse` needs, has some names that sections have too.
    let uncommented = uncommented.split("\n[[secondary]]\n").next().expect("a first part");
    // A file is not beside a socket.
    for name in names.filter(|name| *name != "socket") {
        let line = format!("{name} = ");
        assert_eq!(
            uncommented.lines().filter(|uncommented| uncommented.starts_with(&line)).count(),
            1,
            "{name}"
        );
    }
}

#[test]
fn the_manual_is_fresh() {
    ::tests::fresh::check("docs/reference/configuration.md", &page::manual());
}
