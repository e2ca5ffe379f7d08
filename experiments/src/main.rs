//! The published figures beside ours: `cargo xtask experiment NAME`.
//!
//! - [`EXPERIMENTS`]: which there are; each is a module of its name.
//! - what measurements need too is in the library of the same name: the programs that are started, the machine;
//! - [`report`]: what each tells: values, plots, and what must hold; [`page`]: the same for a browser.
//! - [`options`]: the command line; [`data`]: with what a run was made; [`quota`]: a share of a processor, for servers.
//!
//! Exit codes: 0 where all holds, 1 for a run that failed, 2 for a wrong command line, 4 where something does not
//! hold.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the terminal is this program's only output")]

mod data;
mod ldplayer;
mod myxdns;
mod netairt;
mod options;
mod page;
mod quota;
mod rapid_dns;
mod report;
mod salbnet;
mod servload;

use std::process::ExitCode;

use anyhow::{Context, Result};
use experiments::{machine, process, quantiles, question, serving, steering};

use options::{Asked, Run};
use report::{Part, Report};

/// The exit code where something that must hold does not.
const EXIT_DOES_NOT_HOLD: u8 = 4;

/// One experiment.
struct Experiment {
    name: &'static str,
    /// What it is of, as a sentence.
    about: &'static str,
    /// What of it may be done alone; none where it is always done as a whole.
    parts: &'static [&'static str],
    /// Does it, and tells the report.
    perform: fn(&Run, &mut Report) -> Result<()>,
}

/// All experiments, in the order of their names.
const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "ldplayer",
        about: "LDplayer's figures: timing, the highest rate, DNSSEC's bandwidth, what TCP and TLS cost, distance.",
        parts: ldplayer::PARTS,
        perform: ldplayer::perform,
    },
    Experiment {
        name: "myxdns",
        about: "MyXDNS (WWW 2007), figures 3 to 8: stress, updates, selection algorithms in a closed loop.",
        parts: myxdns::PARTS,
        perform: myxdns::perform,
    },
    Experiment {
        name: "netairt",
        about: "NetAirt (2002): round trips by transport, policy and addresses; distances and searches of its AS graph.",
        parts: &[],
        perform: netairt::perform,
    },
    Experiment {
        name: "rapid-dns",
        about: "Rapid DNS (USITS 1999), figures 3 to 7 and the questions of its section 10, on a virtual clock.",
        parts: &[],
        perform: rapid_dns::perform,
    },
    Experiment {
        name: "salbnet",
        about: "Balancing by what servers can take, beside its rivals and dnsdist, on a virtual clock and really.",
        parts: salbnet::PARTS,
        perform: salbnet::perform,
    },
    Experiment {
        name: "servload",
        about: "The workloads of servload's slides: requests, sessions, mean and peak for factors up to 1,600.",
        parts: &[],
        perform: servload::perform,
    },
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (experiment, run) = match options::read(&words) {
        Ok(Asked::Run(experiment, run)) => (experiment, run),
        Ok(Asked::Help) => {
            println!("{}", options::usage());
            return ExitCode::SUCCESS;
        }
        Err(what) => {
            eprintln!("experiment: {what}\n\n{}", options::usage());
            return ExitCode::from(2);
        }
    };
    match perform(experiment, &run, &words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_DOES_NOT_HOLD),
        Err(error) => {
            eprintln!("experiment {}: {error:#}", experiment.name);
            ExitCode::FAILURE
        }
    }
}

/// Does it, writes its report, and says whether all holds that must.
fn perform(experiment: &Experiment, run: &Run, words: &[String]) -> Result<bool> {
    let mut report = Report::new(experiment.name, experiment.about, run, words);
    let left_out: Vec<&str> = experiment.parts.iter().copied().filter(|part| !run.wants(part)).collect();
    if !left_out.is_empty() {
        report.say(&format!("Left out, as only the rest was asked for: {}.", left_out.join(", ")));
    }
    (experiment.perform)(run, &mut report)?;
    report.end();
    std::fs::create_dir_all(&run.folder)
        .with_context(|| format!("failed to make {}", run.folder.display()))?;
    let json = format!("{:#}\n", report.json());
    let mut files = vec![("report.json".to_owned(), json), ("index.html".to_owned(), page::page(&report))];
    let plots = report.parts().iter().filter_map(|part| match part {
        Part::Plot(_, plot) => Some(plot.svg()),
        _ => None,
    });
    files.extend(plots.zip(1..).map(|(plot, number)| (format!("plot-{number}.svg"), plot)));
    for (name, content) in files {
        let path = run.folder.join(name);
        std::fs::write(&path, content).with_context(|| format!("failed to write {}", path.display()))?;
    }
    print!("{}", report.told());
    println!("{}", run.folder.join("index.html").display());
    Ok(report.holds())
}
