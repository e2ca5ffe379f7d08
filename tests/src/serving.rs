//! The name server in a process of its own.

use std::net::SocketAddr;
use std::process::Command;

use crate::folder::Folder;
use crate::http::{Client, Response};
use crate::program::{self, Ended, Program};

/// A running `pointsman serve` on ports of the system's choice.
#[derive(Debug)]
pub struct Serving {
    /// The process.
    pub program: Program,
    /// The addresses that answer DNS.
    pub listening: Vec<SocketAddr>,
    /// The address of the API.
    pub api: SocketAddr,
}

impl Serving {
    /// Starts it with its store in `folder` and these further arguments; returns when it is ready.
    ///
    /// # Panics
    /// Where it does not become ready.
    pub fn start<A: AsRef<str>>(folder: &Folder, more: &[A]) -> Serving {
        Serving::under(Command::new(program::path()), folder, more)
    }

    /// Starts it behind the beginning of a command, such as `strace`.
    ///
    /// # Panics
    /// Where it does not become ready.
    pub fn under<A: AsRef<str>>(command: Command, folder: &Folder, more: &[A]) -> Serving {
        let store = store(folder);
        let mut arguments: Vec<&str> = more.iter().map(AsRef::as_ref).collect();
        if !arguments.contains(&"--store") {
            arguments.extend(["--store", &store]);
        }
        Serving::with(command, &arguments).unwrap_or_else(|what| panic!("{what}"))
    }

    /// As [`Serving::under`], for who is no test; where the store is, the arguments say.
    ///
    /// # Errors
    /// Where it does not become ready; with what it said.
    pub fn with(mut command: Command, arguments: &[&str]) -> Result<Serving, String> {
        command.args(["serve", "--api", "127.0.0.1:0"]);
        if !arguments.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.args(arguments);
        let mut program = Program::spawn(command);
        let mut listening = Vec::new();
        let api = loop {
            let line = program.says("listening on ")?;
            let place = line.split_ascii_whitespace().nth(2).expect("a line of that form");
            match place.strip_prefix("http://") {
                Some(api) => break api.parse().expect("an address"),
                None => listening.push(place.parse().expect("an address")),
            }
        };
        program.says("ready")?;
        Ok(Serving { program, listening, api })
    }

    /// The first address that answers DNS.
    pub fn dns(&self) -> SocketAddr {
        self.listening[0]
    }

    /// A client of the API with a connection of its own.
    pub fn client(&self) -> Client {
        Client::new(self.api)
    }

    /// Makes one call of the API that must succeed.
    ///
    /// # Panics
    /// Where it does not.
    pub fn call(&self, method: &str, path: &str, body: &str) -> Response {
        self.client().done(method, path, body).unwrap_or_else(|what| panic!("{what}"))
    }

    /// Ends it with SIGTERM.
    ///
    /// # Panics
    /// Where it does not end well.
    pub fn stop(self) -> Ended {
        self.program.stop()
    }
}

/// The store of a test: the file `pointsman.db` of its folder.
pub fn store(folder: &Folder) -> String {
    format!("sqlite:{}", folder.at("pointsman.db"))
}
