//! Several name servers on one database: what one changes all serve, and so do changes made directly; a database that is
//! killed takes no answer and no acknowledged change with it; and their guide, done as a reader would.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tests::database::{Database, Kind};
use tests::folder::Folder;
use tests::guide;
use tests::http::Client;
use tests::peer::free_address;
use tests::program::{self, PROGRAM_WAIT, Program};
use tests::query::{Answer, Question, exchange, socket};
use tests::secondary::{Follows, Make};
use tests::serving::Serving;

const ZONE: &str = "$TTL 300\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\n";

/// How often what one name server has put is deleted through another at once: a few of so many found it missing there.
const ROUNDS: u32 = 20;

/// How often the database is killed under load.
const KILLS: u32 = 2;

/// After how long a secondary that may have lost a query is asked again.
const ASKED_AGAIN: Duration = Duration::from_millis(200);

/// Changes that each name server has acknowledged between two kills, at least.
const CHANGES_BETWEEN: u32 = 5;

#[test]
fn name_servers_share_postgresql() {
    share(Kind::Postgres);
}

#[test]
fn name_servers_share_mariadb() {
    share(Kind::Mariadb);
}

#[test]
fn a_postgresql_that_was_put_back_is_served_by_all() {
    put_back(Kind::Postgres);
}

#[test]
fn a_mariadb_that_was_put_back_is_served_by_all() {
    put_back(Kind::Mariadb);
}

#[test]
fn postgresql_is_killed_under_load() {
    kill_under_load(Kind::Postgres);
}

#[test]
fn mariadb_is_killed_under_load() {
    kill_under_load(Kind::Mariadb);
}

/// A database that has stopped to answer holds a stop up for seconds, not for as long as a statement may take; and
/// whose change is under way is told that nobody knows.
#[test]
fn a_stop_leaves_a_mariadb_that_hangs() {
    let database = Database::start(Kind::Mariadb);
    let name = database.empty();
    let folder = Folder::new();
    let server = serve(&folder, &database.url(&name));
    server.call("PUT", "/v1/zones/example.com", ZONE);
    let file = database.sql(&name, "SELECT @@pid_file");
    let process = std::fs::read_to_string(file).expect("it runs").trim().parse().expect("a process id");
    // A change that waits in the database for another one is under way for sure.
    let mut other =
        database.client(&name).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
    let mut statements = other.stdin.take().expect("it is piped");
    statements.write_all(b"BEGIN; SELECT changes FROM writer FOR UPDATE;\n").expect("it reads");
    let mut said = BufReader::new(other.stdout.take().expect("it is piped")).lines();
    said.next().expect("it has the row").expect("it is text");
    let api = server.api;
    let put = std::thread::spawn(move || {
        Client::new(api).call("PUT", "/v1/policies/www.example.com", &policy("192.0.2.1", 10))
    });
    let waits =
        "SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'SELECT changes FROM writer%'";
    until(&"1".to_string(), || database.sql(&name, waits));
    kill(Pid::from_raw(process), Signal::SIGSTOP).expect("it runs");
    let ended = server.stop();
    let put = put.join().expect("it is answered");
    assert_eq!(put.status, 503, "{}", put.text());
    assert!(put.text().contains("whether it has the change is not known"), "{}", put.text());
    assert!(ended.stderr.contains("did not answer before this name server stopped"), "{}", ended.stderr);
    other.kill().expect("it runs");
    other.wait().expect("it is ours");
}

#[test]
fn a_secondary_takes_what_is_changed_directly_in_postgresql() {
    follow_direct_changes(Kind::Postgres);
}

#[test]
fn a_secondary_takes_what_is_changed_directly_in_mariadb() {
    follow_direct_changes(Kind::Mariadb);
}

#[test]
fn the_guide_is_true_of_postgresql() {
    follow_the_guide(Kind::Postgres);
}

#[test]
fn the_guide_is_true_of_mariadb() {
    follow_the_guide(Kind::Mariadb);
}

