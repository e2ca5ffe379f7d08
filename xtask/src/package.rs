//! `cargo xtask package`: the Debian package, by cargo-deb from the metadata in crates/pointsman/Cargo.toml.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::checkout::{Checkout, cargo};

/// The version of cargo-deb that is used, whatever else is installed.
const CARGO_DEB: &str = "3.8.0";

/// cargo-deb and its crates, unoptimised: one to three minutes on two cores.
const INSTALL_MAX: Duration = Duration::from_secs(600);
/// Third-party crates and ours, optimised as a whole: four to fifteen minutes on two cores.
const BUILD_MAX: Duration = Duration::from_secs(1_800);
/// Copying, stripping and packing one program.
const PACK_MAX: Duration = Duration::from_secs(120);

/// What is packed and not in the checkout is put here.
const STAGE: &str = "target/package";

/// Builds the program as it is released, and the package of it.
///
/// # Errors
/// When a step failed, or cargo-deb is missing and not to be installed.
pub(crate) fn run(checkout: &Checkout, install: bool) -> Result<()> {
    let Some(tool) = provide(checkout, install)? else {
        bail!("cargo-deb {CARGO_DEB} is needed: `cargo xtask package --install` puts it into target/tools");
    };
    checkout.cargo(&["build", "--profile", "dist", "--package", "pointsman"], BUILD_MAX)?;
    pack(checkout, &tool, &checkout.root.join("target/dist/pointsman"), &[])
}

/// Makes the package of a program that is built, in a hurry: the file is larger.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_with(checkout: &Checkout, program: &Path) -> Result<()> {
    let Some(tool) = provide(checkout, false)? else { bail!("cargo-deb {CARGO_DEB} is not in target/tools") };
    pack(checkout, &tool, program, &["--fast"])
}

/// cargo-deb; with `install` it is installed where it is not there.
///
/// Returns `None` where it is not there and not to be installed.
pub(crate) fn provide(checkout: &Checkout, install: bool) -> Result<Option<PathBuf>> {
    let folder = checkout.root.join("target/tools");
    let tool = folder.join("bin/cargo-deb");
    // Written last, so that it stands for a complete installation.
    let stamp = folder.join("cargo-deb.version");
    if tool.exists() && fs::read_to_string(&stamp).is_ok_and(|installed| installed == CARGO_DEB) {
        return Ok(Some(tool));
    }
    if !install {
        return Ok(None);
    }
    let mut command = checkout.command(cargo());
    command.args([
        "install",
        "cargo-deb",
        "--locked",
        "--debug",
        "--force",
        "--quiet",
        "--version",
        CARGO_DEB,
    ]);
    checkout.runner.run(command.arg("--root").arg(&folder), INSTALL_MAX)?;
    fs::write(&stamp, CARGO_DEB).with_context(|| format!("failed to write {}", stamp.display()))?;
    Ok(Some(tool))
}

/// Puts program, manual pages and completions into [`STAGE`], and packs.
fn pack(checkout: &Checkout, tool: &Path, program: &Path, how: &[&str]) -> Result<()> {
    let stage = checkout.root.join(STAGE);
    let _ = fs::remove_dir_all(&stage);
    fs::create_dir_all(stage.join("man")).with_context(|| format!("failed to make {STAGE}"))?;
    let run = |command: &mut std::process::Command| checkout.runner.run(command, PACK_MAX);
    run(checkout.command("strip").arg("-o").arg(stage.join("pointsman")).arg(program))?;
    run(checkout.command(program).arg("man").arg(stage.join("man")))?;
    for shell in ["bash", "fish", "zsh"] {
        let script =
            checkout.runner.read(checkout.command(program).args(["completions", shell]), PACK_MAX)?;
        fs::write(stage.join(shell), script).with_context(|| format!("failed to write {STAGE}/{shell}"))?;
    }
    let mut command = checkout.command(tool);
    // Quiet, for it would warn that the stage is not cargo's own folder for releases.
    command.args(["--quiet", "--no-build", "--no-strip", "--package", "pointsman"]).args(how);
    run(command.arg("--output").arg(&stage))?;
    println!("the package is in {STAGE}");
    Ok(())
}
