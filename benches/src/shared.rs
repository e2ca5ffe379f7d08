//! Several name servers on one database: how long a change takes until the others' answers show it.
//!
//! The name servers, the database and who asks share the machine. Each name server is asked again and again, a question a
//! millisecond, and whoever asks notes when an answer is another than the last. A change is timed from before it is sent:
//! as a call of one name server's API, or as a statement of a database client that is connected already.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use experiments::process::Fed;
use fastrand::Rng;
use tests::database::{Database, Kind};
use tests::folder::Folder;
use tests::http::Client;
use tests::query::{Answer, Question, exchange, socket};
use tests::serving::Serving;

use crate::machine;
use crate::options::Options;
use crate::report::{Limit, Report, Table, quantile};
use crate::serve::servers::program;

/// Name servers on one database.
const NAME_SERVERS: usize = 3;

/// Changes of each kind, and in a quick run.
const CHANGES: u32 = 400;
const CHANGES_QUICK: u32 = 40;

/// Between two questions to a name server: a hundredth of what is to be told apart.
const LOOK: Duration = Duration::from_millis(1);

/// From when all have seen a change to the next, at most: so that changes come anywhere between two looks of a name
/// server at a database that does not tell it anything.
const PAUSE_MAX: Duration = Duration::from_millis(60);

/// How long a change may take before the measurement fails.
const CHANGE_MAX: Duration = Duration::from_secs(20);

/// What it is to take at most, in milliseconds.
const TARGET: f64 = 100.0;

const NAME: &str = "www.example.com";
const ZONE: &str = "$TTL 300\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\n";

const DATABASES: [(&str, &str, Kind); 2] =
    [("postgresql", "PostgreSQL", Kind::Postgres), ("mariadb", "MariaDB", Kind::Mariadb)];

/// An answer of a name server that is another than its last.
struct Shown {
    server: usize,
    ttl: u32,
    at: Instant,
}

/// What changes of one kind took, in milliseconds.
#[derive(Default)]
struct Times {
    /// Until the answer of each other name server showed one.
    seen: Vec<f64>,
    /// Until the call of the API returned.
    returned: Vec<f64>,
}

/// Measures both databases, or those that are wanted.
///
/// # Errors
/// Where a server does not start, or a change is refused or not seen.
pub(crate) fn run(options: &Options, report: &mut Report) -> Result<()> {
    let changes = if options.quick { CHANGES_QUICK } else { CHANGES };
    let mut rows = Vec::new();
    for (word, name, kind) in DATABASES {
        if !options.wants(word) {
            continue;
        }
        let [api, direct] = measure(kind, changes, options.seed)?;
        for (how, times) in [("through an API", &api), ("made directly", &direct)] {
            let told =
                |times: &[f64], share| quantile(times, share).map_or("-".into(), |ms| format!("{ms:.1}"));
            let numbers = [changes.to_string(), times.seen.len().to_string()];
            let times_told = [0.5, 0.99, 1.0].map(|share| told(&times.seen, share));
            let row = [name.into(), how.into()].into_iter().chain(numbers).chain(times_told);
            rows.push(row.chain([told(&times.returned, 0.5)]).collect());
            for (which, share) in [("p99", 0.99), ("max", 1.0)] {
                let what = format!("{name}, changes {how}: {which} until seen, ms");
                report.must(what, Limit::AtMost(TARGET), quantile(&times.seen, share));
            }
        }
    }
    report.add(Table {
        title: "From a change until the answers of each other name server show it, ms",
        head: &["database", "changes", "made", "seen", "p50", "p99", "max", "the call returns, p50"],
        rows,
    });
    report.note(format!(
        "{NAME_SERVERS} name servers on one database, all on this machine. A change through the API of one is looked for in \
         the answers of the two others, one made directly, by SQL, in those of all three; each is asked once a millisecond. \
         The databases sync each commit to disk."
    ));
    report.version("PostgreSQL", machine::said("/usr/lib/postgresql/15/bin/postgres", &["--version"]));
    report.version("MariaDB", machine::said("/usr/sbin/mariadbd", &["--version"]));
    Ok(())
}

