//! Who is asked in figures 3 to 6: ours with several sources of regions, and PowerDNS on MariaDB.

use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fastrand::Rng;
use serde_json::{Map, json};

use super::question;
use crate::data;
use crate::options::{Run, Size};
use crate::report::Report;
use crate::serving::{Calls, SENDER_CORE, SERVER_CORE, Serving, pinned};

/// Clients of each of the eight regions, and of none.
const REGIONS: usize = 8;
const CLIENTS: usize = 1_000;
const UNKNOWN: usize = 500;

/// The name that is asked for, and how probable each of its six addresses is at first.
const NAME: &str = "www.example.com";
const WEIGHTS: [f64; 6] = [0.1, 0.2, 0.3, 0.15, 0.05, 0.2];

/// The ASes of the six servers, for AS path.
const ASES: [u32; 6] = [3333, 701, 7018, 1221, 2914, 3356];

const TABLE: &str = "routing/bview.20020722.2337.gz";
const COUNTRIES: &str = "routing/country-cidrs.csv.gz";
const DATABASE: &str = "routing/GeoIP2-Country-Test.mmdb";

/// Where Debian keeps PowerDNS's backend for MariaDB.
const BACKEND: &str = "pdns/libgmysqlbackend.so";

/// How long a server may take until it answers, or an update; and the time between two looks.
const WAIT_MAX: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// What a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Ours with this source of regions.
    Ours(Source),
    /// PowerDNS on MariaDB, which may keep answers for a while.
    PowerDns { is_cached: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Generic,
    Csv,
    Mmdb,
    AsPath,
}

/// A server, by its name in plots.
#[derive(Debug)]
pub(super) struct Arm {
    pub(super) name: &'static str,
    kind: Kind,
}

/// All of them.
pub(super) const ARMS: &[Arm] = &[
    Arm { name: "generic", kind: Kind::Ours(Source::Generic) },
    Arm { name: "CSV", kind: Kind::Ours(Source::Csv) },
    Arm { name: "MMDB", kind: Kind::Ours(Source::Mmdb) },
    Arm { name: "AS path", kind: Kind::Ours(Source::AsPath) },
    Arm { name: "PowerDNS, caches", kind: Kind::PowerDns { is_cached: true } },
    Arm { name: "PowerDNS, no cache", kind: Kind::PowerDns { is_cached: false } },
];

/// What all of them share.
#[derive(Debug)]
pub(super) struct Stage {
    folder: PathBuf,
    /// The trace of all clients, each asking once.
    pub(super) clients: PathBuf,
    /// Prefixes of countries, the countries dealt out to the regions.
    countries: Option<Vec<(String, String)>>,
    table: Option<PathBuf>,
    database: Option<PathBuf>,
}

/// A server that answers.
pub(super) struct Running {
    pub(super) dns: SocketAddr,
    /// Where updates go: our API, or MariaDB's socket.
    updates: Updates,
    /// In the order in which they end.
    _children: Vec<Ended>,
    _serving: Option<Serving>,
}

enum Updates {
    Api(SocketAddr, Source),
    Database(PathBuf),
}

/// Makes updates.
pub(super) enum Updater {
    Api(Calls, Source),
    Database(Child, ChildStdin),
}

/// A process that is ended when dropped.
struct Ended(Child);

impl Stage {
    /// Writes what is asked.
    ///
    /// # Errors
    /// Where that cannot be done.
    pub(super) fn new(run: &Run, folder: &Path, report: &mut Report) -> Result<Stage> {
        // Without optimisation these take longer to read than all the rest.
        let mut found = |path| if run.size == Size::Smoke { None } else { data::file(path, report) };
        let (countries, table, database) = (found(COUNTRIES), found(TABLE), found(DATABASE));
        let countries = countries.map(|path| dealt(&path)).transpose()?;
        let clients = folder.join("clients.txt");
        let mut rng = Rng::with_seed(run.seed);
        let mut addresses = Vec::new();
        for region in 1..=REGIONS {
            let known = countries.iter().flatten().filter(|(_, of)| *of == name_of(region));
            let known: Vec<Ipv4Addr> =
                known.filter_map(|(prefix, _)| prefix.split('/').next()?.parse().ok()).collect();
            for _ in 0..CLIENTS {
                let drawn = (!known.is_empty()).then(|| known[rng.usize(0..known.len())]);
                addresses
                    .push(drawn.unwrap_or_else(|| Ipv4Addr::from_bits(rng.u32(0x0100_0000..0xe000_0000))));
            }
        }
        // Nobody has these.
        addresses.extend((0..UNKNOWN).map(|_| Ipv4Addr::from_bits(0xf000_0000 | rng.u32(..1 << 27))));
        rng.shuffle(&mut addresses);
        let mut text = String::new();
        for (at, address) in addresses.iter().enumerate() {
            let _ = writeln!(text, "{}.{:06} {address}:5353 udp {NAME}. A -", at / 1_000_000, at % 1_000_000);
        }
        fs::write(&clients, text).context("the clients")?;
        Ok(Stage { folder: folder.to_path_buf(), clients, countries, table, database })
    }

