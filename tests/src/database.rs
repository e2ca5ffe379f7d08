//! Other people's databases, for stores that are shared: each with a port and a folder of its own, run by a user without
//! rights.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::Signal;
use nix::unistd::{User, chown, geteuid};

use crate::folder::Folder;
use crate::peer::free_address;
use crate::program::Program;

/// Who runs them where the tests are root's, for they refuse to be.
const NOBODY: &str = "nobody";

/// Who may do everything in them, without a password.
const ADMIN: &str = "admin";

/// Where Debian has PostgreSQL 15.
const POSTGRES: &str = "/usr/lib/postgresql/15/bin";

/// Which database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    Mariadb,
}

/// A database server.
#[derive(Debug)]
pub struct Database {
    kind: Kind,
    port: u16,
    /// Absent while it is killed.
    program: Option<Program>,
    folder: Folder,
}

impl Database {
    /// Makes and starts one.
    ///
    /// # Panics
    /// Where it cannot be.
    pub fn start(kind: Kind) -> Database {
        let folder = Folder::new();
        if let Some(user) = user() {
            chown(folder.path(), Some(user.uid), Some(user.gid)).expect("root may give a folder away");
        }
        let data = folder.at("data");
        let mut make = match kind {
            Kind::Postgres => {
                let mut make = as_nobody(&format!("{POSTGRES}/initdb"));
                make.args(["--pgdata", &data, "--username", ADMIN, "--auth=trust", "--encoding=UTF8"]);
                make.args(["--locale=C.UTF-8", "--no-sync"]);
                make
            }
            Kind::Mariadb => {
                let mut make = as_nobody("/usr/bin/mariadb-install-db");
                make.args(["--no-defaults", &format!("--datadir={data}"), "--skip-test-db"]);
                make.arg("--auth-root-authentication-method=normal");
                make
            }
        };
        // A MariaDB that starts removes what others have in a folder for temporary files that they share.
        make.env("TMPDIR", folder.path());
        let made = make.current_dir(folder.path()).output().expect("its installation starts");
        assert!(made.status.success(), "{kind:?}: {}", String::from_utf8_lossy(&made.stderr));
        let mut database = Database { kind, port: free_address().port(), program: None, folder };
        database.go_on();
        if kind == Kind::Mariadb {
            let text = format!("CREATE USER {ADMIN}@'%'; GRANT ALL ON *.* TO {ADMIN}@'%' WITH GRANT OPTION");
            let mut client = Command::new("mariadb");
            client.args(["--no-defaults", "--user=root", "--socket", &database.folder.at("socket")]);
            let done = client.args(["--execute", &text]).output().expect("its client starts");
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
        database
    }

    /// Which it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The port that it listens at, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Makes an empty database; returns its name.
    ///
    /// # Panics
    /// Where it cannot be made.
    pub fn empty(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("store_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let anywhere = match self.kind {
            Kind::Postgres => "postgres",
            Kind::Mariadb => "mysql",
        };
        self.sql(anywhere, &format!("CREATE DATABASE {name}"));
        name
    }

    /// The URL of a store in a database of this name.
    pub fn url(&self, name: &str) -> String {
        let scheme = match self.kind {
            Kind::Postgres => "postgres",
            Kind::Mariadb => "mysql",
        };
        format!("{scheme}://{ADMIN}@127.0.0.1:{}/{name}", self.port)
    }

    /// Executes statements with the database's own client, as another program would; returns the rows, columns with `|`
    /// between them.
    ///
    /// # Panics
    /// Where they fail.
    pub fn sql(&self, name: &str, text: &str) -> String {
        match self.try_sql(name, text) {
            Ok(rows) => rows,
            Err(what) => panic!("{text}: {what}"),
        }
    }

    /// As [`Database::sql`].
    ///
    /// # Errors
    /// What the client said.
    ///
    /// # Panics
    /// Where the client does not start.
    pub fn try_sql(&self, name: &str, text: &str) -> Result<String, String> {
        let mut client = self.client(name);
        client.args([if self.kind == Kind::Postgres { "--command" } else { "--execute" }, text]);
        let done = client.output().expect("its client starts");
        match done.status.success() {
            true => Ok(String::from_utf8_lossy(&done.stdout).trim_end().replace('\t', "|")),
            false => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
        }
    }

    /// The database's own client, which executes the statements that it reads.
    pub fn client(&self, name: &str) -> Command {
        let port = self.port.to_string();
        match self.kind {
            Kind::Postgres => {
                let mut client = Command::new("psql");
                client.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"]);
                client.args(["--set=ON_ERROR_STOP=1", "--host=127.0.0.1", "--port", &port]);
                client.args([&format!("--username={ADMIN}"), "--dbname", name]);
                client
            }
            Kind::Mariadb => {
                let mut client = Command::new("mariadb");
                client.args(["--no-defaults", "--batch", "--skip-column-names", "--raw", "--unbuffered"]);
                client.args(["--host=127.0.0.1", "--port", &port, &format!("--user={ADMIN}"), name]);
                client
            }
        }
    }

    /// Ends it as a crash would: what it had not written is gone, and it recovers when it goes on.
    ///
    /// # Panics
    /// Where it does not run.
    pub fn kill(&mut self) {
        let program = self.program.take().expect("it runs");
        // PostgreSQL has a process for each client, which end with it by this signal only.
        let signal = match self.kind {
            Kind::Postgres => Signal::SIGQUIT,
            Kind::Mariadb => Signal::SIGKILL,
        };
        program.signal(signal);
        let ended = program.end();
        assert!(ended.status.signal().is_some() || ended.status.code().is_some(), "{}", ended.stderr);
    }

    /// Starts it, again in its folder and at its port.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn go_on(&mut self) {
        let (data, port) = (self.folder.at("data"), self.port);
        let folder = self.folder.path().display();
        let mut command = match self.kind {
            Kind::Postgres => {
                let mut command = as_nobody(&format!("{POSTGRES}/postgres"));
                command.args(["-D", &data, "-p", &port.to_string()]);
                for setting in [
                    "listen_addresses=127.0.0.1".to_string(),
                    format!("unix_socket_directories={folder}"),
                    "shared_buffers=16MB".into(),
                    "max_connections=50".into(),
                ] {
                    command.args(["-c", &setting]);
                }
                command
            }
            Kind::Mariadb => {
                let mut command = as_nobody("/usr/sbin/mariadbd");
                command.args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve"]);
                command.args(["--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M"]);
                command.args([format!("--datadir={data}"), format!("--port={port}")]);
                command.args([format!("--socket={folder}/socket"), format!("--pid-file={folder}/pid")]);
                command
            }
        };
        command.env("TMPDIR", self.folder.path()).current_dir(self.folder.path());
        let mut program = Program::spawn(command);
        program.line(match self.kind {
            Kind::Postgres => "database system is ready to accept connections",
            Kind::Mariadb => "ready for connections",
        });
        self.program = Some(program);
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // A program that is dropped is killed, and the clients' processes of PostgreSQL would be left for a moment, in a
        // folder that is removed.
        if let Some(program) = self.program.take() {
            program.signal(Signal::SIGQUIT);
            if self.kind == Kind::Postgres && !std::thread::panicking() {
                program.end();
            }
        }
    }
}

/// The user without rights, where the tests are root's.
fn user() -> Option<User> {
    let is_root = geteuid().is_root();
    is_root.then(|| User::from_name(NOBODY).expect("users can be looked up").expect("there is a nobody"))
}

/// A command that is nobody's where the tests are root's.
fn as_nobody(program: &str) -> Command {
    if user().is_none() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", "nogroup", "--clear-groups", "--", program]);
    command
}