/// A policy of one server.
fn policy(address: &str, ttl: u32) -> String {
    format!(r#"{{"servers":[{{"address":"{address}","default":{{"ttl":{ttl}}}}}]}}"#)
}

/// Starts a name server on a database.
fn serve(folder: &Folder, url: &str) -> Serving {
    Serving::start(folder, &["--store", url, "--workers", "1"])
}

/// Asks until an answer is as it should be.
fn until<T: PartialEq + std::fmt::Debug>(expected: &T, mut ask: impl FnMut() -> T) {
    let begun = Instant::now();
    loop {
        let found = ask();
        if found == *expected {
            return;
        }
        assert!(begun.elapsed() < PROGRAM_WAIT, "{found:?} where {expected:?} was expected");
    }
}

/// The address and TTL that a name has.
fn answered(server: &Serving, name: &str) -> Vec<String> {
    Question::new(name, "A").udp(server.dns()).answer
}

fn generation(server: &Serving) -> u64 {
    server.call("GET", "/v1/status", "").json()["generation"].as_u64().expect("a number")
}

/// A sample of the metrics.
fn metric(server: &Serving, name: &str) -> u64 {
    server.client().metric(name).unwrap_or_else(|| panic!("there is no {name}")) as u64
}

fn share(kind: Kind) {
    let database = Database::start(kind);
    let name = database.empty();
    let folder = Folder::new();
    let (first, second) = (serve(&folder, &database.url(&name)), serve(&folder, &database.url(&name)));
    let both = [&first, &second];

    // What one is told, the other serves.
    first.call("PUT", "/v1/zones/example.com", ZONE);
    first.call("POST", "/v1/regions", r#"{"name":"europe"}"#);
    first.call("PUT", "/v1/partitions/default", "127.0.0.0/8,europe\n");
    let put = first.call("PUT", "/v1/policies/www.example.com", &policy("192.0.2.1", 10)).generation();
    until(&put, || generation(&second));
    // Its status may have the generation a moment before its worker.
    until(&vec!["www.example.com. 10 in a 192.0.2.1".to_string()], || answered(&second, "www.example.com"));
    second.call("PUT", "/v1/policies/www.example.com", &policy("192.0.2.2", 20));
    until(&vec!["www.example.com. 20 in a 192.0.2.2".to_string()], || answered(&first, "www.example.com"));
    assert!(metric(&first, "pointsman_store_followed_total") > 0);

    // What one has acknowledged, the other knows of when it is asked to change it.
    for _ in 0..ROUNDS {
        let path = "/v1/policies/gone.example.com";
        first.call("PUT", path, &policy("192.0.2.9", 1));
        second.call("DELETE", path, "");
    }

    // Both are told at once: each wins some generations, and nothing is lost.
    std::thread::scope(|scope| {
        for (index, server) in both.into_iter().enumerate() {
            let api = server.api;
            scope.spawn(move || {
                let mut client = Client::new(api);
                for ttl in 1..=10 {
                    let path = format!("/v1/policies/n{index}.example.com");
                    until(&true, || {
                        let put = client.call("PUT", &path, &policy("192.0.2.9", ttl));
                        // Who is outrun again and again says so, and changes nothing.
                        let outrun = put.status == 503 && put.text().contains("published first");
                        assert!(matches!(put.status, 200 | 202) || outrun, "{}", put.text());
                        !outrun
                    });
                }
            });
        }
    });
    for server in both {
        for index in 0..2 {
            let expected = vec![format!("n{index}.example.com. 10 in a 192.0.2.9")];
            until(&expected, || answered(server, &format!("n{index}.example.com")));
        }
    }
    // Numbers without gaps, and none twice.
    let counted = database.sql(&name, "SELECT count(*) - max(number) FROM generation");
    assert_eq!(counted, "0");

    // A change of rows that nobody told a name server of.
    let before = generation(&first);
    let one = "UPDATE policy_server SET address = '192.0.2.3', ttl = 30 WHERE policy_id = \
               (SELECT policy_id FROM policy_name WHERE name = 'www.example.com.')";
    database.sql(&name, one);
    for server in both {
        until(&vec!["www.example.com. 30 in a 192.0.2.3".to_string()], || {
            answered(server, "www.example.com")
        });
        until(&(before + 1), || generation(server));
    }
    let told = database.sql(&name, "SELECT what FROM generation ORDER BY number DESC LIMIT 1");
    assert!(told.ends_with("made directly"), "{told}");
    // One for a region, whose number the partition knows by its name.
    let row = "INSERT INTO policy_row (policy_id, address, region_id, probability, ttl) SELECT policy_id, '192.0.2.3', \
               region.id, 1, 31 FROM policy_name, region WHERE policy_name.name = 'www.example.com.' \
               AND region.name = 'europe'";
    database.sql(&name, row);
    until(&vec!["www.example.com. 31 in a 192.0.2.3".to_string()], || answered(&second, "www.example.com"));
    // A zone, which is all that is loaded again.
    let zone = format!("$ORIGIN example.net.\n{ZONE}mail A 192.0.2.25\n");
    database.sql(&name, &format!("INSERT INTO zone (origin, text) VALUES ('example.net.', '{zone}')"));
    until(&vec!["mail.example.net. 300 in a 192.0.2.25".to_string()], || {
        answered(&first, "mail.example.net")
    });

    // Its records, by a program that does not care for serial numbers: it has a greater one, raised once.
    for (serial, address) in [(2, "192.0.2.26"), (3, "192.0.2.27")] {
        let zone = format!("$ORIGIN example.net.\n{ZONE}mail A {address}\n");
        database.sql(&name, &format!("UPDATE zone SET text = '{zone}' WHERE origin = 'example.net.'"));
        for server in both {
            until(&vec![format!("mail.example.net. 300 in a {address}")], || {
                answered(server, "mail.example.net")
            });
            let soa = Question::new("example.net", "SOA").udp(server.dns()).answer;
            let data = format!("ns.example.net. hm.example.net. {serial} 7200 600 86400 60");
            assert_eq!(soa, [format!("example.net. 300 in soa {data}")]);
        }
    }

    // What cannot be is refused by the tables themselves.
    for wrong in ["UPDATE policy_server SET ttl = -1", "UPDATE zone SET origin = 'Example.com.'"] {
        let what = database.try_sql(&name, wrong).expect_err("a constraint");
        assert!(what.contains("_ttl_is_from_0_") || what.contains("zone_origin_is_absolute"), "{what}");
    }
    // What cannot be served is refused whole by the name servers, which say why.
    let before = [generation(&first), generation(&second)];
    let wrong = "INSERT INTO policy_name (policy_id, position, name) \
                 SELECT policy_id, 1, 'www.example.org.' FROM policy_name WHERE name = 'www.example.com.'";
    database.sql(&name, wrong);
    database.sql(&name, "UPDATE policy_server SET ttl = 77");
    for server in both {
        until(&true, || metric(server, "pointsman_store_direct_total{outcome=\"refused\"}") > 0);
        assert_eq!(answered(server, "www.example.com"), ["www.example.com. 31 in a 192.0.2.3"]);
        let put = server.client().call("PUT", "/v1/policies/n0.example.com", &policy("192.0.2.9", 1));
        assert_eq!(put.status, 503, "{}", put.text());
        assert!(put.text().contains("www.example.org. is in none of our zones"), "{}", put.text());
    }
    assert_eq!([generation(&first), generation(&second)], before);
    let why = database.sql(&name, "SELECT what FROM refusal ORDER BY changes DESC LIMIT 1");
    assert!(why.contains("www.example.org. is in none of our zones"), "{why}");
    // Who starts meanwhile may try again: nothing that it was given is wrong.
    let url = database.url(&name);
    let started =
        Program::start(&["serve", "--store", &url, "--listen", "127.0.0.1:0", "--api", "127.0.0.1:0"]);
    let ended = started.end();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("the store holds what cannot be served"), "{}", ended.stderr);
    assert!(ended.stderr.contains("www.example.org. is in none of our zones"), "{}", ended.stderr);
    let counted = both.map(|server| metric(server, "pointsman_store_outrun_total"));
    let put = first.client().call("PUT", "/v1/policies/n0.example.com", &policy("192.0.2.9", 1));
    assert_eq!(put.status, 503, "{}", put.text());
    let since = both.map(|server| metric(server, "pointsman_store_outrun_total"));
    assert_eq!(since, counted, "nobody was quicker");
    // Mended, all of it is served.
    database.sql(&name, "DELETE FROM policy_name WHERE name = 'www.example.org.'");
    for server in both {
        until(&vec!["n1.example.com. 77 in a 192.0.2.9".to_string()], || answered(server, "n1.example.com"));
        server.call("PUT", "/v1/policies/n0.example.com", &policy("192.0.2.9", 1));
    }

    // A third one begins with what there is.
    let third = serve(&folder, &database.url(&name));
    assert_eq!(answered(&third, "n0.example.com"), ["n0.example.com. 1 in a 192.0.2.9"]);
    for server in [first, second, third] {
        server.stop();
    }
}

/// A database that was put back, and came to the number that is served by another way, is loaded whole: also what no
/// change since names, and before anything is published on top of it.
fn put_back(kind: Kind) {
    let database = Database::start(kind);
    let name = database.empty();
    let folder = Folder::new();
    let servers = [serve(&folder, &database.url(&name)), serve(&folder, &database.url(&name))];
    servers[0].call("PUT", "/v1/zones/example.com", ZONE);
    servers[0].call("PUT", "/v1/policies/www.example.com", &policy("192.0.2.1", 10));
    let number = generation(&servers[0]);
    until(&number, || generation(&servers[1]));
    let unlogged = match kind {
        Kind::Postgres => "SET pointsman.commits = 'on'",
        Kind::Mariadb => "SET @pointsman_commits = 1",
    };
    let zone = format!("$ORIGIN example.com.\n{}", ZONE.replace("192.0.2.53", "192.0.2.54"));
    database.sql(
        &name,
        &format!(
            "BEGIN; {unlogged}; UPDATE zone SET text = '{zone}'; UPDATE policy_server SET address = '192.0.2.2'; \
             UPDATE generation SET publisher = 'another' WHERE number = {number}; COMMIT"
        ),
    );
    let put = servers[1].call("PUT", "/v1/policies/n.example.com", &policy("192.0.2.9", 1)).generation();
    assert_eq!(put, number + 1);
    for server in &servers {
        until(&put, || generation(server));
        assert_eq!(answered(server, "www.example.com"), ["www.example.com. 10 in a 192.0.2.2"]);
        assert_eq!(answered(server, "ns.example.com"), ["ns.example.com. 300 in a 192.0.2.54"]);
        assert_eq!(answered(server, "n.example.com"), ["n.example.com. 1 in a 192.0.2.9"]);
    }
    // Below what is served it is not taken, until it has come there again.
    database.sql(
        &name,
        &format!(
            "DELETE FROM generation WHERE number = {put}; \
             UPDATE writer SET changes = (SELECT changes FROM generation WHERE number = {number}); \
             DELETE FROM change_log WHERE number > (SELECT changes FROM writer)"
        ),
    );
    for server in &servers {
        until(&0, || metric(server, "pointsman_store_ok"));
    }
    let third = serve(&folder, &database.url(&name));
    let put = third.call("PUT", "/v1/policies/n.example.com", &policy("192.0.2.8", 2)).generation();
    assert_eq!(put, number + 1);
    for server in servers.iter().chain([&third]) {
        until(&vec!["n.example.com. 2 in a 192.0.2.8".to_string()], || answered(server, "n.example.com"));
        until(&1, || metric(server, "pointsman_store_ok"));
    }
    for server in servers.into_iter().chain([third]) {
        server.stop();
    }
}

/// A secondary of one of two name servers takes changes that are made in the tables, under a serial number that stays,
/// while they run and while they do not.
fn follow_direct_changes(kind: Kind) {
    let database = Database::start(kind);
    let name = database.empty();
    let folder = Folder::new();
    let (follower, primary) = (free_address(), free_address());
    let text = format!(
        "version = \"v1\"\n[[secondary]]\nzones = [\"example.com\"]\n\
         from = [\"127.0.0.1\"]\nnotify = [\"{follower}\"]\n"
    );
    let (file, url) = (folder.write("pointsman.toml", text), database.url(&name));
    let listen = primary.to_string();
    let followed = || {
        let options = ["--config", &file, "--store", &url, "--workers", "1", "--listen", &listen];
        Serving::start(&folder, &options)
    };
    let servers = [followed(), serve(&folder, &url)];
    servers[0].call("PUT", "/v1/zones/example.com", ZONE);
    let follows = Follows { dns: follower, zone: "example.com", primary, key: None };
    let knot = Make::Knot.follow(&folder, &follows);
    let taken = |address: &str| {
        let expected = vec![format!("ns.example.com. 300 in a {address}")];
        until(&expected, || {
            // While it takes a zone it may lose a query.
            let socket = socket(knot.dns);
            socket.set_read_timeout(Some(ASKED_AGAIN)).expect("the bound is not zero");
            let reply = exchange(&socket, &Question::new("ns.example.com", "A").message());
            reply.map(|octets| Answer::read(&octets).answer).unwrap_or_default()
        });
    };
    taken("192.0.2.53");
    let change = |address: &str| {
        let zone = format!("$ORIGIN example.com.\n{}", ZONE.replace("192.0.2.53", address));
        database.sql(&name, &format!("UPDATE zone SET text = '{zone}'"));
    };
    // Either of the two gives it the number that it lacks; who is followed tells what changed.
    for (count, address) in (1..).zip(["192.0.2.54", "192.0.2.56", "192.0.2.57"]) {
        change(address);
        taken(address);
        until(&count, || metric(&servers[0], "pointsman_transfers_total{outcome=\"incremental\"}"));
    }
    for server in servers {
        server.stop();
    }
    change("192.0.2.55");
    let server = followed();
    taken("192.0.2.55");
    server.stop();
}

fn kill_under_load(kind: Kind) {
    let mut database = Database::start(kind);
    let name = database.empty();
    let folder = Folder::new();
    let servers = [serve(&folder, &database.url(&name)), serve(&folder, &database.url(&name))];
    servers[0].call("PUT", "/v1/zones/example.com", ZONE);
    let put = generation(&servers[0]);
    until(&put, || generation(&servers[1]));
    let acknowledged: [AtomicU32; 2] = Default::default();
    let asked: [AtomicU64; 2] = Default::default();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ending = Ending(&done);
        for (index, server) in servers.iter().enumerate() {
            let (acknowledged, asked, done) = (&acknowledged[index], &asked[index], &done);
            let (api, dns) = (server.api, server.dns());
            scope.spawn(move || change(index, api, acknowledged, done));
            scope.spawn(move || ask(dns, asked, done));
        }
        for _ in 0..KILLS {
            let more = || acknowledged.each_ref().map(|number| number.load(Ordering::SeqCst));
            let wanted = more().map(|number| number + CHANGES_BETWEEN);
            until(&true, || more().iter().zip(wanted).all(|(is, wanted)| *is >= wanted));
            let lost = || servers.each_ref().map(|server| metric(server, "pointsman_store_lost_total"));
            let before = lost();
            database.kill();
            until(&true, || lost().iter().zip(before).all(|(is, before)| *is > before));
            // Every query is answered meanwhile: `ask` fails where one is not.
            let wanted = asked.each_ref().map(|count| count.load(Ordering::SeqCst) + 300);
            until(&true, || {
                asked.iter().zip(wanted).all(|(count, wanted)| count.load(Ordering::SeqCst) >= wanted)
            });
            database.go_on();
        }
        let wanted = acknowledged.each_ref().map(|number| number.load(Ordering::SeqCst) + CHANGES_BETWEEN);
        until(&true, || {
            acknowledged.iter().zip(wanted).all(|(is, wanted)| is.load(Ordering::SeqCst) >= wanted)
        });
        drop(ending);
    });
    // What was acknowledged is there: the last of each, and every one is counted in the generations.
    for (index, number) in acknowledged.iter().enumerate() {
        let number = number.load(Ordering::SeqCst);
        let text = format!(
            "SELECT max(ttl) FROM policy_server WHERE policy_id = \
             (SELECT policy_id FROM policy_name WHERE name = 'n{index}.example.com.')"
        );
        let stored: u32 = database.sql(&name, &text).parse().expect("a number");
        assert!(stored >= number, "{stored} is stored and {number} was acknowledged");
        for server in &servers {
            let expected = vec![format!("n{index}.example.com. {stored} in a 192.0.2.9")];
            until(&expected, || answered(server, &format!("n{index}.example.com")));
        }
    }
    for server in servers {
        // A look that the kill made fail may be told of late.
        until(&1, || metric(&server, "pointsman_store_ok"));
        server.stop();
    }
}