    /// Whether what a server needs is here; the report says so where not.
    pub(super) fn has(&self, arm: &Arm, run: &Run, report: &mut Report) -> bool {
        let is_there = match arm.kind {
            Kind::Ours(Source::Generic) => true,
            _ if run.size == Size::Smoke => return false,
            Kind::Ours(Source::Csv) => self.countries.is_some(),
            Kind::Ours(Source::Mmdb) => self.database.is_some() && self.countries.is_some(),
            Kind::Ours(Source::AsPath) => self.table.is_some(),
            Kind::PowerDns { .. } => {
                let libraries = ["/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"];
                libraries.iter().any(|folder| Path::new(folder).join(BACKEND).exists())
                    && Path::new("/usr/sbin/mariadbd").exists()
            }
        };
        if !is_there {
            let needs = match arm.kind {
                Kind::PowerDns { .. } => "Debian's pdns-server, pdns-backend-mysql and mariadb-server",
                Kind::Ours(_) => "its data",
            };
            report.say(&format!("Left out: {}, which needs {needs}.", arm.name));
        }
        is_there
    }

    /// A new, empty folder for one server.
    fn room(&self) -> Result<PathBuf> {
        let room = self.folder.join("room");
        let _ = fs::remove_dir_all(&room);
        fs::create_dir_all(&room).with_context(|| room.display().to_string())?;
        Ok(room)
    }
}

impl Arm {
    /// Whether it is a server of ours.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self.kind, Kind::Ours(_))
    }

    /// Starts it; returns when it answers.
    ///
    /// # Errors
    /// Where it does not.
    pub(super) fn start(&self, stage: &Stage) -> Result<Running> {
        match self.kind {
            Kind::Ours(source) => ours(stage, source),
            Kind::PowerDns { is_cached } => power_dns(stage, is_cached),
        }
    }
}

fn name_of(region: usize) -> String {
    format!("region{region}")
}

/// The prefixes of countries, which are dealt out to the regions in the order in which they appear.
fn dealt(path: &Path) -> Result<Vec<(String, String)>> {
    let output = Command::new("gzip").arg("-dc").arg(path).output().context("gzip")?;
    let text = String::from_utf8(output.stdout).context("the countries")?;
    let mut countries: Vec<String> = Vec::new();
    let mut prefixes = Vec::new();
    for line in text.lines().skip(1) {
        let (prefix, country) = line.split_once(',').context("a line without a comma")?;
        let known = countries.iter().position(|known| known == country);
        let at = known.unwrap_or_else(|| {
            countries.push(country.to_owned());
            countries.len() - 1
        });
        prefixes.push((prefix.to_owned(), name_of(at % REGIONS + 1)));
    }
    Ok(prefixes)
}

/// The policy: six servers with a row for each region; `turn` shifts the weights, so that an update changes every row.
fn policy(source: Source, turn: usize) -> String {
    let weight = |index: usize| WEIGHTS[index % WEIGHTS.len()];
    let server = |index: usize| {
        let entry = |shift: usize| json!({"probability": weight(index + shift + turn), "ttl": 300});
        let rows = matches!(source, Source::Csv | Source::Mmdb);
        let regions: Map<_, _> = (1..=REGIONS).filter(|_| rows).map(|r| (name_of(r), entry(r))).collect();
        json!({"address": format!("192.0.2.{}", index + 1), "default": entry(0), "regions": regions})
    };
    let servers: Vec<_> = (0..WEIGHTS.len()).map(server).collect();
    let order = if source == Source::AsPath { "nearest" } else { "weighted" };
    json!({"names": [NAME], "answers": 0, "order": order, "servers": servers}).to_string()
}

