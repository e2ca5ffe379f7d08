//! The steps behind `cargo xtask test`, in their order, and the table of how each went.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::checkout::Checkout;
use crate::{check, package, packages, python};

/// Third-party crates and ours, unoptimised: one to three minutes on two cores.
const BUILD_MAX: Duration = Duration::from_secs(900);
/// All unit, integration and property tests, and the seeded fuzz loops: eight to fifteen minutes on two cores.
const TESTS_MAX: Duration = Duration::from_secs(1_800);
/// Third-party crates and ours, optimised: two to nine minutes on two cores.
const RELEASE_MAX: Duration = Duration::from_secs(1_200);
/// The demo ends by itself after ten seconds.
const DEMO_MAX: Duration = Duration::from_secs(60);

/// One step: a line of this table is all that a new step takes.
struct Step {
    name: &'static str,
    work: Work,
    /// Whether the steps below are pointless when this one failed.
    needed: bool,
}

enum Work {
    /// A function of this crate.
    Here(fn(&Checkout) -> Result<()>),
    /// Cargo with these arguments, and the time after which it is killed.
    Cargo(&'static [&'static str], Duration),
}

const STEPS: &[Step] = &[
    Step { name: "check", work: Work::Here(check::run), needed: false },
    Step { name: "build", work: Work::Cargo(&["test", "--workspace", "--no-run"], BUILD_MAX), needed: true },
    Step {
        name: "tests",
        work: Work::Cargo(&["test", "--workspace", "--no-fail-fast"], TESTS_MAX),
        needed: false,
    },
    Step { name: "release build", work: Work::Cargo(&["build", "--release"], RELEASE_MAX), needed: true },
    Step {
        name: "demo",
        work: Work::Cargo(&["run", "--release", "--", "demo", "--for", "10s"], DEMO_MAX),
        needed: false,
    },
];

/// A line of the summary.
struct Row {
    name: &'static str,
    time: Duration,
    outcome: Outcome,
}

enum Outcome {
    Passed,
    Absent(&'static str),
    Failed(String),
    NotRun,
}

/// Provides what the tests need, runs every step and prints the summary.
///
/// # Errors
/// [`packages::Missing`] when something is needed and not to be installed; another error when a step failed.
pub(crate) fn run(mut checkout: Checkout, install: bool) -> Result<()> {
    let mut rows = Vec::new();

    let start = Instant::now();
    packages::provide(&checkout, packages::TESTS, install)?;
    rows.push(Row { name: "debian packages", time: start.elapsed(), outcome: Outcome::Passed });

    let start = Instant::now();
    let outcome = match python::provide(&checkout, install) {
        Ok(Some(interpreter)) => {
            checkout.set("POINTSMAN_PYTHON", interpreter);
            Outcome::Passed
        }
        Ok(None) => Outcome::Absent("absent: the tests that need it skip; --install makes it"),
        Err(error) => Outcome::Failed(format!("{error:#}")),
    };
    rows.push(Row { name: "python environment", time: start.elapsed(), outcome });

    let start = Instant::now();
    let outcome = match package::provide(&checkout, install) {
        Ok(Some(_)) => Outcome::Passed,
        Ok(None) => Outcome::Absent("absent: the tests of the Debian package skip; --install makes it"),
        Err(error) => Outcome::Failed(format!("{error:#}")),
    };
    rows.push(Row { name: "cargo-deb", time: start.elapsed(), outcome });

    let start = Instant::now();
    let outcome = match data(&checkout.root, std::env::var_os("POINTSMAN_DATA").map(PathBuf::from))? {
        Some(folder) => {
            println!("data: {}", folder.display());
            checkout.set("POINTSMAN_DATA", folder);
            Outcome::Passed
        }
        None => Outcome::Absent("absent: the tests that need it skip; POINTSMAN_DATA names its folder"),
    };
    rows.push(Row { name: "data", time: start.elapsed(), outcome });

    let mut pointless = false;
    for step in STEPS {
        let start = Instant::now();
        let outcome = if pointless || checkout.runner.interrupted() {
            Outcome::NotRun
        } else {
            println!("\n== {}", step.name);
            match perform(&checkout, &step.work) {
                Ok(()) => Outcome::Passed,
                Err(error) => {
                    pointless = step.needed;
                    Outcome::Failed(format!("{error:#}"))
                }
            }
        };
        rows.push(Row { name: step.name, time: start.elapsed(), outcome });
    }
    summarize(&rows)
}

fn perform(checkout: &Checkout, work: &Work) -> Result<()> {
    match work {
        Work::Here(function) => function(checkout),
        Work::Cargo(arguments, limit) => Ok(checkout.cargo(arguments, *limit)?),
    }
}

/// The folder of test data: `named` by the environment, or `../shared/data` beside the checkout.
///
/// # Errors
/// When a folder is named and is not there: then it was not meant to be skipped.
fn data(root: &Path, named: Option<PathBuf>) -> Result<Option<PathBuf>> {
    match named {
        Some(folder) if folder.is_dir() => Ok(Some(std::path::absolute(folder)?)),
        Some(folder) => bail!("POINTSMAN_DATA names {}, which is not a folder", folder.display()),
        None => Ok(root.parent().map(|beside| beside.join("shared/data")).filter(|folder| folder.is_dir())),
    }
}

fn summarize(rows: &[Row]) -> Result<()> {
    println!("\n{:<20} {:>9}  result", "step", "time");
    let mut failed = Vec::new();
    for row in rows {
        let result = match &row.outcome {
            Outcome::Passed => "ok",
            Outcome::Absent(told) => told,
            Outcome::Failed(why) => {
                failed.push(row.name);
                &format!("FAILED: {why}")
            }
            Outcome::NotRun => "not run",
        };
        println!("{:<20} {:>7.1} s  {result}", row.name, row.time.as_secs_f64());
    }
    let total: Duration = rows.iter().map(|row| row.time).sum();
    println!("{:<20} {:>7.1} s", "all", total.as_secs_f64());
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_fails_the_whole() {
        let row = |outcome| Row { name: "step", time: Duration::ZERO, outcome };
        assert!(summarize(&[row(Outcome::Passed), row(Outcome::Absent("absent"))]).is_ok());
        assert!(
            summarize(&[row(Outcome::Passed), row(Outcome::Failed("why".into())), row(Outcome::NotRun)])
                .is_err()
        );
    }

    #[test]
    fn data_that_is_named_must_be_there() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let found = data(here, Some(here.to_path_buf())).expect("the folder is there");
        assert_eq!(found.as_deref(), Some(here));
        assert!(data(here, Some(here.join("absent"))).is_err());
        assert!(data(here, None).expect("nothing is named").is_none());
    }
}
