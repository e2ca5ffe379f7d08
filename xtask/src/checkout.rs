//! The checkout that is worked on: its root, and how its programs are started.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process::{Failure, Runner};

/// A checkout of the repository.
pub(crate) struct Checkout {
    /// The folder of the root Cargo.toml.
    pub(crate) root: PathBuf,
    /// What every program is started with.
    pub(crate) runner: Runner,
    environment: Vec<(&'static str, OsString)>,
}

impl Checkout {
    /// The checkout that this program was compiled in.
    pub(crate) fn new(runner: Runner) -> Self {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = own.parent().expect("xtask is a folder of the root").to_path_buf();
        Checkout { root, runner, environment: Vec::new() }
    }

    /// Sets a variable for every program that is started from now on.
    pub(crate) fn set(&mut self, variable: &'static str, value: impl Into<OsString>) {
        self.environment.push((variable, value.into()));
    }

    /// A program in the root folder, with the variables that were set.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Cargo with these arguments; told on the terminal, so that the same can be run by hand.
    pub(crate) fn cargo(&self, arguments: &[&str], limit: Duration) -> Result<(), Failure> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./".contains(c);
        let quoted =
            |word: &&str| if word.chars().all(is_plain) { (*word).to_owned() } else { format!("'{word}'") };
        println!("$ cargo {}", arguments.iter().map(quoted).collect::<Vec<_>>().join(" "));
        self.runner.run(self.command(cargo()).args(arguments), limit)
    }

    /// What cargo prints with these arguments.
    pub(crate) fn cargo_read(&self, arguments: &[&str], limit: Duration) -> Result<String, Failure> {
        self.runner.read(self.command(cargo()).args(arguments), limit)
    }

    /// The text of a file, by its path from the root.
    pub(crate) fn text(&self, path: &str) -> Result<String> {
        fs::read_to_string(self.root.join(path)).with_context(|| format!("failed to read {path}"))
    }

    /// The names of the folders in `crates/`, sorted.
    pub(crate) fn crate_folders(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.root.join("crates")).context("failed to list crates/")? {
            let entry = entry.context("failed to list crates/")?;
            if entry.path().is_dir() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
    }
}

/// The cargo that started us, so that one run uses one toolchain.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