/// Ends the load, also where a test fails.
struct Ending<'d>(&'d AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Changes a policy again and again, each time to a higher TTL; notes the last that was acknowledged.
fn change(index: usize, api: SocketAddr, acknowledged: &AtomicU32, done: &AtomicBool) {
    let mut client = Client::new(api);
    let path = format!("/v1/policies/n{index}.example.com");
    let mut ttl = 0;
    while !done.load(Ordering::SeqCst) {
        ttl += 1;
        let put = client.call("PUT", &path, &policy("192.0.2.9", ttl));
        match put.status {
            200 | 202 => acknowledged.store(ttl, Ordering::SeqCst),
            // Not acknowledged; it may have happened all the same.
            503 => {}
            other => panic!("{other}: {}", put.text()),
        }
    }
}

/// Asks again and again, one question at a time: on loopback nothing is lost, so that each must be answered.
fn ask(dns: SocketAddr, asked: &AtomicU64, done: &AtomicBool) {
    let (socket, question) = (socket(dns), Question::new("ns.example.com", "A"));
    while !done.load(Ordering::SeqCst) {
        let reply = exchange(&socket, &question.message()).expect("an answer");
        assert_eq!(reply[3] & 0x0f, 0, "NOERROR");
        asked.fetch_add(1, Ordering::SeqCst);
    }
}

