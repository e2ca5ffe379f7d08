//! NSD, Knot and BIND give us zones, with a key and without; what comes is what they have, and what they do not confirm
//! expires.

use std::fmt::Write as _;
use std::fs::File;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::Signal;
use tests::certificate::Certificate;
use tests::data;
use tests::folder::Folder;
use tests::peer::{Make, free_address};
use tests::program::PROGRAM_WAIT;
use tests::query::{Answer, Question, exchange, socket, wait};
use tests::secondary::Key;
use tests::serving::Serving;

const SECRET: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

const fn key<'a>(algorithm: &'a str, name: &'a str) -> Key<'a> {
    Key { algorithm, name, secret: SECRET }
}

/// So many names that a zone comes in many messages, of which NSD signs only some.
const NAMES: u32 = 2_000;

/// A zone that nobody asks for again within two hours.
fn zone(serial: u32) -> String {
    let mut text = format!(
        "$TTL 300\n@ SOA ns hm {serial} 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\nwww A 192.0.2.{serial}\n\
         odd TYPE65280 \\# 3 010203\nsub\\.dot TXT \"a;b\"\nmail MX 10 www\n*.wild CNAME www\n"
    );
    for name in 0..NAMES {
        let _ = writeln!(text, "n{name} TXT \"{name:0100}\"");
    }
    text
}

/// What a primary is told: to give `zone` from `file` to ours, and to tell it of changes.
fn gives(make: Make, zone: &str, file: &str, ours: SocketAddr, key: Option<Key<'_>>) -> String {
    let (ip, port) = (ours.ip(), ours.port());
    match make {
        Make::Nsd => {
            let (described, named) =
                key.map_or((String::new(), "NOKEY"), |Key { algorithm, name, secret }| {
                    let described =
                        format!("key:\n  name: {name}\n  algorithm: {algorithm}\n  secret: \"{secret}\"\n");
                    (described, name)
                });
            format!(
                "{described}zone:\n  name: {zone}\n  zonefile: \"{file}\"\n  provide-xfr: {ip} {named}\n  \
                 store-ixfr: yes\n  create-ixfr: yes\n  notify: {ip}@{port} {named}\n"
            )
        }
        Make::Knot => {
            let (described, named) = key.map_or_else(Default::default, |Key { algorithm, name, secret }| {
                let described =
                    format!("key:\n  - id: {name}\n    algorithm: {algorithm}\n    secret: {secret}\n");
                (described, format!("    key: {name}\n"))
            });
            format!(
                "{described}remote:\n  - id: ours\n    address: {ip}@{port}\n{named}acl:\n  - id: taken\n    \
                 address: {ip}\n{named}    action: transfer\nzone:\n  - domain: {zone}\n    file: {file}\n    \
                 zonefile-sync: -1\n    zonefile-load: difference\n    notify: ours\n    acl: taken\n"
            )
        }
        Make::Bind => {
            let (described, named, to) = match key {
                None => (String::new(), String::new(), ip.to_string()),
                Some(Key { algorithm, name, secret }) => (
                    format!("key \"{name}\" {{ algorithm {algorithm}; secret \"{secret}\"; }};\n"),
                    format!(" key \"{name}\""),
                    format!("key \"{name}\""),
                ),
            };
            format!(
                "{described}zone \"{zone}\" {{\n  type primary;\n  file \"{file}\";\n  allow-transfer {{ {to}; }};\n  \
                 ixfr-from-differences yes;\n  notify explicit;\n  notify-delay 0;\n  also-notify {{ {ip} port {port}{named}; }};\n}};\n"
            )
        }
    }
}

