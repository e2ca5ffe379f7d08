//! `cargo xtask experiment`: builds what does the published figures anew, and starts it.

use std::fmt;
use std::time::Duration;

use anyhow::Result;

use crate::checkout::Checkout;
use crate::process::Failure;

/// Third-party crates and ours, optimised: two to nine minutes on two cores.
const BUILD_MAX: Duration = Duration::from_secs(1_200);

/// The longest experiment in its full size takes less than an hour.
const RUN_MAX: Duration = Duration::from_secs(2 * 3_600);

/// An experiment told how it ended by its code, which is ours then; 4 where something does not hold.
#[derive(Debug)]
pub(crate) struct Ended(pub(crate) u8);

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            4 => f.write_str("something that must hold does not; see what is printed above"),
            code => write!(f, "the experiment ended with {code}"),
        }
    }
}

impl std::error::Error for Ended {}

/// Builds, and does the experiment that the words name; `experiments/src/options.rs` reads them.
///
/// # Errors
/// [`Ended`] when the experiment did not end with 0; another error when a step failed.
pub(crate) fn run(checkout: &Checkout, words: &[&str]) -> Result<()> {
    if !crate::ask_for_help(words) {
        checkout.cargo(&["build", "--release", "--package", "pointsman"], BUILD_MAX)?;
    }
    checkout.cargo(&["build", "--release", "--package", "experiments"], BUILD_MAX)?;
    let mut command = checkout.command(checkout.root.join("target/release/experiments"));
    match checkout.runner.run(command.args(words), RUN_MAX) {
        Err(Failure::Ended(status)) if let Some(code) = status.code() => {
            Err(Ended(u8::try_from(code).unwrap_or(1)).into())
        }
        ended => Ok(ended?),
    }
}
