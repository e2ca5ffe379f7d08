//! The command line.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{EXPERIMENTS, Experiment, machine};

/// What the command line asks for.
pub(crate) enum Asked {
    /// An experiment, and how it is done.
    Run(&'static Experiment, Run),
    /// The help.
    Help,
}

/// How an experiment is done.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) size: Size,
    /// What all draws begin with.
    pub(crate) seed: u64,
    /// Where `report.json` and `index.html` go.
    pub(crate) folder: PathBuf,
    /// The parts that are done; empty for all.
    pub(crate) only: Vec<String>,
}

impl Run {
    /// Whether a part is done.
    pub(crate) fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }

    /// Does something with a folder of its own, which is removed afterwards.
    ///
    /// # Errors
    /// Those of `work`, and where there is no such folder.
    pub(crate) fn within<T>(&self, work: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        let folder = self.folder.join("work");
        let named = || folder.display().to_string();
        // What a run that was broken off has left.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).with_context(named)?;
        let done = work(&folder.canonicalize().with_context(named)?);
        let _ = std::fs::remove_dir_all(&folder);
        done
    }
}

/// How much of an experiment is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// All of it.
    Full,
    /// Two minutes at most.
    Quick,
    /// Twenty seconds at most, also without optimisation: that everything works.
    Smoke,
}

impl Size {
    /// Picks one of three values, by size.
    pub(crate) fn of<T>(self, full: T, quick: T, smoke: T) -> T {
        match self {
            Size::Full => full,
            Size::Quick => quick,
            Size::Smoke => smoke,
        }
    }

    /// Its word on the command line and in reports.
    pub(crate) fn word(self) -> &'static str {
        self.of("full", "quick", "smoke")
    }
}

/// What the command line may say.
pub(crate) fn usage() -> String {
    let names: String =
        EXPERIMENTS.iter().map(|one| format!("  {:<10}  {}\n", one.name, one.about)).collect();
    let parts = EXPERIMENTS.iter().filter(|one| !one.parts.is_empty());
    let parts: Vec<String> = parts.map(|one| format!("{} of {}", one.parts.join(", "), one.name)).collect();
    format!(
        "usage: cargo xtask experiment NAME [--quick | --smoke] [--only PART,...] [--seed N] [--report DIR]\n\n{names}\n\
         --quick   two minutes at most\n\
         --smoke   twenty seconds at most: that everything works\n\
         --only    only these parts: {}\n\
         --seed    what all draws begin with; 1 unless given\n\
         --report  where report.json, index.html and the plots go; target/experiments/NAME unless given\n\n\
         The end is 4 where something that must hold does not. Example:\n  \
         cargo xtask experiment servload --quick --seed 7",
        parts.join("; ")
    )
}

/// Reads the words behind the program's name.
///
/// # Errors
/// What is wrong with the words, as a sentence.
pub(crate) fn read(words: &[String]) -> Result<Asked, String> {
    let mut words = words.iter().map(String::as_str);
    let name = match words.next() {
        Some("--help" | "-h" | "help") => return Ok(Asked::Help),
        Some(name) => name,
        None => return Err("which experiment?".to_owned()),
    };
    let experiment =
        EXPERIMENTS.iter().find(|one| one.name == name).ok_or(format!("there is no experiment {name}"))?;
    let mut run = Run { size: Size::Full, seed: 1, folder: PathBuf::new(), only: Vec::new() };
    let mut folder = None;
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word {
            "--help" | "-h" => return Ok(Asked::Help),
            "--quick" => run.size = Size::Quick,
            "--smoke" => run.size = Size::Smoke,
            "--seed" => {
                let value = value()?;
                run.seed = value.parse().map_err(|_| format!("--seed {value} is no whole number"))?;
            }
            "--only" => {
                run.only = value()?.split(',').map(str::to_owned).collect();
                if let Some(part) = run.only.iter().find(|part| !experiment.parts.contains(&part.as_str())) {
                    return Err(format!("{name} has no part {part}"));
                }
            }
            "--report" => folder = Some(PathBuf::from(value()?)),
            other => return Err(format!("{other} is no option")),
        }
    }
    run.folder = folder.unwrap_or_else(|| machine::root().join("target/experiments").join(name));
    Ok(Asked::Run(experiment, run))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Result<Asked, String> {
        read(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn words_are_read_or_refused() {
        let Ok(Asked::Run(experiment, run)) = asked("servload --quick --seed 7 --report here") else {
            panic!("all known");
        };
        assert_eq!((experiment.name, run.size, run.seed), ("servload", Size::Quick, 7));
        assert_eq!(run.folder, PathBuf::from("here"));
        assert!(run.wants("anything"), "all of it");
        let Ok(Asked::Run(_, run)) = asked("myxdns --only virtual,real") else { panic!("parts of it") };
        assert!(run.wants("real") && !run.wants("stress"));
        assert!(matches!(asked("servload --help"), Ok(Asked::Help)));
        for wrong in [
            "",
            "fly",
            "servload --seed",
            "servload --seed x",
            "servload --fast",
            "servload --only real",
            "myxdns --only",
            "myxdns --only fig7",
        ] {
            assert!(asked(wrong).is_err(), "{wrong}");
        }
    }
}