/// What changes through the API take, and changes made directly.
fn measure(kind: Kind, changes: u32, seed: u64) -> Result<[Times; 2]> {
    let database = Database::start(kind);
    let name = database.empty();
    let folder = Folder::new();
    let start = |_| {
        Serving::under(Command::new(program()), &folder, &["--store", &database.url(&name), "--workers", "1"])
    };
    let servers: Vec<Serving> = (0..NAME_SERVERS).map(start).collect();
    let mut clients: Vec<Client> = servers.iter().map(Serving::client).collect();
    servers[0].call("PUT", "/v1/zones/example.com", ZONE);
    let mut sql = Fed::start(&mut database.client(&name))?;
    let mut rng = Rng::with_seed(seed);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ending = Ending(&done);
        let (told, shown) = channel();
        for (server, serving) in servers.iter().enumerate() {
            let (told, done, dns) = (told.clone(), &done, serving.dns());
            scope.spawn(move || watch(server, dns, &told, done));
        }
        drop(told);
        // Everybody serves the name before anything counts.
        let mut ttl = 1;
        put(&mut clients[0], ttl)?;
        wait(&shown, ttl, &[0, 1, 2])?;
        let [mut api, mut direct] = [Times::default(), Times::default()];
        for change in 0..changes as usize {
            let by = change % NAME_SERVERS;
            let others: Vec<usize> = (0..NAME_SERVERS).filter(|server| *server != by).collect();
            pause(&mut rng);
            ttl += 1;
            let begin = Instant::now();
            put(&mut clients[by], ttl)?;
            api.returned.push(millis(begin, Instant::now()));
            let seen = wait(&shown, ttl, &others)?;
            api.seen.extend(seen.into_iter().map(|at| millis(begin, at)));

            pause(&mut rng);
            ttl += 1;
            let begin = Instant::now();
            set(&mut sql, ttl)?;
            let seen = wait(&shown, ttl, &[0, 1, 2])?;
            direct.seen.extend(seen.into_iter().map(|at| millis(begin, at)));
        }
        Ok([api, direct])
    })
}

/// Ends the questions, also where something failed.
struct Ending<'d>(&'d AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asks a name server again and again, and tells of each answer that is another than the last.
fn watch(server: usize, dns: SocketAddr, told: &Sender<Shown>, done: &AtomicBool) {
    let (socket, question) = (socket(dns), Question::new(NAME, "A"));
    let mut last = 0;
    while !done.load(Ordering::Relaxed) {
        // Who waits for what is told notices that nothing more is.
        let Ok(reply) = exchange(&socket, &question.message()) else { return };
        let at = Instant::now();
        let answer = Answer::read(&reply);
        let ttl = answer.answer.first().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0);
        if ttl != last && told.send(Shown { server, ttl, at }).is_err() {
            return;
        }
        last = ttl;
        thread::sleep(LOOK);
    }
}

/// Waits until these name servers have answered with a TTL; returns when.
fn wait(shown: &Receiver<Shown>, ttl: u32, servers: &[usize]) -> Result<Vec<Instant>> {
    let until = Instant::now() + CHANGE_MAX;
    let mut seen = Vec::new();
    while seen.len() < servers.len() {
        match shown.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(one) if one.ttl == ttl && servers.contains(&one.server) => seen.push(one.at),
            Ok(_) => {}
            Err(_) => bail!("a change was seen by {} of {} name servers only", seen.len(), servers.len()),
        }
    }
    Ok(seen)
}

fn pause(rng: &mut Rng) {
    thread::sleep(PAUSE_MAX.mul_f64(rng.f64()));
}

fn millis(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1e3
}

/// Sets the TTL through an API.
fn put(client: &mut Client, ttl: u32) -> Result<()> {
    let policy = format!(r#"{{"servers":[{{"address":"192.0.2.1","default":{{"ttl":{ttl}}}}}]}}"#);
    client.done("PUT", &format!("/v1/policies/{NAME}"), &policy).map(drop).context("a change")
}

/// Sets the TTL by a statement.
fn set(client: &mut Fed, ttl: u32) -> Result<()> {
    client.line(&format!(
        "UPDATE policy_server SET ttl = {ttl} WHERE policy_id = \
         (SELECT policy_id FROM policy_name WHERE name = '{NAME}.');\n"
    ))
}
