//! Cookies across servers, their secrets rolled while they serve, and rates from which valid cookies are exempt.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::Signal;
use tests::folder::Folder;
use tests::program::Program;
use tests::query::{Answer, Question, socket};
use tests::serving::Serving;

const ZONE: &str = "$TTL 300\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\nwww A 192.0.2.1\n";

/// The option code of cookies.
const COOKIE: u16 = 10;

const OLD: &str = "e5e973e5a6b2a43f48e7dc849e37bfcf";
const NEW: &str = "445536bcd2513298075a5d379663c962";

/// A file of secrets that only its owner can read.
fn write_secrets(folder: &Folder, lines: &[&str]) -> String {
    folder.write_secret("cookie.secrets", lines.join("\n"))
}

fn set_mode(path: &str, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the file is ours");
}

/// Asks for www with a cookie; returns the code and the cookie of the answer.
fn ask(server: &Serving, cookie: &[u8]) -> (String, Vec<u8>) {
    let answer = Question::new("www.example.com", "A").option(COOKIE, cookie).udp(server.dns());
    let given = answer.option(COOKIE).expect("a cookie comes along").to_vec();
    (answer.rcode, given)
}

fn reload(server: &mut Serving, line: &str) {
    server.program.signal(Signal::SIGHUP);
    server.program.line(line);
}

#[test]
fn servers_share_secrets_and_roll_them() {
    let (folder, other_folder) = (Folder::new(), Folder::new());
    let zone = folder.write("example.com.zone", ZONE);
    let secrets = write_secrets(&folder, &["# since May", OLD]);
    let flags = ["--zone", &zone, "--cookies", "require", "--cookie-secrets", &secrets];
    let mut server = Serving::start(&folder, &flags);
    let other = Serving::start(&other_folder, &flags);

    let (rcode, old) = ask(&server, &[1; 8]);
    assert_eq!((rcode.as_str(), old.len()), ("BADCOOKIE", 24));
    assert_eq!(ask(&server, &old).0, "NOERROR");
    assert_eq!(ask(&other, &old).0, "NOERROR", "a server with the same secret takes it");
    let without = Question::new("www.example.com", "A").edns();
    assert_eq!(without.udp(server.dns()).rcode, "NOERROR", "who knows no cookies is answered");
    let over_tcp = Question::new("www.example.com", "A").option(COOKIE, &[1; 8]).tcp(server.dns());
    assert_eq!(over_tcp.rcode, "NOERROR", "TCP proves the address");

    write_secrets(&folder, &[NEW, OLD]);
    reload(&mut server, "reloaded");
    let (rcode, new) = ask(&server, &old);
    assert_eq!(rcode, "NOERROR", "the old secret still checks");
    assert_ne!(new, old, "the new one makes");
    assert_eq!(ask(&other, &new).0, "BADCOOKIE", "which the other server does not have");

    // What is wrong with the file changes nothing.
    set_mode(&secrets, 0o644);
    reload(&mut server, "not reloaded");
    write_secrets(&folder, &[NEW, "no secret"]);
    reload(&mut server, "not reloaded");
    assert_eq!(ask(&server, &old).0, "NOERROR");

    write_secrets(&folder, &[NEW]);
    reload(&mut server, "reloaded");
    assert_eq!(ask(&server, &old).0, "BADCOOKIE");
    assert_eq!(ask(&server, &new), ("NOERROR".into(), new.clone()));

    let said = server.stop().stderr;
    assert!(said.contains("mode 644") && said.contains("the line is no secret"), "{said}");
    for secret in [OLD, NEW] {
        assert!(!said.contains(&secret[8..]), "a secret is in the log");
    }
}

#[test]
fn without_a_file_each_start_draws_a_secret() {
    let folder = Folder::new();
    let zone = folder.write("example.com.zone", ZONE);
    let start = || Serving::start(&folder, &["--zone", &zone, "--cookies", "require", "--seed", "1"]);
    let first = start();
    let (_, given) = ask(&first, &[1; 8]);
    assert_eq!(ask(&first, &given).0, "NOERROR");
    first.stop();
    assert_eq!(ask(&start(), &given).0, "BADCOOKIE", "a fixed seed does not fix the secret");
}

