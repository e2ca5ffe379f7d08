//! The Python environment of the tests that check the HTTP API from outside, and our Python package: `target/python`.
//!
//! Such tests find its interpreter by the variable `POINTSMAN_PYTHON`, and skip when it is not set.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::checkout::Checkout;

/// What is installed, each package at one version.
const REQUIREMENTS: &str = include_str!("../python-requirements.txt");

/// About 40 small packages from a slow index.
const INSTALL_MAX: Duration = Duration::from_secs(300);

/// The interpreter of a complete environment; with `install`, one that is not complete is made anew.
///
/// Returns `None` when there is none and none was to be made.
pub(crate) fn provide(checkout: &Checkout, install: bool) -> Result<Option<PathBuf>> {
    let folder = checkout.root.join("target/python");
    let interpreter = folder.join("bin/python");
    // Written last, so that it stands for a complete environment.
    let stamp = folder.join("requirements.txt");
    if interpreter.exists() && fs::read_to_string(&stamp).is_ok_and(|installed| installed == REQUIREMENTS) {
        return Ok(Some(interpreter));
    }
    if !install {
        return Ok(None);
    }
    let mut create = checkout.command("python3");
    checkout.runner.run(create.args(["-m", "venv", "--clear"]).arg(&folder), INSTALL_MAX)?;
    let mut fill = checkout.command(&interpreter);
    fill.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    fill.args(["--requirement", "xtask/python-requirements.txt"]);
    checkout.runner.run(&mut fill, INSTALL_MAX)?;
    fs::write(&stamp, REQUIREMENTS).with_context(|| format!("failed to write {}", stamp.display()))?;
    Ok(Some(interpreter))
}