/// Ours.
fn ours(stage: &Stage, source: Source) -> Result<Running> {
    let master = "$ORIGIN example.com.\n$TTL 300\n@ IN SOA ns hostmaster 1 2h 10m 2w 5m\n@ IN NS ns\nns IN A 192.0.2.53\n";
    let room = stage.room()?;
    let write = |name: &str, text: String| fs::write(room.join(name), text).context(name.to_owned());
    write("example.com.zone", master.to_owned())?;
    write("www.json", policy(source, 0))?;
    let partition = match source {
        Source::Generic => String::new(),
        Source::Csv => {
            let prefixes = stage.countries.as_deref().context("the countries")?;
            let text: String =
                prefixes.iter().map(|(prefix, region)| format!("{prefix},{region}\n")).collect();
            write("countries.csv", text)?;
            "csv = \"countries.csv\"".to_owned()
        }
        Source::Mmdb => {
            let letters = || b'A'..=b'Z';
            let codes = letters().flat_map(|a| letters().map(move |b| (a, b)));
            let codes: String = codes
                .enumerate()
                .map(|(at, (a, b))| format!("{}{},{}\n", a as char, b as char, name_of(at % REGIONS + 1)))
                .collect();
            write("codes.csv", codes)?;
            let database = stage.database.as_deref().context("the database")?;
            format!("mmdb = \"{}\"\nregions = \"codes.csv\"", database.display())
        }
        Source::AsPath => {
            let table = stage.table.as_deref().context("the table")?;
            let servers = ASES.iter().enumerate();
            let servers: Vec<String> =
                servers.map(|(at, number)| format!("\"192.0.2.{}=AS{number}\"", at + 1)).collect();
            format!("mrt = \"{}\"\nservers = [{}]", table.display(), servers.join(", "))
        }
    };
    let heading = if partition.is_empty() { "" } else { "[[partition]]\n" };
    let lines = format!("zone = [\"example.com.zone\"]\npolicy = [\"www.json\"]\n\n{heading}{partition}\n");
    let serving = Serving::start(&room, &lines)?;
    let updates = Updates::Api(serving.api, source);
    Ok(Running { dns: serving.dns, updates, _children: Vec::new(), _serving: Some(serving) })
}

/// PowerDNS with its zone in MariaDB, both on the server's core.
fn power_dns(stage: &Stage, is_cached: bool) -> Result<Running> {
    let folder = stage.room()?;
    let socket = folder.join("sock");
    let log = |name: &str| fs::File::create(folder.join(name)).context(name.to_owned());
    let data = format!("--datadir={}/data", folder.display());
    let user = ["--no-defaults", "--user=root"];
    // A MariaDB that starts removes what others have in a folder for temporary files that they share.
    let made = Command::new("mariadb-install-db")
        .env("TMPDIR", &folder)
        .args(user)
        .args([&data, "--auth-root-authentication-method=normal", "--skip-test-db"])
        .output()
        .context("mariadb-install-db (Debian: mariadb-server)")?;
    if !made.status.success() {
        bail!("mariadb-install-db: {}", String::from_utf8_lossy(&made.stderr));
    }
    let mut command = pinned(SERVER_CORE, "/usr/sbin/mariadbd");
    command.env("TMPDIR", &folder).args(user).args([
        &data,
        "--skip-networking",
        &format!("--socket={}", socket.display()),
    ]);
    let database =
        command.stdin(Stdio::null()).stdout(log("mariadb.log")?).stderr(log("mariadb.err")?).spawn();
    let database = Ended(database.context("mariadbd")?);
    let mut tables = String::from(
        "CREATE DATABASE pdns; USE pdns;\
         CREATE TABLE domains (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(255) UNIQUE, master VARCHAR(128), \
         last_check INT, type VARCHAR(8), notified_serial INT UNSIGNED, account VARCHAR(40), options VARCHAR(64000), \
         catalog VARCHAR(255));\
         CREATE TABLE records (id BIGINT AUTO_INCREMENT PRIMARY KEY, domain_id INT, name VARCHAR(255), type VARCHAR(10), \
         content VARCHAR(64000), ttl INT, prio INT, disabled TINYINT DEFAULT 0, ordername VARCHAR(255), auth TINYINT DEFAULT 1, \
         INDEX (name, type), INDEX (domain_id));\
         CREATE TABLE domainmetadata (id INT AUTO_INCREMENT PRIMARY KEY, domain_id INT, kind VARCHAR(32), content TEXT);\
         CREATE TABLE cryptokeys (id INT AUTO_INCREMENT PRIMARY KEY, domain_id INT, flags INT, active BOOL, \
         published BOOL DEFAULT 1, content TEXT);\
         INSERT INTO domains (id, name, type) VALUES (1, 'example.com', 'NATIVE');\
         INSERT INTO records (domain_id, name, type, content, ttl) VALUES (1, 'example.com', 'SOA', \
         'ns.example.com hostmaster.example.com 1 7200 600 1209600 300', 300), (1, 'example.com', 'NS', 'ns.example.com', 300)",
    );
    for index in 0..WEIGHTS.len() {
        let _ = write!(tables, ", (1, '{NAME}', 'A', '192.0.2.{}', 300)", index + 1);
    }
    let begin = Instant::now();
    loop {
        let mut client = client(&socket);
        let done = client.args(["-e", &tables]).output().context("mariadb")?;
        if done.status.success() {
            break;
        }
        if begin.elapsed() > WAIT_MAX {
            bail!("MariaDB does not answer: {}", String::from_utf8_lossy(&done.stderr));
        }
        thread::sleep(LOOK);
    }
    let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("a port")?.local_addr().context("a port")?;
    let kept = if is_cached { 20 } else { 0 };
    let config = format!(
        "launch=gmysql\ngmysql-socket={}\ngmysql-user=root\ngmysql-dbname=pdns\nlocal-address=127.0.0.1\nlocal-port={}\n\
         receiver-threads=1\ndistributor-threads=1\ncache-ttl={kept}\nquery-cache-ttl={kept}\nnegquery-cache-ttl={kept}\n\
         zone-cache-refresh-interval={}\nsocket-dir={}\nloglevel=3\nsecurity-poll-suffix=\nguardian=no\ndaemon=no\n",
        socket.display(),
        free.port(),
        if is_cached { 300 } else { 0 },
        folder.display(),
    );
    fs::write(folder.join("pdns.conf"), config).context("pdns.conf")?;
    let mut command = pinned(SERVER_CORE, "/usr/sbin/pdns_server");
    command.arg(format!("--config-dir={}", folder.display()));
    let server = command.stdin(Stdio::null()).stdout(log("pdns.log")?).stderr(log("pdns.err")?).spawn();
    let server = Ended(server.context("pdns_server")?);
    if !answers(free) {
        let said = fs::read_to_string(folder.join("pdns.err")).unwrap_or_default();
        bail!("PowerDNS does not answer; it said:\n{said}");
    }
    Ok(Running {
        dns: free,
        updates: Updates::Database(socket),
        _children: vec![server, database],
        _serving: None,
    })
}

