//! The measurements behind `cargo xtask bench`: each prints its table, and keeps it where that is asked for.
//!
//! - [`lookups`]: partitions: how long a look-up takes, how large they are, how long they take to build.
//! - [`answer`]: `answer` alone, without sockets.
//! - [`mod@agent`]: what of a core the agent takes.
//! - [`serve`]: the program beside other name servers, over the wire.
//! - [`reverse`]: names for addresses.
//! - [`mod@replay`]: the replayer beside other senders, seen by who receives.
//! - [`proximity`]: tables of routes, and a proximity service outside.
//! - [`balance`]: the balancer beside another, and what a pick costs.
//! - [`shared`]: several name servers on one database.
//! - [`floods`]: what good clients and the memory have of floods.
//!
//! [`data`] is what they measure with, [`report`] what they tell; `experiments` has what measurements of both share.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the terminal is this program's only output")]

mod agent;
mod answer;
mod balance;
mod data;
mod floods;
mod lookups;
mod options;
mod proximity;
mod replay;
mod report;
mod reverse;
mod serve;
mod shared;

use std::process::ExitCode;

use experiments::{machine, question, steering};
use options::{Options, What};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let options = match Options::read(&words) {
        Ok(options) => options,
        Err(what) => {
            eprint!("{what}\n\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    let mut report = report::Report::new(&words, options.seed);
    let outcome = match options.what {
        What::Lookups => lookups::run(&options, &mut report),
        What::Answer => answer::run(&options, &mut report),
        What::Agent => agent::run(&options, &mut report),
        What::Serve => serve::run(&options, &mut report),
        What::Reverse => reverse::run(&options, &mut report),
        What::Replay => replay::run(&options, &mut report),
        What::Balance => balance::run(&options, &mut report),
        What::Floods => floods::run(&options, &mut report),
        What::Proximity => proximity::run(&options, &mut report),
        What::Shared => shared::run(&options, &mut report),
    };
    report.end();
    let outcome = outcome.and_then(|()| {
        print!("{}", report.table());
        if options.keep { report.keep() } else { Ok(()) }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
