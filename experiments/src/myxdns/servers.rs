//! Who is asked in figures 3 to 6: ours with several sources of regions, and PowerDNS on MariaDB.

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use routing::{Prefix, RegionId};
use serde_json::json;
use tests::http::Client;
use tests::serving::Serving;

use crate::data;
use crate::options::{Run, Size};
use crate::process::{Fed, Server, free, read};
use crate::question;
use crate::report::Report;
use crate::serving::{self, SENDER_CORE, SERVER_CORE, pinned};
use crate::steering::{self, COUNTRIES, REGIONS, ROUTES, WEIGHTS, address, region};

/// Clients of each region, and of none.
const CLIENTS: usize = 1_000;
const UNKNOWN: usize = 500;

/// The name that is asked for.
const NAME: &str = "www.example.com";

/// The ASes of the six servers, for AS path.
const ASES: [u32; 6] = [3333, 701, 7018, 1221, 2914, 3356];

const DATABASE: &str = "routing/GeoIP2-Country-Test.mmdb";

/// Where Debian keeps PowerDNS's backend for MariaDB.
const BACKEND: &str = "pdns/libgmysqlbackend.so";

/// How long the database may take until it answers, and the time between two looks.
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

/// All servers that are measured.
pub(super) const ARMS: &[Arm] = &[
    Arm { name: "generic", kind: Kind::Ours(Source::Generic) },
    Arm { name: "CSV", kind: Kind::Ours(Source::Csv) },
    Arm { name: "MMDB", kind: Kind::Ours(Source::Mmdb) },
    Arm { name: "AS path", kind: Kind::Ours(Source::AsPath) },
    Arm { name: "PowerDNS, caches", kind: Kind::PowerDns { is_cached: true } },
    Arm { name: "PowerDNS, no cache", kind: Kind::PowerDns { is_cached: false } },
];

/// Files and databases that all arms share, made once.
#[derive(Debug)]
pub(super) struct Stage {
    folder: PathBuf,
    /// The trace of all clients, each asking once.
    pub(super) clients: PathBuf,
    /// Prefixes of countries, the countries dealt out to the regions.
    countries: Option<Vec<(Prefix, RegionId)>>,
    table: Option<PathBuf>,
    database: Option<PathBuf>,
}

/// A server that answers.
pub(super) struct Running {
    pub(super) dns: SocketAddr,
    pub(super) updates: Updates,
    /// In the order in which they end.
    _servers: Vec<Server>,
    _serving: Option<Serving>,
}

/// Where updates go: our API, or MariaDB's socket.
pub(super) enum Updates {
    Api(SocketAddr, Source),
    Database(PathBuf),
}

/// How the policy of a running server is updated.
pub(super) enum Updater {
    Api(Client, Source),
    Database(Fed),
}

