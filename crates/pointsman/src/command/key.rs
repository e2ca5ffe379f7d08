//! `pointsman key`: the secret that a balancer and its agents share, and keys of zones.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use api::Fault;
use clap::{Args, Subcommand, ValueEnum};
use credit::Key as Secret;
use credit::key::KEY_LEN;
use nameserver::signing::fresh::{self, New};
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
    /// Make a key that a zone is signed with, and print its DS record, which the parent zone takes
    #[command(after_help = "Example:\n  pointsman key zone example.com")]
    Zone {
        /// The zone's name
        zone: String,
        /// The file of the private part, which only its owner can read (mode 600); the public part comes beside it, as NAME.key.
        /// Files that are there are not replaced [default: ZONE.private]
        file: Option<PathBuf>,
        /// The algorithm
        #[arg(long, value_enum, default_value = "ecdsap256sha256")]
        algorithm: Algorithm,
    },
}

/// Algorithms that new keys may have.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Algorithm {
    /// ECDSA with the curve P-256, which all validators know (RFC 8624)
    Ecdsap256sha256,
    /// ECDSA with the curve P-384
    Ecdsap384sha384,
    /// Ed25519, which a few old validators do not know
    Ed25519,
}

impl Key {
    /// Draws a key, and writes it to new files or prints it.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.action {
            Action::New { file } => new(file),
            Action::Zone { zone, file, algorithm } => of_zone(&zone, file, algorithm),
        }
    }
}

fn new(file: Option<PathBuf>) -> Result<(), Failure> {
    let mut octets = [0; KEY_LEN];
    let random = SystemRandom::new();
    random.fill(&mut octets).map_err(|_| no_random())?;
    let text = Secret::text(&octets);
    match file {
        None => session::print(text.as_bytes()),
        Some(path) => write(&path, &text, SECRET),
    }
}

fn of_zone(zone: &str, file: Option<PathBuf>, algorithm: Algorithm) -> Result<(), Failure> {
    let name = dns::name::folded_from_text(zone).map_err(|what| {
        Failure::Faults(
            Fault::whole("ZONE", format!("'{zone}' is no name: {what}"), "such as example.com").into(),
        )
    })?;
    let algorithm = match algorithm {
        Algorithm::Ecdsap256sha256 => New::EcdsaP256Sha256,
        Algorithm::Ecdsap384sha384 => New::EcdsaP384Sha384,
        Algorithm::Ed25519 => New::Ed25519,
    };
    let text = dns::name::to_text(&name);
    let made = fresh::make(&name, algorithm).ok_or_else(no_random)?;
    let private = file.unwrap_or_else(|| format!("{}.private", text.trim_end_matches('.')).into());
    write(&private, &made.private, SECRET)?;
    let written = write(&private.with_extension("key"), &made.public, PUBLIC);
    if written.is_err() {
        // Why it was not written matters more.
        let _ = fs::remove_file(&private);
    }
    written?;
    session::print(made.ds.as_bytes())
}

fn no_random() -> Failure {
    Failure::Failed("the system has no random octets".into())
}

/// The modes of files.
const SECRET: u32 = 0o600;
const PUBLIC: u32 = 0o644;

/// Makes a file; where not all of it can be written, nothing of it stays.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    try_write(path, text, mode).map_err(|cause| match cause.kind() {
        io::ErrorKind::AlreadyExists => {
            Failure::file(path, "it is there already, and no key is written over", "another name")
        }
        _ => Failure::Failed(format!("{}: it cannot be made: {cause}", path.display())),
    })
}

fn try_write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if written.is_err() {
        // Why it was not written matters more.
        let _ = fs::remove_file(path);
    }
    written
}
