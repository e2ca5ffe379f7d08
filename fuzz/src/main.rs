//! Runs fuzz targets for as long as wanted, blindly or guided, or on one input.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the terminal is this program's only output")]

use std::process::ExitCode;

use fuzz::{Guided, PATIENCE_SECONDS, TARGETS, Target};

const USAGE: &str = "\
usage: cargo run -p fuzz -- TARGET[,TARGET...] [--executions N] [--first N] [--seed S]
       cargo run -p fuzz -- TARGET --input HEX
       cargo run -p fuzz -- TARGET[,TARGET...] --guided [--executions N] [--seconds S] [--patience SECONDS]

TARGET may be: all.
--executions N  how many inputs are tried; 1000000 by default
--first N       the index of the first one; 0 by default
--seed S        the seed of the damage; 0 by default
--input HEX     runs the target once, on this input
--guided        under libFuzzer (needs g++); inputs that reach new code are kept in fuzz/corpus
--seconds S     guided, after how many seconds a target ends whatever was reached by then; 0, the default: never
--patience SECONDS
                guided, after how many seconds an input counts as an endless loop; 10 by default: more where
                the process may be stopped meanwhile

Example: cargo run -p fuzz -- zone --executions 100000";

/// What is asked for on the command line.
struct Asked {
    targets: Vec<&'static Target>,
    executions: u64,
    first: u64,
    seed: u64,
    input: Option<Vec<u8>>,
    guided: bool,
    seconds: u32,
    patience: u32,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    let usage = format!("{USAGE}\n\ntargets: {}", names.join(" "));
    if words.iter().any(|word| ["--help", "-h"].contains(&word.as_str())) {
        println!("{usage}");
        return ExitCode::SUCCESS;
    }
    let Some(asked) = asked(&words) else {
        eprintln!("{usage}");
        return ExitCode::from(2);
    };
    match perform(&asked) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn perform(asked: &Asked) -> Result<(), String> {
    let guided = if asked.guided { Some(Guided::build()?) } else { None };
    for target in &asked.targets {
        let name = target.name;
        if let Some(input) = &asked.input {
            (target.run)(input);
            println!("{name}: the input passes");
        } else if let Some(guided) = &guided {
            let done = guided.run(target, asked.executions, asked.seconds, asked.patience)?;
            println!("{name}: {} guided executions pass; {} inputs are kept", done.executions, done.kept);
        } else {
            let indices = asked.first..asked.first.saturating_add(asked.executions);
            fuzz::run(target, asked.seed, indices).map_err(|failure| failure.report(name))?;
            println!("{name}: {} executions pass", asked.executions);
        }
    }
    Ok(())
}

fn asked(words: &[String]) -> Option<Asked> {
    let (name, mut options) = words.split_first()?;
    let targets = match name.as_str() {
        "all" => TARGETS.iter().collect(),
        names => names
            .split(',')
            .map(|name| TARGETS.iter().find(|target| target.name == name))
            .collect::<Option<_>>()?,
    };
    let mut asked = Asked {
        targets,
        executions: 1_000_000,
        first: 0,
        seed: 0,
        input: None,
        guided: false,
        seconds: 0,
        patience: PATIENCE_SECONDS,
    };
    while let Some((option, rest)) = options.split_first() {
        options = rest;
        if option == "--guided" {
            asked.guided = true;
            continue;
        }
        let (value, rest) = options.split_first()?;
        options = rest;
        match option.as_str() {
            "--executions" => asked.executions = value.parse().ok()?,
            "--first" => asked.first = value.parse().ok()?,
            "--seed" => asked.seed = value.parse().ok()?,
            "--seconds" => asked.seconds = value.parse().ok()?,
            "--patience" => asked.patience = value.parse().ok()?,
            "--input" => asked.input = Some(fuzz::from_hex(value)?),
            _ => return None,
        }
    }
    Some(asked)
}
