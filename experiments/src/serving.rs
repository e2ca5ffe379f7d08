//! Our name server in a process of its own, on ports of the system's choice; it ends with who started it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use tests::serving::Serving;

/// The core of whoever is asked.
pub const SERVER_CORE: usize = 0;

/// The core of whoever asks.
pub const SENDER_CORE: usize = 1;

/// The zone `example.com`, for names that come with policies.
pub const ZONE: &str =
    "$ORIGIN example.com.\n$TTL 300\n@ IN SOA ns hostmaster 1 2h 10m 2w 5m\n@ IN NS ns\nns IN A 192.0.2.53\n";

/// What `setpriv` does to a program, so that not even a signal to us alone lets it live on. Only the thread that starts it
/// counts as us.
pub const ENDS_WITH_US: [&str; 3] = ["--pdeathsig", "KILL", "--"];

/// Starts it with one worker and these lines of configuration; `folder` is for its files, to which the lines may refer.
/// Returns when it is ready.
///
/// # Errors
/// Where it does not become ready; with what it said.
pub fn start(folder: &Path, lines: &str) -> Result<Serving> {
    let config = folder.join("pointsman.toml");
    fs::write(&config, format!("version = \"v1\"\n{lines}")).with_context(|| config.display().to_string())?;
    let (config, store) = (config.display().to_string(), format!("sqlite:{}/store.db", folder.display()));
    let mut command = pinned(SERVER_CORE, "setpriv");
    command.args(ENDS_WITH_US).arg(program()?);
    let arguments = ["--config", &config, "--store", &store, "--workers", "1"];
    Serving::with(command, &arguments).map_err(|what| anyhow!(what))
}

/// Where our program is: beside this one.
///
/// # Errors
/// Where it is not there.
pub fn program() -> Result<PathBuf> {
    let program = std::env::current_exe().context("where this program is")?.with_file_name("pointsman");
    if !program.exists() {
        bail!("{} is not built: `cargo xtask experiment` does that", program.display());
    }
    Ok(program)
}

/// A program, pinned to a core where there is more than one.
pub fn pinned(core: usize, program: impl AsRef<Path>) -> Command {
    if thread::available_parallelism().is_ok_and(|cores| cores.get() > core) {
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string()]).arg(program.as_ref());
        return command;
    }
    Command::new(program.as_ref())
}