/// Does all that the guide says of a database: makes it, starts name servers on it, changes it.
fn follow_the_guide(kind: Kind) {
    let (made_by, store) = match kind {
        Kind::Postgres => ("postgresql", "postgres://pointsman:a-secret@127.0.0.1"),
        Kind::Mariadb => ("mariadb", "mysql://pointsman:a-secret@127.0.0.1"),
    };
    let (database, folder) = (Database::start(kind), Folder::new());
    let text = guide::read("share-a-database.md");
    assert!(
        text.contains(&format!("`{store}/pointsman`")) || kind == Kind::Postgres,
        "the guide has its URL"
    );
    let ports = [5300, 5301, 8053, 8054].map(|port: u16| (port, free_address().port()));
    let api = format!("http://127.0.0.1:{}", ports[2].1);
    let text = ports.iter().fold(text, |text, (port, here)| {
        text.replace(&format!("127.0.0.1:{port}"), &format!("127.0.0.1:{here}"))
            .replace(&format!("-p {port}"), &format!("-p {here}"))
    });
    let here = format!("{store}:{}/", database.port());
    let text = text.replace("postgres://pointsman:a-secret@127.0.0.1/", &here);
    let command = |line: &str| {
        let mut words = line.split_whitespace();
        let mut command = match words.next().expect("a command has a name") {
            "pointsman" => Command::new(program::path()),
            name => Command::new(name),
        };
        command.args(words).current_dir(folder.path()).env("POINTSMAN_API", &api);
        command
    };
    let printed = |line: &str| {
        let output = command(line).output().expect("it starts");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("it prints text")
    };
    let (mut programs, mut done) = (Vec::new(), 0);
    for (block, content) in guide::blocks(&text) {
        match block.split_once(' ').unwrap_or((block, "")) {
            ("file", name) => drop(folder.write(name, content)),
            (maker, _) if maker == made_by => {
                let anywhere = if kind == Kind::Postgres { "postgres" } else { "mysql" };
                // PostgreSQL makes no database where statements come together.
                for statement in content.split_inclusive(";\n") {
                    database.sql(anywhere, statement);
                }
            }
            ("serve", _) => {
                for line in content.lines() {
                    let mut program = Program::spawn(command(line));
                    program.line("ready");
                    programs.push(program);
                }
            }
            ("sql", _) => drop(database.sql("pointsman", content)),
            ("select", _) => {
                let (statement, expected) =
                    content.split_once("\n-- ").expect("an answer behind the statement");
                until(&expected.trim_end().to_owned(), || database.sql("pointsman", statement));
                done += 1;
            }
            ("sh", _) => {
                for (line, expected) in guide::prompts(content) {
                    guide::compare(line, &printed(line), &expected);
                    done += 1;
                }
            }
            ("until", _) => {
                for (line, expected) in guide::prompts(content) {
                    until(&true, || guide::is_as(&printed(line), &expected));
                    done += 1;
                }
            }
            _ => {}
        }
    }
    assert_eq!((programs.len(), done), (2, 7));
}