#[test]
fn a_file_that_others_can_read_is_refused_at_start() {
    let folder = Folder::new();
    let secrets = write_secrets(&folder, &[OLD]);
    let check = || Program::start(&["serve", "--check", "--cookie-secrets", &secrets]).end();
    assert_eq!(check().status.code(), Some(0));
    for mode in [0o604, 0o620, 0o644] {
        set_mode(&secrets, mode);
        let ended = check();
        assert_ne!(ended.status.code(), Some(0), "mode {mode:o}");
        assert!(ended.stderr.contains(&format!("mode {mode:o}")), "{}", ended.stderr);
        assert!(ended.stderr.contains("chmod 600"), "{}", ended.stderr);
    }
}

/// Sends these queries without waiting; returns what was answered, found by one that no rate limits.
fn flood(socket: &UdpSocket, queries: impl Iterator<Item = Question>, proven: &Question) -> Vec<Answer> {
    for query in queries {
        socket.send(&query.message()).expect("loopback takes it");
    }
    let mut answers = Vec::new();
    let mut room = [0; 4_096];
    // One worker answers the datagrams of a socket in rounds, those of one round in any order: the second such query, sent
    // once the first was answered, is of a later round than all before.
    for _ in 0..2 {
        let last = proven.message();
        socket.send(&last).expect("loopback takes it");
        loop {
            let length = socket.recv(&mut room).expect("the last one is answered");
            if room[..2] == last[..2] {
                break;
            }
            answers.push(Answer::read(&room[..length]));
        }
    }
    answers
}

#[test]
fn like_answers_to_one_network_are_limited() {
    const FLOOD: usize = 200;
    // So many seconds would the flood have to last to have none but half of its answers limited.
    const LIMITED_MIN: usize = FLOOD / 2;
    let folder = Folder::new();
    let zone = folder.write("example.com.zone", ZONE);
    let config = folder
        .write("pointsman.toml", "version = \"v1\"\n[rate_limit]\nresponses_per_second = 1\nslip = 2\n");
    let server = Serving::start(&folder, &["--config", &config, "--zone", &zone]);
    let www = Question::new("www.example.com", "A");
    let given =
        www.clone().option(COOKIE, &[1; 8]).tcp(server.dns()).option(COOKIE).expect("a cookie").to_vec();
    let proven = www.clone().option(COOKIE, &given);
    let socket = socket(server.dns());

    let names = |prefix: &'static str| {
        (0..FLOOD).map(move |i| Question::new(&format!("{prefix}{i}.example.com"), "A"))
    };
    let mut slipped = 0;
    for answers in [
        flood(&socket, std::iter::repeat_n(www.clone(), FLOOD), &proven),
        flood(&socket, names("no"), &proven),
    ] {
        let full = answers.iter().filter(|answer| !answer.tc).count();
        let truncated = answers.len() - full;
        assert!(full >= 1, "the first is within the rate");
        assert!(full <= FLOOD - LIMITED_MIN, "{full} of {FLOOD} were answered");
        assert!(truncated > 0 && truncated < FLOOD - full, "some slip, some are dropped: {truncated}");
        assert!(
            answers.iter().all(|answer| answer.tc == answer.answer.is_empty() || answer.rcode == "NXDOMAIN")
        );
        slipped += truncated;
    }
    assert_eq!(www.tcp(server.dns()).data(), ["192.0.2.1"], "TCP is not limited");
    let told = (0..FLOOD).map(|_| www.clone().option(COOKIE, &[1; 8]));
    let told = flood(&socket, told, &proven);
    assert!(told.iter().any(|answer| answer.rcode == "BADCOOKIE" && answer.option(COOKIE).is_some()));
    assert!(told.iter().all(|answer| !answer.tc), "who knows cookies is asked for one, and not sent to TCP");
    let bad_cookies = told.iter().filter(|answer| answer.rcode == "BADCOOKIE").count();
    slipped += bad_cookies;
    for _ in 0..50 {
        assert_eq!(proven.at(&socket).data(), ["192.0.2.1"], "a valid cookie is exempt");
    }

    let metrics = server.call("GET", "/metrics", "").text();
    let value = |name: &str| -> usize {
        let line = metrics.lines().find(|line| line.split(' ').next() == Some(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in\n{metrics}"));
        line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
    };
    assert_eq!(value("pointsman_rate_limit_slipped_total"), slipped);
    // Two in each of three floods, and those fifty.
    assert_eq!(value("pointsman_rate_limit_exempt_total"), 56);
    let answers =
        "pointsman_queries_total{transport=\"udp\",type=\"A\",rcode=\"BADCOOKIE\",verdict=\"answered\"}";
    assert_eq!(value(answers), bad_cookies);
    assert!(value("pointsman_dropped_total{transport=\"udp\",cause=\"rate_limited\"}") > 0);
}
