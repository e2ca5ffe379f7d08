//! Clients change zones with DNS UPDATE: nsupdate and knsupdate, by who may and who may not; held against BIND; in a zone
//! signed here, and with secondaries.

use std::net::SocketAddr;
use std::process::Command;

use fastrand::Rng;
use nix::sys::signal::Signal;
use tests::database::{Database, Kind};
use tests::folder::Folder;
use tests::peer::{Make, Peer, free_address};
use tests::query::{Question, exchange, rest, socket};
use tests::secondary::{Follows, Key};
use tests::serving::Serving;
use tests::signer::{generate, verify};

const SECRET: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// May change everything, may change little, and may do nothing.
const ALL: Key<'static> = key("all.example");
const ACME: Key<'static> = key("acme.example");
const NOBODY: Key<'static> = key("nobody.example");

const ZONE: &str = "$ORIGIN example.\n$TTL 300\n@ SOA ns hm 7 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\nwww A 192.0.2.1\n";

const UPDATERS: &str = "\
[[updater]]
key = \"all.example\"
[[updater]]
key = \"acme.example\"
zones = [\"example\"]
names = [\"_acme-challenge.example\", \"_acme-challenge.*.example\"]
types = [\"TXT\"]
";

/// How many updates are held against BIND's, in so many rounds.
const UPDATES: usize = 40;
const ROUNDS: usize = 6;

const fn key(name: &str) -> Key<'_> {
    Key { algorithm: "hmac-sha256", name, secret: SECRET }
}

/// Starts the server with the zone, and who may change it.
fn serve(folder: &Folder, more: &str) -> Serving {
    Serving::start(folder, &["--config", &configure(folder, more)])
}

/// Writes its configuration; returns the path.
fn configure(folder: &Folder, more: &str) -> String {
    let keys = [ALL, ACME, NOBODY].map(|key| key.line() + "\n").concat();
    folder.write_secret("tsig.keys", keys);
    folder.write("example.zone", ZONE);
    let text =
        format!("version = \"v1\"\ntsig_keys = [\"tsig.keys\"]\nzone = [\"example.zone\"]\n{more}{UPDATERS}");
    folder.write("pointsman.toml", text)
}

/// Has nsupdate send these lines; returns the code of each answer, as it tells them.
fn nsupdate(folder: &Folder, server: SocketAddr, options: &[&str], lines: &str) -> Vec<String> {
    let text = format!("server {} {}\nzone example\n{lines}", server.ip(), server.port());
    let mut command = Command::new("nsupdate");
    command.args(["-d", "-r", "0"]).args(options).arg(folder.write("update", text));
    let output = command.output().expect("nsupdate (Debian: bind9-dnsutils)");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let mut replies = said.split("Reply from update query:").skip(1).map(|reply| {
        let status = reply.split_once("status: ").expect("a status").1;
        status.split(',').next().expect("a word").to_string()
    });
    let codes: Vec<String> = replies.by_ref().collect();
    assert!(!codes.is_empty(), "{said}");
    codes
}

/// The records of the zone as everybody may take it, sorted.
fn records(server: SocketAddr) -> Vec<String> {
    let (ip, port) = (format!("@{}", server.ip()), server.port().to_string());
    let dig = Command::new("dig")
        .args([&ip, "-p", &port, "example", "AXFR", "+onesoa", "+noall", "+answer"])
        .output()
        .expect("dig (Debian: bind9-dnsutils)");
    let text = String::from_utf8(dig.stdout).expect("it writes text");
    let mut lines: Vec<String> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    lines.sort();
    assert!(!lines.is_empty());
    lines
}

fn serial(server: SocketAddr) -> u32 {
    let answer = Question::new("example", "SOA").udp(server);
    answer.data()[0].split(' ').nth(2).and_then(|serial| serial.parse().ok()).expect("a serial number")
}

/// What a metric counts, by outcome.
fn counted(ours: &Serving, outcome: &str) -> u64 {
    let text = ours.client().call("GET", "/metrics", "").text();
    let name = format!("pointsman_zone_updates_total{{outcome=\"{outcome}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name)).expect("it is there");
    line.parse().expect("a number")
}

#[test]
fn who_may_changes_what_they_may() {
    let folder = Folder::new();
    let ours = serve(&folder, "");
    ours.call("PUT", "/v1/policies/steered.example", r#"{"servers":[{"address":"192.0.2.9"}]}"#);
    let txt = |owner: &str| format!("update add {owner} 60 TXT token\nsend\n");
    for (what, options, lines, expected) in [
        ("everything", Some(ALL), "update add new.example 60 A 192.0.2.7\nsend\n".to_string(), "NOERROR"),
        ("the same again", Some(ALL), "update add new.example 60 A 192.0.2.7\nsend\n".to_string(), "NOERROR"),
        ("a challenge", Some(ACME), txt("_acme-challenge.example"), "NOERROR"),
        ("of a name", Some(ACME), txt("_acme-challenge.www.example"), "NOERROR"),
        ("of a name below", Some(ACME), txt("_acme-challenge.a.b.example"), "REFUSED"),
        ("another name", Some(ACME), txt("www.example"), "REFUSED"),
        (
            "another type",
            Some(ACME),
            "update add _acme-challenge.example 60 CAA 0 issue ca.example\nsend\n".into(),
            "REFUSED",
        ),
        ("all types", Some(ACME), "update delete _acme-challenge.example\nsend\n".into(), "REFUSED"),
        ("its type", Some(ACME), "update delete _acme-challenge.example TXT\nsend\n".into(), "NOERROR"),
        ("by a key without rights", Some(NOBODY), txt("_acme-challenge.example"), "REFUSED"),
        ("without key", None, txt("_acme-challenge.example"), "REFUSED"),
        (
            "what is there",
            Some(ALL),
            format!("prereq nxdomain www.example\n{}", txt("a.example")),
            "YXDOMAIN",
        ),
        (
            "what is not there",
            Some(ALL),
            format!("prereq yxrrset a.example A\n{}", txt("a.example")),
            "NXRRSET",
        ),
        ("another zone", Some(ALL), "zone nowhere\nupdate add nowhere 60 TXT x\nsend\n".into(), "NOTAUTH"),
        (
            "what a policy decides",
            Some(ALL),
            "update add steered.example 60 CNAME www.example\nsend\n".into(),
            "REFUSED",
        ),
    ] {
        for transport in [&[][..], &["-v"]] {
            let key = options.map(|key| key.line());
            let options: Vec<&str> =
                key.iter().flat_map(|key| ["-y", key]).chain(transport.iter().copied()).collect();
            assert_eq!(nsupdate(&folder, ours.dns(), &options, &lines), [expected], "{what} {transport:?}");
        }
    }
    let all = records_by_api(&ours);
    assert!(
        all.contains("new.example. 60 IN A 192.0.2.7\n")
            && all.contains("_acme-challenge.www.example. 60 IN TXT \"token\"\n"),
        "{all}"
    );
    assert!(!all.contains("a.example. 60") && !all.contains("_acme-challenge.example."), "{all}");
    // Made: new, both challenges, and that one went. What changes nothing has no new serial number.
    assert_eq!((serial(ours.dns()), counted(&ours, "made"), counted(&ours, "idle")), (7 + 4, 4, 6));
    assert_eq!((counted(&ours, "unmet"), counted(&ours, "malformed")), (4, 0));
    // It is stored.
    ours.stop();
    let ours = Serving::start(&folder, &["--config", &folder.at("pointsman.toml")]);
    assert_eq!((serial(ours.dns()), records_by_api(&ours)), (11, all));

    // And knsupdate, over TCP.
    let lines = format!(
        "server {} {}\nkey {}\nzone example\norigin example\nadd knot 60 AAAA 2001:db8::1\nsend\n",
        ours.dns().ip(),
        ours.dns().port(),
        ALL.line()
    );
    let knot = Command::new("knsupdate").args(["-v", &folder.write("update", lines)]).output();
    let knot = knot.expect("knsupdate (Debian: knot-dnsutils)");
    assert!(knot.status.success(), "{}", String::from_utf8_lossy(&knot.stderr));
    assert_eq!(Question::new("knot.example", "AAAA").udp(ours.dns()).data(), ["2001:db8::1"]);

    // Without rules nobody may, from the next SIGHUP on.
    let text = std::fs::read_to_string(folder.at("pointsman.toml")).expect("it was written");
    folder.write("pointsman.toml", text.replace(UPDATERS, ""));
    let mut ours = ours;
    ours.program.signal(Signal::SIGHUP);
    ours.program.line("reloaded");
    let options = ["-y", &ALL.line()];
    assert_eq!(nsupdate(&folder, ours.dns(), &options, &txt("late.example")), ["NOTIMP"]);
    ours.stop();
}

fn records_by_api(ours: &Serving) -> String {
    ours.client().call("GET", "/v1/zones/example", "").text()
}

/// What cannot be read is told so to who has signed it, and to nobody else.
#[test]
fn what_is_malformed_is_refused() {
    let folder = Folder::new();
    let ours = serve(&folder, "");
    // An update of two zones, of another class than IN, of a type, and one that breaks off.
    let head = |zones: u8| vec![0, 7, 0x28, 0, 0, zones, 0, 0, 0, 0, 0, 0];
    let zone = b"\x07example\0\0\x06\0\x01";
    for (message, expected) in [
        ([&head(2)[..], zone, zone].concat(), 1),
        ([&head(0)[..]].concat(), 1),
        ([&head(1)[..], &zone[..9]].concat(), 1),
        ([&head(1)[..], b"\x07example\0\0\x06\0\x03"].concat(), 5),
        ([&head(1)[..], b"\x07example\0\0\x01\0\x01"].concat(), 5),
        ([&head(1)[..], zone].concat(), 5),
    ] {
        let answer = exchange(&socket(ours.dns()), &message).expect("an answer");
        assert_eq!((answer[2] & 0xf8, answer[3] & 15), (0x80 | 5 << 3, expected), "{message:?}");
    }
    ours.stop();
}

/// Of what two name servers are told at once of a zone that they share, nothing is lost.
#[test]
fn name_servers_on_one_database_update_one_zone() {
    const EACH: usize = 8;
    let database = Database::start(Kind::Postgres);
    let store = database.url(&database.empty());
    let folders = [Folder::new(), Folder::new()];
    let servers = folders
        .each_ref()
        .map(|folder| Serving::start(folder, &["--config", &configure(folder, ""), "--store", &store]));
    std::thread::scope(|scope| {
        for (index, (server, folder)) in servers.iter().zip(&folders).enumerate() {
            let dns = server.dns();
            scope.spawn(move || {
                for number in 0..EACH {
                    let lines = format!("update add n{number}.s{index}.example 60 A 192.0.2.1\nsend\n");
                    // Who is outrun again and again says so, and changes nothing.
                    while nsupdate(folder, dns, &["-y", &ALL.line()], &lines) == ["SERVFAIL"] {
                        rest();
                    }
                }
            });
        }
    });
    let ends_at = 7 + 2 * EACH as u32;
    while servers.iter().any(|server| serial(server.dns()) != ends_at) {
        rest();
    }
    let [one, other] = servers.each_ref().map(records_by_api);
    assert_eq!(one, other);
    assert_eq!(one.lines().filter(|line| line.starts_with('n') && line.contains(".s")).count(), 2 * EACH);
    servers.into_iter().for_each(|server| drop(server.stop()));
}

/// Both take the same updates, answer each with the same code, and have the same zone, its serial number too.
#[test]
fn a_zone_becomes_what_bind_makes_of_it() {
    let folder = Folder::new();
    let secondary = "[[secondary]]\nfrom = [\"127.0.0.1\"]\n";
    let mut ours = serve(&folder, secondary);
    let place = Folder::new();
    let file = place.write("dynamic.zone", ZONE);
    let zones = format!(
        "key \"{0}\" {{ algorithm {1}; secret \"{2}\"; }};\nzone \"example\" {{\n  type primary;\n  file \"{file}\";\n  \
         allow-update {{ key \"{0}\"; }};\n  allow-transfer {{ any; }};\n  check-names ignore;\n  check-integrity no;\n  check-mx ignore;\n}};\n",
        ALL.name, ALL.algorithm, ALL.secret
    );
    let bind = Make::Bind.start(&place, free_address(), &zones);
    let options = ["-y", &ALL.line(), "-v"];
    let mut rng = Rng::with_seed(7);
    let mut codes = std::collections::BTreeMap::<String, usize>::new();
    for round in 0..ROUNDS {
        let lines: String = (0..UPDATES).map(|_| random(&mut rng)).collect();
        let [theirs, told] = [bind.dns, ours.dns()].map(|server| nsupdate(&folder, server, &options, &lines));
        let blocks: Vec<&str> = lines.split_inclusive("send\n").collect();
        assert_eq!(told.len(), UPDATES);
        for ((theirs, ours), block) in theirs.iter().zip(&told).zip(&blocks) {
            assert_eq!(theirs, ours, "round {round}: {block}");
        }
        assert_eq!(records(bind.dns), records(ours.dns()), "round {round}: {lines}");
        // What is there after a crash is the same, and can be changed on.
        let text = records_by_api(&ours);
        drop(ours);
        ours = serve(&folder, secondary);
        assert_eq!(records_by_api(&ours), text, "round {round}");
        for code in told {
            *codes.entry(code).or_default() += 1;
        }
    }
    let kinds = ["NOERROR", "NXDOMAIN", "YXDOMAIN", "NXRRSET", "YXRRSET"];
    assert!(kinds.iter().all(|kind| codes.contains_key(*kind)), "{codes:?}");
    ours.stop();
}

/// An update: up to two prerequisites, and up to three changes.
fn random(rng: &mut Rng) -> String {
    const NAMES: [&str; 5] = ["example", "a.example", "b.example", "c.b.example", "*.w.example"];
    const DATA: [&str; 9] = [
        "A 192.0.2.1",
        "A 192.0.2.2",
        "TXT one",
        "TXT \"two words\" three",
        "MX 10 a.example.",
        "MX 10 A.Example.",
        "CNAME a.example.",
        "DNAME a.example.",
        "NS ns.example.",
    ];
    let name = |rng: &mut Rng| NAMES[rng.usize(..NAMES.len())];
    // BIND leaves these out at a wildcard, and says nothing; nor does it take a DNAME above its name servers.
    let added = |rng: &mut Rng| loop {
        let (name, data) = (NAMES[rng.usize(..NAMES.len())], DATA[rng.usize(..DATA.len())]);
        let is_odd =
            name.starts_with('*') && data.contains('N') || name == "example" && data.starts_with('D');
        if !is_odd {
            return format!("{name} {} {data}", [60, 300][rng.usize(..2)]);
        }
    };
    let data = |rng: &mut Rng| DATA[rng.usize(..DATA.len())];
    let rtype = |rng: &mut Rng| data(rng).split(' ').next().expect("a type");
    let mut lines = String::new();
    for _ in 0..rng.usize(..3) {
        // Half of them always hold.
        lines += &match rng.usize(..8) {
            0 => format!("prereq yxdomain {}\n", name(rng)),
            1 => format!("prereq nxdomain {}\n", name(rng)),
            2 => format!("prereq yxrrset {} {}\n", name(rng), rtype(rng)),
            3 => format!("prereq nxrrset {} {}\n", name(rng), rtype(rng)),
            4 => format!("prereq yxrrset {} {}\n", name(rng), data(rng)),
            _ => "prereq yxrrset example NS\n".into(),
        };
    }
    for _ in 0..rng.usize(1..4) {
        lines += &match rng.usize(..6) {
            0 => format!("update delete {} {}\n", name(rng), data(rng)),
            1 => format!("update delete {} {}\n", name(rng), rtype(rng)),
            2 => format!("update delete {}\n", name(rng)),
            _ => format!("update add {}\n", added(rng)),
        };
    }
    lines + "send\n"
}

#[test]
fn a_zone_that_is_signed_here_stays_so_and_secondaries_follow() {
    let folder = Folder::new();
    let signing = generate(&folder, "example", &["-a", "ECDSAP256SHA256", "-f", "KSK"]);
    let knot = free_address();
    let more = format!(
        "signing_keys = [\"{}\"]\n[[secondary]]\nfrom = [\"127.0.0.1\"]\nnotify = [\"{knot}\"]\n",
        folder.at(&format!("{signing}.private"))
    );
    let ours = serve(&folder, &more);
    let follows = Follows { dns: knot, zone: "example", primary: ours.dns(), key: None };
    let knot = Make::Knot.follow(&folder, &follows);
    let anchor = folder.at(&format!("{signing}.key"));
    let unbound = Peer::unbound(&folder, &anchor, &["example"], ours.dns());
    let options = ["-y", &ALL.line()];
    for (lines, name, expected) in [
        (
            "prereq yxrrset www.example A 192.0.2.1\nupdate add new.example 60 TXT one\nsend\n",
            "new.example",
            1,
        ),
        ("update add www.example 60 TXT one\nupdate add www.example 60 TXT two\nsend\n", "www.example", 2),
        ("update add *.wild.example 60 TXT x\nsend\n", "a.wild.example", 1),
        ("update delete *.wild.example\nsend\n", "b.wild.example", 0),
        // What is made here is nobody's to change.
        ("update delete example DNSKEY\nupdate delete www.example RRSIG\nsend\n", "ns.example", 0),
    ] {
        assert_eq!(nsupdate(&folder, ours.dns(), &options, lines), ["NOERROR"], "{lines}");
        let answer = Question::new(name, "TXT").edns().ad().udp(unbound.dns);
        let texts = answer.answer.iter().filter(|record| record.contains(" txt ")).count();
        assert_eq!((texts, answer.ad), (expected, true), "{lines} {answer:?}");
        while serial(knot.dns) != serial(ours.dns()) {
            rest();
        }
        let both = [knot.dns, ours.dns()]
            .map(|server| Question::new(name, "TXT").edns().dnssec_ok().udp(server).answer);
        assert_eq!(both[0], both[1]);
    }
    verify(&folder, "example", &(records(ours.dns()).join("\n") + "\n"));
    // The serial number that is seen is what an update goes by, and sets.
    let soa = Question::new("example", "SOA").udp(ours.dns()).data()[0].to_string();
    let (seen, later) = (serial(ours.dns()).to_string(), serial(ours.dns()) + 5);
    let lines = format!(
        "prereq yxrrset example SOA {soa}\nupdate add example 300 SOA {}\nsend\n",
        soa.replace(&format!(" {seen} "), &format!(" {later} "))
    );
    assert_eq!(nsupdate(&folder, ours.dns(), &options, &lines), ["NOERROR"], "{lines}");
    assert_eq!(serial(ours.dns()), later);
    let refused = "update add www.example 60 DNSKEY 257 3 13 AAAA\nsend\n";
    assert_eq!(nsupdate(&folder, ours.dns(), &options, refused), ["REFUSED"]);
    // All but the first it took whole as what changed.
    let text = ours.client().call("GET", "/metrics", "").text();
    let line =
        text.lines().find(|line| line.starts_with("pointsman_transfers_total{outcome=\"incremental\"}"));
    assert!(line.is_some_and(|line| line.ends_with(" 4")), "{line:?}");
    ours.stop();
}
