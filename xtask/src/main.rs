//! The workspace's automation: `cargo xtask check`, `test`, `bench`, `experiment` and `package`.
//!
//! Everything that a machine or a person runs on this repository starts here, so that a laptop and
//! the continuous integration do the same. It reads top-down: [`suite`] is the list of steps behind
//! `test`, [`check`] is the list of rules behind `check`, [`mod@bench`] builds and starts
//! the measurements, [`mod@experiment`] the published figures, [`mod@package`] makes the Debian
//! package, [`packages`] and [`python`] are what they and the tests need beyond Rust, and [`process`] starts other programs and bounds how long they take.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the terminal is this program's only output")]

#[cfg(not(target_os = "linux"))]
compile_error!("Pointsman builds and runs on Linux only: it stands on Linux's batched socket calls.");

mod bench;
mod check;
mod checkout;
mod experiment;
mod package;
mod packages;
mod process;
mod python;
mod suite;

use std::process::ExitCode;

use checkout::Checkout;
use process::Runner;

const USAGE: &str = "\
usage: cargo xtask check              format, lints, docs and the house rules
       cargo xtask test [--install]   everything that .ci/run runs
       cargo xtask bench WHAT         measurements: lookups, answer, serve (see benches/README.md)
       cargo xtask experiment NAME    published figures beside ours (see docs/reference/experiments.md)
       cargo xtask package [--install | --program FILE]
                                      the Debian package, in target/package; of a program that is built

--install  installs what the tests need beyond Rust: Debian packages (as root, or through sudo; their
           services are kept from starting), and under target/ a Python environment and cargo-deb
--help     behind bench or experiment: what it takes

Example:
  cargo xtask test --install";

/// The exit code for a wrong command line, and for something that is needed and missing.
const EXIT_NEEDS: u8 = 2;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["check"] => open().and_then(|checkout| check::run(&checkout)),
        ["test"] => open().and_then(|checkout| suite::run(checkout, false)),
        ["test", "--install"] => open().and_then(|checkout| suite::run(checkout, true)),
        ["bench", ref words @ ..] if ask_for_help(words) => {
            print!("{}", bench::USAGE);
            return ExitCode::SUCCESS;
        }
        ["bench"] => {
            eprint!("what to measure?\n\n{}", bench::USAGE);
            return ExitCode::from(EXIT_NEEDS);
        }
        ["bench", ref words @ ..] => open().and_then(|checkout| bench::run(&checkout, words)),
        ["experiment", ref words @ ..] => open().and_then(|checkout| experiment::run(&checkout, words)),
        ["package"] => open().and_then(|checkout| package::run(&checkout, false)),
        ["package", "--install"] => open().and_then(|checkout| package::run(&checkout, true)),
        ["package", "--program", program] => {
            open().and_then(|checkout| package::run_with(&checkout, program.as_ref()))
        }
        ["help" | "--help" | "-h"] | ["check" | "test" | "package", "help" | "--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(EXIT_NEEDS);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nxtask: {error:#}");
            if let Some(code) = error.downcast_ref::<experiment::Ended>() {
                return ExitCode::from(code.0);
            }
            if error.is::<packages::Missing>() { ExitCode::from(EXIT_NEEDS) } else { ExitCode::FAILURE }
        }
    }
}

/// Whether the words behind a command ask what it takes.
fn ask_for_help(words: &[&str]) -> bool {
    words.first() == Some(&"help") || words.iter().any(|word| ["--help", "-h"].contains(word))
}

fn open() -> anyhow::Result<Checkout> {
    Ok(Checkout::new(Runner::new()?))
}