impl Stage {
    /// Writes the files that arms are started with, and the trace of the clients.
    ///
    /// # Errors
    /// Where that cannot be done.
    pub(super) fn new(run: &Run, folder: &Path, report: &mut Report) -> Result<Stage> {
        // Without optimisation these take longer to read than all the rest.
        let mut found = |path| if run.size == Size::Smoke { None } else { data::file(path, report) };
        let (countries, table, database) = (found(COUNTRIES), found(ROUTES), found(DATABASE));
        let countries = countries.map(|path| steering::countries(&path)).transpose()?;
        let clients = folder.join("clients.txt");
        let mut rng = Rng::with_seed(run.seed);
        let mut addresses = Vec::new();
        for region in 1..=REGIONS {
            let known = countries.iter().flatten().filter(|(_, of)| of.get() == region);
            let known: Vec<Ipv4Addr> = known
                .filter_map(|(prefix, _)| match prefix.address() {
                    IpAddr::V4(address) => Some(address),
                    IpAddr::V6(_) => None,
                })
                .collect();
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

/// The policy; `turn` makes it another one.
fn policy(source: Source, turn: usize) -> String {
    let regions = if matches!(source, Source::Csv | Source::Mmdb) { REGIONS } else { 0 };
    let order = if source == Source::AsPath { "nearest" } else { "weighted" };
    let servers = steering::servers(turn, regions);
    json!({"names": [NAME], "answers": 0, "order": order, "servers": servers}).to_string()
}

/// Starts our server with regions from a source.
fn ours(stage: &Stage, source: Source) -> Result<Running> {
    let room = stage.room()?;
    let write = |name: &str, text: String| fs::write(room.join(name), text).context(name.to_owned());
    write("example.com.zone", serving::ZONE.to_owned())?;
    write("www.json", policy(source, 0))?;
    let partition = match source {
        Source::Generic => String::new(),
        Source::Csv => {
            let prefixes = stage.countries.as_deref().context("the countries")?;
            write("countries.csv", steering::partition(prefixes))?;
            "csv = \"countries.csv\"".to_owned()
        }
        Source::Mmdb => {
            let letters = || b'A'..=b'Z';
            let codes = letters().flat_map(|a| letters().map(move |b| (a, b)));
            let codes: String = codes
                .zip((1..=REGIONS).cycle())
                .map(|((a, b), number)| format!("{}{},{}\n", a as char, b as char, region(number)))
                .collect();
            write("codes.csv", codes)?;
            let database = stage.database.as_deref().context("the database")?;
            format!("mmdb = \"{}\"\nregions = \"codes.csv\"", database.display())
        }
        Source::AsPath => {
            let table = stage.table.as_deref().context("the table")?;
            let servers = ASES.iter().enumerate();
            let servers: Vec<String> =
                servers.map(|(at, number)| format!("\"{}=AS{number}\"", address(at))).collect();
            format!("mrt = \"{}\"\nservers = [{}]", table.display(), servers.join(", "))
        }
    };
    let heading = if partition.is_empty() { "" } else { "[[partition]]\n" };
    let lines = format!("zone = [\"example.com.zone\"]\npolicy = [\"www.json\"]\n\n{heading}{partition}\n");
    let serving = serving::start(&room, &lines)?;
    let updates = Updates::Api(serving.api, source);
    Ok(Running { dns: serving.dns(), updates, _servers: Vec::new(), _serving: Some(serving) })
}

/// PowerDNS with its zone in MariaDB, both on the server's core.
fn power_dns(stage: &Stage, is_cached: bool) -> Result<Running> {
    let folder = stage.room()?;
    let socket = folder.join("sock");
    let dns = free()?;
    let data = format!("--datadir={}/data", folder.display());
    let user = ["--no-defaults", "--user=root"];
    // A MariaDB that starts removes what others have in a folder for temporary files that they share.
    let mut install = Command::new("mariadb-install-db");
    install.env("TMPDIR", &folder).args(user);
    install.args([&data, "--auth-root-authentication-method=normal", "--skip-test-db"]);
    read(&mut install).context("Debian: mariadb-server")?;
    let mut command = pinned(SERVER_CORE, "/usr/sbin/mariadbd");
    command.env("TMPDIR", &folder).args(user).args([
        &data,
        "--skip-networking",
        &format!("--socket={}", socket.display()),
    ]);
    let database = Server::spawn(&folder, "mariadb", command, dns)?;
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
        let _ = write!(tables, ", (1, '{NAME}', 'A', '{}', 300)", address(index));
    }
    let begin = Instant::now();
    while let Err(error) = read(client(&socket).args(["-e", &tables])) {
        if begin.elapsed() > WAIT_MAX {
            return Err(error.context("MariaDB does not answer"));
        }
        thread::sleep(LOOK);
    }
    let kept = if is_cached { 20 } else { 0 };
    let config = format!(
        "launch=gmysql\ngmysql-socket={}\ngmysql-user=root\ngmysql-dbname=pdns\nlocal-address=127.0.0.1\nlocal-port={}\n\
         receiver-threads=1\ndistributor-threads=1\ncache-ttl={kept}\nquery-cache-ttl={kept}\nnegquery-cache-ttl={kept}\n\
         zone-cache-refresh-interval={}\nsocket-dir={}\nloglevel=3\nsecurity-poll-suffix=\nguardian=no\ndaemon=no\n",
        socket.display(),
        dns.port(),
        if is_cached { 300 } else { 0 },
        folder.display(),
    );
    fs::write(folder.join("pdns.conf"), config).context("pdns.conf")?;
    let mut command = pinned(SERVER_CORE, "/usr/sbin/pdns_server");
    command.arg(format!("--config-dir={}", folder.display()));
    let query = question::query(0x1234, NAME);
    let is_whole = |answer: &[u8]| usize::from(answer[7]) == WEIGHTS.len();
    let server = Server::until(&folder, "pdns", command, dns, &query, is_whole)?;
    Ok(Running { dns, updates: Updates::Database(socket), _servers: vec![server, database], _serving: None })
}

/// A client of the database, on the sender's core.
fn client(socket: &Path) -> Command {
    let mut command = pinned(SENDER_CORE, "mariadb");
    command.args(["--no-defaults", "--user=root", &format!("--socket={}", socket.display())]);
    command
}

impl Updates {
    /// Somebody who makes updates.
    ///
    /// # Errors
    /// Where there is no connection.
    pub(super) fn updater(&self) -> Result<Updater> {
        match self {
            Updates::Api(address, source) => Ok(Updater::Api(Client::new(*address), *source)),
            Updates::Database(socket) => Ok(Updater::Database(Fed::start_heard(client(socket).args([
                "--unbuffered",
                "--skip-column-names",
                "pdns",
            ]))?)),
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
            Updater::Api(client, source) => {
                let path = format!("/v1/policies/{NAME}");
                client.done("PUT", &path, &policy(*source, turn + 1)).context("an update")?;
            }
            // Whatever there is becomes something else, else nothing would be written.
            Updater::Database(client) => {
                let line = format!(
                    "UPDATE records SET ttl = 300 + (ttl + 1) % 2 WHERE type = 'A' AND content = '{}'; \
                     SELECT ROW_COUNT();\n",
                    address(turn % WEIGHTS.len())
                );
                client.line(&line).context("an update")?;
                let changed = client.hear().context("an update")?;
                ensure!(changed == "1", "an update has changed {changed} rows");
            }
        }
        Ok(())
    }
}
