//! Runs one fuzz target for as long as wanted, or on one input.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the terminal is this program's only output")]

use std::process::ExitCode;

use fuzz::{TARGETS, Target};

const USAGE: &str = "\
usage: cargo run -p fuzz -- TARGET [--executions N] [--first N] [--seed S]
       cargo run -p fuzz -- TARGET --input HEX

--executions N  how many inputs are tried; 1000000 by default
--first N       the index of the first one; 0 by default
--seed S        the seed of the damage; 0 by default
--input HEX     runs the target once, on this input";

/// What is asked for on the command line.
struct Asked {
    target: &'static Target,
    executions: u64,
    first: u64,
    seed: u64,
    input: Option<Vec<u8>>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(asked) = asked(&words) else {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("{USAGE}\n\ntargets: {}", names.join(" "));
        return ExitCode::from(2);
    };
    let name = asked.target.name;
    if let Some(input) = asked.input {
        (asked.target.run)(&input);
        println!("{name}: the input passes");
        return ExitCode::SUCCESS;
    }
    match fuzz::run(asked.target, asked.seed, asked.first..asked.first.saturating_add(asked.executions)) {
        Ok(()) => {
            println!("{name}: {} executions pass", asked.executions);
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{}", failure.report(name));
            ExitCode::FAILURE
        }
    }
}

fn asked(words: &[String]) -> Option<Asked> {
    let (name, options) = words.split_first()?;
    let target = TARGETS.iter().find(|target| target.name == name)?;
    let mut asked = Asked { target, executions: 1_000_000, first: 0, seed: 0, input: None };
    let (pairs, rest) = options.as_chunks::<2>();
    for [option, value] in pairs {
        match option.as_str() {
            "--executions" => asked.executions = value.parse().ok()?,
            "--first" => asked.first = value.parse().ok()?,
            "--seed" => asked.seed = value.parse().ok()?,
            "--input" => asked.input = Some(fuzz::from_hex(value)?),
            _ => return None,
        }
    }
    rest.is_empty().then_some(asked)
}
