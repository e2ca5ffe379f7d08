//! NSD, Knot and BIND follow our zones, with a key and without, and who may not take a zone does not get it.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tests::folder::Folder;
use tests::peer::{Peer, free_address};
use tests::program::{PROGRAM_WAIT, Program};
use tests::query::{Answer, Question, connect, exchange, receive, rest, send, socket};
use tests::secondary::{Follows, Key, Make};
use tests::serving::Serving;

const SECRET: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const OTHER_SECRET: &str = "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=";

/// Each secondary and, where there are keys, its own.
const SECONDARIES: [(&str, Make, Key<'static>); 3] = [
    ("nsd", Make::Nsd, key("hmac-sha256", "nsd.example")),
    ("knot", Make::Knot, key("hmac-sha512", "knot.example")),
    ("bind", Make::Bind, key("hmac-sha384", "bind.example")),
];

const fn key<'a>(algorithm: &'a str, name: &'a str) -> Key<'a> {
    Key { algorithm, name, secret: SECRET }
}

/// The zone at a serial number. Secondaries would ask again only after two hours.
fn zone(serial: u32) -> String {
    format!(
        "$TTL 300\n@ SOA ns hm {serial} 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\nwww A 192.0.2.{serial}\n"
    )
}

#[test]
fn secondaries_follow_by_address() {
    follow(false);
}

#[test]
fn secondaries_follow_by_key() {
    follow(true);
}

fn follow(has_keys: bool) {
    let folder = Folder::new();
    let key = |key: Key<'static>| has_keys.then_some(key);
    let addresses = SECONDARIES.map(|_| free_address());
    let mut sections = String::new();
    for ((_, _, each), address) in SECONDARIES.iter().zip(addresses) {
        sections += &format!("[[secondary]]\nzones = [\"example\"]\nnotify = [\"{address}\"]\n");
        sections += &match key(*each) {
            Some(key) => format!("key = \"{}\"\n", key.name),
            None => "from = [\"127.0.0.1\"]\n".to_string(),
        };
    }
    let ours = serve(&folder, &SECONDARIES.map(|(_, _, key)| key), &sections);
    ours.call("PUT", "/v1/zones/example", &zone(1));
    let peers: Vec<(&str, Peer)> = SECONDARIES
        .iter()
        .zip(addresses)
        .map(|((name, make, each), dns)| {
            let follows = Follows { dns, zone: "example", primary: ours.dns(), key: key(*each) };
            (*name, make.follow(&folder, &follows))
        })
        .collect();
    for serial in [1, 2, 3] {
        if serial > 1 {
            ours.call("PUT", "/v1/zones/example", &zone(serial));
        }
        for (name, peer) in &peers {
            wait_for(name, peer.dns, serial);
        }
    }
    // Each took the first whole, and of the others what had changed.
    assert_eq!(given(&ours), [9, 6]);
    let refused = ours.client().call("PUT", "/v1/zones/example", &zone(2));
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(refused.text().contains("serial"), "{}", refused.text());
    ours.stop();
}

#[test]
fn what_changed_makes_the_same_zone_of_every_secondary() {
    const NAMES: u32 = 40;
    let folder = Folder::new();
    let addresses = SECONDARIES.map(|_| free_address());
    let notify: Vec<String> = addresses.iter().map(|address| format!("\"{address}\"")).collect();
    let section = format!(
        "[[secondary]]\nzones = [\"example\"]\nfrom = [\"127.0.0.1\"]\nnotify = [{}]\n",
        notify.join(", ")
    );
    let ours = serve(&folder, &[], &section);
    // Names come, go and change, in data and in TTL; a wildcard and a delegation, too.
    let version = |serial: u32| {
        let names = (0..NAMES).filter(|name| !(name * 7 + serial * 5).is_multiple_of(3)).map(|name| {
            let data = if name % 4 == 0 { serial } else { 100 };
            let ttl = if name % 10 == serial { 60 } else { 300 };
            format!("n{name} {ttl} A 192.0.2.{data}\nn{name} {ttl} A 192.0.2.{}\n", 101 + name)
        });
        let wildcard = if serial.is_multiple_of(2) { "*.w MX 10 n1\n" } else { "a.b.w TXT x\n" };
        let delegation = if serial > 2 { "sub NS ns.sub\nns.sub A 192.0.2.9\n" } else { "" };
        zone(serial) + &names.collect::<String>() + wildcard + delegation
    };
    ours.call("PUT", "/v1/zones/example", &version(1));
    let peers: Vec<(&str, Peer)> = SECONDARIES
        .iter()
        .zip(addresses)
        .map(|((name, make, _), dns)| {
            let follows = Follows { dns, zone: "example", primary: ours.dns(), key: None };
            (*name, make.follow(&folder, &follows))
        })
        .collect();
    let names = (0..NAMES).map(|name| (format!("n{name}.example"), "A"));
    let others =
        [("a.b.w.example", "TXT"), ("b.w.example", "MX"), ("x.w.example", "MX"), ("x.sub.example", "A")];
    let asked: Vec<(String, &str)> =
        names.chain(others.map(|(name, kind)| (name.to_string(), kind))).collect();
    for serial in 1..=6 {
        if serial > 1 {
            ours.call("PUT", "/v1/zones/example", &version(serial));
        }
        for (name, peer) in &peers {
            wait_for(name, peer.dns, serial);
            let until = Instant::now() + PROGRAM_WAIT;
            for (question, kind) in &asked {
                let answer = |server| {
                    let answer = exchange(&socket(server), &Question::new(question, kind).message());
                    let Answer { rcode, aa, mut answer, .. } = Answer::read(&answer.expect("an answer"));
                    answer.sort();
                    (rcode, aa, answer)
                };
                let expected = answer(ours.dns());
                // Not all of NSD's processes take a zone at once.
                while answer(peer.dns) != expected {
                    assert!(
                        Instant::now() < until,
                        "{question} {kind} of {name} at {serial} is not {expected:?}"
                    );
                    rest();
                }
            }
        }
    }
    let count = peers.len() as u64;
    assert_eq!(given(&ours), [6 * count, 5 * count]);
    ours.stop();
}

/// How many transfers were begun, and how many of them were of changes.
fn given(ours: &Serving) -> [u64; 2] {
    let metrics = ours.call("GET", "/metrics", "").text().to_string();
    ["started", "incremental"].map(|outcome| {
        let name = format!("pointsman_transfers_total{{outcome=\"{outcome}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name)).expect("it is counted");
        line.parse().expect("a number")
    })
}

/// After how long a secondary that may have lost a query is asked again.
const ASKED_AGAIN: Duration = Duration::from_millis(200);

/// Waits until a secondary answers from the zone of this serial number, also what it answers beside it: NSD's processes do
/// not all take a new zone at once.
fn wait_for(name: &str, server: SocketAddr, serial: u32) {
    let soa = format!("example. 300 in soa ns.example. hm.example. {serial} 7200 600 86400 60");
    let address = format!("www.example. 300 in a 192.0.2.{serial}");
    let until = Instant::now() + PROGRAM_WAIT;
    let ask = |name, kind| {
        // A secondary may not listen yet when it says that it runs, and may lose a query while it takes a zone.
        let socket = socket(server);
        socket.set_read_timeout(Some(ASKED_AGAIN)).expect("the bound is not zero");
        exchange(&socket, &Question::new(name, kind).message()).map(|octets| Answer::read(&octets))
    };
    loop {
        let answers = [ask("example", "SOA"), ask("www.example", "A")];
        let is_of_it = |(answer, expected): (&io::Result<Answer>, &String)| {
            answer.as_ref().is_ok_and(|answer| answer.aa && answer.answer == [expected.as_str()])
        };
        if answers.iter().zip([&soa, &address]).all(is_of_it) {
            break;
        }
        assert!(Instant::now() < until, "{name} does not come to serial {serial}: {answers:?}");
        rest();
    }
}

#[test]
fn a_zone_is_given_only_to_who_may_have_it() {
    let folder = Folder::new();
    let keys = [key("hmac-sha256", "wanted"), key("hmac-sha256", "other")];
    let sections = "[[secondary]]\nzones = [\"example\"]\nkey = \"wanted\"\nfrom = [\"127.0.0.1\", \"127.0.0.2\"]\n\
                    [[secondary]]\nzones = [\"example.net\"]\nfrom = [\"127.0.0.0/30\"]\n";
    let ours = serve(&folder, &keys, sections);
    for name in ["example", "example.net", "example.org"] {
        ours.call("PUT", &format!("/v1/zones/{name}"), &zone(1));
    }
    let [wanted, other] = keys.map(|key| key.line());
    let wrong = Key { secret: OTHER_SECRET, ..keys[0] }.line();
    let unknown = key("hmac-sha256", "nobody").line();
    let weaker = key("hmac-sha1", "wanted").line();
    let failed = "; Transfer failed.";
    for (zone, from, key, expected) in [
        ("example", "127.0.0.1", Some(&wanted), None),
        ("example", "127.0.0.2", Some(&wanted), None),
        ("example", "127.0.0.3", Some(&wanted), Some(failed)),
        ("example", "127.0.0.1", None, Some(failed)),
        ("example", "127.0.0.1", Some(&other), Some(failed)),
        ("example", "127.0.0.1", Some(&wrong), Some("BADSIG")),
        ("example", "127.0.0.1", Some(&unknown), Some("BADKEY")),
        ("example", "127.0.0.1", Some(&weaker), Some("BADKEY")),
        ("example.net", "127.0.0.3", None, None),
        ("example.net", "127.0.0.3", Some(&other), None),
        ("example.net", "127.0.0.4", None, Some(failed)),
        ("example.org", "127.0.0.1", None, Some(failed)),
        ("example.org", "127.0.0.1", Some(&wanted), Some(failed)),
        ("nowhere.example", "127.0.0.1", Some(&wanted), Some(failed)),
    ] {
        for rtype in ["AXFR", "IXFR=0"] {
            let mut command = Command::new("dig");
            command.args(["-r", "@127.0.0.1", "-p", &ours.dns().port().to_string(), "-b", from]);
            if let Some(key) = key {
                command.args(["-y", key]);
            }
            command.args(["+tcp", "+tries=1", "+time=20", zone, rtype]);
            let ended = Program::spawn(command).end();
            let told = format!("{zone} {rtype} from {from} with {key:?}: {}{}", ended.stdout, ended.stderr);
            let records: Vec<&str> =
                ended.stdout.lines().filter(|line| !line.is_empty() && !line.starts_with(';')).collect();
            match expected {
                None => assert_eq!(data_records(&records), 5, "{told}"),
                Some(said) => {
                    assert_eq!(data_records(&records), 0, "{told}");
                    assert!(told.contains(said), "{told}");
                }
            }
        }
    }
    ours.stop();
}

#[test]
fn a_reload_takes_keys_and_secondaries_or_nothing() {
    let folder = Folder::new();
    let told = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    told.set_read_timeout(Some(PROGRAM_WAIT)).expect("the bound is not zero");
    let (one, two) = (key("hmac-sha256", "one"), key("hmac-sha256", "two"));
    let secondary = |zone: &str, key: &str| format!("[[secondary]]\nzones = [\"{zone}\"]\nkey = \"{key}\"\n");
    let mut ours = serve(&folder, &[one], &secondary("example", "one"));
    for name in ["example", "example.net"] {
        ours.call("PUT", &format!("/v1/zones/{name}"), &zone(1));
    }
    let gives = |ours: &Serving, zone: &str, key: Key<'_>| {
        let mut dig = Command::new("dig");
        dig.args(["-r", "@127.0.0.1", "-p", &ours.dns().port().to_string(), "-y", &key.line()]);
        dig.args(["+tries=1", "+time=20", zone, "AXFR"]);
        Program::spawn(dig).end().stdout.contains("www.")
    };
    assert!(gives(&ours, "example", one) && !gives(&ours, "example", two));

    // One key goes, another comes; a zone has a secondary now, which is told; a further zone is imported.
    folder.write("new.test.zone", zone(7));
    let more = format!("{}notify = [\"{}\"]\n", secondary("example.net", "two"), told.local_addr().unwrap());
    let sections = format!(
        "zone = [\"new.test.zone\"]\nworkers = 7\n{}{more}[tcp]\nidle = \"9 s\"\n",
        secondary("example", "two")
    );
    configure(&folder, &[two], &sections);
    ours.program.signal(Signal::SIGHUP);
    for line in ["workers differs; restart to use it", "idle in [tcp] differs", "reloaded"] {
        ours.program.line(line);
    }
    let is_as_chosen = |ours: &Serving| {
        gives(ours, "example", two) && gives(ours, "example.net", two) && !gives(ours, "example", one)
    };
    assert!(is_as_chosen(&ours));
    let mut message = [0; 512];
    let (length, _) = told.recv_from(&mut message).expect("a notification");
    let tsig = dns::Tsig::read(&message[..length]).expect("it is well-formed").expect("it is signed");
    assert_eq!(
        (message[2] >> 3, &message[12..25], &*tsig.key),
        (4, &b"\x07example\x03net\0"[..], &b"\x03two\0"[..])
    );
    let answer =
        exchange(&socket(ours.dns()), &Question::new("www.new.test", "A").message()).expect("an answer");
    assert_eq!(Answer::read(&answer).answer, ["www.new.test. 300 in a 192.0.2.7"]);
    let numbers = |ours: &Serving| {
        let status = ours.call("GET", "/v1/status", "").json();
        ["/transfers/secondaries", "/transfers/followed", "/imports/faults"]
            .map(|number| status.pointer(number).and_then(serde_json::Value::as_u64))
    };
    assert_eq!(numbers(&ours), [Some(2), Some(2), Some(0)]);
    // Its serial must grow, now that it is followed.
    let same = zone(1).replace("www", "ftp");
    let refused = ours.client().call("PUT", "/v1/zones/example.net", &same);
    assert_eq!(refused.status, 422, "{}", refused.text());

    // All that is wrong is told, in the file and in what it names, and nothing changes.
    folder.write("new.test.zone", zone(8) + "wrong A here\n");
    let sections =
        format!("zone = [\"new.test.zone\"]\nlisten = [\"here\"]\n{}", secondary("example", "three"));
    configure(&folder, &[one], &sections);
    ours.program.signal(Signal::SIGHUP);
    for line in [
        "pointsman.toml:4:11: listen is \"here\"",
        "pointsman.toml:7:7: the key \"three\" is in no file of tsig_keys",
        "new.test.zone:6:9:",
        "not reloaded",
    ] {
        ours.program.line(line);
    }
    assert!(is_as_chosen(&ours));
    assert_eq!(numbers(&ours), [Some(2), Some(2), Some(3)]);
    ours.stop();
}

#[test]
fn a_refusal_of_a_signature_is_no_longer_than_its_client_takes() {
    let folder = Folder::new();
    let ours = serve(&folder, &[], "");
    // 63 + 63 + 63 + 61 octets, their lengths and the root: the longest name.
    let long = [63, 63, 63, 61].map(|length| "a".repeat(length)).join(".");
    let key = dns::name::folded_from_text(&long).expect("it is one").into();
    let asked = Question::new(&long, "A").message();
    let tsig = dns::Tsig {
        start: asked.len(),
        key,
        algorithm: b"\x0bhmac-sha256\0",
        time: 0,
        fudge: 300,
        mac: &[0; 32],
        original_id: 0,
        error: 0,
        other: &[],
    };
    let mut message = vec![0; asked.len() + tsig.written()];
    message[..asked.len()].copy_from_slice(&asked);
    assert_eq!(tsig.append(&mut message, asked.len()), Some(message.len()));
    // NOTAUTH, and that there is more over TCP.
    let cut = exchange(&socket(ours.dns()), &message).expect("an answer");
    assert_eq!((cut.len(), cut[2] & 2, cut[3] & 15), (asked.len(), 2, 9));
    let mut tcp = connect(ours.dns());
    send(&mut tcp, &message).expect("it takes it");
    let whole = receive(&mut tcp).expect("an answer");
    assert!(
        whole.len() > 512 && whole[2] & 2 == 0 && dns::Tsig::read(&whole).is_ok_and(|tsig| tsig.is_some())
    );
    ours.stop();
}

#[test]
fn who_signs_what_is_no_query_is_told_so_signed() {
    let folder = Folder::new();
    let ours = serve(&folder, &[key("hmac-sha256", "key.example")], "");
    let mut command = Command::new("nsupdate");
    command.args(["-y", &format!("hmac-sha256:key.example:{SECRET}"), "-r", "0"]);
    command.arg(folder.write(
        "update",
        format!(
            "server {} {}\nzone example.com\nupdate add new.example.com 60 A 192.0.2.1\nsend\n",
            ours.dns().ip(),
            ours.dns().port()
        ),
    ));
    let output = command.output().expect("nsupdate is beside dig");
    let said = String::from_utf8_lossy(&output.stderr);
    // Without a signature that would be "expected a TSIG".
    assert_eq!(said.trim_end(), "update failed: NOTIMP");
    ours.stop();
}

/// The number of records of a zone, with both SOA records; signatures are no part of it.
fn data_records(lines: &[&str]) -> usize {
    lines.iter().filter(|line| line.split_ascii_whitespace().nth(3) != Some("TSIG")).count()
}

/// Starts the server with keys and these sections of its configuration.
fn serve(folder: &Folder, keys: &[Key<'_>], sections: &str) -> Serving {
    Serving::start(folder, &["--config", &configure(folder, keys, sections)])
}

/// Writes the configuration; returns its path.
fn configure(folder: &Folder, keys: &[Key<'_>], sections: &str) -> String {
    let lines: String = keys.iter().map(|key| key.line() + "\n").collect();
    folder.write_secret("tsig.keys", lines);
    let text = format!("version = \"v1\"\ntsig_keys = [\"tsig.keys\"]\n{sections}");
    folder.write("pointsman.toml", text)
}