/// A client of the database, on the sender's core.
fn client(socket: &Path) -> Command {
    let mut command = pinned(SENDER_CORE, "mariadb");
    command.args(["--no-defaults", "--user=root", &format!("--socket={}", socket.display())]);
    command
}

/// Waits until a server answers for the name.
fn answers(server: SocketAddr) -> bool {
    let query = question::query(0x1234, NAME);
    let asked = || -> std::io::Result<bool> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(LOOK))?;
        socket.send(&query)?;
        let mut answer = [0; 512];
        let length = socket.recv(&mut answer)?;
        Ok(length > 12 && answer[..2] == query[..2] && usize::from(answer[7]) == WEIGHTS.len())
    };
    let begin = Instant::now();
    while begin.elapsed() < WAIT_MAX {
        if asked().unwrap_or(false) {
            return true;
        }
        thread::sleep(LOOK);
    }
    false
}

impl Running {
    /// Somebody who makes updates.
    ///
    /// # Errors
    /// Where there is no connection.
    pub(super) fn updater(&self) -> Result<Updater> {
        match &self.updates {
            Updates::Api(address, source) => Ok(Updater::Api(Calls::to(*address)?, *source)),
            Updates::Database(socket) => {
                let mut child = client(socket)
                    .args(["--unbuffered", "pdns"])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::null())
                    .spawn()
                    .context("mariadb")?;
                let input = child.stdin.take().context("mariadb's input")?;
                Ok(Updater::Database(child, input))
            }
        }
    }
}

impl Updater {
    /// Changes the policy: all its rows, or in the database the content of a record.
    ///
    /// # Errors
    /// Where it is refused.
    pub(super) fn update(&mut self, turn: usize) -> Result<()> {
        match self {
            Updater::Api(calls, source) => {
                let path = format!("/v1/policies/{NAME}");
                calls.call("PUT", &path, &policy(*source, turn + 1)).context("an update")?;
            }
            // The client waits for the database between two lines, and the pipe holds what is early.
            Updater::Database(_, input) => {
                let index = turn % WEIGHTS.len() + 1;
                let line = format!(
                    "UPDATE records SET ttl = {} WHERE type = 'A' AND content = '192.0.2.{index}';\n",
                    300 + turn % 2
                );
                input.write_all(line.as_bytes()).context("an update")?;
            }
        }
        Ok(())
    }
}

impl Drop for Updater {
    fn drop(&mut self) {
        if let Updater::Database(child, _) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
