//! `pointsman key`: the secret that a balancer and its agents share.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use credit::Key as Secret;
use credit::key::KEY_LEN;
use ring::rand::{SecureRandom, SystemRandom};

use crate::failure::Failure;
use crate::session;

/// The arguments of `key`.
#[derive(Args, Debug)]
pub(crate) struct Key {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Make a new key
    #[command(after_help = "Example:\n  pointsman key new credit.key")]
    New {
        /// The file, which only its owner can read (mode 600); one that is there is not replaced. Without it the key is
        /// printed
        file: Option<PathBuf>,
    },
}

impl Key {
    /// Draws a key, and writes it to a new file or prints it.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) fn run(self) -> Result<(), Failure> {
        let Action::New { file } = self.action;
        let mut octets = [0; KEY_LEN];
        let random = SystemRandom::new();
        random.fill(&mut octets).map_err(|_| Failure::Failed("the system has no random octets".into()))?;
        let text = Secret::text(&octets);
        match file {
            None => session::print(text.as_bytes()),
            Some(path) => write(&path, &text).map_err(|cause| match cause.kind() {
                io::ErrorKind::AlreadyExists => {
                    Failure::file(&path, "it is there already, and no key is written over", "another name")
                }
                _ => Failure::Failed(format!("{}: it cannot be made: {cause}", path.display())),
            }),
        }
    }
}

/// Makes the file; where not all of it can be written, nothing of it stays.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if written.is_err() {
        // Why it was not written matters more.
        let _ = fs::remove_file(path);
    }
    written
}