/// Ours at an address that is known before, with these zones of primaries.
fn serve(folder: &Folder, dns: SocketAddr, primaries: &[(&str, &[SocketAddr], Option<Key<'_>>)]) -> Serving {
    let keys: String =
        primaries.iter().filter_map(|(_, _, key)| key.as_ref()).map(|key| key.line() + "\n").collect();
    let keys = folder.write_secret("keys", keys);
    let mut text = format!("version = \"v1\"\ntsig_keys = [\"{keys}\"]\nlisten = [\"{dns}\"]\n");
    for (zone, addresses, key) in primaries {
        let addresses: Vec<String> = addresses.iter().map(|address| format!("\"{address}\"")).collect();
        let _ = writeln!(text, "[[primary]]\nzones = [\"{zone}\"]\naddresses = [{}]", addresses.join(", "));
        if let Some(key) = key {
            let _ = writeln!(text, "key = \"{}\"", key.name);
        }
    }
    let file = folder.write("pointsman.toml", text);
    Serving::start(folder, &["--config", &file, "--listen", &dns.to_string()])
}

fn has(expected: String) -> impl Fn(&Answer) -> bool {
    move |answer| answer.aa && answer.answer == [expected.as_str()]
}

/// The primaries, with the zone and the key of each.
const PRIMARIES: [(&str, Make, Key<'static>); 3] = [
    ("nsd.example", Make::Nsd, key("hmac-sha256", "from.nsd")),
    ("knot.example", Make::Knot, key("hmac-sha512", "from.knot")),
    ("bind.example", Make::Bind, key("hmac-sha384", "from.bind")),
];

fn follow(has_keys: bool) {
    let (folder, dns) = (Folder::new(), free_address());
    let peers = PRIMARIES.map(|(zone_name, make, key)| {
        let (theirs, primary) = (Folder::new(), free_address());
        let key = has_keys.then_some(key);
        theirs.write("a.zone", zone(1));
        let peer = make.start(&theirs, primary, &gives(make, zone_name, "a.zone", dns, key));
        (zone_name, key, theirs, peer)
    });
    // Nobody is at the first address: the next is asked.
    let addresses: Vec<_> = peers.iter().map(|(_, _, _, peer)| [free_address(), peer.dns]).collect();
    let primaries: Vec<_> =
        peers.iter().zip(&addresses).map(|((zone, key, ..), at)| (*zone, &at[..], *key)).collect();
    let ours = serve(&folder, dns, &primaries);
    for serial in [1, 2, 3] {
        for (_, _, theirs, peer) in peers.iter().filter(|_| serial > 1) {
            let file = theirs.write("a.zone", zone(serial));
            // BIND passes over a file whose time has not changed since it was read.
            let later = SystemTime::now() + Duration::from_secs(60) * serial;
            File::open(&file).and_then(|file| file.set_modified(later)).expect("it is ours");
            peer.program.signal(Signal::SIGHUP);
        }
        for (zone, ..) in &peers {
            wait(dns, &format!("www.{zone}"), "A", has(format!("www.{zone}. 300 in a 192.0.2.{serial}")));
            let last = format!("n{}.{zone}", NAMES - 1);
            wait(dns, &last, "TXT", |answer| answer.answer.len() == 1);
        }
    }
    // Each came whole at first, and then what had changed.
    for (outcome, expected) in [("taken", 9.0), ("incremental", 6.0)] {
        let metric = format!("pointsman_refreshes_total{{outcome=\"{outcome}\"}}");
        assert_eq!(ours.client().metric(&metric), Some(expected), "{outcome}");
    }
    for (method, body) in [("PUT", zone(9)), ("DELETE", String::new())] {
        let refused = ours.client().call(method, "/v1/zones/nsd.example", &body);
        assert_eq!(refused.status, 422, "{}", refused.text());
        assert!(refused.text().contains("nsd.example. is given by a primary"), "{}", refused.text());
    }
    // What came is what a master file would have brought.
    let other = Folder::new();
    let beside = Serving::start::<&str>(&other, &[]);
    for (name, ..) in &peers {
        let path = format!("/v1/zones/{name}");
        beside.call("PUT", &path, &zone(3));
        assert_same(&ours.call("GET", &path, "").text(), &beside.call("GET", &path, "").text());
    }
    beside.stop();
    ours.stop();
}

/// Tells where long texts differ.
fn assert_same(taken: &str, put: &str) {
    let differ = taken.lines().zip(put.lines()).find(|(taken, put)| taken != put);
    assert_eq!((differ, taken.len()), (None, put.len()));
}

#[test]
fn zones_come_by_address() {
    follow(false);
}

#[test]
fn zones_come_by_key() {
    follow(true);
}

#[test]
fn a_zone_that_nobody_confirms_expires_and_comes_back() {
    let (folder, theirs) = (Folder::new(), Folder::new());
    let (dns, primary) = (free_address(), free_address());
    let text = |serial| zone(serial).replace("7200 600 86400", "1 1 2");
    theirs.write("example.zone", text(1));
    let start =
        || Make::Knot.start(&theirs, primary, &gives(Make::Knot, "example", "example.zone", dns, None));
    let peer = start();
    let ours = serve(&folder, dns, &[("example", &[primary], None)]);
    wait(dns, "www.example", "A", has("www.example. 300 in a 192.0.2.1".into()));
    peer.program.stop();
    let expired = wait(dns, "www.example", "A", |answer| answer.rcode == "SERVFAIL");
    assert!(expired.answer.is_empty() && !expired.aa, "{expired:?}");
    assert_eq!(ours.client().metric("pointsman_primary_zones{state=\"expired\"}"), Some(1.0));
    let status = ours.call("GET", "/v1/status", "").json();
    assert_eq!(status.pointer("/primaries/expired").and_then(serde_json::Value::as_u64), Some(1), "{status}");
    let why = status.pointer("/primaries/first/0/message").and_then(serde_json::Value::as_str);
    assert!(why.is_some_and(|why| why.contains("no connection")), "{status}");

    let zones = ours.call("GET", "/v1/zones", "").text();
    assert!(zones.contains("it has expired, as its primary does not confirm it"), "{zones}");

    // A start confirms nothing: not even the first answer is from it.
    ours.stop();
    let ours = serve(&folder, dns, &[("example", &[primary], None)]);
    assert_eq!(Question::new("www.example", "A").udp(dns).rcode, "SERVFAIL");
    let status = ours.call("GET", "/v1/status", "").json();
    let confirmed = status.pointer("/primaries/first/0/confirmed_at").and_then(serde_json::Value::as_u64);
    assert!(confirmed.is_some_and(|at| at > 0), "{status}");

    // The same serial number as before: it is confirmed, not taken again.
    let peer = start();
    wait(dns, "www.example", "A", has("www.example. 300 in a 192.0.2.1".into()));
    let metric = |name: &str| ours.client().metric(name);
    assert_eq!(metric("pointsman_refreshes_total{outcome=\"taken\"}"), Some(0.0));
    assert_eq!(metric("pointsman_primary_zones{state=\"expired\"}"), Some(0.0));

    // Where it has no primary any more, nobody has to confirm it.
    peer.program.stop();
    wait(dns, "www.example", "A", |answer| answer.rcode == "SERVFAIL");
    folder.write("pointsman.toml", format!("version = \"v1\"\nlisten = [\"{dns}\"]\n"));
    ours.program.signal(Signal::SIGHUP);
    wait(dns, "www.example", "A", has("www.example. 300 in a 192.0.2.1".into()));
    ours.call("PUT", "/v1/zones/example", &zone(7));
    wait(dns, "www.example", "A", has("www.example. 300 in a 192.0.2.7".into()));
    ours.stop();
}

#[test]
fn what_changed_of_another_version_leads_to_the_whole_zone() {
    let (folder, theirs) = (Folder::new(), [Folder::new(), Folder::new()]);
    let (dns, primary) = (free_address(), free_address());
    let start = |at: usize| {
        Make::Knot.start(&theirs[at], primary, &gives(Make::Knot, "example", "a.zone", dns, None))
    };
    theirs[0].write("a.zone", zone(1));
    let peer = start(0);
    let mut ours = serve(&folder, dns, &[("example", &[primary], None)]);
    wait(dns, "www.example", "A", has("www.example. 300 in a 192.0.2.1".into()));
    peer.program.stop();
    // Another zone of the same serial number, and what changed in that.
    theirs[1].write("a.zone", zone(1).replace("192.0.2.1\n", "192.0.2.77\n"));
    let peer = start(1);
    theirs[1].write("a.zone", zone(2));
    peer.program.signal(Signal::SIGHUP);
    wait(dns, "www.example", "A", has("www.example. 300 in a 192.0.2.2".into()));
    let told = ours.program.line("asked for whole");
    assert!(told.contains("a record www.example. A goes that is not here"), "{told}");
    for (outcome, expected) in [("taken", 2.0), ("incremental", 0.0)] {
        let metric = format!("pointsman_refreshes_total{{outcome=\"{outcome}\"}}");
        assert_eq!(ours.client().metric(&metric), Some(expected), "{outcome}");
    }
    peer.program.stop();
    ours.stop();
}

#[test]
fn zones_come_over_tls_from_who_is_believed() {
    let (folder, theirs) = (Folder::new(), Folder::new());
    let certificate = Certificate::new(&theirs);
    let (given, tls) = (free_address(), free_address());
    // One of ours gives it, over TLS, by what changed, too.
    let primary = theirs.write(
        "pointsman.toml",
        format!(
            "version = \"v1\"\ntls_listen = [\"{tls}\"]\ntls_certificate = \"{}\"\ntls_key = \"{}\"\n\
             [[secondary]]\nfrom = [\"127.0.0.1\"]\nnotify = [\"{given}\"]\n",
            certificate.certificate, certificate.key
        ),
    );
    let primary = Serving::start(&theirs, &["--config", &primary]);
    primary.call("PUT", "/v1/zones/example", &zone(1));
    let config = |name: &str| {
        let text = format!(
            "version = \"v1\"\n[[primary]]\nzones = [\"example\"]\naddresses = [\"{tls}\"]\ntls = \"{name}\"\n\
             authorities = \"{}\"\n",
            certificate.authority
        );
        folder.write("pointsman.toml", text)
    };
    let file = config("other.example.com");
    let mut ours = Serving::start(&folder, &["--config", &file, "--listen", &given.to_string()]);
    let told = ours.program.has_said("a zone cannot be had of its primary");
    assert!(told.contains("no terms over TLS") && told.contains("other.example.com"), "{told}");
    config("dns.example.com");
    ours.program.signal(Signal::SIGHUP);
    wait(given, "www.example", "A", has("www.example. 300 in a 192.0.2.1".into()));
    primary.call("PUT", "/v1/zones/example", &zone(2));
    wait(given, "www.example", "A", has("www.example. 300 in a 192.0.2.2".into()));
    let metric = |name: &str| ours.client().metric(name);
    assert_eq!(metric("pointsman_refreshes_total{outcome=\"incremental\"}"), Some(1.0));
    let streamed =
        "pointsman_queries_total{transport=\"tls\",type=\"none\",rcode=\"none\",verdict=\"streamed\"}";
    assert_eq!(primary.client().metric(streamed), Some(2.0));
    ours.stop();
    primary.stop();
}

#[test]
fn the_root_zone_comes_as_it_is() {
    let Some(root) = data::xz_text("replay/root.zone.xz") else { return };
    let (folder, theirs) = (Folder::new(), Folder::new());
    let (dns, primary) = (free_address(), free_address());
    theirs.write("root.zone", &root);
    let peer = Make::Nsd.start(
        &theirs,
        primary,
        &gives(Make::Nsd, ".", "root.zone", dns, Some(key("hmac-sha256", "from.nsd"))),
    );
    let ours = serve(&folder, dns, &[(".", &[primary], Some(key("hmac-sha256", "from.nsd")))]);
    wait(dns, ".", "SOA", |answer| answer.answer.len() == 1);
    let taken = ours.call("GET", "/v1/zones/.", "").text();
    ours.stop();
    peer.program.stop();
    let other = Folder::new();
    let beside = Serving::start::<&str>(&other, &[]);
    beside.call("PUT", "/v1/zones/.", &root);
    assert_same(&taken, &beside.call("GET", "/v1/zones/.", "").text());
    beside.stop();
}

#[test]
fn what_a_primary_gives_wrongly_changes_nothing() {
    let (folder, theirs) = (Folder::new(), Folder::new());
    let (dns, primary) = (free_address(), free_address());
    theirs.write("example.zone", zone(1));
    let other =
        Key { secret: "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=", ..key("hmac-sha256", "from.nsd") };
    let peer =
        Make::Nsd.start(&theirs, primary, &gives(Make::Nsd, "example", "example.zone", dns, Some(other)));
    let ours = serve(
        &folder,
        dns,
        &[("example", &[primary], Some(key("hmac-sha256", "from.nsd"))), ("elsewhere", &[primary], None)],
    );
    let until = Instant::now() + PROGRAM_WAIT;
    let status = loop {
        let status = ours.call("GET", "/v1/status", "").json();
        if status.pointer("/primaries/failing").and_then(serde_json::Value::as_u64) == Some(2) {
            break status;
        }
        assert!(Instant::now() < until, "{status}");
    };
    let told = |at: usize, key: &str| {
        let value = status.pointer(&format!("/primaries/first/{at}/{key}"));
        value.and_then(serde_json::Value::as_str).unwrap_or_else(|| panic!("{status}")).to_string()
    };
    let zones = [told(0, "zone"), told(1, "zone")];
    let of = |zone: &str| told(zones.iter().position(|told| told == zone).expect("it fails"), "message");
    assert!(of("example.").contains("BADSIG"), "{status}");
    assert!(of("elsewhere.").contains("REFUSED"), "{status}");
    // A zone that has not come is none that is not ours.
    for (name, expected) in [("www.elsewhere", "SERVFAIL"), ("www.nowhere", "REFUSED")] {
        assert_eq!(Question::new(name, "A").udp(dns).rcode, expected, "{name}");
    }
    // A notification of nobody, one of no zone, and one that is not signed as it must be.
    for (zone, expected) in [("example", "REFUSED"), ("nowhere", "NOTAUTH")] {
        let mut message = Question::new(zone, "SOA").message();
        message[2] = 4 << 3;
        let answer = exchange(&socket(dns), &message).expect("an answer");
        assert_eq!(answer[2] >> 3, 0x10 | 4, "the answer to a notification");
        assert_eq!(Answer::read(&answer).rcode, expected, "{zone}");
    }
    assert_eq!(ours.client().call("GET", "/v1/zones/example", "").status, 404);
    peer.program.stop();
    ours.stop();
}
