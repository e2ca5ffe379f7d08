//! Our name server in a process of its own, on ports of the system's choice; it ends with who started it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

/// The core of whoever is asked, and that of whoever asks.
pub(crate) const SERVER_CORE: usize = 0;
pub(crate) const SENDER_CORE: usize = 1;

/// A server that answers; killed when dropped.
#[derive(Debug)]
pub(crate) struct Serving {
    child: Child,
    /// Where it answers DNS.
    pub(crate) dns: SocketAddr,
    /// Its API.
    pub(crate) api: SocketAddr,
}

impl Serving {
    /// Starts it with one worker and these lines of configuration behind its addresses and store; `folder` is for its
    /// files, to which the lines may refer. Returns when it is ready.
    ///
    /// # Errors
    /// Where it does not become ready; with what it said.
    pub(crate) fn start(folder: &Path, lines: &str) -> Result<Serving> {
        let config = folder.join("pointsman.toml");
        let store = folder.join("store.db");
        let text = format!(
            "version = \"v1\"\nlisten = [\"127.0.0.1:0\"]\napi = \"127.0.0.1:0\"\nworkers = 1\nstore = \"sqlite:{}\"\n{lines}",
            store.display(),
        );
        std::fs::write(&config, text).with_context(|| config.display().to_string())?;
        let mut command = pinned(SERVER_CORE, &program()?);
        command.args(["serve", "--config"]).arg(&config);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().context("the program")?;
        let pipe = child.stderr.take().context("its stderr")?;
        let mut serving = Serving { child, dns: ([0; 4], 0).into(), api: ([0; 4], 0).into() };
        let mut said = String::new();
        let mut lines = BufReader::new(pipe).lines().map_while(Result::ok);
        for line in lines.by_ref() {
            if let Some(place) = line.split_once("listening on ").and_then(|(_, at)| at.split(' ').next()) {
                match place.strip_prefix("http://") {
                    Some(api) => serving.api = api.parse().context("the API's address")?,
                    None => serving.dns = place.parse().context("its address")?,
                }
            }
            if line.contains("ready") {
                // It must never wait for a reader.
                thread::spawn(move || lines.for_each(drop));
                return Ok(serving);
            }
            said = said + &line + "\n";
        }
        bail!("pointsman does not start; it said:\n{said}")
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where our program is: beside this one.
///
/// # Errors
/// Where it is not there.
pub(crate) fn program() -> Result<PathBuf> {
    let program = std::env::current_exe().context("where this program is")?.with_file_name("pointsman");
    if !program.exists() {
        bail!("{} is not built: `cargo xtask experiment` does that", program.display());
    }
    Ok(program)
}

/// A program, pinned to a core where there is more than one.
pub(crate) fn pinned(core: usize, program: impl AsRef<Path>) -> Command {
    if thread::available_parallelism().is_ok_and(|cores| cores.get() > core) {
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string()]).arg(program.as_ref());
        return command;
    }
    Command::new(program.as_ref())
}
